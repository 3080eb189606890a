//! Several engines on one store: each answers what is so, whoever wrote it, and everybody hears everything in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use handover_engine::clock::now;
use handover_engine::index::INDEX_VERSION;
use handover_engine::{Denied, Elsewhere, OnHeard, Settings, Topic};
use handover_kernel::command::{Act, Answer, Command, Need, NewQuestion, Progress, Reply, TaskAct};
use handover_kernel::{Blob, Charter, Face, QuestionKey, Refusal, Text};
use handover_store::postgres::{Options, Says};
use handover_store::{IndexRow, MemoryStore, Place, PostgresStore, Slot, Store, Wake};

use crate::database;
use crate::faulty::Faulty;
use crate::stage::*;
use crate::subscriptions::{follow, stored};

/// So many engines, each on its own way to one store.
fn stages(stores: Vec<Arc<dyn Store>>) -> Vec<Arc<Stage>> {
    let settings = Settings { poll_ms: 5, ..Settings::default() };
    stores.iter().map(|store| Arc::new(Stage::with(store, settings.clone()))).collect()
}

/// Makes a test on each kind of store that several nodes can share out of each play, with three nodes.
macro_rules! on_shared_stores {
    ($(async fn $name:ident($nodes:ident) $body:block)+) => {$(
        mod $name {
            use super::*;

            async fn play($nodes: Vec<Arc<Stage>>) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                let store = MemoryStore::new();
                let writer = |slot| Arc::new(store.writer(Slot(slot))) as Arc<dyn Store>;
                in_time(play(stages((0..3).map(writer).collect()))).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_a_database() {
                let schema = database::fresh();
                let node = |_| database::open(&schema).map(|store| Arc::new(store) as Arc<dyn Store>);
                if let Some(stores) = (0..3).map(node).collect() {
                    in_time(play(stages(stores))).await;
                }
            }
        }
    )+};
}

fn ask(question: &str) -> Act {
    let (key, text) = (Some(QuestionKey::from(question)), Text::from("which one?"));
    let question = NewQuestion { key, need: Need::Input, text, schema: Blob::default(), wire: None };
    Act::Task(TaskAct::Ask { task: None, questions: vec![question], progress: Progress::default() })
}

fn answer(question: &str) -> Act {
    let reply = Reply::Content(Blob::from(&b"this one"[..]));
    let answers = vec![Answer { key: QuestionKey::from(question), reply }];
    Act::Task(TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: false })
}

