//! What must hold whatever comes as a signed request. Shared like the checks beside it.

use handover_desk::identity::signed::{DEPTH_MAX, Signed, canonical};
use handover_kernel::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::checks::Reached;

/// The bytes are the body of a signed request.
pub fn signed(bytes: &[u8]) -> Reached {
    let Ok(text) = canonical(bytes) else {
        assert!(Signed::read(bytes).is_err());
        return Reached::Nothing;
    };
    assert_eq!(canonical(text.as_bytes()).as_deref(), Ok(&*text), "the canonical form is its own");
    serde_json::from_str::<&RawValue>(&text).expect("the canonical form is JSON");
    // A number may be larger than any that is read.
    if let Ok(parsed) = serde_json::from_str::<Value>(&text) {
        assert!(parsed.is_object() && depth(&parsed) <= DEPTH_MAX);
    }
    let Ok(signed) = Signed::read(bytes) else { return Reached::Decoded };
    let _ = signed.check_time(Timestamp(1_785_231_000_000));
    match signed.check_signature(&[7; 32]) {
        Ok(()) => panic!("expected nothing to be signed with a key that nobody has"),
        Err(_) => Reached::Accepted,
    }
}

fn depth(value: &Value) -> usize {
    let inside: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Object(fields) => Box::new(fields.values()),
        Value::Array(items) => Box::new(items.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 1,
    };
    1 + inside.map(depth).max().unwrap_or(0)
}
