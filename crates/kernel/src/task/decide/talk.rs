//! The conversation of a task: who may speak, read, acknowledge, and name it.

use crate::conversation::Party;
use crate::event::Fact;
use crate::id::{AgentId, Blob, Millis, Seq, Text};
use crate::refusal::Refusal;
use crate::session::Draft;
use crate::task::decide::Scene;
use crate::task::{Phase, Task};

impl Task {
    pub(super) fn say(
        &self,
        scene: &Scene<'_>,
        body: &Blob,
        awaits_reply: bool,
        check_in_ms: Option<Millis>,
    ) -> Result<Vec<Draft>, Refusal> {
        let agent = scene.agent()?;
        let limit = scene.limits.messages_per_task_max;
        let by_requester = *agent == scene.binding().requester;
        let mut drafts = if by_requester {
            self.check_requester_may_speak(scene)?;
            Vec::new()
        } else {
            self.as_assignee(scene, &None)?
        };
        if self.conversation.messages >= limit {
            return Err(Refusal::TooManyMessages { limit });
        }
        let charter = &scene.binding().charter;
        let answers = match self.phase.questions().first() {
            Some(oldest) if by_requester && charter.message_answers => Some(oldest.key.clone()),
            Some(_) | None => None,
        };
        drafts.push(scene.says(Fact::Said {
            body: body.clone(),
            awaits_reply: awaits_reply && !by_requester,
            answers,
            check_in_ms: if by_requester { check_in_ms.or(charter.check_in_ms) } else { None },
        }));
        // An assignee that begins to wait is at a safe point.
        if awaits_reply && !by_requester {
            self.safe_point(scene, &mut drafts);
        }
        Ok(drafts)
    }

    fn check_requester_may_speak(&self, scene: &Scene<'_>) -> Result<(), Refusal> {
        scene.session.must_not_have_ended()?;
        match &self.phase {
            Phase::Pending => Err(Refusal::NotRequested),
            Phase::Requested { .. } | Phase::Working { .. } | Phase::Waiting { .. } => Ok(()),
            Phase::Reported { .. } => Err(Refusal::AlreadyReported),
        }
    }

    /// Reading gives the other side a receipt. It is allowed in every state: the end must be readable too.
    pub(super) fn read(&self, scene: &Scene<'_>, up_to: Seq) -> Result<Vec<Draft>, Refusal> {
        let agent = scene.agent()?;
        let party = self.must_be_party(scene, agent)?;
        let side = self.conversation.side(party);
        let mut drafts = Vec::new();
        let up_to = up_to.min(scene.session.head);
        if side.unread.iter().any(|seq| *seq <= up_to) {
            drafts.push(scene.says(Fact::Read { up_to }));
        }
        // A reader whose answer carries the orders is at a safe point.
        let working = self.phase.assignee() == Some(agent) && scene.session.must_be_open().is_ok();
        let waits = self.orders.any_waiting() || self.pause.is_some();
        if scene.command.takes_orders && working && waits && !matches!(self.phase, Phase::Reported { .. }) {
            let fact = Fact::Checkpointed;
            drafts.push(if drafts.is_empty() { scene.says(fact) } else { Draft::also(scene.command, fact) });
            self.safe_point(scene, &mut drafts);
        }
        Ok(drafts)
    }

    pub(super) fn acknowledge(&self, scene: &Scene<'_>) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_not_have_ended()?;
        let agent = scene.agent()?;
        match self.must_be_party(scene, agent)? {
            Party::Receiver if self.conversation.awaits_sign() => Ok(vec![scene.says(Fact::Acknowledged)]),
            Party::Receiver | Party::Requester => Ok(Vec::new()),
        }
    }

    pub(super) fn set_key(&self, scene: &Scene<'_>, key: &Option<Text>) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_not_have_ended()?;
        let agent = scene.agent()?;
        let party = self.must_be_party(scene, agent)?;
        if self.conversation.side(party).key == *key {
            return Ok(Vec::new());
        }
        Ok(vec![scene.says(Fact::KeySet { key: key.clone() })])
    }

    fn must_be_party(&self, scene: &Scene<'_>, agent: &AgentId) -> Result<Party, Refusal> {
        self.party(scene.binding(), agent).ok_or_else(|| Refusal::NotEligible { agent: agent.clone() })
    }
}
