//! Several writers of one store: each hears of what the others did, nothing is kept twice, and nothing that was acknowledged is
//! lost when connections are cut or slots are taken.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use handover_store::postgres::{self, Database, Options, Says};
use handover_store::{
    Append, Ask, Done, Fault, Feed, IndexRow, Lent, MemoryStore, Outcome, Place, PostgresStore, Put, Record,
    SessionKey, Slot, Standing, Store, Wake, is_full,
};
use tokio_postgres::{AsyncMessage, NoTls};

use self::between::Between;

mod between;
#[path = "postgres/mod.rs"]
mod database;

fn key(session: &str) -> SessionKey {
    SessionKey::new("acme", session)
}

fn item(session: &str, expected: u64, events: &[&str]) -> Append {
    let row = IndexRow {
        kind: 1,
        status: 1,
        requester: "ada".into(),
        agents: vec!["ada".into(), "ben".into()],
        created_at: 1,
        finished_at: None,
        summary: Vec::new(),
        waits: Vec::new(),
    };
    Append {
        key: key(session),
        expected,
        events: events.iter().map(|event| event.as_bytes().to_vec()).collect(),
        row: (expected == 0).then_some(row),
        wake: Wake::Unchanged,
        snapshot: None,
    }
}

fn append(store: &dyn Store, item: Append) {
    let outcomes = store.append(std::slice::from_ref(&item)).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Appended { .. }]), "{item:?}: {outcomes:?}");
}

/// What a writer hears after a place, in short.
fn heard(store: &dyn Store, after: &mut Place) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let news = store.news(after, 2).unwrap();
        let full = is_full(&news, 2);
        for news in news {
            assert!(after.reach(news.position), "heard twice: {news:?}");
            all.push(match news.what {
                Done::Appended { key, seq, bytes, agents, requester } => {
                    assert_eq!((&*requester, agents.len()), ("ada", 2));
                    format!("{} {seq} {}", key.session, String::from_utf8(bytes).unwrap())
                }
                Done::Deleted(key) => format!("deleted {}", key.session),
                Done::Record { space, tenant, key } => format!("record {space} {tenant} {key}"),
                Done::Said(bytes) => format!("said {}", String::from_utf8(bytes).unwrap()),
            });
        }
        if !full {
            return all;
        }
    }
}

fn each_hears_of_what_the_others_did(one: &dyn Store, two: &dyn Store) {
    let (mut by_one, mut by_two) = (one.last_place().unwrap(), two.last_place().unwrap());
    append(one, item("s", 0, &["start", "request"]));
    assert_eq!(heard(two, &mut by_two), ["s 1 start", "s 2 request"]);
    append(two, item("s", 2, &["accept"]));
    append(one, item("r", 0, &["other"]));
    // What has been read comes before: two had read the start, and one goes on from what two wrote.
    assert_eq!(heard(one, &mut by_one), ["s 3 accept"]);
    append(one, item("s", 3, &["update"]));
    let value = || Record { space: "agent".into(), tenant: "acme".into(), key: "k".into(), value: vec![1] };
    assert!(one.put_record(&value(), Put::IfAbsent).unwrap());
    assert!(!two.put_record(&value(), Put::IfAbsent).unwrap());
    assert!(two.remove_record("agent", "acme", "k").unwrap());
    one.say(b"hello").unwrap();
    assert_eq!(heard(two, &mut by_two), ["r 1 other", "s 4 update", "record agent acme k", "said hello"]);
    assert_eq!(heard(one, &mut by_one), ["record agent acme k"]);
    let end = Append {
        row: item("", 0, &[]).row.map(|row| IndexRow { finished_at: Some(5), ..row }),
        ..item("r", 1, &["end"])
    };
    append(one, end);
    assert_eq!(two.delete_finished(6, 7, 10).unwrap().len(), 1);
    assert_eq!(heard(one, &mut by_one), ["deleted r"]);
    // Everybody reads the same feed, each session in its order.
    let feed = |store: &dyn Store| store.feed(&Feed::Everything, &Place::default(), 100).unwrap();
    assert_eq!(feed(one), feed(two));
    let of_s: Vec<u64> =
        feed(one).iter().filter(|item| item.key == key("s")).map(|item| item.event.seq).collect();
    assert_eq!(of_s, [1, 2, 3, 4]);
    let conflict = two.append(&[item("s", 3, &["late"])]).unwrap();
    assert_eq!(conflict, [Outcome::Conflict { head: 4 }]);
}

/// Whoever knows a session only by its head, or by a snapshot of it, may do something because of what is in it.
#[test]
fn what_follows_from_a_head_or_a_snapshot_is_stamped_later() {
    let schema = database::fresh();
    let (Some(one), Some(two)) = (database::open(&schema), database::open(&schema)) else { return };
    let stamp = |outcomes: Vec<Outcome>| match outcomes[..] {
        [Outcome::Appended { stamp, .. }] => stamp,
        _ => panic!("{outcomes:?}"),
    };
    let kept = Append { snapshot: Some(vec![1]), ..item("s", 0, &["start", "a", "b", "c"]) };
    let last = stamp(one.append(&[kept]).unwrap()) + 3;
    assert_eq!(two.snapshot(&key("s")).unwrap().unwrap().seq, 4);
    assert!(stamp(two.append(&[item("r", 0, &["start"])]).unwrap()) > last);
    let last = stamp(two.append(&[item("t", 0, &["start", "a", "b", "c"])]).unwrap()) + 3;
    assert_eq!(one.head(&key("t")).unwrap(), Some(4));
    assert!(stamp(one.append(&[item("u", 0, &["start"])]).unwrap()) > last);
}

