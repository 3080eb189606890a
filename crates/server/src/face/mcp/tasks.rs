//! The methods of the tasks extension: SEP-2663's get, update and cancel, SEP-2669's steer, pause and resume.

use std::borrow::Cow;
use std::sync::Arc;

use handover_kernel::command::{Act, Answer, Command, TaskAct};
use handover_kernel::session::Lifecycle;
use handover_kernel::{Blob, Refusal, Session, Text};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::caller::{Caller, Declared};
use super::discover::META;
use super::message::Error;
use super::task::Shown;
use super::{Mcp, params, question};

/// What acknowledges and says nothing more. It has no `_meta`: there are clients that take one for another result.
const ACK: &str = r#"{"resultType":"complete"}"#;

/// A task named, and nothing else.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named<'a> {
    #[serde(borrow)]
    task_id: Cow<'a, str>,
}

impl Mcp {
    /// `tasks/get`.
    pub(super) async fn tasks_get(&self, caller: &Caller, task_id: &str) -> Result<String, Error> {
        caller.must_know_tasks()?;
        let session = self.task(&caller.who, task_id).await?;
        self.detailed(caller, &session, caller.declared)
    }

    /// The same, of the task that the parameters name.
    pub(super) async fn tasks_get_of(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        caller.must_know_tasks()?;
        let Named { task_id } = params(given)?;
        self.tasks_get(caller, &task_id).await
    }

    /// `tasks/update`: answers, all or some. Keys that are not open are passed over.
    pub(super) async fn tasks_update(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Update<'a> {
            #[serde(borrow)]
            task_id: Cow<'a, str>,
            input_responses: Map<String, Value>,
        }
        caller.must_know_tasks()?;
        let update: Update<'_> = params(given)?;
        let session = self.task(&caller.who, &update.task_id).await?;
        let answers = answers(&session, &update.input_responses)?;
        let act =
            TaskAct::Answer { answers, ignore_unknown: true, refuse_when_paused: caller.declared.pause };
        let command = answering(caller, act, &update.input_responses);
        match self.put(caller, &update.task_id, command).await {
            Ok(_) => Ok(ACK.to_owned()),
            Err(no) => match no.refusal() {
                // An answer that comes too late answers nothing, like any other that nobody waits for.
                Some(Refusal::SessionEnded { .. }) => Ok(ACK.to_owned()),
                Some(Refusal::SessionSuspended) => Err(Error::invalid("the task is paused: resume it first")
                    .named(Refusal::SessionSuspended.code())),
                Some(_) | None => Err(no.into()),
            },
        }
    }

    /// `tasks/cancel`: of a task that has ended it is acknowledged like any other.
    pub(super) async fn tasks_cancel(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        caller.must_know_tasks()?;
        let Named { task_id } = params(given)?;
        let act = Act::cancel("cancelled by the requester");
        self.must_be_task(caller, &task_id).await?;
        self.act(caller, &task_id, act).await?;
        Ok(ACK.to_owned())
    }

    /// `tasks/steer`: acknowledged at once, delivered at the next safe point.
    pub(super) async fn tasks_steer(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Steer<'a> {
            #[serde(borrow)]
            task_id: Cow<'a, str>,
            #[serde(borrow)]
            message: Cow<'a, str>,
        }
        caller.must_know_tasks()?;
        let steer: Steer<'_> = params(given)?;
        self.must_be_task(caller, &steer.task_id).await?;
        let act = Act::Task(TaskAct::Steer { text: Text::from(&*steer.message) });
        self.act(caller, &steer.task_id, act).await?;
        Ok(ACK.to_owned())
    }

    /// `tasks/pause`: takes effect at the next safe point; at once when nobody is working.
    pub(super) async fn tasks_pause(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        let act = Act::Pause { reason: Text::from("the requester asked for it"), gently: false };
        self.interact(caller, given, act).await
    }

    /// `tasks/resume`.
    pub(super) async fn tasks_resume(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        self.interact(caller, given, Act::Resume { reason: Text::from("resumed by the requester") }).await
    }

    /// Pause or resume, and show the task as it is then. Asking for it opts in to see `paused` in the answer.
    async fn interact(&self, caller: &Caller, given: Option<&RawValue>, act: Act) -> Result<String, Error> {
        caller.must_know_tasks()?;
        let Named { task_id } = params(given)?;
        self.must_be_task(caller, &task_id).await?;
        let accepted = self.act(caller, &task_id, act).await?;
        self.detailed(caller, &accepted.session, Declared { pause: true, ..caller.declared })
    }

    /// Only tasks are tasks: a handoff of the same name is none here.
    pub(super) async fn must_be_task(&self, caller: &Caller, id: &str) -> Result<Arc<Session>, Error> {
        Ok(self.task(&caller.who, id).await?)
    }

    /// A task as this caller sees it.
    pub(super) fn shown<'a>(
        &self,
        session: &'a Session,
        declared: Declared,
        who: &handover_desk::caller::Caller,
    ) -> Option<Shown<'a>> {
        Shown::of(session, declared, self.parts.settings.poll_interval_ms, &self.desk().directory, who)
    }

    fn detailed(&self, caller: &Caller, session: &Session, declared: Declared) -> Result<String, Error> {
        let shown = self.shown(session, declared, &caller.who);
        let mut shown = shown.ok_or_else(|| Error::invalid("there is no such task"))?;
        shown.result_type = Some("complete");
        shown.meta = Some(&META);
        Ok(shown.json())
    }
}

/// A command that answers questions. With a key it keeps what was sent, so that it is known again when its questions are closed.
pub(super) fn answering(caller: &Caller, act: TaskAct, responses: &Map<String, Value>) -> Command {
    let command = caller.name(caller.command(Act::Task(act)));
    let sent = || Blob::from(json!(responses).to_string().into_bytes());
    Command { verbatim: command.id.is_some().then(sent), ..command }
}

/// The answers among the responses: those to open questions, checked. Others are passed over.
pub(super) fn answers(session: &Session, responses: &Map<String, Value>) -> Result<Vec<Answer>, Error> {
    let ended = matches!(
        session.lifecycle,
        Lifecycle::Resolved { .. } | Lifecycle::Expired { .. } | Lifecycle::Cancelled { .. }
    );
    let questions = match session.task() {
        Some(task) if !ended => task.phase.questions(),
        Some(_) | None => &[],
    };
    questions
        .iter()
        .filter_map(|question| Some((question, responses.get(question.key.as_str())?)))
        .map(|(question, response)| {
            Ok(Answer {
                key: question.key.clone(),
                reply: question::reply(question, response, "inputResponses")?,
            })
        })
        .collect()
}
