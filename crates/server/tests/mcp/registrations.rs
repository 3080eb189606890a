//! Who may be in the directory and in a session: the same sizes and the same ids on both faces.

use handover_kernel::Limits;
use handover_server::face::macp::proto::handover::RegisterAgentRequest;
use serde_json::{Value, json};

use super::both::*;
use super::macp::{self, OfHandoff, With, envelope, macp_code};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_may_be_as_large_on_one_face_as_on_the_other() {
    let most = 4096;
    let both = Both::with(|set| {
        set.engine.limits = Limits { payload_bytes_max: most, ..Limits::default() };
    })
    .await;
    let host = both.stage.client("worker");
    let mut agent = both.macp("worker");
    for (bytes, fits) in [(most / 2, true), (most - 100, true), (most, false), (2 * most, false)] {
        let description = "x".repeat(bytes);
        let over_mcp =
            host.call("agent_register", json!({ "name": "Worker", "description": description })).await;
        let said = RegisterAgentRequest { name: "Worker".to_owned(), description, ..Default::default() };
        let over_macp = agent.handover.register_agent(said).await;
        assert_eq!((over_mcp["isError"] != json!(true), over_macp.is_ok()), (fits, fits), "{bytes} bytes");
        let Err(status) = over_macp else { continue };
        let told = over_mcp["content"][0]["text"].as_str().unwrap();
        assert!(told.contains("PAYLOAD_TOO_LARGE") && told.contains("at most 4096 bytes"), "{told}");
        assert_eq!(macp_code(&status), "PAYLOAD_TOO_LARGE");
        assert!(status.message().contains("at most 4096 bytes"), "{status:?}");
    }
    drop(agent);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_no_agent_can_have_is_refused_wherever_it_is_named() {
    let both = Both::open().await;
    let host = both.stage.client("planner");
    let planner = both.macp("planner");
    let (task, handoff) = ("a-session-with-nothing-in-it", "a-handoff-with-nothing-in-it");
    planner.ok(envelope(task, macp::start())).await;
    planner.ok(envelope(handoff, macp::start()).of_handoff()).await;
    let before = both.stage.written();
    let long = "x".repeat(257);
    for (wrong, why) in
        [("", ""), ("a\u{7}b", "control"), ("a\nb", "control"), ("a\u{85}b", "control"), (&long, "256 bytes")]
    {
        let delegate = |more: Value| {
            let mut asked = json!({ "title": "dig", "instructions": "dig" });
            asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ("delegate_task", asked)
        };
        for (tool, arguments) in [
            delegate(json!({ "agent": wrong })),
            delegate(json!({ "agents": ["worker", wrong] })),
            ("handoff_offer", json!({ "to": wrong, "scope": "the garden" })),
        ] {
            let refused = host.call(tool, arguments).await;
            assert_eq!(refused["isError"], true, "{tool} {wrong:?}");
            let told = refused["content"][0]["text"].as_str().unwrap();
            assert!(told.contains("agent") && told.contains(why), "{tool} {wrong:?}: {told}");
        }
        let named = |list: &mut Vec<String>| *list = vec!["worker".to_owned(), wrong.to_owned()];
        let start = || macp::start().with(|start| named(&mut start.participants));
        let mut envelopes = vec![
            envelope("a-session-that-never-begins", start()),
            envelope("a-session-that-never-begins", start()).of_handoff(),
            envelope(handoff, macp::offer().with(|offer| offer.target_participant = wrong.to_owned())),
        ];
        if !wrong.is_empty() {
            let request = macp::request().with(|request| request.requested_assignee = wrong.to_owned());
            envelopes.push(envelope(task, request));
        }
        for sent in envelopes {
            let told = format!("{} {wrong:?}", sent.message_type);
            // Within a session it is enough that nobody there is called so.
            let why = if sent.message_type == "SessionStart" { why } else { "participant" };
            let error = planner.refused(sent).await;
            assert_eq!(error.code, "INVALID_ENVELOPE", "{told}: {error:?}");
            assert!(error.message.contains(why), "{told}: {error:?}");
        }
    }
    assert_eq!(both.stage.written(), before);
    // The longest that there may be is taken.
    let longest = "x".repeat(256);
    host.tool("delegate_task", json!({ "title": "dig", "instructions": "dig", "agent": longest })).await;
    drop(planner);
    both.stop().await;
}
