//! How many sessions are open, for whom they wait and since when, and how long nothing has happened in one of them: for the
//! operator, counted every so often from the index and the ends of the logs, away from whoever is served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handover_engine::view::{WaitKind, kind_number, standing_of};
use handover_engine::{codec, view};
use handover_kernel::Timestamp;
use handover_kernel::command::ModeKind;
use handover_kernel::event::{Event, Fact};
use handover_kernel::session::Standing;
use handover_store::{Fault, IndexRow, SessionKey, Store};

use crate::Desk;
use crate::clock::now;
use crate::no::No;
use crate::reading::blocking;

/// How many sessions are looked at together.
const PAGE: usize = 256;

/// How many events of a session are read at a time, and at most, to find where its wait began. One that began before those has
/// waited at least since the oldest of them.
const EVENTS: u64 = 64;
const EVENTS_MAX: u64 = 1024;

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
    let (mut wait, mut idle_since, mut before) = (Wait::for_(label.1), None, head);
    while before > 0 && before + EVENTS_MAX > head && !wait.is_found {
        let mut from = before.saturating_sub(EVENTS);
        let mut page = store.read(key, from, (before - from) as usize)?;
        if (page.len() as u64) < before - from {
            // It was cut by bytes, and the newest are what matters.
            from = before - 1;
            page = store.read(key, from, 1)?;
        }
        let events: Option<Vec<Event>> = page.iter().map(|event| codec::decode(&event.bytes).ok()).collect();
        // What cannot be read is told of where somebody asks for it.
        let Some(events) = events else { break };
        idle_since = idle_since.or(events.last().map(|last| last.at));
        events.iter().rev().for_each(|event| wait.look_at(event.at, &event.fact));
        before = from;
    }
    Ok(idle_since.map(|idle_since| Look { label, idle_since, waits_since: wait.since.unwrap_or(idle_since) }))
}

/// The search for the beginning of a wait, from the newest event back.
struct Wait {
    whom: &'static str,
    since: Option<Timestamp>,
    /// Whether an event that may have begun it was seen, and not only what came after.
    has_begun: bool,
    is_found: bool,
}

/// What an event says of a wait that lasts until now.
enum Says {
    /// It began with this, unless something before did as well.
    MayBegin,
    /// It began with this, or later.
    Began,
    /// It began after this.
    Before,
    Nothing,
}

impl Wait {
    fn for_(whom: &'static str) -> Wait {
        Wait { whom, since: None, has_begun: false, is_found: false }
    }

    fn look_at(&mut self, at: Timestamp, fact: &Fact) {
        if self.is_found {
            return;
        }
        let says = says(self.whom, fact);
        self.is_found = matches!(says, Says::Began | Says::Before);
        match says {
            Says::MayBegin | Says::Began => (self.since, self.has_begun) = (Some(at), true),
            Says::Before | Says::Nothing if !self.has_begun => self.since = Some(at),
            Says::Before | Says::Nothing => {}
        }
    }
}

fn says(whom: &str, fact: &Fact) -> Says {
    let begins = |it: bool| if it { Says::Began } else { Says::Nothing };
    match whom {
        "approver" => begins(matches!(fact, Fact::Proposed { .. })),
        "reviewer" => begins(matches!(
            fact,
            Fact::Completed { .. }
                | Fact::Failed(_)
                | Fact::OfferAccepted { .. }
                | Fact::OfferDeclined { .. }
        )),
        "assignee" => begins(matches!(
            fact,
            Fact::Accepted { .. } | Fact::Answered { .. } | Fact::Resumed { .. } | Fact::Said { .. }
        )),
        // One of several that declines does not begin it anew; one that gives back what it has accepted does.
        "worker" if matches!(fact, Fact::Declined { .. } | Fact::FellSilent { .. }) => Says::MayBegin,
        "worker" if matches!(fact, Fact::Accepted { .. }) => Says::Before,
        "worker" => begins(matches!(fact, Fact::Requested(_) | Fact::Offered { .. } | Fact::Started(_))),
        // It is the requester. Of several questions the first counts.
        _ if asks_requester(fact) => Says::MayBegin,
        _ if matches!(
            fact,
            Fact::Accepted { .. }
                | Fact::Answered { .. }
                | Fact::Resumed { .. }
                | Fact::Requested(_)
                | Fact::Offered { .. }
                | Fact::Said { .. }
        ) =>
        {
            Says::Before
        }
        _ => begins(matches!(fact, Fact::Decided { .. } | Fact::Started(_))),
    }
}

fn asks_requester(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Asked { .. }
            | Fact::Suspended { .. }
            | Fact::CheckInMissed { .. }
            | Fact::OfferDeclined { .. }
            | Fact::Said { awaits_reply: true, .. }
    )
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
    use handover_kernel::command::Progress;
    use handover_kernel::{Blob, Text};
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

    #[test]
    fn a_wait_began_where_it_began_and_not_with_what_happened_since() {
        let text = || Text::default();
        let asked = || Fact::Asked { questions: Vec::new(), progress: Progress::default() };
        let answered = || Fact::Answered { answers: Vec::new() };
        let accepted = || Fact::Accepted { reason: text(), handoff: None };
        let declined = || Fact::Declined { reason: text(), handoff: None };
        let offered =
            || Fact::Offered { handoff: "h".into(), target: "worker".into(), scope: text(), reason: text() };
        let steered = || Fact::Steered { text: text() };
        let updated = || Fact::Updated { progress: Progress::default(), withdrawn: Vec::new() };
        let completed = || Fact::Completed { output: Blob::default(), summary: text() };
        let cases: [(&str, Vec<Fact>, u64); 8] = [
            ("worker", vec![offered(), declined(), steered()], 1),
            ("worker", vec![offered(), accepted(), updated(), declined(), steered()], 4),
            ("assignee", vec![offered(), accepted(), steered(), updated()], 2),
            ("assignee", vec![offered(), accepted(), asked(), answered(), updated()], 4),
            ("requester", vec![accepted(), asked(), updated(), asked(), steered()], 2),
            // One of two questions was answered: the other has waited at least since then.
            ("requester", vec![accepted(), asked(), answered(), updated()], 3),
            ("reviewer", vec![accepted(), completed(), steered(), steered()], 2),
            ("requester", vec![steered(), updated(), steered()], 1),
        ];
        for (whom, facts, began) in cases {
            let mut wait = Wait::for_(whom);
            for (at, fact) in facts.iter().enumerate().rev() {
                wait.look_at(Timestamp(at as u64 + 1), fact);
            }
            assert_eq!(wait.since, Some(Timestamp(began)), "{whom}: {facts:?}");
        }
    }
}
