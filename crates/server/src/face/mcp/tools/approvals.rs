//! Tools to decide about what needs an approval, and to propose again what was not approved.

use handover_desk::WaitKind;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Builtin, Done, Run, Trouble, object, read_arguments};
use crate::face::approval::{self, Changed};
use crate::face::mcp::Mcp;
use crate::face::mcp::caller::Caller;
use crate::face::mcp::content::structured;
use handover_kernel::Session;

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::face::mcp) enum Tool {
    List,
    Decide,
    Propose,
}

/// How many proposals a list shows.
const LIST_MAX: usize = 100;

fn changes() -> Value {
    json!({
        "title": { "type": "string", "description": "Another title of the task" },
        "instructions": { "type": "string", "description": "Other instructions" },
        "input": { "description": "Another input: any JSON" },
        "reason": { "type": "string", "description": "Another reason, of an offer or of an outcome" },
    })
}

/// The tools.
pub(super) const TOOLS: &[Builtin] = &[
    Builtin {
        name: "approval_list",
        title: "List what waits for your approval",
        description: "List what other agents want to delegate, hand on or settle and may not without your approval, the oldest first. \
            Decide about each with approval_decide.",
        arguments: || {
            object(
                json!({ "cursor": { "type": "string", "description": "next_cursor of the last list" } }),
                &[],
            )
        },
        run: Run::Approvals(Tool::List),
    },
    Builtin {
        name: "approval_decide",
        title: "Approve, send back or reject",
        description: "Decide about a proposal of approval_list: approve it, as it is or with `changes`; ask_changes sends it back with a \
            reason, so that it can be proposed again; reject turns it down with a reason. It takes effect when it is approved.",
        arguments: || {
            object(
                json!({
                    "task_id": { "type": "string", "description": "The id of the task or handoff" },
                    "proposal": { "type": "integer", "minimum": 1, "description": "The number of the proposal" },
                    "decision": { "enum": ["approve", "ask_changes", "reject"] },
                    "reason": { "type": "string", "description": "What is to change, or why it is rejected" },
                    "changes": object(changes(), &[]),
                }),
                &["task_id", "proposal", "decision"],
            )
        },
        run: Run::Approvals(Tool::Decide),
    },
    Builtin {
        name: "task_propose",
        title: "Propose again",
        description: "Propose again, changed, what you wanted to delegate, hand on or settle and an approver has sent back. What you do not \
            name stays as it was. task_status says in `approval` what was asked for.",
        arguments: || {
            let mut fields = changes();
            fields["task_id"] = json!({ "type": "string", "description": "The id of the task or handoff" });
            object(fields, &["task_id"])
        },
        run: Run::Approvals(Tool::Propose),
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decide {
    task_id: String,
    proposal: u64,
    decision: String,
    reason: Option<String>,
    changes: Option<Changed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Propose {
    task_id: String,
    title: Option<String>,
    instructions: Option<String>,
    input: Option<Value>,
    reason: Option<String>,
}

impl Mcp {
    pub(super) async fn run_approvals(&self, caller: &Caller, tool: Tool, given: Map<String, Value>) -> Done {
        let key = caller.idempotency_key.as_deref();
        match tool {
            Tool::List => {
                let List { cursor } = read_arguments(given)?;
                let kinds = [WaitKind::Approval];
                let page = self.desk().inbox(&caller.who, &kinds, cursor.as_deref(), LIST_MAX).await?;
                let found: Vec<Value> = page.sessions.iter().map(|session| shown(session)).collect();
                Ok(structured(json!({ "proposals": found, "next_cursor": page.next })))
            }
            Tool::Decide => {
                let Decide { task_id, proposal, decision, reason, changes } = read_arguments(given)?;
                let ruling = approval::ruling(&decision, reason, changes).map_err(Trouble::Told)?;
                let name = ruling.name();
                let decided = self.desk().decide(&caller.who, &task_id, proposal, ruling, key).await?;
                let mut shown = shown(&decided.session);
                shown["decided"] = json!(name);
                Ok(structured(shown))
            }
            Tool::Propose => {
                let Propose { task_id, title, instructions, input, reason } = read_arguments(given)?;
                let changes = Changed { title, instructions, input, reason }.read();
                let proposed = self.desk().propose_again(&caller.who, &task_id, &changes, key).await?;
                Ok(structured(shown(&proposed.session)))
            }
        }
    }
}

/// A session that something was proposed in.
fn shown(session: &Session) -> Value {
    json!({
        "task_id": session.binding.id.as_str(),
        "kind": session.kind().name(),
        "requester": session.binding.requester.as_str(),
        "approval": approval::shown(session).map(approval::Shown::for_tools),
    })
}
