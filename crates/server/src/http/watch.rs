//! What holds for every request: it is for a host that is answered for, its body and its time are bounded, and it is
//! counted and logged. Written out, because a function of
//! axum's in its place puts each request into several boxes more.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::RequestExt;
use axum::extract::{MatchedPath, Request};
use axum::http::header;
use axum::response::Response;
use tower_layer::Layer;
use tower_service::Service;
use tracing::{Instrument, Span};

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
        Watched { inner, watch: self.clone() }
    }
}

/// A route under watch.
#[derive(Clone)]
pub(super) struct Watched<S> {
    inner: S,
    watch: Watch,
}

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
        let (bounds, metrics) = (self.watch.bounds, Arc::clone(&self.watch.metrics));
        let route = request.extensions().get::<MatchedPath>().cloned();
        let line = Line::begin(request.headers()).map(|line| (line, request.method().clone()));
        let span = line.as_ref().map_or_else(Span::none, |(line, _)| line.span.clone());
        let answer = span.in_scope(|| {
            let checked = self.watch.hosts.check(&request);
            let bounded = checked.and_then(|()| bounded(request, bounds.body_bytes_max));
            bounded.map(|request| self.inner.call(request))
        });
        let watched = async move {
            let answer = match answer {
                Ok(answer) => within(bounds, answer).await,
                Err(refused) => *refused,
            };
            // By route, not by path: what anyone can make up must not become a label.
            let route = route.as_ref().map_or("other", MatchedPath::as_str);
            let status = answer.status().as_u16();
            metrics.count_http_request(route, status);
            if let Some((line, method)) = line {
                let (duration_ms, trace) = (line.ms(), line.trace());
                tracing::debug!(route, %method, status, duration_ms, trace, "answered");
            }
            Ok(answer)
        };
        Box::pin(watched.instrument(span))
    }
}

/// A request whose body has at most so many bytes.
fn bounded(request: Request, bytes_max: usize) -> Result<Request, Box<Response>> {
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    match announced.map(str::parse::<usize>) {
        Some(Ok(length)) if length > bytes_max => {
            let message = format!("expected a body of at most {bytes_max} bytes, found {length}");
            Err(Box::new(problem(&own::PAYLOAD_TOO_LARGE, &message)))
        }
        // No more comes than was announced.
        Some(Ok(_)) => Ok(request),
        // A body without a length is cut off where it passes the limit.
        Some(Err(_)) | None => Ok(request.with_limited_body()),
    }
}

async fn within(bounds: Bounds, answer: impl Future<Output = Result<Response, Infallible>>) -> Response {
    match tokio::time::timeout(bounds.body_within + bounds.answer_within, answer).await {
        Ok(Ok(answer)) => answer,
        Err(_) => {
            let seconds = bounds.answer_within.as_secs_f32();
            let message = format!("no answer within {seconds} s; what was asked may still happen");
            problem(&own::TIMEOUT, &message)
        }
    }
}
