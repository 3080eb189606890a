//! One webhook for what waits: when something new waits for one of some agents, an address of the operator's is told so, signed
//! as Standard Webhooks says. It is tried a few times, and nothing is told twice under another id.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handover_client::fetch::{Remote, system_roots};
use handover_desk::announce::Announcement;
use handover_desk::calendar::rfc3339;
use handover_desk::clock::now;
use handover_desk::follow::Over;
use handover_desk::shutdown::Shutdown;
use handover_desk::{Desk, No, WaitKind, private};
use handover_kernel::AgentId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Uri, header};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::issuer::settings::safe_url;

/// How long one try may take, and how many bytes of the answer are read.
const WITHIN: Duration = Duration::from_secs(15);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How long to wait before each further try.
const AGAIN_AFTER_SECONDS: [u64; 6] = [5, 30, 120, 600, 1800, 3600];

/// How long to wait when the store cannot be read.
const STORE_AGAIN: Duration = Duration::from_secs(5);

/// For how many agents things are told, and how short a secret may be.
const AGENTS_MAX: usize = 64;
const SECRET_BYTES_MIN: usize = 24;

/// What marks a secret that is written in base64.
const SECRET_PREFIX: &str = "whsec_";

/// Where and how things are told.
#[derive(Clone)]
pub struct Settings {
    url: Uri,
    secret: hmac::Key,
    tenant: String,
    agents: Vec<AgentId>,
    /// What the addresses of tasks begin with.
    console: String,
    /// How long to wait before each further try.
    pub again_after: Vec<Duration>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &self.url)
            .field("agents", &self.agents)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// As the configuration says; none if there is no webhook. Reads the file of the secret.
    pub fn new(config: &Config) -> Result<Option<Settings>, String> {
        let webhook = &config.webhook;
        let Some(url) = &webhook.url else {
            return match (&webhook.secret_file, webhook.agents.as_slice()) {
                (None, []) => Ok(None),
                _ => Err("webhook.url: expected an address, because webhook.secret_file or webhook.agents is set, found nothing".to_owned()),
            };
        };
        let url = safe_url(url).map_err(|expected| format!("webhook.url: expected {expected}"))?;
        let file = webhook.secret_file.as_ref();
        let file =
            file.ok_or("webhook.secret_file: expected a file, because webhook.url is set, found nothing")?;
        let secret = secret(file).map_err(|expected| format!("webhook.secret_file: expected {expected}"))?;
        if webhook.agents.is_empty() || webhook.agents.len() > AGENTS_MAX {
            let found = webhook.agents.len();
            return Err(format!("webhook.agents: expected 1 to {AGENTS_MAX} agents, found {found}"));
        }
        Ok(Some(Settings {
            url,
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            tenant: webhook.tenant.clone(),
            agents: webhook.agents.iter().map(|agent| AgentId::from(agent.as_str())).collect(),
            console: webhook.console.clone().unwrap_or_default().trim_end_matches('/').to_owned(),
            again_after: AGAIN_AFTER_SECONDS.map(Duration::from_secs).to_vec(),
        }))
    }

    /// With links to the console at this address, where the configuration names none.
    pub fn at(mut self, http: SocketAddr, tls: bool) -> Settings {
        if self.console.is_empty() {
            self.console = format!("{}://{http}", if tls { "https" } else { "http" });
        }
        self
    }
}

/// The secret in a file: base64 after `whsec_`, or else its bytes as they are.
fn secret(file: &Path) -> Result<Vec<u8>, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("a file with a secret at {}, found: {error}", file.display()))?;
    private::warn_unless(file);
    let text = text.trim();
    let secret = match text.strip_prefix(SECRET_PREFIX) {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| format!("base64 after {SECRET_PREFIX}, found something else"))?,
        None => text.as_bytes().to_vec(),
    };
    match secret.len() {
        SECRET_BYTES_MIN.. => Ok(secret),
        found => Err(format!("a secret of at least {SECRET_BYTES_MIN} bytes, found {found}")),
    }
}

/// Tell what waits, for as long as the server runs: one agent's things one after the other.
pub fn start(settings: &Settings, desk: &Desk, shutdown: &Shutdown) {
    for agent in &settings.agents {
        let (settings, desk, agent) = (settings.clone(), desk.clone(), agent.clone());
        let mut shutdown = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.begun() => {}
                () = tell(&settings, &desk, &agent) => {}
            }
        });
    }
}

