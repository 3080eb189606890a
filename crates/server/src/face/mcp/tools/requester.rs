//! Tools to hand out work and watch over it.
//!
//! - `table`: what they are called, and for what
//! - `lists`: lists of tasks, and what happened in one

mod lists;
mod table;

use handover_desk::approvals::sees_approval;
use handover_desk::calendar::rfc3339;
use handover_desk::delegate::Work;
use handover_desk::look::HISTORY_MAX;
use handover_desk::payload;
use handover_desk::state::{State, waits_for};
use handover_desk::timeline;
use handover_desk::waiting::Edge;
use handover_kernel::command::{Act, Answer, CheckInTerms, Next, TaskAct};
use handover_kernel::session::Lifecycle;
use handover_kernel::{AgentId, Blob, QuestionKey, Session, SessionId, Text};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(super) use self::table::TOOLS;
use super::{Done, Trouble, read_arguments};
use crate::face::mcp::caller::{Caller, Declared};
use crate::face::mcp::content::structured;
use crate::face::mcp::task::{Status, asker};
use crate::face::mcp::{Mcp, question};
use crate::face::{approval, budget, silence};

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::face::mcp) enum Tool {
    Delegate,
    Status,
    Wait,
    List,
    Timeline,
    Steer,
    Message,
    Answer,
    Pause,
    Resume,
    Cancel,
    Commit,
}

/// How many tasks a list shows.
const LIST_MAX: usize = 100;

/// How many agents are named that a task waits for.
const WAITED_FOR_MAX: usize = 10;

/// A caller that reads a task with a tool can be shown everything: a tool's result is only data.
pub(in crate::face::mcp) const EVERYTHING: Declared =
    Declared { tasks: true, steer: true, pause: true, form: true, url: true, sampling: true, roots: true };

/// The same no, with what to do about it.
fn queueable(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Told(what) => Trouble::Told(format!(
            "{what}: call agent_list to see who is there, or delegate_task again with queue: true to let it wait for that agent"
        )),
        broken @ Trouble::Broken(_) => broken,
    }
}

