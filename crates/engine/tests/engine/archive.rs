//! What a store has moves to another one.

use std::sync::Arc;

use handover_engine::archive::{self, Archived, Stored};
use handover_kernel::Charter;
use handover_store::{MemoryStore, SessionKey, Store, Tombstone};

use crate::stage::*;

fn read(store: &dyn Store, key: &SessionKey) -> Vec<Vec<Vec<u8>>> {
    archive::pages(store, key).collect::<Result<_, _>>().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_session_is_read_in_pages_and_put_together_it_is_the_same() {
    in_time(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let stage = Stage::on(&store);
        stage.working("long", task(Charter::macp())).await;
        for _ in 3..1_000 {
            stage.ok("long", "worker", update("so far")).await;
        }
        let live = stage.session("long").await.unwrap();
        stage.working("short", task(Charter::macp())).await;
        drop(stage);
        let keys: Vec<SessionKey> = archive::sessions(&*store).collect::<Result<_, _>>().unwrap();
        let [long, short] = &keys[..] else { panic!("expected two sessions, found {keys:?}") };
        let (pages, page) = (read(&*store, long), read(&*store, short));
        // The last of them is full, and nothing comes after it.
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [500, 500]);
        assert_eq!(page.iter().map(Vec::len).collect::<Vec<_>>(), [3]);
        assert_eq!(archive::replay_all(&*store, || {}).unwrap(), 2);

        let archived = Archived { key: long.clone(), events: pages.concat() };
        assert_eq!(archived.replay().unwrap(), *live);
        let other = MemoryStore::new();
        let put = |archived: &Archived| archive::import(&other, std::slice::from_ref(archived)).unwrap();
        assert_eq!(put(&archived), [Stored::New]);
        assert_eq!(put(&archived), [Stored::Same]);
        assert_eq!(read(&other, long), pages);
        for length in [999, 500, 3] {
            let shorter = Archived { events: archived.events[..length].to_vec(), ..archived.clone() };
            assert_eq!(put(&shorter), [Stored::Differs], "it has gone on there since");
        }
        // What is there is shorter, or nothing of it is there any more.
        let third = MemoryStore::new();
        let shorter = Archived { events: archived.events[..500].to_vec(), ..archived.clone() };
        assert_eq!(archive::import(&third, &[shorter]).unwrap(), [Stored::New]);
        assert_eq!(archive::import(&third, &[archived]).unwrap(), [Stored::Differs]);
        let buried =
            [Tombstone { key: long.clone(), deleted_at: 5 }, Tombstone { key: short.clone(), deleted_at: 5 }];
        assert_eq!(archive::bury(&third, &buried).unwrap(), [Stored::Differs, Stored::New]);
        assert_eq!(archive::bury(&third, &buried).unwrap(), [Stored::Differs, Stored::Same]);
        let archived = Archived { key: short.clone(), events: page.concat() };
        assert_eq!(archive::import(&third, &[archived]).unwrap(), [Stored::Deleted]);
    })
    .await;
}

#[test]
fn a_session_that_cannot_be_replayed_is_an_error_and_the_end() {
    let store = MemoryStore::new();
    let key = SessionKey::new("t", "none");
    let found: Vec<bool> = archive::pages(&store, &key).map(|page| page.is_err()).collect();
    assert_eq!(found, [true]);
}
