//! Bounds that a task shares with everything that is delegated under it, and what of them is used.
//!
//! A budget is bound to a task when it starts. That task is its *root*: it counts in its own log. A subtask, however deep,
//! is reserved there before it starts, under the id that it will have, so that it is counted once however often its start
//! is tried. How deep and how long are known from the start on and are bound to each subtask. What agents say that they
//! have used travels to the root as an errand, and is added up there.
//!
//! A task under a budget may have one of its own: what is under it is then reserved at its root, at the next one above,
//! and so on.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{Millis, SessionId, Text, Timestamp};
use crate::limits::Limits;
use crate::rare::Nothing;
use crate::refusal::Refusal;
use crate::session::{Binding, Session};

/// How many tasks may ever be under one root, also if its budget names no number.
pub const TASKS_MAX: u32 = 10_000;

/// How deep a budget may let tasks be.
pub const DEPTH_MAX: u32 = 32;

/// How many budgets may be one within another.
pub const NESTED_MAX: u32 = 8;

/// How many kinds of things a budget bounds, and a task reports.
pub const NUMBERS_MAX: usize = 8;

/// How many bytes the name of one has.
pub const NAME_BYTES_MAX: usize = 64;

/// How much may be used: of tasks, of levels, of time, and of what agents report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How many tasks may be started under the root, at all levels together.
    pub tasks: Option<u32>,
    /// How many levels of tasks may be under it.
    pub depth: Option<u32>,
    /// How long after its start the root and everything under it ends.
    pub time_ms: Option<Millis>,
    /// How much may be used of what agents report, such as tokens or money.
    pub numbers: Amounts,
}

/// How much of something, in millionths: whole numbers, so that sums are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Amount(pub u64);

impl Amount {
    const UNIT: u64 = 1_000_000;

    /// The most that can be bounded or reported at once.
    pub const MAX: Amount = Amount(1_000_000_000_000 * Amount::UNIT);

    /// The amount that a decimal number such as `0.25` says, if it says one without a sign, an exponent or more than six
    /// digits after the point.
    pub fn of(text: &str) -> Option<Amount> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 {
            return None;
        }
        let part: u64 = format!("{part:0<6}").parse().ok()?;
        let whole: u64 = whole.parse().ok()?;
        let amount = Amount(whole.checked_mul(Amount::UNIT)?.checked_add(part)?);
        (amount <= Amount::MAX).then_some(amount)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / Amount::UNIT, self.0 % Amount::UNIT);
        match part {
            0 => write!(f, "{whole}"),
            part => f.write_str(format!("{whole}.{part:06}").trim_end_matches('0')),
        }
    }
}

/// Some amounts by their names, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts(Vec<(Text, Amount)>);

impl Amounts {
    /// These. Refused if they are too many, or if a name is too long or given twice.
    pub fn new(amounts: impl IntoIterator<Item = (Text, Amount)>) -> Result<Amounts, Refusal> {
        let mut named = Amounts::default();
        for (name, amount) in amounts {
            if name.trim().is_empty() || name.len() > NAME_BYTES_MAX {
                let found = name.len();
                return Err(Refusal::invalid(format!(
                    "expected the name of a number with 1 to {NAME_BYTES_MAX} bytes, found {found}"
                )));
            }
            if named.get(&name).is_some() {
                return Err(Refusal::invalid(format!("expected each number once, found {name} twice")));
            }
            if amount > Amount::MAX {
                let max = Amount::MAX;
                return Err(Refusal::invalid(format!("expected {name} of at most {max}, found {amount}")));
            }
            named.add(&name, amount);
        }
        named.must_be_few()?;
        Ok(named)
    }

    /// What a JSON object of numbers says.
    pub fn of_json(what: &str, value: &Value) -> Result<Amounts, Refusal> {
        let wrong = |found: &Value| {
            Refusal::invalid(format!(
                "expected {what} to be an object of numbers, each from 0 to {} and with at most six digits after the \
                 point, found {found}",
                Amount::MAX
            ))
        };
        let numbers = value.as_object().ok_or_else(|| wrong(value))?;
        let amounts = numbers.iter().map(|(name, found)| {
            let amount = found.as_number().and_then(|number| Amount::of(&number.to_string()));
            Ok((Text::from(&**name), amount.ok_or_else(|| wrong(found))?))
        });
        Amounts::new(amounts.collect::<Result<Vec<_>, Refusal>>()?)
    }

    /// As they were stored.
    pub fn stored(amounts: impl IntoIterator<Item = (Text, Amount)>) -> Amounts {
        let mut named = Amounts::default();
        amounts.into_iter().for_each(|(name, amount)| named.add(&name, amount));
        named
    }

