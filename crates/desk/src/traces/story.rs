//! How far a session is, as far as spans need to know, and the spans that end with each of its events.

use handover_kernel::command::ModeKind;
use handover_kernel::handoff::task_of_scope;
use handover_kernel::{AgentId, Event, Face, Fact, Seq, SessionId, Text, Timestamp, Trace};
use handover_store::SessionKey;
use sha2::{Digest, Sha256};

use crate::timeline;

/// Something that took its time, or a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace, and the span in it, in hexadecimal.
    pub trace: String,
    /// The same for the same thing, whoever tells it and how often.
    pub id: String,
    /// The span that this one is part of.
    pub parent: Option<Parent>,
    /// What the caller's trace carries for others.
    pub state: Text,
    /// Spans that it has to do with and is not part of.
    pub links: Vec<Link>,
    /// What it is.
    pub what: What,
    /// From when it lasted.
    pub began: Timestamp,
    /// Until when.
    pub ended: Timestamp,
    /// Whose session it is.
    pub tenant: Box<str>,
    /// The session.
    pub session: SessionId,
    /// What the session is about.
    pub mode: ModeKind,
    /// The protocol that the session began on.
    pub began_on: Face,
    /// Who started it.
    pub requester: AgentId,
    /// Who works on it.
    pub assignee: Option<AgentId>,
    /// The skill that was called.
    pub skill: Option<Text>,
    /// The number of the event that ends the span.
    pub seq: Seq,
    /// What that event says, in one word.
    pub kind: &'static str,
    /// Whose it is, if it is an agent's.
    pub author: Option<AgentId>,
    /// The protocol that it came on.
    pub face: Face,
    /// Why it came to nothing, as a code.
    pub failure: Option<Text>,
}

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A whole session.
    Session,
    /// The work of an agent, from taking it to its report.
    Work,
    /// One event, from what it answers on.
    Event,
}

/// The span that another one is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its id.
    pub id: String,
    /// Whether it is the caller's, and not ours.
    pub is_callers: bool,
}

/// A span of some trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The trace.
    pub trace: String,
    /// The span.
    pub id: String,
}

/// Which trace a session is part of, and where.
#[derive(Clone, Debug)]
pub(super) struct Root {
    trace: String,
    /// The span of the whole session.
    id: String,
    parent: Option<Parent>,
    state: Text,
    is_sampled: bool,
}

impl Root {
    /// That of a session with this first event, under a task.
    pub(super) fn of(key: &SessionKey, first: &Event, above: Option<&Root>) -> Root {
        let id = id(key, first, 0, "session");
        match (&first.trace, above) {
            (Some(caller), _) => Root {
                trace: caller.id().to_owned(),
                id,
                parent: Some(Parent { id: caller.parent[36..52].to_owned(), is_callers: true }),
                state: Text::clone(&caller.state),
                is_sampled: is_sampled(&caller.parent),
            },
            (None, Some(above)) => {
                Root { id, parent: Some(Parent { id: above.id.clone(), is_callers: false }), ..above.clone() }
            }
            (None, None) => {
                let trace = digest(key, first, 0, "trace")[..32].to_owned();
                Root { trace, id, parent: None, state: Text::default(), is_sampled: true }
            }
        }
    }

    /// What is passed on to whoever works on the session, so that its own spans are part of the work that it took with this
    /// event, or of the whole session.
    pub(super) fn passed_on(&self, key: &SessionKey, first: &Event, taken: Option<Seq>) -> Option<Trace> {
        let span = taken.map_or_else(|| self.id.clone(), |taken| work(key, first, taken));
        let flags = if self.is_sampled { "01" } else { "00" };
        Trace::new(&format!("00-{}-{span}-{flags}", self.trace), &self.state)
    }

    /// The span of the whole session, as spans of other traces name it.
    pub(super) fn link(&self) -> Link {
        Link { trace: self.trace.clone(), id: self.id.clone() }
    }
}

/// The task that a session is a subtask of, as its first event says.
pub(super) fn parent(first: &Event) -> Option<&SessionId> {
    let Fact::Started(started) = &first.fact else { return None };
    started.start.parent.as_ref()
}

/// The task that an event offers to hand on.
pub(super) fn offered_task(event: &Event) -> Option<SessionId> {
    let Fact::Offered { scope, .. } = &event.fact else { return None };
    task_of_scope(scope)
}

