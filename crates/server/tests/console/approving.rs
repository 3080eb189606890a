//! What an approver sees, and what a click on each button does.

use handover_desk::approvers::Rules;
use handover_desk::delegate::Responsibility;
use handover_kernel::command::OfferContext;
use handover_kernel::{AgentId, Face, Text};
use serde_json::json;

use super::browser::{Browser, Page};
use super::others::stage::{Stage, skill, skill_with};

/// `lead` approves what goes to `worker`, what is handed on to `helper`, and every outcome of a skill called `refund`.
const RULES: &str = r#"[
    { delegate = ["worker"], hand_on = ["helper"], by = ["lead"] },
    { skills = ["refund"], commit = true, by = ["lead"] },
]"#;

async fn guarded() -> Stage {
    Stage::with(|set| set.approvals = Rules::parse(RULES).unwrap()).await
}

async fn delegated(stage: &Stage, instructions: &str) -> String {
    let asked =
        json!({ "title": "dig", "instructions": instructions, "input": { "deep": 1 }, "agent": "worker" });
    let task = stage.client("planner").tool("delegate_task", asked).await;
    task["task_id"].as_str().unwrap().to_owned()
}

/// What a browser sends of the form that is on a page, with some of its fields changed.
async fn sends(lead: &Browser, task: &str, changed: &[(&str, &str)]) -> Page {
    let page = lead.ok(&format!("/tasks/{task}")).await;
    let own = [
        ("proposal", page.hidden("proposal")),
        ("title", "dig".to_owned()),
        ("instructions", "dig a hole".to_owned()),
        ("input", "{\r\n  \"deep\": 1\r\n}".to_owned()),
        ("words", String::new()),
    ];
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    let kept = own.filter(|(name, _)| changed.iter().all(|(other, _)| other != name));
    let fields: Vec<(&str, &str)> = kept.chain(changed.iter().copied()).collect();
    lead.post(&format!("/tasks/{task}/decide"), &fields).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_drops_nothing_that_somebody_typed() {
    let stage = guarded().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let task = delegated(&stage, "dig a hole").await;
    let lead = Browser::signed_in(&stage, "lead").await;
    let before = stage.written();
    for (changed, why) in [
        (&[("do", "approve"), ("instructions", "dig a small hole")][..], "the form has changes"),
        (&[("do", "approve"), ("title", "dig deep")], "the form has changes"),
        (&[("do", "approve"), ("words", "not so deep")], "an approval carries no words"),
        (&[("do", "change"), ("words", "not so deep")], "an approval carries no words"),
    ] {
        let page = sends(&lead, &task, changed).await;
        assert_eq!(page.status, 422, "{changed:?}");
        // What was typed comes back, in an open form.
        page.has(why).has(changed[1].1).has("data-typed");
    }
    assert_eq!(stage.written(), before, "nothing was decided");
    let own = Browser::signed_in(&stage, "planner").await;
    let page = own.ok(&format!("/tasks/{task}")).await;
    page.has("disabled aria-describedby=\"why-decide\">Approve").has("nobody decides about its own");
    assert_eq!(sends(&lead, &task, &[("do", "approve")]).await.status, 303);
    own.ok(&format!("/tasks/{task}")).await.has("approved the proposal").lacks("with changes");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_browsers_make_of_a_text_is_no_change_of_it() {
    let stage = guarded().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let lead = Browser::signed_in(&stage, "lead").await;
    // A page spells out what is hidden, ends lines in its own way, and leaves out joiners where it spells anything out.
    let asked = json!({ "title": "dig\nnow", "instructions": "one\ntwo\u{202e} \u{1f469}\u{200d}\u{1f4bb}", "agent": "worker" });
    let task = stage.client("planner").tool("delegate_task", asked).await;
    let id = task["task_id"].as_str().unwrap();
    let page = lead.ok(&format!("/tasks/{id}")).await;
    page.has("one\ntwo[U+202E] \u{1f469}\u{1f4bb}");
    let fields = [
        ("proposal", &*page.hidden("proposal")),
        ("title", "dignow"),
        ("instructions", "one\r\ntwo[U+202E] \u{1f469}\u{1f4bb}"),
        ("input", ""),
        ("words", ""),
        ("do", "approve"),
    ];
    let page = lead.post(&format!("/tasks/{id}/decide"), &fields).await;
    assert_eq!(page.status, 303, "{}", page.text);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approver_sees_to_whom_it_goes_and_all_of_it_or_that_it_is_cut() {
    let stage = guarded().await;
    let schema = json!({ "inputSchema": { "type": "object" } });
    stage.worker("worker", json!([skill_with("dig", schema)])).await;
    let lead = Browser::signed_in(&stage, "lead").await;
    let long = format!("{}the end of it", "dig a hole ".repeat(300));
    let task = delegated(&stage, &long).await;
    for target in ["/".to_owned(), format!("/tasks/{task}")] {
        let page = lead.ok(&target).await;
        page.has("<dt>to</dt><dd class=\"text\">worker</dd>")
            .has("the end of it</dd>")
            .lacks("The beginning of");
        page.has("Too long to change here: instructions.");
    }
    let longer = "dig a hole ".repeat(500);
    let task = delegated(&stage, &longer).await;
    let page = lead.ok(&format!("/tasks/{task}")).await;
    page.has("The beginning of 5,500 characters").has("the whole instructions");
    let whole = page.text.split("dd class=\"cut\"").nth(1).unwrap();
    let whole = whole.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    lead.ok(whole).await.has(longer.trim());
    // A call of a skill says which.
    stage.client("planner").begin("dig", json!({ "deep": 2 })).await;
    lead.ok("/").await.has("<dt>skill</dt><dd class=\"text\">dig</dd>");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approver_sees_what_outcome_would_be_bound_and_what_was_delivered() {
    let stage = guarded().await;
    let worker = stage.worker("clerk", json!([skill("refund")])).await;
    let (host, lead) = (stage.client("planner"), Browser::signed_in(&stage, "lead").await);
    let own = Browser::signed_in(&stage, "planner").await;
    for (positive, shown) in [(true, "a success"), (false, "a failure")] {
        // What a host calls is settled at once, what a person delegates after a review.
        let task = match positive {
            true => host.begin("refund", json!({})).await,
            false => {
                let call = [("agent", "clerk"), ("skill", "refund"), ("title", "refund"), ("answer", "{}")];
                let begun = own.post("/delegate", &call).await;
                begun.header("location").split(['/', '?']).nth(2).unwrap().to_owned()
            }
        };
        let page = lead.ok(&format!("/tasks/{task}")).await;
        let yes = [("proposal", &*page.hidden("proposal")), ("do", "approve")];
        lead.does(&format!("/tasks/{task}/decide"), &yes).await;
        let job = worker.next().await;
        if positive {
            job.completes("42 euros went back").await;
        } else {
            job.fails("the till is empty").await;
            own.post(&format!("/tasks/{task}/commit"), &[("do", "fail")]).await;
        }
        let page = lead.ok(&format!("/tasks/{task}")).await;
        page.has("<dt>outcome</dt>").has(shown).has("<dt>reported</dt>");
        page.has(if positive { "42 euros went back</dd>" } else { "the till is empty</dd>" });
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_not_told_that_its_outcome_waits_for_an_approval() {
    let stage = guarded().await;
    let worker = stage.worker("clerk", json!([skill("refund")])).await;
    let task = stage.client("planner").begin("refund", json!({})).await;
    let [lead, planner, clerk] = ["lead", "planner", "clerk"].map(|name| Browser::signed_in(&stage, name));
    let (lead, planner, clerk) = (lead.await, planner.await, clerk.await);
    let at = format!("/tasks/{task}");
    let yes = [("proposal", &*lead.ok(&at).await.hidden("proposal")), ("do", "approve")];
    lead.does(&format!("{at}/decide"), &yes).await;
    worker.next().await.completes("42 euros went back").await;
    let page = planner.ok(&at).await;
    page.has("for approval").has("<bdi>planner</bdi> → <bdi>lead</bdi>").has(">Approve</button>");
    let page = clerk.ok(&at).await;
    page.has("for review").lacks("approval").lacks("Approve").lacks("lead");
    clerk.ok(&format!("{at}/replay")).await.has("delivered").lacks("approval");
    let page = clerk.get(&format!("{at}/replay?at=999")).await;
    assert_eq!(page.status, 403);
    page.lacks("approval");
    clerk.ok("/tasks").await.has("for review").lacks("approval");
    clerk.ok("/agents").await.lacks("approval");
    planner.does(&format!("{at}/pause"), &[]).await;
    planner.ok(&format!("{at}/replay")).await.has("&#34;proposal&#34;: &#34;");
    clerk.ok(&format!("{at}/replay")).await.has("&#34;proposal&#34;: null").lacks("approval");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approver_sees_to_whom_a_responsibility_would_go() {
    let stage = guarded().await;
    let (planner, _) = stage.desk.sign_in(Some("planner"), Face::Console, None).await.unwrap();
    let (to, scope) = (AgentId::from("helper"), Text::from("the night shift"));
    let body = b"two of three rounds are done".as_slice().into();
    let context = Some(OfferContext { content_type: Text::from("text/plain"), body });
    let offered = Responsibility { to, scope, reason: Text::from("tired"), context, ttl_ms: None };
    let begun = stage.desk.offer(&planner, None, "stage.1", offered).await.unwrap();
    let lead = Browser::signed_in(&stage, "lead").await;
    let page = lead.ok("/").await;
    page.has("<dt>context</dt><dd class=\"long\">two of three rounds are done</dd>");
    lead.ok(&format!("/tasks/{}/events", begun.session.binding.id)).await.has("two of three rounds");
    page.has("wants to hand on").has("<dt>to</dt><dd class=\"text\">helper</dd>");
    page.has("<dt>scope</dt><dd class=\"text\">the night shift</dd>").has("tired");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_leads_to_its_task_only_for_those_who_may_see_that() {
    let stage = guarded().await;
    stage.worker("helper", json!([skill("count")])).await;
    let clerk = stage.worker("clerk", json!([skill("dig")])).await;
    let asked = json!({ "title": "dig", "instructions": "a hole", "agents": ["clerk", "helper"] });
    let task = stage.client("planner").tool("delegate_task", asked).await;
    let task = format!("/tasks/{}", task["task_id"].as_str().unwrap());
    clerk.next().await;
    let [lead, owner, helper] = ["lead", "clerk", "helper"].map(|name| Browser::signed_in(&stage, name));
    let (lead, owner, helper) = (lead.await, owner.await, helper.await);
    owner.does(&format!("{task}/hand-on"), &[("to", "helper")]).await;
    let page = lead.ok("/").await;
    let handoff = page.text.split("id=\"wait-").nth(1).unwrap().split('"').next().unwrap();
    let yes = [("proposal", &*page.hidden("proposal")), ("do", "approve")];
    let page = lead.does(&format!("/tasks/{handoff}/decide"), &yes).await;
    page.has("<dt>scope</dt>").lacks(&format!("href=\"{task}\""));
    assert_eq!(lead.get(&task).await.status, 404);
    helper.ok("/").await.has(&format!("<a href=\"{task}\">dig</a>"));
    helper.ok(&format!("/tasks/{handoff}")).await.has(&format!("<a href=\"{task}\">dig</a>"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_stay_small_whatever_is_proposed() {
    let stage = guarded().await;
    stage.worker("worker", json!([skill("dig")])).await;
    let host = stage.client("planner");
    let (hidden, escaped) = ("\u{202e}".repeat(6000), "<".repeat(1990));
    let mut task = String::new();
    for number in 0..30 {
        let text = if number % 2 == 0 { &hidden } else { &escaped };
        let asked = json!({ "title": text, "instructions": text, "input": { "a": text }, "agent": "worker" });
        task = host.tool("delegate_task", asked).await["task_id"].as_str().unwrap().to_owned();
    }
    let lead = Browser::signed_in(&stage, "lead").await;
    // The browser refuses a page of more than 1 MB.
    lead.ok("/").await.has("to read it and to decide").has("rel=\"next\"").has(">Approve</button>");
    lead.ok(&format!("/tasks/{task}")).await.has(">Approve</button>");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enter_in_a_field_clicks_nothing_where_there_is_a_choice() {
    let stage = guarded().await;
    stage.worker("worker", json!([skill("dig")])).await;
    delegated(&stage, "dig a hole").await;
    let planner = Browser::signed_in(&stage, "planner").await;
    let clerk = stage.worker("clerk", json!([skill("count")])).await;
    planner.does("/delegate", &[("agent", "clerk"), ("title", "count")]).await;
    clerk.next().await.completes("three").await;
    let first = |page: &Page, act: &str| {
        let form = page.text.split(&format!("/{act}\"")).nth(1).unwrap().to_owned();
        let button = form.split("<button").nth(1).unwrap().split('>').next().unwrap().to_owned();
        assert_eq!(button, " type=\"submit\" disabled hidden", "{act}");
    };
    first(&Browser::signed_in(&stage, "lead").await.ok("/").await, "decide");
    first(&planner.ok("/").await, "commit");
    let (caller, _) = stage.desk.sign_in(Some("planner"), Face::Console, None).await.unwrap();
    let (to, scope) = (AgentId::from("clerk"), Text::from("the night shift"));
    let offered = Responsibility { to, scope, reason: Text::default(), context: None, ttl_ms: None };
    stage.desk.offer(&caller, None, "stage.1", offered).await.unwrap();
    first(&Browser::signed_in(&stage, "clerk").await.ok("/").await, "offer");
    stage.stop().await;
}
