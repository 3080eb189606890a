//! A PostgreSQL to test on, if there is one: `scripts/postgres` starts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use handover_store::postgres::{Database, Options};
use handover_store::{Feed, MemoryStore, Place, PostgresStore, Slot, Store};

/// Where it is. Without one the tests that want it show nothing, which is not enough in CI.
pub fn url() -> Option<String> {
    let url = std::env::var("HANDOVER_TEST_POSTGRES").ok();
    assert!(
        url.is_some() || std::env::var("CI").as_deref() != Ok("true"),
        "expected the URL of a PostgreSQL in HANDOVER_TEST_POSTGRES, found none"
    );
    url
}

/// How a node opens a schema.
#[allow(dead_code, reason = "some tests have options of their own")]
pub fn options(schema: &str) -> Option<Options> {
    let database = Database::read(&url()?, None, None).unwrap();
    Some(Options { schema: schema.to_owned(), ..Options::new(database) })
}

/// Open a schema as one of its nodes.
#[allow(dead_code, reason = "some tests have options of their own")]
pub fn open(schema: &str) -> Option<PostgresStore> {
    Some(PostgresStore::open(options(schema)?).unwrap())
}

/// The name of a schema that nobody has used.
#[allow(dead_code, reason = "some tests name theirs")]
pub fn fresh() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("play_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// An empty store for a test that does not say which: in memory, or with `HANDOVER_TEST_STORE=postgres` in a schema of its own.
#[allow(dead_code, reason = "some tests say which")]
pub fn empty() -> Arc<dyn Store> {
    match std::env::var("HANDOVER_TEST_STORE").as_deref() {
        Err(_) | Ok("memory") => Arc::new(MemoryStore::new()),
        Ok("postgres") => Arc::new(open(&fresh()).expect("HANDOVER_TEST_POSTGRES says where it is")),
        Ok(other) => panic!("expected memory or postgres in HANDOVER_TEST_STORE, found {other:?}"),
    }
}

/// Stores for so many nodes that share what is in them, in memory or on a database like [`empty`].
#[allow(dead_code, reason = "most tests have one node")]
pub fn shared(nodes: u16) -> Vec<Arc<dyn Store>> {
    if std::env::var("HANDOVER_TEST_STORE").as_deref() != Ok("postgres") {
        let store = MemoryStore::new();
        return (0..nodes).map(|slot| Arc::new(store.writer(Slot(slot))) as Arc<dyn Store>).collect();
    }
    let schema = fresh();
    let node =
        |_| Arc::new(open(&schema).expect("HANDOVER_TEST_POSTGRES says where it is")) as Arc<dyn Store>;
    (0..nodes).map(node).collect()
}

/// How many events are in it. What is said to other nodes has numbers as well, and counts for nothing.
#[allow(dead_code, reason = "some tests count otherwise")]
pub fn events(store: &dyn Store) -> u64 {
    let (mut place, mut events) = (Place::default(), 0);
    loop {
        let page = store.feed(&Feed::Everything, &place, 1000).expect("a store that can be read");
        let Some(last) = page.last() else { return events };
        place.reach(last.event.position);
        events += page.len() as u64;
    }
}
