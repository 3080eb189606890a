//! `handover mcp`, from its first line to its last: by itself, and as a bridge to a server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use binary::{Server, handover, said};
use serde_json::{Value, json};

mod binary;

/// How long anything may take before a test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host that has started the binary, and speaks to it over two pipes.
struct Host {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: Option<ChildStderr>,
    asked: i64,
}

impl Host {
    fn start(args: &[&str], environment: &[(&str, &str)]) -> Host {
        let mut command = handover();
        command.arg("mcp").args(args).envs(environment.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (line, lines) = channel();
        thread::spawn(move || {
            for text in output.lines() {
                if line.send(text.unwrap()).is_err() {
                    return;
                }
            }
        });
        Host { input: child.stdin.take(), log: child.stderr.take(), child, lines, asked: 0 }
    }

    /// On data of its own.
    fn embedded(data: &Path, agent: &str) -> Host {
        Host::start(&["--data", data.to_str().unwrap(), "--agent", agent, "--log-level", "debug"], &[])
    }

    /// A bridge to a server.
    fn bridge(server: &Server, agent: &str) -> Host {
        let url = format!("http://{}", server.http());
        Host::start(&["--server", &url, "--log-level", "trace"], &[("HANDOVER_TOKEN", agent)])
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next message; none at the end. Nothing else is ever on standard output.
    fn next(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let message: Value = serde_json::from_str(&line).expect("every line is JSON");
                assert_eq!(message["jsonrpc"], "2.0", "{message}");
                Some(message)
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("waited in vain"),
        }
    }

    /// Begin a request of the stateless revision, and say its id.
    fn begin(&mut self, method: &str, mut params: Value, capabilities: Value) -> Value {
        self.asked += 1;
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }));
        json!(self.asked)
    }

    /// The answer to a request, and what was told before it.
    fn answer_to(&mut self, id: &Value) -> (Value, Vec<Value>) {
        let mut told = Vec::new();
        loop {
            let message = self.next().expect("expected an answer, found the end");
            if message.get("method").is_none() && message["id"] == *id {
                return (message, told);
            }
            told.push(message);
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params, json!({}));
        let (answer, _) = self.answer_to(&id);
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// What a tool of the server's returns for machines.
    fn tool(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// The next task, taken.
    fn work(&mut self) -> String {
        let work = self.tool("work_next", json!({ "accept": true, "wait_ms": 60_000 }));
        work["work"][0]["task_id"].as_str().unwrap().to_owned()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Close the pipe unless a signal was sent; how it ended, what else it said, and its log.
    fn end(mut self) -> (Option<i32>, Vec<Value>, String) {
        self.input = None;
        self.wait()
    }

    fn wait(&mut self) -> (Option<i32>, Vec<Value>, String) {
        let rest: Vec<Value> = std::iter::from_fn(|| self.next()).collect();
        let mut log = String::new();
        self.log.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), rest, log)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Of one that has ended nothing is left to kill.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn an_embedded_server_keeps_its_tasks_from_one_host_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");

    let mut host = Host::embedded(&data, "local");
    let opening = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
    host.send(&json!({ "jsonrpc": "2.0", "id": "open", "method": "initialize", "params": opening }));
    let (opened, _) = host.answer_to(&json!("open"));
    assert_eq!(opened["result"]["protocolVersion"], "2025-11-25");
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    host.send(&json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list" }));
    let (listed, _) = host.answer_to(&json!("list"));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert!(names.contains(&"delegate_task") && names.contains(&"work_next"), "{names:?}");
    host.tool("agent_register", json!({ "name": "Local", "description": "asks for work" }));
    let task =
        host.tool("delegate_task", json!({ "title": "Dig", "instructions": "Dig here.", "agent": "helper" }));
    let task = task["task_id"].clone();
    assert!(host.tool("task_status", json!({ "task_id": task }))["status"].is_string());
    let (code, rest, log) = host.end();
    assert_eq!((code, rest.len()), (Some(0), 0), "{log}");
    assert!(log.contains("ready"), "{log}");
    let line = |rpc: &str| {
        log.lines().find(|line| line.contains(&format!("rpc=\"{rpc}\"")) && line.contains("answered"))
    };
    for (rpc, about) in [("initialize", ""), ("tools/call", " session=")] {
        let line = line(rpc).unwrap_or_else(|| panic!("expected a line about {rpc}, found {log}"));
        assert!(line.contains(&format!("request{{face=\"mcp\" agent=\"local\" rpc=\"{rpc}\"")), "{line}");
        assert!(line.contains("duration_ms="), "{line}");
        assert!(
            about.is_empty() || log.contains(&format!("rpc=\"{rpc}\"{about}\"{}", task.as_str().unwrap())),
            "{log}"
        );
    }

    let mut helper = Host::embedded(&data, "helper");
    assert_eq!(json!(helper.work()), task);
    helper.tool("work_complete", json!({ "task_id": task, "text": "dug" }));
    assert_eq!(helper.end().0, Some(0));

    let mut host = Host::embedded(&data, "local");
    assert_eq!(host.ask("server/discover", json!({}))["supportedVersions"][0], "2026-07-28");
    let ended = host.tool("task_wait", json!({ "task_id": task }));
    assert!(ended.to_string().contains("dug"), "{ended}");
    assert_eq!(host.end().0, Some(0));
}

#[test]
fn a_signal_ends_it_and_frees_the_data() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let mut host = Host::embedded(dir.path(), "local");
        let id = host.begin("subscriptions/listen", json!({ "notifications": {} }), json!({}));
        assert_eq!(host.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
        host.signal(signal);
        let (code, rest, log) = host.wait();
        assert_eq!(code, Some(0), "{log}");
        // The client hears that its subscription is over, twice, as the revision wants it.
        assert_eq!((rest.len(), &rest[0]["method"]), (2, &json!("notifications/cancelled")), "{rest:?}");
        assert_eq!(rest[1]["id"], id);
    }
}

#[test]
fn a_bridge_ends_on_a_signal_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut host = Host::bridge(&server, "planner");
    host.ask("tools/list", json!({}));
    host.signal("TERM");
    let (code, rest, log) = host.wait();
    assert_eq!((code, rest.len()), (Some(0), 0), "{log}");
}

