//! What spans two sessions: handing on a running task, subtasks, and the errands that carry the news.

mod stage;

use handover_kernel::command::{Act, ModeKind};
use handover_kernel::errand::{Errand, Verdict, What};
use handover_kernel::event::Fact;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{Charter, Command, Face, Seq, SessionId};
use stage::acts::*;
use stage::{Stage, agent, start};

/// What the engine does with an errand: the act, under the id that names the errand.
fn carry(errand: &Errand, from: &Stage) -> Command {
    Command::runtime(errand.act(&from.id)).with_id(errand.message_id(&from.id))
}

fn named(id: &str, stage: Stage) -> Stage {
    Stage { id: SessionId::from(id), ..stage }
}

/// A handoff of the task `session-1` to `helper`, accepted and not yet committed.
fn handoff_of_the_task() -> Stage {
    let mut stage = named("handoff-1", Stage::empty());
    stage.ok("planner", Act::Start(Box::new(start(ModeKind::Handoff, Charter::macp()))));
    stage.ok("planner", offer_of("task:session-1", "h1", "helper"));
    stage.ok("helper", take("h1"));
    stage
}

/// A subtask of `session-1`.
fn child() -> Stage {
    let mut begin = start(ModeKind::Task, Charter::mcp());
    begin.parent = Some(SessionId::from("session-1"));
    let mut stage = named("child-1", Stage::empty());
    stage.ok("planner", Act::Start(Box::new(begin)));
    stage
}

mod handing_on {
    use super::*;

    #[test]
    fn a_committed_handoff_owes_the_task_its_new_assignee() {
        let mut handoff = handoff_of_the_task();
        let committed = handoff.ok("planner", commit_transfer()).seq;
        let what = What::HandOn { to: agent("helper"), by: agent("planner") };
        assert_eq!(
            handoff.session().errands,
            [Errand { id: committed, to: SessionId::from("session-1"), what }]
        );
        assert_eq!(handoff.session().wake_at(), Some(handoff.session().last_at), "it survives a restart");
    }

    #[test]
    fn a_failed_handoff_and_one_of_something_else_owe_nothing() {
        let mut failed = handoff_of_the_task();
        failed.ok("planner", commit_no_transfer());
        assert_eq!(failed.session().errands, []);
        let mut other = Stage::offered(Charter::macp());
        other.ok("worker", take("h1"));
        other.ok("planner", commit_transfer());
        assert_eq!((other.session().errands.len(), other.session().wake_at()), (0, None));
    }

    // The old assignee leaves and the new one accepts: valid reassignment in the task's transcript.
    #[test]
    fn the_old_assignee_leaves_and_the_new_one_accepts() {
        let mut handoff = handoff_of_the_task();
        handoff.ok("planner", commit_transfer());
        let errand = handoff.session().errands[0].clone();
        let mut task = Stage::waiting(Charter::mcp());
        let receipt = task.put(&carry(&errand, &handoff)).answer.unwrap();
        assert_eq!(task.story()[3..], ["Declined", "Accepted"]);
        assert_eq!(
            (task.author_of("Declined"), task.author_of("Accepted")),
            (Some("worker"), Some("helper"))
        );
        assert_eq!((task.assignee(), task.standing()), (Some("helper"), Standing::Working));
        let accepted = task.the("Accepted");
        assert_eq!((receipt.seq, accepted.face), (accepted.seq, Face::Runtime));
        let by = |handoff: &Option<SessionId>| *handoff == Some(SessionId::from("handoff-1"));
        assert!(matches!(&accepted.fact, Fact::Accepted { handoff, .. } if by(handoff)));
        assert!(matches!(&task.the("Declined").fact, Fact::Declined { handoff, .. } if by(handoff)));
        assert_eq!(task.session().activity.get(&agent("helper")), None, "the runtime wrote it");
        assert_eq!(task.no("worker", update("so far")), "NO_LONGER_ASSIGNEE");
        task.ok("helper", complete("page"));
    }

