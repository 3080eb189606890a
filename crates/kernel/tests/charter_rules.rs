//! The charters, one test for each cell of the table: who may do what in a MACP session, an MCP task, a Grid task.

mod stage;

use handover_kernel::charter::{
    Authority, CHECK_IN_DEFAULT_MS, Cancel, OnDecline, PauseAt, SUSPENSION_CAP_DEFAULT_MS, Settlement,
};
use handover_kernel::event::Fact;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{Charter, Face, Text};
use stage::acts::*;
use stage::{Stage, agent};

mod who_commits {
    use super::*;

    #[test]
    fn macp_the_initiator() {
        let mut stage = Stage::working(Charter::macp());
        stage.ok("worker", complete("page"));
        assert_eq!(stage.standing(), Standing::ReportedComplete);
        assert_eq!(stage.no("worker", commit_success()), "NOT_AUTHORITY");
        stage.ok("planner", commit_success());
        assert_eq!(stage.standing(), Standing::ResolvedPositive);
    }

    // Commitments that the server writes for a requester: its name, the bound versions, no activity credited.
    #[test]
    fn mcp_the_server_on_the_requesters_behalf() {
        let mut stage = Stage::working(Charter::mcp());
        let receipt = stage.named("worker", "m1", complete("page")).unwrap();
        assert_eq!(stage.standing(), Standing::ResolvedPositive);
        assert_eq!(receipt.seq, stage.the("Completed").seq, "the answer is about the report");
        let event = stage.the("Committed");
        let Fact::Committed(commitment) = &event.fact else { panic!("committed") };
        assert_eq!((stage.author_of("Committed"), event.face), (Some("planner"), Face::Runtime));
        assert_eq!((&*commitment.action, &*commitment.scope), ("task.completed", "task"));
        assert!(commitment.positive && commitment.commitment.starts_with("handover:"));
        assert_eq!((&*commitment.mode_version, &*commitment.policy_version), ("1.0.0", "policy.default"));
        assert_eq!(&*commitment.configuration_version, "config.1");
        assert!(event.ordinal.is_some() && event.id.is_none());
        assert_eq!(stage.session().activity.get(&agent("planner")).unwrap().messages, 1, "its request");
    }

    #[test]
    fn grid_the_sender_after_reviewing() {
        let mut stage = Stage::working(Charter::grid());
        stage.ok("worker", complete("page"));
        assert_eq!(stage.session().lifecycle, Lifecycle::Open);
        assert_eq!(stage.no("worker", commit_success()), "NOT_AUTHORITY");
        stage.ok("planner", commit_success());
    }
}

mod a_failure {
    use super::*;

    fn failed(charter: Charter) -> Stage {
        let mut stage = Stage::working(charter);
        stage.ok("worker", fail("E1"));
        stage
    }

    #[test]
    fn macp_stays_open_until_a_commitment() {
        let mut stage = failed(Charter::macp());
        assert_eq!(stage.standing(), Standing::ReportedFail);
        stage.ok("planner", commit_failure());
    }

    #[test]
    fn mcp_and_grid_settle_at_once() {
        for charter in [Charter::mcp(), Charter::grid()] {
            let stage = failed(charter);
            assert_eq!(stage.standing(), Standing::ResolvedNegative);
            let Fact::Committed(commitment) = &stage.last().fact else { panic!("committed") };
            assert_eq!((&*commitment.action, commitment.positive), ("task.failed", false));
        }
    }
}

mod a_decline {
    use super::*;

    #[test]
    fn macp_stays_open() {
        let mut stage = Stage::requested(Charter::macp());
        stage.ok("worker", decline());
        stage.ok("helper", decline());
        assert_eq!(stage.standing(), Standing::Requested);
    }

    // If nobody is left who could do it, the server cancels with reason no_assignee.
    #[test]
    fn mcp_settles_when_no_eligible_agent_is_left() {
        let mut stage = Stage::requested(Charter::mcp());
        stage.ok("worker", decline());
        assert_eq!(stage.standing(), Standing::Requested);
        stage.ok("helper", accept());
        stage.ok("helper", decline());
        let Lifecycle::Cancelled { by, reason } = &stage.session().lifecycle else { panic!("cancelled") };
        assert_eq!((by.agent(), &**reason), (None, "no_assignee"));
    }

