//! `handover agent`: any program is a worker.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::binary::Server;
use crate::desk::Desk;

/// The agent of the documentation, which is one of the examples.
fn documented() -> &'static str {
    let script = include_str!("../../../../examples/shell/analyse.sh");
    assert!(include_str!("../../../../docs/cli.md").contains(script), "docs/cli.md shows another script");
    assert!(script.lines().count() <= 10, "{script}");
    script
}

fn kinds(shown: &Value) -> Vec<&str> {
    shown["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

#[test]
fn a_shell_script_of_ten_lines_is_an_agent() {
    let desk = Desk::open();
    desk.good("analyst", &["agent", "register", "Analyst", "Finds trends"]);
    let script = desk.script("agent.sh", documented());
    let _worker = desk.worker("analyst", &[], &script);
    let listed = desk.good("ops", &["agent", "list"]).out;
    assert!(listed.contains("analyst") && listed.contains("Finds trends"), "{listed}");

    let id = desk.send("analyst", "Q4 sales");
    // It asks: nobody is there to be asked, so that the task is still open.
    let waiting = desk.until_state(&id, "waiting");
    assert_eq!(waiting["task"]["progress"], 0.2);
    let waited = desk.run("ops", &["task", "steer", &id, "look closely", "--wait"]);
    assert!(waited.code == 6 && waited.err.contains("handover task answer"), "{waited:?}");
    let done = desk.run("ops", &["task", "answer", &id, "with \\ and\nlines", "--wait"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out == "Q4 sales is done, with \\ and\nlines\n", "{done:?}");
    let shown = desk.good("ops", &["task", "show", &id, "--json"]).json();
    let found = kinds(&shown);
    assert_eq!(found.iter().filter(|kind| **kind == "asked").count(), 1, "{found:?}");
    assert_eq!(shown["task"]["state"], "completed");
    assert!(
        shown["events"]
            .as_array()
            .unwrap()
            .iter()
            .all(|event| event["face"] == "cli" || event["face"] == "runtime")
    );
}

#[test]
fn the_documented_agent_gives_up_when_its_question_is_declined() {
    let desk = Desk::open();
    let _worker = desk.worker("analyst", &[], &desk.script("agent.sh", documented()));
    let id = desk.send("analyst", "Q4 sales");
    desk.until_state(&id, "waiting");
    let ended = desk.run("ops", &["task", "answer", &id, "--decline", "--wait"]);
    assert!(ended.code == 1 && ended.out.contains("nobody said how"), "{ended:?}");
}

#[test]
fn a_program_that_crashes_fails_its_task_with_its_last_lines() {
    let desk = Desk::open();
    let crash = "read -r task; i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo \"line $i\" >&2; done; exit 3";
    let script = desk.script("crash.sh", crash);
    let _worker = desk.worker("analyst", &[], &script);
    let sent = desk.run("ops", &["task", "send", "--to", "analyst", "--queue", "x", "--wait"]);
    assert_eq!(sent.code, 1, "{sent:?}");
    assert!(sent.out.contains("exit status: 3") && sent.out.contains("line 100"), "{sent:?}");
    assert!(sent.out.contains("line 81\n") && !sent.out.contains("line 80\n"), "{sent:?}");
}

#[test]
fn a_program_says_its_failure_and_its_json_is_structured() {
    let desk = Desk::open();
    let script = desk.script(
        "both.sh",
        "read -r task\ncase $task in *wrong*) echo '@fail no data';; *) echo '{\"sum\":';echo '42}';; esac",
    );
    let _worker = desk.worker("analyst", &["--jobs", "2"], &script);
    let good =
        desk.good("ops", &["task", "send", "--to", "analyst", "--queue", "x", "--wait", "--json"]).json();
    assert_eq!(good["task"]["result"]["structuredContent"]["sum"], 42);
    let bad = desk.run("ops", &["task", "send", "--to", "analyst", "--queue", "wrong", "--wait"]);
    assert!(bad.code == 1 && bad.out.contains("no data"), "{bad:?}");
}

#[test]
fn orders_reach_the_program_and_a_cancelled_task_ends_it() {
    let desk = Desk::open();
    let marks = desk.dir.path().join("marks");
    let marks = marks.to_str().unwrap();
    let text = format!(
        "read -r task; echo '@progress 10 waiting'; read -r order; echo \"@progress 50 $order\"; sleep 100; touch {marks}"
    );
    let _worker = desk.worker("analyst", &[], &desk.script("orders.sh", &text));
    let id = desk.send("analyst", "x");
    desk.until(&id, |shown| shown["task"]["progress"] == 0.1);
    desk.good("ops", &["task", "steer", &id, "to the left"]);
    desk.until(&id, |shown| {
        let events = shown["events"].as_array().unwrap();
        events.iter().any(|event| event["detail"]["message"] == "steer to the left")
    });
    let shown = desk.good("ops", &["task", "show", &id]).out;
    assert!(shown.contains("steered: \"to the left\" → delivered, event "), "{shown}");
    // A paused task is a stopped program.
    desk.good("ops", &["task", "pause", &id]);
    desk.until_state(&id, "paused");
    desk.good("ops", &["task", "resume", &id]);
    desk.until_state(&id, "working");
    desk.good("ops", &["task", "cancel", &id]);
    // The worker is free again only when the program has ended: the next task waits for that.
    let next = desk.send("analyst", "y");
    desk.until(&next, |shown| shown["task"]["progress"] == 0.1);
    assert!(!std::path::Path::new(marks).exists());
}

#[test]
fn what_a_worker_had_in_hand_when_it_crashed_is_taken_up_again() {
    let desk = Desk::open();
    let text = "read -r task\ncase $task in *taken_up_again*) echo again;; *) echo '@progress 30 begun'; read -r never;; esac";
    let script = desk.script("twice.sh", text);
    let first = desk.worker("analyst", &[], &script);
    let id = desk.send("analyst", "x");
    desk.until(&id, |shown| shown["task"]["progress"] == 0.3);
    drop(first);
    assert_eq!(desk.until_state(&id, "working")["task"]["assignee"], "analyst");
    let second = desk.worker("analyst", &[], &script);
    assert!(second.said.contains("1 to take up again"), "{}", second.said);
    let shown = desk.until_state(&id, "completed");
    assert_eq!(kinds(&shown).iter().filter(|kind| **kind == "accepted").count(), 1);
    assert_eq!(shown["task"]["result"]["content"][0]["text"], "again\n");
}

#[test]
fn a_worker_of_one_task_ends_with_its_outcome_and_a_limit_ends_a_program() {
    let desk = Desk::open();
    desk.send("analyst", "x");
    let said = desk.run(
        "analyst",
        &["agent", "work", "--once", "--no-orders", "--", "sh", "-c", "cat >/dev/null; echo done"],
    );
    assert_eq!(said.code, 0, "{said:?}");
    let id = desk.send("analyst", "x");
    let said = desk.run("analyst", &["agent", "work", "--once", "--limit", "1s", "--", "sleep", "100"]);
    assert!(said.code == 1 && said.err.contains("longer than 1 s"), "{said:?}");
    assert_eq!(desk.until_state(&id, "failed")["task"]["state"], "failed");
    // A program that is not there is no fault of a task: it stays in hand.
    let id = desk.send("analyst", "x");
    assert_eq!(desk.run("analyst", &["agent", "work", "--once", "--", "/there/is/none"]).code, 2);
    assert_eq!(desk.until_state(&id, "working")["task"]["assignee"], "analyst");
    let shown = desk.good("analyst", &["task", "complete", &id[..8], "--result", "by hand", "--json"]).json();
    assert_eq!(shown["task"]["state"], "completed");
}

#[test]
fn a_program_is_told_the_trace_of_whoever_sent_its_task() {
    let desk = Desk::open();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut send = desk.command("ops", &["task", "send", "--queue", "--to", "analyst", "x"]);
    let sent = send.env("TRACEPARENT", format!("00-{trace}-00f067aa0ba902b7-01")).output().unwrap();
    let id = String::from_utf8(sent.stdout).unwrap();
    desk.good("analyst", &["agent", "work", "--once", "--", "sh", "-c", "echo \"$TRACEPARENT\""]);
    let shown = desk.until_state(id.trim(), "completed");
    let told = shown["task"]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.starts_with(&format!("00-{trace}-")) && !told.contains("00f067aa0ba902b7"), "{told}");
}

#[test]
fn skills_are_registered_from_a_file() {
    let desk = Desk::open();
    let skills = desk.script("skills.json", r#"[{"name":"trend","description":"Finds the trend"}]"#);
    let said =
        desk.good("analyst", &["agent", "register", "Analyst", "Finds trends", "--skills", &skills]).out;
    assert!(said.contains("trend  others call it trend"), "{said}");
    let agents = desk.good("ops", &["agent", "list", "--json"]).json();
    assert_eq!(agents["agents"][0]["skills"][0]["name"], "trend");
    assert_eq!(desk.run("analyst", &["agent", "register", "A", "B", "--skills", "/there/is/none"]).code, 2);
}

#[test]
fn a_worker_outlives_its_server_and_reports_what_was_done_meanwhile() {
    let desk = Desk::open();
    let go = desk.dir.path().join("go");
    let text = format!(
        "read -r task; echo '@progress 30 begun'; while [ ! -e {} ]; do sleep 0.1; done; echo done",
        go.display()
    );
    let _worker = desk.worker("analyst", &[], &desk.script("wait.sh", &text));
    let id = desk.send("analyst", "x");
    desk.until(&id, |shown| shown["task"]["progress"] == 0.3);
    let Desk { server, dir } = desk;
    let http = server.http().to_owned();
    server.kill();
    std::fs::write(&go, "").unwrap();
    let desk = Desk { server: Server::start_at(&dir.path().join("data"), &http), dir };
    let shown = desk.until_state(&id, "completed");
    assert_eq!(shown["task"]["result"]["content"][0]["text"], "done\n");
    assert_eq!(kinds(&shown).iter().filter(|kind| **kind == "accepted").count(), 1);
}

#[test]
fn what_a_program_asks_and_says_while_the_server_is_away_is_told_once_it_is_back() {
    let desk = Desk::open();
    let gate = desk.dir.path().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let script = desk.script(
        "asks.sh",
        &format!(
            "read -r task; echo '@progress 10 begun'; read -r go <{}
             echo '@ask which Which one?'; echo '@say I have asked'
             read -r verb key answer; echo \"$verb $answer\"",
            gate.display()
        ),
    );
    let mut command = desk.command("analyst", &["agent", "work", "--", "sh", &script]);
    let mut worker = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("waiting for tasks")).unwrap();
    let id = desk.send("analyst", "x");
    desk.until(&id, |shown| shown["task"]["progress"] == 0.1);

    let Desk { server, dir } = desk;
    let http = server.http().to_owned();
    server.kill();
    std::fs::write(&gate, "go\n").unwrap();
    lines.find(|line| line.ends_with("; trying again")).expect("it tries again");
    std::thread::spawn(move || lines.for_each(drop));
    let desk = Desk { server: Server::start_at(&dir.path().join("data"), &http), dir };
    desk.until_state(&id, "waiting");
    let done = desk.good("ops", &["task", "answer", &id, "the first", "--wait"]);
    assert_eq!(done.out, "answer the first\n");
    let shown = desk.good("ops", &["task", "show", &id, "--json"]).json();
    let said = shown["events"].as_array().unwrap();
    let said = said.iter().filter(|event| event["detail"].to_string().contains("I have asked")).count();
    assert_eq!(said, 1, "{shown}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}
