//! Traces for an OpenTelemetry collector: what the log says happened, as OTLP over HTTP in JSON. A task is one trace, across
//! protocols, agents and restarts. No span is held open: each is sent when the event that ends it is stored.

use std::fmt;
use std::time::Duration;

use handover_client::fetch::{Remote, system_roots};
use handover_desk::shutdown::Shutdown;
use handover_desk::traces::{Link, Page, Span, What};
use handover_desk::{Desk, private, timeline};
use handover_kernel::command::ModeKind;
use handover_kernel::{Face, Timestamp};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::http::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, Uri, header};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::issuer::settings::safe_url;

/// How long one try may take, and how many bytes of the answer are read.
const WITHIN: Duration = Duration::from_secs(15);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How often it is looked what is new.
const EVERY: Duration = Duration::from_secs(1);

/// How long to wait before each further try of what was not taken, the last one again and again: the log is the queue, and does
/// not grow by it.
const AGAIN_AFTER_SECONDS: [u64; 5] = [1, 2, 5, 15, 60];

/// How many bytes of spans are sent together, unless one alone has more.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Where and how spans are sent.
#[derive(Clone)]
pub struct Settings {
    url: Uri,
    headers: HeaderMap,
    service: String,
    /// How often it is looked what is new.
    pub every: Duration,
    /// How long to wait before each further try.
    pub again_after: Vec<Duration>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Settings {
    /// As the configuration says; none if traces go nowhere. Reads the file of headers.
    pub fn new(config: &Config) -> Result<Option<Settings>, String> {
        let traces = &config.traces;
        let Some(url) = &traces.url else {
            return match &traces.headers_file {
                None => Ok(None),
                Some(_) => {
                    Err("traces.url: expected an address, because traces.headers_file is set, found nothing"
                        .to_owned())
                }
            };
        };
        let expected = |expected: &str| format!("traces.url: expected {expected}");
        let (url, headers) = match &traces.headers_file {
            // Spans have no texts of agents in them; headers have secrets.
            None => (plain_url(url).map_err(expected)?, HeaderMap::new()),
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
                let headers = text.and_then(|text| headers(&text));
                private::warn_unless(file);
                let wrong = |found| {
                    format!(
                        "traces.headers_file: expected lines such as name: value in {}, found: {found}",
                        file.display()
                    )
                };
                (safe_url(url).map_err(expected)?, headers.map_err(wrong)?)
            }
        };
        Ok(Some(Settings {
            url,
            headers,
            service: traces.service.clone(),
            every: EVERY,
            again_after: AGAIN_AFTER_SECONDS.map(Duration::from_secs).to_vec(),
        }))
    }
}

/// An address that may be another machine's in the clear.
fn plain_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text.parse().map_err(|_| "a URL")?;
    let authority = url.authority().ok_or("a URL with a host")?;
    match url.scheme_str() {
        Some("http" | "https") if !authority.as_str().contains('@') => Ok(url),
        _ => Err("an http or https URL without a user name"),
    }
}

/// Headers, one a line. What is wrong is said without the value.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = || format!("no header in line {}", number + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Send spans for as long as the server runs.
pub fn start(settings: &Settings, desk: &Desk, shutdown: &Shutdown) {
    let (settings, desk, mut shutdown) = (settings.clone(), desk.clone(), shutdown.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.begun() => {}
            () = export(&settings, &desk) => {}
        }
    });
}

async fn export(settings: &Settings, desk: &Desk) {
    let mut traces = desk.traces();
    let roots = tokio::task::spawn_blocking(system_roots).await;
    let remote = roots.map_err(|error| error.to_string()).and_then(|roots| Remote::new(&settings.url, roots));
    let remote = match remote {
        Ok(remote) => remote,
        Err(why) => return tracing::error!(why, "traces cannot be exported"),
    };
    loop {
        let page = match traces.next().await {
            Ok(page) if page.is_empty() => {
                sleep(settings.every).await;
                continue;
            }
            Ok(page) => page,
            Err(no) => {
                tracing::warn!(?no, "spans cannot be made now; trying again");
                sleep(settings.every).await;
                continue;
            }
        };
        if page.unreadable > 0 {
            tracing::warn!(events = page.unreadable, "no spans could be made of some events");
        }
        let dropped = deliver(settings, &remote, &page).await;
        if let Err(no) = traces.done(page, dropped).await {
            // They are sent again, under the same ids.
            tracing::warn!(?no, "it cannot be kept how far traces are exported; trying again");
            sleep(settings.every).await;
        }
    }
}

