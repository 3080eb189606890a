//! Tools to hold conversations as agents of the Grid do, for hosts that cannot keep a stream open. They are the methods of
//! that face under the names that its agents know, with fields spelt as all tools spell them.

use handover_desk::directory::Status;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::{Builtin, Done, Run, Trouble, object, read_arguments};
use crate::face::grid::{self, methods::Method};
use crate::face::mcp::Mcp;
use crate::face::mcp::caller::Caller;
use crate::face::mcp::content::structured;
use crate::face::mcp::message::{Error, shorten};

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::face::mcp) enum Tool {
    SendTask,
    SendMessage,
    Read,
    Ack,
    Update,
    Complete,
    Reject,
    Search,
    SetStatus,
}

/// How many agents a search shows.
const FOUND_MAX: usize = 100;

/// What holds JSON of others, whose names are left as they are.
const FOREIGN: [&str; 13] = [
    "data",
    "schema",
    "file",
    "inputSchema",
    "outputSchema",
    "annotations",
    "used",
    "numbers",
    "input",
    "output",
    "proposed",
    "arguments",
    "content",
];

impl Tool {
    /// The method that it is, unless it is about agents.
    fn method(self) -> Option<Method> {
        match self {
            Tool::SendTask => Some(Method::Send),
            Tool::SendMessage => Some(Method::Say),
            Tool::Read => Some(Method::Read),
            Tool::Ack => Some(Method::Ack),
            Tool::Update => Some(Method::Update),
            Tool::Complete => Some(Method::Complete),
            Tool::Reject => Some(Method::Reject),
            Tool::Search | Tool::SetStatus => None,
        }
    }

    /// The JSON Schemas of what it takes and of what it returns.
    fn schemas(self) -> Option<(Value, Value)> {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let (taken, returned) = self.method()?.schemas(&mut settings.into_generator());
        let respelt = |schema: schemars::Schema| respelt(json!(schema), &snake);
        Some((respelt(taken), respelt(returned)))
    }

    /// What it returns.
    pub(super) fn returns(self) -> Value {
        self.schemas().map_or_else(|| json!({ "type": "object" }), |(_, returned)| returned)
    }
}

fn taken(tool: Tool) -> Value {
    tool.schemas().map_or_else(|| object(json!({}), &[]), |(taken, _)| taken)
}

/// The tools.
pub(super) const TOOLS: &[Builtin] = &[
    Builtin {
        name: "send_task",
        title: "Send a task",
        description: "Send a task to an agent and begin a conversation about it. The agent is told; find its replies with task_list \
            and unread: true, read them with task_read, and accept the result with task_complete.",
        arguments: || taken(Tool::SendTask),
        run: Run::Conversation(Tool::SendTask),
    },
    Builtin {
        name: "send_message",
        title: "Send a message",
        description: "Say something in a task. If you received the task, your message delivers the result and the sender reviews it; \
            set state to input_required or auth_required to ask instead, or to working to say how it goes.",
        arguments: || taken(Tool::SendMessage),
        run: Run::Conversation(Tool::SendMessage),
    },
    Builtin {
        name: "task_read",
        title: "Read a task",
        description: "Read what you have not read of a task, and give the other side a receipt. Then call message_ack, work, and reply \
            with send_message. wait_ms waits for something to read.",
        arguments: || taken(Tool::Read),
        run: Run::Conversation(Tool::Read),
    },
    Builtin {
        name: "message_ack",
        title: "Acknowledge",
        description: "Say that you have received the messages of a task and work on them. Do so after reading, before you reply: \
            otherwise the sender is told that you do not answer.",
        arguments: || taken(Tool::Ack),
        run: Run::Conversation(Tool::Ack),
    },
    Builtin {
        name: "task_update",
        title: "Update a task",
        description: "Set the state of a task (working, failed, rejected, canceled, …) or your own key for the conversation.",
        arguments: || taken(Tool::Update),
        run: Run::Conversation(Tool::Update),
    },
    Builtin {
        name: "task_complete",
        title: "Complete a task",
        description: "Accept what the receiver delivered and end the task. Only the sender of a task can.",
        arguments: || taken(Tool::Complete),
        run: Run::Conversation(Tool::Complete),
    },
    Builtin {
        name: "task_reject",
        title: "Reject a task",
        description: "Turn down a task that you received.",
        arguments: || taken(Tool::Reject),
        run: Run::Conversation(Tool::Reject),
    },
    Builtin {
        name: "search_agents",
        title: "Search agents",
        description: "Find agents by words of their names, descriptions and skills, the best first.",
        arguments: || {
            object(
                json!({
                    "query": { "type": "string", "description": "Words; beginnings of words and typing errors are found too" },
                    "cursor": { "type": "string", "description": "next_cursor of the last page" },
                    "max": { "type": "integer", "minimum": 1, "maximum": FOUND_MAX },
                }),
                &["query"],
            )
        },
        run: Run::Conversation(Tool::Search),
    },
    Builtin {
        name: "set_status",
        title: "Set your status",
        description: "Say whether you take work: do_not_disturb refuses new tasks and leaves running ones. Register with agent_register first.",
        arguments: || {
            object(
                json!({
                    "status": { "enum": ["available", "busy", "do_not_disturb"] },
                    "text": { "type": "string", "description": "A few words for others" },
                }),
                &["status"],
            )
        },
        run: Run::Conversation(Tool::SetStatus),
    },
];

