//! Events as sentences, with what became of orders: "steered, delivered with event 17".

use handover_desk::calendar::rfc3339;
use handover_desk::timeline::face;
use handover_desk::waiting::cycle;
use handover_kernel::approval::Ruling;
use handover_kernel::command::{Answer, Progress, Reply};
use handover_kernel::errand::Verdict;
use handover_kernel::event::ExpiryCause;
use handover_kernel::{Event, Fact, Seq, Session, Timestamp};

use super::shown::{bytes, failed_with, line as words, percent, short, span, thousands};

/// After how long without an event a timeline says so.
const QUIET_MS: u64 = 60_000;

/// One line of a timeline.
pub(super) struct Line {
    pub(super) seq: u64,
    pub(super) exact: String,
    /// The time of day, in UTC until the browser knows better.
    pub(super) clock: String,
    pub(super) who: String,
    pub(super) face: &'static str,
    pub(super) sentence: String,
    /// What was said, in the words of whoever said it.
    pub(super) words: String,
    /// What became of it, and when.
    pub(super) note: String,
    pub(super) note_exact: String,
    pub(super) note_clock: String,
    /// Whether nobody did it but the server.
    pub(super) by_server: bool,
    /// How long nothing happened after it; empty if that was not long.
    pub(super) quiet: String,
}

/// Whether an event is part of what the agents say to each other.
pub(super) fn is_said(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Requested(_)
            | Fact::Said { .. }
            | Fact::Steered { .. }
            | Fact::Asked { .. }
            | Fact::Answered { .. }
            | Fact::Completed { .. }
            | Fact::Failed(_)
    )
}

/// Whether what became of an event is told by a later one.
pub(super) fn is_order(fact: &Fact) -> bool {
    matches!(fact, Fact::Steered { .. } | Fact::Answered { .. } | Fact::PauseRequested { .. })
}

/// The lines of some events, which come in order; the newest first. What became of them is looked for among those around them.
pub(super) fn lines<'a>(
    session: &Session,
    events: impl Iterator<Item = &'a Event>,
    around: impl Iterator<Item = &'a Event> + Clone,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut last = None;
    for event in events {
        if let (Some(last), Some(line)) = (last, lines.last_mut()) {
            let quiet = event.at.since(last);
            line.quiet = if quiet >= QUIET_MS { span(quiet) } else { String::new() };
        }
        last = Some(event.at);
        lines.push(line(session, event, around.clone()));
    }
    lines.reverse();
    lines
}

/// One event as a line.
pub(super) fn line<'a>(session: &Session, event: &Event, around: impl Iterator<Item = &'a Event>) -> Line {
    let (sentence, said) = sentence(event);
    let exact = rfc3339(event.at);
    let author = event.author.agent().map(|agent| agent.to_string());
    let who = match (author, event.is_by_runtime()) {
        (Some(agent), false) => agent,
        (Some(agent), true) => format!("server, for {agent}"),
        (None, _) => "server".to_owned(),
    };
    let (note, at) = note(session, event, around);
    let note_exact = at.map_or_else(String::new, rfc3339);
    Line {
        seq: event.seq.0,
        clock: clock(&exact),
        exact,
        who,
        face: face(event.face),
        sentence: words(&sentence),
        words: words(&said),
        note,
        note_clock: clock(&note_exact),
        note_exact,
        by_server: event.is_by_runtime(),
        quiet: String::new(),
    }
}

/// The time of day, in UTC.
pub(super) fn clock(exact: &str) -> String {
    exact.get(11..19).unwrap_or_default().to_owned()
}

/// What became of an order, and when.
fn note<'a>(
    session: &Session,
    event: &Event,
    mut around: impl Iterator<Item = &'a Event>,
) -> (String, Option<Timestamp>) {
    let nothing = || (String::new(), None);
    let Some(task) = session.task() else { return nothing() };
    let over = session.lifecycle.is_terminal();
    let order = matches!(event.fact, Fact::Steered { .. } | Fact::Answered { .. });
    if order && task.orders.delivered_up_to() >= event.seq {
        let delivers = |found: &&Event| {
            let in_it = |up_to: &Seq| found.seq > event.seq && *up_to >= event.seq;
            matches!(&found.fact, Fact::Delivered { up_to, .. } if in_it(up_to))
        };
        return match around.find(delivers) {
            Some(found) => (format!("delivered, event {}", found.seq), Some(found.at)),
            None => ("delivered".to_owned(), None),
        };
    }
    if order && task.orders.waiting().any(|waiting| waiting.seq == event.seq) {
        let said = match over {
            true => "never delivered: the task ended before",
            false => "stored, to be delivered at the next safe point",
        };
        return (said.to_owned(), None);
    }
    if matches!(event.fact, Fact::PauseRequested { .. }) {
        // A report voids it: what pauses the task afterwards is another one.
        let ends = |found: &&Event| {
            let ending = matches!(
                found.fact,
                Fact::Suspended { .. }
                    | Fact::Completed { .. }
                    | Fact::Failed(_)
                    | Fact::Cancelled { .. }
                    | Fact::Expired { .. }
            );
            found.seq > event.seq && ending
        };
        return match around.find(ends) {
            Some(paused) if matches!(paused.fact, Fact::Suspended { .. }) => {
                (format!("paused, event {}", paused.seq), Some(paused.at))
            }
            Some(ended) => {
                let reported = matches!(ended.fact, Fact::Completed { .. } | Fact::Failed(_));
                let said = if reported { "it was reported before" } else { "it ended before" };
                (format!("never paused: {said}, event {}", ended.seq), Some(ended.at))
            }
            None if task.pause.is_some() && !over => ("asked, at the next safe point".to_owned(), None),
            None => nothing(),
        };
    }
    nothing()
}

