//! TLS over real connections: who can speak, what a new certificate changes, and what is wrong with files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod certificate;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handover_desk::identity::Identity;
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::{Data, Desk};
use handover_server::config::{AuditFile, Config};
use handover_server::face::macp::proto::v1::ListSessionsRequest;
use handover_server::face::macp::proto::v1::macp_runtime_service_client::MacpRuntimeServiceClient;
use handover_server::house::House;
use handover_server::http::listen::{PROTOCOLS, Settings};
use handover_server::http::{self, Bounds, Checks, Hosts, Router};
use handover_server::telemetry::Metrics;
use handover_server::tls::wire::Wire;
use handover_server::tls::{self, Files, Tls};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tonic::Request;
use tonic::transport::{Channel, ClientTlsConfig};

use self::certificate::{Certificate, client, pem};

/// How long anything may take before a play has failed: long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

async fn in_time<T>(play: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, play).await.expect("waited in vain")
}

/// A configuration that writes no audit log.
fn unaudited() -> Config {
    let mut config = Config::default();
    config.audit.file = AuditFile::Off;
    config
}

/// Both listeners of a server, over TLS. It ends with the play.
struct Served {
    http: SocketAddr,
    macp: SocketAddr,
    dir: TempDir,
    tls: Arc<Tls>,
    metrics: Arc<Metrics>,
    desk: Desk,
    trigger: Trigger,
}

impl Served {
    async fn new(certificate: &Certificate) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = certificate.write(dir.path());
        let tls = Tls::open(Files { certificate: path, key }).unwrap();
        let (trigger, shutdown) = Shutdown::new();
        let opened =
            House::open(Data::Memory, &unaudited(), Identity::Development, shutdown.clone()).unwrap();
        let House { desk, macp: face, metrics, .. } = opened;
        let wire = |protocols: &[&[u8]]| Wire::Tls {
            acceptor: tls.acceptor(protocols),
            failed: metrics.tls_handshakes_failed.clone(),
        };
        let bounds = Bounds::for_payload(1024);
        let router =
            http::router(Router::new(), Checks::new(vec![]), Arc::clone(&metrics), bounds, Hosts::default());
        let listeners = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let (http, macp) = (listeners.0.local_addr().unwrap(), listeners.1.local_addr().unwrap());
        tokio::spawn(http::serve(listeners.0, Settings::new(wire(&PROTOCOLS)), router, shutdown));
        tokio::spawn(face.serve(listeners.1, Settings::new(wire(&[b"h2"]))));
        Served { http, macp, dir, tls, metrics, desk, trigger }
    }

    async fn stop(self) {
        self.trigger.begin();
        tokio::task::spawn_blocking(move || self.desk.stop()).await.unwrap();
    }
}

