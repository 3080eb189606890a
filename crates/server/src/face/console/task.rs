//! One task: who asked whom, where it is, what happened, what was delegated under it, who waits for whom, what it came to,
//! and what one can do about it.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use handover_desk::approvals::sees_approval;
use handover_desk::calendar::rfc3339;
use handover_desk::caller::{Caller, sees};
use handover_desk::{No, id as ids, timeline};
use handover_kernel::approval::{Changes, Ruling};
use handover_kernel::charter::PauseAt;
use handover_kernel::command::{Act, Answer, CheckInTerms, HandoffAct, Next, Progress, Reply, TaskAct};
use handover_kernel::{Blob, Fact, Session, SessionId, Text};

use super::Console;
use super::acts::done;
use super::fields::Typed;
use super::http::Asked;
use super::offered::{self, Offered};
use super::page::{Notice, Top, html};
use super::sentence::{self, Line};
use super::shown::{self, Head, Outcome, State, faces, short};
use super::waiting::{self, FORMS_BYTES_MAX, Wait};
use crate::face::no;

/// How many events a page has, and how many raw ones.
const PAGE: usize = 100;
const RAW: usize = 30;

/// How many events after a page are looked at for what became of it.
const LATER_MAX: usize = 300;

/// How many points of a curve are shown, of which each has a line in a table.
const POINTS_MAX: usize = 60;

/// How many tasks of a tree are shown.
const TREE_MAX: usize = 200;

/// Why a task cannot be handed on that nobody else has a part in.
const NO_HEIRS: &str =
    "nobody can take it over: only agents that it was offered to as it began can, and there is no other";

/// How many characters of a raw event are shown: of the first, which a link leads to, and of the others.
const RAW_CHARS_MAX: usize = 100_000;
const RAW_OTHERS_MAX: usize = 3000;

#[derive(Template)]
#[template(path = "task.html")]
struct Page {
    top: Top,
    head: Head,
    instructions: String,
    input: String,
    offered: Option<Offered>,
    outcome: Option<Outcome>,
    /// What it waits for, if it waits for whoever asks.
    waits: Vec<Wait>,
    doable: Doable,
    lines: Vec<Line>,
    /// Whether only what was said is shown.
    said_only: bool,
    older: String,
    newer: bool,
    curve: Option<Curve>,
    tree: Vec<Branch>,
    more_tree: bool,
    /// How many tasks under it have not ended.
    open_below: usize,
    edges: Vec<Edge>,
    /// To whom whoever asks has offered the task and who has not answered, with the handoff.
    offers: Vec<(String, String)>,
    key: String,
    /// What was typed into a form that was refused.
    typed: Typed,
    back: &'static str,
}

/// How much was done over time: a line, what is under it, and the same as a table.
struct Curve {
    line: String,
    area: String,
    span: String,
    points: Vec<Point>,
}

struct Point {
    exact: String,
    clock: String,
    percent: u32,
    said: String,
}

/// One task of a tree.
struct Branch {
    id: String,
    title: String,
    state: State,
    assignee: String,
    depth: usize,
    /// Whether whoever looks may open it.
    open: bool,
}

/// Who waits for whom.
struct Edge {
    from: String,
    to: String,
    why: &'static str,
    on: String,
    on_short: String,
    /// Whether whoever looks may open what it is about.
    open: bool,
    /// Whether it is part of a circle.
    circular: bool,
}

/// What waits for somebody else: what one could do about it, and why whoever asks cannot.
struct Closed {
    name: &'static str,
    buttons: &'static [&'static str],
    why: String,
}

/// What whoever asks can do: empty, or why not.
struct Doable {
    /// Why nothing at all can be done, if that is so.
    nothing: String,
    steer: String,
    say: String,
    pause: String,
    resume: String,
    cancel: String,
    complete: String,
    hand_on: String,
    /// Who could take it over.
    heirs: Vec<String>,
    closed: Vec<Closed>,
    /// Whether it would be paused at once, unless that is not wanted.
    at_once: bool,
    paused: bool,
    over: bool,
    /// How many subtasks end with it.
    open_below: usize,
}

