//! Steer, pause, resume and questions, as SEP-2669 has them, one test for each rule.

mod stage;

use handover_kernel::charter::PauseAt;
use handover_kernel::command::{Answer, Need, Reply, TaskAct};
use handover_kernel::event::Fact;
use handover_kernel::session::Standing;
use handover_kernel::{Act, Author, Charter, Face, QuestionKey, Text};
use stage::acts::*;
use stage::{Stage, agent, heard, kinds};

const NOTHING: [&str; 0] = [];

fn ended() -> [Stage; 3] {
    let mut completed = Stage::working(Charter::mcp());
    completed.ok("worker", complete("page"));
    let mut failed = Stage::working(Charter::mcp());
    failed.ok("worker", fail("E1"));
    let mut cancelled = Stage::working(Charter::mcp());
    cancelled.ok("planner", cancel());
    [completed, failed, cancelled]
}

mod steering {
    use super::*;

    // SEP-2669 tasks/steer: acked at once, delivered at the next safe point.
    #[test]
    fn a_steer_waits_for_the_next_safe_point() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", steer("left"));
        assert_eq!(stage.orders(), NOTHING);
        stage.ok("worker", update("so far"));
        assert_eq!(stage.orders(), ["steer left"]);
    }

    // SEP-2669 tasks/steer: delivery order MUST be submission order.
    #[test]
    fn steers_are_delivered_in_the_order_of_their_submission() {
        let mut stage = Stage::working(Charter::mcp());
        for text in ["one", "two", "three"] {
            stage.ok("planner", steer(text));
        }
        let receipt = stage.taking_orders("worker", checkpoint());
        assert_eq!(heard(&receipt.orders), ["steer one", "steer two", "steer three"]);
        assert_eq!(stage.taking_orders("worker", checkpoint()).orders, []);
    }

    // SEP-2669 tasks/steer: not idempotent.
    #[test]
    fn a_steer_sent_twice_is_delivered_twice() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", steer("left"));
        stage.ok("planner", steer("left"));
        let receipt = stage.taking_orders("worker", checkpoint());
        assert_eq!(heard(&receipt.orders), ["steer left", "steer left"]);
    }

    // Ours: a caller that gives its steer a message id sends it once.
    #[test]
    fn a_steer_with_a_message_id_is_taken_once() {
        let mut stage = Stage::working(Charter::mcp());
        stage.named("planner", "m1", steer("left")).unwrap();
        assert!(stage.named("planner", "m1", steer("left")).unwrap().duplicate);
        assert_eq!(stage.count("Steered"), 1);
    }

    // SEP-2669 tasks/steer: accepted while paused, delivered after the resume.
    #[test]
    fn a_steer_to_a_paused_task_is_delivered_after_the_resume() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", pause());
        stage.ok("worker", checkpoint());
        stage.ok("planner", steer("left"));
        assert_eq!(stage.orders(), NOTHING);
        stage.ok("planner", resume());
        assert_eq!(stage.orders(), NOTHING, "the resume is no safe point");
        let receipt = stage.taking_orders("worker", checkpoint());
        assert_eq!(heard(&receipt.orders), ["steer left"]);
    }

    // SEP-2669 tasks/steer: MUST be refused on a completed, failed or cancelled task.
    #[test]
    fn an_ended_task_is_not_steered() {
        for mut stage in ended() {
            assert_eq!(stage.no("planner", steer("left")), "SESSION_ENDED");
        }
        let mut reported = Stage::working(Charter::macp());
        reported.ok("worker", complete("page"));
        assert_eq!(reported.no("planner", steer("left")), "ALREADY_REPORTED");
    }

    // SEP-2669 tasks/steer: a steer never answers a question: two separate channels.
    #[test]
    fn a_steer_never_answers_a_question() {
        for charter in [Charter::mcp(), Charter::grid()] {
            let mut stage = Stage::waiting(charter);
            stage.ok("planner", steer("left"));
            assert_eq!(stage.standing(), Standing::WaitingInput);
            assert_eq!(stage.orders(), ["steer left"]);
        }
    }

    #[test]
    fn only_the_requester_steers_and_says_something() {
        let mut stage = Stage::working(Charter::mcp());
        assert_eq!(stage.no("worker", steer("left")), "NOT_REQUESTER");
        assert_eq!(stage.no("outsider", steer("left")), "NOT_PARTICIPANT");
        assert_eq!(stage.no("planner", steer(" ")), "INVALID");
    }

    #[test]
    fn a_steer_before_anybody_works_is_kept_for_whoever_will() {
        let mut pending = Stage::task(Charter::mcp());
        assert_eq!(pending.no("planner", steer("left")), "NOT_REQUESTED");
        let mut stage = Stage::requested(Charter::mcp());
        stage.ok("planner", steer("left"));
        stage.ok("helper", accept());
        assert_eq!(heard(&stage.taking_orders("helper", checkpoint()).orders), ["steer left"]);
    }
}

