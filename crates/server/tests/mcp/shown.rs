//! What tasks show people: states in their words, what they wait for, and which way something came.

use serde_json::{Value, json};

use super::stage::*;

fn words(rows: &Value, field: &str) -> Vec<String> {
    rows.as_array().unwrap().iter().map(|row| row[field].as_str().unwrap_or("none").to_owned()).collect()
}

#[tokio::test]
async fn a_task_has_a_word_for_where_it_is_and_says_whom_it_waits_for() {
    let stage = Stage::in_memory().await;
    let (ops, analyst) = (stage.client("ops"), stage.client("analyst"));
    let asked = json!({ "title": "t", "instructions": "i", "agent": "analyst", "queue": true });
    let task = ops.tool("delegate_task", asked.clone()).await;
    let id = task["task_id"].clone();
    assert_eq!(
        (&task["state"], &task["waits_for"]),
        (
            &json!("requested"),
            &json!({ "what": "accept", "agents": ["analyst"], "since": task["created_at"] })
        )
    );
    let mut below = asked.clone();
    below["parent_task_id"] = id.clone();
    let child = ops.tool("delegate_task", below).await;
    assert_eq!(child["parent_task_id"], id);

    analyst.tool("work_accept", json!({ "task_id": id })).await;
    let task = ops.tool("task_status", json!({ "task_id": id })).await;
    assert_eq!((&task["state"], &task["subtasks"]), (&json!("working"), &json!([child["task_id"]])));
    assert!(task.get("waits_for").is_none());
    analyst
        .tool("work_ask", json!({ "task_id": id, "questions": { "q": { "message": "?" } }, "wait_ms": 0 }))
        .await;
    let task = ops.tool("task_status", json!({ "task_id": id })).await;
    assert_eq!((&task["state"], &task["waits_for"]["what"]), (&json!("waiting"), &json!("answer")));
    let asked_at = task["updated_at"].clone();
    ops.tool("task_steer", json!({ "task_id": id, "message": "deeper" })).await;
    let task = ops.tool("task_status", json!({ "task_id": id })).await;
    assert_eq!(
        task["waits_for"]["since"], asked_at,
        "it waits since the question, whatever happened after it"
    );

    let listed = ops.tool("task_list", json!({ "details": true })).await;
    assert_eq!(words(&listed["tasks"], "state"), ["requested", "waiting"]);
    let listed = ops.tool("task_list", json!({ "states": ["waiting", "failed"] })).await;
    assert_eq!(words(&listed["tasks"], "task_id"), [id.as_str().unwrap()]);
    let refused = ops.call("task_list", json!({ "states": ["frozen"] })).await;
    assert!(
        refused["content"][0]["text"].as_str().unwrap().contains("expected some of requested"),
        "{refused}"
    );

    analyst.tool("work_fail", json!({ "task_id": id, "reason": "no" })).await;
    let timeline = ops.tool("task_timeline", json!({ "task_id": id, "states": true })).await;
    let states = words(&timeline["events"], "state");
    assert_eq!((&*states[0], states.last().unwrap().as_str()), ("requested", "failed"));
    assert!(states.contains(&"working".to_owned()) && states.contains(&"waiting".to_owned()), "{states:?}");
}

#[tokio::test]
async fn a_task_that_everybody_declined_or_whose_time_was_up_has_its_own_word() {
    let stage = Stage::in_memory().await;
    let (ops, analyst) = (stage.client("ops"), stage.client("analyst"));
    let asked = json!({ "title": "t", "instructions": "i", "agent": "analyst", "queue": true });
    let task = ops.tool("delegate_task", asked).await;
    analyst.tool("work_decline", json!({ "task_id": task["task_id"], "reason": "busy" })).await;
    let task = ops.tool("task_status", json!({ "task_id": task["task_id"] })).await;
    assert_eq!(task["state"], "rejected");
    let listed = ops.tool("task_list", json!({ "states": ["rejected"] })).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1);
    let listed = ops.tool("task_list", json!({ "states": ["cancelled"] })).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn a_timeline_waits_for_what_comes_next_and_not_after_the_end() {
    let stage = Stage::in_memory().await;
    let ops = stage.client("ops");
    let asked = json!({ "title": "t", "instructions": "i", "agent": "analyst", "queue": true });
    let id = ops.tool("delegate_task", asked).await["task_id"].clone();
    let waiting = json!({ "task_id": id, "after": 2, "wait_ms": 60_000 });
    let (timeline, _) = tokio::join!(ops.tool("task_timeline", waiting), async {
        tokio::task::yield_now().await;
        stage.client("ops").tool("task_cancel", json!({ "task_id": id })).await
    });
    assert_eq!(words(&timeline["events"], "kind"), ["cancelled"]);
    let over =
        in_time(ops.tool("task_timeline", json!({ "task_id": id, "after": 3, "wait_ms": 60_000 }))).await;
    assert_eq!(over["events"], json!([]));
}

#[tokio::test]
async fn what_the_command_line_does_is_shown_as_such() {
    let stage = Stage::in_memory().await;
    let ops = stage.client("ops");
    let asked = json!({ "title": "t", "instructions": "i", "agent": "analyst", "queue": true });
    let request = ops.request("tools/call", json!({ "name": "delegate_task", "arguments": asked }));
    let program = json!({ "name": "handover-cli", "version": "1" });
    let answer = request.meta("io.modelcontextprotocol/clientInfo", program).answer().await.result();
    let id = answer["structuredContent"]["task_id"].clone();
    assert_eq!(answer["structuredContent"]["face"], "cli");
    ops.tool("task_pause", json!({ "task_id": id })).await;
    let timeline = ops.tool("task_timeline", json!({ "task_id": id })).await;
    assert_eq!(words(&timeline["events"], "face"), ["cli", "cli", "mcp"]);
}
