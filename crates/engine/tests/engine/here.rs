//! Threads that may wait for the disk commit what is brought on them, with everything that is ready to go with it.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use handover_engine::shell::commit_on_this_thread;
use handover_engine::{OnPublished, Settings};
use handover_kernel::command::Command;
use handover_kernel::{Charter, Face};
use handover_store::{MemoryStore, Store};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::faulty::Faulty;
use crate::stage::*;

/// A play on a thread of its own, which may wait for the disk or not. It is told where each event was published.
fn play<T: Send>(commits: bool, act: impl AsyncFnOnce(&Stage) -> T + Send) -> (T, Vec<ThreadId>, ThreadId) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let on_published =
        Some(OnPublished(Arc::new(move |_| note.lock().unwrap().push(thread::current().id()))));
    let stage = Stage::with(&store, Settings { on_published, ..Settings::default() });
    let (told, here) = thread::scope(|scope| {
        let playing = scope.spawn(|| {
            if commits {
                commit_on_this_thread();
            }
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            (runtime.block_on(in_time(act(&stage))), thread::current().id())
        });
        playing.join().unwrap()
    });
    let seen = seen.lock().unwrap().clone();
    (told, seen, here)
}

async fn starts(stage: &Stage) {
    starts_as(stage, "a").await;
}

async fn starts_as(stage: &Stage, session: &str) {
    stage.ok(session, "planner", start(task(Charter::macp()))).await;
}

#[test]
fn a_command_is_committed_where_it_was_brought() {
    let ((), published, here) = play(true, starts);
    assert_eq!(published, [here]);
}

#[test]
fn on_any_other_thread_it_is_left_to_the_committer() {
    let ((), published, here) = play(false, starts);
    assert!(published.len() == 1 && published[0] != here);
}

#[test]
fn what_is_ready_at_the_same_time_shares_one_commit() {
    let (commits, published, here) = play(true, async |stage: &Stage| {
        let mut all = JoinSet::new();
        for index in 0..8 {
            let (engine, act) = (stage.engine.clone(), start(task(Charter::macp())));
            let command = Command::by(&agent("planner"), Face::Macp, act).in_session_scope();
            all.spawn(async move { engine.submit(key(&format!("{index}")), command).await });
        }
        assert!(all.join_all().await.iter().all(Result::is_ok));
        stage.metrics.commits.get()
    });
    assert_eq!((commits, published), (1, vec![here; 8]));
}

#[test]
fn what_its_sender_gave_up_before_the_commit_is_committed_all_the_same() {
    let (found, ..) = play(true, async |stage: &Stage| {
        let mut given_up = Box::pin(stage.put("a", "planner", start(task(Charter::macp()))));
        assert!(matches!(given_up.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
        drop(given_up);
        stage.until_log_has("a", "Started").await.len()
    });
    assert_eq!(found, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_while_another_thread_commits_is_not_forgotten() {
    in_time(async {
        let faulty = Faulty::in_memory();
        let store: Arc<dyn Store> = faulty.clone();
        let stage = Arc::new(Stage::on(&store));
        faulty.hold();
        let lane = |session: &'static str| {
            let stage = Arc::clone(&stage);
            thread::spawn(move || {
                commit_on_this_thread();
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(starts_as(&stage, session));
            })
        };
        let first = lane("a");
        until("the first is being written", || faulty.count(&faulty.commits) == 1).await;
        let second = lane("b");
        until("the second was decided", || stage.engine.sessions_in_memory() == 2).await;
        faulty.release();
        tokio::task::spawn_blocking(move || [first, second].map(|lane| lane.join().unwrap())).await.unwrap();
        assert_eq!(written(&*store), 2);
    })
    .await;
}
