//! From the wire's words to the kernel's.

use std::sync::Arc;

use handover_kernel::approval::{Approvals, Changes, Proposed, Ruling};
use handover_kernel::budget::{Amount, Amounts, Budget, Under};
use handover_kernel::charter::{Authority, Liveness};
use handover_kernel::command::{
    Answer, CheckInTerms, Contract, Failure, NewOffer, OfferContext, Progress, Reply, Request, Start,
};
use handover_kernel::commitment::{Commitment, Supersedes};
use handover_kernel::errand::Verdict;
use handover_kernel::event::{Question, Started};
use handover_kernel::{Author, Blob, Charter, Event, Fact, Ordinal, Seq, Timestamp, Trace};
use prost::bytes::Bytes;

use super::Error;
use super::wire::{self, Numbered};

pub(super) fn event(event: wire::Event) -> Result<Event, Error> {
    let seq = Seq(required("seq", event.seq)?);
    let fact = kernel_fact(event.fact.ok_or(Error::UnknownKind { seq })?)?;
    let face = numbered("face", event.face)?;
    Ok(Event {
        seq,
        at: Timestamp(required("at", event.at)?),
        author: match required("author", event.author)? {
            wire::Author::Agent(agent) => Author::Agent(agent.into()),
            wire::Author::Runtime(()) => Author::Runtime,
        },
        face,
        ordinal: event.ordinal.map(Ordinal),
        id: event.id.map(Into::into),
        id_scope: super::id_scope(face),
        verbatim: event.verbatim.map(blob),
        sent_at: event.sent_at.map(Timestamp),
        trace: event.trace.map(|found| trace(*found)).transpose()?.map(Box::new),
        fact,
    })
}

fn trace(trace: wire::Trace) -> Result<Trace, Error> {
    Ok(Trace { parent: required("trace.parent", trace.parent)?.into(), state: trace.state.into() })
}

