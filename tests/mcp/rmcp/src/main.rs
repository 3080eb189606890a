//! The official client for Rust in its discover mode. It knows the methods of tasks but does not drive them: a program
//! polls and answers itself.
//!
//! `MCP_URLS` names the servers, `MCP_TOKEN` is who calls, and a call of `slow_compute` labelled `MCP_PAUSE_ME` is paused by
//! somebody else. Each play is told in a line of JSON.

use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientConfig,
    ElicitRequestParams, GetTaskParams, Implementation, InputRequest, InputRequests, InputResponses,
    ProtocolVersion, TaskPayload, UpdateTaskParams,
};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};

const PLAY_WITHIN: Duration = Duration::from_secs(60);

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error>;
type Client = RunningService<RoleClient, Host>;

/// What the client can do.
struct Host;

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let declared = json!({
            "elicitation": { "form": {} },
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        });
        let capabilities = serde_json::from_value(declared).expect("these are capabilities");
        ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1.0.0"))
    }
}

/// Where everything is.
struct Stage {
    urls: Value,
    token: String,
    pause_me: String,
}

impl Stage {
    fn of_environment() -> Result<Stage, Failure> {
        Ok(Stage {
            urls: serde_json::from_str(&std::env::var("MCP_URLS")?)?,
            token: std::env::var("MCP_TOKEN")?,
            pause_me: std::env::var("MCP_PAUSE_ME")?,
        })
    }

    async fn client(&self, server: &str) -> Result<Client, Failure> {
        let url = self.urls[server].as_str().ok_or("expected the address of a server")?;
        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(&*self.token);
        let lifecycle =
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
        Ok(Host.serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), lifecycle).await?)
    }

    async fn play(&self, play: &str) -> Result<(), Failure> {
        let client = self.client(if play == "strict_headers" { "strict" } else { "plain" }).await?;
        match play {
            "plain" => plain(&client).await?,
            "task" => computes(&client, 0.3, "sum").await?,
            "elicitation" => deletes(&client, "old.txt").await?,
            "cancel" => cancel(&client).await?,
            "failure" => failure(&client).await?,
            "paused" => computes(&client, 3.0, &self.pause_me).await?,
            "paused_asking" => deletes(&client, &self.pause_me).await?,
            "strict_headers" => {
                greets(&client).await?;
                computes(&client, 0.1, "sum").await?;
            }
            other => return Err(format!("there is no play {other}").into()),
        }
        client.cancel().await?;
        Ok(())
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("expected {expected:?}, found {found:?}").into()) }
}

fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

/// The text that a tool returned, and whether it is an error.
fn said(result: &CallToolResult) -> Result<(String, bool), Failure> {
    let text = result.content.first().and_then(|block| block.as_text()).ok_or("expected a text")?;
    Ok((text.text.clone(), result.is_error == Some(true)))
}

/// Call a tool that answers with a task; its id.
async fn start(client: &Client, tool: &'static str, arguments: Value) -> Result<String, Failure> {
    match client.call_tool_once(call(tool, arguments)).await? {
        CallToolResponse::Task(created) => Ok(created.task.task_id),
        other => Err(format!("expected a task, found {other:?}").into()),
    }
}

/// Look at a task, as often as the server says, until it has ended; answer what it asks.
async fn finish(client: &Client, task_id: &str) -> Result<TaskPayload, Failure> {
    loop {
        let shown = client.get_task(GetTaskParams::new(task_id)).await?.task;
        match shown.payload {
            TaskPayload::Working => {}
            TaskPayload::InputRequired { input_requests } => {
                let answers = answers(&input_requests)?;
                client.update_task(UpdateTaskParams::new(task_id, answers)).await?;
            }
            ended => return Ok(ended),
        }
        tokio::time::sleep(Duration::from_millis(shown.task.poll_interval_ms.unwrap_or(50))).await;
    }
}

fn answers(asked: &InputRequests) -> Result<InputResponses, Failure> {
    let mut answers = InputResponses::new();
    for (key, request) in asked {
        let InputRequest::Elicitation(request) = request else {
            return Err(format!("expected a form, found {request:?}").into());
        };
        let ElicitRequestParams::FormElicitationParams { message, .. } = &request.params else {
            return Err(format!("expected a form, found {request:?}").into());
        };
        expect(message.starts_with("fixture asks: Delete "), true)?;
        answers.insert(key.clone(), json!({ "action": "accept", "content": { "confirm": true } }));
    }
    Ok(answers)
}

/// What a task that has completed returned.
async fn returned(client: &Client, task_id: &str) -> Result<(String, bool), Failure> {
    match finish(client, task_id).await? {
        TaskPayload::Completed { result } => said(&serde_json::from_value(Value::Object(result))?),
        other => Err(format!("expected it to be completed, found {other:?}").into()),
    }
}

async fn greets(client: &Client) -> Result<(), Failure> {
    let result = client.call_tool(call("greet", json!({ "name": "Ann" }))).await?;
    expect(said(&result)?, ("Hello, Ann!".to_owned(), false))
}

async fn plain(client: &Client) -> Result<(), Failure> {
    let tools = client.list_all_tools().await?;
    expect(tools.iter().any(|tool| tool.name == "greet"), true)?;
    greets(client).await
}

async fn computes(client: &Client, seconds: f64, label: &str) -> Result<(), Failure> {
    let task = start(client, "slow_compute", json!({ "seconds": seconds, "label": label })).await?;
    expect(returned(client, &task).await?, (format!("{label} took {seconds} s"), false))
}

async fn deletes(client: &Client, filename: &str) -> Result<(), Failure> {
    let task = start(client, "confirm_delete", json!({ "filename": filename })).await?;
    expect(returned(client, &task).await?, (format!("deleted {filename}"), false))
}

async fn cancel(client: &Client) -> Result<(), Failure> {
    let task = start(client, "slow_compute", json!({ "seconds": 60 })).await?;
    client.cancel_task(CancelTaskParams::new(&*task)).await?;
    expect(finish(client, &task).await?, TaskPayload::Cancelled)
}

async fn failure(client: &Client) -> Result<(), Failure> {
    let task = start(client, "failing_job", json!({})).await?;
    expect(returned(client, &task).await?, ("the job failed, as it always does".to_owned(), true))?;
    let task = start(client, "protocol_error_job", json!({})).await?;
    match finish(client, &task).await? {
        TaskPayload::Failed { error } => {
            expect(error.get("message"), Some(&json!("the job broke down, as it always does")))
        }
        other => Err(format!("expected it to fail, found {other:?}").into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<std::process::ExitCode, Failure> {
    let stage = Stage::of_environment()?;
    println!("{}", json!({ "client": format!("rmcp {}", Implementation::from_build_env().version) }));
    let mut code = std::process::ExitCode::SUCCESS;
    for play in
        ["plain", "task", "elicitation", "cancel", "failure", "paused", "paused_asking", "strict_headers"]
    {
        let began = Instant::now();
        let played = tokio::time::timeout(PLAY_WITHIN, stage.play(play)).await;
        let failure = match played {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure.to_string()),
            Err(_) => Some(format!("expected it to end within {PLAY_WITHIN:?}")),
        };
        if failure.is_some() {
            code = std::process::ExitCode::FAILURE;
        }
        let ms = u64::try_from(began.elapsed().as_millis())?;
        println!("{}", json!({ "play": play, "ms": ms, "failure": failure }));
    }
    Ok(code)
}
