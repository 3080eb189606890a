use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, Version};
use axum::routing::post;
use http_body_util::BodyExt;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::listen::{Limits, Settings};
use super::*;
use crate::config::{Format, Level, Log};
use crate::telemetry;
use crate::tls::wire::Wire;
use handover_desk::shutdown::{Shutdown, Trigger};

const BOUNDS: Bounds = Bounds {
    body_bytes_max: 64,
    body_within: Duration::from_secs(30),
    answer_within: Duration::from_secs(30),
};

/// A server on a free port.
struct Server {
    address: std::net::SocketAddr,
    trigger: Trigger,
    serving: JoinHandle<()>,
}

async fn start(router: impl listen::Serve, change: impl FnOnce(&mut Limits)) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = Shutdown::new();
    let mut settings = Settings::new(Wire::Plain);
    change(&mut settings.limits);
    Server { address, trigger, serving: tokio::spawn(serve(listener, settings, router, shutdown)) }
}

async fn start_with(faces: Router, probes: Vec<Probe>, bounds: Bounds) -> Server {
    let checks = Checks::new(probes);
    start(router(faces, checks, Metrics::new(|_| {}), bounds, Hosts::default()), |_| {}).await
}

async fn start_admin(probes: Vec<Probe>) -> Server {
    let checks = Checks::new(probes);
    start(admin_router(checks, None, Metrics::new(|_| {}), BOUNDS, Hosts::default()), |_| {}).await
}

impl Server {
    async fn connect(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await
    }

    async fn ask(&self, request: &str) -> String {
        read_all(self.connect(request).await).await
    }

