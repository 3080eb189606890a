//! What other nodes did: how far it is known here, and what of our own waits to be told after it. A plain state machine.
//!
//! Where several nodes append to one store, each looks again and again at what the others did. What an answer rests on that
//! appends nothing may be out of date: it waits for a look that began after it was asked for. What is appended here may rest on
//! something that has not been looked at yet: it is told after a look that began when it was written, or before something
//! that rests on it.

use std::collections::VecDeque;

use handover_store::{Place, Position};

use crate::answer::Published;
use crate::shard::Round;

/// How many events of our own may wait to be told. Beyond that everybody reads them from the store.
const HELD_MAX: usize = 4096;

/// How far what other nodes did is known.
#[derive(Debug, Default)]
pub struct Tail {
    place: Place,
    /// How many looks have begun.
    begun: Round,
    /// Ours, in the order in which they were written, each with the look that it is told after at the latest.
    held: VecDeque<(Round, Published)>,
    held_events: usize,
    /// Something that failed to be written may still turn up: what is in memory cannot be trusted.
    in_doubt: bool,
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
    pub fn next(&self) -> Round {
        self.begun + 1
    }

    /// A look begins: at everything after this place.
    pub fn begin(&mut self) -> (Round, Place) {
        self.begun += 1;
        (self.begun, self.place.clone())
    }

    /// What another node did is known.
    pub fn reach(&mut self, position: Position) {
        self.place.reach(position);
    }

    /// Keep our own events until they can be told. False if there are too many.
    pub fn hold(&mut self, published: Published) -> bool {
        self.held_events += published.events.len();
        if self.held_events > HELD_MAX {
            self.forget();
            return false;
        }
        self.held.push_back((self.next(), published));
        true
    }

    /// Let go of what waits to be told: everybody reads it from the store.
    pub fn forget(&mut self) {
        self.held.clear();
        self.held_events = 0;
    }

    /// Our next events that something with this stamp may rest on.
    pub fn before(&mut self, stamp: u64) -> Option<Published> {
        self.release(|_, published| published.stamp < stamp)
    }

    /// Our next events that are told after this look at the latest.
    pub fn after_look(&mut self, round: Round) -> Option<Published> {
        self.release(|until, _| until <= round)
    }

    fn release(&mut self, is_due: impl Fn(Round, &Published) -> bool) -> Option<Published> {
        let (_, published) = self.held.pop_front_if(|(until, published)| is_due(*until, published))?;
        self.held_events -= published.events.len();
        Some(published)
    }

    /// Whether anything waits to be told.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
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

#[cfg(test)]
mod tests {
    use handover_kernel::{Limits, SessionId, step};
    use std::sync::Arc;

    use super::*;
    use crate::shard::tests::{NOW, key, start};

    fn own(number: u64, stamp: u64) -> Published {
        let mut slot = None;
        let step = step(&mut slot, &SessionId::from("s"), &start(None), &Limits::default(), NOW);
        let binding = slot.expect("it has started").binding;
        let events = step.events.into_iter().map(Arc::new).collect();
        let first = Position::first_slot(number);
        Published { key: key("s"), binding, events, first, stamp, bytes: 0, ended: None }
    }

    #[test]
    fn own_events_are_told_before_what_may_rest_on_them_and_after_the_next_look_at_the_latest() {
        let mut tail = Tail::after(Place::first_slot(7));
        assert_eq!(tail.begin(), (1, Place::first_slot(7)));
        assert!(tail.hold(own(1, 10)) && tail.hold(own(2, 20)));
        assert!(tail.after_look(1).is_none(), "that look may have begun before they were written");
        assert!(tail.before(10).is_none());
        assert_eq!(tail.before(11).map(|own| own.stamp), Some(10));
        assert!(tail.before(11).is_none() && tail.holds());
        let (second, _) = tail.begin();
        assert_eq!(tail.after_look(second).map(|own| own.stamp), Some(20));
        assert!(!tail.holds());
    }

    #[test]
    fn when_too_much_waits_to_be_told_everybody_reads_it() {
        let mut tail = Tail::default();
        assert!((0..HELD_MAX as u64).all(|number| tail.hold(own(number, number))));
        assert!(!tail.hold(own(0, 0)) && !tail.holds());
        assert!(tail.hold(own(1, 1)));
    }
}
