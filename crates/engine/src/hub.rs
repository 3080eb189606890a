//! Who hears of which events: by session, by agent, or everything. A plain state machine.
//!
//! A subscriber has a queue that is bounded in events and in bytes. What has too many bytes is not queued: the subscriber
//! reads it from the log, as it goes on. One that is too many events behind is cut off and can begin again from the last
//! number that it saw: nothing is dropped in silence. [`Follower`] joins what is stored to what is live, without a gap and
//! without a repeat.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use handover_kernel::Event;
use handover_kernel::session::Binding;
use handover_store::{Place, Position};

use crate::key::Key;
use crate::shard::Published;
use crate::view;

/// What a subscriber wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The events of one session, at their places in its log: a log has one slot.
    Session(Key),
    /// The events of the sessions that one agent has a part in, at their positions among all events.
    Agent {
        /// The agent's namespace.
        tenant: Box<str>,
        /// The agent.
        agent: Box<str>,
    },
    /// Every event, at its position.
    Everything,
}

/// One event, as a subscriber gets it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Where it stands on the subscriber's topic: begin again after it to miss nothing.
    pub position: Position,
    /// Whose event it is.
    pub key: Key,
    /// The event.
    pub event: Arc<Event>,
}

/// Durable events of one session, for everybody who wants to hear of them.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Which session.
    pub key: &'a Key,
    /// Whose lists show it.
    pub listed: Listed<'a>,
    /// The events, in order.
    pub events: &'a [Arc<Event>],
    /// The position of the first of them among all events; the others follow.
    pub first: Position,
}

/// Whose lists show a session.
#[derive(Clone, Copy, Debug)]
pub enum Listed<'a> {
    /// As it was bound at the start.
    Bound(&'a Binding),
    /// As the store says.
    Agents(&'a [Box<str>]),
}

impl Told<'_> {
    /// The same agents as in the index: what is live continues what is stored.
    fn agents(&self) -> Vec<Box<str>> {
        match self.listed {
            Listed::Bound(binding) => view::agents(binding),
            Listed::Agents(agents) => agents.to_vec(),
        }
    }
}

impl<'a> From<&'a Published> for Told<'a> {
    fn from(published: &'a Published) -> Told<'a> {
        let Published { key, binding, events, first, .. } = published;
        Told { key, listed: Listed::Bound(binding), events, first: *first }
    }
}

/// The name of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubscriberId(u64);

#[derive(Debug)]
struct Subscriber<W> {
    topic: Arc<Topic>,
    queue: VecDeque<Delivery>,
    queue_max: usize,
    /// How many bytes the queue has.
    bytes: u64,
    /// How many events have come after those that are queued, which are to be read from the log.
    spilled: usize,
    cut: bool,
    /// Something may be stored that was never queued.
    missed: bool,
    waker: W,
}

/// What a subscriber's queue holds.
#[derive(Debug)]
pub enum Taken {
    /// These, possibly none.
    Events(Vec<Delivery>),
    /// Something may be stored that was never queued: read again what is stored.
    Missed,
    /// It did not keep up and was cut off.
    Cut,
}

/// How many bytes may be queued for one subscriber.
pub const QUEUE_BYTES_MAX: u64 = 64 * 1024;

/// How many bytes may be queued for all subscribers together.
pub const HUB_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// All subscribers; `W` is how one is woken.
#[derive(Debug)]
pub struct Hub<W> {
    subscribers: BTreeMap<SubscriberId, Subscriber<W>>,
    /// In the order in which they joined.
    by_topic: BTreeMap<Arc<Topic>, Vec<SubscriberId>>,
    next: u64,
    /// How many bytes all queues have together.
    bytes: u64,
}

impl<W> Default for Hub<W> {
    fn default() -> Self {
        Hub { subscribers: BTreeMap::new(), by_topic: BTreeMap::new(), next: 0, bytes: 0 }
    }
}

impl<W: Clone> Hub<W> {
    /// Begin to queue the events of a topic.
    pub fn join(&mut self, topic: impl Into<Arc<Topic>>, queue_max: usize, waker: W) -> SubscriberId {
        let id = SubscriberId(self.next);
        self.next += 1;
        let topic = topic.into();
        // Most topics have one subscriber, and there are many topics.
        let alone = || Vec::with_capacity(1);
        self.by_topic.entry(Arc::clone(&topic)).or_insert_with(alone).push(id);
        let queue = VecDeque::new();
        let subscriber =
            Subscriber { topic, queue, queue_max, bytes: 0, spilled: 0, cut: false, missed: false, waker };
        self.subscribers.insert(id, subscriber);
        id
    }

