//! A skill is called: a task begins for the agent that has it, and the caller is given the task, or waits for what comes
//! of it.
//!
//! Whatever the caller can do, the work is the same task: only the answer differs. A question that comes before the
//! answer goes out as an `InputRequiredResult` whose state names the task, or in the handshake revisions as a request.
//!
//! - `telling`: what the caller is told while it waits

mod telling;

use std::sync::Arc;

use handover_desk::Accepted;
use handover_desk::answerable::{FOLLOWS, SHOWS_QUESTIONS};
use handover_desk::contract::skill_of;
use handover_desk::delegate::{Profile, Work};
use handover_desk::directory::{Answers, Skill, Tool};
use handover_desk::follow::Stay;
use handover_desk::no::{Part, Unfit};
use handover_desk::policies::MCP_POLICY;
use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, Answer, TaskAct};
use handover_kernel::event::Question;
use handover_kernel::task::Phase;
use handover_kernel::{Blob, Refusal, Session, Text};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};

use self::telling::Telling;
use super::caller::{Caller, Declared, Era, missing};
use super::discover::{META, complete};
use super::message::Error;
use super::task::{Outcome, asked, outcome};
use super::tasks::answers;
use super::tools::requester::USER_ASKED;
use super::{Mcp, No, Outbox, content, question};
use crate::face::budget;

/// A skill that answers at once is not waited for longer than this, whatever tasks may take.
const AT_ONCE_TTL_MS: u64 = 60 * 60 * 1000;

/// What the sessions of this face are bound to.
pub(super) const PROFILE: Profile =
    Profile { charter: Charter::mcp, policy: MCP_POLICY, configuration: "mcp" };

/// The status of a worker that asks.
pub(super) const ASKING: &str = "input_required";

/// The parameters of `tools/call`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Which tool.
    pub name: String,
    /// With what.
    #[serde(default)]
    pub arguments: Option<Map<String, Value>>,
    /// What the caller answers to questions of before.
    #[serde(default)]
    pub input_responses: Option<Map<String, Value>>,
    /// The state that the questions came with.
    #[serde(default)]
    pub request_state: Option<String>,
    /// What else is said of the call.
    #[serde(rename = "_meta", default)]
    meta: Option<CallMeta>,
}

/// What of the metadata of a call is about the task that it begins.
#[derive(Deserialize)]
struct CallMeta {
    #[serde(rename = "dev.handover/budget")]
    budget: Option<Map<String, Value>>,
}

/// A call that waits for what comes of its task.
struct Waiting<'a> {
    caller: &'a Caller,
    tool: &'a Tool,
    id: &'a str,
    manner: Manner,
    stay: &'a mut Stay,
}

/// How the caller is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// With the task, at once.
    Task,
    /// With the task, once the worker has begun in earnest: until then it may ask.
    TaskAfterAsking,
    /// With what comes of it.
    Plain,
}

/// What a skill is called, for people.
fn title_of(skill: &Skill) -> &str {
    if skill.title.is_empty() { &skill.name } else { &skill.title }
}

impl Mcp {
    /// The id of a task that a call begins: the same whenever it is sent again with its key.
    pub(super) fn new_id(&self, caller: &Caller) -> String {
        self.desk().new_id(&caller.who, caller.idempotency_key.as_deref())
    }

    /// Begin the task of this id. A request that is sent again with its key finds the task that it began.
    pub(super) async fn begin(&self, caller: &Caller, id: &str, work: Work) -> Result<Accepted, No> {
        crate::http::line::note("session", id);
        let able = capability_names(caller.declared).into_iter().chain(work.able).collect();
        let work = Work { able, ..work };
        let key = caller.idempotency_key.as_deref();
        self.desk().delegate(&caller.who, id, key, &PROFILE, work).await.map_err(No)
    }

