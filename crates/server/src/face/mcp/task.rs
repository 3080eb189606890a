//! How a task looks: SEP-2663's `DetailedTask`, with SEP-2669's `paused` for those that know it.

use std::borrow::Cow;
use std::fmt::Write;

use handover_kernel::id::Face;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::task::{Phase, Report, Task};
use handover_kernel::{Session, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::caller::Declared;
use super::message::{Error, INTERNAL_ERROR, result};
use super::{content, question};
use crate::face::budget;
use handover_desk::approvals::{Approval, sees_approval};
use handover_desk::calendar::rfc3339;
use handover_desk::caller::Caller;
use handover_desk::clock::now;
use handover_desk::codes::own;
use handover_desk::directory::Directory;
use handover_desk::payload;
use handover_desk::state::State;
use handover_desk::waiting::cycle;

/// A task as one caller sees it.
#[derive(Debug)]
pub struct Shown<'a> {
    /// `complete` when it is read, `task` when it is created; nothing in a notification.
    pub result_type: Option<&'static str>,
    /// What a reader needs beside it.
    pub meta: Option<&'a RawValue>,
    /// Its name.
    pub task_id: &'a str,
    /// Where it is.
    pub status: Status,
    /// Where it is, in a sentence.
    pub status_message: Option<Cow<'a, str>>,
    /// Since when.
    pub created_at: String,
    /// The last time that something happened.
    pub last_updated_at: String,
    /// How long it may take; none is for ever.
    pub ttl_ms: Option<u64>,
    /// How often to look.
    pub poll_interval_ms: u64,
    /// What it waits for.
    pub input_requests: Option<Map<String, Value>>,
    /// What the call returns.
    pub result: Option<Map<String, Value>>,
    /// Why the call is broken.
    pub error: Option<Error>,
}

/// Where a task is, in MCP's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Somebody works on it, or is to.
    Working,
    /// It waits for answers.
    InputRequired,
    /// It is suspended.
    Paused,
    /// The call has a result, good or bad.
    Completed,
    /// The call is broken.
    Failed,
    /// It was taken back.
    Cancelled,
}

impl Status {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Status::Working => "working",
            Status::InputRequired => "input_required",
            Status::Paused => "paused",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// This.
    Returned(Map<String, Value>),
    /// Nothing, because the call is broken.
    Broken(Error),
    /// Nothing, because it was taken back.
    Cancelled(String),
}

const STRUCTURED: &str = "structuredContent";

/// What the call came to, once it has ended.
pub fn outcome(session: &Session) -> Option<Outcome> {
    let task = session.task()?;
    let id = session.binding.id.as_str();
    match &session.lifecycle {
        Lifecycle::Open | Lifecycle::Suspended { .. } => None,
        Lifecycle::Resolved { commitment } => Some(match &task.phase {
            Phase::Reported { report: Report::Complete { output, .. }, wire, .. } if commitment.positive => {
                let of_bytes = || content::of_bytes(id, output);
                let mut result = given(wire).unwrap_or_else(of_bytes);
                if promises(session) && !result.contains_key(STRUCTURED) {
                    result.extend(
                        of_bytes().remove(STRUCTURED).map(|content| (STRUCTURED.to_owned(), content)),
                    );
                }
                Outcome::Returned(result)
            }
            Phase::Reported { report: Report::Fail(failure), .. } if failure.protocol_error => {
                let code = failure.code.parse().unwrap_or(INTERNAL_ERROR);
                let data = serde_json::from_slice(&failure.output).ok();
                Outcome::Broken(Error::of_agent(code, failure.reason.to_string(), data))
            }
            Phase::Reported { report: Report::Fail(failure), wire, .. } => {
                let said = if failure.reason.is_empty() { &failure.code } else { &failure.reason };
                Outcome::Returned(given(wire).unwrap_or_else(|| content::failed(said.to_string())))
            }
            Phase::Reported { .. }
            | Phase::Pending
            | Phase::Requested { .. }
            | Phase::Working { .. }
            | Phase::Waiting { .. } => Outcome::Returned(content::failed(commitment.reason.to_string())),
        }),
        Lifecycle::Expired { .. } => {
            let error = Error::new(INTERNAL_ERROR, "the task's time to live has elapsed");
            Some(Outcome::Broken(error.named(own::TASK_EXPIRED.code)))
        }
        Lifecycle::Cancelled { .. } if session.was_untaken() => {
            let declined: Vec<&str> = task.declined.keys().map(|agent| agent.as_str()).collect();
            let message = format!("nobody is left who could do this; declined by: {}", declined.join(", "));
            Some(Outcome::Returned(content::failed(message)))
        }
        Lifecycle::Cancelled { reason, .. } if session.was_not_approved() => {
            let told = Approval::of(session).map_or_else(|| reason.to_string(), |found| found.sentence());
            Some(Outcome::Returned(content::failed(told)))
        }
        Lifecycle::Cancelled { reason, .. } => Some(Outcome::Cancelled(reason.to_string())),
    }
}

