//! `handover bench grid`: many agents with a stream of notifications each, on a server of this very binary.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use handover_desk::identity::tokens::hash_text;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::macp::runtime::Server;
use super::mcp::wire::{Agent, Connection, ask};
use super::{Scratch, judge, load, machine, print_json, progress, quantile, say};
use crate::Failure;

/// What `handover bench grid` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// How many agents have a stream each
    #[arg(long, default_value_t = 10_000)]
    agents: usize,
    /// How many messages are sent each second
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// For how many seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
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
One agent sends a task to each of the others, and each of those opens a stream of notifications on a connection of its own.
Then messages are sent in these tasks, one after the other to all agents in turn, at a steady rate; each is stored before it is
answered. Measured: the server's memory for each connection that is open and idle, and how long after the call a notification
reached its agent.

The run ends with an error if a notification is missing, or comes twice.

Examples:
  handover bench grid
  handover bench grid --agents 2000 --rate 500
  handover bench grid --toy";

/// How many connections the sender has, and how long anything may take.
const SENDERS: usize = 32;
const WITHIN: Duration = Duration::from_secs(60);

/// Who sends.
const SENDER: &str = "sender";

/// How long the server is left alone before its memory is looked at.
const SETTLED: Duration = Duration::from_secs(2);

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let files = handover_server::files::raise();
    let agents = if args.toy { args.agents.min(50) } else { args.agents }.max(1);
    let (rate, seconds) =
        if args.toy { (args.rate.min(50), 2) } else { (args.rate.max(1), args.seconds.max(1)) };
    if files < agents as u64 + 256 {
        return Err(Failure::Usage(format!(
            "expected room for {agents} connections, found that this process may have {files} open files"
        )));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::fault("starting threads", &error))?;
    runtime.block_on(measure(args, agents, rate, seconds))
}

async fn measure(args: &Args, agents: usize, rate: u64, seconds: u64) -> Result<(), Failure> {
    say(args.json, &format!("{agents} agents, {rate} messages/s for {seconds} s{}", load()));
    let scratch = Scratch::new(args.data.as_deref())?;
    let room = (agents + 2_000).to_string();
    let tokens = write_tokens(&scratch.path, agents)?;
    let limits = [
        ("HANDOVER_IDENTITY_TOKENS", tokens.as_str()),
        ("HANDOVER_LIMITS_STARTS_PER_MINUTE", "0"),
        ("HANDOVER_LIMITS_MESSAGES_PER_MINUTE", "0"),
        ("HANDOVER_LIMITS_REQUESTS_PER_MINUTE", "0"),
        ("HANDOVER_LIMITS_CONNECTIONS_MAX", room.as_str()),
        ("HANDOVER_LIMITS_MACP_CONNECTIONS_MAX", "64"),
        ("HANDOVER_LIMITS_SESSIONS_OPEN_PER_AGENT_MAX", room.as_str()),
    ];
    let server = Server::start_at(&scratch.path, "127.0.0.1:0", &limits)?;
    let crowd = Crowd::open(&server, agents).await?;
    let before = allocated(&server)?;
    let mut listeners = crowd.listen().await?;
    sleep(SETTLED).await;
    let each = allocated(&server)?.saturating_sub(before) / agents as u64;
    let mut times = crowd.talk(rate, seconds, &mut listeners).await?;
    let (p50, p99, max) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99), quantile(&mut times, 1.0));
    let memory = judge(
        args.toy,
        args.json,
        "an idle connection takes under 20 KB",
        each < 20 * 1024,
        &format!("{each} bytes"),
    );
    let found = format!("p50 {p50:.1}, p99 {p99:.1}, longest {max:.1} ms; {} notifications", times.len());
    let told =
        judge(args.toy, args.json, "a notification reaches its agent within 50 ms (p99)", p99 < 50.0, &found);
    if args.json {
        print_json(&json!({
            "agents": agents, "rate": rate, "seconds": seconds, "bytes_per_connection": each,
            "notified_ms": { "p50": p50, "p99": p99, "max": max }, "notifications": times.len(),
            "claims": [memory, told],
        }))?;
    }
    server.stop().map(|_| ())
}

/// The file of the agents' tokens, each of which is its agent's name: what a stream takes depends on what proves whose it is.
fn write_tokens(directory: &Path, agents: usize) -> Result<String, Failure> {
    let names = (0..agents).map(name).chain([SENDER.to_owned()]);
    let entry = |name: String| format!("[[token]]\nsha256 = \"{}\"\nagent = \"{name}\"\n", hash_text(&name));
    let path = directory.join("tokens.toml");
    std::fs::write(&path, names.map(entry).collect::<String>())
        .map_err(|error| Failure::fault("writing tokens", &error))?;
    Ok(path.display().to_string())
}

/// The resident memory of the server, mapped files left out: its program and its data are no connection's.
fn allocated(server: &Server) -> Result<u64, Failure> {
    machine::allocated_bytes(&server.pid().to_string())
        .ok_or_else(|| Failure::Fault("expected the memory of the server, found nothing".to_owned()))
}

/// The agents, the task that each was sent, and when the last message of each was sent, in nanoseconds of the run.
struct Crowd {
    target: String,
    tasks: Vec<String>,
    sent: Arc<Vec<AtomicU64>>,
    begun: Instant,
}

