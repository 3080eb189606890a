//! What a task makes of a command.

mod across;
mod spend;
mod talk;

use std::collections::BTreeSet;

use crate::charter::{OnDecline, Settlement};
use crate::command::{Answer, Command, Failure, NewQuestion, Progress, Request, TaskAct};
use crate::commitment::Commitment;
use crate::event::{Fact, Question};
use crate::id::{AgentId, Author, Blob, QuestionKey, Seq, Text, Timestamp};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::session::{Binding, Draft, Lifecycle, Session};
use crate::task::{Left, Phase, Report, Task};

/// Why a task that settles by itself was cancelled when nobody was left to take it.
pub const NO_ASSIGNEE: &str = "no_assignee";

/// The code of a failure with which an assignee turned down what it had accepted.
pub const REJECTED: &str = "rejected";

/// What `decide` looks at, in one hand.
struct Scene<'a> {
    session: &'a Session,
    command: &'a Command,
    limits: &'a Limits,
    now: Timestamp,
}

impl Scene<'_> {
    fn binding(&self) -> &Binding {
        &self.session.binding
    }

    fn agent(&self) -> Result<&AgentId, Refusal> {
        self.command.by.agent().ok_or_else(|| Refusal::invalid("expected an agent, found the runtime"))
    }

    fn says(&self, fact: Fact) -> Draft {
        Draft::primary(self.command, fact)
    }

    /// Whoever has no part in the task learns nothing else about it.
    fn must_involve(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.session.involves(agent) {
            Ok(())
        } else {
            Err(Refusal::NotParticipant { agent: agent.clone() })
        }
    }

    /// Who accepts or declines is a participant: those who may only commit are not asked.
    fn must_participate(&self) -> Result<&AgentId, Refusal> {
        let agent = self.agent()?;
        if self.binding().participants.contains(agent) {
            Ok(agent)
        } else {
            Err(Refusal::NotEligible { agent: agent.clone() })
        }
    }

    fn runtime_only(&self) -> Result<(), Refusal> {
        if self.command.by == Author::Runtime { Ok(()) } else { Err(Refusal::NotRuntime) }
    }
}

