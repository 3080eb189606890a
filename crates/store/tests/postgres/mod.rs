//! A PostgreSQL to test on, if there is one: `scripts/postgres` starts it.

use std::sync::atomic::{AtomicUsize, Ordering};

use handover_store::PostgresStore;
use handover_store::postgres::{Database, Options};

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