    /// Stop.
    pub fn leave(&mut self, id: SubscriberId) {
        let Some(subscriber) = self.subscribers.remove(&id) else { return };
        self.bytes -= subscriber.bytes;
        if let Some(ids) = self.by_topic.get_mut(&subscriber.topic) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_topic.remove(&subscriber.topic);
            }
        }
    }

    /// How many bytes are queued for all subscribers together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many subscribers there are.
    pub fn len(&self) -> usize {
        self.subscribers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.subscribers.is_empty()
    }

    /// Queue durable events for everybody who wants them; says whom to wake, and how many were cut off. To be called in
    /// the order of the positions.
    pub fn publish(&mut self, published: &Told<'_>) -> (Vec<W>, usize) {
        let mut wake = Vec::new();
        let mut cut = 0;
        if self.subscribers.is_empty() {
            return (wake, cut);
        }
        let tenant = &published.key.tenant;
        let agents = published.agents().into_iter();
        let topics = [Topic::Session(published.key.clone()), Topic::Everything]
            .into_iter()
            .chain(agents.map(|agent| Topic::Agent { tenant: tenant.clone(), agent }));
        for topic in topics {
            let Some(ids) = self.by_topic.get(&topic) else {
                continue;
            };
            for id in ids {
                if let Some(subscriber) = self.subscribers.get_mut(id).filter(|subscriber| !subscriber.cut) {
                    self.bytes += subscriber.queue(published, HUB_BYTES_MAX.saturating_sub(self.bytes));
                    cut += usize::from(subscriber.cut);
                    wake.push(subscriber.waker.clone());
                }
            }
        }
        (wake, cut)
    }

    /// The outcome of a commit is unknown: what it wrote, if it wrote, is never published. Everybody reads again what is
    /// stored; says whom to wake.
    pub fn missed(&mut self) -> Vec<W> {
        let all = self.subscribers.values_mut();
        all.map(|subscriber| {
            subscriber.missed = true;
            subscriber.waker.clone()
        })
        .collect()
    }

    /// What waits for a subscriber, at most `max` of it.
    pub fn take(&mut self, id: SubscriberId, max: usize) -> Taken {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return Taken::Cut };
        let before = subscriber.bytes;
        let taken = subscriber.take(max);
        self.bytes -= before - subscriber.bytes;
        taken
    }
}

impl<W> Subscriber<W> {
    /// Queue events, of which the hub has room for so many bytes. Says how many bytes were queued.
    fn queue(&mut self, published: &Told<'_>, room: u64) -> u64 {
        let mut room = room.min(QUEUE_BYTES_MAX.saturating_sub(self.bytes));
        let before = self.bytes;
        for (index, event) in published.events.iter().enumerate() {
            if self.queue.len() + self.spilled >= self.queue_max {
                // What is queued is still good; after it the subscriber must begin again.
                self.cut = true;
                break;
            }
            let bytes = event.weight();
            if self.spilled > 0 || bytes > room {
                self.spilled += 1;
                continue;
            }
            room -= bytes;
            self.bytes += bytes;
            let position = match &*self.topic {
                Topic::Session(_) => Position::first_slot(event.seq.0),
                Topic::Agent { .. } | Topic::Everything => published.first.plus(index as u64),
            };
            let (key, event) = (published.key.clone(), Arc::clone(event));
            self.queue.push_back(Delivery { position, key, event });
        }
        self.bytes - before
    }

    fn take(&mut self, max: usize) -> Taken {
        if self.missed {
            // What is queued is stored as well, and may come after what was missed. Reading it again makes up for
            // having been cut off, too.
            self.missed = false;
            self.cut = false;
            self.bytes = 0;
            self.spilled = 0;
            self.queue.clear();
            return Taken::Missed;
        }
        if !self.queue.is_empty() {
            let count = self.queue.len().min(max);
            let events: Vec<Delivery> = self.queue.drain(..count).collect();
            self.bytes -= events.iter().map(|delivery| delivery.event.weight()).sum::<u64>();
            return Taken::Events(events);
        }
        if self.cut {
            return Taken::Cut;
        }
        match std::mem::take(&mut self.spilled) {
            0 => Taken::Events(Vec::new()),
            _ => Taken::Missed,
        }
    }
}

/// How many stored events a follower asks for at a time.
pub const PAGE_MAX: usize = 256;

/// Stored events of a topic.
#[derive(Clone, Debug)]
pub struct Page {
    /// The events, in order.
    pub events: Vec<Delivery>,
    /// Whether there may be more after them.
    pub more: bool,
}

