//! What happens to the machines that nodes run on: they pause, lose their connections, crash, have clocks that are off, and hear
//! late of what others did, or not at all.

use handover_kernel::Timestamp;
use handover_store::Store;

use crate::disk::LEASE_MS;
use crate::node::Node;
use crate::plant::Plant;
use crate::rng::Rng;
use crate::world::{Happening, World};

/// When the faults stop.
pub(crate) const FAULTS_UNTIL_MS: u64 = 60_000;

/// When the last of what is planned begins: it is over when the faults stop.
const PLANNED_UNTIL_MS: u64 = FAULTS_UNTIL_MS - 6 * LEASE_MS;

/// How a node's machine is.
#[derive(Debug)]
pub(crate) struct Machine {
    /// How much its clock is off.
    pub(crate) skew_ms: u64,
    /// How long it may take until a look begins that somebody waits for.
    pub(crate) tail_ms: u64,
    /// Now and then what it reads of a session takes long.
    pub(crate) reads_slowly: bool,
    /// How often it looks when nobody waits for that.
    pub(crate) poll_ms: u64,
    /// When it last wanted to look.
    pub(crate) looked_at: Timestamp,
    /// It does nothing before this time.
    pub(crate) paused_until: Timestamp,
    /// The number of its connections: what was asked for over others is never answered.
    pub(crate) link: u64,
    /// A hint is on its way to it.
    hinted: bool,
}

impl Machine {
    /// One like many, or one that is slow, and whose clock is off.
    pub(crate) fn new(rng: &mut Rng, skewed: bool) -> Machine {
        Machine {
            skew_ms: if skewed { rng.below(2_000) } else { 0 },
            tail_ms: if rng.chance(250) { rng.between(200, 3_000) } else { 0 },
            reads_slowly: rng.chance(300),
            poll_ms: rng.between(20, 3_000),
            looked_at: Timestamp::default(),
            paused_until: Timestamp::default(),
            link: 0,
            hinted: false,
        }
    }
}

impl World {
    /// Plan what happens to the machines of several nodes.
    pub(crate) fn plan_trouble(&mut self) {
        let nodes = self.nodes.len() as u64;
        if nodes == 1 {
            return;
        }
        for _ in 0..self.rng.between(3, 7) {
            let (at, node) = (self.rng.below(PLANNED_UNTIL_MS), self.rng.below(nodes) as usize);
            let long = self.rng.chance(800);
            let ms = match long {
                true => self.rng.between(2 * LEASE_MS, 5 * LEASE_MS),
                false => self.rng.between(50, LEASE_MS),
            };
            match self.rng.chance(500) {
                true => self.after(at, Happening::Pause { node, ms }),
                false => self.after(at, Happening::Disconnect { node, ms }),
            }
            // Others start when the slot is free, and one of them takes it.
            let rivals = if long { self.rng.below(4) } else { 0 };
            for _ in 0..rivals {
                let rival = (node + self.rng.between(1, nodes - 1) as usize) % nodes as usize;
                let gone = at + self.rng.between(LEASE_MS / 2, 2 * LEASE_MS);
                self.after(gone, Happening::Crash { node: rival });
            }
        }
        if self.rng.chance(300) {
            let (at, ms) = (self.rng.below(PLANNED_UNTIL_MS), self.rng.between(50, 2 * LEASE_MS));
            self.after(at, Happening::Outage { ms });
        }
    }

    /// When a node that is paused goes on, if it is.
    pub(crate) fn paused(&self, happening: &Happening) -> Option<Timestamp> {
        let until = self.machines[happening.runs_on(&self.readers)?].paused_until;
        (until > self.now).then_some(until)
    }

    /// A node stands still, and everything that reaches it waits.
    pub(crate) fn pause(&mut self, node: usize, ms: u64) {
        if self.nodes[node].up {
            self.note(format!("node {node} pauses for {ms} ms"));
            self.disk.faults.pauses += 1;
            let machine = &mut self.machines[node];
            machine.paused_until = machine.paused_until.max(self.now.plus(ms));
        }
    }

