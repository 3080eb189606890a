//! From what somebody types to the task that is meant: a whole id, or its first characters.

use serde_json::{Value, json};

use super::exit::Exit;
use super::{Remote, text};
use crate::Failure;

/// How many characters of an id are enough to mean it.
const SHORT_MIN: usize = 4;

/// How many ids are named that are near to one that is not there.
const NEAREST: usize = 3;

/// How many tasks are looked at for that.
const LOOKED_AT: usize = 100;

impl Remote {
    /// The task that is meant, as task_status shows it.
    pub async fn task(&self, typed: &str) -> Result<Value, Failure> {
        match self.try_call("task_status", json!({ "task_id": typed }), None).await {
            Ok(task) => Ok(task),
            Err(error) if error.is_not_found() => {
                let id = self.whole_id(typed).await?;
                self.call("task_status", json!({ "task_id": id })).await
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    /// The id of the task that is meant.
    pub async fn task_id(&self, typed: &str) -> Result<String, Failure> {
        let task = self.task(typed).await?;
        Ok(task["task_id"].as_str().unwrap_or(typed).to_owned())
    }

    /// The one id that begins so.
    async fn whole_id(&self, typed: &str) -> Result<String, Failure> {
        let typed_shown = text::line(typed);
        let mut found = match typed.chars().count() < SHORT_MIN {
            true => Vec::new(),
            false => self.caller.task_ids(typed).await.map_err(|error| self.failure(error))?,
        };
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => {
                let near = self.nearest(typed).await?;
                let near = match near.is_empty() {
                    true => "there are no tasks yet: handover task send --help".to_owned(),
                    false => format!("nearest: {} (all: handover task list)", near.join(", ")),
                };
                Err(Exit::NotFound.told(format!("there is no task {typed_shown} (SESSION_NOT_FOUND)"), near))
            }
            many => {
                let some: Vec<String> = found.iter().take(NEAREST).map(|id| text::line(id)).collect();
                Err(Exit::NotFound.told(
                    format!("{typed_shown} is the beginning of {many} tasks"),
                    format!("give more of one: {}", some.join(", ")),
                ))
            }
        }
    }

    async fn nearest(&self, typed: &str) -> Result<Vec<String>, Failure> {
        let page = self.call("task_list", json!({ "max": LOOKED_AT })).await?;
        let ids = page["tasks"].as_array().into_iter().flatten().filter_map(|task| task["task_id"].as_str());
        let length = typed.chars().count();
        let beginning = |id: &str| id.chars().take(length).collect::<String>();
        let mut near: Vec<(usize, &str)> = ids.map(|id| (distance(typed, &beginning(id)), id)).collect();
        near.sort();
        Ok(near.into_iter().take(NEAREST).map(|(_, id)| text::short(id)).collect())
    }
}

/// How many characters must be changed, added or left out to make one text of the other. Bounded, because ids are short.
fn distance(one: &str, other: &str) -> usize {
    const CHARS_MAX: usize = 64;
    let other: Vec<char> = other.chars().take(CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.chars().take(CHARS_MAX).enumerate() {
        let mut before = at;
        row[0] = at + 1;
        for (column, found) in other.iter().enumerate() {
            let changed = before + usize::from(*found != character);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn a_mistyped_id_is_near_to_the_one_that_was_meant() {
        assert_eq!(
            ["abcd", "abxd", "abcde", "acd", "xyz", ""].map(|other| distance("abcd", other)),
            [0, 1, 1, 1, 4, 4]
        );
    }
}
