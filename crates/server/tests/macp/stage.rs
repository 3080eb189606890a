//! A server to play on, its clients, and short words for what the cast sends.
//!
//! The cast: `planner` asks for work, `worker` and `helper` do it, `outsider` has no part in anything.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use handover_desk::gate;
use handover_desk::identity::Identity;
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::{Data, Desk};
use handover_engine::Settings;
use handover_server::config::Config;
use handover_server::face::macp::admit::{HANDOFF_MODE, TASK_MODE};
use handover_server::face::macp::proto::handoff::{HandoffAcceptPayload, HandoffOfferPayload};
use handover_server::face::macp::proto::handover::handover_client::HandoverClient;
use handover_server::face::macp::proto::handover::{
    AnswerRequest, PauseRequest, QuestionAnswer, ReadTimelineRequest, SteerRequest, TimelineEvent,
    question_answer,
};
use handover_server::face::macp::proto::task::{
    TaskAcceptPayload, TaskCompletePayload, TaskRejectPayload, TaskRequestPayload, TaskUpdatePayload,
};
use handover_server::face::macp::proto::v1::macp_runtime_service_client::MacpRuntimeServiceClient;
use handover_server::face::macp::proto::v1::stream_session_response::Response as Frame;
use handover_server::face::macp::proto::v1::{
    Ack, CancelSessionRequest, CommitmentPayload, Envelope, MacpError, PolicyDescriptor, ProgressPayload,
    RegisterPolicyRequest, ResumeSessionRequest, SendRequest, SessionStartPayload, SignalPayload,
    StreamSessionRequest, StreamSessionResponse, SuspendSessionRequest, WatchPoliciesRequest,
    WatchSessionsRequest, WatchSignalsRequest, WatchSignalsResponse,
};
use handover_server::face::{grid, mcp};
use handover_server::house::{self, House};
use handover_server::http::{Checks, Probe, listen};
use handover_server::telemetry::Metrics;
use handover_server::tls::wire::Wire;
use handover_store::{Fault, SqliteStore, Store};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

#[allow(dead_code, reason = "no play needs all of it")]
#[path = "../../../store/tests/postgres/mod.rs"]
pub mod database;

pub use database::{empty as empty_store, events as events_of};

/// How long anything may take before a play has failed: long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The session of most plays.
pub const SESSION: &str = "the-session-of-most-plays";
/// The name of every task.
pub const TASK: &str = "t1";
/// The name of every handoff.
pub const HANDOFF: &str = "h1";

/// A play that hangs has failed.
pub async fn in_time<T>(play: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, play).await.expect("waited in vain")
}

