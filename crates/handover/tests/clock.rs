//! Somebody sets the machine's clock while the server runs, and while it does not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![cfg(target_os = "linux")]

mod binary;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use binary::Server;
use serde_json::Value;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Machine {
    dir: tempfile::TempDir,
    shim: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let shim = dir.path().join("clock.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/clock.c");
        let cc = Command::new("cc").args(["-shared", "-fPIC", "-Wall", "-o"]).arg(&shim).arg(source).status();
        assert!(cc.unwrap().success(), "cc builds the shim");
        Machine { dir, shim }
    }

    fn set_clock(&self, ahead_seconds: i64) {
        // In one step: a server that looks meanwhile finds the one or the other.
        fs::write(self.file("new"), ahead_seconds.to_string()).unwrap();
        fs::rename(self.file("new"), self.file("clock")).unwrap();
    }

    fn start(&self) -> Server {
        let settings = [("LD_PRELOAD", &self.shim), ("CLOCK_FILE", &self.file("clock"))];
        Server::start_with(&self.file("data"), &self.file("log"), settings)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}: {}", self.log());
            sleep(Duration::from_millis(50));
        }
    }

    /// The clock was seen to be set, so many times.
    fn until_seen(&self, times: usize) {
        self.until("the clock was seen to be set", || self.log().matches("clock was set").count() == times);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn task(server: &Server, ttl_ms: u64) -> String {
    let arguments = format!(r#"{{"title":"t","instructions":"i","agent":"worker","ttl_ms":{ttl_ms}}}"#);
    field(&server.call("delegate_task", &arguments), "task_id")
}

fn state(server: &Server, task: &str) -> String {
    field(&server.call("task_status", &format!(r#"{{"task_id":"{task}"}}"#)), "status")
}

fn field(answer: &str, name: &str) -> String {
    let json = &answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()];
    let answer: Value = serde_json::from_str(json).unwrap();
    let found = answer["result"]["structuredContent"][name].as_str();
    found.unwrap_or_else(|| panic!("expected {name}, found {answer}")).to_owned()
}

#[test]
fn sessions_end_when_they_should_whatever_the_clock_is_set_to() {
    let machine = Machine::new();
    machine.set_clock(0);
    let server = machine.start();
    let (short, long) = (task(&server, 2_000), task(&server, 600_000));
    let open = state(&server, &long);

    machine.set_clock(-3_600);
    machine.until_seen(1);
    machine.until("the short task has expired", || state(&server, &short) != open);

    machine.set_clock(7_200);
    machine.until_seen(2);
    assert_eq!(state(&server, &long), open);
    assert_eq!(server.stop(), Some(0));

    machine.set_clock(-3_600);
    let again = machine.start();
    assert!(machine.log().contains("is behind the last event"));
    assert_eq!(state(&again, &long), open);
    let after = task(&again, 2_000);
    machine.until("the next task has expired as well", || state(&again, &after) != open);
}
