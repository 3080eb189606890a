//! Histories in pages, by number and by bytes: on every way to read them, pages join to the whole.

use handover_server::face::macp::proto::handover::ReadTimelineResponse;
use handover_store::SessionKey;
use serde_json::{Value, json};

use super::both::*;
use super::macp;
use super::scene::*;
use super::stage::*;

/// How many events a session has.
fn head(both: &Both, task: &str) -> u64 {
    both.stage.store.head(&SessionKey::new("default", task)).unwrap().unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Tool,
    Resource,
    Timeline,
}

/// The numbers of a page of events, after which the next begins, and how many bytes it took.
async fn page(
    both: &Both,
    way: Way,
    task: &str,
    after: u64,
    max: Option<u32>,
) -> (Vec<u64>, Option<u64>, usize) {
    let client = both.stage.client("planner");
    let shown = match way {
        Way::Tool => {
            let mut asked = json!({ "task_id": task, "after": after });
            if let Some(max) = max {
                asked["max"] = json!(max);
            }
            client.tool("task_timeline", asked).await
        }
        Way::Resource => {
            let uri = format!("task://{task}?after={after}");
            let read = client.ok("resources/read", json!({ "uri": uri })).await;
            assert_eq!(read["contents"][0]["uri"], json!(uri));
            serde_json::from_str::<Value>(read["contents"][0]["text"].as_str().unwrap()).unwrap()
        }
        Way::Timeline => {
            let asked = macp::timeline(task, after, max.unwrap_or(1000));
            let read = both.macp("planner").handover.read_timeline(asked).await.unwrap().into_inner();
            let bytes = read.events.iter().map(|event| event.detail_json.len()).sum();
            let ReadTimelineResponse { events, more } = read;
            let seqs: Vec<u64> = events.iter().map(|event| event.sequence).collect();
            let next = more.then(|| *seqs.last().unwrap());
            return (seqs, next, bytes);
        }
    };
    let seqs: Vec<u64> =
        shown["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    let next = shown.get("next").map(|next| {
        let after = next["after"].as_u64().unwrap();
        assert_eq!(next["uri"], json!(format!("task://{task}?after={after}")));
        after
    });
    (seqs, next, shown.to_string().len())
}

/// All pages from the beginning, each with how many bytes it took.
async fn pages(both: &Both, way: Way, task: &str, max: Option<u32>) -> Vec<(Vec<u64>, usize)> {
    let (mut pages, mut after) = (Vec::new(), 0);
    loop {
        let (seqs, next, bytes) = page(both, way, task, after, max).await;
        assert!(!seqs.is_empty(), "{way:?} after {after}: a page that leads on has something");
        pages.push((seqs, bytes));
        match next {
            Some(next) => {
                assert!(next > after, "{way:?}: a page leads on, found {next} after {after}");
                after = next;
            }
            None => return pages,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_history_join_to_the_whole_by_number_and_by_bytes() {
    let both = Both::open().await;
    let (planner, small) = in_hand(&both.stage).await;
    for _ in 0..6 {
        small.says("half").await;
    }
    let (_, large) = in_hand_of(&both.stage, &planner).await;
    for _ in 0..6 {
        large.update(json!({ "message": "half", "partial": "x".repeat(300_000) })).await;
    }
    for job in [&small, &large] {
        let head = head(&both, &job.id);
        assert!(head >= 9, "{head}");
        let whole: Vec<u64> = (1..=head).collect();
        for way in [Way::Tool, Way::Resource, Way::Timeline] {
            for max in [None, Some(1), Some(2), Some(1000)] {
                let pages = pages(&both, way, &job.id, max).await;
                let joined: Vec<u64> = pages.iter().flat_map(|(seqs, _)| seqs.clone()).collect();
                assert_eq!(joined, whole, "{way:?}, {max:?} at a time");
                let most = pages.iter().map(|(seqs, _)| seqs.len()).max().unwrap();
                match (way, max) {
                    (Way::Resource, _) | (_, None) => {}
                    (_, Some(max)) => assert!(most <= max as usize, "{way:?}: {most} of {max}"),
                }
                // One page holds all of it if that is not too many bytes.
                let is_small =
                    job.id == small.id && !matches!((way, max), (Way::Tool | Way::Timeline, Some(1 | 2)));
                assert_eq!(pages.len() == 1, is_small, "{way:?}, {max:?}: {} pages", pages.len());
                for (seqs, bytes) in &pages {
                    assert!(seqs.len() == 1 || *bytes < 1_200_000, "{way:?}: {bytes} bytes of {seqs:?}");
                }
            }
            // Behind the end there is nothing, and nothing more.
            for after in [head, head + 1, u64::MAX] {
                let (seqs, next, _) = page(&both, way, &job.id, after, None).await;
                assert_eq!((seqs, next), (vec![], None), "{way:?} after {after}");
            }
        }
    }
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_names_no_page_is_no_resource() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    for wrong in
        ["?after=", "?after=x", "?after=-1", "?after=1.5", "?before=1", "?", "?after=1&after=2", "/", "/1"]
    {
        let uri = format!("task://{}{wrong}", job.id);
        let refused = planner.refused("resources/read", json!({ "uri": uri })).await;
        assert_eq!((refused.code, &refused.data["uri"]), (INVALID_PARAMS, &json!(uri)), "{wrong}");
    }
    stage.stop().await;
}
