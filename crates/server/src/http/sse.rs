//! Streams of events, as browsers and others read them (`text/event-stream`). A stream that has nothing to tell says
//! every so often that it is alive, so that nothing on the way takes the connection for dead.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use handover_desk::memory::{Lease, Room};
use tokio::time::{Instant, Interval, interval_at};

use crate::queue;

/// After how long without an event a stream says that it is alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

const ALIVE: Bytes = Bytes::from_static(b": alive\n\n");

/// One event. What is none is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// Where a client that comes back goes on: any text, which it gives back as it is.
    pub id: Option<&'a str>,
    /// Its name.
    pub event: Option<&'a str>,
    /// When a client that lost the stream is to come back.
    pub retry: Option<Duration>,
    /// What it says, line breaks included.
    pub data: Option<&'a str>,
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, text) in [("id", self.id), ("event", self.event)] {
            let Some(text) = text else { continue };
            // A line break would begin another field, and clients ignore an id with a zero in it.
            write!(f, "{name}: ")?;
            text.split(['\r', '\n', '\0']).try_for_each(|part| f.write_str(part))?;
            f.write_str("\n")?;
        }
        if let Some(retry) = self.retry {
            writeln!(f, "retry: {}", retry.as_millis())?;
        }
        // A line ends with \r\n, \n or \r alone.
        for line in self.data.into_iter().flat_map(|data| data.split('\n')) {
            for line in line.strip_suffix('\r').unwrap_or(line).split('\r') {
                writeln!(f, "data: {line}")?;
            }
        }
        f.write_str("\n")
    }
}

/// A stream of events that are all there.
pub fn whole<'a>(frames: impl IntoIterator<Item = Frame<'a>>, room: Option<&Room>) -> Response {
    let frames: String = frames.into_iter().map(|frame| frame.to_string()).collect();
    let lease = room.map(|room| room.hold(frames.len() as u64));
    respond(Body::from(queue::held(frames, lease)))
}

/// A stream, and where its events go in. Few wait for the network; it ends when the sender is dropped.
pub fn channel(room: Option<Room>) -> (Sender, Response) {
    let (frames, waiting) = queue::queue(room);
    let alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    (Sender(frames), respond(Body::from_stream(Events { waiting, alive })))
}

/// A stream whose events come from work that goes on only as the client reads, and ends with it: nothing waits, and a stream
/// that has nothing to tell takes little room. It says so often that it is alive.
pub fn worked<W>(period: Duration, work: impl FnOnce(Outlet) -> W) -> Response
where
    W: Future<Output = ()> + Send + 'static,
{
    let outlet = Outlet::default();
    let work = Box::pin(work(outlet.clone()));
    let alive = interval_at(Instant::now() + period, period);
    respond(Body::from_stream(Worked { work: Some(work), outlet, alive }))
}

/// Where work puts the events of its stream, one at a time.
#[derive(Clone, Default)]
pub struct Outlet(Arc<Mutex<Option<String>>>);

impl Outlet {
    /// Send an event. Returns when the client has room for the next one; never, if the client has gone.
    pub async fn send(&self, frame: Frame<'_>) {
        *lock(&self.0) = Some(frame.to_string());
        // Whoever takes it out goes on with the work by itself, so that nobody needs to be woken.
        poll_fn(|_| if lock(&self.0).is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// The body of a stream that is worked on as it is read.
struct Worked<W> {
    work: Option<Pin<Box<W>>>,
    outlet: Outlet,
    alive: Interval,
}

impl<W: Future<Output = ()>> Stream for Worked<W> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let worked = self.get_mut();
        if let Some(work) = &mut worked.work
            && work.as_mut().poll(cx).is_ready()
        {
            worked.work = None;
        }
        let frame = lock(&worked.outlet.0).take();
        if let Some(frame) = frame {
            worked.alive.reset();
            return Poll::Ready(Some(Ok(frame.into())));
        }
        if worked.work.is_none() {
            return Poll::Ready(None);
        }
        ready!(worked.alive.poll_tick(cx));
        worked.alive.reset();
        Poll::Ready(Some(Ok(ALIVE)))
    }
}

/// Where the events of a stream go in.
#[derive(Clone)]
pub struct Sender(queue::Sender<String>);

impl Sender {
    /// Send an event, waiting for room. False if the client has gone.
    pub async fn send(&self, frame: Frame<'_>) -> bool {
        self.0.send(frame.to_string()).await.is_ok()
    }

