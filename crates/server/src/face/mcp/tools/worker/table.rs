//! The worker's tools, described for a model that has never seen them.

use serde_json::{Value, json};

use super::{NEXT_MAX, Tool};
use crate::face::mcp::tools::{Builtin, Run, WAIT_MAX_MS, object};

fn task_id() -> Value {
    json!({ "type": "string", "description": "The task's id, from work_next" })
}

fn wait_ms(what: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": WAIT_MAX_MS, "description": what })
}

fn task_with(field: &str, schema: Value, required: bool) -> Value {
    let mut fields = json!({ "task_id": task_id() });
    fields[field] = schema;
    if required { object(fields, &["task_id", field]) } else { object(fields, &["task_id"]) }
}

fn used() -> Value {
    json!({
        "type": "object",
        "additionalProperties": { "type": "number", "minimum": 0 },
        "description": "What you have used for the task since you last said so, counted against its budget: {\"tokens\": 1200}",
    })
}

/// The tools.
pub(in crate::face::mcp::tools) const TOOLS: &[Builtin] = &[
    Builtin {
        name: "work_next",
        title: "Find work",
        description: "Wait for tasks that other agents want you to do. Returns `work`, a list (empty if nothing came in time: call it again). \
            Each has a task_id, what is to be done (instructions, arguments), and for whom. Take one with work_accept or turn it down with \
            work_decline; with accept: true those returned are yours already.",
        arguments: || {
            object(
                json!({
                    "wait_ms": wait_ms("How long to wait for work, in milliseconds: less than your client waits for a tool (a few seconds unless given)"),
                    "accept": { "type": "boolean", "description": "Take what is found at once" },
                    "max": { "type": "integer", "minimum": 1, "maximum": NEXT_MAX, "description": "How many tasks at most (1 unless given)" },
                }),
                &[],
            )
        },
        run: Run::Worker(Tool::Next),
    },
    Builtin {
        name: "work_list",
        title: "List your work",
        description: "The tasks that you have taken and not ended yet. Use it when you begin again after a restart.",
        arguments: || {
            object(
                json!({ "cursor": { "type": "string", "description": "next_cursor of the last list" } }),
                &[],
            )
        },
        run: Run::Worker(Tool::List),
    },
    Builtin {
        name: "work_accept",
        title: "Take a task",
        description: "Take a task that work_next showed. From then on it is yours until you end it with work_complete or work_fail.",
        arguments: || object(json!({ "task_id": task_id() }), &["task_id"]),
        run: Run::Worker(Tool::Accept),
    },
    Builtin {
        name: "work_decline",
        title: "Turn a task down",
        description: "Turn down a task that work_next showed, or give back one that you have taken. You cannot take it again.",
        arguments: || task_with("reason", json!({ "type": "string", "description": "Why" }), true),
        run: Run::Worker(Tool::Decline),
    },
    Builtin {
        name: "work_update",
        title: "Report progress",
        description: "Say how your task goes. This is a safe point: the answer carries `orders` that came meanwhile. Follow them in their \
            order: kind steer is new guidance of the requester, answer belongs to a question of yours, message is something the \
            requester said. If `paused` is true stop, and call work_checkpoint until it is false. If `ended` is true the task is over: stop.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id(),
                    "message": { "type": "string", "description": "How it goes, in a sentence" },
                    "progress": { "type": "number", "minimum": 0, "description": "How much is done; must grow" },
                    "total": { "type": "number", "description": "How much there is to do" },
                    "partial": { "description": "What there is already: any JSON" },
                    "used": used(),
                    "log": {
                        "type": "array",
                        "description": "Log lines for a caller that asked for them",
                        "items": {
                            "type": "object",
                            "properties": {
                                "level": { "enum": ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] },
                                "logger": { "type": "string" },
                                "data": {},
                            },
                            "required": ["level", "data"],
                        },
                    },
                }),
                &["task_id"],
            )
        },
        run: Run::Worker(Tool::Update),
    },
    Builtin {
        name: "work_checkpoint",
        title: "Reach a safe point",
        description: "Say nothing, but take the orders that came meanwhile (see work_update). With wait_ms it waits for some. While the task \
            is paused it waits in any case, and answers when the task goes on, or with paused: true when the time is up. If you lost an \
            answer, give the seq of the last order that you have as `after`: what came since is told again. If the answer has next_after, \
            give that as `after` for the rest; if it says more_orders, call this again for what waits.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id(),
                    "wait_ms": wait_ms("How long to wait for orders, in milliseconds: less than your client waits for a tool; without it, only a paused task waits, for a few seconds"),
                    "after": { "type": "integer", "minimum": 0, "description": "The seq of the last order that you have; 0 tells all of them again" },
                    "used": used(),
                }),
                &["task_id"],
            )
        },
        run: Run::Worker(Tool::Checkpoint),
    },
    Builtin {
        name: "work_hold",
        title: "Hold a task",
        description: "Pause your own task until its requester resumes it, or you do with work_resume: for want of a resource, or at a cost that \
            the requester should agree to. Then wait with work_checkpoint.",
        arguments: || {
            task_with("reason", json!({ "type": "string", "description": "Why, for the requester" }), true)
        },
        run: Run::Worker(Tool::Hold),
    },
    Builtin {
        name: "work_resume",
        title: "Go on with a task that you hold",
        description: "Let a task go on that you paused yourself with work_hold. One that its requester paused goes on when the requester says so.",
        arguments: || object(json!({ "task_id": task_id() }), &["task_id"]),
        run: Run::Worker(Tool::Resume),
    },
    Builtin {
        name: "work_ask",
        title: "Ask the requester",
        description: "Ask the requester of your task one or several questions. `questions` maps a key of your choice (never used before in this \
            task) to {\"message\": \"...\", \"schema\": {JSON Schema of the answer}}; add \"permission\": true to ask for leave to do \
            something. Waits for the answers and returns them by key: {\"action\": \"accept\", \"content\": ...}, or action decline or cancel. If \
            `answered` is false they have not all come: go on with something else and take them with work_checkpoint.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id(),
                    "questions": {
                        "type": "object",
                        "minProperties": 1,
                        "additionalProperties": {
                            "type": "object",
                            "properties": {
                                "message": { "type": "string", "description": "The question in words" },
                                "schema": { "type": "object", "description": "A JSON Schema of the answer, best an object of simple fields" },
                                "permission": { "type": "boolean" },
                                "request": { "type": "object", "description": "The question as a client's request: method elicitation/create, sampling/createMessage or roots/list, and params" },
                            },
                        },
                    },
                    "wait_ms": wait_ms("How long to wait for the answers, in milliseconds: less than your client waits for a tool (a few seconds unless given)"),
                }),
                &["task_id", "questions"],
            )
        },
        run: Run::Worker(Tool::Ask),
    },
    Builtin {
        name: "work_complete",
        title: "Complete a task",
        description: "End your task with its result: `text`, or `output` (any JSON; an object becomes structured content), or `result`, a whole \
            tool result with content blocks (text, image, audio, resource).",
        arguments: || {
            object(
                json!({
                    "task_id": task_id(),
                    "text": { "type": "string", "description": "The result in words" },
                    "output": { "description": "The result as JSON" },
                    "result": { "type": "object", "description": "The result as content blocks: content, structuredContent, isError" },
                    "summary": { "type": "string", "description": "The result in a sentence" },
                    "used": used(),
                }),
                &["task_id"],
            )
        },
        run: Run::Worker(Tool::Complete),
    },
    Builtin {
        name: "work_fail",
        title: "Fail a task",
        description: "End your task without success, and say why; also while it is paused. Use `protocol_error` only if the call itself was broken.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id(),
                    "reason": { "type": "string", "description": "What went wrong, in a sentence" },
                    "code": { "type": "string", "description": "A code for machines" },
                    "retryable": { "type": "boolean", "description": "Whether trying again may help" },
                    "result": { "type": "object", "description": "What there is to show all the same, as content blocks" },
                    "protocol_error": {
                        "type": "object",
                        "properties": { "code": { "type": "integer" }, "message": { "type": "string" }, "data": {} },
                        "required": ["code", "message"],
                    },
                    "used": used(),
                }),
                &["task_id", "reason"],
            )
        },
        run: Run::Worker(Tool::Fail),
    },
];
