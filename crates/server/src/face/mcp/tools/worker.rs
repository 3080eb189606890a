//! Tools to find work and do it: any MCP host can be a worker.
//!
//! - `table`: what they are called, and for what
//! - `arguments`: what they take

mod arguments;
mod table;

use std::collections::BTreeSet;

use handover_desk::answerable;
use handover_desk::calendar::rfc3339;
use handover_desk::contract::skill_of;
use handover_desk::follow::{Events, Stay};
use handover_desk::orders::Told;
use handover_desk::payload;
use handover_desk::state::State;
use handover_desk::{Accepted, WaitKind};
use handover_kernel::budget::Amounts;
use handover_kernel::command::{Act, Command, Failure, Need, NewQuestion, Progress, TaskAct};
use handover_kernel::orders::{Order, OrderKind};
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{Blob, QuestionKey, Refusal, Session, Text};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use self::arguments::{
    Ask, AskOne, Checkpoint, Complete, Fail, List, OnlyTask, Reasoned, WorkNext, WorkUpdate,
};
pub(super) use self::table::TOOLS;
use super::{Done, Trouble, read_arguments};
use crate::face::budget::{self, Numbers};
use crate::face::mcp::call::ASKING;
use crate::face::mcp::caller::{Caller, Declared};
use crate::face::mcp::content::{self, structured};
use crate::face::mcp::task::{ended, word};
use crate::face::mcp::{Mcp, No, question};

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::face::mcp) enum Tool {
    Next,
    List,
    Accept,
    Decline,
    Update,
    Checkpoint,
    Hold,
    Resume,
    Ask,
    Complete,
    Fail,
}

/// How many tasks are given out at once.
const NEXT_MAX: usize = 100;

/// How many tasks that could not be taken one `work_next` passes over.
const PASSED_OVER_MAX: usize = 32;

impl Mcp {
    pub(super) async fn run_worker(&self, caller: &Caller, tool: Tool, given: Map<String, Value>) -> Done {
        match tool {
            Tool::Next => self.work_next(caller, read_arguments(given)?).await,
            Tool::List => {
                let List { cursor } = read_arguments(given)?;
                let page =
                    self.desk().inbox(&caller.who, &[WaitKind::InHand], cursor.as_deref(), NEXT_MAX).await?;
                let work: Vec<Value> = page.sessions.iter().map(|session| shown(session)).collect();
                Ok(structured(json!({ "work": work, "next_cursor": page.next })))
            }
            Tool::Accept => {
                let OnlyTask { task_id } = read_arguments(given)?;
                let accepted = self.accept(caller, &task_id).await?;
                let work = self.handed(caller, &accepted.session).await;
                let meta = traced(std::slice::from_ref(&work));
                Ok(with_meta(structured(work), meta))
            }
            Tool::Decline => {
                let Reasoned { task_id, reason } = read_arguments(given)?;
                let act = TaskAct::Decline { task: None, assignee: None, reason: Text::from(reason) };
                self.act(caller, &task_id, Act::Task(act)).await?;
                Ok(structured(json!({ "declined": true, "task_id": task_id })))
            }
            Tool::Update => self.work_update(caller, given).await,
            Tool::Checkpoint => self.work_checkpoint(caller, read_arguments(given)?).await,
            Tool::Hold => {
                let Reasoned { task_id, reason } = read_arguments(given)?;
                let act = Act::Task(TaskAct::Hold { reason: Text::from(reason) });
                let accepted = self.put(caller, &task_id, caller.name(taking_orders(caller, act))).await?;
                Ok(structured(safe_point(&accepted, &Told::default())))
            }
            Tool::Resume => {
                let OnlyTask { task_id } = read_arguments(given)?;
                let act = Act::Resume { reason: Text::from("its worker lets it go on") };
                let accepted = self.act(caller, &task_id, act).await?;
                Ok(structured(safe_point(&accepted, &Told::default())))
            }
            Tool::Ask => self.work_ask(caller, read_arguments(given)?).await,
            Tool::Complete => self.work_complete(caller, read_arguments(given)?).await,
            Tool::Fail => self.work_fail(caller, read_arguments(given)?).await,
        }
    }

