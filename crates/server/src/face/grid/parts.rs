//! The parts of a message, and the bytes that every other face sees of them.
//!
//! A message of one part is the text, the JSON or the bytes of that part; one of several parts is a JSON object that has
//! them all. Whatever came in goes out as it came: where the plain bytes would be read as other parts, the object is used.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handover_desk::payload::Payload;
use handover_kernel::Blob;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// How many parts a message may have.
pub const PARTS_MAX: usize = 64;

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Part {
    /// Text for a person or a model.
    Text {
        /// The text.
        text: String,
    },
    /// A file.
    File {
        /// The file.
        file: File,
    },
    /// Structured data.
    Data {
        /// A JSON object.
        data: Map<String, Value>,
    },
}

/// A file in a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its content, in base64.
    pub bytes: String,
}

/// Whether a message may have these parts.
pub fn check(parts: &[Part]) -> Result<(), String> {
    if parts.is_empty() || parts.len() > PARTS_MAX {
        return Err(format!("parts: expected 1 to {PARTS_MAX}, found {}", parts.len()));
    }
    for (index, part) in parts.iter().enumerate() {
        if let Part::File { file } = part
            && STANDARD.decode(&file.bytes).is_err()
        {
            return Err(format!("parts[{index}].file.bytes: expected base64, found something else"));
        }
    }
    Ok(())
}

/// The bytes that every face sees of these parts.
pub fn to_body(parts: &[Part]) -> Blob {
    let plain = match parts {
        [Part::Text { text }] => Some(text.clone().into_bytes()),
        [Part::Data { data }] => Some(json!(data).to_string().into_bytes()),
        [Part::File { file }] => STANDARD.decode(&file.bytes).ok(),
        _ => None,
    };
    let plain = plain.filter(|plain| of_body(plain) == parts);
    plain.map_or_else(|| Blob::from(json!({ "parts": parts }).to_string().into_bytes()), Blob::from)
}

/// Bytes of any face as parts.
pub fn of_body(body: &[u8]) -> Vec<Part> {
    match Payload::of(body) {
        Payload::Text("") => Vec::new(),
        Payload::Text(text) => vec![Part::Text { text: text.to_owned() }],
        Payload::Object(_, Value::Object(object)) => {
            listed(&object).unwrap_or_else(|| vec![Part::Data { data: object }])
        }
        Payload::Object(text, _) => vec![Part::Text { text: text.to_owned() }],
        Payload::Bytes(bytes) => {
            let (name, mime_type) = (None, Some("application/octet-stream".to_owned()));
            vec![Part::File { file: File { name, mime_type, bytes: STANDARD.encode(bytes) } }]
        }
    }
}

/// The parts that an object has, if it is the object of a message of several.
fn listed(object: &Map<String, Value>) -> Option<Vec<Part>> {
    let parts = object.get("parts").filter(|_| object.len() == 1)?;
    let parts: Vec<Part> = serde_json::from_value(parts.clone()).ok()?;
    check(&parts).is_ok().then_some(parts)
}

/// What the parts say in words.
pub fn to_text(parts: &[Part]) -> String {
    let words = parts.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        Part::Data { data } => json!(data).to_string(),
        Part::File { file } => file.name.clone().unwrap_or_else(|| "a file".to_owned()),
    });
    words.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Part {
        Part::Text { text: text.to_owned() }
    }

    #[test]
    fn one_part_is_its_own_bytes_where_that_is_read_as_the_same() {
        assert_eq!(&*to_body(&[text("hello")]), b"hello");
        assert_eq!(&*to_body(&[text("[1]")]), b"[1]");
        let data = Part::Data { data: Map::from_iter([("a".to_owned(), json!(1))]) };
        assert_eq!(&*to_body(std::slice::from_ref(&data)), br#"{"a":1}"#);
        assert_eq!(&*to_body(&[text(r#"{"a":1}"#)]), br#"{"parts":[{"text":"{\"a\":1}","type":"text"}]}"#);
        assert_eq!(
            of_body(b"\xff\x00"),
            [Part::File {
                file: File {
                    name: None,
                    mime_type: Some("application/octet-stream".to_owned()),
                    bytes: "/wA=".to_owned()
                }
            }]
        );
        assert_eq!(of_body(b""), []);
    }

    fn part() -> impl Strategy<Value = Part> {
        let data = prop::collection::btree_map("[a-z]{0,3}|parts", "[a-z\\{\\}\"]{0,6}", 0..3);
        prop_oneof![
            "[ -~äöü\\{\\}\"]{0,12}".prop_map(|text| Part::Text { text }),
            Just(text(r#"{"parts":[{"type":"text","text":"x"}]}"#)),
            data.prop_map(|data| Part::Data {
                data: data.into_iter().map(|(key, value)| (key, json!(value))).collect()
            }),
            (prop::option::of("[a-z.]{1,8}"), prop::option::of("[a-z/]{1,9}"), any::<Vec<u8>>()).prop_map(
                |(name, mime_type, bytes)| Part::File {
                    file: File { name, mime_type, bytes: STANDARD.encode(bytes) }
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn parts_go_out_as_they_came_in(parts in prop::collection::vec(part(), 1..4)) {
            prop_assert_eq!(of_body(&to_body(&parts)), parts);
        }
    }
}
