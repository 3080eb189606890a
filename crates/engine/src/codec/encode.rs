//! From the kernel's words to the wire's. Every pattern names every field, so that a new one stops the build here.

use std::sync::Arc;

use handover_kernel::approval::{Changes, Proposed, Ruling};
use handover_kernel::budget::{Amount, Amounts, Budget, Under};
use handover_kernel::charter::{Authority, Liveness};
use handover_kernel::command::{
    Answer, Contract, Failure, NewOffer, OfferContext, Progress, Reply, Request, Start,
};
use handover_kernel::commitment::{Commitment, Supersedes};
use handover_kernel::errand::Verdict;
use handover_kernel::event::{Question, Started};
use handover_kernel::{AgentId, Author, Blob, Charter, Event, Fact, HandoffId, Text, Trace};
use prost::bytes::Bytes;

use super::wire::{self, Numbered};

pub(super) fn event(event: &Event) -> wire::Event {
    let Event { seq, at, author, face, ordinal, id, id_scope, verbatim, sent_at, trace, fact } = event;
    // Otherwise the session would know other messages after a restart than before it.
    assert_eq!(
        *id_scope,
        super::id_scope(*face),
        "event {seq} came in another scope than its face {face:?} has"
    );
    wire::Event {
        seq: Some(seq.0),
        at: Some(at.0),
        author: Some(match author {
            Author::Agent(agent) => wire::Author::Agent(string(agent.as_str())),
            Author::Runtime => wire::Author::Runtime(()),
        }),
        face: face.number(),
        ordinal: ordinal.map(|ordinal| ordinal.0),
        id: id.as_ref().map(|id| string(id.as_str())),
        verbatim: verbatim.as_ref().map(bytes),
        sent_at: sent_at.map(|at| at.0),
        trace: trace.as_deref().map(|Trace { parent, state }| {
            Box::new(wire::Trace { parent: Some(string(parent)), state: string(state) })
        }),
        fact: Some(wire_fact(fact)),
    }
}

