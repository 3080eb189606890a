//! Which browser pages may ask: a request with an `Origin` is one of theirs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, header};
use axum::response::Response;

use super::host::Host;
use super::problem;
use handover_desk::codes::own;

/// Refuses a request of a page whose origin is not let in. `setting` is the one that names those that are.
pub fn check(headers: &HeaderMap, named: &[String], setting: &str) -> Result<(), Box<Response>> {
    let welcome = |origin: &str| is_welcome(origin.trim(), named);
    if headers.get_all(header::ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(welcome)) {
        return Ok(());
    }
    let message = format!("the origin is not one that is let in ({setting})");
    Err(Box::new(problem(&own::ORIGIN_REFUSED, &message)))
}

/// Whether a page of this origin may ask: one of this machine, or one that was named.
pub fn is_welcome(origin: &str, named: &[String]) -> bool {
    if named.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
        return true;
    }
    let Some(("http" | "https", host)) = origin.split_once("://") else { return false };
    match Host::parse(host) {
        Some(Host::Name(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Address(address)) => {
            address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d2_only_this_machine_and_named_origins_are_welcome() {
        let named = ["https://console.example".to_owned()];
        for welcome in [
            "http://localhost",
            "http://localhost:3000",
            "http://127.0.0.1:8420",
            "http://[::1]:9",
            "https://console.example",
        ] {
            assert!(is_welcome(welcome, &named), "{welcome}");
        }
        for wrong in [
            "http://evil.example",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://localhost:80@evil.example",
            "http://localhost@evil.example",
            "http://localhost:80/../",
            "http://[::1]evil.example",
            "null",
            "",
            "file://localhost",
            "https://console.example.evil",
        ] {
            assert!(!is_welcome(wrong, &named), "{wrong}");
        }
    }

    #[test]
    fn every_origin_that_a_request_has_must_be_let_in() {
        let checked = |origins: &[&[u8]]| {
            let values = origins.iter().map(|origin| (header::ORIGIN, origin.to_vec().try_into().unwrap()));
            check(&HeaderMap::from_iter(values), &[], "mcp.origins").is_ok()
        };
        assert!(checked(&[]) && checked(&[b"http://localhost"]));
        assert!(!checked(&[b"http://localhost", b"http://evil.example"]));
        assert!(!checked(&[b"http://\xff.example"]));
    }
}
