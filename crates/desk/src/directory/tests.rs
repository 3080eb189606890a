use handover_store::MemoryStore;
use serde_json::json;

use super::*;

const TENANT: &str = "t";

fn directory() -> Directory {
    Directory::new(Arc::new(MemoryStore::new()))
}

fn skill(name: &str) -> Skill {
    Skill { name: name.to_owned(), ..Skill::default() }
}

fn agent(id: &str, skills: &[&str]) -> Agent {
    Agent { id: id.to_owned(), skills: skills.iter().map(|name| skill(name)).collect(), ..Agent::default() }
}

async fn register(directory: &Directory, tenant: &str, agent: Agent) -> Result<Registered, Denied> {
    directory.register(tenant, directory.check(tenant, agent).0?).await
}

async fn tools(directory: &Directory, caller: &str) -> Vec<String> {
    let catalogue = directory.skills(TENANT, &AgentId::from(caller)).await.unwrap();
    catalogue
        .tools()
        .iter()
        .map(|tool| format!("{} = {}/{}", tool.name, tool.agent, tool.skill.name))
        .collect()
}

async fn seen(directory: &Directory, caller: &str) -> Vec<String> {
    let page = directory.agents(TENANT, &AgentId::from(caller), None, 100).await.unwrap();
    page.agents.iter().map(|agent| agent.id.clone()).collect()
}

