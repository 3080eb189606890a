//! Who is there: whoever has a stream open or waits for work. In memory only; after a restart everybody is away until
//! they come back. Nodes tell each other of theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock};

use handover_kernel::{AgentId, Timestamp};
use handover_store::Slot;
use prost::Message;

use handover_engine::clock::now;
use handover_engine::locks::lock;

/// Into how many parts the agents are split, so that they do not wait for each other.
const PARTS: usize = 64;

/// How many agents that are away are remembered; beyond that the longest away are forgotten, in each part by itself.
const AWAY_MAX: usize = 50_000;

/// How often other nodes are told of an agent that does something.
const TOLD_EVERY_MS: u64 = 60_000;

/// How often it is noted that an agent only asks.
const GLIMPSED_EVERY_MS: u64 = 1000;

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
    others: OnceLock<Others>,
}

/// Tenant and agent.
type Name = (Box<str>, AgentId);

/// What nodes know of each other's agents.
#[derive(Debug, Default)]
struct Others {
    /// Whose presence the others have not been told.
    untold: Mutex<BTreeSet<Name>>,
    /// Who was seen at which other node.
    elsewhere: Mutex<BTreeMap<Slot, Elsewhere>>,
}

/// Who was seen at another node.
#[derive(Debug, Default)]
struct Elsewhere {
    /// Whether that node is there: who was seen at one that is not is away, until it is there again.
    live: bool,
    agents: BTreeMap<Name, Presence>,
}

/// An agent that a node saw, as it tells the others.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Sighting {
    #[prost(string, tag = "1")]
    pub(crate) tenant: String,
    #[prost(string, tag = "2")]
    pub(crate) agent: String,
    #[prost(bool, tag = "3")]
    pub(crate) online: bool,
    /// In milliseconds of the Unix epoch.
    #[prost(uint64, tag = "4")]
    pub(crate) last_seen: u64,
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
    /// When the other nodes were last told.
    told_at: Timestamp,
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
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        Seen { parts, hasher: RandomState::new(), others: OnceLock::new() }
    }
}

impl Seen {
    /// One more reason to say that an agent is there.
    pub(super) fn arrive(self: &Arc<Self>, tenant: &str, agent: &AgentId) -> Present {
        self.note(tenant, agent, |here| here.reasons += 1);
        Present { seen: Arc::clone(self), tenant: tenant.into(), agent: agent.clone() }
    }

    /// An agent did something.
    pub(super) fn touch(&self, tenant: &str, agent: &AgentId) {
        self.note(tenant, agent, |_| {});
    }

    /// An agent asked for something, which is worth a note once a second.
    pub(super) fn glimpse(&self, tenant: &str, agent: &AgentId) {
        let seen = self.here(tenant, agent).last_seen;
        if seen.is_none_or(|seen| now().since(seen) >= GLIMPSED_EVERY_MS) {
            self.touch(tenant, agent);
        }
    }

    pub(super) fn of(&self, tenant: &str, agent: &AgentId) -> Presence {
        let here = self.here(tenant, agent);
        let Some(others) = self.others.get() else { return here };
        let name = (Box::from(tenant), agent.clone());
        let elsewhere = lock(&others.elsewhere);
        let found = elsewhere.values().filter_map(|node| Some((node.live, node.agents.get(&name)?)));
        found.fold(here, |one, (live, other)| Presence {
            online: one.online || live && other.online,
            last_seen: one.last_seen.max(other.last_seen),
        })
    }

    /// The same at this node.
    fn here(&self, tenant: &str, agent: &AgentId) -> Presence {
        let part = lock(self.part(tenant, agent));
        let found = part.tenants.get(tenant).and_then(|agents| agents.get(agent));
        found.map_or_else(Presence::default, |here| Presence {
            online: here.reasons > 0,
            last_seen: Some(here.last_seen),
        })
    }

    fn note(&self, tenant: &str, agent: &AgentId, change: impl FnOnce(&mut Here)) {
        let news = lock(self.part(tenant, agent)).note(tenant, agent, change);
        if let Some(others) = self.others.get().filter(|_| news) {
            lock(&others.untold).insert((tenant.into(), agent.clone()));
        }
    }

    /// There are other nodes from now on.
    pub(super) fn share(&self) {
        self.others.get_or_init(Others::default);
    }

    /// What the other nodes are to be told, at most so much of it.
    pub(super) fn untold(&self, max: usize) -> Vec<Sighting> {
        let Some(others) = self.others.get() else { return Vec::new() };
        let mut untold = lock(&others.untold);
        let told: Vec<_> = std::iter::from_fn(|| untold.pop_first()).take(max).collect();
        drop(untold);
        let sighting = |(tenant, agent): Name| {
            let Presence { online, last_seen } = self.here(&tenant, &agent);
            let (tenant, agent) = (tenant.into(), agent.as_str().to_owned());
            Sighting { tenant, agent, online, last_seen: last_seen.unwrap_or_default().0 }
        };
        told.into_iter().map(sighting).collect()
    }

