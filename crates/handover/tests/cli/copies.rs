//! `handover backup`, `restore`, `export` and `import`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use handover_store::{Append, Put, Record, SessionKey, SqliteStore, Store, Tombstone, Wake};
use sha2::{Digest, Sha256};

use crate::binary::{Server, handover};
use crate::desk::{Desk, Said};

fn run(arguments: &[&str]) -> Said {
    Said::of(&handover().args(arguments).output().unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The ids of all tasks of ops.
fn ids(server: &Server) -> Vec<String> {
    let url = format!("http://{}", server.http());
    let mut command = handover();
    command
        .args(["task", "list", "--limit", "1000", "--json"])
        .env("HANDOVER_SERVER", url)
        .env("HANDOVER_TOKEN", "ops");
    let listed = Said::of(&command.output().unwrap()).json();
    let mut ids: Vec<String> = listed["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["task_id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[test]
fn a_copy_made_while_the_server_runs_has_everything_that_was_acknowledged_before() {
    let desk = Desk::open();
    let (copy, data) = (desk.dir.path().join("copy.db"), desk.dir.path().join("restored"));
    let stop = AtomicBool::new(false);
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let before = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = desk.server.call(
                        "delegate_task",
                        r#"{"title":"t","instructions":"i","agent":"a","queue":true}"#,
                    );
                    assert!(answer.contains("task_id"), "{answer}");
                    sent.lock().unwrap().push(answer);
                }
            });
        }
        while sent.lock().unwrap().len() < 50 {
            std::thread::yield_now();
        }
        let before = sent.lock().unwrap().clone();
        let made = run(&["backup", text(&copy), "--admin", desk.server.admin()]);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(made.code, 0, "{made:?}");
        before
    });
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!desk.dir.path().join("data/backup.db").exists());

    let restored = run(&["restore", text(&copy), "--data", text(&data)]);
    assert_eq!(restored.code, 0, "{restored:?}");
    let other = Server::start(&data);
    for answer in before {
        let id = answer
            .split("\\\"task_id\\\":\\\"")
            .nth(1)
            .unwrap_or_else(|| answer.split("\"task_id\":\"").nth(1).unwrap());
        let id: String = id.chars().take(36).collect();
        let found = other.call("task_status", &format!(r#"{{"task_id":"{id}"}}"#));
        assert!(!found.contains("SESSION_NOT_FOUND"), "{id}: {found}");
    }
    drop(other);

    // No page of a browser can have one made.
    let mut stream = TcpStream::connect(desk.server.admin()).unwrap();
    write!(
        stream,
        "POST /backup HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("x-handover"), "{answer}");
    assert_eq!(desk.server.get("/backup").0, 404);

    // Nothing is written over.
    let again = run(&["backup", text(&copy), "--admin", desk.server.admin()]);
    assert!(again.code == 2 && again.err.contains("copy.db"), "{again:?}");
    let again = run(&["restore", text(&copy), "--data", text(&data)]);
    assert!(again.code == 2 && again.err.contains("empty"), "{again:?}");
    let nobody = run(&["backup", text(&desk.dir.path().join("other.db")), "--admin", "127.0.0.1:1"]);
    assert_eq!((nobody.code, nobody.err.lines().count()), (7, 2), "{nobody:?}");
    assert!(!desk.dir.path().join("other.db.partial").exists());
}

/// The answer of the operator's listener to a request for a copy.
fn backup(server: &Server, method: &str) -> String {
    let mut stream = TcpStream::connect(server.admin()).unwrap();
    let head = "host: localhost\r\nconnection: close\r\nx-handover: backup\r\ncontent-length: 0";
    write!(stream, "{method} /backup HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_copy_that_is_being_fetched_is_not_replaced_by_another() {
    let desk = Desk::open();
    desk.send("analyst", "x");
    let (copy, made) = (desk.dir.path().join("copy.db"), desk.dir.path().join("data/backup.db"));
    assert!(backup(&desk.server, "POST").starts_with("HTTP/1.1 202"));
    while !backup(&desk.server, "GET").contains("\"done\"") {
        std::thread::yield_now();
    }
    let before = fs::metadata(&made).unwrap().ino();
    let second = run(&["backup", text(&copy), "--admin", desk.server.admin()]);
    assert!(second.code == 3 && second.err.contains("still being fetched"), "{second:?}");
    assert!(second.err.contains("when the other backup has ended"), "{second:?}");
    assert!(backup(&desk.server, "POST").contains("BACKUP_RUNNING"));
    assert_eq!(fs::metadata(&made).unwrap().ino(), before);
    // Who has fetched it removes it.
    fs::remove_file(&made).unwrap();
    let next = run(&["backup", text(&copy), "--admin", desk.server.admin()]);
    assert_eq!(next.code, 0, "{next:?}");
}

#[test]
fn a_copy_that_is_damaged_is_not_restored() {
    let desk = Desk::open();
    desk.send("analyst", "x");
    let (copy, data) = (desk.dir.path().join("copy.db"), desk.dir.path().join("restored"));
    assert_eq!(run(&["backup", text(&copy), "--admin", desk.server.admin()]).code, 0);
    let mut bytes = fs::read(&copy).unwrap();
    let middle = bytes.len() / 2;
    bytes.truncate(middle);
    fs::write(&copy, bytes).unwrap();
    let restored = run(&["restore", text(&copy), "--data", text(&data)]);
    assert_eq!(restored.code, 1, "{restored:?}");
    assert!(!data.exists());
}

#[test]
fn an_archive_moves_sessions_is_checked_and_can_be_put_in_again() {
    let desk = Desk::open();
    let sent: Vec<String> = (0..3).map(|n| desk.send("analyst", &format!("task {n}"))).collect();
    desk.good("ops", &["task", "cancel", &sent[0]]);
    let all = ids(&desk.server);
    let (data, archive) = (desk.dir.path().join("data"), desk.dir.path().join("sessions.jsonl"));
    // While a server has the data it is its own.
    let said = run(&["export", text(&archive), "--data", text(&data)]);
    assert!(said.code == 1 && said.err.contains("in use") && !archive.exists(), "{said:?}");
    let Desk { server, dir } = desk;
    server.stop();
    let said = run(&["export", text(&archive), "--data", text(&data)]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("wrote 3 sessions with 7 events"), "{said:?}");

    let other = dir.path().join("other");
    let put = || run(&["import", text(&archive), "--data", text(&other)]);
    assert!(put().out.contains("3 new, 0 there already"));
    assert!(put().out.contains("0 new, 3 there already"));
    let moved = Server::start(&other);
    assert_eq!(ids(&moved), all);
    // One has gone on there: it is left as it is, and said so.
    let cancelled = moved.call("task_cancel", &format!(r#"{{"task_id":"{}"}}"#, sent[1]));
    assert!(cancelled.contains("NOT_FOUND"), "only ops sees it: {cancelled}");
    let mut command = handover();
    command.args(["task", "cancel", &sent[1]]).env("HANDOVER_TOKEN", "ops");
    assert!(command.env("HANDOVER_SERVER", format!("http://{}", moved.http())).status().unwrap().success());
    moved.stop();
    let said = put();
    assert!(
        said.code == 1 && said.err.contains(&sent[1]) && said.out.contains("2 there already"),
        "{said:?}"
    );

    // One that was changed is refused before anything is written.
    let whole = fs::read_to_string(&archive).unwrap();
    let third = dir.path().join("third");
    for (changed, what) in [
        (whole.replacen("task_id", "task_ix", 1) + " ", "more"),
        (whole.replacen("\"events\":[\"", "\"events\":[\"AAAA", 1), "an event"),
        (whole.lines().take(3).map(|line| format!("{line}\n")).collect(), "cut"),
        (whole.replacen(":2}", ":9}", 1), "version"),
        (String::new(), "empty"),
    ] {
        fs::write(&archive, changed).unwrap();
        let said = run(&["import", text(&archive), "--data", text(&third)]);
        assert!(matches!(said.code, 1 | 2) && !third.exists(), "{what}: {said:?}");
    }
}

#[test]
fn records_that_differ_are_named_and_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name);
    let record = |space: &str, key: &str, value: &str| Record {
        space: space.into(),
        tenant: "t".into(),
        key: key.into(),
        value: value.into(),
    };
    let open = |name: &str| SqliteStore::open(&data(name)).unwrap();
    let put = |name: &str, records: &[Record]| {
        let store = open(name);
        records.iter().for_each(|record| assert!(store.put_record(record, Put::Replace).unwrap()));
    };
    let there = |name: &str| {
        let store = open(name);
        let spaces = store.spaces().unwrap();
        let all = spaces.iter().flat_map(|(space, tenant)| store.records(space, tenant, None, 10).unwrap());
        all.map(|found| format!("{} {} {}", found.space, found.key, String::from_utf8(found.value).unwrap()))
            .collect::<Vec<_>>()
    };
    put(
        "from",
        &[record("agent", "ada", "new"), record("agent", "bob", "same"), record("listed", "ada", "tool")],
    );
    let gone = |session: &str| Tombstone { key: SessionKey::new("t", session), deleted_at: 1 };
    open("from").put_tombstones(&[gone("gone")]).unwrap();
    let archive = data("archive.jsonl");
    assert_eq!(run(&["export", text(&archive), "--data", text(&data("from"))]).code, 0);
    let import = |name: &str, how: &[&str]| {
        run(&[&["import", text(&archive), "--data", text(&data(name))][..], how].concat())
    };

    let before =
        [record("agent", "ada", "old"), record("agent", "bob", "same"), record("agent", "zoe", "own")];
    for name in ["refused", "skipped", "replaced"] {
        put(name, &before);
    }
    put("replaced", &[record("nonce", "5", ""), record("signin", "x", "")]);
    let said = import("refused", &[]);
    assert!(said.code == 1 && said.out.is_empty(), "{said:?}");
    for part in ["1 records differ", "agent t ada", "--records skip", "--records replace"] {
        assert!(said.err.contains(part), "{said:?}");
    }
    assert!(!said.err.contains("old") && !said.err.contains("bob"), "{said:?}");
    assert_eq!(there("refused"), ["agent ada old", "agent bob same", "agent zoe own"]);
    assert_eq!(open("refused").tombstones(None, 10).unwrap(), []);

    let said = import("skipped", &["--records", "skip"]);
    assert!(said.code == 0 && said.out.contains("3 records: skipped"), "{said:?}");
    assert_eq!(there("skipped"), there("refused"));
    assert_eq!(open("skipped").tombstones(None, 10).unwrap(), [gone("gone")]);

    let said = import("replaced", &["--records", "replace"]);
    assert!(said.code == 0 && said.out.contains("3 records: 3 new, 0 there already"), "{said:?}");
    let replaced = ["agent ada new", "agent bob same", "listed ada tool", "nonce 5 ", "signin x "];
    assert_eq!(there("replaced"), replaced);
    let said = import("replaced", &[]);
    assert!(said.code == 0 && said.out.contains("3 records: 0 new, 3 there already"), "{said:?}");
    assert!(said.out.contains("1 ids of deleted sessions: 0 new, 1 there already"), "{said:?}");

    // Names of tools are given out for all agents of a tenant together.
    put("named", &[record("listed", "zoe", "tool")]);
    let said = import("named", &[]);
    assert!(said.code == 1 && said.err.contains("listed t: 1 agents more"), "{said:?}");

    // A session that lives where its id was deleted stays, and is named.
    let living = open("living");
    let events = vec![vec![1]];
    let key = SessionKey::new("t", "gone");
    living
        .append(&[Append { key, expected: 0, events, row: None, wake: Wake::Unchanged, snapshot: None }])
        .unwrap();
    drop(living);
    let said = import("living", &[]);
    assert!(said.code == 1 && said.err.contains("t/gone: another one is there"), "{said:?}");

    // What this release does not export it does not import.
    let whole = fs::read_to_string(&archive).unwrap();
    let (lines, _) = whole.trim_end().rsplit_once('\n').unwrap();
    let lines = format!("{}\n", lines.replacen("\"agent\"", "\"a-new-one\"", 1));
    let hash: String = Sha256::digest(&lines).iter().map(|byte| format!("{byte:02x}")).collect();
    let end = format!(r#"{{"end":{{"records":3,"deleted":1,"sessions":0,"events":0,"sha256":"{hash}"}}}}"#);
    fs::write(&archive, format!("{lines}{end}\n")).unwrap();
    let said = import("strange", &[]);
    assert!(said.code == 2 && said.err.contains("a-new-one t ada") && !data("strange").exists(), "{said:?}");
}
