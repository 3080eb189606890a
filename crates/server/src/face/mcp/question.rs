//! Questions as MCP puts them, and its answers as the kernel keeps them.
//!
//! MCP can ask for flat objects of primitive fields. Any other schema becomes one field `answer` whose text is the JSON
//! that is asked for.

use axum::http::Uri;
use handover_kernel::Blob;
use handover_kernel::command::{Need, Reply};
use handover_kernel::event::Question;
use serde_json::{Map, Value, json};

use super::caller::Declared;
use super::message::Error;

/// The field of a form that asks for one thing.
const ANSWER: &str = "answer";

/// The request by which a client is asked.
pub fn request(question: &Question) -> Value {
    if let Some(wire) = &question.wire
        && let Ok(request @ Value::Object(_)) = serde_json::from_slice(wire)
    {
        return request;
    }
    let schema = serde_json::from_slice::<Value>(&question.schema).ok();
    let requested = match (question.need, schema) {
        (Need::Authorization, None) => json!({
            "type": "object",
            "properties": { "approved": { "type": "boolean", "title": "Approve", "description": &*question.text } },
            "required": ["approved"],
        }),
        (_, Some(schema)) if is_flat(&schema) => schema,
        (_, Some(_)) => one_field("The answer as JSON"),
        (Need::Input, None) => one_field("The answer"),
    };
    json!({
        "method": "elicitation/create",
        "params": { "mode": "form", "message": &*question.text, "requestedSchema": requested },
    })
}

/// The same as whoever is asked sees it: it says who asks.
pub fn put(question: &Question, asker: &str) -> Value {
    let mut request = request(question);
    let Some(params) = request.get_mut("params").and_then(Value::as_object_mut) else { return request };
    if let Some(Value::String(message)) = params.get_mut("message") {
        *message = format!("{asker} asks: {message}");
    }
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if let Value::Object(meta) = meta {
        meta.insert("dev.handover/askedBy".to_owned(), json!({ "kind": "agent", "id": asker }));
    }
    request
}

/// What is wrong with a request that a worker wants to put to its caller's client, if anything is.
pub fn malformed(request: &Value) -> Option<&'static str> {
    let params = request.get("params");
    let method = request.get("method").and_then(Value::as_str);
    let url = request.pointer("/params/mode").and_then(Value::as_str) == Some("url");
    match method {
        Some("elicitation/create") if url => {
            let address = request.pointer("/params/url").and_then(Value::as_str);
            let address = address.and_then(|address| address.parse::<Uri>().ok());
            let fits = address.is_some_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
            match fits {
                true => lacks_message(request),
                false => Some("expected params.url to be an https: address"),
            }
        }
        Some("elicitation/create") => {
            let schema = request.pointer("/params/requestedSchema");
            match schema.is_some_and(is_form) {
                true => lacks_message(request),
                false => Some(
                    "expected params.requestedSchema: an object whose properties are strings, numbers, booleans or lists to choose from",
                ),
            }
        }
        Some("sampling/createMessage") => {
            let messages = request.pointer("/params/messages").and_then(Value::as_array);
            let is_message = |message: &Value| {
                let role = message.get("role").and_then(Value::as_str);
                let content = message.get("content");
                let is_block = |block: &Value| block.get("type").is_some_and(Value::is_string);
                matches!(role, Some("user" | "assistant"))
                    && content.is_some_and(|content| match content.as_array() {
                        Some(blocks) => !blocks.is_empty() && blocks.iter().all(is_block),
                        None => is_block(content),
                    })
            };
            if !messages.is_some_and(|messages| !messages.is_empty() && messages.iter().all(is_message)) {
                return Some(
                    "expected params.messages: a list of messages, each with role (user or assistant) and content",
                );
            }
            let tokens = params.and_then(|params| params.get("maxTokens")).and_then(Value::as_u64);
            tokens
                .is_none_or(|tokens| tokens == 0)
                .then_some("expected params.maxTokens, a number of 1 or more")
        }
        Some(_) | None => None,
    }
}

fn one_field(title: &str) -> Value {
    json!({ "type": "object", "properties": { ANSWER: { "type": "string", "title": title } }, "required": [ANSWER] })
}

fn lacks_message(request: &Value) -> Option<&'static str> {
    let message = request.pointer("/params/message").and_then(Value::as_str);
    message.is_none_or(|message| message.trim().is_empty()).then_some("expected params.message, a text")
}

/// Whether a form can ask for it, and for something.
fn is_flat(schema: &Value) -> bool {
    let fields = schema.get("properties").and_then(Value::as_object);
    is_form(schema) && fields.is_some_and(|fields| !fields.is_empty())
}

/// Whether a form can ask for it: an object whose fields are primitive, or lists to choose from.
fn is_form(schema: &Value) -> bool {
    let primitive = |field: &Value| {
        let kind = field.get("type").and_then(Value::as_str);
        matches!(kind, Some("string" | "number" | "integer" | "boolean"))
            || kind == Some("array")
                && field
                    .get("items")
                    .is_some_and(|items| items.get("enum").is_some() || items.get("anyOf").is_some())
    };
    schema.get("type").and_then(Value::as_str) == Some("object")
        && schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|fields| fields.values().all(primitive))
}

