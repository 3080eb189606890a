//! Which commit the binary is built from: what `HANDOVER_COMMIT` says, or what git does; nothing where neither does.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=HANDOVER_COMMIT");
    // Changes with every commit. If it is not there, neither is a commit to be named.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    let commit = std::env::var("HANDOVER_COMMIT").ok().or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let shown = commit.filter(|commit| !commit.is_empty()).map(|commit| format!(" ({commit})"));
    println!("cargo:rustc-env=HANDOVER_COMMIT={}", shown.unwrap_or_default());
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
