//! What must hold whatever bytes come from outside. The fuzz targets and the test that replays the corpus share it: a
//! check that fails panics.

use std::sync::OnceLock;

use handover_desk::gate::Caller;
use handover_desk::identity::Identity;
use handover_desk::timeline;
use handover_engine::codec;
use handover_engine::view;
use handover_kernel::command::Act;
use handover_kernel::session::apply;
use handover_kernel::{
    AgentId, Author, Command, Event, Face, Limits, Session, SessionId, Text, Timestamp, step,
};
use handover_server::face::macp::admit::{Admitted, HANDOFF_MODE, MACP_VERSION, TASK_MODE, admit};
use handover_server::face::macp::proto::v1::{CommitmentPayload, Envelope, SessionStartPayload};
use handover_server::face::macp::proto::{handoff, task};
use handover_server::face::macp::refused::Refused;
use handover_server::face::macp::render::{self, Frame};
use prost::Message;

/// How far bytes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// They are not even a message.
    Nothing,
    /// They are a message, of the wrong shape.
    Decoded,
    /// They are a command that every session refused.
    Admitted,
    /// They are a command that some session accepted, or an event.
    Accepted,
}

/// The session that commands are put to.
const SESSION: &str = "5f3c1d2e-8a47-4b6c-9d10-3e2f4a5b6c7d";
/// Who starts it, and who works in it.
pub const REQUESTER: &str = "planner";
pub const WORKER: &str = "worker";
/// When it starts, and when a command reaches it: nothing is due in between.
const STARTED_AT: Timestamp = Timestamp(1_767_225_600_000);
const NOW: Timestamp = Timestamp(1_767_225_660_000);

/// Every message type of every mode.
pub const KINDS: [(&str, &str); 14] = [
    (TASK_MODE, "SessionStart"),
    (TASK_MODE, "TaskRequest"),
    (TASK_MODE, "TaskAccept"),
    (TASK_MODE, "TaskReject"),
    (TASK_MODE, "TaskUpdate"),
    (TASK_MODE, "TaskComplete"),
    (TASK_MODE, "TaskFail"),
    (TASK_MODE, "Commitment"),
    (HANDOFF_MODE, "SessionStart"),
    (HANDOFF_MODE, "HandoffOffer"),
    (HANDOFF_MODE, "HandoffContext"),
    (HANDOFF_MODE, "HandoffAccept"),
    (HANDOFF_MODE, "HandoffDecline"),
    (HANDOFF_MODE, "Commitment"),
];

// ---- one function for each target

/// The bytes are an envelope.
pub fn envelope(bytes: &[u8]) -> Reached {
    match Envelope::decode(bytes) {
        Ok(envelope) => message(&envelope),
        Err(_) => Reached::Nothing,
    }
}

/// The first byte picks the mode, the message type and the sender; the rest is the payload.
pub fn payload(bytes: &[u8]) -> Reached {
    let Some((first, payload)) = bytes.split_first() else {
        return Reached::Nothing;
    };
    let (kind, sender) = (usize::from(*first) % KINDS.len(), usize::from(*first) / KINDS.len());
    let sender = if sender.is_multiple_of(2) { REQUESTER } else { WORKER };
    message(&sent(KINDS[kind], sender, "m-any", payload.to_vec()))
}

/// The bytes are an event in a log.
pub fn event(bytes: &[u8]) -> Reached {
    let Ok(event) = codec::decode(bytes) else {
        return Reached::Nothing;
    };
    stays_the_same(&event);
    let mode = handover_kernel::command::ModeKind::Task;
    shown(&Frame { session_id: SESSION, mode, task: Text::from("t1") }, &event);
    Reached::Accepted
}

// ---- what they check

/// A message is taken or refused, by the face and by a session at every stage of its life.
fn message(envelope: &Envelope) -> Reached {
    let sender = if envelope.sender == WORKER { WORKER } else { REQUESTER };
    let sender = caller(sender);
    match admit(&sender, envelope) {
        Ok(Admitted::Unreadable(refused)) | Err(refused) => {
            can_be_told(&refused);
            Reached::Decoded
        }
        Ok(Admitted::Start(start)) => {
            let accepted = decided(&None, &SessionId::from(envelope.session_id.as_str()), &start.command);
            if accepted { Reached::Accepted } else { Reached::Admitted }
        }
        Ok(Admitted::Command(command)) => {
            let mut reached = Reached::Admitted;
            for stage in stages() {
                if decided(stage, &SessionId::from(SESSION), &command) {
                    reached = Reached::Accepted;
                }
            }
            reached
        }
    }
}

/// Whether a session accepts the command. A refusal changes nothing; what is accepted survives its bytes, replays to
/// the same session and can be shown.
fn decided(before: &Option<Session>, id: &SessionId, command: &Command) -> bool {
    let mut after = before.clone();
    let done = step(&mut after, id, command, limits(), NOW);
    if let Err(refusal) = done.answer {
        assert!(done.events.is_empty() && after == *before, "a refused command left a trace: {refusal}");
        can_be_told(&Refused::from(refusal));
        return false;
    }
    let mut replayed = before.clone();
    for event in &done.events {
        apply(&mut replayed, id, &stays_the_same(event));
    }
    assert!(replayed == after, "the events tell of another session than the one that wrote them");
    let session = after.as_ref().expect("a session accepted it");
    for event in &done.events {
        shown(&Frame::of(session), event);
        can_be_sent_again(&Frame::of(session), event);
    }
    render::metadata(session).encode_to_vec();
    view::row(session);
    true
}

