//! `handover bench hostile`: what one tenant's worst costs another tenant. Four agents do what their limits let them, in
//! one way after the other and then in all ways at once, while an honest agent of another tenant goes on with its work.
//!
//! - [`honest`]: the agent that must not feel it
//! - [`attacks`]: what the four do, and what callers without a token do
//! - [`raw`]: requests whose answers may be anything

mod attacks;
mod honest;
mod raw;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use handover_desk::identity::tokens::hash_text;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::attacks::{Attack, Attacker};
use self::honest::{Honest, Seen};
use super::macp::runtime::Server;
use super::{Scratch, judge, load, machine, print_json, say};
use crate::Failure;

/// What `handover bench hostile` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// How long each attack lasts, in seconds
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// How many megabytes are in the session that is read again and again
    #[arg(long, default_value_t = 64)]
    megabytes: usize,
    /// How many sockets without a token are opened at each listener
    #[arg(long, default_value_t = 1_100)]
    sockets: usize,
    /// Where the server puts its data, which is removed afterwards [default: a new directory here]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Small sizes and short turns: shows that it works, not how well it holds
    #[arg(long)]
    toy: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A server of this binary with its default limits and static tokens: tenant `honest` with an agent that looks at a task
(tasks/get over MCP) and reports on another (Send over MACP), one call after the other; tenant `hostile` with four agents
that do their worst within their limits. The table has a row for the time before, for each attack, for all of them at
once, and for the time after: the honest agent's medians, how they compare with before, and the server's memory.

Attacks:
  nobody   callers without a token: silent sockets at both listeners, calls that announce a megabyte and send 6 bytes,
           and requests with a wrong token, as fast as they are answered
  flood    starts, messages and polls as fast as they are answered or refused
  bodies   large JSON bodies: deep, wide, and long texts
  checks   calls of a skill whose schema costs what a schema may cost, with the largest input
  reads    the whole history of a large session, again and again, over both protocols
  unread   streams of that session, over both protocols, that nobody reads
  all      all of them at once

A call of the honest agent that is refused or fails ends the run with an error. Whether a claim holds is printed and is
no error: it depends on the machine and on what else runs there. The attackers share the machine with the server.

Examples:
  handover bench hostile
  handover bench hostile --seconds 20 --json > hostile.json
  handover bench hostile --toy";

/// How much slower the honest agent's median may be while others do their worst.
const SLOWER_MAX: f64 = 3.0;

/// What the default settings say that callers can make the server hold (docs/operations.md): requests, answers and streams,
/// sessions, queued events, and what two tenants keep in their directories; and a tenth for the program and its allocator.
const MEMORY_MAX: f64 = 1.1 * ((1024 + 256 + 32 + 2 * 65) << 20) as f64;

/// How many agents are hostile.
const ATTACKERS: usize = 4;

/// The sizes of a run.
struct Sizes {
    turn: Duration,
    megabytes: usize,
    sockets: usize,
}

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let threads =
        tokio::runtime::Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    let dir = Scratch::new(args.data.as_deref())?;
    say(args.json, &format!("handover {}, {} cores{}", env!("CARGO_PKG_VERSION"), machine::cores(), load()));
    let sizes = if args.toy {
        Sizes { turn: Duration::from_millis(600), megabytes: 2, sockets: 50 }
    } else {
        Sizes {
            turn: Duration::from_secs(args.seconds.max(1)),
            megabytes: args.megabytes.max(1),
            sockets: args.sockets.min(room_for_sockets()),
        }
    };
    let server = start(&dir.path)?;
    let rows = threads.block_on(measure(&server, &sizes, args.json))?;
    threads.shutdown_timeout(Duration::from_secs(1));
    server.stop()?;
    let claims = claims(&rows, args);
    if !args.json {
        return Ok(());
    }
    print_json(&json!({
        "bench": "hostile",
        "version": env!("CARGO_PKG_VERSION"),
        "cores": machine::cores(),
        "toy": args.toy,
        "phases": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        "claims": claims,
    }))
}

/// A server with its default limits, to which everybody has to show a token.
fn start(dir: &Path) -> Result<Server, Failure> {
    let entry = |agent: &str, tenant: &str| {
        let hash = hash_text(&token(agent));
        format!("[[token]]\nsha256 = \"{hash}\"\nagent = \"{agent}\"\ntenant = \"{tenant}\"\n\n")
    };
    let honest = [honest::REQUESTER, honest::WORKER].map(|agent| entry(agent, "honest"));
    let hostile = (0..ATTACKERS).map(|index| entry(&attacks::name(index), "hostile"));
    let tokens = dir.join("tokens.toml");
    std::fs::write(&tokens, honest.into_iter().chain(hostile).collect::<String>())
        .map_err(|error| Failure::fault(format!("writing {}", tokens.display()), &error))?;
    let tokens = tokens.display().to_string();
    Server::start_at(&dir.join("server"), "127.0.0.1:0", &[("HANDOVER_IDENTITY_TOKENS", &tokens)])
}

/// The token of an agent of this bench. The server is ours and ends with the run.
fn token(agent: &str) -> String {
    format!("token-of-{agent}")
}

