//! JSON Schemas of what skills take and questions ask for: JSON Schema 2020-12, and draft-07 where a schema says so.
//!
//! - [`shape`]: how the parts of a schema hang together, and what a check can cost
//! - [`meter`]: how many steps a check takes
//! - `pattern`: how large a pattern is, and what it costs to match
//!
//! A schema comes from an agent and a value from another one, so both are bounded: nothing is fetched, a pattern is
//! matched in linear time, a schema whose cost multiplies is refused before it is used, and a check takes no more steps
//! than it is given.

pub mod meter;
mod pattern;
pub mod shape;

use std::borrow::Cow;
use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, JsonType, ValidationError, Validator};
use serde_json::Value;

use self::meter::{Metered, MeteredJson};
use self::pattern::Patterns;
use self::shape::Shape;

/// How large a schema may be.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// How deep a schema may be nested, and how deep a value that is checked: both are walked recursively.
pub const DEPTH_MAX: usize = 64;

/// The steps that may be taken to find all mismatches, and to find at least the first one. Unlike the check, saying what
/// is wrong remembers nothing, so that it can take much longer.
const STEPS_FOR_ALL: u64 = 100_000;
const STEPS_FOR_FIRST: u64 = 1_000_000;

/// How many mismatches are told.
const PLACES_MAX: usize = 3;

/// How many characters are shown of anything that a schema or a value says.
const SHOWN_CHARS_MAX: usize = 100;

/// The steps that compiling takes for each byte of a schema, and for each of a compiled pattern.
const STEPS_PER_SCHEMA_BYTE: usize = 50;
const STEPS_PER_PATTERN_BYTE: usize = 10;

/// How large bytes that may be a schema, or not, can be to be tried.
const TRIED_BYTES_MAX: usize = 8 * 1024;

const DRAFT_2020_12: &str = "https://json-schema.org/draft/2020-12/schema";
const DRAFT_07: [&str; 2] =
    ["http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema"];

/// Why a text is no schema that can be used: what was expected, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Malformed {
    /// What was expected, and what was found.
    pub what: String,
    /// Whether it is one, but a check against it could take too long.
    pub costly: bool,
}

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Malformed {
        Malformed { what: what.into(), costly: false }
    }

    pub(crate) fn costly(what: impl Into<String>) -> Malformed {
        Malformed { what: what.into(), costly: true }
    }
}

/// Why a value does not match: the first few places.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mismatch {
    /// At least one, at most three.
    pub places: Vec<Place>,
}

/// One thing that is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where in the value, as a JSON pointer; empty for all of it.
    pub pointer: String,
    /// What was expected, and what was found.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, place) in self.places.iter().enumerate() {
            let between = if number == 0 { "" } else { "; " };
            match place.pointer.as_str() {
                "" => write!(f, "{between}{}", place.what)?,
                pointer => write!(f, "{between}{pointer}: {}", place.what)?,
            }
        }
        Ok(())
    }
}

impl Mismatch {
    fn whole(what: String) -> Mismatch {
        Mismatch { places: vec![Place { pointer: String::new(), what }] }
    }
}

/// What a check says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The value matches.
    Matches,
    /// It does not.
    Differs(Mismatch),
    /// To know takes more steps than there were.
    OutOfSteps,
}

/// A schema, ready to check values. To compile one takes long; to check a value does not.
#[derive(Debug)]
pub struct Schema {
    value: Value,
    text_bytes: usize,
    validator: Validator<MeteredJson>,
    shape: Shape,
}

impl Schema {
    /// Whether bytes are a JSON Schema that can be used: an object, which compiles. Larger ones than are tried are none.
    pub fn is_one(bytes: &[u8]) -> bool {
        let tried = Some(bytes).filter(|bytes| bytes.len() <= TRIED_BYTES_MAX);
        let text = tried.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let text = text.filter(|text| text.trim_start().starts_with('{'));
        text.is_some_and(|text| Schema::compile(text).is_ok())
    }

    /// Whether a schema may have patterns, which can take long to compile.
    pub fn may_have_patterns(bytes: &[u8]) -> bool {
        // A keyword can be written with escapes.
        bytes.contains(&b'\\') || bytes.windows(7).any(|word| word == b"pattern")
    }

    /// Make a schema ready.
    pub fn compile(text: &str) -> Result<Schema, Malformed> {
        if text.len() > SCHEMA_BYTES_MAX {
            let found = text.len();
            return Err(Malformed::new(format!(
                "expected a schema of at most {SCHEMA_BYTES_MAX} bytes, found {found}"
            )));
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Malformed::new(format!("expected a schema in JSON, found: {error}")))?;
        if is_too_deep(&value) {
            return Err(Malformed::new(format!(
                "expected at most {DEPTH_MAX} levels of nesting, found more"
            )));
        }
        let draft = draft(&value)?;
        let patterns = Patterns::default();
        let shape = Shape::of(&value, |pattern| patterns.weigh(pattern))?;
        let validator = build(&value, draft, &patterns).map_err(|error| malformed(&error))?;
        Ok(Schema { value, text_bytes: text.len(), validator, shape })
    }

    /// About how many bytes it takes to keep.
    pub fn weight(&self) -> usize {
        // The validator is several times as large as its text.
        self.text_bytes * 8 + self.shape.pattern_bytes() + self.shape.patterns() * pattern::CACHE_BYTES_MAX
    }

    /// The steps that it took to compile.
    pub fn steps_to_compile(&self) -> u64 {
        (self.text_bytes * STEPS_PER_SCHEMA_BYTE + self.shape.pattern_bytes() * STEPS_PER_PATTERN_BYTE) as u64
    }

