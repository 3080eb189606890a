//! The rules about callers, without a wire: what holds for one face holds for all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use handover_desk::caller::Caller;
use handover_desk::checks;
use handover_desk::delegate::{Profile, Responsibility, Work};
use handover_desk::directory::{Agent, Skill};
use handover_desk::follow::Over;
use handover_desk::gate;
use handover_desk::identity::Identity;
use handover_desk::limit::{Lane, Limited};
use handover_desk::no::{Part, Unfit};
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::{Data, Desk, No, Settings};
use handover_kernel::charter::Charter;
use handover_kernel::command::{Act, Answer, Command, Contract, Need, NewQuestion, Progress, Reply, TaskAct};
use handover_kernel::orders::OrderKind;
use handover_kernel::session::Standing;
use handover_kernel::{AgentId, Blob, Face, QuestionKey, Refusal, Text};

const FACES: [Face; 5] = [Face::Macp, Face::Mcp, Face::Grid, Face::Console, Face::Cli];
const TASK: &str = "the-task-of-most-plays";
/// A number, and nothing else that is asked for.
const NUMBER: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;

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

fn caller(name: &str, face: Face) -> Caller {
    Caller::new(Identity::Development.authenticate(Some(name)).unwrap(), face)
}

fn mcp(name: &str) -> Caller {
    caller(name, Face::Mcp)
}

async fn in_time<T>(play: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), play).await.expect("waited in vain")
}

fn blob(text: &str) -> Blob {
    Blob::from(text.as_bytes())
}

fn work(contract: Option<Contract>) -> Work {
    Work {
        agents: vec![AgentId::from("worker")],
        task: Text::from("dig"),
        title: Text::from("dig"),
        input: blob(r#"{"n":1}"#),
        contract: contract.map(Arc::new),
        ..Work::default()
    }
}

fn contract(input: &str, output: &str) -> Contract {
    Contract { skill: Text::from("dig"), input: blob(input), output: blob(output) }
}

fn accept() -> Act {
    Act::Task(TaskAct::Accept { task: None, assignee: None, reason: Text::default() })
}

fn complete(output: &[u8]) -> Act {
    let output = Blob::from(output);
    Act::Task(TaskAct::Complete { task: None, assignee: None, output, summary: Text::default() })
}

fn steer(text: &str) -> Act {
    Act::Task(TaskAct::Steer { text: Text::from(text) })
}

fn update() -> Act {
    Act::Task(TaskAct::Update { task: None, progress: Progress::default(), withdraws: false })
}

fn ask(key: &str, schema: &str) -> Act {
    let question = NewQuestion {
        key: Some(QuestionKey::from(key)),
        need: Need::Input,
        text: Text::from("which?"),
        schema: blob(schema),
        wire: None,
    };
    Act::Task(TaskAct::Ask { task: None, questions: vec![question], progress: Progress::default() })
}

fn answer(key: &str, reply: Reply) -> Act {
    let answers = vec![Answer { key: QuestionKey::from(key), reply }];
    Act::Task(TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false })
}

/// A task of `planner` that `worker` has in hand.
async fn in_hand(desk: &Desk, task: &str, contract: Option<Contract>) {
    desk.delegate(&mcp("planner"), task, None, &PROFILE, work(contract)).await.unwrap();
    desk.act(&mcp("worker"), task, accept()).await.unwrap();
}

/// A command that can carry orders back, under a key if it has one.
fn taking_orders(act: Act, key: Option<&str>) -> Command {
    let command = Command { takes_orders: true, ..mcp("worker").command(act) };
    match key {
        Some(key) => command.with_id(key),
        None => command,
    }
}

/// The steers that an answer to the worker carries.
async fn steers(desk: &Desk, act: Act, key: Option<&str>) -> Vec<String> {
    let accepted = desk.put(&mcp("worker"), TASK, taking_orders(act, key)).await.unwrap();
    accepted.receipt.orders.iter().map(|order| said(&order.what)).collect()
}

fn said(order: &OrderKind) -> String {
    match order {
        OrderKind::Steer(text) => text.to_string(),
        OrderKind::Pause(_) | OrderKind::Answers(_) | OrderKind::Message { .. } => {
            panic!("expected a steer, found {order:?}")
        }
    }
}

