//! The index, made again from the logs. It is disposable: thrown away and rebuilt, it is the same.

use std::sync::Arc;

use handover_kernel::Session;
use handover_store::{Append, Fault, Outcome, SessionKey, Store, Wake};

use crate::answer::Denied;
use crate::log::{load, revive};
use crate::shard::wake;
use crate::view;

/// What the rows of this release say. Raised whenever a row of an unfinished session says more than before, so that the
/// rows of earlier releases are made again.
///
/// 1: for whom a session waits.
/// 2: that it waits for its requester while its assignee is silent.
/// 3: since when it waits.
pub const INDEX_VERSION: u32 = 3;

/// How many sessions are rebuilt in one commit.
const BATCH: usize = 500;

/// After how many sessions a refresh says how far it is.
const PROGRESS_EVERY: u64 = 5_000;

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
            None => break,
        }
    }
    store.set_index_version(INDEX_VERSION).map_err(fault)?;
    Ok(done)
}

/// Make the rows of unfinished sessions again if an earlier release wrote them. Says how many there were.
pub fn refresh(store: &dyn Store) -> Result<u64, Fault> {
    refresh_while(store, || true)
}

/// The same for as long as there are nodes of an earlier release, which go on writing its rows: once more when they are gone. To be
/// asked now and then, since one may come back. Looks once a time, which costs little when there is nothing to do.
pub(crate) fn refresh_after_others(store: &dyn Store, goes_on: impl Fn() -> bool) -> Result<(), Fault> {
    if store.index_version()? >= INDEX_VERSION || store.index_is_older_elsewhere(INDEX_VERSION)? {
        return Ok(());
    }
    refresh_while(store, goes_on).map(drop)
}

fn refresh_while(store: &dyn Store, goes_on: impl Fn() -> bool) -> Result<u64, Fault> {
    if store.index_version()? >= INDEX_VERSION {
        return Ok(0);
    }
    let (mut done, mut told) = (0, 0);
    let mut after = None;
    loop {
        if !goes_on() {
            return Ok(done);
        }
        let (keys, next) = store.unfinished(after, BATCH)?;
        done += keys.len() as u64;
        refresh_rows(store, keys)?;
        if done >= told + PROGRESS_EVERY {
            told = done;
            tracing::info!(sessions = done, "bringing the index of unfinished sessions up to date");
        }
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if !store.set_index_version(INDEX_VERSION)? {
        tracing::info!(
            sessions = done,
            "nodes of an earlier release still write to the index: it is brought up to date again when they are gone"
        );
        return Ok(done);
    }
    if done > 0 {
        tracing::info!(sessions = done, version = INDEX_VERSION, "the index is up to date");
    }
    Ok(done)
}

/// A row is appended like one of a running session, at the head that it was made from: if someone else appends meanwhile,
/// the session is read again.
fn refresh_rows(store: &dyn Store, mut keys: Vec<SessionKey>) -> Result<(), Fault> {
    while !keys.is_empty() {
        let mut batch = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(session) = readable(store, &key)? {
                batch.push(Append {
                    key,
                    expected: session.head.0,
                    events: Vec::new(),
                    row: Some(view::row(&session)),
                    wake: Wake::Unchanged,
                    snapshot: None,
                });
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        let outcomes = store.append(&batch)?;
        let lost = batch.into_iter().zip(outcomes).filter_map(|(append, outcome)| match outcome {
            Outcome::Conflict { .. } => Some(append.key),
            Outcome::Appended { .. } | Outcome::Tombstone { .. } => None,
        });
        keys = lost.collect();
    }
    Ok(())
}

/// A session, unless it is damaged: then it keeps the row that it has, and the others get theirs.
fn readable(store: &dyn Store, key: &SessionKey) -> Result<Option<Session>, Fault> {
    let why = match load(store, key, u64::MAX) {
        Ok(log) => match revive(key, log) {
            Ok(session) => return Ok(session),
            Err(denied) => format!("{denied:?}"),
        },
        Err(fault @ Fault::Corrupt { .. }) => fault.to_string(),
        Err(fault) => return Err(fault),
    };
    tracing::error!(%key, why, "the index row of a session could not be brought up to date");
    Ok(None)
}

fn read(store: &dyn Store, key: &SessionKey) -> Result<Option<Session>, Denied> {
    let log = load(store, key, u64::MAX).map_err(|fault| Denied::Fault(Arc::new(fault)))?;
    revive(key, log)
}
