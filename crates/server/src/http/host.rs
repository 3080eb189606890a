//! The host that a request is for, and which hosts are answered for.
//!
//! Without a list, a page of elsewhere could point a name of its own at this machine (DNS rebinding), and its browser
//! would take the answers for that page's own. Such an attack needs a name, so addresses pass.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, Uri, header};
use axum::response::Response;

use super::{help, problem};
use crate::config::Config;
use handover_desk::codes::own;

/// Paths that are answered whatever the host, as the pages of help are: who asks for them only wants to know whether the
/// server works.
const FOR_EVERYBODY: [&str; 2] = ["/healthz", "/readyz"];

/// The host that a request is for, with its port if it names one: the authority of its target, which HTTP/2 has and which
/// counts before the header (RFC 9112 §3.2.2), or else the header `Host`.
pub fn of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let header = || headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::trim);
    uri.authority().map(|authority| authority.as_str()).or_else(header)
}

/// A host without its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// By name, without the dot that may end one.
    Name(&'a str),
    /// By address.
    Address(IpAddr),
}

impl Host<'_> {
    /// The host of `host` or `host:port`, with an IPv6 address in brackets. Anything else has none: a user, a path.
    pub fn parse(text: &str) -> Option<Host<'_>> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                (Host::Address(IpAddr::V6(address.parse().ok()?)), port)
            }
            None => {
                let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                let address = host.parse().map(IpAddr::V4).map(Host::Address);
                (address.ok().or_else(|| name(host))?, port)
            }
        };
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(host)
    }
}

fn name(text: &str) -> Option<Host<'_>> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!name.is_empty() && name.bytes().all(fits)).then_some(Host::Name(name))
}

/// The hosts that are answered for: addresses, names of this machine, and those that the configuration names.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<[String]>);

impl Hosts {
    /// Those of the configuration: `http_hosts`, and the host of `mcp.resource`.
    pub fn new(config: &Config) -> Hosts {
        let resource = config.mcp.resource.as_deref().and_then(|resource| resource.parse::<Uri>().ok());
        let resource = resource.as_ref().and_then(Uri::authority).map(|authority| authority.as_str());
        let named = config.http_hosts.iter().map(String::as_str).chain(resource);
        Hosts(named.filter_map(Host::parse).filter_map(Host::into_name).map(str::to_owned).collect())
    }

    fn hold(&self, host: Host<'_>) -> bool {
        let Some(name) = host.into_name() else { return true };
        let last = name.rsplit('.').next().unwrap_or(name);
        last.eq_ignore_ascii_case("localhost") || self.0.iter().any(|named| named.eq_ignore_ascii_case(name))
    }

    /// Refuses a request for a host that is not answered for. What it found is not repeated: anyone can make it up.
    pub(super) fn check(&self, request: &Request) -> Result<(), Box<Response>> {
        let path = request.uri().path();
        if FOR_EVERYBODY.contains(&path) || help::is_page(path) {
            return Ok(());
        }
        let mut named = request.headers().get_all(header::HOST).iter();
        let header = named.next().and_then(|host| host.to_str().ok()).map(str::trim_ascii);
        let several = named.next().is_some();
        let authority = request.uri().authority().map(|authority| authority.as_str());
        let found = authority.or(header).filter(|_| !several).and_then(Host::parse);
        let (code, message) = match found {
            Some(host) if self.hold(host) => return Ok(()),
            // Not 403: who asks may well be allowed to, under another name.
            Some(_) => (
                &own::HOST_REFUSED,
                "the server does not answer for this host name: use an address or localhost, or name it in http_hosts",
            ),
            None => (
                &own::HOST_INVALID,
                "expected one Host header (HTTP/2: :authority) with a host and maybe a port",
            ),
        };
        Err(Box::new(problem(code, message)))
    }
}

impl<'a> Host<'a> {
    fn into_name(self) -> Option<&'a str> {
        match self {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_maybe_a_port() {
        for (text, expected) in [
            ("localhost", Host::Name("localhost")),
            ("handover.example:8420", Host::Name("handover.example")),
            ("handover.example.", Host::Name("handover.example")),
            ("my_service:80", Host::Name("my_service")),
            ("127.0.0.1:8420", Host::Address([127, 0, 0, 1].into())),
            ("[::1]:8420", Host::Address("::1".parse().unwrap())),
            ("[::1]", Host::Address("::1".parse().unwrap())),
            // Not an address to us. Browsers write these as they are meant before they ask.
            ("2130706433", Host::Name("2130706433")),
        ] {
            assert_eq!(Host::parse(text), Some(expected), "{text}");
        }
        for wrong in [
            "",
            ".",
            ":80",
            "a b",
            "user@localhost",
            "localhost:80@evil.example",
            "localhost:x",
            "localhost/",
            "::1",
            "[::1",
            "[::1]x",
            "[localhost]",
            "[127.0.0.1]",
            "lo\u{441}alhost",
            "*",
            "*.example",
        ] {
            assert_eq!(Host::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_this_machine_addresses_and_named_hosts_are_answered_for() {
        let mut config = Config { http_hosts: vec!["Handover.example".to_owned()], ..Config::default() };
        config.mcp.resource = Some("https://mcp.example:8443/mcp".to_owned());
        let hosts = Hosts::new(&config);
        let held = |text: &str| hosts.hold(Host::parse(text).unwrap());
        for answered in [
            "localhost:8420",
            "LOCALHOST.",
            "console.localhost",
            "10.0.0.7",
            "[2001:db8::1]:80",
            "handover.example",
            "HANDOVER.EXAMPLE.:443",
            "mcp.example",
        ] {
            assert!(held(answered), "{answered}");
        }
        for refused in ["evil.example", "localhost.evil.example", "a.handover.example", "notlocalhost"] {
            assert!(!held(refused), "{refused}");
        }
    }
}
