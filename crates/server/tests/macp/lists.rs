//! Who may see which session, one by one and in pages.

use handover_server::face::macp::proto::v1::{Ack, GetSessionRequest, ListSessionsRequest, SessionState};
use tonic::Code;

use super::stage::*;

fn list(page_size: i32, page_token: &str) -> ListSessionsRequest {
    ListSessionsRequest { page_size, page_token: page_token.to_owned() }
}

fn get(session: &str) -> GetSessionRequest {
    GetSessionRequest { session_id: session.to_owned() }
}

fn numbered(n: usize) -> String {
    format!("a-session-with-the-number-{n}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_sees_only_its_own_sessions() {
    let stage = Stage::in_memory().await;
    stage.started(SESSION).await;
    let foreign = start().with(|s| s.participants = vec!["friend".to_owned()]);
    stage.agent("outsider").ok(envelope(&numbered(1), foreign)).await;
    for (name, expected) in [
        ("planner", SESSION.to_owned()),
        ("worker", SESSION.to_owned()),
        ("outsider", numbered(1)),
        ("friend", numbered(1)),
    ] {
        let page = stage.agent(name).macp.list_sessions(list(0, "")).await.unwrap().into_inner();
        let found: Vec<_> = page.sessions.into_iter().map(|session| session.session_id).collect();
        assert_eq!(found, [expected], "{name}");
        assert_eq!(page.next_page_token, "", "{name}");
    }
    let page = stage.agent("stranger").macp.list_sessions(list(0, "")).await.unwrap().into_inner();
    assert!(page.sessions.is_empty());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_join_to_the_whole_list() {
    let stage = Stage::in_memory().await;
    for n in 0..7 {
        stage.started(&numbered(n)).await;
    }
    let mut worker = stage.agent("worker");
    let (mut token, mut found, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let page = worker.macp.list_sessions(list(3, &token)).await.unwrap().into_inner();
        assert!(page.sessions.len() <= 3);
        found.extend(page.sessions.into_iter().map(|session| session.session_id));
        pages += 1;
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, (0..7).map(numbered).collect::<Vec<_>>());
    assert_eq!(pages, 3);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_page_is_in_order_and_up_to_date_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    for n in 0..150 {
        stage.started(&numbered(n)).await;
    }
    stage.stop().await;
    let stage = Stage::on_disk(dir.path()).await;
    // The last of them is in memory and has changed, the others are on disk only.
    stage.agent("planner").ok(envelope(&numbered(149), request())).await;
    let page = stage.agent("worker").macp.list_sessions(list(1000, "")).await.unwrap().into_inner();
    let found: Vec<_> = page.sessions.iter().map(|session| session.session_id.clone()).collect();
    assert_eq!(found, (0..150).map(numbered).collect::<Vec<_>>());
    let spoken = |n: usize| page.sessions[n].participant_activity.len();
    assert_eq!((spoken(148), spoken(149)), (0, 1));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_page_is_an_invalid_argument() {
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    for wrong in [
        list(-1, ""),
        list(i32::MIN, ""),
        list(0, "x"),
        list(0, "s"),
        list(0, "s-1"),
        list(0, "sfffff00000fffff00000"),
    ] {
        let told = format!("{wrong:?}");
        let status = planner.macp.list_sessions(wrong).await.unwrap_err();
        assert_eq!(
            (status.code(), macp_code(&status)),
            (Code::InvalidArgument, "INVALID_ENVELOPE"),
            "{told}"
        );
    }
    for generous in [list(i32::MAX, ""), list(0, "sffffffffffffffff")] {
        assert!(planner.macp.list_sessions(generous).await.unwrap().into_inner().sessions.is_empty());
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_forbidden_and_an_unknown_session_is_not_found() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let before = stage.written();
    let unknown = numbered(1);
    for (name, session, code, word) in [
        ("outsider", SESSION, Code::PermissionDenied, "FORBIDDEN"),
        ("planner", unknown.as_str(), Code::NotFound, "SESSION_NOT_FOUND"),
    ] {
        let mut agent = stage.agent(name);
        let answers = [
            agent.macp.get_session(get(session)).await.map(|_| ()),
            agent.handover.steer(steer(session, "left")).await.map(|_| ()),
            agent.handover.answer(answer(session, "q1", "yes")).await.map(|_| ()),
            agent.handover.pause(pause(session)).await.map(|_| ()),
            agent.handover.read_timeline(timeline(session, 0, 0)).await.map(|_| ()),
        ];
        for (index, answer) in answers.into_iter().enumerate() {
            let status = answer.unwrap_err();
            assert_eq!((status.code(), macp_code(&status)), (code, word), "{name}, call {index}");
        }
        for ack in agent.controls(session).await {
            assert_eq!((ack.ok, ack.session_id.as_str(), ack.message_id.as_str()), (false, session, ""));
            let error = ack.error.unwrap();
            assert_eq!((error.code.as_str(), error.session_id.as_str()), (word, session));
            assert!(!error.details.is_empty());
        }
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_a_token_is_unauthenticated() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let mut nobody = stage.nobody();
    let answers = [
        nobody.macp.get_session(get(SESSION)).await.map(|_| ()),
        nobody.macp.list_sessions(list(0, "")).await.map(|_| ()),
        nobody.macp.watch_sessions(watch_sessions()).await.map(|_| ()),
        nobody.macp.watch_policies(watch_policies()).await.map(|_| ()),
        nobody.macp.watch_signals(watch_signals()).await.map(|_| ()),
        nobody.macp.cancel_session(cancel(SESSION)).await.map(|_| ()),
        nobody.macp.register_policy(policy("policy.x", "*", "{}")).await.map(|_| ()),
        nobody.handover.steer(steer(SESSION, "left")).await.map(|_| ()),
        nobody.handover.read_timeline(timeline(SESSION, 0, 0)).await.map(|_| ()),
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        let status = answer.unwrap_err();
        let found = (status.code(), macp_code(&status));
        assert_eq!(found, (Code::Unauthenticated, "UNAUTHENTICATED"), "call {index}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metadata_says_what_the_session_is_bound_to_and_who_spoke() {
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    let started = start().with(|s| {
        s.context_id = "ctx".to_owned();
        s.extensions.insert("z".to_owned(), Vec::new());
        s.extensions.insert("a".to_owned(), vec![1]);
    });
    planner.ok(envelope(SESSION, started)).await;
    planner.ok(envelope(SESSION, request())).await;
    stage.agent("worker").ok(envelope(SESSION, accept())).await;
    stage.agent("worker").ok(envelope(SESSION, update("going"))).await;
    let found = planner.macp.get_session(get(SESSION)).await.unwrap().into_inner().metadata.unwrap();
    assert_eq!(found.state(), SessionState::Open);
    assert_eq!((found.initiator.as_str(), found.context_id.as_str()), ("planner", "ctx"));
    assert_eq!(found.participants, ["planner", "worker", "helper"]);
    assert_eq!(found.extension_keys, ["a", "z"]);
    assert_eq!(found.policy_version, "policy.default");
    assert_eq!(found.expires_at_unix_ms - found.started_at_unix_ms, 60_000);
    let spoke: Vec<_> = found
        .participant_activity
        .iter()
        .map(|activity| (activity.participant_id.as_str(), activity.message_count))
        .collect();
    // A session start is not counted.
    assert_eq!(spoke, [("planner", 1), ("worker", 2)]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspending_twice_and_resuming_what_is_open_is_refused_but_cancelling_twice_is_not() {
    let stage = Stage::in_memory().await;
    stage.working(SESSION).await;
    let planner = stage.agent("planner");
    let code = |ack: Ack| ack.error.map_or_else(String::new, |error| error.code);
    assert_eq!(code(planner.resume(SESSION).await), "SESSION_NOT_OPEN");
    let ack = planner.suspend(SESSION).await;
    assert_eq!((ack.ok, ack.session_state(), ack.message_id.as_str()), (true, SessionState::Suspended, ""));
    assert_eq!(code(planner.suspend(SESSION).await), "SESSION_NOT_OPEN");
    let error = stage.agent("worker").refused(envelope(SESSION, update("going"))).await;
    assert_eq!(error.code, "SESSION_NOT_OPEN");
    for _ in 0..2 {
        let ack = planner.cancel(SESSION).await;
        assert_eq!((ack.ok, ack.session_state()), (true, SessionState::Cancelled));
    }
    assert_eq!(code(stage.agent("worker").cancel(SESSION).await), "FORBIDDEN");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_the_policy_delegates_it_to_suspends_resumes_and_cancels() {
    let stage = Stage::in_memory().await;
    let planner = stage.agent("planner");
    let rules = r#"{"commitment":{"authority":"designated_role","designated_roles":["helper"]}}"#;
    planner.macp.clone().register_policy(policy("policy.helped", "*", rules)).await.unwrap();
    planner.ok(envelope(SESSION, start().with(|s| s.policy_version = "policy.helped".to_owned()))).await;
    assert!(stage.agent("worker").controls(SESSION).await.iter().all(|ack| !ack.ok));
    let helper = stage.agent("helper");
    assert!(helper.suspend(SESSION).await.ok && helper.resume(SESSION).await.ok);
    assert!(planner.suspend(SESSION).await.ok);
    assert_eq!(helper.cancel(SESSION).await.session_state(), SessionState::Cancelled);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_come_in_either_header() {
    let stage = Stage::in_memory().await;
    stage.started(SESSION).await;
    let mut nobody = stage.nobody();
    for (header, value, good) in [
        ("authorization", "Bearer worker", true),
        ("authorization", "bearer worker", true),
        ("x-macp-token", "worker", true),
        ("authorization", "Basic worker", false),
        ("authorization", "Bearer", false),
        ("authorization", "Bearer ", false),
        ("x-macp-token", "", false),
    ] {
        let mut request = tonic::Request::new(get(SESSION));
        request.metadata_mut().insert(header, value.parse().unwrap());
        let answer = nobody.macp.get_session(request).await;
        let code = answer.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(code, if good { Code::Ok } else { Code::Unauthenticated }, "{header}: {value}");
    }
    stage.stop().await;
}
