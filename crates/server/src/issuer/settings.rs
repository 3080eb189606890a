//! What the configuration says about JSON Web Tokens.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use handover_desk::identity::jwt::settings::Settings;
use hyper::Uri;

use crate::config;

/// Where the issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// At an address.
    Url(Uri),
}

/// What the configuration says about tokens: nothing, or everything that is needed.
pub fn from_config(identity: &config::Identity) -> Result<Option<(Settings, Source)>, String> {
    let Some(keys) = &identity.jwt_keys else {
        // Whoever names an issuer does not want everybody to be let in because the keys were forgotten.
        return match (&identity.jwt_issuer, identity.jwt_audience.as_slice()) {
            (None, []) => Ok(None),
            _ => Err("identity.jwt_keys: expected a file or a URL of the issuer's keys, because identity.jwt_issuer \
                      or identity.jwt_audience is set, found nothing"
                .to_owned()),
        };
    };
    let issuer = identity.jwt_issuer.clone().ok_or(
        "identity.jwt_issuer: expected the issuer of the tokens, because identity.jwt_keys is set, found nothing",
    )?;
    if identity.jwt_audience.is_empty() {
        return Err(
            "identity.jwt_audience: expected whom the tokens are issued for, such as the name of this \
                    server, because identity.jwt_keys is set, found nothing"
                .to_owned(),
        );
    }
    let settings = Settings {
        issuer,
        audience: identity.jwt_audience.clone(),
        algorithms: identity.jwt_algorithms.clone(),
        skew_seconds: identity.jwt_skew_seconds,
        tenant_claim: identity.jwt_tenant_claim.clone(),
        refresh: Duration::from_secs(identity.jwt_refresh_seconds),
    };
    let source =
        source(keys).map_err(|expected| format!("identity.jwt_keys: expected {expected}, found {keys:?}"))?;
    Ok(Some((settings, source)))
}

/// A path, or the address of keys that nobody can change on their way here.
fn source(text: &str) -> Result<Source, &'static str> {
    let Some((scheme, _)) = text.split_once("://") else {
        return Ok(Source::File(PathBuf::from(text)));
    };
    match scheme {
        "https" | "http" => safe_url(text).map(Source::Url),
        _ => Err("a file or an https URL"),
    }
}

/// An address that nobody can stand in for: https, or this machine's own.
pub fn safe_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text.parse().map_err(|_| "a URL")?;
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if url.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err("a URL without a user name");
    }
    match url.scheme_str() {
        Some("https") => Ok(url),
        Some("http") if is_here => Ok(url),
        Some("http") => {
            Err("an https URL, because what goes in the clear can be read and changed on its way")
        }
        _ => Err("an https URL"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> config::Identity {
        config::Identity {
            jwt_keys: Some("keys.json".to_owned()),
            jwt_issuer: Some("https://issuer".to_owned()),
            jwt_audience: vec!["handover".to_owned()],
            ..config::Config::default().identity
        }
    }

    #[test]
    fn keys_come_with_an_issuer_and_an_audience_or_not_at_all() {
        assert_eq!(from_config(&config::Config::default().identity), Ok(None));
        assert!(from_config(&identity()).unwrap().is_some());
        let cases = [
            (
                config::Identity { jwt_keys: None, ..identity() },
                "identity.jwt_keys: expected a file or a URL",
            ),
            (config::Identity { jwt_issuer: None, ..identity() }, "identity.jwt_issuer: expected the issuer"),
            (config::Identity { jwt_audience: vec![], ..identity() }, "identity.jwt_audience: expected whom"),
        ];
        for (identity, expected) in cases {
            let error = from_config(&identity).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn keys_are_a_file_or_an_address_that_nobody_can_stand_in_for() {
        for file in ["keys.json", "/etc/handover/keys.json", "./http/keys"] {
            assert_eq!(source(file), Ok(Source::File(PathBuf::from(file))));
        }
        for url in [
            "https://issuer.example/keys",
            "https://issuer.example:8443/a?b=c",
            "http://127.0.0.1:80/keys",
            "http://localhost/keys",
            "http://[::1]:8080/keys",
        ] {
            assert_eq!(source(url), Ok(Source::Url(url.parse().unwrap())), "{url}");
        }
        for wrong in [
            "http://issuer.example/keys",
            "http://localhost.example/keys",
            "http://127.0.0.1.example/keys",
            "ftp://issuer/keys",
            "https://user:secret@issuer/keys",
            "https://",
            "https:// /",
        ] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
    }
}
