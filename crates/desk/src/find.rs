//! Finding tasks among many: by agent, state, face, age and words of the title, the newest first. It costs what it looks at,
//! which is bounded: a page may be short, and says where to go on.

use std::sync::Arc;
use std::time::Duration;

use handover_engine::Denied;
use handover_engine::codec::face_number;
use handover_engine::view;
use handover_kernel::command::ModeKind;
use handover_kernel::session::Standing;
use handover_kernel::{AgentId, Face, Refusal, Session, Timestamp};
use handover_store::SessionKey;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::look::{Item, Query};
use crate::no::No;
use crate::state::State;
use crate::{Desk, page};

/// How many rows of the index are looked at for one page, and how many at a time.
const LOOKED_AT_MAX: usize = 5000;
const ROWS: usize = 200;

/// How many bytes the sessions have at most that are read for one page, wanted or not, and how long it may take.
const READ_BYTES_MAX: usize = 16 * page::BYTES_MAX;
const WITHIN: Duration = Duration::from_secs(1);

/// How long what is looked for may be.
const WORDS_BYTES_MAX: usize = 256;

/// Which tasks are wanted. What is none or empty does not matter.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// In this state.
    pub state: Option<State>,
    /// Requested of, requested by or held by this agent.
    pub agent: Option<String>,
    /// Started through this face.
    pub face: Option<Face>,
    /// Started before this moment.
    pub before: Option<Timestamp>,
    /// Started after this moment.
    pub after: Option<Timestamp>,
    /// With these words in the title or the name of its requester, of its assignee or of whoever is asked to take it, whatever
    /// their case, or with an id that begins so.
    pub words: Option<String>,
    /// Only those whose time is up before this moment, and that have not ended. The time of one that is paused stands still.
    pub due_by: Option<Timestamp>,
    /// Only those that have not ended.
    pub open: bool,
}

/// A page of what was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The tasks, the newest first.
    pub tasks: Vec<Arc<Session>>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<String>,
}

impl Desk {
    /// A page of the tasks that the caller may see and that are wanted, at most `max` of them, cut by bytes and by time: a page
    /// can be short, or empty, and still have a next one. Whatever is read for it counts as used by the caller.
    pub async fn find(
        &self,
        caller: &Caller,
        wanted: &Wanted,
        after: Option<&str>,
        max: usize,
    ) -> Result<Found, No> {
        if let Some(words) = wanted.words.as_ref().filter(|words| words.len() > WORDS_BYTES_MAX) {
            let found = words.len();
            let what = format!("expected at most {WORDS_BYTES_MAX} bytes to look for, found {found}");
            return Err(Refusal::invalid(what).into());
        }
        let mut read = 0;
        let found = self.look_for(caller, wanted, after, max, &mut read).await;
        self.gate.charge_bytes(caller, read as u64);
        found
    }

    async fn look_for(
        &self,
        caller: &Caller,
        wanted: &Wanted,
        after: Option<&str>,
        max: usize,
        read: &mut usize,
    ) -> Result<Found, No> {
        let until = Instant::now() + WITHIN;
        let standings = wanted.standings();
        let query = Query { kind: Some(ModeKind::Task), newest_first: true, standings };
        let words = wanted.words.as_ref().map(|words| words.to_lowercase());
        let (mut tasks, mut looked_at) = (Vec::new(), 0);
        let mut after = after.map(str::to_owned);
        loop {
            let many = if wanted.is_plain() { max - tasks.len() } else { ROWS };
            let page = self.list(caller, query, after.as_deref(), many).await?;
            looked_at += page.items.len().max(1);
            self.gate.charge(caller, (page.items.len() / ROWS) as u64);
            let last = page.items.last().map(|item| &item.id);
            for item in page.items.iter().filter(|item| wanted.fits(item, words.as_deref())) {
                let key = SessionKey::new(caller.tenant.clone(), item.id.as_str());
                let session = match self.engine.session(key).await {
                    Ok(Some(session)) => session,
                    // One that is gone, or cannot be read, must not hide the others.
                    Ok(None) | Err(Denied::Unreadable(_)) => continue,
                    Err(denied) => return Err(denied.into()),
                };
                *read += session.weight();
                let in_state = wanted.state.is_none_or(|state| State::of(&session) == state);
                let begun_on = wanted.face.is_none_or(|face| session.binding.face == face);
                if in_state && begun_on && wanted.names(item, Some(&session), words.as_deref()) {
                    tasks.push(session);
                }
                if tasks.len() >= max || *read >= READ_BYTES_MAX || Instant::now() >= until {
                    let next = if last == Some(&item.id) { page.next } else { item.cursor.clone() };
                    return Ok(Found { tasks, next });
                }
            }
            match page.next {
                Some(next) if looked_at < LOOKED_AT_MAX && Instant::now() < until => after = Some(next),
                next => return Ok(Found { tasks, next }),
            }
        }
    }
}

impl Wanted {
    /// Whether everything in the standings of the wanted state may be wanted.
    fn is_plain(&self) -> bool {
        let Wanted { state: _, agent, face, before, after, words, due_by, open } = self;
        let timeless = (before, after, due_by) == (&None, &None, &None);
        (agent, words) == (&None, &None) && face.is_none() && timeless && !open
    }

    /// The standings to look among, one bit for each; 0 is any.
    fn standings(&self) -> u64 {
        const OPEN: [State; 5] =
            [State::Requested, State::Working, State::Waiting, State::Paused, State::Silent];
        match self.state {
            Some(state) => state.standings(),
            None if self.open => OPEN.into_iter().map(State::standings).fold(0, |all, bits| all | bits),
            None => 0,
        }
    }

    /// Whether an item has the agent and the words that are wanted. Who is asked to take a task that nobody has yet, only its
    /// session knows: without it, it may fit.
    fn names(&self, item: &Item, session: Option<&Session>, words: Option<&str>) -> bool {
        let summary = &item.summary;
        let is_requested = matches!(item.standing, Some(Standing::Pending | Standing::Requested));
        let wanted = session.and_then(Session::wanted).filter(|_| is_requested);
        let asked = wanted.and_then(|request| request.assignee.as_ref()).map(AgentId::as_str);
        let agents = [Some(&*item.requester), summary.assignee.as_deref(), asked];
        let has = |agent: &String| agents.iter().flatten().any(|known| *known == agent);
        let is_named = |words: &str| {
            let titled =
                [&summary.title, &summary.intent].iter().any(|text| text.to_lowercase().contains(words));
            let named = agents.iter().flatten().any(|agent| agent.to_lowercase().contains(words));
            titled || named || item.id.as_str().to_lowercase().starts_with(words)
        };
        let unknown = is_requested && session.is_none();
        unknown || self.agent.as_ref().is_none_or(has) && words.is_none_or(is_named)
    }

    fn fits(&self, item: &Item, words: Option<&str>) -> bool {
        let summary = &item.summary;
        let began_on = |face| summary.face.is_none_or(|number| number == face_number(face));
        let open = item.standing.is_some_and(|standing| !view::is_over(standing));
        let runs = open && item.standing != Some(Standing::Suspended);
        self.names(item, None, words)
            && self.before.is_none_or(|before| item.created_at < before)
            && self.after.is_none_or(|after| item.created_at >= after)
            && self.face.is_none_or(began_on)
            && (open || !self.open)
            && self.due_by.is_none_or(|by| runs && summary.deadline.is_some_and(|at| at < by.0))
    }
}
