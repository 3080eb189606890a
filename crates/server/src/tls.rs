//! TLS for everything that listens: one certificate, read again when its files change.
//!
//! - [`pair`]: a certificate and its key, from two PEM files
//! - [`wire`]: connections, in the clear or over TLS

pub mod pair;
pub mod wire;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use self::pair::Pair;
use crate::config;
use handover_desk::shutdown::Shutdown;

/// The certificate that is shown, and where it comes from. Shared by all listeners.
pub struct Tls {
    files: Files,
    shown: Arc<Shown>,
    provider: Arc<CryptoProvider>,
    /// Asks for the files to be read before their time.
    wanted: Notify,
}

/// Where the certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate and those that lead to its authority.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

// The key must not be shown.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS with {}", self.files.certificate.display())
    }
}

/// What the configuration says of TLS: nothing, or both files.
pub fn files(tls: &config::Tls) -> Result<Option<Files>, String> {
    match (&tls.certificate, &tls.key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(Files { certificate: certificate.clone(), key: key.clone() }))
        }
        (Some(_), None) => {
            Err("tls.key: expected the private key, because tls.certificate is set, found nothing".to_owned())
        }
        (None, Some(_)) => {
            Err("tls.certificate: expected a certificate, because tls.key is set, found nothing".to_owned())
        }
    }
}

/// The pair that new connections get.
#[derive(Debug)]
struct Shown(RwLock<Pair>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).certified))
    }
}

impl Tls {
    /// Read the files, or say what is wrong with them.
    pub fn open(files: Files) -> Result<Arc<Tls>, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let pair = Pair::read(&files, &provider)?;
        pair.warn_of_its_time(&provider);
        let shown = Arc::new(Shown(RwLock::new(pair)));
        Ok(Arc::new(Tls { files, shown, provider, wanted: Notify::new() }))
    }

    /// What is wrong with the time of the certificate, if anything is.
    pub fn untimely(&self) -> Option<&'static str> {
        self.shown.0.read().unwrap_or_else(PoisonError::into_inner).untimely(&self.provider)
    }

    /// Takes connections that speak one of these protocols, preferably the first.
    pub fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .expect("the provider speaks TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Read the files again soon.
    pub fn want_reload(&self) {
        self.wanted.notify_one();
    }

    /// Read the files again. Whether they changed, or what is wrong with them; the old pair stays then.
    pub fn reload(&self) -> Result<bool, String> {
        let pair = Pair::read(&self.files, &self.provider)?;
        let shown = &self.shown.0;
        if shown.read().unwrap_or_else(PoisonError::into_inner).certified.cert == pair.certified.cert {
            return Ok(false);
        }
        pair.warn_of_its_time(&self.provider);
        *shown.write().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(true)
    }
}

/// Show what the files hold, until the shutdown begins. Connections that are open go on with what they were shown.
pub async fn keep_fresh(tls: Arc<Tls>, every: Duration, mut shutdown: Shutdown) {
    let mut last = Ok(());
    loop {
        tokio::select! {
            biased;
            () = shutdown.begun() => return,
            () = tokio::time::sleep(every) => {}
            () = tls.wanted.notified() => {}
        }
        let again = Arc::clone(&tls);
        let Ok(found) = tokio::task::spawn_blocking(move || again.reload()).await else { return };
        if found == Ok(true) {
            tracing::info!("new connections get the new certificate");
        }
        // The files may be wrong for long: say so once for each way.
        let found = found.map(|_| ());
        if let Err(error) = &found
            && found != last
        {
            tracing::error!(%error, "the certificate could not be read again: the old one stays");
        }
        last = found;
    }
}