/// Whether the skill that is called says what it returns: then a client wants to see that, whatever else there is.
fn promises(session: &Session) -> bool {
    session.binding.contract.as_ref().is_some_and(|contract| !contract.output.is_empty())
}

/// The result as an MCP worker gave it, of which the command line is one.
fn given(wire: &(Face, Option<handover_kernel::Blob>)) -> Option<Map<String, Value>> {
    match wire {
        (Face::Mcp | Face::Cli, Some(bytes)) => serde_json::from_slice(bytes).ok(),
        (Face::Macp | Face::Mcp | Face::Grid | Face::Console | Face::Cli | Face::Runtime, _) => None,
    }
}

/// Who asks what is open in a task.
pub fn asker(session: &Session) -> &str {
    session.task().and_then(|task| task.phase.assignee()).map_or("the agent", |agent| agent.as_str())
}

/// What the caller can be asked, by key; nothing if nothing is asked.
pub fn asked(session: &Session, declared: Declared) -> Map<String, Value> {
    let questions = session.task().map_or(&[][..], |task| task.phase.questions());
    questions
        .iter()
        .map(|question| (question.key.to_string(), question::put(question, asker(session))))
        .filter(|(_, request)| question::can_be_asked(declared, request))
        .collect()
}

impl<'a> Shown<'a> {
    /// A task as a caller sees it that declared so much; none if the session is about something else.
    pub fn of(
        session: &'a Session,
        declared: Declared,
        poll_interval_ms: u64,
        directory: &Directory,
        caller: &Caller,
    ) -> Option<Shown<'a>> {
        let task = session.task()?;
        let mut shown = Shown {
            result_type: None,
            meta: None,
            task_id: session.binding.id.as_str(),
            status: Status::Working,
            status_message: message(session, task, directory, caller),
            created_at: rfc3339(session.binding.created_at),
            last_updated_at: rfc3339(session.last_at),
            ttl_ms: session.ends_by().map(|at| at.since(session.binding.created_at)),
            poll_interval_ms,
            input_requests: None,
            result: None,
            error: None,
        };
        match outcome(session) {
            Some(Outcome::Returned(mut result)) => {
                result.insert("resultType".to_owned(), json!("complete"));
                shown.status = Status::Completed;
                shown.result = Some(result);
            }
            Some(Outcome::Broken(error)) => {
                shown.status = Status::Failed;
                shown.status_message = Some(Cow::Owned(error.message.to_string()));
                shown.error = Some(error);
            }
            Some(Outcome::Cancelled(_)) => shown.status = Status::Cancelled,
            None => shown.while_it_lasts(session, declared),
        }
        Some(shown)
    }

    /// As JSON. Put together by hand, because it is what most requests are answered with.
    pub fn json(&self) -> String {
        const ROOM: usize = 1024;
        let mut json = String::with_capacity(ROOM);
        json.push('{');
        if let Some(result_type) = self.result_type {
            json.extend(["\"resultType\":\"", result_type, "\","]);
        }
        if let Some(meta) = self.meta {
            json.extend(["\"_meta\":", meta.get(), ","]);
        }
        json.push_str("\"taskId\":");
        quote(self.task_id, &mut json);
        json.extend([",\"status\":\"", self.status.name(), "\""]);
        if let Some(message) = &self.status_message {
            json.push_str(",\"statusMessage\":");
            quote(message, &mut json);
        }
        json.extend([
            ",\"createdAt\":\"",
            &self.created_at,
            "\",\"lastUpdatedAt\":\"",
            &self.last_updated_at,
        ]);
        json.push_str("\",\"ttlMs\":");
        match self.ttl_ms {
            Some(ttl_ms) => number(ttl_ms, &mut json),
            None => json.push_str("null"),
        }
        json.push_str(",\"pollIntervalMs\":");
        number(self.poll_interval_ms, &mut json);
        if let Some(requests) = &self.input_requests {
            json.extend([",\"inputRequests\":", &result(requests)]);
        }
        if let Some(returned) = &self.result {
            json.extend([",\"result\":", &result(returned)]);
        }
        if let Some(error) = &self.error {
            json.extend([",\"error\":", &result(error)]);
        }
        json.push('}');
        json
    }

    fn while_it_lasts(&mut self, session: &Session, declared: Declared) {
        let asked = asked(session, declared);
        if matches!(session.lifecycle, Lifecycle::Suspended { .. }) && declared.pause {
            self.status = Status::Paused;
        } else if !asked.is_empty() {
            self.status = Status::InputRequired;
            self.input_requests = Some(asked);
        }
    }

    /// The same without what it waits for or came to, as a task is when it is created.
    pub fn bare(mut self) -> Shown<'a> {
        self.result_type = Some("task");
        (self.input_requests, self.result, self.error) = (None, None, None);
        self
    }
}

