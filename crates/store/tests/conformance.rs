//! One suite for all stores: what the trait promises, asked of each of them.

#![allow(clippy::unwrap_used, reason = "a check is a test, only called by name")]

use std::collections::BTreeSet;
use std::thread;

use handover_store::{
    Append, Change, Cursor, Feed, Filter, IndexRow, Listed, MemoryStore, Order, Outcome, PAGE_BYTES_MAX,
    Place, Position, Put, Record, SessionKey, Slot, Snapshot, SqliteStore, Store, Tombstone, Waits, Wake,
    is_full,
};

#[path = "postgres/mod.rs"]
mod database;

/// Makes one test per store out of each check.
macro_rules! suite {
    ($($check:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $check() { super::$check(&super::MemoryStore::new()); })*
        }
        mod sqlite {
            $(#[test] fn $check() {
                let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                super::$check(&super::SqliteStore::open(dir.path()).unwrap());
            })*
        }
        mod postgres {
            $(#[test] fn $check() {
                if let Some(store) = super::database::open(stringify!($check)) {
                    super::$check(&store);
                }
            })*
        }
    };
}

suite! {
    what_is_appended_can_be_read,
    every_page_is_cut_by_bytes_and_goes_on_to_the_end,
    a_second_writer_gets_a_conflict,
    items_of_one_session_in_a_batch_follow_each_other,
    one_conflict_leaves_the_other_items_alone,
    an_item_without_events_changes_only_the_row_and_the_wake_time,
    positions_have_no_holes_and_follow_the_commits,
    the_feed_of_everything_pages_to_the_end,
    the_feed_of_an_agent_shows_its_sessions_only,
    the_feed_of_a_rarely_seen_agent_is_complete,
    every_filter_narrows_the_list,
    pages_reach_the_end_while_sessions_are_added,
    a_filter_that_few_match_reaches_the_end_in_bounded_pages,
    a_row_replaces_the_one_before,
    the_last_row_and_wake_time_of_a_batch_win,
    sessions_are_due_in_the_order_of_their_wake_times,
    a_record_can_be_put_replaced_and_removed,
    records_change_together_or_not_at_all,
    records_page_in_the_order_of_their_keys,
    the_spaces_and_tenants_of_records_are_listed,
    finished_sessions_are_deleted_oldest_first,
    a_finished_session_that_is_still_to_be_woken_is_not_deleted,
    pages_of_what_is_due_join_to_the_whole,
    a_tombstone_keeps_the_id_until_it_is_forgotten,
    tombstones_are_listed_the_oldest_first,
    a_tombstone_that_is_put_keeps_the_id_and_takes_the_place_of_nothing,
    deleting_does_not_free_positions_or_cursors,
    an_inbox_shows_what_waits_for_the_agent_now,
    an_inbox_is_asked_for_some_kinds_and_tells_all,
    pages_of_an_inbox_reach_the_end_while_sessions_come_and_go,
    a_snapshot_replaces_the_one_before_and_goes_with_its_session,
    the_version_of_the_index_is_kept_until_the_index_is_cleared,
    unfinished_sessions_can_be_paged_through,
    restoring_rows_replaces_those_that_are_there,
    open_sessions_are_counted_by_requester,
    what_is_stored_is_counted_by_requester_and_given_back_when_it_is_deleted,
    all_sessions_can_be_paged_through,
    a_cleared_index_can_be_restored_to_the_same_rows,
    tenants_with_equal_session_ids_are_separate,
    every_append_of_many_threads_is_there,
    racing_writers_of_one_session_have_one_winner_each_time,
    the_largest_times_are_understood,
    a_probe_succeeds,
}

fn key(session: &str) -> SessionKey {
    SessionKey::new("acme", session)
}

fn bytes(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|at| format!("event {at}").into_bytes()).collect()
}

fn item(key: &SessionKey, expected: u64, count: usize) -> Append {
    Append {
        key: key.clone(),
        expected,
        events: bytes(count),
        row: None,
        wake: Wake::Unchanged,
        snapshot: None,
    }
}

fn row(requester: &str, agents: &[&str]) -> IndexRow {
    IndexRow {
        kind: 1,
        status: 1,
        requester: requester.into(),
        agents: agents.iter().map(|agent| (*agent).into()).collect(),
        created_at: 1000,
        finished_at: None,
        summary: b"summary".to_vec(),
        waits: Vec::new(),
    }
}

fn started(session: &str, row: IndexRow) -> Append {
    Append { row: Some(row), ..item(&key(session), 0, 1) }
}

/// Appended, with this number for the first event.
fn at(number: u64) -> Outcome {
    Outcome::Appended { first: Position::first_slot(number), stamp: number }
}