    async fn accept(&self, caller: &Caller, task_id: &str) -> Result<Accepted, No> {
        let act = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
        self.act(caller, task_id, Act::Task(act)).await
    }

    /// A task as the one that is to do it sees it, with the trace that what it does is part of.
    async fn handed(&self, caller: &Caller, session: &Session) -> Value {
        let mut shown = shown(session);
        if let Some(trace) = self.desk().trace_for_worker(&caller.who, session).await {
            shown["traceparent"] = json!(&*trace.parent);
        }
        shown
    }

    async fn work_next(&self, caller: &Caller, asked: WorkNext) -> Done {
        let max = asked.max.unwrap_or(1).clamp(1, NEXT_MAX);
        let until = self.until(caller, asked.wait_ms);
        // What could not be taken is passed over: somebody else, or another hand of the same agent, was faster.
        let mut refused = BTreeSet::new();
        loop {
            let offers = self.desk().await_offers(&caller.who, &refused, max, until).await?;
            let mut work = Vec::new();
            for session in &offers {
                if !asked.accept {
                    work.push(self.handed(caller, session).await);
                    continue;
                }
                match self.accept(caller, session.binding.id.as_str()).await {
                    Ok(accepted) => work.push(self.handed(caller, &accepted.session).await),
                    Err(no) if is_passed_over(&no) && refused.len() < PASSED_OVER_MAX => {
                        refused.insert(session.binding.id.clone());
                    }
                    // What was taken before that is given out all the same.
                    Err(no) if work.is_empty() => return Err(no.into()),
                    Err(_) => break,
                }
            }
            if !work.is_empty() || offers.is_empty() {
                let meta = traced(&work);
                return Ok(with_meta(structured(json!({ "work": work })), meta));
            }
        }
    }

    async fn work_update(&self, caller: &Caller, mut given: Map<String, Value>) -> Done {
        let asked: WorkUpdate = read_arguments(given.clone())?;
        given.remove("task_id");
        given.remove("used");
        let used = told_used(asked.used)?;
        let done = match (asked.progress, asked.total) {
            (Some(progress), Some(total)) if total > 0.0 => Some(progress / total),
            (progress, _) => progress,
        };
        let progress = Progress {
            status: Text::from("working"),
            done,
            message: Text::from(asked.message.unwrap_or_default()),
            partial: asked.partial.map_or_else(Blob::default, |partial| payload::of_json(&partial)),
        };
        let act = Act::Task(TaskAct::Update { task: None, progress, withdraws: false });
        let mut command = Command { used, ..caller.name(taking_orders(caller, act)) };
        command.verbatim = Some(Blob::from(Value::Object(given).to_string().into_bytes()));
        match self.put(caller, &asked.task_id, command).await {
            Ok(accepted) => Ok(structured(safe_point(&accepted, &Told::default()))),
            Err(no) => match no.refusal() {
                Some(Refusal::SessionSuspended) => Ok(structured(json!({
                    "orders": [], "paused": true, "ended": false, "recorded": false, "note": NOT_RECORDED,
                }))),
                Some(Refusal::SessionEnded { state }) => {
                    Ok(structured(self.over(caller, &asked.task_id, state).await))
                }
                Some(_) | None => Err(no.into()),
            },
        }
    }

