//! The console: HTML for people who watch over agents. They see what the agent may see that they signed in as, and do what it
//! may do.
//!
//! In reading order:
//! - `http`: the pages and where they are, who asks, and what every answer has
//! - `sign_in`: signing in and out
//! - `waiting`: what waits for whoever asks
//! - `tasks`, `task`, `replay`: many tasks, one, and one as it was
//! - `offered`: what is offered in a handoff
//! - `acts`, `bulk`: what the forms do, to one task and to many
//! - `delegate`: a form for new work
//! - `agents`, `policies`, `limits`, `audit`, `health`: who is there, what holds, who tried what, and how the server is
//! - `live`: the stream that tells pages to look again
//! - `describe`: all of this for machines
//! - `shown`, `sentence`, `question`: how a session, an event and a question look
//! - `fields`, `assets`, `page`: forms, style and script, and what every page has
//!
//! Always: what agents wrote is text. Never: a rule, or a page that needs its script to do something.

mod acts;
mod agents;
mod assets;
mod audit;
mod bulk;
mod delegate;
mod describe;
mod fields;
mod health;
mod http;
mod limits;
mod live;
mod offered;
mod page;
mod policies;
mod question;
mod replay;
mod sentence;
mod shown;
mod sign_in;
mod task;
mod tasks;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use handover_desk::Desk;

pub use self::http::router;
use crate::config::Config;
use crate::http::body::Strangers;
use crate::http::{Bounds, Checks};
use crate::telemetry::past::Past;
use crate::telemetry::{Metrics, Unread};

/// How long a live stream lasts before its page is to come back, and how often it says that it is alive: `console.js` takes one
/// for dead that has said nothing for three times as long.
const LIFETIME: Duration = Duration::from_secs(3600);
const PING_EVERY: Duration = Duration::from_secs(20);

/// The face: what every request needs. Cheap to clone.
#[derive(Clone)]
pub struct Console {
    parts: Arc<Parts>,
}

/// What the face stands on.
struct Parts {
    desk: Desk,
    settings: Settings,
    /// Who signs in is not known yet.
    strangers: Strangers,
    unread: Unread,
    past: Past,
    /// Whether the server can do its work.
    checks: Checks,
}

/// How the face behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a request may use.
    pub bounds: Bounds,
    /// Whether browsers come over TLS: then the cookie goes over nothing else.
    pub secure: bool,
    /// How often a live stream says that it is alive.
    pub ping_every: Duration,
    /// For how many minutes a task may be open.
    pub ttl_minutes_max: u64,
}

impl Settings {
    /// As the configuration says.
    pub fn new(config: &Config) -> Settings {
        Settings {
            bounds: Bounds::new(&config.limits),
            secure: config.tls.certificate.is_some() || config.tls.terminated_elsewhere,
            ping_every: PING_EVERY,
            ttl_minutes_max: config.limits.ttl_hours_max * 60,
        }
    }
}

impl Console {
    /// The face of a desk, which shows how the last hour was and whether these work, and counts what it does not read.
    pub fn new(desk: Desk, settings: Settings, metrics: &Arc<Metrics>, checks: Checks) -> Console {
        let strangers = Strangers::new(settings.bounds.body_within);
        let (unread, past) = (metrics.unread.clone(), Past::new(Arc::clone(metrics)));
        Console { parts: Arc::new(Parts { desk, settings, strangers, unread, past, checks }) }
    }

    /// Look at the metrics every few seconds, for as long as the server runs.
    pub async fn watch(&self) {
        self.parts.past.clone().watch().await;
    }

    fn desk(&self) -> &Desk {
        &self.parts.desk
    }
}
