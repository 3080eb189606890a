//! The calls with one answer.

use std::pin::Pin;

use futures_core::Stream;
use handover_kernel::Text;
use handover_kernel::command::Act;
use tonic::{Code, Request, Response, Status, Streaming};

use super::Macp;
use super::admit::{self, MACP_VERSION};
use super::proto::v1::macp_runtime_service_server::MacpRuntimeService;
use super::proto::v1::{self, Ack};
use super::refused::Refused;
use super::{discovery, render};
use crate::http::line::note;
use handover_desk::Accepted;
use handover_desk::caller::Caller;
use handover_desk::clock::now;
use handover_desk::errands::not_moved;
use handover_desk::look::Query;
use handover_desk::policies::Policy;

/// How many sessions a page has if the caller does not say, and at most.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1000;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl MacpRuntimeService for Macp {
    async fn initialize(
        &self,
        request: Request<v1::InitializeRequest>,
    ) -> Result<Response<v1::InitializeResponse>, Status> {
        let versions = request.into_inner().supported_protocol_versions;
        if !versions.iter().any(|version| version == MACP_VERSION) {
            let found =
                versions.iter().take(8).map(|version| admit::clip(version)).collect::<Vec<_>>().join(", ");
            let message =
                format!("expected protocol version {MACP_VERSION} among those offered, found: {found}");
            return Err(Refused::new("UNSUPPORTED_PROTOCOL_VERSION", Code::InvalidArgument, message).status());
        }
        Ok(Response::new(discovery::initialized()))
    }

    async fn send(&self, request: Request<v1::SendRequest>) -> Result<Response<v1::SendResponse>, Status> {
        let caller = self.caller(&request);
        self.put(caller.as_ref().map_err(Clone::clone), request.into_inner().envelope)
            .await
            .map(Response::new)
    }

    type StreamSessionStream = Answers<v1::StreamSessionResponse>;

    async fn stream_session(
        &self,
        request: Request<Streaming<v1::StreamSessionRequest>>,
    ) -> Result<Response<Self::StreamSessionStream>, Status> {
        let (caller, stay) = self.listener(&request)?;
        Ok(Response::new(self.clone().stream(caller, stay, request.into_inner())))
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::GetSessionResponse>, Status> {
        let caller = self.caller(&request)?;
        let id = request.into_inner().session_id;
        let session = self.session(&caller, &id).await?;
        let mut answer = Response::new(v1::GetSessionResponse { metadata: Some(render::metadata(&session)) });
        let assigned = session.task().and_then(|task| task.phase.assignee()) == Some(&caller.agent);
        if assigned
            && let Some(trace) = self.desk.trace_for_worker(&caller, &session).await
            && let Ok(parent) = trace.parent.parse()
        {
            answer.metadata_mut().insert("traceparent", parent);
        }
        Ok(answer)
    }

    async fn cancel_session(
        &self,
        request: Request<v1::CancelSessionRequest>,
    ) -> Result<Response<v1::CancelSessionResponse>, Status> {
        let caller = self.caller(&request);
        let message = request.into_inner();
        let act = Act::cancel(message.reason);
        let ack = Some(self.control(&caller, &message.session_id, act).await);
        Ok(Response::new(v1::CancelSessionResponse { ack }))
    }

    async fn suspend_session(
        &self,
        request: Request<v1::SuspendSessionRequest>,
    ) -> Result<Response<v1::SuspendSessionResponse>, Status> {
        let caller = self.caller(&request);
        let message = request.into_inner();
        let act = Act::Pause { reason: Text::from(message.reason), gently: false };
        let ack = Some(self.control(&caller, &message.session_id, act).await);
        Ok(Response::new(v1::SuspendSessionResponse { ack }))
    }

    async fn resume_session(
        &self,
        request: Request<v1::ResumeSessionRequest>,
    ) -> Result<Response<v1::ResumeSessionResponse>, Status> {
        let caller = self.caller(&request);
        let message = request.into_inner();
        let act = Act::Resume { reason: Text::from(message.reason) };
        let ack = Some(self.control(&caller, &message.session_id, act).await);
        Ok(Response::new(v1::ResumeSessionResponse { ack }))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let max = page_size(message.page_size)?;
        let query = Query::default();
        let page = self.desk.sessions(&caller, query, some(&message.page_token), max).await;
        let (sessions, next) = page.map_err(Refused::from)?;
        let sessions = sessions.iter().map(|session| render::metadata(session)).collect();
        let next_page_token = next.unwrap_or_default();
        Ok(Response::new(v1::ListSessionsResponse { sessions, next_page_token }))
    }

    type WatchSessionsStream = Answers<v1::WatchSessionsResponse>;

    async fn watch_sessions(
        &self,
        request: Request<v1::WatchSessionsRequest>,
    ) -> Result<Response<Self::WatchSessionsStream>, Status> {
        let (caller, stay) = self.listener(&request)?;
        Ok(Response::new(self.clone().follow_sessions(caller, stay)))
    }

    async fn get_manifest(
        &self,
        request: Request<v1::GetManifestRequest>,
    ) -> Result<Response<v1::GetManifestResponse>, Status> {
        let id = request.get_ref().agent_id.as_str();
        if id.is_empty() || id == discovery::RUNTIME_ID {
            return Ok(Response::new(v1::GetManifestResponse { manifest: Some(discovery::manifest()) }));
        }
        let caller = self.caller(&request)?;
        match self.desk.agent(&caller, id).await.map_err(Refused::from)? {
            Some(agent) => {
                let manifest = Some(discovery::agent_manifest(&agent));
                Ok(Response::new(v1::GetManifestResponse { manifest }))
            }
            None => {
                let message = "expected the id of a known agent, or none for this runtime";
                Err(Refused::new("AGENT_NOT_FOUND", Code::NotFound, message).status())
            }
        }
    }

    async fn list_modes(
        &self,
        _: Request<v1::ListModesRequest>,
    ) -> Result<Response<v1::ListModesResponse>, Status> {
        Ok(Response::new(v1::ListModesResponse { modes: discovery::modes() }))
    }

    type WatchModeRegistryStream = Answers<v1::WatchModeRegistryResponse>;

    async fn watch_mode_registry(
        &self,
        request: Request<v1::WatchModeRegistryRequest>,
    ) -> Result<Response<Self::WatchModeRegistryStream>, Status> {
        let (caller, stay) = self.listener(&request)?;
        let change = v1::RegistryChanged { registry: "modes".to_owned(), observed_at_unix_ms: at() };
        let first = v1::WatchModeRegistryResponse { change: Some(change) };
        Ok(Response::new(Macp::once_and_wait(&caller, stay, first)))
    }

    async fn list_roots(
        &self,
        _: Request<v1::ListRootsRequest>,
    ) -> Result<Response<v1::ListRootsResponse>, Status> {
        Ok(Response::new(v1::ListRootsResponse { roots: Vec::new() }))
    }

    type WatchRootsStream = Answers<v1::WatchRootsResponse>;

    async fn watch_roots(
        &self,
        request: Request<v1::WatchRootsRequest>,
    ) -> Result<Response<Self::WatchRootsStream>, Status> {
        let (caller, stay) = self.listener(&request)?;
        let first = v1::WatchRootsResponse { change: Some(v1::RootsChanged { observed_at_unix_ms: at() }) };
        Ok(Response::new(Macp::once_and_wait(&caller, stay, first)))
    }

    async fn list_ext_modes(
        &self,
        _: Request<v1::ListExtModesRequest>,
    ) -> Result<Response<v1::ListExtModesResponse>, Status> {
        Err(Status::unimplemented(NO_EXTENSION_MODES))
    }

    async fn register_ext_mode(
        &self,
        _: Request<v1::RegisterExtModeRequest>,
    ) -> Result<Response<v1::RegisterExtModeResponse>, Status> {
        Err(Status::unimplemented(NO_EXTENSION_MODES))
    }

    async fn unregister_ext_mode(
        &self,
        _: Request<v1::UnregisterExtModeRequest>,
    ) -> Result<Response<v1::UnregisterExtModeResponse>, Status> {
        Err(Status::unimplemented(NO_EXTENSION_MODES))
    }

    async fn promote_mode(
        &self,
        _: Request<v1::PromoteModeRequest>,
    ) -> Result<Response<v1::PromoteModeResponse>, Status> {
        Err(Status::unimplemented(NO_EXTENSION_MODES))
    }

    type WatchSignalsStream = Answers<v1::WatchSignalsResponse>;

    async fn watch_signals(
        &self,
        request: Request<v1::WatchSignalsRequest>,
    ) -> Result<Response<Self::WatchSignalsStream>, Status> {
        let (caller, stay) = self.listener(&request)?;
        Ok(Response::new(self.clone().follow_signals(caller, stay)))
    }

    async fn register_policy(
        &self,
        request: Request<v1::RegisterPolicyRequest>,
    ) -> Result<Response<v1::RegisterPolicyResponse>, Status> {
        let caller = self.caller(&request)?;
        let by = self.desk.administer(&caller).map_err(Refused::from)?;
        let Some(descriptor) = request.into_inner().policy_descriptor else {
            return Err(Refused::invalid("expected a policy descriptor, found none").status());
        };
        let registered = match policy(descriptor) {
            Ok(policy) => self.desk.register_policy(by, policy).await.map_err(Refused::from),
            Err(refused) => Err(refused),
        };
        let error = in_band(registered)?;
        Ok(Response::new(v1::RegisterPolicyResponse { ok: error.is_empty(), error }))
    }

    async fn unregister_policy(
        &self,
        request: Request<v1::UnregisterPolicyRequest>,
    ) -> Result<Response<v1::UnregisterPolicyResponse>, Status> {
        let caller = self.caller(&request)?;
        let by = self.desk.administer(&caller).map_err(Refused::from)?;
        let id = request.into_inner().policy_id;
        let error = in_band(self.desk.unregister_policy(by, &id).await.map_err(Refused::from))?;
        Ok(Response::new(v1::UnregisterPolicyResponse { ok: error.is_empty(), error }))
    }

    async fn get_policy(
        &self,
        request: Request<v1::GetPolicyRequest>,
    ) -> Result<Response<v1::GetPolicyResponse>, Status> {
        let caller = self.caller(&request)?;
        let found = self.desk.policies.get(&caller.tenant, &request.into_inner().policy_id).await;
        let found = found.map_err(Refused::from)?;
        Ok(Response::new(v1::GetPolicyResponse { policy_descriptor: Some(descriptor(&found)) }))
    }

    async fn list_policies(
        &self,
        request: Request<v1::ListPoliciesRequest>,
    ) -> Result<Response<v1::ListPoliciesResponse>, Status> {
        let caller = self.caller(&request)?;
        let mode = request.into_inner().mode;
        let mut descriptors = self.descriptors(&caller.tenant).await?;
        descriptors.retain(|found| mode.is_empty() || found.mode == mode || found.mode == "*");
        Ok(Response::new(v1::ListPoliciesResponse { descriptors }))
    }

    type WatchPoliciesStream = Answers<v1::WatchPoliciesResponse>;

    async fn watch_policies(
        &self,
        request: Request<v1::WatchPoliciesRequest>,
    ) -> Result<Response<Self::WatchPoliciesStream>, Status> {
        let (caller, stay) = self.listener(&request)?;
        Ok(Response::new(self.clone().follow_policies(caller, stay)))
    }

    async fn what_if_replay(
        &self,
        request: Request<v1::WhatIfReplayRequest>,
    ) -> Result<Response<v1::WhatIfReplayResponse>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        // Whoever may not see the session is told that first.
        self.session(&caller, &message.session_id).await?;
        let Some(candidate) = message.candidate else {
            return Err(Refused::invalid("expected a candidate policy, found none").status());
        };
        let candidate = policy(candidate)?.descriptor();
        Ok(Response::new(self.what_if(&caller, &message.session_id, &candidate).await?))
    }

    async fn get_decision_receipt(
        &self,
        _: Request<v1::GetDecisionReceiptRequest>,
    ) -> Result<Response<v1::GetDecisionReceiptResponse>, Status> {
        Err(Status::unimplemented("this runtime does not issue decision receipts"))
    }

    async fn get_receipt_keys(
        &self,
        _: Request<v1::GetReceiptKeysRequest>,
    ) -> Result<Response<v1::GetReceiptKeysResponse>, Status> {
        Err(Status::unimplemented("this runtime does not issue decision receipts"))
    }
}

