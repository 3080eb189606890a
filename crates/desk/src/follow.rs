//! Following what happens: one way for streams and for calls that wait. Who follows has a place among the agent's streams,
//! counts as present, and is let go when the server stops or its credential ends.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handover_engine::{Delivery, Denied, Ended, Key, Subscription, Topic};
use handover_kernel::Session;
use handover_store::{Place, SessionKey};
use tokio::time::{Instant, sleep, timeout_at};

use crate::caller::{Caller, sees};
use crate::directory::Present;
use crate::gate::Permit;
use crate::identity::{Credential, Unauthenticated, or_never};
use crate::memory::{Lease, Room, Staying};
use crate::no::No;
use crate::reading::blocking;
use crate::{Desk, page};

/// How many times an event that is given out is in memory: as it came, as it was understood, and as what is made of it.
const COPIES: u64 = 3;

/// What following something takes in memory, as long as it goes on, and what a stream or a waiting call does.
const FOLLOWING_BYTES: u64 = 4 * 1024;
const STAYING_BYTES: u64 = 4 * 1024;

/// How often what could not be read is read again, and after how long: a store that does not answer for a moment ends no
/// stream. Where it does not for longer, the reader may do better at another node.
const AGAIN_MAX: usize = 20;
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// How many events of everybody may have happened since a place from which somebody goes on.
pub const BEHIND_MAX: u64 = 100_000;

/// A place among the streams and waiting calls of an agent, given back when it is dropped.
pub struct Stay {
    over: Pin<Box<dyn Future<Output = Over> + Send>>,
    _permit: Permit,
    _present: Present,
    _held: (Option<Arc<Lease>>, Option<Staying>),
}

/// Why nothing more comes.
#[derive(Clone, Debug)]
pub enum Over {
    /// The server stops.
    Stopping,
    /// The caller's credential does not count any more.
    Unauthenticated(Unauthenticated),
    /// The reader did not keep up, and is one that is to be told.
    Lagging,
    /// What is stored could not be read.
    Denied(Denied),
}

/// What happens on a topic, without a gap and without a repeat. A reader that does not keep up is given what is stored,
/// unless its protocol wants to be told.
pub struct Events {
    desk: Desk,
    subscription: Subscription,
    tells_of_lag: bool,
    /// After the last event that was given out.
    after: Place,
    /// What was read and not yet given out, and the room that it takes.
    ready: VecDeque<Delivery>,
    held: Option<Lease>,
    room: Option<Room>,
    _following: Option<Lease>,
}

impl Desk {
    /// Let a caller stay: for a stream, or for as long as a call waits.
    pub fn stay(&self, caller: &Caller) -> Result<Stay, No> {
        let permit = self.gate.stream(caller)?;
        let staying = caller.room().map(|room| room.stay(STAYING_BYTES, caller.held.as_deref())).transpose();
        let staying = staying.map_err(|limited| self.gate.limited(caller, limited))?;
        let present = self.directory.present(&caller.tenant, &caller.agent);
        let (mut shutdown, gate) = (self.shutdown.clone(), self.gate.clone());
        let (principal, keys) = (Arc::clone(&caller.principal), Arc::clone(&self.keys));
        let over = Box::pin(async move {
            // Few sign what they follow with, and the others need no room for it.
            let signed = matches!(principal.credential, Credential::Signed(..));
            let unbound = signed.then(|| Box::pin(keys.ended(Arc::clone(&principal))));
            tokio::select! {
                biased;
                () = shutdown.begun() => Over::Stopping,
                ended = gate.ended(principal) => Over::Unauthenticated(ended),
                ended = or_never(unbound) => Over::Unauthenticated(ended),
            }
        });
        let held = (caller.held.clone(), staying);
        Ok(Stay { over, _permit: permit, _present: present, _held: held })
    }

    /// A session in which something happened, for whoever is told of it. Waits for a store that does not answer for a moment.
    pub async fn session_at_last(&self, caller: &Caller, session: &str) -> Result<Arc<Session>, No> {
        for _ in 0..AGAIN_MAX {
            match self.session(caller, session).await {
                Err(no) if no.may_pass() => sleep(AGAIN_AFTER).await,
                found => return found,
            }
        }
        self.session(caller, session).await
    }

