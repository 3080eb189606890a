//! For whom a session waits, and why: what the inboxes show.

use std::collections::BTreeMap;

use handover_kernel::charter::Authority;
use handover_kernel::conversation::Party;
use handover_kernel::handoff::{Handoff, OfferAnswer};
use handover_kernel::session::{Lifecycle, Mode};
use handover_kernel::task::{Phase, Task};
use handover_kernel::{AgentId, Seq, Session, Timestamp};
use handover_store::Waits;

/// Why a session waits for an agent. The numbers are stored: never change one, add a new one, and raise
/// [`crate::index::INDEX_VERSION`] so that the sessions of earlier releases get it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    /// A requested task that the agent may take, unless the session is suspended.
    TaskOffer = 0,
    /// An offer of a responsibility to the agent that it has not answered, unless the session is suspended.
    HandoffOffer = 1,
    /// A task that the agent has accepted and not reported on, suspended or not.
    InHand = 2,
    /// A question for input or for authorization that the agent, being the requester, has not answered.
    Question = 3,
    /// A report, an answered offer, or a task that nobody is left to take: it waits for a commitment that the agent may
    /// make.
    Review = 4,
    /// Something that the agent has not read. To the assignee only where the charter counts notices: elsewhere what the
    /// requester says reaches it as an order, and it never says what it has read.
    Unread = 5,
    /// The other side missed a check-in and has given no sign since; the agent is the requester.
    CheckInMissed = 6,
    /// Orders that the agent, being the assignee, has not been given yet, whether or not they may be handed over now.
    Orders = 7,
    /// The assignee waits for the word of the agent, which is the requester.
    Reply = 8,
    /// An offer of the agent's own that its target has not answered: it waits for another, and can be taken back.
    Offered = 9,
    /// A proposal that the agent may decide about, unless the session is suspended.
    Approval = 10,
    /// A proposal of the agent's own that was not approved: it can propose another.
    Revision = 11,
    /// A proposal of the agent's own that nobody has decided about: it waits for another.
    Proposed = 12,
    /// The assignee has shown no sign of life for too long; the agent is the requester.
    Silent = 13,
}

impl WaitKind {
    /// Every kind.
    pub const ALL: [WaitKind; 14] = [
        WaitKind::TaskOffer,
        WaitKind::HandoffOffer,
        WaitKind::InHand,
        WaitKind::Question,
        WaitKind::Review,
        WaitKind::Unread,
        WaitKind::CheckInMissed,
        WaitKind::Orders,
        WaitKind::Reply,
        WaitKind::Offered,
        WaitKind::Approval,
        WaitKind::Revision,
        WaitKind::Proposed,
        WaitKind::Silent,
    ];

    /// Its bit in the `kinds` of [`Waits`].
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The kinds whose bits are set. Bits of a later release are left out.
    pub fn of(kinds: u32) -> impl Iterator<Item = WaitKind> {
        Self::ALL.into_iter().filter(move |kind| kinds & kind.bit() != 0)
    }
}

/// Everything that decides for whom a session waits, beside its binding and its assignee: while these are the same, so is
/// [`waits`]. Small and without a list of agents, so that it can be compared with every command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Causes {
    /// The kinds for which it waits for anybody.
    kinds: u32,
    /// How many agents declined the task while it is to be taken: who has declined never may take it again.
    declined: usize,
    /// How many offers were made: only the last one can be outstanding.
    offers: usize,
    /// What was proposed last.
    proposal: Option<Seq>,
    requester_unread: bool,
    receiver_unread: bool,
    /// When the requester began to wait for a sign of the other side.
    check_in_missed_since: Option<Timestamp>,
    silent_since: Option<Timestamp>,
}

impl Causes {
    pub(super) fn of(session: &Session) -> Causes {
        let ended = session.lifecycle.is_terminal();
        let open = matches!(session.lifecycle, Lifecycle::Open);
        let mut causes = match &session.mode {
            Mode::Task(task) => Causes::of_task(task, open),
            Mode::Handoff(handoff) => Causes::of_handoff(handoff, open),
        };
        if let Some(proposal) = &session.proposal {
            causes.proposal = Some(proposal.id);
            causes.add(WaitKind::Approval, open && proposal.is_open());
            causes.add(WaitKind::Revision, open && proposal.was_refused());
        }
        if let (Mode::Task(task), true) = (&session.mode, session.binding.charter.notices) {
            causes.receiver_unread = !task.conversation.side(Party::Receiver).unread.is_empty();
        }
        if ended {
            let Causes { requester_unread, receiver_unread, .. } = causes;
            causes = Causes { requester_unread, receiver_unread, ..Causes::default() };
        }
        causes
    }

    fn of_task(task: &Task, open: bool) -> Causes {
        let mut causes = Causes::default();
        match &task.phase {
            Phase::Pending => {}
            Phase::Requested { .. } => {
                causes.declined = task.declined.len();
                causes.add(WaitKind::TaskOffer, open);
            }
            Phase::Working { .. } => causes.add(WaitKind::InHand, true),
            Phase::Waiting { questions, awaits_reply, .. } => {
                causes.add(WaitKind::InHand, true);
                causes.add(WaitKind::Question, !questions.is_empty());
                causes.add(WaitKind::Reply, *awaits_reply);
            }
            Phase::Reported { .. } => causes.add(WaitKind::Review, true),
        }
        causes.check_in_missed_since =
            task.conversation.check_in_missed.as_deref().map(|missed| missed.since);
        causes.add(WaitKind::CheckInMissed, causes.check_in_missed_since.is_some());
        causes.silent_since = task.signs.silent_since;
        causes.add(WaitKind::Silent, causes.silent_since.is_some());
        causes.add(WaitKind::Orders, task.orders.waiting().next().is_some());
        causes.requester_unread = !task.conversation.side(Party::Requester).unread.is_empty();
        causes
    }

