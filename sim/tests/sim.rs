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
    for seed in 0..150 {
        let report = run(seed, None);
        assert_eq!(report.failure, None, "repeat it with: handover-sim --seed {seed} --trace");
        faults.add(&report.faults);
        kept += report.kept;
        reused += report.reused;
        counted += report.counted;
        spent += report.spent;
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
    assert!(kept > 1_000, "{kept} sessions were loaded from snapshots");
}

#[test]
fn every_planted_bug_is_caught() {
    for plant in Plant::ALL {
        let caught = (0..200).find(|seed| run(*seed, Some(plant)).failure.is_some());
        assert!(caught.is_some(), "{plant} was not caught in 200 seeds");
    }
}
