//! The clock, the clients and the faults: one seed decides everything that happens.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use handover_engine::answer::{Accepted, Answer, Denied};
use handover_engine::hub::Topic;
use handover_engine::key::Key;
use handover_engine::log::{Kept, Log, load};
use handover_engine::repeat::must_repeat;
use handover_engine::shard::{Round, Settings};
use handover_kernel::command::{Act, Command, ModeKind, SecondStart};
use handover_kernel::{
    AgentId, Event, Face, Fact, Limits, Refusal, Seq, Session, SessionId, Timestamp, Trace,
};
use handover_store::{Fault, Outcome, Place, Position, SessionKey, Slot, Store};

use crate::check::{self, Name};
use crate::disk::{Disk, Faults, Heard, Odds};
use crate::followers::Reader;
use crate::node::{Ask, Node};
use crate::plant::Plant;
use crate::rng::Rng;
use crate::script;
use crate::trouble::{FAULTS_UNTIL_MS, Machine};

/// How many operations the clients of one world have.
const OPS: usize = 90;

/// How many sessions they have them on.
const SESSIONS_MAX: usize = 14;

/// When the world is looked at for the last time: every time to live and every suspension is over by then.
const END_MS: u64 = 500_000;

/// How much of what others did a node reads at a time.
const NEWS_MAX: usize = 2;

/// The clock begins here.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Everything that happened, a line each.
    pub trace: String,
    /// What did not hold, if something did not.
    pub failure: Option<String>,
    /// The faults that were injected.
    pub faults: Faults,
    /// How many operations were accepted.
    pub accepted: u64,
    /// How many operations were refused.
    pub refused: u64,
    /// How many events were written.
    pub events: u64,
    /// How many sessions ended.
    pub ended: u64,
    /// How many operations were refused because their id was another's.
    pub reused: u64,
    /// How many sessions were loaded from a snapshot.
    pub kept: u64,
    /// How many tasks started under a budget.
    pub counted: u64,
    /// How many answers were that a budget is spent.
    pub spent: u64,
    /// How many nodes there were.
    pub nodes: usize,
    /// How many answers that wrote nothing were shown not to be out of date.
    pub witnessed: u64,
    /// How many nodes started over because they had fallen behind.
    pub jumps: u64,
    /// How many commits in doubt were settled while others went on.
    pub doubts: u64,
}

/// How many worlds of several nodes there were, and what happened in them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worlds {
    /// All of them.
    pub several: u64,
    /// Those in which two nodes wrote to one session at once.
    pub conflicts: u64,
    /// Those in which a commit was in doubt and was settled.
    pub doubts: u64,
    /// Those in which a node lost its slot.
    pub fenced: u64,
    /// Those in which all of this happened.
    pub all: u64,
}

impl Worlds {
    /// One more, if it had several nodes.
    pub fn add(&mut self, report: &Report) {
        if report.nodes > 1 {
            let had = [report.faults.conflicts, report.doubts, report.faults.fenced].map(|count| count > 0);
            self.several += 1;
            self.conflicts += u64::from(had[0]);
            self.doubts += u64::from(had[1]);
            self.fenced += u64::from(had[2]);
            self.all += u64::from(had == [true; 3]);
        }
    }
}

/// Run the world of a seed.
pub fn run(seed: u64, plant: Option<Plant>) -> Report {
    let mut world = World::new(seed, plant);
    let failure = world.run().err();
    if let Some(what) = &failure {
        world.note(format!("FAILED {what}"));
    }
    let mut faults = world.disk.faults;
    faults.cuts = world.cuts;
    Report {
        failure,
        faults,
        accepted: world.accepted,
        refused: world.refused,
        events: Place::default().behind(&world.disk.store().last_place().unwrap_or_default()),
        ended: world.ended,
        reused: world.reused,
        kept: world.kept,
        counted: world.counted,
        spent: world.spent,
        nodes: world.nodes.len(),
        witnessed: world.witnessed,
        jumps: world.jumps,
        doubts: world.doubts,
        trace: world.trace,
    }
}

pub(crate) enum Happening {
    /// A client thinks of something to do.
    Act,
    /// One of many clients wants something of a session.
    Crowd { key: Key },
    /// A client does what a plot says next.
    Plot { step: usize },
    /// An operation reaches a node.
    Arrive { op: usize, node: usize },
    /// The client of an operation has waited long enough.
    Impatience { op: usize, attempt: u32 },
    /// The disk is asked for a session.
    Read { node: usize, epoch: u64, link: u64, key: Key },
    /// What it said reaches the node.
    Loaded { node: usize, epoch: u64, link: u64, key: Key, log: Result<Log, Arc<Fault>> },
    /// The batch reaches the disk.
    Write { node: usize, epoch: u64 },
    /// The disk's answer reaches the node.
    Written { node: usize, epoch: u64, link: u64, result: Result<Vec<Outcome>, Arc<Fault>> },
    /// A node begins to look at what others did.
    Look { node: usize, epoch: u64 },
    /// The disk is asked for a page of it.
    Page { node: usize, epoch: u64, link: u64, round: Round, after: Place },
    /// It reaches the node, or that it could not be read.
    News { node: usize, epoch: u64, link: u64, round: Round, news: Result<Heard, Fault> },
    /// Somebody else has done something, and a node is told so.
    Hint { node: usize },
    /// What was in doubt turns up, if it still can.
    Late { number: u64 },
    /// A node settles what is in doubt.
    Settle { node: usize, epoch: u64 },
    /// A node looks at the clock.
    Clock { node: usize, epoch: u64 },
    /// A node stands still.
    Pause { node: usize, ms: u64 },
    /// It cannot reach the disk.
    Disconnect { node: usize, ms: u64 },
    /// Nobody can.
    Outage { ms: u64 },
    /// A node loses its memory.
    Crash { node: usize },
    /// It starts again.
    Restart { node: usize },
    /// A subscriber looks at what there is.
    Follow { follower: usize },
    /// It goes on over another connection.
    Move { follower: usize },
}

