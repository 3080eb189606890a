//! The policies that sessions can be bound to. Durable; a session's charter is compiled from one when it starts and
//! never depends on what is registered afterwards.

use std::sync::Arc;

use handover_kernel::charter::Charter;
use handover_kernel::command::ModeKind;
use handover_kernel::policy::{DEFAULT_POLICY, Descriptor, Scope};
use handover_kernel::{Refusal, Text};
use handover_store::{Put, Record, Store, is_full};
use prost::Message;
use tokio::sync::watch;

use handover_engine::Denied;

use crate::names;
use crate::reading::blocking;

/// Ids that begin so are those of the protocol's own policies.
const RESERVED_PREFIX: &str = "policy.std.";

/// Those that there are (RFC-MACP-0012 §5.2): all of them count votes, so that no session here can be bound to one.
const OF_VOTES: [&str; 3] = ["policy.std.majority", "policy.std.supermajority", "policy.std.unanimous"];

/// The records that hold policies.
pub(crate) const SPACE: &str = "policy";

/// How many bytes all policies of a tenant may have.
const TENANT_BYTES_MAX: usize = 1024 * 1024;

/// How many policies are read at a time.
const PAGE: usize = 256;

/// A policy as it is stored. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Policy {
    /// Its name.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Who it is for: `task`, `handoff`, or empty for every session.
    #[prost(string, tag = "2")]
    pub mode: String,
    /// What it is for.
    #[prost(string, tag = "3")]
    pub description: String,
    /// Its rules, a JSON object.
    #[prost(string, tag = "4")]
    pub rules: String,
    /// The version of the rule schema.
    #[prost(uint32, tag = "5")]
    pub schema_version: u32,
    /// When it was registered, in milliseconds of the Unix epoch.
    #[prost(uint64, tag = "6")]
    pub registered_at: u64,
}

/// What the tasks of MCP callers are bound to.
pub const MCP_POLICY: &str = "policy.mcp";

/// What the tasks of Grid senders are bound to.
pub const GRID_POLICY: &str = "policy.grid";

impl Policy {
    /// The policies that are there without being registered: the one that every session has unless it names another,
    /// and those that describe the charters of the other faces.
    fn built_in() -> [Policy; 3] {
        let policy = |id: &str, mode: &str, description: &str, rules: &str| Policy {
            id: id.to_owned(),
            mode: mode.to_owned(),
            description: description.to_owned(),
            rules: rules.to_owned(),
            schema_version: 1,
            registered_at: 0,
        };
        let default = "the initiator commits; nothing is reassigned; nothing is accepted implicitly";
        let mcp = "a report settles the task at once, on the initiator's behalf; a declined task goes to another \
                   participant and is cancelled when nobody is left; a pause waits for a safe point";
        let grid = "only the initiator completes, with or without a report; a failure and a decline settle at once; \
                    either party cancels; acting accepts; messages are to be acknowledged";
        [
            policy(DEFAULT_POLICY, "", default, "{}"),
            policy(MCP_POLICY, "task", mcp, r#"{"assignment":{"allow_reassignment_on_reject":true}}"#),
            policy(GRID_POLICY, "task", grid, "{}"),
        ]
    }

    fn is_built_in(id: &str) -> bool {
        matches!(id, DEFAULT_POLICY | MCP_POLICY | GRID_POLICY)
    }

    /// The mode that it is for; none means every mode.
    pub fn scope(&self) -> Scope {
        match self.mode.as_str() {
            "task" => Scope::Mode(ModeKind::Task),
            "handoff" => Scope::Mode(ModeKind::Handoff),
            _ => Scope::Any,
        }
    }

    /// As the kernel takes it.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            id: Text::from(self.id.as_str()),
            scope: self.scope(),
            schema_version: self.schema_version,
            rules: Text::from(self.rules.as_str()),
        }
    }
}

/// All policies of all tenants.
#[derive(Clone)]
pub struct Policies {
    store: Arc<dyn Store>,
    /// How many changes there were: whoever watches reads again.
    changes: Arc<watch::Sender<u64>>,
}

impl Policies {
    /// The policies in a store.
    pub fn new(store: Arc<dyn Store>) -> Policies {
        Policies { store, changes: Arc::new(watch::Sender::new(0)) }
    }

