//! What the worker's tools take.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::face::budget::Numbers;
use crate::face::mcp::caller::Level;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    pub(super) cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnlyTask {
    pub(super) task_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reasoned {
    pub(super) task_id: String,
    pub(super) reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkNext {
    pub(super) wait_ms: Option<u64>,
    #[serde(default)]
    pub(super) accept: bool,
    pub(super) max: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkUpdate {
    pub(super) task_id: String,
    pub(super) message: Option<String>,
    pub(super) progress: Option<f64>,
    pub(super) total: Option<f64>,
    pub(super) partial: Option<Value>,
    pub(super) used: Option<Numbers>,
    #[serde(rename = "log")]
    _log: Option<Vec<LogLine>>,
}

#[derive(Deserialize)]
pub(super) struct LogLine {
    #[serde(rename = "level", deserialize_with = "known_level")]
    _level: (),
    #[serde(rename = "data")]
    _data: serde::de::IgnoredAny,
}

fn known_level<'de, D: serde::Deserializer<'de>>(found: D) -> Result<(), D::Error> {
    let name = String::deserialize(found)?;
    match Level::of(&name) {
        Some(_) => Ok(()),
        None => Err(serde::de::Error::custom("expected a level from debug to emergency")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    pub(super) task_id: String,
    pub(super) wait_ms: Option<u64>,
    pub(super) after: Option<u64>,
    pub(super) used: Option<Numbers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    pub(super) task_id: String,
    pub(super) questions: BTreeMap<String, AskOne>,
    pub(super) wait_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskOne {
    pub(super) message: Option<String>,
    pub(super) schema: Option<Value>,
    #[serde(default)]
    pub(super) permission: bool,
    pub(super) request: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Complete {
    pub(super) task_id: String,
    pub(super) text: Option<String>,
    pub(super) output: Option<Value>,
    pub(super) result: Option<Value>,
    pub(super) summary: Option<String>,
    pub(super) used: Option<Numbers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    pub(super) task_id: String,
    pub(super) reason: String,
    pub(super) code: Option<String>,
    pub(super) retryable: Option<bool>,
    pub(super) result: Option<Value>,
    pub(super) protocol_error: Option<ProtocolError>,
    pub(super) used: Option<Numbers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProtocolError {
    pub(super) code: i32,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}
