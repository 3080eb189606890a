//! Agents whose tokens somebody else has issued: JSON Web Tokens over the wire.

use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::jwt::Verifier;
use handover_desk::identity::jwt::keys::KeySet;
use handover_engine::Settings;
use serde_json::{Value, json};

use super::issuer::{self, Key, claims_with, now, set};
use super::revoked::Streams;
use super::stage::*;

/// A server that lets in whom the issuer knows, with clocks that never differ.
async fn guarded(key: &Key) -> Stage {
    let settings = handover_desk::identity::jwt::settings::Settings { skew_seconds: 0, ..issuer::settings() };
    with_verifier(key, Arc::new(Verifier::new(settings))).await
}

async fn with_verifier(key: &Key, verifier: Arc<Verifier>) -> Stage {
    verifier.set_keys(KeySet::parse(set(&[key]).as_bytes()).unwrap());
    let identity = Identity::Jwt(verifier, Arc::default());
    Stage::for_known(identity, empty_store(), Settings::default()).await
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
    let streams = Streams::open(&brief).await;
    streams.all_end_with("the token has expired").await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_ends_when_the_key_of_its_token_is_withdrawn_and_not_before() {
    let (key, other) = (Key::ed("d"), Key::ec("e"));
    let verifier = Arc::new(Verifier::new(issuer::settings()));
    let stage = with_verifier(&key, Arc::clone(&verifier)).await;
    let planner = agent(&stage, &key, json!({}));
    planner.ok(envelope(SESSION, start())).await;
    let mut streams = Streams::open(&planner).await;
    // Another key beside it, in another order, changes nothing for who was let in.
    verifier.set_keys(KeySet::parse(set(&[&other, &key]).as_bytes()).unwrap());
    planner.ok(envelope(SESSION, request())).await;
    assert_eq!(streams.bound.types(1).await, ["TaskRequest"]);
    verifier.set_keys(KeySet::parse(set(&[&other]).as_bytes()).unwrap());
    streams.all_end_with("its key is no longer listed").await;
    assert_eq!(planner.refused(envelope(SESSION, request())).await.code, "UNAUTHENTICATED");
    stage.stop().await;
}
