//! JSON-RPC, and the codes that MCP adds to it.

pub use handover_client::jsonrpc::{
    Error, ID_BYTES_MAX, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND,
    PARSE_ERROR, Unreadable, answer, answer_with, is_id, notification, notification_of, object, params,
    refusal, request, result, shorten, text,
};
pub use handover_client::mcp::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};

#[cfg(test)]
mod tests {
    use handover_desk::codes;
    use handover_desk::codes::own;

    use super::*;

    #[test]
    fn every_code_of_json_rpc_and_mcp_is_in_the_table_and_links_to_its_page() {
        let expected = [
            (PARSE_ERROR, &own::PARSE_ERROR),
            (INVALID_REQUEST, &own::INVALID_REQUEST),
            (METHOD_NOT_FOUND, &own::METHOD_NOT_FOUND),
            (INVALID_PARAMS, &own::INVALID_PARAMS),
            (INTERNAL_ERROR, &own::INTERNAL_ERROR),
            (HEADER_MISMATCH, &own::HEADER_MISMATCH),
            (MISSING_CAPABILITY, &own::MISSING_CAPABILITY),
            (UNSUPPORTED_VERSION, &own::UNSUPPORTED_PROTOCOL_VERSION),
        ];
        for (code, own) in expected {
            let shown = serde_json::to_value(Error::new(code, "x")).unwrap();
            assert_eq!(shown["data"]["code"], own.code);
            assert_eq!(shown["data"]["help"], codes::link(own.code));
            assert_eq!(own.json_rpc, [code]);
        }
    }
}
