//! What waits for whoever asks, the longest waiting first: the first page, and a part of each task's page.

use askama::Template;
use axum::response::Response;
use handover_desk::approvals::Approval;
use handover_desk::inbox;
use handover_desk::visible::spelled_out;
use handover_desk::{No, WaitKind, id};
use handover_kernel::approval::Proposed;
use handover_kernel::{AgentId, Session, Timestamp};

use super::Console;
use super::acts::done;
use super::fields::Typed;
use super::http::Asked;
use super::offered::Offered;
use super::page::{Notice, Top, html};
use super::question::{self, Asks};
use super::shown::{self, Faces, Head, When};
use super::task;

/// How many are on a page.
const PAGE: usize = 25;

/// How many are counted on every page.
const COUNTED_MAX: usize = 99;

/// How many bytes the forms of questions may take on a page.
pub(super) const FORMS_BYTES_MAX: usize = 400_000;

/// How large a text may be that a form offers to change.
const CHANGEABLE_BYTES_MAX: usize = 2000;

/// How many characters of each part of a proposal are shown.
const PART_CHARS_MAX: usize = 4000;

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
    pub(super) offered: Option<Offered>,
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
    /// What it says. Nothing where the page has no room for it: then nobody decides there.
    pub(super) parts: Vec<Part>,
    /// What can be changed about it.
    pub(super) fields: Vec<Changeable>,
}

