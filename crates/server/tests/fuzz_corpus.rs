//! Bytes from outside are taken or refused and never panic: every input that is kept, and 100,000 made from them. The
//! fuzz targets run the same checks (`make fuzz`).

#[path = "corpus/checks.rs"]
mod checks;
#[path = "corpus/jsonrpc.rs"]
mod jsonrpc;
#[path = "../../engine/tests/golden/lives.rs"]
mod lives;
#[path = "corpus/signed.rs"]
mod signed;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use checks::Reached;
use handover_engine::codec;
use handover_server::face::macp::proto::task;
use handover_server::face::macp::proto::v1::{Envelope, SessionStartPayload};
use prost::Message;
use serde_json::{Value, json};

struct Target {
    name: &'static str,
    check: fn(&[u8]) -> Reached,
    seeds: fn() -> Vec<Vec<u8>>,
    /// Of the cases below, how many.
    cases: u32,
    /// How many of these must come all the way, or the cases show little.
    accepted_min: u32,
}

const TARGETS: [Target; 5] = [
    Target { name: "envelope", check: checks::envelope, seeds: envelopes, cases: 25_000, accepted_min: 900 },
    Target { name: "payload", check: checks::payload, seeds: payloads, cases: 25_000, accepted_min: 1_150 },
    Target { name: "event", check: checks::event, seeds: events, cases: 15_000, accepted_min: 1_800 },
    Target { name: "jsonrpc", check: jsonrpc::jsonrpc, seeds: requests, cases: 25_000, accepted_min: 1_000 },
    Target { name: "signed", check: signed::signed, seeds: signed_bodies, cases: 10_000, accepted_min: 150 },
];

#[test]
fn every_kept_input_is_taken_or_refused() {
    for target in &TARGETS {
        let kept = kept(target);
        let reached: BTreeSet<Reached> = kept.iter().map(|bytes| (target.check)(bytes)).collect();
        assert!(reached.contains(&Reached::Accepted), "{}: nothing was accepted", target.name);
        assert!(reached.len() > 1, "{}: nothing was refused", target.name);
    }
}

#[test]
fn every_seed_is_kept() {
    for target in &TARGETS {
        let kept: BTreeSet<Vec<u8>> = kept(target).into_iter().collect();
        for seed in (target.seeds)() {
            let name = name(&seed);
            assert!(kept.contains(&seed), "{}: expected {name}: run with UPDATE_CORPUS=1", target.name);
        }
    }
}

#[test]
fn a_hundred_thousand_damaged_inputs_are_taken_or_refused() {
    for target in &TARGETS {
        let seeds = kept(target);
        let mut random = Random(0x5eed);
        let mut accepted = 0;
        for _ in 0..target.cases {
            let bytes = damaged(&seeds, &mut random);
            let reached = std::panic::catch_unwind(|| (target.check)(&bytes));
            let Ok(reached) = reached else {
                panic!("{}: this input panics: {}", target.name, bytes.escape_ascii());
            };
            accepted += u32::from(reached == Reached::Accepted);
        }
        let (name, least) = (target.name, target.accepted_min);
        assert!(accepted >= least, "{name}: expected {least} cases that come all the way, found {accepted}");
    }
    assert_eq!(TARGETS.iter().map(|target| target.cases).sum::<u32>(), 100_000);
}

// ---- what is kept

/// Every kept input, after new seeds have been added if that is wanted. What is kept is never written again.
fn kept(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target.name);
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        fs::create_dir_all(&folder).expect("the folder can be made");
        for seed in (target.seeds)() {
            fs::write(folder.join(name(&seed)), &seed).expect("a seed can be written");
        }
    }
    let entries = fs::read_dir(&folder).expect("the corpus is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a kept input can be read")).collect()
}

