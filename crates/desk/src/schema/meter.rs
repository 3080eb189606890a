//! A meter on checks: the validator sees a value through [`Metered`], which counts every look at it. When the steps that
//! a check may take are used up, every value looks empty, so that the check ends; what it then says is thrown away.
//!
//! Whatever a schema says and however often the validator comes back to the same part, a check takes no more than it was
//! given, and the few steps that it takes to find its way out.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp};
use serde_json::{Map, Number, Value};

/// What looking costs beside the look itself. A step is about the time of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// For each part of a value that is handed out: the schemas that apply to it without looking.
    pub part: u64,
    /// For each byte of a property's name: all patterns that names may be put to.
    pub name_byte: u64,
}

/// Finding out whether a recursive schema is already at work on a value goes through all that are.
const IDENTITY: u64 = 16;

/// How many bytes are compared, hashed or counted in a step.
const BYTES_PER_STEP: usize = 16;

struct Meter {
    left: Cell<u64>,
    out: Cell<bool>,
    rates: Cell<Rates>,
    /// How many looks there were after the end.
    #[cfg(test)]
    late: Cell<u64>,
}

thread_local! {
    // A check begins and ends on one thread. The validator makes nodes of its own for the names of properties, so that
    // the meter cannot travel with the nodes.
    static METER: Meter = const {
        Meter {
            left: Cell::new(0),
            out: Cell::new(false),
            rates: Cell::new(Rates { part: 0, name_byte: 0 }),
            #[cfg(test)]
            late: Cell::new(0),
        }
    };
}

/// Run a check that may take so many steps: what it found, unless it needed more, and the steps that it took.
pub fn run<R>(rates: Rates, steps: u64, check: impl FnOnce() -> R) -> (Option<R>, u64) {
    METER.with(|meter| {
        meter.left.set(steps);
        meter.out.set(false);
        meter.rates.set(rates);
        #[cfg(test)]
        meter.late.set(0);
    });
    let found = check();
    METER.with(|meter| (Some(found).filter(|_| !meter.out.get()), steps - meter.left.get()))
}

/// How many looks the last check of this thread took after its end.
#[cfg(test)]
pub fn late() -> u64 {
    METER.with(|meter| meter.late.get())
}

/// Take so many steps, if they are left. Once they are not, nothing is.
pub fn spend(steps: u64) -> bool {
    METER.with(|meter| meter.spend(steps))
}

fn spend_at(steps: impl FnOnce(Rates) -> u64) -> bool {
    METER.with(|meter| meter.spend(steps(meter.rates.get())))
}

impl Meter {
    fn spend(&self, steps: u64) -> bool {
        if self.out.get() {
            #[cfg(test)]
            self.late.set(self.late.get() + 1);
            return false;
        }
        match self.left.get().checked_sub(steps) {
            Some(left) => self.left.set(left),
            None => {
                self.left.set(0);
                self.out.set(true);
            }
        }
        !self.out.get()
    }
}

/// JSON whose every use is counted.
#[derive(Clone, Copy)]
pub struct Metered<'a>(pub &'a Value);

/// The representation of [`Metered`] values.
pub struct MeteredJson;

impl Json for MeteredJson {
    type Node<'a> = Metered<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    // A lookup in a sorted map compares several names.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Metered<'_>) -> T) -> T {
        *buffer = Value::String(string.to_owned());
        f(Metered(buffer))
    }
}

impl<'a> Node<'a, MeteredJson> for Metered<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        if spend(1) { self.0.as_object().map(Members) } else { None }
    }

    fn as_array(&self) -> Option<Elements<'a>> {
        if spend(1) { self.0.as_array().map(|items| Elements(items)) } else { None }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str()?;
        spend(1 + text_steps(text)).then_some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        if spend(1) { self.0.as_number() } else { None }
    }

    fn as_boolean(&self) -> Option<bool> {
        if spend(1) { self.0.as_bool() } else { None }
    }

    fn is_null(&self) -> bool {
        !spend(1) || self.0.is_null()
    }

    fn is_number(&self) -> bool {
        spend(1) && self.0.is_number()
    }

    fn is_string(&self) -> bool {
        spend(1) && self.0.is_string()
    }

    fn json_type(&self) -> JsonType {
        if !spend(1) {
            return JsonType::Null;
        }
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str()?;
        spend(1 + text_steps(text)).then(|| text.chars().count() as u64)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        let steps = match (self.0, expected) {
            (Value::String(one), Value::String(other)) if one.len() == other.len() => text_steps(one),
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => size(expected),
            _ => 0,
        };
        spend(1 + steps) && cmp::equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        spend(IDENTITY);
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

/// The properties of an object.
pub struct Members<'a>(&'a Map<String, Value>);

