//! `Send`, the call that agents make all day, answered before the router and the library's codec are asked: they take as long
//! as everything else that is done for it. Only what is plain is: one message, whole and not compressed. Everything else, and
//! everything that is wrong, goes the ordinary way.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Response};
use handover_desk::caller::Caller;
use handover_desk::memory::Lease;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use prost::Message;
use prost::bytes::{BufMut, BytesMut};
use tonic::Status;

use super::Macp;
use super::proto::v1::SendRequest;
use super::whole::{PREFIX, Whole};
use crate::queue;

/// What is left to do for a call.
pub(super) enum Quick {
    Answered(Response<Body>),
    /// It has to go the ordinary way, with everything that was read of it.
    Ordinary(Whole<Incoming>),
}

/// Answer a `Send` of this caller, if it is plain.
pub(super) async fn send(macp: &Macp, caller: &Caller, mut message: Whole<Incoming>) -> Quick {
    let request = match plain(&mut message).await {
        Ok(Some(request)) => request,
        Ok(None) => return Quick::Ordinary(message),
        Err(status) => return Quick::Answered(status.into_http()),
    };
    drop(message);
    let answer = match macp.put(Ok(caller), request.envelope).await {
        Ok(answer) => answer,
        Err(status) => return Quick::Answered(status.into_http()),
    };
    let length = answer.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    answer.encode(&mut bytes).expect("there is room for all of it");
    let held = caller.room().map(|room| room.hold(bytes.len() as u64));
    let mut response = Response::new(Body::new(Answer::new(bytes, held)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Quick::Answered(response)
}

/// The request, if there is one and nothing else. What was read of anything else is given back.
async fn plain(message: &mut Whole<Incoming>) -> Result<Option<SendRequest>, Status> {
    let Some(first) = next(message).await? else { return Ok(None) };
    let Some(only) = only_message(&first, message.message_max()) else {
        message.give_back(first);
        return Ok(None);
    };
    let rest = next(message).await?;
    let request = SendRequest::decode(only).ok().filter(|_| rest.is_none());
    if request.is_none() {
        message.give_back([first, rest.unwrap_or_default()].concat().into());
    }
    Ok(request)
}

/// The next bytes, which have only whole messages unless the body ends early.
async fn next(message: &mut Whole<Incoming>) -> Result<Option<Bytes>, Status> {
    loop {
        match poll_fn(|cx| Pin::new(&mut *message).poll_frame(cx)).await {
            None => return Ok(None),
            // Trailers say nothing that matters.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_) => continue,
            },
            Some(Err(error)) => return Err(Status::from_error(error)),
        }
    }
}

/// What these bytes are a message of, if they are one that is not compressed and not too long.
fn only_message(bytes: &Bytes, message_max: usize) -> Option<&[u8]> {
    let (prefix, message) = bytes.split_first_chunk::<PREFIX>()?;
    let [0, length @ ..] = *prefix else { return None };
    let is_whole = u32::from_be_bytes(length) as usize == message.len();
    (is_whole && message.len() <= message_max).then_some(message)
}

/// One message, and that all went well.
struct Answer {
    message: Option<Bytes>,
    ended: bool,
}

impl Answer {
    fn new(bytes: BytesMut, held: Option<Lease>) -> Answer {
        Answer { message: Some(queue::held(bytes.freeze(), held)), ended: false }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let answer = self.get_mut();
        if let Some(message) = answer.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut answer.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.as_ref().map_or(0, |message| message.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_whole_message_that_is_not_compressed_is_plain() {
        let found = |bytes: &'static [u8]| only_message(&Bytes::from_static(bytes), 3).map(<[u8]>::to_vec);
        assert_eq!(found(b"\0\0\0\0\x03abc"), Some(b"abc".to_vec()));
        assert_eq!(found(b"\0\0\0\0\0"), Some(Vec::new()));
        let others: [&[u8]; 6] = [
            b"",
            b"\0\0\0\0",
            b"\x01\0\0\0\x03abc",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x01ab",
            b"\0\0\0\0\x04abcd",
        ];
        for other in others {
            assert_eq!(found(other), None, "{other:?}");
        }
    }
}
