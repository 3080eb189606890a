//! Checking an audit log: whether each line follows the one before it, from the oldest file to the newest.
//!
//! What it finds: a line that was changed, removed, added or moved, a whole file that is missing between others or before them,
//! and a tail that was cut. What it cannot find: what somebody did who wrote all hashes anew, the note of the last one
//! included, for there is no secret in them; and files that were older than those that are kept.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::chain::{self, BEGAN, Hash, Opening};
use super::file::{self, OLDER_MAX};

/// How many findings are told one by one.
const FINDINGS_MAX: usize = 100;

/// How often it begins again because the log was turned over meanwhile.
const TRIES: u32 = 5;

/// What an audit log is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many files there are.
    pub files: usize,
    /// Lines from before the chain began, which say nothing about themselves.
    pub not_chained: u64,
    /// Lines that are part of the chain.
    pub chained: u64,
    /// What is wrong, at most a hundred.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub more: u64,
    /// The hash of the last line.
    pub last: Option<Hash>,
    /// Whether there is a note beside the log of what its last line is. Without it a cut tail does not show.
    pub noted: bool,
    /// Whether the last line has no end: it is being written, or was cut off by a crash.
    pub unended: bool,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// In which file.
    pub file: PathBuf,
    /// In which line, the first being 1; none if it is the file itself.
    pub line: Option<u64>,
    /// What.
    pub what: String,
}

/// Check the log at this path, with its older files. The server may go on writing to it.
pub fn verify(path: &Path) -> io::Result<Report> {
    let mut tries = 0;
    loop {
        // The note is read first: what it names is in the files that are opened after it.
        let noted = file::noted(path)?;
        let files = open_all(path)?;
        if files.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "expected an audit log, found no such file"));
        }
        let as_opened: Vec<_> = files.iter().map(|(_, file)| identity(file)).collect::<io::Result<_>>()?;
        let now: Vec<_> =
            open_all(path)?.iter().map(|(_, file)| identity(file)).collect::<io::Result<_>>()?;
        tries += 1;
        if as_opened == now || tries == TRIES {
            return Walk::default().all(files, noted);
        }
    }
}

