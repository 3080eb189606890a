//! A server of this release on the data of the one before: everything is as it was, and goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::path::Path;

use binary::{Server, handover};
use serde_json::Value;

/// What a command says to programs.
fn said(server: &Server, agent: &str, arguments: &[&str]) -> Value {
    let mut command = handover();
    command.env("HANDOVER_SERVER", format!("http://{}", server.http())).env("HANDOVER_TOKEN", agent);
    let output = command.args(arguments).arg("--json").output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

fn state(server: &Server, agent: &str, task: &str) -> String {
    said(server, agent, &["task", "show", task])["task"]["state"].as_str().unwrap().to_owned()
}

#[test]
fn data_of_the_release_before_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/schema-5/handover.db");
    std::fs::copy(kept, data.join("handover.db")).unwrap();
    let server = Server::start(&data);
    let states = ["912baa33", "629f2010", "7734cf28", "8accf0e2", "e1f35b8c"];
    let found =
        states.map(|task| state(&server, if task == "629f2010" { "helper" } else { "planner" }, task));
    assert_eq!(found, ["waiting", "working", "requested", "waiting", "completed"]);
    let handoffs = said(&server, "helper", &["handoff", "list"]);
    assert_eq!(handoffs["handoffs"][0]["status"], "offered", "{handoffs}");

    said(&server, "planner", &["task", "answer", "912baa33", "left"]);
    assert_eq!(state(&server, "planner", "912baa33"), "working");
    said(&server, "helper", &["task", "complete", "629f2010", "--result", "a part"]);
    assert_eq!(state(&server, "builder", "629f2010"), "completed");
    said(&server, "planner", &["task", "complete", "8accf0e2"]);
    assert_eq!(state(&server, "planner", "8accf0e2"), "completed");
    let replayed = said(&server, "planner", &["task", "show", "7734cf28"]);
    let kinds: Vec<&str> =
        replayed["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"fell_silent"), "{kinds:?}");
}
