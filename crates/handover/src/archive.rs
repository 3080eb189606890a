//! `handover export` and `handover import`: all sessions as one portable file, which moves them between stores.
//!
//! The file is JSON Lines: a head, a line for each session with its events in base64, and an end with the counts and a hash of
//! every byte before it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handover_engine::Denied;
use handover_engine::archive::{self, Archived, Stored};
use handover_store::SessionKey;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::backup::{new_file, progress, put_in_place};
use crate::database::At;
use crate::{Failure, chain};

/// The version of the archive.
const VERSION: u32 = 1;

/// How many bytes a line may have: more than the log of any session.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// How many sessions, and about how many bytes, are written in one commit.
const BATCH: usize = 200;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// What `handover export` can be told.
#[derive(clap::Args)]
#[command(after_help = EXPORT_HELP)]
pub struct ExportArgs {
    /// The file to write, which must not exist yet
    file: PathBuf,
    #[command(flatten)]
    at: At,
}

const EXPORT_HELP: &str = "\
Every session of every tenant with everything that happened in it, replayed before it is written. Agents, policies and tokens are not
in it: handover backup copies everything. The server must not run meanwhile; of one that runs, restore a backup and export that.

Examples:
  handover export sessions.jsonl --data /var/lib/handover
  handover export sessions.jsonl --store postgres://handover@db.example.com/handover";

/// What `handover import` can be told.
#[derive(clap::Args)]
#[command(after_help = IMPORT_HELP)]
pub struct ImportArgs {
    /// The archive
    file: PathBuf,
    #[command(flatten)]
    at: At,
}

const IMPORT_HELP: &str = "\
The archive is read to its end and every session in it is replayed before anything is written. Sessions that are there already, the
same, are left as they are, so that it can be repeated; one that is there and differs is never changed, and the exit code is 1.
The server must not run meanwhile.

Examples:
  handover import sessions.jsonl --data /var/lib/handover";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    handover_archive: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    tenant: String,
    session: String,
    events: Vec<String>,
}

#[derive(Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct End {
    sessions: u64,
    events: u64,
    sha256: String,
}

/// Why sessions could not be read or written.
pub fn denied(doing: &str, denied: Denied) -> Failure {
    Failure::Fault(match denied {
        Denied::Fault(fault) => format!("{doing}: {}", chain(&*fault)),
        Denied::Unreadable(what) => format!("{doing}: {what}"),
        Denied::Refused(refusal) => format!("{doing}: {refusal}"),
        Denied::Stopping => format!("{doing}: stopped"),
    })
}

/// Run `handover export` to its end.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    args.at.must_be_there()?;
    let doing = format!("exporting {} to {}", args.at.shown(), args.file.display());
    let failed = |error: io::Error| Failure::fault(&doing, &error);
    let store = args.at.open(&doing)?;
    let (file, partial) = new_file(&args.file)?;
    let mut out = BufWriter::new(file);
    let (mut hash, mut end) = (Sha256::new(), End::default());
    let bar = progress(None, "sessions");
    let head = serde_json::to_string(&Head { handover_archive: VERSION }).expect("a head is JSON");
    put_line(&mut out, Some(&mut hash), &head).map_err(failed)?;
    let mut write = || {
        for archived in archive::sessions(&*store) {
            let archived = archived.map_err(|found| denied(&doing, found))?;
            let line = Session {
                tenant: archived.key.tenant.to_string(),
                session: archived.key.session.to_string(),
                events: archived.events.iter().map(|event| STANDARD.encode(event)).collect(),
            };
            let line = serde_json::to_string(&line).expect("a session is JSON");
            end.sessions += 1;
            end.events += archived.events.len() as u64;
            bar.inc(1);
            put_line(&mut out, Some(&mut hash), &line).map_err(failed)?;
        }
        Ok(())
    };
    let written = write();
    let finished = written.and_then(|()| {
        end.sha256 = hex(hash);
        let line = serde_json::json!({ "end": end }).to_string();
        put_line(&mut out, None, &line).map_err(failed)?;
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        put_in_place(&file, &partial, &args.file).map_err(failed)
    });
    bar.finish_and_clear();
    finished.inspect_err(|_| _ = std::fs::remove_file(&partial))?;
    say(&format!("wrote {} sessions with {} events to {}", end.sessions, end.events, args.file.display()))
}

fn put_line(out: &mut impl Write, hash: Option<&mut Sha256>, line: &str) -> io::Result<()> {
    if let Some(hash) = hash {
        hash.update(line.as_bytes());
        hash.update(b"\n");
    }
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")
}

