//! Sessions on their way from one store to another: each is replayed before it leaves and before it is put anywhere.

use std::collections::VecDeque;
use std::sync::Arc;

use handover_kernel::Session;
use handover_store::{Append, Cursor, Fault, Outcome, SessionKey, Store, is_full};

use crate::answer::Denied;
use crate::log::{Log, revive};
use crate::shard::wake;
use crate::view;

/// How many events are read at a time.
const PAGE: usize = 1000;

/// The log of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Whose.
    pub key: SessionKey,
    /// Every event of it, as it is stored.
    pub events: Vec<Vec<u8>>,
}

/// What became of a session that was put into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It was not there.
    New,
    /// It was there, the same.
    Same,
    /// Another one has its id, or it has gone on since: nothing was changed.
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
        let log = Log { events: self.events.clone(), ..Log::default() };
        let nothing = || Denied::Unreadable(Arc::from(format!("session {} has no events", self.key)));
        revive(&self.key, log)?.ok_or_else(nothing)
    }

    fn read(store: &dyn Store, key: SessionKey) -> Result<Archived, Fault> {
        let mut events = Vec::new();
        loop {
            let page = store.read(&key, events.len() as u64, PAGE)?;
            let is_last = !is_full(&page, PAGE);
            events.extend(page.into_iter().map(|event| event.bytes));
            if is_last {
                return Ok(Archived { key, events });
            }
        }
    }
}

/// Every session of a store, replayed, in the order in which they were first written.
pub fn sessions(store: &dyn Store) -> impl Iterator<Item = Result<Archived, Denied>> {
    const PAGE: usize = 500;
    let (mut keys, mut after, mut is_last) = (VecDeque::new(), None::<Cursor>, false);
    std::iter::from_fn(move || {
        while keys.is_empty() && !is_last {
            match store.sessions(after, PAGE) {
                Ok((found, next)) => {
                    keys.extend(found);
                    (after, is_last) = (next, next.is_none());
                }
                Err(failed) => {
                    is_last = true;
                    return Some(Err(fault(failed)));
                }
            }
        }
        let archived = Archived::read(store, keys.pop_front()?).map_err(fault);
        Some(archived.and_then(|archived| archived.replay().map(|_| archived)))
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
    let mut stored = Vec::with_capacity(outcomes.len());
    for (archived, outcome) in sessions.iter().zip(outcomes) {
        stored.push(match outcome {
            Outcome::Appended { .. } => Stored::New,
            Outcome::Tombstone { .. } => Stored::Deleted,
            Outcome::Conflict { .. } => {
                let there = Archived::read(store, archived.key.clone()).map_err(fault)?;
                if there == *archived { Stored::Same } else { Stored::Differs }
            }
        });
    }
    Ok(stored)
}
