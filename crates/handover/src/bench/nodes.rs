//! `handover bench nodes`: engines that share a PostgreSQL, beside what that gives without them in the same run.
//!
//! - `reads`: `tasks/get` at servers
//! - `standby`: a standby that commits wait for

mod reads;
mod standby;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use handover_engine::answer::End;
use handover_engine::{Counters, Engine, Settings, Topic, clock};
use handover_kernel::Command;
use handover_kernel::command::Act;
use handover_store::postgres::{self, Bare, Database, Options};
use handover_store::{Place, PostgresStore, Store};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::standby::Standby;
use super::life::{self, Lives};
use super::limit::Limit;
use super::turns::{self, Turn};
use super::{fill, judge, load, machine, median, number, print_json, progress, quantile, say};
use crate::Failure;
use crate::database::In;

/// What `handover bench nodes` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    database: In,
    /// Which measurement to make
    #[arg(long, value_enum, default_value_t = Part::All)]
    part: Part,
    /// How often what is compared takes turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each turn is
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many minutes sessions are started, ended and deleted in the `size` part
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Small sizes and short turns: shows that it works, not how fast
    #[arg(long)]
    toy: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Parts:
  one      durable events per second of one node, beside one connection that inserts batches of the same bytes
  three    three nodes beside one, also with a synchronous standby that applies each commit 3 ms late (only without --store)
  follow   how long after its answer an event reaches a follower at another node, at 1,000 events per second, with and without
           NOTIFY
  reads    tasks/get of a task that another server changes all the time, beside SELECT 1; and the processor time of one that
           nobody changes, beside that of the embedded store
  hammer   one session to which three nodes write as fast as they can, and how many races a node loses in a row
  due      10,000 sessions that expire at one moment on three nodes
  size     the tables while sessions start, end and are deleted at one rate
  all      all of them but size, which takes long

Without --store it is the database of HANDOVER_TEST_POSTGRES, as scripts/postgres starts one. A schema of its own is made in it, and
removed.

Examples:
  scripts/postgres handover bench nodes
  handover bench nodes --part three --store postgres://bench@db.example.com/bench";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    One,
    Three,
    Follow,
    Reads,
    Hammer,
    Due,
    Size,
    All,
}

/// How many events per second the `follow` part has, and how many sessions expire at once in the `due` part.
const FOLLOWED_PER_SECOND: u64 = 1000;
const DUE: u64 = 10_000;

/// How late the standby applies what it gets.
const STANDBY_LATE: Duration = Duration::from_millis(3);

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let own = std::env::var("HANDOVER_TEST_POSTGRES").ok();
    let (options, own) = match (args.database.options()?, own) {
        (Some(options), _) => (options, None),
        (None, Some(url)) => {
            let database = Database::read(&url, None, None).map_err(Failure::Usage)?;
            (Options::new(database), Some(url))
        }
        (None, None) => {
            return Err(Failure::Usage(
                "expected a database, found none: name one with --store, or run it by scripts/postgres"
                    .to_owned(),
            ));
        }
    };
    let toy = args.toy;
    let variables = match &own {
        Some(url) => vec![("HANDOVER_STORE", url.clone())],
        None => args.database.variables(),
    };
    let bench = Bench {
        options: Options { schema: format!("bench_{}", std::process::id()), ..options },
        own,
        variables,
        runtime: Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?,
        rounds: if toy { 1 } else { args.rounds.max(1) },
        length: Duration::from_secs_f64(if toy { 0.3 } else { args.seconds.clamp(0.05, 3600.0) }),
        minutes: if toy { 0.05 } else { args.minutes },
        lives: Arc::new(Lives::from(0)),
        toy,
        json: args.json,
    };
    say(args.json, &format!("{} cores{}", machine::cores(), load()));
    let mut result = json!({
        "bench": "nodes", "version": env!("CARGO_PKG_VERSION"), "cores": machine::cores(), "toy": toy,
    });
    type Measure = fn(&Bench) -> Result<Value, Failure>;
    let parts: [(Part, &str, Measure); 7] = [
        (Part::One, "one", Bench::one),
        (Part::Three, "three", Bench::three),
        (Part::Follow, "follow", Bench::follow),
        (Part::Reads, "reads", Bench::reads),
        (Part::Hammer, "hammer", Bench::hammer),
        (Part::Due, "due", Bench::due),
        (Part::Size, "size", Bench::size),
    ];
    for (part, name, measure) in parts {
        if args.part == part || (args.part == Part::All && (part != Part::Size || toy)) {
            let measured = measure(&bench);
            bench.clean()?;
            result[name] = measured?;
        }
    }
    if args.json {
        print_json(&result)?;
    }
    Ok(())
}

