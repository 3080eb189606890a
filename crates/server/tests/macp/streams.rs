//! `StreamSession`: what binds a stream, what comes back, and how it ends.

use std::collections::HashMap;

use handover_engine::Settings;
use handover_server::face::macp::proto::task::TaskUpdatePayload;
use handover_server::face::macp::proto::v1::stream_session_response::Response as Frame;
use handover_server::face::macp::proto::v1::{Envelope, SessionState, StreamSessionRequest};
use prost::Message;
use tonic::Code;

use super::stage::*;

const OTHER: &str = "the-other-session-of-plays";

/// The status of an update.
fn status_of(update: &Envelope) -> String {
    TaskUpdatePayload::decode(update.payload.as_slice()).unwrap().status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outsiders_first_frame_binds_nothing() {
    let stage = Stage::in_memory().await;
    stage.requested(SESSION).await;
    let (frames, mut listening) = stage.agent("outsider").stream().await;
    frames.send(frame(envelope(SESSION, accept()))).await.unwrap();
    let error = listening.error().await;
    assert_eq!((error.code.as_str(), error.session_id.as_str()), ("FORBIDDEN", SESSION));
    frames.send(subscribe(SESSION, 0)).await.unwrap();
    assert_eq!(listening.error().await.code, "FORBIDDEN");

    // What happens there goes past the stream; it can still be bound to a session of its own.
    stage.agent("worker").ok(envelope(SESSION, accept())).await;
    frames.send(frame(envelope(OTHER, start()))).await.unwrap();
    assert_eq!(listening.envelope().await.session_id, OTHER);
    stage.agent("worker").ok(envelope(SESSION, update("going"))).await;
    frames.send(frame(envelope(OTHER, request()))).await.unwrap();
    assert_eq!(listening.envelope().await.session_id, OTHER);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_whose_first_frame_is_refused_hears_what_follows() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let (frames, mut listening) = stage.agent("helper").stream().await;
    frames.send(frame(envelope(SESSION, update("not mine")))).await.unwrap();
    assert_eq!(listening.error().await.code, "FORBIDDEN");
    stage.agent("worker").ok(envelope(SESSION, update("going"))).await;
    assert_eq!(status_of(&listening.envelope().await), "going");
    frames.send(frame(envelope(OTHER, start()))).await.unwrap();
    assert_eq!(listening.error().await.code, "INVALID_ENVELOPE");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_with_both_or_neither_ends_the_stream() {
    let stage = Stage::in_memory().await;
    stage.requested(SESSION).await;
    let before = stage.written();
    let both = StreamSessionRequest {
        envelope: Some(envelope(SESSION, accept())),
        subscribe_session_id: SESSION.to_owned(),
        after_sequence: 0,
    };
    for wrong in [both, StreamSessionRequest::default()] {
        let (frames, mut listening) = stage.agent("worker").stream().await;
        frames.send(wrong).await.unwrap();
        let status = listening.next().await.unwrap_err();
        assert_eq!((status.code(), macp_code(&status)), (Code::InvalidArgument, "INVALID_ENVELOPE"));
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_to_an_unknown_session_ends_the_stream_so_that_clients_try_again() {
    let stage = Stage::in_memory().await;
    let (_frames, mut listening) = stage.agent("worker").subscribed(SESSION, 0).await;
    let status = listening.next().await.unwrap_err();
    assert_eq!((status.code(), macp_code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_token_is_unauthenticated() {
    let stage = Stage::in_memory().await;
    let frames = tokio_stream::iter([subscribe(SESSION, 0)]);
    let status = stage.nobody().macp.stream_session(frames).await.unwrap_err();
    assert_eq!((status.code(), macp_code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_stream_takes_no_other_session() {
    let stage = Stage::in_memory().await;
    stage.requested(SESSION).await;
    stage.requested(OTHER).await;
    let before = stage.written();
    let (frames, mut listening) = stage.agent("worker").subscribed(SESSION, 0).await;
    assert_eq!(listening.types(2).await, ["SessionStart", "TaskRequest"]);
    frames.send(frame(envelope(OTHER, accept()))).await.unwrap();
    let error = listening.error().await;
    assert_eq!((error.code.as_str(), error.session_id.as_str()), ("INVALID_ENVELOPE", OTHER));
    frames.send(subscribe(OTHER, 0)).await.unwrap();
    assert_eq!(listening.error().await.code, "INVALID_ENVELOPE");
    assert_eq!(stage.written(), before);
    // It goes on as before, and can begin again at another place of its own.
    frames.send(subscribe(SESSION, 1)).await.unwrap();
    assert_eq!(listening.types(1).await, ["TaskRequest"]);
    frames.send(frame(envelope(SESSION, accept()))).await.unwrap();
    let accepted = listening.envelope().await;
    assert_eq!((accepted.message_type.as_str(), accepted.session_id.as_str()), ("TaskAccept", SESSION));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_from_the_middle_misses_nothing_and_sees_nothing_twice() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let worker = stage.agent("worker");
    let total = 200_u64;
    let (start_from, background) = (50, worker.clone());
    for n in 4..=100 {
        worker.ok(envelope(SESSION, update(&n.to_string()))).await;
    }
    let writing = tokio::spawn(async move {
        for n in 101..=total {
            background.ok(envelope(SESSION, update(&n.to_string()))).await;
        }
    });
    let (_frames, mut listening) = stage.agent("helper").subscribed(SESSION, start_from).await;
    for n in start_from + 1..=total {
        assert_eq!(status_of(&listening.envelope().await), n.to_string());
    }
    writing.await.unwrap();
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_stream_gets_its_own_envelopes_back_in_order_and_as_they_were_sent() {
    let stage = Stage::in_memory().await;
    let (frames, mut listening) = stage.agent("planner").stream().await;
    let started =
        envelope(SESSION, start().with(|s| s.extensions = HashMap::from([("x".to_owned(), vec![1])])));
    // The times are those of the sender; a start has the one from which its time to live counts.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let now = i64::try_from(now).unwrap();
    let started = started.with(|e| e.timestamp_unix_ms = now - 5_000);
    let asked = envelope(SESSION, request()).with(|e| e.timestamp_unix_ms = now + 3_600_000);
    // A field that nobody knows yet comes back with the rest.
    let asked = asked.with(|e| e.payload.extend([0xf8, 0x07, 0x01]));
    for sent in [&started, &asked] {
        frames.send(frame(sent.clone())).await.unwrap();
    }
    // The same again is a duplicate: no effect, no echo.
    frames.send(frame(asked.clone())).await.unwrap();
    for sent in [started, asked] {
        let back = listening.envelope().await;
        assert_eq!(back, sent.with(|e| e.sender = "planner".to_owned()));
    }
    // Without a time it is that of its acceptance, which is the one that the timeline has of all.
    let ack = stage.agent("worker").ok(envelope(SESSION, accept())).await;
    let accepted = listening.envelope().await;
    assert_eq!(
        (accepted.message_type.as_str(), accepted.timestamp_unix_ms),
        ("TaskAccept", ack.accepted_at_unix_ms)
    );
    for event in stage.agent("planner").timeline(SESSION).await {
        assert!((now..now + 3_600_000).contains(&event.accepted_at_unix_ms), "{event:?}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_joins_with_an_envelope_begins_with_it() {
    let stage = Stage::in_memory().await;
    stage.requested(SESSION).await;
    let (frames, mut listening) = stage.agent("worker").stream().await;
    frames.send(frame(envelope(SESSION, accept()))).await.unwrap();
    frames.send(frame(envelope(SESSION, update("going")))).await.unwrap();
    assert_eq!(listening.types(2).await, ["TaskAccept", "TaskUpdate"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_stays_open_after_its_session_has_resolved() {
    let stage = Stage::in_memory().await;
    stage.reported(SESSION).await;
    let planner = stage.agent("planner");
    let (frames, mut listening) = planner.subscribed(SESSION, 4).await;
    let ack = planner.ok(envelope(SESSION, commit())).await;
    assert_eq!(ack.session_state(), SessionState::Resolved);
    assert_eq!(listening.types(1).await, ["Commitment"]);
    frames.send(frame(envelope(SESSION, update("late")))).await.unwrap();
    assert_eq!(listening.error().await.code, "SESSION_NOT_OPEN");
    // And whoever comes late can read all of it.
    let (_frames, mut late) = stage.agent("helper").subscribed(SESSION, 0).await;
    let life = ["SessionStart", "TaskRequest", "TaskAccept", "TaskComplete", "Commitment"];
    assert_eq!(late.types(5).await, life);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_closed_stream_delivers_what_was_accepted_before_and_ends() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let (worker, helper) = (stage.agent("worker"), stage.agent("helper"));
    let total = 300;
    for n in 4..=total {
        worker.ok(envelope(SESSION, update(&n.to_string()))).await;
    }
    // The last event is no envelope: the end does not wait for one.
    stage.agent("planner").macp.suspend_session(suspend(SESSION)).await.unwrap();
    let (frames, mut listening) = helper.subscribed(SESSION, 0).await;
    drop(frames);
    assert_eq!(listening.types(3).await, ["SessionStart", "TaskRequest", "TaskAccept"]);
    for n in 4..=total {
        assert_eq!(status_of(&listening.envelope().await), n.to_string());
    }
    assert_eq!(listening.next().await.unwrap(), None);

    // One that sent its last envelope and closed gets it back first.
    let (frames, mut listening) = stage.agent("planner").stream().await;
    frames.send(frame(envelope(OTHER, start()))).await.unwrap();
    frames.send(frame(envelope(OTHER, request()))).await.unwrap();
    drop(frames);
    assert_eq!(listening.types(2).await, ["SessionStart", "TaskRequest"]);
    assert_eq!(listening.next().await.unwrap(), None);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_envelope_is_not_on_the_stream() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let mut planner = stage.agent("planner");
    planner.macp.suspend_session(suspend(SESSION)).await.unwrap();
    planner.macp.resume_session(resume(SESSION)).await.unwrap();
    stage.agent("worker").ok(envelope(SESSION, update("going"))).await;
    planner.macp.cancel_session(cancel(SESSION)).await.unwrap();
    let (frames, mut listening) = planner.subscribed(SESSION, 0).await;
    assert_eq!(listening.types(4).await, ["SessionStart", "TaskRequest", "TaskAccept", "TaskUpdate"]);
    // The refusal is the next frame: nothing was between.
    frames.send(subscribe(OTHER, 0)).await.unwrap();
    assert_eq!(listening.error().await.code, "INVALID_ENVELOPE");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_ends_with_unavailable_at_shutdown() {
    let stage = Stage::in_memory().await;
    stage.requested(SESSION).await;
    let mut planner = stage.agent("planner");
    let (_frames, mut bound) = planner.subscribed(SESSION, 0).await;
    bound.types(2).await;
    let (_more_frames, mut unbound) = planner.stream().await;
    let mut signals = planner.signals().await;
    let mut sessions = planner.macp.watch_sessions(watch_sessions()).await.unwrap().into_inner();
    sessions.message().await.unwrap().unwrap();
    let mut policies = planner.macp.watch_policies(watch_policies()).await.unwrap().into_inner();
    policies.message().await.unwrap().unwrap();
    stage.begin_stop();
    assert_eq!(bound.next().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(unbound.next().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(signals.next().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(in_time(sessions.message()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(in_time(policies.message()).await.unwrap_err().code(), Code::Unavailable);
    drop(planner);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_implicit_accept_is_delivered_with_an_ordinal() {
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    let rules = r#"{"acceptance":{"implicit_accept_timeout_ms":1}}"#;
    planner.macp.register_policy(policy("policy.quick", "macp.mode.handoff.v1", rules)).await.unwrap();
    let started = start().with(|s| s.policy_version = "policy.quick".to_owned());
    planner.ok(envelope(SESSION, started).of_handoff()).await;
    planner.ok(envelope(SESSION, offer())).await;
    let (_frames, mut listening) = stage.agent("helper").subscribed(SESSION, 2).await;
    match listening.next().await.unwrap().unwrap() {
        Frame::Envelope(seen) => {
            assert_eq!((seen.message_type.as_str(), seen.sender.as_str()), ("HandoffAccept", "worker"));
            assert_eq!(seen.message_id, format!("implicit-accept:{HANDOFF}"));
        }
        Frame::Error(error) => panic!("{error:?}"),
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_cut_off_and_goes_on_by_ordinal() {
    let settings = Settings { subscriber_queue_max: 16, ..Settings::default() };
    let stage = Stage::with(empty_store(), settings).await;
    stage.working(SESSION).await;
    let (worker, helper) = (stage.agent("worker"), stage.agent("helper"));
    let (_frames, mut slow) = helper.subscribed(SESSION, 0).await;
    slow.types(3).await;
    // Far more than the network and all queues hold.
    let total = 400;
    for n in 4..=total {
        let large = update(&n.to_string()).with(|u| u.partial_output = vec![7; 32 * 1024]);
        worker.ok(envelope(SESSION, large)).await;
    }
    let mut seen = 3;
    let status = loop {
        match slow.next().await {
            Ok(Some(Frame::Envelope(found))) => {
                seen += 1;
                assert_eq!(status_of(&found), seen.to_string());
            }
            Ok(other) => panic!("expected an envelope or the end, found {other:?}"),
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), macp_code(&status)), (Code::ResourceExhausted, "STREAM_LAGGED"));
    assert!(seen < total);
    let (_frames, mut again) = helper.subscribed(SESSION, seen).await;
    for n in seen + 1..=total {
        assert_eq!(status_of(&again.envelope().await), n.to_string());
    }
    stage.stop().await;
}
