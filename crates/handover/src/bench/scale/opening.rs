//! Opening a session that is not in memory: one with a long log beside one with a short log, through the engine and without
//! a network.
//!
//! Each is as far behind its snapshot as it can be, so that both read the same number of events. What is left is the
//! snapshot itself, which remembers the id of every message: a second long session whose messages have no ids shows how
//! much of the time that is.

use std::path::Path;
use std::time::Instant;

use handover_engine::clock::now;
use handover_engine::{Engine, Settings, codec, snapshot};
use handover_kernel::{AgentId, Limits, SessionId, step};
use handover_store::sqlite::Options;
use handover_store::{Append, SessionKey, Store, Wake};
use serde_json::{Value, json};

use crate::Failure;
use crate::bench::{fill, life, micros, progress, quantile};

/// How many events the short one has, about.
const SHORT: u64 = 1_000;

/// The session that is opened first, so that its time counts for nobody.
const FIRST: u64 = 0;

/// One of those that are compared.
pub struct Row {
    what: &'static str,
    /// Where it is.
    pub key: SessionKey,
    /// Who asked for it.
    pub requester: AgentId,
    /// How many events it has.
    pub events: u64,
    snapshot_bytes: usize,
    took_us: Vec<f64>,
}

/// Make them, and open each so often, in turns, by an engine that has none of them in memory.
pub async fn measure(data: &Path, long: u64, rounds: usize) -> Result<Vec<Value>, Failure> {
    let (engine, store) = fill::start(data, Settings::default(), Options::default())?;
    let (key, commands) = life::life(FIRST);
    fill::live(&engine, key, commands, &mut Vec::new()).await?;
    engine.stop();
    let mut rows = vec![
        grow(&*store, life::TENANT, 1, SHORT, "short", true)?,
        grow(&*store, life::TENANT, 2, long, "long", true)?,
        grow(&*store, life::TENANT, 3, long, "long, messages without ids", false)?,
    ];
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

/// A task of about so many events: one less than would make another snapshot. What the engine would store is stored without
/// it, because a worker that waits for each of them to be durable would take minutes.
pub fn grow(
    store: &dyn Store,
    tenant: &str,
    number: u64,
    events: u64,
    what: &'static str,
    ids: bool,
) -> Result<Row, Failure> {
    let every = Settings::default().shard.snapshot_every;
    let events = events.next_multiple_of(every) - 1;
    let (key, commands) = life::life(number);
    let key = SessionKey::new(tenant, &*key.session);
    let opening = commands.into_iter().take(life::OPEN_EVENTS);
    let updates = life::OPEN_EVENTS as u64..events;
    let updates = updates.map(|update| life::one_more_update(number, ids.then_some(update)));
    let (id, limits) = (SessionId::from(&*key.session), Limits::default());
    let mut session = None;
    let (requester, _) = life::agents(number);
    let mut row = Row { what, key, requester, events, snapshot_bytes: 0, took_us: Vec::new() };
    let mut append = after(&row.key, 0);
    for command in opening.chain(updates) {
        let step = step(&mut session, &id, &command, &limits, now());
        step.answer.map_err(|refusal| Failure::Fault(format!("a command was refused: {refusal}")))?;
        append.events.extend(step.events.iter().map(codec::encode));
        let Some(session) = &session else { continue };
        let head = session.head.0;
        if !head.is_multiple_of(every) && head != events {
            continue;
        }
        if head.is_multiple_of(every) {
            let kept = snapshot::keep(session);
            row.snapshot_bytes = kept.len();
            append.snapshot = Some(kept);
        }
        store.append(&[append]).map_err(|fault| Failure::fault("writing a session", &fault))?;
        append = after(&row.key, head);
        progress(&format!("{what}: {head} of {events} events"));
    }
    Ok(row)
}

/// Nothing yet, after the event with this number.
fn after(key: &SessionKey, expected: u64) -> Append {
    Append {
        key: key.clone(),
        expected,
        events: Vec::new(),
        row: None,
        wake: Wake::Unchanged,
        snapshot: None,
    }
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
