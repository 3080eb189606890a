//! What is left of a session after its end: everything, then its id, then nothing.

use std::path::Path;
use std::sync::Arc;

use handover_engine::Settings;
use handover_engine::clock::now;
use handover_server::face::macp::proto::handover::TimelineEvent;
use handover_server::face::macp::proto::v1::{
    Envelope, GetSessionRequest, ListSessionsRequest, SessionMetadata, SessionState,
};
use handover_store::{SessionKey, SqliteStore};
use tonic::Code;

use super::stage::*;

/// How long a finished session is kept, where it is not for ever.
const KEPT_MS: u64 = 50;

/// A server that deletes what was finished so long ago. It looks as soon as it starts, so a play goes on in time by
/// starting it again.
async fn keeping(dir: &Path, retention_ms: u64) -> Stage {
    let store = Arc::new(SqliteStore::open(dir).unwrap());
    let kept = Some(retention_ms);
    Stage::with(store, Settings { retention_ms: kept, tombstones_ms: kept, ..Settings::default() }).await
}

async fn until(what: impl Fn() -> bool) {
    in_time(async {
        while !what() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn get() -> GetSessionRequest {
    GetSessionRequest { session_id: SESSION.to_owned() }
}

fn key() -> SessionKey {
    SessionKey::new("default", SESSION)
}

/// Live a whole life, and say what was sent.
async fn live(stage: &Stage) -> Vec<Envelope> {
    let mut sent = Vec::new();
    for (name, envelope) in [
        ("planner", envelope(SESSION, start())),
        ("planner", envelope(SESSION, request())),
        ("worker", envelope(SESSION, accept())),
        ("worker", envelope(SESSION, update("half of it"))),
        ("worker", envelope(SESSION, complete())),
        ("planner", envelope(SESSION, commit())),
    ] {
        stage.agent(name).ok(envelope.clone()).await;
        sent.push(envelope.with(|envelope| envelope.sender = name.to_owned()));
    }
    sent
}

/// Everything that can be read of the session.
async fn read(stage: &Stage, envelopes: usize) -> (SessionMetadata, Vec<Envelope>, Vec<TimelineEvent>) {
    let mut worker = stage.agent("worker");
    let metadata = worker.macp.get_session(get()).await.unwrap().into_inner().metadata.unwrap();
    let (_frames, mut stream) = worker.subscribed(SESSION, 0).await;
    let mut seen = Vec::new();
    while seen.len() < envelopes {
        seen.push(stream.envelope().await);
    }
    (metadata, seen, worker.timeline(SESSION).await)
}

async fn listed(stage: &Stage) -> Vec<String> {
    let all = ListSessionsRequest { page_size: 0, page_token: String::new() };
    let page = stage.agent("worker").macp.list_sessions(all).await.unwrap().into_inner();
    page.sessions.into_iter().map(|session| session.session_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_transcript_stays_readable_after_the_end_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    let sent = live(&stage).await;
    let before = read(&stage, sent.len()).await;
    let (metadata, seen, timeline) = &before;
    assert_eq!(metadata.state(), SessionState::Resolved);
    let words = |envelopes: &[Envelope]| -> Vec<(String, String, String, Vec<u8>)> {
        let of = |e: &Envelope| {
            (e.message_type.clone(), e.message_id.clone(), e.sender.clone(), e.payload.clone())
        };
        envelopes.iter().map(of).collect()
    };
    assert_eq!(words(seen), words(&sent));
    assert_eq!(timeline.len(), sent.len());
    assert!(timeline[4].detail_json.contains("a page"), "the output: {}", timeline[4].detail_json);
    stage.stop().await;
    let stage = Stage::on_disk(dir.path()).await;
    assert_eq!(read(&stage, sent.len()).await, before);
    assert_eq!(listed(&stage).await, [SESSION]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_leaves_the_id_taken_for_as_long_as_its_tombstone_is_kept_and_then_free() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    live(&stage).await;
    let finished_at = stage.store.row(&key()).unwrap().unwrap().finished_at.unwrap();
    stage.stop().await;

    until(|| now().0 > finished_at + KEPT_MS).await;
    let stage = keeping(dir.path(), KEPT_MS).await;
    until(|| stage.store.tombstone(&key()).unwrap().is_some()).await;
    let deleted_at = stage.store.tombstone(&key()).unwrap().unwrap();
    let mut worker = stage.agent("worker");
    let no = [
        worker.macp.get_session(get()).await.map(|_| ()).unwrap_err(),
        worker.handover.read_timeline(timeline(SESSION, 0, 0)).await.map(|_| ()).unwrap_err(),
        worker.subscribed(SESSION, 0).await.1.next().await.unwrap_err(),
    ];
    for status in no {
        assert_eq!((status.code(), macp_code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"));
    }
    assert!(listed(&stage).await.is_empty());
    let again = || envelope(SESSION, start());
    assert_eq!(stage.agent("planner").refused(again()).await.code, "SESSION_ALREADY_EXISTS");
    stage.stop().await;

    // The time of the tombstone is not over: a period is an hour here.
    let stage = keeping(dir.path(), 60 * 60 * 1000).await;
    assert_eq!(stage.agent("planner").refused(again()).await.code, "SESSION_ALREADY_EXISTS");
    stage.stop().await;

    until(|| now().0 > deleted_at + KEPT_MS).await;
    let stage = keeping(dir.path(), KEPT_MS).await;
    until(|| stage.store.tombstone(&key()).unwrap().is_none()).await;
    stage.agent("planner").ok(again()).await;
    assert_eq!(listed(&stage).await, [SESSION]);
    stage.stop().await;
}
