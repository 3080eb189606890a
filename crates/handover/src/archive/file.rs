//! An archive as a file: its lines, written one after the other and read back with a check that it is whole.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handover_engine::archive::Archived;
use handover_store::{Record, SessionKey, Tombstone};
use indicatif::ProgressBar;
use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Failure;
use crate::backup::progress;

/// The version that is written. Every earlier one can be read.
const VERSION: u32 = 2;

/// How many bytes a line, and the events of a session, may have: more than the log of any session.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    handover_archive: u32,
}

/// What an archive says at its end.
#[derive(Clone, Default, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct End {
    #[serde(default)]
    pub records: u64,
    #[serde(default)]
    pub deleted: u64,
    pub sessions: u64,
    pub events: u64,
    sha256: String,
}

/// A line between the first and the last. Those of one kind follow each other, in the order in which the kinds are named here.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Record(RecordLine),
    Deleted(DeletedLine),
    Session(SessionLine),
    /// Events of the session before it, after those of the line before.
    Events(Vec<Bytes>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine {
    space: Box<str>,
    tenant: Box<str>,
    key: Box<str>,
    value: Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeletedLine {
    tenant: Box<str>,
    session: Box<str>,
    deleted_at: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionLine {
    tenant: Box<str>,
    session: Box<str>,
}

/// The only kind of line that version 1 has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeSession {
    tenant: Box<str>,
    session: Box<str>,
    events: Vec<Bytes>,
}

/// Bytes, in base64.
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        let no_base64 = |error| de::Error::custom(format!("bytes that are no base64: {error}"));
        STANDARD.decode(text).map(Bytes).map_err(no_base64)
    }
}

/// An archive that is being written.
pub struct Writer<W> {
    out: W,
    hash: Sha256,
    end: End,
}

impl<W: Write> Writer<W> {
    pub fn begin(out: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, hash: Sha256::new(), end: End::default() };
        writer.put(&Head { handover_archive: VERSION })?;
        Ok(writer)
    }

    pub fn record(&mut self, record: Record) -> io::Result<()> {
        let Record { space, tenant, key, value } = record;
        self.end.records += 1;
        self.put(&Line::Record(RecordLine { space, tenant, key, value: Bytes(value) }))
    }

    pub fn deleted(&mut self, tombstone: Tombstone) -> io::Result<()> {
        let Tombstone { key: SessionKey { tenant, session }, deleted_at } = tombstone;
        self.end.deleted += 1;
        self.put(&Line::Deleted(DeletedLine { tenant, session, deleted_at }))
    }

    /// A session, whose events come next.
    pub fn session(&mut self, key: &SessionKey) -> io::Result<()> {
        let SessionKey { tenant, session } = key.clone();
        self.end.sessions += 1;
        self.put(&Line::Session(SessionLine { tenant, session }))
    }

    pub fn events(&mut self, events: Vec<Vec<u8>>) -> io::Result<()> {
        self.end.events += events.len() as u64;
        self.put(&Line::Events(events.into_iter().map(Bytes).collect()))
    }

    /// Nothing follows.
    pub fn end(mut self) -> io::Result<(W, End)> {
        self.end.sha256 = hex(self.hash);
        let line = serde_json::json!({ "end": self.end }).to_string();
        writeln!(self.out, "{line}")?;
        Ok((self.out, self.end))
    }

    fn put(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.hash.update(&bytes);
        self.out.write_all(&bytes)
    }
}

/// What an archive has.
pub enum Item {
    Record(Record),
    Deleted(Tombstone),
    Session(Archived),
}

/// An archive that is read from its beginning. Only at its end is it known to be whole.
pub struct Reader<'a> {
    lines: BufReader<&'a mut File>,
    path: &'a Path,
    version: u32,
    number: u64,
    line: String,
    hash: Sha256,
    found: End,
    /// The last record: each has a later name than the one before.
    last: Option<(Box<str>, Box<str>, Box<str>)>,
    /// The session whose events are being read, and how many bytes it has.
    begun: Option<(Archived, u64)>,
    end: Option<End>,
    bar: ProgressBar,
}

