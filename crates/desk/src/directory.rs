//! The directory of agents: who they are, what they can do, who sees them, and who is there. Durable, except for who is
//! there; every face reads and writes it.
//!
//! - [`agent`]: an agent and its skills, and what they may be
//! - [`headers`]: the arguments of a skill that are repeated in headers
//! - [`listed`]: what skills are listed as
//! - [`catalogue`]: the skills that one agent sees, as tools
//! - [`presence`]: who is there
//! - [`search`]: finding agents by words
//!
//! A tenant's part is read once and held in memory; a read never waits for the disk after that. Changes of a tenant
//! happen one after the other: first on disk, then in memory, then whoever listens is told.

pub mod agent;
pub mod catalogue;
pub mod headers;
pub mod listed;
pub mod presence;
pub mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use handover_kernel::{AgentId, Refusal};
use handover_store::{Change, Fault, Over, Put, Record, Slot, Store, is_full};
use prost::Message;
use tokio::sync::watch;

pub use self::agent::{Agent, Answers, Skill, Status};
pub use self::catalogue::{Catalogue, Tool};
use self::listed::{Holding, Names};
use self::presence::Seen;
pub(crate) use self::presence::Sighting;
pub use self::presence::{Presence, Present};
pub use self::search::Found;
use self::search::Words;
use handover_engine::clock::now;
use handover_engine::locks::lock;
use handover_engine::{Denied, Engine};

use crate::access::{Access, To};
use crate::reading::until_first;
use crate::{page, visible};

/// The records that hold agents, and those that hold the names that their skills are listed under.
pub(crate) const SPACE: &str = "agent";
pub(crate) const NAMES_SPACE: &str = "listed";

/// The records that say how often the agents and names of a tenant were changed: who changes them on what another node has
/// changed begins again.
pub(crate) const VERSIONS_SPACE: &str = "directory";

/// How many agents are read at a time.
const PAGE: usize = 256;

/// How many agents a tenant may have, and how many bytes they may take together: all are held in memory.
pub const AGENTS_MAX: usize = 10_000;
/// See [`AGENTS_MAX`].
pub const TENANT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many tenants are held in memory before those that nobody uses are let go of.
const TENANTS_MAX: usize = 1000;

/// How many tools the catalogues that are kept for a tenant's callers have together.
const CATALOGUE_TOOLS_MAX: usize = 200_000;

/// What became of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Whether it said anything new.
    pub changed: bool,
}

/// Why agents are not given what a caller wants to give them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The caller may not reach this one, or does not see it.
    Hidden(AgentId),
    /// Nobody is left who takes new tasks; this is one of those who do not.
    Undisturbed(Arc<Agent>),
}

/// An agent that may be registered.
#[derive(Clone, Debug)]
pub struct Checked(Agent);

/// A page of agents, in the order of their ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The agents.
    pub agents: Vec<Arc<Agent>>,
    /// The last of them, if there are more.
    pub next: Option<AgentId>,
}

/// The agents of all tenants. Cheap to clone; all clones are the same directory.
#[derive(Clone)]
pub struct Directory {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    access: Access,
    /// How many names its skills may be listed under.
    names: listed::Bounds,
    tenants: Mutex<BTreeMap<Box<str>, Arc<Tenant>>>,
    seen: Arc<Seen>,
    /// Knows what other nodes did; none where there are none.
    engine: Option<Engine>,
}

/// What is held of a tenant.
struct Tenant {
    /// Held by whoever reads it from disk or changes it.
    writer: Mutex<()>,
    /// None before it is first read, and after a change that may have happened or not.
    roll: RwLock<Option<Arc<Roll>>>,
    /// How many changes there were.
    changes: watch::Sender<u64>,
    /// How many of them were heard of from other nodes.
    heard: AtomicU64,
}

