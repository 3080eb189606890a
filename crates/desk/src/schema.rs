//! JSON Schemas of what skills take and questions ask for: JSON Schema 2020-12, and draft-07 where a schema says so.
//!
//! - [`shape`]: how the parts of a schema hang together, and what a check can cost
//!
//! A schema comes from an agent and a value from another one, so both are bounded: nothing is fetched, a pattern is
//! matched in linear time, and a schema that could make a check run for ever is refused before it is used.

pub mod shape;

use std::borrow::Cow;
use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, JsonType, PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};

use self::shape::Shape;

/// How large a schema may be.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// How deep a schema may be nested, and how deep a value that is checked: both are walked recursively.
pub const DEPTH_MAX: usize = 64;

/// The steps that a check may take: those of the schema times the values there are. Under a second of work.
const STEPS_MAX: usize = 64_000_000;

/// The visits up to which all mismatches are looked for, and up to which at least the first one is. Unlike the check,
/// saying what is wrong looks at every alternative, so that it can take much longer.
const VISITS_FOR_ALL: usize = 20_000;
const VISITS_FOR_FIRST: usize = 200_000;

/// How many mismatches are told.
const PLACES_MAX: usize = 3;

/// How many characters are shown of anything that a schema or a value says.
const SHOWN_CHARS_MAX: usize = 100;

/// How large a pattern may be once it is compiled, and what one that is no larger weighs. A pattern is matched in time
/// linear in the text, but a large one can take 100 µs for each byte.
const PATTERN_WEIGHTS: [(usize, usize); 3] = [(32 * 1024, 1), (256 * 1024, 16), (PATTERN_BYTES_MAX, 64)];
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// How much memory a pattern may take to be matched fast.
const PATTERN_CACHE_BYTES_MAX: usize = 256 * 1024;

/// How many bytes of text may be put to patterns in a check, times what those weigh. A few seconds of work if somebody
/// means harm, and a few milliseconds otherwise.
const MATCHED_MAX: usize = 1024 * 1024;

const DRAFT_2020_12: &str = "https://json-schema.org/draft/2020-12/schema";
const DRAFT_07: [&str; 2] =
    ["http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema"];

/// Why a text is no schema that can be used: what was expected, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Malformed {
    /// What was expected, and what was found.
    pub what: String,
}

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Malformed {
        Malformed { what: what.into() }
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

/// A schema, ready to check values. To compile one takes long; to check a value does not.
#[derive(Debug)]
pub struct Schema {
    value: Value,
    validator: Validator,
    shape: Shape,
}

impl Schema {
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
        if measure(&value).is_none() {
            return Err(Malformed::new(format!(
                "expected at most {DEPTH_MAX} levels of nesting, found more"
            )));
        }
        let draft = draft(&value)?;
        let shape = Shape::of(&value, weigh)?;
        let validator = build(&value, draft, PATTERN_BYTES_MAX).map_err(|error| malformed(&error))?;
        Ok(Schema { value, validator, shape })
    }

    /// The schema as JSON.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// See whether a value matches.
    pub fn check(&self, value: &Value) -> Result<(), Mismatch> {
        let Some(Size { values, text_bytes }) = measure(value) else {
            return Err(Mismatch::whole(format!(
                "expected at most {DEPTH_MAX} levels of nesting, found more"
            )));
        };
        if self.shape.steps().saturating_mul(values) > STEPS_MAX {
            let most = STEPS_MAX / self.shape.steps().max(1);
            return Err(Mismatch::whole(format!(
                "expected at most {most} values for a schema of this size, found {values}"
            )));
        }
        if self.shape.weight().saturating_mul(text_bytes) > MATCHED_MAX
            && self.shape.matched(value, VISITS_FOR_FIRST).is_none_or(|matched| matched > MATCHED_MAX)
        {
            let what =
                "expected less text for the patterns of the schema, found more than can be matched in time";
            return Err(Mismatch::whole(what.to_owned()));
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let visits = self.shape.visits(value, VISITS_FOR_FIRST);
        let mut places: Vec<Place> = match visits {
            Some(visits) if visits <= VISITS_FOR_ALL => {
                self.validator.iter_errors(value).take(PLACES_MAX).map(|error| place(&error)).collect()
            }
            Some(_) => self.validator.validate(value).err().iter().map(place).collect(),
            None => Vec::new(),
        };
        if places.is_empty() {
            let what = "expected a value that matches the schema, found one that does not".to_owned();
            places.push(Place { pointer: String::new(), what });
        }
        Err(Mismatch { places })
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
    pattern_bytes_max: usize,
) -> Result<Validator, ValidationError<'static>> {
    let patterns =
        PatternOptions::regex().size_limit(pattern_bytes_max).dfa_size_limit(PATTERN_CACHE_BYTES_MAX);
    jsonschema::options()
        .with_draft(draft)
        .with_pattern_options(patterns)
        // In 2020-12 a format is a remark unless both sides agree on more.
        .should_validate_formats(false)
        .offline()
        .build(schema)
}

/// What a pattern weighs. The only way to learn how large it is is to see where it still fits.
fn weigh(pattern: &str) -> Result<usize, Malformed> {
    let schema = json!({ "pattern": pattern });
    let fits = |most: usize| build(&schema, Draft::Draft202012, most).is_ok();
    let found = PATTERN_WEIGHTS.iter().find(|(most, _)| fits(*most));
    found.map(|(_, weight)| *weight).ok_or_else(|| {
        Malformed::new(format!(
            "expected a pattern without look-around and back-references that takes at most {PATTERN_BYTES_MAX} \
             bytes, found {:?}",
            cut(pattern)
        ))
    })
}

/// How large a value is.
struct Size {
    /// How many values there are in it, itself included.
    values: usize,
    /// The bytes of all texts and names of properties.
    text_bytes: usize,
}

/// How large a value is; none if it is nested too deep.
fn measure(value: &Value) -> Option<Size> {
    let mut size = Size { values: 0, text_bytes: 0 };
    let mut left = vec![(value, 1)];
    while let Some((value, depth)) = left.pop() {
        if depth > DEPTH_MAX {
            return None;
        }
        size.values += 1;
        match value {
            Value::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(entries) => {
                size.text_bytes += entries.keys().map(String::len).sum::<usize>();
                left.extend(entries.values().map(|item| (item, depth + 1)));
            }
            Value::String(text) => size.text_bytes += text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    Some(size)
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
