//! The whole transition table: in every reachable state, what comes of every act by every role.
//!
//! The tables are kept in `snapshots/`, so that a change of behaviour is a diff in review. A line says
//! `charter | state | who: act -> the events | the state after`, or the code of the refusal; a line that would repeat
//! itself for several roles names them all.

mod stage;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use handover_kernel::command::TaskAct;
use handover_kernel::errand::Verdict;
use handover_kernel::session::Lifecycle;
use handover_kernel::{Act, Charter, Command, Session};
use stage::acts::*;
use stage::{Stage, kinds};

/// Who acts, and under which name on the stage; the runtime has none.
type Role = (&'static str, Option<&'static str>);

const TASK_ROLES: [Role; 4] = [
    ("requester", Some("planner")),
    ("assignee", Some("worker")),
    ("other", Some("helper")),
    ("runtime", None),
];

const HANDOFF_ROLES: [Role; 4] =
    [("owner", Some("planner")), ("target", Some("worker")), ("other", Some("helper")), ("runtime", None)];

fn after(mut stage: Stage, acts: &[(&str, Act)]) -> Stage {
    for (who, act) in acts {
        stage.ok(who, act.clone());
    }
    stage
}

fn expired(mut stage: Stage) -> Stage {
    stage.wait(stage::TTL_MS + 1).tick();
    stage
}

/// How far a task has come, under whatever charter.
type Scene = fn(Charter) -> Stage;

/// Every state of a task that this charter lets it reach, by name.
fn task_states(charter: &Charter) -> Vec<(&'static str, Stage)> {
    let with = |scene: Scene, acts: &[(&str, Act)]| after(scene(charter.clone()), acts);
    let (working, waiting): (Scene, Scene) = (Stage::working, Stage::waiting);
    let pausing: &[(&str, Act)] = &[("planner", pause_gently()), ("worker", checkpoint())];
    let mut states = vec![
        ("Pending", with(Stage::task, &[])),
        ("Pending, suspended", with(Stage::task, &[("planner", pause())])),
        ("Requested of anybody", with(Stage::requested, &[])),
        ("Requested of the assignee", with(Stage::requested_of_worker, &[])),
        ("Requested, suspended", with(Stage::requested_of_worker, &[("planner", pause())])),
        ("Working", with(working, &[])),
        (
            "Working, an order waits",
            with(working, &[("planner", steer("left")), ("worker", update("so far"))]),
        ),
        ("Working, a pause waits", with(working, &[("planner", pause_gently())])),
        ("Working, suspended", with(working, pausing)),
        ("Waiting for input", with(waiting, &[])),
        ("Waiting for permission", with(working, &[("worker", ask_permission("q"))])),
        ("Waiting for a reply", with(working, &[("worker", hand_in("page"))])),
        ("Waiting, suspended", with(waiting, &[("planner", pause())])),
        ("Cancelled", with(working, &[("planner", cancel())])),
        ("Expired", expired(with(working, &[]))),
    ];
    let declined = with(Stage::requested_of_worker, &[("worker", decline())]);
    if declined.session().lifecycle == Lifecycle::Open {
        states.push(("Requested, the assignee declined", declined));
    } else {
        states.push(("Declined", declined));
    }
    let given_back = Stage::working(charter.clone()).say("worker", decline()).answer;
    if given_back.is_ok() {
        states.push(("Requested, the assignee gave it back", with(working, &[("worker", decline())])));
    }
    let completed = with(working, &[("worker", complete("page"))]);
    if completed.session().lifecycle == Lifecycle::Open {
        states.push(("Reported complete", completed.clone()));
        states.push(("Reported, suspended", after(completed.clone(), &[("planner", pause())])));
        states.push(("Resolved, success", after(completed, &[("planner", commit_success())])));
    } else {
        states.push(("Resolved, success", completed));
    }
    let failed = with(working, &[("worker", fail("E1"))]);
    if failed.session().lifecycle == Lifecycle::Open {
        states.push(("Reported fail", failed.clone()));
        states.push(("Resolved, failure", after(failed, &[("planner", commit_failure())])));
    } else {
        states.push(("Resolved, failure", failed));
    }
    states
}

