//! What a session makes of a command.

use crate::approval::guard;
use crate::budget::NESTED_MAX;
use crate::charter::{Authority, Cancel, Charter, PauseAt};
use crate::command::{
    Act, Command, HandoffAct, ModeKind, Next, Opening, RESERVED_PREFIXES, SecondStart, Start, TaskAct,
};
use crate::commitment::Commitment;
use crate::errand::{PARENT_ENDED, Verdict, What};
use crate::event::{Event, Fact, Started};
use crate::handoff::Handoff;
use crate::id::{AgentId, Author, Face, IdScope, MessageId, Ordinal, Seq, SessionId, Text, Timestamp};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::session::apply::apply;
use crate::session::{Lifecycle, Mode, Receipt, START_AGE_MAX_MS, Session};
use crate::weight::EVENT_BYTES;

/// A fact that was decided and is not yet an event.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    author: Author,
    /// The event that the command's id, bytes and answer belong to.
    primary: bool,
    /// The runtime wrote it, whoever its author is.
    by_runtime: bool,
    at: Option<Timestamp>,
    id: Option<MessageId>,
    fact: Fact,
}

impl Draft {
    /// What the command itself says.
    pub(crate) fn primary(command: &Command, fact: Fact) -> Draft {
        Draft { author: command.by.clone(), primary: true, by_runtime: false, at: None, id: None, fact }
    }

    /// Whether it is what the command itself says.
    pub(crate) fn is_primary(&self) -> bool {
        self.primary
    }

    /// What follows from it, in the sender's name.
    pub(crate) fn also(command: &Command, fact: Fact) -> Draft {
        Draft { primary: false, ..Draft::primary(command, fact) }
    }

    /// What the runtime adds by itself.
    pub(crate) fn runtime(fact: Fact) -> Draft {
        Draft { author: Author::Runtime, primary: false, by_runtime: true, at: None, id: None, fact }
    }

    /// What the runtime adds in an agent's name.
    pub(crate) fn for_agent(agent: &AgentId, fact: Fact) -> Draft {
        Draft { author: Author::Agent(agent.clone()), ..Draft::runtime(fact) }
    }

    /// The event that the command's id and answer belong to, though the runtime wrote it.
    pub(crate) fn of(mut self, command: &Command) -> Draft {
        self.primary = true;
        self.id = command.id.clone();
        self
    }

    pub(crate) fn at(mut self, at: Timestamp) -> Draft {
        self.at = Some(at);
        self
    }

    /// The same of another fact.
    pub(crate) fn saying(self, fact: Fact) -> Draft {
        Draft { fact, ..self }
    }

    /// The same without the command's id, so that that can be used again.
    pub(crate) fn unnamed(self) -> Draft {
        Draft { primary: false, id: None, ..self }
    }

    pub(crate) fn fact(&self) -> &Fact {
        &self.fact
    }

    pub(crate) fn author(&self) -> &Author {
        &self.author
    }

    pub(crate) fn is_by_runtime(&self) -> bool {
        self.by_runtime
    }

    pub(crate) fn with_id(mut self, id: MessageId) -> Draft {
        self.id = Some(id);
        self
    }
}

/// What is made of a command that is not refused outright.
pub(crate) enum Decision {
    New(Vec<Draft>),
    Duplicate {
        seq: Seq,
        at: Timestamp,
    },
    /// It is written down that this was proposed, and the command refused.
    Put(Box<Draft>, Refusal),
}

/// Turn drafts into events and apply them.
pub(super) fn accept(
    slot: &mut Option<Session>,
    id: &SessionId,
    command: &Command,
    drafts: Vec<Draft>,
    now: Timestamp,
    events: &mut Vec<Event>,
) -> Receipt {
    let mut own = None;
    let changed = !drafts.is_empty();
    let mut trace = command.trace.clone();
    let mut orders = Vec::new();
    for draft in drafts {
        let primary = draft.primary;
        if let (Fact::Delivered { up_to, .. }, true, Some(session)) =
            (&draft.fact, command.takes_orders, slot.as_ref())
        {
            orders = session.orders().filter(|order| order.seq <= *up_to).cloned().collect();
        }
        let mut event = number(slot.as_ref(), command, draft, now);
        event.trace = trace.take();
        apply(slot, id, &event);
        if primary {
            own = Some((event.seq, event.at));
        }
        events.push(event);
    }
    let (seq, at) = match (own, slot.as_ref()) {
        (Some(own), _) => own,
        (None, Some(session)) => (session.head, session.last_at),
        (None, None) => (Seq(0), now),
    };
    Receipt { seq, at, duplicate: false, changed, orders }
}

