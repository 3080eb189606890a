//! One line of the log for each request, at `debug`: what was asked, by whom, what came of it and how long it took. Never
//! a token and never a body. At other levels it costs next to nothing.

use std::time::Instant;

use axum::http::HeaderMap;
use tracing::field::Empty;
use tracing::{Level, Span, Value};

/// How much is logged of a text that a client made up.
const BYTES_MAX: usize = 128;

/// A request under way, for the log.
pub(crate) struct Line {
    /// The span that the request is answered in, which [`note`] adds to.
    pub(crate) span: Span,
    began: Instant,
    trace: Option<String>,
}

impl Line {
    /// A request with these headers begins. None unless `debug` is logged.
    pub(crate) fn begin(headers: &HeaderMap) -> Option<Line> {
        let span = tracing::debug_span!("request", agent = Empty, rpc = Empty, session = Empty, code = Empty);
        let trace = || headers.get("traceparent")?.to_str().ok().and_then(trace_id);
        (!span.is_disabled()).then(|| Line { span, began: Instant::now(), trace: trace().map(str::to_owned) })
    }

    /// How long it has taken so far.
    pub(crate) fn ms(&self) -> f64 {
        self.began.elapsed().as_micros() as f64 / 1000.0
    }

    /// The trace that it belongs to, if it says so.
    pub(crate) fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }
}

/// Add what is known of the request under way: `agent`, `rpc`, `session` or `code`.
pub(crate) fn note(field: &'static str, value: impl Value) {
    if tracing::enabled!(Level::DEBUG) {
        Span::current().record(field, value);
    }
}

/// What a client made up, short enough to be logged.
pub(crate) fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(BYTES_MAX)]
}

/// The trace id of a well-formed `traceparent` (W3C Trace Context §3.2).
fn trace_id(text: &str) -> Option<&str> {
    let mut parts = text.split('-');
    let mut hex = |length: usize| {
        let part = parts.next()?;
        let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == length && is_hex).then_some(part)
    };
    let (version, trace, parent, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    // Later versions may say more, version 0 does not, and ff is none.
    let ends = version != "00" || parts.next().is_none();
    let is_some = |id: &str| id.bytes().any(|byte| byte != b'0');
    (ends && version != "ff" && is_some(trace) && is_some(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_names_a_trace() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let (zero, parent) = ("0".repeat(32), "00f067aa0ba902b7");
        for right in [format!("00-{trace}-{parent}-01"), format!("cc-{trace}-{parent}-00-more")] {
            assert_eq!(trace_id(&right), Some(trace), "{right}");
        }
        for wrong in [
            String::new(),
            trace.to_owned(),
            format!("00-{trace}-{parent}"),
            format!("00-{trace}-{parent}-01-more"),
            format!("ff-{trace}-{parent}-01"),
            format!("00-{zero}-{parent}-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-{parent}-01", trace.to_uppercase()),
            format!("00-{trace}x-{parent}-01"),
        ] {
            assert_eq!(trace_id(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_a_client_made_up_is_cut_between_characters() {
        assert_eq!(short("tools/list"), "tools/list");
        assert_eq!(short(&"\u{e4}".repeat(100)).len(), 128);
        assert_eq!(short(&format!("x{}", "\u{e4}".repeat(100))).len(), 127);
    }
}
