//! What is counted against a budget: tasks before they start, and what agents say that they have used.

use crate::budget::Amounts;
use crate::command::TaskAct;
use crate::event::Fact;
use crate::id::SessionId;
use crate::refusal::Refusal;
use crate::session::Draft;
use crate::task::Task;
use crate::task::decide::Scene;

impl Task {
    /// A task under the budget counts when it is about to start, once for its id: whoever tries again has its place.
    pub(super) fn reserve(
        &self,
        scene: &Scene<'_>,
        child: &SessionId,
        depth: u32,
    ) -> Result<Vec<Draft>, Refusal> {
        scene.runtime_only()?;
        let budget = scene.binding().budget().ok_or_else(no_budget)?;
        if self.ledger.reserved.contains(child) {
            return Ok(Vec::new());
        }
        scene.session.must_not_have_ended().map_err(|_| Refusal::budget_ended())?;
        self.ledger.must_have_room(budget)?;
        Ok(vec![scene.says(Fact::Reserved { child: child.clone(), depth })])
    }

    /// What was used has been used: it counts whatever is left, and when the root has ended as well.
    pub(super) fn spend(
        &self,
        scene: &Scene<'_>,
        from: &SessionId,
        used: &Amounts,
    ) -> Result<Vec<Draft>, Refusal> {
        scene.runtime_only()?;
        scene.binding().budget().ok_or_else(no_budget)?;
        let spent = scene.says(Fact::Spent { from: from.clone(), used: used.clone() });
        Ok(std::iter::once(spent).chain(self.overspent_by(scene, used)).collect())
    }

    /// What an assignee does, with what it says that it has used for it. Where it is known that a budget is spent, only its
    /// last word may say more.
    pub(super) fn with_used(
        &self,
        scene: &Scene<'_>,
        act: &TaskAct,
        mut drafts: Vec<Draft>,
    ) -> Result<Vec<Draft>, Refusal> {
        let used = &scene.command.used;
        if used.is_empty() {
            return Ok(drafts);
        }
        let ends = match act {
            TaskAct::Complete { .. } | TaskAct::Fail { .. } => true,
            TaskAct::Say { .. } if scene.command.by.agent() == Some(&scene.binding().requester) => {
                return Err(Refusal::nothing_used());
            }
            TaskAct::Update { .. }
            | TaskAct::Ask { .. }
            | TaskAct::Checkpoint
            | TaskAct::Hold { .. }
            | TaskAct::Say { .. } => false,
            TaskAct::Request(_)
            | TaskAct::Accept { .. }
            | TaskAct::Decline { .. }
            | TaskAct::Deliver { .. }
            | TaskAct::Answer { .. }
            | TaskAct::Steer { .. }
            | TaskAct::Read { .. }
            | TaskAct::Acknowledge
            | TaskAct::SetKey { .. }
            | TaskAct::CanHandOn { .. }
            | TaskAct::CanHaveChild { .. }
            | TaskAct::HandOn { .. }
            | TaskAct::AddChild { .. }
            | TaskAct::NoteCycle { .. }
            | TaskAct::Reserve { .. }
            | TaskAct::Spend { .. } => return Err(Refusal::nothing_used()),
        };
        if !ends {
            if let Some(budget) = scene.binding().budget() {
                self.ledger.must_not_be_overspent(budget)?;
            }
            if self.ledger.spent_above {
                return Err(Refusal::spent_above());
            }
        }
        self.ledger.must_take(used)?;
        // Right after the message that says so, and before what the charter makes of that.
        let place = drafts.iter().position(Draft::is_primary).map_or(drafts.len(), |index| index + 1);
        let noted = Draft::also(scene.command, Fact::Used { used: used.clone() });
        drafts.splice(place..place, std::iter::once(noted).chain(self.overspent_by(scene, used)));
        Ok(drafts)
    }

    /// That this is what exceeds a bound, if it is.
    fn overspent_by(&self, scene: &Scene<'_>, used: &Amounts) -> Option<Draft> {
        let budget = scene.binding().budget()?;
        if self.ledger.overspent(budget).is_some() {
            return None;
        }
        let mut after = self.ledger.clone();
        after.spend(Some(budget), used);
        let (name, of, used) = after.overspent(budget)?;
        Some(Draft::runtime(Fact::Overspent { name: name.clone(), of, used }))
    }
}

fn no_budget() -> Refusal {
    Refusal::invalid("expected a task with a budget, found one without")
}
