//! `handover task approve`.

use crate::desk::Desk;

#[test]
fn what_needs_an_approval_is_listed_sent_back_changed_and_approved() {
    let desk = Desk::with_approvals(r#"[{ delegate = ["mailer"], by = ["lead"] }]"#);
    assert!(desk.good("lead", &["task", "approve"]).out.starts_with("nothing waits for your approval"));
    let id = desk.send("mailer", "send the bill");
    let shown = desk.good("ops", &["task", "show", &id]).out;
    assert!(shown.contains("waiting") && shown.contains("waits for lead: approval"), "{shown}");
    assert_eq!(desk.run("mailer", &["task", "show", &id]).code, 4, "it reaches nobody else");

    let listed = desk.good("lead", &["task", "approve"]).out;
    assert!(listed.contains(&id[..8]) && listed.contains("ops → mailer"), "{listed}");
    assert_eq!(desk.run("ops", &["task", "approve", &id]).code, 4, "nobody approves its own");
    let back = desk.good("lead", &["task", "approve", &id[..8], "--changes", "to whom?"]).out;
    assert!(back.contains("changes asked"), "{back}");
    let shown = desk.good("ops", &["task", "show", &id]).out;
    assert!(shown.contains("lead asked for changes of the request: to whom?"), "{shown}");

    let other = desk.send("mailer", "send the bill to ann");
    let input = ["task", "approve", &other, "--input", "{", "--json"];
    assert_eq!(desk.run("lead", &input).code, 2);
    let approved =
        desk.good("lead", &["task", "approve", &other, "--instructions", "by post", "--json"]).json();
    assert_eq!(approved["decided"]["decided"], "approved_with_changes");
    let seen = desk.good("mailer", &["task", "show", &other]).out;
    assert!(seen.contains("by post") && !seen.contains("proposed"), "{seen}");

    let third = desk.send("mailer", "send it all");
    desk.good("lead", &["task", "approve", &third, "--reject", "never"]);
    let shown = desk.until_state(&third, "rejected");
    assert_eq!(shown["task"]["approval"]["words"], "never");
}
