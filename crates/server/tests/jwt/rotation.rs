//! Keys that change while the server runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use handover_desk::identity::jwt::settings::Settings;
use handover_desk::identity::jwt::{Verifier, header};
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_kernel::Timestamp;
use handover_server::issuer::settings::Source;
use handover_server::issuer::{self as source, fetch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::issuer::*;

/// How long anything may take before a play has failed: long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long after one reading the next may begin, in these plays.
const AGAIN_AFTER: Duration = Duration::from_millis(40);

fn checked(verifier: &Verifier, token: &str) -> Result<(), &'static str> {
    verifier.verify(token, &header(token).unwrap(), Timestamp(now() * 1000)).map(|_| ())
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A verifier whose keys are read again until the trigger is dropped.
async fn fresh(source: Source, refresh: Duration) -> (Arc<Verifier>, Trigger) {
    let settings = Settings { refresh, ..settings() };
    let verifier = source::open(settings, &source).await.unwrap();
    let (trigger, shutdown) = Shutdown::new();
    tokio::spawn(source::keep_fresh(Arc::clone(&verifier), source, AGAIN_AFTER, |_| (), shutdown));
    (verifier, trigger)
}

fn url(served: &Served) -> Source {
    Source::Url(served.url().parse().unwrap())
}

#[tokio::test]
async fn a_new_key_is_taken_up_and_an_old_one_is_good_while_it_is_listed() {
    let (old, new) = (Key::rsa("old"), Key::ec("new"));
    let (old_token, new_token) = (old.token(&claims()), new.token(&claims()));
    let served = Served::new(&[&old]).await;
    let (verifier, _trigger) = fresh(url(&served), AGAIN_AFTER).await;
    assert_eq!(checked(&verifier, &old_token), Ok(()));
    assert_eq!(checked(&verifier, &new_token), Err("its key is not known"));

    served.serve(&[&old, &new]);
    until("the new key", || checked(&verifier, &new_token).is_ok()).await;
    assert_eq!(checked(&verifier, &old_token), Ok(()));

    served.serve(&[&new]);
    until("the end of the old key", || checked(&verifier, &old_token) == Err("its key is not known")).await;
    assert_eq!(checked(&verifier, &new_token), Ok(()));
}

#[tokio::test]
async fn an_outage_keeps_the_old_keys() {
    let (old, new) = (Key::ed("old"), Key::ed("new"));
    let (old_token, new_token) = (old.token(&claims()), new.token(&claims()));
    let served = Served::new(&[&old]).await;
    let (verifier, _trigger) = fresh(url(&served), AGAIN_AFTER).await;
    let long = "x".repeat(1024 * 1024 + 1);
    for outage in [
        String::new(),
        "nonsense".to_owned(),
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_owned(),
        format!("HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", served.url()),
        ok("{}"),
        ok("<html>"),
        ok(&long),
        ok(&set(&[&new])).replace("200 OK", "203 Elsewhere"),
    ] {
        served.answer(outage.clone());
        // The answer that was being given may have been the one before.
        let asked = served.asked() + 2;
        until("two more answers", || served.asked() >= asked).await;
        assert_eq!(checked(&verifier, &old_token), Ok(()), "{:.60}", outage);
        assert_eq!(checked(&verifier, &new_token), Err("its key is not known"), "{:.60}", outage);
    }
    served.serve(&[&new]);
    until("the new key", || checked(&verifier, &new_token).is_ok()).await;
}

#[tokio::test]
async fn an_issuer_that_is_away_at_the_start_is_asked_until_it_answers() {
    let key = Key::ed("d");
    let token = key.token(&claims());
    let served = Served::new(&[]).await;
    served.answer(String::new());
    let (verifier, _trigger) = fresh(url(&served), PATIENCE * 10).await;
    assert_eq!(checked(&verifier, &token), Err("the keys of its issuer are not known yet"));
    assert!(verifier.ready().is_err());
    served.serve(&[&key]);
    until("the key", || checked(&verifier, &token).is_ok()).await;
    assert_eq!(verifier.ready(), Ok(()));
}

#[tokio::test]
async fn an_unknown_key_is_asked_for_at_once_but_not_for_each_token() {
    let (known, unknown) = (Key::ed("known"), Key::ed("unknown"));
    let token = unknown.token(&claims());
    let served = Served::new(&[&known]).await;
    let began = Instant::now();
    let (verifier, _trigger) = fresh(url(&served), PATIENCE * 10).await;
    until("five answers", || {
        assert_eq!(checked(&verifier, &token), Err("its key is not known"));
        served.asked() >= 5
    })
    .await;
    assert!(began.elapsed() >= AGAIN_AFTER * 4, "the first answer and four more");
    served.serve(&[&known, &unknown]);
    until("the key", || checked(&verifier, &token).is_ok()).await;
}

#[tokio::test]
async fn a_file_is_read_again_when_it_changes_and_must_be_right_at_the_start() {
    let (old, new) = (Key::ed("old"), Key::ed("new"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.json");
    let file = Source::File(path.clone());
    for wrong in [None, Some("{}"), Some("no JSON")] {
        if let Some(text) = wrong {
            std::fs::write(&path, text).unwrap();
        }
        let error = source::open(settings(), &file).await.unwrap_err();
        let expected = format!("expected a JWK set in the file {}, found: ", path.display());
        assert!(error.starts_with(&expected), "{error}");
    }
    std::fs::write(&path, set(&[&old])).unwrap();
    let (verifier, _trigger) = fresh(file, AGAIN_AFTER).await;
    assert_eq!(checked(&verifier, &old.token(&claims())), Ok(()));
    std::fs::write(&path, set(&[&new])).unwrap();
    let token = new.token(&claims());
    until("the new key", || checked(&verifier, &token).is_ok()).await;
    assert_eq!(checked(&verifier, &old.token(&claims())), Err("its key is not known"));
}

#[tokio::test]
async fn keys_come_over_tls_only_from_whom_the_certificate_names() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            _ = stream.read(&mut [0; 4096]).await;
            _ = stream.write_all(ok("keys").as_bytes()).await;
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let get = async |host: &str, roots: &RootCertStore| {
        fetch::get(&format!("https://{host}:{port}/keys").parse().unwrap(), roots.clone()).await
    };
    assert_eq!(get("localhost", &roots).await, Ok(b"keys".to_vec()));
    let other_name = get("127.0.0.1", &roots).await.unwrap_err();
    assert!(other_name.starts_with("TLS: "), "{other_name}");
    let unknown = get("localhost", &RootCertStore::empty()).await.unwrap_err();
    assert!(unknown.starts_with("TLS: "), "{unknown}");
}
