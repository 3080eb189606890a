//! A server of this release on the data of every one before: everything is as it was, and goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::path::{Path, PathBuf};
use std::process::Command;

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
    let left = file_of(schema, "left.tar.gz");
    if left.exists() {
        let unpacked = Command::new("tar").arg("-xzf").arg(left).arg("-C").arg(&data).status();
        assert!(unpacked.unwrap().success());
    } else {
        std::fs::copy(file_of(schema, "handover.db"), data.join("handover.db")).unwrap();
    }
    (dir, data)
}

/// A file that is kept of a schema.
fn file_of(schema: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(schema).join(name)
}

/// Run a command that must do what it is meant for.
fn done(arguments: &[&str]) {
    let output = handover().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn states<const N: usize>(server: &Server, tasks: [(&str, &str, &str); N]) -> Vec<String> {
    tasks.map(|(agent, task, _)| state(server, agent, task)).to_vec()
}

/// How tasks of a list are said to stand there.
fn expected<const N: usize>(tasks: [(&str, &str, &str); N]) -> Vec<String> {
    tasks.map(|(_, _, state)| state.to_owned()).to_vec()
}

fn state(server: &Server, agent: &str, task: &str) -> String {
    said(server, agent, &["task", "show", task])["task"]["state"].as_str().unwrap().to_owned()
}

/// What `schema-5` has, of whom, and how each stands.
const OF_SCHEMA_5: [(&str, &str, &str); 5] = [
    ("planner", "912baa33", "waiting"),
    ("helper", "629f2010", "working"),
    ("planner", "7734cf28", "requested"),
    ("planner", "8accf0e2", "waiting"),
    ("planner", "e1f35b8c", "completed"),
];

#[test]
fn data_of_the_release_before_goes_on() {
    let (_dir, data) = kept("schema-5");
    let server = Server::start(&data);
    assert_eq!(states(&server, OF_SCHEMA_5), expected(OF_SCHEMA_5));
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

/// The same of `schema-5-killed`.
const OF_SCHEMA_5_KILLED: [(&str, &str, &str); 7] = [
    ("planner", "b49e5c15", "waiting"),
    ("helper", "926ca706", "working"),
    ("planner", "ad3c95aa", "completed"),
    ("lead", "5d141af9", "waiting"),
    ("builder", "fbe9995f", "working"),
    ("planner", "27d93760", "paused"),
    ("builder", "2b141f15", "working"),
];

#[test]
fn what_a_killed_server_left_is_whole_and_goes_on() {
    let (_dir, data) = kept("schema-5-killed");
    let server = Server::start(&data);
    assert_eq!(states(&server, OF_SCHEMA_5_KILLED), expected(OF_SCHEMA_5_KILLED));
    // The last updates were in the journal alone.
    let shown = said(&server, "planner", &["task", "show", "2b141f15"]);
    let told = shown["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "updated");
    let told: Vec<&str> = told.map(|event| event["detail"]["message"].as_str().unwrap()).collect();
    assert_eq!(told, (0..20).map(|post| format!("post {post}")).collect::<Vec<_>>());
    let handoffs = said(&server, "helper", &["handoff", "list"]);
    assert_eq!(handoffs["handoffs"][0]["status"], "offered", "{handoffs}");

    said(&server, "planner", &["task", "answer", "b49e5c15", "two metres"]);
    said(&server, "planner", &["task", "resume", "27d93760"]);
    said(&server, "builder", &["task", "complete", "2b141f15", "--result", "a fence"]);
    said(&server, "lead", &["task", "approve", "5d141af9"]);
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(&data);
    for (task, expected) in [("b49e5c15", "working"), ("27d93760", "working"), ("2b141f15", "completed")] {
        assert_eq!(state(&server, "planner", task), expected, "{task}");
    }
}

#[test]
fn a_backup_and_an_archive_of_an_earlier_release_can_be_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (restored, imported) = (dir.path().join("restored"), dir.path().join("imported"));
    // A backup is the database of the release that made it.
    done(&["restore", text(&file_of("schema-4", "handover.db")), "--data", text(&restored)]);
    let server = Server::start(&restored);
    assert_eq!(states(&server, OF_SCHEMA_1), expected(OF_SCHEMA_1));
    drop(server);
    done(&["import", text(&file_of("schema-5", "sessions.jsonl")), "--data", text(&imported)]);
    let server = Server::start(&imported);
    assert_eq!(states(&server, OF_SCHEMA_5), expected(OF_SCHEMA_5));
    said(&server, "planner", &["task", "answer", "912baa33", "left"]);
    assert_eq!(state(&server, "planner", "912baa33"), "working");
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
const KEPT: [&str; 5] = ["schema-1", "schema-2", "schema-4", "schema-5", "schema-5-killed"];

#[test]
fn data_of_every_release_before_opens_is_whole_and_goes_on() {
    let all = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data")).unwrap();
    let directories = all.map(|entry| entry.unwrap()).filter(|entry| entry.file_type().unwrap().is_dir());
    let mut schemas: Vec<String> =
        directories.map(|entry| entry.file_name().into_string().unwrap()).collect();
    schemas.sort();
    assert_eq!(schemas, KEPT);
    for (schema, is_rebuilt) in schemas.iter().flat_map(|schema| [(schema, false), (schema, true)]) {
        let (_dir, data) = kept(schema);
        if is_rebuilt {
            // Nothing is served before everything is replayed.
            done(&["rebuild", "--data", text(&data)]);
        }
        let server = Server::start(&data);
        let listed = |agent: &str| {
            let found = said(&server, agent, &["task", "list"]);
            found["tasks"].as_array().unwrap().len()
        };
        let before = listed("planner");
        assert!(before >= 3, "{schema}");
        if !schema.starts_with("schema-5") {
            assert_eq!(states(&server, OF_SCHEMA_1), expected(OF_SCHEMA_1), "{schema}");
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