struct Bench {
    options: Options,
    /// The database that was started for this run, if it was.
    own: Option<String>,
    /// What servers are told, so that they use the same.
    variables: Vec<(&'static str, String)>,
    runtime: Runtime,
    rounds: usize,
    length: Duration,
    minutes: f64,
    lives: Arc<Lives>,
    toy: bool,
    json: bool,
}

/// What a node gets done in the session that others write to as well.
struct Hammer {
    counters: Arc<Counters>,
    done: AtomicU64,
    /// How many races it had lost when it last won one, and how many it lost in a row at most.
    lost: AtomicU64,
    longest: AtomicU64,
}

impl Hammer {
    fn new(counters: &Arc<Counters>) -> Hammer {
        let lost = AtomicU64::new(counters.conflicts.get());
        Hammer { counters: Arc::clone(counters), done: AtomicU64::new(0), lost, longest: AtomicU64::new(0) }
    }

    fn won(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        let now = self.counters.conflicts.get();
        let before = self.lost.swap(now, Ordering::Relaxed);
        self.longest.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

/// Engines that share a database, each with a store of its own.
struct Nodes {
    engines: Vec<Engine>,
    stores: Vec<Arc<dyn Store>>,
    counters: Vec<Arc<Counters>>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.engines.iter().for_each(Engine::stop);
    }
}

impl Bench {
    fn say(&self, line: &str) {
        say(self.json, line);
    }

    fn judge(&self, claim: &str, holds: bool, found: &str) -> Value {
        judge(self.toy, self.json, claim, holds, found)
    }

    fn nodes(&self, count: usize, settings: &Settings) -> Result<Nodes, Failure> {
        self.nodes_by(count, settings, true)
    }

    fn nodes_by(&self, count: usize, settings: &Settings, hints: bool) -> Result<Nodes, Failure> {
        let mut nodes = Nodes { engines: Vec::new(), stores: Vec::new(), counters: Vec::new() };
        for number in 0..count {
            let options = Options { node: format!("bench-{number}"), hints, ..self.options.clone() };
            let store = PostgresStore::open(options);
            let store: Arc<dyn Store> =
                Arc::new(store.map_err(|fault| Failure::fault("opening the store", &fault))?);
            let counters = Counters::new();
            let engine = Engine::start(Arc::clone(&store), settings.clone(), Arc::clone(&counters));
            nodes.engines.push(engine.map_err(|fault| Failure::fault("starting the engine", &fault))?);
            nodes.stores.push(store);
            nodes.counters.push(counters);
        }
        Ok(nodes)
    }

    fn bare(&self) -> Result<Bare, Failure> {
        Bare::open(self.options.clone()).map_err(|fault| Failure::fault("measuring the database", &fault))
    }

    fn limit(&self, clients: usize) -> Result<Turn, Failure> {
        let mut bare = self.bare()?;
        let failed = |error| Failure::fault("starting the limit", &error);
        let limit = Limit::with(move |events| bare.insert(events).map_err(std::io::Error::other));
        let limit = limit.map_err(failed)?;
        let turn = turns::of_threads(&limit, clients, self.length)?;
        limit.stop().map_err(failed)?;
        Ok(turn)
    }

    fn lives(&self, nodes: &Nodes, clients: usize) -> Result<Turn, Failure> {
        turns::of_engines(&self.runtime, &nodes.engines, clients, self.length, &self.lives)
    }

    /// Nodes on tables that are as empty as that of the limit, which is made anew each turn.
    fn anew(&self, count: usize) -> Result<Nodes, Failure> {
        self.clean()?;
        self.nodes(count, &fill::settings())
    }

    fn clean(&self) -> Result<(), Failure> {
        postgres::remove(self.options.clone()).map_err(|fault| Failure::fault("removing the schema", &fault))
    }

