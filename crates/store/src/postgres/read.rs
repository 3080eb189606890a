//! Reading: what is asked of the database, and its rows in the store's words.

use tokio_postgres::Row;

use super::link::values;
use super::{Inner, LONG_PATIENCES, TAKEN, fault, is, lock, natural, sid, signed, unexpected};
use crate::checksum::{Found, check, checked, checksum};
use crate::fault::Fault;
use crate::log::{
    Cursor, Done, DueCursor, DuePage, Feed, FeedItem, Filter, InboxPage, IndexRow, Listed, News, OpenCount,
    Order, PAGE_BYTES_MAX, Page, SessionKey, Snapshot, Space, StoredEvent, Tombstone, Waiting, Waits, cut,
    is_full, placed,
};
use crate::place::{Place, Position, Slot};

/// How many rows are read at a time at most, whatever was asked for.
const ROWS_MAX: usize = 1000;

/// How many sessions are looked at for one page of a list.
const SCAN_MAX: i64 = 4096;

/// How many events of each slot are looked at one by one before an agent's sessions are asked instead.
const FEED_WINDOW: i64 = 8192;

/// The columns of an event, with how many bytes come before it on the page, so that the database need not send what does not
/// fit.
const EVENT: &str = "e.slot, e.number, e.stamp, e.seq, e.checksum, e.bytes";

/// The slots that there are, and how far a reader is in each.
const REACHED: &str = "(SELECT s.slot, coalesce(r.number, 0) AS number FROM @slots s \
      LEFT JOIN unnest($1, $2) AS r (slot, number) ON r.slot = s.slot)";

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Fault> {
    row.try_get(at).map_err(unexpected)
}

fn number(row: &Row, at: usize) -> Result<u64, Fault> {
    get::<i64>(row, at).map(natural)
}

fn text(row: &Row, at: usize) -> Result<Box<str>, Fault> {
    get::<&str>(row, at).map(Box::from)
}

fn slot(row: &Row, at: usize) -> Result<Slot, Fault> {
    Ok(Slot(u16::try_from(get::<i32>(row, at)?).unwrap_or(u16::MAX)))
}

fn key(row: &Row, at: usize) -> Result<SessionKey, Fault> {
    Ok(SessionKey { tenant: text(row, at)?, session: text(row, at + 1)? })
}

fn stored(row: &Row, at: usize) -> Result<(StoredEvent, Found), Fault> {
    let position = Position { slot: slot(row, at)?, number: number(row, at + 1)? };
    let (stamp, seq) = (number(row, at + 2)?, number(row, at + 3)?);
    Ok((StoredEvent { seq, position, stamp, bytes: get(row, at + 5)? }, get(row, at + 4)?))
}

/// The columns of an index row, in the order in which [`row`] takes them.
const ROW: &str =
    "l.kind, l.status, l.requester, l.agents, l.created_at, l.finished_at, l.summary, l.waiters, l.waits";

fn row(row: &Row, at: usize) -> Result<IndexRow, Fault> {
    let names = |at| get::<Vec<&str>>(row, at).map(|names| names.into_iter().map(Box::from));
    let kinds = get::<Vec<i64>>(row, at + 8)?.into_iter();
    let waits = names(at + 7)?.zip(kinds);
    let small = |at| get::<i16>(row, at).map(|value| u8::try_from(value).unwrap_or(u8::MAX));
    Ok(IndexRow {
        kind: small(at)?,
        status: small(at + 1)?,
        requester: text(row, at + 2)?,
        agents: names(at + 3)?.collect(),
        created_at: number(row, at + 4)?,
        finished_at: get::<Option<i64>>(row, at + 5)?.map(natural),
        summary: get(row, at + 6)?,
        waits: waits.map(|(agent, kinds)| Waits { agent, kinds: kinds as u32 }).collect(),
    })
}

