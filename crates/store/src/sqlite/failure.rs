//! What went wrong underneath, for everybody whose work it was.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use rusqlite::{ErrorCode, ffi};

use crate::fault::Fault;

#[derive(Clone)]
pub(super) struct Failure {
    /// Whether there is no room on the disk, and so nothing was written.
    pub(super) is_full: bool,
    /// Whether somebody else was writing, and so nothing was written.
    pub(super) is_busy: bool,
    source: Arc<dyn Error + Send + Sync>,
}

impl Failure {
    /// What could not be written may have been kept, whatever the reason.
    pub(super) fn in_doubt(error: io::Error) -> Failure {
        Failure { is_full: false, is_busy: false, source: Arc::new(error) }
    }

    /// Whether something may have been written.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.is_full && !self.is_busy
    }

    pub(super) fn fault(&self, doing: &'static str) -> Fault {
        let source = Box::new(self.source.clone());
        if self.is_full { Fault::Full { doing, source } } else { Fault::Unavailable { doing, source } }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        // Making the shared index of the write-ahead log longer fails with a code of its own, and only for want of room.
        let is_full = error.sqlite_error().is_some_and(|error| {
            error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
        });
        let is_busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
        Failure { is_full, is_busy, source: Arc::new(error) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure {
            is_full: error.kind() == io::ErrorKind::StorageFull,
            is_busy: false,
            source: Arc::new(error),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure { is_full: matches!(fault, Fault::Full { .. }), is_busy: false, source: Arc::new(fault) }
    }
}
