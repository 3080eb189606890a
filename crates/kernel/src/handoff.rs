//! The handoff mode: serial offers, at most one outstanding, then a commitment.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::charter::Charter;
use crate::command::{Command, HandoffAct, NewOffer, OfferContext};
use crate::commitment::Commitment;
use crate::errand::{Errand, Verdict, What};
use crate::event::{Event, Fact};
use crate::id::{AgentId, HandoffId, MessageId, Millis, Seq, SessionId, Text, Timestamp};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::session::{Draft, Session, Standing};

/// A scope that begins so names a running task.
pub const TASK_SCOPE_PREFIX: &str = "task:";

/// One handoff.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Every offer, the oldest first. Only the last one can be open or accepted.
    pub offers: Vec<Offer>,
    /// What came of handing on the task that the accepted offer names, once that is known.
    pub moved: Option<Verdict>,
    declined: BTreeSet<AgentId>,
}

/// One offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name, unique in its session.
    pub handoff: HandoffId,
    /// The one agent that may answer it.
    pub target: AgentId,
    /// What it covers.
    pub scope: Text,
    /// When it was made; later by the time that the session was suspended since.
    pub offered_at: Timestamp,
    /// How many times context was attached.
    pub contexts: u32,
    /// What came of it.
    pub answer: OfferAnswer,
}

/// What came of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfferAnswer {
    /// Nothing yet.
    Open,
    /// The target took it.
    Accepted {
        /// Whether the runtime took it for the target, its time being up.
        implicit: bool,
    },
    /// The target turned it down.
    Declined,
}

/// The task that a scope names, if it names one.
pub fn task_of_scope(scope: &str) -> Option<SessionId> {
    scope.strip_prefix(TASK_SCOPE_PREFIX).filter(|id| !id.is_empty()).map(SessionId::from)
}

impl NewOffer {
    pub(crate) fn offered(&self) -> Fact {
        Fact::Offered {
            handoff: self.handoff.clone(),
            target: self.target.clone(),
            scope: self.scope.clone(),
            reason: self.reason.clone(),
        }
    }

    pub(crate) fn attached(&self) -> Option<Fact> {
        self.context.as_ref().map(|OfferContext { content_type, body }| Fact::ContextAdded {
            handoff: self.handoff.clone(),
            content_type: content_type.clone(),
            body: body.clone(),
        })
    }
}

impl Handoff {
    /// The offer that waits for its answer.
    pub fn outstanding(&self) -> Option<&Offer> {
        self.offers.last().filter(|offer| offer.answer == OfferAnswer::Open)
    }

    /// The offer that was accepted.
    pub fn accepted(&self) -> Option<&Offer> {
        self.offers.last().filter(|offer| matches!(offer.answer, OfferAnswer::Accepted { .. }))
    }

    /// Where it stands, the session being open.
    pub fn standing(&self) -> Standing {
        match self.offers.last().map(|offer| offer.answer) {
            None => Standing::Pending,
            Some(OfferAnswer::Open) => Standing::Requested,
            Some(OfferAnswer::Accepted { .. }) => Standing::ReportedComplete,
            Some(OfferAnswer::Declined) => Standing::ReportedFail,
        }
    }

    /// RFC-MACP-0010 §5.1: an offer that nobody answered in time is accepted for its target.
    pub(crate) fn next_due(&self, charter: &Charter) -> Option<(Timestamp, Draft)> {
        let offer = self.outstanding()?;
        let due = offer.offered_at.plus(charter.implicit_accept_ms?);
        let fact =
            Fact::OfferAccepted { handoff: offer.handoff.clone(), reason: Text::default(), implicit: true };
        let id = MessageId::from(format!("implicit-accept:{}", offer.handoff));
        Some((due, Draft::for_agent(&offer.target, fact).at(due).with_id(id)))
    }

