//! Tools to hand out work and watch over it.
//!
//! - `table`: what they are called, and for what
//! - `shown`: how a task looks to a model
//! - `lists`: lists of tasks, and what happened in one

mod lists;
mod shown;
mod table;

use handover_desk::delegate::Work;
use handover_desk::look::HISTORY_MAX;
use handover_desk::payload;
use handover_desk::waiting::Edge;
use handover_kernel::command::{Act, Answer, CheckInTerms, Next, TaskAct};
use handover_kernel::session::Standing;
use handover_kernel::{AgentId, Blob, QuestionKey, Session, SessionId, Text};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(in crate::face::mcp) use self::shown::USER_ASKED;
use self::shown::may_ask_user;
pub(super) use self::table::TOOLS;
use super::{Done, Trouble, read_arguments};
use crate::face::mcp::caller::{Caller, Declared};
use crate::face::mcp::content::structured;
use crate::face::mcp::tasks::answering;
use crate::face::mcp::{Mcp, question};
use crate::face::{budget, silence};

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

/// Whether nobody works on a task meanwhile, which those who wait for it want to know.
fn stops(session: &Session) -> bool {
    stops_at(session.standing()) || session.proposal.is_some()
}

fn stops_at(standing: Standing) -> bool {
    match standing {
        Standing::WaitingInput
        | Standing::WaitingAuthorization
        | Standing::WaitingReply
        | Standing::ReportedComplete
        | Standing::ReportedFail
        | Standing::Suspended => true,
        Standing::Pending
        | Standing::Requested
        | Standing::Working
        | Standing::ResolvedPositive
        | Standing::ResolvedNegative
        | Standing::Expired
        | Standing::Cancelled => false,
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
                self.act(caller, &task_id, act).await?;
                Ok(structured(json!({ "accepted": true, "task_id": task_id })))
            }
            Tool::Message => {
                let Saying { task_id, message } = read_arguments(given)?;
                let body = Blob::from(message.into_bytes());
                let act =
                    Act::Task(TaskAct::Say { body, next: Next::AsBefore, check_in: CheckInTerms::default() });
                self.act(caller, &task_id, act).await?;
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
        // What was so already is no news, unless it is for the caller to do something about it: else one that calls this
        // again and again would never wait.
        let before = session.standing();
        let mut is_news = self.is_callers_turn(caller, &session);
        while !session.lifecycle.is_terminal() && !is_news {
            let happened = match stay.next_by(&mut events, until).await {
                Ok(event) => event.is_some(),
                Err(over) => over.no().map_or(Ok(false), Err)?,
            };
            session = self.task(&caller.who, &asked.task_id).await?;
            // Whatever else ended the listening, the task is what it is.
            if !happened {
                break;
            }
            is_news = self.is_callers_turn(caller, &session)
                || (session.standing() != before && (stops(&session) || stops_at(before)));
        }
        Ok(structured(self.view(caller, &session)))
    }

    /// Whether the task waits for the caller of `task_wait` to do something.
    fn is_callers_turn(&self, caller: &Caller, session: &Session) -> bool {
        let who = &caller.who;
        if let Some(proposal) = &session.proposal {
            return match proposal.is_open() {
                true => proposal.by != who.agent && session.approvers().contains(&who.agent),
                false => proposal.by == who.agent,
            };
        }
        let is_requester = session.binding.requester == who.agent;
        match session.standing() {
            // Its client asks its user by itself.
            Standing::WaitingInput | Standing::WaitingAuthorization => is_requester && !may_ask_user(session),
            Standing::WaitingReply => is_requester,
            Standing::ReportedComplete | Standing::ReportedFail => self.may_commit(who, session),
            Standing::Pending
            | Standing::Requested
            | Standing::Working
            | Standing::Suspended
            | Standing::ResolvedPositive
            | Standing::ResolvedNegative
            | Standing::Expired
            | Standing::Cancelled => false,
        }
    }

    async fn task_answer(&self, caller: &Caller, asked: TaskAnswer) -> Done {
        let session = self.task(&caller.who, &asked.task_id).await?;
        let questions = session.task().map_or(&[][..], |task| task.phase.questions());
        if asked.answers.is_empty() {
            return Err(Trouble::Told("expected at least one answer, found none".to_owned()));
        }
        let answer = |answers| {
            let act = TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false };
            answering(caller, act, &asked.answers)
        };
        let mut answers = Vec::new();
        let again = session.has_seen(&answer(Vec::new()));
        for (key, response) in asked.answers.iter().filter(|_| !again) {
            let open = questions.iter().find(|question| question.key.as_str() == key);
            let question =
                open.ok_or_else(|| Trouble::Told(format!("no open question has the key {key:?}")))?;
            let reply = question::reply(question, response, "answers")?;
            answers.push(Answer { key: QuestionKey::from(key.as_str()), reply });
        }
        Ok(structured(self.view(caller, &self.put(caller, &asked.task_id, answer(answers)).await?.session)))
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
