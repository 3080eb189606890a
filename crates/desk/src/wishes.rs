//! What the sessions of clients want to be told, in the words of their face. Durable, so that every node knows it, also one that starts
//! later: a client's stream may be at any of them. What nobody renews is forgotten.
//!
//! Each agent has one record, with its sessions in the order in which they were last changed. It is read once, and again when it
//! changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use handover_engine::Denied;
use handover_engine::locks::lock;
use handover_kernel::{Refusal, Timestamp};
use handover_store::{Change, Fault, Over, Record, Store};
use prost::Message;
use tokio::sync::watch;

use crate::reading::until_first;

/// The records that hold them, by agent.
pub(crate) const SPACE: &str = "wishes";

/// How many things a session may follow.
pub const FOLLOWED_MAX: usize = 1000;

/// Of how many sessions of an agent it is kept what they want, and in how many bytes: with more, what was changed longest ago is
/// forgotten.
const SESSIONS_MAX: usize = 64;
const BYTES_MAX: usize = 128 * 1024;

/// How long it is kept after it was last changed or renewed, and after how long somebody who listens renews it.
const KEPT_MS: u64 = 7 * 24 * 3600 * 1000;
pub(crate) const RENEWED_AFTER_MS: u64 = 24 * 3600 * 1000;

/// Of how many agents it is known without a look, not counting those that somebody listens for.
const AGENTS_MAX: usize = 1000;

/// How many agents are looked at, whosever they are, when one begins to want something: what was kept long enough is removed.
const SWEPT: usize = 8;

/// What changes in what a session wants to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// So much.
    Level(String),
    /// What happens to this as well.
    Follow(String),
    /// What happens to this no longer.
    Leave(String),
}

/// The sessions of an agent, the last changed last. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Kept {
    #[prost(message, repeated, tag = "1")]
    sessions: Vec<Wants>,
}

/// What a session wants to be told. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Wants {
    #[prost(string, tag = "1")]
    session: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) level: Option<String>,
    #[prost(btree_map = "string, bool", tag = "3")]
    pub(crate) followed: BTreeMap<String, bool>,
    /// When it was last changed or renewed, in milliseconds of the Unix epoch.
    #[prost(uint64, tag = "4")]
    at: u64,
}

impl Wants {
    fn take(&mut self, wish: Option<&Wish>) -> Result<(), Refusal> {
        match wish {
            None => {}
            Some(Wish::Level(level)) => self.level = Some(level.clone()),
            Some(Wish::Leave(what)) => _ = self.followed.remove(what),
            Some(Wish::Follow(what)) => {
                _ = self.followed.insert(what.clone(), true);
                if self.followed.len() > FOLLOWED_MAX {
                    return Err(too_many());
                }
            }
        }
        Ok(())
    }

    fn is_nothing(&self) -> bool {
        self.level.is_none() && self.followed.is_empty()
    }
}

/// Why a session cannot follow one thing more.
pub fn too_many() -> Refusal {
    Refusal::invalid(format!("expected at most {FOLLOWED_MAX} subscriptions of a session, found one more"))
}

impl Kept {
    fn read(bytes: Option<&[u8]>) -> Result<Kept, Denied> {
        let kept = bytes.map(|bytes| Kept::decode(bytes).map_err(unreadable)).transpose()?;
        Ok(kept.unwrap_or_default())
    }

    pub(crate) fn of(&self, session: &str) -> Option<&Wants> {
        self.sessions.iter().find(|wants| wants.session == session)
    }

    fn forget(&mut self, now: Timestamp) {
        self.sessions.retain(|wants| now.0 < wants.at.saturating_add(KEPT_MS));
    }

    /// Make a change, or renew what is there. Says whether there is anything to write.
    fn take(&mut self, session: &str, wish: Option<&Wish>, now: Timestamp) -> Result<bool, Refusal> {
        let at = self.sessions.iter().position(|wants| wants.session == session);
        let before = at.map(|at| self.sessions.remove(at)).unwrap_or_default();
        let mut after = Wants { session: session.to_owned(), ..before.clone() };
        after.take(wish)?;
        let is_fresh = now.0 < before.at.saturating_add(RENEWED_AFTER_MS);
        let is_same = (&before.level, &before.followed) == (&after.level, &after.followed);
        if is_same && (is_fresh || before.is_nothing()) {
            return Ok(false);
        }
        if !after.is_nothing() {
            self.sessions.push(Wants { at: now.0, ..after });
        }
        while self.sessions.len() > SESSIONS_MAX || self.sessions.len() > 1 && self.encoded_len() > BYTES_MAX
        {
            self.sessions.remove(0);
        }
        if self.encoded_len() > BYTES_MAX {
            return Err(Refusal::invalid(format!(
                "expected subscriptions of a session of at most {BYTES_MAX} bytes together, found more"
            )));
        }
        Ok(true)
    }
}