fn wire_fact(fact: &Fact) -> wire::Fact {
    match fact {
        Fact::Started(fact) => wire::Fact::Started(Box::new(started(fact))),
        Fact::Cancelled { reason, keeps_children } => {
            wire::Fact::Cancelled(wire::Cancelled { reason: string(reason), keeps_children: *keeps_children })
        }
        Fact::Suspended { reason, banked_ms } => {
            wire::Fact::Suspended(wire::Suspended { reason: string(reason), banked_ms: *banked_ms })
        }
        Fact::Resumed { reason, banked_ms } => {
            wire::Fact::Resumed(wire::Resumed { reason: string(reason), banked_ms: *banked_ms })
        }
        Fact::Expired { cause } => wire::Fact::Expired(wire::Expired { cause: cause.number() }),
        Fact::Committed(commitment) => wire::Fact::Committed(Box::new(committed(commitment))),
        Fact::ErrandSettled { errand, verdict } => wire::Fact::ErrandSettled(wire::ErrandSettled {
            errand: Some(errand.0),
            verdict: Some(match verdict {
                Verdict::Done => wire::Verdict::Done(()),
                Verdict::Refused { code } => wire::Verdict::Refused(wire::Refused { code: string(code) }),
            }),
        }),

        Fact::Requested(request) => wire::Fact::Requested(Box::new(requested(request))),
        Fact::Accepted { reason, handoff } => wire::Fact::Accepted(wire::Accepted {
            reason: string(reason),
            handoff: handoff.as_ref().map(|id| string(id.as_str())),
        }),
        Fact::Declined { reason, handoff } => wire::Fact::Declined(wire::Declined {
            reason: string(reason),
            handoff: handoff.as_ref().map(|id| string(id.as_str())),
        }),
        Fact::Updated { progress, withdrawn } => wire::Fact::Updated(wire::Updated {
            progress: Some(wire_progress(progress)),
            withdrawn: withdrawn.iter().map(|key| string(key.as_str())).collect(),
        }),
        Fact::Asked { questions, progress } => wire::Fact::Asked(wire::Asked {
            questions: questions.iter().map(question).collect(),
            progress: Some(wire_progress(progress)),
        }),
        Fact::Checkpointed => wire::Fact::Checkpointed(()),
        Fact::Delivered { up_to, orders } => wire::Fact::Delivered(wire::Delivered {
            up_to: Some(up_to.0),
            orders: orders.iter().map(|seq| seq.0).collect(),
        }),
        Fact::Answered { answers } => {
            wire::Fact::Answered(wire::Answered { answers: answers.iter().map(answer).collect() })
        }
        Fact::Steered { text } => wire::Fact::Steered(wire::Steered { text: string(text) }),
        Fact::PauseRequested { reason } => {
            wire::Fact::PauseRequested(wire::PauseRequested { reason: string(reason) })
        }
        Fact::Completed { output, summary } => {
            wire::Fact::Completed(wire::Completed { output: bytes(output), summary: string(summary) })
        }
        Fact::Failed(failure) => wire::Fact::Failed(failed(failure)),
        Fact::Said { body, awaits_reply, works, answers, check_in } => wire::Fact::Said(wire::Said {
            body: bytes(body),
            awaits_reply: *awaits_reply,
            answers: answers.as_ref().map(|key| string(key.as_str())),
            check_in_ms: check_in.window_ms,
            misses_max: check_in.misses_max,
            works: *works,
        }),
        Fact::Read { up_to, safe_point } => {
            wire::Fact::Read(wire::Read { up_to: Some(up_to.0), safe_point: *safe_point })
        }
        Fact::Acknowledged => wire::Fact::Acknowledged(()),
        Fact::CheckInMissed { message, next, gives_up } => wire::Fact::CheckInMissed(wire::CheckInMissed {
            message: Some(message.0),
            next: next.map(|at| at.0),
            gives_up: *gives_up,
        }),
        Fact::FellSilent { since } => wire::Fact::FellSilent(wire::FellSilent { since: Some(since.0) }),
        Fact::Reserved { child, depth } => {
            wire::Fact::Reserved(wire::Reserved { child: Some(string(child.as_str())), depth: *depth })
        }
        Fact::Used { used } => wire::Fact::Used(wire::Used { used: amounts(used) }),
        Fact::Spent { from, used } => {
            wire::Fact::Spent(wire::Spent { from: Some(string(from.as_str())), used: amounts(used) })
        }
        Fact::Overspent { name, of, used } => {
            wire::Fact::Overspent(wire::Overspent { name: string(name), of: of.0, used: used.0 })
        }
        Fact::KeySet { key } => wire::Fact::KeySet(wire::KeySet { key: key.as_deref().map(string) }),
        Fact::ChildAdded { child } => {
            wire::Fact::ChildAdded(wire::ChildAdded { child: Some(string(child.as_str())) })
        }

        Fact::CycleFound { agents } => wire::Fact::CycleFound(wire::CycleFound {
            agents: agents.iter().map(|agent| string(agent.as_str())).collect(),
        }),
        Fact::Proposed { what, held } => {
            wire::Fact::Proposed(Box::new(wire::Proposed { what: Some(proposed(what)), held: *held }))
        }
        Fact::Decided { proposal, ruling } => wire::Fact::Decided(Box::new(wire::Decided {
            proposal: Some(proposal.0),
            ruling: Some(wire_ruling(ruling)),
        })),

        Fact::Offered { handoff, target, scope, reason } => {
            wire::Fact::Offered(offered(handoff, target, scope, reason))
        }
        Fact::ContextAdded { handoff, content_type, body } => wire::Fact::ContextAdded(wire::ContextAdded {
            handoff: Some(string(handoff.as_str())),
            content_type: string(content_type),
            body: bytes(body),
        }),
        Fact::OfferAccepted { handoff, reason, implicit } => wire::Fact::OfferAccepted(wire::OfferAccepted {
            handoff: Some(string(handoff.as_str())),
            reason: string(reason),
            implicit: *implicit,
        }),
        Fact::OfferDeclined { handoff, reason } => wire::Fact::OfferDeclined(wire::OfferDeclined {
            handoff: Some(string(handoff.as_str())),
            reason: string(reason),
        }),
    }
}

