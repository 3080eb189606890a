//! MCP over Streamable HTTP and stdio: the Tasks extension (SEP-2663) with steer, pause and resume (SEP-2669), and agents
//! as tools.
//!
//! In reading order:
//! - [`message`]: JSON-RPC, and the codes that MCP adds to it
//! - [`caller`]: who asks, in which revision, and what it says that it can do
//! - [`http`]: the endpoint: headers, origins, one answer or a stream
//! - [`stdio`]: the same over two pipes
//! - [`handshake`]: what the older revisions do instead of saying everything with each request
//! - [`discover`]: what this server says of itself
//! - [`tools`]: skills of agents and our own tools, listed and called
//! - [`call`]: a skill is called: a task begins, and somebody may wait for it
//! - [`tasks`]: the methods of the extension
//! - [`task`], [`question`], [`content`]: how a task, its questions and its results look
//! - [`listen`]: the call that goes on
//! - [`resources`], [`prompts`]: transcripts, and how to work here
//! - [`completion`]: ids that somebody has begun to type
//!
//! Every request stands for itself: the face keeps nothing between two of them.

pub mod call;
pub mod caller;
pub mod completion;
pub mod content;
pub mod discover;
pub mod handshake;
pub mod http;
pub mod listen;
pub mod message;
pub mod prompts;
pub mod question;
pub mod resources;
pub mod stdio;
pub mod task;
pub mod tasks;
pub mod tools;

use std::sync::Arc;
use std::time::Duration;

use handover_desk::gate;
use handover_desk::no::{Part, Unfit};
use handover_desk::{Accepted, Desk};
use handover_kernel::command::{Act, Command};
use handover_kernel::{Refusal, Session};
use serde_json::value::RawValue;

use self::caller::{Caller, Era, POLL};
use self::message::Error;
pub(crate) use self::message::params;
pub(crate) use super::no::No;
use crate::config::Config;
use crate::http::Bounds;
use crate::http::line::{note, short};
use crate::queue;
use crate::telemetry::Unread;

/// How long an answer may take before at least its head goes out: less than anything in between waits for one.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// The face: what every request needs. Cheap to clone.
#[derive(Clone)]
pub struct Mcp {
    parts: Arc<Parts>,
}

/// What the face stands on.
pub struct Parts {
    /// The one door to everything.
    pub desk: Desk,
    /// How it behaves.
    pub settings: Settings,
    /// Counts the requests that were not read.
    pub unread: Unread,
}

/// How the face behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often a client is told to look.
    pub poll_interval_ms: u64,
    /// How long a task may take unless the caller says otherwise; none is for ever.
    pub ttl_ms: Option<u64>,
    /// How long an answer may take before at least its head goes out.
    pub head_within: Duration,
    /// What a request over HTTP may use.
    pub bounds: Bounds,
    /// Whether a task method without its name in the headers is refused.
    pub strict_headers: bool,
    /// Origins of browsers that are let in beside this machine's own.
    pub origins: Vec<String>,
    /// The address of the endpoint as clients know it; none takes it from the request.
    pub resource: Option<String>,
    /// Whether clients come over TLS.
    pub tls: bool,
    /// Who issues the tokens that are accepted here.
    pub authorization_servers: Vec<String>,
}

impl Settings {
    /// As the configuration says.
    pub fn new(config: &Config) -> Settings {
        let mcp = &config.mcp;
        Settings {
            poll_interval_ms: mcp.poll_interval_ms,
            ttl_ms: (mcp.ttl_minutes > 0).then_some(mcp.ttl_minutes * 60_000),
            head_within: HEAD_WITHIN,
            bounds: Bounds::new(&config.limits),
            strict_headers: mcp.strict_headers,
            origins: mcp.origins.clone(),
            resource: mcp.resource.clone(),
            tls: config.tls.certificate.is_some() || config.tls.terminated_elsewhere,
            authorization_servers: config.identity.jwt_issuer.iter().cloned().collect(),
        }
    }
}

/// Where a request's notifications go before its answer.
pub(crate) type Outbox = queue::Sender<String>;

impl Mcp {
    /// The face of a desk, which counts what it does not read.
    pub fn new(desk: Desk, settings: Settings, unread: Unread) -> Mcp {
        Mcp { parts: Arc::new(Parts { desk, settings, unread }) }
    }

    /// Answer a request at once: the result as JSON.
    pub(crate) async fn answer(
        &self,
        caller: &Caller,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<String, Error> {
        match (caller.era, method) {
            (Era::Modern, POLL) => self.tasks_get_of(caller, params).await,
            (Era::Modern, "server/discover") => Ok(self.discover(caller)),
            (Era::Modern, "tasks/update") => self.tasks_update(caller, params).await,
            (Era::Modern, "tasks/cancel") => self.tasks_cancel(caller, params).await,
            (Era::Modern, "tasks/steer") => self.tasks_steer(caller, params).await,
            (Era::Modern, "tasks/pause") => self.tasks_pause(caller, params).await,
            (Era::Modern, "tasks/resume") => self.tasks_resume(caller, params).await,
            (Era::Handshake, "ping") => Ok("{}".to_owned()),
            (_, "tools/list") => self.tools_list(caller, params).await,
            (_, "resources/list") => self.resources_list(caller, params).await,
            (_, "resources/templates/list") => Ok(self.resource_templates(caller)),
            (_, "resources/read") => self.resources_read(caller, params).await,
            (_, "completion/complete") => self.complete(caller, params).await,
            (_, "prompts/list") => Ok(prompts::list(caller)),
            (_, "prompts/get") => prompts::get(caller, params),
            (Era::Modern | Era::Handshake, _) => Err(Error::no_method(method)),
        }
    }

    /// Answer a request that may take long, telling what happens meanwhile.
    pub(crate) async fn answer_streaming(
        &self,
        caller: &Caller,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        parameter_headers: Option<&http::ParameterHeaders>,
        out: &Outbox,
    ) -> Result<String, Error> {
        match (caller.era, method) {
            (_, "tools/call") => self.tools_call(caller, params, parameter_headers, out).await,
            (Era::Modern, "subscriptions/listen") => self.listen(caller, id, params, out).await,
            (Era::Modern | Era::Handshake, _) => Err(Error::no_method(method)),
        }
    }

    /// Put an act to a session, called as the caller calls its request: sent again, it has no second effect.
    pub(crate) async fn act(&self, caller: &Caller, session: &str, act: Act) -> Result<Accepted, No> {
        self.put(caller, session, caller.name(caller.command(act))).await
    }

    /// Put a command to a session.
    pub(crate) async fn put(&self, caller: &Caller, session: &str, command: Command) -> Result<Accepted, No> {
        note("session", short(session));
        self.desk().put(&caller.who, session, command).await.map_err(No)
    }

    /// A task that the caller may see. Any other does not exist.
    pub(crate) async fn task(&self, caller: &gate::Caller, id: &str) -> Result<Arc<Session>, No> {
        note("session", short(id));
        self.desk().task(caller, id).await.map_err(No)
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.parts.desk
    }
}

/// As this face says it.
fn said(no: &No) -> String {
    match no.refusal() {
        Some(Refusal::SessionEnded { state }) => {
            format!("the task has ended: it is {}", task::ended(state))
        }
        Some(_) | None => no.said(),
    }
}

impl From<No> for Error {
    fn from(no: No) -> Error {
        // The field of the form is named as the client sent it.
        if let handover_desk::No::Unfit(Unfit { part: Part::Answer(key), why }) = &no.0 {
            return no.error(format!("inputResponses.{key}: {why}"));
        }
        no.error(said(&no))
    }
}
