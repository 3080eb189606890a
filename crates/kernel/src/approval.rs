//! What needs somebody's approval before it takes effect: the request of a task, the offers of a handoff, a commitment.
//!
//! What was proposed, what was decided about it, and what took effect are facts of their own. A session has one proposal
//! at a time: another one takes its place.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{Act, Command, HandoffAct, NewOffer, OfferContext, Request, TaskAct};
use crate::commitment::Commitment;
use crate::event::{Event, Fact};
use crate::id::{AgentId, Author, Blob, MessageId, Seq, Text, Timestamp};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::session::{Decision, Draft, Lifecycle, Mode, Session};
use crate::task::Phase;

/// Why a session was cancelled whose opening was not approved.
pub const NOT_APPROVED: &str = "not_approved";

/// The beginning of the runtime's id of an event that took effect because it was approved; its proposal follows.
const APPROVED_ID: &str = "handover:approved:";

/// Whose approval a session needs for what; nobody's if a list is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvals {
    /// For the request of a task, or the offers of a handoff. Until then nobody else knows of the session.
    pub opening: Vec<AgentId>,
    /// For a commitment. A failure that the charter settles by itself needs none.
    pub commitment: Vec<AgentId>,
}

/// What is to take effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proposed {
    /// The work of a task.
    Request(Request),
    /// An offer of a responsibility.
    Offer(NewOffer),
    /// An outcome.
    Commitment(Commitment),
}

/// What was proposed last and has not taken effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The event that proposed it.
    pub id: Seq,
    /// When that was.
    pub at: Timestamp,
    /// Who proposed it.
    pub by: AgentId,
    /// What is to take effect, with the changes that it was approved with.
    pub what: Arc<Proposed>,
    /// Whether it takes effect when it is approved. Else its sender was refused, and sends it again.
    pub held: bool,
    /// What became of it.
    pub state: State,
    /// How many were proposed without effect, this one among them.
    pub tries: u32,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nobody has decided.
    Open,
    /// Somebody has.
    Decided {
        /// Who.
        by: AgentId,
        /// What.
        ruling: Ruling,
        /// When.
        at: Timestamp,
    },
}

/// What an approver decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ruling {
    /// It may take effect, as it is or changed.
    Approved(Changes),
    /// It may not as it is: whoever proposed it may propose it changed.
    ChangesAsked(Text),
    /// It may not.
    Rejected(Text),
}

/// What an approver changes; what is not said stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say all")]
pub struct Changes {
    pub title: Option<Text>,
    pub instructions: Option<Text>,
    pub input: Option<Blob>,
    pub reason: Option<Text>,
}

impl Ruling {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Ruling::Approved(changes) if *changes == Changes::default() => "approved",
            Ruling::Approved(_) => "approved_with_changes",
            Ruling::ChangesAsked(_) => "changes_asked",
            Ruling::Rejected(_) => "rejected",
        }
    }

    /// What the approver says with it.
    pub fn words(&self) -> Option<&Text> {
        match self {
            Ruling::Approved(_) => None,
            Ruling::ChangesAsked(words) | Ruling::Rejected(words) => Some(words),
        }
    }
}

