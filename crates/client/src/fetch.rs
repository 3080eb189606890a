//! Requests of ours to other servers: HTTP, over TLS if the address says so. It follows no redirects: an answer comes from
//! where the operator said, or not at all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::http::HeaderValue;
use hyper::http::response::Parts;
use hyper::{Method, Request, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long it may take until there is a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How long the answer to a request of its own may take, and how many bytes it may have.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// How many connections that nobody uses are kept.
const IDLE_MAX: usize = 16;

/// The certificate authorities that this machine trusts. Reads files.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The server was not reached: nothing has happened there.
    Unreached(String),
    /// The connection was lost: what was asked may have happened.
    Lost(String),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Unreached(why) | Failed::Lost(why) => f.write_str(why),
        }
    }
}

/// A server that can be asked. Connections are kept for the next request.
pub struct Remote {
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Idle,
}

type Idle = Arc<Mutex<Vec<Connection>>>;

/// A connection, which is closed when it is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    serving: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// An answer whose body is still to be read. Dropped before its end, it closes the connection.
pub struct Answer {
    /// Its status and headers.
    pub head: Parts,
    body: Incoming,
    connection: Option<Connection>,
    idle: Idle,
}

impl Answer {
    /// The next part of the body; none at its end.
    pub async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(error)) => return Some(Err(why(&error))),
                None => {
                    let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                    if idle.len() < IDLE_MAX {
                        idle.extend(self.connection.take());
                    }
                    return None;
                }
            }
        }
    }

    /// All of the body, if it has at most so many bytes.
    pub async fn all(&mut self, bytes_max: usize) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        while let Some(part) = self.next().await {
            all.extend_from_slice(&part?);
            if all.len() > bytes_max {
                return Err(format!("expected an answer of at most {bytes_max} bytes, found more"));
            }
        }
        Ok(all)
    }
}

impl Remote {
    /// The server of an address. Its path is none of our business.
    pub fn new(url: &Uri, roots: RootCertStore) -> Result<Remote, String> {
        let is_tls = url.scheme_str() == Some("https");
        let host = url.host().ok_or("expected a host in the URL")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let authority = HeaderValue::from_str(authority).map_err(|error| format!("HTTP: {error}"))?;
        let tls = is_tls.then(|| tls(&host, roots)).transpose()?;
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Remote { host, port, authority, tls, idle: Idle::default() })
    }

    /// Send a request, and wait for the head of the answer. A connection that was kept may have been closed meanwhile:
    /// what could not be sent on it goes on a new one.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failed> {
        request.headers_mut().insert(header::HOST, self.authority.clone());
        while let Some(mut connection) = self.kept() {
            if connection.sender.ready().await.is_err() {
                continue;
            }
            match connection.sender.try_send_request(request).await {
                Ok(answer) => return Ok(self.answer(answer, connection)),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Failed::Lost(why(failed.error()))),
                },
            }
        }
        let connecting = timeout(CONNECT_WITHIN, self.connect()).await;
        let late = |_| Err(format!("no connection within {} s", CONNECT_WITHIN.as_secs()));
        let mut connection = connecting.unwrap_or_else(late).map_err(Failed::Unreached)?;
        let answer = connection.sender.send_request(request).await;
        let answer = answer.map_err(|error| Failed::Lost(why(&error)))?;
        Ok(self.answer(answer, connection))
    }

    fn kept(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn answer(&self, answer: hyper::Response<Incoming>, connection: Connection) -> Answer {
        let (head, body) = answer.into_parts();
        Answer { head, body, connection: Some(connection), idle: Arc::clone(&self.idle) }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let connected = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = connected.map_err(|error| format!("connecting: {error}"))?;
        // Messages are small, and somebody waits for each.
        stream.set_nodelay(true).map_err(|error| format!("connecting: {error}"))?;
        match &self.tls {
            None => serve(stream).await,
            Some((connector, name)) => {
                let secure = connector.connect(name.clone(), stream).await;
                serve(secure.map_err(|error| format!("TLS: {error}"))?).await
            }
        }
    }
}

/// One request without a body to a server such as `http://127.0.0.1:8421`, and the status and body of its answer.
pub async fn once(
    server: &str,
    method: Method,
    path: &str,
    headers: &[(&'static str, &'static str)],
) -> Result<(u16, Vec<u8>), Failed> {
    let unreached = |what: String| Failed::Unreached(what);
    let url: Uri = server.parse().map_err(|error| unreached(format!("{server}: {error}")))?;
    let remote = Remote::new(&url, system_roots()).map_err(unreached)?;
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|error| unreached(format!("{path}: {error}")))?;
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    let answered = async {
        let mut answer = remote.send(request).await?;
        let body = answer.all(ANSWER_BYTES_MAX).await.map_err(Failed::Lost)?;
        Ok((answer.head.status.as_u16(), body))
    };
    let late = |_| Err(Failed::Lost(format!("no answer within {} s", ANSWER_WITHIN.as_secs())));
    timeout(ANSWER_WITHIN, answered).await.unwrap_or_else(late)
}

fn tls(host: &str, roots: RootCertStore) -> Result<(TlsConnector, ServerName<'static>), String> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("TLS: {error}"))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

async fn serve<S>(stream: S) -> Result<Connection, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| why(&error))?;
    let serving = tokio::spawn(connection);
    Ok(Connection { sender, serving: serving.abort_handle() })
}

/// What went wrong, with what lies beneath it.
fn why(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("HTTP: {error}: {source}"),
        None => format!("HTTP: {error}"),
    }
}
