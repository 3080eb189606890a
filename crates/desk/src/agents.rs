//! Who is there: registrations with the same rules and limits on every face.

use std::sync::Arc;

use handover_kernel::{AgentId, cut};
use handover_store::SessionKey;
use prost::Message;

use crate::access::To;
use crate::audit::What;
use crate::caller::Caller;
use crate::directory::search::Query;
use crate::directory::{Agent, Found, Registered, Skill, Status, Tool};
use crate::limit::Kind;
use crate::no::No;
use crate::{Desk, page};

/// How many agents of the directory are looked at together.
const PAGE: usize = 256;

/// How many agents are looked at for names that are near, and how many are told.
const LOOKED_AT_MAX: usize = 1000;
const NEAREST_MAX: usize = 3;

/// How many words of agents are searched where the search is asked for: a fraction of a millisecond.
const SEARCHED_IN_PLACE_MAX: usize = 2000;

/// How many messages a changed registration counts as: everybody in the tenant is told of it, and sees its tools anew.
const CHANGE_MESSAGES: u64 = 20;

impl Desk {
    /// The agents that a call of a skill may be handed on to, of those that its agent names: whom the caller reaches.
    pub async fn successors(&self, caller: &Caller, skill: &Skill) -> Result<Vec<AgentId>, No> {
        let mut found = Vec::new();
        for name in skill.successors.iter().map(|name| AgentId::from(name.as_str())) {
            let one = std::slice::from_ref(&name);
            let away = self.directory.out_of_reach(&caller.tenant, &caller.agent, To::HandOn, one, None);
            if away.await?.is_none() && name != caller.agent && !found.contains(&name) {
                found.push(name);
            }
        }
        Ok(found)
    }

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
        self.directory.touch(&caller.tenant, &caller.agent);
        if registered.changed {
            self.gate.charge(caller, CHANGE_MESSAGES);
            self.gate.changed_agents(caller, What::AgentRegistered, caller.agent.as_str());
        }
        Ok(registered)
    }

    /// Say whether the caller takes work, with a short text for others about it. It must be registered.
    pub async fn set_status(&self, caller: &Caller, status: Status, text: &str) -> Result<(), No> {
        self.gate.admit(caller, Kind::Message)?;
        let set = self.directory.set_status(&caller.tenant, &caller.agent, status, text).await?;
        let what = || {
            format!("expected an agent of the directory, found that {} is not: register first", caller.agent)
        };
        if set.ok_or_else(|| No::NoSuchAgent { what: what() })? {
            self.gate.charge(caller, CHANGE_MESSAGES);
        }
        self.directory.touch(&caller.tenant, &caller.agent);
        Ok(())
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

    /// See that agents exist that a caller wants to give a task of this id to: one that is not registered, has no token and
    /// was never seen is most likely a slip. In development, where anybody may come, that is only a warning, which is
    /// returned. Of agents that the caller may not reach it is not told whether they are there, and a request that is sent
    /// again with its key is answered as it was, whoever has left since.
    pub async fn must_exist(
        &self,
        caller: &Caller,
        task: &str,
        agents: &[AgentId],
    ) -> Result<Option<String>, No> {
        let allowed = |id: &&AgentId| {
            **id == caller.agent
                || self.directory.access().allows(
                    &caller.tenant,
                    caller.agent.as_str(),
                    To::Delegate,
                    id.as_str(),
                )
        };
        // Those are refused as any command that brings them along is.
        if !agents.iter().all(|id| allowed(&id)) {
            return Ok(None);
        }
        for id in agents {
            if self.is_known(caller, id).await? {
                continue;
            }
            let mut what = format!("nobody has heard of an agent {:?}", cut(id.as_str(), 64));
            let nearest = self.nearest(caller, id.as_str()).await?;
            if !nearest.is_empty() {
                what += &format!("; the nearest names are {}", nearest.join(", "));
            }
            return match caller.proven && !self.is_begun(caller, task).await? {
                true => Err(No::NoSuchAgent { what }),
                false => Ok(Some(what).filter(|_| !caller.proven)),
            };
        }
        Ok(None)
    }

    /// Whether anybody has heard of an agent of this name. One that shows itself only to others is refused as such, as
    /// everywhere.
    async fn is_known(&self, caller: &Caller, id: &AgentId) -> Result<bool, No> {
        let has_token = self.gate.tokens().is_some_and(|tokens| tokens.has_agent(&caller.tenant, id));
        Ok(has_token || self.directory.knows(&caller.tenant, id).await?)
    }

    /// Whether the caller has begun a session of this id.
    async fn is_begun(&self, caller: &Caller, session: &str) -> Result<bool, No> {
        let key = SessionKey::new(caller.tenant.clone(), session);
        let there = self.engine.session(key).await?;
        Ok(there.is_some_and(|session| session.binding.requester == caller.agent))
    }

    /// The ids that read most like this one, of agents that the caller sees.
    async fn nearest(&self, caller: &Caller, id: &str) -> Result<Vec<String>, No> {
        let (mut near, mut after) = (Vec::<(usize, String)>::new(), None);
        let mut looked_at = 0;
        while looked_at < LOOKED_AT_MAX {
            let page = self.directory.agents(&caller.tenant, &caller.agent, after.as_ref(), PAGE).await?;
            looked_at += page.agents.len();
            let others = page.agents.iter().filter(|agent| agent.id != caller.agent.as_str());
            near.extend(others.map(|agent| (distance(id, &agent.id), agent.id.clone())));
            near.retain(|(distance, other)| *distance <= other.chars().count().max(4) / 2);
            near.sort();
            near.truncate(NEAREST_MAX);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(near.iter().map(|(_, id)| format!("{id:?}")).collect())
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

    /// A page of the agents that the caller sees and that match what it looks for, the best first, and the cursor of the next.
    pub async fn search(
        &self,
        caller: &Caller,
        query: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<(Vec<Found>, Option<String>), No> {
        let (query, after) = (Query::parse(query)?, page::rank(after)?);
        let (words, moment) = self.directory.searched(&caller.tenant).await?;
        let (directory, who) = (self.directory.clone(), caller.principal.clone());
        let search = move || directory.search(&moment, &who.tenant, &who.agent, &query, after.as_ref(), max);
        match words <= SEARCHED_IN_PLACE_MAX {
            true => Ok(search().0),
            false => self.run_long(caller, search).await,
        }
    }

    /// The agents that are in the directory and that the caller may give work to, at most so many.
    pub async fn hands(&self, caller: &Caller, max: usize) -> Result<Vec<AgentId>, No> {
        let (mut hands, mut after): (Vec<AgentId>, Option<AgentId>) = (Vec::new(), None);
        loop {
            let page = self.directory.agents(&caller.tenant, &caller.agent, after.as_ref(), PAGE).await?;
            let access = self.directory.access();
            let allowed = |id: &str| access.allows(&caller.tenant, caller.agent.as_str(), To::Delegate, id);
            // Whoever is not to be disturbed is asked by name alone, and refuses.
            let free = page.agents.iter().filter(|agent| agent.status() != Status::DoNotDisturb);
            let others = free.map(|agent| agent.id.as_str());
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

/// How many characters must be put in, left out or replaced to make one text of the other, whatever their case.
fn distance(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.chars().take(64).flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (one, other) = (letters(one), letters(other));
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (place, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != wanted);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}
