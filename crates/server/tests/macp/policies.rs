//! Policies: durable, watched, and of no effect on sessions that were bound before.

use handover_server::face::macp::proto::v1::{
    GetPolicyRequest, ListPoliciesRequest, RegisterPolicyRequest, UnregisterPolicyRequest,
    WatchPoliciesResponse,
};
use tonic::{Code, Streaming};

use super::stage::*;

const TASKS: &str = "macp.mode.task.v1";
const REASSIGNS: &str = r#"{"assignment":{"allow_reassignment_on_reject":true}}"#;

fn unregister(id: &str) -> UnregisterPolicyRequest {
    UnregisterPolicyRequest { policy_id: id.to_owned() }
}

async fn listed(agent: &Agent, mode: &str) -> Vec<String> {
    let request = ListPoliciesRequest { mode: mode.to_owned() };
    let page = agent.macp.clone().list_policies(request).await.unwrap().into_inner();
    page.descriptors.into_iter().map(|found| found.policy_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_gets_the_whole_set_on_each_change() {
    async fn next(watch: &mut Streaming<WatchPoliciesResponse>) -> Vec<String> {
        let answer = in_time(watch.message()).await.unwrap().unwrap();
        assert!(answer.observed_at_unix_ms > 0);
        answer.descriptors.into_iter().map(|found| found.policy_id).collect()
    }
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    let mut watch = stage.agent("worker").macp.watch_policies(watch_policies()).await.unwrap().into_inner();
    assert_eq!(next(&mut watch).await, ["policy.default", "policy.mcp", "policy.grid"]);
    planner.macp.register_policy(policy("policy.a", TASKS, REASSIGNS)).await.unwrap();
    assert_eq!(next(&mut watch).await, ["policy.default", "policy.mcp", "policy.grid", "policy.a"]);
    planner.macp.register_policy(policy("policy.b", "*", "{}")).await.unwrap();
    assert_eq!(
        next(&mut watch).await,
        ["policy.default", "policy.mcp", "policy.grid", "policy.a", "policy.b"]
    );
    planner.macp.unregister_policy(unregister("policy.a")).await.unwrap();
    assert_eq!(next(&mut watch).await, ["policy.default", "policy.mcp", "policy.grid", "policy.b"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_survive_a_restart_and_a_bound_session_keeps_its_charter() {
    let dir = tempfile::tempdir().unwrap();
    let (kept, removed) = ("a-session-under-a-kept-policy", "a-session-under-a-lost-policy");
    let stage = Stage::on_disk(dir.path()).await;
    let mut planner = stage.agent("planner");
    for (session, id) in [(kept, "policy.kept"), (removed, "policy.lost")] {
        planner.macp.register_policy(policy(id, TASKS, REASSIGNS)).await.unwrap();
        planner.ok(envelope(session, start().with(|s| s.policy_version = id.to_owned()))).await;
        planner.ok(envelope(session, request())).await;
        stage.agent("worker").ok(envelope(session, accept())).await;
    }
    planner.macp.unregister_policy(unregister("policy.lost")).await.unwrap();
    // The same id with other rules is another policy.
    planner.macp.register_policy(policy("policy.lost", TASKS, "{}")).await.unwrap();
    drop(planner);
    stage.stop().await;

    let stage = Stage::on_disk(dir.path()).await;
    let planner = stage.agent("planner");
    assert_eq!(
        listed(&planner, "").await,
        ["policy.default", "policy.mcp", "policy.grid", "policy.kept", "policy.lost"]
    );
    for session in [kept, removed] {
        stage.agent("worker").ok(envelope(session, reject())).await;
        stage.agent("helper").ok(envelope(session, accept())).await;
    }
    let new = "a-session-under-the-new-policy";
    planner.ok(envelope(new, start().with(|s| s.policy_version = "policy.lost".to_owned()))).await;
    planner.ok(envelope(new, request())).await;
    stage.agent("worker").ok(envelope(new, accept())).await;
    assert_eq!(stage.agent("worker").refused(envelope(new, reject())).await.code, "POLICY_DENIED");
    drop(planner);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_listed_by_mode() {
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    planner.macp.register_policy(policy("policy.a", TASKS, "{}")).await.unwrap();
    planner.macp.register_policy(policy("policy.b", "macp.mode.handoff.v1", "{}")).await.unwrap();
    planner.macp.register_policy(policy("policy.c", "*", "{}")).await.unwrap();
    assert_eq!(
        listed(&planner, "").await,
        ["policy.default", "policy.mcp", "policy.grid", "policy.a", "policy.b", "policy.c"]
    );
    assert_eq!(
        listed(&planner, TASKS).await,
        ["policy.default", "policy.mcp", "policy.grid", "policy.a", "policy.c"]
    );
    let found = planner.macp.get_policy(GetPolicyRequest { policy_id: "policy.b".to_owned() }).await.unwrap();
    let found = found.into_inner().policy_descriptor.unwrap();
    assert_eq!((found.mode.as_str(), found.rules.as_str()), ("macp.mode.handoff.v1", "{}"));
    assert!(found.registered_at_unix_ms > 0);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_policy_is_refused() {
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    planner.macp.register_policy(policy("policy.a", TASKS, "{}")).await.unwrap();
    let code = "INVALID_POLICY_DEFINITION";
    for (what, wrong) in [
        ("no id", policy("", TASKS, "{}")),
        ("the built-in one", policy("policy.default", TASKS, "{}")),
        ("one of the protocol's own", policy("policy.std.mine", TASKS, "{}")),
        ("one that exists", policy("policy.a", TASKS, "{}")),
        ("an unknown mode", policy("policy.b", "macp.mode.vote.v1", "{}")),
        ("no mode", policy("policy.b", "", "{}")),
        ("no JSON", policy("policy.b", TASKS, "{")),
        ("no object", policy("policy.b", TASKS, "[]")),
        ("an unknown rule", policy("policy.b", TASKS, r#"{"x":{}}"#)),
        ("another mode's rule", policy("policy.b", TASKS, r#"{"acceptance":{}}"#)),
        ("an unknown authority", policy("policy.b", TASKS, r#"{"commitment":{"authority":"x"}}"#)),
        ("a negative time", policy("policy.b", "*", r#"{"acceptance":{"implicit_accept_timeout_ms":-1}}"#)),
        (
            "an unknown schema version",
            policy("policy.b", TASKS, "{}")
                .with(|p| p.policy_descriptor.as_mut().unwrap().schema_version = 4),
        ),
    ] {
        let answer = planner.macp.register_policy(wrong).await.unwrap().into_inner();
        assert!(!answer.ok && answer.error.starts_with(&format!("{code}: ")), "{what}: {answer:?}");
    }
    let status = planner.macp.register_policy(RegisterPolicyRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let answer = planner.macp.unregister_policy(unregister("policy.default")).await.unwrap().into_inner();
    assert!(!answer.ok && answer.error.starts_with(code), "{answer:?}");
    for id in ["policy.x", ""] {
        let answer = planner.macp.unregister_policy(unregister(id)).await.unwrap().into_inner();
        assert!(!answer.ok && answer.error.starts_with("UNKNOWN_POLICY_VERSION: "), "{id:?}: {answer:?}");
        let status =
            planner.macp.get_policy(GetPolicyRequest { policy_id: id.to_owned() }).await.unwrap_err();
        assert_eq!((status.code(), macp_code(&status)), (Code::NotFound, "UNKNOWN_POLICY_VERSION"), "{id:?}");
    }
    assert_eq!(listed(&planner, "").await, ["policy.default", "policy.mcp", "policy.grid", "policy.a"]);
    stage.stop().await;
}