    pub(crate) fn decide(
        &self,
        session: &Session,
        command: &Command,
        act: &HandoffAct,
        limits: &Limits,
    ) -> Result<Vec<Draft>, Refusal> {
        session.must_be_open()?;
        let agent =
            command.by.agent().ok_or_else(|| Refusal::invalid("expected an agent, found the runtime"))?;
        if !session.binding.participants.contains(agent) {
            return Err(Refusal::NotParticipant { agent: agent.clone() });
        }
        let mut context = None;
        let fact = match act {
            HandoffAct::Offer(offer) => {
                session.must_be_requester(&command.by)?;
                let binding = &session.binding;
                self.check_offer(&binding.requester, &binding.participants, offer, limits)?;
                context = offer.attached();
                offer.offered()
            }
            HandoffAct::Context { handoff, content_type, body } => {
                self.offer(handoff)?;
                session.must_be_requester(&command.by)?;
                Fact::ContextAdded {
                    handoff: handoff.clone(),
                    content_type: content_type.clone(),
                    body: body.clone(),
                }
            }
            HandoffAct::Accept { handoff, by, reason, implicit } => {
                if *implicit {
                    return Err(Refusal::invalid(
                        "expected implicit = false, found true: only the server may set it",
                    ));
                }
                self.check_answer(handoff, by, agent)?;
                Fact::OfferAccepted { handoff: handoff.clone(), reason: reason.clone(), implicit: false }
            }
            HandoffAct::Decline { handoff, by, reason } => {
                self.check_answer(handoff, by, agent)?;
                Fact::OfferDeclined { handoff: handoff.clone(), reason: reason.clone() }
            }
        };
        let mut drafts = vec![Draft::primary(command, fact)];
        drafts.extend(context.map(|fact| Draft::also(command, fact)));
        Ok(drafts)
    }

    /// RFC-MACP-0010 §5 rules 1, 3a, 5.
    pub(crate) fn check_offer(
        &self,
        requester: &AgentId,
        participants: &[AgentId],
        offer: &NewOffer,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let NewOffer { handoff, target, scope, .. } = offer;
        if handoff.as_str().is_empty() {
            return Err(Refusal::invalid("expected a handoff id, found nothing"));
        }
        if target == requester || !participants.contains(target) {
            return Err(Refusal::invalid(format!(
                "expected a participant other than the owner as the target, found {:?}",
                target.as_str()
            )));
        }
        if scope.strip_prefix(TASK_SCOPE_PREFIX).is_some_and(|id| id.trim().is_empty()) {
            return Err(Refusal::invalid(format!(
                "expected the id of a task after {TASK_SCOPE_PREFIX}, found nothing"
            )));
        }
        if self.offers.iter().any(|offer| offer.handoff == *handoff) {
            return Err(Refusal::HandoffIdUsed { handoff: handoff.clone() });
        }
        match self.offers.last().map(|offer| offer.answer) {
            Some(OfferAnswer::Open) => return Err(Refusal::OfferOutstanding),
            Some(OfferAnswer::Accepted { .. }) => return Err(Refusal::OfferAccepted),
            Some(OfferAnswer::Declined) | None => {}
        }
        if self.declined.contains(target) {
            return Err(Refusal::TargetDeclined { agent: target.clone() });
        }
        let limit = limits.offers_per_handoff_max;
        if self.offers.len() >= limit {
            return Err(Refusal::TooManyOffers { limit });
        }
        Ok(())
    }

    /// RFC-MACP-0010 §5 rules 2, 3, 4.
    fn check_answer(
        &self,
        handoff: &HandoffId,
        by: &Option<AgentId>,
        agent: &AgentId,
    ) -> Result<(), Refusal> {
        let offer = self.offer(handoff)?;
        if offer.target != *agent {
            return Err(Refusal::NotTarget { agent: agent.clone() });
        }
        if let Some(named) = by.as_ref().filter(|named| *named != agent) {
            return Err(Refusal::invalid(format!("expected the sender {agent}, found {named}")));
        }
        match offer.answer {
            OfferAnswer::Open => Ok(()),
            OfferAnswer::Accepted { .. } | OfferAnswer::Declined => {
                Err(Refusal::OfferClosed { handoff: handoff.clone() })
            }
        }
    }

