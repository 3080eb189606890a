//! Everything that happened in a session, in words and JSON: for timelines on any face, the console and the command
//! line. Bytes are shown as JSON where they are JSON, as text where they are text, and as base64 where they are neither.

use handover_kernel::approval::{Changes, Proposed, Ruling};
use handover_kernel::budget::Amounts;
use handover_kernel::command::{Answer, NewOffer, OfferContext, Progress, Reply};
use handover_kernel::errand::Verdict;
use handover_kernel::event::{ExpiryCause, Question};
use handover_kernel::{Event, Face, Fact, Session};
use serde_json::{Map, Value, json};

use crate::calendar::rfc3339;
use crate::payload::{amount, to_json as bytes};

/// The word for a face.
pub fn face(face: Face) -> &'static str {
    match face {
        Face::Macp => "macp",
        Face::Mcp => "mcp",
        Face::Grid => "grid",
        Face::Console => "console",
        Face::Cli => "cli",
        Face::Runtime => "runtime",
    }
}

/// What happened, in one word, and what it says, with what only its session knows: the key of the outcome.
pub fn describe_in(session: &Session, event: &Event) -> (&'static str, Value) {
    let (kind, mut detail) = describe(&event.fact);
    let is_outcome = matches!(event.fact, Fact::Completed { .. } | Fact::Failed(_) | Fact::Committed(_));
    if let (Some(key), true) = (session.task().and_then(|task| task.outcome_key()), is_outcome) {
        detail["outcome_key"] = key.into();
    }
    (kind, detail)
}

/// An event of a session as JSON.
pub fn entry(session: &Session, event: &Event) -> Value {
    let (kind, detail) = describe_in(session, event);
    json!({
        "seq": event.seq.0,
        "at": rfc3339(event.at),
        "by": event.author.agent().map(|agent| agent.as_str()),
        "face": face(event.face),
        "kind": kind,
        "detail": detail,
    })
}

