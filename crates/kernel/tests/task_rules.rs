//! The rules of the task mode, RFC-MACP-0009, one test for each.

mod stage;

use handover_kernel::charter::Authority;
use handover_kernel::command::{ModeKind, Progress, TaskAct};
use handover_kernel::commitment::{Commitment, Supersedes};
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::task::{Left, Report};
use handover_kernel::{Act, AgentId, Charter, Command, Ordinal, SessionId, Text};
use stage::acts::*;
use stage::{Stage, agent, start};

fn reassigning() -> Charter {
    Charter { reassignment: true, ..Charter::macp() }
}

fn accept_naming(task: &str, assignee: &str) -> Act {
    let name = (!assignee.is_empty()).then(|| agent(assignee));
    Act::Task(TaskAct::Accept { task: Some(Text::from(task)), assignee: name, reason: Text::default() })
}

// RFC-MACP-0009 §2: orchestrated; the requester need not be listed, an assignee must be.
#[test]
fn a_session_needs_a_participant_other_than_the_requester() {
    let mut alone = start(handover_kernel::command::ModeKind::Task, Charter::macp());
    alone.participants = vec![agent("planner")];
    assert_eq!(Stage::empty().no("planner", Act::Start(Box::new(alone))), "INVALID");

    let mut unlisted = start(handover_kernel::command::ModeKind::Task, Charter::macp());
    unlisted.participants = vec![agent("worker")];
    let mut stage = Stage::started(unlisted);
    stage.ok("planner", request(None));
    stage.ok("worker", accept());
    assert_eq!(stage.assignee(), Some("worker"));
}

mod delegation {
    use handover_kernel::command::ModeKind;

    use super::*;

    #[test]
    fn a_task_starts_together_with_its_work() {
        let mut stage = Stage::empty();
        stage.ok("planner", delegate(start(ModeKind::Task, Charter::mcp()), Some("worker")));
        assert_eq!(stage.standing(), Standing::Requested);
        assert_eq!((stage.count("Started"), stage.count("Requested")), (1, 1));
        assert_eq!(stage.no("planner", request(None)), "ALREADY_REQUESTED");
        stage.ok("worker", accept());
    }

    #[test]
    fn work_that_cannot_be_requested_starts_nothing() {
        let mut stage = Stage::empty();
        let task = || start(ModeKind::Task, Charter::mcp());
        assert_eq!(stage.no("planner", delegate(task(), Some("outsider"))), "INVALID");
        let handoff = start(ModeKind::Handoff, Charter::macp());
        assert_eq!(stage.no("planner", delegate(handoff, None)), "WRONG_MODE");
        assert!(stage.slot.is_none());
    }

    #[test]
    fn a_session_that_exists_is_not_started_again() {
        let mut stage = Stage::requested(Charter::mcp());
        assert_eq!(
            stage.no("planner", delegate(start(ModeKind::Task, Charter::mcp()), None)),
            "SESSION_EXISTS"
        );
    }
}

mod hold {
    use super::*;

    #[test]
    fn the_assignee_holds_its_task_and_the_requester_resumes_it() {
        let mut stage = Stage::working(Charter { ends_pause: false, ..Charter::mcp() });
        assert_eq!(stage.no("planner", hold()), "NOT_ASSIGNEE");
        stage.ok("worker", hold());
        assert_eq!(stage.standing(), Standing::Suspended);
        assert_eq!(stage.no("worker", update("half")), "SESSION_SUSPENDED");
        assert_eq!(stage.no("worker", resume()), "NOT_REQUESTER");
        stage.ok("planner", resume());
        assert_eq!(stage.standing(), Standing::Working);
    }

    #[test]
    fn questions_outlive_a_hold() {
        let mut stage = Stage::waiting(Charter::mcp());
        let before = stage.the_task().phase.questions().to_vec();
        stage.ok("worker", hold());
        stage.ok("planner", resume());
        assert_eq!(
            (stage.standing(), stage.the_task().phase.questions()),
            (Standing::WaitingInput, &before[..])
        );
    }
}

mod task_request {
    use super::*;

