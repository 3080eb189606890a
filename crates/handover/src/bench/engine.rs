//! `handover bench engine`: full task lives on the embedded store, beside the limit of the disk in the same run.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use handover_engine::{Engine, Settings};
use handover_kernel::Seq;
use handover_store::sqlite::Options;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::fill;
use super::life::{self, Lives};
use super::limit::Limit;
use super::turns::{self, LIMIT_FAILED, Turn};
use super::{Scratch, machine, median, micros, number, print_json, progress, quantile, say};
use crate::Failure;

/// What `handover bench engine` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Which measurement to make
    #[arg(long, value_enum, default_value_t = Part::Throughput)]
    part: Part,
    /// How many lives are under way at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    in_flight: Vec<usize>,
    /// How often engine and limit take turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each turn is
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many finished sessions the `stored` part has
    #[arg(long, default_value_t = 1_000_000)]
    stored: u64,
    /// How many open sessions the `open` part has
    #[arg(long, default_value_t = 100_000)]
    open: u64,
    /// Where to put the data, which is removed afterwards [default: a new directory here]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Small sizes and short turns: shows that it works, not how fast
    #[arg(long)]
    toy: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Parts:
  throughput  durable events per second at each number in flight, and what share of the limit that is
  stored      many finished sessions on disk: memory, restart, opening one, throughput beside a small store
  open        many open sessions: memory for each, and that idle ones leave memory
  all         all of them

The limit is the same machine, the same number of waiting producers, the same bytes, appended by one thread to one file
with one fdatasync for whatever waits. Engine and limit take turns; the ratio is the median over the turns. The producers
of the limit are threads; the last column is beside a limit whose producers are async tasks, for which waiting is free.

Examples:
  handover bench engine
  handover bench engine --part all --json > engine.json
  handover bench engine --toy";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Throughput,
    Stored,
    Open,
    All,
}

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = Plan::from(args);
    let dir = Scratch::new(args.data.as_deref())?;
    let runtime = Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    let bench = Bench { plan, dir: dir.path.clone(), runtime, json: args.json };
    let mut result = json!({
        "bench": "engine",
        "version": env!("CARGO_PKG_VERSION"),
        "cores": machine::cores(),
        "toy": args.toy,
        "event_bytes_mean": mean_bytes(),
    });
    let wants = |part| args.part == part || args.part == Part::All;
    // Memory first, while nothing that was let go of before can be used again.
    if wants(Part::Open) {
        result["open"] = bench.open()?;
    }
    if wants(Part::Throughput) {
        result["throughput"] = bench.throughput()?;
    }
    if wants(Part::Stored) {
        result["stored"] = bench.stored()?;
    }
    if args.json {
        print_json(&result)?;
    }
    Ok(())
}

/// The sizes in effect.
struct Plan {
    in_flight: Vec<usize>,
    rounds: usize,
    turn: Duration,
    stored: u64,
    open: u64,
}

impl Plan {
    fn from(args: &Args) -> Plan {
        let toy = |full, small| if args.toy { small } else { full };
        Plan {
            in_flight: args.in_flight.iter().copied().map(|clients| clients.max(1)).collect(),
            rounds: toy(args.rounds.max(1), 2),
            turn: Duration::from_secs_f64(if args.toy { 0.15 } else { args.seconds.clamp(0.05, 3600.0) }),
            stored: toy(args.stored as usize, 300) as u64,
            open: toy(args.open as usize, 300) as u64,
        }
    }
}

struct Bench {
    plan: Plan,
    dir: PathBuf,
    runtime: Runtime,
    json: bool,
}

impl Bench {
    fn say(&self, line: &str) {
        say(self.json, line);
    }

    fn start(&self, dir: &Path, settings: Settings) -> Result<Engine, Failure> {
        self.start_with(dir, settings, Options::default())
    }

    fn start_with(&self, dir: &Path, settings: Settings, options: Options) -> Result<Engine, Failure> {
        Ok(fill::start(dir, settings, options)?.0)
    }

    fn throughput(&self) -> Result<Value, Failure> {
        let engine = self.start(&self.dir.join("throughput"), fill::settings())?;
        let lives = Arc::new(Lives::from(0));
        self.say(
            "in flight   engine ev/s   limit ev/s   ratio   engine p50/p99 us    limit p50/p99 us   of a limit of tasks",
        );
        let mut rows = Vec::new();
        for clients in &self.plan.in_flight {
            let mut rounds = Rounds::default();
            for round in 0..self.plan.rounds {
                progress(&format!("{clients} in flight, turn {} of {}", round + 1, self.plan.rounds));
                rounds.limits.push(self.limit_turn(*clients, Producers::Threads)?);
                rounds.ours.push(self.engine_turn(&engine, *clients, &lives)?);
                rounds.tasks.push(self.limit_turn(*clients, Producers::Tasks)?);
            }
            progress("");
            let row = rounds.row(*clients);
            self.say(&format!(
                "{clients:9} {:13.0} {:12.0}   {:5.2}   {:8.0} {:8.0}   {:8.0} {:8.0}   {:5.2} of {:.0}",
                number(&row, "events_per_second"),
                number(&row, "limit_events_per_second"),
                number(&row, "ratio"),
                number(&row, "p50_us"),
                number(&row, "p99_us"),
                number(&row, "limit_p50_us"),
                number(&row, "limit_p99_us"),
                number(&row, "ratio_to_tasks"),
                number(&row, "task_limit_events_per_second"),
            ));
            rows.push(row);
        }
        engine.stop();
        Ok(Value::Array(rows))
    }

