//! How many bytes commands and events carry: the very bytes of the wire or their meaning, whichever is more. And how many
//! a session holds of them.

use std::sync::Arc;

use crate::approval::{Changes, Proposed, Ruling};
use crate::command::{
    Act, Answer, Command, Contract, Failure, HandoffAct, NewOffer, NewQuestion, Next, OfferContext, Opening,
    Progress, Request, Start, TaskAct,
};
use crate::event::{Event, Fact, Question};
use crate::id::Blob;
use crate::orders::{Order, OrderKind};
use crate::session::{Mode, Session};
use crate::task::{Phase, Report, Task};

/// What every event costs beside what it carries: its number, time, author and ids.
pub(crate) const EVENT_BYTES: u64 = 64;

/// What every session takes beside what was carried into it.
const SESSION_BYTES: usize = 2048;

impl Command {
    /// How many bytes the command carries.
    pub fn weight(&self) -> usize {
        wire(&self.verbatim).max(self.act.weight()) + self.used.weight()
    }
}

impl Event {
    /// How much of its log the event takes up. A log's weight is the sum of its events', and only a function of them.
    pub fn weight(&self) -> u64 {
        let trace = self.trace.as_ref().map_or(0, |trace| trace.parent.len() + trace.state.len());
        EVENT_BYTES + (wire(&self.verbatim).max(self.fact.weight()) + trace) as u64
    }
}

fn wire(verbatim: &Option<Blob>) -> usize {
    verbatim.as_ref().map_or(0, |bytes| bytes.len())
}

impl Act {
    fn weight(&self) -> usize {
        match self {
            Act::Start(start) => start.weight(),
            Act::Delegate(delegation) => delegation.start.weight() + delegation.opening.weight(),
            Act::Cancel { reason, .. } | Act::Pause { reason, .. } | Act::Resume { reason } => reason.len(),
            Act::Tick | Act::SettleErrand { .. } => 0,
            Act::Commit(commitment) => commitment.weight(),
            Act::Decide { ruling, .. } => ruling.weight(),
            Act::Task(act) => act.weight(),
            Act::Handoff(act) => match act {
                HandoffAct::Offer(offer) => offer.weight(),
                HandoffAct::Context { content_type, body, .. } => content_type.len() + body.len(),
                HandoffAct::Accept { reason, .. } | HandoffAct::Decline { reason, .. } => reason.len(),
            },
        }
    }
}

impl TaskAct {
    fn weight(&self) -> usize {
        match self {
            TaskAct::Request(request) => request.weight(),
            TaskAct::Accept { reason, .. } | TaskAct::Decline { reason, .. } | TaskAct::Hold { reason } => {
                reason.len()
            }
            TaskAct::Update { progress, .. } => progress.weight(),
            TaskAct::Ask { questions, progress, .. } => {
                progress.weight() + questions.iter().map(NewQuestion::weight).sum::<usize>()
            }
            TaskAct::Answer { answers, .. } => answers.iter().map(Answer::weight).sum(),
            TaskAct::Steer { text } => text.len(),
            TaskAct::Complete { output, summary, .. } => output.len() + summary.len(),
            TaskAct::Fail { failure, .. } => failure.weight(),
            TaskAct::Say { body, next, .. } => match next {
                Next::Asks { text, schema, .. } => body.len() + text.len() + schema.len(),
                Next::AsBefore | Next::Works | Next::Delivers => body.len(),
            },
            TaskAct::SetKey { key } => key.as_ref().map_or(0, |key| key.len()),
            TaskAct::Checkpoint
            | TaskAct::Deliver { .. }
            | TaskAct::Read { .. }
            | TaskAct::Acknowledge
            | TaskAct::CanHandOn { .. }
            | TaskAct::CanHaveChild { .. }
            | TaskAct::HandOn { .. }
            | TaskAct::AddChild { .. }
            | TaskAct::NoteCycle { .. }
            | TaskAct::Reserve { .. } => 0,
            TaskAct::Spend { used, .. } => used.weight(),
        }
    }
}

impl Fact {
    pub(crate) fn weight(&self) -> usize {
        match self {
            Fact::Started(started) => started.start.weight(),
            Fact::Cancelled { reason, .. }
            | Fact::Suspended { reason, .. }
            | Fact::Resumed { reason, .. }
            | Fact::Accepted { reason, .. }
            | Fact::Declined { reason, .. }
            | Fact::PauseRequested { reason }
            | Fact::OfferAccepted { reason, .. }
            | Fact::OfferDeclined { reason, .. } => reason.len(),
            Fact::Committed(commitment) => commitment.weight(),
            Fact::Requested(request) => request.weight(),
            Fact::Updated { progress, .. } => progress.weight(),
            Fact::Asked { questions, progress } => {
                progress.weight() + questions.iter().map(Question::weight).sum::<usize>()
            }
            Fact::Answered { answers } => answers.iter().map(Answer::weight).sum(),
            Fact::Steered { text } => text.len(),
            Fact::Completed { output, summary } => output.len() + summary.len(),
            Fact::Failed(failure) => failure.weight(),
            Fact::Said { body, .. } => body.len(),
            Fact::KeySet { key } => key.as_ref().map_or(0, |key| key.len()),
            Fact::Offered { scope, reason, .. } => scope.len() + reason.len(),
            Fact::ContextAdded { content_type, body, .. } => content_type.len() + body.len(),
            Fact::Proposed { what, .. } => what.weight(),
            Fact::Decided { ruling, .. } => ruling.weight(),
            Fact::Expired { .. }
            | Fact::ErrandSettled { .. }
            | Fact::Checkpointed
            | Fact::Delivered { .. }
            | Fact::Read { .. }
            | Fact::Acknowledged
            | Fact::CheckInMissed { .. }
            | Fact::FellSilent { .. }
            | Fact::ChildAdded { .. }
            | Fact::Reserved { .. } => 0,
            Fact::CycleFound { agents } => agents.iter().map(|agent| agent.as_str().len()).sum(),
            Fact::Used { used } | Fact::Spent { used, .. } => used.weight(),
            Fact::Overspent { name, .. } => name.len(),
        }
    }
}