    // RFC-MACP-0009 §2.1
    #[test]
    fn only_the_requester_requests() {
        let mut stage = Stage::task(Charter::macp());
        assert_eq!(stage.no("worker", request(None)), "NOT_REQUESTER");
        assert_eq!(stage.no("outsider", request(None)), "NOT_PARTICIPANT");
        stage.ok("planner", request(None));
        assert_eq!(stage.standing(), Standing::Requested);
    }

    // RFC-MACP-0009 §5 rule 1
    #[test]
    fn a_session_takes_one_request() {
        let mut stage = Stage::requested(Charter::macp());
        assert_eq!(stage.no("planner", request(None)), "ALREADY_REQUESTED");
        stage.ok("worker", accept());
        assert_eq!(stage.no("planner", request(None)), "ALREADY_REQUESTED");
        stage.ok("worker", complete("page"));
        assert_eq!(stage.no("planner", request(None)), "ALREADY_REQUESTED");
    }

    // RFC-MACP-0009 §4: the request names its task and, if anybody, a participant.
    #[test]
    fn a_request_has_a_task_id_and_a_known_assignee() {
        let mut stage = Stage::task(Charter::macp());
        let mut nameless = work(None);
        nameless.task = Text::from("");
        assert_eq!(stage.no("planner", Act::Task(TaskAct::Request(Box::new(nameless)))), "INVALID");
        assert_eq!(stage.no("planner", request(Some("outsider"))), "INVALID");
        stage.ok("planner", request(Some("worker")));
    }

    #[test]
    fn the_runtime_requests_nothing() {
        let step = Stage::task(Charter::macp()).runtime(request(None));
        assert_eq!(step.answer.unwrap_err().code(), "INVALID");
    }
}

mod task_accept {
    use super::*;

    // RFC-MACP-0009 §5 rule 2
    #[test]
    fn only_the_requested_assignee_accepts() {
        let mut stage = Stage::requested_of_worker(Charter::macp());
        assert_eq!(stage.no("helper", accept()), "NOT_ELIGIBLE");
        assert_eq!(stage.no("planner", accept()), "NOT_ELIGIBLE");
        assert_eq!(stage.no("outsider", accept()), "NOT_PARTICIPANT");
        stage.ok("worker", accept());
        assert_eq!(stage.assignee(), Some("worker"));
    }

    // RFC-MACP-0009 §5 rule 2
    #[test]
    fn any_participant_but_the_requester_accepts_an_open_request() {
        let mut stage = Stage::requested(Charter::macp());
        assert_eq!(stage.no("planner", accept()), "NOT_ELIGIBLE");
        stage.ok("helper", accept());
        assert_eq!(stage.assignee(), Some("helper"));
    }

    // RFC-MACP-0009 §5 rule 2a
    #[test]
    fn a_declined_agent_cannot_accept() {
        let mut stage = Stage::requested(reassigning());
        stage.ok("worker", decline());
        assert_eq!(stage.no("worker", accept()), "DECLINED");
        stage.ok("helper", accept());
    }

    // RFC-MACP-0009 §5 rules 3 and 3a
    #[test]
    fn the_first_to_accept_has_it_and_nobody_else() {
        let mut stage = Stage::requested(Charter::macp());
        stage.ok("worker", accept());
        assert_eq!(stage.no("helper", accept()), "ALREADY_ASSIGNED");
        assert_eq!(stage.no("worker", accept()), "ALREADY_ASSIGNED");
        stage.ok("worker", complete("page"));
        assert_eq!(stage.no("helper", accept()), "ALREADY_ASSIGNED");
        assert_eq!(stage.assignee(), Some("worker"));
    }

    // RFC-MACP-0009 §4: `assignee` in the payload is empty or the sender, `task_id` is the request's.
    #[test]
    fn an_accept_names_its_task_and_its_sender_rightly() {
        let mut stage = Stage::requested(Charter::macp());
        assert_eq!(stage.no("worker", accept_naming("t2", "")), "WRONG_TASK");
        assert_eq!(stage.no("worker", accept_naming("t1", "helper")), "INVALID");
        stage.ok("worker", accept_naming("t1", "worker"));
    }

