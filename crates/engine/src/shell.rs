//! The threads that carry out what the state machines ask for. Thin: every decision is made elsewhere.
//!
//! A shard is a state machine behind a lock: whoever brings a command decides it there and then, on memory. One thread,
//! the committer, gathers the batches of all shards into one durable commit, publishes and answers; it is the only one
//! that appends. Readers load sessions, and one thread watches the clock.

mod clock;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use handover_kernel::command::{Act, Command};
use handover_kernel::id::Author;
use handover_kernel::{Limits, Refusal, Session, SessionId, step};
use handover_store::{Fault, SessionKey, Store};
use tokio::sync::{Notify, oneshot};

use crate::clock::now;
use crate::commit::Commit;
use crate::counters::Counters;
use crate::errands::{self, Waiting};
use crate::hub::Hub;
use crate::index;
use crate::key::Key;
use crate::locks::lock;
use crate::quota::{Place, Quota};
use crate::shard::{self, Accepted, Answer, Denied, Effect, Log, Published, Shard, Ticket, Trip};
use crate::timers::Timers;

/// How many events of a session are read at a time.
const LOAD_PAGE: usize = 1024;

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
    /// Who is told of sessions that have ended, once that is durable.
    pub on_end: Option<OnEnd>,
}

/// Is told of the events of a session that has ended with them. It must not block.
#[derive(Clone)]
pub struct OnEnd(pub Arc<dyn Fn(&Published) + Send + Sync>);

impl std::fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnEnd")
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
            on_end: None,
        }
    }
}

/// Who waits for an answer, and the place that the command holds in its agent's quota.
#[derive(Debug)]
pub struct Reply {
    sender: oneshot::Sender<Answer>,
    reserved: Option<Place>,
}

