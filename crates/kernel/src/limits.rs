//! How much of everything. Reaching a limit is a refusal with its own code.

use crate::id::Millis;

/// The limits that a decision respects. A session that is over one, because it was lowered, still replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one command may carry, the verbatim wire bytes or the meaning, whichever is more.
    pub payload_bytes_max: usize,
    /// Participants that a session may declare.
    pub participants_max: usize,
    /// How long a session that has a time limit may be open.
    pub ttl_ms_max: Millis,
    /// Steers that may wait for the assignee's next safe point.
    pub steers_pending_max: usize,
    /// Questions that may be open at once.
    pub questions_open_max: usize,
    /// Messages that a task's conversation may hold.
    pub messages_per_task_max: usize,
    /// Tasks that may name one task as their parent.
    pub children_per_task_max: usize,
    /// Offers that a handoff session may see.
    pub offers_per_handoff_max: usize,
    /// Proposals that may follow each other without one that took effect.
    pub proposals_max: usize,
    /// Events that a session's log may hold before it takes only what brings the session to its end.
    pub log_events_max: u64,
    /// Bytes that the events of a log may weigh, likewise.
    pub log_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            payload_bytes_max: 1024 * 1024,
            participants_max: 1000,
            ttl_ms_max: 24 * 60 * 60 * 1000,
            steers_pending_max: 64,
            questions_open_max: 32,
            messages_per_task_max: 10_000,
            children_per_task_max: 1000,
            offers_per_handoff_max: 1000,
            proposals_max: 100,
            log_events_max: 200_000,
            log_bytes_max: 256 * 1024 * 1024,
        }
    }
}
