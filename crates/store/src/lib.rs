//! Durable per-session logs of opaque bytes, plus the index rows written in the same commit.
//!
//! In reading order:
//! - [`place`]: where things stand among all events
//! - [`log`]: the words and the trait that every store serves
//! - [`fault`]: how the world fails
//! - [`memory`]: a store that lives as long as the process, for tests and the simulator
//! - [`sqlite`]: the embedded store
//! - [`postgres`]: the store of several nodes
//! - `uptime`: the clock that nobody can set
//!
//! Always: `append` answers only when the whole batch is durable. Never: a kernel type.

mod checksum;
pub mod fault;
pub mod log;
pub mod memory;
mod number;
pub mod place;
pub mod postgres;
pub mod sqlite;
mod uptime;

pub use fault::Fault;
pub use log::{
    Append, Ask, Change, Cursor, Deleted, Done, DueCursor, DuePage, Feed, FeedItem, Filter, InboxPage,
    IndexRow, LENT_FOR, Lent, Listed, NEWS_KEPT, News, OpenCount, Order, Outcome, Over, PAGE_BYTES_MAX, Page,
    Put, Record, SessionKey, Snapshot, Space, Standing, Store, StoredBytes, StoredEvent, Tombstone, Waiting,
    Waits, Wake, Weight, is_full,
};
pub use memory::MemoryStore;
pub use place::{Place, Position, Slot};
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
pub use uptime::uptime;
