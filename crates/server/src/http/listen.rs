//! Accepting connections, and stopping: first no new ones, then what is in flight is finished, then the rest is cut.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::tls::wire::Wire;
use handover_desk::shutdown::Shutdown;

/// How long a client may take for the head of a request, and a connection may lie idle.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

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
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.begun() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