    /// How much of this; none if nothing is said of it.
    pub fn get(&self, name: &str) -> Option<Amount> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, amount)| *amount)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, Amount)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, name: &Text, amount: Amount) {
        match self.0.binary_search_by(|(known, _)| known.cmp(name)) {
            Ok(index) => self.0[index].1 = Amount(self.0[index].1.0.saturating_add(amount.0)),
            Err(index) => self.0.insert(index, (name.clone(), amount)),
        }
    }

    fn plus(&self, more: &Amounts) -> Amounts {
        let mut sum = self.clone();
        more.iter().for_each(|(name, amount)| sum.add(name, amount));
        sum
    }

    fn must_be_few(&self) -> Result<(), Refusal> {
        match self.0.len() {
            found if found > NUMBERS_MAX => {
                Err(Refusal::invalid(format!("expected at most {NUMBERS_MAX} numbers, found {found}")))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn weight(&self) -> usize {
        self.0.iter().map(|(name, _)| name.len() + size_of::<Amount>()).sum()
    }
}

/// What a task stands under: filled in from its parent when it starts, never by who starts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Under {
    /// The nearest task above that has a budget.
    pub root: SessionId,
    /// How many levels it is below that.
    pub depth: u32,
    /// How many may be, all budgets above considered.
    pub deepest: Option<u32>,
    /// When the time of all budgets above is up.
    pub until: Option<Timestamp>,
    /// How many budgets are above.
    pub nested: u32,
}

/// What of budgets a task knows to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The tasks that were reserved under it, at all levels.
    pub reserved: BTreeSet<SessionId>,
    /// How many levels of them there are.
    pub depth: u32,
    /// What was used by it and under it of what its budget bounds.
    pub spent: Amounts,
    /// What those who worked on it said that they used for it.
    pub used: Amounts,
    /// Whether a budget above it was spent when it last told that.
    pub spent_above: bool,
}

impl Nothing for Ledger {
    const NOTHING: &'static Self = &Ledger {
        reserved: BTreeSet::new(),
        depth: 0,
        spent: Amounts(Vec::new()),
        used: Amounts(Vec::new()),
        spent_above: false,
    };
}

impl Budget {
    /// What a JSON object says: `tasks`, `depth`, `time_ms` and `numbers`.
    pub fn of_json(found: &Map<String, Value>) -> Result<Budget, Refusal> {
        let mut budget = Budget::default();
        let whole = |key: &str, value: &Value| {
            value.as_u64().ok_or_else(|| {
                Refusal::invalid(format!(
                    "expected budget.{key} to be a whole number of 0 or more, found {value}"
                ))
            })
        };
        // What is more than this is too much in any case.
        let count = |key: &str, value: &Value| {
            whole(key, value).map(|number| Some(u32::try_from(number).unwrap_or(u32::MAX)))
        };
        for (key, value) in found {
            match key.as_str() {
                "tasks" => budget.tasks = count(key, value)?,
                "depth" => budget.depth = count(key, value)?,
                "time_ms" => budget.time_ms = Some(whole(key, value)?),
                "numbers" => budget.numbers = Amounts::of_json("budget.numbers", value)?,
                other => {
                    return Err(Refusal::invalid(format!(
                        "expected budget to have tasks, depth, time_ms or numbers, found {other:?}"
                    )));
                }
            }
        }
        Ok(budget)
    }

    /// Whether it can be bound to a task.
    pub fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        if *self == Budget::default() {
            return Err(Refusal::invalid("expected a budget with at least one bound, found none"));
        }
        let most = [("tasks", self.tasks, TASKS_MAX), ("depth", self.depth, DEPTH_MAX)];
        for (bound, found, max) in most {
            if let Some(found) = found.filter(|found| *found > max) {
                return Err(Refusal::invalid(format!("expected {bound} from 0 to {max}, found {found}")));
            }
        }
        let max = limits.ttl_ms_max;
        if let Some(found) = self.time_ms.filter(|span| !(1..=max).contains(span)) {
            return Err(Refusal::invalid(format!(
                "expected the time of a budget from 1 to {max} ms, found {found}"
            )));
        }
        self.numbers.must_be_few()
    }

    pub(crate) fn weight(&self) -> usize {
        self.numbers.weight()
    }
}

impl Ledger {
    /// Which number is used beyond its bound, with the bound and what is used of it.
    pub fn overspent<'a>(&self, budget: &'a Budget) -> Option<(&'a Text, Amount, Amount)> {
        let used = |name: &Text| self.spent.get(name).unwrap_or_default();
        budget.numbers.iter().map(|(name, of)| (name, of, used(name))).find(|(_, of, used)| used > of)
    }

    /// Whether another task may be started under the root.
    pub(crate) fn must_have_room(&self, budget: &Budget) -> Result<(), Refusal> {
        let (limit, used) = (budget.tasks.unwrap_or(TASKS_MAX), self.reserved.len());
        if used >= limit as usize {
            return Err(spent("tasks", &limit, &used));
        }
        self.must_not_be_overspent(budget)
    }

    pub(crate) fn must_not_be_overspent(&self, budget: &Budget) -> Result<(), Refusal> {
        match self.overspent(budget) {
            Some((name, of, used)) => Err(spent(name, &of, &used)),
            None => Ok(()),
        }
    }

    /// Whether so much more can be noted of the task itself.
    pub(crate) fn must_take(&self, used: &Amounts) -> Result<(), Refusal> {
        self.used.plus(used).must_be_few()
    }

    pub(crate) fn reserve(&mut self, child: &SessionId, depth: u32) {
        self.reserved.insert(child.clone());
        self.depth = self.depth.max(depth);
    }

    /// The task's own use.
    pub(crate) fn note(&mut self, used: &Amounts) {
        self.used = self.used.plus(used);
    }

    /// What was used by the root or under it.
    pub(crate) fn spend(&mut self, budget: Option<&Budget>, used: &Amounts) {
        let Some(budget) = budget else { return };
        let bounded = used.iter().filter(|(name, _)| budget.numbers.get(name).is_some());
        bounded.for_each(|(name, amount)| self.spent.add(name, amount));
    }

    pub(crate) fn weight(&self) -> usize {
        let ids = self.reserved.iter().map(|child| child.as_str().len() + size_of::<SessionId>());
        ids.sum::<usize>() + self.spent.weight() + self.used.weight()
    }
}

