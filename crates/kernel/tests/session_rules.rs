//! What holds for every session, whatever it is about: lifecycle, time, order, duplicates, limits.

mod stage;

use std::sync::Arc;

use handover_kernel::charter::{Liveness, OnSilence};
use handover_kernel::command::{
    Answer, Contract, HandoffAct, ModeKind, Need, Reply, Request, Start, TaskAct,
};
use handover_kernel::commitment::Commitment;
use handover_kernel::event::{ExpiryCause, Fact};
use handover_kernel::session::{Lifecycle, Standing, Unreadable, replay};
use handover_kernel::{Act, Author, Charter, Command, Event, Face, Seq, Text, Timestamp, Trace};
use stage::acts::*;
use stage::{BEGIN, Stage, TTL_MS, agent, start};

const NOTHING: [&str; 0] = [];

fn started(change: impl FnOnce(&mut Start)) -> Stage {
    let mut start = start(ModeKind::Task, Charter::macp());
    change(&mut start);
    Stage::started(start)
}

fn refused(change: impl FnOnce(&mut Start)) -> &'static str {
    let mut start = start(ModeKind::Task, Charter::macp());
    change(&mut start);
    Stage::empty().no("planner", Act::Start(Box::new(start)))
}

mod starting {
    use super::*;

    // RFC-MACP-0001: what a SessionStart binds.
    #[test]
    fn a_start_must_bind_what_the_session_needs() {
        assert_eq!(refused(|start| start.participants.clear()), "INVALID");
        assert_eq!(refused(|start| start.participants.push(agent("worker"))), "INVALID");
        assert_eq!(refused(|start| start.participants.push(agent(""))), "INVALID");
        assert_eq!(refused(|start| start.mode_version = Text::default()), "INVALID");
        assert_eq!(refused(|start| start.configuration_version = Text::from(" ")), "INVALID");
        assert_eq!(refused(|start| start.ttl_ms = Some(0)), "INVALID");
    }

    #[test]
    fn a_time_limit_has_a_limit_and_a_session_without_one_has_none() {
        let day = 24 * 60 * 60 * 1000;
        assert_eq!(refused(|start| start.ttl_ms = Some(day + 1)), "INVALID");
        assert!(started(|start| start.ttl_ms = Some(day)).session().deadline.is_some());
        assert!(started(|start| start.ttl_ms = None).session().deadline.is_none());
    }

    #[test]
    fn what_was_bound_can_be_read_back() {
        let stage = started(|start| {
            start.context_id = Text::from("ctx");
            start.extension_keys = vec![Text::from("x")];
        });
        let binding = &stage.session().binding;
        assert_eq!((binding.id.as_str(), binding.requester.as_str()), ("session-1", "planner"));
        assert_eq!((binding.created_at, binding.base, binding.face), (BEGIN, BEGIN, Face::Macp));
        assert_eq!((&*binding.context_id, &*binding.intent), ("ctx", "a play"));
        assert_eq!(&*binding.versions.policy, "policy.default");
        assert_eq!(*binding.extension_keys, [Text::from("x")]);
    }

    #[test]
    fn a_contract_is_bound_when_a_task_starts_and_weighs_what_its_schemas_do() {
        let contract = |bytes: usize| {
            let (skill, input) = (Text::from("sum"), blob(&" ".repeat(bytes)));
            Some(Arc::new(Contract { skill, input, output: blob("not even JSON") }))
        };
        let bare = started(|_| {});
        assert_eq!(bare.session().binding.contract, None);
        let bound = started(|start| start.contract = contract(1_000));
        assert_eq!(bound.session().binding.contract, contract(1_000));
        assert_eq!(bound.session().log_bytes - bare.session().log_bytes, 3 + 1_000 + 13);
        assert_eq!(refused(|start| start.contract = contract(2_000_000)), "PAYLOAD_TOO_LARGE");
    }

    // RFC-MACP-0001: a second start is refused whatever its message id.
    #[test]
    fn a_session_starts_once() {
        let mut stage = Stage::empty();
        let begin = || Act::Start(Box::new(start(ModeKind::Task, Charter::macp())));
        stage.named("planner", "m1", begin()).unwrap();
        assert_eq!(stage.named("planner", "m1", begin()).unwrap_err().code(), "SESSION_EXISTS");
        assert_eq!(stage.no("outsider", begin()), "SESSION_EXISTS");
    }

    // On the other faces a start under the same id by the same agent is a retry.
    #[test]
    fn a_retried_start_is_a_duplicate_where_the_protocol_allows_it() {
        for face in [Face::Mcp, Face::Grid, Face::Console, Face::Cli] {
            let mut stage = Stage { face, ..Stage::empty() };
            let begin = || Act::Start(Box::new(start(ModeKind::Task, Charter::mcp())));
            let first = stage.named("planner", "m1", begin()).unwrap();
            let second = stage.wait(5).named("planner", "m1", begin()).unwrap();
            assert_eq!((second.seq, second.at, second.duplicate), (first.seq, first.at, true));
            assert_eq!(stage.named("planner", "m2", begin()).unwrap_err().code(), "SESSION_EXISTS");
            assert_eq!(stage.named("outsider", "m1", begin()).unwrap_err().code(), "SESSION_EXISTS");
            assert_eq!(stage.no("planner", begin()), "SESSION_EXISTS");
        }
    }

