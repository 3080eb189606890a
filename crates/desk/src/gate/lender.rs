//! What each agent may use over all nodes: this one borrows from the store, a portion at a time, and refuses what it was not lent.
//!
//! The next portion is asked for when half of one is used, by a thread of its own, so that few requests wait for the store.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use handover_engine::locks::lock;
use handover_engine::seldom::Seldom;
use handover_store::{Ask, Fault, LENT_FOR, Lent};

use crate::bucket::Rate;
use crate::limit::Kind;
use crate::reading::apart;

/// Which part of what may come at once is lent at a time.
const PORTIONS: u64 = 10;

/// How long a request waits for the store to lend something, and for how long nobody waits after one did so in vain.
const WAIT: Duration = Duration::from_secs(1);

/// How many are asked for at once.
const ASKS_MAX: usize = 256;

/// How often those are forgotten who neither have anything nor owe anything.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// Why nothing can be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Not {
    /// All of it is used: there is more after this time.
    Left(Duration),
    /// The store does not answer.
    Known(Duration),
}

/// How the store lends.
type Lend = Box<dyn Fn(&[Ask]) -> Result<Vec<Lent>, Fault> + Send + Sync>;

/// What this node has borrowed.
pub struct Lender {
    lend: Lend,
    state: Mutex<State>,
    answered: Condvar,
    wanted: Sender<()>,
    failed: Seldom,
}

#[derive(Default)]
struct State {
    /// By tenant, then by agent: found without making a key.
    tenants: BTreeMap<Box<str>, BTreeMap<Box<str>, [Credit; 3]>>,
    /// Whose are asked for next, in the order in which every node asks.
    wanted: BTreeSet<(Box<str>, Box<str>, u8)>,
    /// The store did not answer: until then nobody waits for it.
    down_until: Option<Instant>,
    forgotten: Option<Instant>,
    /// How often what was lent was given up: what was asked for before is another slot's.
    given_up: u64,
}

/// What is left of one rate of one agent.
#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    left: u64,
    /// Until when it may be used.
    until: Option<Instant>,
    /// There is no more before this time.
    empty_until: Option<Instant>,
    owes: u64,
    every: u64,
    burst: u64,
    is_asked_for: bool,
}

impl Credit {
    fn portion(&self) -> u64 {
        (self.burst / PORTIONS).max(1)
    }

    fn expire(&mut self, now: Instant) {
        if self.until.is_none_or(|until| now >= until) {
            self.left = 0;
        }
    }

    /// What became of what was asked for at this time.
    fn lent(&mut self, ask: &Ask, lent: Lent, asked: Instant) {
        self.is_asked_for = false;
        self.left += lent.count;
        if lent.count > 0 {
            self.until = Some(asked + LENT_FOR);
            self.empty_until = None;
        } else if ask.wants > 0 {
            // As soon as there is one, a question for each would be asked.
            let some = self.every.saturating_mul(self.portion() / 2);
            self.empty_until = Some(Instant::now() + Duration::from_nanos(lent.after.max(some)));
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        let over = |at: Option<Instant>| at.is_none_or(|at| now >= at);
        over(self.until) && over(self.empty_until) && self.owes == 0 && !self.is_asked_for
    }
}

impl State {
    fn credit(&mut self, tenant: &str, agent: &str, kind: Kind, rate: Rate) -> &mut Credit {
        if !self.tenants.get(tenant).is_some_and(|agents| agents.contains_key(agent)) {
            self.tenants.entry(tenant.into()).or_default().insert(agent.into(), Default::default());
        }
        let credits = self.tenants.get_mut(tenant).and_then(|agents| agents.get_mut(agent));
        let credits = credits.expect("it was put in");
        let credit = &mut credits[usize::from(number(kind))];
        if (credit.every, credit.burst) != (rate.every(), rate.at_once()) {
            (credit.every, credit.burst) = (rate.every(), rate.at_once());
            // There may be more of it now.
            credit.empty_until = None;
        }
        credit
    }

