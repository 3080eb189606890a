//! One act on many tasks.

use crate::desk::Desk;

#[test]
fn many_tasks_are_changed_at_once_only_if_it_is_meant_and_as_often_as_one_likes() {
    let desk = Desk::open();
    let ids: Vec<String> =
        (0..5).map(|n| desk.send(if n < 3 { "a" } else { "b" }, &format!("task {n}"))).collect();
    let pause = ["task", "pause", "--where", "state=requested", "--where", "title=task"];

    // Nobody is there to be asked: the count is said, and nothing happens.
    let said = desk.run("ops", &pause);
    assert!(said.code == 2 && said.err.contains("5 tasks") && said.err.contains("--yes"), "{said:?}");
    let paused = || desk.good("ops", &["task", "list", "--where", "state=paused", "--json"]).json();
    assert_eq!(paused()["tasks"].as_array().unwrap().len(), 0);

    let meant = [&pause[..], &["--yes", "--json"]].concat();
    let done = desk.good("ops", &meant).json();
    let results: Vec<&str> =
        done["results"].as_array().unwrap().iter().map(|one| one["result"].as_str().unwrap()).collect();
    assert_eq!((done["count"].as_u64(), results), (Some(5), vec!["done"; 5]));
    assert_eq!(paused()["tasks"].as_array().unwrap().len(), 5);
    // Repeated, it finds nothing left to do.
    assert_eq!(desk.good("ops", &meant).json()["count"], 0);

    // A result for each: what one may not do does not keep the others from being done.
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    desk.good("ops", &[&["task", "cancel"], &all[..1]].concat());
    let said = desk.run("ops", &[&["task", "resume", "--json"], &all[..]].concat());
    assert_eq!(said.code, 3, "{said:?}");
    let results = said.json()["results"].clone();
    let results: Vec<&str> =
        results.as_array().unwrap().iter().map(|one| one["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["refused", "done", "done", "done", "done"]);

    let cancelled = desk.good("ops", &["task", "cancel", "--where", "state=open", "--yes"]).out;
    assert_eq!(cancelled.lines().count(), 5, "{cancelled}");
    let again = desk.good("ops", &[&["task", "cancel", "--json"], &all[..]].concat()).json();
    assert!(again["results"].as_array().unwrap().iter().all(|one| one["result"] == "already"), "{again}");
}