/// Send the spans of a page until they are taken, or refused for good. How many were refused.
async fn deliver(settings: &Settings, remote: &Remote, page: &Page) -> u64 {
    let mut refused = 0;
    for request in requests(settings, &page.spans) {
        let mut again = 0;
        refused += loop {
            let failed = match send(settings, remote, &request.body).await {
                Ok(Taken { rejected: 0, .. }) => break 0,
                Ok(Taken { rejected, why }) => {
                    tracing::warn!(why, spans = rejected, "the collector rejected spans: given up");
                    break rejected.min(request.spans);
                }
                Err(failed) => failed,
            };
            if failed.is_final {
                tracing::warn!(why = failed.why, spans = request.spans, "spans were refused: given up");
                break request.spans;
            }
            let wait = settings.again_after.get(again).or(settings.again_after.last());
            let wait = wait.copied().unwrap_or(settings.every);
            let wait_ms = wait.as_millis() as u64;
            // Once, and then for those who want to know all.
            match again {
                0 => tracing::warn!(why = failed.why, "spans are not taken; trying again until they are"),
                _ => tracing::debug!(why = failed.why, wait_ms, "spans are not taken yet"),
            }
            again += 1;
            sleep(wait).await;
        };
    }
    refused
}

/// What the collector says of a request that it has taken.
#[derive(Debug, Default, PartialEq)]
struct Taken {
    /// How many spans of it are lost all the same.
    rejected: u64,
    why: String,
}

/// Reads OTLP's `partialSuccess`. An answer that is anything else rejects nothing.
fn taken(answer: &[u8]) -> Taken {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    // A number of 64 bits is a text in the JSON of protocol buffers; readers take both.
    let rejected = &partial["rejectedSpans"];
    let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
    Taken { rejected, why: partial["errorMessage"].as_str().unwrap_or_default().to_owned() }
}

struct Failed {
    why: String,
    is_final: bool,
}

/// One try. What OTLP calls retryable may be taken later; anything else is refused for good.
async fn send(settings: &Settings, remote: &Remote, body: &Bytes) -> Result<Taken, Failed> {
    let path = settings.url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = hyper::Method::POST;
    *request.uri_mut() = path.parse().map_err(|error| Failed { why: format!("{error}"), is_final: true })?;
    *request.headers_mut() = settings.headers.clone();
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let sent = async {
        let later = |why: String| Failed { why, is_final: false };
        let mut answer = remote.send(request).await.map_err(|failed| later(failed.to_string()))?;
        let status = answer.head.status;
        // Read to its end, the connection can be used again.
        let said = answer.all(ANSWER_BYTES_MAX).await.unwrap_or_default();
        match status.as_u16() {
            200..300 => Ok(taken(&said)),
            429 | 502 | 503 | 504 => Err(later(format!("status {status}"))),
            _ => Err(Failed { why: format!("status {status}"), is_final: true }),
        }
    };
    let late = |_| Err(Failed { why: format!("no answer within {} s", WITHIN.as_secs()), is_final: false });
    timeout(WITHIN, sent).await.unwrap_or_else(late)
}

/// What is sent at once.
struct SpansRequest {
    body: Bytes,
    spans: u64,
}

