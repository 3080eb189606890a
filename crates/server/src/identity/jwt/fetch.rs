//! One `GET` of something small, over TLS unless it comes from this machine. It follows no redirects: keys come from where the
//! operator said, or not at all.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long all of it may take.
const WITHIN: Duration = Duration::from_secs(10);

/// How many bytes the answer may have.
const BYTES_MAX: usize = 1024 * 1024;

/// The body of what is at this address, or what went wrong.
pub async fn get(url: &Uri, roots: RootCertStore) -> Result<Vec<u8>, String> {
    tokio::time::timeout(WITHIN, get_in_time(url, roots))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", WITHIN.as_secs())))
}

/// The certificate authorities that this machine trusts. Reads files.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

async fn get_in_time(url: &Uri, roots: RootCertStore) -> Result<Vec<u8>, String> {
    let is_tls = url.scheme_str() == Some("https");
    let host = url.host().ok_or("expected a host in the URL")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await.map_err(|error| format!("connecting: {error}"))?;
    if !is_tls {
        return exchange(stream, url).await;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("TLS: {error}"))?;
    let secure = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    exchange(secure.map_err(|error| format!("TLS: {error}"))?, url).await
}

async fn exchange<S>(stream: S, url: &Uri) -> Result<Vec<u8>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let wrong = |error: hyper::Error| format!("HTTP: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(wrong)?;
    // It ends with the answer, because the sender is dropped then.
    let serving = tokio::spawn(connection);
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("HTTP: {error}"))?;
    let answer = sender.send_request(request).await.map_err(wrong)?;
    if answer.status() != StatusCode::OK {
        return Err(format!("expected status 200, found {}", answer.status().as_u16()));
    }
    let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
    serving.abort();
    Ok(body.map_err(|error| format!("HTTP: {error}"))?.to_bytes().to_vec())
}
