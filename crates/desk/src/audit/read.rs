//! Reading the audit log back, the newest lines first, for those who may.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use super::chain::Opening;
use super::file::{OLDER_MAX, older};

/// How many bytes of the log are looked at for one page.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// The tenant whose administrators see what belongs to no tenant, such as failed authentications.
const OWN_TENANT: &str = "default";

/// Which lines are wanted. What is empty does not matter.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What happened.
    pub event: String,
    /// Who did it, or whom it is about.
    pub agent: String,
}

/// A line of the log, as far as people are shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are those of the log")]
pub struct Line {
    pub time: String,
    pub event: String,
    pub node: String,
    pub tenant: String,
    pub agent: String,
    pub session: String,
    pub policy: String,
    pub to: String,
    pub face: String,
    pub peer: String,
    pub code: String,
    pub reason: String,
    pub of: String,
    pub count: Option<u64>,
}

/// A page of the log.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The newest first.
    pub lines: Vec<Line>,
    /// Where older ones are, if there may be any.
    pub next: Option<String>,
    /// Whether a log is kept at all.
    pub kept: bool,
    /// Whose log it is, where several nodes have one each; otherwise empty.
    pub node: String,
}

/// A place in a log: which file of the chain, how many bytes of it lie before, and whose log it is. At the same place in the log of
/// another node something else is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: u64,
    bytes: u64,
    node: String,
}

impl Place {
    /// As [`Page::next`] says it.
    pub fn parse(text: &str) -> Option<Place> {
        // The name of a node may have dots.
        let mut parts = text.splitn(3, '.');
        let (file, bytes) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Place { file, bytes, node: parts.next().unwrap_or_default().to_owned() })
    }

    /// Whose log it is in, where several nodes have one each; otherwise empty.
    pub fn node(&self) -> &str {
        &self.node
    }

    fn text(&self) -> String {
        let Place { file, bytes, node } = self;
        if node.is_empty() { format!("{file}.{bytes}") } else { format!("{file}.{bytes}.{node}") }
    }
}

impl Wanted {
    /// Whether it is one of the lines.
    pub fn fits(&self, line: &Line) -> bool {
        let is = |wanted: &String, found: &[&String]| wanted.is_empty() || found.contains(&wanted);
        is(&self.event, &[&line.event]) && is(&self.agent, &[&line.agent, &line.to])
    }
}

/// Whether administrators of a tenant see a line: those of their own tenant; those of the tenant `default` also what belongs
/// to no tenant.
pub fn is_shown(line: &Line, tenant: &str) -> bool {
    line.tenant == tenant || line.tenant.is_empty() && tenant == OWN_TENANT
}

/// The lines of a node's log before a place in it, of which at most so many fit, the newest first. Costs what it looks at, which is
/// bounded.
pub fn read(
    path: &Path,
    node: &str,
    before: Option<Place>,
    max: usize,
    fits: impl Fn(&Line) -> bool,
) -> io::Result<Page> {
    let mut page = Page { kept: true, node: node.to_owned(), ..Page::default() };
    let mut left = LOOKED_AT_BYTES;
    for age in 0..=OLDER_MAX {
        let mut file = match fs::File::open(older(path, age)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        };
        let number = number(&mut file)?;
        let whole = file.seek(SeekFrom::End(0))?;
        let mut end = match &before {
            Some(place) if number > place.file => continue,
            Some(place) if number == place.file => place.bytes.min(whole),
            Some(_) | None => whole,
        };
        while end > 0 {
            let start = end.saturating_sub(left);
            let mut bytes = vec![0; (end - start) as usize];
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(&mut bytes)?;
            // What is cut off at the beginning is looked at from further back.
            let skipped = if start == 0 {
                0
            } else {
                bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1)
            };
            let mut at = bytes.len();
            for line in bytes[skipped..].split_inclusive(|byte| *byte == b'\n').rev() {
                at -= line.len();
                // A line that cannot be read is for `handover audit verify` to tell of.
                let read = serde_json::from_slice::<Line>(line).ok();
                page.lines.extend(read.filter(|line| fits(line)));
                if page.lines.len() >= max {
                    break;
                }
            }
            left = left.saturating_sub((bytes.len() - at) as u64);
            end = start + at as u64;
            if page.lines.len() >= max || left == 0 || at == bytes.len() {
                page.next = Some(Place { file: number, bytes: end, node: node.to_owned() }.text());
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// Which file of its chain it is.
fn number(file: &mut fs::File) -> io::Result<u64> {
    let mut first = Vec::new();
    BufReader::new(file.take(4096)).read_until(b'\n', &mut first)?;
    Ok(Opening::of(first.trim_ascii_end()).map_or(1, |opening| opening.file))
}

#[cfg(test)]
mod tests {
    use super::super::file::File;
    use super::*;

    #[test]
    fn the_log_is_read_backwards_through_all_of_its_files_in_pages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::open(&path, 4000).unwrap();
        let line = |number: usize| {
            let tenant = if number.is_multiple_of(2) { "default" } else { "other" };
            format!("{{\"time\":\"{number}\",\"event\":\"forbidden\",\"tenant\":\"{tenant}\"}}").into_bytes()
        };
        for number in 0..60 {
            assert!(file.append(&[line(number)]).error.is_none());
        }
        let (mut before, mut found) = (None, Vec::new());
        loop {
            let page = read(&path, "db-1.example:8080", before, 7, |line| line.tenant == "default").unwrap();
            assert!(page.kept && page.lines.len() <= 7);
            found.extend(page.lines.into_iter().map(|line| line.time));
            match page.next {
                Some(next) => {
                    before = Place::parse(&next);
                    assert_eq!(before.as_ref().map(Place::node), Some("db-1.example:8080"));
                }
                None => break,
            }
        }
        let expected: Vec<String> =
            (0..60).rev().filter(|number| number % 2 == 0).map(|number| number.to_string()).collect();
        assert_eq!(found, expected);
        assert!(fs::metadata(older(&path, 1)).is_ok(), "there is more than one file");
    }

    #[test]
    fn a_place_is_read_as_it_was_given_whatever_the_node_is_called() {
        for node in ["", "one", "db-1.example:8080", "1.2"] {
            let place = Place { file: 3, bytes: 70_000, node: node.to_owned() };
            assert_eq!(Place::parse(&place.text()), Some(place));
        }
        for other in ["", "odd", "1", "1.x", "x.1.one"] {
            assert_eq!(Place::parse(other), None, "{other}");
        }
    }
}