/// The spans as requests of a bounded size.
fn requests(settings: &Settings, spans: &[Span]) -> Vec<SpansRequest> {
    let (mut requests, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    let request = |part: Vec<Value>| SpansRequest { spans: part.len() as u64, body: body(settings, part) };
    for span in spans.iter().map(otlp) {
        let length = span.to_string().len();
        if bytes + length > BODY_BYTES_MAX && !part.is_empty() {
            requests.push(request(std::mem::take(&mut part)));
            bytes = 0;
        }
        bytes += length;
        part.push(span);
    }
    if !part.is_empty() {
        requests.push(request(part));
    }
    requests
}

fn body(settings: &Settings, spans: Vec<Value>) -> Bytes {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [text("service.name", &settings.service), text("service.version", version)];
    let scope = json!({ "name": "handover", "version": version });
    Bytes::from(
        json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }] })
        .to_string(),
    )
}

/// The kinds and the status of OTLP.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const STATUS_ERROR: u8 = 2;

/// That the flags say whether the parent is remote, that it is, and that the trace is sampled.
const FLAGS: u32 = 0x100 | 0x01;
const FLAG_REMOTE: u32 = 0x200;

/// A span in OTLP's JSON: ids in hexadecimal, numbers of 64 bits as texts.
fn otlp(span: &Span) -> Value {
    let is_callers = span.parent.as_ref().is_some_and(|parent| parent.is_callers);
    let (name, kind) = named(span);
    let mut shown = json!({
        "traceId": span.trace,
        "spanId": span.id,
        "flags": if is_callers { FLAGS | FLAG_REMOTE } else { FLAGS },
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.began),
        "endTimeUnixNano": nanos(span.ended.max(span.began)),
        "attributes": attributes(span),
    });
    if let Some(parent) = &span.parent {
        shown["parentSpanId"] = json!(parent.id);
    }
    if !span.state.is_empty() {
        shown["traceState"] = json!(&*span.state);
    }
    if !span.links.is_empty() {
        let link = |link: &Link| json!({ "traceId": link.trace, "spanId": link.id });
        shown["links"] = span.links.iter().map(link).collect();
    }
    if span.failure.is_some() {
        shown["status"] = json!({ "code": STATUS_ERROR });
    }
    shown
}

fn nanos(at: Timestamp) -> String {
    format!("{}000000", at.0)
}

/// What a span is called, from few names, and its kind.
fn named(span: &Span) -> (String, u8) {
    match span.what {
        What::Session if is_tool_call(span) => match &span.skill {
            Some(skill) => (format!("tools/call {skill}"), SERVER),
            None => ("tools/call".to_owned(), SERVER),
        },
        What::Session => (span.mode.name().to_owned(), SERVER),
        What::Work => match &span.assignee {
            Some(agent) => (format!("invoke_agent {agent}"), CLIENT),
            None => ("invoke_agent".to_owned(), CLIENT),
        },
        What::Event => (span.kind.to_owned(), INTERNAL),
    }
}

