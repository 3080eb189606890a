//! MACP over gRPC: `macp.v1.MACPRuntimeService` on the kernel's sessions, and `handover.v1` beside it.
//!
//! In reading order:
//! - [`proto`]: the messages, made by the build script
//! - [`admit`]: from an envelope to a command
//! - [`render`]: from an event to an envelope
//! - [`refused`]: how a no looks
//! - [`service`]: the calls with one answer
//! - [`stream`]: the call `StreamSession`
//! - [`watch`]: the calls that go on: sessions, policies, signals
//! - [`what_if`]: a session under another policy
//! - [`discovery`]: what this runtime says of itself
//! - [`signals`]: what is told and not kept
//! - [`extra`]: our own service, for what MACP has no message for
//! - `line`: one line of the log for each call
//! - [`agents`]: the part of it that is about the directory of agents

pub mod admit;
pub mod agents;
pub mod discovery;
pub mod extra;
mod line;
pub mod proto;
pub mod refused;
pub mod render;
pub mod service;
pub mod signals;
pub mod stream;
pub mod watch;
pub mod what_if;

use std::sync::Arc;
use std::time::Duration;

use handover_kernel::command::{Act, Command};
use handover_kernel::{Face, Session};
use handover_store::SessionKey;
use tokio::net::TcpListener;
use tonic::{Code, Request, Status};

use self::admit::Admitted;
use self::proto::handover::handover_server::HandoverServer;
use self::proto::v1::Envelope;
use self::proto::v1::macp_runtime_service_server::MacpRuntimeServiceServer;
use self::refused::Refused;
use self::signals::Signals;
use crate::http::bearer;
use crate::http::line::{note, short};
use crate::tls::wire::Wire;
use handover_desk::Desk;
use handover_desk::directory::Present;
use handover_desk::gate::{Caller, Kind, Permit};
use handover_desk::identity::{Principal, Unauthenticated};
use handover_engine::Accepted;

/// How much larger than its payload a request may be.
const REQUEST_OVERHEAD_BYTES: usize = 64 * 1024;

/// How often a connection that says nothing is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The face: what every call needs. Cheap to clone.
#[derive(Clone)]
pub struct Macp {
    pub(crate) desk: Desk,
    pub(crate) signals: Signals,
}

/// What an open stream holds: its place among the agent's streams, and that the agent is there.
pub(crate) struct Stay {
    _permit: Permit,
    _present: Present,
}

impl Macp {
    /// The face of a desk.
    pub fn new(desk: Desk) -> Macp {
        Macp { desk, signals: Signals::default() }
    }

    /// Whose call it is: `authorization: Bearer <token>`, or `x-macp-token`.
    pub(crate) fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Refused> {
        let other = || request.metadata().get("x-macp-token").and_then(|value| value.to_str().ok());
        let token = bearer::token(request.metadata().as_ref()).or_else(other);
        let caller = self.desk.gate.authenticate(token, Face::Macp, request.remote_addr());
        caller.inspect(|caller| note("agent", caller.agent.as_str())).map_err(Refused::from)
    }

    /// Whose call it is, and its place among the agent's streams.
    pub(crate) fn listener<T>(&self, request: &Request<T>) -> Result<(Caller, Stay), Refused> {
        let caller = self.caller(request)?;
        let permit = self.desk.gate.stream(&caller)?;
        let present = self.desk.directory.present(&caller.tenant, &caller.agent);
        Ok((caller, Stay { _permit: permit, _present: present }))
    }

    /// Returns when what goes on for this agent must end, with the reason: the server stops, or its credential ends.
    pub(crate) async fn over(&self, principal: &Principal) -> Status {
        let mut shutdown = self.desk.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.begun() => Status::unavailable("the server is stopping"),
            () = principal.expired() => {
                Refused::from(Unauthenticated::Refused { why: "the token has expired" }).status()
            }
        }
    }

    /// Put an envelope of this agent to its session.
    pub(crate) async fn submit(&self, caller: &Caller, envelope: &Envelope) -> Result<Accepted, Refused> {
        note("session", short(&envelope.session_id));
        let starts = envelope.message_type == admit::SESSION_START;
        let pass = self.desk.gate.admit(caller, if starts { Kind::Start } else { Kind::Message })?;
        let admitted = admit::admit(caller, envelope);
        let admitted = admitted.inspect_err(|refused| self.note_impersonation(caller, refused));
        let (key, command) = match admitted? {
            Admitted::Command(key, command) => (key, *command),
            Admitted::Start(key, request) => {
                let mut command = request.command;
                if let Act::Start(start) = &mut command.act {
                    let charter =
                        self.desk.policies.charter(&caller.tenant, &request.policy, start.mode).await;
                    start.charter = charter.map_err(Refused::from)?;
                    if let Some(cap) = request.suspension_cap_ms {
                        start.charter.suspension_cap_ms = cap;
                    }
                }
                (key, command)
            }
        };
        self.desk.gate.submit(pass, key, command).await.map_err(Refused::from)
    }

    /// Note that an envelope says to be another agent's, if that is why it was refused.
    pub(crate) fn note_impersonation(&self, caller: &Caller, refused: &Refused) {
        if refused.grpc == Code::Unauthenticated {
            self.desk.gate.impersonated(caller);
        }
    }

    /// Put an act that is no envelope to a session.
    pub(crate) async fn act(&self, caller: &Caller, session_id: &str, act: Act) -> Result<Accepted, Refused> {
        note("session", short(session_id));
        let pass = self.desk.gate.admit(caller, Kind::Message)?;
        let command = Command::by(&caller.agent, Face::Macp, act).in_session_scope();
        let key = SessionKey::new(caller.tenant.clone(), session_id);
        self.desk.gate.submit(pass, key, command).await.map_err(Refused::from)
    }

    /// A session that the agent may see. One of its tenant that it has no part in is forbidden; any other does not exist.
    pub(crate) async fn session(&self, caller: &Caller, session_id: &str) -> Result<Arc<Session>, Refused> {
        note("session", short(session_id));
        self.desk.gate.session(caller, session_id).await.map_err(Refused::from)
    }

    /// Serve until the shutdown begins, then finish what is in flight. Health checking and reflection come with it.
    pub async fn serve(self, listener: TcpListener, wire: Wire) -> Result<(), tonic::transport::Error> {
        let request_max = self.desk.engine.limits().payload_bytes_max.saturating_add(REQUEST_OVERHEAD_BYTES);
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<MacpRuntimeServiceServer<Macp>>().await;
        health.set_serving::<HandoverServer<Macp>>().await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("the descriptors are those that the build script wrote");
        let mut shutdown = self.desk.shutdown.clone();
        let macp = MacpRuntimeServiceServer::new(self.clone()).max_decoding_message_size(request_max);
        let extra = HandoverServer::new(self).max_decoding_message_size(request_max);
        tonic::transport::Server::builder()
            // Whoever has gone without a word is noticed, so that its streams end.
            .http2_keepalive_interval(Some(PING_EVERY))
            .layer(line::Lines)
            .add_service(macp)
            .add_service(extra)
            .add_service(health_service)
            .add_service(reflection)
            .serve_with_incoming_shutdown(wire.connections(listener), async move {
                shutdown.begun().await;
            })
            .await
    }
}
