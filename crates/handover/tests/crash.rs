//! The built binary is stopped and killed with work under way, and started again: clients go on, and nothing is lost that was
//! acknowledged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use binary::{Server, handover, said};
use serde_json::{Value, json};

/// The benchmark begins the tasks, works on them and polls them, kills the server in the middle and starts it again. It
/// fails by itself if a task is lost or has another result; here the counts are looked at as well.
#[test]
fn a_crash_in_the_middle_of_running_mcp_tasks_loses_none() {
    let data = tempfile::tempdir().unwrap();
    let mut bench = handover();
    bench.args(["bench", "mcp", "--part", "restart", "--toy", "--json", "--data"]).arg(data.path());
    let output = bench.output().unwrap();
    let (stdout, stderr) = said(&output);
    assert!(output.status.success(), "{stderr}");
    let result: Value = serde_json::from_str(stdout).unwrap();
    let counted = |name: &str| result["restart"][name].as_u64().unwrap();
    assert_eq!((counted("tasks"), counted("finished"), counted("lost")), (50, 50, 0));
    assert!(counted("completed_before_the_kill") < 50, "the kill came after the work");
    assert!(counted("calls_interrupted") > 0, "nobody noticed the kill");
}

/// How long anything may take before the test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who sends at once, and how much is acknowledged between two restarts.
const SENDERS: usize = 4;
const BETWEEN: usize = 25;

/// What a call of Grid is answered, if it is answered to the end.
fn call(address: &str, agent: &str, method: &str, params: Value) -> Option<Value> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    write!(
        stream,
        "POST /grid/a2a/{agent} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {agent}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let answer: Value = serde_json::from_str(body).ok()?;
    answer.get("result").cloned()
}

/// A server that is restarted under load, by SIGTERM and by SIGKILL in turns, forgets nothing that it acknowledged.
#[test]
fn a_server_that_is_restarted_again_and_again_under_load_keeps_every_acknowledged_command() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let address = server.http().to_owned();
    let (acknowledged, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = (0..SENDERS)
        .map(|number| {
            let (address, acknowledged, over) =
                (address.clone(), Arc::clone(&acknowledged), Arc::clone(&over));
            std::thread::spawn(move || {
                let (agent, mut unanswered) = (format!("sender-{number}"), 0);
                while !over.load(Ordering::Relaxed) {
                    let sent = json!({ "to": "receiver", "message": "kept" });
                    match call(&address, &agent, "task/send", sent) {
                        Some(result) => {
                            let task = result["task"]["taskId"].as_str().unwrap().to_owned();
                            acknowledged.lock().unwrap().push((agent.clone(), task));
                        }
                        // Nobody is there for a moment.
                        None => {
                            unanswered += 1;
                            std::thread::yield_now();
                        }
                    }
                }
                unanswered
            })
        })
        .collect();
    let more = |before: usize| {
        let began = Instant::now();
        while acknowledged.lock().unwrap().len() < before + BETWEEN {
            assert!(began.elapsed() < PATIENCE, "nothing is acknowledged any more");
            std::thread::yield_now();
        }
        acknowledged.lock().unwrap().len()
    };
    let mut count = more(0);
    for round in 0..6 {
        match round % 2 {
            0 => assert_eq!(server.stop(), Some(0), "an orderly stop"),
            _ => server.kill(),
        }
        server = Server::start_at(data.path(), &address);
        count = more(count);
    }
    over.store(true, Ordering::Relaxed);
    let unanswered: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
    assert!(unanswered > 0, "nobody noticed a restart");
    server.kill();
    let server = Server::start_at(data.path(), &address);
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    assert!(acknowledged.len() >= 7 * BETWEEN);
    for (agent, task) in &acknowledged {
        let found = call(&address, agent, "task/get", json!({ "taskId": task }));
        assert_eq!(found.as_ref().map(|found| &found["task"]["state"]), Some(&json!("submitted")), "{task}");
    }
    assert_eq!(server.stop(), Some(0));
}
