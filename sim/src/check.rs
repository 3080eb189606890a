//! What must hold. Each check says in a sentence what does not.

use std::collections::{BTreeMap, BTreeSet};

use handover_engine::log::{load, revive};
use handover_engine::{codec, snapshot, view};
use handover_kernel::approval::Ruling;
use handover_kernel::session::{Lifecycle, apply};
use handover_kernel::{
    Author, Event, Face, Fact, IdScope, MessageId, Session, SessionId, Text, Timestamp, replay,
};
use handover_store::{MemoryStore, SessionKey, Store};

/// A message id where it counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(MessageId, IdScope, Option<(Face, Author)>);

impl Name {
    /// In the session, or among what its sender sends through the same face.
    pub fn of(id: &MessageId, scope: IdScope, face: Face, author: &Author) -> Name {
        let own = (scope == IdScope::Sender).then(|| (face, author.clone()));
        Name(id.clone(), scope, own)
    }
}

/// The events of a session, with what is said of every log: no holes, no way back in time, no message twice.
pub fn log(store: &MemoryStore, key: &SessionKey) -> Result<Vec<Event>, String> {
    let stored = store.read(key, 0, usize::MAX).map_err(|fault| fault.to_string())?;
    let mut events: Vec<Event> = Vec::with_capacity(stored.len());
    let mut ids = BTreeSet::new();
    for stored in stored {
        let event = codec::decode(&stored.bytes).map_err(|error| format!("{key}: {error}"))?;
        if event.seq.0 != stored.seq || stored.seq != events.len() as u64 + 1 {
            return Err(format!("{key}: event {} stands at {} of the log", event.seq, stored.seq));
        }
        if let Some(last) = events.last()
            && event.at < last.at
        {
            return Err(format!("{key}: event {} is older than the one before it", event.seq));
        }
        if let Some(id) = &event.id
            && !ids.insert(Name::of(id, event.id_scope, event.face, &event.author))
        {
            return Err(format!("{key}: message {id} has two effects, the second at {}", event.seq));
        }
        events.push(event);
    }
    Ok(events)
}

/// A session as its log tells it.
pub fn session(store: &MemoryStore, key: &SessionKey) -> Result<Option<Session>, String> {
    let events = log(store, key)?;
    replay(&SessionId::from(&*key.session), &events).map_err(|error| format!("{key}: {error}"))
}

/// The index says what the log says.
pub fn index(store: &MemoryStore, key: &SessionKey, session: &Session) -> Result<(), String> {
    let found = store.row(key).map_err(|fault| fault.to_string())?;
    let expected = view::row(session);
    if found.as_ref() != Some(&expected) {
        return Err(format!("{key}: the index says {found:?}, the log says {expected:?}"));
    }
    Ok(())
}

/// A snapshot says what the events up to it say, and so does what is loaded from it.
pub fn snapshot(store: &MemoryStore, key: &SessionKey, session: &Session) -> Result<(), String> {
    if let Some(stored) = store.snapshot(key).map_err(|fault| fault.to_string())? {
        let kept =
            snapshot::read(key, &stored).ok_or_else(|| format!("{key}: its snapshot is unreadable"))?;
        let events = log(store, key)?;
        let before = events.iter().take(stored.seq as usize);
        let expected = replay(&SessionId::from(&*key.session), before).map_err(|error| error.to_string())?;
        if Some(&kept) != expected.as_ref() {
            return Err(format!("{key}: the snapshot at {} is not what the log says", stored.seq));
        }
    }
    let loaded = load(store, key, 1).map_err(|fault| fault.to_string())?;
    let loaded = revive(key, loaded).map_err(|denied| format!("{key}: {denied:?}"))?;
    if loaded.as_ref() != Some(session) {
        return Err(format!("{key}: loaded is {loaded:?}, the log says {session:?}"));
    }
    Ok(())
}