impl Happening {
    /// The node that must run for it to happen; none where it happens on the disk, on the way, or to the node.
    pub(crate) fn runs_on(&self, readers: &[Reader]) -> Option<usize> {
        match self {
            Happening::Arrive { node, .. }
            | Happening::Loaded { node, .. }
            | Happening::Write { node, .. }
            | Happening::Written { node, .. }
            | Happening::Look { node, .. }
            | Happening::News { node, .. }
            | Happening::Hint { node }
            | Happening::Settle { node, .. }
            | Happening::Clock { node, .. } => Some(*node),
            Happening::Follow { follower } => Some(readers[*follower].node),
            Happening::Act
            | Happening::Crowd { .. }
            | Happening::Plot { .. }
            | Happening::Impatience { .. }
            | Happening::Read { .. }
            | Happening::Page { .. }
            | Happening::Late { .. }
            | Happening::Pause { .. }
            | Happening::Disconnect { .. }
            | Happening::Outage { .. }
            | Happening::Crash { .. }
            | Happening::Restart { .. }
            | Happening::Move { .. } => None,
        }
    }
}

/// What a client wants.
pub(crate) struct Op {
    pub(crate) key: Key,
    pub(crate) command: Command,
    /// Whether it only looks at the session, and does nothing.
    pub(crate) looks: bool,
    /// What was stored of the session when it was sent, and when that was: the answer may rest on nothing older.
    pub(crate) asked: (Seq, Timestamp),
    attempts: u32,
    done: bool,
    /// The event of an accepted operation, as it was on disk when it was acknowledged.
    acknowledged: Option<(Seq, Vec<u8>)>,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) plant: Option<Plant>,
    pub(crate) now: Timestamp,
    queue: BTreeMap<(Timestamp, u64), Happening>,
    tie: u64,
    pub(crate) disk: Disk,
    pub(crate) nodes: Vec<Node>,
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) ops: Vec<Op>,
    sessions: Vec<Key>,
    tasks: Vec<SessionId>,
    pub(crate) readers: Vec<Reader>,
    trace: String,
    accepted: u64,
    refused: u64,
    ended: u64,
    reused: u64,
    kept: u64,
    counted: u64,
    spent: u64,
    pub(crate) cuts: u64,
    /// How many answers rested on nothing that they wrote, and were shown not to be out of date.
    pub(crate) witnessed: u64,
    /// How many nodes started over because they had fallen behind.
    jumps: u64,
    /// How many commits in doubt were settled.
    doubts: u64,
    /// How the machine of each node is.
    pub(crate) machines: Vec<Machine>,
    /// How many hints are lost, out of a thousand.
    pub(crate) hint_loss: u64,
    /// Out of a thousand looks at the queue.
    crash_odds: u64,
    pub(crate) latency_ms: u64,
}

/// The answer to what somebody asked for over a connection that has ended.
fn lost(doing: &'static str) -> Fault {
    Fault::Unavailable { doing, source: "the connection was cut".into() }
}

impl World {
    fn new(seed: u64, plant: Option<Plant>) -> World {
        let mut rng = Rng::new(seed);
        let odds = if rng.chance(800) {
            Odds {
                refuse: rng.below(80),
                lose_answer: rng.below(80),
                tear: rng.below(60),
                late: rng.below(40),
            }
        } else {
            Odds::default()
        };
        let nodes = if rng.chance(500) { rng.between(2, 3) as usize } else { 1 };
        let settings = Settings {
            queue_max: rng.between(4, 64) as usize,
            batch_events_max: rng.between(4, 64) as usize,
            sessions_in_memory_max: rng.between(1, 4) as usize,
            // Two or three of them.
            sessions_bytes_max: 6_000,
            idle_ms: rng.between(10, 5_000),
            finished_idle_ms: rng.between(1, 500),
            snapshot_every: rng.between(1, 12),
        };
        let limits = Limits {
            steers_pending_max: 3,
            questions_open_max: 4,
            messages_per_task_max: 8,
            ..Limits::default()
        };
        // What is planned for several nodes has crashes in it already.
        let crash_max = if nodes > 1 { 8 } else { 25 };
        let crash_odds = if rng.chance(700) { rng.below(crash_max) } else { 0 };
        let latency_ms = rng.between(1, 60);
        let skewed = nodes > 1 && rng.chance(300);
        let machines = (0..nodes).map(|_| Machine::new(&mut rng, skewed)).collect();
        let hint_loss = if rng.chance(200) { 1_000 } else { rng.below(500) };
        let mut disk = Disk::new(plant, odds, nodes);
        for node in 0..nodes {
            disk.join(node, Timestamp(EPOCH_MS), &mut rng).expect("the disk does not fail of itself");
        }
        let mut world = World {
            plant,
            now: Timestamp(EPOCH_MS),
            queue: BTreeMap::new(),
            tie: 0,
            nodes: (0..nodes).map(|node| Node::start(&disk, node, 0, &settings, &limits)).collect(),
            disk,
            settings,
            limits,
            ops: Vec::new(),
            sessions: Vec::new(),
            tasks: Vec::new(),
            readers: Vec::new(),
            trace: String::new(),
            accepted: 0,
            refused: 0,
            ended: 0,
            reused: 0,
            kept: 0,
            counted: 0,
            spent: 0,
            cuts: 0,
            witnessed: 0,
            jumps: 0,
            doubts: 0,
            machines,
            hint_loss,
            crash_odds,
            latency_ms,
            rng,
        };
        world
            .note(format!("seed {seed} nodes {nodes} odds {odds:?} crash {crash_odds} latency {latency_ms}"));
        world.open();
        world
    }