/// The data in a directory. Whoever still reads for the stage before, on a thread of its own, has it open until then.
async fn opened(dir: &Path) -> SqliteStore {
    loop {
        match SqliteStore::open(dir) {
            Err(Fault::InUse { .. }) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
}

/// A server that ends with the play.
pub struct Stage {
    pub channel: Channel,
    pub uri: String,
    pub store: Arc<dyn Store>,
    pub metrics: Arc<Metrics>,
    pub desk: Desk,
    trigger: Trigger,
    serving: JoinHandle<()>,
}

impl Stage {
    /// On an empty store.
    pub async fn in_memory() -> Stage {
        Stage::with(empty_store(), Settings::default()).await
    }

    pub async fn on_disk(dir: &Path) -> Stage {
        Stage::with(Arc::new(in_time(opened(dir)).await), Settings::default()).await
    }

    pub async fn with(store: Arc<dyn Store>, settings: Settings) -> Stage {
        Stage::for_known(Identity::Development, store, settings).await
    }

    /// A server for those whom it knows, by tokens that are in no way their names.
    pub async fn for_known(identity: Identity, store: Arc<dyn Store>, settings: Settings) -> Stage {
        let gate = house::gate_settings(&Config::default().limits, &identity);
        Stage::with_limits(identity, store, settings, gate).await
    }

    /// A server whose gate has these limits.
    pub async fn with_limits(
        identity: Identity,
        store: Arc<dyn Store>,
        engine: Settings,
        gate: gate::Settings,
    ) -> Stage {
        Stage::of(identity, store, handover_desk::Settings { engine, gate, ..Default::default() }).await
    }

    pub async fn of(identity: Identity, store: Arc<dyn Store>, settings: handover_desk::Settings) -> Stage {
        Stage::checked(identity, store, settings, Vec::new()).await
    }

    /// A server that is ready while these say so.
    pub async fn checked(
        identity: Identity,
        store: Arc<dyn Store>,
        settings: handover_desk::Settings,
        probes: Vec<Probe>,
    ) -> Stage {
        let (trigger, shutdown) = Shutdown::new();
        let mcp = mcp::Settings::new(&Config::default());
        let data = Data::Store(Arc::clone(&store));
        let house =
            House::with(data, settings, mcp, grid::Settings::new(&Config::default()), identity, shutdown)
                .unwrap();
        let House { desk, macp: face, metrics, .. } = house;
        let face = face.checked(Checks::new(probes));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving =
            tokio::spawn(async move { face.serve(listener, listen::Settings::new(Wire::Plain)).await });
        let uri = format!("http://{address}");
        let channel = in_time(Channel::from_shared(uri.clone()).unwrap().connect()).await.unwrap();
        Stage { channel, uri, store, metrics, desk, trigger, serving }
    }

    /// A number of the server, as its operator reads it: the whole name with its labels.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.to_text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("expected the metric {name}")).parse().unwrap()
    }

    /// A client with this token: its name in development.
    pub fn agent(&self, name: &str) -> Agent {
        client(&self.channel, name)
    }

    /// A client without a token.
    pub fn nobody(&self) -> Agent {
        Agent::new(&self.channel, "", Token(None))
    }

    /// Everything that was ever written: if it does not change, nothing left a trace.
    pub fn written(&self) -> u64 {
        events_of(&*self.store)
    }

    /// A session of `planner` in which nothing has been requested.
    pub async fn started(&self, session: &str) {
        self.agent("planner").ok(envelope(session, start())).await;
    }

    /// A task that waits for whoever accepts first.
    pub async fn requested(&self, session: &str) {
        self.started(session).await;
        self.agent("planner").ok(envelope(session, request())).await;
    }

    /// A task that `worker` works on.
    pub async fn working(&self, session: &str) {
        self.requested(session).await;
        self.agent("worker").ok(envelope(session, accept())).await;
    }

    /// A task whose end `worker` has reported.
    pub async fn reported(&self, session: &str) {
        self.working(session).await;
        self.agent("worker").ok(envelope(session, complete())).await;
    }

    /// A handoff from `planner` that `worker` has not answered.
    pub async fn offered(&self, session: &str) {
        let planner = self.agent("planner");
        planner.ok(envelope(session, start()).of_handoff()).await;
        planner.ok(envelope(session, offer())).await;
    }

    /// Begin the shutdown, without waiting for it.
    pub fn begin_stop(&self) {
        self.trigger.begin();
    }

    /// Stop, and give the store back.
    pub async fn stop(self) {
        let Stage { channel, store, desk, trigger, serving, .. } = self;
        drop(channel);
        trigger.begin();
        in_time(serving).await.unwrap();
        tokio::task::spawn_blocking(move || desk.stop()).await.unwrap();
        drop(store);
    }
}

/// Puts the token on every call.
#[derive(Clone)]
pub struct Token(Option<String>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            let token = MetadataValue::try_from(token.as_str()).unwrap();
            request.metadata_mut().insert("authorization", token);
        }
        Ok(request)
    }
}

type Called = InterceptedService<Channel, Token>;

/// A client.
#[derive(Clone)]
pub struct Agent {
    pub name: String,
    pub macp: MacpRuntimeServiceClient<Called>,
    pub handover: HandoverClient<Called>,
}

/// A client with this token on a connection of its own.
pub fn client(channel: &Channel, name: &str) -> Agent {
    Agent::new(channel, name, Token(Some(format!("Bearer {name}"))))
}

