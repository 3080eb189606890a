//! One act on many tasks: the count is shown, somebody is asked, each task has its result, and it can be repeated.

use handover_client::caller::Error;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};

use super::exit::Exit;
use super::list::{Condition, WHERE_HELP};
use super::text::Cell;
use super::wait::{has_ended, state_of};
use super::{Remote, ask, say, say_json, text};
use crate::Failure;

/// How many tasks one command acts on. Repeated, it goes on with the next.
const TASKS_MAX: usize = 1000;

/// Which tasks.
#[derive(clap::Args)]
#[command(after_help = WHERE_HELP)]
pub struct Args {
    /// The tasks, or the first characters of their ids
    #[arg(value_name = "TASK", required_unless_present = "conditions")]
    tasks: Vec<String>,
    /// All tasks that fit this condition; can be repeated
    #[arg(long = "where", value_name = "CONDITION", conflicts_with = "tasks", id = "conditions")]
    conditions: Vec<Condition>,
    /// Do not ask before many tasks are changed
    #[arg(long)]
    yes: bool,
}

/// Which tasks, and why.
#[derive(clap::Args)]
pub struct CancelArgs {
    #[command(flatten)]
    pub tasks: Args,
    /// Why: their agents are told
    #[arg(long)]
    pub reason: Option<String>,
}

/// What came of one task.
struct Outcome {
    id: String,
    result: &'static str,
    state: String,
    error: Option<Error>,
}

/// Run the command.
pub async fn run(
    remote: &Remote,
    tool: &str,
    verb: &str,
    args: &Args,
    reason: Option<&str>,
) -> Result<(), Failure> {
    let mut found = Vec::new();
    for typed in &args.tasks {
        found.push(remote.task(typed).await?);
    }
    if !args.conditions.is_empty() {
        found = remote.tasks(&args.conditions, TASKS_MAX).await?;
        // What has ended is left alone, whatever was asked for.
        found.retain(|task| !has_ended(state_of(task)));
        if found.is_empty() {
            return match remote.json {
                true => say_json(json!({ "count": 0, "results": [] })),
                false => say(format!("no task to {verb}")),
            };
        }
        if !args.yes {
            must_be_meant(remote, verb, &found).await?;
        }
    }
    let bar = bar(&found);
    let mut outcomes = Vec::new();
    for task in &found {
        outcomes.push(one(remote, tool, task, reason).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    say_outcomes(remote, verb, outcomes)
}

async fn must_be_meant(remote: &Remote, verb: &str, found: &[Value]) -> Result<(), Failure> {
    let count = match found.len() {
        1 => "1 task".to_owned(),
        TASKS_MAX => format!("the first {TASKS_MAX} tasks"),
        many => format!("{many} tasks"),
    };
    if !remote.asks {
        return Err(Failure::Usage(format!("this would {verb} {count}: say that it is meant with --yes")));
    }
    for line in super::list::table(&found[..found.len().min(10)], false) {
        super::note(&line);
    }
    match ask(&format!("{verb} {count}? [y/N] ")).await.as_deref() {
        Some("y" | "Y" | "yes") => Ok(()),
        _ => {
            Err(Exit::Refused
                .told("nothing was changed", format!("to {verb} them without being asked: --yes")))
        }
    }
}

/// Act on one task. What is so already is as good as done, so that the command can be repeated.
async fn one(remote: &Remote, tool: &str, task: &Value, reason: Option<&str>) -> Result<Outcome, Failure> {
    let id = task["task_id"].as_str().unwrap_or_default().to_owned();
    let mut asked = json!({ "task_id": id });
    if let Some(reason) = reason {
        asked["reason"] = json!(reason);
    }
    if has_ended(state_of(task)) && tool == "task_cancel" {
        return Ok(Outcome { id, result: "already", state: state_of(task).to_owned(), error: None });
    }
    match remote.try_call(tool, asked, None).await {
        Ok(task) => Ok(Outcome { id, result: "done", state: state_of(&task).to_owned(), error: None }),
        Err(error @ (Error::Unreachable(_) | Error::Unauthenticated(_))) => Err(remote.failure(error)),
        Err(error) => {
            let is_so = match tool {
                "task_pause" => error.code() == "ALREADY_PAUSED",
                "task_resume" => error.code() == "NOT_PAUSED",
                _ => error.code() == "SESSION_ENDED",
            };
            let state = state_of(task).to_owned();
            Ok(match is_so {
                true => Outcome { id, result: "already", state, error: None },
                false => Outcome { id, result: "refused", state, error: Some(error) },
            })
        }
    }
}

fn bar(found: &[Value]) -> ProgressBar {
    let is_seen = found.len() > 1 && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let target = if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(found.len() as u64), target)
}

fn say_outcomes(remote: &Remote, verb: &str, outcomes: Vec<Outcome>) -> Result<(), Failure> {
    let refused = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
    if remote.json {
        let results = outcomes.iter().map(|outcome| {
            let mut shown =
                json!({ "task_id": outcome.id, "result": outcome.result, "state": outcome.state });
            if let Some(error) = &outcome.error {
                shown["error"] = json!({ "code": error.code(), "message": error.to_string() });
            }
            shown
        });
        say_json(json!({ "count": outcomes.len(), "results": results.collect::<Vec<_>>() }))?;
    } else {
        let rows: Vec<Vec<Cell>> = outcomes
            .iter()
            .map(|outcome| {
                let why =
                    outcome.error.as_ref().map(|error| text::line(&error.to_string())).unwrap_or_default();
                vec![
                    text::short(&outcome.id).into(),
                    outcome.result.into(),
                    Cell(text::state(&outcome.state), Some(outcome.state.clone())),
                    why.into(),
                ]
            })
            .collect();
        for line in text::table(&["TASK", "RESULT", "STATE", "WHY"], &rows, 3) {
            say(line)?;
        }
    }
    match refused {
        0 => Ok(()),
        _ => Err(Exit::Refused.told(
            format!("{refused} of {} tasks could not be changed ({verb})", outcomes.len()),
            "the others are; it can be repeated safely",
        )),
    }
}
