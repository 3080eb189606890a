//! How a task looks to a model: where it is, in one word for each state, and what to call next.

use handover_desk::answerable;
use handover_desk::approvals::sees_approval;
use handover_desk::calendar::rfc3339;
use handover_desk::state::{State, Wait, waits_for};
use handover_desk::{gate, timeline};
use handover_kernel::command::Act;
use handover_kernel::session::Standing;
use handover_kernel::{Session, Text};
use serde_json::{Map, Value, json};

use super::{EVERYTHING, WAITED_FOR_MAX};
use crate::face::mcp::caller::Caller;
use crate::face::mcp::task::{Shown, asker, word};
use crate::face::mcp::{Mcp, question};
use crate::face::{approval, budget};

/// What the model is told whose user has the question already.
pub(in crate::face::mcp) const USER_ASKED: &str = "your user has been asked: call task_wait with this task_id and do not \
    answer yourself; if your user tells you the answer, pass it on with task_answer";

impl Mcp {
    /// Where a task is, as a list shows it.
    fn row(&self, caller: &Caller, session: &Session, shown: &Shown<'_>) -> Value {
        let mut row = json!({
            "task_id": shown.task_id,
            "status": word(session, shown.status),
            "state": State::of(session).name(),
            "title": session.wanted().map(|request| request.title.to_string()),
            "requester": session.binding.requester.as_str(),
            "created_at": shown.created_at,
            "updated_at": shown.last_updated_at,
        });
        if let Some(assignee) = session.task().and_then(|task| task.phase.assignee()) {
            row["assignee"] = json!(assignee.as_str());
        }
        if let Some(message) = &shown.status_message {
            row["message"] = json!(message);
        }
        // For whose approval it waits is told to those who may see that.
        let told = |wait: &Wait| wait.what != "approval" || sees_approval(&caller.who, session);
        if let Some(wait) = waits_for(session).filter(told) {
            let agents = wait.agents.iter().take(WAITED_FOR_MAX).map(|agent| agent.as_str());
            let agents: Vec<&str> = agents.collect();
            row["waits_for"] = json!({ "what": wait.what, "agents": agents, "since": rfc3339(wait.since) });
        }
        row
    }

    /// A task in a list.
    pub(super) fn listed(&self, caller: &Caller, session: &Session) -> Value {
        let shown = self.shown(session, EVERYTHING, &caller.who);
        shown.map_or_else(|| json!({}), |shown| self.row(caller, session, &shown))
    }

    /// Where a task is, for a model.
    pub(in crate::face::mcp) fn view(&self, caller: &Caller, session: &Session) -> Value {
        let Some(shown) = self.shown(session, EVERYTHING, &caller.who) else {
            return json!({});
        };
        let task = session.task();
        let mut view = self.row(caller, session, &shown);
        view["face"] = json!(timeline::face(session.binding.face));
        if let Some(parent) = &session.binding.parent {
            view["parent_task_id"] = json!(parent.as_str());
        }
        if let Some(task) = task.filter(|task| !task.children.is_empty()) {
            let children = task.children.iter().map(|(_, child)| child.as_str());
            view["subtasks"] = json!(children.collect::<Vec<_>>());
        }
        if let Some(assignee) = task.and_then(|task| task.phase.assignee()) {
            let presence = self.desk().directory.presence(&caller.tenant, assignee);
            view["assignee_online"] = json!(presence.online);
            view["assignee_seen_at"] = json!(presence.last_seen.map(rfc3339));
        }
        if let Some(since) = task.and_then(|task| task.signs.silent_since) {
            view["silent_since"] = json!(rfc3339(since));
        }
        if let Some(approval) = approval::shown_to(&caller.who, session) {
            view["approval"] = approval.for_tools();
        }
        if let Some(budget) = budget::shown(session) {
            view["budget"] = json!(budget);
        }
        if let Some(used) = budget::used(session) {
            view["used"] = json!(used);
        }
        if let Some(done) = task.and_then(|task| task.phase.progress().and_then(|progress| progress.done)) {
            view["progress"] = json!(done);
        }
        let questions: Map<String, Value> = task
            .map_or(&[][..], |task| task.phase.questions())
            .iter()
            .map(|question| {
                (question.key.to_string(), question::put(question, asker(session))["params"].take())
            })
            .collect();
        if !questions.is_empty() && !session.lifecycle.is_terminal() {
            view["questions"] = Value::Object(questions);
        }
        if let Some(key) = task.and_then(|task| task.outcome_key()) {
            view["outcome_key"] = json!(key);
        }
        if let Some(step) = self.next_step(&caller.who, session) {
            view["next_step"] = json!(step);
        }
        if let Some(result) = shown.result {
            view["result"] = Value::Object(result);
        }
        if let Some(error) = shown.error {
            view["error"] = json!(error);
        }
        view
    }