/// Whose it is: tenant and agent.
pub(crate) type Whose = (Box<str>, Box<str>);

/// What all sessions want.
pub(crate) struct Wishes {
    store: Arc<dyn Store>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    agents: BTreeMap<Whose, Agent>,
    /// Counts changes and agents, so that no two are mistaken for each other.
    count: u64,
}

struct Agent {
    /// None until it is read, and after it changed.
    kept: Option<Arc<Kept>>,
    changes: watch::Sender<u64>,
}

impl Known {
    fn agent(&mut self, whose: &Whose) -> &mut Agent {
        if !self.agents.contains_key(whose) && self.agents.len() >= AGENTS_MAX {
            self.agents.retain(|_, agent| agent.changes.receiver_count() > 0);
        }
        self.count += 1;
        let count = self.count;
        let fresh = || Agent { kept: None, changes: watch::Sender::new(count) };
        self.agents.entry(whose.clone()).or_insert_with(fresh)
    }
}

impl Wishes {
    /// Those in a store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Wishes {
        Wishes { store, known: Mutex::default() }
    }

    /// What an agent's sessions want has changed, here or at another node.
    pub(crate) fn heard(&self, tenant: &str, agent: &str) {
        let mut known = lock(&self.known);
        known.count += 1;
        let count = known.count;
        if let Some(agent) = known.agents.get_mut(&(tenant.into(), agent.into())) {
            agent.kept = None;
            agent.changes.send_replace(count);
        }
    }

    /// Anything may have changed.
    pub(crate) fn missed(&self) {
        let mut known = lock(&self.known);
        known.count += 1;
        let count = known.count;
        for agent in known.agents.values_mut() {
            agent.kept = None;
            agent.changes.send_replace(count);
        }
    }

    pub(crate) fn changes(&self, whose: &Whose) -> watch::Receiver<u64> {
        lock(&self.known).agent(whose).changes.subscribe()
    }

    pub(crate) fn known(&self, whose: &Whose) -> Option<Arc<Kept>> {
        lock(&self.known).agents.get(whose)?.kept.clone()
    }

    /// Those of an agent. May wait for the disk.
    pub(crate) fn of(&self, whose: &Whose) -> Result<Arc<Kept>, Denied> {
        let began = {
            let mut known = lock(&self.known);
            let agent = known.agent(whose);
            if let Some(kept) = &agent.kept {
                return Ok(Arc::clone(kept));
            }
            *agent.changes.borrow()
        };
        let kept = Arc::new(Kept::read(self.record(whose)?.as_deref())?);
        let mut known = lock(&self.known);
        let agent = known.agent(whose);
        // What changed meanwhile may not be in it.
        if *agent.changes.borrow() == began {
            agent.kept = Some(Arc::clone(&kept));
        }
        Ok(kept)
    }

    /// Change what a session wants, or renew it. May wait for the disk.
    pub(crate) fn take(
        &self,
        whose: &Whose,
        session: &str,
        wish: Option<&Wish>,
        now: Timestamp,
    ) -> Result<(), Denied> {
        let (tenant, agent) = whose;
        let (is_new, wrote) = until_first(|| {
            let read = self.record(whose)?;
            let mut kept = Kept::read(read.as_deref())?;
            kept.forget(now);
            if !kept.take(session, wish, now).map_err(Denied::Refused)? {
                return Ok(Some((false, false)));
            }
            let is_new = read.is_none();
            if is_new && kept.sessions.is_empty() {
                return Ok(Some((false, false)));
            }
            let name = (SPACE.into(), tenant.clone(), agent.clone());
            let value = (!kept.sessions.is_empty()).then(|| kept.encode_to_vec());
            let over = read.map_or(Over::Nothing, Over::Value);
            let wrote = self.store.change_records(&[Change { name, over, value }]).map_err(fault)?;
            Ok(wrote.then_some((is_new, true)))
        })?;
        if wrote {
            self.heard(tenant, agent);
        }
        if is_new {
            self.sweep(whose, now)?;
        }
        Ok(())
    }

    /// Remove what was kept long enough from the next few agents of the tenant.
    fn sweep(&self, (tenant, agent): &Whose, now: Timestamp) -> Result<(), Denied> {
        let page = self.store.records(SPACE, tenant, Some(agent), SWEPT).map_err(fault)?;
        for Record { space, tenant, key, value } in page {
            // One that cannot be read must not keep anybody else from wanting something.
            let Ok(mut kept) = Kept::decode(&*value) else { continue };
            kept.forget(now);
            if kept.sessions.is_empty() {
                let (tenant_of, agent_of) = (tenant.clone(), key.clone());
                let name = (space, tenant, key);
                let removed = Change { name, over: Over::Value(value), value: None };
                if self.store.change_records(&[removed]).map_err(fault)? {
                    self.heard(&tenant_of, &agent_of);
                }
            }
        }
        Ok(())
    }

    fn record(&self, (tenant, agent): &Whose) -> Result<Option<Vec<u8>>, Denied> {
        self.store.record(SPACE, tenant, agent).map_err(fault)
    }
}

