//! `handover task`, `handover watch` and `handover replay`.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::binary::handover;
use crate::desk::{Desk, Said};

#[test]
fn a_task_goes_from_send_to_its_end_and_every_exit_code_means_something() {
    let desk = Desk::open();
    let id = desk.send("analyst", "Q4 sales");
    assert_eq!(id.len(), 36, "{id}");
    let short = &id[..8];

    let listed = desk.good("ops", &["task", "list"]).out;
    assert!(listed.starts_with("TASK ") && listed.contains("○ requested"), "{listed}");
    assert!(listed.contains(short) && listed.contains("ops → analyst") && !listed.contains(&id), "{listed}");
    let all = desk.good("ops", &["task", "list", "--json"]).json();
    assert_eq!(
        (all["tasks"][0]["task_id"].as_str(), all["tasks"][0]["state"].as_str()),
        (Some(&*id), Some("requested"))
    );
    assert_eq!(
        desk.good("ops", &["task", "list", "--where", "state=failed", "--json"]).json()["tasks"],
        Value::Array(vec![])
    );

    // Still open: it waits for nothing but time.
    let waited = desk.run("ops", &["task", "steer", short, "left", "--wait", "--timeout", "1s"]);
    assert_eq!(waited.code, 6, "{waited:?}");

    // Who may not, is refused; what the wrong one asks for is not found.
    assert_eq!(desk.run("stranger", &["task", "show", &id]).code, 4);
    let refused = desk.run("ops", &["task", "complete", short]);
    assert_eq!((refused.code, refused.err.lines().count()), (3, 2), "{refused:?}");
    assert!(refused.err.lines().nth(1).unwrap().starts_with("help: "), "{refused:?}");

    let paused = desk.good("ops", &["task", "pause", short]).out;
    assert!(paused.contains("done") && paused.contains("‖ paused"), "{paused}");
    assert!(desk.good("ops", &["task", "pause", short]).out.contains("already"));
    assert!(desk.good("ops", &["task", "resume", short, "--json"]).json()["results"][0]["result"] == "done");
    let cancelled = desk.good("ops", &["task", "cancel", short, "--reason", "no longer"]).out;
    assert!(cancelled.contains("– cancelled"), "{cancelled}");

    let watched = desk.run("ops", &["task", "watch", short]);
    assert_eq!(watched.code, 1, "{watched:?}");
    assert!(watched.out.contains("ops           cancelled it: \"no longer\"  [cli]"), "{watched:?}");
    let lines = desk.run("ops", &["task", "watch", short, "--json"]).out;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, events) = lines.split_last().unwrap();
    let kinds: Vec<&str> = events.iter().map(|line| line["event"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "requested", "steered", "suspended", "resumed", "cancelled"]);
    assert!(lines.iter().all(|line| line["version"] == 1) && last["task"]["state"] == "cancelled");
}

