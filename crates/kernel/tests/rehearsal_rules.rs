//! What would have happened under another charter (RFC-MACP-0012 §8.1).

mod stage;

use handover_kernel::charter::Authority;
use handover_kernel::rehearsal::{Outcome, rehearse};
use handover_kernel::session::Standing;
use handover_kernel::{Charter, Seq};
use stage::acts::*;
use stage::{Stage, agent};

fn done() -> Stage {
    let mut stage = Stage::working(Charter::macp());
    stage.ok("worker", update("so far"));
    stage.ok("worker", complete(""));
    stage.ok("planner", commit_success());
    stage
}

#[test]
fn under_its_own_charter_everything_happens_again() {
    let stage = done();
    let rehearsal = rehearse(&stage.id, &stage.log, &Charter::macp());
    assert_eq!(rehearsal.events.len(), stage.log.len());
    for event in &rehearsal.events {
        assert_eq!(event.candidate, Outcome::Accepted(event.recorded));
    }
    assert_eq!(rehearsal.session.as_ref(), Some(stage.session()));
    assert_eq!(rehearsal.settled_by, Some(stage.session().head));
}

#[test]
fn a_stricter_charter_refuses_where_it_is_stricter() {
    let stage = done();
    let strict = Charter { require_output: true, ..Charter::macp() };
    let rehearsal = rehearse(&stage.id, &stage.log, &strict);
    let refused: Vec<(Seq, &str)> = rehearsal
        .events
        .iter()
        .filter_map(|event| match &event.candidate {
            Outcome::Refused(refusal) => Some((event.seq, refusal.code())),
            Outcome::Accepted(_) | Outcome::NoSession => None,
        })
        .collect();
    assert_eq!(refused, [(stage.session().head, "OUTPUT_REQUIRED")]);
    assert_eq!(rehearsal.session.map(|session| session.standing()), Some(Standing::ReportedComplete));
    assert_eq!(rehearsal.settled_by, None);
}

#[test]
fn another_authority_is_refused_to_the_old_one() {
    let stage = done();
    let others = Authority::Designated([agent("helper")].into());
    let rehearsal = rehearse(&stage.id, &stage.log, &Charter { authority: others, ..Charter::macp() });
    let last = rehearsal.events.last().unwrap();
    assert!(matches!(&last.candidate, Outcome::Refused(refusal) if refusal.code() == "NOT_AUTHORITY"));
}

#[test]
fn a_charter_that_settles_at_once_settles_earlier() {
    let stage = done();
    let rehearsal = rehearse(&stage.id, &stage.log, &Charter::mcp());
    let completed = stage.the("Completed").seq;
    assert_eq!(rehearsal.settled_by, Some(completed));
    let last = rehearsal.events.last().unwrap();
    assert!(matches!(&last.candidate, Outcome::Refused(refusal) if refusal.code() == "SESSION_ENDED"));
}

#[test]
fn nothing_of_the_session_changes() {
    let stage = done();
    let before = stage.session().clone();
    rehearse(&stage.id, &stage.log, &Charter::grid());
    assert_eq!(*stage.session(), before);
}
