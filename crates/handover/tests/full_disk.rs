//! The binary on a disk that fills up and has room again, in a mount namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use self::binary::Server;

/// Tells the child where its small disk is.
const DISK: &str = "TEST_SMALL_DISK";

/// How long the server may take to notice.
const PATIENCE: Duration = Duration::from_secs(60);

/// The child's part, on a disk of a few megabytes.
#[test]
fn fill_the_disk_of_a_server_and_free_it() {
    let Some(disk) = std::env::var_os(DISK) else { return };
    let (data, filler) = (Path::new(&disk).join("data"), Path::new(&disk).join("filler"));
    // Its log is on another disk.
    let log = Path::new(&disk).parent().unwrap().join("log");
    let server = Server::start_logging(&data, &log);
    assert_eq!(server.get("/readyz").0, 200);

    let found = until_ready_is(&server, 503, || fill(&filler));
    assert_eq!(found["ready"], false);
    let store = &found["checks"][0];
    assert_eq!((store["name"].as_str(), store["ready"].as_bool()), (Some("store"), Some(false)), "{found}");
    assert!(store["reason"].as_str().unwrap().starts_with("the store's disk is full: "), "{found}");
    assert_eq!(server.get("/readyz"), (503, "{\"ready\":false}".to_owned()), "why is for the operator");
    let engine = &found["checks"][1];
    assert_eq!((engine["name"].as_str(), engine["ready"].as_bool()), (Some("engine"), Some(true)), "{found}");
    assert_eq!(server.get("/healthz"), (200, "ok".to_owned()));

    let mut failed = 0;
    for n in 0..100 {
        fill(&filler);
        let work =
            format!(r#"{{"agents":["worker"],"title":"{n}","instructions":"{}"}}"#, "dig ".repeat(1000));
        failed += usize::from(server.call("delegate_task", &work).contains("STORE_FULL"));
    }
    assert!(failed > 10, "expected calls that fail, found {failed}");
    let logged = fs::read_to_string(&log).unwrap();
    // Twice if it took longer than a minute.
    let lines = logged.matches("the store did not take a batch").count();
    assert!((1..=2).contains(&lines), "{failed} commits failed: {logged}");

    fs::remove_file(&filler).unwrap();
    let found = until_ready_is(&server, 200, || ());
    assert_eq!(found["ready"], true);
    assert_eq!(server.stop(), Some(0));
}

/// Ask until this is the answer, and do something before each time.
fn until_ready_is(server: &Server, status: u16, mut before: impl FnMut()) -> serde_json::Value {
    let begun = Instant::now();
    loop {
        before();
        let (found, body) = server.get_admin("/readyz");
        if found == status {
            return serde_json::from_str(&body).unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "expected {status}, found {found}: {body}");
        std::thread::yield_now();
    }
}

/// Take what is left of the disk.
fn fill(file: &Path) {
    let mut file = File::options().create(true).append(true).open(file).unwrap();
    for block in [1 << 16, 1 << 12, 1] {
        loop {
            match file.write_all(&vec![0; block]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_server_with_a_full_disk_is_live_but_not_ready_until_there_is_room() {
    let allowed = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("not checked: this machine does not allow mount namespaces");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must allow mount namespaces");
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "mount -t tmpfs -o size=4m tmpfs \"$0\" && exec \"$@\""]);
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    command.arg(&disk).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "fill_the_disk_of_a_server_and_free_it", "--nocapture"]);
    let output = command.env(DISK, &disk).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "the child found:\n{said}\n{told}");
}
