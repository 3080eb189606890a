//! Our own service beside MACP's, for what MACP has no message for: steer, answer, pause gently, read everything,
//! be found.

use std::collections::HashMap;

use handover_desk::approvals::{self, sees_approval};
use handover_desk::gate::Caller;
use handover_desk::look::HISTORY_MAX;
use handover_desk::timeline;
use handover_desk::{Accepted, WaitKind};
use handover_kernel::approval::{Changes, Ruling};
use handover_kernel::budget::{Amount, Amounts};
use handover_kernel::command::{Act, Answer, Command, Need, Reply, TaskAct};
use handover_kernel::event;
use handover_kernel::id::Author;
use handover_kernel::{Event, Fact, MessageId, QuestionKey, Seq, Session, Text};
use tonic::{Request, Response, Status};

use super::Macp;
use super::admit;
use super::proto::handover::handover_server::Handover;
use super::proto::handover::{
    AnswerRequest, Approval, DecideRequest, GetApprovalRequest, ListAgentsRequest, ListAgentsResponse,
    ListApprovalsRequest, ListApprovalsResponse, ListQuestionsRequest, ListQuestionsResponse, PauseRequest,
    Question, QuestionAnswer, ReadTimelineRequest, ReadTimelineResponse, Receipt, RegisterAgentRequest,
    RegisterAgentResponse, ReportUseRequest, SteerRequest, TimelineEvent, UnregisterAgentRequest,
    UnregisterAgentResponse, decide_request, question_answer,
};
use super::refused::Refused;
use super::render::signed;

/// How many events a page of a timeline has if the caller does not say.
const PAGE_DEFAULT: usize = 100;