fn with(said: &str, reason: &str) -> (String, String) {
    (said.to_owned(), words(reason))
}

/// What happened, in a few words of ours, and what was said with it.
fn sentence(event: &Event) -> (String, String) {
    match &event.fact {
        Fact::Started(started) => {
            let start = &started.start;
            let others: Vec<&str> = start.participants.iter().take(5).map(|agent| agent.as_str()).collect();
            let more = if start.participants.len() > 5 { " and others" } else { "" };
            (
                format!("started a {} with {}{more}", start.mode.name(), others.join(", ")),
                words(&start.intent),
            )
        }
        Fact::Cancelled { reason, keeps_children: false } => with("cancelled it", reason),
        Fact::Cancelled { reason, keeps_children: true } => {
            with("cancelled it; what was delegated under it goes on", reason)
        }
        Fact::Suspended { reason, .. } => with("paused", reason),
        Fact::Resumed { reason, .. } => with("resumed", reason),
        Fact::Expired { cause: ExpiryCause::Deadline } => with("expired: its time was up", ""),
        Fact::Expired { cause: ExpiryCause::SuspensionCap } => {
            with("expired: it was paused for too long", "")
        }
        Fact::Committed(commitment) => {
            let how = if commitment.positive { "success" } else { "failure" };
            (format!("bound the outcome as a {how} ({})", commitment.action), words(&commitment.reason))
        }
        Fact::ErrandSettled { errand, verdict: Verdict::Done } => {
            (format!("learned that event {errand} took effect in another task"), String::new())
        }
        Fact::ErrandSettled { errand, verdict: Verdict::Refused { code } } => (
            format!("learned that event {errand} took no effect in another task: {}", words(code)),
            String::new(),
        ),
        Fact::Requested(request) => {
            let whom = request.assignee.as_ref().map(|agent| format!(" of {agent}")).unwrap_or_default();
            let more = if request.instructions == request.title { "" } else { &*request.instructions };
            (format!("requested{whom}: {}", words(&request.title)), words(more))
        }
        Fact::Accepted { reason, handoff: None } => with("accepted", reason),
        Fact::Accepted { reason, handoff: Some(handoff) } => {
            (format!("took it over by handoff {}", short(handoff.as_str())), words(reason))
        }
        Fact::Declined { reason, handoff: None } => with("declined, or gave it back", reason),
        Fact::Declined { reason, handoff: Some(handoff) } => {
            (format!("handed it on by handoff {}", short(handoff.as_str())), words(reason))
        }
        Fact::Updated { progress, withdrawn } => {
            let taken_back = if withdrawn.is_empty() { "" } else { ", and took its questions back" };
            (format!("{}{taken_back}", progressed(progress)), words(&progress.message))
        }
        Fact::Asked { questions, .. } => {
            let texts: Vec<&str> = questions.iter().map(|question| &*question.text).collect();
            with("asked", &texts.join("\n"))
        }
        Fact::Checkpointed => with("reached a safe point", ""),
        Fact::Delivered { up_to, .. } => (format!("received the orders up to event {up_to}"), String::new()),
        Fact::Answered { answers } => {
            let shown: Vec<String> = answers.iter().map(answered).collect();
            with("answered", &shown.join("\n"))
        }
        Fact::Steered { text } => with("steered", text),
        Fact::PauseRequested { reason } => with("asked for a pause", reason),
        Fact::Completed { output, summary } if summary.is_empty() => ("delivered".to_owned(), bytes(output)),
        Fact::Completed { summary, .. } => with("delivered", summary),
        Fact::Failed(failure) => (failed_with(&failure.code), words(&failure.reason)),
        Fact::Said { body, awaits_reply, .. } => {
            let waits = if *awaits_reply { " and waits for a reply" } else { "" };
            (format!("said{waits}"), bytes(body))
        }
        Fact::Read { up_to, .. } => (format!("read up to event {up_to}"), String::new()),
        Fact::Acknowledged => with("acknowledged", ""),
        Fact::CheckInMissed { message, gives_up, .. } => {
            let end = if *gives_up { ", and the task was given up" } else { "" };
            (format!("no sign of event {message} having arrived{end}"), String::new())
        }
        Fact::FellSilent { since } => (format!("no sign of life since {}", rfc3339(*since)), String::new()),
        Fact::KeySet { .. } => with("set its session key", ""),
        Fact::ChildAdded { child } => {
            (format!("delegated part of it: {}", short(child.as_str())), String::new())
        }
        Fact::CycleFound { agents } => (cycle(agents), String::new()),
        Fact::Offered { target, scope, reason, .. } => {
            (format!("offered {} to {target}", words(scope)), words(reason))
        }
        Fact::ContextAdded { body, .. } => ("added context".to_owned(), bytes(body)),
        Fact::OfferAccepted { reason, implicit: false, .. } => with("took the responsibility", reason),
        Fact::OfferAccepted { reason, implicit: true, .. } => {
            with("took the responsibility by not answering", reason)
        }
        Fact::OfferDeclined { reason, .. } => with("turned the responsibility down", reason),
        Fact::Proposed { what, .. } => {
            (format!("proposed a {}, which needs approval", what.name()), String::new())
        }
        Fact::Decided { proposal, ruling } => {
            let ruled = match ruling {
                Ruling::Approved(_) => ruling.name().replace('_', " "),
                Ruling::ChangesAsked(_) => "asked for changes of".to_owned(),
                Ruling::Rejected(_) => "rejected".to_owned(),
            };
            let said = ruling.words().map_or_else(String::new, |said| words(said));
            (format!("{ruled} the proposal of event {proposal}"), said)
        }
        Fact::Reserved { child, .. } => {
            (format!("counted {} under its budget", short(child.as_str())), String::new())
        }
        Fact::Used { used } => (format!("used {}", amounts(used)), String::new()),
        Fact::Spent { from, used } => {
            (format!("{} under it used {}", short(from.as_str()), amounts(used)), String::new())
        }
        Fact::Overspent { name, of, used } => {
            (format!("spent its budget: {used} of {of} {name}"), String::new())
        }
    }
}

