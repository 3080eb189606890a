//! Whoever follows a topic hears of everything on it, once, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handover_engine::{Delivery, Ended, Settings, Topic};
use handover_kernel::charter::Authority;
use handover_kernel::{Charter, Event};
use handover_store::{MemoryStore, Place, Position, Slot, Store};

use crate::faulty::{Failing, Faulty};
use crate::stage::*;

/// What a follower should have heard: what the store says when all is over.
pub fn stored(store: &dyn Store, topic: &Topic, after: &Place) -> Vec<(Position, Event)> {
    let mut all: Vec<(Position, Event)> = Vec::new();
    loop {
        let last = reached(after, &all);
        let page = handover_engine::subscription::read_page(store, topic, &last).unwrap();
        if page.events.is_empty() {
            return all;
        }
        all.extend(page.events.iter().map(told));
    }
}

fn told(delivery: &Delivery) -> (Position, Event) {
    (delivery.position, (*delivery.event).clone())
}

/// Where somebody is who began after a place and has heard this.
fn reached(after: &Place, heard: &[(Position, Event)]) -> Place {
    let mut place = after.clone();
    heard.iter().for_each(|(position, _)| _ = place.reach(*position));
    place
}

/// Follow a topic to the end of what is written, beginning again where it was cut off. Says how often it was.
pub async fn follow(
    stage: &Stage,
    topic: Topic,
    after: &Place,
    done: &AtomicBool,
) -> (Vec<(Position, Event)>, u64) {
    let mut heard: Vec<(Position, Event)> = Vec::new();
    let mut cuts = 0;
    let mut subscription = stage.subscribe_after(topic.clone(), after.clone());
    loop {
        let last = reached(after, &heard);
        if done.load(Ordering::SeqCst) && stored(&*stage.store, &topic, &last).is_empty() {
            return (heard, cuts);
        }
        let next = tokio::time::timeout(std::time::Duration::from_millis(20), subscription.next()).await;
        match next {
            Ok(Ok(delivery)) => heard.push(told(&delivery)),
            Ok(Err(Ended::TooSlow { resume_after })) => {
                assert_eq!(resume_after, last, "it resumes where it was");
                cuts += 1;
                subscription = stage.subscribe_after(topic.clone(), resume_after);
            }
            Ok(Err(Ended::Denied(denied))) => panic!("found {denied:?}"),
            // Nothing new yet: see whether all is over.
            Err(_) => {}
        }
    }
}

