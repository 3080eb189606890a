//! Tools to hand a responsibility on: a handoff session with one offer, which carries the session's name.

use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, Command, HandoffAct, ModeKind, Start};
use handover_kernel::commitment::Commitment;
use handover_kernel::handoff::{Offer, OfferAnswer, TASK_SCOPE_PREFIX};
use handover_kernel::policy::DEFAULT_POLICY;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{AgentId, Blob, Face, HandoffId, Refusal, Session, Text};
use handover_store::{Filter, Order};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::requester::bytes_of;
use super::{Builtin, Done, Run, Trouble, object, read_arguments};
use crate::face::mcp::call::{CONFIGURATION, MODE_VERSION};
use crate::face::mcp::caller::Caller;
use crate::face::mcp::content::structured;
use crate::face::mcp::{Mcp, No};
use handover_engine::Denied;
use handover_engine::view;

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
        reads: false,
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
        reads: true,
        arguments: || object(json!({}), &[]),
        run: Run::Handoffs(Tool::List),
    },
    Builtin {
        name: "handoff_status",
        title: "Look at a handoff",
        description: "Say where a handoff is: offered, accepted, declined, or settled.",
        reads: true,
        arguments: || object(json!({ "handoff_id": handoff_id() }), &["handoff_id"]),
        run: Run::Handoffs(Tool::Status),
    },
    Builtin {
        name: "handoff_accept",
        title: "Accept a handoff",
        description: "Accept a responsibility that was offered to you. It is yours once the one that offered it commits.",
        reads: false,
        arguments: with_reason,
        run: Run::Handoffs(Tool::Accept),
    },
    Builtin {
        name: "handoff_decline",
        title: "Decline a handoff",
        description: "Turn down a responsibility that was offered to you.",
        reads: false,
        arguments: with_reason,
        run: Run::Handoffs(Tool::Decline),
    },
    Builtin {
        name: "handoff_commit",
        title: "Settle a handoff",
        description: "Settle a handoff that you offered and that was answered: an accepted one becomes effective, a declined one is closed.",
        reads: false,
        arguments: with_reason,
        run: Run::Handoffs(Tool::Commit),
    },
];

impl Mcp {
    pub(super) async fn run_handoffs(&self, caller: &Caller, tool: Tool, given: Map<String, Value>) -> Done {
        match tool {
            Tool::Offer => self.handoff_offer(caller, read_arguments(given)?).await,
            Tool::List => self.handoff_list(caller).await,
            Tool::Status => {
                let Answered { handoff_id, .. } = read_arguments(given)?;
                Ok(structured(shown(&*self.handoff(caller, &handoff_id).await?)))
            }
            Tool::Accept => {
                let Answered { handoff_id, reason } = read_arguments(given)?;
                let handoff = self.offer_of(caller, &handoff_id).await?;
                let act = HandoffAct::Accept { handoff, by: None, reason: text(reason), implicit: false };
                self.answer_handoff(caller, &handoff_id, act).await
            }
            Tool::Decline => {
                let Answered { handoff_id, reason } = read_arguments(given)?;
                let handoff = self.offer_of(caller, &handoff_id).await?;
                let act = HandoffAct::Decline { handoff, by: None, reason: text(reason) };
                self.answer_handoff(caller, &handoff_id, act).await
            }
            Tool::Commit => self.handoff_commit(caller, read_arguments(given)?).await,
        }
    }

    async fn handoff(&self, caller: &Caller, id: &str) -> Result<std::sync::Arc<Session>, No> {
        let session = self.parts.desk.gate.session(&caller.who, id).await?;
        if session.handoff().is_none() {
            return Err(No::Denied(Denied::Refused(Refusal::SessionNotFound)));
        }
        Ok(session)
    }

    /// The name of the last offer of a handoff.
    async fn offer_of(&self, caller: &Caller, id: &str) -> Result<HandoffId, Trouble> {
        let session = self.handoff(caller, id).await?;
        let last = session.handoff().and_then(|handoff| handoff.offers.last());
        last.map(|offer| offer.handoff.clone())
            .ok_or_else(|| Trouble::Told("nothing was offered in this handoff yet".to_owned()))
    }

    async fn answer_handoff(&self, caller: &Caller, id: &str, act: HandoffAct) -> Done {
        self.act(caller, id, Act::Handoff(act)).await?;
        Ok(structured(shown(&*self.handoff(caller, id).await?)))
    }