/// What gives out the properties of an object, one after the other.
pub struct MembersIter<'a>(serde_json::map::Iter<'a>);

impl<'a> Object<'a, MeteredJson> for Members<'a> {
    type Node = Metered<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    // Not counted: what is said of a length must stay true.
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Metered<'a>> {
        let found = self.0.get(key.as_str());
        let looked = |rates: Rates| 2 + if found.is_some() { rates.part } else { 0 };
        if spend_at(looked) { found.map(Metered) } else { None }
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter(self.0.iter())
    }
}

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, Metered<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        let handed_out = |rates: Rates| {
            let name = text_steps(name) + rates.name_byte.saturating_mul(name.len() as u64);
            (2 + rates.part).saturating_add(name)
        };
        spend_at(handed_out).then_some((name.as_str(), Metered(value)))
    }
}

/// The items of an array.
pub struct Elements<'a>(&'a [Value]);

/// What gives out the items of an array, one after the other.
pub struct ElementsIter<'a>(std::slice::Iter<'a, Value>);

impl<'a> Array<'a, MeteredJson> for Elements<'a> {
    type Node = Metered<'a>;
    type ElementsIter = ElementsIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> ElementsIter<'a> {
        ElementsIter(self.0.iter())
    }

    /// Sorted and not hashed: values can be made that have the same hash.
    fn is_unique(&self) -> bool {
        let rounds = u64::from(self.0.len().max(2).ilog2()) + 1;
        let all = self.0.iter().fold(0_u64, |sum, item| sum.saturating_add(size(item)));
        // If the steps are used up, it does not matter what is said.
        if !spend(all) || !spend(all.saturating_mul(rounds)) {
            return true;
        }
        let mut items: Vec<&Value> = self.0.iter().collect();
        items.sort_unstable_by(|one, other| order(one, other));
        items.windows(2).all(|pair| order(pair[0], pair[1]) != Ordering::Equal)
    }
}

impl<'a> Iterator for ElementsIter<'a> {
    type Item = Metered<'a>;

    fn next(&mut self) -> Option<Metered<'a>> {
        let item = self.0.next()?;
        spend_at(|rates| 1 + rates.part).then_some(Metered(item))
    }
}

fn text_steps(text: &str) -> u64 {
    (text.len() / BYTES_PER_STEP) as u64
}

/// The steps that it takes to go through a value.
fn size(value: &Value) -> u64 {
    let mut steps = 0;
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        steps += 1;
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(entries) => {
                steps += entries.keys().map(|name| 1 + text_steps(name)).sum::<u64>();
                left.extend(entries.values());
            }
            Value::String(text) => steps += text_steps(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    steps
}

/// An order of all values in which those that are equal as JSON are equal: 1 and 1.0 are.
fn order(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => order_numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let pairs = one.iter().zip(other).map(|(one, other)| order(one, other));
            one.len().cmp(&other.len()).then_with(|| first_difference(pairs))
        }
        (Value::Object(one), Value::Object(other)) => {
            let pairs = one.iter().zip(other).map(|((name, one), (other_name, other))| {
                name.cmp(other_name).then_with(|| order(one, other))
            });
            one.len().cmp(&other.len()).then_with(|| first_difference(pairs))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

fn first_difference(mut pairs: impl Iterator<Item = Ordering>) -> Ordering {
    pairs.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

fn order_numbers(one: &Number, other: &Number) -> Ordering {
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => {
            let float = |number: &Number| number.as_f64().unwrap_or(f64::NAN);
            float(one).total_cmp(&float(other))
        }
    }
}

/// A number without a fraction, if it is no larger than integers in JSON can be.
fn whole(number: &Number) -> Option<i128> {
    if let Some(number) = number.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = number.as_u64() {
        return Some(number.into());
    }
    let float = number.as_f64()?;
    (float.fract() == 0.0 && float.abs() <= 2_f64.powi(64)).then_some(float as i128)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}
