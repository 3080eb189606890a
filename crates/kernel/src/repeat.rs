//! Whether what comes under an id that was used is the message that was accepted under it.
//!
//! Who keeps the log looks the event up, and only when an id comes again: a session keeps no more of a message than where
//! it is.

use crate::approval::Proposed;
use crate::command::{
    Act, Command, Delegation, HandoffAct, Need, NewOffer, NewQuestion, Next, OfferContext, Opening, Request,
    Start, TaskAct,
};
use crate::event::{Event, Fact, Question};
use crate::id::{Author, Seq, Text};
use crate::session::Binding;
use crate::task::REJECTED;

/// How many events tell of one message, from the one that has its id on.
pub const REPEAT_EVENTS: usize = 5;

impl Command {
    /// Whether this is the message that these events tell of: the one that has its id, and those after it. It is if it
    /// has the same sender, type and payload. When it was sent does not count, nor does its trace.
    ///
    /// Of a delegation counts what the sender itself says. What the server fills in (how long it may take, how the
    /// skill describes itself, who is there to do it) may have changed since.
    pub fn repeats(&self, binding: &Binding, events: &[Event]) -> bool {
        let Some((event, after)) = events.split_first() else { return false };
        if self.by == Author::Runtime {
            // Nobody else can use its ids, and it says one thing under each.
            return true;
        }
        let bytes = match (&self.verbatim, &event.verbatim) {
            (Some(sent), Some(stored)) => Some(sent == stored),
            (Some(_) | None, _) => None,
        };
        // An answer is read by its question, which may be open no longer: what was sent says more.
        if let (Act::Task(TaskAct::Answer { .. }), Fact::Answered { .. }, Some(same)) =
            (&self.act, &event.fact, bytes)
        {
            return same && self.by == event.author;
        }
        let used = match after.first().map(|next| &next.fact) {
            Some(Fact::Used { used }) => *used == self.used,
            Some(_) | None => self.used.is_empty(),
        };
        bytes.unwrap_or(true) && used && self.by == event.author && self.act.says(self, binding, event, after)
    }
}

impl Act {
    fn says(&self, command: &Command, binding: &Binding, event: &Event, after: &[Event]) -> bool {
        match (self, &event.fact) {
            (Act::Start(start), Fact::Started(started)) => {
                let undated = |start: &Start| Start { sent_at: None, under: None, ..start.clone() };
                undated(start) == undated(&started.start)
            }
            (Act::Decide { proposal, ruling }, Fact::Decided { proposal: stored, ruling: said }) => {
                (proposal, ruling) == (stored, said)
            }
            (Act::Delegate(delegation), Fact::Started(started)) => delegation.says(&started.start, after),
            (
                Act::Cancel { reason, keeps_children },
                Fact::Cancelled { reason: stored, keeps_children: kept },
            ) => reason == stored && keeps_children == kept,
            (
                Act::Pause { reason, .. },
                Fact::PauseRequested { reason: stored } | Fact::Suspended { reason: stored, .. },
            )
            | (Act::Resume { reason }, Fact::Resumed { reason: stored, .. }) => reason == stored,
            (Act::Commit(commitment), Fact::Committed(stored)) => commitment == stored,
            (
                Act::Commit(_) | Act::Task(TaskAct::Request(_)) | Act::Handoff(HandoffAct::Offer(_)),
                Fact::Proposed { what, .. },
            ) => what.act() == *self,
            (Act::Task(act), fact) => act.says(command, binding, event.seq, fact, after),
            (Act::Handoff(act), fact) => act.says(fact, after),
            (
                Act::Start(_)
                | Act::Delegate(_)
                | Act::Cancel { .. }
                | Act::Pause { .. }
                | Act::Resume { .. }
                | Act::Tick
                | Act::Commit(_)
                | Act::Decide { .. }
                | Act::SettleErrand { .. },
                _,
            ) => false,
        }
    }
}

