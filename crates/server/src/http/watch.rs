//! What holds for every request: it is for a host that is answered for, its body and its time are bounded, and it is
//! counted and logged. Written out, because a function of axum's in its place puts each request into several boxes more.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http_body_util::Limited;
use hyper::body::Body as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use super::body::ARRIVED;
use super::line::Line;
use super::{Bounds, Hosts, problem};
use crate::telemetry::Metrics;
use handover_desk::codes::own;

/// The layer.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) bounds: Bounds,
    pub(super) hosts: Hosts,
    pub(super) metrics: Arc<Metrics>,
}

impl<S> Layer<S> for Watch {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched { inner, watch: Arc::new(self.clone()), path: None, good: Arc::default() }
    }
}

impl Watch {
    /// Something under watch that is always at this path, whatever the router would say.
    pub(super) fn at<S>(&self, path: &'static str, inner: S) -> Watched<S> {
        Watched { path: Some(path), ..self.layer(inner) }
    }
}

/// The mark of an answer that its client wanted to wait for, such as that of a call with `waitMs`. How long it took says
/// nothing about the server, so it is counted but not timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited;

/// A route under watch.
#[derive(Clone)]
pub(super) struct Watched<S> {
    inner: S,
    watch: Arc<Watch>,
    /// Where it is, if that is not what the router found.
    path: Option<&'static str>,
    /// Where most of its answers are counted.
    good: Arc<OnceLock<Counted>>,
}

/// The answers with status 200 of a path: found once, because looking for them takes a lock and a name for each.
struct Counted {
    path: Path,
    answers: Counter,
    seconds: Histogram,
}

impl Counted {
    fn count(&self, took: Option<Duration>) {
        self.answers.inc();
        if let Some(took) = took {
            self.seconds.observe(took.as_secs_f64());
        }
    }
}

/// The path of a route, not that of a request: what anyone can make up must not become a label.
#[derive(Clone)]
enum Path {
    Fixed(&'static str),
    Matched(MatchedPath),
}

impl Path {
    fn as_str(&self) -> &str {
        match self {
            Path::Fixed(path) => path,
            Path::Matched(path) => path.as_str(),
        }
    }
}

impl Watch {
    fn count(&self, path: &Path, status: u16, took: Option<Duration>, good: &OnceLock<Counted>) {
        let found = || Counted {
            answers: self.metrics.http_requests(path.as_str(), status),
            seconds: self.metrics.answers_at(path.as_str()),
            path: path.clone(),
        };
        if status != 200 {
            return found().count(took);
        }
        let known = good.get_or_init(found);
        if known.path.as_str() == path.as_str() {
            known.count(took);
        } else {
            found().count(took);
        }
    }
}

/// Stands for every path that has no route.
const OTHER: &str = "other";

impl<S> Service<Request> for Watched<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (watch, good) = (Arc::clone(&self.watch), Arc::clone(&self.good));
        let (bounds, began) = (watch.bounds, Instant::now());
        let matched = || request.extensions().get::<MatchedPath>().cloned().map(Path::Matched);
        let path = self.path.map(Path::Fixed).or_else(matched).unwrap_or(Path::Fixed(OTHER));
        let line = Line::begin(request.headers()).map(|line| (line, request.method().clone()));
        let span = line.as_ref().map(|(line, _)| line.span.clone());
        let empty = request.body().size_hint().exact() == Some(0);
        let inner = &mut self.inner;
        let begin = || {
            let checked = self.watch.hosts.check(&request);
            let bounded = checked.and_then(|()| bounded(request, bounds.body_bytes_max));
            bounded.map(|request| inner.call(request))
        };
        let answer = match &span {
            Some(span) => span.in_scope(begin),
            None => begin(),
        };
        let watched = async move {
            let answer = match answer {
                Ok(answer) => {
                    let arrived = Cell::new(empty.then(tokio::time::Instant::now));
                    match ARRIVED.scope(arrived, in_time(bounds, answer)).await {
                        Some(Ok(answer)) => answer,
                        None => too_late(bounds),
                    }
                }
                Err(refused) => *refused,
            };
            let status = answer.status().as_u16();
            let awaited = answer.extensions().get::<Awaited>().is_some();
            watch.count(&path, status, (!awaited).then(|| began.elapsed()), &good);
            if let Some((line, method)) = line {
                let route = path.as_str();
                let (duration_ms, trace) = (line.ms(), line.trace());
                tracing::debug!(route, %method, status, duration_ms, trace, "answered");
            }
            Ok(answer)
        };
        match span {
            Some(span) => Box::pin(watched.instrument(span)),
            None => Box::pin(watched),
        }
    }
}

/// What comes of a request, if anything does in the time that there is from when its body was whole.
async fn in_time<F: Future>(bounds: Bounds, answer: F) -> Option<F::Output> {
    let mut answer = pin!(answer);
    // A body that nobody reads to its end has the time of both.
    let mut late = pin!(tokio::time::sleep(bounds.body_within + bounds.answer_within));
    let mut whole = false;
    poll_fn(|cx| {
        if let Poll::Ready(done) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if !whole && let Some(arrived) = ARRIVED.with(Cell::get) {
            whole = true;
            late.as_mut().reset(arrived + bounds.answer_within);
        }
        late.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// A request whose body has at most so many bytes.
fn bounded(request: Request, bytes_max: usize) -> Result<Request, Box<Response>> {
    match request.body().size_hint().exact() {
        Some(length) if length > bytes_max as u64 => {
            let message = format!("expected a body of at most {bytes_max} bytes, found {length}");
            Err(Box::new(problem(&own::PAYLOAD_TOO_LARGE, &message)))
        }
        // No more comes than was announced.
        Some(_) => Ok(request),
        // A body without a length is cut off where it passes the limit.
        None => Ok(request.map(|body| Body::new(Limited::new(body, bytes_max)))),
    }
}

fn too_late(bounds: Bounds) -> Response {
    let seconds = bounds.answer_within.as_secs_f32();
    problem(&own::TIMEOUT, &format!("no answer within {seconds} s; what was asked may still happen"))
}
