//! The rules of the handoff mode, RFC-MACP-0010, one test for each.

mod stage;

use handover_kernel::charter::Authority;
use handover_kernel::command::{HandoffAct, ModeKind};
use handover_kernel::event::Fact;
use handover_kernel::handoff::{OfferAnswer, task_of_scope};
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{Act, AgentId, Charter, Face, HandoffId, Ordinal, SessionId, Text};
use stage::acts::*;
use stage::{BEGIN, Stage, agent, start};

const TIMEOUT_MS: u64 = 10_000;

fn implicit() -> Charter {
    Charter { implicit_accept_ms: Some(TIMEOUT_MS), ..Charter::macp() }
}

fn declined_once() -> Stage {
    let mut stage = Stage::offered(Charter::macp());
    stage.ok("worker", turn_down("h1"));
    stage
}

fn accepted() -> Stage {
    let mut stage = Stage::offered(Charter::macp());
    stage.ok("worker", take("h1"));
    stage
}

// RFC-MACP-0010 §2, §3: delegated; the owner is a participant, and so is somebody who could take over.
#[test]
fn a_handoff_needs_its_owner_and_somebody_else() {
    let mut without_owner = start(ModeKind::Handoff, Charter::macp());
    without_owner.participants = vec![agent("worker"), agent("helper")];
    assert_eq!(Stage::empty().no("planner", Act::Start(Box::new(without_owner))), "INVALID");

    let mut alone = start(ModeKind::Handoff, Charter::macp());
    alone.participants = vec![agent("planner")];
    assert_eq!(Stage::empty().no("planner", Act::Start(Box::new(alone))), "INVALID");
}

mod handoff_offer {
    use super::*;

    // RFC-MACP-0010 §2.1
    #[test]
    fn only_the_owner_offers() {
        let mut stage = Stage::handoff(Charter::macp());
        assert_eq!(stage.no("worker", offer("h1", "helper")), "NOT_REQUESTER");
        assert_eq!(stage.no("outsider", offer("h1", "worker")), "NOT_PARTICIPANT");
        stage.ok("planner", offer("h1", "worker"));
        assert_eq!(stage.standing(), Standing::Requested);
    }

    // RFC-MACP-0010 §5 rule 1
    #[test]
    fn an_offer_has_an_id_of_its_own() {
        let mut stage = declined_once();
        assert_eq!(stage.no("planner", offer("h1", "helper")), "HANDOFF_ID_USED");
        assert_eq!(stage.no("planner", offer("", "helper")), "INVALID");
        stage.ok("planner", offer("h2", "helper"));
    }

    // RFC-MACP-0010 §5 rule 1: the target is a participant and not the owner.
    #[test]
    fn the_target_is_another_participant() {
        let mut stage = Stage::handoff(Charter::macp());
        assert_eq!(stage.no("planner", offer("h1", "outsider")), "INVALID");
        assert_eq!(stage.no("planner", offer("h1", "planner")), "INVALID");
    }

    // RFC-MACP-0010 §5 rule 3a
    #[test]
    fn who_declined_in_this_session_is_not_asked_again() {
        let mut stage = declined_once();
        assert_eq!(stage.no("planner", offer("h2", "worker")), "TARGET_DECLINED");
        stage.ok("planner", offer("h2", "helper"));
    }

    // RFC-MACP-0010 §5 rule 5: serial offers, one at a time.
    #[test]
    fn one_offer_is_outstanding_at_a_time() {
        let mut stage = Stage::offered(Charter::macp());
        assert_eq!(stage.no("planner", offer("h2", "helper")), "OFFER_OUTSTANDING");
        stage.ok("worker", turn_down("h1"));
        stage.ok("planner", offer("h2", "helper"));
        assert_eq!(stage.session().handoff().unwrap().outstanding().unwrap().handoff.as_str(), "h2");
    }

    // RFC-MACP-0010 §5 rules 4 and 5
    #[test]
    fn after_an_accept_there_is_no_other_offer() {
        assert_eq!(accepted().no("planner", offer("h2", "helper")), "OFFER_ACCEPTED");
    }
}

mod beginning {
    use super::*;

