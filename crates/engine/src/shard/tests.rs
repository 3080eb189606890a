//! The shard by itself: what it asks for, and when.

use handover_kernel::command::{CheckInTerms, ModeKind, Request, Start, TaskAct};
use handover_kernel::{AgentId, Blob, Charter, Face, Text};
use handover_store::{Outcome, Position, SessionKey, Snapshot};

use super::*;
use crate::codec;
use crate::log::revive;

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

pub(crate) fn key(session: &str) -> Key {
    Key::from(SessionKey::new("t", session))
}

pub(crate) fn by(agent: &str, act: Act) -> Command {
    Command::by(&AgentId::from(agent), Face::Macp, act).in_session_scope()
}

/// `planner` starts a task that `worker` or `helper` may take.
pub(crate) fn start(parent: Option<&str>) -> Command {
    let start = Start {
        mode: ModeKind::Task,
        participants: ["worker", "helper"].map(AgentId::from).to_vec(),
        charter: Charter::macp(),
        mode_version: Text::from("1.0.0"),
        configuration_version: Text::from("unit"),
        policy_version: Text::default(),
        ttl_ms: None,
        sent_at: None,
        intent: Text::default(),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: parent.map(SessionId::from),
        contract: None,
        under: None,
    };
    by("planner", Act::Start(Box::new(start)))
}

pub(crate) fn request() -> Command {
    let request = Request {
        task: Text::from("t1"),
        title: Text::default(),
        instructions: Text::default(),
        assignee: None,
        input: Blob::default(),
        wanted_by: None,
        check_in: CheckInTerms::default(),
        session_key: None,
    };
    by("planner", Act::Task(TaskAct::Request(Box::new(request))))
}

fn at(number: u64) -> Outcome {
    Outcome::Appended { first: Position::first_slot(number), stamp: number }
}

fn accept(agent: &str) -> Command {
    by(agent, Act::Task(TaskAct::Accept { task: None, assignee: None, reason: Text::default() }))
}

fn steer() -> Command {
    by("planner", Act::Task(TaskAct::Steer { text: Text::from("left") }))
}

fn cancel() -> Command {
    by("planner", Act::cancel(""))
}

pub(crate) fn shard(settings: Settings) -> Shard<u32> {
    Shard::new(settings, Limits::default())
}

fn put(shard: &mut Shard<u32>, client: u32, name: &str, command: Command) -> Vec<Effect<u32>> {
    shard.submit(Ticket::Client(client), &key(name), command, None, NOW)
}

/// Write what waits, and keep the bytes as the log of each session.
fn write(shard: &mut Shard<u32>, disk: &mut BTreeMap<SessionKey, Vec<Vec<u8>>>) -> Vec<Effect<u32>> {
    let batch = shard.take_batch().expect("something waits to be written");
    let mut outcomes = Vec::new();
    for append in batch {
        let log = disk.entry(append.key).or_default();
        assert_eq!(append.expected, log.len() as u64);
        outcomes.push(at(100));
        log.extend(append.events);
    }
    shard.complete(Ok(&outcomes), NOW)
}

/// A session that is there and written.
fn settled(shard: &mut Shard<u32>, name: &str) -> BTreeMap<SessionKey, Vec<Vec<u8>>> {
    let mut disk = BTreeMap::new();
    put(shard, 0, name, start(None));
    put(shard, 0, name, request());
    write(shard, &mut disk);
    disk
}

/// Who is told what, in short.
fn told(effects: &[Effect<u32>]) -> Vec<String> {
    let short = |effect: &Effect<u32>| match effect {
        Effect::Load(key) => format!("load {}", key.session),
        Effect::Publish(published) => {
            format!("publish {} {}", published.key.session, published.events.len())
        }
        Effect::Wake { key, .. } => format!("wake {}", key.session),
        Effect::Errand { from, .. } => format!("errand of {}", from.session),
        Effect::Answer { ticket, answer } => {
            let who = match ticket {
                Ticket::Client(client) => format!("client {client}"),
                Ticket::Wake => "clock".to_owned(),
                Ticket::Nobody => "nobody".to_owned(),
                Ticket::Errand(_) => "errand".to_owned(),
            };
            let what = match answer {
                Answer::Accepted(accepted) => format!("accepted {}", accepted.receipt.seq),
                Answer::Denied(Denied::Refused(refusal)) => refusal.code().to_owned(),
                Answer::Denied(Denied::Fault(_)) => "fault".to_owned(),
                Answer::Denied(Denied::Unreadable(_)) => "unreadable".to_owned(),
                Answer::Denied(Denied::Stopping) => "stopping".to_owned(),
                Answer::State(state) => format!("state {}", state.as_ref().map_or(0, |s| s.head.0)),
            };
            format!("{who}: {what}")
        }
    };
    effects.iter().map(short).collect()
}