fn kernel_fact(fact: wire::Fact) -> Result<Fact, Error> {
    Ok(match fact {
        wire::Fact::Started(fact) => Fact::Started(Box::new(started(*fact)?)),
        wire::Fact::Cancelled(fact) => {
            Fact::Cancelled { reason: fact.reason.into(), keeps_children: fact.keeps_children }
        }
        wire::Fact::Suspended(fact) => {
            Fact::Suspended { reason: fact.reason.into(), banked_ms: fact.banked_ms }
        }
        wire::Fact::Resumed(fact) => Fact::Resumed { reason: fact.reason.into(), banked_ms: fact.banked_ms },
        wire::Fact::Expired(fact) => Fact::Expired { cause: numbered("expired.cause", fact.cause)? },
        wire::Fact::Committed(fact) => Fact::Committed(Box::new(committed(*fact)?)),
        wire::Fact::ErrandSettled(fact) => Fact::ErrandSettled {
            errand: Seq(required("errand_settled.errand", fact.errand)?),
            verdict: match required("errand_settled.verdict", fact.verdict)? {
                wire::Verdict::Done(()) => Verdict::Done,
                wire::Verdict::Refused(refused) => Verdict::Refused { code: refused.code.into() },
            },
        },

        wire::Fact::Requested(fact) => Fact::Requested(requested(*fact)),
        wire::Fact::Accepted(fact) => {
            Fact::Accepted { reason: fact.reason.into(), handoff: fact.handoff.map(Into::into) }
        }
        wire::Fact::Declined(fact) => {
            Fact::Declined { reason: fact.reason.into(), handoff: fact.handoff.map(Into::into) }
        }
        wire::Fact::Updated(fact) => Fact::Updated {
            progress: progress(required("updated.progress", fact.progress)?),
            withdrawn: texts(fact.withdrawn),
        },
        wire::Fact::Asked(fact) => Fact::Asked {
            questions: fact.questions.into_iter().map(question).collect::<Result<_, Error>>()?,
            progress: progress(required("asked.progress", fact.progress)?),
        },
        wire::Fact::Checkpointed(()) => Fact::Checkpointed,
        wire::Fact::Delivered(fact) => {
            let orders = fact.orders.into_iter().map(Seq).collect();
            Fact::Delivered { up_to: Seq(required("delivered.up_to", fact.up_to)?), orders }
        }
        wire::Fact::Answered(fact) => {
            Fact::Answered { answers: fact.answers.into_iter().map(answer).collect::<Result<_, Error>>()? }
        }
        wire::Fact::Steered(fact) => Fact::Steered { text: fact.text.into() },
        wire::Fact::PauseRequested(fact) => Fact::PauseRequested { reason: fact.reason.into() },
        wire::Fact::Completed(fact) => {
            Fact::Completed { output: blob(fact.output), summary: fact.summary.into() }
        }
        wire::Fact::Failed(fact) => Fact::Failed(failed(fact)),
        wire::Fact::Said(fact) => Fact::Said {
            body: blob(fact.body),
            awaits_reply: fact.awaits_reply,
            works: fact.works,
            answers: fact.answers.map(Into::into),
            check_in: CheckInTerms { window_ms: fact.check_in_ms, misses_max: fact.misses_max },
        },
        wire::Fact::Read(fact) => {
            Fact::Read { up_to: Seq(required("read.up_to", fact.up_to)?), safe_point: fact.safe_point }
        }
        wire::Fact::Acknowledged(()) => Fact::Acknowledged,
        wire::Fact::CheckInMissed(fact) => Fact::CheckInMissed {
            message: Seq(required("check_in_missed.message", fact.message)?),
            next: fact.next.map(Timestamp),
            gives_up: fact.gives_up,
        },
        wire::Fact::FellSilent(fact) => {
            Fact::FellSilent { since: Timestamp(required("fell_silent.since", fact.since)?) }
        }
        wire::Fact::Reserved(fact) => {
            Fact::Reserved { child: required("reserved.child", fact.child)?.into(), depth: fact.depth }
        }
        wire::Fact::Used(fact) => Fact::Used { used: amounts(fact.used) },
        wire::Fact::Spent(fact) => {
            Fact::Spent { from: required("spent.from", fact.from)?.into(), used: amounts(fact.used) }
        }
        wire::Fact::Overspent(fact) => {
            Fact::Overspent { name: fact.name.into(), of: Amount(fact.of), used: Amount(fact.used) }
        }
        wire::Fact::KeySet(fact) => Fact::KeySet { key: fact.key.map(Into::into) },
        wire::Fact::ChildAdded(fact) => {
            Fact::ChildAdded { child: required("child_added.child", fact.child)?.into() }
        }

        wire::Fact::CycleFound(fact) => Fact::CycleFound { agents: texts(fact.agents) },
        wire::Fact::Proposed(fact) => Fact::Proposed {
            what: Box::new(proposed(required("proposed.what", fact.what)?)?),
            held: fact.held,
        },
        wire::Fact::Decided(fact) => Fact::Decided {
            proposal: Seq(required("decided.proposal", fact.proposal)?),
            ruling: ruling(required("decided.ruling", fact.ruling)?),
        },

        wire::Fact::Offered(fact) => {
            let NewOffer { handoff, target, scope, reason, .. } = offered(fact)?;
            Fact::Offered { handoff, target, scope, reason }
        }
        wire::Fact::ContextAdded(fact) => Fact::ContextAdded {
            handoff: required("context_added.handoff", fact.handoff)?.into(),
            content_type: fact.content_type.into(),
            body: blob(fact.body),
        },
        wire::Fact::OfferAccepted(fact) => Fact::OfferAccepted {
            handoff: required("offer_accepted.handoff", fact.handoff)?.into(),
            reason: fact.reason.into(),
            implicit: fact.implicit,
        },
        wire::Fact::OfferDeclined(fact) => Fact::OfferDeclined {
            handoff: required("offer_declined.handoff", fact.handoff)?.into(),
            reason: fact.reason.into(),
        },
    })
}

