//! The threads that MACP is served on: each has connections of its own, works on what has come over all of them, and then
//! commits it in one go, without another thread to wake and to be woken by. Most calls of MACP write, and their answers wait
//! for the disk in any case.

use std::time::Duration;

use handover_engine::shell::commit_on_this_thread;
use tokio::runtime::{Builder, Handle, Runtime};

/// One for every two cores: the others are for everything else.
const CORES_PER_LANE: usize = 2;

pub struct Lanes(Vec<Runtime>);

impl Lanes {
    pub fn start() -> std::io::Result<Lanes> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let count = (cores / CORES_PER_LANE).max(1);
        let lane = |_| {
            // Not the kind without other threads: there, whatever takes long could not step aside.
            let mut lane = Builder::new_multi_thread();
            lane.worker_threads(1).thread_name("lane").on_thread_start(commit_on_this_thread);
            lane.enable_all().build()
        };
        (0..count).map(lane).collect::<std::io::Result<_>>().map(Lanes)
    }

    pub fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|lane| lane.handle().clone()).collect()
    }

    /// Threads that hang hold up the end for so long.
    pub fn stop(self, within: Duration) {
        self.0.into_iter().for_each(|lane| lane.shutdown_timeout(within));
    }
}
