//! The part of our own service that is about the directory: register, unregister, list.

use handover_kernel::{AgentId, Face};
use tonic::{Request, Response, Status};

use super::Macp;
use super::proto::handover::{
    AgentSkill, ListAgentsRequest, ListAgentsResponse, ListedAgent, RegisterAgentRequest,
    RegisterAgentResponse, UnregisterAgentRequest, UnregisterAgentResponse,
};
use super::refused::Refused;
use super::render::signed;
use super::service::some;
use handover_desk::directory::{Agent, Skill};
use handover_desk::gate::Caller;
use handover_desk::timeline;

/// How many agents a page has if the caller does not say, and at most.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1000;

impl Macp {
    pub(super) async fn register_own(
        &self,
        request: Request<RegisterAgentRequest>,
    ) -> Result<Response<RegisterAgentResponse>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let agent = Agent {
            name: message.name,
            description: message.description,
            skills: message.skills.into_iter().map(skill).collect(),
            visible_to: message.visible_to,
            faces: vec![timeline::face(Face::Macp).to_owned()],
            ..Agent::default()
        };
        let registered = self.desk.register(&caller, agent).await.map_err(Refused::from)?;
        Ok(Response::new(RegisterAgentResponse { changed: registered.changed }))
    }

    pub(super) async fn unregister_one(
        &self,
        request: Request<UnregisterAgentRequest>,
    ) -> Result<Response<UnregisterAgentResponse>, Status> {
        let caller = self.caller(&request)?;
        let UnregisterAgentRequest { agent_id, free_names } = request.into_inner();
        let removed = match free_names {
            true => self.desk.free_names(&caller, some(&agent_id).unwrap_or(caller.agent.as_str())).await,
            false => self.desk.unregister(&caller, some(&agent_id)).await,
        };
        let removed = removed.map_err(Refused::from)?;
        Ok(Response::new(UnregisterAgentResponse { removed }))
    }

    pub(super) async fn list_visible(
        &self,
        request: Request<ListAgentsRequest>,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let max = match message.page_size as usize {
            0 => PAGE_DEFAULT,
            size => size.min(PAGE_MAX),
        };
        let page = self.desk.agents(&caller, some(&message.page_token), max).await;
        let (found, next) = page.map_err(Refused::from)?;
        let agents = found.iter().map(|agent| self.listed(&caller, agent)).collect();
        let next_page_token = next.unwrap_or_default();
        Ok(Response::new(ListAgentsResponse { agents, next_page_token }))
    }

    fn listed(&self, caller: &Caller, agent: &Agent) -> ListedAgent {
        let own = agent.id == caller.agent.as_str();
        let presence = self.desk.directory.presence(&caller.tenant, &AgentId::from(agent.id.as_str()));
        ListedAgent {
            agent_id: agent.id.clone(),
            name: agent.name.clone(),
            description: agent.description.clone(),
            skills: agent.skills.iter().map(shown).collect(),
            visible_to: if own { agent.visible_to.clone() } else { Vec::new() },
            faces: agent.faces.clone(),
            registered_at_unix_ms: signed(agent.registered_at),
            updated_at_unix_ms: signed(agent.updated_at),
            online: presence.online,
            described_by: agent.id.clone(),
            last_seen_unix_ms: presence.last_seen.map_or(0, |at| signed(at.0)),
        }
    }
}

fn skill(found: AgentSkill) -> Skill {
    Skill {
        name: found.name,
        title: found.title,
        description: found.description,
        input_schema: found.input_schema,
        output_schema: found.output_schema,
        // The numbers of the wire are those of the directory, which refuses any other.
        answers: found.answers,
        asks_first: found.asks_first,
        requires: found.requires,
        annotations: found.annotations,
        offered_at: 0,
        successors: found.successors,
    }
}

fn shown(skill: &Skill) -> AgentSkill {
    AgentSkill {
        name: skill.name.clone(),
        title: skill.title.clone(),
        description: skill.description.clone(),
        input_schema: skill.input_schema.clone(),
        output_schema: skill.output_schema.clone(),
        answers: skill.answers,
        asks_first: skill.asks_first,
        requires: skill.requires.clone(),
        annotations: skill.annotations.clone(),
        successors: skill.successors.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::handover::AgentSkillAnswers as Wire;
    use handover_desk::directory::Answers;

    #[test]
    fn the_numbers_of_the_wire_are_those_of_the_directory() {
        let pairs =
            [(Wire::Either, Answers::Either), (Wire::AtOnce, Answers::AtOnce), (Wire::Task, Answers::Task)];
        for (wire, stored) in pairs {
            assert_eq!(wire as i32, stored as i32);
        }
    }
}