    /// The schema as JSON.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// See whether a value matches, in at most so many steps: the verdict, and the steps that were taken.
    pub fn check(&self, value: &Value, steps: u64) -> (Verdict, u64) {
        if is_too_deep(value) {
            let what = format!("expected at most {DEPTH_MAX} levels of nesting, found more");
            return (Verdict::Differs(Mismatch::whole(what)), 0);
        }
        let (matches, taken) = self.run(steps, |validator| validator.is_valid(Metered(value)));
        match matches {
            Some(true) => (Verdict::Matches, taken),
            None => (Verdict::OutOfSteps, taken),
            Some(false) => {
                // What took long to find may take as long to explain.
                let (mismatch, more) = self.explain(value, steps.min(STEPS_FOR_FIRST.max(2 * taken)));
                (Verdict::Differs(mismatch), taken + more)
            }
        }
    }

    /// What is wrong with a value, as far as it can be said in so many steps.
    fn explain(&self, value: &Value, steps: u64) -> (Mismatch, u64) {
        let value = Metered(value);
        let (all, taken) = self.run(steps.min(STEPS_FOR_ALL), |validator| -> Vec<Place> {
            validator.iter_errors(value).take(PLACES_MAX).map(|error| place(&error)).collect()
        });
        let (places, taken) = match all {
            Some(places) => (Some(places), taken),
            None => {
                let (first, more) = self.run(steps, |validator| -> Vec<Place> {
                    validator.validate(value).err().iter().map(place).collect()
                });
                (first, taken + more)
            }
        };
        let mismatch = match places {
            Some(places) if !places.is_empty() => Mismatch { places },
            Some(_) | None => Mismatch::whole(
                "expected a value that matches the schema, found one that does not".to_owned(),
            ),
        };
        (mismatch, taken)
    }

    fn run<R>(&self, steps: u64, check: impl FnOnce(&Validator<MeteredJson>) -> R) -> (Option<R>, u64) {
        meter::run(self.shape.rates(), steps, || check(&self.validator))
    }
}

/// Which draft a schema is written in.
fn draft(schema: &Value) -> Result<Draft, Malformed> {
    match schema.get("$schema") {
        None => Ok(Draft::Draft202012),
        Some(Value::String(uri)) if uri.trim_end_matches('#') == DRAFT_2020_12 => Ok(Draft::Draft202012),
        Some(Value::String(uri)) if DRAFT_07.contains(&uri.trim_end_matches('#')) => Ok(Draft::Draft7),
        Some(other) => Err(Malformed::new(format!(
            "expected $schema to be {DRAFT_2020_12} or none, found {}",
            cut(&other.to_string())
        ))),
    }
}

fn build(
    schema: &Value,
    draft: Draft,
    patterns: &Patterns,
) -> Result<Validator<MeteredJson>, ValidationError<'static>> {
    let patterns = patterns.clone();
    jsonschema::options_for::<MeteredJson>()
        .with_draft(draft)
        .with_pattern_options(pattern::engine(usize::MAX))
        .with_keyword("pattern", move |_, pattern, _| {
            patterns.keyword(pattern).ok_or_else(|| ValidationError::custom("expected a pattern"))
        })
        // In 2020-12 a format is a remark unless both sides agree on more.
        .should_validate_formats(false)
        .offline()
        .build(schema)
}

/// Whether a value is nested deeper than may be.
fn is_too_deep(value: &Value) -> bool {
    let mut left = vec![(value, 1)];
    while let Some((value, depth)) = left.pop() {
        if depth > DEPTH_MAX {
            return true;
        }
        match value {
            Value::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(entries) => left.extend(entries.values().map(|item| (item, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

/// What the validator found wrong with a schema.
fn malformed(error: &ValidationError<'_>) -> Malformed {
    let place = place(error);
    let at = if place.pointer.is_empty() { "the schema" } else { place.pointer.as_str() };
    Malformed::new(format!("{at}: {}", place.what))
}

fn place(error: &ValidationError<'_>) -> Place {
    Place { pointer: cut(error.instance_path().as_str()).into_owned(), what: what(error) }
}

/// One mismatch in words. Values are not repeated: they can be long, and they can be secret.
#[allow(clippy::wildcard_enum_match_arm, reason = "the validator's own words do for the rest")]
fn what(error: &ValidationError<'_>) -> String {
    let found = kind(error.instance());
    let said = match error.kind() {
        ValidationErrorKind::Type { kind: TypeKind::Single(one) } => {
            format!("expected {}, found {found}", article(*one))
        }
        ValidationErrorKind::Type { kind: TypeKind::Multiple(some) } => {
            let some: Vec<&str> = some.iter().map(article).collect();
            format!("expected {}, found {found}", some.join(" or "))
        }
        ValidationErrorKind::Required { property } => format!("expected the property {property}, found none"),
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!("expected no other properties, found {}", quoted(unexpected))
        }
        ValidationErrorKind::Enum { options } => format!("expected one of {options}, found something else"),
        ValidationErrorKind::Constant { expected_value } => {
            format!("expected {expected_value}, found something else")
        }
        ValidationErrorKind::Pattern { pattern } => {
            format!("expected text that matches {pattern:?}, found other text")
        }
        ValidationErrorKind::FalseSchema => format!("expected nothing here, found {found}"),
        _ => error.masked_with("the value").to_string(),
    };
    cut(&said).into_owned()
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(PLACES_MAX).map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

fn article(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "an array",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
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

/// The beginning of a text that may be long.
fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

#[cfg(test)]
mod tests;
