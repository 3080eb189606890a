//! What whoever asks may use, what of that it uses, and what one task may hold.

use askama::Template;
use axum::response::Response;
use handover_desk::No;
use handover_desk::gate::allowed::{Allowed, Unit};

use super::Console;
use super::http::Asked;
use super::page::{Top, html};
use super::shown::{bytes_words, thousands};

#[derive(Template)]
#[template(path = "limits.html")]
struct Page {
    top: Top,
    /// Which node says so, if there may be several.
    node: String,
    own: Vec<Own>,
    tasks: Vec<(&'static str, &'static str, String)>,
}

struct Own {
    what: &'static str,
    setting: &'static str,
    max: String,
    used: String,
    /// How much of it is used, in percent, where both are known.
    percent: Option<u64>,
}

impl Own {
    fn of(allowed: &Allowed) -> Own {
        let words = |number: u64| match allowed.unit {
            Unit::Bytes => bytes_words(number),
            Unit::Count => thousands(&number.to_string()),
            Unit::PerMinute => format!("{} a minute", thousands(&number.to_string())),
        };
        let share = |(used, max): (u64, u64)| (used.saturating_mul(100) / max.max(1)).min(100);
        Own {
            what: allowed.what,
            setting: allowed.setting,
            max: allowed.max.map_or_else(|| "any number".to_owned(), words),
            used: allowed.used.map_or_else(String::new, words),
            percent: allowed.used.zip(allowed.max).map(share),
        }
    }
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked) -> Result<Response, No> {
    let desk = console.desk();
    let own = desk.gate.allowed(&asked.caller);
    let limits = desk.limits();
    let count = |number: u64| thousands(&number.to_string());
    let tasks = vec![
        ("bytes of one payload", "limits.payload_bytes_max", bytes_words(limits.payload_bytes_max as u64)),
        ("participants", "limits.participants_max", count(limits.participants_max as u64)),
        ("steers that wait", "limits.steers_pending_max", count(limits.steers_pending_max as u64)),
        ("questions that are open", "limits.questions_open_max", count(limits.questions_open_max as u64)),
        ("messages", "limits.messages_per_task_max", count(limits.messages_per_task_max as u64)),
        ("events", "limits.log_events_max", count(limits.log_events_max)),
        ("bytes of events", "limits.log_bytes_max", bytes_words(limits.log_bytes_max)),
    ];
    let top = Top { here: "limits", ..console.top(asked, "Limits").await? };
    let page = Page { top, node: desk.node().to_owned(), own: own.iter().map(Own::of).collect(), tasks };
    Ok(html(200, &page, asked.caller.room()))
}
