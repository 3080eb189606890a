//! What our own tools return, as schemas, and what hosts may assume of them.

use handover_desk::state::State;
use serde_json::{Value, json};

use super::{Run, agents, approvals, conversation, handoffs, requester, worker};

/// What a call of a tool changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing.
    Reads,
    /// Each call adds something.
    Adds,
    /// A second call finds it done.
    Sets,
    /// The same, and what is done cannot be undone.
    Ends,
}

fn effect(run: Run) -> Effect {
    match run {
        Run::Agents(tool) => match tool {
            agents::Tool::List => Effect::Reads,
            agents::Tool::Register => Effect::Sets,
            agents::Tool::Unregister => Effect::Ends,
        },
        Run::Requester(tool) => match tool {
            requester::Tool::Status
            | requester::Tool::Wait
            | requester::Tool::List
            | requester::Tool::Timeline => Effect::Reads,
            requester::Tool::Delegate | requester::Tool::Steer | requester::Tool::Message => Effect::Adds,
            requester::Tool::Answer | requester::Tool::Pause | requester::Tool::Resume => Effect::Sets,
            requester::Tool::Cancel | requester::Tool::Commit => Effect::Ends,
        },
        Run::Worker(tool) => match tool {
            worker::Tool::List => Effect::Reads,
            worker::Tool::Next | worker::Tool::Update | worker::Tool::Checkpoint | worker::Tool::Ask => {
                Effect::Adds
            }
            worker::Tool::Accept | worker::Tool::Hold | worker::Tool::Resume => Effect::Sets,
            worker::Tool::Decline | worker::Tool::Complete | worker::Tool::Fail => Effect::Ends,
        },
        Run::Handoffs(tool) => match tool {
            handoffs::Tool::List | handoffs::Tool::Status => Effect::Reads,
            handoffs::Tool::Offer => Effect::Adds,
            handoffs::Tool::Accept => Effect::Sets,
            handoffs::Tool::Decline | handoffs::Tool::Commit => Effect::Ends,
        },
        Run::Approvals(tool) => match tool {
            approvals::Tool::List => Effect::Reads,
            approvals::Tool::Propose => Effect::Sets,
            approvals::Tool::Decide => Effect::Ends,
        },
        Run::Conversation(tool) => match tool {
            conversation::Tool::Search => Effect::Reads,
            conversation::Tool::SendTask | conversation::Tool::SendMessage | conversation::Tool::Read => {
                Effect::Adds
            }
            conversation::Tool::Ack | conversation::Tool::Update | conversation::Tool::SetStatus => {
                Effect::Sets
            }
            conversation::Tool::Complete | conversation::Tool::Reject => Effect::Ends,
        },
    }
}

/// Whether a call of a tool changes nothing.
pub(super) fn reads(run: Run) -> bool {
    effect(run) == Effect::Reads
}

/// What a host may assume of a tool. None of ours reaches beyond this server by itself.
pub(super) fn hints(run: Run) -> Value {
    let effect = effect(run);
    json!({
        "readOnlyHint": reads(run),
        "destructiveHint": effect == Effect::Ends,
        "idempotentHint": effect != Effect::Adds,
        "openWorldHint": false,
    })
}

fn object(fields: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": fields, "required": required })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn text_or_none() -> Value {
    json!({ "type": ["string", "null"] })
}

fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

fn yes_or_no() -> Value {
    json!({ "type": "boolean" })
}

fn status() -> Value {
    json!({ "enum": ["working", "input_required", "paused", "completed", "failed", "rejected", "cancelled", "expired"] })
}

