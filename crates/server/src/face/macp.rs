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
//! - `door`: who calls, before anything is read
//! - `quick`: the call `Send`, where it comes as it mostly does
//! - `whole`: messages that are passed on when they are whole
//! - `line`: one line of the log for each call
//! - `health`: whether it is ready, as gRPC asks for it
//! - [`agents`]: the part of it that is about the directory of agents

pub mod admit;
pub mod agents;
pub mod discovery;
mod door;
pub mod extra;
mod health;
mod line;
pub mod proto;
mod quick;
pub mod refused;
pub mod render;
pub mod service;
pub mod signals;
pub mod stream;
pub mod watch;
pub mod what_if;
mod whole;

use std::sync::Arc;

use handover_desk::caller::Caller;
use handover_desk::follow::{Over, Stay};
use handover_desk::limit::Kind;
use handover_desk::{Accepted, Desk, No};
use handover_kernel::command::{Act, Command};
use handover_kernel::{Face, Session};
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::{Code, Request, Status};
use tonic_health::pb::health_server::HealthServer;

use self::admit::{Admitted, StartRequest};
use self::door::{Door, Who};
use self::health::Healthy;
use self::proto::handover::handover_server::HandoverServer;
use self::proto::v1::macp_runtime_service_server::MacpRuntimeServiceServer;
use self::proto::v1::{self, Envelope};
use self::refused::Refused;
use crate::http::line::{note, short};
use crate::http::{Checks, Peer, listen};
use crate::telemetry::{Calls, Unread};

/// How much larger than its payload a request may be.
const REQUEST_OVERHEAD_BYTES: usize = 64 * 1024;

/// The face: what every call needs. Cheap to clone.
#[derive(Clone)]
pub struct Macp {
    pub(crate) desk: Desk,
    unread: Unread,
    counted: Arc<Calls>,
    checks: Option<Checks>,
}

impl Macp {
    /// The face of a desk, which counts what it does not read.
    pub fn new(desk: Desk, unread: Unread, counted: Arc<Calls>) -> Macp {
        Macp { desk, unread, counted, checks: None }
    }

    /// The same, which says that it is healthy where these checks pass.
    pub fn checked(self, checks: Checks) -> Macp {
        Macp { checks: Some(checks), ..self }
    }

    /// Whose call it is, as the door found it. Where the door lets everybody in, it is asked again, and noted.
    pub(crate) fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Refused> {
        if let Some(Who(who)) = request.extensions().get() {
            return who.as_ref().map(|caller| Caller::clone(caller)).map_err(Clone::clone);
        }
        let peer = request.extensions().get().map(|peer: &Peer| peer.address);
        let token = door::token(request.metadata().as_ref());
        let caller = self.desk.gate.authenticate(token, Face::Macp, peer)?;
        Ok(self.desk.gate.take_in(caller, 0)?)
    }

    /// Whose call it is, and its place among the agent's streams.
    pub(crate) fn listener<T>(&self, request: &Request<T>) -> Result<(Caller, Stay), Refused> {
        let caller = self.caller(request)?;
        let stay = self.desk.stay(&caller)?;
        Ok((caller, stay))
    }

    /// Answer a `Send` of whoever this is.
    pub(crate) async fn put(
        &self,
        caller: Result<&Caller, Refused>,
        envelope: Option<Envelope>,
    ) -> Result<v1::SendResponse, Status> {
        let Some(envelope) = envelope else {
            return Err(Refused::invalid("expected an envelope, found none").status());
        };
        let answer = match caller {
            Ok(caller) if signals::is_signal(&envelope) => {
                self.signal(caller, &envelope).await.map(|at| service::signal_ack(&envelope, at))
            }
            Ok(caller) => {
                let accepted = self.submit(caller, &envelope).await;
                accepted.map(|accepted| service::ack(&accepted, &envelope.session_id, &envelope.message_id))
            }
            Err(refused) => Err(refused),
        };
        let ack = answer.unwrap_or_else(|refused| refused.ack(&envelope.session_id, &envelope.message_id));
        Ok(v1::SendResponse { ack: Some(ack) })
    }

