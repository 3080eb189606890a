//! What spans a session has, and how they hang together, event by event.

use handover_kernel::approval::{Proposed, Ruling};
use handover_kernel::command::{Answer, CheckInTerms, Failure, NewOffer, Progress, Reply, Request, Start};
use handover_kernel::commitment::Commitment;
use handover_kernel::event::{ExpiryCause, Started};
use handover_kernel::{Author, Blob, Charter, HandoffId, IdScope, QuestionKey, Trace};

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn caller(trace: &str, span: &str, flags: &str) -> Option<Box<Trace>> {
    Some(Box::new(Trace::new(&format!("00-{trace}-{span}-{flags}"), "a=1").unwrap()))
}

/// An event of an agent; its time is its number, in seconds. Without an agent it is the server's.
fn event(seq: u64, agent: &str, fact: Fact) -> Event {
    let is_servers = agent.is_empty();
    Event {
        seq: Seq(seq),
        at: Timestamp(seq * 1000),
        author: if is_servers { Author::Runtime } else { Author::Agent(AgentId::from(agent)) },
        face: if is_servers { Face::Runtime } else { Face::Grid },
        ordinal: None,
        id: None,
        id_scope: IdScope::Sender,
        verbatim: None,
        sent_at: None,
        trace: None,
        fact,
    }
}

fn started(mode: ModeKind, trace: Option<Box<Trace>>) -> Event {
    let start = Start {
        mode,
        participants: ["worker", "helper"].map(AgentId::from).to_vec(),
        charter: Charter::macp(),
        mode_version: Text::default(),
        configuration_version: Text::default(),
        policy_version: Text::default(),
        ttl_ms: None,
        sent_at: None,
        intent: Text::default(),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: None,
        contract: None,
        under: None,
    };
    let fact = Fact::Started(Box::new(Started { start, base: Timestamp(1000) }));
    Event { trace, ..event(1, "planner", fact) }
}

fn request() -> Request {
    Request {
        task: Text::from("t"),
        title: Text::default(),
        instructions: Text::default(),
        assignee: None,
        input: Blob::default(),
        wanted_by: None,
        check_in: CheckInTerms::default(),
        session_key: None,
    }
}

fn accepted() -> Fact {
    Fact::Accepted { reason: Text::default(), handoff: None }
}

fn declined() -> Fact {
    Fact::Declined { reason: Text::default(), handoff: None }
}

fn completed() -> Fact {
    Fact::Completed { output: Blob::default(), summary: Text::default() }
}

fn updated() -> Fact {
    Fact::Updated { progress: Progress::default(), withdrawn: Vec::new() }
}

fn offered(scope: &str) -> Fact {
    Fact::Offered {
        handoff: HandoffId::from("h"),
        target: AgentId::from("helper"),
        scope: Text::from(scope),
        reason: Text::default(),
    }
}

fn committed(positive: bool) -> Fact {
    Fact::Committed(Box::new(Commitment {
        commitment: Text::default(),
        action: Text::default(),
        scope: Text::default(),
        reason: Text::default(),
        mode_version: Text::default(),
        policy_version: Text::default(),
        configuration_version: Text::default(),
        positive,
        supersedes: None,
    }))
}

/// A session that has begun, and the spans of its first event.
fn begun(session: &str, first: &Event) -> (Story, Vec<Span>) {
    let key = SessionKey::new("default", session);
    let mut story = Story::begin(&key, first, Root::of(&key, first, None)).unwrap();
    let spans = story.take(first);
    (story, spans)
}

/// The spans of a task in which this happens after its start, by whom.
fn told(events: Vec<(&str, Fact)>) -> Vec<Span> {
    told_of(ModeKind::Task, events)
}

fn told_of(mode: ModeKind, events: Vec<(&str, Fact)>) -> Vec<Span> {
    let (mut story, mut spans) = begun("s", &started(mode, caller(TRACE, CALLER, "01")));
    for (seq, (agent, fact)) in (2..).zip(events) {
        spans.extend(story.take(&event(seq, agent, fact)));
    }
    spans
}

