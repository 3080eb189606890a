//! One node: what follows from what its shards ask for. Plain code that calls nothing but its parts.
//!
//! The parts (shards, quota, hub, timers, who waits for whom) are held by whoever runs the node: by the shell each behind
//! a lock of its own, by the simulator as plain fields. Here is how they play together, once for both.

use std::collections::VecDeque;
use std::sync::Arc;

use handover_kernel::command::{Act, Command};
use handover_kernel::id::{Author, SessionId};
use handover_kernel::{Limits, Refusal, Seq, Session, Timestamp, step};
use handover_store::{Done, Fault, News, OpenCount, Outcome, Slot};

use crate::answer::{Accepted, Answer, Denied, End};
use crate::codec;
use crate::commit::Commit;
use crate::errands::{self, Waiting};
use crate::hub::{Hub, Told};
use crate::key::Key;
use crate::log::Log;
use crate::quota::{Place, Quota};
use crate::shard::{Effect, Published, Round, Shard, Ticket, Trip};
use crate::tail::{Heard, Tail};
use crate::timers::Timers;

/// What a node is made of, and where it puts what leaves it.
///
/// Each part is lent for a moment only, and never one while another is: so each can have a lock of its own.
pub trait Parts {
    /// Who waits for an answer.
    type Waiter;
    /// Who is to be woken when there are events for it.
    type Waker: Clone;

    /// How many shards there are.
    fn shards(&self) -> usize;

    /// Work on one of them, with the time as it is then.
    fn shard<R>(
        &mut self,
        index: usize,
        work: impl FnOnce(&mut Shard<Call<Self::Waiter>>, Timestamp) -> R,
    ) -> R;

    /// How many sessions each agent has open.
    fn quota<R>(&mut self, work: impl FnOnce(&mut Quota) -> R) -> R;

    /// Who hears of events.
    fn hub<R>(&mut self, work: impl FnOnce(&mut Hub<Self::Waker>) -> R) -> R;

    /// When to wake which session.
    fn timers<R>(&mut self, work: impl FnOnce(&mut Timers) -> R) -> R;

    /// Which sessions wait for others to change.
    fn waiting<R>(&mut self, work: impl FnOnce(&mut Waiting) -> R) -> R;

    /// How far what other nodes did is known; none if there are no others.
    fn tail<R>(&mut self, work: impl FnOnce(&mut Tail) -> R) -> Option<R>;

    /// What time it is.
    fn now(&self) -> Timestamp;

    /// What the kernel allows.
    fn limits(&self) -> &Limits;

