//! Agents that say what they can do, and those who find them.

use std::sync::Arc;

use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_engine::Settings;
use handover_server::face::macp::proto::handover::{
    AgentSkill, AgentSkillAnswers, ListAgentsRequest, ListedAgent, RegisterAgentRequest,
    UnregisterAgentRequest,
};
use handover_server::face::macp::proto::v1::{GetManifestRequest, WatchSessionsRequest};
use serde_json::{Value, json};
use tonic::Code;

use super::stage::*;

fn skill(name: &str) -> AgentSkill {
    AgentSkill { name: name.to_owned(), ..AgentSkill::default() }
}

fn registration(skills: Vec<AgentSkill>) -> RegisterAgentRequest {
    RegisterAgentRequest { name: "The Worker".to_owned(), skills, ..RegisterAgentRequest::default() }
}

async fn register(agent: &Agent, request: RegisterAgentRequest) -> bool {
    agent.handover.clone().register_agent(request).await.unwrap().into_inner().changed
}

async fn listed(agent: &Agent) -> Vec<ListedAgent> {
    agent.handover.clone().list_agents(ListAgentsRequest::default()).await.unwrap().into_inner().agents
}

async fn ids(agent: &Agent) -> Vec<String> {
    listed(agent).await.into_iter().map(|agent| agent.agent_id).collect()
}

