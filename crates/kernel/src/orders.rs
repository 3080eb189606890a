//! What waits for the assignee: steers, a pause, answers, messages.
//!
//! Orders are handed over at safe points, in the order in which they were given: after an accepted update, question
//! or checkpoint, and all the time that the assignee waits for an answer.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::command::Answer;
use crate::event::{Event, Fact};
use crate::id::{AgentId, Blob, QuestionKey, Seq, Text};

/// How many bytes of orders one answer carries. It ends with the order that reaches them, so that it always has one.
pub const DELIVERY_BYTES_MAX: usize = 256 * 1024;

/// Something that waits for the assignee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The event that gave it.
    pub seq: Seq,
    /// What it says.
    pub what: OrderKind,
}

/// What an order says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of most fields say all")]
pub enum OrderKind {
    /// Take this into account.
    Steer(Text),
    /// Stop at the next safe point.
    Pause(Text),
    /// These questions were answered.
    Answers(Vec<Answer>),
    /// The requester said this.
    Message {
        body: Blob,
        /// The question that it answers.
        answers: Option<QuestionKey>,
    },
}

impl Order {
    /// The order that an event gave, if it gave one: what its sender said to the assignee.
    pub fn given_by(event: &Event, requester: &AgentId) -> Option<Order> {
        let what = if let Fact::Steered { text } = &event.fact {
            OrderKind::Steer(text.clone())
        } else if let Fact::PauseRequested { reason } = &event.fact {
            OrderKind::Pause(reason.clone())
        } else if let Fact::Answered { answers } = &event.fact {
            OrderKind::Answers(answers.clone())
        } else if let (Fact::Said { body, answers, .. }, Some(agent)) = (&event.fact, event.author.agent())
            && agent == requester
        {
            OrderKind::Message { body: body.clone(), answers: answers.clone() }
        } else {
            return None;
        };
        Some(Order { seq: event.seq, what })
    }
}

/// The orders of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    waiting: VecDeque<Order>,
    /// Orders up to there may be handed over now.
    safe_up_to: Seq,
    /// Orders up to there have been handed over.
    delivered_up_to: Seq,
}

impl Orders {
    /// All orders that have not been handed over, the oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Order> {
        self.waiting.iter()
    }

    /// The orders that may be handed over now, the oldest first.
    pub fn deliverable(&self) -> impl Iterator<Item = &Order> {
        self.waiting.iter().take_while(|order| order.seq <= self.safe_up_to)
    }

    /// The last order that has been handed over.
    pub fn delivered_up_to(&self) -> Seq {
        self.delivered_up_to
    }

    /// How many steers wait.
    pub fn steers(&self) -> usize {
        self.waiting.iter().filter(|order| matches!(order.what, OrderKind::Steer(_))).count()
    }

    /// That the orders up to there have been handed over.
    pub(crate) fn delivered(&self, up_to: Seq) -> Fact {
        let orders = self.waiting.iter().map(|order| order.seq).take_while(|seq| *seq <= up_to);
        Fact::Delivered { up_to, orders: orders.collect() }
    }

    /// Whether a pause is among the orders up to there.
    pub(crate) fn pause_by(&self, up_to: Seq) -> bool {
        let mut until = self.waiting.iter().take_while(|order| order.seq <= up_to);
        until.any(|order| matches!(order.what, OrderKind::Pause(_)))
    }

    pub(crate) fn any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The last order that one answer hands over, if any waits: the one that reaches [`DELIVERY_BYTES_MAX`], or the last.
    /// Those after it are handed over with the next answer.
    pub(crate) fn next_delivery(&self) -> Option<Seq> {
        let mut bytes = 0;
        let reaches = |order: &&Order| {
            bytes += order.weight();
            bytes >= DELIVERY_BYTES_MAX
        };
        self.waiting.iter().find(reaches).or(self.waiting.back()).map(|order| order.seq)
    }

    pub(crate) fn push(&mut self, order: Order) {
        self.waiting.push_back(order);
    }

    pub(crate) fn safe_point(&mut self, seq: Seq) {
        self.safe_up_to = self.safe_up_to.max(seq);
    }

    pub(crate) fn deliver(&mut self, up_to: Seq) {
        while self.waiting.front().is_some_and(|order| order.seq <= up_to) {
            self.waiting.pop_front();
        }
        self.delivered_up_to = self.delivered_up_to.max(up_to);
    }

    /// A pause that took effect, or that a report voided, need not be heard of any more.
    pub(crate) fn drop_pause(&mut self) {
        self.waiting.retain(|order| !matches!(order.what, OrderKind::Pause(_)));
    }
}
