//! Events keep their meaning through their bytes, whoever wrote them and whenever.

#[path = "golden/events.rs"]
mod events;
#[path = "golden/lives.rs"]
mod lives;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use events::{Kind, Listed};
use handover_engine::codec::{self, Error, decode, encode};
use handover_kernel::charter::{Authority, Cancel, OnDecline, PauseAt, Settlement};
use handover_kernel::command::{ModeKind, Need, Progress};
use handover_kernel::event::{ExpiryCause, Question};
use handover_kernel::session::Standing;
use handover_kernel::{
    AgentId, Author, Blob, Event, Face, Fact, MessageId, Ordinal, Seq, Session, SessionId, Text, Timestamp,
    replay,
};
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

// ---- what goes in comes out

fn config() -> ProptestConfig {
    ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_event_comes_back_as_it_was(event in events::event()) {
        let bytes = encode(&event);
        let back = decode(&bytes).expect("it was encoded a moment ago");
        prop_assert_eq!(&back, &event);
        prop_assert_eq!(encode(&back), bytes);
    }

    #[test]
    fn random_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
        let _ = decode(&[&[codec::VERSION], bytes.as_slice()].concat());
    }

    #[test]
    fn damaged_events_are_read_or_refused_without_a_panic(
        event in events::event(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode(&event);
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(other) = decode(&bytes) {
            let again = encode(&other);
            let back = decode(&again).expect("it was encoded a moment ago");
            prop_assert!(encode(&back) == again);
        }
    }
}

#[test]
fn every_kind_of_event_comes_back_as_it_was() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for kind in Kind::ALL {
        for _ in 0..64 {
            let event = events::event_of(*kind).new_tree(&mut runner).expect("a value").current();
            assert_eq!(decode(&encode(&event)), Ok(event.clone()));
            seen.insert(Kind::of(&event.fact));
        }
    }
    assert_eq!(seen.len(), Kind::ALL.len());
}

#[test]
fn a_new_kind_of_event_counts_in_the_number_that_nodes_compare() {
    // Whoever changes the second raises the first, unless no release has had it.
    assert_eq!((codec::EVENTS, Kind::ALL.len()), (1, 37));
}

#[test]
fn every_value_of_every_enum_comes_back_as_it_was() {
    fn check<T: Listed>(put: impl Fn(T) -> Event) {
        let encoded: BTreeSet<Vec<u8>> = T::ALL
            .iter()
            .map(|value| {
                let event = put(*value);
                let bytes = encode(&event);
                assert_eq!(decode(&bytes), Ok(event), "{value:?}");
                bytes
            })
            .collect();
        assert_eq!(encoded.len(), T::ALL.len());
    }
    check(|face: Face| Event { face, id_scope: codec::id_scope(face), ..event(Fact::Acknowledged) });
    check(|cause: ExpiryCause| event(Fact::Expired { cause }));
    check(|need: Need| {
        let question =
            Question { key: "k".into(), need, text: Text::default(), schema: Blob::default(), wire: None };
        event(Fact::Asked { questions: vec![question], progress: Progress::default() })
    });
    check(|mode: ModeKind| started(|start| start.mode = mode));
    check(|value: Settlement| started(|start| start.charter.on_complete = value));
    check(|value: Settlement| started(|start| start.charter.on_fail = value));
    check(|value: OnDecline| started(|start| start.charter.on_decline = value));
    check(|value: Cancel| started(|start| start.charter.cancel = value));
    check(|value: PauseAt| started(|start| start.charter.pause = value));
}

#[test]
fn nothing_is_told_from_something_empty() {
    let bare = event(Fact::KeySet { key: None });
    let full = Event {
        ordinal: Some(Ordinal(0)),
        id: Some(MessageId::from("")),
        verbatim: Some(Blob::default()),
        sent_at: Some(Timestamp(0)),
        author: Author::Agent(AgentId::from("")),
        fact: Fact::KeySet { key: Some(Text::default()) },
        ..bare.clone()
    };
    assert_eq!(decode(&encode(&bare)), Ok(bare));
    assert_eq!(decode(&encode(&full)), Ok(full));
    let nobody = started(|start| start.charter.authority = Authority::Designated(BTreeSet::new()));
    assert_eq!(decode(&encode(&nobody)), Ok(nobody));
}

