//! `handover bench mcp`: polls, calls, subscribers and a crash, on any MCP server with tasks, over HTTP.
//!
//! - [`wire`]: requests and answers over bare sockets
//! - [`load`]: connections that ask as often as they can
//! - `cast`: who takes part
//! - [`bare`]: what polls are measured against
//! - [`subscribers`]: many follow one task
//! - [`restart`]: a crash in the middle

mod bare;
pub mod cast;
pub mod load;
mod restart;
mod subscribers;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::bare::Bare;
use self::cast::{Cast, connect};
use self::load::{Ask, Expect, Turn};
use self::wire::Agent;
use super::macp::runtime::Server;
use super::{Scratch, judge, machine, median, number, print_json, progress, quantile, say};
use crate::Failure;

/// What `handover bench mcp` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Which measurement to make
    #[arg(long, value_enum, default_value_t = Part::All)]
    part: Part,
    /// The server to measure, as host:port [default: a server of this binary, started for the run]
    #[arg(long, value_name = "ADDR")]
    target: Option<String>,
    /// The process of the target, for its processor time
    #[arg(long, requires = "target")]
    pid: Option<u32>,
    /// The bearer token of the agent that hands tasks out; in development mode it is its id
    #[arg(long, value_name = "TOKEN", default_value = "planner")]
    requester_token: String,
    /// The bearer token of the agent that does them
    #[arg(long, value_name = "TOKEN", default_value = "worker")]
    worker_token: String,
    /// Over how many connections tasks are polled
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// How many running tasks are polled
    #[arg(long, default_value_t = 64)]
    polled: usize,
    /// How often the server and the bare handler take turns
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long each turn is
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many calls are under way at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    in_flight: Vec<usize>,
    /// How many follow one task
    #[arg(long, default_value_t = 1000)]
    subscribers: usize,
    /// How many updates they are told of
    #[arg(long, default_value_t = 50)]
    updates: u64,
    /// How many tasks are running when the server is killed
    #[arg(long, default_value_t = 1000)]
    tasks: usize,
    /// Where the servers of this binary put their data, which is removed afterwards [default: a new directory here]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Small sizes and short turns: shows that it works, not how fast
    #[arg(long)]
    toy: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Serve this body to every POST, until standard input ends
    #[arg(long, hide = true, value_name = "BODY")]
    bare_server: Option<String>,
}

const HELP: &str = "\
Parts:
  polls        tasks/get of running tasks over many connections, in turns with a bare axum handler that returns a canned
               body of the same size from a process of its own: processor time and latency of each
  calls        tools/call of a skill that answers with a task, to its durable CreateTaskResult
  subscribers  many subscriptions/listen to one task: from the answer to the worker's work_update, and from its call, until
               half of them and the last have the notification
  restart      the server is killed (SIGKILL) with many tasks running and started again on the same data and port; clients
               poll on and workers go on, and every task must finish with its result. Only without --target
  all          all of them

An answer that is not as expected ends the run with an error, and so does a task that is lost. Whether a claim holds is
printed and is no error: it depends on the machine and on what else runs there.

Calls leave their tasks open: a target needs limits.sessions_open_per_agent_max to suit, and for subscribers
limits.streams_per_agent_max.

Examples:
  handover bench mcp
  handover bench mcp --part polls --rounds 15 --json > polls.json
  handover bench mcp --target 127.0.0.1:8420 --pid 4711
  handover bench mcp --toy";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Polls,
    Calls,
    Subscribers,
    Restart,
    All,
}

/// How long anything may take before the server is taken to hang.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// What a run needs more of than everybody may have.
const SETTINGS: [(&str, &str); 2] = [
    ("HANDOVER_LIMITS_SESSIONS_OPEN_PER_AGENT_MAX", "10000000"),
    ("HANDOVER_LIMITS_STREAMS_PER_AGENT_MAX", "100000"),
];

