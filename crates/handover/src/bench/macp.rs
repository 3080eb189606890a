//! `handover bench macp`: full task lives and fan-out on any MACP runtime, over gRPC.
//!
//! - [`script`]: what is sent
//! - [`runtime`]: who is measured, and calls to it
//! - [`fan_out`]: many watch one session

pub mod fan_out;
pub mod runtime;
pub mod script;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::runtime::{Caller, Server, Tokens};
use self::script::{Ids, Script};
use super::{Scratch, machine, micros, number, print_json, progress, quantile, say};
use crate::Failure;

/// What `handover bench macp` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The runtime to measure, as host:port [default: a server of this binary, started for the run]
    #[arg(long, value_name = "ADDR")]
    target: Option<String>,
    /// A second runtime, as host:port, measured in turns with the first; same agents and tokens
    #[arg(long, value_name = "ADDR")]
    against: Option<String>,
    /// How many turns each runtime gets, of which the median counts [default: 1, with --against 5]
    #[arg(long)]
    turns: Option<usize>,
    /// The agent that hands tasks out
    #[arg(long, value_name = "AGENT", default_value = "planner")]
    requester: String,
    /// The agent that does them
    #[arg(long, value_name = "AGENT", default_value = "worker")]
    worker: String,
    /// The requester's bearer token [default: its agent id, which is what development mode expects]
    #[arg(long, value_name = "TOKEN")]
    requester_token: Option<String>,
    /// The worker's bearer token [default: its agent id]
    #[arg(long, value_name = "TOKEN")]
    worker_token: Option<String>,
    /// How many lives are under way at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    in_flight: Vec<usize>,
    /// How long each measurement is
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How long the work goes on before each measurement, in seconds
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Over how many connections [default: as many as are in flight, one for each]
    #[arg(long)]
    connections: Option<usize>,
    /// How many watch the session of the fan-out; 0 leaves it out
    #[arg(long, default_value_t = 100)]
    watchers: usize,
    /// The process of the target, for its processor time and memory
    #[arg(long, requires = "target")]
    pid: Option<u32>,
    /// The process of the second runtime
    #[arg(long, requires = "against")]
    against_pid: Option<u32>,
    /// Where the server of this binary puts its data, which is removed afterwards [default: a new directory here]
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    data: Option<PathBuf>,
    /// Small sizes and short turns: shows that it works, not how fast
    #[arg(long)]
    toy: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
What is measured:
  lives    each one in flight lives one task life after the other, on a new session: SessionStart, TaskRequest,
           TaskAccept, two TaskUpdates, TaskComplete and Commitment, each a Send that waits for the Ack of the one before
  fan-out  watchers subscribe to one session; updates are sent to it, the next when every watcher has the last

With --against, every size is measured in turns, first the one and then the other; a row has the medians of the turns, and
the row below it how many times the second's the first's are.

A refusal, a duplicate, or an update that a watcher does not get in its turn ends the run with an error.

Columns:
  envelopes/s       envelopes that were accepted, per second
  p50, p99, p99.9   from the call of Send to its Ack, in microseconds
  server CPU        processor time of the server for 1,000 envelopes, in seconds; with --target only given --pid
  client CPU        the same of this generator, which takes it from the server if both are on one machine
  server MB         resident memory of the server at the end of the row

An Ack may come after the event that it acknowledges, so the fan-out gives both: from the Ack and from the call.

Examples:
  handover bench macp
  handover bench macp --in-flight 64 --seconds 20 --json > macp.json
  handover bench macp --target 127.0.0.1:50051 --pid 4711
  handover bench macp --against 127.0.0.1:50051 --against-pid 4711
  handover bench macp --target runtime.example:50051 --requester a --requester-token s3cret --worker b --worker-token t0ken
  handover bench macp --toy";

