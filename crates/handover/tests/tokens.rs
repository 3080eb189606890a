//! The built binary while its static tokens change, and what SIGHUP does to it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use self::binary::{handover, said};

/// How long anything may take before a play has failed: long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose log is kept.
struct Server {
    child: Child,
    http: String,
    log: PathBuf,
}

impl Server {
    fn start(dir: &Path, settings: &[(&str, &str)]) -> Server {
        let log = dir.join("log");
        let mut child = spawn(dir, settings, &log);
        let http = ready(child.stdout.take().unwrap());
        Server { child, http, log }
    }

    /// Wait until the log says this so many times.
    fn until_logged(&self, what: &str, times: usize) {
        let began = Instant::now();
        while fs::read_to_string(&self.log).unwrap().matches(what).count() < times {
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what:?}:\n{}", self.logged());
            std::thread::yield_now();
        }
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The status of a request with this token.
    fn status(&self, token: &str) -> u16 {
        let mut answer = String::new();
        let mut stream =
            self.post(token, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "connection: close\r\n");
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn post(&self, token: &str, body: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n{headers}\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    fn hang_up(&self) {
        signal(&self.child, "HUP");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn spawn(dir: &Path, settings: &[(&str, &str)], log: &Path) -> Child {
    let mut command = handover();
    command.args(["serve", "--json", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--data"]);
    command
        .arg(dir.join("data"))
        .envs(settings.iter().map(|(name, value)| (format!("HANDOVER_{name}"), value)));
    command.stdout(Stdio::piped()).stderr(fs::File::create(log).unwrap()).spawn().unwrap()
}

fn ready(stdout: ChildStdout) -> String {
    let mut ready = String::new();
    BufReader::new(stdout).read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    ready["http"].as_str().unwrap().to_owned()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

/// Make a token of an agent in a file, and say it.
fn token(file: &Path, agent: &str, more: &[&str]) -> String {
    let mut command = handover();
    let output = command.args(["token", "--agent", agent, "--file"]).arg(file).args(more).output().unwrap();
    let (entry, shown) = said(&output);
    assert!(output.status.success() && entry.is_empty(), "{entry} {shown}");
    shown.trim().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn tokens_come_and_go_while_the_server_runs_and_a_wrong_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let planner = token(&file, "planner", &[]);
    let long = ("IDENTITY_TOKENS_RELOAD_SECONDS", "86400");
    let server = Server::start(dir.path(), &[("IDENTITY_TOKENS", file.to_str().unwrap()), long]);
    assert_eq!(server.status(&planner), 200);

    // Only the signal makes it read the file here.
    let worker = token(&file, "worker", &["--expires", "30d"]);
    assert_eq!(server.status(&worker), 401);
    server.hang_up();
    server.until_logged("read the file of identity.tokens again", 1);
    assert_eq!((server.status(&worker), server.status(&planner)), (200, 200));

    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}[[token]]\nsha256 = \"no-hash-but-maybe-a-secret\"\n")).unwrap();
    server.hang_up();
    server.until_logged("the old tokens stay", 1);
    server.hang_up();
    server.until_logged("SIGHUP", 3);
    assert_eq!((server.status(&worker), server.status(&planner)), (200, 200));
    fs::remove_file(&file).unwrap();
    server.hang_up();
    server.until_logged("the old tokens stay", 2);
    assert_eq!(server.status(&planner), 200);

    fs::write(&file, good).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let args = ["token", "revoke", "--agent", "worker", "--file"];
    let output = handover().args(args).arg(&file).output().unwrap();
    assert_eq!(said(&output), ("1 token was revoked\n", ""));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "it keeps its mode");
    server.hang_up();
    server.until_logged("read the file of identity.tokens again", 2);
    assert_eq!((server.status(&worker), server.status(&planner)), (401, 200));
    let logged = server.logged();
    assert!(!logged.contains("maybe-a-secret") && !logged.contains(&worker), "{logged}");
    assert_eq!(logged.matches("the old tokens stay").count(), 2, "once for each way: {logged}");
}

#[test]
fn a_token_can_have_every_profile_that_the_server_knows() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let profiles = ["all", "requester", "worker", "conversation"];
    let tokens = profiles.map(|profile| token(&file, profile, &["--profile", profile]));
    let server = Server::start(dir.path(), &[("HANDOVER_IDENTITY_TOKENS", file.to_str().unwrap())]);
    for token in tokens {
        assert_eq!(server.status(&token), 200);
    }
}

/// Of another group than root's, which the system need not know.
const GROUP: u32 = 61_001;

#[test]
fn a_token_file_that_root_makes_for_a_service_can_be_read_by_its_group() {
    let dir = tempfile::tempdir().unwrap();
    // Only root can give a directory to a group that it is not in; for others there is nothing to make.
    if std::os::unix::fs::chown(dir.path(), None, Some(GROUP)).is_err() {
        return;
    }
    let modes = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.permissions().mode() & 0o777, found.gid())
    };
    for (directory, expected) in [(0o750, (0o640, GROUP)), (0o700, (0o600, 0))] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(directory)).unwrap();
        let file = dir.path().join(format!("tokens-{directory:o}.toml"));
        token(&file, "planner", &[]);
        assert_eq!(modes(&file), expected);
        token(&file, "worker", &[]);
        assert_eq!(modes(&file), expected);
        // The server has nothing against it.
        let server = Server::start(dir.path(), &[("HANDOVER_IDENTITY_TOKENS", file.to_str().unwrap())]);
        assert!(!server.logged().contains("others than its owner"), "{}", server.logged());
    }
}

