//! Every page, on an empty server and on one where much has happened, and what agents write in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handover_desk::approvers::Rules;
use handover_desk::delegate::Responsibility;
use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_kernel::{AgentId, Face, Text};
use handover_server::config::Config;
use handover_server::face::console;
use handover_server::face::macp::proto::v1::GetSessionRequest;
use handover_server::http::{Checks, Probe};
use serde_json::{Value, json};

use super::browser::Browser;
use super::grid::Node;
use super::others::both::Both;
use super::others::client::interaction;
use super::others::stage::{Client, Stage, skill, until};

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
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_shows_who_asked_whom_over_which_faces_and_what_happened() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let host = stage.client("planner");
    let asked = json!({ "title": "Q4 sales analysis", "instructions": "find the trend", "agent": "worker", "ttl_ms": 3_600_000 });
    let task = host.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned();
    let browser = Browser::signed_in(&stage, "planner").await;
    browser
        .ok("/tasks")
        .await
        .has("Q4 sales analysis")
        .has("requested")
        .has("<bdi>planner</bdi> → <bdi>worker</bdi>")
        .has("mcp");
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
    // Among what was said, and on a page that ends before the delivery, the steer says the same.
    let note = page.text.split("→ delivered, event ").nth(1).unwrap().split(',').next().unwrap();
    browser.ok(&format!("/tasks/{task}?show=said")).await.has(&format!("→ delivered, event {note}, <time"));
    let before = browser.ok(&format!("/tasks/{task}?before={note}")).await;
    before.has("focus on Q4").has(&format!("→ delivered, event {note}, <time"));
    before.lacks(&format!("id=\"e{note}\""));
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
    stage.stop().await;
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
    stage.stop().await;
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
            for step in 0..120 {
                job.update(json!({ "message": worst, "progress": f64::from(step) / 120.0 })).await;
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
    stage.stop().await;
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
    stage.stop().await;
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
    stage.stop().await;
}