    fn one(&self) -> Result<Value, Failure> {
        let mut rows = Vec::new();
        self.say("one node\nin flight   node ev/s   limit ev/s   ratio   node p50/p99 us   limit p50 us");
        for clients in [1, 16, 64, 256] {
            let (mut ours, mut limits) = (Vec::new(), Vec::new());
            for round in 0..self.rounds {
                progress(&format!("{clients} in flight, turn {} of {}", round + 1, self.rounds));
                limits.push(self.limit(clients)?);
                ours.push(self.lives(&self.anew(1)?, clients)?);
            }
            let ratio =
                median(ours.iter().zip(&limits).map(|(ours, limit)| ours.rate() / limit.rate()).collect());
            let row = json!({
                "in_flight": clients,
                "events_per_second": median(ours.iter().map(Turn::rate).collect()),
                "limit_events_per_second": median(limits.iter().map(Turn::rate).collect()),
                "ratio": ratio,
                "p50_us": median(ours.iter_mut().map(|turn| turn.latency(0.5)).collect()),
                "p99_us": median(ours.iter_mut().map(|turn| turn.latency(0.99)).collect()),
                "limit_p50_us": median(limits.iter_mut().map(|turn| turn.latency(0.5)).collect()),
            });
            self.say(&format!(
                "{clients:9} {:11.0} {:12.0}   {ratio:5.2}   {:7.0} {:8.0} {:14.0}",
                number(&row, "events_per_second"),
                number(&row, "limit_events_per_second"),
                number(&row, "p50_us"),
                number(&row, "p99_us"),
                number(&row, "limit_p50_us"),
            ));
            match clients {
                64 => {
                    _ = self.judge(
                        "at 64 in flight at least 0.20 of the limit",
                        ratio >= 0.20,
                        &format!("{ratio:.2}"),
                    )
                }
                256 => _ = self.judge("at 256 at least 0.15", ratio >= 0.15, &format!("{ratio:.2}")),
                1 => {
                    let times = number(&row, "p50_us") / number(&row, "limit_p50_us");
                    self.judge("at 1 a median within 4 of the limit's", times <= 4.0, &format!("{times:.2}"));
                }
                _ => {}
            }
            rows.push(row);
        }
        Ok(Value::Array(rows))
    }

    fn three(&self) -> Result<Value, Failure> {
        let mut rows = vec![self.three_beside_one("as it is", 1.2, None)?];
        if let Some(url) = &self.own
            && let Some(standby) = Standby::start(self.bare()?, url, STANDBY_LATE)?
        {
            let how = format!("with a standby that is {} ms late", STANDBY_LATE.as_millis());
            rows.push(self.three_beside_one(&how, 2.2, Some(1.5))?);
            drop(standby);
        } else {
            self.say("no standby can be started beside this database: scripts/postgres starts one where that can be");
        }
        Ok(Value::Array(rows))
    }

    fn three_beside_one(&self, how: &str, least: f64, most: Option<f64>) -> Result<Value, Failure> {
        let (mut rates, mut ratios, mut times) = ([Vec::new(), Vec::new()], Vec::new(), Vec::new());
        for round in 0..self.rounds {
            progress(&format!("{how}, turn {} of {}", round + 1, self.rounds));
            let mut one = self.lives(&self.anew(1)?, 64)?;
            let mut three = self.lives(&self.anew(3)?, 3 * 64)?;
            ratios.push(three.rate() / one.rate());
            times.push(three.latency(0.5) / one.latency(0.5));
            rates[0].push(one.rate());
            rates[1].push(three.rate());
        }
        let [one, three] = rates.map(median);
        let (ratio, times) = (median(ratios), median(times));
        self.say(&format!(
            "{how}: three nodes of 64 in flight {three:.0} ev/s, one {one:.0}, its median {times:.2} times"
        ));
        self.judge(&format!("at least {least} times"), ratio >= least, &format!("{ratio:.2}"));
        if let Some(most) = most {
            let claim = format!("a median at most {most} times that of one node");
            self.judge(&claim, times <= most, &format!("{times:.2}"));
        }
        Ok(json!({ "how": how, "one": one, "three": three, "ratio": ratio, "median_times": times }))
    }

    /// Tasks that two nodes have in memory, in which something can happen again and again.
    fn open_tasks(&self, engine: &Engine, count: u64) -> Result<Vec<u64>, Failure> {
        let first = self.lives.take(count);
        let numbers: Vec<u64> = (first..first + count).collect();
        for number in &numbers {
            let (key, commands) = life::life(*number);
            let open = commands.into_iter().take(life::OPEN_EVENTS);
            self.runtime.block_on(fill::live(engine, key, open, &mut Vec::new()))?;
        }
        Ok(numbers)
    }

    fn follow(&self) -> Result<Value, Failure> {
        Ok(Value::Array(vec![self.follow_by(true)?, self.follow_by(false)?]))
    }

