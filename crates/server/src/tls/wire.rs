//! Connections, in the clear or over TLS. A client that is slow to shake hands keeps nobody else waiting.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// After how long without a word, and then how often, the client's machine is asked whether it is still there.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);

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
    /// A connection that is ready to be served, unless its client did not keep to TLS. One whose client acknowledges
    /// nothing for `gone_after`, as when its machine has gone, ends by itself. Who calls this sees to the time that a
    /// handshake may take.
    pub async fn greet(&self, stream: TcpStream, gone_after: Duration) -> Option<Stream> {
        if let Err(error) = prepare(&stream, gone_after) {
            tracing::debug!(%error, "a connection ended before it was served");
            return None;
        }
        let Wire::Tls { acceptor, failed } = self else {
            return Some(Stream::Plain(stream));
        };
        // Anyone can make a handshake fail: it is nothing to wake an operator for.
        match acceptor.accept(stream).await {
            Ok(stream) => Some(Stream::Tls(Box::new(stream))),
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                failed.inc();
                None
            }
        }
    }
}

fn prepare(stream: &TcpStream, gone_after: Duration) -> io::Result<()> {
    // Without it the last part of an answer may wait for the client's acknowledgement of the part before.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_AFTER)?;
    give_up_after(stream, gone_after)
}

#[cfg(target_os = "linux")]
fn give_up_after(stream: &TcpStream, gone_after: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(gone_after.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, milliseconds)?)
}

/// Other systems decide by themselves when a client has gone.
#[cfg(not(target_os = "linux"))]
fn give_up_after(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// One connection.
#[derive(Debug)]
pub enum Stream {
    /// In the clear.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
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
