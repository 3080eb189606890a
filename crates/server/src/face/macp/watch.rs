//! The calls that go on: who starts and ends, and which policies there are.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_core::Stream;
use handover_kernel::{Fact, Session};
use handover_store::{Filter, SessionKey};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::proto::v1::session_lifecycle_event::EventType;
use super::proto::v1::{SessionLifecycleEvent, WatchPoliciesResponse, WatchSessionsResponse};
use super::refused::Refused;
use super::render;
use super::stream::ended;
use super::{Macp, Stay};
use handover_desk::gate::Caller;
use handover_engine::clock::now;
use handover_engine::{Delivery, Topic};

/// How many frames may wait for the network.
const FRAMES_MAX: usize = 64;

/// How many sessions are read at a time.
const PAGE: usize = 256;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Out<T> = mpsc::Sender<Result<T, Status>>;

impl Macp {
    /// One CREATED for each session that the caller may see, then what happens to them.
    pub(super) fn follow_sessions(self, caller: Caller, stay: Stay) -> Answers<WatchSessionsResponse> {
        let (out, answers) = mpsc::channel(FRAMES_MAX);
        tokio::spawn(async move {
            let _stay = stay;
            if let Err(status) = self.serve_sessions(&caller, &out).await {
                // Whoever has gone away need not be told.
                _ = out.send(Err(status)).await;
            }
        });
        Box::pin(ReceiverStream::new(answers))
    }

    async fn serve_sessions(&self, caller: &Caller, out: &Out<WatchSessionsResponse>) -> Result<(), Status> {
        let from = self.position().await?;
        let topic = if caller.observer {
            Topic::Everything
        } else {
            Topic::Agent { tenant: caller.tenant.clone(), agent: caller.agent.as_str().into() }
        };
        let mut events = self.desk.engine.subscribe(topic, from);
        let known = self.known_sessions(caller, out).await?;
        let mut over = pin!(self.over(caller));
        loop {
            let delivery = tokio::select! {
                biased;
                status = &mut over => return Err(status),
                () = out.closed() => return Ok(()),
                event = events.next() => event.map_err(ended)?,
            };
            if delivery.key.tenant != caller.tenant {
                continue;
            }
            let Some(kind) = lifecycle(&delivery) else { continue };
            if kind == EventType::Created && known.contains(&delivery.key.session) {
                continue;
            }
            let key = SessionKey::clone(&delivery.key);
            let Some(session) = self.desk.engine.session(key).await.map_err(Refused::from)? else { continue };
            if !tell(&session, kind, render::signed(delivery.event.at.0), out).await {
                return Ok(());
            }
        }
    }

    /// Where the feed of all events ends now.
    pub(super) async fn position(&self) -> Result<u64, Status> {
        let store = Arc::clone(&self.desk.store);
        let read = tokio::task::spawn_blocking(move || store.last_position()).await;
        let read = read.map_err(|_| Status::unavailable("the server is stopping"))?;
        read.map_err(|fault| Refused::from(handover_engine::Denied::Fault(Arc::new(fault))).status())
    }

    async fn known_sessions(
        &self,
        caller: &Caller,
        out: &Out<WatchSessionsResponse>,
    ) -> Result<BTreeSet<Box<str>>, Status> {
        let mut known = BTreeSet::new();
        let mut after = None;
        loop {
            let filter = Filter {
                tenant: Some(caller.tenant.clone()),
                agent: (!caller.observer).then(|| caller.agent.as_str().into()),
                ..Filter::default()
            };
            let (keys, next) = self.page(filter, after, PAGE).await?;
            known.extend(keys.iter().map(|key| key.session.clone()));
            for session in self.desk.engine.sessions(keys).await.map_err(Refused::from)? {
                if !tell(&session, EventType::Created, render::signed(now().0), out).await {
                    return Ok(known);
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(known),
            }
        }
    }

    /// The whole set of policies now and on each change.
    pub(super) fn follow_policies(self, caller: Caller, stay: Stay) -> Answers<WatchPoliciesResponse> {
        let (out, answers) = mpsc::channel(FRAMES_MAX);
        let mut changes = self.desk.policies.watch();
        tokio::spawn(async move {
            let _stay = stay;
            let mut over = pin!(self.over(&caller));
            loop {
                changes.mark_unchanged();
                let answer = match self.descriptors(&caller.tenant).await {
                    Ok(descriptors) => Ok(WatchPoliciesResponse {
                        descriptors,
                        observed_at_unix_ms: render::signed(now().0),
                    }),
                    Err(refused) => Err(refused.status()),
                };
                if out.send(answer).await.is_err() {
                    return;
                }
                tokio::select! {
                    status = &mut over => {
                        _ = out.send(Err(status)).await;
                        return;
                    }
                    () = out.closed() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
        Box::pin(ReceiverStream::new(answers))
    }

    /// A registry that never changes: say how it is, and wait.
    pub(super) fn once_and_wait<T: Send + 'static>(self, caller: Caller, stay: Stay, first: T) -> Answers<T> {
        let (out, answers) = mpsc::channel(1);
        tokio::spawn(async move {
            let _stay = stay;
            _ = out.send(Ok(first)).await;
            tokio::select! {
                status = self.over(&caller) => { _ = out.send(Err(status)).await; }
                () = out.closed() => {}
            }
        });
        Box::pin(ReceiverStream::new(answers))
    }
}

/// Tell what happened to a session. False if nobody listens any more.
async fn tell(
    session: &Session,
    kind: EventType,
    observed_at_unix_ms: i64,
    out: &Out<WatchSessionsResponse>,
) -> bool {
    let session = Some(render::metadata(session));
    let event = SessionLifecycleEvent { event_type: kind.into(), session, observed_at_unix_ms };
    out.send(Ok(WatchSessionsResponse { event: Some(event) })).await.is_ok()
}

fn lifecycle(delivery: &Delivery) -> Option<EventType> {
    match &delivery.event.fact {
        Fact::Started(_) => Some(EventType::Created),
        Fact::Committed(_) => Some(EventType::Resolved),
        Fact::Expired { .. } => Some(EventType::Expired),
        Fact::Suspended { .. } => Some(EventType::Suspended),
        Fact::Resumed { .. } => Some(EventType::Resumed),
        Fact::Cancelled { .. } => Some(EventType::Cancelled),
        Fact::ErrandSettled { .. }
        | Fact::Requested(_)
        | Fact::Accepted { .. }
        | Fact::Declined { .. }
        | Fact::Updated { .. }
        | Fact::Asked { .. }
        | Fact::Checkpointed
        | Fact::Delivered { .. }
        | Fact::Answered { .. }
        | Fact::Steered { .. }
        | Fact::PauseRequested { .. }
        | Fact::Completed { .. }
        | Fact::Failed(_)
        | Fact::Said { .. }
        | Fact::Read { .. }
        | Fact::Acknowledged
        | Fact::CheckInMissed { .. }
        | Fact::KeySet { .. }
        | Fact::ChildAdded { .. }
        | Fact::Offered { .. }
        | Fact::ContextAdded { .. }
        | Fact::OfferAccepted { .. }
        | Fact::OfferDeclined { .. } => None,
    }
}