    // No decision rests on the face: the command says where its id counts, and what a second start means.
    #[test]
    fn the_same_rules_hold_on_every_face() {
        for face in [Face::Macp, Face::Mcp, Face::Grid, Face::Console, Face::Cli] {
            let mut stage = Stage::empty();
            let begin = Act::Start(Box::new(start(ModeKind::Task, Charter::macp())));
            let own = |act: &Act| Command::by(&agent("planner"), face, act.clone()).with_id("m1");
            stage.put(&own(&begin)).answer.unwrap();
            assert!(stage.put(&own(&begin)).answer.unwrap().duplicate);
            let again = stage.put(&own(&begin).in_session_scope()).answer;
            assert_eq!(again.unwrap_err().code(), "SESSION_EXISTS");
            let shared = own(&request(None)).in_session_scope();
            assert!(!stage.put(&shared).answer.unwrap().duplicate);
            assert!(stage.put(&shared).answer.unwrap().duplicate);
        }
    }

    #[test]
    fn before_the_start_there_is_nothing() {
        assert_eq!(Stage::empty().no("planner", cancel()), "SESSION_NOT_FOUND");
        assert_eq!(Stage::empty().runtime(Act::Tick).answer.unwrap_err().code(), "SESSION_NOT_FOUND");
    }

    #[test]
    fn the_runtime_starts_no_session() {
        let begin = Act::Start(Box::new(start(ModeKind::Task, Charter::macp())));
        assert_eq!(Stage::empty().runtime(begin).answer.unwrap_err().code(), "INVALID");
    }
}

mod deadline {
    use super::*;

    // RFC-MACP-0001: expired means later than the deadline.
    #[test]
    fn a_session_expires_after_its_deadline_and_not_at_it() {
        let mut stage = Stage::working(Charter::macp());
        assert_eq!(stage.wait(TTL_MS).tick(), NOTHING);
        stage.ok("worker", update("just in time"));
        assert_eq!(stage.wait(1).tick(), ["Expired"]);
        assert_eq!(stage.session().lifecycle, Lifecycle::Expired { cause: ExpiryCause::Deadline });
        assert_eq!(stage.last().author, Author::Runtime);
    }

    // RFC-MACP-0003: the base is the earlier of the sender's time and the acceptance.
    #[test]
    fn time_counts_from_when_the_start_was_sent() {
        let stage = started(|start| start.sent_at = Some(Timestamp(BEGIN.0 - 60_000)));
        assert_eq!(stage.session().binding.base, Timestamp(BEGIN.0 - 60_000));
        assert_eq!(stage.session().deadline, Some(Timestamp(BEGIN.0 - 60_000 + TTL_MS)));
    }

    // RFC-MACP-0003: a client's clock can neither stretch nor erase a time limit.
    #[test]
    fn time_counts_from_acceptance_if_the_senders_clock_cannot_be_right() {
        for sent in [BEGIN.0 - 60_001, BEGIN.0 + 1, 0, u64::MAX] {
            let stage = started(|start| start.sent_at = Some(Timestamp(sent)));
            assert_eq!(stage.session().deadline, Some(BEGIN.plus(TTL_MS)), "sent at {sent}");
        }
        let now = started(|start| start.sent_at = Some(BEGIN));
        assert_eq!(now.session().deadline, Some(BEGIN.plus(TTL_MS)));
    }

    #[test]
    fn the_base_is_stored_with_the_start() {
        let stage = started(|start| start.sent_at = Some(Timestamp(BEGIN.0 - 10)));
        let Fact::Started(begun) = &stage.log[0].fact else { panic!("the first event is the start") };
        assert_eq!(begun.base, Timestamp(BEGIN.0 - 10));
        assert_eq!(stage.log[0].at, BEGIN);
    }

    #[test]
    fn a_session_without_time_to_live_never_expires() {
        let mut stage = started(|start| start.ttl_ms = None);
        assert_eq!(stage.session().wake_at(), None);
        assert_eq!(stage.wait(u64::MAX / 2).tick(), NOTHING);
    }

    #[test]
    fn the_longest_time_to_live_does_not_overflow() {
        let mut stage = Stage::empty();
        stage.limits.ttl_ms_max = u64::MAX;
        let longest = Start { ttl_ms: Some(u64::MAX), ..start(ModeKind::Task, Charter::macp()) };
        stage.ok("planner", Act::Start(Box::new(longest)));
        stage.ok("planner", pause());
        stage.wait(5).ok("planner", resume());
        assert_eq!(stage.session().standing(), Standing::Pending);
    }
}

mod suspension {
    use super::*;

    fn banked(stage: &Stage) -> Option<u64> {
        let (Fact::Suspended { banked_ms, .. } | Fact::Resumed { banked_ms, .. }) = &stage.last().fact else {
            panic!("neither suspended nor resumed: {:?}", stage.last());
        };
        *banked_ms
    }

    // RFC-MACP-0001: suspension banks the rest, resume sets deadline = now + banked.
    #[test]
    fn suspension_banks_the_time_that_is_left() {
        let mut stage = Stage::working(Charter::macp());
        stage.wait(TTL_MS - 10).ok("planner", pause());
        assert_eq!(banked(&stage), Some(10));
        assert_eq!(stage.wait(TTL_MS).tick(), NOTHING);
        stage.ok("planner", resume());
        assert_eq!(banked(&stage), Some(10));
        assert_eq!(stage.session().deadline, Some(stage.now.plus(10)));
        assert_eq!(stage.wait(11).tick(), ["Expired"]);
    }

    #[test]
    fn a_session_without_deadline_banks_nothing() {
        let mut stage = started(|start| start.ttl_ms = None);
        stage.ok("planner", pause());
        assert_eq!(banked(&stage), None);
        stage.wait(7).ok("planner", resume());
        assert_eq!((banked(&stage), stage.session().deadline), (None, None));
    }

