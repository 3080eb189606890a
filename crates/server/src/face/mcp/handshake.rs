//! The older revisions: a client opens with `initialize` and says only there what it can do.
//!
//! The session id that it is given carries that, so that nothing needs to be remembered here but what it wants to be told.
//! Other nodes are told of that too, since the client's stream may be there. It is forgotten when the server restarts: a client
//! that finds its stream gone subscribes again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use handover_kernel::QuestionKey;
use handover_kernel::command::{Act, Answer, Reply, TaskAct};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::caller::{Caller, Capabilities, Declared, HANDSHAKES, Level};
use super::message::{Error, object};
use super::tasks::answers;
use super::{Mcp, No, Parts, discover, params, resources};
use handover_desk::gate;
use handover_desk::identity::Profile;
use handover_desk::memory::Lease;

/// How many sessions' wishes are remembered.
const SESSIONS_MAX: usize = 10_000;

/// No address of a resource is longer.
const URI_BYTES_MAX: usize = 512;

/// No session id that was given out is longer.
const SESSION_BYTES_MAX: usize = 64;

/// What our own requests to a client begin with.
const ASKED: &str = "handover:";

/// How many resources a session may follow.
const WANTED_MAX: usize = 1000;

/// What remembering that takes in memory, besides the address.
const WISH_BYTES: u64 = 256;

/// The resources that a session wants to hear of.
pub type Wanted = watch::Receiver<BTreeSet<String>>;

/// What each session wants to be told, by its id: how much, and of which resources.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<BTreeMap<String, Wishes>>);

#[derive(Debug)]
struct Wishes {
    level: Level,
    wanted: watch::Sender<BTreeSet<String>>,
    /// What is held for each resource, by whoever asked for it.
    held: BTreeMap<String, Option<Lease>>,
}

impl Default for Wishes {
    fn default() -> Self {
        Wishes { level: Level::Info, wanted: watch::Sender::default(), held: BTreeMap::new() }
    }
}

impl Sessions {
    /// What the session asked for; everything from `info` on if it asked for nothing.
    pub fn level(&self, session: &str) -> Level {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(session).map_or(Level::Info, |wishes| wishes.level)
    }

    /// Remember it, for an id that can be one of ours. When there are too many, those are forgotten that nobody listens
    /// to: each falls back to the default.
    pub fn set_level(&self, session: &str, level: Level) {
        self.change(session, |wishes| wishes.level = level);
    }

    /// The resources that a session wants to hear of, from now on.
    pub fn wanted(&self, session: &str) -> Wanted {
        let changed = self.change(session, |wishes| wishes.wanted.subscribe());
        changed.unwrap_or_else(|| watch::Sender::default().subscribe())
    }

    /// A session wants to hear of a resource, for which so much is held, or no longer.
    pub fn want(&self, session: &str, uri: String, held: Option<Option<Lease>>) -> Result<(), Error> {
        let changed = self.change(session, |wishes| {
            want(&wishes.wanted, uri.clone(), held.is_some())?;
            match held {
                Some(lease) => wishes.held.insert(uri, lease),
                None => wishes.held.remove(&uri),
            };
            Ok(())
        });
        changed.unwrap_or(Ok(()))
    }

    fn change<R>(&self, session: &str, change: impl FnOnce(&mut Wishes) -> R) -> Option<R> {
        if session.len() > SESSION_BYTES_MAX {
            return None;
        }
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(session) {
            sessions.retain(|_, wishes| wishes.wanted.receiver_count() > 0);
        }
        Some(change(sessions.entry(session.to_owned()).or_default()))
    }
}

/// What a session wants to be told from now on, as one node says it to the others.
#[derive(Serialize, Deserialize)]
pub struct Wish {
    tenant: Box<str>,
    agent: Box<str>,
    session: String,
    level: Option<String>,
    /// A resource, and whether it is wanted.
    resource: Option<(String, bool)>,
}

impl Wish {
    /// That it wants to be told so much.
    pub fn level(who: &gate::Caller, session: &str, level: Level) -> Wish {
        Wish { level: Some(level.name().to_owned()), ..Wish::of(who, session) }
    }

