//! What the forms do. An act is durable before its page says that it was done; a refusal is shown with its reason.

use std::sync::Arc;

use axum::response::Response;
use handover_desk::approvals::Approval;
use handover_desk::converse::Saying;
use handover_desk::delegate::Responsibility;
use handover_desk::errands::not_moved;
use handover_desk::{No, payload};
use handover_kernel::approval::{Changes, Ruling};
use handover_kernel::command::{Act, Answer, TaskAct};
use handover_kernel::handoff::TASK_SCOPE_PREFIX;
use handover_kernel::{AgentId, Blob, MessageId, Session, Text};
use serde_json::Value;

use super::Console;
use super::fields::{Fields, encode};
use super::http::Asked;
use super::page::{Notice, see_other};
use super::{question, shown, task, waiting};

/// Why something was not done.
enum Trouble {
    /// The desk refuses it.
    No(No),
    /// The form says what cannot be.
    Said(String),
}

impl<E: Into<No>> From<E> for Trouble {
    fn from(no: E) -> Trouble {
        Trouble::No(no.into())
    }
}

/// What was done: a word for it, and what else is to be told of it.
pub(super) struct Did<'a> {
    word: &'a str,
    more: String,
}

impl<'a> From<&'a str> for Did<'a> {
    fn from(word: &'a str) -> Did<'a> {
        Did { word, more: String::new() }
    }
}

impl<'a> Did<'a> {
    pub(super) fn with(word: &'a str, more: impl Into<String>) -> Did<'a> {
        Did { word, more: more.into() }
    }
}

/// What the address of the page says that follows something that was done: sealed, so that no link claims what nobody did.
pub(super) fn after<'a>(console: &Console, asked: &Asked, target: &str, did: impl Into<Did<'a>>) -> String {
    let Did { word, more } = did.into();
    let sealed = seal(console, asked, target, word, &more);
    let more = if more.is_empty() { more } else { format!("&more={}", encode(&more)) };
    format!("{target}?done={word}.{sealed}{more}")
}

/// What only the server can say of it, to one sign-in.
fn seal(console: &Console, asked: &Asked, target: &str, word: &str, more: &str) -> String {
    console.desk().seal(&["console done", &asked.sign_in, target, word, more])
}

/// What is told of something that was done, on the page that its address says it on.
pub(super) fn done(console: &Console, asked: &Asked, target: &str) -> Notice {
    let Some((word, sealed)) = asked.query.get("done").split_once('.') else { return Notice::None };
    let more = asked.query.get("more");
    if sealed != seal(console, asked, target, word, more) {
        return Notice::None;
    }
    let said = match word {
        "ended" => "The sign-in was ended.",
        "answer" => "The answer was stored.",
        "decide" => "The decision was stored.",
        "steer" => "The steer was stored: it is delivered at the next safe point.",
        "say" => "The message was stored.",
        "pause" => "The pause was stored: the state says whether the task is paused yet.",
        "resume" => "The task goes on.",
        "cancel" if !more.is_empty() => return Notice::Done(format!("The task was cancelled, {more}.")),
        "cancel" => "The task was cancelled.",
        "withdraw" => "The offer was taken back.",
        "commit" if more == LATER => "The outcome was bound. The task is paused: it moves when it goes on.",
        "commit" if !more.is_empty() => {
            return Notice::But(format!("The outcome was bound, but the task was not handed on: {more}."));
        }
        "commit" => "The outcome was bound.",
        "offer" => "The answer to the offer was stored.",
        "hand-on" => "The handoff was offered: the task moves when it was accepted and committed.",
        "delegate" if !more.is_empty() => {
            return Notice::But(format!("The task was handed out, but {more}: it waits until there is one."));
        }
        "delegate" => "The task was handed out.",
        _ => return Notice::None,
    };
    Notice::Done(said.to_owned())
}