    #[test]
    fn a_handoff_starts_together_with_its_offer_and_context() {
        let mut stage = Stage::empty();
        stage.ok("planner", begin_handoff(start(ModeKind::Handoff, Charter::macp()), "worker"));
        assert_eq!(stage.standing(), Standing::Requested);
        assert_eq!((stage.count("Started"), stage.count("Offered"), stage.count("ContextAdded")), (1, 1, 1));
        assert_eq!(stage.no("planner", offer("h2", "helper")), "OFFER_OUTSTANDING");
    }

    #[test]
    fn an_offer_that_cannot_be_made_starts_nothing() {
        let mut stage = Stage::empty();
        let handoff = || start(ModeKind::Handoff, Charter::macp());
        for target in ["outsider", "planner"] {
            assert_eq!(stage.no("planner", begin_handoff(handoff(), target)), "INVALID");
        }
        let task = start(ModeKind::Task, Charter::mcp());
        assert_eq!(stage.no("planner", begin_handoff(task, "worker")), "WRONG_MODE");
        assert!(stage.slot.is_none());
    }
}

mod handoff_context {
    use super::*;

    // RFC-MACP-0010 §2.1
    #[test]
    fn only_the_owner_attaches_context() {
        let mut stage = Stage::offered(Charter::macp());
        assert_eq!(stage.no("worker", context("h1")), "NOT_REQUESTER");
        assert_eq!(stage.no("outsider", context("h1")), "NOT_PARTICIPANT");
        stage.ok("planner", context("h1"));
    }

    // RFC-MACP-0010 §5 rule 2
    #[test]
    fn context_belongs_to_an_existing_offer() {
        let mut stage = Stage::handoff(Charter::macp());
        assert_eq!(stage.no("planner", context("h1")), "UNKNOWN_HANDOFF");
        stage.ok("planner", offer("h1", "worker"));
        assert_eq!(stage.no("planner", context("h2")), "UNKNOWN_HANDOFF");
    }

    // RFC-MACP-0010 §2.1: late context is documentation.
    #[test]
    fn late_context_is_kept_and_changes_nothing() {
        let mut stage = accepted();
        stage.ok("planner", context("h1"));
        assert_eq!(stage.standing(), Standing::ReportedComplete);
        assert_eq!(stage.session().handoff().unwrap().offers[0].contexts, 1);
        let mut declined = declined_once();
        declined.ok("planner", offer("h2", "helper"));
        declined.ok("planner", context("h1"));
        assert_eq!(declined.session().handoff().unwrap().offers[0].contexts, 1);
        assert_eq!(declined.session().handoff().unwrap().offers[1].contexts, 0);
    }
}

mod handoff_offer_with_context {
    use super::*;

    fn place(stage: &Stage, name: &str) -> Option<u64> {
        stage.the(name).ordinal.map(|ordinal| ordinal.0)
    }

    #[test]
    fn an_offer_and_its_context_are_one_act_and_two_envelopes() {
        let mut stage = Stage::handoff(Charter::macp());
        let receipt = stage.ok("planner", offer_with("the runbook", "h1", "worker"));
        assert_eq!(stage.story(), ["Offered", "ContextAdded"]);
        assert_eq!((place(&stage, "Offered"), place(&stage, "ContextAdded")), (Some(2), Some(3)));
        assert_eq!(stage.author_of("ContextAdded"), Some("planner"));
        assert_eq!(receipt.seq, stage.the("Offered").seq, "the answer speaks of the offer");
        let offers = &stage.session().handoff().unwrap().offers;
        assert_eq!((offers.len(), offers[0].contexts), (1, 1));
    }

    #[test]
    fn a_refused_offer_leaves_no_context() {
        let mut stage = Stage::offered(Charter::macp());
        assert_eq!(stage.no("planner", offer_with("the runbook", "h2", "helper")), "OFFER_OUTSTANDING");
        assert_eq!(stage.no("worker", offer_with("the runbook", "h2", "helper")), "NOT_REQUESTER");
        assert_eq!(stage.count("ContextAdded"), 0);
    }

