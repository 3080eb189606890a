//! Durable per-session logs of opaque bytes, plus the index rows written in the same commit.
//!
//! In reading order:
//! - [`log`]: the words and the trait that every store serves
//! - [`fault`]: how the world fails
//! - [`memory`]: a store that lives as long as the process, for tests and the simulator
//! - [`sqlite`]: the embedded store
//!
//! Always: `append` answers only when the whole batch is durable. Never: a kernel type.

pub mod fault;
pub mod log;
pub mod memory;
pub mod sqlite;

pub use fault::Fault;
pub use log::{
    Append, Cursor, Deleted, DueCursor, DuePage, Feed, FeedItem, Filter, Hint, InboxPage, IndexRow, Listed,
    OpenCount, Order, Outcome, PAGE_BYTES_MAX, Page, Position, Put, Record, SessionKey, Snapshot, Store,
    StoredBytes, StoredEvent, Waiting, Waits, Wake, Weight, is_full,
};
pub use memory::MemoryStore;
pub use sqlite::SqliteStore;
