//! What is shown of many sessions: trees, lists, counts, and what newly waits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use handover_desk::approvers::Rules;
use handover_desk::caller::Caller;
use handover_desk::clock::now;
use handover_desk::converse::Branch;
use handover_desk::delegate::{Profile, Responsibility, Work};
use handover_desk::find::Wanted;
use handover_desk::identity::Identity;
use handover_desk::inbox::waits_since;
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::state::State;
use handover_desk::{Data, Desk, Settings, WaitKind, gate};
use handover_kernel::approval::{Changes, Ruling};
use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, CheckInTerms, Need, NewQuestion, Next, Progress, TaskAct};
use handover_kernel::{AgentId, Blob, Face, Session, SessionId, Text};

#[path = "../../store/tests/postgres/mod.rs"]
mod database;

const PROFILE: Profile =
    Profile { charter: Charter::macp, policy: "policy.default", configuration: "stage.1" };

fn opened(gate: gate::Settings) -> (Desk, Trigger) {
    opened_with(Settings { gate, ..Settings::default() })
}

fn opened_with(settings: Settings) -> (Desk, Trigger) {
    let (trigger, shutdown) = Shutdown::new();
    let data = Data::Store(database::empty());
    (handover_desk::open(data, settings, Identity::Development, shutdown).unwrap(), trigger)
}

fn by(name: &str, face: Face) -> Caller {
    Caller::new(Identity::Development.authenticate(Some(name)).unwrap(), face)
}

fn agent(name: &str) -> Caller {
    by(name, Face::Mcp)
}

/// The id of the task that a test calls so.
fn id(name: &str) -> String {
    format!("the-task-of-the-name-{name}")
}

async fn in_time<T>(play: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), play).await.expect("waited in vain")
}

fn sessions(tree: &[Branch]) -> Vec<Arc<Session>> {
    tree.iter().map(|branch| Arc::clone(&branch.session)).collect()
}

/// Have a task delegated.
async fn delegated(desk: &Desk, from: &Caller, to: &str, name: &str, more: Work) {
    let work = Work {
        agents: vec![AgentId::from(to)],
        assignee: Some(AgentId::from(to)),
        task: Text::from("dig"),
        title: Text::from(name),
        ..more
    };
    desk.delegate(from, &id(name), None, &PROFILE, work).await.unwrap();
}

fn accept() -> Act {
    Act::Task(TaskAct::Accept { task: None, assignee: None, reason: Text::default() })
}

/// The same, and taken.
async fn in_hand(desk: &Desk, from: &str, to: &str, name: &str, under: Option<&str>) {
    let more = Work { parent: under.map(|under| SessionId::from(id(under).as_str())), ..Work::default() };
    delegated(desk, &agent(from), to, name, more).await;
    desk.act(&agent(to), &id(name), accept()).await.unwrap();
}

#[tokio::test]
async fn in_a_tree_what_is_under_a_task_follows_it_and_siblings_stay_in_order() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, "planner", "lead", "root", None).await;
    in_hand(&desk, "lead", "left", "a", Some("root")).await;
    in_hand(&desk, "lead", "right", "b", Some("root")).await;
    in_hand(&desk, "right", "helper", "b1", Some("b")).await;
    in_hand(&desk, "left", "helper", "a1", Some("a")).await;
    in_hand(&desk, "left", "helper", "a2", Some("a")).await;
    in_hand(&desk, "helper", "other", "a1x", Some("a1")).await;
    let shown = async |max| {
        let (tree, more) = desk.tree(&agent("planner"), &id("root"), max).await.unwrap();
        let name = |session: &handover_kernel::Session| session.wanted().unwrap().title.to_string();
        let rows: Vec<_> = tree.iter().map(|branch| (branch.depth, name(&branch.session))).collect();
        (rows, more)
    };
    let row = |depth: usize, name: &str| (depth, name.to_owned());
    let (rows, more) = shown(100).await;
    let expected =
        [row(0, "root"), row(1, "a"), row(2, "a1"), row(3, "a1x"), row(2, "a2"), row(1, "b"), row(2, "b1")];
    assert_eq!((rows.as_slice(), more), (&expected[..], false));
    // Of a tree that is too large, what is near the root is shown, in the same order.
    let (rows, more) = shown(5).await;
    let expected = [row(0, "root"), row(1, "a"), row(2, "a1"), row(2, "a2"), row(1, "b")];
    assert_eq!((rows.as_slice(), more), (&expected[..], true));
}

