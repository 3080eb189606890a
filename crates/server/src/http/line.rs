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
    /// A request without headers begins. None unless `debug` is logged.
    pub(crate) fn begin_bare() -> Option<Line> {
        Line::begin(&HeaderMap::new())
    }

    /// A request with these headers begins. None unless `debug` is logged.
    pub(crate) fn begin(headers: &HeaderMap) -> Option<Line> {
        let span = tracing::debug_span!(
            "request",
            face = Empty,
            agent = Empty,
            rpc = Empty,
            session = Empty,
            code = Empty
        );
        let trace = || super::trace::of(headers).map(|trace| trace.id().to_owned());
        (!span.is_disabled()).then(|| Line { span, began: Instant::now(), trace: trace() })
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

/// Add what is known of the request under way: `face`, `agent`, `rpc`, `session` or `code`.
pub(crate) fn note(field: &'static str, value: impl Value) {
    if tracing::enabled!(Level::DEBUG) {
        Span::current().record(field, value);
    }
}

/// What a client made up, short enough to be logged.
pub(crate) fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_made_up_is_cut_between_characters() {
        assert_eq!(short("tools/list"), "tools/list");
        assert_eq!(short(&"\u{e4}".repeat(100)).len(), 128);
        assert_eq!(short(&format!("x{}", "\u{e4}".repeat(100))).len(), 127);
    }
}