    #[test]
    fn grid_settles_at_once() {
        let mut stage = Stage::conversation();
        stage.ok("worker", decline());
        assert_eq!(stage.standing(), Standing::ResolvedNegative);
    }
}

mod who_may_cancel {
    use super::*;

    #[test]
    fn macp_and_mcp_the_requester() {
        for charter in [Charter::macp(), Charter::mcp()] {
            let mut stage = Stage::working(charter);
            assert_eq!(stage.no("worker", cancel()), "NOT_REQUESTER");
            stage.ok("planner", cancel());
        }
    }

    #[test]
    fn grid_either_party() {
        for who in ["planner", "worker"] {
            Stage::working(Charter::grid()).ok(who, cancel());
        }
        assert_eq!(Stage::working(Charter::grid()).no("helper", cancel()), "NOT_REQUESTER");
    }
}

mod pause_and_resume {
    use super::*;

    #[test]
    fn everywhere_the_requester() {
        for charter in [Charter::macp(), Charter::mcp(), Charter::grid()] {
            let mut stage = Stage::waiting(charter);
            assert_eq!(stage.no("worker", pause()), "NOT_REQUESTER");
            stage.ok("planner", pause());
            assert_eq!(stage.no("worker", resume()), "NOT_REQUESTER");
            stage.ok("planner", resume());
        }
    }

    // RFC-MACP-0001 §7.5: the initiator, and those to whom the bound policy gives the authority.
    #[test]
    fn whom_the_policy_delegates_it_to_pauses_resumes_and_cancels() {
        let everybody = Authority::AnyParticipant;
        let auditor = Authority::Designated([agent("auditor")].into());
        for (authority, may, may_not) in [(everybody, "helper", "outsider"), (auditor, "auditor", "worker")] {
            let charter = || Charter { authority: authority.clone(), ..Charter::macp() };
            let mut stage = Stage::working(charter());
            for act in [pause(), resume(), cancel()] {
                let expected = if may_not == "outsider" { "NOT_PARTICIPANT" } else { "NOT_REQUESTER" };
                assert_eq!(stage.no(may_not, act), expected);
            }
            stage.ok(may, pause());
            stage.ok(may, resume());
            // The requester is never locked out of its own session.
            stage.ok("planner", pause());
            stage.ok(may, cancel());
            assert_eq!(stage.standing(), Standing::Cancelled);
            let mut own = Stage::working(charter());
            own.ok("planner", cancel());
        }
    }

    #[test]
    fn macp_takes_effect_at_once() {
        let mut stage = Stage::working(Charter::macp());
        stage.ok("planner", pause());
        assert_eq!(stage.standing(), Standing::Suspended);
    }

    #[test]
    fn mcp_and_grid_take_effect_at_the_next_safe_point() {
        for charter in [Charter::mcp(), Charter::grid()] {
            let mut stage = Stage::working(charter);
            stage.ok("planner", pause());
            assert_eq!(stage.standing(), Standing::Working);
            stage.ok("worker", checkpoint());
            assert_eq!(stage.standing(), Standing::Suspended);
        }
    }
}

mod reassignment_after_a_decline {
    use super::*;

    #[test]
    fn macp_as_the_policy_says() {
        let mut stage = Stage::working(Charter::macp());
        assert_eq!(stage.no("worker", decline()), "REASSIGNMENT_DENIED");
        let mut stage = Stage::working(Charter { reassignment: true, ..Charter::macp() });
        stage.ok("worker", decline());
        stage.ok("helper", accept());
    }

    #[test]
    fn mcp_to_another_eligible_agent() {
        let mut stage = Stage::working(Charter::mcp());
        stage.ok("worker", decline());
        stage.ok("helper", accept());
        // Nobody else was asked.
        let mut named = Stage::requested_of_worker(Charter::mcp());
        named.ok("worker", decline());
        assert_eq!(named.standing(), Standing::Cancelled);
    }

