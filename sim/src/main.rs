//! `handover-sim`: many seeds, or one with its trace. A development tool, not shipped.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use handover_sim::disk::Faults;
use handover_sim::{Plant, Worlds, run};

/// For how many worlds that must have everything there must be a commit that comes after its node has crashed.
const LATE_AFTER_CRASH_EACH: u64 = 50;

/// Run the real kernel and engine on a simulated clock and a store that fails.
#[derive(Parser)]
#[command(after_help = "Examples:
  handover-sim --seeds 2000          run seeds 0 to 1999 and say what happened
  handover-sim --seeds 3500 --worlds 1000
                                     fail if too little went wrong
  handover-sim --seed 17 --trace     run one seed and print everything that happened
  handover-sim --plant skip-sync     put a bug in and see it caught")]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this one only.
    #[arg(long)]
    seed: Option<u64>,
    /// Print everything that happened.
    #[arg(long)]
    trace: bool,
    /// Fail unless so many worlds of several nodes had conflicts, commits in doubt and nodes that lost their slots, all of it.
    #[arg(long, default_value_t = 0)]
    worlds: u64,
    /// Put this bug in.
    #[arg(long)]
    plant: Option<Plant>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seeds = match args.seed {
        Some(seed) => seed..seed + 1,
        None => args.from..args.from + args.seeds,
    };
    let mut out = std::io::stdout().lock();
    let mut faults = Faults::default();
    let (mut accepted, mut refused, mut reused, mut events, mut ended, mut kept) = (0, 0, 0, 0, 0, 0);
    let (mut worlds, mut witnessed, mut doubts, mut jumps) = (Worlds::default(), 0, 0, 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let report = run(seed, args.plant);
        if args.trace {
            _ = out.write_all(report.trace.as_bytes());
        }
        if let Some(what) = &report.failure {
            let plant = args.plant.map_or_else(String::new, |plant| format!(" --plant {plant}"));
            _ = writeln!(out, "seed {seed} failed: {what}");
            _ = writeln!(out, "repeat it with: handover-sim --seed {seed} --trace{plant}");
            return ExitCode::FAILURE;
        }
        faults.add(&report.faults);
        accepted += report.accepted;
        refused += report.refused;
        reused += report.reused;
        events += report.events;
        ended += report.ended;
        kept += report.kept;
        worlds.add(&report);
        witnessed += report.witnessed;
        doubts += report.doubts;
        jumps += report.jumps;
    }
    _ = writeln!(
        out,
        "{count} seeds: {accepted} operations accepted, {refused} refused ({reused} for a used id), {events} events, \
         {ended} sessions ended, \
         {kept} loaded from snapshots"
    );
    _ = writeln!(
        out,
        "faults: {} commits refused, {} torn, {} late ({} after their node had crashed), {} answers lost, {} crashes, {} conflicts, \
         {} reads failed, {} subscribers cut off, {} moved",
        faults.refused,
        faults.torn,
        faults.late,
        faults.late_after_crash,
        faults.answers_lost,
        faults.crashes,
        faults.conflicts,
        faults.reads_failed,
        faults.cuts,
        faults.moves
    );
    _ = writeln!(
        out,
        "among several nodes: {} pauses, {} connections cut, {} slots lost ({} taken back), {} hints lost, {} late, {} merged, \
         {doubts} commits in doubt settled, {jumps} nodes fell behind; {witnessed} answers that wrote nothing were not out of date",
        faults.pauses,
        faults.disconnected,
        faults.fenced,
        faults.retook,
        faults.hints_lost,
        faults.hints_late,
        faults.hints_merged
    );
    _ = writeln!(
        out,
        "{} worlds had several nodes: {} conflicts, {} commits in doubt, {} slots lost, {} all of it",
        worlds.several, worlds.conflicts, worlds.doubts, worlds.fenced, worlds.all
    );
    if worlds.all < args.worlds || faults.late_after_crash * LATE_AFTER_CRASH_EACH < args.worlds {
        let late = args.worlds.div_ceil(LATE_AFTER_CRASH_EACH);
        _ = writeln!(
            out,
            "expected all of it in at least {} worlds, and at least {late} commits that came after their node had crashed: too \
             little went wrong",
            args.worlds
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
