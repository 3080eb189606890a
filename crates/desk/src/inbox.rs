//! Inboxes: what waits for an agent, found by index and looked at again in the engine, so that nothing is shown that
//! somebody else has dealt with meanwhile. It costs what the page costs, however much the agent has done before.

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_engine::Denied;
use handover_engine::view::{self, WaitKind};
use handover_kernel::{AgentId, Fact, Session, SessionId, Timestamp};
use tokio::time::Instant;

use crate::caller::Caller;
use crate::no::No;
use crate::{Desk, page};

/// How many rows of the index are read at a time.
const PAGE: usize = 64;

/// How many events are looked at for the one with which a wait began: the newest, a part at a time.
const LOOKED_AT: [usize; 3] = [16, 64, 176];

/// A page of what waits for an agent.
#[derive(Clone, Debug)]
pub struct Inbox {
    /// The sessions, the oldest first.
    pub sessions: Vec<Arc<Session>>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<String>,
}

impl Desk {
    /// The sessions that wait for the caller for one of these reasons, the oldest first, at most `max` of them, cut by bytes.
    pub async fn inbox(
        &self,
        caller: &Caller,
        kinds: &[WaitKind],
        after: Option<&str>,
        max: usize,
    ) -> Result<Inbox, No> {
        let wanted = kinds.iter().fold(0, |bits, kind| bits | kind.bit());
        let mut after = page::place(after)?;
        let (mut sessions, mut bytes) = (Vec::new(), 0);
        loop {
            let (tenant, agent) = (&caller.tenant, caller.agent.as_str());
            let many = (max - sessions.len()).min(PAGE);
            let page = self.engine.inbox(tenant, agent, wanted, after, many).await?;
            for waiting in page.sessions {
                match self.engine.session(waiting.key).await {
                    Ok(Some(session)) if waits_for(&session, &caller.agent) & wanted != 0 => {
                        bytes += session.weight();
                        sessions.push(session);
                        if bytes >= page::BYTES_MAX {
                            return Ok(Inbox { sessions, next: Some(page::of_place(waiting.place)) });
                        }
                    }
                    // One that is gone, or cannot be read, must not hide the others.
                    Ok(_) | Err(Denied::Unreadable(_)) => {}
                    Err(denied) => return Err(denied.into()),
                }
            }
            match page.next {
                Some(next) if sessions.len() < max => after = Some(next),
                next => return Ok(Inbox { sessions, next: next.map(page::of_place) }),
            }
        }
    }

    /// How many sessions wait for the caller for one of these reasons, up to `max`, as the index has it: none of them is loaded.
    pub async fn count_waiting(&self, caller: &Caller, kinds: &[WaitKind], max: usize) -> Result<usize, No> {
        let wanted = kinds.iter().fold(0, |bits, kind| bits | kind.bit());
        let (mut count, mut after) = (0, None);
        loop {
            let (tenant, agent) = (&caller.tenant, caller.agent.as_str());
            let page = self.engine.inbox(tenant, agent, wanted, after, max - count).await?;
            count += page.sessions.len();
            match page.next {
                Some(next) if count < max => after = Some(next),
                _ => return Ok(count.min(max)),
            }
        }
    }

    /// Since when a session waits for an agent for these reasons: when the first of what it waits for began. Where that is not
    /// among the last events, when the oldest of those happened.
    pub async fn waits_since(
        &self,
        caller: &Caller,
        session: &Session,
        kinds: &[WaitKind],
    ) -> Result<Timestamp, No> {
        let known = |kind: &WaitKind| known_since(session, *kind);
        let mut since = kinds.iter().filter_map(known).min();
        let mut left: Vec<WaitKind> = kinds.iter().copied().filter(|kind| known(kind).is_none()).collect();
        let (mut before, mut oldest) = (u64::MAX, session.last_at);
        for many in LOOKED_AT {
            if left.is_empty() {
                break;
            }
            let page = self.history_before(caller, session.binding.id.as_str(), before, many).await?;
            for event in page.events.iter().rev() {
                oldest = event.at;
                let began = |kind: &WaitKind| begins(&event.fact) == Some(*kind);
                if left.iter().any(began) {
                    since = Some(since.map_or(event.at, |since| since.min(event.at)));
                    left.retain(|kind| !began(kind));
                }
            }
            match page.next {
                Some(next) => before = next,
                None => break,
            }
        }
        Ok(since.filter(|since| left.is_empty() || *since < oldest).unwrap_or(oldest))
    }

