//! The policies that sessions can be bound to.

use askama::Template;
use axum::response::Response;
use handover_desk::No;

use super::Console;
use super::http::Asked;
use super::page::{Top, html};
use super::shown::{line, words};

/// How many policies are shown.
const SHOWN_MAX: usize = 100;

#[derive(Template)]
#[template(path = "policies.html")]
struct Page {
    top: Top,
    rows: Vec<Row>,
    more: usize,
}

struct Row {
    id: String,
    mode: String,
    description: String,
    rules: String,
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked) -> Result<Response, No> {
    let found = console.desk().policies.list(&asked.caller.tenant).await?;
    let more = found.len().saturating_sub(SHOWN_MAX);
    let rows = found.into_iter().take(SHOWN_MAX).map(|policy| Row {
        id: policy.id,
        mode: if policy.mode.is_empty() { "any".to_owned() } else { policy.mode },
        description: line(&policy.description),
        rules: words(&policy.rules).chars().take(1000).collect(),
    });
    let top = Top { here: "policies", ..console.top(asked, "Policies").await? };
    Ok(html(200, &Page { top, rows: rows.collect(), more }, asked.caller.room()))
}
