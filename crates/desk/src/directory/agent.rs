//! An agent and its skills, as they are stored, and what they may be.

use std::collections::BTreeSet;

use handover_kernel::AgentId;
use prost::Message;
use serde_json::Value;

use super::headers::{self, Header};
use crate::schema::{SCHEMA_BYTES_MAX, Schema};
use crate::{identity, visible};

/// How many skills an agent may have: each is a tool in the list of everybody who sees it.
pub const SKILLS_MAX: usize = 256;

/// How large a description may be: models read them.
pub const DESCRIPTION_BYTES_MAX: usize = 8 * 1024;

/// How large all of an agent may be: everybody's are held in memory.
pub const AGENT_BYTES_MAX: usize = 1024 * 1024;

/// How long a name, a title or a word may be.
const NAME_BYTES_MAX: usize = 256;
const WORD_CHARS_MAX: usize = 64;

/// How many agents may be named in `visible_to` and in `successors`, words in `requires` and words in `faces`.
const VISIBLE_TO_MAX: usize = 1000;
const SUCCESSORS_MAX: usize = 8;
const REQUIRES_MAX: usize = 16;
const FACES_MAX: usize = 16;

/// What clients are told of a tool in one word, yes or no.
const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// The input schema of a skill that gives none.
pub const ANY_OBJECT: &str = r#"{"type":"object"}"#;

/// An agent as it is stored. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Agent {
    /// Who it is.
    #[prost(string, tag = "1")]
    pub id: String,
    /// What people call it.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What it is for.
    #[prost(string, tag = "3")]
    pub description: String,
    /// What it can do.
    #[prost(message, repeated, tag = "4")]
    pub skills: Vec<Skill>,
    /// Who sees it; empty for everybody of its tenant.
    #[prost(string, repeated, tag = "5")]
    pub visible_to: Vec<String>,
    /// When it was first registered, in milliseconds of the Unix epoch. The directory says.
    #[prost(uint64, tag = "6")]
    pub registered_at: u64,
    /// When it last changed. The directory says.
    #[prost(uint64, tag = "7")]
    pub updated_at: u64,
    /// The faces that it registered through, such as `mcp`. The directory keeps earlier ones.
    #[prost(string, repeated, tag = "8")]
    pub faces: Vec<String>,
    /// Whether it takes work. Set by itself; a registration keeps it.
    #[prost(enumeration = "Status", tag = "9")]
    pub status: i32,
    /// What it says about its status; may be empty.
    #[prost(string, tag = "10")]
    pub status_text: String,
}

/// Whether an agent takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Status {
    /// It does.
    Available = 0,
    /// It does, and has other work to do.
    Busy = 1,
    /// It takes no new tasks.
    DoNotDisturb = 2,
}

impl Status {
    /// What they are called.
    pub const NAMES: &str = "available, busy or do_not_disturb";

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Status::Available => "available",
            Status::Busy => "busy",
            Status::DoNotDisturb => "do_not_disturb",
        }
    }

    /// The status of this name.
    pub fn of(name: &str) -> Option<Status> {
        [Status::Available, Status::Busy, Status::DoNotDisturb]
            .into_iter()
            .find(|status| status.name() == name)
    }
}

/// Something that an agent can do. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Skill {
    /// Its name, unique among the skills of its agent.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What people call it; may be empty.
    #[prost(string, tag = "2")]
    pub title: String,
    /// What it does.
    #[prost(string, tag = "3")]
    pub description: String,
    /// The JSON Schema of what it takes; empty for any object.
    #[prost(string, tag = "4")]
    pub input_schema: String,
    /// The JSON Schema of what it gives; may be empty.
    #[prost(string, tag = "5")]
    pub output_schema: String,
    /// How it answers.
    #[prost(enumeration = "Answers", tag = "6")]
    pub answers: i32,
    /// Whether it asks for something before it begins.
    #[prost(bool, tag = "7")]
    pub asks_first: bool,
    /// What a client must be capable of, such as `elicitation`.
    #[prost(string, repeated, tag = "8")]
    pub requires: Vec<String>,
    /// Remarks for clients, a JSON object that is passed on; may be empty.
    #[prost(string, tag = "9")]
    pub annotations: String,
    /// Since when the agent has offered it, in milliseconds of the Unix epoch. The directory says.
    #[prost(uint64, tag = "10")]
    pub offered_at: u64,
    /// The agents that a running call of it may be handed on to.
    #[prost(string, repeated, tag = "11")]
    pub successors: Vec<String>,
}