#[tonic::async_trait]
impl Handover for Macp {
    async fn steer(&self, request: Request<SteerRequest>) -> Result<Response<Receipt>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let act = Act::Task(TaskAct::Steer { text: Text::from(message.message) });
        self.interact(&caller, &message.session_id, &message.message_id, act).await
    }

    async fn answer(&self, request: Request<AnswerRequest>) -> Result<Response<Receipt>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let answers: Result<Vec<Answer>, Refused> = message.answers.into_iter().map(answer).collect();
        let act = Act::Task(TaskAct::Answer {
            answers: answers?,
            ignore_unknown: false,
            refuse_when_paused: false,
        });
        self.interact(&caller, &message.session_id, &message.message_id, act).await
    }

    async fn list_questions(
        &self,
        request: Request<ListQuestionsRequest>,
    ) -> Result<Response<ListQuestionsResponse>, Status> {
        let caller = self.caller(&request)?;
        let session = self.session(&caller, &request.into_inner().session_id).await?;
        let open = session.task().map_or(&[][..], |task| task.phase.questions());
        Ok(Response::new(ListQuestionsResponse { questions: open.iter().map(question).collect() }))
    }

    async fn pause(&self, request: Request<PauseRequest>) -> Result<Response<Receipt>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let act = Act::Pause { reason: Text::from(message.reason), gently: true };
        self.interact(&caller, &message.session_id, "", act).await
    }

    async fn report_use(&self, request: Request<ReportUseRequest>) -> Result<Response<Receipt>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let used = used(message.used)?;
        let command = Command { used, ..caller.command(Act::Task(TaskAct::Checkpoint)) };
        self.interact_by(&caller, &message.session_id, &message.message_id, command).await
    }

    async fn read_timeline(
        &self,
        request: Request<ReadTimelineRequest>,
    ) -> Result<Response<ReadTimelineResponse>, Status> {
        let caller = self.caller(&request)?;
        let message = request.into_inner();
        let max = match message.page_size as usize {
            0 => PAGE_DEFAULT,
            size => size.min(HISTORY_MAX),
        };
        let history = self.desk.history(&caller, &message.session_id, message.after_sequence, max).await;
        let history = history.map_err(Refused::from)?;
        let events = history.events.iter().map(|event| shown(&history.session, event)).collect();
        Ok(Response::new(ReadTimelineResponse { events, more: history.next.is_some() }))
    }

    async fn list_approvals(
        &self,
        request: Request<ListApprovalsRequest>,
    ) -> Result<Response<ListApprovalsResponse>, Status> {
        let caller = self.caller(&request)?;
        let ListApprovalsRequest { page_size, page_token } = request.into_inner();
        let max = match page_size as usize {
            0 => PAGE_DEFAULT,
            size => size.min(PAGE_DEFAULT),
        };
        let after = (!page_token.is_empty()).then_some(page_token.as_str());
        let page = self.desk.inbox(&caller, &[WaitKind::Approval], after, max).await;
        let page = page.map_err(Refused::from)?;
        Ok(Response::new(ListApprovalsResponse {
            approvals: page.sessions.iter().filter_map(|session| approval(session)).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn get_approval(&self, request: Request<GetApprovalRequest>) -> Result<Response<Approval>, Status> {
        let caller = self.caller(&request)?;
        let session = self.session(&caller, &request.into_inner().session_id).await?;
        let found = approval(&session).filter(|_| sees_approval(&caller, &session));
        found.map(Response::new).ok_or_else(|| Status::not_found("nothing is proposed in this session"))
    }

    async fn decide(&self, request: Request<DecideRequest>) -> Result<Response<Receipt>, Status> {
        let caller = self.caller(&request)?;
        let DecideRequest { session_id, proposal, ruling, message_id } = request.into_inner();
        let ruling = match ruling {
            Some(decide_request::Ruling::Approve(changes)) => Ruling::Approved(Changes {
                title: changes.title.map(Text::from),
                instructions: changes.instructions.map(Text::from),
                input: changes.input.map(Into::into),
                reason: changes.reason.map(Text::from),
            }),
            Some(decide_request::Ruling::AskChanges(words)) => Ruling::ChangesAsked(Text::from(words)),
            Some(decide_request::Ruling::Reject(words)) => Ruling::Rejected(Text::from(words)),
            None => {
                let expected = "expected approve, ask_changes or reject, found no ruling";
                return Err(Refused::invalid(expected).status());
            }
        };
        let act = Act::Decide { proposal: Seq(proposal), ruling };
        self.interact(&caller, &session_id, &message_id, act).await
    }

    async fn register_agent(
        &self,
        request: Request<RegisterAgentRequest>,
    ) -> Result<Response<RegisterAgentResponse>, Status> {
        self.register_own(request).await
    }

    async fn unregister_agent(
        &self,
        request: Request<UnregisterAgentRequest>,
    ) -> Result<Response<UnregisterAgentResponse>, Status> {
        self.unregister_one(request).await
    }

    async fn list_agents(
        &self,
        request: Request<ListAgentsRequest>,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        self.list_visible(request).await
    }
}

impl Macp {
    async fn interact(
        &self,
        caller: &Caller,
        session_id: &str,
        message_id: &str,
        act: Act,
    ) -> Result<Response<Receipt>, Status> {
        self.interact_by(caller, session_id, message_id, caller.command(act)).await
    }

    async fn interact_by(
        &self,
        caller: &Caller,
        session_id: &str,
        message_id: &str,
        mut command: Command,
    ) -> Result<Response<Receipt>, Status> {
        if !message_id.is_empty() {
            admit::message_id(message_id)?;
            command.id = Some(MessageId::from(message_id));
        }
        let accepted = self.desk.put(caller, session_id, command).await.map_err(Refused::from)?;
        Ok(Response::new(receipt(&accepted)))
    }
}

/// What an assignee says that it has used.
fn used(found: HashMap<String, f64>) -> Result<Amounts, Refused> {
    if found.is_empty() {
        return Err(Refused::invalid("used: expected at least one number, found none"));
    }
    let amounts = found.into_iter().map(|(name, value)| {
        let wrong = || {
            let max = Amount::MAX;
            Refused::invalid(format!(
                "used: expected numbers from 0 to {max} with at most six digits after the point, found {value}"
            ))
        };
        Ok((Text::from(name), Amount::of(&value.to_string()).ok_or_else(wrong)?))
    });
    let amounts = amounts.collect::<Result<Vec<_>, Refused>>()?;
    Amounts::new(amounts).map_err(|refusal| Refused::invalid(refusal.to_string()))
}

fn answer(found: QuestionAnswer) -> Result<Answer, Refused> {
    let reply = match found.reply {
        Some(question_answer::Reply::Content(body)) => Reply::Content(body.into()),
        Some(question_answer::Reply::Refused(true)) => Reply::Refused,
        Some(question_answer::Reply::Dismissed(true)) => Reply::Dismissed,
        Some(question_answer::Reply::Refused(false) | question_answer::Reply::Dismissed(false)) | None => {
            return Err(Refused::invalid(format!(
                "expected a reply to {:?}, found none",
                admit::clip(&found.key)
            )));
        }
    };
    Ok(Answer { key: QuestionKey::from(found.key), reply })
}

fn question(open: &event::Question) -> Question {
    Question {
        key: open.key.to_string(),
        need: match open.need {
            Need::Input => "input".to_owned(),
            Need::Authorization => "authorization".to_owned(),
        },
        text: open.text.to_string(),
        schema: open.schema.to_vec(),
    }
}

fn approval(session: &Session) -> Option<Approval> {
    let found = approvals::Approval::of(session)?;
    let what = Box::new((*found.proposal.what).clone());
    let (_, detail) = timeline::describe(&Fact::Proposed { what, held: true });
    Some(Approval {
        session_id: session.binding.id.to_string(),
        proposal: found.proposal.id.0,
        what: found.proposal.what.name().to_owned(),
        state: found.state.to_owned(),
        proposed_by: found.proposal.by.to_string(),
        proposed_at_unix_ms: signed(found.since.0),
        waits_for: found.waits_for.iter().map(ToString::to_string).collect(),
        decided_by: found.decided_by.unwrap_or_default().to_owned(),
        words: found.words.unwrap_or_default().to_owned(),
        proposed_json: detail["proposed"].to_string(),
        agents: found.to.iter().map(ToString::to_string).collect(),
        skill: found.skill.unwrap_or_default().to_owned(),
    })
}

fn receipt(accepted: &Accepted) -> Receipt {
    Receipt {
        sequence: accepted.receipt.seq.0,
        accepted_at_unix_ms: signed(accepted.receipt.at.0),
        duplicate: accepted.receipt.duplicate,
        standing: accepted.standing().name().to_owned(),
    }
}

fn shown(session: &Session, event: &Event) -> TimelineEvent {
    let (kind, detail) = timeline::describe_in(session, event);
    TimelineEvent {
        sequence: event.seq.0,
        accepted_at_unix_ms: signed(event.at.0),
        author: match &event.author {
            Author::Agent(agent) => agent.to_string(),
            Author::Runtime => String::new(),
        },
        face: timeline::face(event.face).to_owned(),
        kind: kind.to_owned(),
        ordinal: event.ordinal.map_or(0, |ordinal| ordinal.0),
        detail_json: detail.to_string(),
    }
}
