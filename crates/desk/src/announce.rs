//! What newly waits for an agent, one thing after the other, for whoever tells it elsewhere. The log is the queue: what was told
//! is a place in it, kept in the store, so that a restart loses nothing, and tells nothing again under another id.

use std::sync::Arc;

use handover_engine::Topic;
use handover_engine::view::WaitKind;
use handover_kernel::{AgentId, SessionId, Timestamp};
use handover_store::{Place, SessionKey};

use crate::Desk;
use crate::claim::{Claim, RENEW_EVERY};
use crate::follow::{Events, Over};
use crate::inbox::{self, begins};
use crate::no::No;
use crate::reading::blocking;

/// Where the places are kept.
pub(crate) const SPACE: &str = "announce";

/// Something that newly waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The same for the same thing, whenever it is told.
    pub id: String,
    /// For whom.
    pub agent: AgentId,
    /// In which task or handoff.
    pub session: SessionId,
    /// What it is called.
    pub title: String,
    /// What for.
    pub kind: WaitKind,
    /// Since when.
    pub since: Timestamp,
    place: Place,
}

/// What newly waits for one agent.
pub struct Announcements {
    desk: Desk,
    tenant: Box<str>,
    agent: AgentId,
    claim: Claim,
    events: Events,
}

impl Desk {
    /// What newly waits for an agent, from where it was left; from now on if nobody ever asked. Of several nodes only one is told:
    /// the others wait here until it is gone.
    pub async fn announcements(&self, tenant: &str, agent: &AgentId) -> Result<Announcements, No> {
        let name = [SPACE, tenant, agent.as_str()].map(Box::<str>::from);
        let (claim, after) = loop {
            let (store, name) = (Arc::clone(&self.store), name.clone());
            match blocking(move || Claim::take(store, name)).await? {
                Some(taken) => break taken,
                None => tokio::time::sleep(RENEW_EVERY).await,
            }
        };
        claim.keep();
        let tenant = Box::<str>::from(tenant);
        let topic = Topic::Agent { tenant: tenant.clone(), agent: agent.as_str().into() };
        let events = self.follow_freely(topic, after);
        Ok(Announcements { desk: self.clone(), tenant, agent: agent.clone(), claim, events })
    }
}

impl Announcements {
    /// The next thing that waits. Waits for it; what somebody has dealt with meanwhile is passed over.
    pub async fn next(&mut self) -> Result<Announcement, Over> {
        loop {
            let delivery = self.events.next().await?;
            let Some(kind) = begins(&delivery.event.fact) else { continue };
            let key = SessionKey::new(self.tenant.clone(), &*delivery.key.session);
            let session = match self.desk.engine.session(key).await {
                Ok(Some(session)) => session,
                Ok(None) => continue,
                Err(denied) => return Err(Over::Denied(denied)),
            };
            let waits = inbox::reasons(&session, &self.agent).contains(&kind);
            let place = self.events.reached().clone();
            if !waits {
                // It must not count as new after a restart because something like it waits by then.
                self.told(&place).await?;
                continue;
            }
            let wanted = session.wanted().map_or(&*session.binding.intent, |request| &*request.title);
            let parts = [&*self.tenant, self.agent.as_str(), session.binding.id.as_str()];
            if !self.goes_on() {
                return Err(Over::Lagging);
            }
            let event = delivery.event.seq.to_string();
            let id = self.desk.secret.derive(&[&parts[..], &["announce", &event]].concat());
            return Ok(Announcement {
                id: format!("msg_{id}"),
                agent: self.agent.clone(),
                session: session.binding.id.clone(),
                title: handover_kernel::cut(wanted, 200).into_owned(),
                kind,
                since: delivery.event.at,
                place,
            });
        }
    }

    /// It was told, or given up: the next one follows, also after a restart.
    pub async fn done(&self, announcement: &Announcement) -> Result<(), Over> {
        self.told(&announcement.place).await
    }

    /// Whether it is still for this node to tell.
    pub fn goes_on(&self) -> bool {
        self.claim.is_held()
    }

    async fn told(&self, place: &Place) -> Result<(), Over> {
        match blocking(self.claim.writing(place.clone())).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Over::Lagging),
            Err(denied) => Err(Over::Denied(denied)),
        }
    }
}