pub(super) fn reached(place: &Place) -> (Vec<i32>, Vec<i64>) {
    place.positions().map(|position| (i32::from(position.slot.0), signed(position.number))).unzip()
}

fn limit(max: usize) -> i64 {
    max.min(ROWS_MAX) as i64
}

impl Inner {
    pub(super) fn read_events(
        &self,
        of: &SessionKey,
        after: u64,
        max: usize,
    ) -> Result<Vec<StoredEvent>, Fault> {
        let mut events: Vec<(StoredEvent, Found)> = Vec::new();
        // What was asked for may be more than is read at a time.
        while !full(&events, max) {
            let from = after.saturating_add(events.len() as u64);
            let more = limit(max - events.len());
            let sql = format!(
                "SELECT {EVENT} FROM (SELECT *, sum(octet_length(bytes)) OVER (ORDER BY seq) - octet_length(bytes) AS before
                     FROM @events WHERE sid = $1 AND seq > $2 ORDER BY seq LIMIT $3) e
                 WHERE e.before < $4 ORDER BY e.seq"
            );
            let room = PAGE_BYTES_MAX as i64;
            let found = self.read(
                "reading a session",
                &sql,
                || values![sid(of) => BYTEA, signed(from) => INT8, more => INT8, room => INT8],
            )?;
            let end = found.len() as i64 == more;
            for row in &found {
                events.push(stored(row, 0)?);
            }
            if !end {
                break;
            }
        }
        let events = cut(events.into_iter().take(max).map(Ok::<_, Fault>))?;
        events.iter().for_each(|(event, _)| self.see(event.stamp));
        checked(of, after, events)
    }

    pub(super) fn read_head(&self, of: &SessionKey) -> Result<Option<u64>, Fault> {
        let sql = "SELECT coalesce(e.seq, 0), coalesce(e.stamp, 0) FROM @sessions s LEFT JOIN LATERAL (
                       SELECT seq, stamp FROM @events WHERE sid = s.sid ORDER BY seq DESC LIMIT 1) e ON true
                   WHERE s.sid = $1 AND s.deleted_at IS NULL";
        let found = self.read("reading a session's head", sql, || values![sid(of) => BYTEA])?;
        let Some(row) = found.first() else { return Ok(None) };
        self.see(number(row, 1)?);
        number(row, 0).map(Some)
    }

    pub(super) fn read_snapshot(&self, of: &SessionKey) -> Result<Option<Snapshot>, Fault> {
        let sql = "SELECT s.seq, s.checksum, s.bytes, coalesce(e.stamp, 0) FROM @snapshots s
                   LEFT JOIN @events e ON e.sid = s.sid AND e.seq = s.seq WHERE s.sid = $1";
        let found = self.read("reading a snapshot", sql, || values![sid(of) => BYTEA])?;
        let Some(row) = found.first() else { return Ok(None) };
        self.see(number(row, 3)?);
        let snapshot = Snapshot { seq: number(row, 0)?, bytes: get(row, 2)? };
        let sound = get::<i64>(row, 1)? == i64::from(checksum(of, snapshot.seq, &snapshot.bytes));
        Ok(Some(snapshot).filter(|_| sound))
    }

    pub(super) fn read_feed(&self, feed: &Feed, after: &Place, max: usize) -> Result<Vec<FeedItem>, Fault> {
        let max = max.min(ROWS_MAX);
        let (slots, numbers) = reached(after);
        let found = match feed {
            Feed::Everything => {
                let sql = page_of(&format!(
                    "SELECT k.tenant, k.session, {EVENT} FROM {REACHED} r
                     CROSS JOIN LATERAL (SELECT * FROM @events e WHERE e.slot = r.slot AND e.number > r.number
                                         ORDER BY e.number LIMIT $3) e
                     JOIN @sessions k ON k.sid = e.sid"
                ));
                self.read("reading the feed", &sql, || {
                    values![slots.clone() => INT4_ARRAY, numbers.clone() => INT8_ARRAY, limit(max) => INT8, PAGE_BYTES_MAX as i64 => INT8]
                })?
            }
            Feed::Agent { tenant, agent } => self.agent_feed(tenant, agent, &slots, &numbers, max)?,
        };
        let items = found.iter().map(|row| {
            let key = key(row, 0)?;
            let (event, found) = stored(row, 2)?;
            Ok(FeedItem { event: check(&key, event, found)?, key })
        });
        cut(items)
    }

    /// A reader near the end, or an agent that is in most sessions, finds its events in the next window. If they are further
    /// apart it is cheaper to ask each of the agent's sessions where its events are.
    fn agent_feed(
        &self,
        tenant: &str,
        agent: &str,
        slots: &[i32],
        numbers: &[i64],
        max: usize,
    ) -> Result<Vec<Row>, Fault> {
        let values = || {
            values![slots.to_vec() => INT4_ARRAY, numbers.to_vec() => INT8_ARRAY, limit(max) => INT8,
                    PAGE_BYTES_MAX as i64 => INT8, tenant.to_owned() => TEXT, agent.to_owned() => TEXT]
        };
        let window = format!(
            "SELECT min(e.stamp) FROM {REACHED} r CROSS JOIN LATERAL (SELECT stamp FROM @events e
                 WHERE e.slot = r.slot AND e.number > r.number + {FEED_WINDOW} ORDER BY e.number LIMIT 1) e"
        );
        let near = page_of(&format!(
            "SELECT k.tenant, k.session, {EVENT} FROM {REACHED} r
             CROSS JOIN LATERAL (
                 SELECT * FROM @events e WHERE e.slot = r.slot AND e.number > r.number AND e.number <= r.number + {FEED_WINDOW}
                 AND EXISTS (SELECT 1 FROM @listed l WHERE l.sid = e.sid AND l.tenant = $5 AND $6 = ANY (l.agents))
                 ORDER BY e.number LIMIT $3) e
             JOIN @sessions k ON k.sid = e.sid
             WHERE e.stamp < coalesce(({window}), 9223372036854775807)"
        ));
        let found = self.read("reading the feed of an agent", &near, values)?;
        let ends = self.read(
            "reading the feed of an agent",
            &window,
            || values![slots.to_vec() => INT4_ARRAY, numbers.to_vec() => INT8_ARRAY],
        )?;
        let more = ends.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten().is_some();
        if found.len() >= max || !more {
            return Ok(found);
        }
        let far = page_of(&format!(
            "SELECT k.tenant, k.session, {EVENT} FROM @lists l JOIN @events e ON e.sid = l.sid JOIN @sessions k ON k.sid = l.sid
             JOIN {REACHED} r ON r.slot = e.slot AND e.number > r.number
             WHERE l.tenant = $5 AND l.agent = $6"
        ));
        self.read("reading the feed of an agent", &far, values)
    }

    /// A page of what others did. What is left out is the slot that is held, and the database says whether it is.
    pub(super) fn read_news(&self, after: &Place, max: usize) -> Result<Vec<News>, Fault> {
        let held = self.held_and_heard()?;
        let max = max.min(ROWS_MAX);
        let (slots, numbers) = reached(after);
        let sql = "SELECT * FROM @news_v1($1, $2, $3, $4, $5, $6)";
        let values = || {
            let mut all = values![slots.clone() => INT4_ARRAY, numbers.clone() => INT8_ARRAY];
            all.extend(held.values());
            all.extend(values![limit(max) => INT8, PAGE_BYTES_MAX as i64 => INT8]);
            all
        };
        let found = self.surely(self.options.patience, |within| {
            self.ask_surely(&self.tail, within, sql, values).map_err(|error| match is(&error, TAKEN) {
                true => self.move_from(held, &mut lock(&self.writer)),
                false => fault("reading what other nodes did", error),
            })
        })?;
        let news = cut(found.iter().map(news))?;
        news.iter().for_each(|news| self.see(news.stamp));
        Ok(news)
    }

    pub(super) fn read_list(
        &self,
        filter: &Filter,
        order: Order,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page, Fault> {
        let (beyond, direction, end) = match order {
            Order::Newest => ("<", "DESC", "min"),
            Order::Oldest => (">", "ASC", "max"),
        };
        let from = match (after, order) {
            (Some(Cursor(after)), _) => signed(after),
            (None, Order::Newest) => i64::MAX,
            (None, Order::Oldest) => -1,
        };
        // The index that finds the fewest; the rest is filtered.
        let scan = match (&filter.tenant, &filter.agent) {
            (Some(_), Some(_)) => "SELECT sid, born FROM @lists WHERE tenant = $2 AND agent = $3",
            // Nobody asks for it but who looks over everything.
            (None, Some(_)) => {
                "SELECT sid, born FROM (SELECT k.sid, k.born FROM @sessions k JOIN @listed l ON l.sid = k.sid
                 WHERE k.deleted_at IS NULL AND $3 = ANY (l.agents)) k WHERE true"
            }
            (Some(_), None) => "SELECT sid, born FROM @sessions WHERE deleted_at IS NULL AND tenant = $2",
            (None, None) => "SELECT sid, born FROM @sessions WHERE deleted_at IS NULL",
        };
        let sql = format!(
            "WITH scanned AS MATERIALIZED ({scan} AND born {beyond} $1 AND ($2::text IS NULL OR true) AND ($3::text IS NULL OR true)
                 ORDER BY born {direction} LIMIT {SCAN_MAX}),
             found AS (
                 SELECT k.tenant, k.session, l.born, {ROW} FROM scanned c JOIN @listed l ON l.sid = c.sid JOIN @sessions k ON k.sid = c.sid
                 WHERE ($4 = 0 OR (l.status < 64 AND ($4 >> l.status::int) & 1 = 1)) AND ($5::smallint IS NULL OR l.kind = $5)
                 AND ($6::bigint IS NULL OR l.created_at >= $6) AND ($7::bigint IS NULL OR l.created_at < $7)
                 ORDER BY l.born {direction} LIMIT $8)
             SELECT f.*, e.count, e.last FROM (SELECT count(*) AS count, {end}(born) AS last FROM scanned) e
             LEFT JOIN found f ON true ORDER BY f.born {direction}"
        );
        let wanted = limit(max);
        let found = self.read("reading a list", &sql, || {
            values![
                from => INT8,
                filter.tenant.as_deref().map(str::to_owned) => TEXT,
                filter.agent.as_deref().map(str::to_owned) => TEXT,
                filter.statuses.cast_signed() => INT8,
                filter.kind.map(i16::from) => INT2,
                filter.created_from.map(signed) => INT8,
                filter.created_before.map(signed) => INT8,
                wanted + 1 => INT8,
            ]
        })?;
        let Some(first) = found.first() else { return Ok(Page { sessions: Vec::new(), next: None }) };
        let (scanned, last) = (get::<i64>(first, 12)?, get::<Option<i64>>(first, 13)?);
        let rows = found.iter().filter(|row| row.try_get::<_, i64>(2).is_ok());
        let listed = rows.map(|found| {
            Ok::<_, Fault>(Listed {
                key: key(found, 0)?,
                place: Cursor(number(found, 2)?),
                row: row(found, 3)?,
            })
        });
        let (sessions, next) = placed(listed, wanted as usize, |listed| listed.place)?;
        // Where the window ended short of the list's end, the next page begins after it.
        let window = last.filter(|_| scanned == SCAN_MAX).map(|last| Cursor(natural(last)));
        Ok(Page { next: next.or(window.filter(|_| max > 0)), sessions })
    }

    pub(super) fn read_inbox(
        &self,
        tenant: &str,
        agent: &str,
        kinds: u32,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<InboxPage, Fault> {
        let sql = format!(
            "SELECT k.tenant, k.session, l.born, b.kinds, {ROW}
             FROM @inbox b JOIN @listed l ON l.sid = b.sid JOIN @sessions k ON k.sid = b.sid
             WHERE b.tenant = $1 AND b.agent = $2 AND b.born > $3 AND b.kinds & $4 <> 0 ORDER BY b.born LIMIT $5"
        );
        let from = after.map_or(-1, |Cursor(after)| signed(after));
        let wanted = limit(max);
        let found = self.read("reading an inbox", &sql, || {
            values![tenant.to_owned() => TEXT, agent.to_owned() => TEXT, from => INT8, i64::from(kinds) => INT8, wanted + 1 => INT8]
        })?;
        let waiting = found.iter().map(|found| {
            let (key, place, kinds) =
                (key(found, 0)?, Cursor(number(found, 2)?), get::<i64>(found, 3)? as u32);
            Ok::<_, Fault>(Waiting { key, place, row: row(found, 4)?, kinds })
        });
        let (sessions, next) = placed(waiting, wanted as usize, |waiting| waiting.place)?;
        Ok(InboxPage { sessions, next })
    }

    pub(super) fn read_row(&self, of: &SessionKey) -> Result<Option<IndexRow>, Fault> {
        let sql = format!("SELECT {ROW} FROM @listed l WHERE l.sid = $1");
        let found = self.read("reading an index row", &sql, || values![sid(of) => BYTEA])?;
        found.first().map(|found| row(found, 0)).transpose()
    }

    pub(super) fn read_due(
        &self,
        after: Option<DueCursor>,
        until: u64,
        max: usize,
    ) -> Result<DuePage, Fault> {
        let sql =
            "SELECT k.tenant, k.session, l.wake, l.born FROM @listed l JOIN @sessions k ON k.sid = l.sid
                   WHERE l.wake <= $1 AND (l.wake, l.born) > ($2, $3) ORDER BY l.wake, l.born LIMIT $4";
        let (at, place) = after.map_or((-1, -1), |cursor| (signed(cursor.at), signed(cursor.place)));
        let wanted = signed(max as u64).min(100_000);
        let found = self.read(
            "reading what is due",
            sql,
            || values![signed(until) => INT8, at => INT8, place => INT8, wanted => INT8],
        )?;
        let mut sessions = Vec::with_capacity(found.len());
        for row in &found {
            sessions.push((key(row, 0)?, number(row, 2)?));
        }
        let last = found.last().filter(|_| found.len() as i64 == wanted);
        let next = last
            .map(|row| Ok::<_, Fault>(DueCursor { at: number(row, 2)?, place: number(row, 3)? }))
            .transpose()?;
        Ok(DuePage { sessions, next })
    }

    /// A page of keys, in the order in which the sessions were first written, from a table that has that order.
    pub(super) fn read_keys(
        &self,
        sql: &str,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<Cursor>), Fault> {
        let from = after.map_or(-1, |Cursor(after)| signed(after));
        let wanted = signed(max as u64).min(100_000);
        let found = self.read("reading the sessions", sql, || values![from => INT8, wanted + 1 => INT8])?;
        let shown = &found[..found.len().min(wanted as usize)];
        let keys = shown.iter().map(|row| key(row, 0)).collect::<Result<_, _>>()?;
        let last = shown.last().map(|row| number(row, 2)).transpose()?.map(Cursor).or(after);
        Ok((keys, last.filter(|_| found.len() > shown.len())))
    }

    /// The spaces and tenants of records.
    pub(super) fn read_spaces(&self) -> Result<Vec<Space>, Fault> {
        let sql = "SELECT DISTINCT space, tenant FROM @records ORDER BY space, tenant";
        let within = self.options.patience * LONG_PATIENCES;
        let found = self.read_within(within, "reading which records there are", sql, Vec::new)?;
        found.iter().map(|row| Ok((text(row, 0)?, text(row, 1)?))).collect()
    }

    /// A page of tombstones.
    pub(super) fn read_tombstones(
        &self,
        after: Option<&Tombstone>,
        max: usize,
    ) -> Result<Vec<Tombstone>, Fault> {
        // The first condition is the index's.
        let sql = "SELECT tenant, session, deleted_at FROM @sessions
                   WHERE deleted_at >= $1 AND (deleted_at, session, tenant) > ($1, $2, $3)
                   ORDER BY deleted_at, session, tenant LIMIT $4";
        // Times are never less than 0.
        let at = after.map_or(-1, |after| signed(after.deleted_at));
        let of = |of: fn(&Tombstone) -> &str| after.map_or_else(String::new, |after| of(after).to_owned());
        let max = signed(max as u64).min(10_000);
        let found = self.read("reading the tombstones", sql, || {
            values![at => INT8, of(|after| &after.key.session) => TEXT, of(|after| &after.key.tenant) => TEXT, max => INT8]
        })?;
        found.iter().map(|row| Ok(Tombstone { key: key(row, 0)?, deleted_at: number(row, 2)? })).collect()
    }

    pub(super) fn read_last_place(&self) -> Result<Place, Fault> {
        let found = self.read("reading the last place", "SELECT slot, number FROM @slots", Vec::new)?;
        let mut place = Place::default();
        for row in &found {
            place.reach(Position { slot: slot(row, 0)?, number: number(row, 1)? });
        }
        Ok(place)
    }

    /// Counts by tenant and requester.
    pub(super) fn read_counts(&self, doing: &'static str, sql: &str) -> Result<Vec<OpenCount>, Fault> {
        let found = self.read_within(self.options.patience * LONG_PATIENCES, doing, sql, Vec::new)?;
        found.iter().map(|row| Ok((text(row, 0)?, text(row, 1)?, number(row, 2)?))).collect()
    }

    pub(super) fn read_number(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl Fn() -> Vec<super::link::Value>,
    ) -> Result<Option<u64>, Fault> {
        let found = self.read(doing, sql, values)?;
        found
            .first()
            .map(|row| get::<Option<i64>>(row, 0))
            .transpose()
            .map(|value| value.flatten().map(natural))
    }
}

