//! How many sessions each agent has open. What spans sessions is the engine's, not the kernel's.

use std::collections::BTreeMap;

use handover_kernel::Refusal;
use handover_store::Position;

/// Open sessions per agent, counted from the store at the start and kept up as sessions come and go.
#[derive(Debug, Default)]
pub struct Quota {
    counts: BTreeMap<Place, Count>,
    /// What other nodes did up to here is counted, if there are others.
    counted: Option<handover_store::Place>,
}

/// Whose sessions are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    tenant: Box<str>,
    agent: Box<str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Less than none for a moment, when the end of a session that another node has ended is heard of before its start
    /// here is known to be durable.
    open: i64,
    /// Starts that have not been answered yet.
    starting: u64,
}

impl Place {
    /// Of an agent in a tenant.
    pub fn new(tenant: &str, agent: &str) -> Place {
        Place { tenant: tenant.into(), agent: agent.into() }
    }
}

impl Count {
    fn open(self) -> u64 {
        u64::try_from(self.open).unwrap_or(0)
    }
}

impl Quota {
    /// What the store says as it was at a place: tenant, agent, count. To be called when every answer of the store has been
    /// dealt with, for it forgets what was counted before.
    pub fn recount(&mut self, open: Vec<(Box<str>, Box<str>, u64)>, place: Option<handover_store::Place>) {
        self.counted = place;
        for count in self.counts.values_mut() {
            count.open = 0;
        }
        for (tenant, agent, open) in open {
            self.counts.entry(Place { tenant, agent }).or_default().open = open.cast_signed();
        }
        self.counts.retain(|_, count| *count != Count::default());
    }

    /// Take a place for a session that is about to start, of an agent that may have so many open.
    pub fn reserve(&mut self, place: Place, open_max: u64) -> Result<Place, Refusal> {
        let count = self.counts.get(&place).copied().unwrap_or_default();
        if count.open().saturating_add(count.starting) >= open_max {
            return Err(Refusal::TooManySessions { limit: open_max });
        }
        self.change(&place, |count| count.starting += 1);
        Ok(place)
    }

    /// The session has started.
    pub fn started(&mut self, place: &Place) {
        self.change(place, |count| {
            count.starting = count.starting.saturating_sub(1);
            count.open += 1;
        });
    }

    /// A session has started on another node, or ended there.
    pub fn elsewhere(&mut self, place: &Place, at: Position, started: bool, ended: bool) {
        if self.counted.as_ref().is_some_and(|counted| !counted.is_before(at)) {
            return;
        }
        let count = |count: &mut Count| count.open += i64::from(started) - i64::from(ended);
        if started || ended {
            self.change(place, count);
        }
    }

    /// It did not start after all.
    pub fn abandoned(&mut self, place: &Place) {
        self.change(place, |count| count.starting = count.starting.saturating_sub(1));
    }

    /// It has ended.
    pub fn ended(&mut self, place: &Place) {
        // Another node may have started it, unheard as yet.
        let least = if self.counted.is_some() { i64::MIN } else { 0 };
        self.change(place, |count| count.open = (count.open - 1).max(least));
    }

    /// How many sessions each agent has open, as the store would say it.
    pub fn open(&self) -> Vec<(Box<str>, Box<str>, u64)> {
        let open = self.counts.iter().filter(|(_, count)| count.open > 0);
        open.map(|(place, count)| (place.tenant.clone(), place.agent.clone(), count.open())).collect()
    }

    /// How many starts have not been answered yet.
    pub fn starting(&self) -> u64 {
        self.counts.values().map(|count| count.starting).sum()
    }

    fn change(&mut self, place: &Place, change: impl FnOnce(&mut Count)) {
        let count = self.counts.entry(place.clone()).or_default();
        change(count);
        if *count == Count::default() {
            self.counts.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> Place {
        Place::new("t", "ada")
    }

    fn open(count: u64) -> Vec<(Box<str>, Box<str>, u64)> {
        vec![("t".into(), "ada".into(), count)]
    }

    #[test]
    fn a_place_is_taken_by_a_start_and_given_back_by_an_end() {
        let mut quota = Quota::default();
        let first = quota.reserve(ada(), 2).unwrap();
        quota.reserve(ada(), 2).unwrap();
        assert_eq!(
            quota.reserve(ada(), 2),
            Err(Refusal::TooManySessions { limit: 2 }),
            "those under way count"
        );
        quota.started(&first);
        assert_eq!(quota.open(), open(1));
        quota.abandoned(&ada());
        quota.reserve(ada(), 2).unwrap();
        quota.started(&ada());
        assert!(quota.reserve(ada(), 2).is_err());
        quota.ended(&ada());
        assert!(quota.reserve(ada(), 2).is_ok());
    }

    #[test]
    fn agents_and_tenants_are_counted_apart() {
        let mut quota = Quota::default();
        for place in [ada(), Place::new("t", "ben"), Place::new("u", "ada")] {
            let place = quota.reserve(place, 1).unwrap();
            quota.started(&place);
        }
        assert!(quota.reserve(ada(), 1).is_err());
        quota.ended(&Place::new("u", "ada"));
        assert!(quota.reserve(ada(), 1).is_err());
    }

    #[test]
    fn a_recount_forgets_what_was_counted_and_keeps_what_is_under_way() {
        let mut quota = Quota::default();
        quota.reserve(ada(), 3).unwrap();
        quota.started(&ada());
        quota.reserve(ada(), 3).unwrap();
        quota.reserve(Place::new("t", "ben"), 3).unwrap();
        quota.started(&Place::new("t", "ben"));
        quota.recount(open(2), None);
        assert_eq!(quota.open(), open(2), "ben has none");
        assert!(quota.reserve(ada(), 3).is_err(), "two are open, one is under way");
        quota.abandoned(&ada());
        assert!(quota.reserve(ada(), 3).is_ok());
    }

    #[test]
    fn an_agent_with_nothing_open_takes_no_memory() {
        let mut quota = Quota::default();
        for index in 0..100 {
            let place = quota.reserve(Place::new("t", &format!("{index}")), 1).unwrap();
            if index % 2 == 0 {
                quota.abandoned(&place);
            } else {
                quota.started(&place);
                quota.ended(&place);
            }
        }
        assert!(quota.counts.is_empty());
        quota.ended(&ada());
        assert!(quota.counts.is_empty(), "an end that was never counted does no harm");
    }
}
