//! How a session looks: its state as a word, a shape and a colour, who asked whom, times, and what it came to.

use std::collections::{BTreeMap, BTreeSet};

use handover_desk::approvals::sees_approval;
use handover_desk::calendar::rfc3339;
use handover_desk::caller::Caller;
use handover_desk::clock::now;
use handover_desk::payload;
use handover_desk::state::State as Known;
use handover_desk::timeline::face;
use handover_desk::visible::spelled_out;
use handover_desk::waiting::cycle;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::task::{Phase, Report};
use handover_kernel::{AgentId, Blob, Event, Session, Timestamp, cut};
use serde_json::Value;

use crate::face::budget;

/// How many characters of a text a page shows, and a line of a list: the whole of it is in the raw event.
const TEXT_MAX: usize = 4000;
const LINE_MAX: usize = 500;

/// How many characters of a title are shown.
const TITLE_MAX: usize = 200;

/// A state as a word and a shape; the colour goes by the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) word: &'static str,
    pub(super) shape: &'static str,
    /// What it waits for, if it does.
    pub(super) detail: &'static str,
}

impl State {
    /// Of a session, as far as whoever looks may know it.
    pub(super) fn of(session: &Session, caller: &Caller) -> State {
        let state = Known::of(session);
        let shape = match state {
            Known::Requested => "○",
            Known::Working => "●",
            Known::Waiting => "◐",
            Known::Paused => "‖",
            Known::Silent => "◌",
            Known::Completed => "✓",
            Known::Failed => "✕",
            Known::Rejected => "⊘",
            Known::Cancelled | Known::Expired => "–",
        };
        let detail = match (state, session.standing()) {
            (Known::Waiting, _) if session.proposal.is_some() && sees_approval(caller, session) => {
                "for approval"
            }
            (Known::Waiting, Standing::WaitingInput) => "for an answer",
            (Known::Waiting, Standing::WaitingAuthorization) => "for permission",
            (Known::Waiting, Standing::WaitingReply) => "for a reply",
            (Known::Waiting, Standing::ReportedComplete) => "for review",
            (Known::Waiting, Standing::ReportedFail) => "for review of a failure",
            (Known::Working | Known::Silent, _)
                if session.task().is_some_and(|task| task.pause.is_some()) =>
            {
                "pause asked"
            }
            _ => "",
        };
        State { word: state.name(), shape, detail }
    }
}

/// What a session is called.
pub(super) fn title(session: &Session) -> String {
    let wanted = session.wanted().map(|request| &*request.title);
    let offered = session.handoff().and_then(|handoff| handoff.offers.last()).map(|offer| &*offer.scope);
    let named = wanted.or(offered).filter(|title| !title.trim().is_empty());
    let named = named.unwrap_or(&session.binding.intent);
    match named.trim() {
        "" => format!("(no title) {}", short(session.binding.id.as_str())),
        named => cut(named, TITLE_MAX).into_owned(),
    }
}

/// The beginning of an id.
pub(super) fn short(id: &str) -> String {
    id.chars().take(8).collect()
}

/// A text that is not too long for a page.
pub(super) fn words(text: &str) -> String {
    cut(text, TEXT_MAX).into_owned()
}

/// The same for a line of a list.
pub(super) fn line(text: &str) -> String {
    cut(text, LINE_MAX).into_owned()
}

/// How many bytes a text takes on a page, where it stands escaped and spelled out.
pub(super) fn weight(text: &str) -> usize {
    let escaped = text.bytes().filter(|byte| b"<>&\"'".contains(byte)).count();
    spelled_out(text).len() + 4 * escaped
}

/// Bytes as a page shows them: text, JSON in lines, or how many there are.
pub(super) fn bytes(found: &[u8]) -> String {
    if found.is_empty() {
        return String::new();
    }
    match (payload::words(found), payload::to_json(found)) {
        (Some(text), _) | (None, Value::String(text)) => words(&text),
        (None, value) => words(&pretty(&value)),
    }
}

/// Bytes as one can write them, all of them: text as it is, JSON in lines.
pub(super) fn json(found: &[u8]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let value = payload::to_json(found);
    value.as_str().map_or_else(|| pretty(&value), str::to_owned)
}

/// JSON in lines.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// How long something takes or took, in the two largest units that say something.
pub(super) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) if minutes < 10 => format!("{minutes} min {} s", seconds % 60),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// A moment: how long ago, and exactly.
#[derive(Clone, Debug, Default)]
pub(super) struct When {
    pub(super) exact: String,
    pub(super) ago: String,
}

impl When {
    pub(super) fn of(at: Timestamp) -> When {
        When { exact: rfc3339(at), ago: span(now().since(at)) }
    }
}

