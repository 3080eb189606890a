//! A skill as an agent registers it over JSON.

use handover_client::jsonrpc::shorten;
use handover_desk::directory::{Answers, Skill};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Something that an agent says it can do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSkill {
    /// Its name, unique among the skills of its agent.
    name: String,
    /// What people call it.
    title: Option<String>,
    /// What it does.
    description: String,
    /// A JSON Schema of what it takes.
    #[serde(rename = "inputSchema")]
    input_schema: Option<Value>,
    /// A JSON Schema of what it returns.
    #[serde(rename = "outputSchema")]
    output_schema: Option<Value>,
    /// How it answers: `at_once`, `task` or `either`.
    answers: Option<String>,
    /// Whether it asks for something before it begins.
    #[serde(default)]
    asks_first: bool,
    /// What a caller's client must be able to do.
    #[serde(default)]
    requires: Vec<String>,
    /// Agents that a running call of it may be handed on to.
    #[serde(default)]
    successors: Vec<String>,
    /// Remarks for clients, an object.
    annotations: Option<Value>,
}

impl NewSkill {
    /// As it is stored, or what is wrong with it.
    pub(crate) fn skill(self) -> Result<Skill, String> {
        let answers = match self.answers.as_deref() {
            Some("at_once") => Answers::AtOnce,
            Some("task") => Answers::Task,
            Some("either") | None => Answers::Either,
            Some(other) => {
                let found = shorten(other);
                return Err(format!("answers: expected at_once, task or either, found {found}"));
            }
        };
        let text = |value: Option<Value>| value.map_or_else(String::new, |value| value.to_string());
        Ok(Skill {
            name: self.name,
            title: self.title.unwrap_or_default(),
            description: self.description,
            input_schema: text(self.input_schema),
            output_schema: text(self.output_schema),
            answers: answers.into(),
            asks_first: self.asks_first,
            requires: self.requires,
            successors: self.successors,
            annotations: text(self.annotations),
            ..Skill::default()
        })
    }
}
