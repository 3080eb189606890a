//! The work that is measured: one full task life, seven commands, each an event of about 300 bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handover_engine::codec;
use handover_kernel::charter::Charter;
use handover_kernel::command::{
    Act, Command, Delegation, ModeKind, Opening, Progress, Request, Start, TaskAct,
};
use handover_kernel::commitment::Commitment;
use handover_kernel::{AgentId, Blob, Face, Limits, SessionId, Text, Timestamp, step};
use handover_store::SessionKey;

/// How many events a life has.
pub const EVENTS: usize = 7;

/// How many of its commands leave a task open and worked on: start, request, accept.
pub const OPEN_EVENTS: usize = 3;

/// What a request carries that stays in memory with the session: its title, instructions and input.
pub const PAYLOAD_BYTES: usize = 12 + 64 + 96;

/// The tenant of the lives.
pub const TENANT: &str = "bench";

/// Makes lives, no two alike.
pub struct Lives {
    next: AtomicU64,
}

impl Lives {
    /// Lives whose ids begin at this number.
    pub fn from(first: u64) -> Lives {
        Lives { next: AtomicU64::new(first) }
    }

    /// A new session's key and its commands, in order.
    pub fn next(&self) -> (SessionKey, Vec<Command>) {
        life(self.take(1))
    }

    /// The numbers of so many lives that somebody else lives, from this one on.
    pub fn take(&self, count: u64) -> u64 {
        self.next.fetch_add(count, Ordering::Relaxed)
    }
}

/// The key of the session with this number: ids as random as a client's, so that the index is as scattered.
pub fn key(number: u64) -> SessionKey {
    SessionKey::new(TENANT, id(number, 0).as_str())
}

/// The life with this number.
pub fn life(number: u64) -> (SessionKey, Vec<Command>) {
    let (planner, worker) = agents(number);
    let acts = [
        (&planner, Act::Start(Box::new(start(&planner, &worker)))),
        (&planner, Act::Task(TaskAct::Request(Box::new(request(&worker))))),
        (&worker, Act::Task(accept())),
        (&worker, Act::Task(update(0.3))),
        (&worker, Act::Task(update(0.7))),
        (&worker, Act::Task(complete())),
        (&planner, Act::Commit(Box::new(commitment()))),
    ];
    let commands = acts.into_iter().enumerate().map(|(index, (by, act))| {
        let mut command =
            Command::by(by, Face::Macp, act).in_session_scope().with_id(id(number, index as u64 + 1));
        command.verbatim = Some(blob(VERBATIM_BYTES[index]));
        command
    });
    (key(number), commands.collect())
}

/// A task that one agent has handed to another and that is done, by rules that settle it with the report: the session with
/// this number, and its commands.
pub fn done(
    tenant: &str,
    number: u64,
    requester: &AgentId,
    worker: &AgentId,
) -> (SessionKey, [Command; DONE_COMMANDS]) {
    let start = Start { charter: Charter::mcp(), ..start(requester, worker) };
    let delegation = Delegation { start, opening: Opening::Request(request(worker)) };
    let commands = [
        Command::by(requester, Face::Mcp, Act::Delegate(Box::new(delegation))),
        Command::by(worker, Face::Mcp, Act::Task(accept())),
        Command::by(worker, Face::Mcp, Act::Task(complete())),
    ];
    (SessionKey::new(tenant, id(number, 0).as_str()), commands)
}

/// How many commands that takes.
const DONE_COMMANDS: usize = 3;

/// One more update of the life with this number. With an id it is remembered, so that it has an effect once.
pub fn one_more_update(number: u64, update_id: Option<u64>) -> Command {
    let (_, worker) = agents(number);
    let mut command = Command::by(&worker, Face::Macp, Act::Task(update(0.5))).in_session_scope();
    command.id = update_id.map(|update| id(number, PARTS_MAX + update).into());
    command.verbatim = Some(blob(64));
    command
}

/// The events of one life as they are stored, for the limit to write.
pub fn encoded() -> Vec<Arc<[u8]>> {
    let (key, commands) = life(0);
    let mut session = None;
    let id = SessionId::from(&*key.session);
    let limits = Limits::default();
    let events = commands
        .iter()
        .flat_map(|command| step(&mut session, &id, command, &limits, Timestamp(1_700_000_000_000)).events);
    events.map(|event| Arc::from(codec::encode(&event))).collect()
}

/// What the wire sent, so that each event is about 300 bytes with its meaning.
const VERBATIM_BYTES: [usize; EVENTS] = [96, 0, 200, 64, 64, 48, 80];

/// How many ids a life has to itself.
const PARTS_MAX: u64 = 16;

/// An id that looks like a random UUID and is the same for the same numbers.
fn id(number: u64, part: u64) -> String {
    let mix = |seed: u64| {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let (high, low) = (mix(number * PARTS_MAX + part), mix(!(number * PARTS_MAX + part)));
    let text = format!("{high:016x}{low:016x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// Who hands the task of a life out, and who does it.
pub fn agents(number: u64) -> (AgentId, AgentId) {
    let agent = |name: &str, of: u64| AgentId::from(format!("{name}-{}", number % of).as_str());
    (agent("planner", 50), agent("worker", 200))
}

fn blob(bytes: usize) -> Blob {
    Arc::from(vec![b'x'; bytes])
}

fn text(bytes: usize) -> Text {
    Text::from("y".repeat(bytes))
}

fn start(planner: &AgentId, worker: &AgentId) -> Start {
    Start {
        mode: ModeKind::Task,
        participants: vec![planner.clone(), worker.clone()],
        charter: Charter::macp(),
        mode_version: Text::from("1.0.0"),
        configuration_version: Text::from("bench"),
        policy_version: Text::from("policy.default"),
        ttl_ms: Some(24 * 60 * 60 * 1000),
        sent_at: None,
        intent: Text::from("measure"),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: None,
        contract: None,
        under: None,
    }
}

fn request(worker: &AgentId) -> Request {
    Request {
        task: Text::from("t1"),
        title: text(12),
        instructions: text(64),
        assignee: Some(worker.clone()),
        input: blob(96),
        wanted_by: None,
        check_in: Default::default(),
        session_key: None,
    }
}

fn accept() -> TaskAct {
    TaskAct::Accept { task: None, assignee: None, reason: Text::default() }
}

fn update(done: f64) -> TaskAct {
    let progress =
        Progress { status: Text::from("running"), done: Some(done), message: text(64), partial: blob(80) };
    TaskAct::Update { task: Some(Text::from("t1")), progress, withdraws: true }
}

fn complete() -> TaskAct {
    TaskAct::Complete { task: Some(Text::from("t1")), assignee: None, output: blob(120), summary: text(48) }
}

fn commitment() -> Commitment {
    Commitment {
        commitment: Text::from("c1"),
        action: Text::from("task.completed"),
        scope: Text::from("bench"),
        reason: text(40),
        mode_version: Text::from("1.0.0"),
        policy_version: Text::from("policy.default"),
        configuration_version: Text::from("bench"),
        positive: true,
        supersedes: None,
    }
}