/// What a follower needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Stored events after the last that it has, at most [`PAGE_MAX`].
    Page,
    /// To join the hub, and then a page.
    Join,
    /// What its queue holds.
    Live,
}

/// Joins what is stored to what is live: reads until it has caught up, joins the hub, reads once more what was
/// written meanwhile, and then takes what comes, passing over what it has.
#[derive(Clone, Debug)]
pub struct Follower {
    last: Place,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    CatchingUp,
    Joining,
    Closing,
    Live,
}

impl Follower {
    /// Begin after this place.
    pub fn after(place: Place) -> Follower {
        Follower { last: place, stage: Stage::CatchingUp }
    }

    /// The place after the last event that was passed on.
    pub fn last(&self) -> &Place {
        &self.last
    }

    /// What it needs next.
    pub fn need(&self) -> Need {
        match self.stage {
            Stage::CatchingUp | Stage::Closing => Need::Page,
            Stage::Joining => Need::Join,
            Stage::Live => Need::Live,
        }
    }

    /// It has joined the hub.
    pub fn joined(&mut self) {
        self.stage = Stage::Closing;
    }

    /// Something may be stored that was never live: read again, still joined.
    pub fn missed(&mut self) {
        self.stage = Stage::Closing;
    }

    /// A page of stored events; says what of it to pass on.
    pub fn page(&mut self, page: Page) -> Vec<Delivery> {
        if !page.more {
            self.stage = match self.stage {
                Stage::CatchingUp => Stage::Joining,
                Stage::Joining | Stage::Closing | Stage::Live => Stage::Live,
            };
        }
        self.fresh(page.events)
    }

    /// What the queue held; says what of it to pass on.
    pub fn live(&mut self, events: Vec<Delivery>) -> Vec<Delivery> {
        self.fresh(events)
    }

    fn fresh(&mut self, mut events: Vec<Delivery>) -> Vec<Delivery> {
        events.retain(|delivery| self.last.reach(delivery.position));
        events
    }
}

#[cfg(test)]
mod tests {
    use handover_kernel::{
        Author, Event, Face, Fact, IdScope, Limits, Seq, SessionId, Text, Timestamp, step,
    };

    use super::*;
    use crate::shard::tests::{NOW, key, start};

    /// Events of the session `name`, from this place in its log and at this position.
    fn published(name: &str, seq: u64, first: u64, count: u64) -> Published {
        let mut slot = None;
        step(&mut slot, &SessionId::from(name), &start(None), &Limits::default(), NOW);
        let binding = slot.expect("it has started").binding;
        let event = |seq| Event {
            seq: Seq(seq),
            at: Timestamp(seq),
            author: Author::Runtime,
            face: Face::Runtime,
            ordinal: None,
            id: None,
            id_scope: IdScope::Runtime,
            verbatim: None,
            sent_at: None,
            trace: None,
            fact: Fact::Steered { text: Text::default() },
        };
        let events = (seq..seq + count).map(|seq| Arc::new(event(seq))).collect();
        Published {
            key: key(name),
            binding,
            events,
            first: Position::first_slot(first),
            stamp: first,
            bytes: 0,
            ended: None,
        }
    }

    fn of_agent(agent: &str) -> Topic {
        Topic::Agent { tenant: "t".into(), agent: agent.into() }
    }

    fn numbers(taken: Taken) -> Vec<u64> {
        match taken {
            Taken::Events(events) => events.iter().map(|delivery| delivery.position.number).collect(),
            Taken::Missed | Taken::Cut => panic!("found {taken:?}"),
        }
    }

    #[test]
    fn everybody_hears_of_what_they_asked_for() {
        let mut hub = Hub::default();
        let topics = [
            Topic::Session(key("s")),
            Topic::Session(key("other")),
            of_agent("planner"),
            of_agent("worker"),
            of_agent("outsider"),
            Topic::Agent { tenant: "u".into(), agent: "worker".into() },
            Topic::Everything,
        ];
        let ids: Vec<SubscriberId> =
            topics.iter().enumerate().map(|(index, topic)| hub.join(topic.clone(), 10, index)).collect();
        let (mut woken, cut) = hub.publish(&Told::from(&published("s", 3, 70, 2)));
        woken.sort();
        assert_eq!((woken, cut), (vec![0, 2, 3, 6], 0));
        let heard: Vec<Vec<u64>> = ids.iter().map(|id| numbers(hub.take(*id, 10))).collect();
        let [of_log, by_position, none] = [vec![3, 4], vec![70, 71], Vec::new()];
        assert_eq!(
            heard,
            [of_log, none.clone(), by_position.clone(), by_position.clone(), none.clone(), none, by_position]
        );
    }

