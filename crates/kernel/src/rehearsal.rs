//! What would have happened under another charter: the accepted history, played again from the start.
//!
//! Reads only. Every command that an agent gave is given again at the same time; what the runtime wrote by itself is left
//! to the runtime, which writes what the other charter says.

use crate::charter::Charter;
use crate::command::{Act, Command, HandoffAct, Need, NewOffer, NewQuestion, Next, TaskAct};
use crate::event::{Event, Fact, Question};
use crate::id::{Blob, Seq, SessionId, Text};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::session::{Lifecycle, Session, Standing, apply, step};

/// What became of one event of the history, then and now.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsed {
    /// The event.
    pub seq: Seq,
    /// Where the session stood after it.
    pub recorded: Standing,
    /// What becomes of it under the other charter.
    pub candidate: Outcome,
}

/// What becomes of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is accepted; the session stands there.
    Accepted(Standing),
    /// It is refused.
    Refused(Refusal),
    /// There is no session to give it to: its start was refused.
    NoSession,
}

/// The history of a session under another charter.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsal {
    /// Each event that an agent gave rise to, in order.
    pub events: Vec<Rehearsed>,
    /// The session as it ends under the other charter; none if its start was refused.
    pub session: Option<Session>,
    /// The event whose command settled it there.
    pub settled_by: Option<Seq>,
}

/// How many steers and questions may be open at once in a rehearsal: the most that any server takes. Under another charter
/// they may stay open, and every event looks at them.
const OPEN_MAX: usize = 10_000;

/// Play the history of a session again under another charter. Limits do not bind what was accepted once.
pub fn rehearse(id: &SessionId, history: &[Event], charter: &Charter) -> Rehearsal {
    let limits = Limits {
        payload_bytes_max: usize::MAX,
        participants_max: usize::MAX,
        ttl_ms_max: u64::MAX,
        steers_pending_max: OPEN_MAX,
        questions_open_max: OPEN_MAX,
        messages_per_task_max: usize::MAX,
        children_per_task_max: usize::MAX,
        offers_per_handoff_max: usize::MAX,
        proposals_max: usize::MAX,
        log_events_max: u64::MAX,
        log_bytes_max: u64::MAX,
    };
    let mut recorded = None;
    let mut candidate = None;
    let mut events = Vec::new();
    let mut settled_by = None;
    for event in history {
        apply(&mut recorded, id, event);
        let (Some(command), Some(session)) = (command_of(event, charter), &recorded) else {
            continue;
        };
        let starts = command.act.start().is_some();
        let was_open = candidate.as_ref().is_some_and(is_open);
        let outcome = if candidate.is_none() && !starts {
            Outcome::NoSession
        } else {
            let answer = step(&mut candidate, id, &command, &limits, event.at).answer;
            match (answer, &candidate) {
                (Ok(_), Some(session)) => Outcome::Accepted(session.standing()),
                (Ok(_), None) => Outcome::NoSession,
                (Err(refusal), _) => Outcome::Refused(refusal),
            }
        };
        if was_open
            && candidate
                .as_ref()
                .is_some_and(|session| matches!(session.lifecycle, Lifecycle::Resolved { .. }))
        {
            settled_by = Some(event.seq);
        }
        events.push(Rehearsed { seq: event.seq, recorded: session.standing(), candidate: outcome });
    }
    // What was due by the end of the history, such as the end of its time.
    if let (Some(_), Some(last)) = (&candidate, history.last()) {
        step(&mut candidate, id, &Command::runtime(Act::Tick), &limits, last.at);
    }
    Rehearsal { events, session: candidate, settled_by }
}

fn is_open(session: &Session) -> bool {
    matches!(session.lifecycle, Lifecycle::Open)
}

/// The command that an agent gave for this event; none if the runtime wrote it, or if it only followed from another.
fn command_of(event: &Event, charter: &Charter) -> Option<Command> {
    let agent = event.author.agent()?;
    if event.is_by_runtime() {
        return None;
    }
    let act = act_of(&event.fact, charter)?;
    let mut command = Command::by(agent, event.face, act);
    command.id = event.id.clone();
    command.id_scope = event.id_scope;
    command.verbatim = event.verbatim.clone();
    Some(command)
}