/// A running engine. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Settings,
    pub(super) hub: Mutex<Hub<Arc<Notify>>>,
    pub(super) counters: Arc<Counters>,
    shards: Vec<Mutex<Shard<Reply>>>,
    timers: Mutex<Timers>,
    quota: Mutex<Quota>,
    waiting: Mutex<Waiting>,
    /// Set when a fault made the quota's count unsure.
    recount: AtomicBool,
    /// Set while it is unsure whether the last commit was kept.
    doubt: AtomicBool,
    /// What the readers are to load; nothing tells one of them to end.
    loads: mpsc::Sender<Option<Key>>,
    committer: Signal,
    clock: Signal,
    wakes: AtomicUsize,
    /// Set when no more commands are taken. Looked at under the lock of a shard, so that nobody puts a command to a shard
    /// that the committer has seen quiet for the last time.
    stopping: AtomicBool,
    /// When the watch over the clock last stirred.
    pulse: AtomicU64,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
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
        index::refresh(&*store)?;
        let mut quota = Quota::new(settings.sessions_open_per_agent_max);
        quota.recount(store.open_counts()?);
        let (loads, queue) = mpsc::channel();
        let shards = (0..settings.shards.max(1))
            .map(|_| Mutex::new(Shard::new(settings.shard.clone(), settings.limits.clone())))
            .collect();
        let inner = Arc::new(Inner {
            store,
            settings,
            hub: Mutex::new(Hub::default()),
            counters,
            shards,
            timers: Mutex::new(Timers::new()),
            quota: Mutex::new(quota),
            waiting: Mutex::default(),
            recount: AtomicBool::new(false),
            doubt: AtomicBool::new(false),
            loads,
            committer: Signal::default(),
            clock: Signal::default(),
            wakes: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            pulse: AtomicU64::new(now().0),
            threads: Mutex::new(Vec::new()),
            readers: Mutex::new(Vec::new()),
        });
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..2 {
            let (reader, queue) = (Arc::clone(&inner), Arc::clone(&queue));
            lock(&inner.readers).push(spawn("loader", move || reader.load_sessions(&queue))?);
        }
        let committer = Arc::clone(&inner);
        lock(&inner.threads).push(spawn("committer", move || committer.commit_batches())?);
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
        let key = Key::from(key);
        match self.clear_the_way(&key, &command, sessions_open_max).await {
            Ok(reserved) => self.ask(&key, command, reserved).await,
            Err(Denied::Refused(refusal)) => self.says_itself(&key, &command, refusal).await,
            Err(other @ (Denied::Fault(_) | Denied::Unreadable(_) | Denied::Stopping)) => Err(other),
        }
    }

    /// What must be so before a command is put to its session: another session agrees, or the agent has a place left.
    async fn clear_the_way(
        &self,
        key: &Key,
        command: &Command,
        sessions_open_max: u64,
    ) -> Result<Option<Place>, Denied> {
        if let Some((other, question)) = errands::preflight(key, command) {
            self.ask(&other, question, None).await.map_err(|denied| match denied {
                Denied::Refused(refusal) => Denied::Refused(errands::preflight_refusal(refusal)),
                other @ (Denied::Fault(_) | Denied::Unreadable(_) | Denied::Stopping) => other,
            })?;
        }
        self.inner.reserve(key, command, sessions_open_max).map_err(Denied::Refused)
    }

    /// What a session says of a command that something else stands in the way of. What stands in the way of a retry did
    /// not when the command was accepted; and whoever has no part in the session is told that and nothing else.
    async fn says_itself(
        &self,
        key: &Key,
        command: &Command,
        in_the_way: Refusal,
    ) -> Result<Accepted, Denied> {
        let session = self.session(SessionKey::clone(key)).await?;
        let mut slot = session.as_deref().cloned();
        let id = SessionId::from(&*key.session);
        let answer = step(&mut slot, &id, command, &self.inner.settings.limits, now()).answer;
        match (answer, session) {
            (Ok(receipt), Some(session)) if receipt.duplicate => Ok(Accepted { receipt, session }),
            (Err(refusal @ (Refusal::NotParticipant { .. } | Refusal::SessionNotFound)), _) => {
                Err(Denied::Refused(refusal))
            }
            (Ok(_) | Err(_), _) => Err(Denied::Refused(in_the_way)),
        }
    }

    async fn ask(&self, key: &Key, command: Command, reserved: Option<Place>) -> Result<Accepted, Denied> {
        let (sender, answer) = oneshot::channel();
        let ticket = Ticket::Client(Reply { sender, reserved });
        let effects = self.inner.put(ticket, key, command);
        self.inner.carry_out(effects);
        match answer.await {
            Ok(Answer::Accepted(accepted)) => Ok(accepted),
            Ok(Answer::Denied(denied)) => Err(denied),
            Ok(Answer::State(_)) => unreachable!("a command is not answered with a state"),
            Err(_) => Err(Denied::Stopping),
        }
    }

    /// A session as it is, durably; none if there is none.
    pub async fn session(&self, key: SessionKey) -> Result<Option<Arc<Session>>, Denied> {
        let key = Key::from(key);
        match self.inner.glance(&key) {
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
        let effects = self.inner.look(Reply { sender, reserved: None }, key);
        self.inner.carry_out(effects);
        answer
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
        self.inner.stopping.store(true, Ordering::Release);
        let threads = std::mem::take(&mut *lock(&self.inner.threads));
        self.inner.committer.raise();
        self.inner.clock.raise();
        // The readers end last: until then somebody may ask them for a session.
        let readers = std::mem::take(&mut *lock(&self.inner.readers));
        for thread in threads {
            // A thread that panicked has said so; the others still want to be waited for.
            _ = thread.join();
        }
        for _ in &readers {
            _ = self.inner.loads.send(None);
        }
        for reader in readers {
            _ = reader.join();
        }
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    fn shard(&self, key: &Key) -> &Mutex<Shard<Reply>> {
        &self.shards[key.shard(self.shards.len())]
    }

    /// A place for the session that the command starts, if it starts one.
    fn reserve(&self, key: &Key, command: &Command, open_max: u64) -> Result<Option<Place>, Refusal> {
        match (command.act.start(), &command.by) {
            (Some(_), Author::Agent(agent)) => {
                let place = Place::new(&key.tenant, agent.as_str());
                lock(&self.quota).reserve_within(place, open_max).map(Some)
            }
            (Some(_), Author::Runtime) | (None, _) => Ok(None),
        }
    }

    fn put(&self, ticket: Ticket<Reply>, key: &Key, command: Command) -> Vec<Effect<Reply>> {
        let mut shard = lock(self.shard(key));
        if matches!(ticket, Ticket::Client(_)) && self.stopping.load(Ordering::Acquire) {
            return vec![Effect::Answer { ticket, answer: Answer::Denied(Denied::Stopping) }];
        }
        let effects = shard.submit(ticket, key, command, now());
        let pending = shard.has_pending();
        drop(shard);
        if pending {
            self.committer.raise();
        }
        effects
    }

    /// A session, if nothing has to be waited for.
    fn glance(&self, key: &Key) -> Option<Arc<Session>> {
        let mut shard = lock(self.shard(key));
        if self.stopping.load(Ordering::Acquire) {
            return None;
        }
        shard.glance(key, now())
    }

    fn look(&self, reader: Reply, key: &Key) -> Vec<Effect<Reply>> {
        let mut shard = lock(self.shard(key));
        if self.stopping.load(Ordering::Acquire) {
            let ticket = Ticket::Client(reader);
            return vec![Effect::Answer { ticket, answer: Answer::Denied(Denied::Stopping) }];
        }
        shard.read(reader, key, now())
    }

    /// Carry out what a shard asked for, and what follows from that.
    fn carry_out(&self, effects: Vec<Effect<Reply>>) {
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            match effect {
                Effect::Load(key) => {
                    // The readers end only after everybody who could wait for them has.
                    _ = self.loads.send(Some(key));
                }
                Effect::Answer { ticket, answer } => queue.extend(self.answer(ticket, answer)),
                Effect::Publish(published) => {
                    self.publish(&published);
                    // Whoever owes it something that it did not take before tries again.
                    let waited = lock(&self.waiting).changed(&published.key);
                    for from in waited {
                        queue.extend(self.put(Ticket::Nobody, &from, Command::runtime(Act::Tick)));
                    }
                }
                Effect::Wake { key, at } => {
                    let first = lock(&self.timers).set(&key, at);
                    if first {
                        self.clock.raise();
                    }
                }
                Effect::Errand { from, errand } => {
                    let (to, command) = errands::outbound(&from, &errand);
                    let trip = Trip { from, errand: errand.id, to: to.clone() };
                    queue.extend(self.put(Ticket::Errand(Box::new(trip)), &to, command));
                }
            }
        }
    }

    fn answer(&self, ticket: Ticket<Reply>, answer: Answer) -> Vec<Effect<Reply>> {
        match ticket {
            Ticket::Client(reply) => {
                self.counters.count_answer(&answer);
                if let Some(place) = reply.reserved.filter(|_| !started(&answer)) {
                    lock(&self.quota).abandoned(&place);
                }
                // Whoever asked may be gone: what was decided stands all the same.
                _ = reply.sender.send(answer);
                Vec::new()
            }
            Ticket::Wake => {
                self.wakes.fetch_sub(1, Ordering::AcqRel);
                if let Answer::Denied(Denied::Unreadable(what)) = &answer {
                    tracing::error!(%what, "a session that is due cannot be read");
                }
                Vec::new()
            }
            Ticket::Nobody => Vec::new(),
            Ticket::Errand(trip) => match errands::homebound(trip.errand, &answer) {
                Some(command) => self.put(Ticket::Nobody, &trip.from, command),
                None => {
                    lock(&self.waiting).wait(&trip.to, &trip.from);
                    Vec::new()
                }
            },
        }
    }

    /// Subscribers read again what is stored: something may be there that will never be published.
    fn read_again(&self) {
        for waker in lock(&self.hub).missed() {
            waker.notify_one();
        }
    }

    fn publish(&self, published: &Published) {
        if published.started() || published.ended.is_some() {
            let place = Place::new(&published.key.tenant, published.binding.requester.as_str());
            let mut quota = lock(&self.quota);
            if published.started() {
                quota.started(&place);
            }
            if let Some(end) = published.ended {
                quota.ended(&place);
                self.counters.count_end(end);
            }
        }
        if let (Some(_), Some(OnEnd(tell))) = (published.ended, &self.settings.on_end) {
            tell(published);
        }
        let (wake, cut) = lock(&self.hub).publish(published);
        self.counters.subscribers_cut.inc_by(cut as u64);
        for waker in wake {
            waker.notify_one();
        }
    }

    /// The committer: one durable commit for whatever waits in all shards, then publish, then answer.
    fn commit_batches(&self) {
        loop {
            let stopping = self.stopping.load(Ordering::Acquire);
            if let Some(commit) = Commit::gather(self.shards.iter().map(lock)) {
                self.commit(commit);
                continue;
            }
            if stopping && self.shards.iter().all(|shard| lock(shard).is_quiet()) {
                return;
            }
            self.recount();
            self.committer.wait(Duration::from_millis(if stopping { 5 } else { 1000 }));
        }
    }

    fn commit(&self, commit: Commit) {
        self.recount();
        let begun = Instant::now();
        let result = self.store.append(&commit.batch).map_err(Arc::new);
        self.counters.commit_seconds.observe(begun.elapsed().as_secs_f64());
        match &result {
            Ok(_) => {
                // What an earlier commit left in doubt is certain now.
                if self.doubt.swap(false, Ordering::AcqRel) {
                    self.read_again();
                }
                self.counters.commits.inc();
                self.counters.events_appended.inc_by(commit.events() as u64);
            }
            Err(fault) => {
                self.counters.store_faults.inc();
                self.recount.store(true, Ordering::Release);
                self.doubt.store(true, Ordering::Release);
                self.read_again();
                tracing::error!(error = %chain(fault), "the store did not take a batch");
            }
        }
        let effects = commit.settle(&result, |index| lock(&self.shards[index]), now());
        self.carry_out(effects);
    }

    /// A reader: loads the sessions that the shards ask for.
    fn load_sessions(&self, queue: &Mutex<mpsc::Receiver<Option<Key>>>) {
        loop {
            let next = lock(queue).recv();
            let Ok(Some(key)) = next else {
                return;
            };
            let log = self.load(&key).map_err(|fault| {
                self.counters.store_faults.inc();
                tracing::error!(error = %chain(&fault), "the store did not give a session back");
                Arc::new(fault)
            });
            let mut shard = lock(self.shard(&key));
            let effects = shard.loaded(&key, log, now());
            let pending = shard.has_pending();
            drop(shard);
            if pending {
                self.committer.raise();
            }
            self.carry_out(effects);
        }
    }

    fn load(&self, key: &SessionKey) -> Result<Log, Fault> {
        let mut events = Vec::new();
        loop {
            let page = self.store.read(key, events.len() as u64, LOAD_PAGE)?;
            let full = page.len() == LOAD_PAGE;
            events.extend(page.into_iter().map(|event| event.bytes));
            if !full {
                break;
            }
        }
        let tombstone = if events.is_empty() { self.store.tombstone(key)? } else { None };
        Ok(Log { events, tombstone })
    }

    /// After a fault nobody knows which sessions started or ended: count again. Between two commits every answer of the
    /// store has been dealt with, so the committer does it.
    fn recount(&self) {
        if self.recount.swap(false, Ordering::AcqRel) {
            match self.store.open_counts() {
                Ok(counts) => lock(&self.quota).recount(counts),
                Err(_) => self.recount.store(true, Ordering::Release),
            }
        }
    }
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

/// Whether the answer is that of a session that has just started.
pub fn started(answer: &Answer) -> bool {
    match answer {
        Answer::Accepted(accepted) => !accepted.receipt.duplicate,
        Answer::Denied(_) | Answer::State(_) => false,
    }
}

/// A flag that one thread waits for.
#[derive(Default)]
struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn raise(&self) {
        let mut raised = lock(&self.raised);
        if !*raised {
            *raised = true;
            self.changed.notify_one();
        }
    }

    fn wait(&self, at_most: Duration) {
        let raised = lock(&self.raised);
        let (mut raised, _) = self
            .changed
            .wait_timeout_while(raised, at_most, |raised| !*raised)
            .unwrap_or_else(PoisonError::into_inner);
        *raised = false;
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, Fault> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| Fault::Unavailable { doing: "starting the engine's threads", source: error.into() })
}

/// A fault and its sources in one line.
fn chain(fault: &Fault) -> String {
    let sources = std::iter::successors(Some(fault as &dyn std::error::Error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
