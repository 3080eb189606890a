//! What holds for every play, whoever does what and whenever.

mod plays;
mod stage;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use handover_kernel::approval::{Changes, Proposed, Ruling};
use handover_kernel::command::{NewOffer, Request};
use handover_kernel::commitment::Commitment;
use handover_kernel::event::ExpiryCause;
use handover_kernel::orders::OrderKind;
use handover_kernel::session::{Lifecycle, apply};
use handover_kernel::{
    Act, AgentId, Charter, Command, Event, Fact, IdScope, Limits, Millis, QuestionKey, Refusal, Seq, Session,
    SessionId, Step, Timestamp, replay, step,
};
use plays::{Play, for_all, plays};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stage::acts::*;
use stage::{BEGIN, KINDS, Stage, kind};

fn session_id() -> SessionId {
    SessionId::from("session-1")
}

/// A command as it was put, and when.
type Put = (Command, Timestamp);

/// Play it, and see what was put and what came of it.
fn perform(
    play: &Play,
    mut see: impl FnMut(&Option<Session>, &Put, &Step, &Option<Session>) -> TestCaseResult,
) -> Result<Vec<Put>, TestCaseError> {
    let (limits, mut slot, mut now) = (play.limits(), None, BEGIN);
    let mut puts = Vec::new();
    let mut put = |slot: &mut Option<Session>, put: Put| {
        let before = slot.clone();
        let step = step(slot, &session_id(), &put.0, &limits, put.1);
        let seen = see(&before, &put, &step, slot);
        puts.push(put);
        seen
    };
    for command in play.opening() {
        put(&mut slot, (command, now))?;
    }
    for mv in &play.moves {
        let Some(session) = &slot else { break };
        now = mv.at(now, session);
        let command = mv.command(session);
        put(&mut slot, (command, now))?;
    }
    Ok(puts)
}

/// The events that come of these commands.
fn events_of(puts: &[Put], limits: &Limits) -> Vec<Event> {
    let mut slot = None;
    let put = |(command, now): &Put| step(&mut slot, &session_id(), command, limits, *now).events;
    puts.iter().flat_map(put).collect()
}

fn tick(slot: &Option<Session>, at: Timestamp) -> (Vec<Event>, Option<Session>) {
    let mut slot = slot.clone();
    let events = step(&mut slot, &session_id(), &Command::runtime(Act::Tick), &Limits::default(), at).events;
    (events, slot)
}

// (a) The log tells everything: applied event by event, and replayed as a whole.
#[test]
fn replay_equals_live() {
    for_all(1_000, plays(100), |play| {
        let (mut shadow, mut log) = (None, Vec::new());
        perform(&play, |_, _, step, live| {
            for event in &step.events {
                apply(&mut shadow, &session_id(), event);
            }
            log.extend(step.events.iter().cloned());
            prop_assert_eq!(&shadow, live);
            Ok(())
        })?;
        prop_assert_eq!(replay(&session_id(), &log), Ok(shadow));
        Ok(())
    });
}

// (b) A refusal changes nothing beyond what a tick at the same moment does.
#[test]
fn a_refusal_changes_nothing() {
    let refusals = RefCell::new(BTreeMap::<&str, u32>::new());
    for_all(1_000, plays(100), |play| {
        perform(&play, |before, (_, now), step, after| {
            // But that something was proposed.
            if let Err(refusal) = &step.answer
                && !matches!(refusal, Refusal::ApprovalNeeded { .. })
            {
                let (due, ticked) = tick(before, *now);
                prop_assert_eq!(&step.events, &due);
                prop_assert_eq!(after, &ticked);
                *refusals.borrow_mut().entry(refusal.code()).or_default() += 1;
            }
            Ok(())
        })?;
        Ok(())
    });
    assert!(refusals.borrow().len() > 20, "too few kinds of refusals: {:?}", refusals.borrow());
}

// (c) The lifecycle never changes after the end, and only receipts, errands and what was used are added.
#[test]
fn terminal_is_terminal() {
    for_all(1_000, plays(100), |play| {
        perform(&play, |before, _, step, after| {
            let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
            if before.lifecycle.is_terminal() {
                prop_assert_eq!(&before.lifecycle, &after.lifecycle);
                for event in &step.events {
                    prop_assert!(
                        matches!(
                            event.fact,
                            Fact::Read { .. }
                                | Fact::ErrandSettled { .. }
                                | Fact::Spent { .. }
                                | Fact::Overspent { .. }
                        ),
                        "{:?}",
                        event
                    );
                }
            }
            Ok(())
        })?;
        Ok(())
    });
}