    /// What the reader can do about a task that has not ended.
    fn next_step(&self, who: &gate::Caller, session: &Session) -> Option<&'static str> {
        const WAIT: &str = "call task_wait with this task_id until something happens";
        const WORK: &str = "work on it: work_update says how it goes, work_complete or work_fail ends it; then call work_next";
        if session.lifecycle.is_terminal() {
            return None;
        }
        let is = |agent: &handover_kernel::AgentId| *agent == who.agent;
        let is_requester = is(&session.binding.requester);
        let assigned = session.task().and_then(|task| task.phase.assignee()).is_some_and(is);
        if let Some(proposal) = session.proposal.as_ref().filter(|_| sees_approval(who, session)) {
            return Some(match () {
                () if !proposal.is_open() && is(&proposal.by) => {
                    "change it as `approval` says and send it again with task_propose, or end the task with task_cancel"
                }
                () if session.approvers().iter().any(is) && !is(&proposal.by) => {
                    "decide about it with approval_decide"
                }
                () => "call task_wait with this task_id until it is approved or sent back",
            });
        }
        Some(match session.standing() {
            Standing::Suspended => {
                let resume = || Act::Resume { reason: Text::default() };
                match (assigned, self.desk().could(who, session, resume()).is_ok()) {
                    (true, true) => {
                        "call work_resume to go on with it, or work_checkpoint to wait for its requester"
                    }
                    (true, false) => {
                        "stop, and call work_checkpoint until `paused` is false: its requester can resume it"
                    }
                    (false, true) => "call task_resume to let it go on, or task_cancel to end it",
                    (false, false) => {
                        "its requester can resume it: call task_wait with this task_id until it goes on"
                    }
                }
            }
            Standing::WaitingInput | Standing::WaitingAuthorization => match (is_requester, assigned) {
                (_, true) => "its requester has been asked: call work_checkpoint with wait_ms for the answer",
                (true, false) if may_ask_user(session) => {
                    "your user may have been asked already: then call task_wait; otherwise answer `questions` with task_answer"
                }
                (true, false) => "answer `questions` with task_answer, then call task_wait",
                (false, false) => WAIT,
            },
            Standing::WaitingReply if is_requester => {
                "reply with task_message, or take what was delivered with task_complete"
            }
            Standing::ReportedComplete | Standing::ReportedFail if self.may_commit(who, session) => {
                "look at what was reported (task_timeline) and decide with task_commit"
            }
            Standing::Working if assigned => WORK,
            Standing::Pending | Standing::Requested if self.may_take(who, session) => {
                "take it with work_accept, or turn it down with work_decline"
            }
            Standing::Pending | Standing::Requested | Standing::Working if is_requester => {
                "call task_wait with this task_id until status is another; task_steer changes its course, task_cancel ends it"
            }
            Standing::Pending
            | Standing::Requested
            | Standing::Working
            | Standing::WaitingReply
            | Standing::ReportedComplete
            | Standing::ReportedFail
            | Standing::ResolvedPositive
            | Standing::ResolvedNegative
            | Standing::Expired
            | Standing::Cancelled => WAIT,
        })
    }

    /// Whether the reader can bind the outcome.
    pub(super) fn may_commit(&self, who: &gate::Caller, session: &Session) -> bool {
        let commitment = self.desk().commitment(who, session, true, Text::default(), None);
        let positive = self.desk().could(who, session, Act::Commit(Box::new(commitment)));
        let commitment = self.desk().commitment(who, session, false, Text::default(), None);
        positive.is_ok() || self.desk().could(who, session, Act::Commit(Box::new(commitment))).is_ok()
    }

    fn may_take(&self, who: &gate::Caller, session: &Session) -> bool {
        let task = session.task();
        task.is_some_and(|task| task.takers(&session.binding).any(|agent| *agent == who.agent))
    }
}

/// Whether the client of whoever began the task can show questions to its user by itself.
pub(super) fn may_ask_user(session: &Session) -> bool {
    answerable::shows_questions(session)
}
