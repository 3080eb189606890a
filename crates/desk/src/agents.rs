//! Who is there: registrations with the same rules and limits on every face.

use std::sync::Arc;

use handover_kernel::{AgentId, cut};
use prost::Message;

use crate::access::To;
use crate::audit::What;
use crate::caller::Caller;
use crate::directory::{Agent, Registered, Tool};
use crate::limit::Kind;
use crate::no::No;
use crate::{Desk, page};

/// How many agents of the directory are looked at together.
const PAGE: usize = 256;

/// How many messages a changed registration counts as: everybody in the tenant is told of it, and sees its tools anew.
const CHANGE_MESSAGES: u64 = 20;

impl Desk {
    /// Put the caller into the directory, or replace what it said before.
    pub async fn register(&self, caller: &Caller, agent: Agent) -> Result<Registered, No> {
        self.gate.admit(caller, Kind::Message)?;
        let agent = Agent { id: caller.agent.to_string(), ..agent };
        self.must_be_allowed_to_register(caller, &agent)?;
        self.gate.fits(caller, agent.encoded_len())?;
        let (directory, tenant) = (self.directory.clone(), caller.tenant.clone());
        // An agent that says the same again is not kept waiting.
        let is_known = directory.new_schemas(&tenant, &agent).is_empty();
        let check = move || directory.check(&tenant, agent);
        let checked = match is_known {
            true => check().0?,
            false => self.run_long(caller, check).await??,
        };
        let registered = self.directory.register(&caller.tenant, checked).await?;
        if registered.changed {
            self.gate.charge(caller, CHANGE_MESSAGES);
            self.gate.changed_agents(caller, What::AgentRegistered, caller.agent.as_str());
        }
        Ok(registered)
    }

    fn must_be_allowed_to_register(&self, caller: &Caller, agent: &Agent) -> Result<(), No> {
        let (access, name) = (self.directory.access(), caller.agent.as_str());
        if !access.may_register(&caller.tenant, name) {
            return Err(self.not_allowed(caller, format!("{name} may not register in the directory")));
        }
        let refused =
            agent.skills.iter().find(|skill| !access.allows(&caller.tenant, name, To::Register, &skill.name));
        match refused {
            Some(skill) => {
                let found = cut(&skill.name, 64);
                let what = format!("expected skills that {name} may register, found {found:?}");
                Err(self.not_allowed(caller, what))
            }
            None => Ok(()),
        }
    }

    /// What the access list does not allow, noted.
    pub(crate) fn not_allowed(&self, caller: &Caller, what: String) -> No {
        let no = No::NotAllowed { what };
        self.gate.forbade(caller, no.code());
        no
    }

    /// Take an agent out of the directory: the caller itself, or any if it is an administrator. False if it was not there.
    pub async fn unregister(&self, caller: &Caller, id: Option<&str>) -> Result<bool, No> {
        self.gate.admit(caller, Kind::Message)?;
        let id = match id.filter(|id| *id != caller.agent.as_str()) {
            None => caller.agent.clone(),
            Some(other) if self.gate.administers(caller) => AgentId::from(other),
            Some(_) => return Err(No::NotAdministrator { agent: caller.agent.clone() }),
        };
        let was_there = self.directory.unregister(&caller.tenant, &id).await?;
        if was_there {
            self.gate.changed_agents(caller, What::AgentUnregistered, id.as_str());
        }
        Ok(was_there)
    }

    /// Take an agent out of the directory and let others have the names that its skills were listed under, which it would
    /// keep otherwise. For administrators. False if it was not there and held no names.
    pub async fn free_names(&self, caller: &Caller, id: &str) -> Result<bool, No> {
        self.gate.admit(caller, Kind::Message)?;
        if !self.gate.administers(caller) {
            return Err(No::NotAdministrator { agent: caller.agent.clone() });
        }
        let freed = self.directory.free(&caller.tenant, &AgentId::from(id)).await?;
        if freed {
            self.gate.changed_agents(caller, What::AgentUnregistered, id);
        }
        Ok(freed)
    }

    /// What the skills of an agent are listed as, if the caller sees it.
    pub async fn listed(&self, caller: &Caller, id: &AgentId) -> Result<Vec<Arc<Tool>>, No> {
        match self.agent(caller, id.as_str()).await? {
            Some(_) => Ok(self.directory.listed(&caller.tenant, id).await?),
            None => Ok(Vec::new()),
        }
    }

    /// A page of the agents that the caller sees, and the cursor of the next.
    pub async fn agents(
        &self,
        caller: &Caller,
        after: Option<&str>,
        max: usize,
    ) -> Result<(Vec<Arc<Agent>>, Option<String>), No> {
        let after = page::name(after)?.map(AgentId::from);
        let page = self.directory.agents(&caller.tenant, &caller.agent, after.as_ref(), max).await?;
        let next = page.next.map(|id| page::of_name(id.as_str()));
        Ok((page.agents, next))
    }

    /// The agents that are in the directory and that the caller may give work to, at most so many.
    pub async fn hands(&self, caller: &Caller, max: usize) -> Result<Vec<AgentId>, No> {
        let (mut hands, mut after): (Vec<AgentId>, Option<AgentId>) = (Vec::new(), None);
        loop {
            let page = self.directory.agents(&caller.tenant, &caller.agent, after.as_ref(), PAGE).await?;
            let access = self.directory.access();
            let allowed = |id: &str| access.allows(&caller.tenant, caller.agent.as_str(), To::Delegate, id);
            let others = page.agents.iter().map(|agent| agent.id.as_str());
            let others = others.filter(|id| *id != caller.agent.as_str() && allowed(id));
            hands.extend(others.take(max - hands.len()).map(AgentId::from));
            match page.next {
                Some(next) if hands.len() < max => after = Some(next),
                Some(_) | None => return Ok(hands),
            }
        }
    }

    /// An agent of the caller's tenant, if the caller sees it.
    pub async fn agent(&self, caller: &Caller, id: &str) -> Result<Option<Arc<Agent>>, No> {
        let found = self.directory.get(&caller.tenant, &AgentId::from(id)).await?;
        Ok(found.filter(|agent| self.directory.sees(&caller.tenant, &caller.agent, agent)))
    }
}
