//! `handover export` and `handover import`: what a store has as one portable file, which moves it to another store.
//!
//! The file is JSON Lines: a head, a line for each record and for each deleted session, lines for each session and its events, and
//! an end with the counts and a hash of every byte before it.

mod file;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use handover_desk::portable;
use handover_engine::Denied;
use handover_engine::archive::{self, Archived, Stored};
use handover_store::{Change, Over, Record, Store, Tombstone};

use self::file::{End, Item, Reader, Writer};
use crate::backup::{new_file, progress, put_in_place};
use crate::cli::{say, text};
use crate::database::At;
use crate::{Failure, chain};

/// How many sessions, records or tombstones, and about how many bytes, are written in one commit.
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
The archive has every session of every tenant, replayed before it is written, the ids of deleted sessions, agents with the names of their
tools, policies, bound keys, and the secret that idempotent calls rest on. It is as secret as the data: only its owner can read it.
Sign-ins and the places of webhooks and traces are left out; the command says how many. Static tokens and the audit log are files of
their own. The server must not run meanwhile; of one that runs, restore a backup and export that.

Examples:
  handover export archive.jsonl --data /var/lib/handover
  handover export archive.jsonl --store postgres://handover@db.example.com/handover";

/// What `handover import` can be told.
#[derive(clap::Args)]
#[command(after_help = IMPORT_HELP)]
pub struct ImportArgs {
    /// The archive
    file: PathBuf,
    #[command(flatten)]
    at: At,
    /// What becomes of records (agents, policies, keys, the secret) if those that are there differ
    #[arg(long, value_enum, default_value_t = Records::Refuse, value_name = "HOW")]
    records: Records,
}

/// What becomes of the records of an archive.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Records {
    /// Import nothing if one differs
    Refuse,
    /// Import no records: those that are there stay
    Skip,
    /// Remove the records that are there, and import those of the archive
    Replace,
}

const IMPORT_HELP: &str = "\
The archive is read to its end and every session in it is replayed before anything is written. What is there already, the same, is left
as it is, so that it can be repeated. A session that is there and differs is never changed, and the exit code is 1. A record that differs
is named, and nothing is imported, unless --records says what is to be done. A server that has run on the new data has made a secret
of its own: if it has done nothing else, --records replace is right. The server must not run meanwhile.

Examples:
  handover import archive.jsonl --store postgres://handover@db.example.com/handover
  handover import archive.jsonl --data /var/lib/handover --records replace";

/// Why something could not be read or written.
pub fn denied(doing: &str, denied: Denied) -> Failure {
    Failure::Fault(match denied {
        Denied::Fault(fault) => format!("{doing}: {}", chain(&*fault)),
        Denied::Unreadable(what) => format!("{doing}: {what}"),
        Denied::Refused(refusal) => format!("{doing}: {refusal}"),
        Denied::Stopping => format!("{doing}: stopped"),
    })
}

/// How many records of each kind.
type Kinds = BTreeMap<&'static str, u64>;

fn listed(kinds: &Kinds) -> String {
    let counts: Vec<String> = kinds.iter().map(|(called, count)| format!("{called}: {count}")).collect();
    counts.join(", ")
}

/// Run `handover export` to its end.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    args.at.must_be_there()?;
    let doing = format!("exporting {} to {}", args.at.shown(), args.file.display());
    let store = args.at.open_alone(&doing)?;
    let (file, partial) = new_file(&args.file)?;
    let mut kinds = [Kinds::new(), Kinds::new()];
    let written = write(&*store, file, &doing, &mut kinds).and_then(|(file, end)| {
        let placed = put_in_place(&file, &partial, &args.file);
        placed.map(|()| end).map_err(|error| Failure::fault(&doing, &error))
    });
    let end = written.inspect_err(|_| _ = std::fs::remove_file(&partial))?;
    let End { sessions, events, deleted, records, .. } = end;
    let file = args.file.display();
    say(format!(
        "wrote {sessions} sessions with {events} events, {deleted} ids of deleted sessions and {records} records to {file}"
    ))?;
    let [taken, left] = kinds;
    for (what, kinds) in [("records", taken), ("left out", left)] {
        if !kinds.is_empty() {
            say(format!("{what}: {}", listed(&kinds)))?;
        }
    }
    Ok(())
}

