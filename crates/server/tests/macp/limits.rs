//! What each agent may use: rates, streams, payloads, open sessions; the server's own and those of a token.

use std::sync::Arc;

use handover_desk::bucket::{BURST_MIN, burst};
use handover_desk::gate::{
    self, MESSAGES_PER_MINUTE, REQUESTS_PER_MINUTE, STARTS_PER_MINUTE, STORED_PER_AGENT, STORED_PER_TENANT,
};
use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_engine::Settings;
use handover_kernel::Limits;
use handover_server::config::Config;
use handover_server::face::macp::proto::v1::{
    GetSessionRequest, SendRequest, SignalPayload, WatchModeRegistryRequest, WatchRootsRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::stage::*;

/// One a minute: ten at once, and then none for a minute, which is longer than any play.
const ONE: u64 = 1;

/// These limits, and any number of requests.
fn limits(starts_per_minute: u64, messages_per_minute: u64, streams_max: u64) -> gate::Settings {
    gate::Settings { starts_per_minute, messages_per_minute, streams_max, ..gate::Settings::default() }
}

async fn limited(limits: gate::Settings) -> Stage {
    let store = empty_store();
    Stage::with_limits(Identity::Development, store, Settings::default(), limits).await
}

/// A server with production limits and tokens that have their own.
async fn with_tokens(entries: &[(&str, &str)], settings: Settings) -> Stage {
    let entry = |(agent, rest): &(&str, &str)| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{rest}\n", hash_text(agent))
    };
    let tokens = Tokens::parse(&entries.iter().map(entry).collect::<String>()).unwrap();
    Stage::for_known(Identity::Tokens(Arc::new(tokens)), empty_store(), settings).await
}

fn session(index: u64) -> String {
    format!("a-session-of-this-play-{index}")
}