// (d) Time comes only as an argument: the same commands at the same times give the same events.
#[test]
fn the_same_commands_at_the_same_times_give_the_same_events() {
    for_all(1_000, plays(100), |play| {
        let puts = perform(&play, |_, _, _, _| Ok(()))?;
        prop_assert_eq!(events_of(&puts, &play.limits()), events_of(&puts, &play.limits()));
        Ok(())
    });
}

// (d) Whether timers are delivered on time, often, or only with the next command makes no difference.
#[test]
fn extra_ticks_change_nothing() {
    let extra = prop::collection::vec((0u64..5_000, 0usize..3), 60);
    for_all(1_000, (plays(100), extra), |(play, extra)| {
        let puts = perform(&play, |_, _, _, _| Ok(()))?;
        let mut ticked = Vec::new();
        for (index, (command, now)) in puts.iter().enumerate() {
            ticked.push((command.clone(), *now));
            let Some((_, next)) = puts.get(index + 1) else { break };
            let (after, times) = extra[index % extra.len()];
            for _ in 0..times {
                let at = now.plus(after);
                // Not beyond the next command: a tick in the future would be another play.
                if at <= *next {
                    ticked.push((Command::runtime(Act::Tick), at));
                }
            }
        }
        prop_assert_eq!(events_of(&puts, &play.limits()), events_of(&ticked, &play.limits()));
        Ok(())
    });
}

// (e) Sequence numbers and ordinals have no holes, and times never decrease.
#[test]
fn numbers_have_no_holes_and_times_never_decrease() {
    for_all(1_000, plays(100), |play| {
        let mut log: Vec<Event> = Vec::new();
        perform(&play, |_, _, step, _| {
            log.extend(step.events.iter().cloned());
            Ok(())
        })?;
        let numbers: Vec<u64> = log.iter().map(|event| event.seq.0).collect();
        prop_assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<_>>());
        let ordinals: Vec<u64> =
            log.iter().filter_map(|event| event.ordinal).map(|ordinal| ordinal.0).collect();
        prop_assert_eq!(&ordinals, &(1..=ordinals.len() as u64).collect::<Vec<_>>());
        prop_assert!(log.is_sorted_by_key(|event| event.at));
        Ok(())
    });
}

// (f) RFC-MACP-0009 §5 rules 3 and 3a: at every moment at most one assignee, and nobody else speaks for the task.
#[test]
fn there_is_never_a_second_assignee() {
    for_all(1_000, plays(100), |play| {
        let mut active: Option<AgentId> = None;
        perform(&play, |_, _, step, after| {
            for event in &step.events {
                let author = event.author.agent().cloned();
                match kind(&event.fact) {
                    "Accepted" => {
                        prop_assert_eq!(&active, &None);
                        active = author;
                    }
                    "Declined" if author == active => active = None,
                    "Updated" | "Asked" | "Checkpointed" | "Completed" | "Failed" => {
                        prop_assert_eq!(&author, &active);
                    }
                    _ => {}
                }
            }
            let task = after.as_ref().and_then(Session::task);
            prop_assert_eq!(task.and_then(|task| task.phase.assignee()), active.as_ref());
            Ok(())
        })?;
        Ok(())
    });
}

// What needs an approval takes effect only once the very same was approved, and until its opening was nobody knows of the
// session but the requester and those who decide.
#[test]
fn nothing_takes_effect_unapproved() {
    let approved = RefCell::new(0);
    for_all(4_000, plays(60), |play| {
        let Some(approvals) = play.charter.approvals.clone() else { return Ok(()) };
        let mut waiting: Option<Proposed> = None;
        let mut may: Option<Proposed> = None;
        perform(&play, |_, _, step, after| {
            for event in &step.events {
                if let Fact::Proposed { what, .. } = &event.fact {
                    (waiting, may) = (Some(Proposed::clone(what)), None);
                }
                if let Fact::Decided { ruling: Ruling::Approved(changes), .. } = &event.fact {
                    prop_assert_eq!(event.author.agent(), Some(&stage::agent("lead")));
                    may = waiting.take().map(|what| with(what, changes));
                }
                let effect = if let Fact::Requested(request) = &event.fact {
                    Proposed::Request(request.clone())
                } else if let Fact::Offered { handoff, target, scope, reason } = &event.fact {
                    let (handoff, target) = (handoff.clone(), target.clone());
                    let (scope, reason) = (scope.clone(), reason.clone());
                    Proposed::Offer(NewOffer { handoff, target, scope, reason, context: None })
                } else if let Fact::Committed(made) = &event.fact
                    && (made.positive || !event.is_by_runtime())
                {
                    Proposed::Commitment((**made).clone())
                } else {
                    continue;
                };
                if !approvals.of(&effect).is_empty() {
                    let allowed = may.take().map(without_context);
                    prop_assert_eq!(allowed, Some(effect));
                    *approved.borrow_mut() += 1;
                }
            }
            if let Some(session) = after
                && session.is_held_back()
            {
                let known = ["worker", "helper"].map(|who| session.involves(&stage::agent(who)));
                prop_assert_eq!(known, [false, false]);
            }
            Ok(())
        })?;
        Ok(())
    });
    assert!(*approved.borrow() > 100, "too few took effect: {}", approved.borrow());
}

