//! What callers do: every command of every face goes through here, to the gate and the engine behind it.

use handover_engine::clock::now;
use handover_engine::{Accepted, Denied};
use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, Command, HandoffAct, ModeKind, NewOffer, Opening, Start};
use handover_kernel::handoff::TASK_SCOPE_PREFIX;
use handover_kernel::{AgentId, Refusal, Session, cut, step};
use handover_store::SessionKey;

use crate::Desk;
use crate::access::To;
use crate::caller::{Caller, sees};
use crate::codes;
use crate::contract::Contracts;
use crate::directory::{Agent, Unreached};
use crate::gate::Pass;
use crate::id;
use crate::limit::{Kind, Lane};
use crate::names;
use crate::no::No;
use crate::waiting;

/// How many times what a command carries is in memory while it is on its way.
const COPIES: u64 = 3;

/// Requests with more bytes than this are large.
const LARGE_BYTES: usize = 32 * 1024;

/// How many participants of a session cost as much as a message: each has a row in its inbox.
const PARTICIPANTS_PER_MESSAGE: u64 = 10;

impl Desk {
    /// Put an act to a session of the caller's tenant.
    pub async fn act(&self, caller: &Caller, session: &str, act: Act) -> Result<Accepted, No> {
        self.put(caller, session, caller.command(act)).await
    }

    /// Put a command to a session of the caller's tenant, if it has not put too many.
    pub async fn put(&self, caller: &Caller, session: &str, command: Command) -> Result<Accepted, No> {
        let kind = if command.act.start().is_some() { Kind::Start } else { Kind::Message };
        let pass = self.gate.admit(caller, kind)?;
        self.submit(pass, session, command).await
    }

    /// Put a command that the rates have let through.
    pub async fn submit(&self, pass: Pass<'_>, session: &str, mut command: Command) -> Result<Accepted, No> {
        let act = command.act.name();
        tracing::trace!(agent = %pass.caller().agent, session, act, "let through by the rates");
        let participants = command.act.start().map_or(0, |start| start.participants.len());
        self.gate.charge(pass.caller(), participants as u64 / PARTICIPANTS_PER_MESSAGE);
        if let Err(refusal) = names::check_all(session, &command) {
            if command.act.start().is_none() {
                self.must_hear(pass.caller(), session).await?;
            }
            return Err(refusal.into());
        }
        self.bind_approvals(pass.caller(), &mut command)?;
        self.directory.touch(&pass.caller().tenant, &pass.caller().agent);
        // As it was read, as it is decided and as it is stored, until it is durable.
        let _held = self.gate.hold(pass.caller(), COPIES * command.weight() as u64)?;
        let key = SessionKey::new(pass.caller().tenant.clone(), session);
        self.check_reach(pass.caller(), &key, &command.act).await?;
        self.check_scope(pass.caller(), &command.act).await?;
        let bound = match Contracts::needs_session(&command.act) {
            true => self.engine.session(key.clone()).await?,
            false => None,
        };
        // Whoever may not see the session is told that, and nothing of what it is bound to.
        let seen = bound.filter(|session| sees(pass.caller(), session));
        if !command.always_fits(seen.as_deref().map(|session| &session.binding.charter)) {
            self.must_have_room(pass.caller(), &key, &command).await?;
        }
        // Nor does it matter what a task is bound to that has ended, or that has the message already.
        let is_over = |session: &Session| session.lifecycle.is_terminal() || session.has_seen(&command);
        if !seen.as_deref().is_some_and(is_over) {
            self.contracts.check(&self.gate, pass.caller(), &command.act, seen.as_deref()).await?;
        }
        tracing::trace!(session, act, "fits its contract");
        let takes_orders = command.takes_orders;
        let may_wait = waiting::may_wait(&command.act);
        let owes = matches!(command.act, Act::Commit(_) | Act::Cancel { .. } | Act::Decide { .. })
            || command.act.start().is_some_and(|start| start.parent.is_some())
            || !command.used.is_empty();
        let observer = pass.caller().observer.then(|| pass.caller().agent.clone());
        let submitted = self.gate.submit(pass, key.clone(), command).await;
        if let (Some(agent), Err(Denied::Refused(Refusal::NotParticipant { .. }))) = (observer, &submitted) {
            // It can read the session, so that it need not be told that there is none.
            return Err(only_reads(&agent));
        }
        let mut accepted = submitted.inspect_err(|denied| {
            tracing::trace!(session, act, code = codes::code_of(denied), "not accepted");
        })?;
        let receipt = &accepted.receipt;
        tracing::trace!(
            session,
            act,
            seq = receipt.seq.0,
            duplicate = receipt.duplicate,
            "accepted and durable"
        );
        if takes_orders && accepted.receipt.duplicate {
            accepted.receipt.orders = self.orders_of(&key, &accepted).await?;
        }
        if owes {
            accepted.session = self.when_settled(&key, accepted.session).await?;
        }
        if may_wait && waiting::is_related(&accepted.session) && accepted.receipt.changed {
            self.tell_of_cycle(&key.tenant, &accepted.session).await;
        }
        Ok(accepted)
    }

