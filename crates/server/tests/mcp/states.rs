//! Where a task is in the kernel, and what MCP shows of it: the table of all faces, row by row.

use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, Need};
use serde_json::{Value, json};

use super::acts;
use super::scene::*;
use super::stage::*;

const TASK: &str = "the-task-of-the-table";

/// Acts of the cast on one task, under this charter; then what is shown of it.
async fn after(charter: Charter, acts: Vec<(&str, Act)>) -> (Stage, Value) {
    let stage = Stage::in_memory().await;
    delegated(&stage, TASK, charter, Some(60_000)).await;
    for (by, act) in acts {
        put(&stage, TASK, by, act).await;
    }
    let shown = stage.client("planner").get(TASK).await;
    (stage, shown)
}

/// The status, the message and the payload that is there.
fn row(shown: &Value) -> (&str, &str, &str) {
    let text = |key: &str| shown[key].as_str().unwrap_or("");
    let there = |key: &&str| shown.get(key).is_some();
    let payloads: Vec<&str> = ["inputRequests", "result", "error"].into_iter().filter(there).collect();
    assert!(payloads.len() <= 1, "{shown}");
    // Who is waited for, and since when, depends on the moment.
    let said = text("statusMessage");
    let said = if said.starts_with("waiting for ") { "waiting for an assignee" } else { said };
    (text("status"), said, payloads.first().copied().unwrap_or(""))
}

async fn shows(charter: Charter, acts: Vec<(&str, Act)>, expected: (&str, &str, &str)) -> Value {
    let (stage, shown) = after(charter, acts).await;
    assert_eq!(row(&shown), expected, "{shown}");
    stage.stop().await;
    shown
}