fn fault(fault: Fault) -> Denied {
    Denied::Fault(Arc::new(fault))
}

fn unreadable(error: prost::DecodeError) -> Denied {
    Denied::Unreadable(format!("what sessions want to be told cannot be read: {error}").into())
}

#[cfg(test)]
mod tests {
    use handover_store::MemoryStore;

    use super::*;

    fn whose(agent: &str) -> Whose {
        ("t".into(), agent.into())
    }

    fn follow(what: &str) -> Option<Wish> {
        Some(Wish::Follow(what.to_owned()))
    }

    #[test]
    fn of_too_many_sessions_what_was_changed_longest_ago_is_forgotten_and_what_nobody_renews() {
        let wishes = Wishes::new(Arc::new(MemoryStore::new()));
        let ada = whose("ada");
        let take = |session: &str, wish: Option<Wish>, now| {
            wishes.take(&ada, session, wish.as_ref(), Timestamp(now)).unwrap();
        };
        let sessions = || wishes.of(&ada).unwrap().sessions.len();
        for number in 0..=SESSIONS_MAX {
            take(&format!("h.{number}"), follow("a"), 1000);
        }
        assert_eq!((sessions(), wishes.of(&ada).unwrap().of("h.0")), (SESSIONS_MAX, None));
        // Who listens renews, and what was renewed just now is not written again.
        take("h.7", None, 1000 + RENEWED_AFTER_MS);
        let before = *wishes.changes(&ada).borrow();
        take("h.7", None, 1000 + RENEWED_AFTER_MS);
        take("h.7", follow("a"), 1000 + RENEWED_AFTER_MS);
        assert_eq!(*wishes.changes(&ada).borrow(), before);
        take("h.x", Some(Wish::Level("debug".to_owned())), 1000 + KEPT_MS);
        assert_eq!(sessions(), 2);
        take("h.7", Some(Wish::Leave("a".to_owned())), 1000 + KEPT_MS);
        assert_eq!(sessions(), 1);
        // Who asks for what was never wanted leaves nothing behind.
        take("h.y", None, 1000 + KEPT_MS);
        take("h.y", Some(Wish::Leave("a".to_owned())), 1000 + KEPT_MS);
        assert_eq!(sessions(), 1);
        let ben = whose("ben");
        wishes.take(&ben, "h.z", follow("b").as_ref(), Timestamp(1000 + 2 * KEPT_MS)).unwrap();
        let aaron = whose("aaron");
        wishes.take(&aaron, "h.z", follow("b").as_ref(), Timestamp(1000 + 2 * KEPT_MS)).unwrap();
        assert_eq!(wishes.store.records(SPACE, "t", None, 10).unwrap().len(), 2, "ada's is removed");
    }

    #[test]
    fn a_session_follows_no_more_than_so_many_things_and_bytes() {
        let wishes = Wishes::new(Arc::new(MemoryStore::new()));
        let ada = whose("ada");
        let take = |wish: Option<Wish>| wishes.take(&ada, "h.1", wish.as_ref(), Timestamp(1000));
        let long = "x".repeat(BYTES_MAX / 8);
        (0..7).for_each(|number| take(follow(&format!("{number}{long}"))).unwrap());
        assert!(matches!(take(follow(&format!("8{long}"))), Err(Denied::Refused(_))));
        (0..7).for_each(|number| take(Some(Wish::Leave(format!("{number}{long}")))).unwrap());
        (0..FOLLOWED_MAX).for_each(|number| take(follow(&number.to_string())).unwrap());
        take(follow("0")).unwrap();
        assert!(matches!(take(follow("more")), Err(Denied::Refused(_))));
    }
}
