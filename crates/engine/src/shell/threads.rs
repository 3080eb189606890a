//! The committer and the readers, and what wakes them.

use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use handover_store::{Done, Fault, NEWS_KEPT, News, Outcome, is_full, uptime};
use tokio::sync::Notify;

use super::parts::Locked;
use super::{Inner, chain, count_open};
use crate::commit::Commit;
use crate::hub::Hub;
use crate::key::Key;
use crate::locks::lock;
use crate::log;
use crate::node::{self, Commits};
use crate::shard::Round;

/// How much of what other nodes did is read at a time.
const NEWS_MAX: usize = 512;

/// How often it is looked at what other nodes did when nobody follows and nothing hints at anything.
const SELDOM: Duration = Duration::from_millis(500);

impl Inner {
    /// The committer: one durable commit for whatever waits in all shards, then publish, then answer.
    pub(super) fn commit_batches(&self) {
        loop {
            let stopping = self.stopping.load(Ordering::Acquire);
            if self.commit_once(&mut lock(&self.commits)) {
                continue;
            }
            if stopping && self.is_quiet() {
                return;
            }
            self.committer.wait(Duration::from_millis(if stopping { 5 } else { 1000 }));
        }
    }

    /// Commit what is left, when nobody else commits or looks any more.
    pub(super) fn finish(&self) {
        while self.commit_once(&mut lock(&self.commits)) {}
        if self.tail.is_some() && self.shards.iter().any(|shard| lock(shard).is_unsure()) {
            self.look_once();
            while self.commit_once(&mut lock(&self.commits)) {}
        }
    }

    fn is_quiet(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_quiet())
    }

    /// Commit on this thread what waits, if nobody else is at it.
    fn commit_here(&self) {
        let Ok(mut commits) = self.commits.try_lock() else {
            // Whoever is at it may have looked before this came.
            return self.committer.raise();
        };
        // What a failed commit left in doubt is for the committer: it may take long.
        if !commits.wants_settling() {
            self.commit_once(&mut commits);
        }
        drop(commits);
        // Whoever came meanwhile left it to us.
        if self.shards.iter().any(|shard| lock(shard).has_pending()) {
            self.committer.raise();
        }
    }

    /// One commit for whatever waits. Says whether there was anything.
    fn commit_once(&self, commits: &mut Commits) -> bool {
        if commits.wants_settling() {
            match self.store.settle() {
                Ok(()) => commits.settled(&mut Locked::new(self)),
                Err(fault) => node::look_failed(&mut Locked::new(self), &Arc::new(fault)),
            }
        }
        if self.fell_behind.swap(false, Ordering::AcqRel) {
            commits.count_again();
        }
        let commit = commits.gather(&mut Locked::new(self));
        self.recount(commits);
        let Some(commit) = commit else { return false };
        self.commit(commits, commit);
        true
    }

    fn commit(&self, commits: &mut Commits, commit: Commit) {
        let begun = Instant::now();
        let result = self.store.append(&commit.batch).map_err(Arc::new);
        let took = begun.elapsed();
        self.commit_took.store(took.as_micros() as u64, Ordering::Relaxed);
        self.counters.commit_seconds.observe(took.as_secs_f64());
        tracing::trace!(sessions = commit.batch.len(), events = commit.events(), ?took, "wrote a commit");
        match &result {
            Ok(outcomes) => {
                let lost = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Conflict { .. }));
                self.counters.conflicts.inc_by(lost.count() as u64);
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
        commits.settle(&mut Locked::new(self), commit, &result);
    }

    /// A count that fails is tried again before the next commit.
    fn recount(&self, commits: &mut Commits) {
        if commits.wants_count()
            && let Ok((open, place)) = count_open(&*self.store)
            && let Ok(stored) = self.store.stored_bytes()
        {
            self.stored.recount(stored);
            commits.counted(&mut Locked::new(self), open, place);
        }
    }

    /// The tail: looks at what other nodes did whenever somebody waits for that, and now and then. Where it is hinted at what
    /// they do and nobody follows, seldom.
    pub(super) fn look_at_others(&self) {
        let every = Duration::from_millis(self.settings.poll_ms);
        let seldom = every.max(SELDOM);
        let (mut wanted, mut looked) = (true, Instant::now());
        while !self.looked.load(Ordering::Acquire) {
            let hinted = self.looker.was_hinted() || !self.store.hints();
            if wanted || hinted || self.looker.is_followed() || looked.elapsed() >= seldom {
                looked = Instant::now();
                if !self.look_once() {
                    // The store does not answer: whoever waits for it goes on waiting.
                    thread::sleep(every);
                    wanted = true;
                    continue;
                }
            }
            wanted = self.looker.wait(every);
        }
    }

    fn look_once(&self) -> bool {
        let parts = &mut Locked::new(self);
        // By the clock that goes on while the machine sleeps: the store's does.
        let begun = uptime();
        let Some((round, mut place)) = node::look_begins(parts) else { return false };
        let too_late = begun.saturating_sub(*lock(&self.looked_at)) > NEWS_KEPT / 2;
        let mut looked = 0;
        let ended = loop {
            let news = match self.store.news(&place, NEWS_MAX) {
                Ok(news) => news,
                Err(fault) => break self.cannot_be_told(parts, fault),
            };
            let full = is_full(&news, NEWS_MAX);
            looked += news.len() as u64;
            news.iter().for_each(|news| _ = place.reach(news.position));
            self.count_stored_by(&news);
            node::heard(parts, news);
            if too_late || self.moved.load(Ordering::Acquire) || full && looked > self.settings.behind_max {
                break self.start_over(parts);
            } else if !full {
                node::look_ends(parts, round);
                break Ok(());
            }
        };
        match ended {
            Ok(()) => {
                *lock(&self.looked_at) = begun;
                self.looked(round, Ok(()));
                true
            }
            Err(fault) => {
                self.cannot_look(parts, fault);
                false
            }
        }
    }

    /// Why a look came to no end. If this node has moved to another slot, it does: what was in that may never be told.
    fn cannot_be_told(&self, parts: &mut Locked<'_>, fault: Fault) -> Result<(), Fault> {
        if !matches!(fault, Fault::SlotTaken) {
            return Err(fault);
        }
        self.moved.store(true, Ordering::Release);
        self.start_over(parts)
    }

    /// What is in memory is let go, and this node goes on from where everything is now.
    fn start_over(&self, parts: &mut Locked<'_>) -> Result<(), Fault> {
        let last = self.store.last_place()?;
        tracing::warn!("this node has fallen behind the others: what it had in memory is read again");
        node::fell_behind(parts, &last);
        self.moved.store(false, Ordering::Release);
        self.fell_behind.store(true, Ordering::Release);
        // Whoever waits for a look waits for the next one.
        self.looker.raise();
        Ok(())
    }

    fn cannot_look(&self, parts: &mut Locked<'_>, fault: Fault) {
        self.counters.store_faults.inc();
        if let Some(unsaid) = self.unread.now() {
            tracing::error!(error = %chain(&fault), unsaid, "what other nodes did cannot be read");
        }
        let fault = Arc::new(fault);
        node::look_failed(parts, &fault);
        self.looked(Round::MAX, Err(fault));
    }
    /// What other nodes stored counts for whoever started the session.
    fn count_stored_by(&self, news: &[News]) {
        for news in news {
            if let Done::Appended { key, bytes, requester, .. } = &news.what {
                self.stored.add(&key.tenant, requester, bytes.len() as u64);
            }
        }
    }

    /// Answer whoever waits for this look, or for an earlier one.
    fn looked(&self, round: Round, result: Result<(), Arc<Fault>>) {
        let (answered, waiting) = std::mem::take(&mut *lock(&self.asked))
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| *at <= round);
        lock(&self.asked).extend(waiting);
        for (_, asked) in answered {
            _ = asked.send(result.clone());
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
            node::loaded(&mut Locked::new(self), &key, log);
        }
    }
}

