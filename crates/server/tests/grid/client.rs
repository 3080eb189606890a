//! An agent of the Grid: its requests, right unless a play changes them, and the stream of its notifications.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::others::client::{Answer, Client, Request};
use super::others::stage::{Stage, in_time};

/// An agent, by its token and its node id.
#[derive(Clone)]
pub struct Node {
    address: SocketAddr,
    token: String,
    name: String,
}

impl Node {
    /// An agent whose token is its name, as in development.
    pub fn new(stage: &Stage, name: &str) -> Node {
        Node::at(stage.address, name)
    }

    pub fn at(address: SocketAddr, name: &str) -> Node {
        Node { address, token: name.to_owned(), name: name.to_owned() }
    }

    /// The same under another name.
    pub fn named(&self, name: &str) -> Node {
        Node { name: name.to_owned(), ..self.clone() }
    }

    /// A request of a method, to be changed before it is sent.
    pub fn request(&self, method: &str, params: Value) -> Request {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.post(&format!("/grid/a2a/{}", self.name), body)
    }

    /// A request of anything else under `/grid`.
    pub fn post(&self, target: &str, body: Value) -> Request {
        let mut request = Client::modern(self.address, Some(&self.token)).request("", json!({})).at(target);
        request.headers.retain(|name, _| !name.starts_with("mcp-"));
        request.body = body;
        request
    }

    /// What the directory answers to a request under `/grid`.
    pub async fn rest(&self, method: &'static str, target: &str, body: Value) -> (u16, Value) {
        let answer = self.post(target, body).by(method).answer().await;
        (answer.status, answer.message().clone())
    }

    pub async fn answer(&self, method: &str, params: Value) -> Answer {
        self.request(method, params).answer().await
    }

    /// The result of a method, or its error.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, Value> {
        let answer = self.answer(method, params).await;
        let message = answer.message();
        match message.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(message["error"].clone()),
        }
    }

    /// The result that there must be.
    pub async fn ok(&self, method: &str, params: Value) -> Value {
        let called = format!("{}: {method} {params}", self.name);
        self.call(method, params).await.unwrap_or_else(|error| panic!("{called}: {error}"))
    }

    /// The error that there must be.
    pub async fn refused(&self, method: &str, params: Value) -> Value {
        let called = format!("{}: {method} {params}", self.name);
        self.call(method, params).await.expect_err(&called)
    }

    /// A task that it sends, by its id.
    pub async fn sends(&self, to: &str, message: &str) -> String {
        let sent = self.ok("task/send", json!({ "to": to, "message": message })).await;
        sent["task"]["taskId"].as_str().unwrap().to_owned()
    }

    /// A message in a task, and the task as it is then.
    pub async fn says(&self, task: &str, message: impl Into<Value>) -> Value {
        let message: Value = message.into();
        self.ok("message/send", json!({ "taskId": task, "message": message })).await["task"].clone()
    }

    /// The same with a state.
    pub async fn says_with(&self, task: &str, message: &str, state: &str) -> Value {
        let said = json!({ "taskId": task, "message": message, "state": state });
        self.ok("message/send", said).await["task"].clone()
    }

    pub async fn get(&self, task: &str) -> Value {
        self.ok("task/get", json!({ "taskId": task })).await["task"].clone()
    }

    pub async fn state(&self, task: &str) -> String {
        self.get(task).await["state"].as_str().unwrap().to_owned()
    }

    /// What it has not read.
    pub async fn reads(&self, task: &str) -> Vec<Value> {
        let read = self.ok("task/read", json!({ "taskId": task })).await;
        read["messages"].as_array().unwrap().clone()
    }

    /// The same as kinds and texts.
    pub async fn hears(&self, task: &str) -> Vec<(String, String)> {
        let text = |message: &Value| {
            let parts = message["parts"].as_array().unwrap().iter();
            let words = parts
                .map(|part| part["text"].as_str().map_or_else(|| part["data"].to_string(), str::to_owned));
            (message["kind"].as_str().unwrap().to_owned(), words.collect::<Vec<_>>().join("\n"))
        };
        self.reads(task).await.iter().map(text).collect()
    }

    pub async fn acks(&self, task: &str) -> bool {
        self.ok("message/ack", json!({ "taskId": task })).await["acknowledged"].as_bool().unwrap()
    }

    /// The stream of its notifications, which has begun.
    pub async fn listens(&self) -> Stream {
        let mut stream = self.stream(None).await;
        assert_eq!(stream.status, 200);
        assert_eq!(stream.next().await.unwrap().event, "connected");
        stream
    }

    /// A request for the stream, after this event if there is one.
    pub async fn stream(&self, after: Option<&str>) -> Stream {
        let target = format!("/grid/a2a/{}/events", self.name);
        Stream::open(self.address, &target, Some(&self.token), after).await
    }
}

