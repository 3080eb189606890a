//! Task conversations between two agents, one test for each rule.

mod stage;

use handover_kernel::command::{Act, CheckInTerms, Command, Need, Next, TaskAct};
use handover_kernel::conversation::{CHECK_INS_MAX, Missed, Party};
use handover_kernel::event::Fact;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::task::{NO_ACK, Phase, REJECTED, Report};
use handover_kernel::{Charter, Face, Seq, Text};
use stage::Stage;
use stage::acts::*;

const WINDOW_MS: u64 = 30_000;
const NOTHING: [&str; 0] = [];

/// A conversation in which the receiver has said hello.
fn talking() -> Stage {
    let mut stage = Stage::conversation();
    stage.ok("worker", message("hello"));
    stage
}

fn unread(stage: &Stage, party: Party) -> Vec<&'static str> {
    let side = stage.the_task().conversation.side(party);
    let named = |seq: &Seq| stage::kind(&stage.log[seq.0 as usize - 1].fact);
    side.unread.iter().map(named).collect()
}

mod states {
    use super::*;

    #[test]
    fn a_sent_task_is_submitted() {
        assert_eq!(Stage::conversation().standing(), Standing::Requested);
    }

    // The receiver's first message or state accepts.
    #[test]
    fn the_receivers_first_act_accepts() {
        for act in
            [message("hello"), hand_in("page"), update("working"), ask("q"), complete("page"), checkpoint()]
        {
            let mut stage = Stage::conversation();
            stage.ok("worker", act);
            assert_eq!((stage.assignee(), stage.story()[1]), (Some("worker"), "Accepted"));
            assert_eq!(stage.author_of("Accepted"), Some("worker"));
        }
    }

    #[test]
    fn reading_and_acknowledging_accept_nothing() {
        let mut stage = Stage::conversation();
        stage.ok("worker", read_all());
        stage.ok("worker", acknowledge());
        stage.ok("worker", set_key("k"));
        assert_eq!(stage.standing(), Standing::Requested);
    }

    // Waiting for more information, or for the review of a delivery.
    #[test]
    fn the_receiver_waits_for_the_senders_word() {
        let mut stage = talking();
        stage.ok("worker", hand_in("page"));
        assert_eq!(stage.standing(), Standing::WaitingReply);
        stage.ok("planner", message("a longer one, please"));
        assert_eq!(stage.standing(), Standing::Working);
        stage.ok("worker", ask_permission("may-i"));
        assert_eq!(stage.standing(), Standing::WaitingAuthorization);
    }

    // The sender's message answers the oldest open question, and that one alone.
    #[test]
    fn the_senders_message_answers_the_oldest_question() {
        let mut stage = talking();
        stage.ok("worker", ask("first"));
        stage.ok("worker", ask("second"));
        stage.ok("planner", message("this"));
        let Fact::Said { answers, .. } = &stage.last().fact else { panic!("said") };
        assert_eq!(answers.as_ref().unwrap().as_str(), "first");
        assert_eq!(stage.phase().questions()[0].key.as_str(), "second");
        stage.ok("planner", message("and that"));
        assert_eq!(stage.standing(), Standing::Working);
    }

    #[test]
    fn an_answer_does_not_end_the_wait_for_a_word() {
        let mut stage = Stage::waiting(Charter::grid());
        stage.ok("worker", hand_in("page so far"));
        stage.ok("planner", answer("q"));
        assert_eq!(stage.standing(), Standing::WaitingReply);
        stage.ok("planner", message("go on"));
        assert_eq!(stage.standing(), Standing::Working);
    }

    // Elsewhere a message is a message.
    #[test]
    fn a_message_answers_nothing_where_the_charter_does_not_say_so() {
        let mut stage = Stage::waiting(Charter::mcp());
        stage.ok("planner", message("this"));
        assert_eq!(
            (stage.standing(), stage.orders()),
            (Standing::WaitingInput, vec!["message this".to_owned()])
        );
    }

