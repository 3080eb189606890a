//! `handover watch`: one table of what is open, drawn again and again; `handover replay`: a task, event by event.

use std::io::IsTerminal;
use std::time::Duration;

use serde_json::{Value, json};

use super::exit::{self, Exit};
use super::list::{self, Condition};
use super::timeline::sentence;
use super::{Common, Remote, print, say, say_json, text};
use crate::Failure;

/// What `handover watch` can be told.
#[derive(clap::Args)]
#[command(after_help = format!("{}\n\n{WATCH_EXAMPLES}", list::WHERE_HELP))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// Only tasks that fit this condition; can be repeated [default: state=open]
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<Condition>,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = list::duration)]
    every: Duration,
    /// End after so many tables [default: never]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

const WATCH_EXAMPLES: &str = "\
With --json each change is a line; Ctrl-C ends it.

Examples:
  handover watch
  handover watch --where to=analyst --every 5s";

/// What `handover replay` can be told.
#[derive(clap::Args)]
#[command(after_help = format!("Examples:\n  handover replay 3f9a12c0\n  handover replay 3f9a12c0 --json\n\n{}", exit::HELP))]
pub struct ReplayArgs {
    #[command(flatten)]
    pub common: Common,
    /// The task, or the first characters of its id
    task: String,
}

/// How many rows are shown where nobody says how many fit.
const ROWS: usize = 50;

/// Run `handover watch` to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let remote = args.common.open()?;
    super::run(watch(&remote, args))
}

async fn watch(remote: &Remote, args: &Args) -> Result<(), Failure> {
    let open: Vec<Condition> = "state=open".parse().into_iter().collect();
    let conditions = if args.conditions.is_empty() { &open } else { &args.conditions };
    let redraws = std::io::stdout().is_terminal() && !remote.json;
    let (mut last, mut lost): (Vec<Value>, Option<String>) = (Vec::new(), None);
    let mut drawn = 0;
    loop {
        let rows = text::terminal().1.saturating_sub(3).clamp(1, ROWS);
        let found = remote.tasks(conditions, rows).await;
        let changed = match found {
            Ok(tasks) => {
                let changed = drawn == 0 || tasks != last;
                (last, lost) = (tasks, None);
                changed
            }
            // A server that is away may come back: what was there last stays, with a word that it is old.
            Err(Failure::Told { exit: Exit::NoServer, .. }) if drawn > 0 => {
                lost.get_or_insert_with(|| jiff::Timestamp::now().to_string());
                false
            }
            Err(failure) => return Err(failure),
        };
        if redraws || changed {
            draw(remote, &last, lost.as_deref(), redraws)?;
        }
        drawn += 1;
        if args.count.is_some_and(|count| drawn >= count) {
            return Ok(());
        }
        tokio::time::sleep(args.every).await;
    }
}

fn draw(remote: &Remote, tasks: &[Value], lost: Option<&str>, redraws: bool) -> Result<(), Failure> {
    const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
    if remote.json {
        return say_json(json!({ "tasks": tasks }));
    }
    let now = text::clock(&jiff::Timestamp::now().to_string());
    let how = match lost {
        Some(since) => format!("reconnecting since {}", text::clock(since)),
        None => "live".to_owned(),
    };
    let mut shown = format!("{how} · {} tasks · {now}\n", tasks.len());
    for line in list::table(tasks, false) {
        shown += &line;
        shown.push('\n');
    }
    print(if redraws { CLEAR } else { "" }, &shown)
}

/// Run `handover replay` to its end.
pub fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let remote = args.common.open()?;
    super::run(async {
        let id = remote.task_id(&args.task).await?;
        let events = remote.events(&id, 0, true).await?;
        for event in &events {
            if remote.json {
                say_json(json!({ "task_id": id, "event": event }))?;
                continue;
            }
            let state = event["state"].as_str().unwrap_or("unknown");
            let by = event["by"].as_str().map_or_else(|| "handover".to_owned(), text::line);
            let shape = text::state(state);
            let shape = text::coloured(&format!("{shape:<11}"), state);
            let at = text::clock(event["at"].as_str().unwrap_or_default());
            say(format!("{:>4}  {at}  {shape}  {by} {}", event["seq"], sentence(event)))?;
        }
        Ok(())
    })
}
