//! Every page, on an empty server and on one where much has happened, and what agents write in them.

use std::sync::Arc;

use handover_desk::approvers::Rules;
use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_kernel::Face;
use serde_json::json;

use super::browser::Browser;
use super::grid::Node;
use super::others::stage::{Stage, skill, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_of_an_empty_server_says_what_belongs_there() {
    let stage = Stage::in_memory().await;
    let browser = Browser::signed_in(&stage, "planner").await;
    browser.ok("/").await.has("Nothing waits for planner").has("<title>Waiting for you · Handover</title>");
    browser.ok("/tasks").await.has("There are no tasks that planner may see");
    browser.ok("/tasks?q=x&state=working&face=mcp&age=day&agent=worker&late=true").await.has("No task fits");
    browser.ok("/agents").await.has("No agent is in the directory");
    browser.ok("/agents?q=digger").await.has("No agent fits");
    browser.ok("/health").await.has("store").has("works");
    browser.ok("/delegate").await.has("Delegate a task");
    browser.ok("/policies").await.has("policy.default").has("policy.grid");
    for (target, status) in [
        ("/tasks/none", 404),
        ("/tasks/none/events", 404),
        ("/tasks/none/replay", 404),
        ("/tasks?state=odd", 400),
        ("/tasks?after=odd", 400),
        ("/?after=odd", 400),
        ("/agents?after=odd", 400),
    ] {
        let page = browser.get(target).await;
        assert_eq!(page.status, status, "{target}: {}", page.text);
        page.has("role=\"alert\"");
        let link = page.text.split("class=\"code\" href=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(browser.get(link).await.status, 200, "{link} says more");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_shows_who_asked_whom_over_which_faces_and_what_happened() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let host = stage.client("planner");
    let asked = json!({ "title": "Q4 sales analysis", "instructions": "find the trend", "agent": "worker", "ttl_ms": 3_600_000 });
    let task = host.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned();
    let browser = Browser::signed_in(&stage, "planner").await;
    browser.ok("/tasks").await.has("Q4 sales analysis").has("requested").has("planner → worker").has("mcp");
    let job = worker.next().await;
    job.update(json!({ "message": "refunds are in a second table", "progress": 0.62 })).await;
    job.update(json!({ "message": "half the second table", "progress": 0.7 })).await;
    host.tool("task_steer", json!({ "task_id": task, "message": "focus on Q4" })).await;
    let page = browser.ok(&format!("/tasks/{task}")).await;
    page.has("working").has("70 %").has("refunds are in a second table").has("<polyline");
    page.has("stored, to be delivered at the next safe point").has("ends in 59 min").has("find the trend");
    job.checkpoint_now().await;
    let page = browser.ok(&format!("/tasks/{task}")).await;
    page.has("→ delivered, event ").has("<span class=\"badge\">mcp</span>");
    // The newest stands first.
    let place = |text: &str| page.text.find(text).unwrap();
    assert!(place("focus on Q4") < place("<q>refunds are in a second table"));
    assert!(place("<q>refunds are in a second table") < place("started a task with"));
    browser.ok(&format!("/tasks/{task}?show=said")).await.has("focus on Q4").lacks("<q>refunds are in");
    browser.ok(&format!("/tasks/{task}/events")).await.has("&#34;kind&#34;: &#34;steered&#34;");
    job.completes("up 12 %").await;
    browser.ok(&format!("/tasks/{task}")).await.has("✓").has("up 12 %").has("The task has ended");
    browser.ok("/tasks?state=completed&q=q4%20SALES").await.has("Q4 sales analysis");
    browser.ok("/tasks?state=failed").await.has("No task fits");
    browser.ok("/tasks?agent=helper").await.has("No task fits");
    browser.ok(&format!("/tasks?q={}", &task[..8])).await.has("Q4 sales analysis");
    browser.ok("/agents").await.has("dig").has("worker");
    // Who has no part in it sees nothing of it.
    let outsider = Browser::signed_in(&stage, "outsider").await;
    assert_eq!(outsider.get(&format!("/tasks/{task}")).await.status, 404);
    outsider.ok("/tasks").await.lacks("Q4 sales");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_pages_from_the_newest_and_stays_small() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    let task = planner.sends("worker", "talk").await;
    let long = "x".repeat(20_000);
    for number in 0..130 {
        worker.says(&task, format!("message {number} {long}")).await;
    }
    let browser = Browser::signed_in(&stage, "planner").await;
    let mut target = format!("/tasks/{task}");
    let (mut seen, mut pages) = (0, 0);
    loop {
        let page = browser.ok(&target).await;
        seen += page.text.matches("<q>message ").count();
        pages += 1;
        let Some((_, rest)) = page.text.split_once("rel=\"next\" href=\"") else { break };
        target = rest.split('"').next().unwrap().replace("&#38;", "&");
    }
    assert_eq!(seen, 130);
    assert!(pages >= 2, "{pages}");
    browser.ok(&format!("/tasks/{task}/events")).await;
    browser.ok(&format!("/tasks/{task}?before=99999999999999999999")).await;
    browser.ok(&format!("/tasks/{task}/replay?at=100")).await.has("event 100 of ").has("message 96 ");
    browser.ok(&format!("/tasks/{task}/replay")).await.has("message 129 ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_stay_small_whatever_agents_write() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (host, browser) = (stage.client("planner"), Browser::signed_in(&stage, "planner").await);
    let worst = "\u{202e}".repeat(6000);
    let mut tasks = Vec::new();
    for _ in 0..30 {
        let asked =
            json!({ "title": worst, "instructions": worst, "input": { "a": worst }, "agent": "worker" });
        tasks.push(host.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned());
    }
    for number in 0..30 {
        let job = worker.next().await;
        let choices: Vec<String> = (0..30).map(|choice| format!("{choice}{}", "<".repeat(100))).collect();
        let fields: serde_json::Map<String, serde_json::Value> = (0..10)
            .map(|field| {
                (
                    format!("field {field}"),
                    json!({ "type": "string", "enum": choices, "description": "&".repeat(300) }),
                )
            })
            .collect();
        let question =
            json!({ "message": "<".repeat(3000), "schema": { "type": "object", "properties": fields } });
        job.asks(json!({ "a": question, "b": question, "c": question })).await;
        if number == 0 {
            for _ in 0..120 {
                job.update(json!({ "message": worst })).await;
            }
        }
    }
    // The browser refuses a page of more than 1 MB.
    browser.ok("/").await.has("long questions").has("rel=\"next\"");
    browser.ok("/tasks").await;
    for task in [&tasks[0], &tasks[29]] {
        browser.ok(&format!("/tasks/{task}")).await;
        browser.ok(&format!("/tasks/{task}/events")).await;
        browser.ok(&format!("/tasks/{task}/replay")).await;
    }
    browser.ok("/bulk?act=cancel").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_agents_write_is_text_and_what_they_hide_is_spelled_out() {
    let stage = Stage::with(|set| {
        set.approvals = Rules::parse(r#"[{ delegate = ["worker"], by = ["lead"] }]"#).unwrap();
    })
    .await;
    let evil = "<script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \"'> \u{202e}txet\u{2066}\u{7}\u{0}";
    let worker = stage.worker("helper", json!([skill("dig")])).await;
    let host = stage.client("planner");
    let asked = |agent: &str| json!({ "title": evil, "instructions": evil, "input": { "a": evil }, "agent": agent, "queue": true });
    let held = host.tool("delegate_task", asked("worker")).await["task_id"].as_str().unwrap().to_owned();
    let task = host.tool("delegate_task", asked("helper")).await["task_id"].as_str().unwrap().to_owned();
    let job = worker.next().await;
    job.update(json!({ "message": evil, "progress": 0.5 })).await;
    let field = json!({ "type": "string", "title": "<u>", "description": "<s>" });
    let schema = json!({ "type": "object", "properties": { "<i>": field } });
    job.asks(json!({ "q": { "message": evil, "schema": schema } })).await;
    let (planner, lead) =
        (Browser::signed_in(&stage, "planner").await, Browser::signed_in(&stage, "lead").await);
    let mut shown = 0;
    for (browser, targets) in [
        (
            &planner,
            vec![
                "/".to_owned(),
                "/tasks".to_owned(),
                format!("/tasks/{task}"),
                format!("/tasks/{task}/events"),
                format!("/tasks/{task}/replay?at=2"),
            ],
        ),
        (&lead, vec!["/".to_owned(), format!("/tasks/{held}"), format!("/tasks/{held}/events")]),
    ] {
        for target in targets {
            let page = browser.ok(&target).await;
            for markup in [
                "<script>",
                "<img src=x",
                "<em>",
                "<i>",
                "<u>",
                "<s>",
                "\u{202e}",
                "\u{2066}",
                "\u{7}",
                "\u{0}",
            ] {
                assert!(!page.text.contains(markup), "{markup:?} in {target}");
            }
            page.lacks("href=\"javascript");
            shown += page.text.matches("[U+202E]txet[U+2066][U+0007]").count();
        }
    }
    assert!(shown >= 8, "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_frame_of_a_replay_is_the_live_state_and_the_others_are_what_was() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let host = stage.client("planner");
    let task = host.begin("dig", json!({})).await;
    let job = worker.next().await;
    job.update(json!({ "message": "on it", "progress": 0.5 })).await;
    host.tool("task_steer", json!({ "task_id": task, "message": "left" })).await;
    job.checkpoint_now().await;
    job.completes("a hole").await;
    let (caller, _) = stage.desk.sign_in(Some("planner"), Face::Console, None).await.unwrap();
    let live = stage.desk.session(&caller, &task).await.unwrap();
    let (last, _) = stage.desk.as_of(&caller, &task, u64::MAX).await.unwrap();
    assert_eq!(last, *live);
    let browser = Browser::signed_in(&stage, "planner").await;
    let mut standings = Vec::new();
    for at in 1..=live.head.0 {
        let (then, event) = stage.desk.as_of(&caller, &task, at).await.unwrap();
        assert_eq!((then.head.0, event.seq.0), (at, at));
        standings.push(then.standing().name());
        let page = browser.ok(&format!("/tasks/{task}/replay?at={at}")).await;
        page.has(&format!("event {at} of {}", live.head)).has("MACP").has("MCP").has("Grid");
        page.has(&format!("&#34;standing&#34;: &#34;{}&#34;", then.standing().name()));
    }
    standings.dedup();
    assert_eq!(standings.first(), Some(&"pending"));
    assert_eq!(standings.last(), Some(&"resolved_positive"));
    browser.ok(&format!("/tasks/{task}/replay")).await.has("SESSION_STATE_RESOLVED").has("✓");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_everything_of_its_tenant_and_may_do_nothing() {
    let entry = |token: &str, rest: &str| format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token));
    let file = entry("planner", "agent = \"planner\"")
        + &entry("worker", "agent = \"worker\"")
        + &entry("ops", "agent = \"ops\"\nroles = [\"observer\"]")
        + &entry("far", "agent = \"far\"\ntenant = \"elsewhere\"\nroles = [\"observer\"]");
    let tokens = Tokens::parse(&file).unwrap();
    let stage = Stage::with(|set| set.identity = Identity::Tokens(Arc::new(tokens))).await;
    let task = Node::new(&stage, "planner").sends("worker", "dig").await;
    let (ops, far) = (Browser::signed_in(&stage, "ops").await, Browser::signed_in(&stage, "far").await);
    ops.ok("/tasks").await.has("dig").has("(observer)");
    let page = ops.ok(&format!("/tasks/{task}")).await;
    page.has("disabled aria-describedby=\"why-steer\"").has("ops may read this task, and has no part in it");
    let before = stage.written();
    for (act, fields) in [
        ("steer", &[("text", "left")][..]),
        ("say", &[("text", "left")]),
        ("pause", &[]),
        ("resume", &[]),
        ("cancel", &[("sure", "true")]),
        ("commit", &[("do", "complete")]),
        ("decide", &[("do", "approve"), ("proposal", "1")]),
    ] {
        let page = ops.post(&format!("/tasks/{task}/{act}"), fields).await;
        assert_eq!(page.status, 403, "{act}: {}", page.text);
        page.has("role=\"alert\"").has("has no part in it");
        assert_eq!(far.post(&format!("/tasks/{task}/{act}"), fields).await.status, 404, "{act}");
    }
    assert_eq!(stage.written(), before, "nothing left a trace");
    far.ok("/tasks").await.lacks("dig");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_workers_and_missed_check_ins_wait_for_the_requester() {
    let stage = Stage::in_memory().await;
    let (host, browser) = (stage.client("planner"), Browser::signed_in(&stage, "planner").await);
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let asked = json!({ "title": "crawl", "instructions": "all", "agent": "worker", "silent_after_ms": 50 });
    host.tool("delegate_task", asked).await;
    worker.next().await;
    until(async || browser.ok("/").await.text.contains("worker has been silent for")).await;
    browser.ok("/tasks").await.has("◌");
    let planner = Node::new(&stage, "planner");
    let sent = planner.ok("task/send", json!({ "to": "helper", "message": "dig", "checkIn": 0.05 })).await;
    assert!(sent["task"]["taskId"].is_string());
    until(async || browser.ok("/").await.text.contains("has not said that it received")).await;
    browser.ok("/").await.has("(2) Waiting for you").has("check-in").has("silent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_and_the_numbers_of_the_server_are_for_administrators() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let entry = |token: &str, rest: &str| format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token));
    let file = entry("planner", "agent = \"planner\"\nlimits = { streams = 8, messages_per_minute = 1200 }")
        + &entry("worker", "agent = \"worker\"")
        + &entry("root", "agent = \"root\"\nroles = [\"admin\"]")
        + &entry("far", "agent = \"far\"\ntenant = \"elsewhere\"\nroles = [\"admin\"]");
    let tokens = Tokens::parse(&file).unwrap();
    let stage = Stage::with(|set| {
        set.identity = Identity::Tokens(Arc::new(tokens));
        set.audit = Some((path.clone(), 1_000_000));
    })
    .await;
    Node::new(&stage, "planner").sends("worker", "dig").await;
    let planner = Browser::signed_in(&stage, "planner").await;
    let page = planner.get("/audit").await;
    assert_eq!(page.status, 403);
    page.has("The audit log is for administrators, and planner is none.").lacks("task delegated");
    planner.ok("/health").await.has("administrators see them here").lacks("<polyline");
    planner.ok("/limits").await.has("1,200 a minute").has("limits.streams_per_agent_max");
    let (root, far) = (Browser::signed_in(&stage, "root").await, Browser::signed_in(&stage, "far").await);
    // Lines gather for a moment before they are written.
    until(async || root.ok("/audit").await.text.contains("NOT_ADMINISTRATOR")).await;
    root.ok("/audit").await.has("task delegated").has("worker").has("NOT_ADMINISTRATOR").has("signed in");
    root.ok("/audit?event=task_delegated").await.has("worker").lacks("NOT_ADMINISTRATOR");
    root.ok("/audit?agent=nobody").await.has("No line of the log fits");
    assert_eq!(root.get("/audit?before=odd").await.status, 400);
    far.ok("/audit").await.lacks("worker").has("signed in");
    root.ok("/health").await.has("<polyline").has("Commands accepted").has("As a table");
}
