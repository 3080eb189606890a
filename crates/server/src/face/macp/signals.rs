//! Signals: what is told and not kept. They never touch a session. The orders that wait for a MACP assignee travel as
//! signals too; those are on the task's log first, and are told again until they have been heard.

use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_core::Stream;
use handover_kernel::command::{Act, Command, Reply, TaskAct};
use handover_kernel::orders::{Order, OrderKind};
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{AgentId, Fact, Seq, Session};
use handover_store::{Filter, SessionKey};
use prost::Message;
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::admit::{self, MACP_VERSION};
use super::proto::v1::{Envelope, SignalPayload, WatchSignalsResponse};
use super::refused::Refused;
use super::render::signed;
use super::stream::ended;
use super::{Macp, Stay};
use handover_desk::gate::{Caller, Kind, sees};
use handover_engine::clock::now;
use handover_engine::view;
use handover_engine::{Delivery, Key, Topic};

/// How many signals may wait for one listener.
const SIGNALS_MAX: usize = 1024;

/// How many frames may wait for the network.
const FRAMES_MAX: usize = 64;

/// Everybody who listens.
#[derive(Clone)]
pub struct Signals {
    sender: broadcast::Sender<Arc<Told>>,
}

/// A signal that was told.
struct Told {
    tenant: Box<str>,
    /// The session that it relates to, if it does.
    about: Option<String>,
    envelope: Envelope,
    proven: bool,
}

impl Default for Signals {
    fn default() -> Self {
        Signals { sender: broadcast::Sender::new(SIGNALS_MAX) }
    }
}

type Out = mpsc::Sender<Result<WatchSignalsResponse, Status>>;

/// Whether an envelope is a signal: it belongs to no session and to no mode.
pub fn is_signal(envelope: &Envelope) -> bool {
    envelope.message_type == "Signal"
}

impl Macp {
    /// Tell everybody who may hear it. Says when.
    pub(super) async fn signal(&self, caller: &Caller, envelope: &Envelope) -> Result<i64, Refused> {
        self.desk.gate.admit(caller, Kind::Message)?;
        let origin = admit::origin(caller, envelope);
        origin.inspect_err(|refused| self.note_impersonation(caller, refused))?;
        if !envelope.session_id.is_empty() || !envelope.mode.is_empty() {
            return Err(Refused::invalid("expected a signal without session_id and mode, found one of them"));
        }
        // No signal can pass for an order: those have ids of the runtime.
        admit::message_id(&envelope.message_id)?;
        let payload = SignalPayload::decode(envelope.payload.as_slice())
            .map_err(|error| Refused::invalid(format!("expected the payload of a Signal, found: {error}")))?;
        if payload.signal_type.trim().is_empty() && !payload.data.is_empty() {
            return Err(Refused::invalid("expected a signal_type beside the data, found nothing"));
        }
        self.desk.gate.fits(caller, envelope.payload.len())?;
        let about = (!payload.correlation_session_id.is_empty()).then_some(payload.correlation_session_id);
        if let Some(session) = &about {
            self.session(caller, session).await?;
        }
        let at = signed(now().0);
        let mut envelope = envelope.clone();
        envelope.sender = caller.agent.to_string();
        let told = Told { tenant: caller.tenant.clone(), about, envelope, proven: caller.proven };
        // Nobody listening is no error: a signal is not kept.
        _ = self.signals.sender.send(Arc::new(told));
        Ok(at)
    }

    /// Everything that this agent may hear, and the orders that wait for it.
    pub(super) fn follow_signals(
        self,
        caller: Caller,
        stay: Stay,
    ) -> Pin<Box<dyn Stream<Item = Result<WatchSignalsResponse, Status>> + Send>> {
        let (out, answers) = mpsc::channel(FRAMES_MAX);
        // Listen before the call is answered: what is told after that is heard.
        let told = self.signals.sender.subscribe();
        tokio::spawn(async move {
            let _stay = stay;
            if let Err(status) = self.serve_signals(&caller, told, &out).await {
                _ = out.send(Err(status)).await;
            }
        });
        Box::pin(ReceiverStream::new(answers))
    }