/// Half of the files that this process may have open, so that the rest of the bench has some too.
fn room_for_sockets() -> usize {
    machine::open_files_max().map_or(usize::MAX, |max| max.saturating_sub(200) / 3)
}

/// What was seen in one phase.
struct Row {
    phase: &'static str,
    look_us: f64,
    send_us: f64,
    looks: usize,
    sends: usize,
    /// The highest that was seen, in bytes.
    memory: u64,
    answered: u64,
    refused: u64,
}

impl Row {
    fn to_json(&self) -> Value {
        json!({
            "phase": self.phase, "look_us": self.look_us, "send_us": self.send_us, "looks": self.looks,
            "sends": self.sends, "memory_bytes": self.memory, "hostile_answered": self.answered,
            "hostile_refused": self.refused,
        })
    }
}

/// What the attackers count together.
#[derive(Default)]
pub struct Tally {
    stop: AtomicBool,
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn count(&self, accepted: bool) {
        if accepted { &self.answered } else { &self.refused }.fetch_add(1, Ordering::Relaxed);
    }
}

async fn measure(server: &Server, sizes: &Sizes, json: bool) -> Result<Vec<Row>, Failure> {
    let honest = Honest::begin(server).await?;
    let attackers = attacks::prepare(server, sizes.megabytes).await?;
    say(json, "phase      get p50 us   ratio   Send p50 us   ratio   memory MB   answered   refused");
    let phases: Vec<(&'static str, &[Attack])> = std::iter::once(("before", &[][..]))
        .chain(attacks::ALL.iter().map(|attack| (attack.name(), std::slice::from_ref(attack))))
        .chain([("all", attacks::ALL), ("after", &[])])
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    for (phase, attacks) in phases {
        let row = turn(server, &honest, &attackers, phase, attacks, sizes).await?;
        let before = rows.first().unwrap_or(&row);
        say(
            json,
            &format!(
                "{:<9} {:>11.0} {:>7.2} {:>13.0} {:>7.2} {:>11.0} {:>10} {:>9}",
                row.phase,
                row.look_us,
                row.look_us / before.look_us,
                row.send_us,
                row.send_us / before.send_us,
                row.memory as f64 / 1e6,
                row.answered,
                row.refused
            ),
        );
        rows.push(row);
    }
    Ok(rows)
}

/// The honest agent at work while some attacks go on.
async fn turn(
    server: &Server,
    honest: &Honest,
    attackers: &[Arc<Attacker>],
    phase: &'static str,
    attacks: &[Attack],
    sizes: &Sizes,
) -> Result<Row, Failure> {
    let tally = Arc::new(Tally::default());
    let mut under_way = JoinSet::new();
    for attack in attacks {
        for attacker in attackers {
            attack.begin(attacker, &tally, sizes.sockets / ATTACKERS, &mut under_way);
        }
    }
    // The time that it takes to get going counts for neither side.
    tokio::time::sleep(sizes.turn / 8).await;
    let memory = tokio::spawn(highest_memory(server.pid(), Arc::clone(&tally)));
    let seen = honest.work(sizes.turn).await;
    tally.stop.store(true, Ordering::Relaxed);
    let memory = memory.await.unwrap_or(0);
    under_way.shutdown().await;
    let Seen { mut looks, mut sends } = seen?;
    Ok(Row {
        phase,
        looks: looks.len(),
        sends: sends.len(),
        look_us: super::quantile(&mut looks, 0.5),
        send_us: super::quantile(&mut sends, 0.5),
        memory,
        answered: tally.answered.load(Ordering::Relaxed),
        refused: tally.refused.load(Ordering::Relaxed),
    })
}

async fn highest_memory(pid: u32, tally: Arc<Tally>) -> u64 {
    let mut highest = 0;
    loop {
        highest = highest.max(machine::resident_bytes(&pid.to_string()).unwrap_or(0));
        if tally.over() {
            return highest;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn claims(rows: &[Row], args: &Args) -> Vec<Value> {
    let (Some(before), Some(worst_look), Some(worst_send)) = (
        rows.first(),
        rows.iter().max_by(|a, b| a.look_us.total_cmp(&b.look_us)),
        rows.iter().max_by(|a, b| a.send_us.total_cmp(&b.send_us)),
    ) else {
        return Vec::new();
    };
    let slower = |name: &str, ratio: f64, phase: &str| {
        let claim = format!("an honest agent's median {name} stays within {SLOWER_MAX} times of before");
        judge(args.toy, args.json, &claim, ratio <= SLOWER_MAX, &format!("{ratio:.2} at worst ({phase})"))
    };
    let memory = rows.iter().map(|row| row.memory).max().unwrap_or(0) as f64;
    let claim = format!("memory stays within the {:.0} MB that the settings state", MEMORY_MAX / 1e6);
    let found = format!("{:.0} MB at most", memory / 1e6);
    vec![
        slower("tasks/get", worst_look.look_us / before.look_us, worst_look.phase),
        slower("Send", worst_send.send_us / before.send_us, worst_send.phase),
        judge(args.toy, args.json, &claim, memory <= MEMORY_MAX, &found),
    ]
}
