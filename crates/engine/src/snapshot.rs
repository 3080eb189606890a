//! A session kept beside its log, so that loading it need not replay everything.
//!
//! Why one can be trusted: it is written in the same commit as the last event that it includes, so there is none of what is
//! not durable; the store checks its checksum; it names the layout that it was written in, and one of another layout is
//! left alone. And nothing rests on it: a session without one, or with one that cannot be used, is read from its log, which
//! says the same.

use handover_kernel::{SNAPSHOT_LAYOUT, Session};
use handover_store::{SessionKey, Snapshot};

/// The number of the layout comes first.
const LAYOUT_BYTES: usize = size_of::<u32>();

/// The bytes that keep a session.
pub fn keep(session: &Session) -> Vec<u8> {
    let layout = SNAPSHOT_LAYOUT.to_be_bytes().to_vec();
    postcard::to_extend(session, layout).expect("a session has only parts that postcard can write")
}

/// The session that a snapshot keeps, if this release can read it and it is the one that it stands beside.
pub fn read(key: &SessionKey, snapshot: &Snapshot) -> Option<Session> {
    let (layout, bytes) = snapshot.bytes.split_first_chunk::<LAYOUT_BYTES>()?;
    if u32::from_be_bytes(*layout) != SNAPSHOT_LAYOUT {
        return None;
    }
    let session: Session = postcard::from_bytes(bytes).ok()?;
    let its_own = session.head.0 == snapshot.seq && session.binding.id.as_str() == &*key.session;
    its_own.then_some(session)
}
