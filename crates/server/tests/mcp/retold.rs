//! Orders that a worker did not hear are told again: to the same request sent again, and to whoever says what it heard last.

use serde_json::{Value, json};

use super::scene::*;
use super::stage::*;

/// Use a tool of the worker's under a key.
async fn keyed(job: &Job, key: &str, tool: &str, mut arguments: Value) -> Value {
    arguments["task_id"] = json!(job.id);
    let request = job.client.request("tools/call", json!({ "name": tool, "arguments": arguments }));
    let result = request.meta("dev.handover/idempotencyKey", json!(key)).answer().await.result();
    assert_ne!(result["isError"], true, "{result}");
    result["structuredContent"].clone()
}

/// Use a tool of either party under a key that is its name, as often as a client that heard no answer may: one effect, and the same
/// answer.
async fn twice(stage: &Stage, client: &Client, tool: &str, mut arguments: Value, task: &str) -> Value {
    arguments["task_id"] = json!(task);
    let mut told = Vec::new();
    let mut written = Vec::new();
    for _ in 0..2 {
        let request = client.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        let result = request.meta("dev.handover/idempotencyKey", json!(tool)).answer().await.result();
        assert_ne!(result["isError"], true, "{tool}: {result}");
        told.push(result["structuredContent"].clone());
        written.push(stage.written());
    }
    assert_eq!((&told[0], written[0]), (&told[1], written[1]), "{tool}");
    told.remove(0)
}

/// Take the orders after an event, without waiting for any.
async fn after(job: &Job, seq: u64) -> Vec<Value> {
    let told = job.tool("work_checkpoint", json!({ "wait_ms": 0, "after": seq })).await;
    told["orders"].as_array().unwrap().clone()
}

fn seqs(orders: &[Value]) -> Vec<u64> {
    orders.iter().map(|order| order["seq"].as_u64().unwrap()).collect()
}

fn kinds(orders: &[Value]) -> Vec<&str> {
    orders.iter().map(|order| order["kind"].as_str().unwrap()).collect()
}

/// An order of each kind that a worker goes on after, none of them delivered.
async fn order_all(planner: &Client, job: &Job, key: &str) {
    job.asks_for(key, "Where to?").await;
    planner.steer(&job.id, "deeper").await;
    planner.update(&job.id, json!({ key: says("left") })).await;
    planner.tool("task_message", json!({ "task_id": job.id, "message": "mind the pipe" })).await;
}