#[test]
fn data_that_a_server_has_is_reached_through_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let output = handover().args(["mcp", "--data"]).arg(dir.path()).output().unwrap();
    let (out, err) = said(&output);
    assert_eq!((output.status.code(), out), (Some(1), ""));
    assert!(err.contains("in use") && err.contains("--server"), "{err}");
    let mut host = Host::bridge(&server, "planner");
    assert_eq!(host.ask("server/discover", json!({}))["supportedVersions"][0], "2026-07-28");
}

#[test]
fn a_call_through_a_bridge_is_done_by_a_worker_elsewhere_and_can_be_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (mut planner, mut worker) = (Host::bridge(&server, "planner"), Host::bridge(&server, "worker"));
    let skill = json!({ "name": "dig", "description": "digs" });
    worker.tool("agent_register", json!({ "name": "W", "description": "digs", "skills": [skill] }));

    let call = json!({ "name": "dig", "arguments": {}, "_meta": { "progressToken": "p" } });
    let id = planner.begin("tools/call", call.clone(), json!({}));
    let task = worker.work();
    worker.tool("work_update", json!({ "task_id": task, "progress": 1, "total": 2, "message": "half" }));
    let told = planner.next().unwrap();
    assert_eq!(
        (&told["method"], &told["params"]["message"]),
        (&json!("notifications/progress"), &json!("half"))
    );
    worker.tool("work_complete", json!({ "task_id": task, "text": "dug" }));
    let (answer, told) = planner.answer_to(&id);
    assert_eq!((&answer["result"]["content"][0]["text"], told.len()), (&json!("dug"), 0), "{answer}");

    let id = planner.begin("tools/call", call, json!({}));
    let task = worker.work();
    planner.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }),
    );
    let orders = worker.tool("work_checkpoint", json!({ "task_id": task, "wait_ms": 60_000 }));
    assert_eq!(orders["ended"], true, "{orders}");
    let (code, rest, log) = planner.end();
    assert_eq!((code, rest.len()), (Some(0), 0), "{log}");
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let address = server.http().to_owned();
    let mut host = Host::bridge(&server, "planner");
    let task =
        host.tool("delegate_task", json!({ "title": "Dig", "instructions": "Dig.", "agent": "helper" }));
    let task = task["task_id"].clone();
    let listening = host.begin("subscriptions/listen", json!({ "notifications": {} }), json!({}));
    assert!(host.next().unwrap()["method"].is_string());
    server.kill();
    let (cut, told) = host.answer_to(&listening);
    assert!(told.is_empty(), "{told:?}");
    let why = cut["error"]["message"].as_str().unwrap();
    assert!(cut["error"]["code"].is_i64() && why.contains("went away"), "{cut}");
    let id = host.begin("tools/list", json!({}), json!({}));
    let (gone, _) = host.answer_to(&id);
    assert!(gone["error"]["message"].as_str().unwrap().contains("cannot be reached"), "{gone}");
    assert_eq!(gone["error"]["data"]["help"], handover_desk::codes::link("SERVER_UNREACHABLE"), "{gone}");

    let server = Server::start_at(dir.path(), &address);
    assert_eq!(host.tool("task_status", json!({ "task_id": task }))["task_id"], task);
    // A server that stops in order says so, and does not leave the call hanging either.
    let listening = host.begin("subscriptions/listen", json!({ "notifications": {} }), json!({}));
    assert!(host.next().unwrap()["method"].is_string());
    assert_eq!(server.stop(), Some(0));
    assert!(host.answer_to(&listening).0["result"].is_object());
    assert_eq!(host.end().0, Some(0));
}

#[test]
fn a_token_is_never_said() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let url = format!("http://{}", server.http());
    let mut host = Host::start(&["--server", &url, "--token", "hand_secret", "--log-level", "trace"], &[]);
    host.ask("tools/list", json!({}));
    server.kill();
    let id = host.begin("tools/list", json!({}), json!({}));
    host.answer_to(&id);
    let (_, _, log) = host.end();
    assert!(log.contains("ready") && !log.contains("hand_secret"), "{log}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_read() {
    for (args, words) in [
        (&["--server", "nowhere"][..], "expected the address of a server"),
        (&["--server", "https://me:pw@host"], "without a name"),
        (&["--token", "x"], "--server"),
        (&["--server", "http://127.0.0.1:1", "--data", "x"], "cannot be used with"),
        (&["--agent", "", "--data", "x"], "agent"),
        (&["--config", "/nowhere/at/all"], "configuration file"),
    ] {
        let output = handover().arg("mcp").args(args).output().unwrap();
        let (out, err) = said(&output);
        assert_eq!((output.status.code(), out), (Some(2), ""), "{args:?}");
        assert!(err.contains(words), "{args:?}: {err}");
    }
}
