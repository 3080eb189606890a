//! One line of the log for each call, at `debug`, as HTTP has for each request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::{Request, Response};
use tonic::Code;
use tower_service::Service;

use crate::http::line::{Line, note, short};

/// Calls that are logged.
#[derive(Clone, Debug)]
pub struct Lined<S> {
    inner: S,
}

impl<S> Lined<S> {
    pub fn new(inner: S) -> Lined<S> {
        Lined { inner }
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
            line.span.in_scope(|| note("rpc", short(request.uri().path().trim_start_matches('/'))));
        }
        Answering { answer: self.inner.call(request), line }
    }
}

/// A call under way.
pub struct Answering<F> {
    answer: F,
    line: Option<Line>,
}

impl<F, A, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<A>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Answering { answer, line } = self.get_mut();
        let answer = Pin::new(answer);
        let Some(line) = line else { return answer.poll(cx) };
        line.span.in_scope(|| {
            let polled = answer.poll(cx);
            if let Poll::Ready(Ok(response)) = &polled {
                // What fails at once says so in the head. Of a stream, this is how it begins.
                let status = response.headers().get("grpc-status");
                let status = status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()));
                tracing::debug!(
                    face = "macp",
                    ?status,
                    duration_ms = line.ms(),
                    trace = line.trace(),
                    "answered"
                );
            }
            polled
        })
    }
}