#[test]
fn a_revoked_token_ends_what_waits_without_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let (worker, other) = (token(&file, "worker", &[]), token(&file, "other", &[]));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let soon = ("IDENTITY_TOKENS_RELOAD_SECONDS", "1");
    let server = Server::start(dir.path(), &[("IDENTITY_TOKENS", file.to_str().unwrap()), soon]);
    let wait = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work_next","arguments":{"wait_ms":600000}}}"#;
    let waiting = server.post(&worker, wait, "connection: close\r\n");
    let hash = fs::read_to_string(&file).unwrap();
    let digits = &hash.split("sha256 = \"").nth(1).unwrap()[..12];
    let output =
        handover().args(["token", "revoke", "--sha256", digits, "--file"]).arg(&file).output().unwrap();
    assert_eq!(said(&output), ("1 token was revoked\n", ""));
    let mut answer = String::new();
    BufReader::new(waiting).read_to_string(&mut answer).unwrap();
    assert!(answer.contains("UNAUTHENTICATED") && answer.contains("the token was revoked"), "{answer}");
    assert_eq!((server.status(&worker), server.status(&other)), (401, 200));
}

/// Wait until a process does something of its own at SIGHUP.
fn until_it_hears_hangups(child: &Child) {
    let began = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(caught.trim(), 16).unwrap() & 1 == 1 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for a handler of SIGHUP");
        std::thread::yield_now();
    }
}

#[test]
fn sighup_ends_no_server_before_it_is_ready_nor_with_nothing_to_read_again() {
    let dir = tempfile::tempdir().unwrap();
    // It cannot go on before somebody has written its configuration.
    let config = dir.path().join("config");
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let log = dir.path().join("log");
    let mut child = spawn(dir.path(), &[("CONFIG", config.to_str().unwrap())], &log);
    let stdout = child.stdout.take().unwrap();
    until_it_hears_hangups(&child);
    signal(&child, "HUP");
    fs::write(&config, "").unwrap();
    let server = Server { http: ready(stdout), child, log };
    server.until_logged("there is nothing to read again", 1);
    server.hang_up();
    server.until_logged("there is nothing to read again", 2);
    assert_eq!(server.status("planner"), 200);
}

#[test]
fn sighup_does_not_end_handover_mcp() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = handover();
    command.arg("mcp").arg("--data").arg(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    until_it_hears_hangups(&child);
    signal(&child, "HUP");
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":1,"method":"ping"}}"#).unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.starts_with('{'), "{answer}");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
