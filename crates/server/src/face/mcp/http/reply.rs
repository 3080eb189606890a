//! How an answer goes out: as JSON, or as a stream of events with what is told before it. Its head does not wait for an
//! answer that takes long, so that nothing between here and the client takes the connection for dead.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

use handover_desk::memory::{Lease, Room};

use crate::http::sse::{self, Frame};
use crate::http::{json_answer, json_body};
use crate::queue;

/// What a request comes to that may take long: its status, and its answer as a message.
pub(super) type Work = Pin<Box<dyn Future<Output = (u16, String)> + Send>>;

/// What is told before an answer.
type Inbox = queue::Receiver<String>;

/// The answer and what is told before it, or the answer alone if there is nothing to tell and it comes soon.
pub(super) async fn with_events(
    mut work: Work,
    mut inbox: Inbox,
    head_within: Duration,
    room: Option<Room>,
) -> Response {
    let first = tokio::select! {
        biased;
        (status, message) = &mut work => {
            let told: Vec<String> = std::iter::from_fn(|| inbox.try_recv()).collect();
            if told.is_empty() {
                return json_answer(status, message, room.as_ref());
            }
            return sse::whole(told.iter().chain([&message]).map(|message| frame(message)), room.as_ref());
        }
        Some(first) = inbox.recv_held() => Some(first),
        () = sleep(head_within) => None,
    };
    let (events, response) = sse::channel(room);
    tokio::spawn(async move {
        pump(work, inbox, first, events).await;
    });
    response
}

/// The answer alone, for a client that takes no events: what is told before it is told to nobody.
pub(super) async fn without_events(
    mut work: Work,
    mut inbox: Inbox,
    head_within: Duration,
    room: Option<Room>,
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
        (status, message) = &mut answer => return json_answer(status, message, room.as_ref()),
        () = sleep(head_within) => {}
    }
    let (whole, body) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = whole.closed() => {}
            (_, message) = answer => {
                let lease = room.map(|room| room.hold(message.len() as u64));
                _ = whole.send(Ok(queue::held(message, lease))).await;
            }
        }
    });
    json_body(StatusCode::OK, Body::from_stream(ReceiverStream::new(body)))
}

/// Carry what the work tells, then its answer, to the client. When the client goes, the work is dropped.
async fn pump(mut work: Work, mut inbox: Inbox, first: Option<(String, Option<Lease>)>, events: sse::Sender) {
    let mut next = first;
    let mut open = true;
    loop {
        if let Some((told, held)) = next.take()
            && !events.pass(frame(&told), held).await
        {
            return;
        }
        tokio::select! {
            biased;
            () = events.closed() => return,
            told = inbox.recv_held(), if open => {
                open = told.is_some();
                next = told;
            }
            (_, message) = &mut work => {
                while let Some(told) = inbox.try_recv() {
                    if !events.send(frame(&told)).await {
                        return;
                    }
                }
                _ = events.send(frame(&message)).await;
                return;
            }
        }
    }
}

/// A message as an event.
pub(super) fn frame(message: &str) -> Frame<'_> {
    Frame { event: Some("message"), data: Some(message), ..Frame::default() }
}