    // `completed` is set by the sender only.
    #[test]
    fn only_the_sender_completes() {
        let mut stage = talking();
        assert_eq!(stage.no("worker", commit_success()), "NOT_AUTHORITY");
        stage.ok("worker", hand_in("page"));
        assert_eq!(stage.standing(), Standing::WaitingReply);
        stage.ok("planner", commit_success());
        assert_eq!(stage.standing(), Standing::ResolvedPositive);
    }

    // One decision writes the receiver's completion, its last message being the output, and the commitment.
    #[test]
    fn completing_without_a_report_completes_for_the_receiver() {
        let mut stage = talking();
        stage.ok("worker", hand_in("page"));
        stage.ok("planner", message("thanks"));
        let receipt = stage.ok("planner", commit_success());
        assert_eq!(&stage.story()[stage.story().len() - 2..], ["Completed", "Committed"]);
        let event = stage.the("Completed");
        assert!(matches!(&event.fact, Fact::Completed { output, .. } if **output == *b"page"));
        assert_eq!((stage.author_of("Completed"), event.face), (Some("worker"), Face::Runtime));
        assert_eq!(receipt.seq, stage.the("Committed").seq);
    }

    #[test]
    fn an_accept_without_a_word_completes_with_nothing() {
        let mut stage = Stage::conversation();
        stage.ok("worker", accept());
        stage.ok("planner", commit_success());
        assert!(matches!(&stage.the("Completed").fact, Fact::Completed { output, .. } if output.is_empty()));
    }

    #[test]
    fn what_the_receiver_reported_is_what_is_completed() {
        let mut stage = talking();
        stage.ok("worker", complete("page"));
        assert_eq!(stage.standing(), Standing::ReportedComplete);
        stage.ok("planner", commit_success());
        assert_eq!(stage.count("Completed"), 1);
    }

    #[test]
    fn a_required_output_is_required_here_too() {
        let mut stage = Stage::working(Charter { require_output: true, ..Charter::grid() });
        assert_eq!(stage.no("planner", commit_success()), "OUTPUT_REQUIRED");
        stage.ok("worker", message("page"));
        stage.ok("planner", commit_success());
    }

    // Refused while the receiver has not taken part: cancel instead.
    #[test]
    fn nothing_is_completed_before_the_receiver_takes_part() {
        let mut stage = Stage::conversation();
        stage.ok("worker", acknowledge());
        assert_eq!(stage.no("planner", commit_success()), "NOT_TAKEN_PART");
        assert_eq!(stage.no("planner", commit_failure()), "NOT_REPORTED");
        stage.ok("planner", cancel());
    }

    // `rejected`: set by the receiver, and the end.
    #[test]
    fn a_decline_settles_at_once() {
        let mut stage = Stage::conversation();
        stage.ok("worker", decline());
        assert_eq!(stage.story(), ["Requested", "Declined", "Committed"]);
        assert_eq!(stage.standing(), Standing::ResolvedNegative);
        assert_eq!(stage.author_of("Committed"), Some("planner"));
    }

    #[test]
    fn a_decline_without_a_reason_settles_too() {
        let mut stage = Stage::conversation();
        let act = TaskAct::Decline { task: None, assignee: None, reason: Text::default() };
        stage.ok("worker", Act::Task(act));
        let Fact::Committed(commitment) = &stage.last().fact else { panic!("committed") };
        assert_eq!(&*commitment.reason, "declined");
    }

    // After an accept a rejection is a failure: the face says so.
    #[test]
    fn what_was_accepted_is_turned_down_by_failing_it() {
        let mut stage = talking();
        stage.ok("worker", decline());
        assert_eq!(&stage.story()[3..], ["Failed", "Committed"]);
        let Phase::Reported { report: Report::Fail(failure), .. } = stage.phase() else { panic!("failed") };
        assert_eq!(&*failure.code, REJECTED);
    }

    // The receiver says what it does next.
    #[test]
    fn a_message_can_end_the_wait_for_a_word() {
        let mut stage = talking();
        stage.ok("worker", hand_in("page"));
        stage.ok("worker", message("one more thing"));
        assert_eq!(stage.standing(), Standing::WaitingReply);
        stage.ok("worker", said("I go on", Next::Works, None));
        assert_eq!(stage.standing(), Standing::Working);
    }