impl Start {
    fn weight(&self) -> usize {
        self.intent.len()
            + self.context_id.len()
            + self.extension_keys.iter().map(|key| key.len()).sum::<usize>()
            + self.participants.iter().map(|agent| agent.as_str().len()).sum::<usize>()
            + self.contract.as_ref().map_or(0, |contract| contract.weight())
            + self.charter.budget.as_ref().map_or(0, |budget| budget.weight())
    }
}

impl Contract {
    /// How many bytes it carries.
    pub fn weight(&self) -> usize {
        self.skill.len() + self.input.len() + self.output.len()
    }
}

impl Request {
    fn weight(&self) -> usize {
        let key = self.session_key.as_ref().map_or(0, |key| key.len());
        self.title.len() + self.instructions.len() + self.input.len() + key
    }
}

impl Progress {
    fn weight(&self) -> usize {
        self.status.len() + self.message.len() + self.partial.len()
    }
}

impl NewQuestion {
    fn weight(&self) -> usize {
        self.text.len() + self.schema.len() + wire(&self.wire)
    }
}

impl Question {
    fn weight(&self) -> usize {
        self.text.len() + self.schema.len() + wire(&self.wire)
    }
}

impl Answer {
    fn weight(&self) -> usize {
        self.reply.content().map_or(0, |body| body.len())
    }
}

impl Opening {
    fn weight(&self) -> usize {
        match self {
            Opening::Request(request) => request.weight(),
            Opening::Offer(offer) => offer.weight(),
        }
    }
}

impl NewOffer {
    fn weight(&self) -> usize {
        let context = self.context.as_ref().map_or(0, OfferContext::weight);
        self.scope.len() + self.reason.len() + context
    }
}

impl OfferContext {
    fn weight(&self) -> usize {
        self.content_type.len() + self.body.len()
    }
}

impl Proposed {
    fn weight(&self) -> usize {
        match self {
            Proposed::Request(request) => request.weight(),
            Proposed::Offer(offer) => offer.weight(),
            Proposed::Commitment(commitment) => commitment.weight(),
        }
    }
}

impl Ruling {
    fn weight(&self) -> usize {
        match self {
            Ruling::Approved(Changes { title, instructions, input, reason }) => {
                let texts = [title, instructions, reason].into_iter().flatten();
                texts.map(|text| text.len()).sum::<usize>() + input.as_ref().map_or(0, |input| input.len())
            }
            Ruling::ChangesAsked(words) | Ruling::Rejected(words) => words.len(),
        }
    }
}

impl Failure {
    fn weight(&self) -> usize {
        self.code.len() + self.reason.len() + self.output.len()
    }
}

impl Session {
    /// About how many bytes it takes in memory: what was carried into it and is still held.
    pub fn weight(&self) -> usize {
        let binding = &self.binding;
        let participants = binding.participants.iter().map(|agent| agent.as_str().len()).sum::<usize>();
        let contract = binding.contract.as_ref().map_or(0, |contract| contract.weight());
        let mode = match &self.mode {
            Mode::Task(task) => task.weight(),
            Mode::Handoff(handoff) => handoff.offers.iter().map(|offer| offer.scope.len()).sum(),
        };
        let proposal = self.proposal.as_ref().map_or(0, |proposal| proposal.what.weight());
        SESSION_BYTES
            + proposal
            + binding.intent.len()
            + binding.context_id.len()
            + participants
            + contract
            + mode
    }
}

impl Task {
    fn weight(&self) -> usize {
        let phase = match &self.phase {
            Phase::Pending => 0,
            Phase::Requested { request } => request.weight(),
            Phase::Working { request, progress, .. } => request.weight() + held(progress),
            Phase::Waiting { request, progress, questions, .. } => {
                request.weight() + held(progress) + questions.iter().map(Question::weight).sum::<usize>()
            }
            Phase::Reported { request, report, wire: (_, verbatim), .. } => {
                request.weight() + report.weight() + wire(verbatim)
            }
        };
        let orders = self.orders.waiting().map(Order::weight).sum::<usize>();
        let words = self.conversation.last_words.as_ref().map_or(0, |words| words.len());
        phase + orders + words + self.ledger.weight()
    }
}

fn held(progress: &Option<Arc<Progress>>) -> usize {
    progress.as_ref().map_or(0, |progress| progress.weight())
}

impl Report {
    fn weight(&self) -> usize {
        match self {
            Report::Complete { output, summary } => output.len() + summary.len(),
            Report::Fail(failure) => failure.weight(),
        }
    }
}

impl Order {
    /// How many bytes it carries.
    pub fn weight(&self) -> usize {
        match &self.what {
            OrderKind::Steer(text) | OrderKind::Pause(text) => text.len(),
            OrderKind::Answers(answers) => answers.iter().map(Answer::weight).sum(),
            OrderKind::Message { body, .. } => body.len(),
        }
    }
}
