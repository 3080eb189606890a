//! From an event to an envelope: what a MACP reader of the session sees. The same event always gives the same bytes.

use handover_desk::payload;
use handover_kernel::command::{Failure, ModeKind, Need, Progress};
use handover_kernel::commitment::Commitment;
use handover_kernel::id::Author;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{Event, Face, Fact, Session, Text};
use prost::Message;

use super::admit::{AUTH_REQUIRED, INPUT_REQUIRED, MACP_VERSION, mode_name};
use super::proto::v1::{
    CommitmentPayload, CommitmentRef, Envelope, ParticipantActivity, SessionMetadata, SessionStartPayload,
    SessionState,
};
use super::proto::{handoff, task};

/// A deadline that is none: ten years after the start.
const NO_DEADLINE_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

/// What is needed of a session to show its events.
pub struct Frame<'a> {
    /// The session's id.
    pub session_id: &'a str,
    /// What it is about.
    pub mode: ModeKind,
    /// The requester's name for its task.
    pub task: Text,
}

impl<'a> Frame<'a> {
    /// Of a session.
    pub fn of(session: &'a Session) -> Frame<'a> {
        let request = session.task().and_then(|task| task.phase.request());
        Frame {
            session_id: session.binding.id.as_str(),
            mode: session.kind(),
            task: request.map_or_else(Text::default, |request| request.task.clone()),
        }
    }
}

/// The envelope of an event, if it is one.
pub fn envelope(frame: &Frame<'_>, event: &Event) -> Option<Envelope> {
    event.ordinal?;
    let sender = match &event.author {
        Author::Agent(agent) => agent.to_string(),
        Author::Runtime => String::new(),
    };
    let (message_type, payload) = message(frame, event, &sender)?;
    // What came in over MACP goes out as it came; what came from elsewhere is called by its place.
    let own = event.face == Face::Macp;
    let implicit = matches!(event.fact, Fact::OfferAccepted { implicit: true, .. });
    let message_id = match &event.id {
        Some(id) if implicit => id.to_string(),
        Some(_) | None => event.message_id().to_string(),
    };
    // Whoever replays a start derives the deadline that it has here.
    let sent_at = if let Fact::Started(started) = &event.fact {
        started.base
    } else {
        event.sent_at.unwrap_or(event.at)
    };
    let payload = match &event.verbatim {
        Some(bytes) if own => bytes.to_vec(),
        Some(_) | None => payload,
    };
    Some(Envelope {
        macp_version: MACP_VERSION.to_owned(),
        mode: mode_name(frame.mode).to_owned(),
        message_type: message_type.to_owned(),
        message_id,
        session_id: frame.session_id.to_owned(),
        sender,
        timestamp_unix_ms: signed(sent_at.0),
        payload,
    })
}

fn message(frame: &Frame<'_>, event: &Event, sender: &str) -> Option<(&'static str, Vec<u8>)> {
    let (task_id, assignee) = (frame.task.to_string(), sender.to_owned());
    Some(match &event.fact {
        Fact::Started(started) => {
            let start = &started.start;
            let payload = SessionStartPayload {
                intent: start.intent.to_string(),
                participants: start.participants.iter().map(ToString::to_string).collect(),
                mode_version: start.mode_version.to_string(),
                configuration_version: start.configuration_version.to_string(),
                policy_version: start.policy_version.to_string(),
                ttl_ms: signed(start.ttl_ms.unwrap_or(NO_DEADLINE_MS)),
                roots: Vec::new(),
                context_id: start.context_id.to_string(),
                extensions: Default::default(),
                max_suspend_ms: signed(start.charter.suspension_cap_ms),
            };
            ("SessionStart", payload.encode_to_vec())
        }
        Fact::Requested(request) => {
            let payload = task::TaskRequestPayload {
                task_id: request.task.to_string(),
                title: request.title.to_string(),
                instructions: request.instructions.to_string(),
                requested_assignee: request.assignee.as_ref().map_or_else(String::new, ToString::to_string),
                input: request.input.to_vec(),
                deadline_unix_ms: request.wanted_by.map_or(0, |at| signed(at.0)),
            };
            ("TaskRequest", payload.encode_to_vec())
        }
        Fact::Accepted { reason, .. } => {
            let payload = task::TaskAcceptPayload { task_id, assignee, reason: reason.to_string() };
            ("TaskAccept", payload.encode_to_vec())
        }
        Fact::Declined { reason, .. } => {
            let payload = task::TaskRejectPayload { task_id, assignee, reason: reason.to_string() };
            ("TaskReject", payload.encode_to_vec())
        }
        Fact::Updated { progress, .. } => ("TaskUpdate", update(task_id, progress, &progress.status)),
        Fact::Asked { progress, questions } => {
            let mut asked = progress.clone();
            if let Some(first) = questions.first() {
                asked.message = first.text.clone();
                asked.partial = first.schema.clone();
            }
            let permission = questions.iter().any(|question| question.need == Need::Authorization);
            let status = if permission { AUTH_REQUIRED } else { INPUT_REQUIRED };
            ("TaskUpdate", update(task_id, &asked, status))
        }
        Fact::Said { body, awaits_reply, .. } => {
            let message = Text::from(payload::words(body).unwrap_or_default());
            let said = Progress { message, partial: body.clone(), ..Progress::default() };
            ("TaskUpdate", update(task_id, &said, if *awaits_reply { INPUT_REQUIRED } else { "message" }))
        }
        Fact::Completed { output, summary } => {
            let (output, summary) = (output.to_vec(), summary.to_string());
            let payload = task::TaskCompletePayload { task_id, assignee, output, summary };
            ("TaskComplete", payload.encode_to_vec())
        }
        Fact::Failed(failure) => ("TaskFail", fail(task_id, assignee, failure)),
        Fact::Committed(commitment) => ("Commitment", commit(commitment).encode_to_vec()),
        Fact::Offered { handoff, target, scope, reason } => {
            let payload = handoff::HandoffOfferPayload {
                handoff_id: handoff.to_string(),
                target_participant: target.to_string(),
                scope: scope.to_string(),
                reason: reason.to_string(),
            };
            ("HandoffOffer", payload.encode_to_vec())
        }
        Fact::ContextAdded { handoff, content_type, body } => {
            let payload = handoff::HandoffContextPayload {
                handoff_id: handoff.to_string(),
                content_type: content_type.to_string(),
                context: body.to_vec(),
            };
            ("HandoffContext", payload.encode_to_vec())
        }
        Fact::OfferAccepted { handoff, reason, implicit } => {
            let payload = handoff::HandoffAcceptPayload {
                handoff_id: handoff.to_string(),
                accepted_by: assignee,
                reason: reason.to_string(),
                implicit: *implicit,
            };
            ("HandoffAccept", payload.encode_to_vec())
        }
        Fact::OfferDeclined { handoff, reason } => {
            let payload = handoff::HandoffDeclinePayload {
                handoff_id: handoff.to_string(),
                declined_by: assignee,
                reason: reason.to_string(),
            };
            ("HandoffDecline", payload.encode_to_vec())
        }
        Fact::Cancelled { .. }
        | Fact::Suspended { .. }
        | Fact::Resumed { .. }
        | Fact::Expired { .. }
        | Fact::ErrandSettled { .. }
        | Fact::Checkpointed
        | Fact::Delivered { .. }
        | Fact::Answered { .. }
        | Fact::Steered { .. }
        | Fact::PauseRequested { .. }
        | Fact::Read { .. }
        | Fact::Acknowledged
        | Fact::CheckInMissed { .. }
        | Fact::FellSilent { .. }
        | Fact::CycleFound { .. }
        | Fact::Proposed { .. }
        | Fact::Decided { .. }
        | Fact::KeySet { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Overspent { .. }
        | Fact::ChildAdded { .. } => return None,
    })
}

fn update(task_id: String, progress: &Progress, status: &str) -> Vec<u8> {
    task::TaskUpdatePayload {
        task_id,
        status: status.to_owned(),
        progress: progress.done.unwrap_or_default(),
        message: progress.message.to_string(),
        partial_output: progress.partial.to_vec(),
    }
    .encode_to_vec()
}

fn fail(task_id: String, assignee: String, failure: &Failure) -> Vec<u8> {
    task::TaskFailPayload {
        task_id,
        assignee,
        error_code: failure.code.to_string(),
        reason: failure.reason.to_string(),
        retryable: failure.retryable,
    }
    .encode_to_vec()
}

fn commit(commitment: &Commitment) -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: commitment.commitment.to_string(),
        action: commitment.action.to_string(),
        authority_scope: commitment.scope.to_string(),
        reason: commitment.reason.to_string(),
        mode_version: commitment.mode_version.to_string(),
        policy_version: commitment.policy_version.to_string(),
        configuration_version: commitment.configuration_version.to_string(),
        outcome_positive: commitment.positive,
        supersedes: commitment.supersedes.as_ref().map(|supersedes| CommitmentRef {
            session_id: supersedes.session.to_string(),
            commitment_hash: supersedes.hash.to_string(),
        }),
    }
}