fn fault() -> Arc<Fault> {
    Arc::new(Fault::Unavailable { doing: "testing", source: "on demand".into() })
}

#[test]
fn whatever_rests_on_a_batch_is_held_until_it_is_written() {
    let mut shard = shard(Settings::default());
    let mut disk = settled(&mut shard, "s");
    assert!(put(&mut shard, 1, "s", accept("worker")).is_empty());
    assert!(put(&mut shard, 2, "s", accept("helper")).is_empty(), "the refusal rests on the first");
    let batch = shard.take_batch().unwrap();
    assert!(shard.take_batch().is_none(), "one batch at a time");
    // Decided on what is being written: a look, a refusal, and an event that is for the next batch.
    assert!(shard.read(3, &key("s"), None, NOW).is_empty());
    assert!(put(&mut shard, 4, "s", accept("helper")).is_empty());
    assert!(put(&mut shard, 5, "s", cancel()).is_empty());
    assert!(!shard.has_pending() && !shard.is_quiet());
    disk.get_mut(&*key("s")).unwrap().extend(batch[0].events.clone());
    let effects = shard.complete(Ok(&[at(3)]), NOW);
    assert_eq!(
        told(&effects),
        [
            "publish s 1",
            "client 1: accepted 3",
            "client 2: ALREADY_ASSIGNED",
            "client 3: state 3",
            "client 4: ALREADY_ASSIGNED"
        ]
    );
    assert_eq!(told(&write(&mut shard, &mut disk)), ["publish s 1", "client 5: accepted 4"]);
    assert!(shard.is_quiet());
}

#[test]
fn after_a_fault_everything_that_rests_on_it_is_denied_and_the_log_is_read_again() {
    let mut shard = shard(Settings::default());
    let disk = settled(&mut shard, "s");
    put(&mut shard, 1, "s", accept("worker"));
    shard.take_batch().unwrap();
    put(&mut shard, 2, "s", cancel());
    put(&mut shard, 3, "other", start(None));
    let effects = shard.complete(Err(fault()), NOW);
    assert_eq!(told(&effects), ["client 1: fault", "client 2: fault", "client 3: fault"]);
    assert!(shard.is_quiet() && shard.sessions() == 0 && shard.idle.is_empty());
    assert_eq!(told(&shard.read(4, &key("s"), None, NOW)), ["load s"]);
    let log = Log { events: disk[&*key("s")].clone(), ..Log::default() };
    assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 4: state 2"]);
}

#[test]
fn when_somebody_else_was_first_the_session_is_read_and_decided_again() {
    let mut shard = shard(Settings::default());
    let mut disk = settled(&mut shard, "s");
    put(&mut shard, 1, "s", accept("helper"));
    shard.take_batch().unwrap();
    put(&mut shard, 2, "s", cancel());
    put(&mut shard, 3, "other", start(None));
    let effects = shard.complete(Ok(&[Outcome::Conflict { head: 3 }]), NOW);
    assert_eq!(told(&effects), ["load s"]);
    // What another writer had decided on the same log.
    let mut elsewhere = self::shard(Settings::default());
    let mut there = settled(&mut elsewhere, "s");
    put(&mut elsewhere, 9, "s", accept("worker"));
    write(&mut elsewhere, &mut there);
    let log = Log { events: there[&*key("s")].clone(), ..Log::default() };
    assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 1: ALREADY_ASSIGNED"]);
    disk.insert(SessionKey::clone(&key("s")), there.remove(&*key("s")).unwrap());
    let effects = told(&write(&mut shard, &mut disk));
    assert_eq!(effects, ["publish other 1", "publish s 1", "client 3: accepted 1", "client 2: accepted 4"]);
    assert!(shard.is_quiet());
    assert_eq!(shard.idle.len(), shard.sessions());
}

#[test]
fn a_start_on_a_deleted_session_is_refused_once_the_tombstone_is_seen() {
    let mut shard = shard(Settings::default());
    put(&mut shard, 1, "s", start(None));
    shard.take_batch().unwrap();
    let effects = shard.complete(Ok(&[Outcome::Tombstone { deleted_at: 7 }]), NOW);
    assert_eq!(told(&effects), ["load s"]);
    let log = Log { tombstone: Some(7), ..Log::default() };
    assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 1: SESSION_EXISTS"]);
    assert_eq!(told(&put(&mut shard, 2, "s", request())), ["client 2: SESSION_NOT_FOUND"]);
}

