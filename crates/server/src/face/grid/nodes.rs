//! Agents: registration and profile, presence, status and search. A node is an agent of the shared directory.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post, put};
use handover_client::jsonrpc::shorten;
use handover_desk::calendar::rfc3339;
use handover_desk::caller::Caller;
use handover_desk::clock::machine;
use handover_desk::directory::{Agent, Status};
use handover_desk::identity::signed;
use handover_kernel::{AgentId, Refusal};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::http::{Taken, in_query, preflight, refused};
use super::{Grid, No};
use crate::face::skill::NewSkill;
use crate::http::{Peer, json_answer, origin};

/// The fields with which a body is signed.
const SIGNATURE: [&str; 4] = ["fromNodeId", "timestamp", "nonce", "signature"];

/// How many agents a page shows.
const LIST_MAX: usize = 100;

/// The routes of the directory.
pub(super) fn routes() -> Router<Grid> {
    Router::new()
        .route("/grid/nodes", post(register).get(list).options(preflight))
        .route("/grid/nodes/{node}", get(one).put(register_at).patch(change).delete(leave).options(preflight))
        .route("/grid/nodes/{node}/heartbeat", post(heartbeat).options(preflight))
        .route("/grid/nodes/{node}/status", put(set_status).options(preflight))
        .route("/grid/search", post(search).options(preflight))
}

/// What an agent says of itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Profile {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    skills: Vec<NewSkill>,
    #[serde(default)]
    visible_to: Vec<String>,
    /// The Ed25519 key that it signs requests with, 64 hexadecimal digits. The registration is then signed with it.
    public_key: Option<String>,
}

