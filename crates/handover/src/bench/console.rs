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

/// How many tasks the short list has.
const FEW: u64 = 1_000;

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
        let first = list(&few.path, FEW, rounds).await?;
        let second = list(&many.path, tasks, rounds).await?;
        Ok::<_, Failure>(report(args, long, [first, second]))
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

fn report(args: &Args, task: Value, lists: [Value; 2]) -> (Value, Value, Value) {
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
        say(json, &format!("{:<14} {first:9.1} {p50:9.2} {bytes:9.0}", row["tasks"]));
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
        let mut row = browser.measure(&target, many).await?;
        row["page"] = page.into();
        pages.push(row);
    }
    server.stop()?;
    Ok(json!({ "events": made.events, "pages": pages }))
}

/// The first page of a list of so many tasks.
async fn list(data: &Path, tasks: u64, rounds: usize) -> Result<Value, Failure> {
    let (requester, worker) = (AgentId::from("planner"), AgentId::from("worker"));
    let (engine, store) = fill::start(data, fill::settings(), Options::default())?;
    let (from, to) = (requester.clone(), worker.clone());
    let open = move |number| {
        let (key, commands) = life::done(DEFAULT_TENANT, 1_000_000_000 + number, &from, &to);
        (key, commands.into_iter().take(1))
    };
    fill::many(&engine, 0..tasks, open, "tasks").await?;
    engine.stop();
    drop((engine, store));
    let server = Server::start(data)?;
    let browser = Browser::sign_in(&server.http, requester.as_str()).await?;
    let mut row = browser.measure("/tasks", rounds).await?;
    row["tasks"] = tasks.into();
    server.stop()?;
    Ok(row)
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

    /// Ask for a page: the first time, and so often again.
    async fn measure(&self, target: &str, rounds: usize) -> Result<Value, Failure> {
        let (mut took, mut bytes) = (Vec::new(), 0);
        for _ in 0..=rounds {
            let begun = Instant::now();
            let page = self.ask(Request::get(target), String::new()).await?;
            took.push(micros(begun) / 1000.0);
            if page.status != 200 {
                return Err(Failure::Fault(format!(
                    "{target}: expected a page, found status {}",
                    page.status
                )));
            }
            bytes = bytes.max(page.bytes);
        }
        let first = took.remove(0);
        Ok(json!({ "first_ms": first, "p50_ms": quantile(&mut took, 0.5), "bytes": bytes, "rounds": rounds }))
    }
}

struct Page {
    status: u16,
    headers: hyper::HeaderMap,
    bytes: usize,
}
