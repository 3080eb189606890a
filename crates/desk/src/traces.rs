//! What happened, as spans of traces. The log is the queue: spans are made from what is stored, after the fact, and how far they
//! were told is kept in the store. Ids follow from the session and the event, so that whoever tells one again tells the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handover_engine::codec;
use handover_kernel::Event;
use handover_store::{Fault, Feed, FeedItem, Place, Position, Put, Record, SessionKey, Slot, Store};

use crate::Desk;
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
    /// Spans of what happens from where they were left; from now on if nobody ever asked.
    pub fn traces(&self) -> Traces {
        let teller = Teller { store: Arc::clone(&self.store), stories: BTreeMap::new() };
        Traces { desk: self.clone(), teller: Some(teller) }
    }
}

impl Traces {
    /// What is to be told next, possibly nothing. The same again until it is done.
    pub async fn next(&mut self) -> Result<Page, No> {
        let fresh = || Teller { store: Arc::clone(&self.desk.store), stories: BTreeMap::new() };
        let mut teller = self.teller.take().unwrap_or_else(fresh);
        let looked = blocking(move || Ok((teller.look(), teller))).await?;
        let (page, teller) = looked;
        self.teller = Some(teller);
        let page = page.map_err(|fault| No::from(handover_engine::Denied::Fault(Arc::new(fault))))?;
        self.desk.counters.traces_behind.set(page.behind as i64);
        Ok(page)
    }

    /// A page was told, or given up: the next one follows, also after a restart.
    pub async fn done(&self, page: Page, told: bool) -> Result<(), No> {
        let counters = &self.desk.counters;
        let counter = if told { &counters.spans_told } else { &counters.spans_dropped };
        counter.inc_by(page.spans.len() as u64);
        let store = Arc::clone(&self.desk.store);
        Ok(blocking(move || page.reached.iter().try_for_each(|position| keep(&*store, *position))).await?)
    }
}

fn keep(store: &dyn Store, reached: Position) -> Result<(), Fault> {
    let value = reached.number.to_string().into_bytes();
    let key = reached.slot.0.to_string().into();
    store.put_record(&Record { space: SPACE.into(), tenant: "".into(), key, value }, Put::Replace).map(|_| ())
}

fn kept(store: &dyn Store, slot: Slot) -> Result<Option<u64>, Fault> {
    let value = store.record(SPACE, "", &slot.0.to_string())?;
    Ok(value.and_then(|value| String::from_utf8(value).ok()?.parse().ok()))
}

/// Reads what is stored and remembers how far sessions are.
struct Teller {
    store: Arc<dyn Store>,
    stories: BTreeMap<SessionKey, Story>,
}

impl Teller {
    fn look(&mut self) -> Result<Page, Fault> {
        let (last, ours) = self.ours()?;
        let mut page = Page::default();
        let mut from = Place::default();
        for slot in &ours {
            let end = Position { slot: *slot, number: last.number(*slot) };
            from.reach(Position { number: self.told(end)?, ..end });
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

    /// Up to which number a slot was told; from now on if it never was.
    fn told(&self, last: Position) -> Result<u64, Fault> {
        if let Some(number) = kept(&*self.store, last.slot)? {
            return Ok(number);
        }
        keep(&*self.store, last)?;
        Ok(last.number)
    }

    /// The spans that end with an event; none if its session cannot be read.
    fn spans(&mut self, item: &FeedItem) -> Result<Option<Vec<Span>>, Fault> {
        let Ok(event) = codec::decode(&item.event.bytes) else { return Ok(None) };
        let Some(mut story) = self.before(&item.key, &event)? else { return Ok(None) };
        let spans = story.take(&event);
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
                let root = self.root(key, &first)?;
                match Story::begin(key, &first, root) {
                    Some(story) => story,
                    None => return Ok(None),
                }
            }
        };
        while story.head().0 + 1 < event.seq.0 {
            let stored = self.store.read(key, story.head().0, PAGE)?;
            let before = stored.iter().take_while(|stored| stored.seq < event.seq.0);
            let (head, mut decoded) = (story.head(), before.map(|stored| codec::decode(&stored.bytes)));
            if !decoded.all(|event| event.map(|event| story.take(&event)).is_ok()) || story.head() == head {
                return Ok(None);
            }
        }
        Ok(Some(story))
    }

    /// What a session is part of: the trace of its caller, or else that of the task above it, or else one of its own.
    fn root(&self, key: &SessionKey, first: &Event) -> Result<Root, Fault> {
        let mut above: Vec<(SessionKey, Event)> = vec![(key.clone(), first.clone())];
        while above.len() < LEVELS_MAX {
            let (key, event) = &above[above.len() - 1];
            let Some(parent) = story::parent(event).filter(|_| event.trace.is_none()) else { break };
            let parent = SessionKey::new(key.tenant.clone(), parent.as_str());
            let Some(first) = self::first(&*self.store, &parent)? else { break };
            above.push((parent, first));
        }
        let mut root = None;
        for (key, event) in above.iter().rev() {
            root = Some(Root::of(key, event, root.as_ref()));
        }
        Ok(root.unwrap_or_else(|| Root::of(key, first, None)))
    }
}

fn first(store: &dyn Store, key: &SessionKey) -> Result<Option<Event>, Fault> {
    let stored = store.read(key, 0, 1)?;
    Ok(stored.first().and_then(|stored| codec::decode(&stored.bytes).ok()))
}
