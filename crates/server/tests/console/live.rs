//! The stream that tells pages to look again.

use std::time::Duration;

use handover_desk::approvers::Rules;
use handover_server::config::Config;
use handover_server::face::console;
use handover_server::http::Checks;
use http_body_util::BodyExt;
use serde_json::json;

use super::browser::Browser;
use super::grid::{Node, Stream};
use super::others::stage::{Stage, in_time, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_hear_of_their_own_tasks_until_the_sign_in_ends() {
    let stage = Stage::in_memory().await;
    let browser = Browser::signed_in(&stage, "planner").await;
    let mut stream =
        Stream::open_with(stage.address, "/live", &[("cookie", browser.cookie.as_ref().unwrap())]).await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().await.unwrap().event, "hello");
    Node::new(&stage, "helper").sends("outsider", "not theirs").await;
    let task = Node::new(&stage, "helper").sends("planner", "theirs").await;
    let told = stream.next().await.unwrap();
    assert_eq!((told.event.as_str(), told.data["task"].as_str()), ("changed", Some(task.as_str())));
    // Who comes back says where it was, and hears of what happened meanwhile; so does who takes over.
    let place = told.id.clone();
    let cookie = ("cookie", browser.cookie.as_deref().unwrap());
    let missed = Node::new(&stage, "helper").sends("planner", "meanwhile").await;
    for (target, headers) in [
        ("/live".to_owned(), vec![cookie, ("last-event-id", place.as_str())]),
        (format!("/live?after={place}"), vec![cookie]),
    ] {
        let mut again = Stream::open_with(stage.address, &target, &headers).await;
        assert_eq!(again.next().await.unwrap().data["resumed"], true, "{target}");
        loop {
            let told = again.next().await.unwrap();
            assert_eq!(told.event, "changed");
            if told.data["task"].as_str() == Some(missed.as_str()) {
                break;
            }
            assert_eq!(told.data["task"].as_str(), Some(task.as_str()), "only what came after {place}");
        }
    }
    let mut lost = Stream::open_with(stage.address, "/live?after=e7fffffff", &[cookie]).await;
    assert_eq!(lost.next().await.unwrap().data["resumed"], false, "nobody was ever there");
    drop(lost);
    browser.post("/sign-out", &[]).await;
    while let Some(told) = stream.next().await {
        assert!([&task, &missed].contains(&&told.data["task"].as_str().unwrap().to_owned()));
    }
    let nobody = Browser::new(&stage).get("/live").await;
    assert_eq!(nobody.status, 401);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_says_whose_it_is_and_every_so_often_that_it_is_alive() {
    let stage = Stage::in_memory().await;
    let [planner, worker] = ["planner", "worker"].map(|name| Browser::signed_in(&stage, name));
    let (planner, worker) = (planner.await, worker.await);
    let ping_every = Duration::from_millis(20);
    let settings = console::Settings { ping_every, ..console::Settings::new(&Config::default()) };
    let checks = Checks::new(Vec::new());
    let console = console::Console::new(stage.desk.clone(), settings, &stage.metrics, checks);
    let request = axum::http::Request::get("/live").header("host", stage.address.to_string());
    let request = request.header("cookie", planner.cookie.as_ref().unwrap());
    let request = request.body(axum::body::Body::empty()).unwrap();
    let answer = tower_service::Service::call(&mut console::router(console), request).await.unwrap();
    let (mut body, mut told) = (answer.into_body(), String::new());
    while told.matches("event: ping\ndata: \n").count() < 3 {
        let frame = in_time(body.frame()).await.unwrap().unwrap();
        told += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    // A page that is somebody else's finds that out.
    let mark = async |browser: &Browser, target: &str| {
        let page = browser.ok(target).await;
        page.text.split("data-whose=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    let own = mark(&planner, "/").await;
    assert!(told.contains(&format!("\"whose\":\"{own}\"")), "{told}");
    assert_eq!(mark(&planner, "/tasks").await, own);
    assert_ne!(mark(&worker, "/").await, own);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_what_is_held_back_from_somebody_nothing_is_told_and_nothing_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let stage = Stage::with(|set| {
        set.approvals = Rules::parse(r#"[{ delegate = ["worker"], by = ["lead"] }]"#).unwrap();
        set.audit = Some((path.clone(), 1_000_000));
    })
    .await;
    let browser = Browser::signed_in(&stage, "worker").await;
    let mut stream =
        Stream::open_with(stage.address, "/live", &[("cookie", browser.cookie.as_ref().unwrap())]).await;
    assert_eq!(stream.next().await.unwrap().event, "hello");
    let asked = json!({ "title": "held", "instructions": "dig", "agent": "worker", "queue": true });
    stage.client("planner").tool("delegate_task", asked).await;
    let open = Node::new(&stage, "worker").sends("helper", "dig").await;
    let told = stream.next().await.unwrap();
    assert_eq!(told.data["task"].as_str(), Some(open.as_str()), "of the other one nothing is told");
    // Lines gather for a moment before they are written.
    browser.post("/sign-out", &[]).await;
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    until(async || lines().contains("signed_out")).await;
    assert!(!lines().contains("forbidden"), "{}", lines());
    stage.stop().await;
}