fn started(started: &Started) -> wire::Started {
    let Started { start, base } = started;
    let Start {
        mode,
        participants,
        charter,
        mode_version,
        configuration_version,
        policy_version,
        ttl_ms,
        sent_at,
        intent,
        context_id,
        extension_keys,
        parent,
        contract,
        under,
    } = start;
    wire::Started {
        base: Some(base.0),
        mode: mode.number(),
        participants: participants.iter().map(|agent| string(agent.as_str())).collect(),
        charter: Some(wire_charter(charter)),
        mode_version: string(mode_version),
        configuration_version: string(configuration_version),
        policy_version: string(policy_version),
        ttl_ms: *ttl_ms,
        sent_at: sent_at.map(|at| at.0),
        intent: string(intent),
        context_id: string(context_id),
        extension_keys: extension_keys.iter().map(|key| string(key)).collect(),
        parent: parent.as_ref().map(|id| string(id.as_str())),
        contract: contract.as_deref().map(|Contract { skill, input, output }| {
            Box::new(wire::Contract { skill: string(skill), input: bytes(input), output: bytes(output) })
        }),
        under: under.as_deref().map(|Under { root, depth, deepest, until, nested }| wire::Under {
            root: Some(string(root.as_str())),
            depth: *depth,
            deepest: *deepest,
            until: until.map(|at| at.0),
            nested: *nested,
        }),
    }
}

fn amounts(amounts: &Amounts) -> Vec<wire::Amount> {
    amounts.iter().map(|(name, Amount(amount))| wire::Amount { name: string(name), amount }).collect()
}

fn wire_charter(charter: &Charter) -> wire::Charter {
    let Charter {
        authority,
        on_complete,
        on_fail,
        on_decline,
        cancel,
        pause,
        ends_pause,
        reassignment,
        require_output,
        acting_accepts,
        message_answers,
        commit_completes,
        notices,
        check_in_ms,
        suspension_cap_ms,
        implicit_accept_ms,
        liveness,
        approvals,
        budget,
    } = charter;
    wire::Charter {
        authority: Some(match authority {
            Authority::Requester => wire::Authority::Requester(()),
            Authority::AnyParticipant => wire::Authority::AnyParticipant(()),
            Authority::Designated(agents) => wire::Authority::Designated(wire::Designated {
                agents: agents.iter().map(|agent| string(agent.as_str())).collect(),
            }),
        }),
        on_complete: on_complete.number(),
        on_fail: on_fail.number(),
        on_decline: on_decline.number(),
        cancel: cancel.number(),
        pause: pause.number(),
        reassignment: *reassignment,
        require_output: *require_output,
        acting_accepts: *acting_accepts,
        message_answers: *message_answers,
        commit_completes: *commit_completes,
        notices: *notices,
        check_in_ms: *check_in_ms,
        suspension_cap_ms: Some(*suspension_cap_ms),
        implicit_accept_ms: *implicit_accept_ms,
        ends_pause: *ends_pause,
        approvals: approvals.as_ref().map(|approvals| wire::Approvals {
            opening: approvals.opening.iter().map(|agent| string(agent.as_str())).collect(),
            commitment: approvals.commitment.iter().map(|agent| string(agent.as_str())).collect(),
        }),
        liveness: liveness.as_deref().map(|Liveness { window_ms, then }| wire::Liveness {
            window_ms: *window_ms,
            then: then.number(),
        }),
        budget: budget.as_deref().map(|Budget { tasks, depth, time_ms, numbers }| wire::Budget {
            tasks: *tasks,
            depth: *depth,
            time_ms: *time_ms,
            numbers: amounts(numbers),
        }),
    }
}