    fn offer(&self, handoff: &HandoffId) -> Result<&Offer, Refusal> {
        self.offers
            .iter()
            .find(|offer| offer.handoff == *handoff)
            .ok_or_else(|| Refusal::UnknownHandoff { handoff: handoff.clone() })
    }

    /// Whether there is something to commit: an offer that was answered. While another one is outstanding, only the
    /// failure of those before it can be.
    pub(crate) fn check_commit(&self, commitment: &Commitment) -> Result<Vec<Draft>, Refusal> {
        match self.offers.last().map(|offer| offer.answer) {
            None => Err(Refusal::NotAnswered),
            Some(OfferAnswer::Open) if self.offers.len() == 1 => Err(Refusal::NotAnswered),
            Some(OfferAnswer::Open) if commitment.positive => Err(Refusal::OfferOutstanding),
            Some(OfferAnswer::Open | OfferAnswer::Accepted { .. } | OfferAnswer::Declined) => Ok(Vec::new()),
        }
    }

    /// What a commitment makes the session owe: the task that the accepted offer named gets its new assignee.
    pub(crate) fn errand(&self, owner: &AgentId, committed: Seq, commitment: &Commitment) -> Option<Errand> {
        let offer = self.accepted().filter(|_| commitment.positive)?;
        let task = task_of_scope(&offer.scope)?;
        // Only the owner of a handoff offers.
        let what = What::HandOn { to: offer.target.clone(), by: owner.clone() };
        Some(Errand { id: committed, to: task, what })
    }

    /// Time in which the session was suspended does not count.
    pub(crate) fn shift(&mut self, by: Millis) {
        if let Some(offer) = self.offers.last_mut().filter(|offer| offer.answer == OfferAnswer::Open) {
            offer.offered_at = offer.offered_at.plus(by);
        }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match &event.fact {
            Fact::Offered { handoff, target, scope, .. } => self.offers.push(Offer {
                handoff: handoff.clone(),
                target: target.clone(),
                scope: scope.clone(),
                offered_at: event.at,
                contexts: 0,
                answer: OfferAnswer::Open,
            }),
            Fact::ContextAdded { handoff, .. } => {
                if let Some(offer) = self.offers.iter_mut().find(|offer| offer.handoff == *handoff) {
                    offer.contexts += 1;
                }
            }
            Fact::OfferAccepted { implicit, .. } => {
                self.settle_last(OfferAnswer::Accepted { implicit: *implicit });
            }
            Fact::OfferDeclined { .. } => {
                if let Some(offer) = self.offers.last() {
                    self.declined.insert(offer.target.clone());
                }
                self.settle_last(OfferAnswer::Declined);
            }
            Fact::Started(_)
            | Fact::Cancelled { .. }
            | Fact::Suspended { .. }
            | Fact::Resumed { .. }
            | Fact::Expired { .. }
            | Fact::Committed(_)
            | Fact::ErrandSettled { .. }
            | Fact::Requested(_)
            | Fact::Accepted { .. }
            | Fact::Declined { .. }
            | Fact::Updated { .. }
            | Fact::Asked { .. }
            | Fact::Checkpointed
            | Fact::Delivered { .. }
            | Fact::Answered { .. }
            | Fact::Steered { .. }
            | Fact::PauseRequested { .. }
            | Fact::Completed { .. }
            | Fact::Failed(_)
            | Fact::Said { .. }
            | Fact::Read { .. }
            | Fact::Acknowledged
            | Fact::CheckInMissed { .. }
            | Fact::FellSilent { .. }
            | Fact::CycleFound { .. }
            | Fact::Proposed { .. }
            | Fact::Decided { .. }
            | Fact::KeySet { .. }
            | Fact::ChildAdded { .. }
            | Fact::Reserved { .. }
            | Fact::Used { .. }
            | Fact::Spent { .. }
            | Fact::Overspent { .. } => {}
        }
    }

    fn settle_last(&mut self, answer: OfferAnswer) {
        if let Some(offer) = self.offers.last_mut() {
            offer.answer = answer;
        }
    }
}
