//! What the server tells its operator: the log on standard error, and the metrics.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Registry as Spans, reload};

use crate::config::{Format, Level, Log};

pub mod past;

/// Send the log of this process to standard error. Fails if the process has a log already.
pub fn init(log: &Log) -> Result<Dial, TryInitError> {
    let (subscriber, dial) = subscriber(log, io::stderr);
    subscriber.try_init().map(|()| dial)
}

/// Changes the level of the log while the process runs.
pub struct Dial {
    filter: reload::Handle<Targets, Spans>,
    configured: Level,
    now: Mutex<Level>,
}

impl Dial {
    /// Log one level more, up to `trace`.
    pub fn raise(&self) -> Level {
        self.turn(|now| match now {
            Level::Error => Level::Warn,
            Level::Warn => Level::Info,
            Level::Info => Level::Debug,
            Level::Debug | Level::Trace => Level::Trace,
        })
    }

    /// Log what the configuration says.
    pub fn reset(&self) -> Level {
        self.turn(|_| self.configured)
    }

    fn turn(&self, to: impl Fn(Level) -> Level) -> Level {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = to(*now);
        // Fails only when nothing is logged any more.
        _ = self.filter.reload(filter(*now));
        *now
    }
}

/// What turns events into lines, and what changes how many.
pub(crate) fn subscriber<W>(log: &Log, writer: W) -> (impl Subscriber + Send + Sync + use<W>, Dial)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(log.level));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match log.format {
        Format::Text => lines.with_ansi(false).boxed(),
        // There is one span at most: the request.
        Format::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let dial = Dial { filter: handle, configured: log.level, now: Mutex::new(log.level) };
    (tracing_subscriber::registry().with(lines.with_filter(filter)), dial)
}

/// What other people's crates say is logged up to `info` only.
fn filter(level: Level) -> Targets {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // A target matches by how its name begins: `handover` stands for all crates of the workspace.
    Targets::new().with_default(level.min(LevelFilter::INFO)).with_target("handover", level)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    path: String,
    status: u16,
}

/// The protocols whose answers are timed, and what the server serves itself.
const OWN: &str = "server";
const FACES: [&str; 5] = ["macp", "mcp", "grid", "console", OWN];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    face: &'static str,
}

fn answer_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 16))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    status: &'static str,
}

/// The calls of MACP.
#[derive(Clone, Debug)]
pub struct Calls {
    ok: Counter,
    all: Family<CallLabels, Counter>,
    seconds: Histogram,
}

impl Calls {
    /// Count a call whose answer has begun.
    pub fn count(&self, status: Code, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        // Finding any other takes a lock.
        if status == Code::Ok {
            self.ok.inc();
        } else {
            self.all.get_or_create(&CallLabels { status: named(status) }).inc();
        }
    }
}

/// gRPC's own names.
fn named(status: Code) -> &'static str {
    match status {
        Code::Ok => "Ok",
        Code::Cancelled => "Cancelled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    listener: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DroppedLabels {
    listener: &'static str,
    why: &'static str,
}

/// The connections of one listener.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    listener: &'static str,
    /// Those that are open.
    pub open: Gauge,
    dropped: Family<DroppedLabels, Counter>,
}