const NO_EXTENSION_MODES: &str = "this runtime serves Task Mode and Handoff Mode and no extension modes";

impl Macp {
    /// Cancel, suspend or resume. Every refusal but that of the token is an `Ack`, as for `Send`.
    async fn control(&self, caller: &Result<Caller, Refused>, session_id: &str, act: Act) -> Ack {
        let done = match caller {
            Ok(caller) => self.act(caller, session_id, act).await,
            Err(refused) => Err(refused.clone()),
        };
        match done {
            Ok(accepted) => ack(&accepted, session_id, ""),
            Err(refused) => refused.ack(session_id, ""),
        }
    }

    /// All policies of a tenant, as the wire shows them.
    pub(super) async fn descriptors(&self, tenant: &str) -> Result<Vec<v1::PolicyDescriptor>, Refused> {
        let policies = self.desk.policies.list(tenant).await.map_err(Refused::from)?;
        Ok(policies.iter().map(descriptor).collect())
    }
}

/// The answer to an accepted command.
pub(super) fn ack(accepted: &Accepted, session_id: &str, message_id: &str) -> Ack {
    Ack {
        ok: true,
        duplicate: accepted.receipt.duplicate,
        message_id: message_id.to_owned(),
        session_id: session_id.to_owned(),
        accepted_at_unix_ms: render::signed(accepted.receipt.at.0),
        session_state: render::state(accepted.standing()).into(),
        // What was accepted stays so; that it did not bring about all that it was to is said beside it.
        error: not_moved(&accepted.session)
            .map(|code| Refused::not_moved(code).error(session_id, message_id)),
    }
}