    /// Take what leaves the node.
    fn out(&mut self, out: Out<'_, Self::Waiter, Self::Waker>);
}

/// What leaves a node.
#[derive(Debug)]
pub enum Out<'a, W, S> {
    /// Read this session and come back with [`loaded`].
    Load(Key),
    /// Tell whoever waits.
    Answer(W, Answer),
    /// These events are durable. Subscribers have not heard of them yet.
    Published(&'a Published),
    /// Wake these subscribers.
    Notify(Vec<S>),
    /// This many subscribers were too slow and are cut off.
    Cut(usize),
    /// Something waits to be written.
    Pending,
    /// Something is due earlier than anything was before.
    Earlier,
    /// A session that was due has been woken, and this came of it.
    Woken(&'a Answer),
    /// Somebody waits for a look at what other nodes did.
    Look,
    /// An event of another node cannot be read.
    Unreadable(&'a Key, String),
    /// Another node did something that is not about a session.
    Heard(Elsewhere<'a>),
}

/// What another node did that is not about a session.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the fields say all")]
pub enum Elsewhere<'a> {
    /// It wrote or removed a record.
    Record { space: &'a str, tenant: &'a str, key: &'a str },
    /// It said something.
    Said { by: Slot, bytes: &'a [u8] },
    /// Anything, or nothing: it is not known any more.
    Anything,
}

/// A call from outside: who waits for its answer, and what comes before that.
#[derive(Debug)]
pub struct Call<W> {
    waiter: W,
    next: Next,
}

/// What follows when a shard has answered.
#[derive(Debug)]
enum Next {
    /// The answer is for whoever waits. A session that was to start held this place.
    Tell { reserved: Option<Place> },
    /// Another session was asked first: now the command itself.
    Command(Box<Asked>),
    /// Something stands in the way of the command: what the session says of it counts more.
    Verdict(Box<Asked>, Refusal),
    /// The command starts a task under a budget, unless it is there: then it is reserved first.
    Look(Box<Asked>),
    /// The root of a budget counts it, then the next one above. The task will be so many levels below that.
    Reserve { asked: Box<Asked>, place: Option<Place>, depth: u32 },
}

/// What somebody asked for.
#[derive(Debug)]
struct Asked {
    key: Key,
    command: Command,
    open_max: u64,
}

type Effects<P> = Vec<Effect<Call<<P as Parts>::Waiter>>>;

/// A command from outside, of an agent that may have `open_max` sessions open. First another session is asked, if it has
/// to agree, and a place is taken for a session that is to start.
pub fn submit<P: Parts>(parts: &mut P, waiter: P::Waiter, key: Key, command: Command, open_max: u64) {
    let question = errands::preflight(&key, &command);
    let asked = Asked { key, command, open_max };
    let effects = match question {
        Some((other, question)) => {
            let call = Call { waiter, next: Next::Command(Box::new(asked)) };
            put(parts, Ticket::Client(call), &other, question)
        }
        None => put_itself(parts, waiter, asked),
    };
    carry_out(parts, effects);
}

/// Somebody outside wants to see a session.
pub fn look<P: Parts>(parts: &mut P, waiter: P::Waiter, key: &Key) {
    let effects = read(parts, Call { waiter, next: Next::Tell { reserved: None } }, key);
    carry_out(parts, effects);
}

/// What was read of a session.
pub fn loaded<P: Parts>(parts: &mut P, key: &Key, log: Result<Log, Arc<Fault>>) {
    let effects = decide(parts, key, |shard, now| shard.loaded(key, log, now));
    carry_out(parts, effects);
}

/// A session is due. The answer goes out as [`Out::Woken`].
pub fn wake<P: Parts>(parts: &mut P, key: &Key) {
    let effects = put(parts, Ticket::Wake, key, Command::runtime(Act::Tick));
    carry_out(parts, effects);
}

/// What is known from one commit to the next.
#[derive(Debug, Default)]
pub struct Commits {
    /// A fault made the count of open sessions unsure.
    recount: bool,
    /// It is unsure whether the last commit was kept.
    doubt: bool,
}

impl Commits {
    /// Whether the open sessions must be counted again: after a fault nobody knows which started or ended. To be done
    /// between two commits, when every answer of the store has been dealt with.
    pub fn wants_count(&self) -> bool {
        self.recount
    }

    /// Have the open sessions counted again.
    pub fn count_again(&mut self) {
        self.recount = true;
    }

    /// What the store counted, as it was at a place.
    pub fn counted<P: Parts>(
        &mut self,
        parts: &mut P,
        open: Vec<OpenCount>,
        place: Option<handover_store::Place>,
    ) {
        self.recount = false;
        parts.quota(|quota| quota.recount(open, place));
    }

    /// What waits in all shards, if anything does.
    pub fn gather<P: Parts>(&self, parts: &mut P) -> Option<Commit> {
        let commit =
            Commit::gather(parts.shards(), |index| parts.shard(index, |shard, _| shard.take_batch()));
        if commit.is_some() {
            parts.tail(|tail| tail.writes(true));
        }
        commit
    }

    /// What became of a commit.
    pub fn settle<P: Parts>(
        &mut self,
        parts: &mut P,
        commit: Commit,
        result: &Result<Vec<Outcome>, Arc<Fault>>,
    ) {
        let failed = result.is_err();
        // What a failed commit left in doubt is certain after the next one that succeeds: both times what is stored is looked
        // at again.
        if failed || self.doubt {
            self.missed(parts);
        }
        parts.tail(|tail| tail.doubt(failed));
        self.doubt = failed;
        let mut unsure = false;
        let effects = commit.settle(result, |index, share| {
            parts.shard(index, |shard, now| {
                let effects = shard.complete(share, now);
                unsure |= shard.is_unsure();
                effects
            })
        });
        carry_out(parts, effects);
        // What was asked while this was being written waits for a look that nobody has asked for yet.
        want(parts, false, unsure);
        // Not before: what others did may rest on what was just published.
        parts.tail(|tail| tail.writes(false));
        tell_all(parts);
    }

    /// Whether it is to be settled what became of the last commit before anybody can be sure of what is in memory.
    pub fn wants_settling(&self) -> bool {
        self.doubt
    }

    /// Nothing that was in doubt can turn up any more.
    pub fn settled<P: Parts>(&mut self, parts: &mut P) {
        self.doubt = false;
        self.missed(parts);
        parts.tail(|tail| tail.doubt(false));
        parts.out(Out::Look);
    }

    /// Something may be there that will never be published.
    fn missed<P: Parts>(&mut self, parts: &mut P) {
        start_over(parts);
        self.recount = true;
    }
}

/// What is in memory, and what subscribers were told, may not be all that is stored: both are read again.
fn start_over<P: Parts>(parts: &mut P) {
    parts.tail(Tail::forget);
    for index in 0..parts.shards() {
        parts.shard(index, |shard, _| shard.let_go());
    }
    let wakers = parts.hub(Hub::missed);
    parts.out(Out::Notify(wakers));
}

/// A look at what other nodes did begins: at everything after this place.
pub fn look_begins<P: Parts>(parts: &mut P) -> Option<(Round, handover_store::Place)> {
    parts.tail(Tail::begin)
}

/// A page of what other nodes did, in the order of its stamps.
pub fn heard<P: Parts>(parts: &mut P, news: Vec<News>) {
    for News { position, stamp, what } in news {
        match what {
            Done::Appended { key, bytes, agents, requester, .. } => {
                let key = Key::from(key);
                match codec::decode(&bytes).map(Arc::new) {
                    Ok(event) => {
                        heard_event(parts, &requester, Heard { key, event, agents, position, stamp })
                    }
                    Err(error) => {
                        parts.shard(key.shard(parts.shards()), |shard, _| shard.deleted(&key));
                        parts.out(Out::Unreadable(&key, error.to_string()));
                    }
                }
            }
            Done::Deleted(key) => {
                let key = Key::from(key);
                parts.shard(key.shard(parts.shards()), |shard, _| shard.deleted(&key));
            }
            Done::Record { space, tenant, key } => {
                parts.out(Out::Heard(Elsewhere::Record { space: &space, tenant: &tenant, key: &key }));
            }
            Done::Said(bytes) => parts.out(Out::Heard(Elsewhere::Said { by: position.slot, bytes: &bytes })),
        }
        parts.tail(|tail| tail.reach(position));
    }
    tell_all(parts);
}

fn heard_event<P: Parts>(parts: &mut P, requester: &str, heard: Heard) {
    let Heard { key, event, position, .. } = &heard;
    let index = key.shard(parts.shards());
    parts.shard(index, |shard, _| shard.heard(key, event));
    let place = Place::new(&key.tenant, requester);
    let (started, ended) = (event.seq == Seq(1), End::of(&event.fact).is_some());
    parts.quota(|quota| quota.elsewhere(&place, *position, started, ended));
    let effects = changed(parts, key);
    if !parts.hub(|hub| hub.is_empty()) {
        let held = parts.tail(|tail| tail.hear(heard));
        when_held(parts, held);
    }
    carry_out(parts, effects);
}

/// Tell of everything whose turn it is.
fn tell_all<P: Parts>(parts: &mut P) {
    if parts.tail(Tail::begin_telling) == Some(true) {
        while let Some(next) = parts.tail(Tail::due).flatten() {
            next.told(|told| tell(parts, told));
        }
    }
}

/// If too much waits to be told, everybody reads it instead.
fn when_held<P: Parts>(parts: &mut P, held: Option<bool>) {
    if held == Some(false) {
        let wakers = parts.hub(Hub::missed);
        parts.out(Out::Notify(wakers));
    }
}

/// A look at what other nodes did has come to the end: whatever waited for it goes on.
pub fn look_ends<P: Parts>(parts: &mut P, round: Round) {
    if !parts.tail(|tail| tail.is_sure()).unwrap_or(true) {
        return;
    }
    parts.tail(|tail| tail.end(round));
    tell_all(parts);
    for index in 0..parts.shards() {
        let confirmed = |shard: &mut Shard<_>, now| {
            let effects = shard.confirmed(round, now);
            (effects, shard.has_pending(), shard.is_unsure())
        };
        let (effects, pending, unsure) = parts.shard(index, confirmed);
        want(parts, pending, unsure);
        carry_out(parts, effects);
    }
}

/// What other nodes did cannot be known now: nothing is answered that could be out of date.
pub fn look_failed<P: Parts>(parts: &mut P, fault: &Arc<Fault>) {
    for index in 0..parts.shards() {
        let effects = parts.shard(index, |shard, _| shard.unconfirmed(fault));
        carry_out(parts, effects);
    }
}

/// This node has fallen too far behind: it goes on from here as if it had just started.
pub fn fell_behind<P: Parts>(parts: &mut P, place: &handover_store::Place) {
    start_over(parts);
    parts.out(Out::Heard(Elsewhere::Anything));
    parts.tail(|tail| place.positions().for_each(|position| tail.reach(position)));
}

/// Carry out what a shard asked for, and what follows from that.
fn carry_out<P: Parts>(parts: &mut P, effects: Effects<P>) {
    let mut queue = VecDeque::from(effects);
    while let Some(effect) = queue.pop_front() {
        match effect {
            Effect::Load(key) => parts.out(Out::Load(key)),
            Effect::Answer { ticket, answer } => queue.extend(answered(parts, ticket, answer)),
            Effect::Publish(published) => {
                queue.extend(changed(parts, &published.key));
                publish(parts, published);
            }
            Effect::Wake { key, at } => {
                if parts.timers(|timers| timers.set(&key, at)) {
                    parts.out(Out::Earlier);
                }
            }
            Effect::Errand { from, errand } => {
                let (to, command) = errands::outbound(&from, &errand);
                let trip = Trip { from, errand, to: to.clone() };
                queue.extend(put(parts, Ticket::Errand(Box::new(trip)), &to, command));
            }
        }
    }
}

fn answered<P: Parts>(parts: &mut P, ticket: Ticket<Call<P::Waiter>>, answer: Answer) -> Effects<P> {
    match ticket {
        Ticket::Client(call) => return go_on(parts, call, answer),
        Ticket::Wake => parts.out(Out::Woken(&answer)),
        Ticket::Nobody => {}
        Ticket::Errand(trip) => match errands::homebound(&trip.errand, &answer) {
            Some(command) => return put(parts, Ticket::Nobody, &trip.from, command),
            None => parts.waiting(|waiting| waiting.wait(&trip.to, &trip.from)),
        },
    }
    Vec::new()
}

/// Go on with a call of which a shard has answered one part.
fn go_on<P: Parts>(parts: &mut P, call: Call<P::Waiter>, answer: Answer) -> Effects<P> {
    let Call { waiter, next } = call;
    let answer = match (next, answer) {
        (Next::Tell { reserved }, answer) => {
            give_back(parts, reserved.filter(|_| !started(&answer)));
            answer
        }
        (Next::Command(mut asked), Answer::Accepted(accepted)) => {
            return match stand_under(&mut asked.command, &accepted.session) {
                Ok(true) => {
                    let key = asked.key.clone();
                    read(parts, Call { waiter, next: Next::Look(asked) }, &key)
                }
                Ok(false) => put_itself(parts, waiter, *asked),
                Err(refusal) => hear_session(parts, waiter, asked, refusal),
            };
        }
        (Next::Look(asked), Answer::State(Some(_))) => return put_itself(parts, waiter, *asked),
        (Next::Look(asked), Answer::State(None)) => {
            // Nothing is counted for a start that is refused for other reasons.
            let id = SessionId::from(&*asked.key.session);
            match step(&mut None, &id, &asked.command, parts.limits(), parts.now()).answer {
                Ok(_) => return reserve_first(parts, waiter, asked),
                Err(refusal) => Answer::Denied(Denied::Refused(refusal)),
            }
        }
        (Next::Reserve { asked, place, depth }, Answer::Accepted(accepted)) => {
            return match accepted.session.binding.under.as_deref() {
                Some(above) => {
                    let depth = depth.saturating_add(above.depth);
                    reserve(parts, waiter, asked, place, &above.root, depth)
                }
                None => put_placed(parts, waiter, *asked, place),
            };
        }
        (Next::Reserve { asked, place, .. }, answer) => {
            give_back(parts, place);
            match answer {
                Answer::Denied(Denied::Refused(refusal)) => {
                    return hear_session(parts, waiter, asked, errands::reserve_refusal(refusal));
                }
                other @ (Answer::Accepted(_) | Answer::Denied(_) | Answer::State(_)) => other,
            }
        }
        (Next::Command(asked), Answer::Denied(Denied::Refused(refusal))) => {
            return hear_session(parts, waiter, asked, errands::preflight_refusal(refusal));
        }
        (Next::Verdict(asked, in_the_way), Answer::State(session)) => {
            verdict(&asked, session, in_the_way, parts.limits(), parts.now())
        }
        (Next::Command(_) | Next::Verdict(..) | Next::Look(_), answer) => answer,
    };
    parts.out(Out::Answer(waiter, answer));
    Vec::new()
}

/// The command itself, with a place for the session that it starts, if it starts one.
fn put_itself<P: Parts>(parts: &mut P, waiter: P::Waiter, asked: Asked) -> Effects<P> {
    match take_place(parts, &asked) {
        Ok(reserved) => put_placed(parts, waiter, asked, reserved),
        Err(refusal) => hear_session(parts, waiter, Box::new(asked), refusal),
    }
}

fn put_placed<P: Parts>(
    parts: &mut P,
    waiter: P::Waiter,
    asked: Asked,
    reserved: Option<Place>,
) -> Effects<P> {
    let call = Call { waiter, next: Next::Tell { reserved } };
    put(parts, Ticket::Client(call), &asked.key, asked.command)
}

fn take_place<P: Parts>(parts: &mut P, asked: &Asked) -> Result<Option<Place>, Refusal> {
    match (asked.command.act.start(), &asked.command.by) {
        (Some(_), Author::Agent(agent)) => {
            let place = Place::new(&asked.key.tenant, agent.as_str());
            parts.quota(|quota| quota.reserve(place, asked.open_max)).map(Some)
        }
        (Some(_), Author::Runtime) | (None, _) => Ok(None),
    }
}

fn give_back<P: Parts>(parts: &mut P, place: Option<Place>) {
    if let Some(place) = place {
        parts.quota(|quota| quota.abandoned(&place));
    }
}

/// Say in the start of a subtask what it stands under, as its parent says. True if that is a budget.
fn stand_under(command: &mut Command, parent: &Session) -> Result<bool, Refusal> {
    match command.act.start_mut() {
        Some(start) if start.parent.as_ref() == Some(&parent.binding.id) => {
            start.under = parent.binding.under_it()?.map(Arc::new);
            Ok(start.under.is_some())
        }
        Some(_) | None => Ok(false),
    }
}

/// Have a task that is about to start counted by the roots of all budgets that it stands under, the nearest first. Its place
/// among the agent's open sessions is taken before, so that nothing is counted for want of one.
fn reserve_first<P: Parts>(parts: &mut P, waiter: P::Waiter, asked: Box<Asked>) -> Effects<P> {
    let Some(under) = asked.command.act.start().and_then(|start| start.under.clone()) else {
        return put_itself(parts, waiter, *asked);
    };
    match take_place(parts, &asked) {
        Ok(place) => reserve(parts, waiter, asked, place, &under.root, under.depth),
        Err(refusal) => hear_session(parts, waiter, asked, refusal),
    }
}

fn reserve<P: Parts>(
    parts: &mut P,
    waiter: P::Waiter,
    asked: Box<Asked>,
    place: Option<Place>,
    root: &SessionId,
    depth: u32,
) -> Effects<P> {
    let (root, question) = errands::reserve(&asked.key, root, depth);
    let call = Call { waiter, next: Next::Reserve { asked, place, depth } };
    put(parts, Ticket::Client(call), &root, question)
}

/// Something stands in the way of a command: first look at the session.
fn hear_session<P: Parts>(
    parts: &mut P,
    waiter: P::Waiter,
    asked: Box<Asked>,
    in_the_way: Refusal,
) -> Effects<P> {
    let key = asked.key.clone();
    read(parts, Call { waiter, next: Next::Verdict(asked, in_the_way) }, &key)
}

/// What a session says of a command that something else stands in the way of. What stands in the way of a retry did not
/// when the command was accepted; and whoever has no part in the session is told that and nothing else.
fn verdict(
    asked: &Asked,
    session: Option<Arc<Session>>,
    in_the_way: Refusal,
    limits: &Limits,
    now: Timestamp,
) -> Answer {
    let mut slot = session.as_deref().cloned();
    let id = SessionId::from(&*asked.key.session);
    match (step(&mut slot, &id, &asked.command, limits, now).answer, session) {
        (Ok(receipt), Some(session)) if receipt.duplicate => {
            Answer::Accepted(Accepted { receipt, standing: session.standing(), session })
        }
        (Err(refusal @ (Refusal::NotParticipant { .. } | Refusal::SessionNotFound)), _) => {
            Answer::Denied(Denied::Refused(refusal))
        }
        (Ok(_) | Err(_), _) => Answer::Denied(Denied::Refused(in_the_way)),
    }
}

/// Whether the answer is that of a session that has just started.
fn started(answer: &Answer) -> bool {
    match answer {
        Answer::Accepted(accepted) => !accepted.receipt.duplicate,
        Answer::Denied(_) | Answer::State(_) => false,
    }
}

/// Whoever owes a session something that it did not take before tries again.
fn changed<P: Parts>(parts: &mut P, key: &Key) -> Effects<P> {
    let waiting = parts.waiting(|waiting| waiting.changed(key));
    let tick = |from: Key| put(parts, Ticket::Nobody, &from, Command::runtime(Act::Tick));
    waiting.into_iter().flat_map(tick).collect()
}

fn publish<P: Parts>(parts: &mut P, published: Published) {
    if published.started() || published.ended.is_some() {
        let place = Place::new(&published.key.tenant, published.binding.requester.as_str());
        parts.quota(|quota| {
            if published.started() {
                quota.started(&place);
            }
            if published.ended.is_some() {
                quota.ended(&place);
            }
        });
    }
    parts.out(Out::Published(&published));
    if parts.hub(|hub| hub.is_empty()) {
        let last = published.last();
        parts.tail(|tail| tail.reach(last));
        return;
    }
    let mut own = Some(published);
    let held = parts.tail(|tail| {
        own.take().is_some_and(|own| {
            tail.reach(own.last());
            tail.hold(own)
        })
    });
    match own {
        Some(own) => tell(parts, &Told::from(&own)),
        None => parts.out(Out::Look),
    }
    when_held(parts, held);
}

/// Let everybody hear of events.
fn tell<P: Parts>(parts: &mut P, told: &Told<'_>) {
    let (wakers, cut) = parts.hub(|hub| hub.publish(told));
    if cut > 0 {
        parts.out(Out::Cut(cut));
    }
    if !wakers.is_empty() {
        parts.out(Out::Notify(wakers));
    }
}

fn put<P: Parts>(parts: &mut P, ticket: Ticket<Call<P::Waiter>>, key: &Key, command: Command) -> Effects<P> {
    let after = parts.tail(|tail| tail.next_look());
    decide(parts, key, |shard, now| shard.submit(ticket, key, command, after, now))
}

fn read<P: Parts>(parts: &mut P, call: Call<P::Waiter>, key: &Key) -> Effects<P> {
    let after = parts.tail(|tail| tail.next_look());
    decide(parts, key, |shard, now| shard.read(call, key, after, now))
}

/// Work on a shard that may leave something to be written.
fn decide<P: Parts>(
    parts: &mut P,
    key: &Key,
    work: impl FnOnce(&mut Shard<Call<P::Waiter>>, Timestamp) -> Effects<P>,
) -> Effects<P> {
    let index = key.shard(parts.shards());
    let (effects, pending, unsure) =
        parts.shard(index, |shard, now| (work(shard, now), shard.has_pending(), shard.is_unsure()));
    want(parts, pending, unsure);
    effects
}

/// Say what a shard waits for.
fn want<P: Parts>(parts: &mut P, pending: bool, unsure: bool) {
    if pending {
        parts.out(Out::Pending);
    }
    if unsure {
        parts.out(Out::Look);
    }
}
