//! Certificates made for a test, their files, and clients that trust them.

// No test file needs all of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// A certificate of `localhost` that is its own authority.
pub struct Certificate {
    pub der: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Certificate {
    pub fn new() -> Certificate {
        Certificate::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let der = params.self_signed(&key).unwrap().der().clone();
        Certificate { der, key: key.serialize_der() }
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }

    /// Its two files in a directory.
    pub fn write(&self, dir: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
        std::fs::write(&certificate, self.pem()).unwrap();
        std::fs::write(&key, self.key_pem()).unwrap();
        (certificate, key)
    }
}

pub fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A client that trusts these certificates, speaks these protocols in these versions of TLS, and remembers nothing.
pub fn client(
    trusted: &[&Certificate],
    protocols: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate.der.clone()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    Arc::new(config)
}