fn number(session: Option<&Session>, command: &Command, draft: Draft, now: Timestamp) -> Event {
    let (head, ordinal, last_at) = match session {
        Some(session) => (session.head, session.ordinal, session.last_at),
        None => (Seq(0), Ordinal(0), Timestamp(0)),
    };
    let by_requester = match (session, draft.author.agent()) {
        (Some(session), Some(agent)) => *agent == session.binding.requester,
        (None, _) | (_, None) => false,
    };
    let (face, id_scope) =
        if draft.by_runtime { (Face::Runtime, IdScope::Runtime) } else { (command.face, command.id_scope) };
    let envelope = draft.fact.is_envelope(by_requester);
    Event {
        seq: head.next(),
        at: draft.at.unwrap_or(now).max(last_at),
        author: draft.author,
        face,
        ordinal: envelope.then_some(Ordinal(ordinal.0 + 1)),
        id: draft.id.or_else(|| if draft.primary { command.id.clone() } else { None }),
        id_scope,
        verbatim: if draft.primary { command.verbatim.clone() } else { None },
        sent_at: if draft.primary { command.sent_at } else { None },
        trace: None,
        fact: draft.fact,
    }
}

impl Session {
    pub(super) fn do_what_is_due(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        let tick = Command::runtime(Act::Tick);
        while let Some((at, drafts)) = self.next_due() {
            if at > now {
                return;
            }
            for draft in drafts {
                let event = number(Some(self), &tick, draft, at);
                self.apply(&event);
                events.push(event);
            }
        }
    }

    pub(super) fn decide(
        &self,
        command: &Command,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        if let Author::Agent(agent) = &command.by
            && !self.involves(agent)
            && command.act.start().is_none()
        {
            return Err(Refusal::NotParticipant { agent: agent.clone() });
        }
        if command.act.start().is_some() && command.second_start == SecondStart::Refused {
            return Err(Refusal::SessionExists);
        }
        check_shape(command, limits)?;
        if command.mode.is_some_and(|mode| mode != self.kind()) {
            return Err(Refusal::WrongMode { expected: self.kind().name() });
        }
        if let Some((seq, at)) = self.seen.get(command) {
            return Ok(Decision::Duplicate { seq, at });
        }
        let drafts = self.decide_new(command, limits, now)?;
        if !drafts.is_empty()
            && !command.always_fits(Some(&self.binding.charter))
            && !self.is_told(command, now)
        {
            self.check_room(drafts.len() as u64, command, limits)?;
        }
        if matches!(command.act, Act::Decide { .. }) {
            // What takes effect so was approved.
            return Ok(Decision::New(drafts));
        }
        guard(self.binding.charter.approvals.as_deref(), Some(self), command, drafts, limits)
    }

    /// Whether a checkpoint hands over or notes what has to be, which comes to an end by itself, and is not only one with a name.
    fn is_told(&self, command: &Command, now: Timestamp) -> bool {
        match (&self.mode, &command.act) {
            (Mode::Task(task), Act::Task(TaskAct::Checkpoint)) => {
                command.takes_orders && task.has_news(&self.binding, now)
            }
            _ => false,
        }
    }

    /// Whether a message came under the id of this command before: it is answered as that was, or refused as another.
    pub fn has_seen(&self, command: &Command) -> bool {
        self.seen.get(command).is_some()
    }