    // RFC-MACP-0001: total suspension beyond the cap expires the session.
    #[test]
    fn total_suspension_beyond_the_cap_expires_the_session() {
        let mut stage = Stage::task(Charter { suspension_cap_ms: 1_000, ..Charter::macp() });
        stage.ok("planner", pause());
        stage.wait(600).ok("planner", resume());
        assert_eq!(stage.session().suspended_ms, 600);
        stage.wait(50).ok("planner", pause());
        assert_eq!(stage.session().wake_at(), Some(stage.now.plus(401)));
        assert_eq!(stage.wait(400).tick(), NOTHING);
        assert_eq!(stage.wait(1).tick(), ["Expired"]);
        assert_eq!(stage.session().lifecycle, Lifecycle::Expired { cause: ExpiryCause::SuspensionCap });
    }

    #[test]
    fn a_resume_at_the_cap_is_in_time_and_one_later_is_not() {
        let charter = || Charter { suspension_cap_ms: 1_000, ..Charter::macp() };
        let mut in_time = Stage::task(charter());
        in_time.ok("planner", pause());
        in_time.wait(1_000).ok("planner", resume());
        let mut late = Stage::task(charter());
        late.ok("planner", pause());
        assert_eq!(late.wait(1_001).no("planner", resume()), "SESSION_ENDED");
        assert_eq!(late.story(), ["Suspended", "Expired"]);
    }

    #[test]
    fn a_suspended_session_says_why_and_when_its_time_is_up() {
        let mut stage = Stage::task(Charter { suspension_cap_ms: 1_000, ..Charter::macp() });
        let deadline = stage.session().deadline;
        assert_eq!(stage.session().ends_by(), deadline);
        stage.ok("planner", pause());
        let Lifecycle::Suspended { reason, .. } = &stage.session().lifecycle else {
            panic!("expected a suspended session")
        };
        assert_eq!(&**reason, "wait");
        assert_eq!(stage.session().ends_by(), Some(stage.now.plus(1_000)));
        stage.wait(600).ok("planner", resume());
        assert_eq!(stage.session().ends_by(), deadline.map(|at| at.plus(600)));
        // What was used of the cap is gone; to the millisecond it is as it was said.
        stage.ok("planner", pause());
        let ends_by = stage.session().ends_by().unwrap();
        assert_eq!(ends_by, stage.now.plus(400));
        assert_eq!(stage.wait(401).tick(), ["Expired"]);
        assert_eq!(stage.session().ended_at, Some(ends_by.plus(1)));
    }

    // RFC-MACP-0001: the initiator, or the runtime itself.
    #[test]
    fn only_the_requester_and_the_runtime_suspend_and_resume() {
        let mut stage = Stage::working(Charter::macp());
        assert_eq!(stage.no("worker", pause()), "NOT_REQUESTER");
        assert_eq!(stage.no("outsider", pause()), "NOT_PARTICIPANT");
        assert!(stage.runtime(pause()).answer.is_ok());
        assert_eq!(stage.no("worker", resume()), "NOT_REQUESTER");
        assert!(stage.runtime(resume()).answer.is_ok());
    }

    #[test]
    fn suspending_twice_and_resuming_what_is_open_are_refused() {
        let mut stage = Stage::working(Charter::macp());
        assert_eq!(stage.no("planner", resume()), "NOT_PAUSED");
        stage.ok("planner", pause());
        assert_eq!(stage.no("planner", pause()), "ALREADY_PAUSED");
        stage.ok("planner", resume());
        assert_eq!(stage.no("planner", resume()), "NOT_PAUSED");
    }

    // The complete list of what a suspended session takes.
    #[test]
    fn a_suspended_session_takes_these() {
        let mut open = Stage::waiting(Charter::grid());
        open.ok("planner", message("hello"));
        open.ok("worker", ask("q2"));
        open.ok("planner", pause());
        for (who, act) in [
            ("planner", resume()),
            ("planner", cancel()),
            ("worker", cancel()),
            ("planner", steer("left")),
            ("planner", message("one more thing")),
            ("planner", answer("q2")),
            ("worker", read_all()),
            ("planner", read_all()),
            ("worker", acknowledge()),
            ("worker", set_key("k")),
            ("planner", set_key("k")),
        ] {
            open.clone().ok(who, act);
        }
        for act in [add_child("child"), can_have_child("worker"), Act::Tick] {
            assert!(open.clone().runtime(act).answer.is_ok());
        }
    }

    // The complete list of what a suspended session refuses.
    #[test]
    fn a_suspended_session_refuses_these() {
        let mut working = Stage::working(Charter { ends_pause: false, ..Charter::mcp() });
        working.ok("planner", steer("left"));
        assert!(working.runtime(pause()).answer.is_ok());
        working.ok("worker", checkpoint());
        for (who, act) in [
            ("worker", update("so far")),
            ("worker", ask("q2")),
            ("worker", checkpoint()),
            ("worker", message("hello")),
            ("worker", complete("page")),
            ("worker", fail("E1")),
            ("worker", decline()),
            ("helper", accept()),
            ("worker", deliver(4)),
            ("planner", request(None)),
            ("planner", commit_success()),
        ] {
            assert_eq!(working.no(who, act), "SESSION_SUSPENDED");
        }
        assert_eq!(working.no("planner", answers(&["q"], false, true)), "SESSION_SUSPENDED");
        assert_eq!(working.runtime(hand_on("helper")).answer.unwrap_err().code(), "SESSION_SUSPENDED");
    }

    #[test]
    fn nothing_is_handed_over_while_suspended() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("planner", pause());
        stage.ok("planner", steer("left"));
        assert_eq!(stage.orders(), NOTHING);
        stage.ok("planner", resume());
        assert_eq!(stage.orders(), ["steer left"]);
    }
}

