//! Conversations: a task as two agents talk about it. What each has not read, reading and saying it, finding the task that
//! two agents share, and what was delegated under one.

use std::collections::VecDeque;
use std::sync::Arc;

use handover_engine::view::WaitKind;
use handover_engine::{Accepted, Denied};
use handover_kernel::budget::Amounts;
use handover_kernel::command::{Act, CheckInTerms, Command, Next, TaskAct};
use handover_kernel::conversation::Party;
use handover_kernel::session::Lifecycle;
use handover_kernel::{AgentId, Blob, Event, MessageId, Refusal, Seq, Session, SessionId, Text};
use handover_store::SessionKey;
use tokio::time::Instant;

use crate::caller::{Caller, sees};
use crate::follow::Events;
use crate::look::{Query, READING};
use crate::memory::Lease;
use crate::no::No;
use crate::waiting::is_known_to;
use crate::{Desk, page};

/// Why a task can have something to read for an agent.
pub const NEWS: [WaitKind; 3] = [WaitKind::Unread, WaitKind::TaskOffer, WaitKind::Orders];

/// How many sessions are looked at for one page of a list, however few of them it shows.
const LOOKED_AT_MAX: usize = 1000;

/// How many rows of an inbox are read at a time, and how many cost as much as a request.
const ROWS: usize = 256;

/// How many levels of delegation are looked at, up and down.
const DEPTH_MAX: usize = 32;

/// Something that a party says.
#[derive(Clone, Debug, Default)]
pub struct Saying {
    /// What.
    pub body: Blob,
    /// The very message of the wire, where it says more than that.
    pub verbatim: Option<Blob>,
    /// What an assignee does next.
    pub next: Next,
    /// How a requester wants to hear that it was received.
    pub check_in: CheckInTerms,
    /// What an assignee has used for the task since it last said so.
    pub used: Amounts,
}

/// What a party has read just now.
#[derive(Debug)]
pub struct Reading {
    /// The session as it is then.
    pub session: Arc<Session>,
    /// What it had not read before, the oldest first.
    pub events: Vec<Arc<Event>>,
    /// Whether there is more to read.
    pub more: bool,
    /// The room that it takes, and what is made of it.
    _held: Option<Lease>,
}

/// Which tasks to list. What is none does not matter.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// Only with something that the caller has not read.
    pub unread: bool,
    /// In one of these standings, one bit for each ([`handover_engine::view::status_number`]); 0 is any.
    pub standings: u64,
    /// Of this context.
    pub context: Option<String>,
    /// With this agent.
    pub with: Option<AgentId>,
}

/// One task of a tree.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The task.
    pub session: Arc<Session>,
    /// How many tasks are above it.
    pub depth: usize,
}

/// What an agent has not read of a session, as the numbers of its events: messages, changes of state, and orders that it was
/// not given.
pub fn unread(session: &Session, agent: &AgentId) -> Vec<Seq> {
    let Some(task) = session.task() else { return Vec::new() };
    let Some(party) = task.party(&session.binding, agent) else { return Vec::new() };
    let side = task.conversation.side(party);
    let mut unread = side.unread.clone();
    // An order is no news once the task has ended, nor when it was read before it could be handed over.
    if party == Party::Receiver && !session.lifecycle.is_terminal() {
        unread.extend(task.orders.waiting().map(|order| order.seq).filter(|seq| *seq > side.read_up_to));
        unread.sort();
        unread.dedup();
    }
    unread
}

impl Desk {
    /// Put an act of a conversation to its task: whoever acts on a task takes it. Sent again under its id, it has no second
    /// effect.
    pub async fn converse(
        &self,
        caller: &Caller,
        task: &str,
        id: Option<&str>,
        act: Act,
        used: Amounts,
    ) -> Result<Accepted, No> {
        let command = caller.command(act);
        self.put(caller, task, Command { accepts: true, id: id.map(MessageId::from), used, ..command }).await
    }

    /// Say something.
    pub async fn say(
        &self,
        caller: &Caller,
        task: &str,
        id: Option<&str>,
        saying: Saying,
    ) -> Result<Accepted, No> {
        let Saying { body, verbatim, next, check_in, used } = saying;
        let command = caller.command(Act::Task(TaskAct::Say { body, next, check_in }));
        let id = id.map(MessageId::from);
        self.put(caller, task, Command { accepts: true, id, verbatim, used, ..command }).await
    }

    /// Cancel a task. One that has come to another end cannot be any more; to cancel twice is no error.
    pub async fn cancel(
        &self,
        caller: &Caller,
        task: &str,
        id: Option<&str>,
        reason: Text,
        keeps_children: bool,
    ) -> Result<Accepted, No> {
        self.task(caller, task).await?;
        let accepted = self
            .converse(caller, task, id, Act::Cancel { reason, keeps_children }, Amounts::default())
            .await?;
        is_cancelled(accepted)
    }

