//! What needs an approval before it takes effect, one test for each rule.

mod stage;

use std::sync::Arc;

use handover_kernel::approval::{Approvals, Changes, NOT_APPROVED, Proposed, Ruling};
use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, ModeKind};
use handover_kernel::event::Fact;
use handover_kernel::id::Text;
use handover_kernel::session::{Lifecycle, Standing};
use handover_kernel::{Face, Refusal, Seq};
use stage::acts::*;
use stage::{Stage, agent, start};

fn guarded(opening: &[&str], commitment: &[&str], charter: Charter) -> Charter {
    let agents = |names: &[&str]| names.iter().map(|name| agent(name)).collect();
    let approvals = Approvals { opening: agents(opening), commitment: agents(commitment) };
    Charter { approvals: Some(Arc::new(approvals)), ..charter }
}

/// A task that was handed to `worker` and waits for the approval of `lead`.
fn held() -> Stage {
    let mut stage = Stage { face: Face::Mcp, ..Stage::empty() };
    let begin = start(ModeKind::Task, guarded(&["lead"], &[], Charter::mcp()));
    stage.ok("planner", delegate(begin, Some("worker")));
    stage
}

fn decide(proposal: u64, ruling: Ruling) -> Act {
    Act::Decide { proposal: Seq(proposal), ruling }
}

fn approve(proposal: u64) -> Act {
    decide(proposal, Ruling::Approved(Changes::default()))
}

fn reject(proposal: u64) -> Act {
    decide(proposal, Ruling::Rejected(Text::from("not now")))
}

fn ask_changes(proposal: u64) -> Act {
    decide(proposal, Ruling::ChangesAsked(Text::from("smaller")))
}

#[test]
fn a_delegation_is_proposed_decided_and_takes_effect_in_facts_of_their_own() {
    let mut stage = held();
    assert_eq!(stage.story(), ["Proposed"]);
    assert_eq!(stage.standing(), Standing::Pending);
    assert_eq!(stage.session().approvers(), [agent("lead")]);
    assert_eq!(stage.no("planner", steer("left")), "NOT_REQUESTED");
    stage.ok("lead", approve(2));
    assert_eq!(stage.story(), ["Proposed", "Decided", "Requested"]);
    assert_eq!((stage.author_of("Decided"), stage.author_of("Requested")), (Some("lead"), Some("planner")));
    assert!(stage.session().proposal.is_none() && stage.session().approvers().is_empty());
    stage.ok("worker", accept());
}

#[test]
fn until_then_nobody_else_knows_of_it() {
    let mut stage = held();
    for who in ["worker", "helper", "outsider"] {
        assert!(!stage.session().involves(&agent(who)), "{who}");
        assert_eq!(stage.no(who, accept()), "NOT_PARTICIPANT", "{who}");
    }
    stage.ok("lead", approve(2));
    assert!(stage.session().involves(&agent("worker")) && stage.session().involves(&agent("lead")));
    // Who is not approved stays unknown, also after the end.
    let mut stage = held();
    stage.ok("lead", reject(2));
    assert!(!stage.session().involves(&agent("worker")));
}

#[test]
fn an_approver_may_change_what_it_approves_and_only_that() {
    let mut stage = held();
    let changes = Changes { instructions: Some(Text::from("in small steps")), ..Changes::default() };
    stage.ok("lead", decide(2, Ruling::Approved(changes)));
    let Fact::Requested(request) = &stage.the("Requested").fact else { panic!() };
    assert_eq!((&*request.instructions, &request.title), ("in small steps", &work(None).title));
    let mut stage = held();
    let reason = Changes { reason: Some(Text::from("so")), ..Changes::default() };
    assert_eq!(stage.no("lead", decide(2, Ruling::Approved(reason))), "INVALID");
    assert!(stage.session().proposal.as_ref().is_some_and(|proposal| proposal.is_open()));
}

