//! What the headers of a request must say of its body, so that whoever is in between can trust them without reading it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handover_client::mcp::{METHOD_HEADER, NAME_HEADER, PARAMETER_HEADERS};
use serde_json::{Map, Value};

use crate::face::mcp::caller::MODERN;
use crate::face::mcp::message::{Error, HEADER_MISMATCH};
use handover_desk::directory::Tool;

static METHOD: HeaderName = HeaderName::from_static(METHOD_HEADER);
static NAME: HeaderName = HeaderName::from_static(NAME_HEADER);

/// Whether the client takes a stream of events.
pub fn takes_events(headers: &HeaderMap) -> bool {
    let mut accepted =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    accepted.peek().is_none()
        || accepted.any(|value| value.contains("text/event-stream") || value.contains("*/*"))
}

fn mismatch(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(HEADER_MISMATCH, message).status(400)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Error> {
    match headers.get(name) {
        None => Ok(None),
        Some(value) => {
            let text = value.to_str().map_err(|_| mismatch(format!("{name}: expected visible ASCII")))?;
            Ok(Some(text.trim_ascii()))
        }
    }
}

/// No header of MCP's is there twice: whoever is in between may have looked at the other one.
pub fn are_said_once(headers: &HeaderMap) -> Result<(), Error> {
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let twice = |name: &&HeaderName| {
        name.as_str().starts_with("mcp-") && headers.get_all(*name).iter().nth(1).is_some()
    };
    match headers.keys().find(twice) {
        Some(name) => Err(mismatch(format!("{name}: expected one value, found several"))),
        None => Ok(()),
    }
}

/// `MCP-Protocol-Version` says what `_meta` says.
pub fn version_fits(header: Option<&str>, body: Option<&str>) -> Result<(), Error> {
    match (header, body) {
        (Some(header), Some(body)) if header == body => Ok(()),
        // What is missing in the body is for others to say.
        (Some(MODERN), None) | (None, None) => Ok(()),
        (Some(_), _) => Err(mismatch("MCP-Protocol-Version does not name the revision that _meta names")),
        (None, Some(_)) => Err(mismatch("expected the header MCP-Protocol-Version")),
    }
}

/// Whether `Mcp-Method` says that this is the method.
pub fn announce(headers: &HeaderMap, method: &str) -> bool {
    headers.get(&METHOD).is_some_and(|value| value == method)
}

/// `Mcp-Method` says what the body says. A notification may go without.
pub fn method_fits(headers: &HeaderMap, method: &str) -> Result<(), Error> {
    match text(headers, &METHOD)? {
        Some(header) if header == method => Ok(()),
        Some(_) => Err(mismatch("Mcp-Method does not name the method of the body")),
        None if method.starts_with("notifications/") => Ok(()),
        None => Err(mismatch("expected the header Mcp-Method")),
    }
}

/// `Mcp-Name` says what is called, read, or which task it is about. On task methods it may be absent, because there are
/// clients that do not send it, unless the server is told to be strict.
pub fn name_fits(headers: &HeaderMap, method: &str, name: Option<&str>, strict: bool) -> Result<(), Error> {
    let needed = match method {
        "tools/call" | "prompts/get" | "resources/read" => true,
        "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/steer" | "tasks/pause" | "tasks/resume" => {
            strict
        }
        _ => return Ok(()),
    };
    match text(headers, &NAME)? {
        Some(header) => {
            let header = decoded(header)?;
            match name {
                Some(name) if name != header => Err(mismatch("Mcp-Name does not name what the body names")),
                // What is no text is for the method to refuse.
                Some(_) | None => Ok(()),
            }
        }
        None if needed => Err(mismatch("expected the header Mcp-Name")),
        None => Ok(()),
    }
}

/// A value as it was before it was made fit for a header.
fn decoded(value: &str) -> Result<Cow<'_, str>, Error> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(Cow::Borrowed(value));
    };
    let wrong = || mismatch("expected base64 between =?base64? and ?=");
    let bytes = STANDARD.decode(inner).map_err(|_| wrong())?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| wrong())
}

/// The headers that repeat arguments of a tool.
pub struct ParameterHeaders(BTreeMap<String, String>);

impl ParameterHeaders {
    /// Those of a request. One that is no text stands as nothing that an argument could be.
    pub fn of(headers: &HeaderMap) -> ParameterHeaders {
        let found = headers.iter().filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix(PARAMETER_HEADERS)?;
            Some((name.to_owned(), value.to_str().unwrap_or("\u{0}").trim().to_owned()))
        });
        ParameterHeaders(found.collect())
    }

    /// Refuses unless each argument that the tool wants repeated is.
    pub fn check(&self, tool: &Tool, arguments: Option<&Map<String, Value>>) -> Result<(), Error> {
        for wanted in tool.headers() {
            let argument = arguments.and_then(|arguments| wanted.argument(arguments));
            let header = self.0.get(&wanted.name.to_ascii_lowercase());
            let name = &wanted.name;
            match (argument, header) {
                (None, None) => {}
                (Some(argument), Some(header)) => {
                    if !says(&decoded(header)?, argument) {
                        return Err(mismatch(format!(
                            "Mcp-Param-{name} does not say what the argument says"
                        )));
                    }
                }
                (Some(_), None) => return Err(mismatch(format!("expected the header Mcp-Param-{name}"))),
                (None, Some(_)) => {
                    return Err(mismatch(format!("Mcp-Param-{name} repeats an argument that is not there")));
                }
            }
        }
        Ok(())
    }
}

/// Whether a header says what an argument says. Numbers are compared as numbers.
fn says(header: &str, argument: &Value) -> bool {
    match argument {
        Value::String(text) => header == text,
        Value::Bool(flag) => header == flag.to_string(),
        Value::Number(number) => match (header.parse::<f64>(), number.as_f64()) {
            (Ok(header), Some(number)) => header == number,
            (Ok(_) | Err(_), _) => false,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d15_a_value_in_base64_is_compared_as_what_it_was() {
        assert_eq!(decoded("=?base64?SGVsbG8=?=").unwrap(), "Hello");
        assert_eq!(decoded("SGVsbG8=").unwrap(), "SGVsbG8=");
        assert_eq!(decoded("=?base64?SGVsbG8=").unwrap(), "=?base64?SGVsbG8=");
        for wrong in ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?="] {
            assert_eq!(decoded(wrong).unwrap_err().code, HEADER_MISMATCH, "{wrong}");
        }
    }

    #[test]
    fn d18_numbers_are_compared_as_numbers() {
        assert!(says("42", &Value::from(42)) && says("42.0", &Value::from(42)));
        assert!(!says("41", &Value::from(42)) && !says("x", &Value::from(42)));
        assert!(says("true", &Value::from(true)) && !says("TRUE", &Value::from(true)));
    }
}
