//! One engine: the node that the shell runs, with the simulator in the place of the threads and the locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_engine::answer::Answer;
use handover_engine::commit::Commit;
use handover_engine::errands::Waiting;
use handover_engine::hub::{Hub, SubscriberId};
use handover_engine::key::Key;
use handover_engine::log::Log;
use handover_engine::node::{self, Call, Commits, Out, Parts};
use handover_engine::quota::Quota;
use handover_engine::shard::{Round, Settings, Shard};
use handover_engine::tail::Tail;
use handover_engine::timers::{Found, SCAN_MAX, Timers};
use handover_kernel::command::Command;
use handover_kernel::{Limits, Timestamp};
use handover_store::{Done, Fault, News, OpenCount, Outcome, Place, Position, SessionKey, Slot, Store};

use crate::disk::Disk;

/// How many shards a node has.
const SHARDS: usize = 3;

/// How many sessions an agent may have open: low, so that it is reached.
const OPEN_MAX: u64 = 6;

/// How many sessions are woken at one look at the clock.
const WAKES_MAX: usize = 16;

/// What a node asks of the world.
#[derive(Debug)]
pub enum Ask {
    /// Read this session and come back.
    Load(Key),
    /// Tell the client of this operation.
    Answer(usize, Answer),
    /// Nothing but a note for the trace.
    Published(Key, Position, usize),
    /// Look at what other nodes did.
    Look,
    /// Wake this follower: there is something for it.
    Rouse(usize),
}

/// One engine.
pub struct Node {
    shards: Vec<Shard<Call<usize>>>,
    timers: Timers,
    quota: Quota,
    waiting: Waiting,
    /// Where there are other nodes.
    tail: Option<Tail>,
    /// Who follows events on this node.
    pub hub: Hub<usize>,
    limits: Limits,
    now: Timestamp,
    asks: Vec<Ask>,
    /// A new one with every crash: what was asked for before it comes back to nobody.
    pub epoch: u64,
    /// Whether it runs.
    pub up: bool,
    /// What is being written.
    pub flight: Option<Commit>,
    commits: Commits,
    /// How many sessions are being woken.
    wakes: usize,
    /// How many subscribers were cut off.
    pub cuts: u64,
    /// Whether a look at what other nodes did is under way.
    pub looking: bool,
    /// Whether somebody has asked for another since.
    pub look_again: bool,
    /// What is being loaded.
    pub loading: BTreeSet<Key>,
    /// A bug: memory is taken for new while this is set.
    trusts_memory: bool,
    /// A bug: the next thing that a shard is told it does not hear.
    deaf: bool,
}

impl Parts for Node {
    /// The number of an operation.
    type Waiter = usize;
    /// The number of a follower.
    type Waker = usize;

    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn shard<R>(&mut self, index: usize, work: impl FnOnce(&mut Shard<Call<usize>>, Timestamp) -> R) -> R {
        if std::mem::take(&mut self.deaf) {
            let mut nobody = Shard::new(Settings::default(), self.limits.clone());
            return work(&mut nobody, self.now);
        }
        work(&mut self.shards[index], self.now)
    }

    fn quota<R>(&mut self, work: impl FnOnce(&mut Quota) -> R) -> R {
        work(&mut self.quota)
    }

    fn hub<R>(&mut self, work: impl FnOnce(&mut Hub<usize>) -> R) -> R {
        work(&mut self.hub)
    }

    fn timers<R>(&mut self, work: impl FnOnce(&mut Timers) -> R) -> R {
        work(&mut self.timers)
    }

    fn waiting<R>(&mut self, work: impl FnOnce(&mut Waiting) -> R) -> R {
        work(&mut self.waiting)
    }

