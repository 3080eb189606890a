//! Being there as a node: taking a slot, and looking which other nodes there are and how they are set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::heart::{SERVER, Sighting};
use super::link::{Error, values};
use super::{Held, Inner, Options, Writer, empty, fault, is, lock, schema, signed, unexpected};
use crate::fault::Fault;
use crate::log::NEWS_KEPT;
use crate::number::natural;
use crate::place::Slot;
use crate::uptime::uptime;

/// A living node cannot read what this one writes, or the other way round.
const UNREADABLE: &str = "HO003";

/// Of how many requesters that store nothing the rows are deleted together.
const FORGOTTEN_MAX: i64 = 1000;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Says {
    /// The newest kind of events that it can read, and that it writes: a number that grows with each that is new.
    pub reads: u32,
    /// See `reads`.
    pub writes: u32,
    /// What should be the same on every node, by name. Where there is none, it only looks, and is not compared.
    pub settings: BTreeMap<String, String>,
    /// How long finished sessions are to be kept, in milliseconds; none for ever.
    pub finished_kept_ms: Option<u64>,
    /// How long the ids of deleted sessions are.
    pub tombstones_kept_ms: Option<u64>,
    /// The version of the index rows that it writes; none if it does not say.
    pub index: Option<u32>,
}

impl Default for Says {
    fn default() -> Self {
        Says {
            reads: 1,
            writes: 1,
            settings: BTreeMap::new(),
            finished_kept_ms: None,
            tombstones_kept_ms: None,
            index: None,
        }
    }
}

/// A node that holds a slot, or held one when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is called.
    pub name: String,
    /// Its release.
    pub release: String,
    /// Its slot.
    pub slot: Slot,
    /// How many milliseconds ago it was last seen.
    pub seen_ms_ago: u64,
    /// How many events of the others it did not know then.
    pub behind: u64,
    /// What should be the same on every node, by name.
    pub settings: BTreeMap<String, String>,
}

/// The nodes that have not given back their slot.
pub fn nodes(options: Options) -> Result<Vec<Node>, Fault> {
    let inner = Inner::new(Options { migrate: false, ..options })?;
    inner.migrate(&schema::STEPS)?;
    inner.nodes()
}

impl Inner {
    pub(super) fn lease(&self) -> f64 {
        self.options.lease.as_secs_f64()
    }

    fn nodes(&self) -> Result<Vec<Node>, Fault> {
        let sql = "SELECT slot, node, release, (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint, behind, settings
                   FROM @slots WHERE seen_at > '-infinity' ORDER BY slot";
        let rows = self.ask("reading which nodes are there", sql, Vec::new)?;
        let node = |row: &Row| {
            let slot = u16::try_from(row.try_get::<_, i32>(0)?).unwrap_or(u16::MAX);
            let settings: &str = row.try_get(5)?;
            let named =
                |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            Ok(Node {
                slot: Slot(slot),
                name: row.try_get(1)?,
                release: row.try_get(2)?,
                seen_ms_ago: natural(row.try_get::<_, i64>(3)?.max(0)),
                behind: natural(row.try_get(4)?),
                settings: settings.lines().filter_map(named).collect(),
            })
        };
        rows.iter().map(node).collect::<Result<_, _>>().map_err(unexpected)
    }

    /// The nodes that were seen not long ago.
    pub(super) fn living(&self) -> Result<Vec<Node>, Fault> {
        let lease = self.options.lease.as_millis() as u64;
        Ok(self.nodes()?.into_iter().filter(|node| node.seen_ms_ago < lease).collect())
    }

    /// Take a slot that nobody has.
    pub(super) fn take_slot(&self, writer: &mut Writer, within: Duration) -> Result<(), Fault> {
        let Options { node, says, .. } = &self.options;
        let sql = format!(
            "SELECT slot, epoch, seen_at::text, {SERVER}
             FROM @take_slot_v1($1, $2, $3 * interval '1 second', $4, $5, $6, $7, $8, $9)"
        );
        let settings: String =
            says.settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let values = || {
            values![
                node.clone() => TEXT,
                env!("CARGO_PKG_VERSION") => TEXT,
                self.lease() => FLOAT8,
                i64::from(says.reads) => INT8,
                i64::from(says.writes) => INT8,
                settings.clone() => TEXT,
                says.finished_kept_ms.map(signed) => INT8,
                says.tombstones_kept_ms.map(signed) => INT8,
                says.index.map(i64::from) => INT8,
            ]
        };
        let begun = uptime();
        let found = self.ask_within(within, &sql, values);
        let found = found.map_err(|error| self.cannot_take_slot(error))?;
        let row = found.first().ok_or_else(|| empty("taking a slot"))?;
        let slot: i32 = row.try_get(0).map_err(unexpected)?;
        let slot = Slot(u16::try_from(slot).map_err(|_| empty("taking a slot"))?);
        let epoch = row.try_get(1).map_err(unexpected)?;
        let held = Held { slot, epoch, missed: true };
        *lock(&self.held) = held;
        let (at, server) = (row.try_get(2).map_err(unexpected)?, row.try_get(3).map_err(unexpected)?);
        self.heart.was_seen(Sighting { held, at, server, number: None });
        self.heart.seen(begun);
        (writer.batch, writer.in_doubt, writer.moved) = (0, false, true);
        Ok(())
    }