impl Proposed {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Proposed::Request(_) => "request",
            Proposed::Offer(_) => "offer",
            Proposed::Commitment(_) => "commitment",
        }
    }

    /// Whether this is the same, whatever its sender calls it.
    fn is(&self, other: &Proposed) -> bool {
        match (self, other) {
            (Proposed::Commitment(one), Proposed::Commitment(other)) => {
                let unnamed = |what: &Commitment| Commitment { commitment: Text::default(), ..what.clone() };
                unnamed(one) == unnamed(other)
            }
            (Proposed::Request(_) | Proposed::Offer(_) | Proposed::Commitment(_), _) => self == other,
        }
    }

    /// The act that would bring it about.
    pub fn act(&self) -> Act {
        match self.clone() {
            Proposed::Request(request) => Act::Task(TaskAct::Request(Box::new(request))),
            Proposed::Offer(offer) => Act::Handoff(HandoffAct::Offer(offer)),
            Proposed::Commitment(commitment) => Act::Commit(Box::new(commitment)),
        }
    }

    /// The same with these changes. Each kind has fields of its own.
    pub fn changed(&self, changes: &Changes) -> Result<Proposed, Refusal> {
        let Changes { title, instructions, input, reason } = changes;
        let only = |fields: &str, others: &[(&str, bool)]| match others.iter().find(|(_, said)| *said) {
            Some((field, _)) => Err(Refusal::invalid(format!(
                "expected changes of {fields} for a {}, found {field}",
                self.name()
            ))),
            None => Ok(()),
        };
        let of_request = [
            ("title", title.is_some()),
            ("instructions", instructions.is_some()),
            ("input", input.is_some()),
        ];
        Ok(match self {
            Proposed::Request(request) => {
                only("title, instructions and input", &[("reason", reason.is_some())])?;
                Proposed::Request(Request {
                    title: title.as_ref().unwrap_or(&request.title).clone(),
                    instructions: instructions.as_ref().unwrap_or(&request.instructions).clone(),
                    input: input.as_ref().unwrap_or(&request.input).clone(),
                    ..request.clone()
                })
            }
            Proposed::Offer(offer) => {
                only("reason", &of_request)?;
                let reason = reason.as_ref().unwrap_or(&offer.reason).clone();
                Proposed::Offer(NewOffer { reason, ..offer.clone() })
            }
            Proposed::Commitment(commitment) => {
                only("reason", &of_request)?;
                let reason = reason.as_ref().unwrap_or(&commitment.reason).clone();
                Proposed::Commitment(Commitment { reason, ..commitment.clone() })
            }
        })
    }
}

impl Approvals {
    /// Whose approval this needs.
    pub fn of(&self, what: &Proposed) -> &[AgentId] {
        match what {
            Proposed::Request(_) | Proposed::Offer(_) => &self.opening,
            Proposed::Commitment(_) => &self.commitment,
        }
    }

    /// Everybody who may approve something.
    pub fn all(&self) -> impl Iterator<Item = &AgentId> {
        self.opening.iter().chain(&self.commitment)
    }
}

/// Whether an event took effect because somebody approved it.
pub fn was_approved(event: &Event) -> bool {
    event.is_by_runtime() && event.id.as_ref().is_some_and(|id| id.as_str().starts_with(APPROVED_ID))
}

impl Proposal {
    /// What makes this event the proposal of its session.
    pub(crate) fn of(
        before: Option<&Proposal>,
        event: &Event,
        what: &Proposed,
        held: bool,
    ) -> Option<Proposal> {
        let Author::Agent(by) = &event.author else { return None };
        Some(Proposal {
            id: event.seq,
            at: event.at,
            by: by.clone(),
            what: Arc::new(what.clone()),
            held,
            state: State::Open,
            tries: before.map_or(0, |before| before.tries).saturating_add(1),
        })
    }

    pub(crate) fn apply(&mut self, by: &AgentId, ruling: &Ruling, at: Timestamp) {
        if let Ruling::Approved(changes) = ruling
            && let Ok(changed) = self.what.changed(changes)
        {
            self.what = Arc::new(changed);
        }
        self.state = State::Decided { by: by.clone(), ruling: ruling.clone(), at };
    }

    /// Whether somebody has said no to it as it is.
    pub fn was_refused(&self) -> bool {
        matches!(&self.state, State::Decided { ruling: Ruling::ChangesAsked(_) | Ruling::Rejected(_), .. })
    }

    /// Since when it stands as it does: proposed, or decided about.
    pub fn stands_since(&self) -> Timestamp {
        match self.state {
            State::Open => self.at,
            State::Decided { at, .. } => at,
        }
    }

    /// Whether nobody has decided about it.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }
}

/// What drafts would bring about that can need an approval, and where that stands among them.
fn proposed(drafts: &[Draft]) -> Option<(usize, Proposed)> {
    let found = |(at, draft): (usize, &Draft)| {
        let next = drafts.get(at + 1).map(Draft::fact);
        Some((at, would_effect(draft, next)?))
    };
    drafts.iter().enumerate().find_map(found)
}

