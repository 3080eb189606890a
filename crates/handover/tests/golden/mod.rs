//! The logs that a release wrote, which the engine keeps for its own tests.

// No test file needs all of it.
#![allow(dead_code)]

use std::fs;
use std::path::Path;

use handover_store::{Append, SessionKey, Store, Wake};

/// Put the logs that a release wrote into a store, without an index. Says how many.
pub fn put_logs(store: &dyn Store) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/v1");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        // One event on each line, and the state on the last.
        let lines = text.trim_end().rsplit_once('\n').unwrap().0;
        let key = SessionKey::new("t", path.file_stem().unwrap().to_str().unwrap());
        put(store, key, lines.lines().map(from_hex).collect());
    }
    paths.len()
}

pub fn put(store: &dyn Store, key: SessionKey, events: Vec<Vec<u8>>) {
    store
        .append(&[Append { key, expected: 0, events, row: None, wake: Wake::Unchanged, snapshot: None }])
        .unwrap();
}

fn from_hex(line: &str) -> Vec<u8> {
    (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect()
}