#[tokio::test]
async fn the_states_of_a_long_task_come_a_part_at_a_time_however_long_it_is() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, "planner", "worker", "long", None).await;
    let worker = agent("worker");
    let last = 10_500;
    for _ in 0..last - 3 {
        let update = TaskAct::Update { task: None, progress: Progress::default(), withdraws: false };
        desk.act(&worker, &id("long"), Act::Task(update)).await.unwrap();
    }
    let states = async |seqs| desk.states(&worker, &id("long"), seqs).await.unwrap();
    assert_eq!(states(1..=4).await, [State::Requested, State::Requested, State::Working, State::Working]);
    assert_eq!(states(last - 1..=last).await, [State::Working; 2]);
    assert_eq!(states(last + 1..=last).await, []);
}

#[tokio::test]
async fn offers_that_could_not_be_taken_are_passed_over_also_where_they_fill_a_page() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let (planner, worker) = (agent("planner"), agent("worker"));
    for name in ["first", "second", "third"] {
        delegated(&desk, &planner, "worker", name, Work::default()).await;
    }
    let offered = async |but: &[&str]| {
        let but = but.iter().map(|name| SessionId::from(id(name).as_str())).collect();
        let offers = desk.await_offers(&worker, &but, 1, tokio::time::Instant::now()).await.unwrap();
        offers.iter().map(|offer| offer.binding.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(offered(&[]).await, [id("first")]);
    assert_eq!(offered(&["first", "second"]).await, [id("third")]);
    assert_eq!(offered(&["first", "second", "third"]).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_requester_that_has_stored_as_much_as_it_may_holds_up_nobody_who_takes_or_turns_down_its_tasks() {
    let storage = gate::Storage { per_agent: 8 * 1024, per_tenant: 0 };
    let (desk, _trigger) = opened(gate::Settings { storage, ..gate::Settings::default() });
    let planner = agent("planner");
    for name in ["first", "second"] {
        delegated(&desk, &planner, "worker", name, Work::default()).await;
    }
    let say = |bytes: usize| {
        let body = handover_kernel::Blob::from(vec![b'x'; bytes]);
        Act::Task(TaskAct::Say { body, next: Next::AsBefore, check_in: CheckInTerms::default() })
    };
    while desk.act(&planner, &id("first"), say(1024)).await.is_ok() {}
    let no = desk.act(&planner, &id("second"), say(1024)).await.unwrap_err();
    assert_eq!(no.code(), "STORAGE_BUDGET_SPENT");
    // Who takes no part is told that, and nothing of whose storage is spent.
    let no = desk.act(&agent("stranger"), &id("second"), say(1024)).await.unwrap_err();
    assert_eq!(no.code(), "NOT_PARTICIPANT");
    desk.act(&agent("worker"), &id("first"), accept()).await.unwrap();
    let decline = TaskAct::Decline { task: None, assignee: None, reason: Text::default() };
    desk.act(&agent("worker"), &id("second"), Act::Task(decline)).await.unwrap();
    // A checkpoint with a name is remembered each time.
    let mut refused = None;
    for number in 0..200 {
        let mut named = agent("worker").command(Act::Task(TaskAct::Checkpoint)).with_id(format!("c{number}"));
        named.takes_orders = true;
        refused = desk.put(&agent("worker"), &id("first"), named).await.err();
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused.expect("there is an end").code(), "STORAGE_BUDGET_SPENT");
}

#[tokio::test]
async fn what_is_held_back_from_an_agent_is_in_no_tree_and_no_wait_that_it_sees() {
    let rules = r#"[{ delegate = ["spy"], by = ["boss"] }]"#;
    let settings = Settings { approvals: Rules::parse(rules).unwrap(), ..Settings::default() };
    let (desk, _trigger) = opened_with(settings);
    in_hand(&desk, "planner", "lead", "root", None).await;
    let under = |name: &str| Some(SessionId::from(id(name).as_str()));
    let more = Work { parent: under("root"), ..Work::default() };
    delegated(&desk, &agent("lead"), "spy", "secret", more).await;
    let looks = async |who: &str| {
        let caller = agent(who);
        let (tree, more) = desk.tree(&caller, &id("root"), 10).await.unwrap();
        assert!(!more);
        let session = desk.session(&caller, &id("root")).await.unwrap();
        let waits = desk.waits_in(&caller, &session).await.unwrap();
        assert_eq!(waits, desk.waits_among(&caller, &sessions(&tree)).await.unwrap());
        (tree.len(), waits.len())
    };
    assert_eq!(looks("lead").await, (2, 1), "it proposed it, and waits for the approval");
    assert_eq!(looks("planner").await, (1, 0), "it may not know of it");
    // It is known once it has begun.
    let caller = agent("boss");
    let proposal = desk.session(&caller, &id("secret")).await.unwrap().proposal.as_ref().unwrap().id.0;
    desk.decide(&caller, &id("secret"), proposal, Ruling::Approved(Changes::default()), None).await.unwrap();
    assert_eq!(looks("planner").await, (2, 1));
}

#[tokio::test]
async fn who_waits_for_whom_is_told_of_all_tasks_of_a_tree() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, "planner", "lead", "root", None).await;
    in_hand(&desk, "lead", "left", "a", Some("root")).await;
    in_hand(&desk, "left", "helper", "a1", Some("a")).await;
    in_hand(&desk, "helper", "other", "a1x", Some("a1")).await;
    let planner = agent("planner");
    let (tree, _) = desk.tree(&planner, &id("root"), 10).await.unwrap();
    let waits = desk.waits_among(&planner, &sessions(&tree)).await.unwrap();
    let shown: Vec<_> = waits.iter().map(|edge| (edge.from.as_str(), edge.to.as_str())).collect();
    assert_eq!(shown, [("lead", "left"), ("left", "helper"), ("helper", "other")]);
}

#[tokio::test]
async fn a_task_is_found_by_whom_it_is_requested_of_and_is_not_late_while_it_is_paused() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let planner = agent("planner");
    let found = async |wanted: Wanted| -> Vec<String> {
        let found = desk.find(&planner, &wanted, None, 10).await.unwrap();
        found.tasks.iter().map(|task| task.wanted().unwrap().title.to_string()).collect()
    };
    let soon = || Work { ttl_ms: Some(30_000), ..Work::default() };
    delegated(&desk, &planner, "worker", "one", soon()).await;
    delegated(&desk, &planner, "helper", "two", Work::default()).await;
    let of = |agent: &str| Wanted { agent: Some(agent.to_owned()), ..Wanted::default() };
    let with = |words: &str| Wanted { words: Some(words.to_owned()), ..Wanted::default() };
    assert_eq!((found(of("worker")).await, found(of("work")).await), (vec!["one".to_owned()], vec![]));
    assert_eq!((found(with("HELP")).await, found(with("nobody")).await), (vec!["two".to_owned()], vec![]));
    assert_eq!(found(with("two")).await, ["two"]);
    let late = || Wanted { due_by: Some(now().plus(60_000)), ..Wanted::default() };
    assert_eq!(found(late()).await, ["one"]);
    let pause = Act::Pause { reason: Text::default(), gently: false };
    desk.act(&planner, &id("one"), pause).await.unwrap();
    assert_eq!(found(late()).await, Vec::<String>::new(), "its time stands still");
    desk.act(&planner, &id("one"), Act::Resume { reason: Text::default() }).await.unwrap();
    assert_eq!(found(late()).await, ["one"]);
}

