//! What is stored joined to what is live, as a stream of events without a gap and without a repeat.

use std::sync::Arc;

use handover_store::{Fault, Feed, Place, Position, Slot, Store, is_full};
use tokio::sync::Notify;

use crate::answer::Denied;
use crate::codec;
use crate::hub::{Delivery, Follower, Need, PAGE_MAX, Page, SubscriberId, Taken, Topic};
use crate::key::Key;
use crate::locks::lock;
use crate::shell::Engine;

/// Why a subscription ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The reader did not keep up. Beginning again after this place misses nothing.
    TooSlow {
        /// After the last event that it was given.
        resume_after: Place,
    },
    /// What is stored could not be read.
    Denied(Denied),
}

/// The events of a topic, from a place on.
pub struct Subscription {
    engine: Engine,
    topic: Arc<Topic>,
    follower: Follower,
    joined: Option<SubscriberId>,
    notify: Arc<Notify>,
}

impl Engine {
    /// Follow a topic from after this place. What is stored comes first, then what happens.
    pub fn subscribe(&self, topic: Topic, after: Place) -> Subscription {
        Subscription {
            engine: self.clone(),
            topic: Arc::new(topic),
            follower: Follower::after(after),
            joined: None,
            notify: Arc::new(Notify::new()),
        }
    }
}

impl Subscription {
    /// The next events: a page of what is stored, or what has happened since. Waits for them. There are none where what
    /// follows must be looked for among what is stored: ask again.
    pub async fn next(&mut self) -> Result<Vec<Delivery>, Ended> {
        match self.follower.need() {
            Need::Page => {
                let page = self.page(self.follower.last().clone()).await?;
                Ok(self.follower.page(page))
            }
            Need::Join => {
                let inner = self.engine.inner();
                let queue_max = inner.settings.subscriber_queue_max;
                let id = lock(&inner.hub).join(Arc::clone(&self.topic), queue_max, Arc::clone(&self.notify));
                self.joined = Some(id);
                self.follower.joined();
                Ok(Vec::new())
            }
            Need::Live => self.live().await,
        }
    }

    /// Begin again after a place, as whoever was cut off does.
    pub fn begin_again(&mut self, after: Place) {
        self.leave();
        self.follower = Follower::after(after);
    }

    fn leave(&mut self) {
        if let Some(id) = self.joined.take() {
            lock(&self.engine.inner().hub).leave(id);
        }
    }

    /// Whether what comes next is read from what is stored.
    pub fn reads_stored(&self) -> bool {
        self.follower.need() == Need::Page
    }

    async fn live(&mut self) -> Result<Vec<Delivery>, Ended> {
        let Some(id) = self.joined else {
            unreachable!("a follower is live only after it has joined");
        };
        loop {
            let taken = lock(&self.engine.inner().hub).take(id, PAGE_MAX);
            match taken {
                Taken::Events(events) if events.is_empty() => self.notify.notified().await,
                Taken::Events(events) => return Ok(self.follower.live(events)),
                Taken::Missed => {
                    self.follower.missed();
                    return Ok(Vec::new());
                }
                Taken::Cut => return Err(Ended::TooSlow { resume_after: self.follower.last().clone() }),
            }
        }
    }

    async fn page(&self, after: Place) -> Result<Page, Ended> {
        let store = Arc::clone(&self.engine.inner().store);
        let topic = Arc::clone(&self.topic);
        let read = tokio::task::spawn_blocking(move || read_page(&*store, &topic, &after));
        match read.await {
            Ok(page) => page.map_err(Ended::Denied),
            Err(_) => Err(Ended::Denied(Denied::Stopping)),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A page of what is stored on a topic, cut by bytes.
pub fn read_page(store: &dyn Store, topic: &Topic, after: &Place) -> Result<Page, Denied> {
    let fault = |fault: Fault| Denied::Fault(Arc::new(fault));
    let decode = |bytes: &[u8], key: &dyn std::fmt::Display| {
        codec::decode(bytes)
            .map(Arc::new)
            .map_err(|error| Denied::Unreadable(Arc::from(format!("session {key} cannot be read: {error}"))))
    };
    let feed = match topic {
        Topic::Session(key) => {
            let stored = store.read(key, after.number(Slot(0)), PAGE_MAX).map_err(fault)?;
            let more = is_full(&stored, PAGE_MAX);
            let events = stored.into_iter().map(|stored| {
                let event = decode(&stored.bytes, key)?;
                Ok(Delivery { position: Position::first_slot(stored.seq), key: key.clone(), event })
            });
            return Ok(Page { events: events.collect::<Result<_, _>>()?, more });
        }
        Topic::Agent { tenant, agent } => Feed::Agent { tenant: tenant.clone(), agent: agent.clone() },
        Topic::Everything => Feed::Everything,
    };
    let items = store.feed(&feed, after, PAGE_MAX).map_err(fault)?;
    let more = is_full(&items, PAGE_MAX);
    let events = items.into_iter().map(|item| {
        let event = decode(&item.event.bytes, &item.key)?;
        Ok(Delivery { position: item.event.position, key: Key::from(item.key), event })
    });
    Ok(Page { events: events.collect::<Result<_, _>>()?, more })
}
