//! `handover task`: hand out tasks and follow them.

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};

use super::exit;
use super::timeline::{Printer, percent};
use super::wait::{WAIT_MS, has_ended, state_of};
use super::{Common, Remote, answer, approve, bulk, list, say, say_json, text, tree};
use crate::Failure;

/// What `handover task` can be told.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
A task is named by its id or its first characters, as the list shows them.

Examples:
  handover task send --to analyst \"Q4 sales\" \"Find the trend\" --wait
  handover task list --where state=open
  handover task watch 3f9a12c0
  handover task cancel --where state=requested --where older=1d";

#[derive(clap::Subcommand)]
enum Command {
    /// Hand a task to an agent.
    Send(SendArgs),
    /// List tasks, the newest first.
    List(list::Args),
    /// Show the state of a task and everything that happened in it.
    Show(OneArgs),
    /// Follow a task until it ends, one line for each event.
    Watch(WatchArgs),
    /// Answer a question of a task.
    Answer(AnswerArgs),
    /// See what waits for your approval, and approve it, send it back or reject it.
    Approve(approve::Args),
    /// Give the agent that works on a task new guidance.
    Steer(SteerArgs),
    /// Pause tasks until they are resumed.
    Pause(bulk::Args),
    /// Resume paused tasks.
    Resume(bulk::Args),
    /// Cancel tasks.
    Cancel(bulk::CancelArgs),
    /// Settle a task that was reported, or report on one that you work on.
    Complete(CompleteArgs),
    /// Show a task and its subtasks.
    Tree(OneArgs),
}

/// Whether to wait, and how long.
#[derive(clap::Args)]
pub struct Waiting {
    /// Wait until the task has ended, print its result, and set the exit code accordingly
    #[arg(long)]
    wait: bool,
    /// How long to wait at most, such as 30s or 10m; then the exit code is 6
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = list::duration)]
    timeout: Option<Duration>,
}

/// What `handover task send` can be told.
#[derive(clap::Args)]
#[command(after_help = SEND_HELP)]
struct SendArgs {
    /// The task in a few words
    title: String,
    /// What to do, in full; - reads it from standard input [default: the title]
    instructions: Option<String>,
    /// The agent to do it; of several the first to accept; any agent if not given
    #[arg(long, value_name = "AGENT")]
    to: Vec<String>,
    /// What to do it with, as JSON; - reads it from standard input, @FILE from a file
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Let the task wait for an agent that the server does not know yet
    #[arg(long)]
    queue: bool,
    /// How long it may take, such as 10m or 2h
    #[arg(long, value_name = "DURATION", value_parser = list::duration)]
    ttl: Option<Duration>,
    /// The task that this one is part of
    #[arg(long, value_name = "TASK")]
    parent: Option<String>,
    /// After how long without a sign of life its agent counts as silent
    #[arg(long, value_name = "DURATION", value_parser = list::duration)]
    silent_after: Option<Duration>,
    /// What happens then
    #[arg(long, value_name = "WHAT", requires = "silent_after", value_parser = ["nothing", "tell", "free", "fail"])]
    when_silent: Option<String>,
    /// An idempotency key: sent again with the same one, the call returns the task that it began
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

const SEND_HELP: &str = "\
Prints the id of the task, or with --wait its result.

Examples:
  handover task send --to analyst \"Q4 sales\" \"Find the trend\"
  handover task send --to analyst \"Q4 sales\" - --wait --timeout 10m < instructions.txt
  handover task send \"Summarise\" --input @report.json --key report-17";

#[derive(clap::Args)]
struct OneArgs {
    /// The task, or the first characters of its id
    task: String,
}

#[derive(clap::Args)]
struct WatchArgs {
    /// The task, or the first characters of its id
    task: String,
    /// Begin after the event with this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
}

#[derive(clap::Args)]
struct AnswerArgs {
    #[command(flatten)]
    answer: answer::Args,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  handover task steer 3f9a12c0 \"focus on Q4\"")]
