//! `handover bench`: how fast it is here, beside the limit of the same machine in the same run.
//!
//! - [`engine`]: `handover bench engine`
//! - [`macp`]: `handover bench macp`
//! - [`mcp`]: `handover bench mcp`
//! - [`grid`]: `handover bench grid`
//! - [`console`]: `handover bench console`
//! - [`scale`]: `handover bench scale`
//! - [`hostile`]: `handover bench hostile`
//! - [`nodes`]: `handover bench nodes`
//! - [`turns`]: what some clients get done in a stretch of time
//! - [`limit`]: the physical limit: one file, one sync for whatever waits
//! - [`life`]: the work that is measured
//! - [`fill`]: stores that are filled with it, without a network
//! - [`machine`]: what the machine says about a process

mod console;
mod engine;
mod fill;
mod grid;
mod hostile;
mod life;
mod limit;
mod machine;
mod macp;
mod mcp;
mod nodes;
mod scale;
mod turns;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use crate::Failure;

/// What `handover bench` can be told.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the engine on the embedded store, beside the limit of the disk.
    Engine(engine::Args),
    /// Measure a MACP runtime, this one or any other: full task lives and fan-out to watchers.
    Macp(macp::Args),
    /// Measure an MCP server, this one or any other: polls, calls, subscribers, and a crash in the middle.
    Mcp(mcp::Args),
    /// Measure Grid conversations: many agents with a stream of notifications each.
    Grid(grid::Args),
    /// See whether pages of the console open as fast for many tasks and events as for few.
    Console(console::Args),
    /// See whether cost stays flat: long tasks, long lists, a long past, a crowd of deadlines, stopping and starting.
    Scale(scale::Args),
    /// Measure several nodes on PostgreSQL, beside what the database gives without them.
    Nodes(nodes::Args),
    /// See what an honest agent feels while the agents of another tenant do their worst.
    Hostile(hostile::Args),
}

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Engine(args) => engine::run(args),
        What::Macp(args) => macp::run(args),
        What::Mcp(args) => mcp::run(args),
        What::Grid(args) => grid::run(args),
        What::Console(args) => console::run(args),
        What::Scale(args) => scale::run(args),
        What::Nodes(args) => nodes::run(args),
        What::Hostile(args) => hostile::run(args),
    }
}

/// The middle of some numbers, 0 if there are none.
fn median(mut numbers: Vec<f64>) -> f64 {
    quantile(&mut numbers, 0.5)
}

/// The number below which this share of them lies.
fn quantile(numbers: &mut [f64], share: f64) -> f64 {
    if numbers.is_empty() {
        return 0.0;
    }
    numbers.sort_by(f64::total_cmp);
    let index = (share * (numbers.len() - 1) as f64).round() as usize;
    numbers[index]
}

/// What else the machine was doing, if it says so.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.as_deref().and_then(|text| text.split(' ').next());
    load.map_or_else(String::new, |load| format!(", load {load} at the beginning"))
}

/// A directory of our own that goes when we do.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(parent: Option<&Path>) -> Result<Scratch, Failure> {
        let parent = parent.unwrap_or(Path::new("."));
        let path = parent.join(format!("handover-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::fault(format!("making {}", path.display()), &error))?;
        Ok(Scratch { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now can be removed by hand: it is named after the process.
        _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A line of the table. It is for people; with `--json` standard output is the JSON alone.
fn say(json: bool, line: &str) {
    if json {
        _ = writeln!(std::io::stderr(), "{line}");
    } else {
        _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Say whether a claim holds, which is no error: it depends on the machine and on what else runs there.
fn judge(toy: bool, json: bool, claim: &str, holds: bool, found: &str) -> Value {
    let word = match holds {
        _ if toy => "too small to tell",
        true => "holds",
        false => "DOES NOT HOLD",
    };
    say(json, &format!("  {word}: {claim}: {found}"));
    json!({ "claim": claim, "holds": holds, "found": found })
}

/// One line that is written over; for a terminal only.
fn progress(line: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        _ = write!(out, "\r{line:<78}\r");
    }
}

fn print_json(result: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(result).map_err(|error| Failure::fault("printing", &error))?;
    _ = writeln!(std::io::stdout(), "{text}");
    Ok(())
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_default()
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
