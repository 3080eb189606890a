//! Who has no part in a session learns that and nothing else, on every call; who is of another tenant learns nothing.

use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_engine::Settings;
use handover_server::face::macp::proto::v1::stream_session_response::Response as Frame;
use handover_server::face::macp::proto::v1::{
    Envelope, GetSessionRequest, PolicyDescriptor, WhatIfReplayRequest,
};

use super::stage::*;

/// Three agents of a tenant, `outsider` without a part, and `stranger` of another tenant.
async fn guarded() -> Stage {
    let entry = |(agent, tenant): (&str, &str)| {
        let hash = hash_text(agent);
        format!("[[token]]\nsha256 = \"{hash}\"\nagent = \"{agent}\"\ntenant = \"{tenant}\"\n")
    };
    let here = ["planner", "worker", "helper", "outsider"].map(|agent| entry((agent, "here"))).concat();
    let tokens = Tokens::parse(&(here + &entry(("stranger", "there")))).unwrap();
    let store = empty_store();
    Stage::for_known(Identity::Tokens(Arc::new(tokens)), store, Settings::default()).await
}

const WORKING: &str = "a-session-in-which-somebody-works";
const OFFERED: &str = "a-session-of-handoff-mode-0";
const PAUSED: &str = "a-session-that-is-suspended";
const ENDED: &str = "a-session-that-has-ended-0";
const NONE: &str = "a-session-that-never-was-0";

/// A session in each state that an answer could give away.
async fn sessions(stage: &Stage) -> [&'static str; 4] {
    stage.working(WORKING).await;
    stage.offered(OFFERED).await;
    stage.working(PAUSED).await;
    stage.requested(ENDED).await;
    let mut planner = stage.agent("planner").macp;
    planner.suspend_session(suspend(PAUSED)).await.unwrap();
    planner.cancel_session(cancel(ENDED)).await.unwrap();
    [WORKING, OFFERED, PAUSED, ENDED]
}

/// Every envelope that names a session: right ones, and ones that are wrong in that session.
fn envelopes(session: &str) -> Vec<Envelope> {
    vec![
        envelope(session, request()),
        envelope(session, request().with(|request| request.task_id.clear())),
        envelope(session, request().with(|request| request.requested_assignee = "nobody".to_owned())),
        envelope(session, accept()),
        envelope(session, accept().with(|accept| accept.task_id = "another".to_owned())),
        envelope(session, accept().with(|accept| accept.assignee = "worker".to_owned())),
        envelope(session, reject()),
        envelope(session, update("going")),
        envelope(session, ask("left?")),
        envelope(session, complete()),
        envelope(session, complete().with(|complete| complete.task_id.clear())),
        envelope(session, commit()),
        envelope(session, commit().with(|commit| commit.mode_version = "0.9".to_owned())),
        envelope(session, commit().with(|commit| commit.configuration_version = "old".to_owned())),
        envelope(session, commit().with(|commit| commit.action.clear())),
        envelope(session, commit()).of_handoff(),
        envelope(session, offer()),
        envelope(session, offer().with(|offer| offer.handoff_id.clear())),
        envelope(session, offer().with(|offer| offer.target_participant = "nobody".to_owned())),
        // Offers of a task ask another session first: one that works, one that never was, the session itself.
        envelope(session, offer().with(|offer| offer.scope = format!("task:{WORKING}"))),
        envelope(session, offer().with(|offer| offer.scope = format!("task:{NONE}"))),
        envelope(session, offer().with(|offer| offer.scope = format!("task:{session}"))),
        signal("weather.rain", session),
    ]
}

/// What a caller is told by every call that names a session: the call, the code, the message.
async fn told(caller: &Agent, session: &str) -> Vec<(String, String, String)> {
    let mut told = Vec::new();
    for envelope in envelopes(session) {
        let name = format!("Send {} {}", envelope.message_type, told.len());
        let error = caller.refused(envelope).await;
        let details: serde_json::Value = serde_json::from_slice(&error.details).unwrap();
        let code = details["code"].as_str().unwrap();
        assert_eq!(details, serde_json::json!({ "code": code, "help": format!("/errors/{code}") }));
        assert!(matches!(code, "NOT_PARTICIPANT" | "SESSION_NOT_FOUND"), "{error:?}");
        told.push((name, error.code, error.message));
    }
    let id = || session.to_owned();
    let candidate = |rules: &str| PolicyDescriptor {
        policy_id: "policy.rain".to_owned(),
        mode: "macp.mode.task.v1".to_owned(),
        rules: rules.to_owned(),
        schema_version: 1,
        ..PolicyDescriptor::default()
    };
    let what_if = |candidate| WhatIfReplayRequest { session_id: id(), candidate };
    let (mut macp, mut handover) = (caller.macp.clone(), caller.handover.clone());
    let again =
        |message_id: &str| steer(session, "left").with(|steer| steer.message_id = message_id.to_owned());
    let statuses = [
        ("GetSession", macp.get_session(GetSessionRequest { session_id: id() }).await.map(|_| ())),
        ("WhatIfReplay", macp.what_if_replay(what_if(Some(candidate("{}")))).await.map(|_| ())),
        ("WhatIfReplay of nonsense", macp.what_if_replay(what_if(Some(candidate("{")))).await.map(|_| ())),
        ("WhatIfReplay of nothing", macp.what_if_replay(what_if(None)).await.map(|_| ())),
        ("Steer", handover.steer(steer(session, "left")).await.map(|_| ())),
        ("Steer with nothing", handover.steer(steer(session, "")).await.map(|_| ())),
        ("Steer with an id", handover.steer(again("m1")).await.map(|_| ())),
        ("Answer", handover.answer(answer(session, "no such question", "a")).await.map(|_| ())),
        ("Pause", handover.pause(pause(session)).await.map(|_| ())),
        ("ReadTimeline", handover.read_timeline(timeline(session, 0, 0)).await.map(|_| ())),
        ("ReadTimeline past its end", handover.read_timeline(timeline(session, 9999, 1)).await.map(|_| ())),
    ];
    for (name, status) in statuses {
        let status = status.unwrap_err();
        told.push((name.to_owned(), macp_code(&status).to_owned(), status.message().to_owned()));
    }
    for (index, ack) in caller.controls(session).await.into_iter().enumerate() {
        let error = ack.error.unwrap();
        told.push((format!("control {index}"), error.code, error.message));
    }
    told.extend(told_on_streams(caller, session).await);
    told
}

