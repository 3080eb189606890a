//! Help, completions and manual pages.

use crate::binary::{handover, said};

const COMMANDS: &[&[&str]] = &[
    &["task"],
    &["task", "send"],
    &["task", "list"],
    &["task", "show"],
    &["task", "watch"],
    &["task", "answer"],
    &["task", "steer"],
    &["task", "pause"],
    &["task", "resume"],
    &["task", "cancel"],
    &["task", "complete"],
    &["task", "tree"],
    &["agent"],
    &["agent", "register"],
    &["agent", "list"],
    &["agent", "work"],
    &["handoff"],
    &["handoff", "offer"],
    &["handoff", "list"],
    &["handoff", "accept"],
    &["handoff", "decline"],
    &["handoff", "commit"],
    &["watch"],
    &["replay"],
    &["backup"],
    &["restore"],
    &["export"],
    &["import"],
    &["doctor"],
    &["completions"],
    &["man"],
];

#[test]
fn every_command_says_what_it_can_be_told() {
    let docs = include_str!("../../../../docs/cli.md");
    for command in COMMANDS {
        let output = handover().args(*command).arg("--help").output().unwrap();
        let (help, errors) = said(&output);
        assert!(output.status.success() && errors.is_empty(), "{command:?}: {errors}");
        assert!(help.contains("Usage: handover"), "{command:?}: {help}");
        if matches!(command[0], "task" | "agent" | "handoff" | "watch" | "replay") {
            assert!(help.contains("--server") && help.contains("--json"), "{command:?}: {help}");
        }
        let named = format!("handover {}", command.join(" "));
        assert!(docs.contains(&named) || command.len() == 1, "docs/cli.md does not name {named}");
    }
    for noun in ["task", "agent", "handoff", "replay"] {
        let output = handover().args([noun, "--help"]).output().unwrap();
        assert!(said(&output).0.contains("Exit codes: 0 done, 1 failed, 2 usage, 3 refused"), "{noun}");
    }
}

#[test]
fn completions_and_pages_are_made_from_the_commands() {
    for (shell, word) in
        [("bash", "_handover"), ("zsh", "#compdef handover"), ("fish", "complete -c handover")]
    {
        let output = handover().args(["completions", shell]).output().unwrap();
        let script = said(&output).0;
        assert!(output.status.success() && script.contains(word) && script.contains("steer"), "{shell}");
    }
    let page = handover().arg("man").output().unwrap();
    assert!(said(&page).0.contains(".TH handover 1"), "{page:?}");
    let dir = tempfile::tempdir().unwrap();
    assert!(handover().arg("man").arg("--dir").arg(dir.path()).status().unwrap().success());
    for name in ["handover.1", "handover-task.1", "handover-task-steer.1", "handover-agent-work.1"] {
        assert!(dir.path().join(name).is_file(), "{name}");
    }
}
