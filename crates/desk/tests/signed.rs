//! Requests that agents sign with keys of their own: what a key is worth, how it ends, and that a request counts once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use handover_desk::caller::Caller;
use handover_desk::clock::machine;
use handover_desk::identity::signed::{self, NodeId, canonical};
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_desk::identity::{Identity, Unauthenticated};
use handover_desk::open::EngineSettings;
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::{Data, Desk, No, Settings};
use handover_kernel::Face;
use handover_store::Store;
use serde_json::{Value, json};

#[allow(dead_code, reason = "no play needs all of it")]
#[path = "../../store/tests/postgres/mod.rs"]
mod database;

/// A key, and what signs with it.
struct Signer(Ed25519KeyPair);

impl Signer {
    fn new(seed: u8) -> Signer {
        Signer(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn key(&self) -> [u8; 32] {
        self.0.public_key().as_ref().try_into().unwrap()
    }

    fn node(&self) -> NodeId {
        NodeId::of(&self.key())
    }

    /// A request that was not sent before.
    fn body(&self) -> Value {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let nonce = format!("{:032x}", LAST.fetch_add(1, Ordering::Relaxed));
        json!({ "fromNodeId": self.node().to_string(), "timestamp": machine().0, "nonce": nonce, "id": 1 })
    }

    fn sign(&self, mut body: Value) -> Vec<u8> {
        let signature = self.0.sign(canonical(body.to_string().as_bytes()).unwrap().as_bytes());
        let digits: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        body["signature"] = json!(digits);
        body.to_string().into_bytes()
    }

    fn request(&self) -> Vec<u8> {
        self.sign(self.body())
    }
}

struct Stage {
    desk: Desk,
    store: Arc<dyn Store>,
    tokens: Arc<Tokens>,
    identity: Identity,
    _trigger: Trigger,
}

const TOKENS: [(&str, &str); 4] = [
    ("planner", "roles = [\"admin\", \"observer\"]\nlimits = { streams = 7 }"),
    ("worker", ""),
    ("slow", "limits = { requests_per_minute = 1 }"),
    ("stranger", "tenant = \"acme\""),
];

fn file(tokens: &[(&str, &str)]) -> String {
    let entry = |(agent, more): &(&str, &str)| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{more}\n", hash_text(&format!("t-{agent}")))
    };
    tokens.iter().map(entry).collect()
}

impl Stage {
    fn new() -> Stage {
        Stage::over(database::empty())
    }

    fn over(store: Arc<dyn Store>) -> Stage {
        let tokens = Arc::new(Tokens::parse(&file(&TOKENS)).unwrap());
        Stage::with(store, Identity::Tokens(Arc::clone(&tokens)), tokens, Settings::default())
    }

    fn development() -> Stage {
        Stage::with(database::empty(), Identity::Development, Arc::default(), Settings::default())
    }

    fn with(store: Arc<dyn Store>, identity: Identity, tokens: Arc<Tokens>, settings: Settings) -> Stage {
        let data = Data::Store(Arc::clone(&store));
        let (trigger, shutdown) = Shutdown::new();
        let desk = handover_desk::open(data, settings, identity.clone(), shutdown).unwrap();
        Stage { desk, store, tokens, identity, _trigger: trigger }
    }

    fn caller(&self, token: &str) -> Caller {
        Caller::new(self.identity.authenticate(Some(token)).unwrap(), Face::Grid)
    }

    async fn bind(&self, token: &str, signer: &Signer) -> Result<NodeId, No> {
        self.desk.bind_key(&self.caller(token), &signer.key()).await
    }

    async fn ask(&self, body: &[u8]) -> Result<Caller, No> {
        self.desk.authenticate_signed(body, Face::Grid, None).await.map(|(caller, _)| caller)
    }

    async fn refused(&self, body: &[u8]) -> String {
        let refused = self.ask(body).await.unwrap_err();
        let No::Unauthenticated(refused) = refused else { panic!("expected a refusal, found {refused:?}") };
        refused.to_string()
    }