/// Whether the caller said that it can be asked so.
pub fn can_be_asked(declared: Declared, request: &Value) -> bool {
    match request.get("method").and_then(Value::as_str) {
        Some("sampling/createMessage") => declared.sampling,
        Some("roots/list") => declared.roots,
        Some(_) | None => match request.pointer("/params/mode").and_then(Value::as_str) {
            Some("url") => declared.url,
            Some(_) | None => declared.form,
        },
    }
}

/// The capability that a request needs, as the caller would have to declare it.
pub fn capability(request: &Value) -> Value {
    match request.get("method").and_then(Value::as_str) {
        Some("sampling/createMessage") => json!({ "sampling": {} }),
        Some("roots/list") => json!({ "roots": {} }),
        Some(_) | None => match request.pointer("/params/mode").and_then(Value::as_str) {
            Some("url") => json!({ "elicitation": { "url": {} } }),
            Some(_) | None => json!({ "elicitation": {} }),
        },
    }
}

/// What a client answered. Whether it fits what was asked for is the desk's to say, when the answer is put.
/// The answers are the caller's `field`.
pub fn reply(question: &Question, response: &Value, field: &str) -> Result<Reply, Error> {
    let wrong = |what: String| Error::invalid(format!("{field}.{}: {what}", question.key));
    let request = request(question);
    let response = response.as_object().ok_or_else(|| wrong("expected an object".to_owned()))?;
    match request.get("method").and_then(Value::as_str) {
        Some("sampling/createMessage") => {
            if !response.contains_key("content") || !response.contains_key("role") {
                return Err(wrong("expected a message with role and content".to_owned()));
            }
            Ok(content(&Value::Object(response.clone())))
        }
        Some("roots/list") => {
            if !response.get("roots").is_some_and(Value::is_array) {
                return Err(wrong("expected a list of roots".to_owned()));
            }
            Ok(content(&Value::Object(response.clone())))
        }
        Some(_) | None => elicited(question, &request, response).map_err(wrong),
    }
}

fn content(value: &Value) -> Reply {
    Reply::Content(Blob::from(value.to_string().into_bytes()))
}

fn elicited(question: &Question, request: &Value, response: &Map<String, Value>) -> Result<Reply, String> {
    match response.get("action").and_then(Value::as_str) {
        Some("decline") => return Ok(Reply::Refused),
        Some("cancel") => return Ok(Reply::Dismissed),
        Some("accept") => {}
        Some(_) | None => return Err("expected an action: accept, decline or cancel".to_owned()),
    }
    let given = response.get("content").cloned().unwrap_or_else(|| json!({}));
    if request.pointer("/params/requestedSchema").is_none() {
        // Out of band: what was done at the address is not told here.
        return Ok(content(&given));
    }
    // A form is an object, whatever else its fields are.
    if !given.is_object() {
        return Err("expected an object".to_owned());
    }
    match question.wire {
        Some(_) => Ok(content(&given)),
        None => unwrap(question, &given),
    }
}

/// What was asked for, out of the form that asked for it.
fn unwrap(question: &Question, given: &Value) -> Result<Reply, String> {
    let own = serde_json::from_slice::<Value>(&question.schema).ok();
    let text = || {
        let text = given.get(ANSWER).and_then(Value::as_str);
        text.ok_or_else(|| format!("expected {ANSWER} to be text"))
    };
    match own {
        Some(schema) if is_flat(&schema) => Ok(content(given)),
        Some(_) => {
            let value: Value = serde_json::from_str(text()?)
                .map_err(|error| format!("expected {ANSWER} to be JSON: {error}"))?;
            Ok(content(&value))
        }
        None if question.need == Need::Authorization => {
            match given.get("approved").and_then(Value::as_bool) {
                Some(false) => Ok(Reply::Refused),
                Some(true) => Ok(content(given)),
                None => Err("expected approved to be true or false".to_owned()),
            }
        }
        None => Ok(Reply::Content(Blob::from(text()?.as_bytes()))),
    }
}

/// What an assignee that speaks MCP is told of an answer.
pub fn shown(reply: &Reply) -> Value {
    match reply {
        Reply::Refused => json!({ "action": "decline" }),
        Reply::Dismissed => json!({ "action": "cancel" }),
        Reply::Content(bytes) => {
            let content = serde_json::from_slice(bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()));
            json!({ "action": "accept", "content": content })
        }
    }
}

#[cfg(test)]
mod tests {
    use handover_kernel::{QuestionKey, Text};

    use super::*;

    fn question(schema: &str) -> Question {
        Question {
            key: QuestionKey::from("q"),
            need: Need::Input,
            text: Text::from("which?"),
            schema: Blob::from(schema.as_bytes()),
            wire: None,
        }
    }

    fn accepted(content: Value) -> Value {
        json!({ "action": "accept", "content": content })
    }

    fn kept(question: &Question, response: &Value) -> Result<String, String> {
        match reply(question, response, "answers").map_err(|error| error.message.into_owned())? {
            Reply::Content(bytes) => Ok(String::from_utf8(bytes.to_vec()).unwrap()),
            Reply::Refused => Ok("refused".to_owned()),
            Reply::Dismissed => Ok("dismissed".to_owned()),
        }
    }

