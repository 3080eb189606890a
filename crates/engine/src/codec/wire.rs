//! The protobuf message of an event.
//!
//! Stored bytes live for ever, so a field number is never used for anything else, not even after its field is gone,
//! and no field ever changes its type or its meaning. To say more, add a field with a new number or a new kind.
//!
//! Ids, numbers and parts that every event of a kind has are `optional` here and always written, so that a missing one
//! is noticed. Text, bytes, lists and flags are written unless they are empty, and so are read as empty when missing.
//! Where the kernel tells nothing from something empty, the field is `optional` and written only if there is something.

use handover_kernel::Face;
use handover_kernel::charter::{Cancel, OnDecline, OnSilence, PauseAt, Settlement};
use handover_kernel::command::{ModeKind, Need};
use handover_kernel::event::ExpiryCause;
use prost::bytes::Bytes;

/// A kernel enum without data, and the numbers of its values on the wire. Zero is nobody's: it means a missing field.
pub(super) trait Numbered: Sized {
    fn number(&self) -> u32;
    fn of(number: u32) -> Option<Self>;
}

macro_rules! numbered {
    ($($kind:ident { $($value:ident = $number:literal),+ })+) => {
        $(impl Numbered for $kind {
            fn number(&self) -> u32 {
                match self {
                    $($kind::$value => $number,)+
                }
            }

            fn of(number: u32) -> Option<$kind> {
                match number {
                    $($number => Some($kind::$value),)+
                    _ => None,
                }
            }
        })+
    };
}

// A number that was once given to a value is never given to another.
numbered! {
    Face { Macp = 1, Mcp = 2, Grid = 3, Console = 4, Cli = 5, Runtime = 6 }
    ModeKind { Task = 1, Handoff = 2 }
    Settlement { Review = 1, AtOnce = 2 }
    OnDecline { StayOpen = 1, CancelWhenNobodyLeft = 2, FailAtOnce = 3 }
    Cancel { Requester = 1, EitherParty = 2 }
    PauseAt { Once = 1, SafePoint = 2 }
    OnSilence { Nothing = 1, Tell = 2, Free = 3, Fail = 4 }
    Need { Input = 1, Authorization = 2 }
    ExpiryCause { Deadline = 1, SuspensionCap = 2 }
}

/// Numbers 1 to 9 and 100 on are of every event; 10 to 29 are facts of the session, 30 to 59 of the task, 60 to 99 of the
/// handoff. Never reuse one.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Event {
    #[prost(uint64, optional, tag = "1")]
    pub seq: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub at: Option<u64>,
    #[prost(oneof = "Author", tags = "3, 4")]
    pub author: Option<Author>,
    #[prost(uint32, tag = "5")]
    pub face: u32,
    #[prost(uint64, optional, tag = "6")]
    pub ordinal: Option<u64>,
    #[prost(string, optional, tag = "7")]
    pub id: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub verbatim: Option<Bytes>,
    #[prost(message, optional, boxed, tag = "9")]
    pub trace: Option<Box<Trace>>,
    #[prost(uint64, optional, tag = "100")]
    pub sent_at: Option<u64>,
    #[prost(
        oneof = "Fact",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, \
                30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, \
                50, 51, 52, 53, 55, \
                60, 61, 62, 63"
    )]
    pub fact: Option<Fact>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Trace {
    #[prost(string, optional, tag = "1")]
    pub parent: Option<String>,
    #[prost(string, tag = "2")]
    pub state: String,
}

/// Fields of [`Event`]. Never reuse a number.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Author {
    #[prost(string, tag = "3")]
    Agent(String),
    #[prost(message, tag = "4")]
    Runtime(()),
}

