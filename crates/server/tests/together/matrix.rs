//! The run, and the page that shows what came of it.

use std::fmt::Write;
use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use tokio::task::JoinSet;

use super::Protocol;
use super::acts::{ACTS, Cell, Done};
use super::checker::WATCHER;
use super::others::both::Both;
use super::others::macp;
use super::requester::POLICY;

/// Where the table is kept, and what it stands between.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interop.md");
const BEGIN: &str = "<!-- matrix: begin -->\n";
const END: &str = "<!-- matrix: end -->\n";

/// Who may come in: the agents of every cell, and the observer, who may also register a policy.
fn tokens() -> Identity {
    let entry = |agent: &str, rest: &str| {
        format!("[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\n{rest}\n", hash_text(agent))
    };
    let cells = (0..9 * ACTS.len()).flat_map(Cell::agents).map(|agent| entry(&agent, "")).collect::<String>();
    let file = cells + &entry(WATCHER, "roles = [\"observer\", \"admin\"]");
    Identity::Tokens(Arc::new(Tokens::parse(&file).unwrap()))
}

/// What came of one row: the acts in their order.
async fn row(both: Arc<Both>, first: usize, pair: (Protocol, Protocol)) -> Vec<Done> {
    let mut done = Vec::new();
    for (index, (name, act)) in ACTS.into_iter().enumerate() {
        let both = Arc::clone(&both);
        let cell = tokio::spawn(async move {
            let mut cell = Cell::new(&both, first + index, pair.0, pair.1).await;
            let done = act(&mut cell).await;
            cell.check().await;
            done
        });
        let named = || panic!("{} asks, {} works: {name} failed", pair.0.name(), pair.1.name());
        done.push(cell.await.unwrap_or_else(|_| named()));
    }
    done
}

/// The table in Markdown, with a note for each reason.
fn table(rows: &[((Protocol, Protocol), Vec<Done>)]) -> String {
    let mut notes: Vec<&str> = Vec::new();
    let mut table = String::from("| requester → assignee |");
    for (name, _) in ACTS {
        write!(table, " {name} |").unwrap();
    }
    writeln!(table, "\n| --- |{}", " --- |".repeat(ACTS.len())).unwrap();
    for ((requester, worker), done) in rows {
        write!(table, "| {} → {} |", requester.name(), worker.name()).unwrap();
        for done in done {
            let (word, note) = match *done {
                Done::Yes => ("ok", None),
                Done::No(why) => ("no", Some(why)),
            };
            if note.is_some_and(|note| !notes.contains(&note)) {
                notes.extend(note);
            }
            let number = notes.iter().position(|known| Some(*known) == note);
            let number = number.map_or_else(String::new, |index| format!(" ({})", index + 1));
            write!(table, " {word}{number} |").unwrap();
        }
        table.push('\n');
    }
    table.push('\n');
    for (index, note) in notes.iter().enumerate() {
        writeln!(table, "{}. {note}", index + 1).unwrap();
    }
    table
}

/// The page must say what the run has shown, no more and no less. `UPDATE_INTEROP=1` writes it.
fn keep(table: &str) {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (kept, after) = rest.split_once(END).expect("the place has an end");
    if std::env::var_os("UPDATE_INTEROP").is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(kept, table, "docs/interop.md is not what was run: run it with UPDATE_INTEROP=1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_protocols_does_every_act_and_all_tell_the_same_history() {
    let both = Arc::new(Both::with(|set| set.identity = tokens()).await);
    let rules = r#"{"assignment":{"allow_reassignment_on_reject":true}}"#;
    let policy = macp::policy(POLICY, "macp.mode.task.v1", rules);
    assert!(both.macp(WATCHER).macp.register_policy(policy).await.unwrap().into_inner().ok);

    let pairs = Protocol::ALL.into_iter().flat_map(|from| Protocol::ALL.map(|to| (from, to)));
    // Side by side, because each row waits for a deadline.
    let mut rows = JoinSet::new();
    for (index, pair) in pairs.enumerate() {
        let both = Arc::clone(&both);
        rows.spawn(async move { (index, pair, row(both, index * ACTS.len(), pair).await) });
    }
    let mut rows = rows.join_all().await;
    rows.sort_by_key(|(index, ..)| *index);
    let table = table(&rows.into_iter().map(|(_, pair, done)| (pair, done)).collect::<Vec<_>>());
    eprintln!("{table}");
    keep(&table);
    Arc::into_inner(both).expect("every cell has ended").stop().await;
}
