//! How many bytes are stored of the sessions that each agent started: counted from the store at the start, and kept up as
//! events are appended and sessions deleted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use handover_store::StoredBytes;

/// The bytes of all requesters. Found with shared locks, and changed without any once a requester is known.
#[derive(Debug, Default)]
pub struct Stored {
    tenants: RwLock<BTreeMap<Box<str>, Arc<Tenant>>>,
}

#[derive(Debug, Default)]
struct Tenant {
    bytes: AtomicU64,
    agents: RwLock<BTreeMap<Box<str>, Arc<AtomicU64>>>,
}

impl Stored {
    /// What the store says, in place of what was counted before.
    pub fn recount(&self, stored: Vec<StoredBytes>) {
        self.tenants.write().unwrap_or_else(PoisonError::into_inner).clear();
        for (tenant, agent, bytes) in stored {
            self.add(&tenant, &agent, bytes);
        }
    }

    /// So many bytes more.
    pub fn add(&self, tenant: &str, agent: &str, bytes: u64) {
        let tenant = known(&self.tenants, tenant);
        tenant.bytes.fetch_add(bytes, Ordering::AcqRel);
        known(&tenant.agents, agent).fetch_add(bytes, Ordering::AcqRel);
    }

    /// So many bytes less. What was never counted does no harm.
    pub fn take(&self, tenant: &str, agent: &str, bytes: u64) {
        let less = |of: &AtomicU64| {
            let less = |found: u64| Some(found.saturating_sub(bytes));
            _ = of.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        };
        let tenant = known(&self.tenants, tenant);
        less(&tenant.bytes);
        less(&known(&tenant.agents, agent));
    }

    /// How many bytes are stored of a tenant, and of one of its agents.
    pub fn of(&self, tenant: &str, agent: &str) -> (u64, u64) {
        let Some(tenant) = find(&self.tenants, tenant) else { return (0, 0) };
        let agent = find(&tenant.agents, agent).map_or(0, |agent| agent.load(Ordering::Acquire));
        (tenant.bytes.load(Ordering::Acquire), agent)
    }

    /// How many bytes are stored of everybody.
    pub fn total(&self) -> u64 {
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        tenants.values().map(|tenant| tenant.bytes.load(Ordering::Acquire)).sum()
    }
}

type Names<T> = RwLock<BTreeMap<Box<str>, Arc<T>>>;

fn find<T>(among: &Names<T>, name: &str) -> Option<Arc<T>> {
    among.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

fn known<T: Default>(among: &Names<T>, name: &str) -> Arc<T> {
    if let Some(found) = find(among, name) {
        return found;
    }
    let mut all = among.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(name.into()).or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_and_tenants_are_counted_and_a_recount_forgets_what_was_counted() {
        let stored = Stored::default();
        stored.add("t", "ada", 10);
        stored.add("t", "ben", 5);
        stored.add("u", "ada", 7);
        assert_eq!(
            (stored.of("t", "ada"), stored.of("t", "eve"), stored.of("v", "ada")),
            ((15, 10), (15, 0), (0, 0))
        );
        stored.take("t", "ada", 4);
        assert_eq!((stored.of("t", "ada"), stored.total()), ((11, 6), 18));
        stored.take("t", "ada", 100);
        assert_eq!(stored.of("t", "ada"), (0, 0));
        stored.recount(vec![("t".into(), "ben".into(), 3)]);
        assert_eq!((stored.of("t", "ben"), stored.of("u", "ada")), ((3, 3), (0, 0)));
    }
}