mod safe_points {
    use super::*;

    #[test]
    fn updates_questions_and_checkpoints_are_safe_points() {
        for act in [update("so far"), ask("q"), checkpoint()] {
            let mut stage = Stage::working(Charter::mcp());
            stage.ok("planner", steer("left"));
            assert_eq!(heard(&stage.taking_orders("worker", act).orders), ["steer left"]);
        }
    }

    #[test]
    fn all_the_time_that_it_waits_the_assignee_is_at_a_safe_point() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("planner", steer("left"));
        assert_eq!(stage.orders(), ["steer left"]);
        stage.ok("planner", answer("q"));
        assert_eq!(stage.orders(), ["steer left", "answers q"]);
        stage.ok("planner", steer("right"));
        assert_eq!(stage.orders(), ["steer left", "answers q"], "it works again");
    }

    #[test]
    fn an_assignee_that_begins_to_wait_for_a_reply_hears_what_waited() {
        let mut stage = Stage::working(Charter::grid());
        stage.ok("planner", steer("left"));
        stage.ok("worker", hand_in("page"));
        assert_eq!(stage.orders(), ["steer left"]);
        assert_eq!(heard(&stage.taking_orders("worker", hand_in("another")).orders), ["steer left"]);
    }

    #[test]
    fn a_checkpoint_at_which_nothing_waits_is_not_remembered() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("worker", checkpoint());
        assert_eq!(stage.count("Checkpointed"), 0);
        assert_eq!(stage.no("planner", checkpoint()), "NOT_ASSIGNEE");
    }

    // Orders that went out on another wire count as delivered once that wire says so.
    #[test]
    fn orders_are_delivered_when_the_wire_says_so() {
        let mut stage = Stage::working(Charter::macp());
        let first = stage.ok("planner", steer("one")).seq;
        let second = stage.ok("planner", steer("two")).seq;
        assert_eq!(stage.runtime(deliver(first.0)).answer.unwrap_err().code(), "NOT_DELIVERABLE");
        stage.ok("worker", update("so far"));
        let third = stage.ok("planner", steer("three")).seq;
        assert_eq!(stage.runtime(deliver(third.0)).answer.unwrap_err().code(), "NOT_DELIVERABLE");
        assert!(stage.runtime(deliver(first.0)).answer.is_ok());
        assert!(stage.runtime(deliver(first.0)).answer.is_ok(), "again is no error");
        assert_eq!((stage.orders(), stage.count("Delivered")), (vec!["steer two".to_owned()], 1));
        assert_eq!(stage.no("helper", deliver(second.0)), "NOT_ASSIGNEE");
        stage.ok("worker", deliver(second.0));
        assert_eq!(stage.orders(), NOTHING);
    }

    #[test]
    fn an_answer_that_cannot_carry_orders_delivers_none() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", steer("left"));
        assert_eq!(stage.ok("worker", update("so far")).orders, []);
        assert_eq!((stage.orders().len(), stage.count("Delivered")), (1, 0));
    }

    // A reader whose answer carries the orders is at a safe point, once per message id.
    #[test]
    fn a_read_that_takes_the_orders_is_a_safe_point_once() {
        let mut stage = Stage::working(Charter::grid());
        stage.ok("worker", read_all());
        stage.ok("planner", steer("one"));
        let mut command = stage.command("worker", read_all()).with_id("m1");
        command.takes_orders = true;
        let first = stage.put(&command).answer.unwrap();
        assert_eq!(heard(&first.orders), ["steer one"]);
        stage.ok("planner", steer("two"));
        let second = stage.put(&command).answer.unwrap();
        assert!(second.duplicate && second.orders.is_empty());
        assert_eq!((second.seq, second.at), (first.seq, first.at));
    }
}