mod cancelling {
    use super::*;

    // RFC-MACP-0001: open and suspended sessions may be cancelled.
    #[test]
    fn a_session_is_cancelled_whether_open_or_suspended() {
        let mut open = Stage::working(Charter::macp());
        open.ok("planner", cancel());
        let by = Author::Agent(agent("planner"));
        let reason = Text::from("not needed any more");
        assert_eq!(open.session().lifecycle, Lifecycle::Cancelled { by, reason });
        let mut suspended = Stage::working(Charter::macp());
        suspended.ok("planner", pause());
        suspended.ok("planner", cancel());
        assert_eq!(suspended.standing(), Standing::Cancelled);
    }

    // RFC-MACP-0001: cancelling a terminal session returns its state, without error.
    #[test]
    fn cancelling_what_has_ended_changes_nothing() {
        let mut stage = Stage::working(Charter::macp());
        stage.ok("planner", cancel());
        let receipt = stage.ok("planner", cancel());
        assert_eq!((stage.count("Cancelled"), receipt.duplicate), (1, false));
        let mut resolved = Stage::working(Charter::macp());
        resolved.ok("worker", complete("page"));
        resolved.ok("planner", commit_success());
        resolved.ok("planner", cancel());
        assert_eq!(resolved.standing(), Standing::ResolvedPositive);
    }

    #[test]
    fn only_the_requester_cancels_a_macp_session() {
        let mut stage = Stage::working(Charter::macp());
        assert_eq!(stage.no("worker", cancel()), "NOT_REQUESTER");
        assert_eq!(stage.no("outsider", cancel()), "NOT_PARTICIPANT");
    }
}

mod ended {
    use super::*;

    fn ends() -> [Stage; 3] {
        let mut resolved = Stage::working(Charter::macp());
        resolved.ok("worker", complete("page"));
        resolved.ok("planner", commit_success());
        let mut cancelled = Stage::working(Charter::macp());
        cancelled.ok("planner", cancel());
        let mut expired = Stage::working(Charter::macp());
        expired.wait(TTL_MS + 1).tick();
        [resolved, cancelled, expired]
    }

    // RFC-MACP-0001: the last three states are final.
    #[test]
    fn terminal_is_terminal() {
        for mut stage in ends() {
            let end = stage.session().lifecycle.clone();
            for (who, act) in [
                ("planner", request(None)),
                ("worker", accept()),
                ("worker", decline()),
                ("worker", update("so far")),
                ("worker", ask("q2")),
                ("worker", checkpoint()),
                ("worker", complete("page")),
                ("worker", fail("E1")),
                ("worker", message("hello")),
                ("planner", message("hello")),
                ("planner", answer("q")),
                ("planner", steer("left")),
                ("planner", pause()),
                ("planner", resume()),
                ("planner", commit_success()),
                ("worker", acknowledge()),
                ("worker", set_key("k")),
                ("worker", deliver(1)),
            ] {
                assert_eq!(stage.no(who, act), "SESSION_ENDED");
            }
            for act in [hand_on("helper"), add_child("child"), can_have_child("worker")] {
                assert_eq!(stage.runtime(act).answer.unwrap_err().code(), "SESSION_ENDED");
            }
            stage.wait(TTL_MS * 100).tick();
            assert_eq!(stage.session().lifecycle, end);
        }
    }

    #[test]
    fn when_it_ended_is_remembered() {
        assert_eq!(Stage::working(Charter::macp()).session().ended_at, None);
        for mut stage in ends() {
            let end = stage.last().at;
            assert_eq!(stage.session().ended_at, Some(end));
            stage.wait(500).ok("worker", read_all());
            assert_eq!(stage.session().ended_at, Some(end));
        }
    }

    #[test]
    fn the_end_can_still_be_read() {
        for mut stage in ends() {
            stage.ok("worker", read_all());
            stage.ok("worker", read_all());
            assert_eq!(stage.count("Read"), 1);
        }
    }
}

mod duplicates {
    use super::*;

    // RFC-MACP-0001: the same message id in the same session has one effect.
    #[test]
    fn a_message_id_has_one_effect() {
        let mut stage = Stage::working(Charter::macp());
        let first = stage.named("worker", "m1", update("so far")).unwrap();
        stage.wait(50).ok("worker", update("further"));
        let second = stage.wait(50).named("worker", "m1", update("so far")).unwrap();
        assert_eq!((second.seq, second.at, second.duplicate), (first.seq, first.at, true));
        assert!(!first.duplicate);
        assert_eq!(stage.count("Updated"), 2);
    }

    // RFC-MACP-0001: a duplicate is one also when its sender or its state would refuse it by now.
    #[test]
    fn a_duplicate_is_found_before_the_state_is_judged() {
        let mut stage = Stage::requested(Charter::macp());
        stage.named("worker", "m1", accept()).unwrap();
        stage.ok("worker", complete("page"));
        stage.ok("planner", commit_success());
        assert!(stage.named("worker", "m1", accept()).unwrap().duplicate);
    }

    // RFC-MACP-0001: a refused envelope leaves no trace, not even in the duplicate table.
    #[test]
    fn a_refused_message_may_be_sent_again_under_its_id() {
        let mut stage = Stage::requested(Charter::macp());
        assert!(stage.named("worker", "m1", update("too early")).is_err());
        stage.ok("worker", accept());
        assert!(!stage.named("worker", "m1", update("so far")).unwrap().duplicate);
    }

