//! The signals that are being told, in memory alone.

use std::sync::Arc;

use handover_kernel::{AgentId, Blob};
use tokio::sync::broadcast;

/// How many signals may wait for one listener.
const SIGNALS_MAX: usize = 1024;

/// Everybody who listens.
pub struct Signals(pub(crate) broadcast::Sender<Arc<Signal>>);

/// A signal that was told.
#[derive(Debug)]
pub struct Signal {
    pub(crate) tenant: Box<str>,
    pub(crate) sender: AgentId,
    /// The session that it relates to, if it does.
    pub(crate) about: Option<Box<str>>,
    /// Whether the sender has proven who it is.
    pub proven: bool,
    /// What was told, as its face wrote it.
    pub body: Blob,
}

impl Default for Signals {
    fn default() -> Self {
        Signals(broadcast::Sender::new(SIGNALS_MAX))
    }
}