fn seconds(span: &Span) -> (u64, u64) {
    (span.began.0 / 1000, span.ended.0 / 1000)
}

fn of_event<'a>(spans: &'a [Span], kind: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.what == What::Event && span.kind == kind);
    found.unwrap_or_else(|| panic!("no span of {kind} in {spans:?}"))
}

fn works(spans: &[Span]) -> Vec<(&str, u64, u64)> {
    let works = spans.iter().filter(|span| span.what == What::Work);
    works
        .map(|span| {
            let (began, ended) = seconds(span);
            (span.assignee.as_ref().unwrap().as_str(), began, ended)
        })
        .collect()
}

#[test]
fn what_answers_an_event_lasts_from_it_and_everything_else_is_a_moment() {
    let asked = Fact::Asked { questions: Vec::new(), progress: Progress::default() };
    let answer = Answer { key: QuestionKey::from("k"), reply: Reply::Content(Blob::default()) };
    let offer = NewOffer {
        handoff: HandoffId::from("h"),
        target: AgentId::from("helper"),
        scope: Text::default(),
        reason: Text::default(),
        context: None,
    };
    let proposed = Fact::Proposed { what: Box::new(Proposed::Offer(offer)), held: true };
    let decided = Fact::Decided { proposal: Seq(9), ruling: Ruling::Rejected(Text::default()) };
    let spans = told(vec![
        ("planner", Fact::Requested(request())),
        ("planner", Fact::Steered { text: Text::default() }),
        ("worker", accepted()),
        ("worker", asked),
        ("worker", updated()),
        ("planner", Fact::Answered { answers: vec![answer] }),
        ("planner", Fact::Suspended { reason: Text::default(), banked_ms: None }),
        ("planner", proposed),
        ("planner", Fact::Resumed { reason: Text::default(), banked_ms: None }),
        ("boss", decided),
    ]);
    let lasted = |kind| seconds(of_event(&spans, kind));
    assert_eq!(lasted("accepted"), (2, 4), "from the request");
    assert_eq!(lasted("answered"), (5, 7), "from the question");
    assert_eq!(lasted("resumed"), (8, 10), "from the pause");
    assert_eq!(lasted("decided"), (9, 11), "from the proposal");
    for (kind, at) in [("started", 1), ("requested", 2), ("steered", 3), ("asked", 5), ("updated", 6)] {
        assert_eq!(lasted(kind), (at, at), "{kind}");
    }
    for answer in [
        Fact::OfferAccepted { handoff: HandoffId::from("h"), reason: Text::default(), implicit: false },
        Fact::OfferDeclined { handoff: HandoffId::from("h"), reason: Text::default() },
    ] {
        let kind = timeline::describe(&answer).0;
        let events = vec![("planner", offered("all")), ("planner", updated()), ("helper", answer)];
        assert_eq!(seconds(of_event(&told_of(ModeKind::Handoff, events), kind)), (2, 4), "{kind}");
    }
}

#[test]
fn work_lasts_from_taking_the_task_to_the_report_or_to_giving_it_back() {
    let spans = told(vec![
        ("planner", Fact::Requested(request())),
        ("helper", declined()),
        ("worker", accepted()),
        ("worker", declined()),
        ("helper", accepted()),
        ("helper", completed()),
        ("planner", committed(true)),
    ]);
    assert_eq!(works(&spans), [("worker", 4, 5), ("helper", 6, 7)]);
    assert_eq!(seconds(of_event(&spans, "accepted")), (2, 4));
    let again =
        spans.iter().filter(|span| span.kind == "accepted" && span.what == What::Event).nth(1).unwrap();
    assert_eq!(seconds(again), (5, 6), "it was free again since it was given back");
    let cancelled = Fact::Cancelled { reason: Text::default(), keeps_children: false };
    let events =
        vec![("planner", Fact::Requested(request())), ("worker", accepted()), ("planner", cancelled)];
    assert_eq!(works(&told(events)), [("worker", 3, 4)], "it ends with the task at the latest");
}

