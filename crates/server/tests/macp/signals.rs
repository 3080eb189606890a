//! Signals: told to everybody who may hear them, and kept nowhere.

use handover_server::face::macp::admit::TASK_MODE;
use handover_server::face::macp::proto::v1::{Envelope, ProgressPayload};

use super::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_reaches_everybody_who_listens_and_proves_nothing_in_development() {
    let stage = Stage::in_memory().await;
    let planner = stage.agent("planner");
    let mut listeners = [stage.agent("worker").signals().await, stage.agent("outsider").signals().await];
    let before = stage.written();
    let sent = signal("weather.rain", "");
    let ack = planner.ok(sent.clone()).await;
    assert_eq!((ack.message_id.as_str(), ack.session_id.as_str()), (sent.message_id.as_str(), ""));
    for listener in &mut listeners {
        let heard = listener.next().await.unwrap().unwrap();
        assert!(!heard.sender_authenticated);
        assert_eq!(heard.envelope.unwrap(), sent.clone().with(|e| e.sender = "planner".to_owned()));
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_about_a_session_reaches_only_those_who_may_see_it() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let before = stage.written();
    let worker = stage.agent("worker");
    let mut helper = stage.agent("helper").signals().await;
    let mut outsider = stage.agent("outsider").signals().await;
    worker.ok(signal("progress.half", SESSION)).await;
    worker.ok(signal("weather.rain", "")).await;
    assert_eq!(helper.heard().await.0, "progress.half");
    assert_eq!(helper.heard().await.0, "weather.rain");
    // The first thing that the outsider hears is what came second.
    assert_eq!(outsider.heard().await.0, "weather.rain");
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

/// RFC-MACP-0001 §6: `Progress` of a session, or of none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_told_to_those_who_may_see_its_session_and_kept_nowhere() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let before = stage.written();
    let worker = stage.agent("worker");
    let mut helper = stage.agent("helper").signals().await;
    let mut outsider = stage.agent("outsider").signals().await;
    let scoped = envelope(SESSION, progress(0.5)).with(|e| e.mode = TASK_MODE.to_owned());
    let ack = worker.ok(scoped.clone()).await;
    assert_eq!((ack.session_id.as_str(), ack.message_id.as_str()), (SESSION, scoped.message_id.as_str()));
    // The same on a stream, which is bound by it and hears what comes after.
    let (frames, mut listening) = worker.stream().await;
    let streamed = scoped.clone().with(|e| e.message_id = "streamed".to_owned());
    frames.send(frame(streamed.clone())).await.unwrap();
    let ambient = envelope("", progress(1.0));
    let whole = |e: &Envelope| e.clone().with(|e| e.sender = "worker".to_owned());
    for sent in [&scoped, &streamed] {
        assert_eq!(helper.next().await.unwrap().unwrap().envelope.unwrap(), whole(sent));
    }
    worker.ok(ambient.clone()).await;
    for listener in [&mut helper, &mut outsider] {
        assert_eq!(listener.next().await.unwrap().unwrap().envelope.unwrap(), whole(&ambient));
    }
    assert_eq!(stage.written(), before);
    worker.ok(envelope(SESSION, update("going"))).await;
    assert_eq!(listening.types(1).await, ["TaskUpdate"]);

    for (what, wrong, code) in [
        ("a session without a mode", envelope(SESSION, progress(0.5)), "INVALID_ENVELOPE"),
        ("a mode without a session", scoped.clone().with(|e| e.session_id.clear()), "INVALID_ENVELOPE"),
        ("no payload of Progress", scoped.clone().with(|e| e.payload = vec![0xff]), "INVALID_ENVELOPE"),
    ] {
        assert_eq!(worker.refused(wrong).await.code, code, "{what}");
    }
    assert_eq!(stage.agent("outsider").refused(scoped).await.code, "FORBIDDEN");
    stage.stop().await;
}

fn progress(done: f64) -> ProgressPayload {
    ProgressPayload { progress_token: "p1".to_owned(), progress: done, total: 1.0, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_signal_is_refused_and_heard_by_nobody() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let mut listener = stage.agent("worker").signals().await;
    let with = |change: fn(&mut _)| signal("weather.rain", "").with(change);
    let invalid = "INVALID_ENVELOPE";
    for (what, by, wrong, code) in [
        ("a session_id", "planner", with(|e| e.session_id = SESSION.into()), invalid),
        ("a mode", "planner", with(|e| e.mode = "macp.mode.task.v1".into()), invalid),
        ("no message_id", "planner", with(|e| e.message_id.clear()), invalid),
        ("a long message_id", "planner", with(|e| e.message_id = "m".repeat(257)), invalid),
        ("the runtime's id", "planner", with(|e| e.message_id = "handover:x".into()), invalid),
        ("an undecodable payload", "planner", with(|e| e.payload = vec![0xff]), invalid),
        ("data of no type", "planner", with(|e| e.payload = vec![0x12, 0x01, 0x07]), invalid),
        ("a signal of no type", "planner", signal("", SESSION), invalid),
        (
            "another macp_version",
            "planner",
            with(|e| e.macp_version = "2.0".into()),
            "UNSUPPORTED_PROTOCOL_VERSION",
        ),
        ("a forged sender", "planner", with(|e| e.sender = "worker".into()), "UNAUTHENTICATED"),
        ("no token", "", with(|_| ()), "UNAUTHENTICATED"),
        ("a session of others", "outsider", signal("weather.rain", SESSION), "FORBIDDEN"),
        (
            "an unknown session",
            "planner",
            signal("weather.rain", "a-session-that-nobody-began"),
            "SESSION_NOT_FOUND",
        ),
    ] {
        let agent = if by.is_empty() { stage.nobody() } else { stage.agent(by) };
        assert_eq!(agent.refused(wrong).await.code, code, "{what}");
    }
    stage.agent("planner").ok(signal("weather.sun", "")).await;
    assert_eq!(listener.heard().await.0, "weather.sun");
    stage.stop().await;
}