/// Write an archive, and count which records are in it and which are not.
fn write(store: &dyn Store, file: File, doing: &str, kinds: &mut [Kinds; 2]) -> Result<(File, End), Failure> {
    let failed = |error: io::Error| Failure::fault(doing, &error);
    let denied = |found| denied(doing, found);
    let mut out = Writer::begin(BufWriter::new(file)).map_err(failed)?;
    let spaces = store.spaces().map_err(|fault| Failure::fault(doing, &fault))?;
    for (space, tenant) in &spaces {
        for record in archive::records(store, space, tenant) {
            let record = record.map_err(denied)?;
            let is_taken = portable::is_taken(&record.space, &record.key);
            *kinds[usize::from(!is_taken)]
                .entry(portable::called(&record.space, &record.key))
                .or_default() += 1;
            if is_taken {
                out.record(record).map_err(failed)?;
            }
        }
    }
    for tombstone in archive::tombstones(store) {
        out.deleted(tombstone.map_err(denied)?).map_err(failed)?;
    }
    let bar = progress(None, "sessions");
    for key in archive::sessions(store) {
        let key = key.map_err(denied)?;
        out.session(&key).map_err(failed)?;
        for page in archive::pages(store, &key) {
            out.events(page.map_err(denied)?).map_err(failed)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (out, end) = out.end().map_err(failed)?;
    Ok((out.into_inner().map_err(|error| failed(error.into_error()))?, end))
}

/// Run `handover import` to its end.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let name = args.file.display();
    let mut file = File::open(&args.file)
        .map_err(|error| Failure::Usage(format!("expected an archive at {name}, found: {error}")))?;
    let mut reader = Reader::begin(&mut file, &args.file, "checking")?;
    while let Some(item) = reader.next()? {
        check(&item)?;
    }
    let end = reader.end();
    let doing = format!("importing {name} into {}", args.at.shown());
    let store = args.at.open_alone(&doing)?;
    let mut import = Import {
        store: &*store,
        doing: &doing,
        batch: Batch::default(),
        records: Counts::default(),
        deleted: Counts::default(),
        sessions: Counts::default(),
    };
    if end.records > 0 {
        match args.records {
            Records::Refuse => {
                import.refuse_differing(Reader::begin(&mut file, &args.file, "comparing")?)?;
            }
            Records::Replace => import.remove_records()?,
            Records::Skip => {}
        }
    }
    let mut reader = Reader::begin(&mut file, &args.file, "importing")?;
    while let Some(item) = reader.next()? {
        let is_skipped = args.records == Records::Skip && matches!(item, Item::Record(_));
        if !is_skipped {
            import.take(item)?;
        }
    }
    import.flush()?;
    import.told(&end, args.records)
}

/// Whether an archive can be imported anywhere.
fn check(item: &Item) -> Result<(), Failure> {
    match item {
        Item::Record(record) if !portable::is_taken(&record.space, &record.key) => Err(Failure::Usage(
            format!("expected records that this release exports, found {}", text::line(&called(record))),
        )),
        Item::Record(_) | Item::Deleted(_) => Ok(()),
        Item::Session(archived) => {
            archived.replay().map(drop).map_err(|found| denied("replaying the archive", found))
        }
    }
}

/// What a record is called where it is spoken of: never its value.
fn called(Record { space, tenant, key, .. }: &Record) -> String {
    [&**space, tenant, key].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What became of what is imported.
#[derive(Default)]
struct Counts {
    new: u64,
    same: u64,
    /// What was left as it is, and why.
    differing: Vec<String>,
}

impl Counts {
    fn count(&mut self, stored: Stored, what: impl std::fmt::Display) {
        match stored {
            Stored::New => self.new += 1,
            Stored::Same => self.same += 1,
            Stored::Differs => self.differing.push(format!("{what}: another one is there")),
            Stored::Deleted => self.differing.push(format!("{what}: it was deleted there")),
        }
    }
}

/// What is written in one commit: only one kind of it at a time.
#[derive(Default)]
struct Batch {
    records: Vec<Change>,
    deleted: Vec<Tombstone>,
    sessions: Vec<Archived>,
    bytes: usize,
}

struct Import<'a> {
    store: &'a dyn Store,
    doing: &'a str,
    batch: Batch,
    records: Counts,
    deleted: Counts,
    sessions: Counts,
}

impl Import<'_> {
    fn fault(&self, fault: &handover_store::Fault) -> Failure {
        Failure::fault(self.doing, fault)
    }

    /// Refuse records that are there with other values, and names of tools beside those of the archive: they are given out in one
    /// order for all agents of a tenant.
    fn refuse_differing(&self, mut reader: Reader<'_>) -> Result<(), Failure> {
        let mut differing = Vec::new();
        let mut named: BTreeMap<Box<str>, u64> = BTreeMap::new();
        // Records come first.
        while let Some(Item::Record(record)) = reader.next()? {
            let found = self.found(&record)?;
            if &*record.space == portable::SHARED {
                *named.entry(record.tenant.clone()).or_default() += u64::from(found.is_some());
            }
            if found.is_some_and(|found| found != record.value) {
                differing.push(called(&record));
            }
        }
        for (tenant, expected) in named {
            let there = archive::records(self.store, portable::SHARED, &tenant)
                .try_fold(0, |count, record| record.map(|_| count + 1))
                .map_err(|found| denied(self.doing, found))?;
            if there > expected {
                let more = there - expected;
                differing.push(format!("{} {tenant}: {more} agents more", portable::SHARED));
            }
        }
        if differing.is_empty() {
            return Ok(());
        }
        Err(Failure::Fault(format!(
            "{}: nothing was imported, because {} records differ from what is there: {}; --records skip leaves what is there, \
             --records replace removes it",
            self.doing,
            differing.len(),
            shown(&differing)
        )))
    }

    fn found(&self, record: &Record) -> Result<Option<Vec<u8>>, Failure> {
        let found = self.store.record(&record.space, &record.tenant, &record.key);
        found.map_err(|fault| self.fault(&fault))
    }

    /// Make room for the records of the archive.
    fn remove_records(&self) -> Result<(), Failure> {
        for (space, tenant) in self.store.spaces().map_err(|fault| self.fault(&fault))? {
            let names: Vec<Record> = archive::records(self.store, &space, &tenant)
                .filter(|record| {
                    record.as_ref().map_or(true, |found| portable::is_replaced(&found.space, &found.key))
                })
                .map(|record| record.map(|record| Record { value: Vec::new(), ..record }))
                .collect::<Result<_, _>>()
                .map_err(|found| denied(self.doing, found))?;
            for names in names.chunks(BATCH) {
                let remove = |record: &Record| Change::remove(&record.space, &record.tenant, &record.key);
                self.change(&names.iter().map(remove).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    fn change(&self, changes: &[Change]) -> Result<(), Failure> {
        let changed = self.store.change_records(changes).map_err(|fault| self.fault(&fault))?;
        match changed {
            true => Ok(()),
            false => Err(Failure::Fault(format!("{}: somebody else changes its records", self.doing))),
        }
    }

    fn take(&mut self, item: Item) -> Result<(), Failure> {
        let batch = &mut self.batch;
        match item {
            Item::Record(record) => {
                // Whatever differs was refused or removed.
                if self.found(&record)?.is_some() {
                    self.records.same += 1;
                    return Ok(());
                }
                self.records.new += 1;
                let Record { space, tenant, key, value } = record;
                self.batch.bytes += value.len();
                let change = Change { name: (space, tenant, key), over: Over::Nothing, value: Some(value) };
                self.batch.records.push(change);
            }
            Item::Deleted(tombstone) => batch.deleted.push(tombstone),
            Item::Session(archived) => {
                batch.bytes += archived.events.iter().map(Vec::len).sum::<usize>();
                batch.sessions.push(archived);
            }
        }
        let batch = &self.batch;
        let items = batch.records.len() + batch.deleted.len() + batch.sessions.len();
        if items >= BATCH || batch.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Write what was taken, in its order.
    fn flush(&mut self) -> Result<(), Failure> {
        let Batch { records, deleted, sessions, .. } = std::mem::take(&mut self.batch);
        if !records.is_empty() {
            self.change(&records)?;
        }
        let buried = archive::bury(self.store, &deleted).map_err(|found| denied(self.doing, found))?;
        for (tombstone, stored) in deleted.iter().zip(buried) {
            self.deleted.count(stored, &tombstone.key);
        }
        let stored = archive::import(self.store, &sessions).map_err(|found| denied(self.doing, found))?;
        for (archived, stored) in sessions.iter().zip(stored) {
            self.sessions.count(stored, &archived.key);
        }
        Ok(())
    }

    /// Say what became of everything.
    fn told(self, end: &End, records: Records) -> Result<(), Failure> {
        let Import { records: kept, deleted, sessions, .. } = self;
        let of = |counts: &Counts| format!("{} new, {} there already", counts.new, counts.same);
        say(format!("{} sessions with {} events: {}", end.sessions, end.events, of(&sessions)))?;
        if end.deleted > 0 {
            say(format!("{} ids of deleted sessions: {}", end.deleted, of(&deleted)))?;
        }
        if end.records > 0 {
            let what = if records == Records::Skip { "skipped".to_owned() } else { of(&kept) };
            say(format!("{} records: {what}", end.records))?;
        }
        let differing = [deleted.differing, sessions.differing].concat();
        match differing.is_empty() {
            true => Ok(()),
            false => Err(Failure::Fault(format!(
                "{} sessions were left as they are: {}",
                differing.len(),
                shown(&differing)
            ))),
        }
    }
}

/// The first few of what differs.
fn shown(differing: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = differing.iter().take(SHOWN).map(|what| text::line(what)).collect();
    shown.join("; ")
}