    /// A log has an end, so that a session can always be read again.
    fn check_room(&self, events: u64, command: &Command, limits: &Limits) -> Result<(), Refusal> {
        let Limits { log_events_max, log_bytes_max, .. } = *limits;
        if self.head.0.saturating_add(events) > log_events_max {
            return Err(Refusal::LogFull { limit: log_events_max, unit: "events" });
        }
        let bytes = command.weight() as u64 + events * EVENT_BYTES;
        if self.log_bytes.saturating_add(bytes) > log_bytes_max {
            return Err(Refusal::LogFull { limit: log_bytes_max, unit: "bytes" });
        }
        Ok(())
    }

    fn decide_new(&self, command: &Command, limits: &Limits, now: Timestamp) -> Result<Vec<Draft>, Refusal> {
        match &command.act {
            Act::Start(_) | Act::Delegate(_) => Err(Refusal::SessionExists),
            Act::Tick => Ok(Vec::new()),
            Act::Cancel { reason, keeps_children } => self.decide_cancel(command, reason, *keeps_children),
            Act::Pause { reason, gently } => self.decide_pause(command, reason, *gently, now),
            Act::Resume { reason } => self.decide_resume(command, reason),
            Act::Commit(commitment) => self.decide_commit(command, commitment),
            Act::Decide { proposal, ruling } => self.decide_ruling(command, *proposal, ruling, limits),
            Act::SettleErrand { errand, verdict } => self.decide_settle_errand(command, *errand, verdict),
            Act::Task(act) => match &self.mode {
                Mode::Task(task) => task.decide(self, command, act, limits, now),
                Mode::Handoff(_) => Err(Refusal::WrongMode { expected: ModeKind::Handoff.name() }),
            },
            Act::Handoff(act) => match &self.mode {
                Mode::Handoff(handoff) => handoff.decide(self, command, act, limits),
                Mode::Task(_) => Err(Refusal::WrongMode { expected: ModeKind::Task.name() }),
            },
        }
    }

    pub(super) fn decide_start(
        command: &Command,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let Some(start) = command.act.start() else {
            return Err(Refusal::SessionNotFound);
        };
        check_shape(command, limits)?;
        let Author::Agent(requester) = &command.by else {
            return Err(Refusal::invalid("expected an agent to start a session, found the runtime"));
        };
        start.check(requester, limits)?;
        // A client's clock can neither stretch nor erase a time limit.
        let base = match start.sent_at {
            Some(sent) if sent <= now && now.since(sent) <= START_AGE_MAX_MS => sent,
            Some(_) | None => now,
        };
        let started = Fact::Started(Box::new(Started { start: start.clone(), base }));
        let mut drafts = vec![Draft::primary(command, started)];
        if let Act::Delegate(delegation) = &command.act {
            match (start.mode, &delegation.opening) {
                (ModeKind::Task, Opening::Request(request)) => {
                    request.check(&start.participants)?;
                    drafts.push(Draft::also(command, Fact::Requested(request.clone())));
                }
                (ModeKind::Handoff, Opening::Offer(offer)) => {
                    Handoff::default().check_offer(requester, &start.participants, offer, limits)?;
                    drafts.push(Draft::also(command, offer.offered()));
                    drafts.extend(offer.attached().map(|fact| Draft::also(command, fact)));
                }
                (ModeKind::Task, Opening::Offer(_)) | (ModeKind::Handoff, Opening::Request(_)) => {
                    return Err(Refusal::WrongMode { expected: start.mode.name() });
                }
            }
        }
        guard(start.charter.approvals.as_deref(), None, command, drafts, limits)
    }

    /// Refuses unless the session is open.
    pub(crate) fn must_be_open(&self) -> Result<(), Refusal> {
        match &self.lifecycle {
            Lifecycle::Open => Ok(()),
            Lifecycle::Suspended { .. } => Err(Refusal::SessionSuspended),
            Lifecycle::Resolved { .. } | Lifecycle::Expired { .. } | Lifecycle::Cancelled { .. } => {
                Err(Refusal::SessionEnded { state: self.lifecycle.name() })
            }
        }
    }

    /// Whether the agent could say anything here now: it has a part in the session, and that is open. Of a message that says
    /// nothing which could be decided this is all that is looked at.
    pub fn must_hear(&self, agent: &AgentId) -> Result<(), Refusal> {
        if !self.involves(agent) {
            return Err(Refusal::NotParticipant { agent: agent.clone() });
        }
        self.must_be_open()
    }

