//! The file of the audit log, and those beside it: `audit.jsonl.1` is the last before it, `.2` the one before; `.end` has the
//! hash of the last line, so that a cut tail shows.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::chain::{self, Hash, Opening};
use crate::calendar::rfc3339;
use handover_engine::clock::machine;

/// How many older files are kept.
pub const OLDER_MAX: u32 = 4;

/// Longer than any line that is written.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The file that is written to.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    bytes_max: u64,
    /// None after a failure, until it can be opened again.
    open: Option<Open>,
    end: fs::File,
    /// What a start found to be missing, until it is written down.
    missing: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Open {
    file: fs::File,
    bytes: u64,
    /// Which file of the chain it is.
    number: u64,
    /// The hash of the last line; none if the chain is to begin.
    last: Option<Hash>,
    /// Whether the next line is the one that says where the chain comes from.
    opens: bool,
}

/// How far writing came.
#[derive(Debug)]
pub struct Written {
    /// So many lines are written.
    pub lines: usize,
    /// What stopped it there.
    pub error: Option<io::Error>,
}

impl File {
    /// Append to this file, or begin it. Only its owner can read what it makes.
    pub fn open(path: &Path, bytes_max: u64) -> io::Result<File> {
        let open = Open::at(path)?;
        let missing = missing(path, open.last.as_ref())?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let end = private(&mut options).open(end(path))?;
        Ok(File { path: path.to_owned(), bytes_max, open: Some(open), end, missing })
    }

    /// Append whole lines, JSON objects, as far as it goes. Each gets its hash and its end.
    pub fn append(&mut self, lines: &[Vec<u8>]) -> Written {
        let mut done = 0;
        while done < lines.len() {
            match self.append_some(&lines[done..]) {
                Ok(count) => done += count,
                Err(error) => {
                    // Something may be half written: opening it again finds out.
                    self.open = None;
                    return Written { lines: done, error: Some(error) };
                }
            }
        }
        Written { lines: done, error: None }
    }

    /// Append those lines that fit into the file, in one write; at least one.
    fn append_some(&mut self, lines: &[Vec<u8>]) -> io::Result<usize> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Open::at(&self.path)?,
        };
        let sealed = |line: &Vec<u8>| (line.len() + chain::SEAL_BYTES) as u64;
        let full = open.bytes > 0 && open.bytes + sealed(&lines[0]) > self.bytes_max;
        let mut open = if full { self.turn_over(open)? } else { open };
        let mut bytes = Vec::new();
        let mut last = open.last.unwrap_or_default();
        if open.opens {
            let line = Opening::line(open.number, open.last.as_ref());
            last = chain::seal(&last, &line, &mut bytes);
        }
        if let Some(line) = &self.missing {
            last = chain::seal(&last, line, &mut bytes);
        }
        let mut count = 0;
        for line in lines {
            if count > 0 && open.bytes + bytes.len() as u64 + sealed(line) > self.bytes_max {
                break;
            }
            last = chain::seal(&last, line, &mut bytes);
            count += 1;
        }
        open.file.write_all(&bytes)?;
        self.missing = None;
        (open.opens, open.last) = (false, Some(last));
        open.bytes += bytes.len() as u64;
        self.open = Some(open);
        // In place: it takes no room that a full disk might not have.
        self.end.seek(SeekFrom::Start(0))?;
        self.end.write_all(format!("{}\n", chain::hex(&last)).as_bytes())?;
        Ok(count)
    }

    /// Every file becomes one older, and the oldest goes.
    fn turn_over(&self, full: Open) -> io::Result<Open> {
        full.file.sync_all()?;
        for age in (0..OLDER_MAX).rev() {
            match fs::rename(older(&self.path, age), older(&self.path, age + 1)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Open::at(&self.path)
    }

    /// Have what was written on disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| open.file.sync_all())?;
        self.end.sync_all()
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Open> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true);
        let mut file = private(&mut options).open(path)?;
        let mut bytes = file.seek(SeekFrom::End(0))?;
        let tail = tail(&mut file, bytes)?;
        // A line that a crash, or a full disk, cut off was never one: without its hash it would look like a forged one.
        let cut = tail.len() - tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if cut > 0 {
            bytes -= cut as u64;
            file.set_len(bytes)?;
            tracing::warn!(path = %path.display(), bytes = cut, "took away the last line of the audit log, which was cut off");
        }
        if bytes == 0 {
            // The chain goes on from the file before, if there is one that has it.
            let (number, last) = match fs::File::open(older(path, 1)) {
                Ok(mut before) => read_end(&mut before)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => (0, None),
                Err(error) => return Err(error),
            };
            return Ok(Open {
                file,
                bytes,
                number: if last.is_some() { number + 1 } else { 1 },
                last,
                opens: true,
            });
        }
        let (number, last) = read_end(&mut file)?;
        Ok(Open { file, bytes, number, last, opens: last.is_none() })
    }
}

/// Which file of its chain this is, and the hash of its last line, if it has one.
fn read_end(file: &mut fs::File) -> io::Result<(u64, Option<Hash>)> {
    file.seek(SeekFrom::Start(0))?;
    let mut first = Vec::new();
    BufReader::new(file.take(LINE_BYTES_MAX)).read_until(b'\n', &mut first)?;
    // What an earlier release began is the first of its chain.
    let number = Opening::of(first.trim_ascii_end()).map_or(1, |opening| opening.file);
    let bytes = file.seek(SeekFrom::End(0))?;
    let tail = tail(file, bytes)?;
    let last = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok((number, chain::said(last)))
}

