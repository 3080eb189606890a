//! What happened, as spans of traces. The log is the queue: spans are made from what is stored, after the fact, and how far they
//! were told is kept in the store. Ids follow from the session and the event, so that whoever tells one again tells the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use handover_engine::codec;
use handover_kernel::{Event, Session, Trace};
use handover_store::{Fault, Feed, FeedItem, Place, Position, Put, Record, SessionKey, Slot, Store};

use crate::Desk;
use crate::caller::Caller;
use crate::no::No;
use crate::reading::blocking;

pub use self::story::{Link, Parent, Span, What};
use self::story::{Root, Story};

mod story;

/// Where it is kept how far each slot was told.
const SPACE: &str = "traces";

/// How many events are looked at together.
const PAGE: usize = 256;

/// Of how many sessions it is kept in memory how far they are: a few hundred bytes each. The others are read again.
const STORIES_MAX: usize = 8192;

/// How often it is written down how far everything was told, at least while there is more to tell: that takes a sync.
const KEPT_EVERY: Duration = Duration::from_secs(1);

/// How many levels up the root of a subtask is looked for.
const LEVELS_MAX: usize = 64;

/// Makes spans of what is stored, one page after the other.
pub struct Traces {
    desk: Desk,
    teller: Option<Teller>,
}

/// Spans, and how far they go.
#[derive(Debug, Default)]
pub struct Page {
    /// The spans.
    pub spans: Vec<Span>,
    /// How many events are not told yet, these not counted.
    pub behind: u64,
    /// How many events of this page could not be read.
    pub unreadable: u64,
    reached: Vec<Position>,
}

impl Page {
    /// Whether there was nothing new.
    pub fn is_empty(&self) -> bool {
        self.reached.is_empty()
    }
}

impl Desk {
    /// Spans of what happens from where they were left; from now on if nobody ever asked, at any node.
    pub fn traces(&self) -> Traces {
        Traces { desk: self.clone(), teller: None }
    }

    /// The trace of a task and the span of the work on it, for what its worker does itself. None if it cannot be read now: work
    /// goes on without it.
    pub async fn trace_for_worker(&self, caller: &Caller, session: &Session) -> Option<Trace> {
        let task = session.task().filter(|task| task.is_receiver(&session.binding, &caller.agent))?;
        let taken = task.taken.filter(|_| task.phase.assignee().is_some());
        let key = SessionKey::new(caller.tenant.clone(), session.binding.id.as_str());
        let store = Arc::clone(&self.store);
        let read = move || {
            let Some(first) = first(&*store, &key)? else { return Ok(None) };
            Ok(root(&*store, &key, &first)?.passed_on(&key, &first, taken))
        };
        blocking(read).await.ok().flatten()
    }
}

impl Traces {
    /// What is to be told next, possibly nothing. The same again until it is done.
    pub async fn next(&mut self) -> Result<Page, No> {
        let fresh = || Teller::new(Arc::clone(&self.desk.store));
        let mut teller = self.teller.take().unwrap_or_else(fresh);
        let (page, teller) = blocking(move || Ok((teller.look(), teller))).await?;
        self.teller = Some(teller);
        let page = page.map_err(|fault| No::from(handover_engine::Denied::Fault(Arc::new(fault))))?;
        self.desk.counters.traces_behind.set(page.behind as i64);
        Ok(page)
    }

    /// A page was told, but for so many spans that were given up: the next one follows, and after a restart those of the last
    /// second.
    pub async fn done(&mut self, page: Page, dropped: u64) -> Result<(), No> {
        let counters = &self.desk.counters;
        counters.spans_dropped.inc_by(dropped);
        counters.spans_told.inc_by((page.spans.len() as u64).saturating_sub(dropped));
        let Some(teller) = &mut self.teller else { return Ok(()) };
        teller.reached.extend(page.reached.iter().map(|position| (position.slot, position.number)));
        if page.behind > 0 && teller.kept_at.is_some_and(|at| at.elapsed() < KEPT_EVERY) {
            return Ok(());
        }
        teller.kept_at = Some(Instant::now());
        let (store, reached) = (Arc::clone(&self.desk.store), teller.reached.clone());
        let kept = move || {
            reached
                .iter()
                .map(|(slot, number)| Position { slot: *slot, number: *number })
                .try_for_each(|position| keep(&*store, position, Put::Replace))
        };
        Ok(blocking(kept).await?)
    }
}

fn keep(store: &dyn Store, reached: Position, put: Put) -> Result<(), Fault> {
    let value = reached.number.to_string().into_bytes();
    let key = reached.slot.0.to_string().into();
    store.put_record(&Record { space: SPACE.into(), tenant: "".into(), key, value }, put).map(|_| ())
}

fn kept(store: &dyn Store, slot: Slot) -> Result<Option<u64>, Fault> {
    let value = store.record(SPACE, "", &slot.0.to_string())?;
    Ok(value.and_then(|value| String::from_utf8(value).ok()?.parse().ok()))
}

/// Reads what is stored and remembers how far sessions are.
struct Teller {
    store: Arc<dyn Store>,
    stories: BTreeMap<SessionKey, Story>,
    /// Up to where the slots were told that this node tells of.
    reached: BTreeMap<Slot, u64>,
    /// When that was last written down.
    kept_at: Option<Instant>,
}

impl Teller {
    fn new(store: Arc<dyn Store>) -> Teller {
        Teller { store, stories: BTreeMap::new(), reached: BTreeMap::new(), kept_at: None }
    }