    #[test]
    fn carried_out_twice_it_has_one_effect() {
        let mut handoff = handoff_of_the_task();
        handoff.ok("planner", commit_transfer());
        let errand = handoff.session().errands[0].clone();
        let mut task = Stage::working(Charter::mcp());
        let first = task.put(&carry(&errand, &handoff)).answer.unwrap();
        let second = task.wait(5).put(&carry(&errand, &handoff)).answer.unwrap();
        assert_eq!((second.seq, second.at, second.duplicate), (first.seq, first.at, true));
        assert_eq!(task.count("Accepted"), 2);
    }

    // The one who offered had the task when it did. What counts is whether it has it when the handoff takes effect.
    #[test]
    fn who_offered_must_still_have_the_task_or_be_its_requester() {
        let mut handoff = named("handoff-1", Stage::empty());
        handoff.ok("worker", Act::Start(Box::new(start(ModeKind::Handoff, Charter::macp()))));
        handoff.ok("worker", offer_of("task:session-1", "h1", "helper"));
        handoff.ok("helper", take("h1"));
        let mut begin = start(ModeKind::Task, Charter::mcp());
        begin.participants.push(agent("second"));
        let mut task = Stage::started(begin);
        task.ok("planner", request(None));
        task.ok("worker", accept());
        let mut still_its_own = task.clone();
        task.ok("worker", decline());
        task.ok("second", accept());
        handoff.ok("worker", commit_transfer());
        let errand = handoff.session().errands[0].clone();
        let refusal = task.put(&carry(&errand, &handoff)).answer.unwrap_err();
        assert_eq!(refusal.code(), "NOT_ASSIGNEE");
        assert_eq!(task.assignee(), Some("second"));
        assert!(still_its_own.put(&carry(&errand, &handoff)).answer.is_ok());
        assert_eq!(still_its_own.assignee(), Some("helper"));
    }

    #[test]
    fn handing_on_to_the_one_who_has_it_changes_nothing() {
        let mut task = Stage::working(Charter::mcp());
        assert!(task.runtime(hand_on("worker")).answer.is_ok());
        assert_eq!(task.count("Accepted"), 1);
    }

    #[test]
    fn only_the_runtime_hands_on() {
        assert_eq!(Stage::working(Charter::mcp()).no("planner", hand_on("helper")), "NOT_RUNTIME");
    }

    // The target is a participant that has not declined, and the charter allows reassignment, else the offer is refused.
    #[test]
    fn whether_a_task_can_be_handed_on_can_be_asked_before() {
        let may = |stage: &mut Stage, by: &str, to: &str| {
            stage.runtime(can_hand_on(by, to)).answer.err().map(|refusal| refusal.code())
        };
        let mut task = Stage::requested(Charter::mcp());
        assert_eq!(may(&mut task, "planner", "helper"), Some("NOT_RUNNING"));
        task.ok("worker", accept());
        assert_eq!(may(&mut task, "worker", "helper"), None);
        assert_eq!(may(&mut task, "planner", "helper"), None);
        assert_eq!(may(&mut task, "helper", "helper"), Some("NOT_ASSIGNEE"));
        assert_eq!(may(&mut task, "worker", "outsider"), Some("NOT_ELIGIBLE"));
        assert_eq!(may(&mut task, "worker", "planner"), Some("NOT_ELIGIBLE"));
        assert_eq!(task.story(), ["Requested", "Accepted"], "asking changes nothing");

        let mut declined = Stage::requested(Charter::mcp());
        declined.ok("helper", decline());
        declined.ok("worker", accept());
        assert_eq!(may(&mut declined, "worker", "helper"), Some("DECLINED"));

        let mut strict = Stage::working(Charter::macp());
        assert_eq!(may(&mut strict, "worker", "helper"), Some("HAND_ON_DENIED"));

        let mut reported = Stage::working(Charter { reassignment: true, ..Charter::macp() });
        reported.ok("worker", complete("page"));
        assert_eq!(may(&mut reported, "worker", "helper"), Some("ALREADY_REPORTED"));
    }

