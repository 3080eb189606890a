//! A task with many updates: what the last ones cost beside the first ones.

use std::time::Instant;

use serde_json::{Value, json};

use super::crowd::Crowd;
use crate::Failure;
use crate::bench::macp::script::{CLOSING, Ids, OPENING, UPDATE};
use crate::bench::{machine, micros, quantile};

/// What a tenth of the updates cost, of all tasks together.
#[derive(Default)]
struct Tenth {
    micros: Vec<f64>,
    written: Option<u64>,
}

impl Tenth {
    fn mean(&self) -> f64 {
        self.micros.iter().sum::<f64>() / self.micros.len().max(1) as f64
    }

    fn summed_up(&mut self) -> Value {
        json!({
            "updates": self.micros.len(),
            "p50_us": quantile(&mut self.micros, 0.5),
            "mean_us": self.mean(),
            "written_bytes": self.written.map(|bytes| bytes as f64 / self.micros.len().max(1) as f64),
        })
    }
}

/// One task after the other, one update after the other. What is compared lies close together in time, so that whatever
/// else the machine does meets both alike.
pub async fn measure(crowd: &Crowd, tasks: usize, updates: usize, pid: &str) -> Result<Value, Failure> {
    let (mut first, mut last) = (Tenth::default(), Tenth::default());
    let (mut caller, script) = (crowd.first().caller, crowd.first().script);
    let tenth = updates / 10;
    let mut ids = Ids::new();
    for _ in 0..tasks {
        let session_id = ids.next();
        for line in &script.lines()[..OPENING] {
            caller.send(&script, line, &session_id, &mut ids).await?;
        }
        let mut before = machine::written_bytes(pid);
        for update in 0..updates {
            let part = match update {
                update if update < tenth => Some(&mut first),
                update if update >= updates - tenth => Some(&mut last),
                _ => None,
            };
            if update == updates - tenth {
                before = machine::written_bytes(pid);
            }
            let begun = Instant::now();
            caller.send(&script, &script.lines()[UPDATE], &session_id, &mut ids).await?;
            let Some(part) = part else { continue };
            part.micros.push(micros(begun));
            if update + 1 == tenth || update + 1 == updates {
                let written = machine::written_bytes(pid).zip(before).map(|(now, before)| now - before);
                part.written = written.map(|written| part.written.unwrap_or_default() + written);
            }
        }
        for line in &script.lines()[CLOSING..] {
            caller.send(&script, line, &session_id, &mut ids).await?;
        }
    }
    // Where nothing is written to a disk, as in a directory in memory, there is nothing to compare.
    let bytes = first.written.zip(last.written).filter(|(first, _)| *first > 0);
    let (mean_ratio, bytes_ratio) =
        (last.mean() / first.mean(), bytes.map(|(first, last)| last as f64 / first as f64));
    let (first, last) = (first.summed_up(), last.summed_up());
    Ok(json!({
        "tasks": tasks,
        "updates": updates,
        "p50_ratio": super::number(&last, "p50_us") / super::number(&first, "p50_us"),
        "mean_ratio": mean_ratio,
        "bytes_ratio": bytes_ratio,
        "first": first,
        "last": last,
    }))
}
