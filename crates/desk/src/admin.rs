//! What only administrators do: change what belongs to everybody in their tenant, and read who tried what in it.

use handover_kernel::Refusal;

use crate::audit::What;
use crate::audit::read::{Page, Place, Wanted, is_shown, read};
use crate::caller::Caller;
use crate::limit::Kind;
use crate::no::No;
use crate::policies::Policy;
use crate::{Denied, Desk};

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

    /// A page of this node's audit log, of the caller's tenant. Only administrators see it; those of the tenant `default` also what
    /// belongs to no tenant.
    pub async fn audit_log(
        &self,
        caller: &Caller,
        wanted: Wanted,
        before: Option<&str>,
        max: usize,
    ) -> Result<Page, No> {
        if !self.gate.administers(caller) {
            return Err(No::NotAdministrator { agent: caller.agent.clone() });
        }
        let wrong = || Refusal::invalid("expected a place in the audit log, found something else");
        let before = before.map(|before| Place::parse(before).ok_or_else(wrong)).transpose()?;
        let Some((path, node)) = self.audit.place() else { return Ok(Page::default()) };
        if let Some(place) = &before
            && place.node() != node
        {
            return Err(elsewhere(place.node(), node).into());
        }
        let (path, node) = (path.to_owned(), node.to_owned());
        let tenant = caller.tenant.clone();
        let read =
            move || read(&path, &node, before, max, |line| is_shown(line, &tenant) && wanted.fits(line));
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => {
                tracing::error!(%error, "the audit log cannot be read");
                Err(Refusal::invalid("the audit log cannot be read: the server's log says why").into())
            }
            Err(_) => Err(Denied::Stopping.into()),
        }
    }
}

/// A place of one log is nothing in another: each node writes its own.
fn elsewhere(there: &str, here: &str) -> Refusal {
    let named =
        |node: &str| if node.is_empty() { "another log".to_owned() } else { format!("node {node:?}") };
    Refusal::invalid(format!(
        "expected a place in the audit log of {}, which answers, found one of {}: open the page again, or ask that node",
        named(here),
        named(there)
    ))
}
