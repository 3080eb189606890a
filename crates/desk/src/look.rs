//! What callers see: every way to learn of a session passes [`Desk::session`] or [`Desk::list`]. One that is unknown,
//! another tenant's or deleted is not found; one of the same tenant that the caller has no part in is told apart for those
//! protocols that want it (`No::is_unknown` is both).

use std::collections::VecDeque;
use std::sync::Arc;

use handover_engine::view::{self, Summary};
use handover_engine::{Denied, Key, Topic};
use handover_kernel::command::ModeKind;
use handover_kernel::session::{Standing, replay_after};
use handover_kernel::{Event, Refusal, Session, SessionId, Timestamp};
use handover_store::{Cursor, Filter, Order, Place, SessionKey, is_full};
use prost::Message;

use crate::approvals::conceals;
use crate::caller::{Caller, sees};
use crate::memory::Lease;
use crate::no::No;
use crate::reading::blocking;
use crate::{Desk, page};

/// How many events a page of a history has at most.
pub const HISTORY_MAX: usize = 1000;

/// How many times a page that is read is in memory: as it is stored, as events, and as the answer that is made of them.
pub(crate) const READING: u64 = 4;

/// How many sessions are asked for before it is looked at how many bytes they have, and how many those on one page may
/// have: lists show little of each.
const LOOKS: usize = 16;
const SESSIONS_BYTES_MAX: usize = 16 * page::BYTES_MAX;

/// How many events, and bytes, of a session are looked at together.
const WHOLE_EVENTS_MAX: u64 = 10_000;
const WHOLE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Which sessions to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    /// About what; none is anything.
    pub kind: Option<ModeKind>,
    /// Whether the newest come first.
    pub newest_first: bool,
    /// In one of these standings, one bit for each; 0 is any.
    pub standings: u64,
}

/// A page of sessions as a list shows them.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The sessions, in order.
    pub items: Vec<Item>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<String>,
}

/// One session as a list shows it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its id.
    pub id: SessionId,
    /// Where it stands; none if a newer release wrote it.
    pub standing: Option<Standing>,
    /// Who started it.
    pub requester: Box<str>,
    /// When.
    pub created_at: Timestamp,
    /// What else is shown.
    pub summary: Summary,
    /// The cursor of a page that begins after it.
    pub cursor: Option<String>,
}

/// A page of what happened in a session.
#[derive(Clone, Debug)]
pub struct History {
    /// The session as it is.
    pub session: Arc<Session>,
    /// What happened, in order.
    pub events: Vec<Arc<Event>>,
    /// The number after which the next page begins, if there is more.
    pub next: Option<u64>,
    /// The room that the page takes, and what is made of it.
    _held: Option<Arc<Lease>>,
}

/// Everything that happened in a session.
#[derive(Debug)]
pub struct Whole {
    /// The session as it is.
    pub session: Arc<Session>,
    /// What happened, in order.
    pub events: Vec<Event>,
    _held: Option<Lease>,
}

impl Desk {
    /// A session that the caller may see.
    pub async fn session(&self, caller: &Caller, id: &str) -> Result<Arc<Session>, No> {
        Ok(self.gate.session(caller, id).await?)
    }

    /// A task that the caller may see. A handoff of that id is none.
    pub async fn task(&self, caller: &Caller, id: &str) -> Result<Arc<Session>, No> {
        let session = self.session(caller, id).await?;
        if session.task().is_some() { Ok(session) } else { Err(Refusal::SessionNotFound.into()) }
    }

    /// A handoff that the caller may see.
    pub async fn handoff(&self, caller: &Caller, id: &str) -> Result<Arc<Session>, No> {
        let session = self.session(caller, id).await?;
        if session.handoff().is_some() { Ok(session) } else { Err(Refusal::SessionNotFound.into()) }
    }

    /// A page of the sessions that the caller may see: its own, or all of its tenant if it is an observer.
    pub async fn list(
        &self,
        caller: &Caller,
        query: Query,
        after: Option<&str>,
        max: usize,
    ) -> Result<Listing, No> {
        let (listed, next) = self.page(caller, query, after, max).await?;
        let items = listed.into_iter().map(|listed| {
            let row = listed.row;
            let cursor = Some(page::of_place(listed.place));
            Item {
                cursor,
                id: SessionId::from(&*listed.key.session),
                standing: view::standing_of(row.status),
                requester: row.requester,
                created_at: Timestamp(row.created_at),
                summary: Summary::decode(&*row.summary).unwrap_or_default(),
            }
        });
        Ok(Listing { items: items.collect(), next })
    }

