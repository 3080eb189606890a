//! The basics of HTTP: health, readiness, metrics, answers to what is not there, and bounds for every request.
//!
//! - [`ready`]: the checks behind `/readyz`
//! - [`listen`]: accepting connections, and stopping
//! - `preface`: whether a connection speaks HTTP/1.1 or HTTP/2
//! - [`host`]: the host that a request is for, and which hosts are answered for
//! - [`origin`]: which browser pages may ask
//! - [`bearer`]: where a request says whose it is
//! - `help`: a page for each error code
//! - [`sse`]: streams of events
//! - `line`: one line of the log for each request
//! - `watch`: what holds for every request: bounds, and that it is counted
//!
//! The faces bring their own routes; everything here holds for them as well.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

pub mod bearer;
mod help;
pub mod host;
pub(crate) mod line;
pub mod listen;
pub mod origin;
mod preface;
pub mod ready;
pub mod sse;
pub mod trace;
mod watch;

pub use axum::Router;
pub use host::Hosts;
pub use listen::{Peer, serve};
pub use ready::Probe;

use self::watch::Watch;
use crate::telemetry::Metrics;
use handover_desk::codes;
use handover_desk::codes::own::{self, Own};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What one request may use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many bytes its body may have.
    pub body_bytes_max: usize,
    /// How long it may take until the head of the answer. A body that streams afterwards is not cut.
    pub answer_within: Duration,
}

impl Bounds {
    /// Bounds under which a payload of `payload_bytes_max` fits, however the face encodes it: base64 in JSON is the
    /// widest, and the rest of the message needs room as well.
    pub fn for_payload(payload_bytes_max: usize) -> Bounds {
        Bounds { body_bytes_max: payload_bytes_max * 2 + 64 * 1024, answer_within: Duration::from_secs(30) }
    }
}

/// Everything that is served: the routes of the faces, and the server's own. The faces must not bring a fallback.
pub fn router(
    faces: Router,
    probes: Vec<Probe>,
    metrics: Arc<Metrics>,
    bounds: Bounds,
    hosts: Hosts,
) -> Router {
    let shown = Arc::clone(&metrics);
    let checks = ready::Checks::new(probes);
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async move { checks.answer().await }))
        .route("/metrics", get(|| async move { ([(header::CONTENT_TYPE, METRICS_TYPE)], shown.to_text()) }))
        .merge(help::routes())
        .merge(faces)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // As one layer: each puts every request and its answer into boxes of its own.
        .layer((DefaultBodyLimit::max(bounds.body_bytes_max), Watch { bounds, hosts, metrics }))
}

async fn not_found(uri: Uri) -> Response {
    problem(&own::NOT_FOUND, &format!("nothing is served at {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    problem(&own::METHOD_NOT_ALLOWED, &message)
}

/// An answer that says what is wrong, for people and machines, and where to read more.
pub(crate) fn problem(own: &Own, message: &str) -> Response {
    line::note("code", own.code);
    let status = own.http.first().and_then(|status| StatusCode::from_u16(*status).ok());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let error = json!({ "code": own.code, "message": message, "help": codes::link(own.code) });
    (status, Json(json!({ "error": error }))).into_response()
}

#[cfg(test)]
mod tests;
