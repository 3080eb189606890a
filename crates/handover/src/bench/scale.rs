//! `handover bench scale`: whether cost stays flat as things grow, on a server of this very binary, over gRPC.
//!
//! - [`crowd`]: many sessions, and who hands them out
//! - [`updates`]: a task with many updates
//! - [`pages`]: a list of many sessions
//! - [`past`]: an agent that has done much before
//! - [`opening`]: a session with many events that is not in memory
//! - [`expiry`]: many sessions whose time is up at the same moment
//! - [`idle`]: many streams that nothing happens on, while the server stops
//!
//! Each claim is judged by numbers of the same run.

mod crowd;
mod expiry;
mod idle;
pub(super) mod opening;
mod pages;
mod past;
mod updates;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::crowd::Crowd;
use self::expiry::Expiry;
use super::macp::runtime::{Server, failed};
use super::macp::script::By;
use super::{Scratch, judge, load, machine, number, print_json, progress, say};
use crate::Failure;

/// What `handover bench scale` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// How many sessions are open and idle
    #[arg(long, default_value_t = 50_000)]
    sessions: usize,
    /// How many sessions expire at the same moment
    #[arg(long, default_value_t = 10_000)]
    expiring: usize,
    /// How many streams are open and idle while the server stops
    #[arg(long, default_value_t = 1_000)]
    streams: usize,
    /// How many updates a long task gets
    #[arg(long, default_value_t = 1_000)]
    updates: usize,
    /// How many long tasks, one after the other
    #[arg(long, default_value_t = 20)]
    tasks: usize,
    /// How many sessions an agent with a long past has finished
    #[arg(long, default_value_t = 100_000)]
    finished: usize,
    /// How many events a long session has
    #[arg(long, default_value_t = 100_000)]
    events: usize,
    /// Where the server puts its data, which is removed afterwards [default: a new directory here]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Small sizes: shows that it works, not how fast
    #[arg(long)]
    toy: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
What is measured, in this order:
  updates  tasks that get one update after the other: the last tenth beside the first tenth of the same tasks
  stop     SIGTERM with many open sessions and many open streams, until the process has ended
  start    the next start on the same data, until the first call is answered
  expiry   many sessions with one deadline: from the deadline until all have expired, and Sends of others before it and
           meanwhile; first with sessions that are not in memory, then with sessions that are
  pages    a list of all sessions, page by page: the last tenth beside the first tenth
  past     what waits for an agent that has finished many sessions, beside what waits for one that has finished none:
           work_next and handoff_list over MCP, WatchSignals up to the first order over MACP
  opening  a session of many events that is not in memory, beside one of 1,000; without a network

Everything is counted: a session that is missing from the list, expires twice or not at all, or a stream that is not told
that the server stops, ends the run with an error. Whether a claim holds is printed and is no error: it depends on the
machine and on what else runs there.

Examples:
  handover bench scale
  handover bench scale --sessions 200000 --json > scale.json
  handover bench scale --toy";

/// The sizes of a run.
struct Sizes {
    sessions: usize,
    expiring: usize,
    streams: usize,
    updates: usize,
    tasks: usize,
    finished: usize,
    events: usize,
    /// How often the two agents of the past are asked, and how often sessions are opened.
    asked: usize,
    opened: usize,
    /// How long the sessions that expire have, which must do for starting them all and for a restart.
    expire_after: Duration,
    /// How long others are measured before that.
    quiet: Duration,
}

impl Sizes {
    fn of(args: &Args) -> Sizes {
        let size = |full: usize, toy: usize| if args.toy { full.min(toy) } else { full }.max(1);
        Sizes {
            sessions: size(args.sessions, 300),
            expiring: size(args.expiring, 200),
            streams: size(args.streams, 30),
            updates: size(args.updates, 50).max(10),
            tasks: size(args.tasks, 2),
            finished: size(args.finished, 300),
            events: size(args.events, 3_000),
            asked: if args.toy { 20 } else { 1_000 },
            opened: if args.toy { 3 } else { 15 },
            expire_after: Duration::from_secs(if args.toy { 4 } else { 20 }),
            quiet: Duration::from_secs_f64(if args.toy { 0.5 } else { 5.0 }),
        }
    }
}

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let threads =
        tokio::runtime::Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    let dir = Scratch::new(args.data.as_deref())?;
    say(args.json, &format!("handover {}, {} cores{}", env!("CARGO_PKG_VERSION"), machine::cores(), load()));
    let mut bench = Bench {
        sizes: Sizes::of(args),
        toy: args.toy,
        json: args.json,
        data: dir.path.clone(),
        server: Some(Server::start(&dir.path)?),
        verdicts: Vec::new(),
    };
    let result = threads.block_on(bench.measure())?;
    threads.shutdown_timeout(Duration::from_secs(1));
    bench.take_server()?.stop()?;
    if !args.json {
        return Ok(());
    }
    let mut result = result;
    result["toy"] = args.toy.into();
    result["claims"] = Value::Array(bench.verdicts);
    print_json(&result)
}

