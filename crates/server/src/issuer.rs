//! The keys of whoever issues JSON Web Tokens: read at the start, and again while the server runs.
//!
//! - [`settings`]: what the configuration says of them
//! - [`fetch`]: one `GET` over TLS
//!
//! They are read again every so often, and at once when a token names a key that is not known, but never one right after
//! the other: whoever makes up names must not make us ask the issuer each time. If reading fails, the old keys stay.

use std::sync::Arc;
use std::time::Duration;

use handover_client::fetch::system_roots;
use handover_desk::identity::jwt::Verifier;
use handover_desk::identity::jwt::keys::{Difference, KeySet};
use handover_desk::identity::jwt::settings::Settings;
use handover_desk::shutdown::Shutdown;
use tokio::time::Instant;

use self::settings::Source;

pub mod fetch;
pub mod settings;

/// How long after one reading the next may begin, whoever asks for it.
pub const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Begin to check tokens. A file that cannot be read is an error now; an issuer that does not answer may do so later, and
/// until then tokens are refused.
pub async fn open(settings: Settings, source: &Source) -> Result<Arc<Verifier>, String> {
    let verifier = Arc::new(Verifier::new(settings));
    match (read(source).await.and_then(|bytes| parse(&bytes)), source) {
        (Ok(keys), _) => _ = verifier.set_keys(keys),
        (Err(found), Source::File(path)) => {
            return Err(format!("expected a JWK set in the file {}, found: {found}", path.display()));
        }
        (Err(error), Source::Url(url)) => {
            tracing::warn!(%url, %error, "the keys of identity.jwt_keys could not be read: tokens are refused until they are");
        }
    }
    Ok(verifier)
}

/// Keep the keys as they are at their source, until the shutdown begins. Tells which came and which went.
pub async fn keep_fresh(
    verifier: Arc<Verifier>,
    source: Source,
    again_after: Duration,
    changed: impl Fn(&Difference) + Send,
    mut shutdown: Shutdown,
) {
    let refresh = verifier.refresh().max(again_after);
    let mut began = Instant::now();
    loop {
        // Without any keys nobody can be let in: ask as often as we may.
        let pause = if verifier.ready().is_ok() { refresh } else { again_after };
        let due = async {
            tokio::select! {
                () = tokio::time::sleep_until(began + pause) => {}
                () = verifier.wanted() => tokio::time::sleep_until(began + again_after).await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.begun() => return,
            () = due => {}
        }
        began = Instant::now();
        let found = tokio::select! {
            biased;
            () = shutdown.begun() => return,
            found = read(&source) => found,
        };
        match found {
            Ok(bytes) if verifier.has_keys_from(&bytes) => {}
            Ok(bytes) => match parse(&bytes) {
                Ok(keys) => {
                    tracing::info!(keys = keys.len(), "read the keys of identity.jwt_keys");
                    changed(&verifier.set_keys(keys));
                }
                Err(error) => keep_old(&error),
            },
            Err(error) => keep_old(&error),
        }
    }
}

fn keep_old(error: &str) {
    tracing::warn!(%error, "the keys of identity.jwt_keys could not be read again: the old ones stay");
}

fn parse(bytes: &[u8]) -> Result<KeySet, String> {
    let keys = KeySet::parse(bytes)?;
    if keys.is_empty() {
        tracing::warn!(
            "identity.jwt_keys has no key that signatures can be checked with: all tokens are refused"
        );
    }
    Ok(keys)
}

async fn read(source: &Source) -> Result<Vec<u8>, String> {
    let gone = |_| "the server is stopping".to_owned();
    match source {
        Source::File(path) => {
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await.map_err(gone)?;
            read.map_err(|error| error.to_string())
        }
        Source::Url(url) => {
            let roots = tokio::task::spawn_blocking(system_roots).await.map_err(gone)?;
            fetch::get(url, roots).await
        }
    }
}
