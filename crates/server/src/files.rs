//! How many files the process may have open, sockets included, how many connections fit, and what an idle one takes.

use crate::config::Limits;

/// Connections on each listener, unless somebody says otherwise or fewer fit.
const CONNECTIONS: u64 = 10_000;

/// What a listener has room for at the least, if nobody says how much.
const CONNECTIONS_MIN: u64 = 16;

/// Connections of the admin listener.
pub const ADMIN_CONNECTIONS: u64 = 64;

/// What else is open: the database and its readers, the audit log, requests to issuers of tokens, standard streams.
const OTHERS: u64 = 256;

/// More than anybody needs: some systems say that any number may be open.
const FILES_MAX: u64 = 1_048_576;

/// How many connections each listener has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// HTTP.
    pub http: usize,
    /// MACP.
    pub macp: usize,
}

/// Raise the limit of open files as far as it may be, and say where it is then.
pub fn raise() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let found = getrlimit(Resource::Nofile);
    let now = found.current.unwrap_or(FILES_MAX);
    let most = found.maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    if now >= most {
        return now;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: found.maximum }) {
        Ok(()) => most,
        Err(error) => {
            tracing::warn!(%error, limit = now, "the limit of open files could not be raised");
            now
        }
    }
}

/// Have the system give memory in small pages only. A connection that is open and idle has used a part of what was set aside for
/// it, and with huge pages the rest is there as well: 38 KB for each in the place of 24.
pub fn small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages of memory could not be switched off");
    }
}

/// How many connections fit if so many files may be open: what was asked for, or else what there is room for.
pub fn fit(limits: &Limits, files: u64) -> Result<Room, String> {
    let (http, macp) = (limits.connections_max, limits.macp_connections_max);
    let room = files.saturating_sub(OTHERS + ADMIN_CONNECTIONS);
    let asked = http.unwrap_or(CONNECTIONS_MIN) + macp.unwrap_or(CONNECTIONS_MIN);
    if asked > room {
        return Err(format!(
            "limits.connections_max and limits.macp_connections_max: expected at most {room} together, because this \
             process may have {files} open files and needs {} for the rest, found {} and {}; set less, or raise the \
             limit of open files (ulimit -n, LimitNOFILE=)",
            OTHERS + ADMIN_CONNECTIONS,
            said(http),
            said(macp)
        ));
    }
    let (http, macp) = match (http, macp) {
        (Some(http), Some(macp)) => (http, macp),
        (Some(http), None) => (http, CONNECTIONS.min(room - http)),
        (None, Some(macp)) => (CONNECTIONS.min(room - macp), macp),
        (None, None) => (CONNECTIONS.min(room / 2), CONNECTIONS.min(room / 2)),
    };
    let size = |count| usize::try_from(count).unwrap_or(usize::MAX);
    Ok(Room { http: size(http), macp: size(macp) })
}

fn said(asked: Option<u64>) -> String {
    asked.map_or_else(|| format!("auto (at least {CONNECTIONS_MIN})"), |asked| asked.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn found(http: Option<u64>, macp: Option<u64>, files: u64) -> Result<(usize, usize), String> {
        let mut limits = Config::default().limits;
        (limits.connections_max, limits.macp_connections_max) = (http, macp);
        fit(&limits, files).map(|Room { http, macp }| (http, macp))
    }

    #[test]
    fn defaults_shrink_to_fit_and_only_what_was_asked_for_is_refused() {
        for (http, macp, files, expected) in [
            (None, None, 1_048_576, (10_000, 10_000)),
            (None, None, 1024, (352, 352)),
            (Some(600), None, 1024, (600, 104)),
            (None, Some(10), 1024, (694, 10)),
            (Some(50_000), None, 1_048_576, (50_000, 10_000)),
            (Some(352), Some(352), 1024, (352, 352)),
            (None, None, 352, (16, 16)),
        ] {
            assert_eq!(found(http, macp, files), Ok(expected), "{http:?} {macp:?} {files}");
        }
        for (http, macp, files) in [
            (Some(1000), None, 1024),
            (Some(352), Some(353), 1024),
            (None, Some(700), 1024),
            (None, None, 64),
        ] {
            let message = found(http, macp, files).unwrap_err();
            assert!(message.contains(&format!("may have {files} open files")), "{message}");
        }
    }

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_be() {
        let raised = raise();
        assert!(raised > 0);
        assert_eq!(raise(), raised);
    }
}
