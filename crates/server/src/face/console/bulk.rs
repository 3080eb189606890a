//! One act on many tasks: first how many and which, then, for each of those that were confirmed, what came of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use handover_desk::find::Wanted;
use handover_desk::{No, id as ids};
use handover_kernel::command::Act;
use handover_kernel::session::Lifecycle;
use handover_kernel::{Refusal, Session, Text};

use super::Console;
use super::http::Asked;
use super::page::{Notice, Top, html};
use super::shown::{Faces, Head, short, title};
use super::tasks::Filter;
use crate::face::no;

/// How many tasks one form is about.
const TASKS_MAX: usize = 200;

#[derive(Template)]
#[template(path = "bulk.html")]
struct Page {
    top: Top,
    act: &'static str,
    /// The act as a heading and a button say it.
    name: &'static str,
    /// Tasks, why each cannot be acted on, or nothing where it can, and whether it is ticked.
    rows: Vec<(Head, String, bool)>,
    /// How many can.
    able: usize,
    /// The address of those that come after these; empty if there are none.
    next: String,
    /// What the address of the form says of the filter.
    same: String,
    key: String,
    reason: String,
}

#[derive(Template)]
#[template(path = "bulk_done.html")]
struct Done {
    top: Top,
    act: &'static str,
    rows: Vec<Dealt>,
    done: usize,
    /// How many were asked to, and do it at their next safe point.
    asked: usize,
}

/// What came of one task.
struct Dealt {
    id: String,
    short: String,
    title: String,
    /// Whether it is only asked for.
    asked: bool,
    /// Why it was refused; nothing where it was not.
    why: String,
}

/// The acts, and as a heading says them.
const ACTS: [(&str, &str); 3] = [("pause", "Pause"), ("resume", "Resume"), ("cancel", "Cancel")];

fn known(name: &str) -> Result<(&'static str, &'static str), No> {
    let found = ACTS.into_iter().find(|(known, _)| *known == name);
    found.ok_or_else(|| Refusal::invalid("expected the act pause, resume or cancel, found another").into())
}

fn act_of(name: &str, reason: Text) -> Act {
    match name {
        "pause" => Act::Pause { reason, gently: false },
        "resume" => Act::Resume { reason },
        _ => Act::Cancel { reason, keeps_children: false },
    }
}

/// Which tasks it would be. What was ticked and typed in a form that was refused stays so.
pub(super) async fn confirm(console: &Console, asked: &Asked, notice: Notice) -> Result<Response, No> {
    let (desk, caller) = (console.desk(), &asked.caller);
    let act = asked.form.said("act").unwrap_or(asked.query.get("act"));
    let ((act, name), filter) = (known(act)?, Filter::of(asked));
    let (again, status) = (notice.refusal().is_some(), notice.status());
    let ticked: BTreeSet<&str> = asked.form.all("id").collect();
    let wanted = Wanted { open: true, ..filter.wanted()? };
    let found = desk.find(caller, &wanted, asked.query.said("after"), TASKS_MAX).await?;
    let mut rows = Vec::new();
    for session in &found.tasks {
        let could = desk.could(caller, session, act_of(act, Text::from("?")));
        let why = could.err().map_or_else(String::new, |no| no::No(no).said());
        let ticks = !again || ticked.contains(session.binding.id.as_str());
        rows.push((Head::of(session, &Faces::new(), caller), why, ticks));
    }
    let able = rows.iter().filter(|(_, why, _)| why.is_empty()).count();
    let (same, reason) = (asked.query.with("act", act), asked.form.get("reason").to_owned());
    let at = if again { format!("/bulk?{same}") } else { String::new() };
    let top = Top { here: "tasks", notice, at, ..console.top(asked, format!("{name} tasks")).await? };
    let next = found.next.map(|next| format!("/bulk?{}", asked.query.with("after", &next)));
    let (next, key) = (next.unwrap_or_default(), ids::unguessable());
    let page = Page { top, act, name, rows, able, next, same, key, reason };
    Ok(html(status, &page, caller.room()))
}

/// Act on those that were ticked.
pub(super) async fn act(console: &Console, asked: &Asked) -> Result<Response, No> {
    let (desk, caller, form) = (console.desk(), &asked.caller, &asked.form);
    let (act, name) = known(form.get("act"))?;
    let wanted: Vec<&str> = form.all("id").take(TASKS_MAX + 1).collect();
    if wanted.len() > TASKS_MAX {
        return Err(Refusal::invalid(format!("expected at most {TASKS_MAX} tasks, found more")).into());
    }
    let missing = match (wanted.is_empty(), form.get("sure") == "true") {
        (true, _) => Some("tick the tasks that it is about: none is ticked"),
        (false, false) => Some("tick the box that says that you are sure: nothing was done"),
        (false, true) => None,
    };
    if let Some(missing) = missing {
        return confirm(console, asked, Notice::invalid(missing)).await;
    }
    let mut rows = Vec::new();
    for id in wanted {
        rows.push(match put(console, asked, act, id).await {
            Ok(session) => Dealt {
                asked: act == "pause" && !matches!(session.lifecycle, Lifecycle::Suspended { .. }),
                ..Dealt::of(id, title(&session))
            },
            Err(no) => {
                let known = desk.session(caller, id).await;
                let title = known.map_or_else(|_| String::new(), |session| title(&session));
                Dealt { why: no::No(no).said(), ..Dealt::of(id, title) }
            }
        });
    }
    let (refused, left) = (rows.iter().filter(|row| !row.why.is_empty()).count(), rows.len());
    let only_asked = rows.iter().filter(|row| row.asked).count();
    let top = Top { here: "tasks", ..console.top(asked, format!("{name} tasks")).await? };
    let page = Done { top, act: name, rows, done: left - refused - only_asked, asked: only_asked };
    Ok(html(200, &page, caller.room()))
}

/// Act on one of them, and say how it is then.
async fn put(console: &Console, asked: &Asked, act: &'static str, id: &str) -> Result<Arc<Session>, No> {
    let (desk, caller, form) = (console.desk(), &asked.caller, &asked.form);
    let key = form.said("key").filter(|key| key.len() <= 64).map(|key| format!("{act}:{key}"));
    let reason = Text::from(form.said("reason").unwrap_or_default());
    if act == "cancel" {
        return Ok(desk.cancel(caller, id, key.as_deref(), reason, false).await?.session);
    }
    let mut command = caller.command(act_of(act, reason));
    command.id = key.as_deref().map(Into::into);
    Ok(desk.put(caller, id, command).await?.session)
}

impl Dealt {
    fn of(id: &str, title: String) -> Dealt {
        Dealt { id: id.to_owned(), short: short(id), title, asked: false, why: String::new() }
    }
}