    /// The same with the sessions themselves. One that was deleted since the page was read is left out.
    pub async fn sessions(
        &self,
        caller: &Caller,
        query: Query,
        after: Option<&str>,
        max: usize,
    ) -> Result<(Vec<Arc<Session>>, Option<String>), No> {
        let (listed, next) = self.page(caller, query, after, max).await?;
        let (mut sessions, mut bytes) = (Vec::new(), 0);
        for listed in listed.chunks(LOOKS) {
            let keys = listed.iter().map(|listed| listed.key.clone()).collect();
            let found = self.engine.sessions(keys).await?;
            bytes += found.iter().map(|session| session.weight()).sum::<usize>();
            sessions.extend(found);
            if bytes >= SESSIONS_BYTES_MAX {
                return Ok((sessions, listed.last().map(|listed| page::of_place(listed.place))));
            }
        }
        Ok((sessions, next))
    }

    /// The store may end a page early: read on until it is full.
    async fn page(
        &self,
        caller: &Caller,
        query: Query,
        after: Option<&str>,
        max: usize,
    ) -> Result<(Vec<handover_store::Listed>, Option<String>), No> {
        let mut after = page::place(after)?;
        let filter = Filter {
            tenant: Some(caller.tenant.clone()),
            agent: (!caller.observer).then(|| caller.agent.as_str().into()),
            kind: query.kind.map(view::kind_number),
            statuses: query.standings,
            ..Filter::default()
        };
        let order = if query.newest_first { Order::Newest } else { Order::Oldest };
        let (store, own) = (Arc::clone(&self.store), filter.agent.clone());
        let (found, next): (Vec<_>, Option<Cursor>) = blocking(move || {
            let mut found = Vec::new();
            loop {
                let page = store.list(&filter, order, after, max - found.len())?;
                found.extend(page.sessions.into_iter().filter(|listed| {
                    let shown = |agent: &str| {
                        // What one began is never held back from oneself.
                        if *listed.row.requester == *agent {
                            return true;
                        }
                        let summary = Summary::decode(&*listed.row.summary).unwrap_or_default();
                        summary.is_shown_to(&listed.row.requester, agent)
                    };
                    own.as_deref().is_none_or(shown)
                }));
                match page.next {
                    Some(next) if !is_full(&found, max) => after = Some(next),
                    next => return Ok((found, next)),
                }
            }
        })
        .await?;
        Ok((found, next.map(page::of_place)))
    }

