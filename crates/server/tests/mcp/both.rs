//! One server, two protocols: for plays in which agents of MCP and of MACP meet.

use handover_server::face::macp::proto::handover::{AgentSkill, AgentSkillAnswers, RegisterAgentRequest};
use handover_server::face::macp::proto::v1::Envelope;
use handover_server::http::listen::Settings;
use handover_server::tls::wire::Wire;
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use super::macp::{self, Agent, Hearing};
use super::scene::SKILL;
use super::stage::*;

/// A server with both faces.
pub struct Both {
    pub stage: Stage,
    channel: Channel,
    serving: JoinHandle<()>,
}

impl Both {
    pub async fn open() -> Both {
        Both::on(Stage::in_memory().await).await
    }

    /// With something changed.
    pub async fn with(change: impl FnOnce(&mut Set)) -> Both {
        Both::on(Stage::with(change).await).await
    }

    /// On this stage.
    pub async fn on(stage: Stage) -> Both {
        let face = stage.macp.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { face.serve(listener, Settings::new(Wire::Plain)).await });
        let channel = in_time(Channel::from_shared(uri).unwrap().connect()).await.unwrap();
        Both { stage, channel, serving }
    }

    pub fn macp(&self, name: &str) -> Agent {
        macp::client(&self.channel, name)
    }

    pub async fn stop(self) {
        let Both { stage, channel, serving } = self;
        drop(channel);
        stage.begin_stop();
        in_time(serving).await.unwrap();
        stage.stop().await;
    }
}

/// Everything that a MACP reader of a session is sent, from its beginning to this many envelopes.
pub async fn transcript(agent: &Agent, session: &str, count: usize) -> Vec<Envelope> {
    let (_frames, mut listening) = agent.subscribed(session, 0).await;
    let mut envelopes = Vec::new();
    while envelopes.len() < count {
        envelopes.push(listening.envelope().await);
    }
    envelopes
}

/// What an envelope carries.
pub fn payload<P: Message + Default>(envelope: &Envelope) -> P {
    P::decode(envelope.payload.as_slice()).unwrap()
}

/// A skill that an agent of MACP registers, which answers with a task.
pub fn macp_skill(input: &str, output: &str) -> RegisterAgentRequest {
    let skill = AgentSkill {
        name: SKILL.to_owned(),
        description: "digs a hole".to_owned(),
        input_schema: input.to_owned(),
        output_schema: output.to_owned(),
        answers: AgentSkillAnswers::Task.into(),
        ..AgentSkill::default()
    };
    RegisterAgentRequest { name: "Digger".to_owned(), skills: vec![skill], ..Default::default() }
}

/// The next signal must be of this type; what it says.
pub async fn hears(hearing: &mut Hearing, kind: &str) -> String {
    let (found, data) = hearing.heard().await;
    assert_eq!(found, kind);
    data
}