#[test]
fn a_rejected_opening_ends_the_session() {
    let mut stage = held();
    assert_eq!(stage.no("lead", decide(2, Ruling::Rejected(Text::from(" ")))), "INVALID");
    stage.ok("lead", reject(2));
    assert_eq!(stage.story(), ["Proposed", "Decided", "Cancelled"]);
    let Lifecycle::Cancelled { reason, .. } = &stage.session().lifecycle else { panic!() };
    assert_eq!(&**reason, NOT_APPROVED);
    assert!(stage.session().was_not_approved());
    // Whoever cancels may give any reason.
    let mut stage = held();
    stage.ok("planner", Act::cancel(NOT_APPROVED));
    assert!(!stage.session().was_not_approved());
}

#[test]
fn where_changes_are_asked_for_the_requester_proposes_again() {
    let mut stage = held();
    stage.ok("lead", ask_changes(2));
    assert_eq!(stage.no("planner", request(Some("worker"))), "NOT_APPROVED", "the very same");
    stage.ok("planner", request(Some("helper")));
    assert_eq!(stage.story(), ["Proposed", "Decided", "Proposed"]);
    assert_eq!(stage.no("lead", approve(2)), "NO_PROPOSAL", "another took its place");
    stage.ok("lead", approve(4));
    assert_eq!(stage.the_task().phase.request().unwrap().assignee, Some(agent("helper")));
}

#[test]
fn only_approvers_decide_and_nobody_about_its_own() {
    let mut stage = held();
    assert_eq!(stage.no("planner", approve(2)), "NOT_APPROVER");
    assert_eq!(stage.no("worker", approve(2)), "NOT_PARTICIPANT");
    assert_eq!(stage.no("lead", approve(1)), "NO_PROPOSAL");
    let mut own = Stage { face: Face::Mcp, ..Stage::empty() };
    let begin = start(ModeKind::Task, guarded(&["planner", "lead"], &[], Charter::mcp()));
    own.ok("planner", delegate(begin, None));
    assert_eq!(own.no("planner", approve(2)), "NOT_APPROVER");
    own.ok("lead", approve(2));
    stage.ok("lead", ask_changes(2));
    assert_eq!(stage.no("lead", approve(2)), "ALREADY_DECIDED");
}

#[test]
fn where_what_is_accepted_is_seen_at_once_it_is_refused_until_it_is_approved() {
    let mut stage = Stage::task(guarded(&["lead"], &[], Charter::macp()));
    let named = |stage: &mut Stage| stage.named("planner", "m1", request(Some("worker")));
    assert_eq!(named(&mut stage), Err(Refusal::ApprovalNeeded { proposal: Seq(2) }));
    assert_eq!(stage.story(), ["Proposed"]);
    assert_eq!(named(&mut stage), Err(Refusal::ApprovalNeeded { proposal: Seq(2) }), "it is there already");
    assert_eq!(stage.story(), ["Proposed"]);
    stage.ok("lead", approve(2));
    assert_eq!(stage.story(), ["Proposed", "Decided"]);
    assert!(stage.session().is_held_back());
    assert!(matches!(stage.no("planner", request(None)), "APPROVAL_NEEDED"), "that is another one");
    stage.ok("lead", approve(4));
    assert_eq!(
        named(&mut stage),
        Err(Refusal::ApprovalNeeded { proposal: Seq(6) }),
        "in the place of the first"
    );
    stage.ok("lead", approve(6));
    assert!(!named(&mut stage).unwrap().duplicate);
    assert_eq!(stage.the("Requested").ordinal, stage.session().ordinal.into());
}

#[test]
fn an_offer_is_held_with_its_context() {
    let mut stage = Stage { face: Face::Mcp, ..Stage::handoff(guarded(&["lead"], &[], Charter::macp())) };
    stage.ok("planner", offer_with("all of it", "h1", "worker"));
    assert!(!stage.session().involves(&agent("worker")));
    stage.ok("lead", approve(2));
    assert_eq!(stage.story(), ["Proposed", "Decided", "Offered", "ContextAdded"]);
    stage.ok("worker", take("h1"));
}

