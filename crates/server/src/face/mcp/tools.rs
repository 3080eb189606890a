//! Tools: the skills of other agents, and our own beside them.
//!
//! - [`requester`]: to hand out work and watch over it
//! - [`worker`]: to find work and do it
//! - [`agents`]: who is there
//! - [`approvals`]: to decide about what needs an approval
//! - [`handoffs`]: to hand a responsibility on
//! - [`conversation`]: to talk about tasks as agents of the Grid do
//! - `shape`: what they return, and what hosts may assume of them
//!
//! What a tool cannot do is said in its result, so that a model can read it and do better. Descriptions are written for
//! one that has never seen them.

pub mod agents;
pub mod approvals;
pub mod conversation;
pub mod handoffs;
pub mod requester;
mod shape;
pub mod worker;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::call::ToolCall;
use super::caller::Caller;
use super::discover::{cacheable, complete, described_by};
use super::http::ParameterHeaders;
use super::message::{Error, shorten};
use super::{Mcp, No, Outbox, content, params};
use handover_desk::directory::Tool;
use handover_desk::identity::Profile;
use handover_desk::page;
use tokio::time::Instant;

/// How many tools a page lists.
const PAGE: usize = 1000;

/// How many bytes: more than other pages, for clients that look at no other page than the first.
const PAGE_BYTES_MAX: usize = 4 * page::BYTES_MAX;

/// How long the list may be kept: a subscription tells of changes before that.
const LIST_TTL_MS: u64 = 5 * 60 * 1000;

/// How long a model can ask a tool of ours to wait.
const WAIT_MAX_MS: u64 = 60_000;

/// What one of our own tools is, and what it does.
pub(super) struct Builtin {
    /// Its name.
    pub(super) name: &'static str,
    /// For people.
    pub(super) title: &'static str,
    /// For a model that has never seen it.
    pub(super) description: &'static str,
    /// Its arguments, as the fields of an object, and which of them must be there.
    pub(super) arguments: fn() -> Value,
    /// What it does.
    pub(super) run: Run,
}

/// Which of our own tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Agents(agents::Tool),
    Requester(requester::Tool),
    Worker(worker::Tool),
    Handoffs(handoffs::Tool),
    Conversation(conversation::Tool),
    Approvals(approvals::Tool),
}

impl Run {
    /// Whether a profile shows it.
    fn is_for(self, profile: Profile) -> bool {
        let both = [
            Run::Agents(agents::Tool::List),
            Run::Requester(requester::Tool::Message),
            Run::Requester(requester::Tool::Timeline),
        ];
        match (profile, self) {
            // Those who want to talk so say so: to others it would be a second way to do the same.
            (Profile::Conversation, Run::Conversation(_) | Run::Agents(_)) => true,
            (Profile::Conversation, _) => TALKING.contains(&self),
            (Profile::All | Profile::Requester | Profile::Worker, Run::Conversation(_)) => false,
            (Profile::All, _) => true,
            (Profile::Requester, Run::Requester(_) | Run::Approvals(approvals::Tool::Propose)) => true,
            (Profile::Worker, Run::Worker(_) | Run::Agents(_) | Run::Handoffs(_)) => true,
            (Profile::Requester | Profile::Worker, _) => both.contains(&self),
        }
    }

    /// Whether a call of it may end without a command, with which its agent is seen.
    fn may_only_look(self) -> bool {
        shape::reads(self) || matches!(self, Run::Agents(_) | Run::Worker(worker::Tool::Next))
    }
}

/// Those of the other tools that a conversation needs.
const TALKING: [Run; 4] = [
    Run::Approvals(approvals::Tool::Propose),
    Run::Requester(requester::Tool::List),
    Run::Requester(requester::Tool::Cancel),
    Run::Requester(requester::Tool::Timeline),
];

/// Our own tools by name, as a list shows them.
static BUILTINS: LazyLock<BTreeMap<&'static str, (&'static Builtin, Value)>> = LazyLock::new(|| {
    let all = agents::TOOLS.iter().chain(requester::TOOLS).chain(worker::TOOLS).chain(handoffs::TOOLS);
    let all = all.chain(conversation::TOOLS).chain(approvals::TOOLS);
    all.map(|tool| (tool.name, (tool, listed_builtin(tool)))).collect()
});

fn listed_builtin(tool: &Builtin) -> Value {
    json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": (tool.arguments)(),
        "outputSchema": shape::returns(tool.run),
        "annotations": shape::hints(tool.run),
        "_meta": described_by(None),
    })
}