#[test]
fn progress_keeps_every_bit() {
    let quiet = f64::NAN.to_bits() | 0xbeef;
    for bits in [0, 1 << 63, 1, f64::MAX.to_bits(), f64::NEG_INFINITY.to_bits(), quiet] {
        let progress = Progress { done: Some(f64::from_bits(bits)), ..Progress::default() };
        let bytes = encode(&event(Fact::Updated { progress, withdrawn: Vec::new() }));
        match decode(&bytes).map(|event| event.fact) {
            Ok(Fact::Updated { progress: Progress { done: Some(done), .. }, .. }) => {
                assert_eq!(done.to_bits(), bits);
            }
            other => panic!("expected an update with progress, found {other:?}"),
        }
    }
}

#[test]
fn an_event_that_says_little_is_small() {
    let small = encode(&event(Fact::Acknowledged));
    assert!(small.len() <= 20, "expected at most 20 bytes, found {}", small.len());
}

// ---- what older and newer releases wrote

#[test]
fn no_beginning_of_an_event_is_an_event() {
    let mut runner = TestRunner::deterministic();
    for kind in Kind::ALL {
        let event = events::event_of(*kind).new_tree(&mut runner).expect("a value").current();
        let bytes = encode(&event);
        // What was added later comes last, and may be missing: that is what an earlier release wrote.
        let earlier = Event { sent_at: None, ..event.clone() };
        for length in 0..bytes.len() {
            if let Ok(read) = decode(&bytes[..length]) {
                assert_eq!(
                    (read, event.sent_at.is_some()),
                    (earlier.clone(), true),
                    "{length} bytes of {event:?}"
                );
            }
        }
    }
}

#[test]
fn no_bytes_are_no_event() {
    assert_eq!(decode(&[]), Err(Error::Empty));
}

#[test]
fn another_version_of_the_envelope_is_refused() {
    let mut bytes = encode(&event(Fact::Acknowledged));
    bytes[0] = 2;
    assert_eq!(decode(&bytes), Err(Error::UnknownVersion { found: 2 }));
    let said = Error::UnknownVersion { found: 2 }.to_string();
    assert_eq!(said, "expected version 1 of the envelope, found version 2");
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    assert!(matches!(decode(&[codec::VERSION, 0xff]), Err(Error::NotProtobuf(_))));
    let invalid_text = raw(&[number(1, 7), number(2, 1), part(3, &[0xff, 0xfe])]);
    assert!(matches!(decode(&invalid_text), Err(Error::NotProtobuf(_))));
}

#[test]
fn a_field_that_a_newer_release_added_is_passed_over() {
    let plain = raw(&[head(), part(38, &part(1, b"left"))]);
    let steered = Event { author: Author::Runtime, ..event(Fact::Steered { text: Text::from("left") }) };
    assert_eq!(decode(&plain), Ok(steered.clone()));
    let added = [number(99, 5), part(2000, b"new"), [varint(3000 << 3 | 1), vec![0; 8]].concat()].concat();
    let inside = part(38, &[added.clone(), part(1, b"left"), added.clone()].concat());
    assert_eq!(decode(&raw(&[added.clone(), head(), inside, added])), Ok(steered));
}

#[test]
fn a_kind_that_a_newer_release_added_is_refused_and_never_skipped() {
    for unknown in [19, 29, 49, 59, 64, 1000] {
        let found = decode(&raw(&[head(), part(unknown, b"")]));
        assert_eq!(found, Err(Error::UnknownKind { seq: Seq(7) }));
    }
    assert_eq!(decode(&raw(&[head()])), Err(Error::UnknownKind { seq: Seq(7) }));
    let said = Error::UnknownKind { seq: Seq(7) }.to_string();
    assert!(said.contains("event 7") && said.contains("newer release"), "{said}");
}

#[test]
fn a_value_that_a_newer_release_added_is_refused_by_name() {
    let unknown = |field, value| Err(Error::UnknownValue { field, value });
    let other_face = [number(1, 7), number(2, 1), part(4, b""), number(5, 7), part(44, b"")];
    assert_eq!(decode(&raw(&other_face)), unknown("face", 7));
    assert_eq!(fact(14, &[number(1, 3)]), unknown("expired.cause", 3));
    let question = part(1, &[part(1, b"k"), number(2, 3)].concat());
    assert_eq!(fact(34, &[question, part(2, b"")]), unknown("question.need", 3));
    let started = |mode, charter: &[u8]| fact(10, &[number(1, 1), number(2, mode), part(4, charter)]);
    assert_eq!(started(9, b""), unknown("started.mode", 9));
    for (field, name, bound) in [
        (4, "charter.on_complete", 3),
        (5, "charter.on_fail", 3),
        (6, "charter.on_decline", 4),
        (7, "charter.cancel", 3),
        (8, "charter.pause", 3),
    ] {
        // Of a field that is there twice the last one counts.
        assert_eq!(started(1, &[charter(&[]), number(field, bound)].concat()), unknown(name, bound as u32));
    }
}