    #[test]
    fn a_queue_is_taken_in_portions_and_in_order() {
        let mut hub = Hub::default();
        let id = hub.join(Topic::Everything, 10, ());
        hub.publish(&Told::from(&published("s", 1, 1, 3)));
        hub.publish(&Told::from(&published("r", 1, 4, 2)));
        assert_eq!(numbers(hub.take(id, 2)), [1, 2]);
        assert_eq!(numbers(hub.take(id, 9)), [3, 4, 5]);
        assert!(numbers(hub.take(id, 9)).is_empty());
    }

    #[test]
    fn a_slow_subscriber_keeps_what_is_queued_and_is_cut_off_after_it() {
        let mut hub = Hub::default();
        let slow = hub.join(Topic::Everything, 3, "slow");
        let quick = hub.join(Topic::Everything, 9, "quick");
        assert_eq!(hub.publish(&Told::from(&published("s", 1, 1, 2))).1, 0);
        assert_eq!(hub.publish(&Told::from(&published("s", 3, 3, 2))).1, 1);
        assert_eq!(
            hub.publish(&Told::from(&published("s", 5, 5, 1))),
            (vec!["quick"], 0),
            "it is cut off once"
        );
        assert_eq!(numbers(hub.take(slow, 2)), [1, 2]);
        assert_eq!(numbers(hub.take(slow, 2)), [3]);
        assert!(matches!(hub.take(slow, 2), Taken::Cut));
        assert_eq!(numbers(hub.take(quick, 9)), [1, 2, 3, 4, 5]);
    }

    /// The same with events that carry this many bytes.
    fn heavy(seq: u64, count: u64, bytes: usize) -> Published {
        let mut published = published("s", seq, seq, count);
        for event in &mut published.events {
            Arc::make_mut(event).fact = Fact::Steered { text: Text::from("x".repeat(bytes)) };
        }
        published
    }

    #[test]
    fn what_has_too_many_bytes_is_read_from_the_log_and_counts_towards_falling_behind() {
        let mut hub = Hub::default();
        let id = hub.join(Topic::Everything, 10, ());
        let half = (QUEUE_BYTES_MAX / 2) as usize - 100;
        assert_eq!(hub.publish(&Told::from(&heavy(1, 4, half))).1, 0);
        assert!(hub.bytes() <= QUEUE_BYTES_MAX, "{}", hub.bytes());
        // What is small comes after what was not queued, and is not queued either.
        assert_eq!(hub.publish(&Told::from(&heavy(5, 1, 0))).1, 0);
        assert_eq!(numbers(hub.take(id, 9)), [1, 2]);
        assert_eq!(hub.bytes(), 0);
        assert!(matches!(hub.take(id, 9), Taken::Missed));
        assert!(numbers(hub.take(id, 9)).is_empty());
        assert_eq!(hub.publish(&Told::from(&heavy(6, 1, 0))).1, 0);
        assert_eq!(numbers(hub.take(id, 9)), [6], "it goes on");
        assert_eq!(hub.publish(&Told::from(&heavy(7, 11, half))).1, 1, "eleven are too many, queued or not");
        assert_eq!(numbers(hub.take(id, 9)), [7, 8]);
        assert!(matches!(hub.take(id, 9), Taken::Cut));
        hub.leave(id);
        assert_eq!(hub.bytes(), 0);
    }

    #[test]
    fn all_subscribers_together_have_no_more_than_the_hub_may_queue() {
        let mut hub = Hub::default();
        let full = heavy(1, 1, QUEUE_BYTES_MAX as usize - 100);
        let many = HUB_BYTES_MAX / QUEUE_BYTES_MAX + 8;
        let ids: Vec<SubscriberId> = (0..many).map(|_| hub.join(Topic::Everything, 9, ())).collect();
        hub.publish(&Told::from(&full));
        assert!(hub.bytes() <= HUB_BYTES_MAX && hub.bytes() > HUB_BYTES_MAX - QUEUE_BYTES_MAX);
        let spilled = ids.iter().filter(|id| matches!(hub.take(**id, 9), Taken::Missed)).count();
        assert!((1..=8).contains(&spilled), "{spilled}");
        ids.into_iter().for_each(|id| hub.leave(id));
        assert_eq!(hub.bytes(), 0);
    }

