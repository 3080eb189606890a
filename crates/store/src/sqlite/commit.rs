//! How work becomes durable.
//!
//! Appends go to the journal: they are decided on what is known, written as one record and synced, and that is all that
//! anybody waits for. A thread writes them to the database later, much at a time, without a sync for each, and moves the
//! write-ahead log of the database along. The journal keeps a record until the database has it durably. Everything else
//! is written to the database at once, after what is pending, and synced.
//!
//! A failed write or sync is fatal for what was written to. The journal is begun anew, once the database has durably taken
//! what was acknowledged. The connection that writes is dropped with all that it remembered and the next call opens
//! another, after writing the write-ahead log once more. No sync is ever tried again, because after a failed one the
//! system may have thrown away what was to be written.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::Connection;

use super::failure::Failure;
use super::front::{Decided, Front};
use super::journal::{self, Failed, Journal};
use super::pending::{Pending, Record};
use super::queue::{Answer, Queue};
use super::reader::Readers;
use super::work::{Reply, Work};
use super::writer::Writer;
use super::{DATABASE_FILE, Lock, Options, record, schema};
use crate::fault::Fault;
use crate::log::{Hint, SessionKey};

/// How long the thread waits after a fault.
const RETRY: Duration = Duration::from_millis(500);

/// The parts of an open store. Whoever takes several of the locks takes the front's first, then the mover's, then the slot's.
pub(super) struct Core {
    // Closed in this order: the writer comes last of the connections, because the last one moves the write-ahead log
    // into the database. The lock is let go when nothing is open any more.
    pub(super) readers: Readers,
    pub(super) front: Mutex<Front>,
    /// Never used. While it is open, a writer that was dropped after a failed sync is not the last connection, so what
    /// it may have left in the write-ahead log is not taken for committed but overwritten.
    pub(super) _keeper: Mutex<Connection>,
    /// A connection that moves the write-ahead log into the database while another writes. Nobody commits durably
    /// meanwhile: if its sync of the log failed, the system might throw away what the commit has just written, and the
    /// commit's own sync would succeed.
    pub(super) mover: Mutex<Option<Connection>>,
    pub(super) slot: Mutex<Slot>,
    pub(super) pending: Pending,
    /// The last record of the journal that is durable in the database.
    pub(super) durable: AtomicU64,
    pub(super) salt: u64,
    pub(super) queue: Queue,
    pub(super) watchers: Mutex<Vec<SyncSender<Hint>>>,
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) _lock: Lock,
}

/// The place of the one connection that writes.
pub(super) struct Slot {
    pub(super) writer: Option<Writer>,
    /// Whether what is in the write-ahead log may be in memory only.
    pub(super) in_doubt: bool,
}

impl Core {
    pub(super) fn submit(&self, work: Work) -> Answer {
        self.queue.submit(work, |works| self.commit(works))
    }

    fn commit(&self, works: Vec<Work>) -> Vec<Answer> {
        let doing: Vec<&'static str> = works.iter().map(Work::doing).collect();
        let mut front = self.front();
        let done = if works.iter().all(Work::is_journaled) {
            self.append(&mut front, works)
        } else {
            self.write(&mut front, &works)
        };
        match done {
            Ok(replies) => replies.into_iter().map(Ok).collect(),
            Err(failure) => doing.into_iter().map(|doing| Err(failure.fault(doing))).collect(),
        }
    }

    /// Append to the journal; if it has no room, to the database.
    fn append(&self, front: &mut Front, works: Vec<Work>) -> Result<Vec<Reply>, Failure> {
        if let Some(oldest) = self.pending.too_much() {
            // A part, so that nobody waits for long.
            self.settle_behind(front, oldest)?;
        }
        if front.journal.is_none() {
            self.begin_journal(front)?;
        }
        let decided = front.decide(works, &self.pending)?;
        if !decided.writes {
            return Ok(decided.replies);
        }
        let number = front.next;
        let durable = self.durable.load(Ordering::Acquire);
        let written = match &mut front.journal {
            Some(journal) => journal.write(number, durable, |bytes| record::encode(&decided.items, bytes)),
            None => Err(Failed::NoRoom),
        };
        match written {
            Ok(()) => {
                front.next += 1;
                front.keep();
                let Decided { replies, items, hints, .. } = decided;
                self.pending.push(Record::new(number, items));
                self.publish(hints.into_values());
                Ok(replies)
            }
            Err(Failed::NoRoom) => self.append_to_the_database(front, decided),
            Err(Failed::InDoubt(error)) => {
                front.doubt();
                Err(Failure::in_doubt(error))
            }
        }
    }

