//! The stream that tells pages to look again.

use super::browser::Browser;
use super::grid::{Node, Stream};
use super::others::stage::Stage;

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
    browser.post("/sign-out", &[]).await;
    while let Some(told) = stream.next().await {
        assert_eq!(told.data["task"].as_str(), Some(task.as_str()));
    }
    let nobody = Browser::new(&stage).get("/live").await;
    assert_eq!(nobody.status, 401);
}
