//! What `handover.v1` orders reaches a MACP assignee as signals: at safe points, until it was heard, and in no transcript.

use std::path::Path;

use handover_server::face::macp::proto::handover::{
    AnswerRequest, ListQuestionsRequest, QuestionAnswer, question_answer,
};
use handover_server::face::macp::proto::task::TaskUpdatePayload;
use handover_server::face::macp::proto::v1::SessionState;
use tonic::Code;

use super::stage::*;

/// The next thing that is heard is this marker: nothing was waiting before it.
async fn nothing_but_a_marker(stage: &Stage, hearing: &mut Hearing) {
    stage.agent("planner").ok(signal("marker", "")).await;
    assert_eq!(hearing.heard().await.0, "marker");
}

/// The key of the last question of a session.
async fn last_question(agent: &Agent, session: &str) -> String {
    let asked = agent.timeline(session).await.into_iter().rfind(|event| event.kind == "asked").unwrap();
    let detail: serde_json::Value = serde_json::from_str(&asked.detail_json).unwrap();
    detail["questions"][0]["key"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steer_is_heard_at_the_next_safe_point_and_not_before() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    let mut hearing = worker.signals().await;
    let receipt = planner.handover.steer(steer(SESSION, "keep left")).await.unwrap().into_inner();
    assert_eq!((receipt.duplicate, receipt.standing.as_str()), (false, "working"));
    nothing_but_a_marker(&stage, &mut hearing).await;
    assert_eq!(planner.kinds(SESSION).await.last().unwrap(), "steered");

    worker.ok(envelope(SESSION, update("going"))).await;
    let heard = hearing.next().await.unwrap().unwrap();
    assert!(!heard.sender_authenticated);
    let told = heard.envelope.unwrap();
    assert_eq!((told.sender.as_str(), told.session_id.as_str(), told.mode.as_str()), ("planner", "", ""));
    let payload: handover_server::face::macp::proto::v1::SignalPayload =
        prost::Message::decode(told.payload.as_slice()).unwrap();
    assert_eq!((payload.signal_type.as_str(), payload.data.as_slice()), ("task.steer", &b"keep left"[..]));
    assert_eq!(payload.correlation_session_id, SESSION);

    planner.until_happened(SESSION, "delivered", 1).await;
    let life = ["started", "requested", "accepted", "steered", "updated", "delivered"];
    assert_eq!(planner.kinds(SESSION).await, life);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_heard_at_once_while_the_assignee_waits() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    let mut hearing = worker.signals().await;
    worker.ok(envelope(SESSION, ask("left or right?"))).await;
    let key = last_question(&planner, SESSION).await;
    let receipt = planner.handover.answer(answer(SESSION, &key, "left")).await.unwrap().into_inner();
    assert_eq!(receipt.standing, "working");
    let (kind, data) = hearing.heard().await;
    assert_eq!(kind, "task.answer");
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data, serde_json::json!([{ "key": key, "action": "accept", "content": "left" }]));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_and_a_dismissed_question_are_told_as_such() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    let mut hearing = worker.signals().await;
    for (reply, action) in [
        (question_answer::Reply::Refused(true), "decline"),
        (question_answer::Reply::Dismissed(true), "cancel"),
    ] {
        worker.ok(envelope(SESSION, ask("left or right?"))).await;
        let key = last_question(&planner, SESSION).await;
        let answers = vec![QuestionAnswer { key, reply: Some(reply) }];
        let request = AnswerRequest { session_id: SESSION.to_owned(), answers, message_id: String::new() };
        planner.handover.answer(request).await.unwrap();
        let data: serde_json::Value = serde_json::from_str(&hearing.heard().await.1).unwrap();
        assert_eq!((&data[0]["action"], &data[0]["content"]), (&action.into(), &serde_json::Value::Null));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_questions_are_listed_until_they_are_answered() {
    let stage = Stage::in_memory().await;
    stage.requested(SESSION).await;
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    let request = || ListQuestionsRequest { session_id: SESSION.to_owned() };
    let open = async |agent: &mut Agent| {
        agent.handover.list_questions(request()).await.unwrap().into_inner().questions
    };
    assert!(open(&mut planner).await.is_empty());
    worker.ok(envelope(SESSION, accept())).await;
    let schema = |update: &mut TaskUpdatePayload| update.partial_output = b"{}".to_vec();
    worker.ok(envelope(SESSION, ask("left or right?").with(schema))).await;
    let found = open(&mut planner).await;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].text.as_str(), found[0].need.as_str(), found[0].schema.as_slice()),
        ("left or right?", "input", &b"{}"[..])
    );
    assert_eq!(open(&mut worker.clone()).await, found, "whoever takes part may look");
    planner.handover.answer(answer(SESSION, &found[0].key, "left")).await.unwrap();
    assert!(open(&mut planner).await.is_empty());
    let status = stage.agent("outsider").handover.list_questions(request()).await.unwrap_err();
    assert_eq!(macp_code(&status), "FORBIDDEN");
    stage.stop().await;
}

