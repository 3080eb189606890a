//! What other nodes did: how far it is known here, and in which order everything is told. A plain state machine.
//!
//! Where several nodes append to one store, each looks again and again at what the others did. What an answer rests on that
//! appends nothing may be out of date: it waits for a look that began after it was asked for.
//!
//! Whatever rests on something is told after it. What is appended here may rest on something that has not been looked at
//! yet: it is told after a look that began when it was written, or before something with a later stamp. What others did may
//! rest on what is being appended here: it is told once that is known.

use std::collections::VecDeque;
use std::sync::Arc;

use handover_kernel::Event;
use handover_store::{Place, Position};

use crate::answer::Published;
use crate::hub::{Listed, Told};
use crate::key::Key;
use crate::shard::Round;

/// How many events, and how many bytes of them, may wait to be told. Beyond that everybody reads them from the store.
const HELD_MAX: usize = 4096;
const HELD_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// How far what other nodes did is known.
#[derive(Debug, Default)]
pub struct Tail {
    place: Place,
    /// How many looks have begun, and the last that came to its end.
    begun: Round,
    ended: Round,
    /// Ours, in the order of their stamps, each with the look that it is told after at the latest.
    own: VecDeque<(Round, Published)>,
    /// What others appended, in the order of their stamps.
    others: VecDeque<Heard>,
    held_events: usize,
    held_bytes: u64,
    /// Somebody is telling: what is told by two at once would be told in any order.
    telling: bool,
    /// Something is being written.
    writing: bool,
    /// Something that failed to be written may still turn up: what is in memory cannot be trusted.
    in_doubt: bool,
}

/// An event of another node.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names of the fields say all")]
pub struct Heard {
    pub key: Key,
    pub event: Arc<Event>,
    pub agents: Vec<Box<str>>,
    pub position: Position,
    pub stamp: u64,
}

/// What is told next.
#[derive(Debug)]
pub enum Next {
    /// Of our own.
    Own(Published),
    /// Of others.
    Other(Heard),
}

impl Next {
    /// Give it to somebody who tells it.
    pub fn told<R>(&self, tell: impl FnOnce(&Told<'_>) -> R) -> R {
        match self {
            Next::Own(published) => tell(&Told::from(published)),
            Next::Other(Heard { key, event, agents, position, .. }) => {
                let events = std::slice::from_ref(event);
                tell(&Told { key, listed: Listed::Agents(agents), events, first: *position })
            }
        }
    }
}

impl Tail {
    /// Begin after this place: what lies before it is read with the sessions.
    pub fn after(place: Place) -> Tail {
        Tail { place, ..Tail::default() }
    }

    /// Everything up to here is known.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The next look, which begins later than now.
    pub fn next_look(&self) -> Round {
        self.begun + 1
    }

    /// A look begins: at everything after this place.
    pub fn begin(&mut self) -> (Round, Place) {
        self.begun += 1;
        (self.begun, self.place.clone())
    }

    /// A look has come to its end.
    pub fn end(&mut self, round: Round) {
        self.ended = self.ended.max(round);
    }

    /// What stands here is known.
    pub fn reach(&mut self, position: Position) {
        self.place.reach(position);
    }

    /// Tell of our own events when it is their turn. False if too much waits.
    pub fn hold(&mut self, published: Published) -> bool {
        let (until, count, bytes) = (self.next_look(), published.events.len(), weight(&published.events));
        self.own.push_back((until, published));
        self.has_room(count, bytes)
    }

    /// Tell of an event of another node when it is its turn. False if too much waits.
    pub fn hear(&mut self, heard: Heard) -> bool {
        let bytes = heard.event.weight();
        self.others.push_back(heard);
        self.has_room(1, bytes)
    }

    fn has_room(&mut self, events: usize, bytes: u64) -> bool {
        self.held_events += events;
        self.held_bytes += bytes;
        let room = self.held_events <= HELD_MAX && self.held_bytes <= HELD_BYTES_MAX;
        if !room {
            self.forget();
        }
        room
    }

    /// Let go of what waits to be told: everybody reads it from the store.
    pub fn forget(&mut self) {
        self.own.clear();
        self.others.clear();
        (self.held_events, self.held_bytes) = (0, 0);
    }

    /// Begin to tell what is due, unless somebody else does.
    pub fn begin_telling(&mut self) -> bool {
        !std::mem::replace(&mut self.telling, true)
    }

    /// What is to be told next, if it can be told now. Whoever tells goes on until there is nothing.
    pub fn due(&mut self) -> Option<Next> {
        let due = if self.writing || self.in_doubt { None } else { self.turn() };
        self.telling = due.is_some();
        due
    }

