//! Budgets, and what is used of them, as the faces that speak JSON take and show them.

use std::collections::BTreeMap;

use handover_desk::calendar::rfc3339;
use handover_desk::payload::amount;
use handover_kernel::Session;
use handover_kernel::budget::{Amounts, Budget};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Number, Value};

/// Numbers by their names.
pub(crate) type Numbers = BTreeMap<String, Number>;

/// What was asked for.
pub(crate) fn budget(found: Option<&Map<String, Value>>) -> Result<Option<Budget>, String> {
    found.map(Budget::of_json).transpose().map_err(|refusal| refusal.to_string())
}

/// The amounts that some numbers say.
pub(crate) fn amounts(what: &str, found: Option<Numbers>) -> Result<Amounts, String> {
    let Some(found) = found else { return Ok(Amounts::default()) };
    let found = found.into_iter().map(|(name, number)| (name, Value::Number(number)));
    Amounts::of_json(what, &Value::Object(found.collect())).map_err(|refusal| refusal.to_string())
}

/// The same, as they are shown.
fn numbers(amounts: &Amounts) -> Numbers {
    amounts.iter().map(|(name, found)| (name.to_string(), amount(found))).collect()
}

/// What is said of a task whose budget, or one above, has nothing left.
pub(crate) const OVERSPENT: &str =
    "its budget is spent: nothing more can be started under it, and it should come to its end";

/// What is used of a budget.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Shown {
    /// How many tasks were started under it, at all levels.
    pub tasks: Count,
    /// How many levels of them there are.
    pub depth: Count,
    /// When its time is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What agents said that they used of what it bounds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, Count>,
    /// Whether more was used than it allows: then nothing more starts under it.
    pub overspent: bool,
}

/// How much of something is used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Count {
    /// So much.
    pub used: Number,
    /// Of so much; of any number unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Number>,
}

/// What is used of the task's own budget, if it has one.
pub(crate) fn shown(session: &Session) -> Option<Shown> {
    let (budget, ledger) = (session.binding.budget()?, &session.task()?.ledger);
    let spent = |name: &str| amount(ledger.spent.get(name).unwrap_or_default());
    let count = |(name, of): (&handover_kernel::Text, _)| {
        (name.to_string(), Count { used: spent(name), of: Some(amount(of)) })
    };
    Some(Shown {
        tasks: Count { used: ledger.reserved.len().into(), of: budget.tasks.map(Number::from) },
        depth: Count { used: ledger.depth.into(), of: budget.depth.map(Number::from) },
        until: budget.time_ms.and_then(|_| session.binding.until()).map(rfc3339),
        numbers: budget.numbers.iter().map(count).collect(),
        overspent: ledger.overspent(budget).is_some(),
    })
}

/// What those who worked on the task said that they used for it.
pub(crate) fn used(session: &Session) -> Option<Numbers> {
    let used = &session.task()?.ledger.used;
    (!used.is_empty()).then(|| numbers(used))
}