/// What was asked for, as the fact tells it; none if only the runtime writes such a fact.
fn act_of(fact: &Fact, charter: &Charter) -> Option<Act> {
    Some(match fact {
        Fact::Started(started) => {
            let mut start = started.start.clone();
            start.charter = Charter { suspension_cap_ms: start.charter.suspension_cap_ms, ..charter.clone() };
            start.sent_at = Some(started.base);
            Act::Start(Box::new(start))
        }
        Fact::Cancelled { reason, keeps_children } => {
            Act::Cancel { reason: reason.clone(), keeps_children: *keeps_children }
        }
        Fact::Suspended { reason, .. } => Act::Pause { reason: reason.clone(), gently: false },
        Fact::PauseRequested { reason } => Act::Pause { reason: reason.clone(), gently: true },
        Fact::Resumed { reason, .. } => Act::Resume { reason: reason.clone() },
        Fact::Committed(commitment) => Act::Commit(commitment.clone()),
        Fact::Requested(request) => Act::Task(TaskAct::Request(Box::new(request.clone()))),
        Fact::Accepted { reason, .. } => {
            Act::Task(TaskAct::Accept { task: None, assignee: None, reason: reason.clone() })
        }
        Fact::Declined { reason, .. } => {
            Act::Task(TaskAct::Decline { task: None, assignee: None, reason: reason.clone() })
        }
        Fact::Updated { progress, .. } => {
            Act::Task(TaskAct::Update { task: None, progress: progress.clone(), withdraws: true })
        }
        Fact::Asked { questions, progress } => Act::Task(TaskAct::Ask {
            task: None,
            questions: questions.iter().map(asked_again).collect(),
            progress: progress.clone(),
        }),
        Fact::Proposed { what, held: true } => what.act(),
        Fact::Decided { proposal, ruling } => Act::Decide { proposal: *proposal, ruling: ruling.clone() },
        Fact::Checkpointed => Act::Task(TaskAct::Checkpoint),
        Fact::Delivered { up_to, .. } => Act::Task(TaskAct::Deliver { up_to: *up_to }),
        Fact::Answered { answers } => Act::Task(TaskAct::Answer {
            answers: answers.clone(),
            ignore_unknown: true,
            refuse_when_paused: false,
        }),
        Fact::Steered { text } => Act::Task(TaskAct::Steer { text: text.clone() }),
        Fact::Completed { output, summary } => Act::Task(TaskAct::Complete {
            task: None,
            assignee: None,
            output: output.clone(),
            summary: summary.clone(),
        }),
        Fact::Failed(failure) => {
            Act::Task(TaskAct::Fail { task: None, assignee: None, failure: failure.clone() })
        }
        Fact::Said { body, awaits_reply, works, check_in, .. } => {
            let next = match (awaits_reply, works) {
                (true, _) => Next::Asks { need: Need::Input, text: Text::default(), schema: Blob::default() },
                (false, true) => Next::Works,
                (false, false) => Next::AsBefore,
            };
            Act::Task(TaskAct::Say { body: body.clone(), next, check_in: *check_in })
        }
        Fact::Read { up_to, .. } => Act::Task(TaskAct::Read { up_to: *up_to }),
        Fact::Acknowledged => Act::Task(TaskAct::Acknowledge),
        Fact::KeySet { key } => Act::Task(TaskAct::SetKey { key: key.clone() }),
        Fact::Offered { handoff, target, scope, reason } => Act::Handoff(HandoffAct::Offer(NewOffer {
            handoff: handoff.clone(),
            target: target.clone(),
            scope: scope.clone(),
            reason: reason.clone(),
            // It is an event of its own, and so given again by itself.
            context: None,
        })),
        Fact::ContextAdded { handoff, content_type, body } => Act::Handoff(HandoffAct::Context {
            handoff: handoff.clone(),
            content_type: content_type.clone(),
            body: body.clone(),
        }),
        Fact::OfferAccepted { handoff, reason, implicit: false } => Act::Handoff(HandoffAct::Accept {
            handoff: handoff.clone(),
            by: None,
            reason: reason.clone(),
            implicit: false,
        }),
        Fact::OfferDeclined { handoff, reason } => {
            Act::Handoff(HandoffAct::Decline { handoff: handoff.clone(), by: None, reason: reason.clone() })
        }
        Fact::OfferAccepted { implicit: true, .. }
        | Fact::Expired { .. }
        | Fact::ErrandSettled { .. }
        | Fact::CheckInMissed { .. }
        | Fact::FellSilent { .. }
        | Fact::Proposed { held: false, .. }
        | Fact::CycleFound { .. }
        | Fact::ChildAdded { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Overspent { .. } => return None,
    })
}

fn asked_again(question: &Question) -> NewQuestion {
    NewQuestion {
        key: Some(question.key.clone()),
        need: question.need,
        text: question.text.clone(),
        schema: question.schema.clone(),
        wire: question.wire.clone(),
    }
}