    fn open(&mut self) {
        self.plan_trouble();
        for node in 0..self.nodes.len() {
            self.after(1, Happening::Clock { node, epoch: 0 });
        }
        for _ in 0..OPS {
            let at = self.rng.below(FAULTS_UNTIL_MS + 10_000);
            self.after(at, Happening::Act);
        }
        // Chance alone hardly ever hands a task on that has gone to somebody else meanwhile.
        if self.rng.chance(200) {
            let mut at = self.rng.below(FAULTS_UNTIL_MS / 2);
            for step in 0..script::theft().len() {
                self.after(at, Happening::Plot { step });
                at += self.rng.between(200, 4_000);
            }
        }
        let agent = Topic::Agent { tenant: "t".into(), agent: "ada".into() };
        for node in 0..self.nodes.len() {
            for topic in [Topic::Everything, agent.clone()] {
                self.follow(topic, node);
            }
        }
    }

    pub(crate) fn after(&mut self, delay: u64, happening: Happening) {
        self.tie += 1;
        self.queue.insert((self.now.plus(delay), self.tie), happening);
    }

    fn soon(&mut self, happening: Happening) {
        let delay = self.rng.between(0, self.latency_ms);
        self.after(delay, happening);
    }

    pub(crate) fn note(&mut self, line: String) {
        // Writing to a string cannot fail.
        _ = writeln!(self.trace, "{:>8} {line}", self.now.0 - EPOCH_MS);
    }

