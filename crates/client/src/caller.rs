//! A server as a program uses it: each call of a tool is one request of MCP's stateless revision.

use hyper::HeaderMap;
use hyper::body::Bytes;
use hyper::http::HeaderValue;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::bridge::events::Events;
use crate::bridge::{Endpoint, headers, is_stream};
use crate::jsonrpc;
use crate::mcp::{CLI, METHOD_HEADER, MODERN, NAME_HEADER, VERSION_HEADER};

/// What a token is refused with.
const UNAUTHENTICATED: &str = "UNAUTHENTICATED";

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no server, or it went away.
    Unreachable(String),
    /// It wants a token, or another one.
    Unauthenticated(String),
    /// It says no.
    Refused {
        /// Why, in one word; empty if it did not say.
        code: String,
        /// Why, in a sentence.
        message: String,
    },
}

impl Error {
    /// The word for why, if there is one.
    pub fn code(&self) -> &str {
        match self {
            Error::Unreachable(_) => "SERVER_UNREACHABLE",
            Error::Unauthenticated(_) => UNAUTHENTICATED,
            Error::Refused { code, .. } => code,
        }
    }

    /// Whether what was asked about is not there, or not for this caller.
    pub fn is_not_found(&self) -> bool {
        matches!(self.code(), "SESSION_NOT_FOUND" | "AGENT_NOT_FOUND" | "RESOURCE_NOT_FOUND")
    }

    /// Whether the same call may do better in a while.
    pub fn may_pass(&self) -> bool {
        matches!(
            self.code(),
            "SERVER_UNREACHABLE"
                | "BUSY"
                | "CHECKS_BUSY"
                | "RATE_LIMITED"
                | "STOPPING"
                | "STORE_UNAVAILABLE"
                | "MEMORY_BUDGET_SPENT"
                | "TOO_MANY_CONNECTIONS"
        )
    }