/// How long anything may take before the runtime is taken to hang.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let threads =
        tokio::runtime::Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    let known = |flag: &str, pid: Option<u32>| match pid.map(|pid| pid.to_string()) {
        Some(pid) if machine::cpu_seconds(&pid).is_none() => {
            Err(Failure::Usage(format!("{flag}: expected a process of this machine, found {pid}")))
        }
        pid => Ok(pid),
    };
    let mut measured = Vec::new();
    let mut own = None;
    match &args.target {
        Some(target) => measured.push((target.clone(), known("--pid", args.pid)?)),
        None => {
            let dir = Scratch::new(args.data.as_deref())?;
            let server = Server::start(&dir.path)?;
            measured.push((server.address.clone(), Some(server.pid().to_string())));
            own = Some((server, dir));
        }
    }
    if let Some(against) = &args.against {
        measured.push((against.clone(), known("--against-pid", args.against_pid)?));
    }
    let result = threads.block_on(measure(args, measured))?;
    // The connections go with the threads: the server does not have to wait for them.
    threads.shutdown_timeout(Duration::from_secs(1));
    if let Some((server, _dir)) = own {
        server.stop()?;
    }
    if args.json { print_json(&result) } else { Ok(()) }
}

/// A runtime that does not go on.
pub fn late(what: &str) -> Failure {
    Failure::Fault(format!("expected {what} within {ANSWER_WITHIN:?}"))
}

async fn measure(args: &Args, measured: Vec<(String, Option<String>)>) -> Result<Value, Failure> {
    let tokens = Tokens::new(
        args.requester_token.as_ref().unwrap_or(&args.requester),
        args.worker_token.as_ref().unwrap_or(&args.worker),
    )?;
    let connections = args.connections.map(|connections| connections.max(1));
    let most = args.in_flight.iter().copied().max().unwrap_or(1).max(1);
    let mut runtimes = Vec::new();
    for (address, pid) in measured {
        let mut callers = Vec::new();
        for _ in 0..connections.unwrap_or(most) {
            callers.push(Caller::connect(&address, tokens.clone()).await?);
        }
        let name = callers[0].initialize().await?;
        runtimes.push(Runtime { name, callers, pid });
    }
    let seconds =
        |full: f64, small| Duration::from_secs_f64(if args.toy { small } else { full.clamp(0.0, 3600.0) });
    let bench = Bench {
        runtimes,
        turns: args.turns.unwrap_or(if args.against.is_some() { 5 } else { 1 }).max(1),
        script: Arc::new(Script::new(&args.requester, &args.worker)),
        warm_up: seconds(args.warm_up, 0.1),
        seconds: seconds(args.seconds.max(0.05), 0.3),
        json: args.json,
    };
    let names: Vec<&str> = bench.runtimes.iter().map(|runtime| runtime.name.as_str()).collect();
    let over = connections.map_or("one connection each".to_owned(), |count| format!("{count} connections"));
    bench.say(&format!("{}, {over}, {} cores", names.join(" against "), machine::cores()));
    let lives = bench.lives(&args.in_flight).await?;
    let mut result = json!({
        "bench": "macp",
        "version": env!("CARGO_PKG_VERSION"),
        "runtimes": names,
        "cores": machine::cores(),
        "toy": args.toy,
        "connections": connections,
        "turns": bench.turns,
        "lives": lives,
    });
    let watchers = if args.toy { args.watchers.min(10) } else { args.watchers };
    if watchers > 0 {
        let mut rows = Vec::new();
        for runtime in &bench.runtimes {
            rows.push(bench.fan_out(runtime, watchers).await?);
        }
        result["fan_out"] = Value::Array(rows);
    }
    Ok(result)
}

/// One that is measured.
struct Runtime {
    name: String,
    callers: Vec<Caller>,
    /// Its process, if it is known.
    pid: Option<String>,
}

impl Runtime {
    fn cpu(&self) -> Cpu {
        let server = self.pid.as_deref().and_then(machine::cpu_seconds);
        Cpu { server, client: machine::cpu_seconds("self") }
    }

    fn resident_bytes(&self) -> Option<u64> {
        machine::resident_bytes(self.pid.as_deref()?)
    }
}

struct Bench {
    runtimes: Vec<Runtime>,
    turns: usize,
    script: Arc<Script>,
    warm_up: Duration,
    seconds: Duration,
    json: bool,
}

/// What one turn came to.
struct Turn {
    latencies_us: Vec<f64>,
    seconds: f64,
    cpu: Cpu,
}

impl Turn {
    fn row(mut self, resident: Option<u64>) -> Value {
        let count = self.latencies_us.len();
        json!({
            "envelopes": count,
            "envelopes_per_second": count as f64 / self.seconds,
            "p50_us": quantile(&mut self.latencies_us, 0.5),
            "p99_us": quantile(&mut self.latencies_us, 0.99),
            "p999_us": quantile(&mut self.latencies_us, 0.999),
            "server_cpu_seconds_per_1000": self.cpu.server,
            "client_cpu_seconds_per_1000": self.cpu.client,
            "server_resident_bytes": resident,
        })
    }
}