struct SteerArgs {
    /// The task, or the first characters of its id
    task: String,
    /// The guidance, which is delivered at the agent's next safe point
    message: String,
    /// An idempotency key: sent again with the same one, the call has no second effect
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

/// What `handover task complete` can be told.
#[derive(clap::Args)]
#[command(after_help = COMPLETE_HELP)]
struct CompleteArgs {
    /// The task, or the first characters of its id
    task: String,
    /// Settle it as failed, because of this
    #[arg(long, value_name = "REASON", conflicts_with_all = ["result", "failed"])]
    reject: Option<String>,
    /// Report this as the result of a task that you work on
    #[arg(long, value_name = "TEXT", conflicts_with = "failed")]
    result: Option<String>,
    /// Report that a task which you work on cannot be done, because of this
    #[arg(long, value_name = "REASON")]
    failed: Option<String>,
    /// Why it is settled so
    #[arg(long, conflicts_with_all = ["reject", "result", "failed"])]
    reason: Option<String>,
}

const COMPLETE_HELP: &str = "\
Without --result and --failed it is the requester's word on a task whose agent has reported.

Examples:
  handover task complete 3f9a12c0
  handover task complete 3f9a12c0 --reject \"the numbers are last year's\"
  handover task complete 3f9a12c0 --result \"42\"";

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let remote = args.common.open()?;
    super::run(async {
        match &args.command {
            Command::Send(args) => send(&remote, args).await,
            Command::List(args) => list::run(&remote, args).await,
            Command::Show(args) => show(&remote, &args.task).await,
            Command::Watch(args) => watch(&remote, args).await,
            Command::Answer(args) => {
                let task = answer::run(&remote, &args.answer).await?;
                then(&remote, &task, &args.waiting).await
            }
            Command::Approve(args) => approve::run(&remote, args).await,
            Command::Steer(args) => steer(&remote, args).await,
            Command::Pause(args) => bulk::run(&remote, "task_pause", "pause", args, None).await,
            Command::Resume(args) => bulk::run(&remote, "task_resume", "resume", args, None).await,
            Command::Cancel(args) => {
                bulk::run(&remote, "task_cancel", "cancel", &args.tasks, args.reason.as_deref()).await
            }
            Command::Complete(args) => complete(&remote, args).await,
            Command::Tree(args) => tree::run(&remote, &args.task).await,
        }
    })
}

/// Say where a task is, or wait for it if that was asked for.
async fn then(remote: &Remote, task: &Value, waiting: &Waiting) -> Result<(), Failure> {
    let id = task["task_id"].as_str().unwrap_or_default();
    if waiting.wait {
        return remote.wait(id, waiting.timeout).await;
    }
    say_task(remote, task)
}

/// Say in a line where a task is.
fn say_task(remote: &Remote, task: &Value) -> Result<(), Failure> {
    if remote.json {
        return say_json(json!({ "task": task }));
    }
    let id = task["task_id"].as_str().unwrap_or_default();
    say(format!("{}  {}", text::short(id), text::state(state_of(task))))
}

/// Text from the command line, or from standard input if that says `-`.
fn given(argument: &str) -> Result<String, Failure> {
    /// More than any server takes unless it is told to.
    const BYTES_MAX: u64 = 64 * 1024 * 1024;
    let unreadable =
        |error: &std::io::Error| Failure::Usage(format!("expected text to read, found: {error}"));
    let read = |from: &mut dyn Read| {
        let mut text = String::new();
        from.take(BYTES_MAX).read_to_string(&mut text).map(|_| text)
    };
    match (argument, argument.strip_prefix('@')) {
        ("-", _) => read(&mut std::io::stdin()).map_err(|error| unreadable(&error)),
        (_, Some(file)) => {
            let mut file = std::fs::File::open(file).map_err(|error| unreadable(&error))?;
            read(&mut file).map_err(|error| unreadable(&error))
        }
        (text, None) => Ok(text.to_owned()),
    }
}

async fn send(remote: &Remote, args: &SendArgs) -> Result<(), Failure> {
    let instructions = match args.instructions.as_deref() {
        Some("-") => given("-")?,
        Some(text) => text.to_owned(),
        None => args.title.clone(),
    };
    let mut asked = json!({ "title": args.title, "instructions": instructions });
    match args.to.as_slice() {
        [] => {}
        [one] => asked["agent"] = json!(one),
        several => asked["agents"] = json!(several),
    }
    if let Some(input) = &args.input {
        let input = given(input)?;
        let wrong = |error| Failure::Usage(format!("--input: expected JSON, found: {error}"));
        asked["input"] = serde_json::from_str(&input).map_err(wrong)?;
    }
    let millis = |duration: Duration| json!(duration.as_millis() as u64);
    if let Some(ttl) = args.ttl {
        asked["ttl_ms"] = millis(ttl);
    }
    if let Some(after) = args.silent_after {
        asked["silent_after_ms"] = millis(after);
    }
    if let Some(what) = &args.when_silent {
        asked["when_silent"] = json!(what);
    }
    if args.queue {
        asked["queue"] = json!(true);
    }
    if let Some(parent) = &args.parent {
        asked["parent_task_id"] = json!(remote.task_id(parent).await?);
    }
    let task = remote.call_as("delegate_task", asked, args.key.as_deref()).await?;
    if let Some(warning) = task["warning"].as_str() {
        super::note(&text::line(warning));
    }
    if args.waiting.wait || remote.json {
        return then(remote, &task, &args.waiting).await;
    }
    say(text::line(task["task_id"].as_str().unwrap_or_default()))
}

