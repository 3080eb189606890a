//! A program that does one task: the task and orders on its standard input, progress and the result on its standard output.
//! How it ends is in `end`.

mod end;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handover_client::caller::Error;
use handover_client::pipe::{self, Line};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{JSON_VERSION, Remote, TRACEPARENT, note, text};
use crate::Failure;

/// How many bytes the result may have.
const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How many of its last lines a failure tells, and how much of each.
const LAST_LINES: usize = 20;
const LAST_LINE_CHARS: usize = 500;

/// How long a program that is asked to end may take.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How long one call waits for orders.
const WAIT_MS: u64 = 20_000;

/// After how long orders are asked for again when that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How a program is run.
pub struct Terms {
    /// It and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub limit: Option<Duration>,
    /// Whether its standard input stays open for orders.
    pub takes_orders: bool,
    /// Whether programs read what is said of it.
    pub is_json: bool,
}

/// What came of a task.
pub enum Outcome {
    /// It was done.
    Completed,
    /// It was not, because of this.
    Failed(String),
    /// It ended meanwhile, so.
    Ended(String),
}

/// Do a task, and report on it.
pub async fn run(remote: Arc<Remote>, terms: Arc<Terms>, id: &str, task: Value) -> Result<Outcome, Failure> {
    let title = text::line(task["title"].as_str().unwrap_or_default());
    if !terms.is_json {
        note(&format!("{}  began: {title}", text::short(id)));
    }
    let mut running = Running::start(&remote, &terms, id, task["traceparent"].as_str())?;
    let mut task = task;
    task["version"] = json!(JSON_VERSION);
    running.tell(&task.to_string()).await;
    if !terms.takes_orders {
        running.stdin = None;
    }
    let limit = terms.limit.unwrap_or(Duration::MAX);
    let ended = match tokio::time::timeout(limit, running.follow()).await {
        Ok(ended) => ended?,
        Err(_) => {
            running.end().await;
            let why = format!("it took longer than {} s", limit.as_secs());
            Ended::Failed { code: "time_limit".to_owned(), why }
        }
    };
    running.report(ended).await
}

/// How a program ended.
enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It was ended, for this.
    Failed { code: String, why: String },
    /// Its task ended before it did.
    Overtaken(String),
}

struct Running<'a> {
    remote: &'a Arc<Remote>,
    id: &'a str,
    child: Child,
    group: Option<Pid>,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Vec<u8>>,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    /// What reads its standard error.
    complaints: Option<JoinHandle<io::Result<()>>>,
    result: Vec<u8>,
    /// What it said the failure is.
    failed: Option<String>,
    /// The keys of its questions on the wire, with what the program calls them.
    asked: BTreeMap<String, String>,
    /// The number of the last order that it was given.
    heard: u64,
    is_stopped: bool,
    /// How many messages it has sent.
    said: u64,
    /// Makes the keys of its calls its own.
    nonce: String,
}