/// The agents of a tenant at one moment. Never changed, only replaced.
#[derive(Default)]
struct Roll {
    /// As it is stored.
    version: Option<Vec<u8>>,
    agents: BTreeMap<AgentId, Entry>,
    /// Of this moment and of those before and after it, until they are read from disk again: whoever holds the tenant's
    /// writer adds to them.
    names: Arc<RwLock<Names>>,
    /// What callers see of it, made when they ask.
    catalogues: Mutex<BTreeMap<AgentId, Arc<Catalogue>>>,
}

#[derive(Clone)]
struct Entry {
    agent: Arc<Agent>,
    tools: Vec<Arc<Tool>>,
    words: Arc<Words>,
    bytes: usize,
}

impl Directory {
    /// The directory in a store, in which everybody reaches everybody.
    pub fn new(store: Arc<dyn Store>) -> Directory {
        Directory::with(store, Access::default(), listed::Bounds::default(), None)
    }

    /// The directory in a store, under this access list.
    pub fn with(
        store: Arc<dyn Store>,
        access: Access,
        names: listed::Bounds,
        engine: Option<Engine>,
    ) -> Directory {
        let (tenants, seen) = (Mutex::default(), Arc::new(Seen::default()));
        Directory { inner: Arc::new(Inner { store, access, names, tenants, seen, engine }) }
    }

    /// Another node changed something of a tenant, or of any.
    pub(crate) fn heard(&self, tenant: Option<&str>) {
        self.inner.heard(tenant);
    }

    /// There are other nodes: each tells the others who is there.
    pub(crate) fn share_presence(&self) {
        self.inner.seen.share();
    }

    /// Whose presence the other nodes are to be told, at most so many.
    pub(crate) fn untold(&self, max: usize) -> Vec<Sighting> {
        self.inner.seen.untold(max)
    }

    /// Tell the other nodes of everybody again.
    pub(crate) fn tell_again(&self) {
        self.inner.seen.tell_again();
    }

    /// Another node saw these.
    pub(crate) fn saw(&self, by: Slot, sightings: Vec<Sighting>) {
        self.inner.seen.heard(by, sightings);
    }

    /// Another node tells of everybody from now on.
    pub(crate) fn begins(&self, by: Slot) {
        self.inner.seen.begins(by);
    }

    /// These nodes are there.
    pub(crate) fn live(&self, slots: &[Slot]) {
        self.inner.seen.live(slots);
    }

    /// Whether records of this space are the directory's.
    pub(crate) fn has_space(space: &str) -> bool {
        [SPACE, NAMES_SPACE].contains(&space)
    }

    /// The access list.
    pub fn access(&self) -> &Access {
        &self.inner.access
    }

