//! How work becomes durable.
//!
//! Appends go to the journal: they are decided on what is known, written as one record and synced, and that is all that
//! anybody waits for. A thread writes them to the database later, much at a time, without a sync for each, and moves the
//! write-ahead log of the database along. The journal keeps a record until the database has it durably. Everything else
//! is written to the database at once, after what is pending, and synced.
//!
//! After a failed write or sync nothing is tried again and nothing that was remembered is trusted: every connection is closed
//! and the store is opened as after a crash. SQLite itself would go on too early. It forgets which pages it has moved into
//! the database without a sync (it syncs only when a checkpoint reaches the end of the log), so after the next sync failed
//! it would not write them again, and the system may have thrown them away.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::failure::Failure;
use super::front::{Decided, Front};
use super::journal::{self, Failed, Journal};
use super::pending::{Pending, Record};
use super::queue::{Answer, Queue};
use super::reader::Readers;
use super::work::{Reply, Work};
use super::writer::Writer;
use super::{DATABASE_FILE, Lock, Options, record, recover, schema};
use crate::fault::Fault;
use crate::log::SessionKey;

/// How long the thread waits after a fault.
const RETRY: Duration = Duration::from_millis(500);

/// The parts of an open store. Whoever takes both of the locks takes the front's first, then the slot's.
pub(super) struct Core {
    // Closed in this order: the writer comes last of the connections, because only it may remove the write-ahead log. The
    // lock is let go when nothing is open any more.
    pub(super) readers: Readers,
    pub(super) front: Mutex<Front>,
    /// The one connection that writes, and moves the write-ahead log. None after a failure.
    pub(super) slot: Mutex<Option<Writer>>,
    /// Whether a write or a sync failed, so that the store is to be opened again.
    pub(super) broken: AtomicBool,
    pub(super) pending: Pending,
    /// The last record of the journal that is durable in the database.
    pub(super) durable: AtomicU64,
    pub(super) salt: u64,
    pub(super) queue: Queue,
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) _lock: Lock,
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
        if front.in_doubt {
            self.reopen(front)?;
        }
        if let Some(oldest) = self.pending.too_much() {
            // A part, so that nobody waits for long.
            self.settle_or_reopen(front, oldest)?;
        }
        if front.journal.is_none() {
            front.journal = Journal::create(&self.dir, self.salt, self.options.journal_bytes)?;
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
                let Decided { replies, items, .. } = decided;
                self.pending.push(Record::new(number, items));
                Ok(replies)
            }
            Err(Failed::NoRoom) => self.append_to_the_database(front, decided),
            Err(Failed::InDoubt(error)) => {
                let failure = Failure::in_doubt(error);
                front.in_doubt = true;
                self.give_up(&failure);
                Err(failure)
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
        Ok(decided.replies)
    }

    /// Write to the database what does not go to the journal.
    fn write(&self, front: &mut Front, works: &[Work]) -> Result<Vec<Reply>, Failure> {
        self.reopen(front)?;
        self.settle_or_reopen(front, u64::MAX)?;
        let replies = self.commit_with(front, |writer| writer.commit(works))?;
        for reply in &replies {
            if let Reply::Deleted(deleted) = reply {
                deleted.iter().for_each(|deleted| front.forget(&deleted.key));
            }
        }
        Ok(replies)
    }

    /// Commit to the database durably. Nothing is pending, so the room that the journal keeps is for this as well.
    fn commit_with<T>(
        &self,
        front: &mut Front,
        commit: impl Fn(&mut Writer) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let try_once = || self.write_with(&mut self.slot(), |writer| Ok((commit(writer)?, writer.applied)));
        let committed = match try_once() {
            Err(failure) if failure.is_full && !failure.in_doubt && front.journal.is_some() => {
                // There may be room for this at least, and then all of the journal can go.
                _ = self.make_durable(front);
                self.give_back(front);
                try_once()
            }
            committed => committed,
        };
        let (done, applied) = committed.inspect_err(|failure| {
            front.undo();
            front.in_doubt |= failure.in_doubt;
        })?;
        self.durable.fetch_max(applied, Ordering::AcqRel);
        self.pending.nudge();
        Ok(done)
    }

    /// Make everything that was acknowledged durable in the database.
    fn make_durable(&self, front: &mut Front) -> Result<(), Failure> {
        let last = front.next - 1;
        if self.durable.load(Ordering::Acquire) < last {
            self.settle_behind(front, u64::MAX)?;
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
        self.sound()?;
        let Some(last) = self.pending.last() else {
            return Ok(());
        };
        let settled = self.settle_freely(last);
        settled.map_err(|failure| failure.fault("writing what was appended to the database"))?;
        // Where readers leave nothing to settle, the thread that does it would never see how long the log has become.
        let behind = last.saturating_sub(self.durable.load(Ordering::Acquire));
        if behind >= u64::from(self.options.checkpoint_pages / 8) {
            self.pending.nudge();
        }
        Ok(())
    }

    /// The same for one session.
    pub(super) fn settle_session(&self, key: &SessionKey) -> Result<(), Fault> {
        if self.pending.head(key).is_some() { self.settle() } else { self.sound() }
    }

    /// Let nobody read what a failure has left in doubt.
    pub(super) fn sound(&self) -> Result<(), Fault> {
        if !self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        self.reopen(&mut self.front()).map_err(|failure| failure.fault("opening the database again"))
    }

    /// Settle up to a record, and take the front only if that fails: those who append need not wait.
    fn settle_freely(&self, last: u64) -> Result<(), Failure> {
        match self.settle_to(last) {
            Err(failure) if failure.is_full || failure.in_doubt => {
                self.settle_or_reopen(&mut self.front(), last)
            }
            settled => settled,
        }
    }

    /// The same for whoever has the front.
    fn settle_or_reopen(&self, front: &mut Front, last: u64) -> Result<(), Failure> {
        match self.settle_behind(front, last) {
            Err(failure) if failure.in_doubt => self.reopen(front),
            settled => settled,
        }
    }

    /// If the disk is full, the journal gives back the room that it keeps for this.
    fn settle_behind(&self, front: &mut Front, last: u64) -> Result<(), Failure> {
        match self.settle_to(last) {
            Err(failure) if failure.is_full && !failure.in_doubt => {
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
        slot: &mut Option<Writer>,
        write: impl FnOnce(&mut Writer) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        if self.broken.load(Ordering::Acquire) {
            return Err(Failure::in_doubt(io::Error::other(
                "a write failed, and the store is not open again yet",
            )));
        }
        let writer = match slot {
            Some(writer) => writer,
            None => slot.insert(Writer::open(&self.dir.join(DATABASE_FILE), &self.options)?),
        };
        write(writer).map_err(Failure::from).inspect_err(|failure| {
            *slot = None;
            if failure.in_doubt {
                self.give_up(failure);
            }
        })
    }

    fn give_up(&self, failure: &Failure) {
        tracing::error!(error = %failure, "a write to the data directory failed, it has to be opened again");
        self.broken.store(true, Ordering::Release);
        self.pending.nudge();
    }

    /// Open the store again if something failed, as after a crash.
    fn reopen(&self, front: &mut Front) -> Result<(), Failure> {
        let mut slot = self.slot();
        if !self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        schema::write_log_again(&self.dir.join(DATABASE_FILE))?;
        *slot = None;
        drop(front.lookups.close());
        let _closed = self.readers.close();
        let (writer, _) = recover(&self.dir, &self.options)?;
        if writer.applied + 1 < front.next {
            // Somebody has removed it. To go on would be to lose it without a word.
            let found = format!("expected records up to {}, found {}", front.next - 1, writer.applied);
            return Err(Fault::Damaged { file: self.dir.join(journal::FILES[0]), found }.into());
        }
        self.durable.store(writer.applied, Ordering::Release);
        self.pending.applied(u64::MAX);
        front.begin(&writer);
        *slot = Some(writer);
        self.broken.store(false, Ordering::Release);
        // The next to append begins them anew if they stay.
        _ = journal::remove(&self.dir);
        tracing::info!("the data directory is open again, with everything that was acknowledged");
        Ok(())
    }

    /// The thread that writes what is pending to the database.
    pub(super) fn keep_settling(&self) {
        while self.pending.wait() {
            let mut failures = 0_u64;
            while let Err(failure) = self.settle_and_move() {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(error = %failure, "what is in the journal cannot be written to the database, retrying");
                }
                if !self.pending.pause(RETRY) {
                    return;
                }
            }
            if failures > 0 {
                tracing::info!(failures, "what is in the journal is written to the database again");
            }
        }
    }

    fn settle_and_move(&self) -> Result<(), Failure> {
        if self.broken.load(Ordering::Acquire) {
            self.reopen(&mut self.front())?;
        }
        self.settle_freely(u64::MAX)?;
        match self.move_log() {
            // The log stays longer. Whoever has to write finds out whether there is room for that.
            Err(failure) if failure.is_full && !failure.in_doubt => Ok(()),
            Err(_) => self.reopen(&mut self.front()),
            moved => moved,
        }
    }

    /// Move the write-ahead log into the database if it is long. With the connection that writes, so that no sync of one can
    /// fail for what the other has written; appends do not wait for it.
    fn move_log(&self) -> Result<(), Failure> {
        self.write_with(&mut self.slot(), |writer| {
            let is_long =
                schema::checkpoint(&writer.connection, "NOOP")?.pages >= self.options.checkpoint_pages;
            if !is_long {
                return Ok(());
            }
            let applied = writer.applied;
            if !schema::checkpoint(&writer.connection, "PASSIVE")?.is_complete {
                // Somebody reads what was before, perhaps for long. The log itself can be synced all the same, so that the
                // journal does not grow with it.
                let behind = applied.saturating_sub(self.durable.load(Ordering::Acquire));
                if behind < u64::from(self.options.checkpoint_pages) {
                    return Ok(());
                }
                writer.apply([].iter(), applied, true)?;
            }
            self.durable.fetch_max(applied, Ordering::AcqRel);
            Ok(())
        })
    }

    /// Leave nothing but the database. If that is not possible, the next to open it finds everything in the journal.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let mut front = self.front();
        self.reopen(&mut front)?;
        self.make_durable(&mut front)?;
        let complete = self.write_with(&mut self.slot(), |writer| {
            let moved = schema::checkpoint(&writer.connection, "TRUNCATE")?;
            schema::remove_log_on_close(&writer.connection, moved.is_complete)?;
            Ok(moved.is_complete)
        })?;
        if complete {
            journal::remove(&self.dir)?;
        }
        Ok(())
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(|poisoned| {
            self.front.clear_poison();
            let mut front = poisoned.into_inner();
            front.in_doubt = true;
            self.give_up(&Failure::in_doubt(io::Error::other("a thread that wrote panicked")));
            front
        })
    }

    fn slot(&self) -> MutexGuard<'_, Option<Writer>> {
        self.slot.lock().unwrap_or_else(|poisoned| {
            self.slot.clear_poison();
            let mut slot = poisoned.into_inner();
            *slot = None;
            self.give_up(&Failure::in_doubt(io::Error::other("a thread that wrote panicked")));
            slot
        })
    }
}
