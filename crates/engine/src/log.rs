//! What is read of a session to bring it into memory: its snapshot, and the events after it.

use std::sync::Arc;

use handover_kernel::session::replay_after;
use handover_kernel::{Event, Session, SessionId};
use handover_store::{Fault, SessionKey, Store};

use crate::answer::Denied;
use crate::names::Names;
use crate::{codec, snapshot};

/// How many events are read at a time.
const PAGE: usize = 1024;

/// Everything that was read of a session.
#[derive(Debug, Default)]
pub struct Log {
    /// The session as its snapshot keeps it.
    pub kept: Option<Box<Session>>,
    /// Its events after that, all of them.
    pub events: Vec<Vec<u8>>,
    /// When it was deleted, if it was.
    pub tombstone: Option<u64>,
}

/// A session of fewer events is read without a look for its snapshot: most are short.
const SHORT: usize = 32;

/// Read a session of which a snapshot is kept every so many events.
pub fn load(store: &dyn Store, key: &SessionKey, snapshot_every: u64) -> Result<Log, Fault> {
    let short = usize::try_from(snapshot_every).map_or(SHORT, |every| every.clamp(1, SHORT));
    let first = store.read(key, 0, short)?;
    let is_short = first.len() < short;
    let mut events: Vec<Vec<u8>> = first.into_iter().map(|event| event.bytes).collect();
    if is_short {
        let tombstone = if events.is_empty() { store.tombstone(key)? } else { None };
        return Ok(Log { kept: None, events, tombstone });
    }
    let kept = store.snapshot(key)?.and_then(|snapshot| snapshot::read(key, &snapshot));
    if let Some(kept) = kept {
        let head = kept.head.0;
        let after = events_after(store, key, head)?;
        // Deleted in between, there is nothing to go on from.
        if !after.is_empty() || store.head(key)? == Some(head) {
            return Ok(Log { kept: Some(Box::new(kept)), events: after, tombstone: None });
        }
    }
    events.extend(events_after(store, key, events.len() as u64)?);
    Ok(Log { kept: None, events, tombstone: None })
}

fn events_after(store: &dyn Store, key: &SessionKey, after: u64) -> Result<Vec<Vec<u8>>, Fault> {
    let mut events = Vec::new();
    loop {
        let page = store.read(key, after + events.len() as u64, PAGE)?;
        let full = page.len() == PAGE;
        events.extend(page.into_iter().map(|event| event.bytes));
        if !full {
            return Ok(events);
        }
    }
}

/// The session that a log tells of.
pub fn revive(key: &SessionKey, log: Log) -> Result<Option<Session>, Denied> {
    revive_sharing(key, log, &mut Names::default())
}

/// The same, sharing its names with other sessions.
pub fn revive_sharing(key: &SessionKey, log: Log, names: &mut Names) -> Result<Option<Session>, Denied> {
    let unreadable =
        |what: String| Denied::Unreadable(Arc::from(format!("session {key} cannot be read: {what}")));
    let mut events: Vec<Event> = log
        .events
        .iter()
        .map(|bytes| codec::decode(bytes))
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    events.iter_mut().for_each(|event| names.share_event(event));
    let mut kept = log.kept.map(|kept| *kept);
    kept.iter_mut().for_each(|session| names.share_session(session));
    replay_after(kept, &SessionId::from(&*key.session), &events)
        .map_err(|error| unreadable(error.to_string()))
}
