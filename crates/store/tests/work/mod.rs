//! Appends whose traces can be checked after a crash: every event names the batch it came in, and how large that was.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use handover_store::{
    Append, Fault, Feed, Filter, IndexRow, Order, Outcome, Place, SessionKey, Snapshot, Store, Waits, Wake,
};

use crate::child::Random;

/// One of a worker's own sessions.
fn session(worker: u64, at: u64) -> SessionKey {
    SessionKey::new("acme", format!("w{worker}-s{at}"))
}

/// The last sequence numbers of a worker's sessions, as far as it knows them.
pub struct Heads {
    known: BTreeMap<SessionKey, u64>,
    /// Whether sessions that it does not know are new. Otherwise the store is asked.
    fresh: bool,
}

impl Heads {
    /// Nothing is known, except perhaps that nothing was ever appended.
    pub fn unknown(fresh: bool) -> Heads {
        Heads { known: BTreeMap::new(), fresh }
    }

    fn of(&self, store: &dyn Store, key: &SessionKey) -> Result<u64, Fault> {
        match self.known.get(key) {
            Some(head) => Ok(*head),
            None if self.fresh => Ok(0),
            None => Ok(store.head(key)?.unwrap_or(0)),
        }
    }
}

/// Append a batch of one or two sessions with one to three events each, and return what was acknowledged, one line for
/// each event. `name` must never be used twice for a worker.
pub fn append(
    store: &dyn Store,
    worker: u64,
    name: &str,
    random: &mut Random,
    heads: &mut Heads,
) -> Result<Vec<String>, Fault> {
    let first = random.below(10);
    let keys: Vec<SessionKey> = (0..=random.below(2)).map(|at| session(worker, (first + at) % 10)).collect();
    let counts: Vec<u64> = keys.iter().map(|_| 1 + random.below(3)).collect();
    let total: u64 = counts.iter().sum();
    let mut batch = Vec::new();
    let mut lines = Vec::new();
    for (key, count) in keys.iter().zip(counts) {
        let expected = heads.of(store, key)?;
        let texts: Vec<String> = (1..=count)
            .map(|at| {
                format!("{} {} w{worker}-{name} {total} {}", key.session, expected + at, "x".repeat(200))
            })
            .collect();
        let row = IndexRow {
            kind: 0,
            status: (expected % 5) as u8,
            requester: "a".into(),
            agents: vec!["a".into(), format!("w{worker}").into()],
            created_at: 1,
            finished_at: None,
            summary: (expected + count).to_string().into_bytes(),
            waits: vec![Waits { agent: "a".into(), kinds: kinds_at(expected + count) }],
        };
        let events = texts.iter().map(|text| text.clone().into_bytes()).collect();
        let wake = Wake::At(expected + count);
        let snapshot = Some(row.summary.clone());
        batch.push(Append { key: key.clone(), expected, events, row: Some(row), wake, snapshot });
        lines.extend(texts);
    }
    let known = std::mem::replace(heads, Heads::unknown(false));
    let outcomes = store.append(&batch)?;
    *heads = known;
    heads.known.extend(batch.iter().map(|item| (item.key.clone(), item.expected + item.events.len() as u64)));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Appended { .. })), "found {outcomes:?}");
    Ok(lines)
}

const ACK: &str = "ack ";

/// Tell the parent what is durable.
pub fn acknowledge(lines: &[String]) {
    let lines: Vec<String> = lines.iter().map(|line| format!("{ACK}{line}")).collect();
    say(&lines.join("\n"));
}

/// Tell the parent something, in one write.
pub fn say(text: &str) {
    let text = format!("{text}\n");
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
}

/// What was acknowledged: the text of each event, by session and sequence number.
#[derive(Default)]
pub struct Acked(BTreeMap<(String, u64), String>);

impl Acked {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Take these events as acknowledged.
    pub fn take(&mut self, lines: &[String]) {
        for text in lines {
            let mut words = text.split(' ');
            let place = (words.next().map(String::from), words.next().and_then(|seq| seq.parse().ok()));
            let (Some(session), Some(seq)) = place else { panic!("expected an event, found {text}") };
            assert_eq!(self.0.insert((session, seq), text.clone()), None, "acknowledged twice");
        }
    }

    /// Take what the child said, whole lines only. Calls `each` after each line.
    pub fn listen(&mut self, mut from: impl BufRead, mut each: impl FnMut(&str)) {
        let mut line = String::new();
        while from.read_line(&mut line).expect("the child writes text") > 0 {
            if let Some(text) = line.strip_prefix(ACK).and_then(|line| line.strip_suffix('\n')) {
                self.take(&[text.into()]);
            }
            each(line.trim_end());
            line.clear();
        }
    }

