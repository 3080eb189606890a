//! The stages, clients and workers of the other faces' tests, as they are there.

#![allow(dead_code, reason = "no play needs all of it")]

#[path = "../../../kernel/tests/stage/acts.rs"]
pub mod acts;
#[path = "../mcp/both.rs"]
pub mod both;
#[path = "../mcp/client.rs"]
pub mod client;
#[path = "../macp/stage.rs"]
pub mod macp;
#[path = "../mcp/scene.rs"]
pub mod scene;
#[path = "../mcp/stage.rs"]
pub mod stage;
#[path = "../mcp/worker.rs"]
pub mod worker;