    #[test]
    fn after_a_commit_in_doubt_everybody_reads_again_and_none_stays_cut_off() {
        let mut hub = Hub::default();
        let slow = hub.join(Topic::Everything, 1, "slow");
        let quick = hub.join(Topic::Everything, 9, "quick");
        hub.publish(&Told::from(&published("s", 1, 1, 2)));
        assert_eq!(hub.missed(), ["slow", "quick"]);
        hub.publish(&Told::from(&published("s", 4, 4, 1)));
        for id in [slow, quick] {
            assert!(matches!(hub.take(id, 9), Taken::Missed));
            assert!(numbers(hub.take(id, 9)).is_empty(), "what was queued is stored as well");
        }
        hub.publish(&Told::from(&published("s", 5, 5, 1)));
        assert_eq!(numbers(hub.take(slow, 9)), [5]);
        assert_eq!(numbers(hub.take(quick, 9)), [5]);
    }

    #[test]
    fn one_who_left_hears_nothing_and_is_not_woken() {
        let mut hub = Hub::default();
        let gone = hub.join(Topic::Everything, 9, "gone");
        let stays = hub.join(Topic::Everything, 9, "stays");
        hub.leave(gone);
        hub.leave(gone);
        assert_eq!(hub.len(), 1);
        assert_eq!(hub.publish(&Told::from(&published("s", 1, 1, 1))).0, ["stays"]);
        assert!(matches!(hub.take(gone, 9), Taken::Cut));
        hub.leave(stays);
        assert!(hub.is_empty() && hub.by_topic.is_empty());
        assert!(hub.publish(&Told::from(&published("s", 2, 2, 1))).0.is_empty());
    }

    fn deliveries(numbers: impl IntoIterator<Item = u64>) -> Vec<Delivery> {
        let event = Arc::clone(&published("s", 1, 1, 1).events[0]);
        numbers
            .into_iter()
            .map(|number| Delivery {
                position: Position::first_slot(number),
                key: key("s"),
                event: Arc::clone(&event),
            })
            .collect()
    }

    fn full(numbers: impl IntoIterator<Item = u64>) -> Page {
        Page { events: deliveries(numbers), more: true }
    }

    fn last(numbers: impl IntoIterator<Item = u64>) -> Page {
        Page { events: deliveries(numbers), more: false }
    }

    fn passed_on(events: Vec<Delivery>) -> Vec<u64> {
        events.iter().map(|delivery| delivery.position.number).collect()
    }

    #[test]
    fn a_follower_reads_joins_reads_once_more_and_goes_live() {
        let page = PAGE_MAX as u64;
        let mut follower = Follower::after(Place::first_slot(5));
        assert_eq!((follower.need(), follower.last()), (Need::Page, &Place::first_slot(5)));
        assert_eq!(passed_on(follower.page(full(6..6 + page))).len(), PAGE_MAX);
        let after = 5 + page;
        assert_eq!(
            (follower.need(), follower.last()),
            (Need::Page, &Place::first_slot(after)),
            "a full page may have a next one"
        );
        assert!(follower.page(last([])).is_empty());
        assert_eq!((follower.need(), follower.last()), (Need::Join, &Place::first_slot(after)));
        follower.joined();
        assert_eq!(
            (follower.need(), follower.last()),
            (Need::Page, &Place::first_slot(after)),
            "what was written before it joined"
        );
        assert_eq!(passed_on(follower.page(last([after + 1, after + 2]))), [after + 1, after + 2]);
        assert_eq!(follower.need(), Need::Live);
        let queued = deliveries([after + 1, after + 2, after + 3]);
        assert_eq!(passed_on(follower.live(queued)), [after + 3], "what it has is passed over");
        assert_eq!(follower.last(), &Place::first_slot(after + 3));
    }

    #[test]
    fn a_full_last_page_keeps_a_follower_reading_until_it_has_caught_up() {
        let mut follower = Follower::after(Place::first_slot(0));
        follower.page(last([]));
        follower.joined();
        follower.page(full(1..=PAGE_MAX as u64));
        assert_eq!(follower.need(), Need::Page);
        follower.page(last([]));
        assert_eq!(follower.need(), Need::Live);
    }

    #[test]
    fn a_follower_that_missed_something_reads_it_without_joining_again() {
        let mut follower = Follower::after(Place::first_slot(0));
        follower.page(last([1]));
        follower.joined();
        follower.page(last([]));
        follower.live(deliveries([2]));
        follower.missed();
        assert_eq!((follower.need(), follower.last()), (Need::Page, &Place::first_slot(2)));
        assert_eq!(passed_on(follower.page(last([3, 4]))), [3, 4]);
        assert_eq!(follower.need(), Need::Live);
        assert_eq!(passed_on(follower.live(deliveries([4, 5]))), [5]);
    }
}