    /// Whether the caller may see a session in which something happened. Nothing is noted of it if not: nobody asked for it.
    pub async fn sees_at_last(&self, caller: &Caller, session: &str) -> Result<bool, No> {
        let key = SessionKey::new(caller.tenant.clone(), session);
        let mut left = AGAIN_MAX;
        loop {
            match self.engine.session(key.clone()).await.map_err(No::from) {
                Err(no) if no.may_pass() && left > 0 => sleep(AGAIN_AFTER).await,
                found => return Ok(found?.is_some_and(|found| sees(caller, &found))),
            }
            left -= 1;
        }
    }

    /// How long a call of this caller waits for what it asks for.
    pub fn wait(&self, caller: &Caller, asked: Option<Duration>, hears_progress: bool) -> Duration {
        self.waits.of(caller, asked, hears_progress)
    }

    /// How long a call waits while its client asks its user something.
    pub fn wait_for_answer(&self) -> Duration {
        self.waits.for_answer
    }

    /// What happens in a session after an event. Whether the caller may see it is to be known by now.
    pub fn events(&self, caller: &Caller, session: &str, after: u64) -> Events {
        let key = Key::from(SessionKey::new(caller.tenant.clone(), session));
        self.follow(caller, Topic::Session(key), Place::first_slot(after))
    }

    /// What happens from now on in the sessions that the caller has a part in.
    pub async fn own_events(&self, caller: &Caller) -> Result<Events, No> {
        self.beginning_now(caller, own(caller)).await
    }

    /// What happened after a place in the sessions that the caller has a part in, and what happens from then on. None if
    /// the place is none, or too far behind: then whoever asks looks at everything, and goes on from now.
    pub async fn own_events_after(&self, caller: &Caller, place: &str) -> Result<Option<Events>, No> {
        self.beginning_after(caller, own(caller), place).await
    }

    async fn beginning_after(
        &self,
        caller: &Caller,
        topic: Topic,
        place: &str,
    ) -> Result<Option<Events>, No> {
        let Some(after) = Place::parse(place) else { return Ok(None) };
        let store = Arc::clone(&self.store);
        let last = blocking(move || store.last_place()).await?;
        if !last.covers(&after) || after.behind(&last) > BEHIND_MAX {
            return Ok(None);
        }
        Ok(Some(self.follow(caller, topic, after)))
    }

    /// What happens from now on in the sessions that the caller may see, and others among it: an observer hears of
    /// everything, and passes over what is not its tenant's.
    pub async fn visible_events(&self, caller: &Caller) -> Result<Events, No> {
        self.beginning_now(caller, visible(caller)).await
    }

    /// The same after a place, where that can be: see [`Desk::own_events_after`].
    pub async fn visible_events_after(&self, caller: &Caller, place: &str) -> Result<Option<Events>, No> {
        self.beginning_after(caller, visible(caller), place).await
    }

    async fn beginning_now(&self, caller: &Caller, topic: Topic) -> Result<Events, No> {
        let store = Arc::clone(&self.store);
        let last = blocking(move || store.last_place()).await?;
        Ok(self.follow(caller, topic, last))
    }

    /// The same for the server itself, whose room nobody bounds: it takes one event at a time.
    pub(crate) fn follow_freely(&self, topic: Topic, after: Place) -> Events {
        let subscription = self.engine.subscribe(topic, after.clone());
        let (desk, ready) = (self.clone(), VecDeque::new());
        let (held, room, _following) = (None, None, None);
        Events { desk, subscription, tells_of_lag: false, after, ready, held, room, _following }
    }

    fn follow(&self, caller: &Caller, topic: Topic, after: Place) -> Events {
        let subscription = self.engine.subscribe(topic, after.clone());
        let (desk, ready, room) = (self.clone(), VecDeque::new(), caller.room().cloned());
        // One call may follow many: whoever has none left for them is refused its next one.
        let following = room.as_ref().map(|room| room.hold(FOLLOWING_BYTES));
        let tells_of_lag = false;
        let held = None;
        Events { desk, subscription, tells_of_lag, after, ready, held, room, _following: following }
    }
}

/// What happens in the sessions that a caller has a part in.
fn own(caller: &Caller) -> Topic {
    Topic::Agent { tenant: caller.tenant.clone(), agent: caller.agent.as_str().into() }
}

/// What happens in the sessions that it may see, and others among it.
fn visible(caller: &Caller) -> Topic {
    if caller.observer { Topic::Everything } else { own(caller) }
}