    #[test]
    fn asking_is_a_message_where_messages_answer_and_a_question_elsewhere() {
        let asks = |need| Next::Asks { need, text: Text::from("which?"), schema: blob("") };
        let after = |charter, need| {
            let mut stage = Stage::working(charter);
            stage.ok("worker", said("which?", asks(need), None));
            (stage.standing(), stage.phase().questions().len())
        };
        assert_eq!(after(Charter::grid(), Need::Input), (Standing::WaitingReply, 0));
        assert_eq!(after(Charter::grid(), Need::Authorization), (Standing::WaitingAuthorization, 1));
        assert_eq!(after(Charter::mcp(), Need::Input), (Standing::WaitingInput, 1));
        assert_eq!(after(Charter::macp(), Need::Authorization), (Standing::WaitingAuthorization, 1));
    }

    #[test]
    fn a_delivery_is_the_report_where_the_requester_does_not_complete() {
        let after = |charter| {
            let mut stage = Stage::working(charter);
            stage.ok("worker", hand_in("page"));
            stage.standing()
        };
        assert_eq!(after(Charter::grid()), Standing::WaitingReply);
        assert_eq!(after(Charter::macp()), Standing::ReportedComplete);
        assert_eq!(after(Charter::mcp()), Standing::ResolvedPositive);
    }

    #[test]
    fn acting_accepts_on_a_wire_without_a_word_for_it() {
        let mut stage = Stage::requested_of_worker(Charter::mcp());
        assert_eq!(stage.no("worker", hand_in("page")), "NOT_ASSIGNEE");
        let deliver = Command { accepts: true, ..stage.command("worker", hand_in("page")) };
        stage.put(&deliver).answer.unwrap();
        assert_eq!(stage.standing(), Standing::ResolvedPositive);
    }

    // `failed`: set by the receiver, and the end.
    #[test]
    fn a_failure_settles_at_once() {
        let mut stage = talking();
        stage.ok("worker", fail("E1"));
        assert_eq!(stage.standing(), Standing::ResolvedNegative);
        assert_eq!(&stage.story()[3..], ["Failed", "Committed"]);
    }

    // `canceled`: set by either.
    #[test]
    fn either_party_cancels() {
        for who in ["planner", "worker"] {
            let mut submitted = Stage::conversation();
            submitted.ok(who, cancel());
            let mut working = talking();
            working.ok(who, cancel());
            assert!(matches!(working.session().lifecycle, Lifecycle::Cancelled { .. }));
        }
        assert_eq!(talking().no("outsider", cancel()), "NOT_PARTICIPANT");
    }

    // No message can be sent on a terminal task.
    #[test]
    fn nothing_is_said_after_the_end() {
        let mut completed = talking();
        completed.ok("planner", commit_success());
        let mut rejected = Stage::conversation();
        rejected.ok("worker", decline());
        let mut failed = talking();
        failed.ok("worker", fail("E1"));
        let mut cancelled = talking();
        cancelled.ok("worker", cancel());
        for mut stage in [completed, rejected, failed, cancelled] {
            for who in ["planner", "worker"] {
                assert_eq!(stage.no(who, message("one more thing")), "SESSION_ENDED");
            }
            assert_eq!(stage.no("worker", update("working")), "SESSION_ENDED");
        }
    }

    // Once a report is there the sender completes or cancels, and cannot go on.
    #[test]
    fn after_a_report_the_sender_cannot_go_on() {
        let mut stage = talking();
        stage.ok("worker", complete("page"));
        assert_eq!(stage.no("planner", message("a longer one")), "ALREADY_REPORTED");
        assert_eq!(stage.no("worker", message("one more thing")), "ALREADY_REPORTED");
        stage.ok("planner", cancel());
    }

    #[test]
    fn nobody_speaks_before_there_is_a_task() {
        let mut stage = Stage::task(Charter::grid());
        assert_eq!(stage.no("planner", message("hello")), "NOT_REQUESTED");
        assert_eq!(stage.no("worker", message("hello")), "NOT_REQUESTED");
    }

