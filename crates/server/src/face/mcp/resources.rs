//! Transcripts of tasks as resources: `task://{id}`.

use std::sync::Arc;

use handover_kernel::command::ModeKind;
use handover_store::{Cursor, Filter, Order, Page};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::caller::{Caller, Era};
use super::discover::{cacheable, complete};
use super::message::{Error, shorten};
use super::{Mcp, No, params};
use handover_desk::calendar::rfc3339;
use handover_desk::codes::own;
use handover_desk::timeline;
use handover_engine::subscription::read_page;
use handover_engine::view::{self, Summary};
use handover_engine::{Denied, Key, Topic};

const SCHEME: &str = "task://";

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

/// The tasks that the caller may see.
pub(super) fn visible_tasks(caller: &Caller) -> Filter {
    Filter {
        tenant: Some(caller.tenant.clone()),
        agent: (!caller.observer).then(|| caller.agent.as_str().into()),
        kind: Some(view::kind_number(ModeKind::Task)),
        ..Filter::default()
    }
}

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
        let after = cursor.as_deref().map(read_cursor).transpose()?;
        let page = self.list(visible_tasks(caller), Order::Newest, after, PAGE).await.map_err(No::from)?;
        let resources: Vec<Value> = page.sessions.iter().map(listed).collect();
        let mut result = Map::new();
        result.insert("resources".to_owned(), Value::Array(resources));
        if let Some(Cursor(next)) = page.next {
            result.insert("nextCursor".to_owned(), json!(next.to_string()));
        }
        Ok(cacheable(caller, result, LIST_TTL_MS))
    }

    /// A page of sessions.
    pub(super) async fn list(
        &self,
        filter: Filter,
        order: Order,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page, Denied> {
        let store = Arc::clone(&self.parts.desk.store);
        match tokio::task::spawn_blocking(move || store.list(&filter, order, after, max)).await {
            Ok(page) => page.map_err(|fault| Denied::Fault(Arc::new(fault))),
            Err(_) => Err(Denied::Stopping),
        }
    }

    /// `resources/templates/list`.
    pub(super) fn resource_templates(&self, caller: &Caller) -> String {
        let template = json!({
            "uriTemplate": "task://{id}",
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
        let task = task_of(&uri).ok_or_else(unknown)?;
        let transcript = match self.transcript(caller, task).await {
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

    /// Everything that happened in a task that the caller may see.
    pub(super) async fn transcript(&self, caller: &Caller, task: &str) -> Result<Value, No> {
        let session = self.task(&caller.who, task).await?;
        let topic = Topic::Session(Key::from(super::key(caller, task)));
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let (store, topic) = (Arc::clone(&self.parts.desk.store), topic.clone());
            let page = tokio::task::spawn_blocking(move || read_page(&*store, &topic, after)).await;
            let page = page.map_err(|_| Denied::Stopping)??;
            let Some(last) = page.last() else { break };
            after = last.number;
            events.extend(page.iter().map(|delivery| timeline::entry(&delivery.event)));
            if after >= session.head.0 {
                break;
            }
        }
        Ok(json!({
            "taskId": task,
            "standing": session.standing().name(),
            "requester": session.binding.requester.as_str(),
            "createdAt": rfc3339(session.binding.created_at),
            "events": events,
        }))
    }
}

fn listed(session: &handover_store::Listed) -> Value {
    use prost::Message;
    let summary = Summary::decode(&*session.row.summary).unwrap_or_default();
    let title = if summary.title.is_empty() { "task".to_owned() } else { summary.title };
    json!({
        "uri": uri(&session.key.session),
        "name": &*session.key.session,
        "title": title,
        "description": format!("started by {} at {}", session.row.requester, rfc3339(handover_kernel::Timestamp(session.row.created_at))),
        "mimeType": "application/json",
    })
}

/// A cursor that we gave out.
pub(super) fn read_cursor(text: &str) -> Result<Cursor, Error> {
    text.parse().map(Cursor).map_err(|_| {
        Error::invalid(format!("expected a cursor that a list gave out, found {}", shorten(text)))
    })
}