    /// Take back the offers of a handoff. The same holds for one that has come to another end.
    pub async fn withdraw(
        &self,
        caller: &Caller,
        handoff: &str,
        id: Option<&str>,
        reason: Text,
    ) -> Result<Accepted, No> {
        self.handoff(caller, handoff).await?;
        let command = caller.command(Act::Cancel { reason, keeps_children: false });
        let accepted = self.put(caller, handoff, Command { id: id.map(MessageId::from), ..command }).await?;
        is_cancelled(accepted)
    }

    /// What the caller has not read of a task, which it has read then: at most `max` events, cut by bytes.
    pub async fn read(&self, caller: &Caller, task: &str, max: usize) -> Result<Reading, No> {
        let session = self.task(caller, task).await?;
        let wanted = unread(&session, &caller.agent);
        let held = self.gate.hold(caller, READING * page::BYTES_MAX as u64)?;
        let key = SessionKey::new(caller.tenant.clone(), task);
        let (mut events, mut bytes) = (Vec::new(), 0);
        let mut left: VecDeque<Seq> = wanted.into();
        'pages: while let Some(first) = left.front().copied() {
            let page = self.events_after(&key, first.0.saturating_sub(1)).await?;
            // One that is gone is not read any more.
            if page.is_empty() {
                break;
            }
            for event in page {
                while left.front().is_some_and(|seq| *seq < event.seq) {
                    left.pop_front();
                }
                if left.front() != Some(&event.seq) {
                    continue;
                }
                left.pop_front();
                bytes += event.weight() as usize;
                events.push(event);
                if events.len() >= max || bytes >= page::BYTES_MAX {
                    break 'pages;
                }
            }
        }
        self.gate.charge_bytes(caller, bytes as u64);
        let Some(last) = events.last() else {
            return Ok(Reading { session, events, more: false, _held: held });
        };
        let command = caller.command(Act::Task(TaskAct::Read { up_to: last.seq }));
        let accepted = self.put(caller, task, Command { takes_orders: true, ..command }).await?;
        Ok(Reading { session: accepted.session, events, more: !left.is_empty(), _held: held })
    }

    /// The same, as soon as there is something to read; nothing if there is not in time.
    pub async fn read_by(
        &self,
        caller: &Caller,
        task: &str,
        max: usize,
        until: Instant,
    ) -> Result<Reading, No> {
        let mut session = self.task(caller, task).await?;
        if until > Instant::now() && unread(&session, &caller.agent).is_empty() {
            let mut stay = self.stay(caller)?;
            let mut events = self.events(caller, task, session.head.0);
            while unread(&session, &caller.agent).is_empty() {
                match stay.next_by(&mut events, until).await {
                    Ok(Some(_)) => session = self.task(caller, task).await?,
                    Ok(None) => break,
                    Err(over) => match over.no() {
                        Some(no) => return Err(no),
                        None => break,
                    },
                }
            }
        }
        self.read(caller, task, max).await
    }

    /// A page of the tasks that the caller has a part in, the newest first; those with something to read the oldest first.
    /// A page can be short and still have a next one: a bounded number of sessions is looked at for it.
    pub async fn tasks(
        &self,
        caller: &Caller,
        wanted: &Tasks,
        after: Option<&str>,
        max: usize,
    ) -> Result<(Vec<Arc<Session>>, Option<String>), No> {
        let (mut found, mut after, mut looked_at) = (Vec::new(), after.map(str::to_owned), 0);
        loop {
            let many = max - found.len();
            let (page, next) = if wanted.unread {
                let inbox = self.inbox(caller, &NEWS, after.as_deref(), many).await?;
                (inbox.sessions, inbox.next)
            } else {
                let query = Query {
                    kind: Some(handover_kernel::command::ModeKind::Task),
                    newest_first: true,
                    standings: wanted.standings,
                };
                self.sessions(caller, query, after.as_deref(), many).await?
            };
            looked_at += page.len().max(1);
            found.extend(page.into_iter().filter(|session| wanted.shows(session, &caller.agent)));
            match next {
                Some(next) if found.len() < max && looked_at < LOOKED_AT_MAX => after = Some(next),
                next => return Ok((found, next)),
            }
        }
    }

    /// The same, as soon as there is one; none if there is none in time.
    pub async fn tasks_by(
        &self,
        caller: &Caller,
        wanted: &Tasks,
        after: Option<&str>,
        max: usize,
        until: Instant,
    ) -> Result<(Vec<Arc<Session>>, Option<String>), No> {
        let page = self.tasks(caller, wanted, after, max).await?;
        if !page.0.is_empty() || until <= Instant::now() {
            return Ok(page);
        }
        let mut stay = self.stay(caller)?;
        let mut events: Events = self.own_events(caller).await?;
        loop {
            let page = self.tasks(caller, wanted, after, max).await?;
            if !page.0.is_empty() {
                return Ok(page);
            }
            match stay.next_by(&mut events, until).await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(page),
                Err(over) => return over.no().map_or(Ok(page), Err),
            }
        }
    }

    /// The newest task between the caller and another agent that has not ended, whoever began it.
    pub async fn active_task(&self, caller: &Caller, with: &AgentId) -> Result<Option<SessionId>, No> {
        let pairs = [(with, &caller.agent), (&caller.agent, with)];
        let mut newest: Option<(u64, Box<str>)> = None;
        // An unfinished task waits for who is to do it, or has it in hand.
        let kinds = WaitKind::TaskOffer.bit() | WaitKind::InHand.bit();
        for (receiver, requester) in pairs {
            let mut after = None;
            loop {
                let (tenant, receiver) = (&caller.tenant, receiver.as_str());
                let page = self.engine.inbox(tenant, receiver, kinds, after, ROWS).await?;
                self.gate.charge(caller, (page.sessions.len() / ROWS) as u64);
                for waiting in page.sessions {
                    let place = waiting.place.0;
                    let is_newer = newest.as_ref().is_none_or(|(known, _)| *known < place);
                    if *waiting.row.requester == *requester.as_str() && is_newer {
                        newest = Some((place, waiting.key.session));
                    }
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        Ok(newest.map(|(_, session)| SessionId::from(&*session)))
    }

    /// A task and what was delegated under it, as far as it is known, at most `max` tasks; each before those under it, and those
    /// before the next one beside it. It is shown to those who see the task, and to whoever began one that it is part of, but
    /// for what is held back from them. True if there is more.
    pub async fn tree(&self, caller: &Caller, task: &str, max: usize) -> Result<(Vec<Branch>, bool), No> {
        let root = self.engine.session(SessionKey::new(caller.tenant.clone(), task)).await?;
        let root = root.filter(|root| root.task().is_some()).ok_or(Refusal::SessionNotFound)?;
        if !sees(caller, &root) && !self.began_above(caller, &root).await? {
            // As it is for whoever asks for the task itself.
            return Err(self.task(caller, task).await.err().unwrap_or(Refusal::SessionNotFound.into()));
        }
        // Level by level: of a tree that is too large, what is near the root is shown.
        let mut found = Vec::new();
        let mut next = VecDeque::from([(Branch { session: root, depth: 0 }, 0)]);
        while let Some((branch, above)) = next.pop_front() {
            if found.len() >= max {
                return Ok((in_order(found), true));
            }
            let children = branch.session.task().map_or(&[][..], |task| &task.children);
            if branch.depth < DEPTH_MAX {
                let left = max.saturating_sub(found.len() + next.len()) + 1;
                let key = |child: &SessionId| SessionKey::new(caller.tenant.clone(), child.as_str());
                let keys = children.iter().take(left).map(|(_, child)| key(child)).collect();
                let depth = branch.depth + 1;
                let mut children = self.engine.sessions(keys).await?;
                children.retain(|child| is_known_to(caller, child));
                let own = found.len();
                next.extend(children.into_iter().map(|session| (Branch { session, depth }, own)));
            }
            found.push((branch, above));
        }
        Ok((in_order(found), false))
    }

    /// Whether the caller began a task that this one is part of.
    async fn began_above(&self, caller: &Caller, session: &Session) -> Result<bool, Denied> {
        let mut above = session.binding.parent.clone();
        for _ in 0..DEPTH_MAX {
            let Some(parent) = above else { return Ok(false) };
            let key = SessionKey::new(caller.tenant.clone(), parent.as_str());
            let Some(parent) = self.engine.session(key).await? else { return Ok(false) };
            if parent.binding.requester == caller.agent {
                return Ok(true);
            }
            above = parent.binding.parent.clone();
        }
        Ok(false)
    }
}

/// What has ended is not ended again, and the kernel does not say how it did.
fn is_cancelled(accepted: Accepted) -> Result<Accepted, No> {
    let ended = &accepted.session.lifecycle;
    if matches!(ended, Lifecycle::Cancelled { .. }) {
        return Ok(accepted);
    }
    Err(Refusal::SessionEnded { state: ended.name() }.into())
}

/// The tasks of a tree, each with the place of the one above it, so that what is under one follows it.
fn in_order(found: Vec<(Branch, usize)>) -> Vec<Branch> {
    let mut under = vec![Vec::new(); found.len()];
    for (place, (_, above)) in found.iter().enumerate().skip(1).rev() {
        under[*above].push(place);
    }
    let mut branches: Vec<Option<Branch>> = found.into_iter().map(|(branch, _)| Some(branch)).collect();
    let mut ordered = Vec::with_capacity(branches.len());
    let mut left = vec![0];
    while let Some(place) = left.pop() {
        ordered.extend(branches.get_mut(place).and_then(Option::take));
        left.extend(under.get(place).into_iter().flatten());
    }
    ordered
}

impl Tasks {
    fn shows(&self, session: &Session, agent: &AgentId) -> bool {
        let binding = &session.binding;
        let standing = 1 << handover_engine::view::status_number(session.standing());
        session.task().is_some()
            && (!self.unread || !unread(session, agent).is_empty())
            && (self.standings == 0 || self.standings & standing != 0)
            && self.context.as_ref().is_none_or(|context| **context == *binding.context_id)
            && self
                .with
                .as_ref()
                .is_none_or(|with| binding.requester == *with || binding.participants.contains(with))
    }
}