    #[test]
    fn nothing_is_accepted_before_it_is_requested() {
        let mut stage = Stage::task(Charter::macp());
        assert_eq!(stage.no("worker", accept()), "NOT_REQUESTED");
        assert_eq!(stage.no("worker", decline()), "NOT_REQUESTED");
        assert_eq!(stage.no("worker", update("so far")), "NOT_REQUESTED");
        assert_eq!(stage.no("worker", complete("page")), "NOT_REQUESTED");
    }

    // RFC-MACP-0009 §5 rule 2: who is named may accept, be it the requester.
    #[test]
    fn a_requester_that_names_itself_may_take_its_own_task() {
        let mut stage = Stage::task(Charter::macp());
        stage.ok("planner", request(Some("planner")));
        assert_eq!(stage.no("worker", accept()), "NOT_ELIGIBLE");
        stage.ok("planner", accept());
        stage.ok("planner", complete("page"));
        stage.ok("planner", commit_success());
    }

    // RFC-MACP-0009 §5 rule 2: reassignment speaks of an assignee that had accepted (rules 3b, 3c).
    #[test]
    fn a_named_assignee_that_declines_before_assignment_frees_nobody_else() {
        for charter in [Charter::macp(), reassigning()] {
            let mut stage = Stage::requested_of_worker(charter);
            stage.ok("worker", decline());
            for act in [accept(), decline()] {
                assert_eq!(stage.no("helper", act), "NOT_ELIGIBLE");
            }
            for act in [accept(), decline()] {
                assert_eq!(stage.no("worker", act), "DECLINED");
            }
            // RFC-MACP-0009 §5 rule 2a: what is left is to say that it failed.
            stage.ok("planner", commit_failure());
        }
    }

    // RFC-MACP-0009 §5 rule 3c, RFC-MACP-0012 §4.4 assignment.allow_reassignment_on_reject
    #[test]
    fn a_named_assignee_that_gives_back_what_it_had_accepted_frees_the_others() {
        let mut stage = Stage::requested_of_worker(reassigning());
        stage.ok("worker", accept());
        stage.ok("worker", decline());
        stage.ok("helper", accept());
        assert_eq!(stage.assignee(), Some("helper"));
    }
}

mod task_reject {
    use super::*;

    // RFC-MACP-0009 §2.1, §5 rule 2
    #[test]
    fn only_who_may_accept_may_decline() {
        let mut stage = Stage::requested_of_worker(Charter::macp());
        assert_eq!(stage.no("helper", decline()), "NOT_ELIGIBLE");
        assert_eq!(stage.no("planner", decline()), "NOT_ELIGIBLE");
        assert_eq!(stage.no("outsider", decline()), "NOT_PARTICIPANT");
        stage.ok("worker", decline());
    }

    // RFC-MACP-0009 §5 rule 2a: before assignment a decline is that agent's alone, and is recorded once.
    #[test]
    fn a_decline_before_assignment_is_recorded_for_that_agent_once() {
        let mut stage = Stage::requested(Charter::macp());
        stage.ok("worker", decline());
        assert_eq!(stage.standing(), Standing::Requested);
        assert_eq!(stage.the_task().declined.get(&agent("worker")), Some(&Left::Declined));
        assert_eq!(stage.no("worker", decline()), "DECLINED");
        stage.ok("helper", accept());
    }

    // RFC-MACP-0009 §5 rule 3b
    #[test]
    fn an_accept_cannot_be_taken_back() {
        let mut stage = Stage::working(Charter::macp());
        assert_eq!(stage.no("worker", decline()), "REASSIGNMENT_DENIED");
        assert_eq!(stage.assignee(), Some("worker"));
    }

    // RFC-MACP-0009 §5 rule 3c
    #[test]
    fn where_reassignment_is_allowed_the_assignee_gives_the_task_back() {
        let mut stage = Stage::waiting(reassigning());
        stage.ok("worker", decline());
        assert_eq!((stage.standing(), stage.assignee()), (Standing::Requested, None));
        assert_eq!(stage.the_task().declined.get(&agent("worker")), Some(&Left::GaveBack));
        assert_eq!(stage.no("worker", accept()), "DECLINED");
        stage.ok("helper", accept());
        assert_eq!(stage.assignee(), Some("helper"));
    }

    #[test]
    fn nobody_declines_what_another_works_on() {
        let mut stage = Stage::requested(reassigning());
        stage.ok("worker", accept());
        assert_eq!(stage.no("helper", decline()), "ALREADY_ASSIGNED");
    }

