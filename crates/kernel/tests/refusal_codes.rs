//! Every code has a scenario that produces it, or is one of the few that only the engine can say.

mod stage;

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_kernel::approval::{Approvals, Ruling};
use handover_kernel::budget::Budget;
use handover_kernel::command::ModeKind;
use handover_kernel::policy::{Descriptor, Scope};
use handover_kernel::{Act, Charter, Refusal, Seq, Text};
use stage::acts::*;
use stage::{Stage, agent, start};

/// What the engine says: it alone knows of other sessions, of the log, of the registered policies and of its own queues.
const OF_THE_ENGINE: [&str; 4] = ["DUPLICATE_MESSAGE", "POLICY_UNKNOWN", "TOO_MANY_SESSIONS", "BUSY"];

fn one() -> handover_kernel::Limits {
    handover_kernel::Limits {
        payload_bytes_max: 40,
        participants_max: 2,
        ttl_ms_max: 24 * 60 * 60 * 1000,
        steers_pending_max: 0,
        questions_open_max: 0,
        messages_per_task_max: 0,
        children_per_task_max: 0,
        offers_per_handoff_max: 0,
        proposals_max: 1,
        log_events_max: 3,
        log_bytes_max: u64::MAX,
    }
}

fn tight(stage: Stage) -> Stage {
    Stage { limits: one(), ..stage }
}

fn after(mut stage: Stage, acts: &[(&str, Act)]) -> Stage {
    for (who, act) in acts {
        stage.ok(who, act.clone());
    }
    stage
}

/// One scenario for each code: a stage, and who does what there.
fn scenarios() -> Vec<(Stage, &'static str, Act)> {
    let macp = Charter::macp;
    let reported = || after(Stage::working(macp()), &[("worker", complete(""))]);
    let suspended = || after(Stage::working(macp()), &[("planner", pause())]);
    let declined = || after(Stage::offered(macp()), &[("worker", turn_down("h1"))]);
    let accepted = || after(Stage::offered(macp()), &[("worker", take("h1"))]);
    let other_version = handover_kernel::commitment::Commitment {
        mode_version: Text::from("2"),
        ..outcome("task.completed", true)
    };
    let mut output = Stage::working(Charter { require_output: true, ..macp() });
    output.ok("worker", complete(""));
    let begin = || Act::Start(Box::new(start(ModeKind::Task, macp())));
    let approvals = Approvals { opening: vec![agent("lead")], commitment: Vec::new() };
    let guarded = || Charter { approvals: Some(Arc::new(approvals.clone())), ..macp() };
    let proposed = || {
        let mut stage = Stage::task(guarded());
        stage.no("planner", request(None));
        stage
    };
    let decide =
        |seq, words: &str| Act::Decide { proposal: Seq(seq), ruling: Ruling::Rejected(Text::from(words)) };
    let ask = Act::Decide { proposal: Seq(2), ruling: Ruling::ChangesAsked(Text::from("smaller")) };
    let asked = || after(proposed(), &[("lead", ask.clone())]);
    vec![
        (Stage::task(guarded()), "planner", request(None)),
        (asked(), "planner", request(None)),
        (proposed(), "planner", decide(2, "no")),
        (proposed(), "lead", decide(1, "no")),
        (asked(), "lead", decide(2, "no")),
        (proposed().with_limits(|limits| limits.proposals_max = 1), "planner", request(Some("worker"))),
        (Stage::empty(), "planner", pause()),
        (Stage::task(macp()), "planner", begin()),
        (suspended(), "worker", update("so far")),
        (after(Stage::working(macp()), &[("planner", cancel())]), "planner", pause()),
        (Stage::working(macp()), "outsider", pause()),
        (Stage::working(macp()), "worker", pause()),
        (Stage::working(macp()), "helper", update("so far")),
        (after(Stage::working(Charter::mcp()), &[("worker", decline())]), "worker", update("so far")),
        (Stage::requested_of_worker(macp()), "helper", accept()),
        (Stage::offered(macp()), "helper", take("h1")),
        (reported(), "worker", commit_success()),
        (Stage::working(macp()), "planner", add_child("child")),
        (Stage::working(macp()), "planner", steer("")),
        (Stage::working(macp()), "planner", offer("h1", "worker")),
        (Stage::task(macp()), "worker", accept()),
        (Stage::requested(macp()), "planner", request(None)),
        (Stage::working(macp()), "helper", accept_of("t2")),
        (Stage::working(macp()), "worker", accept()),
        (after(Stage::requested(macp()), &[("worker", decline())]), "worker", accept()),
        (Stage::working(macp()), "worker", decline()),
        (output, "planner", commit_success()),
        (reported(), "worker", update("so far")),
        (Stage::working(macp()), "planner", commit_success()),
        (Stage::conversation(), "planner", commit_success()),
        (Stage::requested(macp()), "planner", can_hand_on("planner", "worker")),
        (Stage::waiting(macp()), "worker", stage::acts::ask("q")),
        (Stage::waiting(macp()), "planner", answer("q2")),
        (Stage::working(macp()), "planner", resume()),
        (suspended(), "planner", pause()),
        (Stage::working(macp()), "worker", can_hand_on("worker", "helper")),
        (Stage::working(macp()), "worker", deliver(9)),
        (declined(), "planner", offer("h1", "helper")),
        (Stage::offered(macp()), "worker", take("h2")),
        (Stage::offered(macp()), "planner", offer("h2", "helper")),
        (accepted(), "planner", offer("h2", "helper")),
        (accepted(), "worker", take("h1")),
        (declined(), "planner", offer("h2", "worker")),
        (Stage::offered(macp()), "planner", commit_transfer()),
        (reported(), "planner", commit(other_version)),
        (reported(), "planner", commit(outcome("task.failed", true))),
        (tight(Stage::working(macp())), "worker", complete(&"x".repeat(41))),
        (Stage { limits: one(), ..Stage::empty() }, "planner", begin()),
        (tight(Stage::working(macp())), "planner", steer("left")),
        (tight(Stage::working(macp())), "worker", stage::acts::ask("q")),
        (tight(Stage::working(macp())), "planner", message("hello")),
        (tight(Stage::working(macp())), "planner", can_have_child("planner")),
        (tight(Stage::handoff(macp())), "planner", offer("h1", "worker")),
        (tight(Stage::working(macp())), "worker", update("so far")),
    ]
}

