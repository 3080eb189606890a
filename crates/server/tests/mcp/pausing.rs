//! Pausing and resuming: the sentences of SEP-2669, and what shipped clients need of them.

use handover_kernel::charter::Charter;
use serde_json::{Value, json};

use super::scene::*;
use super::stage::*;

/// Pause a task that somebody works on, all the way.
async fn pause(planner: &Client, job: &Job) {
    assert_eq!(planner.pause(&job.id).await["status"], "working");
    assert_eq!(reach(job).await["paused"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_answers_the_task_as_it_is_and_takes_effect_at_the_next_safe_point() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let answered = planner.pause(&job.id).await;
    assert_eq!((&answered["resultType"], &answered["status"]), (&json!("complete"), &json!("working")));
    assert_eq!(answered["statusMessage"], "worker will pause at its next safe point");
    assert_eq!(answered, planner.get(&job.id).await);
    // What the worker was about to say is still taken.
    let told = job.says("half").await;
    assert_eq!((&told["paused"], &told["orders"][0]["kind"]), (&json!(true), &json!("pause")));
    let shown = planner.get(&job.id).await;
    assert_eq!(shown["status"], "paused");
    assert_eq!(shown["statusMessage"], "paused: the requester asked for it; resume it to go on");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_asked_for_again_before_it_took_effect_answers_the_task_unchanged() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let first = planner.pause(&job.id).await;
    let before = stage.written();
    assert_eq!(planner.pause(&job.id).await, first);
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_that_was_not_reached_does_not_hold_up_the_end() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    planner.pause(&job.id).await;
    job.completes("a hole").await;
    assert_eq!(planner.get(&job.id).await["status"], "completed");
    // Whoever gives the task back leaves nobody working: then it is paused at once.
    let worker = digger(&stage).await;
    let delegate = json!({ "title": "dig", "instructions": "dig", "agents": ["worker", "helper"] });
    let task = planner.tool("delegate_task", delegate).await["task_id"].as_str().unwrap().to_owned();
    let job = worker.next().await;
    planner.pause(&task).await;
    job.tool("work_decline", json!({ "reason": "tired" })).await;
    assert_eq!(planner.get(&task).await["status"], "paused");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_takes_effect_at_once_when_nobody_works() {
    let stage = Stage::in_memory().await;
    let worker = digger(&stage).await;
    let planner = stage.client("planner").declaring(interaction());
    let task = planner.begin(SKILL, json!({})).await;
    assert_eq!(planner.pause(&task).await["status"], "paused");
    // Nobody is offered a task that is paused.
    let found = worker.client.tool("work_next", json!({ "wait_ms": 0 })).await;
    assert_eq!(found["work"], json!([]));
    assert_eq!(planner.resume(&task).await["status"], "working");
    let job = worker.next().await;
    job.asks_for("where", "Where to?").await;
    assert_eq!(planner.pause(&task).await["status"], "paused");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_is_refused_from_every_other_status_and_when_already_paused() {
    let stage = Stage::in_memory().await;
    let mut all = ended(&stage).await;
    let (planner, job) = in_steady_hand(&stage).await;
    pause(&planner, &job).await;
    all.push(("paused", planner, job));
    for (status, planner, job) in all {
        let before = stage.written();
        let refused = planner.refused("tasks/pause", json!({ "taskId": job.id })).await;
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{status}");
        assert_eq!(stage.written(), before, "{status}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_leaves_get_steer_resume_and_cancel_and_nothing_else() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    planner.pause(&job.id).await;
    assert_eq!(planner.get(&job.id).await["status"], "paused");
    planner.steer(&job.id, "deeper").await;
    let update = json!({ "taskId": job.id, "inputResponses": { "where": says("left") } });
    let refused = planner.refused("tasks/update", update).await;
    assert_eq!(refused.as_pair(), (200, INVALID_PARAMS));
    assert!(refused.message.contains("resume it first"), "{}", refused.message);
    let empty = planner.refused("tasks/update", params("tasks/update", &job.id)).await;
    assert_eq!(empty.as_pair(), (200, INVALID_PARAMS));
    assert_eq!(planner.refused("tasks/pause", json!({ "taskId": job.id })).await.code, INVALID_PARAMS);
    assert_eq!(planner.resume(&job.id).await["status"], "input_required");
    planner.pause(&job.id).await;
    assert_eq!(planner.cancel(&job.id).await, ack());
    assert_eq!(planner.get(&job.id).await["status"], "cancelled");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_keeps_the_answers_of_clients_that_do_not_know_it() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    planner.pause(&job.id).await;
    assert_eq!(planner.update(&job.id, json!({ "where": says("left") })).await, ack());
    let shown = planner.get(&job.id).await;
    assert_eq!((&shown["status"], shown.get("inputRequests")), (&json!("working"), None));
    assert_eq!(job.says("half").await["orders"], json!([]), "not while it is paused");
    planner.resume(&job.id).await;
    let told = job.checkpoint().await;
    assert_eq!(told["orders"][0]["answers"]["where"], json!({ "action": "accept", "content": "left" }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_by_the_server_is_learnt_by_polling_and_by_notification() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let (mut reply, _) = planner.listen(json!({ "taskIds": [job.id] })).await;
    let held = job.tool("work_hold", json!({ "reason": "this will cost 12 EUR" })).await;
    assert_eq!(held["paused"], true);
    let told = reply.next_of("notifications/tasks").await;
    assert_eq!(told["status"], "paused");
    assert_eq!(told["statusMessage"], "paused: this will cost 12 EUR; resume it to go on");
    assert_eq!(bare(told), bare(planner.get(&job.id).await));
    assert_eq!(planner.resume(&job.id).await["status"], "working");
    assert_eq!(job.checkpoint().await["paused"], false);
    drop(reply);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_lets_pending_questions_stand_with_their_keys_and_meaning() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let schema =
        json!({ "type": "object", "properties": { "depth": { "type": "integer" } }, "required": ["depth"] });
    job.asks(
        json!({ "deep": { "message": "How deep?", "schema": schema }, "where": { "message": "Where to?" } }),
    )
    .await;
    let before = planner.get(&job.id).await;
    planner.pause(&job.id).await;
    let after = planner.resume(&job.id).await;
    assert_eq!((&after["status"], &after["inputRequests"]), (&before["status"], &before["inputRequests"]));
    let responses =
        json!({ "deep": { "action": "accept", "content": { "depth": 3 } }, "where": says("left") });
    planner.update(&job.id, responses).await;
    let told = job.checkpoint().await["orders"][0]["answers"].clone();
    assert_eq!(told["deep"]["content"], json!({ "depth": 3 }));
    assert_eq!(told["where"]["content"], "left");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_pause_is_followed_by_other_questions_under_other_keys() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    planner.pause(&job.id).await;
    planner.resume(&job.id).await;
    let same = json!({ "questions": { "where": { "message": "Where from?" } }, "wait_ms": 0 });
    assert_eq!(job.try_tool("work_ask", same).await["isError"], true);
    job.asks_for("whence", "Where from?").await;
    let shown = planner.get(&job.id).await;
    assert_eq!(asked(&shown), ["whence", "where"]);
    assert_eq!(shown["inputRequests"]["where"]["params"]["message"], "worker asks: Where to?");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_resume_answers_the_task_after_resuming() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    pause(&planner, &job).await;
    let resumed = planner.resume(&job.id).await;
    assert_eq!((&resumed["resultType"], &resumed["status"]), (&json!("complete"), &json!("working")));
    assert_eq!(resumed, planner.get(&job.id).await);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_resume_is_refused_unless_the_task_is_paused() {
    let stage = Stage::in_memory().await;
    let mut all = ended(&stage).await;
    let (planner, job) = in_hand(&stage).await;
    all.push(("working", planner, job));
    let (planner, job) = in_hand(&stage).await;
    planner.pause(&job.id).await;
    all.push(("about to be paused", planner, job));
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    all.push(("input_required", planner, job));
    for (status, planner, job) in all {
        let before = stage.written();
        let refused = planner.refused("tasks/resume", json!({ "taskId": job.id })).await;
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{status}");
        assert_eq!(stage.written(), before, "{status}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_resume_leads_to_input_required_if_something_was_asked_and_to_working_else() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    pause(&planner, &job).await;
    assert_eq!(planner.resume(&job.id).await["status"], "working");
    job.asks_for("where", "Where to?").await;
    planner.pause(&job.id).await;
    assert_eq!(planner.resume(&job.id).await["status"], "input_required");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_resume_is_followed_by_the_steers_that_waited() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    pause(&planner, &job).await;
    planner.steer(&job.id, "deeper").await;
    planner.steer(&job.id, "wider").await;
    planner.resume(&job.id).await;
    planner.steer(&job.id, "slower").await;
    assert_eq!(steers(&job.says("half").await), ["deeper", "wider", "slower"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_paused_is_reached_from_working_and_from_input_required() {
    let stage = Stage::in_memory().await;
    for asks in [false, true] {
        let (planner, job) = in_steady_hand(&stage).await;
        if asks {
            job.asks_for("where", "Where to?").await;
            planner.pause(&job.id).await;
        } else {
            pause(&planner, &job).await;
        }
        let shown = planner.get(&job.id).await;
        assert_eq!(shown["status"], "paused");
        for payload in ["inputRequests", "result", "error"] {
            assert!(shown.get(payload).is_none(), "{shown}");
        }
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_paused_leads_to_working_cancelled_or_failed() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    pause(&planner, &job).await;
    assert_eq!(planner.resume(&job.id).await["status"], "working");
    pause(&planner, &job).await;
    planner.cancel(&job.id).await;
    assert_eq!(planner.get(&job.id).await["status"], "cancelled");
    // The worker of a paused task cannot complete it, and can fail it.
    let (planner, job) = in_steady_hand(&stage).await;
    pause(&planner, &job).await;
    assert_eq!(job.try_tool("work_complete", json!({ "text": "x" })).await["isError"], true);
    assert_eq!(planner.get(&job.id).await["status"], "paused");
    job.fails("broken").await;
    assert_eq!(planner.get(&job.id).await["result"]["isError"], true);
    // What a pause cannot outlast fails it.
    let (planner, task) = short_of_breath(&stage).await;
    planner.pause(&task).await;
    let shown = planner.until_status(&task, "failed").await;
    assert_eq!(shown["error"]["message"], "the task's time to live has elapsed");
    stage.stop().await;
}

/// A task that may be paused for a moment only.
async fn short_of_breath(stage: &Stage) -> (Client, String) {
    let charter = Charter { suspension_cap_ms: 300, ..Charter::mcp() };
    delegated(stage, "short-of-breath", charter, Some(60_000)).await;
    (stage.client("planner").declaring(interaction()), "short-of-breath".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_paused_is_not_terminal_and_goes_on_to_the_end() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    pause(&planner, &job).await;
    planner.resume(&job.id).await;
    job.completes("a hole").await;
    assert_eq!(planner.get(&job.id).await["status"], "completed");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_shipped_calling_one_opts_in_to_paused_in_its_answer_and_nowhere_else() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    job.asks_for("where", "Where to?").await;
    assert_eq!(planner.pause(&job.id).await["status"], "paused");
    assert_eq!(planner.get(&job.id).await["status"], "input_required");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_shipped_to_others_a_paused_task_shows_the_status_before_and_says_that_it_is_paused() {
    let stage = Stage::in_memory().await;
    for (asks, status) in [(false, "working"), (true, "input_required")] {
        let (planner, job) = in_hand(&stage).await;
        let (mut reply, _) = planner.listen(json!({ "taskIds": [job.id] })).await;
        if asks {
            job.asks_for("where", "Where to?").await;
        }
        job.tool("work_hold", json!({ "reason": "tired" })).await;
        let shown = planner.get(&job.id).await;
        assert_eq!(shown["status"], status);
        assert_eq!(shown["statusMessage"], "paused: tired; resume it to go on");
        assert_eq!(asked(&shown), if asks { vec!["where"] } else { vec![] });
        let mut told = reply.next_of("notifications/tasks").await;
        while told["statusMessage"] != shown["statusMessage"] {
            assert_ne!(told["status"], "paused");
            told = reply.next_of("notifications/tasks").await;
        }
        assert_eq!(bare(told), bare(shown));
        // Whoever declared it looks at the same task and sees it.
        assert_eq!(planner.declaring(interaction()).get(&job.id).await["status"], "paused");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_capability_a_client_of_the_base_extension_sees_no_change() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let known = ["working", "input_required", "completed", "failed", "cancelled"];
    let (mut reply, _) = planner.listen(json!({ "taskIds": [job.id] })).await;
    job.asks_for("where", "Where to?").await;
    job.tool("work_hold", json!({ "reason": "tired" })).await;
    assert_eq!(planner.update(&job.id, json!({ "where": says("left") })).await, ack());
    planner.declaring(interaction()).resume(&job.id).await;
    job.completes("a hole").await;
    loop {
        let told = reply.next_of("notifications/tasks").await;
        assert!(known.contains(&told["status"].as_str().unwrap()), "{told}");
        if told["status"] == "completed" {
            break;
        }
    }
    drop(reply);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_security_a_paused_task_is_cleaned_up_by_its_time() {
    let stage = Stage::in_memory().await;
    let (planner, task) = short_of_breath(&stage).await;
    assert_eq!(planner.get(&task).await["ttlMs"], 60_000);
    let paused = planner.pause(&task).await;
    let ttl = paused["ttlMs"].as_u64().unwrap();
    assert!((300..60_000).contains(&ttl), "expected what the cap allows, found {ttl}");
    let shown = planner.until_status(&task, "failed").await;
    let timeline = planner.tool("task_timeline", json!({ "task_id": task })).await;
    let last = timeline["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["kind"], &last["detail"]["cause"]), (&json!("expired"), &json!("suspension_cap")));
    assert_eq!(shown["lastUpdatedAt"], last["at"]);
    // It lived for as long as was said, and not for longer.
    let session = stage.desk.session(&as_macp("planner"), &task).await.unwrap();
    assert_eq!(session.ended_at.unwrap().since(session.binding.created_at), ttl + 1);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_security_time_stands_still_while_paused_and_the_ttl_says_so() {
    let stage = Stage::in_memory().await;
    let planner = stage.client("planner").declaring(interaction());
    for ttl_ms in [None, Some(3_600_000)] {
        let task = format!("ttl-{ttl_ms:?}");
        delegated(&stage, &task, Charter::mcp(), ttl_ms).await;
        let ttl = |shown: Value| shown["ttlMs"].as_u64();
        assert_eq!(ttl(planner.get(&task).await), ttl_ms);
        let day = 24 * 3_600_000;
        let paused = ttl(planner.pause(&task).await).unwrap();
        assert!((day..day + 60_000).contains(&paused), "{paused}");
        let resumed = ttl(planner.resume(&task).await);
        match ttl_ms {
            None => assert_eq!(resumed, None),
            Some(before) => assert!((before..before + 60_000).contains(&resumed.unwrap())),
        }
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_security_every_call_checks_the_task_and_who_asks() {
    let stage = Stage::with(|set| set.identity = tokens()).await;
    let (planner, job) = in_steady_hand(&stage).await;
    pause(&planner, &job).await;
    let before = stage.written();
    for method in ["tasks/steer", "tasks/pause", "tasks/resume"] {
        for token in ["outsider", "helper", "elsewhere"] {
            let other = stage.client(token).declaring(interaction());
            let refused = other.refused(method, params(method, &job.id)).await;
            assert_eq!(
                (refused.as_pair(), refused.message.as_str()),
                ((200, INVALID_PARAMS), "there is no such task")
            );
        }
        // Whoever works on it is not who asked for it.
        let refused = job.client.refused(method, params(method, &job.id)).await;
        assert_eq!(refused.as_pair(), (200, INVALID_PARAMS), "{method}");
        assert_eq!(stage.nobody().ask(method, params(method, &job.id)).await.status, 401);
    }
    assert_eq!(stage.written(), before);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m_security_without_authentication_ids_cannot_be_guessed() {
    // In development whoever says to be somebody is: only the id is not known to everybody.
    let stage = Stage::in_memory().await;
    let (_, one) = in_hand(&stage).await;
    let (_, other) = in_hand(&stage).await;
    for id in [&one.id, &other.id] {
        assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
    }
    let same = one.id.bytes().zip(other.id.bytes()).filter(|(a, b)| a == b).count();
    assert!(same < 20, "{} and {}", one.id, other.id);
    stage.stop().await;
}
