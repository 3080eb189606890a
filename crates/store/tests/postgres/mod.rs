//! A PostgreSQL to test on, if there is one: `scripts/postgres` starts it.

use handover_store::PostgresStore;
use handover_store::postgres::Options;

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
pub fn options(schema: &str) -> Option<Options> {
    Some(Options { schema: schema.to_owned(), ..Options::new(url()?) })
}

/// Open a schema as one of its nodes.
pub fn open(schema: &str) -> Option<PostgresStore> {
    Some(PostgresStore::open(options(schema)?).unwrap())
}
