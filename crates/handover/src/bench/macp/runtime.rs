//! Who is measured: a server of this very binary, or any runtime that is running already.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use handover_server::face::macp::proto::v1::macp_runtime_service_client::MacpRuntimeServiceClient;
use handover_server::face::macp::proto::v1::{Ack, Envelope, InitializeRequest, SendRequest, SessionState};
use serde_json::Value;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::script::{By, Ids, Line, Script};
use crate::Failure;

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How long our own server may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A server of this very binary. It does not outlive its owner.
pub struct Server {
    child: Child,
    /// Where it serves MACP.
    pub address: String,
    /// Where it serves HTTP.
    pub http: String,
    /// Where it tells its operator.
    pub admin: String,
}

impl Server {
    /// Start one and wait until it is ready.
    pub fn start(data: &Path) -> Result<Server, Failure> {
        Server::start_at(data, "127.0.0.1:0", &[])
    }

    /// The same with HTTP at an address, and with settings as variables. An empty one is not handed down.
    pub fn start_at(data: &Path, http: &str, settings: &[(&str, &str)]) -> Result<Server, Failure> {
        let fault = |error: std::io::Error| Failure::fault("starting a server", &error);
        let mut command = Command::new(std::env::current_exe().map_err(fault)?);
        for (name, value) in settings {
            match *value {
                "" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        let child = command
            .args(["serve", "--http", http, "--macp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json"])
            .args(["--log-level", "error", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let mut server = Server { child, address: String::new(), http: String::new(), admin: String::new() };
        let mut line = String::new();
        if let Some(out) = server.child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(fault)?;
        }
        let ready: Option<Value> = serde_json::from_str(&line).ok();
        let place = |name: &str| Some(ready.as_ref()?[name].as_str()?.to_owned());
        match (place("macp"), place("http"), place("admin")) {
            (Some(macp), Some(http), Some(admin)) => {
                (server.address, server.http, server.admin) = (macp, http, admin);
            }
            _ => return Err(Failure::Fault(format!("expected the server to be ready, found {line:?}"))),
        }
        Ok(server)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// End it there and then, as a crash would (SIGKILL).
    pub fn kill(mut self) -> Result<(), Failure> {
        let fault = |error: std::io::Error| Failure::fault("killing the server", &error);
        self.child.kill().map_err(fault)?;
        self.child.wait().map_err(fault)?;
        Ok(())
    }

    /// Ask it to stop and wait until it has. Says how long it took.
    pub fn stop(mut self) -> Result<Duration, Failure> {
        let fault = |error: std::io::Error| Failure::fault("stopping the server", &error);
        let asked = Instant::now();
        Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().map_err(fault)?;
        loop {
            match self.child.try_wait().map_err(fault)? {
                Some(status) if status.success() => return Ok(asked.elapsed()),
                Some(status) => {
                    return Err(Failure::Fault(format!(
                        "expected the server to stop in order, found {status}"
                    )));
                }
                None if asked.elapsed() > STOP_WITHIN => {
                    let message = format!("expected the server to stop within {STOP_WITHIN:?}");
                    return Err(Failure::Fault(message));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has stopped cannot be killed, and that is all that can go wrong.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// How both agents show who they are.
#[derive(Clone)]
pub struct Tokens {
    requester: AsciiMetadataValue,
    worker: AsciiMetadataValue,
}

impl Tokens {
    /// From the tokens as they were given.
    pub fn new(requester: &str, worker: &str) -> Result<Tokens, Failure> {
        let bearer = |token: &str| {
            let no_token = |_| Failure::Usage("expected a token of visible ASCII characters".to_owned());
            format!("Bearer {token}").parse::<AsciiMetadataValue>().map_err(no_token)
        };
        Ok(Tokens { requester: bearer(requester)?, worker: bearer(worker)? })
    }
}

/// One connection, shared by those who clone it.
#[derive(Clone)]
pub struct Caller {
    client: MacpRuntimeServiceClient<Channel>,
    tokens: Tokens,
}

impl Caller {
    /// Connect to `host:port` or `http://host:port`.
    pub async fn connect(target: &str, tokens: Tokens) -> Result<Caller, Failure> {
        let uri = if target.contains("://") { target.to_owned() } else { format!("http://{target}") };
        if !uri.starts_with("http://") {
            return Err(Failure::Usage(format!(
                "expected a runtime as host:port, without TLS, found {target}"
            )));
        }
        let expected = |error| {
            Failure::Usage(format!(
                "expected a runtime as host:port, found {target}: {}",
                crate::chain(&error)
            ))
        };
        let endpoint = Endpoint::from_shared(uri).map_err(expected)?;
        let channel = endpoint.connect_timeout(CONNECT_WITHIN).connect().await;
        let channel = channel.map_err(|error| Failure::fault(format!("connecting to {target}"), &error))?;
        Ok(Caller { client: MacpRuntimeServiceClient::new(channel), tokens })
    }

    /// What the runtime says it is: its name and version.
    pub async fn initialize(&mut self) -> Result<String, Failure> {
        let request = InitializeRequest {
            supported_protocol_versions: vec!["1.0".to_owned()],
            ..InitializeRequest::default()
        };
        let answer = self.client.initialize(self.request(By::Requester, request)).await;
        let info = answer.map_err(|status| failed("Initialize", &status))?.into_inner().runtime_info;
        Ok(info.map_or_else(|| "unnamed".to_owned(), |info| format!("{} {}", info.name, info.version)))
    }

    /// A request of one of the two.
    pub fn request<T>(&self, by: By, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let token = match by {
            By::Requester => &self.tokens.requester,
            By::Worker => &self.tokens.worker,
        };
        request.metadata_mut().insert("authorization", token.clone());
        request
    }

    /// The client of the connection.
    pub fn client(&mut self) -> &mut MacpRuntimeServiceClient<Channel> {
        &mut self.client
    }

    /// Send a line of a life. A refusal is a failure.
    pub async fn send(
        &mut self,
        script: &Script,
        line: &Line,
        session_id: &str,
        ids: &mut Ids,
    ) -> Result<(), Failure> {
        let envelope = script.envelope(line, session_id, ids.next());
        let ack = self.put(line.by, envelope).await?;
        let resolved = ack.session_state == SessionState::Resolved as i32;
        if line.message_type == "Commitment" && !resolved {
            let found = ack.session_state().as_str_name();
            return Err(Failure::Fault(format!(
                "expected the commitment to resolve its session, found {found}"
            )));
        }
        Ok(())
    }

    /// Send an envelope. A refusal is a failure, and so is a duplicate.
    pub async fn put(&mut self, by: By, envelope: Envelope) -> Result<Ack, Failure> {
        let what = &envelope.message_type.clone();
        let request = self.request(by, SendRequest { envelope: Some(envelope) });
        let answer = self.client.send(request).await.map_err(|status| failed(what, &status))?;
        match answer.into_inner().ack {
            Some(ack) if ack.ok && !ack.duplicate => Ok(ack),
            Some(ack) if ack.ok => {
                Err(Failure::Fault(format!("expected {what} to be new, found a duplicate")))
            }
            Some(ack) => {
                let error = ack.error.unwrap_or_default();
                Err(Failure::Fault(format!("{what} was refused: {}: {}", error.code, error.message)))
            }
            None => Err(Failure::Fault(format!("expected an Ack for {what}, found none"))),
        }
    }
}

/// A call that was not answered as a call is.
pub fn failed(what: &str, status: &Status) -> Failure {
    Failure::Fault(format!("{what} failed: {:?}: {}", status.code(), status.message()))
}
