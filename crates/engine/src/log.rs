//! What is read of a session to bring it into memory: its snapshot, and the events after it.

use std::sync::Arc;

use handover_kernel::session::replay_after;
use handover_kernel::{Event, Seq, Session, SessionId};
use handover_store::{Fault, SessionKey, Store, is_full};

use crate::answer::Denied;
use crate::names::Names;
use crate::{codec, snapshot};

/// How many events are read at a time.
const PAGE: usize = 1024;

/// Beyond so many bytes, the events that were read are made into a session before more are read: what a long log takes in
/// memory does not grow with it.
const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Everything that was read of a session.
#[derive(Debug, Default)]
pub struct Log {
    /// The session as it is after the first of its events, from its snapshot or made from them.
    pub begun: Option<Box<Session>>,
    /// Its events after that, all of them.
    pub events: Vec<Vec<u8>>,
    /// Where its snapshot stands.
    pub kept: Kept,
    /// When it was deleted, if it was.
    pub tombstone: Option<u64>,
}

impl Log {
    /// The last event that was read.
    pub fn head(&self) -> Seq {
        let begun = self.begun.as_ref().map_or(0, |begun| begun.head.0);
        Seq(begun + self.events.len() as u64)
    }
}

/// Where the snapshot of a session stands in its log: its last event, and the bytes up to there. Without one, at the
/// beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say all")]
pub struct Kept {
    pub seq: Seq,
    pub bytes: u64,
}

impl Kept {
    /// Of a session that is kept as it is.
    pub fn of(session: &Session) -> Kept {
        Kept { seq: session.head, bytes: session.log_bytes }
    }
}

/// A session of fewer events is read without a look for its snapshot: most are short.
const SHORT: usize = 32;

/// Read a session of which a snapshot is kept every so many events.
pub fn load(store: &dyn Store, key: &SessionKey, snapshot_every: u64) -> Result<Log, Fault> {
    let short = usize::try_from(snapshot_every).map_or(SHORT, |every| every.clamp(1, SHORT));
    let first = store.read(key, 0, short)?;
    let is_short = !is_full(&first, short);
    let events: Vec<Vec<u8>> = first.into_iter().map(|event| event.bytes).collect();
    if is_short {
        let tombstone = if events.is_empty() { store.tombstone(key)? } else { None };
        return Ok(Log { events, tombstone, ..Log::default() });
    }
    let kept = store.snapshot(key)?.and_then(|snapshot| snapshot::read(key, &snapshot));
    if let Some(session) = kept {
        let (head, kept) = (session.head.0, Kept::of(&session));
        let log = Log { begun: Some(Box::new(session)), kept, ..Log::default() };
        let log = read_on(store, key, log, head)?;
        // Deleted in between, there is nothing to go on from.
        let grown = !log.events.is_empty() || log.begun.as_ref().is_some_and(|begun| begun.head.0 > head);
        if grown || store.head(key)? == Some(head) {
            return Ok(log);
        }
    }
    let after = events.len() as u64;
    read_on(store, key, Log { events, ..Log::default() }, after)
}

/// Read the rest of a session, after an event.
fn read_on(store: &dyn Store, key: &SessionKey, mut log: Log, mut after: u64) -> Result<Log, Fault> {
    let mut held: usize = log.events.iter().map(Vec::len).sum();
    loop {
        let page = store.read(key, after, PAGE)?;
        let full = is_full(&page, PAGE);
        after += page.len() as u64;
        held += page.iter().map(|event| event.bytes.len()).sum::<usize>();
        log.events.extend(page.into_iter().map(|event| event.bytes));
        if !full {
            return Ok(log);
        }
        if held > HELD_BYTES_MAX {
            let begun = replay_on(key, log.begun.as_deref().cloned(), &log.events, &mut Names::default());
            // What cannot be read is left to whoever wants the session, who says why.
            let Ok(Some(begun)) = begun else { return Ok(log) };
            log.begun = Some(Box::new(begun));
            log.events.clear();
            held = 0;
        }
    }
}

/// The session that a log tells of.
pub fn revive(key: &SessionKey, log: Log) -> Result<Option<Session>, Denied> {
    revive_sharing(key, log, &mut Names::default())
}

/// The same, sharing its names with other sessions.
pub fn revive_sharing(key: &SessionKey, log: Log, names: &mut Names) -> Result<Option<Session>, Denied> {
    replay_on(key, log.begun.map(|begun| *begun), &log.events, names)
}

/// What is said of a session without events.
pub(crate) fn nothing(key: &SessionKey) -> Denied {
    Denied::Unreadable(Arc::from(format!("session {key} has no events")))
}

/// The session after these events, which follow those that it was begun with.
pub(crate) fn replay_on(
    key: &SessionKey,
    mut begun: Option<Session>,
    events: &[Vec<u8>],
    names: &mut Names,
) -> Result<Option<Session>, Denied> {
    let unreadable =
        |what: String| Denied::Unreadable(Arc::from(format!("session {key} cannot be read: {what}")));
    let mut events: Vec<Event> = events
        .iter()
        .map(|bytes| codec::decode(bytes))
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    events.iter_mut().for_each(|event| names.share_event(event));
    begun.iter_mut().for_each(|session| names.share_session(session));
    replay_after(begun, &SessionId::from(&*key.session), &events)
        .map_err(|error| unreadable(error.to_string()))
}