fn with(what: Proposed, changes: &Changes) -> Proposed {
    match what {
        Proposed::Request(request) => {
            Proposed::Request(Request { title: changes.title.clone().unwrap_or(request.title), ..request })
        }
        Proposed::Offer(offer) => {
            Proposed::Offer(NewOffer { reason: changes.reason.clone().unwrap_or(offer.reason), ..offer })
        }
        Proposed::Commitment(made) => {
            Proposed::Commitment(Commitment { reason: changes.reason.clone().unwrap_or(made.reason), ..made })
        }
    }
}

fn without_context(what: Proposed) -> Proposed {
    match what {
        Proposed::Offer(offer) => Proposed::Offer(NewOffer { context: None, ..offer }),
        Proposed::Request(_) | Proposed::Commitment(_) => what,
    }
}

// (f) Two agents race: however their messages interleave, one has the task and the other is refused.
#[test]
fn however_two_agents_race_one_of_them_has_it() {
    let order = Just([true, true, true, false, false, false].to_vec()).prop_shuffle();
    for_all(60, order, |order| {
        let mut stage = Stage::requested(Charter::macp());
        let mut scripts = BTreeMap::from([
            ("worker", vec![complete("page"), update("so far"), accept()]),
            ("helper", vec![complete("page"), update("so far"), accept()]),
        ]);
        let first = if order[0] { "worker" } else { "helper" };
        for turn in order {
            let who = if turn { "worker" } else { "helper" };
            let act = scripts.get_mut(who).and_then(Vec::pop).expect("each has three moves");
            prop_assert_eq!(stage.say(who, act).answer.is_ok(), who == first);
        }
        prop_assert_eq!(stage.assignee(), Some(first));
        Ok(())
    });
}

// (g) The same message id twice has one effect, and the answer is the first one's.
#[test]
fn a_message_id_has_one_effect() {
    let duplicates = RefCell::new(0);
    for_all(1_000, plays(100), |play| {
        let mut first = BTreeMap::new();
        perform(&play, |before, (command, now), step, _| {
            let (Some(id), Ok(receipt)) = (&command.id, &step.answer) else { return Ok(()) };
            // Some ids are one space per session; the others are scoped by face and agent.
            let own = command.id_scope == IdScope::Sender;
            let sender = own.then(|| (command.face, command.by.agent().cloned()));
            let key = (command.id_scope, sender, id.as_str().to_owned());
            match first.get(&key) {
                Some((seq, at)) => {
                    prop_assert!(receipt.duplicate && receipt.orders.is_empty());
                    prop_assert_eq!((receipt.seq, receipt.at), (*seq, *at));
                    prop_assert_eq!(&step.events, &tick(before, *now).0);
                    *duplicates.borrow_mut() += 1;
                }
                None => {
                    prop_assert!(!receipt.duplicate);
                    let (due, _) = tick(before, *now);
                    if step.events.len() > due.len() {
                        let own = step.events.iter().find(|event| event.id.as_ref() == Some(id));
                        prop_assert_eq!(
                            own.map(|event| (event.seq, event.at)),
                            Some((receipt.seq, receipt.at))
                        );
                        first.insert(key, (receipt.seq, receipt.at));
                    }
                }
            }
            Ok(())
        })?;
        Ok(())
    });
    assert!(*duplicates.borrow() > 100, "too few duplicates: {}", duplicates.borrow());
}