#[test]
fn writers_in_memory_hear_of_each_other() {
    let store = MemoryStore::new();
    each_hears_of_what_the_others_did(&store.writer(Slot(0)), &store.writer(Slot(1)));
}

#[test]
fn nodes_on_a_database_hear_of_each_other() {
    let schema = database::fresh();
    if let (Some(one), Some(two)) = (database::open(&schema), database::open(&schema)) {
        each_hears_of_what_the_others_did(&one, &two);
    }
}

/// A connection beside those of the store.
struct Operator {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

/// A connection that listens to what nodes tell each other.
struct Listener {
    _runtime: tokio::runtime::Runtime,
    _client: tokio_postgres::Client,
    heard: Arc<AtomicU64>,
}

impl Listener {
    fn on(channel: &str) -> Listener {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let heard = Arc::new(AtomicU64::new(0));
        let (url, counted, listen) =
            (database::url().unwrap(), Arc::clone(&heard), format!("LISTEN \"{channel}\""));
        let client = runtime.block_on(async move {
            let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(async move {
                while let Some(Ok(message)) =
                    std::future::poll_fn(|context| connection.poll_message(context)).await
                {
                    let is_one = matches!(message, AsyncMessage::Notification(_));
                    counted.fetch_add(u64::from(is_one), Ordering::SeqCst);
                }
            });
            client.batch_execute(&listen).await.unwrap();
            client
        });
        Listener { _runtime: runtime, _client: client, heard }
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::SeqCst)
    }
}

impl Operator {
    fn new() -> Operator {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let url = database::url().unwrap();
        let client = runtime.block_on(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Operator { runtime, client }
    }

    fn run(&self, sql: &str) -> u64 {
        self.runtime.block_on(self.client.execute(sql, &[])).unwrap()
    }
}

/// Wait until it is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(3));
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_hint_of_what_one_node_wrote_reaches_the_others_and_not_itself() {
    let schema = database::fresh();
    let (Some(one), Some(two)) = (database::open(&schema), database::open(&schema)) else { return };
    let counted = |store: &PostgresStore| {
        let count = Arc::new(AtomicU64::new(0));
        let hints = Arc::clone(&count);
        store.on_hint(Box::new(move || _ = hints.fetch_add(1, Ordering::SeqCst)));
        count
    };
    let (at_one, at_two) = (counted(&one), counted(&two));
    until("both hear", || one.hints() && two.hints());
    // What each said when it came may still be on its way.
    let mut head = 0;
    until("one is heard", || {
        append(&one, item("s", head, &["event"]));
        head += 1;
        at_two.load(Ordering::SeqCst) >= 3
    });
    assert!(
        at_one.load(Ordering::SeqCst) <= 1,
        "it hears what the other said when it came, and nothing else"
    );
    let before = at_one.load(Ordering::SeqCst);
    two.say(b"hello").unwrap();
    until("what is said is heard", || at_one.load(Ordering::SeqCst) > before);
}

#[test]
fn a_node_that_is_alone_tells_nobody_until_another_comes() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let options = Options { lease: Duration::from_millis(400), ..options };
    let one = PostgresStore::open(options.clone()).unwrap();
    until("it hears", || one.hints());
    one.probe().unwrap();
    let listener = Listener::on(&schema);
    for head in 0..50 {
        append(&one, item("s", head, &["event"]));
    }
    assert_eq!(listener.heard(), 0);
    let two = PostgresStore::open(options).unwrap();
    until("it comes", || listener.heard() > 0 && two.hints());
    let mut head = 50;
    let before = listener.heard();
    until("it is told", || {
        append(&one, item("s", head, &["event"]));
        head += 1;
        listener.heard() > before + 3
    });
}

#[test]
fn a_node_whose_listening_is_cut_goes_on() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let named = Options { node: format!("deaf {schema}"), ..options.clone() };
    let (one, two) = (PostgresStore::open(named).unwrap(), PostgresStore::open(options).unwrap());
    until("it hears", || one.hints());
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'deaf {schema}' AND query LIKE '%pg_notify%'"
    );
    assert_eq!(Operator::new().run(&cut), 1);
    until("it knows", || !one.hints());
    let mut place = one.last_place().unwrap();
    append(&two, item("s", 0, &["start"]));
    assert_eq!(heard(&one, &mut place), ["s 1 start"]);
    append(&one, item("s", 1, &["next"]));
}

