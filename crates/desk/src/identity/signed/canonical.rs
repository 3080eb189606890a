//! JSON in one form, so that both ends sign the same bytes: as Python's `json.dumps(payload, sort_keys=True,
//! ensure_ascii=False)` writes it. Keys are in the order of their code points at every level, `", "` and `": "` separate, and
//! numbers are as they were written.
//!
//! Reached before it is known who asks: what is nested too deeply, and a key that is there twice, is refused.

use serde::Deserializer;
use serde::de::{Deserialize, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How deeply values may be nested. Each level is read once more for each that it is within.
pub const DEPTH_MAX: usize = 32;

/// The field that a signature does not cover: its own.
const SIGNATURE: &str = "signature";

/// The fields of an object, in the order of their names.
pub(super) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The fields of a JSON object.
    pub(super) fn read(text: &'a str) -> Result<Fields<'a>, &'static str> {
        let mut fields: Fields = serde_json::from_str(text).map_err(|_| "expected a JSON object")?;
        fields.0.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        match fields.0.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            true => Err("expected every key of an object once"),
            false => Ok(fields),
        }
    }

    /// The text of a field, as it was written.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let place = self.0.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok()?;
        Some(self.0[place].1.get())
    }

    /// All that a signature covers, in canonical form.
    pub(super) fn payload(&self) -> Result<String, &'static str> {
        let mut out = String::new();
        self.write(1, |name| name != SIGNATURE, &mut out)?;
        Ok(out)
    }

    fn write(
        &self,
        depth: usize,
        wanted: impl Fn(&str) -> bool,
        out: &mut String,
    ) -> Result<(), &'static str> {
        let mut separator = "{";
        for (name, value) in self.0.iter().filter(|(name, _)| wanted(name)) {
            out.push_str(std::mem::replace(&mut separator, ", "));
            text(name, out)?;
            out.push_str(": ");
            write(value.get(), depth + 1, out)?;
        }
        out.push_str(if separator == "{" { "{}" } else { "}" });
        Ok(())
    }
}

/// All of a JSON object but its field `signature`, in canonical form; or else what was expected.
pub fn canonical(body: &[u8]) -> Result<String, &'static str> {
    let body = str::from_utf8(body).map_err(|_| "expected UTF-8")?;
    Fields::read(body)?.payload()
}

fn write(value: &str, depth: usize, out: &mut String) -> Result<(), &'static str> {
    if depth > DEPTH_MAX {
        return Err("expected values that are nested less deeply");
    }
    match value.as_bytes().first() {
        Some(b'{') => Fields::read(value)?.write(depth, |_| true, out),
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(value).map_err(|_| "expected a JSON list")?;
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { ", " });
                write(item.get(), depth + 1, out)?;
            }
            out.push(']');
            Ok(())
        }
        Some(b'"') => text(&read_text(value)?, out),
        Some(_) | None => {
            out.push_str(value);
            Ok(())
        }
    }
}

/// What a JSON text says.
pub(super) fn read_text(value: &str) -> Result<String, &'static str> {
    serde_json::from_str(value).map_err(|_| "expected JSON text in Unicode")
}

/// A text as Python escapes it, which is how this library does.
fn text(text: &str, out: &mut String) -> Result<(), &'static str> {
    out.push_str(&serde_json::to_string(text).map_err(|_| "expected JSON text in Unicode")?);
    Ok(())
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Fields(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// A value with its keys in another order and white space wherever it may be.
    fn scrambled(value: &Value, random: &mut impl FnMut() -> usize) -> String {
        let mut space = || ["", " ", "\n", "\t \r\n"][random() % 4].to_owned();
        let (before, after) = (space(), space());
        let inside = match value {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                let middle = random() % (fields.len() + 1);
                fields.rotate_left(middle);
                if random().is_multiple_of(2) {
                    fields.reverse();
                }
                let field = |(key, value): (&String, &Value)| {
                    let key = serde_json::to_string(key).unwrap();
                    format!(" {key}\n:{}", scrambled(value, random))
                };
                format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| scrambled(item, random)).collect();
                format!("[{}]", items.join(","))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        };
        before + &inside + &after
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn however_a_value_is_written_its_canonical_form_is_the_same_and_says_the_same(
            fields in prop::collection::btree_map("[a-z\"é]{0,4}", values(), 0..6),
            seed in any::<u64>(),
        ) {
            let value = Value::Object(fields.into_iter().collect());
            let mut state = seed;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize
            };
            let plain = canonical(value.to_string().as_bytes()).unwrap();
            prop_assert_eq!(&canonical(scrambled(&value, &mut random).as_bytes()).unwrap(), &plain);
            prop_assert_eq!(&canonical(plain.as_bytes()).unwrap(), &plain);
            prop_assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), value);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = canonical(&bytes);
        }
    }

    #[test]
    fn numbers_stay_as_they_were_written_and_the_signature_is_left_out_at_the_top_only() {
        let body =
            r#"{"b":[1.0,1e-07,-0,1E+2,12345678901234567890123],"signature":"x","a":{"signature":{}}}"#;
        let expected = r#"{"a": {"signature": {}}, "b": [1.0, 1e-07, -0, 1E+2, 12345678901234567890123]}"#;
        assert_eq!(canonical(body.as_bytes()).unwrap(), expected);
        assert_eq!(canonical(br#"{"signature":1}"#).unwrap(), "{}");
    }

    #[test]
    fn what_is_ambiguous_or_too_deep_is_refused() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(canonical(nested(DEPTH_MAX).as_bytes()).is_ok());
        for wrong in [
            nested(DEPTH_MAX + 1),
            nested(30_000),
            "[".repeat(60_000),
            "{\"a\":".repeat(10_000),
            r#"{"a":1,"a":1}"#.to_owned(),
            r#"{"a":1,"\u0061":1}"#.to_owned(),
            r#"{"a":{"b":1,"b":2}}"#.to_owned(),
            r#"{"a":"\ud800"}"#.to_owned(),
            r#"{"a":NaN}"#.to_owned(),
            r#"{"a":01}"#.to_owned(),
            r#"{"a":1} {"#.to_owned(),
            "[]".to_owned(),
            String::new(),
        ] {
            assert!(canonical(wrong.as_bytes()).is_err(), "{}", &wrong[..wrong.len().min(40)]);
        }
        assert!(canonical(b"{\"a\":\"\xff\"}").is_err());
    }
}