async fn told_on_streams(caller: &Agent, session: &str) -> Vec<(String, String, String)> {
    let mut told = Vec::new();
    for after in [0, 9999] {
        let (_frames, mut listening) = caller.subscribed(session, after).await;
        let name = format!("subscribe after {after}");
        told.push(match listening.next().await {
            Err(status) => (name, macp_code(&status).to_owned(), status.message().to_owned()),
            Ok(Some(Frame::Error(error))) => (name, error.code, error.message),
            Ok(other) => panic!("{name}: expected a refusal, found {other:?}"),
        });
    }
    let (frames, mut listening) = caller.stream().await;
    for envelope in envelopes(session) {
        // A stream is of one session, and a signal of none.
        if envelope.message_type == "Signal" {
            continue;
        }
        let name = format!("stream {} {}", envelope.message_type, told.len());
        frames.send(frame(envelope)).await.unwrap();
        let error = listening.error().await;
        told.push((name, error.code, error.message));
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_part_in_a_session_is_told_that_and_nothing_else_on_every_call() {
    let stage = guarded().await;
    let sessions = sessions(&stage).await;
    let before = stage.written();
    for session in sessions {
        for (call, code, message) in told(&stage.agent("outsider"), session).await {
            assert_eq!(
                (code.as_str(), message.as_str()),
                ("FORBIDDEN", "outsider has no part in this session"),
                "{call} of {session}"
            );
        }
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_another_tenant_is_answered_as_one_that_never_was_on_every_call() {
    let stage = guarded().await;
    let sessions = sessions(&stage).await;
    let before = stage.written();
    let stranger = stage.agent("stranger");
    for session in sessions.into_iter().chain([NONE]) {
        for (call, code, message) in told(&stranger, session).await {
            assert_eq!(
                (code.as_str(), message.as_str()),
                ("SESSION_NOT_FOUND", "there is no such session"),
                "{call} of {session}"
            );
        }
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_of_a_task_that_is_not_the_senders_says_nothing_about_that_task() {
    let stage = guarded().await;
    let sessions = sessions(&stage).await;
    let own = "a-session-of-the-outsiders-own";
    let outsider = stage.agent("outsider");
    let participants = ["outsider", "worker"].map(str::to_owned).to_vec();
    outsider.ok(envelope(own, start().with(|s| s.participants = participants)).of_handoff()).await;
    for session in sessions.into_iter().chain([NONE]) {
        let offer = offer().with(|offer| offer.scope = format!("task:{session}"));
        let error = outsider.refused(envelope(own, offer)).await;
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("INVALID_ENVELOPE", "expected a task that the sender has a part in, found no such task"),
            "{session}"
        );
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_whatever_the_session_is_answered_alike_whether_or_not_there_is_one() {
    let stage = guarded().await;
    let sessions = sessions(&stage).await;
    let wrong = |session: &str| {
        let any = || envelope(session, request());
        [
            any().with(|e| e.macp_version = "9".to_owned()),
            any().with(|e| e.message_id.clear()),
            any().with(|e| e.message_id = "handover:1".to_owned()),
            any().with(|e| e.sender = "planner".to_owned()),
        ]
    };
    // What only the session could read is answered as anything else to it is.
    let unreadable = |session: &str| {
        let any = || envelope(session, request());
        [
            any().with(|e| e.payload = vec![0xff]),
            any().with(|e| e.mode = "macp.mode.vote.v1".to_owned()),
            any().with(|e| e.message_type = "TaskDance".to_owned()),
            any().with(|e| e.message_type = "SessionCancel".to_owned()),
        ]
    };
    for caller in ["outsider", "stranger"] {
        let caller = stage.agent(caller);
        let mut of_none = Vec::new();
        for envelope in wrong(NONE) {
            of_none.push(caller.refused(envelope).await);
        }
        for session in sessions {
            for (envelope, none) in wrong(session).into_iter().zip(&of_none) {
                let error = caller.refused(envelope).await;
                assert_eq!((&error.code, &error.message), (&none.code, &none.message), "{session}");
                assert!(!["FORBIDDEN", "SESSION_NOT_FOUND"].contains(&error.code.as_str()), "{error:?}");
            }
            let readable = caller.refused(envelope(session, request())).await;
            for envelope in unreadable(session) {
                let error = caller.refused(envelope).await;
                assert_eq!((&error.code, &error.message), (&readable.code, &readable.message), "{session}");
            }
            let reserved = || steer(session, "left").with(|steer| steer.message_id = "handover:1".to_owned());
            let status = caller.handover.clone().steer(reserved()).await.unwrap_err();
            assert_eq!(macp_code(&status), "INVALID_ENVELOPE");
            let without = answer(session, "q", "a").with(|answer| answer.answers[0].reply = None);
            let status = caller.handover.clone().answer(without).await.unwrap_err();
            assert_eq!(macp_code(&status), "INVALID_ENVELOPE");
        }
    }
    stage.stop().await;
}