/// How a skill answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Answers {
    /// As the caller likes.
    Either = 0,
    /// With the result, while the caller waits.
    AtOnce = 1,
    /// With a task that the caller follows.
    Task = 2,
}

impl Agent {
    /// Whether an agent of the same tenant sees this one. Each sees itself.
    pub fn seen_by(&self, caller: &AgentId) -> bool {
        self.visible_to.is_empty()
            || self.id == caller.as_str()
            || self.visible_to.iter().any(|id| id == caller.as_str())
    }

    /// Whether it says the same as another, apart from what the directory says of it.
    pub(super) fn same_as(&self, other: &Agent) -> bool {
        let skills = |agent: &Agent| -> Vec<Skill> {
            agent.skills.iter().map(|skill| Skill { offered_at: 0, ..skill.clone() }).collect()
        };
        (&self.id, &self.name, &self.description, &self.visible_to)
            == (&other.id, &other.name, &other.description, &other.visible_to)
            && skills(self) == skills(other)
    }

    /// Leave out of titles and descriptions what cannot be seen.
    pub(super) fn clean(&mut self) {
        self.description = visible::description(&self.description);
        for skill in &mut self.skills {
            skill.title = visible::title(&skill.title);
            skill.description = visible::description(&skill.description);
        }
    }

    /// See that what it says about its status may be stored.
    pub(super) fn check_status(&self) -> Result<(), String> {
        at_most("status text", self.status_text.len(), NAME_BYTES_MAX, "bytes")?;
        all_seen("status text", visible::unseen_in_name(&self.status_text))
    }

    /// See that it may be stored, except for its schemas.
    pub(super) fn check(&self) -> Result<(), String> {
        identity::agent_id(&self.id).map_err(|why| format!("id: {why}"))?;
        at_most("name", self.name.len(), NAME_BYTES_MAX, "bytes")?;
        all_seen("name", visible::unseen_in_name(&self.name))?;
        at_most("description", self.description.len(), DESCRIPTION_BYTES_MAX, "bytes")?;
        at_most("skills", self.skills.len(), SKILLS_MAX, "skills")?;
        at_most("visible_to", self.visible_to.len(), VISIBLE_TO_MAX, "agents")?;
        for id in &self.visible_to {
            identity::agent_id(id).map_err(|why| format!("visible_to: {why}"))?;
        }
        words("faces", &self.faces, FACES_MAX)?;
        let mut names = BTreeSet::new();
        for skill in &self.skills {
            word("skill name", &skill.name)?;
            if !names.insert(skill.name.as_str()) {
                return Err(format!("expected each skill once, found {:?} twice", skill.name));
            }
            skill.check().map_err(|what| format!("skill {:?}: {what}", skill.name))?;
        }
        at_most("agent", self.encoded_len(), AGENT_BYTES_MAX, "bytes")
    }
}

impl Skill {
    /// The JSON Schema of what it takes, which is never empty.
    pub fn input(&self) -> &str {
        if self.input_schema.is_empty() { ANY_OBJECT } else { &self.input_schema }
    }

    /// The JSON Schema of what it gives, if it says that it gives an object. An agent that was registered with an earlier
    /// release may say something else, over which hosts give up the whole list.
    pub fn output(&self) -> Option<Value> {
        let schema = serde_json::from_str(&self.output_schema).ok();
        schema.filter(is_of_objects)
    }

    /// Remarks for clients, if they are such as every host can read.
    pub fn remarks(&self) -> Option<Value> {
        let remarks = serde_json::from_str(&self.annotations).ok();
        remarks.filter(|remarks| check_annotations(remarks).is_ok())
    }

    /// What it takes and what it gives.
    pub(super) fn schemas(&self) -> (&str, &str) {
        (&self.input_schema, &self.output_schema)
    }

