//! Those who follow events: on any node, and now and then on another one.

use handover_engine::hub::{Delivery, Follower, Need, SubscriberId, Taken, Topic};
use handover_engine::key::Key;
use handover_engine::subscription::read_page;
use handover_kernel::Seq;
use handover_store::{Place, Position};

use crate::plant::Plant;
use crate::world::World;

/// How many events may wait for one.
const QUEUE_MAX: usize = 6;

/// One who follows a topic.
pub(crate) struct Reader {
    topic: Topic,
    node: usize,
    follower: Follower,
    joined: Option<(u64, SubscriberId)>,
    seen: Vec<(Position, Key, Seq)>,
}

impl Reader {
    /// From the beginning, on a node.
    pub(crate) fn new(topic: Topic, node: usize) -> Reader {
        Reader { topic, node, follower: Follower::after(Place::default()), joined: None, seen: Vec::new() }
    }

    /// Begin again after what was seen.
    fn begin_again(&mut self) {
        self.joined = None;
        self.follower = Follower::after(self.follower.last().clone());
    }
}

impl World {
    /// A subscriber looks at what there is.
    pub(crate) fn look_at_events(&mut self, follower: usize) -> Result<(), String> {
        let elsewhere = self.rng.below(self.nodes.len() as u64) as usize;
        let reader = &mut self.readers[follower];
        if reader.node != elsewhere && self.rng.chance(50) {
            if let Some((epoch, id)) = reader.joined
                && epoch == self.nodes[reader.node].epoch
            {
                self.nodes[reader.node].leave(id);
            }
            reader.node = elsewhere;
            reader.begin_again();
        }
        let (store, node) = (self.disk.of(reader.node), &mut self.nodes[reader.node]);
        if !node.up {
            return Ok(());
        }
        if reader.joined.is_some_and(|(epoch, _)| epoch != node.epoch) {
            // The node is another one.
            reader.begin_again();
        }
        let fresh: Vec<Delivery> = match reader.follower.need() {
            Need::Page => {
                let page = read_page(store, &reader.topic, reader.follower.last())
                    .map_err(|denied| format!("a page could not be read: {denied:?}"))?;
                reader.follower.page(page)
            }
            Need::Join => {
                reader.joined = Some((node.epoch, node.hub.join(reader.topic.clone(), QUEUE_MAX, ())));
                reader.follower.joined();
                Vec::new()
            }
            Need::Live => {
                let Some((_, id)) = reader.joined else {
                    return Err("a follower is live and has not joined".to_owned());
                };
                match node.hub.take(id, 4) {
                    Taken::Events(events) => reader.follower.live(events),
                    Taken::Missed => {
                        reader.follower.missed();
                        Vec::new()
                    }
                    Taken::Cut if self.plant == Some(Plant::HideCut) => {
                        node.leave(id);
                        reader.joined =
                            Some((node.epoch, node.hub.join(reader.topic.clone(), QUEUE_MAX, ())));
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
        Ok(())
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
