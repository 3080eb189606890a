//! Sign-ins: who is let in by a secret that a browser keeps in the place of a bearer token. Durable; of the secret only the
//! hash is stored.

use std::sync::{Arc, Mutex};

use handover_engine::Denied;
use handover_engine::locks::lock;
use handover_kernel::{AgentId, Timestamp};
use handover_store::{Change, Fault, Over, Record, Store};
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, watch};

use super::{Allowance, Credential, Identity, Principal, Unauthenticated};
use crate::id::digits;
use crate::reading::until_first;

/// How long a sign-in lasts, if its credential does not end before.
pub const SIGN_IN_MS: u64 = 12 * 3600 * 1000;

/// How many sign-ins an agent may have: with one more, the oldest ends.
pub const SIGN_INS_MAX: usize = 16;

/// The records that hold sign-ins, and those that say which an agent has.
pub(crate) const SPACE: &str = "signin";
pub(crate) const LISTS: &str = "signins";

/// How many cookies are looked up at once before it is known whose they are.
const LOOKS_AT_ONCE: usize = 32;

/// How many sign-ins are looked at, whosever they are, each time that somebody signs in: those that have ended are removed.
const SWEPT: usize = 64;

const ENDED: &str = "the sign-in has ended: sign in again";

/// A sign-in as it is stored. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SignIn {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    agent: String,
    #[prost(bool, tag = "3")]
    observer: bool,
    #[prost(bool, tag = "4")]
    admin: bool,
    /// When it began and when it ends, in milliseconds of the Unix epoch.
    #[prost(uint64, tag = "5")]
    pub(crate) began_at: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) ends_at: u64,
    /// The hash of the static token that it was made with; empty if it was none.
    #[prost(bytes = "vec", tag = "7")]
    token: Vec<u8>,
    /// The fingerprint of the key that signed the token that it was made with; empty if none did.
    #[prost(bytes = "vec", tag = "8")]
    key: Vec<u8>,
    /// From where it was made.
    #[prost(string, tag = "9")]
    pub(crate) peer: String,
}

/// The sign-ins of an agent, the oldest first. Field numbers are never reused.
#[derive(Clone, PartialEq, Eq, Message)]
struct List {
    #[prost(string, repeated, tag = "1")]
    names: Vec<String>,
}

impl SignIn {
    /// Of somebody whose bearer token was just looked at.
    pub(crate) fn new(who: &Principal, peer: String, now: Timestamp) -> Option<SignIn> {
        let (token, key) = match who.credential {
            Credential::None => (Vec::new(), Vec::new()),
            Credential::Token(hash) => (hash.to_vec(), Vec::new()),
            Credential::Key(key) => (Vec::new(), key.to_vec()),
            Credential::Signed(..) => return None,
        };
        let ends_at = now.plus(SIGN_IN_MS);
        Some(SignIn {
            tenant: who.tenant.to_string(),
            agent: who.agent.to_string(),
            observer: who.observer,
            admin: who.admin,
            began_at: now.0,
            ends_at: who.expires_at.map_or(ends_at, |at| at.min(ends_at)).0,
            token,
            key,
            peer,
        })
    }

    /// Whom it stands for now, or else why it does not count: it is worth what its token is worth, and no longer.
    pub(crate) fn principal(
        &self,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<Principal, Unauthenticated> {
        let ended = Unauthenticated::Refused { why: ENDED };
        let credential = match (<[u8; 32]>::try_from(&*self.token), <[u8; 32]>::try_from(&*self.key)) {
            (Ok(hash), _) => Credential::Token(hash),
            (_, Ok(key)) => Credential::Key(key),
            (Err(_), Err(_)) => Credential::None,
        };
        let counts = match (credential, identity) {
            (Credential::None, Identity::Development | Identity::Anonymous(_))
            | (Credential::Token(_), Identity::Tokens(_) | Identity::Jwt(..))
            | (Credential::Key(_), Identity::Jwt(..)) => true,
            (Credential::None | Credential::Token(_) | Credential::Key(_) | Credential::Signed(..), _) => {
                false
            }
        };
        if !counts || now.0 >= self.ends_at {
            return Err(ended);
        }
        let ends_at = Timestamp(self.ends_at);
        let mut principal = Principal {
            agent: AgentId::from(self.agent.as_str()),
            tenant: self.tenant.as_str().into(),
            observer: self.observer,
            admin: self.admin,
            proven: !identity.is_development(),
            expires_at: Some(ends_at),
            allowance: Allowance::default(),
            credential,
        };
        identity.renew(&mut principal)?;
        principal.expires_at = Some(principal.expires_at.map_or(ends_at, |at| at.min(ends_at)));
        Ok(principal)
    }
}

/// What a secret is stored under.
pub(crate) fn name_of(secret: &str) -> String {
    digits(&Sha256::digest(secret.as_bytes()))
}

/// All sign-ins of all agents. What it does may wait for the disk.
pub(crate) struct SignIns {
    store: Arc<dyn Store>,
    /// Held by whoever changes them.
    writer: Mutex<()>,
    /// How many have ended.
    ended: watch::Sender<u64>,
    /// For those who are looked up.
    pub(crate) turns: Arc<Semaphore>,
    /// The last one that was looked at to remove what has ended.
    swept: Mutex<Option<Box<str>>>,
}

impl SignIns {
    /// The sign-ins in a store.
    pub(crate) fn new(store: Arc<dyn Store>) -> SignIns {
        let turns = Arc::new(Semaphore::new(LOOKS_AT_ONCE));
        let (writer, swept) = (Mutex::default(), Mutex::default());
        SignIns { store, writer, ended: watch::Sender::new(0), turns, swept }
    }

