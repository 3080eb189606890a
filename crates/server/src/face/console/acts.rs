//! What the forms do. An act is durable before its page says that it was done; a refusal is shown with its reason.

use std::sync::Arc;

use axum::response::Response;
use handover_desk::approvals::Approval;
use handover_desk::converse::Saying;
use handover_desk::delegate::Responsibility;
use handover_desk::visible::spelled_out;
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

/// What is told of something that was done.
pub(super) fn done(word: &str) -> Notice {
    match word {
        "answer" => Notice::Done("The answer was stored."),
        "decide" => Notice::Done("The decision was stored."),
        "steer" => Notice::Done("The steer was stored: it is delivered at the next safe point."),
        "say" => Notice::Done("The message was stored."),
        "pause" => Notice::Done("The pause was stored: the state says whether the task is paused yet."),
        "resume" => Notice::Done("The task goes on."),
        "cancel" => Notice::Done("The task was cancelled."),
        "commit" => Notice::Done("The outcome was bound."),
        "offer" => Notice::Done("The answer to the offer was stored."),
        "hand-on" => {
            Notice::Done("The handoff was offered: the task moves when it was accepted and committed.")
        }
        "delegate" => Notice::Done("The task was handed out."),
        _ => Notice::None,
    }
}

/// Do what a form says, and show the page that it was on.
pub(super) async fn act(console: &Console, asked: &Asked, id: &str, act: &str) -> Result<Response, No> {
    let back = asked.form.get("back") == "/";
    let notice = match put(console, asked, id, act).await {
        Ok(()) if back => return Ok(see_other(&format!("/?done={act}"))),
        Ok(()) => return Ok(see_other(&format!("/tasks/{}?done={act}", encode(id)))),
        Err(Trouble::No(no)) if no.is_unknown() => return Err(no),
        Err(Trouble::No(no)) => Notice::refused(no),
        Err(Trouble::Said(said)) => Notice::invalid(said),
    };
    match back {
        true => waiting::show(console, asked, notice).await,
        false => task::show(console, asked, id, notice).await,
    }
}

async fn put(console: &Console, asked: &Asked, id: &str, act: &str) -> Result<(), Trouble> {
    let Asked { caller, form, .. } = asked;
    let desk = console.desk();
    let session = desk.session(caller, id).await?;
    // A form that is sent twice counts once.
    let key = form.said("key").filter(|key| key.len() <= 64).map(|key| format!("{act}:{key}"));
    let key = key.as_deref();
    let act = match act {
        "answer" => answer(&session, form)?,
        "steer" => Act::Task(TaskAct::Steer { text: text(form, "text")? }),
        "pause" => Act::Pause { reason: reason(form), gently: form.get("gently") == "true" },
        "resume" => Act::Resume { reason: reason(form) },
        "cancel" => {
            if form.get("sure") != "true" {
                return Err(Trouble::Said("tick the box first: a cancelled task cannot go on".to_owned()));
            }
            desk.cancel(caller, id, key, reason(form), form.get("keeps_children") == "true").await?;
            return Ok(());
        }
        "say" => {
            let body = Blob::from(text(form, "text")?.as_bytes());
            desk.say(caller, id, key, Saying { body, ..Saying::default() }).await?;
            return Ok(());
        }
        "commit" => {
            let positive = match form.get("do") {
                "complete" => true,
                "fail" => false,
                other => return Err(expected("complete or fail", other)),
            };
            // An outcome has a reason, said or not.
            let reason = form.said("reason").unwrap_or("reviewed in the console").replace("\r\n", "\n");
            desk.commit(caller, &session, positive, Text::from(reason), key).await?;
            return Ok(());
        }
        "decide" => {
            let proposal = form.get("proposal");
            let number = proposal.parse().map_err(|_| expected("the number of a proposal", proposal))?;
            desk.decide(caller, id, number, ruling(&session, form)?, key).await?;
            return Ok(());
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
            return Ok(());
        }
        "offer" => {
            let accept = match form.get("do") {
                "accept" => true,
                "decline" => false,
                other => return Err(expected("accept or decline", other)),
            };
            desk.answer_offer(caller, id, accept, reason(form)).await?;
            return Ok(());
        }
        other => return Err(expected("an act of the console", other)),
    };
    let mut command = caller.command(act);
    command.id = key.map(MessageId::from);
    desk.put(caller, id, command).await?;
    Ok(())
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
    let Some(open) = questions.iter().find(|question| question.key.as_str() == key) else {
        return Err(Trouble::Said(
            "the question is not open any more: somebody answered it, or it was taken back".to_owned(),
        ));
    };
    let reply = question::reply(open, form).map_err(Trouble::Said)?;
    let answers = vec![Answer { key: open.key.clone(), reply }];
    Ok(Act::Task(TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false }))
}

/// What was decided. Only what the form says otherwise than the proposal is a change.
fn ruling(session: &Session, form: &Fields) -> Result<Ruling, Trouble> {
    let words = || Text::from(form.said("words").unwrap_or_default().replace("\r\n", "\n"));
    match form.get("do") {
        "approve" => Ok(Ruling::Approved(Changes::default())),
        "change" => {
            let approval = Approval::of(session);
            let fields = approval.as_ref().map(waiting::changeable).unwrap_or_default();
            let said = |name: &str| {
                let before = &fields.iter().find(|field| field.name == name)?.text;
                let now = form.find(name)?.replace("\r\n", "\n");
                (now != spelled_out(before)).then_some(now)
            };
            let input = said("input").map(|input| {
                // Text that is no JSON is a text, as on every wire.
                serde_json::from_str(&input).unwrap_or(Value::String(input))
            });
            Ok(Ruling::Approved(Changes {
                title: said("title").map(Text::from),
                instructions: said("instructions").map(Text::from),
                input: input.as_ref().map(payload::of_json),
                reason: said("reason").map(Text::from),
            }))
        }
        "ask" => Ok(Ruling::ChangesAsked(words())),
        "reject" => Ok(Ruling::Rejected(words())),
        other => Err(expected("approve, change, ask or reject", other)),
    }
}