    #[test]
    fn nobody_declines_after_the_report() {
        let mut stage = Stage::working(reassigning());
        stage.ok("worker", complete("page"));
        assert_eq!(stage.no("worker", decline()), "ALREADY_REPORTED");
    }

    // RFC-MACP-0009 §4
    #[test]
    fn a_decline_names_its_task_and_its_sender_rightly() {
        let mut stage = Stage::requested(Charter::macp());
        let naming = |task: &str, assignee: &str| {
            let assignee = Some(AgentId::from(assignee));
            Act::Task(TaskAct::Decline { task: Some(Text::from(task)), assignee, reason: Text::default() })
        };
        assert_eq!(stage.no("worker", naming("t2", "worker")), "WRONG_TASK");
        assert_eq!(stage.no("worker", naming("t1", "helper")), "INVALID");
        stage.ok("worker", naming("t1", "worker"));
    }
}

mod task_update {
    use super::*;

    // RFC-MACP-0009 §5 rule 4
    #[test]
    fn only_the_active_assignee_updates() {
        let mut stage = Stage::requested(Charter::macp());
        assert_eq!(stage.no("worker", update("so far")), "NOT_ASSIGNEE");
        stage.ok("worker", accept());
        for who in ["planner", "helper"] {
            assert_eq!(stage.no(who, update("so far")), "NOT_ASSIGNEE");
        }
        stage.ok("worker", update("so far"));
        assert_eq!(&*stage.phase().progress().unwrap().message, "so far");
    }

    // RFC-MACP-0009 §2.1: before the report, afterwards it is forbidden.
    #[test]
    fn there_is_no_update_after_the_report() {
        let mut stage = Stage::working(Charter::macp());
        stage.ok("worker", complete("page"));
        assert_eq!(stage.no("worker", update("one more")), "ALREADY_REPORTED");
        assert_eq!(stage.no("helper", update("one more")), "NOT_ASSIGNEE");
    }

    // RFC-MACP-0009 §4: the update carries no assignee, but the task's name.
    #[test]
    fn an_update_names_its_task_rightly_and_its_progress_is_a_number() {
        let mut stage = Stage::working(Charter::macp());
        let naming = |task: &str, done: f64| {
            let progress = Progress { done: Some(done), ..Progress::default() };
            Act::Task(TaskAct::Update { task: Some(Text::from(task)), progress, withdraws: false })
        };
        assert_eq!(stage.no("worker", naming("t2", 0.1)), "WRONG_TASK");
        assert_eq!(stage.no("worker", naming("t1", f64::NAN)), "INVALID");
        assert_eq!(stage.no("worker", naming("t1", f64::INFINITY)), "INVALID");
        assert_eq!(stage.no("worker", naming("t1", -0.1)), "INVALID");
        stage.ok("worker", naming("t1", 0.0));
        stage.ok("worker", naming("t1", 0.1));
    }
}

mod task_reports {
    use super::*;

    // RFC-MACP-0009 §5 rule 4, §8: forged reports are refused.
    #[test]
    fn only_the_active_assignee_reports() {
        let mut stage = Stage::requested_of_worker(Charter::macp());
        assert_eq!(stage.no("worker", complete("page")), "NOT_ASSIGNEE");
        stage.ok("worker", accept());
        for who in ["planner", "helper"] {
            assert_eq!(stage.no(who, complete("page")), "NOT_ASSIGNEE");
            assert_eq!(stage.no(who, fail("E1")), "NOT_ASSIGNEE");
        }
        assert_eq!(stage.no("outsider", complete("page")), "NOT_PARTICIPANT");
    }

    // RFC-MACP-0009 §5 rule 5
    #[test]
    fn a_report_does_not_resolve_the_session() {
        let mut done = Stage::working(Charter::macp());
        done.ok("worker", complete("page"));
        assert_eq!(done.session().lifecycle, Lifecycle::Open);
        assert_eq!(done.standing(), Standing::ReportedComplete);

        let mut failed = Stage::waiting(Charter::macp());
        failed.ok("worker", fail("E1"));
        assert_eq!(failed.session().lifecycle, Lifecycle::Open);
        assert_eq!(failed.standing(), Standing::ReportedFail);
    }