    fn cannot_take_slot(&self, error: Error) -> Fault {
        match error.as_db_error() {
            Some(said) if is(&error, UNREADABLE) => Fault::Unfit { what: said.message().to_owned() },
            Some(said) if *said.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
                self.cannot("taking a slot", error)
            }
            Some(_) | None => fault("taking a slot", error),
        }
    }

    /// Another node has this slot: take another one, unless somebody here has done that. Whoever listens and whoever appends are
    /// told once each: what the last holder of the new slot wrote may not have been heard.
    pub(super) fn move_from(&self, lost: Held, writer: &mut Writer) -> Fault {
        let held = *lock(&self.held);
        if (held.slot, held.epoch) == (lost.slot, lost.epoch)
            && let Err(fault) = self.take_slot(writer, self.options.patience)
        {
            return fault;
        }
        let (from, to) = (lost.slot.0, lock(&self.held).slot.0);
        tracing::warn!(from, to, "another node has taken this one's slot: it goes on in another");
        Fault::SlotTaken
    }

    /// The slot that is left out of what others did. None until whoever listens has been told that it is another one.
    pub(super) fn held_and_heard(&self) -> Result<Held, Fault> {
        let held = *lock(&self.held);
        if held.missed { Err(Fault::SlotTaken) } else { Ok(held) }
    }

    /// Whoever listens has been told that the slot is another one.
    pub(super) fn heard_of_the_slot(&self) {
        lock(&self.held).missed = false;
    }

    /// How many other nodes there are, and how many of their events this one did not know.
    pub(super) fn know_of_others(&self, others: u64, behind: u64) {
        self.hints.set_others(others > 0);
        self.others.store(others, Ordering::Release);
        self.behind.store(behind, Ordering::Release);
    }

    /// What cannot be deleted now can be later.
    pub(super) fn sweep(&self) {
        let notes = "DELETE FROM @notes WHERE written_at < now() - $1 * interval '1 second'";
        _ = self.ask("deleting old notes", notes, || values![NEWS_KEPT.as_secs_f64() => FLOAT8]);
        let claims = "DELETE FROM @turns WHERE until < now()";
        _ = self.ask("deleting old claims", claims, Vec::new);
        let loans = "DELETE FROM @lent l USING (
                         SELECT tenant, agent, kind FROM @lent
                         WHERE greatest(full_at, (SELECT max(u) FROM unnest(until) u)) < extract(epoch FROM now()) * 1e9
                         FOR UPDATE SKIP LOCKED) g
                     WHERE (l.tenant, l.agent, l.kind) = (g.tenant, g.agent, g.kind)";
        _ = self.ask("forgetting who owes nothing", loans, Vec::new);
    }

    /// Delete the rows of those who store nothing: a row of one node says what was begun there, that of another what was deleted. Rows
    /// that are nothing together can go whatever others write meanwhile, since the sum stays. Nobody is waited for here, and whoever
    /// appends to a row that goes makes it again.
    pub(super) fn forget_stored(&self) {
        let sql = "WITH nothing AS MATERIALIZED (
                       SELECT tenant, requester FROM @stored GROUP BY tenant, requester HAVING sum(bytes) = 0 LIMIT $1),
                   locked AS MATERIALIZED (
                       SELECT slot, tenant, requester, bytes FROM @stored
                       WHERE (tenant, requester) IN (SELECT tenant, requester FROM nothing) FOR UPDATE SKIP LOCKED),
                   still AS (SELECT tenant, requester FROM locked GROUP BY tenant, requester HAVING sum(bytes) = 0)
                   DELETE FROM @stored s USING locked l JOIN still USING (tenant, requester)
                   WHERE (s.slot, s.tenant, s.requester) = (l.slot, l.tenant, l.requester)";
        _ = self.ask("forgetting who stores nothing", sql, || values![FORGOTTEN_MAX => INT8]);
    }

    /// Look in what other nodes are set otherwise, and say so once.
    pub(super) fn compare(&self) {
        let own = &self.options.says.settings;
        if own.is_empty() {
            return;
        }
        // One that does not answer now will later.
        let Ok(living) = self.living() else { return };
        let others = living.iter().filter(|node| node.slot != self.slot() && !node.settings.is_empty());
        let found: BTreeSet<String> = others.flat_map(|node| differences(own, node)).collect();
        let mut known = lock(&self.differences);
        for difference in found.difference(&known) {
            tracing::warn!(difference, "another node is set otherwise");
        }
        *known = found;
    }
}

/// In what a node is set otherwise than this one. What only one of them has is of another release.
fn differences<'a>(own: &'a BTreeMap<String, String>, node: &'a Node) -> impl Iterator<Item = String> + 'a {
    own.iter().filter_map(|(name, here)| {
        let there = node.settings.get(name).filter(|there| *there != here)?;
        Some(format!("{name} is {here} here and {there} at {}", node.name))
    })
}
