//! The threads that carry out what the state machines ask for. Thin: every decision is made elsewhere.
//!
//! A shard is a state machine behind a lock: whoever brings a command decides it there and then, on memory. Whoever commits
//! gathers the batches of all shards into one durable commit, publishes and answers; only one does at a time. That is a
//! thread of its own, the committer, unless whoever brought the command is on a thread that may wait for the disk. Readers
//! load sessions, and one thread watches the clock.

mod clock;
mod parts;
mod threads;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use handover_kernel::command::Command;
use handover_kernel::{AgentId, Limits, Session, Timestamp};
use handover_store::{Fault, Feed, OpenCount, Place, Position, SessionKey, Slot, Store, uptime};
use tokio::sync::{Notify, oneshot};

use self::parts::{Locked, Reply};
pub use self::threads::commit_on_this_thread;
use self::threads::{Looker, Signal, spawn};
use crate::answer::{Accepted, Answer, Denied};
use crate::clock::{self as time, not_before, now};
use crate::counters::Counters;
use crate::errands::Waiting;
use crate::hub::Hub;
use crate::key::Key;
use crate::locks::lock;
use crate::node::{Call, Commits, Elsewhere};
use crate::quota::Quota;
use crate::seldom::Seldom;
use crate::shard::{self, Published, Round, Shard};
use crate::stored::Stored;
use crate::tail::Tail;
use crate::timers::Timers;
use crate::{codec, index, node, repeat};

/// How many sessions one caller may wait for at once.
const LOOKS_MAX: usize = 64;

/// The watch over the clock must have stirred within this long for the engine to count as running.
const PULSE_MAX_MS: u64 = 10_000;

/// What the engine is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Over how many shards the sessions are spread.
    pub shards: usize,
    /// What each shard may hold.
    pub shard: shard::Settings,
    /// What the kernel allows.
    pub limits: Limits,
    /// How many sessions an agent may have open.
    pub sessions_open_per_agent_max: u64,
    /// How many events may wait for a subscriber.
    pub subscriber_queue_max: usize,
    /// How long a finished session is kept; none means for ever.
    pub retention_ms: Option<u64>,
    /// How long the id of a deleted session stays taken; none means for ever.
    pub tombstones_ms: Option<u64>,
    /// Who is told of what happens, once it is durable.
    pub on_published: Option<OnPublished>,
    /// How often it is looked at what other nodes did, at least.
    pub poll_ms: u64,
    /// How many events of other nodes may be unknown before this one starts over.
    pub behind_max: u64,
}

/// Is told of the events of a session once they are durable, each once in a process. It must not block.
#[derive(Clone)]
pub struct OnPublished(pub Arc<dyn Fn(&Published) + Send + Sync>);

/// Is told of what other nodes did that is not about a session. It must not block.
pub struct OnHeard(pub Box<dyn Fn(Elsewhere<'_>) + Send + Sync>);

impl std::fmt::Debug for OnPublished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnPublished")
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            shards: 4,
            shard: shard::Settings::default(),
            limits: Limits::default(),
            sessions_open_per_agent_max: 10_000,
            subscriber_queue_max: 1024,
            retention_ms: None,
            tombstones_ms: None,
            on_published: None,
            poll_ms: 20,
            behind_max: 100_000,
        }
    }
}

/// Who waits for a look, and hears whether it came to its end.
type Asked = oneshot::Sender<Result<(), Arc<Fault>>>;