    #[test]
    fn an_offer_whose_context_has_no_room_is_not_made() {
        let mut stage = Stage::handoff(Charter::macp()).with_limits(|limits| limits.log_events_max = 2);
        assert_eq!(stage.no("planner", offer_with("the runbook", "h1", "worker")), "LOG_FULL");
        assert_eq!(stage.count("Offered"), 0);
        stage.ok("planner", offer("h1", "worker"));
    }

    // RFC-MACP-0001: the same message id twice has one effect.
    #[test]
    fn a_retried_offer_with_context_is_one_duplicate() {
        let mut stage = Stage::handoff(Charter::macp());
        let act = || offer_with("the runbook", "h1", "worker");
        let first = stage.named("planner", "m1", act()).unwrap();
        let second = stage.wait(5).named("planner", "m1", act()).unwrap();
        assert_eq!((second.seq, second.at, second.duplicate), (first.seq, first.at, true));
        assert_eq!(stage.story(), ["Offered", "ContextAdded"]);
        assert_eq!(stage.the("ContextAdded").id, None);
    }

    #[test]
    fn more_context_may_follow() {
        let mut stage = Stage::handoff(Charter::macp());
        stage.ok("planner", offer_with("the runbook", "h1", "worker"));
        stage.ok("planner", context("h1"));
        assert_eq!(stage.session().handoff().unwrap().offers[0].contexts, 2);
    }
}

mod handoff_answers {
    use super::*;

    // RFC-MACP-0010 §5 rule 3
    #[test]
    fn only_the_target_answers() {
        let mut stage = Stage::offered(Charter::macp());
        for who in ["helper", "planner"] {
            assert_eq!(stage.no(who, take("h1")), "NOT_TARGET");
            assert_eq!(stage.no(who, turn_down("h1")), "NOT_TARGET");
        }
        assert_eq!(stage.no("outsider", take("h1")), "NOT_PARTICIPANT");
        stage.ok("worker", take("h1"));
        assert_eq!(stage.standing(), Standing::ReportedComplete);
    }

    // RFC-MACP-0010 §5 rule 2
    #[test]
    fn an_answer_refers_to_an_existing_offer() {
        let mut stage = Stage::offered(Charter::macp());
        assert_eq!(stage.no("worker", take("h2")), "UNKNOWN_HANDOFF");
        assert_eq!(stage.no("worker", turn_down("h2")), "UNKNOWN_HANDOFF");
    }

    // RFC-MACP-0010 §5 rule 4
    #[test]
    fn an_offer_is_answered_once() {
        let mut taken = accepted();
        assert_eq!(taken.no("worker", take("h1")), "OFFER_CLOSED");
        assert_eq!(taken.no("worker", turn_down("h1")), "OFFER_CLOSED");
        let mut refused = declined_once();
        assert_eq!(refused.no("worker", take("h1")), "OFFER_CLOSED");
        assert_eq!(refused.no("worker", turn_down("h1")), "OFFER_CLOSED");
    }

    // RFC-MACP-0010 §4: accepted_by and declined_by are empty or the sender.
    #[test]
    fn an_answer_names_its_sender_rightly() {
        let mut stage = Stage::offered(Charter::macp());
        let by = |who: &str| Some(AgentId::from(who));
        let handoff = || HandoffId::from("h1");
        let taking = |who| {
            let reason = Text::default();
            Act::Handoff(HandoffAct::Accept { handoff: handoff(), by: by(who), reason, implicit: false })
        };
        let refusing = |who| {
            Act::Handoff(HandoffAct::Decline { handoff: handoff(), by: by(who), reason: Text::default() })
        };
        assert_eq!(stage.no("worker", taking("helper")), "INVALID");
        assert_eq!(stage.no("worker", refusing("helper")), "INVALID");
        stage.ok("worker", taking("worker"));
    }
}

mod commitment {
    use super::*;

    // RFC-MACP-0010 §6
    #[test]
    fn nothing_is_committed_before_an_offer_is_answered() {
        let mut stage = Stage::handoff(Charter::macp());
        assert_eq!(stage.no("planner", commit_no_transfer()), "NOT_ANSWERED");
        stage.ok("planner", offer("h1", "worker"));
        assert_eq!(stage.no("planner", commit_transfer()), "NOT_ANSWERED");
        assert_eq!(stage.no("planner", commit_no_transfer()), "NOT_ANSWERED");
    }

