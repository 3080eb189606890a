//! What the runtime says of itself, what it does not serve, health and reflection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handover_desk::identity::Identity;
use handover_server::face::macp::proto::v1::{
    GetDecisionReceiptRequest, GetManifestRequest, GetReceiptKeysRequest, InitializeRequest,
    ListExtModesRequest, ListModesRequest, ListRootsRequest, PromoteModeRequest, RegisterExtModeRequest,
    SendRequest, UnregisterExtModeRequest, WatchModeRegistryRequest, WatchRootsRequest,
};
use handover_server::http::Probe;
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::stage::*;

fn initialize(versions: &[&str]) -> InitializeRequest {
    InitializeRequest {
        supported_protocol_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        ..InitializeRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initialize_picks_the_common_version_and_needs_no_token() {
    let stage = Stage::in_memory().await;
    let mut nobody = stage.nobody();
    let answer = nobody.macp.initialize(initialize(&["0.9", "1.0", "2.0"])).await.unwrap().into_inner();
    assert_eq!(answer.selected_protocol_version, "1.0");
    assert_eq!(answer.runtime_info.unwrap().name, "handover");
    assert_eq!(answer.supported_modes, ["macp.mode.task.v1", "macp.mode.handoff.v1"]);
    let served = answer.capabilities.unwrap();
    let sessions = served.sessions.unwrap();
    assert!(sessions.stream && sessions.list_sessions && sessions.watch_sessions);
    assert!(served.cancellation.unwrap().cancel_session && served.decision_receipt.is_none());
    for wrong in [&[][..], &["2.0"], &["", "1"], &["1.0 "]] {
        let status = nobody.macp.initialize(initialize(wrong)).await.unwrap_err();
        assert_eq!(macp_code(&status), "UNSUPPORTED_PROTOCOL_VERSION", "{wrong:?}");
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong:?}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manifest_and_the_modes_are_those_that_are_served() {
    let stage = Stage::in_memory().await;
    let mut nobody = stage.nobody();
    let modes = nobody.macp.list_modes(ListModesRequest {}).await.unwrap().into_inner().modes;
    let names: Vec<_> = modes.iter().map(|mode| mode.mode.as_str()).collect();
    assert_eq!(names, ["macp.mode.task.v1", "macp.mode.handoff.v1"]);
    for mode in &modes {
        assert_eq!(mode.mode_version, "1.0.0");
        assert_eq!(mode.terminal_message_types, ["Commitment"]);
        assert!(mode.message_types.contains(&"SessionStart".to_owned()));
    }
    let classes: Vec<_> =
        modes.iter().map(|m| (m.determinism_class.as_str(), m.participant_model.as_str())).collect();
    assert_eq!(classes, [("structural-only", "orchestrated"), ("context-frozen", "delegated")]);
    for id in ["", "handover"] {
        let request = GetManifestRequest { agent_id: id.to_owned() };
        let manifest = nobody.macp.get_manifest(request).await.unwrap().into_inner().manifest.unwrap();
        assert_eq!((manifest.agent_id.as_str(), manifest.supported_modes.len()), ("handover", 2));
    }
    // The manifests of agents are for agents of their tenant.
    let request = GetManifestRequest { agent_id: "worker".to_owned() };
    assert_eq!(nobody.macp.get_manifest(request.clone()).await.unwrap_err().code(), Code::Unauthenticated);
    let status = stage.agent("planner").macp.get_manifest(request).await.unwrap_err();
    assert_eq!((status.code(), macp_code(&status)), (Code::NotFound, "AGENT_NOT_FOUND"));
    assert!(nobody.macp.list_roots(ListRootsRequest {}).await.unwrap().into_inner().roots.is_empty());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registries_that_never_change_say_so_once_and_stay_open() {
    let stage = Stage::in_memory().await;
    let mut nobody = stage.nobody();
    let status = nobody.macp.watch_mode_registry(WatchModeRegistryRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "a stream is some agent's");
    assert_eq!(
        nobody.macp.watch_roots(WatchRootsRequest {}).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let mut planner = stage.agent("planner");
    let mut modes = planner.macp.watch_mode_registry(WatchModeRegistryRequest {}).await.unwrap().into_inner();
    let mut roots = planner.macp.watch_roots(WatchRootsRequest {}).await.unwrap().into_inner();
    assert_eq!(in_time(modes.message()).await.unwrap().unwrap().change.unwrap().registry, "modes");
    assert!(in_time(roots.message()).await.unwrap().unwrap().change.is_some());
    stage.begin_stop();
    assert_eq!(in_time(modes.message()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(in_time(roots.message()).await.unwrap_err().code(), Code::Unavailable);
    drop((nobody, planner));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_served_is_unimplemented() {
    let stage = Stage::in_memory().await;
    let macp = &mut stage.agent("planner").macp;
    let answers = [
        macp.list_ext_modes(ListExtModesRequest::default()).await.map(|_| ()),
        macp.register_ext_mode(RegisterExtModeRequest::default()).await.map(|_| ()),
        macp.unregister_ext_mode(UnregisterExtModeRequest::default()).await.map(|_| ()),
        macp.promote_mode(PromoteModeRequest::default()).await.map(|_| ()),
        macp.get_decision_receipt(GetDecisionReceiptRequest::default()).await.map(|_| ()),
        macp.get_receipt_keys(GetReceiptKeysRequest::default()).await.map(|_| ()),
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().code(), Code::Unimplemented, "call {index}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_service_is_healthy() {
    let stage = Stage::in_memory().await;
    let mut health = HealthClient::new(stage.channel.clone());
    for service in ["", "macp.v1.MACPRuntimeService", "handover.v1.Handover"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    let request = HealthCheckRequest { service: "macp.v1.Nothing".to_owned() };
    assert_eq!(health.check(request).await.unwrap_err().code(), Code::NotFound);
    drop(health);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_ready_is_not_healthy_and_whoever_watches_is_told() {
    let well = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&well);
    let check = move || if seen.load(Ordering::SeqCst) { Ok(()) } else { Err("it is away".to_owned()) };
    let (store, probe) = (empty_store(), Probe::new("store", check));
    let stage = Stage::checked(Identity::Development, store, Default::default(), vec![probe]).await;
    let mut health = HealthClient::new(stage.channel.clone());
    let mut changes = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    let mut unknown =
        health.watch(HealthCheckRequest { service: "x".to_owned() }).await.unwrap().into_inner();
    let next = async |changes: &mut Streaming<HealthCheckResponse>| {
        let change = tokio::time::timeout(Duration::from_secs(30), changes.message()).await;
        change.expect("waited in vain").unwrap().map(|change| change.status())
    };
    assert_eq!(next(&mut unknown).await, Some(ServingStatus::ServiceUnknown));
    assert_eq!(next(&mut changes).await, Some(ServingStatus::Serving));
    well.store(false, Ordering::SeqCst);
    assert_eq!(next(&mut changes).await, Some(ServingStatus::NotServing));
    let found = health.check(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(found.status(), ServingStatus::NotServing);
    well.store(true, Ordering::SeqCst);
    assert_eq!(next(&mut changes).await, Some(ServingStatus::Serving));
    drop((changes, unknown, health));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_lists_the_services() {
    let stage = Stage::in_memory().await;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(stage.channel.clone());
    let answer = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
    let answer = in_time(answer.into_inner().message()).await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("expected a list of services, found {answer:?}")
    };
    let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    let expected = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "handover.v1.Handover",
        "macp.v1.MACPRuntimeService",
    ];
    assert_eq!(names, expected);
    drop(client);

    // What most tools still ask for.
    use tonic_reflection::pb::v1alpha;
    let list = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(stage.channel.clone());
    let answer = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
    let answer = in_time(answer.into_inner().message()).await.unwrap().unwrap();
    let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) =
        answer.message_response
    else {
        panic!("expected a list of services, found {answer:?}")
    };
    assert!(list.service.iter().any(|service| service.name == "macp.v1.MACPRuntimeService"), "{list:?}");
    drop(client);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_compresses_is_understood_and_answered_in_kind() {
    use tonic::codec::CompressionEncoding::Gzip;
    let stage = Stage::in_memory().await;
    let mut planner = stage.agent("planner");
    planner.macp = planner.macp.send_compressed(Gzip).accept_compressed(Gzip);
    // Only what is compressed fits: the limit is that of what it becomes.
    let long = |bytes: usize| start().with(|s| s.intent = "x".repeat(bytes));
    planner.ok(envelope(SESSION, long(1024))).await;
    let request = SendRequest { envelope: Some(envelope("another-session-of-plays", long(1024))) };
    let answer = planner.macp.send(request).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
    let request = SendRequest { envelope: Some(envelope("a-session-of-a-long-play", long(4 * 1024 * 1024))) };
    let status = planner.macp.send(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");

    // Who can read it and does not write it is spared it.
    let mut plain = stage.agent("planner").macp.accept_compressed(Gzip);
    let answer = plain.send(SendRequest { envelope: Some(envelope(SESSION, long(8))) }).await.unwrap();
    assert!(answer.metadata().get("grpc-encoding").is_none());

    // A few bytes of a stranger are not made many.
    let mut nobody = stage.nobody().macp.send_compressed(Gzip);
    let status = nobody.list_modes(ListModesRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let answer = nobody.send(SendRequest { envelope: Some(envelope(SESSION, long(8))) }).await.unwrap();
    assert_eq!(answer.into_inner().ack.unwrap().error.unwrap().code, "UNAUTHENTICATED");
    drop((planner, plain, nobody));
    stage.stop().await;
}