/// The schema of an object with these fields.
pub(super) fn object(fields: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": fields, "required": required, "additionalProperties": false })
}

/// What a tool of ours returns: a result, or what is wrong with what it was given.
pub(super) type Done = Result<Map<String, Value>, Trouble>;

/// Why a tool of ours could not do what was asked.
pub(super) enum Trouble {
    /// Said in the result.
    Told(String),
    /// The call is broken.
    Broken(Error),
}

impl From<No> for Trouble {
    fn from(no: No) -> Trouble {
        match no.is_callers() {
            true => Trouble::Told(format!("{} ({})", super::said(&no), no.said_code())),
            false => Trouble::Broken(no.into()),
        }
    }
}

impl From<handover_desk::No> for Trouble {
    fn from(no: handover_desk::No) -> Trouble {
        No(no).into()
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error.code {
            super::message::INVALID_PARAMS => Trouble::Told(error.message.into_owned()),
            _ => Trouble::Broken(error),
        }
    }
}

/// The arguments of a tool of ours.
pub(super) fn read_arguments<T: DeserializeOwned>(given: Map<String, Value>) -> Result<T, Trouble> {
    serde_json::from_value(Value::Object(given)).map_err(|error| Trouble::Told(format!("arguments: {error}")))
}

impl Mcp {
    /// How long a call of this caller waits for what it asks for.
    pub(super) fn wait_of(&self, caller: &Caller) -> Duration {
        self.desk().wait(&caller.who, caller.wishes.wait, caller.progress.is_some())
    }

    /// Until when a tool of ours waits: as its arguments say, or as any call of the caller does.
    fn until(&self, caller: &Caller, wait_ms: Option<u64>) -> Instant {
        let asked = wait_ms.map(|wait| Duration::from_millis(wait.min(WAIT_MAX_MS)));
        Instant::now() + asked.unwrap_or_else(|| self.wait_of(caller))
    }

    /// `tools/list`: our own first, for clients that look at no other page than the first, then skills; each in the order of
    /// their names, which does not depend on anything else.
    pub(super) async fn tools_list(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct List {
            cursor: Option<String>,
        }
        let List { cursor } = params(given)?;
        let catalogue =
            self.desk().directory.skills(&caller.tenant, &caller.agent).await.map_err(No::from)?;
        let profile = caller.profile();
        // The tool that a page ended with may be gone by now.
        let after = page::name(cursor.as_deref()).map_err(No)?;
        let after = after.as_deref();
        let own_after = match after {
            None => Some(""),
            Some(after) => BUILTINS.contains_key(after).then_some(after),
        };
        let beyond = |after| BUILTINS.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let own = own_after.into_iter().flat_map(beyond);
        let own = own.filter(|(_, (tool, _))| tool.run.is_for(profile));
        let own = own.map(|(name, (_, listed))| (*name, Tooled::Own(listed)));
        let skills: &[Arc<Tool>] = match (profile, after) {
            (Profile::Worker | Profile::Conversation, _) => &[],
            (Profile::All | Profile::Requester, Some(after)) if own_after.is_none() => catalogue.after(after),
            (Profile::All | Profile::Requester, _) => catalogue.tools(),
        };
        let mut all = own.chain(skills.iter().map(|tool| (&*tool.name, Tooled::Skill(tool)))).peekable();
        let (mut tools, mut bytes, mut last) = (Vec::new(), 0, None);
        while tools.len() < PAGE
            && bytes < PAGE_BYTES_MAX
            && let Some((name, tool)) = all.next()
        {
            bytes += tool.bytes();
            last = Some(name);
            tools.push(tool.listed());
        }
        let mut result = Map::new();
        if let Some(last) = last.filter(|_| all.peek().is_some()) {
            result.insert("nextCursor".to_owned(), json!(page::of_name(last)));
        }
        result.insert("tools".to_owned(), Value::Array(tools));
        Ok(cacheable(caller, result, LIST_TTL_MS))
    }