#[test]
fn when_a_handoff_moves_a_task_the_work_of_one_agent_ends_and_that_of_the_other_begins() {
    let handoff = Some(SessionId::from("h"));
    let by_server = |seq, agent, fact| Event { face: Face::Runtime, ..event(seq, agent, fact) };
    let (mut story, _) = begun("s", &started(ModeKind::Task, None));
    let mut spans = story.take(&event(2, "planner", Fact::Requested(request())));
    spans.extend(story.take(&event(3, "worker", accepted())));
    spans.extend(story.take(&by_server(
        4,
        "worker",
        Fact::Declined { reason: Text::default(), handoff: handoff.clone() },
    )));
    spans.extend(story.take(&by_server(5, "helper", Fact::Accepted { reason: Text::default(), handoff })));
    spans.extend(story.take(&event(6, "helper", updated())));
    spans.extend(story.take(&event(7, "helper", completed())));
    assert_eq!(works(&spans), [("worker", 3, 4), ("helper", 5, 7)]);
    let helpers = spans.iter().filter(|span| span.what == What::Work).nth(1).unwrap();
    assert_eq!(of_event(&spans, "updated").parent.as_ref().unwrap().id, helpers.id);
}

#[test]
fn a_handoff_has_a_trace_of_its_own_with_links_to_the_task_that_it_is_about() {
    let task = SessionKey::new("default", "t");
    let link = Root::of(&task, &started(ModeKind::Task, caller(TRACE, CALLER, "01")), None).link();
    assert_eq!(link.trace, TRACE);
    let (mut story, _) = begun("h", &started(ModeKind::Handoff, None));
    let offer = event(2, "worker", offered("task:t"));
    assert_eq!(offered_task(&offer), Some(SessionId::from("t")));
    story.is_about(link.clone());
    let mut spans = story.take(&offer);
    let taken =
        Fact::OfferAccepted { handoff: HandoffId::from("h"), reason: Text::default(), implicit: false };
    spans.extend(story.take(&event(3, "helper", taken)));
    spans.extend(story.take(&event(4, "worker", committed(true))));
    assert!(spans.iter().all(|span| span.trace != TRACE), "the trace is its own");
    let linked = spans.iter().filter(|span| !span.links.is_empty());
    let linked: Vec<(What, &str)> = linked.map(|span| (span.what, span.kind)).collect();
    assert_eq!(linked, [(What::Event, "offered"), (What::Session, "committed")]);
    assert!(spans.iter().flat_map(|span| &span.links).all(|found| *found == link));
    assert_eq!(offered_task(&event(2, "worker", offered("the account"))), None);
}

#[test]
fn what_an_agent_does_is_part_of_its_own_span_of_the_same_trace_or_linked_to_it() {
    let (mut story, spans) = begun("s", &started(ModeKind::Task, caller(TRACE, CALLER, "01")));
    let whole = spans[0].parent.as_ref().unwrap().id.clone();
    story.take(&event(2, "planner", Fact::Requested(request())));
    story.take(&event(3, "worker", accepted()));
    let other = "0af7651916cd43dd8448eb211c80319c";
    let told = |story: &mut Story, seq, trace| {
        let span = story.take(&Event { trace, ..event(seq, "worker", updated()) }).remove(0);
        (span.parent.clone().unwrap(), span.links.clone(), span)
    };
    let (parent, links, _) = told(&mut story, 4, None);
    let work = parent.id.clone();
    assert!(!parent.is_callers && links.is_empty());
    assert_ne!(work, whole, "it is part of the work");
    let (parent, links, span) = told(&mut story, 5, caller(TRACE, "00000000000000aa", "01"));
    assert_eq!((parent, links), (Parent { id: "00000000000000aa".to_owned(), is_callers: true }, Vec::new()));
    assert_eq!(span.trace, TRACE);
    let (parent, links, span) = told(&mut story, 6, caller(other, "00000000000000bb", "01"));
    assert_eq!(parent, Parent { id: work.clone(), is_callers: false });
    assert_eq!(links, [Link { trace: other.to_owned(), id: "00000000000000bb".to_owned() }]);
    assert_eq!(span.trace, TRACE);
    // What the server does by itself is part of the whole.
    let late = story.take(&event(7, "", Fact::FellSilent { since: Timestamp(6000) })).remove(0);
    assert_eq!(late.parent.unwrap().id, whole);
    let report = story.take(&event(8, "worker", completed()));
    assert_eq!(report.iter().find(|span| span.what == What::Work).unwrap().id, work);
}