fn append_one(store: &dyn Store, item: Append) -> Outcome {
    let mut outcomes = store.append(&[item]).unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn appended(store: &dyn Store, item: Append) -> u64 {
    match append_one(store, item) {
        Outcome::Appended { first, .. } => first.number,
        other @ (Outcome::Conflict { .. } | Outcome::Tombstone { .. }) => {
            panic!("expected it to be appended, found {other:?}")
        }
    }
}

/// The number of the last event of all.
fn last(store: &dyn Store) -> u64 {
    store.last_place().unwrap().number(Slot(0))
}

/// How many positions so many changes take that are no events: where there are other nodes, they hear of them.
fn notes(store: &dyn Store, changes: u64) -> u64 {
    if store.slot().is_some() { changes } else { 0 }
}

fn seqs(store: &dyn Store, key: &SessionKey) -> Vec<u64> {
    store.read(key, 0, usize::MAX).unwrap().iter().map(|event| event.seq).collect()
}

fn names(listed: &[Listed]) -> Vec<&str> {
    listed.iter().map(|listed| &*listed.key.session).collect()
}

fn what_is_appended_can_be_read(store: &dyn Store) {
    let key = key("one");
    assert_eq!(store.head(&key).unwrap(), None);
    assert_eq!(store.read(&key, 0, 10).unwrap(), []);
    assert_eq!(store.append(&[]).unwrap(), []);

    let events = vec![b"first".to_vec(), Vec::new(), vec![0, 255, 10]];
    appended(store, Append { events: events.clone(), ..item(&key, 0, 0) });
    appended(store, Append { events: vec![b"fourth".to_vec()], ..item(&key, 3, 0) });

    assert_eq!(store.head(&key).unwrap(), Some(4));
    let read = store.read(&key, 0, 10).unwrap();
    assert_eq!(read.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(read[..3].iter().map(|event| event.bytes.clone()).collect::<Vec<_>>(), events);
    assert_eq!(store.read(&key, 1, 2).unwrap(), read[1..3]);
    assert_eq!(store.read(&key, 4, 10).unwrap(), []);
    assert_eq!(store.read(&key, 99, 10).unwrap(), []);
    assert_eq!(store.read(&key, 0, 0).unwrap(), []);
    assert_eq!(store.row(&key).unwrap(), None);
}

fn a_second_writer_gets_a_conflict(store: &dyn Store) {
    let key = key("one");
    appended(store, item(&key, 0, 2));
    assert_eq!(append_one(store, item(&key, 0, 1)), Outcome::Conflict { head: 2 });
    assert_eq!(append_one(store, item(&key, 1, 1)), Outcome::Conflict { head: 2 });
    assert_eq!(append_one(store, item(&key, 3, 1)), Outcome::Conflict { head: 2 });
    assert_eq!(append_one(store, item(&self::key("none"), 1, 1)), Outcome::Conflict { head: 0 });
    assert_eq!(seqs(store, &key), [1, 2]);
    assert_eq!(store.head(&self::key("none")).unwrap(), None);
    appended(store, item(&key, 2, 1));
}

fn items_of_one_session_in_a_batch_follow_each_other(store: &dyn Store) {
    let (one, two) = (key("one"), key("two"));
    let outcomes = store
        .append(&[item(&one, 0, 2), item(&two, 0, 1), item(&one, 2, 1), item(&one, 2, 1), item(&one, 3, 1)])
        .unwrap();
    assert!(matches!(
        outcomes[..],
        [
            Outcome::Appended { .. },
            Outcome::Appended { .. },
            Outcome::Appended { .. },
            Outcome::Conflict { head: 3 },
            Outcome::Appended { .. }
        ]
    ));
    assert_eq!(seqs(store, &one), [1, 2, 3, 4]);
    assert_eq!(seqs(store, &two), [1]);
}

fn one_conflict_leaves_the_other_items_alone(store: &dyn Store) {
    appended(store, item(&key("taken"), 0, 1));
    let late = Append { row: Some(row("late", &["late"])), wake: Wake::At(5), ..item(&key("taken"), 0, 1) };
    let outcomes = store.append(&[item(&key("one"), 0, 1), late, item(&key("two"), 0, 2)]).unwrap();
    assert_eq!(outcomes[0], at(2));
    assert_eq!(outcomes[1], Outcome::Conflict { head: 1 });
    assert_eq!(outcomes[2], at(3));
    assert_eq!(seqs(store, &key("two")), [1, 2]);
    assert_eq!(store.row(&key("taken")).unwrap(), None);
    assert_eq!(store.due(u64::MAX, 10).unwrap(), []);
}

fn an_item_without_events_changes_only_the_row_and_the_wake_time(store: &dyn Store) {
    let key = key("one");
    let change = Append { row: Some(row("a", &["a"])), wake: Wake::At(7), ..item(&key, 0, 0) };
    assert_eq!(append_one(store, change.clone()), Outcome::Conflict { head: 0 });
    assert_eq!(store.head(&key).unwrap(), None);
    appended(store, item(&key, 0, 1));
    appended(store, Append { expected: 1, ..change });
    assert_eq!(store.row(&key).unwrap(), Some(row("a", &["a"])));
    assert_eq!(store.due(7, 10).unwrap(), [(key.clone(), 7)]);
    assert_eq!(seqs(store, &key), [1]);
    assert_eq!(last(store), 1);
}

fn positions_have_no_holes_and_follow_the_commits(store: &dyn Store) {
    assert_eq!(last(store), 0);
    let mut expected = 1;
    for round in 0..5 {
        let conflict = item(&key("one"), 99, 3);
        let batch = [item(&key("one"), round, 1), conflict, item(&key("two"), round * 2, 2)];
        let outcomes = store.append(&batch).unwrap();
        assert_eq!(outcomes[0], at(expected));
        assert_eq!(outcomes[2], at(expected + 1));
        expected += 3;
        assert_eq!(last(store), expected - 1);
    }
    let positions: Vec<u64> = store
        .feed(&Feed::Everything, &Place::first_slot(0), 100)
        .unwrap()
        .iter()
        .map(|item| item.event.position.number)
        .collect();
    assert_eq!(positions, (1..=15).collect::<Vec<_>>());
}

fn the_feed_of_everything_pages_to_the_end(store: &dyn Store) {
    let tenants = ["acme", "zeta"];
    for at in 0..10 {
        appended(store, item(&SessionKey::new(tenants[at % 2], format!("s{at}")), 0, 3));
    }
    let all = store.feed(&Feed::Everything, &Place::first_slot(0), usize::MAX).unwrap();
    assert_eq!(all.len(), 30);
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map_or(0, |item: &handover_store::FeedItem| item.event.position.number);
        let page = store.feed(&Feed::Everything, &Place::first_slot(after), 7).unwrap();
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, all);
    for item in &all {
        let read = store.read(&item.key, item.event.seq - 1, 1).unwrap();
        assert_eq!(read, std::slice::from_ref(&item.event));
    }
}

fn the_feed_of_an_agent_shows_its_sessions_only(store: &dyn Store) {
    appended(store, started("ab", row("a", &["a", "b"])));
    appended(store, started("bc", row("b", &["b", "c"])));
    let other = SessionKey::new("zeta", "ab");
    appended(store, Append { row: Some(row("a", &["a"])), ..item(&other, 0, 1) });
    appended(store, item(&key("unlisted"), 0, 1));
    appended(store, item(&key("ab"), 1, 2));

    let feed = |agent: &str, after| {
        let feed = Feed::Agent { tenant: "acme".into(), agent: agent.into() };
        let items = store.feed(&feed, &Place::first_slot(after), 100).unwrap();
        items
            .iter()
            .map(|item| (item.key.session.to_string(), item.event.position.number))
            .collect::<Vec<_>>()
    };
    let shown = |items: &[(&str, u64)]| items.iter().map(|(s, p)| (s.to_string(), *p)).collect::<Vec<_>>();
    assert_eq!(feed("a", 0), shown(&[("ab", 1), ("ab", 5), ("ab", 6)]));
    assert_eq!(feed("b", 1), shown(&[("bc", 2), ("ab", 5), ("ab", 6)]));
    assert_eq!(feed("c", 2), shown(&[]));
    assert_eq!(feed("nobody", 0), shown(&[]));
}

fn the_feed_of_a_rarely_seen_agent_is_complete(store: &dyn Store) {
    let rare = |at: u64| started(&format!("rare {at}"), row("rare", &["rare"]));
    appended(store, rare(0));
    let crowd: Vec<Append> = (0..3000).map(|at| item(&key(&format!("s{at}")), 0, 4)).collect();
    store.append(&crowd).unwrap();
    appended(store, rare(1));
    appended(store, item(&key("rare 0"), 1, 2));
    store.append(&(3000..6000).map(|at| item(&key(&format!("s{at}")), 0, 4)).collect::<Vec<_>>()).unwrap();
    appended(store, rare(2));

    let feed = Feed::Agent { tenant: "acme".into(), agent: "rare".into() };
    let all = store.feed(&feed, &Place::first_slot(0), 100).unwrap();
    let places: Vec<(&str, u64)> = all.iter().map(|item| (&*item.key.session, item.event.seq)).collect();
    assert_eq!(places, [("rare 0", 1), ("rare 1", 1), ("rare 0", 2), ("rare 0", 3), ("rare 2", 1)]);
    for at in 0..all.len() {
        let after = all[at].event.position.number;
        assert_eq!(store.feed(&feed, &Place::first_slot(after), 100).unwrap(), all[at + 1..]);
        assert_eq!(store.feed(&feed, &Place::first_slot(after - 1), 1).unwrap(), all[at..=at]);
    }
}

fn every_filter_narrows_the_list(store: &dyn Store) {
    for at in 0..8_u8 {
        let mut row = row("a", if at < 4 { &["a", "b"] } else { &["a", "c"] });
        row.status = at % 2;
        row.kind = at / 2 % 2;
        row.created_at = 100 + u64::from(at);
        appended(store, started(&format!("s{at}"), row));
    }
    let elsewhere = SessionKey::new("zeta", "z0");
    appended(store, Append { row: Some(row("b", &["b"])), ..item(&elsewhere, 0, 1) });
    appended(store, item(&key("unlisted"), 0, 1));

    let list = |filter: Filter| {
        let newest = store.list(&filter, Order::Newest, None, 100).unwrap();
        let mut oldest = store.list(&filter, Order::Oldest, None, 100).unwrap();
        assert_eq!((newest.next, oldest.next), (None, None));
        oldest.sessions.reverse();
        assert_eq!(newest.sessions, oldest.sessions);
        names(&newest.sessions).join(" ")
    };
    let acme = || Filter { tenant: Some("acme".into()), ..Filter::default() };
    assert_eq!(list(Filter::default()), "z0 s7 s6 s5 s4 s3 s2 s1 s0");
    assert_eq!(list(acme()), "s7 s6 s5 s4 s3 s2 s1 s0");
    assert_eq!(list(Filter { tenant: Some("none".into()), ..Filter::default() }), "");
    assert_eq!(list(Filter { agent: Some("b".into()), ..acme() }), "s3 s2 s1 s0");
    assert_eq!(list(Filter { agent: Some("b".into()), ..Filter::default() }), "z0 s3 s2 s1 s0");
    assert_eq!(list(Filter { agent: Some("none".into()), ..acme() }), "");
    assert_eq!(list(Filter { statuses: 1 << 1, ..acme() }), "s7 s5 s3 s1");
    assert_eq!(list(Filter { statuses: 1 << 0 | 1 << 1, ..acme() }), "s7 s6 s5 s4 s3 s2 s1 s0");
    assert_eq!(list(Filter { statuses: 1 << 1 | 1 << 63, ..acme() }), "s7 s5 s3 s1");
    assert_eq!(list(Filter { statuses: 1 << 2, ..acme() }), "");
    assert_eq!(list(Filter { kind: Some(0), ..acme() }), "s5 s4 s1 s0");
    assert_eq!(list(Filter { created_from: Some(106), ..acme() }), "s7 s6");
    assert_eq!(list(Filter { created_before: Some(102), ..acme() }), "s1 s0");
    let all = Filter {
        tenant: Some("acme".into()),
        agent: Some("c".into()),
        statuses: 1 << 0,
        kind: Some(1),
        created_from: Some(101),
        created_before: Some(107),
    };
    assert_eq!(list(all), "s6");
}

fn pages_reach_the_end_while_sessions_are_added(store: &dyn Store) {
    let filters = [
        Filter::default(),
        Filter { tenant: Some("acme".into()), ..Filter::default() },
        Filter {
            tenant: Some("acme".into()),
            agent: Some("a".into()),
            statuses: 1 << 1,
            ..Filter::default()
        },
    ];
    let mut added = 0;
    let add = |added: &mut usize| {
        appended(store, started(&format!("s{added:03}"), row("a", &["a"])));
        *added += 1;
    };
    for _ in 0..20 {
        add(&mut added);
    }
    for filter in filters {
        for order in [Order::Newest, Order::Oldest] {
            let there = added;
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let page = store.list(&filter, order, after, 3).unwrap();
                assert!(page.sessions.len() == 3 || page.next.is_none());
                seen.extend(names(&page.sessions).into_iter().map(String::from));
                after = page.next;
                if after.is_none() {
                    break;
                }
                if added < there + 4 {
                    add(&mut added);
                }
            }
            let expected: Vec<String> = match order {
                Order::Newest => (0..there).rev().map(|at| format!("s{at:03}")).collect(),
                Order::Oldest => (0..added).map(|at| format!("s{at:03}")).collect(),
            };
            assert_eq!(seen, expected);
        }
    }
}

