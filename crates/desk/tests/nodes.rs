//! Two desks on one store, as two nodes have: what one does the other knows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handover_desk::audit::read::{Page, Wanted};
use handover_desk::caller::Caller;
use handover_desk::delegate::{Profile, Work};
use handover_desk::directory::{Agent, Skill};
use handover_desk::gate;
use handover_desk::identity::Identity;
use handover_desk::limit::Kind;
use handover_desk::open::postgres::Options;
use handover_desk::policies::Policy;
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::traces::What;
use handover_desk::{Data, Desk, Settings};
use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, Need, NewQuestion, Progress, TaskAct};
use handover_kernel::policy::DEFAULT_POLICY;
use handover_kernel::trace::Trace;
use handover_kernel::{AgentId, Blob, Face, SessionId, Text};
use handover_store::{MemoryStore, Slot, Store};

use tokio::sync::mpsc;

#[path = "../../store/tests/postgres/mod.rs"]
mod database;

/// A node, for as long as it is kept.
struct Node {
    desk: Desk,
    _trigger: Trigger,
}

impl Node {
    fn on(store: Arc<dyn Store>) -> Node {
        Node::with(store, Settings::default())
    }

    fn with(store: Arc<dyn Store>, settings: Settings) -> Node {
        Node::open(Data::Store(store), settings)
    }

    fn open(data: Data, settings: Settings) -> Node {
        let (trigger, shutdown) = Shutdown::new();
        let opened = handover_desk::open(data, settings, Identity::Development, shutdown);
        Node { desk: opened.unwrap(), _trigger: trigger }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let desk = self.desk.clone();
        std::thread::spawn(move || desk.stop()).join().unwrap();
    }
}

/// Makes a test on each kind of store that nodes can share out of each play.
macro_rules! on_shared_stores {
    ($(async fn $name:ident($one:ident, $two:ident) $body:block)+) => {$(
        mod $name {
            use super::*;

            async fn play($one: &Desk, $two: &Desk) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                let store = MemoryStore::new();
                let [one, two] = [0, 1].map(|slot| Node::on(Arc::new(store.writer(Slot(slot)))));
                tokio::time::timeout(PATIENCE, play(&one.desk, &two.desk)).await.unwrap();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_a_database() {
                let schema = database::fresh();
                let open = || database::open(&schema).map(|store| Node::on(Arc::new(store)));
                let (Some(one), Some(two)) = (open(), open()) else { return };
                tokio::time::timeout(PATIENCE, play(&one.desk, &two.desk)).await.unwrap();
            }
        }
    )+};
}

const PROFILE: Profile = Profile { charter: Charter::macp, policy: DEFAULT_POLICY, configuration: "stage.1" };

const PATIENCE: Duration = Duration::from_secs(60);

fn caller(name: &str) -> Caller {
    Caller::new(Identity::Development.authenticate(Some(name)).unwrap(), Face::Mcp)
}

