//! Each call is counted, and has one line of the log, at `debug`, as HTTP has for each request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::http::{Request, Response};
use tonic::Code;
use tower_service::Service;

use crate::http::line::{Line, note, short};
use crate::telemetry::Calls;

/// Calls that are counted and logged.
#[derive(Clone, Debug)]
pub struct Lined<S> {
    inner: S,
    calls: Arc<Calls>,
}

impl<S> Lined<S> {
    pub fn new(inner: S, calls: Arc<Calls>) -> Lined<S> {
        Lined { inner, calls }
    }
}

impl<S, B, A> Service<Request<B>> for Lined<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let line = Line::begin(request.headers());
        if let Some(line) = &line {
            line.span.in_scope(|| {
                note("face", "macp");
                note("rpc", short(request.uri().path().trim_start_matches('/')));
            });
        }
        let began = Instant::now();
        Answering { answer: self.inner.call(request), line, calls: Arc::clone(&self.calls), began }
    }
}

/// A call under way.
pub struct Answering<F> {
    answer: F,
    line: Option<Line>,
    calls: Arc<Calls>,
    began: Instant,
}

impl<F, A, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<A>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Answering { answer, line, calls, began } = self.get_mut();
        let answer = Pin::new(answer);
        let counted = |polled: &Poll<F::Output>| {
            let Poll::Ready(Ok(response)) = polled else { return None };
            // What fails at once says so in the head. Of a stream, this is how it begins.
            let status = response.headers().get("grpc-status");
            let status = status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()));
            calls.count(status, began.elapsed());
            Some(status)
        };
        let Some(line) = line else {
            let polled = answer.poll(cx);
            counted(&polled);
            return polled;
        };
        line.span.in_scope(|| {
            let polled = answer.poll(cx);
            if let Some(status) = counted(&polled) {
                tracing::debug!(?status, duration_ms = line.ms(), trace = line.trace(), "answered");
            }
            polled
        })
    }
}
