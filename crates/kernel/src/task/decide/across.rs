//! What spans two sessions: handing a running task on, and subtasks.

use crate::event::Fact;
use crate::id::{AgentId, SessionId, Text};
use crate::refusal::Refusal;
use crate::session::{Binding, Draft, Session};
use crate::task::decide::Scene;
use crate::task::{Phase, Task};

impl Session {
    /// Whether an agent could hand on the task to somebody, as far as that does not depend on whom.
    pub fn could_hand_on(&self, by: &AgentId) -> Result<(), Refusal> {
        if !self.involves(by) {
            return Err(Refusal::NotParticipant { agent: by.clone() });
        }
        self.must_not_have_ended()?;
        let task = self.task().ok_or(Refusal::NotRunning)?;
        task.to_hand_on(&self.binding, by).map(|_| ())
    }

    /// To whom an agent could hand on the task.
    pub fn heirs(&self, by: &AgentId) -> Result<Vec<&AgentId>, Refusal> {
        self.could_hand_on(by)?;
        let Some(task) = self.task() else { return Ok(Vec::new()) };
        let has_it = task.phase.assignee();
        let may = |to: &&AgentId| Some(*to) != has_it && task.may_inherit(&self.binding, to).is_ok();
        Ok(self.binding.participants.iter().filter(may).collect())
    }
}

impl Task {
    /// A running task can be handed on by its assignee or its requester, to a participant that has not declined, where
    /// the charter allows reassignment.
    pub(super) fn can_hand_on(
        &self,
        scene: &Scene<'_>,
        by: &AgentId,
        to: &AgentId,
    ) -> Result<AgentId, Refusal> {
        scene.must_involve(by)?;
        scene.session.must_not_have_ended()?;
        let assignee = self.to_hand_on(scene.binding(), by)?;
        self.may_inherit(scene.binding(), to)?;
        Ok(assignee.clone())
    }

    /// Who has it, if this agent may hand it on, to whomever.
    fn to_hand_on(&self, binding: &Binding, by: &AgentId) -> Result<&AgentId, Refusal> {
        let assignee = match &self.phase {
            Phase::Pending | Phase::Requested { .. } => return Err(Refusal::NotRunning),
            Phase::Working { assignee, .. } | Phase::Waiting { assignee, .. } => assignee,
            Phase::Reported { .. } => return Err(Refusal::AlreadyReported),
        };
        if by != assignee && *by != binding.requester {
            return Err(Refusal::NotAssignee { agent: by.clone() });
        }
        if !binding.charter.reassignment {
            return Err(Refusal::HandOnDenied);
        }
        Ok(assignee)
    }

    fn may_inherit(&self, binding: &Binding, to: &AgentId) -> Result<(), Refusal> {
        if *to == binding.requester || !binding.participants.contains(to) {
            return Err(Refusal::NotEligible { agent: to.clone() });
        }
        if self.declined.contains_key(to) {
            return Err(Refusal::Declined { agent: to.clone() });
        }
        Ok(())
    }

    /// What a committed handoff does to the task that its scope names: the old assignee leaves, the new one accepts. Whoever
    /// offered it must have the right to now: between the offer and its commitment the task may have gone to another agent.
    pub(super) fn hand_on(
        &self,
        scene: &Scene<'_>,
        handoff: &SessionId,
        to: &AgentId,
        by: &AgentId,
    ) -> Result<Vec<Draft>, Refusal> {
        scene.runtime_only()?;
        scene.session.must_be_open()?;
        let from = self.can_hand_on(scene, by, to)?;
        if from == *to {
            return Ok(Vec::new());
        }
        let left = Fact::Declined { reason: Text::from("handed on"), handoff: Some(handoff.clone()) };
        let taken = Fact::Accepted { reason: Text::from("handed on"), handoff: Some(handoff.clone()) };
        Ok(vec![Draft::for_agent(&from, left), Draft::for_agent(to, taken).of(scene.command)])
    }

    /// Subtasks are the requester's and the assignee's to add: they end with the task, and use up its room for them.
    pub(super) fn can_have_child(&self, scene: &Scene<'_>, by: &AgentId) -> Result<Vec<Draft>, Refusal> {
        scene.must_involve(by)?;
        scene.session.must_not_have_ended()?;
        // Where acting accepts, whoever may act may delegate before it says anything else.
        let may_act = scene.binding().charter.acting_accepts && self.is_receiver(scene.binding(), by);
        if *by != scene.binding().requester && !may_act {
            self.must_be_assignee(by)?;
        }
        let limit = scene.limits.children_per_task_max;
        if self.children.len() >= limit {
            return Err(Refusal::TooManyChildren { limit });
        }
        Ok(Vec::new())
    }

    pub(super) fn add_child(&self, scene: &Scene<'_>, child: &SessionId) -> Result<Vec<Draft>, Refusal> {
        scene.runtime_only()?;
        scene.session.must_not_have_ended()?;
        if self.children.iter().any(|(_, known)| known == child) {
            return Ok(Vec::new());
        }
        Ok(vec![scene.says(Fact::ChildAdded { child: child.clone() })])
    }

    /// Agents wait for each other, as whoever looks at all tasks has found.
    pub(super) fn note_cycle(&self, scene: &Scene<'_>, agents: &[AgentId]) -> Result<Vec<Draft>, Refusal> {
        scene.runtime_only()?;
        scene.session.must_be_open()?;
        Ok(vec![scene.says(Fact::CycleFound { agents: agents.to_vec() })])
    }
}