    fn turn(&mut self) -> Option<Next> {
        let ended = self.ended;
        let own = match self.others.front() {
            Some(other) => {
                let stamp = other.stamp;
                self.own.pop_front_if(|(_, published)| published.stamp < stamp)
            }
            None => self.own.pop_front_if(|(until, _)| *until <= ended),
        };
        let next = match own {
            Some((_, published)) => Next::Own(published),
            None => Next::Other(self.others.pop_front()?),
        };
        let (events, bytes) = match &next {
            Next::Own(published) => (published.events.len(), weight(&published.events)),
            Next::Other(heard) => (1, heard.event.weight()),
        };
        self.held_events -= events;
        self.held_bytes -= bytes;
        Some(next)
    }

    /// Whether anything waits to be told.
    pub fn holds(&self) -> bool {
        !self.own.is_empty() || !self.others.is_empty()
    }

    /// Something is being written, or it is known what became of it.
    pub fn writes(&mut self, writing: bool) {
        self.writing = writing;
    }

    /// A commit failed, or what became of it is known.
    pub fn doubt(&mut self, in_doubt: bool) {
        self.in_doubt = in_doubt;
    }

    /// Whether a look shows that memory is not out of date.
    pub fn is_sure(&self) -> bool {
        !self.in_doubt
    }
}

fn weight(events: &[Arc<Event>]) -> u64 {
    events.iter().map(|event| event.weight()).sum()
}

#[cfg(test)]
mod tests {
    use handover_kernel::{Blob, Limits, SessionId, step};

    use super::*;
    use crate::shard::tests::{NOW, key, start};

    fn own(stamp: u64) -> Published {
        let mut slot = None;
        let step = step(&mut slot, &SessionId::from("s"), &start(None), &Limits::default(), NOW);
        let binding = slot.expect("it has started").binding;
        let events = step.events.into_iter().map(Arc::new).collect();
        let first = Position::first_slot(stamp);
        Published { key: key("s"), binding, events, first, stamp, bytes: 0, ended: None }
    }

    fn other(stamp: u64) -> Heard {
        let Published { key, events, first, .. } = own(stamp);
        Heard { key, event: Arc::clone(&events[0]), agents: Vec::new(), position: first, stamp }
    }

    fn told(tail: &mut Tail) -> Vec<(bool, u64)> {
        let next = |next: Next| match next {
            Next::Own(published) => (true, published.stamp),
            Next::Other(heard) => (false, heard.stamp),
        };
        std::iter::from_fn(|| tail.due()).map(next).collect()
    }

    #[test]
    fn own_events_are_told_before_what_may_rest_on_them_and_after_the_next_look_at_the_latest() {
        let mut tail = Tail::after(Place::first_slot(7));
        assert_eq!(tail.begin(), (1, Place::first_slot(7)));
        assert!(tail.hold(own(10)) && tail.hold(own(20)));
        tail.end(1);
        assert_eq!(told(&mut tail), [], "that look may have begun before they were written");
        assert!(tail.hear(other(9)) && tail.hear(other(11)));
        assert_eq!(told(&mut tail), [(false, 9), (true, 10), (false, 11)]);
        let (second, _) = tail.begin();
        tail.end(second);
        assert_eq!(told(&mut tail), [(true, 20)]);
        assert!(!tail.holds());
    }

    #[test]
    fn what_others_did_waits_for_what_is_being_written_here() {
        let mut tail = Tail::default();
        tail.writes(true);
        assert!(tail.hear(other(13)));
        assert_eq!(told(&mut tail), [], "it may rest on that");
        tail.writes(false);
        assert!(tail.hold(own(12)));
        assert_eq!(told(&mut tail), [(true, 12), (false, 13)]);
        tail.doubt(true);
        assert!(tail.hear(other(15)));
        assert_eq!(told(&mut tail), []);
    }

    #[test]
    fn when_too_much_waits_to_be_told_everybody_reads_it() {
        let mut tail = Tail::default();
        assert!((0..HELD_MAX as u64).all(|stamp| tail.hold(own(stamp))));
        assert!(!tail.hear(other(0)) && !tail.holds());
        assert!(tail.hold(own(1)));
        let mut large = other(2);
        Arc::make_mut(&mut large.event).verbatim = Some(Blob::from(vec![0; HELD_BYTES_MAX as usize]));
        assert!(!tail.hear(large) && !tail.holds());
        assert!(tail.hear(other(3)));
    }
}
