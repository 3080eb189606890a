//! Whether the assignee shows signs of life, and what follows if it does not. Whatever it does in its task is one. They are
//! expected while it works; whoever waits for somebody else owes none.

use serde::{Deserialize, Serialize};

use crate::charter::{Liveness, OnSilence, Settlement};
use crate::command::Failure;
use crate::conversation::Party;
use crate::event::{Event, Fact};
use crate::id::{Blob, Text, Timestamp};
use crate::session::{Binding, Draft, Session};
use crate::task::Task;

/// The reason why a task was freed, and the code of its failure, when its assignee showed no sign of life.
pub const SILENT: &str = "silent";

/// A sign that changes nothing else is noted when this part of the window has passed since the last one.
const NOTED_AFTER: u64 = 4;

/// The signs of life of an assignee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signs {
    /// From when on the next one is expected.
    pub expected_from: Option<Timestamp>,
    /// Since when there was none for too long.
    pub silent_since: Option<Timestamp>,
}

impl Task {
    /// What an event says of it, `worked` being whether the assignee was at work before.
    pub(super) fn note_signs(&mut self, binding: &Binding, event: &Event, worked: bool) {
        let Some(liveness) = binding.charter.liveness.as_deref() else { return };
        if let Fact::FellSilent { since } = event.fact {
            self.signs.silent_since = Some(since);
            if liveness.then == OnSilence::Tell || binding.charter.notices {
                self.conversation.notice(event.seq, Some(Party::Receiver));
            }
        } else if !self.is_busy() {
            self.signs = Signs::default();
        } else {
            let by_assignee = !event.is_by_runtime() && event.author.agent() == self.phase.assignee();
            if by_assignee || !worked || matches!(event.fact, Fact::Resumed { .. }) {
                self.signs = Signs { expected_from: Some(event.at), silent_since: None };
            }
        }
    }

    /// Whether it is worth a line in the log that the assignee is there.
    pub(super) fn owes_sign(&self, binding: &Binding, now: Timestamp) -> bool {
        let (Some(liveness), Some(from)) = (binding.charter.liveness.as_deref(), self.signs.expected_from)
        else {
            return false;
        };
        now.since(from) >= liveness.window_ms / NOTED_AFTER
    }

    /// When the assignee will have been silent for too long, and what is written then.
    pub(super) fn silence_due(&self, session: &Session) -> Option<(Timestamp, Vec<Draft>)> {
        let charter = &session.binding.charter;
        let Liveness { window_ms, then } = *charter.liveness.as_deref()?;
        let since = self.signs.expected_from.filter(|_| self.signs.silent_since.is_none())?;
        let (at, assignee) = (since.plus(window_ms), self.phase.assignee()?);
        let mut drafts = vec![Draft::runtime(Fact::FellSilent { since })];
        match then {
            OnSilence::Nothing | OnSilence::Tell => {}
            OnSilence::Free => {
                let reason = Text::from(SILENT);
                drafts.push(Draft::for_agent(
                    assignee,
                    Fact::Declined { reason: reason.clone(), handoff: None },
                ));
                drafts.extend(self.after_leaving(session, assignee, &reason, at));
            }
            OnSilence::Fail => {
                let reason = Text::from("the assignee showed no sign of life");
                let code = Text::from(SILENT);
                let (retryable, protocol_error, output) = (true, false, Blob::default());
                let failure = Failure { code, reason: reason.clone(), retryable, protocol_error, output };
                drafts.push(Draft::for_agent(assignee, Fact::Failed(failure)));
                if charter.on_fail == Settlement::AtOnce {
                    let settled = session.binding.settlement(false, &reason);
                    drafts.push(Draft::for_agent(&session.binding.requester, settled));
                }
            }
        }
        Some((at, drafts.into_iter().map(|draft| draft.at(at)).collect()))
    }
}