impl TaskAct {
    fn says(&self, command: &Command, binding: &Binding, seq: Seq, fact: &Fact, after: &[Event]) -> bool {
        match (self, fact) {
            (TaskAct::Request(request), Fact::Requested(stored)) => **request == *stored,
            // The names that these repeat were checked when they were accepted, and cannot have been others.
            (TaskAct::Accept { reason, .. }, Fact::Accepted { reason: stored, handoff: None })
            | (TaskAct::Decline { reason, .. }, Fact::Declined { reason: stored, handoff: None }) => {
                reason == stored
            }
            (TaskAct::Update { progress, withdraws, .. }, Fact::Updated { progress: stored, withdrawn }) => {
                progress == stored && (*withdraws || withdrawn.is_empty())
            }
            (TaskAct::Ask { questions, progress, .. }, Fact::Asked { questions: stored, progress: then }) => {
                progress == then
                    && questions.len() == stored.len()
                    && questions.iter().zip(stored).all(|(question, stored)| question.says(stored))
            }
            (TaskAct::Checkpoint, Fact::Checkpointed) => true,
            (TaskAct::Hold { reason }, Fact::Checkpointed) => after.iter().any(|event| {
                let Fact::Suspended { reason: stored, .. } = &event.fact else { return false };
                event.is_by_runtime() && stored == reason
            }),
            (TaskAct::Deliver { up_to }, Fact::Delivered { up_to: stored, .. }) => up_to == stored,
            // Those that were not open then were passed over.
            (TaskAct::Answer { answers, ignore_unknown: true, .. }, Fact::Answered { answers: stored }) => {
                stored.iter().all(|answer| answers.contains(answer))
            }
            (TaskAct::Answer { answers, .. }, Fact::Answered { answers: stored }) => answers == stored,
            (TaskAct::Steer { text }, Fact::Steered { text: stored }) => text == stored,
            (
                TaskAct::Complete { output, summary, .. },
                Fact::Completed { output: stored, summary: stored_summary },
            ) => (output, summary) == (stored, stored_summary),
            (TaskAct::Fail { failure, .. }, Fact::Failed(stored)) => failure == stored,
            (TaskAct::Say { body, next, check_in }, Fact::Said { body: stored, check_in: terms, .. })
                if command.by.agent() == Some(&binding.requester) =>
            {
                (body, next) == (stored, &Next::AsBefore) && binding.charter.check_in(*check_in) == *terms
            }
            (TaskAct::Say { body, next, .. }, Fact::Said { body: stored, awaits_reply, works, .. }) => {
                let awaits = match next {
                    Next::AsBefore | Next::Works => false,
                    // Anything more particular would have been a question.
                    Next::Asks { need, schema, .. } if *need == Need::Authorization || !schema.is_empty() => {
                        return false;
                    }
                    Next::Asks { .. } | Next::Delivers => true,
                };
                body == stored && (awaits, *next == Next::Works) == (*awaits_reply, *works)
            }
            (TaskAct::Say { next: Next::Asks { need, text, schema }, .. }, Fact::Asked { questions, .. }) => {
                let same =
                    |asked: &Question| (need, text, schema) == (&asked.need, &asked.text, &asked.schema);
                matches!(&questions[..], [asked] if same(asked))
            }
            (TaskAct::Say { body, next: Next::Delivers, .. }, Fact::Completed { output, .. }) => {
                body == output
            }
            // What was accepted before is turned down by failing it.
            (TaskAct::Decline { reason, .. }, Fact::Failed(failure)) => {
                failure.reason == *reason && *failure.code == *REJECTED
            }
            // It reaches no further than the log did.
            (TaskAct::Read { up_to }, Fact::Read { up_to: stored, .. }) => {
                (*up_to).min(Seq(seq.0.saturating_sub(1))) == *stored
            }
            // Read with an earlier release, by a reader that had nothing but orders to read.
            (TaskAct::Read { .. }, Fact::Checkpointed) => command.takes_orders,
            (TaskAct::Acknowledge, Fact::Acknowledged) => true,
            (TaskAct::SetKey { key }, Fact::KeySet { key: stored }) => key == stored,
            (
                TaskAct::Request(_)
                | TaskAct::Accept { .. }
                | TaskAct::Decline { .. }
                | TaskAct::Update { .. }
                | TaskAct::Ask { .. }
                | TaskAct::Checkpoint
                | TaskAct::Hold { .. }
                | TaskAct::Deliver { .. }
                | TaskAct::Answer { .. }
                | TaskAct::Steer { .. }
                | TaskAct::Complete { .. }
                | TaskAct::Fail { .. }
                | TaskAct::Say { .. }
                | TaskAct::Read { .. }
                | TaskAct::Acknowledge
                | TaskAct::SetKey { .. }
                | TaskAct::CanHandOn { .. }
                | TaskAct::CanHaveChild { .. }
                | TaskAct::HandOn { .. }
                | TaskAct::AddChild { .. }
                | TaskAct::NoteCycle { .. }
                | TaskAct::Reserve { .. }
                | TaskAct::Spend { .. },
                _,
            ) => false,
        }
    }
}

