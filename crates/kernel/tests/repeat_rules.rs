//! What is the same message: the same sender, type and payload under the same id.

mod plays;
mod stage;

use std::cell::Cell;
use std::sync::Arc;

use handover_kernel::command::{Contract, Delegation, ModeKind, Opening, TaskAct};
use handover_kernel::repeat::REPEAT_EVENTS;
use handover_kernel::{Act, Charter, Command, Event, Seq, SessionId, Text, Timestamp, Trace, step};
use plays::{for_all, plays};
use proptest::prelude::*;
use stage::acts::*;
use stage::{BEGIN, Stage, by, start};

/// The event that has the id of a message, and those after it.
fn told(log: &[Event], seq: Seq) -> &[Event] {
    let after = &log[seq.0 as usize - 1..];
    &after[..after.len().min(REPEAT_EVENTS)]
}

impl Stage {
    /// Put a command under the id `m`, which must be accepted, and say whether another is the same message.
    fn repeated(&mut self, first: &Command, second: &Command) -> bool {
        let named = first.clone().with_id("m");
        let receipt = self.put(&named).answer.expect("the first one is accepted");
        let binding = Arc::clone(&self.session().binding);
        assert!(named.repeats(&binding, told(&self.log, receipt.seq)), "{first:?} is not itself");
        second.repeats(&binding, told(&self.log, receipt.seq))
    }
}

fn worker_says(act: Act) -> Command {
    by("worker", handover_kernel::Face::Macp, act)
}

/// Two acts that leave the same in the log say the same, but for what is said here: an act that asks for a safe point, and
/// whether a pause waits for one.
fn alike(one: &Act, other: &Act) -> bool {
    let safe_point = |act: &Act| {
        matches!(act, Act::Task(TaskAct::Checkpoint | TaskAct::Hold { .. } | TaskAct::Read { .. }))
    };
    match (one, other) {
        (Act::Pause { reason, .. }, Act::Pause { reason: other, .. }) => reason == other,
        (Act::Task(TaskAct::Update { progress, .. }), Act::Task(TaskAct::Update { progress: other, .. })) => {
            progress == other
        }
        (Act::Task(TaskAct::Answer { answers, .. }), Act::Task(TaskAct::Answer { answers: other, .. })) => {
            answers == other
        }
        (Act::Task(TaskAct::Ask { questions, .. }), Act::Task(TaskAct::Ask { questions: others, .. })) => {
            let named = |one: &handover_kernel::command::NewQuestion| one.key.is_some();
            questions.len() == others.len()
                && questions
                    .iter()
                    .zip(others)
                    .all(|(one, other)| one == other || !named(one) || !named(other))
        }
        // What nobody else may set is left out.
        (Act::Task(TaskAct::Say { body, .. }), Act::Task(TaskAct::Say { body: other, .. })) => body == other,
        (one, other) => one == other || safe_point(one) && safe_point(other),
    }
}

#[test]
fn whatever_was_accepted_is_itself_and_nothing_else() {
    let (itself, others) = (Cell::new(0u64), Cell::new(0u64));
    for_all(500, plays(60), |play| {
        let id = SessionId::from("session-1");
        let (limits, mut slot, mut now, mut log) = (play.limits(), None, BEGIN, Vec::new());
        let (mut sent, mut accepted): (Vec<Command>, Vec<(Command, Seq)>) = (Vec::new(), Vec::new());
        let mut moves = play.moves.iter();
        let mut opening = play.opening().into_iter();
        loop {
            let command = match (opening.next(), &slot) {
                (Some(command), _) => command,
                (None, Some(session)) => {
                    let Some(mv) = moves.next() else { break };
                    now = mv.at(now, session);
                    mv.command(session)
                }
                (None, None) => break,
            };
            let command = command.with_id(format!("c{}", sent.len()));
            let done = step(&mut slot, &id, &command, &limits, now);
            log.extend(done.events);
            let own = done.answer.ok().and_then(|receipt| log.get(receipt.seq.0.checked_sub(1)? as usize));
            if let Some(event) = own.filter(|event| event.id == command.id)
                && command.by.agent().is_some()
            {
                accepted.push((command.clone(), event.seq));
            }
            sent.push(command);
        }
        let Some(session) = slot else { return Ok(()) };
        for (command, seq) in &accepted {
            let events = told(&log, *seq);
            prop_assert!(command.repeats(&session.binding, events), "{:?} is not {:?}", command, events);
            itself.set(itself.get() + 1);
            for other in sent.iter().filter(|other| other.by.agent().is_some()) {
                if other.repeats(&session.binding, events) {
                    prop_assert_eq!(&other.by, &command.by);
                    prop_assert!(alike(&other.act, &command.act), "{:?} passes for {:?}", other, command);
                } else {
                    others.set(others.get() + 1);
                }
            }
        }
        Ok(())
    });
    assert!(itself.get() > 2_000 && others.get() > 20_000, "{} and {}", itself.get(), others.get());
}

