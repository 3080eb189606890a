//! Connections, in the clear or over TLS. A client that is slow to shake hands keeps nobody else waiting.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long a client may take to shake hands.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// How many clients may be shaking hands. Those beyond wait to be accepted.
const HANDSHAKES_MAX: usize = 1024;

/// How long to wait when a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How the clients of a listener speak.
#[derive(Clone)]
pub enum Wire {
    /// In the clear.
    Plain,
    /// Over TLS.
    Tls {
        /// Shakes hands.
        acceptor: TlsAcceptor,
        /// Counts the handshakes that came to nothing.
        failed: Counter,
    },
}

impl Wire {
    /// A connection that is ready to be served, unless its client did not keep to TLS.
    pub async fn greet(&self, stream: TcpStream) -> Option<Stream> {
        // Without it the last part of an answer may wait for the client's acknowledgement of the part before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection ended before it was served");
            return None;
        }
        let Wire::Tls { acceptor, failed } = self else {
            return Some(Stream::Plain(stream));
        };
        // Anyone can make a handshake fail: it is nothing to wake an operator for.
        match tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => return Some(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took longer than {} s", HANDSHAKE_WITHIN.as_secs()),
        }
        failed.inc();
        None
    }

    /// The connections of a listener, as they become ready. Dropping the stream closes the listener.
    pub fn connections(self, listener: TcpListener) -> ReceiverStream<io::Result<Stream>> {
        let (ready, connections) = mpsc::channel(1);
        let room = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        tokio::spawn(async move {
            loop {
                let place = Arc::clone(&room).acquire_owned();
                let accepted = async { (place.await, listener.accept().await) };
                let (place, accepted) = tokio::select! {
                    biased;
                    () = ready.closed() => return,
                    accepted = accepted => accepted,
                };
                match accepted {
                    Ok((stream, _)) => {
                        let (wire, ready) = (self.clone(), ready.clone());
                        tokio::spawn(async move {
                            if let Some(stream) = wire.greet(stream).await {
                                // If nobody serves any more, the connection ends here.
                                _ = ready.send(Ok(stream)).await;
                            }
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                    }
                }
            }
        });
        ReceiverStream::new(connections)
    }
}

/// One connection.
#[derive(Debug)]
pub enum Stream {
    /// In the clear.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for Stream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        match self {
            Stream::Plain(stream) => stream.connect_info(),
            Stream::Tls(stream) => stream.get_ref().0.connect_info(),
        }
    }
}

/// The same call on whichever connection it is.
macro_rules! on_either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => stream.poll_read(cx, into))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_either!(self, stream => stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => stream.poll_shutdown(cx))
    }
}
