//! Handing out work and responsibility: tasks with their contracts, handoffs, and the commitments that settle them.

use std::sync::Arc;

use handover_engine::Accepted;
use handover_kernel::budget::Budget;
use handover_kernel::charter::{Charter, Liveness};
use handover_kernel::command::{
    Act, CheckInTerms, Contract, Delegation, HandoffAct, ModeKind, NewOffer, OfferContext, Opening, Request,
    Start,
};
use handover_kernel::commitment::Commitment;
use handover_kernel::policy::DEFAULT_POLICY;
use handover_kernel::{AgentId, Blob, HandoffId, MessageId, Refusal, Session, SessionId, Text};

use crate::contract::context_of;
use crate::gate::Caller;
use crate::no::No;
use crate::{Desk, id};

/// The version of the modes that sessions are bound to.
pub const MODE_VERSION: &str = "1.0.0";

/// What the sessions of a face are bound to.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Who may do what.
    pub charter: fn() -> Charter,
    /// The policy that describes it.
    pub policy: &'static str,
    /// What the face is called in its sessions' configuration.
    pub configuration: &'static str,
}

/// The work of a task that is about to begin.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Who may do it.
    pub agents: Vec<AgentId>,
    /// Whether those are whoever is there, rather than whom the caller named.
    pub anybody: bool,
    /// Who shall; none means whoever accepts first.
    pub assignee: Option<AgentId>,
    /// The requester's name for it.
    pub task: Text,
    /// In a few words.
    pub title: Text,
    /// What to do.
    pub instructions: Text,
    /// What to do it with.
    pub input: Blob,
    /// The skill that is called, and what it takes and returns.
    pub contract: Option<Arc<Contract>>,
    /// How long it may take.
    pub ttl_ms: Option<u64>,
    /// The task that this one is part of.
    pub parent: Option<SessionId>,
    /// What the requester's client can be asked, as the session remembers it.
    pub able: Vec<Text>,
    /// The requester's name for a context that is kept elsewhere.
    pub context: Text,
    /// How the requester wants to hear that the work was received.
    pub check_in: CheckInTerms,
    /// The requester's own name for the conversation.
    pub session_key: Option<Text>,
    /// The signs of life that are expected of whoever does it.
    pub liveness: Option<Liveness>,
    /// How much it and everything under it may use.
    pub budget: Option<Budget>,
}

/// A responsibility that is offered.
#[derive(Clone, Debug)]
pub struct Responsibility {
    /// To whom.
    pub to: AgentId,
    /// What it covers; `task:<session id>` is a task that the caller works on.
    pub scope: Text,
    /// Why.
    pub reason: Text,
    /// What the other agent should know.
    pub context: Option<OfferContext>,
    /// How long the offer stands.
    pub ttl_ms: Option<u64>,
}

impl Desk {
    /// The id of a session that a call begins: the same whenever it is sent again with its key.
    pub fn new_id(&self, caller: &Caller, key: Option<&str>) -> String {
        match key {
            Some(key) => self.secret.derive(&[&caller.tenant, caller.agent.as_str(), key]),
            None => id::unguessable(),
        }
    }

    /// Begin the task of this id. Sent again with its key, it finds the task that it began; another call with that key is
    /// refused.
    pub async fn delegate(
        &self,
        caller: &Caller,
        id: &str,
        key: Option<&str>,
        profile: &Profile,
        work: Work,
    ) -> Result<Accepted, No> {
        let budget = work.budget.map(Arc::new);
        let charter = Charter { liveness: work.liveness.map(Box::new), budget, ..(profile.charter)() };
        let skill = work.contract.as_ref().map(|contract| context_of(&contract.skill));
        let start = Start {
            participants: work.agents,
            intent: Text::from(&*work.title),
            context_id: skill.map_or(work.context, Text::from),
            extension_keys: work.able,
            ttl_ms: work.ttl_ms,
            parent: work.parent,
            contract: work.contract,
            ..start(ModeKind::Task, charter, profile.policy, profile.configuration)
        };
        let request = Request {
            task: work.task,
            title: work.title,
            instructions: work.instructions,
            assignee: work.assignee,
            input: work.input,
            wanted_by: None,
            check_in: work.check_in,
            session_key: work.session_key,
        };
        let named = (!work.anybody).then(|| start.participants.clone());
        let begun = Delegation { start, opening: Opening::Request(request) };
        let mut command = caller.command(Act::Delegate(Box::new(begun)));
        command.id = key.map(MessageId::from);
        let accepted = self.put(caller, id, command).await?;
        // Whom the caller did not choose may have come or gone since.
        let others = named.is_some_and(|named| named[..] != accepted.session.binding.participants[..]);
        if accepted.receipt.duplicate && others {
            return Err(Refusal::DuplicateMessage.into());
        }
        Ok(accepted)
    }

