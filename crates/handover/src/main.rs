//! The one binary.
//!
//! - [`serve`]: `handover serve`
//! - [`mcp`]: `handover mcp`
//! - [`house`]: what the two stand on
//! - [`rebuild`]: `handover rebuild`
//! - [`token`]: `handover token`
//! - [`audit`]: `handover audit`
//! - [`mod@bench`]: `handover bench`

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod audit;
mod bench;
mod house;
mod mcp;
mod rebuild;
mod serve;
mod token;

/// Sessions are many small things that one thread makes and another lets go of: what this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The release, and the commit that it was built from if that is known.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("HANDOVER_COMMIT"));

/// One server for delegated agent work.
#[derive(Parser)]
#[command(version = VERSION, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    Serve(serve::Args),
    /// Speak MCP over standard input and output, by itself or as a bridge to a server.
    Mcp(mcp::Args),
    /// Measure how fast it is here.
    Bench(bench::Args),
    /// Make the index again from the logs.
    Rebuild(rebuild::Args),
    /// Make a token for an agent, or revoke one.
    Token(token::Args),
    /// Check the audit log.
    Audit(audit::Args),
}

const EXAMPLES: &str = "\
Start here:
  handover serve                   run a server on this machine
  handover serve --help            what it can be told
  handover mcp --help              let an MCP host such as an editor take part";

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Rebuild(args) => rebuild::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Audit(args) => audit::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If standard error is closed there is nobody left to tell.
            _ = writeln!(std::io::stderr(), "error: {failure}");
            failure.exit_code()
        }
    }
}

/// Why a command did not do what was asked.
#[derive(Debug)]
enum Failure {
    /// It was asked for something that cannot be. Asking differently helps.
    Usage(String),
    /// The world failed.
    Fault(String),
}

impl Failure {
    /// A fault while doing something, with all that lies beneath it.
    fn fault(doing: impl std::fmt::Display, error: &(dyn std::error::Error + 'static)) -> Failure {
        Failure::Fault(format!("{doing}: {}", chain(error)))
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Fault(_) => ExitCode::FAILURE,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Fault(message) => f.write_str(message),
        }
    }
}

/// An error and its sources in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