fn task() -> Value {
    object(
        json!({
            "task_id": text(),
            "status": status(),
            "state": json!({ "enum": State::ALL.map(State::name), "description": "Where it is, in the words that people read" }),
            "waits_for": json!({ "type": "object", "description": "What it waits for (answer, reply, review, accept), which agents can do that, and since when it waits" }),
            "face": json!({ "type": "string", "description": "Which way it was begun: macp, mcp, grid, console or cli" }),
            "parent_task_id": text(),
            "subtasks": list(text()),
            "title": text_or_none(),
            "requester": text(),
            "assignee": text(),
            "assignee_online": json!({ "type": "boolean", "description": "Whether that agent waits for work or follows something now" }),
            "assignee_seen_at": json!({ "type": ["string", "null"], "description": "The last sign of life of the agent that works on it" }),
            "silent_since": json!({ "type": "string", "description": "Since when the agent that works on it has shown no sign of life, though it should" }),
            "approval": json!({ "type": "object", "description": "What waits for somebody's approval, or was not approved" }),
            "waits": json!({ "type": "array", "items": { "type": "object" }, "description": "Who waits for whom (from, to), why, and for which task: task_status shows it" }),
            "budget": json!({ "type": "object", "description": "What is used of its budget: tasks, depth and numbers, each with used and of" }),
            "used": json!({ "type": "object", "description": "What the agents that worked on it said that they used for it" }),
            "created_at": text(),
            "updated_at": text(),
            "message": text(),
            "progress": { "type": "number" },
            "questions": { "type": "object", "description": "By key, for task_answer" },
            "result": { "type": "object", "description": "What the call returns: content, structuredContent, isError" },
            "error": { "type": "object" },
            "outcome_key": text(),
            "subtasks_cancelled": list(text()),
            "subtasks_going_on": list(text()),
            "next_step": json!({ "type": "string", "description": "What to call next" }),
            "warning": text(),
        }),
        &["task_id", "status", "requester", "created_at", "updated_at"],
    )
}

/// What a call of a skill returns that says what it gives: that, or a handle if it takes longer than a call waits. A client
/// may give up a result that is neither.
pub(super) fn or_handle(mut own: Value) -> Value {
    let handle = object(
        json!({
            "task_id": text(),
            "status": status(),
            "next_step": json!({ "type": "string", "description": "What to call for the result" }),
        }),
        &["task_id", "status", "next_step"],
    );
    let mut listed = json!({ "type": "object" });
    if let Some(dialect) = own.as_object_mut().and_then(|own| own.remove("$schema")) {
        listed["$schema"] = dialect;
    }
    moved(&mut own);
    listed["anyOf"] = json!([own, handle]);
    listed
}

/// Let what refers to a place in this schema refer to it in the list of which the schema is now the first.
fn moved(schema: &mut Value) {
    match schema {
        // One that has an address of its own refers to itself wherever it is.
        Value::Object(fields) if fields.contains_key("$id") => {}
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match (name.as_str(), value) {
            ("$ref" | "$dynamicRef", Value::String(place)) => {
                if let Some(pointer) = place.strip_prefix('#')
                    && (pointer.is_empty() || pointer.starts_with('/'))
                {
                    *place = format!("#/anyOf/0{pointer}");
                }
            }
            // What is data refers to nothing, and the names of fields are no words of a schema.
            ("const" | "enum" | "default" | "examples", _) => {}
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(named),
            ) => named.values_mut().for_each(moved),
            (_, value) => moved(value),
        }),
        Value::Array(items) => items.iter_mut().for_each(moved),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn work() -> Value {
    object(
        json!({
            "task_id": text(),
            "status": status(),
            "requester": text(),
            "created_at": text(),
            "skill": text(),
            "title": text(),
            "instructions": text(),
            "arguments": {},
            "paused": yes_or_no(),
            "caller": { "type": "object" },
            "traceparent": json!({ "type": "string", "description": "W3C trace context, for tracing tools" }),
        }),
        &["task_id", "requester", "created_at", "paused"],
    )
}

fn safe_point(more: Value) -> Value {
    let mut fields = json!({
        "orders": list(json!({ "type": "object" })),
        "paused": yes_or_no(),
        "ended": yes_or_no(),
        "status": status(),
        "more_orders": yes_or_no(),
        "recorded": json!({ "type": "boolean", "description": "False if what you said was not taken, because the task is paused" }),
        "note": text(),
        "next_after": { "type": "integer" },
    });
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    object(fields, &["orders", "paused", "ended"])
}

fn page_of(name: &str, of: Value) -> Value {
    object(json!({ name: list(of), "next_cursor": text_or_none() }), &[name])
}

