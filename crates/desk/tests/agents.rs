//! What agents say of themselves through the desk: their status, and how others find them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use handover_desk::caller::Caller;
use handover_desk::delegate::{Profile, Responsibility, Work};
use handover_desk::directory::{Agent, Status};
use handover_desk::identity::Identity;
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::{Data, Desk, No, Settings};
use handover_kernel::charter::Charter;
use handover_kernel::{AgentId, Face, Text};
use handover_store::Store;

#[allow(dead_code, reason = "no play needs all of it")]
#[path = "../../store/tests/postgres/mod.rs"]
mod database;

const PROFILE: Profile =
    Profile { charter: Charter::macp, policy: "policy.default", configuration: "stage.1" };

fn opened(store: &Arc<dyn Store>) -> (Desk, Trigger) {
    let (trigger, shutdown) = Shutdown::new();
    let data = Data::Store(Arc::clone(store));
    (handover_desk::open(data, Settings::default(), Identity::Development, shutdown).unwrap(), trigger)
}

fn caller(name: &str) -> Caller {
    Caller::new(Identity::Development.authenticate(Some(name)).unwrap(), Face::Grid)
}

fn agent(description: &str) -> Agent {
    Agent { name: "Worker".to_owned(), description: description.to_owned(), ..Agent::default() }
}

async fn status(desk: &Desk, id: &str) -> (&'static str, String) {
    let found = desk.agent(&caller("planner"), id).await.unwrap().unwrap();
    (found.status().name(), found.status_text.clone())
}

/// The code of a task that is handed to these, if it is refused.
async fn delegate(desk: &Desk, key: &str, agents: &[&str], assignee: Option<&str>) -> Result<(), No> {
    let planner = caller("planner");
    let id = desk.new_id(&planner, Some(key));
    let work = Work {
        agents: agents.iter().map(|id| AgentId::from(*id)).collect(),
        assignee: assignee.map(AgentId::from),
        task: Text::from("dig"),
        title: Text::from("dig"),
        ..Work::default()
    };
    desk.delegate(&planner, &id, Some(key), &PROFILE, work).await.map(|_| ())
}

async fn code(desk: &Desk, key: &str, agents: &[&str], assignee: Option<&str>) -> &'static str {
    delegate(desk, key, agents, assignee).await.map_or_else(|no| no.code(), |()| "")
}

#[tokio::test]
async fn a_status_needs_a_registration_is_kept_by_the_next_and_goes_with_the_last() {
    let store = database::empty();
    let (desk, _trigger) = opened(&store);
    let worker = caller("worker");
    let early = desk.set_status(&worker, Status::Busy, "").await.unwrap_err();
    assert_eq!(early.code(), "AGENT_NOT_FOUND");
    assert!(early.message().contains("register first"), "{}", early.message());
    desk.register(&worker, agent("digs")).await.unwrap();
    assert_eq!(status(&desk, "worker").await, ("available", String::new()));
    desk.set_status(&worker, Status::Busy, "in a meeting").await.unwrap();
    desk.register(&worker, agent("digs deeper")).await.unwrap();
    let claims = Agent { status: Status::DoNotDisturb.into(), ..agent("digs deeper still") };
    desk.register(&worker, claims).await.unwrap();
    let again = opened(&store).0;
    for desk in [&desk, &again] {
        assert_eq!(status(desk, "worker").await, ("busy", "in a meeting".to_owned()));
    }
    for (wrong, expected) in
        [("x".repeat(257), "at most 256 bytes"), ("a\u{202e}b".to_owned(), "visible characters")]
    {
        let refused = desk.set_status(&worker, Status::Busy, &wrong).await.unwrap_err();
        assert!(refused.code() == "INVALID" && refused.message().contains(expected), "{}", refused.message());
    }
    desk.unregister(&worker, None).await.unwrap();
    desk.register(&worker, agent("digs")).await.unwrap();
    assert_eq!(status(&desk, "worker").await, ("available", String::new()));
}