    fn limit_turn(&self, clients: usize, producers: Producers) -> Result<Turn, Failure> {
        let path = self.dir.join("limit");
        let limit = Limit::start(&path).map_err(|error| Failure::fault("starting the limit", &error))?;
        let limit = Arc::new(limit);
        let turn = match producers {
            Producers::Threads => turns::of_threads(&limit, clients, self.plan.turn)?,
            Producers::Tasks => self.task_turn(clients, &limit)?,
        };
        if let Some(limit) = Arc::into_inner(limit) {
            limit.stop().map_err(|error| Failure::fault("writing the limit's file", &error))?;
        }
        std::fs::remove_file(&path).map_err(|error| Failure::fault("removing the limit's file", &error))?;
        Ok(turn)
    }

    fn task_turn(&self, clients: usize, limit: &Arc<Limit>) -> Result<Turn, Failure> {
        let events = Arc::new(life::encoded());
        turns::of_tasks(&self.runtime, clients, self.plan.turn, |_, stop| {
            let (limit, events) = (Arc::clone(limit), Arc::clone(&events));
            async move {
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    for event in events.iter() {
                        let begun = Instant::now();
                        if !limit.append(event).await {
                            return Err(Failure::Fault(LIMIT_FAILED.to_owned()));
                        }
                        latencies.push(micros(begun));
                    }
                }
                Ok(latencies)
            }
        })
    }

    fn engine_turn(&self, engine: &Engine, clients: usize, lives: &Arc<Lives>) -> Result<Turn, Failure> {
        turns::of_engines(&self.runtime, std::slice::from_ref(engine), clients, self.plan.turn, lives)
    }

    /// Run this many lives, or parts of lives, as fast as they go.
    fn fill(
        &self,
        engine: &Engine,
        lives: std::ops::Range<u64>,
        events: usize,
        what: &str,
    ) -> Result<(), Failure> {
        let part = move |number| {
            let (key, commands) = life::life(number);
            (key, commands.into_iter().take(events))
        };
        self.runtime.block_on(fill::many(engine, lives, part, what))
    }

    fn stored(&self) -> Result<Value, Failure> {
        let (few, many) = (1000.min(self.plan.stored), self.plan.stored);
        let clients = 64;
        let small_dir = self.dir.join("few");
        let large_dir = self.dir.join("many");
        let small = self.start(&small_dir, fill::settings())?;
        self.fill(&small, 0..few, life::EVENTS, "few")?;
        let large = self.start(&large_dir, fill::settings())?;
        let begun = Instant::now();
        self.fill(&large, 0..many, life::EVENTS, "many")?;
        let filled = many as f64 * life::EVENTS as f64 / begun.elapsed().as_secs_f64();

        let (small_lives, large_lives) = (Arc::new(Lives::from(few)), Arc::new(Lives::from(many)));
        let mut ratios = Vec::new();
        for round in 0..self.plan.rounds {
            progress(&format!("few beside many, turn {} of {}", round + 1, self.plan.rounds));
            let beside = self.engine_turn(&small, clients, &small_lives)?;
            let ours = self.engine_turn(&large, clients, &large_lives)?;
            ratios.push(ours.rate() / beside.rate());
        }
        progress("");
        small.stop();
        large.stop();
        drop((small, large));

        let (ready_ms, serving) = self.restart(&large_dir)?;
        let large = self.start(&large_dir, fill::settings())?;
        let mut opened = self.open_some(&large, many)?;
        let resident = machine::resident_bytes("self").unwrap_or_default();
        large.stop();
        let row = json!({
            "sessions": many,
            "fill_events_per_second": filled,
            "throughput_ratio_to_few": median(ratios),
            "ready_ms": ready_ms,
            "serve_resident_bytes": serving,
            "open_p50_us": quantile(&mut opened, 0.5),
            "open_p99_us": quantile(&mut opened, 0.99),
            "resident_bytes": resident,
        });
        self.say(&format!(
            "{many} finished sessions: {:.2} of the throughput with {few}; ready after {ready_ms:.0} ms with {:.0} MB; one \
             opens in {:.0} us (p50) {:.0} us (p99); {:.0} MB after opening them",
            number(&row, "throughput_ratio_to_few"),
            serving as f64 / 1e6,
            number(&row, "open_p50_us"),
            number(&row, "open_p99_us"),
            resident as f64 / 1e6,
        ));
        Ok(row)
    }

    /// Start a server of this very binary on the data: how long until it is ready, and how much memory it takes.
    fn restart(&self, dir: &Path) -> Result<(f64, u64), Failure> {
        let fault = |error: std::io::Error| Failure::fault("starting a server", &error);
        let binary = std::env::current_exe().map_err(fault)?;
        let begun = Instant::now();
        let mut server = Process::new(binary)
            .args(["serve", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--json"])
            .args(["--log-level", "error", "--data"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let mut line = String::new();
        let read = match server.stdout.take() {
            Some(out) => std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line),
            None => Ok(0),
        };
        let ready_ms = begun.elapsed().as_secs_f64() * 1000.0;
        let resident = machine::resident_bytes(&server.id().to_string()).unwrap_or_default();
        server.kill().and_then(|()| server.wait()).map_err(fault)?;
        read.map_err(fault)?;
        if !line.contains("\"ready\":true") {
            return Err(Failure::Fault(format!("expected the server to be ready, found {line:?}")));
        }
        Ok((ready_ms, resident))
    }

    /// Open sessions here and there, none of which is in memory.
    fn open_some(&self, engine: &Engine, many: u64) -> Result<Vec<f64>, Failure> {
        let tries = 2000.min(many);
        let mut opened = Vec::new();
        for index in 0..tries {
            // A stride that shares no factor with the count walks over all of it.
            let number = index.wrapping_mul(7_919_917) % many;
            let begun = Instant::now();
            let session = self.runtime.block_on(engine.session(life::key(number)));
            opened.push(micros(begun));
            match session {
                Ok(Some(session)) if session.head == Seq(life::EVENTS as u64) => {}
                other => return Err(Failure::Fault(format!("expected session {number}, found {other:?}"))),
            }
        }
        Ok(opened)
    }

    fn open(&self) -> Result<Value, Failure> {
        let dir = self.dir.join("open");
        let many = self.plan.open;
        let mut settings = fill::settings();
        settings.shard.idle_ms = 3_600_000;
        settings.shard.sessions_in_memory_max = many as usize * 2;
        // The pages that the store keeps at hand are no part of a session: it keeps few here, and what it and the
        // threads take is taken before the sessions come.
        let options = Options { writer_cache_kib: 2048, ..Options::default() };
        let engine = self.start_with(&dir, settings.clone(), options)?;
        self.fill(&engine, many..many + 2000.min(many), life::OPEN_EVENTS, "warming up")?;
        let warm = engine.sessions_in_memory();
        let before = machine::allocated_bytes("self").unwrap_or_default();
        self.fill(&engine, 0..many, life::OPEN_EVENTS, "opening")?;
        let after = machine::allocated_bytes("self").unwrap_or_default();
        let held = engine.sessions_in_memory() - warm;
        engine.stop();
        drop(engine);
        let each = after.saturating_sub(before) as f64 / many as f64;

        settings.shard.idle_ms = 100;
        let engine = self.start(&dir, settings)?;
        self.fill(&engine, many * 2..many * 2 + many.min(2000), life::OPEN_EVENTS, "idling")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while engine.sessions_in_memory() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let left = engine.sessions_in_memory();
        engine.stop();
        let row = json!({
            "sessions": many,
            "in_memory": held,
            "bytes_each": each,
            "payload_bytes_each": life::PAYLOAD_BYTES,
            "bytes_each_beyond_payload": each - life::PAYLOAD_BYTES as f64,
            "left_in_memory_when_idle": left,
        });
        self.say(&format!(
            "{many} open sessions: {:.0} bytes each beyond {} bytes of payload; {left} left in memory when idle",
            number(&row, "bytes_each_beyond_payload"),
            life::PAYLOAD_BYTES,
        ));
        Ok(row)
    }
}

/// What the producers of the limit are.
#[derive(Clone, Copy)]
enum Producers {
    Threads,
    Tasks,
}

/// The turns at one number in flight.
#[derive(Default)]
struct Rounds {
    ours: Vec<Turn>,
    limits: Vec<Turn>,
    tasks: Vec<Turn>,
}

impl Rounds {
    fn row(&mut self, clients: usize) -> Value {
        let ratio = |ours: &[Turn], limits: &[Turn]| {
            median(ours.iter().zip(limits).map(|(ours, limit)| ours.rate() / limit.rate()).collect())
        };
        let rate = |turns: &[Turn]| median(turns.iter().map(Turn::rate).collect());
        let tail =
            |turns: &mut [Turn], share| median(turns.iter_mut().map(|turn| turn.latency(share)).collect());
        json!({
            "in_flight": clients,
            "events_per_second": rate(&self.ours),
            "limit_events_per_second": rate(&self.limits),
            "task_limit_events_per_second": rate(&self.tasks),
            "ratio": ratio(&self.ours, &self.limits),
            "ratio_to_tasks": ratio(&self.ours, &self.tasks),
            "p50_us": tail(&mut self.ours, 0.5),
            "p99_us": tail(&mut self.ours, 0.99),
            "limit_p50_us": tail(&mut self.limits, 0.5),
            "limit_p99_us": tail(&mut self.limits, 0.99),
        })
    }
}

fn mean_bytes() -> f64 {
    let events = life::encoded();
    events.iter().map(|event| event.len()).sum::<usize>() as f64 / events.len() as f64
}