fn would_effect(draft: &Draft, next: Option<&Fact>) -> Option<Proposed> {
    if let Fact::Requested(request) = draft.fact() {
        return Some(Proposed::Request(request.clone()));
    }
    if let Fact::Committed(commitment) = draft.fact() {
        let counts = commitment.positive || !draft.is_by_runtime();
        return counts.then(|| Proposed::Commitment(Commitment::clone(commitment)));
    }
    let Fact::Offered { handoff, target, scope, reason } = draft.fact() else { return None };
    let context = match next {
        Some(Fact::ContextAdded { content_type, body, .. }) => {
            Some(OfferContext { content_type: content_type.clone(), body: body.clone() })
        }
        Some(_) | None => None,
    };
    let (handoff, target) = (handoff.clone(), target.clone());
    let (scope, reason) = (scope.clone(), reason.clone());
    Some(Proposed::Offer(NewOffer { handoff, target, scope, reason, context }))
}

/// Put aside what needs an approval and has none.
pub(crate) fn guard(
    approvals: Option<&Approvals>,
    session: Option<&Session>,
    command: &Command,
    mut drafts: Vec<Draft>,
    limits: &Limits,
) -> Result<Decision, Refusal> {
    let Some((at, what)) = approvals.and_then(|_| proposed(&drafts)) else {
        return Ok(Decision::New(drafts));
    };
    if approvals.is_none_or(|approvals| approvals.of(&what).is_empty()) {
        return Ok(Decision::New(drafts));
    }
    let by = drafts[at].author().clone();
    let known = session.and_then(|session| session.proposal.as_deref());
    let own = drafts[at].is_primary();
    // What the command itself says is put aside whole; what follows from it leaves what it follows from.
    let kept = if own { 0 } else { at };
    let same = known.filter(|known| Author::Agent(known.by.clone()) == by && known.what.is(&what));
    match same.map(|known| (known.id, &known.state)) {
        Some((_, State::Decided { ruling: Ruling::Approved(_), .. })) => return Ok(Decision::New(drafts)),
        Some((proposal, State::Decided { ruling, .. })) if own => {
            let words = ruling.words().cloned().unwrap_or_default();
            return Err(Refusal::NotApproved { proposal, how: ruling.name(), words });
        }
        Some((proposal, State::Open)) if own && !command.held => {
            return Err(Refusal::ApprovalNeeded { proposal });
        }
        Some((_, State::Open)) => {
            drafts.truncate(kept);
            return Ok(Decision::New(drafts));
        }
        Some((_, State::Decided { .. })) | None => {}
    }
    let limit = limits.proposals_max;
    if known.is_some_and(|known| known.tries as usize >= limit) {
        return Err(Refusal::TooManyProposals { limit });
    }
    let held = command.held || !own;
    let draft = drafts.swap_remove(at).saying(Fact::Proposed { what: Box::new(what), held });
    drafts.truncate(kept);
    if held {
        drafts.push(draft);
        return Ok(Decision::New(drafts));
    }
    let head = session.map_or(Seq(0), |session| session.head);
    // Its id stays free, so that it can be sent again.
    Ok(Decision::Put(Box::new(draft.unnamed()), Refusal::ApprovalNeeded { proposal: head.next() }))
}

impl Session {
    /// Whether nobody but the requester and those who decide about it know of the session: its opening was not approved.
    pub fn is_held_back(&self) -> bool {
        let approvals = self.binding.charter.approvals.as_ref();
        let unopened = match &self.mode {
            Mode::Task(task) => matches!(task.phase, Phase::Pending),
            Mode::Handoff(handoff) => handoff.offers.is_empty(),
        };
        unopened && approvals.is_some_and(|approvals| !approvals.opening.is_empty())
    }

    /// The work that the session is for, be it only proposed.
    pub fn wanted(&self) -> Option<&Request> {
        let requested = self.task().and_then(|task| task.phase.request()).map(|request| &**request);
        requested.or_else(|| match &*self.proposal.as_ref()?.what {
            Proposed::Request(request) => Some(request),
            Proposed::Offer(_) | Proposed::Commitment(_) => None,
        })
    }