    /// Send an event with what is held already for what it says. False if the client has gone.
    pub async fn pass(&self, frame: Frame<'_>, mut held: Option<Lease>) -> bool {
        let text = frame.to_string();
        if let Some(held) = &mut held {
            held.settle(text.len() as u64);
        }
        self.0.pass(text, held).await.is_ok()
    }

    /// Returns when the client has gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// The body of a stream.
struct Events {
    waiting: queue::Receiver<String>,
    alive: Interval,
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let events = self.get_mut();
        if let Poll::Ready(frame) = events.waiting.poll_held(cx) {
            events.alive.reset();
            return Poll::Ready(frame.map(|(frame, lease)| Ok(queue::held(frame, lease))));
        }
        ready!(events.alive.poll_tick(cx));
        // A stream that was not read for long is told once that it is alive.
        events.alive.reset();
        Poll::Ready(Some(Ok(ALIVE)))
    }
}

/// What waits is whole, whoever panicked.
fn lock(waiting: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn respond(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // nginx gathers an answer before it passes it on, unless it is told not to.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[test]
    fn an_event_has_one_line_for_each_thing_it_says() {
        let frame = |id, event, retry, data| Frame { id, event, retry, data }.to_string();
        assert_eq!(frame(None, None, None, Some("{}")), "data: {}\n\n");
        let second = Some(Duration::from_secs(1));
        assert_eq!(
            frame(Some("a/7:\u{e4}"), Some("task"), second, Some("{}")),
            "id: a/7:\u{e4}\nevent: task\nretry: 1000\ndata: {}\n\n"
        );
        assert_eq!(frame(Some(""), None, second, None), "id: \nretry: 1000\n\n");
    }

    #[test]
    fn no_text_can_begin_another_field() {
        let data = |data| Frame { data: Some(data), ..Frame::default() }.to_string();
        assert_eq!(data(""), "data: \n\n");
        assert_eq!(data("a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
        assert_eq!(data("\r\n\r\nid: 9"), "data: \ndata: \ndata: id: 9\n\n");
        let named = Frame { id: Some("1\ndata: x\r\0"), event: Some("a\r\nb"), ..Frame::default() };
        assert_eq!(named.to_string(), "id: 1data: x\nevent: ab\n\n");
    }

    #[tokio::test]
    async fn a_stream_is_not_kept_by_anything_on_the_way() {
        let data = |data| Frame { data: Some(data), ..Frame::default() };
        let whole = whole([data("1"), data("2")], None);
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-store"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(whole.headers()[name], value);
        }
        let bytes = whole.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes, "data: 1\n\ndata: 2\n\n");
    }

    async fn next(body: &mut Body) -> Option<Bytes> {
        body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_events_says_that_it_is_alive() {
        let (events, response) = channel(None);
        let mut body = response.into_body();
        let began = Instant::now();
        assert_eq!(next(&mut body).await.unwrap(), ": alive\n\n");
        assert_eq!(began.elapsed(), KEEP_ALIVE);
        tokio::time::advance(KEEP_ALIVE / 2).await;
        assert!(events.send(Frame { data: Some("1"), ..Frame::default() }).await);
        assert_eq!(next(&mut body).await.unwrap(), "data: 1\n\n");
        let began = Instant::now();
        assert_eq!(next(&mut body).await.unwrap(), ": alive\n\n");
        assert_eq!(began.elapsed(), KEEP_ALIVE);
        drop(events);
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_as_its_stream_is_read_and_ends_it() {
        let response = worked(KEEP_ALIVE, |out| async move {
            out.send(Frame { data: Some("1"), ..Frame::default() }).await;
            out.send(Frame { data: Some("2"), ..Frame::default() }).await;
            tokio::time::sleep(2 * KEEP_ALIVE + KEEP_ALIVE / 2).await;
            out.send(Frame { data: Some("3"), ..Frame::default() }).await;
        });
        let mut body = response.into_body();
        for expected in ["data: 1\n\n", "data: 2\n\n", ": alive\n\n", ": alive\n\n", "data: 3\n\n"] {
            assert_eq!(next(&mut body).await.unwrap(), expected);
        }
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test]
    async fn who_sends_waits_for_room_and_learns_that_the_client_has_gone() {
        let (events, response) = channel(None);
        let large = "1".repeat(100_000);
        let frame = Frame { data: Some(&large), ..Frame::default() };
        assert!(events.send(frame).await);
        let mut second = Box::pin(events.send(frame));
        assert!(looked_at(&mut second).await.is_none(), "there was room for two");
        drop(response);
        assert!(!second.await);
        events.closed().await;
    }

    /// What a future comes to if it is looked at once.
    async fn looked_at<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|cx| match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }
}