    fn tail<R>(&mut self, work: impl FnOnce(&mut Tail) -> R) -> Option<R> {
        self.tail.as_mut().filter(|_| !self.trusts_memory).map(work)
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn out(&mut self, out: Out<'_, usize, usize>) {
        match out {
            Out::Load(key) => self.asks.push(Ask::Load(key)),
            Out::Answer(op, answer) => self.asks.push(Ask::Answer(op, answer)),
            Out::Published(published) => {
                let count = published.events.len();
                self.asks.push(Ask::Published(published.key.clone(), published.first, count));
            }
            Out::Cut(count) => self.cuts += count as u64,
            Out::Woken(_) => self.wakes -= 1,
            Out::Notify(wakers) => self.asks.extend(wakers.into_iter().map(Ask::Rouse)),
            // The world looks often enough at the shards and at the clock.
            Out::Pending | Out::Earlier | Out::Unreadable(..) | Out::Heard(_) => {}
            Out::Look => self.asks.push(Ask::Look),
        }
    }
}

impl Node {
    /// An engine that has just started on this disk, as one of its nodes.
    pub fn start(disk: &Disk, node: usize, epoch: u64, settings: &Settings, limits: &Limits) -> Node {
        let mut quota = Quota::default();
        let store = disk.of(node);
        let place = store.slot().and_then(|_| store.last_place().ok());
        quota.recount(store.open_counts().unwrap_or_default(), place.clone());
        let tail = place.map(Tail::after);
        Node {
            shards: (0..SHARDS).map(|_| Shard::new(settings.clone(), limits.clone())).collect(),
            timers: Timers::new(),
            quota,
            waiting: Waiting::default(),
            tail,
            hub: Hub::default(),
            limits: limits.clone(),
            now: Timestamp::default(),
            asks: Vec::new(),
            epoch,
            up: true,
            flight: None,
            commits: Commits::default(),
            wakes: 0,
            cuts: 0,
            looking: false,
            look_again: false,
            loading: BTreeSet::new(),
            trusts_memory: false,
            deaf: false,
        }
    }

    /// A bug: do something as if memory were never out of date.
    pub fn trusting(&mut self, act: impl FnOnce(&mut Node) -> Vec<Ask>) -> Vec<Ask> {
        self.trusts_memory = true;
        let asks = act(self);
        self.trusts_memory = false;
        asks
    }

    /// A client wants to see a session.
    pub fn look(&mut self, op: usize, key: &Key, now: Timestamp) -> Vec<Ask> {
        self.at(now, |node| node::look(node, op, key))
    }

    /// A look at what other nodes did begins.
    pub fn begin_look(&mut self) -> Option<(Round, Place)> {
        node::look_begins(self)
    }

    /// A page of what they did. If it is the last, the look has ended.
    pub fn heard(&mut self, news: Vec<News>, ended: Option<Round>, now: Timestamp) -> Vec<Ask> {
        self.at(now, |node| {
            node::heard(node, news);
            if let Some(round) = ended {
                node::look_ends(node, round);
            }
        })
    }

    /// A bug: some sessions do not hear what others do to them meanwhile.
    pub fn heard_deafly(
        &mut self,
        deaf: impl Fn(&Node, &SessionKey) -> bool,
        news: Vec<News>,
        ended: Option<Round>,
        now: Timestamp,
    ) -> Vec<Ask> {
        let mut asks = Vec::new();
        for news in news {
            self.deaf = matches!(&news.what, Done::Appended { key, .. } if deaf(self, key));
            asks.extend(self.heard(vec![news], None, now));
        }
        asks.extend(self.heard(Vec::new(), ended, now));
        asks
    }

    /// Whether a session is being loaded.
    pub fn is_loading(&self, key: &SessionKey) -> bool {
        self.loading.iter().any(|loading| **loading == *key)
    }

    /// Whether something is being written to a session.
    pub fn is_writing(&self, key: &SessionKey) -> bool {
        self.flight.as_ref().is_some_and(|commit| commit.batch.iter().any(|append| append.key == *key))
    }

    /// What they did could not be read.
    pub fn look_failed(&mut self, fault: Fault, now: Timestamp) -> Vec<Ask> {
        self.at(now, |node| node::look_failed(node, &Arc::new(fault)))
    }

    /// This node has fallen too far behind the others.
    pub fn fell_behind(&mut self, place: &Place, now: Timestamp) -> Vec<Ask> {
        self.commits.count_again();
        self.at(now, |node| node::fell_behind(node, place))
    }

    /// How far what other nodes did is known.
    pub fn place(&self) -> Place {
        self.tail.as_ref().map(|tail| tail.place().clone()).unwrap_or_default()
    }

    /// Whether something that failed to be written may still turn up.
    pub fn wants_settling(&self) -> bool {
        self.flight.is_none() && self.commits.wants_settling()
    }