impl Connections {
    /// Count a connection, or a stream of one, that was not let go on, and why.
    pub fn dropped(&self, why: &'static str) {
        self.dropped.get_or_create(&DroppedLabels { listener: self.listener, why }).inc();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UnreadLabels {
    why: &'static str,
}

/// Requests that were not read to their end.
#[derive(Clone, Debug, Default)]
pub struct Unread(Family<UnreadLabels, Counter>);

impl Unread {
    /// Count one, and why.
    pub fn count(&self, why: &'static str) {
        self.0.get_or_create(&UnreadLabels { why }).inc();
    }
}

/// The numbers of this process: the engine's, the desk's, and those of the wires. Each can be changed from any thread.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    http_requests: Family<HttpLabels, Counter>,
    answers: Family<AnswerLabels, Histogram>,
    macp_calls: Family<CallLabels, Counter>,
    connections: Family<ListenerLabels, Gauge>,
    connections_dropped: Family<DroppedLabels, Counter>,
    /// Requests that were not read, by why.
    pub unread: Unread,
    /// TLS handshakes that came to nothing.
    pub tls_handshakes_failed: Counter,
}

impl Metrics {
    /// Those of this desk and of the wires in front of it.
    pub fn new(desk: impl FnOnce(&mut Registry)) -> Arc<Metrics> {
        let mut registry = Registry::with_prefix("handover");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The release that is running", build);
        desk(&mut registry);
        let http_requests = Family::default();
        registry.register("http_requests", "HTTP requests by path and status", http_requests.clone());
        let answers: Family<AnswerLabels, Histogram> = Family::new_with_constructor(answer_seconds);
        let took = "Time until the answer to a request began, by protocol";
        registry.register_with_unit("answer", took, Unit::Seconds, answers.clone());
        for face in FACES {
            _ = answers.get_or_create(&AnswerLabels { face });
        }
        let macp_calls = Family::default();
        registry.register("macp_calls", "MACP calls, by gRPC status", macp_calls.clone());
        let connections = Family::default();
        registry.register("connections_open", "Connections open now, by listener", connections.clone());
        let dropped = Family::default();
        let help = "Connections and HTTP/2 streams that the server ended, by listener and why";
        registry.register("connections_dropped", help, dropped.clone());
        let unread = Unread::default();
        registry.register(
            "requests_unread",
            "Requests that were not read to their end, by why",
            unread.0.clone(),
        );
        let failed = Counter::default();
        registry.register("tls_handshakes_failed", "TLS handshakes that failed", failed.clone());
        Arc::new(Metrics {
            registry,
            http_requests,
            answers,
            macp_calls,
            connections,
            connections_dropped: dropped,
            unread,
            tls_handshakes_failed: failed,
        })
    }

    /// Where the connections of a listener are counted.
    pub fn connections(&self, listener: &'static str) -> Connections {
        let open = self.connections.get_or_create(&ListenerLabels { listener }).clone();
        Connections { listener, open, dropped: self.connections_dropped.clone() }
    }

    /// Where HTTP requests with such an answer are counted. The path must be that of a route, so that there are never many.
    pub fn http_requests(&self, path: &str, status: u16) -> Counter {
        self.http_requests.get_or_create(&HttpLabels { path: path.to_owned(), status }).clone()
    }

    /// Where it is counted how long the answers of a protocol take, from its routes.
    pub fn answers_at(&self, path: &str) -> Histogram {
        let part = path.split('/').nth(1).unwrap_or_default();
        let face = match part {
            "mcp" | "grid" => FACES.into_iter().find(|face| *face == part).unwrap_or(OWN),
            "healthz" | "readyz" | "errors" | "metrics" | "backup" | "openapi.json" | ".well-known" => OWN,
            _ if path == "other" => OWN,
            _ => "console",
        };
        self.answers.get_or_create(&AnswerLabels { face }).clone()
    }

    /// Where MACP's calls are counted.
    pub fn calls(&self) -> Arc<Calls> {
        let ok = self.macp_calls.get_or_create(&CallLabels { status: "Ok" }).clone();
        let seconds = self.answers.get_or_create(&AnswerLabels { face: "macp" }).clone();
        Arc::new(Calls { ok, all: self.macp_calls.clone(), seconds })
    }

    /// All metrics in the text format that Prometheus reads.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use handover_desk::counters::Counters;
    use handover_desk::limit::Limit;
    use handover_engine::shard::End;
    use handover_engine::{Answer, Denied};
    use handover_kernel::Refusal;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(log: &Log, say: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing::subscriber::with_default(subscriber(log, move || writer.clone()).0, say);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_json_line_holds_the_level_the_message_and_the_fields() {
        let log = Log { level: Level::Info, format: Format::Json };
        let line = logged(&log, || tracing::info!(shard = 3, "started"));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&line["level"], &line["message"], &line["shard"]),
            (&"INFO".into(), &"started".into(), &3.into())
        );
    }

    #[test]
    fn a_text_line_has_no_colours_and_holds_the_message_and_the_fields() {
        let log = Log { level: Level::Info, format: Format::Text };
        let line = logged(&log, || tracing::info!(shard = 3, "started"));
        assert!(line.ends_with("INFO handover_server::telemetry::tests: started shard=3\n"), "{line:?}");
    }

