//! MACP policy descriptors (RFC-MACP-0012), compiled into charters when a session starts and never looked up again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::charter::{Authority, Charter, Liveness, OnSilence};
use crate::command::ModeKind;
use crate::id::{AgentId, Millis, Text};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// The policy that every session has unless it names another: it can be neither registered nor removed.
pub const DEFAULT_POLICY: &str = "policy.default";

/// The versions of the rule schema that are known. They differ in how votes are counted, which no task or handoff does.
pub const SCHEMA_VERSIONS: std::ops::RangeInclusive<u32> = 1..=3;

/// Who a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Sessions of one mode.
    Mode(ModeKind),
    /// Every session.
    Any,
}

/// A policy as it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The name that sessions give to be bound to it.
    pub id: Text,
    /// Who it is for.
    pub scope: Scope,
    /// The version of the rule schema.
    pub schema_version: u32,
    /// The rules, a JSON object; empty means none.
    pub rules: Text,
}

/// The rule groups and who knows them.
// The groups of signs of life and of budgets are our own.
const TASK_GROUPS: [&str; 5] = ["assignment", "completion", "commitment", "liveness", "budget"];
const HANDOFF_GROUPS: [&str; 2] = ["acceptance", "commitment"];

impl Descriptor {
    /// Whether it can be registered: every rule is known and says something that can be kept.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.id.trim().is_empty() {
            return Err(invalid("expected a policy id, found nothing"));
        }
        match self.scope {
            Scope::Mode(mode) => self.compile(mode).map(|_| ()),
            Scope::Any => {
                self.compile(ModeKind::Task)?;
                self.compile(ModeKind::Handoff).map(|_| ())
            }
        }
    }

    /// The charter of a session of this mode under this policy. A policy that is only tried out needs no name
    /// (RFC-MACP-0012 §8.1).
    pub fn compile(&self, mode: ModeKind) -> Result<Charter, Refusal> {
        if let Scope::Mode(other) = self.scope
            && other != mode
        {
            return Err(invalid(format!(
                "expected a policy for {} sessions, found one for {} sessions",
                mode.name(),
                other.name()
            )));
        }
        if !SCHEMA_VERSIONS.contains(&self.schema_version) {
            return Err(invalid(format!("expected schema version 1, 2 or 3, found {}", self.schema_version)));
        }
        let rules = self.parse()?;
        let known: BTreeSet<&str> = match self.scope {
            Scope::Mode(ModeKind::Task) => TASK_GROUPS.into(),
            Scope::Mode(ModeKind::Handoff) => HANDOFF_GROUPS.into(),
            Scope::Any => TASK_GROUPS.into_iter().chain(HANDOFF_GROUPS).collect(),
        };
        only_known("the rules", &rules, &known)?;
        let mut charter = Charter::macp();
        charter.authority = authority(&rules)?;
        charter.reassignment = flag(&rules, "assignment", "allow_reassignment_on_reject")?;
        charter.require_output = flag(&rules, "completion", "require_output")?;
        charter.implicit_accept_ms = implicit_accept(&rules)?;
        charter.liveness = liveness(&rules)?.map(Box::new);
        charter.budget = budget(&rules)?;
        match mode {
            ModeKind::Task => charter.implicit_accept_ms = None,
            ModeKind::Handoff => {
                charter.liveness = None;
                charter.budget = None;
                charter.reassignment = false;
                charter.require_output = false;
            }
        }
        Ok(charter)
    }

    fn parse(&self) -> Result<Map<String, Value>, Refusal> {
        if self.rules.trim().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_str(&self.rules) {
            Ok(Value::Object(rules)) => Ok(rules),
            Ok(other) => Err(invalid(format!("expected the rules as a JSON object, found {}", kind(&other)))),
            Err(error) => Err(invalid(format!("expected the rules as JSON, found an error: {error}"))),
        }
    }
}

fn invalid(what: impl Into<Text>) -> Refusal {
    Refusal::PolicyInvalid { what: what.into() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// RFC-MACP-0012 §4: annotations say nothing that binds.
fn is_annotation(key: &str) -> bool {
    key.starts_with(['_', '$'])
}

fn without_annotations(found: &Map<String, Value>) -> Map<String, Value> {
    let said = found.iter().filter(|(key, _)| !is_annotation(key));
    said.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn only_known(place: &str, found: &Map<String, Value>, known: &BTreeSet<&str>) -> Result<(), Refusal> {
    match found.keys().find(|key| !known.contains(key.as_str()) && !is_annotation(key)) {
        Some(unknown) => {
            let names: Vec<&str> = known.iter().copied().collect();
            Err(invalid(format!("expected only {} in {place}, found {unknown:?}", names.join(", "))))
        }
        None => Ok(()),
    }
}

fn group<'a>(
    rules: &'a Map<String, Value>,
    name: &str,
    known: &[&str],
) -> Result<Option<&'a Map<String, Value>>, Refusal> {
    match rules.get(name) {
        None => Ok(None),
        Some(Value::Object(found)) => {
            only_known(name, found, &known.iter().copied().collect())?;
            Ok(Some(found))
        }
        Some(other) => Err(invalid(format!("expected {name} to be an object, found {}", kind(other)))),
    }
}

fn flag(rules: &Map<String, Value>, name: &str, key: &str) -> Result<bool, Refusal> {
    match group(rules, name, &[key])?.and_then(|found| found.get(key)) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => {
            Err(invalid(format!("expected {name}.{key} to be true or false, found {}", kind(other))))
        }
    }
}