/// The end of a file of so many bytes, as long as the longest line.
fn tail(file: &mut fs::File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LINE_BYTES_MAX)))?;
    file.take(LINE_BYTES_MAX).read_to_end(&mut tail)?;
    Ok(tail)
}

/// A line that says that the log is shorter than it was left, if it is: the last hash that was written is in none of its
/// lines. If it is in one before the last, the process ended between the line and the note of it.
fn missing(path: &Path, last: Option<&Hash>) -> io::Result<Option<Vec<u8>>> {
    let Some(noted) = noted(path)? else { return Ok(None) };
    if last == Some(&noted) {
        return Ok(None);
    }
    let digits = chain::hex(&noted);
    for age in 0..=1 {
        let file = match fs::File::open(older(path, age)) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in file.split(b'\n') {
            if chain::said(&line?) == Some(noted) {
                return Ok(None);
            }
        }
    }
    let path = path.display();
    tracing::error!(%path, "lines at the end of the audit log are missing: it was cut, or the machine lost power");
    let line = serde_json::json!({ "time": rfc3339(machine()), "event": chain::MISSING, "last": digits });
    Ok(Some(line.to_string().into_bytes()))
}

/// The hash of the last line, as it was noted beside the log. None if there is no such note.
pub fn noted(path: &Path) -> io::Result<Option<Hash>> {
    match fs::read(end(path)) {
        Ok(bytes) => Ok(chain::unhex(bytes.trim_ascii_end())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Only the owner may read what is made with these.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Where an audit log is kept: its files, of which some may not be there.
pub fn places(path: &Path) -> Vec<PathBuf> {
    (0..=OLDER_MAX).map(|age| older(path, age)).chain([end(path)]).collect()
}

/// The path of the note of the last hash.
pub fn end(path: &Path) -> PathBuf {
    with_suffix(path, "end")
}

/// The path of a file of this age: none for the one that is written to.
pub fn older(path: &Path, age: u32) -> PathBuf {
    if age == 0 { path.to_owned() } else { with_suffix(path, &age.to_string()) }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(index: usize) -> Vec<u8> {
        format!("{{\"n\":{index:03}}}").into_bytes()
    }

    /// The numbers of the lines in a file, without those of the chain itself.
    fn numbers(path: &Path) -> Vec<usize> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        let number = |line: &str| line.strip_prefix("{\"n\":").map(|rest| rest[..3].parse().unwrap());
        text.lines().filter_map(number).collect()
    }

    /// The size of a file with its opening line and so many others.
    fn room_for(lines: usize) -> u64 {
        let opening = Opening::line(1, Some(&[0; 32])).len() + chain::SEAL_BYTES;
        (opening + lines * (line(0).len() + chain::SEAL_BYTES)) as u64
    }

    #[test]
    fn a_full_file_becomes_older_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::open(&path, room_for(3)).unwrap();
        let lines: Vec<Vec<u8>> = (0..20).map(line).collect();
        // All at once and one by one come to the same.
        assert_eq!(file.append(&lines[..11]).lines, 11);
        for one in &lines[11..] {
            assert!(file.append(std::slice::from_ref(one)).error.is_none());
        }
        assert_eq!((numbers(&path), numbers(&older(&path, 1))), (vec![18, 19], vec![15, 16, 17]));
        assert_eq!(numbers(&older(&path, OLDER_MAX)), [6, 7, 8]);
        assert!(!older(&path, OLDER_MAX + 1).exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2 + OLDER_MAX as usize);
    }

    #[test]
    fn it_is_appended_to_after_a_restart_and_a_line_cut_short_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        File::open(&path, 10_000).unwrap().append(&[line(1)]);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"n\":9").unwrap();
        File::open(&path, 10_000).unwrap().append(&[line(2)]);
        assert_eq!(numbers(&path), [1, 2]);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3, "and the one that it begins with");
    }

    #[test]
    fn a_line_longer_than_a_file_may_be_is_written_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::open(&path, 4).unwrap();
        assert_eq!(file.append(&[line(1), line(2)]).lines, 2);
        assert_eq!((numbers(&path), numbers(&older(&path, 1))), (vec![2], vec![1]));
    }

    #[test]
    fn what_could_not_be_written_is_told_and_it_goes_on_when_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::open(&path, room_for(2)).unwrap();
        // A directory in the place of the older file: it cannot be moved onto, nor away.
        fs::create_dir_all(older(&path, OLDER_MAX).join("in the way")).unwrap();
        for age in 1..OLDER_MAX {
            fs::write(older(&path, age), "").unwrap();
        }
        let written = file.append(&[line(1), line(2), line(3)]);
        assert_eq!(written.lines, 2);
        assert!(written.error.is_some());
        fs::remove_dir_all(older(&path, OLDER_MAX)).unwrap();
        assert_eq!(file.append(&[line(4)]).lines, 1);
        assert_eq!(numbers(&path), [4]);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        File::open(&path, 20).unwrap();
        for path in [path.clone(), end(&path)] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
