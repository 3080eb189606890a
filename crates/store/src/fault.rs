//! How the world fails. A fault keeps its source and says whether a retry can help.

use std::path::PathBuf;

use crate::log::SessionKey;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The disk or the database did not answer as it should. After a failed append the outcome may be unknown:
    /// reading the session's head settles it.
    #[error("the store is unavailable: {doing}")]
    Unavailable {
        /// What was being done.
        doing: &'static str,
        /// What went wrong underneath.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no room left on the disk. Nothing of the batch was kept.
    #[error("the store's disk is full: {doing}")]
    Full {
        /// What was being done.
        doing: &'static str,
        /// What went wrong underneath.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another writer has taken this one's slot, and it goes on in another. Nothing of what was asked for was kept, and what
    /// others did meanwhile may not have been heard.
    #[error("another node has taken this one's slot: it goes on in another")]
    SlotTaken,
    /// A stored event does not match its checksum, or its place in the log is empty.
    #[error("event {seq} of session {key} is damaged: {found}")]
    Corrupt {
        /// Whose log.
        key: SessionKey,
        /// Where in it.
        seq: u64,
        /// What was found there.
        found: String,
    },
    /// Something that was acknowledged is not to be found in the journal, and what came after it is.
    #[error("{} is damaged: {found}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found there.
        found: String,
    },
    /// Another process owns the data directory.
    #[error("the data directory {dir} is in use by another process")]
    InUse {
        /// The directory as it was given.
        dir: String,
    },
    /// The database is not one that can be used.
    #[error("{what}")]
    Unfit {
        /// What was expected, what was found, and what helps.
        what: String,
    },
    /// The data directory was written by a newer release.
    #[error("the data directory has schema version {found}, this release knows up to {known}")]
    TooNew {
        /// The version that was found.
        found: u32,
        /// The newest version that this release knows.
        known: u32,
    },
}

impl Fault {
    /// Whether doing the same again later can succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Fault::Unavailable { .. } | Fault::Full { .. } | Fault::SlotTaken => true,
            Fault::Corrupt { .. } | Fault::Damaged { .. } => false,
            Fault::InUse { .. } | Fault::TooNew { .. } | Fault::Unfit { .. } => false,
        }
    }
}