fn accept_of(task: &str) -> Act {
    let task = Some(Text::from(task));
    Act::Task(handover_kernel::command::TaskAct::Accept { task, assignee: None, reason: Text::default() })
}

#[test]
fn every_code_is_produced_by_some_scenario() {
    let mut produced: BTreeSet<&str> =
        scenarios().into_iter().map(|(mut stage, who, act)| stage.no(who, act)).collect();
    // Three codes do not come from an agent's act: from the name of a message, from a budget's root, from a policy.
    let mut stage = Stage::working(Charter::macp());
    produced.insert(stage.named("worker", "handover:1", update("so far")).unwrap_err().code());
    let budget = Some(Arc::new(Budget { tasks: Some(0), ..Budget::default() }));
    let mut stage = Stage::working(Charter { budget, ..Charter::macp() });
    produced.insert(stage.runtime(reserve("child", 1)).answer.unwrap_err().code());
    let rules = Text::from("[]");
    let policy = Descriptor { id: Text::from("p"), scope: Scope::Any, schema_version: 1, rules };
    produced.insert(policy.check().unwrap_err().code());
    let expected: BTreeSet<&str> =
        Refusal::CODES.iter().copied().filter(|code| !OF_THE_ENGINE.contains(code)).collect();
    assert_eq!(produced, expected);
}

#[test]
fn each_scenario_produces_a_code_of_its_own() {
    let codes: Vec<&str> = scenarios().into_iter().map(|(mut stage, who, act)| stage.no(who, act)).collect();
    let distinct: BTreeSet<&str> = codes.iter().copied().collect();
    assert_eq!(distinct.len(), codes.len(), "{codes:?}");
}

#[test]
fn codes_are_distinct_and_messages_say_something() {
    let distinct: BTreeSet<&&str> = Refusal::CODES.iter().collect();
    assert_eq!(distinct.len(), Refusal::CODES.len());
    for (mut stage, who, act) in scenarios() {
        let command = stage.command(who, act);
        let refusal = stage.put(&command).answer.unwrap_err();
        let message = refusal.to_string();
        assert!(!message.is_empty() && !message.ends_with('.'), "{message}");
    }
}
