//! A copy of everything, for the operator: `POST /backup` begins one, `GET /backup` says how it stands. The copy stays in the data
//! directory, which only the server's user can read: nothing of it goes over the wire.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use handover_desk::codes::own;
use serde_json::json;
use tokio::task;

use super::problem;

/// Browsers send no header of this name to another origin without asking first, which nobody grants.
const HEADER: &str = "x-handover";

/// Makes copies, one at a time.
#[derive(Clone)]
pub struct Backup {
    make: Arc<dyn Fn() -> Result<PathBuf, String> + Send + Sync>,
    last: Arc<Mutex<Standing>>,
}

#[derive(Clone, Default)]
enum Standing {
    #[default]
    None,
    Copying,
    /// What came of it, and when.
    Done(Result<PathBuf, String>, Instant),
}

/// How long a copy is kept for whoever has asked for it to begin to read it.
const FETCHED_WITHIN: Duration = Duration::from_secs(10);

/// Whether a copy waits to be fetched, or is being fetched: whoever reads it locks the file, and removes it in the end.
fn is_wanted(path: &Path, made: Instant) -> bool {
    let Ok(file) = File::open(path) else { return false };
    made.elapsed() < FETCHED_WITHIN || matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

impl Backup {
    /// With what makes a copy, which may block, and says where it is.
    pub fn new(make: impl Fn() -> Result<PathBuf, String> + Send + Sync + 'static) -> Backup {
        Backup { make: Arc::new(make), last: Arc::default() }
    }

    pub(super) fn routes(self) -> Router {
        let other = self.clone();
        let begin = move |headers: HeaderMap| async move { other.begin(&headers) };
        Router::new().route("/backup", get(|| async move { self.shown() }).post(begin))
    }

    fn last(&self) -> MutexGuard<'_, Standing> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, headers: &HeaderMap) -> Response {
        if headers.get(HEADER).is_none_or(|found| found != "backup") {
            return problem(&own::INVALID_REQUEST, "expected the header x-handover: backup");
        }
        {
            let mut last = self.last();
            match &*last {
                Standing::Copying => return problem(&own::BACKUP_RUNNING, "a copy is being made already"),
                Standing::Done(Ok(path), made) if is_wanted(path, *made) => {
                    return problem(&own::BACKUP_RUNNING, "the last copy is still being fetched");
                }
                Standing::None | Standing::Done(..) => {}
            }
            *last = Standing::Copying;
        }
        let backup = self.clone();
        task::spawn_blocking(move || {
            let made = (backup.make)();
            match &made {
                Ok(path) => tracing::info!(path = %path.display(), "made a copy of the data"),
                Err(error) => tracing::error!(error, "a copy of the data could not be made"),
            }
            *backup.last() = Standing::Done(made, Instant::now());
        });
        (StatusCode::ACCEPTED, Json(json!({ "state": "copying" }))).into_response()
    }

    fn shown(&self) -> Response {
        Json(match self.last().clone() {
            Standing::None => json!({ "state": "none" }),
            Standing::Copying => json!({ "state": "copying" }),
            Standing::Done(Ok(path), _) => json!({ "state": "done", "path": path }),
            Standing::Done(Err(error), _) => json!({ "state": "failed", "error": error }),
        })
        .into_response()
    }
}
