//! What only one of several nodes does: it holds a record, which says how far it has come, and renews it for as long as it goes
//! on. Another takes over when the record has not been renewed for a while. A store of one node has nobody else to heed.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use handover_engine::clock::now;
use handover_engine::locks::lock;
use handover_kernel::Timestamp;
use handover_store::{Change, Fault, Place, Record, Store};

use crate::id;
use crate::reading::blocking;

/// How long a record that is not renewed is heeded, and how often it is renewed.
const HEEDED_MS: u64 = 10_000;
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(3);

/// A record that this node holds, until it is dropped.
pub(crate) struct Claim(Arc<Held>);

struct Held {
    store: Arc<dyn Store>,
    /// Space, tenant and key.
    name: [Box<str>; 3],
    /// What tells this holder from others; none where there are none.
    holder: Option<String>,
    said: Mutex<Said>,
    /// One writes after the other. Whoever asks what it says waits for none of them.
    writing: Mutex<()>,
}

/// What the record says, as it was last written here.
#[derive(Clone)]
struct Said {
    place: Place,
    until: Timestamp,
    /// Another node has it now, or may have.
    lost: bool,
}

/// A record as it is found: the place, and who holds it until when.
fn parse(text: &str) -> Option<(Place, Option<(&str, Timestamp)>)> {
    let mut parts = text.split(' ');
    let place = Place::parse(parts.next()?)?;
    let held = parts.next().zip(parts.next().and_then(|until| until.parse().ok()).map(Timestamp));
    Some((place, held))
}

impl Claim {
    /// Take a record that nobody holds, and say the place in it, the end of everything if there was none. None if it is held. May
    /// wait for the store.
    pub(crate) fn take(store: Arc<dyn Store>, name: [Box<str>; 3]) -> Result<Option<(Claim, Place)>, Fault> {
        let [space, tenant, key] = &name;
        let found = store.record(space, tenant, key)?;
        let text = found.as_deref().and_then(|found| std::str::from_utf8(found).ok());
        let (place, held) = match text.and_then(parse) {
            Some(found) => found,
            None => (store.last_place()?, None),
        };
        if held.is_some_and(|(_, until)| until > now()) {
            return Ok(None);
        }
        let holder = store.slot().map(|_| id::unguessable());
        let said = Said { place: place.clone(), until: now().plus(HEEDED_MS), lost: false };
        let held = Held { store, name, holder, said: Mutex::new(said), writing: Mutex::default() };
        let change = Change::since(held.record(&lock(&held.said)), found.clone());
        let taken = held.store.change_records(&[change])?;
        Ok(taken.then(|| (Claim(Arc::new(held)), place)))
    }

    /// Renew it from now on.
    pub(crate) fn keep(&self) {
        if self.0.holder.is_none() {
            return;
        }
        let held: Weak<Held> = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEW_EVERY).await;
                let Some(held) = held.upgrade() else { return };
                if let Ok(false) = blocking(move || held.write(None, HEEDED_MS)).await {
                    return;
                }
            }
        });
    }

    /// Whether this node still holds it.
    pub(crate) fn is_held(&self) -> bool {
        let said = lock(&self.0.said);
        !said.lost && (self.0.holder.is_none() || said.until > now())
    }

    /// Write how far it has come. False if another node holds it. May wait for the store, on a thread that may.
    pub(crate) fn writing(&self, place: Place) -> impl FnOnce() -> Result<bool, Fault> + Send + 'static {
        let held = Arc::clone(&self.0);
        move || held.write(Some(place), HEEDED_MS)
    }
}

impl Held {
    fn record(&self, said: &Said) -> Record {
        let text = match &self.holder {
            Some(holder) => format!("{} {holder} {}", said.place, said.until.0),
            None => said.place.to_string(),
        };
        let [space, tenant, key] = self.name.clone();
        Record { space, tenant, key, value: text.into_bytes() }
    }

    /// Write it, held for so long from now on, unless another node has written it. A write of which it is not known whether it was
    /// kept is found out about with the next.
    fn write(&self, place: Option<Place>, heeded_ms: u64) -> Result<bool, Fault> {
        let _turn = lock(&self.writing);
        let said = lock(&self.said).clone();
        if said.lost {
            return Ok(false);
        }
        let before = self.record(&said).value;
        let until = now().plus(heeded_ms);
        let next = Said { place: place.unwrap_or_else(|| said.place.clone()), until, lost: false };
        let change = Change::since(self.record(&next), Some(before));
        let kept = self.store.change_records(&[change])?;
        *lock(&self.said) = if kept { next } else { Said { lost: true, ..next } };
        Ok(kept)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let held = Arc::clone(&self.0);
        // The next one need not wait. Where there is no thread for it any more, it does.
        if let (Some(_), Ok(runtime)) = (&held.holder, tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || held.write(None, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use handover_store::{MemoryStore, Put, Slot};

    use super::*;

    fn name() -> [Box<str>; 3] {
        ["space", "t", "ada"].map(Box::from)
    }

    #[test]
    fn a_record_has_one_holder_until_it_is_given_back_or_left_alone() {
        let store = MemoryStore::new();
        let node = |slot| -> Arc<dyn Store> { Arc::new(store.writer(Slot(slot))) };
        let take = |slot| Claim::take(node(slot), name()).unwrap();
        let (one, place) = take(0).unwrap();
        assert!(one.is_held() && take(1).is_none());
        assert!(one.writing(Place::first_slot(place.number(Slot(0)) + 3))().unwrap());
        one.0.write(None, 0).unwrap();
        assert!(!one.is_held());
        let (two, place) = take(1).unwrap();
        assert_eq!(place.number(Slot(0)), 3, "it goes on where the other one was");
        assert!(!one.writing(Place::default())().unwrap() && two.is_held());
        assert!(take(0).is_none());
    }

    #[test]
    fn what_an_earlier_release_wrote_is_taken_and_one_node_writes_as_before() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let [space, tenant, key] = name();
        let record = Record { space, tenant, key, value: b"e5".to_vec() };
        store.put_record(&record, Put::Replace).unwrap();
        let (claim, place) = Claim::take(Arc::clone(&store), name()).unwrap().unwrap();
        assert_eq!(place, Place::first_slot(5));
        assert!(claim.writing(Place::first_slot(6))().unwrap() && claim.is_held());
        assert_eq!(store.record("space", "t", "ada").unwrap(), Some(b"e6".to_vec()));
        assert!(Claim::take(store, name()).unwrap().is_some(), "it never has to wait for itself");
    }
}
