//! What is stored joined to what is live, as a stream of events without a gap and without a repeat.

use std::collections::VecDeque;
use std::sync::Arc;

use handover_store::{Fault, Feed, Store};
use tokio::sync::Notify;

use crate::answer::Denied;
use crate::codec;
use crate::hub::{Delivery, Follower, Need, PAGE_MAX, SubscriberId, Taken, Topic};
use crate::key::Key;
use crate::locks::lock;
use crate::shell::Engine;

/// Why a subscription ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The reader did not keep up. Beginning again after this number misses nothing.
    TooSlow {
        /// The last number that it was given.
        resume_after: u64,
    },
    /// What is stored could not be read.
    Denied(Denied),
}

/// The events of a topic, from a number on.
pub struct Subscription {
    engine: Engine,
    topic: Topic,
    follower: Follower,
    joined: Option<SubscriberId>,
    notify: Arc<Notify>,
    ready: VecDeque<Delivery>,
}

impl Engine {
    /// Follow a topic from after the event with this number; 0 is the beginning. What is stored comes first, then what
    /// happens.
    pub fn subscribe(&self, topic: Topic, after: u64) -> Subscription {
        Subscription {
            engine: self.clone(),
            topic,
            follower: Follower::after(after),
            joined: None,
            notify: Arc::new(Notify::new()),
            ready: VecDeque::new(),
        }
    }
}

impl Subscription {
    /// The next event. Waits for it.
    pub async fn next(&mut self) -> Result<Delivery, Ended> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            match self.follower.need() {
                Need::Page { after } => {
                    let page = self.page(after).await?;
                    self.ready.extend(self.follower.page(page));
                }
                Need::Join { .. } => {
                    let inner = self.engine.inner();
                    let queue_max = inner.settings.subscriber_queue_max;
                    let id = lock(&inner.hub).join(&self.topic, queue_max, Arc::clone(&self.notify));
                    self.joined = Some(id);
                    self.follower.joined();
                }
                Need::Live => self.live().await?,
            }
        }
    }

    async fn live(&mut self) -> Result<(), Ended> {
        let Some(id) = self.joined else {
            unreachable!("a follower is live only after it has joined");
        };
        let taken = lock(&self.engine.inner().hub).take(id, PAGE_MAX);
        match taken {
            Taken::Events(events) if events.is_empty() => self.notify.notified().await,
            Taken::Events(events) => self.ready.extend(self.follower.live(events)),
            Taken::Missed => self.follower.missed(),
            Taken::Cut => return Err(Ended::TooSlow { resume_after: self.follower.last() }),
        }
        Ok(())
    }

    async fn page(&self, after: u64) -> Result<Vec<Delivery>, Ended> {
        let store = Arc::clone(&self.engine.inner().store);
        let topic = self.topic.clone();
        let read = tokio::task::spawn_blocking(move || read_page(&*store, &topic, after));
        match read.await {
            Ok(page) => page.map_err(Ended::Denied),
            Err(_) => Err(Ended::Denied(Denied::Stopping)),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(id) = self.joined {
            lock(&self.engine.inner().hub).leave(id);
        }
    }
}

/// A page of what is stored on a topic.
pub fn read_page(store: &dyn Store, topic: &Topic, after: u64) -> Result<Vec<Delivery>, Denied> {
    let fault = |fault: Fault| Denied::Fault(Arc::new(fault));
    let decode = |bytes: &[u8], key: &dyn std::fmt::Display| {
        codec::decode(bytes)
            .map(Arc::new)
            .map_err(|error| Denied::Unreadable(Arc::from(format!("session {key} cannot be read: {error}"))))
    };
    let feed = match topic {
        Topic::Session(key) => {
            let stored = store.read(key, after, PAGE_MAX).map_err(fault)?;
            return stored
                .into_iter()
                .map(|stored| {
                    let event = decode(&stored.bytes, key)?;
                    Ok(Delivery { number: stored.seq, key: key.clone(), event })
                })
                .collect();
        }
        Topic::Agent { tenant, agent } => Feed::Agent { tenant: tenant.clone(), agent: agent.clone() },
        Topic::Everything => Feed::Everything,
    };
    let items = store.feed(&feed, after, PAGE_MAX).map_err(fault)?;
    items
        .into_iter()
        .map(|item| {
            let event = decode(&item.event.bytes, &item.key)?;
            Ok(Delivery { number: item.event.position, key: Key::from(item.key), event })
        })
        .collect()
}