    fn of(error: &jsonrpc::Error) -> Error {
        let said = error.data.as_ref().and_then(|data| data["code"].as_str());
        let code = said.or(error.name.as_deref()).unwrap_or_default().to_owned();
        let message = error.message.to_string();
        let status = error.data.as_ref().and_then(|data| data["status"].as_u64());
        match (code.as_str(), status) {
            ("SERVER_UNREACHABLE", _) => Error::Unreachable(message),
            (UNAUTHENTICATED, _) | (_, Some(401)) => Error::Unauthenticated(message),
            (_, Some(404)) => Error::Unreachable(message),
            _ => Error::Refused { code, message },
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Unreachable(message)
            | Error::Unauthenticated(message)
            | Error::Refused { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// Whoever calls a server.
pub struct Caller {
    endpoint: Endpoint,
    /// `traceparent` of what calls it.
    trace: Option<String>,
}

impl Caller {
    /// Of the server at this endpoint.
    pub fn new(endpoint: Endpoint) -> Caller {
        Caller { endpoint, trace: None }
    }

    /// As part of a trace: its `traceparent` goes with each call.
    pub fn traced(self, trace: Option<String>) -> Caller {
        Caller { trace, ..self }
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Call a tool. With a key the same call has one effect, however often it is sent.
    pub async fn call(&self, tool: &str, arguments: Value, key: Option<&str>) -> Result<Value, Error> {
        let params = json!({ "name": tool, "arguments": arguments });
        let mut result = self.ask("tools/call", params, tool, key).await?;
        if result["isError"] == true {
            let message = result["content"][0]["text"].as_str().unwrap_or_default();
            return Err(told(message));
        }
        Ok(result["structuredContent"].take())
    }

    /// The ids of the caller's tasks that begin so, of the newest ones.
    pub async fn task_ids(&self, begin: &str) -> Result<Vec<String>, Error> {
        let params = json!({
            "ref": { "type": "ref/resource", "uri": "task://{id}" },
            "argument": { "name": "id", "value": begin },
        });
        let result = self.ask("completion/complete", params, "", None).await?;
        let values = result["completion"]["values"].as_array().into_iter().flatten();
        Ok(values.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    async fn ask(&self, method: &str, params: Value, name: &str, key: Option<&str>) -> Result<Value, Error> {
        let mut params = params;
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": { "name": CLI, "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        if let Some(key) = key {
            meta["dev.handover/idempotencyKey"] = json!(key);
        }
        if let Some(trace) = &self.trace {
            meta["traceparent"] = json!(trace);
        }
        params["_meta"] = meta;
        let mut all = HeaderMap::new();
        all.insert(VERSION_HEADER, HeaderValue::from_static(MODERN));
        all.insert(METHOD_HEADER, headers::value(method));
        if !name.is_empty() {
            all.insert(NAME_HEADER, headers::value(name));
        }
        let body = Bytes::from(jsonrpc::request("1", method, &params));
        self.send(body, all).await.map_err(|error| Error::of(&error))
    }

    async fn send(&self, body: Bytes, headers: HeaderMap) -> Result<Value, jsonrpc::Error> {
        let endpoint = &self.endpoint;
        let mut answer = endpoint.post(body, headers).await?;
        if !is_stream(&answer) {
            let body = endpoint.all(&mut answer).await?;
            let refused = || endpoint.refused(answer.head.status.as_u16(), &body);
            return answer_in(&body).ok_or_else(refused)?;
        }
        let mut events = Events::default();
        while let Some(piece) = endpoint.next(&mut answer).await? {
            let messages = events.take(&piece);
            for message in messages.map_err(|_| endpoint.gone("a message of it is too long"))? {
                if let Some(answered) = answer_in(&message) {
                    // Read to the end, so that the connection can be used again; it is not worth an error.
                    _ = endpoint.next(&mut answer).await;
                    return answered;
                }
            }
        }
        Err(endpoint.gone("the stream ended before its answer"))
    }
}

/// The answer that a message is; none if it is another message.
fn answer_in(message: &[u8]) -> Option<Result<Value, jsonrpc::Error>> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<Value>,
        error: Option<Refused>,
    }
    #[derive(Deserialize)]
    struct Refused {
        code: i32,
        message: String,
        data: Option<Map<String, Value>>,
    }
    let answer: Answer = serde_json::from_slice(message).ok()?;
    match (answer.result, answer.error) {
        (Some(result), _) => Some(Ok(result)),
        (None, Some(refused)) => {
            let error = jsonrpc::Error::new(refused.code, refused.message);
            Some(Err(jsonrpc::Error { data: refused.data.map(Value::Object), ..error }))
        }
        (None, None) => None,
    }
}

/// What a tool says that could not do what was asked: a sentence, and the code behind it.
fn told(message: &str) -> Error {
    let code = message.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let is_code =
        |code: &str| !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    match code.filter(|(_, code)| is_code(code)) {
        Some((message, code)) => Error::Refused { code: code.to_owned(), message: message.to_owned() },
        None => Error::Refused { code: String::new(), message: message.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_taken_apart_into_its_sentence_and_its_code() {
        let refused =
            |code: &str, message: &str| Error::Refused { code: code.into(), message: message.into() };
        assert_eq!(told("there is none (SESSION_NOT_FOUND)"), refused("SESSION_NOT_FOUND", "there is none"));
        assert_eq!(told("no (really)"), refused("", "no (really)"));
        assert_eq!(told("no ()"), refused("", "no ()"));
        assert!(told("x (SESSION_NOT_FOUND)").is_not_found() && told("x (BUSY)").may_pass());
    }

    #[test]
    fn a_notification_is_no_answer_and_an_error_keeps_its_data() {
        assert!(answer_in(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#).is_none());
        assert!(answer_in(b"no json").is_none());
        let error = answer_in(
            br#"{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"m","data":{"code":"BUSY"}}}"#,
        );
        assert_eq!(Error::of(&error.unwrap().unwrap_err()).code(), "BUSY");
    }
}
