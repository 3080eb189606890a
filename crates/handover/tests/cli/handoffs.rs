//! `handover handoff`.

use crate::desk::Desk;

#[test]
fn a_task_is_handed_on_by_offer_accept_and_commit() {
    let desk = Desk::open();
    let id = desk.good("ops", &["task", "send", "--queue", "--to", "one", "--to", "two", "Q4 sales"]).out;
    let id = id.trim();
    let hang = desk.script("hang.sh", "read -r task; read -r never");
    let worker = desk.worker("one", &[], &hang);
    desk.until_state(id, "working");
    drop(worker);
    for agent in ["two", "three"] {
        desk.good(agent, &["agent", "register", agent, "takes over"]);
    }

    let offered = desk.run("one", &["handoff", "offer", "two", "--task", id, "--reason", "end of shift"]);
    assert_eq!(offered.code, 0, "{offered:?}");
    let handoff = offered.out.trim();
    let listed = desk.good("two", &["handoff", "list"]).out;
    assert!(
        listed.contains(&handoff[..8]) && listed.contains("offered") && listed.contains("one → two"),
        "{listed}"
    );
    // Only whom it was made to can answer it.
    assert_eq!(desk.run("one", &["handoff", "accept", handoff]).code, 3);
    assert_eq!(desk.run("two", &["handoff", "accept", "nothing"]).code, 4);
    assert!(desk.good("two", &["handoff", "accept", &handoff[..8]]).out.contains("accepted"));
    let committed = desk.good("one", &["handoff", "commit", handoff, "--json"]).json();
    assert_eq!(
        (committed["handoff"]["status"].as_str(), committed["handoff"]["moved"].as_bool()),
        (Some("settled"), Some(true))
    );
    let shown = desk.until(id, |shown| shown["task"]["assignee"] == "two");
    assert_eq!(shown["task"]["state"], "working");

    let offered = desk.good("two", &["handoff", "offer", "three", "--scope", "the night", "--json"]).json();
    let handoff = offered["handoff"]["handoff_id"].as_str().unwrap();
    assert_eq!(
        desk.good("three", &["handoff", "decline", handoff, "--json"]).json()["handoff"]["answer"],
        "declined"
    );
    assert!(desk.good("ops", &["handoff", "list"]).out.starts_with("no handoffs wait"));
}