fn started(started: wire::Started) -> Result<Started, Error> {
    Ok(Started {
        base: Timestamp(required("started.base", started.base)?),
        start: Start {
            mode: numbered("started.mode", started.mode)?,
            participants: texts(started.participants),
            charter: charter(required("started.charter", started.charter)?)?,
            mode_version: started.mode_version.into(),
            configuration_version: started.configuration_version.into(),
            policy_version: started.policy_version.into(),
            ttl_ms: started.ttl_ms,
            sent_at: started.sent_at.map(Timestamp),
            intent: started.intent.into(),
            context_id: started.context_id.into(),
            extension_keys: texts(started.extension_keys),
            parent: started.parent.map(Into::into),
            contract: started.contract.map(|contract| Arc::new(bound(*contract))),
            under: started.under.map(under).transpose()?.map(Arc::new),
        },
    })
}

fn bound(contract: wire::Contract) -> Contract {
    Contract { skill: contract.skill.into(), input: blob(contract.input), output: blob(contract.output) }
}

fn under(under: wire::Under) -> Result<Under, Error> {
    Ok(Under {
        root: required("started.under.root", under.root)?.into(),
        depth: under.depth,
        deepest: under.deepest,
        until: under.until.map(Timestamp),
        nested: under.nested,
    })
}

fn budget(budget: wire::Budget) -> Budget {
    let wire::Budget { tasks, depth, time_ms, numbers } = budget;
    Budget { tasks, depth, time_ms, numbers: amounts(numbers) }
}

fn amounts(amounts: Vec<wire::Amount>) -> Amounts {
    Amounts::stored(amounts.into_iter().map(|found| (found.name.into(), Amount(found.amount))))
}

fn charter(charter: wire::Charter) -> Result<Charter, Error> {
    Ok(Charter {
        authority: match required("charter.authority", charter.authority)? {
            wire::Authority::Requester(()) => Authority::Requester,
            wire::Authority::AnyParticipant(()) => Authority::AnyParticipant,
            wire::Authority::Designated(designated) => Authority::Designated(texts(designated.agents)),
        },
        on_complete: numbered("charter.on_complete", charter.on_complete)?,
        on_fail: numbered("charter.on_fail", charter.on_fail)?,
        on_decline: numbered("charter.on_decline", charter.on_decline)?,
        cancel: numbered("charter.cancel", charter.cancel)?,
        pause: numbered("charter.pause", charter.pause)?,
        ends_pause: charter.ends_pause,
        reassignment: charter.reassignment,
        require_output: charter.require_output,
        acting_accepts: charter.acting_accepts,
        message_answers: charter.message_answers,
        commit_completes: charter.commit_completes,
        notices: charter.notices,
        check_in_ms: charter.check_in_ms,
        suspension_cap_ms: required("charter.suspension_cap_ms", charter.suspension_cap_ms)?,
        implicit_accept_ms: charter.implicit_accept_ms,
        approvals: charter.approvals.map(|approvals| {
            let (opening, commitment) = (texts(approvals.opening), texts(approvals.commitment));
            Arc::new(Approvals { opening, commitment })
        }),
        liveness: match charter.liveness {
            Some(liveness) => {
                let then = numbered("charter.liveness.then", liveness.then)?;
                Some(Box::new(Liveness { window_ms: liveness.window_ms, then }))
            }
            None => None,
        },
        budget: charter.budget.map(|found| Arc::new(budget(found))),
    })
}

fn proposed(what: wire::WhatProposed) -> Result<Proposed, Error> {
    Ok(match what {
        wire::WhatProposed::Request(request) => Proposed::Request(requested(request)),
        wire::WhatProposed::Commitment(commitment) => Proposed::Commitment(committed(commitment)?),
        wire::WhatProposed::Offer(offer) => {
            let context = offer.context.map(|context| OfferContext {
                content_type: context.content_type.into(),
                body: blob(context.body),
            });
            Proposed::Offer(NewOffer { context, ..offered(required("proposed.offer", offer.offer)?)? })
        }
    })
}

