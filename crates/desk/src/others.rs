//! What the desks of several nodes tell each other through the store: signals, who is there, and that a record has changed.
//! Nothing of it is kept: whatever must not be lost is an event or a record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use handover_engine::locks::lock;
use handover_engine::seldom::Seldom;
use handover_engine::{Elsewhere, OnHeard};
use handover_kernel::AgentId;
use handover_store::{Fault, Slot};
use prost::Message;

use crate::directory::{Directory, Sighting};
use crate::identity::{bound, signins};
use crate::no::No;
use crate::open::{Desk, Parts};
use crate::policies;
use crate::reading::blocking;
use crate::signals::Signal;

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
    #[prost(message, optional, tag = "4")]
    by_face: Option<SaidByFace>,
}

/// What a face says to itself at other nodes.
#[derive(Clone, PartialEq, Eq, Message)]
struct SaidByFace {
    #[prost(string, tag = "1")]
    face: String,
    /// As it wrote it.
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

/// Is told what its face said at another node. It must not block.
type Hear = Box<dyn Fn(&[u8]) + Send + Sync>;

/// What is to be heard, and to be asked.
#[derive(Default)]
pub(crate) struct Others {
    /// The faces that say something to themselves at other nodes.
    faces: Mutex<BTreeMap<&'static str, Hear>>,
    /// It may have been missed who is there.
    missed: AtomicBool,
}

impl Desk {
    /// Have a face hear what it says at other nodes, from now on.
    pub fn hear_own(&self, face: &'static str, hear: Hear) {
        lock(&self.others.faces).insert(face, hear);
    }

    /// Let a face hear something at the other nodes, if there can be any. It is not kept, and a node that is just starting misses it.
    pub async fn say_to_own(&self, face: &'static str, body: Vec<u8>) -> Result<(), No> {
        if self.engine.slot().is_some() {
            let store = Arc::clone(&self.store);
            let by_face = Some(SaidByFace { face: face.to_owned(), body });
            blocking(move || store.say(&Said { by_face, ..Said::default() }.encode_to_vec())).await?;
        }
        Ok(())
    }
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
    if let Some(SaidByFace { face, body }) = said.by_face
        && let Some(hear) = lock(&parts.others.faces).get(&*face)
    {
        hear(&body);
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
