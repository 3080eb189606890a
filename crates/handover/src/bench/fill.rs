//! Stores that are filled through the engine, without a network: many sessions in little time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use handover_engine::{Counters, Denied, Engine, Settings};
use handover_kernel::Command;
use handover_store::sqlite::Options;
use handover_store::{SessionKey, SqliteStore, Store};
use tokio::task::JoinSet;

use super::{micros, progress};
use crate::{Failure, chain};

/// How many lives are under way at once.
const IN_FLIGHT: u64 = 512;

/// After how many of them the progress is told.
const TELL_EVERY: u64 = 1_000;

/// Settings of an engine that may have all of them open.
pub fn settings() -> Settings {
    let mut settings = Settings { sessions_open_per_agent_max: u64::MAX, ..Settings::default() };
    settings.shard.queue_max = 65_536;
    settings
}

/// An engine on a store in this directory, and the store itself.
pub fn start(dir: &Path, settings: Settings, options: Options) -> Result<(Engine, Arc<dyn Store>), Failure> {
    let store = SqliteStore::open_with(dir, options);
    let store: Arc<dyn Store> = Arc::new(store.map_err(|fault| Failure::fault("opening the store", &fault))?);
    let engine = Engine::start(Arc::clone(&store), settings, Counters::new());
    Ok((engine.map_err(|fault| Failure::fault("starting the engine", &fault))?, store))
}

/// Live the lives with these numbers, or the parts of them that are given, as fast as they go.
pub async fn many<L, C>(engine: &Engine, numbers: Range<u64>, life: L, what: &str) -> Result<(), Failure>
where
    L: Fn(u64) -> (SessionKey, C) + Clone + Send + 'static,
    C: IntoIterator<Item = Command, IntoIter: Send> + Send,
{
    let next = Arc::new(AtomicU64::new(numbers.start));
    let mut clients = JoinSet::new();
    for _ in 0..IN_FLIGHT.min(numbers.end - numbers.start) {
        let (engine, next, life) = (engine.clone(), Arc::clone(&next), life.clone());
        let (numbers, what) = (numbers.clone(), what.to_owned());
        clients.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return Ok::<_, Failure>(());
                }
                let (key, commands) = life(number);
                live(&engine, key, commands, &mut Vec::new()).await?;
                let (done, all) = (number + 1 - numbers.start, numbers.end - numbers.start);
                if done.is_multiple_of(TELL_EVERY) {
                    progress(&format!("{what}: {done} of {all}"));
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(|error| Failure::fault("filling the store", &error))??;
    }
    progress("");
    Ok(())
}

/// Put commands to a session, each when the one before it is durable.
pub async fn live(
    engine: &Engine,
    key: SessionKey,
    commands: impl IntoIterator<Item = Command>,
    latencies_us: &mut Vec<f64>,
) -> Result<(), Failure> {
    for command in commands {
        let begun = Instant::now();
        let accepted = engine.submit(key.clone(), command).await;
        accepted.map_err(|denied| Failure::Fault(describe(&denied)))?;
        latencies_us.push(micros(begun));
    }
    Ok(())
}

fn describe(denied: &Denied) -> String {
    match denied {
        Denied::Refused(refusal) => format!("a command was refused: {refusal}"),
        Denied::Fault(fault) => format!("a command failed: {}", chain(&**fault)),
        Denied::Unreadable(what) => what.to_string(),
        Denied::Stopping => "the engine stopped".to_owned(),
    }
}