/// A running engine. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Settings,
    pub(super) hub: Arc<Mutex<Hub<Arc<Notify>>>>,
    pub(super) counters: Arc<Counters>,
    /// The store may fail for long, as on a full disk, and with every batch.
    unwritten: Seldom,
    unread: Seldom,
    shards: Vec<Mutex<Shard<Call<Reply>>>>,
    timers: Mutex<Timers>,
    quota: Mutex<Quota>,
    stored: Stored,
    waiting: Mutex<Waiting>,
    /// Where other nodes append to the store as well.
    tail: Option<Mutex<Tail>>,
    looker: Arc<Looker>,
    on_heard: OnceLock<OnHeard>,
    /// Who waits for a look at what other nodes did, and for which.
    asked: Mutex<Vec<(Round, Asked)>>,
    /// When the last look began that came to its end.
    looked_at: Mutex<Duration>,
    /// This node has moved to another slot, and has not started over since.
    moved: AtomicBool,
    /// Sessions may have started and ended unheard.
    fell_behind: AtomicBool,
    /// What the readers are to load; nothing tells one of them to end.
    loads: mpsc::Sender<Option<Key>>,
    committer: Signal,
    /// Held by whoever commits.
    commits: Mutex<Commits>,
    /// How long the last commit took, in microseconds.
    commit_took: AtomicU64,
    clock: Signal,
    /// Ends the watch over the index.
    index: Signal,
    wakes: AtomicUsize,
    /// Set when the shards take no more commands, so that one that the committer then sees quiet stays so.
    stopping: AtomicBool,
    /// When the watch over the clock last stirred.
    pulse: AtomicU64,
    /// Set when the tail is to end.
    looked: AtomicBool,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    tails: Mutex<Vec<thread::JoinHandle<()>>>,
    readers: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Engine {
    /// Start an engine on a store. Reads what it needs, not everything; after an upgrade that may be every unfinished
    /// session, once.
    pub fn start(
        store: Arc<dyn Store>,
        settings: Settings,
        counters: Arc<Counters>,
    ) -> Result<Engine, Fault> {
        if let Some(at) = store.time()? {
            time::go_by(Timestamp(at));
        }
        index::refresh(&*store)?;
        go_on_from(&*store)?;
        // Before anything is counted: what comes later is heard of.
        let tail = match store.slot() {
            Some(_) => Some(Mutex::new(Tail::after(store.last_place()?))),
            None => None,
        };
        let mut quota = Quota::default();
        let (open, place) = count_open(&*store)?;
        quota.recount(open, place);
        let stored = Stored::default();
        stored.recount(store.stored_bytes()?);
        let (loads, queue) = mpsc::channel();
        let shards = (0..settings.shards.max(1))
            .map(|_| Mutex::new(Shard::new(settings.shard.clone(), settings.limits.clone())))
            .collect();
        let hub = Arc::new(Mutex::new(Hub::default()));
        let inner = Arc::new(Inner {
            store,
            settings,
            looker: Arc::new(Looker::new(&hub)),
            hub,
            counters,
            unwritten: Seldom::default(),
            unread: Seldom::default(),
            shards,
            timers: Mutex::new(Timers::new()),
            quota: Mutex::new(quota),
            stored,
            waiting: Mutex::default(),
            tail,
            on_heard: OnceLock::new(),
            asked: Mutex::default(),
            looked_at: Mutex::new(uptime()),
            moved: AtomicBool::new(false),
            fell_behind: AtomicBool::new(false),
            loads,
            committer: Signal::default(),
            commits: Mutex::default(),
            commit_took: AtomicU64::new(0),
            clock: Signal::default(),
            index: Signal::default(),
            wakes: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            pulse: AtomicU64::new(now().0),
            looked: AtomicBool::new(false),
            threads: Mutex::default(),
            tails: Mutex::default(),
            readers: Mutex::default(),
        });
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..2 {
            let (reader, queue) = (Arc::clone(&inner), Arc::clone(&queue));
            lock(&inner.readers).push(spawn("loader", move || reader.load_sessions(&queue))?);
        }
        let committer = Arc::clone(&inner);
        lock(&inner.threads).push(spawn("committer", move || committer.commit_batches())?);
        if inner.tail.is_some() {
            let hinted = Arc::clone(&inner.looker);
            inner.store.on_hint(Box::new(move || hinted.hint()));
            let looker = Arc::clone(&inner);
            lock(&inner.tails).push(spawn("tail", move || looker.look_at_others())?);
        }
        if inner.tail.is_some() {
            let index = Arc::clone(&inner);
            lock(&inner.threads).push(spawn("index", move || index.watch_the_index())?);
        }
        let clock = Arc::clone(&inner);
        lock(&inner.threads).push(spawn("clock", move || clock.watch_the_clock())?);
        Ok(Engine { inner })
    }

    /// Put a command to a session. Answers when what it rests on is durable.
    pub async fn submit(&self, key: SessionKey, command: Command) -> Result<Accepted, Denied> {
        self.submit_within(key, command, self.inner.settings.sessions_open_per_agent_max).await
    }

    /// The same for an agent that may have this many sessions open.
    pub async fn submit_within(
        &self,
        key: SessionKey,
        command: Command,
        sessions_open_max: u64,
    ) -> Result<Accepted, Denied> {
        let (sender, answer) = oneshot::channel();
        let named = command.id.is_some().then(|| (key.clone(), command.clone()));
        let pending = {
            let mut parts = Locked::deferring(&self.inner);
            node::submit(&mut parts, sender, Key::from(key), command, sessions_open_max);
            parts.pending.take()
        };
        if let Some(pending) = pending {
            pending.settle(|| !answer.is_empty()).await;
        }
        match answer.await {
            Ok(Answer::Accepted(accepted)) => match named.filter(|_| accepted.receipt.duplicate) {
                Some((key, command)) => self.repeated(key, command, accepted).await,
                None => Ok(accepted),
            },
            Ok(Answer::Denied(denied)) => Err(denied),
            Ok(Answer::State(_)) => unreachable!("a command is not answered with a state"),
            Err(_) => Err(Denied::Stopping),
        }
    }

    /// The answer to a command that was accepted before, if it is the same.
    async fn repeated(&self, key: SessionKey, command: Command, again: Accepted) -> Result<Accepted, Denied> {
        let store = Arc::clone(&self.inner.store);
        let read = tokio::task::spawn_blocking(move || {
            repeat::must_repeat(&*store, &key, &command, &again).map(|()| again)
        });
        read.await.unwrap_or(Err(Denied::Stopping))
    }

    /// A session as it is, durably; none if there is none.
    pub async fn session(&self, key: SessionKey) -> Result<Option<Arc<Session>>, Denied> {
        let key = Key::from(key);
        // Where there are other nodes, memory may be out of date.
        let alone = self.inner.tail.is_none();
        let at_hand = alone.then(|| lock(self.inner.shard(&key)).glance(&key, now())).flatten();
        match at_hand {
            Some(session) => Ok(Some(session)),
            None => shown(self.look(&key).await),
        }
    }

    /// Some sessions as they are, durably, in the order given; those that are not there are left out.
    pub async fn sessions(&self, keys: Vec<SessionKey>) -> Result<Vec<Arc<Session>>, Denied> {
        let mut sessions = Vec::with_capacity(keys.len());
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            // Asked for together, so that the readers have something to do while the first is waited for.
            let asked: Vec<_> = keys.by_ref().take(LOOKS_MAX).map(|key| self.look(&Key::from(key))).collect();
            for answer in asked {
                sessions.extend(shown(answer.await)?);
            }
        }
        Ok(sessions)
    }

    fn look(&self, key: &Key) -> oneshot::Receiver<Answer> {
        let (sender, answer) = oneshot::channel();
        node::look(&mut Locked::new(&self.inner), sender, key);
        answer
    }

    /// Tell somebody of what other nodes do that is not about a session, from now on.
    pub fn hear(&self, tell: OnHeard) {
        // Only the first is told.
        _ = self.inner.on_heard.set(tell);
    }

    /// The slot that this engine appends to, if there may be other nodes.
    pub fn slot(&self) -> Option<Slot> {
        self.inner.store.slot()
    }

    /// Returns when everything is known here that other nodes had done when it was asked.
    pub async fn fresh(&self) -> Result<(), Denied> {
        let Some(tail) = &self.inner.tail else { return Ok(()) };
        let (sender, answer) = oneshot::channel();
        let round = lock(tail).next_look();
        {
            let mut asked = lock(&self.inner.asked);
            if self.inner.looked.load(Ordering::Acquire) {
                return Err(Denied::Stopping);
            }
            asked.push((round, sender));
        }
        self.inner.looker.raise();
        answer.await.map_err(|_| Denied::Stopping)?.map_err(Denied::Fault)
    }

    /// Who started a session, if it is in memory.
    pub fn requester(&self, key: &SessionKey) -> Option<AgentId> {
        let key = Key::from(key.clone());
        lock(self.inner.shard(&key)).requester(&key)
    }

    /// How many bytes are stored of a tenant's sessions, and of those that one of its agents started.
    pub fn stored(&self, tenant: &str, agent: &str) -> (u64, u64) {
        self.inner.stored.of(tenant, agent)
    }

    /// What the kernel allows.
    pub fn limits(&self) -> &Limits {
        &self.inner.settings.limits
    }

    /// Whether the engine runs.
    pub fn check(&self) -> Result<(), String> {
        if self.inner.stopping.load(Ordering::Acquire) {
            return Err("the engine is stopping".to_owned());
        }
        let silent = now().0.saturating_sub(self.inner.pulse.load(Ordering::Acquire));
        if silent > PULSE_MAX_MS {
            return Err(format!("the engine has not stirred for {silent} ms"));
        }
        Ok(())
    }

    /// How many sessions are in memory.
    pub fn sessions_in_memory(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).sessions()).sum()
    }

    /// Take no more commands, finish what is under way, and end the threads. Blocks until it is done.
    pub fn stop(&self) {
        let inner = &*self.inner;
        inner.shards.iter().for_each(|shard| lock(shard).close());
        inner.stopping.store(true, Ordering::Release);
        inner.committer.raise();
        inner.clock.raise();
        inner.index.raise();
        join(&inner.threads);
        inner.looked.store(true, Ordering::Release);
        inner.looker.raise();
        join(&inner.tails);
        lock(&inner.asked).clear();
        // What the tail or a reader began when the committer had seen everything quiet.
        inner.finish();
        // The readers end last: until then somebody may ask them for a session.
        for _ in lock(&inner.readers).iter() {
            _ = inner.loads.send(None);
        }
        join(&inner.readers);
        inner.finish();
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    fn shard(&self, key: &Key) -> &Mutex<Shard<Call<Reply>>> {
        &self.shards[key.shard(self.shards.len())]
    }
}