    #[test]
    fn nobody_else_joins_the_conversation() {
        let mut stage = Stage::working(Charter::grid());
        assert_eq!(stage.no("helper", message("hello")), "NOT_ASSIGNEE");
        for act in [read_all(), acknowledge(), set_key("k")] {
            assert_eq!(stage.no("helper", act), "NOT_ELIGIBLE");
        }
        let mut unanswered = Stage::requested_of_worker(Charter::grid());
        assert_eq!(unanswered.no("helper", message("hello")), "NOT_ELIGIBLE");
    }

    // A MACP reader sees what the receiver says as updates, and what the sender says not at all.
    #[test]
    fn the_receivers_messages_take_an_ordinal_and_the_senders_do_not() {
        let mut stage = talking();
        assert!(stage.last().ordinal.is_some());
        stage.ok("planner", message("hello yourself"));
        assert!(stage.last().ordinal.is_none());
    }
}

mod reading {
    use super::*;

    // Reading gives the other side a receipt.
    #[test]
    fn reading_is_recorded_and_clears_what_was_unread() {
        let mut stage = Stage::conversation();
        stage.ok("planner", message("and this"));
        assert_eq!(unread(&stage, Party::Receiver), ["Requested", "Said"]);
        stage.ok("worker", read(2));
        assert_eq!(unread(&stage, Party::Receiver), ["Said"]);
        stage.ok("worker", read_all());
        assert_eq!(unread(&stage, Party::Receiver), NOTHING);
        assert_eq!(stage.count("Read"), 2);
    }

    #[test]
    fn reading_what_was_read_changes_nothing() {
        let mut stage = Stage::conversation();
        stage.ok("worker", read_all());
        stage.ok("worker", read_all());
        assert_eq!(stage.count("Read"), 1);
        assert_eq!(stage.the_task().conversation.side(Party::Receiver).read_up_to, Seq(2));
    }

    #[test]
    fn each_side_has_its_own_unread_messages() {
        let mut stage = talking();
        stage.ok("worker", read_all());
        assert_eq!(unread(&stage, Party::Requester), ["Accepted", "Said"]);
        stage.ok("planner", read_all());
        stage.ok("planner", message("good"));
        assert_eq!(
            (unread(&stage, Party::Requester), unread(&stage, Party::Receiver)),
            (vec![], vec!["Said"])
        );
    }
}

mod acknowledging {
    use super::*;

    // The window opens with the task and with each message of the sender, 30 s by default.
    #[test]
    fn a_missed_check_in_is_told_again_with_each_window_up_to_a_limit() {
        let mut stage = Stage::conversation();
        assert_eq!(stage.wait(WINDOW_MS - 1).tick(), NOTHING);
        assert_eq!(stage.wait(1).tick(), ["CheckInMissed"]);
        assert!(matches!(stage.last().fact, Fact::CheckInMissed { message: Seq(2), .. }));
        let again = |stage: &Stage| {
            let Fact::CheckInMissed { next, gives_up: false, .. } = stage.last().fact else {
                panic!("missed")
            };
            next
        };
        assert_eq!(again(&stage), Some(stage.last().at.plus(WINDOW_MS)));
        assert_eq!(stage.wait(WINDOW_MS - 1).tick(), NOTHING);
        assert_eq!(stage.wait(1).tick(), ["CheckInMissed"]);
        stage.wait(WINDOW_MS * 100).tick();
        assert_eq!((stage.count("CheckInMissed"), again(&stage)), (CHECK_INS_MAX as usize, None));
        assert_eq!(stage.standing(), Standing::Requested, "the sender decides what to make of it");
        stage.ok("worker", acknowledge());
        assert_eq!(stage.count("Acknowledged"), 1, "a late acknowledgement is news");
        stage.ok("planner", message("go on"));
        assert_eq!(stage.wait(WINDOW_MS).tick(), ["CheckInMissed"], "each message has its window");
    }

