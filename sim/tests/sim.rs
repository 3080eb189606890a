//! The simulator itself: it repeats itself, it meets faults, and it fails when it should.

use handover_sim::disk::Faults;
use handover_sim::{Plant, Worlds, run};

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        assert_eq!(run(seed, None).trace, run(seed, None).trace, "seed {seed}");
    }
}

#[test]
fn different_seeds_give_different_traces() {
    assert_ne!(run(1, None).trace, run(2, None).trace);
}

#[test]
fn nothing_is_lost_whatever_the_store_does() {
    let mut faults = Faults::default();
    let (mut kept, mut reused, mut counted, mut spent) = (0, 0, 0, 0);
    let (mut worlds, mut witnessed, mut doubts, mut jumps) = (Worlds::default(), 0, 0, 0);
    for seed in 0..150 {
        let report = run(seed, None);
        assert_eq!(report.failure, None, "repeat it with: handover-sim --seed {seed} --trace");
        faults.add(&report.faults);
        kept += report.kept;
        reused += report.reused;
        counted += report.counted;
        spent += report.spent;
        worlds.add(&report);
        witnessed += report.witnessed;
        doubts += report.doubts;
        jumps += report.jumps;
    }
    // A simulation that meets no faults shows nothing.
    assert!(faults.refused > 50, "{faults:?}");
    assert!(faults.torn > 50, "{faults:?}");
    assert!(faults.late > 50, "{faults:?}");
    assert!(faults.answers_lost > 50, "{faults:?}");
    assert!(faults.crashes > 200, "{faults:?}");
    assert!(faults.conflicts > 50, "{faults:?}");
    assert!(faults.reads_failed > 50, "{faults:?}");
    assert!(faults.cuts > 2, "{faults:?}");
    assert!(reused > 100, "{reused} operations were refused for a used id");
    assert!(counted > 50 && spent > 50, "{counted} tasks started under budgets, {spent} were refused");
    assert!(faults.pauses > 50 && faults.disconnected > 50, "{faults:?}");
    assert!(faults.fenced > 50 && faults.retook > 2, "{faults:?}");
    // Rare: make sim, which has more worlds, wants more of them.
    assert!(faults.late_after_crash > 0 && faults.moves > 200, "{faults:?}");
    assert!(faults.hints_lost > 200 && faults.hints_late > 200 && faults.hints_merged > 200, "{faults:?}");
    // As large a share as make sim must have, which is at least 1,000 with all of it.
    assert!(worlds.several > 50 && worlds.all > 35, "{worlds:?}");
    assert!(doubts > 50 && jumps > 20, "{doubts} doubts were settled, {jumps} nodes fell behind");
    assert!(witnessed > 2_000, "{witnessed} answers were shown not to be out of date");
    assert!(kept > 1_000, "{kept} sessions were loaded from snapshots");
}

#[test]
fn every_planted_bug_is_caught() {
    for plant in Plant::ALL {
        // A node that does not see that its slot was taken has a moment only, before it is told: begin where it is known to act.
        let from = if plant == Plant::TrustLease { 1_000 } else { 0 };
        let caught = (from..from + 1_500).find(|seed| run(*seed, Some(plant)).failure.is_some());
        assert!(caught.is_some(), "{plant} was not caught in 1,500 seeds");
    }
}

fn failures(plant: Plant, seeds: u64) -> Vec<String> {
    (0..seeds).filter_map(|seed| run(seed, Some(plant)).failure).collect()
}

#[test]
fn what_is_shown_from_memory_is_found_to_be_out_of_date() {
    let failures = failures(Plant::ReadFromMemory, 150);
    let found = |what: &&String| what.contains(" saw ") && what.ends_with("which is out of date");
    assert!(failures.iter().filter(found).count() > 2, "{failures:?}");
}

#[test]
fn refusals_from_memory_are_found_to_be_out_of_date() {
    let failures = failures(Plant::RefuseFromMemory, 100);
    let found = |what: &&String| what.contains(" was refused ") && what.ends_with("which is out of date");
    assert!(failures.iter().filter(found).count() > 2, "{failures:?}");
}

/// The network repeated a message: one copy was refused, and then another, decided in the same commit, was accepted.
#[test]
fn a_refusal_may_come_just_before_another_copy_is_accepted() {
    assert_eq!(run(31_010_491, None).failure, None);
}