/// An event is the same after its bytes.
fn stays_the_same(event: &Event) -> Event {
    let bytes = codec::encode(event);
    let back = codec::decode(&bytes).expect("it was encoded a moment ago");
    // A number that is none is not equal to itself; its bits are.
    let comparable = *event == event.clone();
    assert!(back == *event || !comparable, "expected {event:?}, found {back:?}");
    assert!(codec::encode(&back) == bytes, "expected the bytes of {event:?}, found others");
    back
}

/// An event can be shown to readers of the session.
fn shown(frame: &Frame<'_>, event: &Event) {
    timeline::describe(&event.fact);
    if let Some(envelope) = render::envelope(frame, event) {
        let back = Envelope::decode(envelope.encode_to_vec().as_slice());
        assert!(back.as_ref() == Ok(&envelope), "expected {envelope:?}, found {back:?}");
    }
}

/// What the face says of an accepted message is a message that the face takes, even if said without the very bytes.
fn can_be_sent_again(frame: &Frame<'_>, event: &Event) {
    let Author::Agent(agent) = &event.author else {
        return;
    };
    if event.face != Face::Macp {
        return;
    }
    let meant = Event { verbatim: None, ..event.clone() };
    if let Some(envelope) = render::envelope(frame, &meant) {
        let again = admit(&caller(agent.as_str()), &envelope);
        assert!(again.is_ok(), "{envelope:?} was refused: {again:?}");
    }
}

/// A refusal can be told on the wire.
fn can_be_told(refused: &Refused) {
    assert!(!refused.code.is_empty() && !refused.message.is_empty(), "{refused:?} says nothing");
    refused.ack(SESSION, "m-any").encode_to_vec();
    refused.status();
}

fn caller(agent: &str) -> Caller {
    let principal = Identity::Development.authenticate(Some(agent)).expect("the agents here have good ids");
    Caller::new(principal, Face::Macp)
}

fn limits() -> &'static Limits {
    static LIMITS: OnceLock<Limits> = OnceLock::new();
    LIMITS.get_or_init(Limits::default)
}

// ---- sessions to put commands to

/// A session at every stage of a life in either mode.
fn stages() -> &'static [Option<Session>] {
    static STAGES: OnceLock<Vec<Option<Session>>> = OnceLock::new();
    STAGES.get_or_init(|| lives().iter().flat_map(|life| stages_of(life)).collect())
}

fn stages_of(life: &[Envelope]) -> Vec<Option<Session>> {
    let id = SessionId::from(SESSION);
    let mut slot = None;
    let mut stages = Vec::new();
    for envelope in life {
        let command = match admit(&caller(&envelope.sender), envelope) {
            Ok(Admitted::Start(start)) => start.command,
            Ok(Admitted::Command(command)) => *command,
            Ok(Admitted::Unreadable(refused)) | Err(refused) => {
                panic!("{envelope:?} was refused: {refused:?}")
            }
        };
        let done = step(&mut slot, &id, &command, limits(), STARTED_AT);
        assert!(done.answer.is_ok(), "{envelope:?} was refused: {:?}", done.answer);
        stages.push(slot.clone());
    }
    let pause = Act::Pause { reason: Text::from("lunch"), gently: false };
    let done = step(
        &mut slot,
        &id,
        &Command::by(&AgentId::from(REQUESTER), Face::Macp, pause).in_session_scope(),
        limits(),
        STARTED_AT,
    );
    if done.answer.is_ok() {
        stages.push(slot);
    }
    stages
}

/// Lives of sessions, message by message, every message type among them.
pub fn lives() -> Vec<Vec<Envelope>> {
    let task = |kind: usize, sender, payload| (KINDS[kind], sender, payload);
    let begin = vec![task(0, REQUESTER, start(&[WORKER])), task(1, REQUESTER, request())];
    let accepted = [begin.clone(), vec![task(2, WORKER, accept())]].concat();
    let end = |positive| task(7, REQUESTER, commitment("task", positive));
    let own = [REQUESTER, WORKER];
    let offered = vec![(KINDS[8], REQUESTER, start(&own)), (KINDS[9], REQUESTER, offer())];
    let settle = |positive| (KINDS[13], REQUESTER, commitment("handoff", positive));
    let lives = [
        [
            accepted.clone(),
            vec![
                task(4, WORKER, update("reading", 0.25)),
                task(4, WORKER, update("input_required", 0.5)),
                task(5, WORKER, complete()),
                end(true),
            ],
        ]
        .concat(),
        [accepted.clone(), vec![task(6, WORKER, fail())]].concat(),
        [begin, vec![task(3, WORKER, reject())]].concat(),
        accepted,
        [
            offered.clone(),
            vec![(KINDS[10], REQUESTER, context()), (KINDS[11], WORKER, accept_offer()), settle(true)],
        ]
        .concat(),
        [offered, vec![(KINDS[12], WORKER, decline_offer()), settle(false)]].concat(),
    ];
    let in_order = |life: Vec<((&str, &str), &str, Vec<u8>)>| {
        let numbered = life.into_iter().enumerate();
        numbered.map(|(n, (kind, sender, payload))| sent(kind, sender, &format!("m-{n}"), payload)).collect()
    };
    lives.into_iter().map(in_order).collect()
}

