//! What went wrong underneath, for everybody whose work it was.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use rusqlite::{ErrorCode, ffi};

use crate::fault::Fault;

#[derive(Clone)]
pub(super) struct Failure {
    /// Whether there is no room on the disk.
    pub(super) is_full: bool,
    /// Whether something may have been written.
    pub(super) in_doubt: bool,
    source: Arc<dyn Error + Send + Sync>,
}

impl Failure {
    /// What could not be written may have been kept, whatever the reason.
    pub(super) fn in_doubt(error: io::Error) -> Failure {
        Failure { is_full: false, in_doubt: true, source: Arc::new(error) }
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
        let code = error.sqlite_error_code();
        // Making the shared index of the write-ahead log longer fails with a code of its own, and only for want of room. Then
        // the log has everything already.
        let no_index = error.sqlite_error().is_some_and(|e| e.extended_code == ffi::SQLITE_IOERR_SHMSIZE);
        let is_full = code == Some(ErrorCode::DiskFull);
        let in_doubt = !is_full && code != Some(ErrorCode::DatabaseBusy);
        Failure { is_full: is_full || no_index, in_doubt, source: Arc::new(error) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let is_full = error.kind() == io::ErrorKind::StorageFull;
        Failure { is_full, in_doubt: !is_full, source: Arc::new(error) }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        let is_full = matches!(fault, Fault::Full { .. });
        Failure { is_full, in_doubt: !is_full, source: Arc::new(fault) }
    }
}
