//! Who is there, on which faces, and what they can do.

use askama::Template;
use axum::response::Response;
use handover_desk::No;
use handover_desk::directory::{Agent, Skill};
use handover_kernel::AgentId;

use super::Console;
use super::fields::encode;
use super::http::Asked;
use super::page::{Top, html};
use super::shown::{When, line};

/// How many agents a page has, and how many skills of each are named.
const PAGE: usize = 50;
const SKILLS_MAX: usize = 20;

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
    let top = console.top(asked, "Agents").await?;
    let page = Page {
        top: Top { here: "agents", ..top },
        rows: agents.iter().map(|agent| row(console, asked, agent)).collect(),
        next: next.map_or_else(String::new, |next| format!("/agents?{}", asked.query.with("after", &next))),
        q,
    };
    Ok(html(200, &page, caller.room()))
}

fn row(console: &Console, asked: &Asked, agent: &Agent) -> Row {
    let id = AgentId::from(agent.id.as_str());
    let presence = console.desk().directory.presence(&asked.caller.tenant, &id);
    let skill = |skill: &Skill| Can {
        name: skill.name.clone(),
        address: encode(&skill.name),
        description: line(&skill.description),
    };
    Row {
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
    }
}