#[tokio::test]
async fn a_status_tells_nobody_that_skills_have_changed() {
    let (desk, _trigger) = opened(&database::empty());
    let worker = caller("worker");
    desk.register(&worker, agent("digs")).await.unwrap();
    let mut changes = desk.directory.changes("default");
    changes.mark_unchanged();
    desk.set_status(&worker, Status::DoNotDisturb, "").await.unwrap();
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test]
async fn who_is_not_to_be_disturbed_is_given_no_new_task_and_keeps_the_old_ones() {
    let (desk, _trigger) = opened(&database::empty());
    let (planner, worker) = (caller("planner"), caller("worker"));
    for agent_of in [&planner, &worker, &caller("other")] {
        desk.register(agent_of, agent("digs")).await.unwrap();
    }
    assert_eq!(code(&desk, "before", &["worker"], None).await, "");
    desk.set_status(&worker, Status::Busy, "").await.unwrap();
    assert_eq!(code(&desk, "busy", &["worker"], None).await, "");
    desk.set_status(&worker, Status::DoNotDisturb, "asleep").await.unwrap();
    desk.set_status(&planner, Status::DoNotDisturb, "").await.unwrap();

    let refused = delegate(&desk, "now", &["worker"], None).await.unwrap_err();
    assert_eq!((refused.code(), refused.meaning().http), ("DO_NOT_DISTURB", 409));
    assert!(refused.message().contains("\"worker\" in do_not_disturb, which says \"asleep\""));
    assert_eq!(code(&desk, "named", &["worker", "other"], Some("worker")).await, "DO_NOT_DISTURB");
    assert_eq!(code(&desk, "with-me", &["planner", "worker"], None).await, "DO_NOT_DISTURB");
    assert_eq!(code(&desk, "either", &["worker", "other"], None).await, "");
    assert_eq!(code(&desk, "other", &["worker", "other"], Some("other")).await, "");
    assert_eq!(code(&desk, "unknown", &["stranger"], None).await, "");

    assert_eq!(
        code(&desk, "before", &["worker"], None).await,
        "",
        "what was accepted before is answered as it was"
    );
    assert_eq!(code(&desk, "before", &["worker"], Some("worker")).await, "DUPLICATE_MESSAGE");
    let offered = Responsibility {
        to: AgentId::from("worker"),
        scope: Text::from("the garden"),
        reason: Text::default(),
        context: None,
        ttl_ms: None,
    };
    desk.offer(&planner, None, PROFILE.configuration, offered).await.unwrap();
    desk.set_status(&worker, Status::Available, "").await.unwrap();
    assert_eq!(code(&desk, "now", &["worker"], None).await, "");
}

#[tokio::test]
async fn nobody_learns_of_the_status_of_whom_it_does_not_see() {
    let (desk, _trigger) = opened(&database::empty());
    let shy = Agent { visible_to: vec!["friend".to_owned()], ..agent("digs") };
    desk.register(&caller("shy"), shy).await.unwrap();
    desk.register(&caller("worker"), agent("digs")).await.unwrap();
    let mut told = Vec::new();
    for status in [Status::Available, Status::DoNotDisturb] {
        desk.set_status(&caller("shy"), status, "").await.unwrap();
        for (agents, assignee) in
            [(&["shy"][..], None), (&["shy", "worker"], Some("shy")), (&["worker"], Some("shy"))]
        {
            let refused = delegate(&desk, "a", agents, assignee).await.unwrap_err();
            told.push((refused.code(), refused.message()));
        }
    }
    assert_eq!(told[..3], told[3..]);
    assert_eq!(told[0].0, "NOT_ALLOWED");
}

#[tokio::test]
async fn agents_are_found_by_words_and_page_by_page() {
    let (desk, _trigger) = opened(&database::empty());
    let planner = caller("planner");
    for number in 0..300 {
        let said = format!(
            "translates letters, page {number} of many, and other words that count: alpha beta gamma"
        );
        desk.register(&caller(&format!("worker-{number:03}")), agent(&said)).await.unwrap();
    }
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (found, next) = desk.search(&planner, "Translates ltters", after.as_deref(), 70).await.unwrap();
        all.extend(found.into_iter().map(|found| found.agent.id.clone()));
        after = next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..300).map(|number| format!("worker-{number:03}")).collect();
    assert_eq!(all, expected);
    let (found, next) = desk.search(&planner, "page 7", None, 2).await.unwrap();
    assert_eq!((found[0].agent.id.as_str(), next.is_some()), ("worker-007", true));
    assert!(found[0].score > found[1].score);
    for (query, after) in [("", None), ("x", Some("nonsense")), ("x", Some("bmEx"))] {
        assert_eq!(desk.search(&planner, query, after, 10).await.unwrap_err().code(), "INVALID");
    }
}
