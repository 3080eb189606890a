//! From an envelope to a command: the shape of what came over the wire, and nothing of what it means.

use std::borrow::Cow;
use std::sync::Arc;

use handover_kernel::charter::Charter;
use handover_kernel::command::{
    Act, CheckInTerms, Command, Failure, HandoffAct, ModeKind, Need, NewOffer, NewQuestion, Progress,
    RESERVED_PREFIXES, Request, Start, TaskAct,
};
use handover_kernel::commitment::{Commitment, Supersedes};
use handover_kernel::{AgentId, Blob, HandoffId, MessageId, Refusal, SessionId, Text, Timestamp, cut};
use prost::Message;
use tonic::Code;

use super::proto::v1::{CommitmentPayload, Envelope, SessionStartPayload};
use super::proto::{handoff, task};
use super::refused::Refused;
use handover_desk::delegate::MODE_VERSION;
use handover_desk::gate::Caller;
use handover_desk::id::{is_token, is_uuid};
use handover_desk::names::ID_BYTES_MAX;
use handover_desk::schema::Schema;

/// The version of the protocol.
pub const MACP_VERSION: &str = "1.0";
/// The name of Task Mode.
pub const TASK_MODE: &str = "macp.mode.task.v1";
/// The name of Handoff Mode.
pub const HANDOFF_MODE: &str = "macp.mode.handoff.v1";
/// What is told and kept nowhere.
pub const SIGNAL: &str = "Signal";
/// A message about how something goes on, which may name its session and mode, and is told as a signal is.
pub const PROGRESS: &str = "Progress";
/// The message that starts a session.
pub const SESSION_START: &str = "SessionStart";
/// The status of an update that asks a question.
pub const INPUT_REQUIRED: &str = "input_required";
/// The status of an update that asks for permission.
pub const AUTH_REQUIRED: &str = "auth_required";

/// What an envelope turned out to be.
#[derive(Debug)]
pub enum Admitted {
    /// A command for a session.
    Command(Box<Command>),
    /// A session start, whose policy is to be looked up.
    Start(Box<StartRequest>),
    /// For a session, and nothing that it could understand. The session may have more to say against it.
    Unreadable(Refused),
}

/// A session start without its charter.
#[derive(Debug)]
pub struct StartRequest {
    /// The cap on its suspension, where it sets one.
    pub suspension_cap_ms: Option<u64>,
    /// The command, with a charter that is to be replaced.
    pub command: Command,
}

/// The mode with this name.
pub fn mode(name: &str) -> Option<ModeKind> {
    match name {
        TASK_MODE => Some(ModeKind::Task),
        HANDOFF_MODE => Some(ModeKind::Handoff),
        _ => None,
    }
}

/// The name of a mode.
pub fn mode_name(mode: ModeKind) -> &'static str {
    match mode {
        ModeKind::Task => TASK_MODE,
        ModeKind::Handoff => HANDOFF_MODE,
    }
}

/// Whether an id is one that cannot be guessed: a lowercase UUID (v4 or v7), or at least 22 characters of base64url.
pub fn session_id(id: &str) -> Result<(), Refused> {
    let bytes = id.as_bytes();
    let good = if is_uuid(id) {
        let lowercase = !bytes.iter().any(u8::is_ascii_uppercase);
        lowercase && matches!(bytes[14], b'4' | b'7') && matches!(bytes[19], b'8' | b'9' | b'a' | b'b')
    } else {
        is_token(id)
    };
    if good {
        return Ok(());
    }
    let found = clip(id);
    let expected = "expected a lowercase UUID (v4 or v7) or 22 to 128 characters of base64url";
    Err(Refused::new("INVALID_SESSION_ID", Code::InvalidArgument, format!("{expected}, found {found:?}")))
}

/// Whether a message may be called so: not too long, and not in the space that the runtime keeps for itself.
pub fn message_id(id: &str) -> Result<(), Refused> {
    if id.is_empty() || id.len() > ID_BYTES_MAX {
        let found = id.len();
        return Err(Refused::invalid(format!(
            "expected a message_id of 1 to {ID_BYTES_MAX} bytes, found {found}"
        )));
    }
    match RESERVED_PREFIXES.into_iter().find(|prefix| id.starts_with(prefix)) {
        Some(prefix) => Err(Refused::from(Refusal::ReservedId { prefix })),
        None => Ok(()),
    }
}