/// How many sessions are open, as it was at a place if others write as well.
fn count_open(store: &dyn Store) -> Result<(Vec<OpenCount>, Option<Place>), Fault> {
    if store.slot().is_none() {
        return Ok((store.open_counts()?, None));
    }
    let mut place = store.last_place()?;
    for _ in 0..COUNTS_MAX {
        let (open, after) = (store.open_counts()?, store.last_place()?);
        if place == after {
            return Ok((open, Some(place)));
        }
        place = after;
    }
    // Others write all the time: what they did meanwhile may count twice, until the next count.
    Ok((store.open_counts()?, Some(place)))
}

/// How often the open sessions are counted while others write.
const COUNTS_MAX: usize = 3;

/// Time does not go back, also if the machine's clock was set back while nothing ran.
fn go_on_from(store: &dyn Store) -> Result<(), Fault> {
    let mut before_last = Place::default();
    for last in store.last_place()?.positions() {
        before_last.reach(Position { number: last.number - 1, ..last });
    }
    let last = store.feed(&Feed::Everything, &before_last, usize::from(u16::MAX))?;
    let times = last.iter().filter_map(|item| codec::decode(&item.event.bytes).ok()).map(|event| event.at);
    let at = times.max();
    let forward_ms = at.map_or(0, not_before);
    if forward_ms > 0 {
        tracing::warn!(
            forward_ms,
            "the machine's clock is behind the last event that was stored: the time goes on from there"
        );
    }
    Ok(())
}

/// The session that somebody wanted to see.
fn shown(answer: Result<Answer, oneshot::error::RecvError>) -> Result<Option<Arc<Session>>, Denied> {
    match answer {
        Ok(Answer::State(session)) => Ok(session),
        Ok(Answer::Denied(denied)) => Err(denied),
        Ok(Answer::Accepted(_)) => unreachable!("a look is not answered with a receipt"),
        Err(_) => Err(Denied::Stopping),
    }
}

fn join(threads: &Mutex<Vec<thread::JoinHandle<()>>>) {
    for thread in std::mem::take(&mut *lock(threads)) {
        // A thread that panicked has said so; the others still want to be waited for.
        _ = thread.join();
    }
}

/// A fault and its sources in one line.
fn chain(fault: &Fault) -> String {
    let sources = std::iter::successors(Some(fault as &dyn std::error::Error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
