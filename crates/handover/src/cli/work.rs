//! `handover agent work`: take tasks, and let a program do each. What the program does is `program`'s to see.

use std::sync::Arc;
use std::time::Duration;

use handover_client::caller::Error;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};

use super::agent::WorkArgs;
use super::exit::Exit;
use super::program::{self, Outcome, Terms};
use super::{Remote, note, say_json, text};
use crate::Failure;

/// How long one call waits for work.
const WAIT_MS: u64 = 20_000;

/// After how long a server that is away is asked again, at first and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// How many tasks that were accepted before are taken up again.
const IN_HAND_MAX: usize = 1000;

impl Remote {
    /// Call a tool until the server is there and has time.
    pub async fn insist(&self, tool: &str, arguments: Value, key: Option<&str>) -> Result<Value, Failure> {
        self.until_heard(tool, arguments, key).await.map_err(|error| self.failure(error))
    }

    /// The same for those who want to know why it was refused.
    pub async fn until_heard(&self, tool: &str, arguments: Value, key: Option<&str>) -> Result<Value, Error> {
        let mut wait = AGAIN_AFTER;
        loop {
            match self.try_call(tool, arguments.clone(), key).await {
                Err(error) if error.may_pass() => {
                    if wait == AGAIN_AFTER {
                        note(&format!("{}; trying again", text::line(&error.to_string())));
                    }
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(AGAIN_AFTER_MAX);
                }
                done => return done,
            }
        }
    }
}

type Running = JoinSet<Result<(String, Outcome), Failure>>;

/// Work until somebody ends it, or for one task.
pub async fn run(remote: Remote, args: &WorkArgs) -> Result<(), Failure> {
    let remote = Arc::new(remote);
    let terms = Arc::new(Terms {
        command: args.command.clone(),
        limit: args.limit,
        takes_orders: !args.no_orders,
        is_json: remote.json,
    });
    let listening = |error| Failure::fault("listening for signals", &error);
    let mut stop = signal(SignalKind::terminate()).map_err(listening)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(listening)?;
    let mut running = Running::new();
    // Programs that still run are ended with the worker: what they did is begun again by the next.
    tokio::select! {
        _ = stop.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        worked = work(&remote, &terms, args, &mut running) => worked,
    }
}

async fn work(
    remote: &Arc<Remote>,
    terms: &Arc<Terms>,
    args: &WorkArgs,
    running: &mut Running,
) -> Result<(), Failure> {
    let jobs = if args.once { 1 } else { usize::from(args.jobs) };
    let mut waiting = Vec::new();
    if !args.new_only {
        let mut in_hand = remote.pages("work_list", "work", json!({}), IN_HAND_MAX).await?;
        in_hand.iter_mut().for_each(|task| task["taken_up_again"] = json!(true));
        waiting = in_hand;
        waiting.reverse();
    }
    if !remote.json {
        note(&format!("waiting for tasks, {jobs} at a time; {} to take up again", waiting.len()));
    }
    loop {
        while running.len() < jobs
            && let Some(task) = waiting.pop()
        {
            begin(remote, terms, task, running);
        }
        if running.len() < jobs {
            let asked = json!({ "accept": true, "max": jobs - running.len(), "wait_ms": WAIT_MS });
            // Dropped, the call may have accepted something: it is therefore never dropped for what a program does.
            let mut found = remote.insist("work_next", asked, None).await?;
            if let Value::Array(found) = found["work"].take() {
                waiting.extend(found.into_iter().rev());
            }
            while let Some(done) = running.try_join_next() {
                finished(remote, done)?;
            }
        } else if let Some(done) = running.join_next().await {
            let outcome = finished(remote, done)?;
            if args.once {
                return outcome.as_exit();
            }
        }
    }
}

fn begin(remote: &Arc<Remote>, terms: &Arc<Terms>, task: Value, running: &mut Running) {
    let (remote, terms) = (Arc::clone(remote), Arc::clone(terms));
    running.spawn(async move {
        let id = task["task_id"].as_str().unwrap_or_default().to_owned();
        let outcome = program::run(remote, terms, &id, task).await?;
        Ok((id, outcome))
    });
}

/// Say what came of a task.
fn finished(
    remote: &Remote,
    done: Result<Result<(String, Outcome), Failure>, JoinError>,
) -> Result<Outcome, Failure> {
    let (id, outcome) = done.map_err(|error| Failure::fault("running a program", &error))??;
    let (what, why) = outcome.said();
    match remote.json {
        true => say_json(json!({ "task_id": id, "what": what, "why": why }))?,
        false => note(&format!(
            "{}  {what}{}{}",
            text::short(&id),
            if why.is_empty() { "" } else { ": " },
            text::line(why)
        )),
    }
    Ok(outcome)
}

impl Outcome {
    fn said(&self) -> (&'static str, &str) {
        match self {
            Outcome::Completed => ("completed", ""),
            Outcome::Failed(why) => ("failed", why),
            Outcome::Ended(status) => ("ended", status),
        }
    }

    fn as_exit(&self) -> Result<(), Failure> {
        let help = "see what happened with: handover task show";
        match self {
            Outcome::Completed => Ok(()),
            Outcome::Failed(why) => {
                Err(Exit::Failed.told(format!("the task failed: {}", text::line(why)), help))
            }
            Outcome::Ended(status) => {
                Err(Exit::Failed.told(format!("the task ended meanwhile: {}", text::line(status)), help))
            }
        }
    }
}
