//! What this server says of itself.

use std::sync::LazyLock;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::caller::{Caller, Declared, Era, HANDSHAKES, INTERACTION, MODERN, TASKS};
use super::{Mcp, message};

/// How long what a server says of itself may be kept.
const DISCOVER_TTL_MS: u64 = 60 * 60 * 1000;

/// The name and version that go into the `_meta` of results.
pub(super) static META: LazyLock<Box<RawValue>> = LazyLock::new(|| {
    to_raw_value(&json!({ "io.modelcontextprotocol/serverInfo": server() }))
        .expect("a name and a version are JSON")
});

/// What a model should know before it sees the tools.
const INSTRUCTIONS: &str = "\
Handover delegates tasks between agents. Tools that are not named below are skills of other agents: calling one hands \
that agent a task and returns its result.

To have work done: call the skill that fits, or agent_list to see who is there and delegate_task to give one of them \
instructions. Work that takes longer than a few seconds answers with a task_id instead of a result, and the task goes on: \
call task_wait with it, again and again, until status is completed, failed or cancelled. If status is input_required, the \
agent asks you something: answer `questions` with task_answer. Meanwhile task_steer changes its course, task_pause and \
task_resume stop it for a while, task_cancel takes it back. If a call failed or timed out without a task_id, look in \
task_list before you call again: the task may be there.

To do work for others: agent_register says what you can do; then call work_next again and again until `work` has a task. \
Take it with work_accept, or turn it down with work_decline. After each step call work_update and follow the `orders` in its \
answer. If you need an answer, work_ask. End with work_complete and the result, or with work_fail and the reason; then call \
work_next again.";

/// Whose words a title and a description are: the server's, or an agent's, which nobody has checked.
pub(super) fn described_by(agent: Option<&str>) -> Value {
    let (kind, id) = agent.map_or(("server", "handover"), |agent| ("agent", agent));
    json!({ "dev.handover/describedBy": { "kind": kind, "id": id } })
}

/// The name and version of this server.
pub(super) fn server() -> Value {
    json!({ "name": "handover", "title": "Handover", "version": env!("CARGO_PKG_VERSION") })
}

/// What is served, to a caller that declared so much.
pub(super) fn capabilities(era: Era, declared: Declared) -> Value {
    let mut capabilities = json!({
        "completions": {},
        "logging": {},
        "prompts": {},
        "resources": { "subscribe": true },
        "tools": { "listChanged": true },
    });
    match era {
        Era::Handshake => {}
        Era::Modern => {
            // Settings that are not empty make clients that know only the base extension give it up.
            let mut settings = Map::new();
            for (name, knows) in [("steer", declared.steer), ("pause", declared.pause)] {
                if knows {
                    settings.insert(name.to_owned(), Value::Bool(true));
                }
            }
            capabilities["extensions"] =
                json!({ TASKS: settings, INTERACTION: { "steer": true, "pause": true } });
        }
    }
    capabilities
}

/// What a result has in every revision: its type in the stateless one, who answered in both.
pub(super) fn complete(caller: &Caller, mut result: Map<String, Value>) -> String {
    if caller.era == Era::Modern {
        result.insert("resultType".to_owned(), json!("complete"));
        let meta = result.entry("_meta").or_insert_with(|| json!({}));
        if let Value::Object(meta) = meta {
            meta.entry("io.modelcontextprotocol/serverInfo").or_insert_with(server);
        }
    }
    message::result(&result)
}

/// The same for a list that may be kept for a while. Handshake revisions know no such hints.
pub(super) fn cacheable(caller: &Caller, mut result: Map<String, Value>, ttl_ms: u64) -> String {
    if caller.era == Era::Modern {
        result.insert("ttlMs".to_owned(), json!(ttl_ms));
        result.insert("cacheScope".to_owned(), json!("private"));
    }
    complete(caller, result)
}

impl Mcp {
    /// `server/discover`.
    pub(super) fn discover(&self, caller: &Caller) -> String {
        let versions: Vec<&str> = std::iter::once(MODERN).chain(HANDSHAKES).collect();
        let mut result = Map::new();
        result.insert("supportedVersions".to_owned(), json!(versions));
        result.insert("capabilities".to_owned(), capabilities(caller.era, caller.declared));
        result.insert("instructions".to_owned(), json!(INSTRUCTIONS));
        cacheable(caller, result, DISCOVER_TTL_MS)
    }
}

/// What `initialize` answers.
pub(super) fn initialized(version: &str) -> String {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities(Era::Handshake, Declared::default()),
        "serverInfo": server(),
        "instructions": INSTRUCTIONS,
    })
    .to_string()
}
