//! JSON-RPC, and the codes that MCP adds to it.

pub use handover_client::jsonrpc::{
    Error, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, PARSE_ERROR,
    Unreadable, answer, is_id, notification, object, params, refusal, request, result, shorten,
};
pub use handover_client::mcp::HEADER_MISMATCH;

/// The caller did not declare a capability that the call needs.
pub const MISSING_CAPABILITY: i32 = -32021;
/// The revision is not spoken here.
pub const UNSUPPORTED_VERSION: i32 = -32022;
