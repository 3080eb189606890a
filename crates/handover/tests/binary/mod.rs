//! The built binary, and a server of it that has said that it is ready.

// No test file needs all of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// `handover` without what the machine's environment says: the one that was built with the tests, or the one that
/// `HANDOVER_BINARY` names.
pub fn handover() -> Command {
    let named = std::env::var_os("HANDOVER_BINARY");
    let mut command = Command::new(named.unwrap_or_else(|| env!("CARGO_BIN_EXE_handover").into()));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDOVER_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// What it said to standard output and to standard error.
pub fn said(output: &Output) -> (&str, &str) {
    (std::str::from_utf8(&output.stdout).unwrap(), std::str::from_utf8(&output.stderr).unwrap())
}

/// A server on a port of its own.
pub struct Server {
    child: Child,
    http: String,
    admin: String,
}

impl Server {
    pub fn start(data: &Path) -> Server {
        Server::start_at(data, "127.0.0.1:0")
    }

    /// The same, with a file for its log.
    pub fn start_logging(data: &Path, log: &Path) -> Server {
        Server::start_with(data, log, [])
    }

    /// The same, with variables for its environment.
    pub fn start_with<const N: usize>(data: &Path, log: &Path, variables: [(&str, &PathBuf); N]) -> Server {
        let log = std::fs::File::create(log).unwrap();
        Server::spawn(data, "127.0.0.1:0", log.into(), &variables)
    }

    /// At an address that another one had.
    pub fn start_at(data: &Path, http: &str) -> Server {
        Server::spawn(data, http, Stdio::null(), &[])
    }

    fn spawn(data: &Path, http: &str, log: Stdio, variables: &[(&str, &PathBuf)]) -> Server {
        let mut command = handover();
        command.envs(variables.iter().copied());
        command.args(["serve", "--json", "--http", http, "--macp", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--data").arg(data);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let [http, admin] = ["http", "admin"].map(|key| ready[key].as_str().unwrap().to_owned());
        Server { child, http, admin }
    }

    /// Where it serves HTTP.
    pub fn http(&self) -> &str {
        &self.http
    }

    /// Where it serves its operator.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// Kill it, without a word.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The status of the answer, and its body.
    pub fn get(&self, path: &str) -> (u16, String) {
        get_at(&self.http, path)
    }

    /// The same from the operator's listener.
    pub fn get_admin(&self, path: &str) -> (u16, String) {
        get_at(&self.admin, path)
    }

    /// The body of its answer to a call of a tool by the planner.
    pub fn call(&self, tool: &str, arguments: &str) -> String {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        );
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer planner\r\nconnection: close\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: 2025-06-18\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Ask it to stop, and say how it ended.
    pub fn stop(mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Of a server that has ended nothing is left to kill.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub fn get_at(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
