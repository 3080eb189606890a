//! Bounds that a task shares with everything under it.

mod stage;

use std::sync::Arc;

use handover_kernel::budget::{Amount, Amounts, Budget, DEPTH_MAX, NESTED_MAX, TASKS_MAX, Under};
use handover_kernel::command::{ModeKind, Start};
use handover_kernel::errand::{Verdict, What};
use handover_kernel::event::ExpiryCause;
use handover_kernel::session::Lifecycle;
use handover_kernel::{Act, Charter, Command, Limits, Refusal, SessionId, Text, Timestamp};
use stage::acts::*;
use stage::{BEGIN, Stage, TTL_MS, start};

fn bounded(budget: Budget) -> Charter {
    Charter { budget: Some(Arc::new(budget)), ..Charter::mcp() }
}

fn of_tasks(tasks: u32) -> Budget {
    Budget { tasks: Some(tasks), ..Budget::default() }
}

fn of_tokens(count: u64) -> Budget {
    Budget { numbers: tokens(count), ..Budget::default() }
}

/// A working task under this, with the id.
fn beneath(id: &str, under: Option<Under>, charter: Charter) -> Stage {
    let mut stage = Stage { id: SessionId::from(id), ..Stage::empty() };
    let parent = Some(SessionId::from("parent"));
    let begin = Start { parent, under: under.map(Arc::new), ..start(ModeKind::Task, charter) };
    stage.ok("planner", Act::Start(Box::new(begin)));
    stage.ok("planner", request(Some("worker")));
    stage.ok("worker", accept());
    stage
}

fn using(stage: &mut Stage, used: Amounts, act: Act) -> Result<(), Refusal> {
    let command = Command { used, ..stage.command("worker", act) };
    stage.put(&command).answer.map(|_| ())
}

fn said(step: handover_kernel::Step) -> (&'static str, String) {
    let refusal = step.answer.expect_err("it was refused");
    (refusal.code(), refusal.to_string())
}

mod reserving {
    use super::*;

    #[test]
    fn a_task_is_counted_once_however_often_its_start_is_tried() {
        let mut root = Stage::working(bounded(of_tasks(2)));
        for child in ["a", "a", "b", "a", "b"] {
            assert!(root.runtime(reserve(child, 1)).answer.is_ok(), "{child}");
        }
        assert_eq!((root.count("Reserved"), root.the_task().ledger.reserved.len()), (2, 2));
        let (code, text) = said(root.runtime(reserve("c", 1)));
        assert_eq!(code, "BUDGET_SPENT");
        assert_eq!(text, "the budget has no tasks left: the limit is 2, used are 2");
        assert!(root.runtime(reserve("a", 1)).answer.is_ok(), "what is reserved keeps its place");
    }

    #[test]
    fn a_budget_without_tasks_lets_none_start() {
        let mut root = Stage::working(bounded(of_tasks(0)));
        assert_eq!(said(root.runtime(reserve("a", 1))).0, "BUDGET_SPENT");
        assert_eq!(root.count("Reserved"), 0);
    }

    #[test]
    fn only_the_runtime_reserves_and_only_where_there_is_a_budget() {
        let mut root = Stage::working(bounded(of_tasks(2)));
        assert_eq!(root.no("worker", reserve("a", 1)), "NOT_RUNTIME");
        assert_eq!(root.no("worker", spend("a", tokens(1))), "NOT_RUNTIME");
        let mut other = Stage::working(Charter::mcp());
        assert_eq!(said(other.runtime(reserve("a", 1))).0, "INVALID");
        assert_eq!(said(other.runtime(spend("a", tokens(1)))).0, "INVALID");
    }