/// Whether a span is that of a call over MCP: a task. A handoff is none, whatever it was offered with.
fn is_tool_call(span: &Span) -> bool {
    span.what == What::Session && span.began_on == Face::Mcp && span.mode == ModeKind::Task
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// The names of OpenTelemetry's conventions where they have one, and else our own.
fn attributes(span: &Span) -> Vec<Value> {
    let mut found = vec![
        text("gen_ai.conversation.id", span.session.as_str()),
        text("handover.tenant", &span.tenant),
        text("handover.mode", span.mode.name()),
        text("handover.requester", span.requester.as_str()),
    ];
    let is_called = is_tool_call(span);
    if is_called {
        found.push(text("mcp.method.name", "tools/call"));
    }
    if let (true, Some(skill)) = (is_called, &span.skill) {
        found.extend([text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", skill)]);
    } else if span.what != What::Event {
        found.push(text("gen_ai.operation.name", "invoke_agent"));
    }
    if let (Some(skill), false) = (&span.skill, is_called) {
        found.push(text("handover.skill", skill));
    }
    if let Some(agent) = &span.assignee {
        found.extend([text("gen_ai.agent.id", agent.as_str()), text("gen_ai.agent.name", agent.as_str())]);
    }
    if span.what == What::Session {
        found.push(text("handover.began_on", timeline::face(span.began_on)));
    }
    found.push(text("handover.event", span.kind));
    found.push(json!({ "key": "handover.event.seq", "value": { "intValue": span.seq.0.to_string() } }));
    found.push(text("handover.face", timeline::face(span.face)));
    if let Some(author) = &span.author {
        found.push(text("handover.event.author", author.as_str()));
    }
    if let Some(failure) = &span.failure {
        found.push(text("error.type", failure));
    }
    found
}

#[cfg(test)]
mod tests {
    use handover_kernel::{AgentId, Seq, SessionId, Text};

    use super::*;

    #[test]
    fn a_task_over_mcp_is_a_call_and_a_handoff_over_mcp_is_a_handoff() {
        let span = |mode, began_on| Span {
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            id: "00f067aa0ba902b7".to_owned(),
            parent: None,
            state: Text::default(),
            links: Vec::new(),
            what: What::Session,
            began: Timestamp(1),
            ended: Timestamp(2),
            tenant: "default".into(),
            session: SessionId::from("s"),
            mode,
            began_on,
            requester: AgentId::from("planner"),
            assignee: None,
            skill: None,
            seq: Seq(3),
            kind: "committed",
            author: None,
            face: began_on,
            failure: None,
        };
        for (mode, began_on, name, is_called) in [
            (ModeKind::Task, Face::Mcp, "tools/call", true),
            (ModeKind::Handoff, Face::Mcp, "handoff", false),
            (ModeKind::Task, Face::Grid, "task", false),
        ] {
            let span = span(mode, began_on);
            assert_eq!(named(&span).0, name);
            let method = text("mcp.method.name", "tools/call");
            assert_eq!(attributes(&span).contains(&method), is_called, "{name}");
        }
    }

    #[test]
    fn what_a_collector_rejects_of_a_request_that_it_takes_is_counted() {
        let rejected = |answer: &str| taken(answer.as_bytes()).rejected;
        assert_eq!(rejected(""), 0);
        assert_eq!(rejected("{}"), 0);
        assert_eq!(rejected(r#"{"partialSuccess":{}}"#), 0);
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedSpans":3}}"#), 3);
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedSpans":"-1"}}"#), 0);
        let partial = br#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#;
        assert_eq!(taken(partial), Taken { rejected: 2, why: "too old".to_owned() });
    }

    #[test]
    fn what_is_sent_along_goes_nowhere_in_the_clear_and_what_is_wrong_is_said_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            let path = dir.path().join("headers");
            std::fs::write(&path, text).unwrap();
            path
        };
        let with = |url: &str, headers: Option<&str>| {
            let mut config = Config::default();
            config.traces.url = Some(url.to_owned()).filter(|url| !url.is_empty());
            config.traces.headers_file = headers.map(file);
            Settings::new(&config).map(|settings| settings.map(|settings| settings.headers.len()))
        };
        assert_eq!(with("", None), Ok(None));
        assert_eq!(with("http://collector:4318/v1/traces", None), Ok(Some(0)));
        let secret = Some("api-key: secret\n\nx-scope: a: b");
        assert_eq!(with("https://collector/v1/traces", secret), Ok(Some(2)));
        assert_eq!(with("http://127.0.0.1:4318/v1/traces", secret), Ok(Some(2)));
        for (url, headers, expected) in [
            ("", secret, "traces.url: expected an address"),
            ("http://collector:4318/v1/traces", secret, "traces.url: expected an https URL"),
            ("collector:4318", None, "traces.url: expected"),
            ("ftp://collector", None, "traces.url: expected an http or https URL"),
            ("http://me:secret@collector/", None, "traces.url: expected an http or https URL"),
            ("https://collector/", Some("secret"), "traces.headers_file: expected lines such as name: value"),
            ("https://collector/", Some("a b: secret"), "traces.headers_file"),
            ("https://collector/", Some("a: secret\u{7f}"), "traces.headers_file"),
        ] {
            let error = with(url, headers).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