    fn append_to_the_database(&self, front: &mut Front, decided: Decided) -> Result<Vec<Reply>, Failure> {
        self.settle_behind(front, u64::MAX).inspect_err(|_| front.undo())?;
        self.commit_with(front, |writer| match decided.items.is_empty() {
            true => writer.commit(&[Work::Probe]).map(drop),
            false => writer.apply(decided.items.iter(), writer.applied, true),
        })?;
        front.keep();
        self.publish(decided.hints.into_values());
        Ok(decided.replies)
    }

    /// Write to the database what does not go to the journal.
    fn write(&self, front: &mut Front, works: &[Work]) -> Result<Vec<Reply>, Failure> {
        self.settle_behind(front, u64::MAX)?;
        if front.journal.is_none() {
            self.make_durable(front)?;
        }
        let replies = self.commit_with(front, |writer| writer.commit(works))?;
        for reply in &replies {
            if let Reply::Deleted(deleted) = reply {
                deleted.iter().for_each(|deleted| front.forget(&deleted.key));
            }
        }
        Ok(replies)
    }

    /// Commit to the database durably. A commit that fails may yet be found after a crash. Nothing that is acknowledged
    /// before another has taken its place could rest on the database being without it, so the journal is begun anew. Nothing
    /// is pending, so the room that the journal keeps is for this as well.
    fn commit_with<T>(
        &self,
        front: &mut Front,
        commit: impl Fn(&mut Writer) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let try_once = || {
            let _moving = self.moving();
            self.write_with(&mut self.slot(), |writer| Ok((commit(writer)?, writer.applied)))
        };
        let committed = match try_once() {
            Err(failure) if failure.is_full && front.journal.is_some() => {
                // There may be room for this at least, and then all of the journal can go.
                _ = self.make_durable(front);
                self.give_back(front);
                try_once()
            }
            committed => committed,
        };
        let (done, applied) = committed.inspect_err(|_| front.doubt())?;
        self.durable.fetch_max(applied, Ordering::AcqRel);
        self.pending.nudge();
        Ok(done)
    }

