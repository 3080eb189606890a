//! What each refusal and each fault is called on every wire: one exhaustive table, so that a new code stops the build
//! until it has a place on all of them.
//!
//! - [`own`]: the codes that are not the kernel's
//! - [`pages`]: a page of help for every code

pub mod own;
pub mod pages;

use handover_kernel::Refusal;
use handover_store::Fault;

pub use self::pages::{ALL, link};

use crate::limit::Limited;
use handover_engine::Denied;

/// gRPC's statuses, as far as they are used, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Grpc {
    /// The request says something that cannot be.
    InvalidArgument = 3,
    /// It took too long.
    DeadlineExceeded = 4,
    /// There is no such thing, or the caller may not know of it.
    NotFound = 5,
    /// The id is taken.
    AlreadyExists = 6,
    /// The caller may not do that.
    PermissionDenied = 7,
    /// A limit was met.
    ResourceExhausted = 8,
    /// Not as things stand.
    FailedPrecondition = 9,
    /// Try again later.
    Unavailable = 14,
    /// What was stored cannot be read.
    DataLoss = 15,
    /// The caller did not prove who it is.
    Unauthenticated = 16,
}

/// What one code is called on every wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// MACP's registry.
    pub macp: &'static str,
    /// gRPC's status.
    pub grpc: Grpc,
    /// HTTP's status.
    pub http: u16,
    /// JSON-RPC's error code.
    pub json_rpc: i32,
    /// Whether the same command may succeed later.
    pub retry: bool,
}

const fn meaning(macp: &'static str, grpc: Grpc, http: u16, json_rpc: i32, retry: bool) -> Meaning {
    Meaning { macp, grpc, http, json_rpc, retry }
}

/// The parameters say something that cannot be: JSON-RPC's code for it.
const INVALID_PARAMS: i32 = -32602;
/// JSON-RPC's code for what is no fault of the caller.
const INTERNAL: i32 = -32603;

const INVALID: Meaning = meaning("INVALID_ENVELOPE", Grpc::InvalidArgument, 400, INVALID_PARAMS, false);
/// What only an administrator may do.
pub(crate) const FORBIDDEN: Meaning =
    meaning("FORBIDDEN", Grpc::PermissionDenied, 403, INVALID_PARAMS, false);
/// What was asked of an agent that nobody knows.
pub(crate) const NO_SUCH_AGENT: Meaning =
    meaning("AGENT_NOT_FOUND", Grpc::NotFound, 404, INVALID_PARAMS, false);
/// A task for an agent that takes none now.
pub(crate) const DO_NOT_DISTURB: Meaning =
    meaning("FORBIDDEN", Grpc::FailedPrecondition, 409, INVALID_PARAMS, false);
/// What was asked for with a credential that does not count any more.
pub(crate) const UNAUTHENTICATED: Meaning =
    meaning("UNAUTHENTICATED", Grpc::Unauthenticated, 401, INVALID_PARAMS, false);
const NOT_OPEN: Meaning = meaning("SESSION_NOT_OPEN", Grpc::FailedPrecondition, 409, INVALID_PARAMS, false);
const POLICY_DENIED: Meaning = meaning("POLICY_DENIED", Grpc::PermissionDenied, 403, INVALID_PARAMS, false);
const UNAVAILABLE: Meaning = meaning("INTERNAL_ERROR", Grpc::Unavailable, 503, INTERNAL, true);
const UNREADABLE: Meaning = meaning("INTERNAL_ERROR", Grpc::DataLoss, 500, INTERNAL, false);
const LIMITED: Meaning = meaning("RATE_LIMITED", Grpc::ResourceExhausted, 429, INTERNAL, true);