fn a_filter_that_few_match_reaches_the_end_in_bounded_pages(store: &dyn Store) {
    const SESSIONS: u64 = 20_050;
    let rare = [0, 5, SESSIONS / 2, SESSIONS - 1];
    let batch = (0..SESSIONS).map(|at| {
        let status = if rare.contains(&at) { 7 } else { 1 };
        started(&format!("s{at}"), IndexRow { status, ..row("a", &["a"]) })
    });
    store.append(&batch.collect::<Vec<_>>()).unwrap();
    for (tenant, agent) in [(None, None), (None, Some("a")), (Some("acme"), None), (Some("acme"), Some("a"))]
    {
        let (tenant, agent) = (tenant.map(Into::into), agent.map(Into::into));
        let filter = Filter { tenant, agent, statuses: 1 << 7, ..Filter::default() };
        for order in [Order::Newest, Order::Oldest] {
            let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = store.list(&filter, order, after, 2).unwrap();
                seen.extend(names(&page.sessions).into_iter().map(String::from));
                pages += 1;
                assert!(pages < 10, "expected the end, found page {pages}");
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            if order == Order::Newest {
                seen.reverse();
            }
            assert_eq!(seen, rare.map(|at| format!("s{at}")));
        }
    }
}

fn a_row_replaces_the_one_before(store: &dyn Store) {
    let first = row("a", &["a", "b", "a"]);
    appended(store, started("one", first.clone()));
    assert_eq!(store.row(&key("one")).unwrap(), Some(first.clone()));

    let mut second = first.clone();
    second.status = 4;
    second.summary = b"longer than the one before".to_vec();
    second.agents = vec!["late".into()];
    appended(store, Append { row: Some(second.clone()), ..item(&key("one"), 1, 1) });
    second.agents = first.agents.clone();
    assert_eq!(store.row(&key("one")).unwrap(), Some(second.clone()), "agents are fixed by the first row");

    second.finished_at = Some(2000);
    appended(store, Append { row: Some(second.clone()), ..item(&key("one"), 2, 1) });
    appended(store, item(&key("one"), 3, 1));
    assert_eq!(store.row(&key("one")).unwrap(), Some(second.clone()));
    let filter = Filter { tenant: Some("acme".into()), agent: Some("b".into()), ..Filter::default() };
    let page = store.list(&filter, Order::Newest, None, 10).unwrap();
    assert_eq!(page.sessions, [Listed { key: key("one"), place: page.sessions[0].place, row: second }]);
}

fn the_last_row_and_wake_time_of_a_batch_win(store: &dyn Store) {
    let mut last = row("a", &["a"]);
    last.status = 9;
    let key = key("one");
    store
        .append(&[
            Append { row: Some(row("a", &["a"])), wake: Wake::At(10), ..item(&key, 0, 1) },
            Append { row: Some(last.clone()), wake: Wake::At(20), ..item(&key, 1, 1) },
            item(&key, 2, 1),
        ])
        .unwrap();
    assert_eq!(store.row(&key).unwrap(), Some(last));
    assert_eq!(store.due(100, 10).unwrap(), [(key, 20)]);
}

