//! What the forms do, and what they say when they do not.

use handover_desk::approvers::Rules;
use handover_desk::caller::Caller;
use handover_desk::delegate::Responsibility;
use handover_kernel::command::{Act, HandoffAct, OfferContext};
use handover_kernel::{AgentId, Face, HandoffId, Text};
use serde_json::{Value, json};

use super::browser::Browser;
use super::grid::Node;
use super::others::stage::{Client, Stage, skill, skill_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_delegated_steered_paused_resumed_reviewed_and_completed() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let browser = Browser::signed_in(&stage, "ops").await;
    let page = browser.ok("/delegate?agent=worker").await;
    page.has("value=\"worker\"").has("name=\"ttl\" type=\"number\" min=\"1\" max=\"1440\"");
    let key = page.hidden("key");
    let long = [("agent", "worker"), ("title", "Dig"), ("ttl", "1441")];
    browser.post("/delegate", &long).await.has("ttl: expected minutes, 1 to 1440, found &#34;1441&#34;");
    let fields = [
        ("agent", "worker"),
        ("title", "Dig"),
        ("instructions", "a hole\r\nby noon"),
        ("ttl", "60"),
        ("key", key.as_str()),
    ];
    let sent = browser.post("/delegate", &fields).await;
    let again = browser.post("/delegate", &fields).await;
    assert_eq!(sent.header("location"), again.header("location"), "sent twice it is one task");
    let page = browser.ok(sent.header("location")).await;
    page.has("The task was handed out.").has("a hole\nby noon").has("console");
    let task = sent.header("location").split(['/', '?']).nth(2).unwrap().to_owned();
    let at = |act: &str| format!("/tasks/{task}/{act}");

    let job = worker.next().await;
    assert_eq!(job.id, task);
    let key = browser.ok(&format!("/tasks/{task}")).await.hidden("key");
    for _ in 0..2 {
        browser
            .does(&at("steer"), &[("text", "keep left"), ("key", &key)])
            .await
            .has("The steer was stored")
            .has("keep left");
    }
    let heard = job.checkpoint_now().await.to_string();
    assert_eq!(heard.matches("keep left").count(), 1, "{heard}");
    browser.does(&at("pause"), &[]).await.has("‖").has("Resume");
    let page = browser.post(&at("commit"), &[("do", "complete")]).await;
    assert_eq!(page.status, 409, "{}", page.text);
    page.has("role=\"alert\"");
    browser.does(&at("resume"), &[]).await.has("The task goes on.").has("working");
    let page = browser.post(&at("steer"), &[("text", "  ")]).await;
    assert_eq!(page.status, 422);
    page.has("expected some text");
    job.completes("a hole").await;
    browser.ok("/").await.has("(1) Waiting for you").has("review").has("worker delivered");
    let page =
        browser.does(&at("commit"), &[("do", "complete"), ("back", "/"), ("reason", "well done")]).await;
    page.has("The outcome was bound.").has("Nothing waits for ops");
    browser.ok(&format!("/tasks/{task}")).await.has("completed").has("well done");
    let page = browser.post(&at("steer"), &[("text", "too late")]).await;
    assert_eq!(page.status, 409, "{}", page.text);
    assert_eq!(browser.post(&at("juggle"), &[]).await.status, 422);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skill_is_called_with_a_form_of_its_schema() {
    let stage = Stage::in_memory().await;
    let schema = json!({ "type": "object", "properties": { "depth": { "type": "integer", "minimum": 1 }, "where": { "type": "string", "enum": ["here", "there"] } }, "required": ["depth"] });
    let worker = stage.worker("worker", json!([skill_with("dig", json!({ "inputSchema": schema }))])).await;
    let browser = Browser::signed_in(&stage, "ops").await;
    let page = browser.ok("/delegate?agent=worker&skill=dig").await;
    page.has("Call dig of worker")
        .has("name=\"f.depth\" type=\"number\"")
        .has("<option value=\"1\">there</option>");
    let call = |depth| {
        [("agent", "worker"), ("skill", "dig"), ("title", "Dig"), ("f.depth", depth), ("f.where", "1")]
    };
    let page = browser.post("/delegate", &call("0")).await;
    assert_eq!(page.status, 400, "{}", page.text);
    page.has("the skill&#39;s input schema").has("value=\"Dig\"");
    let page = browser.post("/delegate", &call("deep")).await;
    page.has("expected a whole number");
    browser.does("/delegate", &call("3")).await.has("skill dig");
    assert_eq!(worker.next().await.arguments(), &json!({ "depth": 3, "where": "there" }));
    let page = browser.post("/delegate", &[("agent", "worker"), ("skill", "fly"), ("title", "x")]).await;
    page.has("expected a skill of worker");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_answered_with_forms_of_their_schemas() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let browser = Browser::signed_in(&stage, "planner").await;
    let task = stage.client("planner").begin("dig", json!({})).await;
    let job = worker.next().await;
    let schema = json!({
        "type": "object",
        "properties": {
            "refunds": { "type": "boolean", "title": "Include refunds?" },
            "many": { "type": "integer", "maximum": 9 },
        },
        "required": ["refunds"],
    });
    job.asks(json!({ "q1": { "message": "What about refunds?", "schema": schema } })).await;
    let page = browser.ok("/").await;
    page.has("(1) Waiting for you").has("What about refunds?").has("Include refunds?").has("name=\"f.many\"");
    let target = format!("/tasks/{task}/answer");
    let answer = async |many: &str| {
        let fields =
            [("question", "q1"), ("f.refunds", "true"), ("f.many", many), ("do", "answer"), ("back", "/")];
        browser.post(&target, &fields).await
    };
    let page = answer("12").await;
    assert_eq!(page.status, 400, "{}", page.text);
    page.has("the answer to question q1").has("What about refunds?");
    assert_eq!(answer("7").await.status, 303);
    browser.ok("/").await.has("Nothing waits for planner");
    let page = answer("7").await;
    assert_eq!(page.status, 422);
    page.has("the question is not open any more");
    let told = job.checkpoint_now().await.to_string();
    assert!(told.contains(r#"{"many":7,"refunds":true}"#), "{told}");

    // Permission is given or refused, and a question in words answered in words.
    job.asks(json!({ "q2": { "message": "May I?", "permission": true }, "q3": { "message": "Where?" } }))
        .await;
    browser.ok(&format!("/tasks/{task}")).await.has("May I?").has("Allow").has("for permission");
    browser.does(&target, &[("question", "q2"), ("do", "refuse")]).await.has("The answer was stored.");
    let page = browser.post(&target, &[("question", "q3"), ("answer", " ")]).await;
    assert_eq!(page.status, 422);
    browser.does(&target, &[("question", "q3"), ("answer", "over there")]).await.has("over there");
    let told = job.checkpoint_now().await.to_string();
    assert!(told.contains("decline") && told.contains("over there"), "{told}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals_are_given_changed_sent_back_and_refused() {
    let stage = Stage::with(|set| {
        set.approvals = Rules::parse(r#"[{ delegate = ["worker"], by = ["lead"] }]"#).unwrap();
    })
    .await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let host = stage.client("planner");
    let lead = Browser::signed_in(&stage, "lead").await;
    let delegate = async |title: &str| -> String {
        let asked = json!({ "title": title, "instructions": "dig a hole", "input": { "deep": 1 }, "agent": "worker" });
        host.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned()
    };
    let first = delegate("first").await;
    let page = lead.ok("/").await;
    page.has("approval").has("<bdi>planner</bdi> proposed this request").has("dig a hole");
    let proposal = page.hidden("proposal");
    let decide = async |task: &str, more: &[(&str, &str)]| {
        let fields: Vec<(&str, &str)> = [("proposal", proposal.as_str()), ("back", "/")]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        lead.post(&format!("/tasks/{task}/decide"), &fields).await
    };
    // The requester's own form is of no use.
    let planner = Browser::signed_in(&stage, "planner").await;
    let page =
        planner.post(&format!("/tasks/{first}/decide"), &[("proposal", &proposal), ("do", "approve")]).await;
    assert_eq!(page.status, 403, "{}", page.text);
    page.has("NOT_APPROVER");
    assert_eq!(decide(&first, &[("do", "perhaps")]).await.status, 422);
    assert_eq!(decide(&first, &[("do", "reject")]).await.status, 400, "a no needs a reason");
    assert_eq!(decide(&first, &[("do", "approve")]).await.status, 303);
    assert_eq!(worker.next().await.id, first);
    // Of how it was before, the worker is told nothing.
    let own = Browser::signed_in(&stage, "worker").await;
    own.ok(&format!("/tasks/{first}")).await.has("requested of worker").lacks("proposed");
    own.ok(&format!("/tasks/{first}/events")).await.lacks("proposed").lacks("decided");
    for at in 1..=3 {
        let page = own.get(&format!("/tasks/{first}/replay?at={at}")).await;
        assert_eq!(page.status, 403, "event {at}: {}", page.text);
    }
    own.ok(&format!("/tasks/{first}/replay")).await.has("working");
    assert_eq!(decide(&first, &[("do", "approve")]).await.status, 400, "it is decided");

    let second = delegate("second").await;
    let change = [
        ("do", "change"),
        ("title", "second"),
        ("instructions", "dig a small hole"),
        ("input", "{\r\n  \"deep\": 1\r\n}"),
    ];
    assert_eq!(decide(&second, &change).await.status, 303);
    let job = worker.next().await;
    assert_eq!(job.id, second);
    let (caller, _) = stage.desk.sign_in(Some("lead"), handover_kernel::Face::Console, None).await.unwrap();
    let history = stage.desk.history(&caller, &second, 0, 100).await.unwrap();
    let entry = |event: &handover_kernel::Event| handover_desk::timeline::entry(&history.session, event);
    let decided: Vec<Value> =
        history.events.iter().map(|event| entry(event)).filter(|entry| entry["kind"] == "decided").collect();
    assert_eq!(decided.len(), 1);
    assert_eq!(decided[0]["detail"]["changes"], json!({ "instructions": "dig a small hole" }));
    assert_eq!(decided[0]["face"], "console");

    let third = delegate("third").await;
    assert_eq!(decide(&third, &[("do", "ask"), ("words", "smaller")]).await.status, 303);
    planner.ok("/").await.has("sent back").has("lead asked for changes of the request: smaller");
    let fourth = delegate("fourth").await;
    assert_eq!(decide(&fourth, &[("do", "reject"), ("words", "no holes")]).await.status, 303);
    planner.ok(&format!("/tasks/{fourth}")).await.has("no holes");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_cancelled_only_by_who_is_sure() {
    let stage = Stage::in_memory().await;
    let (planner, browser) = (Node::new(&stage, "planner"), Browser::signed_in(&stage, "planner").await);
    let task = planner.sends("worker", "dig").await;
    let page = browser.post(&format!("/tasks/{task}/cancel"), &[]).await;
    assert_eq!(page.status, 422);
    page.has("tick the box first");
    assert_eq!(planner.state(&task).await, "submitted");
    let cancelled = [("sure", "true"), ("reason", "no holes")];
    browser
        .does(&format!("/tasks/{task}/cancel"), &cancelled)
        .await
        .has("The task was cancelled.")
        .has("no holes");
    assert_eq!(planner.state(&task).await, "canceled");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_are_cancelled_after_a_look_at_which_with_a_result_for_each() {
    let stage = Stage::in_memory().await;
    let (planner, browser) = (Node::new(&stage, "planner"), Browser::signed_in(&stage, "planner").await);
    let mut own = Vec::new();
    for number in 0..3 {
        own.push(planner.sends("worker", &format!("dig {number}")).await);
    }
    planner.sends("worker", "fly").await;
    let other = Node::new(&stage, "helper").sends("planner", "dig for me").await;
    let foreign = Node::new(&stage, "helper").sends("worker", "dig elsewhere").await;
    let page = browser.ok("/bulk?act=pause&q=dig").await;
    page.has("Pause 3 tasks?").has("dig for me").lacks("fly").lacks("elsewhere");
    let page = browser.ok("/bulk?act=cancel&q=dig").await;
    page.has("Cancel 4 tasks?").has("they cannot go on afterwards");
    assert_eq!(browser.get("/bulk?act=juggle").await.status, 400);
    let mut fields = vec![("act", "cancel"), ("id", own[0].as_str()), ("id", &own[1]), ("id", &foreign)];
    fields.push(("reason", "no holes"));
    let page = browser.post("/bulk?q=dig", &fields).await;
    assert_eq!(page.status, 422, "nobody is sure");
    let ticked = |task: &str| {
        let row = page.text.split(&format!("value=\"{task}\"")).nth(1).unwrap();
        row.split('>').next().unwrap().ends_with("checked")
    };
    page.has("tick the box that says").has("value=\"no holes\"").has("Cancel 4 tasks?").lacks("fly");
    assert_eq!([ticked(&own[0]), ticked(&own[1]), ticked(&own[2])], [true, true, false]);
    let page = browser.post("/bulk?q=dig", &[("act", "cancel"), ("sure", "true")]).await;
    assert_eq!(page.status, 422, "nothing is ticked");
    page.has("none is ticked").has("Cancel 4 tasks?");
    assert_eq!(planner.state(&own[0]).await, "submitted");
    fields.push(("sure", "true"));
    let page = browser.post("/bulk", &fields).await;
    assert_eq!(page.status, 200);
    page.has("Cancel: 2 of 3").has("there is no such task");
    // Those that have ended are not among them, and to cancel what was completed says that it was.
    browser.ok("/bulk?act=cancel&q=dig").await.has("Cancel 2 tasks?");
    let mut states = Vec::new();
    for task in &own {
        states.push(planner.state(task).await);
    }
    assert_eq!(states, ["canceled", "canceled", "submitted"]);
    assert_eq!(planner.state(&other).await, "submitted");
    browser.ok("/tasks?state=cancelled").await.has("dig 0").has("dig 1").lacks("dig 2");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_task_is_offered_to_another_agent_and_taken_in_the_console() {
    let stage = Stage::in_memory().await;
    stage.worker("helper", json!([skill("dig")])).await;
    let worker = stage.worker("worker", json!([skill("fly")])).await;
    let asked = json!({ "title": "fly", "instructions": "far", "agents": ["worker", "helper"] });
    let task =
        stage.client("planner").tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned();
    worker.next().await;
    let (owner, helper) =
        (Browser::signed_in(&stage, "worker").await, Browser::signed_in(&stage, "helper").await);
    let target = format!("/tasks/{task}/hand-on");
    assert_eq!(owner.post(&target, &[("to", "")]).await.status, 422);
    owner.does(&target, &[("to", "helper"), ("reason", "no fuel")]).await.has("The handoff was offered");
    let page = helper.ok("/").await;
    page.has("<bdi>worker</bdi> offers you the responsibility");
    page.has("<dd class=\"long\">no fuel</dd>").has(&format!("href=\"/tasks/{task}\">fly</a>"));
    let handoff = page.text.split("id=\"wait-").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let offer = helper.ok(&format!("/tasks/{handoff}")).await;
    offer
        .has("What is offered")
        .has("<dd class=\"long\">no fuel</dd>")
        .has("to <bdi>helper</bdi>")
        .lacks("why-offer");
    owner.ok(&format!("/tasks/{handoff}")).await.has("disabled aria-describedby=\"why-offer\">Accept");
    helper
        .does(&format!("/tasks/{handoff}/offer"), &[("do", "accept"), ("back", "/")])
        .await
        .has("The answer to the offer");
    owner.ok("/").await.has("review");
    owner
        .does(&format!("/tasks/{handoff}/commit"), &[("do", "complete")])
        .await
        .has("The outcome was bound.");
    helper.ok(&format!("/tasks/{task}")).await.has("→ <b>helper</b>").has("took it over by handoff");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_at_once_say_of_each_what_came_of_it() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let (host, browser) = (stage.client("planner"), Browser::signed_in(&stage, "planner").await);
    let ended = host.begin("dig", json!({})).await;
    worker.next().await.completes("a hole").await;
    let running = host.begin("dig", json!({})).await;
    let job = worker.next().await;
    let fresh = host.begin("dig", json!({})).await;
    let sure = [("sure", "true"), ("id", ended.as_str()), ("id", &running), ("id", &fresh)];
    let with = |act: &'static str| [("act", act)].into_iter().chain(sure).collect::<Vec<_>>();
    // Who works pauses at a safe point, and is only asked until then.
    let page = browser.post("/bulk", &with("pause")).await;
    page.has("Pause: 1 of 3, 1 asked").has("</span> asked").has("at its next safe point");
    browser.ok(&format!("/tasks/{running}")).await.has("working <span class=\"quiet\">pause asked</span>");
    assert!(job.checkpoint_now().await.to_string().contains("pause"));
    browser.ok(&format!("/tasks/{running}")).await.has("‖").lacks("pause asked</span>");
    // What has come to another end was not cancelled.
    let page = browser.post("/bulk", &with("cancel")).await;
    page.has("Cancel: 2 of 3").has("resolved");
    browser.ok(&format!("/tasks/{ended}")).await.has("✓");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_tasks_than_one_form_takes_are_reached_by_a_link() {
    let stage = Stage::in_memory().await;
    let (planner, browser) = (Node::new(&stage, "planner"), Browser::signed_in(&stage, "planner").await);
    for number in 0..201 {
        planner.sends("worker", &format!("dig {number}")).await;
    }
    let page = browser.ok("/bulk?act=cancel&q=dig").await;
    page.has("Cancel 200 tasks?").has("the next part").lacks("dig 0<");
    let next = page.text.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    browser.ok(&next.replace("&#38;", "&")).await.has("Cancel 1 task?").has("dig 0<").lacks("the next part");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_is_found_on_its_task_and_taken_back() {
    let stage = Stage::in_memory().await;
    stage.worker("helper", json!([skill("dig")])).await;
    let worker = stage.worker("worker", json!([skill("fly")])).await;
    let asked = json!({ "title": "fly", "instructions": "far", "agents": ["worker", "helper"] });
    let task = stage.client("planner").tool("delegate_task", asked).await;
    let task = format!("/tasks/{}", task["task_id"].as_str().unwrap());
    let owner = Browser::signed_in(&stage, "worker").await;
    // Nobody has it yet: the form says so, and stays where it is.
    owner.ok(&task).await.has("Hand on…").has("id=\"why-hand-on\"");
    worker.next().await;
    let page = owner.ok(&task).await;
    page.has("Hand on…").lacks("id=\"why-hand-on\"").has("<option>helper</option></select>");
    owner.does(&format!("{task}/hand-on"), &[("to", "helper")]).await.has("Offered to <bdi>helper</bdi>");
    let other = Browser::signed_in(&stage, "helper").await;
    other.ok(&task).await.lacks("Offered to").has("id=\"why-hand-on\"");
    let page = owner.ok(&task).await;
    let link = page.text.split("Offered to").nth(1).unwrap().split("href=\"").nth(1).unwrap();
    let handoff = link.split(['"', '#']).next().unwrap();
    owner.ok(handoff).await.has("Take the offer back…").lacks("Cancel…");
    owner
        .does(&format!("{handoff}/cancel"), &[("sure", "true"), ("reason", "found fuel")])
        .await
        .has("The offer was taken back.")
        .has("found fuel");
    owner.ok(&task).await.lacks("Offered to");
    other.ok("/").await.has("Nothing waits for helper");
    assert_eq!(other.post(&format!("{handoff}/offer"), &[("do", "accept")]).await.status, 409);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_link_claims_what_nobody_did() {
    let stage = Stage::in_memory().await;
    let (planner, browser) = (Node::new(&stage, "planner"), Browser::signed_in(&stage, "planner").await);
    let (task, other) = (planner.sends("worker", "dig").await, planner.sends("worker", "fly").await);
    for target in [
        format!("/tasks/{task}?done=cancel"),
        format!("/tasks/{task}?done=cancel.x"),
        "/?done=decide".to_owned(),
        "/sign-ins?done=ended".to_owned(),
    ] {
        browser.ok(&target).await.lacks("class=\"notice done\"");
    }
    let page = browser.post(&format!("/tasks/{task}/pause"), &[]).await;
    let told = page.header("location").to_owned();
    browser.ok(&told).await.has("The pause was stored");
    // It is of no use for another task, another act or somebody else.
    browser.ok(&told.replace(&task, &other)).await.lacks("class=\"notice done\"");
    browser.ok(&told.replace("pause.", "cancel.")).await.lacks("class=\"notice done\"");
    Browser::signed_in(&stage, "worker").await.ok(&told).await.lacks("class=\"notice done\"");
    stage.stop().await;
}

/// Somebody at the desk.
async fn caller(stage: &Stage, name: &str) -> Caller {
    stage.desk.sign_in(Some(name), Face::Console, None).await.unwrap().0
}

/// A responsibility that is offered to an agent, with a text that comes with it.
async fn offered(stage: &Stage, from: &str, to: &str, scope: &str, context: &str) -> String {
    let body = context.as_bytes().into();
    let context = OfferContext { content_type: Text::from("text/plain"), body };
    let (to, scope, reason) = (AgentId::from(to), Text::from(scope), Text::from("the night is over"));
    let offered = Responsibility { to, scope, reason, context: Some(context), ttl_ms: None };
    let begun = stage.desk.offer(&caller(stage, from).await, None, "stage.1", offered).await.unwrap();
    begun.session.binding.id.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_says_what_it_covers_where_it_is_answered_however_much_comes_with_it() {
    let stage = Stage::in_memory().await;
    let handoff = offered(&stage, "planner", "ops", "the \"night\" shift", &"<".repeat(5000)).await;
    let planner = caller(&stage, "planner").await;
    for number in 0..100 {
        let (content_type, body) = (Text::from("text/plain"), format!("{number} {}", "<".repeat(4000)));
        let handoff_id = HandoffId::from(handoff.as_str());
        let act = HandoffAct::Context { handoff: handoff_id, content_type, body: body.into_bytes().into() };
        stage.desk.act(&planner, &handoff, Act::Handoff(act)).await.unwrap();
    }
    let ops = Browser::signed_in(&stage, "ops").await;
    // The browser refuses a page of more than 1 MB.
    for target in ["/".to_owned(), format!("/tasks/{handoff}")] {
        let page = ops.ok(&target).await;
        let panel = page.text.split("offers you the responsibility").nth(1).unwrap();
        let form = panel.split("</form>").next().unwrap();
        for shown in [
            "the &#34;night&#34; shift",
            "the night is over",
            "The beginning of 5,000 characters",
            "98 more came",
        ] {
            assert!(form.contains(shown), "{shown} in {form}");
        }
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_an_offer_that_is_sent_twice_counts_once() {
    let stage = Stage::in_memory().await;
    let handoff = offered(&stage, "planner", "ops", "the night shift", "").await;
    let ops = Browser::signed_in(&stage, "ops").await;
    let key = ops.ok("/").await.hidden("key");
    for _ in 0..2 {
        let fields = [("do", "accept"), ("key", &*key), ("back", "/")];
        ops.does(&format!("/tasks/{handoff}/offer"), &fields)
            .await
            .has("The answer to the offer was stored.");
    }
    assert_eq!(ops.post(&format!("/tasks/{handoff}/offer"), &[("do", "decline")]).await.status, 400);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_typed_stays_where_a_refused_form_was_on_a_later_page() {
    let stage = Stage::in_memory().await;
    let mut last = String::new();
    for number in 0..30 {
        last = offered(&stage, "planner", "ops", &format!("shift {number}"), "").await;
    }
    let ops = Browser::signed_in(&stage, "ops").await;
    let first = ops.ok("/").await;
    first.lacks(&last).has("rel=\"next\"");
    let near = first.text.split("id=\"wait-").nth(1).unwrap().split('"').next().unwrap();
    for (task, heading) in [(near, "<h1>Waiting for you</h1>"), (&last, "<h1>shift 29</h1>")] {
        let fields = [("do", "perhaps"), ("reason", "only until six"), ("back", "/")];
        let page = ops.post(&format!("/tasks/{task}/offer"), &fields).await;
        assert_eq!(page.status, 422);
        page.has("expected accept or decline").has("value=\"only until six\"").has(heading);
    }
    stage.stop().await;
}

/// A task that a worker has in hand, and that a helper could take over; and the job.
async fn shared(host: &Client) -> String {
    let asked = json!({ "title": "fly", "instructions": "far", "agents": ["worker", "helper"] });
    host.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handoff_that_moved_nothing_is_no_success() {
    let stage = Stage::in_memory().await;
    stage.worker("helper", json!([skill("dig")])).await;
    let worker = stage.worker("worker", json!([skill("fly")])).await;
    let task = shared(&stage.client("planner")).await;
    let job = worker.next().await;
    let handoff = offered(&stage, "worker", "helper", &format!("task:{task}"), "").await;
    let (owner, helper) =
        (Browser::signed_in(&stage, "worker").await, Browser::signed_in(&stage, "helper").await);
    helper.does(&format!("/tasks/{handoff}/offer"), &[("do", "accept")]).await;
    job.completes("there").await;
    let page = owner.does(&format!("/tasks/{handoff}/commit"), &[("do", "complete")]).await;
    page.has("class=\"notice but\"").has("but the task was not handed on: ").lacks("class=\"notice done\"");
    page.has("took no effect in another task: ");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_nobody_else_has_a_part_in_cannot_be_handed_on_and_says_so() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let task = stage.client("planner").begin("dig", json!({})).await;
    worker.next().await;
    let page = Browser::signed_in(&stage, "worker").await.ok(&format!("/tasks/{task}")).await;
    page.has("nobody can take it over").has("disabled aria-describedby=\"why-hand-on\">Offer it");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_that_a_report_has_voided_is_not_said_to_have_come() {
    let stage = Stage::in_memory().await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let planner = Browser::signed_in(&stage, "planner").await;
    let asked = json!({ "title": "dig", "instructions": "i", "agent": "worker" });
    let task = stage.client("planner").tool("delegate_task", asked).await;
    let at = format!("/tasks/{}", task["task_id"].as_str().unwrap());
    let job = worker.next().await;
    planner.does(&format!("{at}/pause"), &[]).await.has("asked, at the next safe point");
    job.completes("a hole").await;
    let page = planner.ok(&at).await;
    page.has("→ never paused: it was reported before, event ").lacks("→ paused");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_nobody_knows_is_pointed_out() {
    let stage = Stage::in_memory().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let ops = Browser::signed_in(&stage, "ops").await;
    let fields = [("agent", "worked"), ("title", "Dig")];
    let page = ops.does("/delegate", &fields).await;
    page.has("class=\"notice but\"").has("nobody has heard of an agent").has("worker&#34;");
    let page = ops.does("/delegate", &[("agent", "worked"), ("title", "Dig"), ("queue", "true")]).await;
    page.has("The task was handed out.").lacks("nobody has heard");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cancels_a_task_is_told_how_many_went_with_it() {
    let stage = Stage::in_memory().await;
    let [planner, worker] = ["planner", "worker"].map(|name| stage.client(name));
    let ops = Browser::signed_in(&stage, "planner").await;
    for (keeps, said) in [(None, ", with 2 under it."), (Some("true"), ", and 2 under it go on.")] {
        let asked = json!({ "title": "root", "instructions": "i", "agent": "worker", "queue": true });
        let root = planner.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned();
        worker.tool("work_accept", json!({ "task_id": root })).await;
        for title in ["one", "two"] {
            let part = json!({ "title": title, "instructions": "i", "agent": "helper", "queue": true, "parent_task_id": root });
            worker.tool("delegate_task", part).await;
        }
        let fields: Vec<_> =
            [("sure", "true")].into_iter().chain(keeps.map(|it| ("keeps_children", it))).collect();
        let page = ops.does(&format!("/tasks/{root}/cancel"), &fields).await;
        page.has(&format!("The task was cancelled{said}"));
        // Those that have ended stay in the tree.
        page.has(if keeps.is_none() { "<span aria-hidden=\"true\">–</span> cancelled" } else { "○" });
    }
    stage.stop().await;
}
