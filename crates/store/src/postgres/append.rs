//! A batch as the database takes it, and what became of it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use tokio_postgres::Row;

use super::link::{Value, values};
use super::{Held, natural, sid, signed};
use crate::checksum::checksum;
use crate::fault::Fault;
use crate::log::{Append, IndexRow, Outcome, SessionKey, Wake};
use crate::place::{Position, Slot};

/// How many events, and how many bytes, one call may have: what is larger goes in several.
const EVENTS_MAX: usize = 4096;
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Parts of a batch that can go in one call each: no session twice, and not too much.
pub(super) fn calls(batch: &[Append]) -> Vec<Vec<usize>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    let (mut events, mut bytes) = (0, 0);
    for (index, item) in batch.iter().enumerate() {
        let size = item.events.iter().chain(&item.snapshot).map(Vec::len).sum::<usize>();
        let full = events + item.events.len() > EVENTS_MAX || bytes + size > BYTES_MAX;
        if calls.is_empty() || full || seen.contains(&item.key) {
            calls.push(Vec::new());
            seen.clear();
            (events, bytes) = (0, 0);
        }
        seen.insert(&item.key);
        events += item.events.len();
        bytes += size;
        calls.last_mut().expect("one was pushed").push(index);
    }
    calls
}

/// The statement of a call of `append_v1`, after the four values that say whose it is.
pub(super) const APPEND: &str = "SELECT outcome, first, second FROM @append_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
     $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)";

/// What `append_v1` is called with.
pub(super) fn arguments(held: Held, batch: i64, seen: u64, items: &[&Append], races: &Races) -> Vec<Value> {
    let each = |of: fn(&Append) -> i64| items.iter().map(|item| of(item)).collect::<Vec<i64>>();
    let events = || {
        let all = (1_i32..).zip(items);
        all.flat_map(|(of, item)| (1_u64..).zip(&item.events).map(move |(at, event)| (of, at, item, event)))
    };
    let checksums: Vec<i64> = events()
        .map(|(_, at, item, bytes)| i64::from(checksum(&item.key, item.expected + at, bytes)))
        .collect();
    let snapshots: Vec<Option<i64>> = items
        .iter()
        .map(|item| {
            let seq = item.expected + item.events.len() as u64;
            item.snapshot.as_ref().map(|bytes| i64::from(checksum(&item.key, seq, bytes)))
        })
        .collect();
    let mut all = held.values();
    all.extend(values![
        batch => INT8,
        signed(seen) => INT8,
        items.iter().map(|item| sid(&item.key)).collect::<Vec<_>>() => BYTEA_ARRAY,
        items.iter().map(|item| item.key.tenant.to_string()).collect::<Vec<_>>() => TEXT_ARRAY,
        items.iter().map(|item| item.key.session.to_string()).collect::<Vec<_>>() => TEXT_ARRAY,
        each(|item| signed(item.expected)) => INT8_ARRAY,
        items.iter().map(|item| item.events.len() as i32).collect::<Vec<_>>() => INT4_ARRAY,
        each(|item| signed(item.events.iter().map(Vec::len).sum::<usize>() as u64)) => INT8_ARRAY,
        events().map(|(of, ..)| of).collect::<Vec<_>>() => INT4_ARRAY,
        events().map(|(_, at, ..)| signed(at)).collect::<Vec<_>>() => INT8_ARRAY,
        checksums => INT8_ARRAY,
        events().map(|(.., bytes)| bytes.clone()).collect::<Vec<_>>() => BYTEA_ARRAY,
        items.iter().map(|item| item.row.is_some()).collect::<Vec<_>>() => BOOL_ARRAY,
    ]);
    all.extend(rows(items.iter().map(|item| (item.row.as_ref(), item.wake))));
    all.extend(values![
        snapshots => INT8_ARRAY,
        items.iter().map(|item| item.snapshot.clone()).collect::<Vec<_>>() => BYTEA_ARRAY,
        items.iter().map(|item| races.claims(&item.key)).collect::<Vec<_>>() => BOOL_ARRAY,
    ]);
    all
}