impl Agent {
    fn new(channel: &Channel, name: &str, token: Token) -> Agent {
        Agent {
            name: name.to_owned(),
            macp: MacpRuntimeServiceClient::with_interceptor(channel.clone(), token.clone()),
            handover: HandoverClient::with_interceptor(channel.clone(), token),
        }
    }

    pub async fn send(&self, envelope: Envelope) -> Ack {
        let sent = self.macp.clone().send(SendRequest { envelope: Some(envelope) }).await;
        sent.unwrap().into_inner().ack.unwrap()
    }

    pub async fn ok(&self, envelope: Envelope) -> Ack {
        let told = format!("{}: {} of {}", self.name, envelope.message_type, envelope.session_id);
        let ack = self.send(envelope).await;
        assert!(ack.ok, "{told}: {ack:?}");
        ack
    }

    pub async fn refused(&self, envelope: Envelope) -> MacpError {
        let ack = self.send(envelope).await;
        assert!(!ack.ok, "{ack:?}");
        ack.error.unwrap()
    }

    /// The answers to cancelling, suspending and resuming a session.
    pub async fn controls(&self, session: &str) -> [Ack; 3] {
        [self.cancel(session).await, self.suspend(session).await, self.resume(session).await]
    }

    pub async fn cancel(&self, session: &str) -> Ack {
        self.macp.clone().cancel_session(cancel(session)).await.unwrap().into_inner().ack.unwrap()
    }

    pub async fn suspend(&self, session: &str) -> Ack {
        self.macp.clone().suspend_session(suspend(session)).await.unwrap().into_inner().ack.unwrap()
    }

    pub async fn resume(&self, session: &str) -> Ack {
        self.macp.clone().resume_session(resume(session)).await.unwrap().into_inner().ack.unwrap()
    }

    /// A stream, and the sender of its frames.
    pub async fn stream(&self) -> (mpsc::Sender<StreamSessionRequest>, Listening) {
        let (frames, requests) = mpsc::channel(16);
        let mut macp = self.macp.clone();
        let answer = in_time(macp.stream_session(ReceiverStream::new(requests))).await;
        let stream = answer.unwrap().into_inner();
        (frames, Listening(stream))
    }

    /// A stream that is bound to a session, from behind this ordinal on.
    pub async fn subscribed(
        &self,
        session: &str,
        after: u64,
    ) -> (mpsc::Sender<StreamSessionRequest>, Listening) {
        let (frames, listening) = self.stream().await;
        frames.send(subscribe(session, after)).await.unwrap();
        (frames, listening)
    }

    pub async fn signals(&self) -> Hearing {
        let answer = in_time(self.macp.clone().watch_signals(watch_signals())).await;
        Hearing(answer.unwrap().into_inner())
    }

    /// Everything that happened in a session.
    pub async fn timeline(&self, session: &str) -> Vec<TimelineEvent> {
        self.handover.clone().read_timeline(timeline(session, 0, 1000)).await.unwrap().into_inner().events
    }

    /// The kinds of everything that happened in a session.
    pub async fn kinds(&self, session: &str) -> Vec<String> {
        self.timeline(session).await.into_iter().map(|event| event.kind).collect()
    }

