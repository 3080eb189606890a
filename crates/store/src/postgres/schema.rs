//! Making the tables, step by step. Each step only adds, and says which releases go on beside it.

use super::link::{AT_ITS_LEISURE, Error, values};
use super::{About, Inner, Options, database, empty, fault, first, unexpected};
use crate::fault::Fault;
use crate::number::natural;

/// From the tables of one version to those of the next.
pub(super) struct Step {
    sql: &'static str,
    /// The oldest release that works with the tables after it.
    borne_since: &'static str,
}

/// How the tables of this release are made. Their version is the number of the steps.
pub(super) const STEPS: [Step; 1] = [Step { sql: include_str!("schema-1.sql"), borne_since: "0.1.0" }];

/// Make the tables, or bring them up to date, and nothing else. Says whether there was anything to do.
pub fn migrate(options: Options) -> Result<bool, Fault> {
    Inner::new(Options { migrate: true, ..options })?.migrate(&STEPS)
}

/// Remove the schema with everything in it: for what was made to be measured.
pub fn remove(options: Options) -> Result<(), Fault> {
    let inner = Inner::new(options)?;
    let sql = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", inner.options.schema);
    let removed = inner.ask_within(AT_ITS_LEISURE, &sql, Vec::new);
    removed.map(drop).map_err(|error| fault("removing the schema", error))
}

impl Inner {
    /// Make the tables, or find them. When several nodes start at once, one does. Says whether there was anything to do.
    pub(super) fn migrate(&self, steps: &[Step]) -> Result<bool, Fault> {
        let Options { schema, database, .. } = &self.options;
        let refused = |error: Error| self.cannot("opening the database", error);
        let about = self.ask_within(self.options.patience, database::ABOUT, Vec::new).map_err(refused)?;
        About::read(about.first().ok_or_else(|| empty("opening the database"))?)?.fits()?;
        let known = steps.len() as u64;
        let found = self.version()?;
        if found > known {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(Fault::TooNew { found, known: known as u32 });
        }
        if found < known && !self.options.migrate {
            let at = database.shown();
            let what = if found == 0 { "none".to_owned() } else { format!("version {found} of {known}") };
            return Err(Fault::Unfit {
                what: format!(
                    "expected the tables of this release in the schema {schema} of {at}, found {what}: handover migrate makes them"
                ),
            });
        }
        for (before, step) in (0..).zip(steps).skip(found as usize) {
            if before > 0 {
                self.everybody_bears(step)?;
            }
            let sql = format!(
                "DO $make$ DECLARE found bigint := 0; BEGIN
                     PERFORM pg_advisory_xact_lock(hashtext('{schema}.tables'));
                     IF to_regnamespace('\"{schema}\"') IS NULL THEN
                         CREATE SCHEMA \"{schema}\";
                     END IF;
                     PERFORM set_config('search_path', '\"{schema}\"', true);
                     IF to_regclass('facts') IS NOT NULL THEN
                         SELECT value INTO found FROM facts WHERE name = 'version';
                     END IF;
                     IF found = {before} THEN
                         EXECUTE $step${}$step$;
                         INSERT INTO facts VALUES ('version', {before} + 1)
                         ON CONFLICT (name) DO UPDATE SET value = excluded.value;
                     END IF;
                 END $make$",
                step.sql
            );
            let run = |session: &_, within| self.link.script(session, &sql, within);
            self.readers.with(&self.link, AT_ITS_LEISURE, run).map_err(refused)?;
        }
        Ok(found < known)
    }

    /// The version of the tables, 0 if there are none.
    fn version(&self) -> Result<u64, Fault> {
        let name = format!("\"{}\".facts", self.options.schema);
        let there = "SELECT to_regclass($1) IS NOT NULL";
        let there = self.ask_within(self.options.patience, there, || values![name.clone() => TEXT]);
        let there = there.map_err(|error| self.cannot("looking for the tables", error))?;
        if !first(&there, "looking for the tables")? {
            return Ok(0);
        }
        let sql = "SELECT value FROM @facts WHERE name = 'version'";
        let found = self.ask_within(self.options.patience, sql, Vec::new);
        let found = found.map_err(|error| self.cannot("reading the version of the tables", error))?;
        found.first().map_or(Ok(0), |row| row.try_get(0).map(natural).map_err(unexpected))
    }

    /// Why something cannot be done when the store is opened: what helps, if that is clear.
    pub(super) fn cannot(&self, doing: &'static str, error: Error) -> Fault {
        let Options { database, schema, .. } = &self.options;
        database.refuses(schema, &error).unwrap_or_else(|| fault(doing, error))
    }

    fn everybody_bears(&self, step: &Step) -> Result<(), Fault> {
        let too_old = |node: &super::Node| release(&node.release) < release(step.borne_since);
        match self.living()?.into_iter().find(too_old) {
            None => Ok(()),
            Some(node) => Err(Fault::Unfit {
                what: format!(
                    "expected that every node is of release {} or later, which the new tables need, found {} of release {}: stop it \
                     first, or upgrade it to a release in between",
                    step.borne_since, node.name, node.release
                ),
            }),
        }
    }
}

/// The numbers of a release, to compare.
fn release(text: &str) -> Vec<u64> {
    text.split(['.', '-']).map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Database, PostgresStore};
    use super::*;

    #[test]
    fn a_step_that_a_living_node_could_not_bear_is_refused_and_names_the_node() {
        // Without one it shows nothing, which the tests of whole stores refuse in CI.
        let Ok(url) = std::env::var("HANDOVER_TEST_POSTGRES") else { return };
        let options = Options {
            schema: format!("steps_{}", std::process::id()),
            node: "old one".to_owned(),
            ..Options::new(Database::read(&url, None, None).unwrap())
        };
        let living = PostgresStore::open(options.clone()).unwrap();
        let [first] = STEPS;
        let second = |borne_since| Step { sql: "CREATE TABLE later (name text)", borne_since };
        let steps = [first, second("99.1.0")];
        let next = Inner::new(Options { node: "new one".to_owned(), ..options.clone() }).unwrap();
        let refused = next.migrate(&steps).unwrap_err();
        assert!(matches!(refused, Fault::Unfit { .. }), "{refused:?}");
        let what = refused.to_string();
        for part in ["expected", "99.1.0", "found old one of release", "stop it", env!("CARGO_PKG_VERSION")] {
            assert!(what.contains(part), "{what}");
        }
        assert_eq!(next.version().unwrap(), 1);
        drop(living);
        assert!(next.migrate(&steps).unwrap());
        assert_eq!(next.version().unwrap(), 2);
        assert!(!next.migrate(&steps).unwrap(), "it is made once");
        assert!(matches!(PostgresStore::open(options), Err(Fault::TooNew { found: 2, known: 1 })));
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert!(release("0.9.3") < release("0.10.0") && release("1.0.0") > release("0.99.99"));
        assert_eq!(release("1.2.3-rc1"), release("1.2.3"));
    }
}