// (h) SEP-2669: orders are delivered in the order of their submission, each exactly once.
#[test]
fn orders_are_delivered_in_order_and_once() {
    let delivered = RefCell::new(0);
    for_all(1_000, plays(100), |play| {
        // What a plain reading of the log says is waiting.
        let mut waiting: Vec<Seq> = Vec::new();
        let mut pause: Option<Seq> = None;
        perform(&play, |_, (command, _), step, after| {
            let Some(session) = after else { return Ok(()) };
            for event in &step.events {
                let by_requester = event.author.agent() == Some(&session.binding.requester);
                match kind(&event.fact) {
                    "Steered" | "Answered" | "PauseRequested" => waiting.push(event.seq),
                    "Said" if by_requester => waiting.push(event.seq),
                    // A pause that took effect or was voided need not be heard of.
                    "Suspended" | "Completed" | "Failed" => waiting.retain(|seq| Some(*seq) != pause),
                    _ => {}
                }
                if let Fact::PauseRequested { .. } = &event.fact {
                    pause = Some(event.seq);
                }
                if let Fact::Delivered { up_to, .. } = &event.fact {
                    let due: Vec<Seq> = waiting.iter().copied().filter(|seq| seq <= up_to).collect();
                    prop_assert!(!due.is_empty(), "nothing was delivered");
                    if let (true, Ok(receipt)) = (command.takes_orders, &step.answer) {
                        let handed: Vec<Seq> = receipt.orders.iter().map(|order| order.seq).collect();
                        prop_assert_eq!(&handed, &due);
                    }
                    *delivered.borrow_mut() += due.len();
                    waiting.retain(|seq| seq > up_to);
                }
            }
            if let Some(task) = session.task() {
                let found: Vec<Seq> = task.orders.waiting().map(|order| order.seq).collect();
                prop_assert_eq!(&found, &waiting);
                let pauses =
                    task.orders.waiting().filter(|order| matches!(order.what, OrderKind::Pause(_))).count();
                prop_assert!(pauses <= 1);
            }
            Ok(())
        })?;
        Ok(())
    });
    assert!(*delivered.borrow() > 300, "too few orders were delivered: {}", delivered.borrow());
}

// (i) SEP-2669: a question's key is never used again.
#[test]
fn question_keys_never_repeat() {
    for_all(1_000, plays(100), |play| {
        let mut keys: BTreeSet<QuestionKey> = BTreeSet::new();
        perform(&play, |_, _, step, _| {
            for event in &step.events {
                if let Fact::Asked { questions, .. } = &event.fact {
                    for question in questions {
                        prop_assert!(keys.insert(question.key.clone()), "{:?} twice", question.key);
                    }
                }
            }
            Ok(())
        })?;
        Ok(())
    });
}

// (j) RFC-MACP-0001: the sum of all suspensions stays within the cap; the first moment beyond it ends the session.
#[test]
fn suspensions_stay_within_the_cap() {
    for_all(1_000, plays(100), |play| {
        let cap = play.charter.suspension_cap_ms;
        let (mut total, mut since): (Millis, Option<Timestamp>) = (0, None);
        perform(&play, |_, _, step, after| {
            for event in &step.events {
                let cause = ExpiryCause::SuspensionCap;
                if let Fact::Suspended { .. } = &event.fact {
                    since = Some(event.at);
                } else if let Fact::Resumed { .. } = &event.fact {
                    total += since.take().map_or(0, |since| event.at.since(since));
                    prop_assert!(total <= cap, "{} of {}", total, cap);
                } else if event.fact == (Fact::Expired { cause }) {
                    total += since.take().map_or(0, |since| event.at.since(since));
                    prop_assert_eq!(total, cap + 1);
                }
            }
            if let Some(session) = after.as_ref().filter(|session| session.lifecycle == Lifecycle::Open) {
                prop_assert_eq!(session.suspended_ms, total);
            }
            Ok(())
        })?;
        Ok(())
    });
}

