//! What is sent: the envelopes of a full task life, and ids that nobody has used.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use handover_server::face::macp::proto::task::{
    TaskAcceptPayload, TaskCompletePayload, TaskRequestPayload, TaskUpdatePayload,
};
use handover_server::face::macp::proto::v1::{CommitmentPayload, Envelope, SessionStartPayload};
use prost::Message;

/// How many envelopes make a task that is accepted and worked on: start, request, accept.
pub const OPENING: usize = 3;

/// Where the first update stands in a life.
pub const UPDATE: usize = 3;

/// What comes after the last update: the report and the commitment.
pub const CLOSING: usize = 5;

/// How long a session may take. Long enough for every run, and short enough for every runtime.
const TTL_MS: i64 = 10 * 60 * 1000;

const TASK: &str = "t1";
const MODE_VERSION: &str = "1.0.0";
const CONFIGURATION_VERSION: &str = "bench";
const POLICY_VERSION: &str = "policy.default";

/// Who says it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    Requester,
    Worker,
}

/// One envelope of a life, but for its ids.
pub struct Line {
    pub by: By,
    pub message_type: &'static str,
    payload: Vec<u8>,
}

/// A life: seven lines, the same each time.
pub struct Script {
    requester: String,
    worker: String,
    lines: [Line; 7],
}

impl Script {
    /// The life of a task that one agent hands to another.
    pub fn new(requester: &str, worker: &str) -> Script {
        Script::within(TTL_MS, requester, worker)
    }

    /// The life of a task that has only so long.
    pub fn within(ttl_ms: i64, requester: &str, worker: &str) -> Script {
        let line = |by, message_type, payload| Line { by, message_type, payload };
        let lines = [
            line(By::Requester, "SessionStart", start(ttl_ms, requester, worker)),
            line(By::Requester, "TaskRequest", request(worker)),
            line(By::Worker, "TaskAccept", accept(worker)),
            line(By::Worker, "TaskUpdate", update(0.3)),
            line(By::Worker, "TaskUpdate", update(0.7)),
            line(By::Worker, "TaskComplete", complete(worker)),
            line(By::Requester, "Commitment", commitment()),
        ];
        Script { requester: requester.to_owned(), worker: worker.to_owned(), lines }
    }

    /// The lines in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// A line as it is sent.
    pub fn envelope(&self, line: &Line, session_id: &str, message_id: String) -> Envelope {
        let sender = match line.by {
            By::Requester => &self.requester,
            By::Worker => &self.worker,
        };
        Envelope {
            macp_version: "1.0".to_owned(),
            mode: "macp.mode.task.v1".to_owned(),
            message_type: line.message_type.to_owned(),
            message_id,
            session_id: session_id.to_owned(),
            sender: sender.clone(),
            timestamp_unix_ms: now_ms(),
            payload: line.payload.clone(),
        }
    }
}

/// Makes UUIDs of version 4. A clone goes on with the same ones.
#[derive(Clone)]
pub struct Ids {
    state: u64,
}

impl Ids {
    /// Ids that no other run has used.
    pub fn new() -> Ids {
        // The standard library takes its hash keys from the system's randomness.
        Ids { state: RandomState::new().hash_one(std::process::id()) }
    }

    /// Splitmix64: well spread, and cheap beside a call over the network.
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next one.
    pub fn next(&mut self) -> String {
        let high = (self.bits() & 0xffff_ffff_ffff_0fff) | 0x4000;
        let low = (self.bits() & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
        let (d, e) = (low >> 48, low & 0xffff_ffff_ffff);
        format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

/// The time, as envelopes tell it.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

fn text(bytes: usize) -> String {
    "y".repeat(bytes)
}

fn start(ttl_ms: i64, requester: &str, worker: &str) -> Vec<u8> {
    SessionStartPayload {
        intent: "measure".to_owned(),
        participants: vec![requester.to_owned(), worker.to_owned()],
        mode_version: MODE_VERSION.to_owned(),
        configuration_version: CONFIGURATION_VERSION.to_owned(),
        policy_version: POLICY_VERSION.to_owned(),
        ttl_ms,
        ..SessionStartPayload::default()
    }
    .encode_to_vec()
}

fn request(worker: &str) -> Vec<u8> {
    TaskRequestPayload {
        task_id: TASK.to_owned(),
        title: text(12),
        instructions: text(64),
        requested_assignee: worker.to_owned(),
        input: vec![b'x'; 96],
        deadline_unix_ms: 0,
    }
    .encode_to_vec()
}

fn accept(worker: &str) -> Vec<u8> {
    TaskAcceptPayload { task_id: TASK.to_owned(), assignee: worker.to_owned(), reason: text(16) }
        .encode_to_vec()
}

fn update(progress: f64) -> Vec<u8> {
    TaskUpdatePayload {
        task_id: TASK.to_owned(),
        status: "running".to_owned(),
        progress,
        message: text(64),
        partial_output: vec![b'x'; 80],
    }
    .encode_to_vec()
}

fn complete(worker: &str) -> Vec<u8> {
    TaskCompletePayload {
        task_id: TASK.to_owned(),
        assignee: worker.to_owned(),
        output: vec![b'x'; 120],
        summary: text(48),
    }
    .encode_to_vec()
}

fn commitment() -> Vec<u8> {
    CommitmentPayload {
        commitment_id: "c1".to_owned(),
        action: "task.completed".to_owned(),
        authority_scope: "bench".to_owned(),
        reason: text(40),
        mode_version: MODE_VERSION.to_owned(),
        policy_version: POLICY_VERSION.to_owned(),
        configuration_version: CONFIGURATION_VERSION.to_owned(),
        outcome_positive: true,
        supersedes: None,
    }
    .encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_lower_case_uuids_of_version_4() {
        let mut ids = Ids::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let id = ids.next();
            let parts: Vec<&str> = id.split('-').collect();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
            assert!(id.chars().all(|c| matches!(c, '-' | '0'..='9' | 'a'..='f')), "{id}");
            assert!(parts[2].starts_with('4'), "{id}");
            assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{id}");
            assert!(seen.insert(id));
        }
    }

    #[test]
    fn a_clone_goes_on_with_the_same_ids() {
        let mut ids = Ids::new();
        let mut clone = ids.clone();
        assert_eq!(ids.next(), clone.next());
        assert_ne!(ids.next(), Ids::new().next());
    }
}