/// What an agent changes of what it said.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Change {
    name: Option<String>,
    description: Option<String>,
    skills: Option<Vec<NewSkill>>,
    visible_to: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewStatus {
    status: String,
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Search {
    query: String,
    cursor: Option<String>,
    max: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

type Done = Result<(StatusCode, Value), No>;

fn invalid(what: impl Into<String>) -> No {
    No(Refusal::invalid(what.into()).into())
}

fn not_found(node: &str) -> No {
    No(handover_desk::No::NoSuchAgent { what: format!("there is no node {}", shorten(node)) })
}

fn respond(caller: &Caller, done: Done) -> Response {
    match done {
        Ok((status, body)) => json_answer(status.as_u16(), body.to_string(), caller.room()),
        Err(no) => refused(&no),
    }
}

fn read<T: DeserializeOwned>(taken: &Taken) -> Result<T, No> {
    let body = if taken.body.is_empty() { b"{}" } else { &taken.body[..] };
    let wrong = |error| invalid(format!("expected a JSON object: {error}"));
    let mut fields: Map<String, Value> = serde_json::from_slice(body).map_err(wrong)?;
    // What a signed body has beside everything else was looked at before.
    SIGNATURE.into_iter().for_each(|field| _ = fields.remove(field));
    serde_json::from_value(Value::Object(fields)).map_err(wrong)
}

/// Answer a request with a body, whoever it is.
async fn with_body(grid: &Grid, request: Request, work: impl AsyncFnOnce(&Taken) -> Done) -> Response {
    let shared = origin::let_in(request.headers(), &grid.parts.settings.origins);
    let response = match grid.admit(request).await {
        Ok(taken) => {
            let (lane, bytes) = (taken.lane, taken.body.len());
            let done = grid.desk().work_on(lane, bytes, Box::pin(work(&taken))).await;
            respond(&taken.caller, done)
        }
        Err(refused) => *refused,
    };
    origin::share(response, shared)
}

/// Answer a request without one.
async fn without_body(
    grid: &Grid,
    request: Request,
    work: impl AsyncFnOnce(&Caller, &Uri) -> Done,
) -> Response {
    let shared = origin::let_in(request.headers(), &grid.parts.settings.origins);
    let response = match grid.admit_head(request.headers(), request.extensions().get::<Peer>()) {
        Ok(caller) => respond(&caller, work(&caller, request.uri()).await),
        Err(refused) => *refused,
    };
    origin::share(response, shared)
}

async fn register(State(grid): State<Grid>, request: Request) -> Response {
    with_body(&grid, request, async |taken| grid.register(taken).await).await
}

async fn register_at(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    with_body(&grid, request, async |taken| {
        grid.must_be_own(&taken.caller, &node).await?;
        grid.register(taken).await
    })
    .await
}

async fn change(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    with_body(&grid, request, async |taken| {
        grid.must_be_own(&taken.caller, &node).await?;
        let asked: Change = read(taken)?;
        let caller = &taken.caller;
        let known = grid.desk().agent(caller, caller.agent.as_str()).await?;
        let mut agent = Agent::clone(&*known.ok_or_else(|| not_found(&node))?);
        agent.name = asked.name.unwrap_or(agent.name);
        agent.description = asked.description.unwrap_or(agent.description);
        agent.visible_to = asked.visible_to.unwrap_or(agent.visible_to);
        if let Some(skills) = asked.skills {
            agent.skills = skills_of(skills)?;
        }
        grid.desk().register(caller, agent).await?;
        grid.shown_own(caller).await
    })
    .await
}

async fn leave(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    without_body(&grid, request, async |caller, _| {
        if let Some(key) = signed::NodeId::parse(&node)
            && grid.desk().unbind_key(caller, key).await?
        {
            return Ok((StatusCode::OK, json!({ "unbound": true })));
        }
        let removed = grid.desk().unregister(caller, Some(&node)).await?;
        if removed { Ok((StatusCode::OK, json!({ "removed": true }))) } else { Err(not_found(&node)) }
    })
    .await
}

async fn list(State(grid): State<Grid>, request: Request) -> Response {
    without_body(&grid, request, async |caller, uri| {
        let max = match in_query(uri, "max") {
            Some(max) => max.parse().map_err(|_| invalid("max: expected a number, found something else"))?,
            None => LIST_MAX,
        };
        let after = in_query(uri, "cursor");
        let (found, next) = grid.desk().agents(caller, after, max.clamp(1, LIST_MAX)).await?;
        let nodes: Vec<Value> = found.iter().map(|agent| grid.shown(caller, agent)).collect();
        Ok((StatusCode::OK, json!({ "nodes": nodes, "nextCursor": next })))
    })
    .await
}

async fn one(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    without_body(&grid, request, async |caller, _| {
        let agent = grid.desk().agent_of_node(caller, &node).await?;
        let found = grid.desk().agent(caller, agent.as_str()).await?.ok_or_else(|| not_found(&node))?;
        Ok((StatusCode::OK, grid.shown(caller, &found)))
    })
    .await
}

async fn heartbeat(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    with_body(&grid, request, async |taken| {
        grid.must_be_own(&taken.caller, &node).await?;
        let Nothing {} = read(taken)?;
        grid.desk().directory.touch(&taken.caller.tenant, &taken.caller.agent);
        Ok((StatusCode::OK, json!({ "nodeId": taken.caller.agent.as_str(), "at": rfc3339(machine()) })))
    })
    .await
}

async fn set_status(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    with_body(&grid, request, async |taken| {
        grid.must_be_own(&taken.caller, &node).await?;
        let asked: NewStatus = read(taken)?;
        let status = Status::of(&asked.status).ok_or_else(|| {
            let found = shorten(&asked.status);
            invalid(format!("status: expected available, busy or do_not_disturb, found {found}"))
        })?;
        grid.desk().set_status(&taken.caller, status, &asked.text).await?;
        grid.shown_own(&taken.caller).await
    })
    .await
}

async fn search(State(grid): State<Grid>, request: Request) -> Response {
    with_body(&grid, request, async |taken| {
        let asked: Search = read(taken)?;
        let max = asked.max.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
        let after = asked.cursor.as_deref();
        let (found, next) = grid.desk().search(&taken.caller, &asked.query, after, max).await?;
        let nodes: Vec<Value> = found.iter().map(|found| grid.shown(&taken.caller, &found.agent)).collect();
        Ok((StatusCode::OK, json!({ "nodes": nodes, "nextCursor": next })))
    })
    .await
}

fn skills_of(skills: Vec<NewSkill>) -> Result<Vec<handover_desk::directory::Skill>, No> {
    skills.into_iter().map(NewSkill::skill).collect::<Result<_, _>>().map_err(invalid)
}

impl Grid {
    async fn register(&self, taken: &Taken) -> Done {
        let asked: Profile = read(taken)?;
        let caller = &taken.caller;
        let key = asked.public_key.as_deref().map(public_key).transpose()?;
        if let Some(key) = &key {
            // Whoever has the token could otherwise take a key for its own that is somebody else's.
            signed::check(&taken.body, key, machine())
                .map_err(|why| invalid(format!("publicKey: expected a body that it has signed: {why}")))?;
        }
        let agent = Agent {
            name: asked.name,
            description: asked.description,
            skills: skills_of(asked.skills)?,
            visible_to: asked.visible_to,
            faces: vec!["grid".to_owned()],
            ..Agent::default()
        };
        // First the key: whoever may not have it is not registered.
        if let Some(key) = &key {
            self.desk().bind_key(caller, key).await?;
        }
        let registered = self.desk().register(caller, agent).await?;
        let (_, node) = self.shown_own(caller).await?;
        let status = if registered.changed { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, node))
    }

    async fn shown_own(&self, caller: &Caller) -> Done {
        let own = self.desk().agent(caller, caller.agent.as_str()).await?;
        let mut shown = own.map_or_else(|| json!({}), |agent| self.shown(caller, &agent));
        let keys = self.desk().keys_of(caller).await?;
        shown["keys"] = keys.iter().map(ToString::to_string).collect::<Vec<_>>().into();
        Ok((StatusCode::OK, shown))
    }

    /// An agent as others see it.
    fn shown(&self, caller: &Caller, agent: &Agent) -> Value {
        let presence = self.desk().directory.presence(&caller.tenant, &AgentId::from(agent.id.as_str()));
        let skills = agent.skills.iter().map(|skill| {
            json!({
                "name": skill.name,
                "title": skill.title,
                "description": skill.description,
                "inputSchema": serde_json::from_str::<Value>(skill.input()).ok(),
            })
        });
        json!({
            "nodeId": agent.id,
            "name": agent.name,
            "description": agent.description,
            "skills": skills.collect::<Vec<_>>(),
            "status": agent.status().name(),
            "statusText": agent.status_text,
            "online": presence.online,
            "lastSeen": presence.last_seen.map(rfc3339),
        })
    }
}

fn public_key(text: &str) -> Result<[u8; 32], No> {
    let wrong = || invalid("publicKey: expected 64 hexadecimal digits, found something else");
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}