    // MACP ids are one space per session, whoever sends.
    #[test]
    fn macp_ids_are_one_space() {
        let mut stage = Stage::task(Charter::macp());
        stage.named("planner", "m1", request(None)).unwrap();
        assert!(stage.named("worker", "m1", accept()).unwrap().duplicate);
        assert_eq!(stage.assignee(), None);
    }

    // Ids from other faces are scoped by face and agent.
    #[test]
    fn ids_of_other_faces_are_scoped_by_face_and_agent() {
        let mut stage = Stage::working(Charter::grid());
        for face in [Face::Mcp, Face::Grid, Face::Console, Face::Cli] {
            stage.face = face;
            for who in ["planner", "worker"] {
                assert!(!stage.named(who, "m1", message("hello")).unwrap().duplicate);
                assert!(stage.named(who, "m1", message("hello")).unwrap().duplicate);
            }
        }
        assert_eq!(stage.count("Said"), 8);
    }

    #[test]
    fn an_agent_cannot_reach_into_another_agents_ids() {
        let mut start = start(ModeKind::Task, Charter::grid());
        start.participants = vec![agent("a"), agent("a b")];
        let mut stage = Stage { face: Face::Grid, ..Stage::empty() };
        stage.ok("a", Act::Start(Box::new(start)));
        stage.ok("a", request(None));
        stage.ok("a b", accept());
        stage.named("a b", "c", message("hello")).unwrap();
        assert!(!stage.named("a", "b c", message("hello")).unwrap().duplicate);
    }

    #[test]
    fn the_ids_of_the_runtime_are_reserved() {
        let mut stage = Stage::working(Charter::macp());
        for id in ["handover:7", "implicit-accept:h1"] {
            assert_eq!(stage.named("worker", id, update("so far")).unwrap_err().code(), "RESERVED_ID");
        }
        assert_eq!(stage.named("worker", "", update("so far")).unwrap_err().code(), "INVALID");
        let own = Command::runtime(add_child("child")).with_id("handover:errand:x:1");
        assert!(stage.put(&own).answer.is_ok());
        assert!(stage.put(&own).answer.unwrap().duplicate);
    }

    // An act that writes several events is one act: its id is on the one that says what it said.
    #[test]
    fn the_id_is_on_the_event_that_the_act_is_about() {
        let mut stage = Stage::conversation();
        let receipt = stage.named("worker", "m1", message("hello")).unwrap();
        assert_eq!(stage.story(), ["Requested", "Accepted", "Said"]);
        assert_eq!(receipt.seq, stage.the("Said").seq);
        assert_eq!(stage.the("Accepted").id, None);
        assert!(stage.named("worker", "m1", message("hello")).unwrap().duplicate);
    }
}

mod time {
    use super::*;

    #[test]
    fn times_never_go_back() {
        let mut stage = Stage::working(Charter::macp());
        stage.wait(1_000).ok("worker", update("so far"));
        let last = stage.now;
        stage.now = BEGIN;
        let receipt = stage.ok("worker", update("an earlier clock"));
        assert_eq!((receipt.at, stage.last().at), (last, last));
    }

    #[test]
    fn a_suspension_under_an_earlier_clock_banks_no_more_than_there_was() {
        let mut stage = Stage::working(Charter::macp());
        stage.wait(1_000).ok("worker", update("so far"));
        stage.now = BEGIN;
        stage.ok("planner", pause());
        let Fact::Suspended { banked_ms, .. } = &stage.last().fact else { panic!("suspended") };
        assert_eq!(*banked_ms, Some(TTL_MS - 1_000));
    }

    #[test]
    fn ticks_delivered_twice_or_late_are_harmless() {
        let mut on_time = Stage::conversation();
        let mut late = on_time.clone();
        on_time.wait(30_000);
        assert_eq!(on_time.tick(), ["CheckInMissed"]);
        assert_eq!(on_time.tick(), NOTHING);
        late.wait(59_999).tick();
        assert_eq!(on_time.log, late.log);
    }

    #[test]
    fn a_tick_too_early_does_nothing() {
        let mut stage = Stage::working(Charter::macp());
        let receipt = stage.runtime(Act::Tick).answer.unwrap();
        assert_eq!((receipt.seq, receipt.at), (stage.session().head, stage.session().last_at));
        assert_eq!(stage.count("Expired"), 0);
    }

    #[test]
    fn what_is_due_stands_before_the_command_that_came_after_it() {
        let mut stage = Stage::working(Charter::macp());
        assert_eq!(stage.wait(TTL_MS + 5_000).no("worker", complete("page")), "SESSION_ENDED");
        assert_eq!((stage.last().at, stage.count("Expired")), (BEGIN.plus(TTL_MS + 1), 1));
    }

    #[test]
    fn what_is_due_happens_in_the_order_of_its_times() {
        let mut begin = start(ModeKind::Task, Charter::grid());
        begin.ttl_ms = Some(40_000);
        let mut stage = Stage::started(begin);
        stage.ok("planner", request(Some("worker")));
        assert_eq!(stage.wait(90_000).tick(), ["CheckInMissed", "Expired"]);
    }

    #[test]
    fn wake_at_is_the_next_moment_at_which_something_is_due() {
        let mut stage = Stage::conversation();
        assert_eq!(stage.session().wake_at(), Some(BEGIN.plus(30_000)));
        stage.ok("worker", acknowledge());
        assert_eq!(stage.session().wake_at(), None);
        stage.ok("planner", pause());
        assert_eq!(stage.session().wake_at(), Some(BEGIN.plus(24 * 3_600_000 + 1)));
        stage.ok("planner", cancel());
        assert_eq!(stage.session().wake_at(), None);
        assert_eq!(Stage::task(Charter::macp()).session().wake_at(), Some(BEGIN.plus(TTL_MS + 1)));
    }
}

