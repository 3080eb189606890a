//! Accepting connections, and stopping: first no new ones, then what is in flight is finished, then the rest is cut.
//!
//! HTTP/1.1 and HTTP/2 are served side by side. What a connection speaks shows in its first bytes; under TLS, ALPN has
//! told the client what it may speak.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::preface::{self, Version};
use crate::tls::wire::Wire;
use handover_desk::shutdown::Shutdown;

/// What a client may choose from under TLS, by its names in ALPN: the first that it speaks.
pub const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How long a client may take to say its first bytes or the head of a request, and how long HTTP/1 may lie idle.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// How many requests of one HTTP/2 connection may be under way.
const STREAMS_MAX: u32 = 100;

/// How many bytes the headers of an HTTP/2 request may have, uncompressed.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// How often the client of an HTTP/2 connection is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long it may take to say so.
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// How long requests in flight may take once the shutdown has begun.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait when a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Where a request comes from, as its handlers find it among its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Serve until the shutdown begins, then finish what is in flight. At most `connections_max` are open at a time; those
/// beyond wait to be accepted. A stream that does not end by itself must listen for the shutdown, or it is cut.
pub async fn serve(
    listener: TcpListener,
    wire: Wire,
    router: Router,
    connections_max: usize,
    mut shutdown: Shutdown,
) {
    let room = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer, place) = tokio::select! {
            biased;
            () = shutdown.begun() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(stream, peer, wire.clone(), router.clone(), shutdown.clone(), place));
    }
    drop(listener);

    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(FINISH_WITHIN, finished).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "cut off what was not finished {} s after the shutdown began",
            FINISH_WITHIN.as_secs()
        );
        connections.shutdown().await;
    }
}

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> (TcpStream, Peer, OwnedSemaphorePermit) {
    if room.available_permits() == 0 {
        tracing::warn!("all connections are taken: new ones wait until another ends");
    }
    let place = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, Peer(peer), place),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

/// One connection to its end. It holds its place among `connections_max` until then.
async fn connection(
    stream: TcpStream,
    peer: Peer,
    wire: Wire,
    router: Router,
    mut shutdown: Shutdown,
    _place: OwnedSemaphorePermit,
) {
    let stream = tokio::select! {
        biased;
        () = shutdown.begun() => return,
        stream = wire.greet(stream) => stream,
    };
    let Some(stream) = stream else { return };
    let opened = tokio::select! {
        biased;
        () = shutdown.begun() => return,
        opened = tokio::time::timeout(HEAD_WITHIN, preface::read(stream)) => opened,
    };
    let (version, stream) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return tracing::debug!(%error, "a connection ended before it was served"),
        Err(_) => return tracing::debug!("a connection said nothing for {} s", HEAD_WITHIN.as_secs()),
    };
    let stream = TokioIo::new(stream);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    match version {
        Version::One => {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            finish(http.serve_connection(stream, service), shutdown).await;
        }
        Version::Two => {
            let mut http = http2::Builder::new(TokioExecutor::new());
            // Streams that are begun and reset over and over end the connection: hyper bounds those by itself.
            http.timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEADERS_BYTES_MAX)
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PONG_WITHIN);
            finish(http.serve_connection(stream, service), shutdown).await;
        }
    }
}

/// Serve a connection to its end: the client's, or, once the shutdown has begun, that of the requests under way.
async fn finish<C: GracefulConnection<Error = hyper::Error>>(connection: C, mut shutdown: Shutdown) {
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
