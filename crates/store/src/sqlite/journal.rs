//! The journal in front of the database: two files of records, one record for each group commit.
//!
//! A file begins with a sector that says whose journal it is. A record is a header, what was appended, and zeros up to the next sector, so that writing one never touches another.
//! Records are numbered without a hole for as long as the database lives. The files are filled in turns; what a file held
//! before has lower numbers. Room is made ahead by writing zeros, so that a sync has nothing to do but the record, and so
//! that there is something to give back to the database if the disk is full.
//!
//! Both checksums begin with a number that only the database knows: nothing that a caller sends can pass for a record.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::private;
use super::record::{self, Placed};
use crate::fault::Fault;

pub(super) const FILES: [&str; 2] = ["journal-0", "journal-1"];

/// No record is longer. Whoever has more to write goes to the database.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// How much room there is behind the last record, at least. It is what the database gets when the disk is full, to take what
/// was acknowledged: appends wait when 4 MiB of that are pending. If it takes more after all, as many small events do,
/// nothing is lost: the journal keeps them, and the store is full until there is room.
const ROOM: u64 = 4 << 20;
const GROW_BY: u64 = 1 << 20;
const SECTOR: usize = 512;
const START: u64 = SECTOR as u64;
const PAGE: usize = 4096;

/// What a file begins with, before the salt and the zeros of its first sector.
const MAGIC: &[u8; 16] = b"handover journal";

/// The number, the length, the checksum of the payload and that of the header, in 8, 4, 4 and 4 bytes, least first.
const HEADER: usize = 20;

/// Why a record was not written.
pub(super) enum Failed {
    /// There is no room for it. Nothing changed.
    NoRoom,
    /// It may be there or not, and so it must not be found: its number is never to be used again.
    InDoubt(io::Error),
}

pub(super) struct Journal {
    segments: [Segment; 2],
    active: usize,
    salt: u64,
    segment_bytes: u64,
    buffer: Vec<u8>,
}

struct Segment {
    file: File,
    /// Where the next record goes.
    used: u64,
    /// How long the file is.
    length: u64,
    /// The number of its last record.
    last: u64,
}

impl Journal {
    /// Begin with two empty files. Everything that was in them must be durable in the database. None if there is no room.
    pub(super) fn create(dir: &Path, salt: u64, segment_bytes: u64) -> io::Result<Option<Journal>> {
        let segment = |name| {
            let mut options = File::options();
            options.create(true).truncate(true).write(true);
            private(&mut options);
            let file = options.open(dir.join(name))?;
            // Synced before there is a record, so that a file with records always says whose they are.
            file.write_all_at(&first_sector(salt), 0)?;
            file.sync_data()?;
            io::Result::Ok(Segment { file, used: START, length: START, last: 0 })
        };
        let segments = match segment(FILES[0]).and_then(|first| Ok([first, segment(FILES[1])?])) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(None),
            segments => segments?,
        };
        File::open(dir)?.sync_all()?;
        Ok(Some(Journal { segments, active: 0, salt, segment_bytes, buffer: Vec::new() }))
    }

    /// Write a record durably. All records up to `durable` are durable in the database.
    pub(super) fn write(
        &mut self,
        number: u64,
        durable: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Failed> {
        self.buffer.clear();
        self.buffer.resize(HEADER, 0);
        encode(&mut self.buffer);
        let length = self.buffer.len() - HEADER;
        if length > RECORD_BYTES_MAX {
            return Err(Failed::NoRoom);
        }
        let payload = crc32fast::hash(&self.buffer[HEADER..]);
        let header = header(self.salt, number, length as u32, payload);
        self.buffer[..HEADER].copy_from_slice(&header);
        self.buffer.resize(self.buffer.len().next_multiple_of(SECTOR), 0);
        self.turn(durable);
        let segment = &mut self.segments[self.active];
        segment.make_room(self.buffer.len() as u64).map_err(|_| Failed::NoRoom)?;
        let written = segment.file.write_all_at(&self.buffer, segment.used);
        // Once, whatever it says: after a failed sync, a second one would know nothing of what the first has lost.
        written.and_then(|()| segment.file.sync_data()).map_err(Failed::InDoubt)?;
        segment.used += self.buffer.len() as u64;
        segment.last = number;
        Ok(())
    }

    /// Leave a full file as soon as the database has everything that is in the other.
    fn turn(&mut self, durable: u64) {
        let other = 1 - self.active;
        if self.segments[self.active].used >= self.segment_bytes && self.segments[other].last <= durable {
            self.active = other;
            self.segments[other].used = START;
        }
    }

    /// Give back what is not used.
    pub(super) fn give_back(&mut self, durable: u64) {
        for segment in &mut self.segments {
            if segment.last <= durable {
                segment.used = START;
            }
            // Without it there is less room for others; nothing else depends on it.
            if segment.file.set_len(segment.used).is_ok() {
                segment.length = segment.used;
            }
        }
    }
}