    // RFC-MACP-0009 §5 rule 5, §8: the first accepted report is the one that counts.
    #[test]
    fn there_is_one_report() {
        let mut stage = Stage::working(Charter::macp());
        stage.ok("worker", complete("page"));
        assert_eq!(stage.no("worker", complete("another")), "ALREADY_REPORTED");
        assert_eq!(stage.no("worker", fail("E1")), "ALREADY_REPORTED");
        let handover_kernel::task::Phase::Reported { report: Report::Complete { output, .. }, .. } =
            stage.phase()
        else {
            panic!("the first report stands");
        };
        assert_eq!(**output, *b"page");
    }

    // RFC-MACP-0009 §8: what makes up the idempotency key is on the report's event.
    #[test]
    fn the_report_keeps_its_message_id_and_its_author() {
        let mut stage = Stage::working(Charter::macp());
        stage.named("worker", "m-9", complete("page")).unwrap();
        let report = stage.the("Completed");
        assert_eq!(report.id.as_ref().unwrap().as_str(), "m-9");
        assert_eq!(stage.author_of("Completed"), Some("worker"));
        assert_eq!(&*stage.phase().request().unwrap().task, "t1");
    }

    // RFC-MACP-0009 §4: complete and fail repeat the assignee for the audit.
    #[test]
    fn a_report_names_its_task_and_its_sender_rightly() {
        let mut stage = Stage::working(Charter::macp());
        let naming = |task: &str, assignee: &str| {
            Act::Task(TaskAct::Complete {
                task: Some(Text::from(task)),
                assignee: Some(AgentId::from(assignee)),
                output: blob("page"),
                summary: Text::default(),
            })
        };
        assert_eq!(stage.no("worker", naming("t2", "worker")), "WRONG_TASK");
        assert_eq!(stage.no("worker", naming("t1", "helper")), "INVALID");
        stage.ok("worker", naming("t1", "worker"));
    }
}

mod commitment {
    use super::*;

    fn reported() -> Stage {
        let mut stage = Stage::working(Charter::macp());
        stage.ok("worker", complete("page"));
        stage
    }

    // RFC-MACP-0009 §2.1
    #[test]
    fn the_requester_commits_by_default() {
        let mut stage = reported();
        assert_eq!(stage.no("worker", commit_success()), "NOT_AUTHORITY");
        assert_eq!(stage.no("helper", commit_success()), "NOT_AUTHORITY");
        assert_eq!(stage.no("outsider", commit_success()), "NOT_PARTICIPANT");
        stage.ok("planner", commit_success());
        assert_eq!(stage.standing(), Standing::ResolvedPositive);
    }

    // RFC-MACP-0012 commitment.authority = any_participant
    #[test]
    fn any_participant_commits_where_the_policy_says_so() {
        for who in ["planner", "worker", "helper"] {
            let charter = Charter { authority: Authority::AnyParticipant, ..Charter::macp() };
            let mut stage = Stage::working(charter);
            stage.ok("worker", complete("page"));
            assert_eq!(stage.no("outsider", commit_success()), "NOT_PARTICIPANT");
            stage.ok(who, commit_success());
        }
    }

    // RFC-MACP-0012 commitment.authority = designated_role
    #[test]
    fn only_the_designated_commit_where_the_policy_names_them() {
        let authority = Authority::Designated([agent("auditor")].into());
        let mut stage = Stage::working(Charter { authority, ..Charter::macp() });
        stage.ok("worker", complete("page"));
        assert_eq!(stage.no("planner", commit_success()), "NOT_AUTHORITY");
        assert_eq!(stage.no("worker", commit_success()), "NOT_AUTHORITY");
        stage.ok("auditor", commit_success());
        assert_eq!(stage.author_of("Committed"), Some("auditor"));
    }

    // RFC-MACP-0009 §5 rule 5
    #[test]
    fn nothing_is_committed_before_the_report() {
        let stages = [
            Stage::task(Charter::macp()),
            Stage::requested_of_worker(Charter::macp()),
            Stage::working(Charter::macp()),
            Stage::waiting(Charter::macp()),
        ];
        for mut stage in stages {
            assert_eq!(stage.no("planner", commit_success()), "NOT_REPORTED");
            assert_eq!(stage.no("planner", commit_failure()), "NOT_REPORTED");
        }
    }

