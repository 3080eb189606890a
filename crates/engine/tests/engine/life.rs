//! Whole lives: what is answered is in the log, once, whoever asks and however many.

use std::sync::Arc;

use handover_engine::Settings;
use handover_kernel::session::Standing;
use handover_kernel::{Charter, Command, Face, Refusal, Seq};
use handover_store::{Filter, Order, SqliteStore, Store};

use crate::faulty::Faulty;
use crate::stage::*;

on_every_store! {
    async fn a_task_lives_from_its_start_to_its_commitment(store) {
        let stage = Stage::on(&store);
        stage.requested("s", task(Charter::macp())).await;
        let accepted = stage.ok("s", "worker", accept()).await;
        assert_eq!((accepted.receipt.seq, accepted.standing()), (Seq(3), Standing::Working));
        stage.ok("s", "worker", update("half")).await;
        stage.ok("s", "worker", complete()).await;
        let committed = stage.ok("s", "planner", commit("task.completed")).await;
        assert_eq!(committed.standing(), Standing::ResolvedPositive);
        assert_eq!(kinds(&stage.log("s")), LIFE);
        let session = stage.session("s").await.unwrap();
        assert_eq!((session.head, session.standing()), (Seq(6), Standing::ResolvedPositive));
        let row = store.row(&key("s")).unwrap().unwrap();
        assert_eq!(row, handover_engine::view::row(&session));
        assert_eq!(row.finished_at, Some(committed.receipt.at.0));
    }

    async fn a_retry_with_the_same_message_id_gets_the_first_answer_and_changes_nothing(store) {
        let stage = Stage::on(&store);
        let mut first = Vec::new();
        let acts = [("planner", start(task(Charter::mcp()))), ("planner", request()), ("worker", accept())];
        for (index, (by, act)) in acts.iter().enumerate() {
            first.push(stage.put_as(&format!("m{index}"), "s", by, act.clone()).await.unwrap());
        }
        stage.put_as("later", "s", "worker", update("half")).await.unwrap();
        let again = |stage: Stage| {
            let (first, acts) = (first.clone(), acts.clone());
            async move {
                for (index, (by, act)) in acts.iter().enumerate() {
                    let told = stage.put_as(&format!("m{index}"), "s", by, act.clone()).await.unwrap();
                    assert!(told.receipt.duplicate && !first[index].receipt.duplicate);
                    assert_eq!(
                        (told.receipt.seq, told.receipt.at),
                        (first[index].receipt.seq, first[index].receipt.at)
                    );
                }
                assert_eq!(stage.log("s").len(), 4);
            }
        };
        again(stage).await;
        again(Stage::on(&store)).await;
    }

    // RFC-MACP-0001 lets a runtime refuse a used id with DUPLICATE_MESSAGE: here, whenever it is another message.
    async fn a_used_id_is_no_excuse_to_drop_another_message(store) {
        let named = |by: &str, act| Command::by(&agent(by), Face::Macp, act).in_session_scope().with_id("m1");
        // A snapshot every few events: what it keeps of ids is what the log says.
        let settings = || {
            let mut settings = Settings::default();
            settings.shard.snapshot_every = 4;
            settings
        };
        let stage = Stage::with(&store, settings());
        stage.working("s", task(Charter::macp())).await;
        let first = stage.engine.submit(key("s"), named("worker", update("half"))).await.unwrap();
        for number in 0..40 {
            stage.ok("s", "worker", update(&number.to_string())).await;
        }
        stage.ok("s", "worker", complete()).await;
        let length = stage.log("s").len();
        let again = |stage: Stage| async move {
            for (by, act) in [
                ("planner", commit("task.completed")),
                ("planner", update("half")),
                ("worker", update("more than half")),
                ("worker", complete()),
            ] {
                let answer = stage.engine.submit(key("s"), named(by, act)).await;
                assert_eq!(refusal(answer), Refusal::DuplicateMessage);
            }
            let told = stage.engine.submit(key("s"), named("worker", update("half"))).await.unwrap();
            assert!(told.receipt.duplicate);
            assert_eq!((told.receipt.seq, told.receipt.at), (first.receipt.seq, first.receipt.at));
            assert_eq!(stage.log("s").len(), length, "nothing was done");
            stage
        };
        drop(again(stage).await);
        let stage = again(Stage::with(&store, settings())).await;
        let other = Command::by(&agent("planner"), Face::Mcp, commit("task.completed")).with_id("m1");
        stage.engine.submit(key("s"), other).await.expect("an id of another wire is another id");
    }

    async fn a_refusal_leaves_no_trace(store) {
        let stage = Stage::on(&store);
        stage.working("s", task(Charter::macp())).await;
        let before = written(&*store);
        assert!(matches!(stage.refused("s", "helper", accept()).await, Refusal::AlreadyAssigned { .. }));
        assert!(matches!(stage.refused("s", "helper", complete()).await, Refusal::NotAssignee { .. }));
        assert!(matches!(stage.refused("s", "outsider", steer("x")).await, Refusal::NotParticipant { .. }));
        assert_eq!(stage.refused("s", "planner", start(task(Charter::macp()))).await, Refusal::SessionExists);
        assert_eq!(stage.refused("nowhere", "planner", request()).await, Refusal::SessionNotFound);
        assert!(stage.session("nowhere").await.is_none());
        assert_eq!(written(&*store), before);
        assert_eq!(store.list(&Filter::default(), Order::Oldest, None, 10).unwrap().sessions.len(), 1);
        assert_eq!(stage.engine.sessions_in_memory(), 1, "what does not exist takes no memory");
    }

    async fn an_answer_comes_only_when_its_event_is_in_the_store(store) {
        let stage = Arc::new(Stage::on(&store));
        stage.working("s", task(Charter::macp())).await;
        let clients = (0..8).map(|client| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move {
                for index in 0..25 {
                    let told = stage.ok("s", "worker", update(&format!("{client} {index}"))).await;
                    let stored = stage.store.read(&key("s"), told.receipt.seq.0 - 1, 1).unwrap();
                    assert_eq!(stored[0].seq, told.receipt.seq.0);
                    let session = stage.session("s").await.unwrap();
                    let head = stage.store.head(&key("s")).unwrap().unwrap();
                    assert!(told.receipt.seq <= session.head && session.head.0 <= head);
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        assert_eq!(stage.log("s").len(), 3 + 8 * 25);
    }

    async fn many_clients_on_many_sessions_all_come_to_an_end(store) {
        let stage = Arc::new(Stage::on(&store));
        let clients = (0..64).map(|client| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move {
                for life in 0..20 {
                    stage.life(&format!("{client}-{life}")).await;
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        for client in 0..64 {
            for life in 0..20 {
                assert_eq!(kinds(&stage.log(&format!("{client}-{life}"))), LIFE);
            }
        }
        assert_eq!(written(&*store), 64 * 20 * LIFE.len() as u64);
        assert!(store.open_counts().unwrap().is_empty());
    }

    async fn of_two_agents_that_race_to_accept_exactly_one_wins(store) {
        let stage = Stage::on(&store);
        for round in 0..200 {
            let name = format!("race {round}");
            stage.requested(&name, task(Charter::macp())).await;
            let (one, other) =
                tokio::join!(stage.put(&name, "worker", accept()), stage.put(&name, "helper", accept()));
            let (winner, lost) = match (&one, other) {
                (Ok(_), lost) => ("worker", refusal(lost)),
                (Err(_), Ok(_)) => ("helper", refusal(one)),
                (Err(_), Err(_)) => panic!("nobody won"),
            };
            assert_eq!(lost, Refusal::AlreadyAssigned { assignee: agent(winner) });
            assert_eq!(kinds(&stage.log(&name)), ["Started", "Requested", "Accepted"]);
        }
    }

    async fn one_commit_serves_everybody_who_waits(store) {
        let counted = Faulty::over(store);
        let store: Arc<dyn Store> = counted.clone();
        let stage = Arc::new(Stage::on(&store));
        let put = |name: String| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move { stage.ok(&name, "planner", start(task(Charter::macp()))).await })
        };
        counted.hold();
        let mut clients = vec![put("first".to_owned())];
        until("a commit", || counted.count(&counted.commits) == 1).await;
        clients.extend((0..100).map(|index| put(format!("{index}"))));
        until("everybody has been decided", || stage.engine.sessions_in_memory() == 101).await;
        counted.release();
        for client in clients {
            client.await.unwrap();
        }
        assert_eq!((counted.count(&counted.commits), counted.count(&counted.events)), (2, 101));
        assert_eq!(stage.metrics.commits.get(), 2);
        assert_eq!(stage.metrics.events_appended.get(), 101);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_goes_on_after_its_directory_was_closed_and_opened_again() {
    in_time(async {
        let dir = tempfile::tempdir().unwrap();
        let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(dir.path()).unwrap()) };
        let stage = Stage::on(&open());
        stage.working("s", task(Charter::macp())).await;
        let before = stage.session("s").await.unwrap();
        drop(stage);
        let stage = Stage::on(&open());
        assert_eq!(stage.session("s").await.unwrap(), before);
        stage.ok("s", "worker", update("half")).await;
        stage.ok("s", "worker", complete()).await;
        drop(stage);
        let stage = Stage::on(&open());
        stage.ok("s", "planner", commit("task.completed")).await;
        assert_eq!(kinds(&stage.log("s")), LIFE);
    })
    .await;
}