    // If the task ended meanwhile, that is recorded in the handoff.
    #[test]
    fn what_came_of_it_is_recorded_in_the_handoff() {
        let mut handoff = handoff_of_the_task();
        let committed = handoff.ok("planner", commit_transfer()).seq;
        let mut task = Stage::working(Charter::mcp());
        task.ok("planner", cancel());
        let errand = handoff.session().errands[0].clone();
        let refusal = task.put(&carry(&errand, &handoff)).answer.unwrap_err();
        assert_eq!(refusal.code(), "SESSION_ENDED");
        assert!(handoff.runtime(settle(committed.0, refused(refusal.code()))).answer.is_ok());
        let verdict = refused("SESSION_ENDED");
        assert_eq!(handoff.last().fact, Fact::ErrandSettled { errand: committed, verdict });
        assert_eq!((handoff.session().errands.len(), handoff.session().wake_at()), (0, None));
        assert_eq!(handoff.standing(), Standing::ResolvedPositive, "the outcome stands");
    }

    #[test]
    fn an_errand_is_settled_once_and_by_the_runtime_alone() {
        let mut handoff = handoff_of_the_task();
        let committed = handoff.ok("planner", commit_transfer()).seq;
        assert_eq!(handoff.no("planner", settle(committed.0, Verdict::Done)), "NOT_RUNTIME");
        for _ in 0..2 {
            assert!(handoff.runtime(settle(committed.0, Verdict::Done)).answer.is_ok());
        }
        assert!(handoff.runtime(settle(99, Verdict::Done)).answer.is_ok());
        assert_eq!(handoff.count("ErrandSettled"), 1);
    }

    // A pause that waited for the old assignee waits for the new one.
    #[test]
    fn a_pending_pause_is_for_the_new_assignee_too() {
        let mut task = Stage::working(Charter::mcp());
        task.ok("planner", pause());
        assert!(task.runtime(hand_on("helper")).answer.is_ok());
        assert_eq!(task.standing(), Standing::Working);
        task.ok("helper", checkpoint());
        assert_eq!(task.standing(), Standing::Suspended);
    }
}

mod subtasks {
    use super::*;

    #[test]
    fn a_subtask_makes_itself_known_to_its_parent() {
        let mut child = child();
        let errand = child.session().errands[0].clone();
        assert_eq!(errand, Errand { id: Seq(1), to: SessionId::from("session-1"), what: What::TellParent });
        let mut parent = Stage::working(Charter::mcp());
        assert!(parent.put(&carry(&errand, &child)).answer.is_ok());
        assert!(parent.put(&carry(&errand, &child)).answer.unwrap().duplicate);
        assert!(parent.runtime(add_child("child-1")).answer.is_ok());
        assert_eq!((parent.the_task().children.len(), parent.count("ChildAdded")), (1, 1));
        assert!(child.runtime(settle(1, Verdict::Done)).answer.is_ok());
        assert_eq!(child.session().errands, []);
    }

    #[test]
    fn only_the_runtime_adds_one() {
        assert_eq!(Stage::working(Charter::mcp()).no("planner", add_child("child-1")), "NOT_RUNTIME");
    }

    #[test]
    fn who_may_start_one_can_be_asked_before() {
        let mut parent = Stage::working(Charter::mcp());
        assert!(parent.runtime(can_have_child("worker")).answer.is_ok());
        let refusal = parent.runtime(can_have_child("outsider")).answer.unwrap_err();
        assert_eq!(refusal.code(), "NOT_PARTICIPANT");
        assert!(parent.runtime(can_have_child("planner")).answer.is_ok());
        let mut candidate = Stage::requested(Charter::mcp());
        for (stage, who) in [(&mut parent, "helper"), (&mut candidate, "worker")] {
            let refusal = stage.runtime(can_have_child(who)).answer.unwrap_err();
            assert_eq!(refusal.code(), "NOT_ASSIGNEE", "who could take the task has no part in it yet");
        }
        assert_eq!(parent.count("ChildAdded"), 0);
    }