    #[test]
    fn nothing_new_is_reserved_at_a_root_that_has_ended_and_a_paused_one_goes_on_counting() {
        let mut root = Stage::working(bounded(of_tasks(2)));
        assert!(root.runtime(reserve("a", 1)).answer.is_ok());
        let mut paused = Stage::requested(bounded(of_tasks(2)));
        paused.ok("planner", pause());
        assert!(paused.runtime(reserve("a", 1)).answer.is_ok());
        root.ok("planner", cancel());
        assert_eq!(said(root.runtime(reserve("b", 1))).0, "BUDGET_SPENT");
        assert!(root.runtime(reserve("a", 1)).answer.is_ok());
    }

    #[test]
    fn a_full_log_takes_no_more() {
        let mut root = Stage::working(bounded(of_tasks(2))).with_limits(|limits| limits.log_events_max = 4);
        assert!(root.runtime(reserve("a", 1)).answer.is_ok());
        assert_eq!(said(root.runtime(reserve("b", 1))).0, "LOG_FULL");
        assert_eq!(said(root.runtime(spend("a", tokens(1)))).0, "LOG_FULL");
        root.ok("worker", complete("page"));
    }
}

mod standing_under {
    use super::*;

    fn under(stage: &Stage) -> Under {
        let under = stage.session().binding.under_it().expect("it is not too deep");
        under.expect("there is a budget")
    }

    #[test]
    fn each_level_knows_its_root_its_depth_and_its_end() {
        let budget = Budget { depth: Some(2), time_ms: Some(5_000), ..of_tasks(9) };
        let root = Stage::working(bounded(budget));
        let first = under(&root);
        let until = Some(BEGIN.plus(5_000));
        let expected =
            Under { root: SessionId::from("session-1"), depth: 1, deepest: Some(2), until, nested: 1 };
        assert_eq!(first, expected);
        let child = beneath("child", Some(first), Charter::mcp());
        assert_eq!(under(&child), Under { depth: 2, ..expected.clone() });
        let grandchild = beneath("grandchild", Some(under(&child)), Charter::grid());
        let refusal = grandchild.session().binding.under_it().expect_err("it is too deep");
        assert_eq!(refusal.code(), "BUDGET_SPENT");
        assert_eq!(refusal.to_string(), "the budget has no depth left: the limit is 2, used are 2");
        assert_eq!(grandchild.session().deadline, until, "its own time to live is longer");
    }

    #[test]
    fn without_a_budget_there_is_nothing_to_stand_under() {
        assert_eq!(Stage::working(Charter::mcp()).session().binding.under_it(), Ok(None));
    }

    #[test]
    fn a_budget_within_another_reaches_neither_deeper_nor_longer() {
        let outer = Stage::working(bounded(Budget { depth: Some(3), time_ms: Some(5_000), ..of_tasks(9) }));
        let inner_budget = Budget { depth: Some(9), time_ms: Some(90_000), ..of_tasks(2) };
        let inner = beneath("inner", Some(under(&outer)), bounded(inner_budget));
        let expected = Under {
            root: SessionId::from("inner"),
            depth: 1,
            deepest: Some(2),
            until: Some(BEGIN.plus(5_000)),
            nested: 2,
        };
        assert_eq!(under(&inner), expected);
        let smaller = Budget { depth: Some(1), time_ms: Some(10), ..Budget::default() };
        let smaller = beneath("smaller", Some(under(&outer)), bounded(smaller));
        assert_eq!((under(&smaller).deepest, under(&smaller).until), (Some(1), Some(BEGIN.plus(10))));
    }

    #[test]
    fn the_time_of_a_budget_ends_a_task_whether_it_works_or_is_paused_and_a_pause_does_not_stretch_it() {
        let budget = || bounded(Budget { time_ms: Some(5_000), ..Budget::default() });
        let mut working = Stage::working(budget());
        assert_eq!(working.session().deadline, Some(BEGIN.plus(5_000)));
        working.wait(5_000).tick();
        assert_eq!(working.session().lifecycle, Lifecycle::Open);
        assert_eq!(working.wait(1).tick(), ["Expired"]);

        let mut paused = Stage::requested(budget());
        paused.ok("planner", pause());
        assert_eq!(paused.session().ends_by(), Some(BEGIN.plus(5_000)));
        let mut resumed = paused.clone();
        resumed.wait(4_000).ok("planner", resume());
        assert_eq!(resumed.session().deadline, Some(BEGIN.plus(5_000)));
        assert_eq!(paused.wait(5_001).tick(), ["Expired"]);
        assert_eq!(paused.session().lifecycle, Lifecycle::Expired { cause: ExpiryCause::Deadline });
    }