    /// `tools/call`.
    pub(super) async fn tools_call(
        &self,
        caller: &Caller,
        given: Option<&RawValue>,
        headers: Option<&ParameterHeaders>,
        out: &Outbox,
    ) -> Result<String, Error> {
        let call: ToolCall = params(given)?;
        if let Some((tool, _)) = BUILTINS.get(call.name.as_str()) {
            let done = self.run(caller, tool.run, call.arguments.unwrap_or_default()).await;
            return match done {
                Ok(result) => Ok(complete(caller, result)),
                Err(Trouble::Told(what)) => Ok(complete(caller, content::failed(what))),
                Err(Trouble::Broken(error)) => Err(error),
            };
        }
        let catalogue =
            self.desk().directory.skills(&caller.tenant, &caller.agent).await.map_err(No::from)?;
        let unknown = || Error::invalid(format!("there is no tool {}", shorten(&call.name)));
        let tool = catalogue.find(&call.name).ok_or_else(unknown)?;
        if let Some(headers) = headers {
            headers.check(tool, call.arguments.as_ref())?;
        }
        self.call_skill(caller, tool, call, out).await
    }

    async fn run(&self, caller: &Caller, run: Run, given: Map<String, Value>) -> Done {
        if run.may_only_look() {
            self.desk().directory.touch(&caller.tenant, &caller.agent);
        }
        match run {
            Run::Agents(tool) => self.run_agents(caller, tool, given).await,
            Run::Requester(tool) => self.run_requester(caller, tool, given).await,
            Run::Worker(tool) => self.run_worker(caller, tool, given).await,
            Run::Handoffs(tool) => self.run_handoffs(caller, tool, given).await,
            Run::Conversation(tool) => self.run_conversation(caller, tool, given).await,
            Run::Approvals(tool) => self.run_approvals(caller, tool, given).await,
        }
    }
}

/// A tool that a list may show.
enum Tooled<'a> {
    Own(&'a Value),
    Skill(&'a Tool),
}

impl Tooled<'_> {
    /// About how many bytes it has on a page.
    fn bytes(&self) -> usize {
        match self {
            Tooled::Own(_) => 1024,
            Tooled::Skill(tool) => {
                let skill = &tool.skill;
                let texts = [&skill.title, &skill.description, &skill.input_schema, &skill.output_schema];
                texts.into_iter().chain([&skill.annotations]).map(|text| text.len()).sum()
            }
        }
    }

    fn listed(&self) -> Value {
        match self {
            Tooled::Own(listed) => (*listed).clone(),
            Tooled::Skill(tool) => listed_skill(tool),
        }
    }
}

fn listed_skill(tool: &Tool) -> Value {
    let skill = &tool.skill;
    let mut listed = json!({
        "name": &*tool.name,
        "description": format!("{} (a skill of {})", skill.description, tool.agent),
        "inputSchema": serde_json::from_str::<Value>(skill.input()).ok(),
        "_meta": described_by(Some(tool.agent.as_str())),
    });
    if !skill.title.is_empty() {
        listed["title"] = json!(skill.title);
    }
    if let Some(schema) = skill.output() {
        listed["outputSchema"] = shape::or_handle(schema);
    }
    if let Some(annotations) = skill.remarks() {
        listed["annotations"] = annotations;
        // Hosts may act on hints: these are as good as whoever gave them.
        listed["_meta"]["dev.handover/annotatedBy"] = json!({ "kind": "agent", "id": tool.agent.as_str() });
    }
    listed
}

#[cfg(test)]
mod tests {
    use handover_desk::directory::listed::is_reserved;

    use super::*;

    #[test]
    fn a_model_is_told_of_every_tool_that_its_profile_shows_and_of_no_other() {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '*';
        for profile in [Profile::All, Profile::Requester, Profile::Worker, Profile::Conversation] {
            let text = super::super::discover::instructions(profile);
            let words: Vec<&str> = text.split(|letter| !is_letter(letter)).collect();
            let is_told = |name: &str| {
                words.iter().any(|word| match word.strip_suffix('*') {
                    Some(beginning) => name.starts_with(beginning),
                    None => *word == name,
                })
            };
            for (name, (tool, _)) in BUILTINS.iter() {
                assert_eq!(is_told(name), tool.run.is_for(profile), "{profile:?}: {name}");
            }
        }
    }

    #[test]
    fn no_skill_can_be_listed_as_a_tool_of_ours() {
        for name in BUILTINS.keys() {
            let run_together = name.replace('_', "");
            assert!(is_reserved(name) && is_reserved(&run_together), "{name}");
        }
        for name in ["send_task", "send_message", "message_ack", "search_agents", "set_status", "TASK_any"] {
            assert!(is_reserved(name), "{name}");
        }
        assert!(!is_reserved("search") && !is_reserved("taskmaster"));
    }
}
