//! `handover doctor`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::binary::handover;
use crate::desk::{Desk, Said};

/// The verdicts of one check.
fn verdicts(said: &Said, check: &str) -> Vec<String> {
    let checks = said.json()["checks"].as_array().unwrap().clone();
    let of = checks.iter().filter(|one| one["check"] == check);
    of.map(|one: &Value| one["verdict"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sound_server_is_found_sound_and_what_is_wrong_is_named() {
    let desk = Desk::open();
    let data = desk.dir.path().join("data");
    let name = data.to_str().unwrap();
    let ports = ["HANDOVER_HTTP", "HANDOVER_MACP", "HANDOVER_ADMIN"];
    let doctor = |more: &[&str]| {
        let mut command = desk.command("ops", &[&["doctor", "--data", name, "--json"], more].concat());
        Said::of(&command.envs(ports.map(|port| (port, "127.0.0.1:0"))).output().unwrap())
    };
    let found = doctor(&[]);
    assert_eq!(found.code, 0, "{found:?}");
    for check in
        ["configuration", "limits", "store", "file modes", "clock", "certificate", "server", "sign-in"]
    {
        assert_eq!(verdicts(&found, check), ["good"], "{check}: {found:?}");
    }
    assert_eq!(verdicts(&found, "ports"), ["good"; 3]);

    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let found = doctor(&[]);
    assert_eq!((found.code, verdicts(&found, "file modes")), (0, vec!["odd".to_owned()]));
    assert!(found.out.contains("chmod 700"), "{found:?}");

    // No server: that is odd, and the data can be opened.
    let Desk { server, dir } = desk;
    server.stop();
    let mut command = handover();
    command.args(["doctor", "--data", name, "--json", "--server", "http://127.0.0.1:1"]);
    let found = Said::of(&command.envs(ports.map(|port| (port, "127.0.0.1:0"))).output().unwrap());
    assert_eq!(
        (verdicts(&found, "store"), verdicts(&found, "server")),
        (vec!["good".to_owned()], vec!["odd".to_owned()])
    );

    // What keeps a server from starting is bad.
    fs::write(data.join("handover.db"), "no database at all, but long enough to be looked at as one")
        .unwrap();
    let certificate = dir.path().join("none.pem");
    let mut command = handover();
    command
        .args(["doctor", "--data", name])
        .env("HANDOVER_TLS_CERTIFICATE", &certificate)
        .env("HANDOVER_TLS_KEY", &certificate);
    let found = Said::of(&command.output().unwrap());
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.out.contains("✕ bad   store") && found.out.contains("✕ bad   certificate"), "{found:?}");
    let mut command = handover();
    let found =
        Said::of(&command.args(["doctor", "--json"]).env("HANDOVER_ENGINE_SHARDS", "none").output().unwrap());
    assert_eq!((found.code, verdicts(&found, "configuration")), (1, vec!["bad".to_owned()]));
}

#[test]
fn data_of_an_earlier_release_is_looked_at_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (data, database) = (dir.path().join("data"), dir.path().join("data/handover.db"));
    fs::create_dir(&data).unwrap();
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/schema-4/handover.db");
    fs::copy(&kept, &database).unwrap();
    let mut command = handover();
    command.args(["doctor", "--json", "--server", "http://127.0.0.1:1", "--data"]).arg(&data);
    let found = Said::of(&command.output().unwrap());
    assert_eq!(verdicts(&found, "store"), ["odd"], "{found:?}");
    assert!(found.out.contains("tables of version 4: handover serve upgrades them to 5"), "{found:?}");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "nothing is made beside it");
    assert!(fs::read(&database).unwrap() == fs::read(&kept).unwrap());
}