/// What keeps a task from being handed on that is paused.
const LATER: &str = "SESSION_SUSPENDED";

/// Do what a form says, and show the page that it was on.
pub(super) async fn act(console: &Console, asked: &Asked, id: &str, act: &str) -> Result<Response, No> {
    let back = asked.form.get("back") == "/";
    let target = if back { "/".to_owned() } else { format!("/tasks/{}", encode(id)) };
    let notice = match put(console, asked, id, act).await {
        Ok(did) => return Ok(see_other(&after(console, asked, &target, did))),
        Err(Trouble::No(no)) if no.is_unknown() => return Err(no),
        Err(Trouble::No(no)) => Notice::refused(no),
        Err(Trouble::Said(said)) => Notice::invalid(said),
    };
    match back {
        true => waiting::refused(console, asked, id, notice).await,
        false => task::show(console, asked, id, notice).await,
    }
}

/// Do it, and say what was done.
async fn put<'a>(console: &Console, asked: &Asked, id: &str, act: &'a str) -> Result<Did<'a>, Trouble> {
    let Asked { caller, form, .. } = asked;
    let desk = console.desk();
    let session = desk.session(caller, id).await?;
    // A form that is sent twice counts once.
    let key = form.said("key").filter(|key| key.len() <= 64).map(|key| format!("{act}:{key}"));
    let key = key.as_deref();
    let did = Did::from(act);
    let act = match act {
        "answer" => answer(&session, form)?,
        "steer" => Act::Task(TaskAct::Steer { text: text(form, "text")? }),
        "pause" => Act::Pause { reason: reason(form), gently: form.get("gently") == "true" },
        "resume" => Act::Resume { reason: reason(form) },
        "cancel" => {
            if form.get("sure") != "true" {
                return Err(Trouble::Said("tick the box first: a cancelled task cannot go on".to_owned()));
            }
            if session.handoff().is_some() {
                desk.withdraw(caller, id, key, reason(form)).await?;
                return Ok("withdraw".into());
            }
            desk.cancel(caller, id, key, reason(form), form.get("keeps_children") == "true").await?;
            return Ok(Did::with(act, below(console, asked, id).await));
        }
        "say" => {
            let body = Blob::from(text(form, "text")?.as_bytes());
            desk.say(caller, id, key, Saying { body, ..Saying::default() }).await?;
            return Ok(did);
        }
        "commit" => {
            let positive = match form.get("do") {
                "complete" => true,
                "fail" => false,
                other => return Err(expected("complete or fail", other)),
            };
            // An outcome has a reason, said or not.
            let reason = form.said("reason").unwrap_or("reviewed in the console").replace("\r\n", "\n");
            let bound = desk.commit(caller, &session, positive, Text::from(reason), key).await?;
            return Ok(Did::with(act, not_moved(&bound.session).unwrap_or_default()));
        }
        "decide" => {
            let proposal = form.get("proposal");
            let number = proposal.parse().map_err(|_| expected("the number of a proposal", proposal))?;
            desk.decide(caller, id, number, ruling(&session, form)?, key).await?;
            return Ok(did);
        }
        "hand-on" => {
            let to = form.said("to").ok_or_else(|| expected("an agent", ""))?;
            let offered = Responsibility {
                to: AgentId::from(to),
                scope: Text::from(format!("{TASK_SCOPE_PREFIX}{id}")),
                reason: reason(form),
                context: None,
                ttl_ms: None,
            };
            desk.offer(caller, key, "console", offered).await?;
            return Ok(did);
        }
        "offer" => {
            let accept = match form.get("do") {
                "accept" => true,
                "decline" => false,
                other => return Err(expected("accept or decline", other)),
            };
            desk.answer_offer(caller, id, accept, reason(form), key).await?;
            return Ok(did);
        }
        other => return Err(expected("an act of the console", other)),
    };
    let mut command = caller.command(act);
    command.id = key.map(MessageId::from);
    desk.put(caller, id, command).await?;
    Ok(did)
}