pub(super) fn signal_ack(envelope: &v1::Envelope, accepted_at_unix_ms: i64) -> Ack {
    Ack {
        ok: true,
        duplicate: false,
        message_id: envelope.message_id.clone(),
        session_id: envelope.session_id.clone(),
        accepted_at_unix_ms,
        session_state: v1::SessionState::Open.into(),
        error: None,
    }
}

/// What a registry says of a policy that it does not take: its answer has one text for it, which begins with the code. Empty
/// if it took it. Whatever is not about the policy is a status.
fn in_band(done: Result<(), Refused>) -> Result<String, Refused> {
    match done {
        Ok(()) => Ok(String::new()),
        Err(refused) if matches!(refused.code, "INVALID_POLICY_DEFINITION" | "UNKNOWN_POLICY_VERSION") => {
            note("code", refused.code);
            Ok(format!("{}: {}", refused.code, refused.message))
        }
        Err(refused) => Err(refused),
    }
}

/// A text that is there, where the wire has no other way to leave it out than empty.
pub(super) fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn page_size(found: i32) -> Result<usize, Refused> {
    match usize::try_from(found) {
        Ok(0) => Ok(PAGE_DEFAULT),
        Ok(size) => Ok(size.min(PAGE_MAX)),
        Err(_) => Err(Refused::invalid(format!("expected a page_size of 0 or more, found {found}"))),
    }
}