mod pausing {
    use super::*;

    // SEP-2669 tasks/pause: cooperative, takes effect at the next safe point; until then the status is unchanged.
    #[test]
    fn a_pause_takes_effect_at_the_next_safe_point() {
        for act in [update("so far"), ask("q"), checkpoint()] {
            let mut stage = Stage::working(Charter::mcp());
            stage.ok("planner", pause());
            assert_eq!((stage.standing(), stage.last().ordinal), (Standing::Working, None));
            let receipt = stage.taking_orders("worker", act);
            assert_eq!(heard(&receipt.orders), ["pause wait"]);
            assert_eq!(stage.standing(), Standing::Suspended);
            assert_eq!(stage.last().author, Author::Runtime);
        }
    }

    // SEP-2669 tasks/pause: also when the safe point is that the assignee now waits for a word.
    #[test]
    fn a_pause_takes_effect_when_the_assignee_begins_to_wait_for_a_reply() {
        let mut stage = Stage::working(Charter::grid());
        stage.ok("planner", pause());
        stage.ok("worker", hand_in("page"));
        assert_eq!(stage.standing(), Standing::Suspended);
        stage.ok("planner", resume());
        assert_eq!(stage.standing(), Standing::WaitingReply);
    }

    // SEP-2669 tasks/pause: at once when nobody is working.
    #[test]
    fn a_pause_takes_effect_at_once_when_nobody_works() {
        let stages =
            [Stage::task(Charter::mcp()), Stage::requested(Charter::mcp()), Stage::waiting(Charter::mcp())];
        for mut stage in stages {
            stage.ok("planner", pause());
            assert_eq!(stage.standing(), Standing::Suspended);
        }
    }