#[tokio::test]
async fn a_task_can_be_handed_on_to_those_who_take_part_and_have_not_declined() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let agents = ["worker", "helper", "idler"].map(AgentId::from).to_vec();
    let profile = Profile { charter: || Charter { reassignment: true, ..Charter::macp() }, ..PROFILE };
    let work = Work { agents, task: Text::from("dig"), title: Text::from("dig"), ..Work::default() };
    desk.delegate(&agent("planner"), &id("dig"), None, &profile, work).await.unwrap();
    let decline = Act::Task(TaskAct::Decline { task: None, assignee: None, reason: Text::from("no") });
    desk.act(&agent("idler"), &id("dig"), decline).await.unwrap();
    desk.act(&agent("worker"), &id("dig"), accept()).await.unwrap();
    let session = desk.session(&agent("worker"), &id("dig")).await.unwrap();
    for owner in ["planner", "worker"] {
        assert_eq!(desk.heirs(&agent(owner), &session).unwrap(), [AgentId::from("helper")], "{owner}");
    }
    assert!(desk.heirs(&agent("helper"), &session).is_err(), "it is not its own");
}

#[tokio::test]
async fn open_tasks_are_found_however_many_newer_ones_have_ended() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let planner = agent("planner");
    for name in ["first", "second", "third"] {
        delegated(&desk, &planner, "worker", name, Work::default()).await;
    }
    for number in 0..6 {
        let name = format!("ended{number}");
        delegated(&desk, &planner, "worker", &name, Work::default()).await;
        desk.cancel(&planner, &id(&name), None, Text::from("no"), false).await.unwrap();
    }
    let open = Wanted { open: true, ..Wanted::default() };
    let names = |found: &handover_desk::find::Found| -> Vec<String> {
        found.tasks.iter().map(|task| task.wanted().unwrap().title.to_string()).collect()
    };
    let page = desk.find(&planner, &open, None, 2).await.unwrap();
    assert_eq!(names(&page), ["third", "second"]);
    let page = desk.find(&planner, &open, page.next.as_deref(), 2).await.unwrap();
    assert_eq!((names(&page), page.next), (vec!["first".to_owned()], None));
    let none = Wanted { state: Some(State::Cancelled), ..open };
    assert!(desk.find(&planner, &none, None, 2).await.unwrap().tasks.is_empty());
}