#[test]
fn the_span_of_a_session_comes_at_its_end_and_until_then_its_parts_name_a_parent_that_is_not_there() {
    let events =
        vec![("planner", Fact::Requested(request())), ("worker", accepted()), ("worker", completed())];
    let open = told(events.clone());
    assert!(open.iter().all(|span| span.what != What::Session));
    let over = told([events, vec![("planner", committed(true)), ("planner", updated())]].concat());
    let wholes: Vec<&Span> = over.iter().filter(|span| span.what == What::Session).collect();
    let [whole] = wholes[..] else { panic!("expected one span of the session, found {wholes:?}") };
    assert_eq!((seconds(whole), whole.failure.as_deref()), ((1, 5), None));
    assert_eq!(whole.parent, Some(Parent { id: CALLER.to_owned(), is_callers: true }));
    assert_eq!((&*whole.trace, &*whole.state), (TRACE, "a=1"));
    assert_eq!(of_event(&open, "started").parent.as_ref().unwrap().id, whole.id);
}

#[test]
fn an_end_without_success_has_its_reason_as_a_code() {
    let failed = |code: &str| {
        Fact::Failed(Failure {
            code: Text::from(code),
            reason: Text::from("why"),
            retryable: false,
            protocol_error: false,
            output: Blob::default(),
        })
    };
    for (fact, expected) in [
        (Fact::Cancelled { reason: Text::from("why"), keeps_children: false }, Some("cancelled")),
        (Fact::Expired { cause: ExpiryCause::Deadline }, Some("expired")),
        (committed(false), Some("failed")),
        (committed(true), None),
        (failed("no_data"), Some("no_data")),
        (failed(""), Some("failed")),
    ] {
        let kind = timeline::describe(&fact).0;
        let spans = told(vec![("planner", fact)]);
        assert_eq!(of_event(&spans, kind).failure.as_deref(), expected, "{kind}");
        assert!(!format!("{spans:?}").contains("why"), "what agents say is theirs");
    }
}

#[test]
fn nothing_is_told_of_a_trace_that_its_caller_does_not_sample() {
    let (mut story, spans) = begun("s", &started(ModeKind::Task, caller(TRACE, CALLER, "00")));
    assert_eq!(spans, []);
    assert_eq!(story.take(&event(2, "planner", committed(true))), []);
    assert!(story.is_over());
}

#[test]
fn a_session_without_a_caller_has_a_trace_of_its_own_that_is_another_if_its_id_is_used_again() {
    let first = started(ModeKind::Task, None);
    let trace = |first: &Event| begun("s", first).1[0].trace.clone();
    assert_eq!(trace(&first), trace(&first), "the same however often it is told");
    assert_ne!(trace(&first), trace(&Event { at: Timestamp(7), ..first.clone() }));
    assert_ne!(trace(&first), begun("other", &first).1[0].trace);
}

#[test]
fn a_subtask_without_a_caller_is_part_of_its_task_and_one_with_a_caller_of_that_callers_trace() {
    let (above, below) = (SessionKey::new("default", "above"), SessionKey::new("default", "below"));
    let root = Root::of(&above, &started(ModeKind::Task, caller(TRACE, CALLER, "01")), None);
    let under = Root::of(&below, &started(ModeKind::Task, None), Some(&root));
    assert_eq!((&under.trace, under.parent.unwrap().id), (&root.trace, root.id.clone()));
    let other = "0af7651916cd43dd8448eb211c80319c";
    let called = started(ModeKind::Task, caller(other, "00000000000000bb", "01"));
    let own = Root::of(&below, &called, Some(&root));
    assert_eq!((&*own.trace, &*own.parent.unwrap().id), (other, "00000000000000bb"));
}