/// One row of several, each number made of theirs.
fn over(rows: &[Value], made: impl Fn(&mut [f64]) -> f64) -> Value {
    let Some(Value::Object(first)) = rows.first() else { return Value::Null };
    let number = |name: &String| {
        let mut numbers: Vec<f64> = rows.iter().filter_map(|row| row[name].as_f64()).collect();
        if numbers.len() == rows.len() { json!(made(&mut numbers)) } else { Value::Null }
    };
    Value::Object(first.keys().map(|name| (name.clone(), number(name))).collect())
}

fn median(numbers: &mut [f64]) -> f64 {
    quantile(numbers, 0.5)
}

fn labelled(row: &Value, in_flight: usize, runtime: &str) -> Value {
    let mut row = row.clone();
    row["in_flight"] = json!(in_flight);
    row["runtime"] = json!(runtime);
    row
}

/// Processor time in seconds.
#[derive(Clone, Copy)]
struct Cpu {
    server: Option<f64>,
    client: Option<f64>,
}

impl Cpu {
    /// What has been used since, for every 1,000 of these.
    fn since(self, before: Cpu, count: f64) -> Cpu {
        let each = |now: Option<f64>, before: Option<f64>| Some((now? - before?) * 1000.0 / count.max(1.0));
        Cpu { server: each(self.server, before.server), client: each(self.client, before.client) }
    }
}

impl Bench {
    fn say(&self, line: &str) {
        say(self.json, line);
    }

    async fn lives(&self, in_flight: &[usize]) -> Result<Value, Failure> {
        self.say(
            "in flight   envelopes/s   p50 us   p99 us   p99.9 us   server CPU   client CPU   server MB",
        );
        let mut rows = Vec::new();
        for clients in in_flight.iter().map(|clients| (*clients).max(1)) {
            let mut turns: Vec<Vec<Value>> = vec![Vec::new(); self.runtimes.len()];
            for turn in 0..self.turns {
                for (runtime, turns) in self.runtimes.iter().zip(&mut turns) {
                    progress(&format!("{clients} in flight, turn {} of {}", turn + 1, self.turns));
                    turns.push(self.turn(runtime, clients).await?.row(runtime.resident_bytes()));
                    progress("");
                }
            }
            let medians: Vec<Value> = turns.iter().map(|turns| over(turns, median)).collect();
            for (runtime, row) in self.runtimes.iter().zip(&medians) {
                self.say_row(&format!("{clients:9}"), row, 0);
                rows.push(labelled(row, clients, &runtime.name));
            }
            if let [first, second] = &medians[..] {
                let ratio = over(&[first.clone(), second.clone()], |pair| pair[0] / pair[1]);
                self.say_row("    ratio", &ratio, 2);
                rows.push(labelled(&ratio, clients, "ratio"));
            }
        }
        Ok(Value::Array(rows))
    }

    fn say_row(&self, label: &str, row: &Value, decimals: usize) {
        let cell = |name: &str, divided: f64, decimals| {
            known(row[name].as_f64().map(|number| number / divided), decimals)
        };
        let (fine, million) = if decimals == 0 { (3, 1e6) } else { (decimals, 1.0) };
        self.say(&format!(
            "{label} {:>13} {:>8} {:>8} {:>10} {:>12} {:>12} {:>11}",
            cell("envelopes_per_second", 1.0, decimals),
            cell("p50_us", 1.0, decimals),
            cell("p99_us", 1.0, decimals),
            cell("p999_us", 1.0, decimals),
            cell("server_cpu_seconds_per_1000", 1.0, fine),
            cell("client_cpu_seconds_per_1000", 1.0, fine),
            cell("server_resident_bytes", million, decimals),
        ));
    }

