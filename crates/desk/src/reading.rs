//! Reading from the store and changing its records, on threads that may wait for the disk; what takes long, apart from the rest.

use std::sync::Arc;

use handover_engine::Denied;
use handover_kernel::Refusal;
use handover_store::Fault;
use tokio::runtime::{Handle, RuntimeFlavor};

/// How often a change begins again because another node was first.
const TRIES_MAX: usize = 20;

/// What was read, or why it could not be.
pub(crate) async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Denied> {
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(|fault| Denied::Fault(Arc::new(fault))),
        Err(_) => Err(Denied::Stopping),
    }
}

/// Run something that takes long while others take over the tasks of this thread, where they can.
pub(crate) fn apart<R>(work: impl FnOnce() -> R) -> R {
    let others_can =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if others_can { tokio::task::block_in_place(work) } else { work() }
}

/// Change records that rest on what is read of them: again, if another node has changed them meanwhile, which an attempt says
/// with nothing.
pub(crate) fn until_first<R>(attempt: impl Fn() -> Result<Option<R>, Denied>) -> Result<R, Denied> {
    for _ in 0..TRIES_MAX {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
    }
    Err(Denied::Refused(Refusal::Busy))
}
