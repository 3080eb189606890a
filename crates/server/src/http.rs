//! The basics of HTTP: health, readiness, metrics, answers to what is not there, and bounds for every request.
//!
//! - [`ready`]: the checks behind `/readyz`
//! - [`listen`]: accepting connections, and stopping
//! - [`room`]: how many connections there may be, in all and from one address
//! - `pace`: readers that take nothing
//! - [`body`]: reading the body of a request
//! - `front`: the routes, and what is answered before they are asked
//! - `preface`: whether a connection speaks HTTP/1.1 or HTTP/2
//! - [`host`]: the host that a request is for, and which hosts are answered for
//! - [`origin`]: which browser pages may ask
//! - `backup`: a copy of everything, for the operator
//! - [`bearer`]: where a request says whose it is
//! - `help`: a page for each error code
//! - [`sse`]: streams of events
//! - `line`: one line of the log for each request
//! - `watch`: what holds for every request: bounds, and that it is counted
//!
//! The faces bring their own routes; everything here holds for them as well.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

mod backup;
pub mod bearer;
pub mod body;
mod front;
mod help;
pub mod host;
pub(crate) mod line;
pub mod listen;
pub mod origin;
mod pace;
mod preface;
pub mod ready;
pub mod room;
pub mod sse;
pub mod trace;
mod watch;

pub use axum::Router;
pub use backup::Backup;
pub use front::{Front, Routes};
pub use host::Hosts;
pub use listen::{Peer, serve};
pub use ready::{Checks, Probe};

pub(crate) use self::watch::Awaited;
use self::watch::Watch;
use crate::config;
use crate::queue;
use crate::telemetry::{Metrics, Unread};
use handover_desk::codes;
use handover_desk::codes::own::{self, Own};
use handover_desk::limit::Limited;
use handover_desk::memory::{Lease, Room};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What one request may use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many bytes its body may have.
    pub body_bytes_max: usize,
    /// How long its body may take.
    pub body_within: Duration,
    /// How long it may take from then on until the head of the answer. A body that streams afterwards is not cut.
    pub answer_within: Duration,
}

impl Bounds {
    /// As the configuration says.
    pub fn new(limits: &config::Limits) -> Bounds {
        let body_within = Duration::from_secs(limits.body_seconds);
        Bounds { body_within, ..Bounds::for_payload(limits.payload_bytes_max) }
    }

    /// Bounds under which a payload of `payload_bytes_max` fits, however the face encodes it: base64 in JSON is the
    /// widest, and the rest of the message needs room as well.
    pub fn for_payload(payload_bytes_max: usize) -> Bounds {
        let within = Duration::from_secs(30);
        Bounds {
            body_bytes_max: payload_bytes_max * 2 + 64 * 1024,
            body_within: within,
            answer_within: within,
        }
    }
}

/// Everything that is served to everybody: the routes of the faces, and the server's own. The faces must not bring a
/// fallback.
pub fn router(
    faces: impl Into<Routes>,
    checks: Checks,
    metrics: Arc<Metrics>,
    bounds: Bounds,
    hosts: Hosts,
) -> Front {
    let Routes { all, often } = faces.into();
    let own = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async move { checks.status().await }))
        .merge(help::routes());
    let watch = Watch { bounds, hosts, metrics };
    let often = often.map(|often| (often.path, watch.at(often.path, often)));
    Front { all: watched(own.merge(all), watch), often }
}

/// What is served to the operator.
pub fn admin_router(
    checks: Checks,
    backup: Option<Backup>,
    metrics: Arc<Metrics>,
    bounds: Bounds,
    hosts: Hosts,
) -> Router {
    let shown = Arc::clone(&metrics);
    let own = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async move { checks.detail().await }))
        .route("/metrics", get(|| async move { ([(header::CONTENT_TYPE, METRICS_TYPE)], shown.to_text()) }));
    let watch = Watch { bounds, hosts, metrics };
    watched(own.merge(backup.map(Backup::routes).unwrap_or_default()), watch)
}

fn watched(routes: Router, watch: Watch) -> Router {
    routes.fallback(not_found).method_not_allowed_fallback(method_not_allowed).layer(watch)
}

/// What comes of some work within so long, if anything does. Most is done at once, and needs no timer.
async fn within<F: Future>(time: Duration, mut work: Pin<&mut F>) -> Option<F::Output> {
    match poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => tokio::time::timeout(time, work).await.ok(),
    }
}

/// The whole body of a request, or why it was not read.
pub(crate) async fn gather(
    body: Body,
    bounds: &Bounds,
    unread: &Unread,
    grow: impl FnMut(usize) -> Result<(), Limited>,
) -> Result<Bytes, Box<Response>> {
    let Bounds { body_bytes_max, body_within, .. } = *bounds;
    body::gather(body, body_bytes_max, body_within, grow).await.map_err(|why| {
        unread.count(why.name());
        Box::new(match why {
            body::Unread::TooSlow => {
                let message = format!("expected the whole body within {} s", body_within.as_secs_f32());
                problem(&own::REQUEST_TIMEOUT, &message)
            }
            body::Unread::TooLong => problem(
                &own::PAYLOAD_TOO_LARGE,
                &format!("expected a body of at most {body_bytes_max} bytes"),
            ),
            body::Unread::Limited(limited) => problem(&own::RATE_LIMITED, &limited.to_string()),
            body::Unread::Full | body::Unread::Broken => {
                problem(&own::INVALID_REQUEST, "expected a whole body, found that it ended early")
            }
        })
    })
}

/// Whether a content type is JSON.
pub fn is_json(content_type: &str) -> bool {
    let kind = content_type.split_once(';').map_or(content_type, |(kind, _)| kind);
    kind.trim_ascii().eq_ignore_ascii_case("application/json")
}

async fn not_found(uri: Uri) -> Response {
    problem(&own::NOT_FOUND, &format!("nothing is served at {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    problem(&own::METHOD_NOT_ALLOWED, &message)
}

/// An answer as JSON, held until the network has taken it.
pub(crate) fn json_answer(status: u16, message: String, room: Option<&Room>) -> Response {
    let lease = room.map(|room| room.hold(message.len() as u64));
    json_held(status, message, lease)
}

/// The same with what is held for it already.
pub(crate) fn json_held(status: u16, message: String, lease: Option<Lease>) -> Response {
    let body = Body::from(queue::held(message, lease));
    json_body(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), body)
}

/// It is somebody's: nothing on the way may keep it.
pub(crate) fn json_body(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Who asks too often or holds too much is told so before its body is read.
pub(crate) fn too_much(code: &Own, limited: &Limited) -> Response {
    let mut response = problem(code, &limited.to_string());
    if let Some(wait) = limited.retry_after_ms() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1000)));
    }
    response
}

/// An answer that says what is wrong, for people and machines, and where to read more.
pub(crate) fn problem(own: &Own, message: &str) -> Response {
    problem_of(own.code, own.http.first().copied().unwrap_or(500), message)
}

/// The same of any code.
pub(crate) fn problem_of(code: &'static str, status: u16, message: &str) -> Response {
    line::note("code", code);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let error = json!({ "code": code, "message": message, "help": codes::link(code) });
    (status, Json(json!({ "error": error }))).into_response()
}

#[cfg(test)]
mod tests;
