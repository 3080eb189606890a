//! The directory of agents on stores that count, fail and last.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "no play needs all of it")]
#[path = "../../store/tests/postgres/mod.rs"]
mod database;
#[allow(dead_code, reason = "the engine's plays need more of it")]
#[path = "../../engine/tests/engine/faulty.rs"]
mod faulty;

use std::sync::Arc;

use handover_desk::directory::{Agent, Directory, Registered, Skill};
use handover_engine::Denied;
use handover_kernel::AgentId;
use handover_store::{SqliteStore, Store};

use faulty::{Failing, Faulty};

const TENANT: &str = "t";

fn agent(id: &str, skills: &[&str]) -> Agent {
    let skill = |name: &&str| Skill { name: (*name).to_owned(), ..Skill::default() };
    Agent { id: id.to_owned(), skills: skills.iter().map(skill).collect(), ..Agent::default() }
}

async fn register(directory: &Directory, agent: Agent) -> Result<Registered, Denied> {
    directory.register(TENANT, directory.check(TENANT, agent).0?).await
}

async fn tools(directory: &Directory) -> Vec<String> {
    let catalogue = directory.skills(TENANT, &AgentId::from("caller")).await.unwrap();
    catalogue.tools().iter().map(|tool| tool.name.to_string()).collect()
}

#[tokio::test]
async fn what_is_read_often_is_read_from_disk_once() {
    let store = Faulty::over(database::empty());
    register(&Directory::new(store.clone()), agent("a", &["greet"])).await.unwrap();
    let directory = Directory::new(store.clone());
    let before = store.count(&store.record_reads);
    for _ in 0..100 {
        assert_eq!(tools(&directory).await, ["greet"]);
        directory.get(TENANT, &AgentId::from("a")).await.unwrap().unwrap();
        directory.agents(TENANT, &AgentId::from("b"), None, 10).await.unwrap();
    }
    register(&directory, agent("b", &["greet"])).await.unwrap();
    assert_eq!(tools(&directory).await, ["b_greet", "greet"]);
    assert_eq!(store.count(&store.record_reads) - before, 2);
}

#[tokio::test]
async fn to_say_the_same_again_writes_nothing_and_tells_nobody() {
    let store = Faulty::over(database::empty());
    let directory = Directory::new(store.clone());
    let changes = directory.changes(TENANT);
    let said = Agent { faces: vec!["mcp".to_owned()], ..agent("a", &["greet"]) };
    assert!(register(&directory, said.clone()).await.unwrap().changed);
    let (written, told) = (store.count(&store.record_writes), *changes.borrow());
    assert_eq!((written, told), (1, 1), "the names and the agent together");
    assert!(!register(&directory, said).await.unwrap().changed);
    // A face that it came through before need not be named again.
    assert!(!register(&directory, agent("a", &["greet"])).await.unwrap().changed);
    assert!(!directory.unregister(TENANT, &AgentId::from("b")).await.unwrap());
    assert_eq!((store.count(&store.record_writes), *changes.borrow()), (1, 1));
    let over_macp = Agent { faces: vec!["macp".to_owned()], ..agent("a", &["greet"]) };
    assert!(register(&directory, over_macp).await.unwrap().changed);
    let found = directory.get(TENANT, &AgentId::from("a")).await.unwrap().unwrap();
    assert_eq!(found.faces, ["macp", "mcp"]);
}

#[tokio::test]
async fn after_a_fault_the_directory_shows_what_is_stored() {
    let store = Faulty::over(database::empty());
    let directory = Directory::new(store.clone());
    register(&directory, agent("a", &["greet"])).await.unwrap();

    store.fail_record(Failing::Refuse);
    let refused = register(&directory, agent("b", &["paint"])).await;
    assert!(matches!(refused, Err(Denied::Fault(_))), "{refused:?}");
    assert_eq!(tools(&directory).await, ["greet"]);

    store.fail_record(Failing::LoseAnswer);
    register(&directory, agent("b", &["paint"])).await.unwrap_err();
    assert_eq!(tools(&directory).await, ["greet", "paint"]);

    store.fail_record(Failing::LoseAnswer);
    directory.unregister(TENANT, &AgentId::from("a")).await.unwrap_err();
    assert_eq!(tools(&directory).await, ["paint"]);
    assert_eq!(store.count(&store.faults), 3);
}

#[tokio::test]
async fn a_restart_changes_no_agent_and_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = Vec::new();
    let mut names = Vec::new();
    for restart in 0..3 {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
        let directory = Directory::new(store);
        if restart == 0 {
            for id in ["z", "a", "m"] {
                register(&directory, agent(id, &["greet", "paint"])).await.unwrap();
            }
            names = tools(&directory).await;
            before = directory.agents(TENANT, &AgentId::from("x"), None, 10).await.unwrap().agents;
        }
        assert_eq!(tools(&directory).await, names);
        assert_eq!(directory.agents(TENANT, &AgentId::from("x"), None, 10).await.unwrap().agents, before);
        let catalogue = directory.skills(TENANT, &AgentId::from("x")).await.unwrap();
        assert_eq!(catalogue.find("greet").unwrap().agent, AgentId::from("z"), "it was there first");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_all_find_themselves_and_the_disk_agrees() {
    let store = Faulty::over(database::empty());
    let directory = Directory::new(store.clone());
    let mut tasks = Vec::new();
    for number in 0..32 {
        let directory = directory.clone();
        tasks.push(tokio::spawn(async move {
            let id = AgentId::from(format!("agent-{}", number % 8));
            let name = format!("round {number}");
            let said = Agent { name: name.clone(), ..agent(id.as_str(), &["greet"]) };
            register(&directory, said).await.unwrap();
            directory.get(TENANT, &id).await.unwrap().expect("it was acknowledged");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let here = directory.agents(TENANT, &AgentId::from("x"), None, 100).await.unwrap();
    let there = Directory::new(store).agents(TENANT, &AgentId::from("x"), None, 100).await.unwrap();
    assert_eq!(here.agents.len(), 8);
    assert_eq!(here, there);
}

#[tokio::test]
async fn a_registration_that_nobody_waits_for_is_done_to_its_end() {
    let store = Faulty::over(database::empty());
    let directory = Directory::new(store);
    let mut changes = directory.changes(TENANT);
    let waiting = tokio::spawn({
        let directory = directory.clone();
        async move { register(&directory, agent("a", &["greet"])).await }
    });
    // Let it begin, and then give up on it.
    tokio::task::yield_now().await;
    waiting.abort();
    changes.changed().await.unwrap();
    assert_eq!(tools(&directory).await, ["greet"]);
}
