//! Moves the write-ahead log into the database while others commit, in small steps, so that no commit has to.
//!
//! Moving needs no lock that a commit wants. But the log begins again at its start, instead of growing for ever, only when
//! all of it has been moved and nobody reads in it; while commits come without a pause, that moment has to be made: when
//! the log is long enough, the last few pages are moved while the writer is held back.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::{Options, schema};

/// Into how many steps the moving of a log is split that begins again at its start when it should.
const STEPS: u32 = 10;

/// How often the writer may run ahead of a step before it is held back.
const ROUNDS: usize = 4;

/// How long the log is, and who waits for it to grow.
#[derive(Default)]
pub(super) struct Length {
    pages: Mutex<Grown>,
    changed: Condvar,
}

#[derive(Default)]
struct Grown {
    /// The pages of the log after the last commit.
    pages: u32,
    /// How many of them had been moved when it was last looked at.
    moved: u32,
    closing: bool,
}

impl Length {
    /// A commit has left so many pages in the log.
    pub(super) fn is(&self, pages: u32, step: u32) {
        let mut grown = self.lock();
        if pages < grown.pages {
            grown.moved = 0;
        }
        grown.pages = pages;
        if grown.is_due(step) {
            self.changed.notify_one();
        }
    }

    /// Returns when there is something to move; says whether there will be more.
    fn wait(&self, step: u32) -> bool {
        let grown = self.changed.wait_while(self.lock(), |grown| !grown.is_due(step) && !grown.closing);
        !grown.unwrap_or_else(PoisonError::into_inner).closing
    }

    fn lock(&self) -> MutexGuard<'_, Grown> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grown {
    fn is_due(&self, step: u32) -> bool {
        self.pages.saturating_sub(self.moved) >= step
    }
}

/// The pages that are moved in one step.
pub(super) fn step(options: &Options) -> u32 {
    (options.checkpoint_pages / STEPS).max(1)
}

/// The thread that moves. It ends, and its connection is closed, when this is dropped.
pub(super) struct Mover {
    length: Arc<Length>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Whoever has this lock writes.
    pub(super) fn start<W: Send + 'static>(
        file: &Path,
        options: &Options,
        length: Arc<Length>,
        writer: Arc<Mutex<W>>,
    ) -> rusqlite::Result<std::io::Result<Mover>> {
        let moving = Moving {
            connection: schema::open_writer(file, options)?,
            length: Arc::clone(&length),
            writer,
            pages_max: options.checkpoint_pages,
            step: step(options),
        };
        let thread = thread::Builder::new().name("log mover".to_owned()).spawn(move || moving.run());
        Ok(thread.map(|thread| Mover { length, thread: Some(thread) }))
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.length.lock().closing = true;
        self.length.changed.notify_one();
        // If it panicked it has said so, and its connection is closed.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Moving<W> {
    connection: Connection,
    length: Arc<Length>,
    writer: Arc<Mutex<W>>,
    pages_max: u32,
    step: u32,
}

impl<W> Moving<W> {
    fn run(&self) {
        while self.length.wait(self.step) {
            let mut left = self.advance();
            if self.length.lock().pages < self.pages_max {
                continue;
            }
            for _ in 0..ROUNDS {
                if left.is_none_or(|left| left <= self.step) {
                    break;
                }
                left = self.advance();
            }
            let _held_back = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            self.advance();
        }
    }

    /// Move what can be moved; says how many pages are left, if it could be done. If it could not, as on a full disk, the log
    /// is as good as before, and it is tried again when it has grown by another step.
    fn advance(&self) -> Option<u32> {
        let sql = "PRAGMA wal_checkpoint(PASSIVE)";
        let found = self.connection.prepare_cached(sql).and_then(|mut statement| {
            statement.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        });
        let pages = |count: i64| u32::try_from(count).unwrap_or(0);
        let found = found.ok().map(|(pages_in_log, moved)| (pages(pages_in_log), pages(moved)));
        let mut grown = self.length.lock();
        // If the log is shorter than what was moved, it has begun again meanwhile.
        grown.moved = found.map_or(grown.pages, |(_, moved)| if moved > grown.pages { 0 } else { moved });
        found.map(|(in_log, moved)| in_log.saturating_sub(moved))
    }
}
