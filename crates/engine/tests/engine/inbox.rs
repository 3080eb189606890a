//! What waits for whom, and that an upgrade finds it out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use handover_engine::index::{self, INDEX_VERSION};
use handover_engine::log::{load, revive};
use handover_engine::view::{self, Summary, WaitKind};
use handover_kernel::Charter;
use handover_kernel::charter::Authority;
use handover_kernel::command::{
    Act, CheckInTerms, ModeKind, Need, NewQuestion, Next, Progress, Start, TaskAct,
};
use handover_kernel::{Blob, QuestionKey, Text};
use handover_store::{Filter, Listed, Order, SqliteStore, Store};
use prost::Message;

use crate::faulty::Faulty;
use crate::stage::*;

/// The names of the kinds for which a session waits, by agent.
type Waits = BTreeMap<String, Vec<String>>;

fn waits(store: &dyn Store, session: &handover_store::SessionKey) -> Waits {
    let row = store.row(session).unwrap().expect("it has a row");
    let names = |kinds| WaitKind::of(kinds).map(|kind| format!("{kind:?}")).collect();
    row.waits.iter().map(|waits| (waits.agent.to_string(), names(waits.kinds))).collect()
}

fn says<const N: usize>(expected: [(&str, &[&str]); N]) -> Waits {
    let names = |kinds: &[&str]| kinds.iter().map(ToString::to_string).collect();
    expected.into_iter().map(|(agent, kinds)| (agent.to_owned(), names(kinds))).collect()
}

fn ask() -> Act {
    let question = NewQuestion {
        key: Some(QuestionKey::from("q")),
        need: Need::Input,
        text: Text::from("which?"),
        schema: Blob::default(),
        wire: None,
    };
    Act::Task(TaskAct::Ask { task: None, questions: vec![question], progress: Progress::default() })
}

fn decline() -> Act {
    Act::Task(TaskAct::Decline { task: None, assignee: None, reason: Text::default() })
}

on_every_store! {
    async fn a_task_waits_for_one_agent_after_another(store) {
        let stage = Stage::on(&store);
        let now = |name: &str| waits(&*store, &key(name));
        stage.ok("t", "planner", start(task(Charter::macp()))).await;
        assert_eq!(now("t"), says([]));
        stage.ok("t", "planner", request()).await;
        assert_eq!(now("t"), says([("helper", &["TaskOffer"]), ("worker", &["TaskOffer"])]));
        stage.ok("t", "helper", decline()).await;
        assert_eq!(now("t"), says([("worker", &["TaskOffer"])]));
        stage.ok("t", "planner", Act::Pause { reason: Text::default(), gently: false }).await;
        assert_eq!(now("t"), says([]), "nobody can take it now");
        stage.ok("t", "planner", Act::Resume { reason: Text::default() }).await;
        stage.ok("t", "worker", accept()).await;
        assert_eq!(now("t"), says([("worker", &["InHand"])]));
        stage.ok("t", "planner", steer("left")).await;
        assert_eq!(now("t"), says([("worker", &["InHand", "Orders"])]));
        stage.ok("t", "worker", ask()).await;
        assert_eq!(now("t"), says([("planner", &["Question"]), ("worker", &["InHand", "Orders"])]));
        stage.ok("t", "worker", say("here")).await;
        assert_eq!(now("t")["planner"], ["Question", "Unread"]);
        stage.ok("t", "worker", complete()).await;
        assert_eq!(now("t")["planner"], ["Review", "Unread"]);
        stage.ok("t", "planner", commit("task.completed")).await;
        assert_eq!(now("t"), says([("planner", &["Unread"])]), "the end leaves only what was not read");
        stage.ok("t", "planner", Act::Task(TaskAct::Read { up_to: handover_kernel::Seq(u64::MAX) })).await;
        assert_eq!(now("t"), says([]));
    }

    async fn a_conversation_waits_for_who_has_not_read_not_replied_or_not_checked_in(store) {
        let stage = Stage::on(&store);
        let now = || waits(&*store, &key("t"));
        let charter = Charter { check_in_ms: Some(20), ..Charter::grid() };
        let two = Start { participants: vec![agent("planner"), agent("worker")], ..task(charter) };
        stage.requested("t", two).await;
        stage.until_log_has("t", "CheckInMissed").await;
        assert_eq!(now(), says([("planner", &["CheckInMissed"]), ("worker", &["TaskOffer", "Unread"])]));
        stage.ok("t", "worker", Act::Task(TaskAct::Acknowledge)).await;
        assert_eq!(now(), says([("worker", &["TaskOffer", "Unread"])]));
        let body = Blob::from(&b"and then?"[..]);
        let wait = TaskAct::Say { body, next: Next::Delivers, check_in: CheckInTerms::default() };
        stage.ok("t", "worker", Act::Task(wait)).await;
        assert_eq!(now(), says([("planner", &["Unread", "Reply"]), ("worker", &["InHand", "Unread"])]));
    }

    async fn an_offer_waits_for_its_target_and_then_for_whoever_may_commit(store) {
        let stage = Stage::on(&store);
        let now = || waits(&*store, &key("h"));
        let authority = Authority::Designated([agent("auditor")].into());
        let charter = Charter { authority, ..Charter::macp() };
        let cast = ["planner", "helper"].map(agent).to_vec();
        let handoff = Start { mode: ModeKind::Handoff, participants: cast, ..task(charter) };
        stage.ok("h", "planner", start(handoff)).await;
        stage.ok("h", "planner", offer("o", "helper", "the runbook")).await;
        assert_eq!(now(), says([("helper", &["HandoffOffer"]), ("planner", &["Offered"])]));
        stage.ok("h", "helper", take_offer("o")).await;
        assert_eq!(now(), says([("auditor", &["Review"])]));
    }

    async fn a_task_that_nobody_is_left_to_take_waits_for_its_requester(store) {
        let stage = Stage::on(&store);
        stage.requested("t", task(Charter::macp())).await;
        for name in ["worker", "helper"] {
            stage.ok("t", name, decline()).await;
        }
        assert_eq!(waits(&*store, &key("t")), says([("planner", &["Review"])]));
        let page = stage.engine.inbox(TENANT, "planner", WaitKind::Review.bit(), None, 10).await.unwrap();
        assert_eq!(page.sessions.len(), 1);
        assert_eq!((&page.sessions[0].key, page.sessions[0].kinds), (&key("t"), WaitKind::Review.bit()));
        let other = stage.engine.inbox(TENANT, "planner", WaitKind::InHand.bit(), None, 10).await.unwrap();
        assert!(other.sessions.is_empty());
    }
}

