//! What many sessions have in common, kept once: the names of agents, versions and policies, and the contracts of skills. A
//! session then holds a reference instead of a copy of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_kernel::command::{Act, Command, Contract, Opening, Request, Start, TaskAct};
use handover_kernel::id::Author;
use handover_kernel::{AgentId, Event, Fact, Session, Text};

/// How many names are kept: beyond that it begins anew, and sessions keep what they have.
const NAMES_MAX: usize = 10_000;

/// Longer texts are no names.
const NAME_BYTES_MAX: usize = 128;

/// How many bytes the contracts may have together: beyond that they begin anew too.
const CONTRACTS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The names and contracts that were seen lately.
#[derive(Debug, Default)]
pub struct Names {
    agents: BTreeSet<AgentId>,
    texts: BTreeSet<Text>,
    contracts: BTreeSet<Arc<Contract>>,
    contracts_bytes: usize,
}

impl Names {
    /// Let a command share the names that it gives to its session.
    pub fn share_command(&mut self, command: &mut Command) {
        self.author(&mut command.by);
        match &mut command.act {
            Act::Start(start) => self.start(start),
            Act::Delegate(delegation) => {
                self.start(&mut delegation.start);
                if let Opening::Request(request) = &mut delegation.opening {
                    self.request(request);
                }
            }
            Act::Task(TaskAct::Request(request)) => self.request(request),
            Act::Cancel { .. }
            | Act::Pause { .. }
            | Act::Resume { .. }
            | Act::Tick
            | Act::Commit(_)
            | Act::Decide { .. }
            | Act::Task(_)
            | Act::Handoff(_)
            | Act::SettleErrand { .. } => {}
        }
    }

    /// Let an event that was read share its names.
    pub fn share_event(&mut self, event: &mut Event) {
        self.author(&mut event.author);
        if let Fact::Started(started) = &mut event.fact {
            self.start(&mut started.start);
        }
        if let Fact::Requested(request) = &mut event.fact {
            self.request(request);
        }
    }

    /// Let a session that was kept share its names.
    pub fn share_session(&mut self, session: &mut Session) {
        let Some(binding) = Arc::get_mut(&mut session.binding) else {
            return;
        };
        self.agent(&mut binding.requester);
        for agent in &mut binding.participants {
            self.agent(agent);
        }
        let versions = &mut binding.versions;
        for text in [&mut versions.mode, &mut versions.configuration, &mut versions.policy] {
            self.text(text);
        }
        if let Some(contract) = &mut binding.contract {
            self.contract(contract);
        }
    }

    fn request(&mut self, request: &mut Request) {
        if let Some(agent) = &mut request.assignee {
            self.agent(agent);
        }
    }

    fn start(&mut self, start: &mut Start) {
        for agent in &mut start.participants {
            self.agent(agent);
        }
        self.text(&mut start.mode_version);
        self.text(&mut start.configuration_version);
        self.text(&mut start.policy_version);
        if let Some(contract) = &mut start.contract {
            self.contract(contract);
        }
    }

    fn contract(&mut self, contract: &mut Arc<Contract>) {
        if let Some(same) = self.contracts.get(contract) {
            *contract = Arc::clone(same);
            return;
        }
        // What a set costs for each counts as well: a contract may be empty.
        let bytes = contract.weight() + NAME_BYTES_MAX;
        if bytes > CONTRACTS_BYTES_MAX {
            return;
        }
        if self.contracts_bytes + bytes > CONTRACTS_BYTES_MAX {
            self.contracts.clear();
            self.contracts_bytes = 0;
        }
        self.contracts_bytes += bytes;
        self.contracts.insert(Arc::clone(contract));
    }

    fn author(&mut self, author: &mut Author) {
        if let Author::Agent(agent) = author {
            self.agent(agent);
        }
    }

    fn agent(&mut self, agent: &mut AgentId) {
        let bytes = agent.as_str().len();
        share(&mut self.agents, agent, bytes);
    }

    fn text(&mut self, text: &mut Text) {
        let bytes = text.len();
        share(&mut self.texts, text, bytes);
    }
}

fn share<T: Clone + Ord>(known: &mut BTreeSet<T>, name: &mut T, bytes: usize) {
    if let Some(same) = known.get(name) {
        *name = same.clone();
    } else if bytes <= NAME_BYTES_MAX {
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert(name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_kept_once() {
        let mut names = Names::default();
        let (mut one, mut two) = (Text::from("policy.default"), Text::from("policy.default"));
        names.text(&mut one);
        names.text(&mut two);
        assert!(std::sync::Arc::ptr_eq(&one, &two));
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut names = Names::default();
        for number in 0..NAMES_MAX * 2 + 1 {
            names.agent(&mut AgentId::from(format!("agent {number}")));
            assert!(names.agents.len() <= NAMES_MAX);
        }
        names.text(&mut Text::from("x".repeat(NAME_BYTES_MAX + 1)));
        assert!(names.texts.is_empty());
    }

    fn contract(skill: usize, bytes: usize) -> Arc<Contract> {
        let schema = vec![b' '; bytes].into();
        Arc::new(Contract { skill: Text::from(skill.to_string()), input: schema, output: [].into() })
    }

    #[test]
    fn equal_contracts_are_kept_once_and_so_many_bytes_of_them() {
        let mut names = Names::default();
        let (mut one, mut two) = (contract(1, 1_000), contract(1, 1_000));
        names.contract(&mut one);
        names.contract(&mut two);
        assert!(Arc::ptr_eq(&one, &two));
        for skill in 0..10 {
            names.contract(&mut contract(skill, CONTRACTS_BYTES_MAX / 4));
            let kept: usize = names.contracts.iter().map(|contract| contract.weight()).sum();
            assert!(kept <= names.contracts_bytes && names.contracts_bytes <= CONTRACTS_BYTES_MAX);
        }
        let count = names.contracts.len();
        names.contract(&mut contract(11, CONTRACTS_BYTES_MAX));
        assert_eq!(names.contracts.len(), count);
    }
}
