//! A disk that loses what was not synced, and one whose sync fails.
//!
//! A child process runs over `shim/disk.c`, which undoes what is not durable when the power goes.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod child;
mod work;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use handover_store::sqlite::Options;
use handover_store::{Fault, SqliteStore};
use tempfile::TempDir;

use self::child::Random;
use self::work::{Acked, Heads};

const POWER_LOST: i32 = 77;
const WORKERS: u64 = 3;

/// The child's part: append until the power goes, at the latest at the end.
#[test]
fn append_until_the_power_goes() {
    let Some(role) = child::role() else { return };
    let (run, dir) = role.split_once(' ').unwrap();
    let dir = Path::new(dir);
    let options = Options { checkpoint_pages: 40, ..Options::default() };
    let store = SqliteStore::open_with(&dir.join("data"), options).unwrap();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(run.parse::<u64>().unwrap() * WORKERS + worker);
                let mut heads = Heads::unknown(run == "1");
                for at in 0..20 {
                    let before = syncs(dir);
                    match work::append(store, worker, &format!("{run}.{at}"), &mut random, &mut heads) {
                        Ok(lines) => {
                            assert!(syncs(dir) > before || cheating(), "an acknowledgement needs a sync");
                            work::acknowledge(&lines);
                        }
                        Err(Fault::Unavailable { .. }) => work::say("fault"),
                        Err(fault) => panic!("expected the store to be unavailable, found {fault}"),
                    }
                }
            });
        }
    });
    File::create(dir.join("data").join("lose")).unwrap().sync_all().unwrap();
}

/// Whether the disk only pretends to sync.
fn cheating() -> bool {
    std::env::var_os("DISK_NO_SYNC").is_some()
}

/// How many syncs succeeded.
fn syncs(dir: &Path) -> u64 {
    let bytes = fs::read(dir.join("syncs")).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// The shim, built once.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (shim, built_here) = (tmp.join("disk.so"), tmp.join(format!("disk-{}.so", std::process::id())));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/disk.c");
        let mut cc = Command::new("cc");
        let built = cc
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
            .arg(&built_here)
            .arg(source)
            .arg("-ldl")
            .status();
        assert!(built.unwrap().success(), "cc builds the shim");
        fs::rename(built_here, &shim).unwrap();
        shim
    })
}

/// A directory and what was acknowledged over it.
struct Disk {
    dir: TempDir,
    runs: u64,
    acked: Acked,
    faults: u64,
}

impl Disk {
    fn new() -> Disk {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        drop(SqliteStore::open(&dir.path().join("data")).unwrap());
        Disk { dir, runs: 0, acked: Acked::default(), faults: 0 }
    }

    /// Let a child append until the power goes.
    fn run(&mut self, settings: &[(&str, u64)]) {
        let dir = fs::canonicalize(self.dir.path()).unwrap();
        self.runs += 1;
        let _ = fs::remove_file(dir.join("syncs"));
        let role = format!("{} {}", self.runs, dir.display());
        let mut command = child::command("append_until_the_power_goes", &role);
        command
            .env("LD_PRELOAD", shim())
            .env("DISK_DIR", dir.join("data"))
            .env("DISK_COUNT", dir.join("syncs"));
        command.envs(settings.iter().map(|(name, value)| (name, value.to_string())));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        self.acked.listen(out, |line| self.faults += u64::from(line == "fault"));
        assert_eq!(child.wait().unwrap().code(), Some(POWER_LOST));
    }

    fn check(&self) -> Result<u64, String> {
        let store = SqliteStore::open(&self.dir.path().join("data")).map_err(|fault| fault.to_string())?;
        self.acked.check(&store)
    }
}

#[test]
fn what_was_acknowledged_survives_every_power_loss() {
    let mut disk = Disk::new();
    let mut random = Random(11);
    for _ in 0..30 {
        let tear = random.below(2) * random.below(1000);
        disk.run(&[("DISK_LOSE_SYNC", 1 + random.below(40)), ("DISK_TEAR", tear)]);
        disk.check().unwrap();
    }
    eprintln!("{} power losses, {} events acknowledged", disk.runs, disk.acked.count());
    assert!(disk.acked.count() >= 500, "expected 500 acknowledged events, found {}", disk.acked.count());
    assert_eq!(disk.faults, 0);
}

#[test]
fn without_syncs_the_loss_is_seen() {
    let mut disk = Disk::new();
    disk.run(&[("DISK_NO_SYNC", 1)]);
    assert!(disk.acked.count() > 0);
    let wrong = disk.check().expect_err("the acknowledged events are gone");
    assert!(wrong.contains("was acknowledged"), "found {wrong}");
}

#[test]
fn a_failed_sync_is_a_fault_and_nothing_acknowledged_later_rests_on_it() {
    let (mut faults, mut acked) = (0, 0);
    for failing in 1..=16 {
        let more = failing % 3;
        // The power goes soon after, or at the end.
        for lose in [failing + more + 3, u64::MAX] {
            let mut disk = Disk::new();
            disk.run(&[("DISK_FAIL_SYNC", failing), ("DISK_FAIL_MORE", more), ("DISK_LOSE_SYNC", lose)]);
            if let Err(wrong) = disk.check() {
                panic!("after sync {failing} and {more} more failed: {wrong}");
            }
            // Those that shared a failed commit were told.
            let most = WORKERS * (1 + more);
            assert!(disk.faults <= most, "expected at most {most} faults, found {}", disk.faults);
            // All later appends went through.
            let least = if lose == u64::MAX { 60 } else { 0 };
            assert!(disk.acked.count() >= least, "expected {least} events, found {}", disk.acked.count());
            faults += disk.faults;
            acked += disk.acked.count();
        }
    }
    eprintln!("32 disks with failed syncs, {faults} faults, {acked} events acknowledged");
    assert!(faults >= 16, "expected 16 faults, found {faults}");
}