/// A bound is reached.
fn spent(bound: &str, limit: &dyn fmt::Display, used: &dyn fmt::Display) -> Refusal {
    Refusal::BudgetSpent {
        what: Text::from(format!("the budget has no {bound} left: the limit is {limit}, used are {used}")),
    }
}

impl Refusal {
    /// Somebody says what it has used who works on nothing, or with something that is no work.
    pub(crate) fn nothing_used() -> Refusal {
        Refusal::invalid(
            "expected what was used with an update, a question, a message, a checkpoint or a report of the assignee",
        )
    }

    /// A budget above the task is known to be spent; only its root knows of what.
    pub(crate) fn spent_above() -> Refusal {
        let what = "a budget above this task is spent: complete or fail it, or report nothing more";
        Refusal::BudgetSpent { what: Text::from(what) }
    }

    /// Nothing begins under a budget whose root has ended.
    pub fn budget_ended() -> Refusal {
        let what = "the task that the budget was given to has ended: nothing more can be started under it";
        Refusal::BudgetSpent { what: Text::from(what) }
    }
}

impl Binding {
    /// Its own budget.
    pub fn budget(&self) -> Option<&Budget> {
        self.charter.budget.as_deref()
    }

    /// When the time of its budget, or of one above, is up.
    pub fn until(&self) -> Option<Timestamp> {
        let own = self.budget().and_then(|budget| budget.time_ms).map(|span| self.base.plus(span));
        own.into_iter().chain(self.under.as_ref().and_then(|under| under.until)).min()
    }

    /// What a subtask of this one stands under, none if that is no budget. Refused if it would be too deep.
    pub fn under_it(&self) -> Result<Option<Under>, Refusal> {
        let above = self.under.as_deref();
        let under = match (self.budget(), above) {
            (None, None) => return Ok(None),
            (Some(budget), above) => {
                let left = above.and_then(|above| Some(above.deepest?.saturating_sub(above.depth)));
                Under {
                    root: self.id.clone(),
                    depth: 1,
                    deepest: budget.depth.into_iter().chain(left).min(),
                    until: self.until(),
                    nested: above.map_or(0, |above| above.nested) + 1,
                }
            }
            (None, Some(above)) => Under { depth: above.depth.saturating_add(1), ..above.clone() },
        };
        match under.deepest {
            Some(deepest) if under.depth > deepest => Err(spent("depth", &deepest, &deepest)),
            Some(_) | None => Ok(Some(under)),
        }
    }
}

impl Session {
    /// Whether more was used than its budget allows, or than one above did when it was last told of it.
    pub fn is_overspent(&self) -> bool {
        let task = self.task();
        task.is_some_and(|task| {
            let own = self.binding.budget().and_then(|budget| task.ledger.overspent(budget));
            own.is_some() || task.ledger.spent_above
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_and_shown_exactly() {
        for (text, millionths) in [("0", 0), ("1", 1_000_000), ("0.25", 250_000), ("12.000001", 12_000_001)] {
            assert_eq!(Amount::of(text), Some(Amount(millionths)));
            assert_eq!(Amount(millionths).to_string(), text);
        }
        assert_eq!(Amount::of("1.50"), Some(Amount(1_500_000)));
        for text in
            ["", ".", "1.", ".5", "-1", "+1", "1e3", "0.0000001", "1000000000000.1", "99999999999999999999"]
        {
            assert_eq!(Amount::of(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_are_few_and_named_once_in_the_order_of_their_names() {
        let of = |names: &[&str]| Amounts::new(names.iter().map(|name| (Text::from(*name), Amount(1))));
        let sorted = of(&["tokens", "cost_usd"]).expect("two are few");
        assert_eq!(sorted.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["cost_usd", "tokens"]);
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        let many: Vec<String> = (0..=NUMBERS_MAX).map(|number| format!("n{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for wrong in [&["tokens", "tokens"][..], &[""], &[&*long], &many] {
            assert_eq!(of(wrong).expect_err("it is wrong").code(), "INVALID");
        }
        assert!(of(&many[1..]).is_ok());
    }
}