    // RFC-MACP-0010 §6
    #[test]
    fn the_owner_commits_what_was_answered() {
        let mut stage = accepted();
        assert_eq!(stage.no("worker", commit_transfer()), "NOT_AUTHORITY");
        assert_eq!(stage.no("outsider", commit_transfer()), "NOT_PARTICIPANT");
        stage.ok("planner", commit_transfer());
        assert_eq!(stage.standing(), Standing::ResolvedPositive);

        let mut declined = declined_once();
        declined.ok("planner", commit_no_transfer());
        assert_eq!(declined.standing(), Standing::ResolvedNegative);
    }

    // RFC-MACP-0010 §6: a negative outcome is allowed, also of an offer that was accepted.
    #[test]
    fn the_owner_may_commit_a_failure_after_an_accept() {
        let mut stage = accepted();
        stage.ok("planner", commit_no_transfer());
        assert_eq!(stage.standing(), Standing::ResolvedNegative);
    }

    // RFC-MACP-0010 §5 rule 5: what is still outstanding cannot be committed as a success.
    #[test]
    fn a_success_waits_for_the_outstanding_offer() {
        let mut stage = declined_once();
        stage.ok("planner", offer("h2", "helper"));
        assert_eq!(stage.no("planner", commit_transfer()), "OFFER_OUTSTANDING");
        stage.ok("planner", commit_no_transfer());
    }

    // RFC-MACP-0012 commitment.authority
    #[test]
    fn the_policy_says_who_commits() {
        let authority = Authority::Designated([agent("worker")].into());
        let mut stage = Stage::offered(Charter { authority, ..Charter::macp() });
        stage.ok("worker", take("h1"));
        assert_eq!(stage.no("planner", commit_transfer()), "NOT_AUTHORITY");
        stage.ok("worker", commit_transfer());
    }

    // RFC-MACP-0010 §5 rule 5
    #[test]
    fn one_commitment_resolves_the_session() {
        let mut stage = accepted();
        stage.ok("planner", commit_transfer());
        assert_eq!(stage.no("planner", commit_no_transfer()), "SESSION_ENDED");
        assert_eq!(stage.no("planner", context("h1")), "SESSION_ENDED");
    }
}

mod implicit_accept {
    use super::*;

    // RFC-MACP-0010 §5.1: sender, message id, flag, time, ordinal.
    #[test]
    fn the_runtime_accepts_for_a_silent_target() {
        let mut stage = Stage::offered(implicit());
        assert_eq!(stage.wait(TIMEOUT_MS - 1).tick(), [""; 0]);
        assert_eq!(stage.wait(1).tick(), ["OfferAccepted"]);
        let event = stage.last();
        assert_eq!(event.author.agent(), Some(&agent("worker")));
        assert_eq!(event.id.as_ref().unwrap().as_str(), "implicit-accept:h1");
        assert_eq!((event.at, event.face), (BEGIN.plus(TIMEOUT_MS), Face::Runtime));
        assert_eq!(event.ordinal, Some(Ordinal(3)));
        assert!(matches!(&event.fact, Fact::OfferAccepted { implicit: true, .. }));
        let answer = stage.session().handoff().unwrap().accepted().unwrap().answer;
        assert_eq!(answer, OfferAnswer::Accepted { implicit: true });
        assert!(stage.session().activity.get(&agent("worker")).is_none());
    }

    // RFC-MACP-0010 §5.1: before any later message is judged, with the deadline as its time.
    #[test]
    fn it_stands_before_a_message_that_comes_too_late() {
        let mut stage = Stage::offered(implicit());
        assert_eq!(stage.wait(TIMEOUT_MS + 5).no("worker", turn_down("h1")), "OFFER_CLOSED");
        assert_eq!(stage.last().at, BEGIN.plus(TIMEOUT_MS));
        let mut committed = Stage::offered(implicit());
        committed.wait(TIMEOUT_MS).ok("planner", commit_transfer());
        assert_eq!(committed.story(), ["Offered", "OfferAccepted", "Committed"]);
    }