fn taken(then: Vec<(&'static str, Act)>) -> Vec<(&'static str, Act)> {
    std::iter::once(("worker", acts::accept())).chain(then).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_nobody_has_taken_is_working_and_waits_for_an_assignee() {
    let waits = ("working", "waiting for an assignee", "");
    shows(Charter::mcp(), vec![], waits).await;
    let stage = Stage::in_memory().await;
    // Started by MACP, with nothing requested yet.
    put(&stage, TASK, "planner", Act::Start(Box::new(start(Charter::macp(), None)))).await;
    let shown = stage.client("planner").get(TASK).await;
    assert_eq!((row(&shown), &shown["ttlMs"]), (waits, &Value::Null));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_at_work_says_how_it_goes() {
    shows(Charter::mcp(), taken(vec![]), ("working", "", "")).await;
    shows(Charter::mcp(), taken(vec![("worker", acts::update("half"))]), ("working", "half", "")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_input_shows_what_is_asked() {
    let shown = shows(
        Charter::mcp(),
        taken(vec![("worker", acts::ask("where"))]),
        ("input_required", "worker asks: which?", "inputRequests"),
    )
    .await;
    assert_eq!(shown["inputRequests"]["where"]["method"], "elicitation/create");
    assert_eq!(shown["inputRequests"]["where"]["params"]["message"], "worker asks: which?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_permission_shows_one_approval_request() {
    let shown = shows(
        Charter::mcp(),
        taken(vec![("worker", acts::ask_permission("may"))]),
        ("input_required", "worker asks for permission: which?", "inputRequests"),
    )
    .await;
    assert_eq!(asked(&shown), ["may"]);
    let wanted = &shown["inputRequests"]["may"]["params"]["requestedSchema"];
    assert_eq!(
        (&wanted["required"], &wanted["properties"]["approved"]["type"]),
        (&json!(["approved"]), &json!("boolean"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_task_is_paused_to_those_who_know_that_and_as_before_to_others() {
    let message = "paused: wait; resume it to go on";
    for (acts, before, payload) in [
        (vec![], "working", ""),
        (taken(vec![("worker", acts::ask("where"))]), "input_required", "inputRequests"),
    ] {
        let mut acts = acts;
        acts.push(("planner", acts::pause()));
        let (stage, shown) = after(Charter::mcp(), acts).await;
        assert_eq!(row(&shown), (before, message, payload));
        let shown = stage.client("planner").declaring(interaction()).get(TASK).await;
        assert_eq!(row(&shown), ("paused", message, ""));
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reported_task_is_working_until_somebody_commits() {
    let waits = ("working", "reported: the requester has not decided about the result yet", "");
    shows(Charter::macp(), taken(vec![("worker", acts::complete("{}"))]), waits).await;
    shows(Charter::macp(), taken(vec![("worker", acts::fail("E"))]), waits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_its_sender_asks_only_if_something_is_asked() {
    let delivered = ("worker", acts::hand_in("a page"));
    shows(
        Charter::grid(),
        vec![delivered.clone()],
        ("working", "worker waits for a message of the requester", ""),
    )
    .await;
    shows(
        Charter::grid(),
        vec![("worker", acts::ask("where")), delivered],
        ("input_required", "worker asks: which?", "inputRequests"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settled_task_is_completed_with_its_result() {
    let completed = ("completed", "", "result");
    let shown =
        shows(Charter::mcp(), taken(vec![("worker", acts::complete("{\"depth\":3}"))]), completed).await;
    assert_eq!(shown["result"]["structuredContent"], json!({ "depth": 3 }));
    assert!(shown["result"].get("isError").is_none());
    let reviewed = taken(vec![("worker", acts::complete("a page")), ("planner", acts::commit_success())]);
    let shown = shows(Charter::macp(), reviewed, completed).await;
    assert_eq!(shown["result"]["content"], json!([{ "type": "text", "text": "a page" }]));
    assert!(shown["result"].get("structuredContent").is_none());
}

/// The text of a result that says that the work failed.
fn failure(shown: &Value) -> &str {
    assert_eq!(
        (row(shown).0, row(shown).2, &shown["result"]["isError"]),
        ("completed", "result", &json!(true))
    );
    shown["result"]["content"][0]["text"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_worker_failed_is_completed_with_an_error_result() {
    for (charter, then) in [
        (Charter::mcp(), vec![]),
        (Charter::grid(), vec![]),
        (Charter::macp(), vec![("planner", acts::commit_failure())]),
    ] {
        let acts = taken([vec![("worker", acts::fail("E"))], then].concat());
        let (stage, shown) = after(charter, acts).await;
        assert_eq!(failure(&shown), "it broke");
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_was_declined_and_settled_is_completed_with_the_reason() {
    let (stage, shown) = after(Charter::grid(), vec![("worker", acts::decline())]).await;
    assert_eq!(failure(&shown), "no time");
    stage.stop().await;
    let settled = vec![("worker", acts::decline()), ("planner", acts::commit_failure())];
    let (stage, shown) = after(Charter::macp(), settled).await;
    assert_eq!((failure(&shown), row(&shown).1), ("reviewed", "reviewed"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_result_was_not_taken_is_completed_with_the_reason() {
    let rejected = taken(vec![("worker", acts::complete("a page")), ("planner", acts::commit_failure())]);
    let (stage, shown) = after(Charter::macp(), rejected).await;
    assert_eq!((failure(&shown), row(&shown).1), ("reviewed", "reviewed"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_is_cancelled_and_says_why() {
    let cancelled = ("cancelled", "cancelled: not needed any more", "");
    shows(Charter::mcp(), taken(vec![("planner", acts::cancel())]), cancelled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_everybody_declined_is_completed_and_says_who() {
    let (stage, shown) = after(Charter::mcp(), vec![("worker", acts::decline())]).await;
    assert_eq!(failure(&shown), "nobody is left who could do this; declined by: worker");
    stage.stop().await;
    // A requester that cancels with the same word has cancelled.
    let own = Act::cancel("no_assignee");
    shows(Charter::mcp(), vec![("planner", own)], ("cancelled", "cancelled: no_assignee", "")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_past_its_time_has_failed() {
    let stage = Stage::in_memory().await;
    delegated(&stage, TASK, Charter::mcp(), Some(1)).await;
    let shown = stage.client("planner").until_status(TASK, "failed").await;
    let elapsed = "the task's time to live has elapsed";
    assert_eq!(row(&shown), ("failed", elapsed, "error"));
    let data = json!({ "code": "TASK_EXPIRED", "help": "/errors/TASK_EXPIRED" });
    assert_eq!(shown["error"], json!({ "code": INTERNAL_ERROR, "message": elapsed, "data": data }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_a_form_cannot_ask_becomes_one_field_of_json() {
    let schema = json!({ "type": "array", "items": { "type": "integer" } });
    let mut question = acts::question(None, Need::Input);
    question.schema = acts::blob(&schema.to_string());
    let (stage, shown) = after(Charter::mcp(), taken(vec![("worker", acts::ask_all(vec![question]))])).await;
    // Nobody gave it a key: it is called after its place in the log.
    assert_eq!(asked(&shown), ["q4"]);
    let planner = stage.client("planner");
    let wrong = json!({ "taskId": TASK, "inputResponses": { "q4": says("three") } });
    assert_eq!(planner.refused("tasks/update", wrong).await.as_pair(), (200, INVALID_PARAMS));
    planner.update(TASK, json!({ "q4": says("[1, 2]") })).await;
    let told = stage.client("worker").tool("work_checkpoint", json!({ "task_id": TASK })).await;
    assert_eq!(told["orders"][0]["answers"]["q4"]["content"], json!([1, 2]));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_cannot_be_asked_sees_working_and_may_answer_with_a_tool() {
    let (stage, _) = after(Charter::mcp(), taken(vec![("worker", acts::ask("where"))])).await;
    let planner = stage.client("planner").declaring(json!({ "extensions": { TASKS: {} } }));
    assert_eq!(row(&planner.get(TASK).await), ("working", "worker asks: which?", ""));
    let view = planner.tool("task_status", json!({ "task_id": TASK })).await;
    assert_eq!(view["questions"]["where"]["message"], "worker asks: which?");
    planner.tool("task_answer", json!({ "task_id": TASK, "answers": { "where": says("left") } })).await;
    assert_eq!(row(&stage.client("planner").get(TASK).await).0, "working");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_another_face_with_another_status_withdraws_what_was_asked() {
    let acts = taken(vec![("worker", acts::ask("where")), ("worker", acts::withdraw("found it"))]);
    shows(Charter::mcp(), acts, ("working", "found it", "")).await;
}