fn sessions_are_due_in_the_order_of_their_wake_times(store: &dyn Store) {
    for (session, at) in [("late", 300), ("soon", 100), ("tie", 200), ("tied", 200)] {
        appended(store, Append { wake: Wake::At(at), ..started(session, row("a", &["a"])) });
    }
    appended(store, started("never", row("a", &["a"])));
    appended(store, Append { wake: Wake::At(50), ..item(&key("without a row"), 0, 1) });
    let due = |until, max| {
        let due = store.due(until, max).unwrap();
        due.iter().map(|(key, at)| format!("{}@{at}", key.session)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(due(99, 10), "");
    assert_eq!(due(100, 10), "soon@100");
    assert_eq!(due(u64::MAX, 10), "soon@100 tie@200 tied@200 late@300");
    assert_eq!(due(u64::MAX, 2), "soon@100 tie@200");

    appended(store, Append { wake: Wake::At(400), ..item(&key("soon"), 1, 0) });
    appended(store, Append { wake: Wake::Never, ..item(&key("tie"), 1, 1) });
    appended(store, Append { wake: Wake::Unchanged, ..item(&key("tied"), 1, 1) });
    assert_eq!(due(u64::MAX, 10), "tied@200 late@300 soon@400");
}

fn record(tenant: &str, key: &str, value: &str) -> Record {
    Record { space: "agent".into(), tenant: tenant.into(), key: key.into(), value: value.into() }
}

fn a_record_can_be_put_replaced_and_removed(store: &dyn Store) {
    let get = || store.record("agent", "acme", "a").unwrap().map(|value| String::from_utf8(value).unwrap());
    assert_eq!(get(), None);
    assert!(store.put_record(&record("acme", "a", "1"), Put::IfAbsent).unwrap());
    assert!(!store.put_record(&record("acme", "a", "2"), Put::IfAbsent).unwrap());
    assert_eq!(get().as_deref(), Some("1"));
    assert!(store.put_record(&record("acme", "a", "3"), Put::Replace).unwrap());
    assert_eq!(get().as_deref(), Some("3"));
    assert!(store.put_record(&record("zeta", "a", "other"), Put::IfAbsent).unwrap());
    assert!(store.remove_record("agent", "acme", "a").unwrap());
    assert!(!store.remove_record("agent", "acme", "a").unwrap());
    assert_eq!(get(), None);
    assert_eq!(store.record("agent", "zeta", "a").unwrap(), Some(b"other".to_vec()));
    assert_eq!(store.record("policy", "zeta", "a").unwrap(), None);
}

fn records_change_together_or_not_at_all(store: &dyn Store) {
    let get =
        |key| store.record("agent", "acme", key).unwrap().map(|value| String::from_utf8(value).unwrap());
    let since = |key, value, read: Option<&str>| {
        Change::since(record("acme", key, value), read.map(|read| read.as_bytes().to_vec()))
    };
    let change = |changes: &[Change]| store.change_records(changes).unwrap();
    assert!(change(&[since("version", "1", None), since("a", "first", None)]));
    assert!(!change(&[since("version", "2", Some("0")), since("b", "late", None)]), "somebody was first");
    assert!(!change(&[since("version", "2", Some("1")), since("a", "again", None)]), "one is there already");
    assert!(!change(&[since("version", "2", Some("1")), Change::remove("agent", "acme", "b")]));
    assert_eq!(
        [get("version").as_deref(), get("a").as_deref(), get("b").as_deref()],
        [Some("1"), Some("first"), None]
    );
    assert!(change(&[since("version", "2", Some("1")), Change::remove("agent", "acme", "a")]));
    assert_eq!([get("version").as_deref(), get("a").as_deref()], [Some("2"), None]);
    assert!(change(&[since("version", "", Some("2"))]));
    assert!(!change(&[since("version", "3", None)]), "what is empty is there");
    assert!(change(&[since("version", "3", Some(""))]));
}

/// Pages of items that are a third of a page each, and of items that are larger than one.
fn every_page_is_cut_by_bytes_and_goes_on_to_the_end(store: &dyn Store) {
    let large =
        |session: usize| vec![0; if session == 0 { PAGE_BYTES_MAX + 1 } else { PAGE_BYTES_MAX / 3 + 1 }];
    for session in 0..7 {
        let events = (0..5).map(|_| large(session)).collect();
        let waits = vec![Waits { agent: "a".into(), kinds: 1 }];
        let row = IndexRow { summary: large(session), waits, ..row("a", &["a"]) };
        let name = session.to_string();
        appended(store, Append { events, ..started(&name, row) });
        let record = Record { value: large(session), ..record("acme", &name, "") };
        store.put_record(&record, Put::Replace).unwrap();
    }
    let agent = Feed::Agent { tenant: "acme".into(), agent: "a".into() };
    let per_page = |pages: &[usize]| assert!(pages.iter().all(|page| (1..=3).contains(page)), "{pages:?}");
    let counted = |mut page: Box<dyn FnMut() -> (usize, bool) + '_>| {
        let mut pages = Vec::new();
        loop {
            let (found, more) = page();
            pages.extend((found > 0).then_some(found));
            if !more {
                per_page(&pages);
                return pages.iter().sum::<usize>();
            }
        }
    };
    for session in ["0", "6"] {
        let mut after = 0;
        let events = counted(Box::new(|| {
            let page = store.read(&key(session), after, 1000).unwrap();
            after += page.len() as u64;
            (page.len(), is_full(&page, 1000))
        }));
        assert_eq!(events, 5);
    }
    for feed in [Feed::Everything, agent] {
        let mut after = 0;
        let events = counted(Box::new(|| {
            let page = store.feed(&feed, &Place::first_slot(after), 1000).unwrap();
            after = page.last().map_or(after, |item| item.event.position.number);
            (page.len(), is_full(&page, 1000))
        }));
        assert_eq!(events, 35);
    }
    let filter = Filter { tenant: Some("acme".into()), ..Filter::default() };
    for order in [Order::Newest, Order::Oldest] {
        let mut after = None;
        let sessions = counted(Box::new(|| {
            let page = store.list(&filter, order, after, 1000).unwrap();
            after = page.next;
            (page.sessions.len(), after.is_some())
        }));
        assert_eq!(sessions, 7);
    }
    let mut after = None;
    let waiting = counted(Box::new(|| {
        let page = store.inbox("acme", "a", 1, after, 1000).unwrap();
        after = page.next;
        (page.sessions.len(), after.is_some())
    }));
    let mut after: Option<Box<str>> = None;
    let records = counted(Box::new(|| {
        let page = store.records("agent", "acme", after.as_deref(), 1000).unwrap();
        after = page.last().map(|record| record.key.clone()).or(after.take());
        (page.len(), is_full(&page, 1000))
    }));
    assert_eq!((waiting, records), (7, 7));
}

fn what_is_stored_is_counted_by_requester_and_given_back_when_it_is_deleted(store: &dyn Store) {
    let large = |bytes: usize| vec![vec![0; bytes]];
    let begun = |session: &str, requester: &str, bytes| {
        appended(store, Append { events: large(bytes), ..started(session, row(requester, &[requester])) });
    };
    let of = |agent: &str, bytes| (Box::<str>::from("acme"), Box::<str>::from(agent), bytes);
    begun("one", "b", 100);
    begun("two", "a", 30);
    assert_eq!(store.stored_bytes().unwrap(), [of("a", 30), of("b", 100)]);
    appended(store, Append { events: large(7), ..item(&key("one"), 1, 1) });
    begun("three", "b", 1000);
    assert!(!store.count_stored().unwrap());
    assert_eq!(store.stored_bytes().unwrap(), [of("a", 30), of("b", 1107)]);
    // One that was counted, with an event that was not.
    let finished = IndexRow { finished_at: Some(5), ..row("b", &["b"]) };
    appended(store, Append { events: large(2), row: Some(finished), ..item(&key("one"), 2, 1) });
    let deleted = store.delete_finished(10, 10, 10).unwrap();
    let told: Vec<_> = deleted.iter().map(|deleted| (&*deleted.requester, deleted.bytes)).collect();
    assert_eq!(told, [("b", 109)]);
    assert_eq!(store.stored_bytes().unwrap(), [of("a", 30), of("b", 1000)]);
    // It can be made again from what is there.
    let rows = ["two", "three"].map(|name| (key(name), store.row(&key(name)).unwrap().unwrap(), Wake::Never));
    store.clear_index().unwrap();
    store.restore_index(&rows).unwrap();
    assert_eq!(store.stored_bytes().unwrap(), [of("a", 30), of("b", 1000)]);
}

fn records_page_in_the_order_of_their_keys(store: &dyn Store) {
    for key in ["c", "a", "", "e", "b", "d"] {
        store.put_record(&record("acme", key, key), Put::Replace).unwrap();
    }
    store.put_record(&record("acmf", "x", "other"), Put::Replace).unwrap();
    store
        .put_record(&Record { space: "agenu".into(), ..record("acme", "x", "other") }, Put::Replace)
        .unwrap();
    let keys = |after, max| {
        let records = store.records("agent", "acme", after, max).unwrap();
        assert!(records.iter().all(|found| found.value == found.key.as_bytes()));
        records.iter().map(|found| found.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(keys(None, 100), ["", "a", "b", "c", "d", "e"]);
    assert_eq!(keys(None, 2), ["", "a"]);
    assert_eq!(keys(Some(""), 2), ["a", "b"]);
    assert_eq!(keys(Some("bb"), 2), ["c", "d"]);
    assert_eq!(keys(Some("e"), 2), Vec::<String>::new());
}

fn the_spaces_and_tenants_of_records_are_listed(store: &dyn Store) {
    let spaces = || {
        let spaces = store.spaces().unwrap();
        spaces.iter().map(|(space, tenant)| format!("{space}/{tenant}")).collect::<Vec<_>>()
    };
    assert_eq!(spaces(), Vec::<String>::new());
    for (space, tenant) in [("policy", "acme"), ("agent", "zeta"), ("agent", ""), ("agent", "acme")] {
        for key in ["a", ""] {
            let record = Record { space: space.into(), ..record(tenant, key, "x") };
            store.put_record(&record, Put::Replace).unwrap();
        }
    }
    assert_eq!(spaces(), ["agent/", "agent/acme", "agent/zeta", "policy/acme"]);
    store.remove_record("agent", "", "a").unwrap();
    store.remove_record("policy", "acme", "a").unwrap();
    store.remove_record("policy", "acme", "").unwrap();
    assert_eq!(spaces(), ["agent/", "agent/acme", "agent/zeta"]);
}

fn finish(store: &dyn Store, session: &str, at: u64) {
    let finished = IndexRow { finished_at: Some(at), ..row("a", &["a", "b"]) };
    appended(store, started(session, finished));
}

fn finished_sessions_are_deleted_oldest_first(store: &dyn Store) {
    for (session, at) in [("third", 30), ("first", 10), ("second", 20), ("fourth", 40)] {
        finish(store, session, at);
    }
    appended(store, started("open", row("a", &["a"])));
    let delete = |before, max| {
        let deleted = store.delete_finished(before, 99, max).unwrap();
        deleted.iter().map(|gone| format!("{}@{}", gone.key.session, gone.finished_at)).collect::<Vec<_>>()
    };
    assert_eq!(delete(10, 10), Vec::<String>::new());
    assert_eq!(delete(40, 2), ["first@10", "second@20"]);
    assert_eq!(delete(40, 2), ["third@30"]);
    assert_eq!(delete(40, 2), Vec::<String>::new());

    for gone in ["first", "second", "third"] {
        assert_eq!(store.head(&key(gone)).unwrap(), None);
        assert_eq!(store.read(&key(gone), 0, 10).unwrap(), []);
        assert_eq!(store.row(&key(gone)).unwrap(), None);
        assert_eq!(store.tombstone(&key(gone)).unwrap(), Some(99));
    }
    assert_eq!(store.tombstone(&key("fourth")).unwrap(), None);
    for agent in [None, Some("a".into())] {
        let filter = Filter { tenant: Some("acme".into()), agent, ..Filter::default() };
        let page = store.list(&filter, Order::Oldest, None, 10).unwrap();
        assert_eq!(names(&page.sessions), ["fourth", "open"]);
    }
    let rest: Vec<u64> = store
        .feed(&Feed::Everything, &Place::first_slot(0), 10)
        .unwrap()
        .iter()
        .map(|item| item.event.position.number)
        .collect();
    assert_eq!(rest, [4, 5]);
}

fn a_finished_session_that_is_still_to_be_woken_is_not_deleted(store: &dyn Store) {
    for session in ["owes", "done"] {
        finish(store, session, 10);
    }
    appended(store, Append { wake: Wake::At(10), ..item(&key("owes"), 1, 1) });
    let delete = || -> Vec<Box<str>> {
        store.delete_finished(11, 20, 10).unwrap().into_iter().map(|gone| gone.key.session).collect()
    };
    assert_eq!(delete(), ["done".into()]);
    assert_eq!(seqs(store, &key("owes")), [1, 2]);
    appended(store, Append { wake: Wake::Never, ..item(&key("owes"), 2, 1) });
    assert_eq!(delete(), ["owes".into()]);
}

fn pages_of_what_is_due_join_to_the_whole(store: &dyn Store) {
    for (index, at) in [5, 3, 3, 3, 1, 3, 9].into_iter().enumerate() {
        appended(store, Append { wake: Wake::At(at), ..started(&format!("s{index}"), row("a", &["a"])) });
    }
    let whole = store.due(5, 100).unwrap();
    assert_eq!(whole.len(), 6);
    for size in 1..=7 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.due_after(after, 5, size).unwrap();
            assert_eq!(page.next.is_some(), page.sessions.len() == size);
            found.extend(page.sessions);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, whole, "{size} at a time");
    }
    let page = store.due_after(None, 5, 3).unwrap();
    // What leaves and what comes between two pages moves nothing else.
    appended(store, Append { wake: Wake::Never, ..item(&key("s2"), 1, 0) });
    appended(store, Append { wake: Wake::At(1), ..started("early", row("a", &["a"])) });
    let rest = store.due_after(page.next, 5, 100).unwrap();
    assert_eq!([page.sessions, rest.sessions].concat(), whole);
}

fn a_tombstone_keeps_the_id_until_it_is_forgotten(store: &dyn Store) {
    finish(store, "old", 10);
    finish(store, "older", 5);
    store.delete_finished(6, 50, 10).unwrap();
    store.delete_finished(11, 60, 10).unwrap();
    let outcomes = store.append(&[item(&key("old"), 0, 1), item(&key("new"), 0, 1)]).unwrap();
    assert_eq!(outcomes[0], Outcome::Tombstone { deleted_at: 60 });
    assert_eq!(outcomes[1], at(3 + notes(store, 2)));
    assert_eq!(append_one(store, item(&key("old"), 1, 1)), Outcome::Tombstone { deleted_at: 60 });
    appended(store, item(&SessionKey::new("zeta", "old"), 0, 1));

    assert_eq!(store.forget_tombstones(60).unwrap(), 1);
    assert_eq!(store.tombstone(&key("older")).unwrap(), None);
    assert_eq!(store.tombstone(&key("old")).unwrap(), Some(60));
    assert_eq!(store.forget_tombstones(61).unwrap(), 1);
    assert_eq!(store.forget_tombstones(61).unwrap(), 0);
    appended(store, item(&key("old"), 0, 2));
    assert_eq!(seqs(store, &key("old")), [1, 2]);
    assert_eq!(store.row(&key("old")).unwrap(), None);
}

fn tombstones_are_listed_the_oldest_first(store: &dyn Store) {
    assert_eq!(store.tombstones(None, 10).unwrap(), []);
    for (session, at) in [("late", 30), ("b", 10), ("a", 10), ("c", 10)] {
        finish(store, session, at);
    }
    appended(store, started("open", row("a", &["a"])));
    store.delete_finished(11, 40, 10).unwrap();
    store.delete_finished(31, 60, 10).unwrap();
    let zeta = Tombstone { key: SessionKey::new("zeta", "b"), deleted_at: 40 };
    store.put_tombstones(&[zeta]).unwrap();
    for max in [1, 2, 3, 10] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.tombstones(after.as_ref(), max).unwrap();
            assert!(page.len() <= max);
            found.extend(page.iter().map(|found| format!("{}@{}", found.key, found.deleted_at)));
            match page.last() {
                Some(last) => after = Some(last.clone()),
                None => break,
            }
        }
        assert_eq!(found, ["acme/a@40", "acme/b@40", "zeta/b@40", "acme/c@40", "acme/late@60"]);
    }
}

