//! Which browser pages may ask: a request with an `Origin` is one of theirs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::host::Host;
use super::problem;
use handover_desk::codes::own;

/// The headers of an answer that a page may read.
const EXPOSED: &str = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after";

/// Refuses a request of a page whose origin is not let in. `setting` is the one that names those that are.
pub fn check(headers: &HeaderMap, named: &[String], setting: &str) -> Result<(), Box<Response>> {
    if check_all(headers, named) {
        return Ok(());
    }
    let message = format!("the origin is not one that is let in ({setting})");
    Err(Box::new(problem(&own::ORIGIN_REFUSED, &message)))
}

/// The origin of a page that is let in, if the request is a page's.
pub fn let_in(headers: &HeaderMap, named: &[String]) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let welcome = origin.to_str().is_ok_and(|origin| is_welcome(origin.trim(), named));
    (welcome && check_all(headers, named)).then(|| origin.clone())
}

/// Let a page of this origin read an answer, and those of its headers that say how to go on (Fetch, CORS protocol).
pub fn share(mut response: Response, origin: Option<HeaderValue>) -> Response {
    let Some(origin) = origin else { return response };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// Say to a browser that a page may ask, with the headers that it wants to send.
pub fn preflight(headers: &HeaderMap, named: &[String], setting: &str) -> Response {
    if let Err(refused) = check(headers, named, setting) {
        return *refused;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    let allowed = response.headers_mut();
    allowed
        .insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
    allowed.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        // Which headers there may be depends on the tools: what is let in may send any.
        allowed.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    share(response, let_in(headers, named))
}

fn check_all(headers: &HeaderMap, named: &[String]) -> bool {
    let welcome = |origin: &str| is_welcome(origin.trim(), named);
    headers.get_all(header::ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(welcome))
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
