//! The keys that agents sign with: whose each is and what bound it, and which requests were signed with them. Durable, so
//! that a request counts once also across a restart.

use std::sync::{Arc, Mutex};

use handover_engine::Denied;
use handover_engine::locks::lock;
use handover_kernel::{Refusal, Timestamp};
use handover_store::{Change, Fault, Over, Put, Record, Store};
use prost::Message;
use tokio::sync::broadcast::{self, error::RecvError};

use super::signed::{NodeId, SKEW_MS, Signed, minute};
use super::{Credential, Principal, Unauthenticated};
use crate::reading::until_first;

/// How long a key counts that a token of an issuer bound: whether its agent is still known to the issuer is not told.
pub const BOUND_MS: u64 = 30 * 24 * 3600 * 1000;

/// How many keys an agent may have.
pub const KEYS_PER_AGENT_MAX: usize = 16;

/// The records that hold keys, those that say which keys an agent has, and those of requests that were signed.
pub(crate) const KEYS: &str = "key";
pub(crate) const LISTS: &str = "keys";
pub(crate) const MARKS: &str = "nonce";

/// How long a signed request is remembered: longer than it could be sent again, should the clock be set back a little.
const REMEMBERED_MS: u64 = 3 * SKEW_MS;

/// How many old ones are forgotten with each new one, and how many are found together.
const FORGOTTEN_AT_ONCE: usize = 2;
const PAGE: usize = 64;

/// How many keys can be unbound before a stream that has not looked must ask the store.
const UNBOUND_MAX: usize = 64;

/// A key as it is stored. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Bound {
    /// The 32 bytes of the public key.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) public_key: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) tenant: String,
    #[prost(string, tag = "3")]
    pub(crate) agent: String,
    /// When it was bound, in milliseconds of the Unix epoch.
    #[prost(uint64, tag = "4")]
    pub(crate) bound_at: u64,
    /// The hash of the static token that bound it; empty if it was none.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) token: Vec<u8>,
    /// Who issued the token that bound it; empty if nobody did. Without either it was bound in development.
    #[prost(string, tag = "6")]
    pub(crate) issuer: String,
}

/// The keys of an agent, as they are stored. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
struct List {
    #[prost(string, repeated, tag = "1")]
    nodes: Vec<String>,
}

/// What bound a key to its agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Nothing was asked for, as in development.
    Nothing,
    /// The static token with this hash.
    Token([u8; 32]),
    /// A token of an issuer.
    Issuer,
}

impl Bound {
    /// What bound it, if that can be told.
    pub(super) fn by(&self) -> Option<By> {
        match (self.token.as_slice(), self.issuer.as_str()) {
            ([], "") => Some(By::Nothing),
            ([], _) => Some(By::Issuer),
            (token, _) => token.try_into().ok().map(By::Token),
        }
    }

    fn is_of(&self, tenant: &str, agent: &str) -> bool {
        self.tenant == tenant && self.agent == agent
    }
}

/// All keys of all agents. What it does may wait for the disk.
pub(crate) struct Keys {
    store: Arc<dyn Store>,
    /// Held by whoever changes what is bound.
    writer: Mutex<()>,
    /// None where any may have been.
    unbound: broadcast::Sender<Option<NodeId>>,
    old: Mutex<Old>,
}

/// Signed requests that may be forgotten.
#[derive(Default)]
struct Old {
    marks: Vec<Box<str>>,
    /// The minute in which no others were found.
    looked_in: String,
}