/// What a refusal is called.
pub fn of_refusal(refusal: &Refusal) -> Meaning {
    match refusal {
        Refusal::SessionNotFound => meaning("SESSION_NOT_FOUND", Grpc::NotFound, 404, INVALID_PARAMS, false),
        Refusal::SessionExists => {
            meaning("SESSION_ALREADY_EXISTS", Grpc::AlreadyExists, 409, INVALID_PARAMS, false)
        }
        Refusal::DuplicateMessage => {
            meaning("DUPLICATE_MESSAGE", Grpc::AlreadyExists, 409, INVALID_PARAMS, false)
        }
        Refusal::SessionSuspended
        | Refusal::SessionEnded { .. }
        | Refusal::NotPaused
        | Refusal::AlreadyPaused => NOT_OPEN,
        Refusal::NotParticipant { .. }
        | Refusal::NotRequester { .. }
        | Refusal::NotAssignee { .. }
        | Refusal::NoLongerAssignee { .. }
        | Refusal::NotEligible { .. }
        | Refusal::NotTarget { .. }
        | Refusal::NotAuthority { .. }
        | Refusal::NotRuntime
        | Refusal::NotApprover { .. }
        | Refusal::AlreadyReported => FORBIDDEN,
        Refusal::Invalid { .. }
        | Refusal::ReservedId { .. }
        | Refusal::WrongMode { .. }
        | Refusal::NotRequested
        | Refusal::AlreadyRequested
        | Refusal::WrongTask { .. }
        | Refusal::AlreadyAssigned { .. }
        | Refusal::Declined { .. }
        | Refusal::NotReported
        | Refusal::NotTakenPart
        | Refusal::NotRunning
        | Refusal::QuestionKeyUsed { .. }
        | Refusal::UnknownQuestion { .. }
        | Refusal::NotDeliverable
        | Refusal::HandoffIdUsed { .. }
        | Refusal::UnknownHandoff { .. }
        | Refusal::OfferOutstanding
        | Refusal::OfferAccepted
        | Refusal::OfferClosed { .. }
        | Refusal::TargetDeclined { .. }
        | Refusal::NotAnswered
        | Refusal::VersionMismatch { .. }
        | Refusal::OutcomeMismatch { .. }
        | Refusal::TooManyParticipants { .. }
        // Clients try again what is limited, and time alone lifts none of these (RFC-MACP-0002 §6.1).
        | Refusal::TooManyQuestions { .. }
        | Refusal::TooManyMessages { .. }
        | Refusal::TooManyChildren { .. }
        | Refusal::TooManyOffers { .. }
        | Refusal::NoProposal { .. }
        | Refusal::AlreadyDecided { .. }
        | Refusal::TooManyProposals { .. } => INVALID,
        Refusal::ReassignmentDenied
        | Refusal::HandOnDenied
        | Refusal::OutputRequired
        | Refusal::ApprovalNeeded { .. }
        | Refusal::NotApproved { .. }
        | Refusal::BudgetSpent { .. } => POLICY_DENIED,
        Refusal::PolicyInvalid { .. } => {
            meaning("INVALID_POLICY_DEFINITION", Grpc::InvalidArgument, 400, INVALID_PARAMS, false)
        }
        Refusal::PolicyUnknown { .. } => {
            meaning("UNKNOWN_POLICY_VERSION", Grpc::NotFound, 404, INVALID_PARAMS, false)
        }
        // A full log stays full, so that no client may be told to try again.
        Refusal::PayloadTooLarge { .. } | Refusal::LogFull { .. } => {
            meaning("PAYLOAD_TOO_LARGE", Grpc::ResourceExhausted, 413, INVALID_PARAMS, false)
        }
        Refusal::TooManySteers { .. }
        | Refusal::TooManySessions { .. }
        | Refusal::Busy => LIMITED,
    }
}

/// What having asked for more than one may is called.
pub fn of_limited(limited: &Limited) -> Meaning {
    match limited {
        Limited::Rate { .. }
        | Limited::Unknown { .. }
        | Limited::Streams { .. }
        | Limited::Memory { .. }
        | Limited::Storage { .. }
        | Limited::Checks { .. } => LIMITED,
        Limited::CheckSteps { .. } => INVALID,
    }
}