fn a_tombstone_that_is_put_keeps_the_id_and_takes_the_place_of_nothing(store: &dyn Store) {
    let buried = |session: &str, deleted_at| Tombstone { key: key(session), deleted_at };
    appended(store, started("there", row("a", &["a"])));
    finish(store, "gone", 10);
    store.delete_finished(11, 50, 10).unwrap();
    store.put_tombstones(&[]).unwrap();
    let all = [buried("there", 7), buried("gone", 7), buried("new", 7), buried("new", 8)];
    store.put_tombstones(&all).unwrap();
    store.put_tombstones(&[buried("new", 9)]).unwrap();
    let tombstone = |session| store.tombstone(&key(session)).unwrap();
    assert_eq!([tombstone("there"), tombstone("gone"), tombstone("new")], [None, Some(50), Some(7)]);
    assert_eq!(seqs(store, &key("there")), [1]);
    assert_eq!(append_one(store, item(&key("new"), 0, 1)), Outcome::Tombstone { deleted_at: 7 });
    appended(store, item(&key("there"), 1, 1));
    let (listed, _) = store.sessions(None, 10).unwrap();
    assert_eq!(listed, [key("there")], "what was deleted is on no list");
    assert_eq!(store.forget_tombstones(8).unwrap(), 1);
    appended(store, item(&key("new"), 0, 1));
}