    /// Whether the session ended because its opening was rejected; the reason of a cancellation alone may be anybody's.
    pub fn was_not_approved(&self) -> bool {
        let rejected = |proposal: &Proposal| {
            matches!(proposal.state, State::Decided { ruling: Ruling::Rejected(_), .. })
        };
        matches!(&self.lifecycle, Lifecycle::Cancelled { reason, .. } if **reason == *NOT_APPROVED)
            && self.is_held_back()
            && self.proposal.as_deref().is_some_and(rejected)
    }

    /// Who is asked to decide about the open proposal.
    pub fn approvers(&self) -> &[AgentId] {
        match (&self.proposal, &self.binding.charter.approvals) {
            (Some(proposal), Some(approvals)) if proposal.is_open() => approvals.of(&proposal.what),
            (Some(_) | None, _) => &[],
        }
    }

    pub(crate) fn decide_ruling(
        &self,
        command: &Command,
        proposal: Seq,
        ruling: &Ruling,
        limits: &Limits,
    ) -> Result<Vec<Draft>, Refusal> {
        self.must_be_open()?;
        let agent =
            command.by.agent().ok_or_else(|| Refusal::invalid("expected an agent, found the runtime"))?;
        let approvals = self.binding.charter.approvals.as_ref();
        let found = self.proposal.as_deref().filter(|found| found.id == proposal);
        let (Some(found), Some(approvals)) = (found, approvals) else {
            return Err(Refusal::NoProposal { proposal });
        };
        // Nobody decides about what it proposed itself.
        if !approvals.of(&found.what).contains(agent) || found.by == *agent {
            return Err(Refusal::NotApprover { agent: agent.clone() });
        }
        if let State::Decided { by, ruling, .. } = &found.state {
            return Err(Refusal::AlreadyDecided { by: by.clone(), how: ruling.name() });
        }
        let fact = Fact::Decided { proposal, ruling: ruling.clone() };
        let mut drafts = vec![Draft::primary(command, fact)];
        match ruling {
            Ruling::Approved(changes) => {
                let what = found.what.changed(changes)?;
                if found.held {
                    drafts.extend(self.effect(found, what, limits)?);
                }
            }
            Ruling::ChangesAsked(words) | Ruling::Rejected(words) if words.trim().is_empty() => {
                return Err(Refusal::invalid(
                    "expected what is asked for or why it is rejected, found nothing",
                ));
            }
            Ruling::ChangesAsked(_) => {}
            Ruling::Rejected(_) if self.is_held_back() => {
                drafts.push(Draft::also(command, Fact::cancelled(NOT_APPROVED)));
            }
            Ruling::Rejected(_) => {}
        }
        Ok(drafts)
    }

    /// What a proposal brings about now, if it still can.
    fn effect(&self, proposal: &Proposal, what: Proposed, limits: &Limits) -> Result<Vec<Draft>, Refusal> {
        let binding = &self.binding;
        let (mut drafts, facts) = match (what, &self.mode) {
            (Proposed::Request(request), Mode::Task(_)) => {
                request.check(&binding.participants)?;
                (Vec::new(), vec![Fact::Requested(request)])
            }
            (Proposed::Offer(offer), Mode::Handoff(handoff)) => {
                handoff.check_offer(&binding.requester, &binding.participants, &offer, limits)?;
                (Vec::new(), [offer.offered()].into_iter().chain(offer.attached()).collect())
            }
            (Proposed::Commitment(commitment), mode) => {
                let before = match mode {
                    Mode::Task(task) => task.check_commit(binding, &commitment)?,
                    Mode::Handoff(handoff) => handoff.check_commit(&commitment)?,
                };
                (before, vec![Fact::Committed(Box::new(commitment))])
            }
            (Proposed::Request(_), Mode::Handoff(_)) | (Proposed::Offer(_), Mode::Task(_)) => {
                return Err(Refusal::WrongMode { expected: self.kind().name() });
            }
        };
        let id = MessageId::from(format!("{APPROVED_ID}{}", proposal.id));
        drafts.extend(facts.into_iter().enumerate().map(|(at, fact)| {
            let draft = Draft::for_agent(&proposal.by, fact);
            if at == 0 { draft.with_id(id.clone()) } else { draft }
        }));
        Ok(drafts)
    }
}
