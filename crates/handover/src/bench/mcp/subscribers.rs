//! Many subscribe to one task while its worker reports.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::ANSWER_WITHIN;
use super::cast::{Cast, connect, marker};
use super::wire::{Connection, ask};
use crate::Failure;
use crate::bench::quantile;

/// Let so many follow one task for so many updates, the next when every one has the last.
pub async fn measure(cast: &Cast, subscribers: usize, updates: u64) -> Result<Value, Failure> {
    let ids = cast.running(1).await?;
    let task = ids.first().cloned().unwrap_or_default();
    let filter = json!({ "notifications": { "taskIds": [task] } });
    let listen = cast.requester.request("subscriptions/listen", "", filter);
    let (told, mut receipts) = mpsc::unbounded_channel();
    let mut listeners = JoinSet::new();
    for _ in 0..subscribers {
        let mut connection = connect(&cast.requester).await?;
        let begun = connection.subscribe(&listen).await;
        begun.map_err(|error| Failure::fault("subscribing", &error))?;
        listeners.spawn(follow(connection, updates, told.clone()));
    }
    drop(told);
    let mut worker = connect(&cast.worker).await?;
    let mut times = Times::default();
    // The first step was told before anybody listened.
    for step in 2..2 + updates {
        let request = cast.update(&task, step);
        let called = Instant::now();
        ask(&mut worker, &request).await?;
        let answered = Instant::now();
        let mut heard = Vec::with_capacity(subscribers);
        for _ in 0..subscribers {
            let receipt = tokio::time::timeout(ANSWER_WITHIN, receipts.recv()).await;
            match receipt.ok().flatten() {
                Some(at) => heard.push(at),
                None => return Err(lost(&mut listeners, heard.len(), subscribers).await),
            }
        }
        times.add(called, answered, heard);
    }
    Ok(times.row(subscribers, updates))
}

async fn follow(
    mut connection: Connection,
    updates: u64,
    told: mpsc::UnboundedSender<Instant>,
) -> Result<(), Failure> {
    for step in 2..2 + updates {
        let heard = connection.event_with(marker(step).as_bytes()).await;
        heard.map_err(|error| Failure::fault("following", &error))?;
        // Whoever counts has given up, and says why.
        _ = told.send(Instant::now());
    }
    Ok(())
}

async fn lost(listeners: &mut JoinSet<Result<(), Failure>>, heard: usize, subscribers: usize) -> Failure {
    while let Some(Some(ended)) = listeners.try_join_next().map(Result::ok) {
        if let Err(failure) = ended {
            return failure;
        }
    }
    Failure::Fault(format!("expected {subscribers} notifications within {ANSWER_WITHIN:?}, found {heard}"))
}

#[derive(Default)]
struct Times {
    answer: Vec<f64>,
    answer_to_median: Vec<f64>,
    answer_to_last: Vec<f64>,
    call_to_median: Vec<f64>,
    call_to_last: Vec<f64>,
}

impl Times {
    fn add(&mut self, called: Instant, answered: Instant, mut heard: Vec<Instant>) {
        heard.sort_unstable();
        let (Some(last), Some(median)) = (heard.last(), heard.get(heard.len() / 2)) else { return };
        // An answer may come after the notification of what it answers.
        let ms = |from: Instant, to: Instant| duration_ms(to.saturating_duration_since(from));
        self.answer.push(ms(called, answered));
        self.answer_to_median.push(ms(answered, *median));
        self.answer_to_last.push(ms(answered, *last));
        self.call_to_median.push(ms(called, *median));
        self.call_to_last.push(ms(called, *last));
    }

    fn row(mut self, subscribers: usize, updates: u64) -> Value {
        let both = |numbers: &mut Vec<f64>| json!([quantile(numbers, 0.5), quantile(numbers, 0.99)]);
        json!({
            "subscribers": subscribers,
            "updates": updates,
            "notifications": subscribers as u64 * updates,
            "answer_ms": both(&mut self.answer),
            "answer_to_median_ms": both(&mut self.answer_to_median),
            "answer_to_last_ms": both(&mut self.answer_to_last),
            "call_to_median_ms": both(&mut self.call_to_median),
            "call_to_last_ms": both(&mut self.call_to_last),
        })
    }
}

fn duration_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
