//! Approvals as the faces that speak JSON take and show them.

use handover_client::jsonrpc::shorten;
use handover_desk::approvals::{Approval, sees_approval};
use handover_desk::calendar::rfc3339;
use handover_desk::caller::Caller;
use handover_desk::{payload, timeline};
use handover_kernel::approval::{Changes, Ruling};
use handover_kernel::{Fact, Session, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is to be changed about a proposal; what is not said stays.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Changed {
    /// The title of a task.
    pub title: Option<String>,
    /// The instructions of a task.
    pub instructions: Option<String>,
    /// What a task is to be done with: any JSON.
    pub input: Option<Value>,
    /// The reason of an offer or a commitment.
    pub reason: Option<String>,
}

/// Where the approval of something is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The number of the proposal.
    pub proposal: u64,
    /// What is proposed: `request`, `offer` or `commitment`.
    pub what: &'static str,
    /// Where it is: `waiting`, `approved`, `approved_with_changes`, `changes_asked` or `rejected`.
    pub state: &'static str,
    /// The agents whom it would reach.
    pub to: Vec<String>,
    /// The skill that is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// Who can decide about it.
    pub waits_for: Vec<String>,
    /// Since when.
    pub since: String,
    /// Who decided about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// What that agent said with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The proposal itself.
    pub proposed: Value,
}

impl Changed {
    /// In the kernel's words.
    pub fn read(self) -> Changes {
        Changes {
            title: self.title.map(Text::from),
            instructions: self.instructions.map(Text::from),
            input: self.input.as_ref().map(payload::of_json),
            reason: self.reason.map(Text::from),
        }
    }
}

impl Shown {
    /// The same in the spelling of tools.
    pub fn for_tools(self) -> Value {
        json!({
            "proposal": self.proposal,
            "what": self.what,
            "state": self.state,
            "to": self.to,
            "skill": self.skill,
            "waits_for": self.waits_for,
            "since": self.since,
            "decided_by": self.decided_by,
            "words": self.words,
            "proposed": self.proposed,
        })
    }
}

/// What was decided.
pub fn ruling(decision: &str, reason: Option<String>, changes: Option<Changed>) -> Result<Ruling, String> {
    let words = || reason.clone().map_or_else(Text::default, Text::from);
    match (decision, changes) {
        ("approve", changes) => Ok(Ruling::Approved(changes.unwrap_or_default().read())),
        ("ask_changes", None) => Ok(Ruling::ChangesAsked(words())),
        ("reject", None) => Ok(Ruling::Rejected(words())),
        ("ask_changes" | "reject", Some(_)) => {
            Err(format!("expected changes only with the decision approve, found them with {decision}"))
        }
        (other, _) => {
            Err(format!("expected the decision approve, ask_changes or reject, found {}", shorten(other)))
        }
    }
}

/// The same, for those who may see it: to the others only what took effect is shown.
pub fn shown_to(caller: &Caller, session: &Session) -> Option<Shown> {
    sees_approval(caller, session).then(|| shown(session)).flatten()
}

/// Where the approval of a session is, if something was proposed in it that has not taken effect.
pub fn shown(session: &Session) -> Option<Shown> {
    let found = Approval::of(session)?;
    let what = (*found.proposal.what).clone();
    let (_, mut detail) = timeline::describe(&Fact::Proposed { what: Box::new(what), held: true });
    Some(Shown {
        proposal: found.proposal.id.0,
        what: found.proposal.what.name(),
        state: found.state,
        to: found.to.iter().map(ToString::to_string).collect(),
        skill: found.skill.map(ToOwned::to_owned),
        waits_for: found.waits_for.iter().map(ToString::to_string).collect(),
        since: rfc3339(found.since),
        decided_by: found.decided_by.map(ToOwned::to_owned),
        words: found.words.map(ToOwned::to_owned),
        proposed: detail["proposed"].take(),
    })
}