/// A code in words that an error has.
pub fn code(error: &Value) -> &str {
    error["data"]["code"].as_str().unwrap_or_default()
}

/// One event of a stream.
#[derive(Clone, Debug)]
pub struct Told {
    pub id: String,
    pub event: String,
    pub data: Value,
}

/// A stream of notifications. Dropped, its connection is cut.
pub struct Stream {
    pub status: u16,
    body: Incoming,
    text: Vec<u8>,
    connection: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Stream {
    pub async fn open(address: SocketAddr, target: &str, token: Option<&str>, after: Option<&str>) -> Stream {
        let token = token.map(|token| format!("Bearer {token}"));
        let token = token.as_ref().map(|token| ("authorization", token.as_str()));
        let after = after.map(|after| ("last-event-id", after));
        Stream::open_with(address, target, &token.into_iter().chain(after).collect::<Vec<_>>()).await
    }

    pub async fn open_with(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Stream {
        in_time(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(async move { _ = connection.await });
            let mut request = hyper::Request::get(target).header("host", address.to_string());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            let (head, body) = response.into_parts();
            Stream { status: head.status.as_u16(), body, text: Vec::new(), connection }
        })
        .await
    }

    /// The next event, or none when the stream has ended.
    pub async fn next(&mut self) -> Option<Told> {
        in_time(async {
            loop {
                if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                    let event: Vec<u8> = self.text.drain(..end + 2).collect();
                    let event = String::from_utf8(event).unwrap();
                    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                    // A comment says only that the stream is alive.
                    if let Some(data) = field("data: ") {
                        return Some(Told {
                            id: field("id: ").unwrap_or_default().to_owned(),
                            event: field("event: ").unwrap_or_default().to_owned(),
                            data: serde_json::from_str(data).unwrap(),
                        });
                    }
                    continue;
                }
                let frame = self.body.frame().await?.ok()?;
                self.text.extend(frame.into_data().unwrap_or_default());
            }
        })
        .await
    }

    /// The next notification of this kind, passing over others.
    pub async fn notified(&mut self, kind: &str) -> Value {
        loop {
            let told = self.next().await.unwrap_or_else(|| panic!("expected {kind}, found the end"));
            if told.event == "task_notify" && told.data["kind"] == kind {
                return told.data;
            }
        }
    }

    /// Why it ends: the last event says so.
    pub async fn reconnect(mut self) -> String {
        let mut last = None;
        while let Some(told) = self.next().await {
            last = Some(told);
        }
        let last = last.expect("a stream says why it ends");
        assert_eq!(last.event, "reconnect", "{last:?}");
        assert!(!last.id.is_empty(), "who comes back goes on from there");
        last.data["reason"].as_str().unwrap().to_owned()
    }

    /// Everything that has not been read, where it is no stream.
    pub async fn rest(&mut self) -> String {
        in_time(async {
            while let Some(Ok(frame)) = self.body.frame().await {
                self.text.extend(frame.into_data().unwrap_or_default());
            }
        })
        .await;
        String::from_utf8(std::mem::take(&mut self.text)).unwrap()
    }
}