    /// Put an envelope of this agent to its session.
    pub(crate) async fn submit(&self, caller: &Caller, envelope: &Envelope) -> Result<Accepted, Refused> {
        note("session", short(&envelope.session_id));
        let starts = envelope.message_type == admit::SESSION_START;
        let pass = self.desk.gate.admit(caller, if starts { Kind::Start } else { Kind::Message })?;
        let admitted = admit::admit(caller, envelope);
        let admitted = admitted.inspect_err(|refused| self.note_impersonation(caller, refused));
        let command = match admitted? {
            Admitted::Command(command) => *command,
            Admitted::Start(request) => self.with_charter(caller, &envelope.session_id, *request).await?,
            Admitted::Unreadable(refused) => {
                self.desk.must_hear(caller, &envelope.session_id).await?;
                return Err(refused);
            }
        };
        Ok(self.desk.submit(pass, &envelope.session_id, command).await?)
    }

    /// A start, bound to the policy that it names.
    async fn with_charter(
        &self,
        caller: &Caller,
        session_id: &str,
        request: StartRequest,
    ) -> Result<Command, Refused> {
        let mut command = request.command;
        if let Act::Start(start) = &mut command.act {
            start.charter = self.desk.charter(caller, session_id, start).await?;
            if let Some(cap) = request.suspension_cap_ms {
                start.charter.suspension_cap_ms = cap;
            }
        }
        Ok(command)
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
        let command = caller.command(act);
        Ok(self.desk.put(caller, session_id, command).await?)
    }

    /// A session that the agent may see. One of its tenant that it has no part in is forbidden; any other does not exist.
    pub(crate) async fn session(&self, caller: &Caller, session_id: &str) -> Result<Arc<Session>, Refused> {
        note("session", short(session_id));
        Ok(self.desk.session(caller, session_id).await?)
    }

    /// Serve until the shutdown begins, then finish what is in flight. Health checking and reflection come with it.
    pub async fn serve(self, listener: TcpListener, settings: listen::Settings) {
        let request_max = self.desk.limits().payload_bytes_max.saturating_add(REQUEST_OVERHEAD_BYTES);
        let health = HealthServer::new(Healthy::new(self.checks.clone(), self.desk.shutdown.clone()));
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let good = "the descriptors are those that the build script wrote";
        let (reflection, old_reflection) =
            (reflection().build_v1().expect(good), reflection().build_v1alpha().expect(good));
        let (face, counted) = (self.clone(), Arc::clone(&self.counted));
        // What a message is after it has been decompressed has the same limit.
        let macp = MacpRuntimeServiceServer::new(self.clone())
            .max_decoding_message_size(request_max)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let extra = HandoverServer::new(self)
            .max_decoding_message_size(request_max)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let calls = Routes::new(macp)
            .add_service(extra)
            .add_service(health)
            .add_service(reflection)
            .add_service(old_reflection)
            .prepare()
            .into_axum_router();
        let shutdown = face.desk.shutdown.clone();
        let door = Door::new(calls, face, request_max, settings.limits.body_within);
        // gRPC is HTTP/2 alone.
        let settings = listen::Settings { http_1: false, ..settings };
        listen::serve(listener, settings, line::Lined::new(door, counted), shutdown).await;
    }
}

/// Why a stream ends, as a status.
pub(crate) fn ended(over: Over) -> Status {
    match over {
        Over::Stopping => Status::unavailable("the server is stopping"),
        Over::Unauthenticated(ended) => Refused::from(ended).status(),
        Over::Lagging => {
            let message = "the reader did not keep up: begin again after the last envelope that it got";
            Refused::new("STREAM_LAGGED", Code::ResourceExhausted, message).status()
        }
        Over::Denied(denied) => Refused::from(No::from(denied)).status(),
    }
}
