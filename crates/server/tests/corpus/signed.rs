//! What must hold whatever comes as a signed request. Shared like the checks beside it.

use handover_desk::identity::signed::{DEPTH_MAX, Signed, canonical};
use handover_kernel::Timestamp;

use super::checks::Reached;

/// The bytes are the body of a signed request.
pub fn signed(bytes: &[u8]) -> Reached {
    let Ok(text) = canonical(bytes) else {
        assert!(Signed::read(bytes).is_err());
        return Reached::Nothing;
    };
    assert_eq!(canonical(text.as_bytes()).as_deref(), Ok(&*text), "the canonical form is its own");
    let parsed: serde_json::Value = serde_json::from_str(&text).expect("the canonical form is JSON");
    assert!(parsed.is_object() && depth(&parsed) <= DEPTH_MAX);
    let Ok(signed) = Signed::read(bytes) else { return Reached::Decoded };
    let _ = signed.check_time(Timestamp(1_785_231_000_000));
    match signed.check_signature(&[7; 32]) {
        Ok(()) => panic!("expected nothing to be signed with a key that nobody has"),
        Err(_) => Reached::Accepted,
    }
}

fn depth(value: &serde_json::Value) -> usize {
    let inside: Box<dyn Iterator<Item = &serde_json::Value>> = match value {
        serde_json::Value::Object(fields) => Box::new(fields.values()),
        serde_json::Value::Array(items) => Box::new(items.iter()),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => return 1,
    };
    1 + inside.map(depth).max().unwrap_or(0)
}