    /// Let that many clients live, first unmeasured, then measured.
    async fn turn(&self, runtime: &Runtime, clients: usize) -> Result<Turn, Failure> {
        let phase = Arc::new(Phase::default());
        let mut tasks = JoinSet::new();
        for index in 0..clients {
            let caller = runtime.callers[index % runtime.callers.len()].clone();
            tasks.spawn(live(caller, Arc::clone(&self.script), Arc::clone(&phase)));
        }
        go_on(&mut tasks, self.warm_up).await?;
        let before = runtime.cpu();
        let begun = Instant::now();
        phase.enter(Phase::MEASURED);
        go_on(&mut tasks, self.seconds).await?;
        phase.enter(Phase::OVER);
        let seconds = begun.elapsed().as_secs_f64();
        let after = runtime.cpu();
        let mut latencies_us = Vec::new();
        let all = async {
            while let Some(task) = tasks.join_next().await {
                latencies_us.extend(task.map_err(|error| Failure::fault("measuring", &error))??);
            }
            Ok(())
        };
        tokio::time::timeout(ANSWER_WITHIN, all).await.map_err(|_| late("every Send to be answered"))??;
        let cpu = after.since(before, latencies_us.len() as f64);
        Ok(Turn { latencies_us, seconds, cpu })
    }

    async fn fan_out(&self, runtime: &Runtime, watchers: usize) -> Result<Value, Failure> {
        progress(&format!("{watchers} watchers"));
        let before = runtime.cpu();
        let measured = fan_out::measure(&runtime.callers, &self.script, watchers, self.warm_up, self.seconds);
        let mut delivered = measured.await?;
        let cpu = runtime.cpu().since(before, delivered.events as f64);
        progress("");
        let row = json!({
            "runtime": runtime.name,
            "watchers": watchers,
            "updates": delivered.updates,
            "events_per_second": delivered.events as f64 / delivered.seconds,
            "updates_per_second": delivered.updates as f64 / delivered.seconds,
            "send_p50_us": quantile(&mut delivered.send_us, 0.5),
            "ack_to_last_p50_us": quantile(&mut delivered.ack_to_last_us, 0.5),
            "ack_to_last_p99_us": quantile(&mut delivered.ack_to_last_us, 0.99),
            "call_to_last_p50_us": quantile(&mut delivered.call_to_last_us, 0.5),
            "call_to_last_p99_us": quantile(&mut delivered.call_to_last_us, 0.99),
            "server_cpu_seconds_per_1000": cpu.server,
            "client_cpu_seconds_per_1000": cpu.client,
            "server_resident_bytes": runtime.resident_bytes(),
        });
        self.say(&format!(
            "{watchers} watchers: {:.0} events/s delivered, {:.0} updates/s; the last watcher has one {:.0} us (p50) {:.0} us \
             (p99) after the Ack, {:.0} us (p50) {:.0} us (p99) after the call",
            number(&row, "events_per_second"),
            number(&row, "updates_per_second"),
            number(&row, "ack_to_last_p50_us"),
            number(&row, "ack_to_last_p99_us"),
            number(&row, "call_to_last_p50_us"),
            number(&row, "call_to_last_p99_us"),
        ));
        Ok(row)
    }
}

/// Where a turn is.
#[derive(Default)]
struct Phase(AtomicU8);

impl Phase {
    const MEASURED: u8 = 1;
    const OVER: u8 = 2;

    fn enter(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }

    fn is(&self, phase: u8) -> bool {
        self.0.load(Ordering::Relaxed) == phase
    }
}

/// One life after the other. The last is lived to its end, so that no session stays open.
async fn live(mut caller: Caller, script: Arc<Script>, phase: Arc<Phase>) -> Result<Vec<f64>, Failure> {
    let mut ids = Ids::new();
    let mut latencies_us = Vec::new();
    while !phase.is(Phase::OVER) {
        let session_id = ids.next();
        for line in script.lines() {
            let measured = phase.is(Phase::MEASURED);
            let begun = Instant::now();
            caller.send(&script, line, &session_id, &mut ids).await?;
            // What began before the measurement or ended after it is no part of it.
            if measured && phase.is(Phase::MEASURED) {
                latencies_us.push(micros(begun));
            }
        }
    }
    Ok(latencies_us)
}

/// Let the clients work for so long. One that stops by itself has failed.
async fn go_on(tasks: &mut JoinSet<Result<Vec<f64>, Failure>>, duration: Duration) -> Result<(), Failure> {
    tokio::select! {
        () = tokio::time::sleep(duration) => Ok(()),
        Some(ended) = tasks.join_next() => match ended {
            Ok(Ok(_)) => Err(Failure::Fault("a client stopped before its time".to_owned())),
            Ok(Err(failure)) => Err(failure),
            Err(error) => Err(Failure::fault("measuring", &error)),
        },
    }
}

/// A number if there is one.
fn known(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.decimals$}"))
}
