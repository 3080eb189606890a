//! What only administrators do: change what belongs to everybody in their tenant.

use crate::Desk;
use crate::audit::What;
use crate::caller::Caller;
use crate::limit::Kind;
use crate::no::No;
use crate::policies::Policy;

/// A caller that may change what belongs to everybody.
pub struct Administrator<'a> {
    caller: &'a Caller,
}

impl Desk {
    /// Let a caller change what belongs to everybody, if it may.
    pub fn administer<'a>(&self, caller: &'a Caller) -> Result<Administrator<'a>, No> {
        self.gate.admit(caller, Kind::Message)?;
        match self.gate.administers(caller) {
            true => Ok(Administrator { caller }),
            false => Err(No::NotAdministrator { agent: caller.agent.clone() }),
        }
    }

    /// Register a policy, which sessions can be bound to from then on.
    pub async fn register_policy(&self, by: Administrator<'_>, policy: Policy) -> Result<(), No> {
        let id = policy.id.clone();
        self.policies.register(&by.caller.tenant, policy).await?;
        self.gate.changed_policy(by.caller, What::PolicyRegistered, &id);
        Ok(())
    }

    /// Remove a policy. Sessions that are bound to it keep their charter.
    pub async fn unregister_policy(&self, by: Administrator<'_>, id: &str) -> Result<(), No> {
        self.policies.unregister(&by.caller.tenant, id).await?;
        self.gate.changed_policy(by.caller, What::PolicyUnregistered, id);
        Ok(())
    }
}
