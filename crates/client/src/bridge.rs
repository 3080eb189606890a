//! Two pipes to a server of MCP that runs elsewhere: each line is posted to its endpoint, and what it answers becomes lines.
//!
//! - [`endpoint`]: where requests go, and as whom
//! - [`headers`]: what the headers say of a message
//! - [`marks`]: the arguments that a tool wants in headers
//! - [`events`]: a stream of events, taken apart
//!
//! The bridge knows no more of a message than its headers need. When the server goes away, what was asked is answered with
//! an error, and the next request tries again.

pub mod endpoint;
pub mod events;
pub mod headers;
pub mod marks;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::http::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

pub use self::endpoint::Endpoint;
use self::events::Events;
use self::headers::Known;
use crate::fetch::Answer;
use crate::jsonrpc::{Error, INTERNAL_ERROR, Incoming, params, refusal};
use crate::mcp::{
    HEADER_MISMATCH, METHOD_HEADER, MODERN, NAME_HEADER, SESSION_HEADER, VERSION_HEADER, may_stream,
    version_of,
};
use crate::pipe::{self, Line, Running};

/// How many requests that may take long may be under way, each with a connection of its own; one more is refused.
const LONG_MAX: usize = 800;

/// How many other messages may be under way. Beyond that, reading waits for one to end.
const SHORT_MAX: usize = 64;

/// How many bytes a line may have: more than any server of ours takes, which says itself how much that is.
const LINE_BYTES_MAX: usize = 160 * 1024 * 1024;

/// How many pages of tools are asked for at most.
const PAGES_MAX: usize = 100;

/// Serve one client until its end of the pipe is closed or `stop` is there.
pub async fn serve(
    endpoint: Endpoint,
    stop: impl Future<Output = ()>,
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (lines, written) = mpsc::channel(pipe::LINES_MAX);
    let writer = tokio::spawn(pipe::write(output, written));
    let mut bridge = Bridge {
        far: Arc::new(Far { endpoint, shaken: Mutex::default(), known: Mutex::default() }),
        lines: lines.clone(),
        running: Running::default(),
        long: Arc::new(Semaphore::new(LONG_MAX)),
        short: Arc::new(Semaphore::new(SHORT_MAX)),
        requests: JoinSet::new(),
        hearing: JoinSet::new(),
    };
    let read = tokio::select! {
        biased;
        () = stop => Ok(()),
        () = lines.closed() => Ok(()),
        read = bridge.read(&mut input) => read,
    };
    // What is not answered by then is closed, which takes it back.
    pipe::finish(&mut bridge.requests, pipe::ANSWERS_WITHIN).await;
    drop((bridge, lines));
    read.and(pipe::written_out(writer).await)
}

/// After how long a stream that was lost is asked for again, at first and at most.
const HEAR_AGAIN_AFTER: Duration = Duration::from_millis(200);
const HEAR_AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

struct Bridge {
    far: Arc<Far>,
    lines: mpsc::Sender<String>,
    running: Running,
    long: Arc<Semaphore>,
    short: Arc<Semaphore>,
    requests: JoinSet<()>,
    /// What hears of what nobody asked about, for a client that opened with the handshake.
    hearing: JoinSet<()>,
}

/// A message that is to be posted.
struct Posted {
    id: Option<Box<RawValue>>,
    method: String,
    params: Option<Box<RawValue>>,
    body: Bytes,
}