    /// Refuses if the session has ended.
    pub(crate) fn must_not_have_ended(&self) -> Result<(), Refusal> {
        match self.must_be_open() {
            Err(Refusal::SessionSuspended) => Ok(()),
            other => other,
        }
    }

    /// Refuses everybody but the requester and the runtime.
    pub(crate) fn must_be_requester(&self, by: &Author) -> Result<(), Refusal> {
        match by {
            Author::Agent(agent) if *agent != self.binding.requester => {
                Err(Refusal::NotRequester { agent: agent.clone() })
            }
            Author::Agent(_) | Author::Runtime => Ok(()),
        }
    }

    /// Whether the charter lets the agent bind the outcome.
    fn is_authority(&self, agent: &AgentId) -> bool {
        match &self.binding.charter.authority {
            Authority::Requester => *agent == self.binding.requester,
            Authority::AnyParticipant => {
                *agent == self.binding.requester || self.binding.participants.contains(agent)
            }
            Authority::Designated(agents) => agents.contains(agent),
        }
    }

    /// Refuses everybody but the requester, those who may bind the outcome, and the runtime (RFC-MACP-0001 §7.5).
    fn must_control(&self, by: &Author) -> Result<(), Refusal> {
        match by.agent() {
            Some(agent) if self.is_authority(agent) => Ok(()),
            Some(_) | None => self.must_be_requester(by),
        }
    }

    fn decide_cancel(
        &self,
        command: &Command,
        reason: &Text,
        keeps_children: bool,
    ) -> Result<Vec<Draft>, Refusal> {
        let receiver = match (&self.binding.charter.cancel, &self.mode, command.by.agent()) {
            (Cancel::EitherParty, Mode::Task(task), Some(agent)) => task.is_receiver(&self.binding, agent),
            (Cancel::EitherParty, Mode::Handoff(_), _) | (Cancel::Requester, _, _) | (_, _, None) => false,
        };
        if !receiver {
            self.must_control(&command.by)?;
        }
        if self.lifecycle.is_terminal() {
            // Cancelling what has ended is no error and changes nothing.
            return Ok(Vec::new());
        }
        let reason = reason.clone();
        Ok(vec![Draft::primary(command, Fact::Cancelled { reason, keeps_children })])
    }

    fn decide_pause(
        &self,
        command: &Command,
        reason: &Text,
        gently: bool,
        now: Timestamp,
    ) -> Result<Vec<Draft>, Refusal> {
        self.must_control(&command.by)?;
        match self.must_be_open() {
            Err(Refusal::SessionSuspended) => return Err(Refusal::AlreadyPaused),
            other => other?,
        }
        let wait = gently || self.binding.charter.pause == PauseAt::SafePoint;
        if let (Mode::Task(task), true) = (&self.mode, wait)
            && task.is_busy()
        {
            if task.pause.is_some() {
                return Ok(Vec::new());
            }
            return Ok(vec![Draft::primary(command, Fact::PauseRequested { reason: reason.clone() })]);
        }
        Ok(vec![Draft::primary(command, self.suspended(reason, now))])
    }

    /// The fact that the session is suspended now.
    pub(crate) fn suspended(&self, reason: &Text, now: Timestamp) -> Fact {
        let banked_ms = self.deadline.map(|deadline| deadline.since(now.max(self.last_at)));
        Fact::Suspended { reason: reason.clone(), banked_ms }
    }

    /// Whether an agent may let a task go on that it holds itself.
    fn holds(&self, by: &Author) -> bool {
        let held = matches!(self.lifecycle, Lifecycle::Suspended { held: true, .. });
        match (&self.mode, by.agent()) {
            (Mode::Task(task), Some(agent)) => {
                held && self.binding.charter.ends_pause && task.phase.assignee() == Some(agent)
            }
            (Mode::Handoff(_), _) | (_, None) => false,
        }
    }