#[test]
fn a_session_that_is_deleted_while_it_is_read_or_in_memory_is_gone() {
    let (mut shard, mut disk) = (shard(Settings::default()), BTreeMap::new());
    put(&mut shard, 1, "s", start(None));
    write(&mut shard, &mut disk);
    assert!(shard.glance(&key("s"), NOW).is_some());
    shard.deleted(&key("s"));
    assert!(shard.glance(&key("s"), NOW).is_none());
    assert_eq!((shard.sessions(), shard.idle.len(), shard.bytes), (0, 0, 0));
    // What comes of the read was there before.
    let log = Log { events: disk[&*key("s")].clone(), ..Log::default() };
    assert_eq!(told(&put(&mut shard, 2, "s", request())), ["load s"]);
    shard.deleted(&key("s"));
    assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 2: SESSION_NOT_FOUND"]);
    assert_eq!(told(&put(&mut shard, 3, "s", start(None))), ["client 3: SESSION_EXISTS"]);
}

#[test]
fn what_another_node_wrote_after_something_that_is_not_known_to_be_written_yet_is_read() {
    let heard: [fn(&mut Shard<u32>, &Event); 3] = [
        |shard, event| shard.heard(&key("s"), event),
        |shard, _| shard.deleted(&key("s")),
        |shard, _| shard.let_go(),
    ];
    for (after, hear) in [(1, heard[0]), (0, heard[1]), (0, heard[2])] {
        let mut shard = shard(Settings::default());
        let mut disk = settled(&mut shard, "s");
        put(&mut shard, 1, "s", accept("worker"));
        let batch = shard.take_batch().expect("something waits to be written");
        let log = disk.get_mut(&*key("s")).unwrap();
        log.extend(batch.into_iter().flat_map(|append| append.events));
        let last = codec::decode(log.last().unwrap()).unwrap();
        hear(&mut shard, &Event { seq: Seq(last.seq.0 + after), ..last });
        assert_eq!(told(&shard.complete(Ok(&[at(3)]), NOW)), ["publish s 1", "client 1: accepted 3"]);
        assert_eq!(told(&shard.read(2, &key("s"), None, NOW)), ["load s"]);
    }
}

#[test]
fn what_another_node_has_written_before_is_no_reason_to_read_again() {
    let mut shard = shard(Settings::default());
    let log = settled(&mut shard, "s").remove(&*key("s")).unwrap();
    put(&mut shard, 1, "s", accept("worker"));
    shard.take_batch().expect("something waits to be written");
    shard.heard(&key("s"), &codec::decode(log.last().unwrap()).unwrap());
    shard.complete(Ok(&[at(3)]), NOW);
    assert_eq!(told(&shard.read(2, &key("s"), None, NOW)), ["client 2: state 3"]);
}

#[test]
fn a_read_that_failed_is_told_to_everybody_who_waits_for_it() {
    let mut shard = shard(Settings::default());
    assert_eq!(told(&put(&mut shard, 1, "s", request())), ["load s"]);
    assert!(shard.read(2, &key("s"), None, NOW).is_empty(), "one read serves all");
    assert!(!shard.is_quiet());
    let effects = shard.loaded(&key("s"), Err(fault()), NOW);
    assert_eq!(told(&effects), ["client 1: fault", "client 2: fault"]);
    assert!(shard.is_quiet() && shard.sessions() == 0);
    put(&mut shard, 3, "s", request());
    let log = Log { events: vec![b"no event".to_vec()], ..Log::default() };
    assert_eq!(told(&shard.loaded(&key("s"), Ok(log), NOW)), ["client 3: unreadable"]);
}

#[test]
fn what_never_existed_leaves_nothing_behind() {
    let mut shard = shard(Settings::default());
    for client in 0..10 {
        let name = format!("{client}");
        put(&mut shard, client, &name, request());
        let log = Log::default();
        let effects = shard.loaded(&key(&name), Ok(log), NOW);
        assert_eq!(told(&effects), [format!("client {client}: SESSION_NOT_FOUND")]);
        let refused = by("planner", start(None).act).with_id("handover:not allowed");
        assert_eq!(told(&put(&mut shard, client, &name, refused)).len(), 1);
    }
    assert!(shard.is_quiet() && shard.sessions() == 0 && shard.idle.is_empty());
}

