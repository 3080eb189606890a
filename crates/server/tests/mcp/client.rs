//! A client: requests in any revision, right unless a play changes them, and their answers message by message.

// No play needs all of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::stage::in_time;

/// The stateless revision.
pub const MODERN: &str = "2026-07-28";
/// The tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const INFO: &str = "io.modelcontextprotocol/clientInfo";
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const NO_METHOD: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
pub const HEADER_MISMATCH: i64 = -32020;
pub const MISSING_CAPABILITY: i64 = -32021;
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// What most clients say that they can do: tasks and forms.
pub fn tasks_and_forms() -> Value {
    json!({ "elicitation": {}, "extensions": { TASKS: {} } })
}

/// The same, and to steer and pause.
pub fn interaction() -> Value {
    json!({ "elicitation": {}, "extensions": { TASKS: { "steer": true, "pause": true } } })
}

/// Whose requests these are, and by which rules.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    token: Option<String>,
    /// What it says that it can do.
    pub capabilities: Value,
    /// The revision.
    pub version: &'static str,
    /// The session of a handshake revision.
    pub session: Option<String>,
    next: Arc<AtomicI64>,
}

impl Client {
    pub fn modern(address: SocketAddr, token: Option<&str>) -> Client {
        Client {
            address,
            token: token.map(str::to_owned),
            capabilities: tasks_and_forms(),
            version: MODERN,
            session: None,
            next: Arc::new(AtomicI64::new(1)),
        }
    }

    /// A client of a handshake revision that has shaken hands.
    pub async fn handshake(
        address: SocketAddr,
        token: &str,
        version: &'static str,
        capabilities: Value,
    ) -> Client {
        let mut client = Client { version, capabilities, ..Client::modern(address, Some(token)) };
        let answer = client.request("initialize", client.initialize()).answer().await;
        client.session = Some(answer.headers["mcp-session-id"].clone());
        assert_eq!(answer.result()["protocolVersion"], version);
        assert_eq!(client.notify("notifications/initialized", json!({})).await.status, 202);
        client
    }

    /// The parameters of `initialize`.
    pub fn initialize(&self) -> Value {
        json!({
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": { "name": "play", "version": "1" },
        })
    }

    /// The same client, which says that it can do this.
    pub fn declaring(&self, capabilities: Value) -> Client {
        Client { capabilities, ..self.clone() }
    }

    /// A request as it should be.
    pub fn request(&self, method: &str, params: Value) -> Request {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut headers = self.headers();
        if self.version == MODERN {
            let params = &mut body["params"];
            let meta = json!({ VERSION: MODERN, CAPABILITIES: self.capabilities, INFO: { "name": "play", "version": "1" } });
            match params["_meta"].as_object_mut() {
                Some(given) => {
                    for (key, value) in meta.as_object().unwrap() {
                        given.entry(key).or_insert_with(|| value.clone());
                    }
                }
                None => params["_meta"] = meta,
            }
            headers.insert("mcp-method".to_owned(), method.to_owned());
            let name = match method {
                "tools/call" | "prompts/get" => Some("name"),
                "resources/read" => Some("uri"),
                _ if method.starts_with("tasks/") => Some("taskId"),
                _ => None,
            };
            if let Some(name) = name.and_then(|name| params[name].as_str()) {
                headers.insert("mcp-name".to_owned(), name.to_owned());
            }
        }
        if method == "initialize" && self.version != MODERN {
            headers.remove("mcp-protocol-version");
        }
        Request { address: self.address, method: "POST", target: "/mcp".to_owned(), headers, body }
    }

    fn headers(&self) -> BTreeMap<String, String> {
        let mut headers = BTreeMap::new();
        let mut set = |name: &str, value: String| headers.insert(name.to_owned(), value);
        set("host", self.address.to_string());
        set("content-type", "application/json".to_owned());
        set("accept", "application/json, text/event-stream".to_owned());
        set("mcp-protocol-version", self.version.to_owned());
        if let Some(token) = &self.token {
            set("authorization", format!("Bearer {token}"));
        }
        if let Some(session) = &self.session {
            set("mcp-session-id", session.clone());
        }
        headers
    }

    /// Ask, and wait for the answer.
    pub async fn ask(&self, method: &str, params: Value) -> Answer {
        self.request(method, params).answer().await
    }