/// What a model can do about a task that has not ended.
fn next_step(status: Status) -> Option<&'static str> {
    match status {
        Status::Working => Some(
            "call task_wait with this task_id until status is another; task_steer changes its course, task_cancel ends it",
        ),
        Status::InputRequired => Some("answer `questions` with task_answer, then call task_wait"),
        Status::Paused => Some("call task_resume to let it go on, or task_cancel to end it"),
        Status::Completed | Status::Failed | Status::Cancelled => None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyTask {
    task_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saying {
    task_id: String,
    message: String,
}

impl Mcp {
    pub(super) async fn run_requester(&self, caller: &Caller, tool: Tool, given: Map<String, Value>) -> Done {
        match tool {
            Tool::Delegate => self.delegate(caller, read_arguments(given)?).await,
            Tool::Status => {
                let OnlyTask { task_id } = read_arguments(given)?;
                self.status(caller, &task_id).await
            }
            Tool::Wait => self.task_wait(caller, read_arguments(given)?).await,
            Tool::List => self.task_list(caller, read_arguments(given)?).await,
            Tool::Timeline => self.task_timeline(caller, read_arguments(given)?).await,
            Tool::Steer => {
                let Saying { task_id, message } = read_arguments(given)?;
                let act = Act::Task(TaskAct::Steer { text: Text::from(message) });
                self.act_once(caller, &task_id, act).await?;
                Ok(structured(json!({ "accepted": true, "task_id": task_id })))
            }
            Tool::Message => {
                let Saying { task_id, message } = read_arguments(given)?;
                let body = Blob::from(message.into_bytes());
                let act =
                    Act::Task(TaskAct::Say { body, next: Next::AsBefore, check_in: CheckInTerms::default() });
                self.act_once(caller, &task_id, act).await?;
                Ok(structured(json!({ "accepted": true, "task_id": task_id })))
            }
            Tool::Answer => self.task_answer(caller, read_arguments(given)?).await,
            Tool::Pause => {
                let OnlyTask { task_id } = read_arguments(given)?;
                let act = Act::Pause { reason: Text::from("the requester asked for it"), gently: false };
                Ok(structured(self.view(caller, &self.act(caller, &task_id, act).await?.session)))
            }
            Tool::Resume => {
                let OnlyTask { task_id } = read_arguments(given)?;
                let act = Act::Resume { reason: Text::from("resumed by the requester") };
                Ok(structured(self.view(caller, &self.act(caller, &task_id, act).await?.session)))
            }
            Tool::Cancel => self.task_cancel(caller, read_arguments(given)?).await,
            Tool::Commit => self.task_commit(caller, read_arguments(given)?).await,
        }
    }

    /// Where a task is, for a model.
    pub(in crate::face::mcp) fn view(&self, caller: &Caller, session: &Session) -> Value {
        let Some(shown) = self.shown(session, EVERYTHING, &caller.who) else {
            return json!({});
        };
        let task = session.task();
        let questions: Map<String, Value> = task
            .map_or(&[][..], |task| task.phase.questions())
            .iter()
            .map(|question| {
                (question.key.to_string(), question::put(question, asker(session))["params"].take())
            })
            .collect();
        let title = session.wanted().map(|request| request.title.to_string());
        let mut view = json!({
            "task_id": shown.task_id,
            "status": shown.status,
            "state": State::of(session).name(),
            "title": title,
            "requester": session.binding.requester.as_str(),
            "face": timeline::face(session.binding.face),
            "created_at": shown.created_at,
            "updated_at": shown.last_updated_at,
        });
        // For whose approval it waits is told to those who may see that.
        let told = |what| what != "approval" || sees_approval(&caller.who, session);
        if let Some((what, agents)) = waits_for(session).filter(|(what, _)| told(*what)) {
            let agents: Vec<&str> = agents.iter().take(WAITED_FOR_MAX).map(|agent| agent.as_str()).collect();
            view["waits_for"] = json!({ "what": what, "agents": agents });
        }
        if let Some(parent) = &session.binding.parent {
            view["parent_task_id"] = json!(parent.as_str());
        }
        if let Some(task) = task.filter(|task| !task.children.is_empty()) {
            let children = task.children.iter().map(|(_, child)| child.as_str());
            view["subtasks"] = json!(children.collect::<Vec<_>>());
        }
        if let Some(message) = &shown.status_message {
            view["message"] = json!(message);
        }
        if let Some(assignee) = task.and_then(|task| task.phase.assignee()) {
            let presence = self.desk().directory.presence(&caller.tenant, assignee);
            view["assignee"] = json!(assignee.as_str());
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
        if !questions.is_empty() && !session.lifecycle.is_terminal() {
            view["questions"] = Value::Object(questions);
        }
        if let Some(key) = task.and_then(|task| task.outcome_key()) {
            view["outcome_key"] = json!(key);
        }
        if let Some(step) = next_step(shown.status) {
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

    async fn status(&self, caller: &Caller, task_id: &str) -> Done {
        let session = self.task(&caller.who, task_id).await?;
        let mut view = self.view(caller, &session);
        let waits = self.desk().waits_in(&caller.who, &session).await?;
        if !waits.is_empty() {
            let edge = |edge: &Edge| json!({ "from": edge.from.as_str(), "to": edge.to.as_str(), "why": edge.why.name(), "task_id": edge.on.as_str() });
            view["waits"] = waits.iter().map(edge).collect();
        }
        Ok(structured(view))
    }

    async fn delegate(&self, caller: &Caller, asked: Delegate) -> Done {
        let anybody = asked.agent.is_none() && asked.agents.is_none();
        let (agents, assignee) = match (asked.agent, asked.agents) {
            (Some(_), Some(_)) => {
                return Err(Trouble::Told("expected agent or agents, found both".to_owned()));
            }
            (Some(agent), None) => {
                let agent = AgentId::from(agent);
                (vec![agent.clone()], Some(agent))
            }
            (None, Some(agents)) => (agents.into_iter().map(AgentId::from).collect(), None),
            (None, None) => {
                let max = self.desk().limits().participants_max;
                (self.desk().hands(&caller.who, max).await?, None)
            }
        };
        if agents.is_empty() {
            return Err(Trouble::Told(
                "expected agents that could do it, found none in the directory".to_owned(),
            ));
        }
        let id = self.new_id(caller);
        let warning = match anybody || asked.queue {
            true => None,
            false => {
                let known = self.desk().must_exist(&caller.who, &id, &agents).await;
                known.map_err(|no| queueable(no.into()))?
            }
        };
        let work = Work {
            agents,
            anybody,
            assignee,
            task: Text::from("task"),
            title: Text::from(asked.title),
            instructions: Text::from(asked.instructions),
            input: asked.input.map_or_else(Blob::default, |input| payload::of_json(&input)),
            ttl_ms: asked.ttl_ms.or(self.parts.settings.ttl_ms),
            parent: asked.parent_task_id.map(SessionId::from),
            liveness: silence::liveness(asked.silent_after_ms, asked.when_silent.as_deref())
                .map_err(Trouble::Told)?,
            budget: budget::budget(asked.budget.as_ref()).map_err(Trouble::Told)?,
            ..Work::default()
        };
        let mut view = self.view(caller, &self.begin(caller, &id, work).await?.session);
        if let Some(warning) = warning {
            view["warning"] = json!(format!("{warning}; the task waits until an agent of that name comes"));
        }
        Ok(structured(view))
    }

    async fn task_wait(&self, caller: &Caller, asked: TaskWait) -> Done {
        let until = self.until(caller, asked.wait_ms);
        let mut session = self.task(&caller.who, &asked.task_id).await?;
        let mut stay = self.desk().stay(&caller.who)?;
        let mut events = self.desk().events(&caller.who, &asked.task_id, session.head.0);
        loop {
            let waits = session.task().is_some_and(|task| !task.phase.questions().is_empty());
            let paused = matches!(session.lifecycle, Lifecycle::Suspended { .. });
            let sent_back = session.proposal.as_ref().is_some_and(|proposal| proposal.was_refused());
            if session.lifecycle.is_terminal() || waits || paused || sent_back {
                return Ok(structured(self.view(caller, &session)));
            }
            let happened = match stay.next_by(&mut events, until).await {
                Ok(event) => event.is_some(),
                Err(over) => over.no().map_or(Ok(false), Err)?,
            };
            session = self.task(&caller.who, &asked.task_id).await?;
            // Whatever else ended the listening, the task is what it is.
            if !happened {
                return Ok(structured(self.view(caller, &session)));
            }
        }
    }

    async fn task_answer(&self, caller: &Caller, asked: TaskAnswer) -> Done {
        let session = self.task(&caller.who, &asked.task_id).await?;
        let questions = session.task().map_or(&[][..], |task| task.phase.questions());
        let mut answers = Vec::new();
        for (key, response) in &asked.answers {
            let open = questions.iter().find(|question| question.key.as_str() == key);
            let question =
                open.ok_or_else(|| Trouble::Told(format!("no open question has the key {key:?}")))?;
            let reply = question::reply(question, response)?;
            answers.push(Answer { key: QuestionKey::from(key.as_str()), reply });
        }
        if answers.is_empty() {
            return Err(Trouble::Told("expected at least one answer, found none".to_owned()));
        }
        let act = Act::Task(TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false });
        Ok(structured(self.view(caller, &self.act(caller, &asked.task_id, act).await?.session)))
    }

    async fn task_cancel(&self, caller: &Caller, asked: TaskCancel) -> Done {
        let reason = asked.reason.unwrap_or_else(|| "cancelled by the requester".to_owned());
        self.task(&caller.who, &asked.task_id).await?;
        let act = Act::cancel(reason);
        let mut shown = self.view(caller, &self.act(caller, &asked.task_id, act).await?.session);
        let below = self.desk().below_cancelled(&caller.who, &asked.task_id).await?;
        let names = |ids: Vec<SessionId>| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        shown["subtasks_cancelled"] = json!(names(below.reached));
        shown["subtasks_going_on"] = json!(names(below.left));
        Ok(structured(shown))
    }

    async fn task_commit(&self, caller: &Caller, asked: TaskCommit) -> Done {
        let session = self.task(&caller.who, &asked.task_id).await?;
        let reason = asked.reason.unwrap_or_else(|| "reviewed by the requester".to_owned());
        let accepted =
            self.desk().commit(&caller.who, &session, asked.success, Text::from(reason), None).await?;
        Ok(structured(self.view(caller, &accepted.session)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delegate {
    title: String,
    instructions: String,
    input: Option<Value>,
    agent: Option<String>,
    agents: Option<Vec<String>>,
    #[serde(default)]
    queue: bool,
    ttl_ms: Option<u64>,
    parent_task_id: Option<String>,
    silent_after_ms: Option<u64>,
    when_silent: Option<String>,
    budget: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskWait {
    task_id: String,
    wait_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskAnswer {
    task_id: String,
    answers: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskCancel {
    task_id: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskCommit {
    task_id: String,
    success: bool,
    reason: Option<String>,
}