/// The streams, and where they tell what came: after how many milliseconds.
struct Listeners {
    all: JoinSet<Result<(), Failure>>,
    told: mpsc::UnboundedReceiver<f64>,
}

fn name(number: usize) -> String {
    format!("agent-{number}")
}

impl Crowd {
    async fn open(server: &Server, agents: usize) -> Result<Crowd, Failure> {
        let sender = Agent { target: server.http.clone(), token: SENDER.to_owned() };
        let mut tasks = Vec::with_capacity(agents);
        let mut connection = connect(&sender).await?;
        for number in 0..agents {
            let to =
                json!({ "to": name(number), "message": "wait for me", "queue": true, "checkIn": 86_400 });
            let begun = ask(&mut connection, &request(&sender, "task/send", to)).await?;
            tasks.push(begun["task"]["taskId"].as_str().unwrap_or_default().to_owned());
            if number % 500 == 0 {
                progress(&format!("{number} tasks"));
            }
        }
        let sent = Arc::new((0..agents).map(|_| AtomicU64::new(0)).collect());
        Ok(Crowd { target: server.http.clone(), tasks, sent, begun: Instant::now() })
    }

    /// A stream for each agent, all of them open.
    async fn listen(&self) -> Result<Listeners, Failure> {
        let (heard, told) = mpsc::unbounded_channel();
        let mut all = JoinSet::new();
        for number in 0..self.tasks.len() {
            let agent = Agent { target: self.target.clone(), token: name(number) };
            let mut connection = connect(&agent).await?;
            let open = format!(
                "GET /grid/a2a/{0}/events HTTP/1.1\r\nhost: {1}\r\nauthorization: Bearer {0}\r\n\
                 accept: text/event-stream\r\n\r\n",
                agent.token, agent.target
            );
            let opened = connection.open_stream(open.as_bytes(), b"event: connected").await;
            opened.map_err(|error| Failure::fault("opening a stream", &error))?;
            let (sent, heard, begun) = (Arc::clone(&self.sent), heard.clone(), self.begun);
            all.spawn(async move {
                loop {
                    let event = connection.event_with(b"\"kind\":\"message\"").await;
                    event.map_err(|error| Failure::fault("listening", &error))?;
                    let since = sent[number].swap(0, Ordering::AcqRel);
                    if since == 0 {
                        return Err(Failure::Fault(
                            "expected each notification once, found one twice".to_owned(),
                        ));
                    }
                    let took = begun.elapsed().saturating_sub(Duration::from_nanos(since));
                    // Whoever counts has all that it waits for.
                    _ = heard.send(took.as_secs_f64() * 1e3);
                }
            });
            if number % 500 == 0 {
                progress(&format!("{number} streams"));
            }
        }
        Ok(Listeners { all, told })
    }

    /// Send messages at a steady rate, and wait for every notification. Says how long each took.
    async fn talk(&self, rate: u64, seconds: u64, listeners: &mut Listeners) -> Result<Vec<f64>, Failure> {
        let total = rate * seconds;
        let mut senders = JoinSet::new();
        let mut lines = Vec::new();
        for _ in 0..SENDERS {
            let (line, mut waiting) = mpsc::unbounded_channel::<usize>();
            lines.push(line);
            let sender = Agent { target: self.target.clone(), token: SENDER.to_owned() };
            let mut connection = connect(&sender).await?;
            let (tasks, sent, begun) = (self.tasks.clone(), Arc::clone(&self.sent), self.begun);
            senders.spawn(async move {
                while let Some(number) = waiting.recv().await {
                    let said = json!({ "taskId": tasks[number], "message": "news" });
                    let request = request(&sender, "message/send", said);
                    sent[number].store(begun.elapsed().as_nanos() as u64, Ordering::Release);
                    ask(&mut connection, &request).await?;
                }
                Ok::<(), Failure>(())
            });
        }
        let start = tokio::time::Instant::now();
        for number in 0..total {
            sleep_until(start + Duration::from_nanos(1_000_000_000 / rate * number)).await;
            let place = (number % self.tasks.len() as u64) as usize;
            _ = lines[place % SENDERS].send(place);
        }
        drop(lines);
        let mut times = Vec::with_capacity(total as usize);
        while times.len() < total as usize {
            let next = tokio::select! {
                biased;
                Some(Ok(Err(failure))) = senders.join_next(), if !senders.is_empty() => return Err(failure),
                Some(Ok(Err(failure))) = listeners.all.join_next() => return Err(failure),
                next = timeout(WITHIN, listeners.told.recv()) => next,
            };
            match next.ok().flatten() {
                Some(took) => times.push(took),
                None => {
                    let found = times.len();
                    return Err(Failure::Fault(format!("expected {total} notifications, found {found}")));
                }
            }
        }
        Ok(times)
    }
}

async fn connect(agent: &Agent) -> Result<Connection, Failure> {
    agent.connect().await.map_err(|error| Failure::fault("connecting", &error))
}

/// A request of a method.
fn request(agent: &Agent, method: &str, params: Value) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let (Agent { target, token }, length) = (agent, body.len());
    format!(
        "POST /grid/a2a/{token} HTTP/1.1\r\nhost: {target}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
