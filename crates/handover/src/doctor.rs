//! `handover doctor`: whether everything that a server needs is as it should be, and what to do where it is not.

use std::net::TcpListener;
use std::path::Path;
use std::time::SystemTime;

use axum::http::Method;
use handover_client::fetch;
use handover_desk::private;
use handover_server::config::{self, Config};
use handover_server::tokens::TokenFile;
use handover_server::{exposure, files, tls};
use handover_store::{Fault, SqliteStore, Store};
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::cli::text;
use crate::cli::{Common, say, say_json};
use crate::{Failure, chain, cli, house};

/// What `handover doctor` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// The data directory of the server [default: that of the configuration]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// The configuration file of the server
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
}

const HELP: &str = "\
Looks at the configuration, the limits of this machine, the data directory, file modes, the clock, ports, certificates and tokens as handover
serve would find them with the same flags and environment; then at the server that the other commands would use. It changes nothing,
but opens the data if no server has it, as a start would, unless the data is of an earlier release. Exit code 1 means that something has to be done.

Examples:
  handover doctor
  handover doctor --config /etc/handover.toml --json";

/// Less room on the disk than this is worth a word.
const ROOM_BYTES: u64 = 1 << 30;

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Odd,
    Bad,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Odd => "odd",
            Verdict::Bad => "bad",
        }
    }

    /// The state that it looks like.
    fn looks(self) -> (&'static str, &'static str) {
        match self {
            Verdict::Good => ("✓", "completed"),
            Verdict::Odd => ("◐", "waiting"),
            Verdict::Bad => ("✕", "failed"),
        }
    }
}

#[derive(Default)]
struct Findings(Vec<(&'static str, Verdict, String)>);

impl Findings {
    fn note(&mut self, what: &'static str, verdict: Verdict, found: impl Into<String>) {
        self.0.push((what, verdict, found.into()));
    }

    /// Something that is as it should be, or must be put right.
    fn must(&mut self, what: &'static str, found: Result<String, String>) {
        match found {
            Ok(found) => self.note(what, Verdict::Good, found),
            Err(found) => self.note(what, Verdict::Bad, found),
        }
    }
}

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut findings = Findings::default();
    let sources = house::sources(&[("data", &args.data)], args.config.as_ref());
    let loaded = sources.map_err(|failure| failure.to_string());
    let loaded = loaded.and_then(|sources| config::load(&sources).map_err(|error| error.to_string()));
    match loaded {
        Ok(loaded) => look_here(&loaded.config, &mut findings),
        Err(what) => findings.note("configuration", Verdict::Bad, what),
    }
    look_there(&args.common, &mut findings);
    say_findings(&findings, args.common.json)
}

/// What a server on this machine would find.
fn look_here(config: &Config, findings: &mut Findings) {
    let exposed = exposure::check(config).map(|()| "it can be served as it is".to_owned());
    findings.must("configuration", exposed);
    let room = files::fit(&config.limits, files::raise());
    let room =
        room.map(|room| format!("room for {} connections of HTTP and {} of MACP", room.http, room.macp));
    findings.must("limits", room);
    look_at_data(&config.data, findings);
    let tokens = config.identity.tokens.as_deref();
    let secrets: Vec<&Path> = tokens.into_iter().chain(config.tls.key.as_deref()).collect();
    look_at_modes(&config.data, &secrets, findings);
    look_at_clock(&config.data, findings);
    let admin = config.admin_address().map(|address| ("admin", address));
    for (key, address) in [("http", config.http), ("macp", config.macp)].into_iter().chain(admin) {
        // Port 0 is always free.
        match TcpListener::bind(address) {
            Ok(_) => findings.note("ports", Verdict::Good, format!("{key}: {address} is free")),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                findings.note(
                    "ports",
                    Verdict::Odd,
                    format!("{key}: {address} is in use: good if by the server itself"),
                );
            }
            Err(error) => findings.note("ports", Verdict::Bad, format!("{key}: {address}: {error}")),
        }
    }
    match tls::files(&config.tls) {
        Ok(None) => findings.note("certificate", Verdict::Good, "none is configured"),
        Ok(Some(files)) => match tls::Tls::open(files) {
            Ok(tls) => match tls.untimely() {
                None => findings.note(
                    "certificate",
                    Verdict::Good,
                    "it fits its key, and its time has come and not passed",
                ),
                Some(why) => {
                    findings.note("certificate", Verdict::Bad, format!("it {why}: clients will refuse it"))
                }
            },
            Err(what) => findings.note("certificate", Verdict::Bad, what),
        },
        Err(what) => findings.note("certificate", Verdict::Bad, what),
    }
    if let Some(path) = tokens {
        findings.must("tokens", TokenFile::open(path).map(|_| format!("{} can be read", path.display())));
    }
}

