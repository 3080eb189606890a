//! Pages of sessions.

use rusqlite::{OptionalExtension, params};

use super::reader::{ROW_COLUMNS, Readers, index_row, session_key};
use super::{natural, signed};
use crate::fault::Fault;
use crate::log::{Cursor, Filter, Listed, Order, Page, placed};

impl Readers {
    pub(super) fn list(
        &self,
        filter: &Filter,
        order: Order,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page, Fault> {
        let ((sessions, next), end) = self.ask("listing sessions", |connection| {
            let sql = list_sql(filter, order);
            let cursor = after.map(|Cursor(number)| signed(number));
            let end: Option<i64> = if is_sparse(filter) {
                let many = signed(max as u64).max(LIST_SCAN_MAX);
                let mut end = connection.prepare_cached(&sql.end)?;
                end.query_row(params![filter.tenant, filter.agent, cursor, many], |row| row.get(0))
                    .optional()?
            } else {
                None
            };
            let mut select = connection.prepare_cached(&sql.page)?;
            let rows = select.query_map(
                params![
                    filter.tenant,
                    filter.agent,
                    cursor,
                    end,
                    filter.statuses.cast_signed(),
                    filter.kind,
                    filter.created_from.map(signed),
                    filter.created_before.map(signed),
                    signed(max as u64).saturating_add(1),
                ],
                |row| {
                    let place = Cursor(natural(row.get(0)?));
                    Ok(Listed { key: session_key(row, 1)?, place, row: index_row(row, 3)? })
                },
            )?;
            Ok((placed(rows, max, |listed| listed.place)?, end))
        })?;
        Ok(Page { sessions, next: next.or(end.map(|number| Cursor(natural(number)))) })
    }
}

/// How many sessions one page looks at, at most, for those that match. A larger page looks at as many as it may hold.
const LIST_SCAN_MAX: i64 = 10_000;

/// Whether sessions must be looked at that do not match.
fn is_sparse(filter: &Filter) -> bool {
    let Filter { tenant, agent, statuses, kind, created_from, created_before } = filter;
    let by_row = *statuses != 0 || kind.is_some() || created_from.is_some() || created_before.is_some();
    by_row || (tenant.is_none() && agent.is_some())
}

/// What a page is read with. Parameters of both: 1 tenant, 2 agent, 3 the cursor.
struct ListSql {
    /// The last session that the page looks at, if there are more. Parameter 4: how many to look at.
    end: String,
    /// The page. Parameters: 4 the last to look at, 5 statuses, 6 kind, 7 created from, 8 created before, 9 how many.
    page: String,
}

fn list_sql(filter: &Filter, order: Order) -> ListSql {
    // `?1 IS ?1` is always so: each statement must name every parameter that it is given.
    let (scan, rows, list, number) = match &filter.tenant {
        None => ("index_rows r", "", "?1 IS ?1 AND ?2 IS ?2", "r.number"),
        Some(_) => (
            "index_listed l",
            "CROSS JOIN index_rows r ON r.number = l.number",
            "l.list = (SELECT list FROM index_lists WHERE tenant = ?1 AND agent IS ?2)",
            "l.number",
        ),
    };
    let agent = match (&filter.tenant, &filter.agent) {
        (None, Some(_)) => {
            "AND EXISTS (SELECT 1 FROM index_listed l WHERE l.number = r.number
             AND l.list IN (SELECT list FROM index_lists WHERE agent = ?2))"
        }
        (None, None) | (Some(_), _) => "",
    };
    let (beyond, until, direction, first, last) = match order {
        Order::Oldest => (">", "<=", "ASC", "0", "9223372036854775807"),
        Order::Newest => ("<", ">=", "DESC", "9223372036854775807", "0"),
    };
    ListSql {
        end: format!(
            "SELECT {number} FROM {scan} WHERE {list} AND {number} {beyond} ifnull(?3, {first})
             ORDER BY {number} {direction} LIMIT 1 OFFSET ?4 - 1"
        ),
        page: format!(
            "SELECT {number}, s.tenant, s.session, {ROW_COLUMNS}
             FROM {scan} {rows} CROSS JOIN sessions s ON s.number = r.number
             WHERE {list} {agent}
             AND {number} {beyond} ifnull(?3, {first}) AND {number} {until} ifnull(?4, {last})
             AND (?5 = 0 OR (r.status < 64 AND ?5 >> r.status & 1)) AND (?6 IS NULL OR r.kind = ?6)
             AND (?7 IS NULL OR r.created_at >= ?7) AND (?8 IS NULL OR r.created_at < ?8)
             ORDER BY {number} {direction} LIMIT ?9"
        ),
    }
}