#[test]
fn only_clients_are_refused_when_the_queue_is_full() {
    let mut shard = shard(Settings { queue_max: 1, ..Settings::default() });
    let mut disk = BTreeMap::new();
    assert!(put(&mut shard, 1, "s", start(None)).is_empty());
    assert_eq!(told(&put(&mut shard, 2, "s", request())), ["client 2: BUSY"]);
    assert_eq!(told(&shard.read(3, &key("s"), None, NOW)), ["client 3: BUSY"]);
    assert!(shard.submit(Ticket::Wake, &key("s"), Command::runtime(Act::Tick), None, NOW).is_empty());
    let effects = told(&write(&mut shard, &mut disk));
    assert_eq!(effects, ["publish s 1", "client 1: accepted 1", "clock: accepted 1"]);
    assert!(put(&mut shard, 4, "s", request()).is_empty());
}

#[test]
fn what_a_session_owes_is_carried_out_only_when_the_reason_for_it_is_written() {
    let mut shard = shard(Settings::default());
    let mut disk = BTreeMap::new();
    put(&mut shard, 1, "child", start(Some("parent")));
    let tick = |shard: &mut Shard<u32>| {
        told(&shard.submit(Ticket::Wake, &key("child"), Command::runtime(Act::Tick), None, NOW))
    };
    assert!(tick(&mut shard).is_empty());
    assert_eq!(told(&write(&mut shard, &mut disk))[..2], ["wake child", "publish child 1"]);
    assert_eq!(tick(&mut shard), ["errand of child", "clock: accepted 1"]);
    assert_eq!(tick(&mut shard), ["errand of child", "clock: accepted 1"], "until it is settled");
}

#[test]
fn idle_sessions_leave_memory_and_those_in_use_stay() {
    let settings = Settings { idle_ms: 100, finished_idle_ms: 10, ..Settings::default() };
    let mut shard = shard(settings);
    settled(&mut shard, "idle");
    settled(&mut shard, "used");
    settled(&mut shard, "being written");
    shard.sweep(NOW.plus(99));
    assert_eq!(shard.sessions(), 3);
    shard.read(1, &key("used"), None, NOW.plus(60));
    put(&mut shard, 2, "being written", accept("worker"));
    shard.sweep(NOW.plus(100));
    assert_eq!(shard.sessions(), 2);
    assert!(!shard.slots.contains_key(&key("idle")));
    shard.sweep(NOW.plus(160));
    assert_eq!(shard.sessions(), 1, "what is not on disk yet cannot go");
    shard.take_batch().unwrap();
    shard.sweep(NOW.plus(500));
    assert_eq!(shard.sessions(), 1, "nor while it is being written");
    shard.complete(Ok(&[at(9)]), NOW.plus(500));
    shard.sweep(NOW.plus(600));
    assert_eq!((shard.sessions(), shard.idle.len()), (0, 0));
}

#[test]
fn finished_sessions_leave_sooner_than_the_others() {
    let settings = Settings { idle_ms: 100, finished_idle_ms: 10, ..Settings::default() };
    let mut shard = shard(settings);
    settled(&mut shard, "open");
    let mut disk = settled(&mut shard, "finished");
    put(&mut shard, 1, "finished", cancel());
    write(&mut shard, &mut disk);
    shard.sweep(NOW.plus(10));
    assert_eq!(shard.slots.keys().map(|key| &*key.session).collect::<Vec<_>>(), ["open"]);
    // One that is read again leaves again as soon.
    shard.read(2, &key("finished"), None, NOW.plus(20));
    let log = Log { events: disk.remove(&*key("finished")).unwrap(), ..Log::default() };
    assert_eq!(told(&shard.loaded(&key("finished"), Ok(log), NOW.plus(20))), ["client 2: state 3"]);
    shard.sweep(NOW.plus(29));
    assert_eq!(shard.sessions(), 2);
    shard.sweep(NOW.plus(30));
    assert_eq!(shard.sessions(), 1);
}

#[test]
fn when_there_are_too_many_the_finished_ones_go_first_and_then_those_that_waited_longest() {
    let settings = Settings { sessions_in_memory_max: 2, ..Settings::default() };
    let mut shard = shard(settings);
    for name in ["a", "b", "c"] {
        settled(&mut shard, name);
    }
    let mut disk = settled(&mut shard, "finished");
    put(&mut shard, 1, "finished", cancel());
    write(&mut shard, &mut disk);
    shard.read(2, &key("c"), None, NOW.plus(4));
    shard.read(3, &key("a"), None, NOW.plus(5));
    shard.sweep(NOW.plus(6));
    let mut left: Vec<&str> = shard.slots.keys().map(|key| &*key.session).collect();
    left.sort_unstable();
    assert_eq!(left, ["a", "c"], "the one that was asked for last stays, though it came first");
}