/// Lives while everybody follows; everybody hears what is stored.
async fn follow_while_written(store: Arc<dyn Store>, queue_max: usize) -> u64 {
    let stage =
        Arc::new(Stage::with(&store, Settings { subscriber_queue_max: queue_max, ..Settings::default() }));
    for life in 0..10 {
        stage.life(&format!("before {life}")).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let mut topics = vec![(Topic::Everything, 0), (Topic::Everything, 31), (of_agent("worker"), 0)];
    topics.extend([(of_agent("planner"), 17), (of_agent("outsider"), 0), (of_session("before 3"), 2)]);
    topics.extend((0..4).map(|index| (of_session(&format!("{index}-1")), 0)));
    let followers: Vec<_> = topics
        .into_iter()
        .map(|(topic, after)| {
            let (stage, done) = (Arc::clone(&stage), Arc::clone(&done));
            let after = Place::first_slot(after);
            tokio::spawn(async move {
                let (heard, cuts) = follow(&stage, topic.clone(), &after, &done).await;
                (topic, after, heard, cuts)
            })
        })
        .collect();
    let writers: Vec<_> = (0..8)
        .map(|client| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move {
                for life in 0..12 {
                    stage.life(&format!("{client}-{life}")).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let mut cut = 0;
    for follower in followers {
        let (topic, after, heard, cuts) = follower.await.unwrap();
        assert!(
            heard.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].0.slot != pair[1].0.slot),
            "{topic:?}: out of order"
        );
        assert_eq!(heard, stored(&*store, &topic, &after), "{topic:?}");
        match &topic {
            Topic::Everything => assert_eq!(heard.len() as u64, after.behind(&store.last_place().unwrap())),
            Topic::Agent { agent, .. } if &**agent == "outsider" => assert!(heard.is_empty()),
            Topic::Agent { .. } => assert_eq!(heard.len() as u64, after.behind(&store.last_place().unwrap())),
            Topic::Session(_) => assert_eq!(heard.len() as u64, LIFE.len() as u64 - after.number(Slot(0))),
        }
        cut += cuts;
    }
    cut
}

on_every_store! {
    async fn followers_hear_everything_once_and_in_order_while_it_is_written(store) {
        follow_while_written(store, 100_000).await;
    }

    async fn followers_with_short_queues_miss_nothing_either(store) {
        follow_while_written(store, 2).await;
    }

    async fn a_follower_is_told_what_is_stored_and_then_what_happens(store) {
        let stage = Stage::on(&store);
        stage.working("s", task(Charter::macp())).await;
        let mut all = stage.subscribe(of_session("s"), 0);
        let mut rest = stage.subscribe(of_session("s"), 2);
        let names = |heard: &[Delivery]| -> Vec<String> { heard.iter().map(|one| kind(&one.event.fact)).collect() };
        assert_eq!(names(&take(&mut all, 3).await), ["Started", "Requested", "Accepted"]);
        assert_eq!(names(&take(&mut rest, 1).await), ["Accepted"]);
        stage.ok("s", "worker", update("half")).await;
        stage.ok("other", "planner", start(task(Charter::macp()))).await;
        stage.ok("s", "worker", complete()).await;
        for follower in [&mut all, &mut rest] {
            let heard = take(follower, 2).await;
            assert_eq!(names(&heard), ["Updated", "Completed"]);
            assert_eq!((heard[0].event.seq.0, heard[1].event.seq.0), (4, 5));
            assert_eq!(*heard[0].key, key("s"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_does_not_keep_up_is_cut_off_and_resumes_without_a_gap() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let stage = Stage::with(&store, Settings { subscriber_queue_max: 3, ..Settings::default() });
        stage.working("s", task(Charter::macp())).await;
        let mut slow = stage.subscribe(of_session("s"), 0);
        take(&mut slow, 3).await;
        // It joins the live events when it asks for what is not stored yet.
        stage.ok("s", "worker", update("4")).await;
        assert_eq!(take(&mut slow, 1).await[0].event.seq.0, 4);
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), slow.next()).await;
        assert!(waiting.is_err(), "there is nothing more yet");
        for index in 5..=20 {
            stage.ok("s", "worker", update(&format!("{index}"))).await;
        }
        let mut heard: Vec<u64> = take(&mut slow, 3).await.iter().map(|one| one.event.seq.0).collect();
        let ended = slow.next().await;
        let Err(Ended::TooSlow { resume_after }) = ended else { panic!("found {ended:?}") };
        assert_eq!((heard.clone(), resume_after.clone()), (vec![5, 6, 7], Place::first_slot(7)));
        assert_eq!(stage.metrics.subscribers_cut.get(), 1);
        let mut again = stage.subscribe_after(of_session("s"), resume_after);
        heard.extend(take(&mut again, 13).await.iter().map(|one| one.event.seq.0));
        assert_eq!(heard, (5..=20).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_is_dropped_is_forgotten() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let stage = Stage::on(&store);
        stage.life("s").await;
        let mut follower = stage.subscribe(Topic::Everything, 0);
        take(&mut follower, LIFE.len()).await;
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), follower.next()).await;
        assert!(waiting.is_err(), "there is nothing more");
        until("it is counted", || stage.metrics.subscribers.get() == 1).await;
        drop(follower);
        until("it is not counted any more", || stage.metrics.subscribers.get() == 0).await;
    })
    .await;
}

on_every_store! {
    async fn after_commits_in_doubt_live_followers_hear_everything_exactly_once(store) {
        let faulty = Faulty::over(store);
        let store: Arc<dyn Store> = faulty.clone();
        let stage = Arc::new(Stage::on(&store));
        stage.working("s", task(Charter::macp())).await;
        let done = Arc::new(AtomicBool::new(false));
        let topics = [of_session("s"), of_agent("helper"), Topic::Everything];
        let followers: Vec<_> = topics
            .into_iter()
            .map(|topic| {
                let (stage, done) = (Arc::clone(&stage), Arc::clone(&done));
                tokio::spawn(async move { (follow(&stage, topic.clone(), &Place::default(), &done).await.0, topic) })
            })
            .collect();
        let mut random = Random(7);
        let mut denied = BTreeMap::new();
        for index in 0..120 {
            let how = match random.below(4) {
                0 => Some(Failing::Refuse),
                1 => Some(Failing::LoseAnswer),
                _ => None,
            };
            if let Some(how) = how {
                faulty.fail_append(how);
            }
            let name = format!("{index}");
            let (one, other) = tokio::join!(
                stage.put_as(&name, "s", "worker", update(&name)),
                stage.put(&name, "planner", start(task(Charter::macp()))),
            );
            denied.insert(index, (one.is_err(), other.is_err()));
        }
        // The last commit is certain, so everything before it is.
        while stage.put_as("last", "s", "worker", complete()).await.is_err() {}
        done.store(true, Ordering::SeqCst);
        assert!(faulty.count(&faulty.faults) > 30 && denied.values().any(|(one, _)| *one));
        for follower in followers {
            let (heard, topic) = follower.await.unwrap();
            assert_eq!(heard, stored(&*store, &topic, &Place::default()), "{topic:?}");
        }
    }

    async fn an_agent_that_may_only_bind_the_outcome_hears_of_the_session_as_well(store) {
        let stage = Stage::on(&store);
        let mut follower = stage.subscribe(of_agent("judge"), 0);
        let authority = Authority::Designated([agent("judge")].into());
        let charter = Charter { authority, ..Charter::macp() };
        stage.requested("s", task(charter)).await;
        take(&mut follower, 2).await;
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), follower.next()).await;
        assert!(waiting.is_err(), "there is nothing more yet");
        stage.ok("s", "worker", accept()).await;
        stage.ok("s", "worker", complete()).await;
        let heard: Vec<String> = take(&mut follower, 2).await.iter().map(|one| kind(&one.event.fact)).collect();
        assert_eq!(heard, ["Accepted", "Completed"]);
    }
}
