//! What the headers of a POST say of the message in it, so that the server and those between need not read it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::marks::{self, Mark};
use crate::mcp::PARAMETER_HEADERS;

/// What a header can carry as it is: visible ASCII that nobody trims and that does not look as if it were encoded.
/// Everything else goes in base64.
pub fn value(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    let text =
        if plain { Cow::Borrowed(text) } else { Cow::Owned(format!("=?base64?{}?=", STANDARD.encode(text))) };
    HeaderValue::from_str(&text).expect("it is visible ASCII")
}

/// What a request is about: `Mcp-Name`.
pub fn name(method: &str, params: Option<&RawValue>) -> Option<HeaderValue> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Named<'a> {
        #[serde(borrow)]
        name: Option<Cow<'a, str>>,
        #[serde(borrow)]
        uri: Option<Cow<'a, str>>,
        #[serde(borrow)]
        task_id: Option<Cow<'a, str>>,
    }
    // What cannot be read so is for the server to refuse.
    let named: Named<'_> = serde_json::from_str(params?.get()).unwrap_or_default();
    let name = match method {
        "tools/call" | "prompts/get" => named.name,
        "resources/read" => named.uri,
        _ if method.starts_with("tasks/") => named.task_id,
        _ => None,
    };
    name.map(|name| value(&name))
}

/// The arguments that each tool wants repeated in headers, as far as a list has shown them.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<String, Vec<Mark>>);

impl Known {
    /// Learn from a result of `tools/list`.
    pub fn learn(&mut self, result: &RawValue) {
        #[derive(Deserialize)]
        struct Listed {
            tools: Vec<Tool>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Tool {
            name: String,
            #[serde(default)]
            input_schema: Value,
        }
        // Most lists have none: a look at the text is cheaper than reading every schema.
        if self.0.is_empty() && !result.get().contains(marks::KEYWORD) {
            return;
        }
        let Ok(listed) = serde_json::from_str::<Listed>(result.get()) else { return };
        for tool in listed.tools {
            let wanted = marks::of(&tool.input_schema);
            if wanted.is_empty() {
                self.0.remove(&tool.name);
            } else {
                self.0.insert(tool.name, wanted);
            }
        }
    }

    /// The headers that repeat the arguments of a call.
    pub fn repeat(&self, params: Option<&RawValue>, headers: &mut HeaderMap) {
        #[derive(Deserialize)]
        struct Call {
            name: String,
            #[serde(default)]
            arguments: Value,
        }
        if self.0.is_empty() {
            return;
        }
        let call = params.and_then(|params| serde_json::from_str::<Call>(params.get()).ok());
        let Some(call) = call else { return };
        for wanted in self.0.get(&call.name).into_iter().flatten() {
            let text = match wanted.argument(&call.arguments) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(flag)) => flag.to_string(),
                Some(Value::Number(number)) => number.to_string(),
                Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => continue,
            };
            if let Ok(name) = HeaderName::try_from(format!("{PARAMETER_HEADERS}{}", wanted.name)) {
                headers.insert(name, value(&text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        to_raw_value(value).unwrap()
    }

    #[test]
    fn what_a_header_cannot_carry_goes_in_base64() {
        for plain in ["search", "a b", "https://x/?y=z", "=?base64"] {
            assert_eq!(value(plain), plain);
        }
        assert_eq!(value("\u{e4}"), "=?base64?w6Q=?=");
        assert_eq!(value(" a"), "=?base64?IGE=?=");
        assert_eq!(value("a\r\nx: y"), "=?base64?YQ0KeDogeQ==?=");
        assert_eq!(value("=?base64?YQ==?="), "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
    }

    #[test]
    fn the_name_is_that_of_the_tool_the_resource_or_the_task() {
        let params = raw(&json!({"name": "n", "uri": "u", "taskId": "t"}));
        let name = |method| name(method, Some(&params)).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(name("tools/call").as_deref(), Some("n"));
        assert_eq!(name("prompts/get").as_deref(), Some("n"));
        assert_eq!(name("resources/read").as_deref(), Some("u"));
        assert_eq!(name("tasks/steer").as_deref(), Some("t"));
        assert_eq!(name("tools/list"), None);
    }

    #[test]
    fn arguments_are_repeated_as_the_last_list_asked_for() {
        let mut known = Known::default();
        let list = |property: Value| {
            raw(&json!({"tools": [
                {"name": "deploy", "inputSchema": {"type": "object", "properties": {"region": property, "n": {"type": "integer"}}}},
                {"name": "other"},
            ]}))
        };
        let call = raw(&json!({"name": "deploy", "arguments": {"region": "m\u{fc}nchen", "n": 1}}));
        let repeated = |known: &Known| {
            let mut headers = HeaderMap::new();
            known.repeat(Some(&call), &mut headers);
            headers
        };
        known.learn(&list(json!({"type": "string"})));
        assert!(repeated(&known).is_empty());
        known.learn(&list(json!({"type": "string", "x-mcp-header": "Region"})));
        let headers = repeated(&known);
        assert_eq!((headers.len(), &headers["mcp-param-region"]), (1, &value("m\u{fc}nchen")));
        known.learn(&list(json!({"type": "string"})));
        assert!(repeated(&known).is_empty());
    }
}