    // RFC-MACP-0009 §6: when the named assignee declined before assignment, a negative outcome needs no report.
    #[test]
    fn a_failure_may_be_committed_when_the_named_assignee_declined() {
        let mut stage = Stage::requested_of_worker(Charter::macp());
        stage.ok("worker", decline());
        assert_eq!(stage.no("planner", commit_success()), "NOT_REPORTED");
        stage.ok("planner", commit_failure());
        assert_eq!(stage.standing(), Standing::ResolvedNegative);
    }

    // RFC-MACP-0009 §6: with an open request that is so once nobody is left.
    #[test]
    fn a_failure_may_be_committed_when_everybody_declined() {
        let mut stage = Stage::requested(Charter::macp());
        stage.ok("worker", decline());
        assert_eq!(stage.no("planner", commit_failure()), "NOT_REPORTED");
        stage.ok("helper", decline());
        stage.ok("planner", commit_failure());
    }

    // RFC-MACP-0001 §7.3
    #[test]
    fn a_commitment_says_what_who_over_what_and_why() {
        type Blank = fn(&mut Commitment);
        let blanks: [Blank; 4] = [
            |c| c.commitment = Text::default(),
            |c| c.action = Text::from(" "),
            |c| c.scope = Text::default(),
            |c| c.reason = Text::default(),
        ];
        for blank in blanks {
            let mut commitment = outcome("task.completed", true);
            blank(&mut commitment);
            assert_eq!(reported().no("planner", commit(commitment)), "INVALID");
        }
    }

    // RFC-MACP-0001 §7.3: an empty policy version means the bound one.
    #[test]
    fn a_commitment_names_the_versions_that_the_session_is_bound_to() {
        type Change = fn(&mut Commitment);
        let changes: [Change; 4] = [
            |c| c.mode_version = Text::from("2.0.0"),
            |c| c.mode_version = Text::default(),
            |c| c.configuration_version = Text::from("config.2"),
            |c| c.policy_version = Text::from("policy.other"),
        ];
        for change in changes {
            let mut commitment = outcome("task.completed", true);
            change(&mut commitment);
            assert_eq!(reported().no("planner", commit(commitment)), "VERSION_MISMATCH");
        }
        let bound = Commitment { policy_version: Text::default(), ..outcome("task.completed", true) };
        reported().ok("planner", commit(bound));
    }

    // RFC-MACP-0009 §6: outcome_positive agrees with the action.
    #[test]
    fn the_action_agrees_with_the_outcome() {
        for (action, positive) in [
            ("task.completed", false),
            ("task.failed", true),
            ("x.selected", false),
            ("x.accepted", false),
            ("x.approved", false),
            ("x.rejected", true),
            ("x.declined", true),
        ] {
            assert_eq!(reported().no("planner", commit(outcome(action, positive))), "OUTCOME_MISMATCH");
            reported().ok("planner", commit(outcome(action, !positive)));
        }
        reported().ok("planner", commit(outcome("task.archived", true)));
    }

    // RFC-MACP-0001 §7.3: what a commitment supersedes is named by session and hash.
    #[test]
    fn supersedes_needs_a_session_and_a_hash() {
        let superseding = |session: &str, hash: String| {
            let supersedes = Some(Supersedes { session: SessionId::from(session), hash: Text::from(hash) });
            commit(Commitment { supersedes, ..outcome("task.completed", true) })
        };
        let good = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(reported().no("planner", superseding("", good.clone())), "INVALID");
        for bad in [
            String::new(),
            "0a".repeat(32),
            format!("sha256:{}", "0a".repeat(31)),
            format!("sha256:{}", "0A".repeat(32)),
            format!("sha256:{}", "0g".repeat(32)),
            format!("sha512:{}", "0a".repeat(32)),
        ] {
            assert_eq!(reported().no("planner", superseding("other", bad)), "INVALID");
        }
        reported().ok("planner", superseding("other", good));
    }

