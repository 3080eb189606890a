//! Every field of an envelope, wrong: the right code, no trace, no panic.

use handover_engine::Settings;
use handover_kernel::Limits;
use handover_server::face::macp::proto::handoff::HandoffAcceptPayload;
use handover_server::face::macp::proto::v1::{CommitmentRef, Envelope, SendRequest};
use tonic::Code;

use super::stage::*;

/// What is wrong, who sends it, the envelope, the code.
type Case = (&'static str, &'static str, Envelope, &'static str);

const FRESH: &str = "a-session-that-nobody-began";
const STARTED: &str = "a-session-with-no-request";
const REQUESTED: &str = "a-session-with-a-request";
const WORKING: &str = "a-session-with-a-worker";
const REPORTED: &str = "a-session-with-a-report";
const OFFERED: &str = "a-session-with-an-offer";
const UNOFFERED: &str = "a-session-with-no-offer";

/// A session in each state.
async fn furnished(stage: &Stage) {
    stage.started(STARTED).await;
    stage.requested(REQUESTED).await;
    stage.working(WORKING).await;
    stage.reported(REPORTED).await;
    stage.offered(OFFERED).await;
    stage.agent("planner").ok(envelope(UNOFFERED, start()).of_handoff()).await;
}

async fn play(cases: Vec<Case>) {
    let stage = Stage::in_memory().await;
    furnished(&stage).await;
    let handoffs = policy("policy.handoffs", "macp.mode.handoff.v1", "{}");
    stage.agent("planner").macp.register_policy(handoffs).await.unwrap();
    let before = stage.written();
    for (what, by, envelope, code) in cases {
        let (session, message) = (envelope.session_id.clone(), envelope.message_id.clone());
        let agent = if by.is_empty() { stage.nobody() } else { stage.agent(by) };
        let ack = agent.send(envelope).await;
        let error = ack.error.clone().unwrap_or_default();
        assert!(!ack.ok && !ack.duplicate, "{what}: {ack:?}");
        assert_eq!(error.code, code, "{what}: {}", error.message);
        assert!(!error.message.is_empty() && !error.message.ends_with('.'), "{what}: {}", error.message);
        assert_eq!((&ack.session_id, &ack.message_id), (&session, &message), "{what}");
        assert_eq!((&error.session_id, &error.message_id), (&session, &message), "{what}");
        assert_eq!(stage.written(), before, "{what} left a trace");
    }
    stage.stop().await;
}

fn good_update() -> Envelope {
    envelope(WORKING, update("going"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_envelope_leaves_no_trace() {
    let field = |change: fn(&mut Envelope)| good_update().with(change);
    let unsupported = "UNSUPPORTED_PROTOCOL_VERSION";
    let invalid = "INVALID_ENVELOPE";
    play(vec![
        ("no macp_version", "worker", field(|e| e.macp_version.clear()), unsupported),
        ("another macp_version", "worker", field(|e| e.macp_version = "2.0".into()), unsupported),
        ("an empty message_id", "worker", field(|e| e.message_id.clear()), invalid),
        ("a long message_id", "worker", field(|e| e.message_id = "m".repeat(257)), invalid),
        ("a forged sender", "worker", field(|e| e.sender = "planner".into()), "UNAUTHENTICATED"),
        ("no token", "", good_update(), "UNAUTHENTICATED"),
        ("no part in the session", "outsider", good_update(), "FORBIDDEN"),
        ("an unknown session", "worker", field(|e| e.session_id = FRESH.into()), "SESSION_NOT_FOUND"),
        ("no session", "worker", field(|e| e.session_id.clear()), invalid),
        ("no mode", "worker", field(|e| e.mode.clear()), invalid),
        ("another mode", "worker", field(|e| e.mode = "macp.mode.vote.v1".into()), invalid),
        (
            "a payload that cannot be read, by nobody's part",
            "outsider",
            field(|e| e.payload = vec![0xff]),
            "FORBIDDEN",
        ),
        ("a guessable session", "worker", field(|e| e.session_id = "s1".into()), "SESSION_NOT_FOUND"),
        ("the session's other mode", "worker", field(|e| e.mode = "macp.mode.handoff.v1".into()), invalid),
        ("no message type", "worker", field(|e| e.message_type.clear()), invalid),
        ("an unknown message type", "worker", field(|e| e.message_type = "TaskDance".into()), invalid),
        ("another mode's message type", "worker", field(|e| e.message_type = "HandoffOffer".into()), invalid),
        ("another mode's message in a task session", "planner", envelope(WORKING, offer()), invalid),
        ("SessionCancel", "planner", field(|e| e.message_type = "SessionCancel".into()), invalid),
        ("SessionSuspend", "planner", field(|e| e.message_type = "SessionSuspend".into()), invalid),
        ("SessionResume", "planner", field(|e| e.message_type = "SessionResume".into()), invalid),
        ("an undecodable payload", "worker", field(|e| e.payload = vec![0xff, 0xff, 0xff]), invalid),
        ("text that is not UTF-8", "worker", field(|e| e.payload = vec![0x0a, 0x02, 0xc3, 0x28]), invalid),
        ("the runtime's id", "worker", field(|e| e.message_id = "handover:x".into()), invalid),
        ("an implicit accept's id", "worker", field(|e| e.message_id = "implicit-accept:x".into()), invalid),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_id_that_could_be_guessed_or_is_malformed_is_refused() {
    let code = "INVALID_SESSION_ID";
    let with = |id: &str| envelope(id, start());
    play(vec![
        ("an empty id", "planner", with(""), "INVALID_ENVELOPE"),
        ("an uppercase UUID", "planner", with("0B0C9E5A-7C1B-4F7E-9A49-3F6C2B0B8D11"), code),
        ("a UUID of version 1", "planner", with("0b0c9e5a-7c1b-1f7e-9a49-3f6c2b0b8d11"), code),
        ("a UUID of another variant", "planner", with("0b0c9e5a-7c1b-4f7e-ca49-3f6c2b0b8d11"), code),
        ("21 characters", "planner", with(&"a".repeat(21)), code),
        ("129 characters", "planner", with(&"a".repeat(129)), code),
        ("a plus", "planner", with("a-session-with-a-plus-+-in-it"), code),
        ("a space", "planner", with("a session with some spaces"), code),
        ("a letter outside ASCII", "planner", with("a-session-with-an-umlaut-ä"), code),
        ("a line feed", "planner", with("a-session-of-two-lines\nhere"), code),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_session_start_begins_nothing() {
    let with = |change: fn(&mut _)| envelope(FRESH, start().with(change));
    let of = |names: &[&str]| {
        let participants = names.iter().map(|name| (*name).to_owned()).collect();
        envelope(FRESH, start().with(|s| s.participants = participants))
    };
    let invalid = "INVALID_ENVELOPE";
    play(vec![
        ("no time", "planner", with(|s| s.ttl_ms = 0), invalid),
        ("negative time", "planner", with(|s| s.ttl_ms = -1), invalid),
        ("the least time there is", "planner", with(|s| s.ttl_ms = i64::MIN), invalid),
        ("more than a day", "planner", with(|s| s.ttl_ms = 24 * 60 * 60 * 1000 + 1), invalid),
        ("the most time there is", "planner", with(|s| s.ttl_ms = i64::MAX), invalid),
        ("a negative cap on suspension", "planner", with(|s| s.max_suspend_ms = -1), invalid),
        ("no mode_version", "planner", with(|s| s.mode_version.clear()), invalid),
        ("a mode_version that is not served", "planner", with(|s| s.mode_version = "2.0.0".into()), invalid),
        ("no configuration_version", "planner", with(|s| s.configuration_version.clear()), invalid),
        ("no participants", "planner", of(&[]), invalid),
        ("a participant twice", "planner", of(&["worker", "worker"]), invalid),
        ("an empty participant", "planner", of(&["worker", ""]), invalid),
        ("a long participant", "planner", of(&[&"w".repeat(257)]), invalid),
        ("only the initiator", "planner", of(&["planner"]), invalid),
        ("a handoff without its owner", "planner", of(&["worker"]).of_handoff(), invalid),
        (
            "a mode that is not served",
            "planner",
            envelope(FRESH, start()).with(|e| e.mode = "macp.mode.vote.v1".into()),
            "MODE_NOT_SUPPORTED",
        ),
        (
            "a policy of votes",
            "planner",
            with(|s| s.policy_version = "policy.std.majority".into()),
            "INVALID_POLICY_DEFINITION",
        ),
        (
            "an unknown policy, and nobody to work",
            "planner",
            with(|s| (s.participants, s.policy_version) = (Vec::new(), "policy.x".into())),
            invalid,
        ),
        (
            "an unknown policy",
            "planner",
            with(|s| s.policy_version = "policy.x".into()),
            "UNKNOWN_POLICY_VERSION",
        ),
        (
            "a policy of another mode",
            "planner",
            with(|s| s.policy_version = "policy.handoffs".into()),
            "INVALID_POLICY_DEFINITION",
        ),
        (
            "the runtime's id",
            "planner",
            envelope(FRESH, start()).with(|e| e.message_id = "handover:x".into()),
            invalid,
        ),
        (
            "an undecodable payload",
            "planner",
            envelope(FRESH, start()).with(|e| e.payload = vec![0xff]),
            invalid,
        ),
        ("a known session", "planner", envelope(WORKING, start()), "SESSION_ALREADY_EXISTS"),
        ("a known session of others", "outsider", envelope(WORKING, start()), "SESSION_ALREADY_EXISTS"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_task_message_changes_nothing() {
    let progress = |done: f64| envelope(WORKING, update("going").with(|u| u.progress = done));
    let requested = |change: fn(&mut _)| envelope(STARTED, request().with(change));
    let (invalid, forbidden) = ("INVALID_ENVELOPE", "FORBIDDEN");
    play(vec![
        ("progress that is not a number", "worker", progress(f64::NAN), invalid),
        ("infinite progress", "worker", progress(f64::INFINITY), invalid),
        ("infinitely negative progress", "worker", progress(f64::NEG_INFINITY), invalid),
        ("negative progress", "worker", progress(-0.5), invalid),
        (
            "a question with wrong progress",
            "worker",
            envelope(WORKING, ask("?").with(|u| u.progress = -1.0)),
            invalid,
        ),
        ("a request without a task id", "planner", requested(|r| r.task_id.clear()), invalid),
        (
            "an assignee who has no part",
            "planner",
            requested(|r| r.requested_assignee = "outsider".into()),
            invalid,
        ),
        ("a request by a participant", "worker", requested(|_| ()), forbidden),
        ("a second request", "planner", envelope(REQUESTED, request()), invalid),
        ("an accept before the request", "worker", envelope(STARTED, accept()), invalid),
        ("an accept by the initiator", "planner", envelope(REQUESTED, accept()), forbidden),
        (
            "an accept for somebody else",
            "worker",
            envelope(REQUESTED, accept().with(|a| a.assignee = "helper".into())),
            invalid,
        ),
        (
            "an accept of another task",
            "worker",
            envelope(REQUESTED, accept().with(|a| a.task_id = "t2".into())),
            invalid,
        ),
        (
            "an accept of no task",
            "worker",
            envelope(REQUESTED, accept().with(|a| a.task_id.clear())),
            invalid,
        ),
        ("a second accept", "helper", envelope(WORKING, accept()), invalid),
        (
            "a decline of another task",
            "worker",
            envelope(REQUESTED, reject().with(|a| a.task_id = "t2".into())),
            invalid,
        ),
        (
            "an update of another task",
            "worker",
            envelope(WORKING, update("").with(|u| u.task_id = "t2".into())),
            invalid,
        ),
        ("an update by somebody else", "helper", envelope(WORKING, update("")), forbidden),
        (
            "a report of another task",
            "worker",
            envelope(WORKING, complete().with(|c| c.task_id = "t2".into())),
            invalid,
        ),
        ("a report by somebody else", "planner", envelope(WORKING, complete()), forbidden),
        ("an update after the report", "worker", envelope(REPORTED, update("")), forbidden),
        ("a second report", "worker", envelope(REPORTED, complete()), forbidden),
        (
            "a rejection that the policy does not allow",
            "worker",
            envelope(WORKING, reject()),
            "POLICY_DENIED",
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_commitment_binds_nothing() {
    let with = |change: fn(&mut _)| envelope(REPORTED, commit().with(change));
    let superseding = |session: &str, hash: String| {
        let supersedes = CommitmentRef { session_id: session.to_owned(), commitment_hash: hash };
        envelope(REPORTED, commit().with(|c| c.supersedes = Some(supersedes)))
    };
    let sha = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let invalid = "INVALID_ENVELOPE";
    play(vec![
        ("no commitment_id", "planner", with(|c| c.commitment_id.clear()), invalid),
        ("no action", "planner", with(|c| c.action.clear()), invalid),
        ("no authority_scope", "planner", with(|c| c.authority_scope.clear()), invalid),
        ("no reason", "planner", with(|c| c.reason.clear()), invalid),
        ("another mode_version", "planner", with(|c| c.mode_version = "2.0.0".into()), invalid),
        ("no mode_version", "planner", with(|c| c.mode_version.clear()), invalid),
        ("another configuration_version", "planner", with(|c| c.configuration_version = "x".into()), invalid),
        ("another policy_version", "planner", with(|c| c.policy_version = "policy.x".into()), invalid),
        ("an action that the outcome denies", "planner", with(|c| c.outcome_positive = false), invalid),
        ("a failure that the outcome denies", "planner", with(|c| c.action = "task.failed".into()), invalid),
        ("superseding no session", "planner", superseding("", sha("0")), invalid),
        ("superseding no hash", "planner", superseding(WORKING, String::new()), invalid),
        ("superseding another kind of hash", "planner", superseding(WORKING, "md5:00".to_owned()), invalid),
        ("superseding a short hash", "planner", superseding(WORKING, "sha256:00".to_owned()), invalid),
        ("superseding an uppercase hash", "planner", superseding(WORKING, sha("A")), invalid),
        ("a commitment by the assignee", "worker", with(|_| ()), "FORBIDDEN"),
        ("a commitment before the report", "planner", envelope(WORKING, commit()), invalid),
        ("a commitment of the other mode", "planner", with(|_| ()).of_handoff(), invalid),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_handoff_message_changes_nothing() {
    let taken = |implicit: bool| HandoffAcceptPayload {
        handoff_id: HANDOFF.to_owned(),
        accepted_by: String::new(),
        reason: String::new(),
        implicit,
    };
    let scoped = |scope: &str| envelope(UNOFFERED, offer().with(|o| o.scope = scope.to_owned()));
    let invalid = "INVALID_ENVELOPE";
    play(vec![
        ("an implicit accept by a client", "worker", envelope(OFFERED, taken(true)), invalid),
        ("an accept by somebody else", "helper", envelope(OFFERED, taken(false)), "FORBIDDEN"),
        (
            "an accept of an unknown offer",
            "worker",
            envelope(OFFERED, taken(false).with(|a| a.handoff_id = "h2".into())),
            invalid,
        ),
        (
            "a second offer",
            "planner",
            envelope(OFFERED, offer().with(|o| o.handoff_id = "h2".into())),
            invalid,
        ),
        ("an offer of no task", "planner", scoped("task:"), invalid),
        ("an offer of a task without a name", "planner", scoped("task: "), invalid),
        ("an offer of an unknown task", "planner", scoped(&format!("task:{FRESH}")), invalid),
        ("an offer of a handoff", "planner", scoped(&format!("task:{OFFERED}")), invalid),
        ("an offer of a bare session", "planner", scoped(WORKING), invalid),
        ("an offer of a bare UUID", "planner", scoped("0b0c9e5a-7c1b-4f7e-9a49-3f6c2b0b8d11"), invalid),
        ("an offer of a task that must stay", "planner", scoped(&format!("task:{WORKING}")), "POLICY_DENIED"),
        ("an offer by the target", "worker", envelope(OFFERED, offer()), "FORBIDDEN"),
        ("a task message in a handoff", "worker", envelope(OFFERED, accept()), invalid),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_to_hand_a_task_on_names_its_reason_and_words_are_a_scope() {
    let stage = Stage::in_memory().await;
    furnished(&stage).await;
    let planner = stage.agent("planner");
    let scoped = |scope: &str| envelope(UNOFFERED, offer().with(|o| o.scope = scope.to_owned()));
    let error = planner.refused(scoped(&format!("task:{WORKING}"))).await;
    let details: serde_json::Value = serde_json::from_slice(&error.details).unwrap();
    assert_eq!(details["code"], "HAND_ON_DENIED");
    assert!(error.message.contains("handed on"), "{}", error.message);
    let error = planner.refused(scoped(WORKING)).await;
    assert!(error.message.contains(&format!("task:{WORKING}")), "{}", error.message);
    // It has the shape of an id, and is nobody's.
    planner.ok(scoped("ownership-of-the-payments-service")).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_envelope_is_the_only_refusal_that_is_a_grpc_error() {
    let stage = Stage::in_memory().await;
    let status = stage.agent("planner").macp.send(SendRequest { envelope: None }).await.unwrap_err();
    assert_eq!((status.code(), macp_code(&status)), (Code::InvalidArgument, "INVALID_ENVELOPE"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_over_the_limit_is_too_large() {
    let limits = Limits { payload_bytes_max: 4096, ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    let stage = Stage::with(empty_store(), settings).await;
    stage.working(SESSION).await;
    let before = stage.written();
    let worker = stage.agent("worker");
    let large = |bytes: usize| envelope(SESSION, update("going").with(|u| u.partial_output = vec![7; bytes]));
    assert_eq!(worker.refused(large(4096)).await.code, "PAYLOAD_TOO_LARGE");
    let ill =
        signal("progress", "").with(|e| e.payload.extend([0x12, 0x80, 0x40].into_iter().chain([7; 8192])));
    assert_eq!(worker.refused(ill).await.code, "PAYLOAD_TOO_LARGE");
    // What is larger than any request is not even read.
    let request = SendRequest { envelope: Some(large(1024 * 1024)) };
    let status = worker.macp.clone().send(request).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert_eq!(stage.written(), before);
    worker.ok(large(1024)).await;
    stage.stop().await;
}

// RFC-MACP-0009 §5 rules 2 and 2a.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_declined_is_invalid_and_who_was_not_asked_is_forbidden() {
    let stage = Stage::in_memory().await;
    let reassigns = r#"{"assignment":{"allow_reassignment_on_reject":true}}"#;
    let planner = stage.agent("planner");
    planner.macp.clone().register_policy(policy("policy.again", "*", reassigns)).await.unwrap();
    planner.ok(envelope(SESSION, start().with(|s| s.policy_version = "policy.again".into()))).await;
    planner.ok(envelope(SESSION, request().with(|r| r.requested_assignee = "worker".into()))).await;
    let (worker, helper) = (stage.agent("worker"), stage.agent("helper"));
    worker.ok(envelope(SESSION, reject())).await;
    for (agent, code) in [(&worker, "INVALID_ENVELOPE"), (&helper, "FORBIDDEN")] {
        assert_eq!(agent.refused(envelope(SESSION, accept())).await.code, code);
        assert_eq!(agent.refused(envelope(SESSION, reject())).await.code, code);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_id_of_a_refused_message_can_be_used_again() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let worker = stage.agent("worker");
    let named = |progress: f64| {
        envelope(SESSION, update("going").with(|u| u.progress = progress))
            .with(|e| e.message_id = "mine".into())
    };
    worker.refused(named(f64::NAN)).await;
    assert!(!worker.ok(named(0.5)).await.duplicate);
    assert!(worker.ok(named(0.5)).await.duplicate);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_denies_says_why_for_machines_too() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let error = stage.agent("worker").refused(envelope(SESSION, reject())).await;
    let details: serde_json::Value = serde_json::from_slice(&error.details).unwrap();
    assert_eq!(details["reasons"][0], error.message.as_str());
    assert_eq!(details["denials"][0]["code"], "reassignment_not_allowed");
    stage.stop().await;
}