    fn decide_resume(&self, command: &Command, reason: &Text) -> Result<Vec<Draft>, Refusal> {
        if !self.holds(&command.by) {
            self.must_control(&command.by)?;
        }
        match &self.lifecycle {
            Lifecycle::Suspended { banked_ms, .. } => Ok(vec![Draft::primary(
                command,
                Fact::Resumed { reason: reason.clone(), banked_ms: *banked_ms },
            )]),
            Lifecycle::Open => Err(Refusal::NotPaused),
            Lifecycle::Resolved { .. } | Lifecycle::Expired { .. } | Lifecycle::Cancelled { .. } => {
                Err(Refusal::SessionEnded { state: self.lifecycle.name() })
            }
        }
    }

    fn decide_commit(&self, command: &Command, commitment: &Commitment) -> Result<Vec<Draft>, Refusal> {
        self.must_be_open()?;
        let Author::Agent(agent) = &command.by else {
            return Err(Refusal::invalid("expected an agent to commit, found the runtime"));
        };
        if !self.is_authority(agent) {
            return Err(Refusal::NotAuthority { agent: agent.clone() });
        }
        commitment.check(&self.binding.versions)?;
        let mut drafts = match &self.mode {
            Mode::Task(task) => task.check_commit(&self.binding, commitment)?,
            Mode::Handoff(handoff) => handoff.check_commit(commitment)?,
        };
        drafts.push(Draft::primary(command, Fact::Committed(Box::new(commitment.clone()))));
        Ok(drafts)
    }

    fn decide_settle_errand(
        &self,
        command: &Command,
        errand: Seq,
        verdict: &Verdict,
    ) -> Result<Vec<Draft>, Refusal> {
        if command.by != Author::Runtime {
            return Err(Refusal::NotRuntime);
        }
        let Some(owed) = self.errands.iter().find(|owed| owed.id == errand) else {
            return Ok(Vec::new());
        };
        let mut drafts =
            vec![Draft::primary(command, Fact::ErrandSettled { errand, verdict: verdict.clone() })];
        // A subtask whose parent had ended before it could make itself known would outlive its parent's end.
        if let (What::TellParent, Verdict::Refused { .. }, false) =
            (&owed.what, verdict, self.lifecycle.is_terminal())
        {
            drafts.push(Draft::runtime(Fact::cancelled(PARENT_ENDED)));
        }
        Ok(drafts)
    }
}

impl Command {
    /// Whether a full log takes it: what leads to the end of the session, hands over or acknowledges what is in it, or is
    /// the runtime's. None of it can be repeated for ever, so that the log still has an end. A message may be a report, which
    /// only the charter of its session says.
    pub fn always_fits(&self, charter: Option<&Charter>) -> bool {
        let asked = match &self.act {
            Act::Cancel { .. }
            | Act::Resume { .. }
            | Act::Tick
            | Act::Commit(_)
            | Act::Decide { .. }
            | Act::SettleErrand { .. } => true,
            Act::Start(_) | Act::Delegate(_) | Act::Pause { .. } => false,
            Act::Task(act) => match act {
                TaskAct::Complete { .. }
                | TaskAct::Fail { .. }
                | TaskAct::Accept { .. }
                | TaskAct::Decline { .. }
                | TaskAct::Deliver { .. }
                | TaskAct::Read { .. }
                | TaskAct::Acknowledge
                | TaskAct::HandOn { .. }
                | TaskAct::AddChild { .. }
                | TaskAct::NoteCycle { .. } => true,
                // One with a name is remembered each time.
                TaskAct::Checkpoint => self.takes_orders && self.id.is_none() && self.used.is_empty(),
                TaskAct::Say { next: Next::Delivers, .. } => {
                    charter.is_some_and(|charter| charter.delivery_reports())
                }
                TaskAct::Request(_)
                | TaskAct::Update { .. }
                | TaskAct::Ask { .. }
                | TaskAct::Hold { .. }
                | TaskAct::Answer { .. }
                | TaskAct::Steer { .. }
                | TaskAct::Say { .. }
                | TaskAct::SetKey { .. }
                | TaskAct::CanHandOn { .. }
                | TaskAct::CanHaveChild { .. } => false,
                // These come from a whole tree: a log that is full takes no more of them, and then nothing more starts there.
                TaskAct::Reserve { .. } | TaskAct::Spend { .. } => return false,
            },
            Act::Handoff(act) => match act {
                // The answer to an offer is what a report is to a task.
                HandoffAct::Accept { .. } | HandoffAct::Decline { .. } => true,
                HandoffAct::Offer(_) | HandoffAct::Context { .. } => false,
            },
        };
        asked || self.by == Author::Runtime
    }
}