    // RFC-MACP-0010 §5.1: an answer in time is the target's own.
    #[test]
    fn an_answer_in_time_is_the_targets_own() {
        let mut stage = Stage::offered(implicit());
        stage.wait(TIMEOUT_MS - 1).ok("worker", turn_down("h1"));
        assert_eq!(stage.wait(TIMEOUT_MS).tick(), [""; 0]);
    }

    // RFC-MACP-0010 §5.1: suspended time does not count.
    #[test]
    fn suspended_time_does_not_count() {
        let mut stage = Stage::offered(implicit());
        stage.wait(4_000).ok("planner", pause());
        assert_eq!(stage.wait(TIMEOUT_MS * 5).tick(), [""; 0]);
        stage.ok("planner", resume());
        let due = stage.now.plus(TIMEOUT_MS - 4_000);
        assert_eq!(stage.session().wake_at(), Some(due));
        assert_eq!(stage.wait(TIMEOUT_MS - 4_000).tick(), ["OfferAccepted"]);
        assert_eq!(stage.last().at, due);
    }

    // RFC-MACP-0010 §5.1: each offer has its own time.
    #[test]
    fn the_next_offer_has_its_own_time() {
        let mut stage = Stage::offered(implicit());
        stage.wait(9_000).ok("worker", turn_down("h1"));
        stage.ok("planner", offer("h2", "helper"));
        assert_eq!(stage.session().wake_at(), Some(stage.now.plus(TIMEOUT_MS)));
    }

    // RFC-MACP-0010 §5.1: only the runtime accepts so, and only it uses those ids.
    #[test]
    fn a_client_can_neither_claim_nor_forge_one() {
        let mut stage = Stage::offered(implicit());
        let forged = Act::Handoff(HandoffAct::Accept {
            handoff: HandoffId::from("h1"),
            by: None,
            reason: Text::default(),
            implicit: true,
        });
        assert_eq!(stage.no("worker", forged), "INVALID");
        let named = stage.named("worker", "implicit-accept:h1", take("h1"));
        assert_eq!(named.unwrap_err().code(), "RESERVED_ID");
    }

    // RFC-MACP-0010 §5.1: at the end of the session's time nobody accepts any more.
    #[test]
    fn a_session_that_expires_first_accepts_nothing() {
        let mut begin = start(ModeKind::Handoff, implicit());
        begin.ttl_ms = Some(TIMEOUT_MS - 1);
        let mut stage = Stage::started(begin);
        stage.ok("planner", offer("h1", "worker"));
        assert_eq!(stage.wait(TIMEOUT_MS * 2).tick(), ["Expired"]);
    }

    #[test]
    fn without_a_timeout_an_offer_waits_for_ever() {
        let mut stage = Stage::offered(Charter::macp());
        stage.wait(stage::TTL_MS);
        assert_eq!(stage.tick(), [""; 0]);
        assert!(stage.session().handoff().unwrap().outstanding().is_some());
    }
}

#[test]
fn a_handoff_takes_no_messages_of_another_mode() {
    assert_eq!(Stage::offered(Charter::macp()).no("planner", request(None)), "WRONG_MODE");
    let answer = Stage::offered(Charter::macp()).runtime(offer("h2", "helper")).answer;
    assert_eq!(answer.unwrap_err().code(), "INVALID");
}

// The suspended handoff takes nothing of its mode, RFC-MACP-0001.
#[test]
fn a_suspended_handoff_takes_no_message_of_its_mode() {
    let mut stage = Stage::offered(Charter::macp());
    stage.ok("planner", pause());
    for (who, act) in [
        ("planner", offer("h2", "helper")),
        ("planner", context("h1")),
        ("worker", take("h1")),
        ("worker", turn_down("h1")),
        ("planner", commit_no_transfer()),
    ] {
        assert_eq!(stage.no(who, act), "SESSION_SUSPENDED");
    }
    stage.ok("planner", resume());
    stage.ok("worker", take("h1"));
    assert_eq!(stage.session().lifecycle, Lifecycle::Open);
}

#[test]
fn a_scope_may_name_a_running_task() {
    assert_eq!(task_of_scope("task:abc"), Some(SessionId::from("abc")));
    assert_eq!(task_of_scope("task:"), None);
    assert_eq!(task_of_scope("on call"), None);
}