    fn follow_by(&self, hints: bool) -> Result<Value, Failure> {
        let nodes = self.nodes_by(2, &fill::settings(), hints)?;
        if hints {
            self.until_hints_come(&nodes)?;
        }
        let [one, two] = &nodes.engines[..] else { unreachable!("two were started") };
        let tasks = self.open_tasks(one, 50)?;
        let heard: Arc<std::sync::Mutex<std::collections::BTreeMap<(String, u64), Instant>>> = Arc::default();
        let mut subscription = two.subscribe(Topic::Everything, self.last(&nodes)?);
        let (hearing, told) = (Arc::clone(&heard), tokio::sync::watch::channel(0_u64));
        let follower = self.runtime.spawn(async move {
            while let Ok(events) = subscription.next().await {
                let now = Instant::now();
                let mut heard = hearing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                for delivery in &events {
                    heard.insert((delivery.key.session.to_string(), delivery.event.seq.0), now);
                }
                told.0.send_modify(|count| *count += events.len() as u64);
            }
        });
        let count = (self.length.as_secs_f64() * self.rounds as f64 * FOLLOWED_PER_SECOND as f64) as u64;
        let (begun, mut answered) = (Instant::now(), Vec::new());
        let writing = async {
            let mut writes = tokio::task::JoinSet::new();
            for step in 0..count {
                let due = begun + Duration::from_micros(step * 1_000_000 / FOLLOWED_PER_SECOND);
                tokio::time::sleep_until(due.into()).await;
                let task = tasks[(step % tasks.len() as u64) as usize];
                let engine = one.clone();
                writes.spawn(async move {
                    let (key, command) = (life::key(task), life::one_more_update(task, None));
                    let accepted = engine.submit(key.clone(), command).await;
                    accepted
                        .map(|accepted| ((key.session.to_string(), accepted.receipt.seq.0), Instant::now()))
                });
            }
            while let Some(written) = writes.join_next().await {
                let written = written.map_err(|error| Failure::fault("writing", &error))?;
                answered.push(written.map_err(|_| Failure::Fault("an update was not taken".to_owned()))?);
            }
            Ok::<_, Failure>(())
        };
        self.runtime.block_on(writing)?;
        let deadline = Instant::now() + Duration::from_secs(30);
        let heard = || heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while heard().len() < count as usize && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        follower.abort();
        let heard = heard();
        let mut after = Vec::new();
        for (what, at) in &answered {
            let told = heard.get(what);
            let told =
                told.ok_or_else(|| Failure::Fault("the follower was not told of an event".to_owned()))?;
            after.push(told.saturating_duration_since(*at).as_secs_f64() * 1e3);
        }
        let [p50, p99] = [0.5, 0.99].map(|share| quantile(&mut after, share));
        self.say(&format!(
            "{count} events reach a follower at another node {} NOTIFY: p50 {p50:.1} ms, p99 {p99:.1} ms",
            if hints { "with" } else { "without" }
        ));
        self.judge("p99 under 100 ms", p99 < 100.0, &format!("{p99:.1} ms"));
        Ok(json!({ "notify": hints, "events": count, "p50_ms": p50, "p99_ms": p99 }))
    }

