//! The commands that use a running server, at the built binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/agents.rs"]
mod agents;
#[path = "cli/approvals.rs"]
mod approvals;
mod binary;
#[path = "cli/bulk.rs"]
mod bulk;
#[path = "cli/copies.rs"]
mod copies;
#[path = "cli/desk.rs"]
mod desk;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/handoffs.rs"]
mod handoffs;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/tasks.rs"]
mod tasks;
