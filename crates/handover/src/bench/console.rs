//! `handover bench console`: whether pages of the console open as fast for many as for few, on a server of this very binary.
//!
//! The tasks are made through the engine before the server starts; what is measured is pages over HTTP, as a browser asks for
//! them.

use std::path::{Path, PathBuf};
use std::time::Instant;

use handover_client::fetch::{Remote, system_roots};
use handover_desk::identity::DEFAULT_TENANT;
use handover_kernel::AgentId;
use handover_store::sqlite::Options;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Uri, header};
use serde_json::{Value, json};

use super::macp::runtime::Server;
use super::scale::{SAME, opening};
use super::{Scratch, fill, judge, life, load, machine, micros, print_json, quantile, say};
use crate::Failure;

/// What `handover bench console` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// How many events a long task has
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// How many tasks a long list has, beside one of 1,000
    #[arg(long, default_value_t = 1_000_000)]
    tasks: u64,
    /// How often each page is asked for
    #[arg(long, default_value_t = 200)]
    rounds: usize,
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
  a task   the page of a task of many events: the first time, when the server has just started and nothing is in memory, and
           again and again; and the pages of its oldest events, its raw events and its replay in the middle
  a list   the first page of the tasks of an agent that has many, beside that of an agent of another server that has 1,000

Examples:
  handover bench console
  handover bench console --tasks 100000 --json > console.json
  handover bench console --toy";

/// How many tasks the short list has, and whose they are.
const FEW: u64 = 1_000;
const REQUESTER: &str = "planner";

/// How many bytes a page may have, and how long the first may take.
const BYTES_MAX: usize = 1_000_000;
const FIRST_MS_MAX: f64 = 1_000.0;

/// How many bytes of an answer are read.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let threads =
        tokio::runtime::Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    let size = |full: u64, toy: u64| if args.toy { full.min(toy) } else { full };
    let (events, tasks) = (size(args.events, 3_000), size(args.tasks, 2_000));
    let rounds = if args.toy { args.rounds.min(5) } else { args.rounds }.max(1);
    say(args.json, &format!("handover {}, {} cores{}", env!("CARGO_PKG_VERSION"), machine::cores(), load()));
    let few = Scratch::new(args.data.as_deref())?;
    let many = Scratch { path: few.path.with_extension("many") };
    let (task, list, verdicts) = threads.block_on(async {
        let long = task(&few.path, events, rounds).await?;
        let lists = lists([(&few.path, FEW), (&many.path, tasks)], rounds).await?;
        Ok::<_, Failure>(report(args, long, lists))
    })?;
    threads.shutdown_timeout(std::time::Duration::from_secs(1));
    if !args.json {
        return Ok(());
    }
    print_json(&json!({
        "bench": "console",
        "version": env!("CARGO_PKG_VERSION"),
        "cores": machine::cores(),
        "toy": args.toy,
        "task": task,
        "lists": list,
        "claims": verdicts,
    }))
}

fn report(args: &Args, task: Value, lists: Vec<Value>) -> (Value, Value, Value) {
    let (json, toy) = (args.json, args.toy);
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or_default();
    say(json, &format!("a task of {} events", task["events"]));
    say(json, "                first ms    p50 ms     bytes");
    for row in task["pages"].as_array().into_iter().flatten() {
        let (first, p50, bytes) = (number(row, "first_ms"), number(row, "p50_ms"), number(row, "bytes"));
        let name = row["page"].as_str().unwrap_or_default();
        say(json, &format!("{name:14} {first:9.1} {p50:9.2} {bytes:9.0}"));
    }
    let pages = task["pages"].as_array().map_or(&[][..], Vec::as_slice);
    let most = |name: &str| pages.iter().map(|row| number(row, name)).fold(0.0, f64::max);
    let (slowest, largest) = (number(&task["pages"][0], "first_ms"), most("bytes"));
    let holds = slowest < FIRST_MS_MAX && largest < BYTES_MAX as f64;
    let found = format!("{slowest:.0} ms the first time, {largest:.0} bytes at most");
    let first = judge(toy, json, "a long task opens in under 1 s and 1 MB", holds, &found);
    say(json, "a list of tasks");
    say(json, "tasks           first ms    p50 ms     bytes");
    for row in &lists {
        let (first, p50, bytes) = (number(row, "first_ms"), number(row, "p50_ms"), number(row, "bytes"));
        say(json, &format!("{:<14} {first:9.1} {p50:9.2} {bytes:9.0}", row["tasks"].to_string()));
    }
    let ratio = number(&lists[1], "p50_ms") / number(&lists[0], "p50_ms").max(f64::MIN_POSITIVE);
    let claim = "a long list opens as fast as one of 1,000";
    let second = judge(toy, json, claim, ratio <= SAME, &format!("{ratio:.2} times"));
    (task, json!({ "rows": lists, "p50_ratio": ratio }), json!([first, second]))
}