/// What happened, in one word, and what it says.
pub fn describe(fact: &Fact) -> (&'static str, Value) {
    match fact {
        Fact::Started(started) => {
            let start = &started.start;
            let participants: Vec<&str> = start.participants.iter().map(|agent| agent.as_str()).collect();
            let detail = json!({
                "mode": start.mode.name(),
                "intent": &*start.intent,
                "participants": participants,
                "policy": &*start.policy_version,
                "ttl_ms": start.ttl_ms,
                "parent": start.parent.as_ref().map(|parent| parent.as_str()),
            });
            ("started", detail)
        }
        Fact::Cancelled { reason, keeps_children } => {
            let mut detail = json!({ "reason": &**reason });
            if *keeps_children {
                detail["keeps_children"] = true.into();
            }
            ("cancelled", detail)
        }
        Fact::Suspended { reason, banked_ms } => {
            ("suspended", json!({ "reason": &**reason, "banked_ms": banked_ms }))
        }
        Fact::Resumed { reason, banked_ms } => {
            ("resumed", json!({ "reason": &**reason, "banked_ms": banked_ms }))
        }
        Fact::Expired { cause } => {
            let cause = match cause {
                ExpiryCause::Deadline => "deadline",
                ExpiryCause::SuspensionCap => "suspension_cap",
            };
            ("expired", json!({ "cause": cause }))
        }
        Fact::Committed(commitment) => {
            let detail = json!({
                "action": &*commitment.action,
                "scope": &*commitment.scope,
                "reason": &*commitment.reason,
                "positive": commitment.positive,
            });
            ("committed", detail)
        }
        Fact::ErrandSettled { errand, verdict } => {
            let verdict = match verdict {
                Verdict::Done => json!("done"),
                Verdict::Refused { code } => json!({ "refused": &**code }),
            };
            ("errand_settled", json!({ "errand": errand.0, "verdict": verdict }))
        }
        Fact::Requested(request) => {
            let detail = json!({
                "task": &*request.task,
                "title": &*request.title,
                "instructions": &*request.instructions,
                "assignee": request.assignee.as_ref().map(|agent| agent.as_str()),
                "input": bytes(&request.input),
            });
            ("requested", detail)
        }
        Fact::Accepted { reason, handoff } => ("accepted", taken(reason, handoff.as_ref())),
        Fact::Declined { reason, handoff } => ("declined", taken(reason, handoff.as_ref())),
        Fact::Updated { progress, .. } => ("updated", progressed(progress)),
        Fact::Asked { questions, .. } => {
            ("asked", json!({ "questions": questions.iter().map(asked).collect::<Vec<_>>() }))
        }
        Fact::Checkpointed => ("checkpointed", json!({})),
        Fact::Delivered { up_to, .. } => ("delivered", json!({ "up_to": up_to.0 })),
        Fact::Answered { answers } => {
            ("answered", json!({ "answers": answers.iter().map(answered).collect::<Vec<_>>() }))
        }
        Fact::Steered { text } => ("steered", json!({ "message": &**text })),
        Fact::PauseRequested { reason } => ("pause_requested", json!({ "reason": &**reason })),
        Fact::Completed { output, summary } => {
            ("completed", json!({ "output": bytes(output), "summary": &**summary }))
        }
        Fact::Failed(failure) => {
            let detail = json!({
                "code": &*failure.code,
                "reason": &*failure.reason,
                "retryable": failure.retryable,
                "output": bytes(&failure.output),
            });
            ("failed", detail)
        }
        Fact::Said { body, awaits_reply, .. } => {
            ("said", json!({ "body": bytes(body), "awaits_reply": awaits_reply }))
        }
        Fact::Read { up_to, .. } => ("read", json!({ "up_to": up_to.0 })),
        Fact::Acknowledged => ("acknowledged", json!({})),
        Fact::CheckInMissed { message, next, gives_up } => {
            let next = next.map(rfc3339);
            ("check_in_missed", json!({ "message": message.0, "next": next, "gives_up": gives_up }))
        }
        Fact::Proposed { what, held } => {
            let (_, proposed) = match &**what {
                Proposed::Request(request) => describe(&Fact::Requested(request.clone())),
                Proposed::Commitment(made) => describe(&Fact::Committed(Box::new(made.clone()))),
                Proposed::Offer(offer) => {
                    let NewOffer { handoff, target, scope, reason, context } = offer.clone();
                    let (kind, mut detail) = describe(&Fact::Offered { handoff, target, scope, reason });
                    if let Some(OfferContext { content_type, body }) = context {
                        detail["context"] = json!({ "content_type": &*content_type, "body": bytes(&body) });
                    }
                    (kind, detail)
                }
            };
            ("proposed", json!({ "what": what.name(), "proposed": proposed, "held": held }))
        }
        Fact::Decided { proposal, ruling } => {
            let mut detail = json!({ "proposal": proposal.0, "ruling": ruling.name() });
            if let Some(words) = ruling.words() {
                detail["words"] = json!(&**words);
            }
            if let Ruling::Approved(changes) = ruling
                && *changes != Changes::default()
            {
                detail["changes"] = changed(changes);
            }
            ("decided", detail)
        }
        Fact::CycleFound { agents } => {
            let agents: Vec<&str> = agents.iter().map(|agent| agent.as_str()).collect();
            ("cycle_found", json!({ "agents": agents }))
        }
        Fact::FellSilent { since } => ("fell_silent", json!({ "since": rfc3339(*since) })),
        Fact::KeySet { key } => ("key_set", json!({ "key": key.as_deref() })),
        Fact::Reserved { child, depth } => ("reserved", json!({ "child": child.as_str(), "depth": depth })),
        Fact::Used { used } => ("used", json!({ "used": amounts(used) })),
        Fact::Spent { from, used } => ("spent", json!({ "from": from.as_str(), "used": amounts(used) })),
        Fact::Overspent { name, of, used } => {
            ("overspent", json!({ "name": &**name, "of": amount(*of), "used": amount(*used) }))
        }
        Fact::ChildAdded { child } => ("child_added", json!({ "child": child.as_str() })),
        Fact::Offered { handoff, target, scope, reason } => {
            let detail = json!({
                "handoff": handoff.as_str(),
                "target": target.as_str(),
                "scope": &**scope,
                "reason": &**reason,
            });
            ("offered", detail)
        }
        Fact::ContextAdded { handoff, content_type, body } => {
            let detail =
                json!({ "handoff": handoff.as_str(), "content_type": &**content_type, "body": bytes(body) });
            ("context_added", detail)
        }
        Fact::OfferAccepted { handoff, reason, implicit } => {
            let detail = json!({ "handoff": handoff.as_str(), "reason": &**reason, "implicit": implicit });
            ("offer_accepted", detail)
        }
        Fact::OfferDeclined { handoff, reason } => {
            ("offer_declined", json!({ "handoff": handoff.as_str(), "reason": &**reason }))
        }
    }
}

