//! What an agent sees of the skills of others: each as a tool, under the name that it is listed by.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use handover_kernel::command::Contract;
use handover_kernel::{AgentId, Blob, Text};

use super::agent::Skill;
use super::headers::Header;
use super::listed::Names;

/// A skill of an agent, and what it takes to call it. Made once for each registration.
#[derive(Debug)]
pub struct Tool {
    /// What it is listed as.
    pub name: Arc<str>,
    /// Whose it is.
    pub agent: AgentId,
    /// What it is.
    pub skill: Skill,
    /// What it takes and returns, to be bound to the tasks that call it.
    pub contract: Arc<Contract>,
    headers: OnceLock<Vec<Header>>,
}

impl Tool {
    pub(super) fn new(name: Arc<str>, agent: AgentId, skill: Skill) -> Tool {
        Tool { name, agent, contract: contract(&skill), skill, headers: OnceLock::new() }
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

/// All skills that one agent sees, by the names of the tools.
#[derive(Debug, Default)]
pub struct Catalogue {
    tools: Vec<Arc<Tool>>,
    /// The names with dots that earlier releases listed.
    dotted: BTreeMap<String, Arc<Tool>>,
}

impl Catalogue {
    /// The catalogue of these tools.
    pub(super) fn of(mut tools: Vec<Arc<Tool>>, names: &Names) -> Catalogue {
        let mut dotted = BTreeMap::new();
        tools.sort_by(|one, other| order(one).cmp(&order(other)));
        for tool in &tools {
            for name in names.dotted(&tool.agent, &tool.skill.name) {
                dotted.entry(name).or_insert_with(|| Arc::clone(tool));
            }
        }
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        Catalogue { tools, dotted }
    }

    /// The tools, in the order of their names.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// The tools whose names come after this one.
    pub fn after(&self, name: &str) -> &[Arc<Tool>] {
        &self.tools[self.tools.partition_point(|tool| &*tool.name <= name)..]
    }

    /// The tool that is listed under this name, or was by an earlier release.
    pub fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        let listed = self.tools.binary_search_by(|tool| (*tool.name).cmp(name)).ok();
        listed.and_then(|place| self.tools.get(place)).or_else(|| self.dotted.get(name))
    }

    /// Whether another catalogue shows the same: then nobody need be told of a change.
    pub fn same_as(&self, other: &Catalogue) -> bool {
        let same = |one: &Arc<Tool>, other: &Arc<Tool>| {
            // A tool is kept as long as its skill stays the same, so that most need no comparison.
            Arc::ptr_eq(one, other)
                || (&one.name, &one.agent, &one.skill) == (&other.name, &other.agent, &other.skill)
        };
        self.tools.len() == other.tools.len()
            && self.tools.iter().zip(&other.tools).all(|(one, other)| same(one, other))
    }
}

/// The order in which skills were first offered.
fn order(tool: &Tool) -> (u64, &AgentId, &str) {
    (tool.skill.offered_at, &tool.agent, &tool.skill.name)
}
