//! What an event makes of a session.

use crate::approval::Proposal;
use crate::command::ModeKind;
use crate::commitment::Versions;
use crate::errand::{BUDGET_SPENT, Errand, Verdict, What};
use crate::event::{Event, Fact, Started};
use crate::id::{Author, Millis, Ordinal, Seq, SessionId, Timestamp};
use crate::seen::Seen;
use crate::session::{Activities, Binding, Lifecycle, Mode, Session};
use std::sync::Arc;

/// Apply one event. Never refuses: a stored event can always be replayed. An event out of place is a bug.
pub fn apply(slot: &mut Option<Session>, id: &SessionId, event: &Event) {
    match (slot.as_mut(), &event.fact) {
        (None, Fact::Started(started)) => *slot = Some(Session::begin(id, event, started)),
        (Some(session), _) => session.apply(event),
        (None, _) => panic!("event {} of session {id} comes before its start", event.seq),
    }
}

impl Session {
    fn begin(id: &SessionId, event: &Event, started: &Started) -> Session {
        let Started { start, base } = started;
        let Author::Agent(requester) = event.author.clone() else {
            panic!("session {id} was started by the runtime");
        };
        let binding = Binding {
            id: id.clone(),
            requester,
            face: event.face,
            participants: start.participants.as_slice().into(),
            charter: start.charter.clone(),
            versions: Versions {
                mode: start.mode_version.clone(),
                configuration: start.configuration_version.clone(),
                policy: start.policy_version.clone(),
            },
            created_at: event.at,
            base: *base,
            intent: start.intent.clone(),
            context_id: start.context_id.clone(),
            extension_keys: start.extension_keys.clone().into(),
            parent: start.parent.clone(),
            contract: start.contract.clone(),
            under: start.under.clone(),
        };
        let errands = start
            .parent
            .iter()
            .map(|parent| Errand { id: event.seq, to: parent.clone(), what: What::TellParent })
            .collect();
        let mut session = Session {
            lifecycle: Lifecycle::Open,
            deadline: start.ttl_ms.map(|ttl| base.plus(ttl)).into_iter().chain(binding.until()).min(),
            ended_at: None,
            suspended_ms: 0,
            head: Seq(0),
            log_bytes: 0,
            ordinal: Ordinal(0),
            last_at: event.at,
            activity: Activities::default(),
            errands,
            proposal: None,
            stands_since: event.at,
            mode: match start.mode {
                ModeKind::Task => Mode::Task(Box::default()),
                ModeKind::Handoff => Mode::Handoff(Box::default()),
            },
            seen: Seen::default(),
            binding: Arc::new(binding),
        };
        session.note(event);
        session
    }