    /// Offer a responsibility, with what the other agent should know: all of it happens, or nothing.
    pub async fn offer(
        &self,
        caller: &Caller,
        key: Option<&str>,
        configuration: &str,
        offered: Responsibility,
    ) -> Result<Accepted, No> {
        let id = self.new_id(caller, key);
        let offer = NewOffer {
            handoff: HandoffId::from(id.as_str()),
            target: offered.to.clone(),
            scope: offered.scope.clone(),
            reason: offered.reason,
            context: offered.context,
        };
        let start = Start {
            participants: vec![caller.agent.clone(), offered.to],
            intent: offered.scope,
            ttl_ms: offered.ttl_ms,
            ..start(ModeKind::Handoff, Charter::macp(), DEFAULT_POLICY, configuration)
        };
        let begun = Delegation { start, opening: Opening::Offer(offer) };
        let mut command = caller.command(Act::Delegate(Box::new(begun)));
        command.id = key.map(MessageId::from);
        self.put(caller, &id, command).await
    }

    /// Answer the last offer of a handoff. Sent again with its key, it has no second effect.
    pub async fn answer_offer(
        &self,
        caller: &Caller,
        session: &str,
        accept: bool,
        reason: Text,
        key: Option<&str>,
    ) -> Result<Accepted, No> {
        let found = self.handoff(caller, session).await?;
        let last = found.handoff().and_then(|handoff| handoff.offers.last());
        let nothing = || Refusal::invalid("nothing was offered in this handoff yet");
        let handoff = last.ok_or_else(nothing)?.handoff.clone();
        let act = match accept {
            true => HandoffAct::Accept { handoff, by: None, reason, implicit: false },
            false => HandoffAct::Decline { handoff, by: None, reason },
        };
        let mut command = caller.command(Act::Handoff(act));
        command.id = key.map(MessageId::from);
        self.put(caller, session, command).await
    }

    /// Bind the outcome of a session, under the versions that it is bound to. Sent again with its key, it has no second effect.
    pub async fn commit(
        &self,
        caller: &Caller,
        session: &Session,
        positive: bool,
        reason: Text,
        key: Option<&str>,
    ) -> Result<Accepted, No> {
        let commitment = self.commitment(caller, session, positive, reason, key);
        let mut command = caller.command(Act::Commit(Box::new(commitment)));
        command.id = key.map(MessageId::from);
        self.put(caller, session.binding.id.as_str(), command).await
    }

    /// What binds the outcome of a session, under the versions that it is bound to.
    pub fn commitment(
        &self,
        caller: &Caller,
        session: &Session,
        positive: bool,
        reason: Text,
        key: Option<&str>,
    ) -> Commitment {
        let (action, scope) = match (session.kind(), positive) {
            (ModeKind::Task, true) => ("task.completed", "task"),
            (ModeKind::Task, false) => ("task.failed", "task"),
            (ModeKind::Handoff, true) => ("handoff.accepted", "handoff"),
            (ModeKind::Handoff, false) => ("handoff.declined", "handoff"),
        };
        let versions = &session.binding.versions;
        Commitment {
            commitment: Text::from(self.new_id(caller, key)),
            action: Text::from(action),
            scope: Text::from(scope),
            reason,
            mode_version: versions.mode.clone(),
            policy_version: versions.policy.clone(),
            configuration_version: versions.configuration.clone(),
            positive,
            supersedes: None,
        }
    }
}

fn start(mode: ModeKind, charter: Charter, policy: &str, configuration: &str) -> Start {
    Start {
        mode,
        participants: Vec::new(),
        charter,
        mode_version: Text::from(MODE_VERSION),
        configuration_version: Text::from(configuration),
        policy_version: Text::from(policy),
        ttl_ms: None,
        sent_at: None,
        intent: Text::default(),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: None,
        contract: None,
        under: None,
    }
}
