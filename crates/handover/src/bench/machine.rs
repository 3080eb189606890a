//! What the machine says about this process.

use std::fs;

/// The resident memory of a process in bytes, none where it cannot be told. `self` is this one.
pub fn resident_bytes(pid: &str) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The part of it that is no file: what the process has allocated.
pub fn allocated_bytes(pid: &str) -> Option<u64> {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: &str, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// How many cores there are.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