/// The code of having asked for more than one may.
pub fn code_of_limited(limited: &Limited) -> &'static str {
    match limited {
        Limited::Rate { .. } | Limited::Unknown { .. } | Limited::Streams { .. } => own::RATE_LIMITED.code,
        Limited::Memory { .. } => own::MEMORY_BUDGET_SPENT.code,
        Limited::Storage { .. } => own::STORAGE_BUDGET_SPENT.code,
        Limited::Checks { .. } => own::CHECKS_BUSY.code,
        Limited::CheckSteps { .. } => own::CHECK_TOO_COSTLY.code,
    }
}

/// Whether a refusal says that the agent may not do that.
pub fn is_forbidden(refusal: &Refusal) -> bool {
    of_refusal(refusal).macp == FORBIDDEN.macp
}

/// What an answer that is no acceptance is called.
pub fn of_denied(denied: &Denied) -> Meaning {
    match denied {
        Denied::Refused(refusal) => of_refusal(refusal),
        Denied::Fault(fault) if fault.is_retryable() => UNAVAILABLE,
        Denied::Fault(_) | Denied::Unreadable(_) => UNREADABLE,
        Denied::Stopping => UNAVAILABLE,
    }
}

/// The code of an answer that is no acceptance: the kernel's, or that of a fault.
pub fn code_of(denied: &Denied) -> &'static str {
    match denied {
        Denied::Refused(refusal) => refusal.code(),
        Denied::Fault(fault) => match **fault {
            Fault::Unavailable { .. } | Fault::SlotTaken => own::STORE_UNAVAILABLE.code,
            Fault::Full { .. } => own::STORE_FULL.code,
            Fault::Corrupt { .. } | Fault::Damaged { .. } => own::LOG_UNREADABLE.code,
            Fault::InUse { .. } | Fault::TooNew { .. } | Fault::Unfit { .. } => own::LOG_UNREADABLE.code,
        },
        Denied::Unreadable(_) => own::LOG_UNREADABLE.code,
        Denied::Stopping => own::STOPPING.code,
    }
}