#[test]
fn a_missing_field_is_named() {
    let missing = |field| Err(Error::Missing { field });
    let runtime = part(4, b"");
    let rest = [number(5, 1), part(44, b"")].concat();
    assert_eq!(decode(&raw(&[number(2, 1), runtime.clone(), rest.clone()])), missing("seq"));
    assert_eq!(decode(&raw(&[number(1, 1), runtime.clone(), rest.clone()])), missing("at"));
    assert_eq!(decode(&raw(&[number(1, 1), number(2, 1), rest])), missing("author"));
    assert_eq!(decode(&raw(&[number(1, 1), number(2, 1), runtime, part(44, b"")])), missing("face"));

    let traced = raw(&[head(), part(9, &part(2, b"vendor=1")), part(44, b"")]);
    assert_eq!(decode(&traced), missing("trace.parent"));

    let id = part(1, b"h");
    let rows: [(u32, &[Vec<u8>], &str); 22] = [
        (10, &[number(2, 1), part(4, &charter(&[]))], "started.base"),
        (10, &[number(1, 1), part(4, &charter(&[]))], "started.mode"),
        (10, &[number(1, 1), number(2, 1)], "started.charter"),
        (14, &[], "expired.cause"),
        (15, &[part(9, b"")], "supersedes.session"),
        (16, &[part(2, b"")], "errand_settled.errand"),
        (16, &[number(1, 1)], "errand_settled.verdict"),
        (33, &[], "updated.progress"),
        (34, &[], "asked.progress"),
        (34, &[part(1, &number(2, 1)), part(2, b"")], "question.key"),
        (34, &[part(1, &id), part(2, b"")], "question.need"),
        (36, &[], "delivered.up_to"),
        (37, &[part(1, &part(3, b""))], "answer.key"),
        (37, &[part(1, &id)], "answer.reply"),
        (43, &[], "read.up_to"),
        (45, &[], "check_in_missed.message"),
        (47, &[], "child_added.child"),
        (60, &[part(2, b"b")], "offered.handoff"),
        (60, std::slice::from_ref(&id), "offered.target"),
        (61, &[], "context_added.handoff"),
        (62, &[], "offer_accepted.handoff"),
        (63, &[], "offer_declined.handoff"),
    ];
    for (kind, fields, name) in rows {
        assert_eq!(fact(kind, fields), missing(name));
    }
    for (without, name) in [
        (1, "charter.authority"),
        (4, "charter.on_complete"),
        (5, "charter.on_fail"),
        (6, "charter.on_decline"),
        (7, "charter.cancel"),
        (8, "charter.pause"),
        (16, "charter.suspension_cap_ms"),
    ] {
        assert_eq!(fact(10, &[number(1, 1), number(2, 1), part(4, &charter(&[without]))]), missing(name));
    }
    let whole = fact(10, &[number(1, 1), number(2, 1), part(4, &charter(&[]))]);
    assert!(whole.is_ok(), "{whole:?}");
}

// ---- stored logs

#[test]
fn every_stored_log_replays_to_the_state_that_it_had() {
    let mut kinds = BTreeSet::new();
    let mut names = BTreeSet::new();
    for path in stored_logs() {
        let (events, state) = read_log(&path);
        kinds.extend(events.iter().map(|event| Kind::of(&event.fact)));
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a log has a name").to_owned();
        let session = replay(&SessionId::from(name.as_str()), &events).expect("a stored log can be replayed");
        assert_eq!(digest(&session.expect("a stored log has events")), state, "{name}");
        names.insert(name);
    }
    for life in lives::all() {
        assert!(
            names.contains(life.name),
            "expected a log of {}, found none: run with UPDATE_GOLDEN=1",
            life.name
        );
    }
    let missing: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "expected every kind of event in the stored logs, found none of {missing:?}");
}

#[test]
fn every_life_replays_from_its_bytes_to_the_session_that_lived_it() {
    for life in lives::all() {
        let events: Vec<Event> =
            life.events.iter().map(|event| decode(&encode(event)).expect("it was encoded")).collect();
        assert_eq!(events, life.events);
        let replayed = replay(&SessionId::from(life.name), &events).expect("a life can be replayed");
        assert_eq!(replayed, life.session, "{}", life.name);
    }
}

/// A folder for each step: the version of the envelope, and how often fields were added to it since.
const STEPS: [&str; 7] = ["v1", "v1.1", "v1.2", "v1.3", "v1.4", "v1.5", "v1.6"];