    /// The connections of a node end: what is on its way to it is lost, and for a while it cannot connect again.
    pub(crate) fn disconnect(&mut self, node: usize, ms: u64) {
        if self.nodes[node].up {
            self.note(format!("node {node} is cut off for {ms} ms"));
            self.disk.faults.disconnected += 1;
            self.disk.cut(node, self.now.plus(ms));
            self.machines[node].link += 1;
        }
    }

    /// The store stops, and begins again after a while. Nobody reaches it meanwhile.
    pub(crate) fn stop_store(&mut self, ms: u64) -> Result<(), String> {
        self.note("the store stops".to_owned());
        (0..self.nodes.len()).for_each(|node| self.disconnect(node, ms));
        self.disk.lose_power().map_err(|fault| fault.to_string())?;
        self.check_acknowledged()
    }

    /// A node loses its memory. Where there is one, the power went.
    pub(crate) fn crash(&mut self, node: usize) -> Result<(), String> {
        if !self.nodes[node].up {
            return Ok(());
        }
        self.note(format!("node {node} crashes"));
        self.disk.faults.crashes += 1;
        self.cuts += self.nodes[node].cuts;
        self.nodes[node].up = false;
        self.nodes[node].cuts = 0;
        self.nodes[node].epoch += 1;
        self.machines[node].paused_until = self.now;
        self.disk.leave(node);
        if self.nodes.len() == 1 {
            self.disk.lose_power().map_err(|fault| fault.to_string())?;
        }
        self.hang_up(node);
        let delay = self.rng.between(1, 2_000);
        self.after(delay, Happening::Restart { node });
        self.check_acknowledged()
    }

    /// It begins again, with a slot that nobody has.
    pub(crate) fn restart(&mut self, node: usize) -> Result<(), String> {
        self.disk.join(node, self.now, &mut self.rng).map_err(|fault| fault.to_string())?;
        let slot = self.disk.of(node).slot();
        self.note(format!("node {node} restarts, its slot is {slot:?}"));
        let epoch = self.nodes[node].epoch;
        self.nodes[node] = Node::start(&self.disk, node, epoch, &self.settings, &self.limits);
        self.after(1, Happening::Clock { node, epoch });
        Ok(())
    }

    /// A node has written something. The others are given a hint, and not each of them gets it.
    pub(crate) fn hint(&mut self, by: usize) {
        for node in (0..self.nodes.len()).filter(|node| *node != by) {
            if self.machines[node].hinted {
                self.disk.faults.hints_merged += 1;
            } else if self.faults_on() && self.rng.chance(self.hint_loss) {
                self.disk.faults.hints_lost += 1;
            } else {
                let late = self.faults_on() && self.rng.chance(100);
                self.disk.faults.hints_late += u64::from(late);
                let delay =
                    if late { self.rng.between(500, 3_000) } else { self.rng.between(0, self.latency_ms) };
                self.machines[node].hinted = true;
                self.after(delay, Happening::Hint { node });
            }
        }
    }

    /// It comes.
    pub(crate) fn hinted(&mut self, node: usize) {
        self.machines[node].hinted = false;
        if self.nodes[node].up {
            self.want_a_look(node);
        }
    }

    /// A node is seen by the disk. It hears that it was fenced when it next asks what others did.
    pub(crate) fn be_seen(&mut self, node: usize) {
        if self.disk.beat(node, self.now, &mut self.rng).is_err() {
            self.note(format!("node {node} has lost its slot"));
        }
    }

    /// What was on its way to a node over a connection that has ended is lost.
    pub(crate) fn is_lost(&self, node: usize, link: u64) -> bool {
        self.machines[node].link != link
    }

    /// A node wakes a follower.
    pub(crate) fn wake(&mut self, follower: usize) {
        if self.plant != Some(Plant::ForgetToWake) {
            self.rouse(follower);
        }
    }
}