impl Task {
    pub(crate) fn decide(
        &self,
        session: &Session,
        command: &Command,
        act: &TaskAct,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Vec<Draft>, Refusal> {
        let scene = Scene { session, command, limits, now };
        let drafts = match act {
            TaskAct::Request(request) => self.request(&scene, request),
            TaskAct::Accept { task, assignee, reason } => self.accept(&scene, task, assignee, reason),
            TaskAct::Decline { task, assignee, reason } => self.decline(&scene, task, assignee, reason),
            TaskAct::Update { task, progress, withdraws } => self.update(&scene, task, progress, *withdraws),
            TaskAct::Ask { task, questions, progress } => self.ask(&scene, task, questions, progress),
            TaskAct::Checkpoint => self.checkpoint(&scene),
            TaskAct::Hold { reason } => self.hold(&scene, reason),
            TaskAct::Deliver { up_to } => self.deliver(&scene, *up_to),
            TaskAct::Answer { answers, ignore_unknown, refuse_when_paused } => {
                self.answer(&scene, answers, *ignore_unknown, *refuse_when_paused)
            }
            TaskAct::Steer { text } => self.steer(&scene, text),
            TaskAct::Complete { task, assignee, output, summary } => {
                let fact = Fact::Completed { output: output.clone(), summary: summary.clone() };
                self.report(&scene, task, assignee, fact, scene.binding().charter.on_complete)
            }
            TaskAct::Fail { task, assignee, failure } => {
                let fact = Fact::Failed(failure.clone());
                self.report(&scene, task, assignee, fact, scene.binding().charter.on_fail)
            }
            TaskAct::Say { body, next, check_in } => self.say(&scene, body, next, *check_in),
            TaskAct::Read { up_to } => self.read(&scene, *up_to),
            TaskAct::Acknowledge => self.acknowledge(&scene),
            TaskAct::SetKey { key } => self.set_key(&scene, key),
            TaskAct::CanHandOn { by, to } => self.can_hand_on(&scene, by, to).map(|_| Vec::new()),
            TaskAct::CanHaveChild { by } => self.can_have_child(&scene, by),
            TaskAct::HandOn { handoff, to, by } => self.hand_on(&scene, handoff, to, by),
            TaskAct::AddChild { child } => self.add_child(&scene, child),
            TaskAct::NoteCycle { agents } => self.note_cycle(&scene, agents),
            TaskAct::Reserve { child, depth } => self.reserve(&scene, child, *depth),
            TaskAct::Spend { from, used } => self.spend(&scene, from, used),
        }?;
        self.with_used(&scene, act, drafts)
    }

    /// RFC-MACP-0009 §5 rule 1.
    fn request(&self, scene: &Scene<'_>, request: &Request) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_be_open()?;
        scene.session.must_be_requester(&scene.command.by)?;
        scene.agent()?;
        match &self.phase {
            Phase::Pending => {}
            Phase::Requested { .. }
            | Phase::Working { .. }
            | Phase::Waiting { .. }
            | Phase::Reported { .. } => return Err(Refusal::AlreadyRequested),
        }
        let binding = scene.binding();
        request.check(&binding.participants)?;
        Ok(vec![scene.says(Fact::Requested(request.clone()))])
    }

    /// RFC-MACP-0009 §5 rules 2, 2a, 3, 3a.
    fn accept(
        &self,
        scene: &Scene<'_>,
        task: &Option<Text>,
        assignee: &Option<AgentId>,
        reason: &Text,
    ) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_be_open()?;
        let agent = scene.must_participate()?;
        self.check_task(task)?;
        match &self.phase {
            Phase::Pending => Err(Refusal::NotRequested),
            Phase::Requested { .. } => {
                check_assignee(assignee, agent)?;
                self.may_take(scene.binding(), agent)?;
                Ok(vec![scene.says(Fact::Accepted { reason: reason.clone(), handoff: None })])
            }
            Phase::Working { assignee, .. }
            | Phase::Waiting { assignee, .. }
            | Phase::Reported { assignee, .. } => {
                Err(Refusal::AlreadyAssigned { assignee: assignee.clone() })
            }
        }
    }