/// The logs of every step, after those of new lives have been added to the last one if that is wanted.
fn stored_logs() -> Vec<PathBuf> {
    let folders = STEPS.map(|step| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(step));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        lives::all().iter().for_each(|life| keep_if_new(&folders, life));
    }
    let mut logs: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("the logs are there"))
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    logs
}

/// Stored logs are never written again: they are what a release wrote.
fn keep_if_new(folders: &[PathBuf; STEPS.len()], life: &lives::Life) {
    let paths = folders.each_ref().map(|folder| folder.join(format!("{}.log", life.name)));
    let [.., path] = &paths;
    if paths.iter().any(|path| path.exists()) {
        return;
    }
    let mut file = fs::File::create_new(path).expect("the folder is there");
    let mut text: String = life.events.iter().map(|event| to_hex(&encode(event)) + "\n").collect();
    text += &digest(life.session.as_ref().expect("a life has a session"));
    file.write_all((text + "\n").as_bytes()).expect("the log can be written");
}

/// One event on each line, and the state on the last.
fn read_log(path: &Path) -> (Vec<Event>, String) {
    let text = fs::read_to_string(path).expect("a log is text");
    let (lines, state) = text.trim_end().rsplit_once('\n').expect("a log has events and a state");
    let events = lines
        .lines()
        .map(|line| {
            let event = decode(&from_hex(line)).expect("a stored event can be read");
            assert_eq!(to_hex(&encode(&event)), line, "{}: event {}", path.display(), event.seq);
            event
        })
        .collect();
    (events, state.to_owned())
}

fn digest(session: &Session) -> String {
    let assignee = match (session.task(), session.handoff()) {
        (Some(task), _) => task.phase.assignee(),
        (None, Some(handoff)) => handoff.accepted().map(|offer| &offer.target),
        (None, None) => None,
    };
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    format!(
        "standing={} head={} ordinal={} last_at={} assignee={} wake_at={}",
        word(session.standing()),
        session.head,
        session.ordinal.0,
        session.last_at.0,
        or_none(assignee.map(AgentId::to_string)),
        or_none(session.wake_at().map(|at| at.0.to_string())),
    )
}

/// The words of the stored logs, whatever the kernel comes to call them.
fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Pending => "pending",
        Standing::Requested => "requested",
        Standing::Working => "working",
        Standing::WaitingInput => "waiting_input",
        Standing::WaitingAuthorization => "waiting_authorization",
        Standing::WaitingReply => "waiting_reply",
        Standing::ReportedComplete => "reported_complete",
        Standing::ReportedFail => "reported_fail",
        Standing::Suspended => "suspended",
        Standing::ResolvedPositive => "resolved_positive",
        Standing::ResolvedNegative => "resolved_negative",
        Standing::Expired => "expired",
        Standing::Cancelled => "cancelled",
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two hexadecimal digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

// ---- events by hand

fn event(fact: Fact) -> Event {
    Event {
        seq: Seq(7),
        at: Timestamp(1),
        author: Author::Agent(AgentId::from("planner")),
        face: Face::Macp,
        ordinal: None,
        id: None,
        id_scope: codec::id_scope(Face::Macp),
        verbatim: None,
        sent_at: None,
        trace: None,
        fact,
    }
}

/// The start of a life, changed.
fn started(change: impl FnOnce(&mut handover_kernel::command::Start)) -> Event {
    let mut event = lives::all().remove(0).events.remove(0);
    let Fact::Started(started) = &mut event.fact else {
        panic!("expected a start, found {:?}", event.fact);
    };
    change(&mut started.start);
    event
}

fn raw(fields: &[Vec<u8>]) -> Vec<u8> {
    [vec![codec::VERSION], fields.concat()].concat()
}

/// What every event has: its place 7, the time 1, the runtime as its author, the first face.
fn head() -> Vec<u8> {
    [number(1, 7), number(2, 1), part(4, b""), number(5, 1)].concat()
}

/// The event that says this.
fn fact(kind: u32, fields: &[Vec<u8>]) -> Result<Event, Error> {
    decode(&raw(&[head(), part(kind, &fields.concat())]))
}

/// A charter without some of its fields.
fn charter(without: &[u32]) -> Vec<u8> {
    let fields =
        [(1, part(1, b"")), (4, number(4, 1)), (5, number(5, 1)), (6, number(6, 1)), (7, number(7, 1))];
    let more = [(8, number(8, 1)), (16, number(16, 1))];
    fields
        .into_iter()
        .chain(more)
        .filter(|(field, _)| !without.contains(field))
        .flat_map(|(_, f)| f)
        .collect()
}

fn number(field: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(field) << 3), varint(value)].concat()
}

fn part(field: u32, content: &[u8]) -> Vec<u8> {
    [varint(u64::from(field) << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
