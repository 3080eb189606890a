use std::fs;

use super::*;

#[test]
fn what_was_recorded_before_the_stop_is_in_the_file_and_what_came_after_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let counters = Counters::new([]);
    let audit = Audit::open(&path, 1_000_000, "", Arc::clone(&counters)).unwrap();
    let peer = Some("127.0.0.1:7".parse().unwrap());
    audit.record(Record::unauthenticated(Face::Macp, peer, "who \"are\"\nyou".to_owned()));
    audit.stop();
    audit.record(Record::unauthenticated(Face::Macp, peer, "late".to_owned()));
    audit.stop();
    let text = fs::read_to_string(&path).unwrap();
    let (_, text) = text.split_once('\n').unwrap();
    let line: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
    assert!(text.starts_with("{\"time\":\"20") && text.matches('\n').count() == 1, "{text}");
    let expected = [
        ("event", "authentication_failed"),
        ("face", "macp"),
        ("peer", "127.0.0.1:7"),
        ("code", "UNAUTHENTICATED"),
        ("reason", "who \"are\"\nyou"),
    ];
    assert!(expected.iter().all(|(key, value)| line[*key] == *value), "{line}");
    assert!(line.get("tenant").is_none() && line.get("count").is_none(), "{line}");
    assert_eq!(counters.audit_lines.get(), 1);
}

#[test]
fn a_flood_ends_in_a_count_and_a_bounded_number_of_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let counters = Counters::new([]);
    let audit = Audit::open(&path, 10_000_000, "", Arc::clone(&counters)).unwrap();
    const FLOOD: u64 = 50_000;
    for _ in 0..FLOOD {
        audit.record(Record::unauthenticated(Face::Macp, None, String::new()));
    }
    audit.stop();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count() as u64;
    let counted: u64 = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
    assert_eq!(count("authentication_failed") + counted, FLOOD);
    assert!(count("left_out") > 0 && counted > FLOOD / 2, "{counted}");
    assert_eq!(counters.audit_left_out.get(), counted);
    assert_eq!(counters.audit_lines.get(), lines.len() as u64);
    assert_eq!(verify::verify(&path).unwrap().findings, []);
}

#[test]
fn a_flood_of_nobodys_requests_does_not_hide_an_agents() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::open(&path, 10_000_000, "", Counters::new([])).unwrap();
    let planner = crate::identity::Identity::Development.authenticate(Some("planner")).unwrap();
    let planner = Caller::new(planner, Face::Macp);
    for n in 0..10_000_u16 {
        let [a, b] = n.to_be_bytes();
        let peer = Some(SocketAddr::from(([10, 0, a, b], 7)));
        audit.record(Record::unauthenticated(Face::Macp, peer, String::new()));
        if n % 1000 == 0 {
            audit.record(Record::of(What::Forbidden, &planner));
        }
    }
    audit.stop();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("\"event\":\"forbidden\"").count(), 10);
    assert!(text.matches("authentication_failed").count() < 1000);
    assert!(
        text.contains("\"event\":\"left_out\",\"peer\":\"other addresses\",\"of\":\"authentication_failed\""),
        "{text}"
    );
}

#[test]
fn what_a_record_holds_of_an_event_is_its_names() {
    // A commitment's bytes must not stay in memory for as long as its line waits.
    assert!(size_of::<Record>() <= 256, "{}", size_of::<Record>());
}

#[test]
fn the_id_of_a_session_that_nobody_checked_is_cut_short() {
    let record = Record::new(What::Forbidden).session(&"ä".repeat(1000));
    assert_eq!(record.session.len(), NAME_BYTES_MAX);
    assert_eq!(&*Record::new(What::Forbidden).session("short").session, "short");
}

#[test]
fn no_log_takes_everything_and_keeps_nothing() {
    let audit = Audit::default();
    audit.record(Record::unauthenticated(Face::Macp, None, String::new()));
    audit.stop();
}
