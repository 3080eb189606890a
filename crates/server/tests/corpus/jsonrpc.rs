//! What must hold whatever comes to the JSON-RPC entry: header lines, an empty line, and the body. Shared like the checks
//! beside it.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use handover_desk::gate;
use handover_desk::identity::Identity;
use handover_desk::identity::Profile;
use handover_kernel::command::Need;
use handover_kernel::event::Question;
use handover_kernel::{Blob, Face, QuestionKey, Text};
use handover_server::face::grid::methods::Method;
use handover_server::face::grid::parts;
use handover_server::face::mcp::call::ToolCall;
use handover_server::face::mcp::caller::{Declared, Era, Opening, POLL, Wishes, era, modern, progress_token};
use handover_server::face::mcp::http::headers::{self, ParameterHeaders};
use handover_server::face::mcp::message::{Error, Incoming, answer, is_id, refusal};
use handover_server::face::mcp::{content, handshake, question};
use handover_server::http::{is_json, origin};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::checks::Reached;

/// The bytes are a request to the endpoint.
pub fn jsonrpc(bytes: &[u8]) -> Reached {
    let (headers, body) = split(bytes);
    if let Some(origin) = text(&headers, "origin") {
        origin::is_welcome(origin, &["https://console.example".to_owned()]);
    }
    text(&headers, "content-type").map(is_json);
    headers::takes_events(&headers);
    ParameterHeaders::of(&headers);
    let message = match Incoming::parse(body) {
        Ok(message) => message,
        Err(unreadable) => {
            can_be_told(unreadable.id, &unreadable.error);
            return Reached::Nothing;
        }
    };
    match message {
        Incoming::Request { id, method, params } => {
            assert!(is_id(id));
            let line = answer(id, "{}");
            let said: Value = serde_json::from_str(&line).expect("an answer is JSON");
            assert_eq!(Ok(&said["id"]), serde_json::from_str(id.get()).as_ref().map_err(|_| ()));
            assert!(!line.contains('\n'), "a line break would end the event: {line}");
            if let Some((same, poll)) = Opening::of_poll(body) {
                let said = Opening::of(params).expect("a poll that is read in one go can be read in two");
                assert_eq!((same.get(), POLL), (id.get(), &*method));
                assert_eq!(poll.about(POLL), said.about(POLL));
            }
            if let Some(method) = Method::of(&method) {
                return grid(id, method, params, body);
            }
            match request(&headers, &method, params) {
                Ok(reached) => reached,
                Err(error) => {
                    can_be_told(Some(id), &error);
                    Reached::Decoded
                }
            }
        }
        Incoming::Notification { method, .. } => match headers::method_fits(&headers, &method) {
            Ok(()) => Reached::Admitted,
            Err(error) => {
                can_be_told(None, &error);
                Reached::Decoded
            }
        },
        Incoming::Response { .. } => Reached::Decoded,
    }
}

/// A method of the Grid face, and whatever its message says.
fn grid(id: &RawValue, method: Method, params: Option<&RawValue>, body: &[u8]) -> Reached {
    let parts = parts::of_body(body);
    assert!(
        parts.is_empty() || parts::of_body(&parts::to_body(&parts)) == parts,
        "what is said is given back"
    );
    match method.read(params) {
        Ok(_) => Reached::Accepted,
        Err(error) => {
            can_be_told(Some(id), &error);
            Reached::Decoded
        }
    }
}

