//! Orders: what waits for an assignee is handed over, its delivery confirmed, and told again to whoever did not hear it.
//! The faces only write them.

use std::sync::Arc;

use handover_engine::Accepted;
use handover_kernel::command::{Act, Command, TaskAct};
use handover_kernel::orders::Order;
use handover_kernel::session::Lifecycle;
use handover_kernel::{Fact, Seq, Session};
use handover_store::SessionKey;

use crate::Desk;
use crate::act::is_assignee;
use crate::caller::Caller;
use crate::look::HISTORY_MAX;
use crate::no::No;

/// How many events after that of a command its delivery of orders may stand.
const DELIVERED_WITHIN: u64 = 8;

/// What waits for the assignee of one session.
pub struct Waiting {
    /// The session.
    pub session: Arc<Session>,
    /// What may be handed over now, the oldest first.
    pub orders: Vec<Order>,
    /// Whether it is suspended. That is no order: whoever begins to listen while it lasts is told again.
    pub paused: bool,
}

impl Desk {
    /// What waits for the caller in a session, if it is the one that works there.
    pub async fn orders(&self, caller: &Caller, session: &str) -> Result<Option<Waiting>, No> {
        let key = SessionKey::new(caller.tenant.clone(), session);
        let session = self.engine.session(key).await?;
        let session = session.filter(|session| is_assignee(session, &caller.agent));
        Ok(session.map(|session| Waiting {
            orders: session.orders().cloned().collect(),
            paused: matches!(session.lifecycle, Lifecycle::Suspended { .. }),
            session,
        }))
    }

    /// The caller has heard the orders up to there. If that cannot be recorded, they are told again: better twice than
    /// never.
    pub async fn heard(&self, caller: &Caller, session: &Session, up_to: Seq) {
        let key = SessionKey::new(caller.tenant.clone(), session.binding.id.as_str());
        let deliver = Command::runtime(Act::Task(TaskAct::Deliver { up_to }));
        _ = self.engine.submit(key, deliver).await;
    }

    /// The orders that were handed over after an event, from the log: for a worker that lost the answer that carried
    /// them. At most as many as a page of the history has events, the oldest first.
    pub async fn orders_since(&self, caller: &Caller, session: &str, after: u64) -> Result<Vec<Order>, No> {
        let (mut found, mut after) = (Vec::new(), after);
        loop {
            let history = self.history(caller, session, after, HISTORY_MAX).await?;
            let delivered = history.session.task().map_or(Seq(0), |task| task.orders.delivered_up_to());
            let requester = &history.session.binding.requester;
            let given = history.events.iter().filter_map(|event| Order::given_by(event, requester));
            found.extend(given.filter(|order| order.seq <= delivered));
            match history.next {
                // Between two orders there may be any number of other events.
                Some(next) if next < delivered.0 && found.len() < HISTORY_MAX => after = next,
                Some(_) | None => {
                    found.truncate(HISTORY_MAX);
                    return Ok(found);
                }
            }
        }
    }

    /// What was handed over with a call that is sent again, and after it while the first one waited; in order, with what is
    /// known already.
    pub async fn told_again(
        &self,
        caller: &Caller,
        again: &Accepted,
        known: Vec<Order>,
    ) -> Result<Vec<Order>, No> {
        let (id, since) = (again.session.binding.id.as_str(), again.receipt.seq.0);
        let mut told = again.receipt.orders.clone();
        told.extend(self.orders_since(caller, id, since).await?);
        told.extend(known);
        told.sort_by_key(|order| order.seq);
        told.dedup_by_key(|order| order.seq);
        Ok(told)
    }

    /// The orders that the answer to this command carried when it was first given.
    pub(crate) async fn orders_of(&self, key: &SessionKey, accepted: &Accepted) -> Result<Vec<Order>, No> {
        let own = accepted.receipt.seq;
        let requester = &accepted.session.binding.requester;
        let after = self.events_after(key, own.0).await?;
        let near = after.iter().take_while(|event| event.seq.0 <= own.0 + DELIVERED_WITHIN);
        // What was ordered after the command went to a later one, be it at the same moment.
        let mut before = near.take_while(|event| Order::given_by(event, requester).is_none());
        let told = before.find_map(|event| {
            let Fact::Delivered { orders, .. } = &event.fact else { return None };
            (event.at == accepted.receipt.at).then(|| orders.clone())
        });
        let mut found = Vec::new();
        for seq in told.unwrap_or_default() {
            let given = self.events_after(key, seq.0 - 1).await?;
            found.extend(given.first().and_then(|event| Order::given_by(event, requester)));
        }
        Ok(found)
    }
}