    #[test]
    fn grid_no() {
        let mut stage = Stage::requested_of_worker(Charter::grid());
        assert_eq!(stage.no("helper", accept()), "NOT_ELIGIBLE");
        stage.ok("worker", accept());
        stage.ok("worker", decline());
        assert_eq!(stage.standing(), Standing::ResolvedNegative, "nobody else could take it");
    }
}

mod check_in_window {
    use super::*;

    #[test]
    fn macp_and_mcp_none() {
        for charter in [Charter::macp(), Charter::mcp()] {
            let mut stage = Stage::requested(charter);
            assert_eq!(stage.wait(CHECK_IN_DEFAULT_MS).tick(), [""; 0]);
        }
    }

    #[test]
    fn grid_thirty_seconds() {
        assert_eq!(CHECK_IN_DEFAULT_MS, 30_000);
        assert_eq!(Stage::requested(Charter::grid()).wait(30_000).tick(), ["CheckInMissed"]);
    }
}

#[test]
fn the_suspension_cap_is_a_day_everywhere_and_a_macp_session_may_set_its_own() {
    for charter in [Charter::macp(), Charter::mcp(), Charter::grid()] {
        assert_eq!((charter.suspension_cap_ms, SUSPENSION_CAP_DEFAULT_MS), (86_400_000, 86_400_000));
    }
    let mut stage = Stage::working(Charter { suspension_cap_ms: 0, ..Charter::macp() });
    stage.ok("planner", pause());
    assert_eq!(stage.wait(1).tick(), ["Expired"]);
}

// Only a Grid task takes an act for an accept, a message for an answer, and the sender's word for the report.
#[test]
fn the_conversational_rules_are_grids_alone() {
    for charter in [Charter::macp(), Charter::mcp()] {
        assert_eq!(Stage::requested(charter.clone()).no("worker", update("so far")), "NOT_ASSIGNEE");
        let mut stage = Stage::waiting(charter.clone());
        stage.ok("planner", message("this"));
        assert_eq!(stage.standing(), Standing::WaitingInput);
        assert_eq!(Stage::working(charter).no("planner", commit_success()), "NOT_REPORTED");
    }
}

// The table itself, so that a change of it is seen.
#[test]
fn the_three_charters_differ_in_these_cells_and_no_others() {
    let macp = Charter::macp();
    assert_eq!(
        (macp.authority.clone(), macp.cancel, macp.pause),
        (Authority::Requester, Cancel::Requester, PauseAt::Once)
    );
    assert_eq!((macp.on_complete, macp.on_fail), (Settlement::Review, Settlement::Review));
    assert_eq!((macp.on_decline, macp.reassignment, macp.ends_pause), (OnDecline::StayOpen, false, false));
    let mcp = Charter {
        on_complete: Settlement::AtOnce,
        on_fail: Settlement::AtOnce,
        on_decline: OnDecline::CancelWhenNobodyLeft,
        pause: PauseAt::SafePoint,
        ends_pause: true,
        reassignment: true,
        ..macp.clone()
    };
    assert_eq!(Charter::mcp(), mcp);
    let grid = Charter {
        on_fail: Settlement::AtOnce,
        on_decline: OnDecline::FailAtOnce,
        cancel: Cancel::EitherParty,
        pause: PauseAt::SafePoint,
        ends_pause: true,
        acting_accepts: true,
        message_answers: true,
        commit_completes: true,
        notices: true,
        check_in_ms: Some(30_000),
        ..macp
    };
    assert_eq!(Charter::grid(), grid);
}

// The charter is bound at the start: what was said then is what holds.
#[test]
fn the_charter_is_stored_with_the_session() {
    let stage = Stage::task(Charter { reassignment: true, ..Charter::grid() });
    let Fact::Started(started) = &stage.log[0].fact else { panic!("started") };
    assert_eq!(started.start.charter, stage.session().binding.charter);
    assert_eq!(started.start.policy_version, Text::from("policy.default"));
}