on_shared_stores! {
    async fn an_answer_to_a_question_that_another_node_has_taken_is_accepted(nodes) {
        for round in 0..50 {
            let name = format!("s{round}");
            nodes[0].working(&name, task(Charter::macp())).await;
            // In memory there, as it was before the question.
            assert!(nodes[1].session(&name).await.is_some());
            nodes[0].ok(&name, "worker", ask("q1")).await;
            nodes[1].ok(&name, "planner", answer("q1")).await;
        }
    }

    async fn a_checkpoint_hears_of_an_order_that_another_node_has_taken(nodes) {
        for round in 0..50 {
            let name = format!("s{round}");
            nodes[0].working(&name, task(Charter::macp())).await;
            // In memory there, as it was before the order: then a checkpoint would have nothing to write.
            assert!(nodes[1].session(&name).await.is_some());
            let steered = nodes[0].ok(&name, "planner", steer("compare with last year")).await;
            let checkpoint = nodes[1].ok(&name, "worker", Act::Task(TaskAct::Checkpoint)).await;
            assert!(checkpoint.receipt.seq > steered.receipt.seq, "at {}", checkpoint.receipt.seq);
            assert!(kinds(&nodes[2].log(&name)).contains(&"Checkpointed".to_owned()));
        }
    }

    async fn a_look_shows_what_another_node_has_acknowledged(nodes) {
        nodes[0].working("s", task(Charter::macp())).await;
        for round in 0..100 {
            let (writer, reader) = (&nodes[round % 3], &nodes[(round + 1) % 3]);
            let accepted = writer.ok("s", "worker", update(&format!("{round}"))).await;
            let session = reader.session("s").await.unwrap();
            let seq = accepted.receipt.seq;
            assert!(session.head >= seq, "saw {} after {seq}", session.head);
        }
    }

    async fn a_session_that_another_node_deleted_is_served_by_nobody_from_memory(nodes) {
        for round in 0..20 {
            let name = format!("s{round}");
            nodes[0].life(&name).await;
            for node in &nodes {
                assert!(node.session(&name).await.is_some());
            }
            let deleted = || nodes[0].store.delete_finished(now().0, now().0, 10).unwrap().len() == 1;
            until("it has ended before now", deleted).await;
            assert!(nodes[1].session(&name).await.is_none());
            assert_eq!(nodes[2].refused(&name, "planner", cancel()).await, Refusal::SessionNotFound);
        }
    }

    async fn the_same_message_has_one_effect_wherever_it_is_sent(nodes) {
        nodes[0].working("s", task(Charter::macp())).await;
        for round in 0..30 {
            let command = |node: &Arc<Stage>| {
                let (node, id) = (Arc::clone(node), format!("m{round}"));
                async move { node.put_as(&id, "s", "worker", update("half")).await }
            };
            let (one, two, three) = tokio::join!(command(&nodes[0]), command(&nodes[1]), command(&nodes[2]));
            let seqs = [one, two, three].map(|accepted| accepted.unwrap().receipt.seq);
            assert!(seqs.iter().all(|seq| *seq == seqs[0]), "{seqs:?}");
        }
        assert_eq!(written(&*nodes[0].store), 3 + 30);
    }

    async fn a_refusal_rests_on_what_another_node_has_acknowledged(nodes) {
        for round in 0..50 {
            let name = format!("s{round}");
            nodes[0].working(&name, task(Charter::macp())).await;
            assert!(nodes[1].session(&name).await.is_some());
            nodes[0].ok(&name, "planner", cancel()).await;
            assert_eq!(nodes[1].refused(&name, "worker", update("half")).await.code(), "SESSION_ENDED");
        }
    }

    async fn open_sessions_and_what_is_stored_are_counted_over_all_nodes(nodes) {
        let begin = |node: &Arc<Stage>, session: &str| {
            let (node, key) = (Arc::clone(node), key(session));
            let start = start(task(Charter::macp()));
            let command = Command::by(&agent("planner"), Face::Macp, start).in_session_scope();
            async move { node.engine.submit_within(key, command, 3).await }
        };
        for round in 0..3 {
            begin(&nodes[0], &format!("s{round}")).await.unwrap();
        }
        nodes[1].engine.fresh().await.unwrap();
        assert_eq!(refusal(begin(&nodes[1], "s3").await).code(), "TOO_MANY_SESSIONS");
        nodes[2].ok("s0", "planner", cancel()).await;
        nodes[1].engine.fresh().await.unwrap();
        begin(&nodes[1], "s3").await.unwrap();
        for node in &nodes {
            node.engine.fresh().await.unwrap();
        }
        let stored = |node: &Arc<Stage>| node.engine.stored(TENANT, "planner");
        assert!(stored(&nodes[0]).0 > 0 && nodes.iter().all(|node| stored(node) == stored(&nodes[0])));
    }

    async fn followers_on_every_node_hear_everything_once_and_in_order(nodes) {
        let done = Arc::new(AtomicBool::new(false));
        let topics = [Topic::Everything, of_agent("worker"), of_session("1-1")];
        let mut followers = Vec::new();
        for stage in &nodes {
            for topic in topics.clone() {
                let (stage, done) = (Arc::clone(stage), Arc::clone(&done));
                followers.push(tokio::spawn(async move {
                    (follow(&stage, topic.clone(), &Place::default(), &done).await.0, topic)
                }));
            }
        }
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let stage = Arc::clone(&nodes[writer % 3]);
                tokio::spawn(async move {
                    for life in 0..8 {
                        stage.life(&format!("{writer}-{life}")).await;
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        done.store(true, Ordering::SeqCst);
        for follower in followers {
            let (mut heard, topic) = follower.await.unwrap();
            if matches!(topic, Topic::Session(_)) {
                assert!(heard.is_sorted_by_key(|(_, event)| event.seq), "{topic:?}: out of order");
            }
            let mut expected = stored(&*nodes[0].store, &topic, &Place::default());
            heard.sort_by_key(|(position, _)| *position);
            expected.sort_by_key(|(position, _)| *position);
            assert_eq!(heard, expected, "{topic:?}");
        }
    }
}

/// A node loses its slot while it is deaf, and takes that of another, of whose last events it has not heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_node_of_an_earlier_release_are_made_again_when_it_is_gone() {
    let Some(options) = database::options(&database::fresh()) else { return };
    let open = |index| {
        let says = Says { index: Some(index), ..Says::default() };
        PostgresStore::open(Options { says, ..options.clone() }).unwrap()
    };
    let old = open(INDEX_VERSION - 1);
    let new: Arc<dyn Store> = Arc::new(open(INDEX_VERSION));
    let stage = Stage::on(&new);
    stage.working("s", task(Charter::macp())).await;
    let row = || new.row(&key("s")).unwrap().unwrap();
    let whole = row();
    assert!(!whole.waits.is_empty());
    // As an earlier release writes it, which does not know for whom a session waits.
    let less = IndexRow { waits: Vec::new(), ..whole.clone() };
    old.restore_index(&[(key("s"), less.clone(), Wake::Unchanged)]).unwrap();
    assert!(new.index_version().unwrap() < INDEX_VERSION && row() == less);
    drop(old);
    until("it is gone", || new.index_version().unwrap() == INDEX_VERSION).await;
    assert_eq!(row(), whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_moves_to_another_slot_shows_and_tells_what_was_in_it() {
    let schema = database::fresh();
    let Some(options) = database::options(&schema) else { return };
    let one = Arc::new(PostgresStore::open(options.clone()).unwrap());
    let faulty = Faulty::over(Arc::<PostgresStore>::clone(&one));
    let two = Arc::new(PostgresStore::open(options.clone()).unwrap());
    let stages = stages(vec![Arc::<Faulty>::clone(&faulty), two]);
    let Ok([here, there]) = <[Arc<Stage>; 2]>::try_from(stages) else { panic!("two stages") };
    let anything = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&anything);
    here.engine.hear(OnHeard(Box::new(move |elsewhere| {
        heard.fetch_or(matches!(elsewhere, Elsewhere::Anything), Ordering::SeqCst);
    })));
    in_time(async {
        here.working("s", task(Charter::macp())).await;
        there.ok("s", "worker", update("heard")).await;
        let mut following = here.subscribe(Topic::Everything, 0);
        assert_eq!(take(&mut following, 4).await.len(), 4);
        assert!(here.session("s").await.is_some());
        faulty.deafen(true);
        let last = there.ok("s", "worker", update("unheard")).await.receipt.seq;
        drop(there);
        let _other = taker_of(&options, Slot(0)).await;
        // Its heart may have found it out before.
        _ = one.say(b"hello");
        assert_eq!(one.slot(), Some(Slot(1)));
        faulty.deafen(false);
        assert_eq!(here.session("s").await.unwrap().head, last);
        assert_eq!(take(&mut following, 1).await.len(), 1, "what was not heard before");
        let again = async || here.put("s", "worker", update("own")).await.is_ok();
        while !again().await {}
        assert_eq!(take(&mut following, 1).await.len(), 1, "what it wrote itself");
        until("it is said that anything may have happened", || anything.load(Ordering::SeqCst)).await;
    })
    .await;
}

/// A node that takes a slot from its holder, since it finds that anybody is gone who was not seen just now.
async fn taker_of(options: &Options, slot: Slot) -> PostgresStore {
    let hasty = Options { lease: Duration::from_millis(100), ..options.clone() };
    loop {
        let taker = PostgresStore::open(hasty.clone()).unwrap();
        if taker.slot() == Some(slot) {
            return taker;
        }
        drop(taker);
        tokio::time::sleep(hasty.lease).await;
    }
}

/// Nodes that look by themselves so seldom that only a hint can be in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_hears_at_once_of_what_another_node_did() {
    let schema = database::fresh();
    let settings = Settings { poll_ms: 10_000, ..Settings::default() };
    let node = || {
        let store = Arc::new(database::open(&schema)?) as Arc<dyn Store>;
        Some(Stage::with(&store, settings.clone()))
    };
    let (Some(one), Some(two)) = (node(), node()) else { return };
    in_time(async {
        until("they hear", || one.store.hints() && two.store.hints()).await;
        let mut following = two.subscribe(Topic::Everything, 0);
        let mut waited = Duration::ZERO;
        for round in 0..10 {
            one.life(&format!("s{round}")).await;
            let begun = Instant::now();
            assert_eq!(take(&mut following, LIFE.len()).await.len(), LIFE.len());
            waited += begun.elapsed();
        }
        // Without hints it would look every ten seconds.
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    })
    .await;
}

/// A node that looks at what others did only when somebody asks for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_of_a_session_that_is_being_written_waits_for_no_later_look() {
    let faulty = Faulty::over(Arc::new(MemoryStore::new().writer(Slot(0))));
    let store: Arc<dyn Store> = faulty.clone();
    let stage = Stage::with(&store, Settings { poll_ms: 3_600_000, ..Settings::default() });
    in_time(async {
        stage.working("s", task(Charter::macp())).await;
        let before = faulty.count(&faulty.commits);
        faulty.hold();
        let (updating, looking) = (stage.ok("s", "worker", update("half")), stage.session("s"));
        tokio::pin!(updating, looking);
        tokio::select! {
            _ = &mut updating => panic!("it is being written"),
            () = until("it is being written", || faulty.count(&faulty.commits) > before) => {}
        }
        tokio::select! {
            biased;
            _ = &mut looking => panic!("nobody knows yet what became of it"),
            () = std::future::ready(()) => {}
        }
        faulty.release();
        updating.await;
        assert_eq!(looking.await.unwrap().head.0, 4);
    })
    .await;
}

/// Nobody waits for a look that will not be made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_has_stopped_says_so_to_whoever_wants_to_know_what_others_did() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().writer(Slot(0)));
    let stage = Stage::on(&store);
    stage.engine.stop();
    assert!(matches!(in_time(stage.engine.fresh()).await, Err(Denied::Stopping)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_a_node_show_how_it_stands_among_the_others() {
    let schema = database::fresh();
    let node = |_| database::open(&schema).map(|store| Arc::new(store) as Arc<dyn Store>);
    let Some(stores) = (0..3).map(node).collect() else { return };
    let nodes = stages(stores);
    in_time(async {
        nodes[0].working("s", task(Charter::macp())).await;
        let lost = || nodes.iter().map(|node| node.metrics.conflicts.get()).sum::<u64>();
        while lost() == 0 {
            let [one, two] = [&nodes[0], &nodes[1]].map(|node| node.ok("s", "worker", update("half")));
            tokio::join!(one, two);
        }
        nodes[2].store.probe().unwrap();
        let metrics = &nodes[2].metrics;
        until("it knows of the others", || metrics.nodes.get() == 3).await;
        nodes[2].engine.fresh().await.unwrap();
        nodes[2].store.probe().unwrap();
        until("it knows what they did", || metrics.tail_behind_events.get() == 0).await;
    })
    .await;
    let mut registry = prometheus_client::registry::Registry::default();
    nodes[0].metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for name in ["tail_behind_events", "conflicts_total", "doubts_settled_total", "nodes"] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} in {text}");
    }
}
