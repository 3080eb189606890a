//! Being seen by the database, again and again: so that nobody takes the slot, and so that nothing is answered from a database that
//! others have left.
//!
//! A beat commits as an append does. One database that has not committed any for half of the lease may be a former primary, or one
//! whose standby hangs: nobody can tell which, so both stop answering then.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::link::{Pool, values};
use super::{Inner, RETRY_AFTER, TAKEN, fault, is, lock, read, unexpected};
use crate::fault::Fault;
use crate::number::natural;
use crate::uptime::uptime;

/// How often what nobody needs any more is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// What one thread does for everybody: one beat at a time.
pub(super) struct Heart {
    connection: Pool,
    beats: Mutex<Beats>,
    changed: Condvar,
}

/// How the beats went.
struct Beats {
    begun: u64,
    ended: u64,
    /// What came of the last one.
    outcome: Outcome,
    /// When the last one began that was kept, by the clock that goes on while the machine sleeps.
    seen: Duration,
    /// Somebody waits for the next one.
    wanted: bool,
    stopping: bool,
}

/// What came of a beat.
#[derive(Clone)]
enum Outcome {
    Seen,
    SlotTaken,
    Failed(String),
}

impl Outcome {
    fn failed(&self) -> Option<String> {
        match self {
            Outcome::Failed(why) => Some(why.clone()),
            Outcome::Seen | Outcome::SlotTaken => None,
        }
    }
}

impl Heart {
    pub(super) fn new() -> Heart {
        let beats = Beats {
            begun: 0,
            ended: 0,
            outcome: Outcome::Seen,
            seen: uptime(),
            wanted: false,
            stopping: false,
        };
        Heart { connection: Pool::new(1), beats: Mutex::new(beats), changed: Condvar::new() }
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database has seen this node, at this moment or later.
    pub(super) fn seen(&self, at: Duration) {
        let mut beats = self.beats();
        beats.seen = beats.seen.max(at);
    }

    pub(super) fn stop(&self) {
        self.beats().stopping = true;
        self.changed.notify_all();
    }

    /// Wait for the next beat, so long at most. None if there is none any more.
    fn begin(&self, every: Duration) -> Option<()> {
        let idle = |beats: &mut Beats| !beats.wanted && !beats.stopping;
        let beats = self.changed.wait_timeout_while(self.beats(), every, idle);
        let (mut beats, _) = beats.unwrap_or_else(PoisonError::into_inner);
        beats.wanted = false;
        beats.begun += 1;
        (!beats.stopping).then_some(())
    }

    fn end(&self, began: Duration, outcome: Outcome) {
        let mut beats = self.beats();
        if matches!(outcome, Outcome::Seen) {
            beats.seen = beats.seen.max(began);
        }
        (beats.ended, beats.outcome) = (beats.begun, outcome);
        drop(beats);
        self.changed.notify_all();
    }

    /// Wait for a beat that begins now, or for `enough`, so long at most.
    fn wait(&self, within: Duration, enough: impl Fn(&Beats) -> bool) -> Result<(), Fault> {
        let mut beats = self.beats();
        let next = beats.begun + 1;
        beats.wanted = true;
        self.changed.notify_all();
        let waits = |beats: &mut Beats| beats.ended < next && !beats.stopping && !enough(beats);
        let beats = self.changed.wait_timeout_while(beats, within, waits);
        let (beats, _) = beats.unwrap_or_else(PoisonError::into_inner);
        let unseen = |source: &str| Fault::Unavailable { doing: "being seen", source: source.into() };
        if enough(&beats) {
            return Ok(());
        }
        if beats.ended < next {
            return Err(unseen("the database does not commit that this node is there"));
        }
        match &beats.outcome {
            Outcome::Seen => Ok(()),
            Outcome::SlotTaken => Err(Fault::SlotTaken),
            Outcome::Failed(why) => Err(unseen(why)),
        }
    }
}

impl Inner {
    /// Be seen by the database now.
    pub(super) fn be_seen(&self) -> Result<(), Fault> {
        self.heart.wait(self.options.patience, |_| false)
    }

    /// Whoever has not been seen for half of its lease waits until it is: it may have lost its slot, or speak to a database that
    /// others have left.
    pub(super) fn must_be_seen(&self) -> Result<(), Fault> {
        let is_fresh = |beats: &Beats| uptime().saturating_sub(beats.seen) <= self.options.lease / 2;
        if is_fresh(&self.heart.beats()) {
            return Ok(());
        }
        self.heart.wait(self.options.patience, is_fresh)
    }

    pub(super) fn keep_beating(&self) {
        let every = self.options.lease / 4;
        let mut swept: Option<Instant> = None;
        self.compare();
        let mut failed = None;
        while self.heart.begin(every).is_some() {
            let began = uptime();
            let outcome = match self.beat() {
                Ok(()) => Outcome::Seen,
                Err(Fault::SlotTaken) => Outcome::SlotTaken,
                Err(error) => Outcome::Failed(why(&error)),
            };
            let is_seen = matches!(outcome, Outcome::Seen);
            // However many wait for it, it is said once, and the database has time to come back.
            let why = outcome.failed();
            if let Some(error) = why.as_ref().filter(|_| failed != why) {
                tracing::warn!(error, "this node was not seen by the database");
            }
            failed = why;
            self.heart.end(began, outcome);
            if failed.is_some() {
                thread::sleep(RETRY_AFTER);
            }
            if is_seen && !self.heart.beats().wanted {
                self.compare();
                if swept.is_none_or(|swept| swept.elapsed() > SWEEP_EVERY) {
                    swept = Some(Instant::now());
                    self.sweep();
                }
            }
        }
    }

    fn beat(&self) -> Result<(), Fault> {
        let sql = "SELECT others, unknown FROM @beat_v1($1, $2, $3, $4, $5 * interval '1 second')";
        let held = *lock(&self.held);
        let (slots, numbers) = read::reached(&lock(&self.reached));
        // One that takes longer would be too old when it is there.
        let within = self.options.patience.min(self.options.lease / 2);
        let seen = self.heart.connection.with(&self.link, within, |session, within| {
            let mut all = held.values();
            all.extend(
                values![slots.clone() => INT4_ARRAY, numbers.clone() => INT8_ARRAY, self.lease() => FLOAT8],
            );
            self.link.ask(session, sql, all, within)
        });
        let seen = seen.map_err(|error| match is(&error, TAKEN) {
            true => self.move_from(held, &mut lock(&self.writer)),
            false => fault("being seen", error),
        })?;
        let row = seen.first().ok_or_else(|| super::empty("being seen"))?;
        let number = |at| row.try_get::<_, i64>(at).map(natural).map_err(unexpected);
        self.know_of_others(number(0)?, number(1)?);
        Ok(())
    }
}

/// What went wrong beneath, in one line.
fn why(error: &Fault) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}
