//! What is served to everybody. One request comes more often than all others together: it is answered before the router is
//! asked, which makes a dozen things for each request only to find out whose it is.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use axum::{BoxError, Router};
use hyper::body::Body as HttpBody;
use tower_service::Service;

use super::watch::Watched;

type Answering = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// What the faces serve.
pub struct Routes {
    pub(super) all: Router,
    pub(super) often: Option<Often>,
}

impl From<Router> for Routes {
    fn from(all: Router) -> Routes {
        Routes { all, often: None }
    }
}

impl Routes {
    /// The same with what is posted most often, which the routes must have as well.
    pub fn often<F>(self, path: &'static str, answer: impl Fn(Request) -> F + Send + Sync + 'static) -> Routes
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let answer = move |request| -> Answering {
            let answer = answer(request);
            Box::pin(async move { Ok(answer.await) })
        };
        Routes { often: Some(Often { path, answer: Arc::new(answer) }), ..self }
    }
}

/// What is posted to one path.
#[derive(Clone)]
pub(super) struct Often {
    pub(super) path: &'static str,
    answer: Arc<dyn Fn(Request) -> Answering + Send + Sync>,
}

impl Service<Request> for Often {
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answering {
        (self.answer)(request)
    }
}

/// The routes under watch, and what comes before them.
#[derive(Clone)]
pub struct Front {
    pub(super) all: Router,
    pub(super) often: Option<(&'static str, Watched<Often>)>,
}

impl<B> Service<Request<B>> for Front
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        match &mut self.often {
            Some((path, often)) if request.method() == Method::POST && request.uri().path() == *path => {
                often.call(request.map(Body::new))
            }
            Some(_) | None => Box::pin(self.all.call(request)),
        }
    }
}
