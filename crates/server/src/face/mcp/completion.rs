//! `completion/complete`: the ids of tasks and agents that begin with what somebody has typed.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};

use super::caller::Caller;
use super::discover::complete;
use super::message::{Error, shorten};
use super::resources::{TASKS, TEMPLATE};
use super::{Mcp, No, params, prompts};

/// How many values an answer may have, as the specification says.
const VALUES_MAX: usize = 100;

/// How many tasks, or agents, are looked at: the newest, and the first; and how many at a time.
const LOOKED_AT_MAX: usize = 1000;
const PAGE: usize = 250;

#[derive(Deserialize)]
struct Complete {
    #[serde(rename = "ref")]
    of: Reference,
    argument: Argument,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

impl Mcp {
    /// `completion/complete`.
    pub(super) async fn complete(&self, caller: &Caller, given: Option<&RawValue>) -> Result<String, Error> {
        let Complete { of, argument } = params(given)?;
        let begins = |id: &str| id.starts_with(&argument.value);
        let mut values = match (&of, argument.name.as_str()) {
            (Reference::Resource { uri }, "id") if uri == TEMPLATE => {
                let (mut found, mut after, mut looked_at) = (Vec::new(), None::<String>, 0);
                while looked_at < LOOKED_AT_MAX {
                    let page =
                        self.desk().list(&caller.who, TASKS, after.as_deref(), PAGE).await.map_err(No)?;
                    looked_at += page.items.len();
                    let ids = page.items.iter().map(|item| item.id.as_str());
                    found.extend(ids.filter(|id| begins(id)).map(str::to_owned));
                    match page.next {
                        Some(next) => after = Some(next),
                        None => break,
                    }
                }
                found
            }
            (Reference::Prompt { name }, prompts::AGENT) if name == prompts::DELEGATE => {
                let (mut found, mut after, mut looked_at) = (Vec::new(), None::<String>, 0);
                while looked_at < LOOKED_AT_MAX {
                    let page = self.desk().agents(&caller.who, after.as_deref(), PAGE).await;
                    let (agents, next) = page.map_err(No)?;
                    looked_at += agents.len();
                    let ids = agents.iter().map(|agent| agent.id.as_str());
                    let others = ids.filter(|id| *id != caller.agent.as_str());
                    found.extend(others.filter(|id| begins(id)).map(str::to_owned));
                    match next {
                        Some(next) => after = Some(next),
                        None => break,
                    }
                }
                found
            }
            (Reference::Resource { uri: found } | Reference::Prompt { name: found }, name) => {
                let (found, name) = (shorten(found), shorten(name));
                return Err(Error::invalid(format!(
                    "expected the argument id of {TEMPLATE}, or {} of the prompt {}, found {name} of {found}",
                    prompts::AGENT,
                    prompts::DELEGATE
                )));
            }
        };
        let total = values.len();
        values.truncate(VALUES_MAX);
        let mut result = Map::new();
        let completion = json!({ "values": values, "total": total, "hasMore": total > VALUES_MAX });
        result.insert("completion".to_owned(), completion);
        Ok(complete(caller, result))
    }
}
