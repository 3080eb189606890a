//! What is stored beside each event and each snapshot, and checked when it is read.

use crate::fault::Fault;
use crate::log::{SessionKey, StoredEvent, Weight};

/// The checksum that was stored beside an event.
pub(crate) type Found = i64;

/// Of these bytes at their place in a log.
pub(crate) fn checksum(key: &SessionKey, seq: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.tenant.len() as u64).to_le_bytes());
    hasher.update(key.tenant.as_bytes());
    hasher.update(&(key.session.len() as u64).to_le_bytes());
    hasher.update(key.session.as_bytes());
    hasher.update(&seq.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// An event that was read with its checksum, if it is what was written.
pub(crate) fn check(key: &SessionKey, event: StoredEvent, found: Found) -> Result<StoredEvent, Fault> {
    let expected = i64::from(checksum(key, event.seq, &event.bytes));
    if found != expected {
        let found = format!("its checksum should be {expected:#010x} and is {found:#010x}");
        return Err(Fault::Corrupt { key: key.clone(), seq: event.seq, found });
    }
    Ok(event)
}

/// The events of a session that were read after one of them: each what was written, and none missing.
pub(crate) fn checked(
    key: &SessionKey,
    after: u64,
    found: Vec<(StoredEvent, Found)>,
) -> Result<Vec<StoredEvent>, Fault> {
    let mut events = Vec::with_capacity(found.len());
    for ((event, found), expected) in found.into_iter().zip(after.saturating_add(1)..) {
        if event.seq != expected {
            let found = format!("it is missing, the next one is {}", event.seq);
            return Err(Fault::Corrupt { key: key.clone(), seq: expected, found });
        }
        events.push(check(key, event, found)?);
    }
    Ok(events)
}

impl Weight for (StoredEvent, Found) {
    fn weight(&self) -> usize {
        self.0.weight()
    }
}
