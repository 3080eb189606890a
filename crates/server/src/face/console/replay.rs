//! A task as it was after each of its events: as the kernel had it, and as each face showed it then.

use askama::Template;
use axum::response::Response;
use handover_desk::No;
use handover_desk::approvals::sees_approval;
use handover_desk::calendar::rfc3339;
use handover_desk::caller::Caller;
use handover_kernel::{Event, Session};
use serde_json::{Value, json};

use super::Console;
use super::http::Asked;
use super::page::{Top, html};
use super::sentence::{self, Line};
use super::shown::{self, Faces, Head};
use crate::face::macp::render;
use crate::face::mcp::caller::Declared;
use crate::face::{grid, mcp};

/// How many characters of a face's view are shown.
const VIEW_CHARS_MAX: usize = 32_000;

/// What a client of MCP is shown that knows everything.
const EVERYTHING: Declared =
    Declared { tasks: true, steer: true, pause: true, form: true, url: true, sampling: true, roots: true };
const POLL_MS: u64 = 1000;

/// Among how many of the newest events that one is looked for which is shown first.
const NEWEST: usize = 10;

#[derive(Template)]
#[template(path = "replay.html")]
struct Page {
    top: Top,
    head: Head,
    line: Line,
    at: u64,
    last: u64,
    views: Vec<(&'static str, String)>,
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked, id: &str) -> Result<Response, No> {
    let (desk, caller) = (console.desk(), &asked.caller);
    let live = desk.session(caller, id).await?;
    let at = match asked.query.said("at").and_then(|at| at.parse().ok()) {
        Some(at) => at,
        // The last that whoever looks may see: what is proposed and decided may be none of its business.
        None => {
            let last = desk.history_before(caller, id, u64::MAX, NEWEST).await?.events;
            last.last().map_or(live.head.0, |event| event.seq.0)
        }
    };
    let (then, event) = desk.as_of(caller, id, at).await?;
    let line = sentence::line(&then, &event, std::iter::empty());
    let title = format!("{} at event {}", shown::title(&then), event.seq);
    let page = Page {
        top: Top { here: "tasks", ..console.top(asked, title).await? },
        head: Head::of(&then, &Faces::new(), caller),
        at: event.seq.0,
        last: live.head.0,
        views: views(console, asked, &then, &event),
        line,
    };
    Ok(html(200, &page, caller.room()))
}

fn views(console: &Console, asked: &Asked, then: &Session, event: &Event) -> Vec<(&'static str, String)> {
    let text = |value: Value| handover_kernel::cut(&shown::pretty(&value), VIEW_CHARS_MAX).into_owned();
    let directory = &console.desk().directory;
    let mut views = vec![("kernel", text(kernel(then, event, &asked.caller))), ("MACP", text(macp(then)))];
    let mcp = mcp::task::Shown::of(then, EVERYTHING, POLL_MS, directory, &asked.caller);
    let mcp = mcp.and_then(|shown| serde_json::from_str(&shown.json()).ok());
    views.extend(mcp.map(|shown| ("MCP", text(shown))));
    let grid = grid::task::of(then, &then.binding.requester, &asked.caller).map(|task| json!(task));
    views.extend(grid.map(|shown| ("Grid", text(shown))));
    views
}

/// The state as the kernel had it, without what never changes and what whoever looks may not know.
fn kernel(then: &Session, event: &Event, caller: &Caller) -> Value {
    let proposal = then.proposal.as_ref().filter(|_| sees_approval(caller, then));
    let task = then.task();
    let orders = task.map_or_else(Vec::new, |task| task.orders.waiting().map(|order| order.seq.0).collect());
    let questions = task.map_or(&[][..], |task| task.phase.questions());
    json!({
        "event": event.seq.0,
        "at": rfc3339(event.at),
        "lifecycle": then.lifecycle.name(),
        "standing": then.standing().name(),
        "phase": task.map(|task| task.phase.name()),
        "assignee": task.and_then(|task| task.phase.assignee()).map(|agent| agent.as_str()),
        "deadline": then.deadline.map(rfc3339),
        "ended_at": then.ended_at.map(rfc3339),
        "progress": task.and_then(|task| task.phase.progress()).and_then(|progress| progress.done),
        "open_questions": questions.iter().map(|question| question.key.as_str()).collect::<Vec<_>>(),
        "orders_waiting": orders,
        "pause_asked": task.is_some_and(|task| task.pause.is_some()),
        "proposal": proposal.map(|proposal| proposal.what.name()),
        "silent_since": task.and_then(|task| task.signs.silent_since).map(rfc3339),
        "subtasks": task.map_or(0, |task| task.children.len()),
        "bytes": then.log_bytes,
    })
}

fn macp(then: &Session) -> Value {
    let shown = render::metadata(then);
    let state = render::state(then.standing());
    json!({
        "session_id": shown.session_id,
        "mode": shown.mode,
        "state": state.as_str_name(),
        "initiator": shown.initiator,
        "participants": shown.participants,
        "started_at_unix_ms": shown.started_at_unix_ms,
        "expires_at_unix_ms": shown.expires_at_unix_ms,
        "policy_version": shown.policy_version,
        "configuration_version": shown.configuration_version,
        "last_ordinal": then.ordinal.0,
    })
}
