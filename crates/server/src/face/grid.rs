//! Grid-style task conversations: two agents talk about one task, over JSON-RPC 2.0 and HTTP, with a stream of
//! notifications for each agent.
//!
//! In reading order:
//! - [`http`]: the endpoints, and whose request it is
//! - [`methods`]: what each method takes and returns
//! - [`calls`], [`approvals`]: what each does: which acts of the desk it is
//! - [`nodes`]: agents: registration, presence, status, search
//! - [`notify`]: what an agent is told as it happens
//! - [`state`], [`task`], [`message`], [`parts`]: how a task and its messages look
//! - [`describe`]: all of it for machines
//!
//! Every request stands for itself: the face keeps nothing between two of them.

pub mod approvals;
pub mod calls;
pub mod describe;
pub mod http;
pub mod message;
pub mod methods;
pub mod nodes;
pub mod notify;
pub mod parts;
pub mod state;
pub mod task;

use std::sync::Arc;
use std::time::Duration;

use handover_client::jsonrpc::Error;
use handover_desk::Desk;
use handover_desk::caller::Caller;
use handover_kernel::Refusal;
use serde::Serialize;
use serde_json::value::RawValue;

use self::calls::Call;
use self::methods::{Asked, Method};
use super::no::No;
use crate::config::Config;
use crate::http::Bounds;
use crate::http::body::Strangers;
use crate::telemetry::Unread;

/// How often a stream of notifications says that it is alive, and how long a connection lasts.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const LIFETIME: Duration = Duration::from_secs(3600);

/// The face: what every request needs. Cheap to clone.
#[derive(Clone)]
pub struct Grid {
    parts: Arc<Parts>,
}

/// What the face stands on.
struct Parts {
    desk: Desk,
    settings: Settings,
    /// Signed requests are read before it is known whose they are.
    strangers: Strangers,
    unread: Unread,
}

/// How the face behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a request may use.
    pub bounds: Bounds,
    /// Origins of browsers that are let in beside this machine's own.
    pub origins: Vec<String>,
    /// How often a stream says that it is alive.
    pub keep_alive: Duration,
    /// How long a stream lasts before its client is to come back.
    pub lifetime: Duration,
}

impl Settings {
    /// As the configuration says.
    pub fn new(config: &Config) -> Settings {
        Settings {
            bounds: Bounds::new(&config.limits),
            origins: config.mcp.origins.clone(),
            keep_alive: KEEP_ALIVE,
            lifetime: LIFETIME,
        }
    }
}

/// Why a request is refused.
#[derive(Debug)]
pub struct Refused(pub Error);

impl Refused {
    /// Because what it says cannot be.
    fn invalid(what: impl Into<String>) -> Refused {
        Refused(Error::invalid(what.into()))
    }
}

impl From<No> for Refused {
    fn from(no: No) -> Refused {
        Refused(
            no.error(match no.refusal() {
                Some(Refusal::SessionEnded { .. }) => {
                    "the task has ended: nothing more can be said or done in it; to go on, send a new task"
                        .to_owned()
                }
                Some(_) | None => no.said(),
            }),
        )
    }
}

impl From<handover_desk::No> for Refused {
    fn from(no: handover_desk::No) -> Refused {
        No(no).into()
    }
}

impl Grid {
    /// The face of a desk, which counts what it does not read.
    pub fn new(desk: Desk, settings: Settings, unread: Unread) -> Grid {
        let strangers = Strangers::new(settings.bounds.body_within);
        Grid { parts: Arc::new(Parts { desk, settings, strangers, unread }) }
    }

    fn desk(&self) -> &Desk {
        &self.parts.desk
    }
}

/// Answer a request: the result as JSON. It is the same whichever face has the method as a tool.
pub(crate) async fn answer(
    desk: &Desk,
    caller: &Caller,
    method: Method,
    given: Option<&RawValue>,
) -> Result<String, Refused> {
    fn shown(result: Result<impl Serialize, Refused>) -> Result<String, Refused> {
        result.map(|result| handover_client::jsonrpc::result(&result))
    }
    let call = Call { desk, caller };
    match method.read(given)? {
        Asked::Send(asked) => shown(call.send(*asked).await),
        Asked::Say(asked) => shown(call.say(*asked).await),
        Asked::Read(asked) => shown(call.read(*asked).await),
        Asked::Ack(asked) => shown(call.ack(*asked).await),
        Asked::Get(asked) => shown(call.get(*asked).await),
        Asked::List(asked) => shown(call.list(*asked).await),
        Asked::History(asked) => shown(call.history(*asked).await),
        Asked::Update(asked) => shown(call.update(*asked).await),
        Asked::Complete(asked) => shown(call.complete(*asked).await),
        Asked::Reject(asked) => shown(call.reject(*asked).await),
        Asked::Cancel(asked) => shown(call.cancel(*asked).await),
        Asked::Active(asked) => shown(call.active(*asked).await),
        Asked::Tree(asked) => shown(call.tree(*asked).await),
        Asked::Steer(asked) => shown(call.steer(*asked).await),
        Asked::Pause(asked) => shown(call.pause(*asked).await),
        Asked::Resume(asked) => shown(call.resume(*asked).await),
        Asked::Approvals(asked) => shown(call.approvals(*asked).await),
        Asked::Decide(asked) => shown(call.decide(*asked).await),
        Asked::Propose(asked) => shown(call.propose(*asked).await),
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused(error)
    }
}