    async fn serve_signals(
        &self,
        caller: &Caller,
        mut told: broadcast::Receiver<Arc<Told>>,
        out: &Out,
    ) -> Result<(), Status> {
        let mut over = pin!(self.over(caller));
        let topic = Topic::Agent { tenant: caller.tenant.clone(), agent: caller.agent.as_str().into() };
        let from = self.position().await?;
        let mut events = self.desk.engine.subscribe(topic, from);
        self.waiting_orders(caller, out).await?;
        loop {
            tokio::select! {
                biased;
                status = &mut over => return Err(status),
                () = out.closed() => return Ok(()),
                signal = told.recv() => match signal {
                    Ok(signal) => self.pass_on(caller, &signal, out).await,
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        let message = "the listener did not keep up with the signals";
                        return Err(Refused::new("RATE_LIMITED", tonic::Code::ResourceExhausted, message).status());
                    }
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
                },
                event = events.next() => {
                    let delivery = event.map_err(ended)?;
                    if let Fact::Suspended { reason, .. } = &delivery.event.fact {
                        self.tell_of_pause(caller, &delivery.key, reason, out).await?;
                    } else if may_free_orders(&delivery) {
                        self.hand_over(caller, &delivery.key, out).await?;
                    }
                }
            }
        }
    }

    /// A signal that relates to a session reaches only those who may see it.
    async fn pass_on(&self, caller: &Caller, told: &Told, out: &Out) {
        if told.tenant != caller.tenant {
            return;
        }
        if let Some(session) = &told.about {
            let key = SessionKey::new(caller.tenant.clone(), session.as_str());
            match self.desk.engine.session(key).await {
                Ok(Some(session)) if sees(caller, &session) => {}
                Ok(_) | Err(_) => return,
            }
        }
        let envelope = Some(told.envelope.clone());
        // A listener that has gone away is noticed by the loop.
        _ = out.send(Ok(WatchSignalsResponse { envelope, sender_authenticated: told.proven })).await;
    }

    /// What was ordered while nobody was there to hear it.
    async fn waiting_orders(&self, caller: &Caller, out: &Out) -> Result<(), Status> {
        let at_work = [
            Standing::Working,
            Standing::WaitingInput,
            Standing::WaitingAuthorization,
            Standing::WaitingReply,
            Standing::Suspended,
        ];
        for standing in at_work {
            let mut after = None;
            loop {
                let filter = Filter {
                    tenant: Some(caller.tenant.clone()),
                    agent: Some(caller.agent.as_str().into()),
                    statuses: 1 << view::status_number(standing),
                    ..Filter::default()
                };
                let (keys, next) = self.page(filter, after, 256).await?;
                for key in keys {
                    let key = Key::from(key);
                    self.tell_of_pause(caller, &key, "", out).await?;
                    self.hand_over(caller, &key, out).await?;
                }
                match next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Tell the assignee that its session is suspended, if it is. It is no order that waits: whoever begins to listen
    /// while the pause lasts is told again.
    async fn tell_of_pause(&self, caller: &Caller, key: &Key, reason: &str, out: &Out) -> Result<(), Status> {
        let session = self.desk.engine.session(SessionKey::clone(key)).await.map_err(Refused::from)?;
        let paused = session.filter(|session| {
            is_assignee(session, &caller.agent) && matches!(session.lifecycle, Lifecycle::Suspended { .. })
        });
        if let Some(session) = paused {
            let envelope = Some(signal(&session, session.head, "task.pause", reason.as_bytes().to_vec()));
            // A listener that has gone away is noticed by the loop.
            _ = out.send(Ok(WatchSignalsResponse { envelope, sender_authenticated: caller.proven })).await;
        }
        Ok(())
    }

    /// Tell the assignee the orders of one session that may be handed over now, and record that it heard them.
    async fn hand_over(&self, caller: &Caller, key: &Key, out: &Out) -> Result<(), Status> {
        let key = SessionKey::clone(key);
        let session = self.desk.engine.session(key.clone()).await.map_err(Refused::from)?;
        let Some(session) = session.filter(|session| is_assignee(session, &caller.agent)) else {
            return Ok(());
        };
        let mut heard: Option<Seq> = None;
        for order in session.orders() {
            let envelope = Some(order_signal(&session, order));
            let signal = WatchSignalsResponse { envelope, sender_authenticated: caller.proven };
            if out.send(Ok(signal)).await.is_err() {
                break;
            }
            heard = Some(order.seq);
        }
        if let Some(up_to) = heard {
            let deliver = Command::runtime(Act::Task(TaskAct::Deliver { up_to }));
            // If it cannot be recorded, the orders are told again: better twice than never.
            _ = self.desk.engine.submit(key, deliver).await;
        }
        Ok(())
    }
}

fn is_assignee(session: &Session, agent: &AgentId) -> bool {
    session.task().and_then(|task| task.phase.assignee()) == Some(agent)
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
        message_type: "Signal".to_owned(),
        message_id: format!("handover:{}:{about}", session.binding.id),
        session_id: String::new(),
        sender: session.binding.requester.to_string(),
        timestamp_unix_ms: signed(now().0),
        payload: payload.encode_to_vec(),
    }
}
