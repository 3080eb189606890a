//! The webhook for what waits: signed, tried again, and told once, also across a restart.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_server::config::Config;
use handover_server::webhook::{self, Settings};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::others::stage::{Stage, skill, until};

/// 32 bytes, as a file says them.
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// Somebody who is told.
#[derive(Clone, Default)]
struct Receiver {
    /// What was told: the id, the body, and the answer that was given.
    told: Arc<Mutex<Vec<(String, Value, u16)>>>,
    /// Answers to give before 204.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Receiver {
    async fn start(answers: &[u16]) -> (Receiver, SocketAddr) {
        let receiver = Receiver::default();
        *receiver.answers.lock().unwrap() = answers.to_vec();
        let router = Router::new().route("/told", post(hear)).route("/elsewhere", post(hear));
        let router = router.with_state(receiver.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, address)
    }

    fn told(&self) -> Vec<(String, Value, u16)> {
        self.told.lock().unwrap().clone()
    }
}

/// Check the signature as Standard Webhooks says, and answer.
async fn hear(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> (StatusCode, HeaderMap) {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (id, time) = (header("webhook-id"), header("webhook-timestamp"));
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(time.parse::<u64>().unwrap().abs_diff(age) < 300, "{time}");
    let signed = [format!("{id}.{time}.").as_bytes(), &body].concat();
    let tag = STANDARD.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let answer = match hmac::verify(&key, &signed, &tag) {
        Err(_) => 401,
        Ok(()) => {
            let mut answers = receiver.answers.lock().unwrap();
            if answers.is_empty() { 204 } else { answers.remove(0) }
        }
    };
    receiver.told.lock().unwrap().push((id, serde_json::from_slice(&body).unwrap(), answer));
    let mut headers = HeaderMap::new();
    if answer == 307 {
        headers.insert("location", "/elsewhere".parse().unwrap());
    }
    (StatusCode::from_u16(answer).unwrap(), headers)
}

fn settings(dir: &Path, address: SocketAddr, tries: usize) -> Settings {
    let file = dir.join("secret");
    std::fs::write(&file, format!("whsec_{}\n", STANDARD.encode(SECRET))).unwrap();
    let mut config = Config::default();
    config.webhook.url = Some(format!("http://{address}/told"));
    config.webhook.secret_file = Some(file);
    config.webhook.agents = vec!["planner".to_owned(), "lead".to_owned()];
    config.webhook.console = Some("https://handover.example/".to_owned());
    let mut settings = Settings::new(&config).unwrap().unwrap();
    assert!(!format!("{settings:?}").contains("0123"), "a secret is not shown");
    settings.again_after = vec![Duration::from_millis(1); tries];
    settings
}

/// Tell what waits at a stage, until the trigger is dropped.
fn start(stage: &Stage, settings: &Settings) -> Trigger {
    let (trigger, shutdown) = Shutdown::new();
    webhook::start(settings, &stage.desk, &shutdown);
    trigger
}

/// Nobody is told of what is before the beginning: wait for it.
async fn begun(stage: &Stage) {
    until(async || stage.store.record("announce", "default", "planner").unwrap().is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_newly_waits_is_told_signed_and_tried_again_until_it_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    // It fails for a while, also by sending elsewhere, where nobody follows.
    let (receiver, address) = Receiver::start(&[500, 307, 429]).await;
    let stage = Stage::in_memory().await;
    let _told = start(&stage, &settings(dir.path(), address, 5));
    begun(&stage).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let task = stage.client("planner").begin("dig", json!({})).await;
    let job = worker.next().await;
    job.update(json!({ "message": "on it" })).await;
    job.asks(json!({ "q": { "message": "Where?" } })).await;
    until(async || receiver.told().len() >= 4).await;
    let told = receiver.told();
    assert_eq!(told.iter().map(|(.., answer)| *answer).collect::<Vec<_>>(), [500, 307, 429, 204]);
    assert!(told.iter().all(|(id, body, _)| (id, body) == (&told[0].0, &told[0].1)), "the same each time");
    let data = &told[0].1["data"];
    assert_eq!(told[0].1["type"], "waiting");
    assert_eq!((&data["agent"], &data["waits_for"]), (&json!("planner"), &json!("question")));
    assert_eq!(data["link"], format!("https://handover.example/tasks/{task}"));
    assert_eq!(data["since"], told[0].1["timestamp"]);
    assert!(!told[0].1.to_string().contains("Where?"), "what was asked is for the console");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_loses_nothing_and_repeats_only_under_the_same_id() {
    let (dir, secrets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (receiver, address) = Receiver::start(&[]).await;
    let (deaf, nowhere) = Receiver::start(&[503; 1000]).await;
    let stage = Stage::on_disk(dir.path()).await;
    let mut failing = settings(secrets.path(), nowhere, 3);
    failing.again_after = vec![Duration::from_secs(3600)];
    let telling = start(&stage, &failing);
    begun(&stage).await;
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let first = stage.client("planner").begin("dig", json!({})).await;
    worker.next().await.asks(json!({ "q": { "message": "Where?" } })).await;
    until(async || deaf.told().len() == 1).await;
    drop(telling);
    // While nobody tells, something else comes to wait, and something is dealt with.
    let second = stage.client("planner").begin("dig", json!({})).await;
    worker.next().await.asks(json!({ "q": { "message": "How deep?" } })).await;
    stage.stop().await;

    let stage = Stage::on_disk(dir.path()).await;
    let good = settings(secrets.path(), address, 3);
    let telling = start(&stage, &good);
    until(async || receiver.told().len() == 2).await;
    drop(telling);
    let told = receiver.told();
    let tasks: Vec<&str> =
        told.iter().map(|(_, body, _)| body["data"]["task_id"].as_str().unwrap()).collect();
    assert_eq!(tasks, [first.as_str(), second.as_str()]);
    assert_eq!(told[0].0, deaf.told()[0].0, "what was tried before has the same id");
    assert_ne!(told[0].0, told[1].0);
    stage.stop().await;
    // What was told is not told again.
    let stage = Stage::on_disk(dir.path()).await;
    let _telling = start(&stage, &good);
    let worker = stage.worker("worker", json!([skill("dig")])).await;
    let third = stage.client("planner").begin("dig", json!({})).await;
    worker.next().await.asks(json!({ "q": { "message": "Why?" } })).await;
    let about = |told: &[(String, Value, u16)], task: &str| {
        told.iter()
            .filter(|(_, body, _)| body["data"]["task_id"] == task)
            .map(|(id, ..)| id.clone())
            .collect::<Vec<_>>()
    };
    until(async || !about(&receiver.told(), &third).is_empty()).await;
    let all = receiver.told();
    assert_eq!(about(&all, &first), [told[0].0.as_str()]);
    // The server may have stopped between the answer and the note of it: then it is told again, under its id.
    assert!(about(&all, &second).iter().all(|id| *id == told[1].0), "{all:?}");
}

#[test]
fn a_webhook_needs_a_safe_address_a_secret_and_somebody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, "a secret of more than 24 bytes").unwrap();
    let with = |url: &str, file: Option<&Path>, agents: &[&str]| {
        let mut config = Config::default();
        config.webhook.url = Some(url.to_owned()).filter(|url| !url.is_empty());
        config.webhook.secret_file = file.map(Path::to_owned);
        config.webhook.agents = agents.iter().map(|agent| (*agent).to_owned()).collect();
        Settings::new(&config).map(|settings| settings.is_some())
    };
    assert_eq!(with("", None, &[]), Ok(false));
    assert_eq!(with("https://example.com/told", Some(&file), &["ops"]), Ok(true));
    for (url, secret, agents, expected) in [
        ("", Some(&*file), &["ops"][..], "webhook.url"),
        ("http://example.com/told", Some(&file), &["ops"], "webhook.url: expected an https URL"),
        ("https://me:pass@example.com/", Some(&file), &["ops"], "webhook.url"),
        ("https://example.com/", None, &["ops"], "webhook.secret_file"),
        ("https://example.com/", Some(Path::new("/nowhere/at/all")), &["ops"], "webhook.secret_file"),
        ("https://example.com/", Some(&file), &[], "webhook.agents"),
    ] {
        let error = with(url, secret, agents).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("pass"), "{error}");
    }
    for short in ["too short", "whsec_AAAA", "whsec_!!!"] {
        std::fs::write(&file, short).unwrap();
        assert!(
            with("https://example.com/", Some(&file), &["ops"]).unwrap_err().contains("webhook.secret_file")
        );
    }
}
