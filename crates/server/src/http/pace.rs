//! Readers that take nothing are let go: on the connection, where nothing goes out to the network, and on each stream of
//! HTTP/2, where the client gives no window.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::telemetry::Connections;

/// How much must go out for a reader to have taken something, if that is not everything.
const SOME_BYTES: usize = 16 * 1024;

/// A connection that fails when its client takes next to nothing of what there is to write for so long.
pub(super) struct Paced<S> {
    stream: S,
    within: Duration,
    counters: Connections,
    blocked: Option<Blocked>,
}

struct Blocked {
    until: Pin<Box<Sleep>>,
    moved: usize,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, within: Duration, counters: Connections) -> Paced<S> {
        Paced { stream, within, counters, blocked: None }
    }

    /// A write that came to this.
    fn wrote(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = wrote
            && let Some(blocked) = &mut self.blocked
        {
            blocked.moved += bytes;
            if blocked.moved >= SOME_BYTES {
                self.blocked = None;
            }
        }
        if wrote.is_pending() { self.wait(cx).map(Err) } else { wrote }
    }

    /// Everything was to go out, and this came of it.
    fn emptied(&mut self, cx: &mut Context<'_>, emptied: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if emptied.is_pending() {
            return self.wait(cx).map(Err);
        }
        self.blocked = None;
        emptied
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let within = self.within;
        let blocked =
            self.blocked.get_or_insert_with(|| Blocked { until: Box::pin(sleep(within)), moved: 0 });
        ready!(blocked.until.as_mut().poll(cx));
        self.counters.dropped("reader");
        let message = format!("the client took nothing for {} s", within.as_secs());
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, message))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let paced = self.get_mut();
        let wrote = Pin::new(&mut paced.stream).poll_write(cx, bytes);
        paced.wrote(cx, wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let paced = self.get_mut();
        let wrote = Pin::new(&mut paced.stream).poll_write_vectored(cx, parts);
        paced.wrote(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let paced = self.get_mut();
        let emptied = Pin::new(&mut paced.stream).poll_flush(cx);
        paced.emptied(cx, emptied)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let paced = self.get_mut();
        let emptied = Pin::new(&mut paced.stream).poll_shutdown(cx);
        paced.emptied(cx, emptied)
    }
}

tokio::task_local! {
    /// Since when the answer of this task has waited for its reader; none while the reader waits for us.
    static WAITING: Cell<Option<Instant>>;
}

fn waiting(since: Option<Instant>) {
    // Answers of HTTP/1.1 have no task of their own, and need none: their connection is paced.
    _ = WAITING.try_with(|waiting| waiting.set(since));
}

/// Runs the streams of an HTTP/2 connection, each until its reader takes nothing for so long.
#[derive(Clone)]
pub(super) struct Streams {
    pub(super) within: Duration,
    pub(super) counters: Connections,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let Streams { within, counters } = self.clone();
        tokio::spawn(WAITING.scope(Cell::new(None), async move {
            let mut stream = pin!(stream);
            let mut timer = pin!(sleep(within));
            std::future::poll_fn(|cx| {
                if stream.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                // Only an answer that waits has its time watched, and the timer is set again only when it goes off.
                while let Some(since) = WAITING.with(Cell::get) {
                    ready!(timer.as_mut().poll(cx));
                    let until = since + within;
                    if until <= Instant::now() {
                        counters.dropped("stream_reader");
                        return Poll::Ready(());
                    }
                    timer.as_mut().reset(until);
                }
                Poll::Pending
            })
            .await;
        }));
    }
}

/// The body of an answer over HTTP/2: in parts that are not large, so that no more than a part of it waits beyond the
/// window that the client gave, and with its end apart, so that it has not ended before the client has taken it.
pub(super) struct Parts<B, H> {
    body: B,
    rest: Bytes,
    begun: bool,
    /// Held until the answer has ended.
    _held: H,
}

impl<B, H> Parts<B, H> {
    pub(super) fn new(body: B, held: H) -> Parts<B, H> {
        waiting(Some(Instant::now()));
        Parts { body, rest: Bytes::new(), begun: false, _held: held }
    }
}

impl<B: Body<Data = Bytes> + Unpin, H: Unpin> Body for Parts<B, H> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let parts = self.get_mut();
        parts.begun = true;
        if parts.rest.is_empty() {
            match Pin::new(&mut parts.body).poll_frame(cx) {
                Poll::Pending => {
                    waiting(None);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => parts.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(end) => return Poll::Ready(end),
            }
        }
        let length = parts.rest.len().min(SOME_BYTES);
        waiting(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(parts.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        // An answer without a body ends with its head.
        !self.begun && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (within, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(within.lower() + rest);
        if let Some(upper) = within.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
