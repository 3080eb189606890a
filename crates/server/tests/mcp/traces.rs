//! The trace that a request is part of is kept with what was accepted, on whatever face it came.

use handover_desk::traces::What;
use handover_engine::codec;
use handover_kernel::Event;
use handover_store::SessionKey;
use serde_json::{Value, json};
use tonic::Request;
use tonic::metadata::MetadataMap;

use super::both::*;
use super::macp::{self, envelope};
use super::scene::*;
use super::stage::*;
use super::worker::skill;

const ONE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const MALFORMED: [&str; 4] = [
    "",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
    "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01",
];

/// The last event of a session, from the store.
fn last(stage: &Stage, session: &str) -> Event {
    let key = SessionKey::new("default", session);
    let head = stage.store.head(&key).unwrap().unwrap();
    let stored = stage.store.read(&key, head - 1, 1).unwrap();
    codec::decode(&stored[0].bytes).unwrap()
}

/// Its trace: the parent and the state.
fn kept(event: &Event) -> Option<(&str, &str)> {
    event.trace.as_ref().map(|trace| (&*trace.parent, &*trace.state))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_headers_or_the_meta_of_an_mcp_request_say_is_kept() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_steady_hand(&stage).await;
    let (longest, too_long) = ("x".repeat(512), "x".repeat(513));
    let none = Value::Null;
    // The headers, the meta, and what is kept of both.
    let mut plays = vec![
        (None, None, none.clone(), none.clone(), None),
        (Some(ONE), None, none.clone(), none.clone(), Some((ONE, ""))),
        (Some(ONE), Some("a=1"), none.clone(), none.clone(), Some((ONE, "a=1"))),
        (Some(ONE), Some(longest.as_str()), none.clone(), none.clone(), Some((ONE, longest.as_str()))),
        (Some(ONE), Some(too_long.as_str()), none.clone(), none.clone(), Some((ONE, ""))),
        (None, Some("a=1"), none.clone(), none.clone(), None),
        (None, None, json!(OTHER), json!("b=2"), Some((OTHER, "b=2"))),
        (None, None, json!(OTHER), json!(too_long), Some((OTHER, ""))),
        // The meta is nearer to whoever asks; what stands between them knows only the headers.
        (Some(ONE), Some("a=1"), json!(OTHER), json!("b=2"), Some((OTHER, "b=2"))),
        (Some(ONE), Some("a=1"), json!(OTHER), none.clone(), Some((OTHER, ""))),
        (Some(ONE), Some("a=1"), none.clone(), json!("b=2"), Some((ONE, "a=1"))),
    ];
    for malformed in MALFORMED {
        plays.push((Some(malformed), Some("a=1"), none.clone(), none.clone(), None));
        plays.push((Some(ONE), None, json!(malformed), json!("b=2"), Some((ONE, ""))));
    }
    for (parent, state, meta_parent, meta_state, expected) in plays {
        let mut request = planner.request("tasks/steer", json!({ "taskId": job.id, "message": "deeper" }));
        for (name, value) in [("traceparent", parent), ("tracestate", state)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let told = format!("{parent:?} {state:?} {meta_parent} {meta_state}");
        let request = request.meta("traceparent", meta_parent).meta("tracestate", meta_state);
        assert_eq!(request.answer().await.result(), ack(), "{told}");
        let event = last(&stage, &job.id);
        assert_eq!(kept(&event), expected, "{told}");
        job.says("half").await;
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_begins_a_task_is_kept_with_its_first_event() {
    let stage = Stage::in_memory().await;
    digger(&stage).await;
    let call = stage.client("planner").request("tools/call", json!({ "name": SKILL, "arguments": {} }));
    let created = call.header("traceparent", ONE).answer().await.result();
    let task = created["taskId"].as_str().unwrap();
    let stored = stage.store.read(&SessionKey::new("default", task), 0, 10).unwrap();
    let events: Vec<Event> = stored.iter().map(|stored| codec::decode(&stored.bytes).unwrap()).collect();
    assert_eq!(events.iter().map(kept).collect::<Vec<_>>(), [Some((ONE, "")), None]);
    stage.stop().await;
}

/// The trace and the span that a `traceparent` names.
fn named(parent: &str) -> (&str, &str) {
    (&parent[3..35], &parent[36..52])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_told_the_trace_of_its_task_and_the_span_of_its_work() {
    let both = Both::open().await;
    let stage = &both.stage;
    stage.worker("worker", json!([skill("dig")])).await;
    let worker = stage.client("worker");
    let mut traces = stage.desk.traces();
    // Spans are told from when somebody asks for them first.
    let page = traces.next().await.unwrap();
    traces.done(page, 0).await.unwrap();
    for (caller, sampled) in [(Some(ONE), "-01"), (None, "-01"), (Some(OTHER), "-00")] {
        let mut call =
            stage.client("planner").request("tools/call", json!({ "name": "dig", "arguments": {} }));
        if let Some(caller) = caller {
            call = call.header("traceparent", caller);
        }
        let task = call.answer().await.result()["taskId"].as_str().unwrap().to_owned();
        // Not taken yet, it is the span of the whole task; in the same trace.
        let offered = worker.call("work_next", json!({ "wait_ms": 0 })).await;
        let taken = worker.call("work_accept", json!({ "task_id": task })).await;
        let offered = offered["_meta"]["traceparent"].as_str().unwrap().to_owned();
        let told = taken["_meta"]["traceparent"].as_str().unwrap().to_owned();
        assert_eq!(taken["structuredContent"]["traceparent"], told);
        assert!(told.ends_with(sampled) && offered.ends_with(sampled), "{offered} {told}");
        let (trace, span) = named(&told);
        assert_eq!((named(&offered).0, named(&offered).1 == span), (trace, false));
        if let Some(caller) = caller {
            assert_eq!(trace, named(caller).0);
        }
        // The same on MACP, and for nobody else.
        let get = || handover_server::face::macp::proto::v1::GetSessionRequest { session_id: task.clone() };
        let got = both.macp("worker").macp.get_session(get()).await.unwrap();
        assert_eq!(got.metadata().get("traceparent").unwrap(), told.as_str());
        let got = both.macp("planner").macp.get_session(get()).await.unwrap();
        assert!(got.metadata().get("traceparent").is_none());

        worker.tool("work_complete", json!({ "task_id": task, "output": "dug" })).await;
        let page = traces.next().await.unwrap();
        let work = page.spans.iter().find(|found| found.what == What::Work);
        let found = work.map(|work| (work.trace.clone(), work.id.clone()));
        let expected = (sampled == "-01").then(|| (trace.to_owned(), span.to_owned()));
        assert_eq!(found, expected);
        traces.done(page, 0).await.unwrap();
    }
    both.stop().await;
}

/// A request with this metadata.
fn with<T>(message: T, pairs: &[(&'static str, &str)]) -> Request<T> {
    let mut request = Request::new(message);
    let metadata: &mut MetadataMap = request.metadata_mut();
    for (name, value) in pairs {
        metadata.append(*name, value.parse().unwrap());
    }
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_metadata_of_a_grpc_call_says_is_kept() {
    let both = Both::open().await;
    let mut planner = both.macp("planner");
    planner.ok(envelope(macp::SESSION, macp::start())).await;
    planner.ok(envelope(macp::SESSION, macp::request())).await;
    let too_long = "x".repeat(513);
    let mut plays = vec![
        (vec![], None),
        (vec![("traceparent", ONE)], Some((ONE, ""))),
        (vec![("traceparent", ONE), ("tracestate", "a=1")], Some((ONE, "a=1"))),
        // A list may come in several headers (Trace Context §3.3.1.1).
        (vec![("traceparent", ONE), ("tracestate", "a=1"), ("tracestate", "b=2")], Some((ONE, "a=1,b=2"))),
        (vec![("traceparent", ONE), ("tracestate", &too_long)], Some((ONE, ""))),
        (vec![("tracestate", "a=1")], None),
    ];
    for malformed in MALFORMED {
        plays.push((vec![("traceparent", malformed), ("tracestate", "a=1")], None));
    }
    for (pairs, expected) in plays {
        planner.handover.steer(with(macp::steer(macp::SESSION, "left"), &pairs)).await.unwrap();
        assert_eq!(kept(&last(&both.stage, macp::SESSION)), expected, "{pairs:?}");
    }
    let send = handover_server::face::macp::proto::v1::SendRequest {
        envelope: Some(envelope(macp::SESSION, macp::accept())),
    };
    let ack = both.macp("worker").macp.send(with(send, &[("traceparent", OTHER)])).await.unwrap();
    assert!(ack.into_inner().ack.unwrap().ok);
    assert_eq!(kept(&last(&both.stage, macp::SESSION)), Some((OTHER, "")));
    drop(planner);
    both.stop().await;
}
