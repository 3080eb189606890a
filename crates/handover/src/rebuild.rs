//! `handover rebuild`: make the index again from the logs.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use handover_engine::{Denied, index};
use handover_store::SqliteStore;

use crate::{Failure, chain};

/// What `handover rebuild` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The directory that holds the logs
    #[arg(long, value_name = "DIR", env = "HANDOVER_DATA", default_value = "./handover-data")]
    data: PathBuf,
}

const HELP: &str = "\
Lists and timers are an index over the logs. It is written with them and never needs this; if a release says that its
index has changed, or a copy of the data came without one, this throws it away and makes it again. The logs are only
read. The server must not run meanwhile.

Examples:
  handover rebuild
  handover rebuild --data /var/lib/handover";

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let doing = format!("rebuilding the index of {}", args.data.display());
    if !args.data.is_dir() {
        return Err(Failure::Usage(format!(
            "expected a data directory, found none at {}",
            args.data.display()
        )));
    }
    let store = SqliteStore::open(&args.data).map_err(|fault| Failure::fault(&doing, &fault))?;
    let mut progress = std::io::stderr();
    let done = index::rebuild(&store, |done| {
        if progress.is_terminal() {
            // Progress that nobody can see is no reason to stop.
            _ = write!(progress, "\r{done} sessions\r");
        }
    });
    match done {
        Ok(done) => {
            _ = writeln!(std::io::stdout(), "the index of {done} sessions was made again");
            Ok(())
        }
        Err(Denied::Fault(fault)) => Err(Failure::Fault(format!("{doing}: {}", chain(&*fault)))),
        Err(Denied::Unreadable(what)) => Err(Failure::Fault(format!("{doing}: {what}"))),
        Err(Denied::Refused(refusal)) => Err(Failure::Fault(format!("{doing}: {refusal}"))),
        Err(Denied::Stopping) => Err(Failure::Fault(format!("{doing}: stopped"))),
    }
}
