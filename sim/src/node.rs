//! One engine, as its shell would drive it: the real state machines, with the simulator in the place of the threads.

use std::collections::VecDeque;

use handover_engine::commit::Commit;
use handover_engine::errands::{self, Waiting};
use handover_engine::hub::{Hub, SubscriberId};
use handover_engine::key::Key;
use handover_engine::quota::{Place, Quota};
use handover_engine::shard::{Answer, Denied, Effect, Settings, Shard, Ticket, Trip};
use handover_engine::shell::started;
use handover_engine::timers::{Found, SCAN_MAX, Timers};
use handover_kernel::command::{Act, Command};
use handover_kernel::id::Author;
use handover_kernel::{Limits, Timestamp};
use handover_store::Store;

use crate::disk::Disk;

/// How many shards a node has.
const SHARDS: usize = 3;

/// How many sessions an agent may have open: low, so that it is reached.
pub const OPEN_MAX: u64 = 6;

/// Who waits for an answer of this node.
#[derive(Debug)]
pub struct Waiter {
    /// Which operation.
    pub op: usize,
    /// The command that is to follow if this was only the question that comes before it.
    then: Option<Box<Command>>,
    place: Option<Place>,
}

/// What a node asks of the world.
#[derive(Debug)]
pub enum Ask {
    /// Read this session and come back.
    Load(Key),
    /// The question that came before it is answered: put the command itself.
    GoAhead(usize, Box<Command>),
    /// Tell the client of this operation.
    Answer(usize, Answer),
    /// Nothing but a note for the trace.
    Published(Key, u64, usize),
}

/// One engine.
pub struct Node {
    shards: Vec<Shard<Waiter>>,
    timers: Timers,
    quota: Quota,
    waiting: Waiting,
    /// Who follows events on this node.
    pub hub: Hub<()>,
    /// A new one with every crash: what was asked for before it comes back to nobody.
    pub epoch: u64,
    /// Whether it runs.
    pub up: bool,
    /// What is being written.
    pub flight: Option<Commit>,
    recount: bool,
    doubt: bool,
    wakes: usize,
    /// How many subscribers were cut off.
    pub cuts: u64,
}

impl Node {
    /// An engine that has just started on this disk.
    pub fn start(disk: &Disk, epoch: u64, settings: &Settings, limits: &Limits) -> Node {
        let mut quota = Quota::new(OPEN_MAX);
        quota.recount(disk.store().open_counts().unwrap_or_default());
        Node {
            shards: (0..SHARDS).map(|_| Shard::new(settings.clone(), limits.clone())).collect(),
            timers: Timers::new(),
            quota,
            waiting: Waiting::default(),
            hub: Hub::default(),
            epoch,
            up: true,
            flight: None,
            recount: false,
            doubt: false,
            wakes: 0,
            cuts: 0,
        }
    }

    fn shard(&mut self, key: &Key) -> &mut Shard<Waiter> {
        let index = key.shard(self.shards.len());
        &mut self.shards[index]
    }

    /// A client's command: first the question to another session, if there is one.
    pub fn submit(&mut self, op: usize, key: &Key, command: &Command, now: Timestamp) -> Vec<Ask> {
        match errands::preflight(key, command) {
            Some((other, question)) => {
                let waiter = Waiter { op, then: Some(Box::new(command.clone())), place: None };
                let effects = self.shard(&other).submit(Ticket::Client(waiter), &other, question, now);
                self.carry_out(effects, now)
            }
            None => self.ask(op, key, command.clone(), now),
        }
    }

    /// The command itself.
    pub fn ask(&mut self, op: usize, key: &Key, command: Command, now: Timestamp) -> Vec<Ask> {
        let place = match (command.act.start(), &command.by) {
            (Some(_), Author::Agent(agent)) => {
                match self.quota.reserve(Place::new(&key.tenant, agent.as_str())) {
                    Ok(place) => Some(place),
                    Err(refusal) => return vec![Ask::Answer(op, Answer::Denied(Denied::Refused(refusal)))],
                }
            }
            _ => None,
        };
        let ticket = Ticket::Client(Waiter { op, then: None, place });
        let effects = self.shard(key).submit(ticket, key, command, now);
        self.carry_out(effects, now)
    }