#[test]
fn appends_whose_connections_are_cut_have_one_effect_each() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let options = Options { node: format!("cut {schema}"), ..options };
    let store = PostgresStore::open(options.clone()).unwrap();
    let operator = Operator::new();
    let (done, acknowledged, cuts) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..3 {
            let (store, done, acknowledged) = (&store, &done, &acknowledged);
            scope.spawn(move || {
                let name = format!("s{writer}");
                let mut head = 0;
                while !done.load(Ordering::Relaxed) {
                    let text = format!("{writer} {head}");
                    match store.append(&[item(&name, head, &[&text])]) {
                        Ok(outcomes) => {
                            assert!(matches!(outcomes[..], [Outcome::Appended { .. }]), "{outcomes:?}");
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                            head += 1;
                        }
                        Err(fault) => panic!("the outcome was not found out: {fault:?}"),
                    }
                }
                let events = store.read(&key(&name), 0, usize::MAX).unwrap();
                let texts: Vec<String> =
                    events.into_iter().map(|event| String::from_utf8(event.bytes).unwrap()).collect();
                assert_eq!(texts, (0..head).map(|head| format!("{writer} {head}")).collect::<Vec<_>>());
            });
        }
        // As often as it takes, and not for ever.
        for round in 0..2_000 {
            let cut = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut {schema}' AND query LIKE '%append_v1%'"
            );
            cuts.fetch_add(operator.run(&cut), Ordering::Relaxed);
            if cuts.load(Ordering::Relaxed) > 60 && acknowledged.load(Ordering::Relaxed) > 100 {
                break;
            }
            // On a busy machine an append takes longer: now and then there is time for one.
            thread::sleep(Duration::from_millis(5 * (round % 8)));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(
        cuts.load(Ordering::Relaxed) > 60 && acknowledged.load(Ordering::Relaxed) > 100,
        "{cuts:?} {acknowledged:?}"
    );
    assert!(store.standing().doubts_settled > 0);
}

#[test]
fn of_nodes_that_put_a_record_at_once_where_nothing_is_one_does() {
    let schema = database::fresh();
    let Some(stores) = (0..3).map(|_| database::open(&schema)).collect::<Option<Vec<_>>>() else { return };
    let together = Barrier::new(stores.len());
    let put = |store: &PostgresStore, round: usize| {
        let key = format!("nonce{round}").into();
        let record = Record { space: "nonce".into(), tenant: "".into(), key, value: Vec::new() };
        together.wait();
        store.put_record(&record, Put::IfAbsent).unwrap()
    };
    let put = &put;
    let first: Vec<Vec<bool>> = thread::scope(|scope| {
        let nodes: Vec<_> = stores
            .iter()
            .map(|store| scope.spawn(move || (0..50).map(|round| put(store, round)).collect()))
            .collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    });
    assert!((0..50).all(|round| first.iter().filter(|node| node[round]).count() == 1), "{first:?}");
}

#[test]
fn a_node_whose_slot_was_taken_keeps_nothing_under_it_and_goes_on_in_another() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let one = PostgresStore::open(options.clone()).unwrap();
    append(&one, item("s", 0, &["start"]));
    let (before, operator) = (one.slot().unwrap(), Operator::new());
    // As if it had been silent for longer than its lease.
    operator.run(&format!("UPDATE {schema}.slots SET seen_at = '-infinity'"));
    let two = PostgresStore::open(options).unwrap();
    assert_eq!(two.slot(), Some(before));
    let refused = one.append(&[item("s", 1, &["lost"])]).unwrap_err();
    assert!(matches!(&refused, Fault::SlotTaken) && refused.is_retryable(), "{refused:?}");
    one.settle().unwrap();
    assert_eq!(two.head(&key("s")).unwrap(), Some(1));
    append(&one, item("s", 1, &["kept"]));
    assert_ne!(one.slot(), Some(before));
    append(&two, item("s", 2, &["next"]));
    let mut slots: BTreeMap<Slot, Vec<u64>> = BTreeMap::new();
    for item in two.feed(&Feed::Everything, &Place::default(), 10).unwrap() {
        slots.entry(item.event.position.slot).or_default().push(item.event.seq);
    }
    assert_eq!(slots.into_values().collect::<Vec<_>>(), [vec![1, 3], vec![2]]);
}

#[test]
fn a_node_that_moves_to_another_slot_is_told_that_it_may_have_missed_what_was_in_it() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let (one, two) =
        (PostgresStore::open(options.clone()).unwrap(), PostgresStore::open(options.clone()).unwrap());
    let mut place = one.last_place().unwrap();
    append(&two, item("s", 0, &["start"]));
    append(&two, item("s", 1, &["unheard"]));
    let operator = Operator::new();
    operator.run(&format!("UPDATE {schema}.slots SET seen_at = '-infinity'"));
    let three = PostgresStore::open(options).unwrap();
    assert_eq!(three.slot(), Some(Slot(0)));
    // The other slot is free as well: it takes that one.
    assert!(matches!(one.say(b"hello"), Err(Fault::SlotTaken)));
    assert_eq!(one.slot(), Some(Slot(1)));
    // Nothing is told of the new slot before it is known what may be missing.
    let own = || one.append(&[item("r", 0, &["own"])]);
    assert!(matches!(own(), Err(Fault::SlotTaken)));
    assert!(matches!(own().unwrap()[..], [Outcome::Appended { .. }]));
    assert!(matches!(one.news(&place, 10), Err(Fault::SlotTaken)));
    place = one.last_place().unwrap();
    assert_eq!(one.read(&key("s"), 0, 10).unwrap().len(), 2);
    append(&three, item("s", 2, &["next"]));
    assert_eq!(heard(&one, &mut place), ["s 3 next"]);
}

