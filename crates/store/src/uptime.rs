//! How long the machine has been up: a clock that nobody can set, and that goes on while the machine sleeps.

use std::time::Duration;

/// How long the machine has been up, asleep or not.
#[cfg(target_os = "linux")]
pub fn uptime() -> Duration {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(up.tv_sec as u64, up.tv_nsec as u32)
}

/// The nearest to it that there is elsewhere.
#[cfg(not(target_os = "linux"))]
pub fn uptime() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static BEGUN: OnceLock<Instant> = OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed()
}