/// Why an agent is not registered.
async fn refused(agent: Agent) -> String {
    match register(&directory(), TENANT, agent).await {
        Err(Denied::Refused(Refusal::Invalid { what })) => what.to_string(),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn what_an_earlier_release_took_is_left_out_of_what_hosts_cannot_read() {
    let of = |output: &str, annotations: &str| {
        let (output_schema, annotations) = (output.to_owned(), annotations.to_owned());
        let skill = Skill { output_schema, annotations, ..skill("s") };
        (skill.output().is_some(), skill.remarks().is_some())
    };
    assert_eq!(of(r#"{"type":"object"}"#, r#"{"title":"x","readOnlyHint":true,"more":1}"#), (true, true));
    assert_eq!(of(r#"{"required":["n"]}"#, r#"{"openWorldHint":"no"}"#), (false, false));
    assert_eq!(of("", ""), (false, false));
}

#[test]
fn a_stored_agent_is_read_as_it_was_written() {
    let written = Agent {
        id: "a".to_owned(),
        name: "n".to_owned(),
        description: "d".to_owned(),
        skills: vec![Skill {
            name: "s".to_owned(),
            title: "t".to_owned(),
            description: "d".to_owned(),
            input_schema: "i".to_owned(),
            output_schema: "o".to_owned(),
            answers: Answers::Task.into(),
            asks_first: true,
            requires: vec!["r".to_owned()],
            annotations: "{}".to_owned(),
            offered_at: 5,
            successors: Vec::new(),
        }],
        visible_to: vec!["v".to_owned()],
        registered_at: 3,
        updated_at: 4,
        faces: vec!["f".to_owned()],
        status: Status::DoNotDisturb.into(),
        status_text: "x".to_owned(),
    };
    let skill = b"\x0a\x01s\x12\x01t\x1a\x01d\x22\x01i\x2a\x01o\x30\x02\x38\x01\x42\x01r\x4a\x02{}\x50\x05";
    let mut bytes = b"\x0a\x01a\x12\x01n\x1a\x01d\x22".to_vec();
    bytes.push(skill.len() as u8);
    bytes.extend(skill);
    bytes.extend(b"\x2a\x01v\x30\x03\x38\x04\x42\x01f\x48\x02\x52\x01x");
    assert_eq!(written.encode_to_vec(), bytes, "stored agents live for ever");
    assert_eq!(decode(&bytes).unwrap(), written);
    assert!(matches!(decode(&[0xff]), Err(Denied::Unreadable(_))));
}

#[tokio::test]
async fn an_agent_replaces_what_it_said_and_keeps_since_when() {
    let directory = directory();
    register(&directory, TENANT, agent("a", &["greet", "paint"])).await.unwrap();
    let first = directory.get(TENANT, &AgentId::from("a")).await.unwrap().unwrap();
    assert!(first.registered_at > 0 && first.registered_at == first.updated_at);
    // What the directory says is not the agent's to say.
    let said = Agent { registered_at: 1, updated_at: 1, ..agent("a", &["paint", "sing"]) };
    register(&directory, TENANT, said).await.unwrap();
    let second = directory.get(TENANT, &AgentId::from("a")).await.unwrap().unwrap();
    assert_eq!(second.registered_at, first.registered_at);
    assert!(second.updated_at > first.updated_at);
    assert_eq!(second.skills[0].offered_at, first.skills[1].offered_at);
    assert_eq!(second.skills[1].offered_at, second.updated_at);
    assert_eq!(tools(&directory, "x").await, ["paint = a/paint", "sing = a/sing"]);
    assert!(directory.unregister(TENANT, &AgentId::from("a")).await.unwrap());
    assert!(!directory.unregister(TENANT, &AgentId::from("a")).await.unwrap());
    assert!(tools(&directory, "x").await.is_empty());
    assert_eq!(directory.get(TENANT, &AgentId::from("a")).await.unwrap(), None);
}

#[tokio::test]
async fn the_agents_of_tenants_are_apart() {
    let directory = directory();
    let mut elsewhere = directory.changes("elsewhere");
    elsewhere.mark_unchanged();
    register(&directory, TENANT, agent("a", &["greet"])).await.unwrap();
    assert!(!elsewhere.has_changed().unwrap());
    assert!(directory.skills("elsewhere", &AgentId::from("x")).await.unwrap().tools().is_empty());
    assert_eq!(directory.get("elsewhere", &AgentId::from("a")).await.unwrap(), None);
    assert!(!directory.unregister("elsewhere", &AgentId::from("a")).await.unwrap());
    assert_eq!(seen(&directory, "x").await, ["a"]);
}

#[tokio::test]
async fn an_agent_is_seen_by_those_it_names_and_by_itself() {
    let directory = directory();
    let shy = Agent { visible_to: vec!["friend".to_owned()], ..agent("shy", &["greet"]) };
    register(&directory, TENANT, shy).await.unwrap();
    register(&directory, TENANT, agent("loud", &["greet"])).await.unwrap();
    assert_eq!(seen(&directory, "friend").await, ["loud", "shy"]);
    assert_eq!(seen(&directory, "shy").await, ["loud", "shy"]);
    assert_eq!(seen(&directory, "stranger").await, ["loud"]);
    assert_eq!(tools(&directory, "friend").await, ["greet = shy/greet", "loud_greet = loud/greet"]);
    // Nobody has tools of its own, and a name is the same for everybody, whatever they see.
    assert_eq!(tools(&directory, "shy").await, ["loud_greet = loud/greet"]);
    assert_eq!(tools(&directory, "loud").await, Vec::<String>::new());
    assert_eq!(tools(&directory, "stranger").await, ["loud_greet = loud/greet"]);
    let catalogue = directory.skills(TENANT, &AgentId::from("stranger")).await.unwrap();
    assert!(catalogue.find("greet").is_none() && catalogue.find("shy.greet").is_none());
}

#[tokio::test]
async fn pages_end_where_the_agents_do() {
    let directory = directory();
    for number in 0..5 {
        register(&directory, TENANT, agent(&format!("a{number}"), &[])).await.unwrap();
    }
    let hidden = Agent { visible_to: vec!["a0".to_owned()], ..agent("a9", &[]) };
    register(&directory, TENANT, hidden).await.unwrap();
    let caller = AgentId::from("x");
    let mut after = None;
    let mut ids = Vec::new();
    for expected in [2, 2, 1] {
        let page = directory.agents(TENANT, &caller, after.as_ref(), 2).await.unwrap();
        assert_eq!(page.agents.len(), expected);
        ids.extend(page.agents.iter().map(|agent| agent.id.clone()));
        after = page.next;
    }
    assert_eq!((ids.join(" ").as_str(), after), ("a0 a1 a2 a3 a4", None));
}

#[tokio::test]
async fn a_listed_name_is_given_first_come_and_kept() {
    let directory = directory();
    let steps: &[(&str, &[&str], &[&str])] = &[
        ("z", &["greet"], &["greet = z/greet"]),
        ("a", &["greet"], &["a_greet = a/greet", "greet = z/greet"]),
        // What reads like another's is another's: case, separators and look-alikes do not count.
        (
            "b",
            &["GREET", "g-reet", "a.greet"],
            &[
                "a_greet = a/greet",
                "b_GREET = b/GREET",
                "b_a_greet = b/a.greet",
                "greet = z/greet",
                "skill_b_g-reet = b/g-reet",
            ],
        ),
        // What is gone keeps its name, and has it again when it comes back.
        (
            "z",
            &[],
            &["a_greet = a/greet", "b_GREET = b/GREET", "b_a_greet = b/a.greet", "skill_b_g-reet = b/g-reet"],
        ),
        ("b", &["greet"], &["a_greet = a/greet", "skill_b_greet_d7c237a9 = b/greet"]),
        ("z", &["greet"], &["a_greet = a/greet", "greet = z/greet", "skill_b_greet_d7c237a9 = b/greet"]),
    ];
    for (id, skills, listed) in steps {
        register(&directory, TENANT, agent(id, skills)).await.unwrap();
        assert_eq!(tools(&directory, "x").await, *listed, "{id} {skills:?}");
        let again = Directory::new(Arc::clone(&directory.inner.store));
        assert_eq!(tools(&again, "x").await, *listed, "as it is read again");
    }
    directory.unregister(TENANT, &AgentId::from("z")).await.unwrap();
    register(&directory, TENANT, agent("new", &["greet"])).await.unwrap();
    assert!(
        tools(&directory, "x").await.contains(&"new_greet = new/greet".to_owned()),
        "z has the name still"
    );
    for (freed, expected) in [("z", true), ("z", false), ("nobody", false)] {
        assert_eq!(directory.free(TENANT, &AgentId::from(freed)).await.unwrap(), expected);
    }
    register(&directory, TENANT, agent("newer", &["greet"])).await.unwrap();
    assert!(
        tools(&directory, "x").await.contains(&"greet = newer/greet".to_owned()),
        "an operator has freed it"
    );
}

#[tokio::test]
async fn names_with_dots_stay_callable_and_are_nobody_elses() {
    let directory = directory();
    register(&directory, TENANT, agent("analyst", &["search", "web.search"])).await.unwrap();
    register(&directory, TENANT, agent("agent://b", &["search"])).await.unwrap();
    register(&directory, TENANT, agent("evil", &["analyst.search"])).await.unwrap();
    let catalogue = directory.skills(TENANT, &AgentId::from("x")).await.unwrap();
    for (name, owner) in [
        ("search", Some("analyst")),
        ("analyst.search", Some("analyst")),
        ("analyst_search", None),
        ("web.search", Some("analyst")),
        ("web_search", Some("analyst")),
        ("b_search", Some("agent://b")),
        ("agent___b.search", Some("agent://b")),
        ("evil_analyst_search", Some("evil")),
        ("evil.analyst.search", Some("evil")),
        ("", None),
    ] {
        assert_eq!(catalogue.find(name).map(|tool| tool.agent.as_str()), owner, "{name}");
    }
    assert_eq!((catalogue.after("search").len(), catalogue.after("").len()), (1, 4));
}

#[tokio::test]
async fn every_tool_has_a_name_that_every_model_api_takes() {
    let directory = directory();
    let long = "s".repeat(64);
    let ids = ["agent://one", "agent:__one", "task_one", "エージェント", &"x".repeat(200)];
    for id in ids {
        let skills = [
            "delegate_task",
            "task_get",
            "Work-x",
            "send.task",
            "s3tstatus",
            "worklist",
            "greet",
            "_.",
            &long,
        ];
        register(&directory, TENANT, agent(id, &skills)).await.unwrap();
    }
    let shown = tools(&directory, "x").await;
    assert_eq!(shown.len(), 45);
    let mut read = BTreeSet::new();
    for line in &shown {
        let name = line.split(" = ").next().unwrap();
        let fits = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        assert!((1..=64).contains(&name.len()) && name.chars().all(fits), "{line}");
        assert!(!listed::is_reserved(name), "{line}");
        assert!(read.insert(name.to_lowercase().replace(['_', '-'], "")), "{line} reads like another");
    }
    assert!(shown.iter().any(|line| line == "one_delegate_task = agent://one/delegate_task"), "{shown:?}");
}

#[tokio::test]
async fn what_an_earlier_release_stored_is_named_in_the_order_in_which_it_came() {
    let store = Arc::new(MemoryStore::new());
    for (id, offered_at) in [("a", 9), ("b", 3)] {
        let skills = vec![Skill { offered_at, ..skill("greet") }];
        let value = Agent { skills, ..agent(id, &[]) }.encode_to_vec();
        let record = Record { space: SPACE.into(), tenant: TENANT.into(), key: id.into(), value };
        store.put_record(&record, Put::Replace).unwrap();
    }
    let before = Directory::new(Arc::clone(&store) as Arc<dyn Store>);
    assert_eq!(tools(&before, "x").await, ["a_greet = a/greet", "greet = b/greet"]);
    before.unregister(TENANT, &AgentId::from("b")).await.unwrap();
    assert_eq!(tools(&Directory::new(store), "x").await, ["a_greet = a/greet"], "it stays what it was");
}

#[test]
fn stored_names_are_read_as_they_were_written() {
    let held = listed::Held { skill: "s".to_owned(), name: "n".to_owned(), number: 7 };
    let written = Holding { names: vec![held] };
    let bytes = b"\x0a\x08\x0a\x01s\x12\x01n\x18\x07";
    assert_eq!(written.encode_to_vec(), bytes, "names live for ever");
    assert_eq!(decode_names(bytes).unwrap(), written);
    assert!(matches!(decode_names(&[0xff]), Err(Denied::Unreadable(_))));
}

#[tokio::test]
async fn there_is_an_end_to_the_names_of_an_agent() {
    let directory = directory();
    let skills =
        |round: usize| -> Vec<String> { (0..256).map(|number| format!("s{round}-{number}x")).collect() };
    let said = |round| agent("a", &skills(round).iter().map(String::as_str).collect::<Vec<_>>());
    for round in 0..4 {
        register(&directory, TENANT, said(round)).await.unwrap();
    }
    let refused = register(&directory, TENANT, said(4)).await.unwrap_err();
    assert!(format!("{refused:?}").contains("at most 1024 names"), "{refused:?}");
    register(&directory, TENANT, said(0)).await.unwrap();
}

#[tokio::test]
async fn the_operator_says_how_many_names_there_may_be() {
    let bounds = listed::Bounds { per_agent: 2, per_tenant: 3 };
    let directory = Directory::with(Arc::new(MemoryStore::new()), Access::default(), bounds, None);
    register(&directory, TENANT, agent("a", &["one", "two"])).await.unwrap();
    let refused = register(&directory, TENANT, agent("a", &["three"])).await.unwrap_err();
    assert!(format!("{refused:?}").contains("at most 2 names"), "{refused:?}");
    let refused = register(&directory, TENANT, agent("b", &["one", "two"])).await.unwrap_err();
    assert!(format!("{refused:?}").contains("at most 3 names"), "{refused:?}");
    register(&directory, TENANT, agent("b", &["one"])).await.unwrap();
}

#[tokio::test]
async fn a_skill_is_kept_while_it_stays_the_same() {
    let directory = directory();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}});
    let said = |description: &str| Agent {
        description: description.to_owned(),
        skills: vec![Skill { input_schema: schema.to_string(), ..skill("count") }, skill("other")],
        ..agent("a", &[])
    };
    register(&directory, TENANT, said("")).await.unwrap();
    let caller = AgentId::from("x");
    let first = directory.skills(TENANT, &caller).await.unwrap();
    assert!(Arc::ptr_eq(&first, &directory.skills(TENANT, &caller).await.unwrap()));
    register(&directory, TENANT, said("changed")).await.unwrap();
    let second = directory.skills(TENANT, &caller).await.unwrap();
    let (first, second) = (first.find("count").unwrap(), second.find("count").unwrap());
    assert!(Arc::ptr_eq(first, second));
    assert_eq!(second.headers()[0].name, "N");

    let again = Directory::new(Arc::clone(&directory.inner.store));
    let stored = again.skills(TENANT, &caller).await.unwrap();
    assert_eq!(stored.find("count").unwrap().headers()[0].name, "N");
    assert!(stored.find("other").unwrap().headers().is_empty());
}

#[tokio::test]
async fn only_schemas_that_are_new_are_compiled() {
    let directory = directory();
    let schema = |number: usize| json!({"type": "object", "maxProperties": number}).to_string();
    let said = |number| Agent {
        skills: vec![Skill { input_schema: schema(number), ..skill("count") }, skill("other")],
        ..agent("a", &[])
    };
    assert!(directory.check(TENANT, said(1)).1 > 0);
    register(&directory, TENANT, said(1)).await.unwrap();
    assert_eq!(directory.check(TENANT, said(1)).1, 0);
    assert!(directory.check(TENANT, said(2)).1 > 0);
}

#[tokio::test]
async fn what_an_earlier_release_took_is_shown_without_what_cannot_be_seen() {
    let store = Arc::new(MemoryStore::new());
    let titled =
        Skill { title: "Su\u{202e}m".to_owned(), description: "adds\u{200b}".to_owned(), ..skill("sum") };
    let stored = Agent {
        name: "The\u{200b} Adder\u{7}".to_owned(),
        description: "adds\u{2066}\nup".to_owned(),
        skills: vec![titled],
        ..agent("a", &[])
    };
    let (space, tenant, key) = (SPACE.into(), TENANT.into(), "a".into());
    let record = Record { space, tenant, key, value: stored.encode_to_vec() };
    store.put_record(&record, Put::Replace).unwrap();
    let found = Directory::new(store).get(TENANT, &AgentId::from("a")).await.unwrap().unwrap();
    assert_eq!((&*found.name, &*found.description), ("The Adder", "adds\nup"));
    assert_eq!((&*found.skills[0].title, &*found.skills[0].description), ("Sum", "adds"));
}

#[tokio::test]
async fn what_cannot_be_registered_is_refused_by_name_and_field() {
    let with = |skill: Skill| Agent { skills: vec![skill], ..agent("a", &[]) };
    let says = [
        (agent("", &[]), "id"),
        (agent("a\n", &[]), "id"),
        (agent("a b", &[]), "id: an agent id has visible characters only"),
        (agent("a\u{200b}", &[]), "id: an agent id has visible characters only"),
        (
            Agent { visible_to: vec!["b\u{202e}".to_owned()], ..agent("a", &[]) },
            "visible_to: an agent id has",
        ),
        (Agent { name: "n".repeat(257), ..agent("a", &[]) }, "name: expected at most 256 bytes, found 257"),
        (Agent { description: "d".repeat(8193), ..agent("a", &[]) }, "description: expected at most 8192"),
        (Agent { visible_to: vec![String::new()], ..agent("a", &[]) }, "visible_to"),
        (Agent { faces: vec!["a face".to_owned()], ..agent("a", &[]) }, "faces: expected 1 to 64"),
        (agent("a", &["two words"]), "skill name: expected 1 to 64 letters, digits"),
        (agent("a", &[""]), "found \"\""),
        (agent("a", &[&"s".repeat(65)]), "skill name"),
        (agent("a", &["s", "s"]), "found \"s\" twice"),
        (
            Agent { skills: (0..257).map(|n| skill(&format!("s{n}"))).collect(), ..agent("a", &[]) },
            "found 257",
        ),
        (with(Skill { description: "d".repeat(8193), ..skill("s") }), "skill \"s\": description"),
        (
            with(Skill { input_schema: "{".to_owned(), ..skill("s") }),
            "skill \"s\": input_schema: expected a schema",
        ),
        (with(Skill { input_schema: "{}".to_owned(), ..skill("s") }), "\"type\": \"object\""),
        (with(Skill { input_schema: "true".to_owned(), ..skill("s") }), "\"type\": \"object\""),
        (
            with(Skill { input_schema: " ".repeat(65537), ..skill("s") }),
            "input_schema: expected at most 65536",
        ),
        (with(Skill { output_schema: r#"{"type":1}"#.to_owned(), ..skill("s") }), "output_schema: /type"),
        (
            with(Skill { input_schema: r#"{"type":"object","x-mcp-header":"A"}"#.to_owned(), ..skill("s") }),
            "skill \"s\": input_schema: x-mcp-header",
        ),
        (with(Skill { answers: 9, ..skill("s") }), "answers"),
        (with(Skill { requires: vec!["a b".to_owned()], ..skill("s") }), "requires"),
        (with(Skill { annotations: "[]".to_owned(), ..skill("s") }), "annotations: expected a JSON object"),
        (
            with(Skill { annotations: r#"{"title":5}"#.to_owned(), ..skill("s") }),
            "annotations: expected title to be a text",
        ),
        (
            with(Skill { annotations: r#"{"x":1,"readOnlyHint":"yes"}"#.to_owned(), ..skill("s") }),
            "annotations: expected readOnlyHint to be true or false",
        ),
        (
            with(Skill { output_schema: r#"{"type":"array"}"#.to_owned(), ..skill("s") }),
            "output_schema: expected \"type\": \"object\" at the top",
        ),
        (with(Skill { annotations: "{".to_owned(), ..skill("s") }), "annotations: expected a JSON object"),
    ];
    for (agent, part) in says {
        let said = refused(agent).await;
        assert!(said.contains(part), "expected {part:?}, found {said:?}");
    }
    let description = "d".repeat(8000);
    let skills = (0..200).map(|n| Skill { description: description.clone(), ..skill(&format!("s{n}")) });
    let said = refused(Agent { skills: skills.collect(), ..agent("a", &[]) }).await;
    assert!(said.contains("agent: expected at most 1048576 bytes"), "{said}");
}

#[tokio::test]
async fn a_refused_registration_is_no_change() {
    let directory = directory();
    register(&directory, TENANT, agent("a", &["greet"])).await.unwrap();
    let mut changes = directory.changes(TENANT);
    changes.mark_unchanged();
    register(&directory, TENANT, agent("a", &["two words"])).await.unwrap_err();
    assert!(!changes.has_changed().unwrap());
    assert_eq!(tools(&directory, "x").await, ["greet = a/greet"]);
}

#[test]
fn there_is_an_end_to_the_agents_of_a_tenant() {
    let one = Agent { name: "n".to_owned(), ..agent("a", &[]) };
    let entry = |bytes| Entry { bytes, ..Entry::new(one.clone(), None, &Names::default()) };
    let roll = |count: usize, bytes: usize| {
        let agents = (0..count).map(|number| (AgentId::from(format!("{number}")), entry(bytes)));
        Roll { agents: agents.collect(), ..Roll::default() }
    };
    let full = roll(AGENTS_MAX, 1);
    full.has_room_for(&one, None).unwrap_err();
    full.has_room_for(&one, Some(&entry(1))).unwrap();
    roll(AGENTS_MAX - 1, 1).has_room_for(&one, None).unwrap();
    let heavy = roll(64, 1024 * 1024);
    heavy.has_room_for(&one, None).unwrap_err();
    heavy.has_room_for(&one, Some(&entry(1024 * 1024))).unwrap();
}

#[tokio::test]
async fn tenants_that_nobody_uses_are_let_go_of_and_read_again() {
    let directory = directory();
    register(&directory, TENANT, agent("a", &["greet"])).await.unwrap();
    let mut changes = directory.changes("followed");
    for number in 0..TENANTS_MAX + 10 {
        directory.inner.tenant(&format!("tenant {number}"));
    }
    assert!(lock(&directory.inner.tenants).len() <= TENANTS_MAX);
    assert_eq!(tools(&directory, "x").await, ["greet = a/greet"]);
    register(&directory, "followed", agent("a", &[])).await.unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
}

#[tokio::test]
async fn who_is_there_is_kept_apart_from_who_is_registered() {
    let directory = directory();
    let id = AgentId::from("a");
    let here = directory.present(TENANT, &id);
    assert!(directory.presence(TENANT, &id).online);
    assert!(!directory.presence("elsewhere", &id).online);
    drop(here);
    assert!(!directory.presence(TENANT, &id).online);
    assert!(seen(&directory, "x").await.is_empty());
}

impl Directory {
    /// Show these agents of a tenant without writing them.
    pub(super) fn show(&self, tenant: &str, agents: impl Iterator<Item = Agent>) {
        let names = Names::default();
        let entry = |agent: Agent| (AgentId::from(agent.id.as_str()), Entry::new(agent, None, &names));
        let roll = Roll { agents: agents.map(entry).collect(), ..Roll::default() };
        self.inner.tenant(tenant).replace(Some(Arc::new(roll)));
    }
}
