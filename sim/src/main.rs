//! `handover-sim`: many seeds, or one with its trace. A development tool, not shipped.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use handover_sim::disk::Faults;
use handover_sim::{Plant, run};

/// Run the real kernel and engine on a simulated clock and a store that fails.
#[derive(Parser)]
#[command(after_help = "Examples:
  handover-sim --seeds 2000          run seeds 0 to 1999 and say what happened
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
    let (mut several, mut witnessed, mut doubts, mut jumps) = (0, 0, 0, 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let report = run(seed, args.plant);
        if args.trace {
            _ = out.write_all(report.trace.as_bytes());
        }
        if let Some(what) = report.failure {
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
        several += u64::from(report.nodes > 1);
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
        "faults: {} commits refused, {} torn, {} late, {} answers lost, {} crashes, {} conflicts, {} reads failed, {} subscribers cut off",
        faults.refused,
        faults.torn,
        faults.late,
        faults.answers_lost,
        faults.crashes,
        faults.conflicts,
        faults.reads_failed,
        faults.cuts
    );
    _ = writeln!(
        out,
        "{several} worlds had several nodes, which settled {doubts} commits in doubt and fell behind {jumps} times; {witnessed} \
         answers that wrote nothing were not out of date"
    );
    ExitCode::SUCCESS
}
