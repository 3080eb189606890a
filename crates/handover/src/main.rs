//! The one binary.
//!
//! - [`serve`]: `handover serve`
//! - [`mcp`]: `handover mcp`
//! - [`house`]: what the two stand on
//! - [`rebuild`]: `handover rebuild`
//! - [`token`]: `handover token`
//! - [`audit`]: `handover audit`
//! - [`mod@bench`]: `handover bench`
//! - [`doctor`]: `handover doctor`
//! - [`archive`], [`backup`]: what another store can use, as one file; copies of everything
//! - [`database`]: `handover nodes`, `handover migrate`
//! - [`cli`]: the commands that use a running server

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod archive;
mod audit;
mod backup;
mod bench;
mod cli;
mod database;
mod doctor;
mod house;
mod lanes;
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
    /// Hand out tasks and follow them.
    Task(cli::task::Args),
    /// List agents, register as one, and let a program work as one.
    Agent(cli::agent::Args),
    /// Hand a responsibility to another agent, or accept one.
    Handoff(cli::handoff::Args),
    /// Show a live table of open tasks.
    Watch(cli::watch::Args),
    /// Show the state of a task after each event.
    Replay(cli::watch::ReplayArgs),
    /// Print completions for a shell.
    Completions(cli::shell::CompletionsArgs),
    /// Print the manual page, or write all of them.
    Man(cli::shell::ManArgs),
    /// Speak MCP over standard input and output, by itself or as a bridge to a server.
    Mcp(mcp::Args),
    /// Run benchmarks on this machine.
    Bench(bench::Args),
    /// Check the configuration, the data, the machine and the server.
    Doctor(doctor::Args),
    /// Back up everything while the server runs.
    Backup(backup::BackupArgs),
    /// Make a data directory from a backup.
    Restore(backup::RestoreArgs),
    /// Write sessions, agents, policies and keys to a portable archive.
    Export(archive::ExportArgs),
    /// Import an archive into a data directory or a database.
    Import(archive::ImportArgs),
    /// List the nodes that share a database.
    Nodes(database::NodesArgs),
    /// Create the tables of a database, or upgrade them.
    Migrate(database::MigrateArgs),
    /// Rebuild the index from the logs.
    Rebuild(rebuild::Args),
    /// Make a token for an agent, or revoke one.
    Token(token::Args),
    /// Check the audit log.
    Audit(audit::Args),
}

impl Command {
    /// Whether programs read what it says, errors included.
    fn speaks_json(&self) -> bool {
        match self {
            Command::Task(args) => args.common.json,
            Command::Agent(args) => args.common.json,
            Command::Handoff(args) => args.common.json,
            Command::Watch(args) => args.common.json,
            Command::Replay(args) => args.common.json,
            Command::Doctor(args) => args.common.json,
            Command::Serve(_)
            | Command::Backup(_)
            | Command::Restore(_)
            | Command::Export(_)
            | Command::Import(_)
            | Command::Nodes(_)
            | Command::Migrate(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Mcp(_)
            | Command::Bench(_)
            | Command::Rebuild(_)
            | Command::Token(_)
            | Command::Audit(_) => false,
        }
    }
}

const EXAMPLES: &str = "\
Start here:
  handover serve                   run a server on this machine
  handover serve --help            its options, with examples
  handover task --help             hand out tasks and follow them
  handover mcp --help              let an MCP host such as an editor take part";

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let is_json = command.speaks_json();
    let outcome = match command {
        Command::Serve(args) => serve::run(&args),
        Command::Task(args) => cli::task::run(&args),
        Command::Agent(args) => cli::agent::run(&args),
        Command::Handoff(args) => cli::handoff::run(&args),
        Command::Watch(args) => cli::watch::run(&args),
        Command::Replay(args) => cli::watch::replay(&args),
        Command::Completions(args) => cli::shell::completions(&args, Cli::command()),
        Command::Man(args) => cli::shell::man(&args, Cli::command()),
        Command::Doctor(args) => doctor::run(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Export(args) => archive::export(&args),
        Command::Import(args) => archive::import(&args),
        Command::Nodes(args) => database::nodes(&args),
        Command::Migrate(args) => database::migrate(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Rebuild(args) => rebuild::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Audit(args) => audit::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read what was printed has seen enough.
        Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            // If standard error is closed there is nobody left to tell.
            _ = match is_json {
                true => writeln!(std::io::stderr(), "{}", failure.json()),
                false => writeln!(std::io::stderr(), "error: {failure}"),
            };
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
    /// A command that uses a server ended otherwise than hoped for.
    Told {
        /// How.
        exit: cli::exit::Exit,
        /// What happened.
        what: String,
        /// What helps.
        help: String,
    },
    /// Nobody reads what is printed any more.
    Closed,
}

impl Failure {
    /// A fault while doing something, with all that lies beneath it.
    fn fault(doing: impl std::fmt::Display, error: &(dyn std::error::Error + 'static)) -> Failure {
        Failure::Fault(format!("{doing}: {}", chain(error)))
    }

    /// The same for programs, in one line.
    fn json(&self) -> String {
        let (exit, message, help) = match self {
            Failure::Usage(message) => ("usage", message.clone(), None),
            Failure::Fault(message) => (cli::exit::Exit::Failed.name(), message.clone(), None),
            Failure::Told { exit, what, help } => (exit.name(), what.clone(), Some(help)),
            Failure::Closed => (cli::exit::Exit::Failed.name(), self.to_string(), None),
        };
        let error = serde_json::json!({ "exit": exit, "message": message, "help": help });
        let line = serde_json::json!({ "version": cli::JSON_VERSION, "error": error });
        cli::text::ascii_json(&line)
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Fault(_) => ExitCode::FAILURE,
            Failure::Told { exit, .. } => ExitCode::from(*exit as u8),
            Failure::Closed => ExitCode::SUCCESS,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Fault(message) => f.write_str(message),
            Failure::Told { what, help, .. } => write!(f, "{what}\nhelp: {help}"),
            Failure::Closed => f.write_str("nobody reads what is printed"),
        }
    }
}

/// An error and its sources in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
