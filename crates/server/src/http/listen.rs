//! Accepting connections, and stopping: first no new ones, then what is in flight is finished, then the rest is cut.
//!
//! HTTP/1.1 and HTTP/2 are served side by side. What a connection speaks shows in its first bytes; under TLS, ALPN has
//! told the client what it may speak. Every listener is served here, so that each has the same bounds.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tower_service::Service;

use super::pace::{Paced, Parts, Streams};
use super::preface::{self, Version};
use super::room::{Room, Seat};
use crate::config::Config;
use crate::config::network::Network;
use crate::telemetry::Connections;
use crate::tls::wire::Wire;
use handover_desk::shutdown::Shutdown;

/// What a client may choose from under TLS, by its names in ALPN: the first that it speaks.
pub const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How long HTTP/1.1 may lie idle between two requests, the head of the second included.
const IDLE_ONE: Duration = Duration::from_secs(30);

/// How long HTTP/2 may lie idle, which is looked at this many times.
const IDLE_TWO: Duration = Duration::from_secs(300);
const IDLE_LOOKS: u32 = 5;

/// How many requests of one HTTP/2 connection may be under way.
const STREAMS_MAX: u32 = 100;

/// How many bytes the headers of an HTTP/2 request may have, uncompressed.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// How many bytes of a request or an answer of HTTP/1.1 are kept at a time; the head of a request must fit.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// How many bytes of requests over HTTP/2 may wait to be read, of one and of all of a connection.
const STREAM_BYTES_MAX: u32 = 256 * 1024;
const CONNECTION_BYTES_MAX: u32 = 512 * 1024;

/// How many bytes of an answer over HTTP/2 may wait for the network.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// How often the client of an HTTP/2 connection is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long it may take to say so.
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// How long requests in flight may take once the shutdown has begun.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait when a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Said to HTTP/1.1 in the clear, where an address has too many connections.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n\
    content-length: 160\r\n\r\n{\"error\":{\"code\":\"TOO_MANY_CONNECTIONS\",\"message\":\"this address has too many open \
    connections: close some and try again\",\"help\":\"/errors/TOO_MANY_CONNECTIONS\"}}";

/// The same to HTTP/2 in the clear: empty settings, and GOAWAY (RFC 9113 §6.8) with ENHANCE_YOUR_CALM and the code.
const TOO_MANY_TWO: &[u8] =
    b"\0\0\0\x04\0\0\0\0\0\0\0\x1c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0bTOO_MANY_CONNECTIONS";

/// What the clients of one listener may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many connections may be open.
    pub connections_max: usize,
    /// How many of them one address may have.
    pub per_address_max: usize,
    /// Whose addresses have no such bound, besides this machine's.
    pub trusted: Vec<Network>,
    /// How long a client may take from connecting to the end of the head of its first request, handshakes included.
    pub head_within: Duration,
    /// How long it may take to send the rest of a request.
    pub body_within: Duration,
    /// How long it may take nothing of what there is to write.
    pub write_within: Duration,
}

impl Limits {
    /// As the configuration says, for a listener with room for so many.
    pub fn new(config: &Config, connections_max: usize) -> Limits {
        let limits = &config.limits;
        Limits {
            connections_max,
            per_address_max: limits.connections_per_address_max,
            trusted: config.trusted_proxies.clone(),
            head_within: Duration::from_secs(limits.head_seconds),
            body_within: Duration::from_secs(limits.body_seconds),
            write_within: Duration::from_secs(limits.write_seconds),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 10_000,
            per_address_max: 256,
            trusted: Vec::new(),
            head_within: Duration::from_secs(10),
            body_within: Duration::from_secs(30),
            write_within: Duration::from_secs(60),
        }
    }
}

/// How a listener is served.
#[derive(Clone)]
pub struct Settings {
    /// In the clear or over TLS.
    pub wire: Wire,
    /// Whether HTTP/1.1 is spoken beside HTTP/2.
    pub http_1: bool,
    /// What its clients may use.
    pub limits: Limits,
    /// Where its connections are counted.
    pub counters: Connections,
    /// Where its connections are served, in turns; if nowhere in particular, where the listener is.
    pub lanes: Vec<Handle>,
}

impl Settings {
    /// Both versions, under the limits that hold unless somebody says otherwise, counted nowhere.
    pub fn new(wire: Wire) -> Settings {
        let (limits, counters) = (Limits::default(), Connections::default());
        Settings { wire, http_1: true, limits, counters, lanes: Vec::new() }
    }
}