    /// A client of HTTP/2 that knows that the server speaks it, and how its connection ends.
    async fn connect_two(&self) -> (SendRequest<Body>, JoinHandle<hyper::Result<()>>) {
        let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (requests, connection) = handshake(TokioExecutor::new(), stream).await.unwrap();
        (requests, tokio::spawn(connection))
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
    let server = start_admin(probes).await;
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
    let everybody = start_with(Router::new(), probes.clone(), BOUNDS).await;
    let answer = everybody.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(body(&answer), json!({ "ready": false }), "why is for the operator");
    everybody.stop().await;
    let server = start_admin(probes).await;
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
    let server = start_admin(vec![hang]).await;
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
    let message = "nothing is served at /nothing";
    let expected =
        json!({ "error": { "code": "NOT_FOUND", "message": message, "help": "/errors/NOT_FOUND" } });
    assert_eq!(body(&answer), expected);
    server.stop().await;
}

#[tokio::test]
async fn every_error_code_has_a_page_at_the_link_that_errors_carry() {
    let server = start_with(Router::new(), vec![], BOUNDS).await;
    let kind = "\r\ncontent-type: text/markdown; charset=utf-8\r\n";
    for code in codes::ALL {
        let answer = server.get(&codes::link(code)).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(kind), "{answer}");
        assert!(answer.contains(&format!("\r\n\r\n# {code}\n")), "{answer}");
        // Pages name each other's files.
        let (_, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(server.get(&format!("/errors/{code}.md")).await.ends_with(page));
    }
    for index in ["/errors", "/errors/"] {
        let answer = server.get(index).await;
        assert!(answer.contains(kind) && answer.contains("\n- [BUSY](BUSY.md): "), "{answer}");
    }
    for wrong in ["/errors/NO_SUCH_CODE", "/errors/busy", "/errors/README", "/errors/BUSY/x", "/errorsx"] {
        let answer = server.get(wrong).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert_eq!(body(&answer)["error"]["code"], "NOT_FOUND", "{wrong}");
    }
    // Who is refused because of the host can still read why.
    let head = "HTTP/1.1\r\nhost: elsewhere.example\r\nconnection: close\r\n\r\n";
    let refused = body(&server.ask(&format!("GET /nowhere {head}")).await);
    let help = refused["error"]["help"].as_str().unwrap();
    assert!(server.ask(&format!("GET {help} {head}")).await.contains("\r\n\r\n# HOST_REFUSED\n"));
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_method_is_answered_in_json_with_the_right_ones() {
    let faces = Router::new().route("/grid", post(|| async { "" }));
    let server = start_with(faces, vec![], BOUNDS).await;
    let answer = server.ask("DELETE /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nallow: GET,HEAD\r\n"), "{answer}");
    let (code, help) = ("METHOD_NOT_ALLOWED", "/errors/METHOD_NOT_ALLOWED");
    let expected =
        json!({ "error": { "code": code, "message": "/healthz does not take DELETE", "help": help } });
    assert_eq!(body(&answer), expected);
    assert_eq!(body(&server.get("/grid").await)["error"]["code"], "METHOD_NOT_ALLOWED");
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_with_and_without_a_length() {
    let faces = Router::new().route("/echo", post(|body: Bytes| async move { body }));
    let server = start_with(faces, vec![], BOUNDS).await;
    let head = "POST /echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
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
    // The time for a body that has come, or that there is not, is not added to that for the answer.
    let hour = Duration::from_secs(3600);
    let bounds = Bounds { body_within: hour, answer_within: Duration::from_millis(20), ..BOUNDS };
    let faces = faces.route(
        "/read",
        post(move |body: Body| async move {
            body::gather(body, 64, hour, |_| Ok(())).await.unwrap();
            std::future::pending::<()>().await;
        }),
    );
    let server = start_with(faces, vec![], bounds).await;
    let read = "POST /read HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    for answer in [server.get("/never").await, server.ask(read).await] {
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert_eq!(body(&answer)["error"]["code"], "TIMEOUT");
        let message = "no answer within 0.02 s; what was asked may still happen";
        assert_eq!(body(&answer)["error"]["message"], message);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_was_waited_for_on_purpose_is_counted_but_not_timed() {
    let metrics = Metrics::new(|_| {});
    let faces = Router::new()
        .route("/grid/waits", get(|| async { axum::Extension(Awaited).into_response() }))
        .route("/grid/plain", get(|| async { "ok" }));
    let served = router(faces, Checks::new(vec![]), Arc::clone(&metrics), BOUNDS, Hosts::default());
    let server = start(served, |_| {}).await;
    for path in ["/grid/plain", "/grid/waits", "/grid/waits"] {
        assert!(server.get(path).await.starts_with("HTTP/1.1 200 "), "{path}");
    }
    server.stop().await;
    let text = metrics.to_text();
    for line in [
        "handover_http_requests_total{path=\"/grid/waits\",status=\"200\"} 2",
        "handover_answer_seconds_count{face=\"grid\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[tokio::test]
async fn requests_are_counted_by_route_and_unknown_paths_together() {
    let server = start_with(Router::new(), vec![], BOUNDS).await;
    assert!(server.get("/metrics").await.starts_with("HTTP/1.1 404 "), "they are for the operator");
    server.stop().await;
    let server = start_admin(vec![]).await;
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
    let in_flight = server.connect("GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    begun.notified().await;
    let mut idle = server.connect("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
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
    let cut = server.connect("GET /never HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    begun.notified().await;
    // From here on the clock jumps to the next timer whenever there is nothing left to do.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    server.stop().await;
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(read_all(cut).await, "");
}

/// A route of known callers, as a face with a good token makes them.
fn known() -> Front {
    let known = |axum::Extension(peer): axum::Extension<Peer>| async move {
        peer.is_known();
        "known"
    };
    let checks = Checks::new(vec![]);
    let faces = Router::new().route("/known", get(known));
    router(faces, checks, Metrics::new(|_| {}), BOUNDS, Hosts::default())
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_a_known_one_to_end() {
    let server = start(known(), |limits| limits.connections_max = 1).await;
    let mut first = server.connect("GET /known HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    first.read_exact(&mut [0; 15]).await.unwrap();
    let second =
        server.connect("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    let answered = tokio::time::timeout(Duration::from_millis(50), second.readable()).await;
    assert!(answered.is_err(), "the second was served while the first was open");
    drop(first);
    assert!(read_all(second).await.ends_with("ok"));
    server.stop().await;
}

#[tokio::test]
async fn connections_that_say_nothing_make_way_and_known_ones_stay() {
    let server = start(known(), |limits| limits.connections_max = 10).await;
    let mut kept = server.connect("GET /known HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    kept.read_exact(&mut [0; 15]).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    // It comes in behind them all, and is served.
    assert!(server.get("/healthz").await.ends_with("ok"));
    for stream in &mut silent[..91] {
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "it made way");
    }
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(read_all(kept).await.ends_with("ok"));
    server.stop().await;
}

#[tokio::test]
async fn a_handler_finds_where_a_request_comes_from() {
    let peer = |axum::Extension(peer): axum::Extension<Peer>| async move { peer.address.ip().to_string() };
    let server = start_with(Router::new().route("/peer", get(peer)), vec![], BOUNDS).await;
    let answer = server.get("/peer").await;
    assert!(answer.ends_with("\r\n\r\n127.0.0.1"), "{answer}");
    server.stop().await;
}

fn request_two(path: &str) -> Request<Body> {
    Request::get(format!("http://localhost:8420{path}")).body(Body::empty()).unwrap()
}

async fn text(answer: hyper::Response<hyper::body::Incoming>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn http_2_is_served_in_the_clear_to_those_who_begin_with_it() {
    let found = |uri: Uri, headers: HeaderMap| async move { host::of(&uri, &headers).unwrap().to_owned() };
    let server = start_with(Router::new().route("/host", get(found)), vec![], BOUNDS).await;
    let (mut requests, _) = server.connect_two().await;
    for _ in 0..3 {
        let (live, found) = tokio::join!(
            requests.clone().send_request(request_two("/healthz")),
            requests.send_request(request_two("/host")),
        );
        let (live, found) = (live.unwrap(), found.unwrap());
        assert_eq!((live.status(), live.version()), (StatusCode::OK, Version::HTTP_2));
        assert_eq!((text(live).await, text(found).await), ("ok".to_owned(), "localhost:8420".to_owned()));
    }
    let one = server.ask("GET /host HTTP/1.1\r\nhost: localhost:8420\r\nconnection: close\r\n\r\n").await;
    assert!(one.ends_with("\r\n\r\nlocalhost:8420"), "{one}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_over_http_2_as_well() {
    let faces = Router::new().route("/echo", post(|body: Bytes| async move { body }));
    let server = start_with(faces, vec![], BOUNDS).await;
    let (mut requests, _) = server.connect_two().await;
    for (bytes, status) in [(64, 200), (65, 413)] {
        let stream = tokio_stream::once(Ok::<_, std::convert::Infallible>(Bytes::from(vec![b'x'; bytes])));
        for body in [Body::from(vec![b'x'; bytes]), Body::from_stream(stream)] {
            let request = Request::post("http://localhost/echo").body(body).unwrap();
            assert_eq!(requests.send_request(request).await.unwrap().status(), status);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_shutdown_finishes_what_is_in_flight_over_http_2_and_takes_nothing_new() {
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
    let (mut requests, connection) = server.connect_two().await;
    let (mut idle, idle_connection) = server.connect_two().await;
    assert_eq!(idle.send_request(request_two("/healthz")).await.unwrap().status(), StatusCode::OK);
    let in_flight = tokio::spawn(requests.send_request(request_two("/slow")));
    begun.notified().await;

    server.trigger.begin();
    idle_connection.await.unwrap().unwrap();
    // What was sent before the client heard of it may still be answered.
    while requests.send_request(request_two("/healthz")).await.is_ok() {}
    assert!(!server.serving.is_finished() && !in_flight.is_finished());
    release.notify_one();
    assert_eq!(text(in_flight.await.unwrap().unwrap()).await, "done");
    connection.await.unwrap().unwrap();
    server.serving.await.unwrap();
}

#[tokio::test]
async fn a_shutdown_cuts_a_stream_of_http_2_that_does_not_end() {
    let stream = || async { Body::from_stream(tokio_stream::pending::<Result<Bytes, std::io::Error>>()) };
    let server = start_with(Router::new().route("/stream", get(stream)), vec![], BOUNDS).await;
    let (mut requests, connection) = server.connect_two().await;
    let answer = requests.send_request(request_two("/stream")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    server.stop().await;
    assert_eq!(began.elapsed().as_secs(), 10);
    assert!(answer.into_body().collect().await.is_err());
    _ = connection.await.unwrap();
}

/// The preface of a client of HTTP/2, and settings that change nothing.
const OPENING: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_connection_of_http_2_has_bounds_and_says_so() {
    let server = start_with(Router::new(), vec![], BOUNDS).await;
    let mut stream = server.connect(OPENING).await;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame of a server has its settings");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let said: Vec<(u16, u32)> = settings
        .chunks(6)
        .map(|one| {
            (u16::from_be_bytes([one[0], one[1]]), u32::from_be_bytes([one[2], one[3], one[4], one[5]]))
        })
        .collect();
    let (streams_max, headers_bytes_max) = ((3, 100), (6, 16 * 1024));
    assert!(said.contains(&streams_max) && said.contains(&headers_bytes_max), "{said:?}");
    // A shutdown waits for clients that do not answer.
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_is_not_there_any_more_is_let_go() {
    let server = start_with(Router::new(), vec![], BOUNDS).await;
    for opening in ["", "PRI * HTTP", "GET / HTTP/1.1\r\n", OPENING] {
        let began = tokio::time::Instant::now();
        let mut stream = server.connect(opening).await;
        // Answered on another connection: the opening has been read.
        server.get("/healthz").await;
        tokio::time::pause();
        _ = stream.read_to_end(&mut Vec::new()).await;
        // What went before is no longer than a busy machine takes.
        assert!((10..20).contains(&began.elapsed().as_secs()), "{opening:?}: {:?}", began.elapsed());
        tokio::time::resume();
    }
    server.stop().await;
}

#[tokio::test]
async fn a_host_that_is_not_answered_for_is_refused_before_the_body_is_read() {
    let faces = Router::new().route("/echo", post(|body: Bytes| async move { body }));
    let server = start_with(faces, vec![], BOUNDS).await;
    let ask = async |host: &str| {
        let head = format!("POST /echo HTTP/1.1\r\n{host}connection: close\r\ncontent-length: 5\r\n\r\n");
        server.ask(&head).await
    };
    for refused in ["host: evil.example\r\n", "host: localhost.evil.example:80\r\n"] {
        let answer = ask(refused).await;
        assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("evil"), "{answer}");
        assert_eq!(body(&answer)["error"]["code"], "HOST_REFUSED");
        assert!(body(&answer)["error"]["message"].as_str().unwrap().contains("http_hosts"), "{answer}");
    }
    for wrong in ["", "host: \r\n", "host: a b\r\n", "host: localhost\r\nhost: localhost\r\n"] {
        let answer = ask(wrong).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(body(&answer)["error"]["code"], "HOST_INVALID");
    }
    server.stop().await;
}

#[tokio::test]
async fn hosts_are_checked_on_every_route_and_in_both_versions_but_not_for_probes() {
    let server = start_admin(vec![]).await;
    let ask = async |path: &str, host: &str| {
        server.ask(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")).await
    };
    for path in ["/metrics", "/nowhere"] {
        assert!(ask(path, "evil.example").await.starts_with("HTTP/1.1 421 "), "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert!(ask(path, "evil.example").await.starts_with("HTTP/1.1 200 "), "{path}");
    }
    for host in ["localhost:1", "console.localhost", "127.0.0.1:8420", "[::1]", "10.1.2.3"] {
        assert!(ask("/metrics", host).await.starts_with("HTTP/1.1 200 "), "{host}");
    }
    let (mut requests, _) = server.connect_two().await;
    for (host, status) in [("evil.example", 421), ("localhost:8420", 200)] {
        let request = Request::get(format!("http://{host}/metrics")).body(Body::empty()).unwrap();
        assert_eq!(requests.send_request(request).await.unwrap().status(), status, "{host}");
    }
    server.stop().await;
}

/// What a server logs at this level while it answers these.
async fn logged(level: Level, requests: &[&str]) -> Vec<serde_json::Value> {
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let writer = Arc::clone(&lines);
    let log = Log { level, format: Format::Json };
    let (subscriber, _) = telemetry::subscriber(&log, move || Shared(Arc::clone(&writer)));
    // The tasks of this test are all on its thread.
    let _logging = tracing::subscriber::set_default(subscriber);
    let known = || async { line::note("agent", "planner") };
    let server = start_with(Router::new().route("/known", get(known)), vec![], BOUNDS).await;
    for request in requests {
        server.ask(&format!("{request}connection: close\r\nauthorization: Bearer secret\r\n\r\n")).await;
    }
    server.stop().await;
    let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    assert!(!lines.contains("secret"), "{lines}");
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

struct Shared(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_request_is_one_line_of_the_log_at_debug() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traced =
        format!("GET /known HTTP/1.1\r\nhost: localhost\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let requests = [
        traced.as_str(),
        "GET /made-up HTTP/1.1\r\nhost: localhost\r\n",
        "POST /known HTTP/1.1\r\nhost: evil.example\r\n",
    ];
    let lines = logged(Level::Debug, &requests).await;
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            assert!(line["duration_ms"].is_f64() && line["level"] == "DEBUG", "{line}");
            let span = &line["span"];
            json!([line["route"], line["method"], line["status"], line["trace"], span["agent"], span["code"]])
        })
        .collect();
    let expected = [
        json!(["/known", "GET", 200, trace, "planner", null]),
        json!(["other", "GET", 404, null, null, "NOT_FOUND"]),
        json!(["/known", "POST", 421, null, null, "HOST_REFUSED"]),
    ];
    assert_eq!(shown, expected);
    assert_eq!(logged(Level::Info, &requests).await, [json!(null); 0]);
}