    /// Hear of changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Another node changed some.
    pub(crate) fn heard(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Register a policy. Ids are immutable: registering one twice is refused.
    pub async fn register(&self, tenant: &str, policy: Policy) -> Result<(), Denied> {
        policy.descriptor().check().map_err(Denied::Refused)?;
        if Policy::is_built_in(&policy.id) {
            return Err(invalid(format!("{} is built in and cannot be registered", policy.id)));
        }
        // RFC-MACP-0012 §2.2.
        if policy.id.starts_with(RESERVED_PREFIX) {
            return Err(invalid(format!("policy ids that begin with {RESERVED_PREFIX} are reserved")));
        }
        let record = Record {
            space: SPACE.into(),
            tenant: tenant.into(),
            key: policy.id.as_str().into(),
            value: policy.encode_to_vec(),
        };
        self.has_room_for(tenant, &record).await?;
        let store = Arc::clone(&self.store);
        let written = blocking(move || store.put_record(&record, Put::IfAbsent)).await?;
        if !written {
            return Err(invalid(format!("a policy with the id {:?} exists already", policy.id)));
        }
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// All policies of a tenant are listed together, so that they have a bound together.
    async fn has_room_for(&self, tenant: &str, record: &Record) -> Result<(), Denied> {
        names::check("a policy id", &record.key).map_err(|refusal| invalid(refusal.to_string()))?;
        let all: usize = self.list(tenant).await?.iter().map(Message::encoded_len).sum();
        let bytes = all + record.value.len();
        if bytes > TENANT_BYTES_MAX {
            return Err(invalid(format!(
                "expected at most {TENANT_BYTES_MAX} bytes for all policies of a tenant, found {bytes}"
            )));
        }
        Ok(())
    }

    /// Remove a policy. Sessions that are bound to it keep their charter.
    pub async fn unregister(&self, tenant: &str, id: &str) -> Result<(), Denied> {
        if Policy::is_built_in(id) {
            return Err(invalid(format!("{id} is built in and cannot be removed")));
        }
        let (store, tenant, key) = (Arc::clone(&self.store), tenant.to_owned(), id.to_owned());
        if !blocking(move || store.remove_record(SPACE, &tenant, &key)).await? {
            return Err(unknown(id));
        }
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// One policy.
    pub async fn get(&self, tenant: &str, id: &str) -> Result<Policy, Denied> {
        if let Some(policy) = Policy::built_in().into_iter().find(|policy| policy.id == id) {
            return Ok(policy);
        }
        let (store, tenant, key) = (Arc::clone(&self.store), tenant.to_owned(), id.to_owned());
        match blocking(move || store.record(SPACE, &tenant, &key)).await? {
            Some(bytes) => decode(&bytes),
            None => Err(unknown(id)),
        }
    }

    /// All policies of a tenant, the built-in ones first.
    pub async fn list(&self, tenant: &str) -> Result<Vec<Policy>, Denied> {
        let (store, tenant) = (Arc::clone(&self.store), tenant.to_owned());
        let records = blocking(move || {
            let mut all: Vec<Record> = Vec::new();
            loop {
                let after = all.last().map(|record| record.key.clone());
                let page = store.records(SPACE, &tenant, after.as_deref(), PAGE)?;
                let full = is_full(&page, PAGE);
                all.extend(page);
                if !full {
                    return Ok(all);
                }
            }
        })
        .await?;
        let mut policies = Vec::from(Policy::built_in());
        for record in records {
            policies.push(decode(&record.value)?);
        }
        Ok(policies)
    }

    /// The charter of a session of this mode under the policy with this id.
    pub async fn charter(&self, tenant: &str, id: &str, mode: ModeKind) -> Result<Charter, Denied> {
        if id == DEFAULT_POLICY {
            return Ok(Charter::macp());
        }
        if OF_VOTES.contains(&id) {
            return Err(invalid(format!("expected a policy for {} sessions, found {id}", mode.name())));
        }
        let charter = self.get(tenant, id).await?.descriptor().compile(mode).map_err(Denied::Refused)?;
        // The rules of a descriptor cannot say everything that these charters say.
        Ok(match id {
            MCP_POLICY => Charter::mcp(),
            GRID_POLICY => Charter::grid(),
            _ => charter,
        })
    }
}

fn decode(bytes: &[u8]) -> Result<Policy, Denied> {
    Policy::decode(bytes)
        .map_err(|error| Denied::Unreadable(format!("a policy cannot be read: {error}").into()))
}

fn invalid(what: String) -> Denied {
    Denied::Refused(Refusal::PolicyInvalid { what: Text::from(what) })
}

fn unknown(id: &str) -> Denied {
    Denied::Refused(Refusal::PolicyUnknown { id: Text::from(id) })
}

#[cfg(test)]
mod tests {
    use handover_store::MemoryStore;

    use super::*;

    fn policies() -> Policies {
        Policies::new(Arc::new(MemoryStore::new()))
    }

    fn policy(id: &str) -> Policy {
        Policy {
            id: id.to_owned(),
            mode: "task".to_owned(),
            rules: "{}".to_owned(),
            schema_version: 1,
            ..Policy::default()
        }
    }

    async fn ids(policies: &Policies, tenant: &str) -> Vec<String> {
        policies.list(tenant).await.unwrap().into_iter().map(|policy| policy.id).collect()
    }

    #[test]
    fn a_stored_policy_is_read_as_it_was_written() {
        let written = Policy {
            id: "p".to_owned(),
            mode: "task".to_owned(),
            description: "d".to_owned(),
            rules: "{}".to_owned(),
            schema_version: 2,
            registered_at: 3,
        };
        let bytes = b"\x0a\x01p\x12\x04task\x1a\x01d\x22\x02{}\x28\x02\x30\x03";
        assert_eq!(written.encode_to_vec(), bytes, "stored policies live for ever");
        assert_eq!(super::decode(bytes).unwrap(), written);
        assert!(matches!(super::decode(&[0xff]), Err(Denied::Unreadable(_))));
    }

    #[tokio::test]
    async fn the_policies_of_tenants_are_apart() {
        let policies = policies();
        policies.register("a", policy("p")).await.unwrap();
        policies.register("b", policy("p")).await.unwrap();
        policies.register("b", policy("q")).await.unwrap();
        policies.unregister("a", "p").await.unwrap();
        assert_eq!(ids(&policies, "a").await, [DEFAULT_POLICY, MCP_POLICY, GRID_POLICY]);
        assert_eq!(ids(&policies, "b").await, [DEFAULT_POLICY, MCP_POLICY, GRID_POLICY, "p", "q"]);
        assert!(matches!(policies.get("a", "q").await, Err(Denied::Refused(Refusal::PolicyUnknown { .. }))));
        assert!(matches!(
            policies.charter("a", "q", ModeKind::Task).await,
            Err(Denied::Refused(Refusal::PolicyUnknown { .. }))
        ));
    }

    #[tokio::test]
    async fn a_refused_change_is_no_change() {
        let policies = policies();
        policies.register("a", policy("p")).await.unwrap();
        let mut changes = policies.watch();
        changes.mark_unchanged();
        let other = Policy { rules: r#"{"completion":{"require_output":true}}"#.to_owned(), ..policy("p") };
        policies.register("a", other).await.unwrap_err();
        policies.register("a", policy(DEFAULT_POLICY)).await.unwrap_err();
        policies.register("a", Policy { rules: "{".to_owned(), ..policy("q") }).await.unwrap_err();
        policies.unregister("a", "q").await.unwrap_err();
        policies.unregister("a", DEFAULT_POLICY).await.unwrap_err();
        assert!(!changes.has_changed().unwrap());
        assert_eq!(policies.get("a", "p").await.unwrap(), policy("p"));
        policies.unregister("a", "p").await.unwrap();
        assert!(changes.has_changed().unwrap());
    }

    #[tokio::test]
    async fn the_policies_of_a_tenant_have_a_bound_together() {
        let policies = policies();
        let large = |id: &str| Policy { description: "x".repeat(TENANT_BYTES_MAX / 3), ..policy(id) };
        policies.register("a", large("p")).await.unwrap();
        policies.register("a", large("q")).await.unwrap();
        let refused = policies.register("a", large("r")).await.unwrap_err();
        assert!(matches!(refused, Denied::Refused(Refusal::PolicyInvalid { .. })), "{refused:?}");
        policies.register("b", large("r")).await.unwrap();
        assert!(policies.register("b", policy(&"x".repeat(257))).await.is_err());
    }

    #[tokio::test]
    async fn more_policies_than_a_page_are_all_listed() {
        let policies = policies();
        let names: Vec<String> = (0..PAGE + 2).map(|n| format!("p{n:04}")).collect();
        for name in &names {
            policies.register("a", policy(name)).await.unwrap();
        }
        assert_eq!(ids(&policies, "a").await[3..], names);
    }

    #[tokio::test]
    async fn a_policy_of_another_mode_makes_no_charter() {
        let policies = policies();
        policies.register("a", policy("p")).await.unwrap();
        policies.charter("a", "p", ModeKind::Task).await.unwrap();
        assert!(matches!(
            policies.charter("a", "p", ModeKind::Handoff).await,
            Err(Denied::Refused(Refusal::PolicyInvalid { .. }))
        ));
        assert_eq!(policies.charter("a", DEFAULT_POLICY, ModeKind::Handoff).await.unwrap(), Charter::macp());
        assert_eq!(policies.charter("a", MCP_POLICY, ModeKind::Task).await.unwrap(), Charter::mcp());
        assert_eq!(policies.charter("a", GRID_POLICY, ModeKind::Task).await.unwrap(), Charter::grid());
        policies.charter("a", MCP_POLICY, ModeKind::Handoff).await.unwrap_err();
    }
}