/// Where a request comes from, as its handlers find it among its extensions.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address.
    pub address: SocketAddr,
    seat: Arc<Seat>,
}

impl Peer {
    /// The request has a good token: its connection does not make way for others any more.
    pub fn is_known(&self) {
        self.seat.known();
    }
}

/// What is served: a router, or something around one.
pub trait Serve:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> Serve for S where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Serve until the shutdown begins, then finish what is in flight. A stream that does not end by itself must listen for
/// the shutdown, or it is cut.
pub async fn serve<S: Serve>(listener: TcpListener, settings: Settings, service: S, mut shutdown: Shutdown) {
    let Limits { connections_max, per_address_max, trusted, .. } = &settings.limits;
    let room = Room::new(*connections_max, *per_address_max, trusted, settings.counters.clone());
    let settings = Arc::new(settings);
    let here = [Handle::current()];
    let lanes = if settings.lanes.is_empty() { &here } else { &settings.lanes[..] };
    let mut lanes = lanes.iter().cycle();
    let mut connections = JoinSet::new();
    loop {
        let (stream, address) = tokio::select! {
            biased;
            () = shutdown.begun() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        while connections.try_join_next().is_some() {}
        match room.seat(address) {
            Ok(seat) => {
                let peer = Peer { address, seat: Arc::new(seat) };
                let Some((lane, stream)) = lanes.next().zip(moved(stream)) else { continue };
                let (settings, service, shutdown) =
                    (Arc::clone(&settings), service.clone(), shutdown.clone());
                connections.spawn_on(connection(stream, peer, settings, service, shutdown), lane);
            }
            Err(_) => turn_away(&stream, &settings),
        }
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

async fn accept(listener: &TcpListener, room: &Room) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                // After it: whoever was a stranger before may be known by now.
                room.has_place().await;
                return accepted;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

/// Say why, as far as it can be said without waiting for anything.
fn turn_away(stream: &TcpStream, settings: &Settings) {
    let said = match settings.wire {
        Wire::Tls { .. } => return,
        Wire::Plain if settings.http_1 => TOO_MANY,
        Wire::Plain => TOO_MANY_TWO,
    };
    _ = stream.try_write(said);
}

/// A connection that is going to be served by another thread.
fn moved(stream: TcpStream) -> Option<std::net::TcpStream> {
    stream.into_std().inspect_err(|error| tracing::debug!(%error, "a connection could not be moved")).ok()
}

/// One connection to its end. It holds its seat until then.
async fn connection<S: Serve>(
    stream: std::net::TcpStream,
    peer: Peer,
    settings: Arc<Settings>,
    service: S,
    mut shutdown: Shutdown,
) {
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let Limits { head_within, write_within, .. } = settings.limits;
    let counters = &settings.counters;
    let head_by = Instant::now() + head_within;
    let seat = Arc::clone(&peer.seat);
    // In a box, so that a connection does not carry the room for it to its end.
    let opened = Box::pin(async {
        tokio::select! {
            biased;
            () = shutdown.begun() => None,
            () = seat.wanted() => {
                tracing::debug!("a connection made way for another");
                None
            }
            () = sleep_until(head_by) => {
                counters.dropped("head");
                tracing::debug!("a connection said nothing for {} s", head_within.as_secs());
                None
            }
            opened = open(stream, &settings) => opened,
        }
    });
    let Some((version, stream)) = opened.await else { return };
    let stream = TokioIo::new(Paced::new(stream, write_within, counters.clone()));
    let activity = Arc::new(Activity::default());
    let begun = Arc::clone(&activity);
    let two = version == Version::Two;
    let service = service_fn(move |mut request: Request<Incoming>| {
        let under_way = begun.begin();
        request.extensions_mut().insert(peer.clone());
        let answer = service.clone().call(request);
        async move {
            let answer = answer.await?;
            // Over HTTP/1.1 the connection is busy until the answer has ended.
            Ok::<_, Infallible>(
                answer.map(|body| if two { Body::new(Parts::new(body, under_way)) } else { body }),
            )
        }
    });
    let watch = pin!(watch(&activity, head_by, two));
    let ended = match version {
        Version::One => {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(IDLE_ONE).max_buf_size(BUFFER_BYTES_MAX);
            let connection = pin!(http.serve_connection(stream, service));
            finish(connection, watch, &seat, &mut shutdown).await
        }
        Version::Two => {
            let streams = Streams { within: write_within, counters: counters.clone() };
            let mut http = http2::Builder::new(streams);
            // Streams that are begun and reset over and over end the connection: hyper bounds those by itself.
            http.timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEADERS_BYTES_MAX)
                .initial_stream_window_size(STREAM_BYTES_MAX)
                .initial_connection_window_size(CONNECTION_BYTES_MAX)
                .max_send_buf_size(SEND_BYTES_MAX)
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PONG_WITHIN);
            // In a box, so that the many connections of HTTP/1.1 do not carry the room that this one needs.
            let mut connection = Box::pin(http.serve_connection(stream, service));
            finish(connection.as_mut(), watch, &seat, &mut shutdown).await
        }
    };
    match ended {
        Ended::ByItself => {}
        Ended::Silent => {
            counters.dropped("head");
            tracing::debug!("a connection sent no request within {} s", head_within.as_secs());
        }
        Ended::Displaced => tracing::debug!("a connection made way for another"),
    }
}

/// Shake hands, and see what the client speaks.
async fn open(
    stream: TcpStream,
    settings: &Settings,
) -> Option<(Version, preface::Again<crate::tls::wire::Stream>)> {
    let stream = settings.wire.greet(stream, settings.limits.write_within).await?;
    match preface::read(stream).await {
        Ok((Version::One, _)) if !settings.http_1 => {
            tracing::debug!("a connection did not begin as HTTP/2 does");
            None
        }
        Ok(opened) => Some(opened),
        Err(error) => {
            tracing::debug!(%error, "a connection ended before it was served");
            None
        }
    }
}

/// What happens on a connection.
#[derive(Debug, Default)]
struct Activity {
    seen: AtomicBool,
    first: Notify,
    begun: AtomicU64,
    open: AtomicUsize,
}

/// A request under way, until it is dropped.
struct UnderWay(Arc<Activity>);

impl Activity {
    fn begin(self: &Arc<Self>) -> UnderWay {
        if !self.seen.swap(true, Ordering::Relaxed) {
            self.first.notify_one();
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why to end a connection.
enum Because {
    /// It sent no request in time.
    Silent,
    /// It has had none for long.
    Idle,
}

/// Returns when a connection is to be ended.
async fn watch(activity: &Activity, head_by: Instant, two: bool) -> Because {
    tokio::select! {
        biased;
        () = activity.first.notified() => {}
        () = sleep_until(head_by) => return Because::Silent,
    }
    if !two {
        // The library sees to it.
        return std::future::pending().await;
    }
    let (mut quiet, mut last) = (0, 0);
    while quiet < IDLE_LOOKS {
        sleep(IDLE_TWO / IDLE_LOOKS).await;
        let begun = activity.begun.load(Ordering::Relaxed);
        let idle = activity.open.load(Ordering::Relaxed) == 0 && begun == last;
        quiet = if idle { quiet + 1 } else { 0 };
        last = begun;
    }
    Because::Idle
}

/// How a connection ended.
enum Ended {
    ByItself,
    Silent,
    Displaced,
}

/// Serve a connection to its end: the client's, or ours once it is to be ended, or, once the shutdown has begun, that of the
/// requests under way.
async fn finish<C>(
    mut connection: Pin<&mut C>,
    watch: Pin<&mut impl Future<Output = Because>>,
    seat: &Seat,
    shutdown: &mut Shutdown,
) -> Ended
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.begun() => end(connection).await,
        () = seat.wanted() => return Ended::Displaced,
        because = watch => match because {
            Because::Silent => return Ended::Silent,
            Because::Idle => end(connection).await,
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    Ended::ByItself
}

async fn end<C: GracefulConnection<Error = hyper::Error>>(
    mut connection: Pin<&mut C>,
) -> Result<(), hyper::Error> {
    connection.as_mut().graceful_shutdown();
    connection.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_turned_away_is_told_so_in_whole_messages() {
        let said = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("\r\ncontent-length: {}", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], handover_desk::codes::own::TOO_MANY_CONNECTIONS.code);
        // Two frames: settings without any, and GOAWAY with two numbers of four bytes before the code.
        let (settings, goaway) = TOO_MANY_TWO.split_at(9);
        assert_eq!(settings, [0, 0, 0, 4, 0, 0, 0, 0, 0]);
        assert_eq!((usize::from(goaway[2]), goaway[3]), (goaway.len() - 9, 7));
        assert_eq!(&goaway[9 + 8..], handover_desk::codes::own::TOO_MANY_CONNECTIONS.code.as_bytes());
    }
}