/// Whether an envelope is one: it speaks our version, and has all that one of its type has. Then, whether it is of the agent
/// that sends it.
pub fn origin(caller: &Caller, envelope: &Envelope) -> Result<(), Refused> {
    if envelope.macp_version != MACP_VERSION {
        let found = clip(&envelope.macp_version);
        let message = format!("expected macp_version {MACP_VERSION:?}, found {found:?}");
        return Err(Refused::new("UNSUPPORTED_PROTOCOL_VERSION", Code::InvalidArgument, message));
    }
    for (name, value) in [("message_type", &envelope.message_type), ("message_id", &envelope.message_id)] {
        if value.is_empty() {
            return Err(Refused::invalid(format!("expected a {name}, found nothing")));
        }
    }
    let (of_session, of_mode) = (!envelope.session_id.is_empty(), !envelope.mode.trim().is_empty());
    let expected = match envelope.message_type.as_str() {
        // RFC-MACP-0001 §6: a signal is of no session, and may name one in its payload.
        SIGNAL if of_session || of_mode => "a signal without session_id and mode, found one of them",
        PROGRESS if of_session != of_mode => {
            "Progress with both session_id and mode or with neither, found one"
        }
        SIGNAL | PROGRESS => "",
        _ if !of_session => "a session_id, found nothing",
        _ if !of_mode => "a mode, found nothing",
        _ => "",
    };
    if !expected.is_empty() {
        return Err(Refused::invalid(format!("expected {expected}")));
    }
    if !envelope.sender.is_empty() && envelope.sender != caller.agent.as_str() {
        let message = format!("expected the authenticated sender {}, found another", caller.agent);
        return Err(Refused::new("UNAUTHENTICATED", Code::Unauthenticated, message));
    }
    Ok(())
}

/// Turn an envelope into a command of this agent.
pub fn admit(caller: &Caller, envelope: &Envelope) -> Result<Admitted, Refused> {
    origin(caller, envelope)?;
    let starts = envelope.message_type == SESSION_START;
    if starts {
        session_id(&envelope.session_id)?;
    }
    message_id(&envelope.message_id)?;
    let Some(mode) = mode(&envelope.mode) else {
        let message = format!("expected {TASK_MODE} or {HANDOFF_MODE}, found {:?}", clip(&envelope.mode));
        return match starts {
            true => Err(Refused::new("MODE_NOT_SUPPORTED", Code::InvalidArgument, message)),
            // Of a session that is there it is the wrong one.
            false => Ok(Admitted::Unreadable(Refused::invalid(message))),
        };
    };
    let mut command = caller.command(Act::Tick);
    command.id = Some(MessageId::from(envelope.message_id.as_str()));
    command.verbatim = Some(Arc::from(envelope.payload.as_slice()));
    command.mode = Some(mode);
    let sent_at = u64::try_from(envelope.timestamp_unix_ms).ok().filter(|at| *at > 0).map(Timestamp);
    if starts {
        return start(mode, envelope, sent_at, command).map(|start| Admitted::Start(Box::new(start)));
    }
    command.sent_at = sent_at;
    Ok(match act(mode, &envelope.message_type, &envelope.payload) {
        Ok(act) => Admitted::Command(Box::new(Command { act, ..command })),
        Err(unreadable) => Admitted::Unreadable(unreadable),
    })
}

