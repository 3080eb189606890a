//! What the methods are, for machines: the document says what the server does, and no more and no less.

use handover_desk::approvers::Rules;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};

use super::client::Node;
use super::others::stage::*;

/// The document as the server has it.
async fn document(stage: &Stage) -> Value {
    let request = Node::new(stage, "planner").post("/grid/openrpc.json", Value::Null).by("GET");
    let answer = request.without("authorization").answer().await;
    assert_eq!(answer.status, 200);
    answer.message().clone()
}

fn names(document: &Value) -> BTreeSet<&str> {
    document["methods"].as_array().unwrap().iter().map(|method| method["name"].as_str().unwrap()).collect()
}

/// The same document is in the repository. `UPDATE_OPENRPC=1` writes it there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_is_the_one_of_the_repository() {
    let stage = Stage::in_memory().await;
    let served = document(&stage).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grid.openrpc.json");
    let text = serde_json::to_string_pretty(&served).unwrap() + "\n";
    if std::env::var_os("UPDATE_OPENRPC").is_some() {
        std::fs::write(&path, text).unwrap();
    } else {
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "{} is not what is served: UPDATE_OPENRPC=1 writes it", path.display());
    }
    assert_eq!(Node::new(&stage, "planner").ok("rpc.discover", json!({})).await, served);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_of_the_document_is_answered_and_takes_what_the_document_says() {
    let stage = Stage::in_memory().await;
    let (document, planner) = (document(&stage).await, Node::new(&stage, "planner"));
    assert_eq!(names(&document).len(), 19);
    for method in document["methods"].as_array().unwrap() {
        let name = method["name"].as_str().unwrap();
        let answer = planner.answer(name, json!({})).await;
        assert_ne!(answer.message()["error"]["code"], NO_METHOD, "{name}");
        let extra = planner.refused(name, json!({ "undocumented": 1 })).await;
        let said = extra["message"].as_str().unwrap();
        assert!(said.contains("unknown field `undocumented`"), "{name}: {said}");
        for param in method["params"].as_array().unwrap() {
            let field = param["name"].as_str().unwrap();
            // Nothing fits this, so that it is refused for what it is and not for its name.
            let wrong = planner.refused(name, json!({ field: { "no": "such thing" } })).await;
            let said = wrong["message"].as_str().unwrap();
            assert!(!said.contains(&format!("unknown field `{field}`")), "{name}: {said}");
        }
        let required = |param: &&Value| param["required"] == true;
        for param in method["params"].as_array().unwrap().iter().filter(required) {
            let field = param["name"].as_str().unwrap();
            let others = method["params"].as_array().unwrap().iter().filter(required);
            let others = others.filter(|other| other["name"] != param["name"]);
            let fitting = |other: &Value| match other["schema"]["type"] == "integer" {
                true => json!(1),
                false => json!("x"),
            };
            let given: serde_json::Map<String, Value> =
                others.map(|other| (other["name"].as_str().unwrap().to_owned(), fitting(other))).collect();
            let missing = planner.refused(name, Value::Object(given)).await;
            let said = missing["message"].as_str().unwrap();
            assert!(said.contains(&format!("missing field `{field}`")), "{name} {field}: {said}");
        }
    }
    stage.stop().await;
}

/// No schema lets anything through that it does not name.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What each method's result must fit, and which of them were looked at.
struct Results {
    schemas: BTreeMap<String, Validator>,
    seen: BTreeSet<String>,
    /// What does not fit, each once.
    wrong: BTreeSet<String>,
}