#[test]
fn a_look_of_a_node_whose_slot_was_taken_leaves_nothing_out() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let one = PostgresStore::open(options.clone()).unwrap();
    let place = one.last_place().unwrap();
    Operator::new().run(&format!("UPDATE {schema}.slots SET seen_at = '-infinity'"));
    let two = PostgresStore::open(options).unwrap();
    assert_eq!(two.slot(), one.slot());
    append(&two, item("s", 0, &["in the slot that was taken"]));
    assert!(matches!(one.news(&place, 10), Err(Fault::SlotTaken)));
    assert_ne!(two.slot(), one.slot());
    assert_eq!(one.news(&place, 10).unwrap().len(), 1);
}

#[test]
fn a_node_whose_slot_was_taken_and_that_writes_nothing_goes_on_in_another() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let one = PostgresStore::open(Options { lease: Duration::from_millis(400), ..options.clone() }).unwrap();
    Operator::new().run(&format!("UPDATE {schema}.slots SET epoch = epoch + 1"));
    until("it is in another slot", || one.slot() == Some(Slot(1)));
    one.probe().unwrap();
    let place = one.last_place().unwrap();
    assert!(matches!(one.news(&place, 10), Err(Fault::SlotTaken)), "whoever listens is told once");
    assert!(one.news(&place, 10).unwrap().is_empty());
}

/// The same database behind a relay, with a patience that is soon over.
fn far(options: &Options) -> (Between, Options) {
    let url = database::url().unwrap();
    let (before, rest) = url.split_once('@').unwrap();
    let (address, name) = rest.split_once('/').unwrap();
    let between = Between::before(address.parse().unwrap());
    let database =
        Database::read(&format!("{before}@127.0.0.1:{}/{name}", between.port), None, None).unwrap();
    let options = Options { database, patience: FAR_PATIENCE, ..options.clone() };
    (between, options)
}

const FAR_PATIENCE: Duration = Duration::from_secs(2);

/// What fails in time, and can be tried again.
fn fails_in_time<T: std::fmt::Debug>(what: &str, asked: impl FnOnce() -> Result<T, Fault>) {
    let begun = Instant::now();
    let fault = asked().expect_err(what);
    assert!(fault.is_retryable(), "{what}: {fault:?}");
    assert!(begun.elapsed() < FAR_PATIENCE * 2, "{what}: {:?}", begun.elapsed());
}

#[test]
fn a_database_that_is_silent_is_waited_for_no_longer_than_the_patience() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let near = PostgresStore::open(options.clone()).unwrap();
    // With a long lease, what is read does not wait to be seen; with a short one, it does.
    for lease in [60, 1] {
        let (between, options) = far(&Options { lease: Duration::from_secs(lease), ..options.clone() });
        let name = format!("s{lease}");
        let store = PostgresStore::open(options.clone()).unwrap();
        append(&store, item(&name, 0, &["start"]));
        let place = store.last_place().unwrap();
        between.fall_silent();
        if lease == 1 {
            // Until it has not been seen for half of its lease.
            thread::sleep(Duration::from_secs(lease));
        }
        fails_in_time("a session", || store.read(&key(&name), 0, 10));
        fails_in_time("a look", || store.news(&place, 10));
        fails_in_time("a record", || store.record("a", "b", "c"));
        fails_in_time("a beat", || store.probe());
        fails_in_time("an append", || store.append(&[item(&name, 1, &["unsure"])]));
        fails_in_time("settling", || store.settle());
        fails_in_time("saying", || store.say(b"hello"));
        let begun = Instant::now();
        let fault = PostgresStore::open(options).err().unwrap();
        assert!(fault.to_string().contains("that answers"), "{fault:?}");
        assert!(begun.elapsed() < FAR_PATIENCE * 2, "{:?}", begun.elapsed());
        between.go_on();
        until("it is settled", || store.settle().is_ok());
        // What was on its way does not turn up any more.
        let head = near.head(&key(&name)).unwrap().unwrap();
        let next = || store.append(&[item(&name, head, &["next"])]);
        until("it goes on", || matches!(next().as_deref(), Ok([Outcome::Appended { .. }])));
        let texts = near.read(&key(&name), 0, 10).unwrap().into_iter().map(|event| event.bytes);
        let texts: Vec<String> = texts.map(|bytes| String::from_utf8(bytes).unwrap()).collect();
        let expected = ["start", "unsure", "next"].into_iter().filter(|text| head == 2 || *text != "unsure");
        assert_eq!(texts, expected.collect::<Vec<_>>());
        assert_eq!(store.read(&key(&name), 0, 10).unwrap(), near.read(&key(&name), 0, 10).unwrap());
    }
}