    #[test]
    fn a_task_fails_after_as_many_misses_as_the_sender_named() {
        let mut request = work(Some("worker"));
        request.check_in = CheckInTerms { window_ms: Some(100), misses_max: Some(2) };
        let mut stage = Stage::task(Charter::grid());
        stage.ok("planner", Act::Task(TaskAct::Request(Box::new(request))));
        assert_eq!(stage.wait(100).tick(), ["CheckInMissed"]);
        let mut heard = stage.clone();
        assert_eq!(stage.wait(100).tick(), ["CheckInMissed", "Committed"]);
        let Lifecycle::Resolved { commitment } = &stage.session().lifecycle else { panic!("resolved") };
        assert!(!commitment.positive && *commitment.reason == *NO_ACK);
        assert!(stage.last().is_by_runtime(), "it is the runtime's own failure");
        for party in [Party::Requester, Party::Receiver] {
            assert!(unread(&stage, party).contains(&"Committed"), "both are told");
        }
        heard.ok("worker", acknowledge());
        assert_eq!(heard.wait(10_000).tick(), NOTHING, "one sign is enough");
    }

    #[test]
    fn reading_acknowledges_nothing_whatever_orders_wait() {
        let mut stage = talking();
        stage.ok("planner", message("and this"));
        stage.ok("planner", steer("quickly"));
        assert_eq!(stage.taking_orders("worker", read_all()).orders.len(), 2);
        assert_eq!(stage.wait(WINDOW_MS).tick(), ["CheckInMissed"]);
        stage.ok("worker", acknowledge());
        assert_eq!(stage.count("Acknowledged"), 1);
    }

    #[test]
    fn orders_that_were_not_read_yet_wait_for_the_next_reading() {
        let mut stage = talking();
        stage.ok("planner", steer("first"));
        let first = stage.session().head;
        stage.ok("planner", steer("second"));
        stage.ok("planner", pause());
        assert_eq!(stage.taking_orders("worker", read(first.0)).orders.len(), 1);
        assert_eq!(stage.standing(), Standing::Working, "the pause was not read");
        assert_eq!(stage.taking_orders("worker", read_all()).orders.len(), 2);
        assert_eq!(stage.standing(), Standing::Suspended);
    }

    #[test]
    fn the_first_acknowledgement_after_each_message_is_recorded_without_a_window_too() {
        let mut stage = Stage::working(Charter::mcp());
        for count in 1..=2 {
            stage.ok("planner", message("news"));
            stage.ok("worker", acknowledge());
            stage.ok("worker", acknowledge());
            assert_eq!(stage.count("Acknowledged"), count);
        }
    }

    #[test]
    fn an_acknowledgement_in_time_closes_the_window() {
        let mut stage = Stage::conversation();
        stage.ok("worker", acknowledge());
        stage.ok("worker", acknowledge());
        assert_eq!((stage.count("Acknowledged"), stage.wait(WINDOW_MS).tick()), (1, vec![]));
    }

    #[test]
    fn the_sender_cannot_acknowledge_its_own_message() {
        let mut stage = Stage::conversation();
        stage.ok("planner", acknowledge());
        assert_eq!(stage.count("Acknowledged"), 0);
        assert_eq!(stage.wait(WINDOW_MS).tick(), ["CheckInMissed"]);
    }

    // Whatever shows that the receiver is there counts.
    #[test]
    fn any_act_of_the_receiver_acknowledges() {
        let acts = [
            accept(),
            message("hello"),
            hand_in("page"),
            update("so far"),
            ask("q"),
            complete("page"),
            checkpoint(),
        ];
        for act in acts {
            let mut stage = Stage::conversation();
            stage.ok("worker", act);
            assert_eq!(stage.wait(WINDOW_MS).tick(), NOTHING);
        }
    }