    /// What an answer must have: a result.
    pub async fn ok(&self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.result()
    }

    /// What an answer must have: an error.
    pub async fn refused(&self, method: &str, params: Value) -> Refused {
        self.ask(method, params).await.refused()
    }

    /// Tell.
    pub async fn notify(&self, method: &str, params: Value) -> Answer {
        let mut request = self.request(method, params);
        request.body.as_object_mut().unwrap().remove("id");
        if let Some(params) = request.body["params"].as_object_mut() {
            params.remove("_meta");
        }
        request.answer().await
    }

    /// Answer a request of the server's.
    pub async fn respond(&self, id: &Value, result: Value) -> Answer {
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        let (method, target) = ("POST", "/mcp".to_owned());
        Request { address: self.address, method, target, headers: self.headers(), body }.answer().await
    }

    /// The result of calling a tool, whatever it says.
    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ok("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// What a tool of the server's returns for machines. It must not fail.
    pub async fn tool(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await;
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// The task that calling a skill begins.
    pub async fn begin(&self, skill: &str, arguments: Value) -> String {
        let created = self.call(skill, arguments).await;
        assert_eq!(created["resultType"], "task", "{created}");
        created["taskId"].as_str().unwrap().to_owned()
    }

    /// A task as it is.
    pub async fn get(&self, task: &str) -> Value {
        self.ok("tasks/get", json!({ "taskId": task })).await
    }

    /// Wait until a task has this status, and show it.
    pub async fn until_status(&self, task: &str, status: &str) -> Value {
        in_time(async {
            loop {
                let found = self.get(task).await;
                if found["status"] == status {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// A subscription, acknowledged, and what was acknowledged.
    pub async fn listen(&self, notifications: Value) -> (Reply, Value) {
        let request = self.request("subscriptions/listen", json!({ "notifications": notifications }));
        let mut reply = request.send().await;
        let first = reply.next().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        (reply, first["params"]["notifications"].clone())
    }
}

/// A request that is about to go out.
#[derive(Clone)]
pub struct Request {
    address: SocketAddr,
    method: &'static str,
    target: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

impl Request {
    /// Sent to this address of the server.
    pub fn at(mut self, target: &str) -> Request {
        self.target = target.to_owned();
        self
    }

    /// With another method of HTTP.
    pub fn by(mut self, method: &'static str) -> Request {
        self.method = method;
        self
    }

    /// With this header, whatever it was.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.insert(name.to_ascii_lowercase(), value.to_owned());
        self
    }

    /// Without this header.
    pub fn without(mut self, name: &str) -> Request {
        self.headers.remove(&name.to_ascii_lowercase());
        self
    }

    /// With this in `_meta`; null takes it away.
    pub fn meta(mut self, key: &str, value: Value) -> Request {
        let meta = self.body["params"]["_meta"].as_object_mut().unwrap();
        if value.is_null() {
            meta.remove(key);
        } else {
            meta.insert(key.to_owned(), value);
        }
        self
    }

    /// With this in the body; null takes it away.
    pub fn set(mut self, key: &str, value: Value) -> Request {
        let body = self.body.as_object_mut().unwrap();
        if value.is_null() {
            body.remove(key);
        } else {
            body.insert(key.to_owned(), value);
        }
        self
    }

    /// Its id.
    pub fn id(&self) -> Value {
        self.body["id"].clone()
    }

    /// The whole answer.
    pub async fn answer(self) -> Answer {
        let body = self.body.to_string();
        self.answer_to(body).await
    }

    /// The whole answer to this body instead.
    pub async fn answer_to(&self, body: impl Into<Bytes>) -> Answer {
        self.send_body(body.into()).await.answer().await
    }

    /// The answer, to be read message by message.
    pub async fn send(self) -> Reply {
        self.send_body(self.body.to_string().into()).await
    }

    async fn send_body(&self, body: Bytes) -> Reply {
        in_time(async {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let connection = Cut(tokio::spawn(async move {
                _ = connection.await;
            }));
            let mut request = hyper::Request::builder().method(self.method).uri(&self.target);
            for (name, value) in &self.headers {
                request = request.header(name, value);
            }
            let response = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
            Reply::new(response, connection)
        })
        .await
    }

    /// The bytes of it, as they go over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let body = self.body.to_string();
        let mut bytes = self.head(body.len()).into_bytes();
        bytes.extend(body.as_bytes());
        bytes
    }

    /// Its head, announcing a body of this length.
    pub fn head(&self, length: usize) -> String {
        let mut head = format!("POST {} HTTP/1.1\r\n", self.target);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head + &format!("content-length: {length}\r\n\r\n")
    }

    /// Sends it over a connection of its own, and leaves the rest to the play.
    pub async fn on_the_wire(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&self.bytes()).await.unwrap();
        stream
    }
}

/// Everything that comes over a connection until it ends, after these bytes.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    in_time(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may have answered and hung up before it has read everything.
        _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    })
    .await
}

/// A connection that is cut when it is no longer wanted.
struct Cut(JoinHandle<()>);

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer that is coming in. Dropped, its connection is cut.
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    body: Incoming,
    text: Vec<u8>,
    _connection: Cut,
}

impl Reply {
    fn new(response: hyper::Response<Incoming>, connection: Cut) -> Reply {
        let (head, body) = response.into_parts();
        let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        let headers = head.headers.iter().map(header).collect();
        Reply { status: head.status.as_u16(), headers, body, text: Vec::new(), _connection: connection }
    }