async fn show(remote: &Remote, typed: &str) -> Result<(), Failure> {
    let task = remote.task(typed).await?;
    let id = task["task_id"].as_str().unwrap_or_default();
    let events = remote.events(id, 0, false).await?;
    if remote.json {
        return say_json(json!({ "task": task, "events": events }));
    }
    for line in header(&task) {
        say(line)?;
    }
    say("")?;
    let mut printer = Printer::of_all(&events);
    for event in &events {
        printer.print(id, event, false)?;
    }
    for (key, asked) in task["questions"].as_object().into_iter().flatten() {
        say(format!("\n{}", answer::shown(key, asked)))?;
    }
    let result = super::wait::result_of(&task);
    if !result.is_empty() {
        say(format!("\n{}", text::lines(&result)))?;
    }
    Ok(())
}

/// What the head of a task's page says.
fn header(task: &Value) -> Vec<String> {
    let field = |name: &str| text::line(task[name].as_str().unwrap_or_default());
    let state = state_of(task);
    let mut first = format!("{}  {}", field("title"), text::coloured(&text::state(state), state));
    if let Some(done) = percent(&task["progress"]) {
        first += &format!(" · {done}");
    }
    let mut lines = vec![first, format!("{} ({}) → {}", field("requester"), field("face"), list::to(task))];
    lines.push(format!("{}  begun {}", field("task_id"), text::moment(&field("created_at"))));
    if !field("message").is_empty() {
        lines.push(field("message"));
    }
    let waits = list::waits_for(task);
    if !waits.is_empty() {
        lines.push(format!("waits for {waits}"));
    }
    if let Some(since) = task["silent_since"].as_str() {
        lines.push(format!("silent since {}", text::moment(since)));
    }
    lines
}

async fn watch(remote: &Remote, args: &WatchArgs) -> Result<(), Failure> {
    let task = remote.task(&args.task).await?;
    let id = task["task_id"].as_str().unwrap_or_default();
    let (mut printer, mut after) = (Printer::default(), args.after);
    loop {
        let asked = json!({ "task_id": id, "after": after, "wait_ms": WAIT_MS });
        let page = remote.call("task_timeline", asked).await?;
        for event in page["events"].as_array().into_iter().flatten() {
            after = event["seq"].as_u64().unwrap_or(after);
            printer.print(id, event, remote.json)?;
        }
        let is_last = page["next"].is_null();
        // The page may be older than the end.
        if is_last && page["status"].as_str().is_some_and(has_ended) {
            let task = remote.call("task_status", json!({ "task_id": id })).await?;
            if has_ended(state_of(&task)) {
                return remote.say_end(&task);
            }
        }
    }
}

async fn steer(remote: &Remote, args: &SteerArgs) -> Result<(), Failure> {
    let id = remote.task_id(&args.task).await?;
    let asked = json!({ "task_id": id, "message": args.message });
    remote.call_as("task_steer", asked, args.key.as_deref()).await?;
    let task = remote.call("task_status", json!({ "task_id": id })).await?;
    then(remote, &task, &args.waiting).await
}

async fn complete(remote: &Remote, args: &CompleteArgs) -> Result<(), Failure> {
    let id = remote.task_id(&args.task).await?;
    let (tool, mut asked) = match (&args.result, &args.failed) {
        (Some(text), _) => ("work_complete", json!({ "text": text })),
        (None, Some(reason)) => ("work_fail", json!({ "reason": reason })),
        (None, None) => ("task_commit", json!({ "success": args.reject.is_none() })),
    };
    asked["task_id"] = json!(id);
    if let Some(reason) = args.reject.as_ref().or(args.reason.as_ref()) {
        asked["reason"] = json!(reason);
    }
    remote.call(tool, asked).await?;
    let task = remote.call("task_status", json!({ "task_id": id })).await?;
    say_task(remote, &task)
}