fn start(
    mode: ModeKind,
    envelope: &Envelope,
    sent_at: Option<Timestamp>,
    mut command: Command,
) -> Result<StartRequest, Refused> {
    let payload: SessionStartPayload = decode("SessionStart", &envelope.payload)?;
    let Some(ttl_ms) = u64::try_from(payload.ttl_ms).ok().filter(|ttl| *ttl > 0) else {
        return Err(Refused::invalid(format!("expected ttl_ms of 1 or more, found {}", payload.ttl_ms)));
    };
    if payload.max_suspend_ms < 0 {
        let found = payload.max_suspend_ms;
        return Err(Refused::invalid(format!("expected max_suspend_ms of 0 or more, found {found}")));
    }
    // RFC-MACP-0002 §14. A start without a version lacks a field, which is said where every field is looked at.
    if !payload.mode_version.trim().is_empty() && payload.mode_version != MODE_VERSION {
        let (expected, found) = (Text::from(MODE_VERSION), Text::from(payload.mode_version));
        return Err(Refused::from(Refusal::VersionMismatch { what: "mode_version", expected, found }));
    }
    for participant in &payload.participants {
        id("a participant", participant)?;
    }
    let policy = if payload.policy_version.is_empty() { "policy.default" } else { &payload.policy_version };
    let mut extension_keys: Vec<Text> =
        payload.extensions.keys().map(|key| Text::from(key.as_str())).collect();
    extension_keys.sort();
    command.act = Act::Start(Box::new(Start {
        mode,
        participants: payload.participants.iter().map(|agent| AgentId::from(agent.as_str())).collect(),
        charter: Charter::macp(),
        mode_version: Text::from(payload.mode_version),
        configuration_version: Text::from(payload.configuration_version),
        policy_version: Text::from(policy),
        ttl_ms: Some(ttl_ms),
        sent_at,
        intent: Text::from(payload.intent),
        context_id: Text::from(payload.context_id),
        extension_keys,
        parent: None,
        contract: None,
        under: None,
    }));
    let suspension_cap_ms = u64::try_from(payload.max_suspend_ms).ok().filter(|cap| *cap > 0);
    Ok(StartRequest { suspension_cap_ms, command })
}

fn act(mode: ModeKind, message_type: &str, payload: &[u8]) -> Result<Act, Refused> {
    match (mode, message_type) {
        (_, "Commitment") => commitment(payload),
        (_, "SessionCancel" | "SessionSuspend" | "SessionResume") => Err(Refused::invalid(format!(
            "only the runtime writes {message_type}: call the RPC of that name"
        ))),
        (ModeKind::Task, name) => task_act(name, payload).map(Act::Task),
        (ModeKind::Handoff, name) => handoff_act(name, payload).map(Act::Handoff),
    }
}

fn task_act(name: &str, payload: &[u8]) -> Result<TaskAct, Refused> {
    Ok(match name {
        "TaskRequest" => {
            let payload: task::TaskRequestPayload = decode(name, payload)?;
            TaskAct::Request(Box::new(Request {
                task: Text::from(payload.task_id),
                title: Text::from(payload.title),
                instructions: Text::from(payload.instructions),
                assignee: named(&payload.requested_assignee),
                input: Blob::from(payload.input),
                // Before the epoch is never.
                wanted_by: u64::try_from(payload.deadline_unix_ms).ok().filter(|at| *at > 0).map(Timestamp),
                check_in: CheckInTerms::default(),
                session_key: None,
            }))
        }
        "TaskAccept" => {
            let payload: task::TaskAcceptPayload = decode(name, payload)?;
            TaskAct::Accept {
                task: Some(Text::from(payload.task_id)),
                assignee: named(&payload.assignee),
                reason: Text::from(payload.reason),
            }
        }
        "TaskReject" => {
            let payload: task::TaskRejectPayload = decode(name, payload)?;
            TaskAct::Decline {
                task: Some(Text::from(payload.task_id)),
                assignee: named(&payload.assignee),
                reason: Text::from(payload.reason),
            }
        }
        "TaskUpdate" => update(decode(name, payload)?),
        "TaskComplete" => {
            let payload: task::TaskCompletePayload = decode(name, payload)?;
            TaskAct::Complete {
                task: Some(Text::from(payload.task_id)),
                assignee: named(&payload.assignee),
                output: Blob::from(payload.output),
                summary: Text::from(payload.summary),
            }
        }
        "TaskFail" => {
            let payload: task::TaskFailPayload = decode(name, payload)?;
            TaskAct::Fail {
                task: Some(Text::from(payload.task_id)),
                assignee: named(&payload.assignee),
                failure: Failure {
                    code: Text::from(payload.error_code),
                    reason: Text::from(payload.reason),
                    retryable: payload.retryable,
                    protocol_error: false,
                    output: Blob::default(),
                },
            }
        }
        other => return Err(unknown_type(other, TASK_MODE)),
    })
}

