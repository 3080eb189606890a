//! The names under which skills are listed as tools. Agents call their skills what they like; what others see is given out
//! here, once for each tenant, first come, and kept: also when the skill or its agent goes, until an operator frees it.
//!
//! A listed name is one that every model API takes: letters, digits, `_` and `-`, at most 64. No two read alike, none reads
//! like a tool of this server, and none reads like `agent_skill` of another's. A skill takes the first of these that is
//! free: its own name, `agent_skill`, `skill_agent_skill`, and both cut with a hash behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use handover_kernel::AgentId;
use prost::Message;
use sha2::{Digest, Sha256};

use super::agent::is_name;

/// How long a listed name may be.
pub const NAME_CHARS_MAX: usize = 64;

/// How many names may be held: they are kept when their skills go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// By an agent.
    pub per_agent: usize,
    /// By all agents of a tenant together.
    pub per_tenant: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { per_agent: 1024, per_tenant: 100_000 }
    }
}

/// What every name is that is this server's own, now or later.
const RESERVED_PREFIXES: [&str; 4] = ["task_", "work_", "agent_", "handoff_"];

/// The tools that this server has, and those of the Grid: names that read like them without their separators are theirs too.
const RESERVED: [&str; 44] = [
    "agent_list",
    "agent_register",
    "agent_unregister",
    "delegate_task",
    "handoff_accept",
    "handoff_commit",
    "handoff_decline",
    "handoff_list",
    "handoff_offer",
    "handoff_status",
    "message_ack",
    "search_agents",
    "send_message",
    "send_task",
    "set_status",
    "task_answer",
    "task_cancel",
    "task_commit",
    "task_propose",
    "approval_list",
    "approval_decide",
    "task_complete",
    "task_list",
    "task_message",
    "task_pause",
    "task_read",
    "task_reject",
    "task_resume",
    "task_status",
    "task_steer",
    "task_timeline",
    "task_update",
    "task_wait",
    "work_accept",
    "work_ask",
    "work_checkpoint",
    "work_complete",
    "work_decline",
    "work_fail",
    "work_hold",
    "work_list",
    "work_next",
    "work_resume",
    "work_update",
];

/// How many characters of an agent's and of a skill's name are left where they are cut.
const CUT_CHARS: usize = 24;

/// As many as names of earlier releases had.
const DOTTED_CUT_CHARS: usize = 27;

/// The names that an agent holds, as they are stored. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Holding {
    #[prost(message, repeated, tag = "1")]
    pub(super) names: Vec<Held>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Held {
    /// The skill that is listed so.
    #[prost(string, tag = "1")]
    pub(super) skill: String,
    /// The name.
    #[prost(string, tag = "2")]
    pub(super) name: String,
    /// The how manieth name of its tenant it is: first come is first served, also when they are read again.
    #[prost(uint64, tag = "3")]
    pub(super) number: u64,
}

/// The names of an agent, and their numbers, by skill.
type OfAgent = BTreeMap<Box<str>, (Arc<str>, u64)>;

/// All names of a tenant.
#[derive(Debug, Default)]
pub(super) struct Names {
    held: BTreeMap<AgentId, OfAgent>,
    /// Whose each name is, as it reads: listed ones, and `agent_skill` of each skill that was the first to be read so.
    claims: BTreeMap<Box<str>, (AgentId, Box<str>)>,
    count: usize,
    last: u64,
}

impl Names {
    /// The names that are stored.
    pub(super) fn read(holdings: Vec<(AgentId, Holding)>) -> Names {
        let mut all: Vec<(AgentId, Held)> = Vec::new();
        for (agent, holding) in holdings {
            all.extend(holding.names.into_iter().map(|held| (agent.clone(), held)));
        }
        all.sort_by_key(|(_, held)| held.number);
        let mut names = Names::default();
        for (agent, held) in all {
            names.hold(&agent, &held.skill, held.name.into(), held.number);
        }
        names
    }

    /// What a skill is listed as.
    pub(super) fn of(&self, agent: &AgentId, skill: &str) -> Option<Arc<str>> {
        self.held.get(agent)?.get(skill).map(|(name, _)| Arc::clone(name))
    }

    /// Whether there is room for so many more names of an agent, or else what was expected.
    pub(super) fn has_room_for(&self, agent: &AgentId, more: usize, bounds: Bounds) -> Result<(), String> {
        let Bounds { per_agent, per_tenant } = bounds;
        let own = self.held.get(agent).map_or(0, BTreeMap::len) + more;
        if own > per_agent {
            return Err(format!(
                "expected at most {per_agent} names of skills for an agent, past ones included, found {own}; an \
                 operator can free them"
            ));
        }
        if self.count + more > per_tenant {
            return Err(format!(
                "expected at most {per_tenant} names of skills in a tenant, past ones included, found more; an operator can \
                 free them"
            ));
        }
        Ok(())
    }

    /// Give a skill its name, unless it has one.
    pub(super) fn give(&mut self, agent: &AgentId, skill: &str) {
        if self.of(agent, skill).is_some() {
            return;
        }
        let free = |name: &String| {
            let owner = self.claims.get(&*as_read(name));
            !is_reserved(name) && owner.is_none_or(|owner| is(owner, agent, skill))
        };
        let name = candidates(agent.as_str(), skill).into_iter().find(free);
        // The last candidate is a hash of both, so that another's is not to be found.
        let name = name.unwrap_or_else(|| format!("skill_{}", digest(agent.as_str(), skill)));
        self.hold(agent, skill, name.into(), self.last + 1);
    }