    // RFC-MACP-0012 §4.4 completion.require_output
    #[test]
    fn a_required_output_gates_success_and_not_failure() {
        let charter = || Charter { require_output: true, ..Charter::macp() };
        let mut empty = Stage::working(charter());
        empty.ok("worker", complete(""));
        assert_eq!(empty.no("planner", commit_success()), "OUTPUT_REQUIRED");
        empty.ok("planner", commit_failure());

        let mut failed = Stage::working(charter());
        failed.ok("worker", fail("E1"));
        assert_eq!(failed.no("planner", commit_success()), "OUTPUT_REQUIRED");

        let mut full = Stage::working(charter());
        full.ok("worker", complete("page"));
        full.ok("planner", commit_success());
    }

    // RFC-MACP-0009 §6: positive and negative outcomes, and only one of them.
    #[test]
    fn one_commitment_resolves_the_session() {
        let mut stage = reported();
        stage.ok("planner", commit_failure());
        assert_eq!(stage.standing(), Standing::ResolvedNegative);
        assert_eq!(stage.no("planner", commit_success()), "SESSION_ENDED");
    }

    #[test]
    fn the_runtime_never_commits_by_command() {
        assert_eq!(reported().runtime(commit_success()).answer.unwrap_err().code(), "INVALID");
    }
}

// RFC-MACP-0009 §4: the mode's messages take ordinals, in order and without a hole; nothing else does.
#[test]
fn the_envelopes_of_the_mode_are_numbered() {
    let mut stage = Stage::waiting(Charter::macp());
    stage.ok("planner", answer("q"));
    stage.ok("planner", steer("left"));
    stage.ok("worker", update("so far"));
    stage.ok("planner", pause());
    stage.ok("planner", resume());
    stage.ok("worker", complete("page"));
    stage.ok("planner", commit_success());
    let numbered: Vec<_> = stage
        .log
        .iter()
        .filter(|event| event.ordinal.is_some())
        .map(|event| stage::kind(&event.fact))
        .collect();
    let expected = ["Started", "Requested", "Accepted", "Asked", "Updated", "Completed", "Committed"];
    assert_eq!(numbered, expected);
    assert_eq!(stage.session().ordinal, Ordinal(7));
}

// RFC-MACP-0001: per-participant activity counts the messages that they sent, the start left out.
#[test]
fn activity_counts_the_messages_of_the_mode() {
    let mut stage = Stage::working(Charter::macp());
    stage.wait(5);
    stage.ok("worker", update("so far"));
    let activity = &stage.session().activity;
    assert_eq!(activity.get(&agent("planner")).unwrap().messages, 1);
    assert_eq!(activity.get(&agent("worker")).unwrap().messages, 2);
    assert_eq!(activity.get(&agent("worker")).unwrap().last_at, stage.now);
    assert_eq!(activity.get(&agent("helper")), None);
}

// RFC-MACP-0009 §8: task id, assignee and the id of the first accepted report.
#[test]
fn an_outcome_has_a_key() {
    let mut stage = Stage::working(Charter::macp());
    assert_eq!(stage.the_task().outcome_key(), None);
    stage.named("worker", "m:7%", complete("page")).expect("it is the assignee's");
    let key = stage.the_task().outcome_key();
    assert_eq!(key.as_deref(), Some("t1:worker:m%3A7%25"));
    assert_eq!(stage.no("worker", complete("another page")), "ALREADY_REPORTED");
    stage.ok("planner", commit_success());
    assert_eq!(stage.the_task().outcome_key(), key);

    let mut unnamed = Stage::working(Charter::mcp());
    let report = unnamed.ok("worker", fail("E1")).seq;
    assert_eq!(unnamed.the_task().outcome_key(), Some(format!("t1:worker:handover%3A{report}")));
}

#[test]
fn a_task_takes_no_messages_of_another_mode() {
    let mut reported = Stage::working(Charter::macp());
    reported.ok("worker", complete("page"));
    let of = |mode, stage: &Stage| Command { mode: Some(mode), ..stage.command("planner", commit_success()) };
    let wrong = of(ModeKind::Handoff, &reported);
    assert_eq!(reported.put(&wrong).answer.unwrap_err().code(), "WRONG_MODE");
    let right = of(ModeKind::Task, &reported);
    assert!(reported.put(&right).answer.is_ok());
    assert_eq!(Stage::working(Charter::macp()).no("planner", offer("h1", "worker")), "WRONG_MODE");
}