/// The stage again, on the same disk, with everybody on it.
async fn restarted(stage: Stage, dir: &std::path::Path, job: &Job) -> (Stage, Client, Job) {
    stage.stop().await;
    let stage = Stage::on_disk(dir).await;
    let planner = stage.client("planner").declaring(interaction());
    let job = Job { client: stage.client("worker"), ..job.clone() };
    (stage, planner, job)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_sent_again_under_its_key_is_answered_with_the_same_orders() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    let (planner, job) = in_steady_hand(&stage).await;
    let tools = [("work_update", json!({ "message": "half" })), ("work_checkpoint", json!({ "wait_ms": 0 }))];
    let mut given = Vec::new();
    for (tool, arguments) in &tools {
        order_all(&planner, &job, tool).await;
        let first = keyed(&job, tool, tool, arguments.clone()).await;
        let orders = first["orders"].as_array().unwrap();
        assert_eq!(kinds(orders), ["steer", "answer", "message"], "{tool}");
        assert_eq!(
            (&orders[0]["message"], &orders[2]["message"]),
            (&json!("deeper"), &json!("mind the pipe"))
        );
        assert_eq!(orders[1]["answers"][tool], json!({ "action": "accept", "content": "left" }));
        given.push(first);
    }
    // What came later is not among them, and is not lost by asking.
    planner.steer(&job.id, "wider").await;
    let before = stage.written();
    for ((tool, arguments), first) in tools.iter().zip(&given) {
        for _ in 0..2 {
            assert_eq!(keyed(&job, tool, tool, arguments.clone()).await, *first, "{tool}");
        }
    }
    assert_eq!(stage.written(), before);
    let (stage, planner, job) = restarted(stage, dir.path(), &job).await;
    for ((tool, arguments), first) in tools.iter().zip(&given) {
        assert_eq!(keyed(&job, tool, tool, arguments.clone()).await, *first, "{tool} after a restart");
    }
    assert_eq!(steers(&job.says("more").await), ["wider"]);
    assert_eq!(planner.get(&job.id).await["status"], "working");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_safe_point_that_waits_under_a_key_hears_what_comes_and_hears_it_again() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let waits = json!({ "wait_ms": 60_000 });
    let first = tokio::spawn({
        let (job, waits) = (job.clone(), waits.clone());
        async move { keyed(&job, "k", "work_checkpoint", waits).await }
    });
    until(async || stage.metrics.to_text().contains("handover_streams_open 1")).await;
    planner.steer(&job.id, "deeper").await;
    let first = in_time(first).await.unwrap();
    assert_eq!(steers(&first), ["deeper"]);
    assert_eq!(in_time(keyed(&job, "k", "work_checkpoint", waits)).await, first);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_asked_again_under_its_key_finds_its_answers() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let asks = json!({ "questions": { "where": { "message": "Where to?" } } });
    let first = tokio::spawn({
        let (job, asks) = (job.clone(), asks.clone());
        async move { keyed(&job, "k", "work_ask", asks).await }
    });
    until(async || planner.get(&job.id).await["status"] == "input_required").await;
    planner.update(&job.id, json!({ "where": says("left") })).await;
    let first = in_time(first).await.unwrap();
    assert_eq!(first["answers"]["where"], json!({ "action": "accept", "content": "left" }));
    assert_eq!(keyed(&job, "k", "work_ask", asks).await, first);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_done_under_a_key_is_done_once() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    let worker = digger(&stage).await.client;
    let task = planner.begin(SKILL, json!({})).await;
    let went = [
        (&worker, "work_accept", json!({})),
        (&worker, "work_update", json!({ "message": "half" })),
        (&worker, "work_hold", json!({ "reason": "lunch" })),
        (&worker, "work_resume", json!({})),
        (&planner, "task_pause", json!({})),
        (&worker, "work_checkpoint", json!({ "wait_ms": 0 })),
        (&planner, "task_resume", json!({})),
        (&worker, "work_ask", json!({ "questions": { "where": { "message": "Where to?" } }, "wait_ms": 0 })),
        (&planner, "task_answer", json!({ "answers": { "where": says("left") } })),
        (&planner, "task_steer", json!({ "message": "deeper" })),
        (&planner, "task_message", json!({ "message": "mind the pipe" })),
        (&worker, "work_fail", json!({ "reason": "there is no ground" })),
    ];
    for (client, tool, arguments) in went {
        twice(&stage, client, tool, arguments, &task).await;
    }
    assert_eq!(planner.get(&task).await["result"]["isError"], true);
    // A key is that of one answer.
    let other = json!({ "task_id": task, "answers": { "where": says("right") } });
    let other = planner.request("tools/call", json!({ "name": "task_answer", "arguments": other }));
    let refused = other.meta("dev.handover/idempotencyKey", json!("task_answer")).answer().await.result();
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("DUPLICATE_MESSAGE"), "{refused}");
    let task = planner.begin(SKILL, json!({})).await;
    twice(&stage, &worker, "work_decline", json!({ "reason": "not today" }), &task).await;
    let task = planner.begin(SKILL, json!({})).await;
    twice(&stage, &planner, "task_cancel", json!({}), &task).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_sent_again_under_a_key_are_acknowledged_again_and_others_refused() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    let updates = async |said: &str| {
        let responses = json!({ "taskId": job.id, "inputResponses": { "where": says(said) } });
        planner
            .request("tasks/update", responses)
            .meta("dev.handover/idempotencyKey", json!("k"))
            .answer()
            .await
    };
    assert_eq!(updates("left").await.result(), ack());
    let before = stage.written();
    assert_eq!(updates("left").await.result(), ack());
    assert_eq!(updates("right").await.refused().data["code"], "DUPLICATE_MESSAGE");
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_after_an_event_are_told_again_in_order_and_none_twice() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    let (planner, job) = in_steady_hand(&stage).await;
    order_all(&planner, &job, "where").await;
    let first = job.says("half").await["orders"].as_array().unwrap().clone();
    planner.steer(&job.id, "wider").await;
    let second = job.says("more").await["orders"].as_array().unwrap().clone();
    let delivered = [first, second].concat();
    assert_eq!(kinds(&delivered), ["steer", "answer", "message", "steer"]);
    let numbers = seqs(&delivered);
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");

    for (index, seq) in std::iter::once(0).chain(numbers.iter().copied()).enumerate() {
        assert_eq!(after(&job, seq).await, delivered[index..], "after {seq}");
    }
    let (stage, planner, job) = restarted(stage, dir.path(), &job).await;
    assert_eq!(after(&job, 0).await, delivered);
    // What waits comes behind what was told before, and from then on is one of them.
    planner.steer(&job.id, "to the left").await;
    let all = after(&job, numbers[1]).await;
    assert_eq!((&all[..2], kinds(&all)), (&delivered[2..], vec!["message", "steer", "steer"]));
    assert_eq!(after(&job, numbers[1]).await, all);
    let last = *seqs(&all).last().unwrap();
    assert_eq!(after(&job, last).await, [] as [Value; 0]);
    // Both ways at once tell nothing twice either.
    let both = json!({ "wait_ms": 0, "after": last });
    planner.steer(&job.id, "to the right").await;
    let told = keyed(&job, "k", "work_checkpoint", both.clone()).await;
    assert_eq!(steers(&told), ["to the right"]);
    assert_eq!(keyed(&job, "k", "work_checkpoint", both).await, told);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_work_on_the_task_is_told_no_orders() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    planner.steer(&job.id, "deeper").await;
    job.says("half").await;
    let asked = json!({ "task_id": job.id, "wait_ms": 0, "after": 0 });
    let refused = planner.call("work_checkpoint", asked).await;
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("NOT_ASSIGNEE"), "{refused}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_tools_take_stands_in_their_list() {
    let stage = Stage::in_memory().await;
    let tools = stage.client("planner").ok("tools/list", json!({})).await["tools"].clone();
    for (name, fields) in
        [("work_checkpoint", &["wait_ms", "after"][..]), ("task_timeline", &["after", "max"])]
    {
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        for field in fields {
            assert!(tool["inputSchema"]["properties"][field].is_object(), "{name}: {field}");
        }
    }
    stage.stop().await;
}
