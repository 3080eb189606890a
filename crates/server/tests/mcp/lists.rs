//! Lists on both faces: one kind of cursor for those of sessions and one for those of agents, and pages that join.

use std::collections::BTreeSet;

use handover_desk::delegate::Responsibility;
use handover_desk::directory;
use handover_kernel::charter::Charter;
use handover_kernel::{AgentId, Text};
use handover_server::face::macp::proto::handover::ListAgentsRequest;
use handover_server::face::macp::proto::v1::ListSessionsRequest;
use serde_json::json;

use super::acts;
use super::both::*;
use super::macp::macp_code;
use super::scene::*;

/// More than any page has.
const TASKS: usize = 103;
const AGENTS: usize = 7;
const SKILLS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq)]
enum List {
    Sessions,
    Tasks,
    Resources,
    Work,
    Handoffs,
    MacpAgents,
    Agents,
    Tools,
}

use List::{Agents, Handoffs, MacpAgents, Resources, Sessions, Tasks, Tools, Work};

const OF_SESSIONS: [List; 5] = [Sessions, Tasks, Resources, Work, Handoffs];
/// Those in the order of names.
const OF_NAMES: [List; 3] = [MacpAgents, Agents, Tools];

/// A page of a list as `worker` reads it, and the cursor of the next; or why not.
async fn page(
    both: &Both,
    list: List,
    cursor: Option<&str>,
) -> Result<(Vec<String>, Option<String>), String> {
    let (client, mut agent) = (both.stage.client("worker"), both.macp("worker"));
    let token = cursor.unwrap_or_default().to_owned();
    let (tool, array, id, max) = match list {
        Sessions => {
            let list = ListSessionsRequest { page_size: 50, page_token: token };
            let page = agent.macp.list_sessions(list).await;
            let page =
                page.map_err(|status| format!("{} {}", macp_code(&status), status.message()))?.into_inner();
            let ids = page.sessions.into_iter().map(|session| session.session_id).collect();
            return Ok((ids, Some(page.next_page_token).filter(|next| !next.is_empty())));
        }
        MacpAgents => {
            let list = ListAgentsRequest { page_size: 2, page_token: token };
            let page = agent.handover.list_agents(list).await;
            let page =
                page.map_err(|status| format!("{} {}", macp_code(&status), status.message()))?.into_inner();
            let ids = page.agents.into_iter().map(|agent| agent.agent_id).collect();
            return Ok((ids, Some(page.next_page_token).filter(|next| !next.is_empty())));
        }
        Resources | Tools => {
            let of_tools = list == Tools;
            let (method, array) =
                if of_tools { ("tools/list", "tools") } else { ("resources/list", "resources") };
            let page = client.ask(method, json!({ "cursor": cursor })).await;
            if let Some(error) = page.message().get("error") {
                return Err(format!("{} {}", error["code"], error["message"]));
            }
            let page = page.result();
            let ids = page[array]
                .as_array()
                .unwrap()
                .iter()
                .map(|shown| shown["name"].as_str().unwrap().to_owned());
            return Ok((ids.collect(), page["nextCursor"].as_str().map(str::to_owned)));
        }
        Tasks => ("task_list", "tasks", "task_id", Some(50)),
        Work => ("work_list", "work", "task_id", None),
        Handoffs => ("handoff_list", "handoffs", "handoff_id", None),
        Agents => ("agent_list", "agents", "id", Some(2)),
    };
    let mut arguments = json!({});
    if let Some(max) = max {
        arguments["max"] = json!(max);
    }
    if let Some(cursor) = cursor {
        arguments["cursor"] = json!(cursor);
    }
    let result = client.call(tool, arguments).await;
    if result["isError"] == true {
        return Err(result["content"][0]["text"].as_str().unwrap().to_owned());
    }
    let page = &result["structuredContent"];
    let ids = page[array].as_array().unwrap().iter().map(|shown| shown[id].as_str().unwrap().to_owned());
    Ok((ids.collect(), page["next_cursor"].as_str().map(str::to_owned)))
}

/// All pages of a list, and the cursors between them.
async fn all(both: &Both, list: List) -> (Vec<String>, Vec<String>) {
    let (mut found, mut cursors): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    loop {
        let (ids, next) = page(both, list, cursors.last().map(String::as_str)).await.unwrap();
        found.extend(ids);
        match next {
            Some(next) => {
                assert!(!cursors.contains(&next), "{list:?}: a page leads on, found {next} again");
                cursors.push(next);
            }
            None => return (found, cursors),
        }
    }
}

