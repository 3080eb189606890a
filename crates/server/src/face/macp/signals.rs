//! Signals: what is told and not kept. They never touch a session. The orders that wait for a MACP assignee travel as
//! signals too; those are on the task's log first, and are told again until they have been heard.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_core::Stream;
use handover_desk::answerable::{SEEN_BY_NOBODY, asks_nobody};
use handover_desk::approvals::decides;
use handover_desk::calendar::rfc3339;
use handover_desk::caller::Caller;
use handover_desk::clock::now;
use handover_desk::follow::Stay;
use handover_desk::limit::Kind;
use handover_desk::signals::Signal;
use handover_desk::tell::Listening;
use handover_desk::waiting::cycle;
use handover_desk::{Delivery, WaitKind, timeline};
use handover_kernel::command::Reply;
use handover_kernel::orders::{Order, OrderKind};
use handover_kernel::{Blob, Event, Fact, Seq, Session};
use prost::Message;
use tonic::Status;

use super::admit::{self, MACP_VERSION, PROGRESS, SIGNAL};
use super::proto::v1::{Envelope, ProgressPayload, SignalPayload, WatchSignalsResponse};
use super::refused::Refused;
use super::render::signed;
use super::service::some;
use super::{Macp, ended};
use crate::queue::{self, queue};

/// How many tasks in hand are looked at together.
const PAGE: usize = 256;

/// What a worker can do whose question may be shown to nobody.
const GO_ON: &str = "go on without the answer if you can, otherwise send TaskFail and say what you need";

/// What the requester of a task is told of it: the type of the signal, and its data.
fn news(fact: &Fact) -> Option<(&'static str, String)> {
    if let Fact::FellSilent { since } = fact {
        return Some(("task.silent", rfc3339(*since)));
    }
    if let Fact::CycleFound { agents } = fact {
        return Some(("task.cycle", cycle(agents)));
    }
    let Fact::Overspent { name, of, used } = fact else { return None };
    Some(("task.overspent", format!("{name}: {used} of {of}")))
}

type Out = queue::Sender<Result<WatchSignalsResponse, Status>>;

/// Whether an envelope is a signal: it is told, and no session keeps it.
pub fn is_signal(envelope: &Envelope) -> bool {
    matches!(envelope.message_type.as_str(), SIGNAL | PROGRESS)
}

impl Macp {
    /// Tell everybody who may hear it. Says when.
    pub(super) async fn signal(&self, caller: &Caller, envelope: &Envelope) -> Result<i64, Refused> {
        self.desk.gate.admit(caller, Kind::Message)?;
        let origin = admit::origin(caller, envelope);
        origin.inspect_err(|refused| self.note_impersonation(caller, refused))?;
        // No signal can pass for an order: those have ids of the runtime.
        admit::message_id(&envelope.message_id)?;
        let about = about(envelope)?;
        let at = signed(now().0);
        let told = Envelope { sender: caller.agent.to_string(), ..envelope.clone() };
        let body = Blob::from(told.encode_to_vec());
        self.desk.signal(caller, some(&about), envelope.payload.len(), body).await?;
        Ok(at)
    }

    /// Everything that this agent may hear, and the orders that wait for it.
    pub(super) fn follow_signals(
        self,
        caller: Caller,
        stay: Stay,
    ) -> Pin<Box<dyn Stream<Item = Result<WatchSignalsResponse, Status>> + Send>> {
        let (out, answers) = queue(caller.room().cloned());
        // Listen before the call is answered: what is told after that is heard.
        let told = self.desk.listen(&caller);
        tokio::spawn(async move {
            if let Err(status) = self.serve_signals(&caller, stay, told, &out).await {
                _ = out.send(Err(status)).await;
            }
        });
        Box::pin(answers)
    }

