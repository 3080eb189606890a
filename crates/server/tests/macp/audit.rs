//! The audit log: everything that matters is in it, once, and nothing that is secret.

use std::sync::Arc;

use handover_desk::audit::verify::verify;
use handover_desk::bucket::BURST_MIN;
use handover_desk::identity::Identity;
use handover_desk::identity::jwt::keys::Difference;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_server::config::Config;
use handover_server::face::macp::proto::handoff::HandoffAcceptPayload;
use handover_server::face::macp::proto::handover::{RegisterAgentRequest, UnregisterAgentRequest};
use handover_server::face::macp::proto::v1::{GetSessionRequest, UnregisterPolicyRequest};
use handover_server::house;
use serde_json::Value;
use tempfile::TempDir;

use super::stage::*;

const SECRET: &str = "what-nobody-else-may-read";

/// A server with an audit log.
struct Audited {
    stage: Stage,
    dir: TempDir,
}

impl Audited {
    async fn new(limits_of_planner: &str) -> Audited {
        let dir = tempfile::tempdir().unwrap();
        let entry = |agent: &str, rest: &str| {
            let hash = hash_text(&format!("{SECRET}-{agent}"));
            format!("[[token]]\nsha256 = \"{hash}\"\nagent = \"{agent}\"\ntenant = \"acme\"\n{rest}\n")
        };
        let file = entry("planner", limits_of_planner)
            + &["worker", "helper", "outsider"].map(|agent| entry(agent, "")).concat()
            + &entry("chief", "roles = [\"admin\"]");
        let identity = Identity::Tokens(Arc::new(Tokens::parse(&file).unwrap()));
        let audit = Some((dir.path().join("audit.jsonl"), 1_000_000));
        let gate = house::gate_settings(&Config::default().limits, &identity);
        let settings = handover_desk::Settings { gate, audit, ..handover_desk::Settings::default() };
        let stage = Stage::of(identity, empty_store(), settings).await;
        Audited { stage, dir }
    }

    fn agent(&self, name: &str) -> Agent {
        self.stage.agent(&format!("{SECRET}-{name}"))
    }

    /// Stop, and see what the log says.
    async fn lines(self) -> Vec<Value> {
        let Audited { stage, dir } = self;
        stage.stop().await;
        let text = std::fs::read_to_string(dir.path().join("audit.jsonl")).unwrap();
        assert!(!text.contains(SECRET), "{text}");
        let report = verify(&dir.path().join("audit.jsonl")).unwrap();
        assert!(report.findings.is_empty() && report.not_chained == 0, "{report:?}");
        // The first line is the chain's own, and the second says that there are tokens now.
        let mut lines = text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap());
        let tokens: Value = lines.next().unwrap();
        assert_eq!((&tokens["event"], &tokens["to"]), (&"access_changed".into(), &"identity.tokens".into()));
        lines.collect()
    }
}

/// The lines that are not of this kind.
fn other_than(lines: &[Value], events: &[&str]) -> usize {
    lines.iter().filter(|line| !events.contains(&line["event"].as_str().unwrap())).count()
}

/// The lines of one kind, without what differs from run to run.
fn of(lines: &[Value], event: &str) -> Vec<String> {
    let text =
        |line: &Value, key: &str| line.get(key).map_or("-", |value| value.as_str().unwrap()).to_owned();
    let found = lines.iter().filter(|line| line["event"] == event);
    found
        .map(|line| {
            assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
            ["tenant", "agent", "session", "policy", "face", "code", "reason"]
                .map(|key| text(line, key))
                .join(" ")
        })
        .collect()
}

