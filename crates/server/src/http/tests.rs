use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use axum::body::Bytes;
use axum::routing::post;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::tls::wire::Wire;
use handover_desk::shutdown::{Shutdown, Trigger};

const BOUNDS: Bounds = Bounds { body_bytes_max: 64, answer_within: Duration::from_secs(30) };

/// A server on a free port.
struct Server {
    address: std::net::SocketAddr,
    trigger: Trigger,
    serving: JoinHandle<()>,
}

async fn start(router: Router) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = Shutdown::new();
    Server { address, trigger, serving: tokio::spawn(serve(listener, Wire::Plain, router, 100, shutdown)) }
}

async fn start_with(faces: Router, probes: Vec<Probe>, bounds: Bounds) -> Server {
    start(router(faces, probes, Metrics::new(|_| {}), bounds)).await
}

impl Server {
    async fn connect(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }

    async fn ask(&self, request: &str) -> String {
        read_all(self.connect(request).await).await
    }

    async fn stop(self) {
        self.trigger.begin();
        self.serving.await.unwrap();
    }
}

async fn read_all(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn body(answer: &str) -> serde_json::Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn a_live_server_says_ok() {
    let server = start_with(Router::new(), vec![], BOUNDS).await;
    let answer = server.get("/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_server_is_ready_when_every_check_passes() {
    let probes = vec![Probe::new("store", || Ok(())), Probe::new("engine", || Ok(()))];
    let server = start_with(Router::new(), probes, BOUNDS).await;
    let answer = server.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let expected = json!({ "ready": true, "checks": [
        { "name": "store", "ready": true },
        { "name": "engine", "ready": true },
    ]});
    assert_eq!(body(&answer), expected);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_ready_names_what_is_not_and_why() {
    let probes = vec![
        Probe::new("store", || Err("the disk is full".to_owned())),
        Probe::new("engine", || Ok(())),
        Probe::new("clock", || panic!("a check with a bug")),
    ];
    let server = start_with(Router::new(), probes, BOUNDS).await;
    let answer = server.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let expected = json!({ "ready": false, "checks": [
        { "name": "store", "ready": false, "reason": "the disk is full" },
        { "name": "engine", "ready": true },
        { "name": "clock", "ready": false, "reason": "the check panicked" },
    ]});
    assert_eq!(body(&answer), expected);
    server.stop().await;
}

#[tokio::test]
async fn a_check_that_hangs_is_reported_by_name_and_never_runs_twice_at_a_time() {
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let hang = Probe::new("store", move || {
        counted.fetch_add(1, Ordering::SeqCst);
        _ = released.lock().unwrap().recv();
        Ok(())
    });
    let server = start_with(Router::new(), vec![hang], BOUNDS).await;
    let (first, second) = tokio::join!(server.get("/readyz"), server.get("/readyz"));
    for answer in [first, second] {
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert_eq!(body(&answer)["checks"][0]["name"], "store");
        assert_eq!(body(&answer)["checks"][0]["reason"], "the check did not answer within 2 s");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    drop(release);
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_answered_in_json() {
    let server = start_with(Router::new(), vec![], BOUNDS).await;
    let answer = server.get("/nothing?here=1").await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let expected = json!({ "error": { "code": "NOT_FOUND", "message": "nothing is served at /nothing" } });
    assert_eq!(body(&answer), expected);
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_method_is_answered_in_json_with_the_right_ones() {
    let faces = Router::new().route("/grid", post(|| async { "" }));
    let server = start_with(faces, vec![], BOUNDS).await;
    let answer = server.ask("DELETE /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nallow: GET,HEAD\r\n"), "{answer}");
    let expected =
        json!({ "error": { "code": "METHOD_NOT_ALLOWED", "message": "/healthz does not take DELETE" } });
    assert_eq!(body(&answer), expected);
    assert_eq!(body(&server.get("/grid").await)["error"]["code"], "METHOD_NOT_ALLOWED");
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_with_and_without_a_length() {
    let faces = Router::new().route("/echo", post(|body: Bytes| async move { body }));
    let server = start_with(faces, vec![], BOUNDS).await;
    let head = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let text = "x".repeat(65);

    let fits = server.ask(&format!("{head}content-length: 64\r\n\r\n{}", &text[..64])).await;
    assert!(fits.starts_with("HTTP/1.1 200 "), "{fits}");
    let announced = server.ask(&format!("{head}content-length: 65\r\n\r\n{text}")).await;
    assert!(announced.starts_with("HTTP/1.1 413 "), "{announced}");
    assert_eq!(body(&announced)["error"]["message"], "expected a body of at most 64 bytes, found 65");
    let chunked =
        server.ask(&format!("{head}transfer-encoding: chunked\r\n\r\n41\r\n{text}\r\n0\r\n\r\n")).await;
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_all_the_same() {
    let faces = Router::new().route("/never", get(std::future::pending::<()>));
    let bounds = Bounds { answer_within: Duration::from_millis(20), ..BOUNDS };
    let server = start_with(faces, vec![], bounds).await;
    let answer = server.get("/never").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(body(&answer)["error"]["code"], "TIMEOUT");
    assert_eq!(body(&answer)["error"]["message"], "no answer within 0.02 s; what was asked may still happen");
    server.stop().await;
}

#[tokio::test]
async fn requests_are_counted_by_route_and_unknown_paths_together() {
    let server = start_with(Router::new(), vec![], BOUNDS).await;
    for path in ["/healthz", "/made-up-1", "/made-up-2"] {
        server.get(path).await;
    }
    let answer = server.get("/metrics").await;
    assert!(
        answer.contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n")
    );
    for line in [
        "handover_http_requests_total{path=\"/healthz\",status=\"200\"} 1",
        "handover_http_requests_total{path=\"other\",status=\"404\"} 2",
    ] {
        assert!(answer.lines().any(|found| found == line), "expected {line}, found\n{answer}");
    }
    assert!(answer.ends_with("# EOF\n") && !answer.contains("made-up"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_shutdown_finishes_what_is_in_flight_and_takes_nothing_new() {
    let (begun, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
        async move || {
            begun.notify_one();
            release.notified().await;
            "done"
        }
    };
    let server = start_with(Router::new().route("/slow", get(slow)), vec![], BOUNDS).await;
    let in_flight = server.connect("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    begun.notified().await;
    let mut idle = server.connect("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    idle.read_exact(&mut [0; 15]).await.unwrap();

    server.trigger.begin();
    assert!(read_all(idle).await.ends_with("ok"), "the idle connection ends with its answer");
    assert!(!server.serving.is_finished());
    release.notify_one();
    let answer = read_all(in_flight).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\ndone"), "{answer}");
    server.serving.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_shutdown_cuts_what_does_not_finish_in_time() {
    let begun = Arc::new(Notify::new());
    let told = Arc::clone(&begun);
    let never = async move || {
        told.notify_one();
        std::future::pending::<()>().await;
    };
    let server = start_with(Router::new().route("/never", get(never)), vec![], BOUNDS).await;
    let cut = server.connect("GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await;
    begun.notified().await;
    // From here on the clock jumps to the next timer whenever there is nothing left to do.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    server.stop().await;
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(read_all(cut).await, "");
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_another_to_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = Shutdown::new();
    let app = router(Router::new(), vec![], Metrics::new(|_| {}), BOUNDS);
    let serving = tokio::spawn(serve(listener, Wire::Plain, app, 1, shutdown));
    let server = Server { address, trigger, serving };

    let mut first = server.connect("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    first.read_exact(&mut [0; 15]).await.unwrap();
    let second = server.connect("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    let answered = tokio::time::timeout(Duration::from_millis(50), second.readable()).await;
    assert!(answered.is_err(), "the second was served while the first was open");
    drop(first);
    assert!(read_all(second).await.ends_with("ok"));
    server.stop().await;
}

#[tokio::test]
async fn a_handler_finds_where_a_request_comes_from() {
    let peer = |axum::Extension(Peer(peer)): axum::Extension<Peer>| async move { peer.ip().to_string() };
    let server = start_with(Router::new().route("/peer", get(peer)), vec![], BOUNDS).await;
    let answer = server.get("/peer").await;
    assert!(answer.ends_with("\r\n\r\n127.0.0.1"), "{answer}");
    server.stop().await;
}
