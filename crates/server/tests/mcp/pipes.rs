//! A client at two pipes, whatever is at the other end of them.

use std::future::Future;
use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;

use super::stage::{Client, Request, in_time};

/// How many bytes fit into a pipe.
const ROOM: usize = 64 * 1024;

/// The client's ends of two pipes.
pub struct Pipes {
    /// Taken when the client closes it.
    pub input: Option<DuplexStream>,
    pub output: BufReader<DuplexStream>,
    serving: JoinHandle<io::Result<()>>,
}

impl Pipes {
    /// Serve the other ends like this.
    pub fn to<F>(serve: impl FnOnce(BufReader<DuplexStream>, DuplexStream) -> F) -> Pipes
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let (input, far_input) = tokio::io::duplex(ROOM);
        let (far_output, output) = tokio::io::duplex(ROOM);
        let serving = tokio::spawn(serve(BufReader::new(far_input), far_output));
        Pipes { input: Some(input), output: BufReader::new(output), serving }
    }

    /// Write these bytes.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().unwrap();
        in_time(input.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Write a message.
    pub async fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n")).await;
    }

    /// Write a request, and say its id.
    pub async fn request(&mut self, request: Request) -> Value {
        self.send(&request.body).await;
        request.id()
    }

    /// Write a notification that takes a request back.
    pub async fn cancel(&mut self, id: &Value) {
        let params = json!({ "requestId": id });
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
    }

    /// The next message. Whatever comes is one.
    pub async fn next(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        in_time(self.output.read_until(b'\n', &mut line)).await.unwrap();
        if line.is_empty() {
            return None;
        }
        assert_eq!(line.pop(), Some(b'\n'), "expected a whole line");
        assert!(!line.contains(&b'\r'), "expected a line without a return");
        let message: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        Some(message)
    }

    /// The answer to a request, and what was told before it.
    pub async fn answer_to(&mut self, id: &Value) -> (Value, Vec<Value>) {
        let mut told = Vec::new();
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("expected an answer to {id}"));
            if message.get("method").is_none() && message["id"] == *id {
                return (message, told);
            }
            told.push(message);
        }
    }

    /// The result of a request.
    pub async fn ask(&mut self, request: Request) -> Value {
        let id = self.request(request).await;
        let (answer, _) = self.answer_to(&id).await;
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// The error that a request is answered with.
    pub async fn refused(&mut self, request: Request) -> Value {
        let id = self.request(request).await;
        let (answer, _) = self.answer_to(&id).await;
        assert!(answer.get("error").is_some(), "{answer}");
        answer["error"].clone()
    }

    /// Close the input, and read to the end, which is a good one.
    pub async fn close(mut self) -> Vec<Value> {
        self.input = None;
        let mut rest = Vec::new();
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        self.end().await;
        rest
    }

    /// Wait for the other end to end.
    pub async fn end(self) {
        in_time(self.serving).await.unwrap().unwrap();
    }
}

/// A call of a tool.
pub fn call(client: &Client, tool: &str, arguments: Value) -> Request {
    client.request("tools/call", json!({ "name": tool, "arguments": arguments }))
}
