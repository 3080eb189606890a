//! A list of many sessions, page by page.

use std::collections::BTreeSet;
use std::time::Instant;

use handover_server::face::macp::proto::v1::{ListSessionsRequest, SessionMetadata};
use serde_json::{Value, json};

use super::crowd::Crowd;
use crate::Failure;
use crate::bench::macp::runtime::{Caller, failed};
use crate::bench::macp::script::By;
use crate::bench::{median, micros};

/// How many sessions a page has.
const PAGE: i32 = 100;

/// List what the worker of a crowd sees, which must be all of its sessions, each once.
pub async fn measure(crowd: &Crowd) -> Result<Value, Failure> {
    let expected = crowd.sessions();
    let mut caller = crowd.first().caller;
    // The first call after a start reads pages of the disk that all others find in memory.
    page(&mut caller, By::Worker, String::new()).await?;
    let mut seen = BTreeSet::new();
    let mut took = Vec::new();
    let mut token = String::new();
    loop {
        let begun = Instant::now();
        let (sessions, next) = page(&mut caller, By::Worker, token).await?;
        // A last page that is not full is cheaper than the others.
        if sessions.len() == PAGE as usize {
            took.push(micros(begun));
        }
        for session in sessions {
            let id = session.session_id.clone();
            if !seen.insert(session.session_id) {
                return Err(Failure::Fault(format!("expected each session once, found {id} again")));
            }
        }
        if next.is_empty() {
            break;
        }
        token = next;
    }
    if seen.len() != expected {
        let found = seen.len();
        return Err(Failure::Fault(format!("expected {expected} sessions in the list, found {found}")));
    }
    let pages = took.len();
    let tenth = (took.len() / 10).max(1).min(took.len());
    let (first, last) = (median(took[..tenth].to_vec()), median(took[took.len() - tenth..].to_vec()));
    Ok(json!({
        "sessions": expected,
        "page_size": PAGE,
        "pages": pages,
        "first_p50_us": first,
        "last_p50_us": last,
        "p50_ratio": last / first,
        "p50_us": median(took),
    }))
}

/// One page, and where the next begins.
pub async fn page(
    caller: &mut Caller,
    by: By,
    page_token: String,
) -> Result<(Vec<SessionMetadata>, String), Failure> {
    let request = caller.request(by, ListSessionsRequest { page_size: PAGE, page_token });
    let answer = caller.client().list_sessions(request).await;
    let answer = answer.map_err(|status| failed("ListSessions", &status))?.into_inner();
    Ok((answer.sessions, answer.next_page_token))
}
