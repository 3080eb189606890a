//! The simulator itself: it repeats itself, it meets faults, and it fails when it should.

use handover_sim::disk::Faults;
use handover_sim::{Plant, run};

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
    let (mut several, mut witnessed, mut doubts, mut jumps) = (0, 0, 0, 0);
    for seed in 0..150 {
        let report = run(seed, None);
        assert_eq!(report.failure, None, "repeat it with: handover-sim --seed {seed} --trace");
        faults.add(&report.faults);
        kept += report.kept;
        reused += report.reused;
        counted += report.counted;
        spent += report.spent;
        several += u64::from(report.nodes > 1);
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
    assert!(several > 50, "{several} worlds had several nodes");
    assert!(doubts > 50 && jumps > 20, "{doubts} doubts were settled, {jumps} nodes fell behind");
    assert!(witnessed > 2_000, "{witnessed} answers were shown not to be out of date");
    assert!(kept > 1_000, "{kept} sessions were loaded from snapshots");
}

#[test]
fn every_planted_bug_is_caught() {
    for plant in Plant::ALL {
        let caught = (0..400).find(|seed| run(*seed, Some(plant)).failure.is_some());
        assert!(caught.is_some(), "{plant} was not caught in 400 seeds");
    }
}

#[test]
fn answers_from_memory_are_found_to_be_out_of_date() {
    let out_of_date = |seed| {
        let failure = run(seed, Some(Plant::SkipLook)).failure;
        failure.is_some_and(|what| what.ends_with("which is out of date"))
    };
    assert!((0..60).filter(|seed| out_of_date(*seed)).count() > 2);
}

/// Something that failed to be written turned up later, and memory went on without it.
#[test]
fn what_turns_up_late_is_not_hidden_by_memory() {
    assert_eq!(run(7_020_421, None).failure, None);
}

/// An event of another node was told before one of our own that it rested on: the answer to our append came later.
#[test]
fn what_others_did_is_not_told_before_what_it_rests_on() {
    assert_eq!(run(9_029_712, None).failure, None);
}
