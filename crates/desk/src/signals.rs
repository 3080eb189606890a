//! The signals that are being told, in memory alone. Each tenant has the last few of its own, up to so many bytes: a listener
//! that has not heard one before it makes room for another is told that it lags.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use handover_engine::locks::lock;
use handover_kernel::{AgentId, Blob};
use tokio::sync::Notify;

/// How many signals of a tenant may wait for its listeners, and how many bytes.
const SIGNALS_MAX: usize = 1024;
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many tenants are remembered before those without a listener are forgotten.
const REMEMBERED_MAX: usize = 64;

/// Everybody who listens.
#[derive(Default)]
pub struct Signals(Mutex<BTreeMap<Box<str>, Weak<Told>>>);

/// A signal that was told.
#[derive(Clone, Debug)]
pub struct Signal {
    pub(crate) sender: AgentId,
    /// The session that it relates to, if it does.
    pub(crate) about: Option<Box<str>>,
    /// Whether the sender has proven who it is.
    pub proven: bool,
    /// What was told, as its face wrote it.
    pub body: Blob,
}

/// What a tenant's listeners may hear.
#[derive(Default)]
struct Told {
    last: Mutex<Last>,
    more: Notify,
}

/// The last signals of a tenant.
#[derive(Default)]
struct Last {
    signals: VecDeque<Arc<Signal>>,
    bytes: usize,
    /// How many came before them.
    before: u64,
}

/// One listener.
pub(crate) struct Heard {
    told: Arc<Told>,
    next: u64,
}

/// A listener did not keep up.
pub(crate) struct Lagging;

impl Signals {
    /// Tell the listeners of a tenant. Nobody listening is no error: a signal is not kept.
    pub(crate) fn tell(&self, tenant: &str, signal: Signal) {
        let Some(told) = lock(&self.0).get(tenant).and_then(Weak::upgrade) else { return };
        let mut last = lock(&told.last);
        last.bytes += signal.body.len();
        last.signals.push_back(Arc::new(signal));
        while last.signals.len() > SIGNALS_MAX || (last.bytes > BYTES_MAX && last.signals.len() > 1) {
            if let Some(oldest) = last.signals.pop_front() {
                last.bytes -= oldest.body.len();
                last.before += 1;
            }
        }
        drop(last);
        told.more.notify_waiters();
    }

    /// Listen: what is told after this is heard.
    pub(crate) fn listen(&self, tenant: &str) -> Heard {
        let mut tenants = lock(&self.0);
        let told = tenants.get(tenant).and_then(Weak::upgrade).unwrap_or_else(|| {
            if tenants.len() >= REMEMBERED_MAX {
                tenants.retain(|_, told| told.strong_count() > 0);
            }
            let told = Arc::default();
            tenants.insert(tenant.into(), Arc::downgrade(&told));
            told
        });
        let next = {
            let last = lock(&told.last);
            last.before + last.signals.len() as u64
        };
        Heard { told, next }
    }
}

impl Heard {
    /// The next signal. Waits for it.
    pub(crate) async fn next(&mut self) -> Result<Arc<Signal>, Lagging> {
        loop {
            // Before it is looked: what is told in between wakes us.
            let told = Arc::clone(&self.told);
            let more = told.more.notified();
            if let Some(signal) = self.ready()? {
                return Ok(signal);
            }
            more.await;
        }
    }

    fn ready(&mut self) -> Result<Option<Arc<Signal>>, Lagging> {
        let last = lock(&self.told.last);
        let place = self.next.checked_sub(last.before).ok_or(Lagging)?;
        let signal = usize::try_from(place).ok().and_then(|place| last.signals.get(place)).cloned();
        self.next += u64::from(signal.is_some());
        Ok(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(bytes: usize) -> Signal {
        Signal { sender: AgentId::from("ada"), about: None, proven: false, body: vec![0; bytes].into() }
    }

    #[tokio::test]
    async fn a_tenant_has_its_last_signals_up_to_so_many_bytes_and_who_missed_one_lags() {
        let signals = Signals::default();
        let (mut slow, mut other) = (signals.listen("t"), signals.listen("u"));
        for _ in 0..9 {
            signals.tell("t", signal(BYTES_MAX / 4));
        }
        let last = || {
            let last = lock(&slow.told.last);
            (last.signals.len(), last.bytes)
        };
        assert_eq!(last(), (4, BYTES_MAX));
        signals.tell("t", signal(2 * BYTES_MAX));
        assert_eq!(last(), (1, 2 * BYTES_MAX), "one is heard however large it is");
        assert!(slow.next().await.is_err());
        signals.tell("u", signal(7));
        assert_eq!(other.next().await.ok().map(|signal| signal.body.len()), Some(7), "tenants are apart");
        let mut late = signals.listen("t");
        signals.tell("t", signal(3));
        assert_eq!(late.next().await.ok().map(|signal| signal.body.len()), Some(3), "only what came after");
    }

    #[test]
    fn what_nobody_listens_to_is_not_kept() {
        let signals = Signals::default();
        signals.tell("t", signal(7));
        drop(signals.listen("t"));
        signals.tell("t", signal(7));
        for tenant in 0..2 * REMEMBERED_MAX {
            signals.listen(&tenant.to_string());
        }
        assert!(lock(&signals.0).len() <= REMEMBERED_MAX);
    }
}