/// Run `handover import` to its end.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let name = args.file.display();
    let mut file = File::open(&args.file)
        .map_err(|error| Failure::Usage(format!("expected an archive at {name}, found: {error}")))?;
    let end = walk(&mut file, &args.file, "checking", |archived| {
        archived.replay().map(drop).map_err(|found| denied("replaying the archive", found))
    })?;
    let doing = format!("importing {name} into {}", args.at.shown());
    file.rewind().map_err(|error| Failure::fault(&doing, &error))?;
    let store = args.at.open(&doing)?;
    let (mut batch, mut bytes, mut counts, mut differing) = (Vec::new(), 0, [0_u64; 2], Vec::new());
    let mut flush = |batch: &mut Vec<Archived>| {
        let stored = archive::import(&*store, batch).map_err(|found| denied(&doing, found))?;
        for (archived, stored) in batch.drain(..).zip(stored) {
            match stored {
                Stored::New => counts[0] += 1,
                Stored::Same => counts[1] += 1,
                Stored::Differs => differing.push(format!("{}: another one is there", archived.key)),
                Stored::Deleted => differing.push(format!("{}: it was deleted there", archived.key)),
            }
        }
        Ok::<(), Failure>(())
    };
    walk(&mut file, &args.file, "importing", |archived| {
        bytes += archived.events.iter().map(Vec::len).sum::<usize>();
        batch.push(archived);
        if batch.len() >= BATCH || bytes >= BATCH_BYTES {
            bytes = 0;
            flush(&mut batch)?;
        }
        Ok(())
    })?;
    flush(&mut batch)?;
    let [new, same] = counts;
    say(&format!("{} sessions with {} events: {new} new, {same} there already", end.sessions, end.events))?;
    if differing.is_empty() {
        return Ok(());
    }
    const SHOWN: usize = 10;
    let shown: Vec<String> = differing.iter().take(SHOWN).map(|what| crate::cli::text::line(what)).collect();
    Err(Failure::Fault(format!("{} sessions were left as they are: {}", differing.len(), shown.join("; "))))
}

/// Read an archive to its end, and see that it is whole.
fn walk(
    file: &mut File,
    path: &Path,
    doing: &'static str,
    mut take: impl FnMut(Archived) -> Result<(), Failure>,
) -> Result<End, Failure> {
    let wrong = |line: u64, what: &dyn std::fmt::Display| {
        Failure::Usage(format!("{}, line {line}: expected an archive of sessions, {what}", path.display()))
    };
    let bar: ProgressBar = progress(file.metadata().ok().map(|metadata| metadata.len()), doing);
    let mut lines = BufReader::new(file);
    let (mut hash, mut found, mut number) = (Sha256::new(), End::default(), 0);
    let mut line = String::new();
    loop {
        line.clear();
        number += 1;
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        let read = read.map_err(|error| wrong(number, &format!("found: {error}")))?;
        bar.inc(read as u64);
        if !line.ends_with('\n') {
            return Err(wrong(number, &"found that it ends early"));
        }
        if number == 1 {
            let head: Head =
                serde_json::from_str(&line).map_err(|error| wrong(1, &format!("found: {error}")))?;
            if head.handover_archive != VERSION {
                let version = head.handover_archive;
                return Err(wrong(1, &format!("of version {VERSION}, found version {version}")));
            }
        } else if let Some(end) = end_of(&line) {
            found.sha256 = hex(hash);
            if found != end || !lines.fill_buf().is_ok_and(<[u8]>::is_empty) {
                return Err(wrong(number, &"found one that was changed, or cut, or has more than it says"));
            }
            bar.finish_and_clear();
            return Ok(end);
        } else {
            let archived = session_of(&line).map_err(|what| wrong(number, &what))?;
            found.sessions += 1;
            found.events += archived.events.len() as u64;
            take(archived)?;
        }
        hash.update(line.as_bytes());
    }
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

fn session_of(line: &str) -> Result<Archived, String> {
    let session: Session = serde_json::from_str(line).map_err(|error| format!("found: {error}"))?;
    let events = session.events.iter().map(|event| STANDARD.decode(event));
    let events = events
        .collect::<Result<_, _>>()
        .map_err(|error| format!("found events that are no base64: {error}"))?;
    Ok(Archived { key: SessionKey::new(session.tenant, session.session), events })
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn say(line: &str) -> Result<(), Failure> {
    crate::cli::say(line)
}
