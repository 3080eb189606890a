//! Waiting for a task, with a progress bar for whoever watches.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::exit::Exit;
use super::{Remote, answer, note, say, say_json, text};
use crate::Failure;

/// How long one call waits.
pub const WAIT_MS: u64 = 20_000;

/// How often a progress bar shows that time passes.
const TICK: Duration = Duration::from_millis(500);

/// Whether a task has ended.
pub fn has_ended(state: &str) -> bool {
    matches!(state, "completed" | "failed" | "rejected" | "cancelled" | "expired")
}

/// The word for where a task is.
pub fn state_of(task: &Value) -> &str {
    task["state"].as_str().unwrap_or("unknown")
}

impl Remote {
    /// Wait until a task has ended, or needs somebody, or the time is up, and print what came of it.
    pub async fn wait(&self, id: &str, timeout: Option<Duration>) -> Result<(), Failure> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut bar = new_bar();
        let mut after = 0;
        loop {
            let task = self.call("task_status", json!({ "task_id": id })).await?;
            show(&bar, &task);
            let state = state_of(&task);
            if has_ended(state) {
                bar.finish_and_clear();
                return self.say_end(&task);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                bar.finish_and_clear();
                return self.say_end(&task);
            }
            if state == "paused" || (state == "waiting" && !(self.asks && task.get("questions").is_some())) {
                bar.finish_and_clear();
                return self.say_end(&task);
            }
            if state == "waiting" {
                // An answer that does not fit is said, and the question is put again.
                bar.finish_and_clear();
                match answer::ask_all(self, &task).await {
                    Err(failure @ Failure::Usage(_)) => note(&failure.to_string()),
                    answered => _ = answered?,
                }
                bar = new_bar();
                continue;
            }
            let wait_ms = left.map_or(WAIT_MS, |left| (left.as_millis() as u64).clamp(1, WAIT_MS));
            let asked = json!({ "task_id": id, "after": after, "wait_ms": wait_ms });
            let page = self.call("task_timeline", asked).await?;
            let last = page["events"].as_array().and_then(|events| events.last());
            after = last.and_then(|event| event["seq"].as_u64()).unwrap_or(after);
        }
    }

    /// Print where a task is at the end of a command, and end with what that means.
    pub fn say_end(&self, task: &Value) -> Result<(), Failure> {
        let state = state_of(task);
        if self.json {
            say_json(json!({ "task": task }))?;
        } else if has_ended(state) {
            let result = result_of(task);
            if !result.is_empty() {
                say(text::lines(result.trim_end_matches('\n')))?;
            }
        }
        let id = task["task_id"].as_str().unwrap_or_default();
        let (short, what) = (text::short(id), text::state(state));
        match Exit::of_state(state) {
            None => Ok(()),
            Some(exit @ Exit::Open) => {
                let help = match state {
                    "waiting" if task.get("questions").is_some() => {
                        format!("answer it with: handover task answer {short}")
                    }
                    "waiting" => format!("see what it waits for with: handover task show {short}"),
                    "paused" => format!("let it go on with: handover task resume {short}"),
                    _ => format!("go on waiting with: handover task watch {short}"),
                };
                Err(exit.told(format!("the task {short} is still open: {what}"), help))
            }
            Some(exit) => Err(exit.told(
                format!("the task {short} has ended: {what}"),
                format!("see what happened with: handover task show {short}"),
            )),
        }
    }
}

/// What a task came to, as text.
pub fn result_of(task: &Value) -> String {
    let result = &task["result"];
    let blocks = result["content"].as_array().into_iter().flatten();
    let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
    match (texts.is_empty(), &result["structuredContent"]) {
        (false, _) => texts.join("\n"),
        (true, Value::Null) => task["error"]["message"].as_str().unwrap_or_default().to_owned(),
        (true, structured) => structured.to_string(),
    }
}

/// A progress bar, if somebody watches.
fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(100), target());
    let style = ProgressStyle::with_template("{prefix} [{bar:24}] {pos:>3} %  {elapsed}  {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━ "));
    bar.enable_steady_tick(TICK);
    bar
}

fn target() -> ProgressDrawTarget {
    match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    }
}

fn show(bar: &ProgressBar, task: &Value) {
    let state = state_of(task);
    bar.set_prefix(format!(
        "{} {}",
        text::short(task["task_id"].as_str().unwrap_or_default()),
        text::state(state)
    ));
    bar.set_message(text::line(task["message"].as_str().unwrap_or_default()));
    if let Some(done) = task["progress"].as_f64() {
        bar.set_position((done.clamp(0.0, 1.0) * 100.0) as u64);
    }
}