/// At most so much more processor time than the bare handler, and so much more time.
const CPU_MAX: f64 = 1.3;
const MEDIAN_MAX: f64 = 2.0;

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(body) = &args.bare_server {
        return bare::serve(body);
    }
    let pid = args.pid.map(|pid| pid.to_string());
    if let Some(pid) = pid.as_ref().filter(|pid| machine::cpu_seconds(pid).is_none()) {
        return Err(Failure::Usage(format!("--pid: expected a process of this machine, found {pid}")));
    }
    let runtime = Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    let dir = Scratch::new(args.data.as_deref())?;
    let server = match &args.target {
        Some(_) => None,
        None => Some(Server::start_at(&dir.path.join("server"), "127.0.0.1:0", &SETTINGS)?),
    };
    let own = server.as_ref().map(|server| (server.http.clone(), server.pid().to_string()));
    let target = args.target.as_ref().or(own.as_ref().map(|(http, _)| http)).cloned().unwrap_or_default();
    let mut bench = Bench {
        sizes: Sizes::of(args),
        cast: cast(args, &target),
        pid: pid.or(own.map(|(_, pid)| pid)),
        dir: dir.path.clone(),
        runtime,
        toy: args.toy,
        json: args.json,
        verdicts: Vec::new(),
    };
    let whose = if server.is_some() { format!("handover {}", env!("CARGO_PKG_VERSION")) } else { target };
    say(args.json, &format!("{whose}, {} cores{}", machine::cores(), super::load()));
    let result = bench.measure(args)?;
    // The connections go with the threads: the server does not have to wait for them.
    bench.runtime.shutdown_timeout(Duration::from_secs(1));
    if let Some(server) = server {
        server.stop()?;
    }
    if args.json { print_json(&result) } else { Ok(()) }
}

fn cast(args: &Args, target: &str) -> Cast {
    let agent = |token: &str| Agent { target: target.to_owned(), token: token.to_owned() };
    Cast { requester: agent(&args.requester_token), worker: agent(&args.worker_token) }
}

/// The sizes in effect.
struct Sizes {
    connections: usize,
    polled: usize,
    rounds: usize,
    turn: Duration,
    warm_up: Duration,
    in_flight: Vec<usize>,
    subscribers: usize,
    updates: u64,
    tasks: usize,
}

impl Sizes {
    fn of(args: &Args) -> Sizes {
        let size = |full: usize, toy: usize| if args.toy { full.min(toy) } else { full }.max(1);
        let seconds = |full: f64, toy: f64| Duration::from_secs_f64(if args.toy { toy } else { full });
        Sizes {
            connections: args.connections.max(1),
            polled: args.polled.max(1),
            rounds: size(args.rounds, 2),
            turn: seconds(args.seconds.clamp(0.05, 3600.0), 0.2),
            warm_up: seconds(0.5, 0.05),
            in_flight: args.in_flight.iter().map(|clients| (*clients).max(1)).collect(),
            subscribers: size(args.subscribers, 20),
            updates: args.updates.clamp(1, if args.toy { 5 } else { u64::MAX }),
            tasks: size(args.tasks, 50),
        }
    }
}

struct Bench {
    sizes: Sizes,
    cast: Cast,
    /// The process of the server, if it is known.
    pid: Option<String>,
    dir: PathBuf,
    runtime: Runtime,
    toy: bool,
    json: bool,
    verdicts: Vec<Value>,
}

impl Bench {
    fn say(&self, line: &str) {
        say(self.json, line);
    }

    fn judge(&mut self, claim: &str, holds: bool, found: &str) {
        self.verdicts.push(judge(self.toy, self.json, claim, holds, found));
    }

    fn measure(&mut self, args: &Args) -> Result<Value, Failure> {
        let wants = |part| args.part == part || args.part == Part::All;
        let mut result = json!({
            "bench": "mcp",
            "version": env!("CARGO_PKG_VERSION"),
            "cores": machine::cores(),
            "toy": args.toy,
        });
        self.runtime.block_on(self.cast.register())?;
        if wants(Part::Polls) {
            result["polls"] = self.polls()?;
        }
        // Before the calls, whose tasks nobody does, would be in front of its own.
        if wants(Part::Subscribers) {
            result["subscribers"] = self.subscribers()?;
        }
        if wants(Part::Calls) {
            result["calls"] = self.calls()?;
        }
        if wants(Part::Restart) && args.target.is_none() {
            result["restart"] = self.restart(args)?;
        }
        result["claims"] = Value::Array(std::mem::take(&mut self.verdicts));
        Ok(result)
    }

