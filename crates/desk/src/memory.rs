//! What is held in memory on behalf of callers, counted in bytes: requests under way, pages that are read for them, answers
//! and streams that wait for a reader. Each agent has a budget, each tenant, and all of them together.
//!
//! Counting is a few atomic additions. Whoever would go beyond a budget is refused before anything is done for it, or waits
//! where it can. What is due in any case, such as the answer to a command that was accepted, is counted and never refused: it
//! delays what comes next.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use handover_engine::locks::lock;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use crate::limit::{Limited, Whose};

/// What every request takes while it is under way, beside what it brings and what it is answered with.
pub const REQUEST_BYTES: u64 = 16 * 1024;

/// So much of what it brings is counted with that: most bring no more, and are counted once.
pub const BROUGHT_BYTES: u64 = 1024;

/// Into how many parts the agents are split, so that they do not wait for each other.
const PARTS: usize = 64;

/// How many agents of a part are remembered before those that hold nothing are forgotten.
const REMEMBERED_MAX: usize = 64;

/// The budgets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of an agent, unless its credential says otherwise.
    pub per_agent: u64,
    /// Of all agents of a tenant together.
    pub per_tenant: u64,
    /// Of all tenants together.
    pub server: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { per_agent: 64 << 20, per_tenant: 256 << 20, server: 1 << 30 }
    }
}

/// Everything that is held. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    server: Arc<Pot>,
    tenants: Mutex<BTreeMap<Box<str>, Arc<Pot>>>,
    agents: Vec<Mutex<Part>>,
    /// Agents choose their names: where one ends up must not be theirs to choose.
    hasher: RandomState,
    held: Gauge,
}

/// By tenant, then by agent: found without making a key.
#[derive(Default)]
struct Part {
    tenants: BTreeMap<Box<str>, BTreeMap<Box<str>, Arc<Account>>>,
    agents: usize,
}

/// What somebody holds, and who waits for it to become less.
#[derive(Default)]
struct Pot {
    used: AtomicU64,
    waiting: AtomicU64,
    /// How much of it those hold who stay.
    staying: AtomicU64,
    freed: Notify,
}

/// Counts one who waits, until it is dropped.
struct Waiting<'a>(&'a Pot);

