//! Signs of life of an assignee, one test for each rule.

mod stage;

use handover_kernel::Charter;
use handover_kernel::charter::{Liveness, OnSilence};
use handover_kernel::command::Act;
use handover_kernel::conversation::Party;
use handover_kernel::event::Fact;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::task::{NO_ASSIGNEE, SILENT};
use stage::Stage;
use stage::acts::*;

const WINDOW_MS: u64 = 10_000;
const NOTHING: [&str; 0] = [];

fn expecting(then: OnSilence, charter: Charter) -> Charter {
    Charter { liveness: Some(Box::new(Liveness { window_ms: WINDOW_MS, then })), ..charter }
}

/// A task that a worker has in hand.
fn working(then: OnSilence) -> Stage {
    Stage::working(expecting(then, Charter::mcp()))
}

fn is_silent(stage: &Stage) -> bool {
    stage.the_task().signs.silent_since.is_some()
}

#[test]
fn whoever_shows_no_sign_of_life_in_its_window_is_silent_from_its_end_on() {
    let mut stage = working(OnSilence::Nothing);
    assert_eq!(stage.wait(WINDOW_MS - 1).tick(), NOTHING);
    assert!(!is_silent(&stage));
    let from = stage.the("Accepted").at;
    assert_eq!(stage.session().wake_at(), Some(from.plus(WINDOW_MS)));
    assert_eq!(stage.wait(1).tick(), ["FellSilent"]);
    assert_eq!(stage.the_task().signs.silent_since, Some(from));
    // It is written once, however long it lasts, and nobody needs to be woken for it.
    assert_eq!(stage.session().wake_at(), stage.session().deadline.map(|deadline| deadline.plus(1)));
    assert_eq!(stage.wait(10 * WINDOW_MS).tick(), NOTHING);
}

#[test]
fn whatever_the_assignee_does_is_a_sign_and_what_others_do_is_none() {
    for act in [update("on it"), message("hello"), checkpoint(), read_all()] {
        let mut stage = working(OnSilence::Nothing);
        stage.wait(WINDOW_MS - 1).ok("planner", message("how is it going?"));
        stage.ok("worker", act.clone());
        assert_eq!(stage.wait(WINDOW_MS - 1).tick(), NOTHING, "{act:?}");
        assert_eq!(stage.wait(1).tick(), ["FellSilent"], "{act:?}");
        stage.ok("worker", update("I was away"));
        assert!(!is_silent(&stage));
        assert_eq!(stage.wait(WINDOW_MS).tick(), ["FellSilent"], "{act:?}");
    }
    let mut stage = working(OnSilence::Nothing);
    stage.wait(WINDOW_MS - 1).ok("planner", steer("faster"));
    assert_eq!(stage.wait(1).tick(), ["FellSilent"]);
}

#[test]
fn a_sign_that_changes_nothing_else_is_noted_now_and_then() {
    let mut stage = working(OnSilence::Fail);
    for _ in 0..20 {
        stage.wait(WINDOW_MS / 8).ok("worker", checkpoint());
    }
    assert_eq!((stage.standing(), stage.count("Checkpointed")), (Standing::Working, 10));
}

#[test]
fn whoever_waits_for_others_and_a_paused_task_owe_no_sign() {
    let mut stage = working(OnSilence::Fail);
    stage.ok("worker", ask("q"));
    assert_eq!(stage.wait(10 * WINDOW_MS).tick(), NOTHING);
    stage.ok("planner", answer("q"));
    assert_eq!(stage.wait(WINDOW_MS - 1).tick(), NOTHING);
    stage.ok("worker", update("on it"));
    stage.ok("planner", pause());
    stage.ok("worker", checkpoint());
    assert_eq!(stage.standing(), Standing::Suspended);
    assert_eq!(stage.wait(5 * WINDOW_MS).tick(), NOTHING);
    stage.ok("planner", resume());
    assert_eq!(stage.wait(WINDOW_MS - 1).tick(), NOTHING);
    assert_eq!(stage.wait(1).tick(), ["FellSilent", "Failed", "Committed"]);
    let mut stage = Stage::requested(expecting(OnSilence::Fail, Charter::mcp()));
    assert_eq!(stage.wait(10 * WINDOW_MS).tick(), NOTHING);
    stage.ok("worker", accept());
    stage.ok("worker", complete("page"));
    assert_eq!(stage.wait(10 * WINDOW_MS).tick(), NOTHING);
}

