//! A form for new work: for an agent by name, or a call of one of its skills.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use handover_desk::delegate::{Profile, Work};
use handover_desk::directory::{Skill, Tool};
use handover_desk::{No, id as ids, payload};
use handover_kernel::charter::Charter;
use handover_kernel::policy::DEFAULT_POLICY;
use handover_kernel::{AgentId, Blob, Refusal, SessionId, Text};

use super::Console;
use super::acts::{Did, after};
use super::fields::{Fields, encode};
use super::http::Asked;
use super::page::{Notice, Top, html, see_other};
use super::question::{self, Form};
use super::shown::words;
use crate::face::silence;

/// What tasks of the console are bound to: nothing settles by itself, a person reviews what comes of it.
const PROFILE: Profile = Profile { charter: Charter::macp, policy: DEFAULT_POLICY, configuration: "console" };

/// How many agents are proposed.
const PROPOSED_MAX: usize = 200;

#[derive(Template)]
#[template(path = "delegate.html")]
struct Page {
    top: Top,
    agents: Vec<String>,
    agent: String,
    skill: Option<Called>,
    typed: Fields,
    /// Whether anything was typed about bounds.
    bounded: bool,
    /// The longest time to live, in minutes.
    minutes_max: u64,
    key: String,
}

/// A skill that is to be called.
struct Called {
    name: String,
    description: String,
    form: Form,
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked, notice: Notice) -> Result<Response, No> {
    let (desk, caller) = (console.desk(), &asked.caller);
    let said = |name: &str| asked.form.said(name).or_else(|| asked.query.said(name)).unwrap_or_default();
    let (agent, skill) = (said("agent"), said("skill"));
    let found = if skill.is_empty() { None } else { find(console, asked, agent, skill).await? };
    let hands = desk.hands(caller, PROPOSED_MAX).await?;
    let status = notice.status();
    let top = console.top(asked, "Delegate").await?;
    let at = notice
        .refusal()
        .map_or_else(String::new, |_| format!("/delegate?agent={}&skill={}", encode(agent), encode(skill)));
    let page = Page {
        top: Top { here: "delegate", notice, at, ..top },
        agents: hands.iter().map(ToString::to_string).collect(),
        agent: agent.to_owned(),
        skill: found.map(|tool| {
            let mut form = form_of(&tool.skill);
            if asked.form.find("skill").is_some() {
                form.fill(&asked.form);
            }
            let description = words(&tool.skill.description);
            Called { form, description, name: tool.skill.name.clone() }
        }),
        bounded: ["ttl", "silent_after", "queue"].iter().any(|name| asked.form.said(name).is_some()),
        minutes_max: console.parts.settings.ttl_minutes_max,
        typed: asked.form.clone(),
        key: ids::unguessable(),
    };
    Ok(html(status, &page, caller.room()))
}

fn form_of(skill: &Skill) -> Form {
    match skill.input_schema.as_str() {
        "" => Form::Json(String::new()),
        schema => question::form(schema.as_bytes()),
    }
}

async fn find(console: &Console, asked: &Asked, agent: &str, skill: &str) -> Result<Option<Arc<Tool>>, No> {
    if console.desk().agent(&asked.caller, agent).await?.is_none() {
        return Ok(None);
    }
    let listed = console.desk().listed(&asked.caller, &AgentId::from(agent)).await?;
    Ok(listed.into_iter().find(|tool| tool.skill.name == skill))
}

/// Begin the task that the form describes.
pub(super) async fn begin(console: &Console, asked: &Asked) -> Result<Response, No> {
    let notice = match put(console, asked).await {
        Ok((id, warning)) => {
            let (target, did) = (format!("/tasks/{}", encode(&id)), Did::with("delegate", warning));
            return Ok(see_other(&after(console, asked, &target, did)));
        }
        Err(no) => Notice::refused(no),
    };
    show(console, asked, notice).await
}

/// Returns the task, and what is odd about it: nothing if nothing is.
async fn put(console: &Console, asked: &Asked) -> Result<(String, String), No> {
    let (desk, caller, form) = (console.desk(), &asked.caller, &asked.form);
    let wrong = |what: String| No::from(Refusal::invalid(what));
    let agent = form.said("agent").ok_or_else(|| wrong("expected an agent, found none".to_owned()))?;
    let agent = AgentId::from(agent);
    let title = form.said("title").ok_or_else(|| wrong("expected a title, found none".to_owned()))?;
    let most = console.parts.settings.ttl_minutes_max;
    let number = |name: &str| match form.said(name) {
        None => Ok(None),
        Some(text) => match text.parse::<u64>() {
            Ok(minutes) if (1..=most).contains(&minutes) => Ok(Some(minutes * 60_000)),
            Ok(_) | Err(_) => Err(wrong(format!("{name}: expected minutes, 1 to {most}, found {text:?}"))),
        },
    };
    let (input, contract) = match form.said("skill") {
        None => match form.said("answer") {
            None => (Blob::default(), None),
            Some(text) => (payload::of_json(&payload::to_json(text.as_bytes())), None),
        },
        Some(name) => {
            let unknown = || wrong(format!("expected a skill of {agent}, found {:?}", words(name)));
            let skill = find(console, asked, agent.as_str(), name).await?.ok_or_else(unknown)?;
            let input = question::value(&form_of(&skill.skill), form).map_err(wrong)?;
            (input, Some(Arc::clone(&skill.contract)))
        }
    };
    let key = form.said("key").filter(|key| key.len() <= 64).map(|key| format!("delegate:{key}"));
    let id = desk.new_id(caller, key.as_deref());
    let odd = match form.get("queue") {
        "true" => None,
        _ => desk.must_exist(caller, &id, std::slice::from_ref(&agent)).await?,
    };
    let silent_after = number("silent_after")?;
    let work = Work {
        agents: vec![agent.clone()],
        assignee: Some(agent),
        task: Text::from("task"),
        title: Text::from(title),
        instructions: Text::from(form.get("instructions").replace("\r\n", "\n")),
        input,
        contract,
        ttl_ms: number("ttl")?,
        parent: form.said("parent").map(SessionId::from),
        liveness: silence::liveness(silent_after, None).map_err(wrong)?,
        ..Work::default()
    };
    desk.delegate(caller, &id, key.as_deref(), &PROFILE, work).await?;
    Ok((id, odd.unwrap_or_default()))
}
