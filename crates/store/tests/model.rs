//! Random sequences of calls give the same answers from memory, from SQLite and from PostgreSQL.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::sync::atomic::{AtomicUsize, Ordering};

use handover_store::{
    Append, Cursor, Feed, Filter, IndexRow, MemoryStore, Order, Place, Put, Record, SessionKey, Slot,
    SqliteStore, Store, Waits, Wake,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[path = "postgres/mod.rs"]
mod database;

const SESSIONS: u8 = 6;
const AGENTS: [&str; 3] = ["a", "b", "c"];
const TENANTS: [&str; 2] = ["acme", "zeta"];

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Item>),
    Put { key: u8, value: u8, put: Put },
    Remove { key: u8 },
    Delete { before: u64, max: usize },
    Forget { before: u64 },
    Restore { clear: bool, sessions: Vec<(u8, Listed, Wake)> },
    Version(u32),
    Reopen,
}

/// An append to one of a few sessions, mostly with the right expectation.
#[derive(Clone, Debug)]
struct Item {
    session: u8,
    wrong_by: u64,
    events: Vec<u8>,
    row: Option<Listed>,
    wake: Wake,
    snapshot: Option<u8>,
}

#[derive(Clone, Debug)]
struct Listed {
    status: u8,
    agents: Vec<usize>,
    created_at: u64,
    finished_at: Option<u64>,
    waits: Vec<(usize, u32)>,
}

fn wake() -> impl Strategy<Value = Wake> {
    prop_oneof![Just(Wake::Unchanged), Just(Wake::Never), (0..50_u64).prop_map(Wake::At)]
}

fn listed() -> impl Strategy<Value = Listed> {
    let agents = vec(0..AGENTS.len(), 1..3);
    let waits = vec((0..AGENTS.len(), 0..8_u32), 0..3);
    (0..3_u8, agents, 0..50_u64, proptest::option::weighted(0.3, 0..50_u64), waits).prop_map(
        |(status, agents, created_at, finished_at, waits)| Listed {
            status,
            agents,
            created_at,
            finished_at,
            waits,
        },
    )
}

