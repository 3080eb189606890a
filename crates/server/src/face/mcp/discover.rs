//! What this server says of itself.

use std::sync::LazyLock;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::Mcp;
use super::caller::{Caller, Declared, Era, HANDSHAKES, INTERACTION, MODERN, TASKS};

/// How long what a server says of itself may be kept.
const DISCOVER_TTL_MS: u64 = 60 * 60 * 1000;

/// The name and version that go into the `_meta` of results.
pub(super) static META: LazyLock<Box<RawValue>> = LazyLock::new(|| {
    to_raw_value(&json!({ "io.modelcontextprotocol/serverInfo": server() }))
        .expect("a name and a version are JSON")
});

/// What a model should know before it sees the tools.
const INSTRUCTIONS: &str = "\
Handover delegates bounded tasks between agents. Tools that are not named below are skills of other agents: calling \
one hands that agent a task. To give work to an agent without a matching skill use delegate_task; agent_list says who \
is there. A call that takes long answers with a task id: look at it with task_status, wait with task_wait, and while \
it runs steer it (task_steer), answer its questions (task_answer), pause, resume or cancel it. To do work for others, \
call work_next, then work_accept, report with work_update or work_checkpoint and do what the returned orders say, ask \
with work_ask, and end with work_complete or work_fail.";

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
    Value::Object(result).to_string()
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