    /// What happened in a session that the caller may see, after an event: at most `max` events, cut by bytes as well.
    pub async fn history(&self, caller: &Caller, id: &str, after: u64, max: usize) -> Result<History, No> {
        let session = self.session(caller, id).await?;
        let mut held = self.gate.hold(caller, READING * page::BYTES_MAX as u64)?;
        let key = SessionKey::new(caller.tenant.clone(), id);
        let (mut events, mut bytes, mut last) = (Vec::new(), 0, after);
        let max = max.clamp(1, HISTORY_MAX);
        'pages: while last < session.head.0 {
            let page = self.events_after(&key, last).await?;
            if page.is_empty() {
                break;
            }
            for event in page {
                // What was appended since goes with the session as it is then.
                if event.seq > session.head {
                    break 'pages;
                }
                bytes += event.weight() as usize;
                last = event.seq.0;
                if !conceals(caller, &session, &event) {
                    events.push(event);
                }
                if events.len() >= max || bytes >= page::BYTES_MAX {
                    break 'pages;
                }
            }
        }
        self.gate.charge_bytes(caller, bytes as u64);
        if let Some(held) = &mut held {
            // The event that ends a page may be larger than a page, and must be readable by somebody who holds nothing else.
            let bytes = (READING * bytes as u64).min(held.room().max() / 2);
            held.grow_to(bytes).map_err(|limited| self.gate.limited(caller, limited))?;
        }
        let next = (last < session.head.0 && last > after).then_some(last);
        Ok(History { session, events, next, _held: held.map(Arc::new) })
    }

    /// The last of what happened in a session before an event, in order: at most `max` events, cut by bytes. The number
    /// before which the next page ends, if there is more.
    pub async fn history_before(
        &self,
        caller: &Caller,
        id: &str,
        before: u64,
        max: usize,
    ) -> Result<History, No> {
        let session = self.session(caller, id).await?;
        let held = self.gate.hold(caller, READING * page::BYTES_MAX as u64)?;
        let key = SessionKey::new(caller.tenant.clone(), id);
        let end = before.min(session.head.0.saturating_add(1));
        let begin = end.saturating_sub(1).saturating_sub(max.clamp(1, HISTORY_MAX) as u64);
        let (mut events, mut bytes, mut last) = (VecDeque::<Arc<Event>>::new(), 0, begin);
        'pages: while last.saturating_add(1) < end {
            let page = self.events_after(&key, last).await?;
            if page.is_empty() {
                break;
            }
            for event in page {
                if event.seq.0 >= end {
                    break 'pages;
                }
                last = event.seq.0;
                bytes += event.weight();
                self.gate.charge_bytes(caller, event.weight());
                events.push_back(event);
                // The newest stay, and one that is larger than a page among them.
                while bytes > page::BYTES_MAX as u64 && events.len() > 1 {
                    bytes -= events.pop_front().map_or(0, |event| event.weight());
                }
            }
        }
        let first = events.front().map_or(end, |event| event.seq.0);
        events.retain(|event| !conceals(caller, &session, event));
        let next = (first > 1).then_some(first);
        Ok(History { session, events: events.into(), next, _held: held.map(Arc::new) })
    }

    /// A session as it was after its event `at`, and that event, as the kernel replays its log; the last one if there are
    /// fewer. It is not shown to who could not see it then. Of the log only a page is held at a time.
    pub async fn as_of(&self, caller: &Caller, id: &str, at: u64) -> Result<(Session, Arc<Event>), No> {
        let session = self.session(caller, id).await?;
        let (then, last) = self.replayed(caller, &session, at.clamp(1, session.head.0), |_| {}).await?;
        match (then, last) {
            (Some(then), Some(event)) if sees(caller, &then) && !conceals(caller, &then, &event) => {
                Ok((then, event))
            }
            (Some(_), Some(_)) => Err(No::NotAllowed {
                what: format!("expected an event that {} may see, found another", caller.agent),
            }),
            (None, _) | (_, None) => Err(Refusal::SessionNotFound.into()),
        }
    }

    /// Replay the log of a session up to its event `at`, and look at the session after each event. Of the log only a page is held
    /// at a time.
    pub(crate) async fn replayed(
        &self,
        caller: &Caller,
        session: &Session,
        at: u64,
        mut look: impl FnMut(&Session),
    ) -> Result<(Option<Session>, Option<Arc<Event>>), No> {
        let _held = self.gate.hold(caller, READING * page::BYTES_MAX as u64)?;
        let key = SessionKey::new(caller.tenant.clone(), session.binding.id.as_str());
        let (mut then, mut last): (Option<Session>, Option<Arc<Event>>) = (None, None);
        loop {
            let after = last.as_ref().map_or(0, |event| event.seq.0);
            let mut page = if after < at { self.events_after(&key, after).await? } else { Vec::new() };
            page.retain(|event| event.seq.0 <= at);
            let Some(end) = page.last().cloned() else { return Ok((then, last)) };
            self.gate.charge_bytes(caller, page.iter().map(|event| event.weight()).sum());
            for event in &page {
                then = replay_after(then, &session.binding.id, [&**event])
                    .map_err(|why| Denied::Unreadable(why.to_string().into()))?;
                then.iter().for_each(&mut look);
            }
            last = Some(end);
        }
    }

    /// Everything that happened in a session that the caller may see, if that is not too much to hold at once.
    pub async fn whole_history(&self, caller: &Caller, id: &str) -> Result<Whole, No> {
        let session = self.session(caller, id).await?;
        if session.head.0 > WHOLE_EVENTS_MAX || session.log_bytes > WHOLE_BYTES_MAX {
            let found = format!("{} events of {} bytes", session.head, session.log_bytes);
            return Err(Refusal::invalid(format!(
                "expected a history of at most {WHOLE_EVENTS_MAX} events and {WHOLE_BYTES_MAX} bytes, found {found}"
            ))
            .into());
        }
        let held = self.gate.hold(caller, READING * session.log_bytes)?;
        self.gate.charge_bytes(caller, session.log_bytes);
        let key = SessionKey::new(caller.tenant.clone(), id);
        let mut events: Vec<Event> = Vec::new();
        while events.len() < session.head.0 as usize {
            let page = self.events_after(&key, events.len() as u64).await?;
            if page.is_empty() {
                break;
            }
            events.extend(page.into_iter().map(Arc::unwrap_or_clone));
        }
        events.truncate(session.head.0 as usize);
        Ok(Whole { session, events, _held: held })
    }

    /// Whether the caller may see a session. Nothing is noted of it: nobody asked for it.
    pub async fn sees(&self, caller: &Caller, id: &str) -> bool {
        let key = SessionKey::new(caller.tenant.clone(), id);
        matches!(self.engine.session(key).await, Ok(Some(session)) if sees(caller, &session))
    }

    /// A page of the events of a session, whoever asks.
    pub(crate) async fn events_after(&self, key: &SessionKey, after: u64) -> Result<Vec<Arc<Event>>, No> {
        let topic = Topic::Session(Key::from(key.clone()));
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || {
            handover_engine::subscription::read_page(&*store, &topic, &Place::first_slot(after))
        });
        let page = read.await.map_err(|_| Denied::Stopping)??;
        Ok(page.events.into_iter().map(|delivery| delivery.event).collect())
    }
}
