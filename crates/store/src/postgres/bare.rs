//! The database without the store: what benchmarks put beside it.

use std::sync::Arc;

use super::link::{AT_ITS_LEISURE, Link, Session, Value, values};
use super::{Options, fault};
use crate::fault::Fault;
use crate::number::{natural, signed};

/// One connection, and a table with one key.
pub struct Bare {
    link: Link,
    session: Arc<Session>,
    last: u64,
}

impl Bare {
    /// Connect, and make the table anew.
    pub fn open(options: Options) -> Result<Bare, Fault> {
        let link = Link::new(options.database, &options.schema, "bare", options.patience)?;
        let session = link.connect(options.patience).map_err(|error| fault("connecting", error))?;
        let bare = Bare { link, session, last: 0 };
        let schema = format!("CREATE SCHEMA IF NOT EXISTS \"{}\"", bare.link.schema());
        bare.ask(&schema, Vec::new())?;
        bare.ask("DROP TABLE IF EXISTS @bare", Vec::new())?;
        bare.ask("CREATE TABLE @bare (key bigint PRIMARY KEY, bytes bytea NOT NULL)", Vec::new())?;
        Ok(bare)
    }

    fn ask(&self, sql: &str, values: Vec<Value>) -> Result<u64, Fault> {
        let asked = self.link.ask(&self.session, sql, values, AT_ITS_LEISURE);
        let rows = asked.map_err(|error| fault("asking the database itself", error))?;
        Ok(rows.first().and_then(|row| row.try_get::<_, i64>(0).ok()).map_or(0, natural))
    }

    /// Insert these in one statement, which commits by itself.
    pub fn insert(&mut self, events: &[Arc<[u8]>]) -> Result<(), Fault> {
        let bytes: Vec<Vec<u8>> = events.iter().map(|event| event.to_vec()).collect();
        let sql =
            "INSERT INTO @bare SELECT $1 + e.at, e.bytes FROM unnest($2) WITH ORDINALITY AS e (bytes, at)";
        self.ask(sql, values![signed(self.last) => INT8, bytes => BYTEA_ARRAY])?;
        self.last += events.len() as u64;
        Ok(())
    }

    /// The least that can be asked.
    pub fn select_one(&self) -> Result<(), Fault> {
        self.ask("SELECT 1::bigint", Vec::new()).map(drop)
    }

    /// Have each commit of the whole server wait until a standby has applied it, or no more. Only for a database of one's own.
    pub fn wait_for_standby(&self, wait: bool) -> Result<(), Fault> {
        let settings = [("synchronous_standby_names", "'*'"), ("synchronous_commit", "remote_apply")];
        for (name, value) in settings {
            let sql = match wait {
                true => format!("ALTER SYSTEM SET {name} = {value}"),
                false => format!("ALTER SYSTEM RESET {name}"),
            };
            self.ask(&sql, Vec::new())?;
        }
        self.ask("SELECT pg_reload_conf()", Vec::new()).map(drop)
    }

    /// Whether a standby follows that commits wait for.
    pub fn is_followed(&self) -> Result<bool, Fault> {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        Ok(self.ask(sql, Vec::new())? > 0)
    }

    /// The bytes of the tables of a store with their indexes, and of those what tombstones are in.
    pub fn sizes(&self) -> Result<(u64, u64), Fault> {
        let tables =
            "('events', 'snapshots', 'listed', 'lists', 'inbox', 'stored', 'records', 'notes', 'slots')";
        let of = |names: &str| {
            let sql = format!(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE c.relkind = 'r' AND n.nspname = $1 AND c.relname IN {names}"
            );
            self.ask(&sql, values![self.link.schema().to_owned() => TEXT])
        };
        Ok((of(tables)?, of("('sessions')")?))
    }
}