    /// Whether what a command adds to a session may be stored: whoever started the session pays for it. Only who would be heard
    /// there is told that it may not.
    async fn must_have_room(&self, caller: &Caller, key: &SessionKey, command: &Command) -> Result<(), No> {
        let requester = match command.act.start() {
            Some(_) => Some(caller.agent.clone()),
            None => match self.engine.requester(key) {
                Some(requester) => Some(requester),
                // It is needed in memory in a moment in any case.
                None => {
                    self.engine.session(key.clone()).await?.map(|session| session.binding.requester.clone())
                }
            },
        };
        // That there is no such session is for the engine to say.
        let Some(requester) = requester else { return Ok(()) };
        let Err(limited) = self.gate.may_store(caller, &requester, command.weight() as u64) else {
            return Ok(());
        };
        if command.act.start().is_none() {
            self.must_hear(caller, &key.session).await?;
        }
        Err(limited.into())
    }

    /// Whether the kernel would let the caller do this in a session as it is, or else why not. Nothing comes of it.
    pub fn could(&self, caller: &Caller, session: &Session, act: Act) -> Result<(), No> {
        let command = caller.command(act);
        let mut slot = Some(session.clone());
        let answer = step(&mut slot, &session.binding.id, &command, self.limits(), now()).answer;
        match answer {
            Ok(_) => Ok(()),
            Err(Refusal::NotParticipant { agent }) if caller.observer => Err(only_reads(&agent)),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// To whom the caller could hand the task on, or else why it cannot.
    pub fn heirs(&self, caller: &Caller, session: &Session) -> Result<Vec<AgentId>, No> {
        let heirs = match session.heirs(&caller.agent) {
            Err(Refusal::NotParticipant { agent }) if caller.observer => return Err(only_reads(&agent)),
            heirs => heirs?,
        };
        let access = self.directory.access();
        let (tenant, own) = (&caller.tenant, caller.agent.as_str());
        let reached = |to: &&AgentId| access.allows(tenant, own, To::HandOn, to.as_str());
        Ok(heirs.into_iter().filter(reached).cloned().collect())
    }

    /// Whether a session would hear the caller: asked of what it could make nothing of, so that whoever has no part in it,
    /// or is late, is told that first.
    pub async fn must_hear(&self, caller: &Caller, session: &str) -> Result<(), No> {
        let key = SessionKey::new(caller.tenant.clone(), session);
        let there = self.engine.session(key).await?.ok_or(Refusal::SessionNotFound)?;
        Ok(there.must_hear(&caller.agent)?)
    }

    /// The charter of a session that the caller starts. That it is there already, and what is wrong with the start itself, is
    /// told before that its policy is not there.
    pub async fn charter(&self, caller: &Caller, session: &str, start: &Start) -> Result<Charter, No> {
        match self.policies.charter(&caller.tenant, &start.policy_version, start.mode).await {
            Ok(charter) => Ok(charter),
            Err(denied) => {
                let key = SessionKey::new(caller.tenant.clone(), session);
                if self.engine.session(key).await?.is_some() {
                    return Err(Refusal::SessionExists.into());
                }
                names::check_start(start)?;
                start.check(&caller.agent, self.limits())?;
                Err(denied.into())
            }
        }
    }

    /// Whether the caller may reach those whom a command brings along. What stands in the way of a retry did not when the
    /// command was accepted: it is answered as it was.
    async fn check_reach(&self, caller: &Caller, key: &SessionKey, act: &Act) -> Result<(), No> {
        let (to, agents, meant) = match act {
            Act::Start(start) => (reach_of(start.mode), &start.participants[..], None),
            Act::Delegate(delegation) => {
                let meant = match &delegation.opening {
                    Opening::Request(request) => request.assignee.as_ref(),
                    Opening::Offer(_) => None,
                };
                (reach_of(delegation.start.mode), &delegation.start.participants[..], meant)
            }
            Act::Handoff(HandoffAct::Offer(offer)) => (To::HandOn, std::slice::from_ref(&offer.target), None),
            Act::Cancel { .. }
            | Act::Pause { .. }
            | Act::Resume { .. }
            | Act::Tick
            | Act::Commit(_)
            | Act::Decide { .. }
            | Act::Task(_)
            | Act::Handoff(_)
            | Act::SettleErrand { .. } => return Ok(()),
        };
        let unreached = self.directory.out_of_reach(&caller.tenant, &caller.agent, to, agents, meant).await?;
        let Some(found) = unreached else { return Ok(()) };
        let there = self.engine.session(key.clone()).await?;
        if there.is_some_and(|session| has_begun(&session, caller, act)) {
            return Ok(());
        }
        let found = match found {
            Unreached::Hidden(found) => found,
            Unreached::Undisturbed(agent) => return Err(No::DoNotDisturb { what: undisturbed(&agent) }),
        };
        let what = match to {
            To::HandOn => "hand on to",
            To::See | To::Delegate | To::Register => "delegate to",
        };
        let (agent, found) = (&caller.agent, cut(found.as_str(), 64));
        Err(self.not_allowed(caller, format!("expected agents that {agent} may {what}, found {found:?}")))
    }

    /// Work on a request that brings so many bytes. Large ones, and those of callers who have used much, are worked on in
    /// turns, so that they do not hold up the others.
    pub async fn work_on<F: Future>(&self, lane: Lane, bytes: usize, work: F) -> F::Output {
        if lane == Lane::Fast && bytes <= LARGE_BYTES {
            return work.await;
        }
        self.contracts.checks().in_turns(work).await
    }

    /// Run what may take long on the threads for that, and charge the caller for the steps that it says it took.
    pub async fn run_long<R: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> (R, u64) + Send + 'static,
    ) -> Result<R, No> {
        self.contracts.checks().run(&self.gate, caller, work).await
    }

    /// Whether an offer means what its scope says: one that is nothing but the id of a session would move no task.
    async fn check_scope(&self, caller: &Caller, act: &Act) -> Result<(), No> {
        let Some(scope) = scope_of(act) else { return Ok(()) };
        let known = match id::is_token(scope) && !id::is_uuid(scope) {
            // Words joined by dashes have the shape of an id as well.
            true => self.engine.session(SessionKey::new(caller.tenant.clone(), scope)).await?,
            false => None,
        };
        if !id::is_uuid(scope) && !known.is_some_and(|session| sees(caller, &session)) {
            return Ok(());
        }
        let expected = format!("expected {TASK_SCOPE_PREFIX}{scope} to hand on a task, or a scope in words");
        Err(Refusal::invalid(format!("{expected}, found the id of a task or handoff")).into())
    }
}

/// What is told of an observer that has no part in a task.
fn only_reads(agent: &AgentId) -> No {
    No::NotAllowed { what: format!("{agent} may read this task, and has no part in it") }
}

/// What is told of an agent that takes no new tasks.
fn undisturbed(agent: &Agent) -> String {
    let what =
        format!("expected an agent that takes new tasks, found {:?} in do_not_disturb", cut(&agent.id, 64));
    match agent.status_text.as_str() {
        "" => what,
        text => format!("{what}, which says {text:?}"),
    }
}

/// What an offer covers.
fn scope_of(act: &Act) -> Option<&str> {
    match act {
        Act::Handoff(HandoffAct::Offer(offer)) => Some(&*offer.scope),
        Act::Delegate(delegation) => match &delegation.opening {
            Opening::Offer(offer) => Some(&*offer.scope),
            Opening::Request(_) => None,
        },
        Act::Start(_)
        | Act::Cancel { .. }
        | Act::Pause { .. }
        | Act::Resume { .. }
        | Act::Tick
        | Act::Commit(_)
        | Act::Decide { .. }
        | Act::Task(_)
        | Act::Handoff(_)
        | Act::SettleErrand { .. } => None,
    }
}

/// What starting a session of this mode wants of its participants.
fn reach_of(mode: ModeKind) -> To {
    match mode {
        ModeKind::Task => To::Delegate,
        ModeKind::Handoff => To::HandOn,
    }
}

/// Whether the caller's session, or the offer in it, is there already: the kernel says what it is to be told.
fn has_begun(session: &Session, caller: &Caller, act: &Act) -> bool {
    let made = |offer: &NewOffer| {
        let offers = session.handoff().map_or(&[][..], |handoff| &handoff.offers);
        offers.iter().any(|known| known.handoff == offer.handoff)
    };
    let own = session.binding.requester == caller.agent;
    let begun = match act {
        Act::Start(_) | Act::Delegate(_) => true,
        Act::Handoff(HandoffAct::Offer(offer)) => made(offer),
        Act::Cancel { .. }
        | Act::Pause { .. }
        | Act::Resume { .. }
        | Act::Tick
        | Act::Commit(_)
        | Act::Decide { .. }
        | Act::Task(_)
        | Act::Handoff(_)
        | Act::SettleErrand { .. } => false,
    };
    own && begun
}

/// Whether an agent is the one that works on the session's task.
pub(crate) fn is_assignee(session: &Session, agent: &AgentId) -> bool {
    session.task().and_then(|task| task.phase.assignee()) == Some(agent)
}