impl Results {
    fn of(document: &Value) -> Results {
        let schema = |method: &Value| {
            let mut schema = json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "components": document["components"],
                "allOf": [method["result"]["schema"]],
            });
            close(&mut schema);
            let name = method["name"].as_str().unwrap().to_owned();
            (name, jsonschema::validator_for(&schema).unwrap())
        };
        let schemas = document["methods"].as_array().unwrap().iter().map(schema).collect();
        Results { schemas, seen: BTreeSet::new(), wrong: BTreeSet::new() }
    }

    /// A result, held against the document.
    async fn of_call(&mut self, node: &Node, method: &str, params: Value) -> Value {
        let result = node.ok(method, params).await;
        let wrong = self.schemas[method].iter_errors(&result);
        self.wrong.extend(wrong.map(|error| format!("{method}: {} at {}", error, error.instance_path())));
        self.seen.insert(method.to_owned());
        result
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_result_of_a_whole_conversation_is_what_the_document_says() {
    let rules = r#"[{ delegate = ["mailer"], by = ["lead"] }]"#;
    let stage = Stage::with(|set| set.approvals = Rules::parse(rules).unwrap()).await;
    let document = document(&stage).await;
    let mut results = Results::of(&document);
    let (planner, worker) = (Node::new(&stage, "planner"), Node::new(&stage, "worker"));
    let file = json!({ "type": "file", "file": { "name": "a", "mimeType": "text/plain", "bytes": "YQ==" } });
    let parts = json!({ "parts": [{ "type": "text", "text": "dig" }, { "type": "data", "data": { "depth": 3 } }, file] });
    let send = json!({
        "to": "worker", "message": parts, "title": "a hole", "messageId": "m1", "contextId": "garden",
        "sessionKey": "mine", "checkIn": 60, "failAfterMisses": 3, "deadline": 600, "queue": true,
    });
    let sent = results.of_call(&planner, "task/send", send.clone()).await;
    assert_eq!(results.of_call(&planner, "task/send", send).await["duplicate"], true);
    let task = sent["task"]["taskId"].as_str().unwrap();
    let on = |more: Value| {
        let mut params = json!({ "taskId": task });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let part = json!({ "to": "helper", "message": "hold the spade", "parentTaskId": task });
    let part = results.of_call(&planner, "task/send", part).await;
    assert!(part["warning"].is_string(), "{part}");
    let schema = json!({ "type": "object", "required": ["side"] });
    let side = json!({ "parts": [{ "type": "data", "data": { "side": "left" } }] });
    let asks = json!({ "message": "Where to?", "state": "input_required", "schema": schema });
    for (node, method, params) in [
        (&worker, "task/list", json!({ "unread": true, "waitMs": 1, "max": 5 })),
        (&worker, "task/read", on(json!({ "max": 1 }))),
        (&worker, "message/ack", on(json!({}))),
        (&worker, "task/update", on(json!({ "state": "working", "sessionKey": "its" }))),
        (&worker, "message/send", on(asks)),
        (&planner, "task/get", on(json!({}))),
        (&planner, "message/send", on(json!({ "message": side, "checkIn": 60 }))),
        (&worker, "message/send", on(json!({ "message": "Through the wall?", "state": "auth_required" }))),
        (&planner, "task/get", on(json!({}))),
        (&planner, "message/send", json!({ "to": "worker", "message": "yes" })),
        (&planner, "task/steer", on(json!({ "text": "deeper" }))),
        (&worker, "task/read", on(json!({}))),
        (&planner, "task/pause", on(json!({ "reason": "lunch" }))),
        (&worker, "task/read", on(json!({}))),
        (&planner, "task/resume", on(json!({}))),
        (&worker, "message/send", on(json!({ "message": parts }))),
        (&planner, "task/read", on(json!({}))),
        (&planner, "task/active", json!({ "nodeId": "worker" })),
        (&planner, "task/active", json!({ "nodeId": "nobody" })),
        (&planner, "task/tree", on(json!({}))),
        (&planner, "task/complete", on(json!({ "reason": "fine" }))),
        (&worker, "task/read", on(json!({}))),
        (&planner, "task/history", on(json!({}))),
        (&worker, "task/history", on(json!({ "after": 3, "max": 2 }))),
        (&planner, "task/list", json!({ "state": "completed", "contextId": "garden", "with": "worker" })),
        (&planner, "task/list", json!({ "max": 1 })),
    ] {
        results.of_call(node, method, params).await;
    }
    let given_up = planner.sends("worker", "dig").await;
    results.of_call(&worker, "task/cancel", json!({ "taskId": given_up, "reason": "no time" })).await;
    let turned_down = planner.sends("worker", "dig").await;
    results.of_call(&worker, "task/reject", json!({ "taskId": turned_down })).await;
    results.of_call(&planner, "task/read", json!({ "taskId": turned_down })).await;
    let lead = Node::new(&stage, "lead");
    let held = json!({ "to": "mailer", "message": "send it", "queue": true });
    let held = results.of_call(&planner, "task/send", held).await["task"]["taskId"].clone();
    let list = |max: u64| json!({ "max": max });
    let found = results.of_call(&lead, "approval/list", list(5)).await["approvals"][0].clone();
    let decided = |found: &Value, decision: &str, reason: Option<&str>| {
        let proposal = &found["approval"]["proposal"];
        json!({ "taskId": held, "proposal": proposal, "decision": decision, "reason": reason, "messageId": decision })
    };
    let back =
        results.of_call(&lead, "approval/decide", decided(&found, "ask_changes", Some("to whom?"))).await;
    assert_eq!(back["approval"]["decidedBy"], "lead");
    results.of_call(&planner, "task/get", json!({ "taskId": held })).await;
    let again =
        json!({ "taskId": held, "title": "mail", "instructions": "to me", "input": 1, "messageId": "p" });
    results.of_call(&planner, "task/propose", again).await;
    let found = results.of_call(&lead, "approval/list", list(5)).await["approvals"][0].clone();
    results.of_call(&lead, "approval/decide", decided(&found, "approve", None)).await;
    results.of_call(&planner, "task/history", json!({ "taskId": held })).await;
    assert!(results.wrong.is_empty(), "{:#?}", results.wrong);
    let seen: BTreeSet<&str> = results.seen.iter().map(String::as_str).collect();
    assert_eq!(seen, names(&document), "every method was called");
    stage.stop().await;
}