/// Fields of [`Event`], one number for each kind of fact. Never reuse a number.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Fact {
    #[prost(message, tag = "10")]
    Started(Box<Started>),
    #[prost(message, tag = "11")]
    Cancelled(Cancelled),
    #[prost(message, tag = "12")]
    Suspended(Suspended),
    #[prost(message, tag = "13")]
    Resumed(Resumed),
    #[prost(message, tag = "14")]
    Expired(Expired),
    #[prost(message, tag = "15")]
    Committed(Box<Committed>),
    #[prost(message, tag = "16")]
    ErrandSettled(ErrandSettled),

    #[prost(message, tag = "30")]
    Requested(Box<Requested>),
    #[prost(message, tag = "31")]
    Accepted(Accepted),
    #[prost(message, tag = "32")]
    Declined(Declined),
    #[prost(message, tag = "33")]
    Updated(Updated),
    #[prost(message, tag = "34")]
    Asked(Asked),
    #[prost(message, tag = "35")]
    Checkpointed(()),
    #[prost(message, tag = "36")]
    Delivered(Delivered),
    #[prost(message, tag = "37")]
    Answered(Answered),
    #[prost(message, tag = "38")]
    Steered(Steered),
    #[prost(message, tag = "39")]
    PauseRequested(PauseRequested),
    #[prost(message, tag = "40")]
    Completed(Completed),
    #[prost(message, tag = "41")]
    Failed(Failed),
    #[prost(message, tag = "42")]
    Said(Said),
    #[prost(message, tag = "43")]
    Read(Read),
    #[prost(message, tag = "44")]
    Acknowledged(()),
    #[prost(message, tag = "45")]
    CheckInMissed(CheckInMissed),
    #[prost(message, tag = "46")]
    KeySet(KeySet),
    #[prost(message, tag = "47")]
    ChildAdded(ChildAdded),
    #[prost(message, tag = "48")]
    FellSilent(FellSilent),

    #[prost(message, tag = "55")]
    CycleFound(CycleFound),

    #[prost(message, tag = "17")]
    Proposed(Box<Proposed>),
    #[prost(message, tag = "18")]
    Decided(Box<Decided>),

    #[prost(message, tag = "50")]
    Reserved(Reserved),
    #[prost(message, tag = "51")]
    Used(Used),
    #[prost(message, tag = "52")]
    Spent(Spent),
    #[prost(message, tag = "53")]
    Overspent(Overspent),

    #[prost(message, tag = "60")]
    Offered(Offered),
    #[prost(message, tag = "61")]
    ContextAdded(ContextAdded),
    #[prost(message, tag = "62")]
    OfferAccepted(OfferAccepted),
    #[prost(message, tag = "63")]
    OfferDeclined(OfferDeclined),
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Started {
    #[prost(uint64, optional, tag = "1")]
    pub base: Option<u64>,
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    #[prost(string, repeated, tag = "3")]
    pub participants: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub charter: Option<Charter>,
    #[prost(string, tag = "5")]
    pub mode_version: String,
    #[prost(string, tag = "6")]
    pub configuration_version: String,
    #[prost(string, tag = "7")]
    pub policy_version: String,
    #[prost(uint64, optional, tag = "8")]
    pub ttl_ms: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub sent_at: Option<u64>,
    #[prost(string, tag = "10")]
    pub intent: String,
    #[prost(string, tag = "11")]
    pub context_id: String,
    #[prost(string, repeated, tag = "12")]
    pub extension_keys: Vec<String>,
    #[prost(string, optional, tag = "13")]
    pub parent: Option<String>,
    #[prost(message, optional, boxed, tag = "14")]
    pub contract: Option<Box<Contract>>,
    #[prost(message, optional, tag = "15")]
    pub under: Option<Under>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Contract {
    #[prost(string, tag = "1")]
    pub skill: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub input: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub output: Bytes,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Charter {
    #[prost(oneof = "Authority", tags = "1, 2, 3")]
    pub authority: Option<Authority>,
    #[prost(uint32, tag = "4")]
    pub on_complete: u32,
    #[prost(uint32, tag = "5")]
    pub on_fail: u32,
    #[prost(uint32, tag = "6")]
    pub on_decline: u32,
    #[prost(uint32, tag = "7")]
    pub cancel: u32,
    #[prost(uint32, tag = "8")]
    pub pause: u32,
    #[prost(bool, tag = "9")]
    pub reassignment: bool,
    #[prost(bool, tag = "10")]
    pub require_output: bool,
    #[prost(bool, tag = "11")]
    pub acting_accepts: bool,
    #[prost(bool, tag = "12")]
    pub message_answers: bool,
    #[prost(bool, tag = "13")]
    pub commit_completes: bool,
    #[prost(bool, tag = "14")]
    pub notices: bool,
    #[prost(uint64, optional, tag = "15")]
    pub check_in_ms: Option<u64>,
    #[prost(uint64, optional, tag = "16")]
    pub suspension_cap_ms: Option<u64>,
    #[prost(uint64, optional, tag = "17")]
    pub implicit_accept_ms: Option<u64>,
    #[prost(bool, tag = "18")]
    pub ends_pause: bool,
    #[prost(message, optional, tag = "19")]
    pub liveness: Option<Liveness>,
    #[prost(message, optional, tag = "20")]
    pub approvals: Option<Approvals>,
    #[prost(message, optional, tag = "21")]
    pub budget: Option<Budget>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Approvals {
    #[prost(string, repeated, tag = "1")]
    pub opening: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub commitment: Vec<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Proposed {
    #[prost(oneof = "WhatProposed", tags = "1, 2, 3")]
    pub what: Option<WhatProposed>,
    #[prost(bool, tag = "4")]
    pub held: bool,
}

/// Fields of [`Proposed`]. Never reuse a number.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum WhatProposed {
    #[prost(message, tag = "1")]
    Request(Requested),
    #[prost(message, tag = "2")]
    Offer(ProposedOffer),
    #[prost(message, tag = "3")]
    Commitment(Committed),
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProposedOffer {
    #[prost(message, optional, tag = "1")]
    pub offer: Option<Offered>,
    #[prost(message, optional, tag = "2")]
    pub context: Option<ContextAdded>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Decided {
    #[prost(uint64, optional, tag = "1")]
    pub proposal: Option<u64>,
    #[prost(oneof = "Ruling", tags = "2, 3, 4")]
    pub ruling: Option<Ruling>,
}

/// Fields of [`Decided`]. Never reuse a number.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Ruling {
    #[prost(message, tag = "2")]
    Approved(Changes),
    #[prost(string, tag = "3")]
    ChangesAsked(String),
    #[prost(string, tag = "4")]
    Rejected(String),
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Changes {
    #[prost(string, optional, tag = "1")]
    pub title: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub instructions: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub input: Option<Bytes>,
    #[prost(string, optional, tag = "4")]
    pub reason: Option<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Liveness {
    #[prost(uint64, tag = "1")]
    pub window_ms: u64,
    #[prost(uint32, tag = "2")]
    pub then: u32,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Budget {
    #[prost(uint32, optional, tag = "1")]
    pub tasks: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub depth: Option<u32>,
    #[prost(uint64, optional, tag = "3")]
    pub time_ms: Option<u64>,
    #[prost(message, repeated, tag = "4")]
    pub numbers: Vec<Amount>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Amount {
    #[prost(string, tag = "1")]
    pub name: String,
    /// In millionths.
    #[prost(uint64, tag = "2")]
    pub amount: u64,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Under {
    #[prost(string, optional, tag = "1")]
    pub root: Option<String>,
    #[prost(uint32, tag = "2")]
    pub depth: u32,
    #[prost(uint32, optional, tag = "3")]
    pub deepest: Option<u32>,
    #[prost(uint64, optional, tag = "4")]
    pub until: Option<u64>,
    #[prost(uint32, tag = "5")]
    pub nested: u32,
}

/// Fields of [`Charter`]. Never reuse a number.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Authority {
    #[prost(message, tag = "1")]
    Requester(()),
    #[prost(message, tag = "2")]
    AnyParticipant(()),
    #[prost(message, tag = "3")]
    Designated(Designated),
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Designated {
    #[prost(string, repeated, tag = "1")]
    pub agents: Vec<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Cancelled {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(bool, tag = "2")]
    pub keeps_children: bool,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Suspended {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(uint64, optional, tag = "2")]
    pub banked_ms: Option<u64>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resumed {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(uint64, optional, tag = "2")]
    pub banked_ms: Option<u64>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Expired {
    #[prost(uint32, tag = "1")]
    pub cause: u32,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Committed {
    #[prost(string, tag = "1")]
    pub commitment: String,
    #[prost(string, tag = "2")]
    pub action: String,
    #[prost(string, tag = "3")]
    pub scope: String,
    #[prost(string, tag = "4")]
    pub reason: String,
    #[prost(string, tag = "5")]
    pub mode_version: String,
    #[prost(string, tag = "6")]
    pub policy_version: String,
    #[prost(string, tag = "7")]
    pub configuration_version: String,
    #[prost(bool, tag = "8")]
    pub positive: bool,
    #[prost(message, optional, tag = "9")]
    pub supersedes: Option<Supersedes>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Supersedes {
    #[prost(string, optional, tag = "1")]
    pub session: Option<String>,
    #[prost(string, tag = "2")]
    pub hash: String,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ErrandSettled {
    #[prost(uint64, optional, tag = "1")]
    pub errand: Option<u64>,
    #[prost(oneof = "Verdict", tags = "2, 3")]
    pub verdict: Option<Verdict>,
}

/// Fields of [`ErrandSettled`]. Never reuse a number.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Verdict {
    #[prost(message, tag = "2")]
    Done(()),
    #[prost(message, tag = "3")]
    Refused(Refused),
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Refused {
    #[prost(string, tag = "1")]
    pub code: String,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Requested {
    #[prost(string, tag = "1")]
    pub task: String,
    #[prost(string, tag = "2")]
    pub title: String,
    #[prost(string, tag = "3")]
    pub instructions: String,
    #[prost(string, optional, tag = "4")]
    pub assignee: Option<String>,
    #[prost(bytes = "bytes", tag = "5")]
    pub input: Bytes,
    #[prost(uint64, optional, tag = "6")]
    pub wanted_by: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pub check_in_ms: Option<u64>,
    #[prost(uint32, optional, tag = "8")]
    pub misses_max: Option<u32>,
    #[prost(string, optional, tag = "9")]
    pub session_key: Option<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Accepted {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, optional, tag = "2")]
    pub handoff: Option<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Declined {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, optional, tag = "2")]
    pub handoff: Option<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Progress {
    #[prost(string, tag = "1")]
    pub status: String,
    #[prost(double, optional, tag = "2")]
    pub done: Option<f64>,
    #[prost(string, tag = "3")]
    pub message: String,
    #[prost(bytes = "bytes", tag = "4")]
    pub partial: Bytes,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Updated {
    #[prost(message, optional, tag = "1")]
    pub progress: Option<Progress>,
    #[prost(string, repeated, tag = "2")]
    pub withdrawn: Vec<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Asked {
    #[prost(message, repeated, tag = "1")]
    pub questions: Vec<Question>,
    #[prost(message, optional, tag = "2")]
    pub progress: Option<Progress>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Question {
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    #[prost(uint32, tag = "2")]
    pub need: u32,
    #[prost(string, tag = "3")]
    pub text: String,
    #[prost(bytes = "bytes", tag = "4")]
    pub schema: Bytes,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub wire: Option<Bytes>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Delivered {
    #[prost(uint64, optional, tag = "1")]
    pub up_to: Option<u64>,
    #[prost(uint64, repeated, tag = "2")]
    pub orders: Vec<u64>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Answered {
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<Answer>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Answer {
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    #[prost(oneof = "Reply", tags = "2, 3, 4")]
    pub reply: Option<Reply>,
}

/// Fields of [`Answer`]. Never reuse a number.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Reply {
    #[prost(bytes = "bytes", tag = "2")]
    Content(Bytes),
    #[prost(message, tag = "3")]
    Refused(()),
    #[prost(message, tag = "4")]
    Dismissed(()),
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Steered {
    #[prost(string, tag = "1")]
    pub text: String,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PauseRequested {
    #[prost(string, tag = "1")]
    pub reason: String,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Completed {
    #[prost(bytes = "bytes", tag = "1")]
    pub output: Bytes,
    #[prost(string, tag = "2")]
    pub summary: String,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Failed {
    #[prost(string, tag = "1")]
    pub code: String,
    #[prost(string, tag = "2")]
    pub reason: String,
    #[prost(bool, tag = "3")]
    pub retryable: bool,
    #[prost(bool, tag = "4")]
    pub protocol_error: bool,
    #[prost(bytes = "bytes", tag = "5")]
    pub output: Bytes,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Said {
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    #[prost(bool, tag = "2")]
    pub awaits_reply: bool,
    #[prost(string, optional, tag = "3")]
    pub answers: Option<String>,
    #[prost(uint64, optional, tag = "4")]
    pub check_in_ms: Option<u64>,
    #[prost(uint32, optional, tag = "5")]
    pub misses_max: Option<u32>,
    #[prost(bool, tag = "6")]
    pub works: bool,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Read {
    #[prost(uint64, optional, tag = "1")]
    pub up_to: Option<u64>,
    #[prost(bool, tag = "2")]
    pub safe_point: bool,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CheckInMissed {
    #[prost(uint64, optional, tag = "1")]
    pub message: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub next: Option<u64>,
    #[prost(bool, tag = "3")]
    pub gives_up: bool,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CycleFound {
    #[prost(string, repeated, tag = "1")]
    pub agents: Vec<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FellSilent {
    #[prost(uint64, optional, tag = "1")]
    pub since: Option<u64>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Reserved {
    #[prost(string, optional, tag = "1")]
    pub child: Option<String>,
    #[prost(uint32, tag = "2")]
    pub depth: u32,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Used {
    #[prost(message, repeated, tag = "1")]
    pub used: Vec<Amount>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Spent {
    #[prost(string, optional, tag = "1")]
    pub from: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub used: Vec<Amount>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Overspent {
    #[prost(string, tag = "1")]
    pub name: String,
    /// In millionths.
    #[prost(uint64, tag = "2")]
    pub of: u64,
    #[prost(uint64, tag = "3")]
    pub used: u64,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeySet {
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ChildAdded {
    #[prost(string, optional, tag = "1")]
    pub child: Option<String>,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Offered {
    #[prost(string, optional, tag = "1")]
    pub handoff: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub target: Option<String>,
    #[prost(string, tag = "3")]
    pub scope: String,
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContextAdded {
    #[prost(string, optional, tag = "1")]
    pub handoff: Option<String>,
    #[prost(string, tag = "2")]
    pub content_type: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OfferAccepted {
    #[prost(string, optional, tag = "1")]
    pub handoff: Option<String>,
    #[prost(string, tag = "2")]
    pub reason: String,
    #[prost(bool, tag = "3")]
    pub implicit: bool,
}

/// Never reuse a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OfferDeclined {
    #[prost(string, optional, tag = "1")]
    pub handoff: Option<String>,
    #[prost(string, tag = "2")]
    pub reason: String,
}