async fn tell(settings: &Settings, desk: &Desk, agent: &AgentId) {
    loop {
        // What cannot be read now can be later: the place is kept.
        let why = match follow(settings, desk, agent).await {
            Ok(never) => match never {},
            Err(Stopped::No(no)) => format!("{no:?}"),
            Err(Stopped::Over(over)) => format!("{over:?}"),
        };
        tracing::warn!(%agent, why, "what waits cannot be looked at, so that the webhook tells nothing; trying again");
        sleep(STORE_AGAIN).await;
    }
}

/// Why nothing more is told.
enum Stopped {
    No(No),
    Over(Over),
}

async fn follow(
    settings: &Settings,
    desk: &Desk,
    agent: &AgentId,
) -> Result<std::convert::Infallible, Stopped> {
    let mut announcements = desk.announcements(&settings.tenant, agent).await.map_err(Stopped::No)?;
    loop {
        let next = announcements.next().await.map_err(Stopped::Over)?;
        deliver(settings, &next, || announcements.goes_on()).await;
        announcements.done(&next).await.map_err(Stopped::Over)?;
    }
}

/// Tell one thing, as often as it takes, but not for ever, and not when another node has taken over.
async fn deliver(settings: &Settings, told: &Announcement, goes_on: impl Fn() -> bool) {
    let body = body(settings, told);
    let mut again = settings.again_after.iter();
    while goes_on() {
        let Err(why) = send(settings, &told.id, &body).await else {
            tracing::debug!(id = told.id, agent = %told.agent, "the webhook was told");
            return;
        };
        match again.next() {
            Some(wait) => {
                tracing::debug!(
                    id = told.id,
                    why,
                    wait_ms = wait.as_millis() as u64,
                    "the webhook was not told yet"
                );
                sleep(*wait).await;
            }
            None => {
                tracing::warn!(id = told.id, agent = %told.agent, session = %told.session, why, "the webhook could not be told: given up");
                return;
            }
        }
    }
}

fn body(settings: &Settings, told: &Announcement) -> String {
    json!({
        "type": "waiting",
        "timestamp": rfc3339(told.since),
        "data": {
            "agent": told.agent.as_str(),
            "waits_for": word(told.kind),
            "task_id": told.session.as_str(),
            "title": told.title,
            "since": rfc3339(told.since),
            "link": format!("{}/tasks/{}", settings.console, told.session),
        },
    })
    .to_string()
}

/// The word for what waits, as the console has it.
fn word(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::Question => "question",
        WaitKind::Approval => "approval",
        WaitKind::Review => "review",
        WaitKind::Reply => "reply",
        WaitKind::CheckInMissed => "check-in",
        WaitKind::Revision => "sent back",
        WaitKind::HandoffOffer => "offer",
        WaitKind::Silent => "silent",
        WaitKind::TaskOffer
        | WaitKind::InHand
        | WaitKind::Unread
        | WaitKind::Orders
        | WaitKind::Offered
        | WaitKind::Proposed => "task",
    }
}

/// One try. Anything but a 2xx is a failure, a redirect too: nobody else is told.
async fn send(settings: &Settings, id: &str, body: &str) -> Result<(), String> {
    let seconds = (now().0 / 1000).to_string();
    let tag = hmac::sign(&settings.secret, format!("{id}.{seconds}.{body}").as_bytes());
    let request = Request::post(settings.url.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::CONTENT_TYPE, "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", seconds)
        .header("webhook-signature", format!("v1,{}", STANDARD.encode(tag.as_ref())))
        .body(Full::new(Bytes::from(body.to_owned())))
        .map_err(|error| error.to_string())?;
    let sent = async {
        let roots = tokio::task::spawn_blocking(system_roots).await.map_err(|error| error.to_string())?;
        let remote = Remote::new(&settings.url, roots)?;
        let mut answer = remote.send(request).await.map_err(|failed| failed.to_string())?;
        let status = answer.head.status;
        // The connection is closed either way; reading to the end lets the receiver finish.
        _ = answer.all(ANSWER_BYTES_MAX).await;
        if status.is_success() { Ok(()) } else { Err(format!("expected a status of 2xx, found {status}")) }
    };
    timeout(WITHIN, sent).await.unwrap_or_else(|_| Err(format!("no answer within {} s", WITHIN.as_secs())))
}
