//! The index, made again from the logs. It is disposable: thrown away and rebuilt, it is the same.

use std::sync::Arc;

use handover_kernel::Session;
use handover_store::{SessionKey, Store};

use crate::shard::{Denied, Log, revive, wake};
use crate::view;

/// How many sessions are rebuilt in one commit.
const BATCH: usize = 500;

/// Throw the index away and make it again from the logs. Says how many sessions there are; `progress` hears of each
/// batch.
pub fn rebuild(store: &dyn Store, mut progress: impl FnMut(u64)) -> Result<u64, Denied> {
    let fault = |fault| Denied::Fault(Arc::new(fault));
    store.clear_index().map_err(fault)?;
    let mut done = 0;
    let mut after = None;
    loop {
        let (keys, next) = store.sessions(after, BATCH).map_err(fault)?;
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(session) = read(store, &key)? {
                rows.push((key, view::row(&session), wake(session.wake_at())));
            }
        }
        store.restore_index(&rows).map_err(fault)?;
        done += rows.len() as u64;
        progress(done);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(done),
        }
    }
}

fn read(store: &dyn Store, key: &SessionKey) -> Result<Option<Session>, Denied> {
    let events = store.read(key, 0, usize::MAX).map_err(|fault| Denied::Fault(Arc::new(fault)))?;
    let log = Log { events: events.into_iter().map(|event| event.bytes).collect(), tombstone: None };
    revive(key, &log)
}