/// A number in JSON.
fn number(number: u64, json: &mut String) {
    write!(json, "{number}").expect("writing to a string does not fail");
}

/// A text in JSON. Most have nothing to escape.
fn quote(text: &str, json: &mut String) {
    let plain = |byte| byte >= b' ' && byte != b'"' && byte != b'\\';
    match text.bytes().all(plain) {
        true => json.extend(["\"", text, "\""]),
        false => json.push_str(&result(&text)),
    }
}

/// The word for where a task is on the tools of ours. How it ended has a word of its own, which the status of the extension
/// has not: there, a call is completed that has a result, good or bad.
pub fn word(session: &Session, status: Status) -> &'static str {
    match session.lifecycle.is_terminal() {
        true => State::of(session).name(),
        false => status.name(),
    }
}

/// What an ended session is called here.
pub fn ended(state: &str) -> &'static str {
    match state {
        "expired" => "failed",
        "cancelled" => "cancelled",
        _ => "completed",
    }
}

/// How many of those who could take a task are named.
const NAMED_MAX: usize = 5;

/// For whom a task waits that nobody has taken, whether they are there, and since when.
fn waiting(session: &Session, task: &Task, directory: &Directory, tenant: &str) -> String {
    let mut left = task.takers(&session.binding);
    let shown: Vec<String> = left
        .by_ref()
        .take(NAMED_MAX)
        .map(|agent| {
            let presence = directory.presence(tenant, agent);
            let seen = match presence.last_seen {
                _ if presence.online => "online".to_owned(),
                Some(at) => format!("last seen {}", clock(at)),
                None if directory.knows_now(tenant, agent) => "not seen since the server started".to_owned(),
                None => "never seen".to_owned(),
            };
            format!("{agent}, {seen}")
        })
        .collect();
    let since = clock(session.stands_since);
    let others = match left.count() {
        0 => String::new(),
        count => format!(" or {count} others"),
    };
    match shown.len() {
        0 => format!("waiting for an agent that takes it, since {since}"),
        _ => format!("waiting for {}{others}, since {since}", shown.join(" or ")),
    }
}

/// A moment as people say it: the time of day, and the day if it was not today.
fn clock(at: Timestamp) -> String {
    let (at, today) = (rfc3339(at), rfc3339(now()));
    let (day, time) = at.split_at(at.len().min(10));
    let time: String = time.chars().skip(1).take(5).collect();
    if today.starts_with(day) { format!("{time} UTC") } else { format!("{day} {time} UTC") }
}