    // SEP-2669 tasks/pause: when the one who was to be stopped gives the task back, nobody works.
    #[test]
    fn a_pause_takes_effect_when_the_assignee_leaves() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", pause());
        stage.ok("worker", decline());
        assert_eq!(stage.standing(), Standing::Suspended);
        stage.ok("planner", resume());
        stage.ok("helper", accept());
        assert_eq!(stage.the_task().pause, None);
    }

    // SEP-2669 tasks/pause: from working and input_required only; already paused MUST be refused.
    #[test]
    fn a_paused_or_ended_task_is_not_paused() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("planner", pause());
        assert_eq!(stage.no("planner", pause()), "ALREADY_PAUSED");
        for mut stage in ended() {
            assert_eq!(stage.no("planner", pause()), "SESSION_ENDED");
        }
    }

    // SEP-2669 tasks/pause: if it cannot pause now, the answer is the task as it is.
    #[test]
    fn asking_again_for_a_pause_that_waits_changes_nothing() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", pause());
        stage.ok("planner", pause());
        assert_eq!(stage.count("PauseRequested"), 1);
    }

    // A report voids a pending pause: there is nothing left to stop.
    #[test]
    fn a_report_voids_a_pending_pause() {
        let review = Charter { pause: PauseAt::SafePoint, ..Charter::macp() };
        for act in [complete("page"), fail("E1")] {
            let mut stage = Stage::working(review.clone());
            stage.ok("planner", pause());
            stage.ok("worker", act);
            assert!(stage.session().lifecycle == handover_kernel::session::Lifecycle::Open);
            assert_eq!(
                (stage.the_task().pause.as_ref(), stage.the_task().orders.waiting().count()),
                (None, 0)
            );
        }
    }

    // A MACP suspension is at once, unless asked to wait for the safe point.
    #[test]
    fn a_gentle_pause_waits_even_where_the_charter_would_not() {
        let mut stage = Stage::working(Charter::macp());
        stage.ok("planner", pause_gently());
        assert_eq!(stage.standing(), Standing::Working);
        stage.ok("planner", pause());
        assert_eq!(stage.standing(), Standing::Suspended);
        assert_eq!((stage.the_task().pause.as_ref(), stage.the_task().orders.waiting().count()), (None, 0));
    }

    // SEP-2669: the server MAY pause a task by itself.
    #[test]
    fn the_runtime_may_pause_by_itself() {
        let mut stage = Stage::working(Charter::mcp());
        assert!(stage.runtime(pause()).answer.is_ok());
        assert_eq!((stage.last().author.clone(), stage.last().face), (Author::Runtime, Face::Runtime));
        stage.ok("worker", checkpoint());
        assert_eq!(stage.standing(), Standing::Suspended);
        stage.ok("planner", resume());
    }

    // SEP-2669: a paused task takes no answers from a caller that knows of pauses, and keeps those of others.
    #[test]
    fn an_answer_to_a_paused_task_is_refused_or_kept_as_the_caller_wants() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("planner", pause());
        assert_eq!(stage.no("planner", answers(&["q"], false, true)), "SESSION_SUSPENDED");
        stage.ok("planner", answer("q"));
        assert_eq!(stage.orders(), NOTHING);
        stage.ok("planner", resume());
        assert_eq!((stage.standing(), stage.orders()), (Standing::Working, vec!["answers q".to_owned()]));
    }

    // SEP-2669: paused leads to cancelled, and to failed by a server error.
    #[test]
    fn a_paused_task_can_be_cancelled() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("planner", pause());
        stage.ok("planner", cancel());
        assert_eq!(stage.standing(), Standing::Cancelled);
    }

    // SEP-2669: the server SHOULD clean up paused tasks.
    #[test]
    fn a_paused_task_does_not_live_for_ever() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("planner", pause());
        assert_eq!(stage.wait(24 * 3_600_000).tick(), NOTHING);
        assert_eq!(stage.wait(1).tick(), ["Expired"]);
    }
}

mod resuming {
    use super::*;

    // SEP-2669: paused → failed. MACP has no such way.
    #[test]
    fn a_worker_that_breaks_fails_its_paused_task_and_one_that_held_it_lets_it_go_on() {
        for (charter, allowed) in [(Charter::mcp(), true), (Charter::grid(), true), (Charter::macp(), false)]
        {
            let mut held = Stage::working(charter.clone());
            held.ok("worker", hold());
            let mut paused = Stage::working(charter.clone());
            paused.ok("planner", pause());
            if paused.standing() != Standing::Suspended {
                paused.ok("worker", checkpoint());
            }
            for (stage, is_held) in [(&held, true), (&paused, false)] {
                assert_eq!(stage.standing(), Standing::Suspended);
                assert_eq!(stage.clone().no("worker", complete("page")), "SESSION_SUSPENDED");
                let mut failing = stage.clone();
                let mut resuming = stage.clone();
                if !allowed {
                    assert_eq!(failing.no("worker", fail("E1")), "SESSION_SUSPENDED");
                    assert_eq!(resuming.no("worker", resume()), "NOT_REQUESTER");
                    continue;
                }
                let events = failing.say("worker", fail("E1")).events;
                assert_eq!(kinds(&events), ["Resumed", "Failed", "Committed"]);
                assert_eq!(failing.standing(), Standing::ResolvedNegative);
                match is_held {
                    true => {
                        resuming.ok("worker", resume());
                        assert_eq!(resuming.standing(), Standing::Working);
                    }
                    false => assert_eq!(resuming.no("worker", resume()), "NOT_REQUESTER"),
                }
            }
        }
    }

