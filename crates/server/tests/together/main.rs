//! One task, every pair of protocols: each as requester, each as assignee, every act, and the same history on all of them.
//!
//! - [`others`], [`grid`]: the stages and clients of each protocol's own tests
//! - [`requester`], [`worker`]: the two sides of a task, once for each protocol
//! - [`checker`]: what the log holds, and what each protocol must say of it
//! - [`acts`]: what the two sides do, one function for each column of the matrix
//! - [`approvals`]: what needs somebody's approval, whoever asks, works and decides
//! - [`successors`]: a call that is handed on to an agent that its skill names
//! - [`unseen`]: questions that nobody will be shown
//! - [`waiting`]: who waits for whom, and circles
//! - [`matrix`]: the run, and the page that shows what came of it

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

// The Grid's client looks for the others beside itself.
#[path = "../grid/client.rs"]
#[allow(dead_code, reason = "no play needs all of it")]
mod grid;
#[path = "../grid/others.rs"]
mod others;

mod acts;
mod approvals;
mod checker;
mod matrix;
mod requester;
mod successors;
mod unseen;
mod waiting;
mod worker;

/// What an agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Macp,
    Mcp,
    Grid,
}

impl Protocol {
    const ALL: [Protocol; 3] = [Protocol::Macp, Protocol::Mcp, Protocol::Grid];

    fn name(self) -> &'static str {
        match self {
            Protocol::Macp => "MACP",
            Protocol::Mcp => "MCP",
            Protocol::Grid => "Grid",
        }
    }
}
