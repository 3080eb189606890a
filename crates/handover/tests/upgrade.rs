//! A server of this release on the data of every one before: everything is as it was, and goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::path::{Path, PathBuf};

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

/// The data that an earlier schema left, in a directory of its own.
fn kept(schema: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(schema);
    std::fs::copy(kept.join("handover.db"), data.join("handover.db")).unwrap();
    (dir, data)
}

fn state(server: &Server, agent: &str, task: &str) -> String {
    said(server, agent, &["task", "show", task])["task"]["state"].as_str().unwrap().to_owned()
}

#[test]
fn data_of_the_release_before_goes_on() {
    let (_dir, data) = kept("schema-5");
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

/// What `schema-1`, and what was made of it by the schemas after it, has of planner and of builder, and how each stands.
const OF_SCHEMA_1: [(&str, &str, &str); 10] = [
    ("planner", "f6579cda", "requested"),
    ("planner", "cad5a373", "working"),
    ("planner", "44129980", "waiting"),
    ("planner", "52732bc2", "working"),
    ("planner", "83c87def", "completed"),
    ("planner", "688f7dca", "cancelled"),
    ("planner", "c6b1a573", "rejected"),
    ("planner", "bf311412", "working"),
    ("planner", "94421ebf", "working"),
    ("builder", "94421ebf", "working"),
];

/// Every schema whose data somebody may have. `tests/data/README.md` says why there is no third.
const KEPT: [&str; 4] = ["schema-1", "schema-2", "schema-4", "schema-5"];

#[test]
fn data_of_every_release_before_opens_is_whole_and_goes_on() {
    let all = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data")).unwrap();
    let directories = all.map(|entry| entry.unwrap()).filter(|entry| entry.file_type().unwrap().is_dir());
    let mut schemas: Vec<String> =
        directories.map(|entry| entry.file_name().into_string().unwrap()).collect();
    schemas.sort();
    assert_eq!(schemas, KEPT);
    for schema in schemas {
        let (_dir, data) = kept(&schema);
        // Nothing is served before everything is replayed.
        let rebuilt = handover().args(["rebuild", "--data"]).arg(&data).output().unwrap();
        assert!(rebuilt.status.success(), "{schema}: {rebuilt:?}");
        let server = Server::start(&data);
        let listed = |agent: &str| {
            let found = said(&server, agent, &["task", "list"]);
            found["tasks"].as_array().unwrap().len()
        };
        let before = listed("planner");
        assert!(before >= 3, "{schema}");
        if schema != "schema-5" {
            let found = OF_SCHEMA_1.map(|(agent, task, _)| (agent, task, state(&server, agent, task)));
            let expected = OF_SCHEMA_1.map(|(agent, task, state)| (agent, task, state.to_owned()));
            assert_eq!(found, expected, "{schema}");
            said(&server, "builder", &["task", "complete", "cad5a373", "--result", "done"]);
            said(&server, "planner", &["task", "answer", "44129980", "red"]);
            assert_eq!(state(&server, "planner", "44129980"), "working", "{schema}");
        }
        said(&server, "planner", &["task", "send", "--to", "newcomer", "--queue", "new", "go on"]);
        assert_eq!(server.stop(), Some(0), "{schema}");
        let server = Server::start(&data);
        let found = said(&server, "planner", &["task", "list"]);
        assert_eq!(found["tasks"].as_array().unwrap().len(), before + 1, "{schema}: {found}");
    }
}