    fn nonces(&self) -> usize {
        self.store.records("nonce", "", None, 1000).unwrap().len()
    }
}

#[tokio::test]
async fn a_key_is_its_agent_with_the_limits_of_the_token_that_bound_it_and_without_its_roles() {
    let stage = Stage::new();
    let signer = Signer::new(1);
    let registration = signer.request();
    assert_eq!(signed::check(&registration, &signer.key(), machine()), Ok(signer.node()));
    assert_eq!(stage.bind("t-planner", &signer).await.unwrap(), signer.node());
    let found = stage.ask(&signer.request()).await.unwrap();
    assert_eq!((found.agent.as_str(), &*found.tenant), ("planner", "default"));
    assert!(found.proven && !found.admin && !found.observer);
    assert_eq!(found.allowance.streams, Some(7));
    assert_eq!(stage.desk.keys_of(&found).await.unwrap(), [signer.node()]);
    let again = stage.desk.bind_key(&found, &Signer::new(2).key()).await.unwrap_err();
    assert_eq!(again.code(), "NOT_ALLOWED", "what a key signed binds no other");
}

#[tokio::test]
async fn a_request_counts_once_also_after_a_restart_and_however_it_is_written() {
    let stage = Stage::new();
    let signer = Signer::new(1);
    stage.bind("t-worker", &signer).await.unwrap();
    let request = signer.request();
    stage.ask(&request).await.unwrap();
    let value: Value = serde_json::from_slice(&request).unwrap();
    let rewritten = serde_json::to_vec_pretty(&value).unwrap();
    for stage in [&stage, &Stage::over(Arc::clone(&stage.store))] {
        for body in [&request, &rewritten] {
            assert!(stage.refused(body).await.ends_with("its nonce was used before"));
        }
    }
    let other = Signer::new(2);
    stage.bind("t-worker", &other).await.unwrap();
    let mut body = other.body();
    body["nonce"] = value["nonce"].clone();
    stage.ask(&other.sign(body)).await.unwrap();
    assert_eq!(stage.nonces(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_to_several_nodes_at_once_counts_at_one() {
    let nodes: Vec<Arc<Stage>> =
        database::shared(3).into_iter().map(|store| Arc::new(Stage::over(store))).collect();
    let signer = Signer::new(1);
    nodes[0].bind("t-worker", &signer).await.unwrap();
    for _ in 0..20 {
        let request: Arc<[u8]> = signer.request().into();
        let ask = |node: &Arc<Stage>| {
            let (node, request) = (Arc::clone(node), Arc::clone(&request));
            tokio::spawn(async move { node.ask(&request).await.is_ok() })
        };
        let mut let_in = 0;
        for asked in nodes.iter().map(ask).collect::<Vec<_>>() {
            let_in += usize::from(asked.await.unwrap());
        }
        assert_eq!(let_in, 1);
    }
    for node in nodes {
        let desk = node.desk.clone();
        tokio::task::spawn_blocking(move || desk.stop()).await.unwrap();
    }
}

#[tokio::test]
async fn of_many_that_send_a_request_at_once_one_is_let_in() {
    let stage = Arc::new(Stage::new());
    let signer = Signer::new(1);
    stage.bind("t-worker", &signer).await.unwrap();
    let request: Arc<[u8]> = signer.request().into();
    let ask = |_| {
        let (stage, request) = (Arc::clone(&stage), Arc::clone(&request));
        tokio::spawn(async move { stage.ask(&request).await.is_ok() })
    };
    let asked: Vec<_> = (0..16).map(ask).collect();
    let mut let_in = 0;
    for asked in asked {
        let_in += usize::from(asked.await.unwrap());
    }
    assert_eq!(let_in, 1);
}

#[tokio::test]
async fn what_is_not_signed_right_says_why_is_noted_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let settings = Settings { audit: Some((path.clone(), 1_000_000)), ..Settings::default() };
    let tokens = Arc::new(Tokens::parse(&file(&TOKENS)).unwrap());
    let identity = Identity::Tokens(Arc::clone(&tokens));
    let stage = Stage::with(database::empty(), identity, tokens, settings);
    let signer = Signer::new(1);
    let unknown = stage.refused(&signer.request()).await;
    assert!(unknown.contains("no key is bound to its fromNodeId"), "{unknown}");
    stage.bind("t-worker", &signer).await.unwrap();
    let mut forged: Value = serde_json::from_slice(&signer.request()).unwrap();
    forged["id"] = json!(2);
    let forged = stage.refused(forged.to_string().as_bytes()).await;
    assert!(forged.contains("its signature is not that of its key"), "{forged}");
    let mut body = signer.body();
    body["timestamp"] = json!(machine().0 - 301_000);
    let stale = stage.refused(&signer.sign(body)).await;
    assert!(stale.contains("not within five minutes"), "{stale}");
    let shapeless = stage.refused(b"{}").await;
    assert!(shapeless.starts_with("the signed request was refused: expected fromNodeId"), "{shapeless}");
    assert_eq!(stage.nonces(), 0);
    stage.desk.stop();
    let audit = std::fs::read_to_string(&path).unwrap();
    assert_eq!(audit.matches("authentication_failed").count(), 4, "{audit}");
    assert!(audit.contains("agent_key_bound") && audit.contains(&signer.node().to_string()));
}

#[tokio::test]
async fn a_key_ends_with_the_token_that_bound_it_and_so_do_its_streams() {
    let stage = Stage::new();
    let signer = Signer::new(1);
    stage.bind("t-planner", &signer).await.unwrap();
    let caller = stage.ask(&signer.request()).await.unwrap();
    let mut stay = stage.desk.stay(&caller).unwrap();
    let changed = file(&[("planner", "limits = { streams = 3 }")]);
    stage.desk.gate.replace_tokens(&stage.tokens, &changed).unwrap();
    assert_eq!(stage.ask(&signer.request()).await.unwrap().allowance.streams, Some(3));
    stage.desk.gate.replace_tokens(&stage.tokens, &file(&[("planner", "revoked = true")])).unwrap();
    let over = format!("{:?}", stay.over().await);
    assert!(over.contains("the token that bound its key was revoked"), "{over}");
    let refused = stage.refused(&signer.request()).await;
    assert_eq!(refused, "the signed request was refused: the token that bound its key was revoked");
    let ended = file(&[("planner", "expires_at = \"2020-01-01T00:00:00Z\"")]);
    stage.desk.gate.replace_tokens(&stage.tokens, &ended).unwrap();
    match stage.ask(&signer.request()).await {
        Err(No::Unauthenticated(refused)) => assert!(refused.is_expiry(), "{refused}"),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[tokio::test]
async fn a_key_that_is_unbound_ends_with_its_streams() {
    let stage = Stage::new();
    let (signer, planner, worker) = (Signer::new(1), stage.caller("t-planner"), stage.caller("t-worker"));
    for (by, unbinds) in [("worker", true), ("planner", true), ("stranger", false), ("slow", false)] {
        stage.bind("t-worker", &signer).await.unwrap();
        let caller = stage.ask(&signer.request()).await.unwrap();
        let mut stay = stage.desk.stay(&caller).unwrap();
        let by = stage.caller(&format!("t-{by}"));
        assert_eq!(stage.desk.unbind_key(&by, signer.node()).await.unwrap(), unbinds, "{by:?}");
        assert_eq!(stage.ask(&signer.request()).await.is_err(), unbinds);
        if unbinds {
            let over = format!("{:?}", stay.over().await);
            assert!(over.contains("its key was unbound"), "{over}");
            assert!(stage.desk.keys_of(&worker).await.unwrap().is_empty());
        }
    }
    assert!(!stage.desk.unbind_key(&planner, Signer::new(9).node()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_unbound_when_a_node_fell_behind_ends_with_its_streams_there() {
    let mut stores = database::shared(3);
    let busy = stores.pop().unwrap();
    let mut node = |settings| {
        let tokens = Arc::new(Tokens::parse(&file(&TOKENS)).unwrap());
        let identity = Identity::Tokens(Arc::clone(&tokens));
        Stage::with(stores.pop().unwrap(), identity, tokens, settings)
    };
    // It looks seldom, and whatever it finds then is too much.
    let engine = EngineSettings { poll_ms: 10_000, behind_max: 0, ..EngineSettings::default() };
    let (one, two) = (node(Settings::default()), node(Settings { engine, ..Settings::default() }));
    let signer = Signer::new(1);
    one.bind("t-worker", &signer).await.unwrap();
    let caller = two.ask(&signer.request()).await.unwrap();
    let mut stay = two.desk.stay(&caller).unwrap();
    // It has just looked, and heard of the key.
    two.desk.agent(&caller, "nobody").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), stay.over()).await;
    assert!(early.is_err(), "it ends too early: {early:?}");
    for _ in 0..1000 {
        busy.say(&[]).unwrap();
    }
    // What this one does from now on comes after that.
    one.desk.agent(&caller, "nobody").await.unwrap();
    assert!(one.desk.unbind_key(&one.caller("t-worker"), signer.node()).await.unwrap());
    let over = tokio::time::timeout(Duration::from_secs(30), stay.over()).await.unwrap();
    assert!(format!("{over:?}").contains("its key was unbound"), "{over:?}");
    for desk in [one.desk.clone(), two.desk.clone()] {
        tokio::task::spawn_blocking(move || desk.stop()).await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_that_begins_after_its_key_was_unbound_ends_at_once() {
    let stage = Stage::new();
    let signer = Signer::new(1);
    stage.bind("t-worker", &signer).await.unwrap();
    let caller = stage.ask(&signer.request()).await.unwrap();
    assert!(stage.desk.unbind_key(&caller, signer.node()).await.unwrap());
    let over = format!("{:?}", stage.desk.stay(&caller).unwrap().over().await);
    assert!(over.contains("its key was unbound"), "{over}");
}

#[tokio::test]
async fn a_key_is_one_agents_and_an_agent_has_sixteen_of_which_those_that_ended_make_room() {
    let stage = Stage::new();
    for seed in 0..16 {
        stage.bind("t-worker", &Signer::new(seed)).await.unwrap();
    }
    let taken = stage.bind("t-planner", &Signer::new(3)).await.unwrap_err();
    assert!(taken.message().contains("bound to another agent"), "{}", taken.message());
    stage.bind("t-worker", &Signer::new(3)).await.unwrap();
    let full = stage.bind("t-worker", &Signer::new(16)).await.unwrap_err();
    assert!(full.message().contains("at most 16 keys"), "{}", full.message());
    let other = "[[token]]\nagent = \"worker\"\nsha256 = ".to_owned() + &format!("{:?}", hash_text("new"));
    stage.desk.gate.replace_tokens(&stage.tokens, &other).unwrap();
    stage.bind("new", &Signer::new(16)).await.unwrap();
    assert_eq!(stage.desk.keys_of(&stage.caller("new")).await.unwrap(), [Signer::new(16).node()]);
    assert_eq!(stage.store.records("key", "", None, 100).unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_too_often_is_not_remembered_and_may_come_again() {
    let stage = Stage::new();
    let signer = Signer::new(1);
    stage.bind("t-slow", &signer).await.unwrap();
    // A tenth of a minute's worth, and at least ten, may come at once.
    for _ in 0..10 {
        stage.ask(&signer.request()).await.unwrap();
    }
    assert_eq!(stage.ask(&signer.request()).await.unwrap_err().code(), "RATE_LIMITED");
    assert_eq!(stage.nonces(), 10);
}

#[tokio::test]
async fn in_development_a_key_proves_nothing_and_counts_nowhere_else() {
    let development = Stage::development();
    let signer = Signer::new(1);
    development.bind("planner", &signer).await.unwrap();
    let found = development.ask(&signer.request()).await.unwrap();
    assert!(found.agent.as_str() == "planner" && !found.proven && !found.admin);
    let elsewhere = Stage::over(Arc::clone(&development.store));
    let refused = elsewhere.ask(&signer.request()).await.unwrap_err();
    let No::Unauthenticated(Unauthenticated::Unsigned { why }) = refused else { panic!("{refused:?}") };
    assert!(why.contains("does not count here"), "{why}");
}