    /// Everything that was acknowledged is there, and nothing is half there. Says what is wrong, if anything is.
    pub fn check(&self, store: &dyn Store) -> Result<u64, String> {
        let said = |fault: Fault| format!("{fault}: {fault:?}");
        let mut batches: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut there = BTreeMap::new();
        let (sessions, _) = store.sessions(None, usize::MAX).map_err(said)?;
        for key in &sessions {
            for event in whole(|after| store.read(key, after, usize::MAX), |event| event.seq).map_err(said)? {
                let text = String::from_utf8(event.bytes).map_err(|error| error.to_string())?;
                let words: Vec<&str> = text.split(' ').collect();
                let total = words[3].parse().map_err(|_| format!("expected a number in {text}"))?;
                batches.entry(words[2].into()).or_insert((0, total)).0 += 1;
                there.insert((key.session.to_string(), event.seq), text);
            }
        }
        for (place, text) in &self.0 {
            if there.get(place) != Some(text) {
                return Err(format!("{place:?} was acknowledged, found {:?}", there.get(place)));
            }
        }
        for (name, (found, total)) in batches {
            if found != total {
                return Err(format!("batch {name} has {found} of {total} events"));
            }
        }
        let feed = |after| store.feed(&Feed::Everything, &Place::first_slot(after), usize::MAX);
        let feed = whole(feed, |item| item.event.position.number).map_err(said)?;
        let positions = feed.iter().map(|item| item.event.position.number);
        if feed.len() != there.len() || !positions.eq(1..=there.len() as u64) {
            return Err("the feed has holes".into());
        }
        check_index(store, &sessions)?;
        Ok(there.len() as u64)
    }
}

/// All pages, each beginning after the number of the last item.
pub fn whole<T>(
    page: impl Fn(u64) -> Result<Vec<T>, Fault>,
    number: impl Fn(&T) -> u64,
) -> Result<Vec<T>, Fault> {
    let mut all: Vec<T> = Vec::new();
    loop {
        let next = page(all.last().map_or(0, &number))?;
        if next.is_empty() {
            return Ok(all);
        }
        all.extend(next);
    }
}

/// Why a session with this many events waits for its requester: something else after each event.
fn kinds_at(head: u64) -> u32 {
    1 << (head % 32) | 1 << (head / 32 % 32)
}

/// Rows, inbox, wake times and snapshots are of the same commit as the last event.
fn check_index(store: &dyn Store, sessions: &[SessionKey]) -> Result<(), String> {
    let said = |fault: Fault| format!("{fault}: {fault:?}");
    let filter = Filter { tenant: Some("acme".into()), agent: Some("a".into()), ..Filter::default() };
    let listed = store.list(&filter, Order::Oldest, None, usize::MAX).map_err(said)?.sessions;
    let due: BTreeMap<SessionKey, u64> = store.due(u64::MAX, usize::MAX).map_err(said)?.into_iter().collect();
    if !listed.iter().map(|listed| &listed.key).eq(sessions) {
        return Err(format!("expected {} listed sessions, found {}", sessions.len(), listed.len()));
    }
    for kind in 0..32 {
        let inbox = store.inbox("acme", "a", 1 << kind, None, usize::MAX).map_err(said)?.sessions;
        let waiting = listed.iter().filter(|listed| listed.row.waits_for("a") >> kind & 1 == 1);
        if !waiting.map(|listed| &listed.key).eq(inbox.iter().map(|waiting| &waiting.key)) {
            return Err(format!("the inbox of kind {kind} is not as the rows say"));
        }
    }
    for listed in listed {
        let head = store.head(&listed.key).map_err(said)?;
        if head.map(|head| head.to_string().into_bytes()) != Some(listed.row.summary.clone()) {
            return Err(format!("the row of {} is not of its last event", listed.key));
        }
        let snapshot = store.snapshot(&listed.key).map_err(said)?;
        if snapshot.map(|Snapshot { seq, bytes }| (Some(seq), bytes)) != Some((head, listed.row.summary)) {
            return Err(format!("the snapshot of {} is not of its last event", listed.key));
        }
        if due.get(&listed.key).copied() != head {
            return Err(format!("the wake time of {} is not of its last event", listed.key));
        }
    }
    Ok(())
}