fn deleting_does_not_free_positions_or_cursors(store: &dyn Store) {
    appended(store, started("stays", row("a", &["a"])));
    finish(store, "goes", 10);
    let page = store.list(&Filter::default(), Order::Oldest, None, 1).unwrap();
    let cursor = page.next.expect("there is one more");
    store.delete_finished(11, 20, 10).unwrap();
    assert_eq!(last(store), 2 + notes(store, 1));
    assert_eq!(appended(store, started("comes", row("a", &["a"]))), 3 + notes(store, 1));
    let page = store.list(&Filter::default(), Order::Oldest, Some(cursor), 10).unwrap();
    assert_eq!(names(&page.sessions), ["comes"]);
    let (keys, _) = store.sessions(Some(Cursor(cursor.0 + 1)), 10).unwrap();
    assert_eq!(keys, [key("comes")]);
}

/// For whom a session waits, as `agent:kind,kind` with spaces in between.
fn waits(text: &str) -> Vec<Waits> {
    let of_an_agent = |text: &str| {
        let (agent, kinds) = text.split_once(':').unwrap();
        let kinds = kinds.split(',').map(|kind| 1 << kind.parse::<u32>().unwrap()).sum();
        Waits { agent: agent.into(), kinds }
    };
    text.split_whitespace().map(of_an_agent).collect()
}

fn waiting_row(text: &str) -> IndexRow {
    IndexRow { waits: waits(text), ..row("a", &["a"]) }
}

/// Write a row that says for whom the session waits, and start the session if it is not there.
fn wait(store: &dyn Store, session: &str, text: &str) {
    let head = store.head(&key(session)).unwrap().unwrap_or(0);
    appended(store, Append { row: Some(waiting_row(text)), ..item(&key(session), head, 1) });
}

