//! The requester's tools, described for a model that has never seen them.

use handover_desk::state::State;
use handover_kernel::budget::{DEPTH_MAX, TASKS_MAX};
use serde_json::{Value, json};

use super::{HISTORY_MAX, LIST_MAX, Tool};
use crate::face::mcp::tools::{Builtin, Run, WAIT_MAX_MS, object};

fn task_id(what: &str) -> Value {
    json!({ "type": "string", "description": what })
}

fn only_task() -> Value {
    object(json!({ "task_id": task_id("The task's id") }), &["task_id"])
}

fn budget() -> Value {
    json!({
        "type": "object",
        "description": "How much the task and everything delegated under it may use together; what is not given is not bounded",
        "properties": {
            "tasks": { "type": "integer", "minimum": 0, "maximum": TASKS_MAX, "description": "How many tasks may be started under it, at all levels" },
            "depth": { "type": "integer", "minimum": 0, "maximum": DEPTH_MAX, "description": "How many levels of tasks may be under it" },
            "time_ms": { "type": "integer", "minimum": 1, "description": "After how many milliseconds all of it ends" },
            "numbers": {
                "type": "object",
                "additionalProperties": { "type": "number", "minimum": 0 },
                "description": "How much may be used of what the agents report: {\"tokens\": 200000, \"cost_usd\": 1.5}",
            },
        },
        "additionalProperties": false,
    })
}