impl<'a> Reader<'a> {
    pub fn begin(file: &'a mut File, path: &'a Path, doing: &'static str) -> Result<Reader<'a>, Failure> {
        let bar = progress(file.metadata().ok().map(|metadata| metadata.len()), doing);
        file.rewind().map_err(|error| Failure::fault(format!("reading {}", path.display()), &error))?;
        let mut reader = Reader {
            lines: BufReader::new(file),
            path,
            version: 1,
            number: 0,
            line: String::new(),
            hash: Sha256::new(),
            found: End::default(),
            last: None,
            begun: None,
            end: None,
            bar,
        };
        reader.read_line()?;
        let head: Head = serde_json::from_str(&reader.line).map_err(|error| reader.wrong(&found(error)))?;
        reader.version = head.handover_archive;
        if !(1..=VERSION).contains(&reader.version) {
            let version = reader.version;
            return Err(reader.wrong(&format!("of a version up to {VERSION}, found version {version}")));
        }
        Ok(reader)
    }

    /// What comes next, if the archive has not ended.
    pub fn next(&mut self) -> Result<Option<Item>, Failure> {
        while self.end.is_none() {
            // With the line before, which was not the last.
            self.hash.update(self.line.as_bytes());
            self.read_line()?;
            if let Some(end) = end_of(&self.line) {
                return self.finish(end);
            }
            let item = if self.version == 1 { self.whole_session() } else { self.item() };
            let item = item.map_err(|what| self.wrong(&what))?;
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
    }

    /// What it says at its end, which was reached.
    pub fn end(self) -> End {
        self.end.unwrap_or_default()
    }

    fn finish(&mut self, end: End) -> Result<Option<Item>, Failure> {
        self.found.sha256 = hex(self.hash.clone());
        if self.found != end || !self.lines.fill_buf().is_ok_and(<[u8]>::is_empty) {
            return Err(self.wrong(&"found one that was changed, or cut, or has more than it says"));
        }
        self.bar.finish_and_clear();
        self.end = Some(end);
        Ok(self.whole())
    }

    fn read_line(&mut self) -> Result<(), Failure> {
        self.line.clear();
        self.number += 1;
        let read = self.lines.by_ref().take(BYTES_MAX).read_line(&mut self.line);
        let read = read.map_err(|error| self.wrong(&found(error)))?;
        self.bar.inc(read as u64);
        if self.line.ends_with('\n') { Ok(()) } else { Err(self.wrong(&"found that it ends early")) }
    }

    fn wrong(&self, what: &dyn fmt::Display) -> Failure {
        let (path, line) = (self.path.display(), self.number);
        Failure::Usage(format!("{path}, line {line}: expected an archive of handover export, {what}"))
    }

    /// The session that was begun, all of whose events were read.
    fn whole(&mut self) -> Option<Item> {
        self.begun.take().map(|(archived, _)| Item::Session(archived))
    }

    fn whole_session(&mut self) -> Result<Option<Item>, String> {
        let WholeSession { tenant, session, events } = serde_json::from_str(&self.line).map_err(found)?;
        self.found.sessions += 1;
        self.found.events += events.len() as u64;
        let events = events.into_iter().map(|Bytes(bytes)| bytes).collect();
        Ok(Some(Item::Session(Archived { key: SessionKey { tenant, session }, events })))
    }

    fn item(&mut self) -> Result<Option<Item>, String> {
        match serde_json::from_str(&self.line).map_err(found)? {
            Line::Record(RecordLine { space, tenant, key, value: Bytes(value) }) => {
                let name = (space.clone(), tenant.clone(), key.clone());
                if self.found.deleted + self.found.sessions > 0 || self.last.as_ref() >= Some(&name) {
                    return Err("found a record in the wrong place".to_owned());
                }
                self.last = Some(name);
                self.found.records += 1;
                Ok(Some(Item::Record(Record { space, tenant, key, value })))
            }
            Line::Deleted(DeletedLine { tenant, session, deleted_at }) => {
                if self.found.sessions > 0 {
                    return Err("found the id of a deleted session in the wrong place".to_owned());
                }
                self.found.deleted += 1;
                Ok(Some(Item::Deleted(Tombstone { key: SessionKey { tenant, session }, deleted_at })))
            }
            Line::Session(SessionLine { tenant, session }) => {
                let before = self.whole();
                let archived = Archived { key: SessionKey { tenant, session }, events: Vec::new() };
                self.begun = Some((archived, 0));
                self.found.sessions += 1;
                Ok(before)
            }
            Line::Events(events) => {
                let Some((archived, bytes)) = &mut self.begun else {
                    return Err("found events of no session".to_owned());
                };
                *bytes += events.iter().map(|Bytes(event)| event.len() as u64).sum::<u64>();
                if *bytes > BYTES_MAX {
                    return Err("found a session that is longer than any can be".to_owned());
                }
                self.found.events += events.len() as u64;
                archived.events.extend(events.into_iter().map(|Bytes(event)| event));
                Ok(None)
            }
        }
    }
}

fn found(error: impl fmt::Display) -> String {
    format!("found: {error}")
}

fn end_of(line: &str) -> Option<End> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        end: End,
    }
    line.starts_with("{\"end\":")
        .then(|| serde_json::from_str::<Line>(line).ok().map(|line| line.end))
        .flatten()
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str) -> Record {
        Record { space: "agent".into(), tenant: "t".into(), key: key.into(), value: vec![0, 255] }
    }

    fn archive(write: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
        let mut writer = Writer::begin(Vec::new()).unwrap();
        write(&mut writer);
        writer.end().unwrap().0
    }

    /// What is read of an archive, or why it is refused.
    fn read(bytes: &[u8]) -> Result<(Vec<String>, End), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive");
        std::fs::write(&path, bytes).unwrap();
        let mut file = File::open(&path).unwrap();
        let mut read = || {
            let mut reader = Reader::begin(&mut file, &path, "reading")?;
            let mut items = Vec::new();
            while let Some(item) = reader.next()? {
                items.push(match item {
                    Item::Record(record) => format!("record {} {:?}", record.key, record.value),
                    Item::Deleted(Tombstone { key, deleted_at }) => format!("deleted {key} {deleted_at}"),
                    Item::Session(Archived { key, events }) => format!("session {key} {events:?}"),
                });
            }
            Ok((items, reader.end()))
        };
        read().map_err(|failure: Failure| failure.to_string())
    }

    #[test]
    fn what_was_written_in_pages_is_read_whole() {
        let bytes = archive(|writer| {
            writer.record(record("a")).unwrap();
            writer.record(record("b")).unwrap();
            writer.deleted(Tombstone { key: SessionKey::new("t", "gone"), deleted_at: 7 }).unwrap();
            for session in ["one", "two"] {
                writer.session(&SessionKey::new("t", session)).unwrap();
                writer.events(vec![vec![1], vec![]]).unwrap();
                writer.events(vec![vec![3]]).unwrap();
            }
        });
        let (items, end) = read(&bytes).unwrap();
        let expected = [
            "record a [0, 255]",
            "record b [0, 255]",
            "deleted t/gone 7",
            "session t/one [[1], [], [3]]",
            "session t/two [[1], [], [3]]",
        ];
        assert_eq!(items, expected);
        assert_eq!((end.records, end.deleted, end.sessions, end.events), (2, 1, 2, 6));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "cut after {length}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn what_stands_in_the_wrong_place_is_refused() {
        let key = SessionKey::new("t", "one");
        let tombstone = || Tombstone { key: key.clone(), deleted_at: 7 };
        let twice = archive(|writer| (0..2).for_each(|_| writer.record(record("a")).unwrap()));
        assert!(
            read(&twice)
                .unwrap_err()
                .contains("line 3: expected an archive of handover export, found a record")
        );
        let late = archive(|writer| {
            writer.deleted(tombstone()).unwrap();
            writer.record(record("a")).unwrap();
        });
        assert!(read(&late).unwrap_err().contains("record in the wrong place"));
        let late = archive(|writer| {
            writer.session(&key).unwrap();
            writer.deleted(tombstone()).unwrap();
        });
        assert!(read(&late).unwrap_err().contains("deleted session in the wrong place"));
        let nobodys = archive(|writer| writer.events(vec![vec![1]]).unwrap());
        assert!(read(&nobodys).unwrap_err().contains("events of no session"));
    }

    #[test]
    fn version_1_is_read_and_has_nothing_of_version_2() {
        let whole = |lines: &str| {
            let mut hash = Sha256::new();
            hash.update(lines);
            let end = format!(r#"{{"end":{{"sessions":1,"events":2,"sha256":"{}"}}}}"#, hex(hash));
            format!("{lines}{end}\n").into_bytes()
        };
        let session = r#"{"tenant":"t","session":"one","events":["AQ==",""]}"#;
        let (items, end) = read(&whole(&format!("{{\"handover_archive\":1}}\n{session}\n"))).unwrap();
        assert_eq!(items, ["session t/one [[1], []]"]);
        assert_eq!((end.records, end.deleted, end.sessions, end.events), (0, 0, 1, 2));
        for (version, line) in
            [(2, session), (1, r#"{"session":{"tenant":"t","session":"one"}}"#), (3, session)]
        {
            let refused = read(&whole(&format!("{{\"handover_archive\":{version}}}\n{line}\n")));
            assert!(refused.is_err(), "{version}: {line}");
        }
    }
}