    /// RFC-MACP-0009 §5 rules 2, 2a, 3b, 3c.
    fn decline(
        &self,
        scene: &Scene<'_>,
        task: &Option<Text>,
        assignee: &Option<AgentId>,
        reason: &Text,
    ) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_be_open()?;
        let agent = scene.must_participate()?;
        self.check_task(task)?;
        match self.phase.assignee() {
            Some(active) if active != agent => {
                return Err(Refusal::AlreadyAssigned { assignee: active.clone() });
            }
            Some(_) if !scene.binding().charter.reassignment => {
                return self.reject(scene, task, assignee, reason);
            }
            Some(_) | None => {}
        }
        match &self.phase {
            Phase::Pending => return Err(Refusal::NotRequested),
            Phase::Requested { .. } => {
                check_assignee(assignee, agent)?;
                self.may_take(scene.binding(), agent)?;
            }
            Phase::Working { .. } | Phase::Waiting { .. } => check_assignee(assignee, agent)?,
            Phase::Reported { .. } => return Err(Refusal::AlreadyReported),
        }
        let fact = Fact::Declined { reason: reason.clone(), handoff: None };
        let mut drafts = vec![scene.says(fact)];
        drafts.extend(self.after_leaving(scene.session, agent, reason, scene.now));
        Ok(drafts)
    }

    /// Turn down what was accepted, where nobody else could take it: where a decline ends the task that is a failure.
    fn reject(
        &self,
        scene: &Scene<'_>,
        task: &Option<Text>,
        assignee: &Option<AgentId>,
        reason: &Text,
    ) -> Result<Vec<Draft>, Refusal> {
        let charter = &scene.binding().charter;
        if charter.on_decline != OnDecline::FailAtOnce {
            return Err(Refusal::ReassignmentDenied);
        }
        let failure = Failure {
            code: Text::from(REJECTED),
            reason: reason.clone(),
            retryable: false,
            protocol_error: false,
            output: Blob::default(),
        };
        self.report(scene, task, assignee, Fact::Failed(failure), charter.on_fail)
    }

    /// What the charter makes of an agent's leaving, and of a pause that waited for somebody who is gone.
    pub(super) fn after_leaving(
        &self,
        session: &Session,
        agent: &AgentId,
        reason: &Text,
        now: Timestamp,
    ) -> Option<Draft> {
        let binding = &session.binding;
        let mut after = self.clone();
        after.leave(agent, Left::GaveBack);
        match binding.charter.on_decline {
            OnDecline::FailAtOnce => {
                Some(Draft::for_agent(&binding.requester, binding.settlement(false, reason)))
            }
            OnDecline::CancelWhenNobodyLeft if !after.anybody_left(binding) => {
                Some(Draft::runtime(Fact::cancelled(NO_ASSIGNEE)))
            }
            OnDecline::StayOpen | OnDecline::CancelWhenNobodyLeft => {
                self.pause.as_ref().map(|why| Draft::runtime(session.suspended(why, now)))
            }
        }
    }

    /// RFC-MACP-0009 §5 rule 4.
    fn update(
        &self,
        scene: &Scene<'_>,
        task: &Option<Text>,
        progress: &Progress,
        withdraws: bool,
    ) -> Result<Vec<Draft>, Refusal> {
        let mut drafts = self.as_assignee(scene, task)?;
        progress.check()?;
        let withdrawn = if withdraws {
            self.phase.questions().iter().map(|question| question.key.clone()).collect()
        } else {
            Vec::new()
        };
        drafts.push(scene.says(Fact::Updated { progress: progress.clone(), withdrawn }));
        self.safe_point(scene, &mut drafts);
        Ok(drafts)
    }

    fn ask(
        &self,
        scene: &Scene<'_>,
        task: &Option<Text>,
        questions: &[NewQuestion],
        progress: &Progress,
    ) -> Result<Vec<Draft>, Refusal> {
        let mut drafts = self.as_assignee(scene, task)?;
        progress.check()?;
        if questions.is_empty() {
            return Err(Refusal::invalid("expected at least one question, found none"));
        }
        let limit = scene.limits.questions_open_max;
        if self.phase.questions().len() + questions.len() > limit {
            return Err(Refusal::TooManyQuestions { limit });
        }
        let seq = Seq(scene.session.head.0 + drafts.len() as u64 + 1);
        let questions = self.name_questions(seq, questions)?;
        drafts.push(scene.says(Fact::Asked { questions, progress: progress.clone() }));
        self.safe_point(scene, &mut drafts);
        Ok(drafts)
    }

    /// Keys are unique for the task's life; without one a question is called after its sequence number.
    fn name_questions(&self, seq: Seq, questions: &[NewQuestion]) -> Result<Vec<Question>, Refusal> {
        let mut used: BTreeSet<QuestionKey> = BTreeSet::new();
        let mut named = Vec::with_capacity(questions.len());
        for (index, question) in questions.iter().enumerate() {
            let key = match &question.key {
                Some(key) if key.as_str().is_empty() => {
                    return Err(Refusal::invalid("expected the key of a question, found an empty one"));
                }
                Some(key) => key.clone(),
                None => self.unused_key(seq, index, questions),
            };
            if self.keys_used.contains(&key) || !used.insert(key.clone()) {
                return Err(Refusal::QuestionKeyUsed { key });
            }
            named.push(Question {
                key,
                need: question.need,
                text: question.text.clone(),
                schema: question.schema.clone(),
                wire: question.wire.clone(),
            });
        }
        Ok(named)
    }

    /// A question that did not ask for a name is never refused because of one.
    fn unused_key(&self, seq: Seq, index: usize, questions: &[NewQuestion]) -> QuestionKey {
        let first = if index == 0 { format!("q{seq}") } else { format!("q{seq}.{}", index + 1) };
        let later = (2..).map(|number| format!("q{seq}.{}.{number}", index + 1));
        std::iter::once(first)
            .chain(later)
            .map(QuestionKey::from)
            .find(|key| {
                !self.keys_used.contains(key) && questions.iter().all(|other| other.key.as_ref() != Some(key))
            })
            .expect("there are more names than questions")
    }

    fn checkpoint(&self, scene: &Scene<'_>) -> Result<Vec<Draft>, Refusal> {
        let mut drafts = self.as_assignee(scene, &None)?;
        // A safe point at which nothing waits and nothing is learnt need not be remembered, unless it has a name: whoever
        // sends it again is told what came after it.
        let named = scene.command.id.is_some() || !scene.command.used.is_empty();
        if drafts.is_empty() && !self.has_news(scene.binding(), scene.now) && !named {
            return Ok(drafts);
        }
        drafts.push(scene.says(Fact::Checkpointed));
        self.safe_point(scene, &mut drafts);
        Ok(drafts)
    }

    /// Whether something happens at a safe point: an order is handed over, a message acknowledged, a pause begins, or a sign of
    /// life is due.
    pub(crate) fn has_news(&self, binding: &Binding, now: Timestamp) -> bool {
        self.orders.any_waiting()
            || self.conversation.unacknowledged
            || self.pause.is_some()
            || self.owes_sign(binding, now)
    }

    /// Whoever holds its own work is at a safe point, so that nothing has to be waited for.
    fn hold(&self, scene: &Scene<'_>, reason: &Text) -> Result<Vec<Draft>, Refusal> {
        let mut drafts = self.as_assignee(scene, &None)?;
        drafts.push(scene.says(Fact::Checkpointed));
        if let (Some(up_to), true) = (self.orders.next_delivery(), scene.command.takes_orders) {
            drafts.push(Draft::also(scene.command, self.orders.delivered(up_to)));
        }
        drafts.push(Draft::runtime(scene.session.suspended(reason, scene.now)));
        Ok(drafts)
    }

    /// At a safe point the orders are handed over, if the answer can carry them, and a pause takes effect.
    fn safe_point(&self, scene: &Scene<'_>, drafts: &mut Vec<Draft>) {
        if let (Some(up_to), true) = (self.orders.next_delivery(), scene.command.takes_orders) {
            drafts.push(Draft::also(scene.command, self.orders.delivered(up_to)));
        }
        if let Some(why) = &self.pause {
            drafts.push(Draft::runtime(scene.session.suspended(why, scene.now)));
        }
    }

    fn deliver(&self, scene: &Scene<'_>, up_to: Seq) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_be_open()?;
        if let Author::Agent(agent) = &scene.command.by {
            self.must_be_assignee(agent)?;
        }
        if up_to <= self.orders.delivered_up_to() {
            return Ok(Vec::new());
        }
        if !self.orders.deliverable().any(|order| order.seq == up_to) {
            return Err(Refusal::NotDeliverable);
        }
        Ok(vec![scene.says(self.orders.delivered(up_to))])
    }

    fn answer(
        &self,
        scene: &Scene<'_>,
        answers: &[Answer],
        ignore_unknown: bool,
        refuse_when_paused: bool,
    ) -> Result<Vec<Draft>, Refusal> {
        if refuse_when_paused {
            scene.session.must_be_open()?;
        }
        scene.session.must_not_have_ended()?;
        scene.session.must_be_requester(&scene.command.by)?;
        let mut known: Vec<Answer> = Vec::with_capacity(answers.len());
        for answer in answers {
            let open = self.phase.questions().iter().any(|question| question.key == answer.key);
            let twice = known.iter().any(|other| other.key == answer.key);
            if open && !twice {
                known.push(answer.clone());
            } else if !ignore_unknown {
                return Err(Refusal::UnknownQuestion { key: answer.key.clone() });
            }
        }
        if known.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![scene.says(Fact::Answered { answers: known })])
    }

    fn steer(&self, scene: &Scene<'_>, text: &Text) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_not_have_ended()?;
        scene.session.must_be_requester(&scene.command.by)?;
        match &self.phase {
            Phase::Pending => return Err(Refusal::NotRequested),
            Phase::Requested { .. } | Phase::Working { .. } | Phase::Waiting { .. } => {}
            Phase::Reported { .. } => return Err(Refusal::AlreadyReported),
        }
        if text.trim().is_empty() {
            return Err(Refusal::invalid("expected a message to steer by, found nothing"));
        }
        let limit = scene.limits.steers_pending_max;
        if self.orders.steers() >= limit {
            return Err(Refusal::TooManySteers { limit });
        }
        Ok(vec![scene.says(Fact::Steered { text: text.clone() })])
    }

    /// Whether whoever acts works on a task whose charter lets it end a pause.
    fn may_end_pause(&self, scene: &Scene<'_>) -> bool {
        let works = matches!(self.phase, Phase::Working { .. } | Phase::Waiting { .. });
        let agent = scene.command.by.agent();
        scene.binding().charter.ends_pause && works && agent.is_some() && self.phase.assignee() == agent
    }

    /// RFC-MACP-0009 §5 rules 4 and 5.
    fn report(
        &self,
        scene: &Scene<'_>,
        task: &Option<Text>,
        assignee: &Option<AgentId>,
        fact: Fact,
        settlement: Settlement,
    ) -> Result<Vec<Draft>, Refusal> {
        let positive = matches!(fact, Fact::Completed { .. });
        let mut drafts = match &scene.session.lifecycle {
            // A worker that breaks can say so whatever else waits (SEP-2669: paused → failed).
            Lifecycle::Suspended { banked_ms, .. } if !positive && self.may_end_pause(scene) => {
                let reason = Text::from("the assignee ends the task");
                vec![Draft::also(scene.command, Fact::Resumed { reason, banked_ms: *banked_ms })]
            }
            Lifecycle::Open
            | Lifecycle::Suspended { .. }
            | Lifecycle::Resolved { .. }
            | Lifecycle::Expired { .. }
            | Lifecycle::Cancelled { .. } => self.as_assignee(scene, task)?,
        };
        self.check_task(task)?;
        check_assignee(assignee, scene.agent()?)?;
        drafts.extend(self.reported_as(scene, fact, settlement));
        Ok(drafts)
    }

    /// A report, and what the charter makes of it.
    fn reported_as(&self, scene: &Scene<'_>, fact: Fact, settlement: Settlement) -> Vec<Draft> {
        let positive = matches!(fact, Fact::Completed { .. });
        let mut drafts = vec![scene.says(fact)];
        if settlement == Settlement::AtOnce {
            let binding = scene.binding();
            let reason =
                if positive { "the assignee completed the task" } else { "the assignee failed the task" };
            drafts.push(Draft::for_agent(&binding.requester, binding.settlement(positive, reason)));
        }
        drafts
    }

    /// Whether the task can be committed so; says what must be written before the commitment.
    pub(crate) fn check_commit(
        &self,
        binding: &Binding,
        commitment: &Commitment,
    ) -> Result<Vec<Draft>, Refusal> {
        let needs_output = binding.charter.require_output && commitment.positive;
        match &self.phase {
            Phase::Pending => Err(Refusal::NotReported),
            Phase::Requested { .. } => {
                // RFC-MACP-0009 §5 rule 2a: nobody is left when a named assignee has declined. What an assignee gave
                // back waits for the others.
                if !commitment.positive && !self.anybody_left(binding) {
                    Ok(Vec::new())
                } else if binding.charter.commit_completes && commitment.positive {
                    Err(Refusal::NotTakenPart)
                } else {
                    Err(Refusal::NotReported)
                }
            }
            Phase::Working { assignee, .. } | Phase::Waiting { assignee, .. } => {
                if !(binding.charter.commit_completes && commitment.positive) {
                    return Err(Refusal::NotReported);
                }
                let output = self.conversation.last_words.clone().unwrap_or_default();
                if needs_output && output.is_empty() {
                    return Err(Refusal::OutputRequired);
                }
                let fact = Fact::Completed { output, summary: Text::default() };
                Ok(vec![Draft::for_agent(assignee, fact)])
            }
            Phase::Reported { report, .. } => match report {
                Report::Complete { output, .. } if needs_output && output.is_empty() => {
                    Err(Refusal::OutputRequired)
                }
                Report::Fail(_) if needs_output => Err(Refusal::OutputRequired),
                Report::Complete { .. } | Report::Fail(_) => Ok(Vec::new()),
            },
        }
    }

    fn must_be_assignee(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.phase.assignee() == Some(agent) {
            return Ok(());
        }
        self.must_have_no_past(agent)?;
        Err(Refusal::NotAssignee { agent: agent.clone() })
    }

    /// Who had the task before is told what happened to it.
    fn must_have_no_past(&self, agent: &AgentId) -> Result<(), Refusal> {
        match self.declined.get(agent) {
            Some(left) if left.had_it() => {
                Err(Refusal::NoLongerAssignee { agent: agent.clone(), how: left.words() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What everything that the assignee does has in common. Where the charter says that acting accepts, an agent that
    /// may take the task takes it by acting.
    fn as_assignee(&self, scene: &Scene<'_>, task: &Option<Text>) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_be_open()?;
        let agent = scene.agent()?;
        if !scene.binding().participants.contains(agent) {
            return Err(Refusal::NotAssignee { agent: agent.clone() });
        }
        self.check_task(task)?;
        match &self.phase {
            Phase::Pending => Err(Refusal::NotRequested),
            Phase::Requested { .. } => {
                self.must_have_no_past(agent)?;
                if !scene.binding().charter.acting_accepts && !scene.command.accepts {
                    return Err(Refusal::NotAssignee { agent: agent.clone() });
                }
                self.may_take(scene.binding(), agent)?;
                let accepted = Fact::Accepted { reason: Text::default(), handoff: None };
                Ok(vec![Draft::also(scene.command, accepted)])
            }
            Phase::Working { .. } | Phase::Waiting { .. } => {
                self.must_be_assignee(agent)?;
                Ok(Vec::new())
            }
            Phase::Reported { .. } => {
                self.must_be_assignee(agent)?;
                Err(Refusal::AlreadyReported)
            }
        }
    }

    fn check_task(&self, task: &Option<Text>) -> Result<(), Refusal> {
        match (task, self.phase.request()) {
            (Some(found), Some(request)) if *found != request.task => {
                Err(Refusal::WrongTask { expected: request.task.clone(), found: found.clone() })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// Whoever a message names as the assignee is its sender.
fn check_assignee(assignee: &Option<AgentId>, agent: &AgentId) -> Result<(), Refusal> {
    match assignee {
        Some(named) if named != agent => {
            Err(Refusal::invalid(format!("expected the sender {agent} as the assignee, found {named}")))
        }
        Some(_) | None => Ok(()),
    }
}

impl Request {
    pub(crate) fn check(&self, participants: &[AgentId]) -> Result<(), Refusal> {
        if self.task.is_empty() {
            return Err(Refusal::invalid("expected a task id, found nothing"));
        }
        match &self.assignee {
            Some(named) if !participants.contains(named) => {
                Err(Refusal::invalid(format!("expected a participant as the assignee, found {named}")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Progress {
    fn check(&self) -> Result<(), Refusal> {
        match self.done {
            Some(done) if !done.is_finite() || done < 0.0 => {
                Err(Refusal::invalid(format!("expected a progress of 0 or more, found {done}")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Binding {
    /// The commitment that the runtime writes on the requester's behalf.
    pub(super) fn settlement(&self, positive: bool, reason: &str) -> Fact {
        let reason = if reason.trim().is_empty() { "declined" } else { reason };
        let action = if positive { "task.completed" } else { "task.failed" };
        Fact::Committed(Box::new(Commitment {
            commitment: Text::from(format!("handover:{}", self.id)),
            action: Text::from(action),
            scope: Text::from("task"),
            reason: Text::from(reason),
            mode_version: self.versions.mode.clone(),
            policy_version: self.versions.policy.clone(),
            configuration_version: self.versions.configuration.clone(),
            positive,
            supersedes: None,
        }))
    }
}
