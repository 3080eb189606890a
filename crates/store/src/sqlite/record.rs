//! What was appended, as the bytes of a record of the journal: numbers with the least byte first, and before everything
//! that can be long its length.

use super::signed;
use super::writer::Number;
use crate::log::{Append, IndexRow, SessionKey, Waits, Wake};

/// An append that was accepted, and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) append: Append,
    pub(super) number: Number,
    /// The position of its first event.
    pub(super) first: i64,
}

impl Placed {
    /// The last sequence number of the session after it.
    pub(super) fn head(&self) -> i64 {
        signed(self.append.expected + self.append.events.len() as u64)
    }
}

const VERSION: u8 = 1;

pub(super) fn encode(items: &[Placed], bytes: &mut Vec<u8>) {
    bytes.push(VERSION);
    put_length(bytes, items.len());
    for Placed { append, number, first } in items {
        put(bytes, append.key.tenant.as_bytes());
        put(bytes, append.key.session.as_bytes());
        put_u64(bytes, number.cast_unsigned());
        put_u64(bytes, first.cast_unsigned());
        put_u64(bytes, append.expected);
        put_length(bytes, append.events.len());
        append.events.iter().for_each(|event| put(bytes, event));
        put_option(bytes, append.row.as_ref(), put_row);
        let (kind, at) = match append.wake {
            Wake::Unchanged => (0, 0),
            Wake::Never => (1, 0),
            Wake::At(at) => (2, at),
        };
        bytes.push(kind);
        put_u64(bytes, at);
        put_option(bytes, append.snapshot.as_ref(), |bytes, snapshot| put(bytes, snapshot));
    }
}

fn put_row(bytes: &mut Vec<u8>, row: &IndexRow) {
    bytes.extend([row.kind, row.status]);
    put(bytes, row.requester.as_bytes());
    put_length(bytes, row.agents.len());
    row.agents.iter().for_each(|agent| put(bytes, agent.as_bytes()));
    put_u64(bytes, row.created_at);
    put_option(bytes, row.finished_at, put_u64);
    put(bytes, &row.summary);
    put_length(bytes, row.waits.len());
    for waits in &row.waits {
        put(bytes, waits.agent.as_bytes());
        put_u64(bytes, waits.kinds.into());
    }
}

fn put_option<T>(bytes: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    bytes.push(value.is_some().into());
    if let Some(value) = value {
        put(bytes, value);
    }
}

fn put(bytes: &mut Vec<u8>, value: &[u8]) {
    put_length(bytes, value.len());
    bytes.extend_from_slice(value);
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    put_u64(bytes, length as u64);
}

fn put_u64(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

/// None if this is not what `encode` made.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Placed>> {
    let mut rest = Rest(bytes);
    if rest.u8()? != VERSION {
        return None;
    }
    let items = rest.many(Rest::item)?;
    rest.0.is_empty().then_some(items)
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn item(&mut self) -> Option<Placed> {
        let key = SessionKey::new(self.text()?, self.text()?);
        let (number, first) = (self.u64()?.cast_signed(), self.u64()?.cast_signed());
        let expected = self.u64()?;
        let events = self.many(Rest::owned)?;
        let row = self.option(Rest::row)?;
        let wake = match (self.u8()?, self.u64()?) {
            (0, 0) => Wake::Unchanged,
            (1, 0) => Wake::Never,
            (2, at) => Wake::At(at),
            _ => return None,
        };
        let snapshot = self.option(Rest::owned)?;
        Some(Placed { append: Append { key, expected, events, row, wake, snapshot }, number, first })
    }

    fn row(&mut self) -> Option<IndexRow> {
        Some(IndexRow {
            kind: self.u8()?,
            status: self.u8()?,
            requester: self.text()?,
            agents: self.many(Rest::text)?,
            created_at: self.u64()?,
            finished_at: self.option(Rest::u64)?,
            summary: self.owned()?,
            waits: self.many(Rest::waits)?,
        })
    }

    fn waits(&mut self) -> Option<Waits> {
        Some(Waits { agent: self.text()?, kinds: self.u64()?.try_into().ok()? })
    }

    fn many<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u64()?;
        (0..count).map(|_| one(self)).collect()
    }

    fn option<T>(&mut self, one: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            1 => one(self).map(Some),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<Box<str>> {
        std::str::from_utf8(self.bytes()?).ok().map(Into::into)
    }

    fn owned(&mut self) -> Option<Vec<u8>> {
        self.bytes().map(<[u8]>::to_vec)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u64()?.try_into().ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    fn u8(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> Placed {
        let row = IndexRow {
            kind: 1,
            status: 255,
            requester: "ä".into(),
            agents: vec!["ä".into(), "".into()],
            created_at: u64::MAX,
            finished_at: Some(0),
            summary: vec![0, 255],
            waits: vec![Waits { agent: "b".into(), kinds: u32::MAX }],
        };
        let append = Append {
            key: SessionKey::new("acme", "one"),
            expected: 3,
            events: vec![vec![], vec![7; 300]],
            row: Some(row),
            wake: Wake::At(u64::MAX),
            snapshot: Some(vec![]),
        };
        Placed { append, number: i64::MAX, first: 1 }
    }

    fn bytes(items: &[Placed]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(items, &mut bytes);
        bytes
    }

    #[test]
    fn what_was_appended_comes_back_and_a_cut_record_is_refused() {
        let mut plain = item();
        plain.append.events.clear();
        (plain.append.row, plain.append.snapshot) = (None, None);
        for wake in [Wake::Unchanged, Wake::Never, Wake::At(0)] {
            plain.append.wake = wake;
            assert_eq!(decode(&bytes(std::slice::from_ref(&plain))).as_deref(), Some(&[plain.clone()][..]));
        }
        let all = [item(), plain];
        let whole = bytes(&all);
        assert_eq!(decode(&whole).as_deref(), Some(&all[..]));
        assert_eq!(decode(&bytes(&[])), Some(Vec::new()));
        assert!((0..whole.len()).all(|length| decode(&whole[..length]).is_none()));
        let longer: Vec<u8> = whole.iter().copied().chain([0]).collect();
        assert_eq!(decode(&longer), None);
    }
}
