//! `WhatIfReplay` (RFC-MACP-0012 §8.1): the accepted history of a session under a candidate policy. Reads only.

use handover_desk::gate::Caller;
use handover_kernel::policy::Descriptor;
use handover_kernel::rehearsal::{Outcome, Rehearsal, rehearse};
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{Event, Fact, Refusal, Session};

use super::Macp;
use super::proto::v1::what_if_entry_outcome::Kind;
use super::proto::v1::{
    SessionState, WhatIfDenial, WhatIfEntry, WhatIfEntryOutcome, WhatIfOutcome, WhatIfReplayResponse,
};
use super::refused::Refused;
use super::render;

/// What an event costs to replay, in steps of a check.
const STEPS_PER_EVENT: u64 = 1000;

/// One entry of the history: an envelope. What only the runtime writes has no ordinal and is none.
struct Entry<'a> {
    event: &'a Event,
    message_id: String,
    message_type: String,
    payload: Vec<u8>,
}

impl Macp {
    /// Replay a session that the caller may see under a candidate policy.
    pub(super) async fn what_if(
        &self,
        caller: &Caller,
        session_id: &str,
        candidate: &Descriptor,
    ) -> Result<WhatIfReplayResponse, Refused> {
        let whole = self.desk.whole_history(caller, session_id).await?;
        let charter = candidate.compile(whole.session.kind())?;
        let steps = STEPS_PER_EVENT * whole.events.len() as u64 + whole.session.log_bytes;
        let candidate = candidate.clone();
        let replay = move || {
            let rehearsal = rehearse(&whole.session.binding.id, &whole.events, &charter);
            (response(&whole.session, &candidate, &whole.events, &rehearsal), steps)
        };
        Ok(self.desk.run_long(caller, replay).await?)
    }
}

fn response(
    session: &Session,
    candidate: &Descriptor,
    events: &[Event],
    rehearsal: &Rehearsal,
) -> WhatIfReplayResponse {
    let history = history_entries(session, events);
    let mut entries = Vec::new();
    let mut denials = Vec::new();
    let mut first_divergence = None;
    // Both are in the order of the log.
    let mut rehearsed = rehearsal.events.iter().peekable();
    for (index, entry) in history.iter().enumerate() {
        let index = index as u64;
        while rehearsed.next_if(|rehearsed| rehearsed.seq < entry.event.seq).is_some() {}
        let Some(rehearsed) = rehearsed.next_if(|rehearsed| rehearsed.seq == entry.event.seq) else {
            continue;
        };
        let recorded = applied(rehearsed.recorded);
        let candidate = outcome(&rehearsed.candidate);
        if recorded != candidate && first_divergence.is_none() {
            first_divergence = Some(index);
        }
        if candidate.error_code == "POLICY_DENIED" {
            let (message_id, details) = (entry.message_id.clone(), candidate.details.clone());
            denials.push(WhatIfDenial { history_index: index, message_id, details });
        }
        entries.push(WhatIfEntry {
            history_index: index,
            message_id: entry.message_id.clone(),
            message_type: entry.message_type.clone(),
            recorded: Some(recorded),
            candidate: Some(candidate),
        });
    }
    let settled = events.iter().find(|event| matches!(event.fact, Fact::Committed(_)));
    WhatIfReplayResponse {
        candidate_policy_id: candidate.id.to_string(),
        recorded_policy_id: session.binding.versions.policy.to_string(),
        recorded: Some(settlement(Some(session), settled.map(|event| event.seq.0), &history)),
        candidate: Some(settlement(
            rehearsal.session.as_ref(),
            rehearsal.settled_by.map(|seq| seq.0),
            &history,
        )),
        first_divergence,
        denials,
        entries,
    }
}

fn history_entries<'a>(session: &Session, events: &'a [Event]) -> Vec<Entry<'a>> {
    let frame = render::Frame::of(session);
    events
        .iter()
        .filter_map(|event| {
            let envelope = render::envelope(&frame, event)?;
            Some(Entry {
                event,
                message_id: envelope.message_id,
                message_type: envelope.message_type,
                payload: envelope.payload,
            })
        })
        .collect()
}

fn applied(standing: Standing) -> WhatIfEntryOutcome {
    WhatIfEntryOutcome {
        kind: Kind::Applied.into(),
        state: render::state(standing).into(),
        error_code: String::new(),
        details: Vec::new(),
    }
}

fn outcome(found: &Outcome) -> WhatIfEntryOutcome {
    let bare = |kind: Kind| WhatIfEntryOutcome {
        kind: kind.into(),
        state: SessionState::Unspecified.into(),
        error_code: String::new(),
        details: Vec::new(),
    };
    match found {
        Outcome::Accepted(standing) => applied(*standing),
        Outcome::NoSession => bare(Kind::NoSession),
        Outcome::Refused(Refusal::SessionSuspended | Refusal::SessionEnded { .. }) => bare(Kind::NotOpen),
        Outcome::Refused(refusal) => {
            let refused = Refused::from(refusal.clone());
            WhatIfEntryOutcome {
                error_code: refused.code.to_owned(),
                details: refused.details.into_bytes(),
                ..bare(Kind::Refused)
            }
        }
    }
}

fn settlement(session: Option<&Session>, settled_by: Option<u64>, history: &[Entry<'_>]) -> WhatIfOutcome {
    let state = session.map_or(SessionState::Unspecified, |session| render::state(session.standing()));
    let resolved = session.is_some_and(|session| matches!(session.lifecycle, Lifecycle::Resolved { .. }));
    let place = history.iter().position(|entry| resolved && Some(entry.event.seq.0) == settled_by);
    let entry = place.map(|place| &history[place]);
    WhatIfOutcome {
        state: state.into(),
        resolution: match entry {
            Some(entry) if entry.message_type == "Commitment" => entry.payload.clone(),
            Some(_) | None => Vec::new(),
        },
        resolved_by_history_index: place.unwrap_or_default() as u64,
        resolved_by_message_id: entry.map_or_else(String::new, |entry| entry.message_id.clone()),
        resolved_by_message_type: entry.map_or_else(String::new, |entry| entry.message_type.clone()),
    }
}
