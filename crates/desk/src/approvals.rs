//! Approvals: what waits for somebody's approval, and what those who are asked do about it.

use std::sync::Arc;

use handover_engine::Accepted;
use handover_kernel::approval::{Approvals, Changes, Proposal, Proposed, Ruling, State};
use handover_kernel::command::{Act, Command};
use handover_kernel::{AgentId, Event, Fact, Refusal, Seq, Session, Timestamp};

use crate::Desk;
use crate::caller::Caller;
use crate::contract::skill_of;
use crate::no::No;

/// Whether an agent proposed something in a session, or decides about it.
pub fn decides(session: &Session, agent: &AgentId) -> bool {
    let approvals = session.binding.charter.approvals.as_ref();
    let asked = || approvals.is_some_and(|approvals| approvals.all().any(|named| named == agent));
    session.binding.requester == *agent || asked()
}

/// Whether a caller may see how something was proposed and decided: who proposed it, who decides, and observers.
pub fn sees_approval(caller: &Caller, session: &Session) -> bool {
    caller.observer || decides(session, &caller.agent)
}

/// Whether an event concerns only those who propose and decide: what came of it is told to the others, not how it was before.
pub(crate) fn conceals(caller: &Caller, session: &Session, event: &Event) -> bool {
    let about = matches!(event.fact, Fact::Proposed { .. } | Fact::Decided { .. });
    about && !sees_approval(caller, session)
}

/// Whether an agent hears of a session only with this event, because its opening needed an approval.
pub fn became_known(session: &Session, event: &Event, agent: &AgentId) -> bool {
    let approvals = session.binding.charter.approvals.as_ref();
    let held_back = approvals.is_some_and(|approvals| !approvals.opening.is_empty());
    let first = session.handoff().and_then(|handoff| handoff.offers.first());
    let opens = if let Fact::Offered { handoff, .. } = &event.fact {
        first.is_some_and(|first| first.handoff == *handoff)
    } else {
        matches!(event.fact, Fact::Requested(_))
    };
    held_back && opens && !decides(session, agent)
}

/// Where the approval of something is, for every face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval<'a> {
    /// What is proposed.
    pub proposal: &'a Proposal,
    /// The word for where it is.
    pub state: &'static str,
    /// The agents whom it would reach.
    pub to: Vec<&'a str>,
    /// The skill that is called.
    pub skill: Option<&'a str>,
    /// Who can decide about it.
    pub waits_for: Vec<&'a str>,
    /// Since when, or when it was proposed that was decided.
    pub since: Timestamp,
    /// Who decided about it.
    pub decided_by: Option<&'a str>,
    /// What that agent said with it.
    pub words: Option<&'a str>,
}

impl<'a> Approval<'a> {
    /// Of what was proposed in a session and has not taken effect.
    pub fn of(session: &'a Session) -> Option<Approval<'a>> {
        let proposal = session.proposal.as_deref()?;
        let (state, decided_by, words) = match &proposal.state {
            State::Open => ("waiting", None, None),
            State::Decided { by, ruling, .. } => {
                (ruling.name(), Some(by.as_str()), ruling.words().map(|words| &**words))
            }
        };
        let waits_for = session.approvers().iter().filter(|agent| **agent != proposal.by);
        let requester = &session.binding.requester;
        let others = session.binding.participants.iter().filter(|agent| *agent != requester);
        Some(Approval {
            proposal,
            state,
            to: others.map(AgentId::as_str).collect(),
            skill: skill_of(session),
            waits_for: waits_for.map(AgentId::as_str).collect(),
            since: proposal.at,
            decided_by,
            words,
        })
    }

    /// In a sentence.
    pub fn sentence(&self) -> String {
        let what = self.proposal.what.name();
        match &self.proposal.state {
            State::Open => format!("the {what} waits for the approval of {}", self.waits_for.join(" or ")),
            State::Decided { by, ruling, .. } => match ruling {
                Ruling::Approved(_) => format!("{by} approved the {what}: it can be sent again"),
                Ruling::ChangesAsked(words) => format!("{by} asked for changes of the {what}: {words}"),
                Ruling::Rejected(words) => format!("{by} rejected the {what}: {words}"),
            },
        }
    }
}

impl Desk {
    /// Bind a session to the approvals that it needs as it starts.
    pub(crate) fn bind_approvals(&self, caller: &Caller, command: &mut Command) -> Result<(), No> {
        let Some(start) = command.act.start_mut() else { return Ok(()) };
        let found = self.approvals.of(&caller.tenant, &caller.agent, start).map_err(|what| {
            let agent = &caller.agent;
            let what = format!(
                "expected somebody to approve {what}, found that the operator's rules name nobody but {agent}"
            );
            self.not_allowed(caller, what)
        })?;
        start.charter.approvals = (found != Approvals::default()).then(|| Arc::new(found));
        Ok(())
    }

    /// Decide about what was proposed in a session.
    pub async fn decide(
        &self,
        caller: &Caller,
        session: &str,
        proposal: u64,
        ruling: Ruling,
        key: Option<&str>,
    ) -> Result<Accepted, No> {
        let mut command = caller.command(Act::Decide { proposal: Seq(proposal), ruling });
        command.id = key.map(Into::into);
        self.put(caller, session, command).await
    }

    /// Propose again, changed, what the caller proposed in a session and was not approved.
    pub async fn propose_again(
        &self,
        caller: &Caller,
        session: &str,
        changes: &Changes,
        key: Option<&str>,
    ) -> Result<Accepted, No> {
        let found = self.session(caller, session).await?;
        let own = found.proposal.as_ref().filter(|proposal| proposal.by == caller.agent);
        let nothing = || Refusal::invalid("expected a proposal of the caller's own to change, found none");
        let changed: Proposed = own.ok_or_else(nothing)?.what.changed(changes)?;
        let act = changed.act();
        self.contracts.check(&self.gate, caller, &act, Some(&found)).await?;
        let mut command = caller.command(act);
        command.id = key.map(Into::into);
        self.put(caller, session, command).await
    }
}