fn amounts(amounts: &handover_kernel::budget::Amounts) -> String {
    let parts: Vec<String> =
        amounts.iter().map(|(name, amount)| format!("{} {name}", thousands(&amount.to_string()))).collect();
    parts.join(", ")
}

fn progressed(progress: &Progress) -> String {
    let done = progress.done.and_then(percent).map(|percent| format!("{percent} %"));
    match (done, progress.status.as_ref()) {
        (Some(done), "" | "working") => done,
        (Some(done), status) => format!("{done}, {}", words(status)),
        (None, "" | "working") => "said how it goes".to_owned(),
        (None, status) => words(status),
    }
}

fn answered(answer: &Answer) -> String {
    match &answer.reply {
        Reply::Content(content) => bytes(content),
        Reply::Refused => "(refused to answer)".to_owned(),
        Reply::Dismissed => "(dismissed)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use handover_kernel::charter::Charter;
    use handover_kernel::command::{
        Act, CheckInTerms, Command, Delegation, ModeKind, Opening, Request, Start,
    };
    use handover_kernel::{AgentId, Blob, Face, Limits, SessionId, Text, step};

    use super::*;

    fn begun() -> Act {
        let start = Start {
            mode: ModeKind::Task,
            participants: vec![AgentId::from("worker")],
            charter: Charter::macp(),
            mode_version: Text::from("1.0.0"),
            configuration_version: Text::from("stage.1"),
            policy_version: Text::from("policy.default"),
            ttl_ms: None,
            sent_at: None,
            intent: Text::from("dig"),
            context_id: Text::default(),
            extension_keys: Vec::new(),
            parent: None,
            contract: None,
            under: None,
        };
        let request = Request {
            task: Text::from("dig"),
            title: Text::from("dig"),
            instructions: Text::default(),
            assignee: None,
            input: Blob::default(),
            wanted_by: None,
            check_in: CheckInTerms::default(),
            session_key: None,
        };
        Act::Delegate(Box::new(Delegation { start, opening: Opening::Request(request) }))
    }

    #[test]
    fn a_timeline_says_for_how_long_nothing_happened() {
        let (mut slot, id) = (None, SessionId::from("a-session-of-this-name-1"));
        let mut events = Vec::new();
        let pause = || Act::Pause { reason: Text::default(), gently: false };
        let resume = || Act::Resume { reason: Text::default() };
        for (at, act) in [(0, begun()), (59_000, pause()), (120_000, resume()), (11_640_000, pause())] {
            let command = Command::by(&AgentId::from("planner"), Face::Mcp, act);
            let done = step(&mut slot, &id, &command, &Limits::default(), Timestamp(1_000_000 + at));
            done.answer.unwrap();
            events.extend(done.events);
        }
        let session = slot.unwrap();
        let lines = lines(&session, events.iter(), events.iter());
        let shown: Vec<(&str, &str)> =
            lines.iter().map(|line| (line.sentence.as_str(), line.quiet.as_str())).collect();
        let expected = [
            ("paused", ""),
            ("resumed", "3 h 12 min"),
            ("paused", "1 min 1 s"),
            ("requested: dig", ""),
            ("started a task with worker", ""),
        ];
        assert_eq!(shown, expected);
    }
}