fn policy(found: v1::PolicyDescriptor) -> Result<Policy, Refused> {
    let mode = match found.mode.as_str() {
        "*" => String::new(),
        other => match admit::mode(other) {
            Some(mode) => mode.name().to_owned(),
            None => {
                let expected = format!("expected {}, {} or *", admit::TASK_MODE, admit::HANDOFF_MODE);
                let message = format!("{expected} as the mode of a policy, found {:?}", admit::clip(other));
                return Err(Refused::new("INVALID_POLICY_DEFINITION", Code::InvalidArgument, message));
            }
        },
    };
    Ok(Policy {
        id: found.policy_id,
        mode,
        description: found.description,
        // None are none, however that is said.
        rules: if found.rules.trim().is_empty() { "{}".to_owned() } else { found.rules },
        schema_version: found.schema_version,
        registered_at: now().0,
    })
}

fn descriptor(policy: &Policy) -> v1::PolicyDescriptor {
    use handover_kernel::policy::Scope;
    v1::PolicyDescriptor {
        policy_id: policy.id.clone(),
        mode: match policy.scope() {
            Scope::Mode(mode) => admit::mode_name(mode).to_owned(),
            Scope::Any => "*".to_owned(),
        },
        description: policy.description.clone(),
        rules: policy.rules.clone(),
        schema_version: policy.schema_version,
        registered_at_unix_ms: render::signed(policy.registered_at),
    }
}

fn at() -> i64 {
    render::signed(now().0)
}