    /// Whether it is a stream of events.
    pub fn streams(&self) -> bool {
        self.headers.get("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// The next message, or none when it has ended.
    pub async fn next(&mut self) -> Option<Value> {
        if !self.streams() {
            let text = self.rest().await;
            return (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap());
        }
        in_time(async {
            loop {
                if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                    let event: Vec<u8> = self.text.drain(..end + 2).collect();
                    let event = String::from_utf8(event).unwrap();
                    if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                        return Some(serde_json::from_str(data).unwrap());
                    }
                    continue;
                }
                let chunk = self.chunk().await?;
                self.text.extend(chunk);
            }
        })
        .await
    }

    /// The next notification of a method, passing over others.
    pub async fn next_of(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("expected {method}, found the end"));
            if message["method"] == method {
                return message["params"].clone();
            }
        }
    }

    async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Some(data),
                    Err(_) => continue,
                },
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// Everything that has not been read.
    async fn rest(&mut self) -> String {
        in_time(async {
            while let Some(chunk) = self.chunk().await {
                self.text.extend(chunk);
            }
        })
        .await;
        String::from_utf8(std::mem::take(&mut self.text)).unwrap()
    }

    /// All of it.
    pub async fn answer(mut self) -> Answer {
        let streamed = self.streams();
        let mut messages = Vec::new();
        let mut text = String::new();
        if streamed {
            while let Some(message) = self.next().await {
                messages.push(message);
            }
        } else {
            text = self.rest().await;
            messages.extend(serde_json::from_str(&text).ok());
        }
        Answer { status: self.status, headers: self.headers.clone(), streamed, messages, text }
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub streamed: bool,
    /// Everything that was told; the last is the answer itself.
    pub messages: Vec<Value>,
    /// The body if it was no stream, byte for byte.
    pub text: String,
}

impl Answer {
    /// The answer itself.
    pub fn message(&self) -> &Value {
        self.messages.last().unwrap_or_else(|| panic!("expected an answer, found {self:?}"))
    }

    /// What was told before it.
    pub fn told(&self, method: &str) -> Vec<Value> {
        let of = |message: &&Value| message["method"] == method;
        self.messages.iter().filter(of).map(|message| message["params"].clone()).collect()
    }

    /// It must have a result.
    pub fn result(&self) -> Value {
        let message = self.message();
        assert_eq!((self.status, message.get("error")), (200, None), "{message}");
        message["result"].clone()
    }

    /// It must be refused.
    pub fn refused(&self) -> Refused {
        let error = &self.message()["error"];
        assert!(error.is_object(), "expected an error, found {self:?}");
        Refused {
            status: self.status,
            code: error["code"].as_i64().unwrap(),
            message: error["message"].as_str().unwrap().to_owned(),
            data: error["data"].clone(),
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub status: u16,
    pub code: i64,
    pub message: String,
    pub data: Value,
}

impl Refused {
    /// For a glance.
    pub fn as_pair(&self) -> (u16, i64) {
        (self.status, self.code)
    }
}