    fn carry_out(&mut self, effects: Vec<Effect<Waiter>>, now: Timestamp) -> Vec<Ask> {
        let mut asks = Vec::new();
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            match effect {
                Effect::Load(key) => asks.push(Ask::Load(key)),
                Effect::Answer { ticket, answer } => {
                    queue.extend(self.answer(ticket, answer, now, &mut asks))
                }
                Effect::Publish(published) => {
                    let place = Place::new(&published.key.tenant, published.binding.requester.as_str());
                    if published.started() {
                        self.quota.started(&place);
                    }
                    if published.ended.is_some() {
                        self.quota.ended(&place);
                    }
                    let (_, cut) = self.hub.publish(&published);
                    self.cuts += cut as u64;
                    for from in self.waiting.changed(&published.key) {
                        let tick = Command::runtime(Act::Tick);
                        queue.extend(self.shard(&from).submit(Ticket::Nobody, &from, tick, now));
                    }
                    asks.push(Ask::Published(published.key, published.first, published.events.len()));
                }
                Effect::Wake { key, at } => {
                    // The simulated clock looks often enough not to need waking.
                    self.timers.set(&key, at);
                }
                Effect::Errand { from, errand } => {
                    let (to, command) = errands::outbound(&from, &errand);
                    let ticket = Ticket::Errand(Box::new(Trip { from, errand: errand.id, to: to.clone() }));
                    queue.extend(self.shard(&to).submit(ticket, &to, command, now));
                }
            }
        }
        asks
    }

    fn answer(
        &mut self,
        ticket: Ticket<Waiter>,
        answer: Answer,
        now: Timestamp,
        asks: &mut Vec<Ask>,
    ) -> Vec<Effect<Waiter>> {
        match ticket {
            Ticket::Client(waiter) => {
                if let Some(place) = waiter.place.filter(|_| !started(&answer)) {
                    self.quota.abandoned(&place);
                }
                match (waiter.then, answer) {
                    (Some(_), Answer::Denied(Denied::Refused(refusal))) => {
                        let refusal = errands::preflight_refusal(refusal);
                        asks.push(Ask::Answer(waiter.op, Answer::Denied(Denied::Refused(refusal))));
                    }
                    (Some(command), Answer::Accepted(_)) => asks.push(Ask::GoAhead(waiter.op, command)),
                    (_, answer) => asks.push(Ask::Answer(waiter.op, answer)),
                }
                Vec::new()
            }
            Ticket::Wake => {
                self.wakes -= 1;
                Vec::new()
            }
            Ticket::Nobody => Vec::new(),
            Ticket::Errand(trip) => match errands::homebound(trip.errand, &answer) {
                Some(command) => self.shard(&trip.from).submit(Ticket::Nobody, &trip.from, command, now),
                None => {
                    self.waiting.wait(&trip.to, &trip.from);
                    Vec::new()
                }
            },
        }
    }

    /// What was read of a session.
    pub fn loaded(
        &mut self,
        key: &Key,
        log: Result<handover_engine::log::Log, std::sync::Arc<handover_store::Fault>>,
        now: Timestamp,
    ) -> Vec<Ask> {
        let effects = self.shard(key).loaded(key, log, now);
        self.carry_out(effects, now)
    }

    /// The next batch, if nothing is being written.
    pub fn gather(&mut self, disk: &Disk) -> bool {
        if self.flight.is_some() {
            return false;
        }
        if self.recount {
            self.recount = false;
            self.quota.recount(disk.store().open_counts().unwrap_or_default());
        }
        self.flight = Commit::gather(self.shards.iter_mut());
        self.flight.is_some()
    }

    /// What became of it.
    pub fn complete(
        &mut self,
        result: &Result<Vec<handover_store::Outcome>, std::sync::Arc<handover_store::Fault>>,
        now: Timestamp,
    ) -> Vec<Ask> {
        let Some(commit) = self.flight.take() else {
            return Vec::new();
        };
        self.recount |= result.is_err();
        if result.is_err() || self.doubt {
            self.hub.missed();
        }
        self.doubt = result.is_err();
        // The closure hands out one shard at a time, so the loan is made anew for each.
        let mut shards: Vec<Option<&mut Shard<Waiter>>> = self.shards.iter_mut().map(Some).collect();
        let take = |index: usize| shards[index].take().expect("each shard has one share");
        let effects = commit.settle(result, take, now);
        self.carry_out(effects, now)
    }

    /// The watch over the clock. Says what it asks for, and when it wants to look again.
    pub fn look_at_the_clock(
        &mut self,
        disk: &Disk,
        scan_fails: bool,
        asleep: bool,
        now: Timestamp,
    ) -> (Vec<Ask>, Timestamp) {
        let mut asks = Vec::new();
        if let Some(scan) = self.timers.scan(now) {
            let page = disk.store().due_after(scan.after, scan.until.0, SCAN_MAX).ok();
            let found = page.filter(|_| !scan_fails).map(Found::from);
            self.timers.scanned(found, now);
        }
        for key in self.timers.due(now, 16) {
            if asleep {
                continue;
            }
            self.wakes += 1;
            let effects = self.shard(&key).submit(Ticket::Wake, &key, Command::runtime(Act::Tick), now);
            asks.extend(self.carry_out(effects, now));
        }
        for shard in &mut self.shards {
            shard.sweep(now);
        }
        let next = self.timers.next_at().max(now.plus(1)).min(now.plus(500));
        (asks, next)
    }

    /// Whether nothing waits for anything.
    pub fn is_quiet(&self) -> bool {
        self.flight.is_none() && self.shards.iter().all(Shard::is_quiet)
    }

    /// How many sessions each agent has open, as this node counts.
    pub fn open(&self) -> Vec<(Box<str>, Box<str>, u64)> {
        self.quota.open()
    }

    /// Stop following.
    pub fn leave(&mut self, id: SubscriberId) {
        self.hub.leave(id);
    }
}
