//! Who calls is known from the head of a call, before anything of its message is read.
//!
//! Calls that need no token, and `Send`, whose refusal repeats what the message says, are read for strangers as well: only
//! short ones, only so many at a time, and only so long.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, Response};
use handover_desk::caller::Caller;
use handover_desk::limit::Lane;
use handover_desk::memory::Room;
use handover_kernel::Face;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Status};
use tower_service::Service;

use super::Macp;
use super::quick::{self, Quick};
use super::refused::Refused;
use super::whole::Whole;
use crate::http::body::{Strangers, Unread};
use crate::http::line::note;
use crate::http::{Peer, bearer, trace};
use crate::queue;

/// How the messages of a call are compressed, and how those of its answer may be.
const ENCODING: &str = "grpc-encoding";
const ACCEPTED_ENCODINGS: &str = "grpc-accept-encoding";

/// How many calls of strangers that go on, such as those of reflection, may be open.
const STREAMS_OF_STRANGERS_MAX: usize = 64;

/// How large a message of a stranger's stream may be.
const MESSAGE_OF_STRANGERS_MAX: usize = 64 * 1024;

/// A `SendRequest` with an empty envelope, or a call with an empty session id, as a message of gRPC. It stands for one that was not
/// read: the answer then is the refusal without any ids.
const WITHOUT_IDS: &[u8] = b"\0\0\0\0\x02\x0a\0";

const MACP: &str = "/macp.v1.MACPRuntimeService/";
const EXTRA: &str = "/handover.v1.Handover/";

/// The calls of MACP that need no token.
const OPEN: [&str; 10] = [
    "Initialize",
    "GetManifest",
    "ListModes",
    "ListRoots",
    "ListExtModes",
    "RegisterExtMode",
    "UnregisterExtMode",
    "PromoteMode",
    "GetDecisionReceipt",
    "GetReceiptKeys",
];

/// Who calls, as the calls find it among a request's extensions.
#[derive(Clone)]
pub(super) struct Who(pub(super) Result<Arc<Caller>, Refused>);

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// A token.
    Token,
    /// A token, but its refusal repeats the message.
    TokenForSend,
    /// A token; whatever else is refused is an answer.
    TokenForAck,
    /// Nothing.
    Nothing,
    /// Nothing, and it goes on.
    NothingAndGoesOn,
}

fn needs(path: &str) -> Needs {
    if let Some(call) = path.strip_prefix(MACP) {
        return match call {
            "Send" => Needs::TokenForSend,
            "CancelSession" | "SuspendSession" | "ResumeSession" => Needs::TokenForAck,
            call if OPEN.contains(&call) => Needs::Nothing,
            _ => Needs::Token,
        };
    }
    if path.starts_with(EXTRA) {
        return Needs::Token;
    }
    match path {
        "/grpc.health.v1.Health/Watch" => Needs::NothingAndGoesOn,
        path if path.ends_with("/ServerReflectionInfo") => Needs::NothingAndGoesOn,
        // Nothing is there.
        _ => Needs::Nothing,
    }
}

/// Whether a call takes more than one message.
fn takes_many(path: &str) -> bool {
    path.ends_with("/StreamSession") || path.ends_with("/ServerReflectionInfo")
}

/// The door in front of all calls. Cheap to clone.
#[derive(Clone)]
pub(super) struct Door {
    calls: Router,
    inner: Arc<Inner>,
}

struct Inner {
    macp: Macp,
    message_max: usize,
    body_within: Duration,
    strangers: Strangers,
    streams_of_strangers: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(calls: Router, macp: Macp, message_max: usize, body_within: Duration) -> Door {
        let inner = Inner {
            macp,
            message_max,
            body_within,
            strangers: Strangers::new(body_within),
            streams_of_strangers: Arc::new(Semaphore::new(STREAMS_OF_STRANGERS_MAX)),
        };
        Door { calls, inner: Arc::new(inner) }
    }
}

