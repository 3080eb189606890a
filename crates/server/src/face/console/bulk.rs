//! One act on many tasks: first how many and which, then, for each of those that were confirmed, what came of it.

use askama::Template;
use axum::response::Response;
use handover_desk::{No, id as ids};
use handover_kernel::command::Act;
use handover_kernel::{Refusal, Text};

use super::Console;
use super::http::Asked;
use super::page::{Top, html};
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
    /// Tasks, and why each cannot be acted on; nothing where it can.
    rows: Vec<(Head, String)>,
    /// How many can.
    able: usize,
    more: bool,
    key: String,
}

#[derive(Template)]
#[template(path = "bulk_done.html")]
struct Done {
    top: Top,
    act: &'static str,
    rows: Vec<Dealt>,
    done: usize,
}

/// What came of one task.
struct Dealt {
    id: String,
    short: String,
    title: String,
    /// Why it was refused; nothing where it was done.
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

/// Which tasks it would be.
pub(super) async fn confirm(console: &Console, asked: &Asked) -> Result<Response, No> {
    let (desk, caller) = (console.desk(), &asked.caller);
    let ((act, name), filter) = (known(asked.query.get("act"))?, Filter::of(asked));
    let found = desk.find(caller, &filter.wanted()?, None, TASKS_MAX).await?;
    let mut rows = Vec::new();
    for session in found.tasks.iter().filter(|session| !session.lifecycle.is_terminal()) {
        let could = desk.could(caller, session, act_of(act, Text::from("?")));
        let why = could.err().map_or_else(String::new, |no| no::No(no).said());
        rows.push((Head::of(session, &Faces::new()), why));
    }
    let able = rows.iter().filter(|(_, why)| why.is_empty()).count();
    let top = Top { here: "tasks", ..console.top(asked, format!("{name} tasks")).await? };
    let page = Page { top, act, name, rows, able, more: found.next.is_some(), key: ids::unguessable() };
    Ok(html(200, &page, caller.room()))
}

/// Act on those that were ticked.
pub(super) async fn act(console: &Console, asked: &Asked) -> Result<Response, No> {
    let (desk, caller, form) = (console.desk(), &asked.caller, &asked.form);
    let (act, name) = known(form.get("act"))?;
    let wanted: Vec<&str> = form.all("id").take(TASKS_MAX + 1).collect();
    if wanted.len() > TASKS_MAX {
        return Err(Refusal::invalid(format!("expected at most {TASKS_MAX} tasks, found more")).into());
    }
    if form.get("sure") != "true" || wanted.is_empty() {
        return Err(Refusal::invalid(
            "expected tasks and a tick that says that you are sure, found neither or one",
        )
        .into());
    }
    let key = form.said("key").filter(|key| key.len() <= 64);
    let (mut rows, mut done) = (Vec::new(), 0);
    for id in wanted {
        let mut command = caller.command(act_of(act, Text::from(form.said("reason").unwrap_or_default())));
        command.id = key.map(|key| format!("{act}:{key}").as_str().into());
        let (title, why) = match desk.put(caller, id, command).await {
            Ok(accepted) => (title(&accepted.session), String::new()),
            Err(no) => {
                let known = desk.session(caller, id).await;
                (known.map_or_else(|_| String::new(), |session| title(&session)), no::No(no).said())
            }
        };
        done += usize::from(why.is_empty());
        rows.push(Dealt { id: id.to_owned(), short: short(id), title, why });
    }
    let top = Top { here: "tasks", ..console.top(asked, format!("{name} tasks")).await? };
    Ok(html(200, &Done { top, act: name, rows, done }, caller.room()))
}
