//! How many sessions each agent has open. What spans sessions is the engine's, not the kernel's.

use std::collections::BTreeMap;

use handover_kernel::Refusal;

/// Open sessions per agent, counted from the store at the start and kept up as sessions come and go.
#[derive(Debug)]
pub struct Quota {
    open_max: u64,
    open: BTreeMap<Place, u64>,
}

/// Whose sessions are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    tenant: Box<str>,
    agent: Box<str>,
}

impl Place {
    /// Of an agent in a tenant.
    pub fn new(tenant: &str, agent: &str) -> Place {
        Place { tenant: tenant.into(), agent: agent.into() }
    }
}

impl Quota {
    /// Nothing is counted yet.
    pub fn new(open_max: u64) -> Quota {
        Quota { open_max, open: BTreeMap::new() }
    }

    /// What the store says: tenant, agent, count. Forgets what was counted before.
    pub fn recount(&mut self, counts: Vec<(Box<str>, Box<str>, u64)>) {
        self.open =
            counts.into_iter().map(|(tenant, agent, count)| (Place { tenant, agent }, count)).collect();
    }

    /// Take a place for a session that is about to start.
    pub fn reserve(&mut self, place: Place) -> Result<Place, Refusal> {
        let open = self.open.entry(place.clone()).or_default();
        if *open >= self.open_max {
            return Err(Refusal::TooManySessions { limit: self.open_max });
        }
        *open += 1;
        Ok(place)
    }

    /// Give a place back: the session did not start, or has ended.
    pub fn release(&mut self, place: &Place) {
        if let Some(open) = self.open.get_mut(place) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.open.remove(place);
            }
        }
    }

    /// How many sessions the agent has open.
    pub fn open(&self, place: &Place) -> u64 {
        self.open.get(place).copied().unwrap_or_default()
    }
}