    /// Hear that some have ended.
    pub(crate) fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// The one of this name.
    pub(crate) fn find(&self, name: &str) -> Result<Option<SignIn>, Denied> {
        let found = self.store.record(SPACE, "", name).map_err(fault)?;
        found.map(|bytes| SignIn::decode(&*bytes).map_err(unreadable)).transpose()
    }

    /// Those of an agent that have not ended, with their names, the newest first.
    pub(crate) fn of(
        &self,
        tenant: &str,
        agent: &str,
        now: Timestamp,
    ) -> Result<Vec<(String, SignIn)>, Denied> {
        let mut found = Vec::new();
        for name in self.names(tenant, agent)?.into_iter().rev() {
            if let Some(sign_in) = self.find(&name)?.filter(|sign_in| now.0 < sign_in.ends_at) {
                found.push((name, sign_in));
            }
        }
        Ok(found)
    }

    /// Keep a new one. Those of its agent that have ended make room for it, and then the oldest.
    pub(crate) fn add(&self, name: &str, sign_in: &SignIn, now: Timestamp) -> Result<(), Denied> {
        let _writing = lock(&self.writer);
        let (tenant, agent) = (&sign_in.tenant, &sign_in.agent);
        until_first(|| {
            let list = self.list(tenant, agent)?;
            let (mut names, mut gone) = (Vec::new(), Vec::new());
            for other in names_of(list.as_deref())? {
                match self.find(&other)?.is_some_and(|known| now.0 < known.ends_at) {
                    true => names.push(other),
                    false => gone.push(other),
                }
            }
            names.push(name.to_owned());
            let too_many = names.len().saturating_sub(SIGN_INS_MAX);
            gone.extend(names.drain(..too_many));
            let new = (SPACE.into(), "".into(), name.into());
            let new = Change { name: new, over: Over::Anything, value: Some(sign_in.encode_to_vec()) };
            self.change(vec![list_change(tenant, agent, names, list), new], &gone)
        })
    }

    /// Remove those that have ended from among the next few, whosever they are.
    pub(crate) fn sweep(&self, now: Timestamp) -> Result<(), Denied> {
        let after = lock(&self.swept).take();
        let page = self.store.records(SPACE, "", after.as_deref(), SWEPT).map_err(fault)?;
        *lock(&self.swept) = page.last().map(|last| last.key.clone());
        for record in page {
            // One that cannot be read must not keep anybody else from signing in.
            let Ok(found) = SignIn::decode(&*record.value) else { continue };
            if now.0 >= found.ends_at {
                self.end(&record.key, &found.tenant, &found.agent)?;
            }
        }
        Ok(())
    }

    /// End one of this agent. False if there is none.
    pub(crate) fn end(&self, name: &str, tenant: &str, agent: &str) -> Result<bool, Denied> {
        let _writing = lock(&self.writer);
        let own = |sign_in: &SignIn| sign_in.tenant == tenant && sign_in.agent == agent;
        until_first(|| {
            if !self.find(name)?.is_some_and(|sign_in| own(&sign_in)) {
                return Ok(Some(false));
            }
            let list = self.list(tenant, agent)?;
            let mut names = names_of(list.as_deref())?;
            names.retain(|other| other != name);
            let ended = self.change(vec![list_change(tenant, agent, names, list)], &[name.to_owned()])?;
            Ok(ended.map(|()| true))
        })
    }

    /// Change what is kept, so that these are no longer. None if another node was first.
    fn change(&self, mut changes: Vec<Change>, gone: &[String]) -> Result<Option<()>, Denied> {
        // One that is not there is as good as removed.
        let removed = |name: &String| Change { over: Over::Anything, ..Change::remove(SPACE, "", name) };
        changes.extend(gone.iter().map(removed));
        let changed = self.store.change_records(&changes).map_err(fault)?;
        if changed && !gone.is_empty() {
            self.heard();
        }
        Ok(changed.then_some(()))
    }

    /// Some may have ended, here or at another node.
    pub(crate) fn heard(&self) {
        self.ended.send_modify(|count| *count += 1);
    }

    fn list(&self, tenant: &str, agent: &str) -> Result<Option<Vec<u8>>, Denied> {
        self.store.record(LISTS, tenant, agent).map_err(fault)
    }

