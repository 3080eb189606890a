//! What a skill takes and returns is bound to the task when it is called, and holds whoever works on whatever face; so does
//! what a question asks for.

use handover_server::face::macp::proto::handover::{AgentSkillAnswers, ListQuestionsRequest, Question};
use handover_server::face::macp::proto::task::{TaskAcceptPayload, TaskCompletePayload};
use serde_json::{Value, json};
use tonic::Code;

use super::both::*;
use super::macp::{self, Agent, With, envelope, macp_code};
use super::scene::*;
use super::stage::*;

/// An object with this whole number and nothing else that is asked for.
fn number(name: &str) -> Value {
    json!({ "type": "object", "properties": { name: { "type": "integer" } }, "required": [name] })
}

/// Outputs that are no whole number of this name, and where.
const WRONG: [(&[u8], &str); 5] = [
    (br#"{"depth":"deep"}"#, "depth"),
    (br#"{"width":3}"#, "depth"),
    (b"deep", "object"),
    (b"", "found nothing"),
    (&[0xff], "no text"),
];

fn complete(output: &[u8]) -> TaskCompletePayload {
    TaskCompletePayload { task_id: SKILL.to_owned(), output: output.to_vec(), ..Default::default() }
}

async fn accept(worker: &Agent, task: &str) {
    worker.ok(envelope(task, TaskAcceptPayload { task_id: SKILL.to_owned(), ..Default::default() })).await;
}

/// What a tool says of why it did not do it.
fn trouble(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_macp_agents_report_must_fit_what_its_skill_promised_when_it_was_called() {
    let both = Both::open().await;
    let mut worker = both.macp("worker");
    let host = both.stage.client("planner");
    let offer = |output: &str| macp_skill("", &number(output).to_string());
    worker.handover.register_agent(offer("depth")).await.unwrap();
    let task = host.begin(SKILL, json!({})).await;
    accept(&worker, &task).await;
    // What it promises from now on is for those who call it from now on.
    worker.handover.register_agent(offer("width")).await.unwrap();
    let before = both.stage.written();
    for (output, place) in WRONG {
        let error = worker.refused(envelope(&task, complete(output))).await;
        assert_eq!(error.code, "INVALID_ENVELOPE");
        let told = &error.message;
        assert!(told.starts_with("the skill's output schema: ") && told.contains(place), "{told}");
    }
    assert_eq!(both.stage.written(), before, "a report that does not fit leaves no trace");
    worker.ok(envelope(&task, complete(br#"{"depth":3}"#))).await;
    let shown = host.get(&task).await;
    assert_eq!(
        (&shown["status"], &shown["result"]["structuredContent"]["depth"]),
        (&json!("completed"), &json!(3))
    );

    let task = host.begin(SKILL, json!({})).await;
    accept(&worker, &task).await;
    let error = worker.refused(envelope(&task, complete(br#"{"depth":3}"#))).await;
    assert!(error.message.contains("width"), "{}", error.message);
    worker.ok(envelope(&task, complete(br#"{"width":3}"#))).await;
    drop(worker);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_workers_report_must_fit_what_its_skill_promised_when_it_was_called() {
    let stage = Stage::in_memory().await;
    let host = stage.client("planner");
    let offer = |output: &str| json!([skill_with(SKILL, json!({ "outputSchema": number(output) }))]);
    let worker = stage.worker("worker", offer("depth")).await;
    let task = host.begin(SKILL, json!({})).await;
    let job = worker.next().await;
    worker.offer(offer("width")).await;
    for again in 0..2 {
        let before = stage.written();
        for (report, place) in [
            (json!({ "output": { "depth": "deep" } }), "depth"),
            (json!({ "output": { "width": 3 } }), "depth"),
            (json!({ "result": { "content": [], "structuredContent": { "depth": null } } }), "depth"),
            (json!({ "text": "deep" }), "object"),
            (json!({ "output": [3] }), "object"),
            (json!({}), "found nothing"),
        ] {
            let refused = job.try_tool("work_complete", report.clone()).await;
            let told = trouble(&refused);
            assert!(
                told.starts_with("the skill's output schema: ") && told.contains(place),
                "{report}: {told}"
            );
        }
        assert_eq!(stage.written(), before);
        if again == 0 {
            // Nor does it matter that nobody offers the skill any more.
            worker.client.tool("agent_unregister", json!({})).await;
        }
    }
    assert_eq!(host.get(&task).await["status"], "working");
    job.completes_with(json!({ "output": { "depth": 3 } })).await;
    assert_eq!(host.get(&task).await["result"]["structuredContent"], json!({ "depth": 3 }));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_need_not_fit_what_the_skill_promised() {
    let stage = Stage::in_memory().await;
    let host = stage.client("planner");
    let worker =
        stage.worker("worker", json!([skill_with(SKILL, json!({ "outputSchema": number("depth") }))])).await;
    for report in [
        ("work_fail", json!({ "reason": "no ground" })),
        (
            "work_complete",
            json!({ "result": { "content": [{ "type": "text", "text": "no ground" }], "isError": true } }),
        ),
    ] {
        let task = host.begin(SKILL, json!({})).await;
        worker.next().await.tool(report.0, report.1).await;
        assert_eq!(host.get(&task).await["result"]["isError"], true);
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_do_not_fit_begin_nothing() {
    let both = Both::open().await;
    let mut worker = both.macp("worker");
    let skill = macp_skill(&number("depth").to_string(), "")
        .with(|said| said.skills[0].answers = AgentSkillAnswers::Either.into());
    worker.handover.register_agent(skill).await.unwrap();
    let before = both.stage.written();
    for client in [both.stage.client("planner"), both.stage.client("planner").declaring(json!({}))] {
        for (arguments, place) in [(json!({}), "depth"), (json!({ "depth": "deep" }), "depth")] {
            let refused = client.call(SKILL, arguments).await;
            let told = trouble(&refused);
            assert!(told.starts_with("arguments: ") && told.contains(place), "{told}");
        }
    }
    assert_eq!(both.stage.written(), before);
    both.stage.client("planner").begin(SKILL, json!({ "depth": 3 })).await;
    drop(worker);
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_could_never_be_answered_is_refused_when_it_is_asked() {
    let stage = Stage::in_memory().await;
    let (planner, job) = in_hand(&stage).await;
    let form = |schema: Value| json!({ "request": { "method": "elicitation/create", "params": { "message": "?", "requestedSchema": schema } } });
    let before = stage.written();
    for question in [
        json!({ "message": "?", "schema": { "type": "hole" } }),
        json!({ "message": "?", "schema": { "type": "string", "pattern": "(" } }),
        json!({ "message": "?", "schema": { "$ref": "#/nowhere" } }),
        json!({ "message": "?", "schema": "string" }),
        json!({ "message": "?", "schema": {}, "permission": true, "request": null, "more": 1 }),
        form(json!({ "type": 7 })),
        form(json!("hole")),
    ] {
        let asked = json!({ "questions": { "where": question }, "wait_ms": 0 });
        let refused = job.try_tool("work_ask", asked).await;
        let told = trouble(&refused);
        assert!(told.contains("where") || told.contains("unknown field"), "{question}: {told}");
    }
    assert_eq!(stage.written(), before);
    assert_eq!(planner.get(&job.id).await["status"], "working");
    stage.stop().await;
}

/// The open questions of a session.
async fn open(agent: &Agent, session: &str) -> Vec<Question> {
    let list = ListQuestionsRequest { session_id: session.to_owned() };
    agent.handover.clone().list_questions(list).await.unwrap().into_inner().questions
}

/// An answer that does not fit leaves the question open; one that fits closes it.
async fn answered_rightly(planner: &Agent, session: &str, key: &str, wrong: &[&str], right: &str) {
    for wrong in wrong {
        let status = planner.handover.clone().answer(macp::answer(session, key, wrong)).await.unwrap_err();
        assert_eq!((status.code(), macp_code(&status)), (Code::InvalidArgument, "INVALID_ENVELOPE"));
        assert!(status.message().starts_with(&format!("the answer to question {key}: ")), "{status:?}");
        assert_eq!(open(planner, session).await.len(), 1, "{wrong}");
    }
    planner.handover.clone().answer(macp::answer(session, key, right)).await.unwrap();
    assert!(open(planner, session).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_macp_question_brings_binds_its_answer_if_it_is_a_schema() {
    let both = Both::open().await;
    let (planner, worker) = (both.macp("planner"), both.macp("worker"));
    for envelope in [envelope(macp::SESSION, macp::start()), envelope(macp::SESSION, macp::request())] {
        planner.ok(envelope).await;
    }
    worker.ok(envelope(macp::SESSION, macp::accept())).await;
    let side = number("side").to_string();
    for (brought, binds) in [
        (&b""[..], false),
        (b"half a hole", false),
        (b"[1]", false),
        (b"true", false),
        (br#"{"type":"hole"}"#, false),
        (br#"{"type":"object""#, false),
        (&[0xff, 0xfe], false),
        (side.as_bytes(), true),
    ] {
        let asks = macp::ask("Where to?").with(|ask| ask.partial_output = brought.to_vec());
        worker.ok(envelope(macp::SESSION, asks)).await;
        let [question] = &open(&planner, macp::SESSION).await[..] else { panic!("expected one question") };
        assert_eq!(
            question.schema,
            if binds { brought } else { b"" },
            "{}",
            String::from_utf8_lossy(brought)
        );
        let wrong: &[&str] = if binds { &["left", "{}", r#"{"side":"left"}"#] } else { &[] };
        let right = if binds { r#"{"side":3}"# } else { "left" };
        answered_rightly(&planner, macp::SESSION, &question.key, wrong, right).await;
        // Either way it is what the worker has so far.
        let sent = transcript_of_updates(&planner).await;
        assert_eq!(sent.last().unwrap(), brought);
    }
    drop((planner, worker));
    both.stop().await;
}

/// The partial outputs of the updates of the session, in order.
async fn transcript_of_updates(agent: &Agent) -> Vec<Vec<u8>> {
    let count = agent.kinds(macp::SESSION).await.iter().filter(|kind| *kind == "asked").count();
    let all = transcript(agent, macp::SESSION, 3 + count).await;
    let update = |envelope| payload::<handover_server::face::macp::proto::task::TaskUpdatePayload>(envelope);
    all[3..].iter().map(|envelope| update(envelope).partial_output).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_question_is_checked_when_it_is_answered_over_handover_v1() {
    let both = Both::open().await;
    let planner = both.macp("planner");
    let (_, job) = in_hand(&both.stage).await;
    let form = json!({ "method": "elicitation/create", "params": { "message": "?", "requestedSchema": number("side") } });
    for (key, question) in [
        ("form", json!({ "request": form })),
        ("schema", json!({ "message": "Where to?", "schema": number("side") })),
    ] {
        job.asks(json!({ key: question })).await;
        answered_rightly(&planner, &job.id, key, &["left", "{}", r#"{"side":"left"}"#], r#"{"side":3}"#)
            .await;
        let told = job.checkpoint().await["orders"].clone();
        assert_eq!(told[0]["answers"][key], json!({ "action": "accept", "content": { "side": 3 } }));
    }
    drop(planner);
    both.stop().await;
}
