//! The built binary on a PostgreSQL: `--store`, and the commands for those who run several nodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;
#[path = "../../store/tests/postgres/mod.rs"]
mod database;
mod golden;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use handover_store::{Put, Record, SqliteStore, Store};

use self::binary::{handover, said};

/// How soon a node counts as gone.
const LEASE: Duration = Duration::from_secs(2);

/// A schema of its own, as the environment names it.
struct There {
    url: String,
    schema: String,
}

impl There {
    fn new() -> Option<There> {
        Some(There { url: database::url()?, schema: database::fresh() })
    }

    fn command(&self) -> Command {
        let mut command = handover();
        command.env("HANDOVER_STORE_SCHEMA", &self.schema);
        command.env("HANDOVER_STORE_LEASE_SECONDS", LEASE.as_secs().to_string());
        command
    }

    /// Run a command on it.
    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).args(["--store", &self.url]).output().unwrap()
    }

    /// The same of one that is to go well, and what it printed.
    fn ran(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output).1);
        said(&output).0.to_owned()
    }

    fn nodes(&self) -> Vec<serde_json::Value> {
        let told: serde_json::Value = serde_json::from_str(&self.ran(&["nodes", "--json"])).unwrap();
        assert!(told["version"].is_number(), "{told}");
        told["nodes"].as_array().unwrap().clone()
    }

    fn serve(&self, name: &str) -> Node {
        let data = tempfile::tempdir().unwrap();
        let mut command = self.command();
        command.env("HANDOVER_STORE_NODE", name).env("HANDOVER_DRAIN_SECONDS", "0");
        command.args(["serve", "--json", "--store", &self.url, "--data"]).arg(data.path());
        command.args(["--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        Node { child, ready, _data: data }
    }

    /// The URL with a password in it.
    fn with_password(&self) -> String {
        self.url.replace("handover@", "handover:hunter2@")
    }
}

/// A server on it.
struct Node {
    child: Child,
    ready: String,
    _data: tempfile::TempDir,
}

impl Node {
    fn ready(&self) -> serde_json::Value {
        serde_json::from_str(&self.ready).unwrap()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// How it ended, and its log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Of a node that has ended nothing is left to kill.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn nodes_are_listed_with_what_became_of_them() {
    let Some(there) = There::new() else { return };
    assert_eq!(there.ran(&["migrate"]), format!("{} has its tables now\n", at(&there)));
    assert_eq!(there.ran(&["migrate"]), format!("{} is as this release wants it\n", at(&there)));
    assert_eq!(there.ran(&["nodes"]), "no node is there\n");
    let (one, two) = (there.serve("node-a"), there.serve("node-b"));
    let table = there.ran(&["nodes"]);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(lines[0], ["NAME", "STATE", "VERSION", "SLOT", "SEEN", "BEHIND"]);
    for (line, name, slot) in [(&lines[1], "node-a", "0"), (&lines[2], "node-b", "1")] {
        assert_eq!(line[..4], [name, "live", env!("CARGO_PKG_VERSION"), slot], "{table}");
        assert!(line[4].ends_with(" s ago") && line[5].parse::<u64>().is_ok(), "{table}");
    }
    let states = || {
        let nodes = there.nodes();
        let state = |node: &serde_json::Value| {
            let text = |key: &str| node[key].as_str().unwrap().to_owned();
            assert!(node["seenMsAgo"].is_u64() && node["behind"].is_u64(), "{node}");
            assert_eq!(text("version"), env!("CARGO_PKG_VERSION"));
            (text("name"), text("state"), node["slot"].as_u64().unwrap())
        };
        nodes.iter().map(state).collect::<Vec<_>>()
    };
    let is = |name: &str, state: &str, slot| (name.to_owned(), state.to_owned(), slot);
    assert_eq!(states(), [is("node-a", "live", 0), is("node-b", "live", 1)]);
    // One that is killed is lost once its lease is over; one that ends by itself gives back its slot at once.
    one.signal("KILL");
    until("it is lost", || states() == [is("node-a", "lost", 0), is("node-b", "live", 1)]);
    two.signal("TERM");
    assert_eq!(two.end().0, Some(0));
    assert_eq!(states(), [is("node-a", "lost", 0)]);
    let next = there.serve("node-c");
    assert_eq!(states(), [is("node-c", "live", 0)], "the next takes the slot of the lost one");
    next.signal("TERM");
    assert_eq!(next.end().0, Some(0));
    assert_eq!(there.ran(&["nodes"]), "no node is there\n");
}

/// What the commands call it.
fn at(there: &There) -> String {
    format!("the schema {} of {}", there.schema, there.url.replace("handover@", ""))
}

#[test]
fn a_node_says_where_its_data_is_and_never_the_password() {
    let Some(there) = There::new() else { return };
    let node = there.serve("node-a");
    let shown = there.url.replace("handover@", "");
    let about = format!("{shown}, slot 0 as node-a, no synchronous standby");
    assert!(node.ready.contains(&about), "{}", node.ready);
    let admin = node.ready()["admin"].as_str().unwrap().to_owned();
    let (status, detail) = binary::get_at(&admin, "/readyz");
    let detail: serde_json::Value = serde_json::from_str(&detail).unwrap();
    let store = detail["checks"].as_array().unwrap().iter().find(|check| check["name"] == "store").unwrap();
    assert_eq!((status, store["ready"].as_bool()), (200, Some(true)), "{detail}");
    assert_eq!(store["about"], about.as_str(), "{detail}");
    drop(node);
    for command in [&["serve"][..], &["nodes"], &["migrate"], &["rebuild"], &["export", "never.jsonl"]] {
        let refused =
            there.command().args(command).args(["--store", &there.with_password()]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{command:?}");
        let (out, error) = said(&refused);
        assert!(
            error.contains("expected a URL without a password") && error.contains("HANDOVER_STORE"),
            "{error}"
        );
        assert!(!out.contains("hunter2") && !error.contains("hunter2"), "{out}{error}");
    }
    // From the environment it is taken, and not shown.
    let given = there.command().arg("nodes").env("HANDOVER_STORE", there.with_password()).output().unwrap();
    assert_eq!(given.status.code(), Some(0), "{}", said(&given).1);
    let printed = there
        .command()
        .args(["serve", "--print-config"])
        .env("HANDOVER_STORE", there.with_password())
        .output()
        .unwrap();
    let (out, error) = said(&printed);
    assert!(
        out.contains("postgres://handover@") && !out.contains("hunter2") && !error.contains("hunter2"),
        "{out}"
    );
}

#[test]
fn tables_that_are_not_there_are_made_unless_somebody_else_is_to_make_them() {
    let Some(there) = There::new() else { return };
    let data = tempfile::tempdir().unwrap();
    let mut command = there.command();
    command.env("HANDOVER_STORE_MIGRATE", "false").args(["serve", "--store", &there.url, "--data"]);
    let refused =
        command.arg(data.path()).args(["--http", "127.0.0.1:0", "--macp", "127.0.0.1:0"]).output().unwrap();
    let (_, error) = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(
        error.contains("expected the tables of this release") && error.contains("handover migrate"),
        "{error}"
    );
}

#[test]
fn sessions_move_from_a_directory_to_a_database_and_back() {
    let Some(there) = There::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (before, between, after) = (text("before.jsonl"), text("between.jsonl"), text("after.jsonl"));
    let count = golden::put_logs(&SqliteStore::open(&dir.path().join("old")).unwrap());
    assert!(count >= 10);
    let in_directory = |args: &[&str], data: &str| {
        let output = handover().args(args).args(["--data", data]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output).1);
    };
    in_directory(&["export", &before], &text("old"));
    there.ran(&["import", &before]);
    let again = there.ran(&["import", &before]);
    assert!(again.contains(&count.to_string()), "what is there is left as it is: {again}");
    there.ran(&["export", &between]);
    in_directory(&["import", &between], &text("new"));
    in_directory(&["export", &after], &text("new"));
    let read = |file: &str| std::fs::read_to_string(file).unwrap();
    assert_eq!(read(&before).lines().count(), 2 * count + 2);
    assert_eq!((read(&between), read(&after)), (read(&before), read(&before)));
}

/// A command of an agent at a server.
fn of_agent(http: &str, agent: &str, args: &[&str]) -> Output {
    let url = format!("http://{http}");
    handover().args(args).env("HANDOVER_SERVER", url).env("HANDOVER_TOKEN", agent).output().unwrap()
}

/// What it printed, and how it ended.
fn told(output: &Output) -> (Option<i32>, String) {
    let (out, error) = said(output);
    (output.status.code(), format!("{out}{error}"))
}

/// The names of all tools that are some agent's, with what each does.
fn tools(http: &str) -> Vec<String> {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let mut stream = TcpStream::connect(http).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ops\r\nconnection: close\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2025-06-18\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let json = &answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()];
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let tools = json["result"]["tools"].as_array().unwrap().iter();
    let own = tools.filter(|tool| tool["description"].as_str().unwrap().contains("a skill of"));
    own.map(|tool| format!("{} {}", tool["name"], tool["description"])).collect()
}

/// All records of a store that an archive takes.
fn records(store: &dyn Store) -> Vec<Record> {
    let spaces = store.spaces().unwrap();
    let taken = spaces.iter().filter(|(space, _)| !["signin", "directory", "announce"].contains(&&**space));
    taken.flat_map(|(space, tenant)| store.records(space, tenant, None, 1000).unwrap()).collect()
}

#[test]
fn everything_that_means_something_elsewhere_moves_from_a_directory_to_a_database_and_back() {
    let Some(there) = There::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let server = binary::Server::start(&dir.path().join("old"));
    let skills = text("skills.json");
    // In this order, which is not that of their ids, they get the names of their tools.
    for (agent, what) in [("zoe", "a skill of zoe"), ("ada", "a skill of ada")] {
        std::fs::write(&skills, format!(r#"[{{"name":"review","description":"{what}"}}]"#)).unwrap();
        let registered = ["agent", "register", agent, "Reviews", "--skills", &skills];
        assert_eq!(of_agent(server.http(), agent, &registered).status.code(), Some(0));
    }
    let named = tools(server.http());
    assert_eq!(named.len(), 2, "{named:?}");
    let send = |http: &str, key: &str| {
        told(&of_agent(http, "ops", &["task", "send", "--queue", "--to", "ada", "--key", key, "read it"]))
    };
    let ended = send(server.http(), "ended").1;
    assert_eq!(of_agent(server.http(), "ops", &["task", "cancel", ended.trim()]).status.code(), Some(0));
    assert_eq!(server.stop(), Some(0));
    // Retention deletes what has ended.
    {
        let store = SqliteStore::open(&dir.path().join("old")).unwrap();
        assert_eq!(store.delete_finished(u64::MAX, 1 << 42, 10).unwrap().len(), 1);
        for (space, tenant, key) in [("policy", "acme", "fair"), ("keys", "acme", "ada"), ("key", "", "n")] {
            let record =
                Record { space: space.into(), tenant: tenant.into(), key: key.into(), value: vec![0, 255] };
            store.put_record(&record, Put::Replace).unwrap();
        }
        for space in ["signin", "announce"] {
            let record = Record { space: space.into(), tenant: "".into(), key: "x".into(), value: vec![1] };
            store.put_record(&record, Put::Replace).unwrap();
        }
    }
    let server = binary::Server::start(&dir.path().join("old"));
    let (begun, gone) = (send(server.http(), "begun"), send(server.http(), "ended"));
    assert_eq!(begun.0, Some(0), "{begun:?}");
    assert!(gone.1.contains("SESSION_EXISTS"), "the id of what was deleted is taken: {gone:?}");
    assert_eq!(server.stop(), Some(0));

    let in_directory = |args: &[&str], data: &str| {
        let output = handover().args(args).args(["--data", data]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output).1);
        said(&output).0.to_owned()
    };
    let (before, after) = (text("before.jsonl"), text("after.jsonl"));
    let told_of = in_directory(&["export", &before], &text("old"));
    for part in ["1 sessions", "1 ids of deleted sessions", "agents: 2", "secret for derived ids: 1"] {
        assert!(told_of.contains(part), "{told_of}");
    }
    assert!(told_of.contains("left out: places of webhooks: 1, sign-ins: 1, versions"), "{told_of}");
    let mode = std::fs::metadata(&before).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has secrets");
    let moved = there.ran(&["import", &before]);
    assert!(moved.contains("1 ids of deleted sessions: 1 new"), "{moved}");

    let node = there.serve("node-a");
    let http = node.ready()["http"].as_str().unwrap().to_owned();
    assert_eq!(send(&http, "begun"), begun, "sent again it is the same task");
    let counted = told(&of_agent(&http, "ops", &["task", "list", "--json"])).1;
    assert_eq!(counted.matches("\"task_id\"").count(), 1, "{counted}");
    assert!(send(&http, "ended").1.contains("SESSION_EXISTS"));
    assert_eq!(tools(&http), named);
    let refused = there.run(&["export", &after]);
    assert!(said(&refused).1.contains("found node-a: stop it first"), "{refused:?}");
    node.signal("TERM");
    assert_eq!(node.end().0, Some(0));

    there.ran(&["export", &after]);
    let read = |file: &str| std::fs::read_to_string(file).unwrap();
    assert_eq!(read(&after), read(&before));
    in_directory(&["import", &after], &text("new"));
    let [old, new] = ["old", "new"].map(|name| SqliteStore::open(&dir.path().join(name)).unwrap());
    assert_eq!(records(&new), records(&old));
    assert_eq!(new.tombstones(None, 10).unwrap(), old.tombstones(None, 10).unwrap());
}

#[test]
fn while_a_node_is_there_nothing_is_rebuilt() {
    let Some(there) = There::new() else { return };
    let node = there.serve("node-a");
    let refused = there.run(&["rebuild"]);
    let (_, error) = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains("expected that no node is there, found node-a: stop it first"), "{error}");
    node.signal("TERM");
    assert_eq!(node.end().0, Some(0));
    assert_eq!(there.ran(&["rebuild"]), "the index of 0 sessions was made again\n");
}
