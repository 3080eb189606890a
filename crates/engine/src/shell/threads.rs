//! The committer and the readers, and what wakes them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use handover_store::{Fault, is_full};

use super::parts::Locked;
use super::{Inner, chain, count_open};
use crate::commit::Commit;
use crate::key::Key;
use crate::locks::lock;
use crate::log;
use crate::node::{self, Commits};

/// How much of what other nodes did is read at a time.
const NEWS_MAX: usize = 512;

impl Inner {
    /// The committer: one durable commit for whatever waits in all shards, then publish, then answer.
    pub(super) fn commit_batches(&self) {
        let mut commits = Commits::default();
        loop {
            let stopping = self.stopping.load(Ordering::Acquire);
            if commits.wants_settling() {
                match self.store.settle() {
                    Ok(()) => commits.settled(&mut Locked(self)),
                    Err(fault) => node::look_failed(&mut Locked(self), &Arc::new(fault)),
                }
            }
            if self.fell_behind.swap(false, Ordering::AcqRel) {
                commits.count_again();
            }
            let commit = commits.gather(&mut Locked(self));
            self.recount(&mut commits);
            if let Some(commit) = commit {
                self.commit(&mut commits, commit);
                continue;
            }
            if stopping && self.shards.iter().all(|shard| lock(shard).is_quiet()) {
                return;
            }
            self.committer.wait(Duration::from_millis(if stopping { 5 } else { 1000 }));
        }
    }

    fn commit(&self, commits: &mut Commits, commit: Commit) {
        let begun = Instant::now();
        let result = self.store.append(&commit.batch).map_err(Arc::new);
        let took = begun.elapsed();
        self.counters.commit_seconds.observe(took.as_secs_f64());
        tracing::trace!(sessions = commit.batch.len(), events = commit.events(), ?took, "wrote a commit");
        match &result {
            Ok(_) => {
                self.counters.commits.inc();
                self.counters.events_appended.inc_by(commit.events() as u64);
            }
            Err(fault) => {
                self.counters.store_faults.inc();
                if let Some(unsaid) = self.unwritten.now() {
                    tracing::error!(error = %chain(fault), unsaid, "the store did not take a batch");
                }
            }
        }
        commits.settle(&mut Locked(self), commit, &result);
    }

    /// A count that fails is tried again before the next commit.
    fn recount(&self, commits: &mut Commits) {
        if commits.wants_count()
            && let Ok((open, place)) = count_open(&*self.store)
            && let Ok(stored) = self.store.stored_bytes()
        {
            self.stored.recount(stored);
            commits.counted(&mut Locked(self), open, place);
        }
    }

    /// The tail: looks at what other nodes did, whenever somebody waits for that, and now and then.
    pub(super) fn look_at_others(&self) {
        loop {
            let stopping = self.stopping.load(Ordering::Acquire);
            if stopping && self.shards.iter().all(|shard| lock(shard).is_quiet()) {
                return;
            }
            if !self.look_once() {
                // The store does not answer: whoever waits for it goes on waiting.
                thread::sleep(Duration::from_millis(self.settings.poll_ms));
                continue;
            }
            let at_most = if stopping { 5 } else { self.settings.poll_ms };
            self.looker.wait(Duration::from_millis(at_most));
        }
    }

    fn look_once(&self) -> bool {
        let parts = &mut Locked(self);
        let Some((round, mut place)) = node::look_begins(parts) else { return false };
        let mut looked = 0;
        loop {
            let news = match self.store.news(&place, NEWS_MAX) {
                Ok(news) => news,
                Err(fault) => {
                    self.counters.store_faults.inc();
                    if let Some(unsaid) = self.unread.now() {
                        tracing::error!(error = %chain(&fault), unsaid, "what other nodes did cannot be read");
                    }
                    node::look_failed(parts, &Arc::new(fault));
                    return false;
                }
            };
            let full = is_full(&news, NEWS_MAX);
            looked += news.len() as u64;
            news.iter().for_each(|news| _ = place.reach(news.position));
            node::heard(parts, news);
            if !full {
                node::look_ends(parts, round);
                return true;
            }
            if looked > self.settings.behind_max {
                let Ok(last) = self.store.last_place() else { return false };
                tracing::warn!("this node has fallen behind the others: what it had in memory is read again");
                node::fell_behind(parts, &last);
                self.fell_behind.store(true, Ordering::Release);
                return true;
            }
        }
    }

    /// A reader: loads the sessions that the shards ask for.
    pub(super) fn load_sessions(&self, queue: &Mutex<mpsc::Receiver<Option<Key>>>) {
        loop {
            let next = lock(queue).recv();
            let Ok(Some(key)) = next else {
                return;
            };
            let log = log::load(&*self.store, &key, self.settings.shard.snapshot_every).map_err(|fault| {
                self.counters.store_faults.inc();
                if let Some(unsaid) = self.unread.now() {
                    tracing::error!(error = %chain(&fault), unsaid, "the store did not give a session back");
                }
                Arc::new(fault)
            });
            tracing::trace!(session = %key, "read a session");
            node::loaded(&mut Locked(self), &key, log);
        }
    }
}

/// A flag that one thread waits for.
#[derive(Default)]
pub(super) struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(super) fn raise(&self) {
        // The one that is woken wants the lock: it is let go before.
        if !std::mem::replace(&mut *lock(&self.raised), true) {
            self.changed.notify_one();
        }
    }

    pub(super) fn wait(&self, at_most: Duration) {
        let raised = lock(&self.raised);
        let (mut raised, _) = self
            .changed
            .wait_timeout_while(raised, at_most, |raised| !*raised)
            .unwrap_or_else(PoisonError::into_inner);
        *raised = false;
    }
}

pub(super) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, Fault> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| Fault::Unavailable { doing: "starting the engine's threads", source: error.into() })
}
