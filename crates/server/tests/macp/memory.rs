//! What is in memory on behalf of an agent is bounded in bytes, however much it asks for and however little it reads.

use std::sync::Arc;

use handover_desk::gate;
use handover_desk::identity::Identity;
use handover_desk::memory;
use handover_engine::Settings;
use handover_server::face::macp::proto::v1::GetSessionRequest;
use handover_server::face::macp::proto::v1::stream_session_response::Response as Frame;
use handover_store::SqliteStore;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;

use super::stage::*;

/// How many bytes an update has, and how many there are: far more than an agent may hold.
const UPDATE_BYTES: usize = 200 * 1024;
const UPDATES: usize = 60;
const BUDGET: u64 = 3 * 1024 * 1024;

const HELD: &str = "handover_memory_held_bytes";

async fn with_budget(per_agent: u64) -> Stage {
    let memory = memory::Settings { per_agent, ..memory::Settings::default() };
    let gate = gate::Settings { memory, ..gate::Settings::default() };
    Stage::with_limits(Identity::Development, empty_store(), Settings::default(), gate).await
}

/// A task of `planner` with many large updates of `worker`.
async fn a_large_task(stage: &Stage) {
    stage.working(SESSION).await;
    let worker = stage.agent("worker");
    for number in 0..UPDATES {
        let large = vec![b'x'; UPDATE_BYTES];
        let update = update(&number.to_string()).with(|update| update.partial_output = large);
        worker.ok(envelope(SESSION, update)).await;
    }
}

/// A client on a connection of its own: what it does not read holds up nobody else's answers.
async fn apart(stage: &Stage, name: &str) -> Agent {
    let channel = Channel::from_shared(stage.uri.clone()).unwrap().connect().await.unwrap();
    client(&channel, name)
}

