//! The checks that the fuzz targets run, shared with the test that replays the kept corpus.

#[path = "../../crates/server/tests/corpus/checks.rs"]
pub mod checks;
#[path = "../../crates/server/tests/corpus/jsonrpc.rs"]
pub mod jsonrpc;
#[path = "../../crates/server/tests/corpus/signed.rs"]
pub mod signed;