mod limits {
    use super::*;

    #[test]
    fn a_command_carries_so_many_bytes() {
        let mut stage = Stage::working(Charter::macp()).with_limits(|limits| limits.payload_bytes_max = 60);
        let long = "x".repeat(61);
        assert_eq!(stage.no("worker", complete(&long)), "PAYLOAD_TOO_LARGE");
        assert_eq!(stage.no("worker", update(&long)), "PAYLOAD_TOO_LARGE");
        assert_eq!(stage.no("planner", steer(&long)), "PAYLOAD_TOO_LARGE");
        let wire = Command { verbatim: Some(blob(&long)), ..stage.command("worker", update("short")) };
        assert_eq!(stage.put(&wire).answer.unwrap_err().code(), "PAYLOAD_TOO_LARGE");
        stage.ok("planner", steer(&long[..60]));
    }

    // Whatever an act says counts, before anything else about it is looked at.
    #[test]
    fn the_words_of_every_act_are_weighed() {
        let long = "x".repeat(1_000);
        let text = || Text::from(&*long);
        let task = |act| Act::Task(act);
        let reply = Answer { key: "q".into(), reply: Reply::Content(blob(&long)) };
        let mut asked = question(None, Need::Input);
        asked.text = text();
        let acts = [
            Act::cancel(text()),
            Act::Pause { reason: text(), gently: false },
            Act::Resume { reason: text() },
            commit(Commitment { reason: text(), ..outcome("task.completed", true) }),
            task(TaskAct::Request(Box::new(Request { instructions: text(), ..work(None) }))),
            task(TaskAct::Request(Box::new(Request { input: blob(&long), ..work(None) }))),
            task(TaskAct::Accept { task: None, assignee: None, reason: text() }),
            task(TaskAct::Decline { task: None, assignee: None, reason: text() }),
            update(&long),
            ask_all(vec![asked]),
            task(TaskAct::Answer { answers: vec![reply], ignore_unknown: false, refuse_when_paused: false }),
            steer(&long),
            complete(&long),
            fail(&long),
            message(&long),
            set_key(&long),
            offer_of(&long, "h1", "worker"),
            offer_with(&long, "h1", "worker"),
            Act::Handoff(HandoffAct::Context {
                handoff: "h1".into(),
                content_type: Text::default(),
                body: blob(&long),
            }),
            Act::Handoff(HandoffAct::Decline { handoff: "h1".into(), by: None, reason: text() }),
        ];
        let mut stage = Stage::working(Charter::macp()).with_limits(|limits| limits.payload_bytes_max = 999);
        for act in acts {
            assert_eq!(stage.no("planner", act), "PAYLOAD_TOO_LARGE");
        }
        let mut begin = start(ModeKind::Task, Charter::macp());
        begin.intent = text();
        let mut empty = Stage::empty().with_limits(|limits| limits.payload_bytes_max = 999);
        assert_eq!(empty.no("planner", Act::Start(Box::new(begin))), "PAYLOAD_TOO_LARGE");
    }

    #[test]
    fn a_session_has_so_many_participants() {
        let mut stage = Stage::empty().with_limits(|limits| limits.participants_max = 2);
        let begin = Act::Start(Box::new(start(ModeKind::Task, Charter::macp())));
        assert_eq!(stage.no("planner", begin), "TOO_MANY_PARTICIPANTS");
    }

    #[test]
    fn so_many_steers_wait() {
        let mut stage = Stage::working(Charter::mcp()).with_limits(|limits| limits.steers_pending_max = 2);
        stage.ok("planner", steer("one"));
        stage.ok("planner", steer("two"));
        assert_eq!(stage.no("planner", steer("three")), "TOO_MANY_STEERS");
        assert_eq!(stage.taking_orders("worker", checkpoint()).orders.len(), 2);
        stage.ok("planner", steer("three"));
    }

    #[test]
    fn so_many_questions_are_open() {
        let mut stage = Stage::waiting(Charter::mcp()).with_limits(|limits| limits.questions_open_max = 2);
        stage.ok("worker", ask("q2"));
        assert_eq!(stage.no("worker", ask("q3")), "TOO_MANY_QUESTIONS");
        stage.ok("planner", answer("q"));
        stage.ok("worker", ask("q3"));
    }

    #[test]
    fn a_conversation_holds_so_many_messages() {
        let mut stage = Stage::conversation().with_limits(|limits| limits.messages_per_task_max = 2);
        stage.ok("planner", message("two"));
        assert_eq!(stage.no("planner", message("three")), "TOO_MANY_MESSAGES");
        assert_eq!(stage.no("worker", message("three")), "TOO_MANY_MESSAGES");
        assert_eq!(stage.assignee(), None, "a refused message accepts nothing");
    }

    #[test]
    fn a_task_has_so_many_subtasks() {
        let mut stage = Stage::working(Charter::mcp()).with_limits(|limits| limits.children_per_task_max = 1);
        assert!(stage.runtime(add_child("child")).answer.is_ok());
        let refusal = stage.runtime(can_have_child("worker")).answer.unwrap_err();
        assert_eq!(refusal.code(), "TOO_MANY_CHILDREN");
    }

    #[test]
    fn a_handoff_sees_so_many_offers() {
        let mut stage =
            Stage::offered(Charter::macp()).with_limits(|limits| limits.offers_per_handoff_max = 1);
        stage.ok("worker", turn_down("h1"));
        assert_eq!(stage.no("planner", offer("h2", "helper")), "TOO_MANY_OFFERS");
    }