    #[test]
    fn a_shorter_time_to_live_stays() {
        let budget = Budget { time_ms: Some(TTL_MS * 2), ..Budget::default() };
        assert_eq!(Stage::working(bounded(budget)).session().deadline, Some(BEGIN.plus(TTL_MS)));
    }
}

mod starting {
    use super::*;

    fn refused(begin: Start) -> (&'static str, String) {
        let mut stage = Stage::empty();
        said(stage.say("planner", Act::Start(Box::new(begin))))
    }

    #[test]
    fn a_budget_has_bounds_and_they_have_bounds() {
        let long = Limits::default().ttl_ms_max + 1;
        for (budget, why) in [
            (Budget::default(), "at least one bound"),
            (of_tasks(TASKS_MAX + 1), "tasks from 0 to 10000, found 10001"),
            (Budget { depth: Some(DEPTH_MAX + 1), ..Budget::default() }, "depth from 0 to 32, found 33"),
            (Budget { time_ms: Some(0), ..Budget::default() }, "the time of a budget"),
            (Budget { time_ms: Some(long), ..Budget::default() }, "the time of a budget"),
        ] {
            let (code, text) = refused(start(ModeKind::Task, bounded(budget)));
            assert_eq!(code, "INVALID");
            assert!(text.contains(why), "{text}");
        }
        assert_eq!(refused(start(ModeKind::Handoff, bounded(of_tasks(1)))).0, "INVALID");
    }

    #[test]
    fn nobody_stands_under_a_budget_without_a_parent_nor_under_too_many() {
        let under =
            |nested| Under { root: SessionId::from("root"), depth: 1, deepest: None, until: None, nested };
        let lonely = Start { under: Some(Arc::new(under(1))), ..start(ModeKind::Task, Charter::mcp()) };
        assert_eq!(refused(lonely).0, "INVALID");
        let parent = Some(SessionId::from("parent"));
        let nested = |nested, charter| Start {
            parent: parent.clone(),
            under: Some(Arc::new(under(nested))),
            ..start(ModeKind::Task, charter)
        };
        let (code, text) = refused(nested(NESTED_MAX, bounded(of_tasks(1))));
        assert_eq!((code, text.contains("one within another, found 9")), ("INVALID", true), "{text}");
        Stage::started(nested(NESTED_MAX, Charter::mcp()));
        Stage::started(nested(NESTED_MAX - 1, bounded(of_tasks(1))));
    }

    #[test]
    fn json_says_a_budget_or_what_is_wrong_with_it() {
        let read = |text: &str| {
            let value: serde_json::Value = serde_json::from_str(text).expect("it is JSON");
            Budget::of_json(value.as_object().expect("it is an object"))
        };
        let numbers = Amounts::new([
            (Text::from("tokens"), Amount(200_000_000_000)),
            (Text::from("cost_usd"), Amount(1_250_000)),
        ]);
        let expected = Budget {
            tasks: Some(3),
            depth: Some(2),
            time_ms: Some(60_000),
            numbers: numbers.expect("they are few"),
        };
        let text = r#"{"tasks":3,"depth":2,"time_ms":60000,"numbers":{"tokens":200000,"cost_usd":1.25}}"#;
        assert_eq!(read(text), Ok(expected));
        for wrong in [
            r#"{"task":1}"#,
            r#"{"tasks":-1}"#,
            r#"{"tasks":"3"}"#,
            r#"{"time_ms":1.5}"#,
            r#"{"numbers":7}"#,
            r#"{"numbers":{"tokens":-1}}"#,
            r#"{"numbers":{"tokens":1e20}}"#,
            r#"{"numbers":{"":1}}"#,
        ] {
            assert_eq!(read(wrong).expect_err(wrong).code(), "INVALID");
        }
    }
}

