//! A message whose id was used before: whether it is the one that was accepted under it. The log knows: sessions in memory
//! keep only where it is, and it is looked up when an id comes again.

use std::sync::Arc;

use handover_kernel::command::Command;
use handover_kernel::repeat::REPEAT_EVENTS;
use handover_kernel::{Event, Refusal};
use handover_store::{SessionKey, Store};

use crate::answer::{Accepted, Denied};
use crate::codec;

/// Refuses a command that was taken for one that was accepted before, and is another.
pub fn must_repeat(
    store: &dyn Store,
    key: &SessionKey,
    command: &Command,
    accepted: &Accepted,
) -> Result<(), Denied> {
    let before = accepted.receipt.seq.0.saturating_sub(1);
    let stored = store.read(key, before, REPEAT_EVENTS).map_err(|fault| Denied::Fault(Arc::new(fault)))?;
    let unreadable = |error| Denied::Unreadable(Arc::from(format!("session {key} cannot be read: {error}")));
    let events: Vec<Event> = stored
        .iter()
        .map(|event| codec::decode(&event.bytes))
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    if events.is_empty() {
        // Deleted in between: there is nothing left that it could repeat.
        return Err(Denied::Refused(Refusal::SessionNotFound));
    }
    if command.repeats(&accepted.session.binding, &events) {
        return Ok(());
    }
    Err(Denied::Refused(Refusal::DuplicateMessage))
}