impl Service<Request<Incoming>> for Door {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (mut calls, inner) = (self.calls.clone(), Arc::clone(&self.inner));
        Box::pin(async move {
            let within = timeout(request.headers());
            let answer = async {
                let (request, held) = match inner.admit(request).await {
                    Ok(Admitted::Answered(answer)) => return Ok(answer),
                    Ok(Admitted::Request(request, held)) => (request, held),
                    Err(refused) => return Ok(refused.into_http()),
                };
                let room = match request.extensions().get() {
                    Some(Who(Ok(caller))) => caller.room().cloned(),
                    Some(Who(Err(_))) | None => None,
                };
                let lane = request.extensions().get().copied().unwrap_or(Lane::Fast);
                let answer = inner.macp.desk.work_on(lane, 0, calls.call(request)).await?;
                let answer = match room {
                    Some(room) => answer.map(|body| Body::new(Counted { body, room })),
                    None => answer,
                };
                Ok(match held {
                    Some(place) => answer.map(|body| Body::new(Held { body, _place: place })),
                    None => answer,
                })
            };
            match within {
                None => answer.await,
                Some(within) => tokio::time::timeout(within, answer)
                    .await
                    .unwrap_or_else(|_| Ok(Status::deadline_exceeded("grpc-timeout has passed").into_http())),
            }
        })
    }
}

/// A request that was let in.
enum Admitted {
    Answered(Response<Body>),
    /// As the calls take it, and a place that it holds until it has been answered.
    Request(Request<Body>, Option<OwnedSemaphorePermit>),
}

