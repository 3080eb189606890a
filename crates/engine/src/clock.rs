//! The time. The state machines never look at it: they are told.
//!
//! The engine's time begins with the machine's clock and then advances with how long the machine has been up, sleep
//! included: it never goes back, and somebody who sets the machine's clock neither ends a session nor keeps one alive.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use handover_kernel::Timestamp;
use handover_store::uptime;

static ENGINE: OnceLock<Time> = OnceLock::new();

/// The engine's time, which sessions go by.
pub fn now() -> Timestamp {
    engine().after(uptime_ms())
}

/// Let the engine's time be at least this, as what is stored says that it has been. Says by how many milliseconds that sets
/// it forward.
pub fn not_before(at: Timestamp) -> u64 {
    engine().not_before(at, uptime_ms())
}

/// Go by this clock, as all nodes do: from the beginning if nobody has asked for the time yet, and else forward only. Says by
/// how many milliseconds that sets it forward.
pub fn go_by(at: Timestamp) -> u64 {
    let up = uptime_ms();
    let time = ENGINE.get_or_init(|| Time(AtomicU64::new(at.0.saturating_sub(up))));
    time.not_before(at, up)
}

fn engine() -> &'static Time {
    ENGINE.get_or_init(|| Time(AtomicU64::new(machine().0.saturating_sub(uptime_ms()))))
}

/// How far ahead of the machine's uptime a time is, in milliseconds.
struct Time(AtomicU64);

impl Time {
    fn after(&self, up: u64) -> Timestamp {
        Timestamp(up + self.0.load(Ordering::Relaxed))
    }

    fn not_before(&self, at: Timestamp, up: u64) -> u64 {
        let ahead = at.0.saturating_sub(up);
        ahead.saturating_sub(self.0.fetch_max(ahead, Ordering::Relaxed))
    }
}

/// The machine's clock, which credentials and logs for people go by. It may be set.
pub fn machine() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}

fn uptime_ms() -> u64 {
    uptime().as_millis() as u64
}

/// Notices when the machine's clock is set.
pub(crate) struct Watch {
    /// How far the machine's clock was ahead of the engine's time when it was last said, in milliseconds.
    known: i64,
}

/// By how much the machine's clock may drift before it is said: what keeps clocks right moves them by less.
const STEP_MS: u64 = 1000;

impl Watch {
    pub(crate) fn new(engine: Timestamp, machine: Timestamp) -> Watch {
        Watch { known: apart(engine, machine) }
    }

    /// Look at both. Says by how many milliseconds the machine's clock was set, and how far it is from the engine's time.
    pub(crate) fn look(&mut self, engine: Timestamp, machine: Timestamp) -> Option<(i64, i64)> {
        let apart = apart(engine, machine);
        let by = apart - self.known;
        (by.unsigned_abs() >= STEP_MS).then(|| {
            self.known = apart;
            (by, apart)
        })
    }
}

fn apart(engine: Timestamp, machine: Timestamp) -> i64 {
    machine.0 as i64 - engine.0 as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_set_forward_only() {
        let time = Time(AtomicU64::new(1000));
        assert_eq!(time.after(5), Timestamp(1005));
        assert_eq!(time.not_before(Timestamp(900), 10), 0);
        assert_eq!(time.after(10), Timestamp(1010));
        assert_eq!(time.not_before(Timestamp(5010), 10), 4000);
        assert_eq!(time.after(11), Timestamp(5011));
        assert!(now() <= now());
    }

    #[test]
    fn a_clock_that_is_set_is_said_once_and_one_that_drifts_is_not() {
        // So that there is room to go back.
        let at = |ms: i64| Timestamp((10_000_000 + ms) as u64);
        let mut watch = Watch::new(at(0), at(20));
        for (engine, machine, said) in [
            (1000, 1500, None),
            (2000, -3_598_000, Some((-3_600_020, -3_600_000))),
            (3000, -3_597_000, None),
            (4000, 4000, Some((3_600_000, 0))),
        ] {
            assert_eq!(watch.look(at(engine), at(machine)), said, "{engine} {machine}");
        }
    }
}