/// An event without what it says, which may be large.
pub(super) fn without_content(event: &Event) -> Event {
    Event {
        seq: event.seq,
        at: event.at,
        author: event.author.clone(),
        face: event.face,
        ordinal: None,
        id: None,
        id_scope: event.id_scope,
        verbatim: None,
        sent_at: None,
        trace: event.trace.clone(),
        fact: Fact::Checkpointed,
    }
}

fn is_sampled(parent: &str) -> bool {
    u8::from_str_radix(&parent[53..], 16).is_ok_and(|flags| flags & 1 == 1)
}

/// A digest that is another one if the id of a session is used again.
fn digest(key: &SessionKey, first: &Event, seq: u64, what: &str) -> String {
    let (began, seq) = (first.at.0.to_string(), seq.to_string());
    let mut digest = Sha256::new();
    for part in [&*key.tenant, &*key.session, &began, &seq, what] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id(key: &SessionKey, first: &Event, seq: u64, what: &str) -> String {
    digest(key, first, seq, what)[..16].to_owned()
}

/// The id of the work that was taken with an event.
fn work(key: &SessionKey, first: &Event, taken: Seq) -> String {
    id(key, first, taken.0, "work")
}

/// The work that an agent has in hand.
#[derive(Clone, Debug)]
struct Work {
    agent: Option<AgentId>,
    since: Timestamp,
    /// The span of it.
    id: String,
}

/// How far a session is. Of a fixed size but for names.
#[derive(Clone, Debug)]
pub(super) struct Story {
    key: SessionKey,
    first: Event,
    root: Root,
    mode: ModeKind,
    requester: AgentId,
    skill: Option<Text>,
    head: Seq,
    work: Option<Work>,
    /// Who has, or had, it in hand.
    assignee: Option<AgentId>,
    is_over: bool,
    /// The task that a handoff is about.
    about: Option<Link>,
    /// Since when something is open that another event closes.
    open: [Option<Timestamp>; 5],
}

/// What is open until another event closes it.
#[derive(Clone, Copy)]
enum Open {
    Request,
    Question,
    Proposal,
    Pause,
    Offer,
}

fn opens(fact: &Fact) -> Option<Open> {
    let opened = [
        (matches!(fact, Fact::Requested(_)), Open::Request),
        (matches!(fact, Fact::Asked { .. }), Open::Question),
        (matches!(fact, Fact::Proposed { .. }), Open::Proposal),
        (matches!(fact, Fact::Suspended { .. }), Open::Pause),
        (matches!(fact, Fact::Offered { .. }), Open::Offer),
    ];
    opened.into_iter().find(|(is_so, _)| *is_so).map(|(_, open)| open)
}

fn closes(fact: &Fact) -> Option<Open> {
    let closed = [
        (matches!(fact, Fact::Accepted { .. }), Open::Request),
        (matches!(fact, Fact::Answered { .. }), Open::Question),
        (matches!(fact, Fact::Decided { .. }), Open::Proposal),
        (matches!(fact, Fact::Resumed { .. }), Open::Pause),
        (matches!(fact, Fact::OfferAccepted { .. } | Fact::OfferDeclined { .. }), Open::Offer),
    ];
    closed.into_iter().find(|(is_so, _)| *is_so).map(|(_, open)| open)
}

impl Story {
    /// A session before its first event; none if that is not how sessions begin.
    pub(super) fn begin(key: &SessionKey, first: &Event, root: Root) -> Option<Story> {
        let Fact::Started(started) = &first.fact else { return None };
        let start = &started.start;
        Some(Story {
            key: key.clone(),
            root,
            mode: start.mode,
            requester: first.author.agent().cloned().unwrap_or_else(|| AgentId::from("")),
            skill: start.contract.as_ref().map(|contract| Text::clone(&contract.skill)),
            first: without_content(first),
            head: Seq(0),
            work: None,
            assignee: None,
            is_over: false,
            about: None,
            open: [None; 5],
        })
    }

    /// The last event that it has taken.
    pub(super) fn head(&self) -> Seq {
        self.head
    }

    /// Whether it has ended. Little happens after that.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next event offers to hand a task on.
    pub(super) fn is_about(&mut self, task: Link) {
        self.about = Some(task);
    }

    /// The spans that end with the next event.
    pub(super) fn take(&mut self, event: &Event) -> Vec<Span> {
        self.head = event.seq;
        let (at, author) = (event.at, event.author.agent());
        let mut ended = Vec::new();
        // What the event closes, before it opens anything itself.
        let answers = closes(&event.fact);
        let since = answers.and_then(|open| self.open[open as usize].take());
        ended.push(self.event_span(event, since.unwrap_or(at)));
        let gives_back = matches!(event.fact, Fact::Declined { .. })
            && self.work.as_ref().is_some_and(|work| work.agent.as_ref() == author);
        let reports = matches!(event.fact, Fact::Completed { .. } | Fact::Failed(_));
        let ends = matches!(event.fact, Fact::Committed(_) | Fact::Cancelled { .. } | Fact::Expired { .. });
        let taken = matches!(event.fact, Fact::Accepted { .. });
        if (gives_back || reports || ends || taken)
            && let Some(work) = self.work.take()
        {
            let parent = Some(Parent { id: self.root.id.clone(), is_callers: false });
            let span = self.span(event, What::Work, work.since);
            ended.push(Span { id: work.id, parent, assignee: work.agent, ..span });
        }
        if ends && !self.is_over {
            self.is_over = true;
            let span = self.span(event, What::Session, self.first.at);
            let (id, parent, state) =
                (self.root.id.clone(), self.root.parent.clone(), Text::clone(&self.root.state));
            ended.push(Span { id, parent, state, links: self.about.iter().cloned().collect(), ..span });
        }
        if taken {
            let id = work(&self.key, &self.first, event.seq);
            self.work = Some(Work { agent: author.cloned(), since: at, id });
            self.assignee = author.cloned();
        }
        let opened = if gives_back { Some(Open::Request) } else { opens(&event.fact) };
        if let Some(open) = opened {
            self.open[open as usize].get_or_insert(at);
        }
        if self.root.is_sampled { ended } else { Vec::new() }
    }

    /// The span of one event: part of its caller's span if that is of the same trace, else of the work that it is about, else of
    /// the session.
    fn event_span(&self, event: &Event, began: Timestamp) -> Span {
        let caller = event.trace.as_deref().filter(|_| event.seq.0 > 1);
        let same = caller.filter(|caller| caller.id() == self.root.trace);
        let own = match &self.work {
            Some(work) if !event.is_by_runtime() => &work.id,
            Some(_) | None => &self.root.id,
        };
        let parent = match same {
            Some(caller) => Parent { id: caller.parent[36..52].to_owned(), is_callers: true },
            None => Parent { id: own.clone(), is_callers: false },
        };
        let other = caller.filter(|_| same.is_none());
        let callers =
            other.map(|caller| Link { trace: caller.id().to_owned(), id: caller.parent[36..52].to_owned() });
        // The offer says it as well, because the span of the whole handoff comes only when that is over.
        let about = self.about.clone().filter(|_| offered_task(event).is_some());
        let links = callers.into_iter().chain(about).collect();
        let id = id(&self.key, &self.first, event.seq.0, "event");
        Span { id, parent: Some(parent), links, ..self.span(event, What::Event, began) }
    }

    fn span(&self, event: &Event, what: What, began: Timestamp) -> Span {
        let (kind, _) = timeline::describe(&event.fact);
        Span {
            trace: self.root.trace.clone(),
            id: String::new(),
            parent: None,
            state: Text::default(),
            links: Vec::new(),
            what,
            began,
            ended: event.at,
            tenant: self.key.tenant.clone(),
            session: SessionId::from(&*self.key.session),
            mode: self.mode,
            began_on: self.first.face,
            requester: self.requester.clone(),
            assignee: self.assignee.clone(),
            skill: self.skill.clone(),
            seq: event.seq,
            kind,
            author: event.author.agent().cloned(),
            face: event.face,
            failure: failure(&event.fact),
        }
    }
}

/// Why a fact is a failure, as a code.
fn failure(fact: &Fact) -> Option<Text> {
    if let Fact::Failed(failure) = fact {
        let code = if failure.code.is_empty() { "failed" } else { &*failure.code };
        return Some(Text::from(code));
    }
    let failed = [
        (matches!(fact, Fact::Committed(made) if !made.positive), "failed"),
        (matches!(fact, Fact::Cancelled { .. }), "cancelled"),
        (matches!(fact, Fact::Expired { .. }), "expired"),
    ];
    failed.into_iter().find(|(is_so, _)| *is_so).map(|(_, code)| Text::from(code))
}

#[cfg(test)]
mod tests;
