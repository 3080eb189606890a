//! Being seen by the database, again and again: so that nobody takes the slot, and so that nothing is answered from a database that
//! others have left.
//!
//! A beat commits as an append does. One database that has not committed any for half of the lease may be a former primary, or one
//! whose standby hangs: nobody can tell which, so both stop answering then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::link::{Error, Pool, Session, values};
use super::{Held, Inner, RETRY_AFTER, TAKEN, fault, is, lock, read, unexpected};
use crate::fault::Fault;
use crate::number::natural;
use crate::uptime::uptime;

/// How often what nobody needs any more is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How often it looks who stores nothing any more: that reads a row for each agent and node.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// What one thread does for everybody: one beat at a time.
pub(super) struct Heart {
    connection: Pool,
    last: Mutex<Sighting>,
    /// The connection of the beat that is under way, or of the last one.
    over: Mutex<Weak<Session>>,
    beats: Mutex<Beats>,
    changed: Condvar,
}

/// When the database last saw the holder of a slot.
#[derive(Clone, Default)]
pub(super) struct Sighting {
    pub(super) held: Held,
    /// The time, in the database's own words.
    pub(super) at: String,
    /// Which server it was: one that was promoted, or started again, is another.
    pub(super) server: String,
    /// The connection, if it was a beat.
    pub(super) number: Option<u64>,
}

