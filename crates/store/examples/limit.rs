//! How near the SQLite store comes to the limit of the disk.
//!
//! The limit is the same event bytes appended to one file, with one `fdatasync` for whatever is waiting. Both are
//! measured in turns in the same run, with the same number of threads that each wait for their last append.
//!
//! ```text
//! limit run  [DIR]            measure; DIR may hold a store that `fill` made
//! limit fill DIR SESSIONS     make a store with many finished sessions, and stop without closing it
//! limit open DIR              measure how long opening takes
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement, not a part of the product")]

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use handover_store::sqlite::Options;
use handover_store::{Append, IndexRow, Outcome, SessionKey, Slot, SqliteStore, Store, Wake};

const WRITERS: [usize; 4] = [1, 16, 64, 256];
const LIFE_EVENTS: u64 = 7;
const EVENT_BYTES: usize = 330;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run"] => run(None),
        ["run", dir] => run(Some(Path::new(dir))),
        ["fill", dir, sessions] => fill(Path::new(dir), sessions.parse().unwrap()),
        ["open", dir] => open(Path::new(dir)),
        _ => println!("usage: limit run [DIR] | fill DIR SESSIONS | open DIR"),
    }
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn options() -> Options {
    let default = Options::default();
    Options {
        checkpoint_pages: setting("CHECKPOINT_PAGES", default.checkpoint_pages.into()) as u32,
        page_bytes: setting("PAGE_BYTES", default.page_bytes.into()) as u32,
        writer_cache_kib: setting("WRITER_CACHE_KIB", default.writer_cache_kib.into()) as u32,
        ..default
    }
}

fn run(dir: Option<&Path>) {
    let scratch = tempfile::tempdir_in(dir.and_then(Path::parent).unwrap_or(Path::new("."))).unwrap();
    let place = dir.map_or_else(|| scratch.path().join("store"), PathBuf::from);
    let store = SqliteStore::open_with(&place, options()).unwrap();
    let length = Duration::from_millis(setting("MEASURE_MS", 3000));
    let rounds = setting("ROUNDS", 5);
    let only = setting("ONLY", 0) as usize;
    println!("writers  limit/s  store/s  ratio   limit p50/p99 us   store p50/p99 us   store bytes/event");
    for writers in WRITERS.into_iter().filter(|writers| only == 0 || *writers == only) {
        let mut limits = Vec::new();
        let mut stores = Vec::new();
        for _ in 0..rounds {
            let limit = Limit::new(&scratch.path().join("limit"));
            limits.push(measure(writers, length, |bytes, _, _| limit.append(&bytes)));
            drop(limit);
            let before = written();
            let result = measure(writers, length, |bytes, life, seq| append(&store, bytes, life, seq));
            stores.push(Measured { bytes: written() - before, ..result });
        }
        let ratio =
            median(limits.iter().zip(&stores).map(|(limit, store)| store.rate / limit.rate).collect());
        let of = |all: &[Measured], part: fn(&Measured) -> f64| median(all.iter().map(part).collect());
        println!(
            "{writers:7}  {:7.0}  {:7.0}  {ratio:5.2}   {:7.0} {:8.0}   {:7.0} {:8.0}   {:10.0}",
            of(&limits, |m| m.rate),
            of(&stores, |m| m.rate),
            of(&limits, |m| m.p50),
            of(&limits, |m| m.p99),
            of(&stores, |m| m.p50),
            of(&stores, |m| m.p99),
            of(&stores, |m| m.bytes as f64 / m.events as f64),
        );
    }
    println!("memory {} KiB", status("VmRSS:"));
}

struct Measured {
    rate: f64,
    p50: f64,
    p99: f64,
    events: u64,
    bytes: u64,
}

/// Let `writers` threads live through sessions, one append at a time, for a while.
fn measure(writers: usize, length: Duration, write: impl Fn(Vec<u8>, &Life, u64) + Sync) -> Measured {
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let mut times: Vec<u32> = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|_| {
                scope.spawn(|| {
                    let mut times = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let life = Life::new();
                        for seq in 0..LIFE_EVENTS {
                            let at = Instant::now();
                            write(life.event(seq), &life, seq);
                            times.push(at.elapsed().as_micros() as u32);
                        }
                    }
                    times
                })
            })
            .collect();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: f64| f64::from(times[((times.len() - 1) as f64 * part) as usize]);
    let events = times.len() as u64;
    Measured { rate: events as f64 / seconds, p50: at(0.5), p99: at(0.99), events, bytes: 0 }
}

/// A session as it will be: who is in it, and when it began.
struct Life {
    key: SessionKey,
    row: IndexRow,
    random: u64,
}

