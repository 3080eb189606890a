//! Whether the server can do its work now: the checks behind `/readyz`.
//!
//! A check may block on a disk that does not answer. It runs on a thread of its own, only once at a time, and who asks
//! waits for it only so long.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task;

/// How long one who asks waits for a check.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long a finding is good for: a check writes to the disk, and anyone may ask as often as they like.
const GOOD_FOR: Duration = Duration::from_millis(500);

/// Something that must work for the server to be ready.
#[derive(Clone)]
pub struct Probe {
    name: &'static str,
    check: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    about: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// The last finding. Whoever checks holds it until the check has ended, so there is never a second one.
    last: Arc<Mutex<Option<(Instant, Finding)>>>,
}

/// What there is to say about it, or why it does not work.
pub(crate) type Finding = Result<Option<String>, String>;

impl Probe {
    /// A probe that calls `check`, which may block and says why if it fails.
    pub fn new(name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Probe {
        Probe { name, check: Arc::new(check), about: Arc::new(|| None), last: Arc::default() }
    }

    /// The same, with what an operator is told beside the finding. It may block as well.
    pub fn about(mut self, about: impl Fn() -> Option<String> + Send + Sync + 'static) -> Probe {
        self.about = Arc::new(about);
        self
    }

    async fn finding(self) -> Finding {
        let look = async {
            let mut last = self.last.lock_owned().await;
            if let Some((at, finding)) = &*last
                && at.elapsed() < GOOD_FOR
            {
                return finding.clone();
            }
            let look = move || {
                let finding = (self.check)().map(|()| (self.about)());
                *last = Some((Instant::now(), finding.clone()));
                finding
            };
            task::spawn_blocking(look).await.unwrap_or_else(|_| Err("the check panicked".to_owned()))
        };
        let late = || Err(format!("the check did not answer within {} s", ANSWER_WITHIN.as_secs()));
        tokio::time::timeout(ANSWER_WITHIN, look).await.unwrap_or_else(|_| late())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Probe").field(&self.name).finish()
    }
}

/// All probes of the server. Cheap to clone; all clones share what was found.
#[derive(Clone, Debug)]
pub struct Checks(Arc<[Probe]>);

impl Checks {
    /// These.
    pub fn new(probes: Vec<Probe>) -> Checks {
        Checks(probes.into())
    }

    /// What each of them finds, or found a moment ago.
    pub(crate) async fn findings(&self) -> Vec<(&'static str, Finding)> {
        let running: Vec<_> =
            self.0.iter().map(|probe| (probe.name, task::spawn(probe.clone().finding()))).collect();
        let mut findings = Vec::new();
        for (name, finding) in running {
            let finding = finding.await.unwrap_or_else(|_| Err("the check panicked".to_owned()));
            findings.push((name, finding));
        }
        findings
    }

    /// 200 if every check passes, else 503, and no more than that.
    pub(super) async fn status(&self) -> Response {
        let ready = self.findings().await.iter().all(|(_, finding)| finding.is_ok());
        (status(ready), Json(json!({ "ready": ready }))).into_response()
    }

    /// The same, and each check by name, with the reason if it fails.
    pub(super) async fn detail(&self) -> Response {
        let findings = self.findings().await;
        let ready = findings.iter().all(|(_, finding)| finding.is_ok());
        let checks: Vec<_> = findings
            .into_iter()
            .map(|(name, finding)| match finding {
                Ok(None) => json!({ "name": name, "ready": true }),
                Ok(Some(about)) => json!({ "name": name, "ready": true, "about": about }),
                Err(reason) => json!({ "name": name, "ready": false, "reason": reason }),
            })
            .collect();
        (status(ready), Json(json!({ "ready": ready, "checks": checks }))).into_response()
    }
}

fn status(ready: bool) -> StatusCode {
    if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
