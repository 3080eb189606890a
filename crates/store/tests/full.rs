//! A disk that fills up and has room again, in a mount namespace of its own.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod child;
mod work;

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use handover_store::sqlite::Options;
use handover_store::{Fault, Filter, Order, Slot, SqliteStore, Store};

use self::child::Random;
use self::work::{Acked, Heads};

/// The child's part, on a disk of a few megabytes.
#[test]
fn fill_the_disk_and_free_it() {
    let Some(role) = child::role() else { return };
    let (checkpoint_pages, dir) = role.split_once(' ').unwrap();
    let options = || Options { checkpoint_pages: checkpoint_pages.parse().unwrap(), ..Options::default() };
    let (data, filler) = (Path::new(dir).join("data"), Path::new(dir).join("filler"));
    let store = SqliteStore::open_with(&data, options()).unwrap();
    fill(&filler, 1 << 20).unwrap();
    let mut appender = Appender::new();

    appender.append(&store).unwrap();
    let journaled = fs::metadata(data.join("journal-0")).unwrap().len() > 4096;
    work::say(if journaled { "with a journal" } else { "without a journal" });
    let before = appender.append_until_full(&store);
    assert!(fill(&filler, u64::MAX).is_err(), "the rest of the disk is taken");
    let meanwhile = appender.append_until_full(&store);
    assert!(before > 50 && meanwhile < before, "expected little room, found {before} then {meanwhile}");

    // What is left of the log may take a few small writes more, but not many.
    let probes = (0..1000).map(|_| store.probe()).find_map(Result::err);
    assert!(matches!(probes, Some(Fault::Full { .. })), "expected a full disk, found {probes:?}");
    assert!(matches!(store.probe(), Err(Fault::Full { .. })), "it stays full");
    store.last_place().unwrap().number(Slot(0));
    assert!(!store.list(&Filter::default(), Order::Newest, None, 10).unwrap().sessions.is_empty());
    appender.check(&store);
    work::say("reads go on");

    fs::remove_file(&filler).unwrap();
    store.probe().unwrap();
    for _ in 0..20 {
        appender.append(&store).unwrap();
    }
    appender.check(&store);
    drop(store);
    appender.check(&SqliteStore::open_with(&data, options()).unwrap());
    work::say("room again");
}

struct Appender {
    random: Random,
    heads: Heads,
    count: u64,
    acked: Acked,
}

impl Appender {
    fn new() -> Appender {
        Appender { random: Random(3), heads: Heads::unknown(false), count: 0, acked: Acked::default() }
    }

    fn append(&mut self, store: &SqliteStore) -> Result<(), Fault> {
        self.count += 1;
        let name = self.count.to_string();
        self.acked.take(&work::append(store, 0, &name, &mut self.random, &mut self.heads)?);
        Ok(())
    }

    /// Says how many appends there was room for.
    fn append_until_full(&mut self, store: &SqliteStore) -> u64 {
        let before = self.count;
        let fault = (0..100_000).find_map(|_| self.append(store).err());
        assert!(matches!(fault, Some(Fault::Full { .. })), "expected a full disk, found {fault:?}");
        self.count - before
    }

    fn check(&self, store: &SqliteStore) {
        self.acked.check(store).unwrap();
    }
}

/// Write a file of this length, or as much of it as there is room for.
fn fill(file: &Path, length: u64) -> io::Result<()> {
    let mut file = File::options().create(true).append(true).open(file)?;
    let mut left = length;
    for block in [1 << 16, 1 << 12, 1] {
        while left >= block {
            match file.write_all(&vec![0; block as usize]) {
                Ok(()) => left -= block,
                Err(error) if error.kind() == io::ErrorKind::StorageFull && block > 1 => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Run the child on a small disk. None if this machine does not allow it.
fn on_a_small_disk(checkpoint_pages: u32, megabytes: u32) -> Option<String> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let allowed = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return None;
    }
    let role = format!("{checkpoint_pages} {}", dir.path().display());
    let again = child::command("fill_the_disk_and_free_it", &role);
    let mut command = Command::new("unshare");
    let mount = format!("mount -t tmpfs -o size={megabytes}m tmpfs \"$0\" && exec \"$@\"");
    command.args(["-m", "sh", "-c", &mount]);
    command.arg(dir.path()).arg(again.get_program()).args(again.get_args()).env(child::ROLE, role);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = io::read_to_string(BufReader::new(child.stdout.take().unwrap())).unwrap();
    assert!(child.wait().unwrap().success(), "the child found:\n{said}");
    Some(said)
}

fn check(checkpoint_pages: u32, megabytes: u32) {
    match on_a_small_disk(checkpoint_pages, megabytes) {
        Some(said) => {
            let with = if megabytes > 6 { "with a journal" } else { "without a journal" };
            assert!(said.contains(&format!("{with}\nreads go on\nroom again\n")), "found {said}");
        }
        None => {
            eprintln!("not checked: this machine does not allow mount namespaces");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must allow mount namespaces");
        }
    }
}

#[test]
fn a_full_disk_stops_appends_until_there_is_room() {
    check(10_000, 16);
}

#[test]
fn a_disk_without_room_for_the_journal_does_without() {
    check(10_000, 6);
}

#[test]
fn a_full_disk_in_the_middle_of_moving_the_log_stops_appends_until_there_is_room() {
    check(50, 6);
    check(50, 16);
}