    /// It has turned up, or never will.
    pub fn settled(&mut self, now: Timestamp) -> Vec<Ask> {
        let mut commits = std::mem::take(&mut self.commits);
        let asks = self.at(now, |node| commits.settled(node));
        self.commits = commits;
        asks
    }

    /// A bug: tell at once of what is to be held back.
    pub fn tell_early(&mut self) {
        self.tail.iter_mut().for_each(|tail| tail.end(Round::MAX));
    }

    /// Let the node do something at this time, and say what it asks for.
    fn at(&mut self, now: Timestamp, act: impl FnOnce(&mut Node)) -> Vec<Ask> {
        self.now = now;
        act(self);
        std::mem::take(&mut self.asks)
    }

    /// A client's command.
    pub fn submit(&mut self, op: usize, key: &Key, command: &Command, now: Timestamp) -> Vec<Ask> {
        self.at(now, |node| node::submit(node, op, key.clone(), command.clone(), OPEN_MAX))
    }

    /// What was read of a session.
    pub fn loaded(&mut self, key: &Key, log: Result<Log, Arc<Fault>>, now: Timestamp) -> Vec<Ask> {
        self.at(now, |node| node::loaded(node, key, log))
    }

    /// The next batch, if nothing is being written. Nothing is counted where the disk cannot be reached.
    pub fn gather(&mut self, disk: &Disk, reachable: bool) -> bool {
        if self.flight.is_some() {
            return false;
        }
        let mut commits = std::mem::take(&mut self.commits);
        if reachable && commits.wants_count() {
            let store = disk.store();
            let place = self.tail.as_ref().and_then(|_| store.last_place().ok());
            commits.counted(self, store.open_counts().unwrap_or_default(), place);
        }
        self.flight = commits.gather(self);
        self.commits = commits;
        self.flight.is_some()
    }

    /// What became of it.
    pub fn complete(&mut self, result: &Result<Vec<Outcome>, Arc<Fault>>, now: Timestamp) -> Vec<Ask> {
        let Some(commit) = self.flight.take() else {
            return Vec::new();
        };
        let mut commits = std::mem::take(&mut self.commits);
        let asks = self.at(now, |node| commits.settle(node, commit, result));
        self.commits = commits;
        asks
    }

    /// The watch over the clock. Says what it asks for, and when it wants to look again.
    pub fn look_at_the_clock(
        &mut self,
        disk: &Disk,
        (slot, live): (Option<Slot>, &[Slot]),
        scan_fails: bool,
        asleep: bool,
        now: Timestamp,
    ) -> (Vec<Ask>, Timestamp) {
        if let Some(scan) = self.timers.scan(now) {
            let page = disk.store().due_after(scan.after, scan.until.0, SCAN_MAX).ok();
            let found = page.filter(|_| !scan_fails).map(|page| Found::from(page).shared(slot, live));
            self.timers.scanned(found, now);
        }
        let mut asks = Vec::new();
        for key in self.timers.due(now, WAKES_MAX) {
            if !asleep {
                self.wakes += 1;
                asks.extend(self.at(now, |node| node::wake(node, &key)));
            }
        }
        for shard in &mut self.shards {
            shard.sweep(now);
        }
        let next = self.timers.next_at().max(now.plus(1)).min(now.plus(500));
        (asks, next)
    }

    /// Whether nothing waits for anything.
    pub fn is_quiet(&self) -> bool {
        self.flight.is_none()
            && self.wakes == 0
            && self.quota.starting() == 0
            && self.shards.iter().all(Shard::is_quiet)
    }

    /// What waits for what, in short.
    pub fn under_way(&self) -> String {
        let unsure = self.shards.iter().filter(|shard| shard.is_unsure()).count();
        let busy = self.shards.iter().filter(|shard| !shard.is_quiet()).count();
        let (wakes, starting, looking) = (self.wakes, self.quota.starting(), self.looking);
        let writes = self.flight.is_some();
        format!(
            "{busy} shards busy, {unsure} unsure, {wakes} wakes, {starting} starts, looking {looking}, writes {writes}"
        )
    }

    /// How many sessions each agent has open, as this node counts.
    pub fn open(&self) -> Vec<OpenCount> {
        self.quota.open()
    }

    /// Stop following.
    pub fn leave(&mut self, id: SubscriberId) {
        self.hub.leave(id);
    }
}
