//! How the parts of the server learn that it is to stop.

use tokio::sync::watch;

/// Begins the shutdown. Dropping it begins it as well.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Trigger {
    /// Begin the shutdown; doing it again changes nothing.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

/// Waits for the shutdown. Every part has its own copy.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// A shutdown that has not begun.
    pub fn new() -> (Trigger, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Trigger(sender), Shutdown(receiver))
    }

    /// Whether the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns when the shutdown has begun, at once if it had before.
    pub async fn begun(&mut self) {
        // An error means that the trigger is gone, which counts as begun.
        _ = self.0.wait_for(|begun| *begun).await;
    }
}