impl Over {
    /// As a no, for calls that wait: of what was revoked and of what could not be read. None of what is an end like any
    /// other, where the call answers with what there is; a credential whose time is up is among that.
    pub fn no(self) -> Option<No> {
        match self {
            Over::Unauthenticated(ended) if !ended.is_expiry() => Some(No::Unauthenticated(ended)),
            Over::Denied(denied) => Some(denied.into()),
            Over::Stopping | Over::Unauthenticated(_) | Over::Lagging => None,
        }
    }
}

impl Events {
    /// The number of the last thing that happened in its session, for those who look for themselves at what it was. Waits for
    /// it, and holds nothing.
    pub async fn last(&mut self) -> Result<u64, Over> {
        let mut last = self.next().await?;
        while let Some(later) = self.ready.pop_front() {
            self.after.reach(later.position);
            last = later;
        }
        self.held = None;
        Ok(last.event.seq.0)
    }

    /// How far it has been read.
    pub(crate) fn reached(&self) -> &Place {
        &self.after
    }

    /// The place after which the next event comes, for whoever comes back.
    pub fn place(&self) -> String {
        self.after.to_string()
    }

    /// The same if an event that was given out could not be told: it comes again.
    pub fn place_before(&self, untold: &Delivery) -> String {
        self.after.clone().short_of(untold.position).to_string()
    }

    /// Hold nothing any more for what was given out.
    pub fn let_go(&mut self) {
        self.held = None;
    }

    /// The same, for a protocol whose readers are told that they lag, and begin again where they were.
    pub fn telling_of_lag(self) -> Events {
        Events { tells_of_lag: true, ..self }
    }

    /// The next event. Waits for it, and for room for it and for what is made of it: until the next one is asked for, that
    /// is held. Whoever waits for more room meanwhile must let go of it before, or many could wait for each other.
    pub async fn next(&mut self) -> Result<Delivery, Over> {
        let mut again = 0..AGAIN_MAX;
        loop {
            if !self.ready.is_empty() {
                // Nothing is taken out before there is room: whoever waits here may be interrupted.
                if let (None, Some(room)) = (&self.held, &self.room) {
                    self.held = Some(room.wait(most(room, weight(&self.ready))).await);
                }
            }
            if let Some(delivery) = self.ready.pop_front() {
                self.after.reach(delivery.position);
                return Ok(delivery);
            }
            self.held = None;
            if let Some(room) = self.room.as_ref().filter(|_| self.subscription.reads_stored()) {
                // A page, and then the event that ends it, which may be as large as any.
                let event_max = self.desk.engine.limits().payload_bytes_max;
                let page_max = COPIES * (page::BYTES_MAX + event_max) as u64;
                self.held = Some(room.wait(most(room, page_max)).await);
            }
            match self.subscription.next().await {
                Ok(events) => {
                    self.ready = events.into();
                    if let Some(held) = &mut self.held {
                        held.settle(weight(&self.ready));
                    }
                }
                Err(Ended::TooSlow { .. }) if self.tells_of_lag => return Err(Over::Lagging),
                Err(Ended::TooSlow { resume_after }) => {
                    self.subscription.begin_again(resume_after);
                }
                Err(Ended::Denied(denied)) if denied.may_pass() && again.next().is_some() => {
                    sleep(AGAIN_AFTER).await;
                }
                Err(Ended::Denied(denied)) => return Err(Over::Denied(denied)),
            }
        }
    }
}

/// What events take in memory.
fn weight(events: &VecDeque<Delivery>) -> u64 {
    events.iter().map(|delivery| COPIES * delivery.event.weight()).sum()
}

/// Whoever has little room goes on all the same, with a small part of it: the streams themselves take up some.
fn most(room: &Room, bytes: u64) -> u64 {
    bytes.min(room.max() / 16)
}

impl Stay {
    /// Returns when the caller may not stay any longer.
    pub async fn over(&mut self) -> Over {
        self.over.as_mut().await
    }

    /// The next event, unless it is over before.
    pub async fn next(&mut self, events: &mut Events) -> Result<Delivery, Over> {
        tokio::select! {
            biased;
            over = self.over.as_mut() => Err(over),
            event = events.next() => event,
        }
    }

    /// The next event, if there is one in time.
    pub async fn next_by(&mut self, events: &mut Events, until: Instant) -> Result<Option<Delivery>, Over> {
        match timeout_at(until, self.next(events)).await {
            Ok(event) => event.map(Some),
            Err(_) => Ok(None),
        }
    }
}