impl Keys {
    /// The keys in a store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Keys {
        let unbound = broadcast::Sender::new(UNBOUND_MAX);
        Keys { store, writer: Mutex::default(), unbound, old: Mutex::default() }
    }

    /// The key of this id.
    pub(crate) fn find(&self, node: NodeId) -> Result<Option<Bound>, Denied> {
        decode_known(self.store.record(KEYS, "", &node.to_string()).map_err(fault)?.as_deref())
    }

    /// The keys of an agent.
    pub(crate) fn of(&self, tenant: &str, agent: &str) -> Result<Vec<NodeId>, Denied> {
        nodes_of(self.list(tenant, agent)?.as_deref())
    }

    /// Bind a key, or bind it again. Those of the agent that do not count any more make room for it.
    pub(crate) fn bind(
        &self,
        node: NodeId,
        key: &Bound,
        counts: impl Fn(NodeId, &Bound) -> bool,
    ) -> Result<(), Denied> {
        let _writing = lock(&self.writer);
        until_first(|| {
            let known = self.store.record(KEYS, "", &node.to_string()).map_err(fault)?;
            if decode_known(known.as_deref())?.is_some_and(|known| !known.is_of(&key.tenant, &key.agent)) {
                return Err(invalid("expected a key of your own, found one that is bound to another agent"));
            }
            let list = self.list(&key.tenant, &key.agent)?;
            let (mut nodes, mut gone) = (nodes_of(list.as_deref())?, Vec::new());
            if !nodes.contains(&node) {
                if nodes.len() >= KEYS_PER_AGENT_MAX {
                    for other in std::mem::take(&mut nodes) {
                        match self.find(other)?.is_some_and(|known| counts(other, &known)) {
                            true => nodes.push(other),
                            false => gone.push(other),
                        }
                    }
                }
                if nodes.len() >= KEYS_PER_AGENT_MAX {
                    return Err(invalid(
                        "expected at most 16 keys for an agent, found one more: unbind one first",
                    ));
                }
                nodes.push(node);
            }
            let bound = record(KEYS, "", &node.to_string(), key.encode_to_vec());
            let mut changes =
                vec![list_change(&key.tenant, &key.agent, &nodes, list), Change::since(bound, known)];
            changes.extend(gone.iter().map(|other| remove(*other)));
            self.change(&changes, &gone)
        })
    }

    /// Unbind a key of this agent, or of any of the tenant. False if there is none.
    pub(crate) fn unbind(&self, node: NodeId, tenant: &str, agent: Option<&str>) -> Result<bool, Denied> {
        let _writing = lock(&self.writer);
        until_first(|| {
            let found = self.find(node)?.filter(|key| key.is_of(tenant, agent.unwrap_or(&key.agent)));
            let Some(key) = found else { return Ok(Some(false)) };
            let list = self.list(tenant, &key.agent)?;
            let mut nodes = nodes_of(list.as_deref())?;
            nodes.retain(|other| *other != node);
            let changes = [list_change(tenant, &key.agent, &nodes, list), remove(node)];
            Ok(self.change(&changes, &[node])?.map(|()| true))
        })
    }

    /// Change what is bound, so that these keys are no longer. None if another node was first.
    fn change(&self, changes: &[Change], gone: &[NodeId]) -> Result<Option<()>, Denied> {
        let changed = self.store.change_records(changes).map_err(fault)?;
        if changed {
            gone.iter().for_each(|node| self.unbound(*node));
        }
        Ok(changed.then_some(()))
    }

    fn unbound(&self, node: NodeId) {
        // Nobody listens if no stream is open.
        let _ = self.unbound.send(Some(node));
    }

    /// Another node changed the record of this key.
    pub(crate) fn heard(&self, key: &str) {
        if let Some(node) = NodeId::parse(key) {
            self.unbound(node);
        }
    }

    /// Other nodes may have changed anything.
    pub(crate) fn missed(&self) {
        // Nobody listening is no error.
        let _ = self.unbound.send(None);
    }

    fn list(&self, tenant: &str, agent: &str) -> Result<Option<Vec<u8>>, Denied> {
        self.store.record(LISTS, tenant, agent).map_err(fault)
    }

    /// Whether a request has come before.
    pub(crate) fn has_seen(&self, signed: &Signed) -> Result<bool, Denied> {
        Ok(self.store.record(MARKS, "", &signed.mark()).map_err(fault)?.is_some())
    }

    /// Remember a request. False if it has come before.
    pub(crate) fn remember(&self, signed: &Signed) -> Result<bool, Denied> {
        let (space, tenant, key) = (MARKS.into(), "".into(), signed.mark().into());
        self.store.put_record(&Record { space, tenant, key, value: Vec::new() }, Put::IfAbsent).map_err(fault)
    }

    /// Forget a few requests that are too old to be sent again: more than one for each that is remembered.
    pub(crate) fn forget(&self, now: Timestamp) -> Result<(), Denied> {
        for mark in self.old(now)? {
            self.store.remove_record(MARKS, "", &mark).map_err(fault)?;
        }
        Ok(())
    }

    fn old(&self, now: Timestamp) -> Result<Vec<Box<str>>, Denied> {
        let mut old = lock(&self.old);
        let this_minute = minute(now);
        if old.marks.is_empty() && old.looked_in != this_minute {
            let end = minute(Timestamp(now.0.saturating_sub(REMEMBERED_MS)));
            let page = self.store.records(MARKS, "", None, PAGE).map_err(fault)?;
            old.marks = page.into_iter().map(|record| record.key).filter(|mark| **mark < *end).collect();
            if old.marks.len() < PAGE {
                old.looked_in = this_minute;
            }
        }
        let left = old.marks.len().saturating_sub(FORGOTTEN_AT_ONCE);
        Ok(old.marks.split_off(left))
    }

    /// Returns when the key that this principal has signed with is not its own any more; never, if it has signed with none.
    pub(crate) async fn ended(self: Arc<Self>, principal: Arc<Principal>) -> Unauthenticated {
        let Credential::Signed(node, _) = principal.credential else { return std::future::pending().await };
        let mut unbound = self.unbound.subscribe();
        loop {
            let keys = Arc::clone(&self);
            let found = tokio::task::spawn_blocking(move || keys.find(node)).await;
            // What cannot be read is no reason to end anything.
            if let Ok(Ok(found)) = found
                && !found.is_some_and(|key| key.is_of(&principal.tenant, principal.agent.as_str()))
            {
                return Unauthenticated::Unsigned { why: "its key was unbound" };
            }
            loop {
                match unbound.recv().await {
                    Ok(Some(other)) if other != node => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        }
    }
}

fn decode_known(found: Option<&[u8]>) -> Result<Option<Bound>, Denied> {
    found.map(|bytes| Bound::decode(bytes).map_err(unreadable)).transpose()
}

fn nodes_of(list: Option<&[u8]>) -> Result<Vec<NodeId>, Denied> {
    let list = list.map(|bytes| List::decode(bytes).map_err(unreadable)).transpose()?;
    Ok(list.unwrap_or_default().nodes.iter().filter_map(|node| NodeId::parse(node)).collect())
}

fn record(space: &str, tenant: &str, key: &str, value: Vec<u8>) -> Record {
    Record { space: space.into(), tenant: tenant.into(), key: key.into(), value }
}

/// The list of an agent's keys, where this was read before.
fn list_change(tenant: &str, agent: &str, nodes: &[NodeId], read: Option<Vec<u8>>) -> Change {
    let list = List { nodes: nodes.iter().map(ToString::to_string).collect() };
    Change::since(record(LISTS, tenant, agent, list.encode_to_vec()), read)
}

/// One that is not there is as good as removed.
fn remove(node: NodeId) -> Change {
    Change { over: Over::Anything, ..Change::remove(KEYS, "", &node.to_string()) }
}

fn invalid(what: &str) -> Denied {
    Denied::Refused(Refusal::invalid(what))
}

fn unreadable(error: prost::DecodeError) -> Denied {
    Denied::Unreadable(format!("a key cannot be read: {error}").into())
}

fn fault(fault: Fault) -> Denied {
    Denied::Fault(Arc::new(fault))
}

#[cfg(test)]
mod tests {
    use handover_store::MemoryStore;

    use super::*;

    #[test]
    fn old_requests_are_forgotten_two_at_a_time_and_those_that_could_come_again_are_not() {
        let store = Arc::new(MemoryStore::new());
        let keys = Keys::new(Arc::clone(&store) as Arc<dyn Store>);
        let now = Timestamp(1_785_231_000_000);
        let kept = now.0 - SKEW_MS..=now.0 + SKEW_MS;
        let times = (0..100).map(|ago| now.0 - 3_600_000 + ago).chain([*kept.start(), *kept.end()]);
        for at in times {
            let key = format!("{}:{at}", minute(Timestamp(at)));
            store.put_record(&record(MARKS, "", &key, Vec::new()), Put::Replace).unwrap();
        }
        let count = || store.records(MARKS, "", None, 1000).unwrap().len();
        keys.forget(now).unwrap();
        assert_eq!(count(), 100);
        for _ in 0..60 {
            keys.forget(now).unwrap();
        }
        assert_eq!(count(), 2);
        let later = Timestamp(now.0 + REMEMBERED_MS + SKEW_MS + 60_000);
        keys.forget(later).unwrap();
        assert_eq!(count(), 0);
    }
}
