//! A log has an end. When it is reached, nothing more is taken but what brings the session to its own.

use handover_kernel::Limits;
use handover_server::face::macp::proto::v1::{GetSessionRequest, SessionState};
use serde_json::{Value, json};

use super::both::*;
use super::macp::{self, Agent, With, envelope, macp_code};
use super::scene::*;
use super::stage::*;

/// Two servers, one whose logs end by number and one whose logs end by bytes.
async fn bounded() -> [Both; 2] {
    let by_number = Limits { log_events_max: 20, ..Limits::default() };
    let by_bytes = Limits { log_bytes_max: 16 * 1024, ..Limits::default() };
    [
        Both::with(|set| set.engine.limits = by_number).await,
        Both::with(|set| set.engine.limits = by_bytes).await,
    ]
}

/// Some text that fills a log of bytes sooner than one of events.
fn some() -> String {
    "x".repeat(1000)
}

/// Work on a task until its log is full, and say what the worker is told.
async fn fill(job: &Job) -> String {
    for _ in 0..100 {
        let result = job.try_tool("work_update", json!({ "message": some() })).await;
        if result["isError"] == true {
            return result["content"][0]["text"].as_str().unwrap().to_owned();
        }
    }
    panic!("expected the log to fill")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_of_an_mcp_task_still_takes_its_end() {
    for both in bounded().await {
        let ends: [(&str, &str, Value); 4] = [
            ("planner", "task_cancel", json!({})),
            ("worker", "work_complete", json!({ "text": "a hole" })),
            ("worker", "work_fail", json!({ "reason": "no ground" })),
            ("planner", "", json!({})),
        ];
        for (who, tool, more) in ends {
            let (planner, job) = in_steady_hand(&both.stage).await;
            let told = fill(&job).await;
            assert!(told.contains("LOG_FULL") && told.contains("can still be cancelled"), "{told}");
            let steer = json!({ "taskId": job.id, "message": some() });
            let refused = planner.refused("tasks/steer", steer).await;
            assert_eq!(
                (refused.code, &refused.data["code"]),
                (INVALID_PARAMS, &json!("LOG_FULL")),
                "{refused:?}"
            );
            assert!(refused.data.get("retryAfterMs").is_none(), "{refused:?}");
            let said = planner.call("task_message", json!({ "task_id": job.id, "message": some() })).await;
            assert!(said["content"][0]["text"].as_str().unwrap().contains("LOG_FULL"), "{said}");
            if tool.is_empty() {
                planner.cancel(&job.id).await;
            } else {
                let mut arguments = more;
                arguments["task_id"] = json!(job.id);
                both.stage.client(who).tool(tool, arguments).await;
            }
            let status = planner.get(&job.id).await["status"].clone();
            assert_eq!(status, if tool.starts_with("work") { "completed" } else { "cancelled" }, "{tool}");
        }
        both.stop().await;
    }
}

/// Work on a MACP task until its log is full.
async fn fill_macp(worker: &Agent, session: &str) {
    for _ in 0..100 {
        let update = macp::update("going").with(|update| update.message = some());
        let ack = worker.send(envelope(session, update)).await;
        if let Some(error) = ack.error {
            assert_eq!(error.code, "PAYLOAD_TOO_LARGE", "no code that says to try again: {error:?}");
            let details: Value = serde_json::from_slice(&error.details).unwrap();
            assert_eq!((&details["code"], details.get("retry_after_ms")), (&json!("LOG_FULL"), None));
            return;
        }
    }
    panic!("expected the log to fill")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_of_a_macp_session_still_takes_its_end() {
    for both in bounded().await {
        let (mut planner, worker) = (both.macp("planner"), both.macp("worker"));
        let host = both.stage.client("planner");
        for session in
            ["a-session-that-macp-commits", "a-session-that-mcp-commits", "a-session-that-is-cancelled"]
        {
            planner.ok(envelope(session, macp::start())).await;
            planner.ok(envelope(session, macp::request())).await;
            worker.ok(envelope(session, macp::accept())).await;
            fill_macp(&worker, session).await;
            let status = planner.handover.steer(macp::steer(session, &some())).await.unwrap_err();
            assert_eq!(
                (status.code(), macp_code(&status)),
                (tonic::Code::ResourceExhausted, "PAYLOAD_TOO_LARGE")
            );
            assert!(status.metadata().get("retry-after-ms").is_none());
            let cancels = session.ends_with("cancelled");
            if cancels {
                planner.macp.cancel_session(macp::cancel(session)).await.unwrap();
            } else {
                worker.ok(envelope(session, macp::complete())).await;
                let committed = json!({ "task_id": session, "success": true });
                match session.contains("mcp") {
                    true => drop(host.tool("task_commit", committed).await),
                    false => drop(planner.ok(envelope(session, macp::commit())).await),
                }
            }
            let get = GetSessionRequest { session_id: session.to_owned() };
            let found = planner.macp.get_session(get).await.unwrap().into_inner().metadata.unwrap().state();
            assert_eq!(
                found,
                if cancels { SessionState::Cancelled } else { SessionState::Resolved },
                "{session}"
            );
        }
        drop((planner, worker));
        both.stop().await;
    }
}
