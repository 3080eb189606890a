//! The trace that a request is part of: W3C Trace Context, in the headers of HTTP and of gRPC.

use axum::http::HeaderMap;
use handover_kernel::Trace;

/// What the headers `traceparent` and `tracestate` say; none unless they are well formed.
pub fn of(headers: &HeaderMap) -> Option<Trace> {
    let parent = headers.get("traceparent")?.to_str().ok()?;
    let state = headers.get("tracestate").and_then(|state| state.to_str().ok());
    Trace::new(parent, state.unwrap_or_default())
}