fn proposed(what: &Proposed) -> wire::WhatProposed {
    match what {
        Proposed::Request(request) => wire::WhatProposed::Request(requested(request)),
        Proposed::Commitment(commitment) => wire::WhatProposed::Commitment(committed(commitment)),
        Proposed::Offer(NewOffer { handoff, target, scope, reason, context }) => {
            wire::WhatProposed::Offer(wire::ProposedOffer {
                offer: Some(offered(handoff, target, scope, reason)),
                context: context.as_ref().map(|OfferContext { content_type, body }| wire::ContextAdded {
                    handoff: None,
                    content_type: string(content_type),
                    body: bytes(body),
                }),
            })
        }
    }
}

fn offered(handoff: &HandoffId, target: &AgentId, scope: &Text, reason: &Text) -> wire::Offered {
    wire::Offered {
        handoff: Some(string(handoff.as_str())),
        target: Some(string(target.as_str())),
        scope: string(scope),
        reason: string(reason),
    }
}

fn wire_ruling(ruling: &Ruling) -> wire::Ruling {
    match ruling {
        Ruling::Approved(Changes { title, instructions, input, reason }) => {
            wire::Ruling::Approved(wire::Changes {
                title: title.as_deref().map(string),
                instructions: instructions.as_deref().map(string),
                input: input.as_ref().map(bytes),
                reason: reason.as_deref().map(string),
            })
        }
        Ruling::ChangesAsked(words) => wire::Ruling::ChangesAsked(string(words)),
        Ruling::Rejected(words) => wire::Ruling::Rejected(string(words)),
    }
}

fn committed(made: &Commitment) -> wire::Committed {
    let Commitment {
        commitment,
        action,
        scope,
        reason,
        mode_version,
        policy_version,
        configuration_version,
        positive,
        supersedes,
    } = made;
    wire::Committed {
        commitment: string(commitment),
        action: string(action),
        scope: string(scope),
        reason: string(reason),
        mode_version: string(mode_version),
        policy_version: string(policy_version),
        configuration_version: string(configuration_version),
        positive: *positive,
        supersedes: supersedes.as_ref().map(|Supersedes { session, hash }| wire::Supersedes {
            session: Some(string(session.as_str())),
            hash: string(hash),
        }),
    }
}

fn requested(request: &Request) -> wire::Requested {
    let Request { task, title, instructions, assignee, input, wanted_by, check_in, session_key } = request;
    wire::Requested {
        task: string(task),
        title: string(title),
        instructions: string(instructions),
        assignee: assignee.as_ref().map(|agent| string(agent.as_str())),
        input: bytes(input),
        wanted_by: wanted_by.map(|at| at.0),
        check_in_ms: check_in.window_ms,
        misses_max: check_in.misses_max,
        session_key: session_key.as_deref().map(string),
    }
}

fn wire_progress(progress: &Progress) -> wire::Progress {
    let Progress { status, done, message, partial } = progress;
    wire::Progress { status: string(status), done: *done, message: string(message), partial: bytes(partial) }
}

fn question(question: &Question) -> wire::Question {
    let Question { key, need, text, schema, wire } = question;
    wire::Question {
        key: Some(string(key.as_str())),
        need: need.number(),
        text: string(text),
        schema: bytes(schema),
        wire: wire.as_ref().map(bytes),
    }
}

fn answer(answer: &Answer) -> wire::Answer {
    let Answer { key, reply } = answer;
    wire::Answer {
        key: Some(string(key.as_str())),
        reply: Some(match reply {
            Reply::Content(body) => wire::Reply::Content(bytes(body)),
            Reply::Refused => wire::Reply::Refused(()),
            Reply::Dismissed => wire::Reply::Dismissed(()),
        }),
    }
}

fn failed(failure: &Failure) -> wire::Failed {
    let Failure { code, reason, retryable, protocol_error, output } = failure;
    wire::Failed {
        code: string(code),
        reason: string(reason),
        retryable: *retryable,
        protocol_error: *protocol_error,
        output: bytes(output),
    }
}

/// The same bytes, shared rather than copied.
fn bytes(blob: &Blob) -> Bytes {
    if blob.is_empty() { Bytes::new() } else { Bytes::from_owner(Arc::clone(blob)) }
}

fn string(text: &str) -> String {
    text.to_owned()
}