    async fn handoff_offer(&self, caller: &Caller, asked: OfferOne) -> Done {
        let scope = match (asked.task_id, asked.scope) {
            (Some(task), None) => format!("{TASK_SCOPE_PREFIX}{task}"),
            (None, Some(scope)) => scope,
            (Some(_), Some(_)) | (None, None) => {
                return Err(Trouble::Told("expected either task_id or scope".to_owned()));
            }
        };
        let id = handover_desk::id::unguessable();
        let target = AgentId::from(asked.to);
        let start = Start {
            mode: ModeKind::Handoff,
            participants: vec![caller.agent.clone(), target.clone()],
            charter: Charter::macp(),
            mode_version: Text::from(MODE_VERSION),
            configuration_version: Text::from(CONFIGURATION),
            policy_version: Text::from(DEFAULT_POLICY),
            ttl_ms: self.parts.settings.ttl_ms,
            sent_at: None,
            intent: Text::from(&*scope),
            context_id: Text::default(),
            extension_keys: Vec::new(),
            parent: None,
            contract: None,
        };
        self.put(caller, &id, Command::by(&caller.agent, Face::Mcp, Act::Start(Box::new(start)))).await?;
        let handoff = HandoffId::from(id.as_str());
        let offer = HandoffAct::Offer {
            handoff: handoff.clone(),
            target,
            scope: Text::from(scope),
            reason: text(asked.reason),
            context: None,
        };
        if let Err(no) = self.act(caller, &id, Act::Handoff(offer)).await {
            // What was started for an offer that is refused is good for nothing.
            _ = self.act(caller, &id, Act::Cancel { reason: Text::from("the offer was refused") }).await;
            return Err(no.into());
        }
        if let Some(context) = asked.context {
            let content_type = if context.is_string() { "text/plain" } else { "application/json" };
            let body = Blob::from(bytes_of(&context));
            let act = HandoffAct::Context { handoff, content_type: Text::from(content_type), body };
            self.act(caller, &id, Act::Handoff(act)).await?;
        }
        Ok(structured(shown(&*self.handoff(caller, &id).await?)))
    }

    async fn handoff_list(&self, caller: &Caller) -> Done {
        let mut handoffs = Vec::new();
        for standing in [Standing::Requested, Standing::ReportedComplete, Standing::ReportedFail] {
            let filter = Filter {
                tenant: Some(caller.tenant.clone()),
                agent: Some(caller.agent.as_str().into()),
                statuses: 1 << view::status_number(standing),
                kind: Some(view::kind_number(ModeKind::Handoff)),
                ..Filter::default()
            };
            let page = self.list(filter, Order::Oldest, None, LIST_MAX).await?;
            for listed in page.sessions {
                handoffs.push(shown(&*self.handoff(caller, &listed.key.session).await?));
            }
        }
        Ok(structured(json!({ "handoffs": handoffs })))
    }

    async fn handoff_commit(&self, caller: &Caller, asked: Answered) -> Done {
        let session = self.handoff(caller, &asked.handoff_id).await?;
        let accepted = session.handoff().is_some_and(|handoff| handoff.accepted().is_some());
        let versions = &session.binding.versions;
        let action = if accepted { "handoff.accepted" } else { "handoff.declined" };
        let commitment = Commitment {
            commitment: Text::from(handover_desk::id::unguessable()),
            action: Text::from(action),
            scope: Text::from("handoff"),
            reason: asked.reason.map_or_else(|| Text::from("as it was answered"), Text::from),
            mode_version: versions.mode.clone(),
            policy_version: versions.policy.clone(),
            configuration_version: versions.configuration.clone(),
            positive: accepted,
            supersedes: None,
        };
        self.act(caller, &asked.handoff_id, Act::Commit(Box::new(commitment))).await?;
        Ok(structured(shown(&*self.handoff(caller, &asked.handoff_id).await?)))
    }
}

fn text(reason: Option<String>) -> Text {
    reason.map_or_else(Text::default, Text::from)
}

fn shown(session: &Session) -> Value {
    let last: Option<&Offer> = session.handoff().and_then(|handoff| handoff.offers.last());
    let answer = last.map(|offer| match offer.answer {
        OfferAnswer::Open => "offered",
        OfferAnswer::Accepted { .. } => "accepted",
        OfferAnswer::Declined => "declined",
    });
    json!({
        "handoff_id": session.binding.id.as_str(),
        "from": session.binding.requester.as_str(),
        "to": last.map(|offer| offer.target.as_str()),
        "scope": last.map(|offer| &*offer.scope),
        "answer": answer,
        "settled": matches!(session.lifecycle, Lifecycle::Resolved { .. }),
        "standing": session.standing().name(),
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
