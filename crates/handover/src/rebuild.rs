//! `handover rebuild`: make the index again from the logs.

use std::io::{IsTerminal, Write};

use handover_engine::{Denied, index};

use crate::database::At;
use crate::{Failure, chain};

/// What `handover rebuild` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    at: At,
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
    let doing = format!("rebuilding the index of {}", args.at.shown());
    args.at.must_be_there()?;
    let store = args.at.open_alone(&doing)?;
    let mut progress = std::io::stderr();
    let done = index::rebuild(&*store, |done| {
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