    #[test]
    fn a_log_holds_so_many_events() {
        let mut stage = Stage::working(Charter::mcp()).with_limits(|limits| limits.log_events_max = 4);
        stage.ok("worker", update("four"));
        assert_eq!(stage.no("worker", update("five")), "LOG_FULL");
        assert_eq!(stage.no("planner", steer("left")), "LOG_FULL");
        assert_eq!(stage.no("helper", update("five")), "NOT_ASSIGNEE", "who may not do it hears that first");
        stage.ok("worker", complete("page"));
        assert_eq!(stage.standing(), Standing::ResolvedPositive, "what follows from a report fits as well");
    }

    #[test]
    fn a_log_holds_so_many_bytes() {
        let mut stage = Stage::working(Charter::mcp());
        assert_eq!(stage.session().log_bytes, stage.log.iter().map(Event::weight).sum::<u64>());
        // What every event weighs, and a thousand bytes.
        let room = stage.session().log_bytes + 64 + 1_000;
        stage.limits.log_bytes_max = room;
        let wire = |bytes: usize| Some(blob(&"x".repeat(bytes)));
        let mut long = Command { verbatim: wire(1_001), ..stage.command("worker", update("so far")) };
        let refusal = stage.put(&long).answer.unwrap_err();
        assert_eq!(refusal.code(), "LOG_FULL");
        let expected = format!(
            "the session's log is full: it holds at most {room} bytes; \
             the session can still be cancelled, reported or committed"
        );
        assert_eq!(refusal.to_string(), expected);
        long.verbatim = wire(1_000);
        stage.put(&long).answer.unwrap();
        assert_eq!(stage.no("worker", update("one more")), "LOG_FULL");
    }

    #[test]
    fn a_full_log_takes_what_leads_to_the_end_of_its_session() {
        let full = |stage: Stage| stage.with_limits(|limits| limits.log_events_max = 0);
        let mut steered = Stage::working(Charter::mcp());
        steered.ok("planner", steer("left"));
        steered = full(steered);
        assert_eq!(steered.no("worker", checkpoint()), "LOG_FULL");
        assert_eq!(steered.taking_orders("worker", checkpoint()).orders.len(), 1);
        assert_eq!(steered.no("planner", pause()), "LOG_FULL");
        assert!(steered.runtime(add_child("child")).answer.is_ok());
        steered.ok("worker", fail("E1"));

        let mut paused = Stage::working(Charter::macp());
        paused.ok("planner", pause());
        paused = full(paused);
        paused.ok("planner", resume());
        paused.ok("worker", complete("page"));
        paused.ok("planner", commit_success());

        let mut offered = full(Stage::offered(Charter::macp()));
        assert_eq!(offered.no("planner", context("h1")), "LOG_FULL");
        offered.ok("worker", turn_down("h1"));
        assert_eq!(offered.no("planner", offer("h2", "helper")), "LOG_FULL");
        offered.ok("planner", commit_no_transfer());

        let mut unread = Stage::conversation();
        unread.ok("worker", accept());
        unread.ok("planner", message("are you there?"));
        unread = full(unread);
        assert_eq!(unread.no("worker", message("yes")), "LOG_FULL");
        unread.ok("worker", acknowledge());
        unread.ok("worker", read_all());
        assert_eq!(stage::kinds(&unread.log).split_off(4), ["Acknowledged", "Read"]);

        full(Stage::working(Charter::macp())).ok("planner", cancel());
        let mut late = full(Stage::working(Charter::macp()));
        assert_eq!(late.wait(TTL_MS + 1).tick(), ["Expired"]);
    }

    #[test]
    fn a_full_log_takes_no_checkpoints_for_their_names() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", steer("left"));
        stage.limits.log_events_max = 0;
        let named = |stage: &Stage, id: &str| {
            let checkpoint = Command { takes_orders: true, ..stage.command("worker", checkpoint()) };
            checkpoint.in_session_scope().with_id(id)
        };
        let first = named(&stage, "c1");
        assert_eq!(stage.put(&first).answer.unwrap().orders.len(), 1, "what waits is handed over");
        let second = named(&stage, "c2");
        assert_eq!(stage.put(&second).answer.unwrap_err().code(), "LOG_FULL", "nothing waits any more");
        assert!(stage.put(&first).answer.unwrap().duplicate);
    }

    #[test]
    fn a_full_log_takes_a_delivery_that_is_a_report_and_who_takes_or_turns_down_the_task() {
        let full = |stage: Stage| stage.with_limits(|limits| limits.log_events_max = 0);
        let mut delivered = full(Stage::working(Charter::mcp()));
        assert_eq!(delivered.no("worker", message("half of it")), "LOG_FULL");
        delivered.ok("worker", hand_in("page"));
        assert_eq!(delivered.standing(), Standing::ResolvedPositive);

        let mut talk = Stage::conversation();
        talk.ok("worker", accept());
        talk = full(talk);
        assert_eq!(talk.no("worker", hand_in("page")), "LOG_FULL", "one of many messages");

        full(Stage::requested(Charter::mcp())).ok("worker", accept());
        full(Stage::requested(Charter::mcp())).ok("worker", decline());
    }

    #[test]
    fn a_retry_of_what_a_full_log_holds_is_a_duplicate() {
        let mut stage = Stage::working(Charter::macp());
        stage.named("worker", "m1", update("so far")).unwrap();
        stage.limits.log_events_max = 0;
        assert!(stage.named("worker", "m1", update("so far")).unwrap().duplicate);
    }

    #[test]
    fn a_session_beyond_a_lowered_limit_still_replays() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", steer("one"));
        stage.ok("planner", steer("two"));
        let mut lowered = stage.with_limits(|limits| limits.steers_pending_max = 1);
        assert_eq!(lowered.no("planner", steer("three")), "TOO_MANY_STEERS");
        assert_eq!(lowered.taking_orders("worker", checkpoint()).orders.len(), 2);
    }
}