    #[test]
    fn a_missed_check_in_is_remembered_until_the_receiver_shows_itself() {
        let missed = |stage: &Stage| stage.the_task().conversation.check_in_missed.as_deref().copied();
        for act in [acknowledge(), accept(), message("sorry"), checkpoint()] {
            let mut stage = Stage::conversation();
            assert_eq!(missed(&stage), None);
            stage.wait(WINDOW_MS).tick();
            let since = stage.now;
            stage.wait(1).ok("planner", message("are you there?"));
            stage.ok("worker", read_all());
            assert_eq!(missed(&stage), Some(Missed { message: Seq(2), times: 1, since }));
            stage.ok("worker", act);
            assert_eq!(missed(&stage), None);
        }
    }

    #[test]
    fn a_decline_answers_too() {
        let charter = Charter { check_in_ms: Some(WINDOW_MS), ..Charter::mcp() };
        let mut stage = Stage::requested_of_worker(charter);
        stage.ok("worker", decline());
        assert_eq!(stage.wait(WINDOW_MS).tick(), NOTHING);
    }

    #[test]
    fn reading_alone_is_no_acknowledgement() {
        let mut stage = Stage::conversation();
        stage.ok("worker", read_all());
        assert_eq!(stage.wait(WINDOW_MS).tick(), ["CheckInMissed"]);
    }

    #[test]
    fn every_message_of_the_sender_opens_a_window() {
        let mut stage = talking();
        assert_eq!(stage.the_task().conversation.check_in, None);
        stage.ok("planner", message("are you there?"));
        assert_eq!(stage.wait(WINDOW_MS).tick(), ["CheckInMissed"]);
    }

    #[test]
    fn the_oldest_message_without_an_acknowledgement_counts() {
        let mut stage = talking();
        let first = stage.ok("planner", message("are you there?")).seq;
        stage.wait(WINDOW_MS - 1).ok("planner", message("hello?"));
        assert_eq!(stage.wait(1).tick(), ["CheckInMissed"]);
        assert!(matches!(stage.last().fact, Fact::CheckInMissed { message, .. } if message == first));
    }

    // Settable per send.
    #[test]
    fn a_message_may_set_its_own_window() {
        let mut stage = talking();
        stage.ok("planner", message_within("quick!", 500));
        assert_eq!(stage.wait(500).tick(), ["CheckInMissed"]);

        let mut slow = Stage::task(Charter::grid());
        let mut request = work(Some("worker"));
        request.check_in.window_ms = Some(WINDOW_MS * 2);
        slow.ok("planner", Act::Task(TaskAct::Request(Box::new(request))));
        assert_eq!(slow.wait(WINDOW_MS).tick(), NOTHING);
        assert_eq!(slow.wait(WINDOW_MS).tick(), ["CheckInMissed"]);
    }

    #[test]
    fn a_receiver_sets_no_window() {
        let mut stage = talking();
        stage.ok("worker", message_within("quick!", 500));
        assert_eq!(stage.wait(WINDOW_MS).tick(), NOTHING);
    }

    // Check-in windows stand still while the session is suspended.
    #[test]
    fn the_window_stands_still_while_suspended() {
        let mut stage = Stage::conversation();
        stage.wait(10_000).ok("planner", pause());
        assert_eq!(stage.wait(WINDOW_MS * 5).tick(), NOTHING);
        stage.ok("planner", resume());
        assert_eq!(stage.wait(WINDOW_MS - 10_001).tick(), NOTHING);
        assert_eq!(stage.wait(1).tick(), ["CheckInMissed"]);
    }

    #[test]
    fn a_message_sent_while_suspended_has_its_whole_window_and_no_more() {
        let mut stage = talking();
        stage.ok("worker", hand_in("page"));
        stage.ok("planner", pause());
        stage.wait(50_000).ok("planner", message("are you there?"));
        stage.wait(7_000).ok("planner", resume());
        assert_eq!(stage.session().wake_at(), Some(stage.now.plus(WINDOW_MS)));
        stage.wait(1_000).ok("planner", pause());
    }

    #[test]
    fn a_window_that_passed_two_suspensions_is_as_long_as_ever() {
        let mut stage = Stage::conversation();
        for _ in 0..2 {
            stage.wait(5_000).ok("planner", pause());
            stage.wait(70_000).ok("planner", resume());
        }
        assert_eq!(stage.session().wake_at(), Some(stage.now.plus(WINDOW_MS - 10_000)));
    }