    /// Polls of running tasks, in turns with a bare handler.
    fn polls(&mut self) -> Result<Value, Failure> {
        progress("beginning tasks");
        let (ours, canned) = self.runtime.block_on(self.polled())?;
        let bare = Bare::start(&String::from_utf8_lossy(&canned))?;
        let requester = Agent { target: bare.address.clone(), ..self.cast.requester.clone() };
        let theirs =
            Ask { agent: requester, requests: ours.requests.clone(), expect: Expect::Same(vec![canned]) };
        let (ours, theirs) = (Arc::new(ours), Arc::new(theirs));
        let mut rounds = Rounds::default();
        for round in 0..self.sizes.rounds {
            progress(&format!("polls, turn {} of {}", round + 1, self.sizes.rounds));
            rounds.bare.push(self.turn(&theirs, self.sizes.connections, Some(&bare.pid()))?);
            rounds.ours.push(self.turn(&ours, self.sizes.connections, self.pid.as_deref())?);
        }
        progress("");
        let row = rounds.row(self.sizes.connections);
        self.say(&format!("polls: tasks/get over {} connections", self.sizes.connections));
        self.say("                  polls/s    p50 us   p99 us   CPU us each   generator us each");
        for (name, label) in [("server", "server"), ("bare", "bare handler")] {
            let side = &row[name];
            self.say(&format!(
                "{label:14} {:10.0} {:9.0} {:8.0} {:13.2} {:19.2}",
                number(side, "per_second"),
                number(side, "p50_us"),
                number(side, "p99_us"),
                number(side, "cpu_us"),
                number(side, "generator_cpu_us"),
            ));
        }
        let median = number(&row, "p50_ratio");
        let found = format!("{median:.2} times");
        self.judge(
            "the median poll takes as long as a bare handler, within a factor of 2",
            median <= MEDIAN_MAX,
            &found,
        );
        if let Some(cpu) = row["cpu_ratio"].as_f64() {
            let found = format!("{cpu:.2} times");
            self.judge(
                "a poll costs at most 1.3 times the processor time of a bare handler",
                cpu <= CPU_MAX,
                &found,
            );
        }
        Ok(row)
    }

    /// Running tasks, what to ask of them, and what each is answered; and one of the answers.
    async fn polled(&self) -> Result<(Ask, Vec<u8>), Failure> {
        let agent = self.cast.requester.clone();
        let ids = self.cast.running(self.sizes.polled).await?;
        let requests: Vec<Vec<u8>> = ids.iter().map(|id| agent.look(id)).collect();
        let mut connection = connect(&agent).await?;
        let mut bodies = Vec::with_capacity(requests.len());
        for request in &requests {
            let body = connection.exchange(request).await;
            let body = body.map_err(|error| Failure::fault("polling", &error))?.to_vec();
            if wire::result(&body)?["status"] != "working" {
                let found = String::from_utf8_lossy(&body);
                return Err(Failure::Fault(format!("expected a running task, found {found}")));
            }
            bodies.push(body);
        }
        let canned = bodies.first().cloned().unwrap_or_default();
        Ok((Ask { agent, requests, expect: Expect::Same(bodies) }, canned))
    }

    fn turn(&self, ask: &Arc<Ask>, connections: usize, pid: Option<&str>) -> Result<Turn, Failure> {
        load::turn(ask, connections, self.sizes.warm_up, self.sizes.turn, pid)
    }

    fn calls(&mut self) -> Result<Value, Failure> {
        let request = self.cast.call(7);
        let expect = Expect::With(b"\"resultType\":\"task\"");
        let ask = Arc::new(Ask { agent: self.cast.requester.clone(), requests: vec![request], expect });
        self.say("calls: tools/call to a durable CreateTaskResult");
        self.say("in flight     tasks/s    p50 us   p99 us   CPU us each");
        let mut rows = Vec::new();
        for clients in self.sizes.in_flight.clone() {
            progress(&format!("{clients} calls in flight"));
            let mut turn = self.turn(&ask, clients, self.pid.as_deref())?;
            progress("");
            let row = json!({
                "in_flight": clients,
                "tasks": turn.latencies_us.len(),
                "per_second": turn.rate(),
                "p50_us": quantile(&mut turn.latencies_us, 0.5),
                "p99_us": quantile(&mut turn.latencies_us, 0.99),
                "cpu_us": turn.server_us,
            });
            self.say(&format!(
                "{clients:9} {:11.0} {:9.0} {:8.0} {:13.1}",
                number(&row, "per_second"),
                number(&row, "p50_us"),
                number(&row, "p99_us"),
                number(&row, "cpu_us"),
            ));
            rows.push(row);
        }
        Ok(Value::Array(rows))
    }