// The time of a budget ends a task, paused or not; no more is reserved than it allows, and each once.
#[test]
fn a_budget_is_never_exceeded_in_time_or_tasks() {
    let reserved = RefCell::new(0);
    for_all(1_000, plays(100), |play| {
        let mut children = BTreeSet::new();
        perform(&play, |_, _, step, after| {
            let Some(after) = after else { return Ok(()) };
            for event in &step.events {
                // A start may have been on its way for longer than that.
                let open = event.seq.0 > 1 && !after.lifecycle.is_terminal();
                if let Some(until) = after.binding.until().filter(|_| open) {
                    prop_assert!(event.at <= until, "{:?}", event);
                }
                if let Fact::Reserved { child, .. } = &event.fact {
                    prop_assert!(children.insert(child.clone()), "{:?}", event);
                }
            }
            if let (Some(budget), Some(task)) = (after.binding.budget(), after.task()) {
                prop_assert!(children.len() <= budget.tasks.unwrap_or(u32::MAX) as usize);
                prop_assert_eq!(&children, &task.ledger.reserved);
            }
            Ok(())
        })?;
        *reserved.borrow_mut() += children.len();
        Ok(())
    });
    assert!(*reserved.borrow() > 20, "too few were reserved: {}", reserved.borrow());
}

/// Whether something beside its time to live ends it.
fn has_time_budget(play: &Play) -> bool {
    let own = play.charter.budget.as_ref().is_some_and(|budget| budget.time_ms.is_some());
    own || (play.has_parent && play.tight)
}

// (j) RFC-MACP-0001: time spent open never exceeds the time to live.
#[test]
fn a_session_is_open_no_longer_than_its_time_to_live() {
    for_all(1_000, plays(100), |play| {
        let Some(ttl) = play.ttl_ms.filter(|_| !has_time_budget(&play)) else { return Ok(()) };
        let (mut open, mut since): (Millis, Option<Timestamp>) = (0, None);
        perform(&play, |_, _, step, after| {
            let base = after.as_ref().map(|session| session.binding.base);
            for event in &step.events {
                let cause = ExpiryCause::Deadline;
                if let Fact::Started(_) = &event.fact {
                    since = base;
                } else if let Fact::Suspended { banked_ms, .. } = &event.fact {
                    open += since.take().map_or(0, |since| event.at.since(since));
                    prop_assert_eq!(*banked_ms, Some(ttl.saturating_sub(open)));
                } else if let Fact::Resumed { .. } = &event.fact {
                    since = Some(event.at);
                } else if event.fact == (Fact::Expired { cause }) {
                    open += since.take().map_or(0, |since| event.at.since(since));
                    prop_assert!(open > ttl, "{} of {}", open, ttl);
                }
            }
            Ok(())
        })?;
        Ok(())
    });
}

// (k) `wake_at` is exact: one millisecond before it nothing is due, at it something is.
#[test]
fn wake_at_is_exact() {
    for_all(1_000, plays(100), |play| {
        perform(&play, |_, _, _, after| {
            let Some(session) = after.as_ref().filter(|session| session.errands.is_empty()) else {
                return Ok(());
            };
            match session.wake_at() {
                Some(Timestamp(due)) => {
                    prop_assert_eq!(tick(after, Timestamp(due - 1)).0, []);
                    prop_assert!(!tick(after, Timestamp(due)).0.is_empty());
                }
                None => prop_assert_eq!(tick(after, Timestamp(u64::MAX)).0, []),
            }
            Ok(())
        })?;
        Ok(())
    });
}

// (l) A session may be kept at any point and read back: it is equal, and goes on as if it had never left.
#[test]
fn a_session_that_was_kept_and_read_back_goes_on_the_same() {
    for_all(1_000, plays(100), |play| {
        let limits = play.limits();
        let mut kept: Option<Session> = None;
        perform(&play, |before, (command, now), live, after| {
            let bytes = postcard::to_allocvec(&kept).expect("a session can be kept");
            kept = postcard::from_bytes(&bytes).expect("it was kept a moment ago");
            prop_assert_eq!(&kept, before);
            prop_assert_eq!(&step(&mut kept, &session_id(), command, &limits, *now), live);
            prop_assert_eq!(&kept, after);
            Ok(())
        })?;
        Ok(())
    });
}

// A test that never reaches a state proves nothing about it.
#[test]
fn the_plays_produce_every_kind_of_fact() {
    let produced = RefCell::new(BTreeMap::<&str, u32>::new());
    for_all(1_000, plays(100), |play| {
        perform(&play, |_, _, step, _| {
            for event in &step.events {
                *produced.borrow_mut().entry(kind(&event.fact)).or_default() += 1;
            }
            Ok(())
        })?;
        Ok(())
    });
    let produced = produced.borrow();
    let rare: Vec<_> = KINDS.iter().filter(|kind| produced.get(*kind).copied().unwrap_or(0) < 10).collect();
    assert!(rare.is_empty(), "too few of {rare:?} in {produced:?}");
}
