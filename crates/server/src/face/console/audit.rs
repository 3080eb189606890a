//! The audit log, for administrators: who tried what, the newest first.

use askama::Template;
use axum::response::Response;
use handover_desk::No;
use handover_desk::audit::What;
use handover_desk::audit::read::{Line, Wanted};

use super::Console;
use super::http::Asked;
use super::page::{Top, html};
use super::shown::short;

/// How many lines a page has.
const PAGE: usize = 100;

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    top: Top,
    /// Why whoever asks sees none; empty if it does.
    why: String,
    kept: bool,
    /// Whose log it is, if there may be several nodes.
    node: String,
    events: Vec<&'static str>,
    event: String,
    agent: String,
    rows: Vec<Row>,
    next: String,
}

struct Row {
    line: Line,
    what: String,
    session: String,
    bad: bool,
}

impl Row {
    fn of(line: Line) -> Row {
        let bad = ["authentication_failed", "forbidden", "limited", "left_out", "lines_missing"];
        Row {
            what: line.event.replace('_', " "),
            session: short(&line.session),
            bad: bad.contains(&line.event.as_str()),
            line,
        }
    }
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked) -> Result<Response, No> {
    let said = |name: &str| asked.query.said(name).unwrap_or_default().to_owned();
    let (event, agent) = (said("event"), said("agent"));
    let wanted = Wanted { event: event.clone(), agent: agent.clone() };
    let found = console.desk().audit_log(&asked.caller, wanted, asked.query.said("before"), PAGE).await;
    let (found, why) = match found {
        Ok(found) => (found, String::new()),
        Err(No::NotAdministrator { agent }) => {
            let why = format!("The audit log is for administrators, and {agent} is none.");
            (Default::default(), why)
        }
        Err(no) => return Err(no),
    };
    let status = if why.is_empty() { 200 } else { 403 };
    let page = Page {
        top: Top { here: "audit", ..console.top(asked, "Audit").await? },
        why,
        kept: found.kept,
        node: found.node,
        events: What::ALL.map(What::name).to_vec(),
        event,
        agent,
        rows: found.lines.into_iter().map(Row::of).collect(),
        next: found
            .next
            .map_or_else(String::new, |next| format!("/audit?{}", asked.query.with("before", &next))),
    };
    Ok(html(status, &page, asked.caller.room()))
}
