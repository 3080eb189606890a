//! Tools to hand a responsibility on: a handoff session with one offer, which carries the session's name.

use handover_desk::WaitKind;
use handover_desk::delegate::Responsibility;
use handover_desk::errands::not_moved;
use handover_desk::payload;
use handover_kernel::command::OfferContext;
use handover_kernel::handoff::{Offer, OfferAnswer, TASK_SCOPE_PREFIX};
use handover_kernel::session::Lifecycle;
use handover_kernel::{AgentId, Session, Text};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Builtin, Done, Run, Trouble, object, read_arguments};
use crate::face::approval;
use crate::face::mcp::Mcp;
use crate::face::mcp::call::PROFILE;
use crate::face::mcp::caller::Caller;
use crate::face::mcp::content::structured;

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::face::mcp) enum Tool {
    Offer,
    List,
    Status,
    Accept,
    Decline,
    Commit,
}

/// How many offers a list shows.
const LIST_MAX: usize = 100;

fn handoff_id() -> Value {
    json!({ "type": "string", "description": "The handoff's id" })
}

fn with_reason() -> Value {
    object(
        json!({ "handoff_id": handoff_id(), "reason": { "type": "string", "description": "Why" } }),
        &["handoff_id"],
    )
}

/// The tools.
pub(super) const TOOLS: &[Builtin] = &[
    Builtin {
        name: "handoff_offer",
        title: "Offer a responsibility",
        description: "Offer another agent to take a responsibility over from you. With task_id it is a task that you work on: if the \
            other agent accepts and you commit, it goes on with it. Otherwise say in `scope` what it covers. Answers with a handoff_id.",
        arguments: || {
            object(
                json!({
                    "to": { "type": "string", "description": "The id of the agent that shall take it" },
                    "task_id": { "type": "string", "description": "A task that you work on" },
                    "scope": { "type": "string", "description": "What it covers, unless it is a task" },
                    "reason": { "type": "string", "description": "Why" },
                    "context": { "description": "What the other agent should know: any JSON" },
                }),
                &["to"],
            )
        },
        run: Run::Handoffs(Tool::Offer),
    },
    Builtin {
        name: "handoff_list",
        title: "List handoffs",
        description: "List handoffs that wait: offers to you that you can accept or decline, and your own.",
        arguments: || {
            object(
                json!({ "cursor": { "type": "string", "description": "next_cursor of the last list" } }),
                &[],
            )
        },
        run: Run::Handoffs(Tool::List),
    },
    Builtin {
        name: "handoff_status",
        title: "Look at a handoff",
        description: "Say where a handoff is: offered, accepted, declined, or settled.",
        arguments: || object(json!({ "handoff_id": handoff_id() }), &["handoff_id"]),
        run: Run::Handoffs(Tool::Status),
    },
    Builtin {
        name: "handoff_accept",
        title: "Accept a handoff",
        description: "Accept a responsibility that was offered to you. It is yours once the one that offered it commits.",
        arguments: with_reason,
        run: Run::Handoffs(Tool::Accept),
    },
    Builtin {
        name: "handoff_decline",
        title: "Decline a handoff",
        description: "Turn down a responsibility that was offered to you.",
        arguments: with_reason,
        run: Run::Handoffs(Tool::Decline),
    },
    Builtin {
        name: "handoff_commit",
        title: "Settle a handoff",
        description: "Settle a handoff that you offered and that was answered: an accepted one becomes effective, a declined one is closed.",
        arguments: with_reason,
        run: Run::Handoffs(Tool::Commit),
    },
];

impl Mcp {
    pub(super) async fn run_handoffs(&self, caller: &Caller, tool: Tool, given: Map<String, Value>) -> Done {
        match tool {
            Tool::Offer => self.handoff_offer(caller, read_arguments(given)?).await,
            Tool::List => self.handoff_list(caller, read_arguments(given)?).await,
            Tool::Status => {
                let Answered { handoff_id, .. } = read_arguments(given)?;
                Ok(structured(shown(caller, &*self.desk().handoff(&caller.who, &handoff_id).await?)))
            }
            Tool::Accept => self.answer_handoff(caller, read_arguments(given)?, true).await,
            Tool::Decline => self.answer_handoff(caller, read_arguments(given)?, false).await,
            Tool::Commit => self.handoff_commit(caller, read_arguments(given)?).await,
        }
    }