/// The tools.
pub(in crate::face::mcp::tools) const TOOLS: &[Builtin] = &[
    Builtin {
        name: "delegate_task",
        title: "Delegate a task",
        description: "Hand a task to another agent. Give clear instructions and everything that is needed to do it. Name \
            the agent that shall do it in `agent`, or list several in `agents`: then whoever accepts first does it; \
            without both every agent in the directory may accept. Answers at once with a task_id: use task_wait for the result.",
        arguments: || {
            object(
                json!({
                    "title": { "type": "string", "description": "The task in a few words" },
                    "instructions": { "type": "string", "description": "What to do, in full" },
                    "input": { "description": "What to do it with: any JSON" },
                    "agent": { "type": "string", "description": "The id of the agent that shall do it (agent_list says who is there)" },
                    "agents": { "type": "array", "items": { "type": "string" }, "description": "Ids of agents of which the first that accepts does it" },
                    "queue": { "type": "boolean", "description": "Let the task wait for an agent that nobody has heard of yet" },
                    "ttl_ms": { "type": "integer", "minimum": 1, "description": "How long it may take, in milliseconds" },
                    "parent_task_id": task_id("The task that this one is part of: it ends with its parent"),
                    "silent_after_ms": { "type": "integer", "minimum": 1, "description": "After how long without a sign of life the agent that works on it counts as silent" },
                    "when_silent": { "enum": ["nothing", "tell", "free", "fail"], "description": "What follows then: you are told (the default), the task is freed for others, or it fails" },
                    "budget": budget(),
                }),
                &["title", "instructions"],
            )
        },
        run: Run::Requester(Tool::Delegate),
    },
    Builtin {
        name: "task_status",
        title: "Look at a task",
        description: "Say where a task is: its status, progress, open questions with their keys, and once there is a result, the result and \
            its outcome_key: do what follows from an outcome once per key.",
        arguments: only_task,
        run: Run::Requester(Tool::Status),
    },
    Builtin {
        name: "task_wait",
        title: "Wait for a task",
        description: "Wait until a task has ended, asks you something, stops or goes on, or until the time is up; then say where it is, \
            like task_status. Follow `next_step` in the answer: if it says so, call this again.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id("The task's id"),
                    "wait_ms": { "type": "integer", "minimum": 0, "maximum": WAIT_MAX_MS, "description": "How long to wait at most, in milliseconds: less than your client waits for a tool (a few seconds unless given)" },
                }),
                &["task_id"],
            )
        },
        run: Run::Requester(Tool::Wait),
    },
    Builtin {
        name: "task_list",
        title: "List tasks",
        description: "List tasks that you have a part in, the newest first, with their status. `cursor` goes on where the last list ended.",
        arguments: || {
            object(
                json!({
                    "cursor": { "type": "string", "description": "next_cursor of the last list" },
                    "max": { "type": "integer", "minimum": 1, "maximum": LIST_MAX },
                    "unread": { "type": "boolean", "description": "Only tasks with messages that you have not read, the oldest first" },
                    "details": { "type": "boolean", "description": "Show of each task all that task_status shows, without its result" },
                    "states": { "type": "array", "items": { "enum": State::ALL.map(State::name) }, "description": "Only tasks in these states, with details; a page may have fewer than there are" },
                }),
                &[],
            )
        },
        run: Run::Requester(Tool::List),
    },
    Builtin {
        name: "task_timeline",
        title: "Read a task's timeline",
        description: "Everything that happened in a task, in order: requests, progress, questions, steers and whether they were delivered, the end. \
            A long one comes in pages: where there is more, `next.after` is the `after` of the next page.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id("The task's id"),
                    "after": { "type": "integer", "minimum": 0, "description": "Begin after the event with this seq" },
                    "max": { "type": "integer", "minimum": 1, "maximum": HISTORY_MAX, "description": "At most so many events" },
                    "wait_ms": { "type": "integer", "minimum": 0, "maximum": WAIT_MAX_MS, "description": "How long to wait for an event after `after` if there is none yet, in milliseconds" },
                    "states": { "type": "boolean", "description": "Say of each event in which state it left the task" },
                }),
                &["task_id"],
            )
        },
        run: Run::Requester(Tool::Timeline),
    },
    Builtin {
        name: "task_steer",
        title: "Steer a task",
        description: "Give the agent that works on your task new guidance. It hears it at its next safe point, in the order in which \
            you sent it. It does not answer questions: use task_answer for that.",
        arguments: || {
            object(
                json!({ "task_id": task_id("The task's id"), "message": { "type": "string", "description": "The guidance" } }),
                &["task_id", "message"],
            )
        },
        run: Run::Requester(Tool::Steer),
    },
    Builtin {
        name: "task_message",
        title: "Send a message in a task",
        description: "Say something in the conversation of a task that you have a part in. The assignee of your task hears it at its next safe point.",
        arguments: || {
            object(
                json!({ "task_id": task_id("The task's id"), "message": { "type": "string", "description": "What to say" } }),
                &["task_id", "message"],
            )
        },
        run: Run::Requester(Tool::Message),
    },
    Builtin {
        name: "task_answer",
        title: "Answer a task's questions",
        description: "Answer questions of the agent that works on your task. `answers` maps each key (task_status shows keys, questions and \
            schemas) to {\"action\": \"accept\", \"content\": {...}}, {\"action\": \"decline\"} or {\"action\": \"cancel\"}. Content must \
            match the question's schema. You may answer some now and some later.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id("The task's id"),
                    "answers": { "type": "object", "description": "By key: action and content", "additionalProperties": { "type": "object" } },
                }),
                &["task_id", "answers"],
            )
        },
        run: Run::Requester(Tool::Answer),
    },
    Builtin {
        name: "task_pause",
        title: "Pause a task",
        description: "Pause your task. It takes effect when the agent that works on it reaches a safe point; task_status says when it has.",
        arguments: only_task,
        run: Run::Requester(Tool::Pause),
    },
    Builtin {
        name: "task_resume",
        title: "Resume a task",
        description: "Let a paused task of yours go on.",
        arguments: only_task,
        run: Run::Requester(Tool::Resume),
    },
    Builtin {
        name: "task_cancel",
        title: "Cancel a task",
        description: "Take a task of yours back. Cancelling one that has ended changes nothing.",
        arguments: || {
            object(
                json!({ "task_id": task_id("The task's id"), "reason": { "type": "string", "description": "Why" } }),
                &["task_id"],
            )
        },
        run: Run::Requester(Tool::Cancel),
    },
    Builtin {
        name: "task_commit",
        title: "Decide about a task's result",
        description: "Decide whether a task has succeeded, after its agent has reported: only where `next_step` says so. Most tasks end by themselves.",
        arguments: || {
            object(
                json!({
                    "task_id": task_id("The task's id"),
                    "success": { "type": "boolean", "description": "Whether you take it as done" },
                    "reason": { "type": "string", "description": "Why" },
                }),
                &["task_id", "success"],
            )
        },
        run: Run::Requester(Tool::Commit),
    },
];
