//! What an event makes of a task.

use std::sync::Arc;

use crate::approval::was_approved;
use crate::command::{CheckInTerms, Progress};
use crate::conversation::Party;
use crate::event::{Event, Fact, Question};
use crate::id::{AgentId, Blob, QuestionKey, Seq};
use crate::orders::Order;
use crate::rare::Rare;
use crate::session::Binding;
use crate::task::{Left, Phase, Report, Task};

impl Task {
    /// An agent turned the task down, or gave it back.
    pub(super) fn leave(&mut self, agent: &AgentId, how: Left) {
        let had_it = self.phase.assignee() == Some(agent);
        self.declined.insert(agent.clone(), if had_it { how } else { Left::Declined });
        if let (true, Some(request)) = (had_it, self.phase.request().cloned()) {
            self.phase = Phase::Requested { request };
        }
    }

    /// Whether an event is no news beside a party's own act, which the runtime makes it from: it completes for the assignee
    /// what the requester commits, and settles what the assignee has reported or turned down.
    pub fn follows(&self, event: &Event) -> bool {
        let acted = matches!(self.phase, Phase::Reported { .. }) || !self.declined.is_empty();
        acted && event.is_by_runtime() && event.author.agent().is_some() && !was_approved(event)
    }

    /// Tell the other side of the conversation that the state changed.
    pub(crate) fn notice(&mut self, binding: &Binding, event: &Event) {
        if self.follows(event) {
            return;
        }
        let from = event.author.agent().and_then(|agent| {
            if *agent == binding.requester {
                // What the runtime settled on its behalf is news to it.
                (!event.is_by_runtime()).then_some(Party::Requester)
            } else if binding.participants.contains(agent) {
                Some(Party::Receiver)
            } else {
                None
            }
        });
        self.conversation.notice(event.seq, from);
    }

