//! Transcripts of tasks as resources: `task://{id}`.

use handover_desk::calendar::rfc3339;
use handover_desk::look::{HISTORY_MAX, Item, Query};
use handover_desk::timeline;
use handover_kernel::command::ModeKind;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::caller::{Caller, Era};
use super::discover::{cacheable, complete};
use super::message::{Error, shorten};
use super::task::word;
use super::tools::requester::EVERYTHING;
use super::{Mcp, No, params};
use handover_desk::codes::own;

const SCHEME: &str = "task://";

/// The addresses of all transcripts.
pub(super) const TEMPLATE: &str = "task://{id}";

/// How many transcripts a page lists.
const PAGE: usize = 100;

/// How long a list of transcripts may be kept.
const LIST_TTL_MS: u64 = 0;

/// How long the templates may be kept.
const TEMPLATES_TTL_MS: u64 = 60 * 60 * 1000;

/// The code for a resource that is not there, in the handshake revisions.
const NO_RESOURCE: i32 = -32002;

/// The address of a task's transcript.
pub(super) fn uri(task: &str) -> String {
    format!("{SCHEME}{task}")
}

/// The task whose transcript an address names.
pub(super) fn task_of(uri: &str) -> Option<&str> {
    uri.strip_prefix(SCHEME).filter(|task| !task.is_empty() && !task.contains('/'))
}

/// The task whose transcript an address names, and the event after which to begin: `task://{id}?after={number}`.
fn page_of(uri: &str) -> Option<(&str, u64)> {
    match uri.split_once("?after=") {
        None => Some((task_of(uri)?, 0)),
        Some((uri, after)) => Some((task_of(uri)?, after.parse().ok()?)),
    }
}

/// The tasks that the caller may see, the newest first.
pub(super) const TASKS: Query = Query { kind: Some(ModeKind::Task), newest_first: true, standings: 0 };

impl Mcp {
    /// `resources/list`: the transcripts of the tasks that the caller may see, the newest first.
    pub(super) async fn resources_list(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct List {
            cursor: Option<String>,
        }
        let List { cursor } = params(given)?;
        let page = self.desk().list(&caller.who, TASKS, cursor.as_deref(), PAGE).await.map_err(No)?;
        let resources: Vec<Value> = page.items.iter().map(listed).collect();
        let mut result = Map::new();
        result.insert("resources".to_owned(), Value::Array(resources));
        if let Some(next) = page.next {
            result.insert("nextCursor".to_owned(), json!(next));
        }
        Ok(cacheable(caller, result, LIST_TTL_MS))
    }

    /// `resources/templates/list`.
    pub(super) fn resource_templates(&self, caller: &Caller) -> String {
        let template = json!({
            "uriTemplate": TEMPLATE,
            "name": "task",
            "title": "Task transcript",
            "description": "Everything that happened in a task, in order, as JSON",
            "mimeType": "application/json",
        });
        let mut result = Map::new();
        result.insert("resourceTemplates".to_owned(), json!([template]));
        cacheable(caller, result, TEMPLATES_TTL_MS)
    }

    /// `resources/read`.
    pub(super) async fn resources_read(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Read {
            uri: String,
        }
        let Read { uri } = params(given)?;
        let unknown = || {
            let code = if caller.era == Era::Modern { super::message::INVALID_PARAMS } else { NO_RESOURCE };
            Error::new(code, format!("there is no resource {}", shorten(&uri)))
                .named(own::RESOURCE_NOT_FOUND.code)
                .data(json!({ "uri": uri }))
        };
        let (task, after) = page_of(&uri).ok_or_else(unknown)?;
        let transcript = match self.transcript(caller, task, after, HISTORY_MAX).await {
            Ok(transcript) => transcript,
            Err(no) if no.is_unknown() => return Err(unknown()),
            Err(no) => return Err(no.into()),
        };
        let mut result = Map::new();
        let text = transcript.to_string();
        result.insert(
            "contents".to_owned(),
            json!([{ "uri": uri, "mimeType": "application/json", "text": text }]),
        );
        if caller.era == Era::Modern {
            return Ok(cacheable(caller, result, LIST_TTL_MS));
        }
        Ok(complete(caller, result))
    }

    /// What happened in a task that the caller may see, after an event. Where there is more, it says after which.
    pub(super) async fn transcript(
        &self,
        caller: &Caller,
        task: &str,
        after: u64,
        max: usize,
    ) -> Result<Value, No> {
        self.task(&caller.who, task).await?;
        let history = self.desk().history(&caller.who, task, after, max).await.map_err(No)?;
        let session = &history.session;
        let events: Vec<Value> = history.events.iter().map(|event| timeline::entry(session, event)).collect();
        let mut transcript = json!({
            "task_id": task,
            "status": self.shown(session, EVERYTHING, &caller.who).map(|shown| word(session, shown.status)),
            "requester": session.binding.requester.as_str(),
            "created_at": rfc3339(session.binding.created_at),
            "events": events,
        });
        if let Some(next) = history.next {
            transcript["next"] = json!({ "after": next, "uri": format!("{}?after={next}", uri(task)) });
        }
        Ok(transcript)
    }
}

fn listed(item: &Item) -> Value {
    let title = if item.summary.title.is_empty() { "task" } else { &item.summary.title };
    json!({
        "uri": uri(item.id.as_str()),
        "name": item.id.as_str(),
        "title": title,
        "description": format!("started by {} at {}", item.requester, rfc3339(item.created_at)),
        "mimeType": "application/json",
    })
}