    /// Wait until this has happened in a session so many times.
    pub async fn until_happened(&self, session: &str, kind: &str, times: usize) {
        in_time(async {
            while self.kinds(session).await.iter().filter(|found| *found == kind).count() < times {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// The answers of `StreamSession`.
pub struct Listening(Streaming<StreamSessionResponse>);

impl Listening {
    pub async fn next(&mut self) -> Result<Option<Frame>, Status> {
        Ok(in_time(self.0.message()).await?.map(|answer| answer.response.unwrap()))
    }

    pub async fn envelope(&mut self) -> Envelope {
        match self.next().await.unwrap().unwrap() {
            Frame::Envelope(envelope) => envelope,
            Frame::Error(error) => panic!("expected an envelope, found {error:?}"),
        }
    }

    pub async fn error(&mut self) -> MacpError {
        match self.next().await.unwrap().unwrap() {
            Frame::Error(error) => error,
            Frame::Envelope(envelope) => panic!("expected an error, found {envelope:?}"),
        }
    }

    /// The types of the next envelopes.
    pub async fn types(&mut self, count: usize) -> Vec<String> {
        let mut types = Vec::new();
        while types.len() < count {
            types.push(self.envelope().await.message_type);
        }
        types
    }
}

/// The answers of `WatchSignals`.
pub struct Hearing(Streaming<WatchSignalsResponse>);

impl Hearing {
    pub async fn next(&mut self) -> Result<Option<WatchSignalsResponse>, Status> {
        in_time(self.0.message()).await
    }

    /// The type and the text of the next signal.
    pub async fn heard(&mut self) -> (String, String) {
        let envelope = self.next().await.unwrap().unwrap().envelope.unwrap();
        let payload = SignalPayload::decode(envelope.payload.as_slice()).unwrap();
        (payload.signal_type, String::from_utf8(payload.data).unwrap())
    }
}

/// A payload that knows what it is called.
pub trait Payload: Message {
    const MODE: &str;
    const TYPE: &str;
}

macro_rules! payloads {
    ($($payload:ty: $mode:expr, $name:literal;)+) => {$(
        impl Payload for $payload {
            const MODE: &str = $mode;
            const TYPE: &str = $name;
        }
    )+};
}

payloads! {
    SessionStartPayload: TASK_MODE, "SessionStart";
    TaskRequestPayload: TASK_MODE, "TaskRequest";
    TaskAcceptPayload: TASK_MODE, "TaskAccept";
    TaskRejectPayload: TASK_MODE, "TaskReject";
    TaskUpdatePayload: TASK_MODE, "TaskUpdate";
    TaskCompletePayload: TASK_MODE, "TaskComplete";
    CommitmentPayload: TASK_MODE, "Commitment";
    HandoffOfferPayload: HANDOFF_MODE, "HandoffOffer";
    HandoffAcceptPayload: HANDOFF_MODE, "HandoffAccept";
    SignalPayload: "", "Signal";
    ProgressPayload: "", "Progress";
}

/// An envelope with a message id of its own.
pub fn envelope<P: Payload>(session: &str, payload: P) -> Envelope {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Envelope {
        macp_version: "1.0".to_owned(),
        mode: P::MODE.to_owned(),
        message_type: P::TYPE.to_owned(),
        message_id: format!("m{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        session_id: session.to_owned(),
        sender: String::new(),
        timestamp_unix_ms: 0,
        payload: payload.encode_to_vec(),
    }
}

/// Changes to an envelope.
pub trait With {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
}

impl<T> With for T {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> T {
        change(&mut self);
        self
    }
}

/// The messages that both modes have.
pub trait OfHandoff {
    fn of_handoff(self) -> Self;
}

impl OfHandoff for Envelope {
    fn of_handoff(self) -> Envelope {
        self.with(|envelope| envelope.mode = HANDOFF_MODE.to_owned())
    }
}

pub fn start() -> SessionStartPayload {
    SessionStartPayload {
        intent: "a play".to_owned(),
        participants: ["planner", "worker", "helper"].map(str::to_owned).to_vec(),
        mode_version: "1.0.0".to_owned(),
        configuration_version: "stage.1".to_owned(),
        ttl_ms: 60_000,
        ..SessionStartPayload::default()
    }
}

pub fn request() -> TaskRequestPayload {
    TaskRequestPayload {
        task_id: TASK.to_owned(),
        title: "sum up the quarter".to_owned(),
        instructions: "read the numbers, write a page".to_owned(),
        input: b"{}".to_vec(),
        ..TaskRequestPayload::default()
    }
}

pub fn accept() -> TaskAcceptPayload {
    TaskAcceptPayload { task_id: TASK.to_owned(), ..TaskAcceptPayload::default() }
}

pub fn reject() -> TaskRejectPayload {
    TaskRejectPayload { task_id: TASK.to_owned(), ..TaskRejectPayload::default() }
}

pub fn update(status: &str) -> TaskUpdatePayload {
    TaskUpdatePayload {
        task_id: TASK.to_owned(),
        status: status.to_owned(),
        progress: 0.5,
        ..TaskUpdatePayload::default()
    }
}

pub fn ask(question: &str) -> TaskUpdatePayload {
    update("input_required").with(|update| update.message = question.to_owned())
}

pub fn complete() -> TaskCompletePayload {
    TaskCompletePayload {
        task_id: TASK.to_owned(),
        output: b"a page".to_vec(),
        ..TaskCompletePayload::default()
    }
}

pub fn commit() -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: "c1".to_owned(),
        action: "task.completed".to_owned(),
        authority_scope: "task".to_owned(),
        reason: "as reported".to_owned(),
        mode_version: "1.0.0".to_owned(),
        policy_version: String::new(),
        configuration_version: "stage.1".to_owned(),
        outcome_positive: true,
        supersedes: None,
    }
}

pub fn offer() -> HandoffOfferPayload {
    HandoffOfferPayload {
        handoff_id: HANDOFF.to_owned(),
        target_participant: "worker".to_owned(),
        scope: "the garden".to_owned(),
        reason: "leaving".to_owned(),
    }
}

/// A signal about a session, or about nothing if it is empty.
pub fn signal(name: &str, about: &str) -> Envelope {
    let payload = SignalPayload {
        signal_type: name.to_owned(),
        data: Vec::new(),
        confidence: 1.0,
        correlation_session_id: about.to_owned(),
    };
    envelope("", payload)
}

pub fn subscribe(session: &str, after: u64) -> StreamSessionRequest {
    StreamSessionRequest { envelope: None, subscribe_session_id: session.to_owned(), after_sequence: after }
}

pub fn frame(envelope: Envelope) -> StreamSessionRequest {
    StreamSessionRequest { envelope: Some(envelope), subscribe_session_id: String::new(), after_sequence: 0 }
}

/// The code of a gRPC status in MACP's words.
pub fn macp_code(status: &Status) -> &str {
    status.metadata().get("macp-error-code").map_or("", |code| code.to_str().unwrap())
}

pub fn suspend(session: &str) -> SuspendSessionRequest {
    SuspendSessionRequest { session_id: session.to_owned(), reason: "lunch".to_owned() }
}

pub fn resume(session: &str) -> ResumeSessionRequest {
    ResumeSessionRequest { session_id: session.to_owned(), reason: "back".to_owned() }
}

pub fn cancel(session: &str) -> CancelSessionRequest {
    CancelSessionRequest { session_id: session.to_owned(), reason: "not needed".to_owned() }
}

pub fn steer(session: &str, message: &str) -> SteerRequest {
    SteerRequest { session_id: session.to_owned(), message: message.to_owned(), message_id: String::new() }
}

pub fn answer(session: &str, key: &str, content: &str) -> AnswerRequest {
    let reply = Some(question_answer::Reply::Content(content.as_bytes().to_vec()));
    let answers = vec![QuestionAnswer { key: key.to_owned(), reply }];
    AnswerRequest { session_id: session.to_owned(), answers, message_id: String::new() }
}

pub fn pause(session: &str) -> PauseRequest {
    PauseRequest { session_id: session.to_owned(), reason: "lunch".to_owned() }
}

pub fn timeline(session: &str, after_sequence: u64, page_size: u32) -> ReadTimelineRequest {
    ReadTimelineRequest { session_id: session.to_owned(), after_sequence, page_size }
}

pub fn watch_signals() -> WatchSignalsRequest {
    WatchSignalsRequest {}
}

pub fn watch_sessions() -> WatchSessionsRequest {
    WatchSessionsRequest {}
}

pub fn watch_policies() -> WatchPoliciesRequest {
    WatchPoliciesRequest {}
}

pub fn policy(id: &str, mode: &str, rules: &str) -> RegisterPolicyRequest {
    let policy_descriptor = Some(PolicyDescriptor {
        policy_id: id.to_owned(),
        mode: mode.to_owned(),
        rules: rules.to_owned(),
        schema_version: 1,
        ..PolicyDescriptor::default()
    });
    RegisterPolicyRequest { policy_descriptor }
}
