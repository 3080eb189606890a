//! Turns: what some clients get done in a stretch of time, each waiting for one thing before it asks for the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use handover_engine::Engine;
use tokio::runtime::Runtime;

use super::fill;
use super::life::{self, Lives};
use super::limit::{Handle, Limit};
use super::{micros, quantile};
use crate::Failure;

/// What one turn came to.
pub struct Turn {
    pub events: u64,
    pub seconds: f64,
    pub latencies_us: Vec<f64>,
}

impl Turn {
    /// A turn of which all clients have ended.
    fn since(begun: Instant, latencies_us: Vec<f64>) -> Turn {
        Turn { events: latencies_us.len() as u64, seconds: begun.elapsed().as_secs_f64(), latencies_us }
    }

    /// Events per second.
    pub fn rate(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    /// The latency below which this share of them lies.
    pub fn latency(&mut self, share: f64) -> f64 {
        quantile(&mut self.latencies_us, share)
    }
}

/// Let that many clients work, each a task, until the turn is over. A client is told its number and when to stop.
pub fn of_tasks<F>(
    runtime: &Runtime,
    clients: usize,
    length: Duration,
    client: impl Fn(usize, Arc<AtomicBool>) -> F,
) -> Result<Turn, Failure>
where
    F: Future<Output = Result<Vec<f64>, Failure>> + Send + 'static,
{
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..clients).map(|number| runtime.spawn(client(number, Arc::clone(&stop)))).collect();
    std::thread::sleep(length);
    stop.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for task in tasks {
        all.extend(runtime.block_on(task).map_err(|error| Failure::fault("measuring", &error))??);
    }
    Ok(Turn::since(begun, all))
}

/// Task lives, shared out over engines.
pub fn of_engines(
    runtime: &Runtime,
    engines: &[Engine],
    clients: usize,
    length: Duration,
    lives: &Arc<Lives>,
) -> Result<Turn, Failure> {
    of_tasks(runtime, clients, length, |number, stop| {
        let (engine, lives) = (engines[number % engines.len()].clone(), Arc::clone(lives));
        async move {
            let mut latencies = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let (key, commands) = lives.next();
                fill::live(&engine, key, commands, &mut latencies).await?;
            }
            Ok(latencies)
        }
    })
}

/// The limit, whose producers are threads.
pub fn of_threads(limit: &Limit, clients: usize, length: Duration) -> Result<Turn, Failure> {
    let events = life::encoded();
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let produce = |handle: Handle| {
        let mut latencies = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            for event in &events {
                let begun = Instant::now();
                if !handle.append(event) {
                    return Err(Failure::Fault(LIMIT_FAILED.to_owned()));
                }
                latencies.push(micros(begun));
            }
        }
        Ok(latencies)
    };
    let all = std::thread::scope(|scope| {
        let handles: Vec<Handle> = (0..clients).map(|_| limit.handle()).collect();
        let threads: Vec<_> = handles.into_iter().map(|handle| scope.spawn(|| produce(handle))).collect();
        std::thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in threads {
            let ended = Failure::Fault("a producer of the limit panicked".to_owned());
            all.extend(thread.join().map_err(|_| ended)??);
        }
        Ok::<_, Failure>(all)
    })?;
    Ok(Turn::since(begun, all))
}

/// What is said when the limit cannot be measured.
pub const LIMIT_FAILED: &str = "the limit could not be written";
