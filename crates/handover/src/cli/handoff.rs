//! `handover handoff`: hand a responsibility on, or take one over.

use serde_json::{Value, json};

use super::text::Cell;
use super::{Common, Remote, exit, say, say_json, text};
use crate::Failure;

/// How many handoffs a list shows.
const LIST_MAX: usize = 1000;

/// What `handover handoff` can be told.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
The agent to which an offer was made accepts or declines it; the offer takes effect when the agent that made it commits.

Examples:
  HANDOVER_TOKEN=analyst handover handoff offer crawler --task 3f9a12c0 --reason \"end of shift\"
  HANDOVER_TOKEN=crawler handover handoff list
  HANDOVER_TOKEN=crawler handover handoff accept 9c01…
  HANDOVER_TOKEN=analyst handover handoff commit 9c01…";

#[derive(clap::Subcommand)]
enum Command {
    /// Offer a task that you work on, or another responsibility, to an agent.
    Offer(OfferArgs),
    /// List handoffs that wait: offers to you, and your own.
    List,
    /// Accept what was offered to you.
    Accept(OneArgs),
    /// Decline what was offered to you.
    Decline(OneArgs),
    /// Make an answered offer of yours take effect, or close one that was declined.
    Commit(OneArgs),
}

#[derive(clap::Args)]
struct OfferArgs {
    /// The agent to take it over
    to: String,
    /// A task that you work on
    #[arg(long, value_name = "TASK", required_unless_present = "scope", conflicts_with = "scope")]
    task: Option<String>,
    /// What it covers, unless it is a task
    #[arg(long)]
    scope: Option<String>,
    /// Why
    #[arg(long)]
    reason: Option<String>,
    /// What the other agent should know: JSON, or text
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
    /// An idempotency key: sent again with the same one, the call returns the offer that it made
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

#[derive(clap::Args)]
struct OneArgs {
    /// The handoff, or the first characters of its id
    handoff: String,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let remote = args.common.open()?;
    super::run(async {
        match &args.command {
            Command::Offer(args) => offer(&remote, args).await,
            Command::List => list(&remote).await,
            Command::Accept(args) => act(&remote, "handoff_accept", args).await,
            Command::Decline(args) => act(&remote, "handoff_decline", args).await,
            Command::Commit(args) => act(&remote, "handoff_commit", args).await,
        }
    })
}

async fn offer(remote: &Remote, args: &OfferArgs) -> Result<(), Failure> {
    let mut asked = json!({ "to": args.to });
    if let Some(task) = &args.task {
        asked["task_id"] = json!(remote.task_id(task).await?);
    }
    if let Some(scope) = &args.scope {
        asked["scope"] = json!(scope);
    }
    if let Some(reason) = &args.reason {
        asked["reason"] = json!(reason);
    }
    if let Some(context) = &args.context {
        asked["context"] = serde_json::from_str(context).unwrap_or_else(|_| json!(context));
    }
    let offered = remote.call_as("handoff_offer", asked, args.key.as_deref()).await?;
    if remote.json {
        return say_json(json!({ "handoff": offered }));
    }
    say(text::line(offered["handoff_id"].as_str().unwrap_or_default()))
}

async fn list(remote: &Remote) -> Result<(), Failure> {
    let handoffs = remote.pages("handoff_list", "handoffs", json!({}), LIST_MAX).await?;
    if remote.json {
        return say_json(json!({ "handoffs": handoffs }));
    }
    if handoffs.is_empty() {
        return say("no handoffs wait; offer one with: handover handoff offer AGENT --task TASK");
    }
    let rows: Vec<Vec<Cell>> = handoffs.iter().map(row).collect();
    for line in text::table(&["HANDOFF", "STATUS", "FROM → TO", "SCOPE"], &rows, 3) {
        say(line)?;
    }
    Ok(())
}

fn row(handoff: &Value) -> Vec<Cell> {
    let field = |name: &str| text::line(handoff[name].as_str().unwrap_or_default());
    let id = handoff["handoff_id"].as_str().unwrap_or_default();
    vec![
        text::short(id).into(),
        field("status").into(),
        format!("{} → {}", field("from"), field("to")).into(),
        field("scope").into(),
    ]
}

async fn act(remote: &Remote, tool: &str, args: &OneArgs) -> Result<(), Failure> {
    let mut asked = json!({ "handoff_id": whole_id(remote, &args.handoff).await? });
    if let Some(reason) = &args.reason {
        asked["reason"] = json!(reason);
    }
    let handoff = remote.call(tool, asked).await?;
    if remote.json {
        return say_json(json!({ "handoff": handoff }));
    }
    let field = |name: &str| text::line(handoff[name].as_str().unwrap_or_default());
    say(format!("{}  {}", text::short(&field("handoff_id")), field("status")))?;
    match handoff["not_moved_because"].as_str() {
        Some(why) => say(format!("the task was not moved: {}", text::line(why))),
        None => Ok(()),
    }
}

/// The id that is meant: as it is, or the one handoff that waits and begins so.
async fn whole_id(remote: &Remote, typed: &str) -> Result<String, Failure> {
    match remote.try_call("handoff_status", json!({ "handoff_id": typed }), None).await {
        Ok(_) => return Ok(typed.to_owned()),
        Err(error) if !error.is_not_found() => return Err(remote.failure(error)),
        Err(_) => {}
    }
    let handoffs = remote.pages("handoff_list", "handoffs", json!({}), LIST_MAX).await?;
    let ids = handoffs.iter().filter_map(|handoff| handoff["handoff_id"].as_str());
    let found: Vec<&str> = ids.filter(|id| id.starts_with(typed)).collect();
    match found.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(exit::Exit::NotFound.told(
            format!("no handoff that waits is called {}", text::line(typed)),
            "see which do with: handover handoff list",
        )),
        many => Err(exit::Exit::NotFound.told(
            format!("{} is the beginning of {} handoffs", text::line(typed), many.len()),
            format!(
                "give more of one: {}",
                many.iter().map(|id| text::line(id)).collect::<Vec<_>>().join(", ")
            ),
        )),
    }
}
