//! Lists of tasks, and which tasks are meant: `--where`.

use std::time::Duration;

use serde_json::{Value, json};

use super::text::Cell;
use super::timeline::percent;
use super::wait::state_of;
use super::{Remote, say, say_json, text};
use crate::Failure;

/// How many tasks are looked at for a condition that only the command line knows.
const LOOKED_AT_MAX: usize = 10_000;

/// Every state, and those that have not ended.
const STATES: [&str; 10] = [
    "requested",
    "working",
    "waiting",
    "paused",
    "silent",
    "completed",
    "failed",
    "rejected",
    "cancelled",
    "expired",
];
const OPEN: [&str; 5] = ["requested", "working", "waiting", "paused", "silent"];

/// For the help of every command that takes conditions.
pub const WHERE_HELP: &str = "\
Conditions (--where, all must hold):
  state=STATE,…    requested, working, waiting, paused, silent, completed, failed, rejected, cancelled, expired, or open
  from=AGENT       whose task it is
  to=AGENT         who works on it
  parent=TASK      the task that it is part of
  title=TEXT       what its title contains
  older=DURATION   begun longer ago than this: 30s, 10m, 2h, 7d";

/// What `handover task list` can be told.
#[derive(clap::Args)]
#[command(after_help = format!("{WHERE_HELP}\n\n{EXAMPLES}"))]
pub struct Args {
    /// Only tasks that fit this condition; can be repeated
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<Condition>,
    /// How many at most, the newest first
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print whole ids
    #[arg(long)]
    whole_ids: bool,
}

const EXAMPLES: &str = "\
Examples:
  handover task list
  handover task list --where state=open --where to=analyst
  handover task list --where state=failed --json";

/// One condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// In one of these states.
    State(Vec<String>),
    /// Begun by this agent.
    From(String),
    /// Worked on by this agent.
    To(String),
    /// Part of the task whose id begins so.
    Parent(String),
    /// With this in its title.
    Title(String),
    /// Begun longer ago.
    Older(Duration),
}

impl std::str::FromStr for Condition {
    type Err = String;

    fn from_str(given: &str) -> Result<Condition, String> {
        let expected = "expected state=, from=, to=, parent=, title= or older=";
        let (field, value) = given.split_once('=').ok_or_else(|| format!("{expected}, found {given:?}"))?;
        Ok(match field {
            "state" => {
                let mut states = Vec::new();
                for state in value.split(',') {
                    match state {
                        "open" => states.extend(OPEN.map(str::to_owned)),
                        _ if STATES.contains(&state) => states.push(state.to_owned()),
                        _ => {
                            return Err(format!(
                                "expected open or some of {}, found {state:?}",
                                STATES.join(", ")
                            ));
                        }
                    }
                }
                Condition::State(states)
            }
            "from" => Condition::From(value.to_owned()),
            "to" => Condition::To(value.to_owned()),
            "parent" => Condition::Parent(value.to_owned()),
            "title" => Condition::Title(value.to_lowercase()),
            "older" => Condition::Older(duration(value)?),
            _ => return Err(format!("{expected}, found {field:?}")),
        })
    }
}

/// A duration such as `30s`, `10m`, `2h` or `7d`.
pub fn duration(given: &str) -> Result<Duration, String> {
    const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let wrong = || format!("expected a duration such as 30s, 10m, 2h or 7d, found {given:?}");
    let unit = UNITS.into_iter().find(|(unit, _)| given.ends_with(*unit)).ok_or_else(wrong)?;
    let number: u64 = given.trim_end_matches(unit.0).parse().map_err(|_| wrong())?;
    number.checked_mul(unit.1).filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(wrong)
}

impl Condition {
    fn holds(&self, task: &Value) -> bool {
        let is = |field: &str, wanted: &str| task[field].as_str() == Some(wanted);
        match self {
            Condition::State(states) => states.iter().any(|state| state == state_of(task)),
            Condition::From(agent) => is("requester", agent),
            Condition::To(agent) => is("assignee", agent),
            Condition::Parent(id) => {
                task["parent_task_id"].as_str().is_some_and(|parent| parent.starts_with(id))
            }
            Condition::Title(part) => {
                task["title"].as_str().is_some_and(|title| title.to_lowercase().contains(part))
            }
            Condition::Older(age) => {
                let begun = task["created_at"].as_str().and_then(text::seconds);
                let ago = begun.map(|begun| jiff::Timestamp::now().as_second() - begun);
                ago.is_some_and(|ago| u64::try_from(ago).is_ok_and(|ago| ago > age.as_secs()))
            }
        }
    }
}