    pub(super) fn apply(&mut self, event: &Event) {
        let (before, place) = (self.standing(), self.place());
        self.note(event);
        let binding = Arc::clone(&self.binding);
        match &event.fact {
            Fact::Started(_) => panic!("session {} starts twice", binding.id),
            Fact::Cancelled { reason, keeps_children } => {
                self.lifecycle = Lifecycle::Cancelled { by: event.author.clone(), reason: reason.clone() };
                if let (Mode::Task(task), false) = (&self.mode, keeps_children) {
                    self.errands.extend(task.children.iter().map(|(added, child)| Errand {
                        id: *added,
                        to: child.clone(),
                        what: What::CancelChild,
                    }));
                }
            }
            Fact::Suspended { banked_ms, reason } => {
                let (since, banked_ms, reason) = (event.at, *banked_ms, reason.clone());
                // The runtime suspends what its assignee holds, and what somebody else has asked to be paused.
                let asked = match &self.mode {
                    Mode::Task(task) => task.pause.is_some(),
                    Mode::Handoff(_) => true,
                };
                let held = event.author == Author::Runtime && !asked;
                self.lifecycle = Lifecycle::Suspended { since, banked_ms, reason, held };
            }
            Fact::Resumed { banked_ms, .. } => self.resume(event.at, *banked_ms),
            Fact::Expired { cause } => self.lifecycle = Lifecycle::Expired { cause: *cause },
            Fact::Committed(commitment) => {
                self.lifecycle = Lifecycle::Resolved { commitment: commitment.clone() };
                if let Mode::Handoff(handoff) = &self.mode {
                    self.errands.extend(handoff.errand(&binding.requester, event.seq, commitment));
                }
            }
            Fact::ErrandSettled { errand, verdict } => {
                let handed_on =
                    |owed: &Errand| owed.id == *errand && matches!(owed.what, What::HandOn { .. });
                if let (Mode::Handoff(handoff), true) = (&mut self.mode, self.errands.iter().any(handed_on)) {
                    handoff.moved = Some(verdict.clone());
                }
                let spent = |owed: &Errand| owed.id == *errand && matches!(owed.what, What::Spend { .. });
                if let (Mode::Task(task), true) = (&mut self.mode, self.errands.iter().any(spent)) {
                    task.ledger.spent_above |=
                        matches!(verdict, Verdict::Refused { code } if **code == *BUDGET_SPENT);
                }
                self.errands.retain(|owed| owed.id != *errand);
            }
            Fact::Proposed { what, held } => {
                let proposal = Proposal::of(self.proposal.as_deref(), event, what, *held);
                self.proposal = proposal.map(Box::new);
            }
            Fact::Decided { ruling, .. } => {
                if let (Some(proposal), Some(by)) = (&mut self.proposal, event.author.agent()) {
                    proposal.apply(by, ruling, event.at);
                }
            }
            Fact::Used { used } | Fact::Spent { used, .. } => {
                if let Some(under) = &binding.under {
                    let (to, what) = (under.root.clone(), What::Spend { used: used.clone() });
                    self.errands.push(Errand { id: event.seq, to, what });
                }
            }
            Fact::Requested(_)
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
            | Fact::KeySet { .. }
            | Fact::ChildAdded { .. }
            | Fact::CycleFound { .. }
            | Fact::Offered { .. }
            | Fact::ContextAdded { .. }
            | Fact::OfferAccepted { .. }
            | Fact::OfferDeclined { .. }
            | Fact::Reserved { .. }
            | Fact::Overspent { .. } => {}
        }
        if matches!(event.fact, Fact::Requested(_) | Fact::Offered { .. } | Fact::Committed(_)) {
            self.proposal = None;
        }
        if self.lifecycle.is_terminal() && self.ended_at.is_none() {
            self.ended_at = Some(event.at);
        }
        match &mut self.mode {
            Mode::Task(task) => task.apply(&binding, event),
            Mode::Handoff(handoff) => handoff.apply(event),
        }
        if self.place() != place {
            self.stands_since = event.at;
        }
        if binding.charter.notices
            && self.standing() != before
            && let Mode::Task(task) = &mut self.mode
        {
            task.notice(&binding, event);
        }
    }

    /// What every event changes, whatever it says.
    fn note(&mut self, event: &Event) {
        assert_eq!(event.seq, self.head.next(), "session {} has a hole in its log", self.binding.id);
        self.head = event.seq;
        self.log_bytes = self.log_bytes.saturating_add(event.weight());
        self.last_at = event.at;
        if let Some(ordinal) = event.ordinal {
            self.ordinal = ordinal;
        }
        self.seen.insert(event);
        let started = matches!(event.fact, Fact::Started(_));
        if let (Some(_), Author::Agent(agent), false) =
            (event.ordinal, &event.author, started || event.is_by_runtime())
        {
            self.activity.note(agent, event.at);
        }
    }

    fn resume(&mut self, at: Timestamp, banked_ms: Option<Millis>) {
        if let Lifecycle::Suspended { since, .. } = self.lifecycle {
            let span = at.since(since);
            self.suspended_ms += span;
            match &mut self.mode {
                Mode::Task(task) => task.conversation.shift(since, at),
                Mode::Handoff(handoff) => handoff.shift(span),
            }
        }
        self.lifecycle = Lifecycle::Open;
        self.deadline = banked_ms.map(|left| at.plus(left)).into_iter().chain(self.binding.until()).min();
    }
}