    async fn work_checkpoint(&self, caller: &Caller, asked: Checkpoint) -> Done {
        let until = self.until(caller, asked.wait_ms);
        // Orders that were handed over before, for a worker that lost the answer which carried them.
        let mut told = match asked.after {
            Some(after) => self.desk().orders_since(&caller.who, &asked.task_id, after).await?,
            None => Told::default(),
        };
        let mut events = self.follow(caller, &asked.task_id).await?;
        let mut stay =
            asked.wait_ms.filter(|wait| *wait > 0).map(|_| self.desk().stay(&caller.who)).transpose()?;
        let checkpoint = || taking_orders(caller, Act::Task(TaskAct::Checkpoint));
        let mut used = told_used(asked.used)?;
        let mut command = caller.name(checkpoint());
        loop {
            let mut last = json!({ "orders": [], "paused": true, "ended": false });
            // A paused task does not take it: it is said again until the task goes on, and then once.
            command.used = used.clone();
            let answer = self.put(caller, &asked.task_id, command).await;
            if answer.is_ok() {
                used = Amounts::default();
            } else if used != Amounts::default() {
                last["recorded"] = json!(false);
                last["note"] = json!(NOT_RECORDED);
            }
            match answer {
                Ok(accepted) if accepted.receipt.duplicate => {
                    told = self.desk().told_again(&caller.who, &accepted, told).await?;
                    last = safe_point(&accepted, &told);
                    if !told.is_nothing() {
                        return Ok(structured(last));
                    }
                }
                Ok(accepted) => {
                    let paused = accepted.standing() == Standing::Suspended;
                    last = safe_point(&accepted, &told);
                    let told = !told.is_nothing() || !accepted.receipt.orders.is_empty();
                    if told || (!paused && asked.wait_ms.is_none()) {
                        return Ok(structured(last));
                    }
                }
                Err(no) => match no.refusal() {
                    Some(Refusal::SessionSuspended) if told.is_nothing() => {}
                    Some(Refusal::SessionSuspended) => {
                        last["orders"] = told.orders.iter().map(order).collect();
                        say_what_follows(&mut last, &told);
                        return Ok(structured(last));
                    }
                    Some(Refusal::SessionEnded { state }) => {
                        return Ok(structured(self.over(caller, &asked.task_id, state).await));
                    }
                    Some(_) | None => return Err(no.into()),
                },
            }
            if !self.something_happens(caller, &mut stay, &mut events, until).await? {
                return Ok(structured(last));
            }
            command = checkpoint();
        }
    }

    /// The task is over, whatever its worker was about to say.
    async fn over(&self, caller: &Caller, task_id: &str, state: &str) -> Value {
        let session = self.task(&caller.who, task_id).await.ok();
        let status = session.map_or_else(|| ended(state), |session| State::of(&session).name());
        json!({ "orders": [], "paused": false, "ended": true, "status": status })
    }

    /// What happens to a task from now on.
    async fn follow(&self, caller: &Caller, task_id: &str) -> Result<Events, Trouble> {
        let session = self.task(&caller.who, task_id).await?;
        Ok(self.desk().events(&caller.who, task_id, session.head.0))
    }

    /// Wait until something happens. False if nothing did in time, or the caller may not wait any longer. A call that
    /// did not mean to wait, and must because the task is paused, takes its place among the agent's streams now.
    async fn something_happens(
        &self,
        caller: &Caller,
        stay: &mut Option<Stay>,
        events: &mut Events,
        until: Instant,
    ) -> Result<bool, Trouble> {
        if until <= Instant::now() {
            return Ok(false);
        }
        let stay = match stay {
            Some(stay) => stay,
            None => stay.insert(self.desk().stay(&caller.who)?),
        };
        match stay.next_by(events, until).await {
            Ok(event) => Ok(event.is_some()),
            Err(over) => over.no().map_or(Ok(false), |no| Err(no.into())),
        }
    }

