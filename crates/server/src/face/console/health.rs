//! How the server is: whether it can be written to, and what it lets everybody use.

use askama::Template;
use axum::response::Response;
use handover_desk::No;

use super::Console;
use super::http::Asked;
use super::page::{Top, html};

#[derive(Template)]
#[template(path = "health.html")]
struct Page {
    top: Top,
    checks: Vec<Check>,
    limits: Vec<(&'static str, String)>,
    version: &'static str,
}

struct Check {
    name: &'static str,
    well: bool,
    said: String,
}

impl Check {
    /// What failed is for administrators: it may name files.
    fn of(name: &'static str, found: Result<(), String>, all: bool) -> Check {
        let said = match &found {
            Ok(()) => "works".to_owned(),
            Err(why) if all => why.clone(),
            Err(_) => "does not work: the server's log says why".to_owned(),
        };
        Check { name, well: found.is_ok(), said }
    }
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked) -> Result<Response, No> {
    let desk = console.desk().clone();
    let store = tokio::task::spawn_blocking(move || desk.check_store()).await;
    let store = store.unwrap_or_else(|_| Err("the check was broken off".to_owned()));
    let (desk, all) = (console.desk(), asked.caller.admin);
    let limits = desk.limits();
    let limits = vec![
        ("bytes of one payload", limits.payload_bytes_max.to_string()),
        ("participants of a task", limits.participants_max.to_string()),
        ("steers that wait", limits.steers_pending_max.to_string()),
        ("questions that are open", limits.questions_open_max.to_string()),
        ("messages of a task", limits.messages_per_task_max.to_string()),
        ("events of a task", limits.log_events_max.to_string()),
    ];
    let checks = vec![Check::of("store", store, all), Check::of("engine", desk.check_engine(), all)];
    let top = Top { here: "health", ..console.top(asked, "Health").await? };
    let page = Page { top, checks, limits, version: env!("CARGO_PKG_VERSION") };
    Ok(html(200, &page, asked.caller.room()))
}
