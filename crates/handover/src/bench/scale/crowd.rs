//! Many sessions, handed out to one worker by agents who each stay below what one agent may have open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use crate::Failure;
use crate::bench::macp::runtime::{Caller, Tokens};
use crate::bench::macp::script::{By, Ids, OPENING, Script};

/// How many sessions each requester has, below the default of `limits.sessions_open_per_agent_max`.
const SESSIONS_EACH: usize = 5_000;

/// How many calls are under way while sessions are made.
const IN_FLIGHT: usize = 64;

/// Requesters, each with a connection of its own, and the worker who has all of their sessions in its list.
pub struct Crowd {
    name: String,
    requesters: Vec<Requester>,
    sessions: usize,
}

/// One of them.
#[derive(Clone)]
pub struct Requester {
    /// Its name.
    pub name: String,
    /// The worker's.
    pub worker: String,
    /// Its connection.
    pub caller: Caller,
    /// What it says.
    pub script: Arc<Script>,
}

impl Crowd {
    /// As many requesters as so many sessions need.
    pub async fn new(address: &str, name: &str, sessions: usize) -> Result<Crowd, Failure> {
        let mut requesters = Vec::new();
        let worker = format!("{name}-worker");
        for index in 0..sessions.div_ceil(SESSIONS_EACH).max(1) {
            let name = format!("{name}-{index}");
            let caller = Caller::connect(address, Tokens::new(&name, &worker)?).await?;
            let script = Arc::new(Script::new(&name, &worker));
            requesters.push(Requester { name, worker: worker.clone(), caller, script });
        }
        Ok(Crowd { name: name.to_owned(), requesters, sessions })
    }

    /// The same agents at a server that has been started again.
    pub async fn moved_to(&self, address: &str) -> Result<Crowd, Failure> {
        Crowd::new(address, &self.name, self.sessions).await
    }

    /// How many sessions it is for.
    pub fn sessions(&self) -> usize {
        self.sessions
    }

    /// The first of them.
    pub fn first(&self) -> Requester {
        self.requesters[0].clone()
    }

    /// The one who hands out the session with this number.
    pub fn requester(&self, session: usize) -> &Requester {
        &self.requesters[session % self.requesters.len()]
    }

    /// All of them.
    pub fn requesters(&self) -> &[Requester] {
        &self.requesters
    }

    /// Hand out tasks that the worker has accepted. Gives their sessions by their numbers.
    pub async fn open_tasks(&self) -> Result<Vec<String>, Failure> {
        self.each(|mut requester, session_id, mut ids| async move {
            for line in &requester.script.lines()[..OPENING] {
                requester.caller.send(&requester.script, line, &session_id, &mut ids).await?;
            }
            Ok(())
        })
        .await
    }

    /// Do this once for each session, with an id that nobody has used, many at a time.
    pub async fn each<D, F>(&self, act: D) -> Result<Vec<String>, Failure>
    where
        D: Fn(Requester, String, Ids) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let next = Arc::new(AtomicUsize::new(0));
        let requesters = Arc::new(self.requesters.clone());
        let sessions = self.sessions;
        let mut tasks = JoinSet::new();
        for _ in 0..IN_FLIGHT.min(sessions) {
            let (next, requesters, act) = (Arc::clone(&next), Arc::clone(&requesters), act.clone());
            tasks.spawn(async move {
                let mut made = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= sessions {
                        return Ok::<_, Failure>(made);
                    }
                    let mut ids = Ids::new();
                    let session_id = ids.next();
                    act(requesters[number % requesters.len()].clone(), session_id.clone(), ids).await?;
                    made.push((number, session_id));
                }
            });
        }
        let mut made = Vec::new();
        while let Some(task) = tasks.join_next().await {
            made.extend(task.map_err(|error| Failure::fault("opening sessions", &error))??);
        }
        made.sort_unstable();
        Ok(made.into_iter().map(|(_, session_id)| session_id).collect())
    }

    /// The state of the session with the number 0.
    pub async fn get(&self, session_id: &str) -> Result<i32, Failure> {
        super::get(&mut self.first().caller, By::Requester, session_id).await
    }
}