/// What became of the tasks under one that was cancelled, in a few words.
async fn below(console: &Console, asked: &Asked, id: &str) -> String {
    // It is cancelled, whether it is known or not how far that has gone.
    let Ok(below) = console.desk().below_cancelled(&asked.caller, id).await else { return String::new() };
    let (reached, left) = (below.reached.len(), below.left.len());
    let goes_on = if left == 1 { "goes on" } else { "go on" };
    match (reached, left) {
        (0, 0) => String::new(),
        (reached, 0) => format!("with {reached} under it"),
        (0, left) => format!("and {left} under it {goes_on}"),
        (reached, left) => format!("with {reached} under it; {left} {goes_on}"),
    }
}

fn expected(what: &str, found: &str) -> Trouble {
    Trouble::Said(format!("expected {what}, found {:?}", shown::words(found)))
}

/// A text that must be there.
fn text(form: &Fields, name: &str) -> Result<Text, Trouble> {
    let found = form.get(name).replace("\r\n", "\n");
    match found.trim() {
        "" => Err(Trouble::Said("expected some text, found nothing".to_owned())),
        _ => Ok(Text::from(found)),
    }
}

fn reason(form: &Fields) -> Text {
    Text::from(form.said("reason").unwrap_or_default().replace("\r\n", "\n"))
}

fn answer(session: &Arc<Session>, form: &Fields) -> Result<Act, Trouble> {
    let key = form.get("question");
    let questions = session.task().map_or(&[][..], |task| task.phase.questions());
    let Some(open) = question::named(questions, key) else {
        return Err(Trouble::Said(
            "the question is not open any more: somebody answered it, or it was taken back".to_owned(),
        ));
    };
    let reply = question::reply(open, form).map_err(Trouble::Said)?;
    let answers = vec![Answer { key: open.key.clone(), reply }];
    Ok(Act::Task(TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false }))
}

/// What was decided. Only what the form says otherwise than the proposal is a change, and nothing that somebody typed is dropped.
fn ruling(session: &Session, form: &Fields) -> Result<Ruling, Trouble> {
    let words = form.said("words").map(|words| Text::from(words.replace("\r\n", "\n")));
    let said = |what: &str| Err(Trouble::Said(what.to_owned()));
    match form.get("do") {
        "approve" | "change" if words.is_some() => said(
            "an approval carries no words: clear them, or click \u{201c}Ask for changes\u{201d} or \u{201c}Reject\u{201d}",
        ),
        "approve" if changes(session, form) != Changes::default() => said(
            "the form has changes: click \u{201c}Approve with these changes\u{201d}, or undo them to approve it as it is",
        ),
        "approve" => Ok(Ruling::Approved(Changes::default())),
        "change" => Ok(Ruling::Approved(changes(session, form))),
        "ask" => Ok(Ruling::ChangesAsked(words.unwrap_or_default())),
        "reject" => Ok(Ruling::Rejected(words.unwrap_or_default())),
        other => Err(expected("approve, change, ask or reject", other)),
    }
}

/// What a form says otherwise than the proposal.
fn changes(session: &Session, form: &Fields) -> Changes {
    let approval = Approval::of(session);
    let fields = approval.as_ref().map(waiting::changeable).unwrap_or_default();
    let said = |name: &str| {
        let field = fields.iter().find(|field| field.name == name)?;
        let now = form.find(name).filter(|now| !field.is(now))?;
        Some(now.replace("\r\n", "\n"))
    };
    let input = said("input").map(|input| {
        // Text that is no JSON is a text, as on every wire.
        serde_json::from_str(&input).unwrap_or(Value::String(input))
    });
    Changes {
        title: said("title").map(Text::from),
        instructions: said("instructions").map(Text::from),
        input: input.as_ref().map(payload::of_json),
        reason: said("reason").map(Text::from),
    }
}