    fn look(&mut self) -> Result<Page, Fault> {
        let (last, ours) = self.ours()?;
        self.reached.retain(|slot, _| ours.contains(slot));
        let mut page = Page::default();
        let mut from = Place::default();
        for slot in &ours {
            from.reach(Position { slot: *slot, number: self.told(&last, *slot)? });
        }
        // What others tell is passed over by whoever reads after its end.
        for end in last.positions().filter(|end| !ours.contains(&end.slot)) {
            from.reach(end);
        }
        let items = self.store.feed(&Feed::Everything, &from, PAGE)?;
        let mut reached = from.clone();
        for item in items.iter().filter(|item| ours.contains(&item.event.position.slot)) {
            match self.spans(item)? {
                Some(spans) => page.spans.extend(spans),
                None => page.unreadable += 1,
            }
            reached.reach(item.event.position);
        }
        page.behind = reached.behind(&last);
        page.reached = reached.positions().filter(|position| from.is_before(*position)).collect();
        Ok(page)
    }

    /// Where everything ends, and the slots that this node tells of: its own, and those of nodes that are gone if it is the first
    /// of those that are there.
    fn ours(&self) -> Result<(Place, BTreeSet<Slot>), Fault> {
        let (own, live, last) = (self.store.slot(), self.store.live()?, self.store.last_place()?);
        // Where there is one writer, it has the first slot.
        let own = own.unwrap_or_default();
        let is_first = live.iter().min() == Some(&own);
        let gone = last.positions().map(|position| position.slot).filter(|slot| !live.contains(slot));
        let ours = std::iter::once(own).chain(gone.filter(|_| is_first)).collect();
        Ok((last, ours))
    }

    /// Up to which number a slot was told. Whoever looks first of all nodes begins with what comes from then on, in all slots that there
    /// are; a slot that came later is told from its beginning, since what is in it may have been written before anybody looked at it.
    fn told(&mut self, last: &Place, slot: Slot) -> Result<u64, Fault> {
        if let Some(number) = self.reached.get(&slot) {
            return Ok(*number);
        }
        if self.store.records(SPACE, "", None, 1)?.is_empty() {
            let own = Position { slot, number: last.number(slot) };
            let others = last.positions().filter(|end| end.slot != slot);
            others.chain([own]).try_for_each(|end| keep(&*self.store, end, Put::IfAbsent))?;
        }
        let number = kept(&*self.store, slot)?.unwrap_or(0);
        self.reached.insert(slot, number);
        Ok(number)
    }

    /// The spans that end with an event; none if its session cannot be read.
    fn spans(&mut self, item: &FeedItem) -> Result<Option<Vec<Span>>, Fault> {
        let Ok(event) = codec::decode(&item.event.bytes) else { return Ok(None) };
        let Some(mut story) = self.before(&item.key, &event)? else { return Ok(None) };
        let spans = self.take(&item.key, &mut story, &event)?;
        if self.stories.len() >= STORIES_MAX {
            self.stories.pop_first();
        }
        if !story.is_over() {
            self.stories.insert(item.key.clone(), story);
        }
        Ok(Some(spans))
    }

    /// A session as it was before an event.
    fn before(&mut self, key: &SessionKey, event: &Event) -> Result<Option<Story>, Fault> {
        let known = self.stories.remove(key).filter(|story| story.head().0 < event.seq.0);
        let mut story = match known {
            Some(story) => story,
            None => {
                let Some(first) = first(&*self.store, key)? else { return Ok(None) };
                let root = root(&*self.store, key, &first)?;
                match Story::begin(key, &first, root) {
                    Some(story) => story,
                    None => return Ok(None),
                }
            }
        };
        while story.head().0 + 1 < event.seq.0 {
            let stored = self.store.read(key, story.head().0, PAGE)?;
            let head = story.head();
            for stored in stored.iter().take_while(|stored| stored.seq < event.seq.0) {
                let Ok(event) = codec::decode(&stored.bytes) else { return Ok(None) };
                self.take(key, &mut story, &event)?;
            }
            if story.head() == head {
                return Ok(None);
            }
        }
        Ok(Some(story))
    }

    /// The spans that end with the next event of a session. A handoff has to do with the task that it offers.
    fn take(&self, key: &SessionKey, story: &mut Story, event: &Event) -> Result<Vec<Span>, Fault> {
        if let Some(task) = story::offered_task(event) {
            let key = SessionKey::new(key.tenant.clone(), task.as_str());
            if let Some(first) = first(&*self.store, &key)? {
                story.is_about(root(&*self.store, &key, &first)?.link());
            }
        }
        Ok(story.take(event))
    }
}

/// What a session is part of: the trace of its caller, or else that of the task above it, or else one of its own.
fn root(store: &dyn Store, key: &SessionKey, first: &Event) -> Result<Root, Fault> {
    let mut above = vec![(key.clone(), story::without_content(first))];
    let mut parent = story::parent(first).cloned();
    while above.len() < LEVELS_MAX {
        let is_told = above.last().is_some_and(|(_, event)| event.trace.is_some());
        let Some(id) = parent.filter(|_| !is_told) else { break };
        let key = SessionKey::new(key.tenant.clone(), id.as_str());
        let Some(first) = self::first(store, &key)? else { break };
        parent = story::parent(&first).cloned();
        above.push((key, story::without_content(&first)));
    }
    let mut root = None;
    for (key, event) in above.iter().rev() {
        root = Some(Root::of(key, event, root.as_ref()));
    }
    Ok(root.unwrap_or_else(|| Root::of(key, first, None)))
}

fn first(store: &dyn Store, key: &SessionKey) -> Result<Option<Event>, Fault> {
    let stored = store.read(key, 0, 1)?;
    Ok(stored.first().and_then(|stored| codec::decode(&stored.bytes).ok()))
}
