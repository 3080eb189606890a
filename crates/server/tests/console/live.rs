//! The stream that tells pages to look again.

use handover_desk::approvers::Rules;
use serde_json::json;

use super::browser::Browser;
use super::grid::{Node, Stream};
use super::others::stage::{Stage, until};

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
}
