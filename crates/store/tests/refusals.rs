//! Databases that will not do, each a real one: refused in one line that says what was expected, what was found and what helps. And
//! one whose commits hang, as when its standby does.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use handover_store::postgres::{self, Database, Options};
use handover_store::{
    Append, Fault, Feed, Filter, IndexRow, Order, Outcome, Place, PostgresStore, SessionKey, Store, Wake,
};
use tokio_postgres::{NoTls, SimpleQueryMessage};

#[path = "postgres/mod.rs"]
mod database;
#[path = "postgres/own.rs"]
mod own;

use self::own::Own;

fn options(url: &str, password: Option<&str>, ca: Option<&Path>) -> Options {
    Options::new(Database::read(url, password, ca).unwrap())
}

/// What is said of a database that will not do.
fn refused(options: Options) -> String {
    let fault = PostgresStore::open(options).err().expect("it will not do");
    let what = fault.to_string();
    assert!(matches!(fault, Fault::Unfit { .. }) && !fault.is_retryable(), "{fault:?}");
    assert!(what.starts_with("expected ") && what.contains("found") && !what.contains('\n'), "{what}");
    assert!(!what.contains("hunter2"), "{what}");
    what
}

/// Statements of the owner of a database. Says how many rows they answered.
fn run(url: &str, statements: &[&str]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut rows = 0;
        for statement in statements {
            let answer = client.simple_query(statement).await;
            let answer = answer.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
            rows += answer.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count();
        }
        drop(client);
        connection.await.unwrap().unwrap();
        rows
    })
}

fn start(session: &str) -> Append {
    let row = IndexRow {
        kind: 1,
        status: 1,
        requester: "ada".into(),
        agents: vec!["ada".into()],
        created_at: 1,
        finished_at: None,
        summary: Vec::new(),
        waits: Vec::new(),
    };
    Append {
        key: SessionKey::new("acme", session),
        expected: 0,
        events: vec![b"start".to_vec()],
        row: Some(row),
        wake: Wake::Unchanged,
        snapshot: None,
    }
}

#[test]
fn whose_password_is_wrong_or_missing_is_told_where_it_belongs() {
    let Some(server) = Own::start("scram-sha-256") else { return };
    let url = server.url("x").replace(":x@", "@");
    let missing = refused(options(&url, None, None));
    assert!(missing.contains("a password for handover") && missing.contains("found none"), "{missing}");
    let wrong = refused(options(&url, Some("hunter22"), None));
    assert!(wrong.contains("the password of handover") && wrong.contains("found another"), "{wrong}");
    for what in [missing, wrong] {
        assert!(what.contains("store.password_file"), "{what}");
    }
    PostgresStore::open(options(&url, Some("hunter2"), None)).unwrap();
}

/// Bytes in text, as files have them.
fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[test]
fn a_certificate_that_does_not_hold_is_refused() {
    let Some(server) = Own::start("trust") else { return };
    let plain = format!("{}?sslmode=verify-full", server.url("x"));
    let what = refused(options(&plain, None, None));
    assert!(what.contains("speaks TLS") && what.contains("ssl = on"), "{what}");
    let made = |names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        rcgen::generate_simple_self_signed(names).unwrap()
    };
    let (right, other) = (made(&["localhost"]), made(&["localhost"]));
    let elsewhere = made(&["elsewhere.example.com"]);
    let dir = tempfile::tempdir().unwrap();
    let trusting = |name: &str, certified: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        let file = dir.path().join(name);
        fs::write(&file, pem("CERTIFICATE", certified.cert.der())).unwrap();
        file
    };
    let url = format!("postgres://handover@localhost:{}/postgres?sslmode=verify-full", server.port);
    let serve = |certified: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        let key = server.keep("server.key", &pem("PRIVATE KEY", &certified.signing_key.serialize_der()));
        let certificate = server.keep("server.crt", &pem("CERTIFICATE", certified.cert.der()));
        server.set(&format!(
            "ssl = on\nssl_key_file = '{}'\nssl_cert_file = '{}'\n",
            key.display(),
            certificate.display()
        ));
    };
    serve(&right);
    let of_another = trusting("other.pem", &other);
    for ca in [None, Some(&*of_another)] {
        let what = refused(options(&url, None, ca));
        assert!(
            what.contains("a certificate of postgres://localhost") && what.contains("store.ca"),
            "{what}"
        );
    }
    let trusted = trusting("right.pem", &right);
    PostgresStore::open(options(&url, None, Some(&trusted))).unwrap();
    serve(&elsewhere);
    let its_own = trusting("elsewhere.pem", &elsewhere);
    let what = refused(options(&url, None, Some(&its_own)));
    assert!(what.contains("a certificate of postgres://localhost"), "{what}");
}