    fn until_hints_come(&self, nodes: &Nodes) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !nodes.stores.iter().all(|store| store.hints()) {
            if Instant::now() > deadline {
                return Err(Failure::Fault(
                    "expected that NOTIFY arrives, found that it does not".to_owned(),
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn last(&self, nodes: &Nodes) -> Result<Place, Failure> {
        nodes.stores[0].last_place().map_err(|fault| Failure::fault("reading the last place", &fault))
    }

    /// What each node got done in one session, and how many races it lost in a row at most.
    fn hammer_by(&self, count: usize) -> Result<Vec<(u64, u64)>, Failure> {
        let nodes = self.nodes(count, &fill::settings())?;
        let task = self.open_tasks(&nodes.engines[0], 1)?[0];
        let hammers: Arc<Vec<Hammer>> = Arc::new(nodes.counters.iter().map(Hammer::new).collect());
        // More than the commands of one node, so that each node's commits have something in them all the time.
        let clients = 8 * count;
        turns::of_tasks(&self.runtime, clients, self.length, |number, stop| {
            let (engine, hammers) = (nodes.engines[number % count].clone(), Arc::clone(&hammers));
            async move {
                while !stop.load(Ordering::Relaxed) {
                    let taken = engine.submit(life::key(task), life::one_more_update(task, None)).await;
                    taken.map_err(|_| Failure::Fault("an update was not taken".to_owned()))?;
                    hammers[number % count].won();
                }
                Ok(Vec::new())
            }
        })?;
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Ok(hammers.iter().map(|hammer| (load(&hammer.done), load(&hammer.longest))).collect())
    }

    fn hammer(&self) -> Result<Value, Failure> {
        let (mut shares, mut leasts, mut longest) = (Vec::new(), Vec::new(), 0);
        for round in 0..self.rounds {
            progress(&format!("one session, turn {} of {}", round + 1, self.rounds));
            let alone = self.hammer_by(1)?[0].0 as f64;
            let three = self.hammer_by(3)?;
            let done: Vec<f64> = three.iter().map(|(done, _)| *done as f64).collect();
            shares.push(done.iter().sum::<f64>() / alone);
            leasts.push(done.iter().copied().fold(f64::INFINITY, f64::min) / alone);
            longest = three.iter().map(|(_, lost)| *lost).fold(longest, u64::max);
        }
        let (share, least) = (median(shares), median(leasts));
        self.say(&format!(
            "one session: three nodes get done {share:.2} of what one does, the least of them {least:.3}; at most {longest} races \
             lost in a row"
        ));
        self.judge(
            "three get done at least a third of what one does",
            share >= 1.0 / 3.0,
            &format!("{share:.2}"),
        );
        self.judge("no node less than a tenth of a third", least >= 1.0 / 30.0, &format!("{least:.3}"));
        Ok(json!({ "share": share, "least": least, "longest_run_lost": longest }))
    }

    fn due(&self) -> Result<Value, Failure> {
        let nodes = self.nodes(3, &fill::settings())?;
        let count = if self.toy { 100 } else { DUE };
        let first = self.lives.take(count);
        let at = clock::now().0 + if self.toy { 1_000 } else { 15_000 };
        let part = move |number: u64| {
            let (key, commands) = life::life(number);
            let left = at.saturating_sub(clock::now().0).max(1);
            (key, commands.into_iter().take(1).map(move |command| within(command, left)))
        };
        self.runtime.block_on(fill::many(&nodes.engines[0], first..first + count, part, "opening"))?;
        let ended = || nodes.counters.iter().map(|one| one.ended(End::Expired)).sum::<u64>();
        let deadline = Instant::now() + Duration::from_secs(60);
        while ended() < count && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let late = clock::now().0.saturating_sub(at);
        let ticks: u64 = nodes.counters.iter().map(|one| one.ticks.get()).sum();
        let each = ticks as f64 / count as f64;
        self.say(&format!(
            "{} of {count} sessions expired {late} ms after their moment, {each:.2} ticks each",
            ended()
        ));
        self.judge("all in 2 s", ended() == count && late <= 2000, &format!("{late} ms"));
        self.judge("at most 1.1 ticks each", each <= 1.1, &format!("{each:.2}"));
        Ok(json!({ "sessions": count, "late_ms": late, "ticks_each": each }))
    }

    fn size(&self) -> Result<Value, Failure> {
        let settings = Settings { retention_ms: Some(5_000), ..fill::settings() };
        let nodes = self.nodes(2, &settings)?;
        let sizes = || self.bare()?.sizes().map_err(|fault| Failure::fault("reading sizes", &fault));
        let (length, begun) = (Duration::from_secs_f64(self.minutes * 60.0), Instant::now());
        let (mut middle, mut lived) = (None, 0_u64);
        // One life each 5 ms, for as long as it takes.
        while begun.elapsed() < length {
            let (key, commands) = self.lives.next();
            let engine = &nodes.engines[(lived % 2) as usize];
            self.runtime.block_on(fill::live(engine, key, commands, &mut Vec::new()))?;
            lived += 1;
            if middle.is_none() && begun.elapsed() > length / 2 {
                middle = Some(sizes()?);
            }
            let due = begun + Duration::from_millis(lived * 5);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let (end, middle) = (sizes()?, middle.unwrap_or_default());
        let ratio = end.0 as f64 / middle.0.max(1) as f64;
        let each = end.1 as f64 / lived.max(1) as f64;
        self.say(&format!(
            "{lived} sessions lived: tables {:.1} MB in the middle, {:.1} MB at the end, and {each:.0} bytes of a tombstone each",
            middle.0 as f64 / 1e6,
            end.0 as f64 / 1e6
        ));
        self.judge("at most 1.1 times", ratio <= 1.1, &format!("{ratio:.2}"));
        Ok(
            json!({ "sessions": lived, "middle_bytes": middle.0, "end_bytes": end.0, "ratio": ratio, "tombstone_bytes": each }),
        )
    }
}

/// A start of a session that has so long.
fn within(mut command: Command, ttl_ms: u64) -> Command {
    if let Act::Start(start) = &mut command.act {
        start.ttl_ms = Some(ttl_ms);
    }
    command
}
