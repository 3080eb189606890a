//! Where things stand among all events, and how far somebody has read.
//!
//! Each writer appends to a *slot* of its own, in which nothing ever appears before something that is there. There is no
//! order over all slots: a *place* is one number for each. A store with one writer has one slot, the first.

use std::collections::BTreeMap;
use std::fmt;

/// The log of one writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// Where an event stands among all events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// In whose log.
    pub slot: Slot,
    /// The first is 1, in the order of the commits. Appends leave no holes; deleting a finished session does.
    pub number: u64,
}

impl Position {
    /// In the first slot, which is the only one of most stores.
    pub fn first_slot(number: u64) -> Position {
        Position { slot: Slot(0), number }
    }

    /// So many further in its slot.
    pub fn plus(self, count: u64) -> Position {
        Position { number: self.number + count, ..self }
    }
}

/// How far somebody has read: up to a number in each slot, the beginning where it says nothing.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// In the first slot, without the room that a map takes: most stores have no other.
    first: u64,
    others: BTreeMap<Slot, u64>,
}

/// How many slots a place that comes from outside may name.
const SLOTS_MAX: usize = 1024;

impl Place {
    /// Up to a number in the first slot.
    pub fn first_slot(number: u64) -> Place {
        Place { first: number, others: BTreeMap::new() }
    }

    /// The number up to which a slot has been read.
    pub fn number(&self, slot: Slot) -> u64 {
        match slot {
            Slot(0) => self.first,
            slot => self.others.get(&slot).copied().unwrap_or(0),
        }
    }

    /// Whether something is further than what has been read.
    pub fn is_before(&self, position: Position) -> bool {
        self.number(position.slot) < position.number
    }

    /// Read up to a position, unless that was read before. Says whether it was not.
    pub fn reach(&mut self, position: Position) -> bool {
        let fresh = self.is_before(position);
        if fresh {
            match position.slot {
                Slot(0) => self.first = position.number,
                slot => _ = self.others.insert(slot, position.number),
            }
        }
        fresh
    }

    /// As it was just before a position was read.
    pub fn short_of(mut self, position: Position) -> Place {
        let before = position.number.saturating_sub(1);
        match position.slot {
            Slot(0) => self.first = before,
            slot => _ = self.others.insert(slot, before),
        }
        self
    }

    /// Read all that the other has.
    pub fn join(&mut self, other: &Place) {
        for position in other.positions() {
            self.reach(position);
        }
    }

    /// The last position that was read in each slot that was read at all.
    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        let first = Some(Position::first_slot(self.first)).filter(|position| position.number > 0);
        let others = self.others.iter().map(|(slot, number)| Position { slot: *slot, number: *number });
        first.into_iter().chain(others)
    }

    /// Whether everything that the other has read has been read.
    pub fn covers(&self, other: &Place) -> bool {
        other.positions().all(|position| !self.is_before(position))
    }

    /// How many numbers further the other is than this one, over all slots.
    pub fn behind(&self, other: &Place) -> u64 {
        let more = |position: Position| position.number.saturating_sub(self.number(position.slot));
        other.positions().map(more).sum()
    }

    /// A place that somebody outside has kept as a text. None if it is none.
    pub fn parse(text: &str) -> Option<Place> {
        let mut parts = text.strip_prefix('e')?.split('_');
        let mut place = Place::first_slot(hex(parts.next()?)?);
        for (count, part) in parts.enumerate() {
            let (slot, number) = part.split_once('.').filter(|_| count < SLOTS_MAX)?;
            let slot = u16::try_from(hex(slot)?).ok().filter(|slot| *slot > 0)?;
            let position = Position { slot: Slot(slot), number: hex(number)? };
            place.reach(position).then_some(())?;
        }
        Some(place)
    }
}

/// Digits alone: what else a number may begin with is not taken.
fn hex(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

/// As a text that means nothing to whoever keeps it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{:x}", self.first)?;
        self.others.iter().try_for_each(|(slot, number)| write!(f, "_{:x}.{number:x}", slot.0))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(slot: u16, number: u64) -> Position {
        Position { slot: Slot(slot), number }
    }

    #[test]
    fn a_place_reaches_each_slot_by_itself() {
        let mut place = Place::default();
        assert!(place.reach(at(0, 3)) && place.reach(at(7, 2)) && place.reach(at(0, 4)));
        assert!(!place.reach(at(0, 4)) && !place.reach(at(7, 1)));
        assert_eq!((place.number(Slot(0)), place.number(Slot(7)), place.number(Slot(1))), (4, 2, 0));
        let mut other = Place::first_slot(9);
        assert_eq!((place.behind(&other), other.behind(&place)), (5, 2));
        assert!(!place.covers(&other) && !other.covers(&place));
        other.join(&place);
        assert!(other.covers(&place));
        assert_eq!(other.positions().collect::<Vec<_>>(), [at(0, 9), at(7, 2)]);
    }

    #[test]
    fn a_place_is_a_text_and_back() {
        let mut place = Place::first_slot(31);
        assert_eq!(place.to_string(), "e1f", "as releases with one slot wrote it");
        place.reach(at(1, 5));
        place.reach(at(300, 16));
        assert_eq!(place.to_string(), "e1f_1.5_12c.10");
        assert_eq!(Place::parse("e1f_1.5_12c.10"), Some(place));
        assert_eq!(Place::parse("e0"), Some(Place::default()));
        let long = format!("e1{}", "_1.1".repeat(SLOTS_MAX + 2));
        for bad in
            ["", "1f", "e", "e+1", "e-1", "e1_", "e1_0.5", "e1_1", "e1_1.", "e1_10000.1", "e1_1.5_1.5", &long]
        {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
