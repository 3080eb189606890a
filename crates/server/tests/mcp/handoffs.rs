//! An offer of a responsibility is one act: all of it, with what the other agent should know, or nothing.

use handover_kernel::charter::Charter;
use handover_server::face::macp::proto::handoff::{HandoffContextPayload, HandoffOfferPayload};
use serde_json::{Value, json};

use super::acts;
use super::both::*;
use super::macp::{self, With, envelope};
use super::scene::*;
use super::stage::*;

/// The handoffs that wait for an agent.
async fn listed(client: &Client) -> Vec<Value> {
    client.tool("handoff_list", json!({})).await["handoffs"].as_array().unwrap().clone()
}

/// Offer something under a key.
async fn keyed(client: &Client, key: &str, tool: &str, arguments: Value) -> Value {
    let request = client.request("tools/call", json!({ "name": tool, "arguments": arguments }));
    request.meta("dev.handover/idempotencyKey", json!(key)).answer().await.result()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_is_refused_leaves_no_session() {
    let stage = Stage::in_memory().await;
    let worker = stage.client("worker");
    // One that anybody of its participants may take over, one whose charter forbids it, one that nobody works on.
    let firm = Charter { reassignment: false, ..Charter::mcp() };
    for (task, charter) in [("free", Charter::mcp()), ("firm", firm), ("idle", Charter::mcp())] {
        let mut start = start(charter, None);
        start.participants.push("helper".into());
        put(&stage, task, "planner", acts::delegate(start, None)).await;
    }
    for task in ["free", "firm"] {
        put(&stage, task, "worker", acts::accept()).await;
    }
    let before = stage.written();
    for (to, task, code) in [
        ("helper", "firm", "HAND_ON_DENIED"),
        ("helper", "idle", "NOT_RUNNING"),
        ("planner", "free", "NOT_ELIGIBLE"),
        ("outsider", "free", "NOT_ELIGIBLE"),
        ("helper", "nowhere", "INVALID"),
    ] {
        let offer = json!({ "to": to, "task_id": task, "context": { "depth": 1 } });
        let refused = worker.call("handoff_offer", offer.clone()).await;
        assert_eq!(refused["isError"], true, "{offer}");
        assert!(text(&refused).contains(code), "{offer}: {refused}");
        assert_eq!(keyed(&worker, "k", "handoff_offer", offer).await["isError"], true);
    }
    assert_eq!(stage.written(), before);
    for client in ["worker", "helper", "planner"] {
        assert!(listed(&stage.client(client)).await.is_empty(), "{client}");
    }
    // A key whose offer was refused has not been used.
    let offer = json!({ "to": "helper", "task_id": "free", "context": { "depth": 1 } });
    assert_eq!(keyed(&worker, "k", "handoff_offer", offer).await["structuredContent"]["answer"], "offered");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_target_reads_the_offer_with_its_context() {
    let both = Both::open().await;
    let helper = both.macp("helper");
    let worker = both.stage.client("worker");
    for (context, kind, body) in [
        (json!({ "depth": 1 }), "application/json", r#"{"depth":1}"#),
        (json!("mind the pipe"), "text/plain", "mind the pipe"),
    ] {
        let offer = json!({ "to": "helper", "scope": "the garden", "reason": "leaving", "context": context });
        let shown = worker.tool("handoff_offer", offer).await;
        let id = shown["handoff_id"].as_str().unwrap();
        let all = transcript(&helper, id, 3).await;
        let types: Vec<&str> = all.iter().map(|envelope| envelope.message_type.as_str()).collect();
        assert_eq!(types, ["SessionStart", "HandoffOffer", "HandoffContext"]);
        let (offered, added) =
            (payload::<HandoffOfferPayload>(&all[1]), payload::<HandoffContextPayload>(&all[2]));
        assert_eq!(
            (offered.handoff_id.as_str(), offered.target_participant.as_str(), offered.scope.as_str()),
            (id, "helper", "the garden")
        );
        assert_eq!((added.handoff_id.as_str(), added.content_type.as_str()), (id, kind));
        assert_eq!(added.context, body.as_bytes());
    }
    let bare = worker.tool("handoff_offer", json!({ "to": "helper", "scope": "the gate" })).await;
    let id = bare["handoff_id"].as_str().unwrap();
    assert_eq!(helper.kinds(id).await, ["started", "offered"]);
    drop(helper);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_sent_again_under_its_key_is_one_handoff() {
    let stage = Stage::in_memory().await;
    let worker = stage.client("worker");
    let offer = json!({ "to": "helper", "scope": "the garden", "context": { "depth": 1 } });
    let first = keyed(&worker, "k", "handoff_offer", offer.clone()).await["structuredContent"].clone();
    let before = stage.written();
    assert_eq!(keyed(&worker, "k", "handoff_offer", offer.clone()).await["structuredContent"], first);
    assert_eq!((stage.written(), listed(&stage.client("helper")).await.len()), (before, 1));

    // The key of one call is no key of another.
    let delegate = json!({ "title": "dig", "instructions": "dig", "agent": "helper" });
    keyed(&worker, "d", "delegate_task", delegate.clone()).await;
    for (key, tool, arguments) in [
        ("k", "handoff_offer", json!({ "to": "helper", "scope": "the gate" })),
        ("k", "handoff_offer", json!({ "to": "planner", "scope": "the garden", "context": { "depth": 1 } })),
        ("k", "handoff_offer", json!({ "to": "helper", "scope": "the garden", "context": { "depth": 2 } })),
        ("k", "handoff_offer", json!({ "to": "helper", "scope": "the garden" })),
        ("k", "delegate_task", delegate),
        ("d", "handoff_offer", offer.clone()),
    ] {
        let refused = keyed(&worker, key, tool, arguments.clone()).await;
        assert!(text(&refused).contains("(DUPLICATE_MESSAGE)"), "{key} {arguments}: {refused}");
    }
    // It is the same call however far its handoff has come meanwhile.
    let id = json!({ "handoff_id": first["handoff_id"] });
    stage.client("helper").tool("handoff_accept", id.clone()).await;
    worker.tool("handoff_commit", id.clone()).await;
    let again = keyed(&worker, "k", "handoff_offer", offer).await["structuredContent"].clone();
    assert_eq!((&again["handoff_id"], &again["settled"]), (&first["handoff_id"], &json!(true)));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_of_a_task_sent_again_after_the_task_has_moved_is_the_same_handoff() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (stage.client("planner"), digger(&stage).await);
    let delegate = json!({ "title": "dig", "instructions": "dig", "agents": ["worker", "helper"] });
    planner.tool("delegate_task", delegate).await;
    let job = worker.next().await;
    let offer = json!({ "to": "helper", "task_id": job.id });
    let first = keyed(&worker.client, "k", "handoff_offer", offer.clone()).await["structuredContent"].clone();
    let id = json!({ "handoff_id": first["handoff_id"] });
    stage.client("helper").tool("handoff_accept", id.clone()).await;
    let settled = worker.client.tool("handoff_commit", id).await;
    assert_eq!((&settled["moved"], &settled["not_moved_because"]), (&json!(true), &Value::Null));
    // Once it is settled the task has moved.
    assert_eq!(planner.tool("task_status", json!({ "task_id": job.id })).await["assignee"], "helper");
    let again = keyed(&worker.client, "k", "handoff_offer", offer).await;
    assert_eq!(again["structuredContent"]["handoff_id"], first["handoff_id"], "{again}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_cannot_be_handed_on_any_more_is_part_of_the_answer() {
    let both = Both::open().await;
    let (planner, worker) = (both.stage.client("planner"), digger(&both.stage).await);
    let delegate = json!({ "title": "dig", "instructions": "dig", "agents": ["worker", "helper"] });
    planner.tool("delegate_task", delegate).await;
    let job = worker.next().await;
    let mut accepted = Vec::new();
    for _ in 0..2 {
        let offered = worker.client.tool("handoff_offer", json!({ "to": "helper", "task_id": job.id })).await;
        let id = json!({ "handoff_id": offered["handoff_id"] });
        assert_eq!(
            both.stage.client("helper").tool("handoff_accept", id.clone()).await["moved"],
            Value::Null
        );
        accepted.push(id);
    }
    planner.tool("task_cancel", json!({ "task_id": job.id })).await;
    let settled = worker.client.tool("handoff_commit", accepted[0].clone()).await;
    assert_eq!((&settled["moved"], &settled["settled"]), (&json!(false), &json!(true)));
    assert_eq!(settled["not_moved_because"], "SESSION_ENDED");

    // The same over MACP, beside an acknowledgement that is one.
    let id = accepted[1]["handoff_id"].as_str().unwrap();
    let macp = both.macp("worker");
    let commitment = macp::commit().with(|commitment| {
        commitment.action = "handoff.accepted".to_owned();
        commitment.authority_scope = "handoff".to_owned();
        commitment.configuration_version = "mcp".to_owned();
    });
    let envelope =
        envelope(id, commitment).with(|envelope| envelope.mode = "macp.mode.handoff.v1".to_owned());
    let ack = macp.send(envelope).await;
    let error = ack.error.expect("what did not happen is said");
    assert!(ack.ok && error.message.contains("SESSION_ENDED"), "{error:?}");
    drop(macp);
    both.stop().await;
}