    #[test]
    fn what_is_less_important_than_the_level_is_not_logged() {
        let log = Log { level: Level::Warn, format: Format::Text };
        assert_eq!(logged(&log, || tracing::info!("quiet")), "");
        assert!(logged(&log, || tracing::warn!("loud")).contains("loud"));
    }

    #[test]
    fn the_level_can_be_raised_step_by_step_and_put_back() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = Log { level: Level::Info, format: Format::Text };
        let (subscriber, dial) = subscriber(&log, move || writer.clone());
        let heard = || {
            lines.0.lock().unwrap().clear();
            tracing::info!("one");
            tracing::debug!("two");
            tracing::trace!("three");
            String::from_utf8(lines.0.lock().unwrap().clone()).unwrap().lines().count()
        };
        tracing::subscriber::with_default(subscriber, || {
            assert_eq!(heard(), 1);
            assert_eq!((dial.raise(), heard()), (Level::Debug, 2));
            assert_eq!((dial.raise(), heard()), (Level::Trace, 3));
            assert_eq!((dial.raise(), heard()), (Level::Trace, 3));
            assert_eq!((dial.reset(), heard()), (Level::Info, 1));
        });
    }

    #[test]
    fn other_crates_are_logged_up_to_info_whatever_the_level() {
        let log = Log { level: Level::Trace, format: Format::Text };
        let lines = logged(&log, || {
            tracing::debug!(target: "hyper::proto", "theirs");
            tracing::trace!("ours");
        });
        assert!(lines.contains("ours") && !lines.contains("theirs"), "{lines}");
    }

    #[test]
    fn every_metric_is_there_from_the_start_under_its_name() {
        let engine = handover_engine::Counters::new();
        let desk = Counters::new(Limit::ALL.map(Limit::name));
        let metrics = Metrics::new(|registry| {
            engine.register(registry);
            desk.register(registry);
        });
        engine.count_answer(&Answer::Denied(Denied::Refused(Refusal::Busy)));
        engine.count_end(End::Expired);
        metrics.http_requests("/healthz", 200).inc();
        desk.count_limited(Limit::ALL[0].name());
        engine.commit_seconds.observe(0.003);
        engine.sessions_in_memory.set(7);
        let text = metrics.to_text();
        for line in [
            &format!("handover_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
            "handover_commands_total{outcome=\"accepted\"} 0",
            "handover_commands_total{outcome=\"duplicate\"} 0",
            "handover_commands_total{outcome=\"refused\"} 1",
            "handover_commands_total{outcome=\"fault\"} 0",
            "handover_http_requests_total{path=\"/healthz\",status=\"200\"} 1",
            "handover_limited_total{limit=\"session_starts\"} 1",
            "handover_limited_total{limit=\"payload_bytes\"} 0",
            "handover_authentications_failed_total 0",
            "handover_forbidden_total 0",
            "handover_audit_lines_total 0",
            "handover_audit_left_out_total 0",
            "handover_streams_open 0",
            "handover_sessions_ended_total{how=\"resolved\"} 0",
            "handover_sessions_ended_total{how=\"expired\"} 1",
            "handover_sessions_ended_total{how=\"cancelled\"} 0",
            "handover_events_appended_total 0",
            "handover_commits_total 0",
            "handover_commit_seconds_count 1",
            "handover_sessions_in_memory 7",
            "handover_subscribers 0",
            "handover_subscribers_cut_total 0",
            "handover_tls_handshakes_failed_total 0",
            "handover_ticks_total 0",
            "handover_store_faults_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "expected {line}, found\n{text}");
        }
    }

    #[test]
    fn an_answer_is_counted_for_the_protocol_that_its_path_belongs_to() {
        for (path, face) in [
            ("/mcp", "mcp"),
            ("/grid/nodes/{node}", "grid"),
            ("/openapi.json", "server"),
            ("/healthz", "server"),
            ("/tasks/{id}", "console"),
            ("/", "console"),
        ] {
            let metrics = Metrics::new(|_| {});
            metrics.answers_at(path).observe(0.1);
            let line = format!("handover_answer_seconds_count{{face=\"{face}\"}} 1");
            assert!(metrics.to_text().contains(&line), "{path}");
        }
    }
}
