//! `handover mcp`: MCP over standard input and output, on data of its own or as a bridge to a server.
//!
//! Standard output belongs to the protocol. Everything else goes to standard error.

use std::time::Duration;

use handover_client::bridge::{self, Endpoint};
use handover_client::fetch;
use handover_desk::identity::{Identity, Unauthenticated};
use handover_desk::shutdown::Shutdown;
use handover_server::config::{self, Config};
use handover_server::face::mcp::caller::Wishes;
use handover_server::face::mcp::stdio;
use handover_server::telemetry;
use tokio::io::{BufReader, stdin, stdout};

use crate::Failure;
use crate::house;

/// What `handover mcp` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The data directory; made if it does not exist [default: ./handover-data]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    data: Option<String>,
    /// The id of the agent that the host acts for [default: local]
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    agent: Option<String>,
    /// Be a bridge to the server at this address
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The token for the server; better set HANDOVER_TOKEN, which others on the machine do not see
    #[arg(long, requires = "server")]
    token: Option<String>,
    /// Which tools to show: all, requester, worker or conversation [default: as the token says, or all]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// How long calls wait for a result before they return a task's id
    #[arg(long, value_name = "SECONDS")]
    wait_seconds: Option<u64>,
    /// Read this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// What to log to standard error: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

const HELP: &str = r#"Without --server it serves one host on data of its own. When a server has the data, or several hosts are to share it, be a
bridge: --server names the server, and every request goes there. In development the token is the agent's id.
It ends when standard input does.

A host's configuration:
  { "mcpServers": { "handover": { "command": "handover", "args": ["mcp", "--data", "/var/lib/handover"] } } }

and as a bridge:
  { "mcpServers": { "handover": {
      "command": "handover",
      "args": ["mcp", "--server", "https://handover.example"],
      "env": { "HANDOVER_TOKEN": "hand_..." } } } }

Examples:
  handover mcp
  handover mcp --data ./handover-data --agent planner
  HANDOVER_TOKEN=planner handover mcp --server http://127.0.0.1:8420
  HANDOVER_TOKEN=planner handover mcp --server http://127.0.0.1:8420 --profile requester --wait-seconds 50"#;

/// The agent that a host acts for unless it says otherwise.
const AGENT: &str = "local";

/// What somebody is told whose data a server has.
const IN_USE: &str =
    ": if that is a server, reach it with --server, as in handover mcp --server http://127.0.0.1:8420";

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    // There is nothing to read again, but a terminal that closes must not end it: standard input does.
    let _hangups = runtime.block_on(async { house::count_hangups() })?;
    let flags = [("data", &args.data), ("log.level", &args.log_level)];
    let sources = house::sources(&flags, args.config.as_ref())?;
    let loaded = config::load(&sources).map_err(|error| Failure::Usage(error.to_string()))?;
    telemetry::init(&loaded.config.log).map_err(|error| Failure::fault("starting the log", &error))?;
    let asked = asked(args);
    let wishes = Wishes::of(asked.as_deref()).map_err(|error| Failure::Usage(error.message.into_owned()))?;
    let endpoint =
        args.server.as_deref().map(|server| endpoint(server, asked.as_deref(), args)).transpose()?;
    let outcome = runtime.block_on(async {
        let (shutdown, _) = house::stop_on_signal(Duration::ZERO)?;
        match endpoint {
            Some(endpoint) => be_bridge(endpoint, shutdown).await,
            None => serve(&loaded.config, args.agent.as_deref().unwrap_or(AGENT), wishes, shutdown).await,
        }
    });
    // A thread that reads standard input goes on until there is some: it is not waited for.
    runtime.shutdown_background();
    outcome
}

/// Serve one host on data of its own. Who has the pipes has the data: nothing is to be proven.
async fn serve(config: &Config, agent: &str, wishes: Wishes, shutdown: Shutdown) -> Result<(), Failure> {
    let identity = Identity::Development;
    identity.authenticate(Some(agent)).map_err(|refused| {
        let why = match refused {
            Unauthenticated::Missing => "an agent id is not empty",
            Unauthenticated::Refused { why } | Unauthenticated::Unsigned { why } => why,
        };
        Failure::Usage(format!("--agent: expected an agent's id: {why}"))
    })?;
    let house = house::open(config, identity, &shutdown, IN_USE)?;
    tracing::info!(data = %config.data.display(), agent, version = env!("CARGO_PKG_VERSION"), "ready");
    let served =
        stdio::serve(house.mcp.clone(), Some(agent), wishes, BufReader::new(stdin()), stdout()).await;
    house::stop(house.desk).await?;
    served.map_err(|error| Failure::fault("speaking over standard input and output", &error))
}

/// How the host wants to be served, as the address of a server says it.
fn asked(args: &Args) -> Option<String> {
    let profile = args.profile.as_ref().map(|profile| format!("profile={profile}"));
    let wait = args.wait_seconds.map(|seconds| format!("wait_seconds={seconds}"));
    let all: Vec<String> = profile.into_iter().chain(wait).collect();
    (!all.is_empty()).then(|| all.join("&"))
}

fn endpoint(server: &str, asked: Option<&str>, args: &Args) -> Result<Endpoint, Failure> {
    let variable = || match std::env::var("HANDOVER_TOKEN") {
        Ok(token) if token.is_empty() => Ok(None),
        Ok(token) => Ok(Some(token)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage("environment HANDOVER_TOKEN: expected text in UTF-8".to_owned()))
        }
    };
    let token = match &args.token {
        Some(token) => Some(token.clone()),
        None => variable()?,
    };
    let roots = fetch::system_roots();
    let server = match asked {
        None => server.to_owned(),
        // What the flags say counts: of two with a name, the server takes the last.
        Some(asked) if server.contains('?') => format!("{server}&{asked}"),
        Some(asked) => format!("{server}?{asked}"),
    };
    Endpoint::new(&server, token.as_deref(), roots)
        .map_err(|what| Failure::Usage(format!("--server: {what}")))
}

/// Be a bridge to a server. Whether it is there shows with the first request.
async fn be_bridge(endpoint: Endpoint, mut shutdown: Shutdown) -> Result<(), Failure> {
    if endpoint.token_is_in_the_clear() {
        tracing::warn!(server = endpoint.url(), "the token goes to another machine in the clear: use https");
    }
    tracing::info!(server = endpoint.url(), version = env!("CARGO_PKG_VERSION"), "ready");
    let served = bridge::serve(endpoint, shutdown.begun(), BufReader::new(stdin()), stdout()).await;
    served.map_err(|error| Failure::fault("speaking over standard input and output", &error))
}
