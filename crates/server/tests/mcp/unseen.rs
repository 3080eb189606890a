//! A task or a handoff that the caller may not see looks like one that never was, whatever it asks: unknown, of another
//! tenant, deleted, or of others.

use std::sync::Arc;

use handover_engine::clock::now;
use handover_store::SessionKey;
use serde_json::{Value, json};

use super::scene::*;
use super::stage::*;

const UNKNOWN: &str = "a-task-that-never-was-0000";
/// How long what is finished is kept.
const KEPT_MS: u64 = 50;

/// Ids that `outsider` may not see: unknown, of another tenant, deleted, of others.
type Unseen = [(&'static str, String); 4];

fn id(shown: &Value, name: &str) -> String {
    shown[name].as_str().unwrap().to_owned()
}

/// A task of this client that an agent is to do, and a handoff that it is offered.
async fn begin(client: &Client, agent: &str) -> (String, String) {
    let delegate = json!({ "title": "dig", "instructions": "dig", "agent": agent, "queue": true });
    let task = id(&client.tool("delegate_task", delegate).await, "task_id");
    let offer = json!({ "to": agent, "scope": "the garden" });
    (task, id(&client.tool("handoff_offer", offer).await, "handoff_id"))
}

/// A server, and the tasks and handoffs on it that `outsider` may not see. It took part in those that were deleted.
async fn guarded() -> (Stage, Unseen, Unseen) {
    let store = empty_store();
    let before = Stage::with(|set| {
        set.identity = tokens();
        set.store = Arc::clone(&store);
    })
    .await;
    let planner = before.client("planner");
    let deleted = begin(&planner, "outsider").await;
    planner.tool("task_cancel", json!({ "task_id": deleted.0 })).await;
    before.client("outsider").tool("handoff_decline", json!({ "handoff_id": deleted.1 })).await;
    planner.tool("handoff_commit", json!({ "handoff_id": deleted.1 })).await;
    let others = begin(&planner, "worker").await;
    before.client("worker").tool("work_accept", json!({ "task_id": others.0 })).await;
    let elsewhere = begin(&before.client("elsewhere"), "outsider").await;
    before.stop().await;

    let keys = [&deleted.0, &deleted.1].map(|id| SessionKey::new("default", id.as_str()));
    let finished =
        keys.iter().map(|key| store.row(key).unwrap().unwrap().finished_at.unwrap()).max().unwrap();
    until(async || now().0 > finished + KEPT_MS).await;
    let stage = Stage::with(|set| {
        set.identity = tokens();
        set.store = Arc::clone(&store);
        set.engine.retention_ms = Some(KEPT_MS);
    })
    .await;
    until(async || keys.iter().all(|key| store.tombstone(key).unwrap().is_some())).await;
    let unseen = |elsewhere, deleted, others| {
        let unknown = UNKNOWN.to_owned();
        [("unknown", unknown), ("elsewhere", elsewhere), ("deleted", deleted), ("of others", others)]
    };
    let tasks = unseen(elsewhere.0, deleted.0, others.0);
    (stage, tasks, unseen(elsewhere.1, deleted.1, others.1))
}

/// Every tool that names a task, with what it needs beside that.
fn task_tools() -> Vec<(&'static str, Value)> {
    let questions = json!({ "where": { "message": "Where to?" } });
    vec![
        ("task_status", json!({})),
        ("task_wait", json!({})),
        ("task_wait", json!({ "wait_ms": 0 })),
        ("task_timeline", json!({})),
        ("task_timeline", json!({ "after": 1000, "max": 1 })),
        ("task_steer", json!({ "message": "deeper" })),
        ("task_steer", json!({ "message": "" })),
        ("task_message", json!({ "message": "mind the pipe" })),
        ("task_answer", json!({ "answers": { "where": says("left") } })),
        ("task_answer", json!({ "answers": {} })),
        ("task_pause", json!({})),
        ("task_resume", json!({})),
        ("task_cancel", json!({})),
        ("task_commit", json!({ "success": true })),
        ("work_accept", json!({})),
        ("work_decline", json!({ "reason": "no time" })),
        ("work_update", json!({ "message": "half" })),
        ("work_checkpoint", json!({})),
        ("work_checkpoint", json!({ "after": 0, "wait_ms": 0 })),
        ("work_hold", json!({ "reason": "a bill" })),
        ("work_ask", json!({ "questions": questions })),
        ("work_ask", json!({ "questions": questions, "wait_ms": 0 })),
        ("work_complete", json!({ "text": "a hole" })),
        ("work_complete", json!({})),
        ("work_fail", json!({ "reason": "no ground" })),
        ("handoff_offer", json!({ "to": "helper" })),
        ("handoff_offer", json!({ "to": "worker", "context": 1 })),
    ]
}

/// What an answer says, with the id that was asked for taken out.
fn bare_answer(answer: &Answer, id: &str) -> (u16, String) {
    let message = answer.message();
    let said = message.get("result").or_else(|| message.get("error")).unwrap();
    (answer.status, said.to_string().replace(id, "ID"))
}

/// Ask the same of each, under a key and without: it must be told the same, and that there is none.
async fn alike(stage: &Stage, unseen: &Unseen, method: &str, params: impl Fn(&str) -> Value) {
    for key in [Value::Null, json!("a-key")] {
        let mut told = Vec::new();
        for (which, id) in unseen {
            let request = stage.client("outsider").declaring(interaction()).request(method, params(id));
            let request = request.meta("dev.handover/idempotencyKey", key.clone());
            told.push((which, bare_answer(&request.answer().await, id)));
        }
        let (_, none) = &told[0];
        let asked = params("ID");
        assert!(none.1.contains("no such") || none.1.contains("there is no"), "{method} {asked}: {none:?}");
        for (which, found) in &told {
            assert_eq!(found, none, "{which}: {method} {asked}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_seen_looks_like_what_never_was_to_every_method_and_tool() {
    let (stage, tasks, handoffs) = guarded().await;
    let before = stage.written();
    for method in METHODS {
        // A handoff is no task either.
        for unseen in [&tasks, &handoffs] {
            alike(&stage, unseen, method, |id| params(method, id)).await;
        }
    }
    for query in ["", "?after=0", "?after=1000"] {
        alike(&stage, &tasks, "resources/read", |id| json!({ "uri": format!("task://{id}{query}") })).await;
    }
    for (tool, more) in task_tools() {
        let call = |id: &str| {
            let mut arguments = more.clone();
            arguments["task_id"] = json!(id);
            json!({ "name": tool, "arguments": arguments })
        };
        alike(&stage, &tasks, "tools/call", call).await;
    }
    let part =
        |id: &str| json!({ "title": "dig", "instructions": "dig", "agent": "helper", "parent_task_id": id });
    alike(&stage, &tasks, "tools/call", |id| json!({ "name": "delegate_task", "arguments": part(id) })).await;
    for tool in ["handoff_status", "handoff_accept", "handoff_decline", "handoff_commit"] {
        for unseen in [&handoffs, &tasks] {
            alike(
                &stage,
                unseen,
                "tools/call",
                |id| json!({ "name": tool, "arguments": { "handoff_id": id } }),
            )
            .await;
        }
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_may_not_be_seen_is_followed_listed_or_gone_on_with() {
    let (stage, tasks, _) = guarded().await;
    digger(&stage).await;
    let outsider = stage.client("outsider");
    let ids: Vec<&String> = tasks.iter().map(|(_, id)| id).collect();
    let uris: Vec<String> = ids.iter().map(|id| format!("task://{id}")).collect();
    let (stream, agreed) = outsider.listen(json!({ "taskIds": ids, "resourceSubscriptions": uris })).await;
    assert_eq!(agreed, json!({ "taskIds": [], "resourceSubscriptions": [] }));
    drop(stream);
    for (list, field) in [("task_list", "tasks"), ("work_list", "work"), ("handoff_list", "handoffs")] {
        assert_eq!(outsider.tool(list, json!({})).await[field], json!([]), "{list}");
    }
    assert_eq!(outsider.ok("resources/list", json!({})).await["resources"], json!([]));
    assert_eq!(outsider.tool("work_next", json!({ "wait_ms": 0 })).await["work"], json!([]));
    let mut told = Vec::new();
    for (which, id) in &tasks {
        let call = json!({ "name": SKILL, "arguments": {}, "requestState": format!("{id}.2"), "inputResponses": {} });
        told.push((which, outsider.refused("tools/call", call).await));
    }
    for (which, refused) in &told {
        assert_eq!(*refused, told[0].1, "{which}");
    }
    stage.stop().await;
}
