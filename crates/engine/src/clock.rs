//! The machine's clock. The state machines never look at it: they are told the time.

use std::time::{SystemTime, UNIX_EPOCH};

use handover_kernel::Timestamp;

/// The time.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}