/// The state that MACP knows for where a session stands.
pub fn state(standing: Standing) -> SessionState {
    match standing {
        Standing::Pending
        | Standing::Requested
        | Standing::Working
        | Standing::WaitingInput
        | Standing::WaitingAuthorization
        | Standing::WaitingReply
        | Standing::ReportedComplete
        | Standing::ReportedFail => SessionState::Open,
        Standing::Suspended => SessionState::Suspended,
        Standing::ResolvedPositive | Standing::ResolvedNegative => SessionState::Resolved,
        Standing::Expired => SessionState::Expired,
        Standing::Cancelled => SessionState::Cancelled,
    }
}

/// What `GetSession` and the lists say of a session.
pub fn metadata(session: &Session) -> SessionMetadata {
    let binding = &session.binding;
    let expires_at = match (&session.lifecycle, session.deadline) {
        (Lifecycle::Suspended { since, banked_ms: Some(banked), .. }, _) => since.0 + banked,
        (_, Some(deadline)) => deadline.0,
        (_, None) => binding.base.0 + NO_DEADLINE_MS,
    };
    let activity = session.activity.iter().map(|(agent, activity)| ParticipantActivity {
        participant_id: agent.to_string(),
        last_message_at_unix_ms: signed(activity.last_at.0),
        message_count: activity.messages,
    });
    SessionMetadata {
        session_id: binding.id.to_string(),
        mode: mode_name(session.kind()).to_owned(),
        state: state(session.standing()).into(),
        started_at_unix_ms: signed(binding.created_at.0),
        expires_at_unix_ms: signed(expires_at),
        mode_version: binding.versions.mode.to_string(),
        configuration_version: binding.versions.configuration.to_string(),
        policy_version: binding.versions.policy.to_string(),
        participants: binding.participants.iter().map(ToString::to_string).collect(),
        participant_activity: activity.collect(),
        initiator: binding.requester.to_string(),
        context_id: binding.context_id.to_string(),
        extension_keys: binding.extension_keys.iter().map(ToString::to_string).collect(),
    }
}