impl Bridge {
    async fn read(&mut self, input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            match pipe::read_line(input, &mut line, LINE_BYTES_MAX).await? {
                Line::End => return Ok(()),
                Line::TooLong => self.send(pipe::too_long(LINE_BYTES_MAX)).await,
                Line::Read if line.iter().all(u8::is_ascii_whitespace) => {}
                Line::Read => self.take(&line).await,
            }
            while self.requests.try_join_next().is_some() {}
        }
    }

    async fn send(&self, line: String) {
        // A client that reads no more is noticed when its pipe closes.
        _ = self.lines.send(line).await;
    }

    async fn take(&mut self, line: &[u8]) {
        let body = || Bytes::copy_from_slice(line.trim_ascii());
        match Incoming::parse(line) {
            Err(unreadable) => self.send(refusal(unreadable.id, &unreadable.error)).await,
            Ok(Incoming::Request { id, method, params }) => {
                let posted = Posted {
                    id: Some(id.to_owned()),
                    method: method.into_owned(),
                    params: params.map(ToOwned::to_owned),
                    body: body(),
                };
                if let Err(error) = self.begin(id, posted).await {
                    self.send(refusal(Some(id), &error)).await;
                }
            }
            Ok(Incoming::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.running.cancel(params);
                    // In the stateless revision the closed connection says it.
                    if !self.far.shaken().has_opened() {
                        return;
                    }
                }
                let params = params.map(ToOwned::to_owned);
                self.tell(Posted { id: None, method: method.into_owned(), params, body: body() }).await;
            }
            Ok(Incoming::Response { .. }) => {
                self.tell(Posted { id: None, method: String::new(), params: None, body: body() }).await;
            }
        }
    }

    /// Post a request. Its answer is written by a task of its own.
    async fn begin(&mut self, id: &RawValue, posted: Posted) -> Result<(), Error> {
        let place = self.place(may_stream(&posted.method)).await?;
        let opens = posted.method == "initialize";
        let (far, lines, running) = (Arc::clone(&self.far), self.lines.clone(), self.running.clone());
        let (done, opened) = tokio::sync::oneshot::channel::<()>();
        let request = async move {
            let Some(id) = posted.id.as_deref() else { return };
            let answered = far.ask(id, &posted, &lines).await;
            if !running.end(id) {
                return;
            }
            match answered {
                Ok(Last { line, is_result }) => {
                    if is_result && posted.method == "subscriptions/listen" {
                        _ = lines.send(pipe::subscription_over(id)).await;
                    }
                    _ = lines.send(line).await;
                }
                Err(error) => _ = lines.send(refusal(Some(id), &error)).await,
            }
            drop((place, done));
        };
        self.running.begin(id, &mut self.requests, request)?;
        if opens {
            // What follows needs what it is answered with.
            _ = opened.await;
            self.hearing.abort_all();
            if self.far.shaken().has_opened() {
                let (far, lines) = (Arc::clone(&self.far), self.lines.clone());
                self.hearing.spawn(async move { far.hear(&lines).await });
            }
        }
        Ok(())
    }

    /// Post what has no answer.
    async fn tell(&mut self, posted: Posted) {
        let Ok(place) = self.place(false).await else { return };
        let far = Arc::clone(&self.far);
        self.requests.spawn(async move {
            if let Err(error) = far.tell(&posted).await {
                tracing::warn!(method = posted.method, error = %error.message, "a message did not arrive");
            }
            drop(place);
        });
    }

    /// A place among the messages that are under way.
    async fn place(&self, is_long: bool) -> Result<OwnedSemaphorePermit, Error> {
        if is_long {
            return Arc::clone(&self.long).try_acquire_owned().map_err(|_| {
                Error::new(
                    INTERNAL_ERROR,
                    format!("expected at most {LONG_MAX} calls under way, found one more"),
                )
                .named("RATE_LIMITED")
            });
        }
        let place = Arc::clone(&self.short).acquire_owned().await;
        Ok(place.expect("the semaphore is never closed"))
    }
}

/// The far end, and what must be known to speak to it.
struct Far {
    endpoint: Endpoint,
    shaken: Mutex<Shaken>,
    known: Mutex<Known>,
}

/// What the handshake of an older revision came to.
#[derive(Clone, Default)]
struct Shaken {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

impl Shaken {
    fn has_opened(&self) -> bool {
        self.version.is_some()
    }
}

/// The last message of an answer.
struct Last {
    line: String,
    is_result: bool,
}

impl Far {
    fn shaken(&self) -> MutexGuard<'_, Shaken> {
        self.shaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the headers say of a message.
    fn headers(&self, posted: &Posted) -> HeaderMap {
        let mut all = HeaderMap::new();
        let version = version_of(posted.params.as_deref());
        if let Some(version) = &version {
            all.insert(VERSION_HEADER, headers::value(version));
        } else if posted.method != "initialize" {
            let Shaken { version, session } = self.shaken().clone();
            all.extend(version.map(|version| (HeaderName::from_static(VERSION_HEADER), version)));
            all.extend(session.map(|session| (HeaderName::from_static(SESSION_HEADER), session)));
        }
        if posted.method.is_empty() {
            return all;
        }
        all.insert(METHOD_HEADER, headers::value(&posted.method));
        if let Some(name) = headers::name(&posted.method, posted.params.as_deref()) {
            all.insert(NAME_HEADER, name);
        }
        if posted.method == "tools/call" && version.is_some() {
            self.known().repeat(posted.params.as_deref(), &mut all);
        }
        all
    }