#[test]
fn an_append_whose_connection_is_forgotten_on_the_way_is_found_out_about_on_another() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let (between, options) = far(&options);
    let store = PostgresStore::open(options).unwrap();
    append(&store, item("s", 0, &["start"]));
    for head in 1..3 {
        // Once a beat has come through, the connection that writes is one that is used again.
        store.probe().unwrap();
        store.say(b"hello").unwrap();
        between.forget();
        append(&store, item("s", head, &["next"]));
        assert_eq!(store.head(&key("s")).unwrap(), Some(head + 1));
    }
    assert!(store.standing().doubts_settled >= 2);
}

/// Append to one session as often as one gets to, so long between reading and writing. How often that was, and the longest
/// wait for it.
fn hammer(store: &PostgresStore, slow_by: Duration, until: Instant) -> (u64, Duration) {
    let (mut count, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
    while Instant::now() < until {
        let head = store.head(&key("s")).unwrap().unwrap();
        thread::sleep(slow_by);
        if let [Outcome::Appended { .. }] = store.append(&[item("s", head, &["event"])]).unwrap()[..] {
            count += 1;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    (count, longest.max(last.elapsed()))
}

#[test]
fn a_slow_node_gets_its_turn_at_a_session_that_others_hammer() {
    let schema = database::fresh();
    let Some(stores) = (0..3).map(|_| database::open(&schema)).collect::<Option<Vec<_>>>() else { return };
    append(&stores[0], item("s", 0, &["start"]));
    let time = Duration::from_secs(2);
    let slow_by = [Duration::from_millis(2), Duration::ZERO, Duration::ZERO];
    let all = || {
        let end = Instant::now() + time;
        thread::scope(|scope| {
            let hammers: Vec<_> = stores
                .iter()
                .zip(slow_by)
                .map(|(store, slow_by)| scope.spawn(move || hammer(store, slow_by, end)))
                .collect();
            hammers.into_iter().map(|hammer| hammer.join().unwrap()).collect::<Vec<_>>()
        })
    };
    // Others on the machine may take it away from one part or the other; without turns it is a few hundredths.
    let mut found = Vec::new();
    for _ in 0..3 {
        let (alone, _) = hammer(&stores[0], slow_by[0], Instant::now() + time);
        let shares = all();
        if shares[0].0 >= alone / 10
            && shares.iter().all(|(count, longest)| *count > 10 && *longest < time / 2)
        {
            return;
        }
        found.push((alone, shares));
    }
    panic!("alone, and with the others: {found:?}");
}

#[test]
fn a_claim_that_nobody_uses_holds_nobody_up_for_long() {
    let schema = database::fresh();
    let (Some(one), Some(two)) = (database::open(&schema), database::open(&schema)) else { return };
    append(&one, item("s", 0, &["start"]));
    for _ in 0..3 {
        assert_eq!(two.append(&[item("s", 0, &["late"])]).unwrap(), [Outcome::Conflict { head: 1 }]);
    }
    let begun = Instant::now();
    assert_eq!(one.append(&[item("s", 1, &["next"])]).unwrap(), [Outcome::Conflict { head: 1 }]);
    until("the claim ends", || {
        matches!(one.append(&[item("s", 1, &["next"])]).unwrap()[..], [Outcome::Appended { .. }])
    });
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // One that is used ends at once.
    for _ in 0..3 {
        two.append(&[item("s", 0, &["late"])]).unwrap();
    }
    append(&two, item("s", 2, &["in turn"]));
    append(&one, item("s", 3, &["at once"]));
}

/// One of a rate of a hundred a second, of which so many may come at once.
fn ask(agent: &str, burst: u64, has: u64, wants: u64) -> Ask {
    Ask { of: ("acme".into(), agent.into(), 1), every: 10_000_000, burst, has, wants, owes: 0 }
}

fn lend(store: &dyn Store, ask: &Ask) -> Lent {
    store.lend(std::slice::from_ref(ask)).unwrap()[0]
}

#[test]
fn nodes_together_are_lent_no_more_than_the_burst_and_the_rate() {
    let schema = database::fresh();
    let Some(stores) = (0..3).map(|_| database::open(&schema)).collect::<Option<Vec<_>>>() else { return };
    let begun = Instant::now();
    let brought = |since: Instant| since.elapsed().as_millis() as u64 / 10 + 1;
    let all = || {
        stores
            .iter()
            .cycle()
            .map(|store| lend(store, &ask("ada", 60, 0, 6)).count)
            .take_while(|lent| *lent > 0)
    };
    let lent: u64 = all().take(1000).sum();
    assert!((40..=60 + brought(begun)).contains(&lent), "{lent}");
    let none = lend(&stores[0], &ask("ada", 60, 0, 6));
    assert!(none.count > 0 || (1..=10_000_000 * 60).contains(&none.after), "{none:?}");
    // What a node holds may be used at any moment: it is missing for the others for as long, however full it would be.
    let held: u64 = stores[..2].iter().map(|store| lend(store, &ask("ben", 60, 0, 6)).count).sum();
    assert_eq!(held, 12);
    let since = Instant::now();
    until("it would be full again", || brought(since) > 40);
    let begun = Instant::now();
    let third = || lend(&stores[2], &ask("ben", 60, 0, 60)).count;
    let lent: u64 = std::iter::from_fn(|| Some(third()).filter(|lent| *lent > 0)).take(1000).sum();
    assert!((40..=48 + brought(begun)).contains(&lent), "{lent}");
}

#[test]
fn what_was_used_without_having_been_lent_is_waited_for_and_another_rate_counts_at_once() {
    let schema = database::fresh();
    let Some(store) = database::open(&schema) else { return };
    let owed = Ask { owes: 1000, ..ask("ada", 60, 0, 6) };
    let none = lend(&store, &owed);
    assert!(none.count == 0 && (9_000_000_000..=9_500_000_000).contains(&none.after), "{none:?}");
    // At a thousand times the rate nothing is missing any more.
    let fast = Ask { every: 10_000, ..ask("ada", 6, 0, 6) };
    until("it is there", || lend(&store, &fast).count > 0);
    let many: Vec<Ask> = (0..200).map(|agent| ask(&format!("agent{agent:03}"), 60, 0, 6)).collect();
    assert!(store.lend(&many).unwrap().iter().all(|lent| lent.count == 6));
}

#[test]
fn several_nodes_that_start_at_once_make_the_tables_once() {
    let Some(options) = database::options(&database::fresh()) else { return };
    let slots: Vec<Option<Slot>> = thread::scope(|scope| {
        let open = || PostgresStore::open(options.clone()).unwrap();
        let nodes: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
        let nodes: Vec<PostgresStore> = nodes.into_iter().map(|node| node.join().unwrap()).collect();
        nodes.iter().map(|node| node.slot()).collect()
    });
    let mut distinct = slots.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 6, "{slots:?}");
}

#[test]
fn a_database_that_will_not_do_is_refused_in_one_line_that_says_what_helps() {
    let Some(url) = database::url() else { return };
    let operator = Operator::new();
    let role = format!("guest_{}", std::process::id());
    operator.run(&format!("CREATE ROLE {role} LOGIN"));
    let refused = |url: &str, schema: &str| {
        let options =
            Options { schema: schema.to_owned(), ..Options::new(Database::read(url, None, None).unwrap()) };
        let fault = PostgresStore::open(options).err().expect("it will not do");
        assert!(matches!(fault, Fault::Unfit { .. }) && !fault.is_retryable(), "{fault:?}");
        let what = fault.to_string();
        assert!(what.starts_with("expected ") && what.contains("found") && !what.contains('\n'), "{what}");
        what
    };
    let other = |with: &str| url.replace("/postgres", with);
    assert!(refused(&other("/nowhere"), "handover").contains("createdb nowhere"));
    assert!(refused(&url.replace("handover@", "nobody@"), "handover").contains("user nobody"));
    let guest = url.replace("handover@", &format!("{role}@"));
    assert!(refused(&guest, "not_mine").contains("GRANT CREATE ON DATABASE postgres"));
    assert!(refused(&url, "no good").contains("letters, digits and _"));
    assert!(refused("postgres://u@127.0.0.1:1/d", "handover").contains("that answers"));
    let schema = database::fresh();
    let options = database::options(&schema).unwrap();
    let unmade =
        PostgresStore::open(Options { migrate: false, ..options.clone() }).err().unwrap().to_string();
    assert!(unmade.contains("handover migrate"), "{unmade}");
    assert!(postgres::migrate(options.clone()).unwrap());
    assert!(!postgres::migrate(options.clone()).unwrap(), "they are there");
    PostgresStore::open(Options { migrate: false, ..options.clone() }).unwrap();
    operator.run(&format!("UPDATE {schema}.facts SET value = 99 WHERE name = 'version'"));
    assert!(matches!(PostgresStore::open(options), Err(Fault::TooNew { found: 99, .. })));
    operator.run(&format!("DROP ROLE {role}"));
}

#[test]
fn nodes_are_listed_until_they_give_back_their_slots() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let named = |name: &str| Options { node: name.to_owned(), ..options.clone() };
    let (one, two) = (PostgresStore::open(named("one")).unwrap(), PostgresStore::open(named("two")).unwrap());
    append(&one, item("s", 0, &["start", "request"]));
    two.probe().unwrap();
    assert_eq!(two.standing(), Standing { nodes: 2, behind: 2, doubts_settled: 0 });
    let listed = || {
        let nodes = postgres::nodes(options.clone()).unwrap();
        nodes.into_iter().map(|node| (node.name, node.slot.0, node.behind)).collect::<Vec<_>>()
    };
    assert_eq!(listed(), [("one".to_owned(), 0, 0), ("two".to_owned(), 1, 2)]);
    let mut place = Place::default();
    heard(&two, &mut place);
    two.news(&place, 1).unwrap();
    two.probe().unwrap();
    drop(one);
    assert_eq!(listed(), [("two".to_owned(), 1, 0)]);
}

/// A node that is set so.
fn set(name: &str, settings: &[(&str, &str)], days: Option<u64>) -> impl Fn(Options) -> Options {
    let says = Says {
        settings: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        finished_kept_ms: days.map(|days| days * DAY),
        tombstones_kept_ms: days.map(|days| days * DAY),
        ..Says::default()
    };
    let node = name.to_owned();
    move |options| Options {
        node: node.clone(),
        says: says.clone(),
        lease: Duration::from_secs(2),
        ..options
    }
}

const DAY: u64 = 24 * 60 * 60 * 1000;

#[test]
fn nodes_say_in_what_others_are_set_otherwise_until_they_are_gone() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let open = |set: &dyn Fn(Options) -> Options| PostgresStore::open(set(options.clone())).unwrap();
    let one = open(&set("one", &[("limits.a", "1"), ("limits.b", "2"), ("limits.c", "3")], None));
    let same = open(&set("same", &[("limits.a", "1"), ("limits.b", "2")], None));
    let tool = open(&set("tool", &[], None));
    let two = open(&set("two", &[("limits.a", "1"), ("limits.b", "20")], None));
    let about = |store: &PostgresStore| store.about().unwrap();
    until("one knows", || about(&one).ends_with("; limits.b is 2 here and 20 at two"));
    until("two knows", || {
        about(&two).ends_with("; limits.b is 20 here and 2 at one; limits.b is 20 here and 2 at same")
    });
    assert!(!about(&tool).contains("limits"));
    drop((two, same, tool));
    until("it is gone", || !about(&one).contains("limits"));
}

