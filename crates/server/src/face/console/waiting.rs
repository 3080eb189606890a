//! What waits for whoever asks, the longest waiting first: the first page, and a part of each task's page.

use askama::Template;
use axum::response::Response;
use handover_desk::approvals::Approval;
use handover_desk::inbox;
use handover_desk::{No, WaitKind, id};
use handover_kernel::approval::Proposed;
use handover_kernel::{AgentId, Session, Timestamp};

use super::Console;
use super::acts::done;
use super::fields::Typed;
use super::http::Asked;
use super::page::{Notice, Top, html};
use super::question::{self, Asks};
use super::shown::{self, Faces, Head, When};

/// How many are on a page.
const PAGE: usize = 25;

/// How many bytes the forms of questions may take on a page.
pub(super) const FORMS_BYTES_MAX: usize = 400_000;

/// How large a text may be that a form offers to change.
const CHANGEABLE_BYTES_MAX: usize = 2000;

/// Why a task can be among them.
pub(super) const KINDS: [WaitKind; 8] = [
    WaitKind::Question,
    WaitKind::Approval,
    WaitKind::Review,
    WaitKind::Reply,
    WaitKind::CheckInMissed,
    WaitKind::Revision,
    WaitKind::HandoffOffer,
    WaitKind::Silent,
];

#[derive(Template)]
#[template(path = "waiting.html")]
struct Page {
    top: Top,
    waits: Vec<Wait>,
    /// The address of the next page; empty if there is none.
    next: String,
    /// Where the forms lead back to.
    back: &'static str,
}

/// One task that waits, and what for.
pub(super) struct Wait {
    pub(super) head: Head,
    pub(super) reasons: Vec<Reason>,
    pub(super) asks: Vec<Asks>,
    /// How many questions more there are.
    pub(super) more_asks: usize,
    pub(super) approval: Option<Proposal>,
    pub(super) outcome: String,
    /// What the assignee said last, where it waits for a reply.
    pub(super) last_words: String,
    /// Whether the requester may complete it instead.
    pub(super) completes: bool,
    pub(super) since: When,
    /// What makes a form that is sent twice count once.
    pub(super) key: String,
    /// What was typed into a form of it that was refused.
    pub(super) typed: Typed,
    /// Who, and what of it: the beginning of a sentence that its title ends.
    pub(super) lead: (String, &'static str),
    at: Timestamp,
}

/// Why a task waits for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Question,
    Approval,
    Review,
    Reply,
    CheckIn,
    Revision,
    Offer,
    Silent,
}

impl Reason {
    /// The word for it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Reason::Question => "question",
            Reason::Approval => "approval",
            Reason::Review => "review",
            Reason::Reply => "reply",
            Reason::CheckIn => "check-in",
            Reason::Revision => "sent back",
            Reason::Offer => "offer",
            Reason::Silent => "silent",
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.word() == word
    }
}

/// What somebody is to decide about.
pub(super) struct Proposal {
    pub(super) number: u64,
    pub(super) what: &'static str,
    pub(super) by: String,
    pub(super) sentence: String,
    /// What can be changed about it.
    pub(super) fields: Vec<Changeable>,
}

/// A part of a proposal that can be changed.
pub(super) struct Changeable {
    pub(super) name: &'static str,
    /// `long` where it may have lines.
    pub(super) kind: &'static str,
    /// As it is.
    pub(super) text: String,
    /// As somebody wants it, or as it is.
    pub(super) typed: String,
}

/// Why a session waits for an agent, of what this page shows.
fn reasons(session: &Session, agent: &AgentId) -> Vec<Reason> {
    let reason = |kind: &WaitKind| match kind {
        WaitKind::Question => Some(Reason::Question),
        WaitKind::Approval => Some(Reason::Approval),
        WaitKind::Review => Some(Reason::Review),
        WaitKind::Reply => Some(Reason::Reply),
        WaitKind::CheckInMissed => Some(Reason::CheckIn),
        WaitKind::Revision => Some(Reason::Revision),
        WaitKind::HandoffOffer => Some(Reason::Offer),
        WaitKind::Silent => Some(Reason::Silent),
        WaitKind::TaskOffer
        | WaitKind::InHand
        | WaitKind::Unread
        | WaitKind::Orders
        | WaitKind::Offered
        | WaitKind::Proposed => None,
    };
    inbox::reasons(session, agent).iter().filter_map(reason).collect()
}

