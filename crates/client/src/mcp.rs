//! What both ends of MCP must call the same.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::jsonrpc::object;

/// The stateless revision.
pub const MODERN: &str = "2026-07-28";

pub use crate::jsonrpc::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};

/// What the command line calls itself: a server shows what it did as such.
pub const CLI: &str = "handover-cli";

/// The header that names the revision.
pub const VERSION_HEADER: &str = "mcp-protocol-version";
/// The header that names the session of a handshake revision.
pub const SESSION_HEADER: &str = "mcp-session-id";
/// The header that names the method.
pub const METHOD_HEADER: &str = "mcp-method";
/// The header that names the tool, the prompt, the resource or the task.
pub const NAME_HEADER: &str = "mcp-name";
/// How the headers begin that repeat arguments of a tool.
pub const PARAMETER_HEADERS: &str = "mcp-param-";

/// Whether a method may take long or tell something before its answer.
pub fn may_stream(method: &str) -> bool {
    matches!(method, "tools/call" | "subscriptions/listen")
}

/// The revision that a stateless request names in its `_meta`; none if that cannot be read, which is for the server to
/// refuse.
pub fn version_of(params: Option<&RawValue>) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Opening<'a> {
        #[serde(borrow, default, rename = "_meta", deserialize_with = "object")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Option<Cow<'a, str>>,
    }
    let opening = serde_json::from_str::<Opening<'_>>(params?.get()).ok()?;
    opening.meta?.version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stateless_request_names_its_revision() {
        let version = |text: &str| {
            let params: Box<RawValue> = serde_json::from_str(text).unwrap();
            version_of(Some(&params)).map(Cow::into_owned)
        };
        let named = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1}}"#;
        assert_eq!(version(named).as_deref(), Some(MODERN));
        for none in [
            "{}",
            r#"{"_meta":null}"#,
            r#"{"_meta":["2026-07-28"]}"#,
            r#"{"_meta":{"progressToken":1}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}"#,
        ] {
            assert_eq!(version(none), None, "{none}");
        }
        assert_eq!(version_of(None), None);
    }
}
