//! The endpoint at the other end of a bridge.

use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::http::HeaderValue;
use hyper::{HeaderMap, Method, Request, Uri, header};
use serde_json::json;
use tokio::time::timeout;
use tokio_rustls::rustls::RootCertStore;

use super::events::MESSAGE_BYTES_MAX;
use crate::fetch::{Answer, Failed, Remote};
use crate::jsonrpc::{Error, INTERNAL_ERROR, shorten};

/// What a message is called that the server does not take, and how large one is that this may be so of.
const TOO_LARGE: &str = "PAYLOAD_TOO_LARGE";
const LARGE_BYTES: usize = 1024 * 1024;

/// What is asked for that is a stream, and nothing else.
const EVENTS: &str = "text/event-stream";

/// What is said of a connection that ended while a message was written to it.
const HALF_WRITTEN: &str = "writing a body";

/// The code of an error that says that the server is not there.
const UNREACHABLE: &str = "SERVER_UNREACHABLE";

/// How long the server may say nothing: it tells more often that a stream is alive.
const SILENT_WITHIN: Duration = Duration::from_secs(60);

/// Where requests go, and as whom.
pub struct Endpoint {
    remote: Remote,
    path: String,
    /// As it may be shown.
    url: String,
    token: Option<HeaderValue>,
    in_the_clear: bool,
}

/// What an address can say of how whoever comes that way wants to be served.
const WISHES: [&str; 2] = ["profile", "wait_seconds"];

impl Endpoint {
    /// The endpoint of a server, such as `http://127.0.0.1:8420`. The token is never shown.
    pub fn new(server: &str, token: Option<&str>, roots: RootCertStore) -> Result<Endpoint, String> {
        let wrong = |what: &str| {
            format!("expected the address of a server (http://HOST:PORT or https://HOST), {what}")
        };
        let url: Uri = server.parse().map_err(|_| wrong(&format!("found {}", shorten(server))))?;
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(wrong(&format!("found {}", shorten(server))));
        }
        if url.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(wrong("without a name or a password in it"));
        }
        let path = url.path().trim_end_matches('/');
        let path = if path.ends_with("/mcp") { path.to_owned() } else { format!("{path}/mcp") };
        // How the server is to serve whoever comes this way. Anything else may be a secret, which does not belong there.
        let is_known = |pair: &str| WISHES.iter().any(|name| pair.split('=').next() == Some(*name));
        let asked = match url.query() {
            None => String::new(),
            Some(query) if query.split('&').all(is_known) => format!("?{query}"),
            Some(_) => return Err(wrong(&format!("with no other parameters than {}", WISHES.join(" and ")))),
        };
        let token = token.map(bearer).transpose()?;
        let host = url.host().unwrap_or_default();
        let here = matches!(host, "localhost" | "[::1]") || host.starts_with("127.");
        Ok(Endpoint {
            remote: Remote::new(&url, roots)?,
            url: format!(
                "{}://{}{path}",
                url.scheme_str().unwrap_or_default(),
                url.authority().map_or("", |authority| authority.as_str())
            ),
            path: path + &asked,
            in_the_clear: token.is_some() && !here && url.scheme_str() == Some("http"),
            token,
        })
    }

    /// The address, as it may be shown.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the token goes to another machine, and everybody in between can read it.
    pub fn token_is_in_the_clear(&self) -> bool {
        self.in_the_clear
    }

    /// Post a message, and wait for the head of the answer.
    pub(crate) async fn post(&self, message: Bytes, headers: HeaderMap) -> Result<Answer, Error> {
        self.send(Method::POST, message, headers).await
    }

    /// Ask for the stream of what nobody asked about, and wait for its head.
    pub(super) async fn get(&self, headers: HeaderMap) -> Result<Answer, Error> {
        self.send(Method::GET, Bytes::new(), headers).await
    }

    async fn send(&self, method: Method, message: Bytes, headers: HeaderMap) -> Result<Answer, Error> {
        let bytes = message.len();
        let mut request = Request::new(Full::new(message));
        let accepted = if method == Method::GET { EVENTS } else { "application/json, text/event-stream" };
        *request.method_mut() = method;
        *request.uri_mut() = self.path.parse().map_err(|_| self.gone("the path cannot be asked for"))?;
        *request.headers_mut() = headers;
        let all = request.headers_mut();
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        all.insert(header::ACCEPT, HeaderValue::from_static(accepted));
        if let Some(token) = &self.token {
            all.insert(header::AUTHORIZATION, token.clone());
        }
        match timeout(SILENT_WITHIN, self.remote.send(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Failed::Unreached(why))) => Err(Error::new(
                INTERNAL_ERROR,
                format!("the server at {} cannot be reached: {why}", self.url),
            )
            .named(UNREACHABLE)),
            Ok(Err(Failed::Lost(why))) if bytes > LARGE_BYTES && why.contains(HALF_WRITTEN) => {
                Err(self.too_large(bytes, &why))
            }
            Ok(Err(Failed::Lost(why))) => Err(self.gone(&why)),
            Err(_) => Err(self.silent()),
        }
    }

    /// The server closed the connection in the middle of a large message, and what it said of that was lost with it. It has
    /// not read the message, so that nothing has happened.
    fn too_large(&self, bytes: usize, why: &str) -> Error {
        let url = &self.url;
        let message = format!(
            "the message of {bytes} bytes is larger than {url} takes: it did not read it to its end ({why})"
        );
        Error::new(INTERNAL_ERROR, message).named(TOO_LARGE)
    }

    /// The next part of an answer.
    pub(crate) async fn next(&self, answer: &mut Answer) -> Result<Option<Bytes>, Error> {
        match timeout(SILENT_WITHIN, answer.next()).await {
            Ok(part) => part.transpose().map_err(|why| self.gone(&why)),
            Err(_) => Err(self.silent()),
        }
    }

    /// All of an answer.
    pub(crate) async fn all(&self, answer: &mut Answer) -> Result<Vec<u8>, Error> {
        match timeout(SILENT_WITHIN, answer.all(MESSAGE_BYTES_MAX)).await {
            Ok(body) => body.map_err(|why| self.gone(&why)),
            Err(_) => Err(self.silent()),
        }
    }

    /// The server is no longer there.
    pub(crate) fn gone(&self, why: &str) -> Error {
        let message = format!(
            "the server at {} went away before it had answered, and may have done what was asked: {why}",
            self.url
        );
        Error::new(INTERNAL_ERROR, message).named(UNREACHABLE)
    }

    fn silent(&self) -> Error {
        self.gone(&format!("it said nothing for {} s", SILENT_WITHIN.as_secs()))
    }

    /// The server answered, and not with a message.
    pub(crate) fn refused(&self, status: u16, body: &[u8]) -> Error {
        let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let name = said["error"]["code"].as_str().filter(|code| is_code(code)).map(str::to_owned);
        let said = said["error"]["message"].as_str().map(shorten_plain).unwrap_or_default();
        let url = &self.url;
        let what = match status {
            401 if self.token.is_none() => {
                format!("{url} wants a token: set HANDOVER_TOKEN")
            }
            401 => format!("{url} does not accept the token"),
            403 => format!("{url} does not let this client in"),
            404 => format!("there is no MCP at {url}"),
            413 => format!("the message is larger than {url} takes"),
            429 => format!("{url} was asked too often"),
            _ => format!("{url} answered without a message"),
        };
        let colon = if said.is_empty() { "" } else { ": " };
        let error = Error::new(INTERNAL_ERROR, format!("{what} (HTTP {status}){colon}{said}"))
            .data(json!({ "status": status }));
        match name {
            Some(name) => error.named(name),
            None => error,
        }
    }
}