fn implicit_accept(rules: &Map<String, Value>) -> Result<Option<Millis>, Refusal> {
    let key = "implicit_accept_timeout_ms";
    match group(rules, "acceptance", &[key])?.and_then(|found| found.get(key)) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(0) => Ok(None),
            Some(span) => Ok(Some(span)),
            None => Err(invalid(format!(
                "expected acceptance.{key} to be a whole number of 0 or more, found {value}"
            ))),
        },
    }
}

fn liveness(rules: &Map<String, Value>) -> Result<Option<Liveness>, Refusal> {
    let Some(found) = group(rules, "liveness", &["window_ms", "on_silence"])? else { return Ok(None) };
    let window_ms = match found.get("window_ms").map(|value| (value.as_u64(), value)) {
        Some((Some(window), _)) if window > 0 => window,
        Some((_, value)) => {
            return Err(invalid(format!(
                "expected liveness.window_ms to be a whole number of 1 or more, found {value}"
            )));
        }
        None => return Err(invalid("expected liveness.window_ms, found nothing")),
    };
    let then = match found.get("on_silence") {
        None => OnSilence::Tell,
        Some(value) => value.as_str().and_then(OnSilence::of).ok_or_else(|| {
            invalid(format!("expected liveness.on_silence to be {}, found {value}", OnSilence::NAMES))
        })?,
    };
    Ok(Some(Liveness { window_ms, then }))
}

fn budget(rules: &Map<String, Value>) -> Result<Option<Arc<Budget>>, Refusal> {
    let Some(found) = group(rules, "budget", &["tasks", "depth", "time_ms", "numbers"])? else {
        return Ok(None);
    };
    let mut said = without_annotations(found);
    if let Some(Value::Object(numbers)) = said.get_mut("numbers") {
        *numbers = without_annotations(numbers);
    }
    let checked = Budget::of_json(&said).and_then(|budget| {
        budget.check(&Limits { ttl_ms_max: Millis::MAX, ..Limits::default() })?;
        Ok(budget)
    });
    checked.map(|budget| Some(Arc::new(budget))).map_err(|wrong| invalid(wrong.to_string()))
}

fn authority(rules: &Map<String, Value>) -> Result<Authority, Refusal> {
    let known = ["authority", "designated_roles", "require_vote_quorum"];
    let Some(found) = group(rules, "commitment", &known)? else {
        return Ok(Authority::Requester);
    };
    // Public SDKs write it into every policy. It is about votes, which neither a task nor a handoff counts.
    if let Some(other) = found.get("require_vote_quorum").filter(|value| !value.is_boolean()) {
        return Err(invalid(format!(
            "expected commitment.require_vote_quorum to be true or false, found {}",
            kind(other)
        )));
    }
    let roles = roles(found)?;
    match found.get("authority") {
        None => Ok(Authority::Requester),
        Some(Value::String(word)) => match word.as_str() {
            "initiator_only" => Ok(Authority::Requester),
            "any_participant" => Ok(Authority::AnyParticipant),
            "designated_role" if roles.is_empty() => {
                Err(invalid("expected commitment.designated_roles to name somebody, found nobody"))
            }
            "designated_role" => Ok(Authority::Designated(roles)),
            other => Err(invalid(format!(
                "expected commitment.authority to be initiator_only, any_participant or designated_role, found {other:?}"
            ))),
        },
        Some(other) => {
            Err(invalid(format!("expected commitment.authority to be a string, found {}", kind(other))))
        }
    }
}

fn roles(found: &Map<String, Value>) -> Result<BTreeSet<AgentId>, Refusal> {
    let wrong = |value: &Value| {
        invalid(format!("expected commitment.designated_roles to be an array of strings, found {value}"))
    };
    match found.get("designated_roles") {
        None => Ok(BTreeSet::new()),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().map(AgentId::from).ok_or_else(|| wrong(name))).collect()
        }
        Some(other) => Err(wrong(other)),
    }
}