#[test]
fn sessions_of_too_many_bytes_leave_at_once_those_that_were_used_longest_ago_first() {
    let mut shard = shard(Settings { sessions_bytes_max: 10_000, ..Settings::default() });
    let load = |shard: &mut Shard<u32>, name: &str, at: u64| {
        let mut other = self::shard(Settings::default());
        let events = settled(&mut other, name).remove(&*key(name)).unwrap();
        shard.read(1, &key(name), None, NOW.plus(at));
        shard.loaded(&key(name), Ok(Log { events, ..Log::default() }), NOW.plus(at));
    };
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        load(&mut shard, name, at as u64);
    }
    assert_eq!(shard.sessions(), 3);
    shard.read(2, &key("a"), None, NOW.plus(4));
    for (at, name) in ["d", "e"].into_iter().enumerate() {
        load(&mut shard, name, 5 + at as u64);
    }
    assert!(shard.bytes <= 10_000, "{}", shard.bytes);
    assert!(shard.glance(&key("a"), NOW.plus(8)).is_some() && shard.glance(&key("b"), NOW.plus(8)).is_none());
    let left: usize = ["a", "b", "c", "d", "e"]
        .iter()
        .filter_map(|name| shard.glance(&key(name), NOW.plus(9)))
        .map(|session| session.weight())
        .sum();
    assert_eq!(shard.bytes, left, "what left is not counted");
}

#[test]
fn a_session_is_kept_beside_its_log_with_the_last_event_of_every_so_many() {
    let mut shard = shard(Settings { snapshot_every: 3, ..Settings::default() });
    put(&mut shard, 0, "s", start(None));
    put(&mut shard, 0, "s", request());
    let batch = shard.take_batch().unwrap();
    assert_eq!(batch[0].snapshot, None);
    put(&mut shard, 0, "s", accept("worker"));
    shard.complete(Ok(&[at(1)]), NOW);
    put(&mut shard, 0, "s", steer());
    let batch = shard.take_batch().unwrap();
    let kept = Snapshot { seq: 4, bytes: batch[0].snapshot.clone().expect("it is time") };
    let kept = snapshot::read(&key("s"), &kept).expect("it can be read");
    shard.complete(Ok(&[at(3)]), NOW);
    assert_eq!(Some(&kept), shard.glance(&key("s"), NOW).as_deref(), "with what was decided last");
    put(&mut shard, 0, "s", steer());
    assert_eq!(shard.take_batch().unwrap()[0].snapshot, None, "not again so soon");
}

#[test]
fn a_session_that_was_loaded_from_its_snapshot_counts_from_there() {
    let mut shard = shard(Settings { snapshot_every: 3, ..Settings::default() });
    let events = settled(&mut shard, "s").remove(&*key("s")).unwrap();
    let begun = revive(&key("s"), Log { events, ..Log::default() }).unwrap().map(Box::new);
    let kept = begun.as_deref().map(Kept::of).unwrap();
    let mut shard = self::shard(Settings { snapshot_every: 3, ..Settings::default() });
    put(&mut shard, 0, "s", accept("worker"));
    shard.loaded(&key("s"), Ok(Log { begun, kept, ..Log::default() }), NOW);
    put(&mut shard, 0, "s", steer());
    let batch = shard.take_batch().unwrap();
    assert_eq!((batch[0].expected, batch[0].events.len()), (2, 2));
    assert_eq!(batch[0].snapshot, None);
}

#[test]
fn a_snapshot_of_another_layout_session_or_place_is_left_alone() {
    let mut shard = shard(Settings::default());
    let events = settled(&mut shard, "s").remove(&*key("s")).unwrap();
    let session = revive(&key("s"), Log { events, ..Log::default() }).unwrap().unwrap();
    let kept = Snapshot { seq: 2, bytes: snapshot::keep(&session) };
    assert_eq!(snapshot::read(&key("s"), &kept), Some(session));
    assert_eq!(snapshot::read(&key("other"), &kept), None);
    assert_eq!(snapshot::read(&key("s"), &Snapshot { seq: 3, ..kept.clone() }), None);
    let changed = |index: usize, byte: u8| {
        let mut bytes = kept.bytes.clone();
        bytes[index] = byte;
        Snapshot { seq: 2, bytes }
    };
    assert_eq!(snapshot::read(&key("s"), &changed(3, 0xff)), None, "another layout");
    for length in 0..kept.bytes.len() {
        let cut = Snapshot { seq: 2, bytes: kept.bytes[..length].to_vec() };
        assert_eq!(snapshot::read(&key("s"), &cut), None);
    }
}