mod reporting {
    use super::*;

    #[test]
    fn what_is_used_is_added_up_right_after_the_message_that_says_so() {
        let mut root = Stage::working(bounded(of_tokens(10)));
        using(&mut root, tokens(3), update("so far")).unwrap();
        using(&mut root, tokens(4), ask("q")).unwrap();
        using(&mut root, tokens(1), complete("page")).unwrap();
        assert_eq!(root.story()[2..], ["Updated", "Used", "Asked", "Used", "Completed", "Used", "Committed"]);
        let ledger = &root.the_task().ledger;
        assert_eq!((&ledger.used, &ledger.spent), (&tokens(8), &tokens(8)));
    }

    #[test]
    fn a_checkpoint_that_says_only_this_is_written() {
        let mut root = Stage::working(bounded(of_tokens(10)));
        root.ok("worker", checkpoint());
        assert_eq!(root.count("Checkpointed"), 0);
        using(&mut root, tokens(3), checkpoint()).unwrap();
        assert_eq!(root.story()[2..], ["Checkpointed", "Used"]);
    }

    #[test]
    fn only_an_assignee_says_what_it_has_used() {
        let mut root = Stage::working(bounded(of_tokens(10)));
        for (who, act) in [("planner", steer("left")), ("planner", message("hello")), ("worker", decline())] {
            let command = Command { used: tokens(1), ..root.command(who, act) };
            assert_eq!(said(root.put(&command)).0, "INVALID");
        }
        let command = Command { used: tokens(1), ..root.command("helper", update("so far")) };
        assert_eq!(said(root.put(&command)).0, "NOT_ASSIGNEE");
        assert_eq!(root.count("Used"), 0);
    }

    #[test]
    fn the_report_that_exceeds_a_bound_is_kept_and_only_the_last_word_says_more() {
        let mut root = Stage::working(bounded(of_tokens(10)));
        using(&mut root, tokens(10), update("all of it")).unwrap();
        assert!(!root.session().is_overspent());
        assert!(root.runtime(reserve("a", 1)).answer.is_ok());
        using(&mut root, tokens(1), update("one more")).unwrap();
        assert!(root.session().is_overspent());
        assert_eq!(root.story()[root.story().len() - 3..], ["Updated", "Used", "Overspent"]);
        let expected = "the budget has no tokens left: the limit is 10, used are 11";
        let refusal = using(&mut root, tokens(1), update("and one")).unwrap_err();
        assert_eq!((refusal.code(), &*refusal.to_string()), ("BUDGET_SPENT", expected));
        assert_eq!(said(root.runtime(reserve("b", 1))), ("BUDGET_SPENT", expected.to_owned()));
        root.ok("worker", update("without"));
        using(&mut root, tokens(5), complete("page")).unwrap();
        assert_eq!(root.the_task().ledger.spent, tokens(16));
        assert_eq!(root.count("Overspent"), 1);
    }

    #[test]
    fn names_that_no_budget_bounds_are_kept_by_the_task_and_there_are_few_of_them() {
        let mut task = Stage::working(bounded(of_tokens(10)));
        let of = |name: String| Amounts::stored([(Text::from(name), Amount(1))]);
        for number in 0..8 {
            using(&mut task, of(format!("n{number}")), update("so far")).unwrap();
        }
        assert_eq!(using(&mut task, of("n8".to_owned()), update("so far")).unwrap_err().code(), "INVALID");
        assert_eq!(task.the_task().ledger.used.iter().count(), 8);
        assert!(task.the_task().ledger.spent.is_empty());
    }