struct Bench {
    sizes: Sizes,
    toy: bool,
    json: bool,
    data: PathBuf,
    server: Option<Server>,
    verdicts: Vec<Value>,
}

impl Bench {
    async fn measure(&mut self) -> Result<Value, Failure> {
        let updates = self.updates().await?;
        let (stop, expiry) = self.stop_and_start().await?;
        let cold = self.expiry(expiry, "out of memory").await?;
        let pages = self.pages().await?;
        let crowd = self.crowd("late", self.sizes.expiring).await?;
        let expiry = Expiry::set(crowd, self.sizes.expire_after).await?;
        let warm = self.expiry(expiry, "in memory").await?;
        let past = self.past().await?;
        let opening = self.opening().await?;
        Ok(json!({
            "bench": "scale",
            "version": env!("CARGO_PKG_VERSION"),
            "cores": machine::cores(),
            "updates": updates,
            "stop": stop,
            "expiry": [cold, warm],
            "pages": pages,
            "past": past,
            "opening": opening,
        }))
    }

    fn server(&self) -> Result<&Server, Failure> {
        self.server.as_ref().ok_or_else(|| Failure::Fault("expected a server, found none".to_owned()))
    }

    fn take_server(&mut self) -> Result<Server, Failure> {
        self.server.take().ok_or_else(|| Failure::Fault("expected a server, found none".to_owned()))
    }

    /// Agents who hand out so many sessions.
    async fn crowd(&self, name: &str, sessions: usize) -> Result<Crowd, Failure> {
        Crowd::new(&self.server()?.address, name, sessions).await
    }

    fn judge(&mut self, claim: &str, holds: bool, found: &str) {
        self.verdicts.push(judge(self.toy, self.json, claim, holds, found));
    }

    async fn updates(&mut self) -> Result<Value, Failure> {
        let (tasks, updates) = (self.sizes.tasks, self.sizes.updates);
        progress(&format!("{tasks} tasks of {updates} updates"));
        let crowd = self.crowd("long", tasks).await?;
        let row = updates::measure(&crowd, tasks, updates, &self.server()?.pid().to_string()).await?;
        progress("");
        say(
            self.json,
            &format!(
                "updates: {tasks} tasks of {updates}, one at a time, the first and the last tenth of each"
            ),
        );
        say(self.json, "              p50 us   mean us   bytes written");
        for (name, label) in [("first", "first tenth"), ("last", "last tenth")] {
            let bytes = row[name]["written_bytes"].as_f64();
            let bytes = bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"));
            let (p50, mean) = (number(&row[name], "p50_us"), number(&row[name], "mean_us"));
            say(self.json, &format!("{label:11} {p50:8.0} {mean:9.0} {bytes:>15}"));
        }
        let (time, bytes) = (number(&row, "p50_ratio"), row["bytes_ratio"].as_f64());
        let found = match bytes {
            Some(bytes) => format!("{time:.2} times the time, {bytes:.2} times the bytes"),
            None => format!("{time:.2} times the time, bytes not known here"),
        };
        let holds = time <= SAME && bytes.is_some_and(|bytes| bytes <= SAME);
        self.judge("the last update of a task costs what the first did", holds, &found);
        Ok(row)
    }

    /// Fill the server, open streams, give some sessions a deadline, stop it, and start it again.
    async fn stop_and_start(&mut self) -> Result<(Value, Expiry), Failure> {
        let (sessions, streams) = (self.sizes.sessions, self.sizes.streams);
        progress(&format!("{sessions} sessions"));
        let crowd = self.crowd("planner", sessions).await?;
        let ids = crowd.open_tasks().await?;
        progress(&format!("{streams} streams"));
        let held = idle::Held::open(&self.server()?.address, &crowd, &ids, streams).await?;
        let hasty = self.crowd("hasty", self.sizes.expiring).await?;
        let expiry = Expiry::set(hasty, self.sizes.expire_after).await?;
        progress("stopping");
        let server = self.take_server()?;
        let stopping = tokio::task::spawn_blocking(move || server.stop());
        let stopped = stopping.await.map_err(|error| Failure::fault("stopping", &error))??;
        held.all_were_told().await?;

        let begun = Instant::now();
        self.server = Some(Server::start(&self.data)?);
        let ready = begun.elapsed();
        let again = crowd.moved_to(&self.server()?.address).await?;
        again.get(&ids[0]).await?;
        let answered = begun.elapsed();
        progress("");
        let (stopped, ready, answered) = (stopped.as_secs_f64(), ready.as_secs_f64(), answered.as_secs_f64());
        say(self.json, &format!("stop: {sessions} idle sessions, {streams} idle streams"));
        say(
            self.json,
            &format!(
                "stopped after {stopped:.3} s; ready again after {ready:.3} s, first answer after {answered:.3} s"
            ),
        );
        let found = format!("{stopped:.3} s to stop, {answered:.3} s to the first answer");
        self.judge(
            "stopping takes under a second, so does the next start",
            stopped.max(answered) < 1.0,
            &found,
        );
        let row = json!({
            "sessions": sessions,
            "streams": streams,
            "stop_seconds": stopped,
            "ready_seconds": ready,
            "first_answer_seconds": answered,
        });
        Ok((row, expiry.moved_to(&self.server()?.address).await?))
    }