// A row for every message would make a conversation twice as dear.
#[tokio::test]
async fn rows_are_written_when_somebody_begins_to_wait_and_not_with_every_event() {
    let faulty = Faulty::in_memory();
    let store: Arc<dyn Store> = Arc::clone(&faulty) as Arc<dyn Store>;
    let stage = Stage::on(&store);
    stage.working("t", task(Charter::macp())).await;
    let before = faulty.count(&faulty.rows);
    for _ in 0..3 {
        stage.ok("t", "worker", update("so far")).await;
    }
    assert_eq!(faulty.count(&faulty.rows), before);
    for _ in 0..3 {
        stage.ok("t", "worker", say("hm")).await;
    }
    assert_eq!(faulty.count(&faulty.rows), before + 1);
}

/// A copy of a data directory that an earlier release wrote.
fn data_of(schema: &str) -> (tempfile::TempDir, Arc<dyn Store>) {
    let from: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(schema);
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(from.join("handover.db"), dir.path().join("handover.db")).unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    (dir, store)
}

#[test]
fn an_upgrade_from_schema_1_finds_out_for_whom_every_unfinished_session_waits() {
    let (_dir, store) = data_of("schema-1");
    assert_eq!(index::refresh(&*store).unwrap(), 9);
    let expected = [
        ("f6579cda-e6d8-4c95-a6a7-42421d7455db", says([("builder", &["TaskOffer"])])),
        ("cad5a373-130a-42ff-815f-f086065cffda", says([("builder", &["InHand"])])),
        (
            "44129980-8a9b-4710-9336-a897d2f57358",
            says([("builder", &["InHand"]), ("planner", &["Question"])]),
        ),
        ("52732bc2-8a0e-4d60-abdd-5da4e2a7deff", says([("builder", &["InHand", "Orders"])])),
        ("f7e6c190-dca3-4762-8681-c88ae51c662e", says([("builder", &["InHand"])])),
        ("83c87def-5cba-45bf-8577-63b7700c3206", says([])),
        ("688f7dca-666a-4bc6-a451-d27ee938952c", says([])),
        ("c6b1a573-0843-422a-a3ec-ee82e4711ec3", says([])),
        ("bf311412-6da4-4d75-ba48-f6a70f375429", says([("reviewer", &["InHand"])])),
        ("94421ebf-04a6-49a9-8529-0eadbc67be27", says([("builder", &["InHand"])])),
        (
            "c34ea428-ae42-457b-8c3b-28f3d97a8774",
            says([("builder", &["Offered"]), ("reviewer", &["HandoffOffer"])]),
        ),
        ("3c2717d0-1772-4958-a4db-b387d688dd69", says([("builder", &["Review"])])),
    ];
    for (session, expected) in expected {
        let session = handover_store::SessionKey::new("default", session);
        assert_eq!(waits(&*store, &session), expected, "{session}");
    }
    let rows = || store.list(&Filter::default(), Order::Oldest, None, 100).unwrap();
    let refreshed = rows();
    assert_eq!((index::refresh(&*store).unwrap(), store.index_version().unwrap()), (0, INDEX_VERSION));
    assert_eq!(index::rebuild(&*store, |_| ()).unwrap(), 12);
    // The rows of finished sessions are as they were written: they do not say on which face the session began, nor since when it
    // stands as it does.
    let mut rebuilt = rows();
    for Listed { key, row, .. } in &mut rebuilt.sessions {
        let mut summary = Summary::decode(&row.summary[..]).unwrap();
        let session = revive(key, load(&*store, key, 100).unwrap()).unwrap().unwrap();
        assert_eq!((summary.face, summary.stands_since), (Some(2), Some(session.stands_since.0)), "{key}");
        for waits in &row.waits {
            let since = WaitKind::of(waits.kinds).map(|kind| view::since(&session, kind)).min();
            assert_eq!(summary.waits_since(waits.kinds), since, "{key}");
        }
        if row.finished_at.is_some() {
            (summary.face, summary.stands_since) = (None, None);
            row.summary = summary.encode_to_vec();
        }
    }
    assert_eq!((rebuilt, store.index_version().unwrap()), (refreshed, INDEX_VERSION));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_starts_on_older_data_serves_full_inboxes() {
    let (_dir, store) = data_of("schema-1");
    let stage = Stage::on(&store);
    let page = stage.engine.inbox("default", "reviewer", u32::MAX, None, 10).await.unwrap();
    let kinds: Vec<u32> = page.sessions.iter().map(|waiting| waiting.kinds).collect();
    assert_eq!(kinds, [WaitKind::InHand.bit(), WaitKind::HandoffOffer.bit()]);
}