impl Segment {
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        if self.used + bytes + ROOM <= self.length {
            return Ok(());
        }
        let end = (self.used + bytes + ROOM).next_multiple_of(GROW_BY);
        // Page by page: what is written at once, Linux keeps and accounts for as one, also when a record changes a part of it.
        let mut at = self.length;
        while at < end {
            let bytes = PAGE - at as usize % PAGE;
            if let Err(error) = self.file.write_all_at(&[0; PAGE][..bytes], at) {
                self.file.set_len(self.length)?;
                return Err(error);
            }
            at += bytes as u64;
        }
        self.length = end;
        Ok(())
    }
}

fn first_sector(salt: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..16].copy_from_slice(MAGIC);
    sector[16..24].copy_from_slice(&salt.to_le_bytes());
    sector
}

fn header(salt: u64, number: u64, length: u32, payload: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&number.to_le_bytes());
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12..16].copy_from_slice(&payload.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&header[..16]);
    header[16..].copy_from_slice(&hasher.finalize().to_le_bytes());
    header
}

/// The record at the beginning of these bytes, if there is one: its number and its payload.
fn record_at(bytes: &[u8], salt: u64) -> Option<(u64, &[u8])> {
    let (found, rest) = bytes.split_first_chunk::<HEADER>()?;
    let word = |at: usize| found[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let number = u64::from_le_bytes(*found.first_chunk()?);
    let (length, payload) = (word(8)?, word(12)?);
    let sound = *found == header(salt, number, length, payload);
    let bytes = rest.get(..length as usize).filter(|_| sound)?;
    (crc32fast::hash(bytes) == payload).then_some((number, bytes))
}

/// What was found in the files.
#[derive(Default)]
pub(super) struct Found {
    records: BTreeMap<u64, Vec<Placed>>,
    /// Where the last record of each file ends.
    ends: [u64; 2],
}

impl Found {
    /// The number of the last record, if there is one.
    pub(super) fn last(&self) -> Option<u64> {
        self.records.keys().next_back().copied()
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &Placed> {
        self.records.values().flatten()
    }

    /// Give back what is behind it.
    pub(super) fn give_back(&self, dir: &Path) {
        for (name, end) in FILES.iter().zip(self.ends) {
            // Without it there is less room for others; nothing else depends on it.
            _ = File::options().write(true).open(dir.join(name)).and_then(|file| file.set_len(end));
        }
    }
}

/// What the files hold beyond record `applied`, in the order of the numbers. A record that was cut short when the process
/// or the machine stopped is the last and was never acknowledged; one that is missing before another is damage. A file that
/// begins with something else may hold what another database has acknowledged: it is not touched.
pub(super) fn read(dir: &Path, salt: u64, applied: u64) -> Result<Found, Fault> {
    let mut found = Found::default();
    let mut places = BTreeMap::new();
    for (name, end) in FILES.iter().zip(&mut found.ends) {
        let bytes = match fs::read(dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(|source| super::io_fault("reading the journal", source))?,
        };
        let first = &bytes[..bytes.len().min(SECTOR)];
        if first.iter().any(|byte| *byte != 0) && first != first_sector(salt) {
            let found = "it is not the journal of this database".to_owned();
            return Err(Fault::Damaged { file: dir.join(name), found });
        }
        let mut at = SECTOR;
        while at < bytes.len() {
            // Only what is new says how far to go on: of something older only a part may be left.
            let Some((number, payload)) =
                record_at(&bytes[at..], salt).filter(|(number, _)| *number > applied)
            else {
                at += SECTOR;
                continue;
            };
            let damaged = |found: &str| Fault::Damaged {
                file: dir.join(name),
                found: format!("record {number} at byte {at} {found}"),
            };
            let items = record::decode(payload).ok_or_else(|| damaged("cannot be read"))?;
            if found.records.insert(number, items).is_some() {
                return Err(damaged("is there twice"));
            }
            places.insert(number, damaged("is there, and the one before it is not"));
            at += (HEADER + payload.len()).next_multiple_of(SECTOR);
            *end = at as u64;
        }
    }
    let hole = places.into_iter().zip(applied + 1..).find(|((number, _), expected)| number != expected);
    match hole {
        Some(((_, damaged), _)) => Err(damaged),
        None => Ok(found),
    }
}

/// Remove the files, if there are any. Everything that is in them must be durable in the database.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    for name in FILES {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
