//! What spans two sessions: who is asked before a command, and how an errand travels there and back.

use std::sync::Arc;

use handover_kernel::command::{Act, Command, HandoffAct, TaskAct};
use handover_kernel::errand::{Errand, Verdict};
use handover_kernel::handoff::task_of_scope;
use handover_kernel::id::{Author, SessionId};
use handover_kernel::{Refusal, Seq, Text};
use handover_store::SessionKey;

use crate::engine::shard::{Answer, Denied, Key};

/// What another session must agree to before the command is put to its own: the running task that an offer's scope
/// names, the parent of a subtask.
pub fn preflight(key: &SessionKey, command: &Command) -> Option<(Key, Command)> {
    let Author::Agent(by) = &command.by else {
        return None;
    };
    let by = by.clone();
    let (other, act) = match &command.act {
        Act::Handoff(HandoffAct::Offer { target, scope, .. }) => {
            (task_of_scope(scope)?, TaskAct::CanHandOn { by, to: target.clone() })
        }
        Act::Start(start) => (start.parent.clone()?, TaskAct::CanHaveChild { by }),
        Act::Handoff(HandoffAct::Context { .. } | HandoffAct::Accept { .. } | HandoffAct::Decline { .. })
        | Act::Cancel { .. }
        | Act::Pause { .. }
        | Act::Resume { .. }
        | Act::Tick
        | Act::Commit(_)
        | Act::Task(_)
        | Act::SettleErrand { .. } => return None,
    };
    Some((beside(key, &other), Command::runtime(Act::Task(act))))
}

/// How the other session's no becomes the command's own: a session that the caller cannot see is not named.
pub fn preflight_refusal(refusal: Refusal) -> Refusal {
    let unknown = "expected a task that the sender has a part in, found no such task";
    let hidden = matches!(
        refusal,
        Refusal::SessionNotFound | Refusal::NotParticipant { .. } | Refusal::WrongMode { .. }
    );
    if hidden { Refusal::invalid(unknown) } else { refusal }
}

/// Where an errand goes, and what it asks for there.
pub fn outbound(from: &Key, errand: &Errand) -> (Key, Command) {
    let session = SessionId::from(&*from.session);
    let command = Command::runtime(errand.act(&session)).with_id(errand.message_id(&session));
    (beside(from, &errand.to), command)
}

/// What the session that owed the errand is to record, if the answer is final. Otherwise it stays due.
pub fn homebound(errand: Seq, answer: &Answer) -> Option<Command> {
    let verdict = match answer {
        Answer::Accepted(_) => Verdict::Done,
        Answer::Denied(Denied::Refused(Refusal::SessionSuspended | Refusal::Busy)) => return None,
        Answer::Denied(Denied::Refused(refusal)) => Verdict::Refused { code: Text::from(refusal.code()) },
        Answer::Denied(Denied::Fault(_) | Denied::Unreadable(_) | Denied::Stopping) | Answer::State(_) => {
            return None;
        }
    };
    Some(Command::runtime(Act::SettleErrand { errand, verdict }))
}

fn beside(key: &SessionKey, session: &SessionId) -> Key {
    Arc::new(SessionKey::new(key.tenant.clone(), session.as_str()))
}
