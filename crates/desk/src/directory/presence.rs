//! Who is there: whoever has a stream open or waits for work. In memory only; after a restart everybody is away until
//! they come back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use handover_kernel::{AgentId, Timestamp};

use handover_engine::clock::now;
use handover_engine::locks::lock;

/// How many agents that are away are remembered; beyond that the longest away are forgotten.
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
#[derive(Debug, Default)]
pub(super) struct Seen {
    everybody: Mutex<Everybody>,
}

#[derive(Debug, Default)]
struct Everybody {
    agents: BTreeMap<(Box<str>, AgentId), Here>,
    /// How many of them are not there.
    away: usize,
}

#[derive(Clone, Copy, Debug)]
struct Here {
    /// How many reasons there are to say that it is there.
    reasons: usize,
    last_seen: Timestamp,
}

/// As long as it is held, the agent is there.
#[derive(Debug)]
pub struct Present {
    seen: Arc<Seen>,
    key: (Box<str>, AgentId),
}

impl Seen {
    /// One more reason to say that an agent is there.
    pub(super) fn arrive(self: &Arc<Self>, tenant: &str, agent: &AgentId) -> Present {
        let key = (Box::from(tenant), agent.clone());
        self.note(key.clone(), |here| here.reasons += 1);
        Present { seen: Arc::clone(self), key }
    }

    /// An agent did something.
    pub(super) fn touch(&self, tenant: &str, agent: &AgentId) {
        self.note((tenant.into(), agent.clone()), |_| {});
    }

    pub(super) fn of(&self, tenant: &str, agent: &AgentId) -> Presence {
        let everybody = lock(&self.everybody);
        let found = everybody.agents.get(&(Box::from(tenant), agent.clone()));
        found.map_or_else(Presence::default, |here| Presence {
            online: here.reasons > 0,
            last_seen: Some(here.last_seen),
        })
    }

    fn note(&self, key: (Box<str>, AgentId), change: impl FnOnce(&mut Here)) {
        let mut everybody = lock(&self.everybody);
        let Everybody { agents, away } = &mut *everybody;
        let here = agents.entry(key).or_insert_with(|| {
            *away += 1;
            Here { reasons: 0, last_seen: Timestamp(0) }
        });
        *away -= usize::from(here.reasons == 0);
        here.last_seen = here.last_seen.max(now());
        change(here);
        *away += usize::from(here.reasons == 0);
        if *away > AWAY_MAX {
            everybody.forget();
        }
    }
}

impl Everybody {
    /// Forget the half of those who are away that has been so longest.
    fn forget(&mut self) {
        let is_away = |here: &&Here| here.reasons == 0;
        let mut times: Vec<Timestamp> =
            self.agents.values().filter(is_away).map(|here| here.last_seen).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        let mut left = middle;
        self.agents.retain(|_, here| {
            let forgotten = here.reasons == 0 && here.last_seen <= median && left > 0;
            left -= usize::from(forgotten);
            !forgotten
        });
        self.away = self.agents.values().filter(is_away).count();
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let key = (std::mem::take(&mut self.key.0), self.key.1.clone());
        self.seen.note(key, |here| here.reasons = here.reasons.saturating_sub(1));
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
        assert!(lock(&seen.everybody).agents.len() <= AWAY_MAX + 1);
        assert!(seen.of("t", &AgentId::from("0 is here")).online);
        drop(here);
    }
}