    /// The first of these agents that the caller may not reach so, by the access list or because that agent shows itself
    /// only to others. One that is not in the directory shows itself to everybody. If all are reached and are to be given
    /// work: whoever of them takes no new tasks, if the one that is meant for it, or everybody, does not.
    pub async fn out_of_reach(
        &self,
        tenant: &str,
        caller: &AgentId,
        to: To,
        agents: &[AgentId],
        meant: Option<&AgentId>,
    ) -> Result<Option<Unreached>, Denied> {
        let roll = self.roll(tenant).await?;
        let reached = |agent: &AgentId| {
            let shown = roll.agents.get(agent).is_none_or(|entry| entry.agent.seen_by(caller));
            shown && self.inner.access.allows(tenant, caller.as_str(), to, agent.as_str())
        };
        let others = || agents.iter().filter(|agent| *agent != caller);
        if let Some(hidden) = others().find(|agent| !reached(agent)) {
            return Ok(Some(Unreached::Hidden(hidden.clone())));
        }
        if to != To::Delegate {
            return Ok(None);
        }
        // Only of those who are reached may anything be told.
        let meant = meant.filter(|meant| others().any(|agent| agent == *meant));
        let undisturbed = |agent: &AgentId| {
            let entry = roll.agents.get(agent)?;
            (entry.agent.status() == Status::DoNotDisturb).then(|| Arc::clone(&entry.agent))
        };
        let found = match meant {
            Some(meant) => undisturbed(meant),
            None => {
                others().map(undisturbed).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next())
            }
        };
        Ok(found.map(Unreached::Undisturbed))
    }

    /// Hear of changes in a tenant: the number is another one after each.
    pub fn changes(&self, tenant: &str) -> watch::Receiver<u64> {
        self.inner.tenant(tenant).changes.subscribe()
    }

    /// See that an agent may be registered, and say how many steps that took. Takes long if it has new schemas.
    pub fn check(&self, tenant: &str, mut agent: Agent) -> (Result<Checked, Denied>, u64) {
        agent.faces.sort();
        agent.faces.dedup();
        agent.clean();
        if let Err(what) = agent.check() {
            return (Err(invalid(what)), 0);
        }
        let mut steps = 0;
        for skill in self.new_schemas(tenant, &agent) {
            match skill.compile() {
                Ok(taken) => steps += taken,
                Err(what) => return (Err(invalid(format!("skill {:?}: {what}", skill.name))), steps),
            }
        }
        (Ok(Checked(agent)), steps)
    }

    /// The skills of an agent whose schemas are not those of one that it is known to have.
    pub fn new_schemas<'a>(&self, tenant: &str, agent: &'a Agent) -> Vec<&'a Skill> {
        let roll = self.inner.tenant(tenant).roll();
        let before = roll.as_ref().and_then(|roll| roll.agents.get(&AgentId::from(agent.id.as_str())));
        let known: BTreeSet<(&str, &str)> =
            before.iter().flat_map(|before| &before.agent.skills).map(Skill::schemas).collect();
        agent.skills.iter().filter(|skill| !known.contains(&skill.schemas())).collect()
    }

    /// Register an agent, or replace what it said before. Saying the same again changes nothing. The directory itself
    /// says when it was registered and since when each skill is offered.
    pub async fn register(&self, tenant: &str, agent: Checked) -> Result<Registered, Denied> {
        self.blocking(tenant, move |inner, name, tenant| inner.register(name, tenant, agent)).await
    }

    /// Set the status of an agent, with what it says about it. None if there is no such agent, or else whether it said
    /// anything new.
    pub async fn set_status(
        &self,
        tenant: &str,
        id: &AgentId,
        status: Status,
        text: &str,
    ) -> Result<Option<bool>, Denied> {
        let (id, text) = (id.clone(), text.to_owned());
        self.blocking(tenant, move |inner, name, tenant| inner.set_status(name, tenant, &id, status, text))
            .await
    }

    /// Remove an agent. False if there was none. It keeps the names that its skills were listed under.
    pub async fn unregister(&self, tenant: &str, id: &AgentId) -> Result<bool, Denied> {
        let id = id.clone();
        self.blocking(tenant, move |inner, name, tenant| inner.unregister(name, tenant, &id, false)).await
    }

    /// Remove an agent and free the names that its skills were listed under, for others. False if there was neither.
    pub async fn free(&self, tenant: &str, id: &AgentId) -> Result<bool, Denied> {
        let id = id.clone();
        self.blocking(tenant, move |inner, name, tenant| inner.unregister(name, tenant, &id, true)).await
    }

    /// What the skills of an agent are listed as, in the order of the skills.
    pub async fn listed(&self, tenant: &str, id: &AgentId) -> Result<Vec<Arc<Tool>>, Denied> {
        let roll = self.roll(tenant).await?;
        Ok(roll.agents.get(id).map_or_else(Vec::new, |entry| entry.tools.clone()))
    }

    /// One agent, whoever asks.
    pub async fn get(&self, tenant: &str, id: &AgentId) -> Result<Option<Arc<Agent>>, Denied> {
        let roll = self.roll(tenant).await?;
        Ok(roll.agents.get(id).map(|entry| Arc::clone(&entry.agent)))
    }

    /// Whether an agent is or was there: it is registered, or was, or has been seen since the server started.
    pub async fn knows(&self, tenant: &str, id: &AgentId) -> Result<bool, Denied> {
        let roll = self.roll(tenant).await?;
        let known = roll.agents.contains_key(id) || read(&roll.names).has(id);
        Ok(known || self.presence(tenant, id).last_seen.is_some())
    }

    /// The same without waiting for the disk, for what is in memory: whether it is or was registered.
    pub fn knows_now(&self, tenant: &str, id: &AgentId) -> bool {
        let roll = self.inner.tenant(tenant).roll();
        roll.is_some_and(|roll| roll.agents.contains_key(id) || read(&roll.names).has(id))
    }

    /// Whether an agent sees another of its tenant.
    pub fn sees(&self, tenant: &str, caller: &AgentId, agent: &Agent) -> bool {
        let allowed = self.inner.access.allows(tenant, caller.as_str(), To::See, &agent.id);
        allowed && agent.seen_by(caller)
    }

    /// A page of the agents that `visible_to` sees, itself included: those after `after`, at most `max`, cut by bytes.
    pub async fn agents(
        &self,
        tenant: &str,
        visible_to: &AgentId,
        after: Option<&AgentId>,
        max: usize,
    ) -> Result<Page, Denied> {
        let roll = self.roll(tenant).await?;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = roll.agents.range((start, Bound::Unbounded)).map(|(_, entry)| &entry.agent);
        let mut seen = entries.filter(|agent| self.sees(tenant, visible_to, agent));
        let agents = page::cut(seen.by_ref().take(max).cloned(), |agent| agent.encoded_len());
        let more = seen.next().is_some();
        let next = agents.last().filter(|_| more).map(|agent| AgentId::from(agent.id.as_str()));
        Ok(Page { agents, next })
    }

    /// The skills of others that an agent sees and may call.
    pub async fn skills(&self, tenant: &str, caller: &AgentId) -> Result<Arc<Catalogue>, Denied> {
        let allowed =
            |agent: &AgentId| self.inner.access.allows(tenant, caller.as_str(), To::Delegate, agent.as_str());
        Ok(self.roll(tenant).await?.catalogue(caller, allowed))
    }

    /// Say that an agent is there, for as long as the answer is kept.
    pub fn present(&self, tenant: &str, id: &AgentId) -> Present {
        self.inner.seen.arrive(tenant, id)
    }

    /// Say that an agent did something just now.
    pub fn touch(&self, tenant: &str, id: &AgentId) {
        self.inner.seen.touch(tenant, id);
    }

    /// Say that an agent asked for something just now.
    pub fn glimpse(&self, tenant: &str, id: &AgentId) {
        self.inner.seen.glimpse(tenant, id);
    }

    /// Whether an agent is there.
    pub fn presence(&self, tenant: &str, id: &AgentId) -> Presence {
        self.inner.seen.of(tenant, id)
    }

    async fn roll(&self, tenant: &str) -> Result<Arc<Roll>, Denied> {
        self.fresh().await?;
        if let Some(roll) = self.inner.tenant(tenant).roll() {
            return Ok(roll);
        }
        self.blocking(tenant, |inner, name, tenant| {
            let _writing = lock(&tenant.writer);
            inner.load(name, tenant)
        })
        .await
    }

    /// What other nodes have changed is known from here on, also to whoever changes something because of it.
    async fn fresh(&self) -> Result<(), Denied> {
        match &self.inner.engine {
            Some(engine) => engine.fresh().await,
            None => Ok(()),
        }
    }

    /// Do something that may wait for the disk. It is done to its end even if nobody waits for it any more, so that
    /// memory never falls behind the disk.
    async fn blocking<R: Send + 'static>(
        &self,
        tenant: &str,
        work: impl FnOnce(&Inner, &str, &Tenant) -> Result<R, Denied> + Send + 'static,
    ) -> Result<R, Denied> {
        self.fresh().await?;
        let (inner, name) = (Arc::clone(&self.inner), Box::<str>::from(tenant));
        let work = move || {
            let tenant = inner.tenant(&name);
            work(&inner, &name, &tenant)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(Denied::Stopping))
    }
}

