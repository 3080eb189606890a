//! Bugs put in on purpose, to show that the simulator can fail. None of them is in the product: each is in the part of
//! the simulator that stands where a shell or a disk would stand.

use std::fmt;
use std::str::FromStr;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The store says that a commit is durable without syncing it.
    SkipSync,
    /// The shell tells the shard that a batch is written before it is.
    AnswerBeforeAppend,
    /// Loading a session forgets the ids of its messages.
    ForgetDuplicates,
    /// The shell takes every message under a used id for the one that was accepted under it.
    TrustIds,
    /// The store does not look at the sequence number that a writer expects.
    IgnoreConflicts,
    /// The watch over the clock sleeps.
    LoseWakes,
    /// A subscriber that was cut off goes on as if nothing had happened.
    HideCut,
    /// The index row of a batch is not written.
    DropRows,
    /// A snapshot lacks what the last event did.
    StaleSnapshot,
    /// Loading a session forgets what needs an approval.
    ForgetApprovals,
    /// A node answers from memory before it has looked at what others did.
    SkipLook,
    /// A node shows what it has in memory, whatever others did.
    ReadFromMemory,
    /// A node refuses on what it has in memory, whatever others did.
    RefuseFromMemory,
    /// A look at what others did ends with its first page.
    HalfLook,
    /// What a node wrote is told before it has looked at what that rests on.
    TellEarly,
    /// What others wrote to a session while it is being loaded is not heard: neither hint nor look has it loaded again.
    DeafWhileLoading,
    /// What others wrote to a session after what was kept, but is not known to be, is not heard.
    DeafWhileWriting,
    /// A commit that was kept is sent again.
    SendTwice,
    /// A node goes on writing to a slot that another one has taken.
    TakenSlot,
    /// A node does not look whether its slot was taken when it reads what others did.
    TrustLease,
    /// A node that has taken another slot does not read what was written there before.
    HideMove,
    /// Subscribers are not woken.
    ForgetToWake,
    /// A page of what others did has what comes of an event that is only on the next page.
    CutCause,
    /// What others hold back is never settled before they are trusted again.
    TrustDoubt,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 24] = [
        Plant::SkipSync,
        Plant::AnswerBeforeAppend,
        Plant::ForgetDuplicates,
        Plant::TrustIds,
        Plant::IgnoreConflicts,
        Plant::LoseWakes,
        Plant::HideCut,
        Plant::DropRows,
        Plant::StaleSnapshot,
        Plant::ForgetApprovals,
        Plant::SkipLook,
        Plant::ReadFromMemory,
        Plant::RefuseFromMemory,
        Plant::HalfLook,
        Plant::TellEarly,
        Plant::DeafWhileLoading,
        Plant::DeafWhileWriting,
        Plant::SendTwice,
        Plant::TakenSlot,
        Plant::TrustLease,
        Plant::HideMove,
        Plant::ForgetToWake,
        Plant::CutCause,
        Plant::TrustDoubt,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Plant::SkipSync => "skip-sync",
            Plant::AnswerBeforeAppend => "answer-before-append",
            Plant::ForgetDuplicates => "forget-duplicates",
            Plant::TrustIds => "trust-ids",
            Plant::IgnoreConflicts => "ignore-conflicts",
            Plant::LoseWakes => "lose-wakes",
            Plant::HideCut => "hide-cut",
            Plant::DropRows => "drop-rows",
            Plant::StaleSnapshot => "stale-snapshot",
            Plant::ForgetApprovals => "forget-approvals",
            Plant::SkipLook => "skip-look",
            Plant::ReadFromMemory => "read-from-memory",
            Plant::RefuseFromMemory => "refuse-from-memory",
            Plant::HalfLook => "half-look",
            Plant::TellEarly => "tell-early",
            Plant::DeafWhileLoading => "deaf-while-loading",
            Plant::DeafWhileWriting => "deaf-while-writing",
            Plant::SendTwice => "send-twice",
            Plant::TakenSlot => "taken-slot",
            Plant::TrustLease => "trust-lease",
            Plant::HideMove => "hide-move",
            Plant::ForgetToWake => "forget-to-wake",
            Plant::CutCause => "cut-cause",
            Plant::TrustDoubt => "trust-doubt",
        }
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(name: &str) -> Result<Plant, String> {
        let names: Vec<&str> = Plant::ALL.iter().map(|plant| plant.name()).collect();
        Plant::ALL
            .into_iter()
            .find(|plant| plant.name() == name)
            .ok_or_else(|| format!("expected one of {}, found {name:?}", names.join(", ")))
    }
}