    async fn serve_signals(
        &self,
        caller: &Caller,
        mut stay: Stay,
        mut told: Listening,
        out: &Out,
    ) -> Result<(), Status> {
        let events = self.desk.own_events(caller).await.map_err(Refused::from)?;
        let mut events = events.telling_of_lag();
        let paused = self.waiting_orders(caller, out).await?;
        loop {
            tokio::select! {
                biased;
                () = out.closed() => return Ok(()),
                event = stay.next(&mut events) => {
                    let delivery = event.map_err(ended)?;
                    let id = &delivery.key.session;
                    if let Fact::Suspended { reason, .. } = &delivery.event.fact {
                        // It may have been seen already, when what waits was looked at.
                        let is_known = paused.get(id).is_some_and(|head| delivery.event.seq <= *head);
                        let reason = (!is_known).then_some(&**reason);
                        self.hand_over(caller, id, reason, out).await?;
                    } else if let Some((name, data)) = news(&delivery.event.fact) {
                        self.tell_requester(caller, id, delivery.event.seq, name, data, out).await?;
                    } else if let Fact::Proposed { .. } | Fact::Decided { .. } = delivery.event.fact {
                        self.tell_of_approval(caller, id, &delivery.event, out).await?;
                    } else if may_free_orders(&delivery) {
                        self.tell_asker(caller, id, &delivery.event, out).await?;
                        self.hand_over(caller, id, None, out).await?;
                    }
                }
                // After what may end it: signals may come without a pause.
                signal = told.next() => pass_on(&*signal.map_err(ended)?, out).await,
            }
        }
    }

    /// Tell the requester what happened to its task.
    async fn tell_requester(
        &self,
        caller: &Caller,
        id: &str,
        seq: Seq,
        name: &str,
        data: String,
        out: &Out,
    ) -> Result<(), Status> {
        let session = self.desk.session_at_last(caller, id).await.map_err(Refused::from)?;
        if session.binding.requester == caller.agent {
            let envelope = Some(signal(&session, seq, name, data.into_bytes()));
            let told = WatchSignalsResponse { envelope, sender_authenticated: caller.proven };
            // A listener that has gone away is noticed by the loop.
            _ = out.send(Ok(told)).await;
        }
        Ok(())
    }

    /// Tell a worker that what it has asked may be shown to nobody, so that it does not wait for it.
    async fn tell_asker(&self, caller: &Caller, id: &str, event: &Event, out: &Out) -> Result<(), Status> {
        if !matches!(event.fact, Fact::Asked { .. }) || event.author.agent() != Some(&caller.agent) {
            return Ok(());
        }
        let session = self.desk.session_at_last(caller, id).await.map_err(Refused::from)?;
        if asks_nobody(&session, event) {
            let data = format!("{SEEN_BY_NOBODY}: {GO_ON}").into_bytes();
            let envelope = Some(signal(&session, event.seq, "task.unseen", data));
            let told = WatchSignalsResponse { envelope, sender_authenticated: caller.proven };
            _ = out.send(Ok(told)).await;
        }
        Ok(())
    }

    /// Tell those who decide that something was proposed, and whoever proposed it what was decided.
    async fn tell_of_approval(
        &self,
        caller: &Caller,
        id: &str,
        event: &Event,
        out: &Out,
    ) -> Result<(), Status> {
        let session = match self.desk.session_at_last(caller, id).await {
            Ok(session) => session,
            // It is held back from the caller, or gone.
            Err(no) if no.is_unknown() => return Ok(()),
            Err(no) => return Err(Refused::from(no).status()),
        };
        let own = event.author.agent() == Some(&caller.agent);
        let decided = matches!(event.fact, Fact::Decided { .. });
        let name = if decided { "task.decided" } else { "task.approval" };
        if decides(&session, &caller.agent) && !own {
            let (_, detail) = timeline::describe(&event.fact);
            let envelope = Some(signal(&session, event.seq, name, detail.to_string().into_bytes()));
            let told = WatchSignalsResponse { envelope, sender_authenticated: caller.proven };
            _ = out.send(Ok(told)).await;
        }
        Ok(())
    }