fn sent((mode, message_type): (&str, &str), sender: &str, message_id: &str, payload: Vec<u8>) -> Envelope {
    Envelope {
        macp_version: MACP_VERSION.to_owned(),
        mode: mode.to_owned(),
        message_type: message_type.to_owned(),
        message_id: message_id.to_owned(),
        session_id: SESSION.to_owned(),
        sender: sender.to_owned(),
        timestamp_unix_ms: render::signed(STARTED_AT.0),
        payload,
    }
}

fn start(participants: &[&str]) -> Vec<u8> {
    SessionStartPayload {
        intent: "read the report".to_owned(),
        participants: participants.iter().map(ToString::to_string).collect(),
        mode_version: "1.0.0".to_owned(),
        configuration_version: "c1".to_owned(),
        ttl_ms: 3_600_000,
        max_suspend_ms: 600_000,
        ..SessionStartPayload::default()
    }
    .encode_to_vec()
}

fn request() -> Vec<u8> {
    task::TaskRequestPayload {
        task_id: "t1".to_owned(),
        title: "read".to_owned(),
        instructions: "say how long it is".to_owned(),
        requested_assignee: WORKER.to_owned(),
        input: b"{\"report\":7}".to_vec(),
        deadline_unix_ms: render::signed(NOW.0),
    }
    .encode_to_vec()
}

fn accept() -> Vec<u8> {
    let (task_id, assignee) = ("t1".to_owned(), WORKER.to_owned());
    task::TaskAcceptPayload { task_id, assignee, reason: "free".to_owned() }.encode_to_vec()
}

fn reject() -> Vec<u8> {
    let (task_id, assignee) = ("t1".to_owned(), WORKER.to_owned());
    task::TaskRejectPayload { task_id, assignee, reason: "busy".to_owned() }.encode_to_vec()
}

fn update(status: &str, progress: f64) -> Vec<u8> {
    task::TaskUpdatePayload {
        task_id: "t1".to_owned(),
        status: status.to_owned(),
        progress,
        message: "which page?".to_owned(),
        partial_output: b"{}".to_vec(),
    }
    .encode_to_vec()
}

fn complete() -> Vec<u8> {
    task::TaskCompletePayload {
        task_id: "t1".to_owned(),
        assignee: WORKER.to_owned(),
        output: b"12".to_vec(),
        summary: "twelve pages ✓".to_owned(),
    }
    .encode_to_vec()
}

fn fail() -> Vec<u8> {
    task::TaskFailPayload {
        task_id: "t1".to_owned(),
        assignee: WORKER.to_owned(),
        error_code: "UNREADABLE".to_owned(),
        reason: "it is torn".to_owned(),
        retryable: true,
    }
    .encode_to_vec()
}

fn offer() -> Vec<u8> {
    handoff::HandoffOfferPayload {
        handoff_id: "h1".to_owned(),
        target_participant: WORKER.to_owned(),
        scope: "support".to_owned(),
        reason: "off duty".to_owned(),
    }
    .encode_to_vec()
}

fn context() -> Vec<u8> {
    handoff::HandoffContextPayload {
        handoff_id: "h1".to_owned(),
        content_type: "text/plain".to_owned(),
        context: b"two open cases".to_vec(),
    }
    .encode_to_vec()
}

fn accept_offer() -> Vec<u8> {
    handoff::HandoffAcceptPayload {
        handoff_id: "h1".to_owned(),
        accepted_by: WORKER.to_owned(),
        reason: "gladly".to_owned(),
        implicit: false,
    }
    .encode_to_vec()
}

fn decline_offer() -> Vec<u8> {
    handoff::HandoffDeclinePayload {
        handoff_id: "h1".to_owned(),
        declined_by: WORKER.to_owned(),
        reason: "busy".to_owned(),
    }
    .encode_to_vec()
}

fn commitment(of: &str, positive: bool) -> Vec<u8> {
    let ending = match (of, positive) {
        ("task", true) => "completed",
        (_, true) => "accepted",
        (_, false) => "declined",
    };
    CommitmentPayload {
        commitment_id: "c-1".to_owned(),
        action: format!("{of}.{ending}"),
        authority_scope: of.to_owned(),
        reason: "reviewed".to_owned(),
        mode_version: "1.0.0".to_owned(),
        configuration_version: "c1".to_owned(),
        outcome_positive: positive,
        ..CommitmentPayload::default()
    }
    .encode_to_vec()
}
