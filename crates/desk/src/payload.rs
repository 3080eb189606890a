//! Payloads: between the bytes that the kernel carries and what the wires show: text, JSON, or bytes that are neither. The
//! same bytes always look the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handover_kernel::Blob;
use handover_kernel::budget::Amount;
use serde_json::{Number, Value, json};

/// What bytes are.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload<'a> {
    /// A JSON object.
    Object(&'a str, Value),
    /// Any other text.
    Text(&'a str),
    /// No text at all.
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// Of these bytes.
    pub fn of(bytes: &'a [u8]) -> Payload<'a> {
        match std::str::from_utf8(bytes) {
            Err(_) => Payload::Bytes(bytes),
            Ok(text) => match serde_json::from_str(text) {
                Ok(object @ Value::Object(_)) => Payload::Object(text, object),
                Ok(_) | Err(_) => Payload::Text(text),
            },
        }
    }
}

/// Bytes as JSON says them: the JSON that they are, else their text, else base64.
pub fn to_json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| to_text(bytes))
}

/// What bytes say in words: their text, or that of the parts of a message that has several. None if they are data or no text.
pub fn words(bytes: &[u8]) -> Option<String> {
    match Payload::of(bytes) {
        Payload::Text("") | Payload::Bytes(_) => None,
        Payload::Text(text) => Some(text.to_owned()),
        Payload::Object(_, object) => {
            let parts = object.get("parts")?.as_array()?;
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
    }
}

/// An amount as JSON says it: a whole number where it is one.
pub fn amount(amount: Amount) -> Number {
    let text = amount.to_string();
    let whole = text.parse::<u64>().ok().map(Number::from);
    let decimal = || text.parse::<f64>().ok().and_then(Number::from_f64);
    whole.or_else(decimal).unwrap_or_else(|| Number::from(0))
}

/// Bytes as a timeline shows them: as text, else as base64.
pub fn to_text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// JSON as the bytes that every wire sees: text as it is, anything else as JSON.
pub fn of_json(value: &Value) -> Blob {
    match value {
        Value::String(text) => Blob::from(text.as_bytes()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Blob::from(value.to_string().into_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_they_say() {
        assert_eq!(Payload::of(b"{\"a\":1}"), Payload::Object("{\"a\":1}", json!({ "a": 1 })));
        assert_eq!(Payload::of(b"[1]"), Payload::Text("[1]"));
        let several =
            br#"{"parts":[{"type":"text","text":"a"},{"type":"data","data":{}},{"type":"text","text":"b"}]}"#;
        assert_eq!(words(several).as_deref(), Some("a\nb"));
        assert_eq!((words(b"hello").as_deref(), words(b"{}"), words(b"\xff")), (Some("hello"), None, None));
        assert_eq!(Payload::of(b""), Payload::Text(""));
        assert_eq!(Payload::of(b"\xff"), Payload::Bytes(b"\xff"));
        assert_eq!(to_json(b"[1]"), json!([1]));
        assert_eq!(to_json(b"one"), json!("one"));
        assert_eq!(to_text(b"[1]"), json!("[1]"));
        assert_eq!(to_text("grüße".as_bytes()), json!("grüße"));
        assert_eq!(to_text(b""), json!(""));
        assert_eq!(to_text(&[0xff, 0x00]), json!({ "base64": "/wA=" }));
        assert_eq!((&*of_json(&json!("a")), &*of_json(&json!(["a"]))), (&b"a"[..], &b"[\"a\"]"[..]));
    }
}