/// Whether it can be the code of an error: it is passed on.
fn is_code(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| "the token has characters that no header can carry".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// What somebody else wrote, in one line that is not too long.
fn shorten_plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(server: &str) -> Result<Endpoint, String> {
        Endpoint::new(server, Some("hand_secret"), RootCertStore::empty())
    }

    #[test]
    fn an_address_leads_to_the_path_of_mcp() {
        for (server, url) in [
            ("http://127.0.0.1:8420", "http://127.0.0.1:8420/mcp"),
            ("http://127.0.0.1:8420/", "http://127.0.0.1:8420/mcp"),
            ("https://agents.example/mcp", "https://agents.example/mcp"),
            ("https://agents.example/handover/", "https://agents.example/handover/mcp"),
        ] {
            assert_eq!(endpoint(server).unwrap().url(), url);
        }
        let asked = endpoint("http://127.0.0.1:8420?profile=worker&wait_seconds=9").unwrap();
        assert_eq!(&*asked.path, "/mcp?profile=worker&wait_seconds=9");
        for wrong in ["", "127.0.0.1:8420", "ftp://x", "http://", "https://me:pw@x", "https://x/?token=y"] {
            let error = endpoint(wrong).err().unwrap();
            assert!(!error.contains("pw") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_token_in_the_clear_is_noticed_and_never_shown() {
        assert!(endpoint("http://agents.example").unwrap().token_is_in_the_clear());
        assert!(!endpoint("https://agents.example").unwrap().token_is_in_the_clear());
        assert!(!endpoint("http://127.0.0.1:1").unwrap().token_is_in_the_clear());
        let error = Endpoint::new("http://x", Some("a\nsecret"), RootCertStore::empty()).err().unwrap();
        assert!(!error.contains("secret"), "{error}");
        assert!(!format!("{:?}", bearer("secret").unwrap()).contains("secret"));
    }
}