/// How a task goes.
pub(super) struct Progress {
    pub(super) percent: Option<u32>,
    pub(super) message: String,
}

/// The percentage that an assignee's number means: of one, or of a hundred.
pub(super) fn percent(done: f64) -> Option<u32> {
    let of_hundred = if done <= 1.0 { done * 100.0 } else { done };
    done.is_finite().then(|| of_hundred.clamp(0.0, 100.0).round() as u32)
}

/// What stands at the top of a task's page, and in a row of a list.
pub(super) struct Head {
    pub(super) id: String,
    pub(super) short: String,
    pub(super) title: String,
    pub(super) kind: &'static str,
    pub(super) state: State,
    pub(super) from: Party,
    pub(super) to: Party,
    pub(super) since: When,
    /// How long until its time is up; empty if it is not bounded.
    pub(super) ends: String,
    pub(super) late: bool,
    /// For how long its assignee has been silent; empty if it is not.
    pub(super) silent: String,
    /// After how long its assignee counts as silent; empty if never.
    pub(super) silent_after: String,
    pub(super) progress: Option<Progress>,
    pub(super) budget: String,
    pub(super) parent: Option<(String, String)>,
    pub(super) skill: String,
    /// Agents that wait for each other.
    pub(super) cycle: String,
}

/// An agent and the faces that it uses.
pub(super) struct Party {
    pub(super) name: String,
    pub(super) faces: Vec<&'static str>,
}

/// Which faces each agent came through in some events.
pub(super) type Faces<'a> = BTreeMap<&'a AgentId, BTreeSet<&'static str>>;

/// The faces of these events.
pub(super) fn faces<'a>(events: impl Iterator<Item = &'a Event>) -> Faces<'a> {
    let mut faces = Faces::new();
    for event in events.filter(|event| !event.is_by_runtime()) {
        if let Some(agent) = event.author.agent() {
            faces.entry(agent).or_default().insert(face(event.face));
        }
    }
    faces
}

impl Head {
    /// Of a session, with the faces that are known, as far as whoever looks may know it.
    pub(super) fn of(session: &Session, faces: &Faces<'_>, caller: &Caller) -> Head {
        let (binding, task) = (&session.binding, session.task());
        let known = |agent: &AgentId| {
            faces.get(agent).map_or_else(Vec::new, |faces| faces.iter().copied().collect::<Vec<_>>())
        };
        let mut from = Party { name: binding.requester.to_string(), faces: known(&binding.requester) };
        if !from.faces.contains(&face(binding.face)) {
            from.faces.insert(0, face(binding.face));
        }
        let named = session.wanted().and_then(|request| request.assignee.as_ref());
        let offered = session.handoff().and_then(|handoff| handoff.offers.last()).map(|offer| &offer.target);
        let to = match task.and_then(|task| task.phase.assignee()).or(named).or(offered) {
            Some(agent) => Party { name: agent.to_string(), faces: known(agent) },
            None => {
                let others = binding.participants.iter().filter(|agent| **agent != binding.requester);
                let names: Vec<&str> = others.map(|agent| agent.as_str()).collect();
                let name = match names.as_slice() {
                    [] => "nobody".to_owned(),
                    [one] => (*one).to_owned(),
                    several => format!("any of {}", several.len()),
                };
                Party { name, faces: Vec::new() }
            }
        };
        let (now, over) = (now(), session.lifecycle.is_terminal());
        let left = session.ends_by().filter(|_| !over).map(|at| at.since(now));
        let paused = session.standing() == Standing::Suspended;
        let silent = task.and_then(|task| task.signs.silent_since).filter(|_| !over);
        let progress = task
            .and_then(|task| task.phase.progress())
            .filter(|_| !over)
            .map(|told| Progress { percent: told.done.and_then(percent), message: words(&told.message) });
        Head {
            id: binding.id.to_string(),
            short: short(binding.id.as_str()),
            title: title(session),
            kind: session.kind().name(),
            state: State::of(session, caller),
            from,
            to,
            since: When::of(binding.created_at),
            ends: left.map_or_else(String::new, span),
            late: left.is_some_and(|left| left < 60_000) && !paused,
            silent: silent.map_or_else(String::new, |since| span(now.since(since))),
            silent_after: binding
                .charter
                .liveness
                .as_deref()
                .map_or_else(String::new, |liveness| span(liveness.window_ms)),
            progress,
            budget: budget::shown(session).map_or_else(String::new, |shown| budget_words(&shown)),
            parent: binding.parent.as_ref().map(|parent| (parent.to_string(), short(parent.as_str()))),
            skill: handover_desk::contract::skill_of(session).unwrap_or_default().to_owned(),
            cycle: task
                .filter(|task| !task.cycle.is_empty() && !over)
                .map_or_else(String::new, |task| cycle(&task.cycle)),
        }
    }
}