impl Life {
    fn new() -> Life {
        let (high, low) = (random(), random());
        let agents: [Box<str>; 2] = [high, low].map(|at| format!("agent-{}", at % setting_agents()).into());
        Life {
            key: SessionKey::new("default", format!("{high:016x}-{low:016x}")),
            row: IndexRow {
                kind: 1,
                status: 0,
                requester: agents[0].clone(),
                agents: agents.into(),
                created_at: 1_700_000_000_000 + high % 1_000_000,
                finished_at: None,
                summary: vec![b's'; 60],
                waits: Vec::new(),
            },
            random: low,
        }
    }

    fn event(&self, seq: u64) -> Vec<u8> {
        let mut bytes = vec![b'e'; EVENT_BYTES];
        bytes[..8].copy_from_slice(&self.random.wrapping_add(seq).to_le_bytes());
        bytes
    }

    /// Four of the seven events change a listed fact.
    fn item(&self, events: Vec<Vec<u8>>, seq: u64) -> Append {
        let listed = matches!(seq, 0 | 1 | 5 | 6);
        let finished_at = (seq == LIFE_EVENTS - 1).then_some(self.row.created_at + 1000);
        let row = listed.then(|| IndexRow { status: seq as u8, finished_at, ..self.row.clone() });
        let wake = match seq {
            0 => Wake::At(self.row.created_at + 60_000),
            6 => Wake::Never,
            _ => Wake::Unchanged,
        };
        Append { key: self.key.clone(), expected: seq, events, row, wake, snapshot: None }
    }
}

fn append(store: &SqliteStore, bytes: Vec<u8>, life: &Life, seq: u64) {
    let outcomes = store.append(&[life.item(vec![bytes], seq)]).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Appended { .. }]));
}

fn setting_agents() -> u64 {
    static AGENTS: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *AGENTS.get_or_init(|| setting("AGENTS", 100))
}

fn random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    if STATE.load(Ordering::Relaxed) == 0 {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let _ = STATE.compare_exchange(0, now | 1, Ordering::Relaxed, Ordering::Relaxed);
    }
    let mut z = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The file that is appended to, and the threads that wait for a sync of it.
struct Limit {
    file: File,
    line: Mutex<Line>,
    synced: Condvar,
}

#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    taken: u64,
    done: u64,
    syncing: bool,
}

impl Limit {
    fn new(path: &Path) -> Arc<Limit> {
        let file = File::create(path).unwrap();
        Arc::new(Limit { file, line: Mutex::default(), synced: Condvar::new() })
    }

    fn append(&self, bytes: &[u8]) {
        let mut line = self.line.lock().unwrap();
        line.bytes.extend_from_slice(bytes);
        let mine = line.taken;
        while line.done <= mine {
            if line.syncing {
                line = self.synced.wait(line).unwrap();
                continue;
            }
            line.syncing = true;
            line.taken += 1;
            let group = std::mem::take(&mut line.bytes);
            drop(line);
            (&self.file).write_all(&group).unwrap();
            self.file.sync_data().unwrap();
            line = self.line.lock().unwrap();
            line.syncing = false;
            line.done += 1;
            self.synced.notify_all();
        }
    }
}

fn fill(dir: &Path, sessions: u64) {
    fs::create_dir_all(dir).unwrap();
    let store = SqliteStore::open_with(dir, options()).unwrap();
    let start = Instant::now();
    for _ in 0..sessions / 500 {
        let lives: Vec<Life> = (0..500).map(|_| Life::new()).collect();
        let whole = |life: &Life| {
            let mut item = life.item((0..LIFE_EVENTS).map(|seq| life.event(seq)).collect(), LIFE_EVENTS - 1);
            item.expected = 0;
            item
        };
        store.append(&lives.iter().map(whole).collect::<Vec<_>>()).unwrap();
    }
    println!("filled in {:.1} s, memory {} KiB", start.elapsed().as_secs_f64(), status("VmRSS:"));
    std::process::abort();
}

fn open(dir: &Path) {
    let start = Instant::now();
    let store = SqliteStore::open_with(dir, options()).unwrap();
    let opened = start.elapsed();
    let counts = store.open_counts().unwrap().len();
    store.due(u64::MAX, 100).unwrap();
    store.append(&[Life::new().item(vec![vec![0; 300]], 0)]).unwrap_or_default();
    println!(
        "opened in {:.1} ms, ready in {:.1} ms ({counts} requesters, last position {}), memory {} KiB",
        opened.as_secs_f64() * 1e3,
        start.elapsed().as_secs_f64() * 1e3,
        store.last_place().unwrap().number(Slot(0)),
        status("VmRSS:")
    );
    let start = Instant::now();
    drop(store);
    println!("closed in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
}

fn status(name: &str) -> u64 {
    proc_number("/proc/self/status", name)
}

fn written() -> u64 {
    proc_number("/proc/self/io", "write_bytes:")
}

fn proc_number(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
