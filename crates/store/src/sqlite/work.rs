//! What can be asked of the one connection that writes, and what it answers.

use crate::log::{Append, Change, Deleted, IndexRow, Outcome, SessionKey, Tombstone, Wake};

/// Something to write.
pub(super) enum Work {
    Append(Vec<Append>),
    Change(Vec<Change>),
    DeleteFinished { finished_before: u64, now: u64, max: usize },
    PutTombstones(Vec<Tombstone>),
    ForgetTombstones { deleted_before: u64 },
    ClearIndex,
    RestoreIndex(Vec<(SessionKey, IndexRow, Wake)>),
    SetIndexVersion(u32),
    Probe,
}

/// What was done.
pub(super) enum Reply {
    Outcomes(Vec<Outcome>),
    Changed(bool),
    Deleted(Vec<Deleted>),
    Count(u64),
    Done,
}

impl Work {
    /// Whether it goes to the journal. The rest is for the database alone.
    pub(super) fn is_journaled(&self) -> bool {
        matches!(self, Work::Append(_) | Work::Probe)
    }

    /// How much of a commit it fills.
    pub(super) fn events(&self) -> usize {
        match self {
            Work::Append(batch) => batch.iter().map(|item| item.events.len().max(1)).sum(),
            Work::DeleteFinished { max, .. } => *max,
            Work::RestoreIndex(rows) => rows.len(),
            Work::Change(changes) => changes.len(),
            Work::PutTombstones(tombstones) => tombstones.len(),
            Work::ForgetTombstones { .. } => 1,
            Work::ClearIndex | Work::SetIndexVersion(_) | Work::Probe => 1,
        }
    }

    /// What a fault says was being done.
    pub(super) fn doing(&self) -> &'static str {
        match self {
            Work::Append(_) => "appending events",
            Work::Change(_) => "changing records",
            Work::DeleteFinished { .. } => "deleting finished sessions",
            Work::PutTombstones(_) => "writing tombstones",
            Work::ForgetTombstones { .. } => "forgetting tombstones",
            Work::ClearIndex => "clearing the index",
            Work::RestoreIndex(_) => "restoring the index",
            Work::SetIndexVersion(_) => "setting the version of the index",
            Work::Probe => "writing a probe",
        }
    }
}