impl Remote {
    /// The tasks of which all this is so, the newest first.
    pub async fn tasks(&self, conditions: &[Condition], max: usize) -> Result<Vec<Value>, Failure> {
        const PAGE: usize = 100;
        let mut asked = json!({ "details": true, "max": max.clamp(1, PAGE) });
        if let Some(Condition::State(states)) =
            conditions.iter().find(|one| matches!(one, Condition::State(_)))
        {
            asked["states"] = json!(states);
        }
        let (mut found, mut looked_at) = (Vec::new(), 0);
        loop {
            let mut page = self.call("task_list", asked.clone()).await?;
            let Value::Array(tasks) = page["tasks"].take() else { return Ok(found) };
            looked_at += tasks.len();
            found.extend(tasks.into_iter().filter(|task| conditions.iter().all(|one| one.holds(task))));
            match page["next_cursor"].as_str() {
                Some(next) if found.len() < max && looked_at < LOOKED_AT_MAX => asked["cursor"] = json!(next),
                _ => {
                    found.truncate(max);
                    return Ok(found);
                }
            }
        }
    }
}

/// Run the command.
pub async fn run(remote: &Remote, args: &Args) -> Result<(), Failure> {
    let tasks = remote.tasks(&args.conditions, args.limit.max(1)).await?;
    if remote.json {
        return say_json(json!({ "tasks": tasks }));
    }
    if tasks.is_empty() {
        return say(match args.conditions.is_empty() {
            true => "no tasks yet; begin one with: handover task send --to AGENT \"what to do\"",
            false => "no tasks like that; all there are: handover task list",
        });
    }
    for line in table(&tasks, args.whole_ids) {
        say(line)?;
    }
    Ok(())
}

/// Tasks as a table, one line each.
pub fn table(tasks: &[Value], whole_ids: bool) -> Vec<String> {
    let heads = ["TASK", "STATE", "DONE", "TITLE", "FROM → TO", "FACE", "AGE", "WAITS FOR"];
    let rows: Vec<Vec<Cell>> = tasks.iter().map(|task| row(task, whole_ids)).collect();
    text::table(&heads, &rows, 3)
}

fn row(task: &Value, whole_ids: bool) -> Vec<Cell> {
    let field = |name: &str| text::line(task[name].as_str().unwrap_or_default());
    let id = task["task_id"].as_str().unwrap_or_default();
    let state = state_of(task);
    vec![
        if whole_ids { text::line(id) } else { text::short(id) }.into(),
        Cell(text::state(state), Some(state.to_owned())),
        percent(&task["progress"]).unwrap_or_default().into(),
        field("title").into(),
        format!("{} → {}", field("requester"), to(task)).into(),
        field("face").into(),
        text::age(task["created_at"].as_str()).into(),
        waits_for(task).into(),
    ]
}

/// Who works on a task, or is the one that it was given to.
pub fn to(task: &Value) -> String {
    let offered = match task["waits_for"]["agents"].as_array().map(Vec::as_slice) {
        Some([one]) if task["waits_for"]["what"] == "accept" => one.as_str(),
        _ => None,
    };
    text::line(task["assignee"].as_str().or(offered).unwrap_or("…"))
}

/// Whom a task waits for, and for what: `ops: review`.
pub fn waits_for(task: &Value) -> String {
    let waits = &task["waits_for"];
    let agents: Vec<String> =
        waits["agents"].as_array().into_iter().flatten().filter_map(Value::as_str).map(text::line).collect();
    match waits["what"].as_str() {
        Some(what) => format!("{}: {}", agents.join(", "), text::line(what)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_hold() {
        let holds = |condition: &str, task: &Value| condition.parse::<Condition>().unwrap().holds(task);
        let task = json!({ "state": "working", "requester": "a", "assignee": "b", "title": "Q4 Sales",
            "created_at": "2020-01-01T00:00:00.000Z", "parent_task_id": "p123" });
        for so in
            ["state=open", "state=paused,working", "from=a", "to=b", "title=sales", "older=1d", "parent=p1"]
        {
            assert!(holds(so, &task), "{so}");
        }
        for not in ["state=failed", "from=b", "to=a", "title=q3", "older=100000d", "parent=q"] {
            assert!(!holds(not, &task), "{not}");
        }
        for wrong in ["", "state", "state=gone", "age=1d", "older=1", "older=s", "older=0s", "older=-1s"] {
            assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
        }
    }
}