#[test]
fn another_sender_type_or_payload_is_another_message() {
    let working = || Stage::working(Charter::macp());
    let first = worker_says(update("so far"));
    assert!(working().repeated(&first, &worker_says(update("so far"))));
    assert!(!working().repeated(&first, &by("planner", handover_kernel::Face::Macp, update("so far"))));
    assert!(!working().repeated(&first, &worker_says(update("further"))));
    assert!(!working().repeated(&first, &worker_says(complete("page"))));
    assert!(!working().repeated(&first, &by("planner", handover_kernel::Face::Macp, commit_success())));
}

// RFC-MACP-0001 has ids; that the timestamp does not count is the reference runtime's rule, and ours.
#[test]
fn when_it_was_sent_and_its_trace_do_not_count_and_its_bytes_do() {
    let bytes = |bytes: &str| Command { verbatim: Some(blob(bytes)), ..worker_says(update("so far")) };
    let traced = |command: Command| {
        let trace = Trace::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "");
        Command { trace: trace.map(Box::new), ..command }
    };
    assert!(Stage::working(Charter::macp()).repeated(&bytes("a"), &traced(bytes("a"))));
    assert!(!Stage::working(Charter::macp()).repeated(&bytes("a"), &bytes("b")));
    let begin = |at| {
        let start = handover_kernel::command::Start {
            sent_at: Some(Timestamp(at)),
            ..start(ModeKind::Task, Charter::mcp())
        };
        by("planner", handover_kernel::Face::Mcp, Act::Start(Box::new(start)))
    };
    assert!(Stage::empty().repeated(&begin(BEGIN.0 - 1), &begin(BEGIN.0 - 2)));
}

#[test]
fn a_delegation_is_what_its_sender_said_and_not_what_the_server_added() {
    let mcp = |act| by("planner", handover_kernel::Face::Mcp, act);
    let words = |change: &dyn Fn(&mut Delegation)| {
        let Act::Delegate(mut delegation) = delegate(start(ModeKind::Task, Charter::mcp()), Some("worker"))
        else {
            unreachable!("it is a delegation")
        };
        change(&mut delegation);
        mcp(Act::Delegate(delegation))
    };
    let skill = |title: &str, name: &str| {
        let (title, name) = (Text::from(title), Text::from(name));
        words(&move |delegation: &mut Delegation| {
            let contract = Contract { skill: name.clone(), input: blob("{}"), output: blob("") };
            delegation.start.contract = Some(Arc::new(contract));
            if let Opening::Request(request) = &mut delegation.opening {
                request.title = title.clone();
            }
        })
    };
    let first = || words(&|_| {});
    assert!(Stage::empty().repeated(&first(), &words(&|other| other.start.ttl_ms = Some(7))));
    let input = words(&|other| {
        if let Opening::Request(request) = &mut other.opening {
            request.input = blob("[]");
        }
    });
    let title = words(&|other| {
        if let Opening::Request(request) = &mut other.opening {
            request.title = Text::from("another");
        }
    });
    let parent = words(&|other| other.start.parent = Some(SessionId::from("p")));
    let handoff = mcp(begin_handoff(start(ModeKind::Handoff, Charter::macp()), "worker"));
    for other in [input, title, parent, handoff.clone(), skill("sum up the quarter", "sum")] {
        assert!(!Stage::empty().repeated(&first(), &other), "{other:?}");
    }
    assert!(Stage::empty().repeated(&skill("sum", "sum"), &skill("Sum (new)", "sum")), "a skill may change");
    assert!(!Stage::empty().repeated(&skill("sum", "sum"), &skill("sum", "draft")));
    assert!(
        !Stage::empty()
            .repeated(&handoff, &mcp(begin_handoff(start(ModeKind::Handoff, Charter::macp()), "helper")))
    );
}