impl HandoffAct {
    fn says(&self, fact: &Fact, after: &[Event]) -> bool {
        match (self, fact) {
            (HandoffAct::Offer(offer), fact) => offer.says(fact, after.first()),
            (
                HandoffAct::Context { handoff, content_type, body },
                Fact::ContextAdded { handoff: named, content_type: kind, body: stored },
            ) => (handoff, content_type, body) == (named, kind, stored),
            (
                HandoffAct::Accept { handoff, reason, .. },
                Fact::OfferAccepted { handoff: named, reason: stored, implicit: false },
            )
            | (
                HandoffAct::Decline { handoff, reason, .. },
                Fact::OfferDeclined { handoff: named, reason: stored },
            ) => (handoff, reason) == (named, stored),
            (HandoffAct::Context { .. } | HandoffAct::Accept { .. } | HandoffAct::Decline { .. }, _) => false,
        }
    }
}

impl NewOffer {
    fn says(&self, fact: &Fact, after: Option<&Event>) -> bool {
        // What was attached later is a message of its own, which has an id.
        let attached = after.filter(|event| event.id.is_none()).and_then(|event| {
            let Fact::ContextAdded { content_type, body, .. } = &event.fact else { return None };
            Some(OfferContext { content_type: content_type.clone(), body: body.clone() })
        });
        *fact == self.offered() && attached == self.context
    }
}

impl Delegation {
    fn says(&self, stored: &Start, after: &[Event]) -> bool {
        let skill = |start: &Start| start.contract.as_ref().map(|contract| Text::clone(&contract.skill));
        let Some((opening, after)) = after.split_first() else { return false };
        let same_opening = match (&self.opening, &opening.fact) {
            (Opening::Request(request), Fact::Requested(stored)) => {
                request.asks(stored, self.start.contract.is_some())
            }
            (Opening::Request(request), Fact::Proposed { what, .. }) => match &**what {
                Proposed::Request(stored) => request.asks(stored, self.start.contract.is_some()),
                Proposed::Offer(_) | Proposed::Commitment(_) => false,
            },
            (Opening::Offer(offer), Fact::Proposed { what, .. }) => **what == Proposed::Offer(offer.clone()),
            (Opening::Offer(offer), fact) => offer.says(fact, after.first()),
            (Opening::Request(_), _) => false,
        };
        same_opening
            && self.start.mode == stored.mode
            && self.start.parent == stored.parent
            && self.start.context_id == stored.context_id
            && self.start.charter.budget == stored.charter.budget
            && skill(&self.start) == skill(stored)
    }
}

impl Request {
    /// Whether it asks for the same, be it in other words where they are those of a skill.
    fn asks(&self, stored: &Request, of_a_skill: bool) -> bool {
        let words = |request: &Request| (request.title.clone(), request.instructions.clone());
        self.input == stored.input
            && self.assignee == stored.assignee
            && (of_a_skill || words(self) == words(stored))
    }
}

impl NewQuestion {
    fn says(&self, stored: &Question) -> bool {
        self.key.as_ref().is_none_or(|key| *key == stored.key)
            && (self.need, &self.text, &self.schema, &self.wire)
                == (stored.need, &stored.text, &stored.schema, &stored.wire)
    }
}