impl<'a> Waiting<'a> {
    fn of(pot: &'a Pot) -> Waiting<'a> {
        pot.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(pot)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Pot {
    /// Whatever there is room for can be held; and one thing by itself, however large.
    fn take(&self, bytes: u64, max: u64) -> bool {
        let fits = |used: u64| (used == 0 || used.saturating_add(bytes) <= max).then_some(used + bytes);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// In one order with [`Waiting`]: who looks whether it fits after it is counted either sees this, or is seen here. Waking
    /// takes a lock, which every request would wait for.
    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
}

struct Account {
    pots: [Arc<Pot>; 3],
    held: Gauge,
}

/// What one agent may still hold. Cheap to clone.
#[derive(Clone)]
pub struct Room {
    account: Arc<Account>,
    max: [u64; 3],
}

/// Bytes that are held, given back when it is dropped.
pub struct Lease {
    room: Room,
    bytes: u64,
}

/// What is held by somebody who stays, given back when it is dropped.
pub struct Staying {
    lease: Lease,
    counted: u64,
}

impl Drop for Staying {
    fn drop(&mut self) {
        let pots = &self.lease.room.account.pots;
        pots.iter().for_each(|pot| _ = pot.staying.fetch_sub(self.counted, Ordering::AcqRel));
    }
}

impl Memory {
    /// Nothing is held. The gauge follows what everybody holds together.
    pub fn new(settings: Settings, held: Gauge) -> Memory {
        let agents = (0..PARTS).map(|_| Mutex::default()).collect();
        let (server, tenants, hasher) = (Arc::default(), Mutex::default(), RandomState::new());
        Memory { inner: Arc::new(Inner { settings, server, tenants, agents, hasher, held }) }
    }

    /// The room of an agent, whose credential may set another budget than the server's.
    pub fn room(&self, tenant: &str, agent: &str, own: Option<u64>) -> Room {
        let Settings { per_agent, per_tenant, server } = self.inner.settings;
        let max = [own.unwrap_or(per_agent), per_tenant, server];
        Room { account: self.inner.account(tenant, agent), max }
    }
}

impl Inner {
    fn account(&self, tenant: &str, agent: &str) -> Arc<Account> {
        let part = self.hasher.hash_one((tenant, agent)) % PARTS as u64;
        let mut part = lock(&self.agents[part as usize]);
        if let Some(account) = part.tenants.get(tenant).and_then(|agents| agents.get(agent)) {
            return Arc::clone(account);
        }
        if part.agents >= REMEMBERED_MAX {
            part.forget();
        }
        let pots = [Arc::default(), self.tenant(tenant), Arc::clone(&self.server)];
        let account = Arc::new(Account { pots, held: self.held.clone() });
        part.tenants.entry(tenant.into()).or_default().insert(agent.into(), Arc::clone(&account));
        part.agents += 1;
        account
    }

    fn tenant(&self, name: &str) -> Arc<Pot> {
        let mut tenants = lock(&self.tenants);
        if let Some(pot) = tenants.get(name) {
            return Arc::clone(pot);
        }
        if tenants.len() >= REMEMBERED_MAX {
            tenants.retain(|_, pot| Arc::strong_count(pot) > 1);
        }
        Arc::clone(tenants.entry(name.into()).or_default())
    }
}

impl Part {
    /// Whoever holds nothing.
    fn forget(&mut self) {
        self.tenants.retain(|_, agents| {
            agents.retain(|_, account| Arc::strong_count(account) > 1);
            !agents.is_empty()
        });
        self.agents = self.tenants.values().map(BTreeMap::len).sum();
    }
}

impl Room {
    /// The most that there can be room for.
    pub fn max(&self) -> u64 {
        self.max.into_iter().min().unwrap_or(0)
    }

    /// Hold so many bytes, if there is room for them.
    pub fn take(&self, bytes: u64) -> Result<Lease, Limited> {
        match self.try_take(bytes, self.max) {
            Ok(()) => Ok(Lease { room: self.clone(), bytes }),
            Err(full) => {
                let whose = [Whose::Agent, Whose::Tenant, Whose::Server][full];
                Err(Limited::Memory { whose, max: self.max[full] })
            }
        }
    }

    /// Hold so many bytes for a long time, beside what is held already for the request that stays. Those who stay have half of the
    /// room together: whoever stays waits for room now and then, and would wait for ever if nobody else were left to give some back.
    pub fn stay(&self, bytes: u64, request: Option<&Lease>) -> Result<Staying, Limited> {
        let counted = bytes + request.map_or(0, |request| request.bytes);
        for (index, pot) in self.account.pots.iter().enumerate() {
            if pot.staying.fetch_add(counted, Ordering::AcqRel) + counted > self.max[index] / 2 {
                let taken = &self.account.pots[..=index];
                taken.iter().for_each(|pot| _ = pot.staying.fetch_sub(counted, Ordering::AcqRel));
                let whose = [Whose::Agent, Whose::Tenant, Whose::Server][index];
                return Err(Limited::Memory { whose, max: self.max[index] / 2 });
            }
        }
        Ok(Staying { lease: self.hold(bytes), counted })
    }

    /// Hold so many bytes as soon as there is room for them. Never more than half of what there can be room for: who waits
    /// holds something already. A quarter is left to those who do not wait and would be refused.
    pub async fn wait(&self, bytes: u64) -> Lease {
        let bytes = bytes.min(self.max() / 2);
        let max = self.max.map(|max| max - max / 4);
        while let Err(full) = self.try_take(bytes, max) {
            let _waiting = Waiting::of(&self.account.pots[full]);
            let freed = self.account.pots[full].freed.notified();
            // What was given back before we listened would not wake us.
            match self.try_take(bytes, max) {
                Ok(()) => break,
                Err(still) if still == full => freed.await,
                Err(_) => {}
            }
        }
        Lease { room: self.clone(), bytes }
    }

    /// Hold so many bytes whether or not there is room: they are there already.
    pub fn hold(&self, bytes: u64) -> Lease {
        for pot in &self.account.pots {
            pot.used.fetch_add(bytes, Ordering::AcqRel);
        }
        self.account.held.inc_by(signed(bytes));
        Lease { room: self.clone(), bytes }
    }

    /// Which budget is spent, if one is.
    fn try_take(&self, bytes: u64, max: [u64; 3]) -> Result<(), usize> {
        let pots = &self.account.pots;
        for (index, (pot, max)) in pots.iter().zip(max).enumerate() {
            if !pot.take(bytes, max) {
                pots[..index].iter().for_each(|pot| pot.give_back(bytes));
                return Err(index);
            }
        }
        self.account.held.inc_by(signed(bytes));
        Ok(())
    }
}

impl Lease {
    /// Whose bytes they are.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// What is held for a request is from now on held for its answer, which has so many bytes; or else beside it, if the
    /// request goes on.
    pub fn of_answer(request: Arc<Lease>, bytes: u64) -> Lease {
        match Arc::try_unwrap(request) {
            Ok(mut lease) => {
                lease.settle(bytes);
                lease
            }
            Err(request) => request.room.hold(bytes),
        }
    }

    /// Hold at least so many, if there is room for them.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Limited> {
        let mut more = self.room.take(bytes.saturating_sub(self.bytes))?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }

    /// Hold this many from now on, whether or not there is room: they are there already.
    pub fn settle(&mut self, bytes: u64) {
        if bytes > self.bytes {
            let mut more = self.room.hold(bytes - self.bytes);
            self.bytes += std::mem::take(&mut more.bytes);
        } else {
            self.give_back(self.bytes - bytes);
        }
    }

    fn give_back(&mut self, bytes: u64) {
        if bytes > 0 {
            self.bytes -= bytes;
            self.room.account.held.dec_by(signed(bytes));
            self.room.account.pots.iter().for_each(|pot| pot.give_back(bytes));
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({})", self.bytes)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        Memory::new(Settings { per_agent: 100, per_tenant: 150, server: 220 }, Gauge::default())
    }

    fn spent(limited: Limited) -> (Whose, u64) {
        let Limited::Memory { whose, max } = limited else { panic!("found {limited:?}") };
        (whose, max)
    }

    #[test]
    fn each_agent_each_tenant_and_all_together_have_a_budget_and_what_is_dropped_is_given_back() {
        let memory = memory();
        let ada = memory.room("t", "ada", None);
        let first = ada.take(100).unwrap();
        assert_eq!(spent(ada.take(1).unwrap_err()), (Whose::Agent, 100));
        assert_eq!(spent(memory.room("t", "ada", None).take(1).unwrap_err()), (Whose::Agent, 100));
        let ben = memory.room("t", "ben", None);
        let second = ben.take(50).unwrap();
        assert_eq!(spent(ben.take(1).unwrap_err()), (Whose::Tenant, 150));
        let eve = memory.room("u", "ada", None);
        let third = eve.take(70).unwrap();
        assert_eq!(spent(eve.take(1).unwrap_err()), (Whose::Server, 220));
        assert_eq!(memory.inner.held.get(), 220);
        drop(first);
        let again = eve.take(30).unwrap();
        drop((second, third, again));
        assert_eq!(memory.inner.held.get(), 0);
        assert!(memory.inner.server.used.load(Ordering::Acquire) == 0);
    }

    #[test]
    fn what_is_there_already_is_counted_and_delays_what_comes() {
        let memory = memory();
        let ada = memory.room("t", "ada", None);
        let mut held = ada.hold(500);
        assert!(ada.take(1).is_err());
        held.settle(60);
        let mut more = ada.take(30).unwrap();
        assert!(more.grow_to(41).is_err());
        more.grow_to(40).unwrap();
        assert_eq!((memory.inner.held.get(), more.bytes), (100, 40));
        drop((held, more));
        assert_eq!(memory.inner.held.get(), 0);
    }

    #[test]
    fn those_who_stay_have_half_of_the_room_whatever_else_is_held() {
        let memory = memory();
        let ada = memory.room("t", "ada", None);
        let half = ada.max() / 2;
        let busy = ada.take(half + 1).unwrap();
        let first = ada.stay(half - 1, None).unwrap();
        assert!(ada.stay(2, None).is_err());
        let request = ada.hold(1);
        assert!(ada.stay(1, Some(&request)).is_err(), "what its request holds counts");
        drop(first);
        let again = ada.stay(half - 1, Some(&request)).unwrap();
        drop((busy, request, again));
        assert_eq!(memory.inner.held.get(), 0);
    }

    #[test]
    fn an_answer_takes_over_what_its_request_held_unless_that_goes_on() {
        let memory = memory();
        let ada = memory.room("t", "ada", None);
        let request = Arc::new(ada.take(60).unwrap());
        let goes_on = Arc::clone(&request);
        let first = Lease::of_answer(request, 5);
        assert_eq!(memory.inner.held.get(), 65);
        let second = Lease::of_answer(goes_on, 7);
        assert_eq!(memory.inner.held.get(), 12);
        drop((first, second));
        assert_eq!(memory.inner.held.get(), 0);
    }

    #[test]
    fn a_credential_can_set_another_budget_and_one_large_thing_goes_through_alone() {
        let memory = memory();
        let small = memory.room("t", "ada", Some(10));
        let large = small.take(40).unwrap();
        assert_eq!(spent(small.take(1).unwrap_err()), (Whose::Agent, 10));
        drop(large);
        assert!(small.take(10).is_ok());
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_something_is_given_back() {
        let memory = memory();
        let ada = memory.room("t", "ada", None);
        let held = ada.take(100).unwrap();
        let waits = tokio::spawn({
            let ada = ada.clone();
            async move { ada.wait(1_000).await.bytes }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(held);
        assert_eq!(waits.await.unwrap(), 50, "half of what there can be room for");
        // Who waits leaves some to who does not.
        let waited = ada.wait(50).await;
        assert!(tokio::time::timeout(std::time::Duration::ZERO, ada.wait(30)).await.is_err());
        let taken = ada.take(50).unwrap();
        drop((waited, taken));
    }

    #[test]
    fn who_holds_nothing_is_forgotten_and_who_holds_something_is_not() {
        let memory = memory();
        let kept = memory.room("t", "kept", None).take(100).unwrap();
        for index in 0..100 * REMEMBERED_MAX {
            memory.room(&format!("tenant {index}"), "ada", None);
        }
        let known: usize = memory.inner.agents.iter().map(|part| lock(part).agents).sum();
        assert!(known <= PARTS * REMEMBERED_MAX, "{known}");
        assert!(memory.room("t", "kept", None).take(1).is_err());
        drop(kept);
    }
}