    fn of_handoff(handoff: &Handoff, open: bool) -> Causes {
        let mut causes = Causes { offers: handoff.offers.len(), ..Causes::default() };
        match handoff.offers.last().map(|offer| offer.answer) {
            None => {}
            Some(OfferAnswer::Open) => causes.add(WaitKind::HandoffOffer, open),
            Some(OfferAnswer::Accepted { .. } | OfferAnswer::Declined) => causes.add(WaitKind::Review, true),
        }
        causes
    }

    fn add(&mut self, kind: WaitKind, so: bool) {
        if so {
            self.kinds |= kind.bit();
        }
    }

    fn has(&self, kind: WaitKind) -> bool {
        self.kinds & kind.bit() != 0
    }
}

/// Since when a session waits for one of these reasons. What it knows no time of began at the latest when it came to stand as it
/// does.
pub fn since(session: &Session, kind: WaitKind) -> Timestamp {
    let began = match kind {
        WaitKind::Approval | WaitKind::Proposed | WaitKind::Revision => {
            session.proposal.as_ref().map(|proposal| proposal.stands_since())
        }
        WaitKind::CheckInMissed => session
            .task()
            .and_then(|task| task.conversation.check_in_missed.as_deref())
            .map(|missed| missed.since),
        WaitKind::Silent => session.task().and_then(|task| task.signs.silent_since),
        WaitKind::TaskOffer
        | WaitKind::HandoffOffer
        | WaitKind::InHand
        | WaitKind::Question
        | WaitKind::Review
        | WaitKind::Unread
        | WaitKind::Orders
        | WaitKind::Reply
        | WaitKind::Offered => None,
    };
    began.unwrap_or(session.stands_since)
}

/// For whom the session waits, in the order of the agents. A session that has ended only has something to read.
pub fn waits(session: &Session) -> Vec<Waits> {
    let causes = Causes::of(session);
    let mut waits = ByAgent::default();
    match &session.mode {
        Mode::Task(task) => of_task(session, task, causes, &mut waits),
        Mode::Handoff(handoff) => {
            if let (true, Some(offer)) = (causes.has(WaitKind::HandoffOffer), handoff.outstanding()) {
                waits.add(&offer.target, WaitKind::HandoffOffer);
                waits.add(&session.binding.requester, WaitKind::Offered);
            }
        }
    }
    if causes.has(WaitKind::Review) {
        for_review(session, &mut waits);
    }
    if let Some(proposal) = &session.proposal {
        if causes.has(WaitKind::Approval) {
            let others = session.approvers().iter().filter(|agent| **agent != proposal.by);
            others.for_each(|agent| waits.add(agent, WaitKind::Approval));
            waits.add(&proposal.by, WaitKind::Proposed);
        }
        if causes.has(WaitKind::Revision) {
            waits.add(&proposal.by, WaitKind::Revision);
        }
    }
    waits.0.into_iter().map(|(agent, kinds)| Waits { agent: agent.as_str().into(), kinds }).collect()
}

fn of_task<'a>(session: &'a Session, task: &'a Task, causes: Causes, waits: &mut ByAgent<'a>) {
    let binding = &session.binding;
    for kind in [WaitKind::Question, WaitKind::Reply, WaitKind::CheckInMissed, WaitKind::Silent] {
        if causes.has(kind) {
            waits.add(&binding.requester, kind);
        }
    }
    if causes.requester_unread {
        waits.add(&binding.requester, WaitKind::Unread);
    }
    if let Some(assignee) = task.phase.assignee() {
        for kind in [WaitKind::InHand, WaitKind::Orders] {
            if causes.has(kind) {
                waits.add(assignee, kind);
            }
        }
        if causes.receiver_unread {
            waits.add(assignee, WaitKind::Unread);
        }
        return;
    }
    let (offered, unread) = (causes.has(WaitKind::TaskOffer), causes.receiver_unread);
    if !offered && !unread {
        return;
    }
    let mut nobody = true;
    for agent in task.takers(binding) {
        nobody = false;
        if offered {
            waits.add(agent, WaitKind::TaskOffer);
        }
        if unread {
            waits.add(agent, WaitKind::Unread);
        }
    }
    if offered && nobody {
        for_review(session, waits);
    }
}

/// Everybody who may bind the outcome.
fn for_review<'a>(session: &'a Session, waits: &mut ByAgent<'a>) {
    let binding = &session.binding;
    match &binding.charter.authority {
        Authority::Requester => waits.add(&binding.requester, WaitKind::Review),
        Authority::AnyParticipant => {
            waits.add(&binding.requester, WaitKind::Review);
            binding.participants.iter().for_each(|agent| waits.add(agent, WaitKind::Review));
        }
        Authority::Designated(agents) => agents.iter().for_each(|agent| waits.add(agent, WaitKind::Review)),
    }
}

#[derive(Default)]
struct ByAgent<'a>(BTreeMap<&'a AgentId, u32>);

impl<'a> ByAgent<'a> {
    fn add(&mut self, agent: &'a AgentId, kind: WaitKind) {
        *self.0.entry(agent).or_default() |= kind.bit();
    }
}
