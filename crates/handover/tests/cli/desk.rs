//! A server, and those who use it from the command line.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::binary::{Server, handover};

/// A server on data of its own.
pub struct Desk {
    pub server: Server,
    pub dir: tempfile::TempDir,
}

/// What a command ended with, and what it said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(output: &Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Said { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// What it said to programs, which has its version.
    pub fn json(&self) -> Value {
        let value: Value =
            serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(value["version"], 1, "{value}");
        value
    }
}

impl Desk {
    pub fn open() -> Desk {
        let dir = tempfile::tempdir().unwrap();
        Desk { server: Server::start(&dir.path().join("data")), dir }
    }

    /// The same under the operator's rules about approvals.
    pub fn with_approvals(rules: &str) -> Desk {
        let dir = tempfile::tempdir().unwrap();
        let (data, log) = (dir.path().join("data"), dir.path().join("log"));
        let variables = [("HANDOVER_APPROVALS_RULES", &std::path::PathBuf::from(rules))];
        Desk { server: Server::start_with(&data, &log, variables), dir }
    }

    /// A command of an agent, which is not run yet.
    pub fn command(&self, agent: &str, arguments: &[&str]) -> Command {
        let mut command = handover();
        command.env("HANDOVER_SERVER", format!("http://{}", self.server.http()));
        command.env("HANDOVER_TOKEN", agent).args(arguments);
        command
    }

    pub fn run(&self, agent: &str, arguments: &[&str]) -> Said {
        Said::of(&self.command(agent, arguments).output().unwrap())
    }

    /// The same of a command that must come to what it is meant for.
    pub fn good(&self, agent: &str, arguments: &[&str]) -> Said {
        let said = self.run(agent, arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        said
    }

    /// The id of a task of ops that waits for an agent.
    pub fn send(&self, to: &str, title: &str) -> String {
        let sent = self.good("ops", &["task", "send", "--queue", "--to", to, title]);
        sent.out.trim().to_owned()
    }

    /// A shell script, to be run by a worker.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A worker that runs a shell script, and has said that it waits for tasks.
    pub fn worker(&self, agent: &str, flags: &[&str], script: &str) -> Worker {
        let arguments = [&["agent", "work"], flags, &["--", "sh", script]].concat();
        let mut command = self.command(agent, &arguments);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.starts_with("waiting for tasks"), "{line}");
        // Read to its end, so that it is never held up.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Worker { child, said: line }
    }

    /// Look at a task until something is so.
    pub fn until(&self, id: &str, so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..600 {
            let task = self.good("ops", &["task", "show", id, "--json"]).json();
            if so(&task) {
                return task;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("it never is so: {}", self.good("ops", &["task", "show", id]).out);
    }

    /// Look at a task until it is in a state.
    pub fn until_state(&self, id: &str, state: &str) -> Value {
        self.until(id, |shown| shown["task"]["state"] == state)
    }
}

/// A worker, which is killed when it is dropped.
pub struct Worker {
    child: Child,
    /// Its first line.
    pub said: String,
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
