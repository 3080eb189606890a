//! `handover migrate` and `handover nodes`, and which data the commands use that need no server.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use handover_server::config::{self, Config};
use handover_server::house as server;
use handover_store::postgres::{self, Node, Options};
use handover_store::{PostgresStore, SqliteStore, Store};
use serde_json::json;

use crate::cli::text::{Cell, duration, table};
use crate::{Failure, house};

/// Where the data is.
#[derive(clap::Args)]
pub struct At {
    /// The directory that holds the logs
    #[arg(long, value_name = "DIR", env = "HANDOVER_DATA", default_value = "./handover-data")]
    data: PathBuf,
    #[command(flatten)]
    database: In,
}

/// Which database.
#[derive(clap::Args)]
pub struct In {
    /// A PostgreSQL database in the place of a directory, such as postgres://user@host/database [env: HANDOVER_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Read this TOML file for what else is to be known of the database
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
}

/// A password on the command line is read by every process of the machine.
pub fn no_password_in_flag(url: Option<&str>) -> Result<(), Failure> {
    let is_secret = url.is_some_and(|url| config::Url::from(url).has_password());
    match is_secret {
        true => Err(Failure::Usage(
            "--store: expected a URL without a password, found one, which every process of this machine can read: put it into the \
             file that store.password_file names, or the URL into HANDOVER_STORE"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

impl In {
    fn config(&self) -> Result<Config, Failure> {
        no_password_in_flag(self.store.as_deref())?;
        let sources = house::sources(&[("store.url", &self.store)], self.config.as_ref())?;
        let loaded = config::load(&sources).map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(loaded.config)
    }

    /// How to open it, if one was named.
    pub fn options(&self) -> Result<Option<Options>, Failure> {
        server::database(&self.config()?).map_err(Failure::Usage)
    }

    /// The same for a server that this process starts, as variables.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let given = [("HANDOVER_STORE", &self.store), ("HANDOVER_CONFIG", &self.config)];
        given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    fn wanted(&self) -> Result<Options, Failure> {
        let missing = || {
            Failure::Usage(
                "expected a database in --store, HANDOVER_STORE or the file, found none".to_owned(),
            )
        };
        self.options()?.ok_or_else(missing)
    }
}

impl At {
    /// What it is called.
    pub fn shown(&self) -> String {
        match self.database.options() {
            Ok(Some(options)) => options.database.shown(),
            Ok(None) | Err(_) => self.data.display().to_string(),
        }
    }

    /// Whether there can be anything to read.
    pub fn must_be_there(&self) -> Result<(), Failure> {
        match self.database.options()? {
            None if !self.data.is_dir() => Err(Failure::Usage(format!(
                "expected a data directory, found none at {}",
                self.data.display()
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Open it.
    pub fn open(&self, doing: &str) -> Result<Arc<dyn Store>, Failure> {
        let failed = |fault| Failure::fault(doing, &fault);
        Ok(match self.database.options()? {
            Some(mut options) => {
                // Whoever only reads and writes here asks nobody to keep anything.
                options.says.settings.clear();
                Arc::new(PostgresStore::open(options).map_err(failed)?)
            }
            None => Arc::new(SqliteStore::open(&self.data).map_err(failed)?),
        })
    }

    /// The same if nobody else uses it. A data directory has one user anyway.
    pub fn open_alone(&self, doing: &str) -> Result<Arc<dyn Store>, Failure> {
        if let Some(options) = self.database.options()? {
            if options.migrate {
                postgres::migrate(options.clone()).map_err(|fault| Failure::fault(doing, &fault))?;
            }
            let lease = options.lease.as_millis() as u64;
            let nodes = postgres::nodes(options).map_err(|fault| Failure::fault(doing, &fault))?;
            let alive: Vec<String> =
                nodes.into_iter().filter(|node| node.seen_ms_ago < lease).map(|node| node.name).collect();
            if !alive.is_empty() {
                let alive = alive.join(", ");
                return Err(Failure::Fault(format!(
                    "{doing}: expected that no node is there, found {alive}: stop it first"
                )));
            }
        }
        self.open(doing)
    }
}

/// What `handover migrate` can be told.
#[derive(clap::Args)]
#[command(after_help = MIGRATE_HELP)]
pub struct MigrateArgs {
    #[command(flatten)]
    database: In,
}

const MIGRATE_HELP: &str = "\
serve does the same when it starts, unless store.migrate is false: then this is for whoever may make tables, before new nodes start.
Nodes of the release before go on meanwhile.

Examples:
  handover migrate --store postgres://admin@db.example.com/handover";

/// Run `handover migrate` to its end.
pub fn migrate(args: &MigrateArgs) -> Result<(), Failure> {
    let options = args.database.wanted()?;
    let at = format!("the schema {} of {}", options.schema, options.database.shown());
    let doing = format!("making the tables in {at}");
    let made = postgres::migrate(options).map_err(|fault| Failure::fault(&doing, &fault))?;
    say(&format!("{at} {}", if made { "has its tables now" } else { "is as this release wants it" }))
}

/// What `handover nodes` can be told.
#[derive(clap::Args)]
#[command(after_help = NODES_HELP)]
pub struct NodesArgs {
    #[command(flatten)]
    database: In,
    /// List those as well that were last seen more than a day ago
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A node that was not seen for so long is not coming back under its slot: most likely there are fewer nodes now.
const LISTED_MS: u64 = 24 * 3600 * 1000;

const NODES_HELP: &str = "\
A node that was killed is listed as lost until another takes its slot, for a day at most. BEHIND is how many events of the others a node did not know
when it was last seen.

Examples:
  handover nodes --store postgres://handover@db.example.com/handover";

/// Run `handover nodes` to its end.
pub fn nodes(args: &NodesArgs) -> Result<(), Failure> {
    let options = args.database.wanted()?;
    let lease = options.lease.as_millis() as u64;
    let doing = format!("listing the nodes of {}", options.database.shown());
    let nodes = postgres::nodes(options).map_err(|fault| Failure::fault(&doing, &fault))?;
    let (nodes, hidden) = listed(nodes, args.all);
    let state = |node: &Node| if node.seen_ms_ago < lease { "live" } else { "lost" };
    if args.json {
        let nodes: Vec<_> = nodes
            .iter()
            .map(|node| {
                json!({ "name": node.name, "state": state(node), "version": node.release, "slot": node.slot.0,
                        "seenMsAgo": node.seen_ms_ago, "behind": node.behind })
            })
            .collect();
        let told = json!({ "version": crate::cli::JSON_VERSION, "nodes": nodes, "hidden": hidden });
        return say(&told.to_string());
    }
    let row = |node: &Node| {
        vec![
            Cell::from(crate::cli::text::line(&node.name)),
            Cell::from(state(node)),
            Cell::from(crate::cli::text::line(&node.release)),
            Cell::from(node.slot.0.to_string()),
            Cell::from(format!("{} ago", duration(node.seen_ms_ago / 1000))),
            Cell::from(node.behind.to_string()),
        ]
    };
    let rows: Vec<Vec<Cell>> = nodes.iter().map(row).collect();
    match rows.is_empty() {
        true => say("no node is there"),
        false => say(&table(&["NAME", "STATE", "VERSION", "SLOT", "SEEN", "BEHIND"], &rows, 0).join("\n")),
    }?;
    match hidden {
        0 => Ok(()),
        1 => say("1 lost node, last seen more than a day ago, is not listed: --all lists it"),
        _ => say(&format!(
            "{hidden} lost nodes, last seen more than a day ago, are not listed: --all lists them"
        )),
    }
}

/// The nodes that are listed, and how many are not.
fn listed(nodes: Vec<Node>, all: bool) -> (Vec<Node>, usize) {
    let (listed, hidden): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(|node| all || node.seen_ms_ago < LISTED_MS);
    (listed, hidden.len())
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| Failure::fault("printing", &error))
}

#[cfg(test)]
mod tests {
    use handover_store::Slot;

    use super::*;

    #[test]
    fn a_node_that_was_not_seen_for_a_day_is_listed_only_if_all_are() {
        let node = |slot, seen_ms_ago| Node {
            name: format!("node-{slot}"),
            release: "1".to_owned(),
            slot: Slot(slot),
            seen_ms_ago,
            behind: 0,
            settings: Default::default(),
        };
        let nodes = || vec![node(0, 10), node(1, LISTED_MS), node(2, LISTED_MS - 1), node(3, u64::MAX)];
        let slots = |nodes: &[Node]| nodes.iter().map(|node| node.slot.0).collect::<Vec<_>>();
        let (some, hidden) = listed(nodes(), false);
        assert_eq!((slots(&some), hidden), (vec![0, 2], 2));
        let (all, hidden) = listed(nodes(), true);
        assert_eq!((slots(&all), hidden), (vec![0, 1, 2, 3], 0));
    }
}