thread_local! {
    static MAY_COMMIT: Cell<bool> = const { Cell::new(false) };
}

/// A disk that takes longer is waited for by the committer alone.
const QUICK_US: u64 = 500;

/// How often whoever brings a command lets everything else of its thread go first, so that one commit has it all: what is
/// ready to run, what has come over the network, and what follows from that.
const OTHERS_FIRST: usize = 2;

/// From now on, commands that are brought on this thread are committed there, where the disk is quick: waking the committer
/// and being woken by it takes as long as the disk does. Meanwhile nothing else happens on the thread.
pub fn commit_on_this_thread() {
    MAY_COMMIT.set(true);
}

/// Something waits to be written. Whoever lets go of it leaves it to the committer.
pub(super) struct Pending<'a>(pub(super) &'a Inner);

impl Pending<'_> {
    /// See to it that it is written, unless somebody else has done that meanwhile.
    pub(super) async fn settle(self, is_done: impl Fn() -> bool) {
        let is_quick = || self.0.commit_took.load(Ordering::Relaxed) <= QUICK_US;
        if !MAY_COMMIT.get() || !is_quick() {
            return;
        }
        for _ in 0..OTHERS_FIRST {
            tokio::task::yield_now().await;
        }
        if !is_done() {
            self.0.commit_here();
        }
        std::mem::forget(self);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.committer.raise();
    }
}

/// What wakes the tail. Whoever brings hints has it as well, and nothing else of the engine: it must not be the last to let go of
/// the store.
pub(super) struct Looker {
    wanted: Signal,
    /// Another node has done something that may not have been looked at.
    hinted: AtomicBool,
    hub: Arc<Mutex<Hub<Arc<Notify>>>>,
}

impl Looker {
    pub(super) fn new(hub: &Arc<Mutex<Hub<Arc<Notify>>>>) -> Looker {
        Looker { wanted: Signal::default(), hinted: AtomicBool::new(false), hub: Arc::clone(hub) }
    }

    /// Somebody waits for a look.
    pub(super) fn raise(&self) {
        self.wanted.raise();
    }

    /// Another node has done something. Who follows hears of it at once, and everybody else soon.
    pub(super) fn hint(&self) {
        self.hinted.store(true, Ordering::Release);
        if self.is_followed() {
            self.raise();
        }
    }

    fn was_hinted(&self) -> bool {
        self.hinted.swap(false, Ordering::AcqRel)
    }

    fn is_followed(&self) -> bool {
        !lock(&self.hub).is_empty()
    }

    fn wait(&self, at_most: Duration) -> bool {
        self.wanted.wait(at_most)
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

    /// Says whether it was raised.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let raised = lock(&self.raised);
        let (mut raised, _) = self
            .changed
            .wait_timeout_while(raised, at_most, |raised| !*raised)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *raised)
    }
}

pub(super) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, Fault> {
    let run = move || {
        let last_word = LastWord;
        run();
        std::mem::forget(last_word);
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| Fault::Unavailable { doing: "starting the engine's threads", source: error.into() })
}

/// A thread of the engine that panics stops the process, which recovers from the log, as in the released binary: what waits for that
/// thread would wait for ever.
struct LastWord;

impl Drop for LastWord {
    fn drop(&mut self) {
        // Also where a test keeps what threads print.
        let thread = thread::current();
        let name = thread.name().unwrap_or_default();
        _ = writeln!(std::io::stderr(), "the engine's thread {name} has panicked: the process stops");
        std::process::abort();
    }
}