async fn connect(
    address: SocketAddr,
    trusted: &[&Certificate],
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(client(trusted, &[protocol], &[&TLS12, &TLS13]));
    let stream = TcpStream::connect(address).await.unwrap();
    in_time(connector.connect(ServerName::try_from("localhost").unwrap(), stream)).await
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

/// The status line of an answer on a connection that stays open.
async fn healthz(stream: &mut TlsStream<TcpStream>) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        answer.push(in_time(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(answer).unwrap().lines().next().unwrap().to_owned()
}

async fn channel(address: SocketAddr, certificate: &Certificate) -> Result<Channel, tonic::transport::Error> {
    let trusted = tonic::transport::Certificate::from_pem(certificate.pem());
    let tls = ClientTlsConfig::new().ca_certificate(trusted).domain_name("localhost");
    let endpoint = Channel::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap();
    in_time(endpoint.connect()).await
}

async fn list(channel: Channel) -> Result<(), tonic::Status> {
    let mut request = Request::new(ListSessionsRequest::default());
    request.metadata_mut().insert("authorization", "Bearer planner".parse().unwrap());
    in_time(MacpRuntimeServiceClient::new(channel).list_sessions(request)).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_and_http_are_served_over_tls_in_both_versions() {
    let certificate = Certificate::new();
    let served = Served::new(&certificate).await;
    list(channel(served.macp, &certificate).await.unwrap()).await.unwrap();
    for version in [&TLS12, &TLS13] {
        let connector = TlsConnector::from(client(&[&certificate], &[b"http/1.1"], &[version]));
        let stream = TcpStream::connect(served.http).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = in_time(connector.connect(name, stream)).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
        assert_eq!(healthz(&mut stream).await, "HTTP/1.1 200 OK");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_http_chooses_its_version_by_alpn() {
    let certificate = Certificate::new();
    let served = Served::new(&certificate).await;
    for (offered, chosen) in [
        (&[b"h2".as_slice(), b"http/1.1"][..], Some(b"h2".as_slice())),
        (&[b"http/1.1", b"h2"], Some(b"h2")),
        (&[b"h2"], Some(b"h2")),
        (&[b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let connector = TlsConnector::from(client(&[&certificate], offered, &[&TLS12, &TLS13]));
        let stream = TcpStream::connect(served.http).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = in_time(connector.connect(name, stream)).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
        if chosen != Some(b"h2") {
            assert_eq!(healthz(&mut stream).await, "HTTP/1.1 200 OK");
            continue;
        }
        let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut requests, connection) = in_time(opened).await.unwrap();
        tokio::spawn(connection);
        let request =
            hyper::Request::get("https://localhost/healthz").body(axum::body::Body::empty()).unwrap();
        let answer = in_time(requests.send_request(request)).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, hyper::Version::HTTP_2));
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_keep_to_tls_is_not_served_and_is_counted() {
    let certificate = Certificate::new();
    let served = Served::new(&certificate).await;
    let mut clear = TcpStream::connect(served.http).await.unwrap();
    clear.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    in_time(clear.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(connect(served.http, &[&certificate], b"spdy/3").await.is_err(), "SPDY is not spoken there");
    assert!(connect(served.macp, &[&certificate], b"http/1.1").await.is_err());
    assert!(channel(served.macp, &Certificate::new()).await.is_err(), "a client that does not trust us");
    let began = Instant::now();
    while served.metrics.tls_handshakes_failed.get() < 4 {
        assert!(began.elapsed() < PATIENCE, "counted {}", served.metrics.tls_handshakes_failed.get());
        tokio::task::yield_now().await;
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_says_nothing_keeps_nobody_waiting() {
    let certificate = Certificate::new();
    let served = Served::new(&certificate).await;
    let mut silent = Vec::new();
    for address in [served.http, served.macp] {
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
    }
    // Connections are accepted in order: these come after the silent ones.
    let mut http = connect(served.http, &[&certificate], b"http/1.1").await.unwrap();
    assert_eq!(healthz(&mut http).await, "HTTP/1.1 200 OK");
    list(channel(served.macp, &certificate).await.unwrap()).await.unwrap();
    drop(silent);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_shown_to_new_connections_while_old_ones_go_on() {
    let (old, new) = (Certificate::new(), Certificate::new());
    let served = Served::new(&old).await;
    let (_trigger, shutdown) = Shutdown::new();
    tokio::spawn(tls::keep_fresh(Arc::clone(&served.tls), Duration::from_millis(20), shutdown));
    let mut before = connect(served.http, &[&old], b"http/1.1").await.unwrap();
    let calls_before = channel(served.macp, &old).await.unwrap();
    assert_eq!(healthz(&mut before).await, "HTTP/1.1 200 OK");

    new.write(served.dir.path());
    let began = Instant::now();
    loop {
        let stream = connect(served.http, &[&old, &new], b"http/1.1").await.unwrap();
        if shown(&stream) == new.der {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for the new certificate");
    }
    assert_eq!(healthz(&mut before).await, "HTTP/1.1 200 OK");
    list(calls_before).await.unwrap();
    list(channel(served.macp, &new).await.unwrap()).await.unwrap();
    assert!(channel(served.macp, &old).await.is_err());
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_pair_keeps_the_old_one() {
    let (old, new) = (Certificate::new(), Certificate::new());
    let served = Served::new(&old).await;
    assert_eq!(served.tls.reload(), Ok(false));
    let (certificate, key) = (served.dir.path().join("certificate.pem"), served.dir.path().join("key.pem"));
    for (path, text) in
        [(&certificate, "no PEM".to_owned()), (&certificate, new.pem()), (&key, String::new())]
    {
        std::fs::write(path, text).unwrap();
        served.tls.reload().unwrap_err();
        let stream = connect(served.http, &[&old], b"http/1.1").await.unwrap();
        assert_eq!(shown(&stream), old.der);
    }
    std::fs::remove_file(&key).unwrap();
    served.tls.reload().unwrap_err();
    std::fs::write(&key, new.key_pem()).unwrap();
    assert_eq!(served.tls.reload(), Ok(true));
    let stream = connect(served.http, &[&new], b"http/1.1").await.unwrap();
    assert_eq!(shown(&stream), new.der);
    served.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_refused_with_what_is_wrong() {
    let (one, two) = (Certificate::new(), Certificate::new());
    let secret = one.key_pem();
    let damaged = pem("CERTIFICATE", b"not a certificate");
    let cases: [(Option<String>, Option<String>, &str); 8] = [
        (
            None,
            Some(secret.clone()),
            "tls.certificate: expected certificates in PEM in the file CERT, found No such",
        ),
        (Some(one.pem()), None, "tls.key: expected a private key in PEM in the file KEY, found No such file"),
        (
            Some("text".to_owned()),
            Some(secret.clone()),
            "tls.certificate: expected certificates in PEM in the file CERT, found none",
        ),
        (
            Some(String::new()),
            Some(secret.clone()),
            "tls.certificate: expected certificates in PEM in the file CERT, found none",
        ),
        (
            Some(one.pem()),
            Some("text".to_owned()),
            "tls.key: expected a private key in PEM in the file KEY, found none",
        ),
        (
            Some(one.pem()),
            Some(one.pem()),
            "tls.key: expected a private key in PEM in the file KEY, found none",
        ),
        (
            Some(one.pem()),
            Some(two.key_pem()),
            "tls.key: expected the key of the certificate in CERT, found that of another in KEY",
        ),
        (
            Some(damaged),
            Some(secret.clone()),
            "tls.certificate and tls.key: expected a pair that can be used, found: ",
        ),
    ];
    for (certificate_text, key_text, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { certificate: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        for (path, text) in [(&files.certificate, certificate_text), (&files.key, key_text)] {
            if let Some(text) = text {
                std::fs::write(path, text).unwrap();
            }
        }
        let expected = expected
            .replace("CERT", &files.certificate.display().to_string())
            .replace("KEY", &files.key.display().to_string());
        let error = Tls::open(files).unwrap_err();
        assert!(error.starts_with(&expected), "expected {expected}, found {error}");
        let line = secret.lines().nth(1).unwrap();
        assert!(!error.contains(line), "{error}");
    }
}

#[test]
fn both_files_are_set_or_none() {
    let tls = |certificate: &str, key: &str| {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        let unset = handover_server::config::Config::default().tls;
        tls::files(&handover_server::config::Tls { certificate: some(certificate), key: some(key), ..unset })
    };
    assert_eq!(tls("", ""), Ok(None));
    assert!(tls("c", "k").unwrap().is_some());
    assert!(tls("c", "").unwrap_err().starts_with("tls.key: expected the private key, because"));
    assert!(tls("", "k").unwrap_err().starts_with("tls.certificate: expected a certificate, because"));
}