impl Doable {
    /// The id of the paragraph that says why something cannot be done: that is said once where it is the same for all.
    fn described(&self, name: &str, why: &str) -> String {
        match name {
            _ if why == self.nothing => "why-nothing".to_owned(),
            "say" if why == self.steer => "why-steer".to_owned(),
            name => format!("why-{name}"),
        }
    }
}

/// What waits for somebody, as acts that would settle it: not that something waits for an approval, where that is not known.
fn open_matters(session: &Session, caller: &Caller) -> Vec<(&'static str, &'static [&'static str], Act)> {
    let mut found: Vec<(_, &[_], _)> = Vec::new();
    if let Some(question) = session.task().and_then(|task| task.phase.questions().first()) {
        let answers = vec![Answer { key: question.key.clone(), reply: Reply::Refused }];
        let answer = TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false };
        found.push(("answer", &["Answer", "Refuse to answer"], Act::Task(answer)));
    }
    if let Some(proposal) =
        session.proposal.as_ref().filter(|proposal| proposal.is_open() && sees_approval(caller, session))
    {
        let decide = Act::Decide { proposal: proposal.id, ruling: Ruling::Approved(Changes::default()) };
        found.push(("decide", &["Approve", "Ask for changes", "Reject"], decide));
    }
    if let Some(offer) = session.handoff().and_then(|handoff| handoff.outstanding()) {
        let (handoff, reason) = (offer.handoff.clone(), Text::default());
        let accept = HandoffAct::Accept { handoff, by: None, reason, implicit: false };
        found.push(("offer", &["Accept", "Decline"], Act::Handoff(accept)));
    }
    found
}

