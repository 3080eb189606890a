//! Orders: what waits for an assignee is handed over, its delivery confirmed, and told again to whoever did not hear it.
//! The faces only write them.

use std::sync::Arc;

use handover_engine::Accepted;
use handover_kernel::command::{Act, Command, TaskAct};
use handover_kernel::orders::Order;
use handover_kernel::session::Lifecycle;
use handover_kernel::{Event, Fact, Seq, Session};
use handover_store::SessionKey;

use crate::act::is_assignee;
use crate::caller::Caller;
use crate::look::HISTORY_MAX;
use crate::no::No;
use crate::{Desk, page};

/// How many events after that of a command its delivery of orders may stand.
const DELIVERED_WITHIN: usize = 8;

/// How many events are looked at for one page of orders that are told again.
const LOOKED_AT_MAX: usize = 4 * HISTORY_MAX;

/// What waits for the assignee of one session.
pub struct Waiting {
    /// The session.
    pub session: Arc<Session>,
    /// What may be handed over now, the oldest first.
    pub orders: Vec<Order>,
    /// Whether it is suspended. That is no order: whoever begins to listen while it lasts is told again.
    pub paused: bool,
}

/// Orders that were handed over before.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The orders, the oldest first.
    pub orders: Vec<Order>,
    /// The event after which there may be more of them.
    pub next: Option<u64>,
}

impl Told {
    /// Whether there is nothing to tell.
    pub fn is_nothing(&self) -> bool {
        self.orders.is_empty() && self.next.is_none()
    }
}

impl Desk {
    /// What waits for the caller in a session, if it is the one that works there.
    pub async fn orders(&self, caller: &Caller, session: &str) -> Result<Option<Waiting>, No> {
        let key = SessionKey::new(caller.tenant.clone(), session);
        let session = self.engine.session(key).await?;
        let session = session.filter(|session| is_assignee(session, &caller.agent));
        Ok(session.map(|session| Waiting {
            orders: page::cut(session.orders().cloned(), Order::weight),
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
    /// them. The oldest first, as many as a page has; looks at a bounded part of the log.
    pub async fn orders_since(&self, caller: &Caller, session: &str, after: u64) -> Result<Told, No> {
        let (mut told, mut bytes, mut looked_at, mut after) = (Told::default(), 0, 0, after);
        loop {
            let history = self.history(caller, session, after, HISTORY_MAX).await?;
            let delivered = history.session.task().map_or(Seq(0), |task| task.orders.delivered_up_to());
            let requester = &history.session.binding.requester;
            for event in &history.events {
                after = event.seq.0;
                if event.seq > delivered {
                    return Ok(told);
                }
                let Some(order) = Order::given_by(event, requester) else { continue };
                bytes += order.weight();
                told.orders.push(order);
                if bytes >= page::BYTES_MAX || told.orders.len() >= HISTORY_MAX {
                    break;
                }
            }
            // Between two orders there may be any number of other events.
            looked_at += history.events.len();
            let more = after < delivered.0 && !history.events.is_empty();
            let full =
                bytes >= page::BYTES_MAX || told.orders.len() >= HISTORY_MAX || looked_at >= LOOKED_AT_MAX;
            if !more || full {
                told.next = more.then_some(after);
                return Ok(told);
            }
        }
    }

    /// What was handed over with a call that is sent again, and after it while the first one waited; in order, with what is
    /// known already.
    pub async fn told_again(&self, caller: &Caller, again: &Accepted, known: Told) -> Result<Told, No> {
        let (id, since) = (again.session.binding.id.as_str(), again.receipt.seq.0);
        let since = self.orders_since(caller, id, since).await?;
        let mut orders = again.receipt.orders.clone();
        orders.extend(since.orders);
        orders.extend(known.orders);
        orders.sort_by_key(|order| order.seq);
        orders.dedup_by_key(|order| order.seq);
        // Whoever goes on at the earlier of the two misses nothing.
        let next = [since.next, known.next].into_iter().flatten().min();
        Ok(Told { orders, next })
    }

    /// The orders that the answer to this command carried when it was first given.
    pub(crate) async fn orders_of(&self, key: &SessionKey, accepted: &Accepted) -> Result<Vec<Order>, No> {
        let own = accepted.receipt.seq;
        let requester = &accepted.session.binding.requester;
        let mut after: Vec<Arc<Event>> = Vec::new();
        // A page may be cut by bytes.
        while after.len() < DELIVERED_WITHIN {
            let page = self.events_after(key, own.0 + after.len() as u64).await?;
            if page.is_empty() {
                break;
            }
            after.extend(page);
        }
        let near = after.iter().take(DELIVERED_WITHIN);
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
