//! `handover audit verify`: whether the audit log is as the server wrote it.

use std::io::Write;
use std::path::PathBuf;

use handover_desk::audit::chain;
use handover_desk::audit::verify::{Report, verify};
use handover_server::config;

use crate::{Failure, house};

/// What `handover audit` can be told.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// See whether a line of the audit log was changed, removed, added or moved.
    #[command(after_help = HELP)]
    Verify(VerifyArgs),
}

/// What `handover audit verify` can be told.
#[derive(clap::Args)]
struct VerifyArgs {
    /// The file of the audit log; the older ones beside it are checked as well [default: that of the configuration]
    path: Option<PathBuf>,
    /// The data directory of the server whose log it is
    #[arg(long, value_name = "DIR", conflicts_with = "path")]
    data: Option<String>,
    /// The configuration file of the server whose log it is
    #[arg(long, value_name = "FILE", conflicts_with = "path")]
    config: Option<String>,
}

const HELP: &str = "\
Each line carries a hash over itself and the line before it, and beside the log is a note of the last one. Whoever can write the
files can write all of these anew: to find that out, too, copy the log, or the last hash that this command prints, to where they
cannot. The server may run meanwhile. Exit code 1 means that something was found.

Examples:
  handover audit verify
  handover audit verify /var/lib/handover/audit.jsonl";

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Command::Verify(args) = &args.command;
    let path = match &args.path {
        Some(path) => path.clone(),
        None => configured(args)?,
    };
    let report =
        verify(&path).map_err(|error| Failure::fault(format!("verifying {}", path.display()), &error))?;
    let printing = |error| Failure::fault("printing", &error);
    std::io::stdout().write_all(said(&report).as_bytes()).map_err(printing)?;
    if report.findings.is_empty() {
        return Ok(());
    }
    Err(Failure::Fault(format!("{} is not as it was written", path.display())))
}

fn configured(args: &VerifyArgs) -> Result<PathBuf, Failure> {
    let sources = house::sources(&[("data", &args.data)], args.config.as_ref())?;
    let loaded = config::load(&sources).map_err(|error| Failure::Usage(error.to_string()))?;
    loaded
        .config
        .audit_path()
        .ok_or_else(|| Failure::Usage("audit.file is off: expected the path of a log".to_owned()))
}

fn said(report: &Report) -> String {
    let mut said = String::new();
    for finding in &report.findings {
        let line = finding.line.map_or_else(String::new, |line| format!(":{line}"));
        said += &format!("{}{line}: {}\n", finding.file.display(), finding.what);
    }
    if report.more > 0 {
        said += &format!("and {} more\n", report.more);
    }
    if report.not_chained > 0 {
        said += &format!(
            "{} lines are not chained: they are from before the log had hashes\n",
            report.not_chained
        );
    }
    if report.unended {
        said += "the last line has no end: it is being written, or was cut off\n";
    }
    if !report.noted {
        said += "there is no note of the last line beside the log: whether its end was cut does not show\n";
    }
    said += &format!("{} lines in {} files are chained", report.chained, report.files);
    if report.findings.is_empty() {
        said += ", and each follows the one before it";
    }
    match &report.last {
        Some(last) => said + &format!("; the last hash is {}\n", chain::hex(last)),
        None => said + "\n",
    }
}
