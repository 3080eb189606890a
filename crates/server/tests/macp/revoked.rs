//! Static tokens that change while the server runs.

use std::sync::Arc;

use handover_desk::bucket::BURST_MIN;
use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_engine::Settings;
use handover_server::face::macp::proto::v1::{
    StreamSessionRequest, WatchPoliciesResponse, WatchRootsRequest, WatchRootsResponse, WatchSessionsResponse,
};
use tokio::sync::mpsc;
use tonic::{Code, Streaming};

use super::stage::*;

/// One of every stream of an agent, in a session of its own.
pub struct Streams {
    pub bound: Listening,
    pub frames: mpsc::Sender<StreamSessionRequest>,
    unbound: Listening,
    signals: Hearing,
    sessions: Streaming<WatchSessionsResponse>,
    policies: Streaming<WatchPoliciesResponse>,
    roots: Streaming<WatchRootsResponse>,
    _more: mpsc::Sender<StreamSessionRequest>,
}

impl Streams {
    /// Open them, and see that they are.
    pub async fn open(agent: &Agent) -> Streams {
        let (frames, mut bound) = agent.subscribed(SESSION, 0).await;
        let (more, unbound) = agent.stream().await;
        let signals = agent.signals().await;
        let mut macp = agent.macp.clone();
        let mut sessions = macp.watch_sessions(watch_sessions()).await.unwrap().into_inner();
        let mut policies = macp.watch_policies(watch_policies()).await.unwrap().into_inner();
        let mut roots = macp.watch_roots(WatchRootsRequest {}).await.unwrap().into_inner();
        assert_eq!(bound.types(1).await, ["SessionStart"]);
        assert!(in_time(sessions.message()).await.unwrap().is_some());
        assert!(in_time(policies.message()).await.unwrap().is_some());
        assert!(in_time(roots.message()).await.unwrap().is_some());
        Streams { bound, frames, unbound, signals, sessions, policies, roots, _more: more }
    }

    /// Each ends because of this.
    pub async fn all_end_with(mut self, why: &str) {
        loop {
            // What happened meanwhile may be told before.
            match in_time(self.sessions.message()).await {
                Ok(told) => assert!(told.is_some()),
                Err(status) => break ended_with(&status, why),
            }
        }
        for status in [
            self.bound.next().await.map(|_| ()),
            self.unbound.next().await.map(|_| ()),
            self.signals.next().await.map(|_| ()),
            in_time(self.policies.message()).await.map(|_| ()),
            in_time(self.roots.message()).await.map(|_| ()),
        ] {
            ended_with(&status.unwrap_err(), why);
        }
    }
}

fn ended_with(status: &tonic::Status, why: &str) {
    assert_eq!((status.code(), macp_code(status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
    assert_eq!(status.message(), format!("the bearer token was refused: {why}"));
}

/// A file of tokens of the planner and a worker.
fn file(of_planner: &str) -> String {
    let entry = |agent: &str, rest: &str| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{rest}\n", hash_text(agent))
    };
    entry("planner", of_planner) + &entry("worker", "")
}

async fn with(tokens: &Arc<Tokens>) -> Stage {
    let identity = Identity::Tokens(Arc::clone(tokens));
    Stage::for_known(identity, empty_store(), Settings::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_ends_when_its_token_is_revoked_expires_or_changes_hands() {
    for (entry, why) in [
        (Some("revoked = true"), "the token was revoked"),
        (Some("expires_at = 2020-01-01T00:00:00Z"), "the token has expired"),
        (Some("roles = [\"observer\"]"), "the token's entry has changed"),
        (None, "unknown token"),
    ] {
        let tokens = Arc::new(Tokens::parse(&file("")).unwrap());
        let stage = with(&tokens).await;
        let (planner, worker) = (stage.agent("planner"), stage.agent("worker"));
        planner.ok(envelope(SESSION, start())).await;
        let others = worker.signals().await;
        let mut streams = Streams::open(&planner).await;
        let stays = tokens.replace("nonsense = 1");
        assert!(stays.is_err(), "and the old tokens stay");
        planner.ok(envelope(SESSION, request())).await;
        assert_eq!(streams.bound.types(1).await, ["TaskRequest"]);
        tokens
            .replace(&entry.map_or_else(|| file("").split_off(file("").rfind("[[").unwrap()), file))
            .unwrap();
        streams.all_end_with(why).await;
        if why != "the token's entry has changed" {
            let refused = planner.refused(envelope(SESSION, request())).await;
            assert_eq!(refused.message, format!("the bearer token was refused: {why}"));
        }
        worker.ok(signal("weather.rain", "")).await;
        let mut others = others;
        assert_eq!(others.heard().await.0, "weather.rain", "nobody else's stream ends");
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_change_hold_from_the_next_call_on_also_on_a_stream_that_is_open() {
    let tokens = Arc::new(Tokens::parse(&file("")).unwrap());
    let stage = with(&tokens).await;
    let planner = stage.agent("planner");
    planner.ok(envelope(SESSION, start())).await;
    let mut streams = Streams::open(&planner).await;
    tokens.replace(&file("limits = { messages_per_minute = 1, streams = 1 }")).unwrap();
    for _ in 0..BURST_MIN {
        planner.ok(signal("weather.rain", "")).await;
    }
    assert_eq!(planner.refused(signal("weather.rain", "")).await.code, "RATE_LIMITED");
    streams.frames.send(frame(envelope(SESSION, request()))).await.unwrap();
    assert_eq!(streams.bound.error().await.code, "RATE_LIMITED");
    // Streams that are open stay; one more does not fit.
    assert!(planner.macp.clone().watch_signals(watch_signals()).await.is_err());
    tokens.replace(&file("limits = { messages_per_minute = 0 }")).unwrap();
    streams.frames.send(frame(envelope(SESSION, request()))).await.unwrap();
    assert_eq!(streams.bound.types(1).await, ["TaskRequest"]);
    stage.stop().await;
}