    fn hold(&mut self, agent: &AgentId, skill: &str, name: Arc<str>, number: u64) {
        let owner = || (agent.clone(), Box::from(skill));
        self.claims.insert(as_read(&name).into(), owner());
        if let Some(qualified) = qualified(agent.as_str(), skill) {
            self.claims.entry(as_read(&qualified).into()).or_insert_with(owner);
        }
        self.last = self.last.max(number);
        let before = self.held.entry(agent.clone()).or_default().insert(skill.into(), (name, number));
        self.count += usize::from(before.is_none());
    }

    /// What an agent holds, to be stored.
    pub(super) fn holding(&self, agent: &AgentId) -> Holding {
        let held = self.held.get(agent).into_iter().flatten();
        let names = held.map(|(skill, (name, number))| Held {
            skill: skill.to_string(),
            name: name.to_string(),
            number: *number,
        });
        Holding { names: names.collect() }
    }

    /// Whether an agent holds any.
    pub(super) fn has(&self, agent: &AgentId) -> bool {
        self.held.contains_key(agent)
    }

    /// Let others have the names of an agent.
    pub(super) fn free(&mut self, agent: &AgentId) {
        self.count -= self.held.remove(agent).map_or(0, |held| held.len());
        self.claims.retain(|_, (owner, _)| owner != agent);
    }

    /// The names with dots that earlier releases could list a skill under, except those that read like another's.
    pub(super) fn dotted(&self, agent: &AgentId, skill: &str) -> impl Iterator<Item = String> {
        let own = |name: &String| {
            let owner = self.claims.get(&*as_read(name));
            name.contains('.') && owner.is_none_or(|owner| is(owner, agent, skill))
        };
        dotted(agent.as_str(), skill).into_iter().filter(move |name| own(name))
    }
}

fn is(owner: &(AgentId, Box<str>), agent: &AgentId, skill: &str) -> bool {
    owner.0 == *agent && &*owner.1 == skill
}

/// A name as somebody reads it who does not look closely: without case and separators, and with characters that look alike
/// made the same.
fn as_read(name: &str) -> String {
    let seen = name.chars().filter(|character| !"_-.".contains(*character));
    seen.map(|character| match character.to_ascii_lowercase() {
        '0' => 'o',
        '1' | 'i' => 'l',
        other => other,
    })
    .collect()
}

/// Whether a name is, or reads like, one of this server's own.
pub fn is_reserved(name: &str) -> bool {
    static OWN: LazyLock<BTreeSet<String>> =
        LazyLock::new(|| RESERVED.iter().map(|name| as_read(name)).collect());
    let plain = name.to_ascii_lowercase();
    let read = as_read(name);
    read.is_empty() || OWN.contains(&read) || RESERVED_PREFIXES.iter().any(|prefix| plain.starts_with(prefix))
}

/// A text as part of a listed name: what cannot be in one becomes a single `_`.
fn part(text: &str) -> String {
    let fits = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let words = text.split(|character: char| !fits(character)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// `agent_skill`, if that is a name at all.
fn qualified(agent: &str, skill: &str) -> Option<String> {
    let agent = part(agent.strip_prefix("agent://").unwrap_or(agent));
    let name = format!("{agent}_{}", part(skill));
    (!agent.is_empty() && name.len() <= NAME_CHARS_MAX).then_some(name)
}

/// The names that a skill can be listed under, the nicest first.
fn candidates(agent: &str, skill: &str) -> Vec<String> {
    let own = skill.replace('.', "_");
    let cut = |text: &str| part(text).chars().take(CUT_CHARS).collect::<String>();
    let hashed = format!("skill_{}_{}_{}", cut(agent), cut(skill), &digest(agent, skill)[..8]);
    let (plain, marked) = match qualified(agent, skill) {
        Some(name) => (Some(name.clone()), Some(format!("skill_{name}"))),
        None => (None, None),
    };
    let all = [Some(own), plain, marked, Some(hashed)];
    all.into_iter().flatten().filter(|name| name.len() <= NAME_CHARS_MAX).collect()
}

/// The names that earlier releases could list a skill under.
fn dotted(agent: &str, skill: &str) -> [String; 3] {
    let clean = |text: &str| -> String {
        text.chars().map(|character| if is_name(character) { character } else { '_' }).collect()
    };
    let (nice_agent, nice_skill) = (clean(agent), clean(skill));
    let cut = |text: &str| text[..text.len().min(DOTTED_CUT_CHARS)].to_owned();
    let hashed = format!("{}.{}_{}", cut(&nice_agent), cut(&nice_skill), &digest(agent, skill)[..8]);
    [skill.to_owned(), format!("{nice_agent}.{nice_skill}"), hashed]
}

/// What tells a skill of an agent from all others, as 56 digits.
fn digest(agent: &str, skill: &str) -> String {
    let digest = Sha256::digest(format!("{agent}/{skill}"));
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).take(56).collect()
}
