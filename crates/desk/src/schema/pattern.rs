//! Patterns of a schema: how large they are, and what it costs to put them to a text.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use handover_engine::locks::lock;
use jsonschema::{Draft, Keyword, PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};

use super::meter::{Metered, MeteredJson, spend};
use super::{Malformed, cut};

/// How large a pattern may be once it is compiled, and the steps that one that is no larger may take for each byte of
/// text. A pattern is matched in time linear in the text, but a large one can take 100 µs for each byte if somebody means
/// harm.
const WEIGHTS: [Weight; 6] = [
    Weight { bytes: 1024, per_byte: 1 },
    Weight { bytes: 4 * 1024, per_byte: 500 },
    Weight { bytes: 16 * 1024, per_byte: 1000 },
    Weight { bytes: 64 * 1024, per_byte: 3500 },
    Weight { bytes: 256 * 1024, per_byte: 13_000 },
    Weight { bytes: BYTES_MAX, per_byte: 50_000 },
];
const BYTES_MAX: usize = 1024 * 1024;

/// How much memory a pattern may take to be matched fast.
pub const CACHE_BYTES_MAX: usize = 256 * 1024;

/// How large a pattern is, and the steps that it may take for each byte of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Once it is compiled.
    pub bytes: usize,
    /// The steps.
    pub per_byte: u64,
}

/// A pattern that is put to text, and charges for it.
struct Pattern {
    weight: Weight,
    validator: Validator<MeteredJson>,
}

/// The patterns of a schema, each compiled once. All clones are the same.
#[derive(Clone, Default)]
pub struct Patterns {
    known: Arc<Mutex<BTreeMap<String, Arc<Pattern>>>>,
}

impl Patterns {
    /// How large a pattern is, and what it weighs. The only way to learn how large it is is to see where it still fits.
    pub fn weigh(&self, pattern: &str) -> Result<Weight, Malformed> {
        self.find(pattern).map(|found| found.weight).ok_or_else(|| {
            Malformed::new(format!(
                "expected a pattern without look-around and back-references that takes at most {BYTES_MAX} bytes, \
                 found {:?}",
                cut(pattern)
            ))
        })
    }

    /// What checks a keyword that holds a pattern.
    pub fn keyword(&self, pattern: &Value) -> Option<Box<dyn for<'i> Keyword<'i, MeteredJson>>> {
        let found = self.find(pattern.as_str()?)?;
        Some(Box::new(Shared(found)))
    }

    fn find(&self, pattern: &str) -> Option<Arc<Pattern>> {
        if let Some(known) = lock(&self.known).get(pattern) {
            return Some(Arc::clone(known));
        }
        let schema = json!({ "pattern": pattern });
        let made = WEIGHTS.iter().find_map(|weight| {
            let options = jsonschema::options_for::<MeteredJson>().with_draft(Draft::Draft202012);
            let validator =
                options.with_pattern_options(engine(weight.bytes)).offline().build(&schema).ok()?;
            Some(Arc::new(Pattern { weight: *weight, validator }))
        })?;
        lock(&self.known).insert(pattern.to_owned(), Arc::clone(&made));
        Some(made)
    }
}

/// What matches patterns: in linear time, and within this memory.
pub fn engine(bytes_max: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(bytes_max.min(BYTES_MAX)).dfa_size_limit(CACHE_BYTES_MAX)
}

/// A pattern that several schemas may have.
struct Shared(Arc<Pattern>);

impl Shared {
    fn charge(&self, value: Metered<'_>) -> bool {
        let bytes = value.0.as_str().map_or(0, str::len) as u64;
        spend(bytes.saturating_mul(self.0.weight.per_byte))
    }
}

impl<'i> Keyword<'i, MeteredJson> for Shared {
    fn validate(&self, value: Metered<'i>) -> Result<(), ValidationError<'i>> {
        if self.charge(value) { self.0.validator.validate(value) } else { Ok(()) }
    }

    fn is_valid(&self, value: Metered<'i>) -> bool {
        !self.charge(value) || self.0.validator.is_valid(value)
    }
}