#[test]
fn sessions_and_tombstones_are_kept_as_long_as_the_node_says_that_keeps_them_longest() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let open = |name, days| PostgresStore::open(set(name, &[("a", "1")], days)(options.clone())).unwrap();
    let short = open("short", Some(1));
    let now = short.time().unwrap().unwrap();
    for (name, days) in [("new", 2), ("old", 20)] {
        let row = item("", 0, &[]).row.map(|row| IndexRow { finished_at: Some(now - days * DAY), ..row });
        append(&short, Append { row, ..item(name, 0, &["all"]) });
    }
    let deleted = || {
        let deleted = short.delete_finished(now - DAY, now - 15 * DAY, 10).unwrap();
        let days_later = short.delete_finished(now - DAY, now, 10).unwrap();
        deleted.into_iter().chain(days_later).map(|deleted| deleted.key.session).collect::<Vec<_>>()
    };
    let ever = open("ever", None);
    assert!(deleted().is_empty(), "one of them keeps them for ever");
    drop(ever);
    let long = open("long", Some(10));
    assert_eq!(deleted(), ["old".into()]);
    assert_eq!(short.forget_tombstones(now).unwrap(), 0, "it was deleted today");
    drop(long);
    assert_eq!(deleted(), ["new".into()]);
}

#[test]
fn nodes_that_delete_at_once_delete_each_session_once() {
    const SESSIONS: u64 = 300;
    let schema = database::fresh();
    let Some(stores) = (0..3).map(|_| database::open(&schema)).collect::<Option<Vec<_>>>() else { return };
    for number in 0..SESSIONS {
        let row = item("", 0, &[]).row.map(|row| IndexRow { finished_at: Some(1), ..row });
        append(&stores[0], Append { row, ..item(&format!("s{number}"), 0, &["all"]) });
    }
    let deleted = || {
        thread::scope(|scope| {
            let delete = |store| -> Vec<SessionKey> {
                let deleted = || Store::delete_finished(store, 2, 3, 5).unwrap();
                let pages = std::iter::repeat_with(deleted).take(SESSIONS as usize / 5);
                pages.flatten().map(|deleted| deleted.key).collect()
            };
            let nodes: Vec<_> = stores.iter().map(|store| scope.spawn(move || delete(store))).collect();
            nodes.into_iter().flat_map(|node| node.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let mut all = deleted();
    all.sort();
    assert_eq!(all.len() as u64, SESSIONS);
    all.dedup();
    assert_eq!(all.len() as u64, SESSIONS, "one was deleted twice");
    assert_eq!(stores[0].stored_bytes().unwrap(), []);
    // What one stores now is counted as that.
    append(&stores[1], item("new", 0, &["event"]));
    assert_eq!(stores[2].stored_bytes().unwrap(), [("acme".into(), "ada".into(), 5)]);
}

#[test]
fn what_is_counted_of_those_who_store_nothing_is_forgotten_beside_others_who_begin() {
    const SESSIONS: usize = 200;
    let schema = database::fresh();
    let Some(stores) = (0..3).map(|_| database::open(&schema)).collect::<Option<Vec<_>>>() else { return };
    let deleted = AtomicU64::new(0);
    thread::scope(|scope| {
        for (node, store) in stores[..2].iter().enumerate() {
            scope.spawn(move || {
                for number in 0..SESSIONS {
                    let row = item("", 0, &[]).row.map(|row| IndexRow {
                        finished_at: Some(1),
                        requester: format!("r{}", number % 7).into(),
                        ..row
                    });
                    append(store, Append { row, ..item(&format!("{node} {number}"), 0, &["all"]) });
                }
            });
        }
        scope.spawn(|| {
            while deleted.load(Ordering::SeqCst) < 2 * SESSIONS as u64 {
                let some = stores[2].delete_finished(2, 3, 5).unwrap().len();
                deleted.fetch_add(some as u64, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            // Each looks as soon as it starts.
            while deleted.load(Ordering::SeqCst) < 2 * SESSIONS as u64 {
                drop(database::open(&schema));
            }
        });
    });
    assert_eq!(stores[0].stored_bytes().unwrap(), []);
    let operator = Operator::new();
    let rows = || operator.run(&format!("SELECT 1 FROM {schema}.stored"));
    let last = database::open(&schema).unwrap();
    until("nothing is left", || rows() == 0);
    append(&last, item("new", 0, &["event"]));
    assert_eq!(stores[0].stored_bytes().unwrap(), [("acme".into(), "ada".into(), 5)]);
}

#[test]
fn a_node_that_writes_what_a_living_one_cannot_read_does_not_start() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let events = |node: &str, reads, writes| Options {
        node: node.to_owned(),
        says: Says { reads, writes, ..Says::default() },
        ..options.clone()
    };
    let refused = |node: &str, reads, writes| {
        let fault = PostgresStore::open(events(node, reads, writes)).err().expect("it does not start");
        assert!(matches!(fault, Fault::Unfit { .. }) && !fault.is_retryable(), "{fault:?}");
        let what = fault.to_string();
        assert!(what.starts_with("expected ") && !what.contains('\n'), "{what}");
        what
    };
    let old = PostgresStore::open(events("old", 1, 1)).unwrap();
    let what = refused("new", 2, 2);
    assert!(what.contains("version 2, which this one writes, found that old (release"), "{what}");
    assert!(what.contains("reads up to version 1: upgrade it, or stop it first"), "{what}");
    let careful = PostgresStore::open(events("careful", 2, 1)).unwrap();
    drop(old);
    let new = PostgresStore::open(events("new", 2, 2)).unwrap();
    drop(careful);
    let what = refused("old", 1, 1);
    assert!(what.contains("found that new (release") && what.contains("start that release"), "{what}");
    append(&new, item("s", 0, &["start"]));
}

#[test]
fn the_index_has_the_version_of_the_oldest_node_that_writes_to_it() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let open = |index| {
        let says = Says { index, ..Says::default() };
        // Nothing beats by itself while this is played.
        let lease = Duration::from_secs(600);
        PostgresStore::open(Options { says, lease, ..options.clone() }).unwrap()
    };
    let (old, new, tool) = (open(Some(1)), open(Some(2)), open(None));
    assert!(!new.set_index_version(2).unwrap() && new.index_is_older_elsewhere(2).unwrap());
    assert!(old.set_index_version(1).unwrap());
    assert_eq!(new.index_version().unwrap(), 1);
    drop(old);
    assert!(!new.index_is_older_elsewhere(2).unwrap() && new.set_index_version(2).unwrap());
    assert_eq!(tool.index_version().unwrap(), 2);
    // One that begins then is an older one, and so is one that was taken for dead.
    let old = open(Some(1));
    assert_eq!(new.index_version().unwrap(), 1);
    let operator = Operator::new();
    operator.run(&format!(
        "UPDATE {schema}.slots SET seen_at = now() - interval '1 hour' WHERE index_version = 1"
    ));
    assert!(new.set_index_version(2).unwrap());
    old.probe().unwrap();
    assert_eq!(new.index_version().unwrap(), 1);
    assert!(!new.set_index_version(2).unwrap());
}

#[test]
fn a_node_that_was_taken_for_dead_does_not_come_back_beside_one_whose_events_it_cannot_read() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let events = |node: &str, version| Options {
        node: node.to_owned(),
        // Nothing beats by itself while this is played.
        lease: Duration::from_secs(600),
        says: Says { reads: version, writes: version, ..Says::default() },
        ..options.clone()
    };
    let first = PostgresStore::open(events("first", 1)).unwrap();
    let old = PostgresStore::open(events("old", 1)).unwrap();
    drop(first);
    Operator::new()
        .run(&format!("UPDATE {schema}.slots SET seen_at = now() - interval '1 hour' WHERE slot = 1"));
    let new = PostgresStore::open(events("new", 2)).unwrap();
    assert_eq!((new.slot(), old.slot()), (Some(Slot(0)), Some(Slot(1))), "its own slot was not taken");
    let refused = old.probe().expect_err("it may not go on").to_string();
    let why = std::error::Error::source(&old.probe().expect_err("it may not go on")).map(ToString::to_string);
    assert!(format!("{refused} {why:?}").contains("found that new (release"), "{refused} {why:?}");
    append(&new, item("s", 0, &["start"]));
}
