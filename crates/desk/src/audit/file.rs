//! The file of the audit log, and the older ones beside it: `audit.jsonl.1` is the last before it, `.2` the one before.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How many older files are kept.
pub const OLDER_MAX: u32 = 4;

/// The file that is written to.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    bytes_max: u64,
    /// None after a failure, until it can be opened again.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: fs::File,
    bytes: u64,
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
        Ok(File { path: path.to_owned(), bytes_max, open: Some(Open::at(path)?) })
    }

    /// Append whole lines, as far as it goes.
    pub fn append(&mut self, lines: &[Vec<u8>]) -> Written {
        let mut done = 0;
        while done < lines.len() {
            match self.append_some(&lines[done..]) {
                Ok(count) => done += count,
                Err(error) => {
                    // Something may be half written: opening it again ends that line.
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
        let full = open.bytes > 0 && open.bytes + lines[0].len() as u64 > self.bytes_max;
        let mut open = if full { self.turn_over(open)? } else { open };
        let mut bytes = Vec::new();
        let mut count = 0;
        for line in lines {
            let size = (bytes.len() + line.len()) as u64;
            if count > 0 && open.bytes + size > self.bytes_max {
                break;
            }
            bytes.extend_from_slice(line);
            count += 1;
        }
        open.file.write_all(&bytes)?;
        open.bytes += bytes.len() as u64;
        self.open = Some(open);
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
        self.open.as_ref().map_or(Ok(()), |open| open.file.sync_all())
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Open> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let mut bytes = file.seek(SeekFrom::End(0))?;
        if bytes > 0 {
            // A line that a crash cut off must not run into the next one.
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != [b'\n'] {
                file.write_all(b"\n")?;
                bytes += 1;
            }
        }
        Ok(Open { file, bytes })
    }
}

/// Where an audit log is kept: its files, of which some may not be there.
pub fn places(path: &Path) -> Vec<PathBuf> {
    (0..=OLDER_MAX).map(|age| older(path, age)).collect()
}

/// The path of a file of this age: none for the one that is written to.
pub fn older(path: &Path, age: u32) -> PathBuf {
    if age == 0 {
        return path.to_owned();
    }
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(format!(".{age}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(index: usize) -> Vec<u8> {
        format!("{index:09}\n").into_bytes()
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_full_file_becomes_older_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::open(&path, 30).unwrap();
        let lines: Vec<Vec<u8>> = (0..20).map(line).collect();
        // All at once and one by one come to the same.
        assert_eq!(file.append(&lines[..11]).lines, 11);
        for one in &lines[11..] {
            assert!(file.append(std::slice::from_ref(one)).error.is_none());
        }
        let (last, before) = (lines[18..].concat(), lines[15..18].concat());
        assert_eq!(read(&path).as_bytes(), last);
        assert_eq!(read(&older(&path, 1)).as_bytes(), before);
        assert_eq!(read(&older(&path, OLDER_MAX)).as_bytes(), lines[6..9].concat());
        assert!(!older(&path, OLDER_MAX + 1).exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1 + OLDER_MAX as usize);
    }

    #[test]
    fn it_is_appended_to_after_a_restart_and_a_line_cut_short_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        File::open(&path, 1000).unwrap().append(&[line(1)]);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"cut sh").unwrap();
        File::open(&path, 1000).unwrap().append(&[line(2)]);
        assert_eq!(read(&path), "000000001\ncut sh\n000000002\n");
    }

    #[test]
    fn a_line_longer_than_a_file_may_be_is_written_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::open(&path, 4).unwrap();
        assert_eq!(file.append(&[line(1), line(2)]).lines, 2);
        assert_eq!((read(&path), read(&older(&path, 1))), ("000000002\n".into(), "000000001\n".into()));
    }

    #[test]
    fn what_could_not_be_written_is_told_and_it_goes_on_when_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::open(&path, 20).unwrap();
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
        assert_eq!(read(&path), "000000004\n");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        File::open(&path, 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
