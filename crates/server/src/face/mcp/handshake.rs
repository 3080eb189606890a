//! The older revisions: a client opens with `initialize` and says only there what it can do.
//!
//! The session id that it is given carries that, so that nothing needs to be remembered here. What it wants to be told the desk keeps.

use std::collections::BTreeSet;

use handover_kernel::QuestionKey;
use handover_kernel::command::{Answer, Reply};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::caller::{Caller, Capabilities, Declared, HANDSHAKES, Level};
use super::message::{Error, object};
use super::tasks::answers;
use super::{Mcp, No, discover, params, resources};
use handover_desk::gate;
use handover_desk::identity::Profile;
use handover_desk::wishes::{self, FOLLOWED_MAX};

/// No address of a resource is longer.
const URI_BYTES_MAX: usize = 512;

/// No session id that was given out is longer.
const SESSION_BYTES_MAX: usize = 64;

/// What our own requests to a client begin with.
const ASKED: &str = "handover:";

/// The resources that a session wants to hear of.
pub type Wanted = watch::Receiver<BTreeSet<String>>;

/// Add a resource to those that are wanted, or take it away.
pub fn want(wanted: &watch::Sender<BTreeSet<String>>, uri: String, wants: bool) -> Result<(), Error> {
    if wants && wanted.borrow().len() >= FOLLOWED_MAX {
        return Err(No(wishes::too_many().into()).into());
    }
    wanted.send_if_modified(|uris| if wants { uris.insert(uri) } else { uris.remove(&uri) });
    Ok(())
}

/// Whether a method of these revisions begins to follow a resource, or ends it.
pub fn wants(method: &str) -> Option<bool> {
    match method {
        "resources/subscribe" => Some(true),
        "resources/unsubscribe" => Some(false),
        _ => None,
    }
}

/// The resource that such a method names.
pub fn resource(given: Option<&RawValue>) -> Result<String, Error> {
    #[derive(Deserialize)]
    struct Named {
        uri: String,
    }
    let Named { uri } = params(given)?;
    let is_one = resources::task_of(&uri).is_some() && uri.len() <= URI_BYTES_MAX;
    let found = super::message::shorten(&uri);
    is_one
        .then_some(uri)
        .ok_or_else(|| Error::invalid(format!("uri: expected task:// and an id, found {found}")))
}

/// What a session over HTTP wants to hear of, for as long as whoever asks listens. It may be said at any node.
pub fn wanted(mcp: &Mcp, who: &gate::Caller, session: &str) -> Wanted {
    let (sender, wanted) = watch::channel(BTreeSet::new());
    let mut wishing = mcp.desk().wishing(who, session);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                uris = wishing.next() => {
                    sender.send_replace(uris);
                }
            }
        }
    });
    wanted
}

/// Whether this can be an id that was given out.
pub fn is_session(id: &str) -> bool {
    id.len() <= SESSION_BYTES_MAX && id.starts_with('h') && id.contains('.')
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
pub fn initialize(given: Option<&RawValue>, profile: Profile) -> Result<(String, String), Error> {
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
    Ok((discover::initialized(version.unwrap_or(HANDSHAKES[0]), profile), session))
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
        Ok(self.answer_in_call(caller, task, answers).await?)
    }
}