    async fn work_ask(&self, caller: &Caller, asked: Ask) -> Done {
        let session = self.task(&caller.who, &asked.task_id).await?;
        let mut questions = Vec::new();
        for (key, question) in &asked.questions {
            questions.push(new_question(&session, key, question).map_err(Trouble::Told)?);
        }
        let mut open: BTreeSet<QuestionKey> =
            asked.questions.keys().map(|key| QuestionKey::from(key.as_str())).collect();
        let until = self.until(caller, asked.wait_ms);
        let mut events = self.follow(caller, &asked.task_id).await?;
        // Taken before anything is asked: a call that may not wait does nothing.
        let mut stay = (asked.wait_ms != Some(0)).then(|| self.desk().stay(&caller.who)).transpose()?;
        let progress = Progress { status: Text::from(ASKING), ..Progress::default() };
        let act = Act::Task(TaskAct::Ask { task: None, questions, progress });
        let accepted = self.put(caller, &asked.task_id, caller.name(taking_orders(caller, act))).await?;
        let (mut answers, mut orders) = (Map::new(), Vec::new());
        let mut last = json!({ "paused": accepted.standing() == Standing::Suspended, "ended": false });
        let told = match accepted.receipt.duplicate {
            true => self.desk().told_again(&caller.who, &accepted, Told::default()).await?,
            false => Told { orders: accepted.receipt.orders, next: None },
        };
        say_what_follows(&mut last, &told);
        sort_orders(told.orders, &mut open, &mut answers, &mut orders);
        let unseen = asked.questions.values().any(is_plain) && answerable::is_seen_by_nobody(&session);
        if unseen {
            last["note"] = json!(format!("{}: {GO_ON}", answerable::SEEN_BY_NOBODY));
        }
        while !unseen
            && !open.is_empty()
            && self.something_happens(caller, &mut stay, &mut events, until).await?
        {
            let act = Act::Task(TaskAct::Checkpoint);
            match self.put(caller, &asked.task_id, taking_orders(caller, act)).await {
                Ok(accepted) => {
                    last["paused"] = json!(accepted.standing() == Standing::Suspended);
                    sort_orders(accepted.receipt.orders, &mut open, &mut answers, &mut orders);
                }
                Err(no) => match no.refusal() {
                    Some(Refusal::SessionSuspended) => last["paused"] = json!(true),
                    Some(Refusal::SessionEnded { state }) => {
                        last = self.over(caller, &asked.task_id, state).await;
                        break;
                    }
                    Some(_) | None => return Err(no.into()),
                },
            }
        }
        last["answered"] = json!(open.is_empty());
        last["answers"] = Value::Object(answers);
        last["orders"] = Value::Array(orders);
        Ok(structured(last))
    }

    async fn work_complete(&self, caller: &Caller, asked: Complete) -> Done {
        let given = match (asked.result, asked.text, asked.output) {
            (Some(result), None, None) => Some(content::read(&result)?),
            (None, Some(text), None) => Some(content::read(&Value::Object(content::text(text)))?),
            (None, None, Some(Value::Object(output))) => {
                Some(content::read(&json!({ "structuredContent": output }))?)
            }
            (None, None, Some(output)) => {
                Some(content::read(&Value::Object(content::text(output.to_string())))?)
            }
            (None, None, None) => None,
            (_, _, _) => {
                return Err(Trouble::Told(
                    "expected one of text, output and result, found several".to_owned(),
                ));
            }
        };
        let used = told_used(asked.used)?;
        let summary = Text::from(asked.summary.unwrap_or_default());
        let Some(given) = given else {
            let act = TaskAct::Complete { task: None, assignee: None, output: Blob::default(), summary };
            return self.report(caller, &asked.task_id, act, None, used).await;
        };
        if given.is_error {
            let failure = Failure {
                code: Text::from("tool_error"),
                reason: Text::from(given.text),
                retryable: false,
                protocol_error: false,
                output: given.output,
            };
            let act = TaskAct::Fail { task: None, assignee: None, failure };
            return self.report(caller, &asked.task_id, act, Some(given.verbatim), used).await;
        }
        let act = TaskAct::Complete { task: None, assignee: None, output: given.output, summary };
        self.report(caller, &asked.task_id, act, Some(given.verbatim), used).await
    }

    async fn work_fail(&self, caller: &Caller, asked: Fail) -> Done {
        let given = asked.result.as_ref().map(content::read).transpose()?;
        let (mut verbatim, mut output) = (None, Blob::default());
        if let Some(given) = given {
            let mut result: Map<String, Value> = serde_json::from_slice(&given.verbatim).unwrap_or_default();
            result.insert("isError".to_owned(), json!(true));
            verbatim = Some(Blob::from(Value::Object(result).to_string().into_bytes()));
            output = given.output;
        }
        let failure = match asked.protocol_error {
            Some(error) => Failure {
                code: Text::from(error.code.to_string()),
                reason: Text::from(error.message),
                retryable: false,
                protocol_error: true,
                output: error
                    .data
                    .map_or_else(Blob::default, |data| Blob::from(data.to_string().into_bytes())),
            },
            None => Failure {
                code: Text::from(asked.code.unwrap_or_else(|| "failed".to_owned())),
                reason: Text::from(asked.reason),
                retryable: asked.retryable.unwrap_or(false),
                protocol_error: false,
                output,
            },
        };
        let act = TaskAct::Fail { task: None, assignee: None, failure };
        self.report(caller, &asked.task_id, act, verbatim, told_used(asked.used)?).await
    }