fn is_limited(status: &Status) -> bool {
    (status.code(), macp_code(status)) == (Code::ResourceExhausted, "RATE_LIMITED")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_starts_are_limited_and_say_when_to_try_again() {
    let stage = limited(limits(ONE, 0, 10)).await;
    let planner = stage.agent("planner");
    for index in 0..BURST_MIN {
        planner.ok(envelope(&session(index), start())).await;
    }
    let before = stage.written();
    let error = planner.refused(envelope(&session(99), start())).await;
    assert_eq!(error.code, "RATE_LIMITED");
    assert!(error.message.contains("at most 1 session starts a minute"), "{}", error.message);
    let details: serde_json::Value = serde_json::from_slice(&error.details).unwrap();
    let wait = details["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait), "{wait}");
    assert_eq!(stage.written(), before);

    // Messages and other agents have limits of their own.
    planner.ok(envelope(&session(0), request())).await;
    stage.agent("worker").ok(envelope(&session(0), accept())).await;
    stage.agent("helper").ok(envelope(&session(100), start())).await;
    assert_eq!(stage.metric("handover_limited_total{limit=\"session_starts\"}"), 1);
    assert_eq!(stage.metric("handover_limited_total{limit=\"messages\"}"), 0);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_is_submitted_and_no_start_is_a_message() {
    let stage = limited(limits(0, ONE, 10)).await;
    stage.started(SESSION).await;
    let mut planner = stage.agent("planner");
    // A retry is a message as well, and so is one that is refused.
    let again = envelope(SESSION, request());
    for _ in 0..3 {
        planner.ok(again.clone()).await;
    }
    planner.ok(signal("weather.rain", "")).await;
    planner.refused(envelope(SESSION, accept())).await;
    planner.macp.suspend_session(suspend(SESSION)).await.unwrap();
    planner.macp.resume_session(resume(SESSION)).await.unwrap();
    planner.macp.register_policy(policy("policy.rain", "*", "{}")).await.unwrap();
    planner.handover.steer(steer(SESSION, "left")).await.unwrap();
    planner.refused(envelope(SESSION, request()).with(|e| e.payload = vec![0xff])).await;

    let before = stage.written();
    assert_eq!(planner.refused(again).await.code, "RATE_LIMITED");
    assert_eq!(planner.refused(signal("weather.rain", "")).await.code, "RATE_LIMITED");
    for ack in planner.controls(SESSION).await {
        assert_eq!(ack.error.unwrap().code, "RATE_LIMITED");
    }
    let statuses = [
        planner.macp.register_policy(policy("policy.sun", "*", "{}")).await.map(|_| ()).unwrap_err(),
        planner.handover.steer(steer(SESSION, "left")).await.map(|_| ()).unwrap_err(),
        planner.handover.pause(pause(SESSION)).await.map(|_| ()).unwrap_err(),
        planner.handover.answer(answer(SESSION, "q", "a")).await.map(|_| ()).unwrap_err(),
    ];
    for (index, status) in statuses.iter().enumerate() {
        assert!(is_limited(status), "call {index}: {status:?}");
        let wait = status.metadata().get("retry-after-ms").unwrap().to_str().unwrap();
        assert!((1..=60_000).contains(&wait.parse::<u64>().unwrap()), "call {index}: {wait}");
    }
    assert_eq!(stage.written(), before);
    assert_eq!(stage.metric("handover_limited_total{limit=\"messages\"}"), 9);
    // Reading is no message.
    assert_eq!(planner.kinds(SESSION).await.len(), 5);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_a_request_and_so_is_every_frame_of_a_stream() {
    let stage = limited(gate::Settings { requests_per_minute: ONE, ..limits(0, 0, 10) }).await;
    stage.started(SESSION).await;
    let mut worker = stage.agent("worker");
    for index in 0..BURST_MIN - 3 {
        let found = worker.macp.get_session(GetSessionRequest { session_id: session(index) }).await;
        assert_eq!(found.map(|_| ()).unwrap_err().code(), Code::NotFound, "request {index}");
    }
    // The stream and its subscription are requests, and so is a frame that cannot be taken.
    let (frames, mut listening) = worker.subscribed(SESSION, 0).await;
    assert_eq!(listening.types(1).await, ["SessionStart"]);
    frames.send(frame(envelope(&session(1), accept()))).await.unwrap();
    assert_eq!(listening.error().await.code, "INVALID_ENVELOPE");
    frames.send(frame(envelope(SESSION, accept()))).await.unwrap();
    assert_eq!(listening.error().await.code, "RATE_LIMITED");
    let status = worker.macp.get_session(GetSessionRequest { session_id: SESSION.to_owned() }).await;
    let status = status.map(|_| ()).unwrap_err();
    assert!(is_limited(&status), "{status:?}");
    assert!(status.metadata().get("retry-after-ms").is_some());
    assert_eq!(worker.refused(envelope(SESSION, accept())).await.code, "RATE_LIMITED");
    for ack in worker.controls(SESSION).await {
        assert_eq!((ack.session_id.as_str(), ack.error.unwrap().code.as_str()), (SESSION, "RATE_LIMITED"));
    }
    assert_eq!(stage.metric("handover_limited_total{limit=\"requests\"}"), 6);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limited_message_on_a_stream_is_an_inline_error_and_the_stream_goes_on() {
    let stage = limited(limits(0, ONE, 10)).await;
    stage.started(SESSION).await;
    let planner = stage.agent("planner");
    let (frames, mut listening) = planner.subscribed(SESSION, 0).await;
    assert_eq!(listening.types(1).await, ["SessionStart"]);
    for _ in 1..BURST_MIN {
        planner.ok(signal("weather.rain", "")).await;
    }
    frames.send(frame(envelope(SESSION, request()))).await.unwrap();
    assert_eq!(listening.error().await.code, "RATE_LIMITED");
    frames.send(frame(envelope(SESSION, request()))).await.unwrap();
    assert_eq!(listening.error().await.code, "RATE_LIMITED", "it is still there");
    drop(frames);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watch_is_a_stream_and_gives_its_place_back() {
    let stage = limited(limits(0, 0, 6)).await;
    let mut planner = stage.agent("planner");
    let (frames, stream) = planner.stream().await;
    let signals = planner.signals().await;
    let sessions = planner.macp.watch_sessions(watch_sessions()).await.unwrap();
    let policies = planner.macp.watch_policies(watch_policies()).await.unwrap();
    let modes = planner.macp.watch_mode_registry(WatchModeRegistryRequest {}).await.unwrap();
    let roots = planner.macp.watch_roots(WatchRootsRequest {}).await.unwrap();
    assert_eq!(stage.metric("handover_streams_open"), 6);
    for status in [
        planner.macp.watch_sessions(watch_sessions()).await.map(|_| ()).unwrap_err(),
        planner.macp.watch_policies(watch_policies()).await.map(|_| ()).unwrap_err(),
        planner.macp.watch_signals(watch_signals()).await.map(|_| ()).unwrap_err(),
        planner.macp.watch_roots(WatchRootsRequest {}).await.map(|_| ()).unwrap_err(),
        planner.macp.watch_mode_registry(WatchModeRegistryRequest {}).await.map(|_| ()).unwrap_err(),
        planner.macp.stream_session(tokio_stream::pending()).await.map(|_| ()).unwrap_err(),
    ] {
        assert!(is_limited(&status), "{status:?}");
        assert!(status.message().contains("at most 6 open streams"), "{status:?}");
    }
    assert_eq!(stage.metric("handover_limited_total{limit=\"streams\"}"), 6);
    let others = stage.agent("worker").signals().await;

    drop((frames, stream, signals, sessions, policies, modes, roots, others));
    in_time(async {
        while stage.metric("handover_streams_open") > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    planner.signals().await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_closed_stream_gives_its_place_back() {
    let stage = limited(limits(0, 0, 1)).await;
    stage.requested(SESSION).await;
    let worker = stage.agent("worker");
    for _ in 0..20 {
        let (frames, mut listening) = worker.subscribed(SESSION, 1).await;
        drop(frames);
        assert_eq!(listening.types(1).await, ["TaskRequest"]);
        assert_eq!(listening.next().await.unwrap(), None);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_gives_its_streams_back() {
    let stage = limited(limits(0, 0, 2)).await;
    let uri = stage.uri.clone();
    // A client on a runtime of its own, which is torn down with its connection.
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let held = runtime.block_on(async {
            let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();
            let planner = client(&channel, "planner");
            (planner.signals().await, planner.stream().await)
        });
        runtime.shutdown_background();
        std::mem::forget(held);
    });
    in_time(async {
        tokio::task::spawn_blocking(move || client.join()).await.unwrap().unwrap();
        while stage.metric("handover_streams_open") > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.agent("planner").signals().await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn development_has_no_rates_unless_somebody_sets_them() {
    let mut config = Config::default();
    let settings = |config: &Config, identity: &Identity| {
        handover_server::house::gate_settings(&config.limits, identity)
    };
    let tokens = Identity::Tokens(Arc::new(Tokens::default()));
    let storage = gate::Storage { per_agent: STORED_PER_AGENT, per_tenant: STORED_PER_TENANT };
    assert_eq!(settings(&config, &Identity::Development), limits(0, 0, 1000));
    let proven = limits(STARTS_PER_MINUTE, MESSAGES_PER_MINUTE, 1000);
    assert_eq!(
        settings(&config, &tokens),
        gate::Settings { requests_per_minute: REQUESTS_PER_MINUTE, storage, ..proven }
    );
    config.limits.starts_per_minute = Some(30);
    assert_eq!(settings(&config, &Identity::Development), limits(30, 0, 1000));
    config.limits.messages_per_minute = Some(0);
    assert_eq!(
        settings(&config, &tokens),
        gate::Settings { requests_per_minute: REQUESTS_PER_MINUTE, storage, ..limits(30, 0, 1000) }
    );

    let stage = Stage::in_memory().await;
    let planner = stage.agent("planner");
    for index in 0..burst(STARTS_PER_MINUTE) * 2 {
        planner.ok(envelope(&session(index), start())).await;
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_has_limits_of_its_own() {
    let own = "limits = { starts_per_minute = 1, messages_per_minute = 1, streams = 1 }";
    let stage =
        with_tokens(&[("small", own), ("planner", ""), ("worker", ""), ("helper", "")], Settings::default())
            .await;
    let (small, planner) = (stage.agent("small"), stage.agent("planner"));
    for index in 0..BURST_MIN {
        small.ok(envelope(&session(index), start())).await;
        small.ok(envelope(&session(index), request())).await;
    }
    assert_eq!(small.refused(envelope(&session(50), start())).await.code, "RATE_LIMITED");
    assert_eq!(small.refused(envelope(&session(0), request())).await.code, "RATE_LIMITED");
    let _one = small.signals().await;
    assert!(is_limited(&small.macp.clone().watch_signals(watch_signals()).await.map(|_| ()).unwrap_err()));
    for index in 100..100 + BURST_MIN + 1 {
        planner.ok(envelope(&session(index), start())).await;
    }
    let _two = (planner.signals().await, planner.signals().await);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_sessions_and_payloads_are_limited_by_the_server_and_by_a_token() {
    let limits = Limits { payload_bytes_max: 4096, ..Limits::default() };
    let settings = Settings { limits, sessions_open_per_agent_max: 2, ..Settings::default() };
    let tokens = [
        ("planner", ""),
        ("worker", ""),
        ("many", "limits = { sessions_open = 3, payload_bytes = 1048576 }"),
        ("few", "limits = { sessions_open = 1, payload_bytes = 1024 }"),
    ];
    let stage = with_tokens(&tokens, settings).await;
    let (open, payload) = (
        "handover_limited_total{limit=\"sessions_open\"}",
        "handover_limited_total{limit=\"payload_bytes\"}",
    );
    for (index, (agent, may)) in [("planner", 2), ("many", 3), ("few", 1)].into_iter().enumerate() {
        let agent = stage.agent(agent);
        let id = |number: u64| session(100 * index as u64 + number);
        for number in 0..may {
            agent.ok(envelope(&id(number), start())).await;
        }
        let error = agent.refused(envelope(&id(may), start())).await;
        assert_eq!(error.code, "RATE_LIMITED");
        assert!(error.message.contains(&format!("has {may} open sessions")), "{}", error.message);
        assert_eq!(stage.metric(open), index as u64 + 1);
        agent.macp.clone().cancel_session(cancel(&id(0))).await.unwrap();
        agent.ok(envelope(&id(may), start())).await;
    }

    for (index, (agent, may)) in [("planner", 4096), ("many", 4096), ("few", 1024)].into_iter().enumerate() {
        let agent = stage.agent(agent);
        let told = SignalPayload { data: vec![b'x'; may], ..SignalPayload::default() };
        let told = envelope("", told.with(|told| told.signal_type = "weather.rain".to_owned()));
        let large = |bytes: usize| {
            let fill = vec![b'x'; bytes];
            envelope(&session(100 * index as u64 + 1), request().with(|r| r.input = fill))
        };
        let error = agent.refused(large(may)).await;
        assert_eq!(error.code, "PAYLOAD_TOO_LARGE");
        assert!(error.message.contains(&format!("at most {may} bytes")), "{}", error.message);
        assert_eq!(agent.refused(told).await.code, "PAYLOAD_TOO_LARGE");
        let status = agent.handover.clone().steer(steer(SESSION, &"x".repeat(may + 1))).await.unwrap_err();
        assert_eq!(macp_code(&status), "PAYLOAD_TOO_LARGE");
        assert_eq!(stage.metric(payload), 3 * (index as u64 + 1));
        agent.ok(large(may / 2)).await;
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_nobodys_are_counted() {
    let stage = with_tokens(&[("planner", "")], Settings::default()).await;
    let stranger = stage.agent("stranger");
    stranger.refused(envelope(SESSION, start())).await;
    stranger.macp.clone().watch_signals(watch_signals()).await.unwrap_err();
    stage.nobody().macp.send(SendRequest { envelope: Some(envelope(SESSION, start())) }).await.unwrap();
    stage.nobody().handover.steer(steer(SESSION, "left")).await.unwrap_err();
    assert_eq!(stage.metric("handover_authentications_failed_total"), 4);
    stage.stop().await;
}
