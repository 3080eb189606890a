//! Tools to see who is there, and to be there oneself.

use std::sync::Arc;

use handover_kernel::AgentId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Builtin, Done, Run, Trouble, object, read_arguments};
use crate::face::mcp::Mcp;
use crate::face::mcp::caller::Caller;
use crate::face::mcp::content::structured;
use crate::face::mcp::discover::described_by;
use crate::face::skill::NewSkill;
use handover_desk::calendar::rfc3339;
use handover_desk::directory::{Agent, Tool as Listed};

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::face::mcp) enum Tool {
    List,
    Register,
    Unregister,
}

/// How many agents a list shows.
const LIST_MAX: usize = 100;

fn skill_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "What you call it: letters, digits, _ - . The answer says under which name others see it" },
            "title": { "type": "string" },
            "description": { "type": "string", "description": "What it does, for a model that has never seen it" },
            "inputSchema": { "type": "object", "description": "A JSON Schema of its arguments" },
            "outputSchema": { "type": "object", "description": "A JSON Schema of its structured result" },
            "answers": { "enum": ["at_once", "task", "either"], "description": "Whether callers wait for it, follow it as a task, or as each can (unless given)" },
            "asks_first": { "type": "boolean", "description": "Whether it may ask before it begins in earnest, which is with its first work_update" },
            "requires": { "type": "array", "items": { "type": "string" }, "description": "What a caller's client must be able to do: elicitation, sampling, roots" },
            "successors": { "type": "array", "items": { "type": "string" }, "description": "Ids of agents that you may hand a running call on to, with handoff_offer" },
            "annotations": { "type": "object" },
        },
        "required": ["name", "description"],
        "additionalProperties": false,
    })
}

/// The tools.
pub(super) const TOOLS: &[Builtin] = &[
    Builtin {
        name: "agent_list",
        title: "List agents",
        description: "List the agents that you can hand work to: their ids, what they are for, their skills, whether they are there now, and their status: available, busy, or do_not_disturb, which takes no new tasks.",
        arguments: || {
            object(
                json!({
                    "cursor": { "type": "string", "description": "next_cursor of the last list" },
                    "max": { "type": "integer", "minimum": 1, "maximum": LIST_MAX },
                }),
                &[],
            )
        },
        run: Run::Agents(Tool::List),
    },
    Builtin {
        name: "agent_register",
        title: "Register yourself",
        description: "Tell other agents what you are and can do. Each of your skills becomes a tool that they can call: the calls come to you \
            through work_next. Registering again replaces what you said before.",
        arguments: || {
            object(
                json!({
                    "name": { "type": "string", "description": "Your name, for people" },
                    "description": { "type": "string", "description": "What you are for" },
                    "skills": { "type": "array", "items": skill_schema() },
                    "visible_to": { "type": "array", "items": { "type": "string" }, "description": "Ids of the agents that shall see you; everybody unless given" },
                }),
                &["name", "description"],
            )
        },
        run: Run::Agents(Tool::Register),
    },
    Builtin {
        name: "agent_unregister",
        title: "Leave the directory",
        description: "Take yourself and your skills out of the directory. Tasks that you have taken stay yours.",
        arguments: || object(json!({}), &[]),
        run: Run::Agents(Tool::Unregister),
    },
];

impl Mcp {
    pub(super) async fn run_agents(&self, caller: &Caller, tool: Tool, given: Map<String, Value>) -> Done {
        match tool {
            Tool::List => self.agent_list(caller, read_arguments(given)?).await,
            Tool::Register => self.agent_register(caller, read_arguments(given)?).await,
            Tool::Unregister => {
                let Nothing {} = read_arguments(given)?;
                let removed = self.desk().unregister(&caller.who, None).await?;
                Ok(structured(json!({ "unregistered": removed })))
            }
        }
    }

    async fn agent_list(&self, caller: &Caller, asked: List) -> Done {
        let max = asked.max.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
        let (found, next) = self.desk().agents(&caller.who, asked.cursor.as_deref(), max).await?;
        let mut agents = Vec::new();
        for agent in found {
            agents.push(self.shown_agent(caller, &agent).await?);
        }
        Ok(structured(json!({ "agents": agents, "next_cursor": next })))
    }

    /// An agent as a caller sees it.
    pub(super) async fn shown_agent(&self, caller: &Caller, agent: &Agent) -> Result<Value, Trouble> {
        let id = AgentId::from(agent.id.as_str());
        let presence = self.desk().directory.presence(&caller.tenant, &id);
        let skills: Vec<Value> = self.desk().listed(&caller.who, &id).await?.iter().map(shown).collect();
        Ok(json!({
            "id": agent.id,
            "name": agent.name,
            "description": agent.description,
            "skills": skills,
            "_meta": described_by(Some(&agent.id)),
            "status": agent.status().name(),
            "status_text": (!agent.status_text.is_empty()).then_some(&agent.status_text),
            "online": presence.online,
            "last_seen": presence.last_seen.map(rfc3339),
        }))
    }

    async fn agent_register(&self, caller: &Caller, asked: Register) -> Done {
        let skills = asked.skills.into_iter().map(NewSkill::skill).collect::<Result<_, _>>();
        let skills = skills.map_err(Trouble::Told)?;
        let agent = Agent {
            name: asked.name,
            description: asked.description,
            skills,
            visible_to: asked.visible_to,
            faces: vec!["mcp".to_owned()],
            ..Agent::default()
        };
        let registered = self.desk().register(&caller.who, agent).await?;
        let listed = self.desk().listed(&caller.who, &caller.agent).await?;
        let tools = listed.iter().map(|tool| json!({ "skill": tool.skill.name, "tool": &*tool.name }));
        Ok(structured(json!({
            "registered": true,
            "id": caller.agent.as_str(),
            "changed": registered.changed,
            "tools": tools.collect::<Vec<_>>(),
        })))
    }
}

fn shown(tool: &Arc<Listed>) -> Value {
    json!({ "name": tool.skill.name, "tool": &*tool.name, "description": tool.skill.description })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    cursor: Option<String>,
    max: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    name: String,
    description: String,
    #[serde(default)]
    skills: Vec<NewSkill>,
    #[serde(default)]
    visible_to: Vec<String>,
}