#[tokio::test]
async fn tasks_are_found_by_the_face_that_they_began_on() {
    let (desk, _trigger) = opened(gate::Settings::default());
    for (name, face) in [("one", Face::Console), ("two", Face::Mcp), ("three", Face::Console)] {
        delegated(&desk, &by("planner", face), "worker", name, Work::default()).await;
    }
    let wanted = Wanted { face: Some(Face::Console), ..Wanted::default() };
    let found = desk.find(&agent("planner"), &wanted, None, 10).await.unwrap();
    let names: Vec<_> = found.tasks.iter().map(|task| task.wanted().unwrap().title.to_string()).collect();
    assert_eq!(names, ["three", "one"]);
}

/// How many bytes each of many large tasks has, and how many they are: more than is read for one page.
const LARGE_BYTES: usize = 100_000;
const LARGE: usize = 60;

#[tokio::test]
async fn what_is_read_and_not_wanted_is_bounded_and_counts_as_used() {
    let gate = gate::Settings { requests_per_minute: 120, ..gate::Settings::default() };
    let (desk, _trigger) = opened(gate);
    for number in 0..LARGE {
        let instructions = Text::from("x".repeat(LARGE_BYTES));
        let more = Work { instructions, ..Work::default() };
        let name = format!("large{number}");
        delegated(&desk, &agent("planner"), "worker", &name, more).await;
        desk.act(&agent("worker"), &id(&name), accept()).await.unwrap();
    }
    let reader = agent("worker");
    let silent = Wanted { state: Some(State::Silent), ..Wanted::default() };
    desk.gate.request(&reader).unwrap();
    let page = desk.find(&reader, &silent, None, 50).await.unwrap();
    assert!(page.tasks.is_empty() && page.next.is_some(), "it stops, and says where to go on");
    assert!(desk.gate.request(&reader).is_err(), "what was read for it counts");
    let page = desk.find(&reader, &silent, page.next.as_deref(), 50).await.unwrap();
    assert!(page.tasks.is_empty() && page.next.is_none());
}