impl Wait {
    /// What a session waits for, if it waits for this agent. Questions take of the room that there is on the page.
    pub(super) fn of(session: &Session, asked: &Asked, room: &mut usize, alone: bool) -> Option<Wait> {
        let reasons = reasons(session, &asked.caller.agent);
        if reasons.is_empty() {
            return None;
        }
        let approval = Approval::of(session);
        let typed = asked.typed(session.binding.id.as_str());
        let silent = session.task().and_then(|task| task.signs.silent_since);
        let at = match (&approval, silent) {
            (Some(approval), _) if reasons.contains(&Reason::Approval) => approval.since,
            (_, Some(since)) if reasons == [Reason::Silent] => since,
            _ => session.last_at,
        };
        let (asks, more_asks) = match reasons.contains(&Reason::Question) {
            true => question::open(session, &typed, room, alone),
            false => (Vec::new(), 0),
        };
        let last_words = session.task().and_then(|task| task.conversation.last_words.as_ref());
        let outcome = shown::outcome(session, None);
        let outcome = outcome.map_or_else(String::new, |outcome| shown::line(&outcome.said.join(" ")));
        let head = Head::of(session, &Faces::new());
        Some(Wait {
            lead: lead(&reasons, &head, approval.as_ref()),
            head,
            asks,
            more_asks,
            approval: approval.map(|approval| Proposal::of(&approval, &typed)),
            outcome,
            last_words: last_words.map_or_else(String::new, |said| shown::line(&shown::bytes(said))),
            completes: session.binding.charter.commit_completes,
            since: When::of(at),
            key: id::unguessable(),
            typed,
            reasons,
            at,
        })
    }
}

/// Who, and what of it.
fn lead(reasons: &[Reason], head: &Head, approval: Option<&Approval<'_>>) -> (String, &'static str) {
    let (from, to) = (head.from.name.clone(), head.to.name.clone());
    match reasons.first() {
        Some(Reason::Question) => (to, "asks about"),
        Some(Reason::Approval) => {
            let by = approval.map_or(from, |approval| approval.proposal.by.to_string());
            let what = match approval.map(|approval| &*approval.proposal.what) {
                Some(Proposed::Commitment(_)) => "wants to bind the outcome of",
                Some(Proposed::Offer(_)) => "wants to hand on",
                Some(Proposed::Request(_)) | None => "wants to delegate",
            };
            (by, what)
        }
        Some(Reason::Review) if head.state.detail == "for review of a failure" => (to, "failed at"),
        Some(Reason::Review) => (to, "delivered"),
        Some(Reason::Reply) => (to, "waits for a reply about"),
        Some(Reason::CheckIn) => (to, "has not confirmed"),
        Some(Reason::Revision) => ("An approver".to_owned(), "sent back"),
        Some(Reason::Offer) => (from, "offers you"),
        Some(Reason::Silent) | None => (to, "is silent about"),
    }
}

impl Proposal {
    fn of(approval: &Approval<'_>, typed: &Typed) -> Proposal {
        let proposal = approval.proposal;
        let mut fields = changeable(approval);
        for field in fields.iter_mut().filter(|_| typed.is("decide")) {
            if let Some(said) = typed.form.find(field.name) {
                field.typed = said.to_owned();
            }
        }
        Proposal {
            number: proposal.id.0,
            what: proposal.what.name(),
            by: proposal.by.to_string(),
            sentence: approval.sentence(),
            fields,
        }
    }
}

/// What an approver can change of a proposal, and as it is. What is too long for a page is not offered.
pub(super) fn changeable(approval: &Approval<'_>) -> Vec<Changeable> {
    let fields = match &*approval.proposal.what {
        Proposed::Request(request) => vec![
            ("title", "text", request.title.to_string()),
            ("instructions", "long", request.instructions.to_string()),
            ("input", "long", shown::json(&request.input)),
        ],
        Proposed::Offer(offer) => vec![("reason", "long", offer.reason.to_string())],
        Proposed::Commitment(commitment) => vec![("reason", "long", commitment.reason.to_string())],
    };
    let fields = fields.into_iter().filter(|(_, _, text)| text.len() <= CHANGEABLE_BYTES_MAX);
    fields.map(|(name, kind, text)| Changeable { name, kind, typed: text.clone(), text }).collect()
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked, notice: Notice) -> Result<Response, No> {
    let after = asked.query.said("after");
    let found = console.desk().inbox(&asked.caller, &KINDS, after, PAGE).await?;
    let mut room = FORMS_BYTES_MAX;
    let mut waits: Vec<Wait> =
        found.sessions.iter().filter_map(|session| Wait::of(session, asked, &mut room, false)).collect();
    waits.sort_by_key(|wait| wait.at);
    let notice = if let Notice::None = notice { done(asked.query.get("done")) } else { notice };
    let status = notice.status();
    let top = console.top(asked, "Waiting for you").await?;
    let at = notice.refusal().map_or_else(String::new, |_| "/".to_owned());
    let top = Top { here: "waiting", live: "all".to_owned(), notice, at, ..top };
    let next = found.next.map_or_else(String::new, |next| format!("/?after={next}"));
    Ok(html(status, &Page { top, waits, next, back: "/" }, asked.caller.room()))
}
