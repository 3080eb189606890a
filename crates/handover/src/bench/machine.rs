//! What the machine says about a process.

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

/// The bytes that a process has caused to be written to disk, whole pages of the system's cache; none where it cannot be
/// told.
pub fn written_bytes(pid: &str) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

/// The processor time that a process has used, in seconds, none where it cannot be told. `self` is this one.
pub fn cpu_seconds(pid: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets and may hold anything, spaces too: count from after it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

/// The unit of `/proc/PID/stat`: Linux shows hundredths to programs, whatever it counts in itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// How many files this process may have open, none where it cannot be told.
pub fn open_files_max() -> Option<usize> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// How many cores there are.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