    /// The tasks that the caller may take but these, as soon as there is one; none if there is none in time, or it may not stay
    /// any longer. Only who really waits takes a place among the agent's streams.
    pub async fn await_offers(
        &self,
        caller: &Caller,
        but: &BTreeSet<SessionId>,
        max: usize,
        until: Instant,
    ) -> Result<Vec<Arc<Session>>, No> {
        let offers = self.offers(caller, but, max).await?;
        if !offers.is_empty() || until <= Instant::now() {
            return Ok(offers);
        }
        let mut stay = self.stay(caller)?;
        let mut events = self.own_events(caller).await?;
        loop {
            let offers = self.offers(caller, but, max).await?;
            if !offers.is_empty() {
                return Ok(offers);
            }
            loop {
                match stay.next_by(&mut events, until).await {
                    Ok(Some(delivery)) if may_offer(&delivery.event.fact) => break,
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(Vec::new()),
                    Err(over) => return over.no().map_or(Ok(Vec::new()), Err),
                }
            }
        }
    }

    async fn offers(
        &self,
        caller: &Caller,
        but: &BTreeSet<SessionId>,
        max: usize,
    ) -> Result<Vec<Arc<Session>>, No> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.inbox(caller, &[WaitKind::TaskOffer], after.as_deref(), max).await?;
            found.extend(page.sessions.into_iter().filter(|session| !but.contains(&session.binding.id)));
            found.truncate(max);
            match page.next {
                // Those that are passed over may fill a page.
                Some(next) if found.is_empty() => after = Some(next),
                Some(_) | None => return Ok(found),
            }
        }
    }
}

/// Since when a session waits for a reason, where it knows that itself.
pub fn known_since(session: &Session, kind: WaitKind) -> Option<Timestamp> {
    match kind {
        WaitKind::Approval | WaitKind::Proposed => session.proposal.as_ref().map(|proposal| proposal.at),
        WaitKind::Silent => session.task()?.signs.silent_since,
        WaitKind::HandoffOffer
        | WaitKind::Offered
        | WaitKind::TaskOffer
        | WaitKind::Question
        | WaitKind::Reply
        | WaitKind::Review => Some(session.stands_since),
        WaitKind::InHand
        | WaitKind::Unread
        | WaitKind::CheckInMissed
        | WaitKind::Orders
        | WaitKind::Revision => None,
    }
}

/// Why a session waits for an agent.
pub fn reasons(session: &Session, agent: &AgentId) -> Vec<WaitKind> {
    WaitKind::of(waits_for(session, agent)).collect()
}

/// Why a session waits for an agent, as bits.
fn waits_for(session: &Session, agent: &AgentId) -> u32 {
    let waits = view::waits(session);
    waits.iter().find(|waits| *waits.agent == *agent.as_str()).map_or(0, |waits| waits.kinds)
}

/// Whether there may be a task to take after this that there was not before.
fn may_offer(fact: &Fact) -> bool {
    matches!(fact, Fact::Requested(_) | Fact::Declined { .. } | Fact::Resumed { .. })
}

/// What an event can begin to wait for.
pub(crate) fn begins(fact: &Fact) -> Option<WaitKind> {
    match fact {
        Fact::Asked { .. } => Some(WaitKind::Question),
        Fact::Proposed { .. } => Some(WaitKind::Approval),
        Fact::Decided { .. } => Some(WaitKind::Revision),
        Fact::Completed { .. } | Fact::Failed(_) => Some(WaitKind::Review),
        // If nobody is left to take it.
        Fact::Declined { .. } => Some(WaitKind::Review),
        Fact::Said { .. } => Some(WaitKind::Reply),
        Fact::CheckInMissed { .. } => Some(WaitKind::CheckInMissed),
        Fact::FellSilent { .. } => Some(WaitKind::Silent),
        Fact::Offered { .. } => Some(WaitKind::HandoffOffer),
        Fact::OfferAccepted { .. } | Fact::OfferDeclined { .. } => Some(WaitKind::Review),
        Fact::Started(_)
        | Fact::Cancelled { .. }
        | Fact::Suspended { .. }
        | Fact::Resumed { .. }
        | Fact::Expired { .. }
        | Fact::Committed(_)
        | Fact::ErrandSettled { .. }
        | Fact::Requested(_)
        | Fact::Accepted { .. }
        | Fact::Updated { .. }
        | Fact::Checkpointed
        | Fact::Delivered { .. }
        | Fact::Answered { .. }
        | Fact::Steered { .. }
        | Fact::PauseRequested { .. }
        | Fact::Read { .. }
        | Fact::Acknowledged
        | Fact::CycleFound { .. }
        | Fact::KeySet { .. }
        | Fact::ChildAdded { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Overspent { .. }
        | Fact::ContextAdded { .. } => None,
    }
}
