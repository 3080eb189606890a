//! Reading from the store, on a thread that may wait for the disk.

use std::sync::Arc;

use handover_engine::Denied;
use handover_store::Fault;

/// What was read, or why it could not be.
pub(crate) async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Denied> {
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(|fault| Denied::Fault(Arc::new(fault))),
        Err(_) => Err(Denied::Stopping),
    }
}