    /// Begin the files of the journal anew.
    fn begin_journal(&self, front: &mut Front) -> Result<(), Failure> {
        self.make_durable(front)?;
        match Journal::create(&self.dir, self.salt, self.options.journal_bytes) {
            Ok(journal) => front.journal = Some(journal),
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Make everything that was acknowledged durable in the database, and that what is in doubt is not to be found any more:
    /// a record because its number is taken, a commit because this one is in its place.
    fn make_durable(&self, front: &mut Front) -> Result<(), Failure> {
        let last = front.next - 1;
        if self.durable.load(Ordering::Acquire) < last {
            self.settle_behind(front, u64::MAX)?;
            let _moving = self.moving();
            self.write_with(&mut self.slot(), |writer| writer.apply([].iter(), last, true))?;
            self.durable.store(last, Ordering::Release);
        }
        Ok(())
    }

    /// Count what is stored, and say whether there is more to count.
    pub(super) fn count(&self, least: u64, most: u64) -> Result<bool, Fault> {
        self.settle()?;
        let counted = self.write_with(&mut self.slot(), |writer| writer.count_stored(least, most));
        self.pending.nudge();
        counted.map_err(|failure| failure.fault("counting what is stored"))
    }

    /// Let the database have everything that was acknowledged, so that it can be read there.
    pub(super) fn settle(&self) -> Result<(), Fault> {
        let Some(last) = self.pending.last() else {
            return Ok(());
        };
        let settled = match self.settle_to(last) {
            Err(failure) if failure.is_full => self.settle_behind(&mut self.front(), last),
            settled => settled,
        };
        settled.map_err(|failure| failure.fault("writing what was appended to the database"))
    }

    /// The same for one session.
    pub(super) fn settle_session(&self, key: &SessionKey) -> Result<(), Fault> {
        if self.pending.head(key).is_some() { self.settle() } else { Ok(()) }
    }

    /// The same up to a record, for whoever has the front. If the disk is full, the journal gives back the room that it
    /// keeps for this.
    fn settle_behind(&self, front: &mut Front, last: u64) -> Result<(), Failure> {
        match self.settle_to(last) {
            Err(failure) if failure.is_full => {
                self.give_back(front);
                self.settle_to(last)
            }
            settled => settled,
        }
    }

    fn give_back(&self, front: &mut Front) {
        if let Some(journal) = &mut front.journal {
            journal.give_back(self.durable.load(Ordering::Acquire));
        }
    }

    fn settle_to(&self, last: u64) -> Result<(), Failure> {
        while self.pending.first().is_some_and(|first| first <= last) {
            self.settle_some()?;
        }
        Ok(())
    }

    fn settle_some(&self) -> Result<(), Failure> {
        let mut slot = self.slot();
        let records = self.pending.oldest();
        let Some(last) = records.last().map(|record| record.number()) else {
            return Ok(());
        };
        self.write_with(&mut slot, |writer| {
            // A commit that failed may have been kept.
            let applied = writer.applied;
            if applied < last {
                let new = records.iter().filter(|record| record.number() > applied);
                writer.apply(new.flat_map(|record| &record.items), last, false)?;
            }
            Ok(())
        })?;
        self.pending.applied(last);
        Ok(())
    }

    /// Write with the one connection, which does not survive a fault.
    fn write_with<T>(
        &self,
        slot: &mut Slot,
        write: impl FnOnce(&mut Writer) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let file = self.dir.join(DATABASE_FILE);
        if slot.in_doubt {
            schema::write_log_again(&file)?;
            slot.in_doubt = false;
        }
        let mut writer = match slot.writer.take() {
            Some(writer) => writer,
            None => Writer::open(&file, &self.options)?,
        };
        let written = write(&mut writer).map_err(Failure::from);
        match &written {
            Ok(_) => slot.writer = Some(writer),
            Err(failure) => slot.in_doubt = !failure.is_full,
        }
        written
    }

    /// The thread that writes what is pending to the database.
    pub(super) fn keep_settling(&self) {
        while self.pending.wait() {
            while self.settle_and_move().is_err() && self.pending.pause(RETRY) {}
        }
    }

    fn settle_and_move(&self) -> Result<(), Failure> {
        match self.settle_to(u64::MAX) {
            Err(failure) if failure.is_full => self.settle_behind(&mut self.front(), u64::MAX)?,
            settled => settled?,
        }
        match self.move_log() {
            // The log stays longer. Whoever has to write finds out whether there is room for that.
            Err(failure) if failure.is_full => Ok(()),
            moved => moved,
        }
    }

    /// Move the write-ahead log into the database if it is long: most of it while others write, and what they have written
    /// meanwhile while they wait, because the log begins anew only when all of it was moved.
    fn move_log(&self) -> Result<(), Failure> {
        let mut mover = self.moving();
        // A log in doubt is written once more before it is synced.
        self.write_with(&mut self.slot(), |_| Ok(()))?;
        let moved = self.move_beside(&mut mover);
        let mut slot = self.slot();
        if let Err(failure) = &moved {
            *mover = None;
            if !failure.is_full {
                *slot = Slot { writer: None, in_doubt: true };
            }
        }
        if moved? {
            let durable = self.write_with(&mut slot, |writer| {
                let moved = schema::checkpoint(&writer.connection, "PASSIVE")?;
                Ok(if moved.is_complete { writer.applied } else { 0 })
            })?;
            self.durable.fetch_max(durable, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Says whether the log was long.
    fn move_beside(&self, mover: &mut Option<Connection>) -> Result<bool, Failure> {
        let mover = match mover {
            Some(mover) => mover,
            None => mover.insert(schema::open_writer(&self.dir.join(DATABASE_FILE), &self.options)?),
        };
        let is_long = schema::checkpoint(mover, "NOOP")?.pages >= self.options.checkpoint_pages;
        if is_long {
            schema::checkpoint(mover, "PASSIVE")?;
        }
        Ok(is_long)
    }

    /// Leave nothing but the database. If that is not possible, the next to open it finds everything in the journal.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let mut front = self.front();
        self.make_durable(&mut front)?;
        let complete = self.write_with(&mut self.slot(), |writer| {
            schema::checkpoint(&writer.connection, "TRUNCATE").map(|moved| moved.is_complete)
        })?;
        if complete {
            journal::remove(&self.dir)?;
        }
        Ok(())
    }

    fn publish(&self, hints: impl Iterator<Item = Hint>) {
        let mut watchers = self.watchers.lock().expect("no holder of the watchers panics");
        for hint in hints {
            watchers.retain(|watcher| match watcher.try_send(hint.clone()) {
                Ok(()) | Err(TrySendError::Full(_)) => true,
                Err(TrySendError::Disconnected(_)) => false,
            });
        }
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(|poisoned| {
            self.front.clear_poison();
            let mut front = poisoned.into_inner();
            front.doubt();
            front
        })
    }

    fn moving(&self) -> MutexGuard<'_, Option<Connection>> {
        self.mover.lock().unwrap_or_else(|poisoned| {
            self.mover.clear_poison();
            let mut mover = poisoned.into_inner();
            *mover = None;
            mover
        })
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(|poisoned| {
            self.slot.clear_poison();
            let mut slot = poisoned.into_inner();
            *slot = Slot { writer: None, in_doubt: true };
            slot
        })
    }
}