/// A part of a proposal or an offer, as far as it is shown.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) name: &'static str,
    /// `long` where it may have lines.
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// How many characters it has, if they are not all shown.
    pub(super) of: Option<String>,
    /// The event before which, in the list of raw ones, the whole of it stands.
    pub(super) before: u64,
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
    /// What a session waits for since then, if it waits for this agent. Questions and proposals take of the room that there is
    /// on the page.
    pub(super) fn of(
        session: &Session,
        since: Timestamp,
        offered: Option<Offered>,
        asked: &Asked,
        room: &mut usize,
        alone: bool,
    ) -> Option<Wait> {
        let reasons = reasons(session, &asked.caller.agent);
        if reasons.is_empty() {
            return None;
        }
        let approval = Approval::of(session);
        let typed = asked.typed(session.binding.id.as_str());
        let (asks, more_asks) = match reasons.contains(&Reason::Question) {
            true => question::open(session, &typed, room, alone),
            false => (Vec::new(), 0),
        };
        let last_words = session.task().and_then(|task| task.conversation.last_words.as_ref());
        let outcome = shown::outcome(session, None);
        let outcome = outcome.map_or_else(String::new, |outcome| shown::line(&outcome.said.join(" ")));
        let head = Head::of(session, &Faces::new(), &asked.caller);
        Some(Wait {
            lead: lead(&reasons, &head, approval.as_ref()),
            head,
            asks,
            more_asks,
            approval: approval.map(|approval| match reasons.contains(&Reason::Approval) {
                true => Proposal::of(&approval, session, &typed, room, alone),
                false => Proposal::told(&approval),
            }),
            outcome,
            last_words: last_words.map_or_else(String::new, |said| shown::line(&shown::bytes(said))),
            completes: session.binding.charter.commit_completes,
            since: When::of(since),
            offered: match alone {
                true => offered,
                false => offered.map(|offered| offered.fit(room)),
            },
            key: id::unguessable(),
            typed,
            reasons,
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
    /// What is proposed, of the room that there is on the page. Where the page is about its task alone it is shown in any case.
    fn of(
        approval: &Approval<'_>,
        session: &Session,
        typed: &Typed,
        room: &mut usize,
        alone: bool,
    ) -> Proposal {
        let mut fields = changeable(approval);
        for field in fields.iter_mut().filter(|_| typed.is("decide")) {
            if let Some(said) = typed.form.find(field.name) {
                field.typed = said.to_owned();
            }
        }
        let mut parts = parts(approval, session);
        let shown = parts.iter().map(|part| shown::weight(&part.text));
        let offered = fields.iter().map(|field| shown::weight(&field.typed));
        *room = room.saturating_sub(2000 + shown.chain(offered).sum::<usize>());
        if *room == 0 && !alone {
            parts.clear();
            fields.clear();
        }
        Proposal { parts, fields, ..Proposal::told(approval) }
    }

    /// What became of it, for whoever proposed it.
    fn told(approval: &Approval<'_>) -> Proposal {
        let proposal = approval.proposal;
        Proposal {
            number: proposal.id.0,
            what: proposal.what.name(),
            by: proposal.by.to_string(),
            sentence: shown::line(&approval.sentence()),
            parts: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// The parts that are too long to be changed in a form.
    pub(super) fn fixed(&self) -> String {
        let can = ["title", "instructions", "input", "reason"].into_iter();
        let fixed = can.filter(|name| self.parts.iter().any(|part| part.name == *name));
        let fixed: Vec<&str> =
            fixed.filter(|name| self.fields.iter().all(|field| field.name != *name)).collect();
        fixed.join(" and ")
    }
}

impl Changeable {
    /// Whether a form says what it was made with. Browsers have their own ends of lines, and no lines at all in short fields;
    /// what a page leaves out comes back without it.
    pub(super) fn is(&self, said: &str) -> bool {
        let stays = |found: &char| match found {
            '\r' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => false,
            '\n' => self.kind == "long",
            _ => true,
        };
        let plain = |text: &str| spelled_out(text).chars().filter(stays).collect::<String>();
        plain(&self.text) == plain(said)
    }
}

/// What an approver is to know of a proposal.
fn parts(approval: &Approval<'_>, session: &Session) -> Vec<Part> {
    let proposal = approval.proposal;
    let own = proposal.id.0 + 1;
    let found = match &*proposal.what {
        Proposed::Request(request) => {
            let to = request.assignee.as_ref().map_or_else(|| approval.to.join(" or "), ToString::to_string);
            vec![
                ("to", "text", to, own),
                ("skill", "text", approval.skill.unwrap_or_default().to_owned(), own),
                ("title", "text", request.title.to_string(), own),
                ("instructions", "long", request.instructions.to_string(), own),
                ("input", "long", shown::json(&request.input), own),
            ]
        }
        Proposed::Offer(offer) => vec![
            ("to", "text", offer.target.to_string(), own),
            ("scope", "text", offer.scope.to_string(), own),
            ("reason", "long", offer.reason.to_string(), own),
            (
                "context",
                "long",
                offer.context.as_ref().map(|it| shown::json(&it.body)).unwrap_or_default(),
                own,
            ),
        ],
        Proposed::Commitment(commitment) => {
            let how = if commitment.positive { "a success" } else { "a failure" };
            let reported = shown::reported(session);
            let (said, output) =
                reported.map(|(said, output)| (said, shown::json(output))).unwrap_or_default();
            vec![
                ("outcome", "text", format!("{how} ({})", commitment.action), own),
                ("reason", "long", commitment.reason.to_string(), own),
                ("reported", "long", said, proposal.id.0),
                ("output", "long", output, proposal.id.0),
            ]
        }
    };
    let found = found.into_iter().filter(|(_, _, text, _)| !text.is_empty());
    found.map(|(name, kind, text, before)| Part::of(name, kind, &text, before)).collect()
}

impl Part {
    pub(super) fn of(name: &'static str, kind: &'static str, text: &str, before: u64) -> Part {
        let shown = handover_kernel::cut(text, PART_CHARS_MAX);
        let of = (shown != text).then(|| shown::thousands(&text.chars().count().to_string()));
        Part { name, kind, of, before, text: shown.into_owned() }
    }
}

/// What an approver can change of a proposal, and as it is. What is too long for a form is not offered.
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

/// How many things wait for whoever asks, as people are told; nothing if none does.
pub(super) async fn count(console: &Console, asked: &Asked) -> Result<String, No> {
    Ok(match console.desk().count_waiting(&asked.caller, &KINDS, COUNTED_MAX + 1).await? {
        0 => String::new(),
        many if many > COUNTED_MAX => format!("{COUNTED_MAX}+"),
        count => count.to_string(),
    })
}

/// Since when a session waits for whoever asks.
pub(super) fn since(asked: &Asked, session: &Session) -> Timestamp {
    inbox::waits_since(session, &asked.caller.agent, &KINDS)
}

/// What is offered to whoever asks, if a session waits for an answer to that.
async fn offer(console: &Console, asked: &Asked, session: &Session) -> Result<Option<Offered>, No> {
    if !reasons(session, &asked.caller.agent).contains(&Reason::Offer) {
        return Ok(None);
    }
    match Offered::of(console, asked, session).await {
        // One that is gone meanwhile must not hide the others.
        Err(no) if no.is_unknown() => Ok(None),
        found => found,
    }
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked, notice: Notice) -> Result<Response, No> {
    let page = page(console, asked, notice).await?;
    Ok(html(page.top.notice.status(), &page, asked.caller.room()))
}

/// The page after a form of it was refused. If the task of the form is not on it, it was on a later one: then the task's own
/// page has what was typed.
pub(super) async fn refused(
    console: &Console,
    asked: &Asked,
    id: &str,
    notice: Notice,
) -> Result<Response, No> {
    let page = page(console, asked, notice.clone()).await?;
    if page.waits.iter().any(|wait| wait.head.id == id) {
        return Ok(html(notice.status(), &page, asked.caller.room()));
    }
    task::show(console, asked, id, notice).await
}

async fn page(console: &Console, asked: &Asked, notice: Notice) -> Result<Page, No> {
    let after = asked.query.said("after");
    let found = console.desk().longest_waiting(&asked.caller, &KINDS, after, PAGE).await?;
    let (mut room, mut waits) = (FORMS_BYTES_MAX, Vec::with_capacity(found.sessions.len()));
    for session in &found.sessions {
        let (since, offered) = (since(asked, session), offer(console, asked, session).await?);
        waits.extend(Wait::of(session, since, offered, asked, &mut room, false));
    }
    let notice = if let Notice::None = notice { done(console, asked, "/") } else { notice };
    let top = console.top(asked, "Waiting for you").await?;
    let at = notice.refusal().map_or_else(String::new, |_| "/".to_owned());
    let top = Top { here: "waiting", live: "all".to_owned(), notice, at, ..top };
    let next = found.next.map_or_else(String::new, |next| format!("/?after={next}"));
    Ok(Page { top, waits, next, back: "/" })
}
