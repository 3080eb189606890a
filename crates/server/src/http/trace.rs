//! The trace that a request is part of: W3C Trace Context, in the headers of HTTP and of gRPC.

use axum::http::{HeaderMap, HeaderName};
use handover_kernel::Trace;

static PARENT: HeaderName = HeaderName::from_static("traceparent");
static STATE: HeaderName = HeaderName::from_static("tracestate");

/// What the headers `traceparent` and `tracestate` say; none unless they are well formed.
pub fn of(headers: &HeaderMap) -> Option<Trace> {
    let parent = headers.get(&PARENT)?.to_str().ok()?;
    // A list may come in several headers (Trace Context §3.3.1.1).
    let state: Vec<&str> = headers.get_all(&STATE).iter().filter_map(|state| state.to_str().ok()).collect();
    Trace::new(parent, &state.join(","))
}
