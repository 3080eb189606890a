//! What the index says of a session: its row, the lists and inboxes that it is in, its wake time and its snapshot.

use rusqlite::{OptionalExtension, params, params_from_iter};

use super::writer::{Number, Writer};
use super::{agents, checksum, natural, signed};
use crate::log::{IndexRow, SessionKey, Wake};

/// One statement for several lists costs less than one for each. There is a prepared statement for every number of them.
const LISTED_AT_ONCE: usize = 8;

/// What the writer remembers of a session's index row.
#[derive(Default)]
pub(super) enum Row {
    #[default]
    Unknown,
    Absent,
    Present(Written),
}

/// The parts of a row of which it matters what was there before.
pub(super) struct Written {
    finished_at: Option<i64>,
    /// As in the column.
    waits: Vec<u8>,
}

/// One statement for each set of columns to change. The last condition uses the parameters that the set does not.
macro_rules! update_sql {
    ($more:literal) => {
        concat!(
            "UPDATE index_rows SET kind = ?2, status = ?3, created_at = ?4, requester = ?5, summary = ?6, waits = ?7",
            $more,
            " WHERE number = ?1 AND ?8 IS ?8 AND ?9 IS ?9"
        )
    };
}

impl Writer {
    /// Write a session's row with its wake time. Without a row before, `agents` says whose lists it is on.
    pub(super) fn write_row(
        &mut self,
        number: Number,
        key: &SessionKey,
        row: &IndexRow,
        agents: &[Box<str>],
        wake: Wake,
    ) -> rusqlite::Result<()> {
        let before = self.written(number)?;
        let now =
            Written { finished_at: row.finished_at.map(signed), waits: agents::encode_waits(&row.waits) };
        match &before {
            None => self.insert_row(number, key, row, &now, agents, wake)?,
            Some(before) => {
                self.update_row(number, row, &now, before.finished_at != now.finished_at, wake)?
            }
        }
        let before = before.map_or_else(Vec::new, |before| before.waits);
        if before != now.waits {
            self.write_waits(number, &key.tenant, &before, &row.waits)?;
        }
        self.rows.insert(number, Row::Present(now));
        Ok(())
    }

    /// What was written before. The writer forgets it, because it is about to change.
    fn written(&mut self, number: Number) -> rusqlite::Result<Option<Written>> {
        match self.rows.get_mut(&number).map(std::mem::take) {
            Some(Row::Present(written)) => Ok(Some(written)),
            Some(Row::Absent) => Ok(None),
            Some(Row::Unknown) | None => {
                let mut find = self
                    .connection
                    .prepare_cached("SELECT finished_at, waits FROM index_rows WHERE number = ?1")?;
                let written =
                    |row: &rusqlite::Row<'_>| Ok(Written { finished_at: row.get(0)?, waits: row.get(1)? });
                find.query_row([number], written).optional()
            }
        }
    }

    /// Whether something was written before.
    pub(super) fn has_row(&mut self, number: Number) -> rusqlite::Result<bool> {
        let written = self.written(number)?;
        let has = written.is_some();
        self.rows.insert(number, written.map_or(Row::Absent, Row::Present));
        Ok(has)
    }

    fn insert_row(
        &mut self,
        number: Number,
        key: &SessionKey,
        row: &IndexRow,
        now: &Written,
        agents: &[Box<str>],
        wake: Wake,
    ) -> rusqlite::Result<()> {
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO index_rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
        insert.execute(params![
            number,
            row.kind,
            row.status,
            signed(row.created_at),
            now.finished_at,
            row.requester,
            agents::encode(agents),
            row.summary,
            now.waits,
            wake_time(wake),
        ])?;
        drop(insert);
        let mut lists = Vec::with_capacity(agents.len() + 1);
        for agent in agents.iter().map(|agent| Some(&**agent)).chain([None]) {
            lists.push(self.list(&key.tenant, agent)?);
        }
        for lists in lists.chunks(LISTED_AT_ONCE) {
            let rows = vec!["(?, ?)"; lists.len()].join(", ");
            let sql = format!("INSERT OR IGNORE INTO index_listed VALUES {rows}");
            let values = lists.iter().flat_map(|list| [*list, number]);
            self.connection.prepare_cached(&sql)?.execute(params_from_iter(values))?;
        }
        Ok(())
    }