    /// That it wants to hear of a resource, or no longer.
    pub fn resource(who: &gate::Caller, session: &str, uri: String, wants: bool) -> Wish {
        Wish { resource: Some((uri, wants)), ..Wish::of(who, session) }
    }

    fn of(who: &gate::Caller, session: &str) -> Wish {
        let (tenant, agent) = (who.tenant.clone(), who.agent.as_str().into());
        Wish { tenant, agent, session: session.to_owned(), level: None, resource: None }
    }
}

/// What this face is called among nodes.
const FACE: &str = "mcp";

impl Mcp {
    /// Let the other nodes know, if there are any: the session's stream may be there.
    pub(super) async fn share(&self, wish: &Wish) -> Result<(), No> {
        let body = serde_json::to_vec(wish).expect("texts are JSON");
        self.desk().say_to_own(FACE, body).await.map_err(No)
    }

    /// Hear from the other nodes what sessions want.
    pub(super) fn hear_wishes(&self) {
        let parts = Arc::downgrade(&self.parts);
        let hear = move |body: &[u8]| {
            let (Some(parts), Ok(wish)) = (parts.upgrade(), serde_json::from_slice(body)) else { return };
            parts.heard(wish);
        };
        self.desk().hear_own(FACE, Box::new(hear));
    }
}

impl Parts {
    fn heard(&self, wish: Wish) {
        let Wish { tenant, agent, session, level, resource } = wish;
        if let Some(level) = level.and_then(|level| Level::of(&level)) {
            self.sessions.set_level(&session, level);
        }
        let Some((uri, wants)) = resource else { return };
        let held = wants.then(|| self.desk.gate.hold_for(&tenant, &agent, wish_bytes(&uri)));
        match held.transpose() {
            // There was room for it where it was wished.
            Err(limited) => tracing::debug!(%limited, "what a session wants is not remembered here"),
            Ok(held) => _ = self.sessions.want(&session, uri, held.map(Some)),
        }
    }
}

/// Add a resource to those that are wanted, or take it away.
pub fn want(wanted: &watch::Sender<BTreeSet<String>>, uri: String, wants: bool) -> Result<(), Error> {
    if wants && wanted.borrow().len() >= WANTED_MAX {
        return Err(Error::invalid(format!(
            "expected at most {WANTED_MAX} subscriptions of a session, found one more"
        )));
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

/// How many bytes it takes to remember that a resource is wanted.
pub fn wish_bytes(uri: &str) -> u64 {
    WISH_BYTES + uri.len() as u64
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
        let act = Act::Task(TaskAct::Answer { answers, ignore_unknown: true, refuse_when_paused: false });
        self.act(caller, task, act).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use handover_desk::memory::{Memory, Settings};

    use super::*;

    #[test]
    fn what_a_session_follows_is_held_by_whoever_asked_until_it_is_not_wanted_or_the_session_is_forgotten() {
        let settings = Settings { per_agent: 1000, per_tenant: 1000, server: 1000 };
        let room = Memory::new(settings, Default::default()).room("t", "ada", None);
        let sessions = Sessions::default();
        let want =
            |session: &str, uri: &str| sessions.want(session, uri.to_owned(), Some(room.take(400).ok()));
        want("h.1", "task://1").unwrap();
        want("h.1", "task://1").unwrap();
        assert!(room.take(601).is_err(), "it is held once");
        want("h.2", "task://2").unwrap();
        assert!(room.take(201).is_err());
        sessions.want("h.2", "task://2".to_owned(), None).unwrap();
        assert!(room.take(600).is_ok());
        for number in 0..SESSIONS_MAX {
            sessions.set_level(&format!("h.{number}.x"), Level::Info);
        }
        assert!(room.take(1000).is_ok(), "nobody listened");
        want(&"h".repeat(SESSION_BYTES_MAX + 1), "task://x").unwrap();
        assert!(room.take(1000).is_ok(), "it cannot be an id of ours");
    }
}