/// What can be said of a command before its session is looked at.
fn check_shape(command: &Command, limits: &Limits) -> Result<(), Refusal> {
    let found = command.weight();
    if found > limits.payload_bytes_max {
        return Err(Refusal::PayloadTooLarge { limit: limits.payload_bytes_max, found });
    }
    if !command.used.is_empty() && !matches!(command.act, Act::Task(_)) {
        return Err(Refusal::nothing_used());
    }
    if let (Some(id), Author::Agent(_)) = (&command.id, &command.by) {
        if id.as_str().is_empty() {
            return Err(Refusal::invalid("expected a message id, found an empty one"));
        }
        if let Some(prefix) = RESERVED_PREFIXES.into_iter().find(|prefix| id.as_str().starts_with(prefix)) {
            return Err(Refusal::ReservedId { prefix });
        }
    }
    Ok(())
}

impl Start {
    /// Whether a session can be started so.
    pub fn check(&self, requester: &AgentId, limits: &Limits) -> Result<(), Refusal> {
        let found = self.participants.len();
        if found > limits.participants_max {
            return Err(Refusal::TooManyParticipants { limit: limits.participants_max, found });
        }
        if found == 0 {
            return Err(Refusal::invalid("expected participants, found none"));
        }
        let mut distinct = std::collections::BTreeSet::new();
        for agent in &self.participants {
            if agent.as_str().is_empty() {
                return Err(Refusal::invalid("expected the id of a participant, found an empty one"));
            }
            if !distinct.insert(agent) {
                return Err(Refusal::invalid(format!("expected distinct participants, found {agent} twice")));
            }
        }
        for (name, value) in
            [("mode_version", &self.mode_version), ("configuration_version", &self.configuration_version)]
        {
            if value.trim().is_empty() {
                return Err(Refusal::invalid(format!("expected a {name}, found nothing")));
            }
        }
        if let Some(found) = self.ttl_ms.filter(|ttl| *ttl == 0 || *ttl > limits.ttl_ms_max) {
            let max = limits.ttl_ms_max;
            return Err(Refusal::invalid(format!(
                "expected a time to live from 1 to {max} ms, found {found}"
            )));
        }
        if let Some(liveness) = self.charter.liveness.as_deref()
            && !(1..=limits.ttl_ms_max).contains(&liveness.window_ms)
        {
            let (max, found) = (limits.ttl_ms_max, liveness.window_ms);
            return Err(Refusal::invalid(format!(
                "expected a window for signs of life from 1 to {max} ms, found {found}"
            )));
        }
        self.check_budget(limits)?;
        if distinct.iter().all(|agent| *agent == requester) {
            return Err(Refusal::invalid("expected a participant other than the requester, found none"));
        }
        match self.mode {
            ModeKind::Handoff if !distinct.contains(requester) => Err(Refusal::invalid(
                "expected the owner among the participants of a handoff, found only others",
            )),
            ModeKind::Task | ModeKind::Handoff => Ok(()),
        }
    }

    fn check_budget(&self, limits: &Limits) -> Result<(), Refusal> {
        if self.under.is_some() && self.parent.is_none() {
            return Err(Refusal::invalid(
                "expected a budget above only above a subtask, found one without a parent",
            ));
        }
        let Some(budget) = &self.charter.budget else { return Ok(()) };
        if self.mode != ModeKind::Task {
            return Err(Refusal::invalid("expected a budget only for a task, found one for a handoff"));
        }
        let nested = self.under.as_ref().map_or(0, |under| under.nested);
        if nested >= NESTED_MAX {
            return Err(Refusal::invalid(format!(
                "expected at most {NESTED_MAX} budgets one within another, found {}",
                nested + 1
            )));
        }
        budget.check(limits)
    }
}
