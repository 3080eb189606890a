//! The built binary and who may read what it keeps.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use self::binary::handover;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Serve once on this data, under an umask that hides nothing, and say what was logged until it was ready, and what files
/// there were meanwhile with their modes.
fn served(data: &Path, more: &[(&str, &str)]) -> (String, Vec<(String, u32)>) {
    let mut command = Command::new("sh");
    let serve = handover();
    command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(serve.get_program());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["serve", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--data"]).arg(data);
    command.envs(more.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let mut files: Vec<(String, u32)> = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), mode(&entry.path())))
        .collect();
    files.sort();
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(child.wait().unwrap().success(), "{log}");
    (log, files)
}

#[test]
fn what_the_server_makes_is_its_owners_alone_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("new").join("data");
    let (log, files) = served(&data, &[]);
    assert_eq!((mode(&data), mode(data.parent().unwrap())), (0o700, 0o700));
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    for needed in ["audit.jsonl", "handover.db", "handover.db-shm", "handover.db-wal", "lock"] {
        assert!(names.contains(&needed), "{names:?}");
    }
    assert!(files.iter().all(|(_, mode)| *mode == 0o600), "{files:?}");
    assert!(!log.contains("others than its owner"), "{log}");
}

#[test]
fn what_others_can_read_is_named_at_the_start_with_the_command_that_closes_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    served(&data, &[]);
    let tokens = dir.path().join("tokens.toml");
    fs::write(&tokens, "").unwrap();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(&data, 0o755);
    open(&data.join("handover.db"), 0o644);
    open(&data.join("audit.jsonl"), 0o640);
    open(&tokens, 0o604);
    let (log, _) = served(&data, &[("HANDOVER_IDENTITY_TOKENS", tokens.to_str().unwrap())]);
    let shown = data.display();
    for (path, mode, wanted) in [
        (format!("{shown}"), "0755", "700"),
        (format!("{shown}/handover.db"), "0644", "600"),
        (format!("{shown}/audit.jsonl"), "0640", "600"),
        (tokens.display().to_string(), "0604", "600"),
    ] {
        let line = log.lines().find(|line| line.contains(&format!("chmod {wanted} {path} ")));
        let line = line.unwrap_or_else(|| panic!("expected a warning of {path}: {log}"));
        assert!(line.contains("WARN") && line.contains(&format!("mode={mode}")), "{line}");
    }
    // What it says helps.
    for (path, mode) in
        [(&data, 0o700), (&data.join("handover.db"), 0o600), (&data.join("audit.jsonl"), 0o600)]
    {
        open(path, mode);
    }
    assert!(!served(&data, &[]).0.contains("others than its owner"));
}
