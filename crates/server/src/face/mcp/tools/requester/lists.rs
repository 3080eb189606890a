//! Lists of tasks, and what happened in one.

use handover_desk::converse::{Tasks, unread};
use handover_desk::look::{HISTORY_MAX, Query};
use handover_desk::state::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Done, Trouble};
use super::LIST_MAX;
use crate::face::mcp::Mcp;
use crate::face::mcp::caller::Caller;
use crate::face::mcp::content::structured;
use crate::face::mcp::resources::TASKS;

impl Mcp {
    pub(super) async fn task_timeline(&self, caller: &Caller, asked: Timeline) -> Done {
        let Timeline { task_id, after, max, wait_ms, states } = asked;
        let (after, max) = (after.unwrap_or(0), max.unwrap_or(HISTORY_MAX));
        if let Some(wait_ms) = wait_ms {
            self.something_after(caller, &task_id, after, wait_ms).await?;
        }
        let mut transcript = self.transcript(caller, &task_id, after, max).await?;
        if states {
            let events = transcript["events"].as_array_mut().into_iter().flatten();
            let seq = |event: &Value| event["seq"].as_u64();
            let mut events: Vec<&mut Value> = events.filter(|event| seq(event).is_some()).collect();
            let first = events.first().and_then(|event| seq(event)).unwrap_or(1);
            let last = events.last().and_then(|event| seq(event)).unwrap_or(0);
            let states = self.desk().states(&caller.who, &task_id, first..=last).await?;
            for event in &mut events {
                let state = seq(event).and_then(|seq| states.get((seq - first) as usize));
                event["state"] = json!(state.map(|state| state.name()));
            }
        }
        Ok(structured(transcript))
    }

    /// Wait until there is something after an event, or nothing more is to come.
    async fn something_after(
        &self,
        caller: &Caller,
        id: &str,
        after: u64,
        wait_ms: u64,
    ) -> Result<(), Trouble> {
        let until = self.until(caller, Some(wait_ms));
        let session = self.task(&caller.who, id).await?;
        if session.head.0 > after || session.lifecycle.is_terminal() {
            return Ok(());
        }
        let mut stay = self.desk().stay(&caller.who)?;
        let mut events = self.desk().events(&caller.who, id, session.head.0);
        match stay.next_by(&mut events, until).await {
            Ok(_) => Ok(()),
            Err(over) => over.no().map_or(Ok(()), |no| Err(no.into())),
        }
    }

    pub(super) async fn task_list(&self, caller: &Caller, asked: TaskList) -> Done {
        let max = asked.max.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
        if asked.unread {
            return self.unread_list(caller, asked.cursor.as_deref(), max).await;
        }
        self.stated_list(caller, asked, max).await
    }

    /// The tasks in some states, or all; with details as task_status shows them, without their results.
    async fn stated_list(&self, caller: &Caller, asked: TaskList, max: usize) -> Done {
        let details = asked.details || asked.states.is_some();
        let mut wanted = Vec::new();
        for name in asked.states.unwrap_or_default() {
            let unknown = || {
                let all = State::ALL.map(State::name).join(", ");
                Trouble::Told(format!("states: expected some of {all}, found {name:?}"))
            };
            wanted.push(State::named(&name).ok_or_else(unknown)?);
        }
        let standings = wanted.iter().fold(0, |all, state| all | state.standings());
        let query = Query { standings, ..TASKS };
        let (found, next) = self.desk().sessions(&caller.who, query, asked.cursor.as_deref(), max).await?;
        let found = found.iter().filter(|session| wanted.is_empty() || wanted.contains(&State::of(session)));
        let tasks = found.map(|session| {
            if !details {
                return self.listed(caller, session);
            }
            let mut view = self.view(caller, session);
            if let Some(fields) = view.as_object_mut() {
                for field in ["result", "next_step"] {
                    fields.remove(field);
                }
            }
            view
        });
        Ok(structured(json!({ "tasks": tasks.collect::<Vec<_>>(), "next_cursor": next })))
    }

    /// The tasks with something that the caller has not read, the oldest first.
    async fn unread_list(&self, caller: &Caller, after: Option<&str>, max: usize) -> Done {
        let wanted = Tasks { unread: true, ..Tasks::default() };
        let (found, next) = self.desk().tasks(&caller.who, &wanted, after, max).await?;
        let tasks = found.iter().map(|session| {
            let mut row = self.listed(caller, session);
            row["unread_count"] = json!(unread(session, &caller.agent).len());
            row
        });
        Ok(structured(json!({ "tasks": tasks.collect::<Vec<_>>(), "next_cursor": next })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Timeline {
    task_id: String,
    after: Option<u64>,
    max: Option<usize>,
    wait_ms: Option<u64>,
    #[serde(default)]
    states: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskList {
    cursor: Option<String>,
    max: Option<usize>,
    #[serde(default)]
    unread: bool,
    #[serde(default)]
    details: bool,
    states: Option<Vec<String>>,
}