    fn names(&self, tenant: &str, agent: &str) -> Result<Vec<String>, Denied> {
        names_of(self.list(tenant, agent)?.as_deref())
    }
}

fn names_of(list: Option<&[u8]>) -> Result<Vec<String>, Denied> {
    let list = list.map(|bytes| List::decode(bytes).map_err(unreadable)).transpose()?;
    Ok(list.unwrap_or_default().names)
}

/// The list of an agent's sign-ins, where this was read before.
fn list_change(tenant: &str, agent: &str, names: Vec<String>, read: Option<Vec<u8>>) -> Change {
    let (space, tenant, key) = (LISTS.into(), tenant.into(), agent.into());
    Change::since(Record { space, tenant, key, value: List { names }.encode_to_vec() }, read)
}

fn fault(fault: Fault) -> Denied {
    Denied::Fault(Arc::new(fault))
}

fn unreadable(error: prost::DecodeError) -> Denied {
    Denied::Unreadable(format!("a sign-in cannot be read: {error}").into())
}

#[cfg(test)]
mod tests {
    use handover_store::MemoryStore;

    use super::*;

    #[test]
    fn with_one_more_than_the_most_the_oldest_ends_and_what_has_ended_is_forgotten() {
        let sign_ins = SignIns::new(Arc::new(MemoryStore::new()));
        let planner = Identity::Development.authenticate(Some("planner")).unwrap();
        let begin = |number: usize, now| {
            let sign_in = SignIn::new(&planner, String::new(), Timestamp(now)).unwrap();
            sign_ins.add(&name_of(&number.to_string()), &sign_in, Timestamp(now)).unwrap();
        };
        (0..=SIGN_INS_MAX).for_each(|number| begin(number, 1000));
        assert!(sign_ins.find(&name_of("0")).unwrap().is_none());
        let now = Timestamp(2000);
        let names: Vec<String> =
            sign_ins.of(DEFAULT, "planner", now).unwrap().into_iter().map(|(name, _)| name).collect();
        let expected: Vec<String> =
            (1..=SIGN_INS_MAX).rev().map(|number| name_of(&number.to_string())).collect();
        assert_eq!(names, expected);
        begin(99, 1000 + SIGN_IN_MS);
        assert_eq!(sign_ins.of(DEFAULT, "planner", Timestamp(1001 + SIGN_IN_MS)).unwrap().len(), 1);
        assert!(sign_ins.find(&name_of("1")).unwrap().is_none(), "nothing is kept of what has ended");
        assert!(!sign_ins.end(&name_of("99"), DEFAULT, "worker").unwrap(), "it is not the worker's");
        assert!(sign_ins.end(&name_of("99"), DEFAULT, "planner").unwrap());
        assert!(!sign_ins.end(&name_of("99"), DEFAULT, "planner").unwrap());
    }

    #[test]
    fn what_has_ended_is_swept_whosever_it_is() {
        let store = Arc::new(MemoryStore::new());
        let sign_ins = SignIns::new(Arc::clone(&store) as Arc<dyn Store>);
        let begin = |agent: &str, now| {
            let who = Identity::Development.authenticate(Some(agent)).unwrap();
            let sign_in = SignIn::new(&who, String::new(), Timestamp(now)).unwrap();
            sign_ins.add(&name_of(agent), &sign_in, Timestamp(now)).unwrap();
        };
        let kept = || store.records(SPACE, "", None, 1000).unwrap().len();
        (0..3 * SWEPT).for_each(|number| begin(&format!("agent{number}"), 1000));
        begin("planner", 2000);
        let ended = Timestamp(1000 + SIGN_IN_MS);
        sign_ins.sweep(ended).unwrap();
        assert!(kept() <= 2 * SWEPT + 2, "{}", kept());
        (0..5).for_each(|_| sign_ins.sweep(ended).unwrap());
        assert_eq!(kept(), 1, "that of the planner");
        assert!(sign_ins.names(DEFAULT, "agent1").unwrap().is_empty());
        assert_eq!(sign_ins.names(DEFAULT, "planner").unwrap().len(), 1);
    }

    #[test]
    fn a_sign_in_counts_as_long_as_its_time_and_where_its_credential_does() {
        let planner = Identity::Development.authenticate(Some("planner")).unwrap();
        let now = handover_engine::clock::machine();
        let sign_in = SignIn::new(&planner, String::new(), now).unwrap();
        let found = sign_in.principal(&Identity::Development, now).unwrap();
        assert_eq!((found.agent.as_str(), found.admin, found.proven), ("planner", true, false));
        let tokens = Identity::Tokens(Arc::default());
        assert!(sign_in.principal(&tokens, now).is_err(), "nothing was proven");
        let later = now.plus(SIGN_IN_MS);
        assert!(sign_in.principal(&Identity::Development, later).is_err());
    }

    const DEFAULT: &str = super::super::DEFAULT_TENANT;
}