fn amounts(amounts: &Amounts) -> Map<String, Value> {
    amounts.iter().map(|(name, found)| (name.to_string(), amount(found).into())).collect()
}

fn taken(reason: &str, handoff: Option<&handover_kernel::SessionId>) -> Value {
    json!({ "reason": reason, "handoff": handoff.map(|handoff| handoff.as_str()) })
}

fn progressed(progress: &Progress) -> Value {
    json!({
        "status": &*progress.status,
        "progress": progress.done,
        "message": &*progress.message,
        "partial": bytes(&progress.partial),
    })
}

fn asked(question: &Question) -> Value {
    json!({ "key": question.key.as_str(), "text": &*question.text, "schema": bytes(&question.schema) })
}

fn answered(answer: &Answer) -> Value {
    let reply = match &answer.reply {
        Reply::Content(body) => json!({ "content": bytes(body) }),
        Reply::Refused => json!("refused"),
        Reply::Dismissed => json!("dismissed"),
    };
    json!({ "key": answer.key.as_str(), "reply": reply })
}

/// What an approver changed.
fn changed(changes: &Changes) -> Value {
    let Changes { title, instructions, input, reason } = changes;
    let mut shown = json!({});
    for (key, text) in [("title", title), ("instructions", instructions), ("reason", reason)] {
        if let Some(text) = text {
            shown[key] = json!(&**text);
        }
    }
    if let Some(input) = input {
        shown["input"] = bytes(input);
    }
    shown
}

#[cfg(test)]
mod tests {
    use handover_kernel::{QuestionKey, Seq, Text};

    use super::*;

    #[test]
    fn what_was_said_is_in_the_detail() {
        let steered = Fact::Steered { text: Text::from("keep left") };
        assert_eq!(describe(&steered), ("steered", json!({ "message": "keep left" })));
        assert_eq!(
            describe(&Fact::Delivered { up_to: Seq(4), orders: vec![] }),
            ("delivered", json!({ "up_to": 4 }))
        );
        let answers = [Reply::Content(b"left".as_slice().into()), Reply::Refused, Reply::Dismissed]
            .map(|reply| Answer { key: QuestionKey::from("q1"), reply })
            .to_vec();
        let (kind, detail) = describe(&Fact::Answered { answers });
        assert_eq!(kind, "answered");
        let replies: Vec<&Value> =
            detail["answers"].as_array().unwrap().iter().map(|answer| &answer["reply"]).collect();
        assert_eq!(replies, [&json!({ "content": "left" }), &json!("refused"), &json!("dismissed")]);
    }

    #[test]
    fn a_number_that_json_has_not_is_shown_as_none() {
        let progress = Progress { done: Some(f64::NAN), ..Progress::default() };
        let (_, detail) = describe(&Fact::Updated { progress, withdrawn: Vec::new() });
        assert_eq!(detail["progress"], Value::Null);
    }
}
