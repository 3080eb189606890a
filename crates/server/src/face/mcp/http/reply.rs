//! How an answer goes out: as JSON, or as a stream of events with what is told before it. Its head does not wait for an
//! answer that takes long, so that nothing between here and the client takes the connection for dead.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval_at, sleep};
use tokio_stream::wrappers::ReceiverStream;

use crate::face::mcp::FRAMES_MAX;
use handover_desk::gate::Permit;

/// How often a stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// What a request comes to that may take long: its status, and its answer as a message.
pub(super) type Work = Pin<Box<dyn Future<Output = (u16, String)> + Send>>;

/// The answer and what is told before it, or the answer alone if there is nothing to tell and it comes soon.
pub(super) async fn with_events(
    mut work: Work,
    mut inbox: mpsc::Receiver<String>,
    head_within: Duration,
    permit: Option<Permit>,
) -> Response {
    let first = tokio::select! {
        biased;
        (status, message) = &mut work => {
            let told: Vec<String> = std::iter::from_fn(|| inbox.try_recv().ok()).collect();
            if told.is_empty() {
                return json_answer(status, message);
            }
            let frames: String = told.iter().chain([&message]).map(|message| frame(message)).collect();
            return events(Body::from(frames));
        }
        Some(first) = inbox.recv() => Some(first),
        () = sleep(head_within) => None,
    };
    let (frames, body) = mpsc::channel(FRAMES_MAX);
    tokio::spawn(async move {
        pump(work, inbox, first, frames).await;
        drop(permit);
    });
    events(Body::from_stream(ReceiverStream::new(body)))
}

/// The answer alone, for a client that takes no events: what is told before it is told to nobody.
pub(super) async fn without_events(
    mut work: Work,
    mut inbox: mpsc::Receiver<String>,
    head_within: Duration,
) -> Response {
    let mut answer = Box::pin(async move {
        loop {
            tokio::select! {
                biased;
                answer = &mut work => return answer,
                Some(_) = inbox.recv() => {}
            }
        }
    });
    tokio::select! {
        biased;
        (status, message) = &mut answer => return json_answer(status, message),
        () = sleep(head_within) => {}
    }
    let (whole, body) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = whole.closed() => {}
            (_, message) = answer => {
                _ = whole.send(Ok(Bytes::from(message))).await;
            }
        }
    });
    ([(header::CONTENT_TYPE, JSON)], Body::from_stream(ReceiverStream::new(body))).into_response()
}

/// Carry what the work tells, then its answer, to the client. When the client goes, the work is dropped.
async fn pump(
    mut work: Work,
    mut inbox: mpsc::Receiver<String>,
    first: Option<String>,
    frames: mpsc::Sender<Result<Bytes, Infallible>>,
) {
    let send = async |text: String| frames.send(Ok(Bytes::from(text))).await.is_ok();
    if let Some(first) = first
        && !send(frame(&first)).await
    {
        return;
    }
    let mut alive = interval_at(tokio::time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut open = true;
    loop {
        let text = tokio::select! {
            biased;
            () = frames.closed() => return,
            message = inbox.recv(), if open => match message {
                Some(message) => frame(&message),
                None => {
                    open = false;
                    continue;
                }
            },
            (_, message) = &mut work => {
                while let Ok(told) = inbox.try_recv() {
                    if !send(frame(&told)).await {
                        return;
                    }
                }
                _ = send(frame(&message)).await;
                return;
            }
            _ = alive.tick() => ": alive\n\n".to_owned(),
        };
        if !send(text).await {
            return;
        }
    }
}

/// A message as an event. JSON of ours has no line breaks.
fn frame(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// An answer as JSON.
pub(super) fn json_answer(status: u16, message: String) -> Response {
    let mut response = Response::new(Body::from(message));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

fn events(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, EVENTS),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}