/// Every act that can be put to a task. `head` is the last event, for those that refer to one.
fn task_acts(session: &Session) -> Vec<(&'static str, Act)> {
    let order = session.task().and_then(|task| task.orders.waiting().next());
    let last_order = order.map_or(session.head.0, |order| order.seq.0);
    vec![
        ("Request", request(None)),
        ("Accept", accept()),
        ("Decline", decline()),
        ("Update", update("so far")),
        ("Update, withdrawing", withdraw("so far")),
        ("Ask", ask("q9")),
        ("Checkpoint", checkpoint()),
        ("Hold", hold()),
        ("Deliver", deliver(last_order)),
        ("Answer", answer("q")),
        ("Answer, unless paused", answers(&["q"], false, true)),
        ("Steer", steer("right")),
        ("Complete", complete("page")),
        ("Fail", fail("E1")),
        ("Say", message("hello")),
        ("Say and wait", hand_in("page")),
        ("Read", read_all()),
        ("Acknowledge", acknowledge()),
        ("SetKey", set_key("key")),
        ("Pause", pause()),
        ("Pause gently", pause_gently()),
        ("Resume", resume()),
        ("Cancel", cancel()),
        ("Commit success", commit_success()),
        ("Commit failure", commit_failure()),
        ("HandOn to other", hand_on("helper")),
        ("CanHandOn to other", can_hand_on("worker", "helper")),
        ("AddChild", add_child("child")),
        ("Reserve", reserve("child", 1)),
        ("Spend", spend("child", tokens(1))),
        ("CanHaveChild", can_have_child("worker")),
        ("SettleErrand", settle(1, Verdict::Done)),
        ("Tick", Act::Tick),
        ("Offer", offer("h9", "helper")),
    ]
}

fn handoff_states() -> Vec<(&'static str, Stage)> {
    let offered = || Stage::offered(Charter::macp());
    let [accepted, declined] =
        [("worker", take("h1")), ("worker", turn_down("h1"))].map(|act| after(offered(), &[act]));
    vec![
        ("Pending", Stage::handoff(Charter::macp())),
        ("Offered", offered()),
        ("Offered, suspended", after(offered(), &[("planner", pause())])),
        ("Declined", declined.clone()),
        ("Declined, offered to other", after(declined.clone(), &[("planner", offer("h2", "helper"))])),
        ("Accepted", accepted.clone()),
        ("Accepted, suspended", after(accepted.clone(), &[("planner", pause())])),
        ("Resolved, success", after(accepted, &[("planner", commit_transfer())])),
        ("Resolved, failure", after(declined, &[("planner", commit_no_transfer())])),
        ("Cancelled", after(offered(), &[("planner", cancel())])),
        ("Expired", expired(offered())),
    ]
}

fn handoff_acts(_: &Session) -> Vec<(&'static str, Act)> {
    vec![
        ("Offer to target", offer("h9", "worker")),
        ("Offer to other", offer("h9", "helper")),
        ("Offer again", offer("h1", "helper")),
        ("Offer with context", offer_with("the runbook", "h9", "helper")),
        ("Context", context("h1")),
        ("Accept", take("h1")),
        ("Accept the second", take("h2")),
        ("Decline", turn_down("h1")),
        ("Pause", pause()),
        ("Pause gently", pause_gently()),
        ("Resume", resume()),
        ("Cancel", cancel()),
        ("Commit success", commit_transfer()),
        ("Commit failure", commit_no_transfer()),
        ("SettleErrand", settle(1, Verdict::Done)),
        ("Tick", Act::Tick),
        ("Checkpoint of a task", Act::Task(TaskAct::Checkpoint)),
    ]
}

