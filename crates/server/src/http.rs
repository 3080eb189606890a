//! The basics of HTTP: health, readiness, metrics, answers to what is not there, and bounds for every request.
//!
//! - [`ready`]: the checks behind `/readyz`
//! - [`listen`]: accepting connections, and stopping
//!
//! The faces bring their own routes; everything here holds for them as well.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, RequestExt};
use serde_json::json;

pub mod listen;
pub mod ready;

pub use axum::Router;
pub use listen::{Peer, serve};
pub use ready::Probe;

use crate::telemetry::Metrics;

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
pub fn router(faces: Router, probes: Vec<Probe>, metrics: Arc<Metrics>, bounds: Bounds) -> Router {
    let shown = Arc::clone(&metrics);
    let checks = ready::Checks::new(probes);
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async move { checks.answer().await }))
        .route("/metrics", get(|| async move { ([(header::CONTENT_TYPE, METRICS_TYPE)], shown.to_text()) }))
        .merge(faces)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // One layer: each puts every request and its answer into boxes of its own.
        .layer((
            DefaultBodyLimit::max(bounds.body_bytes_max),
            middleware::from_fn_with_state((bounds, metrics), counted),
        ))
}

async fn not_found(uri: Uri) -> Response {
    problem(StatusCode::NOT_FOUND, "NOT_FOUND", &format!("nothing is served at {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    problem(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", &message)
}

async fn within_bounds(bounds: Bounds, request: Request, next: Next) -> Response {
    let Bounds { body_bytes_max, answer_within } = bounds;
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let request = match announced.map(str::parse::<usize>) {
        Some(Ok(length)) if length > body_bytes_max => {
            let message = format!("expected a body of at most {body_bytes_max} bytes, found {length}");
            return problem(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", &message);
        }
        // No more comes than was announced.
        Some(Ok(_)) => request,
        // A body without a length is cut off where it passes the limit.
        Some(Err(_)) | None => request.with_limited_body(),
    };
    let answer = next.run(request);
    tokio::time::timeout(answer_within, answer).await.unwrap_or_else(|_| {
        let message =
            format!("no answer within {} s; what was asked may still happen", answer_within.as_secs_f32());
        problem(StatusCode::SERVICE_UNAVAILABLE, "TIMEOUT", &message)
    })
}

/// Counts by route, not by path: what anyone can make up must not become a label.
async fn counted(
    State((bounds, metrics)): State<(Bounds, Arc<Metrics>)>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let answer = within_bounds(bounds, request, next).await;
    metrics.count_http_request(route.as_ref().map_or("other", MatchedPath::as_str), answer.status().as_u16());
    answer
}

fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({ "error": { "code": code, "message": message } }))).into_response()
}

#[cfg(test)]
mod tests;