async fn until_held(stage: &Stage, is_so: impl Fn(u64) -> bool) {
    in_time(async {
        while !is_so(stage.metric(HELD)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_nobody_reads_hold_few_bytes_and_go_on_from_the_log_when_they_are_read() {
    let stage = with_budget(BUDGET).await;
    a_large_task(&stage).await;
    let mut reader = apart(&stage, "worker").await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let (frames, requests) = mpsc::channel(1);
        frames.send(subscribe(SESSION, 0)).await.unwrap();
        // Once the budget is spent, there are no more.
        let Ok(stream) = in_time(reader.macp.stream_session(ReceiverStream::new(requests))).await else {
            break;
        };
        streams.push((frames, stream.into_inner()));
    }
    assert!(streams.len() >= 3, "{}", streams.len());
    until_held(&stage, |held| held >= BUDGET / 2).await;
    // Others are served meanwhile, and what is held stays what it is: a page more for each that was let through.
    let planner = stage.agent("planner");
    for _ in 0..100 {
        let page = planner.handover.clone().read_timeline(timeline(SESSION, 0, 1)).await.unwrap();
        assert_eq!(page.into_inner().events.len(), 1);
        assert!(stage.metric(HELD) <= 2 * BUDGET, "{}", stage.metric(HELD));
    }
    let (frames, mut listening) = streams.pop().unwrap();
    drop(streams);
    let mut seen = 0;
    while seen < UPDATES {
        let frame = in_time(listening.message()).await.unwrap().unwrap().response;
        let Some(Frame::Envelope(envelope)) = frame else { panic!("expected an envelope, found {frame:?}") };
        seen += usize::from(envelope.message_type == "TaskUpdate");
    }
    drop((frames, listening));
    until_held(&stage, |held| held == 0).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stays_too_often_is_refused_until_something_is_given_back_and_can_act_all_the_same() {
    let stage = with_budget(4 * memory::REQUEST_BYTES).await;
    stage.working(SESSION).await;
    let worker = stage.agent("worker");
    let mut streams = Vec::new();
    let refused = loop {
        match worker.macp.clone().watch_sessions(watch_sessions()).await {
            Ok(stream) => streams.push(stream),
            Err(status) => break status,
        }
        assert!(streams.len() <= 4, "nothing is refused");
    };
    assert!(!streams.is_empty());
    assert_eq!((refused.code(), macp_code(&refused)), (Code::ResourceExhausted, "RATE_LIMITED"));
    assert!(refused.metadata().get("retry-after-ms").is_some());
    assert!(stage.metric("handover_limited_total{limit=\"memory\"}") >= 1);
    // Those who stay leave half of it to those who do not.
    assert!(worker.send(envelope(SESSION, update("going"))).await.ok);
    // It is nobody else's.
    stage
        .agent("planner")
        .macp
        .get_session(GetSessionRequest { session_id: SESSION.to_owned() })
        .await
        .unwrap();
    drop(streams);
    in_time(async {
        while worker.macp.clone().watch_sessions(watch_sessions()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_which_the_budget_has_no_room_is_refused_with_what_is_spent() {
    let stage = with_budget(4 * memory::REQUEST_BYTES).await;
    stage.working(SESSION).await;
    // It can be read, and not decided: that takes room for it a few times.
    let large =
        update("going").with(|update| update.partial_output = vec![b'x'; 2 * memory::REQUEST_BYTES as usize]);
    let error = stage.agent("worker").refused(envelope(SESSION, large)).await;
    assert_eq!(error.code, "RATE_LIMITED");
    let details = String::from_utf8(error.details).unwrap();
    assert!(details.contains("MEMORY_BUDGET_SPENT") && details.contains("\"limit\":\"memory\""), "{details}");
    assert!(stage.agent("worker").send(envelope(SESSION, update("going"))).await.ok);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_large_events_is_cut_by_bytes_and_the_next_ones_go_on_to_the_end() {
    let stage = Stage::in_memory().await;
    a_large_task(&stage).await;
    let planner = stage.agent("planner");
    let (mut after, mut updates, mut pages) = (0, 0, 0);
    loop {
        let page = planner.handover.clone().read_timeline(timeline(SESSION, after, 1000)).await.unwrap();
        let page = page.into_inner();
        let bytes: usize = page.events.iter().map(|event| event.encoded_len()).sum();
        assert!(bytes <= 4 * UPDATE_BYTES, "{bytes}");
        updates += page.events.iter().filter(|event| event.kind == "updated").count();
        pages += 1;
        after = page.events.last().unwrap().sequence;
        if !page.more {
            break;
        }
    }
    assert_eq!(updates, UPDATES);
    assert!(pages >= UPDATES / 3, "{pages}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_stored_as_much_as_it_may_can_end_its_sessions_and_nothing_else_and_a_restart_forgets_nothing()
 {
    let dir = tempfile::tempdir().unwrap();
    let open = async || {
        let storage = gate::Storage { per_agent: 10 * UPDATE_BYTES as u64, per_tenant: 0 };
        let gate = gate::Settings { storage, ..gate::Settings::default() };
        let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
        Stage::with_limits(Identity::Development, store, Settings::default(), gate).await
    };
    let large = || update("going").with(|update| update.partial_output = vec![b'x'; UPDATE_BYTES]);
    let stage = open().await;
    stage.working(SESSION).await;
    let mut stored = 0;
    while stage.agent("worker").send(envelope(SESSION, large())).await.ok {
        stored += 1;
        assert!(stored < 20, "nothing is refused");
    }
    // As they came, and as they were understood.
    assert!((4..=5).contains(&stored), "{stored}");
    stage.stop().await;

    let stage = open().await;
    let (planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    // Nothing is in memory that says whose it is.
    let error = worker.refused(envelope(SESSION, large())).await;
    assert!(String::from_utf8(error.details).unwrap().contains("STORAGE_BUDGET_SPENT"));
    worker.ok(envelope(SESSION, complete())).await;
    planner.ok(envelope(SESSION, commit())).await;
    // Others have budgets of their own.
    let other = "the-session-of-another-agent";
    worker.ok(envelope(other, start())).await;
    assert_eq!(stage.metric("handover_limited_total{limit=\"storage\"}"), 1);
    stage.stop().await;
}