    /// Pass on what the server tells by itself, until it says that it does not. A stream that was lost is asked for again.
    async fn hear(&self, lines: &mpsc::Sender<String>) {
        let mut wait = HEAR_AGAIN_AFTER;
        loop {
            let mut headers = HeaderMap::new();
            let Shaken { version, session } = self.shaken().clone();
            headers.extend(version.map(|version| (HeaderName::from_static(VERSION_HEADER), version)));
            headers.extend(session.map(|session| (HeaderName::from_static(SESSION_HEADER), session)));
            if let Ok(mut answer) = self.endpoint.get(headers).await {
                if is_for_good(answer.head.status) {
                    return;
                }
                if is_stream(&answer) {
                    wait = HEAR_AGAIN_AFTER;
                    self.pass_on(&mut answer, lines).await;
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(HEAR_AGAIN_AFTER_MAX);
        }
    }

    /// Pass on everything that a stream tells, to its end.
    async fn pass_on(&self, answer: &mut Answer, lines: &mpsc::Sender<String>) {
        let mut events = Events::default();
        while let Ok(Some(piece)) = self.endpoint.next(answer).await {
            let Ok(messages) = events.take(&piece) else { return };
            for message in messages {
                if let Some(Said::Before(line)) = Said::read(&message, RawValue::NULL) {
                    _ = lines.send(line).await;
                }
            }
        }
    }

    /// Post what has no answer.
    async fn tell(&self, posted: &Posted) -> Result<(), Error> {
        let mut answer = self.endpoint.post(posted.body.clone(), self.headers(posted)).await?;
        let status = answer.head.status;
        let body = self.endpoint.all(&mut answer).await?;
        if status.is_success() { Ok(()) } else { Err(self.endpoint.refused(status.as_u16(), &body)) }
    }

    /// Post a request, pass on what it tells, and return its answer.
    async fn ask(&self, id: &RawValue, posted: &Posted, lines: &mpsc::Sender<String>) -> Result<Last, Error> {
        let mut answer = self.endpoint.post(posted.body.clone(), self.headers(posted)).await?;
        // A tool may want arguments in headers of which no list has told us yet. Nothing was done so far.
        if answer.head.status == 400 && posted.method == "tools/call" {
            let body = self.endpoint.all(&mut answer).await?;
            if code_of(&body) != Some(HEADER_MISMATCH) || self.learn_tools(posted).await.is_err() {
                return self.last(id, posted, 400, &body);
            }
            answer = self.endpoint.post(posted.body.clone(), self.headers(posted)).await?;
        }
        let last = if is_stream(&answer) {
            self.stream(id, &mut answer, lines).await?
        } else {
            let body = self.endpoint.all(&mut answer).await?;
            self.last(id, posted, answer.head.status.as_u16(), &body)?
        };
        self.learn(posted, &last.line, &answer.head.headers);
        Ok(last)
    }

    /// An answer that is one message, or none that is one.
    fn last(&self, id: &RawValue, posted: &Posted, status: u16, body: &[u8]) -> Result<Last, Error> {
        match Said::read(body, id) {
            Some(Said::Last(last)) => Ok(last),
            Some(Said::Before(_)) | None => {
                tracing::debug!(method = posted.method, status, "the server answered without a message");
                Err(self.endpoint.refused(status, body))
            }
        }
    }

    /// An answer that comes at the end of a stream.
    async fn stream(
        &self,
        id: &RawValue,
        answer: &mut Answer,
        lines: &mpsc::Sender<String>,
    ) -> Result<Last, Error> {
        let mut events = Events::default();
        while let Some(piece) = self.endpoint.next(answer).await? {
            let messages =
                events.take(&piece).map_err(|_| self.endpoint.gone("a message of it is too long"))?;
            for message in messages {
                match Said::read(&message, id) {
                    Some(Said::Last(last)) => {
                        // Read to the end, so that the connection can be used again; it is not worth an error.
                        _ = self.endpoint.next(answer).await;
                        return Ok(last);
                    }
                    Some(Said::Before(line)) => _ = lines.send(line).await,
                    None => tracing::debug!("the server sent something that is no message"),
                }
            }
        }
        Err(self.endpoint.gone("the stream ended before its answer"))
    }

    /// Remember what the messages after this one need.
    fn learn(&self, posted: &Posted, answer: &str, head: &HeaderMap) {
        #[derive(Deserialize)]
        struct Answered<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialized {
            protocol_version: String,
        }
        if !matches!(posted.method.as_str(), "initialize" | "tools/list") {
            return;
        }
        let answered = serde_json::from_str::<Answered<'_>>(answer).ok();
        let Some(result) = answered.and_then(|answered| answered.result) else { return };
        if posted.method == "tools/list" {
            return self.known().learn(result);
        }
        if let Ok(initialized) = serde_json::from_str::<Initialized>(result.get()) {
            let mut shaken = self.shaken();
            shaken.version = Some(headers::value(&initialized.protocol_version));
            shaken.session = head.get(SESSION_HEADER).cloned();
        }
    }

    /// Ask for the list of tools in the name of a call.
    async fn learn_tools(&self, call: &Posted) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "_meta")]
            meta: &'a RawValue,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            next_cursor: Option<String>,
        }
        let Params { meta } = params(call.params.as_deref())?;
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let mut list = json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list", "params": { "_meta": meta } });
            if let Some(cursor) = &cursor {
                list["params"]["cursor"] = json!(cursor);
            }
            let mut headers = HeaderMap::new();
            headers.insert(VERSION_HEADER, HeaderValue::from_static(MODERN));
            headers.insert(METHOD_HEADER, HeaderValue::from_static("tools/list"));
            let mut answer = self.endpoint.post(Bytes::from(list.to_string()), headers).await?;
            let body = self.endpoint.all(&mut answer).await?;
            let wire: Wire<'_> = serde_json::from_slice(&body)
                .map_err(|_| self.endpoint.refused(answer.head.status.as_u16(), &body))?;
            let result = wire.result.ok_or_else(|| self.endpoint.refused(200, &body))?;
            self.known().learn(result);
            cursor = params::<Page>(Some(result))?.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// As much of a message of the server as must be known to pass it on.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<IgnoredAny>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// A message of the server.
enum Said {
    /// The answer.
    Last(Last),
    /// Something before it.
    Before(String),
}

impl Said {
    /// A message that belongs to a request; none if it is none, or an answer to something else.
    fn read(message: &[u8], id: &RawValue) -> Option<Said> {
        let text = std::str::from_utf8(message).ok()?;
        let wire: Wire<'_> = serde_json::from_str(text).ok()?;
        // Outside of strings a line break is a space, and inside there is none.
        let line = text.trim().replace(['\n', '\r'], " ");
        if wire.method.is_some() {
            return Some(Said::Before(line));
        }
        let is_result = wire.result.is_some();
        let is_answer = is_result || wire.error.is_some();
        (is_answer && wire.id.is_some_and(|found| found.get() == id.get()))
            .then_some(Said::Last(Last { line, is_result }))
    }
}

/// Whether an answer comes as a stream of events.
pub(crate) fn is_stream(answer: &Answer) -> bool {
    let kind = answer.head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// The code of a message that is an error.
fn code_of(message: &[u8]) -> Option<i32> {
    #[derive(Deserialize)]
    struct Refused {
        error: Code,
    }
    #[derive(Deserialize)]
    struct Code {
        code: i32,
    }
    serde_json::from_slice::<Refused>(message).ok().map(|refused| refused.error.code)
}

/// Whether a server that refuses its stream so never serves it: one that was asked too often, or too slowly, may do so later.
fn is_for_good(status: StatusCode) -> bool {
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_client_error() && !passes.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_the_request_is_its_answer() {
        let id: Box<RawValue> = serde_json::from_str("7").unwrap();
        let read = |text: &str| Said::read(text.as_bytes(), &id);
        assert!(matches!(read("{\"id\":7,\"result\":{}}"), Some(Said::Last(Last { is_result: true, .. }))));
        assert!(matches!(read("{\"id\":7,\"error\":{}}"), Some(Said::Last(Last { is_result: false, .. }))));
        assert!(matches!(read("{\"method\":\"notifications/progress\"}"), Some(Said::Before(_))));
        // A request of the server, which the handshake revisions have, may be called like one of the client.
        assert!(matches!(read("{\"id\":7,\"method\":\"elicitation/create\"}"), Some(Said::Before(_))));
        for other in [
            "",
            "no json",
            "[]",
            "{}",
            "{\"id\":8,\"result\":{}}",
            "{\"id\":\"7\",\"result\":{}}",
            "{\"error\":{}}",
        ] {
            assert!(read(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_message_is_one_line_however_it_was_written() {
        let id: Box<RawValue> = serde_json::from_str("7").unwrap();
        let Some(Said::Last(last)) =
            Said::read(b"{\r\n  \"id\": 7,\n  \"result\": {\"a\": \"b\\nc\"}\n}\n", &id)
        else {
            panic!("expected an answer");
        };
        assert!(!last.line.contains(['\n', '\r']) && last.line.contains("b\\nc"), "{}", last.line);
    }

    #[test]
    fn a_stream_that_is_refused_for_now_is_asked_for_again() {
        for (status, for_good) in
            [(405, true), (404, true), (401, true), (408, false), (429, false), (503, false)]
        {
            assert_eq!(is_for_good(StatusCode::from_u16(status).unwrap()), for_good, "{status}");
        }
    }
}