mod tracing {
    use super::*;

    fn trace(span: &str) -> Option<Box<Trace>> {
        let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span}-01");
        Trace::new(&parent, "vendor=1").map(Box::new)
    }

    #[test]
    fn a_trace_is_kept_with_the_first_event_of_its_command() {
        let mut stage = Stage::conversation();
        let span = trace("00f067aa0ba902b7");
        let said = Command { trace: span.clone(), ..stage.command("worker", message("hello")) };
        let step = stage.put(&said);
        let traces: Vec<_> = step.events.iter().map(|event| event.trace.clone()).collect();
        assert_eq!(traces, [span, None], "the message was accepted by saying something");
    }

    #[test]
    fn what_was_due_before_a_command_is_not_of_its_trace() {
        let mut stage = Stage::conversation();
        stage.ok("worker", accept());
        stage.ok("planner", message("are you there?"));
        stage.wait(handover_kernel::charter::CHECK_IN_DEFAULT_MS);
        let span = trace("00f067aa0ba902b7");
        let said = Command { trace: span.clone(), ..stage.command("worker", message("yes")) };
        let step = stage.put(&said);
        assert_eq!(stage::kinds(&step.events), ["CheckInMissed", "Said"]);
        assert_eq!((&step.events[0].trace, &step.events[1].trace), (&None, &span));
    }

    #[test]
    fn a_retry_in_another_trace_is_the_same_message() {
        let mut stage = Stage::working(Charter::macp());
        let of = |stage: &Stage, span: &str| Command {
            trace: trace(span),
            ..stage.command("worker", update("so far")).with_id("m1")
        };
        let (first, second) = (of(&stage, "00f067aa0ba902b7"), of(&stage, "00f067aa0ba902b8"));
        stage.put(&first).answer.unwrap();
        assert!(stage.put(&second).answer.unwrap().duplicate);
        assert_eq!(stage.last().trace, trace("00f067aa0ba902b7"));
    }
}

mod replaying {
    use super::*;

    #[test]
    fn no_events_tell_of_no_session() {
        assert_eq!(replay(&Stage::empty().id, &[]), Ok(None));
    }

    #[test]
    fn a_log_that_no_session_wrote_is_refused() {
        let stage = Stage::working(Charter::macp());
        let without_start = &stage.log[1..];
        let found = replay(&stage.id, without_start).unwrap_err();
        assert_eq!(found, Unreadable { expected: Seq(1), found: Seq(2), why: "it is out of place" });
        assert_eq!(found.to_string(), "expected event 1, found event 2: it is out of place");

        let with_a_hole: Vec<_> = stage.log.iter().filter(|event| event.seq != Seq(2)).collect();
        assert!(replay(&stage.id, with_a_hole).is_err());

        let mut twice = stage.log.clone();
        twice.push(handover_kernel::Event { seq: Seq(4), ..stage.log[0].clone() });
        assert_eq!(replay(&stage.id, &twice).unwrap_err().why, "the session starts twice");

        let mut by_nobody = stage.log.clone();
        by_nobody[0].author = Author::Runtime;
        assert_eq!(replay(&stage.id, &by_nobody).unwrap_err().why, "no agent has started the session");

        let mut backwards = stage.log.clone();
        backwards[2].at = handover_kernel::Timestamp(backwards[1].at.0 - 1);
        assert_eq!(replay(&stage.id, &backwards).unwrap_err().why, "it is older than the one before it");
    }

    #[test]
    fn the_bytes_of_the_wire_are_kept_verbatim_on_the_event_of_the_act() {
        let mut stage = Stage::conversation();
        let command = Command { verbatim: Some(blob("wire")), ..stage.command("worker", message("hello")) };
        assert!(stage.put(&command).answer.is_ok());
        assert_eq!(stage.the("Said").verbatim, Some(blob("wire")));
        assert_eq!(stage.the("Accepted").verbatim, None);
    }
}

#[test]
fn a_wait_begins_when_the_task_comes_to_it_and_not_with_every_event_of_it() {
    let since = |stage: &Stage| stage.session().stands_since;
    let mut stage = Stage::requested(Charter::mcp());
    let requested = stage.last().at;
    assert_eq!(since(&stage), requested);
    stage.wait(10).ok("planner", steer("deeper"));
    stage.wait(10).ok("helper", decline());
    stage.wait(10).ok("planner", pause());
    stage.wait(10).ok("planner", resume());
    assert_eq!(since(&stage), requested, "others can take it still");
    stage.wait(10).ok("worker", accept());
    assert_eq!(since(&stage), stage.last().at);
    stage.wait(10).ok("worker", ask("q"));
    let asked = stage.last().at;
    stage.wait(10).ok("worker", ask_permission("p"));
    stage.wait(10).ok("planner", answer("q"));
    assert_eq!(since(&stage), asked, "it waits for an answer all the time");
    stage.wait(10).ok("planner", answer("p"));
    stage.wait(10).ok("worker", fail("no"));
    assert_eq!(since(&stage), stage.the("Failed").at);
}

#[test]
fn a_task_that_is_given_back_waits_since_then() {
    let charter = Charter {
        liveness: Some(Box::new(Liveness { window_ms: 1000, then: OnSilence::Free })),
        ..Charter::mcp()
    };
    let mut stage = Stage::working(charter);
    assert!(stage.wait(1000).tick().contains(&"Declined"));
    assert_eq!(stage.standing(), Standing::Requested);
    assert_eq!(stage.session().stands_since, stage.the("Declined").at);
}