    // SEP-2669 tasks/resume: only from paused.
    #[test]
    fn only_a_paused_task_is_resumed() {
        let mut stage = Stage::working(Charter::mcp());
        assert_eq!(stage.no("planner", resume()), "NOT_PAUSED");
        stage.ok("planner", pause());
        assert_eq!(stage.no("planner", resume()), "NOT_PAUSED", "the pause has not taken effect");
        for mut stage in ended() {
            assert_eq!(stage.no("planner", resume()), "SESSION_ENDED");
        }
    }

    // SEP-2669 tasks/resume: input_required if input was pending, else working.
    #[test]
    fn after_the_resume_the_task_is_where_it_was() {
        let mut waiting = Stage::waiting(Charter::mcp());
        waiting.ok("planner", pause());
        waiting.ok("planner", resume());
        assert_eq!(waiting.standing(), Standing::WaitingInput);
        let mut working = Stage::working(Charter::mcp());
        working.ok("planner", pause());
        working.ok("worker", checkpoint());
        working.ok("planner", resume());
        assert_eq!(working.standing(), Standing::Working);
    }

    // SEP-2669: questions that were pending are still valid after the resume, with the same keys and meaning.
    #[test]
    fn questions_keep_their_keys_through_a_pause() {
        let mut stage = Stage::waiting(Charter::mcp());
        let before = stage.phase().questions().to_vec();
        stage.ok("planner", pause());
        assert_eq!(stage.phase().questions(), before);
        stage.wait(5).ok("planner", resume());
        assert_eq!(stage.phase().questions(), before);
        stage.ok("planner", answer("q"));
    }

    // SEP-2669: other input comes under new keys.
    #[test]
    fn a_key_is_never_used_twice() {
        let mut stage = Stage::waiting(Charter::mcp());
        assert_eq!(stage.no("worker", ask("q")), "QUESTION_KEY_USED");
        stage.ok("planner", answer("q"));
        assert_eq!(stage.no("worker", ask("q")), "QUESTION_KEY_USED");
        stage.ok("worker", ask("q2"));
        stage.ok("worker", withdraw("never mind"));
        assert_eq!(stage.no("worker", ask("q2")), "QUESTION_KEY_USED");
        stage.ok("worker", decline());
        stage.ok("helper", accept());
        assert_eq!(stage.no("helper", ask("q")), "QUESTION_KEY_USED");
    }
}

mod questions {
    use super::*;

    fn keys(stage: &Stage) -> Vec<&str> {
        stage.phase().questions().iter().map(|question| question.key.as_str()).collect()
    }

    #[test]
    fn only_the_assignee_asks_and_it_asks_something() {
        let mut stage = Stage::working(Charter::mcp());
        assert_eq!(stage.no("planner", ask("q")), "NOT_ASSIGNEE");
        assert_eq!(stage.no("helper", ask("q")), "NOT_ASSIGNEE");
        assert_eq!(stage.no("worker", ask_all(Vec::new())), "INVALID");
        assert_eq!(stage.no("worker", ask("")), "INVALID");
        let twice = vec![question(Some("a"), Need::Input), question(Some("a"), Need::Input)];
        assert_eq!(stage.no("worker", ask_all(twice)), "QUESTION_KEY_USED");
    }

    #[test]
    fn a_question_without_a_key_is_called_after_its_sequence_number() {
        let mut stage = Stage::working(Charter::mcp());
        let three = vec![
            question(None, Need::Input),
            question(Some("mine"), Need::Input),
            question(None, Need::Input),
        ];
        let seq = stage.ok("worker", ask_all(three)).seq;
        assert_eq!(keys(&stage), [format!("q{seq}"), "mine".to_owned(), format!("q{seq}.3")]);
    }

