//! Who has what to do: the tasks that an agent may take, and those that it has taken. Read from the index and looked at
//! again in the engine, so that nothing is offered that somebody else has taken meanwhile.

use std::sync::Arc;
use std::time::Duration;

use handover_kernel::command::ModeKind;
use handover_kernel::session::Standing;
use handover_kernel::{AgentId, Fact, Session};
use handover_store::{Filter, Order, SessionKey, Store};
use tokio::time::{Instant, timeout_at};

use handover_engine::view;
use handover_engine::{Denied, Ended, Engine, Subscription, Topic};

/// How many sessions are read at a time.
const PAGE: usize = 64;

/// An agent in its namespace.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The namespace.
    pub tenant: Box<str>,
    /// The agent.
    pub agent: AgentId,
}

/// The work of everybody. Cheap to clone.
#[derive(Clone)]
pub struct Work {
    engine: Engine,
    store: Arc<dyn Store>,
}

impl Work {
    /// The work of an engine's sessions.
    pub fn new(engine: Engine, store: Arc<dyn Store>) -> Work {
        Work { engine, store }
    }

    /// The tasks that an agent may take now, the oldest first, at most `max` of them.
    pub async fn offered(&self, worker: &Worker, max: usize) -> Result<Vec<Arc<Session>>, Denied> {
        let may_take = |session: &Session| {
            let task = session.task().filter(|_| session.standing() == Standing::Requested);
            task.is_some_and(|task| task.may_take(&session.binding, &worker.agent).is_ok())
        };
        self.look(worker, &[Standing::Requested], max, may_take).await
    }

    /// The tasks that an agent has taken and not reported on, at most `max` of them.
    pub async fn in_hand(&self, worker: &Worker, max: usize) -> Result<Vec<Arc<Session>>, Denied> {
        let standings = [
            Standing::Working,
            Standing::WaitingInput,
            Standing::WaitingAuthorization,
            Standing::WaitingReply,
            Standing::Suspended,
        ];
        let has = |session: &Session| {
            let assignee = session.task().and_then(|task| task.phase.assignee());
            standings.contains(&session.standing()) && assignee == Some(&worker.agent)
        };
        self.look(worker, &standings, max, has).await
    }

    /// The tasks that an agent may take, as soon as there is one. Nothing if there is none in time.
    pub async fn wait_for_offers(
        &self,
        worker: &Worker,
        max: usize,
        within: Duration,
    ) -> Result<Vec<Arc<Session>>, Denied> {
        let until = Instant::now() + within;
        let mut news = self.news(worker).await?;
        loop {
            let offers = self.offered(worker, max).await?;
            if !offers.is_empty() {
                return Ok(offers);
            }
            match timeout_at(until, wait_for_offer(&mut news)).await {
                Ok(Ok(())) => {}
                Ok(Err(Ended::TooSlow { .. })) => news = self.news(worker).await?,
                Ok(Err(Ended::Denied(denied))) => return Err(denied),
                Err(_) => return Ok(Vec::new()),
            }
        }
    }

    /// What happens to the sessions of an agent from now on.
    async fn news(&self, worker: &Worker) -> Result<Subscription, Denied> {
        let store = Arc::clone(&self.store);
        let position = blocking(move || store.last_position()).await?;
        let topic = Topic::Agent { tenant: worker.tenant.clone(), agent: worker.agent.as_str().into() };
        Ok(self.engine.subscribe(topic, position))
    }

    async fn look(
        &self,
        worker: &Worker,
        standings: &[Standing],
        max: usize,
        wanted: impl Fn(&Session) -> bool,
    ) -> Result<Vec<Arc<Session>>, Denied> {
        let mut found = Vec::new();
        for standing in standings {
            let mut after = None;
            loop {
                let filter = Filter {
                    tenant: Some(worker.tenant.clone()),
                    agent: Some(worker.agent.as_str().into()),
                    statuses: 1 << view::status_number(*standing),
                    kind: Some(view::kind_number(ModeKind::Task)),
                    ..Filter::default()
                };
                let store = Arc::clone(&self.store);
                let page = blocking(move || store.list(&filter, Order::Oldest, after, PAGE)).await?;
                for listed in page.sessions {
                    if let Some(session) = self.session(listed.key).await?
                        && wanted(&session)
                    {
                        found.push(session);
                    }
                    if found.len() >= max {
                        return Ok(found);
                    }
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        Ok(found)
    }

    /// A session as it is; none if it is gone or cannot be read, which must not hide the others.
    async fn session(&self, key: SessionKey) -> Result<Option<Arc<Session>>, Denied> {
        match self.engine.session(key).await {
            Ok(session) => Ok(session),
            Err(Denied::Unreadable(_)) => Ok(None),
            Err(other @ (Denied::Refused(_) | Denied::Fault(_) | Denied::Stopping)) => Err(other),
        }
    }
}

/// Wait for something after which there may be a task to take that there was not before.
async fn wait_for_offer(news: &mut Subscription) -> Result<(), Ended> {
    loop {
        let delivery = news.next().await?;
        if matches!(delivery.event.fact, Fact::Requested(_) | Fact::Declined { .. } | Fact::Resumed { .. }) {
            return Ok(());
        }
    }
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, handover_store::Fault> + Send + 'static,
) -> Result<T, Denied> {
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(|fault| Denied::Fault(Arc::new(fault))),
        Err(_) => Err(Denied::Stopping),
    }
}
