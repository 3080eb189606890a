//! Why the kernel said no: plain data, one code for all faces.

use std::borrow::Cow;
use std::fmt;

use crate::id::{AgentId, HandoffId, QuestionKey, Seq, Text};

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident : $kind:ty),+ })? = $code:literal, $text:literal $(, $arg:expr)*;)+) => {
        /// Why a command was refused.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Refusal {
            $($(#[$doc])* $name $({ $($field: $kind),+ })?,)+
        }

        impl Refusal {
            /// Every code, in the order of the list.
            pub const CODES: &'static [&'static str] = &[$($code),+];

            /// The code, the same on every face.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Refusal::$name $({ $($field: _),+ })? => $code,)+
                }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Refusal::$name $({ $($field),+ })? => {
                        $($(let $field = shown($field);)+)?
                        write!(f, $text $(, $arg)*)
                    })+
                }
            }
        }
    };
}

refusals! {
    /// There is no such session, or the caller may not know of it.
    SessionNotFound = "SESSION_NOT_FOUND", "there is no such session";
    /// The id is taken.
    SessionExists = "SESSION_EXISTS", "a session with this id exists already";
    /// The session is paused and the command is not among those that a paused session takes.
    SessionSuspended = "SESSION_SUSPENDED", "the session is suspended: resume it first";
    /// The session has ended.
    SessionEnded { state: &'static str } = "SESSION_ENDED", "the session has ended: it is {state}";
    /// The caller has no part in the session.
    NotParticipant { agent: AgentId } = "NOT_PARTICIPANT", "{agent} has no part in this session";
    /// Only the requester may do this.
    NotRequester { agent: AgentId } = "NOT_REQUESTER", "expected the requester, found {agent}";
    /// Only the active assignee may do this.
    NotAssignee { agent: AgentId } = "NOT_ASSIGNEE", "expected the active assignee, found {agent}";
    /// It was the assignee, and is not any more.
    NoLongerAssignee { agent: AgentId, how: &'static str } = "NO_LONGER_ASSIGNEE", "{agent} has this task no longer: {how}";
    /// This agent may not take this task.
    NotEligible { agent: AgentId } = "NOT_ELIGIBLE", "{agent} may not take this task: it is not the requested assignee nor eligible";
    /// Only the target of the offer may answer it.
    NotTarget { agent: AgentId } = "NOT_TARGET", "expected the target of the offer, found {agent}";
    /// The charter gives somebody else the right to commit.
    NotAuthority { agent: AgentId } = "NOT_AUTHORITY", "{agent} may not bind the outcome of this session";
    /// Only the runtime may do this.
    NotRuntime = "NOT_RUNTIME", "only the runtime may do this";
    /// A field is missing or wrong.
    Invalid { what: Text } = "INVALID", "{what}";
    /// The id is in the space that the runtime keeps for itself.
    ReservedId { prefix: &'static str } = "RESERVED_ID", "message ids that begin with {prefix} are reserved for the runtime";
    /// The id was used before, for another message.
    DuplicateMessage = "DUPLICATE_MESSAGE", "the id or idempotency key was used before, for another message: expected the same sender, type and payload, or an id of its own";
    /// The command belongs to another mode.
    WrongMode { expected: &'static str } = "WRONG_MODE", "this is a {expected} session: the message belongs to another mode";

    /// Nothing has been requested yet.
    NotRequested = "NOT_REQUESTED", "no task has been requested yet";
    /// RFC-MACP-0009 §5 rule 1.
    AlreadyRequested = "ALREADY_REQUESTED", "the session has its one task request already";
    /// The message names another task.
    WrongTask { expected: Text, found: Text } = "WRONG_TASK", "expected task id {expected:?}, found {found:?}";
    /// RFC-MACP-0009 §5 rule 3a.
    AlreadyAssigned { assignee: AgentId } = "ALREADY_ASSIGNED", "the task has an assignee already: {assignee}";
    /// RFC-MACP-0009 §5 rule 2a.
    Declined { agent: AgentId } = "DECLINED", "{agent} has declined this task and cannot take it any more";
    /// The charter does not let another agent take the task.
    ReassignmentDenied = "REASSIGNMENT_DENIED", "reassignment after a decline is not allowed by the policy";
    /// The charter does not let the task be handed on.
    HandOnDenied = "HAND_ON_DENIED", "the policy of the task does not allow it to be handed on: expected one that allows reassignment";
    /// The charter asks for an output.
    OutputRequired = "OUTPUT_REQUIRED", "the policy requires a non-empty output for a positive commitment";
    /// The assignee has said its last word.
    AlreadyReported = "ALREADY_REPORTED", "the assignee has reported already: to go on, create a new task";
    /// Nothing to commit yet.
    NotReported = "NOT_REPORTED", "there is nothing to commit: the assignee has not reported";
    /// The receiver has not said anything: there is nothing to complete.
    NotTakenPart = "NOT_TAKEN_PART", "the receiver has not taken part yet: cancel the task instead";
    /// Nobody is working on the task.
    NotRunning = "NOT_RUNNING", "nobody is working on the task";

    /// Keys are never used twice.
    QuestionKeyUsed { key: QuestionKey } = "QUESTION_KEY_USED", "the key {key:?} was used before in this task";
    /// No such question is open.
    UnknownQuestion { key: QuestionKey } = "UNKNOWN_QUESTION", "no open question has the key {key:?}";
    NotPaused = "NOT_PAUSED", "the session is not paused";
    AlreadyPaused = "ALREADY_PAUSED", "the session is paused already";
    /// Nothing up to there can be handed to the assignee now.
    NotDeliverable = "NOT_DELIVERABLE", "no order up to there is deliverable now";

    /// RFC-MACP-0010 §5 rule 1.
    HandoffIdUsed { handoff: HandoffId } = "HANDOFF_ID_USED", "an offer with the id {handoff:?} exists already";
    /// RFC-MACP-0010 §5 rule 2.
    UnknownHandoff { handoff: HandoffId } = "UNKNOWN_HANDOFF", "there is no offer with the id {handoff:?}";
    /// RFC-MACP-0010 §5 rule 5.
    OfferOutstanding = "OFFER_OUTSTANDING", "an offer is still waiting for its answer";
    /// RFC-MACP-0010 §5 rules 4 and 5.
    OfferAccepted = "OFFER_ACCEPTED", "an offer has been accepted: there can be no other";
    /// The offer was answered.
    OfferClosed { handoff: HandoffId } = "OFFER_CLOSED", "the offer {handoff:?} was answered already";
    /// RFC-MACP-0010 §5 rule 3a.
    TargetDeclined { agent: AgentId } = "TARGET_DECLINED", "{agent} has declined an offer in this session";
    /// Nothing to commit yet.
    NotAnswered = "NOT_ANSWERED", "there is nothing to commit: no offer has been answered";

    /// The versions of a commitment are not those that the session is bound to.
    VersionMismatch { what: &'static str, expected: Text, found: Text } = "VERSION_MISMATCH", "expected {what} {expected:?}, found {found:?}";
    /// RFC-MACP-0001 §7.3: the action says one thing, the outcome another.
    OutcomeMismatch { action: Text } = "OUTCOME_MISMATCH", "the action {action:?} does not agree with outcome_positive";
    /// The policy is not one.
    PolicyInvalid { what: Text } = "POLICY_INVALID", "{what}";
    /// No policy has that id.
    PolicyUnknown { id: Text } = "POLICY_UNKNOWN", "there is no policy {id:?}";

    /// It was proposed, and takes effect only once somebody approves it.
    ApprovalNeeded { proposal: Seq } = "APPROVAL_NEEDED", "this needs an approval and was proposed as proposal {proposal}: send it again once that is approved";
    /// An approver has said no to the very same.
    NotApproved { proposal: Seq, how: &'static str, words: Text } = "NOT_APPROVED", "proposal {proposal} of the same was decided ({how}): {words}";
    /// Somebody else decides about it.
    NotApprover { agent: AgentId } = "NOT_APPROVER", "{agent} may not decide about this proposal: expected one of its approvers, and nobody decides about its own";
    /// There is no such proposal, or another took its place.
    NoProposal { proposal: Seq } = "NO_PROPOSAL", "there is no proposal {proposal} to decide about: it took effect, or another took its place";
    /// Somebody was first.
    AlreadyDecided { by: AgentId, how: &'static str } = "ALREADY_DECIDED", "{by} has decided about this proposal: {how}";

    /// A bound of a budget is reached.
    BudgetSpent { what: Text } = "BUDGET_SPENT", "{what}";

    // Limits.
    PayloadTooLarge { limit: usize, found: usize } = "PAYLOAD_TOO_LARGE", "expected at most {limit} bytes, found {found}";
    TooManyParticipants { limit: usize, found: usize } = "TOO_MANY_PARTICIPANTS", "expected at most {limit} participants, found {found}";
    TooManySteers { limit: usize } = "TOO_MANY_STEERS", "{limit} steers are waiting for the assignee: no more are taken until it reaches a safe point";
    TooManyQuestions { limit: usize } = "TOO_MANY_QUESTIONS", "at most {limit} questions may be open at once";
    TooManyMessages { limit: usize } = "TOO_MANY_MESSAGES", "the conversation has {limit} messages and takes no more";
    TooManyChildren { limit: usize } = "TOO_MANY_CHILDREN", "the task has {limit} subtasks and takes no more";
    TooManyOffers { limit: usize } = "TOO_MANY_OFFERS", "the session has seen {limit} offers and takes no more";
    TooManyProposals { limit: usize } = "TOO_MANY_PROPOSALS", "{limit} proposals in a row took no effect: no more are taken";
    LogFull { limit: u64, unit: &'static str } = "LOG_FULL", "the session's log is full: it holds at most {limit} {unit}; the session can still be cancelled, reported or committed";
    /// Kept by the engine.
    TooManySessions { limit: u64 } = "TOO_MANY_SESSIONS", "the agent has {limit} open sessions and may start no more";
    /// Kept by the engine: try again later.
    Busy = "BUSY", "too many commands are waiting: try again later";
}

/// How many characters of a field a message shows: what a client sends may be as long as a payload.
const SHOWN_CHARS_MAX: usize = 256;

/// A text, or its beginning and an ellipsis if it is longer than so many characters.
pub fn cut(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A field as a message shows it.
fn shown(field: &impl ToString) -> String {
    cut(&field.to_string(), SHOWN_CHARS_MAX).into_owned()
}

impl Refusal {
    /// A refusal of something malformed.
    pub fn invalid(what: impl Into<Text>) -> Refusal {
        Refusal::Invalid { what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_a_short_one_is_left() {
        assert_eq!(cut("", 0), "");
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äöü…");
        assert_eq!(cut("ab", 0), "…");
    }

    #[test]
    fn a_message_shows_only_the_beginning_of_what_a_client_sent() {
        let long = "ä".repeat(100_000);
        let text = || Text::from(long.as_str());
        for refusal in [
            Refusal::invalid(format!("expected a hash, found {long}")),
            Refusal::VersionMismatch { what: "mode_version", expected: Text::from("1.0.0"), found: text() },
            Refusal::WrongTask { expected: text(), found: text() },
            Refusal::OutcomeMismatch { action: text() },
            Refusal::PolicyUnknown { id: text() },
            Refusal::UnknownQuestion { key: QuestionKey::from(long.as_str()) },
            Refusal::UnknownHandoff { handoff: HandoffId::from(long.as_str()) },
            Refusal::NotParticipant { agent: AgentId::from(long.as_str()) },
        ] {
            let message = refusal.to_string();
            assert!(message.chars().count() < 2 * SHOWN_CHARS_MAX + 100, "{}", refusal.code());
            assert!(message.contains('…'), "{}", refusal.code());
        }
        let short = Refusal::WrongTask { expected: Text::from("t1"), found: Text::from("t2") };
        assert_eq!(short.to_string(), "expected task id \"t1\", found \"t2\"");
    }
}
