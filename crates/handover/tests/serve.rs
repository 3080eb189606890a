//! The built binary, from its first line to its last.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use handover_server::face::macp::proto::v1::GetSessionRequest;
use handover_server::face::macp::proto::v1::macp_runtime_service_client::MacpRuntimeServiceClient;

/// `handover` without what the machine's environment says.
fn handover() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handover"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDOVER_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    handover().args(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A server that has said that it is ready, on a port of its own.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    ready: String,
}

impl Server {
    fn start(data: &Path, flags: &[&str]) -> Server {
        let mut child = handover()
            .args(["serve", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        Server { child, stdout, ready }
    }

    fn start_json(data: &Path) -> Server {
        Server::start(data, &["--json"])
    }

    /// Where a server that was started with `--json` says that it is.
    fn http(&self) -> String {
        let ready: serde_json::Value = serde_json::from_str(&self.ready).unwrap();
        ready["http"].as_str().unwrap().to_owned()
    }

    /// The same of what it serves to its operator.
    fn admin(&self) -> String {
        let ready: serde_json::Value = serde_json::from_str(&self.ready).unwrap();
        ready["admin"].as_str().unwrap().to_owned()
    }

    fn get(&self, path: &str) -> String {
        Server::get_at(&self.http(), path)
    }

    fn get_at(address: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// How it ended, and what else it wrote to standard output and to standard error.
    fn end(mut self) -> (ExitStatus, String, String) {
        let (mut rest, mut log) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap(), rest, log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Of a server that has ended nothing is left to kill.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn the_ready_line_says_where_http_and_the_data_are_and_which_identity_holds() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("made/when/missing");
    let server = Server::start(&data, &[]);
    let (address, rest) =
        server.ready.strip_prefix("handover is ready at http://").unwrap().split_once(',').unwrap();
    TcpStream::connect(address).unwrap();
    let (macp, rest) = rest.strip_prefix(" MACP at ").unwrap().split_once(',').unwrap();
    TcpStream::connect(macp).unwrap();
    let (admin, rest) = rest.strip_prefix(" admin at ").unwrap().split_once(',').unwrap();
    TcpStream::connect(admin).unwrap();
    let expected = format!(" data in {}, development identity (this machine only)\n", data.display());
    assert_eq!(rest, expected);
    assert!(data.is_dir());
}

#[test]
fn the_ready_line_in_json_is_one_object_and_the_only_output() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_json(dir.path());
    let address = server.http();
    let ready: serde_json::Value = serde_json::from_str(&server.ready).unwrap();
    let macp = ready["macp"].as_str().unwrap();
    assert!(!macp.ends_with(":0"), "{macp}");
    let admin = server.admin();
    let rest = format!("\"tls\":false,\"identity\":\"development\",\"admin\":\"{admin}\"");
    assert_eq!(
        server.ready,
        format!("{{\"ready\":true,\"http\":\"{address}\",\"macp\":\"{macp}\",{rest}}}\n")
    );
    assert!(!address.ends_with(":0"), "{address}");
    server.signal("TERM");
    assert_eq!(server.end().1, "");
}

#[test]
fn a_running_server_is_live_ready_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_json(dir.path());
    let live = server.get("/healthz");
    assert!(live.starts_with("HTTP/1.1 200 OK\r\n") && live.ends_with("\r\n\r\nok"), "{live}");
    let ready = server.get("/readyz");
    assert!(
        ready.starts_with("HTTP/1.1 200 OK\r\n") && ready.ends_with("\r\n\r\n{\"ready\":true}"),
        "{ready}"
    );
    assert!(server.get("/metrics").starts_with("HTTP/1.1 404 "), "metrics are for the operator");
    let admin = server.admin();
    let ready = Server::get_at(&admin, "/readyz");
    let ready: serde_json::Value = serde_json::from_str(ready.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(ready["checks"][0], serde_json::json!({ "name": "store", "ready": true }));
    assert!(Server::get_at(&admin, "/healthz").ends_with("\r\n\r\nok"));
    let metrics = Server::get_at(&admin, "/metrics");
    for line in [
        &format!("handover_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        "handover_http_requests_total{path=\"/readyz\",status=\"200\"} 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "expected {line}, found\n{metrics}");
    }
    assert!(metrics.contains("\nhandover_connections_open{listener=\"macp\"} 0\n"), "{metrics}");
    assert!(server.get("/nowhere").starts_with("HTTP/1.1 404 "));
}

#[test]
fn the_audit_log_is_in_the_data_directory_or_elsewhere_or_off() {
    let data = tempfile::tempdir().unwrap();
    let started = |file: &str| {
        let config = data.path().join("handover.toml");
        std::fs::write(&config, format!("[audit]\nfile = {file:?}\n")).unwrap();
        let server = Server::start(&data.path().join("d"), &["--config", config.to_str().unwrap()]);
        assert!(server.ready.starts_with("handover is ready"), "{:?}", server.ready);
        server.signal("TERM");
        assert!(server.end().0.success());
    };
    let (within, elsewhere) = (data.path().join("d/audit.jsonl"), data.path().join("elsewhere"));
    started("off");
    assert!(!within.exists());
    started(elsewhere.to_str().unwrap());
    assert!(elsewhere.exists() && !within.exists());
    started("auto");
    assert!(within.exists());
}

#[test]
fn a_signal_stops_the_server_in_order() {
    for signal in ["TERM", "INT"] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start_json(dir.path());
        let address = server.http();
        server.signal(signal);
        let (status, _, log) = server.end();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains(&format!("signal=\"SIG{signal}\"")) && log.contains("stopped"), "{log}");
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn a_connection_that_says_nothing_does_not_hold_up_the_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_json(dir.path());
    let mut silent = TcpStream::connect(server.http()).unwrap();
    // Connections are accepted in order: when this one is answered, the silent one has been accepted.
    server.get("/healthz");
    server.signal("TERM");
    let (status, _, log) = server.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("cut off"), "{log}");
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_second_signal_does_not_wait_for_what_is_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_json(dir.path());
    let mut unfinished = TcpStream::connect(server.http()).unwrap();
    unfinished.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    server.get("/healthz");
    server.signal("TERM");
    let mut log = BufReader::new(server.child.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("stopping: no new requests")));
    server.signal("INT");
    assert!(log.any(|line| line.unwrap().contains("stopping at once signal=\"SIGINT\"")));
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
}

/// A call of a MACP agent that is not anybody in this session.
fn call_macp(address: &str, trace: &str) {
    let call = async {
        let mut client = MacpRuntimeServiceClient::connect(format!("http://{address}")).await.unwrap();
        let mut request = tonic::Request::new(GetSessionRequest { session_id: "s-1".to_owned() });
        request.metadata_mut().insert("authorization", "Bearer analyst".parse().unwrap());
        request.metadata_mut().insert("traceparent", trace.parse().unwrap());
        client.get_session(request).await.unwrap_err();
    };
    tokio::runtime::Runtime::new().unwrap().block_on(call);
}

#[test]
fn signals_make_the_log_say_more_and_then_again_what_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_json(dir.path());
    let mut log = BufReader::new(server.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let changed_to = |level: &str| format!("the level of the log has changed signal=\"SIGUSR{level}");
    server.get("/nowhere");
    server.signal("USR1");
    let before: Vec<String> =
        log.by_ref().take_while(|line| !line.contains(&changed_to("1\" level=Debug"))).collect();
    assert!(!before.iter().any(|line| line.contains("answered")), "{before:?}");

    // Other lines may be in between, as of connections.
    let mut next = || log.find(|line| line.contains("answered") || line.contains("changed")).unwrap();
    server.get("/nowhere");
    let line = next();
    assert!(line.contains("DEBUG request{code=\"NOT_FOUND\"}: "), "{line}");
    assert!(line.contains("answered route=\"other\" method=GET status=404 duration_ms="), "{line}");

    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/none","params":{}}"#;
    let mut stream = TcpStream::connect(server.http()).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer planner\r\n\
         content-type: application/json\r\nmcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream.read_to_string(&mut String::new()).unwrap();
    let line = next();
    assert!(
        line.contains("request{face=\"mcp\" agent=\"planner\" rpc=\"tools/none\" code=-32601}: "),
        "{line}"
    );
    assert!(line.contains("answered route=\"/mcp\" method=POST status=404 duration_ms="), "{line}");

    let ready: serde_json::Value = serde_json::from_str(&server.ready).unwrap();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    call_macp(ready["macp"].as_str().unwrap(), &format!("00-{trace}-00f067aa0ba902b7-01"));
    let line = next();
    let asked = "request{face=\"macp\" rpc=\"macp.v1.MACPRuntimeService/GetSession\" agent=\"analyst\" session=\"s-1\" \
                 code=\"SESSION_NOT_FOUND\"}: ";
    assert!(line.contains(asked), "{line}");
    assert!(line.contains("answered status=NotFound duration_ms="), "{line}");
    assert!(line.ends_with(&format!(" trace=\"{trace}\"")), "{line}");

    server.signal("USR2");
    let line = next();
    assert!(line.contains(&changed_to("2\" level=Info")), "{line}");
    server.get("/nowhere");
    server.signal("TERM");
    let after: Vec<String> = log.collect();
    assert!(!after.is_empty() && !after.iter().any(|line| line.contains("answered")), "{after:?}");
}

#[test]
fn a_second_server_on_the_same_data_fails_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start_json(dir.path());
    let second = Server::start_json(dir.path());
    assert_eq!(second.ready, "");
    let (status, _, log) = second.end();
    assert_eq!(status.code(), Some(1), "{log}");
    let message = format!("the data directory {} is in use by another process\n", dir.path().display());
    assert!(log.starts_with("error: ") && log.ends_with(&message), "{log}");
    assert!(first.get("/readyz").starts_with("HTTP/1.1 200 "), "the first goes on");
}

#[test]
fn the_data_can_be_served_again_after_a_server_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start_json(dir.path());
    first.signal("KILL");
    first.end();
    let second = Server::start_json(dir.path());
    assert!(second.get("/readyz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_port_that_is_taken_is_a_failure_that_names_the_address() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = dir.path().join("data");
    let output = run(&["serve", "--data", data.to_str().unwrap(), "--http", &address]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("error: listening on {address} (port 0 takes a free one: --http 127.0.0.1:0): ");
    assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
}

#[test]
fn a_wrong_value_of_a_flag_is_refused_with_what_was_expected_and_found() {
    for (args, message) in [
        (
            ["--log-format", "xml"],
            "log.format (flag --log-format): expected one of text, json, found \"xml\"",
        ),
        (
            ["--log-level", "loud"],
            "log.level (flag --log-level): expected one of error, warn, info, debug, trace, found \"loud\"",
        ),
        (
            ["--macp", "nowhere"],
            "macp (flag --macp): expected an address with a port, such as 127.0.0.1:8420, found \"nowhere\"",
        ),
        (
            ["--config", "/no/such/file"],
            "file /no/such/file: expected a configuration file, found: No such file or directory (os error 2)",
        ),
    ] {
        let output = run(&[&["serve"], &args[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stderr(&output), format!("error: {message}\n"));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn an_address_that_others_can_reach_is_refused_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for flag in ["--http", "--macp"] {
        let output = run(&["serve", "--data", data.to_str().unwrap(), flag, "0.0.0.0:0"]);
        assert_eq!(output.status.code(), Some(2));
        let message = stderr(&output);
        let key = &flag[2..];
        let expected =
            format!("error: {key}: 0.0.0.0:0 can be reached from other machines: set identity.tokens or ");
        assert!(message.starts_with(&expected), "{message}");
        assert!(message.contains(", and tls.certificate and tls.key ("), "{message}");
        assert!(message.ends_with("; or listen on 127.0.0.1:0\n"), "{message}");
    }
    assert!(!data.exists());
}

#[test]
fn an_unknown_flag_or_command_is_refused() {
    for args in [&["serve", "--port", "80"][..], &["server"], &[]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn the_printed_configuration_merges_all_sources_and_can_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("handover.toml");
    std::fs::write(&file, "[engine]\nshards = 8\n").unwrap();
    let data = dir.path().join("data");
    let mut command = handover();
    command.args(["serve", "--print-config", "--data"]).arg(&data);
    command.env("HANDOVER_CONFIG", &file).env("HANDOVER_LOG_LEVEL", "warn");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let first = stdout(&output);
    for line in [
        format!("data = \"{}\" # flag --data", data.display()),
        "level = \"warn\" # environment HANDOVER_LOG_LEVEL".to_owned(),
        format!("shards = 8 # file {}", file.display()),
        "idle_seconds = 60 # default".to_owned(),
    ] {
        assert!(first.lines().any(|found| found == line), "expected {line}, found\n{first}");
    }
    assert!(!data.exists(), "printing opens nothing");

    std::fs::write(&file, first).unwrap();
    let again = run(&["serve", "--print-config", "--config", file.to_str().unwrap()]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(values(first), values(stdout(&again)));
}

#[test]
fn help_shows_examples_and_version_the_release() {
    let help = run(&["serve", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("Examples:\n  handover serve\n"), "{}", stdout(&help));
    // With the commit that it was built from, where that can be known.
    let version = run(&["--version"]);
    let version = stdout(&version).strip_prefix(concat!("handover ", env!("CARGO_PKG_VERSION"))).unwrap();
    let git = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
    let commit = git.ok().filter(|git| git.status.success()).map(|git| stdout(&git).trim().to_owned());
    match version.strip_prefix(" (").and_then(|commit| commit.strip_suffix(")\n")) {
        Some(found) => assert!(commit.unwrap().starts_with(found), "{found}"),
        None => assert_eq!((version, commit), ("\n", None)),
    }
}