    pub(crate) fn apply(&mut self, binding: &Binding, event: &Event) {
        let (seq, worked) = (event.seq, self.is_busy());
        // Whoever acts may have ended the waiting.
        if event.author.agent().is_some() {
            self.cycle = Rare::default();
        }
        if let Some(order) = Order::given_by(event, &binding.requester) {
            self.order(order);
        }
        match &event.fact {
            Fact::Requested(request) => {
                self.phase = Phase::Requested { request: Arc::new(request.clone()) };
                self.conversation.message(seq, Party::Requester);
                self.conversation.side_mut(Party::Requester).key = request.session_key.clone();
                let terms = binding.charter.check_in(request.check_in);
                self.conversation.expect_check_in(seq, event.at, terms);
            }
            Fact::Accepted { .. } => {
                self.taken = Some(event.seq);
                if let (Phase::Requested { request }, Some(agent)) = (&self.phase, event.author.agent()) {
                    let request = Arc::clone(request);
                    self.phase = Phase::Working { request, assignee: agent.clone(), progress: None };
                }
                self.conversation.sign();
            }
            Fact::Declined { handoff, .. } => {
                if let Some(agent) = event.author.agent() {
                    self.leave(
                        agent,
                        match handoff {
                            Some(_) => Left::HandedOn,
                            None if event.is_by_runtime() => Left::Freed,
                            None => Left::GaveBack,
                        },
                    );
                }
                self.conversation.sign();
                if binding.charter.notices {
                    self.conversation.notice(seq, Some(Party::Receiver));
                }
                // The key leads to a conversation of the one that left.
                self.conversation.side_mut(Party::Receiver).key = None;
            }
            Fact::Updated { progress, withdrawn } => {
                self.go_on(progress, withdrawn);
                self.reach_safe_point(seq);
            }
            Fact::Asked { questions, progress } => {
                self.keys_used.extend(questions.iter().map(|question| question.key.clone()));
                self.wait_for(questions, progress);
                self.reach_safe_point(seq);
                if binding.charter.notices {
                    self.conversation.notice(seq, Some(Party::Receiver));
                }
            }
            Fact::Checkpointed => self.reach_safe_point(seq),
            Fact::Delivered { up_to, .. } => self.orders.deliver(*up_to),
            Fact::Answered { answers } => {
                for answer in answers {
                    self.close_question(&answer.key);
                }
            }
            Fact::Steered { .. } => {}
            Fact::PauseRequested { reason } => self.pause = Some(reason.clone()),
            Fact::Completed { output, summary } => {
                let report = Report::Complete { output: output.clone(), summary: summary.clone() };
                self.reported(report, event);
            }
            Fact::Failed(failure) => self.reported(Report::Fail(failure.clone()), event),
            Fact::Said { body, awaits_reply, works, answers, check_in } => {
                if event.author.agent() == Some(&binding.requester) {
                    self.requester_said(event, answers, *check_in);
                } else {
                    self.assignee_said(seq, body, *awaits_reply);
                    if *works {
                        self.take_questions_back();
                        self.stop_awaiting_reply();
                        self.orders.safe_point(seq);
                    }
                }
            }
            Fact::Read { up_to, safe_point } => {
                if *safe_point {
                    self.orders.safe_point(seq);
                }
                if let Some(party) = event.author.agent().and_then(|agent| self.party(binding, agent)) {
                    self.conversation.read(party, *up_to);
                }
            }
            Fact::Acknowledged => self.conversation.sign(),
            Fact::CheckInMissed { message, next, gives_up } => {
                self.conversation.miss_check_in(*message, event.at, *next);
                self.conversation.given_up = gives_up.then_some(event.at);
            }
            Fact::KeySet { key } => {
                if let Some(party) = event.author.agent().and_then(|agent| self.party(binding, agent)) {
                    self.conversation.side_mut(party).key = key.clone();
                }
            }
            Fact::ChildAdded { child } => self.children.push((seq, child.clone())),
            Fact::CycleFound { agents } => {
                *self.cycle = agents.clone();
                self.conversation.notice(seq, Some(Party::Receiver));
            }
            Fact::Suspended { .. } => {
                self.pause = None;
                self.orders.drop_pause();
            }
            Fact::Cancelled { .. } => {
                if event.author.agent().is_some_and(|agent| *agent != binding.requester) {
                    self.conversation.sign();
                }
            }
            Fact::Started(_)
            | Fact::FellSilent { .. }
            | Fact::Proposed { .. }
            | Fact::Decided { .. }
            | Fact::Resumed { .. }
            | Fact::Expired { .. }
            | Fact::Committed(_)
            | Fact::ErrandSettled { .. }
            | Fact::Offered { .. }
            | Fact::ContextAdded { .. }
            | Fact::OfferAccepted { .. }
            | Fact::OfferDeclined { .. } => {}
            Fact::Reserved { child, depth } => self.ledger.reserve(child, *depth),
            Fact::Used { used } => {
                self.ledger.note(used);
                self.ledger.spend(binding.budget(), used);
            }
            Fact::Spent { used, .. } => self.ledger.spend(binding.budget(), used),
            Fact::Overspent { .. } => self.conversation.notice(seq, Some(Party::Receiver)),
        }
        self.note_signs(binding, event, worked);
    }

    /// An accepted update, question or checkpoint: what was ordered before may be handed over, and the assignee has
    /// shown that it is there.
    fn reach_safe_point(&mut self, seq: Seq) {
        self.orders.safe_point(seq);
        self.conversation.sign();
    }

    /// Queue an order. While the assignee waits it is at a safe point all the time.
    fn order(&mut self, order: Order) {
        let seq = order.seq;
        self.orders.push(order);
        if matches!(self.phase, Phase::Waiting { .. }) {
            self.orders.safe_point(seq);
        }
    }

    fn go_on(&mut self, news: &Progress, withdrawn: &[QuestionKey]) {
        if let Phase::Working { progress, .. } | Phase::Waiting { progress, .. } = &mut self.phase {
            *progress = Some(Arc::new(news.clone()));
        }
        for key in withdrawn {
            self.close_question(key);
        }
        // An update ends the wait for a reply as well, unless questions are still open.
        self.stop_awaiting_reply();
    }

