//! What this server says of itself.

use std::sync::LazyLock;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::caller::{Caller, Declared, Era, HANDSHAKES, INTERACTION, MODERN, TASKS};
use super::{Mcp, message};
use handover_desk::identity::Profile;

/// How long what a server says of itself may be kept.
const DISCOVER_TTL_MS: u64 = 60 * 60 * 1000;

/// The name and version that go into the `_meta` of results.
pub(super) static META: LazyLock<Box<RawValue>> = LazyLock::new(|| {
    to_raw_value(&json!({ "io.modelcontextprotocol/serverInfo": server() }))
        .expect("a name and a version are JSON")
});

/// What a model should know before it sees the tools of its profile: what it can call is named, or begins as is said.
pub(super) fn instructions(profile: Profile) -> String {
    let parts: &[&str] = match profile {
        Profile::All => &[INTRODUCTION, SKILLS, REQUESTING, WORKING, HANDING_ON, APPROVING],
        Profile::Requester => &[INTRODUCTION, SKILLS, REQUESTING],
        Profile::Worker => &[INTRODUCTION, WORKING, TALKING, HANDING_ON],
        Profile::Conversation => &[INTRODUCTION, CONVERSING],
    };
    parts.join("\n\n")
}

const INTRODUCTION: &str = "Handover delegates tasks between agents.";

const SKILLS: &str = "\
A tool whose description ends with \"(a skill of NAME)\" is a skill of the agent of that name: calling it hands that agent a task and \
returns its result. All other tools are this server's own.";

const REQUESTING: &str = "\
To have work done: call the skill that fits, or agent_list to see who is there and delegate_task to give one of them \
instructions. Work that takes longer than a few seconds answers with a task_id instead of a result, and the task goes on: \
call task_wait with it, again and again, and follow `next_step` in its answer. While status is working, the task goes on; \
input_required means that the agent asks something: answer `questions` with task_answer; paused means that it stands still until \
somebody resumes it. Any other status is its end: completed, failed, rejected, cancelled or expired. task_status looks at a task \
without waiting, task_timeline tells all that happened in it. task_steer changes its course, task_message says something in it, \
task_pause and task_resume stop it for a while, task_cancel takes it back. Some tasks end only when you accept or refuse the result \
with task_commit. If a task needs somebody's approval and was sent back, change it with task_propose. If a call failed or timed \
out without a task_id, look in task_list before you call again: the task may be there.";

const WORKING: &str = "\
To do work for others: agent_register says what you can do (agent_list shows who is there, agent_unregister takes you off the \
list); then call work_next again and again until `work` has a task. Take it with work_accept, or turn it down with work_decline. \
After each step call work_update and follow the `orders` in its answer; while `paused` is true, stop and call work_checkpoint until it \
is false. work_hold pauses a task of yours and work_resume lets it go on. If you need an answer, work_ask. End with work_complete \
and the result, or with work_fail and the reason; then call work_next again. work_list shows what you have taken.";

const TALKING: &str = "\
task_message says something to the requester of a task, and task_timeline tells all that happened in it.";

const HANDING_ON: &str = "\
The handoff_* tools hand a responsibility, such as a task that you work on, to another agent, and take over what is offered to \
you: see handoff_list.";

const APPROVING: &str = "\
If you are somebody whose approval is asked for, approval_list shows what waits for it, and approval_decide decides.";

const CONVERSING: &str = "\
Agents talk about tasks here. To have work done: search_agents or agent_list to find somebody, then send_task. Look for replies with \
task_list and unread: true, read them with task_read, acknowledge with message_ack, answer with send_message, and accept the result \
with task_complete, or take the task back with task_cancel. To do work: agent_register says what you can do (agent_unregister takes \
you off the list) and set_status whether you take work; read the tasks that task_list shows with task_read, call message_ack, and \
reply with send_message, which delivers the result unless `state` says that you ask something or still work. task_reject turns a \
task down, task_update sets its state, task_timeline tells all that happened in it. If a task of yours needs an approval and was sent \
back, change it with task_propose.";

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
        result.insert("instructions".to_owned(), json!(instructions(caller.profile())));
        cacheable(caller, result, DISCOVER_TTL_MS)
    }
}

/// What `initialize` answers.
pub(super) fn initialized(version: &str, profile: Profile) -> String {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities(Era::Handshake, Declared::default()),
        "serverInfo": server(),
        "instructions": instructions(profile),
    })
    .to_string()
}