/// Each agent's inbox holds what the sessions, in the order in which they were first written, say waits for it.
pub fn inboxes(store: &MemoryStore, agents: &[&str]) -> Result<(), String> {
    let mut expected: BTreeMap<&str, Vec<(SessionKey, u32)>> = BTreeMap::new();
    let (keys, _) = store.sessions(None, usize::MAX >> 1).map_err(|fault| fault.to_string())?;
    for key in keys {
        let waits = session(store, &key)?.map_or_else(Vec::new, |session| view::waits(&session));
        for agent in agents {
            let kinds = waits.iter().filter(|waits| *waits.agent == **agent).map(|waits| waits.kinds);
            expected.entry(agent).or_default().extend(kinds.map(|kinds| (key.clone(), kinds)));
        }
    }
    for (agent, expected) in expected {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = store.inbox("t", agent, u32::MAX, after, 3).map_err(|fault| fault.to_string())?;
            found.extend(page.sessions.into_iter().map(|waiting| (waiting.key, waiting.kinds)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if found != expected {
            return Err(format!("the inbox of {agent} holds {found:?}, the logs say {expected:?}"));
        }
    }
    Ok(())
}

/// What needs an approval took effect only once one of those who may had approved it.
pub fn approved(log: &[Event]) -> Result<(), String> {
    let Some(Event { fact: Fact::Started(started), .. }) = log.first() else { return Ok(()) };
    let Some(approvals) = &started.start.charter.approvals else { return Ok(()) };
    let (mut waiting, mut allowed) = (None, None);
    for event in log {
        if let Fact::Proposed { what, .. } = &event.fact {
            (waiting, allowed) = (Some(what), None);
        }
        if let Fact::Decided { ruling: Ruling::Approved(changes), .. } = &event.fact {
            let decided = waiting.and_then(|what| what.changed(changes).ok().map(|changed| (what, changed)));
            let named = |what| event.author.agent().is_some_and(|by| approvals.of(what).contains(by));
            allowed = decided.filter(|(what, _)| named(what)).map(|(_, changed)| changed);
        }
        let opens = matches!(event.fact, Fact::Requested(_) | Fact::Offered { .. });
        let counts = |positive: bool| positive || !event.is_by_runtime();
        let commits = matches!(&event.fact, Fact::Committed(made) if counts(made.positive));
        if !opens && !commits {
            continue;
        }
        let (needed, kind) = match opens {
            true => (&approvals.opening, &["request", "offer"][..]),
            false => (&approvals.commitment, &["commitment"][..]),
        };
        let was = allowed.take().is_some_and(|allowed| kind.contains(&allowed.name()));
        if !needed.is_empty() && !was {
            return Err(format!("event {} took effect without an approval", event.seq));
        }
    }
    Ok(())
}

/// A task changes hands only as the agent that has it, or its requester, offered.
pub fn handed_on(store: &MemoryStore, key: &SessionKey) -> Result<(), String> {
    let id = SessionId::from(&*key.session);
    let mut slot: Option<Session> = None;
    for event in log(store, key)? {
        if let (Fact::Declined { handoff: Some(handoff), .. }, Some(task)) = (&event.fact, &slot) {
            let other = SessionKey::new(key.tenant.clone(), handoff.as_str());
            let offered_by = session(store, &other)?.map(|handoff| handoff.binding.requester.clone());
            let assignee = task.task().and_then(|task| task.phase.assignee());
            let by = offered_by.as_ref();
            if by.is_none() || (by != assignee && by != Some(&task.binding.requester)) {
                return Err(format!("{key}: {by:?} handed on at {} what {assignee:?} had", event.seq));
            }
        }
        apply(&mut slot, &id, &event);
    }
    Ok(())
}

/// No more starts under a budget than it allows, everything that has started was reserved at every root above, and what was used
/// there has reached them. Says how many tasks have started under it.
pub fn budget(
    store: &MemoryStore,
    key: &SessionKey,
    root: &Session,
    all: &[impl std::ops::Deref<Target = SessionKey>],
) -> Result<u64, String> {
    let (Some(budget), Some(task)) = (root.binding.budget(), root.task()) else { return Ok(0) };
    let mut reserved = BTreeSet::new();
    for event in log(store, key)? {
        if let Fact::Reserved { child, .. } = event.fact
            && !reserved.insert(child.clone())
        {
            return Err(format!("{key}: {child} was reserved twice"));
        }
    }
    if reserved != task.ledger.reserved || reserved.len() > budget.tasks.unwrap_or(u32::MAX) as usize {
        return Err(format!("{key}: {reserved:?} were reserved, of {:?}", budget.tasks));
    }
    let (mut started, mut spent) = (0, used(store, key)?);
    for other in all {
        let Some(session) = session(store, other)? else { continue };
        let Some(depth) = depth_under(store, &root.binding.id, &session)? else { continue };
        started += 1;
        let until = root.binding.until();
        if !reserved.contains(&session.binding.id)
            || budget.depth.is_some_and(|deepest| depth > deepest)
            || until.is_some_and(|until| session.binding.until().is_none_or(|own| own > until))
        {
            return Err(format!("{key}: {} started under it at depth {depth}", session.binding.id));
        }
        for (name, amount) in used(store, other)? {
            *spent.entry(name).or_default() += amount;
        }
    }
    for (name, _) in budget.numbers.iter() {
        let (told, counted) = (spent.get(name).copied().unwrap_or(0), task.ledger.spent.get(name));
        if told != counted.unwrap_or_default().0 {
            return Err(format!("{key}: {told} {name} were used, {counted:?} are counted"));
        }
    }
    Ok(started)
}

/// What the assignees of a task said that they used for it.
fn used(store: &MemoryStore, key: &SessionKey) -> Result<BTreeMap<Text, u64>, String> {
    let mut used = BTreeMap::new();
    for event in log(store, key)? {
        let Fact::Used { used: told } = event.fact else { continue };
        told.iter().for_each(|(name, amount)| *used.entry(name.clone()).or_default() += amount.0);
    }
    Ok(used)
}

/// How many levels a task is below a root, if it is.
fn depth_under(store: &MemoryStore, root: &SessionId, session: &Session) -> Result<Option<u32>, String> {
    let (mut depth, mut above) = (0, session.binding.under.clone());
    while let Some(under) = above {
        depth += under.depth;
        if under.root == *root {
            return Ok(Some(depth));
        }
        let next = self::session(store, &SessionKey::new("t", under.root.as_str()))?;
        above = next.and_then(|next| next.binding.under.clone());
    }
    Ok(None)
}

/// Nothing is left undone: every session has ended or waits for somebody, and owes nothing that could be given.
pub fn settled(
    store: &MemoryStore,
    key: &SessionKey,
    session: &Session,
    now: Timestamp,
) -> Result<(), String> {
    for errand in &session.errands {
        let other = SessionKey::new(key.tenant.clone(), errand.to.as_str());
        let waits = self::session(store, &other)?
            .is_some_and(|other| matches!(other.lifecycle, Lifecycle::Suspended { .. }));
        if !waits {
            return Err(format!("{key}: still owes {errand:?}"));
        }
    }
    let late = session.errands.is_empty() && session.wake_at().is_some_and(|at| at <= now);
    if late {
        return Err(format!("{key}: was due at {:?}, it is {now:?}", session.wake_at()));
    }
    Ok(())
}
