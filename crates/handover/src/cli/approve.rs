//! What waits for an approval: who is to decide sees it, and decides.

use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::{Remote, say, say_json, text};
use crate::Failure;

/// What `handover task approve` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The task or handoff, or the first characters of its id; without one, everything that waits for you is listed
    task: Option<String>,
    /// Send it back: what is to change
    #[arg(long, value_name = "WHAT", requires = "task", conflicts_with_all = ["reject", "title", "instructions", "input", "reason"])]
    changes: Option<String>,
    /// Turn it down, because of this
    #[arg(long, value_name = "REASON", requires = "task", conflicts_with_all = ["title", "instructions", "input", "reason"])]
    reject: Option<String>,
    /// Approve it with another title
    #[arg(long, requires = "task")]
    title: Option<String>,
    /// Approve it with other instructions
    #[arg(long, requires = "task")]
    instructions: Option<String>,
    /// Approve it with another input, as JSON
    #[arg(long, value_name = "JSON", requires = "task")]
    input: Option<String>,
    /// Approve an offer or an outcome with another reason
    #[arg(long, requires = "task")]
    reason: Option<String>,
}

const HELP: &str = "\
Examples:
  handover task approve                                     what waits for your approval
  handover task approve 3f9a12c0
  handover task approve 3f9a12c0 --instructions \"only of the last quarter\"
  handover task approve 3f9a12c0 --changes \"say which quarter\"
  handover task approve 3f9a12c0 --reject \"not in this budget\"";

/// Run the command.
pub async fn run(remote: &Remote, args: &Args) -> Result<(), Failure> {
    let waiting = waiting(remote).await?;
    let Some(typed) = &args.task else { return list(remote, &waiting) };
    let id = |found: &Value| found["task_id"].as_str().unwrap_or_default().to_owned();
    let mut meant = waiting.iter().filter(|found| id(found).starts_with(typed.as_str()));
    let (found, another) = (meant.next(), meant.next());
    let Some(found) = found.filter(|_| another.is_none()) else {
        let what = match another {
            Some(_) => format!("several that wait for your approval begin with {}", text::line(typed)),
            None => format!("nothing of {} waits for your approval", text::line(typed)),
        };
        return Err(Exit::NotFound.told(what, "see what does with: handover task approve"));
    };
    let mut asked = json!({ "task_id": id(found), "proposal": found["approval"]["proposal"] });
    match (&args.changes, &args.reject) {
        (Some(words), _) => (asked["decision"], asked["reason"]) = (json!("ask_changes"), json!(words)),
        (None, Some(words)) => (asked["decision"], asked["reason"]) = (json!("reject"), json!(words)),
        (None, None) => {
            asked["decision"] = json!("approve");
            let changes = changes(args)?;
            if !changes.is_empty() {
                asked["changes"] = Value::Object(changes);
            }
        }
    }
    let decided = remote.call("approval_decide", asked).await?;
    if remote.json {
        return say_json(json!({ "decided": decided }));
    }
    let word = decided["decided"].as_str().unwrap_or_default().replace('_', " ");
    say(format!("{}  {word}", text::short(&id(found))))
}

fn changes(args: &Args) -> Result<Map<String, Value>, Failure> {
    let mut changes = Map::new();
    for (field, text) in
        [("title", &args.title), ("instructions", &args.instructions), ("reason", &args.reason)]
    {
        changes.extend(text.as_ref().map(|text| (field.to_owned(), json!(text))));
    }
    if let Some(input) = &args.input {
        let wrong = |error| Failure::Usage(format!("--input: expected JSON, found: {error}"));
        changes.insert("input".to_owned(), serde_json::from_str(input).map_err(wrong)?);
    }
    Ok(changes)
}

/// Everything that waits for the caller's approval, the oldest first.
async fn waiting(remote: &Remote) -> Result<Vec<Value>, Failure> {
    /// More pages than anybody reads.
    const PAGES_MAX: usize = 100;
    let (mut found, mut cursor) = (Vec::new(), Value::Null);
    for _ in 0..PAGES_MAX {
        let asked = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let mut page = remote.call("approval_list", asked).await?;
        if let Some(Value::Array(proposals)) = page.get_mut("proposals").map(Value::take) {
            found.extend(proposals);
        }
        cursor = page["next_cursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    Ok(found)
}

fn list(remote: &Remote, waiting: &[Value]) -> Result<(), Failure> {
    if remote.json {
        return say_json(json!({ "proposals": waiting }));
    }
    if waiting.is_empty() {
        return say("nothing waits for your approval");
    }
    for found in waiting {
        let approval = &found["approval"];
        let field = |value: &Value| text::line(value.as_str().unwrap_or_default());
        let to: Vec<String> = approval["to"].as_array().into_iter().flatten().map(field).collect();
        let what = match field(&approval["proposed"]["title"]) {
            title if title.is_empty() => field(&approval["what"]),
            title => format!("{} {title:?}", field(&approval["what"])),
        };
        say(format!(
            "{}  {what}  {} → {}  since {}",
            text::short(found["task_id"].as_str().unwrap_or_default()),
            field(&found["requester"]),
            to.join(", "),
            text::moment(&field(&approval["since"])),
        ))?;
        let words = field(&approval["proposed"]["instructions"]);
        if !words.is_empty() {
            say(format!("          {words}"))?;
        }
    }
    Ok(())
}
