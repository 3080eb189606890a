//! What each refusal and each fault is called on every wire: one exhaustive table, so that a new code stops the build
//! until it has a place on all of them.

use handover_kernel::Refusal;
use tonic::Code;

use crate::engine::Denied;

/// What one code is called on every wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// MACP's registry.
    pub macp: &'static str,
    /// gRPC's status.
    pub grpc: Code,
    /// HTTP's status.
    pub http: u16,
    /// JSON-RPC's error code.
    pub json_rpc: i32,
    /// Whether the same command may succeed later.
    pub retry: bool,
}

const fn meaning(macp: &'static str, grpc: Code, http: u16, json_rpc: i32, retry: bool) -> Meaning {
    Meaning { macp, grpc, http, json_rpc, retry }
}

/// The parameters say something that cannot be: JSON-RPC's code for it.
const INVALID_PARAMS: i32 = -32602;
/// JSON-RPC's code for what is no fault of the caller.
const INTERNAL: i32 = -32603;

const INVALID: Meaning = meaning("INVALID_ENVELOPE", Code::InvalidArgument, 400, INVALID_PARAMS, false);
const FORBIDDEN: Meaning = meaning("FORBIDDEN", Code::PermissionDenied, 403, INVALID_PARAMS, false);
const NOT_OPEN: Meaning = meaning("SESSION_NOT_OPEN", Code::FailedPrecondition, 409, INVALID_PARAMS, false);
const POLICY_DENIED: Meaning = meaning("POLICY_DENIED", Code::FailedPrecondition, 403, INVALID_PARAMS, false);
const LIMITED: Meaning = meaning("RATE_LIMITED", Code::ResourceExhausted, 429, INTERNAL, true);

/// What a refusal is called.
pub fn of_refusal(refusal: &Refusal) -> Meaning {
    match refusal {
        Refusal::SessionNotFound => meaning("SESSION_NOT_FOUND", Code::NotFound, 404, INVALID_PARAMS, false),
        Refusal::SessionExists => {
            meaning("SESSION_ALREADY_EXISTS", Code::AlreadyExists, 409, INVALID_PARAMS, false)
        }
        Refusal::SessionSuspended
        | Refusal::SessionEnded { .. }
        | Refusal::NotPaused
        | Refusal::AlreadyPaused => NOT_OPEN,
        Refusal::NotParticipant { .. }
        | Refusal::NotRequester { .. }
        | Refusal::NotAssignee { .. }
        | Refusal::NotEligible { .. }
        | Refusal::NotTarget { .. }
        | Refusal::NotAuthority { .. }
        | Refusal::NotRuntime
        | Refusal::Declined { .. }
        | Refusal::AlreadyReported => FORBIDDEN,
        Refusal::Invalid { .. }
        | Refusal::ReservedId { .. }
        | Refusal::WrongMode { .. }
        | Refusal::NotRequested
        | Refusal::AlreadyRequested
        | Refusal::WrongTask { .. }
        | Refusal::AlreadyAssigned { .. }
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
        | Refusal::TooManyParticipants { .. } => INVALID,
        Refusal::ReassignmentDenied | Refusal::OutputRequired => POLICY_DENIED,
        Refusal::PolicyInvalid { .. } => {
            meaning("INVALID_POLICY_DEFINITION", Code::InvalidArgument, 400, INVALID_PARAMS, false)
        }
        Refusal::PolicyUnknown { .. } => {
            meaning("UNKNOWN_POLICY_VERSION", Code::NotFound, 404, INVALID_PARAMS, false)
        }
        Refusal::PayloadTooLarge { .. } => {
            meaning("PAYLOAD_TOO_LARGE", Code::ResourceExhausted, 413, INVALID_PARAMS, false)
        }
        Refusal::TooManySteers { .. }
        | Refusal::TooManyQuestions { .. }
        | Refusal::TooManyMessages { .. }
        | Refusal::TooManyChildren { .. }
        | Refusal::TooManyOffers { .. }
        | Refusal::TooManySessions { .. }
        | Refusal::Busy => LIMITED,
    }
}

/// What an answer that is no acceptance is called.
pub fn of_denied(denied: &Denied) -> Meaning {
    match denied {
        Denied::Refused(refusal) => of_refusal(refusal),
        Denied::Fault(fault) => {
            meaning("INTERNAL_ERROR", Code::Unavailable, 503, INTERNAL, fault.is_retryable())
        }
        Denied::Unreadable(_) => meaning("INTERNAL_ERROR", Code::DataLoss, 500, INTERNAL, false),
        Denied::Stopping => meaning("INTERNAL_ERROR", Code::Unavailable, 503, INTERNAL, true),
    }
}

/// What to tell whoever asked. What went wrong beneath is for the log, not for the wire.
pub fn message(denied: &Denied) -> String {
    match denied {
        Denied::Refused(refusal) => refusal.to_string(),
        Denied::Fault(_) => "the store did not answer as it should: try again".to_owned(),
        Denied::Unreadable(_) => "the session's log cannot be read".to_owned(),
        Denied::Stopping => "the server is stopping".to_owned(),
    }
}
