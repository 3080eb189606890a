//! The index is disposable: thrown away and made again from the logs, it is the same.

use std::sync::Arc;

use handover_engine::{Denied, index};
use handover_kernel::command::{Act, Answer, ModeKind, Need, NewQuestion, Progress, Reply, Start, TaskAct};
use handover_kernel::{Blob, Charter, QuestionKey, SessionId, Text};
use handover_store::{Append, Filter, Listed, MemoryStore, Order, SessionKey, Store, Wake};

use crate::stage::*;

const CAST: [&str; 4] = ["planner", "worker", "helper", "outsider"];

/// All rows, in order, and all wake times.
fn dump(store: &dyn Store) -> (Vec<Listed>, Vec<(SessionKey, u64)>) {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(&Filter::default(), Order::Oldest, after, 100).unwrap();
        rows.extend(page.sessions);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let mut wakes = store.due(u64::MAX, usize::MAX >> 1).unwrap();
    wakes.sort();
    (rows, wakes)
}

fn begin(random: &mut Random, tasks: usize) -> Start {
    let mut charter = [Charter::macp(), Charter::mcp(), Charter::grid()][random.below(3)].clone();
    charter.reassignment |= random.below(2) == 0;
    if random.below(3) == 0 {
        charter.implicit_accept_ms = Some(1 + random.below(100_000) as u64);
    }
    let mode = if random.below(4) == 0 { ModeKind::Handoff } else { ModeKind::Task };
    let participants = CAST[..2 + random.below(3)].iter().map(|name| agent(name)).collect();
    let ttl_ms = [None, Some(5), Some(100_000), Some(10_000_000)][random.below(4)];
    let parent = (tasks > 0 && random.below(5) == 0).then(|| SessionId::from(name(random.below(tasks))));
    Start { mode, participants, ttl_ms, parent, ..task(charter) }
}

fn name(index: usize) -> String {
    format!("life {index}")
}

fn anything(random: &mut Random, sessions: usize) -> Act {
    let text = || Text::from("so");
    let act = match random.below(16) {
        0 => return request(),
        1 => return accept(),
        2 => return update("half"),
        3 => return complete(),
        4 => return commit("task.completed"),
        5 => return commit("task.failed"),
        6 => return say("a word"),
        7 => return steer("left"),
        8 => return Act::Pause { reason: text(), gently: random.below(2) == 0 },
        9 => return Act::Resume { reason: text() },
        10 if random.below(3) == 0 => return cancel(),
        11 => {
            let scope = format!("task:{}", name(random.below(sessions)));
            return offer(&format!("o{}", random.below(3)), CAST[random.below(4)], &scope);
        }
        12 => return take_offer(&format!("o{}", random.below(3))),
        13 => TaskAct::Ask {
            task: None,
            questions: vec![NewQuestion {
                key: Some(QuestionKey::from(format!("q{}", random.below(4)))),
                need: if random.below(2) == 0 { Need::Input } else { Need::Authorization },
                text: text(),
                schema: Blob::default(),
                wire: None,
            }],
            progress: Progress::default(),
        },
        14 => TaskAct::Answer {
            answers: vec![Answer {
                key: QuestionKey::from(format!("q{}", random.below(4))),
                reply: Reply::Content(Blob::from(&b"yes"[..])),
            }],
            ignore_unknown: false,
            refuse_when_paused: false,
        },
        _ => TaskAct::Decline { task: None, assignee: None, reason: text() },
    };
    Act::Task(act)
}

/// One client that tries anything on a session; most of it is refused.
async fn try_anything(stage: &Stage, session: usize, sessions: usize) -> usize {
    let mut random = Random(session as u64);
    let mut accepted = 0;
    let starts = begin(&mut random, session);
    let requester = CAST[random.below(2)];
    if stage.put(&name(session), requester, Act::Start(Box::new(starts))).await.is_err() {
        return 0;
    }
    accepted += usize::from(stage.put(&name(session), requester, request()).await.is_ok());
    for _ in 0..30 {
        let by = CAST[random.below(4)];
        let act = anything(&mut random, sessions);
        accepted += usize::from(stage.put(&name(session), by, act).await.is_ok());
    }
    accepted
}

on_every_store! {
    async fn the_index_that_is_made_again_from_the_logs_is_the_one_that_was_written_with_them(store) {
        const SESSIONS: usize = 300;
        let stage = Arc::new(Stage::on(&store));
        let mut accepted = 0;
        for chunk in (0..SESSIONS).collect::<Vec<_>>().chunks(50) {
            let clients: Vec<_> = chunk
                .iter()
                .map(|session| {
                    let (stage, session) = (Arc::clone(&stage), *session);
                    tokio::spawn(async move { try_anything(&stage, session, SESSIONS).await })
                })
                .collect();
            for client in clients {
                accepted += client.await.unwrap();
            }
        }
        stage.engine.stop();
        let before = dump(&*store);
        let statuses: std::collections::BTreeSet<u8> = before.0.iter().map(|listed| listed.row.status).collect();
        assert!(accepted > SESSIONS && statuses.len() >= 8, "found {accepted} accepted and {statuses:?}");
        assert!(before.0.len() > SESSIONS / 2 && before.1.len() > 20, "found {}", before.1.len());
        assert!(before.0.iter().any(|listed| listed.row.kind == 2));

        let mut progress = Vec::new();
        let done = index::rebuild(&*store, |done| progress.push(done)).unwrap();
        assert_eq!((done as usize, progress.last()), (before.0.len(), Some(&done)));
        assert_eq!(dump(&*store), before);
        assert_eq!(index::rebuild(&*store, |_| ()).unwrap(), done);
        assert_eq!(dump(&*store), before);
    }

    async fn an_index_that_was_lost_is_made_again_and_the_engine_goes_on_with_it(store) {
        let stage = Stage::on(&store);
        stage.life("finished").await;
        stage.ok("open", "planner", start(task_for(1_000))).await;
        drop(stage);
        store.clear_index().unwrap();
        assert!(dump(&*store).0.is_empty());
        assert_eq!(index::rebuild(&*store, |_| ()).unwrap(), 2);
        let stage = Stage::on(&store);
        stage.until_log_has("open", "Expired").await;
        assert!(store.open_counts().unwrap().is_empty());
    }
}

#[test]
fn a_log_that_cannot_be_read_stops_the_rebuilding_and_is_named() {
    let store = MemoryStore::new();
    let events = vec![b"no event".to_vec()];
    store
        .append(&[Append {
            key: key("torn"),
            expected: 0,
            events,
            row: None,
            wake: Wake::Never,
            snapshot: None,
        }])
        .unwrap();
    match index::rebuild(&store, |_| ()) {
        Err(Denied::Unreadable(what)) => assert!(what.starts_with("session stage/torn cannot be read: ")),
        other => panic!("found {other:?}"),
    }
}