    #[test]
    fn a_flat_schema_is_asked_for_as_it_is() {
        let flat = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        let asked = request(&question(flat));
        assert_eq!(asked["params"]["requestedSchema"], serde_json::from_str::<Value>(flat).unwrap());
        assert_eq!(kept(&question(flat), &accepted(json!({ "n": 3 }))).unwrap(), "{\"n\":3}");
    }

    #[test]
    fn h17_an_answer_that_is_no_form_is_refused() {
        let flat = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        for wrong in [accepted(json!("x")), json!({ "action": "maybe" }), json!(12345), json!(null)] {
            kept(&question(flat), &wrong).unwrap_err();
        }
    }

    #[test]
    fn a_schema_that_is_not_flat_becomes_one_field_of_json() {
        let list = r#"{"type":"array","items":{"type":"integer"}}"#;
        let asked = request(&question(list));
        assert_eq!(asked["params"]["requestedSchema"]["required"], json!(["answer"]));
        assert_eq!(kept(&question(list), &accepted(json!({ "answer": "[1, 2]" }))).unwrap(), "[1,2]");
        kept(&question(list), &accepted(json!({ "answer": "no json" }))).unwrap_err();
    }

    #[test]
    fn a_question_without_a_schema_is_answered_with_text() {
        assert_eq!(kept(&question(""), &accepted(json!({ "answer": "blue" }))).unwrap(), "blue");
        assert_eq!(kept(&question(""), &json!({ "action": "decline" })).unwrap(), "refused");
        assert_eq!(kept(&question(""), &json!({ "action": "cancel" })).unwrap(), "dismissed");
    }

    #[test]
    fn permission_is_asked_for_with_a_tick() {
        let permission = Question { need: Need::Authorization, ..question("") };
        assert_eq!(kept(&permission, &accepted(json!({ "approved": false }))).unwrap(), "refused");
        assert_eq!(kept(&permission, &accepted(json!({ "approved": true }))).unwrap(), "{\"approved\":true}");
    }

    #[test]
    fn whoever_is_asked_is_told_who_asks() {
        let form = put(&question(""), "worker");
        assert_eq!(form["params"]["message"], "worker asks: which?");
        assert_eq!(form["params"]["_meta"]["dev.handover/askedBy"]["id"], "worker");
    }

    #[test]
    fn what_a_client_could_not_make_sense_of_is_not_asked() {
        let sampling = |params: Value| json!({ "method": "sampling/createMessage", "params": params });
        let message = || json!({ "role": "user", "content": { "type": "text", "text": "x" } });
        let url = |url: &str| json!({ "method": "elicitation/create", "params": { "mode": "url", "message": "x", "url": url } });
        let form = |params: Value| json!({ "method": "elicitation/create", "params": params });
        let fields = |kind: &str| json!({ "type": "object", "properties": { "a": { "type": kind } } });
        for (request, fits) in [
            (sampling(json!({ "messages": [message()], "maxTokens": 5 })), true),
            (sampling(json!({ "messages": [message()] })), false),
            (sampling(json!({ "messages": [message()], "maxTokens": 0 })), false),
            (sampling(json!({ "messages": [], "maxTokens": 5 })), false),
            (sampling(json!({ "messages": "x", "maxTokens": 5 })), false),
            (sampling(json!({ "messages": [{ "role": "system", "content": {} }], "maxTokens": 5 })), false),
            (url("https://pay.example/x"), true),
            (url("http://pay.example/x"), false),
            (url("javascript:alert(1)"), false),
            (url("https:"), false),
            (form(json!({ "mode": "url", "message": "x" })), false),
            (form(json!({ "mode": "url", "url": "https://pay.example/x" })), false),
            (form(json!({ "message": "x", "requestedSchema": fields("string") })), true),
            (
                form(json!({ "message": "x", "requestedSchema": { "type": "object", "properties": {} } })),
                true,
            ),
            (form(json!({ "message": "x", "requestedSchema": fields("object") })), false),
            (form(json!({ "message": "", "requestedSchema": fields("string") })), false),
            (form(json!({ "requestedSchema": fields("string") })), false),
            (form(json!({ "message": "x" })), false),
            (json!({ "method": "roots/list" }), true),
        ] {
            assert_eq!(malformed(&request).is_none(), fits, "{request}");
        }
    }

    #[test]
    fn a_question_of_this_wire_is_asked_word_for_word() {
        let wire =
            json!({ "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 5 } });
        let asked = Question { wire: Some(Blob::from(wire.to_string().into_bytes())), ..question("") };
        assert_eq!(request(&asked), wire);
        assert!(!can_be_asked(Declared { form: true, ..Declared::default() }, &wire));
        assert!(can_be_asked(Declared { sampling: true, ..Declared::default() }, &wire));
        kept(&asked, &accepted(json!({}))).unwrap_err();
        kept(&asked, &json!({ "role": "assistant", "content": { "type": "text", "text": "x" } })).unwrap();
    }
}
