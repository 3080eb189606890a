//! How many sessions are open, for whom they wait and since when, and how long nothing has happened in one of them: for the
//! operator, counted every so often from the index and the ends of the logs, away from whoever is served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handover_engine::view::{Summary, WaitKind, kind_number, standing_of};
use handover_engine::{codec, view};
use handover_kernel::Timestamp;
use handover_kernel::command::ModeKind;
use handover_kernel::session::Standing;
use handover_store::{Fault, IndexRow, SessionKey, Store};
use prost::Message;

use crate::Desk;
use crate::clock::now;
use crate::no::No;
use crate::reading::blocking;

/// How many sessions are looked at together.
const PAGE: usize = 256;

/// How often it is counted, and how much longer than the count the time in between is: with many open sessions it takes a while.
const EVERY: Duration = Duration::from_secs(15);
const REST: u32 = 20;

/// For whom a session can wait, in few words.
const WAITS_FOR: [&str; 5] = ["worker", "assignee", "requester", "reviewer", "approver"];

type Label = (&'static str, &'static str);

/// How many sessions wait so, since when the first of them does, and since when nothing has happened in one of them.
#[derive(Default)]
struct Found {
    open: i64,
    idle_since: Option<Timestamp>,
    waits_since: Option<Timestamp>,
}

impl Desk {
    /// Count the open sessions again and again, for as long as the process lives.
    pub async fn count_open(&self) {
        loop {
            let began = Instant::now();
            if let Err(no) = self.take_census().await {
                tracing::debug!(?no, "the open sessions could not be counted");
            }
            tokio::time::sleep(EVERY.max(began.elapsed() * REST)).await;
        }
    }

    /// Count them once.
    pub async fn take_census(&self) -> Result<(), No> {
        let mut counted: BTreeMap<Label, Found> = BTreeMap::new();
        for mode in [ModeKind::Task, ModeKind::Handoff] {
            counted.extend(WAITS_FOR.map(|whom| ((mode.name(), whom), Found::default())));
        }
        let mut after = None;
        loop {
            let store = Arc::clone(&self.store);
            let read = blocking(move || {
                let (keys, next) = store.unfinished(after, PAGE)?;
                let found = keys.iter().map(|key| look(&*store, key)).collect::<Result<Vec<_>, _>>()?;
                Ok((found, next))
            });
            let (found, next) = read.await?;
            for Look { label, idle_since, waits_since } in found.into_iter().flatten() {
                let found = counted.entry(label).or_default();
                found.open += 1;
                found.idle_since = found.idle_since.into_iter().chain([idle_since]).min();
                found.waits_since = found.waits_since.into_iter().chain([waits_since]).min();
            }
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        for ((mode, whom), Found { open, idle_since, waits_since }) in counted {
            let seconds =
                |since: Option<Timestamp>| since.map_or(0, |since| now().since(since)) as f64 / 1000.0;
            self.counters.count_open(mode, whom, open, seconds(idle_since), seconds(waits_since));
        }
        Ok(())
    }
}

/// An open session.
struct Look {
    label: Label,
    idle_since: Timestamp,
    waits_since: Timestamp,
}

/// For whom an open session waits and since when, and when something last happened in it. None if it has ended meanwhile.
fn look(store: &dyn Store, key: &SessionKey) -> Result<Option<Look>, Fault> {
    let (Some(row), Some(head)) = (store.row(key)?, store.head(key)?) else { return Ok(None) };
    let Some(label) = label(&row) else { return Ok(None) };
    let last = store.read(key, head.saturating_sub(1), 1)?;
    // What cannot be read is told of where somebody asks for it.
    let Some(last) = last.first().and_then(|event| codec::decode(&event.bytes).ok()) else { return Ok(None) };
    let summary = Summary::decode(&row.summary[..]).unwrap_or_default();
    let waits_since = match label.1 {
        "approver" => summary.waits_since(WaitKind::Approval.bit()),
        _ => summary.stands_since.map(Timestamp),
    };
    // A row of an earlier release does not say it.
    let waits_since = waits_since.unwrap_or(last.at);
    Ok(Some(Look { label, idle_since: last.at, waits_since }))
}

fn label(row: &IndexRow) -> Option<Label> {
    let is_handoff = row.kind == kind_number(ModeKind::Handoff);
    let mode = if is_handoff { ModeKind::Handoff } else { ModeKind::Task };
    let standing = standing_of(row.status).filter(|standing| !view::is_over(*standing))?;
    let held = row.waits.iter().any(|waits| waits.kinds & WaitKind::Approval.bit() != 0);
    let whom = match standing {
        _ if held => "approver",
        Standing::Requested => "worker",
        Standing::Working => "assignee",
        // An offer that was turned down can be made to another.
        Standing::ReportedFail if is_handoff => "requester",
        Standing::ReportedComplete | Standing::ReportedFail => "reviewer",
        Standing::Pending
        | Standing::WaitingInput
        | Standing::WaitingAuthorization
        | Standing::WaitingReply
        | Standing::Suspended => "requester",
        Standing::ResolvedPositive | Standing::ResolvedNegative | Standing::Expired | Standing::Cancelled => {
            return None;
        }
    };
    Some((mode.name(), whom))
}

#[cfg(test)]
mod tests {
    use handover_engine::view::status_number;
    use handover_store::Waits;

    use super::*;

    fn row(mode: ModeKind, standing: Standing, kinds: u32) -> IndexRow {
        IndexRow {
            kind: kind_number(mode),
            status: status_number(standing),
            requester: "planner".into(),
            agents: Vec::new(),
            created_at: 1,
            finished_at: None,
            summary: Vec::new(),
            waits: vec![Waits { agent: "lead".into(), kinds }],
        }
    }

    #[test]
    fn every_open_session_waits_for_somebody_and_one_that_is_over_for_nobody() {
        for (mode, standing, kinds, whom) in [
            (ModeKind::Task, Standing::Requested, 0, Some("worker")),
            (ModeKind::Task, Standing::Working, WaitKind::InHand.bit(), Some("assignee")),
            (ModeKind::Task, Standing::WaitingInput, 0, Some("requester")),
            (ModeKind::Task, Standing::ReportedFail, 0, Some("reviewer")),
            (ModeKind::Task, Standing::Suspended, 0, Some("requester")),
            (ModeKind::Task, Standing::Working, WaitKind::Approval.bit(), Some("approver")),
            (ModeKind::Handoff, Standing::Requested, 0, Some("worker")),
            (ModeKind::Handoff, Standing::ReportedComplete, 0, Some("reviewer")),
            (ModeKind::Handoff, Standing::ReportedFail, 0, Some("requester")),
            (ModeKind::Task, Standing::Cancelled, WaitKind::Approval.bit(), None),
        ] {
            let found = label(&row(mode, standing, kinds));
            assert_eq!(found, whom.map(|whom| (mode.name(), whom)), "{standing:?}");
            assert!(found.is_none_or(|(_, whom)| WAITS_FOR.contains(&whom)));
        }
    }
}