/// The pages of a task of so many events.
async fn task(data: &Path, events: u64, rounds: usize) -> Result<Value, Failure> {
    let (engine, store) = fill::start(data, fill::settings(), Options::default())?;
    engine.stop();
    let made = opening::grow(&*store, DEFAULT_TENANT, 1, events, "a long task", true)?;
    drop((engine, store));
    let server = Server::start(data)?;
    let browser = Browser::sign_in(&server.http, made.requester.as_str()).await?;
    let id = &made.key.session;
    let mut pages = Vec::new();
    for (page, target) in [
        ("task", format!("/tasks/{id}")),
        ("oldest events", format!("/tasks/{id}?before=101")),
        ("raw events", format!("/tasks/{id}/events")),
        ("replay", format!("/tasks/{id}/replay?at={}", made.events / 2)),
    ] {
        let many = if page == "replay" { rounds.min(10) } else { rounds };
        let (mut took, mut bytes) = (Vec::new(), 0);
        for _ in 0..=many {
            let begun = Instant::now();
            bytes = browser.page(&target).await?;
            took.push(micros(begun) / 1000.0);
        }
        pages.push(row(took, bytes, json!({ "page": page })));
    }
    server.stop()?;
    Ok(json!({ "events": made.events, "pages": pages }))
}

/// The first pages of lists of so many tasks, asked for in turns, so that what else the machine does counts for both.
async fn lists(of: [(&Path, u64); 2], rounds: usize) -> Result<Vec<Value>, Failure> {
    let mut servers = Vec::new();
    for (data, tasks) in of {
        fill_list(data, tasks).await?;
        let server = Server::start(data)?;
        let browser = Browser::sign_in(&server.http, REQUESTER).await?;
        servers.push((server, browser, Vec::new(), 0));
    }
    for _ in 0..=rounds {
        for (_, browser, took, bytes) in &mut servers {
            let begun = Instant::now();
            *bytes = browser.page("/tasks").await?;
            took.push(micros(begun) / 1000.0);
        }
    }
    let mut rows = Vec::new();
    for ((server, _, took, bytes), (_, tasks)) in servers.into_iter().zip(of) {
        server.stop()?;
        rows.push(row(took, bytes, json!({ "tasks": tasks })));
    }
    Ok(rows)
}

/// Tasks of one agent, made through the engine.
async fn fill_list(data: &Path, tasks: u64) -> Result<(), Failure> {
    let (from, to) = (AgentId::from(REQUESTER), AgentId::from("worker"));
    let (engine, store) = fill::start(data, fill::settings(), Options::default())?;
    let open = move |number| {
        let (key, commands) = life::done(DEFAULT_TENANT, 1_000_000_000 + number, &from, &to);
        (key, commands.into_iter().take(1))
    };
    fill::many(&engine, 0..tasks, open, "tasks").await?;
    engine.stop();
    drop((engine, store));
    Ok(())
}

/// How long a page took: the first time, and in the middle of the other times.
fn row(mut took_ms: Vec<f64>, bytes: usize, mut row: Value) -> Value {
    row["first_ms"] = took_ms.remove(0).into();
    row["rounds"] = took_ms.len().into();
    row["p50_ms"] = quantile(&mut took_ms, 0.5).into();
    row["bytes"] = bytes.into();
    row
}

/// Who asks for pages, signed in.
struct Browser {
    remote: Remote,
    cookie: String,
}

impl Browser {
    async fn sign_in(http: &str, name: &str) -> Result<Browser, Failure> {
        let url: Uri =
            format!("http://{http}").parse().map_err(|error| Failure::fault("an address", &error))?;
        let remote = Remote::new(&url, system_roots()).map_err(Failure::Fault)?;
        let mut browser = Browser { remote, cookie: String::new() };
        let form =
            Request::post("/sign-in").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = browser.ask(form, format!("token={name}")).await?;
        let cookie = answer.headers.get(header::SET_COOKIE).and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next());
        browser.cookie = cookie
            .ok_or_else(|| Failure::Fault(format!("expected to sign in, found {}", answer.status)))?
            .to_owned();
        Ok(browser)
    }

    async fn ask(&self, request: hyper::http::request::Builder, body: String) -> Result<Page, Failure> {
        let request = request.header(header::COOKIE, &self.cookie).body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| Failure::fault("a request", &error))?;
        let mut answer =
            self.remote.send(request).await.map_err(|failed| Failure::Fault(failed.to_string()))?;
        let body = answer.all(ANSWER_BYTES_MAX).await.map_err(Failure::Fault)?;
        Ok(Page { status: answer.head.status.as_u16(), headers: answer.head.headers, bytes: body.len() })
    }

    /// Ask for a page; how many bytes it has.
    async fn page(&self, target: &str) -> Result<usize, Failure> {
        let page = self.ask(Request::get(target), String::new()).await?;
        match page.status {
            200 => Ok(page.bytes),
            status => Err(Failure::Fault(format!("{target}: expected a page, found status {status}"))),
        }
    }
}

struct Page {
    status: u16,
    headers: hyper::HeaderMap,
    bytes: usize,
}
