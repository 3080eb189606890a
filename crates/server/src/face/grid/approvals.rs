//! Deciding about what needs an approval, and proposing it again.

use handover_desk::WaitKind;
use handover_kernel::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Refused;
use super::calls::Call;
use super::methods::One;
use crate::face::approval::{self, Changed};
use handover_client::jsonrpc::Error;

/// How many proposals a page has.
const LIST_MAX: usize = 100;

/// Which page of what waits for your approval.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListApprovals {
    /// `nextCursor` of the last page.
    cursor: Option<String>,
    /// At most so many.
    max: Option<usize>,
}

/// A page of what waits for your approval.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingApprovals {
    /// The proposals, the oldest first.
    approvals: Vec<Proposal>,
    /// Where the next page begins, if there may be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A task or handoff in which something was proposed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// Its id.
    task_id: String,
    /// `task` or `handoff`.
    kind: &'static str,
    /// Who began it.
    from_node_id: String,
    /// Where the approval is; none once it has taken effect.
    approval: Option<approval::Shown>,
}

/// A decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Decide {
    /// About what was proposed in which task or handoff.
    task_id: String,
    /// The number of the proposal.
    proposal: u64,
    /// `approve`, `ask_changes` or `reject`.
    decision: String,
    /// What is to change, or why it is rejected.
    reason: Option<String>,
    /// What is approved differently than it was proposed.
    changes: Option<Changed>,
    /// Your name for the decision: sent again with it, it has no second effect.
    message_id: Option<String>,
}

/// What is proposed again, changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Propose {
    /// In which task.
    task_id: String,
    /// Another title.
    title: Option<String>,
    /// Other instructions.
    instructions: Option<String>,
    /// Another input: any JSON.
    input: Option<Value>,
    /// Another reason, of a commitment.
    reason: Option<String>,
    /// Your name for the proposal: sent again with it, it has no second effect.
    message_id: Option<String>,
}

impl Call<'_> {
    /// `approval/list`.
    pub async fn approvals(&self, asked: ListApprovals) -> Result<WaitingApprovals, Refused> {
        let max = asked.max.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
        let kinds = [WaitKind::Approval];
        let page = self.desk.inbox(self.caller, &kinds, asked.cursor.as_deref(), max).await?;
        let approvals = page.sessions.iter().map(|session| proposal(session)).collect();
        Ok(WaitingApprovals { approvals, next_cursor: page.next })
    }

    /// `approval/decide`.
    pub async fn decide(&self, asked: Decide) -> Result<Proposal, Refused> {
        let ruling = approval::ruling(&asked.decision, asked.reason, asked.changes);
        let ruling = ruling.map_err(Error::invalid)?;
        let key = asked.message_id.as_deref();
        let decided = self.desk.decide(self.caller, &asked.task_id, asked.proposal, ruling, key).await?;
        Ok(proposal(&decided.session))
    }

    /// `task/propose`.
    pub async fn propose(&self, asked: Propose) -> Result<One, Refused> {
        let Propose { task_id, title, instructions, input, reason, message_id } = asked;
        let changes = Changed { title, instructions, input, reason }.read();
        let key = message_id.as_deref();
        self.one(&self.desk.propose_again(self.caller, &task_id, &changes, key).await?)
    }
}

fn proposal(session: &Session) -> Proposal {
    Proposal {
        task_id: session.binding.id.to_string(),
        kind: session.kind().name(),
        from_node_id: session.binding.requester.to_string(),
        approval: approval::shown(session),
    }
}
