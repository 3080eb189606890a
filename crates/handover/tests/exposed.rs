//! The built binary where others can reach it: TLS, who is let in, and what it refuses to do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;
#[path = "../../server/tests/tls/certificate.rs"]
mod certificate;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use self::binary::{handover, said};
use self::certificate::{Certificate, client};

/// How long anything may take before a play has failed: long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that has said that it is ready.
struct Server {
    child: Child,
    ready: String,
}

impl Server {
    /// With these settings, on every address of this machine.
    fn start(dir: &Path, settings: &[(&str, &Path)]) -> Server {
        let mut command = handover();
        command.args(["serve", "--http", "0.0.0.0:0", "--macp", "0.0.0.0:0", "--data"]).arg(dir.join("data"));
        command.envs(settings.iter().map(|(name, value)| (format!("HANDOVER_{name}"), value)));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        Server { child, ready }
    }

    /// The port of HTTP, from the ready line.
    fn port(&self) -> u16 {
        let (_, rest) = self.ready.split_once("://0.0.0.0:").unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A file of one token.
fn tokens(dir: &Path) -> std::path::PathBuf {
    tokens_and_one(dir).0
}

/// A file of one token, and the token.
fn tokens_and_one(dir: &Path) -> (std::path::PathBuf, String) {
    let path = dir.join("tokens.toml");
    let output = handover().args(["token", "--agent", "planner"]).output().unwrap();
    let (entry, shown) = said(&output);
    std::fs::write(&path, entry).unwrap();
    (path, shown.trim().rsplit(' ').next().unwrap().to_owned())
}

/// The status line of `/healthz`, and the certificate that was shown.
fn healthz(port: u16, trusted: &[&Certificate]) -> (String, CertificateDer<'static>) {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(client(trusted, &[b"http/1.1"], &[&TLS13]), name).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(("127.0.0.1", port)).unwrap());
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let shown = stream.conn.peer_certificates().unwrap()[0].clone();
    (answer.lines().next().unwrap().to_owned(), shown)
}

#[test]
fn with_tokens_and_a_certificate_others_may_come_and_sighup_shows_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Certificate::new(), Certificate::new());
    let (certificate, key) = old.write(dir.path());
    let settings = [
        ("IDENTITY_TOKENS", tokens(dir.path())),
        ("TLS_CERTIFICATE", certificate),
        ("TLS_KEY", key),
        // Only the signal makes it read the files again.
        ("TLS_RELOAD_SECONDS", "86400".into()),
    ];
    let server = Server::start(dir.path(), &settings.each_ref().map(|(name, path)| (*name, path.as_path())));
    assert!(server.ready.starts_with("handover is ready at https://0.0.0.0:"), "{}", server.ready);
    assert!(
        server.ready.contains(", MACP at 0.0.0.0:") && server.ready.contains(" over TLS, "),
        "{}",
        server.ready
    );
    assert!(server.ready.ends_with(", static tokens\n"), "{}", server.ready);
    assert_eq!(healthz(server.port(), &[&old]), ("HTTP/1.1 200 OK".to_owned(), old.der.clone()));

    new.write(dir.path());
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &id]).status().unwrap().success());
    let began = Instant::now();
    while healthz(server.port(), &[&old, &new]).1 != new.der {
        assert!(began.elapsed() < PATIENCE, "waited in vain for the new certificate");
    }
}

#[test]
fn a_bridge_speaks_over_tls_to_a_server_that_it_trusts_and_to_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = Certificate::new().write(dir.path());
    let (tokens, token) = tokens_and_one(dir.path());
    let settings = [("IDENTITY_TOKENS", &*tokens), ("TLS_CERTIFICATE", &*certificate), ("TLS_KEY", &*key)];
    let server = Server::start(dir.path(), &settings);
    let ask = |trusted: &Path| {
        let mut bridge = handover()
            .args(["mcp", "--server", &format!("https://localhost:{}", server.port())])
            .env("HANDOVER_TOKEN", &token)
            .env("SSL_CERT_FILE", trusted)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let mut input = bridge.stdin.take().unwrap();
        writeln!(input, r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{meta}}}}}"#)
            .unwrap();
        let mut answer = String::new();
        BufReader::new(bridge.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        drop(input);
        assert!(bridge.wait().unwrap().success());
        serde_json::from_str::<serde_json::Value>(&answer).unwrap()
    };
    assert!(ask(&certificate)["result"]["tools"].is_array());
    let other = tempfile::tempdir().unwrap();
    let (other, _) = Certificate::new().write(other.path());
    let refused = ask(&other);
    assert!(refused["error"]["message"].as_str().unwrap().contains("TLS"), "{refused}");
}

#[test]
fn behind_a_proxy_that_ends_tls_others_may_come_in_the_clear_if_they_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = tokens(dir.path());
    let elsewhere = ("TLS_TERMINATED_ELSEWHERE", Path::new("true"));
    let server = Server::start(dir.path(), &[("IDENTITY_TOKENS", &tokens), elsewhere]);
    assert!(server.ready.starts_with("handover is ready at http://0.0.0.0:"), "{}", server.ready);
    let unknown = Server::start(&dir.path().join("another"), &[elsewhere]);
    assert_eq!(unknown.ready, "");
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Certificate::new(), Certificate::new());
    let (certificate, key) = one.write(dir.path());
    let other = dir.path().join("other.pem");
    std::fs::write(&other, two.key_pem()).unwrap();
    let keys = dir.path().join("keys.json");
    std::fs::write(&keys, "{}").unwrap();
    let data = dir.path().join("data");
    let (certificate, key, other, keys) = (
        certificate.to_str().unwrap(),
        key.to_str().unwrap(),
        other.to_str().unwrap(),
        keys.to_str().unwrap(),
    );
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[("TLS_CERTIFICATE", certificate)], "tls.key: expected the private key, because "),
        (&[("TLS_KEY", key)], "tls.certificate: expected a certificate, because "),
        (
            &[("TLS_CERTIFICATE", certificate), ("TLS_KEY", other)],
            "tls.key: expected the key of the certificate in ",
        ),
        (&[("IDENTITY_JWT_KEYS", keys)], "identity.jwt_issuer: expected the issuer of the tokens, because "),
        (
            &[("IDENTITY_JWT_ISSUER", "x")],
            "identity.jwt_keys: expected a file or a URL of the issuer's keys, because ",
        ),
        (
            &[("IDENTITY_JWT_KEYS", keys), ("IDENTITY_JWT_ISSUER", "x"), ("IDENTITY_JWT_AUDIENCE", "y")],
            "identity.jwt_keys: expected a JWK set in the file ",
        ),
        (
            &[
                ("IDENTITY_JWT_KEYS", "http://x/"),
                ("IDENTITY_JWT_ISSUER", "x"),
                ("IDENTITY_JWT_AUDIENCE", "y"),
            ],
            "identity.jwt_keys: expected an https URL, because ",
        ),
    ];
    for (settings, expected) in cases {
        let mut command = handover();
        command.args(["serve", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--data"]).arg(&data);
        command.envs(settings.iter().map(|(name, value)| (format!("HANDOVER_{name}"), value)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{expected}");
        let (out, error) = said(&output);
        assert_eq!(out, "");
        assert!(error.starts_with(&format!("error: {expected}")), "{error}");
    }
    assert!(!data.exists());
}