fn get() -> GetSessionRequest {
    GetSessionRequest { session_id: SESSION.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_fails_to_say_who_it_is_is_written_down() {
    let audited = Audited::new("").await;
    let stage = &audited.stage;
    stage.agent(&format!("{SECRET}-wrong")).refused(envelope(SESSION, start())).await;
    stage.nobody().macp.get_session(get()).await.unwrap_err();
    stage.nobody().handover.steer(steer(SESSION, SECRET)).await.unwrap_err();
    let posing = |envelope: handover_server::face::macp::proto::v1::Envelope| {
        envelope.with(|envelope| envelope.sender = "planner".to_owned())
    };
    audited.agent("outsider").refused(posing(envelope(SESSION, start()))).await;
    audited.agent("outsider").refused(posing(signal("weather.rain", ""))).await;
    assert_eq!(stage.metric("handover_authentications_failed_total"), 5);

    let lines = audited.lines().await;
    let missing = "- - - - macp UNAUTHENTICATED expected a bearer token, found none";
    let posed = "acme outsider - - macp UNAUTHENTICATED the sender is not the authenticated agent";
    let unknown = "- - - - macp UNAUTHENTICATED the bearer token was refused: unknown token";
    assert_eq!(of(&lines, "authentication_failed"), [unknown, missing, missing, posed, posed]);
    assert_eq!(lines.len(), 5);
    for line in lines {
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_what_it_may_not_have_is_written_down() {
    let audited = Audited::new("").await;
    let mut outsider = audited.agent("outsider");
    audited.agent("planner").ok(envelope(SESSION, start())).await;
    audited.agent("planner").ok(envelope(SESSION, request())).await;
    // Somebody who listens to signals of sessions that are not its own has asked for nothing.
    let _listening = outsider.signals().await;
    audited.agent("planner").ok(signal("weather.rain", SESSION)).await;

    outsider.macp.get_session(get()).await.unwrap_err();
    outsider.refused(envelope(SESSION, accept())).await;
    outsider.handover.steer(steer(SESSION, SECRET)).await.unwrap_err();
    let (_frames, mut stream) = outsider.subscribed(SESSION, 0).await;
    assert_eq!(stream.error().await.code, "FORBIDDEN");
    outsider.macp.register_policy(policy("policy.rain", "*", "{}")).await.unwrap_err();
    audited.agent("worker").refused(envelope(SESSION, commit().with(|c| c.reason = SECRET.to_owned()))).await;
    // What does not exist says nothing about who asked.
    outsider.macp.get_session(GetSessionRequest { session_id: "no-such-session".into() }).await.unwrap_err();
    assert_eq!(audited.stage.metric("handover_forbidden_total"), 6);

    let lines = audited.lines().await;
    let no_part = format!("acme outsider {SESSION} - macp FORBIDDEN NOT_PARTICIPANT");
    let no_admin = "acme outsider - - macp FORBIDDEN NOT_ADMINISTRATOR".to_owned();
    let no_authority = format!("acme worker {SESSION} - macp FORBIDDEN NOT_AUTHORITY");
    let expected = [&no_part, &no_part, &no_part, &no_part, &no_admin, &no_authority];
    assert_eq!(of(&lines, "forbidden"), expected.map(String::as_str));
    assert_eq!(other_than(&lines, &["task_delegated"]), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_more_than_it_may_is_written_down() {
    let limits = "limits = { starts_per_minute = 1, messages_per_minute = 1, streams = 1, sessions_open = 2, payload_bytes = 1024 }";
    let audited = Audited::new(limits).await;
    let planner = audited.agent("planner");
    let session = |index: u64| format!("a-session-of-this-play-{index}");
    for index in 0..2 {
        planner.ok(envelope(&session(index), start())).await;
    }
    for index in 2..=BURST_MIN {
        planner.refused(envelope(&session(index), start())).await;
    }
    let _one = planner.signals().await;
    planner.macp.clone().watch_signals(watch_signals()).await.unwrap_err();
    planner.refused(envelope(&session(0), request().with(|r| r.input = SECRET.repeat(50).into()))).await;
    for _ in 1..BURST_MIN {
        planner.ok(signal("weather.rain", "")).await;
    }
    planner.refused(signal("weather.rain", "")).await;

    let lines = audited.lines().await;
    let found = of(&lines, "limited");
    let open: Vec<String> = (2..BURST_MIN)
        .map(|index| format!("acme planner {} - macp RATE_LIMITED sessions_open", session(index)))
        .collect();
    assert_eq!(found[..open.len()], open);
    let rest = [
        "acme planner - - macp RATE_LIMITED session_starts",
        "acme planner - - macp RATE_LIMITED streams",
        "acme planner - - macp PAYLOAD_TOO_LARGE payload_bytes",
        "acme planner - - macp RATE_LIMITED messages",
    ];
    assert_eq!(found[open.len()..], rest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_session_is_written_down_once_and_after_it_happened() {
    let audited = Audited::new("").await;
    let (planner, worker) = (audited.agent("planner"), audited.agent("worker"));
    let [resolved, negative, cancelled, expired] =
        ["resolved", "negative", "cancelled", "expired"].map(|how| format!("a-session-that-will-be-{how}"));
    for id in [&resolved, &negative] {
        planner.ok(envelope(id, start())).await;
        planner.ok(envelope(id, request())).await;
        worker.ok(envelope(id, accept())).await;
        worker.ok(envelope(id, complete())).await;
    }
    let last = envelope(&resolved, commit().with(|c| c.reason = SECRET.to_owned()));
    planner.ok(last.clone()).await;
    assert!(planner.ok(last).await.duplicate);
    let rejected = commit().with(|c| (c.action, c.outcome_positive) = ("task.rejected".to_owned(), false));
    planner.ok(envelope(&negative, rejected)).await;
    planner.ok(envelope(&cancelled, start())).await;
    for _ in 0..2 {
        let cancel = cancel(&cancelled).with(|cancel| cancel.reason = SECRET.to_owned());
        planner.macp.clone().cancel_session(cancel).await.unwrap();
    }
    planner.ok(envelope(&expired, start().with(|start| start.ttl_ms = 1))).await;
    planner.until_happened(&expired, "expired", 1).await;

    let lines = audited.lines().await;
    let line = |id: &str, rest: &str| vec![format!("acme {rest}").replace("ID", id)];
    assert_eq!(
        of(&lines, "session_resolved"),
        [line(&resolved, "planner ID - macp - positive"), line(&negative, "planner ID - macp - negative")]
            .concat()
    );
    assert_eq!(of(&lines, "session_cancelled"), line(&cancelled, "planner ID - macp - -"));
    assert_eq!(of(&lines, "session_expired"), line(&expired, "- ID - runtime - deadline"));
    assert_eq!(other_than(&lines, &["task_delegated", "task_accepted"]), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_policies_are_written_down() {
    let audited = Audited::new("").await;
    let mut chief = audited.agent("chief");
    for first in [true, false] {
        let answer = chief.macp.register_policy(policy("policy.rain", "*", "{}")).await.unwrap();
        assert_eq!(answer.into_inner().ok, first);
    }
    let rain = || UnregisterPolicyRequest { policy_id: "policy.rain".to_owned() };
    for first in [true, false] {
        assert_eq!(chief.macp.unregister_policy(rain()).await.unwrap().into_inner().ok, first);
    }
    let lines = audited.lines().await;
    assert_eq!(of(&lines, "policy_registered"), ["acme chief - policy.rain macp - -"]);
    assert_eq!(of(&lines, "policy_unregistered"), ["acme chief - policy.rain macp - -"]);
    assert_eq!(lines.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hands_out_work_and_who_takes_it_is_written_down() {
    let audited = Audited::new("").await;
    let (planner, worker) = (audited.agent("planner"), audited.agent("worker"));
    planner.ok(envelope(SESSION, start())).await;
    planner.ok(envelope(SESSION, request())).await;
    worker.ok(envelope(SESSION, accept())).await;
    let handoff = "a-session-that-hands-on";
    planner.ok(envelope(handoff, start()).of_handoff()).await;
    planner.ok(envelope(handoff, offer())).await;
    let taken = HandoffAcceptPayload {
        handoff_id: HANDOFF.to_owned(),
        accepted_by: "worker".to_owned(),
        reason: SECRET.to_owned(),
        ..HandoffAcceptPayload::default()
    };
    worker.ok(envelope(handoff, taken)).await;
    let lines = audited.lines().await;
    assert_eq!(of(&lines, "task_delegated"), [format!("acme planner {SESSION} - macp - -")]);
    assert_eq!(of(&lines, "task_accepted"), [format!("acme worker {SESSION} - macp - -")]);
    assert_eq!(of(&lines, "handoff_offered"), [format!("acme planner {handoff} - macp - -")]);
    assert_eq!(of(&lines, "handoff_accepted"), [format!("acme worker {handoff} - macp - -")]);
    let to = |event: &str| lines.iter().find(|line| line["event"] == event).unwrap()["to"].clone();
    assert_eq!((to("task_delegated"), to("handoff_offered")), ("worker, helper".into(), "worker".into()));
    assert!(lines.iter().all(|line| !line.to_string().contains(SECRET)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_directory_of_tokens_and_of_keys_are_written_down() {
    let audited = Audited::new("").await;
    let mut outsider = audited.agent("outsider");
    let says = |name: &str| RegisterAgentRequest {
        name: name.to_owned(),
        description: SECRET.to_owned(),
        ..RegisterAgentRequest::default()
    };
    outsider.handover.register_agent(says("one")).await.unwrap();
    outsider.handover.register_agent(says("one")).await.unwrap();
    outsider.handover.register_agent(says("two")).await.unwrap();
    audited
        .agent("chief")
        .handover
        .unregister_agent(UnregisterAgentRequest { agent_id: "outsider".to_owned(), free_names: false })
        .await
        .unwrap();
    let gate = &audited.stage.desk.gate;
    let entry = |agent: &str| {
        format!(
            "[[token]]\nsha256 = \"{}\"\nagent = \"{agent}\"\ntenant = \"acme\"\nroles = [\"admin\"]\n",
            hash_text(SECRET)
        )
    };
    let tokens = Tokens::parse("").unwrap();
    assert_eq!(gate.replace_tokens(&tokens, &entry("planner")).unwrap(), 1);
    assert_eq!(gate.replace_tokens(&tokens, &entry("worker")).unwrap(), 1);
    assert_eq!(gate.replace_tokens(&tokens, "").unwrap(), 1);
    gate.keys_changed(&Difference { added: vec!["new".to_owned()], withdrawn: vec![String::new()] });
    let lines = audited.lines().await;
    let told: Vec<String> = lines
        .iter()
        .map(|line| {
            ["event", "tenant", "agent", "to", "reason"]
                .map(|key| line[key].as_str().unwrap_or("-"))
                .join(" ")
        })
        .collect();
    assert_eq!(
        told,
        [
            "agent_registered acme outsider outsider -",
            "agent_registered acme outsider outsider -",
            "agent_unregistered acme chief outsider -",
            "token_added acme - planner admin",
            "token_changed acme - worker admin",
            "token_revoked acme - worker admin",
            "key_added - - new -",
            "key_withdrawn - - unnamed -",
        ]
    );
}
