//! A stream of events as HTML has it (`text/event-stream`): what arrives in pieces comes out as whole messages.

/// How many bytes one message may have.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The messages of a stream.
#[derive(Debug, Default)]
pub struct Events {
    /// A line that has not ended yet.
    line: Vec<u8>,
    /// The data of an event that has not ended yet.
    data: Vec<u8>,
    /// Whether the last line ended with a carriage return, whose line feed may still come.
    returned: bool,
}

/// A message is longer than any may be.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Events {
    /// Take a piece, and give the messages that are whole with it. Comments, names and ids of events are passed over.
    pub fn take(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut messages = Vec::new();
        let mut rest = piece;
        if self.returned && !rest.is_empty() {
            self.returned = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.line.extend_from_slice(&rest[..end]);
            let is_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_return {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.returned = true,
                }
            }
            messages.extend(self.end_line());
        }
        self.line.extend_from_slice(rest);
        if self.line.len() + self.data.len() > MESSAGE_BYTES_MAX {
            return Err(TooLong);
        }
        Ok(messages)
    }

    /// An empty line ends an event.
    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then_some(data);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": alive\n\nevent: message\ndata: {\"a\":1}\n\nid: 7\r\ndata:{\r\ndata: }\r\n\r\nretry: 5\n\ndata: \u{e4}\r\rdata: cut";

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        let messages = pieces.iter().flat_map(|piece| events.take(piece).unwrap());
        messages.map(|message| String::from_utf8(message).unwrap()).collect()
    }

    #[test]
    fn messages_are_whole_however_the_stream_is_cut() {
        let expected = ["{\"a\":1}", "{\n}", "\u{e4}"];
        assert_eq!(all(&[STREAM.as_bytes()]), expected);
        let single: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(all(&single), expected);
        for end in 0..STREAM.len() {
            let (first, second) = STREAM.as_bytes().split_at(end);
            assert_eq!(all(&[first, second]), expected, "cut at {end}");
        }
    }
}