    async fn answer_handoff(&self, caller: &Caller, asked: Answered, accept: bool) -> Done {
        let Answered { handoff_id, reason } = asked;
        let answered = self.desk().answer_offer(&caller.who, &handoff_id, accept, text(reason), None).await?;
        Ok(structured(shown(caller, &answered.session)))
    }

    async fn handoff_offer(&self, caller: &Caller, asked: OfferOne) -> Done {
        let scope = match (asked.task_id, asked.scope) {
            (Some(task), None) => format!("{TASK_SCOPE_PREFIX}{task}"),
            (None, Some(scope)) => scope,
            (Some(_), Some(_)) | (None, None) => {
                return Err(Trouble::Told("expected either task_id or scope".to_owned()));
            }
        };
        let context = asked.context.map(|context| OfferContext {
            content_type: Text::from(if context.is_string() { "text/plain" } else { "application/json" }),
            body: payload::of_json(&context),
        });
        let offered = Responsibility {
            to: AgentId::from(asked.to),
            scope: Text::from(scope),
            reason: text(asked.reason),
            context,
            ttl_ms: self.parts.settings.ttl_ms,
        };
        let key = caller.idempotency_key.as_deref();
        let begun = self.desk().offer(&caller.who, key, PROFILE.configuration, offered).await?;
        Ok(structured(shown(caller, &begun.session)))
    }

    async fn handoff_list(&self, caller: &Caller, asked: List) -> Done {
        let kinds = [WaitKind::HandoffOffer, WaitKind::Offered, WaitKind::Review];
        let page = self.desk().inbox(&caller.who, &kinds, asked.cursor.as_deref(), LIST_MAX).await?;
        let handoffs = page.sessions.iter().filter(|session| session.handoff().is_some());
        let handoffs: Vec<Value> = handoffs.map(|session| shown(caller, session)).collect();
        Ok(structured(json!({ "handoffs": handoffs, "next_cursor": page.next })))
    }

    async fn handoff_commit(&self, caller: &Caller, asked: Answered) -> Done {
        let session = self.desk().handoff(&caller.who, &asked.handoff_id).await?;
        let accepted = session.handoff().is_some_and(|handoff| handoff.accepted().is_some());
        let reason = asked.reason.map_or_else(|| Text::from("as it was answered"), Text::from);
        let committed = self.desk().commit(&caller.who, &session, accepted, reason, None).await?;
        Ok(structured(shown(caller, &committed.session)))
    }
}

fn text(reason: Option<String>) -> Text {
    reason.map_or_else(Text::default, Text::from)
}

fn shown(caller: &Caller, session: &Session) -> Value {
    let last: Option<&Offer> = session.handoff().and_then(|handoff| handoff.offers.last());
    let answer = last.map(|offer| match offer.answer {
        OfferAnswer::Open => "offered",
        OfferAnswer::Accepted { .. } => "accepted",
        OfferAnswer::Declined => "declined",
    });
    let settled = matches!(session.lifecycle, Lifecycle::Resolved { .. });
    let status = match &session.lifecycle {
        Lifecycle::Resolved { .. } => "settled",
        Lifecycle::Expired { .. } | Lifecycle::Cancelled { .. } => "ended",
        Lifecycle::Open | Lifecycle::Suspended { .. } => answer.unwrap_or("proposed"),
    };
    let moves = session.handoff().is_some_and(|handoff| handoff.moved.is_some());
    let why_not = not_moved(session);
    json!({
        "moved": (moves || why_not.is_some()).then_some(why_not.is_none()),
        "not_moved_because": why_not,
        "approval": approval::shown_to(&caller.who, session).map(approval::Shown::for_tools),
        "handoff_id": session.binding.id.as_str(),
        "status": status,
        "from": session.binding.requester.as_str(),
        "to": last.map(|offer| offer.target.as_str()),
        "scope": last.map(|offer| &*offer.scope),
        "answer": answer,
        "settled": settled,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfferOne {
    to: String,
    task_id: Option<String>,
    scope: Option<String>,
    reason: Option<String>,
    context: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    handoff_id: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    cursor: Option<String>,
}