/// What tells one server from another, and from itself before it was started again.
pub(super) const SERVER: &str = "pg_postmaster_start_time()::text";

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
        Heart {
            connection: Pool::new(1),
            last: Mutex::default(),
            over: Mutex::default(),
            beats: Mutex::new(beats),
            changed: Condvar::new(),
        }
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database has seen this node, at this moment or later.
    pub(super) fn seen(&self, at: Duration) {
        let mut beats = self.beats();
        beats.seen = beats.seen.max(at);
    }

    pub(super) fn was_seen(&self, sighting: Sighting) {
        *lock(&self.last) = sighting;
    }

    /// Beat over a new connection from now on, if the next beat would go over that of this sighting.
    fn leave(&self, sighting: &Sighting) {
        let over = lock(&self.over).upgrade().filter(|session| Some(session.number) == sighting.number);
        if let Some(session) = over {
            session.give_up();
        }
    }

    pub(super) fn stop(&self) {
        self.beats().stopping = true;
        self.changed.notify_all();
    }

    /// Wait so long, or until it is over. None if it is.
    fn rest(&self, long: Duration) -> Option<()> {
        let beats = self.changed.wait_timeout_while(self.beats(), long, |beats| !beats.stopping);
        let (beats, _) = beats.unwrap_or_else(PoisonError::into_inner);
        (!beats.stopping).then_some(())
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
    /// Be seen by the database now, within this time.
    pub(super) fn be_seen(&self, within: Duration) -> Result<(), Fault> {
        self.heart.wait(within, |_| false)
    }

    /// Whoever has not been seen for half of its lease waits until it is, so long at most: it may have lost its slot, or speak to
    /// a database that others have left.
    fn must_be_seen(&self, within: Duration) -> Result<(), Fault> {
        let is_fresh = |beats: &Beats| uptime().saturating_sub(beats.seen) <= self.options.lease / 2;
        if is_fresh(&self.heart.beats()) {
            return Ok(());
        }
        self.heart.wait(within, is_fresh)
    }

    /// Ask a database that is sure to be the one: when it is asked, and still when it has answered.
    pub(super) fn surely<T>(
        &self,
        within: Duration,
        ask: impl Fn(Duration) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let until = Instant::now() + within;
        let left = || until.saturating_duration_since(Instant::now());
        loop {
            self.must_be_seen(left())?;
            let trusted = self.link.trusted();
            let answer = ask(left())?;
            self.must_be_seen(left())?;
            // Otherwise it may be the answer of the one before.
            if self.link.trusted() == trusted {
                return Ok(answer);
            }
        }
    }

    /// See once to it that a connection leads to the server that has last seen this node, or to one that says that another node
    /// has its slot. Where another server knows as much, as a standby does that was just promoted, a beat has to find out which of
    /// them it is: until then nothing is read there, so that nobody reads what is and then what was.
    pub(super) fn be_sure_of(&self, session: &Arc<Session>, within: Duration) -> Result<(), Error> {
        if session.is_sure.load(Ordering::Acquire) {
            return Ok(());
        }
        let last = lock(&self.heart.last).clone();
        let sql = format!(
            "SELECT epoch > $2, seen_at >= $3::timestamptz, {SERVER} FROM @slots WHERE slot = $1 AND epoch >= $2"
        );
        let mut all = last.held.values();
        all.extend(values![last.at.clone() => TEXT]);
        let rows = self.link.ask(session, &sql, all, within)?;
        let found =
            rows.first().map(|row| (row.get::<_, bool>(0), row.get::<_, bool>(1), row.get::<_, String>(2)));
        match found {
            Some((true, ..)) => {}
            Some((_, true, server)) if server == last.server => {}
            found => {
                if found.is_some_and(|(_, knows, _)| knows) {
                    self.heart.leave(&last);
                }
                session.give_up();
                return Err(Error::Left);
            }
        }
        session.is_sure.store(true, Ordering::Release);
        Ok(())
    }

    pub(super) fn keep_beating(&self) {
        let every = self.options.lease / 4;
        let mut failed = None;
        while self.heart.begin(every).is_some() {
            let began = uptime();
            let outcome = match self.beat() {
                Ok(()) => Outcome::Seen,
                Err(Fault::SlotTaken) => Outcome::SlotTaken,
                Err(error) => Outcome::Failed(why(&error)),
            };
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
        }
    }

    /// Do what has time, and would keep the heart from beating.
    pub(super) fn keep_tidy(&self) {
        let is_due = |at: &mut Option<Instant>, every: Duration| {
            let is_due = at.is_none_or(|at| at.elapsed() > every);
            if is_due {
                *at = Some(Instant::now());
            }
            is_due
        };
        let (mut swept, mut forgot) = (None, None);
        loop {
            self.compare();
            if is_due(&mut swept, SWEEP_EVERY) {
                self.sweep();
            }
            if is_due(&mut forgot, FORGET_EVERY) {
                self.forget_stored();
            }
            if self.heart.rest(self.options.lease / 4).is_none() {
                return;
            }
        }
    }

    fn beat(&self) -> Result<(), Fault> {
        let sql = format!(
            "SELECT others, unknown, seen, {SERVER} FROM @beat_v1($1, $2, $3, $4, $5 * interval '1 second')"
        );
        let held = *lock(&self.held);
        let (slots, numbers) = read::reached(&lock(&self.reached));
        // One that takes longer would be too old when it is there.
        let within = self.options.patience.min(self.options.lease / 2);
        let number = AtomicU64::new(0);
        let seen = self.heart.connection.with(&self.link, within, |session, within| {
            number.store(session.number, Ordering::Release);
            *lock(&self.heart.over) = Arc::downgrade(session);
            let mut all = held.values();
            all.extend(
                values![slots.clone() => INT4_ARRAY, numbers.clone() => INT8_ARRAY, self.lease() => FLOAT8],
            );
            self.link.ask(session, &sql, all, within)
        });
        let seen = seen.map_err(|error| match is(&error, TAKEN) {
            true => self.move_from(held, &mut lock(&self.writer)),
            false => fault("being seen", error),
        })?;
        let row = seen.first().ok_or_else(|| super::empty("being seen"))?;
        let (at, server) = (row.try_get(2).map_err(unexpected)?, row.try_get(3).map_err(unexpected)?);
        let number = number.into_inner();
        self.heart.was_seen(Sighting { held, at, server, number: Some(number) });
        self.link.trust(number);
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
