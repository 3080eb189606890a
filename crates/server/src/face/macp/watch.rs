//! The calls that go on: who starts and ends, and which policies there are.

use std::collections::BTreeSet;
use std::pin::Pin;

use futures_core::Stream;
use handover_desk::Delivery;
use handover_desk::approvals::became_known;
use handover_desk::clock::now;
use handover_desk::follow::Stay;
use handover_desk::gate::Caller;
use handover_desk::look::Query;
use handover_kernel::{Fact, Session, SessionId, Timestamp};
use prost::Message;
use tonic::Status;

use super::proto::v1::session_lifecycle_event::EventType;
use super::proto::v1::{SessionLifecycleEvent, WatchPoliciesResponse, WatchSessionsResponse};
use super::refused::Refused;
use super::{Macp, ended, render};
use crate::queue::{self, queue};

/// How many sessions are read at a time.
const PAGE: usize = 256;

/// A session that was created longer ago than this is not among the events that come, whatever the clock does.
const STARTED_WITHIN_MS: u64 = 60_000;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Out<T> = queue::Sender<Result<T, Status>>;

impl Macp {
    /// One CREATED for each session that the caller may see, then what happens to them.
    pub(super) fn follow_sessions(self, caller: Caller, stay: Stay) -> Answers<WatchSessionsResponse> {
        let (out, answers) = queue(caller.room().cloned());
        tokio::spawn(async move {
            if let Err(status) = self.serve_sessions(&caller, stay, &out).await {
                // Whoever has gone away need not be told.
                _ = out.send(Err(status)).await;
            }
        });
        Box::pin(answers)
    }

    async fn serve_sessions(
        &self,
        caller: &Caller,
        mut stay: Stay,
        out: &Out<WatchSessionsResponse>,
    ) -> Result<(), Status> {
        let events = self.desk.visible_events(caller).await.map_err(Refused::from)?;
        let mut events = events.telling_of_lag();
        let known = self.known_sessions(caller, out).await?;
        loop {
            let delivery = tokio::select! {
                biased;
                () = out.closed() => return Ok(()),
                event = stay.next(&mut events) => event.map_err(ended)?,
            };
            if delivery.key.tenant != caller.tenant {
                continue;
            }
            let Some(kind) = lifecycle(&delivery) else { continue };
            let id = SessionId::from(&*delivery.key.session);
            if kind == EventType::Created && known.contains(&id) {
                continue;
            }
            let session = match self.desk.session_at_last(caller, id.as_str()).await {
                Ok(session) => session,
                // Deleted since.
                Err(no) if no.is_unknown() => continue,
                Err(no) => return Err(Refused::from(no).status()),
            };
            if let (Fact::Requested(_) | Fact::Offered { .. }, false) =
                (&delivery.event.fact, became_known(&session, &delivery.event, &caller.agent))
            {
                continue;
            }
            if !tell(&session, kind, render::signed(delivery.event.at.0), out).await {
                return Ok(());
            }
        }
    }

    async fn known_sessions(
        &self,
        caller: &Caller,
        out: &Out<WatchSessionsResponse>,
    ) -> Result<BTreeSet<SessionId>, Status> {
        // Those that began before the events that are followed will not be heard of as created.
        let since = Timestamp(now().0.saturating_sub(STARTED_WITHIN_MS));
        let mut known = BTreeSet::new();
        let mut after: Option<String> = None;
        loop {
            let query = Query::default();
            let (page, next) =
                self.desk.sessions(caller, query, after.as_deref(), PAGE).await.map_err(Refused::from)?;
            for session in page {
                if session.binding.created_at >= since {
                    known.insert(session.binding.id.clone());
                }
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
    pub(super) fn follow_policies(self, caller: Caller, mut stay: Stay) -> Answers<WatchPoliciesResponse> {
        let (out, answers) = queue(caller.room().cloned());
        let mut changes = self.desk.policies.watch();
        tokio::spawn(async move {
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
                    over = stay.over() => {
                        _ = out.send(Err(ended(over))).await;
                        return;
                    }
                    () = out.closed() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
        Box::pin(answers)
    }

    /// A registry that never changes: say how it is, and wait.
    pub(super) fn once_and_wait<T: Message + 'static>(
        caller: &Caller,
        mut stay: Stay,
        first: T,
    ) -> Answers<T> {
        let (out, answers) = queue(caller.room().cloned());
        tokio::spawn(async move {
            _ = out.send(Ok(first)).await;
            tokio::select! {
                over = stay.over() => { _ = out.send(Err(ended(over))).await; }
                () = out.closed() => {}
            }
        });
        Box::pin(answers)
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
        // Those who are asked to do it hear of the session with that, if it needed an approval.
        Fact::Requested(_) | Fact::Offered { .. } => Some(EventType::Created),
        Fact::ErrandSettled { .. }
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
        | Fact::FellSilent { .. }
        | Fact::CycleFound { .. }
        | Fact::Proposed { .. }
        | Fact::Decided { .. }
        | Fact::KeySet { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Overspent { .. }
        | Fact::ChildAdded { .. }
        | Fact::ContextAdded { .. }
        | Fact::OfferAccepted { .. }
        | Fact::OfferDeclined { .. } => None,
    }
}