impl Inner {
    fn tenant(&self, name: &str) -> Arc<Tenant> {
        let mut tenants = lock(&self.tenants);
        if let Some(tenant) = tenants.get(name) {
            return Arc::clone(tenant);
        }
        if tenants.len() >= TENANTS_MAX {
            // Whoever is at work on one holds it, and whoever listens to one is subscribed.
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1 || tenant.changes.receiver_count() > 0);
        }
        let (writer, roll, changes) = (Mutex::default(), RwLock::default(), watch::Sender::new(0));
        let tenant = Arc::new(Tenant { writer, roll, changes, heard: AtomicU64::new(0) });
        tenants.insert(name.into(), Arc::clone(&tenant));
        tenant
    }

    /// What is stored of a tenant, unless it was read before. Its writer is the caller.
    fn load(&self, name: &str, tenant: &Tenant) -> Result<Arc<Roll>, Denied> {
        if let Some(roll) = tenant.roll() {
            return Ok(roll);
        }
        let heard = tenant.heard.load(Ordering::Acquire);
        // First of all: if the rest is newer, a change begins again.
        let version = self.store.record(VERSIONS_SPACE, name, "").map_err(fault)?;
        let mut holdings = Vec::new();
        self.each_record(NAMES_SPACE, name, |key, value| {
            holdings.push((key, decode_names(&value)?));
            Ok(())
        })?;
        let mut stored = Vec::new();
        self.each_record(SPACE, name, |key, value| {
            let mut agent = decode(&value)?;
            // One that an earlier release took may say what this one would not.
            agent.name = visible::title(&agent.name);
            agent.clean();
            stored.push((key, agent));
            Ok(())
        })?;
        let mut names = Names::read(holdings);
        self.name_older(name, &mut names, &stored)?;
        let entry = |(id, agent): (AgentId, Agent)| (id, Entry::new(agent, None, &names));
        let agents = stored.into_iter().map(entry).collect();
        let names = Arc::new(RwLock::new(names));
        let roll = Arc::new(Roll { version, agents, names, catalogues: Mutex::default() });
        tenant.replace(Some(Arc::clone(&roll)));
        if tenant.heard.load(Ordering::Acquire) != heard {
            // Some of it may be from before: it is read again next time.
            tenant.replace(None);
        }
        Ok(roll)
    }

    fn each_record(
        &self,
        space: &str,
        tenant: &str,
        mut take: impl FnMut(AgentId, Vec<u8>) -> Result<(), Denied>,
    ) -> Result<(), Denied> {
        let mut after: Option<Box<str>> = None;
        loop {
            let page = self.store.records(space, tenant, after.as_deref(), PAGE).map_err(fault)?;
            let full = is_full(&page, PAGE);
            after = page.last().map(|record| record.key.clone());
            for record in page {
                take(AgentId::from(&*record.key), record.value)?;
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Give names to the skills of agents that an earlier release took, in the order in which they were offered.
    fn name_older(&self, tenant: &str, names: &mut Names, agents: &[(AgentId, Agent)]) -> Result<(), Denied> {
        let skills = agents.iter().flat_map(|(id, agent)| agent.skills.iter().map(move |skill| (id, skill)));
        let mut older: Vec<(&AgentId, &Skill)> =
            skills.filter(|(id, skill)| names.of(id, &skill.name).is_none()).collect();
        older.sort_by_key(|(id, skill)| (skill.offered_at, *id, skill.name.as_str()));
        for (id, skill) in &older {
            names.give(id, &skill.name);
        }
        let named: BTreeSet<&AgentId> = older.into_iter().map(|(id, _)| id).collect();
        named.into_iter().try_for_each(|id| self.write_names(tenant, names, id))
    }

    fn write_names(&self, tenant: &str, names: &Names, id: &AgentId) -> Result<(), Denied> {
        let record = record(NAMES_SPACE, tenant, id.as_str(), names.holding(id).encode_to_vec());
        self.store.put_record(&record, Put::Replace).map_err(fault).map(|_| ())
    }

    /// Do something on what is stored of a tenant, again if another node changed it meanwhile. Its writer is the caller.
    fn on_roll<R>(
        &self,
        name: &str,
        tenant: &Tenant,
        attempt: impl Fn(&Arc<Roll>) -> Result<Option<R>, Denied>,
    ) -> Result<R, Denied> {
        until_first(|| {
            let done = attempt(&self.load(name, tenant)?)?;
            if done.is_none() {
                tenant.replace(None);
            }
            Ok(done)
        })
    }

    /// Change what is stored of a tenant, from this roll to the next one of these agents. None if another node was first.
    fn change(
        &self,
        name: &str,
        tenant: &Tenant,
        roll: &Roll,
        changes: Vec<Change>,
        agents: BTreeMap<AgentId, Entry>,
    ) -> Result<Option<Roll>, Denied> {
        let version =
            roll.version.as_deref().and_then(|version| std::str::from_utf8(version).ok()?.parse().ok());
        let version = version.map_or(1, |version: u64| version + 1).to_string().into_bytes();
        let mut changes = changes;
        changes.push(Change::since(record(VERSIONS_SPACE, name, "", version.clone()), roll.version.clone()));
        match self.store.change_records(&changes).map_err(fault) {
            Ok(true) => Ok(Some(roll.with(agents, Some(version)))),
            Ok(false) => Ok(None),
            Err(denied) => {
                // It may have happened or not.
                tenant.change(None);
                Err(denied)
            }
        }
    }

    fn register(&self, name: &str, tenant: &Tenant, agent: Checked) -> Result<Registered, Denied> {
        let _writing = lock(&tenant.writer);
        self.on_roll(name, tenant, |roll| {
            let Checked(mut agent) = agent.clone();
            let id = AgentId::from(agent.id.as_str());
            let before = roll.agents.get(&id);
            (agent.status, agent.status_text) = before.map_or_else(Default::default, |before| {
                (before.agent.status, before.agent.status_text.clone())
            });
            if let Some(before) = before {
                agent.faces.extend(before.agent.faces.iter().cloned());
                agent.faces.sort();
                agent.faces.dedup();
                if agent.same_as(&before.agent) && agent.faces == before.agent.faces {
                    return Ok(Some(Registered { changed: false }));
                }
            }
            roll.date(&mut agent, before);
            roll.has_room_for(&agent, before)?;
            let mut changes = roll.name_new(name, &id, &agent, self.names)?;
            let entry = Entry::new(agent, before, &read(&roll.names));
            changes.push(put(SPACE, name, &id, entry.agent.encode_to_vec()));
            let mut agents = roll.agents.clone();
            agents.insert(id, entry);
            let next = self.change(name, tenant, roll, changes, agents)?;
            Ok(next.map(|next| {
                tenant.change(Some(next));
                Registered { changed: true }
            }))
        })
    }

    fn set_status(
        &self,
        name: &str,
        tenant: &Tenant,
        id: &AgentId,
        status: Status,
        text: String,
    ) -> Result<Option<bool>, Denied> {
        let _writing = lock(&tenant.writer);
        self.on_roll(name, tenant, |roll| {
            let Some(before) = roll.agents.get(id) else { return Ok(Some(None)) };
            let (status, status_text) = (status.into(), text.clone());
            let agent = Agent { status, status_text, ..Agent::clone(&before.agent) };
            agent.check_status().map_err(invalid)?;
            if agent == *before.agent {
                return Ok(Some(Some(false)));
            }
            roll.has_room_for(&agent, Some(before))?;
            let changes = vec![put(SPACE, name, id, agent.encode_to_vec())];
            let mut agents = roll.agents.clone();
            let (bytes, agent) = (agent.encoded_len(), Arc::new(agent));
            agents.insert(id.clone(), Entry { bytes, agent, ..before.clone() });
            let next = self.change(name, tenant, roll, changes, agents)?;
            Ok(next.map(|next| {
                // What others can call is as it was, so that nobody need be told.
                let catalogues = Mutex::new(lock(&roll.catalogues).clone());
                tenant.replace(Some(Arc::new(Roll { catalogues, ..next })));
                Some(true)
            }))
        })
    }

    fn unregister(
        &self,
        name: &str,
        tenant: &Tenant,
        id: &AgentId,
        free_names: bool,
    ) -> Result<bool, Denied> {
        let _writing = lock(&tenant.writer);
        self.on_roll(name, tenant, |roll| {
            let mut agents = roll.agents.clone();
            let was_there = agents.remove(id).is_some();
            let frees = free_names && read(&roll.names).has(id);
            let removed = [(was_there, SPACE), (frees, NAMES_SPACE)].into_iter().filter(|(is, _)| *is);
            let changes: Vec<Change> =
                removed.map(|(_, space)| Change::remove(space, name, id.as_str())).collect();
            if changes.is_empty() {
                return Ok(Some(false));
            }
            let next = self.change(name, tenant, roll, changes, agents)?;
            Ok(next.map(|next| {
                if frees {
                    next.names.write().unwrap_or_else(PoisonError::into_inner).free(id);
                }
                tenant.change(Some(next));
                true
            }))
        })
    }

    /// Another node changed a tenant, or all of them: they are read again.
    fn heard(&self, name: Option<&str>) {
        let tenants: Vec<Arc<Tenant>> = match name {
            Some(name) => lock(&self.tenants).get(name).cloned().into_iter().collect(),
            None => lock(&self.tenants).values().cloned().collect(),
        };
        for tenant in tenants {
            tenant.heard.fetch_add(1, Ordering::AcqRel);
            tenant.change(None);
        }
    }
}

fn record(space: &str, tenant: &str, key: &str, value: Vec<u8>) -> Record {
    Record { space: space.into(), tenant: tenant.into(), key: key.into(), value }
}

fn put(space: &str, tenant: &str, id: &AgentId, value: Vec<u8>) -> Change {
    let name = (space.into(), tenant.into(), id.as_str().into());
    Change { name, over: Over::Anything, value: Some(value) }
}

fn read(names: &RwLock<Names>) -> RwLockReadGuard<'_, Names> {
    names.read().unwrap_or_else(PoisonError::into_inner)
}

impl Tenant {
    fn roll(&self) -> Option<Arc<Roll>> {
        self.roll.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, roll: Option<Arc<Roll>>) {
        *self.roll.write().unwrap_or_else(PoisonError::into_inner) = roll;
    }

    /// Show these agents from now on; if it is not known which are stored, whatever is found there.
    fn change(&self, known: Option<Roll>) {
        self.replace(known.map(Arc::new));
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Roll {
    /// The next one, of these agents.
    fn with(&self, agents: BTreeMap<AgentId, Entry>, version: Option<Vec<u8>>) -> Roll {
        Roll { version, agents, names: Arc::clone(&self.names), catalogues: Mutex::default() }
    }

    /// Give names to those skills of an agent that have none, and say what is to be stored of it.
    fn name_new(
        &self,
        tenant: &str,
        id: &AgentId,
        agent: &Agent,
        bounds: listed::Bounds,
    ) -> Result<Vec<Change>, Denied> {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let unnamed = agent.skills.iter().filter(|skill| names.of(id, &skill.name).is_none());
        let unnamed: Vec<&str> = unnamed.map(|skill| skill.name.as_str()).collect();
        if unnamed.is_empty() {
            return Ok(Vec::new());
        }
        names.has_room_for(id, unnamed.len(), bounds).map_err(invalid)?;
        for skill in unnamed {
            names.give(id, skill);
        }
        Ok(vec![put(NAMES_SPACE, tenant, id, names.holding(id).encode_to_vec())])
    }

    /// Say when an agent was registered and since when its skills are offered. Later than everything that is there,
    /// whatever the clock says.
    fn date(&self, agent: &mut Agent, before: Option<&Entry>) {
        let latest = self.agents.values().map(|entry| entry.agent.updated_at).max().unwrap_or(0);
        let at = now().0.max(latest.saturating_add(1));
        agent.updated_at = at;
        agent.registered_at = before.map_or(at, |before| before.agent.registered_at);
        let earlier = |name: &str| before?.agent.skills.iter().find(|skill| skill.name == name);
        for skill in &mut agent.skills {
            skill.offered_at = earlier(&skill.name).map_or(at, |skill| skill.offered_at);
        }
    }

    fn has_room_for(&self, agent: &Agent, before: Option<&Entry>) -> Result<(), Denied> {
        if before.is_none() && self.agents.len() >= AGENTS_MAX {
            return Err(invalid(format!("expected at most {AGENTS_MAX} agents in a tenant, found one more")));
        }
        let all: usize = self.agents.values().map(|entry| entry.bytes).sum();
        let bytes = all - before.map_or(0, |before| before.bytes) + agent.encoded_len();
        if bytes > TENANT_BYTES_MAX {
            return Err(invalid(format!(
                "expected at most {TENANT_BYTES_MAX} bytes for all agents of a tenant, found {bytes}"
            )));
        }
        Ok(())
    }

    fn catalogue(&self, caller: &AgentId, allowed: impl Fn(&AgentId) -> bool) -> Arc<Catalogue> {
        if let Some(made) = lock(&self.catalogues).get(caller) {
            return Arc::clone(made);
        }
        let others = self
            .agents
            .iter()
            .filter(|(id, entry)| *id != caller && entry.agent.seen_by(caller) && allowed(id));
        let tools = others.flat_map(|(_, entry)| &entry.tools).cloned().collect();
        let made = Arc::new(Catalogue::of(tools, &read(&self.names)));
        let mut kept = lock(&self.catalogues);
        // The first tool of each catalogue counts for the catalogue itself.
        let size = |catalogue: &Arc<Catalogue>| catalogue.tools().len() + 1;
        if kept.values().map(size).sum::<usize>() + size(&made) > CATALOGUE_TOOLS_MAX {
            kept.clear();
        }
        Arc::clone(kept.entry(caller.clone()).or_insert(made))
    }
}

impl Entry {
    /// An agent and its tools; those of skills that did not change are kept.
    fn new(agent: Agent, before: Option<&Entry>, names: &Names) -> Entry {
        let id = AgentId::from(agent.id.as_str());
        let mut known: BTreeMap<&str, &Arc<Tool>> = BTreeMap::new();
        known.extend(before.iter().flat_map(|before| &before.tools).map(|tool| (&*tool.skill.name, tool)));
        let tool = |skill: &Skill| {
            if let Some(same) = known.get(&*skill.name).filter(|tool| tool.skill == *skill) {
                return Some(Arc::clone(same));
            }
            let name = names.of(&id, &skill.name)?;
            Some(Arc::new(Tool::new(name, id.clone(), skill.clone())))
        };
        let tools = agent.skills.iter().filter_map(tool).collect();
        let words = Arc::new(Words::of(&agent));
        Entry { tools, words, bytes: agent.encoded_len(), agent: Arc::new(agent) }
    }
}

fn decode(bytes: &[u8]) -> Result<Agent, Denied> {
    Agent::decode(bytes)
        .map_err(|error| Denied::Unreadable(format!("an agent cannot be read: {error}").into()))
}

fn decode_names(bytes: &[u8]) -> Result<Holding, Denied> {
    Holding::decode(bytes)
        .map_err(|error| Denied::Unreadable(format!("names of skills cannot be read: {error}").into()))
}

fn invalid(what: String) -> Denied {
    Denied::Refused(Refusal::invalid(what))
}

fn fault(fault: Fault) -> Denied {
    Denied::Fault(Arc::new(fault))
}

#[cfg(test)]
mod tests;