impl Inner {
    /// Let a request in, or answer it at once.
    async fn admit(&self, request: Request<Incoming>) -> Result<Admitted, Status> {
        let path = request.uri().path();
        let (needs, many) = (needs(path), takes_many(path));
        let (mut head, body) = request.into_parts();
        let compressed = head.headers.get(ENCODING).is_some_and(|encoding| encoding != "identity");
        if !compressed {
            // Most clients can read what is compressed, and only those who compress themselves want it: it takes time.
            head.headers.remove(ACCEPTED_ENCODINGS);
        }
        let refused = match self.who(&head.headers, head.extensions.get(), needs) {
            Ok((caller, lane)) => {
                let caller = Arc::new(caller);
                let whose = Some((self.macp.desk.clone(), Arc::clone(&caller)));
                let (max, within) = (self.message_max, self.body_within);
                let mut body = Whole::new(body, max, within, many, self.macp.unread.clone(), whose);
                if needs == Needs::TokenForSend && !compressed {
                    let sent = quick::send(&self.macp, &caller, body);
                    match self.macp.desk.work_on(lane, 0, sent).await {
                        Quick::Answered(answer) => return Ok(Admitted::Answered(answer)),
                        Quick::Ordinary(message) => body = message,
                    }
                }
                head.extensions.insert(lane);
                head.extensions.insert(Who(Ok(caller)));
                return Ok(Admitted::Request(Request::from_parts(head, Body::new(body)), None));
            }
            Err(refused) => refused,
        };
        let (body, place) = match needs {
            Needs::Token => return Err(refused.status()),
            Needs::TokenForAck if refused.grpc == Code::Unauthenticated => return Err(refused.status()),
            // A few bytes can become a thousand times as many.
            Needs::Nothing | Needs::NothingAndGoesOn if compressed => {
                return Err(Status::unimplemented("expected a token with a compressed message"));
            }
            Needs::TokenForSend | Needs::TokenForAck => {
                head.extensions.insert(Who(Err(refused)));
                let read = if compressed { Err(Unread::TooLong) } else { self.read(body).await };
                (Body::from(read.unwrap_or(Bytes::from_static(WITHOUT_IDS))), None)
            }
            Needs::Nothing => (Body::from(self.read(body).await.map_err(unread)?), None),
            Needs::NothingAndGoesOn => {
                let place = Arc::clone(&self.streams_of_strangers).try_acquire_owned().map_err(|_| {
                    self.macp.unread.count(Unread::Full.name());
                    unread(Unread::Full)
                })?;
                let max = MESSAGE_OF_STRANGERS_MAX;
                let body = Whole::new(body, max, self.body_within, many, self.macp.unread.clone(), None);
                (Body::new(body), Some(place))
            }
        };
        Ok(Admitted::Request(Request::from_parts(head, body), place))
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, Unread> {
        self.strangers.read(body).await.inspect_err(|why| self.macp.unread.count(why.name()))
    }

    fn who(&self, headers: &HeaderMap, peer: Option<&Peer>, needs: Needs) -> Result<(Caller, Lane), Refused> {
        let (token, address) = (token(headers), peer.map(|peer| peer.address));
        let gate = &self.macp.desk.gate;
        let caller = match needs {
            Needs::Token | Needs::TokenForSend | Needs::TokenForAck => {
                gate.authenticate(token, Face::Macp, address)
            }
            // Nobody is refused for having no token here: it is nothing to note.
            Needs::Nothing | Needs::NothingAndGoesOn => gate.recognize(token, Face::Macp, address),
        };
        let caller = caller?.traced(trace::of(headers));
        note("agent", caller.agent.as_str());
        let lane = gate.request(&caller)?;
        let caller = gate.take_in(caller, 0)?;
        if let Some(peer) = peer {
            peer.is_known();
        }
        Ok((caller, lane))
    }
}

/// The token of a call: `authorization: Bearer <token>`, or `x-macp-token`.
pub(super) fn token(headers: &HeaderMap) -> Option<&str> {
    bearer::token(headers).or_else(|| headers.get("x-macp-token").and_then(|value| value.to_str().ok()))
}

/// Why a call without a token was not read.
fn unread(why: Unread) -> Status {
    let refused = match why {
        Unread::Full => {
            let message = "too many calls without a token are open: send a token, or try again later";
            Refused::new("RATE_LIMITED", Code::ResourceExhausted, message)
        }
        Unread::TooLong => {
            let message =
                format!("expected a token with a message of more than {MESSAGE_OF_STRANGERS_MAX} bytes");
            Refused::new("UNAUTHENTICATED", Code::Unauthenticated, message)
        }
        Unread::TooSlow => {
            Refused::new("REQUEST_TIMEOUT", Code::DeadlineExceeded, "the message did not come in time")
        }
        Unread::Limited(limited) => Refused::from(limited),
        Unread::Broken => return Status::cancelled("the message ended early"),
    };
    refused.status()
}

/// How long the client waits: `grpc-timeout`, up to eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 60 * 60),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// An answer whose bytes count as held in memory, for the agent that asked, until the network has taken them.
struct Counted {
    body: Body,
    room: Room,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Counted { body, room } = self.get_mut();
        let frame = ready!(Pin::new(body).poll_frame(cx));
        let held = |bytes: Bytes| {
            let lease = room.hold(bytes.len() as u64);
            queue::held(bytes, Some(lease))
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer that holds a place until it has ended.
struct Held {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_is_not_listed_needs_a_token() {
        for (path, expected) in [
            ("/macp.v1.MACPRuntimeService/Send", Needs::TokenForSend),
            ("/macp.v1.MACPRuntimeService/GetSession", Needs::Token),
            ("/macp.v1.MACPRuntimeService/Unheard", Needs::Token),
            ("/macp.v1.MACPRuntimeService/Initialize", Needs::Nothing),
            ("/handover.v1.Handover/Steer", Needs::Token),
            ("/handover.v1.Handover/Unheard", Needs::Token),
            ("/grpc.health.v1.Health/Check", Needs::Nothing),
            ("/grpc.health.v1.Health/Watch", Needs::NothingAndGoesOn),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Needs::NothingAndGoesOn),
            ("/", Needs::Nothing),
        ] {
            assert_eq!(needs(path), expected, "{path}");
        }
    }

    #[test]
    fn a_timeout_is_a_number_and_a_unit() {
        let found = |text: &'static str| {
            timeout(&HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]))
        };
        for (text, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("99999999m", Duration::from_millis(99_999_999)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
        ] {
            assert_eq!(found(text), Some(expected), "{text}");
        }
        for wrong in ["", "S", "5", "5s", "-5S", "999999999S"] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }
}
