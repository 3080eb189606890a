//! What is offered in a handoff: what it covers, why, and what comes with it, as far as a page has room for it.

use std::sync::Arc;

use handover_desk::id::{is_token, is_uuid};
use handover_desk::{No, WaitKind};
use handover_kernel::handoff::{Offer, TASK_SCOPE_PREFIX, task_of_scope};
use handover_kernel::{Event, Fact, Session};

use super::Console;
use super::fields::encode;
use super::http::Asked;
use super::shown::{self, thousands};
use super::waiting::Part;

/// How many open offers of whoever asks are looked at for those of a task.
const OFFERS_MAX: usize = 50;

/// How many events of a handoff are looked at for its offer: the first, or else the last.
const FIRST: usize = 16;
const LAST: usize = 100;

/// How many texts that come with an offer are shown.
const CONTEXTS_MAX: usize = 3;

/// An offer.
#[derive(Clone)]
pub(super) struct Offered {
    pub(super) id: String,
    pub(super) to: String,
    /// What it covers, why, and the first of what comes with it. Nothing where the page has no room for it: then nobody answers
    /// it there.
    pub(super) parts: Vec<Part>,
    /// The address and the title of the task that it is about, if whoever looks may see that.
    pub(super) task: Option<(String, String)>,
    /// How many texts come with it, if they are not all shown.
    pub(super) left_out: String,
}

impl Offered {
    /// The last offer of a session, if it is a handoff.
    pub(super) async fn of(
        console: &Console,
        asked: &Asked,
        session: &Session,
    ) -> Result<Option<Offered>, No> {
        let Some(offer) = session.handoff().and_then(|handoff| handoff.offers.last()) else {
            return Ok(None);
        };
        let (desk, caller, id) = (console.desk(), &asked.caller, session.binding.id.as_str());
        let is_it =
            |event: &Event| matches!(&event.fact, Fact::Offered { handoff, .. } if *handoff == offer.handoff);
        let mut history = desk.history(caller, id, 0, FIRST).await?;
        if history.next.is_some() && !history.events.iter().any(|event| is_it(event)) {
            history = desk.history_before(caller, id, u64::MAX, LAST).await?;
        }
        // Only what is a task that whoever looks may see is a link: a scope is what an agent wrote.
        let about = task_of_scope(&offer.scope).filter(|id| is_uuid(id.as_str()) || is_token(id.as_str()));
        let task = match about {
            Some(task) if desk.sees(caller, task.as_str()).await => {
                let title = desk.session(caller, task.as_str()).await.map(|task| shown::title(&task));
                title.ok().map(|title| (format!("/tasks/{}", encode(task.as_str())), title))
            }
            Some(_) | None => None,
        };
        Ok(Some(Offered::told(session, offer, history.events.iter().map(|event| &**event), task)))
    }

    /// The offer as its events tell it.
    fn told<'a>(
        session: &Session,
        offer: &Offer,
        events: impl Iterator<Item = &'a Event>,
        task: Option<(String, String)>,
    ) -> Offered {
        let (mut parts, mut contexts) = (Vec::new(), 0);
        for event in events {
            let before = event.seq.0 + 1;
            if let Fact::Offered { handoff, reason, scope, .. } = &event.fact
                && *handoff == offer.handoff
            {
                parts.push(Part::of("scope", "text", scope, before));
                parts.extend((!reason.is_empty()).then(|| Part::of("reason", "long", reason, before)));
            }
            if let Fact::ContextAdded { handoff, body, .. } = &event.fact
                && *handoff == offer.handoff
                && contexts < CONTEXTS_MAX
            {
                contexts += 1;
                parts.push(Part::of("context", "long", &shown::json(body), before));
            }
        }
        if parts.is_empty() {
            parts.push(Part::of("scope", "text", &offer.scope, 2));
        }
        let left_out = (offer.contexts as usize).saturating_sub(contexts);
        Offered {
            id: session.binding.id.to_string(),
            to: offer.target.to_string(),
            parts,
            task,
            left_out: if left_out == 0 { String::new() } else { thousands(&left_out.to_string()) },
        }
    }

    /// Take of the room that there is on a page, and show nothing where there is none.
    pub(super) fn fit(mut self, room: &mut usize) -> Offered {
        let shown = self.parts.iter().map(|part| shown::weight(&part.text));
        *room = room.saturating_sub(2000 + shown.sum::<usize>());
        if *room == 0 {
            self.parts.clear();
        }
        self
    }
}

/// The open offers of whoever asks to hand a task on, each as whom it is to and its id.
pub(super) async fn own(
    console: &Console,
    asked: &Asked,
    session: &Session,
) -> Result<Vec<(String, String)>, No> {
    if session.task().is_none() || session.lifecycle.is_terminal() {
        return Ok(Vec::new());
    }
    let found = console.desk().inbox(&asked.caller, &[WaitKind::Offered], None, OFFERS_MAX).await?;
    let scope = format!("{TASK_SCOPE_PREFIX}{}", session.binding.id);
    let own = |handoff: &Arc<Session>| {
        let offer = handoff.handoff()?.outstanding().filter(|offer| *offer.scope == *scope)?;
        Some((offer.target.to_string(), handoff.binding.id.to_string()))
    };
    Ok(found.sessions.iter().filter_map(own).collect())
}