#[test]
fn a_commitment_waits_for_its_approval_and_a_rejected_one_leaves_the_task_as_it_was() {
    let charter = guarded(&[], &["lead"], Charter::macp());
    let mut stage = Stage { face: Face::Mcp, ..Stage::working(charter) };
    stage.ok("worker", complete("42"));
    stage.ok("planner", commit_success());
    assert_eq!(stage.standing(), Standing::ReportedComplete);
    stage.ok("lead", reject(5));
    assert_eq!(stage.standing(), Standing::ReportedComplete);
    assert_eq!(stage.no("planner", commit_success()), "NOT_APPROVED");
    stage.ok("planner", commit_failure());
    stage.ok("lead", approve(7));
    assert_eq!(stage.standing(), Standing::ResolvedNegative);
}

#[test]
fn what_the_charter_settles_by_itself_waits_if_it_is_a_success() {
    let charter = guarded(&[], &["lead"], Charter::mcp());
    let mut stage = Stage { face: Face::Mcp, ..Stage::working(charter.clone()) };
    stage.ok("worker", complete("42"));
    assert_eq!(stage.story()[2..], ["Completed", "Proposed"]);
    assert_eq!(stage.author_of("Proposed"), Some("planner"));
    stage.ok("lead", approve(5));
    assert_eq!(stage.standing(), Standing::ResolvedPositive);
    let mut failing = Stage { face: Face::Mcp, ..Stage::working(charter) };
    failing.ok("worker", fail("no"));
    assert_eq!(failing.standing(), Standing::ResolvedNegative);
}

#[test]
fn completing_a_conversation_waits_whole() {
    let participants = ["planner", "worker"].map(agent).to_vec();
    let begin = start(ModeKind::Task, guarded(&[], &["lead"], Charter::grid()));
    let begin = handover_kernel::command::Start { participants, ..begin };
    let mut stage = Stage { face: Face::Grid, ..Stage::empty() };
    stage.ok("planner", delegate(begin, Some("worker")));
    stage.ok("worker", hand_in("done"));
    stage.ok("planner", commit_success());
    assert_eq!(stage.count("Completed"), 0);
    let proposal = stage.last().seq.0;
    stage.ok("lead", approve(proposal));
    assert_eq!(stage.story()[3..], ["Proposed", "Decided", "Completed", "Committed"]);
    // Both hear of it: neither has done it.
    for party in
        [handover_kernel::conversation::Party::Requester, handover_kernel::conversation::Party::Receiver]
    {
        let unread = &stage.the_task().conversation.side(party).unread;
        assert!(unread.contains(&stage.the("Committed").seq), "{party:?}");
    }
}

#[test]
fn an_approval_that_came_too_late_is_refused_with_what_stands_in_the_way() {
    let mut stage = held();
    stage.ok("planner", cancel());
    assert_eq!(stage.no("lead", approve(2)), "SESSION_ENDED");
    let mut paused = held();
    paused.ok("planner", pause());
    assert_eq!(paused.no("lead", approve(2)), "SESSION_SUSPENDED");
}

#[test]
fn a_proposal_sent_again_is_the_same_one() {
    let mut stage = Stage { face: Face::Mcp, ..Stage::task(guarded(&["lead"], &[], Charter::mcp())) };
    stage.named("planner", "k", request(None)).unwrap();
    assert!(stage.named("planner", "k", request(None)).unwrap().duplicate);
    assert!(!stage.named("planner", "k2", request(None)).unwrap().changed);
    let command = stage.command("planner", request(None)).with_id("k");
    let binding = &stage.session().binding;
    assert!(command.repeats(binding, &stage.log[1..]));
    let other = stage.command("planner", request(Some("worker"))).with_id("k");
    assert!(!other.repeats(binding, &stage.log[1..]));
    let Fact::Proposed { what, .. } = &stage.the("Proposed").fact else { panic!() };
    assert_eq!(**what, Proposed::Request(work(None)));
}

#[test]
fn proposals_without_an_effect_have_an_end() {
    let stage = Stage { face: Face::Mcp, ..Stage::task(guarded(&["lead"], &[], Charter::mcp())) };
    let mut stage = stage.with_limits(|limits| limits.proposals_max = 2);
    for worker in ["worker", "helper"] {
        stage.ok("planner", request(Some(worker)));
    }
    assert_eq!(stage.no("planner", request(None)), "TOO_MANY_PROPOSALS");
    stage.ok("lead", approve(3));
}
