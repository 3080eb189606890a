//! The built binary's audit log: written by a server that is killed and started again, and checked.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use self::binary::{Server, handover, said};

/// How long anything may take before a play has failed: long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn verify(data: &Path) -> Output {
    handover().args(["audit", "verify", "--data"]).arg(data).output().unwrap()
}

fn lines(log: &Path) -> Vec<String> {
    fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Have an unauthenticated request written down, and wait until it is.
fn knock(server: &Server, log: &Path) {
    let before = lines(log).len();
    let mut stream = TcpStream::connect(server.http()).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    )
    .unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let began = Instant::now();
    while lines(log).len() <= before {
        assert!(began.elapsed() < PATIENCE, "waited in vain for a line of the audit log");
        std::thread::yield_now();
    }
}

/// A data directory with a log of a server that was killed, and of one that stopped.
fn data(dir: &Path) -> (PathBuf, PathBuf) {
    let data = dir.join("data");
    let log = data.join("audit.jsonl");
    let first = Server::start(&data);
    knock(&first, &log);
    knock(&first, &log);
    first.kill();
    let second = Server::start(&data);
    knock(&second, &log);
    // It can be checked while it is written.
    assert!(verify(&data).status.success());
    assert_eq!(second.stop(), Some(0));
    (data, log)
}

#[test]
fn a_log_is_whole_after_a_kill_and_a_restart_and_every_forgery_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (data, log) = data(dir.path());
    let good = lines(&log);
    assert_eq!(good.len(), 4, "the chain's own, and three: {good:?}");
    let output = verify(&data);
    let (out, _) = said(&output);
    assert!(
        output.status.success() && out.starts_with("4 lines in 1 files are chained, and each follows"),
        "{out}"
    );

    let forged = |edit: &dyn Fn(&mut Vec<String>)| {
        let mut lines = good.clone();
        edit(&mut lines);
        fs::write(&log, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        let output = verify(&data);
        assert_eq!(output.status.code(), Some(1));
        let shown = log.display().to_string();
        said(&output)
            .0
            .lines()
            .filter_map(|line| Some(line.strip_prefix(&shown)?.split(' ').next()?.to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        forged(&|lines| lines[2] = lines[2].replace("macp", "mcp").replace("127.0.0.1", "127.0.0.2")),
        [":3:"]
    );
    assert_eq!(forged(&|lines| _ = lines.remove(1)), [":2:"]);
    assert_eq!(forged(&|lines| lines.swap(1, 2)), [":2:", ":3:", ":4:"]);
    assert_eq!(forged(&|lines| _ = lines.remove(0)), [":1:"]);
    assert_eq!(forged(&|lines| lines.truncate(2)), [":"], "a cut tail is the file's");

    // A server that goes on after the cut says so, and it is still found.
    let server = Server::start(&data);
    knock(&server, &log);
    assert_eq!(server.stop(), Some(0));
    let output = verify(&data);
    assert!(
        said(&output).0.contains("audit.jsonl:3: says that lines before it were missing"),
        "{}",
        said(&output).0
    );
    assert!(handover().args(["audit", "verify", "no-such-file"]).output().unwrap().status.code() == Some(1));
}

#[test]
fn lines_of_an_earlier_release_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let log = data.join("audit.jsonl");
    fs::create_dir(&data).unwrap();
    fs::write(&log, "{\"time\":\"2026-01-01T00:00:00.000Z\",\"event\":\"limited\"}\n").unwrap();
    let server = Server::start(&data);
    knock(&server, &log);
    assert_eq!(server.stop(), Some(0));
    let output = verify(&data);
    let (out, _) = said(&output);
    assert!(
        output.status.success()
            && out.contains("1 lines are not chained")
            && out.contains("2 lines in 1 files are chained"),
        "{out}"
    );
}
