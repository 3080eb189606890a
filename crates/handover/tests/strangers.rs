//! The built binary against clients that take and do not give: silent, slow, and unread, with a token and without.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "strangers/frames.rs"]
mod frames;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use self::frames::{Two, call, data, grpc, settings};

/// How long anything may take before a play has failed: long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes that begin a message of 1 MiB, and one of its own.
const SIX_BYTES: &[u8] = b"\0\0\x10\0\0x";

/// A server that knows one agent, on ports of its own.
struct Server {
    child: Child,
    _dir: TempDir,
    http: String,
    macp: String,
    admin: String,
    token: String,
}

impl Server {
    fn start(settings: &[(&str, &str)]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let (tokens, token) = tokens(dir.path());
        let mut command = handover();
        command.args(["serve", "--json", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--data"]);
        command.arg(dir.path().join("data")).env("HANDOVER_IDENTITY_TOKENS", tokens);
        command.envs(settings.iter().map(|(name, value)| (format!("HANDOVER_LIMITS_{name}"), value)));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let [http, macp, admin] =
            ["http", "macp", "admin"].map(|key| ready[key].as_str().unwrap().to_owned());
        Server { child, _dir: dir, http, macp, admin, token }
    }

    /// A number of the server, as its operator reads it; 0 if it is not there yet.
    fn metric(&self, name: &str) -> u64 {
        let text = ask(&self.admin, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |number| number.parse().unwrap())
    }

    fn until_metric_is(&self, name: &str, expected: u64) {
        let begun = Instant::now();
        while self.metric(name) < expected {
            assert!(begun.elapsed() < PATIENCE, "expected {expected} {name}, found {}", self.metric(name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The memory of its process, in bytes.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }

    /// An honest caller with a token is answered on both listeners.
    fn serves_the_honest(&self) {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let (token, length) = (&self.token, body.len());
        let answer = ask(
            &self.http,
            &format!(
                "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                 authorization: Bearer {token}\r\nmcp-protocol-version: 2025-11-25\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        );
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let mut honest = Two::connect(&self.macp, &settings(&[]));
        honest.send(&call(1, "/macp.v1.MACPRuntimeService/ListSessions", Some(token)));
        honest.send(&data(1, true, &grpc(b"")));
        assert_eq!(honest.status_of(1), "0");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

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

/// A file of one token, and the token.
fn tokens(dir: &Path) -> (std::path::PathBuf, String) {
    let path = dir.join("tokens.toml");
    let output = handover().args(["token", "--agent", "planner"]).output().unwrap();
    std::fs::write(&path, &output.stdout).unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    (path, shown.trim().rsplit(' ').next().unwrap().to_owned())
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A server that has not read everything may reset what it has answered.
    _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Whether the server has closed a connection, whatever it said before.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// 2,000 calls that each announce 1 MiB and send one byte of it.
fn announce(server: &Server, path: &str, token: Option<&str>) -> Vec<Two> {
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut connection = Two::connect(&server.macp, &settings(&[]));
        for stream in (1..200).step_by(2) {
            connection.send(&call(stream, path, token));
            connection.send(&data(stream, false, SIX_BYTES));
        }
        // Answered after them: they have all been taken.
        connection.ping();
        open.push(connection);
    }
    open
}

#[test]
fn what_a_call_announces_is_not_set_aside_with_a_token_or_without() {
    // The honest caller is the same agent as the one that announces, and its other limits are not what is shown here.
    let server = Server::start(&[("REQUESTS_PER_MINUTE", "0"), ("MEMORY_PER_AGENT_BYTES", "268435456")]);
    server.serves_the_honest();
    let send = "/macp.v1.MACPRuntimeService/Send";
    for (path, token) in [
        (send, None),
        (send, Some("hand_nobody")),
        ("/macp.v1.MACPRuntimeService/Initialize", None),
        (send, Some(server.token.as_str())),
        ("/macp.v1.MACPRuntimeService/StreamSession", Some(server.token.as_str())),
    ] {
        let before = server.memory();
        let open = announce(&server, path, token);
        let grown = server.memory().saturating_sub(before);
        assert!(grown < 256 << 20, "{path} with {token:?}: {} MB more", grown >> 20);
        server.serves_the_honest();
        drop(open);
    }
}

#[test]
fn only_so_many_calls_without_a_token_are_read_and_the_rest_are_refused_without_being_read() {
    let server = Server::start(&[]);
    let mut open = announce(&server, "/macp.v1.MACPRuntimeService/Send", None);
    // 64 of 2,000 are waited for.
    server.until_metric_is("handover_requests_unread_total{why=\"strangers\"}", 2000 - 64);
    let answered: usize = open.iter_mut().map(|connection| connection.answered(100, 36)).sum();
    assert_eq!(answered, 2000 - 64);
    assert_eq!(server.metric("handover_requests_unread_total{why=\"strangers\"}"), 2000 - 64);
    drop(open);
    // What needs a token is refused by its head, and says so without a body.
    let mut connection = Two::connect(&server.macp, &settings(&[]));
    connection.send(&call(1, "/macp.v1.MACPRuntimeService/GetSession", None));
    assert_eq!(connection.status_of(1), "16");
}

#[test]
fn http_refuses_by_the_head_before_a_byte_of_the_body_comes() {
    let server = Server::start(&[]);
    let post = |headers: &str| {
        let head = "POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n";
        ask(&server.http, &format!("{head}connection: close\r\n{headers}\r\n"))
    };
    let token = format!("authorization: Bearer {}\r\n", server.token);
    for (headers, status) in [
        ("host: localhost\r\n", 401),
        ("host: localhost\r\nauthorization: Bearer hand_nobody\r\n", 401),
        ("host: evil.example\r\n", 421),
        (&format!("host: localhost\r\norigin: https://evil.example\r\n{token}"), 403),
    ] {
        let answer = post(headers);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
    }
}

#[test]
fn sockets_that_say_nothing_make_way_on_each_listener_and_keep_nobody_out_of_either() {
    let server = Server::start(&[("CONNECTIONS_MAX", "32"), ("MACP_CONNECTIONS_MAX", "32")]);
    for (listener, address) in [("http", &server.http), ("macp", &server.macp)] {
        let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
        server.serves_the_honest();
        let displaced =
            format!("handover_connections_dropped_total{{listener=\"{listener}\",why=\"displaced\"}}");
        server.until_metric_is(&displaced, 300 - 32);
        for stream in &mut silent[..300 - 32] {
            assert!(is_closed(stream), "one that should have made way did not");
        }
        assert!(server.metric(&format!("handover_connections_open{{listener=\"{listener}\"}}")) <= 33);
    }
}

#[test]
fn a_client_that_does_not_finish_its_head_is_let_go() {
    let server = Server::start(&[("HEAD_SECONDS", "1")]);
    let two = [frames::PREFACE, &settings(&[])].concat();
    for (listener, address) in [("http", &server.http), ("macp", &server.macp)] {
        let mut late: Vec<TcpStream> = [b"".as_slice(), b"PRI * HTTP", b"GET / HTTP/1.1\r\nhost: loc", &two]
            .into_iter()
            // The listener of MACP takes HTTP/2 alone, and ends the rest at once.
            .filter(|opening| listener == "http" || !opening.starts_with(b"GET"))
            .map(|opening| {
                let mut stream = connect(address);
                stream.write_all(opening).unwrap();
                stream
            })
            .collect();
        assert!(late.iter_mut().all(is_closed));
        let dropped = format!("handover_connections_dropped_total{{listener=\"{listener}\",why=\"head\"}}");
        server.until_metric_is(&dropped, late.len() as u64);
    }
    server.serves_the_honest();
}

#[test]
fn a_client_that_does_not_finish_its_request_is_told_so() {
    let server = Server::start(&[("BODY_SECONDS", "1")]);
    let token = &server.token;
    let answer = ask(
        &server.http,
        &format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             authorization: Bearer {token}\r\ncontent-length: 1000\r\n\r\n{{\"jsonrpc\""
        ),
    );
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"REQUEST_TIMEOUT\""), "{answer}");
    let mut slow = Two::connect(&server.macp, &settings(&[]));
    let calls = [
        (1, "/macp.v1.MACPRuntimeService/GetSession", Some(token.as_str()), SIX_BYTES.to_vec(), "4"),
        // Whole, but for its end.
        (3, "/macp.v1.MACPRuntimeService/ListSessions", Some(token), grpc(b""), "4"),
        (5, "/macp.v1.MACPRuntimeService/StreamSession", Some(token), SIX_BYTES.to_vec(), "4"),
        (7, "/macp.v1.MACPRuntimeService/Initialize", None, SIX_BYTES.to_vec(), "4"),
        // The refusal comes without the ids that it would repeat.
        (9, "/macp.v1.MACPRuntimeService/Send", None, SIX_BYTES.to_vec(), "0"),
    ];
    for (stream, path, token, sent, _) in &calls {
        slow.send(&call(*stream, path, *token));
        slow.send(&data(*stream, false, sent));
    }
    for (stream, path, _, _, status) in calls {
        assert_eq!(slow.status_of(stream), status, "{path}");
    }
    assert_eq!(server.metric("handover_requests_unread_total{why=\"time\"}"), 6);
    server.serves_the_honest();
}

#[test]
fn a_client_that_reads_nothing_is_let_go_and_so_is_a_stream_that_it_gives_no_window() {
    let server = Server::start(&[("WRITE_SECONDS", "1")]);
    let mut unread = connect(&server.http);
    let requests = "GET /errors HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(1000);
    // Answers of some megabytes a thousand: no socket takes all of them.
    for _ in 0..100 {
        if unread.write_all(requests.as_bytes()).is_err() {
            break;
        }
    }
    let dropped = |why| format!("handover_connections_dropped_total{{listener=\"http\",why=\"{why}\"}}");
    server.until_metric_is(&dropped("reader"), 1);

    // The initial window of a stream is nothing.
    let mut stuck = Two::connect(&server.http, &settings(&[(4, 0)]));
    stuck.send(&frames::get(1, "/errors"));
    server.until_metric_is(&dropped("stream_reader"), 1);
    // The rest of the connection goes on.
    stuck.ping();
    server.serves_the_honest();
}

#[test]
fn what_an_agent_is_sending_at_a_time_is_bounded_whatever_it_sends_it_in() {
    let server = Server::start(&[("MEMORY_PER_AGENT_BYTES", "8388608")]);
    let part = [b"\0\0\x10\0\0".as_slice(), &[b'x'; 256 * 1024 - 5]].concat();
    let mut sending: Vec<Two> = (0..40)
        .map(|_| {
            let mut one = Two::connect(&server.macp, &settings(&[]));
            // From then on it knows how much it may send.
            one.ping();
            one.send(&call(1, "/macp.v1.MACPRuntimeService/Send", Some(&server.token)));
            part.chunks(16 * 1024).for_each(|frame| one.send(&data(1, false, frame)));
            one
        })
        .collect();
    // 30 of 256 KiB are coming, with what every request takes, and the others are refused.
    server.until_metric_is("handover_limited_total{limit=\"memory\"}", 10);
    let refused = sending.iter_mut().filter_map(|one| (one.answered(1, 0) == 1).then(|| one.status_of(1)));
    // By their status, or, for whom there was no room for a request at all, by an Ack.
    let refused: Vec<String> = refused.collect();
    assert!(
        refused.len() == 10 && refused.iter().all(|status| status == "8" || status == "0"),
        "{refused:?}"
    );
    let body = "x".repeat(128 * 1024);
    let token = &server.token;
    let post = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         authorization: Bearer {token}\r\ncontent-length: 1000000\r\n\r\n{body}"
    );
    assert!(ask(&server.http, &post).starts_with("HTTP/1.1 429 "));
    assert!(server.metric("handover_limited_total{limit=\"memory\"}") >= 11);
    // It is nobody else's.
    server.serves_the_honest();
}

#[test]
fn both_listeners_say_how_many_streams_and_how_long_headers_they_take() {
    let server = Server::start(&[]);
    for address in [&server.http, &server.macp] {
        let said = Two::connect(address, &settings(&[])).settings();
        let (streams_max, headers_bytes_max) = ((3, 100), (6, 16 * 1024));
        assert!(said.contains(&streams_max) && said.contains(&headers_bytes_max), "{said:?}");
    }
}

/// A server that may have so many files open, and what came of it: its ready line, the limit in effect, what it said.
fn with_files(soft: u32, hard: u32, settings: &[(&str, &str)]) -> (String, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let limits = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    command.args(["-c", &limits, env!("CARGO_BIN_EXE_handover"), "serve", "--json", "--http", "127.0.0.1:0"]);
    command.args(["--macp", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
    command.envs(settings.iter().map(|(name, value)| (format!("HANDOVER_LIMITS_{name}"), value)));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
    let files = files.split_whitespace().next().unwrap_or_default().to_owned();
    let mut said = String::new();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    // The line of the log that says how much room there is comes after the one for programs.
    while !said.contains("http_room") && log.read_line(&mut said).unwrap() > 0 {}
    _ = child.kill();
    child.wait().unwrap();
    (ready, files, said)
}

#[test]
fn the_limit_of_open_files_is_raised_and_only_what_was_asked_for_must_fit() {
    let (ready, files, said) = with_files(256, 1024, &[]);
    assert!(ready.contains("\"ready\":true"), "{said}");
    assert_eq!(files, "1024");
    assert!(said.contains("http_room=352 macp_room=352"), "{said}");
    let (ready, _, said) = with_files(256, 1024, &[("CONNECTIONS_MAX", "1000")]);
    assert_eq!(ready, "");
    let expected =
        "error: limits.connections_max and limits.macp_connections_max: expected at most 704 together";
    assert!(said.starts_with(expected) && said.contains("found 1000 and auto"), "{said}");
}