/// A seed is called after its content: FNV-1a.
fn name(bytes: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// Good envelopes, and for each field a bad one.
fn envelopes() -> Vec<Vec<u8>> {
    let good: Vec<Envelope> = checks::lives().into_iter().flatten().collect();
    let changes: [fn(&mut Envelope); 9] = [
        |envelope| envelope.macp_version = "2.0".to_owned(),
        |envelope| envelope.mode = "macp.mode.decision.v1".to_owned(),
        |envelope| envelope.message_type = "HandoffOffer".to_owned(),
        |envelope| envelope.message_type = "SessionCancel".to_owned(),
        |envelope| envelope.message_id.clear(),
        |envelope| envelope.message_id = "handover:7".to_owned(),
        |envelope| envelope.session_id = "short".to_owned(),
        |envelope| envelope.sender = "somebody-else".to_owned(),
        |envelope| envelope.payload = vec![0x0a, 0x02, 0xff, 0xfe],
    ];
    let bad = changes.iter().map(|change| {
        let mut envelope = good[1].clone();
        change(&mut envelope);
        envelope
    });
    let all = good.iter().cloned().chain(bad);
    distinct(all.map(|envelope| envelope.encode_to_vec()).chain([Vec::new(), vec![0xff]]))
}

/// The payloads of the good envelopes, from either side, and numbers that are none or out of bounds.
fn payloads() -> Vec<Vec<u8>> {
    let good: Vec<Envelope> = checks::lives().into_iter().flatten().collect();
    let first = |envelope: &Envelope, worker: bool| {
        let kind = (envelope.mode.as_str(), envelope.message_type.as_str());
        let place = checks::KINDS.iter().position(|known| *known == kind).expect("a known kind");
        place as u8 + if worker { checks::KINDS.len() as u8 } else { 0 }
    };
    let told = |envelope: &Envelope, by_the_other: bool| {
        let worker = (envelope.sender == checks::WORKER) != by_the_other;
        [&[first(envelope, worker)], envelope.payload.as_slice()].concat()
    };
    let both = good.iter().flat_map(|envelope| [told(envelope, false), told(envelope, true)]);
    let damage = |kind: &str, payload: Vec<u8>| {
        let envelope = good.iter().find(|envelope| envelope.message_type == kind).expect("a known kind");
        told(&Envelope { payload, ..envelope.clone() }, false)
    };
    let task_id = || "t1".to_owned();
    let updates = [f64::NAN, f64::INFINITY, -0.5].map(|progress| {
        let update = task::TaskUpdatePayload { task_id: task_id(), progress, ..Default::default() };
        damage("TaskUpdate", update.encode_to_vec())
    });
    let starts = [i64::MIN, -1, 0, i64::MAX].map(|ttl_ms| {
        let start = SessionStartPayload { ttl_ms, max_suspend_ms: ttl_ms, ..Default::default() };
        damage("SessionStart", start.encode_to_vec())
    });
    let request = task::TaskRequestPayload { task_id: task_id(), deadline_unix_ms: -1, ..Default::default() };
    let request = damage("TaskRequest", request.encode_to_vec());
    let bad = updates.into_iter().chain(starts).chain([request, Vec::new(), vec![4]]);
    distinct(both.chain(bad))
}

/// An event of every kind, and one of another version.
fn events() -> Vec<Vec<u8>> {
    let mut kinds = Vec::new();
    let mut events = vec![vec![codec::VERSION + 1]];
    for event in lives::all().into_iter().flat_map(|life| life.events) {
        let kind = std::mem::discriminant(&event.fact);
        if !kinds.contains(&kind) {
            kinds.push(kind);
            events.push(codec::encode(&event));
        }
    }
    events
}

/// Requests of either revision with their headers, and bodies that are none.
fn requests() -> Vec<Vec<u8>> {
    let capabilities = json!({
        "elicitation": { "form": {}, "url": {} },
        "sampling": {},
        "extensions": { "io.modelcontextprotocol/tasks": { "steer": true, "pause": true } },
    });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/logLevel": "info",
        "progressToken": "p",
        "dev.handover/idempotencyKey": "k",
    });
    let modern = |method: &str, name: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        let body = json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params });
        format!("mcp-protocol-version: 2026-07-28\nmcp-method: {method}\nmcp-name: {name}\n\n{body}")
    };
    let older = |method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        format!("mcp-protocol-version: 2025-11-25\nmcp-session-id: x\naccept: text/event-stream\n\n{body}")
    };
    let tool = |name: &str, arguments: Value, responses: Value| {
        let params = json!({ "name": name, "arguments": arguments, "inputResponses": responses });
        modern("tools/call", name, params)
    };
    let flat = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let form =
        json!({ "method": "elicitation/create", "params": { "mode": "form", "requestedSchema": flat } });
    let accepted = |content: Value| json!({ "action": "accept", "content": content });
    let questions = json!({
        "flat": { "message": "how many?", "schema": flat },
        "list": { "message": "which?", "schema": { "type": "array", "items": { "type": "string" } } },
        "text": { "message": "what?" },
        "leave": { "message": "may I?", "permission": true },
        "form": { "request": form },
        "model": { "request": { "method": "sampling/createMessage", "params": {} } },
    });
    let responses = json!({
        "flat": accepted(json!({ "n": 3 })),
        "list": accepted(json!({ "answer": "[\"x\"]" })),
        "text": { "action": "decline" },
        "leave": accepted(json!({ "approved": false })),
        "form": accepted(json!({ "n": 1 })),
        "model": { "role": "assistant", "content": { "type": "text", "text": "x" } },
    });
    let blocks = json!([
        { "type": "text", "text": "t" },
        { "type": "image", "data": "AA==", "mimeType": "image/png" },
        { "type": "resource", "resource": { "uri": "x://y", "blob": "AA==" } },
        { "type": "resource_link", "uri": "x://y", "name": "z" },
    ]);
    let talk = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let said = json!([
        { "type": "text", "text": "t" },
        { "type": "data", "data": { "a": [1] } },
        { "type": "file", "file": { "name": "n", "mimeType": "a/b", "bytes": "AA==" } },
    ]);
    let good = [
        talk(
            "task/send",
            json!({ "to": "b", "message": { "parts": said }, "checkIn": 0.5, "failAfterMisses": 2 }),
        ),
        talk(
            "message/send",
            json!({ "taskId": "t1", "message": "m", "state": "auth_required", "schema": flat }),
        ),
        talk("task/list", json!({ "state": "working", "unread": true, "waitMs": 5 })),
        talk("task/update", json!({ "taskId": "t1", "sessionKey": "k" })),
        modern("tasks/get", "=?base64?dDE=?=", json!({ "taskId": "t1" })),
        modern("tasks/update", "t1", json!({ "taskId": "t1", "inputResponses": responses })),
        modern("subscriptions/listen", "", json!({ "notifications": { "taskIds": ["t1"] } })),
        modern("resources/read", "task://t1", json!({ "uri": "task://t1" })),
        tool("work_ask", json!({ "task_id": "t1", "questions": questions }), responses.clone()),
        tool("work_complete", json!({ "task_id": "t1", "result": { "content": blocks } }), json!({})),
        tool(
            "work_fail",
            json!({ "result": { "structuredContent": { "a": 1 }, "isError": true } }),
            json!({}),
        ),
        older("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities })),
        older("logging/setLevel", json!({ "level": "debug" })),
        older("tools/call", json!({ "name": "work_next", "arguments": { "wait_ms": 5 } })),
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}"
            .to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":\"handover:t1:q\",\"result\":{\"action\":\"accept\"}}".to_owned(),
    ];
    let bad = [
        "",
        "[]",
        "{",
        "origin: http://evil.example\ncontent-type: text/plain\nmcp-param-a: =?base64?/w==?=\n\n{}",
        "mcp-method: tasks/get\nmcp-method: tasks/get\n\n{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tasks/get\"}",
        "mcp-protocol-version: 1999-01-01\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}",
    ];
    let bad = bad.into_iter().map(str::to_owned);
    distinct(good.into_iter().chain(bad).map(String::into_bytes))
}

