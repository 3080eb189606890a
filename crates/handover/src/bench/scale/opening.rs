//! Opening a session that is not in memory: one with a long log beside one with a short log, through the engine and without
//! a network.
//!
//! Each is as far behind its snapshot as it can be, so that both read the same number of events. What is left is the
//! snapshot itself, which remembers the id of every message: a second long session whose messages have no ids shows how
//! much of the time that is.

use std::path::Path;
use std::time::Instant;

use handover_engine::{Engine, Settings};
use handover_store::sqlite::Options;
use handover_store::{SessionKey, Store};
use serde_json::{Value, json};

use crate::Failure;
use crate::bench::{fill, life, micros, quantile};

/// How many events the short one has, about.
const SHORT: u64 = 1_000;

/// The sessions: one to begin with, whose time does not count, and those that are compared.
const FIRST: u64 = 0;
const ROWS: [(u64, &str, bool); 3] =
    [(1, "short", true), (2, "long", true), (3, "long, messages without ids", false)];

/// One of those that are compared.
struct Row {
    what: &'static str,
    key: SessionKey,
    events: u64,
    snapshot_bytes: usize,
    took_us: Vec<f64>,
}

/// Make them, and open each so often, in turns, by an engine that has none of them in memory.
pub async fn measure(data: &Path, long: u64, rounds: usize) -> Result<Vec<Value>, Failure> {
    let (engine, store) = fill::start(data, fill::settings(), Options::default())?;
    fill::many(&engine, FIRST..FIRST + 1, life::opening, "the first").await?;
    let mut rows = Vec::new();
    for (number, what, ids) in ROWS {
        let events = if number == 1 { SHORT } else { long };
        rows.push(grow(&engine, &*store, number, events, what, ids).await?);
    }
    engine.stop();
    drop((engine, store));
    for round in 0..rounds {
        let (engine, store) = fill::start(data, Settings::default(), Options::default())?;
        open(&engine, life::key(FIRST)).await?;
        // None is always the first or the last.
        let first = round % rows.len();
        rows.rotate_left(first);
        for row in &mut rows {
            let begun = Instant::now();
            let head = open(&engine, row.key.clone()).await?;
            row.took_us.push(micros(begun));
            if head != row.events {
                let (what, expected) = (row.what, row.events);
                let message = format!("expected the {what} session to have {expected} events, found {head}");
                return Err(Failure::Fault(message));
            }
        }
        rows.rotate_right(first);
        engine.stop();
        drop((engine, store));
    }
    let short_us = rows.first_mut().map_or(0.0, |row| quantile(&mut row.took_us, 0.5));
    Ok(rows.iter_mut().map(|row| summed_up(row, short_us)).collect())
}

/// A task with so many events, or somewhat fewer: the last of its snapshot is as long ago as it ever is.
async fn grow(
    engine: &Engine,
    store: &dyn Store,
    number: u64,
    events: u64,
    what: &'static str,
    ids: bool,
) -> Result<Row, Failure> {
    let every = Settings::default().shard.snapshot_every;
    let key = life::key(number);
    fill::many(engine, number..number + 1, life::opening, what).await?;
    let update = {
        let key = key.clone();
        move |update| (key.clone(), [life::one_more_update(number, ids.then_some(update))])
    };
    let opened = life::OPEN_EVENTS as u64;
    let many = (events - every.min(events)).max(opened);
    fill::many(engine, opened..many, update.clone(), what).await?;
    let kept = snapshot(store, &key)?.map_or(0, |(seq, _)| seq);
    let events = kept + every - 1;
    fill::many(engine, many..events.max(many), update, what).await?;
    let snapshot_bytes = snapshot(store, &key)?.map_or(0, |(_, bytes)| bytes);
    Ok(Row { what, key, events, snapshot_bytes, took_us: Vec::new() })
}

fn snapshot(store: &dyn Store, key: &SessionKey) -> Result<Option<(u64, usize)>, Failure> {
    let found = store.snapshot(key).map_err(|fault| Failure::fault("reading a snapshot", &fault))?;
    Ok(found.map(|snapshot| (snapshot.seq, snapshot.bytes.len())))
}

/// How many events the session has.
async fn open(engine: &Engine, key: SessionKey) -> Result<u64, Failure> {
    match engine.session(key).await {
        Ok(Some(session)) => Ok(session.head.0),
        other => Err(Failure::Fault(format!("expected a session, found {other:?}"))),
    }
}

fn summed_up(row: &mut Row, short_us: f64) -> Value {
    let p50_us = quantile(&mut row.took_us, 0.5);
    json!({
        "session": row.what,
        "events": row.events,
        "snapshot_bytes": row.snapshot_bytes,
        "rounds": row.took_us.len(),
        "p50_us": p50_us,
        "p50_ratio": p50_us / short_us,
    })
}