fn look_at_data(data: &Path, findings: &mut Findings) {
    let name = data.display();
    if !data.exists() {
        return findings.note(
            "store",
            Verdict::Good,
            format!("{name} is not there yet: handover serve makes it"),
        );
    }
    if let Ok(found) = rustix::fs::statvfs(data) {
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let verdict = if free < ROOM_BYTES { Verdict::Odd } else { Verdict::Good };
        findings.note("disk", verdict, format!("{} MiB are free for {name}", free >> 20));
    }
    if !data.join(SqliteStore::DATABASE).exists() {
        return findings.note("store", Verdict::Odd, format!("{name} is there, and no database in it"));
    }
    // Opening it would upgrade it, and the release before could not read it any more.
    if let Ok((found, known)) = SqliteStore::versions(data)
        && (1..known).contains(&found)
    {
        let what = format!(
            "{name} has tables of version {found}: handover serve upgrades them to {known}; make a backup before"
        );
        return findings.note("store", Verdict::Odd, what);
    }
    let opened = SqliteStore::open(data).and_then(|store| store.probe());
    match opened {
        Ok(()) => findings.note("store", Verdict::Good, format!("{name} can be read and written")),
        Err(Fault::InUse { .. }) => {
            findings.note("store", Verdict::Good, format!("{name} is in use by a server"))
        }
        Err(fault) => findings.note("store", Verdict::Bad, chain(&fault)),
    }
}

fn look_at_modes(data: &Path, secrets: &[&Path], findings: &mut Findings) {
    let places = SqliteStore::places(data);
    let all = places.iter().map(AsRef::as_ref).chain(secrets.iter().copied());
    let open: Vec<String> = all.filter_map(private::open_to_others).collect();
    match open.is_empty() {
        true => {
            findings.note("file modes", Verdict::Good, "only their owner can read the data and the secrets")
        }
        false => {
            findings.note("file modes", Verdict::Odd, format!("others can read this: {}", open.join("; ")))
        }
    }
}

fn look_at_clock(data: &Path, findings: &mut Findings) {
    let written =
        std::fs::metadata(data.join(SqliteStore::DATABASE)).and_then(|metadata| metadata.modified());
    let ahead = written.ok().and_then(|at| at.duration_since(SystemTime::now()).ok());
    match ahead {
        Some(ahead) if ahead.as_secs() > 0 => {
            let by = text::duration(ahead.as_secs());
            findings.note(
                "clock",
                Verdict::Bad,
                format!("it is {by} behind the last write to the data: set it"),
            );
        }
        _ => findings.note("clock", Verdict::Good, text::moment(&jiff::Timestamp::now().to_string())),
    }
}

/// The server that the other commands would use.
fn look_there(common: &Common, findings: &mut Findings) {
    let looked = common.open().and_then(|remote| {
        cli::run(async {
            let ready = fetch::once(common.server(), Method::GET, "/readyz", &[]).await;
            let ready = ready.map(|(status, _)| status == 200);
            let signed_in = remote.try_call("agent_list", json!({ "max": 1 }), None).await;
            Ok((ready, signed_in.map(drop)))
        })
    });
    let server = text::line(common.server());
    match looked {
        Err(failure) => findings.note("server", Verdict::Bad, failure.to_string()),
        Ok((Err(_), _)) => findings.note(
            "server",
            Verdict::Odd,
            format!("none answers at {server}: start one with handover serve"),
        ),
        Ok((Ok(ready), signed_in)) => {
            let (verdict, word) =
                if ready { (Verdict::Good, "is ready") } else { (Verdict::Bad, "is not ready: see its log") };
            findings.note("server", verdict, format!("the one at {server} {word}"));
            match signed_in {
                Ok(()) => findings.note("sign-in", Verdict::Good, "the token counts"),
                Err(error) => findings.note("sign-in", Verdict::Odd, text::line(&error.to_string())),
            }
        }
    }
}

fn say_findings(findings: &Findings, is_json: bool) -> Result<(), Failure> {
    let bad = findings.0.iter().filter(|(_, verdict, _)| *verdict == Verdict::Bad).count();
    if is_json {
        let checks = findings.0.iter().map(
            |(what, verdict, found)| json!({ "check": what, "verdict": verdict.name(), "found": found }),
        );
        say_json(json!({ "checks": checks.collect::<Vec<Value>>() }))?;
    } else {
        for (what, verdict, found) in &findings.0 {
            let (shape, state) = verdict.looks();
            say(format!(
                "{} {:<4}  {what:<13}  {}",
                text::coloured(shape, state),
                verdict.name(),
                text::line(found)
            ))?;
        }
    }
    match bad {
        0 => Ok(()),
        1 => Err(Exit::Failed.told("1 thing has to be put right", "the lines that say bad tell what")),
        many => Err(Exit::Failed
            .told(format!("{many} things have to be put right"), "the lines that say bad tell what")),
    }
}
