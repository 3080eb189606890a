//! A crash in the middle: the server is killed while tasks are running, and started again. Nobody is told: clients poll
//! on, and workers say again what was not answered.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::ANSWER_WITHIN;
use super::cast::{Cast, output};
use super::wire::{Agent, Connection, result};
use crate::Failure;
use crate::bench::macp::runtime::Server;

/// How many connections poll, and how many work.
const POLLERS: usize = 8;
const WORKERS: usize = 4;

/// How long to wait before a server that is not there is tried again, and before an unfinished task is polled again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Kill and start again with so many tasks running.
pub async fn measure(data: &Path, cast: impl Fn(&str) -> Cast, count: usize) -> Result<Value, Failure> {
    let server = Server::start(data)?;
    let address = server.http.clone();
    let cast = cast(&address);
    cast.register().await?;
    let ids = Arc::new(cast.running(count).await?);

    let tally = Arc::new(Tally { kill_after: count.div_ceil(10), ..Tally::default() });
    let (mut work, mut polls) = (JoinSet::new(), JoinSet::new());
    for first in 0..WORKERS {
        work.spawn(work_off(cast.clone(), Arc::clone(&ids), first, Arc::clone(&tally)));
    }
    for first in 0..POLLERS {
        polls.spawn(poll(cast.clone(), Arc::clone(&ids), first, Arc::clone(&tally)));
    }
    let reached = tokio::time::timeout(ANSWER_WITHIN, tally.reached.notified()).await;
    reached.map_err(|_| Failure::Fault("expected tasks to be completed before the kill".to_owned()))?;
    let completed_before = tally.completed.load(Ordering::Relaxed);
    let killed = Instant::now();
    server.kill()?;
    let server = Server::start_at(data, &address, &[])?;
    let ready = killed.elapsed();

    all(&mut work).await?;
    all(&mut polls).await?;
    let finished = killed.elapsed();
    server.stop()?;
    let (right, wrong) = (tally.right.load(Ordering::Relaxed), tally.wrong.load(Ordering::Relaxed));
    let interrupted = tally.interrupted.load(Ordering::Relaxed);
    if right != count {
        let message =
            format!("expected {count} tasks to finish with their result, found {right}; wrong: {wrong}");
        return Err(Failure::Fault(message));
    }
    if completed_before >= count || interrupted == 0 {
        return Err(Failure::Fault(
            "expected the kill to come in the middle, found all done by then".to_owned(),
        ));
    }
    Ok(json!({
        "tasks": count,
        "completed_before_the_kill": completed_before,
        "finished": right,
        "lost": count - right,
        "calls_interrupted": interrupted,
        "polls": tally.polls.load(Ordering::Relaxed),
        "ready_again_seconds": ready.as_secs_f64(),
        "all_finished_seconds": finished.as_secs_f64(),
    }))
}

#[derive(Default)]
struct Tally {
    /// After how many completed tasks the server is killed, and who waits for that.
    kill_after: usize,
    reached: Notify,
    completed: AtomicUsize,
    right: AtomicUsize,
    wrong: AtomicUsize,
    polls: AtomicU64,
    interrupted: AtomicU64,
}

async fn all(tasks: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Failure::fault("going on", &error))??;
    }
    Ok(())
}

/// The tasks of one of so many.
fn share(ids: &[String], first: usize, of: usize) -> impl Iterator<Item = (u64, &String)> {
    ids.iter().enumerate().skip(first).step_by(of).map(|(n, id)| (n as u64, id))
}

/// Bring a share of the tasks to their end.
async fn work_off(cast: Cast, ids: Arc<Vec<String>>, first: usize, tally: Arc<Tally>) -> Result<(), Failure> {
    let mut patient = Patient { agent: cast.worker.clone(), connection: None, tally: Arc::clone(&tally) };
    for (n, id) in share(&ids, first, WORKERS) {
        result(&patient.ask(&cast.update(id, 2)).await?)?;
        result(&patient.ask(&cast.complete(id, n)).await?)?;
        if tally.completed.fetch_add(1, Ordering::Relaxed) + 1 == tally.kill_after {
            tally.reached.notify_one();
        }
    }
    Ok(())
}

/// Look at a share of the tasks until all have ended.
async fn poll(cast: Cast, ids: Arc<Vec<String>>, first: usize, tally: Arc<Tally>) -> Result<(), Failure> {
    let mut patient = Patient { agent: cast.requester.clone(), connection: None, tally: Arc::clone(&tally) };
    let mut open: Vec<(u64, &String)> = share(&ids, first, POLLERS).collect();
    while !open.is_empty() {
        let mut still = Vec::with_capacity(open.len());
        for (n, id) in open {
            let task = result(&patient.ask(&cast.requester.look(id)).await?)?;
            tally.polls.fetch_add(1, Ordering::Relaxed);
            let counter = match task["status"].as_str() {
                Some("working") => {
                    still.push((n, id));
                    continue;
                }
                Some("completed") if task["result"]["structuredContent"] == output(n) => &tally.right,
                Some(_) | None => &tally.wrong,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        open = still;
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    Ok(())
}

/// Asks until it is answered, over a new connection when the old one breaks.
struct Patient {
    agent: Agent,
    connection: Option<Connection>,
    tally: Arc<Tally>,
}

impl Patient {
    async fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let begun = Instant::now();
        loop {
            match self.attempt(request).await {
                Ok(body) => return Ok(body),
                Err(error) if begun.elapsed() > ANSWER_WITHIN => {
                    return Err(Failure::fault("waiting for the server to come back", &error));
                }
                Err(_) => {
                    // Only a call that was under way was interrupted; the others found nobody there.
                    self.tally
                        .interrupted
                        .fetch_add(u64::from(self.connection.take().is_some()), Ordering::Relaxed);
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }

    async fn attempt(&mut self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none @ None => none.insert(self.agent.connect().await?),
        };
        Ok(connection.exchange(request).await?.to_vec())
    }
}