fn manifest(id: &str) -> GetManifestRequest {
    GetManifestRequest { agent_id: id.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registered_agent_is_listed_and_has_a_manifest_and_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
    let greet = AgentSkill {
        title: "Greet".to_owned(),
        description: "says hello".to_owned(),
        input_schema: schema.to_string(),
        answers: AgentSkillAnswers::Task.into(),
        requires: vec!["elicitation".to_owned()],
        ..skill("greet")
    };
    let stage = Stage::on_disk(dir.path()).await;
    let worker = stage.agent("worker");
    assert!(register(&worker, registration(vec![greet.clone()])).await);
    assert!(!register(&worker, registration(vec![greet.clone()])).await, "it said the same again");
    stage.stop().await;

    let stage = Stage::on_disk(dir.path()).await;
    let mut planner = stage.agent("planner");
    let found = listed(&planner).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].agent_id.as_str(), found[0].name.as_str()), ("worker", "The Worker"));
    assert_eq!((&found[0].skills, found[0].faces.as_slice()), (&vec![greet], &["macp".to_owned()][..]));
    assert!(found[0].registered_at_unix_ms > 0 && !found[0].online);

    let answer = planner.macp.get_manifest(manifest("worker")).await.unwrap().into_inner();
    let shown = answer.manifest.unwrap();
    assert_eq!((shown.agent_id.as_str(), shown.title.as_str()), ("worker", "The Worker"));
    assert_eq!(shown.supported_modes, ["macp.mode.task.v1", "macp.mode.handoff.v1"]);
    let greet: Value = serde_json::from_str(&shown.metadata["skill.greet"]).unwrap();
    assert_eq!((&greet["description"], &greet["answers"]), (&json!("says hello"), &json!("task")));
    assert_eq!(greet["input_schema"], schema);
    assert_eq!(shown.input_content_types, ["application/json"]);
    drop(planner);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_registered_says_which_skill_and_why() {
    let stage = Stage::in_memory().await;
    let worker = stage.agent("worker");
    let wrong = [
        (skill("two words"), "skill name"),
        (AgentSkill { input_schema: "{".to_owned(), ..skill("s") }, "skill \"s\": input_schema"),
        (AgentSkill { answers: 7, ..skill("s") }, "skill \"s\": answers"),
    ];
    for (skill, part) in wrong {
        let refused = worker.handover.clone().register_agent(registration(vec![skill])).await.unwrap_err();
        assert_eq!((refused.code(), macp_code(&refused)), (Code::InvalidArgument, "INVALID_ENVELOPE"));
        assert!(refused.message().contains(part), "{}", refused.message());
    }
    assert!(ids(&worker).await.is_empty());
    let nobody = stage.nobody();
    let refused = nobody.handover.clone().register_agent(registration(Vec::new())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    drop((worker, nobody));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_found_by_those_it_names_and_by_nobody_else() {
    let stage = Stage::in_memory().await;
    let worker = stage.agent("worker");
    let hidden = RegisterAgentRequest { visible_to: vec!["planner".to_owned()], ..registration(Vec::new()) };
    register(&worker, hidden).await;
    let (mut planner, mut outsider) = (stage.agent("planner"), stage.agent("outsider"));
    assert_eq!(ids(&planner).await, ["worker"]);
    assert!(listed(&planner).await[0].visible_to.is_empty(), "who else sees it is its own affair");
    assert_eq!(listed(&worker).await[0].visible_to, ["planner"]);
    assert!(ids(&outsider).await.is_empty());
    planner.macp.get_manifest(manifest("worker")).await.unwrap();
    let unseen = outsider.macp.get_manifest(manifest("worker")).await.unwrap_err();
    let unknown = outsider.macp.get_manifest(manifest("nobody")).await.unwrap_err();
    assert_eq!((unseen.code(), unseen.message()), (unknown.code(), unknown.message()));
    drop((worker, planner, outsider));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_online_while_it_has_a_stream_open() {
    let stage = Stage::in_memory().await;
    let (mut worker, planner) = (stage.agent("worker"), stage.agent("planner"));
    register(&worker, registration(Vec::new())).await;
    let watch = in_time(worker.macp.watch_sessions(WatchSessionsRequest {})).await.unwrap();
    assert!(listed(&planner).await[0].online);
    drop(watch);
    in_time(async {
        while listed(&planner).await[0].online {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(listed(&planner).await[0].last_seen_unix_ms > 0);
    drop((worker, planner));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_follow_each_other_and_are_never_too_large_to_take() {
    let stage = Stage::in_memory().await;
    // Far more than a client of gRPC takes at once.
    let description = "d".repeat(8000);
    let skills: Vec<_> = (0..100)
        .map(|number| AgentSkill { description: description.clone(), ..skill(&format!("s{number}")) })
        .collect();
    for number in 0..7 {
        assert!(register(&stage.agent(&format!("agent-{number}")), registration(skills.clone())).await);
    }
    let planner = stage.agent("planner");
    let mut request = ListAgentsRequest { page_size: 5, page_token: String::new() };
    let mut found = Vec::new();
    while found.len() < 7 {
        let page = planner.handover.clone().list_agents(request.clone()).await.unwrap().into_inner();
        assert!(!page.agents.is_empty() && page.agents.len() <= 5);
        found.extend(page.agents.into_iter().map(|agent| agent.agent_id));
        assert_eq!(page.next_page_token.is_empty(), found.len() == 7);
        request.page_token = page.next_page_token;
    }
    let expected: Vec<String> = (0..7).map(|number| format!("agent-{number}")).collect();
    assert_eq!(found, expected);
    drop(planner);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_administrator_takes_others_out_and_tenants_are_apart() {
    let entry = |token: &str, rest: &str| format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token));
    let file = entry("worker", "agent = \"worker\"")
        + &entry("planner", "agent = \"planner\"")
        + &entry("chief", "agent = \"chief\"\nroles = [\"admin\"]")
        + &entry("elsewhere", "agent = \"chief\"\ntenant = \"elsewhere\"\nroles = [\"admin\"]");
    let identity = Identity::Tokens(Arc::new(Tokens::parse(&file).unwrap()));
    let stage = Stage::for_known(identity, empty_store(), Settings::default()).await;
    register(&stage.agent("worker"), registration(vec![skill("greet")])).await;
    register(&stage.agent("planner"), registration(Vec::new())).await;

    let unregister = async |token: &str, id: &str| {
        let (agent_id, free_names) =
            (id.trim_start_matches("names of ").to_owned(), id.starts_with("names of "));
        let request = UnregisterAgentRequest { agent_id, free_names };
        let answer = stage.agent(token).handover.clone().unregister_agent(request).await;
        answer.map(|answer| answer.into_inner().removed)
    };
    let refused = unregister("planner", "worker").await.unwrap_err();
    assert_eq!((refused.code(), macp_code(&refused)), (Code::PermissionDenied, "FORBIDDEN"));
    assert!(!unregister("elsewhere", "worker").await.unwrap(), "there is no such agent there");
    assert!(ids(&stage.agent("elsewhere")).await.is_empty());
    let unseen = stage.agent("elsewhere").macp.get_manifest(manifest("worker")).await.unwrap_err();
    assert_eq!(unseen.code(), Code::NotFound);
    assert_eq!(ids(&stage.agent("planner")).await, ["planner", "worker"]);
    assert!(unregister("chief", "worker").await.unwrap());
    assert!(unregister("planner", "").await.unwrap());
    assert!(!unregister("planner", "planner").await.unwrap());
    assert!(ids(&stage.agent("chief")).await.is_empty());
    let refused = unregister("worker", "names of worker").await.unwrap_err();
    assert_eq!(macp_code(&refused), "FORBIDDEN", "an operator frees names");
    assert!(unregister("chief", "names of worker").await.unwrap());
    assert!(!unregister("chief", "names of worker").await.unwrap(), "they are free");
    stage.stop().await;
}