    pub(crate) fn faults_on(&self) -> bool {
        self.now.0 < EPOCH_MS + FAULTS_UNTIL_MS
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            // At the end nothing new begins, and what is under way comes to its end.
            let begins = matches!(happening, Happening::Clock { .. } | Happening::Follow { .. });
            if at.0 > EPOCH_MS + END_MS && begins {
                continue;
            }
            self.now = self.now.max(at);
            if !self.faults_on() {
                self.disk.odds = Odds::default();
                self.disk.settle_all(&mut self.rng).map_err(|fault| fault.to_string())?;
            } else if self.rng.chance(self.crash_odds) {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                if self.nodes[node].up {
                    self.after(0, Happening::Crash { node });
                }
            }
            match self.paused(&happening) {
                Some(until) => self.after(until.since(self.now), happening),
                None => self.happen(happening)?,
            }
        }
        self.finish()
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Act => self.think(),
            Happening::Crowd { key } => self.crowd(key),
            Happening::Plot { step } => {
                self.plot(step);
                Ok(())
            }
            Happening::Arrive { op, node } => self.arrive(op, node),
            Happening::Impatience { op, attempt } => {
                if !self.ops[op].done && self.ops[op].attempts == attempt {
                    self.send(op);
                }
                Ok(())
            }
            Happening::Read { node, epoch, link, key } => {
                let log = self.read(node, &key);
                let slow = self.machines[node].reads_slowly && self.rng.chance(200);
                let delay = self.rng.between(0, if slow { 1_500 } else { self.latency_ms });
                self.after(delay, Happening::Loaded { node, epoch, link, key, log });
                Ok(())
            }
            Happening::Loaded { node, epoch, link, key, log } => self.loaded(node, epoch, link, &key, log),
            Happening::Write { node, epoch } => self.write(node, epoch),
            Happening::Written { node, epoch, link, result } => self.written(node, epoch, link, result),
            Happening::Clock { node, epoch } => self.look_at_the_clock(node, epoch),
            Happening::Crash { node } => self.crash(node),
            Happening::Restart { node } => self.restart(node),
            Happening::Pause { node, ms } => {
                self.pause(node, ms);
                Ok(())
            }
            Happening::Disconnect { node, ms } => {
                self.disconnect(node, ms);
                Ok(())
            }
            Happening::Outage { ms } => self.stop_store(ms),
            Happening::Look { node, epoch } => self.look_at_others(node, epoch),
            Happening::Page { node, epoch, link, round, after } => {
                self.read_news(node, epoch, link, round, &after);
                Ok(())
            }
            Happening::News { node, epoch, link, round, news } => {
                self.hear_of_others(node, epoch, link, round, news)
            }
            Happening::Hint { node } => {
                self.hinted(node);
                Ok(())
            }
            Happening::Late { number } => self.disk.land(number).map_err(|fault| fault.to_string()),
            Happening::Settle { node, epoch } => self.settle(node, epoch),
            Happening::Follow { follower } => self.look_at_events(follower),
            Happening::Move { follower } => {
                self.move_follower(follower);
                Ok(())
            }
        }
    }

    fn loaded(
        &mut self,
        node: usize,
        epoch: u64,
        link: u64,
        key: &Key,
        log: Result<Log, Arc<Fault>>,
    ) -> Result<(), String> {
        if self.nodes[node].epoch != epoch {
            return Ok(());
        }
        let log = if self.is_lost(node, link) { Err(Arc::new(lost("reading"))) } else { log };
        self.nodes[node].loading.remove(key);
        let now = self.time_of(node);
        let asks = self.nodes[node].loaded(key, log, now);
        self.carry_out(node, asks)
    }

    fn written(
        &mut self,
        node: usize,
        epoch: u64,
        link: u64,
        result: Result<Vec<Outcome>, Arc<Fault>>,
    ) -> Result<(), String> {
        if self.nodes[node].epoch != epoch || self.plant == Some(Plant::AnswerBeforeAppend) {
            return self.commit(node);
        }
        let result = if self.is_lost(node, link) { Err(Arc::new(lost("writing"))) } else { result };
        let now = self.time_of(node);
        if self.plant == Some(Plant::TellEarly) {
            self.nodes[node].tell_early();
        }
        let asks = self.nodes[node].complete(&result, now);
        if self.nodes[node].wants_settling() {
            self.soon(Happening::Settle { node, epoch });
        }
        self.carry_out(node, asks)
    }

    fn think(&mut self) -> Result<(), String> {
        let fresh = self.sessions.len() < SESSIONS_MAX && (self.sessions.is_empty() || self.rng.chance(180));
        let (key, command) = if fresh {
            let (mut by, face, act) = script::start(&mut self.rng, &self.tasks, self.now);
            if let Some(other) = self.one_who_may_delegate(&act)? {
                by = other;
            }
            let name = format!("s{}", self.sessions.len());
            let key: Key = Key::from(SessionKey::new("t", name.as_str()));
            self.sessions.push(key.clone());
            if let Act::Start(start) = &act
                && start.mode == ModeKind::Task
            {
                self.tasks.push(SessionId::from(name));
            }
            if self.rng.chance(400) {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.follow(Topic::Session(key.clone()), node);
            }
            (key, script::by(&by, face, act))
        } else {
            let (key, session) = self.choose()?;
            // Now and then many want something of one session at once.
            if self.nodes.len() > 1 && self.rng.chance(100) {
                for _ in 0..4 {
                    let delay = self.rng.below(1_500);
                    self.after(delay, Happening::Crowd { key: key.clone() });
                }
            }
            let looks = self.rng.chance(100);
            self.turn_to(key, session, looks);
            return Ok(());
        };
        self.issue(key, command);
        Ok(())
    }

    /// One of many that want something of a session: mostly to see it.
    fn crowd(&mut self, key: Key) -> Result<(), String> {
        let session = check::session(self.disk.store(), &key)?;
        let looks = self.rng.chance(600);
        self.turn_to(key, session, looks);
        Ok(())
    }

    /// A client does something with a session, or looks at it.
    fn turn_to(&mut self, key: Key, session: Option<Session>, looks: bool) {
        if looks {
            return self.issue_a_look(key);
        }
        let command = match session {
            Some(session) => {
                let (by, act) = script::act(&mut self.rng, &session, &self.tasks);
                let face = script::face(&mut self.rng, Some(&session));
                let mut command = script::by(&by, face, act);
                command.takes_orders = self.rng.chance(500);
                if self.rng.chance(300) && script::may_use(&command.act) {
                    command.used = script::used(&mut self.rng);
                }
                command
            }
            None => {
                let by = AgentId::from(*self.rng.pick(&script::AGENTS));
                let face = script::face(&mut self.rng, None);
                script::by(&by, face, Act::cancel(""))
            }
        };
        self.issue(key, command);
    }

    /// Who has the task that a new one is to be part of, mostly.
    fn one_who_may_delegate(&mut self, act: &Act) -> Result<Option<AgentId>, String> {
        let Some(parent) = act.start().and_then(|start| start.parent.clone()) else { return Ok(None) };
        let session = check::session(self.disk.store(), &SessionKey::new("t", parent.as_str()))?;
        let Some(session) = session.filter(|_| self.rng.chance(800)) else { return Ok(None) };
        let assignee = session.task().and_then(|task| task.phase.assignee());
        Ok(Some(assignee.unwrap_or(&session.binding.requester).clone()))
    }

    /// The next step of a plot.
    fn plot(&mut self, step: usize) {
        let (session, by, act) = script::theft().swap_remove(step);
        let key: Key = Key::from(SessionKey::new("t", session));
        if act.start().is_some() {
            self.sessions.push(key.clone());
        }
        self.issue(key, script::by(&by, Face::Mcp, act));
    }

    /// A client sends a command, mostly under an id of its own.
    fn issue(&mut self, key: Key, command: Command) {
        let op = self.ops.len();
        let mut command = command.with_id(format!("op{op}"));
        // Now and then somebody uses an id that was used before, for the same message or for another.
        let reusable = |before: &Op| before.key == key && !before.looks;
        let before: Vec<usize> = (0..op).filter(|before| reusable(&self.ops[*before])).collect();
        if !before.is_empty() && self.rng.chance(80) {
            let before = &self.ops[*self.rng.pick(&before)].command;
            command.id = before.id.clone();
            if self.rng.chance(300) {
                command = before.clone();
            }
        }
        command.trace = Trace::new(&format!("00-{:032x}-{:016x}-01", op + 1, 1), "").map(Box::new);
        self.note(format!(
            "op {op} {} {:?} {:?} {:?} {:?}",
            key.session, command.by, command.face, command.id, command.act
        ));
        self.push(key, command, false);
    }

    /// A client wants to see a session.
    fn issue_a_look(&mut self, key: Key) {
        let by = AgentId::from(*self.rng.pick(&script::AGENTS));
        self.note(format!("op {} looks at {}", self.ops.len(), key.session));
        self.push(key, script::by(&by, Face::Mcp, Act::Tick), true);
    }

    fn push(&mut self, key: Key, command: Command, looks: bool) {
        let asked = (Seq(0), self.now);
        self.ops.push(Op { key, command, looks, asked, attempts: 0, done: false, acknowledged: None });
        self.send(self.ops.len() - 1);
    }

    /// A session to do something with, mostly one that is still going on.
    fn choose(&mut self) -> Result<(Key, Option<Session>), String> {
        for _ in 0..6 {
            let key = self.rng.pick(&self.sessions).clone();
            let session = check::session(self.disk.store(), &key)?;
            let going_on = session.as_ref().is_some_and(|session| !session.lifecycle.is_terminal());
            if going_on || self.rng.chance(100) {
                return Ok((key, session));
            }
        }
        let key = self.rng.pick(&self.sessions).clone();
        let session = check::session(self.disk.store(), &key)?;
        Ok((key, session))
    }

    fn send(&mut self, op: usize) {
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let head = self.disk.store().head(&self.ops[op].key).ok().flatten().unwrap_or_default();
        if self.ops[op].attempts == 0 {
            self.ops[op].asked = (Seq(head), self.now);
        }
        self.ops[op].attempts += 1;
        let attempt = self.ops[op].attempts;
        self.soon(Happening::Arrive { op, node });
        if self.rng.chance(50) {
            // The network repeats itself.
            self.soon(Happening::Arrive { op, node });
        }
        let patience = self.rng.between(500, 3_000);
        self.after(patience, Happening::Impatience { op, attempt });
    }

    fn arrive(&mut self, op: usize, node: usize) -> Result<(), String> {
        if !self.nodes[node].up {
            return Ok(());
        }
        let (key, command) = (self.ops[op].key.clone(), self.ops[op].command.clone());
        let now = self.time_of(node);
        let looks = self.ops[op].looks;
        let ask = |node: &mut Node| match looks {
            true => node.look(op, &key, now),
            false => node.submit(op, &key, &command, now),
        };
        let bug = if looks { Plant::ReadFromMemory } else { Plant::RefuseFromMemory };
        let node_asked = &mut self.nodes[node];
        let asks = if self.plant == Some(bug) { node_asked.trusting(ask) } else { ask(node_asked) };
        self.carry_out(node, asks)
    }

    fn carry_out(&mut self, node: usize, asks: Vec<Ask>) -> Result<(), String> {
        let (epoch, link) = (self.nodes[node].epoch, self.machines[node].link);
        for ask in asks {
            match ask {
                Ask::Load(key) => {
                    self.nodes[node].loading.insert(key.clone());
                    self.soon(Happening::Read { node, epoch, link, key });
                }
                Ask::Rouse(follower) => self.wake(follower),
                Ask::Look => self.want_a_look(node),
                Ask::Answer(op, answer) => self.answered(op, &answer)?,
                Ask::Published(key, first, count) => {
                    self.note(format!("published {} {first:?}+{count}", key.session));
                }
            }
        }
        self.commit(node)
    }

    /// If something waits to be written and nothing is being written, begin.
    fn commit(&mut self, node: usize) -> Result<(), String> {
        let reachable = !self.disk.is_cut(node, self.now);
        if self.nodes[node].up && self.nodes[node].gather(&self.disk, reachable) {
            let epoch = self.nodes[node].epoch;
            self.soon(Happening::Write { node, epoch });
        }
        Ok(())
    }

    fn write(&mut self, node: usize, epoch: u64) -> Result<(), String> {
        if self.nodes[node].epoch != epoch {
            return Ok(());
        }
        let Some(batch) = self.nodes[node].flight.as_ref().map(|commit| commit.batch.clone()) else {
            return Ok(());
        };
        if self.plant == Some(Plant::AnswerBeforeAppend) {
            let slot = self.disk.of(node).slot().unwrap_or_default();
            let stamp = self.disk.store().last_place().unwrap_or_default().number(slot) + 1;
            let first = Position { slot, number: stamp };
            let told = Ok(batch.iter().map(|_| Outcome::Appended { first, stamp }).collect());
            let asks = self.nodes[node].complete(&told, self.now);
            for ask in asks {
                if let Ask::Answer(op, answer) = ask {
                    self.answered(op, &answer)?;
                }
            }
        }
        let link = self.machines[node].link;
        let result = self.disk.append(node, &batch, self.now, &mut self.rng).map_err(Arc::new);
        if let Some(number) = self.disk.in_doubt(node).filter(|_| self.nodes.len() > 1) {
            let delay = self.rng.between(1, 6_000);
            self.after(delay, Happening::Late { number });
            if self.rng.chance(100) {
                self.soon(Happening::Crash { node });
            }
        }
        if result.is_ok() {
            self.hint(node);
        }
        let word = if result.is_ok() { "written" } else { "not written" };
        self.note(format!("node {node} batch of {} {word}", batch.len()));
        let written = Happening::Written { node, epoch, link, result };
        // The store may have had to find out what became of it: meanwhile others have gone on from there.
        if self.nodes.len() > 1 && self.faults_on() && self.rng.chance(50) {
            let delay = self.rng.between(1, 6_000);
            self.after(delay, written);
        } else {
            self.soon(written);
        }
        Ok(())
    }

    pub(crate) fn skew_max_ms(&self) -> u64 {
        self.machines.iter().map(|machine| machine.skew_ms).max().unwrap_or_default()
    }

    /// What time a node thinks it is.
    fn time_of(&self, node: usize) -> Timestamp {
        self.now.plus(self.machines[node].skew_ms)
    }

    /// Somebody on a node waits for a look at what others did.
    pub(crate) fn want_a_look(&mut self, node: usize) {
        self.machines[node].looked_at = self.now;
        if std::mem::replace(&mut self.nodes[node].looking, true) {
            self.nodes[node].look_again = true;
        } else {
            let epoch = self.nodes[node].epoch;
            let delay = self.rng.between(0, self.latency_ms + self.machines[node].tail_ms);
            self.after(delay, Happening::Look { node, epoch });
        }
    }

    fn look_at_others(&mut self, node: usize, epoch: u64) -> Result<(), String> {
        if self.nodes[node].epoch != epoch || !self.nodes[node].up {
            return Ok(());
        }
        if let Some((round, after)) = self.nodes[node].begin_look() {
            let link = self.machines[node].link;
            self.soon(Happening::Page { node, epoch, link, round, after });
            if self.plant == Some(Plant::SkipLook) {
                let now = self.time_of(node);
                let asks = self.nodes[node].heard(Vec::new(), Some(round), now);
                return self.carry_out(node, asks);
            }
        }
        Ok(())
    }

    fn read_news(&mut self, node: usize, epoch: u64, link: u64, round: Round, after: &Place) {
        if self.nodes[node].epoch != epoch {
            return;
        }
        let news = if self.is_unread(node) {
            self.disk.faults.reads_failed += 1;
            Err(Fault::Unavailable { doing: "looking", source: "simulated".into() })
        } else {
            self.disk.news(node, after, NEWS_MAX, self.now, &mut self.rng)
        };
        self.soon(Happening::News { node, epoch, link, round, news });
    }

    /// Whether something that a node wants to read cannot be.
    fn is_unread(&mut self, node: usize) -> bool {
        let fails = self.faults_on() && self.disk.odds.refuse > 0 && self.rng.chance(30);
        fails || self.disk.is_cut(node, self.now)
    }

    fn hear_of_others(
        &mut self,
        node: usize,
        epoch: u64,
        link: u64,
        round: Round,
        news: Result<Heard, Fault>,
    ) -> Result<(), String> {
        if self.nodes[node].epoch != epoch || !self.nodes[node].up {
            return Ok(());
        }
        let now = self.time_of(node);
        let news = if self.is_lost(node, link) { Err(lost("looking")) } else { news };
        let (asks, next) = match news {
            Err(fault) => (self.nodes[node].look_failed(fault, now), None),
            Ok(Heard::Behind(last, taken)) => {
                self.disk.told(node, taken);
                return self.fall_behind(node, &last);
            }
            Ok(Heard::News(news)) => {
                let full = news.len() >= NEWS_MAX && self.plant != Some(Plant::HalfLook);
                let ended = (!full).then_some(round);
                let hearing = &mut self.nodes[node];
                let asks = match self.plant {
                    Some(Plant::DeafWhileLoading) => hearing.heard_deafly(Node::is_loading, news, ended, now),
                    Some(Plant::DeafWhileWriting) => hearing.heard_deafly(Node::is_writing, news, ended, now),
                    _ => hearing.heard(news, ended, now),
                };
                (asks, full.then(|| self.nodes[node].place()))
            }
        };
        match next {
            // Now and then a node has fallen so far behind that it starts over.
            Some(_) if self.rng.chance(30) => {
                let last = self.disk.of(node).last_place().map_err(|fault| fault.to_string())?;
                self.fall_behind(node, &last)?;
            }
            Some(after) => {
                let link = self.machines[node].link;
                self.soon(Happening::Page { node, epoch, link, round, after });
            }
            None => self.look_is_over(node),
        }
        self.carry_out(node, asks)
    }

    /// A node begins again after a place, and looks whether there is more.
    fn fall_behind(&mut self, node: usize, last: &Place) -> Result<(), String> {
        self.jumps += 1;
        self.note(format!("node {node} fell behind"));
        let now = self.time_of(node);
        let asks = self.nodes[node].fell_behind(last, now);
        self.nodes[node].looking = false;
        self.want_a_look(node);
        self.carry_out(node, asks)
    }

    fn look_is_over(&mut self, node: usize) {
        self.nodes[node].looking = false;
        if std::mem::take(&mut self.nodes[node].look_again) {
            self.want_a_look(node);
        }
    }

    fn settle(&mut self, node: usize, epoch: u64) -> Result<(), String> {
        if self.nodes[node].epoch != epoch || !self.nodes[node].wants_settling() {
            return Ok(());
        }
        let now = self.time_of(node);
        if self.disk.is_cut(node, self.now) {
            self.soon(Happening::Settle { node, epoch });
            let asks = self.nodes[node].look_failed(lost("settling a commit in doubt"), now);
            return self.carry_out(node, asks);
        }
        if self.plant != Some(Plant::TrustDoubt) {
            self.disk.settle(node, &mut self.rng).map_err(|fault| fault.to_string())?;
        }
        let asks = self.nodes[node].settled(now);
        self.doubts += 1;
        self.note(format!("node {node} settled what was in doubt"));
        self.carry_out(node, asks)
    }

    fn read(&mut self, node: usize, key: &Key) -> Result<Log, Arc<Fault>> {
        if self.is_unread(node) {
            self.disk.faults.reads_failed += 1;
            return Err(Arc::new(Fault::Unavailable { doing: "reading", source: "simulated".into() }));
        }
        let mut log = load(self.disk.of(node), key, 1).map_err(Arc::new)?;
        self.kept += u64::from(log.kept != Kept::default());
        let forgets = [Some(Plant::ForgetDuplicates), Some(Plant::ForgetApprovals)].contains(&self.plant);
        if forgets {
            for bytes in &mut log.events {
                if let Ok(mut event) = handover_engine::codec::decode(bytes) {
                    if self.plant == Some(Plant::ForgetDuplicates) {
                        event.id = None;
                    } else if let Fact::Started(started) = &mut event.fact {
                        started.start.charter.approvals = None;
                    }
                    *bytes = handover_engine::codec::encode(&event);
                }
            }
        }
        Ok(log)
    }

    fn look_at_the_clock(&mut self, node: usize, epoch: u64) -> Result<(), String> {
        if self.nodes[node].epoch != epoch || !self.nodes[node].up {
            return Ok(());
        }
        self.be_seen(node);
        let fails = self.is_unread(node);
        let asleep = self.plant == Some(Plant::LoseWakes);
        let now = self.time_of(node);
        let live: Vec<Slot> = self.disk.live(self.now);
        let slots = (self.disk.of(node).slot(), &live[..]);
        let (asks, next) = self.nodes[node].look_at_the_clock(&self.disk, slots, fails, asleep, now);
        let delay = next.since(now);
        self.after(delay, Happening::Clock { node, epoch });
        let machine = &self.machines[node];
        if self.nodes.len() > 1 && machine.looked_at.plus(machine.poll_ms) <= self.now {
            self.want_a_look(node);
        }
        self.carry_out(node, asks)
    }

    /// The event under the id of an operation, and the operation that it is of.
    fn under_its_id<'a>(&self, op: usize, events: &'a [Event]) -> Option<(&'a Event, usize)> {
        let command = &self.ops[op].command;
        let name = Name::of(command.id.as_ref()?, command.id_scope, command.face, &command.by);
        let place = events.iter().position(|event| {
            let named = |id| Name::of(id, event.id_scope, event.face, &event.author);
            event.id.as_ref().map(named).as_ref() == Some(&name)
        })?;
        // The first event of a command carries its trace.
        let trace = events[..=place].iter().rev().find_map(|event| event.trace.as_ref())?;
        let owner = usize::from_str_radix(trace.id(), 16).ok()?.checked_sub(1)?;
        Some((&events[place], owner))
    }

    /// What the shell does before it tells of a message that was accepted before.
    fn repeated(&self, op: usize, accepted: &Accepted) -> Option<Denied> {
        if !accepted.receipt.duplicate || self.plant == Some(Plant::TrustIds) {
            return None;
        }
        let Op { key, command, .. } = &self.ops[op];
        must_repeat(self.disk.store(), key, command, accepted).err()
    }

    fn answered(&mut self, op: usize, answer: &Answer) -> Result<(), String> {
        match answer {
            Answer::Accepted(accepted) => {
                if let Some(denied) = self.repeated(op, accepted) {
                    return self.answered(op, &Answer::Denied(denied));
                }
                let receipt = &accepted.receipt;
                self.note(format!("op {op} accepted at {} duplicate {}", receipt.seq, receipt.duplicate));
                let key = self.ops[op].key.clone();
                let events = check::log(self.disk.store(), &key)?;
                if (events.len() as u64) < receipt.seq.0 {
                    return Err(format!("op {op} was acknowledged at {} before it was durable", receipt.seq));
                }
                let own = self.under_its_id(op, &events);
                if let Some((own, owner)) = own.filter(|(_, owner)| receipt.duplicate || *owner == op) {
                    if owner != op && !script::alike(&self.ops[owner].command, &self.ops[op].command) {
                        return Err(format!(
                            "op {op} was acknowledged as op {owner}, which says something else"
                        ));
                    }
                    if own.seq != receipt.seq || own.at != receipt.at {
                        return Err(format!(
                            "op {op} was acknowledged at {}, it is at {}",
                            receipt.seq, own.seq
                        ));
                    }
                    let bytes = handover_engine::codec::encode(own);
                    self.ops[op].acknowledged = Some((own.seq, bytes));
                }
                self.accepted += u64::from(!self.ops[op].done);
                self.ops[op].done = true;
            }
            Answer::Denied(Denied::Refused(Refusal::Busy)) => {
                self.note(format!("op {op} busy"));
                let delay = self.rng.between(10, 500);
                let attempt = self.ops[op].attempts;
                self.after(delay, Happening::Impatience { op, attempt });
            }
            Answer::Denied(Denied::Refused(refusal)) => {
                self.spent += u64::from(matches!(refusal, Refusal::BudgetSpent { .. }));
                self.note(format!("op {op} refused {}", refusal.code()));
                let events = check::log(self.disk.store(), &self.ops[op].key)?;
                let own = self.under_its_id(op, &events);
                if *refusal == Refusal::DuplicateMessage {
                    let other = own.filter(|(_, owner)| *owner != op);
                    let other = other.map(|(_, owner)| &self.ops[owner].command);
                    if other.is_none_or(|other| script::is_repeated(other, &self.ops[op].command)) {
                        return Err(format!("op {op} was refused as another message, and is none"));
                    }
                    self.reused += u64::from(!self.ops[op].done);
                }
                let own = own.filter(|(_, owner)| *owner == op).map(|(own, _)| own);
                // Not every face takes the retry of a start as one.
                let command = &self.ops[op].command;
                let retries = command.act.start().is_none() || command.second_start != SecondStart::Refused;
                // One copy of a message may be refused just before another is accepted: the log says whether that was so.
                let shown = self.witness_refusal(op, refusal, &events)?;
                if let (Some(own), true) = (own, retries && !shown) {
                    return Err(format!("op {op} was refused {}, it is at {}", refusal.code(), own.seq));
                }
                self.refused += u64::from(!self.ops[op].done);
                self.ops[op].done = true;
            }
            Answer::Denied(Denied::Fault(_)) => {
                self.note(format!("op {op} fault"));
                let delay = self.rng.between(1, 500);
                let attempt = self.ops[op].attempts;
                self.after(delay, Happening::Impatience { op, attempt });
            }
            Answer::Denied(Denied::Unreadable(what)) => return Err(what.to_string()),
            Answer::State(seen) if self.ops[op].looks => {
                self.note(format!("op {op} sees {:?}", seen.as_ref().map(|session| session.head)));
                self.witness_look(op, seen.as_deref())?;
                self.accepted += u64::from(!self.ops[op].done);
                self.ops[op].done = true;
            }
            Answer::Denied(Denied::Stopping) | Answer::State(_) => {
                return Err(format!("op {op} was answered with {answer:?}"));
            }
        }
        Ok(())
    }

    /// Nothing acknowledged is lost.
    pub(crate) fn check_acknowledged(&self) -> Result<(), String> {
        for (number, op) in self.ops.iter().enumerate() {
            if let Some((seq, bytes)) = &op.acknowledged {
                let found =
                    self.disk.store().read(&op.key, seq.0 - 1, 1).map_err(|fault| fault.to_string())?;
                if found.first().map(|event| &event.bytes) != Some(bytes) {
                    return Err(format!("op {number} was acknowledged at {seq} of {} and is lost", op.key));
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        self.now = Timestamp(EPOCH_MS + END_MS);
        self.cuts += self.nodes.iter().map(|node| node.cuts).sum::<u64>();
        self.check_acknowledged()?;
        if let Some(op) = self.ops.iter().position(|op| !op.done) {
            return Err(format!("op {op} was never answered"));
        }
        if let Some(node) = self.nodes.iter().position(|node| !node.is_quiet()) {
            return Err(format!(
                "node {node} still has something under way: {}",
                self.nodes[node].under_way()
            ));
        }
        let store = self.disk.store();
        for key in &self.sessions {
            let Some(session) = check::session(store, key)? else {
                continue;
            };
            check::index(store, key, &session)?;
            check::handed_on(store, key)?;
            check::approved(&check::log(store, key)?)?;
            check::snapshot(store, key, &session)?;
            check::settled(store, key, &session, self.now)?;
            self.ended += u64::from(session.lifecycle.is_terminal());
            let counted = check::budget(store, key, &session, &self.sessions)?;
            self.counted += counted;
        }
        check::inboxes(store, &script::AGENTS)?;
        self.check_followers()?;
        for (number, node) in self.nodes.iter().enumerate() {
            let (counted, open) = (node.open(), store.open_counts().map_err(|fault| fault.to_string())?);
            if counted != open {
                return Err(format!("the quota of node {number} counts {counted:?}, open are {open:?}"));
            }
        }
        Ok(())
    }
}
