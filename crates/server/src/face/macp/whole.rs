//! Messages of gRPC, passed on when they are whole. The library sets aside what a message announces as soon as it has
//! announced it: here it is gathered as it comes, and only so long.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use prost::bytes::BytesMut;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Code, Status};

use super::refused::Refused;
use crate::http::body::Unread;
use crate::telemetry;
use handover_desk::Desk;
use handover_desk::gate::{Caller, Reading};
use handover_desk::limit::Limited;

/// A flag and a length come before each message.
pub(super) const PREFIX: usize = 5;

/// The body of a call.
pub(super) struct Whole<B> {
    body: B,
    message_max: usize,
    within: Duration,
    /// Whether it may go on for ever, and only each of its messages has a time.
    many: bool,
    kept: BytesMut,
    /// What was passed on, and is to be passed on again.
    again: Option<Bytes>,
    /// Until when the call, or the message that is coming, must have come.
    until: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    unread: telemetry::Unread,
    /// Whose bytes they are; none of a stranger, whose messages are short.
    caller: Option<(Desk, Arc<Caller>)>,
    /// What is kept counts among the caller's bytes.
    reading: Option<Reading>,
}

impl<B> Whole<B> {
    pub(super) fn new(
        body: B,
        message_max: usize,
        within: Duration,
        many: bool,
        unread: telemetry::Unread,
        caller: Option<(Desk, Arc<Caller>)>,
    ) -> Whole<B> {
        let until = (!many).then(|| Instant::now() + within);
        let kept = BytesMut::new();
        let (again, timer, reading) = (None, None, None);
        Whole { body, message_max, within, many, kept, again, until, timer, unread, caller, reading }
    }

    /// How long a message may be.
    pub(super) fn message_max(&self) -> usize {
        self.message_max
    }

    /// Pass these on again, before everything else.
    pub(super) fn give_back(&mut self, passed: Bytes) {
        self.again = Some(passed);
    }

    /// What can be passed on of what has come.
    fn take(&mut self, data: Bytes) -> Option<Bytes> {
        let passed = if self.kept.is_empty() {
            let whole = whole(&data, self.message_max);
            if whole < data.len() {
                self.kept.extend_from_slice(&data[whole..]);
            }
            data.slice(..whole)
        } else {
            self.kept.extend_from_slice(&data);
            let whole = whole(&self.kept, self.message_max);
            self.kept.split_to(whole).freeze()
        };
        if self.many && (!passed.is_empty() || self.until.is_none()) {
            self.until = (!self.kept.is_empty()).then(|| Instant::now() + self.within);
            self.timer = None;
        }
        (!passed.is_empty()).then_some(passed)
    }

    /// Count what is kept.
    fn count(&mut self) -> Result<(), Limited> {
        if self.kept.is_empty() {
            self.reading = None;
            return Ok(());
        }
        let Some((desk, caller)) = &self.caller else { return Ok(()) };
        self.reading.get_or_insert_with(|| desk.gate.reading(caller)).grow(self.kept.len())
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(until) = self.until else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        timer.as_mut().poll(cx).is_ready()
    }
}

/// How many of these bytes are whole messages. One that is too long counts as whole: the library refuses it by its prefix.
fn whole(bytes: &[u8], message_max: usize) -> usize {
    let mut end = 0;
    while let Some([_, length @ ..]) = bytes[end..].first_chunk::<PREFIX>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length > message_max {
            return bytes.len();
        }
        if bytes.len() - end < PREFIX + length {
            break;
        }
        end += PREFIX + length;
    }
    end
}

impl<B> Body for Whole<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let message = self.get_mut();
        if let Some(passed) = message.again.take() {
            return Poll::Ready(Some(Ok(Frame::data(passed))));
        }
        loop {
            match Pin::new(&mut message.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let passed = message.take(data);
                        if let Err(limited) = message.count() {
                            message.unread.count("limited");
                            return Poll::Ready(Some(Err(Refused::from(limited).status().into())));
                        }
                        if let Some(passed) = passed {
                            if let Some((desk, caller)) = &message.caller {
                                desk.gate.charge_bytes(caller, passed.len() as u64);
                            }
                            return Poll::Ready(Some(Ok(Frame::data(passed))));
                        }
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                // Half a message at the end is for the library to refuse.
                Poll::Ready(None) if !message.kept.is_empty() => {
                    let rest = message.kept.split().freeze();
                    return Poll::Ready(Some(Ok(Frame::data(rest))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if message.is_late(cx) => {
                    message.unread.count(Unread::TooSlow.name());
                    return Poll::Ready(Some(Err(late(message.within).into())));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.again.is_none() && self.kept.is_empty() && self.body.is_end_stream()
    }
}

fn late(within: Duration) -> Status {
    let message = format!("expected the whole message within {} s", within.as_secs());
    Refused::new("REQUEST_TIMEOUT", Code::DeadlineExceeded, message).status()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    fn message(bytes: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend(u32::try_from(bytes).unwrap().to_be_bytes());
        message.resize(PREFIX + bytes, b'x');
        message
    }

    fn coming(many: bool) -> Whole<Full<Bytes>> {
        let unread = telemetry::Unread::default();
        Whole::new(Full::default(), 1000, Duration::from_secs(30), many, unread, None)
    }

    #[test]
    fn only_whole_messages_are_passed_on_and_nothing_is_lost() {
        let sent = [message(0), message(7), message(300), message(1000)].concat();
        for size in [1, 2, 5, 6, 64, 400, 5000] {
            let mut whole = coming(true);
            let mut passed = Vec::new();
            for part in sent.chunks(size) {
                let part = whole.take(Bytes::copy_from_slice(part)).unwrap_or_default();
                assert_eq!(super::whole(&part, 1000), part.len(), "parts of {size}");
                passed.extend(part);
            }
            assert_eq!(passed, sent, "parts of {size}");
        }
    }

    #[test]
    fn what_is_announced_is_not_set_aside() {
        let mut whole = coming(false);
        assert_eq!(whole.take(Bytes::copy_from_slice(&message(1000)[..6])), None);
        assert!(whole.kept.capacity() < 100, "{}", whole.kept.capacity());
        // The library refuses what is too long by its prefix.
        assert!(coming(false).take(Bytes::copy_from_slice(&message(1001)[..6])).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_has_its_time_and_a_stream_between_two_messages_has_any() {
        let (sender, body) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(8);
        let body = axum::body::Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(body));
        let (within, unread) = (Duration::from_secs(30), telemetry::Unread::default());
        let mut whole = Whole::new(body, 1000, within, true, unread, None);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, whole.frame()).await.is_err());
        sender.send(Ok(message(3).into())).await.unwrap();
        assert!(whole.frame().await.unwrap().is_ok());
        assert!(tokio::time::timeout(hour, whole.frame()).await.is_err());
        sender.send(Ok(message(3)[..6].to_vec().into())).await.unwrap();
        let began = Instant::now();
        let error = whole.frame().await.unwrap().unwrap_err();
        assert_eq!(began.elapsed(), within);
        assert_eq!(error.downcast_ref::<Status>().unwrap().code(), Code::DeadlineExceeded);
    }
}