#[tokio::test]
async fn what_an_agent_has_in_hand_for_others_hides_nothing_and_is_not_hinted_at() {
    let (desk, _trigger) = opened(gate::Settings::default());
    for number in 0..30 {
        in_hand(&desk, "stranger", "worker", &format!("hidden{number}"), None).await;
    }
    let worker = AgentId::from("worker");
    let found = desk.in_hand(&agent("planner"), &worker, 3).await.unwrap();
    assert_eq!((found.tasks.len(), found.more), (0, false), "nothing of it is told");
    in_hand(&desk, "planner", "worker", "own0", None).await;
    let found = desk.in_hand(&agent("planner"), &worker, 3).await.unwrap();
    assert_eq!((found.tasks.len(), found.more), (1, false));
    for number in 1..5 {
        in_hand(&desk, "planner", "worker", &format!("own{number}"), None).await;
    }
    let found = desk.in_hand(&agent("planner"), &worker, 3).await.unwrap();
    assert_eq!((found.tasks.len(), found.more), (3, true));
}

#[tokio::test]
async fn what_waits_is_counted_up_to_a_bound() {
    let (desk, _trigger) = opened(gate::Settings::default());
    for number in 0..7 {
        delegated(&desk, &agent("planner"), "worker", &format!("{number}"), Work::default()).await;
    }
    let count =
        async |kinds: &[WaitKind], max| desk.count_waiting(&agent("worker"), kinds, max).await.unwrap();
    assert_eq!(count(&[WaitKind::TaskOffer, WaitKind::Silent], 100).await, 7);
    assert_eq!(count(&[WaitKind::TaskOffer], 7).await, 7);
    assert_eq!(count(&[WaitKind::TaskOffer], 3).await, 3);
    assert_eq!(count(&[WaitKind::Review], 100).await, 0);
}

#[tokio::test]
async fn what_has_waited_longest_comes_first_on_every_page() {
    let rules = r#"[{ delegate = ["spy"], by = ["boss"] }]"#;
    let settings = Settings { approvals: Rules::parse(rules).unwrap(), ..Settings::default() };
    let (desk, _trigger) = opened_with(settings);
    let (planner, worker) = (agent("planner"), agent("worker"));
    // Proposed before anything is asked, and sent back after.
    delegated(&desk, &planner, "spy", "secret", Work::default()).await;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        in_hand(&desk, "planner", "worker", name, None).await;
    }
    let soon = || tokio::time::sleep(Duration::from_millis(2));
    let ask = async |name: &str| {
        let (need, text) = (Need::Input, Text::from("?"));
        let question = NewQuestion { key: None, need, text, schema: Blob::default(), wire: None };
        let asks = TaskAct::Ask { task: None, questions: vec![question], progress: Progress::default() };
        desk.act(&worker, &id(name), Act::Task(asks)).await.unwrap();
        soon().await;
    };
    for name in ["d", "b"] {
        ask(name).await;
    }
    let proposal = desk.session(&planner, &id("secret")).await.unwrap().proposal.as_ref().unwrap().id.0;
    let changes = Ruling::ChangesAsked(Text::from("less"));
    desk.decide(&agent("boss"), &id("secret"), proposal, changes, None).await.unwrap();
    soon().await;
    for name in ["e", "a", "c"] {
        ask(name).await;
    }
    let kinds = [WaitKind::Question, WaitKind::Revision];
    for many in 1..=7 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = desk.longest_waiting(&planner, &kinds, after.as_deref(), many).await.unwrap();
            assert!(page.sessions.len() <= many);
            let since: Vec<_> =
                page.sessions.iter().map(|session| waits_since(session, &planner.agent, &kinds)).collect();
            assert!(since.is_sorted(), "{since:?}");
            found.extend(page.sessions.iter().map(|session| session.binding.id.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, ["d", "b", "secret", "e", "a", "c"].map(id), "{many} on a page");
    }
}

