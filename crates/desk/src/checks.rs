//! Where long checks run: on a few threads of their own, so that nobody else's requests wait for them. Who waits, waits in
//! a bounded queue and not for ever, and an agent has only a share of it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use handover_engine::Denied;
use handover_engine::locks::lock;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::gate::{Caller, Gate};
use crate::limit::Limited;
use crate::no::No;
use crate::reading::apart;

/// The steps that a check may take, unless somebody says otherwise: a quarter of a second of work, usually.
pub const STEPS_MAX: u64 = 50_000_000;

/// How many checks may wait or run, unless somebody says otherwise.
pub const QUEUE_MAX: usize = 64;

/// How long a check may wait for a thread, unless somebody says otherwise.
pub const WAIT: Duration = Duration::from_secs(2);

/// The steps that a check may take where it is asked for: a fraction of a millisecond.
pub const STEPS_IN_PLACE: u64 = 20_000;

/// How many steps cost as much as a message: about a millisecond of work.
const STEPS_PER_MESSAGE: u64 = 200_000;

/// The part of the queue that one agent may take: an eighth.
const SHARES: usize = 8;

/// What checks may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many run at a time.
    pub threads: usize,
    /// How many may wait or run.
    pub queue_max: usize,
    /// How long one may wait for a thread.
    pub wait: Duration,
    /// The steps that one may take.
    pub steps_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        // Half of the processors are left to everybody else.
        let threads = std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Settings { threads, queue_max: QUEUE_MAX, wait: WAIT, steps_max: STEPS_MAX }
    }
}

/// A tenant and an agent.
type Owner = (Box<str>, Box<str>);

/// The threads of long checks, and who waits for them.
pub struct Checks {
    settings: Settings,
    threads: Arc<Semaphore>,
    /// Apart from the threads: what has its turn may need a thread, and would wait for itself.
    turns: Semaphore,
    queued: AtomicUsize,
    /// How many of those are whose.
    by_agent: Mutex<BTreeMap<Owner, usize>>,
}

impl Checks {
    /// Nobody checks anything yet.
    pub fn new(settings: Settings) -> Checks {
        let threads = Arc::new(Semaphore::new(settings.threads));
        let turns = Semaphore::new(settings.threads);
        Checks { settings, threads, turns, queued: AtomicUsize::new(0), by_agent: Mutex::default() }
    }

    /// The steps that a check may take.
    pub fn steps_max(&self) -> u64 {
        self.settings.steps_max
    }

    /// Run a check that may take long, and charge the caller for the steps that it says it took.
    pub async fn run<R: Send + 'static>(
        &self,
        gate: &Gate,
        caller: &Caller,
        work: impl FnOnce() -> (R, u64) + Send + 'static,
    ) -> Result<R, No> {
        let busy = || gate.limited(caller, Limited::Checks { retry_after_ms: self.retry_after_ms() });
        let place = self.place(caller).ok_or_else(busy)?;
        let waited = timeout(self.settings.wait, Arc::clone(&self.threads).acquire_owned());
        let Ok(Ok(thread)) = waited.await else { return Err(busy().into()) };
        // The thread is taken until the work is done, even if nobody waits for it any more.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(thread);
            done
        });
        let (found, steps) = done.await.map_err(|_| Denied::Stopping)?;
        drop(place);
        gate.charge(caller, steps / STEPS_PER_MESSAGE);
        Ok(found)
    }

    /// Do work that takes long in parts: only as many at a time as there are threads for long checks, and none of them
    /// in the way of others' requests. Whoever waits for something else keeps nobody waiting.
    pub async fn in_turns<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        loop {
            let turn = self.turns.acquire().await;
            let polled = poll_fn(|cx| Poll::Ready(apart(|| work.as_mut().poll(cx)))).await;
            drop(turn);
            match polled {
                Poll::Ready(done) => return done,
                // The work has taken note of whom to wake.
                Poll::Pending => woken().await,
            }
        }
    }

    /// A place in the queue, unless it is full or the agent has its share of it.
    fn place(&self, caller: &Caller) -> Option<Place<'_>> {
        let max = self.settings.queue_max;
        let key = (caller.tenant.clone(), Box::from(caller.agent.as_str()));
        let mut by_agent = lock(&self.by_agent);
        let own = by_agent.entry(key.clone()).or_insert(0);
        *own += 1;
        let own = *own;
        drop(by_agent);
        let all = self.queued.fetch_add(1, Ordering::Relaxed) + 1;
        let place = Place { checks: self, key };
        (all <= max && own <= max.div_ceil(SHARES)).then_some(place)
    }

    fn retry_after_ms(&self) -> u64 {
        u64::try_from(self.settings.wait.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// Returns when this task is looked at again.
async fn woken() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// A place in the queue, given back when it is dropped.
struct Place<'a> {
    checks: &'a Checks,
    key: Owner,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.checks.queued.fetch_sub(1, Ordering::Relaxed);
        let mut by_agent = lock(&self.checks.by_agent);
        if let Some(own) = by_agent.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                by_agent.remove(&self.key);
            }
        }
    }
}