    #[test]
    fn cancellation_reaches_every_child_and_only_those_that_live() {
        let mut parent = Stage::working(Charter::mcp());
        for child in ["child-1", "child-2"] {
            assert!(parent.runtime(add_child(child)).answer.is_ok());
        }
        parent.ok("planner", cancel());
        let owed: Vec<_> =
            parent.session().errands.iter().map(|errand| errand.to.as_str().to_owned()).collect();
        assert_eq!(owed, ["child-1", "child-2"]);
        let errand = parent.session().errands[0].clone();
        assert_eq!(errand.what, What::CancelChild);

        let mut child = child();
        for _ in 0..2 {
            assert!(child.put(&carry(&errand, &parent)).answer.is_ok());
        }
        let Lifecycle::Cancelled { by, reason } = &child.session().lifecycle else { panic!("cancelled") };
        assert_eq!((by.agent(), &**reason), (None, "parent_cancelled"));
        assert_eq!(child.count("Cancelled"), 1);
        assert!(parent.runtime(settle(errand.id.0, Verdict::Done)).answer.is_ok());
        assert_eq!(parent.session().errands.len(), 1);
    }

    #[test]
    fn cancellation_reaches_the_children_of_children() {
        let mut middle = child();
        assert!(middle.runtime(settle(1, Verdict::Done)).answer.is_ok());
        assert!(middle.runtime(add_child("grandchild")).answer.is_ok());
        let cancelled = Act::cancel("parent_cancelled");
        assert!(middle.runtime(cancelled).answer.is_ok());
        assert_eq!(middle.session().errands[0].to.as_str(), "grandchild");
    }

    #[test]
    fn a_task_that_nobody_takes_takes_its_children_along() {
        let mut parent = Stage::requested_of_worker(Charter { reassignment: false, ..Charter::mcp() });
        assert!(parent.runtime(add_child("child-1")).answer.is_ok());
        parent.ok("worker", decline());
        assert_eq!((parent.standing(), parent.session().errands.len()), (Standing::Cancelled, 1));
    }

    #[test]
    fn an_outcome_leaves_the_children_alone() {
        let mut parent = Stage::working(Charter::mcp());
        assert!(parent.runtime(add_child("child-1")).answer.is_ok());
        parent.ok("worker", complete("page"));
        assert_eq!(parent.session().errands, []);
    }

    // A subtask whose parent had ended before it could make itself known would outlive its parent's end.
    #[test]
    fn a_subtask_of_an_ended_parent_ends() {
        let mut child = child();
        assert!(child.runtime(settle(1, refused("SESSION_ENDED"))).answer.is_ok());
        assert_eq!(child.story(), ["ErrandSettled", "Cancelled"]);
        let Lifecycle::Cancelled { reason, .. } = &child.session().lifecycle else { panic!("cancelled") };
        assert_eq!(&**reason, "parent_ended");
    }

    #[test]
    fn an_ended_subtask_of_an_ended_parent_stays_as_it_ended() {
        let mut child = child();
        child.ok("planner", request(Some("worker")));
        child.ok("worker", accept());
        child.ok("worker", complete("page"));
        assert!(child.runtime(settle(1, refused("SESSION_ENDED"))).answer.is_ok());
        assert_eq!(child.standing(), Standing::ResolvedPositive);
    }

    #[test]
    fn a_session_that_owes_something_is_due_at_once() {
        let mut child = child();
        assert_eq!(child.session().wake_at(), Some(child.session().last_at));
        assert_eq!(child.tick(), [""; 0], "a tick alone settles nothing");
        assert!(child.session().wake_at().is_some());
    }
}

#[test]
fn an_errand_is_named_by_its_session_and_the_event_that_made_it() {
    let errand = Errand { id: Seq(7), to: SessionId::from("x"), what: What::TellParent };
    assert_eq!(errand.message_id(&SessionId::from("abc")), "handover:errand:abc:7");
}
