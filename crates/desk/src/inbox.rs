//! Inboxes: what waits for an agent, found by index and looked at again in the engine, so that nothing is shown that
//! somebody else has dealt with meanwhile. It costs what the page costs, however much the agent has done before.

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_engine::Denied;
use handover_engine::view::{self, Summary, WaitKind};
use handover_kernel::{AgentId, Fact, Session, SessionId, Timestamp};
use handover_store::{SessionKey, Waiting};
use prost::Message;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::no::No;
use crate::page::Waited;
use crate::{Desk, page};

/// How many rows of the index are read at a time.
const PAGE: usize = 64;

/// How many sessions are put into the order of their waits. Those behind them are not compared with these.
const ORDERED_MAX: usize = 1000;

/// A page of what waits for an agent.
#[derive(Clone, Debug)]
pub struct Inbox {
    /// The sessions.
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
        let wanted = bits(kinds);
        let mut after = page::place(after)?;
        let (mut sessions, mut bytes) = (Vec::new(), 0);
        loop {
            let (tenant, agent) = (&caller.tenant, caller.agent.as_str());
            let many = (max - sessions.len()).min(PAGE);
            let page = self.engine.inbox(tenant, agent, wanted, after, many).await?;
            for waiting in page.sessions {
                let Some(session) = self.still_waits(caller, waiting.key, wanted).await? else { continue };
                bytes += session.weight();
                sessions.push(session);
                if bytes >= page::BYTES_MAX {
                    return Ok(Inbox { sessions, next: Some(page::of_place(waiting.place)) });
                }
            }
            match page.next {
                Some(next) if sessions.len() < max => after = Some(next),
                next => return Ok(Inbox { sessions, next: next.map(page::of_place) }),
            }
        }
    }

    /// The same, those that have waited longest first.
    pub async fn longest_waiting(
        &self,
        caller: &Caller,
        kinds: &[WaitKind],
        after: Option<&str>,
        max: usize,
    ) -> Result<Inbox, No> {
        let wanted = bits(kinds);
        let mut from = page::waited(after)?;
        let (mut sessions, mut bytes) = (Vec::new(), 0);
        loop {
            let (tenant, agent) = (&caller.tenant, caller.agent.as_str());
            let page = self.engine.inbox(tenant, agent, wanted, from.behind, ORDERED_MAX).await?;
            let place = |waiting: Waiting| {
                let since = since_of(&waiting, wanted);
                (Waited { since: since.0, place: waiting.place.0, ..from }, waiting.key)
            };
            let mut rows: Vec<_> = page.sessions.into_iter().map(place).collect();
            rows.retain(|(waited, _)| waited.rank() > from.rank());
            rows.sort_by_key(|(waited, _)| waited.rank());
            let mut rows = rows.into_iter().peekable();
            while let Some((waited, key)) = rows.next() {
                let Some(session) = self.still_waits(caller, key, wanted).await? else { continue };
                bytes += session.weight();
                sessions.push(session);
                if sessions.len() >= max || bytes >= page::BYTES_MAX {
                    let more = rows.peek().is_some() || page.next.is_some();
                    return Ok(Inbox { sessions, next: more.then(|| page::of_waited(waited)) });
                }
            }
            match page.next {
                Some(next) => from = Waited { behind: Some(next), ..Waited::default() },
                None => return Ok(Inbox { sessions, next: None }),
            }
        }
    }

    /// A session of the index, if it waits for the caller as it is now.
    async fn still_waits(
        &self,
        caller: &Caller,
        key: SessionKey,
        wanted: u32,
    ) -> Result<Option<Arc<Session>>, No> {
        match self.engine.session(key).await {
            Ok(found) => Ok(found.filter(|session| waits_for(session, &caller.agent) & wanted != 0)),
            // One that cannot be read must not hide the others.
            Err(Denied::Unreadable(_)) => Ok(None),
            Err(denied) => Err(denied.into()),
        }
    }

    /// How many sessions wait for the caller for one of these reasons, up to `max`, as the index has it: none of them is loaded.
    pub async fn count_waiting(&self, caller: &Caller, kinds: &[WaitKind], max: usize) -> Result<usize, No> {
        let wanted = bits(kinds);
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

/// Since when a session waits for an agent for the first of these reasons.
pub fn waits_since(session: &Session, agent: &AgentId, kinds: &[WaitKind]) -> Timestamp {
    let reasons = reasons(session, agent).into_iter().filter(|kind| kinds.contains(kind));
    let since = reasons.map(|kind| view::since(session, kind));
    since.min().unwrap_or(session.stands_since)
}

/// Why a session waits for an agent.
pub fn reasons(session: &Session, agent: &AgentId) -> Vec<WaitKind> {
    WaitKind::of(waits_for(session, agent)).collect()
}

/// Since when a session of the index waits. A row of an earlier release does not say it: then since it began at the latest.
fn since_of(waiting: &Waiting, wanted: u32) -> Timestamp {
    let summary = Summary::decode(&waiting.row.summary[..]).unwrap_or_default();
    summary.waits_since(waiting.kinds & wanted).unwrap_or(Timestamp(waiting.row.created_at))
}

/// These reasons as bits.
fn bits(kinds: &[WaitKind]) -> u32 {
    kinds.iter().fold(0, |bits, kind| bits | kind.bit())
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