    #[test]
    fn the_same_report_again_counts_once_and_another_amount_is_another_message() {
        let mut root = Stage::working(bounded(of_tokens(10)));
        let command = |stage: &Stage, count| {
            Command { used: tokens(count), ..stage.command("worker", update("so far")) }.with_id("m1")
        };
        let first = command(&root, 3);
        root.put(&first).answer.unwrap();
        assert!(root.put(&first).answer.unwrap().duplicate);
        assert_eq!(root.the_task().ledger.spent, tokens(3));
        let events = &root.log[root.log.len() - 2..];
        assert!(first.repeats(&root.session().binding, events));
        assert!(!command(&root, 4).repeats(&root.session().binding, events));
        assert!(!command(&root, 0).repeats(&root.session().binding, events));
    }
}

mod telling_the_root {
    use super::*;

    /// Carry what `from` owes to `to`, and what came of it back.
    fn carry(from: &mut Stage, to: &mut Stage) -> Verdict {
        let owed = from.session().errands.iter().find(|errand| matches!(errand.what, What::Spend { .. }));
        let errand = owed.expect("something is owed").clone();
        assert_eq!(errand.to, to.id);
        let command = Command::runtime(errand.act(&from.id)).with_id(errand.message_id(&from.id));
        to.put(&command).answer.expect("it is taken");
        assert!(to.put(&command).answer.expect("it is taken again").duplicate);
        let verdict = errand.verdict(to.session());
        assert!(from.runtime(settle(errand.id.0, verdict.clone())).answer.is_ok());
        verdict
    }

    #[test]
    fn a_report_reaches_every_root_above_and_comes_back_when_there_is_nothing_left() {
        let mut outer = Stage { id: SessionId::from("outer"), ..Stage::empty() };
        outer.ok("planner", Act::Start(Box::new(start(ModeKind::Task, bounded(of_tokens(10))))));
        let under = |stage: &Stage| stage.session().binding.under_it().unwrap();
        let mut inner = beneath("inner", under(&outer), bounded(of_tasks(3)));
        let mut leaf = beneath("leaf", under(&inner), Charter::mcp());

        using(&mut leaf, tokens(11), update("so far")).unwrap();
        assert_eq!(carry(&mut leaf, &mut inner), Verdict::Done);
        assert!(inner.the_task().ledger.spent.is_empty(), "its own budget has no tokens");
        assert!(!leaf.the_task().ledger.spent_above, "inner does not know yet");
        let refused = Verdict::Refused { code: Text::from("BUDGET_SPENT") };
        assert_eq!(carry(&mut inner, &mut outer), refused);
        assert_eq!(outer.the_task().ledger.spent, tokens(11));
        assert!(inner.the_task().ledger.spent_above);

        using(&mut leaf, tokens(1), update("more")).unwrap();
        assert_eq!(carry(&mut leaf, &mut inner), refused);
        let refusal = using(&mut leaf, tokens(1), update("and more")).unwrap_err();
        assert_eq!(refusal.code(), "BUDGET_SPENT");
        leaf.ok("worker", update("without"));
        using(&mut leaf, tokens(1), fail("E1")).unwrap();
    }

    #[test]
    fn what_was_used_counts_when_the_root_has_ended() {
        let mut root = Stage { id: SessionId::from("root"), ..Stage::empty() };
        root.ok("planner", Act::Start(Box::new(start(ModeKind::Task, bounded(of_tokens(10))))));
        let mut leaf = beneath("leaf", root.session().binding.under_it().unwrap(), Charter::mcp());
        root.ok("planner", cancel());
        using(&mut leaf, tokens(4), update("so far")).unwrap();
        assert_eq!(carry(&mut leaf, &mut root), Verdict::Done);
        assert_eq!(root.the_task().ledger.spent, tokens(4));
        assert!(root.session().ended_at < Some(Timestamp(root.now.0 + 1)));
    }
}