/// An update whose status is `input_required` or `auth_required` asks: the question is its message, and its output is a JSON Schema for the
/// answer if it is one. Bytes that are no schema are what there is already, and the question has none.
fn update(payload: task::TaskUpdatePayload) -> TaskAct {
    let task = Some(Text::from(payload.task_id));
    let message = Text::from(payload.message);
    let partial = Blob::from(payload.partial_output);
    let need = match payload.status.as_str() {
        INPUT_REQUIRED => Some(Need::Input),
        AUTH_REQUIRED => Some(Need::Authorization),
        _ => None,
    };
    let progress = Progress {
        status: Text::from(payload.status),
        // Nothing and none are the same on this wire, and a question is no step back.
        done: Some(payload.progress).filter(|done| need.is_none() || *done != 0.0),
        message: message.clone(),
        partial: partial.clone(),
    };
    if let Some(need) = need {
        let schema = if Schema::is_one(&partial) { partial } else { Blob::default() };
        let question = NewQuestion { key: None, need, text: message, schema, wire: None };
        return TaskAct::Ask { task, questions: vec![question], progress };
    }
    TaskAct::Update { task, progress, withdraws: true }
}

fn handoff_act(name: &str, payload: &[u8]) -> Result<HandoffAct, Refused> {
    Ok(match name {
        "HandoffOffer" => {
            let payload: handoff::HandoffOfferPayload = decode(name, payload)?;
            HandoffAct::Offer(NewOffer {
                handoff: HandoffId::from(payload.handoff_id),
                target: AgentId::from(payload.target_participant),
                scope: Text::from(payload.scope),
                reason: Text::from(payload.reason),
                context: None,
            })
        }
        "HandoffContext" => {
            let payload: handoff::HandoffContextPayload = decode(name, payload)?;
            HandoffAct::Context {
                handoff: HandoffId::from(payload.handoff_id),
                content_type: Text::from(payload.content_type),
                body: Blob::from(payload.context),
            }
        }
        "HandoffAccept" => {
            let payload: handoff::HandoffAcceptPayload = decode(name, payload)?;
            HandoffAct::Accept {
                handoff: HandoffId::from(payload.handoff_id),
                by: named(&payload.accepted_by),
                reason: Text::from(payload.reason),
                implicit: payload.implicit,
            }
        }
        "HandoffDecline" => {
            let payload: handoff::HandoffDeclinePayload = decode(name, payload)?;
            HandoffAct::Decline {
                handoff: HandoffId::from(payload.handoff_id),
                by: named(&payload.declined_by),
                reason: Text::from(payload.reason),
            }
        }
        other => return Err(unknown_type(other, HANDOFF_MODE)),
    })
}

fn commitment(payload: &[u8]) -> Result<Act, Refused> {
    let payload: CommitmentPayload = decode("Commitment", payload)?;
    Ok(Act::Commit(Box::new(Commitment {
        commitment: Text::from(payload.commitment_id),
        action: Text::from(payload.action),
        scope: Text::from(payload.authority_scope),
        reason: Text::from(payload.reason),
        mode_version: Text::from(payload.mode_version),
        policy_version: Text::from(payload.policy_version),
        configuration_version: Text::from(payload.configuration_version),
        positive: payload.outcome_positive,
        supersedes: payload.supersedes.map(|supersedes| Supersedes {
            session: SessionId::from(supersedes.session_id),
            hash: Text::from(supersedes.commitment_hash),
        }),
    })))
}

pub(super) fn decode<M: Message + Default>(name: &str, payload: &[u8]) -> Result<M, Refused> {
    M::decode(payload)
        .map_err(|error| Refused::invalid(format!("expected the payload of a {name}, found: {error}")))
}

fn unknown_type(found: &str, mode: &str) -> Refused {
    Refused::invalid(format!("expected a message type of {mode}, found {:?}", clip(found)))
}

fn id(what: &str, text: &str) -> Result<(), Refused> {
    if text.is_empty() || text.len() > ID_BYTES_MAX {
        let found = text.len();
        return Err(Refused::invalid(format!(
            "expected the id of {what} with 1 to {ID_BYTES_MAX} bytes, found {found}"
        )));
    }
    Ok(())
}

fn named(agent: &str) -> Option<AgentId> {
    (!agent.is_empty()).then(|| AgentId::from(agent))
}