    fn take_questions_back(&mut self) {
        if let Phase::Waiting { questions, .. } = &mut self.phase {
            questions.clear();
        }
    }

    fn stop_awaiting_reply(&mut self) {
        if let Phase::Waiting { awaits_reply, .. } = &mut self.phase {
            *awaits_reply = false;
        }
        self.work_if_nothing_is_awaited();
    }

    fn wait_for(&mut self, new: &[Question], news: &Progress) {
        // A question that says nothing of the progress does not take back what was said of it before.
        let mut told = news.clone();
        if let (None, Some(before)) = (told.done, self.phase.progress()) {
            told.done = before.done;
            if told.message.is_empty() {
                told.message = before.message.clone();
            }
        }
        let told = Some(Arc::new(told));
        match std::mem::take(&mut self.phase) {
            Phase::Working { request, assignee, .. } => {
                let questions = new.to_vec();
                self.phase =
                    Phase::Waiting { request, assignee, progress: told, questions, awaits_reply: false };
            }
            Phase::Waiting { request, assignee, mut questions, awaits_reply, .. } => {
                questions.extend_from_slice(new);
                self.phase = Phase::Waiting { request, assignee, progress: told, questions, awaits_reply };
            }
            other @ (Phase::Pending | Phase::Requested { .. } | Phase::Reported { .. }) => self.phase = other,
        }
    }

    fn close_question(&mut self, key: &QuestionKey) {
        if let Phase::Waiting { questions, .. } = &mut self.phase {
            questions.retain(|question| question.key != *key);
        }
        self.work_if_nothing_is_awaited();
    }

    fn work_if_nothing_is_awaited(&mut self) {
        if let Phase::Waiting { request, assignee, progress, questions, awaits_reply: false } = &self.phase
            && questions.is_empty()
        {
            self.phase = Phase::Working {
                request: Arc::clone(request),
                assignee: assignee.clone(),
                progress: progress.clone(),
            };
        }
    }

    fn reported(&mut self, report: Report, event: &Event) {
        if let (Some(request), Some(assignee)) =
            (self.phase.request().cloned(), self.phase.assignee().cloned())
        {
            let wire = (event.face, event.verbatim.clone());
            let message = event.message_id();
            self.phase = Phase::Reported { request, assignee, report, wire, message };
        }
        // A report voids a pending pause.
        self.pause = None;
        self.orders.drop_pause();
        // What the runtime completes for an assignee is no sign of that.
        if !event.is_by_runtime() {
            self.conversation.sign();
        }
    }

    fn requester_said(&mut self, event: &Event, answers: &Option<QuestionKey>, check_in: CheckInTerms) {
        let seq = event.seq;
        self.conversation.message(seq, Party::Requester);
        self.conversation.expect_check_in(seq, event.at, check_in);
        if let Some(key) = answers {
            self.close_question(key);
        }
        self.stop_awaiting_reply();
    }

    fn assignee_said(&mut self, seq: Seq, body: &Blob, awaits: bool) {
        self.conversation.message(seq, Party::Receiver);
        self.conversation.last_words = Some(body.clone());
        self.conversation.sign();
        if !awaits {
            return;
        }
        match std::mem::take(&mut self.phase) {
            Phase::Working { request, assignee, progress } => {
                let questions = Vec::new();
                self.phase = Phase::Waiting { request, assignee, progress, questions, awaits_reply: true };
                self.orders.safe_point(seq);
            }
            Phase::Waiting { request, assignee, progress, questions, .. } => {
                self.phase = Phase::Waiting { request, assignee, progress, questions, awaits_reply: true };
                self.orders.safe_point(seq);
            }
            other @ (Phase::Pending | Phase::Requested { .. } | Phase::Reported { .. }) => self.phase = other,
        }
    }
}