impl<'a> Running<'a> {
    fn start(
        remote: &'a Arc<Remote>,
        terms: &Terms,
        id: &'a str,
        traceparent: Option<&str>,
    ) -> Result<Running<'a>, Failure> {
        let (program, arguments) =
            terms.command.split_first().ok_or_else(|| Failure::Usage("expected a command".to_owned()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("HANDOVER_TASK", id)
            .env("HANDOVER_SERVER", remote.url())
            .envs(traceparent.map(|parent| (TRACEPARENT, parent)))
            .process_group(0)
            .kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            Failure::Usage(format!(
                "{}: expected a program that can be run, found: {error}",
                text::line(program)
            ))
        })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (sender, lines) = mpsc::channel(4);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read_lines(BufReader::new(stdout), move |line| {
                let sender = sender.clone();
                async move { sender.send(line).await.is_ok() }
            }));
        }
        let last_lines: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let mut complaints = None;
        if let Some(stderr) = child.stderr.take() {
            let (kept, short) = (Arc::clone(&last_lines), text::short(id));
            complaints = Some(tokio::spawn(read_lines(BufReader::new(stderr), move |line| {
                let line = text::line(String::from_utf8_lossy(&line).trim_end());
                note(&format!("{short}  {line}"));
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() >= LAST_LINES {
                    kept.pop_front();
                }
                kept.push_back(line.chars().take(LAST_LINE_CHARS).collect());
                std::future::ready(true)
            })));
        }
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| Failure::Fault(format!("random bytes: {error}")))?;
        let stdin = child.stdin.take();
        Ok(Running {
            remote,
            id,
            child,
            group,
            stdin,
            lines,
            last_lines,
            complaints,
            result: Vec::new(),
            failed: None,
            asked: BTreeMap::new(),
            heard: 0,
            is_stopped: false,
            said: 0,
            nonce: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// Do what the program and the requester say until one of them comes to an end.
    async fn follow(&mut self) -> Result<Ended, Failure> {
        let remote = Arc::clone(self.remote);
        let mut orders = Box::pin(next_orders(Arc::clone(&remote), self.id.to_owned(), 0, false));
        let mut is_open = true;
        loop {
            tokio::select! {
                line = self.lines.recv(), if is_open => match line {
                    Some(line) => {
                        if let Some(ended) = self.take(&line).await? {
                            return Ok(ended);
                        }
                    }
                    None => is_open = false,
                },
                status = self.child.wait() => {
                    let status = status.map_err(|error| Failure::fault("waiting for a program", &error))?;
                    return Ok(self.drain().await?.unwrap_or(Ended::Exited(status)));
                }
                point = &mut orders => {
                    if let Some(ended) = self.obey(&point?).await {
                        return Ok(ended);
                    }
                    orders = Box::pin(next_orders(Arc::clone(&remote), self.id.to_owned(), self.heard, self.is_stopped));
                }
            }
        }
    }

    /// Read what a program that has ended has printed. What it left running is not waited for.
    async fn drain(&mut self) -> Result<Option<Ended>, Failure> {
        while let Ok(Some(line)) = tokio::time::timeout(ENDS_WITHIN, self.lines.recv()).await {
            if let Some(ended) = self.take(&line).await? {
                return Ok(Some(ended));
            }
        }
        self.signal(Signal::KILL);
        if let Some(complaints) = self.complaints.take() {
            _ = tokio::time::timeout(ENDS_WITHIN, complaints).await;
        }
        Ok(None)
    }

    /// A line that the program printed.
    async fn take(&mut self, line: &[u8]) -> Result<Option<Ended>, Failure> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches(['\n', '\r']);
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        match verb {
            "@progress" => {
                let (number, message) = rest.split_once(' ').unwrap_or((rest, ""));
                let done = number.trim_end_matches('%').parse::<f64>().ok();
                let (done, message) = match done.filter(|done| (0.0..=100.0).contains(done)) {
                    Some(done) => (Some(done / 100.0), message),
                    None => (None, rest),
                };
                let mut asked = json!({ "task_id": self.id, "message": message });
                if let Some(done) = done {
                    asked["progress"] = json!(done);
                }
                // Progress is worth no retry: what comes next says more.
                let told = self.remote.try_call("work_update", asked, None).await;
                return Ok(self.hear(told).await);
            }
            "@ask" => {
                let (key, question) = rest.split_once(' ').unwrap_or((rest, rest));
                return self.ask(key, question).await;
            }
            "@say" => {
                let asked = json!({ "task_id": self.id, "message": rest });
                self.said += 1;
                let key = format!("{}-say-{}", self.nonce, self.said);
                let told = self.remote.until_heard("task_message", asked, Some(&key)).await;
                return Ok(self.hear(told).await);
            }
            "@fail" => self.failed = Some(rest.to_owned()),
            _ => {
                let line = if line.starts_with(b"@@") { &line[1..] } else { line };
                if self.result.len() + line.len() > RESULT_BYTES_MAX {
                    self.end().await;
                    let why = format!("its result has more than {RESULT_BYTES_MAX} bytes");
                    return Ok(Some(Ended::Failed { code: "result_too_large".to_owned(), why }));
                }
                self.result.extend_from_slice(line);
            }
        }
        Ok(None)
    }

    /// Do what the server answers to what the program told it. If it refused that, the program goes on without.
    async fn hear(&mut self, told: Result<Value, Error>) -> Option<Ended> {
        match told {
            Ok(point) => self.obey(&point).await,
            Err(error) => {
                note(&format!("{}  {}", text::short(self.id), text::line(&error.to_string())));
                None
            }
        }
    }

    /// Put a question to the requester. One that a worker before this one has put is not put again while it is open.
    async fn ask(&mut self, key: &str, question: &str) -> Result<Option<Ended>, Failure> {
        const TRIES: usize = 20;
        for attempt in 1..=TRIES {
            let wire = if attempt == 1 { key.to_owned() } else { format!("{key}-{attempt}") };
            let asked =
                json!({ "task_id": self.id, "questions": { &wire: { "message": question } }, "wait_ms": 0 });
            let name = format!("{}-{wire}", self.nonce);
            let done = self.remote.until_heard("work_ask", asked, Some(&name)).await;
            self.asked.insert(wire.clone(), key.to_owned());
            match done {
                Ok(point) => {
                    if let Some(why) = point["note"].as_str() {
                        note(&format!("{}  {}", text::short(self.id), text::line(why)));
                    }
                    return Ok(self.obey(&point).await);
                }
                Err(error) if error.code() == "QUESTION_KEY_USED" => {
                    let task = self.remote.insist("task_status", json!({ "task_id": self.id }), None).await?;
                    if task["questions"].get(&wire).is_some() {
                        return Ok(None);
                    }
                }
                Err(error) => {
                    // The program waits for an answer: it hears that there will be none.
                    note(&format!("{}  {}", text::short(self.id), text::line(&error.to_string())));
                    break;
                }
            }
        }
        self.tell(&format!("declined {key}")).await;
        Ok(None)
    }

    /// Follow the orders that a safe point brought.
    async fn obey(&mut self, point: &Value) -> Option<Ended> {
        for (key, answer) in point["answers"].as_object().into_iter().flatten() {
            self.tell_answer(key, answer).await;
        }
        for order in point["orders"].as_array().into_iter().flatten() {
            self.heard = self.heard.max(order["seq"].as_u64().unwrap_or(0));
            let said = |field: &str| line_of(order[field].as_str().unwrap_or_default());
            match order["kind"].as_str() {
                Some("steer") => self.tell(&format!("steer {}", said("message"))).await,
                Some("message") => self.tell(&format!("message {}", said("message"))).await,
                Some("answer") => {
                    for (key, answer) in order["answers"].as_object().into_iter().flatten() {
                        self.tell_answer(key, answer).await;
                    }
                }
                _ => {}
            }
        }
        if point["ended"] == true {
            let status = point["status"].as_str().unwrap_or("ended").to_owned();
            self.end().await;
            return Some(Ended::Overtaken(status));
        }
        if let Some(paused) = point["paused"].as_bool()
            && paused != self.is_stopped
        {
            self.is_stopped = paused;
            self.signal(if paused { Signal::STOP } else { Signal::CONT });
        }
        None
    }

    async fn tell_answer(&mut self, wire: &str, answer: &Value) {
        let key = self.asked.get(wire).map_or(wire, String::as_str);
        let line = match (answer["action"].as_str(), &answer["content"]) {
            (Some("accept"), Value::String(content)) => format!("answer {key} {}", line_of(content)),
            (Some("accept"), content) => format!("answer {key} {content}"),
            _ => format!("declined {key}"),
        };
        self.tell(&line).await;
    }

    /// Write a line to the program. One that reads no more is no error: it may have all that it needs.
    async fn tell(&mut self, line: &str) {
        let Some(stdin) = &mut self.stdin else { return };
        let written = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        };
        // A program that does not read must not hold up its orders for ever.
        if !matches!(tokio::time::timeout(ENDS_WITHIN, written).await, Ok(Ok(()))) {
            self.stdin = None;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended.
            _ = kill_process_group(group, signal);
        }
    }
}

