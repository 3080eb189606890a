//! Fan-out: many watch one session while it is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use handover_server::face::macp::proto::v1::stream_session_response::Response as Frame;
use handover_server::face::macp::proto::v1::{Envelope, StreamSessionRequest, StreamSessionResponse};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::Streaming;

use super::runtime::{Caller, failed};
use super::script::{By, CLOSING, Ids, OPENING, Script, UPDATE};
use super::{ANSWER_WITHIN, late};
use crate::Failure;

/// What it came to.
pub struct Delivered {
    pub updates: u64,
    pub events: u64,
    pub seconds: f64,
    /// From the call to its Ack.
    pub send_us: Vec<f64>,
    /// From the Ack to the receipt of the last watcher, 0 where that came first.
    pub ack_to_last_us: Vec<f64>,
    /// From the call to the receipt of the last watcher.
    pub call_to_last_us: Vec<f64>,
}

/// The receipts of all watchers, counted together.
struct Receipts {
    watchers: u64,
    count: AtomicU64,
    /// Told when each watcher has one more.
    complete: mpsc::UnboundedSender<Instant>,
}

impl Receipts {
    fn one_more(&self) {
        // Nobody gets the next update before everybody has this one, so every full round ends at a multiple.
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(self.watchers) {
            // If the sender has gone, so has the measurement.
            _ = self.complete.send(Instant::now());
        }
    }
}

/// Let them watch, and send one update after the other: the next when everybody has the last.
pub async fn measure(
    callers: &[Caller],
    script: &Arc<Script>,
    watchers: usize,
    warm_up: Duration,
    seconds: Duration,
) -> Result<Delivered, Failure> {
    let mut ids = Ids::new();
    let session_id = ids.next();
    let mut sender = callers[0].clone();
    for line in &script.lines()[..OPENING] {
        sender.send(script, line, &session_id, &mut ids).await?;
    }

    let (complete, mut rounds) = mpsc::unbounded_channel();
    let receipts = Arc::new(Receipts { watchers: watchers as u64, count: AtomicU64::new(0), complete });
    let mut tasks = JoinSet::new();
    for index in 0..watchers {
        let caller = callers[index % callers.len()].clone();
        // Both take part, and both may watch.
        let by = if index % 2 == 0 { By::Requester } else { By::Worker };
        tasks.spawn(watch(caller, by, session_id.clone(), ids.clone(), Arc::clone(&receipts)));
    }
    // The first round is the opening, which everybody is shown again.
    round(&mut rounds, &mut tasks).await?;

    let mut delivered = Delivered {
        updates: 0,
        events: 0,
        seconds: 0.0,
        send_us: Vec::new(),
        ack_to_last_us: Vec::new(),
        call_to_last_us: Vec::new(),
    };
    let update = &script.lines()[UPDATE];
    let mut begun = Instant::now();
    let measured_from = begun + warm_up;
    let until = measured_from + seconds;
    loop {
        let sent = Instant::now();
        if sent >= until {
            break;
        }
        sender.send(script, update, &session_id, &mut ids).await?;
        let acked = Instant::now();
        let last = round(&mut rounds, &mut tasks).await?;
        if sent < measured_from {
            begun = Instant::now();
            continue;
        }
        delivered.updates += 1;
        let micros = |from, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e6;
        delivered.send_us.push(micros(sent, acked));
        delivered.ack_to_last_us.push(micros(acked, last));
        delivered.call_to_last_us.push(micros(sent, last));
    }
    delivered.seconds = begun.elapsed().as_secs_f64();
    delivered.events = delivered.updates * watchers as u64;
    tasks.shutdown().await;
    for line in &script.lines()[CLOSING..] {
        sender.send(script, line, &session_id, &mut ids).await?;
    }
    Ok(delivered)
}

/// Wait until every watcher has one more.
async fn round(
    rounds: &mut mpsc::UnboundedReceiver<Instant>,
    tasks: &mut JoinSet<Failure>,
) -> Result<Instant, Failure> {
    tokio::select! {
        biased;
        Some(last) = rounds.recv() => Ok(last),
        Some(ended) = tasks.join_next() => Err(match ended {
            Ok(failure) => failure,
            Err(error) => Failure::fault("watching", &error),
        }),
        () = tokio::time::sleep(ANSWER_WITHIN) => Err(late("every watcher to have the update")),
    }
}

/// Watch until something is wrong: what comes must be every update, in order, once.
async fn watch(
    mut caller: Caller,
    by: By,
    session_id: String,
    mut expected: Ids,
    receipts: Arc<Receipts>,
) -> Failure {
    let mut stream = match subscribe(&mut caller, by, session_id).await {
        Ok(stream) => stream,
        Err(failure) => return failure,
    };
    for _ in 0..OPENING {
        if let Err(failure) = next(&mut stream).await {
            return failure;
        }
    }
    receipts.one_more();
    loop {
        match next(&mut stream).await {
            Ok(envelope) if envelope.message_id == expected.next() => receipts.one_more(),
            Ok(envelope) => {
                let found = format!("{} {}", envelope.message_type, envelope.message_id);
                return Failure::Fault(format!("expected a watcher to get the next update, found {found}"));
            }
            Err(failure) => return failure,
        }
    }
}

/// A stream of everything that happened in a session and will.
pub async fn subscribe(
    caller: &mut Caller,
    by: By,
    session_id: String,
) -> Result<Streaming<StreamSessionResponse>, Failure> {
    let first = StreamSessionRequest { envelope: None, subscribe_session_id: session_id, after_sequence: 0 };
    // Not ended after the first frame: to some runtimes that would be the end of the stream.
    let frames = tokio_stream::once(first).chain(tokio_stream::pending());
    let request = caller.request(by, frames);
    let answer = caller.client().stream_session(request).await;
    Ok(answer.map_err(|status| failed("StreamSession", &status))?.into_inner())
}

async fn next(stream: &mut Streaming<StreamSessionResponse>) -> Result<Envelope, Failure> {
    let frame = stream.message().await.map_err(|status| failed("StreamSession", &status))?;
    match frame.and_then(|frame| frame.response) {
        Some(Frame::Envelope(envelope)) => Ok(envelope),
        Some(Frame::Error(error)) => {
            Err(Failure::Fault(format!("a subscription was refused: {}: {}", error.code, error.message)))
        }
        None => Err(Failure::Fault("expected a watcher to get the next update, found the end".to_owned())),
    }
}