    /// Another node has just come, or missed something: tell of everybody again.
    pub(super) fn tell_again(&self) {
        let Some(others) = self.others.get() else { return };
        for part in &self.parts {
            let part = lock(part);
            let all = part
                .tenants
                .iter()
                .flat_map(|(tenant, agents)| agents.keys().map(move |agent| (tenant, agent)));
            lock(&others.untold).extend(all.map(|(tenant, agent)| (tenant.clone(), agent.clone())));
        }
    }

    /// What another node saw.
    pub(super) fn heard(&self, by: Slot, sightings: Vec<Sighting>) {
        let Some(others) = self.others.get() else { return };
        let mut elsewhere = lock(&others.elsewhere);
        let Elsewhere { live, agents } = elsewhere.entry(by).or_default();
        *live = true;
        for Sighting { tenant, agent, online, last_seen } in sightings {
            let presence = Presence { online, last_seen: Some(Timestamp(last_seen)) };
            agents.insert((tenant.into(), AgentId::from(agent)), presence);
        }
        if agents.len() > 2 * AWAY_MAX {
            agents.retain(|_, presence| presence.online);
        }
    }

    /// Another node tells of everybody from now on: whom its slot's holder saw before is away, unless it says so again.
    pub(super) fn begins(&self, by: Slot) {
        let Some(others) = self.others.get() else { return };
        if let Some(node) = lock(&others.elsewhere).get_mut(&by) {
            node.agents.values_mut().for_each(|presence| presence.online = false);
        }
    }

    /// These nodes are there.
    pub(super) fn live(&self, slots: &[Slot]) {
        let Some(others) = self.others.get() else { return };
        for (slot, node) in &mut *lock(&others.elsewhere) {
            node.live = slots.contains(slot);
        }
    }

    fn part(&self, tenant: &str, agent: &AgentId) -> &Mutex<Part> {
        let hash = self.hasher.hash_one((tenant, agent));
        &self.parts[(hash % PARTS as u64) as usize]
    }
}

impl Part {
    /// Says whether other nodes should be told.
    fn note(&mut self, tenant: &str, agent: &AgentId, change: impl FnOnce(&mut Here)) -> bool {
        let known = self.tenants.get_mut(tenant).and_then(|agents| agents.get_mut(agent));
        let here = match known {
            Some(here) => here,
            None => {
                self.away += 1;
                self.tenants.entry(tenant.into()).or_default().entry(agent.clone()).or_default()
            }
        };
        let was_away = here.reasons == 0;
        self.away -= usize::from(was_away);
        here.last_seen = here.last_seen.max(now());
        change(here);
        let is_away = here.reasons == 0;
        self.away += usize::from(is_away);
        let news = was_away != is_away || here.last_seen.0 > here.told_at.0 + TOLD_EVERY_MS;
        if news {
            here.told_at = here.last_seen;
        }
        if self.away > AWAY_MAX / PARTS {
            self.forget();
        }
        news
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
        self.seen.note(&self.tenant, &self.agent, |here| here.reasons = here.reasons.saturating_sub(1));
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
    fn nodes_tell_each_other_of_their_agents_and_those_of_a_node_that_is_gone_are_away() {
        let (one, two) = (Arc::new(Seen::default()), Seen::default());
        let agent = AgentId::from("a");
        let before = one.arrive("t", &agent);
        [&*one, &two].into_iter().for_each(Seen::share);
        assert_eq!(one.untold(10), [], "nobody asked yet");
        one.tell_again();
        let told = |seen: &Seen| two.heard(Slot(1), seen.untold(10));
        told(&one);
        assert!(two.of("t", &agent).online && !two.of("u", &agent).online);
        let again = one.arrive("t", &agent);
        drop(before);
        assert_eq!(one.untold(10), [], "it is there as before");
        drop(again);
        told(&one);
        assert!(!two.of("t", &agent).online && two.of("t", &agent).last_seen.is_some());
        let _stays = one.arrive("t", &agent);
        told(&one);
        two.live(&[Slot(0), Slot(1)]);
        assert!(two.of("t", &agent).online);
        two.live(&[Slot(0)]);
        assert!(!two.of("t", &agent).online);
        two.live(&[Slot(0), Slot(1)]);
        assert!(two.of("t", &agent).online, "the node was not seen for a while");
        two.begins(Slot(1));
        assert!(!two.of("t", &agent).online, "another process holds the slot");
        one.tell_again();
        told(&one);
        assert!(two.of("t", &agent).online);
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