/// An inbox as `session:kind,kind` with spaces in between.
fn inbox(store: &dyn Store, agent: &str, kinds: u32) -> String {
    let page = store.inbox("acme", agent, kinds, None, 100).unwrap();
    assert_eq!(page.next, None);
    let shown = page.sessions.iter().map(|waiting| {
        assert_eq!(store.row(&waiting.key).unwrap().as_ref(), Some(&waiting.row));
        let kinds = (0..32).filter(|kind| waiting.kinds >> kind & 1 == 1).map(|kind| kind.to_string());
        format!("{}:{}", waiting.key.session, kinds.collect::<Vec<_>>().join(","))
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn an_inbox_shows_what_waits_for_the_agent_now(store: &dyn Store) {
    // Each step: which session then waits for whom, and the inboxes of a and b after it.
    for (session, text, a, b) in [
        ("one", "", "", ""),
        ("one", "a:0", "one:0", ""),
        ("two", "a:0,31 b:1", "one:0 two:0,31", "two:1"),
        ("two", "a:0,31 b:1", "one:0 two:0,31", "two:1"),
        ("one", "a:0 b:0", "one:0 two:0,31", "one:0 two:1"),
        ("two", "b:1 a:31,0", "one:0 two:0,31", "one:0 two:1"),
        ("one", "b:0", "two:0,31", "one:0 two:1"),
        ("two", "a:31 b:2", "two:31", "one:0 two:2"),
        ("one", "b:3 a:2 b:4", "one:2 two:31", "one:3,4 two:2"),
        ("one", "b:4", "two:31", "one:4 two:2"),
        ("two", "", "", "one:4"),
    ] {
        wait(store, session, text);
        assert_eq!(
            (&*inbox(store, "a", u32::MAX), &*inbox(store, "b", u32::MAX)),
            (a, b),
            "{session} {text}"
        );
        assert_eq!(store.row(&key(session)).unwrap().unwrap().waits, waits(text));
    }
    appended(store, item(&key("one"), 6, 1));
    assert_eq!(inbox(store, "b", u32::MAX), "one:4", "events without a row leave the inbox as it was");
    let conflict = Append { row: Some(waiting_row("b:9")), ..item(&key("one"), 99, 1) };
    assert!(matches!(append_one(store, conflict), Outcome::Conflict { .. }));
    let steps = [("three", 0, "b:1"), ("three", 1, "b:2"), ("one", 7, "")];
    let batch = steps
        .map(|(session, head, text)| Append { row: Some(waiting_row(text)), ..item(&key(session), head, 1) });
    store.append(&batch).unwrap();
    assert_eq!(inbox(store, "b", u32::MAX), "three:2", "the last row of a batch wins");

    // An agent that is waited for is not put on the list, and one of another tenant is another agent.
    let listed = Filter { tenant: Some("acme".into()), agent: Some("b".into()), ..Filter::default() };
    assert_eq!(store.list(&listed, Order::Oldest, None, 10).unwrap().sessions, []);
    assert_eq!(store.inbox("zeta", "b", u32::MAX, None, 10).unwrap().sessions, []);

    let finished = IndexRow { finished_at: Some(5), ..waiting_row("b:6") };
    appended(store, Append { row: Some(finished), ..item(&key("three"), 2, 1) });
    assert_eq!(inbox(store, "b", u32::MAX), "three:6", "a finished session can wait");
    store.delete_finished(6, 7, 10).unwrap();
    assert_eq!(inbox(store, "b", u32::MAX), "", "a deleted one cannot");
    wait(store, "one", "b:1");
    store.clear_index().unwrap();
    assert_eq!(inbox(store, "b", u32::MAX), "");
    wait(store, "one", "b:1,2");
    assert_eq!(inbox(store, "b", u32::MAX), "one:1,2");
}

fn an_inbox_is_asked_for_some_kinds_and_tells_all(store: &dyn Store) {
    for (session, text) in
        [("s0", "a:0"), ("s1", "a:1,2"), ("s2", "b:0,1,2"), ("s3", "a:0,2,31"), ("s4", "a:2")]
    {
        wait(store, session, text);
    }
    for (kinds, expected) in [
        (0, ""),
        (1 << 0, "s0:0 s3:0,2,31"),
        (1 << 1, "s1:1,2"),
        (1 << 1 | 1 << 2, "s1:1,2 s3:0,2,31 s4:2"),
        (1 << 0 | 1 << 2 | 1 << 31, "s0:0 s1:1,2 s3:0,2,31 s4:2"),
        (1 << 31, "s3:0,2,31"),
        (1 << 5, ""),
        (u32::MAX, "s0:0 s1:1,2 s3:0,2,31 s4:2"),
    ] {
        assert_eq!(inbox(store, "a", kinds), expected, "{kinds:#b}");
    }
    assert_eq!(inbox(store, "nobody", u32::MAX), "");
}

fn pages_of_an_inbox_reach_the_end_while_sessions_come_and_go(store: &dyn Store) {
    let names = |range: std::ops::Range<usize>| range.map(|at| format!("s{at:02}")).collect::<Vec<_>>();
    for (at, session) in names(0..12).iter().enumerate() {
        wait(store, session, ["a:0", "a:1", "a:0,1"][at % 3]);
    }
    let page = |after, max| {
        let page = store.inbox("acme", "a", 0b11, after, max).unwrap();
        (page.sessions.iter().map(|waiting| waiting.key.session.to_string()).collect::<Vec<_>>(), page.next)
    };
    for max in 1..=13 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let (sessions, next) = page(after, max);
            assert!(sessions.len() == max || next.is_none());
            seen.extend(sessions);
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, names(0..12), "{max} at a time");
    }

    let (first, after) = page(None, 4);
    assert_eq!(first, names(0..4));
    // The last one of the page and the next one leave, one of the page comes again, others come.
    for (session, text) in [("s03", ""), ("s04", ""), ("s00", "a:1"), ("s12", "a:0"), ("s13", "b:0")] {
        wait(store, session, text);
    }
    let (second, next) = page(after, 4);
    assert_eq!(second, names(5..9));
    let finished = IndexRow { finished_at: Some(5), ..waiting_row("a:0") };
    appended(store, Append { row: Some(finished), ..item(&key("s08"), 1, 1) });
    assert_eq!(store.delete_finished(6, 7, 10).unwrap().len(), 1);
    wait(store, "s14", "a:0");
    let (third, end) = page(next, 100);
    assert_eq!((third, end), ([names(9..13), names(14..15)].concat(), None));
}

fn a_snapshot_replaces_the_one_before_and_goes_with_its_session(store: &dyn Store) {
    let key = key("one");
    let with = |expected, count, bytes: &[u8]| Append {
        snapshot: Some(bytes.to_vec()),
        ..item(&key, expected, count)
    };
    let found = || store.snapshot(&key).unwrap().map(|Snapshot { seq, bytes }| (seq, bytes));
    assert_eq!(found(), None);
    appended(store, item(&key, 0, 1));
    assert_eq!(found(), None);
    appended(store, with(1, 2, b"three"));
    assert_eq!(found(), Some((3, b"three".to_vec())));
    append_one(store, with(1, 1, b"conflict"));
    appended(store, item(&key, 3, 1));
    assert_eq!(found(), Some((3, b"three".to_vec())), "it stays while the log grows");
    store.append(&[with(4, 1, b"five"), with(5, 2, b""), item(&key, 7, 1)]).unwrap();
    assert_eq!(found(), Some((7, Vec::new())), "the last one of a batch wins");
    appended(store, with(8, 0, b"eight"));
    assert_eq!(found(), Some((8, b"eight".to_vec())), "it can come without events");
    store.clear_index().unwrap();
    assert_eq!(found(), None);

    let finished = IndexRow { finished_at: Some(5), ..row("a", &["a"]) };
    appended(store, Append { row: Some(finished), ..with(8, 1, b"nine") });
    assert_eq!(found(), Some((9, b"nine".to_vec())));
    store.delete_finished(6, 7, 10).unwrap();
    assert_eq!(found(), None);
    store.forget_tombstones(8).unwrap();
    appended(store, item(&key, 0, 1));
    assert_eq!(found(), None);
}

fn the_version_of_the_index_is_kept_until_the_index_is_cleared(store: &dyn Store) {
    assert_eq!(store.index_version().unwrap(), 0);
    for version in [1, u32::MAX, 3] {
        store.set_index_version(version).unwrap();
        assert_eq!(store.index_version().unwrap(), version);
    }
    store.clear_index().unwrap();
    assert_eq!(store.index_version().unwrap(), 0);
}

fn unfinished_sessions_can_be_paged_through(store: &dyn Store) {
    appended(store, item(&key("without a row"), 0, 1));
    for at in 0..9 {
        let finished_at = (at % 3 == 0).then_some(5);
        appended(store, started(&format!("s{at}"), IndexRow { finished_at, ..row("a", &["a"]) }));
    }
    let page = |after, max| {
        let (keys, next) = store.unfinished(after, max).unwrap();
        (keys.iter().map(|key| key.session.to_string()).collect::<Vec<_>>().join(" "), next)
    };
    assert_eq!(page(None, 100), ("s1 s2 s4 s5 s7 s8".into(), None));
    assert_eq!(page(None, 6), ("s1 s2 s4 s5 s7 s8".into(), None));
    let (first, after) = page(None, 2);
    assert_eq!(first, "s1 s2");
    // The last one of the page ends, and so does the next one; one that had ended goes on.
    for (session, finished_at) in [("s2", Some(5)), ("s4", Some(5)), ("s6", None)] {
        let row = IndexRow { finished_at, ..row("a", &["a"]) };
        appended(store, Append { row: Some(row), ..item(&key(session), 1, 1) });
    }
    assert_eq!(page(after, 100), ("s5 s6 s7 s8".into(), None));
}

fn restoring_rows_replaces_those_that_are_there(store: &dyn Store) {
    for (session, text) in [("one", "a:0,1 b:0"), ("two", "a:0"), ("three", "")] {
        let row = IndexRow { waits: waits(text), ..row("a", &["a", "b"]) };
        appended(store, Append { wake: Wake::At(10), snapshot: Some(vec![1]), ..started(session, row) });
    }
    let changed = IndexRow { status: 5, waits: waits("b:2 c:0"), ..row("c", &["c", "b"]) };
    let ended = IndexRow { finished_at: Some(5), ..row("a", &["a", "b"]) };
    store
        .restore_index(&[
            (key("one"), changed.clone(), Wake::Unchanged),
            (key("two"), ended, Wake::Never),
            (key("none"), waiting_row("a:0"), Wake::At(1)),
        ])
        .unwrap();
    assert_eq!(store.row(&key("one")).unwrap(), Some(changed));
    let inboxes = ["a", "b", "c"].map(|agent| inbox(store, agent, u32::MAX));
    assert_eq!(inboxes, ["", "one:2", "one:0"]);
    let lists = ["a", "b", "c"].map(|agent| {
        let filter = Filter { tenant: Some("acme".into()), agent: Some(agent.into()), ..Filter::default() };
        names(&store.list(&filter, Order::Oldest, None, 10).unwrap().sessions).join(" ")
    });
    assert_eq!(lists, ["two three", "one two three", "one"]);
    assert_eq!(store.due(u64::MAX, 10).unwrap(), [(key("one"), 10), (key("three"), 10)]);
    assert_eq!(store.unfinished(None, 10).unwrap().0, [key("one"), key("three")]);
    assert!(store.snapshot(&key("one")).unwrap().is_some(), "a snapshot is of the log, not of the row");
    // What comes next rests on what was restored.
    appended(store, Append { row: Some(waiting_row("b:1")), ..item(&key("one"), 1, 1) });
    assert_eq!(["a", "b", "c"].map(|agent| inbox(store, agent, u32::MAX)), ["", "one:1", ""]);
    assert_eq!(store.delete_finished(6, 7, 10).unwrap().len(), 1);
}

fn open_sessions_are_counted_by_requester(store: &dyn Store) {
    assert_eq!(store.open_counts().unwrap(), []);
    appended(store, started("one", row("b", &["a", "b"])));
    appended(store, started("two", row("b", &["b"])));
    appended(store, started("three", row("a", &["a"])));
    let elsewhere = SessionKey::new("zeta", "one");
    appended(store, Append { row: Some(row("a", &["a"])), ..item(&elsewhere, 0, 1) });
    finish(store, "finished", 10);
    let count = |tenant: &str, agent: &str, count: u64| (tenant.into(), agent.into(), count);
    assert_eq!(
        store.open_counts().unwrap(),
        [count("acme", "a", 1), count("acme", "b", 2), count("zeta", "a", 1)]
    );
    let finished = IndexRow { finished_at: Some(11), ..row("b", &["a", "b"]) };
    appended(store, Append { row: Some(finished), ..item(&key("one"), 1, 1) });
    assert_eq!(
        store.open_counts().unwrap(),
        [count("acme", "a", 1), count("acme", "b", 1), count("zeta", "a", 1)]
    );
}

fn all_sessions_can_be_paged_through(store: &dyn Store) {
    assert_eq!(store.sessions(None, 10).unwrap(), (Vec::new(), None));
    let keys: Vec<SessionKey> =
        (0..7).map(|at| SessionKey::new(["zeta", "acme"][at % 2], format!("s{at}"))).collect();
    store.append(&keys.iter().map(|key| item(key, 0, 1)).collect::<Vec<_>>()).unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = store.sessions(after, 3).unwrap();
        seen.extend(page);
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, keys);
}

