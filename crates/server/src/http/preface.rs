//! Which HTTP a connection speaks: HTTP/2 begins with a preface that no request of HTTP/1 begins with.
//!
//! It is read here, and not left to the library, so that a client that says nothing has no more time for it than for the
//! head of a request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// RFC 9113 §3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// HTTP/1.1 or 1.0.
    One,
    /// HTTP/2.
    Two,
}

/// Read until it is clear what the client speaks. The bytes that were read for it come again.
pub(super) async fn read<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Version, Again<S>)> {
    let (mut bytes, mut length) = ([0; PREFACE.len()], 0);
    let version = loop {
        let read = stream.read(&mut bytes[length..]).await?;
        length += read;
        if read == 0 || bytes[..length] != PREFACE[..length] {
            break Version::One;
        }
        if length == PREFACE.len() {
            break Version::Two;
        }
    };
    Ok((version, Again { bytes, next: 0, length, stream }))
}

/// A connection whose first bytes come again.
pub(super) struct Again<S> {
    bytes: [u8; PREFACE.len()],
    next: usize,
    length: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Again<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let again = self.get_mut();
        if again.next == again.length {
            return Pin::new(&mut again.stream).poll_read(cx, into);
        }
        let upto = again.length.min(again.next + into.remaining());
        into.put_slice(&again.bytes[again.next..upto]);
        again.next = upto;
        if into.remaining() > 0 {
            // With the rest of what is there: a reader that is given half a head makes room for as much again. What cannot be
            // read now can be asked for again.
            _ = Pin::new(&mut again.stream).poll_read(cx, into);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Again<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    /// The version, and everything that can be read, when the bytes come in these pieces.
    async fn found(pieces: &[&[u8]]) -> (Version, Vec<u8>) {
        // No larger than a piece: each is read before the next one is there.
        let (mut client, server) =
            tokio::io::duplex(pieces.iter().map(|piece| piece.len()).max().unwrap_or(0).max(1));
        let writing = async {
            for piece in pieces {
                client.write_all(piece).await.unwrap();
            }
            drop(client);
        };
        let reading = async {
            let (version, mut stream) = read(server).await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            (version, all)
        };
        tokio::join!(writing, reading).1
    }

    #[tokio::test]
    async fn a_whole_preface_is_http_2_however_it_arrives() {
        let whole = [PREFACE.as_slice(), b"frames"].concat();
        assert_eq!(found(&[&whole]).await, (Version::Two, whole.clone()));
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(found(&bytes).await, (Version::Two, whole.clone()));
    }

    #[tokio::test]
    async fn everything_else_is_http_1_and_nothing_of_it_is_lost() {
        for request in [
            b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".as_slice(),
            b"POST / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nXX",
            b"P",
            b"",
        ] {
            assert_eq!(found(&[request]).await, (Version::One, request.to_vec()));
            let bytes: Vec<&[u8]> = request.chunks(1).collect();
            assert_eq!(found(&bytes).await, (Version::One, request.to_vec()));
        }
    }
}
