//! The bytes of a kept session: what one release wrote, only a release of the same layout may read.

mod stage;

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_kernel::approval::{Approvals, Ruling};
use handover_kernel::budget::{Budget, Under};
use handover_kernel::charter::{Authority, CHECK_IN_DEFAULT_MS};
use handover_kernel::command::{Contract, ModeKind, Start};
use handover_kernel::{
    Act, Charter, Command, Face, SNAPSHOT_LAYOUT, Seq, Session, SessionId, Text, Timestamp,
};
use stage::acts::*;
use stage::{BEGIN, Stage, TTL_MS, agent, start};

/// Everything that a start can bind.
fn rich(mode: ModeKind, charter: Charter) -> Start {
    Start {
        sent_at: Some(Timestamp(BEGIN.0 - 7)),
        context_id: Text::from("ctx"),
        extension_keys: vec![Text::from("x")],
        parent: Some(SessionId::from("parent")),
        contract: Some(Arc::new(Contract {
            skill: Text::from("sum"),
            input: blob("{}"),
            output: blob("true"),
        })),
        under: Some(Arc::new(Under {
            root: SessionId::from("root"),
            depth: 2,
            deepest: Some(3),
            until: Some(BEGIN.plus(TTL_MS)),
            nested: 1,
        })),
        ..start(mode, charter)
    }
}

fn begun(face: Face, start: Start) -> Stage {
    let mut stage = Stage { face, ..Stage::empty() };
    stage.named("planner", "start", Act::Start(Box::new(start))).expect("it can start");
    stage
}

/// Sessions that have between them every part that a session can have.
fn gallery() -> Vec<Session> {
    let roles = BTreeSet::from([agent("planner"), agent("auditor")]);
    let charter = Charter {
        authority: Authority::Designated(roles),
        message_answers: false,
        implicit_accept_ms: Some(5),
        budget: Some(Arc::new(Budget {
            tasks: Some(3),
            depth: Some(1),
            time_ms: Some(TTL_MS),
            numbers: tokens(5),
        })),
        ..Charter::grid()
    };
    let mut waiting = begun(Face::Grid, rich(ModeKind::Task, charter));
    waiting.ok("planner", request(Some("worker")));
    waiting.ok("planner", set_key("planner/main"));
    waiting.ok("worker", message("on it"));
    waiting.ok("worker", update("so far"));
    waiting.put(&Command { used: tokens(2), ..waiting.command("worker", update("so far")) });
    waiting.runtime(reserve("child", 1));
    waiting.ok("planner", steer("left"));
    waiting.ok("planner", message_within("faster", CHECK_IN_DEFAULT_MS));
    waiting.ok("planner", pause_gently());
    let pausing = waiting.clone();
    waiting.ok("worker", ask("q1"));
    waiting.ok("planner", resume());
    waiting.ok("worker", ask_permission("q2"));
    waiting.ok("planner", answer("q1"));
    waiting.ok("worker", hand_in("page"));
    waiting.ok("planner", pause());

    let mut many = begun(Face::Macp, rich(ModeKind::Task, Charter::macp()));
    many.ok("planner", request(Some("worker")));
    many.ok("worker", accept());
    for number in 0..20 {
        let id = format!("0123abcd-4567-89ef-0123-4567890000{number:02}");
        many.named("worker", &id, update("so far")).expect("it is the assignee's");
    }
    many.put(&Command::runtime(add_child("child")).with_id("handover:errand:child:1"));
    let mut failed = many.clone();
    failed.ok("worker", fail("E1"));
    let mut reported = many.clone();
    reported.ok("worker", complete("page"));
    let mut resolved = reported.clone();
    resolved.ok("planner", commit_success());
    let mut cancelled = many.clone();
    cancelled.ok("planner", cancel());
    let mut expired = many.clone();
    expired.wait(TTL_MS + 1).tick();
    let mut declined = begun(Face::Mcp, rich(ModeKind::Task, Charter::mcp()));
    declined.ok("planner", request(None));
    declined.named("worker", "no", decline()).expect("it may decline");

    let mut offered = begun(Face::Macp, rich(ModeKind::Handoff, Charter::macp()));
    offered.ok("planner", offer_with("the runbook", "h1", "worker"));
    offered.ok("worker", turn_down("h1"));
    offered.ok("planner", offer_of("task:session-9", "h2", "helper"));
    let mut taken = offered.clone();
    taken.ok("helper", take("h2"));
    taken.ok("planner", commit_transfer());

    let lead = || vec![agent("lead")];
    let approvals = Approvals { opening: lead(), commitment: lead() };
    let guarded = Charter { approvals: Some(Arc::new(approvals)), ..Charter::mcp() };
    let mut proposed = begun(Face::Mcp, rich(ModeKind::Task, guarded));
    proposed.ok("planner", request(None));
    let mut refused = proposed.clone();
    let ruling = Ruling::ChangesAsked(Text::from("smaller"));
    refused.ok("lead", Act::Decide { proposal: Seq(2), ruling });

    let all = [
        waiting, pausing, many, failed, reported, resolved, cancelled, expired, declined, offered, taken,
        proposed, refused,
    ];
    all.iter().map(|stage| stage.session().clone()).collect()
}

/// FNV-1a, because it is short and the same everywhere.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

// If this fails, the layout of snapshots has changed: raise `SNAPSHOT_LAYOUT`, and then put the new numbers here.
#[test]
fn the_layout_of_a_snapshot_is_the_one_of_its_number() {
    let bytes = postcard::to_allocvec(&gallery()).expect("a session can be kept");
    assert_eq!((SNAPSHOT_LAYOUT, hash(&bytes)), (10, 16_620_337_741_812_119_195));
}

#[test]
fn a_session_is_read_back_as_it_was_kept() {
    for session in gallery() {
        let bytes = postcard::to_allocvec(&session).expect("a session can be kept");
        assert_eq!(postcard::from_bytes::<Session>(&bytes).as_ref(), Ok(&session));
    }
}
