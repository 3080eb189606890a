//! The older revisions: a client opens with `initialize` and says only there what it can do.
//!
//! The session id that it is given carries that, so that nothing needs to be remembered here but how much it wants to be
//! told, and forgetting that harms nobody.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use handover_kernel::QuestionKey;
use handover_kernel::command::{Act, Answer, Reply, TaskAct};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::caller::{Caller, Capabilities, Declared, HANDSHAKES, Level};
use super::message::{Error, object};
use super::tasks::answers;
use super::{Mcp, discover, params};

/// How many sessions' levels are remembered.
const LEVELS_MAX: usize = 10_000;

/// No session id that was given out is longer.
const SESSION_BYTES_MAX: usize = 64;

/// What our own requests to a client begin with.
const ASKED: &str = "handover:";

/// How much each session wants to be told, by its id.
#[derive(Debug, Default)]
pub struct Levels(Mutex<BTreeMap<String, Level>>);

impl Levels {
    /// What the session asked for; everything from `info` on if it asked for nothing.
    pub fn of(&self, session: &str) -> Level {
        let levels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        levels.get(session).copied().unwrap_or(Level::Info)
    }

    /// Remember it, for an id that can be one of ours. When there are too many, all are forgotten: each falls back to the
    /// default.
    pub fn set(&self, session: &str, level: Level) {
        if session.len() > SESSION_BYTES_MAX {
            return;
        }
        let mut levels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.len() >= LEVELS_MAX {
            levels.clear();
        }
        levels.insert(session.to_owned(), level);
    }
}

/// A session id: what the client can do, and something that nobody guesses.
pub fn session_id(declared: Declared) -> String {
    format!("h{}.{}", declared.letters(), handover_desk::id::unguessable())
}

/// What the client of a session can do.
pub fn declared(session_id: &str) -> Declared {
    let letters = session_id.strip_prefix('h').and_then(|rest| rest.split_once('.'));
    letters.map_or_else(Declared::default, |(letters, _)| Declared::from_letters(letters))
}

/// The answer to `initialize`, and the id of the session that it opens.
pub fn initialize(given: Option<&RawValue>) -> Result<(String, String), Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialize {
        protocol_version: String,
        #[serde(default, deserialize_with = "object")]
        capabilities: Option<Capabilities>,
    }
    let asked: Initialize = params(given)?;
    let version = HANDSHAKES.into_iter().find(|known| *known == asked.protocol_version);
    let declared = asked.capabilities.unwrap_or_default().declared();
    let session = session_id(Declared { tasks: false, steer: false, pause: false, ..declared });
    Ok((discover::initialized(version.unwrap_or(HANDSHAKES[0])), session))
}

/// `logging/setLevel`: how much the client wants to be told.
pub fn asked_level(given: Option<&RawValue>) -> Result<Level, Error> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: String,
    }
    let asked: SetLevel = params(given)?;
    level(&asked.level)
}

/// A level by its name.
pub fn level(name: &str) -> Result<Level, Error> {
    Level::of(name).ok_or_else(|| {
        Error::invalid(format!(
            "expected a level from debug to emergency, found {}",
            super::message::shorten(name)
        ))
    })
}

/// What a request of ours that asks a question of a task is called. It says everything that its answer needs.
pub fn asking(task: &str, key: &QuestionKey) -> String {
    format!("{ASKED}{task}:{key}")
}

impl Mcp {
    /// A client answers a request of ours: a question of a task that it called.
    pub(super) async fn take_response(
        &self,
        caller: &Caller,
        id: &str,
        result: Option<&RawValue>,
    ) -> Result<(), Error> {
        let unknown = || Error::invalid("nothing was asked under this id");
        let (task, key) = id.strip_prefix(ASKED).and_then(|rest| rest.split_once(':')).ok_or_else(unknown)?;
        let session = self.must_be_task(caller, task).await?;
        let answers = match result {
            Some(result) => {
                let value: Value = serde_json::from_str(result.get())
                    .map_err(|error| Error::invalid(format!("result: {error}")))?;
                answers(&session, &std::iter::once((key.to_owned(), value)).collect())?
            }
            // A client that cannot ask has not answered.
            None => vec![Answer { key: QuestionKey::from(key), reply: Reply::Dismissed }],
        };
        let act = Act::Task(TaskAct::Answer { answers, ignore_unknown: true, refuse_when_paused: false });
        self.act(caller, task, act).await?;
        Ok(())
    }
}