#[test]
fn a_database_that_may_lose_what_it_acknowledges_is_refused_and_so_is_a_standby() {
    let Some(server) = Own::start("trust") else { return };
    let url = server.url("x");
    let wait = PostgresStore::open(options(&url, None, None)).unwrap();
    assert!(wait.about().unwrap().ends_with("no synchronous standby"), "{:?}", wait.about());
    drop(wait);
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        run(&url, &[&format!("ALTER SYSTEM SET {setting} = off"), "SELECT pg_reload_conf()"]);
        let what = wait_for(|| PostgresStore::open(options(&url, None, None)).err());
        assert!(what.to_string().contains(&format!("expected {setting} = on, found off")), "{what}");
        run(&url, &[&format!("ALTER SYSTEM RESET {setting}"), "SELECT pg_reload_conf()"]);
        wait_for(|| PostgresStore::open(options(&url, None, None)).ok());
    }
    // As one user is set, while others are not.
    run(&url, &["CREATE ROLE careless LOGIN SUPERUSER", "ALTER ROLE careless SET synchronous_commit = off"]);
    let what = refused(options(&url.replace("handover:x@", "careless@"), None, None));
    assert!(what.contains("synchronous_commit = on, found off"), "{what}");
    run(&url, &["ALTER ROLE careless SET synchronous_commit = local"]);
    run(&url, &["CREATE DATABASE bytes ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"]);
    let what = refused(options(&url.replace("/postgres", "/bytes"), None, None));
    assert!(what.contains("expected a database in UTF8, found SQL_ASCII"), "{what}");
    let standby = server.standby();
    let what = refused(options(&standby.url("x"), None, None));
    assert!(what.contains("expected the primary") && what.contains("found a standby"), "{what}");
    // Of several hosts the one is taken that is the primary.
    let both = url.replace("@127.0.0.1:", &format!("@127.0.0.1:{},127.0.0.1:", standby.port));
    let any = PostgresStore::open(options(&both, None, None)).unwrap();
    any.append(&[start("s")]).unwrap();
}

