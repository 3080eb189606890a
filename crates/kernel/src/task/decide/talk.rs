//! The conversation of a task: who may speak, read, acknowledge, and name it.

use crate::command::{CheckInTerms, Need, NewQuestion, Next, Progress};
use crate::conversation::Party;
use crate::event::Fact;
use crate::id::{AgentId, Blob, Seq, Text};
use crate::refusal::Refusal;
use crate::session::Draft;
use crate::task::decide::Scene;
use crate::task::{Phase, Task};

impl Task {
    pub(super) fn say(
        &self,
        scene: &Scene<'_>,
        body: &Blob,
        next: &Next,
        check_in: CheckInTerms,
    ) -> Result<Vec<Draft>, Refusal> {
        let charter = &scene.binding().charter;
        let by_requester = *scene.agent()? == scene.binding().requester;
        if by_requester {
            self.check_requester_may_speak(scene)?;
            // What happens next is for whoever works to say.
            if *next != Next::AsBefore {
                return Err(Refusal::NotAssignee { agent: scene.agent()?.clone() });
            }
        }
        match next {
            Next::Delivers if charter.delivery_reports() => {
                let mut drafts = self.as_assignee(scene, &None)?;
                let delivered = Fact::Completed { output: body.clone(), summary: Text::default() };
                drafts.extend(self.reported_as(scene, delivered, charter.on_complete));
                return Ok(drafts);
            }
            Next::Asks { need, text, schema }
                if *need == Need::Authorization || !schema.is_empty() || !charter.message_answers =>
            {
                let (need, text, schema) = (*need, text.clone(), schema.clone());
                let question = NewQuestion { key: None, need, text, schema, wire: None };
                return self.ask(scene, &None, &[question], &Progress::default());
            }
            Next::AsBefore | Next::Works | Next::Asks { .. } | Next::Delivers => {}
        }
        let mut drafts = if by_requester { Vec::new() } else { self.as_assignee(scene, &None)? };
        let limit = scene.limits.messages_per_task_max;
        if self.conversation.messages >= limit {
            return Err(Refusal::TooManyMessages { limit });
        }
        let answers = match self.phase.questions().first() {
            Some(oldest) if by_requester && charter.message_answers => Some(oldest.key.clone()),
            Some(_) | None => None,
        };
        let awaits_reply = matches!(next, Next::Asks { .. } | Next::Delivers);
        drafts.push(scene.says(Fact::Said {
            body: body.clone(),
            awaits_reply,
            works: *next == Next::Works,
            answers,
            check_in: if by_requester { charter.check_in(check_in) } else { CheckInTerms::default() },
        }));
        // An assignee that begins to wait, or says that it goes on, is at a safe point.
        if awaits_reply || *next == Next::Works {
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
        // A reader whose answer carries the orders is at a safe point. That it has read them says nothing about whether it
        // works on them.
        let working = self.phase.assignee() == Some(agent) && scene.session.must_be_open().is_ok();
        let takes = scene.command.takes_orders && working && !matches!(self.phase, Phase::Reported { .. });
        let ordered = self.orders.waiting().map(|order| order.seq).take_while(|seq| *seq <= up_to).last();
        let last = ordered.filter(|_| takes);
        let new_order = party == Party::Receiver && ordered.is_some_and(|seq| seq > side.read_up_to);
        if last.is_some() || new_order || side.unread.iter().any(|seq| *seq <= up_to) {
            drafts.push(scene.says(Fact::Read { up_to, safe_point: last.is_some() }));
        }
        if let Some(last) = last {
            drafts.push(Draft::also(scene.command, self.orders.delivered(last)));
            if let (Some(why), true) = (&self.pause, self.orders.pause_by(last)) {
                drafts.push(Draft::runtime(scene.session.suspended(why, scene.now)));
            }
        }
        Ok(drafts)
    }

    pub(super) fn acknowledge(&self, scene: &Scene<'_>) -> Result<Vec<Draft>, Refusal> {
        scene.session.must_not_have_ended()?;
        let agent = scene.agent()?;
        match self.must_be_party(scene, agent)? {
            Party::Receiver if self.conversation.unacknowledged => Ok(vec![scene.says(Fact::Acknowledged)]),
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
