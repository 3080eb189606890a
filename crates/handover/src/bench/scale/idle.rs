//! Many streams that nothing happens on, until the server tells them that it stops.

use handover_server::face::macp::proto::v1::{WatchSessionsRequest, WatchSignalsRequest};
use tokio::task::JoinSet;
use tonic::{Code, Status, Streaming};

use super::crowd::Crowd;
use crate::Failure;
use crate::bench::macp::fan_out::subscribe;
use crate::bench::macp::runtime::{Caller, Tokens, failed};
use crate::bench::macp::script::{By, OPENING};
use crate::bench::macp::{ANSWER_WITHIN, late};

/// How many streams a connection carries: a server may allow no more than 100.
const STREAMS_EACH: usize = 100;

/// Open streams, each held by a task that waits for its end.
pub struct Held {
    streams: JoinSet<Result<(), Status>>,
}

impl Held {
    /// Of each ten eight follow a session, one all sessions of an agent that has none, and one its signals.
    pub async fn open(
        address: &str,
        crowd: &Crowd,
        sessions: &[String],
        count: usize,
    ) -> Result<Held, Failure> {
        let mut streams = JoinSet::new();
        let mut caller = None;
        for index in 0..count {
            if index % STREAMS_EACH == 0 {
                let requester = &crowd.requester(0).name;
                caller = Some(Caller::connect(address, Tokens::new(requester, "bystander")?).await?);
            }
            let Some(caller) = &mut caller else { continue };
            match index % 10 {
                8 => {
                    let request = caller.request(By::Worker, WatchSessionsRequest {});
                    let answer = caller.client().watch_sessions(request).await;
                    let stream = answer.map_err(|status| failed("WatchSessions", &status))?.into_inner();
                    streams.spawn(wait(stream));
                }
                9 => {
                    let request = caller.request(By::Worker, WatchSignalsRequest {});
                    let answer = caller.client().watch_signals(request).await;
                    let stream = answer.map_err(|status| failed("WatchSignals", &status))?.into_inner();
                    streams.spawn(wait(stream));
                }
                _ => {
                    let mine = index * crowd.requesters().len() % sessions.len();
                    let mine = mine - mine % crowd.requesters().len();
                    let mut stream = subscribe(caller, By::Requester, sessions[mine].clone()).await?;
                    for _ in 0..OPENING {
                        let envelope = stream.message().await;
                        envelope.map_err(|status| failed("StreamSession", &status))?;
                    }
                    streams.spawn(wait(stream));
                }
            }
        }
        Ok(Held { streams })
    }

    /// Every stream must have ended because the server stops.
    pub async fn all_were_told(mut self) -> Result<(), Failure> {
        let all = async {
            while let Some(ended) = self.streams.join_next().await {
                match ended.map_err(|error| Failure::fault("holding streams", &error))? {
                    Err(status) if status.code() == Code::Unavailable => {}
                    Err(status) => {
                        return Err(failed("expected a stream to end as unavailable: it", &status));
                    }
                    Ok(()) => {
                        let message = "expected a stream to be told that the server stops, found its end";
                        return Err(Failure::Fault(message.to_owned()));
                    }
                }
            }
            Ok(())
        };
        tokio::time::timeout(ANSWER_WITHIN, all).await.map_err(|_| late("every stream to end"))?
    }
}

/// Wait until the stream ends, whatever it says before.
async fn wait<T>(mut stream: Streaming<T>) -> Result<(), Status> {
    while stream.message().await?.is_some() {}
    Ok(())
}