    async fn report(
        &self,
        caller: &Caller,
        task_id: &str,
        act: TaskAct,
        verbatim: Option<Blob>,
        used: Amounts,
    ) -> Done {
        let mut command = Command { used, ..caller.name(caller.command(Act::Task(act))) };
        command.verbatim = verbatim;
        let accepted = self.put(caller, task_id, command).await?;
        let session = &accepted.session;
        let shown = self.shown(session, Declared::default(), &caller.who);
        let status = shown.map(|shown| word(session, shown.status));
        Ok(structured(json!({ "reported": true, "task_id": task_id, "status": status })))
    }
}

/// The trace of the only task that is handed out, where clients look for it (SEP-414).
fn traced(work: &[Value]) -> Option<Value> {
    let [one] = work else { return None };
    one.get("traceparent").map(|parent| json!({ "traceparent": parent }))
}

fn with_meta(mut result: Map<String, Value>, meta: Option<Value>) -> Map<String, Value> {
    result.extend(meta.map(|meta| ("_meta".to_owned(), meta)));
    result
}

/// Whether the task may be another's by now, and not the server busy.
fn is_passed_over(no: &No) -> bool {
    no.refusal().is_some_and(|refusal| *refusal != Refusal::Busy)
}

/// What a worker says that it has used.
fn told_used(used: Option<Numbers>) -> Result<Amounts, Trouble> {
    budget::amounts("used", used).map_err(Trouble::Told)
}

fn taking_orders(caller: &Caller, act: Act) -> Command {
    Command { takes_orders: true, ..caller.command(act) }
}

/// A task as the one that is to do it sees it.
fn shown(session: &Session) -> Value {
    let request = session.task().and_then(|task| task.phase.request().cloned());
    let has = |name: &str| session.binding.extension_keys.iter().any(|key| **key == *name);
    let mut capabilities = Map::new();
    for (key, name) in
        [("mcp.elicitation", "elicitation"), ("mcp.sampling", "sampling"), ("mcp.roots", "roots")]
    {
        if has(key) {
            capabilities.insert(name.to_owned(), json!({}));
        }
    }
    let mut shown = json!({
        "task_id": session.binding.id.as_str(),
        "requester": session.binding.requester.as_str(),
        "created_at": rfc3339(session.binding.created_at),
        "caller": { "capabilities": capabilities },
        "paused": matches!(session.lifecycle, Lifecycle::Suspended { .. }),
    });
    if let Some(skill) = skill_of(session) {
        shown["skill"] = json!(skill);
    }
    if let Some(request) = request {
        shown["title"] = json!(&*request.title);
        shown["instructions"] = json!(&*request.instructions);
        shown["arguments"] = payload::to_json(&request.input);
    }
    shown
}

/// What a safe point brought, after what was told before. What is in both, as when it is asked again under its key, is told
/// once. Orders that did not fit into the answer are there for the next safe point.
fn safe_point(accepted: &Accepted, before: &Told) -> Value {
    let last = before.orders.last().map(|order| order.seq);
    let brought = accepted.receipt.orders.iter().filter(|order| Some(order.seq) > last);
    let orders: Vec<Value> = before.orders.iter().chain(brought).map(order).collect();
    let mut shown =
        json!({ "orders": orders, "paused": accepted.standing() == Standing::Suspended, "ended": false });
    if accepted.session.orders().next().is_some() {
        shown["more_orders"] = json!(true);
    }
    say_what_follows(&mut shown, before);
    shown
}

/// Of orders that are told again: after which event to ask for the rest.
fn say_what_follows(shown: &mut Value, told: &Told) {
    if let Some(next) = told.next {
        shown["next_after"] = json!(next);
    }
}

