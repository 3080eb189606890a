//! `handover bench`: how fast it is here, beside the limit of the same machine in the same run.
//!
//! - [`engine`]: `handover bench engine`
//! - [`limit`]: the physical limit: one file, one sync for whatever waits
//! - [`life`]: the work that is measured
//! - [`machine`]: what the machine says about this process

mod engine;
mod life;
mod limit;
mod machine;

use crate::Failure;

/// What `handover bench` can be told.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the engine on the embedded store, beside the limit of the disk.
    Engine(engine::Args),
}

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Engine(args) => engine::run(args),
    }
}

/// The middle of some numbers, 0 if there are none.
fn median(mut numbers: Vec<f64>) -> f64 {
    quantile(&mut numbers, 0.5)
}

/// The number below which this share of them lies.
fn quantile(numbers: &mut [f64], share: f64) -> f64 {
    if numbers.is_empty() {
        return 0.0;
    }
    numbers.sort_by(f64::total_cmp);
    let index = (share * (numbers.len() - 1) as f64).round() as usize;
    numbers[index]
}
