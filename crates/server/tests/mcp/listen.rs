//! `subscriptions/listen`: section F of the list.

use serde_json::{Value, json};

use super::scene::*;
use super::stage::*;

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const TASK: &str = "notifications/tasks";
const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// Everything that is told until the server has stopped: the closing result is the last.
async fn until_the_end(stage: Stage, mut replies: Vec<Reply>) -> Vec<Vec<Value>> {
    stage.begin_stop();
    let mut told = Vec::new();
    for reply in &mut replies {
        let mut messages = Vec::new();
        while let Some(message) = reply.next().await {
            messages.push(message);
        }
        told.push(messages);
    }
    drop(replies);
    stage.stop().await;
    told
}

/// The methods of these messages; the answer has none.
fn methods(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["method"].as_str().unwrap_or("")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f1_the_first_message_acknowledges_what_was_accepted() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let wanted = json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "resourcesListChanged": true,
        "taskIds": [job.id],
    });
    let request = planner.request("subscriptions/listen", json!({ "notifications": wanted }));
    let mut reply = request.send().await;
    assert!(reply.status == 200 && reply.streams());
    job.says("half").await;
    let first = reply.next().await.unwrap();
    assert_eq!(first["method"], ACKNOWLEDGED);
    // Prompts and the list of transcripts are not told of, and nobody is led to believe so.
    let agreed = json!({ "toolsListChanged": true, "taskIds": [job.id] });
    assert_eq!(first["params"]["notifications"], agreed);
    assert_eq!(reply.next().await.unwrap()["method"], TASK);
    drop(reply);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f2_everything_on_the_stream_carries_the_id_of_the_request() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let wanted = json!({ "toolsListChanged": true, "taskIds": [job.id], "resourceSubscriptions": [format!("task://{}", job.id)] });
    let ids = [json!(7), json!("7"), json!("seven"), json!(-1)];
    let mut replies = Vec::new();
    for id in &ids {
        let request = planner.request("subscriptions/listen", json!({ "notifications": wanted }));
        let mut reply = request.set("id", id.clone()).send().await;
        let first = reply.next().await.unwrap();
        assert_eq!((&first["method"], &first["params"]["_meta"][SUBSCRIPTION]), (&json!(ACKNOWLEDGED), id));
        replies.push(reply);
    }
    job.says("half").await;
    stage.worker("helper", json!([skill("fill")])).await;
    for (reply, id) in replies.iter_mut().zip(&ids) {
        let mut heard = Vec::new();
        while heard.len() < 3 {
            let message = reply.next().await.unwrap();
            assert_eq!(message["params"]["_meta"][SUBSCRIPTION], *id, "{message}");
            heard.push(message["method"].as_str().unwrap().to_owned());
        }
        heard.sort();
        assert_eq!(heard, ["notifications/resources/updated", TASK, LIST_CHANGED]);
    }
    for (told, id) in until_the_end(stage, replies).await.iter().zip(&ids) {
        let [closing] = &told[..] else { panic!("expected the closing result, found {told:?}") };
        assert_eq!(closing["id"], *id);
        assert_eq!(closing["result"], json!({ "resultType": "complete", "_meta": { SUBSCRIPTION: id } }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f3_only_what_was_asked_for_is_sent() {
    let stage = Stage::in_memory().await;
    let (planner, one) = in_hand(&stage).await;
    let (_, other) = in_hand(&stage).await;
    let (tools, agreed) = planner.listen(json!({ "toolsListChanged": true })).await;
    assert_eq!(agreed, json!({ "toolsListChanged": true }));
    let (task, _) = planner.listen(json!({ "taskIds": [one.id] })).await;
    let (nothing, agreed) = planner.listen(json!({})).await;
    assert_eq!(agreed, json!({}));
    other.says("half").await;
    stage.worker("helper", json!([skill("fill")])).await;
    one.says("half").await;
    let (mut witness, _) = planner.listen(json!({ "taskIds": [other.id] })).await;
    other.says("more").await;
    witness.next_of(TASK).await;
    let (mut tools, mut task) = (tools, task);
    assert_eq!(tools.next().await.unwrap()["method"], LIST_CHANGED);
    assert_eq!(task.next_of(TASK).await["taskId"], json!(one.id));
    drop(witness);
    for told in until_the_end(stage, vec![tools, task, nothing]).await {
        assert_eq!(methods(&told), [""], "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_progress_and_log_lines_never_come_over_a_subscription() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let listen = json!({ "notifications": { "taskIds": [job.id] } });
    let request = planner.request("subscriptions/listen", listen);
    let mut reply = request.meta("progressToken", json!("p")).meta(LOG_LEVEL, json!("debug")).send().await;
    assert_eq!(reply.next().await.unwrap()["method"], ACKNOWLEDGED);
    let log = json!([{ "level": "emergency", "data": "the spade broke" }]);
    job.update(json!({ "progress": 1, "total": 2, "log": log })).await;
    job.completes("a hole").await;
    loop {
        let message = reply.next().await.unwrap();
        assert_eq!(message["method"], TASK, "{message}");
        if message["params"]["status"] == "completed" {
            break;
        }
    }
    let told = until_the_end(stage, vec![reply]).await.remove(0);
    assert_eq!(methods(&told), [""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_a_client_may_have_several_subscriptions() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(planner.listen(json!({ "taskIds": [job.id] })).await.0);
    }
    job.says("half").await;
    for reply in &mut all {
        assert_eq!(reply.next_of(TASK).await["statusMessage"], "half");
    }
    drop(all);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_a_changed_list_of_tools_is_told() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner");
    assert_eq!(
        planner.ok("server/discover", json!({})).await["capabilities"]["tools"]["listChanged"],
        json!(true)
    );
    let (mut reply, _) = planner.listen(json!({ "toolsListChanged": true })).await;
    let worker = digger(&stage).await;
    reply.next_of(LIST_CHANGED).await;
    worker.client.tool("agent_unregister", json!({})).await;
    reply.next_of(LIST_CHANGED).await;
    drop(reply);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_a_subscription_is_forgotten_with_its_connection() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let wanted = json!({ "notifications": { "taskIds": [job.id] } });
    let mut before = planner.request("subscriptions/listen", wanted).set("id", json!(1)).send().await;
    before.next().await.unwrap();
    drop(before);
    // The same client, and even the same id: what is not asked for anew is not there.
    let nothing = json!({ "notifications": {} });
    let mut after = planner.request("subscriptions/listen", nothing).set("id", json!(1)).send().await;
    assert_eq!(after.next().await.unwrap()["params"]["notifications"], json!({}));
    let (mut witness, _) = planner.listen(json!({ "taskIds": [job.id] })).await;
    job.says("half").await;
    witness.next_of(TASK).await;
    drop(witness);
    let told = until_the_end(stage, vec![after]).await.remove(0);
    assert_eq!(methods(&told), [""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f8_task_ids_need_the_extension() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let stranger = planner.declaring(json!({ "elicitation": {} }));
    for ids in [json!([job.id]), json!([])] {
        let listen = json!({ "notifications": { "taskIds": ids } });
        let refused = stranger.refused("subscriptions/listen", listen).await;
        assert_eq!(refused.as_pair(), (400, MISSING_CAPABILITY));
        assert_eq!(
            refused.data,
            json!({ "requiredCapabilities": { "extensions": { TASKS: {} } }, "code": "MISSING_CAPABILITY", "help": "/errors/MISSING_CAPABILITY" })
        );
    }
    drop(stranger.listen(json!({ "toolsListChanged": true })).await);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f9_the_acknowledgement_lists_only_the_tasks_that_are_followed() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let (outsider, other) = in_hand_of(&stage, &stage.client("outsider")).await;
    let unknown = "9b2c3a40-0000-4000-8000-000000000000";
    let wanted = json!({ "taskIds": [unknown, other.id, job.id, job.id, ""] });
    let (reply, agreed) = planner.listen(wanted.clone()).await;
    assert_eq!(agreed, json!({ "taskIds": [job.id] }));
    let (others, agreed) = outsider.listen(wanted).await;
    assert_eq!(agreed, json!({ "taskIds": [other.id] }));
    drop((reply, others));
    let ids: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    let many = json!({ "notifications": { "taskIds": ids } });
    assert_eq!(planner.refused("subscriptions/listen", many).await.as_pair(), (200, INVALID_PARAMS));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_a_notification_shows_the_task_as_get_does() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let (mut reply, _) = planner.listen(json!({ "taskIds": [job.id] })).await;
    let mut statuses = Vec::new();
    for step in 0..7 {
        match step {
            0 => drop(job.says("half").await),
            1 => drop(job.asks_for("where", "Where to?").await),
            2 => drop(planner.pause(&job.id).await),
            3 => drop(planner.resume(&job.id).await),
            4 => assert_eq!(planner.update(&job.id, json!({ "where": says("left") })).await, ack()),
            5 => drop(job.checkpoint().await),
            _ => drop(job.completes("a hole").await),
        }
        let told = reply.next_of(TASK).await;
        assert_eq!(told["_meta"].as_object().unwrap().len(), 1);
        assert!(told.get("resultType").is_none());
        assert_eq!(bare(told.clone()), bare(planner.get(&job.id).await), "step {step}");
        statuses.push(told["status"].as_str().unwrap().to_owned());
    }
    let expected =
        ["working", "input_required", "paused", "input_required", "working", "working", "completed"];
    assert_eq!(statuses, expected);
    drop(reply);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_a_notification_shows_what_its_listener_declared_and_no_more() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let clients = [
        planner.clone(),
        planner.declaring(tasks_and_forms()),
        planner.declaring(json!({ "extensions": { TASKS: {} } })),
    ];
    job.asks_for("where", "Where to?").await;
    let mut replies = Vec::new();
    for client in &clients {
        replies.push(client.listen(json!({ "taskIds": [job.id] })).await.0);
    }
    planner.pause(&job.id).await;
    for ((reply, client), status) in
        replies.iter_mut().zip(&clients).zip(["paused", "input_required", "working"])
    {
        let told = reply.next_of(TASK).await;
        assert_eq!(told["status"], status);
        assert_eq!(bare(told), bare(client.get(&job.id).await));
    }
    drop(replies);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_whoever_listens_may_poll_beside_it() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let (mut reply, _) = planner.listen(json!({ "taskIds": [job.id] })).await;
    job.says("half").await;
    assert_eq!(planner.get(&job.id).await["statusMessage"], "half");
    assert_eq!(reply.next_of(TASK).await["statusMessage"], "half");
    drop(reply);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_a_task_of_others_is_never_heard_of() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let (planner, job) = in_hand(&stage).await;
    let mut replies = Vec::new();
    for token in ["outsider", "helper", "elsewhere"] {
        let wanted = json!({ "taskIds": [job.id], "resourceSubscriptions": [format!("task://{}", job.id)] });
        let (reply, agreed) = stage.client(token).listen(wanted).await;
        assert_eq!(agreed, json!({ "taskIds": [], "resourceSubscriptions": [] }), "{token}");
        replies.push(reply);
    }
    let request =
        stage.nobody().request("subscriptions/listen", json!({ "notifications": { "taskIds": [job.id] } }));
    assert_eq!(request.answer().await.status, 401);
    let (mut witness, _) = planner.listen(json!({ "taskIds": [job.id] })).await;
    job.says("half").await;
    job.completes("a hole").await;
    while witness.next_of(TASK).await["status"] != "completed" {}
    drop(witness);
    for told in until_the_end(stage, replies).await {
        assert_eq!(methods(&told), [""], "{told:?}");
    }
}
