//! `WatchSessions`: what there is, and then what happens.

use handover_server::face::macp::proto::v1::session_lifecycle_event::EventType;
use handover_server::face::macp::proto::v1::{SessionState, WatchSessionsResponse};
use tonic::Streaming;

use super::stage::*;

async fn watching(agent: &Agent) -> Streaming<WatchSessionsResponse> {
    in_time(agent.macp.clone().watch_sessions(watch_sessions())).await.unwrap().into_inner()
}

async fn next(watch: &mut Streaming<WatchSessionsResponse>) -> (EventType, String, SessionState) {
    let event = in_time(watch.message()).await.unwrap().unwrap().event.unwrap();
    assert!(event.observed_at_unix_ms > 0);
    let kind = event.event_type();
    let session = event.session.unwrap();
    let state = session.state();
    (kind, session.session_id, state)
}

/// The next event is of this kind and about this session.
async fn expect(watch: &mut Streaming<WatchSessionsResponse>, kind: EventType, session: &str) {
    let (found, of, _) = next(watch).await;
    assert_eq!((found, of.as_str()), (kind, session));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_is_told_of_what_there_is_and_then_of_what_happens() {
    let stage = Stage::in_memory().await;
    let (known, new, brief, dropped) = (
        "a-session-that-was-there-before",
        "a-session-that-came-later",
        "a-session-of-one-moment",
        "a-session-that-is-cancelled",
    );
    let mut planner = stage.agent("planner");
    stage.reported(known).await;
    let mut watch = watching(&stage.agent("worker")).await;
    expect(&mut watch, EventType::Created, known).await;

    stage.working(new).await;
    expect(&mut watch, EventType::Created, new).await;
    planner.macp.suspend_session(suspend(new)).await.unwrap();
    expect(&mut watch, EventType::Suspended, new).await;
    planner.macp.resume_session(resume(new)).await.unwrap();
    expect(&mut watch, EventType::Resumed, new).await;

    planner.ok(envelope(known, commit())).await;
    assert_eq!(next(&mut watch).await, (EventType::Resolved, known.to_owned(), SessionState::Resolved));

    planner.ok(envelope(brief, start().with(|s| s.ttl_ms = 1))).await;
    expect(&mut watch, EventType::Created, brief).await;
    assert_eq!(next(&mut watch).await, (EventType::Expired, brief.to_owned(), SessionState::Expired));

    planner.ok(envelope(dropped, start())).await;
    expect(&mut watch, EventType::Created, dropped).await;
    planner.macp.cancel_session(cancel(dropped)).await.unwrap();
    assert_eq!(next(&mut watch).await, (EventType::Cancelled, dropped.to_owned(), SessionState::Cancelled));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_is_told_only_of_its_own_sessions() {
    let stage = Stage::in_memory().await;
    let own = "a-session-of-the-outsider";
    stage.working(SESSION).await;
    let mut watch = watching(&stage.agent("outsider")).await;
    stage.agent("planner").macp.cancel_session(cancel(SESSION)).await.unwrap();
    stage.agent("outsider").ok(envelope(own, start())).await;
    expect(&mut watch, EventType::Created, own).await;
    stage.agent("outsider").macp.cancel_session(cancel(own)).await.unwrap();
    expect(&mut watch, EventType::Cancelled, own).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_begins_while_the_known_ones_are_told_is_told_once() {
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    // More than the network and all queues hold: the list of the known ones is not at its end when the last begins.
    let before = 1000;
    let id = |n: usize| format!("a-session-with-the-number-{n}");
    for n in 0..before {
        planner.ok(envelope(&id(n), start())).await;
    }
    let mut watch = watching(&stage.agent("worker")).await;
    expect(&mut watch, EventType::Created, &id(0)).await;
    planner.ok(envelope(&id(before), start())).await;
    for n in 1..=before {
        expect(&mut watch, EventType::Created, &id(n)).await;
    }
    planner.macp.cancel_session(cancel(&id(before))).await.unwrap();
    expect(&mut watch, EventType::Cancelled, &id(before)).await;
    stage.stop().await;
}
