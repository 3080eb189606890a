//! The policies that sessions can be bound to. Durable; a session's charter is compiled from one when it starts and
//! never depends on what is registered afterwards.

use std::sync::Arc;

use handover_kernel::charter::Charter;
use handover_kernel::command::ModeKind;
use handover_kernel::policy::{DEFAULT_POLICY, Descriptor, Scope};
use handover_kernel::{Refusal, Text};
use handover_store::{Fault, Put, Record, Store};
use prost::Message;
use tokio::sync::watch;

use crate::engine::Denied;

/// The records that hold policies.
const SPACE: &str = "policy";

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

impl Policy {
    /// The policy that every session has unless it names another.
    pub fn default_policy() -> Policy {
        Policy {
            id: DEFAULT_POLICY.to_owned(),
            mode: String::new(),
            description: "the initiator commits; nothing is reassigned; nothing is accepted implicitly"
                .to_owned(),
            rules: "{}".to_owned(),
            schema_version: 1,
            registered_at: 0,
        }
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

    /// Register a policy. Ids are immutable: registering one twice is refused.
    pub async fn register(&self, tenant: &str, policy: Policy) -> Result<(), Denied> {
        policy.descriptor().check().map_err(Denied::Refused)?;
        if policy.id == DEFAULT_POLICY {
            return Err(invalid(format!("{DEFAULT_POLICY} is built in and cannot be registered")));
        }
        let record = Record {
            space: SPACE.into(),
            tenant: tenant.into(),
            key: policy.id.as_str().into(),
            value: policy.encode_to_vec(),
        };
        let store = Arc::clone(&self.store);
        let written = blocking(move || store.put_record(&record, Put::IfAbsent)).await?;
        if !written {
            return Err(invalid(format!("a policy with the id {:?} exists already", policy.id)));
        }
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Remove a policy. Sessions that are bound to it keep their charter.
    pub async fn unregister(&self, tenant: &str, id: &str) -> Result<(), Denied> {
        if id == DEFAULT_POLICY {
            return Err(invalid(format!("{DEFAULT_POLICY} is built in and cannot be removed")));
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
        if id == DEFAULT_POLICY {
            return Ok(Policy::default_policy());
        }
        let (store, tenant, key) = (Arc::clone(&self.store), tenant.to_owned(), id.to_owned());
        match blocking(move || store.record(SPACE, &tenant, &key)).await? {
            Some(bytes) => decode(&bytes),
            None => Err(unknown(id)),
        }
    }

    /// All policies of a tenant, the built-in one first.
    pub async fn list(&self, tenant: &str) -> Result<Vec<Policy>, Denied> {
        let (store, tenant) = (Arc::clone(&self.store), tenant.to_owned());
        let records = blocking(move || {
            let mut all: Vec<Record> = Vec::new();
            loop {
                let after = all.last().map(|record| record.key.clone());
                let page = store.records(SPACE, &tenant, after.as_deref(), PAGE)?;
                let full = page.len() == PAGE;
                all.extend(page);
                if !full {
                    return Ok(all);
                }
            }
        })
        .await?;
        let mut policies = vec![Policy::default_policy()];
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
        self.get(tenant, id).await?.descriptor().compile(mode).map_err(Denied::Refused)
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

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, Fault> + Send + 'static,
) -> Result<R, Denied> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|fault| Denied::Fault(Arc::new(fault))),
        Err(_) => Err(Denied::Stopping),
    }
}