/// The items with the earliest stamps, cut by bytes where the database can.
fn page_of(items: &str) -> String {
    format!(
        "SELECT * FROM (SELECT p.*, sum(octet_length(p.bytes)) OVER (ORDER BY p.stamp, p.slot) - octet_length(p.bytes) AS before
             FROM (SELECT * FROM ({items}) i ORDER BY i.stamp, i.slot LIMIT $3) p) c
         WHERE c.before < $4 ORDER BY c.stamp, c.slot"
    )
}

fn full(events: &[(StoredEvent, Found)], max: usize) -> bool {
    is_full(events, max)
}

fn news(row: &Row) -> Result<News, Fault> {
    let (event, found) = stored(row, 2)?;
    let StoredEvent { seq, position, stamp, bytes } = event;
    let what = match get::<Option<i16>>(row, 8)? {
        None => {
            let key = key(row, 0)?;
            let event = check(&key, StoredEvent { seq, position, stamp, bytes }, found)?;
            let agents = get::<Vec<&str>>(row, 10)?.into_iter().map(Box::from).collect();
            Done::Appended { key, seq, bytes: event.bytes, agents, requester: text(row, 11)? }
        }
        Some(1) => Done::Deleted(key(row, 0)?),
        Some(3) => Done::Said(bytes),
        Some(_) => Done::Record { space: text(row, 9)?, tenant: text(row, 0)?, key: text(row, 1)? },
    };
    Ok(News { position, stamp, what })
}
