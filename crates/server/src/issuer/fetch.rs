//! One `GET` of something small.

use std::time::Duration;

use handover_client::fetch::Remote;
use http_body_util::Full;
use hyper::{Request, StatusCode, Uri, header};
use tokio_rustls::rustls::RootCertStore;

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

async fn get_in_time(url: &Uri, roots: RootCertStore) -> Result<Vec<u8>, String> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(header::ACCEPT, "application/json")
        .body(Full::default())
        .map_err(|error| format!("HTTP: {error}"))?;
    let remote = Remote::new(url, roots)?;
    let mut answer = remote.send(request).await.map_err(|failed| failed.to_string())?;
    match answer.head.status {
        StatusCode::OK => answer.all(BYTES_MAX).await,
        status => Err(format!("expected status 200, found {}", status.as_u16())),
    }
}
