//! Requests over bare sockets whose answers may be anything: refusals, a closed connection, nothing.

use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Tally;

/// What became of a request.
pub enum Answer {
    Accepted,
    Refused,
    CutOff,
}

/// Send a request over a connection, a new one if there is none, and read its answer.
pub async fn exchange(connection: &mut Option<TcpStream>, target: &str, request: &[u8]) -> Answer {
    match try_exchange(connection, target, request).await {
        Ok(true) => Answer::Accepted,
        Ok(false) => Answer::Refused,
        Err(_) => {
            *connection = None;
            Answer::CutOff
        }
    }
}

async fn try_exchange(connection: &mut Option<TcpStream>, target: &str, request: &[u8]) -> Result<bool> {
    if connection.is_none() {
        *connection = Some(TcpStream::connect(target).await?);
    }
    let Some(stream) = connection else { return Ok(false) };
    stream.write_all(request).await?;
    let mut bytes = Vec::with_capacity(4096);
    let (head, length) = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break (head + 4, content_length(&bytes[..head]));
        }
    };
    let accepted = bytes.starts_with(b"HTTP/1.1 200 ") && !contains(&bytes[head..], b"\"isError\":true");
    let Some(length) = length else {
        // A stream: this connection is of no more use.
        *connection = None;
        return Ok(accepted);
    };
    let mut left = (head + length).saturating_sub(bytes.len());
    let mut rest = vec![0; 64 * 1024];
    while left > 0 {
        let room = left.min(rest.len());
        match stream.read(&mut rest[..room]).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => left -= read,
        }
    }
    Ok(accepted && !contains(&bytes[head..], b"\"error\":"))
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn content_length(head: &[u8]) -> Option<usize> {
    let head = std::str::from_utf8(head).ok()?.to_ascii_lowercase();
    let (_, value) = head.split_once("\r\ncontent-length:")?;
    value.lines().next()?.trim().parse().ok()
}

/// Sockets that never say anything.
pub async fn silent(target: String, sockets: usize, tally: Arc<Tally>) {
    hold(&target, sockets, b"", &tally).await;
}

/// Requests whose answers are streams that nobody reads.
pub async fn unread(target: String, request: Vec<u8>, sockets: usize, tally: Arc<Tally>) {
    hold(&target, sockets, &request, &tally).await;
}

/// Calls of `Send` without a token that announce a megabyte and send its first byte, 50 on each connection.
pub async fn announce(target: String, calls: usize, tally: Arc<Tally>) {
    const CALLS: usize = 50;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, 4, 0, 0, &[]);
    // Method POST and scheme http are in the static table; everything else is spelled out.
    let mut head = vec![0x83, 0x86, 0x04];
    text(&mut head, "/macp.v1.MACPRuntimeService/Send");
    head.push(0x01);
    text(&mut head, "localhost");
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        head.push(0x00);
        text(&mut head, name);
        text(&mut head, value);
    }
    for call in 0..CALLS {
        let stream = call as u32 * 2 + 1;
        frame(&mut bytes, 1, 0x4, stream, &head);
        frame(&mut bytes, 0, 0, stream, &[0, 0, 0x10, 0, 0, 0x0a]);
    }
    hold(&target, calls.div_ceil(CALLS), &bytes, &tally).await;
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    // All of these are shorter than 127 bytes, which is what fits into one.
    bytes.push(text.len() as u8);
    bytes.extend_from_slice(text.as_bytes());
}

/// Open so many sockets, send each the same, read nothing, and keep them until the turn is over. Those that the server
/// closes are not opened again.
async fn hold(target: &str, sockets: usize, bytes: &[u8], tally: &Tally) {
    let mut held = Vec::with_capacity(sockets);
    for _ in 0..sockets {
        if tally.over() {
            return;
        }
        let opened = async {
            let mut stream = TcpStream::connect(target).await?;
            stream.write_all(bytes).await?;
            Result::Ok(stream)
        };
        let opened = opened.await;
        tally.count(opened.is_ok());
        held.extend(opened);
    }
    while !tally.over() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