impl Mcp {
    pub(super) async fn run_conversation(
        &self,
        caller: &Caller,
        tool: Tool,
        given: Map<String, Value>,
    ) -> Done {
        let desk = self.desk();
        if let Some(method) = tool.method() {
            let given = to_raw_value(&respelt(Value::Object(given), &camel))
                .map_err(|error| Trouble::Told(error.to_string()))?;
            let answered = grid::answer(desk, &caller.who, method, Some(&given)).await;
            let answer = answered.map_err(|refused| told(refused.0))?;
            let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
            return Ok(structured(respelt(answer, &snake)));
        }
        if tool == Tool::SetStatus {
            let NewStatus { status, text } = read_arguments(given)?;
            let wrong = || {
                let found = shorten(&status);
                Trouble::Told(format!("status: expected {}, found {found}", Status::NAMES))
            };
            let known = Status::of(&status).ok_or_else(wrong)?;
            desk.set_status(&caller.who, known, &text).await?;
            return Ok(structured(json!({ "status": known.name() })));
        }
        let Search { query, cursor, max } = read_arguments(given)?;
        let max = max.unwrap_or(FOUND_MAX).clamp(1, FOUND_MAX);
        let (found, next) = desk.search(&caller.who, &query, cursor.as_deref(), max).await?;
        let mut agents = Vec::new();
        for found in found {
            agents.push(self.shown_agent(caller, &found.agent).await?);
        }
        Ok(structured(json!({ "agents": agents, "next_cursor": next })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewStatus {
    status: String,
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    cursor: Option<String>,
    max: Option<usize>,
}

/// What is said of a refusal: in the result, as of all tools, unless the server could not do it.
fn told(error: Error) -> Trouble {
    let limited = error.data.as_ref().is_some_and(|data| data.get("retryAfterMs").is_some());
    match &error.name {
        Some(code) if limited => Trouble::Told(format!("{} ({code})", error.message)),
        Some(_) | None => Trouble::from(error),
    }
}

/// `taskId` as `task_id`.
fn snake(name: &str) -> String {
    let mut spelt = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            spelt.push('_');
        }
        spelt.push(letter.to_ascii_lowercase());
    }
    spelt
}

/// `task_id` as `taskId`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut spelt, word| {
        let mut letters = word.chars();
        spelt.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        spelt.push_str(letters.as_str());
        spelt
    })
}

/// The same with the names of its fields spelt so, but for what holds JSON of others. In a schema the names of required
/// fields are fields too.
fn respelt(value: Value, spell: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let spelt = fields.into_iter().map(|(name, value)| {
                let value = match (name.as_str(), value) {
                    ("required", Value::Array(names)) => {
                        let spelt =
                            |name: Value| name.as_str().map_or(name.clone(), |name| json!(spell(name)));
                        Value::Array(names.into_iter().map(spelt).collect())
                    }
                    (foreign, value) if FOREIGN.contains(&foreign) => value,
                    (_, value) => respelt(value, spell),
                };
                // The words of JSON Schema stay its own.
                let is_schemas =
                    matches!(name.as_str(), "additionalProperties" | "oneOf" | "anyOf" | "allOf");
                (if is_schemas { name } else { spell(&name) }, value)
            });
            Value::Object(spelt.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|item| respelt(item, spell)).collect()),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_spelt_as_all_tools_spell_them_and_json_of_others_is_left() {
        assert_eq!(
            (snake("parentTaskId"), camel("parent_task_id")),
            ("parent_task_id".into(), "parentTaskId".into())
        );
        let task = json!({ "taskId": "t", "parts": [{ "type": "data", "data": { "aB": 1 } }] });
        let spelt = respelt(task, &snake);
        assert_eq!(spelt, json!({ "task_id": "t", "parts": [{ "type": "data", "data": { "aB": 1 } }] }));
        let others =
            json!({ "used": { "inputTokens": 1, "a_b": 2 }, "budget": { "numbers": { "costUsd": 3 } } });
        assert_eq!(respelt(others.clone(), &snake), others);
        assert_eq!(respelt(others.clone(), &camel), others);
        assert_eq!(
            respelt(json!({ "budget": { "time_ms": 1 } }), &camel),
            json!({ "budget": { "timeMs": 1 } })
        );
    }

    #[test]
    fn every_tool_says_what_it_takes_in_words_that_it_takes() {
        for tool in TOOLS {
            let schema = (tool.arguments)();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            for name in schema["properties"].as_object().unwrap().keys() {
                assert_eq!(snake(&camel(name)), *name, "{}", tool.name);
            }
        }
    }
}
