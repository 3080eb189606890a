//! Who is there: whoever has a stream open or waits for work. In memory only; after a restart everybody is away until
//! they come back.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use handover_kernel::{AgentId, Timestamp};

use handover_engine::clock::now;
use handover_engine::locks::lock;

/// Into how many parts the agents are split, so that they do not wait for each other.
const PARTS: usize = 64;

/// How many agents that are away are remembered; beyond that the longest away are forgotten, in each part by itself.
const AWAY_MAX: usize = 50_000;

/// Whether an agent is there, and when it last was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Whether it has a stream open or waits for work.
    pub online: bool,
    /// When it last did something; none if it has not since the server started, or long ago.
    pub last_seen: Option<Timestamp>,
}

/// Everybody who was seen.
#[derive(Debug)]
pub(super) struct Seen {
    parts: Vec<Mutex<Part>>,
    /// Agents choose their names: where one ends up must not be theirs to choose.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Part {
    /// By tenant, then by agent: found without making a key.
    tenants: BTreeMap<Box<str>, BTreeMap<AgentId, Here>>,
    /// How many of them are not there.
    away: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Here {
    /// How many reasons there are to say that it is there.
    reasons: usize,
    last_seen: Timestamp,
}

/// As long as it is held, the agent is there.
#[derive(Debug)]
pub struct Present {
    seen: Arc<Seen>,
    tenant: Box<str>,
    agent: AgentId,
}

impl Default for Seen {
    fn default() -> Self {
        Seen { parts: (0..PARTS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Seen {
    /// One more reason to say that an agent is there.
    pub(super) fn arrive(self: &Arc<Self>, tenant: &str, agent: &AgentId) -> Present {
        lock(self.part(tenant, agent)).note(tenant, agent, |here| here.reasons += 1);
        Present { seen: Arc::clone(self), tenant: tenant.into(), agent: agent.clone() }
    }

    /// An agent did something.
    pub(super) fn touch(&self, tenant: &str, agent: &AgentId) {
        lock(self.part(tenant, agent)).note(tenant, agent, |_| {});
    }

    pub(super) fn of(&self, tenant: &str, agent: &AgentId) -> Presence {
        let part = lock(self.part(tenant, agent));
        let found = part.tenants.get(tenant).and_then(|agents| agents.get(agent));
        found.map_or_else(Presence::default, |here| Presence {
            online: here.reasons > 0,
            last_seen: Some(here.last_seen),
        })
    }

    fn part(&self, tenant: &str, agent: &AgentId) -> &Mutex<Part> {
        let hash = self.hasher.hash_one((tenant, agent));
        &self.parts[(hash % PARTS as u64) as usize]
    }
}

impl Part {
    fn note(&mut self, tenant: &str, agent: &AgentId, change: impl FnOnce(&mut Here)) {
        let known = self.tenants.get_mut(tenant).and_then(|agents| agents.get_mut(agent));
        let here = match known {
            Some(here) => here,
            None => {
                self.away += 1;
                self.tenants.entry(tenant.into()).or_default().entry(agent.clone()).or_default()
            }
        };
        self.away -= usize::from(here.reasons == 0);
        here.last_seen = here.last_seen.max(now());
        change(here);
        self.away += usize::from(here.reasons == 0);
        if self.away > AWAY_MAX / PARTS {
            self.forget();
        }
    }

    /// Forget the half of those who are away that has been so longest.
    fn forget(&mut self) {
        let away = self.tenants.values().flat_map(BTreeMap::values).filter(|here| here.reasons == 0);
        let mut times: Vec<Timestamp> = away.map(|here| here.last_seen).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        let mut left = middle;
        self.tenants.retain(|_, agents| {
            agents.retain(|_, here| {
                let forgotten = here.reasons == 0 && here.last_seen <= median && left > 0;
                left -= usize::from(forgotten);
                !forgotten
            });
            !agents.is_empty()
        });
        self.away -= middle;
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut part = lock(self.seen.part(&self.tenant, &self.agent));
        part.note(&self.tenant, &self.agent, |here| here.reasons = here.reasons.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_there_as_long_as_one_reason_is_left() {
        let seen = Arc::new(Seen::default());
        let agent = AgentId::from("a");
        assert_eq!(seen.of("t", &agent), Presence { online: false, last_seen: None });
        let stream = seen.arrive("t", &agent);
        let waiting = seen.arrive("t", &agent);
        drop(stream);
        assert!(seen.of("t", &agent).online);
        assert!(!seen.of("other", &agent).online);
        drop(waiting);
        let gone = seen.of("t", &agent);
        assert!(!gone.online && gone.last_seen.is_some());
    }

    #[test]
    fn an_agent_that_does_something_was_seen_without_being_there() {
        let seen = Seen::default();
        seen.touch("t", &AgentId::from("a"));
        let found = seen.of("t", &AgentId::from("a"));
        assert!(!found.online && found.last_seen.is_some());
    }

    #[test]
    fn those_who_are_away_are_forgotten_in_the_end_and_those_who_are_there_are_not() {
        let seen = Arc::new(Seen::default());
        let here = seen.arrive("t", &AgentId::from("0 is here"));
        for number in 0..AWAY_MAX * 2 {
            seen.touch("t", &AgentId::from(format!("agent {number}")));
        }
        let known = |part: &Mutex<Part>| lock(part).tenants.values().map(BTreeMap::len).sum::<usize>();
        assert!(seen.parts.iter().map(known).sum::<usize>() <= AWAY_MAX + 1);
        assert!(seen.of("t", &AgentId::from("0 is here")).online);
        drop(here);
    }
}
