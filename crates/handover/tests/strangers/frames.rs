//! HTTP/2 by its frames (RFC 9113), for clients that no library would let be like that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use super::connect;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Headers that are in no table and not compressed (RFC 7541 §6.2.2).
fn headers(flags: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // A length below 127 is one byte.
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            block.extend(text.bytes());
        }
    }
    frame(HEADERS, END_HEADERS | flags, stream, &block)
}

/// The head of a call of gRPC.
pub fn call(stream: u32, path: &str, token: Option<&str>) -> Vec<u8> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    fields.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    headers(0, stream, &fields)
}

/// A request without a body.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "localhost")];
    headers(END_STREAM, stream, &fields)
}

pub fn data(stream: u32, last: bool, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, if last { END_STREAM } else { 0 }, stream, bytes)
}

/// A message of gRPC.
pub fn grpc(message: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

/// These settings, and that headers are not to be put into tables.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in [(1, 0)].iter().chain(values) {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// A client.
pub struct Two {
    stream: TcpStream,
    /// What came as headers on each stream, as it was sent.
    heads: BTreeMap<u32, Vec<u8>>,
    ended: BTreeSet<u32>,
    settings: Vec<(u16, u32)>,
}

impl Two {
    pub fn connect(address: &str, settings: &[u8]) -> Two {
        let mut stream = connect(address);
        stream.write_all(&[PREFACE, settings].concat()).unwrap();
        Two { stream, heads: BTreeMap::new(), ended: BTreeSet::new(), settings: Vec::new() }
    }

    pub fn send(&mut self, frame: &[u8]) {
        self.stream.write_all(frame).unwrap();
    }

    /// Take one frame: its kind, and whether it is an acknowledgement.
    fn take(&mut self) -> (u8, bool) {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match kind {
            HEADERS => self.heads.entry(stream).or_default().extend(payload),
            SETTINGS if flags & ACK == 0 => {
                self.settings = payload
                    .chunks(6)
                    .map(|one| {
                        let value = u32::from_be_bytes([one[2], one[3], one[4], one[5]]);
                        (u16::from_be_bytes([one[0], one[1]]), value)
                    })
                    .collect();
                self.send(&frame(SETTINGS, ACK, 0, &[]));
            }
            _ => {}
        }
        if kind == RESET || (matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0) {
            self.ended.insert(stream);
        }
        (kind, flags & ACK != 0)
    }

    /// What the server says of itself.
    pub fn settings(mut self) -> Vec<(u16, u32)> {
        while self.settings.is_empty() {
            self.take();
        }
        self.settings
    }

    /// Returns when the server has taken everything so far.
    pub fn ping(&mut self) {
        self.send(&frame(PING, 0, 0, &[7; 8]));
        while self.take() != (PING, true) {}
    }

    /// The status of a call of gRPC. Servers that are pinged answer small numbers as they are.
    pub fn status_of(&mut self, stream: u32) -> String {
        while !self.ended.contains(&stream) {
            self.take();
        }
        status(self.heads.get(&stream).unwrap())
    }

    /// How many of so many calls end, if at least this many do.
    pub fn answered(&mut self, of: usize, at_least: usize) -> usize {
        while self.ended.len() < at_least {
            self.take();
        }
        // Those that are not answered by now are waited for.
        while self.ended.len() < of {
            self.send(&frame(PING, 0, 0, &[7; 8]));
            let before = self.ended.len();
            while self.take() != (PING, true) {}
            if self.ended.len() == before {
                break;
            }
        }
        self.ended.len()
    }
}

/// The value of `grpc-status` in a block of headers: the name as text or in the code of Huffman, and what follows it.
fn status(block: &[u8]) -> String {
    // `grpc-status` in HPACK's code of Huffman (RFC 7541, appendix B).
    const NAME: [u8; 8] = [0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];
    let find =
        |name: &[u8]| block.windows(name.len()).position(|found| found == name).map(|at| at + name.len());
    let after =
        find(b"grpc-status").or_else(|| find(&NAME)).unwrap_or_else(|| panic!("no status: {block:x?}"));
    let (length, value) = (block[after], &block[after + 1..]);
    if length & 0x80 == 0 {
        return String::from_utf8(value[..usize::from(length)].to_vec()).unwrap();
    }
    // Digits below 3 have five bits, the others six.
    let bits = u16::from_be_bytes([value[0], if length & 0x7f > 1 { value[1] } else { 0xff }]);
    digits(bits)
}

fn digits(mut bits: u16) -> String {
    let mut digits = String::new();
    while bits >> 11 != 0x1f {
        let five = bits >> 11;
        if five < 3 {
            digits.push(char::from(b'0' + five as u8));
            bits = bits << 5 | 0x1f;
        } else {
            let six = bits >> 10;
            digits.push(char::from(b'3' + (six - 0x19) as u8));
            bits = bits << 6 | 0x3f;
        }
    }
    digits
}
