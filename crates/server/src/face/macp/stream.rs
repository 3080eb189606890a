//! `StreamSession`: envelopes in, the session's envelopes out, in the order in which they were accepted.
//!
//! The first frame binds the stream to one session, if the caller may see that, whether or not the session takes it. A refusal
//! is an inline error and the stream stays open. A caller that closes its side gets what was accepted until then, and the
//! end.

use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use handover_desk::Delivery;
use handover_desk::caller::Caller;
use handover_desk::follow::{Events, Over, Stay};
use handover_desk::limit::Kind;
use handover_kernel::{Fact, Ordinal, Session, Text};
use tonic::{Code, Status, Streaming};

use super::admit::{self, PROGRESS};
use super::proto::v1::stream_session_response::Response as Frame;
use super::proto::v1::{Envelope, StreamSessionRequest, StreamSessionResponse};
use super::refused::Refused;
use super::{Macp, ended, render};
use crate::queue::{self, queue};

type Out = queue::Sender<Result<StreamSessionResponse, Status>>;

/// The session that a stream is bound to.
struct Bound {
    session_id: String,
    events: Events,
    /// The last event that was looked at.
    seen: u64,
    /// Envelopes up to there are passed over.
    after: Ordinal,
    session: Arc<Session>,
    /// The requester's name for the task, once it is known.
    task: Text,
}

/// What happened next.
enum Next {
    Frame(Option<Result<StreamSessionRequest, Status>>),
    Event(Result<Delivery, Over>),
    Gone,
}

impl Macp {
    /// Serve one stream.
    pub(super) fn stream(
        self,
        mut caller: Caller,
        stay: Stay,
        frames: Streaming<StreamSessionRequest>,
    ) -> Pin<Box<dyn Stream<Item = Result<StreamSessionResponse, Status>> + Send>> {
        let (out, answers) = queue(caller.room().cloned());
        tokio::spawn(async move {
            if let Err(status) = self.serve_stream(&mut caller, stay, frames, &out).await {
                // Whoever has gone away need not be told.
                _ = out.send(Err(status)).await;
            }
        });
        Box::pin(answers)
    }

