//! An engine to play on, and short words for what the cast does.
//!
//! The cast: `planner` asks for work, `worker` and `helper` do it, `outsider` has no part in anything.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use handover_engine::clock::now;
use handover_engine::codec;
use handover_engine::{Accepted, Counters, Delivery, Denied, Ended, Engine, Settings, Subscription, Topic};
use handover_kernel::command::{
    Act, CheckInTerms, Command, HandoffAct, ModeKind, NewOffer, Next, Progress, Request, Start, TaskAct,
};
use handover_kernel::commitment::Commitment;
use handover_kernel::{
    AgentId, Blob, Charter, Event, Face, Fact, HandoffId, Millis, Refusal, Session, SessionId, Text, replay,
};
use handover_store::{Place, SessionKey, Store};

/// The namespace of every play.
pub const TENANT: &str = "stage";

/// How long anything may take before a play has failed: long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A play on every kind of store.
macro_rules! on_every_store {
    ($(async fn $name:ident($store:ident) $body:block)+) => {$(
        mod $name {
            use super::*;

            async fn play($store: std::sync::Arc<dyn handover_store::Store>) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                $crate::stage::in_time(play(std::sync::Arc::new(handover_store::MemoryStore::new()))).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_disk() {
                let dir = tempfile::tempdir().unwrap();
                let store = std::sync::Arc::new(handover_store::SqliteStore::open(dir.path()).unwrap());
                $crate::stage::in_time(play(store)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_a_database() {
                if let Some(store) = $crate::database::open(&$crate::database::fresh()) {
                    $crate::stage::in_time(play(std::sync::Arc::new(store))).await;
                }
            }
        }
    )+};
}

/// A play that hangs has failed.
pub async fn in_time<T>(play: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, play).await.expect("the play does not come to an end")
}

/// Wait until it is so.
pub async fn until(what: &str, so: impl FnMut() -> bool) {
    let mut so = so;
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::time::timeout(PATIENCE / 2, waiting).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

/// An engine that ends with the play.
pub struct Stage {
    pub engine: Engine,
    pub store: Arc<dyn Store>,
    pub metrics: Arc<Counters>,
}

impl Stage {
    pub fn on(store: &Arc<dyn Store>) -> Stage {
        Stage::with(store, Settings::default())
    }

    pub fn with(store: &Arc<dyn Store>, settings: Settings) -> Stage {
        let metrics = Counters::new();
        let engine = Engine::start(Arc::clone(store), settings, Arc::clone(&metrics)).unwrap();
        Stage { engine, store: Arc::clone(store), metrics }
    }

    pub async fn put(&self, session: &str, by: &str, act: Act) -> Result<Accepted, Denied> {
        self.engine.submit(key(session), Command::by(&agent(by), Face::Macp, act).in_session_scope()).await
    }

    /// The same with a message id, through a face that takes the retry of a start as one.
    pub async fn put_as(&self, id: &str, session: &str, by: &str, act: Act) -> Result<Accepted, Denied> {
        self.engine.submit(key(session), Command::by(&agent(by), Face::Mcp, act).with_id(id)).await
    }

    pub async fn ok(&self, session: &str, by: &str, act: Act) -> Accepted {
        let told = format!("{by} on {session}: {act:?}");
        self.put(session, by, act).await.unwrap_or_else(|denied| panic!("{told}: {denied:?}"))
    }

    pub async fn refused(&self, session: &str, by: &str, act: Act) -> Refusal {
        refusal(self.put(session, by, act).await)
    }

    pub async fn session(&self, session: &str) -> Option<Arc<Session>> {
        self.engine.session(key(session)).await.unwrap()
    }

    /// A task of `planner` that waits for whoever accepts first.
    pub async fn requested(&self, session: &str, start: Start) {
        self.ok(session, "planner", Act::Start(Box::new(start))).await;
        self.ok(session, "planner", request()).await;
    }

    /// A task of `planner` that `worker` works on.
    pub async fn working(&self, session: &str, start: Start) {
        self.requested(session, start).await;
        self.ok(session, "worker", accept()).await;
    }

    /// A task from its start to its end.
    pub async fn life(&self, session: &str) {
        self.working(session, task(Charter::macp())).await;
        self.ok(session, "worker", update("half")).await;
        self.ok(session, "worker", complete()).await;
        self.ok(session, "planner", commit("task.completed")).await;
    }

    pub fn log(&self, session: &str) -> Vec<Event> {
        log(&*self.store, session)
    }

    /// Wait until the log has an event of this kind.
    pub async fn until_log_has(&self, session: &str, kind: &str) -> Vec<Event> {
        until(&format!("{kind} in {session}"), || {
            kinds(&self.log(session)).iter().any(|found| found == kind)
        })
        .await;
        self.log(session)
    }

    pub async fn until_memory_is_empty(&self) {
        until("no session in memory", || self.engine.sessions_in_memory() == 0).await;
    }
}

/// The events of a [`Stage::life`].
pub const LIFE: [&str; 6] = ["Started", "Requested", "Accepted", "Updated", "Completed", "Committed"];

impl Drop for Stage {
    fn drop(&mut self) {
        // A play that has failed may have left the engine waiting for something.
        if !std::thread::panicking() {
            self.engine.stop();
        }
    }
}

pub fn key(session: &str) -> SessionKey {
    SessionKey::new(TENANT, session)
}

pub fn agent(name: &str) -> AgentId {
    AgentId::from(name)
}

/// The log of a session: contiguous, never going back in time, and a session that can be replayed.
pub fn log(store: &dyn Store, session: &str) -> Vec<Event> {
    let mut stored = Vec::new();
    loop {
        let page = store.read(&key(session), stored.len() as u64, usize::MAX).unwrap();
        if page.is_empty() {
            break;
        }
        stored.extend(page);
    }
    let events: Vec<Event> = stored.iter().map(|stored| codec::decode(&stored.bytes).unwrap()).collect();
    for (index, event) in events.iter().enumerate() {
        assert_eq!((event.seq.0, stored[index].seq), (index as u64 + 1, index as u64 + 1), "{session}");
        assert!(index == 0 || events[index - 1].at <= event.at, "{session}: {event:?} goes back in time");
    }
    replay(&SessionId::from(session), &events).unwrap();
    events
}

/// The names of these events' kinds.
pub fn kinds(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| kind(&event.fact)).collect()
}

/// The name of a fact's kind, as it is written in the code.
pub fn kind(fact: &Fact) -> String {
    format!("{fact:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

pub fn refusal(answer: Result<Accepted, Denied>) -> Refusal {
    match answer {
        Err(Denied::Refused(refusal)) => refusal,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

pub fn is_fault(answer: &Result<Accepted, Denied>) -> bool {
    matches!(answer, Err(Denied::Fault(_)))
}

/// A task session of the whole cast, without a deadline.
pub fn task(charter: Charter) -> Start {
    Start {
        mode: ModeKind::Task,
        participants: ["worker", "helper"].map(agent).to_vec(),
        charter,
        mode_version: Text::from("1.0.0"),
        configuration_version: Text::from("stage.1"),
        policy_version: Text::from("policy.default"),
        ttl_ms: None,
        sent_at: None,
        intent: Text::from("a play"),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: None,
        contract: None,
        under: None,
    }
}

/// A handoff session of the whole cast, without a deadline.
pub fn handoff(charter: Charter) -> Start {
    let participants = ["planner", "worker", "helper"].map(agent).to_vec();
    Start { mode: ModeKind::Handoff, participants, ..task(charter) }
}

/// A task session with this much time.
pub fn task_for(ttl_ms: Millis) -> Start {
    Start { ttl_ms: Some(ttl_ms), sent_at: Some(now()), ..task(Charter::macp()) }
}

pub fn start(start: Start) -> Act {
    Act::Start(Box::new(start))
}

pub fn request() -> Act {
    Act::Task(TaskAct::Request(Box::new(Request {
        task: Text::from("t1"),
        title: Text::from("sum up the quarter"),
        instructions: Text::from("read the numbers, write a page"),
        assignee: None,
        input: Blob::from(&b"{}"[..]),
        wanted_by: None,
        check_in: CheckInTerms::default(),
        session_key: None,
    })))
}

pub fn accept() -> Act {
    Act::Task(TaskAct::Accept { task: None, assignee: None, reason: Text::default() })
}

pub fn decline() -> Act {
    Act::Task(TaskAct::Decline { task: None, assignee: None, reason: Text::from("no time") })
}

pub fn update(message: &str) -> Act {
    let progress = Progress { message: Text::from(message), ..Progress::default() };
    Act::Task(TaskAct::Update { task: None, progress, withdraws: false })
}

pub fn steer(text: &str) -> Act {
    Act::Task(TaskAct::Steer { text: Text::from(text) })
}

pub fn say(text: &str) -> Act {
    let check_in = CheckInTerms::default();
    Act::Task(TaskAct::Say { body: Blob::from(text.as_bytes()), next: Next::AsBefore, check_in })
}

pub fn complete() -> Act {
    let output = Blob::from(&b"a page"[..]);
    Act::Task(TaskAct::Complete { task: None, assignee: None, output, summary: Text::from("done") })
}

pub fn cancel() -> Act {
    Act::cancel("not needed")
}

pub fn commit(action: &str) -> Act {
    Act::Commit(Box::new(Commitment {
        commitment: Text::from("c1"),
        action: Text::from(action),
        scope: Text::from("task"),
        reason: Text::from("as reported"),
        mode_version: Text::from("1.0.0"),
        policy_version: Text::from("policy.default"),
        configuration_version: Text::from("stage.1"),
        positive: !action.ends_with("failed"),
        supersedes: None,
    }))
}

pub fn offer(name: &str, target: &str, scope: &str) -> Act {
    Act::Handoff(HandoffAct::Offer(NewOffer {
        handoff: HandoffId::from(name),
        target: agent(target),
        scope: Text::from(scope),
        reason: Text::from("leaving"),
        context: None,
    }))
}

pub fn take_offer(name: &str) -> Act {
    let handoff = HandoffId::from(name);
    Act::Handoff(HandoffAct::Accept { handoff, by: None, reason: Text::default(), implicit: false })
}

/// The topic of one session.
pub fn of_session(session: &str) -> Topic {
    Topic::Session(key(session).into())
}

/// The topic of one agent.
pub fn of_agent(name: &str) -> Topic {
    Topic::Agent { tenant: TENANT.into(), agent: name.into() }
}

/// The next events, this many.
pub async fn take(subscription: &mut Following, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(subscription.next().await.unwrap());
    }
    taken
}

/// Numbers that a seed decides (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// A subscription, of which the events are taken one by one.
pub struct Following {
    subscription: Subscription,
    ready: VecDeque<Delivery>,
}

/// How many events were written, by everybody.
pub fn written(store: &dyn Store) -> u64 {
    Place::default().behind(&store.last_place().unwrap())
}

impl Stage {
    pub fn subscribe(&self, topic: Topic, after: u64) -> Following {
        self.subscribe_after(topic, Place::first_slot(after))
    }

    pub fn subscribe_after(&self, topic: Topic, after: Place) -> Following {
        Following { subscription: self.engine.subscribe(topic, after), ready: VecDeque::new() }
    }
}

impl Following {
    pub async fn next(&mut self) -> Result<Delivery, Ended> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            self.ready = self.subscription.next().await?.into();
        }
    }
}