/// Why it does not fit; anything else is another no.
fn unfit<T>(answer: Result<T, No>) -> Unfit {
    match answer {
        Err(No::Unfit(unfit)) => unfit,
        Err(other) => panic!("expected a value that does not fit, found {other:?}"),
        Ok(_) => panic!("expected a value that does not fit, found one that does"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_the_desk_offers_can_be_done_from_every_face() {
    let (desk, _trigger) = opened(gate::Settings::default());
    for face in FACES {
        let (planner, worker) = (caller("planner", face), caller("worker", face));
        let task = desk.new_id(&planner, None);
        desk.delegate(&planner, &task, None, &PROFILE, work(None)).await.unwrap();
        desk.act(&worker, &task, accept()).await.unwrap();
        desk.act(&planner, &task, steer("left")).await.unwrap();
        desk.act(&worker, &task, complete(b"a hole")).await.unwrap();
        let session = desk.task(&planner, &task).await.unwrap();
        let settled = desk.commit(&planner, &session, true, Text::from("reviewed"), None).await.unwrap();
        assert!(settled.session.lifecycle.is_terminal(), "{face:?}");

        let offered = Responsibility {
            to: AgentId::from("worker"),
            scope: Text::from("the garden"),
            reason: Text::default(),
            context: None,
            ttl_ms: None,
        };
        let begun = desk.offer(&planner, None, PROFILE.configuration, offered).await.unwrap();
        let handoff = begun.session.binding.id.to_string();
        desk.answer_offer(&worker, &handoff, true, Text::default(), None).await.unwrap();
        let session = desk.handoff(&planner, &handoff).await.unwrap();
        let settled = desk.commit(&planner, &session, true, Text::from("reviewed"), None).await.unwrap();
        assert!(settled.session.lifecycle.is_terminal(), "{face:?}");
    }
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_fits_its_contract_or_changes_nothing_on_every_face() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let plays: [(&str, &[u8], bool); 10] = [
        (NUMBER, br#"{"n":3}"#, true),
        (NUMBER, br#"{"n":3,"more":[]}"#, true),
        (NUMBER, br#"{"n":"3"}"#, false),
        (NUMBER, b"{}", false),
        (NUMBER, b"3", false),
        (NUMBER, b"", false),
        (NUMBER, &[0xff], false),
        // Text that is no JSON is a text.
        (r#"{"type":"string"}"#, b"a hole", true),
        ("", &[0xff], true),
        ("", b"", true),
    ];
    for face in FACES {
        for (index, (schema, output, fits)) in plays.iter().enumerate() {
            let task = format!("{face:?} {index}");
            in_hand(&desk, &task, Some(contract("", schema))).await;
            let report = desk.act(&caller("worker", face), &task, complete(output)).await;
            if *fits {
                report.unwrap();
                continue;
            }
            assert_eq!(unfit(report).part, Part::Output, "{task}");
            let session = desk.task(&mcp("planner"), &task).await.unwrap();
            assert_eq!((session.standing(), session.head.0), (Standing::Working, 3), "{task}");
        }
    }
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_begins_only_with_what_its_contract_takes() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let planner = mcp("planner");
    let begin = async |input: &str| {
        let work = Work { input: blob(input), ..work(Some(contract(NUMBER, ""))) };
        desk.delegate(&planner, TASK, None, &PROFILE, work).await
    };
    for wrong in ["", "{}", "text", r#"{"n":"one"}"#] {
        assert_eq!(unfit(begin(wrong).await).part, Part::Input, "{wrong:?}");
        assert!(desk.session(&planner, TASK).await.unwrap_err().is_unknown());
    }
    begin(r#"{"n":1}"#).await.unwrap();
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_fits_its_question_or_the_question_stays_open() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, TASK, None).await;
    let (planner, worker) = (mcp("planner"), mcp("worker"));
    for schema in [r#"{"type":"hole"}"#, "{", "7", r##"{"$ref":"#/nowhere"}"##] {
        let asked = desk.act(&worker, TASK, ask("q", schema)).await;
        assert_eq!(unfit(asked).part, Part::Question(QuestionKey::from("q")), "{schema}");
    }
    let replies = |text: &str| answer("q", Reply::Content(blob(text)));
    desk.act(&worker, TASK, ask("q", NUMBER)).await.unwrap();
    for wrong in ["", "three", "{}", r#"{"n":null}"#] {
        let given = desk.act(&planner, TASK, replies(wrong)).await;
        assert_eq!(unfit(given).part, Part::Answer(QuestionKey::from("q")), "{wrong:?}");
        let session = desk.task(&planner, TASK).await.unwrap();
        assert_eq!(session.task().unwrap().phase.questions().len(), 1);
    }
    desk.act(&planner, TASK, replies(r#"{"n":3}"#)).await.unwrap();
    for (key, reply) in [("no", Reply::Refused), ("later", Reply::Dismissed)] {
        desk.act(&worker, TASK, ask(key, NUMBER)).await.unwrap();
        desk.act(&planner, TASK, answer(key, reply)).await.unwrap();
    }
    desk.act(&worker, TASK, ask("anything", "")).await.unwrap();
    desk.act(&planner, TASK, answer("anything", Reply::Content(Blob::from(&[0xff][..])))).await.unwrap();
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_learns_what_a_task_is_bound_to() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, TASK, Some(contract("", NUMBER))).await;
    desk.act(&mcp("worker"), TASK, ask("q", NUMBER)).await.unwrap();
    let mut elsewhere = mcp("planner");
    Arc::make_mut(&mut elsewhere.principal).tenant = "elsewhere".into();
    for act in [complete(b"{}"), answer("q", Reply::Content(blob("{}")))] {
        let told = desk.act(&mcp("outsider"), TASK, act.clone()).await.unwrap_err();
        assert_eq!(told.refusal(), Some(&Refusal::NotParticipant { agent: AgentId::from("outsider") }));
        let told = desk.act(&elsewhere, TASK, act).await.unwrap_err();
        assert_eq!(told.refusal(), Some(&Refusal::SessionNotFound));
    }
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_sent_again_carries_what_it_carried_and_nothing_that_came_later() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, TASK, None).await;
    // Often enough that some of it happens within one tick of the clock.
    for round in 0..50 {
        let key = |name: &str| format!("{name} {round}");
        let none: [&str; 0] = [];
        assert_eq!(steers(&desk, update(), Some(&key("before"))).await, none);
        for text in ["left", "right"] {
            desk.act(&mcp("planner"), TASK, steer(text)).await.unwrap();
        }
        assert_eq!(steers(&desk, update(), Some(&key("with"))).await, ["left", "right"]);
        assert_eq!(steers(&desk, update(), Some(&key("after"))).await, none);
        for _ in 0..2 {
            assert_eq!(steers(&desk, update(), Some(&key("before"))).await, none, "round {round}");
            assert_eq!(steers(&desk, update(), Some(&key("with"))).await, ["left", "right"], "round {round}");
            assert_eq!(steers(&desk, update(), Some(&key("after"))).await, none, "round {round}");
        }
    }
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_told_again_however_much_happened_in_between() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, TASK, None).await;
    let (planner, worker) = (mcp("planner"), mcp("worker"));
    let since = async |after| -> Vec<String> {
        let orders = desk.orders_since(&worker, TASK, after).await.unwrap();
        orders.orders.iter().map(|order| said(&order.what)).collect()
    };
    for text in ["left", "right"] {
        for _ in 0..=handover_desk::look::HISTORY_MAX {
            desk.act(&worker, TASK, update()).await.unwrap();
        }
        desk.act(&planner, TASK, steer(text)).await.unwrap();
        assert_eq!(steers(&desk, update(), None).await, [text]);
    }
    desk.act(&planner, TASK, steer("not yet handed over")).await.unwrap();
    assert_eq!(since(0).await, ["left", "right"]);
    let first = desk.orders_since(&worker, TASK, 0).await.unwrap().orders[0].seq.0;
    assert_eq!(since(first).await, ["right"]);
    assert!(since(u64::MAX).await.is_empty());
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_many_bytes_are_handed_over_and_told_again_in_parts() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, TASK, None).await;
    let (planner, worker) = (mcp("planner"), mcp("worker"));
    let text = |number: usize| format!("{number} {}", "x".repeat(100 * 1024));
    for number in 0..8 {
        desk.act(&planner, TASK, steer(&text(number))).await.unwrap();
    }
    // Three reach the bound of one answer.
    let mut heard = Vec::new();
    for expected in [3, 3, 2, 0] {
        let brought = steers(&desk, update(), None).await;
        assert_eq!(brought.len(), expected);
        heard.extend(brought);
    }
    assert_eq!(heard, (0..8).map(text).collect::<Vec<_>>());
    let (mut again, mut after, mut parts) = (Vec::new(), Some(0), 0);
    while let Some(from) = after {
        let told = desk.orders_since(&worker, TASK, from).await.unwrap();
        assert!(told.orders.len() <= 3);
        again.extend(told.orders.iter().map(|order| said(&order.what)));
        (after, parts) = (told.next, parts + 1);
    }
    assert_eq!((again, parts), (heard, 3));
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_assignee_hears_what_waits_for_it() {
    let (desk, _trigger) = opened(gate::Settings::default());
    in_hand(&desk, TASK, None).await;
    desk.act(&mcp("planner"), TASK, steer("left")).await.unwrap();
    desk.act(&mcp("worker"), TASK, update()).await.unwrap();
    for other in ["planner", "outsider"] {
        assert!(desk.orders(&mcp(other), TASK).await.unwrap().is_none(), "{other}");
    }
    let waiting = desk.orders(&mcp("worker"), TASK).await.unwrap().unwrap();
    assert_eq!(waiting.orders.iter().map(|order| said(&order.what)).collect::<Vec<_>>(), ["left"]);
    desk.heard(&mcp("worker"), &waiting.session, waiting.orders[0].seq).await;
    assert!(desk.orders(&mcp("worker"), TASK).await.unwrap().unwrap().orders.is_empty());
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_one_agents_on_all_faces_and_is_given_back() {
    let (desk, trigger) = opened(gate::Settings { streams_max: 2, ..gate::Settings::default() });
    let first = desk.stay(&caller("worker", Face::Macp)).unwrap_or_else(|no| panic!("{no:?}"));
    let mut second = desk.stay(&mcp("worker")).unwrap_or_else(|no| panic!("{no:?}"));
    for face in FACES {
        let no = desk.stay(&caller("worker", face)).map(drop).unwrap_err();
        assert!(matches!(no, No::Limited(Limited::Streams { max: 2 })), "{no:?}");
    }
    assert!(desk.stay(&mcp("planner")).is_ok());
    drop(first);
    assert!(desk.stay(&mcp("worker")).is_ok());
    trigger.begin();
    assert!(matches!(in_time(second.over()).await, Over::Stopping));
    desk.stop();
}

/// Each level is gone through by itself, and once more to learn what it looked at.
fn evil_schema() -> String {
    (0..21).fold(r#"{"type":"string"}"#.to_owned(), |inner, level| {
        let kind = if level == 20 { r#""type":"object","# } else { "" };
        format!(r#"{{{kind}"unevaluatedProperties":{inner}}}"#)
    })
}

fn evil_value() -> String {
    format!("{}1{}", r#"{"a":"#.repeat(21), "}".repeat(21))
}

fn skilled(input: &str) -> Agent {
    let skill = Skill { name: "dig".to_owned(), input_schema: input.to_owned(), ..Skill::default() };
    Agent { skills: vec![skill], ..Agent::default() }
}

/// The code and the sentence of a no.
fn told<T>(answer: Result<T, No>) -> (&'static str, String, bool) {
    match answer {
        Err(no) => (no.code(), no.message(), no.meaning().retry),
        Ok(_) => panic!("expected a no, found none"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_whose_cost_multiplies_is_refused_when_it_is_registered_or_asked_and_never_run() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let (code, why, _) = told(desk.register(&mcp("worker"), skilled(&evil_schema())).await);
    assert_eq!(code, "INVALID");
    assert!(why.contains("/unevaluatedProperties: expected at most"), "{why}");
    desk.register(&mcp("worker"), skilled(NUMBER)).await.unwrap();
    in_hand(&desk, TASK, Some(contract(NUMBER, &evil_schema()))).await;
    let unfit = unfit(desk.act(&mcp("worker"), TASK, ask("q", &evil_schema())).await);
    assert_eq!(unfit.part, Part::Question(QuestionKey::from("q")));
    // What an earlier release bound to the task is there, and is refused where it would have to be run.
    let (code, why, retry) = told(desk.act(&mcp("worker"), TASK, complete(evil_value().as_bytes())).await);
    assert_eq!((code, retry), ("CHECK_TOO_COSTLY", false), "{why}");
    assert!(
        why.starts_with("the skill's output schema: it cannot be used: #/unevaluatedProperties"),
        "{why}"
    );
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_takes_too_many_steps_is_refused() {
    let checks = checks::Settings { steps_max: 100_000, ..checks::Settings::default() };
    let (desk, _trigger) = opened_with(Settings { checks, ..Settings::default() });
    let of_numbers = r#"{"items":{"type":"integer"}}"#;
    in_hand(&desk, TASK, Some(contract(NUMBER, of_numbers))).await;
    let numbers = |count: usize| format!("[{}0]", "0,".repeat(count));
    let (code, why, retry) =
        told(desk.act(&mcp("worker"), TASK, complete(numbers(100_000).as_bytes())).await);
    assert_eq!((code, retry), ("CHECK_TOO_COSTLY", false));
    assert!(why.contains("expected a check of at most 100000 steps"), "{why}");
    // One that is too long for the moment is not too long for the threads.
    desk.act(&mcp("worker"), TASK, complete(numbers(10_000).as_bytes())).await.unwrap();
    desk.stop();
}

/// Takes a thread until it is let go.
fn occupy(desk: &Desk, who: &'static str) -> std::sync::mpsc::Sender<()> {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (begun, is_begun) = std::sync::mpsc::channel::<()>();
    let desk = desk.clone();
    tokio::spawn(async move {
        let work = move || {
            begun.send(()).unwrap();
            _ = wait.recv();
            ((), 0)
        };
        desk.run_long(&mcp(who), work).await.unwrap();
    });
    tokio::task::block_in_place(|| is_begun.recv().unwrap());
    go
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_for_a_thread_or_finds_the_queue_full_may_try_again() {
    let waits = |queue_max| checks::Settings {
        threads: 1,
        queue_max,
        wait: Duration::from_millis(20),
        ..checks::Settings::default()
    };
    for queue_max in [1, 64] {
        let (desk, _trigger) = opened_with(Settings { checks: waits(queue_max), ..Settings::default() });
        let go = occupy(&desk, "hog");
        let no = desk.register(&mcp("worker"), skilled(NUMBER)).await.unwrap_err();
        assert!(matches!(&no, No::Limited(limited) if limited.retry_after_ms() == Some(20)), "{no:?}");
        let (code, why, retry) = told::<()>(Err(no));
        assert_eq!((code, retry), ("CHECKS_BUSY", true), "{why}");
        // What takes no time goes on meanwhile.
        in_hand(&desk, TASK, Some(contract(NUMBER, NUMBER))).await;
        desk.act(&mcp("worker"), TASK, complete(br#"{"n":1}"#)).await.unwrap();
        go.send(()).unwrap();
        in_time(async { while desk.register(&mcp("worker"), skilled(NUMBER)).await.is_err() {} }).await;
        desk.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_has_its_share_of_the_queue_and_no_more() {
    let checks = checks::Settings { threads: 8, queue_max: 16, ..checks::Settings::default() };
    let (desk, _trigger) = opened_with(Settings { checks, ..Settings::default() });
    let held = [occupy(&desk, "hog"), occupy(&desk, "hog")];
    let (code, _, _) = told(desk.run_long(&mcp("hog"), || ((), 0)).await);
    assert_eq!(code, "CHECKS_BUSY");
    desk.run_long(&mcp("worker"), || ((), 0)).await.unwrap();
    drop(held);
    in_time(async { while desk.run_long(&mcp("hog"), || ((), 0)).await.is_err() {} }).await;
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_costs_more_counts_as_more_messages() {
    let gate = gate::Settings { messages_per_minute: 600, ..gate::Settings::default() };
    let (desk, _trigger) = opened(gate);
    in_hand(&desk, TASK, None).await;
    // Twice what a burst has, at a message for 200,000 steps.
    desk.run_long(&mcp("worker"), || ((), 120 * 200_000)).await.unwrap();
    let (code, why, retry) = told(desk.act(&mcp("worker"), TASK, update()).await);
    assert_eq!((code, retry), ("RATE_LIMITED", true), "{why}");
    desk.act(&mcp("planner"), TASK, steer("left")).await.unwrap();
    // A start is charged for its participants, though it is refused.
    let agents = (0..900).map(|number| AgentId::from(format!("agent {number}"))).collect();
    let crowd = Work { agents, assignee: Some(AgentId::from("nobody")), ..work(None) };
    desk.delegate(&mcp("planner"), "another-task", None, &PROFILE, crowd).await.unwrap_err();
    assert_eq!(told(desk.act(&mcp("planner"), TASK, steer("right")).await).0, "RATE_LIMITED");
    desk.stop();
}

#[tokio::test]
async fn who_stops_waiting_for_a_signal_loses_none() {
    let (desk, _trigger) = opened(gate::Settings::default());
    let (planner, worker) = (mcp("planner"), mcp("worker"));
    let begun = desk.delegate(&planner, "a-task-to-talk-about", None, &PROFILE, work(None)).await.unwrap();
    let session = begun.session.binding.id.to_string();
    let mut listening = desk.listen(&worker);
    for n in 0..20_u8 {
        desk.signal(&planner, Some(&session), 1, blob(&n.to_string())).await.unwrap();
    }
    for n in 0..20_u8 {
        // Polled once, and given up wherever that left it.
        let mut first = Box::pin(listening.next());
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(first.as_mut().poll(context))).await;
        drop(first);
        let heard = match polled {
            std::task::Poll::Ready(heard) => heard,
            std::task::Poll::Pending => in_time(listening.next()).await,
        };
        assert_eq!(heard.unwrap().body, blob(&n.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_count_as_requests_and_who_has_used_much_takes_the_slow_lane() {
    let gate = gate::Settings { requests_per_minute: 600, ..gate::Settings::default() };
    let (desk, _trigger) = opened(gate);
    let (heavy, light) = (mcp("heavy"), mcp("light"));
    assert_eq!(desk.gate.request(&heavy).unwrap(), Lane::Fast);
    // Of the 60 that may come at once, 40 more are used.
    desk.gate.charge_bytes(&heavy, 40 * 16 * 1024);
    assert_eq!(desk.gate.request(&heavy).unwrap(), Lane::Slow);
    desk.gate.charge_bytes(&heavy, 40 * 16 * 1024);
    let refused = desk.gate.request(&heavy).unwrap_err();
    assert!(refused.retry_after_ms().is_some_and(|wait| wait > 1000), "{refused:?}");
    assert_eq!(desk.gate.request(&light).unwrap(), Lane::Fast);
    desk.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_worked_on_in_turns_keeps_nobody_waiting_while_it_waits_itself() {
    let checks = checks::Settings { threads: 1, ..checks::Settings::default() };
    let (desk, _trigger) = opened_with(Settings { checks, ..Settings::default() });
    let caller = mcp("worker");
    let (go, wait) = tokio::sync::oneshot::channel::<u8>();
    let first = tokio::spawn({
        let desk = desk.clone();
        async move { desk.work_on(Lane::Slow, 0, wait).await }
    });
    // The second has its turn although the first has not ended.
    assert_eq!(desk.work_on(Lane::Slow, 0, async { 2 }).await, 2);
    // A large request is one of those who take turns, and small ones wait for nobody.
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (begun, is_begun) = std::sync::mpsc::channel::<()>();
    let busy = tokio::spawn({
        let desk = desk.clone();
        async move {
            let work = async move {
                begun.send(()).unwrap();
                _ = wait.recv();
            };
            desk.work_on(Lane::Slow, 0, work).await;
        }
    });
    tokio::task::block_in_place(|| is_begun.recv().unwrap());
    let mut large = std::pin::pin!(desk.work_on(Lane::Fast, 1 << 20, async { 3 }));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(large.as_mut().poll(cx).is_pending())).await);
    assert_eq!(desk.work_on(Lane::Fast, 0, async { 4 }).await, 4);
    go_on.send(()).unwrap();
    in_time(busy).await.unwrap();
    assert_eq!(in_time(large).await, 3);
    // What has its turn may need a thread for long checks, of which there is one.
    let long = desk.work_on(Lane::Slow, 0, desk.run_long(&caller, || (5, 0)));
    assert_eq!(in_time(long).await.unwrap(), 5);
    go.send(1).unwrap();
    assert_eq!(in_time(first).await.unwrap(), Ok(1));
    desk.stop();
}