#[test]
fn the_requester_is_told_where_the_charter_says_so() {
    for (then, told) in [(OnSilence::Nothing, false), (OnSilence::Tell, true)] {
        let mut stage = working(then);
        stage.wait(WINDOW_MS).tick();
        let unread = &stage.the_task().conversation.side(Party::Requester).unread;
        assert_eq!(unread.contains(&stage.the("FellSilent").seq), told);
        assert_eq!(stage.standing(), Standing::Working);
    }
}

#[test]
fn a_freed_task_is_for_others_and_what_its_last_assignee_does_is_refused_with_what_happened() {
    let mut stage = working(OnSilence::Free);
    assert_eq!(stage.wait(WINDOW_MS).tick(), ["FellSilent", "Declined"]);
    assert_eq!((stage.standing(), stage.author_of("Declined")), (Standing::Requested, Some("worker")));
    assert!(matches!(&stage.the("Declined").fact, Fact::Declined { reason, .. } if **reason == *SILENT));
    let late: [fn() -> Act; 4] =
        [|| update("done soon"), || complete("page"), || fail("broken"), || ask("q")];
    for act in late {
        assert_eq!(stage.no("worker", act()), "NO_LONGER_ASSIGNEE");
    }
    assert_eq!(stage.no("worker", accept()), "DECLINED");
    stage.ok("helper", accept());
    for act in late {
        assert_eq!(stage.no("worker", act()), "NO_LONGER_ASSIGNEE");
    }
    stage.ok("helper", complete("page"));
    assert_eq!(stage.standing(), Standing::ResolvedPositive);
}

#[test]
fn a_freed_task_that_nobody_else_can_take_ends_as_after_any_decline() {
    let mut stage = working(OnSilence::Free);
    stage.wait(WINDOW_MS).tick();
    stage.ok("helper", accept());
    assert_eq!(stage.wait(WINDOW_MS).tick(), ["FellSilent", "Declined", "Cancelled"]);
    let cancelled = |reason: &str| matches!(&stage.session().lifecycle, Lifecycle::Cancelled { reason: found, .. } if **found == *reason);
    assert!(cancelled(NO_ASSIGNEE));
    let mut stage = Stage::working(expecting(OnSilence::Free, Charter::grid()));
    assert_eq!(stage.wait(WINDOW_MS).tick()[..3], ["FellSilent", "Declined", "Committed"]);
    assert_eq!(stage.standing(), Standing::ResolvedNegative);
}

#[test]
fn a_pause_that_waited_for_a_silent_assignee_takes_effect_when_the_task_is_freed() {
    let mut stage = working(OnSilence::Free);
    stage.ok("planner", pause());
    assert_eq!(stage.wait(WINDOW_MS).tick(), ["FellSilent", "Declined", "Suspended"]);
    stage.ok("planner", resume());
    assert_eq!(stage.standing(), Standing::Requested);
}

#[test]
fn a_silent_assignees_task_fails_where_the_charter_says_so() {
    let mut stage = working(OnSilence::Fail);
    assert_eq!(stage.wait(WINDOW_MS).tick(), ["FellSilent", "Failed", "Committed"]);
    assert_eq!(stage.standing(), Standing::ResolvedNegative);
    assert!(matches!(&stage.the("Failed").fact, Fact::Failed(failure) if *failure.code == *SILENT));
    // Where nothing settles by itself, the requester commits.
    let mut stage = Stage::working(expecting(OnSilence::Fail, Charter::macp()));
    assert_eq!(stage.wait(WINDOW_MS).tick(), ["FellSilent", "Failed"]);
    stage.ok("planner", commit_failure());
}

#[test]
fn a_sign_that_comes_too_late_finds_the_task_gone() {
    let mut stage = working(OnSilence::Free);
    // Nobody woke it: the worker's own message finds that its time was up.
    assert_eq!(stage.wait(WINDOW_MS).no("worker", update("still here")), "NO_LONGER_ASSIGNEE");
    assert_eq!(stage.standing(), Standing::Requested);
}

#[test]
fn whoever_handed_a_task_on_or_gave_it_back_is_told_so() {
    let mut stage = Stage::working(Charter::mcp());
    stage.ok("worker", decline());
    assert_eq!(stage.no("worker", update("after all")), "NO_LONGER_ASSIGNEE");
    let mut stage = Stage::working(Charter::mcp());
    stage.runtime(hand_on("helper"));
    assert_eq!(stage.no("worker", update("after all")), "NO_LONGER_ASSIGNEE");
    assert_eq!(stage.no("planner", update("and I?")), "NOT_ASSIGNEE");
}