fn agent(skills: &[&str]) -> Agent {
    let skill = |name: &&str| Skill {
        name: (*name).to_owned(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        ..Skill::default()
    };
    Agent { name: "Worker".to_owned(), skills: skills.iter().map(skill).collect(), ..Agent::default() }
}

async fn tools(desk: &Desk) -> Vec<String> {
    let catalogue = desk.directory.skills("default", &AgentId::from("x")).await.unwrap();
    catalogue.tools().iter().map(|tool| format!("{} = {}", tool.name, tool.agent)).collect()
}

async fn until(so: impl Fn() -> bool) {
    while !so() {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

on_shared_stores! {
    async fn what_is_registered_at_one_is_there_at_the_other_at_once(one, two) {
        let mut changes = two.directory.changes("default");
        assert!(tools(two).await.is_empty());
        for round in 0..20 {
            let id = format!("agent{round}");
            one.register(&caller(&id), agent(&["greet"])).await.unwrap();
            assert!(two.agent(&caller("x"), &id).await.unwrap().is_some(), "{id}");
            assert_eq!(tools(two).await.len(), round + 1);
            assert_eq!(tools(one).await, tools(two).await);
        }
        changes.changed().await.unwrap();
        two.unregister(&caller("agent3"), None).await.unwrap();
        assert!(one.agent(&caller("x"), "agent3").await.unwrap().is_none());
    }

    async fn two_that_register_at_once_at_two_nodes_never_get_the_same_name(one, two) {
        for round in 0..15 {
            let (first, second) = (caller(&format!("a{round}")), caller(&format!("b{round}")));
            let skill = format!("dig{round}");
            let (left, right) = tokio::join!(
                one.register(&first, agent(&[&skill])),
                two.register(&second, agent(&[&skill])),
            );
            left.unwrap();
            right.unwrap();
        }
        let found = tools(one).await;
        let mut names: Vec<&str> = found.iter().filter_map(|tool| tool.split(' ').next()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), &found), (30, &tools(two).await));
    }

    async fn a_policy_that_is_registered_at_one_is_watched_at_the_other(one, two) {
        let mut changes = two.policies.watch();
        changes.mark_unchanged();
        let policy = Policy { id: "p".to_owned(), mode: "task".to_owned(), rules: "{}".to_owned(), schema_version: 1, ..Policy::default() };
        one.policies.register("default", policy.clone()).await.unwrap();
        two.policies.get("default", "p").await.unwrap();
        two.policies.register("default", policy).await.unwrap_err();
        changes.changed().await.unwrap();
    }

    async fn a_signal_is_heard_at_both(one, two) {
        let (mut here, mut there) = (one.listen(&caller("x")), two.listen(&caller("x")));
        one.signal(&caller("ada"), None, 5, b"hello".to_vec().into()).await.unwrap();
        for listening in [&mut here, &mut there] {
            assert_eq!(&*listening.next().await.ok().unwrap().body, b"hello");
        }
    }

    async fn who_is_at_one_is_there_for_the_other(one, two) {
        let ada = AgentId::from("ada");
        let present = one.directory.present("default", &ada);
        until(|| two.directory.presence("default", &ada).online).await;
        drop(present);
        until(|| !two.directory.presence("default", &ada).online).await;
        assert!(two.directory.knows("default", &ada).await.unwrap());
    }

    async fn what_newly_waits_is_told_by_one_node_until_it_is_gone_and_then_by_another(one, two) {
        let ask = |desk: &Desk, round: usize| {
            let (desk, name) = (desk.clone(), format!("s{round}"));
            async move {
                let work = Work { agents: vec![AgentId::from("worker")], task: Text::from("dig"), ..Work::default() };
                desk.delegate(&caller("ada"), &name, None, &PROFILE, work).await.unwrap();
                let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
                desk.act(&caller("worker"), &name, Act::Task(accept)).await.unwrap();
                let question = NewQuestion { key: None, need: Need::Input, text: Text::from("which?"), schema: Blob::default(), wire: None };
                let ask = TaskAct::Ask { task: None, questions: vec![question], progress: Progress::default() };
                desk.act(&caller("worker"), &name, Act::Task(ask)).await.unwrap();
            }
        };
        let (told, mut heard) = mpsc::unbounded_channel();
        let tell = |node: &'static str, desk: &Desk| {
            let (desk, told) = (desk.clone(), told.clone());
            tokio::spawn(async move {
                let mut announcements = desk.announcements("default", &AgentId::from("ada")).await.unwrap();
                loop {
                    let next = announcements.next().await.unwrap();
                    told.send((node, next.id.clone(), next.session.as_str().to_owned())).unwrap();
                    announcements.done(&next).await.unwrap();
                }
            })
        };
        let begun = tell("one", one);
        // What happened before anybody asked is not told.
        let mut round = 0;
        while heard.is_empty() {
            ask(one, round).await;
            round += 1;
        }
        let next = tell("two", two);
        while heard.recv().await.unwrap().2 != format!("s{}", round - 1) {}
        for round in round..round + 6 {
            ask(if round % 2 == 0 { one } else { two }, round).await;
            let (node, _, session) = heard.recv().await.unwrap();
            assert_eq!((node, session), ("one", format!("s{round}")));
        }
        begun.abort();
        begun.await.unwrap_err();
        let mut ids = std::collections::BTreeSet::new();
        for round in round + 6..round + 9 {
            ask(one, round).await;
            let (node, id, session) = heard.recv().await.unwrap();
            assert_eq!((node, session), ("two", format!("s{round}")));
            assert!(ids.insert(id));
        }
        next.abort();
        assert!(heard.try_recv().is_err(), "nothing was told twice");
    }

    async fn who_signs_out_at_one_is_signed_out_at_the_other(one, two) {
        let (caller, secret) = one.sign_in(Some("ada"), Face::Console, None).await.unwrap();
        two.signed_in(&secret, Face::Console, None).await.unwrap();
        let name = two.sign_in_name(&secret);
        let ended = two.sign_in_ended(&name);
        assert!(one.end_sign_in(&caller, &name).await.unwrap());
        ended.await;
        two.signed_in(&secret, Face::Console, None).await.unwrap_err();
    }

    async fn each_node_tells_the_spans_of_what_it_wrote_and_together_they_are_one_trace(one, two) {
        let (planner, worker, helper) = (caller("planner"), caller("worker"), caller("helper"));
        let (mut first, mut second) = (one.traces(), two.traces());
        // What is there before anybody tells is not told.
        assert!(first.next().await.unwrap().is_empty() && second.next().await.unwrap().is_empty());
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        begin(one, &planner.clone().traced(Trace::new(parent, "a=1")), "above", None).await;
        act(two, &worker, "above", accept()).await;
        begin(two, &worker, "below", Some("above")).await;
        act(one, &helper, "below", accept()).await;
        act(two, &helper, "below", complete()).await;
        act(one, &worker, "above", complete()).await;
        one.commit(&planner, &one.session(&planner, "above").await.unwrap(), true, "done".into(), None).await.unwrap();
        let mut heads = 0;
        for (agent, session) in [(&planner, "above"), (&worker, "below")] {
            heads += one.session(agent, session).await.unwrap().head.0 as usize;
        }
        let (mut told, mut nodes, mut events) = (BTreeMap::new(), [false; 2], 0);
        while events < heads {
            for (node, traces) in [&mut first, &mut second].into_iter().enumerate() {
                let page = traces.next().await.unwrap();
                let again = traces.next().await.unwrap();
                assert_eq!(page.spans[..], again.spans[..page.spans.len()], "the same until it is done");
                nodes[node] |= !page.spans.is_empty();
                for span in &page.spans {
                    assert_eq!(span.trace, &parent[3..35], "{span:?}");
                    events += usize::from(span.what == What::Event);
                    assert!(told.insert(span.id.clone(), span.clone()).is_none(), "two nodes told one span");
                }
                traces.done(page, 0).await.unwrap();
            }
        }
        assert_eq!(nodes, [true; 2], "both have written something");
        let find = |what: What, session: &str| {
            told.values().find(|span| span.what == what && span.session.as_str() == session).cloned()
        };
        let (whole, work) = (find(What::Session, "above").unwrap(), find(What::Work, "above").unwrap());
        let callers = whole.parent.clone().unwrap();
        assert_eq!((&*callers.id, callers.is_callers, &*whole.state), ("00f067aa0ba902b7", true, "a=1"));
        assert_eq!(work.parent.unwrap().id, whole.id);
        assert!(find(What::Session, "below").is_none(), "it is not over");
        let started = told.values().find(|span| span.kind == "started" && span.session.as_str() == "below");
        assert_ne!(started.unwrap().parent.clone().unwrap().id, whole.id, "it is part of its own session");
        // A node that begins again goes on where the one before it was.
        let mut again = one.traces();
        assert!(again.next().await.unwrap().spans.is_empty());
        act(one, &worker, "below", Act::Cancel { reason: "late".into(), keeps_children: false }).await;
        let page = again.next().await.unwrap();
        let session = page.spans.iter().find(|span| span.what == What::Session).unwrap();
        assert_eq!(session.parent.clone().unwrap().id, whole.id, "a subtask is part of its task");
        assert_eq!((&session.trace, session.failure.as_deref()), (&whole.trace, Some("cancelled")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_new_node_wrote_before_it_first_looked_is_told_as_spans() {
    let schema = database::fresh();
    let open = || database::open(&schema).map(|store| Node::on(Arc::new(store)));
    let Some(one) = open() else { return };
    begin(&one.desk, &caller("planner"), "before", None).await;
    // Nobody has told any before: what is there already is not told.
    assert!(one.desk.traces().next().await.unwrap().spans.is_empty());
    let two = open().unwrap();
    begin(&two.desk, &caller("planner"), "after", None).await;
    let page = two.desk.traces().next().await.unwrap();
    assert!(page.spans.iter().any(|span| span.session.as_str() == "after"), "{page:?}");
    assert!(page.spans.iter().all(|span| span.session.as_str() != "before"), "{page:?}");
}

async fn begin(desk: &Desk, caller: &Caller, id: &str, parent: Option<&str>) {
    let work = Work {
        agents: vec![AgentId::from(if parent.is_none() { "worker" } else { "helper" })],
        task: "t".into(),
        title: "t".into(),
        parent: parent.map(SessionId::from),
        ..Work::default()
    };
    desk.delegate(caller, id, None, &PROFILE, work).await.unwrap();
}

async fn act(desk: &Desk, caller: &Caller, id: &str, act: Act) {
    desk.put(caller, id, caller.command(act)).await.unwrap();
}

fn accept() -> Act {
    Act::Task(TaskAct::Accept { task: None, assignee: None, reason: "".into() })
}

fn complete() -> Act {
    let output = Blob::from(b"done".as_slice());
    Act::Task(TaskAct::Complete { task: None, assignee: None, output, summary: "".into() })
}

/// How many of a kind three nodes let through together, and in which time.
fn let_through(nodes: &[Node], kind: Kind, most: u64) -> (u64, Duration) {
    let begun = Instant::now();
    let count = std::thread::scope(|scope| {
        let one = |node: &Node| {
            let (desk, ada) = (node.desk.clone(), caller("ada"));
            move || (0..most).take_while(|_| desk.gate.admit(&ada, kind).is_ok()).count() as u64
        };
        let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(one(node))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    (count, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_together_let_an_agent_do_no_more_than_it_may() {
    let schema = database::fresh();
    // A burst is 60, a portion 6, and a second brings 10.
    let rates = gate::Settings { messages_per_minute: 600, ..gate::Settings::default() };
    let open = || {
        let store = Arc::new(database::open(&schema)?);
        Some(Node::with(store, Settings { gate: rates.clone(), ..Settings::default() }))
    };
    let Some(nodes) = (0..3).map(|_| open()).collect::<Option<Vec<Node>>>() else { return };
    let (at_one, took) = let_through(&nodes[..1], Kind::Message, 30);
    assert_eq!(at_one, 30, "within {took:?}");
    let (more, later) = let_through(&nodes, Kind::Message, 1000);
    let brought = (took + later).as_millis() as u64 / 100 + 1;
    assert!(at_one + more <= 60 + brought, "{at_one} and {more} within {took:?} and {later:?}");
    assert!(at_one + more >= 60 - 3 * 6, "{at_one} and {more} within {took:?} and {later:?}");
    // What has no rate asks nobody, and others have their own.
    assert_eq!(let_through(&nodes, Kind::Start, 100).0, 300);
    nodes[1].desk.gate.admit(&caller("ben"), Kind::Message).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_is_in_one_audit_log_alone_and_its_line_names_the_node() {
    let Some(options) = database::options(&database::fresh()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let log = |name: &str| dir.path().join(name);
    let open = |name: &str| {
        let options = Options { node: name.to_owned(), ..options.clone() };
        let settings = Settings { audit: Some((log(name), 1_000_000)), ..Settings::default() };
        Node::open(Data::Database(Box::new(options)), settings)
    };
    let nodes = ["one", "two", "three"].map(open);
    let work = || Work { agents: vec![AgentId::from("worker")], task: Text::from("dig"), ..Work::default() };
    for (round, node) in nodes.iter().cycle().take(12).enumerate() {
        let name = format!("s{round}");
        node.desk.delegate(&caller("planner"), &name, None, &PROFILE, work()).await.unwrap();
        let elsewhere = &nodes[(round + 1) % 3].desk;
        elsewhere.act(&caller("planner"), &name, Act::cancel("not needed")).await.unwrap();
    }
    for node in &nodes {
        node.desk.session(&caller("planner"), "s0").await.unwrap();
    }
    drop(nodes);
    let mut ended = std::collections::BTreeMap::<String, String>::new();
    for name in ["one", "two", "three"] {
        for line in std::fs::read_to_string(log(name)).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["event"] == "session_cancelled" {
                assert_eq!(line["node"], name);
                let session = line["session"].as_str().unwrap().to_owned();
                assert_eq!(ended.insert(session.clone(), name.to_owned()), None, "{session} ended twice");
            }
        }
    }
    let at = |session: &str| ended[session].as_str();
    assert_eq!((ended.len(), at("s0"), at("s1"), at("s2")), (12, "two", "three", "one"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_the_audit_log_says_whose_it_is_and_goes_on_at_that_node_alone() {
    let Some(options) = database::options(&database::fresh()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let options = Options { node: name.to_owned(), ..options.clone() };
        let settings = Settings { audit: Some((dir.path().join(name), 1_000_000)), ..Settings::default() };
        Node::open(Data::Database(Box::new(options)), settings)
    };
    let [one, two] = ["db-1.example:1", "two"].map(open);
    let mut root = Identity::Development.authenticate(Some("root")).unwrap();
    root.admin = true;
    let admin = Caller::new(root, Face::Console);
    for (round, node) in [&one, &two, &one, &two].into_iter().enumerate() {
        let work = Work { agents: vec![AgentId::from("worker")], task: Text::from("dig"), ..Work::default() };
        node.desk.delegate(&caller("planner"), &format!("s{round}"), None, &PROFILE, work).await.unwrap();
    }
    let page = async |node: &Node, before: Option<&str>| {
        node.desk.audit_log(&admin, Wanted::default(), before, 1).await
    };
    // Lines gather for a moment before they are written.
    let both = async {
        loop {
            let (at_one, at_two) = (page(&one, None).await.unwrap(), page(&two, None).await.unwrap());
            let delegated =
                |page: &Page| page.lines.first().is_some_and(|line| line.event == "task_delegated");
            if delegated(&at_one) && delegated(&at_two) {
                return (at_one, at_two);
            }
            tokio::task::yield_now().await;
        }
    };
    let (at_one, at_two) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    for (found, node) in [(&at_one, &one), (&at_two, &two)] {
        assert_eq!((found.node.as_str(), found.lines[0].node.as_str()), (node.desk.node(), node.desk.node()));
    }
    let older = at_one.next.unwrap();
    page(&one, Some(&older)).await.unwrap();
    let refused = page(&two, Some(&older)).await.unwrap_err();
    let refused = format!("{refused:?}");
    assert!(refused.contains("db-1.example:1") && refused.contains("ask that node"), "{refused}");
    // A link that an earlier release gave out does not say whose log it is about.
    let refused = page(&two, Some("1.10")).await.unwrap_err();
    let refused = format!("{refused:?}");
    assert!(refused.contains("open the page again"), "{refused}");
}
