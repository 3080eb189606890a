//! Who is there, on which faces, what they can do, what they are doing, and whom they wait for.

use askama::Template;
use axum::response::Response;
use handover_desk::No;
use handover_desk::caller::Caller;
use handover_desk::directory::{Agent, Skill};
use handover_kernel::{AgentId, Session};

use super::Console;
use super::fields::encode;
use super::http::Asked;
use super::page::{Top, html};
use super::shown::{State, When, line, title};

/// How many agents a page has, and how many skills of each are named.
const PAGE: usize = 50;
const SKILLS_MAX: usize = 20;

/// How many tasks of an agent are named.
const DOING_MAX: usize = 3;

#[derive(Template)]
#[template(path = "agents.html")]
struct Page {
    top: Top,
    q: String,
    rows: Vec<Row>,
    next: String,
}

struct Row {
    id: String,
    address: String,
    name: String,
    description: String,
    status: &'static str,
    status_text: String,
    online: bool,
    seen: Option<When>,
    faces: Vec<String>,
    skills: Vec<Can>,
    more_skills: usize,
    doing: Vec<Doing>,
    more_doing: bool,
    /// Whom it waits for, what for, and in which task, if whoever looks may open that.
    waits: Vec<(String, &'static str, Option<String>)>,
}

/// A task that an agent works on.
struct Doing {
    id: String,
    title: String,
    state: State,
}

/// A skill.
struct Can {
    name: String,
    address: String,
    description: String,
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked) -> Result<Response, No> {
    let (desk, caller) = (console.desk(), &asked.caller);
    let (q, after) = (asked.query.get("q").trim().to_owned(), asked.query.said("after"));
    let (agents, next) = match q.as_str() {
        "" => desk.agents(caller, after, PAGE).await?,
        words => {
            let (found, next) = desk.search(caller, words, after, PAGE).await?;
            (found.into_iter().map(|found| found.agent).collect(), next)
        }
    };
    let mut rows = Vec::new();
    for agent in &agents {
        rows.push(row(console, asked, agent).await?);
    }
    let top = console.top(asked, "Agents").await?;
    let page = Page {
        top: Top { here: "agents", live: "all".to_owned(), ..top },
        rows,
        next: next.map_or_else(String::new, |next| format!("/agents?{}", asked.query.with("after", &next))),
        q,
    };
    Ok(html(200, &page, caller.room()))
}

async fn row(console: &Console, asked: &Asked, agent: &Agent) -> Result<Row, No> {
    let id = AgentId::from(agent.id.as_str());
    let hands = console.desk().in_hand(&asked.caller, &id, DOING_MAX).await?;
    let presence = console.desk().directory.presence(&asked.caller.tenant, &id);
    let skill = |skill: &Skill| Can {
        name: skill.name.clone(),
        address: encode(&skill.name),
        description: line(&skill.description),
    };
    let mut waits = Vec::new();
    for edge in hands.waits.iter().take(DOING_MAX) {
        let opens = console.desk().sees(&asked.caller, edge.on.as_str()).await;
        waits.push((edge.to.to_string(), edge.why.name(), opens.then(|| edge.on.to_string())));
    }
    Ok(Row {
        address: encode(&agent.id),
        id: agent.id.clone(),
        name: line(&agent.name),
        description: line(&agent.description),
        status: agent.status().name(),
        status_text: line(&agent.status_text),
        online: presence.online,
        seen: presence.last_seen.map(When::of),
        faces: agent.faces.clone(),
        skills: agent.skills.iter().take(SKILLS_MAX).map(skill).collect(),
        more_skills: agent.skills.len().saturating_sub(SKILLS_MAX),
        doing: hands.tasks.iter().map(|task| Doing::of(task, &asked.caller)).collect(),
        more_doing: hands.more,
        waits,
    })
}

impl Doing {
    fn of(task: &Session, caller: &Caller) -> Doing {
        Doing { id: task.binding.id.to_string(), title: title(task), state: State::of(task, caller) }
    }
}