/// A number as people read it: `200,000`.
pub(super) fn thousands(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let digits = whole.len();
    let grouped =
        whole.chars().enumerate().map(|(at, digit)| match at > 0 && (digits - at).is_multiple_of(3) {
            true => format!(",{digit}"),
            false => digit.to_string(),
        });
    grouped.chain([rest.to_owned()]).collect()
}

/// Bytes as people read them.
pub(super) fn bytes_words(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.iter().find(|(_, size)| bytes >= *size);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(name, size)| {
            let number = format!("{:.1}", bytes as f64 / *size as f64);
            format!("{} {name}", number.strip_suffix(".0").unwrap_or(&number))
        },
    )
}

fn budget_words(shown: &budget::Shown) -> String {
    let part = |name: &str, count: &budget::Count| {
        let used = thousands(&count.used.to_string());
        let of = count.of.as_ref().map(|of| format!("{used} of {} {name}", thousands(&of.to_string())));
        of.unwrap_or_else(|| format!("{used} {name}"))
    };
    let mut parts = vec![part("tasks", &shown.tasks)];
    parts.extend(shown.numbers.iter().map(|(name, count)| part(name, count)));
    parts.extend(shown.until.iter().map(|until| format!("until {until}")));
    parts.extend(shown.overspent.then(|| "spent".to_owned()));
    parts.join(", ")
}

/// What a session came to, or was reported to have.
pub(super) struct Outcome {
    /// In sentences: what was reported, and what was bound.
    pub(super) said: Vec<String>,
    /// What the assignee delivered.
    pub(super) output: String,
}

/// A sentence of ours with the words of whoever said why.
fn with_words(ours: String, theirs: &str) -> String {
    match theirs.trim() {
        "" => format!("{ours}."),
        theirs => format!("{ours}: {theirs}"),
    }
}

/// How a failure is called: its code, unless that says no more than that it failed.
pub(super) fn failed_with(code: &str) -> String {
    match code {
        "" | "failed" => "failed".to_owned(),
        code => format!("failed ({})", words(code)),
    }
}

/// What was reported, in a sentence, and the output with it.
pub(super) fn reported(session: &Session) -> Option<(String, &Blob)> {
    let (report, by) = session.task().and_then(|task| match &task.phase {
        Phase::Reported { report, assignee, .. } => Some((report, assignee)),
        Phase::Pending | Phase::Requested { .. } | Phase::Working { .. } | Phase::Waiting { .. } => None,
    })?;
    Some(match report {
        Report::Complete { output, summary } => (with_words(format!("{by} delivered"), summary), output),
        Report::Fail(failure) => {
            let said = format!("{by} {}", failed_with(&failure.code));
            (with_words(said, &failure.reason), &failure.output)
        }
    })
}

/// What there is of an outcome. `bound_by` is who bound it, where that is known.
pub(super) fn outcome(session: &Session, bound_by: Option<&str>) -> Option<Outcome> {
    let reported = reported(session).map(|(said, output)| (words(&said), bytes(output)));
    let bound = match &session.lifecycle {
        Lifecycle::Open | Lifecycle::Suspended { .. } => None,
        Lifecycle::Resolved { commitment } => {
            let how = if commitment.positive { "a success" } else { "a failure" };
            let by = bound_by.map_or_else(String::new, |by| format!(" by {by}"));
            Some(words(&with_words(
                format!("Bound as {how}{by} ({})", commitment.action),
                &commitment.reason,
            )))
        }
        Lifecycle::Expired { .. } => Some("Its time was up.".to_owned()),
        Lifecycle::Cancelled { by, reason } => {
            let by = by.agent().map_or("the server", |agent| agent.as_str());
            Some(words(&with_words(format!("Cancelled by {by}"), reason)))
        }
    };
    let (reported, output) = reported.unzip();
    let said: Vec<String> = reported.into_iter().chain(bound).collect();
    (!said.is_empty()).then(|| Outcome { said, output: output.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_two_units_that_say_something() {
        for (seconds, said) in [
            (0, "0 s"),
            (59, "59 s"),
            (111, "1 min 51 s"),
            (1320, "22 min"),
            (11_520, "3 h 12 min"),
            (180_000, "2 d 2 h"),
        ] {
            assert_eq!(span(seconds * 1000), said);
        }
        assert_eq!(
            [thousands("999"), thousands("1000"), thousands("1234567.25")],
            ["999", "1,000", "1,234,567.25"]
        );
        assert_eq!((percent(0.62), percent(62.0), percent(f64::NAN)), (Some(62), Some(62), None));
    }
}
