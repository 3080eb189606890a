//! `handover task tree`: a task and its subtasks.

use serde_json::{Value, json};

use super::wait::state_of;
use super::{Remote, say, say_json, text};
use crate::Failure;

/// How deep, and how many tasks, a tree shows.
const DEPTH_MAX: usize = 16;
const TASKS_MAX: usize = 1000;

/// Run the command.
pub async fn run(remote: &Remote, typed: &str) -> Result<(), Failure> {
    let root = remote.task(typed).await?;
    let mut found = Vec::new();
    // The tasks that are still to be looked at, the next one last.
    let mut next = vec![(0, root["task_id"].as_str().unwrap_or_default().to_owned(), None, Some(root))];
    let mut left_out = 0;
    while let Some((depth, id, parent, known)) = next.pop() {
        let task = match known {
            Some(task) => Some(task),
            None => match remote.try_call("task_status", json!({ "task_id": id }), None).await {
                Ok(task) => Some(task),
                // A subtask may be somebody else's.
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(remote.failure(error)),
            },
        };
        let children =
            task.as_ref().and_then(|task| task["subtasks"].as_array()).cloned().unwrap_or_default();
        if depth < DEPTH_MAX && found.len() + next.len() + children.len() < TASKS_MAX {
            for child in children.iter().rev().filter_map(Value::as_str) {
                next.push((depth + 1, child.to_owned(), Some(id.clone()), None));
            }
        } else {
            left_out += children.len();
        }
        found.push((depth, id, parent, task));
    }
    if remote.json {
        let tasks = found.iter().map(|(depth, id, parent, task)| {
            json!({ "depth": depth, "task_id": id, "parent_task_id": parent, "task": task })
        });
        return say_json(json!({ "tasks": tasks.collect::<Vec<_>>(), "left_out": left_out }));
    }
    for (depth, id, _, task) in &found {
        say(format!("{}{}", "  ".repeat(*depth), line(id, task.as_ref())))?;
    }
    if left_out > 0 {
        say(format!("and {left_out} more"))?;
    }
    Ok(())
}

fn line(id: &str, task: Option<&Value>) -> String {
    let Some(task) = task else { return format!("? {}  not yours to see", text::short(id)) };
    let state = state_of(task);
    let title = text::line(task["title"].as_str().unwrap_or_default());
    let to = text::line(task["assignee"].as_str().unwrap_or("…"));
    format!("{}  {}  {title}  {to}", text::coloured(&text::state(state), state), text::short(id))
}
