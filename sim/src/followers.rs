//! Those who follow events: on any node, and now and then on another one. They look when they are woken, and only then.

use handover_engine::hub::{Delivery, Follower, Need, SubscriberId, Taken, Topic};
use handover_engine::key::Key;
use handover_engine::subscription::read_page;
use handover_kernel::Seq;
use handover_store::{Place, Position};

use crate::plant::Plant;
use crate::trouble::FAULTS_UNTIL_MS;
use crate::world::{Happening, World};

/// How many events may wait for one.
const QUEUE_MAX: usize = 6;

/// One who follows a topic.
pub(crate) struct Reader {
    topic: Topic,
    pub(crate) node: usize,
    follower: Follower,
    joined: Option<(u64, SubscriberId)>,
    seen: Vec<(Position, Key, Seq)>,
    /// It is about to look.
    roused: bool,
}

impl Reader {
    /// From the beginning, on a node.
    pub(crate) fn new(topic: Topic, node: usize) -> Reader {
        let follower = Follower::after(Place::default());
        Reader { topic, node, follower, joined: None, seen: Vec::new(), roused: false }
    }

    /// Begin again after what was seen.
    fn begin_again(&mut self) {
        self.joined = None;
        self.follower = Follower::after(self.follower.last().clone());
    }
}

impl World {
    /// Somebody begins to follow a topic on a node, and moves now and then.
    pub(crate) fn follow(&mut self, topic: Topic, node: usize) {
        self.readers.push(Reader::new(topic, node));
        let follower = self.readers.len() - 1;
        self.rouse(follower);
        for _ in 0..self.rng.below(4) {
            let at = self.rng.below(FAULTS_UNTIL_MS);
            self.after(at, Happening::Move { follower });
        }
    }

    /// There is something for a follower: it looks soon.
    pub(crate) fn rouse(&mut self, follower: usize) {
        if !std::mem::replace(&mut self.readers[follower].roused, true) {
            let (low, high) = if self.rng.chance(30) { (500, 5_000) } else { (1, 400) };
            let delay = self.rng.between(low, high);
            self.after(delay, Happening::Follow { follower });
        }
    }

    /// The connections of everybody who follows on a node end. They try again there.
    pub(crate) fn hang_up(&mut self, node: usize) {
        for follower in 0..self.readers.len() {
            if self.readers[follower].node == node {
                self.rouse(follower);
            }
        }
    }

    /// A follower's connection ends, and it goes on over another, mostly at another node.
    pub(crate) fn move_follower(&mut self, follower: usize) {
        let to = self.rng.below(self.nodes.len() as u64) as usize;
        let reader = &mut self.readers[follower];
        if let Some((epoch, id)) = reader.joined
            && epoch == self.nodes[reader.node].epoch
        {
            self.nodes[reader.node].leave(id);
        }
        reader.node = to;
        reader.begin_again();
        self.disk.faults.moves += 1;
        self.rouse(follower);
    }

    /// A subscriber is awake. It goes on until there is nothing for it.
    pub(crate) fn look_at_events(&mut self, follower: usize) -> Result<(), String> {
        self.readers[follower].roused = false;
        if self.rng.chance(20) {
            self.move_follower(follower);
        } else if self.take_events(follower)? {
            self.rouse(follower);
        }
        Ok(())
    }

    /// Says whether there may be more.
    fn take_events(&mut self, follower: usize) -> Result<bool, String> {
        let reader = &mut self.readers[follower];
        let (store, node) = (self.disk.of(reader.node), &mut self.nodes[reader.node]);
        if !node.up {
            return Ok(true);
        }
        if reader.joined.is_some_and(|(epoch, _)| epoch != node.epoch) {
            // The node is another one.
            reader.begin_again();
        }
        let mut more = true;
        let fresh: Vec<Delivery> = match reader.follower.need() {
            // Its node cannot read.
            Need::Page if self.disk.is_cut(reader.node, self.now) => Vec::new(),
            Need::Page => {
                let page = read_page(store, &reader.topic, reader.follower.last())
                    .map_err(|denied| format!("a page could not be read: {denied:?}"))?;
                reader.follower.page(page)
            }
            Need::Join => {
                reader.joined = Some((node.epoch, node.hub.join(reader.topic.clone(), QUEUE_MAX, follower)));
                reader.follower.joined();
                Vec::new()
            }
            Need::Live => {
                let Some((_, id)) = reader.joined else {
                    return Err("a follower is live and has not joined".to_owned());
                };
                match node.hub.take(id, 4) {
                    Taken::Events(events) => {
                        more = !events.is_empty();
                        reader.follower.live(events)
                    }
                    Taken::Missed => {
                        reader.follower.missed();
                        Vec::new()
                    }
                    Taken::Cut if self.plant == Some(Plant::HideCut) => {
                        node.leave(id);
                        reader.joined =
                            Some((node.epoch, node.hub.join(reader.topic.clone(), QUEUE_MAX, follower)));
                        Vec::new()
                    }
                    Taken::Cut => {
                        node.leave(id);
                        reader.begin_again();
                        Vec::new()
                    }
                }
            }
        };
        for Delivery { position, key, event } in fresh {
            let before = reader.seen.iter().rev().find(|(_, other, _)| *other == key);
            let (last, next) = (before.map_or(Seq(0), |(_, _, seq)| *seq), event.seq);
            if next != last.next() {
                return Err(format!("{:?} was given {key} {next} after {last}", reader.topic));
            }
            let slot = reader.seen.iter().rev().find(|(other, ..)| other.slot == position.slot);
            if !matches!(reader.topic, Topic::Session(_))
                && slot.is_some_and(|(other, ..)| *other >= position)
            {
                return Err(format!("{:?} was given {position:?} after {slot:?}", reader.topic));
            }
            reader.seen.push((position, key, next));
        }
        Ok(more)
    }

    /// Everybody was given everything.
    pub(crate) fn check_followers(&self) -> Result<(), String> {
        let store = self.disk.store();
        for reader in &self.readers {
            let mut expected: Vec<Position> = Vec::new();
            let mut after = Place::default();
            loop {
                let page = read_page(store, &reader.topic, &after).map_err(|denied| format!("{denied:?}"))?;
                if page.events.is_empty() {
                    break;
                }
                expected.extend(page.events.iter().map(|delivery| delivery.position));
                expected.iter().for_each(|position| _ = after.reach(*position));
            }
            let mut seen: Vec<Position> = reader.seen.iter().map(|(position, ..)| *position).collect();
            expected.sort();
            seen.sort();
            if seen != expected {
                return Err(format!("{:?} was given {seen:?}, there is {expected:?}", reader.topic));
            }
        }
        Ok(())
    }
}