    async fn expiry(&mut self, expiry: Expiry, memory: &str) -> Result<Value, Failure> {
        let count = self.sizes.expiring;
        progress(&format!("{count} sessions expire"));
        let others = self.crowd("busy", 1).await?;
        let row = expiry.measure(&others, self.server()?, self.sizes.quiet).await?;
        progress("");
        let (seconds, before, during) =
            (number(&row, "seconds"), number(&row, "send_before_p50_us"), number(&row, "send_during_p50_us"));
        say(self.json, &format!("expiry: {count} sessions {memory}"));
        say(
            self.json,
            &format!(
                "all expired {seconds:.3} s after the deadline; median Send of others {before:.0} us before, {during:.0} us \
                 meanwhile ({} Sends)",
                row["sends_during"]
            ),
        );
        let ratio = number(&row, "send_ratio");
        let found = format!("{seconds:.3} s, median Send {ratio:.2} times");
        let claim = format!("expired within two seconds, others' median Send at most doubles ({memory})");
        self.judge(&claim, seconds <= 2.0 && ratio <= 2.0, &found);
        let mut row = row;
        row["memory"] = memory.into();
        Ok(row)
    }

    async fn pages(&mut self) -> Result<Value, Failure> {
        progress("listing");
        let crowd = self.crowd("planner", self.sizes.sessions).await?;
        let row = pages::measure(&crowd).await?;
        progress("");
        say(self.json, &format!("pages: {} sessions in {} pages", row["sessions"], row["pages"]));
        let ratio = number(&row, "p50_ratio");
        let (first, last) = (number(&row, "first_p50_us"), number(&row, "last_p50_us"));
        say(
            self.json,
            &format!("a page of the first tenth {first:.0} us, of the last tenth {last:.0} us (medians)"),
        );
        self.judge("every page costs the same", ratio <= SAME, &format!("{ratio:.2} times"));
        Ok(row)
    }

    /// On data and a server of its own: the one of the other parts does not know these agents.
    async fn past(&mut self) -> Result<Value, Failure> {
        let finished = self.sizes.finished;
        let data = self.data.join("past");
        past::make(&data, finished).await?;
        let server = Server::start(&data)?;
        progress("asking");
        let rows = past::measure(&server, self.sizes.asked).await?;
        progress("");
        server.stop()?;
        say(
            self.json,
            &format!("past: an agent that has finished {finished} sessions, beside one that has none"),
        );
        say(self.json, "                                   with us   without us   ratio   (medians)");
        for row in &rows {
            let question = row["question"].as_str().unwrap_or_default();
            let (with, without) = (number(row, "with_past_p50_us"), number(row, "without_past_p50_us"));
            let ratio = number(row, "p50_ratio");
            say(self.json, &format!("{question:31} {with:10.0} {without:12.0} {ratio:7.2}"));
        }
        let worst = rows.iter().map(|row| number(row, "p50_ratio")).fold(0.0, f64::max);
        let claim = "what waits for an agent costs the same whatever it has done before";
        self.judge(claim, worst <= SAME, &format!("at most {worst:.2} times"));
        Ok(json!({ "finished": finished, "rows": rows }))
    }

    async fn opening(&mut self) -> Result<Value, Failure> {
        let data = self.data.join("opening");
        let rows = opening::measure(&data, self.sizes.events as u64, self.sizes.opened).await?;
        progress("");
        say(
            self.json,
            "opening: sessions that are not in memory, as far behind their snapshots as they can be",
        );
        say(self.json, "                                 events   snapshot KB   p50 us   ratio");
        for row in &rows {
            let session = row["session"].as_str().unwrap_or_default();
            let (bytes, took) = (number(row, "snapshot_bytes") / 1e3, number(row, "p50_us"));
            let (events, ratio) = (number(row, "events"), number(row, "p50_ratio"));
            say(self.json, &format!("{session:30} {events:8} {bytes:13.1} {took:8.0} {ratio:7.2}"));
        }
        Ok(json!({ "rows": rows }))
    }
}

/// What counts as the same cost on a machine that does other things too.
pub(super) const SAME: f64 = 1.2;

/// A session of the list or the answer of `GetSession`, as `By`'s agent sees it.
async fn get(caller: &mut super::macp::runtime::Caller, by: By, session_id: &str) -> Result<i32, Failure> {
    use handover_server::face::macp::proto::v1::GetSessionRequest;
    let request = caller.request(by, GetSessionRequest { session_id: session_id.to_owned() });
    let answer = caller.client().get_session(request).await;
    let answer = answer.map_err(|status| failed("GetSession", &status))?.into_inner();
    Ok(answer.metadata.unwrap_or_default().state)
}