/// Where it is, in a sentence.
fn message<'a>(
    session: &'a Session,
    task: &'a Task,
    directory: &Directory,
    caller: &Caller,
) -> Option<Cow<'a, str>> {
    let said = || task.phase.progress().filter(|progress| !progress.message.is_empty());
    let questions = || {
        let texts: Vec<&str> = task.phase.questions().iter().map(|question| &*question.text).collect();
        texts.join(" / ")
    };
    let assignee = || task.phase.assignee().map_or("the assignee", |agent| agent.as_str());
    let approval = Approval::of(session).filter(|_| sees_approval(caller, session));
    if let (Some(approval), false) = (approval, session.lifecycle.is_terminal()) {
        return Some(Cow::Owned(approval.sentence()));
    }
    if !task.cycle.is_empty() && !session.lifecycle.is_terminal() {
        return Some(Cow::Owned(cycle(&task.cycle)));
    }
    match session.standing() {
        Standing::Pending | Standing::Requested => {
            Some(Cow::Owned(waiting(session, task, directory, &caller.tenant)))
        }
        Standing::Working if task.pause.is_some() => {
            Some(Cow::Owned(format!("{} will pause at its next safe point", assignee())))
        }
        Standing::Working if session.is_overspent() => Some(Cow::Borrowed(budget::OVERSPENT)),
        Standing::Working => {
            let words = || payload::words(task.conversation.last_words.as_ref()?);
            let told = said().map(|progress| Cow::Borrowed(&*progress.message));
            told.or_else(|| words().map(Cow::Owned))
        }
        Standing::WaitingInput => Some(Cow::Owned(format!("{} asks: {}", assignee(), questions()))),
        Standing::WaitingAuthorization => {
            Some(Cow::Owned(format!("{} asks for permission: {}", assignee(), questions())))
        }
        Standing::WaitingReply => {
            Some(Cow::Owned(format!("{} waits for a message of the requester", assignee())))
        }
        Standing::ReportedComplete | Standing::ReportedFail => {
            Some(Cow::Borrowed("reported: the requester has not decided about the result yet"))
        }
        Standing::Suspended => match &session.lifecycle {
            Lifecycle::Suspended { reason, .. } if reason.is_empty() => {
                Some(Cow::Borrowed("paused: resume it to go on"))
            }
            Lifecycle::Suspended { reason, .. } => {
                Some(Cow::Owned(format!("paused: {reason}; resume it to go on")))
            }
            Lifecycle::Open
            | Lifecycle::Resolved { .. }
            | Lifecycle::Expired { .. }
            | Lifecycle::Cancelled { .. } => None,
        },
        Standing::ResolvedPositive => None,
        Standing::ResolvedNegative => match &session.lifecycle {
            Lifecycle::Resolved { commitment } => Some(Cow::Borrowed(&*commitment.reason)),
            Lifecycle::Open
            | Lifecycle::Suspended { .. }
            | Lifecycle::Expired { .. }
            | Lifecycle::Cancelled { .. } => None,
        },
        Standing::Expired => Some(Cow::Borrowed("the task's time to live has elapsed")),
        Standing::Cancelled => match &session.lifecycle {
            Lifecycle::Cancelled { reason, .. } => Some(Cow::Owned(format!("cancelled: {reason}"))),
            Lifecycle::Open
            | Lifecycle::Suspended { .. }
            | Lifecycle::Resolved { .. }
            | Lifecycle::Expired { .. } => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_shown_as_json_whatever_its_texts_have_in_them() {
        let mut shown = Shown {
            result_type: None,
            meta: None,
            task_id: "t-1",
            status: Status::Working,
            status_message: None,
            created_at: "2026-07-28T09:30:00.000Z".to_owned(),
            last_updated_at: "2026-07-28T09:30:01.000Z".to_owned(),
            ttl_ms: None,
            poll_interval_ms: 1000,
            input_requests: None,
            result: None,
            error: None,
        };
        assert_eq!(
            shown.json(),
            r#"{"taskId":"t-1","status":"working","createdAt":"2026-07-28T09:30:00.000Z","lastUpdatedAt":"2026-07-28T09:30:01.000Z","ttlMs":null,"pollIntervalMs":1000}"#
        );
        let meta = RawValue::from_string(r#"{"a":1}"#.to_owned()).unwrap();
        let map = |key: &str| Map::from_iter([(key.to_owned(), json!(key))]);
        let said = "a \"quote\", a \\, a line\nand \u{1}, \u{7f}, \u{2028} and \u{1f980}";
        (shown.result_type, shown.meta, shown.task_id) = (Some("complete"), Some(&*meta), said);
        (shown.status_message, shown.ttl_ms) = (Some(Cow::Borrowed(said)), Some(60_000));
        (shown.input_requests, shown.result) = (Some(map("asked")), Some(map("returned")));
        shown.error = Some(Error::of_agent(7, said, None));
        let read: Value = serde_json::from_str(&shown.json()).unwrap();
        assert_eq!(
            read,
            json!({
                "resultType": "complete",
                "_meta": { "a": 1 },
                "taskId": said,
                "status": "working",
                "statusMessage": said,
                "createdAt": "2026-07-28T09:30:00.000Z",
                "lastUpdatedAt": "2026-07-28T09:30:01.000Z",
                "ttlMs": 60_000,
                "pollIntervalMs": 1000,
                "inputRequests": { "asked": "asked" },
                "result": { "returned": "returned" },
                "error": { "code": 7, "message": said },
            })
        );
    }
}
