//! What the desks of several nodes tell each other through the store: signals, who is there, and that a record has changed.
//! Nothing of it is kept: whatever must not be lost is an event or a record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use handover_engine::seldom::Seldom;
use handover_engine::{Elsewhere, OnHeard};
use handover_kernel::AgentId;
use handover_store::{Fault, Slot};
use prost::Message;

use crate::directory::{Directory, Sighting};
use crate::identity::{bound, signins};
use crate::open::{Desk, Parts};
use crate::policies;
use crate::signals::Signal;
use crate::wishes;

/// How long an arrival or a departure may be unknown elsewhere.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How often it is looked which nodes are there.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How often a node that starts tries to be heard once more.
const ASKED_AGAIN_MAX: usize = 3;

/// How many agents are told of at once.
const SIGHTINGS_MAX: usize = 1000;

/// What one desk says to the others. Field numbers are never reused: nodes of two releases may run side by side.
#[derive(Clone, PartialEq, Eq, Message)]
struct Said {
    #[prost(message, optional, tag = "1")]
    signal: Option<SaidSignal>,
    #[prost(message, repeated, tag = "2")]
    sightings: Vec<Sighting>,
    /// Who says it has just come, or missed something: it wants to know who is there, and tells of everybody it sees.
    #[prost(bool, tag = "3")]
    begins: bool,
}

/// What is to be heard, and to be asked.
#[derive(Default)]
pub(crate) struct Others {
    /// It may have been missed who is there.
    missed: AtomicBool,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct SaidSignal {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    sender: String,
    #[prost(string, optional, tag = "3")]
    about: Option<String>,
    #[prost(bool, tag = "4")]
    proven: bool,
    #[prost(bytes = "vec", tag = "5")]
    body: Vec<u8>,
}

/// Begin to hear what other nodes do, and to tell them who is there, if there can be others.
pub(crate) fn begin(desk: &Desk) -> Result<(), Fault> {
    if desk.engine.slot().is_none() {
        return Ok(());
    }
    let parts = Arc::downgrade(&desk.parts);
    desk.directory.share_presence();
    let hearing = Weak::clone(&parts);
    desk.engine.hear(OnHeard(Box::new(move |elsewhere| {
        if let Some(parts) = hearing.upgrade() {
            heard(&parts, elsewhere);
        }
    })));
    let question = Said { begins: true, ..Said::default() }.encode_to_vec();
    // While commits hang for longer than the lease, a slot may be taken before anything was written under it.
    let mut asked = desk.store.say(&question);
    for _ in 0..ASKED_AGAIN_MAX {
        if asked.as_ref().is_err_and(Fault::is_retryable) {
            asked = desk.store.say(&question);
        }
    }
    asked?;
    thread::Builder::new()
        .name("presence".to_owned())
        .spawn(move || tell_who_is_there(&parts))
        .map(drop)
        .map_err(|error| Fault::Unavailable { doing: "starting a thread", source: error.into() })
}

fn heard(parts: &Parts, elsewhere: Elsewhere<'_>) {
    match elsewhere {
        Elsewhere::Record { space, tenant, key } => match space {
            space if Directory::has_space(space) => parts.directory.heard(Some(tenant)),
            policies::SPACE => parts.policies.heard(),
            bound::KEYS => parts.keys.heard(key),
            signins::SPACE => parts.sign_ins.heard(),
            wishes::SPACE => parts.wishes.heard(tenant, key),
            _ => {}
        },
        Elsewhere::Said { by, bytes } => match Said::decode(bytes) {
            Ok(said) => told(parts, by, said),
            Err(error) => tracing::warn!(%error, "what another node said cannot be read"),
        },
        Elsewhere::Anything => {
            parts.directory.heard(None);
            parts.policies.heard();
            parts.sign_ins.heard();
            parts.wishes.missed();
            parts.keys.missed();
            parts.gate.moved();
            parts.others.missed.store(true, Ordering::Release);
        }
    }
}

fn told(parts: &Parts, by: Slot, said: Said) {
    if let Some(SaidSignal { tenant, sender, about, proven, body }) = said.signal {
        let (sender, about) = (AgentId::from(sender), about.map(Box::from));
        parts.signals.tell(&tenant, Signal { sender, about, proven, body: body.into() });
    }
    if said.begins {
        parts.directory.begins(by);
        parts.directory.tell_again();
    }
    parts.directory.saw(by, said.sightings);
}

/// Let the listeners at other nodes hear a signal. May wait for the store.
pub(crate) fn tell_signal(parts: &Parts, tenant: &str, signal: &Signal) -> Result<(), Fault> {
    let signal = SaidSignal {
        tenant: tenant.to_owned(),
        sender: signal.sender.as_str().to_owned(),
        about: signal.about.as_deref().map(str::to_owned),
        proven: signal.proven,
        body: signal.body.to_vec(),
    };
    parts.store.say(&Said { signal: Some(signal), ..Said::default() }.encode_to_vec())
}

/// Ends with the desk.
fn tell_who_is_there(parts: &Weak<Parts>) {
    let untold = Seldom::default();
    let mut looked: Option<Instant> = None;
    loop {
        thread::sleep(TELL_EVERY);
        let Some(parts) = parts.upgrade().filter(|parts| !parts.shutdown.has_begun()) else { return };
        let begins = parts.others.missed.swap(false, Ordering::AcqRel);
        if begins {
            // It may hold another slot now.
            parts.directory.tell_again();
        }
        let sightings = parts.directory.untold(SIGHTINGS_MAX);
        if (begins || !sightings.is_empty())
            && let Err(error) =
                parts.store.say(&Said { sightings, begins, ..Said::default() }.encode_to_vec())
        {
            parts.others.missed.fetch_or(begins, Ordering::AcqRel);
            if let Some(unsaid) = untold.now() {
                tracing::warn!(%error, unsaid, "the other nodes could not be told who is there");
            }
            parts.directory.tell_again();
        }
        if looked.is_none_or(|looked| looked.elapsed() > LOOK_EVERY)
            && let Ok(slots) = parts.store.live()
        {
            looked = Some(Instant::now());
            parts.directory.live(&slots);
        }
    }
}
