//! MCP over bare sockets: requests are made once and sent as often as wanted, answers are read no further than needed, so
//! that the generator takes little from what it measures.

use std::io::{Error, ErrorKind, Result};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

/// The revision that is spoken.
const REVISION: &str = "2026-07-28";

/// Who asks, and whom.
#[derive(Clone)]
pub struct Agent {
    /// The server, as host:port.
    pub target: String,
    /// How the agent shows who it is.
    pub token: String,
}

impl Agent {
    /// A request with every header that the revision has for it.
    pub fn request(&self, method: &str, name: &str, params: Value) -> Vec<u8> {
        self.request_once(method, name, params, None)
    }

    /// The same with a name of its own, so that sending it again has no second effect.
    pub fn request_once(&self, method: &str, name: &str, mut params: Value, key: Option<&str>) -> Vec<u8> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": { "name": "handover-bench", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        });
        if let Some(key) = key {
            params["_meta"]["dev.handover/idempotencyKey"] = key.into();
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let Agent { target, token } = self;
        let name = if name.is_empty() { String::new() } else { format!("mcp-name: {name}\r\n") };
        let length = body.len();
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {target}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: {REVISION}\r\n\
             mcp-method: {method}\r\n{name}content-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// A call of a tool.
    pub fn call(&self, tool: &str, arguments: Value) -> Vec<u8> {
        self.request("tools/call", tool, json!({ "name": tool, "arguments": arguments }))
    }

    /// A look at a task.
    pub fn look(&self, task: &str) -> Vec<u8> {
        self.request("tasks/get", task, json!({ "taskId": task }))
    }

    /// A connection of its own.
    pub async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.target).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, bytes: Vec::with_capacity(8192) })
    }
}

/// One connection, kept alive.
pub struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Connection {
    /// Send a request and wait for its answer: the body, of status 200.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.bytes.clear();
        self.stream.write_all(request).await?;
        loop {
            self.more().await?;
            let Some(head) = end_of_head(&self.bytes) else { continue };
            let length = content_length(&self.bytes[..head])?;
            if self.bytes.len() >= head + length {
                return Ok(&self.bytes[head..head + length]);
            }
        }
    }

    /// Send a request whose answer is a stream of events, and wait for the first.
    pub async fn subscribe(&mut self, request: &[u8]) -> Result<()> {
        self.open_stream(request, b"notifications/subscriptions/acknowledged").await
    }

    /// The same, whose first event has this in it.
    pub async fn open_stream(&mut self, request: &[u8], first: &[u8]) -> Result<()> {
        self.bytes.clear();
        self.stream.write_all(request).await?;
        self.event_with(first).await
    }

    /// Read events until one has this in it. Nothing comes after it until somebody causes something.
    pub async fn event_with(&mut self, text: &[u8]) -> Result<()> {
        loop {
            if let Some(at) = find(&self.bytes, text)
                && find(&self.bytes[at..], b"\n\n").is_some()
            {
                self.bytes.clear();
                return Ok(());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.bytes).await? == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        Ok(())
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

fn content_length(head: &[u8]) -> Result<usize> {
    let wrong = |what: &str| {
        Error::new(
            ErrorKind::InvalidData,
            format!("expected {what}, found {:?}", String::from_utf8_lossy(head)),
        )
    };
    if !head.starts_with(b"HTTP/1.1 200 ") {
        return Err(wrong("status 200"));
    }
    head.split(|byte| *byte == b'\n')
        .filter_map(|line| line.split_at_checked(b"content-length:".len()))
        .find(|(name, _)| name.eq_ignore_ascii_case(b"content-length:"))
        .and_then(|(_, value)| std::str::from_utf8(value).ok()?.trim().parse().ok())
        .ok_or_else(|| wrong("a content-length"))
}

/// The result of an answer. A refusal is a failure, and so is a tool that says that it could not.
pub fn result(body: &[u8]) -> std::result::Result<Value, Failure> {
    let wrong = || Failure::Fault(format!("expected a result, found {}", String::from_utf8_lossy(body)));
    let mut answer: Value = serde_json::from_slice(body).map_err(|_| wrong())?;
    if answer["result"]["isError"] == true || !answer["result"].is_object() {
        return Err(wrong());
    }
    Ok(answer["result"].take())
}

/// Ask once, and wait for the result.
pub async fn ask(connection: &mut Connection, request: &[u8]) -> std::result::Result<Value, Failure> {
    result(connection.exchange(request).await.map_err(|error| Failure::fault("asking", &error))?)
}