/// Tasks that `worker` has in hand, handoffs that are offered to it, and agents that it sees.
async fn crowded() -> Both {
    let both = Both::open().await;
    for number in 0..TASKS {
        let task = format!("task-{number:03}");
        delegated(&both.stage, &task, Charter::mcp(), None).await;
        put(&both.stage, &task, "worker", acts::accept()).await;
        let offered = Responsibility {
            to: AgentId::from("worker"),
            scope: Text::from("the garden"),
            reason: Text::default(),
            context: None,
            ttl_ms: None,
        };
        both.stage.desk.offer(&as_macp("planner"), None, "stage.1", offered).await.unwrap();
    }
    for number in 0..AGENTS {
        let skill = |index: usize| directory::Skill { name: format!("dig-{index:03}"), ..Default::default() };
        let skills = (0..SKILLS).map(skill).collect();
        let agent = directory::Agent { name: "somebody".to_owned(), skills, ..Default::default() };
        both.stage.desk.register(&as_macp(&format!("agent-{number}")), agent).await.unwrap();
    }
    both
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_every_list_join_to_the_whole_and_cursors_are_of_one_kind() {
    let both = crowded().await;
    let mut cursors = Vec::new();
    for (list, count) in [
        (Sessions, 2 * TASKS),
        (Tasks, TASKS),
        (Resources, TASKS),
        (Work, TASKS),
        (Handoffs, TASKS),
        (MacpAgents, AGENTS),
        (Agents, AGENTS),
        (Tools, AGENTS * SKILLS),
    ] {
        let (found, between) = all(&both, list).await;
        // The server's own tools are there as well.
        let counts = |tool: &String| list != Tools || tool.contains("dig-");
        let found: Vec<String> = found.into_iter().filter(counts).collect();
        let once: BTreeSet<&String> = found.iter().collect();
        assert_eq!((found.len(), once.len()), (count, count), "{list:?}: {found:?}");
        assert!(!between.is_empty(), "{list:?} has several pages");
        cursors.push((list, between[0].clone()));
    }
    for (from, cursor) in &cursors {
        for to in OF_SESSIONS.into_iter().chain(OF_NAMES) {
            let found = page(&both, to, Some(cursor)).await;
            if OF_NAMES.contains(from) == OF_NAMES.contains(&to) {
                found.unwrap_or_else(|why| panic!("{from:?} to {to:?}: {why}"));
            } else {
                let why = found.unwrap_err();
                assert!(why.contains("expected a cursor that a list gave out"), "{from:?} to {to:?}: {why}");
            }
        }
    }
    // A list that began on one face goes on where it was on the other.
    let (first, next) = page(&both, MacpAgents, None).await.unwrap();
    let (second, _) = page(&both, Agents, next.as_deref()).await.unwrap();
    assert_eq!([first, second].concat(), ["agent-0", "agent-1", "agent-2", "agent-3"]);
    // A list goes on though what a page ended with has gone.
    let cursor = &cursors.iter().find(|(list, _)| *list == Tools).unwrap().1;
    let ended = handover_desk::page::name(Some(cursor)).unwrap().unwrap();
    let agent = ended.split('_').next().unwrap();
    let before = page(&both, Tools, Some(cursor)).await.unwrap().0;
    assert!(both.stage.desk.unregister(&as_macp(agent), None).await.unwrap(), "{ended}");
    assert!(!page(&both, Tools, None).await.unwrap().0.contains(&ended));
    let after = page(&both, Tools, Some(cursor)).await.unwrap().0;
    let still = |tool: &String| !tool.starts_with(&format!("{agent}_"));
    assert_eq!(after, before.into_iter().filter(still).collect::<Vec<_>>());
    both.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_made_up_cursor_is_refused_by_every_list() {
    let both = Both::open().await;
    let long = format!("n{}", "YQ".repeat(4000));
    let made_up =
        ["17", "s", "n!", "sx", "s+1", "s-1", "s 1", "s10000000000000000", "x1", "task-1", "n\u{fc}", &long];
    for list in OF_SESSIONS.into_iter().chain(OF_NAMES) {
        for cursor in made_up {
            let why = page(&both, list, Some(cursor)).await.unwrap_err();
            assert!(why.contains("expected a cursor that a list gave out"), "{list:?} {cursor:?}: {why}");
        }
        // On MACP an empty token is none.
        if !matches!(list, Sessions | MacpAgents) {
            page(&both, list, Some("")).await.unwrap_err();
        }
    }
    both.stop().await;
}