fn offered(offered: wire::Offered) -> Result<NewOffer, Error> {
    Ok(NewOffer {
        handoff: required("offered.handoff", offered.handoff)?.into(),
        target: required("offered.target", offered.target)?.into(),
        scope: offered.scope.into(),
        reason: offered.reason.into(),
        context: None,
    })
}

fn ruling(ruling: wire::Ruling) -> Ruling {
    match ruling {
        wire::Ruling::Approved(wire::Changes { title, instructions, input, reason }) => {
            Ruling::Approved(Changes {
                title: title.map(Into::into),
                instructions: instructions.map(Into::into),
                input: input.map(blob),
                reason: reason.map(Into::into),
            })
        }
        wire::Ruling::ChangesAsked(words) => Ruling::ChangesAsked(words.into()),
        wire::Ruling::Rejected(words) => Ruling::Rejected(words.into()),
    }
}

fn committed(committed: wire::Committed) -> Result<Commitment, Error> {
    let supersedes = match committed.supersedes {
        Some(supersedes) => Some(Supersedes {
            session: required("supersedes.session", supersedes.session)?.into(),
            hash: supersedes.hash.into(),
        }),
        None => None,
    };
    Ok(Commitment {
        commitment: committed.commitment.into(),
        action: committed.action.into(),
        scope: committed.scope.into(),
        reason: committed.reason.into(),
        mode_version: committed.mode_version.into(),
        policy_version: committed.policy_version.into(),
        configuration_version: committed.configuration_version.into(),
        positive: committed.positive,
        supersedes,
    })
}

fn requested(requested: wire::Requested) -> Request {
    Request {
        task: requested.task.into(),
        title: requested.title.into(),
        instructions: requested.instructions.into(),
        assignee: requested.assignee.map(Into::into),
        input: blob(requested.input),
        wanted_by: requested.wanted_by.map(Timestamp),
        check_in: CheckInTerms { window_ms: requested.check_in_ms, misses_max: requested.misses_max },
        session_key: requested.session_key.map(Into::into),
    }
}

fn progress(progress: wire::Progress) -> Progress {
    Progress {
        status: progress.status.into(),
        done: progress.done,
        message: progress.message.into(),
        partial: blob(progress.partial),
    }
}

fn question(question: wire::Question) -> Result<Question, Error> {
    Ok(Question {
        key: required("question.key", question.key)?.into(),
        need: numbered("question.need", question.need)?,
        text: question.text.into(),
        schema: blob(question.schema),
        wire: question.wire.map(blob),
    })
}

fn answer(answer: wire::Answer) -> Result<Answer, Error> {
    Ok(Answer {
        key: required("answer.key", answer.key)?.into(),
        reply: match required("answer.reply", answer.reply)? {
            wire::Reply::Content(body) => Reply::Content(blob(body)),
            wire::Reply::Refused(()) => Reply::Refused,
            wire::Reply::Dismissed(()) => Reply::Dismissed,
        },
    })
}

fn failed(failed: wire::Failed) -> Failure {
    Failure {
        code: failed.code.into(),
        reason: failed.reason.into(),
        retryable: failed.retryable,
        protocol_error: failed.protocol_error,
        output: blob(failed.output),
    }
}

fn required<T>(field: &'static str, found: Option<T>) -> Result<T, Error> {
    found.ok_or(Error::Missing { field })
}

fn numbered<T: Numbered>(field: &'static str, value: u32) -> Result<T, Error> {
    match value {
        0 => Err(Error::Missing { field }),
        value => T::of(value).ok_or(Error::UnknownValue { field, value }),
    }
}

fn blob(bytes: Bytes) -> Blob {
    Blob::from(&bytes[..])
}

fn texts<T: From<String>, C: FromIterator<T>>(texts: Vec<String>) -> C {
    texts.into_iter().map(T::from).collect()
}