fn order(order: &Order) -> Value {
    let seq = order.seq.0;
    match &order.what {
        OrderKind::Steer(text) => json!({ "kind": "steer", "seq": seq, "message": &**text }),
        OrderKind::Pause(reason) => json!({ "kind": "pause", "seq": seq, "reason": &**reason }),
        OrderKind::Answers(answers) => {
            let answers: Map<String, Value> = answers
                .iter()
                .map(|answer| (answer.key.to_string(), question::shown(&answer.reply)))
                .collect();
            json!({ "kind": "answer", "seq": seq, "answers": answers })
        }
        OrderKind::Message { body, answers } => json!({
            "kind": "message",
            "seq": seq,
            "message": String::from_utf8_lossy(body),
            "answers": answers.as_ref().map(|key| key.as_str()),
        }),
    }
}

/// Answers to what was asked go to one side, everything else to the other.
fn sort_orders(
    found: Vec<Order>,
    open: &mut BTreeSet<QuestionKey>,
    answers: &mut Map<String, Value>,
    others: &mut Vec<Value>,
) {
    for found in found {
        match &found.what {
            OrderKind::Answers(given) if given.iter().all(|answer| open.contains(&answer.key)) => {
                for answer in given {
                    open.remove(&answer.key);
                    answers.insert(answer.key.to_string(), question::shown(&answer.reply));
                }
            }
            OrderKind::Answers(_) | OrderKind::Steer(_) | OrderKind::Pause(_) | OrderKind::Message { .. } => {
                others.push(order(&found));
            }
        }
    }
}

/// What a worker is told whose task is paused.
const NOT_RECORDED: &str = "the task is paused, and what you said was not recorded: call work_checkpoint until paused is false, \
    then say it again";

/// What a worker can do whose question may be shown to nobody.
const GO_ON: &str = "go on without the answer if you can, and take one that comes all the same with work_checkpoint; otherwise \
    end with work_fail and say what you need";

/// Whether a question asks for a form. Whatever else it asks for, the client said that it can do.
fn is_plain(asked: &AskOne) -> bool {
    asked.request.as_ref().is_none_or(|request| {
        request.get("method").and_then(Value::as_str) == Some("elicitation/create")
            && request.pointer("/params/mode").and_then(Value::as_str) != Some("url")
    })
}

/// A question as the kernel takes it. What can only be asked of a client that can do it is refused for others.
fn new_question(session: &Session, key: &str, asked: &AskOne) -> Result<NewQuestion, String> {
    let wrong = |what: String| format!("questions.{key}: {what}");
    let mut question = NewQuestion {
        key: Some(QuestionKey::from(key)),
        need: if asked.permission { Need::Authorization } else { Need::Input },
        text: Text::from(asked.message.clone().unwrap_or_default()),
        schema: Blob::default(),
        wire: None,
    };
    if let Some(schema) = &asked.schema {
        question.schema = Blob::from(schema.to_string().into_bytes());
    }
    let Some(request) = &asked.request else {
        if question.text.trim().is_empty() {
            return Err(wrong("expected a message, found nothing".to_owned()));
        }
        return Ok(question);
    };
    let has = |name: &str| session.binding.extension_keys.iter().any(|key| **key == *name);
    let method = request.get("method").and_then(Value::as_str).unwrap_or_default();
    let url = request.pointer("/params/mode").and_then(Value::as_str) == Some("url");
    let (known, able) = match method {
        "elicitation/create" => (true, !url || has("mcp.elicitation.url")),
        "sampling/createMessage" => (true, has("mcp.sampling")),
        "roots/list" => (true, has("mcp.roots")),
        _ => (false, false),
    };
    if !known {
        return Err(wrong(
            "expected the method elicitation/create, sampling/createMessage or roots/list".to_owned(),
        ));
    }
    if !able {
        return Err(wrong(format!("the requester's client did not say that it can do {method}")));
    }
    if let Some(what) = question::malformed(request) {
        return Err(wrong(what.to_owned()));
    }
    if let Some(schema) = request.pointer("/params/requestedSchema").filter(|_| !url) {
        // Whoever answers, on whatever face, answers to this.
        question.schema = Blob::from(schema.to_string().into_bytes());
    }
    if let Some(message) = request.pointer("/params/message").and_then(Value::as_str) {
        question.text = Text::from(message);
    }
    question.wire = Some(Blob::from(request.to_string().into_bytes()));
    Ok(question)
}