/// Header lines that are some, and the body. Without an empty line everything is the body.
fn split(bytes: &[u8]) -> (HeaderMap, &[u8]) {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\n\n") else {
        return (HeaderMap::new(), bytes);
    };
    let mut headers = HeaderMap::new();
    for line in bytes[..end].split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    (headers, &bytes[end + 2..])
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// As the endpoint takes it, and then everything that reads more of it.
fn request(headers: &HeaderMap, method: &str, params: Option<&RawValue>) -> Result<Reached, Error> {
    let mut said = Opening::of(params)?;
    let about = said.about(method);
    let meta = said.meta();
    let version = text(headers, "mcp-protocol-version");
    let mut declared = Declared::default();
    match era(method, &meta, version)? {
        Era::Modern => {
            headers::are_said_once(headers)?;
            headers::version_fits(version, meta.version.as_deref())?;
            declared = modern(caller(), meta, Wishes::default())?.declared;
            headers::method_fits(headers, method)?;
            headers::name_fits(headers, method, about.as_deref(), false)?;
        }
        Era::Handshake if method == "initialize" => {
            let (result, session) = handshake::initialize(params, Profile::default())?;
            serde_json::from_str::<Value>(&result).expect("what is initialized is JSON");
            HeaderValue::from_str(&session).expect("a session id is visible ASCII");
            handshake::declared(&session);
        }
        Era::Handshake if method == "logging/setLevel" => {
            handshake::asked_level(params)?;
        }
        Era::Handshake => {
            progress_token(meta.progress_token)?;
        }
    }
    if let (Some(params), "tools/call") = (params, method) {
        let call: ToolCall =
            serde_json::from_str(params.get()).map_err(|error| Error::invalid(error.to_string()))?;
        called(&call, declared)?;
    }
    Ok(Reached::Accepted)
}

fn caller() -> gate::Caller {
    let principal =
        Identity::Development.authenticate(Some("planner")).expect("any name will do in development");
    gate::Caller::new(principal, Face::Mcp)
}

/// What the tools of a worker read of their arguments, and answers to what it asks.
fn called(call: &ToolCall, declared: Declared) -> Result<(), Error> {
    let Some(arguments) = &call.arguments else { return Ok(()) };
    if let Some(result) = arguments.get("result") {
        reads_the_same_again(result)?;
    }
    let (Some(Value::Object(questions)), Some(responses)) =
        (arguments.get("questions"), &call.input_responses)
    else {
        return Ok(());
    };
    for (key, asked) in questions {
        answered(&asked_so(key, asked), responses, declared)?;
    }
    Ok(())
}

fn reads_the_same_again(result: &Value) -> Result<(), Error> {
    let given = content::read(result)?;
    let verbatim: Value = serde_json::from_slice(&given.verbatim).expect("what is kept of a result is JSON");
    let again = content::read(&verbatim).expect("what is kept of a result is one");
    assert_eq!((&again.output, again.is_error), (&given.output, given.is_error), "{verbatim}");
    content::of_bytes("t", &given.output);
    Ok(())
}

fn asked_so(key: &str, asked: &Value) -> Question {
    let bytes = |name: &str| asked.get(name).map(|value| Blob::from(value.to_string().into_bytes()));
    let permission = asked.get("permission").and_then(Value::as_bool).unwrap_or_default();
    Question {
        key: QuestionKey::from(key),
        need: if permission { Need::Authorization } else { Need::Input },
        text: Text::from(asked.get("message").and_then(Value::as_str).unwrap_or_default()),
        schema: bytes("schema").unwrap_or_default(),
        wire: bytes("request"),
    }
}

fn answered(asked: &Question, responses: &Map<String, Value>, declared: Declared) -> Result<(), Error> {
    let request = question::request(asked);
    assert!(request.is_object(), "{request}");
    question::can_be_asked(declared, &request);
    question::capability(&request);
    let Some(response) = responses.get(asked.key.as_str()) else { return Ok(()) };
    let shown = question::shown(&question::reply(asked, response, "inputResponses")?);
    assert!(shown["action"].is_string(), "{shown}");
    Ok(())
}

/// A refusal is one line of JSON with a code and a reason.
fn can_be_told(id: Option<&RawValue>, error: &Error) {
    let line = refusal(id, error);
    let told: Value = serde_json::from_str(&line).expect("a refusal is JSON");
    assert!(!line.contains('\n') && told["error"]["code"].is_i64(), "{line}");
    assert!(told["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{line}");
    assert!((200..500).contains(&error.status), "{line}: {}", error.status);
}