fn item() -> impl Strategy<Value = Item> {
    let wrong_by = prop_oneof![8 => Just(0_u64), 1 => 1..3_u64];
    let snapshot = proptest::option::of(any::<u8>());
    (0..SESSIONS, wrong_by, vec(any::<u8>(), 0..4), proptest::option::of(listed()), wake(), snapshot)
        .prop_map(|(session, wrong_by, events, row, wake, snapshot)| Item {
            session,
            wrong_by,
            events,
            row,
            wake,
            snapshot,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let put = prop_oneof![Just(Put::Replace), Just(Put::IfAbsent)];
    let restored = vec((0..SESSIONS, listed(), wake()), 0..4);
    prop_oneof![
        10 => vec(item(), 1..6).prop_map(Step::Append),
        2 => (0..4_u8, any::<u8>(), put).prop_map(|(key, value, put)| Step::Put { key, value, put }),
        1 => (0..4_u8).prop_map(|key| Step::Remove { key }),
        2 => (0..60_u64, 0..3_usize).prop_map(|(before, max)| Step::Delete { before, max }),
        1 => (0..60_u64).prop_map(|before| Step::Forget { before }),
        1 => (any::<bool>(), restored).prop_map(|(clear, sessions)| Step::Restore { clear, sessions }),
        1 => (0..4_u32).prop_map(Step::Version),
        1 => Just(Step::Reopen),
    ]
}

fn key(session: u8) -> SessionKey {
    SessionKey::new(TENANTS[usize::from(session % 2)], format!("s{}", session / 2))
}

fn row(listed: &Listed) -> IndexRow {
    let agents: Vec<Box<str>> = listed.agents.iter().map(|at| AGENTS[*at].into()).collect();
    IndexRow {
        kind: listed.status % 2,
        status: listed.status,
        requester: agents[0].clone(),
        agents,
        created_at: listed.created_at,
        finished_at: listed.finished_at,
        summary: vec![listed.status; usize::from(listed.status) * 10],
        waits: listed
            .waits
            .iter()
            .map(|(at, kinds)| Waits { agent: AGENTS[*at].into(), kinds: *kinds })
            .collect(),
    }
}

fn batch(store: &dyn Store, items: &[Item]) -> Vec<Append> {
    let mut heads: Vec<u64> = (0..SESSIONS).map(|at| store.head(&key(at)).unwrap().unwrap_or(0)).collect();
    let items = items.iter().map(|item| {
        let head = &mut heads[usize::from(item.session)];
        let expected = *head + item.wrong_by;
        if item.wrong_by == 0 {
            *head += item.events.len() as u64;
        }
        Append {
            key: key(item.session),
            expected,
            events: item.events.iter().map(|byte| vec![*byte; usize::from(*byte)]).collect(),
            row: item.row.as_ref().map(row),
            wake: item.wake,
            snapshot: item.snapshot.map(|byte| vec![byte]),
        }
    });
    items.collect()
}

/// Take one step and say what the store answered.
fn take(store: &dyn Store, step: &Step, now: u64) -> String {
    let name = |key: &u8| format!("k{key}");
    match step {
        Step::Append(items) => format!("{:?}", store.append(&batch(store, items)).unwrap()),
        Step::Put { key, value, put } => {
            let tenant = TENANTS[usize::from(key % 2)].into();
            let record = Record { space: "r".into(), tenant, key: name(key).into(), value: vec![*value] };
            format!("{:?}", store.put_record(&record, *put).unwrap())
        }
        Step::Remove { key } => {
            format!("{:?}", store.remove_record("r", TENANTS[usize::from(key % 2)], &name(key)).unwrap())
        }
        Step::Delete { before, max } => format!("{:?}", store.delete_finished(*before, now, *max).unwrap()),
        Step::Forget { before } => format!("{:?}", store.forget_tombstones(*before).unwrap()),
        Step::Restore { clear, sessions } => {
            if *clear {
                store.clear_index().unwrap();
            }
            let rows: Vec<_> =
                sessions.iter().map(|(session, listed, wake)| (key(*session), row(listed), *wake)).collect();
            format!("{:?}", store.restore_index(&rows).unwrap())
        }
        Step::Version(version) => format!("{:?}", store.set_index_version(*version).unwrap()),
        Step::Reopen => String::new(),
    }
}

/// Everything that can be asked.
fn look(store: &dyn Store) -> Vec<String> {
    let mut seen = Vec::new();
    for session in 0..SESSIONS {
        let key = key(session);
        seen.push(format!("{key} {:?} {:?}", store.head(&key).unwrap(), store.read(&key, 1, 3).unwrap()));
        seen.push(format!("{:?} {:?}", store.row(&key).unwrap(), store.tombstone(&key).unwrap()));
        seen.push(format!("{:?}", store.snapshot(&key).unwrap()));
    }
    seen.push(format!("{:?} {:?}", store.last_place().unwrap(), store.open_counts().unwrap()));
    seen.push(format!("{:?} {:?}", store.index_version().unwrap(), store.unfinished(None, 2).unwrap()));
    seen.push(format!("{:?}", store.feed(&Feed::Everything, &Place::first_slot(2), 100).unwrap()));
    seen.push(format!("{:?} {:?}", store.due(25, 2).unwrap(), store.due(u64::MAX, 100).unwrap()));
    seen.push(format!(
        "{:?} {:?}",
        store.sessions(None, 2).unwrap(),
        store.sessions(Some(Cursor(2)), 9).unwrap()
    ));
    for tenant in TENANTS {
        seen.push(format!("{:?}", store.records("r", tenant, None, 9).unwrap()));
        for agent in AGENTS {
            let feed = Feed::Agent { tenant: tenant.into(), agent: agent.into() };
            seen.push(format!("{:?}", store.feed(&feed, &Place::first_slot(1), 100).unwrap()));
            for kinds in [1, 6] {
                seen.push(format!("{:?}", store.inbox(tenant, agent, kinds, None, 2).unwrap()));
                seen.push(format!("{:?}", store.inbox(tenant, agent, kinds, Some(Cursor(3)), 9).unwrap()));
            }
        }
    }
    for tenant in [None, Some("acme".into())] {
        for agent in [None, Some("b".into())] {
            for statuses in [0, 0b10, 0b101] {
                let filter =
                    Filter { tenant: tenant.clone(), agent: agent.clone(), statuses, ..Filter::default() };
                for order in [Order::Newest, Order::Oldest] {
                    seen.push(format!("{:?}", store.list(&filter, order, None, 2).unwrap()));
                    seen.push(format!("{:?}", store.list(&filter, order, Some(Cursor(3)), 9).unwrap()));
                }
            }
        }
    }
    let filter =
        Filter { kind: Some(1), created_from: Some(10), created_before: Some(40), ..Filter::default() };
    seen.push(format!("{:?}", store.list(&filter, Order::Oldest, None, 9).unwrap()));
    seen
}

/// Random calls to a store that is opened again now and then, and to one in memory.
fn answers_as_memory_does<S: Store>(cases: u32, memory: impl Fn() -> MemoryStore, open: impl Fn(usize) -> S) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let case = AtomicUsize::new(0);
    let checked = runner.run(&vec(step(), 1..40), |steps| {
        let case = case.fetch_add(1, Ordering::Relaxed);
        let memory = memory();
        let mut opened = Some(open(case));
        for (now, step) in (0..).zip(&steps) {
            if matches!(step, Step::Reopen) {
                drop(opened.take());
                opened = Some(open(case));
            }
            let store = opened.as_ref().unwrap();
            prop_assert_eq!(take(&memory, step, now), take(store, step, now));
            prop_assert_eq!(look(&memory), look(store));
        }
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
}

#[test]
fn sqlite_answers_as_memory_does() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let open = |case: usize| SqliteStore::open(&dir.path().join(case.to_string())).unwrap();
    answers_as_memory_does(48, MemoryStore::new, open);
}

#[test]
fn postgres_answers_as_memory_does() {
    if database::url().is_none() {
        return;
    }
    let open = |case: usize| database::open(&format!("model_{case}")).unwrap();
    // What others hear of takes positions.
    answers_as_memory_does(3, || MemoryStore::new().writer(Slot(0)), open);
}
