//! A certificate and its key, from two PEM files.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};

use super::Files;

/// A certificate with those that lead to its authority, and its key.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) certified: Arc<CertifiedKey>,
}

/// Whether a certificate counts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Within,
    Before,
    After,
}

impl Pair {
    /// The pair in these files, or what is wrong with them. Never shows what the key's file holds.
    pub(super) fn read(files: &Files, provider: &CryptoProvider) -> Result<Pair, String> {
        let chain = certificates(&files.certificate).map_err(|found| {
            let path = files.certificate.display();
            format!("tls.certificate: expected certificates in PEM in the file {path}, found {found}")
        })?;
        let key = private_key(&files.key).map_err(|found| {
            format!(
                "tls.key: expected a private key in PEM in the file {}, found {found}",
                files.key.display()
            )
        })?;
        let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            if error == Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
                let (certificate, key) = (files.certificate.display(), files.key.display());
                format!(
                    "tls.key: expected the key of the certificate in {certificate}, found that of another in {key}"
                )
            } else {
                format!("tls.certificate and tls.key: expected a pair that can be used, found: {error}")
            }
        })?;
        Ok(Pair { certified: Arc::new(certified) })
    }

    /// Say so if clients will refuse the certificate because of its time. It is served all the same: some look away, and
    /// a server that does not start helps nobody.
    pub(super) fn warn_of_its_time(&self, provider: &CryptoProvider) {
        if let Some(why) = self.untimely(provider) {
            tracing::warn!("the certificate of tls.certificate {why}");
        }
    }

    /// What is wrong with its time, if anything is.
    pub(super) fn untimely(&self, provider: &CryptoProvider) -> Option<&'static str> {
        match self.time(provider) {
            Time::Within => None,
            Time::Before => Some("is not valid yet"),
            Time::After => Some("has expired"),
        }
    }

    fn time(&self, provider: &CryptoProvider) -> Time {
        let Some(Ok(certificate)) = self.certified.cert.first().map(ParsedCertificate::try_from) else {
            return Time::Within;
        };
        // Times are looked at before authorities: without any, the answer is about the time, or that there are none.
        let looked = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &RootCertStore::empty(),
            &[],
            UnixTime::now(),
            provider.signature_verification_algorithms.all,
        );
        match looked {
            Err(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Time::After,
            Err(Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            )) => Time::Before,
            Ok(()) | Err(_) => Time::Within,
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err("none".to_owned()),
        Err(_) => Err("a part that cannot be read".to_owned()),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    // What the reader says may quote the file.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| "none".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::crypto::aws_lc_rs;

    #[test]
    fn a_certificate_counts_between_its_two_times() {
        let provider = aws_lc_rs::default_provider();
        for (from, to, expected) in
            [(2000, 4000, Time::Within), (2000, 2001, Time::After), (3999, 4000, Time::Before)]
        {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(to, 1, 1));
            let chain = vec![params.self_signed(&key).unwrap().der().clone()];
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let certified = Arc::new(CertifiedKey::from_der(chain, key, &provider).unwrap());
            assert_eq!(Pair { certified }.time(&provider), expected, "{from} to {to}");
        }
    }
}
