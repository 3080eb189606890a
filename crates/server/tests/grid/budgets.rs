//! Budgets: a tree of tasks over two protocols that shares what it may use, and what each protocol shows of it.

use handover_server::face::macp::proto::handover::ReportUseRequest;
use serde_json::{Value, json};

use super::client::{Node, code};
use super::others::both::{Both, hears};
use super::others::macp::{self, With, envelope};
use super::others::scene::SKILL;
use super::others::stage::*;

const KEY: &str = "dev.handover/idempotencyKey";

fn told(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

/// What a worker of MCP delegates under its task.
fn below(task: &Value, agent: &str) -> Value {
    json!({ "title": "dig", "instructions": "dig", "agent": agent, "queue": true, "parent_task_id": task })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_levels_over_two_protocols_share_a_budget() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    let worker = stage.worker("worker", json!([])).await;
    let budget =
        json!({ "tasks": 3, "depth": 2, "time_ms": 600_000, "numbers": { "tokens": 1000, "cost_usd": 0.5 } });
    let asked = json!({ "title": "dig", "instructions": "dig", "agent": "worker", "budget": budget });
    let begun = planner.tool("delegate_task", asked).await;
    assert_eq!(begun["budget"]["tasks"], json!({ "used": 0, "of": 3 }), "{begun}");
    let root = begun["task_id"].clone();
    let job = worker.next().await;

    // The second level is of MCP, the third of Grid.
    let keyed = |key: &str, arguments: Value| {
        let call = json!({ "name": "delegate_task", "arguments": arguments });
        worker.client.request("tools/call", call).meta(KEY, json!(key))
    };
    let child = keyed("k1", below(&root, "helper")).answer().await.result();
    let child = child["structuredContent"]["task_id"].clone();
    let again = keyed("k1", below(&root, "helper")).answer().await.result();
    assert_eq!(again["structuredContent"]["task_id"], child, "sent again, it is the same task");
    let helper = Node::new(&stage, "helper");
    helper.ok("task/update", json!({ "taskId": child, "state": "working" })).await;
    let mut send = json!({ "to": "digger", "message": "dig", "queue": true, "parentTaskId": child });
    let leaf = helper.ok("task/send", send.clone()).await["task"].clone();
    let shown = planner.tool("task_status", json!({ "task_id": root })).await;
    assert_eq!(shown["budget"]["tasks"], json!({ "used": 2, "of": 3 }), "{shown}");
    assert_eq!(shown["budget"]["depth"], json!({ "used": 2, "of": 2 }));
    assert_eq!(leaf["deadline"], shown["budget"]["until"], "its time is that of the budget");

    // Too deep, and too many.
    let digger = Node::new(&stage, "digger");
    send["parentTaskId"] = leaf["taskId"].clone();
    send["to"] = json!("worker");
    let refused = digger.refused("task/send", send).await;
    assert_eq!(code(&refused), "BUDGET_SPENT");
    assert!(refused["message"].as_str().unwrap().contains("no depth left: the limit is 2"), "{refused}");
    worker.client.tool("delegate_task", below(&root, "helper")).await;
    let refused = worker.client.call("delegate_task", below(&root, "helper")).await;
    assert!(told(&refused).contains("no tasks left: the limit is 3, used are 3"), "{refused}");
    assert!(told(&refused).contains("(BUDGET_SPENT)"), "{refused}");

    // What is used at each level is added up at the root, and each task has its own.
    job.update(json!({ "message": "half", "used": { "tokens": 400 } })).await;
    let say = json!({ "taskId": leaf["taskId"], "message": "dug", "used": { "tokens": 599.5, "cost_usd": 0.25, "calls": 2 } });
    let sent = digger.ok("message/send", say).await;
    assert_eq!(sent["task"]["used"], json!({ "tokens": 599.5, "cost_usd": 0.25, "calls": 2 }));
    let numbers = json!({ "tokens": { "used": 999.5, "of": 1000 }, "cost_usd": { "used": 0.25, "of": 0.5 } });
    let shown = planner.tool("task_status", json!({ "task_id": root })).await;
    assert_eq!((&shown["budget"]["numbers"], &shown["used"]), (&numbers, &json!({ "tokens": 400 })));
    let tree = Node::new(&stage, "planner").ok("task/tree", json!({ "taskId": root })).await;
    let tasks = tree["tasks"].as_array().unwrap();
    assert_eq!((tasks.len(), &tasks[0]["budget"]["numbers"]), (4, &numbers), "{tree}");
    let used = tasks.iter().filter(|task| task.get("used").is_some()).count();
    assert_eq!(used, 2, "{tree}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exceeds_a_bound_is_kept_and_stops_the_rest_while_ends_are_taken() {
    let stage = Stage::in_memory().await;
    let sender = Node::new(&stage, "planner");
    let mut hearing = sender.listens().await;
    let worker = stage.worker("worker", json!([])).await;
    let asked = json!({ "to": "worker", "message": "dig", "budget": { "numbers": { "tokens": 10 } } });
    let root = sender.ok("task/send", asked).await["task"]["taskId"].clone();
    let job = worker.next().await;
    let child = worker.client.tool("delegate_task", below(&root, "helper")).await["task_id"].clone();
    let helper = Node::new(&stage, "helper");
    let update = |used: u64| json!({ "taskId": child, "state": "working", "used": { "tokens": used } });
    helper.ok("task/update", update(11)).await;
    hearing.notified("overspent").await;
    let shown = sender.get(root.as_str().unwrap()).await;
    assert_eq!(shown["budget"]["numbers"]["tokens"], json!({ "used": 11, "of": 10 }), "{shown}");
    assert_eq!(shown["budget"]["overspent"], true);
    let said = sender.reads(root.as_str().unwrap()).await;
    assert!(said.iter().any(|message| message["kind"] == "overspent"), "{said:?}");

    let refused = worker.client.call("delegate_task", below(&root, "helper")).await;
    assert!(told(&refused).contains("no tokens left: the limit is 10, used are 11"), "{refused}");
    let refused = job.try_tool("work_update", json!({ "message": "more", "used": { "tokens": 1 } })).await;
    assert!(told(&refused).contains("(BUDGET_SPENT)"), "{refused}");
    assert_eq!(code(&helper.refused("task/update", update(1)).await), "BUDGET_SPENT");
    helper.ok("task/update", json!({ "taskId": child, "state": "working" })).await;
    let failed = json!({ "taskId": child, "state": "failed", "message": "no more", "used": { "tokens": 2 } });
    helper.ok("task/update", failed).await;
    job.tool("work_complete", json!({ "text": "as far as it went", "used": { "tokens": 3 } })).await;
    let shown = sender.get(root.as_str().unwrap()).await;
    assert_eq!(shown["budget"]["numbers"]["tokens"]["used"], 16, "{shown}");
    drop(hearing);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_is_none_is_refused_with_what_was_expected() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    let worker = stage.worker("worker", json!([])).await;
    for (budget, what) in [
        (json!({}), "at least one bound"),
        (json!({ "tasks": 10_001 }), "from 0 to 10000"),
        (json!({ "tasks": -1 }), "whole number"),
        (json!({ "numbers": { "tokens": 0.000_000_1 } }), "six digits"),
        (json!({ "money": 1 }), "tasks, depth, time_ms or numbers"),
    ] {
        let asked = json!({ "title": "dig", "instructions": "dig", "agent": "worker", "budget": budget });
        let said = planner.call("delegate_task", asked).await;
        assert!(told(&said).contains(what), "{said}");
    }
    let sender = Node::new(&stage, "planner");
    let ask = |budget: Value| json!({ "to": "worker", "message": "dig", "budget": budget });
    for wrong in [json!({}), json!({ "time": 0 }), json!({ "numbers": { "": 1 } }), json!({ "tasks": 1.5 })] {
        sender.refused("task/send", ask(wrong)).await;
    }
    // The same key with another budget is another task.
    let keyed = |tasks: u32| {
        let mut asked = ask(json!({ "tasks": tasks }));
        asked["messageId"] = json!("m1");
        asked
    };
    let task = sender.ok("task/send", keyed(1)).await["task"]["taskId"].clone();
    assert_eq!(code(&sender.refused("task/send", keyed(2)).await), "DUPLICATE_MESSAGE");
    // Only who works on it says what it has used.
    worker.next().await;
    let say = json!({ "taskId": task, "message": "well?", "used": { "tokens": 1 } });
    assert!(sender.refused("message/send", say).await["message"].as_str().unwrap().contains("used"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_call_of_a_skill_has_its_budget_beside_its_arguments() {
    let stage = Stage::in_memory().await;
    let host = stage.client("planner");
    let worker = stage.worker("worker", json!([skill(SKILL)])).await;
    let call = |budget: Value| {
        let call = host.request("tools/call", json!({ "name": SKILL, "arguments": {} }));
        call.meta("dev.handover/budget", budget).answer()
    };
    let wrong = call(json!({ "tasks": "none" })).await;
    assert!(wrong.message()["error"]["message"].as_str().unwrap().contains("budget.tasks"), "{wrong:?}");
    let begun = call(json!({ "tasks": 0 })).await.result();
    let job = worker.next().await;
    assert_eq!(begun["taskId"], job.id);
    let refused = worker.client.call("delegate_task", below(&begun["taskId"], "helper")).await;
    assert!(told(&refused).contains("no tasks left: the limit is 0, used are 0"), "{refused}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_of_macp_bounds_what_is_delegated_under_its_task_on_other_protocols() {
    let both = Both::open().await;
    let planner = both.macp("planner");
    let rules = r#"{"budget":{"tasks":1,"numbers":{"tokens":10}}}"#;
    let policy = macp::policy("policy.bounded", "macp.mode.task.v1", rules);
    planner.macp.clone().register_policy(policy).await.unwrap();
    let mut hearing = planner.signals().await;
    let start = macp::start().with(|start| start.policy_version = "policy.bounded".to_owned());
    planner.ok(envelope(macp::SESSION, start)).await;
    planner.ok(envelope(macp::SESSION, macp::request())).await;
    let mut assignee = both.macp("worker");
    assignee.ok(envelope(macp::SESSION, macp::accept())).await;
    // MACP has no word for it, the service beside it has.
    let report = |name: &str, count| ReportUseRequest {
        session_id: macp::SESSION.to_owned(),
        used: [(name.to_owned(), count)].into(),
        message_id: "use-1".to_owned(),
    };
    for duplicate in [false, true] {
        let receipt = assignee.handover.report_use(report("tokens", 2.5)).await.unwrap().into_inner();
        assert_eq!(receipt.duplicate, duplicate);
    }
    for wrong in [-1.0, f64::NAN, 1e300, 0.000_000_1] {
        assert!(assignee.handover.report_use(report("tokens", wrong)).await.is_err(), "{wrong}");
    }
    let worker = both.stage.client("worker");
    let child = worker.tool("delegate_task", below(&json!(macp::SESSION), "helper")).await["task_id"].clone();
    let refused = worker.call("delegate_task", below(&json!(macp::SESSION), "helper")).await;
    assert!(told(&refused).contains("no tasks left: the limit is 1, used are 1"), "{refused}");
    let helper = both.stage.client("helper");
    helper.tool("work_accept", json!({ "task_id": child })).await;
    let used = json!({ "task_id": child, "text": "done", "used": { "tokens": 10 } });
    helper.tool("work_complete", used).await;
    assert_eq!(hears(&mut hearing, "task.overspent").await, "tokens: 12.5 of 10");
    drop((planner, assignee, hearing));
    both.stop().await;
}