    #[test]
    fn the_end_closes_the_window() {
        let mut stage = Stage::conversation();
        stage.ok("planner", cancel());
        assert_eq!((stage.session().wake_at(), stage.wait(WINDOW_MS).tick()), (None, vec![]));
    }
}

mod session_keys {
    use super::*;

    fn key(stage: &Stage, party: Party) -> Option<&str> {
        stage.the_task().conversation.side(party).key.as_deref()
    }

    // Each task stores two: the sender's and the receiver's.
    #[test]
    fn each_side_sets_its_own() {
        let mut stage = Stage::conversation();
        stage.ok("planner", set_key("thread-7"));
        stage.ok("worker", set_key("inbox-3"));
        assert_eq!(key(&stage, Party::Requester), Some("thread-7"));
        assert_eq!(key(&stage, Party::Receiver), Some("inbox-3"));
    }

    #[test]
    fn a_key_is_changed_and_removed_and_setting_it_again_is_nothing() {
        let mut stage = Stage::conversation();
        stage.ok("planner", set_key("a"));
        stage.ok("planner", set_key("a"));
        assert_eq!(stage.count("KeySet"), 1);
        stage.ok("planner", set_key("b"));
        stage.ok("planner", Act::Task(TaskAct::SetKey { key: None }));
        assert_eq!((key(&stage, Party::Requester), stage.count("KeySet")), (None, 3));
    }

    // A key routes to its owner's conversation: it says nothing to the next receiver.
    #[test]
    fn the_next_receiver_does_not_inherit_the_key() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("worker", set_key("inbox-3"));
        stage.ok("worker", decline());
        stage.ok("helper", accept());
        assert_eq!(key(&stage, Party::Receiver), None);
    }
}

mod notices {
    use super::*;

    // A state change is told to the other party, so that one that was offline learns of it.
    #[test]
    fn a_change_of_state_is_told_to_the_other_party() {
        let mut stage = Stage::conversation();
        stage.ok("worker", read_all());
        stage.ok("worker", accept());
        assert_eq!(unread(&stage, Party::Requester), ["Accepted"]);
        stage.ok("planner", cancel());
        assert_eq!(unread(&stage, Party::Receiver), ["Cancelled"]);
        assert_eq!(unread(&stage, Party::Requester), ["Accepted"]);
    }

    #[test]
    fn a_message_that_changes_the_state_is_told_once() {
        let mut stage = talking();
        stage.ok("planner", read_all());
        stage.ok("worker", hand_in("page"));
        assert_eq!(unread(&stage, Party::Requester), ["Said"]);
    }

    // What the runtime does, both parties learn.
    #[test]
    fn what_happens_by_itself_is_told_to_both() {
        let mut stage = Stage::working(Charter::grid());
        stage.ok("worker", read_all());
        stage.wait(stage::TTL_MS + 1).tick();
        assert_eq!(unread(&stage, Party::Receiver), ["Expired"]);
        assert_eq!(unread(&stage, Party::Requester), ["Accepted", "Expired"]);
    }

    // The sender did not settle a decline or a failure itself: it must hear of it. What the runtime writes then is no other news.
    #[test]
    fn the_sender_is_told_that_its_task_was_declined_or_has_failed() {
        let mut declined = Stage::conversation();
        declined.ok("worker", decline());
        assert_eq!(unread(&declined, Party::Requester), ["Declined"]);
        assert_eq!(unread(&declined, Party::Receiver), ["Requested"], "it knows what it did");
        let mut failed = talking();
        failed.ok("planner", read_all());
        failed.ok("worker", fail("E1"));
        assert_eq!(unread(&failed, Party::Requester), ["Failed"], "once");
    }

    #[test]
    fn only_where_the_charter_says_so() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("planner", cancel());
        assert_eq!(unread(&stage, Party::Receiver), ["Requested"]);
        assert_eq!(unread(&stage, Party::Requester), NOTHING);
    }
}
