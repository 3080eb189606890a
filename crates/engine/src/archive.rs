//! What a store has, on its way to another one: each session is replayed before it leaves and before it is put anywhere.

use std::collections::VecDeque;
use std::sync::Arc;

use handover_kernel::Session;
use handover_store::{Append, Cursor, Fault, Outcome, Record, SessionKey, Store, Tombstone, is_full};

use crate::answer::Denied;
use crate::log::{nothing, replay_on};
use crate::names::Names;
use crate::shard::wake;
use crate::view;

/// How many events, keys, records or tombstones are read at a time.
const PAGE: usize = 500;

/// The log of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Whose.
    pub key: SessionKey,
    /// Every event of it, as it is stored.
    pub events: Vec<Vec<u8>>,
}

/// What became of a session or of a tombstone that was put into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It was not there.
    New,
    /// It was there, the same.
    Same,
    /// Another session has its id, or it has gone on since: nothing was changed.
    Differs,
    /// It was deleted there, and its id is not free: nothing was changed.
    Deleted,
}

fn fault(fault: Fault) -> Denied {
    Denied::Fault(Arc::new(fault))
}

impl Archived {
    /// The session that the log tells of, as the kernel replays it.
    pub fn replay(&self) -> Result<Session, Denied> {
        let session = replay_on(&self.key, None, &self.events, &mut Names::default())?;
        session.ok_or_else(|| nothing(&self.key))
    }

    /// Whether a store has this very log.
    fn is_in(&self, store: &dyn Store) -> Result<bool, Fault> {
        let mut rest = &self.events[..];
        loop {
            let after = (self.events.len() - rest.len()) as u64;
            let page = store.read(&self.key, after, PAGE)?;
            let Some((here, later)) = rest.split_at_checked(page.len()) else { return Ok(false) };
            if !page.iter().map(|event| &event.bytes).eq(here) {
                return Ok(false);
            }
            rest = later;
            if !is_full(&page, PAGE) {
                return Ok(rest.is_empty());
            }
        }
    }
}

/// What comes in pages, one after the other, until there is no further page.
fn each<'a, T: 'a>(
    mut page: impl FnMut() -> Result<Option<Vec<T>>, Denied> + 'a,
) -> impl Iterator<Item = Result<T, Denied>> + 'a {
    let (mut items, mut is_last) = (VecDeque::new(), false);
    std::iter::from_fn(move || {
        while items.is_empty() && !is_last {
            match page() {
                Ok(Some(found)) => items.extend(found),
                Ok(None) => is_last = true,
                Err(denied) => {
                    is_last = true;
                    return Some(Err(denied));
                }
            }
        }
        items.pop_front().map(Ok)
    })
}

/// The keys of all sessions of a store, in the order in which they were first written.
pub fn sessions(store: &dyn Store) -> impl Iterator<Item = Result<SessionKey, Denied>> {
    let (mut after, mut is_last) = (None::<Cursor>, false);
    each(move || {
        if is_last {
            return Ok(None);
        }
        let (found, next) = store.sessions(after, PAGE).map_err(fault)?;
        (after, is_last) = (next, next.is_none());
        Ok(Some(found))
    })
}

/// The events of a session, a page at a time, each replayed after those before: a long log takes no more memory than a short one.
pub fn pages<'a>(
    store: &'a dyn Store,
    key: &'a SessionKey,
) -> impl Iterator<Item = Result<Vec<Vec<u8>>, Denied>> + 'a {
    let (mut session, mut names, mut after, mut is_last) = (None, Names::default(), 0, false);
    std::iter::from_fn(move || {
        if is_last {
            return None;
        }
        let mut next = || {
            let page = store.read(key, after, PAGE).map_err(fault)?;
            is_last = !is_full(&page, PAGE);
            after += page.len() as u64;
            let events: Vec<Vec<u8>> = page.into_iter().map(|event| event.bytes).collect();
            session = replay_on(key, session.take(), &events, &mut names)?;
            if session.is_none() { Err(nothing(key)) } else { Ok(events) }
        };
        let page = next();
        is_last |= page.is_err();
        // After a full page there may be nothing more.
        Some(page).filter(|page| !page.as_ref().is_ok_and(Vec::is_empty))
    })
}

/// Replay every session of a store, and say how many there are.
pub fn replay_all(store: &dyn Store, mut done: impl FnMut()) -> Result<u64, Denied> {
    let mut count = 0;
    for key in sessions(store) {
        let key = key?;
        pages(store, &key).try_for_each(|page| page.map(drop))?;
        count += 1;
        done();
    }
    Ok(count)
}

/// The records of a space and tenant, in the order of their keys.
pub fn records<'a>(
    store: &'a dyn Store,
    space: &'a str,
    tenant: &'a str,
) -> impl Iterator<Item = Result<Record, Denied>> + 'a {
    let (mut after, mut is_last) = (None::<Box<str>>, false);
    each(move || {
        if is_last {
            return Ok(None);
        }
        let page = store.records(space, tenant, after.as_deref(), PAGE).map_err(fault)?;
        is_last = !is_full(&page, PAGE);
        after = page.last().map(|record| record.key.clone());
        Ok(Some(page))
    })
}

/// The tombstones of a store, the oldest first.
pub fn tombstones(store: &dyn Store) -> impl Iterator<Item = Result<Tombstone, Denied>> {
    let mut last = None;
    each(move || {
        let page = store.tombstones(last.as_ref(), PAGE).map_err(fault)?;
        last = page.last().cloned();
        Ok(last.is_some().then_some(page))
    })
}

/// Put sessions into a store in one commit, and say what became of each. Put again, they are the same.
pub fn import(store: &dyn Store, sessions: &[Archived]) -> Result<Vec<Stored>, Denied> {
    let mut batch = Vec::with_capacity(sessions.len());
    for archived in sessions {
        let session = archived.replay()?;
        batch.push(Append {
            key: archived.key.clone(),
            expected: 0,
            events: archived.events.clone(),
            row: Some(view::row(&session)),
            wake: wake(session.wake_at()),
            snapshot: None,
        });
    }
    let outcomes = store.append(&batch).map_err(fault)?;
    drop(batch);
    let mut stored = Vec::with_capacity(outcomes.len());
    for (archived, outcome) in sessions.iter().zip(outcomes) {
        stored.push(match outcome {
            Outcome::Appended { .. } => Stored::New,
            Outcome::Tombstone { .. } => Stored::Deleted,
            Outcome::Conflict { .. } => match archived.is_in(store).map_err(fault)? {
                true => Stored::Same,
                false => Stored::Differs,
            },
        });
    }
    Ok(stored)
}

/// Put tombstones into a store, and say what became of each. Put again, they are the same.
pub fn bury(store: &dyn Store, tombstones: &[Tombstone]) -> Result<Vec<Stored>, Denied> {
    let mut stored = Vec::with_capacity(tombstones.len());
    for Tombstone { key, .. } in tombstones {
        // When it was deleted makes no difference: its id is not free.
        stored.push(match store.tombstone(key).map_err(fault)? {
            Some(_) => Stored::Same,
            None if store.head(key).map_err(fault)?.is_some() => Stored::Differs,
            None => Stored::New,
        });
    }
    store.put_tombstones(tombstones).map_err(fault)?;
    Ok(stored)
}