    fn check(&self) -> Result<(), String> {
        at_most("title", self.title.len(), NAME_BYTES_MAX, "bytes")?;
        at_most("description", self.description.len(), DESCRIPTION_BYTES_MAX, "bytes")?;
        at_most("input_schema", self.input_schema.len(), SCHEMA_BYTES_MAX, "bytes")?;
        at_most("output_schema", self.output_schema.len(), SCHEMA_BYTES_MAX, "bytes")?;
        at_most("annotations", self.annotations.len(), DESCRIPTION_BYTES_MAX, "bytes")?;
        for (field, text) in [("input_schema", &self.input_schema), ("output_schema", &self.output_schema)] {
            // One that is no JSON is refused when it is compiled.
            let schema: Value = serde_json::from_str(text).unwrap_or_default();
            all_seen(field, visible::unseen_in_schema(&schema))?;
        }
        words("requires", &self.requires, REQUIRES_MAX)?;
        at_most("successors", self.successors.len(), SUCCESSORS_MAX, "agents")?;
        for id in &self.successors {
            identity::agent_id(id).map_err(|why| format!("successors: {why}"))?;
        }
        if Answers::try_from(self.answers).is_err() {
            return Err(format!("answers: expected either, at once or task, found {}", self.answers));
        }
        let annotations = (!self.annotations.is_empty()).then(|| serde_json::from_str(&self.annotations));
        match annotations {
            None => Ok(()),
            Some(Ok(found)) => {
                check_annotations(&found)?;
                all_seen("annotations", visible::unseen_in_json(&found))
            }
            Some(Err(error)) => Err(format!("annotations: expected a JSON object, found: {error}")),
        }
    }

    /// See that its schemas can be used, and say how many steps that took. Takes long.
    pub(super) fn compile(&self) -> Result<u64, String> {
        let schema = |field: &str, text: &str| {
            Schema::compile(text).map_err(|malformed| format!("{field}: {malformed}"))
        };
        let input = schema("input_schema", self.input())?;
        let of_objects = |field: &str, schema: &Schema| match is_of_objects(schema.value()) {
            true => Ok(()),
            false => Err(format!("{field}: expected \"type\": \"object\" at the top, found something else")),
        };
        of_objects("input_schema", &input)?;
        let output = match self.output_schema.as_str() {
            "" => None,
            text => Some(schema("output_schema", text)?),
        };
        output.iter().try_for_each(|output| of_objects("output_schema", output))?;
        headers::of(input.value()).map_err(|what| format!("input_schema: {what}"))?;
        let output = output.map_or(0, |output| output.steps_to_compile());
        Ok(input.steps_to_compile() + output)
    }

    /// The arguments that a client repeats in headers of HTTP. None if the schema was accepted once and is not any more.
    pub(super) fn headers(&self) -> Vec<Header> {
        let schema = serde_json::from_str(self.input()).ok();
        schema.and_then(|schema: Value| headers::of(&schema).ok()).unwrap_or_default()
    }
}

/// Whether a schema says at its top that it is about objects: hosts take no other for a tool.
fn is_of_objects(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

/// Refuses remarks over which hosts give up the list that they are in: those that MCP knows have the types that it says.
fn check_annotations(found: &Value) -> Result<(), String> {
    let Value::Object(found) = found else {
        return Err("annotations: expected a JSON object, found other JSON".to_owned());
    };
    if found.get("title").is_some_and(|title| !title.is_string()) {
        return Err("annotations: expected title to be a text, found other JSON".to_owned());
    }
    let wrong = HINTS.iter().find(|hint| found.get(**hint).is_some_and(|hint| !hint.is_boolean()));
    match wrong {
        Some(hint) => Err(format!("annotations: expected {hint} to be true or false, found other JSON")),
        None => Ok(()),
    }
}

/// Refuses a text that has a character which cannot be seen.
fn all_seen(field: &str, unseen: Option<char>) -> Result<(), String> {
    let Some(found) = unseen else { return Ok(()) };
    Err(format!("{field}: expected visible characters, found {}", visible::named(found)))
}

fn at_most(field: &str, found: usize, most: usize, what: &str) -> Result<(), String> {
    if found <= most {
        return Ok(());
    }
    Err(format!("{field}: expected at most {most} {what}, found {found}"))
}

/// Whether a character may be in the name of a skill, which is the name of a tool.
pub(super) fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.-".contains(character)
}

fn word(field: &str, found: &str) -> Result<(), String> {
    if (1..=WORD_CHARS_MAX).contains(&found.len()) && found.chars().all(is_name) {
        return Ok(());
    }
    let shown: String = found.chars().take(WORD_CHARS_MAX).collect();
    Err(format!(
        "{field}: expected 1 to {WORD_CHARS_MAX} letters, digits, \"_\", \".\" or \"-\", found {shown:?}"
    ))
}

fn words(field: &str, found: &[String], most: usize) -> Result<(), String> {
    at_most(field, found.len(), most, "words")?;
    found.iter().try_for_each(|found| word(field, found))
}