#[tokio::test]
async fn what_was_turned_down_is_announced_as_a_review() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let (planner, worker) = (agent("planner"), agent("worker"));
    let mut told = desk.announcements("default", &planner.agent).await.unwrap();
    delegated(&desk, &planner, "worker", "unwanted", Work::default()).await;
    let decline = Act::Task(TaskAct::Decline { task: None, assignee: None, reason: Text::from("no") });
    desk.act(&worker, &id("unwanted"), decline).await.unwrap();
    let next = in_time(told.next()).await.unwrap();
    assert_eq!((next.kind, next.session.as_str()), (WaitKind::Review, id("unwanted").as_str()));
    told.done(&next).await.unwrap();

    in_hand(&desk, "planner", "worker", "wanted", None).await;
    let offered = Responsibility {
        to: worker.agent.clone(),
        scope: Text::from("the night shift"),
        reason: Text::default(),
        context: None,
        ttl_ms: None,
    };
    let offer = desk.offer(&planner, None, "stage.1", offered).await.unwrap();
    let handoff = offer.session.binding.id.to_string();
    desk.answer_offer(&worker, &handoff, false, Text::from("no"), None).await.unwrap();
    let next = in_time(told.next()).await.unwrap();
    assert_eq!((next.kind, next.session.as_str()), (WaitKind::Review, handoff.as_str()));
}

#[tokio::test]
async fn an_offer_is_taken_back_until_it_has_come_to_another_end() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let (planner, worker) = (agent("planner"), agent("worker"));
    let agents = ["worker", "helper"].map(AgentId::from).to_vec();
    let (assignee, title) = (Some(worker.agent.clone()), Text::from("wanted"));
    let work = Work { agents, assignee, task: title.clone(), title, ..Work::default() };
    desk.delegate(&planner, &id("wanted"), None, &PROFILE, work).await.unwrap();
    let wanted = desk.session(&worker, &id("wanted")).await.unwrap();
    assert!(desk.heirs(&worker, &wanted).is_err(), "nobody has it yet");
    desk.act(&worker, &id("wanted"), accept()).await.unwrap();
    let why = desk.heirs(&worker, &desk.session(&worker, &id("wanted")).await.unwrap());
    assert!(format!("{why:?}").contains("HandOnDenied"), "{why:?}: its policy does not allow it");
    let (to, scope) = (AgentId::from("helper"), Text::from("the night shift"));
    let reason = Text::default();
    let offered = Responsibility { to, scope, reason, context: None, ttl_ms: None };
    let offer = desk.offer(&worker, None, "stage.1", offered).await.unwrap();
    let handoff = offer.session.binding.id.to_string();
    assert!(desk.withdraw(&planner, &handoff, None, Text::default()).await.is_err(), "it is not its own");
    assert!(desk.withdraw(&worker, &id("wanted"), None, Text::default()).await.is_err(), "it is no handoff");
    desk.withdraw(&worker, &handoff, None, Text::from("sorry")).await.unwrap();
    desk.withdraw(&worker, &handoff, None, Text::from("sorry")).await.unwrap();
    assert!(desk.answer_offer(&agent("helper"), &handoff, true, Text::default(), None).await.is_err());
}