fn doable(console: &Console, asked: &Asked, session: &Session, open_below: usize) -> Doable {
    let why = |act: Act| match console.desk().could(&asked.caller, session, act) {
        Ok(()) => String::new(),
        Err(no) => no::No(no).said(),
    };
    let text = || Text::from("?");
    let commitment = console.desk().commitment(&asked.caller, session, true, text(), None);
    let check_in = CheckInTerms::default();
    let say = TaskAct::Say { body: Blob::from(&b"?"[..]), next: Next::AsBefore, check_in };
    let steer = why(Act::Task(TaskAct::Steer { text: text() }));
    let say = why(Act::Task(say));
    let pause = why(Act::Pause { reason: text(), gently: false });
    let cancel = why(Act::Cancel { reason: text(), keeps_children: false });
    let (heirs, hand_on) = match console.desk().heirs(&asked.caller, session) {
        Ok(heirs) if heirs.is_empty() => (heirs, NO_HEIRS.to_owned()),
        Ok(heirs) => (heirs, String::new()),
        Err(no) => (Vec::new(), no::No(no).said()),
    };
    // One reason is said once.
    let one = [&say, &pause, &cancel].into_iter().all(|other| *other == steer);
    Doable {
        nothing: if one { steer.clone() } else { String::new() },
        steer,
        say,
        pause,
        resume: why(Act::Resume { reason: text() }),
        cancel,
        complete: why(Act::Commit(Box::new(commitment))),
        hand_on,
        heirs: heirs.iter().map(ToString::to_string).collect(),
        closed: open_matters(session, &asked.caller)
            .into_iter()
            .map(|(name, buttons, act)| Closed { name, buttons, why: why(act) })
            .filter(|closed| !closed.why.is_empty())
            .collect(),
        at_once: session.binding.charter.pause == PauseAt::Once,
        paused: State::of(session, &asked.caller).word == "paused",
        over: session.lifecycle.is_terminal(),
        open_below,
    }
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked, id: &str, notice: Notice) -> Result<Response, No> {
    let (desk, caller) = (console.desk(), &asked.caller);
    let before = asked.query.said("before").and_then(|before| before.parse().ok());
    let history = desk.history_before(caller, id, before.unwrap_or(u64::MAX), PAGE).await?;
    let session = &history.session;
    let events = history.events.iter().map(|event| &**event);
    let said_only = asked.query.get("show") == "said";
    let wanted = events.clone().filter(|event| !said_only || sentence::is_said(&event.fact));
    // An order of this page may have been delivered on the next one.
    let follows = history.events.last().map_or(u64::MAX, |last| last.seq.0);
    let later = match follows < session.head.0 && events.clone().any(|event| sentence::is_order(&event.fact))
    {
        true => desk.history(caller, id, follows, LATER_MAX).await?.events,
        false => Vec::new(),
    };
    let around = events.clone().chain(later.iter().map(|event| &**event));
    let lines = sentence::lines(session, wanted, around);
    let (tree, more_tree) = match session.task() {
        Some(_) => desk.tree(caller, id, TREE_MAX).await?,
        None => (Vec::new(), false),
    };
    let open_below = tree.iter().skip(1).filter(|branch| !branch.session.lifecycle.is_terminal()).count();
    let session_id = session.binding.id.clone();
    let circle = session.task().map_or(&[][..], |task| &task.cycle);
    let waits = match tree.is_empty() {
        true => desk.waits_in(caller, session).await?,
        false => {
            let all: Vec<_> = tree.iter().map(|branch| Arc::clone(&branch.session)).collect();
            desk.waits_among(caller, &all).await?
        }
    };
    let opens = |id: &SessionId| {
        let session = tree.iter().map(|branch| &branch.session).find(|session| session.binding.id == *id);
        *id == session_id || session.is_some_and(|session| sees(caller, session))
    };
    let edges = waits.into_iter().map(|edge| Edge {
        open: opens(&edge.on),
        circular: circle.contains(&edge.from) && circle.contains(&edge.to),
        from: edge.from.to_string(),
        to: edge.to.to_string(),
        why: edge.why.name(),
        on_short: short(edge.on.as_str()),
        on: edge.on.to_string(),
    });
    let mut head = Head::of(session, &faces(events.clone()), caller);
    if let Some((parent, _)) = &head.parent
        && !desk.sees(caller, parent).await
    {
        head.parent = None;
    }
    let request = session.wanted();
    let address = |name: &str, value: &str| format!("/tasks/{id}?{}", asked.query.with(name, value));
    let own = format!("/tasks/{id}");
    let notice = if let Notice::None = notice { done(console, asked, &own) } else { notice };
    let status = notice.status();
    let top = console.top(asked, head.title.clone()).await?;
    let live = if before.is_none() { about(session, &tree) } else { String::new() };
    let mut forms = FORMS_BYTES_MAX;
    let since = waiting::since(asked, session);
    let offered = Offered::of(console, asked, session).await?;
    let wait = Wait::of(session, since, offered.clone(), asked, &mut forms, true);
    let binds = history.events.iter().find(|event| matches!(event.fact, Fact::Committed(_)));
    let bound_by = binds.map(|event| match (event.author.agent(), event.is_by_runtime()) {
        (Some(agent), false) => agent.to_string(),
        (Some(agent), true) => format!("the server for {agent}"),
        (None, _) => "the server".to_owned(),
    });
    let at = notice.refusal().map_or_else(String::new, |_| format!("/tasks/{}", session.binding.id));
    let page = Page {
        top: Top { here: "tasks", live, notice, at, ..top },
        instructions: request.map_or_else(String::new, |request| shown::words(&request.instructions)),
        input: request.map_or_else(String::new, |request| shown::bytes(&request.input)),
        offered,
        outcome: shown::outcome(session, bound_by.as_deref()),
        waits: wait.into_iter().collect(),
        doable: doable(console, asked, session, open_below),
        curve: curve(events),
        lines,
        said_only,
        older: history.next.map_or_else(String::new, |next| address("before", &next.to_string())),
        newer: before.is_some(),
        tree: tree.iter().map(|branch| Branch::of(branch, caller)).collect(),
        more_tree,
        open_below,
        edges: edges.collect(),
        offers: offered::own(console, asked, session).await?,
        key: ids::unguessable(),
        typed: asked.typed(session.binding.id.as_str()),
        back: "",
        head,
    };
    Ok(html(status, &page, caller.room()))
}