#[test]
fn replay_says_the_state_after_each_event() {
    let desk = Desk::open();
    let id = desk.send("analyst", "Q4 sales");
    for act in ["pause", "resume", "cancel"] {
        desk.good("ops", &["task", act, &id]);
    }
    let replayed = desk.good("ops", &["replay", &id[..8], "--json"]).out;
    let states: Vec<String> = replayed
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["event"]["state"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(states, ["requested", "requested", "paused", "requested", "cancelled"]);
    assert!(desk.good("ops", &["replay", &id]).out.contains("‖ paused"));
}

#[test]
fn an_error_is_two_lines_the_second_of_which_helps() {
    let desk = Desk::open();
    let id = desk.send("analyst", "x");
    let mistyped = format!("{}!", &id[..7]);
    let said = desk.run("ops", &["task", "show", &mistyped]);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!((said.code, lines.len()), (4, 2), "{said:?}");
    assert!(
        lines[0].contains(&mistyped)
            && lines[1].starts_with("help: nearest: ")
            && lines[1].contains(&id[..8])
    );
    let said = desk.run("ops", &["task", "show", &mistyped, "--json"]);
    let error: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((error["version"].as_u64(), error["error"]["exit"].as_str()), (Some(1), Some("not_found")));

    // Too little to be meant: nothing is guessed.
    for little in ["", &id[..3]] {
        assert_eq!(desk.run("ops", &["task", "cancel", little]).code, 4);
    }

    let mut signed_out = desk.command("ops", &["task", "list"]);
    let said = Said::of(&signed_out.env_remove("HANDOVER_TOKEN").output().unwrap());
    assert_eq!((said.code, said.err.lines().count()), (5, 2), "{said:?}");
    assert!(said.err.contains("HANDOVER_TOKEN"), "{said:?}");

    let mut nowhere = handover();
    nowhere.args(["task", "list", "--server", "http://127.0.0.1:1"]).env("HANDOVER_TOKEN", "ops");
    let said = Said::of(&nowhere.output().unwrap());
    assert_eq!((said.code, said.err.lines().count()), (7, 2), "{said:?}");
    assert!(said.err.contains("help: start one with: handover serve"), "{said:?}");

    for wrong in [
        &["task", "list", "--where", "colour=red"][..],
        &["task", "list", "--server", "ftp://x"],
        &["task", "send", "x", "--input", "{"],
        &["task", "send", "x", "--timeout", "1s"],
        &["task", "list", "--token-file", "/there/is/none"],
        &["task", "frobnicate"],
    ] {
        assert_eq!(desk.run("ops", wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn a_token_may_come_from_a_file() {
    let desk = Desk::open();
    let (file, other) = (desk.script("token", "ops\n"), desk.script("other", "somebody else\n"));
    let mut command = desk.command("", &["task", "send", "x", "--to", "y", "--queue", "--json"]);
    let said =
        Said::of(&command.env_remove("HANDOVER_TOKEN").env("HANDOVER_TOKEN_FILE", &file).output().unwrap());
    assert_eq!(said.json()["task"]["requester"], "ops");
    // A flag is before the environment, and the token itself before its file.
    let sent = ["task", "send", "x", "--to", "y", "--queue", "--json", "--token-file", &file];
    assert_eq!(desk.good("planner", &sent).json()["task"]["requester"], "ops");
    let mut command = desk.command("planner", &["task", "send", "x", "--to", "y", "--queue", "--json"]);
    let said = Said::of(&command.env("HANDOVER_TOKEN_FILE", &file).output().unwrap());
    assert_eq!(said.json()["task"]["requester"], "planner");
    let said = desk.run("ops", &["task", "list", "--token-file", &other]);
    assert!(said.code == 2 && !said.err.contains("somebody"), "{said:?}");
}

#[test]
fn text_of_agents_cannot_act_on_the_terminal() {
    let desk = Desk::open();
    let nasty = "a\u{1b}[31m\u{202e}b\u{9b}2J\rc";
    let id = desk.send("analyst", nasty);
    for arguments in [&["task", "list"][..], &["task", "show", &id], &["replay", &id], &["task", "tree", &id]]
    {
        let shown = desk.good("ops", arguments).out;
        assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\r']), "{shown:?}");
        assert!(shown.contains("a\\u{1b}[31m\\u{202e}b\\u{9b}2J\\u{d}c"), "{shown:?}");
    }
    let json = desk.good("ops", &["task", "show", &id, "--json"]);
    assert!(!json.out.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{json:?}");
    assert_eq!(json.json()["task"]["title"], nasty);
}

#[test]
fn instructions_and_input_may_come_from_standard_input_and_files() {
    let desk = Desk::open();
    let input = desk.script("input.json", r#"{"year":2026}"#);
    let from = format!("@{input}");
    let mut command = desk.command(
        "ops",
        &["task", "send", "--queue", "--to", "x", "t", "-", "--input", &from, "--json", "--key", "k"],
    );
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"all of it\nin lines").unwrap();
    let sent = Said::of(&child.wait_with_output().unwrap()).json();
    let id = sent["task"]["task_id"].as_str().unwrap();
    let shown = desk.good("ops", &["task", "show", id, "--json"]).json();
    let requested = &shown["events"][1]["detail"];
    assert_eq!(
        (requested["instructions"].as_str(), requested["input"]["year"].as_u64()),
        (Some("all of it\nin lines"), Some(2026))
    );
}

#[test]
fn a_key_makes_a_second_send_find_the_first_and_a_tree_shows_what_is_part_of_what() {
    let desk = Desk::open();
    let send = |title: &str, more: &[&str]| {
        let arguments = [&["task", "send", "--queue", "--to", "x", title], more].concat();
        desk.good("ops", &arguments).out.trim().to_owned()
    };
    let parent = send("above", &["--key", "once"]);
    assert_eq!(send("above", &["--key", "once"]), parent);
    let children = ["one", "two"].map(|title| send(title, &["--parent", &parent[..8]]));
    let tree = desk.good("ops", &["task", "tree", &parent]).out;
    let lines: Vec<&str> = tree.lines().collect();
    assert_eq!(lines.len(), 3, "{tree}");
    assert!(lines[1].starts_with("  ○") && lines[1].contains(&children[0][..8]), "{tree}");
    let json = desk.good("ops", &["task", "tree", &parent, "--json"]).json();
    assert_eq!(json["tasks"][2]["parent_task_id"], parent.as_str());
    let below = format!("parent={parent}");
    assert_eq!(
        desk.good("ops", &["task", "list", "--where", &below, "--json"]).json()["tasks"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn watch_prints_a_table_or_a_line_for_each_change() {
    let desk = Desk::open();
    let id = desk.send("analyst", "Q4 sales");
    let table = desk.good("ops", &["watch", "--count", "1"]).out;
    assert!(table.starts_with("live · 1 tasks · ") && table.contains(&id[..8]), "{table}");
    // The second look finds what the first one did: one line.
    let lines = desk.good("ops", &["watch", "--count", "2", "--json"]);
    assert_eq!(lines.json()["tasks"][0]["task_id"], id.as_str());
}