fn a_cleared_index_can_be_restored_to_the_same_rows(store: &dyn Store) {
    for at in 0..6_u8 {
        let mut row = row(if at % 2 == 0 { "a" } else { "b" }, &["a", "b"]);
        row.status = at;
        row.finished_at = (at > 3).then_some(u64::from(at));
        row.waits = waits(["a:0 b:1", "b:1,2", ""][usize::from(at) % 3]);
        let wake = if at < 2 { Wake::At(100 + u64::from(at)) } else { Wake::Never };
        appended(store, Append { wake, ..started(&format!("s{at}"), row) });
    }
    let agent = Filter { tenant: Some("acme".into()), agent: Some("b".into()), ..Filter::default() };
    let view = || {
        (
            store.list(&Filter::default(), Order::Newest, None, 10).unwrap(),
            store.list(&agent, Order::Oldest, None, 10).unwrap(),
            store.due(u64::MAX, 10).unwrap(),
            (store.open_counts().unwrap(), inbox(store, "b", u32::MAX)),
        )
    };
    let before = view();
    let rows: Vec<_> =
        before.0.sessions.iter().rev().map(|listed| (listed.key.clone(), listed.row.clone())).collect();
    let due: Vec<(SessionKey, u64)> = before.2.clone();

    store.clear_index().unwrap();
    assert_eq!(view().0.sessions, []);
    assert_eq!(view().1.sessions, []);
    assert_eq!((view().2, view().3), (Vec::new(), (Vec::new(), String::new())));
    assert_eq!(store.row(&key("s0")).unwrap(), None);
    assert_eq!(seqs(store, &key("s0")), [1]);

    let restored: Vec<_> = rows
        .into_iter()
        .map(|(key, row)| {
            let at = due.iter().find(|(due, _)| *due == key).map(|(_, at)| *at);
            (key, row, at.map_or(Wake::Never, Wake::At))
        })
        .collect();
    store.restore_index(&restored).unwrap();
    store.restore_index(&[(key("none"), row("a", &["a"]), Wake::At(1))]).unwrap();
    assert_eq!(view(), before);
    assert_eq!(store.delete_finished(5, 9, 10).unwrap().len(), 1);
}

fn tenants_with_equal_session_ids_are_separate(store: &dyn Store) {
    // Run together, tenant and id are equal.
    let keys =
        [("a", "bc"), ("ab", "c"), ("b", "bc")].map(|(tenant, session)| SessionKey::new(tenant, session));
    for (at, key) in keys.iter().enumerate() {
        let mut row = row("x", &["x"]);
        row.status = at as u8;
        appended(store, Append { row: Some(row), wake: Wake::At(at as u64), ..item(key, 0, at + 1) });
    }
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(store.head(key).unwrap(), Some(at as u64 + 1));
        assert_eq!(store.row(key).unwrap().map(|row| row.status), Some(at as u8));
        let filter =
            Filter { tenant: Some(key.tenant.clone()), agent: Some("x".into()), ..Filter::default() };
        let page = store.list(&filter, Order::Newest, None, 10).unwrap();
        assert_eq!(page.sessions.len(), 1);
        assert_eq!(page.sessions[0].key, *key);
    }
    assert_eq!(store.due(u64::MAX, 10).unwrap().len(), 3);
}

fn every_append_of_many_threads_is_there(store: &dyn Store) {
    const THREADS: usize = 16;
    const ROUNDS: u64 = 20;
    let firsts: BTreeSet<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let key = key(&format!("s{thread}"));
                    let mut firsts = Vec::new();
                    for round in 0..ROUNDS {
                        let name = format!("{thread}/{round}");
                        assert!(store.put_record(&record("acme", &name, ""), Put::IfAbsent).unwrap());
                        firsts.push(appended(store, item(&key, round * 2, 2)));
                        assert_eq!(store.head(&key).unwrap(), Some(round * 2 + 2), "an ack can be read");
                    }
                    assert!(firsts.is_sorted());
                    firsts
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let all = THREADS as u64 * ROUNDS;
    assert_eq!(firsts.len() as u64, all);
    assert!(firsts.iter().zip(firsts.iter().skip(1)).all(|(one, next)| one + 2 <= *next), "{firsts:?}");
    assert_eq!(last(store), all * 2 + notes(store, all));
    assert_eq!(store.records("agent", "acme", None, usize::MAX).unwrap().len(), THREADS * ROUNDS as usize);
    for thread in 0..THREADS {
        assert_eq!(seqs(store, &key(&format!("s{thread}"))), (1..=ROUNDS * 2).collect::<Vec<_>>());
    }
}

fn racing_writers_of_one_session_have_one_winner_each_time(store: &dyn Store) {
    const THREADS: usize = 8;
    const WINS: u64 = 10;
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let (mut wins, mut head) = (0, 0);
                while wins < WINS {
                    match append_one(store, item(&key("one"), head, 1)) {
                        Outcome::Appended { .. } => {
                            wins += 1;
                            head += 1;
                        }
                        Outcome::Conflict { head: found } => {
                            assert!(found > head, "a conflict shows that someone else was first");
                            head = found;
                        }
                        other @ Outcome::Tombstone { .. } => panic!("expected no tombstone, found {other:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(seqs(store, &key("one")), (1..=THREADS as u64 * WINS).collect::<Vec<_>>());
}

fn the_largest_times_are_understood(store: &dyn Store) {
    appended(store, Append { wake: Wake::At(5), ..started("one", row("a", &["a"])) });
    let filter = Filter { created_from: Some(0), created_before: Some(u64::MAX), ..Filter::default() };
    assert_eq!(store.list(&filter, Order::Newest, None, usize::MAX).unwrap().sessions.len(), 1);
    assert_eq!(store.due(u64::MAX, usize::MAX).unwrap().len(), 1);
    assert_eq!(store.feed(&Feed::Everything, &Place::first_slot(u64::MAX), usize::MAX).unwrap(), []);
    assert_eq!(store.read(&key("one"), u64::MAX, usize::MAX).unwrap(), []);
    assert_eq!(store.delete_finished(u64::MAX, 1, usize::MAX).unwrap(), []);
    assert_eq!(store.forget_tombstones(u64::MAX).unwrap(), 0);
}

fn a_probe_succeeds(store: &dyn Store) {
    store.probe().unwrap();
    store.probe().unwrap();
    assert_eq!(last(store), 0);
}
