//! Who is there: registrations with the same rules and limits on every face.

use std::sync::Arc;

use handover_kernel::AgentId;
use prost::Message;

use crate::caller::Caller;
use crate::directory::{Agent, Registered};
use crate::limit::Kind;
use crate::no::No;
use crate::{Desk, page};

impl Desk {
    /// Put the caller into the directory, or replace what it said before.
    pub async fn register(&self, caller: &Caller, agent: Agent) -> Result<Registered, No> {
        self.gate.admit(caller, Kind::Message)?;
        let agent = Agent { id: caller.agent.to_string(), ..agent };
        self.gate.fits(caller, agent.encoded_len())?;
        Ok(self.directory.register(&caller.tenant, agent).await?)
    }

    /// Take an agent out of the directory: the caller itself, or any if it is an administrator. False if it was not there.
    pub async fn unregister(&self, caller: &Caller, id: Option<&str>) -> Result<bool, No> {
        self.gate.admit(caller, Kind::Message)?;
        let id = match id.filter(|id| *id != caller.agent.as_str()) {
            None => caller.agent.clone(),
            Some(other) if self.gate.administers(caller) => AgentId::from(other),
            Some(_) => return Err(No::NotAdministrator { agent: caller.agent.clone() }),
        };
        Ok(self.directory.unregister(&caller.tenant, &id).await?)
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

    /// An agent of the caller's tenant, if the caller sees it.
    pub async fn agent(&self, caller: &Caller, id: &str) -> Result<Option<Arc<Agent>>, No> {
        let found = self.directory.get(&caller.tenant, &AgentId::from(id)).await?;
        Ok(found.filter(|agent| agent.seen_by(&caller.agent)))
    }
}