    fn found(&mut self, (tenant, agent, kind): &(Box<str>, Box<str>, u8)) -> Option<&mut Credit> {
        Some(&mut self.tenants.get_mut(tenant)?.get_mut(agent)?[usize::from(*kind)])
    }
}

/// The number of a rate in the store.
fn number(kind: Kind) -> u8 {
    match kind {
        Kind::Start => 0,
        Kind::Message => 1,
        Kind::Request => 2,
    }
}

impl Lender {
    /// Nothing is borrowed yet.
    pub fn begin(lend: Lend) -> Result<Arc<Lender>, Fault> {
        let (wanted, asks) = mpsc::channel();
        let (state, answered) = (Mutex::default(), Condvar::new());
        let lender = Arc::new(Lender { lend, state, answered, wanted, failed: Seldom::default() });
        let borrowing = Arc::downgrade(&lender);
        thread::Builder::new()
            .name("lender".to_owned())
            .spawn(move || borrow(&borrowing, &asks))
            .map_err(|error| Fault::Unavailable { doing: "starting a thread", source: error.into() })?;
        Ok(lender)
    }

    /// Use one of what was lent, or wait until it is. May take as long as the store does, but not for ever.
    pub fn take(&self, tenant: &str, agent: &str, kind: Kind, rate: Rate) -> Result<(), Not> {
        if let Some(taken) = self.try_take(&mut lock(&self.state), tenant, agent, kind, rate) {
            return taken;
        }
        apart(|| {
            let until = Instant::now() + WAIT;
            let mut state = lock(&self.state);
            loop {
                if let Some(taken) = self.try_take(&mut state, tenant, agent, kind, rate) {
                    return taken;
                }
                let now = Instant::now();
                if now >= until {
                    state.down_until = Some(now + WAIT);
                    return Err(Not::Known(WAIT));
                }
                let waited = self.answered.wait_timeout(state, until - now);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        })
    }

    /// None if it is not known yet.
    fn try_take(
        &self,
        state: &mut State,
        tenant: &str,
        agent: &str,
        kind: Kind,
        rate: Rate,
    ) -> Option<Result<(), Not>> {
        let now = Instant::now();
        let down = state.down_until.filter(|until| now < *until);
        let credit = state.credit(tenant, agent, kind, rate);
        credit.expire(now);
        let taken = credit.left > 0;
        credit.left -= u64::from(taken);
        let empty = credit.empty_until.filter(|until| now < *until);
        let wants = credit.left <= credit.portion() / 2 && empty.is_none() && !credit.is_asked_for;
        // Where the store is down, the next portion is asked for when it may be up again.
        if wants && down.is_none() {
            self.ask_for(state, tenant, agent, kind);
        }
        match (taken, empty, down) {
            (true, ..) => Some(Ok(())),
            (false, Some(until), _) => Some(Err(Not::Left(until - now))),
            (false, None, Some(until)) => Some(Err(Not::Known(until - now))),
            (false, None, None) => None,
        }
    }

    /// So many were used without having been lent.
    pub fn charge(&self, tenant: &str, agent: &str, (kind, count): (Kind, u64), rate: Rate) {
        let mut state = lock(&self.state);
        let credit = state.credit(tenant, agent, kind, rate);
        credit.owes = credit.owes.saturating_add(count);
        if !credit.is_asked_for {
            self.ask_for(&mut state, tenant, agent, kind);
        }
    }

    /// This node may hold another slot now: what was lent to the one before is not its any more.
    pub fn let_go(&self) {
        let mut state = lock(&self.state);
        state.given_up += 1;
        let credits = state.tenants.values_mut().flat_map(BTreeMap::values_mut).flatten();
        credits.for_each(|credit| credit.left = 0);
    }

    fn ask_for(&self, state: &mut State, tenant: &str, agent: &str, kind: Kind) {
        let name = (tenant.into(), agent.into(), number(kind));
        if let Some(credit) = state.found(&name) {
            credit.is_asked_for = true;
        }
        state.wanted.insert(name);
        // The thread ends with the last who could ask.
        _ = self.wanted.send(());
    }

    /// Ask the store for what is wanted.
    fn borrow(&self) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let names: Vec<_> = std::iter::from_fn(|| state.wanted.pop_first()).take(ASKS_MAX).collect();
        let mut asks = Vec::with_capacity(names.len());
        for name in names {
            let Some(credit) = state.found(&name) else { continue };
            credit.expire(now);
            let wants = credit.portion().saturating_sub(credit.left);
            let owes = mem::take(&mut credit.owes);
            let (every, burst, has) = (credit.every, credit.burst, credit.left);
            asks.push(Ask { of: name, every, burst, has, wants, owes });
        }
        state.forget(now);
        let given_up = state.given_up;
        drop(state);
        if asks.is_empty() {
            return;
        }
        let lent = (self.lend)(&asks);
        let mut state = lock(&self.state);
        match lent {
            Ok(lent) => {
                state.down_until = None;
                let is_ours = state.given_up == given_up;
                for (ask, lent) in asks.iter().zip(lent) {
                    match state.found(&ask.of) {
                        Some(credit) if is_ours => credit.lent(ask, lent, now),
                        Some(credit) => credit.is_asked_for = false,
                        None => {}
                    }
                }
            }
            Err(fault) => {
                if let Some(unsaid) = self.failed.now() {
                    tracing::error!(error = %fault, unsaid, "the store does not say how much agents may use");
                }
                state.down_until = Some(Instant::now() + WAIT);
                for ask in &asks {
                    if let Some(credit) = state.found(&ask.of) {
                        credit.owes = credit.owes.saturating_add(ask.owes);
                        credit.is_asked_for = false;
                    }
                }
            }
        }
        drop(state);
        self.answered.notify_all();
    }
}

impl State {
    fn forget(&mut self, now: Instant) {
        if self.forgotten.is_some_and(|at| now < at + FORGET_EVERY) {
            return;
        }
        self.forgotten = Some(now);
        self.tenants.retain(|_, agents| {
            agents.retain(|_, credits| !credits.iter().all(|credit| credit.is_idle(now)));
            !agents.is_empty()
        });
    }
}

/// Ends with the lender.
fn borrow(lender: &Weak<Lender>, asks: &Receiver<()>) {
    while asks.recv().is_ok() {
        // What came meanwhile is asked for together.
        while asks.try_recv().is_ok() {}
        let Some(lender) = lender.upgrade() else { return };
        while !lock(&lender.state).wanted.is_empty() {
            lender.borrow();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    fn rate() -> Rate {
        Rate::per_minute(6000).unwrap()
    }

    fn down() -> Fault {
        Fault::Unavailable { doing: "lending", source: "on demand".into() }
    }

    fn take(lender: &Lender, kind: Kind) -> Result<(), Not> {
        lender.take("t", "ada", kind, rate())
    }

    #[test]
    fn what_was_lent_to_another_slot_is_not_used_any_more() {
        let (tell, told) = mpsc::channel();
        let lend = move |asks: &[Ask]| {
            tell.send(asks[0].has).unwrap();
            Ok(asks.iter().map(|ask| Lent { count: ask.wants, after: 0 }).collect())
        };
        let lender = Lender::begin(Box::new(lend)).unwrap();
        (0..40).for_each(|_| take(&lender, Kind::Message).unwrap());
        assert_eq!(told.recv().unwrap(), 0);
        // What this question brings may come before or after it is given up.
        assert!(told.recv().unwrap() > 0);
        lender.let_go();
        take(&lender, Kind::Message).unwrap();
        assert_eq!(told.recv().unwrap(), 0);
    }

    #[test]
    fn many_requests_cost_few_questions_and_none_that_was_not_lent_goes_through() {
        let (asked, left) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(600));
        let questions = Arc::clone(&asked);
        let lend = move |asks: &[Ask]| {
            questions.fetch_add(1, Ordering::SeqCst);
            let lent = |ask: &Ask| {
                assert!(ask.has + ask.wants <= 60 && ask.burst == 600, "{ask:?}");
                let count = ask.wants.min(left.load(Ordering::SeqCst));
                left.fetch_sub(count, Ordering::SeqCst);
                Lent { count, after: if count == 0 { 5_000_000_000 } else { 0 } }
            };
            Ok(asks.iter().map(lent).collect())
        };
        let lender = Lender::begin(Box::new(lend)).unwrap();
        let taken = (0..2000).take_while(|_| take(&lender, Kind::Message).is_ok()).count();
        assert_eq!(taken, 600);
        let before = asked.load(Ordering::SeqCst);
        assert!(before <= 30, "{before} questions");
        for _ in 0..100 {
            assert!(matches!(take(&lender, Kind::Message), Err(Not::Left(after)) if after > WAIT));
        }
        assert_eq!(asked.load(Ordering::SeqCst), before, "who has nothing left costs no questions");
        // Under a higher rate there may be more.
        let higher = Rate::per_minute(6001).unwrap();
        assert!(lender.take("t", "ada", Kind::Message, higher).is_err());
        assert!(asked.load(Ordering::SeqCst) > before);
    }

    #[test]
    fn who_is_at_its_limit_costs_few_questions_too() {
        let asked = Arc::new(AtomicU64::new(0));
        let questions = Arc::clone(&asked);
        let lend = move |asks: &[Ask]| {
            questions.fetch_add(1, Ordering::SeqCst);
            Ok(asks.iter().map(|_| Lent { count: 0, after: 1 }).collect())
        };
        let lender = Lender::begin(Box::new(lend)).unwrap();
        let begun = Instant::now();
        let refused = (0..1000).filter(|_| take(&lender, Kind::Message).is_err()).count();
        // Half a portion is there after 300 ms.
        assert_eq!(refused, 1000);
        let most = 1 + begun.elapsed().as_millis() as u64 / 300;
        assert!(asked.load(Ordering::SeqCst) <= most, "{asked:?} questions");
    }

    #[test]
    fn a_store_that_is_down_lets_nobody_have_more_than_they_were_lent() {
        let is_down = Arc::new(AtomicBool::new(false));
        let down_now = Arc::clone(&is_down);
        let lend = move |asks: &[Ask]| match down_now.load(Ordering::SeqCst) {
            true => Err(down()),
            false => Ok(asks.iter().map(|ask| Lent { count: ask.wants, after: 0 }).collect()),
        };
        let lender = Lender::begin(Box::new(lend)).unwrap();
        take(&lender, Kind::Start).unwrap();
        is_down.store(true, Ordering::SeqCst);
        let more = (0..1000).take_while(|_| take(&lender, Kind::Start).is_ok()).count();
        assert_eq!(more, 59, "a portion is 60");
        let Err(Not::Known(after)) = take(&lender, Kind::Start) else { panic!("it is not known") };
        assert!(after <= WAIT);
        is_down.store(false, Ordering::SeqCst);
        let begun = Instant::now();
        while take(&lender, Kind::Start).is_err() {
            assert!(begun.elapsed() < 30 * WAIT);
        }
    }

    #[test]
    fn nobody_waits_for_long_for_a_store_that_hangs() {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let lend = move |asks: &[Ask]| {
            _ = lock(&released).recv();
            Ok(asks.iter().map(|ask| Lent { count: ask.wants, after: 0 }).collect())
        };
        let lender = Lender::begin(Box::new(lend)).unwrap();
        let begun = Instant::now();
        assert_eq!(take(&lender, Kind::Request), Err(Not::Known(WAIT)));
        let waited = begun.elapsed();
        assert!(take(&lender, Kind::Request).is_err() && take(&lender, Kind::Start).is_err());
        assert!(begun.elapsed() < waited + WAIT / 2, "the next ones do not wait");
        drop(release);
        while take(&lender, Kind::Request).is_err() {
            assert!(begun.elapsed() < 30 * WAIT);
        }
    }

    #[test]
    fn what_was_used_already_is_told_to_the_store_once() {
        let owed = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&owed);
        let failing = AtomicBool::new(true);
        let lend = move |asks: &[Ask]| {
            if failing.swap(false, Ordering::SeqCst) {
                return Err(down());
            }
            asks.iter().for_each(|ask| _ = told.fetch_add(ask.owes, Ordering::SeqCst));
            Ok(asks.iter().map(|_| Lent { count: 0, after: 1 }).collect())
        };
        let lender = Lender::begin(Box::new(lend)).unwrap();
        let begun = Instant::now();
        lender.charge("t", "ada", (Kind::Message, 700), rate());
        while owed.load(Ordering::SeqCst) == 0 {
            // Asking for something else has what is owed told again.
            _ = take(&lender, Kind::Message);
            assert!(begun.elapsed() < 30 * WAIT);
        }
        assert_eq!(owed.load(Ordering::SeqCst), 700);
    }
}
