//! Inboxes: what waits for an agent, found by index and looked at again in the engine, so that nothing is shown that
//! somebody else has dealt with meanwhile. It costs what the page costs, however much the agent has done before.

use std::sync::Arc;

use handover_engine::Denied;
use handover_engine::view::{self, WaitKind};
use handover_kernel::{AgentId, Fact, Session};
use tokio::time::Instant;

use crate::caller::Caller;
use crate::no::No;
use crate::{Desk, page};

/// How many rows of the index are read at a time.
const PAGE: usize = 64;

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

    /// The tasks that the caller may take, as soon as there is one; none if there is none in time, or it may not stay any
    /// longer. Only who really waits takes a place among the agent's streams.
    pub async fn await_offers(
        &self,
        caller: &Caller,
        max: usize,
        until: Instant,
    ) -> Result<Vec<Arc<Session>>, No> {
        let offers = self.inbox(caller, &[WaitKind::TaskOffer], None, max).await?.sessions;
        if !offers.is_empty() || until <= Instant::now() {
            return Ok(offers);
        }
        let mut stay = self.stay(caller)?;
        let mut events = self.own_events(caller).await?;
        loop {
            let offers = self.inbox(caller, &[WaitKind::TaskOffer], None, max).await?.sessions;
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