/// As protobuf's signed integer.
pub fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use handover_kernel::{AgentId, HandoffId, IdScope, MessageId, Ordinal, Seq, Timestamp};

    use super::*;

    fn frame() -> Frame<'static> {
        Frame { session_id: "s", mode: ModeKind::Task, task: Text::from("t1") }
    }

    fn event(face: Face, fact: Fact) -> Event {
        Event {
            seq: Seq(7),
            at: Timestamp(1234),
            author: Author::Agent(AgentId::from("worker")),
            face,
            ordinal: Some(Ordinal(3)),
            id: Some(MessageId::from("mine")),
            id_scope: if face == Face::Macp { IdScope::Session } else { IdScope::Sender },
            verbatim: Some(Arc::from(&b"as it came"[..])),
            sent_at: Some(Timestamp(1200)),
            trace: None,
            fact,
        }
    }

    fn updated() -> Fact {
        let progress = Progress { status: Text::from("going"), done: None, ..Progress::default() };
        Fact::Updated { progress, withdrawn: Vec::new() }
    }

    #[test]
    fn what_came_over_macp_goes_out_as_it_came() {
        let shown = envelope(&frame(), &event(Face::Macp, updated())).unwrap();
        assert_eq!((shown.message_type.as_str(), shown.message_id.as_str()), ("TaskUpdate", "mine"));
        assert_eq!((shown.payload.as_slice(), shown.sender.as_str()), (&b"as it came"[..], "worker"));
        assert_eq!((shown.mode.as_str(), shown.session_id.as_str()), ("macp.mode.task.v1", "s"));
        assert_eq!((shown.macp_version.as_str(), shown.timestamp_unix_ms), ("1.0", 1200));
    }

    #[test]
    fn what_came_from_another_face_is_called_by_its_place_and_told_in_macp_words() {
        for face in [Face::Mcp, Face::Grid, Face::Console, Face::Cli] {
            let shown = envelope(&frame(), &event(face, updated())).unwrap();
            assert_eq!(shown.message_id, "handover:7");
            let payload = task::TaskUpdatePayload::decode(shown.payload.as_slice()).unwrap();
            assert_eq!((payload.task_id.as_str(), payload.status.as_str()), ("t1", "going"));
            assert_eq!(payload.progress, 0.0);
        }
    }

    #[test]
    fn a_message_without_an_id_is_called_by_its_place_and_one_without_a_time_has_that_of_its_acceptance() {
        let mut silent = event(Face::Macp, updated());
        silent.id = None;
        silent.sent_at = None;
        let shown = envelope(&frame(), &silent).unwrap();
        assert_eq!((shown.message_id.as_str(), shown.timestamp_unix_ms), ("handover:7", 1234));
    }

    #[test]
    fn an_implicit_accept_keeps_the_id_that_the_rfc_gives_it() {
        // RFC-MACP-0010 §5.1.
        let fact =
            Fact::OfferAccepted { handoff: HandoffId::from("h1"), reason: Text::default(), implicit: true };
        let mut accepted = event(Face::Runtime, fact);
        accepted.id = Some(MessageId::from("implicit-accept:h1"));
        accepted.verbatim = None;
        let frame = Frame { mode: ModeKind::Handoff, ..frame() };
        let shown = envelope(&frame, &accepted).unwrap();
        assert_eq!((shown.message_id.as_str(), shown.sender.as_str()), ("implicit-accept:h1", "worker"));
        let payload = handoff::HandoffAcceptPayload::decode(shown.payload.as_slice()).unwrap();
        assert_eq!((payload.accepted_by.as_str(), payload.implicit), ("worker", true));
    }

    #[test]
    fn what_has_no_ordinal_is_no_envelope() {
        let mut unplaced = event(Face::Macp, updated());
        unplaced.ordinal = None;
        assert_eq!(envelope(&frame(), &unplaced), None);
        let steered = event(Face::Macp, Fact::Steered { text: Text::from("left") });
        assert_eq!(envelope(&frame(), &steered), None);
    }

    #[test]
    fn a_time_beyond_protobuf_is_the_last_that_it_has() {
        assert_eq!(signed(u64::MAX), i64::MAX);
        assert_eq!(signed(5), 5);
    }
}