/// Wait until there is one.
fn wait_for<T>(mut get: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = get() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn whoever_may_not_use_the_tables_is_told_what_to_grant() {
    let Some(url) = database::url() else { return };
    let (schema, role) = (database::fresh(), format!("reader_{}", std::process::id()));
    let owned = Options { schema: schema.clone(), ..options(&url, None, None) };
    postgres::migrate(owned).unwrap();
    run(&url, &[&format!("CREATE ROLE {role} LOGIN")]);
    let guest = || Options {
        schema: schema.clone(),
        migrate: false,
        ..options(&url.replace("handover@", &format!("{role}@")), None, None)
    };
    let all = [
        format!("GRANT USAGE ON SCHEMA {schema} TO {role}"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"),
        format!("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"),
    ];
    for grant in &all[..2] {
        let what = refused(guest());
        assert!(what.contains(&format!("GRANT USAGE ON SCHEMA {schema}")) && what.contains(&role), "{what}");
        run(&url, &[grant]);
    }
    run(&url, &[&all[2]]);
    let store = PostgresStore::open(guest()).unwrap();
    assert!(matches!(store.append(&[start("s")]).unwrap()[..], [Outcome::Appended { .. }]));
    drop(store);
    run(&url, &[&format!("DROP OWNED BY {role}"), &format!("DROP ROLE {role}")]);
}

/// Every kind of question, all at once: whether it is answered.
fn everything(store: &PostgresStore, place: &Place) -> Vec<Result<(), Fault>> {
    let key = SessionKey::new("acme", "s");
    type Question<'a> = Box<dyn Fn() -> Result<(), Fault> + Send + Sync + 'a>;
    let questions: Vec<Question<'_>> = vec![
        Box::new(|| store.probe()),
        Box::new(|| store.read(&key, 0, 10).map(drop)),
        Box::new(|| store.head(&key).map(drop)),
        Box::new(|| store.snapshot(&key).map(drop)),
        Box::new(|| store.news(place, 10).map(drop)),
        Box::new(|| store.last_place().map(drop)),
        Box::new(|| store.feed(&Feed::Everything, place, 10).map(drop)),
        Box::new(|| store.list(&Filter::default(), Order::Newest, None, 10).map(drop)),
        Box::new(|| store.inbox("acme", "ada", 1, None, 10).map(drop)),
        Box::new(|| store.row(&key).map(drop)),
        Box::new(|| store.due(10, 10).map(drop)),
        Box::new(|| store.open_counts().map(drop)),
        Box::new(|| store.stored_bytes().map(drop)),
        Box::new(|| store.record("a", "b", "c").map(drop)),
        Box::new(|| store.records("a", "b", None, 10).map(drop)),
        Box::new(|| store.spaces().map(drop)),
        Box::new(|| store.tombstone(&key).map(drop)),
        Box::new(|| store.tombstones(None, 10).map(drop)),
        Box::new(|| store.sessions(None, 10).map(drop)),
    ];
    thread::scope(|scope| {
        let asked: Vec<_> = questions.iter().map(|question| scope.spawn(question)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

/// Commits wait for a standby that is not there: as when it hangs, or as at a former primary.
#[test]
fn while_commits_hang_reads_go_on_for_half_a_lease_and_nothing_is_acknowledged() {
    let Some(server) = Own::start("trust") else { return };
    let url = server.url("x");
    let half = Duration::from_secs(3);
    let options = Options { lease: half * 2, patience: Duration::from_secs(2), ..options(&url, None, None) };
    let store = PostgresStore::open(options).unwrap();
    store.append(&[start("s")]).unwrap();
    let key = SessionKey::new("acme", "s");
    let set = |standbys: &str| {
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'");
        run(&url, &["SET synchronous_commit = local", &set, "SELECT pg_reload_conf()"]);
    };
    store.probe().unwrap();
    let begun = Instant::now();
    set("nobody");
    let (mut place, mut read) = (Place::default(), 0);
    // All in memory is read by looks; the rest is read by itself.
    while begun.elapsed() < half / 2 {
        assert_eq!(store.read(&key, 0, 10).unwrap().len(), 1);
        place = store.last_place().unwrap();
        assert!(store.news(&place, 10).unwrap().is_empty());
        read += 1;
    }
    assert!(read > 10, "{read}");
    let appended = store.append(&[start("r")]);
    assert!(appended.as_ref().is_err_and(Fault::is_retryable), "{appended:?}");
    let answers = || everything(&store, &place);
    let last = wait_for(|| Some(answers()).filter(|answers| answers.iter().all(Result::is_err)));
    assert!(begun.elapsed() >= half, "{:?}", begun.elapsed());
    for answer in last {
        assert!(answer.as_ref().is_err_and(Fault::is_retryable), "{answer:?}");
    }
    // Whoever ends the wait of a beat shows nothing by that.
    let waiting =
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query";
    wait_for(|| {
        // An append comes before it.
        run(&url, &[&format!("{waiting} NOT LIKE '%beat_v1%'")]);
        Some(run(&url, &[&format!("{waiting} LIKE '%beat_v1%'")])).filter(|rows| *rows > 0)
    });
    assert!(answers().iter().all(Result::is_err), "and it stays so");
    set("");
    wait_for(|| store.settle().ok());
    wait_for(|| answers().iter().all(Result::is_ok).then_some(()));
    let again = store.append(&[start("r")]).unwrap();
    let kept = store.read(&SessionKey::new("acme", "r"), 0, 10).unwrap();
    assert_eq!(kept.len(), 1, "once, whether the first was kept or not: {again:?}");
}

/// The standby is promoted while the primary still answers, over connections that were opened before.
#[test]
fn what_a_former_primary_answers_counts_for_nothing() {
    let Some(server) = Own::start("trust") else { return };
    let url = server.url("x");
    let standby = server.standby();
    let set = |standbys: &str| {
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'");
        run(&url, &["SET synchronous_commit = local", &set, "SELECT pg_reload_conf()"]);
    };
    set("*");
    // The one that is to be promoted is tried first.
    let both = url.replace("@127.0.0.1:", &format!("@127.0.0.1:{},127.0.0.1:", standby.port));
    let bounds = |options: Options| Options {
        lease: Duration::from_secs(4),
        patience: Duration::from_secs(2),
        ..options
    };
    let store = PostgresStore::open(bounds(options(&both, None, None))).unwrap();
    store.append(&[start("s")]).unwrap();
    let place = store.last_place().unwrap();
    // So that all connections are open.
    assert!(everything(&store, &place).iter().all(Result::is_ok));
    standby.promote();
    run(&standby.url("x"), &["ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"]);
    let there = wait_for(|| PostgresStore::open(bounds(options(&standby.url("x"), None, None))).ok());
    let next = Append { expected: 1, row: None, ..start("s") };
    wait_for(|| there.append(std::slice::from_ref(&next)).ok());
    // Until it notices, which takes half a lease at most, it cannot know. From then on it is not told what was any more.
    let key = SessionKey::new("acme", "s");
    let read = || {
        thread::scope(|scope| {
            let asked: Vec<_> = (0..6).map(|_| scope.spawn(|| store.read(&key, 0, 10))).collect();
            asked
                .into_iter()
                .map(|asked| asked.join().unwrap().map(|events| events.len()).ok())
                .collect::<Vec<_>>()
        })
    };
    wait_for(|| read().contains(&Some(2)).then_some(()));
    for _ in 0..20 {
        assert_eq!(read(), [Some(2); 6]);
    }
    assert_eq!(run(&url, &["SELECT 1"]), 1, "it still answers");
    wait_for(|| store.append(&[start("r")]).ok());
    assert_eq!(there.read(&SessionKey::new("acme", "r"), 0, 10).unwrap().len(), 1);
}
