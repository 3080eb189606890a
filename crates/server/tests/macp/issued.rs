//! Agents whose tokens somebody else has issued: JSON Web Tokens over the wire.

use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::jwt::Verifier;
use handover_desk::identity::jwt::keys::KeySet;
use handover_engine::Settings;
use handover_server::face::macp::proto::v1::WatchRootsRequest;
use handover_store::MemoryStore;
use serde_json::{Value, json};
use tonic::Code;

use super::issuer::{self, Key, claims_with, now, set};
use super::stage::*;

/// A server that lets in whom the issuer knows, with clocks that never differ.
async fn guarded(key: &Key) -> Stage {
    let settings = handover_desk::identity::jwt::settings::Settings { skew_seconds: 0, ..issuer::settings() };
    let verifier = Verifier::new(settings);
    verifier.set_keys(KeySet::parse(set(&[key]).as_bytes()).unwrap());
    let identity = Identity::Jwt(Arc::new(verifier), Arc::default());
    Stage::for_known(identity, Arc::new(MemoryStore::new()), Settings::default()).await
}

/// A client with a token of these claims.
fn agent(stage: &Stage, key: &Key, changes: Value) -> Agent {
    stage.agent(&key.token(&claims_with(changes)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_lives_between_agents_with_issued_tokens_and_other_tenants_do_not_see_it() {
    let key = Key::ec("e");
    let stage = guarded(&key).await;
    let (planner, worker) = (agent(&stage, &key, json!({})), agent(&stage, &key, json!({ "sub": "worker" })));
    planner.ok(envelope(SESSION, start())).await;
    planner.ok(envelope(SESSION, request())).await;
    worker.ok(envelope(SESSION, accept())).await;
    assert_eq!(planner.kinds(SESSION).await, ["started", "requested", "accepted"]);
    let eye = agent(&stage, &key, json!({ "sub": "auditor", "roles": "observer" }));
    assert_eq!(eye.kinds(SESSION).await, ["started", "requested", "accepted"]);

    let elsewhere = agent(&stage, &key, json!({ "tenant": "elsewhere" }));
    assert_eq!(elsewhere.refused(envelope(SESSION, request())).await.code, "SESSION_NOT_FOUND");
    let expired = agent(&stage, &key, json!({ "exp": now() - 1 }));
    let refused = expired.refused(envelope(SESSION, request())).await;
    assert_eq!(refused.code, "UNAUTHENTICATED");
    assert_eq!(refused.message, "the bearer token was refused: the token has expired");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_ends_with_unauthenticated_when_its_token_expires() {
    let key = Key::ed("d");
    let stage = guarded(&key).await;
    agent(&stage, &key, json!({})).ok(envelope(SESSION, start())).await;
    // Long enough to open the streams on a busy machine.
    let brief = agent(&stage, &key, json!({ "exp": now() + 5 }));
    let (_frames, mut bound) = brief.subscribed(SESSION, 0).await;
    let (_more, mut unbound) = brief.stream().await;
    let mut signals = brief.signals().await;
    let mut macp = brief.macp.clone();
    let mut sessions = macp.watch_sessions(watch_sessions()).await.unwrap().into_inner();
    let mut policies = macp.watch_policies(watch_policies()).await.unwrap().into_inner();
    let mut roots = macp.watch_roots(WatchRootsRequest {}).await.unwrap().into_inner();
    assert_eq!(bound.types(1).await, ["SessionStart"]);
    assert!(in_time(sessions.message()).await.unwrap().is_some());
    assert!(in_time(policies.message()).await.unwrap().is_some());
    assert!(in_time(roots.message()).await.unwrap().is_some());
    for status in [
        bound.next().await.map(|_| ()),
        unbound.next().await.map(|_| ()),
        signals.next().await.map(|_| ()),
        in_time(sessions.message()).await.map(|_| ()),
        in_time(policies.message()).await.map(|_| ()),
        in_time(roots.message()).await.map(|_| ()),
    ] {
        let status = status.unwrap_err();
        assert_eq!((status.code(), macp_code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
        assert_eq!(status.message(), "the bearer token was refused: the token has expired");
    }
    stage.stop().await;
}