    async fn serve_stream(
        &self,
        caller: &mut Caller,
        mut stay: Stay,
        mut frames: Streaming<StreamSessionRequest>,
        out: &Out,
    ) -> Result<(), Status> {
        let mut bound: Option<Bound> = None;
        // Once the caller has closed its side, the last event that is still to be delivered.
        let mut last: Option<u64> = None;
        loop {
            if let (Some(last), Some(bound)) = (last, &bound)
                && bound.seen >= last
            {
                return Ok(());
            }
            let next = tokio::select! {
                biased;
                over = stay.over() => return Err(ended(over)),
                () = out.closed() => Next::Gone,
                frame = frames.message(), if last.is_none() => Next::Frame(frame.transpose()),
                event = event(bound.as_mut()), if bound.is_some() => Next::Event(event),
            };
            match next {
                Next::Gone => return Ok(()),
                Next::Frame(Some(frame)) => {
                    // Each frame is a call of its own, under the limits of now.
                    self.desk.gate.renew(caller).map_err(|ended| Refused::from(ended).status())?;
                    if let Err(refused) = self.frame(caller, frame?, &mut bound).await? {
                        tracing::debug!(
                            face = "macp",
                            agent = %caller.agent,
                            session = refused.session_id,
                            code = refused.code,
                            "a frame of StreamSession was refused"
                        );
                        let error = StreamSessionResponse { response: Some(Frame::Error(refused)) };
                        if out.send(Ok(error)).await.is_err() {
                            return Ok(());
                        }
                    }
                }
                Next::Frame(None) => match &bound {
                    Some(bound) => last = Some(self.head(caller, &bound.session_id).await?),
                    None => return Ok(()),
                },
                Next::Event(event) => {
                    let Some(bound) = bound.as_mut() else { continue };
                    if let Some(envelope) = bound.envelope(event)? {
                        let frame = StreamSessionResponse { response: Some(Frame::Envelope(envelope)) };
                        if out.send(Ok(frame)).await.is_err() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// One frame of the caller. The outer error ends the stream, the inner one is inline.
    async fn frame(
        &self,
        caller: &Caller,
        frame: StreamSessionRequest,
        bound: &mut Option<Bound>,
    ) -> Result<Result<(), super::proto::v1::MacpError>, Status> {
        if let Err(limited) = self.desk.gate.request(caller) {
            let of = frame.envelope.unwrap_or_default();
            return Ok(Err(Refused::from(limited).error(&of.session_id, &of.message_id)));
        }
        match (frame.envelope, frame.subscribe_session_id.as_str()) {
            (Some(_), id) if !id.is_empty() => {
                Err(Refused::invalid("expected an envelope or a subscription in a frame, found both")
                    .status())
            }
            (Some(envelope), _) => Ok(self.envelope_frame(caller, &envelope, bound).await),
            (None, "") => {
                Err(Refused::invalid("expected an envelope or a subscription in a frame, found neither")
                    .status())
            }
            (None, id) => {
                let id = id.to_owned();
                match self.subscribe_frame(caller, &id, frame.after_sequence, bound).await {
                    // A subscriber may come before the session's start does: clients try again on this status.
                    Err(refused) if refused.grpc == Code::NotFound => Err(refused.status()),
                    subscribed => Ok(subscribed.map_err(|refused| refused.error(&id, ""))),
                }
            }
        }
    }

    async fn envelope_frame(
        &self,
        caller: &Caller,
        envelope: &Envelope,
        bound: &mut Option<Bound>,
    ) -> Result<(), super::proto::v1::MacpError> {
        let error = |refused: Refused| refused.error(&envelope.session_id, &envelope.message_id);
        if let Some(bound) = bound
            && bound.session_id != envelope.session_id
        {
            let message = format!("this stream is bound to session {}, found another", bound.session_id);
            return Err(error(Refused::invalid(message)));
        }
        if envelope.message_type == PROGRESS && !envelope.session_id.is_empty() {
            self.signal(caller, envelope).await.map_err(error)?;
            if bound.is_none() {
                *bound = self.bind_to_what_comes(caller, &envelope.session_id).await;
            }
            return Ok(());
        }
        let accepted = match self.submit(caller, envelope).await {
            Ok(accepted) => accepted,
            Err(refused) => {
                if bound.is_none() && admit::origin(caller, envelope).is_ok() {
                    *bound = self.bind_to_what_comes(caller, &envelope.session_id).await;
                }
                return Err(error(refused));
            }
        };
        if bound.is_none() {
            // From the accepted envelope on, itself included. One that was accepted before says nothing new.
            let after = match accepted.receipt.duplicate {
                true => accepted.session.head.0,
                false => accepted.receipt.seq.0.saturating_sub(1),
            };
            *bound = Some(self.bind(caller, accepted.session, after, Ordinal(0)));
        }
        Ok(())
    }

    async fn subscribe_frame(
        &self,
        caller: &Caller,
        id: &str,
        after_sequence: u64,
        bound: &mut Option<Bound>,
    ) -> Result<(), Refused> {
        if let Some(bound) = bound
            && bound.session_id != id
        {
            let message = format!("this stream is bound to session {}, found another", bound.session_id);
            return Err(Refused::invalid(message));
        }
        self.desk.gate.admit(caller, Kind::Message)?;
        let session = self.session(caller, id).await?;
        // Whoever has seen more than there is hears what comes next.
        let after = Ordinal(after_sequence).min(session.ordinal);
        *bound = Some(self.bind(caller, session, 0, after));
        Ok(())
    }

    /// The last event of a session: what was acknowledged to anybody is not after it.
    async fn head(&self, caller: &Caller, id: &str) -> Result<u64, Refused> {
        match self.session(caller, id).await {
            Ok(session) => Ok(session.head.0),
            // Deleted meanwhile: there is nothing left to deliver.
            Err(refused) if refused.grpc == Code::NotFound => Ok(0),
            Err(refused) => Err(refused),
        }
    }

    /// Bound to a session from now on, if the caller may see it.
    async fn bind_to_what_comes(&self, caller: &Caller, id: &str) -> Option<Bound> {
        let session = self.session(caller, id).await.ok()?;
        let after = session.head.0;
        Some(self.bind(caller, session, after, Ordinal(0)))
    }

    fn bind(&self, caller: &Caller, session: Arc<Session>, after: u64, ordinal: Ordinal) -> Bound {
        let session_id = session.binding.id.to_string();
        let task = render::Frame::of(&session).task;
        let events = self.desk.events(caller, &session_id, after).telling_of_lag();
        Bound { session_id, events, seen: after, after: ordinal, session, task }
    }
}

async fn event(bound: Option<&mut Bound>) -> Result<Delivery, Over> {
    match bound {
        Some(bound) => bound.events.next().await,
        None => std::future::pending().await,
    }
}

impl Bound {
    /// The envelope of an event, if it is one that the caller has not seen.
    fn envelope(&mut self, event: Result<Delivery, Over>) -> Result<Option<Envelope>, Status> {
        let delivery = event.map_err(ended)?;
        self.seen = delivery.event.seq.0;
        if let Fact::Requested(request) = &delivery.event.fact {
            self.task = request.task.clone();
        }
        if delivery.event.ordinal.is_none_or(|ordinal| ordinal <= self.after) {
            return Ok(None);
        }
        let frame = render::Frame {
            session_id: &self.session_id,
            mode: self.session.kind(),
            task: self.task.clone(),
        };
        Ok(render::envelope(&frame, &delivery.event))
    }
}