/// A text of the wire as a message shows it.
pub(super) fn clip(text: &str) -> Cow<'_, str> {
    cut(text, 64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SESSION: &str = "the-session-of-these-tests";
    const TYPES: [&str; 13] = [
        "SessionStart",
        "TaskRequest",
        "TaskAccept",
        "TaskReject",
        "TaskUpdate",
        "TaskComplete",
        "TaskFail",
        "HandoffOffer",
        "HandoffContext",
        "HandoffAccept",
        "HandoffDecline",
        "Commitment",
        "SessionCancel",
    ];

    fn caller() -> Caller {
        let identity = handover_desk::identity::Identity::Development;
        Caller::new(identity.authenticate(Some("planner")).unwrap(), handover_kernel::Face::Macp)
    }

    fn envelope(mode: &str, message_type: &str, payload: Vec<u8>) -> Envelope {
        Envelope {
            macp_version: MACP_VERSION.to_owned(),
            mode: mode.to_owned(),
            message_type: message_type.to_owned(),
            message_id: "m1".to_owned(),
            session_id: SESSION.to_owned(),
            sender: String::new(),
            timestamp_unix_ms: 0,
            payload,
        }
    }

    fn admitted_act(payload: task::TaskUpdatePayload) -> Act {
        match admit(&caller(), &envelope(TASK_MODE, "TaskUpdate", payload.encode_to_vec())).unwrap() {
            Admitted::Command(command) => command.act,
            Admitted::Start(..) | Admitted::Unreadable(_) => panic!("expected a command"),
        }
    }

    #[test]
    fn unguessable_session_ids_are_taken() {
        for good in [
            "0b0c9e5a-7c1b-4f7e-9a49-3f6c2b0b8d11",
            "01932f6e-5c1b-7f7e-8a49-3f6c2b0b8d11",
            "AbCdEfGhIjKlMnOpQrSt-_",
            &"a".repeat(128),
        ] {
            session_id(good).unwrap();
        }
    }

    #[test]
    fn a_mode_has_one_name() {
        for kind in [ModeKind::Task, ModeKind::Handoff] {
            assert_eq!(mode(mode_name(kind)), Some(kind));
        }
        assert_eq!(mode(""), None);
    }

    #[test]
    fn an_update_asks_only_if_its_status_says_so() {
        let asks = task::TaskUpdatePayload {
            status: INPUT_REQUIRED.to_owned(),
            message: "left?".to_owned(),
            partial_output: b"{}".to_vec(),
            ..Default::default()
        };
        let Act::Task(TaskAct::Ask { questions, .. }) = admitted_act(asks) else {
            panic!("expected a question")
        };
        assert_eq!((&*questions[0].text, &*questions[0].schema), ("left?", &b"{}"[..]));
        assert_eq!(questions[0].key, None);

        let tells = task::TaskUpdatePayload { status: "INPUT_REQUIRED".to_owned(), ..Default::default() };
        assert!(matches!(admitted_act(tells), Act::Task(TaskAct::Update { withdraws: true, .. })));
    }

    #[test]
    fn a_start_names_the_default_policy_and_sorts_its_extension_keys() {
        let payload = SessionStartPayload {
            participants: vec!["worker".to_owned()],
            ttl_ms: 1,
            max_suspend_ms: 5,
            extensions: ["b", "c", "a"].map(|key| (key.to_owned(), Vec::new())).into_iter().collect(),
            ..Default::default()
        };
        let started = envelope(TASK_MODE, "SessionStart", payload.encode_to_vec());
        let Admitted::Start(request) = admit(&caller(), &started).unwrap() else {
            panic!("expected a start")
        };
        assert_eq!(request.suspension_cap_ms, Some(5));
        assert_eq!(request.command.verbatim.as_deref(), Some(started.payload.as_slice()));
        let Act::Start(start) = request.command.act else { panic!("expected a start") };
        let keys: Vec<&str> = start.extension_keys.iter().map(|key| &**key).collect();
        assert_eq!((keys, start.sent_at), (vec!["a", "b", "c"], None));
        assert_eq!(&*start.policy_version, "policy.default");
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(
            handoff in any::<bool>(),
            message_type in prop::sample::select(&TYPES[..]),
            payload in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mode = if handoff { HANDOFF_MODE } else { TASK_MODE };
            match admit(&caller(), &envelope(mode, message_type, payload)) {
                Ok(Admitted::Command(_) | Admitted::Start(_)) => {}
                Ok(Admitted::Unreadable(refused)) | Err(refused) => {
                    prop_assert_eq!(refused.code, "INVALID_ENVELOPE");
                }
            }
        }

        #[test]
        fn any_session_id_is_taken_or_refused(id in "\\PC{0,140}") {
            if let Err(refused) = session_id(&id) {
                prop_assert_eq!(refused.code, "INVALID_SESSION_ID");
            } else {
                prop_assert!(id.len() >= 22 && id.is_ascii());
            }
        }
    }
}