    /// What was ordered while nobody was there to hear it. Says which sessions were suspended then, and how far each was.
    async fn waiting_orders(&self, caller: &Caller, out: &Out) -> Result<BTreeMap<Box<str>, Seq>, Status> {
        let (mut paused, mut after): (_, Option<String>) = (BTreeMap::new(), None);
        loop {
            let page = self.desk.inbox(caller, &[WaitKind::InHand], after.as_deref(), PAGE).await;
            let page = page.map_err(Refused::from)?;
            for session in page.sessions {
                let id = session.binding.id.as_str();
                if let Some(head) = self.hand_over(caller, id, Some(""), out).await? {
                    paused.insert(id.into(), head);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(paused),
            }
        }
    }

    /// Tell the assignee of one session that it is suspended, if it is and there is a reason to say so, and the orders
    /// that may be handed over now. Says how far the session was when it was told to be suspended.
    async fn hand_over(
        &self,
        caller: &Caller,
        id: &str,
        pause: Option<&str>,
        out: &Out,
    ) -> Result<Option<Seq>, Status> {
        let Some(waiting) = self.desk.orders(caller, id).await.map_err(Refused::from)? else {
            return Ok(None);
        };
        let session = &waiting.session;
        let mut signals = Vec::new();
        if let (true, Some(reason)) = (waiting.paused, pause) {
            signals.push((None, signal(session, session.head, "task.pause", reason.as_bytes().to_vec())));
        }
        signals.extend(waiting.orders.iter().map(|order| (Some(order.seq), order_signal(session, order))));
        let mut heard: Option<Seq> = None;
        for (order, envelope) in signals {
            let signal =
                WatchSignalsResponse { envelope: Some(envelope), sender_authenticated: caller.proven };
            // A listener that has gone away is noticed by the loop.
            if out.send(Ok(signal)).await.is_err() {
                break;
            }
            heard = order.or(heard);
        }
        if let Some(up_to) = heard {
            self.desk.heard(caller, session, up_to).await;
        }
        Ok((waiting.paused && pause.is_some()).then_some(session.head))
    }
}

/// The session that a signal relates to; empty if to none.
fn about(envelope: &Envelope) -> Result<String, Refused> {
    if envelope.message_type == PROGRESS {
        admit::decode::<ProgressPayload>(PROGRESS, &envelope.payload)?;
        return Ok(envelope.session_id.clone());
    }
    let payload: SignalPayload = admit::decode(SIGNAL, &envelope.payload)?;
    if payload.signal_type.trim().is_empty() && !envelope.payload.is_empty() {
        return Err(Refused::invalid("expected a signal_type, found nothing"));
    }
    Ok(payload.correlation_session_id)
}

/// A signal of another agent.
async fn pass_on(signal: &Signal, out: &Out) {
    let made = || {
        let envelope = Envelope::decode(&*signal.body).ok();
        Ok(WatchSignalsResponse { envelope, sender_authenticated: signal.proven })
    };
    // A listener that has gone away is noticed by the loop.
    _ = out.send_made(signal.body.len(), made).await;
}

/// Whether orders may be waiting for their assignee after this event.
fn may_free_orders(delivery: &Delivery) -> bool {
    matches!(
        delivery.event.fact,
        Fact::Updated { .. }
            | Fact::Asked { .. }
            | Fact::Checkpointed
            | Fact::Answered { .. }
            | Fact::Steered { .. }
            | Fact::PauseRequested { .. }
            | Fact::Said { .. }
            | Fact::Resumed { .. }
            | Fact::Accepted { .. }
    )
}

/// An order as a signal of the requester.
fn order_signal(session: &Session, order: &Order) -> Envelope {
    let (signal_type, data) = match &order.what {
        OrderKind::Steer(text) => ("task.steer", text.as_bytes().to_vec()),
        OrderKind::Pause(reason) => ("task.pause", reason.as_bytes().to_vec()),
        OrderKind::Message { body, .. } => ("task.message", body.to_vec()),
        OrderKind::Answers(answers) => {
            let all = answers.iter().map(|answer| {
                let (action, content) = match &answer.reply {
                    Reply::Content(body) => ("accept", Some(String::from_utf8_lossy(body).into_owned())),
                    Reply::Refused => ("decline", None),
                    Reply::Dismissed => ("cancel", None),
                };
                serde_json::json!({ "key": answer.key.as_str(), "action": action, "content": content })
            });
            ("task.answer", serde_json::Value::Array(all.collect()).to_string().into_bytes())
        }
    };
    signal(session, order.seq, signal_type, data)
}

/// A signal of the requester about its task.
fn signal(session: &Session, about: Seq, signal_type: &str, data: Vec<u8>) -> Envelope {
    let payload = SignalPayload {
        signal_type: signal_type.to_owned(),
        data,
        confidence: 1.0,
        correlation_session_id: session.binding.id.to_string(),
    };
    Envelope {
        macp_version: MACP_VERSION.to_owned(),
        mode: String::new(),
        message_type: SIGNAL.to_owned(),
        message_id: format!("handover:{}:{about}", session.binding.id),
        session_id: String::new(),
        sender: session.binding.requester.to_string(),
        timestamp_unix_ms: signed(now().0),
        payload: payload.encode_to_vec(),
    }
}
