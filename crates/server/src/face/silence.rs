//! The signs of life that a requester expects, as the faces that speak JSON take them.

use handover_client::jsonrpc::shorten;
use handover_kernel::charter::{Liveness, OnSilence};

/// What was asked for: after how many milliseconds an assignee counts as silent, and what follows then, `tell` unless said.
pub(crate) fn liveness(after_ms: Option<u64>, then: Option<&str>) -> Result<Option<Liveness>, String> {
    let known = |name: &str| {
        let wrong =
            || format!("what follows silence: expected {}, found {}", OnSilence::NAMES, shorten(name));
        OnSilence::of(name).ok_or_else(wrong)
    };
    let then = then.map(known).transpose()?;
    match (after_ms, then) {
        (Some(window_ms), then) => Ok(Some(Liveness { window_ms, then: then.unwrap_or(OnSilence::Tell) })),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err("what follows silence: expected after how long as well, found nothing".to_owned())
        }
    }
}