/// Signed requests in which everything is that can be in JSON, and bodies that are none.
fn signed_bodies() -> Vec<Vec<u8>> {
    let body = |timestamp: Value, more: Value| {
        let mut body = json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "task/list",
            "params": more,
            "fromNodeId": "222b7143-486e-5d28-a0aa-aa327d062b22",
            "timestamp": timestamp,
            "nonce": "0123456789abcdef0123456789abcdef",
        });
        body["signature"] = json!("5a".repeat(64));
        body.to_string()
    };
    let all =
        json!({ "ü\n\u{0}\"\\": [1, -0.5, 1e-7, 1e300, true, null, "🦀", [], {}], "": { "b": 1, "a": 2 } });
    let deep = (0..40).fold(json!(1), |inside, _| json!([inside]));
    let inputs = [
        body(json!(1_785_231_000), json!({})),
        body(json!(1_785_231_000_000_u64), all.clone()),
        body(json!(1_785_231_000.5), json!([all])),
        body(json!("2026-07-28T09:30:00.5+02:00"), json!("x")),
        body(json!(-1), json!({})),
        body(json!(1_785_231_000), deep),
        r#"{"a":1,"\u0061":1}"#.to_owned(),
        r#"{"a":"\ud800"}"#.to_owned(),
        r#"{"signature":0}"#.to_owned(),
        "{".repeat(100),
        "[]".to_owned(),
        String::new(),
    ];
    distinct(inputs.into_iter().map(String::into_bytes))
}

fn distinct(inputs: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    inputs.collect::<BTreeSet<_>>().into_iter().collect()
}

// ---- damage

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// One of the seeds after one to three accidents; now and then nothing but noise.
fn damaged(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if random.below(20) == 0 {
        return (0..random.below(64)).map(|_| random.next() as u8).collect();
    }
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(3) {
        let place = random.below(bytes.len());
        match random.below(12) {
            0..=4 if !bytes.is_empty() => bytes[place] ^= 1 << random.below(8),
            5..=7 if !bytes.is_empty() => bytes[place] = random.next() as u8,
            8 => bytes.truncate(place),
            9 => bytes.insert(place, random.next() as u8),
            10 if !bytes.is_empty() => {
                bytes.remove(place);
            }
            _ => {
                // The beginning of one and the end of another.
                let other = &seeds[random.below(seeds.len())];
                bytes.truncate(place);
                bytes.extend_from_slice(&other[random.below(other.len())..]);
            }
        }
    }
    bytes
}