    fn update_row(
        &self,
        number: Number,
        row: &IndexRow,
        now: &Written,
        finished: bool,
        wake: Wake,
    ) -> rusqlite::Result<()> {
        // Naming a column rewrites the entries of the indexes that have it, so these two are named only if they changed.
        let sql = match (finished, wake) {
            (false, Wake::Unchanged) => update_sql!(""),
            (false, _) => update_sql!(", wake = ?9"),
            (true, Wake::Unchanged) => update_sql!(", finished_at = ?8"),
            (true, _) => update_sql!(", finished_at = ?8, wake = ?9"),
        };
        let mut update = self.connection.prepare_cached(sql)?;
        update.execute(params![
            number,
            row.kind,
            row.status,
            signed(row.created_at),
            row.requester,
            row.summary,
            now.waits,
            now.finished_at,
            wake_time(wake),
        ])?;
        Ok(())
    }

    /// Remove a session's row, and take it off the lists and out of the inboxes.
    pub(super) fn remove_row(&mut self, number: Number, tenant: &str) -> rusqlite::Result<()> {
        let mut find =
            self.connection.prepare_cached("SELECT agents, waits FROM index_rows WHERE number = ?1")?;
        let found =
            find.query_row([number], |row| Ok((agents::decode(row.get_ref(0)?)?, row.get::<_, Vec<u8>>(1)?)));
        let found = found.optional()?;
        drop(find);
        self.rows.insert(number, Row::Absent);
        let Some((agents, waits)) = found else { return Ok(()) };
        for agent in agents.iter().map(|agent| Some(&**agent)).chain([None]) {
            let list = self.list(tenant, agent)?;
            let mut delete =
                self.connection.prepare_cached("DELETE FROM index_listed WHERE list = ?1 AND number = ?2")?;
            delete.execute([list, number])?;
        }
        self.write_waits(number, tenant, &waits, &[])?;
        self.connection.prepare_cached("DELETE FROM index_rows WHERE number = ?1")?.execute([number])?;
        Ok(())
    }

    /// The number of an agent's list, or of the whole tenant's.
    pub(super) fn list(&mut self, tenant: &str, agent: Option<&str>) -> rusqlite::Result<i64> {
        let name = format!("{}:{tenant}{}{}", tenant.len(), agent.map_or("", |_| "/"), agent.unwrap_or(""));
        if let Some(list) = self.lists.get_mut(&name) {
            return Ok(*list);
        }
        let mut find = self
            .connection
            .prepare_cached("SELECT list FROM index_lists WHERE tenant = ?1 AND agent IS ?2")?;
        let list = match find.query_row(params![tenant, agent], |row| row.get(0)).optional()? {
            Some(list) => list,
            None => {
                let mut insert = self
                    .connection
                    .prepare_cached("INSERT INTO index_lists (tenant, agent) VALUES (?1, ?2)")?;
                insert.insert(params![tenant, agent])?
            }
        };
        drop(find);
        self.lists.insert(name, list);
        Ok(list)
    }

    /// Change the wake time of a session whose row stays.
    pub(super) fn write_wake(&self, number: Number, wake: Wake) -> rusqlite::Result<()> {
        if wake == Wake::Unchanged {
            return Ok(());
        }
        let sql = "UPDATE index_rows SET wake = ?2 WHERE number = ?1 AND wake IS NOT ?2";
        self.connection.prepare_cached(sql)?.execute(params![number, wake_time(wake)])?;
        Ok(())
    }

    pub(super) fn wake(&self, number: Number) -> rusqlite::Result<Wake> {
        let mut find = self.connection.prepare_cached("SELECT wake FROM index_rows WHERE number = ?1")?;
        let found: Option<Option<i64>> = find.query_row([number], |row| row.get(0)).optional()?;
        Ok(found.flatten().map_or(Wake::Never, |at| Wake::At(natural(at))))
    }

    pub(super) fn write_snapshot(
        &self,
        number: Number,
        key: &SessionKey,
        seq: i64,
        bytes: &[u8],
    ) -> rusqlite::Result<()> {
        let mut put = self
            .connection
            .prepare_cached("INSERT OR REPLACE INTO index_snapshots VALUES (?1, ?2, ?3, ?4)")?;
        put.execute(params![number, seq, checksum(key, natural(seq), bytes), bytes])?;
        Ok(())
    }
}

fn wake_time(wake: Wake) -> Option<i64> {
    match wake {
        Wake::At(at) => Some(signed(at)),
        Wake::Never | Wake::Unchanged => None,
    }
}