/// The files that are there, the oldest first.
fn open_all(path: &Path) -> io::Result<Vec<(PathBuf, fs::File)>> {
    let mut files = Vec::new();
    for age in (0..=OLDER_MAX).rev() {
        let path = file::older(path, age);
        match fs::File::open(&path) {
            Ok(file) => files.push((path, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

#[cfg(unix)]
fn identity(file: &fs::File) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &fs::File) -> io::Result<(u64, u64)> {
    Ok((0, 0))
}

/// The walk from the first line to the last.
#[derive(Default)]
struct Walk {
    report: Report,
    last: Option<Hash>,
    /// The number of the file that the chain is in.
    number: Option<u64>,
    noted_is_there: bool,
}

impl Walk {
    fn all(mut self, files: Vec<(PathBuf, fs::File)>, noted: Option<Hash>) -> io::Result<Report> {
        self.report.files = files.len();
        self.report.noted = noted.is_some();
        let newest = files.last().map(|(path, _)| path.clone()).unwrap_or_default();
        let mut numbers = Vec::new();
        for (path, file) in files {
            self.file(&path, file, noted.as_ref())?;
            numbers.push((path, self.number));
        }
        // The oldest that is kept is the first of its chain, unless as many are there as are ever kept.
        if let Some((path, Some(number))) = numbers.iter().find(|(_, number)| number.is_some())
            && *number > 1
            && self.report.not_chained == 0
            && self.report.files <= OLDER_MAX as usize
        {
            let what = format!("the file before this one, the {number}. of its chain, is missing");
            self.report.find(path, None, what);
        }
        if noted.is_some() && !self.noted_is_there {
            let what = "lines at the end are missing: the last one that was written is not there";
            self.report.find(&newest, None, what.to_owned());
        }
        self.report.last = self.last;
        Ok(self.report)
    }

    fn file(&mut self, path: &Path, file: fs::File, noted: Option<&Hash>) -> io::Result<()> {
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.pop_if(|last| *last == b'\n').is_none() {
                self.report.unended = true;
                break;
            }
            self.line(path, number, &line);
            self.noted_is_there |= self.last.is_some() && self.last.as_ref() == noted;
        }
        Ok(())
    }

    fn line(&mut self, path: &Path, number: u64, line: &[u8]) {
        let opening = Opening::of(line);
        let Some(said) = chain::said(line) else {
            if self.last.is_none() {
                self.report.not_chained += 1;
            } else {
                self.report.find(path, Some(number), "has no hash: it was changed or added".to_owned());
            }
            return;
        };
        self.report.chained += 1;
        let previous = match (&opening, self.last) {
            // Where the chain comes from is said in its first line; what was before the oldest file is gone.
            (Some(opening), None) => chain::unhex(opening.previous.as_bytes()).unwrap_or_default(),
            (Some(opening), Some(last)) => {
                let previous = chain::unhex(opening.previous.as_bytes());
                if opening.event == BEGAN {
                    self.report.find(
                        path,
                        Some(number),
                        "begins another chain: what is before may have been changed".to_owned(),
                    );
                } else if previous != Some(last) {
                    self.report.find(path, Some(number), "does not go on where the file before it ends: lines or a file between them are missing".to_owned());
                }
                previous.unwrap_or_default()
            }
            (None, Some(_)) if number == 1 => {
                self.report.find(
                    path,
                    Some(number),
                    "is not what a file begins with: lines before it were removed".to_owned(),
                );
                self.last = Some(said);
                return;
            }
            (None, Some(last)) => last,
            (None, None) => {
                let what = "is not what a chain begins with: lines before it were removed";
                self.report.find(path, Some(number), what.to_owned());
                self.last = Some(said);
                return;
            }
        };
        if !chain::follows(&previous, line, &said) {
            let what = "does not follow the line before it: it was changed, or lines before it were removed, added or moved";
            self.report.find(path, Some(number), what.to_owned());
        }
        if let Some(opening) = opening {
            self.number = Some(opening.file);
        } else if is_missing(line) {
            let what = "says that lines before it were missing when the server started: the log was cut, or the machine lost power";
            self.report.find(path, Some(number), what.to_owned());
        }
        self.last = Some(said);
    }
}

fn is_missing(line: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Said {
        event: String,
    }
    serde_json::from_slice::<Said>(line).is_ok_and(|said| said.event == chain::MISSING)
}

impl Report {
    fn find(&mut self, file: &Path, line: Option<u64>, what: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { file: file.to_owned(), line, what });
        } else {
            self.more += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::{File, end, older};
    use super::*;

    /// A log of several files: 3 lines and an opening in each.
    struct Log {
        dir: tempfile::TempDir,
    }

    impl Log {
        fn new(lines: usize) -> Log {
            let log = Log { dir: tempfile::tempdir().unwrap() };
            log.write(0..lines);
            log
        }

        fn write(&self, lines: std::ops::Range<usize>) {
            let mut file = File::open(&self.path(), 600).unwrap();
            for n in lines {
                // A restart now and then changes nothing.
                if n % 4 == 3 {
                    file = File::open(&self.path(), 600).unwrap();
                }
                let line = format!("{{\"event\":\"limited\",\"n\":{n}}}").into_bytes();
                assert!(file.append(&[line]).error.is_none());
            }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("audit.jsonl")
        }

        fn edit(&self, age: u32, edit: impl FnOnce(&mut Vec<String>)) {
            let path = older(&self.path(), age);
            let text = fs::read_to_string(&path).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            edit(&mut lines);
            fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        }

        /// The findings, as `age:line`.
        fn findings(&self) -> Vec<String> {
            let report = verify(&self.path()).unwrap();
            let place = |finding: &Finding| {
                let name = finding.file.file_name().unwrap().to_str().unwrap();
                let age = name.strip_prefix("audit.jsonl").unwrap().strip_prefix('.').unwrap_or("0");
                format!("{age}:{}", finding.line.map_or("-".to_owned(), |line| line.to_string()))
            };
            report.findings.iter().map(place).collect()
        }
    }

    #[test]
    fn a_log_that_nobody_touched_is_whole_across_files_and_restarts() {
        let log = Log::new(8);
        let report = verify(&log.path()).unwrap();
        assert!(report.files > 2 && report.noted && !report.unended, "{report:?}");
        assert_eq!((report.chained, report.not_chained), (8 + report.files as u64, 0));
        assert_eq!(report.findings, []);
        // And once the oldest are gone.
        log.write(8..60);
        let report = verify(&log.path()).unwrap();
        assert_eq!((report.files, report.findings.as_slice()), (1 + OLDER_MAX as usize, &[][..]));
    }

    #[test]
    fn a_changed_removed_added_or_moved_line_is_found_where_it_is() {
        let log = || Log::new(60);
        let edited = |age, edit: &dyn Fn(&mut Vec<String>)| {
            let log = log();
            assert_eq!(log.findings(), [""; 0]);
            log.edit(age, edit);
            log.findings()
        };
        assert_eq!(edited(2, &|lines| lines[1] = lines[1].replace("limited", "Limited")), ["2:2"]);
        assert_eq!(edited(0, &|lines| _ = lines.remove(1)), ["0:2"]);
        assert_eq!(edited(3, &|lines| _ = lines.remove(0)), ["3:1"]);
        assert_eq!(edited(4, &|lines| _ = lines.remove(0)), ["4:1"], "also of the oldest file");
        assert_eq!(edited(3, &|lines| _ = lines.pop()), ["2:1"], "the next file knows");
        assert_eq!(edited(1, &|lines| lines.swap(1, 2)), ["1:2", "1:3", "1:4"], "moved");
        assert_eq!(edited(1, &|lines| lines.insert(1, "{\"event\":\"limited\"}".to_owned())), ["1:2"]);
        assert_eq!(edited(1, &|lines| lines.insert(2, lines[1].clone())), ["1:3"]);
    }

    #[test]
    fn a_missing_file_and_a_cut_tail_are_found() {
        let log = Log::new(60);
        fs::remove_file(older(&log.path(), 2)).unwrap();
        assert_eq!(log.findings(), ["1:1", "4:-"]);
        let log = Log::new(60);
        fs::remove_file(older(&log.path(), OLDER_MAX)).unwrap();
        assert_eq!(log.findings(), ["3:-"]);
        let log = Log::new(60);
        log.edit(0, |lines| _ = lines.pop());
        assert_eq!(log.findings(), ["0:-"]);
        fs::remove_file(end(&log.path())).unwrap();
        assert_eq!(
            (log.findings(), verify(&log.path()).unwrap().noted),
            (vec![], false),
            "without the note it does not show"
        );
    }

    #[test]
    fn a_tail_that_was_cut_is_still_found_after_the_server_went_on() {
        let log = Log::new(6);
        log.edit(0, |lines| lines.truncate(1));
        log.write(6..7);
        assert_eq!(log.findings(), ["0:2"]);
        // The whole file: what is before it is older.
        let log = Log::new(6);
        fs::remove_file(log.path()).unwrap();
        log.write(6..7);
        assert_eq!(log.findings(), ["0:2"]);
    }

    #[test]
    fn a_note_that_is_behind_is_no_finding() {
        let log = Log::new(5);
        let note = fs::read(end(&log.path())).unwrap();
        log.write(5..6);
        fs::write(end(&log.path()), note).unwrap();
        assert_eq!(log.findings(), [""; 0]);
        log.write(6..7);
        assert_eq!(log.findings(), [""; 0], "nor after the next start");
    }

    #[test]
    fn lines_of_an_earlier_release_are_not_chained_and_the_chain_begins_after_them() {
        let log = Log { dir: tempfile::tempdir().unwrap() };
        fs::write(log.path(), "{\"event\":\"limited\"}\n{\"event\":\"limited\"}\n").unwrap();
        log.write(0..1);
        let report = verify(&log.path()).unwrap();
        assert_eq!((report.not_chained, report.chained, report.findings.len()), (2, 2, 0));
        log.write(1..30);
        assert_eq!(log.findings(), [""; 0]);
        // After the chain has begun there are no such lines.
        log.edit(0, |lines| lines.push("{\"event\":\"limited\"}".to_owned()));
        assert_eq!(log.findings().len(), 1);
    }

    #[test]
    fn an_unended_line_is_told_and_no_log_is_an_error() {
        let log = Log::new(2);
        let text = fs::read_to_string(log.path()).unwrap();
        fs::write(log.path(), text + "{\"event\":").unwrap();
        let report = verify(&log.path()).unwrap();
        assert!(report.unended && report.findings.is_empty(), "{report:?}");
        assert!(verify(Path::new("no-such-log")).is_err());
    }
}
