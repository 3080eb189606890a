//! What an agent sees of the skills of others: each as a tool with a name.
//!
//! Names are given out in the order in which the skills were first offered, and each skill takes the first of these
//! that is free: its own name, `agent.skill`, and both cut with a hash behind. So a skill that comes later never takes
//! the name of one that was there, and the same directory always gives the same names. When a skill goes, another may
//! move up to its shorter name; it can still be called by its longer one.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use handover_kernel::command::Contract;
use handover_kernel::{AgentId, Blob, Text};
use sha2::{Digest, Sha256};

use super::agent::{Skill, is_name};
use super::headers::Header;

/// How long the name of a tool may be.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

/// The tools that this server has itself. Their names have no dot, so a name with one is never theirs.
const BUILT_IN: &str = "delegate_task";
const BUILT_IN_PREFIXES: [&str; 4] = ["task_", "work_", "agent_", "handoff_"];

/// How many characters of an agent's and of a skill's name are left where they are cut.
const CUT_CHARS: usize = 27;

/// A skill of an agent, and what it takes to call it. Made once for each registration.
#[derive(Debug)]
pub struct Offer {
    /// Whose it is.
    pub agent: AgentId,
    /// What it is.
    pub skill: Skill,
    /// What it takes and returns, to be bound to the tasks that call it.
    pub contract: Arc<Contract>,
    headers: OnceLock<Vec<Header>>,
}

impl Offer {
    pub(super) fn new(agent: AgentId, skill: Skill) -> Offer {
        Offer { agent, contract: contract(&skill), skill, headers: OnceLock::new() }
    }

    /// The arguments that a client repeats in headers of HTTP.
    pub fn headers(&self) -> &[Header] {
        self.headers.get_or_init(|| self.skill.headers())
    }
}

fn contract(skill: &Skill) -> Arc<Contract> {
    Arc::new(Contract {
        skill: Text::from(&*skill.name),
        input: Blob::from(skill.input().as_bytes()),
        output: Blob::from(skill.output_schema.as_bytes()),
    })
}

/// A skill as somebody sees it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// What this caller calls it.
    pub name: Arc<str>,
    /// The skill.
    pub offer: Arc<Offer>,
}

/// All skills that one agent sees, by the names of the tools.
#[derive(Debug, Default)]
pub struct Catalogue {
    tools: Vec<Tool>,
    /// The longer names of those that are listed under a shorter one.
    aliases: BTreeMap<Arc<str>, usize>,
}

impl Catalogue {
    /// The catalogue of these skills.
    pub(super) fn of(mut offers: Vec<Arc<Offer>>) -> Catalogue {
        offers.sort_by(|one, other| order(one).cmp(&order(other)));
        let mut taken: BTreeMap<Arc<str>, Arc<Offer>> = BTreeMap::new();
        for offer in &offers {
            let names = names(offer.agent.as_str(), &offer.skill.name);
            if let Some(name) =
                names.into_iter().find(|name| free(name) && !taken.contains_key(name.as_str()))
            {
                taken.insert(name.into(), Arc::clone(offer));
            }
        }
        let tools: Vec<Tool> = taken.into_iter().map(|(name, offer)| Tool { name, offer }).collect();
        let mut catalogue = Catalogue { tools, aliases: BTreeMap::new() };
        let mut aliases: Vec<(usize, &Tool)> = catalogue.tools.iter().enumerate().collect();
        aliases.sort_by(|(_, one), (_, other)| order(&one.offer).cmp(&order(&other.offer)));
        let mut found = BTreeMap::new();
        for (place, tool) in aliases {
            let [_, longer @ ..] = names(tool.offer.agent.as_str(), &tool.offer.skill.name);
            for name in longer {
                if free(&name) && catalogue.place(&name).is_none() {
                    found.entry(name.into()).or_insert(place);
                }
            }
        }
        catalogue.aliases = found;
        catalogue
    }

    /// The tools, in the order of their names.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tools whose names come after this one.
    pub fn after(&self, name: &str) -> &[Tool] {
        &self.tools[self.tools.partition_point(|tool| &*tool.name <= name)..]
    }

    /// The tool of this name, which may be a longer one than is listed.
    pub fn find(&self, name: &str) -> Option<&Tool> {
        let place = self.place(name).or_else(|| self.aliases.get(name).copied())?;
        self.tools.get(place)
    }

    /// The tool that stands for a skill of an agent.
    pub fn skill(&self, agent: &AgentId, skill: &str) -> Option<&Tool> {
        // One of the names of a skill is its own: each leads to it or to another skill.
        let names = names(agent.as_str(), skill);
        let mut tools = names.iter().filter_map(|name| self.find(name));
        tools.find(|tool| tool.offer.agent == *agent && tool.offer.skill.name == skill)
    }

    /// Whether another catalogue shows the same: then nobody need be told of a change.
    pub fn same_as(&self, other: &Catalogue) -> bool {
        let same = |one: &Tool, other: &Tool| {
            // An offer is kept as long as its skill stays the same, so that most need no comparison.
            let same_offer = Arc::ptr_eq(&one.offer, &other.offer)
                || (one.offer.agent == other.offer.agent && one.offer.skill == other.offer.skill);
            one.name == other.name && same_offer
        };
        self.tools.len() == other.tools.len()
            && self.tools.iter().zip(&other.tools).all(|(one, other)| same(one, other))
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.tools.binary_search_by(|tool| (*tool.name).cmp(name)).ok()
    }
}

/// The order in which names are given out.
fn order(offer: &Offer) -> (u64, &AgentId, &str) {
    (offer.skill.offered_at, &offer.agent, &offer.skill.name)
}

/// Whether a name is one that a tool of an agent can have.
fn free(name: &str) -> bool {
    let built_in = name == BUILT_IN
        || (!name.contains('.') && BUILT_IN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    !built_in && name.len() <= TOOL_NAME_CHARS_MAX
}

/// The names that a skill can have, the nicest first. The last is never anybody else's.
fn names(agent: &str, skill: &str) -> [String; 4] {
    let clean = |text: &str| -> String {
        text.chars().map(|character| if is_name(character) { character } else { '_' }).collect()
    };
    let (nice_agent, nice_skill) = (clean(agent), clean(skill));
    let digest = Sha256::digest(format!("{agent}/{skill}"));
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digest: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
    let cut = |text: &str| text[..text.len().min(CUT_CHARS)].to_owned();
    [
        skill.to_owned(),
        format!("{nice_agent}.{nice_skill}"),
        format!("{}.{}_{}", cut(&nice_agent), cut(&nice_skill), &digest[..8]),
        format!("skill.{}", &digest[..56]),
    ]
}
