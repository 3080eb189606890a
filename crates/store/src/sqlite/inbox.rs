//! What waits for an agent: `index_inbox`, kept by difference and read in pages.

use std::collections::BTreeSet;

use rusqlite::params;

use super::agents::decode_waits;
use super::reader::{ROW_COLUMNS, Readers, index_row, session_key};
use super::writer::{Number, Writer};
use super::{natural, signed};
use crate::fault::Fault;
use crate::log::{Cursor, InboxPage, Waiting, Waits, kinds_for, placed};

impl Writer {
    /// Move a session from the inboxes that it was in, by the blob in its row, to those that it is in now.
    pub(super) fn write_waits(
        &mut self,
        number: Number,
        tenant: &str,
        before: &[u8],
        now: &[Waits],
    ) -> rusqlite::Result<()> {
        let before = decode_waits(before)?;
        let agents: BTreeSet<&str> = before.iter().chain(now).map(|waits| &*waits.agent).collect();
        for agent in agents {
            let (before, now) = (kinds_for(&before, agent), kinds_for(now, agent));
            if before == now {
                continue;
            }
            let list = self.list(tenant, Some(agent))?;
            for (sql, changed) in [
                ("DELETE FROM index_inbox WHERE list = ?1 AND kind = ?2 AND number = ?3", before & !now),
                ("INSERT INTO index_inbox VALUES (?1, ?2, ?3)", now & !before),
            ] {
                for kind in numbers(changed) {
                    self.connection.prepare_cached(sql)?.execute([list, kind, number])?;
                }
            }
        }
        Ok(())
    }
}

impl Readers {
    pub(super) fn inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault> {
        if kinds == 0 {
            return Ok(InboxPage { sessions: Vec::new(), next: None });
        }
        let (sessions, next) = self.ask("reading an inbox", |connection| {
            let mut select = connection.prepare_cached(&inbox_sql(kinds))?;
            let from = after.map_or(0, |Cursor(number)| signed(number));
            let many = signed(max as u64).saturating_add(1);
            let rows = select.query_map(params![tenant, agent, from, many], |row| {
                let (key, index) = (session_key(row, 1)?, index_row(row, 3)?);
                let kinds = index.waits_for(agent);
                Ok(Waiting { key, place: Cursor(natural(row.get(0)?)), row: index, kinds })
            })?;
            placed(rows, max, |waiting| waiting.place)
        })?;
        Ok(InboxPage { sessions, next })
    }
}

/// One range of the table for each kind. SQLite merges them as it reads, so that it stops with the page.
fn inbox_sql(kinds: u32) -> String {
    let of_a_kind = |kind| {
        format!(
            "SELECT number FROM index_inbox WHERE kind = {kind} AND number > ?3
             AND list = (SELECT list FROM index_lists WHERE tenant = ?1 AND agent = ?2)"
        )
    };
    let of_any_kind = numbers(kinds).map(of_a_kind).collect::<Vec<_>>().join(" UNION ");
    format!(
        "SELECT i.number, s.tenant, s.session, {ROW_COLUMNS}
         FROM ({of_any_kind} ORDER BY number LIMIT ?4) i
         CROSS JOIN index_rows r ON r.number = i.number CROSS JOIN sessions s ON s.number = i.number
         ORDER BY i.number"
    )
}

/// The numbers in a set of kinds.
fn numbers(kinds: u32) -> impl Iterator<Item = i64> {
    (0..i64::from(u32::BITS)).filter(move |kind| kinds >> kind & 1 == 1)
}
