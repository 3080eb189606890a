//! The host that a request is for.

use axum::http::{HeaderMap, Uri, header};

/// The host that a request is for, with its port if it names one: the authority of its target, which HTTP/2 has and which
/// counts before the header (RFC 9112 §3.2.2), or else the header `Host`.
pub fn of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let header = || headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::trim);
    uri.authority().map(|authority| authority.as_str()).or_else(header)
}