/// What to tell whoever asked. What went wrong beneath is for the log, not for the wire.
pub fn message(denied: &Denied) -> String {
    match denied {
        Denied::Refused(refusal) => refusal.to_string(),
        Denied::Fault(fault) if fault.is_retryable() => {
            "the store did not answer as it should: try again".to_owned()
        }
        Denied::Fault(_) | Denied::Unreadable(_) => "the session's log cannot be read".to_owned(),
        Denied::Stopping => "the server is stopping".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use handover_kernel::{AgentId, HandoffId, QuestionKey, Seq, Text};

    use super::*;
    use crate::limit::{Kind, Limit, Whose};

    /// MACP's registry of error codes, with its HTTP statuses.
    const REGISTRY: [(&str, u16); 16] = [
        ("UNAUTHENTICATED", 401),
        ("FORBIDDEN", 403),
        ("SESSION_NOT_FOUND", 404),
        ("SESSION_NOT_OPEN", 409),
        ("DUPLICATE_MESSAGE", 409),
        ("SESSION_ALREADY_EXISTS", 409),
        ("INVALID_ENVELOPE", 400),
        ("UNSUPPORTED_PROTOCOL_VERSION", 400),
        ("MODE_NOT_SUPPORTED", 400),
        ("PAYLOAD_TOO_LARGE", 413),
        ("RATE_LIMITED", 429),
        ("INVALID_SESSION_ID", 400),
        ("INTERNAL_ERROR", 500),
        ("UNKNOWN_POLICY_VERSION", 404),
        ("POLICY_DENIED", 403),
        ("INVALID_POLICY_DEFINITION", 400),
    ];

    /// One of each refusal, in the kernel's order.
    pub(super) fn refusals() -> Vec<Refusal> {
        let agent = || AgentId::from("worker");
        let handoff = || HandoffId::from("h1");
        let key = || QuestionKey::from("q1");
        let text = || Text::from("x");
        vec![
            Refusal::SessionNotFound,
            Refusal::SessionExists,
            Refusal::SessionSuspended,
            Refusal::SessionEnded { state: "resolved" },
            Refusal::NotParticipant { agent: agent() },
            Refusal::NotRequester { agent: agent() },
            Refusal::NotAssignee { agent: agent() },
            Refusal::NoLongerAssignee { agent: agent(), how: "it was handed on" },
            Refusal::NotEligible { agent: agent() },
            Refusal::NotTarget { agent: agent() },
            Refusal::NotAuthority { agent: agent() },
            Refusal::NotRuntime,
            Refusal::Invalid { what: text() },
            Refusal::ReservedId { prefix: "handover:" },
            Refusal::DuplicateMessage,
            Refusal::WrongMode { expected: "task" },
            Refusal::NotRequested,
            Refusal::AlreadyRequested,
            Refusal::WrongTask { expected: text(), found: text() },
            Refusal::AlreadyAssigned { assignee: agent() },
            Refusal::Declined { agent: agent() },
            Refusal::ReassignmentDenied,
            Refusal::HandOnDenied,
            Refusal::OutputRequired,
            Refusal::AlreadyReported,
            Refusal::NotReported,
            Refusal::NotTakenPart,
            Refusal::NotRunning,
            Refusal::QuestionKeyUsed { key: key() },
            Refusal::UnknownQuestion { key: key() },
            Refusal::NotPaused,
            Refusal::AlreadyPaused,
            Refusal::NotDeliverable,
            Refusal::HandoffIdUsed { handoff: handoff() },
            Refusal::UnknownHandoff { handoff: handoff() },
            Refusal::OfferOutstanding,
            Refusal::OfferAccepted,
            Refusal::OfferClosed { handoff: handoff() },
            Refusal::TargetDeclined { agent: agent() },
            Refusal::NotAnswered,
            Refusal::VersionMismatch { what: "mode_version", expected: text(), found: text() },
            Refusal::OutcomeMismatch { action: text() },
            Refusal::PolicyInvalid { what: text() },
            Refusal::PolicyUnknown { id: text() },
            Refusal::ApprovalNeeded { proposal: Seq(2) },
            Refusal::NotApproved { proposal: Seq(2), how: "rejected", words: text() },
            Refusal::NotApprover { agent: agent() },
            Refusal::NoProposal { proposal: Seq(2) },
            Refusal::AlreadyDecided { by: agent(), how: "approved" },
            Refusal::BudgetSpent { what: text() },
            Refusal::PayloadTooLarge { limit: 1, found: 2 },
            Refusal::TooManyParticipants { limit: 1, found: 2 },
            Refusal::TooManySteers { limit: 1 },
            Refusal::TooManyQuestions { limit: 1 },
            Refusal::TooManyMessages { limit: 1 },
            Refusal::TooManyChildren { limit: 1 },
            Refusal::TooManyOffers { limit: 1 },
            Refusal::TooManyProposals { limit: 1 },
            Refusal::LogFull { limit: 1, unit: "events" },
            Refusal::TooManySessions { limit: 1 },
            Refusal::Busy,
        ]
    }

    #[test]
    fn every_refusal_has_a_code_of_the_registry_and_its_http_status() {
        let all = refusals();
        let codes: Vec<&str> = all.iter().map(Refusal::code).collect();
        assert_eq!(codes, Refusal::CODES, "a refusal is missing from this test");
        for refusal in all {
            let meaning = of_refusal(&refusal);
            assert!(REGISTRY.contains(&(meaning.macp, meaning.http)), "{refusal:?}: {meaning:?}");
            assert!(matches!(meaning.json_rpc, INVALID_PARAMS | INTERNAL), "{refusal:?}: {meaning:?}");
        }
    }

    #[test]
    fn every_limit_has_a_name_and_a_code_that_is_a_limits() {
        let mut named = vec![
            "session_starts",
            "messages",
            "requests",
            "streams",
            "memory",
            "storage",
            "checks",
            "check_steps",
        ];
        for refusal in refusals() {
            let limit = Limit::of(&refusal);
            named.extend(limit.map(Limit::name));
            let code = of_refusal(&refusal).macp;
            let is_limit = matches!(code, "RATE_LIMITED" | "PAYLOAD_TOO_LARGE")
                || refusal.code().starts_with("TOO_MANY_");
            assert_eq!(limit.is_some(), is_limit, "{refusal:?}");
        }
        assert_eq!(named.len(), Limit::ALL.len());
        assert!(Limit::ALL.iter().all(|limit| named.contains(&limit.name())), "{named:?}");
        let rate = Limited::Rate { kind: Kind::Start, per_minute: 1, retry_after_ms: 2 };
        let costly = Limited::CheckSteps { what: "x".to_owned() };
        assert!(Limit::ALL.contains(&costly.limit()) && !of_limited(&costly).retry);
        let streams = Limited::Streams { max: 1 };
        let memory = Limited::Memory { whose: Whose::Agent, max: 1 };
        let storage = Limited::Storage { whose: Whose::Tenant, max: 1 };
        let unknown = Limited::Unknown { kind: Kind::Message, retry_after_ms: 1 };
        for limited in [rate, unknown, streams, memory, storage, Limited::Checks { retry_after_ms: 1 }] {
            assert!(Limit::ALL.contains(&limited.limit()));
            let meaning = of_limited(&limited);
            assert_eq!((meaning.macp, meaning.http, meaning.retry), ("RATE_LIMITED", 429, true));
        }
    }

    #[test]
    fn what_is_no_fault_of_the_caller_says_nothing_of_what_went_wrong() {
        let unreadable = Denied::Unreadable("byte 7 of a secret".into());
        assert!(!message(&unreadable).contains("secret"));
        assert_eq!((of_denied(&unreadable).macp, of_denied(&unreadable).retry), ("INTERNAL_ERROR", false));
        assert_eq!(
            (of_denied(&Denied::Stopping).macp, of_denied(&Denied::Stopping).retry),
            ("INTERNAL_ERROR", true)
        );
    }

    #[test]
    fn every_fault_is_called_on_the_wires_as_the_table_of_its_code_says() {
        let source = || std::io::Error::other("a secret").into();
        let key = handover_store::SessionKey::new("default", "s");
        let faults = [
            (Fault::Unavailable { doing: "append", source: source() }, &own::STORE_UNAVAILABLE),
            (Fault::SlotTaken, &own::STORE_UNAVAILABLE),
            (Fault::Full { doing: "append", source: source() }, &own::STORE_FULL),
            (Fault::Corrupt { key, seq: 1, found: "a secret".to_owned() }, &own::LOG_UNREADABLE),
        ];
        let others = [
            (Denied::Unreadable("a secret".into()), &own::LOG_UNREADABLE),
            (Denied::Stopping, &own::STOPPING),
        ];
        let faults = faults.map(|(fault, own)| (Denied::Fault(Arc::new(fault)), own));
        for (denied, own) in faults.into_iter().chain(others) {
            let meaning = of_denied(&denied);
            assert_eq!(code_of(&denied), own.code);
            assert_eq!(meaning.macp, own.macp.unwrap(), "{denied:?}");
            assert_eq!((&[meaning.grpc][..], &[meaning.http][..]), (own.grpc, own.http), "{denied:?}");
            assert_eq!(&[meaning.json_rpc][..], own.json_rpc, "{denied:?}");
            assert_eq!(meaning.retry, own.retry == own::Retry::Yes, "{denied:?}");
            assert!(!message(&denied).contains("secret"));
        }
    }

    #[test]
    fn the_same_command_may_succeed_later_only_when_a_limit_was_met_that_time_lifts() {
        for refusal in refusals() {
            let meaning = of_refusal(&refusal);
            assert_eq!(meaning.retry, meaning.macp == "RATE_LIMITED", "{refusal:?}");
        }
    }
}