/// What a tool returns as structured content.
pub(super) fn returns(run: Run) -> Value {
    match run {
        Run::Agents(agents::Tool::List) => page_of("agents", json!({ "type": "object" })),
        Run::Agents(agents::Tool::Register) => {
            let tool = object(json!({ "skill": text(), "tool": text() }), &["skill", "tool"]);
            let fields = json!({ "registered": yes_or_no(), "id": text(), "changed": yes_or_no(), "tools": list(tool) });
            object(fields, &["registered", "id", "changed", "tools"])
        }
        Run::Agents(agents::Tool::Unregister) => {
            object(json!({ "unregistered": yes_or_no() }), &["unregistered"])
        }
        Run::Requester(requester::Tool::List) => page_of("tasks", json!({ "type": "object" })),
        Run::Requester(requester::Tool::Timeline) => object(
            json!({
                "task_id": text(), "status": status(), "requester": text(), "created_at": text(),
                "events": list(json!({ "type": "object" })), "next": { "type": "object" },
            }),
            &["task_id", "status", "requester", "created_at", "events"],
        ),
        Run::Requester(requester::Tool::Steer | requester::Tool::Message) => {
            object(json!({ "accepted": yes_or_no(), "task_id": text() }), &["accepted", "task_id"])
        }
        Run::Requester(_) => task(),
        Run::Worker(worker::Tool::Next | worker::Tool::List) => page_of("work", work()),
        Run::Worker(worker::Tool::Accept) => work(),
        Run::Worker(worker::Tool::Decline) => {
            object(json!({ "declined": yes_or_no(), "task_id": text() }), &["declined", "task_id"])
        }
        Run::Worker(
            worker::Tool::Update | worker::Tool::Checkpoint | worker::Tool::Hold | worker::Tool::Resume,
        ) => safe_point(json!({})),
        Run::Worker(worker::Tool::Ask) => {
            safe_point(json!({ "answered": yes_or_no(), "answers": { "type": "object" }, "note": text() }))
        }
        Run::Worker(worker::Tool::Complete | worker::Tool::Fail) => object(
            json!({ "reported": yes_or_no(), "task_id": text(), "status": status() }),
            &["reported", "task_id", "status"],
        ),
        Run::Conversation(conversation::Tool::Search) => page_of("agents", json!({ "type": "object" })),
        Run::Conversation(conversation::Tool::SetStatus) => object(json!({ "status": text() }), &["status"]),
        Run::Conversation(tool) => tool.returns(),
        Run::Approvals(tool) => {
            let proposal = object(
                json!({
                    "task_id": text(), "kind": { "enum": ["task", "handoff"] }, "requester": text(),
                    "approval": { "type": ["object", "null"], "description": "None once it has taken effect" },
                    "decided": text(),
                }),
                &["task_id", "kind", "requester"],
            );
            match tool {
                approvals::Tool::List => page_of("proposals", proposal),
                approvals::Tool::Decide | approvals::Tool::Propose => proposal,
            }
        }
        Run::Handoffs(tool) => {
            let handoff = object(
                json!({
                    "approval": { "type": ["object", "null"] },
                    "handoff_id": text(), "status": { "enum": ["proposed", "offered", "accepted", "declined", "settled", "ended"] },
                    "from": text(), "to": text_or_none(), "scope": text_or_none(),
                    "answer": text_or_none(), "settled": yes_or_no(),
                    "moved": { "type": ["boolean", "null"], "description": "Whether the task it names was handed on" },
                    "not_moved_because": text_or_none(),
                }),
                &["handoff_id", "status", "from", "settled"],
            );
            match tool {
                handoffs::Tool::List => page_of("handoffs", handoff),
                handoffs::Tool::Offer
                | handoffs::Tool::Status
                | handoffs::Tool::Accept
                | handoffs::Tool::Decline
                | handoffs::Tool::Commit => handoff,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_refers_to_itself_does_so_beside_a_handle() {
        let own = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": { "pair": { "type": "array", "maxItems": 2 } },
            "properties": {
                "pair": { "$ref": "#/$defs/pair" },
                "below": { "$ref": "#" },
                "default": { "$ref": "#/$defs/pair" },
                "says": { "const": { "$ref": "#/$defs/pair" } },
            },
            "required": ["pair"],
        });
        let schema = jsonschema::draft202012::new(&or_handle(own)).unwrap();
        let handle = json!({ "task_id": "t", "status": "working", "next_step": "task_wait", "more": 1 });
        for (value, fits) in [
            (json!({ "pair": [1, 2] }), true),
            (json!({ "pair": [1, 2, 3] }), false),
            (json!({ "pair": [], "below": { "pair": [] } }), true),
            (json!({ "pair": [], "below": { "pair": 1 } }), false),
            (json!({ "pair": [], "says": { "$ref": "#/$defs/pair" } }), true),
            (json!({ "pair": [], "default": [1, 2, 3] }), false),
            (json!({ "task_id": "t" }), false),
            (handle, true),
        ] {
            assert_eq!(schema.is_valid(&value), fits, "{value}");
        }
    }
}