    fn subscribers(&mut self) -> Result<Value, Failure> {
        let Sizes { subscribers, updates, .. } = self.sizes;
        let wanted = subscribers + 64;
        if let Some(found) = machine::open_files_max().filter(|found| *found < wanted) {
            let message = format!("expected room for {wanted} open files (ulimit -n), found {found}");
            return Err(Failure::Usage(message));
        }
        progress(&format!("{subscribers} subscribers"));
        let row = self.runtime.block_on(subscribers::measure(&self.cast, subscribers, updates))?;
        progress("");
        self.say(&format!("subscribers: {subscribers} follow one task, {updates} updates"));
        self.say("ms                          p50      p99");
        for (name, label) in [
            ("answer_ms", "call to answer"),
            ("answer_to_median_ms", "answer to half of them"),
            ("answer_to_last_ms", "answer to the last"),
            ("call_to_median_ms", "call to half of them"),
            ("call_to_last_ms", "call to the last"),
        ] {
            let at = |index: usize| row[name][index].as_f64().unwrap_or_default();
            self.say(&format!("{label:22} {:8.1} {:8.1}", at(0), at(1)));
        }
        Ok(row)
    }

    fn restart(&mut self, args: &Args) -> Result<Value, Failure> {
        let tasks = self.sizes.tasks;
        progress(&format!("{tasks} tasks, and a crash"));
        let data = self.dir.join("restart");
        let measured = restart::measure(&data, |target| cast(args, target), tasks);
        let row = self.runtime.block_on(measured)?;
        progress("");
        self.say(&format!(
            "restart: killed with {tasks} tasks begun, {} of them completed; {} calls interrupted; ready again after {:.3} s",
            row["completed_before_the_kill"],
            row["calls_interrupted"],
            number(&row, "ready_again_seconds"),
        ));
        let found = format!("{} finished, {} lost", row["finished"], row["lost"]);
        self.judge("a crash in the middle loses no task", row["lost"] == 0, &found);
        Ok(row)
    }
}

/// The turns of both sides.
#[derive(Default)]
struct Rounds {
    ours: Vec<Turn>,
    bare: Vec<Turn>,
}

impl Rounds {
    fn row(mut self, connections: usize) -> Value {
        let ours: Vec<Value> = self.ours.iter_mut().map(side).collect();
        let bare: Vec<Value> = self.bare.iter_mut().map(side).collect();
        let middle =
            |side: &[Value], name: &str| median(side.iter().map(|turn| number(turn, name)).collect());
        let ratio = |name: &str| {
            let ratios = ours.iter().zip(&bare).map(|(ours, bare)| number(ours, name) / number(bare, name));
            median(ratios.collect())
        };
        let all = |side: &[Value]| {
            let names = ["per_second", "p50_us", "p99_us", "cpu_us", "generator_cpu_us"];
            names.iter().map(|name| ((*name).to_owned(), Value::from(middle(side, name)))).collect::<Value>()
        };
        let known = ours.iter().chain(&bare).all(|turn| turn["cpu_us"].is_f64());
        json!({
            "connections": connections,
            "server": all(&ours),
            "bare": all(&bare),
            "p50_ratio": ratio("p50_us"),
            "cpu_ratio": known.then(|| ratio("cpu_us")),
            "turns": { "server": ours, "bare": bare },
        })
    }
}

fn side(turn: &mut Turn) -> Value {
    json!({
        "per_second": turn.rate(),
        "p50_us": quantile(&mut turn.latencies_us, 0.5),
        "p99_us": quantile(&mut turn.latencies_us, 0.99),
        "cpu_us": turn.server_us,
        "generator_cpu_us": turn.client_us,
    })
}