    /// Call a skill of an agent.
    pub(super) async fn call_skill(
        &self,
        caller: &Caller,
        tool: &Tool,
        call: ToolCall,
        out: &Outbox,
    ) -> Result<String, Error> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        let manner = manner(caller, tool)?;
        must_be_able(caller, tool)?;
        let input = Blob::from(arguments.to_string().into_bytes());
        let leaves = caller.takes_back && manner != Manner::Task;
        // Taken before anything begins: a call that may not wait begins nothing.
        let mut stay = match manner {
            Manner::Task => None,
            Manner::TaskAfterAsking | Manner::Plain => Some(self.desk().stay(&caller.who).map_err(No)?),
        };
        let (id, begun, mut given) = match &call.request_state {
            Some(state) => {
                let responses = call.input_responses.unwrap_or_default();
                let session = self.go_on(caller, tool, &input, state, &responses).await?;
                (session.binding.id.to_string(), session, Map::new())
            }
            None => {
                let at_once = tool.skill.answers() == Answers::AtOnce;
                let ttl_ms = self.parts.settings.ttl_ms;
                let mut agents = self.desk().successors(&caller.who, &tool.skill).await.map_err(No)?;
                agents.retain(|agent| *agent != tool.agent);
                agents.insert(0, tool.agent.clone());
                let budget = budget::budget(call.meta.and_then(|meta| meta.budget).as_ref())
                    .map_err(Error::invalid)?;
                let work = Work {
                    // Whom the skill names beside its agent may have changed since.
                    anybody: agents.len() > 1,
                    agents,
                    assignee: Some(tool.agent.clone()),
                    task: Text::from(&*tool.skill.name),
                    title: Text::from(title_of(&tool.skill)),
                    instructions: Text::from(&*tool.skill.description),
                    input,
                    contract: Some(Arc::clone(&tool.contract)),
                    ttl_ms: if at_once {
                        Some(ttl_ms.unwrap_or(AT_ONCE_TTL_MS).min(AT_ONCE_TTL_MS))
                    } else {
                        ttl_ms
                    },
                    // Its client follows the task, and nobody reads what a call answers.
                    able: if manner == Manner::Plain { Vec::new() } else { vec![Text::from(FOLLOWS)] },
                    budget,
                    ..Work::default()
                };
                let id = self.new_id(caller);
                // Who has a key for the task finds it again.
                let armed = leaves && caller.idempotency_key.is_none();
                let guard = Abandoned { mcp: self, caller, id: &id, armed };
                let begun = self.begin(caller, &id, work).await;
                guard.keep();
                match begun {
                    Ok(accepted) => (id, accepted.session, call.input_responses.unwrap_or_default()),
                    Err(No(handover_desk::No::Unfit(Unfit { part: Part::Input, why }))) => {
                        return Ok(complete(caller, content::failed(format!("arguments: {why}"))));
                    }
                    Err(no) => return Err(no.into()),
                }
            }
        };
        let Some(stay) = &mut stay else {
            return self.created(caller, &begun);
        };
        let guard = Abandoned { mcp: self, caller, id: &id, armed: leaves };
        let call = Waiting { caller, tool, id: &id, manner, stay };
        let answer = self.wait(call, &mut given, out).await;
        guard.disarm(answer)
    }

    /// Another round of a call: answer what was asked, if the state is one that we gave for this very call.
    async fn go_on(
        &self,
        caller: &Caller,
        tool: &Tool,
        input: &Blob,
        state: &str,
        responses: &Map<String, Value>,
    ) -> Result<Arc<Session>, Error> {
        let wrong = || Error::invalid("requestState: expected the state that this call was given");
        let (id, round) = state.split_once('.').ok_or_else(wrong)?;
        round.parse::<u64>().map_err(|_| wrong())?;
        let session = match self.task(&caller.who, id).await {
            Ok(session) => session,
            Err(no) if no.is_unknown() => return Err(wrong()),
            Err(no) => return Err(no.into()),
        };
        let request = session.task().and_then(|task| task.phase.request().cloned());
        let same = session.binding.requester == caller.agent
            && skill_of(&session) == Some(&*tool.skill.name)
            // Its successors come after it, and may be others by now.
            && session.binding.participants.first() == Some(&tool.agent)
            && request.is_some_and(|request| request.input == *input);
        if !same {
            return Err(wrong());
        }
        let answers = answers(&session, responses)?;
        if answers.is_empty() {
            return Ok(session);
        }
        self.answer_in_call(caller, id, answers).await?;
        Ok(self.task(&caller.who, id).await?)
    }

    /// A `CreateTaskResult`: the task is durable.
    pub(super) fn created(&self, caller: &Caller, session: &Session) -> Result<String, Error> {
        let shown = self.shown(session, caller.declared, &caller.who);
        let mut shown = shown.ok_or_else(|| Error::invalid("there is no such task"))?.bare();
        shown.meta = Some(&META);
        Ok(shown.json())
    }

    /// Wait for what comes of a call, telling how it goes.
    async fn wait(
        &self,
        call: Waiting<'_>,
        given: &mut Map<String, Value>,
        out: &Outbox,
    ) -> Result<String, Error> {
        let Waiting { caller, tool, id, manner, stay } = call;
        let mut events = self.desk().events(&caller.who, id, 0);
        let mut telling = Telling::new(caller, out);
        let mut until = Instant::now() + self.wait_of(caller);
        let mut asking = false;
        loop {
            let session = self.task(&caller.who, id).await?;
            telling.up_to(&mut events, session.head.0).await?;
            if let Some(outcome) = outcome(&session) {
                // Many calls may end at the same moment: what is made of the result must find room.
                events.let_go();
                let bytes = session.weight() as u64;
                let _held = match caller.room() {
                    Some(room) => Some(room.wait(bytes).await),
                    None => None,
                };
                return returned(caller, outcome);
            }
            let task = session.task().map(|task| &task.phase);
            if manner == Manner::TaskAfterAsking && task.is_some_and(has_begun) {
                return self.created(caller, &session);
            }
            let questions = task.map_or(&[][..], |phase| phase.questions());
            if !questions.is_empty() && self.answer_given(caller, &session, given).await? {
                continue;
            }
            if !questions.is_empty()
                && let Some(answer) = self.ask(caller, tool, &session, manner, &mut telling).await?
            {
                return Ok(answer);
            }
            // A person takes longer than a machine, and the form would be left behind. What a request says itself counts.
            if telling.is_asking(&session) != asking {
                asking = !asking;
                let wait = self.wait_of(caller);
                until = match (asking, caller.wishes.wait) {
                    (true, None) => Instant::now() + wait.max(self.desk().wait_for_answer()),
                    (true, Some(_)) => until,
                    (false, _) => until.min(Instant::now() + wait),
                };
            }
            tokio::select! {
                biased;
                over = stay.over() => return match over.no() {
                    Some(no) => Err(No(no).into()),
                    None => self.handle(caller, tool, &session, manner, asking),
                },
                () = out.closed() => return Err(Error::invalid("the caller has gone")),
                told = telling.next(&mut events) => told?,
                () = sleep_until(until) => return self.handle(caller, tool, &session, manner, asking),
            }
        }
    }

    /// Answer a question with what the call brought along, if it did. Says whether something was answered.
    async fn answer_given(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        given: &mut Map<String, Value>,
    ) -> Result<bool, Error> {
        let answers = answers(session, given)?;
        if answers.is_empty() {
            return Ok(false);
        }
        for answer in &answers {
            given.remove(answer.key.as_str());
        }
        self.answer_in_call(caller, session.binding.id.as_str(), answers).await?;
        Ok(true)
    }

    /// Answer questions of a task that a call waits for. If it has ended meanwhile, they answer nothing, and the call tells how it
    /// ended. One call may answer several times: its key is that of the task.
    pub(super) async fn answer_in_call(
        &self,
        caller: &Caller,
        id: &str,
        answers: Vec<Answer>,
    ) -> Result<(), No> {
        let act = Act::Task(TaskAct::Answer { answers, ignore_unknown: true, refuse_when_paused: false });
        match self.put(caller, id, caller.command(act)).await {
            Err(no) if !matches!(no.refusal(), Some(Refusal::SessionEnded { .. })) => Err(no),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Put the open questions to the caller. The answer that it gets, if its call ends with that.
    async fn ask(
        &self,
        caller: &Caller,
        tool: &Tool,
        session: &Session,
        manner: Manner,
        telling: &mut Telling<'_>,
    ) -> Result<Option<String>, Error> {
        let asked = asked(session, caller.declared);
        if asked.is_empty() {
            return self.cannot_ask(caller, tool, session, manner).map(Some);
        }
        match caller.era {
            Era::Modern => {
                let state = format!("{}.{}", session.binding.id, session.head);
                let mut result = Map::new();
                result.insert("resultType".to_owned(), json!("input_required"));
                result.insert("inputRequests".to_owned(), Value::Object(asked));
                result.insert("requestState".to_owned(), json!(state));
                Ok(Some(Value::Object(result).to_string()))
            }
            Era::Handshake => {
                telling.ask(session, asked).await;
                Ok(None)
            }
        }
    }

    /// The caller did not say that it can be asked: a form becomes a matter for `task_answer`; nothing else can be asked
    /// another way.
    fn cannot_ask(
        &self,
        caller: &Caller,
        tool: &Tool,
        session: &Session,
        manner: Manner,
    ) -> Result<String, Error> {
        let questions = session.task().map_or(&[][..], |task| task.phase.questions());
        let form = |question: &Question| {
            question::can_be_asked(
                Declared { form: true, ..Declared::default() },
                &question::request(question),
            )
        };
        match questions.iter().find(|question| !form(question)) {
            Some(question) => {
                let required = question::capability(&question::request(question));
                Err(missing(&required, "what the agent asks for"))
            }
            None => self.handle(caller, tool, session, manner, false),
        }
    }

    /// The call takes too long for an answer: here is where it goes on, and whether its user was asked something meanwhile.
    fn handle(
        &self,
        caller: &Caller,
        tool: &Tool,
        session: &Session,
        manner: Manner,
        asking: bool,
    ) -> Result<String, Error> {
        let id = session.binding.id.as_str();
        if manner == Manner::TaskAfterAsking {
            return self.created(caller, session);
        }
        let mut view = self.view(caller, session);
        let how = match asking {
            true => USER_ASKED,
            false => {
                "it goes on: task_wait waits for it, task_status looks at it; task_answer, task_steer, task_pause, \
                 task_resume and task_cancel change its course"
            }
        };
        if asking {
            view["next_step"] = json!(USER_ASKED);
        }
        let mut result = content::text(format!("{} works on task {id}; {how}\n{view}", tool.agent));
        // Also where the skill says what it returns: it is listed with that, or a handle.
        result.insert("structuredContent".to_owned(), view);
        Ok(complete(caller, result))
    }
}

/// Whether the worker has said how it goes: until then it may only have asked.
fn has_begun(phase: &Phase) -> bool {
    let asking = Text::from(ASKING);
    phase.questions().is_empty() && phase.progress().is_some_and(|progress| progress.status != asking)
}

/// How the caller is answered, by what the skill and the caller can do.
fn manner(caller: &Caller, tool: &Tool) -> Result<Manner, Error> {
    match (tool.skill.answers(), caller.era, caller.declared.tasks) {
        (Answers::AtOnce, _, _) | (Answers::Either, _, false) => Ok(Manner::Plain),
        // The handshake revisions cannot declare tasks: their callers get a handle.
        (_, Era::Handshake, _) => Ok(Manner::Plain),
        (Answers::Task, Era::Modern, false) => {
            caller.must_know_tasks()?;
            Ok(Manner::Task)
        }
        (Answers::Task | Answers::Either, Era::Modern, true) if tool.skill.asks_first => {
            Ok(Manner::TaskAfterAsking)
        }
        (Answers::Task | Answers::Either, Era::Modern, true) => Ok(Manner::Task),
    }
}

/// Refuses a caller that cannot do what the skill will ask of it.
fn must_be_able(caller: &Caller, tool: &Tool) -> Result<(), Error> {
    let declared = caller.declared;
    let able = |name: &str| match name {
        "elicitation" => declared.form || declared.url,
        "sampling" => declared.sampling,
        "roots" => declared.roots,
        _ => false,
    };
    let lacking: Map<String, Value> = tool
        .skill
        .requires
        .iter()
        .filter(|name| !able(name))
        .map(|name| (name.to_string(), json!({})))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = lacking.keys().map(String::as_str).collect();
    let names = names.join(", ");
    Err(missing(&Value::Object(lacking), &names))
}

/// What the caller can be asked, as the session remembers it.
fn capability_names(declared: Declared) -> Vec<Text> {
    [
        (declared.form, SHOWS_QUESTIONS),
        (declared.url, "mcp.elicitation.url"),
        (declared.sampling, "mcp.sampling"),
        (declared.roots, "mcp.roots"),
    ]
    .into_iter()
    .filter(|(declared, _)| *declared)
    .map(|(_, name)| Text::from(name))
    .collect()
}

/// What a call came to, as its answer.
fn returned(caller: &Caller, outcome: Outcome) -> Result<String, Error> {
    match outcome {
        Outcome::Returned(result) => Ok(complete(caller, result)),
        Outcome::Broken(error) => Err(error),
        Outcome::Cancelled(reason) => Ok(complete(caller, content::failed(format!("cancelled: {reason}")))),
    }
}

/// A call whose caller goes away before its answer is taken back: nobody else knows of the task.
struct Abandoned<'a> {
    mcp: &'a Mcp,
    caller: &'a Caller,
    id: &'a str,
    armed: bool,
}

impl Abandoned<'_> {
    /// The task stays.
    fn keep(mut self) {
        self.armed = false;
    }

    /// The call has its answer. An error takes the task back too: the caller has no name for it.
    fn disarm(mut self, answer: Result<String, Error>) -> Result<String, Error> {
        self.armed = self.armed && answer.is_err();
        answer
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (mcp, caller, id) = (self.mcp.clone(), self.caller.clone(), self.id.to_owned());
        tokio::spawn(async move {
            let act = Act::cancel("the caller went away");
            // The task may have ended meanwhile, which is as good.
            _ = mcp.act(&caller, &id, act).await;
        });
    }
}