/// Index rows and wake times, as `append_v1` and `restore_v1` take them.
pub(super) fn rows<'a>(items: impl Iterator<Item = (Option<&'a IndexRow>, Wake)> + Clone) -> Vec<Value> {
    let row = || items.clone().map(|(row, _)| row);
    let wake = || items.clone().map(|(_, wake)| wake);
    let at = |wake: Wake| match wake {
        Wake::At(at) => Some(signed(at)),
        Wake::Unchanged | Wake::Never => None,
    };
    values![
        row().map(|row| row.map(|row| i16::from(row.kind))).collect::<Vec<_>>() => INT2_ARRAY,
        row().map(|row| row.map(|row| i16::from(row.status))).collect::<Vec<_>>() => INT2_ARRAY,
        row().map(|row| row.map(|row| row.requester.to_string())).collect::<Vec<_>>() => TEXT_ARRAY,
        row().map(|row| row.map(|row| signed(row.created_at))).collect::<Vec<_>>() => INT8_ARRAY,
        row().map(|row| row.and_then(|row| row.finished_at.map(signed))).collect::<Vec<_>>() => INT8_ARRAY,
        row().map(|row| row.map(|row| row.summary.clone())).collect::<Vec<_>>() => BYTEA_ARRAY,
        row().map(|row| row.map(|row| names(row.agents.iter().map(|agent| &**agent)))).collect::<Vec<_>>() => TEXT_ARRAY,
        row().map(|row| row.map(|row| names(row.waits.iter().map(|waits| &*waits.agent)))).collect::<Vec<_>>() => TEXT_ARRAY,
        row().map(|row| row.map(|row| numbers(row.waits.iter().map(|waits| waits.kinds)))).collect::<Vec<_>>() => TEXT_ARRAY,
        wake().map(|wake| wake != Wake::Unchanged).collect::<Vec<_>>() => BOOL_ARRAY,
        wake().map(at).collect::<Vec<_>>() => INT8_ARRAY,
    ]
}

/// An array as the database reads it from text.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    format!("{{{}}}", names.map(quoted).collect::<Vec<_>>().join(","))
}

fn numbers(numbers: impl Iterator<Item = u32>) -> String {
    format!("{{{}}}", numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(","))
}

/// What became of a call, item by item.
pub(super) fn outcomes(
    slot: Slot,
    rows: &[Row],
    items: &[&Append],
    races: &mut Races,
) -> Result<Vec<Outcome>, Fault> {
    let outcome = |(row, item): (&Row, &&Append)| {
        let number = |at| row.try_get::<_, i64>(at).map(natural).map_err(super::unexpected);
        let code = row.try_get::<_, i16>(0).map_err(super::unexpected)?;
        match code {
            LOST => races.lost(&item.key),
            ANOTHERS_TURN => {}
            _ => races.over(&item.key),
        }
        Ok(match code {
            APPENDED => Outcome::Appended { first: Position { slot, number: number(1)? }, stamp: number(2)? },
            GONE => Outcome::Tombstone { deleted_at: number(1)? },
            _ => Outcome::Conflict { head: number(1)? },
        })
    };
    let outcomes = rows.iter().zip(items).map(outcome).collect();
    if rows.iter().all(|row| row.get::<_, i16>(0) == ANOTHERS_TURN) {
        // Whoever's turn it is needs the database more.
        thread::sleep(MAKE_WAY);
    }
    outcomes
}

/// How long a node whose whole batch has to wait leaves the database alone.
const MAKE_WAY: Duration = Duration::from_millis(2);

const APPENDED: i16 = 1;
const LOST: i16 = 2;
const GONE: i16 = 3;
const ANOTHERS_TURN: i16 = 4;

/// Who loses as often in a row leaves a claim to the next turn.
const LOST_MAX: u32 = 3;

/// What was lost longer ago does not count, and of how many sessions it is remembered.
const LOST_WITHIN: Duration = Duration::from_secs(1);
const LOST_SESSIONS_MAX: usize = 1024;

/// The sessions for which others were first, how often in a row, and when last.
#[derive(Default)]
pub(super) struct Races(BTreeMap<SessionKey, (u32, Instant)>);

impl Races {
    fn recent(&self, key: &SessionKey) -> u32 {
        self.0.get(key).filter(|(_, at)| at.elapsed() < LOST_WITHIN).map_or(0, |(count, _)| *count)
    }

    /// Whether losing once more is enough.
    fn claims(&self, key: &SessionKey) -> bool {
        self.recent(key) + 1 >= LOST_MAX
    }

    fn lost(&mut self, key: &SessionKey) {
        let count = self.recent(key) + 1;
        if self.0.len() >= LOST_SESSIONS_MAX {
            self.0.retain(|_, (_, at)| at.elapsed() < LOST_WITHIN);
        }
        if self.0.len() < LOST_SESSIONS_MAX {
            self.0.insert(key.clone(), (count, Instant::now()));
        }
    }

    fn over(&mut self, key: &SessionKey) {
        self.0.remove(key);
    }
}