/// Where the session is, the phase under a suspension included.
fn place(session: &Session) -> String {
    match (&session.lifecycle, session.task()) {
        (Lifecycle::Suspended { .. }, Some(task)) => format!("Suspended({})", task.phase.name()),
        (_, _) => format!("{:?}", session.standing()),
    }
}

fn command(stage: &Stage, name: Option<&str>, act: &Act) -> Command {
    match name {
        Some(name) => stage.command(name, act.clone()),
        None => Command::runtime(act.clone()),
    }
}

/// What comes of one act: the events and the place after it, or the code.
fn outcome_of(stage: &Stage, command: &Command) -> String {
    let mut stage = stage.clone();
    let step = stage.put(command);
    match step.answer {
        Err(refusal) => refusal.code().to_owned(),
        Ok(_) if step.events.is_empty() => "nothing to do".to_owned(),
        Ok(_) => format!("{} | {}", kinds(&step.events).join(", "), place(stage.session())),
    }
}

fn table(
    charter: &str,
    states: Vec<(&str, Stage)>,
    acts: fn(&Session) -> Vec<(&'static str, Act)>,
    roles: &[Role],
) -> String {
    let mut lines = String::new();
    for (state, stage) in states {
        for (name, act) in acts(stage.session()) {
            let stranger = outcome_of(&stage, &command(&stage, Some("outsider"), &act));
            assert_eq!(stranger, "NOT_PARTICIPANT", "{state}: a stranger may never {name}");
            let mut outcomes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for (role, agent) in roles {
                let outcome = outcome_of(&stage, &command(&stage, *agent, &act));
                outcomes.entry(outcome).or_default().push(role);
            }
            let mut rows: Vec<_> = outcomes.into_iter().map(|(outcome, who)| (who, outcome)).collect();
            let place = |who: &[&str]| roles.iter().position(|(role, _)| who.first() == Some(role));
            rows.sort_by_key(|(who, _)| place(who));
            for (who, outcome) in rows {
                writeln!(lines, "{charter} | {state} | {}: {name} -> {outcome}", who.join(", "))
                    .expect("a string takes what is written to it");
            }
        }
    }
    lines
}

/// Compare a table with the one that is kept, or keep it if asked to.
fn assert_snapshot(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, found).expect("the snapshot can be written");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept == found {
        return;
    }
    let mut difference = String::new();
    let (old, new): (Vec<&str>, Vec<&str>) = (kept.lines().collect(), found.lines().collect());
    for line in old.iter().filter(|line| !new.contains(line)) {
        writeln!(difference, "- {line}").expect("a string takes what is written to it");
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        writeln!(difference, "+ {line}").expect("a string takes what is written to it");
    }
    panic!(
        "the transitions are not those of tests/snapshots/{name}:\n{difference}\
         if that is what you want: UPDATE_SNAPSHOTS=1 cargo test -p handover-kernel --test transition_table"
    );
}

#[test]
fn the_table_of_a_macp_task() {
    let charter = Charter::macp();
    assert_snapshot("task_macp.txt", &table("macp", task_states(&charter), task_acts, &TASK_ROLES));
}

#[test]
fn the_table_of_a_macp_task_with_reassignment() {
    let charter = Charter { reassignment: true, ..Charter::macp() };
    let table = table("macp with reassignment", task_states(&charter), task_acts, &TASK_ROLES);
    assert_snapshot("task_macp_reassignment.txt", &table);
}

#[test]
fn the_table_of_an_mcp_task() {
    let charter = Charter::mcp();
    assert_snapshot("task_mcp.txt", &table("mcp", task_states(&charter), task_acts, &TASK_ROLES));
}

#[test]
fn the_table_of_a_grid_task() {
    let charter = Charter::grid();
    assert_snapshot("task_grid.txt", &table("grid", task_states(&charter), task_acts, &TASK_ROLES));
}

#[test]
fn the_table_of_a_handoff() {
    assert_snapshot("handoff.txt", &table("handoff", handoff_states(), handoff_acts, &HANDOFF_ROLES));
}
