//! A test that runs itself again as a process of its own, which can be killed.

use std::env;
use std::process::Command;

/// The variable that tells the child what to do. Its other name, the test that does it, is given to [`command`].
pub const ROLE: &str = "HANDOVER_STORE_CHILD";

/// This test binary again, running only `test`, with its output not held back.
pub fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test knows its own file"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// What this process is to do, if it is a child.
pub fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Numbers that look random and are the same each time.
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}