    #[test]
    fn a_question_without_a_key_gets_one_even_if_its_number_is_taken() {
        let mut stage = Stage::working(Charter::mcp());
        let next = stage.session().head.0 + 2;
        stage.ok("worker", ask(&format!("q{next}")));
        stage.ok("worker", ask_unnamed());
        assert_eq!(keys(&stage).len(), 2);
    }

    #[test]
    fn some_or_all_are_answered_and_then_it_works_again() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("worker", ask("q2"));
        stage.ok("planner", answer("q2"));
        assert_eq!((stage.standing(), keys(&stage)), (Standing::WaitingInput, vec!["q"]));
        stage.ok("planner", answer("q"));
        assert_eq!(stage.standing(), Standing::Working);
    }

    #[test]
    fn only_the_requester_answers_and_only_what_is_open() {
        let mut stage = Stage::waiting(Charter::mcp());
        assert_eq!(stage.no("worker", answer("q")), "NOT_REQUESTER");
        assert_eq!(stage.no("planner", answer("other")), "UNKNOWN_QUESTION");
        assert_eq!(stage.no("planner", answers(&["q", "q"], false, false)), "UNKNOWN_QUESTION");
        stage.ok("planner", answers(&["other"], true, false));
        assert_eq!(stage.count("Answered"), 0);
        stage.ok("planner", answers(&["other", "q", "q"], true, false));
        let Fact::Answered { answers } = &stage.last().fact else { panic!("answered") };
        assert_eq!(answers.len(), 1);
    }

    #[test]
    fn a_question_may_be_refused_or_dismissed() {
        for reply in [Reply::Refused, Reply::Dismissed] {
            let mut stage = Stage::waiting(Charter::mcp());
            let answers = vec![Answer { key: QuestionKey::from("q"), reply }];
            let act = TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false };
            stage.ok("planner", Act::Task(act));
            assert_eq!((stage.standing(), stage.orders()), (Standing::Working, vec!["answers q".to_owned()]));
        }
    }

    #[test]
    fn a_request_for_permission_shows_as_such() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("worker", ask_permission("may-i"));
        assert_eq!(stage.standing(), Standing::WaitingAuthorization);
        stage.ok("planner", answer("may-i"));
        assert_eq!(stage.standing(), Standing::WaitingInput);
    }

    #[test]
    fn an_update_withdraws_the_questions_if_it_says_so() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("worker", update("still waiting"));
        assert_eq!(stage.standing(), Standing::WaitingInput);
        stage.ok("worker", withdraw("found it"));
        let Fact::Updated { withdrawn, .. } = &stage.last().fact else { panic!("updated") };
        assert_eq!((stage.standing(), withdrawn.len()), (Standing::Working, 1));
        assert_eq!(stage.no("planner", answer("q")), "UNKNOWN_QUESTION");
    }

    #[test]
    fn a_report_may_come_while_questions_are_open() {
        let mut stage = Stage::waiting(Charter::macp());
        stage.ok("worker", complete("page"));
        assert_eq!(stage.standing(), Standing::ReportedComplete);
        assert_eq!(stage.no("planner", answer("q")), "UNKNOWN_QUESTION");
    }

    // Orders survive a change of the assignee: what nobody heard is for the next one.
    #[test]
    fn what_the_old_assignee_did_not_hear_the_new_one_does() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", steer("left"));
        stage.ok("worker", decline());
        stage.ok("helper", accept());
        assert_eq!(stage.the_task().phase.assignee(), Some(&agent("helper")));
        assert_eq!(heard(&stage.taking_orders("helper", update("hello")).orders), ["steer left"]);
    }

    #[test]
    fn the_wrong_task_is_not_asked_about() {
        let mut stage = Stage::working(Charter::macp());
        let questions = vec![question(None, Need::Input)];
        let task = Some(Text::from("t2"));
        let act = TaskAct::Ask { task, questions, progress: progress("waiting") };
        assert_eq!(stage.no("worker", Act::Task(act)), "WRONG_TASK");
    }
}