async fn unheard_orders_wait(stage: Stage, reopen: Option<&Path>) {
    stage.working(SESSION).await;
    stage.agent("planner").handover.steer(steer(SESSION, "keep left")).await.unwrap();
    stage.agent("worker").ok(envelope(SESSION, update("going"))).await;
    let stage = match reopen {
        Some(dir) => {
            stage.stop().await;
            Stage::on_disk(dir).await
        }
        None => stage,
    };
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    // Others who listen are not the assignee.
    let mut helper = stage.agent("helper").signals().await;
    nothing_but_a_marker(&stage, &mut helper).await;

    let mut hearing = worker.signals().await;
    assert_eq!(hearing.heard().await, ("task.steer".to_owned(), "keep left".to_owned()));
    planner.until_happened(SESSION, "delivered", 1).await;
    drop(hearing);

    // What was heard is not repeated; what comes next is heard in its turn.
    planner.handover.steer(steer(SESSION, "slow down")).await.unwrap();
    let mut hearing = worker.signals().await;
    nothing_but_a_marker(&stage, &mut hearing).await;
    worker.ok(envelope(SESSION, update("going"))).await;
    assert_eq!(hearing.heard().await, ("task.steer".to_owned(), "slow down".to_owned()));
    planner.until_happened(SESSION, "delivered", 2).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_heard_is_told_when_the_assignee_subscribes_and_then_no_more() {
    unheard_orders_wait(Stage::in_memory().await, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_heard_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    unheard_orders_wait(Stage::on_disk(dir.path()).await, Some(dir.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gentle_pause_takes_effect_at_the_next_safe_point_and_orders_wait_for_the_resume() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    let mut hearing = worker.signals().await;
    let receipt = planner.handover.pause(pause(SESSION)).await.unwrap().into_inner();
    assert_eq!(receipt.standing, "working");
    planner.handover.steer(steer(SESSION, "keep left")).await.unwrap();

    // The assignee's own update is still taken, and its answer says that the session is suspended.
    let ack = worker.ok(envelope(SESSION, update("going"))).await;
    assert_eq!(ack.session_state(), SessionState::Suspended);
    assert_eq!(worker.refused(envelope(SESSION, update("going"))).await.code, "SESSION_NOT_OPEN");
    assert_eq!(hearing.heard().await.0, "task.pause");
    nothing_but_a_marker(&stage, &mut hearing).await;
    // Whoever begins to listen while the pause lasts is told of it as well.
    let mut second = worker.signals().await;
    assert_eq!(second.heard().await.0, "task.pause");

    planner.macp.resume_session(resume(SESSION)).await.unwrap();
    // One of the two is told.
    let told = tokio::select! { told = hearing.heard() => told, told = second.heard() => told };
    assert_eq!(told, ("task.steer".to_owned(), "keep left".to_owned()));
    planner.until_happened(SESSION, "delivered", 1).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_take_no_ordinal_and_are_on_the_timeline_alone() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    let mut hearing = worker.signals().await;
    planner.handover.steer(steer(SESSION, "keep left")).await.unwrap();
    worker.ok(envelope(SESSION, ask("left or right?"))).await;
    hearing.heard().await;
    planner.until_happened(SESSION, "delivered", 1).await;
    let key = last_question(&planner, SESSION).await;
    planner.handover.answer(answer(SESSION, &key, "left")).await.unwrap();
    hearing.heard().await;
    planner.until_happened(SESSION, "delivered", 2).await;
    worker.ok(envelope(SESSION, update("going"))).await;
    worker.ok(envelope(SESSION, complete())).await;

    let (frames, mut listening) = planner.subscribed(SESSION, 0).await;
    let life = ["SessionStart", "TaskRequest", "TaskAccept", "TaskUpdate", "TaskUpdate", "TaskComplete"];
    assert_eq!(listening.types(6).await, life);
    // The refusal is the next frame: nothing was between.
    frames.send(subscribe("another-session-altogether", 0)).await.unwrap();
    assert_eq!(listening.error().await.code, "INVALID_ENVELOPE");

    let seen: Vec<_> = planner
        .timeline(SESSION)
        .await
        .into_iter()
        .map(|event| (event.kind, event.ordinal, event.author, event.face))
        .collect();
    let expected = [
        ("started", 1, "planner", "macp"),
        ("requested", 2, "planner", "macp"),
        ("accepted", 3, "worker", "macp"),
        ("steered", 0, "planner", "macp"),
        ("asked", 4, "worker", "macp"),
        ("delivered", 0, "", "runtime"),
        ("answered", 0, "planner", "macp"),
        ("delivered", 0, "", "runtime"),
        ("updated", 5, "worker", "macp"),
        ("completed", 6, "worker", "macp"),
    ];
    let expected = expected
        .map(|(kind, ordinal, author, face)| (kind.to_owned(), ordinal, author.to_owned(), face.to_owned()));
    assert_eq!(seen, expected);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeline_is_read_in_pages() {
    let stage = Stage::in_memory().await;
    stage.reported(SESSION).await;
    let mut planner = stage.agent("planner");
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = planner.handover.read_timeline(timeline(SESSION, after, 3)).await.unwrap().into_inner();
        seen.extend(page.events.iter().map(|event| event.sequence));
        assert_eq!(page.more, seen.len() < 4);
        let Some(last) = page.events.last().filter(|_| page.more) else { break };
        after = last.sequence;
    }
    assert_eq!(seen, [1, 2, 3, 4]);
    let past = planner.handover.read_timeline(timeline(SESSION, u64::MAX, 0)).await.unwrap().into_inner();
    assert!(past.events.is_empty() && !past.more);
    let most = planner.handover.read_timeline(timeline(SESSION, 0, u32::MAX)).await.unwrap().into_inner();
    assert_eq!(most.events.len(), 4);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_steer_twice_has_one_effect() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let mut planner = stage.agent("planner");
    let named = steer(SESSION, "keep left").with(|s| s.message_id = "once".to_owned());
    let first = planner.handover.steer(named.clone()).await.unwrap().into_inner();
    let second = planner.handover.steer(named).await.unwrap().into_inner();
    assert!(!first.duplicate && second.duplicate);
    assert_eq!(first.sequence, second.sequence);
    for _ in 0..2 {
        assert!(!planner.handover.steer(steer(SESSION, "keep left")).await.unwrap().into_inner().duplicate);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_order_is_refused_and_changes_nothing() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let before = stage.written();
    let (mut planner, mut worker) = (stage.agent("planner"), stage.agent("worker"));
    let named = |id: &str| steer(SESSION, "left").with(|s| s.message_id = id.to_owned());
    let no_reply = answer(SESSION, "q1", "").with(|a| a.answers[0].reply = None);
    let invalid = (Code::InvalidArgument, "INVALID_ENVELOPE");
    let forbidden = (Code::PermissionDenied, "FORBIDDEN");
    for (what, refused, expected) in [
        ("a steer by the assignee", worker.handover.steer(steer(SESSION, "left")).await, forbidden),
        ("an empty steer", planner.handover.steer(steer(SESSION, "")).await, invalid),
        ("the runtime's id", planner.handover.steer(named("handover:x")).await, invalid),
        ("a long message_id", planner.handover.steer(named(&"m".repeat(257))).await, invalid),
        ("an unknown question", planner.handover.answer(answer(SESSION, "q9", "x")).await, invalid),
        ("an answer without a reply", planner.handover.answer(no_reply).await, invalid),
        ("a pause by the assignee", worker.handover.pause(pause(SESSION)).await, forbidden),
    ] {
        let status = refused.expect_err(what);
        assert_eq!((status.code(), macp_code(&status)), expected, "{what}: {status:?}");
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}
