//! Inboxes, as the index has them.

use std::sync::Arc;

use handover_store::{Cursor, InboxPage};

use crate::answer::Denied;
use crate::shell::Engine;

impl Engine {
    /// A page of the sessions that wait for an agent for at least one of `kinds` (bits of [`crate::view::WaitKind`]), the oldest
    /// first. It knows of everything that was answered before it was asked for.
    pub async fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Denied> {
        let store = Arc::clone(&self.inner().store);
        let (tenant, agent) = (tenant.to_owned(), agent.to_owned());
        let read = tokio::task::spawn_blocking(move || store.inbox(&tenant, &agent, kinds, after, max));
        match read.await {
            Ok(page) => page.map_err(|fault| Denied::Fault(Arc::new(fault))),
            Err(_) => Err(Denied::Stopping),
        }
    }
}