/// The next orders; while the task is paused, or after a call that failed, at least whether it still is.
async fn next_orders(
    remote: Arc<Remote>,
    id: String,
    heard: u64,
    is_stopped: bool,
) -> Result<Value, Failure> {
    let mut asked = json!({ "task_id": id });
    if !is_stopped {
        asked["wait_ms"] = json!(WAIT_MS);
    }
    loop {
        match remote.try_call("work_checkpoint", asked.clone(), None).await {
            Ok(point) => return Ok(point),
            // It was given to somebody else.
            Err(error)
                if error.is_not_found() || matches!(error.code(), "NOT_ASSIGNEE" | "NO_LONGER_ASSIGNEE") =>
            {
                return Ok(json!({ "orders": [], "ended": true, "status": error.to_string() }));
            }
            Err(error @ Error::Unauthenticated(_)) => return Err(remote.failure(error)),
            // An answer that was lost may have carried orders: they are asked for again.
            Err(_) => {
                asked["after"] = json!(heard);
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }
}

/// Read lines to the end, and give each on until nobody takes any more.
async fn read_lines<F: Future<Output = bool>>(
    mut from: impl tokio::io::AsyncBufRead + Unpin,
    mut give: impl FnMut(Vec<u8>) -> F,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        match pipe::read_line(&mut from, &mut line, RESULT_BYTES_MAX).await? {
            Line::End => return Ok(()),
            // Given on as far as it was read, it is larger than any result.
            Line::TooLong | Line::Read => {}
        }
        if !give(std::mem::take(&mut line)).await {
            return Ok(());
        }
    }
}

/// Text of somebody else in one line, from which it can be had again.
fn line_of(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}