/// The tasks that the page is about: its own, and those of its tree.
fn about(session: &Session, tree: &[handover_desk::converse::Branch]) -> String {
    let below = tree.iter().map(|branch| &branch.session.binding.id).filter(|id| **id != session.binding.id);
    std::iter::once(&session.binding.id).chain(below).map(SessionId::as_str).collect::<Vec<_>>().join(" ")
}

impl Branch {
    fn of(branch: &handover_desk::converse::Branch, caller: &Caller) -> Branch {
        let session = &branch.session;
        let assignee = session.task().and_then(|task| task.phase.assignee());
        Branch {
            id: session.binding.id.to_string(),
            title: shown::title(session),
            state: State::of(session, caller),
            assignee: assignee.map_or_else(String::new, ToString::to_string),
            depth: branch.depth.min(8),
            open: sees(caller, session),
        }
    }
}

/// How wide and high the picture of it is.
const CURVE: (f64, f64) = (240.0, 32.0);

/// How much was done over time, of these events; nothing if there is too little to draw.
fn curve<'a>(events: impl Iterator<Item = &'a handover_kernel::Event>) -> Option<Curve> {
    let done = |event: &'a handover_kernel::Event| {
        let Fact::Updated { progress, .. } = &event.fact else { return None };
        Some((event.at, shown::percent(progress.done?)?, progress))
    };
    let mut found: Vec<_> = events.filter_map(done).collect();
    // No more than can be told apart, the last one among them.
    let step = found.len().div_ceil(POINTS_MAX).max(1);
    let last = found.len().saturating_sub(1);
    let mut place = 0;
    found.retain(|_| {
        place += 1;
        (last + 1 - place).is_multiple_of(step)
    });
    let (Some((first, ..)), Some((last, ..))) = (found.first(), found.last()) else { return None };
    let (whole, (wide, high)) = (last.since(*first), CURVE);
    let point = |(at, percent): (handover_kernel::Timestamp, u32)| {
        let x = at.since(*first) as f64 * wide / whole.max(1) as f64;
        format!("{x:.1},{:.1}", high - f64::from(percent) * (high - 1.0) / 100.0)
    };
    let line: Vec<String> = found.iter().map(|(at, percent, _)| point((*at, *percent))).collect();
    let line = line.join(" ");
    let row = |(at, percent, progress): &(handover_kernel::Timestamp, u32, &Progress)| {
        let exact = rfc3339(*at);
        Point {
            clock: sentence::clock(&exact),
            exact,
            percent: *percent,
            said: shown::line(&progress.message),
        }
    };
    (found.len() >= 2).then(|| Curve {
        area: format!("0,{high} {line} {wide},{high}"),
        line,
        span: shown::span(whole),
        points: found.iter().map(row).collect(),
    })
}

#[derive(Template)]
#[template(path = "events.html")]
struct Raw {
    top: Top,
    id: String,
    events: Vec<(u64, String)>,
    older: String,
}

/// The raw events, the newest first.
pub(super) async fn events(console: &Console, asked: &Asked, id: &str) -> Result<Response, No> {
    let before = asked.query.said("before").and_then(|before| before.parse().ok());
    let history = console.desk().history_before(&asked.caller, id, before.unwrap_or(u64::MAX), RAW).await?;
    let raw = |(index, event): (usize, &Arc<handover_kernel::Event>)| {
        let text = shown::pretty(&timeline::entry(&history.session, event));
        let max = if index == 0 { RAW_CHARS_MAX } else { RAW_OTHERS_MAX };
        (event.seq.0, handover_kernel::cut(&text, max).into_owned())
    };
    let top = console.top(asked, format!("Events of {}", shown::title(&history.session))).await?;
    let page = Raw {
        top: Top { here: "tasks", ..top },
        id: history.session.binding.id.to_string(),
        events: history.events.iter().rev().enumerate().map(raw).collect(),
        older: history.next.map_or_else(String::new, |next| format!("/tasks/{id}/events?before={next}")),
    };
    Ok(html(200, &page, asked.caller.room()))
}