/// What the replay shows at its last event, as each face had it.
async fn last_frame(browser: &Browser, task: &str) -> BTreeMap<String, Value> {
    let page = browser.ok(&format!("/tasks/{task}/replay")).await;
    let plain = |text: &str| {
        let text =
            text.replace("&#34;", "\"").replace("&#39;", "'").replace("&#60;", "<").replace("&#62;", ">");
        text.replace("&#38;", "&")
    };
    let views = page.text.split("<section aria-label=\"As ").skip(1).map(|view| {
        let (name, rest) = view.split_once(" had it").unwrap();
        let text = rest.split("<pre tabindex=\"0\">").nth(1).unwrap().split("</pre>").next().unwrap();
        (name.to_owned(), serde_json::from_str(&plain(text)).unwrap())
    });
    views.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_frame_shows_what_each_protocol_answers_now() {
    let both = Both::open().await;
    let worker = both.stage.worker("worker", json!([skill("dig")])).await;
    let (host, node) = (both.stage.client("planner"), Node::new(&both.stage, "planner"));
    let browser = Browser::signed_in(&both.stage, "planner").await;
    let task = host.begin("dig", json!({ "deep": 3 })).await;
    let mut seen = BTreeSet::new();
    let mut compare = async || {
        let frame = last_frame(&browser, &task).await;
        let mut mcp = host.declaring(interaction()).get(&task).await;
        // What an answer of MCP has around the task.
        for around in ["resultType", "_meta"] {
            mcp.as_object_mut().unwrap().remove(around);
        }
        let mut shown = frame["MCP"].clone();
        for around in ["resultType", "_meta"] {
            shown.as_object_mut().unwrap().remove(around);
        }
        assert_eq!(shown, mcp);
        assert_eq!(frame["Grid"], node.get(&task).await);
        let request = GetSessionRequest { session_id: task.clone() };
        let live =
            both.macp("planner").macp.get_session(request).await.unwrap().into_inner().metadata.unwrap();
        let macp = json!({
            "session_id": live.session_id,
            "mode": live.mode,
            "state": live.state().as_str_name(),
            "initiator": live.initiator,
            "participants": live.participants,
            "started_at_unix_ms": live.started_at_unix_ms,
            "expires_at_unix_ms": live.expires_at_unix_ms,
            "policy_version": live.policy_version,
            "configuration_version": live.configuration_version,
        });
        let mut shown = frame["MACP"].clone();
        shown.as_object_mut().unwrap().remove("last_ordinal");
        assert_eq!(shown, macp);
        seen.insert(format!("{} {} {}", macp["state"], mcp["status"], frame["Grid"]["state"]));
    };
    compare().await;
    let job = worker.next().await;
    job.update(json!({ "message": "on it", "progress": 0.5 })).await;
    compare().await;
    job.asks(json!({ "q": { "message": "Where?" } })).await;
    compare().await;
    host.tool("task_answer", json!({ "task_id": task, "answers": { "q": { "action": "accept", "content": { "answer": "here" } } } })).await;
    job.checkpoint_now().await;
    browser.does(&format!("/tasks/{task}/pause"), &[]).await;
    job.checkpoint_now().await;
    compare().await;
    browser.does(&format!("/tasks/{task}/resume"), &[]).await;
    job.completes("a hole").await;
    compare().await;
    assert!(seen.len() >= 4, "{seen:?}");
    drop(worker);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_shows_what_is_under_each_task_and_a_circle_is_marked() {
    let stage = Stage::in_memory().await;
    let [planner, worker, helper] = ["planner", "worker", "helper"].map(|name| stage.client(name));
    let in_hand = async |from: &Client,
                         to: &Client,
                         agent: &str,
                         title: &str,
                         under: Option<&str>|
           -> String {
        let work = json!({ "title": title, "instructions": "i", "agent": agent, "queue": true, "parent_task_id": under });
        let id = from.tool("delegate_task", work).await["task_id"].as_str().unwrap().to_owned();
        to.tool("work_accept", json!({ "task_id": id })).await;
        id
    };
    let root = in_hand(&planner, &worker, "worker", "root", None).await;
    let left = in_hand(&worker, &helper, "helper", "left", Some(&root)).await;
    let right = in_hand(&worker, &helper, "helper", "right", Some(&root)).await;
    in_hand(&helper, &planner, "planner", "under right", Some(&right)).await;
    in_hand(&helper, &planner, "planner", "under left", Some(&left)).await;
    in_hand(&helper, &planner, "planner", "also under left", Some(&left)).await;
    let browser = Browser::signed_in(&stage, "planner").await;
    let page = browser.ok(&format!("/tasks/{root}")).await;
    let tree = page.text.split("<ul class=\"tree\">").nth(1).unwrap().split("</ul>").next().unwrap();
    let rows: Vec<(&str, &str, bool)> = tree
        .split("<li class=\"depth-")
        .skip(1)
        .map(|row| {
            // What the planner has no part in is no link.
            let title = row.split("</span> ").nth(2).unwrap();
            (&row[..1], title.split(['>', '<']).nth(2).unwrap(), row.contains("<a href="))
        })
        .collect();
    let expected = [
        ("0", "root", true),
        ("1", "left", false),
        ("2", "under left", true),
        ("2", "also under left", true),
        ("1", "right", false),
        ("2", "under right", true),
    ];
    assert_eq!(rows, expected);
    page.has("<bdi>helper</bdi></").lacks("in a circle");
    // Who waits for whom is told of the whole tree, and a wait is a link where its task is one.
    page.has("<bdi>helper</bdi> → <bdi>planner</bdi>")
        .has(&format!("<span class=\"mono\">{}</span>", &left[..8]));
    page.lacks(&format!("href=\"/tasks/{left}\""));
    let own = Browser::signed_in(&stage, "helper").await.ok(&format!("/tasks/{left}")).await;
    own.lacks(&format!("part of <a class=\"mono\" href=\"/tasks/{root}\""));

    // The helper delegates a part of its part back to the worker, who takes it while it waits for the helper.
    in_hand(&helper, &worker, "worker", "back", Some(&left)).await;
    until(async || browser.ok(&format!("/tasks/{root}")).await.text.contains("⟲ in a circle")).await;
    browser
        .ok(&format!("/tasks/{root}"))
        .await
        .has("these agents wait for each other: helper → worker → helper");
    let page = Browser::signed_in(&stage, "worker").await.ok(&format!("/tasks/{left}")).await;
    let waits = page.text.split("<h2>Waits</h2>").nth(1).unwrap();
    let edges: Vec<&str> =
        waits.split("<li>").skip(1).map(|edge| edge.split("</li>").next().unwrap()).collect();
    let marked = edges.iter().filter(|edge| edge.contains("in a circle")).count();
    // It waits for the planner as well, who is part of no circle.
    assert!(marked >= 1 && edges.len() > marked, "{edges:?}");
    assert!(
        edges
            .iter()
            .any(|edge| edge.starts_with("<bdi>helper</bdi> → <bdi>worker</bdi>")
                && edge.contains("in a circle")),
        "{edges:?}"
    );
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_longest_stands_first_whatever_happened_since() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (host, browser) = (stage.client("planner"), Browser::signed_in(&stage, "planner").await);
    let mut jobs = Vec::new();
    for title in ["oldest task", "middle task", "newest task"] {
        let asked = json!({ "title": title, "instructions": "dig", "agent": "worker" });
        host.tool("delegate_task", asked).await;
        jobs.push(worker.next().await);
    }
    // The newest asks first, and much happens in it afterwards; the middle one delivers; the oldest asks last.
    jobs[2].asks(json!({ "q": { "message": "Where?" } })).await;
    jobs[1].fails("no spade").await;
    jobs[0].asks(json!({ "q": { "message": "How?" } })).await;
    for step in 0..30 {
        jobs[2].update(json!({ "message": format!("step {step}") })).await;
    }
    jobs[2].asks(json!({ "also": { "message": "And when?" } })).await;
    let page = browser.ok("/").await;
    let place =
        |title: &str| page.text.find(&format!("\">{title}</a>")).unwrap_or_else(|| panic!("no {title}"));
    assert!(place("newest task") < place("oldest task"), "by when it began to wait");
    if page.text.contains("middle task") {
        assert!(place("newest task") < place("middle task") && place("middle task") < place("oldest task"));
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_99_things_are_not_counted() {
    let stage = Stage::in_memory().await;
    let (planner, _) = stage.desk.sign_in(Some("planner"), Face::Console, None).await.unwrap();
    let ops = Browser::signed_in(&stage, "ops").await;
    for number in 0..100 {
        let (to, scope) = (AgentId::from("ops"), Text::from(format!("shift {number}")));
        let offered = Responsibility { to, scope, reason: Text::default(), context: None, ttl_ms: None };
        stage.desk.offer(&planner, None, "stage.1", offered).await.unwrap();
        if number == 98 {
            ops.ok("/limits").await.has("<title>(99) Limits");
        }
    }
    ops.ok("/limits").await.has("<title>(99+) Limits").has("data-part>99+</span>");
    assert_eq!(ops.get("/count").await.text, r#"{"waiting":"99+"}"#);
    assert_eq!(Browser::signed_in(&stage, "planner").await.get("/count").await.text, r#"{"waiting":""}"#);
    assert_eq!(Browser::new(&stage).get("/count").await.status, 401);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_health_share_one_check_and_wait_for_none_that_hangs() {
    let stage = Stage::in_memory().await;
    let browser = Browser::signed_in(&stage, "planner").await;
    let before = stage.written();
    let found = Arc::new(AtomicUsize::new(0));
    let looked = Arc::clone(&found);
    let check = move || {
        looked.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let hangs = || {
        std::thread::park_timeout(Duration::from_secs(5));
        Ok(())
    };
    let checks = Checks::new(vec![Probe::new("store", check), Probe::new("engine", hangs)]);
    let settings = console::Settings::new(&Config::default());
    let router = console::router(console::Console::new(stage.desk.clone(), settings, &stage.metrics, checks));
    let ask = async || {
        let host = format!("127.0.0.1:{}", stage.address.port());
        let request = axum::http::Request::get("/health").header("host", host);
        let request = request.header("cookie", browser.cookie.as_ref().unwrap());
        let request = request.body(axum::body::Body::empty()).unwrap();
        let answer = tower_service::Service::call(&mut router.clone(), request).await.unwrap();
        let body = axum::body::to_bytes(answer.into_body(), 1_000_000).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    let (one, other) = tokio::join!(ask(), ask());
    for page in [one, other] {
        assert!(page.contains("store</td><td><span class=\"state completed\">"), "{page}");
        assert!(
            page.contains("engine</td><td><span class=\"state failed\">"),
            "it does not wait for ever: {page}"
        );
    }
    assert_eq!(found.load(Ordering::Relaxed), 1, "one look for both");
    assert_eq!(stage.written(), before);
    stage.stop().await;
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
    page.has("disabled aria-describedby=\"why-nothing\"")
        .has("ops may read this task, and has no part in it");
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
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_observer_forges_changes_nothing() {
    let entry = |token: &str, rest: &str| {
        let agent = format!("agent = \"{token}\"");
        format!("[[token]]\nsha256 = \"{}\"\n{agent}\n{rest}\n", hash_text(token))
    };
    let roles = [("planner", ""), ("worker", ""), ("helper", ""), ("ops", "roles = [\"observer\"]")];
    let file: String = roles.iter().map(|(token, rest)| entry(token, rest)).collect();
    let tokens = Tokens::parse(&file).unwrap();
    let stage = Stage::with(|set| set.identity = Identity::Tokens(Arc::new(tokens))).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let asked = json!({ "title": "dig", "instructions": "i", "agents": ["worker", "helper"] });
    let task = stage.client("planner").tool("delegate_task", asked).await;
    let task = task["task_id"].as_str().unwrap();
    worker.next().await.asks(json!({ "q": { "message": "Where?" } })).await;
    let owner = Browser::signed_in(&stage, "worker").await;
    owner.does(&format!("/tasks/{task}/hand-on"), &[("to", "helper")]).await;
    let page = owner.ok(&format!("/tasks/{task}")).await;
    let handoff = page.text.split("Offered to").nth(1).unwrap().split("href=\"/tasks/").nth(1).unwrap();
    let handoff = handoff.split(['"', '#']).next().unwrap();
    let ops = Browser::signed_in(&stage, "ops").await;
    let theirs = owner.ok("/sign-ins").await.hidden("name");
    let before = stage.written();
    for (target, fields, status) in [
        (format!("/tasks/{task}/answer"), &[("question", "q"), ("answer", "here")][..], 403),
        (format!("/tasks/{task}/hand-on"), &[("to", "helper")], 400),
        (format!("/tasks/{handoff}/offer"), &[("do", "accept")], 403),
        (format!("/tasks/{handoff}/cancel"), &[("sure", "true")], 403),
        (format!("/tasks/{handoff}/commit"), &[("do", "complete")], 403),
    ] {
        let page = ops.post(&target, fields).await;
        assert_eq!(page.status, status, "{target}: {}", page.text);
        page.has("role=\"alert\"");
    }
    for act in ["pause", "resume", "cancel"] {
        let page = ops.post("/bulk", &[("act", act), ("sure", "true"), ("id", task)]).await;
        page.has("0 of 1").has("has no part in it");
    }
    let page = ops.post("/sign-ins/end", &[("name", &theirs)]).await;
    assert_eq!(page.status, 422);
    page.has("there is no such sign-in");
    assert_eq!(stage.written(), before, "nothing left a trace");
    owner.ok("/sign-ins").await.has("this one");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_listed_by_agent_face_age_and_lateness() {
    let stage = Stage::in_memory().await;
    let (host, browser) = (stage.client("planner"), Browser::signed_in(&stage, "planner").await);
    let soon = json!({ "title": "soon over", "instructions": "i", "agent": "worker", "queue": true, "ttl_ms": 50_000 });
    let soon = host.tool("delegate_task", soon).await["task_id"].as_str().unwrap().to_owned();
    Node::new(&stage, "planner").sends("helper", "a talk").await;
    for (filter, found, other) in [
        ("late=true", "soon over", "a talk"),
        ("agent=worker", "soon over", "a talk"),
        ("agent=helper", "a talk", "soon over"),
        ("q=WORK", "soon over", "a talk"),
        ("face=mcp", "soon over", "a talk"),
        ("face=grid", "a talk", "soon over"),
        ("face=mcp&age=hour&state=requested&late=true&agent=planner", "soon over", "a talk"),
    ] {
        let page = browser.ok(&format!("/tasks?{filter}")).await;
        page.has(&format!(">{found}</a>")).lacks(&format!(">{other}</a>"));
    }
    browser.ok("/tasks?age=hour").await.has(">soon over</a>").has(">a talk</a>").has("(late)");
    browser.does(&format!("/tasks/{soon}/pause"), &[]).await.lacks("class=\"late\"");
    browser.ok("/tasks?late=true").await.has("No task fits");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_stands_in_the_head_and_what_has_ended_in_the_tree() {
    let stage = Stage::in_memory().await;
    let [planner, worker] = ["planner", "worker"].map(|name| stage.client(name));
    let asked = json!({ "title": "root", "instructions": "i", "agent": "worker", "queue": true, "budget": { "tasks": 10, "numbers": { "tokens": 200_000 } } });
    let root = planner.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned();
    worker.tool("work_accept", json!({ "task_id": root })).await;
    let part = json!({ "title": "part", "instructions": "i", "agent": "helper", "queue": true, "parent_task_id": root });
    let part = worker.tool("delegate_task", part).await["task_id"].as_str().unwrap().to_owned();
    worker.tool("task_cancel", json!({ "task_id": part })).await;
    let page = Browser::signed_in(&stage, "worker").await.ok(&format!("/tasks/{root}")).await;
    page.has("<span>budget 1 of 10 tasks, ").has("0 of 200,000 tokens");
    let tree = page.text.split("<ul class=\"tree\">").nth(1).unwrap().split("</ul>").next().unwrap();
    let ended = tree.split("<li").find(|row| row.contains(">part</a>")).unwrap();
    assert!(ended.contains("state cancelled"), "{ended}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_workers_and_missed_check_ins_wait_for_the_requester() {
    let stage = Stage::in_memory().await;
    let (host, browser) = (stage.client("planner"), Browser::signed_in(&stage, "planner").await);
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let asked = json!({ "title": "crawl", "instructions": "all", "agent": "worker", "silent_after_ms": 50 });
    host.tool("delegate_task", asked).await;
    worker.next().await;
    until(async || browser.ok("/").await.text.contains("<bdi>worker</bdi> has been silent for")).await;
    browser.ok("/").await.has("silent for <span data-age>");
    browser.ok("/tasks").await.has("◌");
    let planner = Node::new(&stage, "planner");
    let sent = planner.ok("task/send", json!({ "to": "helper", "message": "dig", "checkIn": 0.05 })).await;
    assert!(sent["task"]["taskId"].is_string());
    until(async || browser.ok("/").await.text.contains("has not said that it received")).await;
    browser.ok("/").await.has("(2) Waiting for you").has("check-in").has("silent");
    stage.stop().await;
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
    stage.stop().await;
}
