//! `handover agent`: who is there, and being there oneself.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::text::Cell;
use super::{Common, Remote, exit, list, say, say_json, text, work};
use crate::Failure;

/// How many agents a list shows.
const LIST_MAX: usize = 1000;

/// What `handover agent` can be told.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
The token says which agent it is.

Examples:
  handover agent list
  HANDOVER_TOKEN=analyst handover agent register \"Analyst\" \"Finds trends in tables\"
  HANDOVER_TOKEN=analyst handover agent work -- ./analyse.sh";

#[derive(clap::Subcommand)]
enum Command {
    /// Register as an agent, with skills. Registering again replaces the registration.
    Register(RegisterArgs),
    /// List the agents that tasks can be handed to.
    List,
    /// Take tasks and run a program for each.
    Work(WorkArgs),
}

#[derive(clap::Args)]
#[command(after_help = REGISTER_HELP)]
struct RegisterArgs {
    /// Your name, for people
    name: String,
    /// What you are for
    description: String,
    /// A file with your skills: a JSON list, each with name, description and, if you like, inputSchema and outputSchema
    #[arg(long, value_name = "FILE")]
    skills: Option<PathBuf>,
    /// An agent that may see you; can be repeated [default: everybody]
    #[arg(long, value_name = "AGENT")]
    visible_to: Vec<String>,
}

const REGISTER_HELP: &str = "\
Examples:
  handover agent register Analyst \"Finds trends in tables\"
  handover agent register Analyst \"Finds trends in tables\" --skills skills.json";

/// What `handover agent work` can be told.
#[derive(clap::Args)]
#[command(after_help = WORK_HELP)]
pub struct WorkArgs {
    /// The program, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// How many tasks at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub jobs: u16,
    /// End after one task, with its outcome as the exit code
    #[arg(long)]
    pub once: bool,
    /// How long a task may take, such as 10m: then its program is ended and the task fails
    #[arg(long, value_name = "DURATION", value_parser = list::duration)]
    pub limit: Option<Duration>,
    /// Close the program's standard input after the task: it hears of no orders
    #[arg(long)]
    pub no_orders: bool,
    /// Leave alone what this agent has accepted before: another worker of the same agent may be working on it
    #[arg(long)]
    pub new_only: bool,
}

const WORK_HELP: &str = "\
The program reads its task from standard input, as one line of JSON: task_id, title, instructions, arguments, requester. What it
prints is the result, except for lines that begin so:
  @progress 40 half way    progress in percent, and what it is doing
  @ask KEY QUESTION        ask the requester
  @say TEXT                a message to the requester
  @fail REASON             the task failed, whatever else happens
  @@…                      a line of the result that begins with @
What it is told comes as lines on standard input: steer TEXT, message TEXT, answer KEY TEXT, declined KEY. A paused task is a
stopped process. If the program ends with another exit code than 0, the task fails with its last lines of standard error.
If the worker ends before the program does, the task stays accepted, and the next worker of the agent begins it again.

Examples:
  handover agent work -- ./analyse.sh
  handover agent work --jobs 4 --limit 10m -- python3 agent.py
  handover agent work --no-orders -- jq -r .instructions";

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let remote = args.common.open()?;
    match &args.command {
        Command::Register(args) => super::run(register(&remote, args)),
        Command::List => super::run(list_all(&remote)),
        Command::Work(args) => super::run(work::run(remote, args)),
    }
}

async fn register(remote: &Remote, args: &RegisterArgs) -> Result<(), Failure> {
    let mut asked = json!({ "name": args.name, "description": args.description });
    if let Some(file) = &args.skills {
        let wrong = |what: &dyn std::fmt::Display| {
            Failure::Usage(format!("--skills {}: expected a JSON list, found: {what}", file.display()))
        };
        let skills = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let skills: Vec<Value> = serde_json::from_str(&skills).map_err(|error| wrong(&error))?;
        asked["skills"] = json!(skills);
    }
    if !args.visible_to.is_empty() {
        asked["visible_to"] = json!(args.visible_to);
    }
    let done = remote.call("agent_register", asked).await?;
    if remote.json {
        return say_json(json!({ "agent": done }));
    }
    say(format!("{} is registered", text::line(done["id"].as_str().unwrap_or_default())))?;
    for tool in done["tools"].as_array().into_iter().flatten() {
        let name = |field: &str| text::line(tool[field].as_str().unwrap_or_default());
        say(format!("  {}  others call it {}", name("skill"), name("tool")))?;
    }
    Ok(())
}

async fn list_all(remote: &Remote) -> Result<(), Failure> {
    let agents = remote.pages("agent_list", "agents", json!({}), LIST_MAX).await?;
    if remote.json {
        return say_json(json!({ "agents": agents }));
    }
    if agents.is_empty() {
        return say("no agents yet; register one with: handover agent register --help");
    }
    let rows: Vec<Vec<Cell>> = agents.iter().map(row).collect();
    for line in text::table(&["AGENT", "STATUS", "SEEN", "SKILLS", "NAME", "DESCRIPTION"], &rows, 5) {
        say(line)?;
    }
    Ok(())
}

fn row(agent: &Value) -> Vec<Cell> {
    let field = |name: &str| text::line(agent[name].as_str().unwrap_or_default());
    let seen = match (agent["online"].as_bool(), agent["last_seen"].as_str()) {
        (Some(true), _) => "now".to_owned(),
        (_, Some(at)) => text::age(Some(at)),
        (_, None) => "never".to_owned(),
    };
    let skills = agent["skills"].as_array().into_iter().flatten();
    let skills: Vec<String> = skills.filter_map(|skill| skill["name"].as_str()).map(text::line).collect();
    vec![
        field("id").into(),
        field("status").into(),
        seen.into(),
        text::cut(&skills.join(", "), 40).into(),
        field("name").into(),
        field("description").into(),
    ]
}
