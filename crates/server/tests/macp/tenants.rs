//! Tokens, tenants and roles: another tenant's sessions do not exist, an observer sees but does not act.

use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_engine::Settings;
use handover_server::face::macp::proto::v1::{GetSessionRequest, ListSessionsRequest};
use tonic::Code;

use super::stage::*;

/// The cast of the default tenant, with an administrator and an observer, and a `planner` of another one.
async fn guarded() -> Stage {
    let entry = |token: &str, rest: &str| format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token));
    let file = ["planner", "worker", "helper", "outsider"]
        .map(|name| entry(name, &format!("agent = \"{name}\"")))
        .concat()
        + &entry("eye", "agent = \"auditor\"\nroles = [\"observer\"]")
        + &entry("chief", "agent = \"chief\"\nroles = [\"admin\"]")
        + &entry(
            "elsewhere",
            "agent = \"planner\"\ntenant = \"elsewhere\"\nroles = [\"observer\", \"admin\"]",
        );
    let tokens = Tokens::parse(&file).unwrap();
    let identity = Identity::Tokens(Arc::new(tokens));
    Stage::for_known(identity, empty_store(), Settings::default()).await
}

fn get() -> GetSessionRequest {
    GetSessionRequest { session_id: SESSION.to_owned() }
}

async fn listed(agent: &Agent) -> Vec<String> {
    let page = agent.macp.clone().list_sessions(ListSessionsRequest::default()).await.unwrap().into_inner();
    page.sessions.into_iter().map(|session| session.session_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_nobody_has_is_unauthenticated() {
    let stage = guarded().await;
    let mut stranger = stage.agent("somebody");
    assert_eq!(stranger.refused(envelope(SESSION, start())).await.code, "UNAUTHENTICATED");
    assert_eq!(stranger.macp.get_session(get()).await.unwrap_err().code(), Code::Unauthenticated);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_another_tenant_do_not_exist() {
    let stage = guarded().await;
    stage.working(SESSION).await;
    let mut other = stage.agent("elsewhere");
    let before = stage.written();
    assert_eq!(other.refused(envelope(SESSION, request())).await.code, "SESSION_NOT_FOUND");
    assert_eq!(other.refused(signal("weather.rain", SESSION)).await.code, "SESSION_NOT_FOUND");
    let answers = [
        other.macp.get_session(get()).await.map(|_| ()),
        other.handover.steer(steer(SESSION, "left")).await.map(|_| ()),
        other.handover.read_timeline(timeline(SESSION, 0, 0)).await.map(|_| ()),
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        let status = answer.unwrap_err();
        assert_eq!(
            (status.code(), macp_code(&status)),
            (Code::NotFound, "SESSION_NOT_FOUND"),
            "call {index}"
        );
    }
    for ack in other.controls(SESSION).await {
        assert_eq!(ack.error.unwrap().code, "SESSION_NOT_FOUND");
    }
    let (_frames, mut listening) = other.subscribed(SESSION, 0).await;
    assert_eq!(listening.next().await.unwrap_err().code(), Code::NotFound);
    assert!(listed(&other).await.is_empty());
    assert_eq!(stage.written(), before);

    // The same id there is another session.
    let mut watch = other.macp.watch_sessions(watch_sessions()).await.unwrap().into_inner();
    stage.agent("planner").macp.cancel_session(cancel(SESSION)).await.unwrap();
    other.ok(envelope(SESSION, start())).await;
    let created = in_time(watch.message()).await.unwrap().unwrap().event.unwrap();
    assert_eq!(created.event_type().as_str_name(), "EVENT_TYPE_CREATED");
    assert_eq!(other.kinds(SESSION).await, ["started"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_stays_in_its_tenant_and_says_that_its_sender_is_proven() {
    let stage = guarded().await;
    let (mut here, mut there) =
        (stage.agent("worker").signals().await, stage.agent("elsewhere").signals().await);
    stage.agent("planner").ok(signal("weather.rain", "")).await;
    stage.agent("elsewhere").ok(signal("weather.sun", "")).await;
    let heard = here.next().await.unwrap().unwrap();
    assert!(heard.sender_authenticated);
    assert_eq!(heard.envelope.unwrap().sender, "planner");
    assert_eq!(there.heard().await.0, "weather.sun");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_every_session_of_its_tenant_and_changes_none() {
    let stage = guarded().await;
    stage.requested(SESSION).await;
    let mut eye = stage.agent("eye");
    assert_eq!(listed(&eye).await, [SESSION]);
    assert!(listed(&stage.agent("outsider")).await.is_empty());
    eye.macp.get_session(get()).await.unwrap();
    assert_eq!(eye.kinds(SESSION).await, ["started", "requested"]);
    let (_frames, mut listening) = eye.subscribed(SESSION, 0).await;
    assert_eq!(listening.types(2).await, ["SessionStart", "TaskRequest"]);
    let mut watch = eye.macp.watch_sessions(watch_sessions()).await.unwrap().into_inner();
    assert!(in_time(watch.message()).await.unwrap().is_some());

    let before = stage.written();
    assert_eq!(eye.refused(envelope(SESSION, accept())).await.code, "FORBIDDEN");
    for status in [
        eye.handover.steer(steer(SESSION, "left")).await.map(|_| ()).unwrap_err(),
        eye.handover.pause(pause(SESSION)).await.map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(macp_code(&status), "FORBIDDEN");
    }
    for ack in eye.controls(SESSION).await {
        assert_eq!(ack.error.unwrap().code, "FORBIDDEN");
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_administrator_registers_policies_and_only_for_its_tenant() {
    let stage = guarded().await;
    let rain = || policy("policy.rain", "*", "{}");
    let status = stage.agent("planner").macp.register_policy(rain()).await.unwrap_err();
    assert_eq!((status.code(), macp_code(&status)), (Code::PermissionDenied, "FORBIDDEN"));
    stage.agent("chief").macp.register_policy(rain()).await.unwrap();
    let bound = || envelope(SESSION, start().with(|s| s.policy_version = "policy.rain".to_owned()));
    assert_eq!(stage.agent("elsewhere").refused(bound()).await.code, "UNKNOWN_POLICY_VERSION");
    stage.agent("planner").ok(bound()).await;
    stage.stop().await;
}
