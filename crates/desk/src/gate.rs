//! The gate that every face goes through: who asks, whether it may ask so often, and whether it may see what it asks
//! for. Behind it is the engine.
//!
//! - [`ledger`]: what each agent has used
//! - [`lender`]: what it may use over all nodes
//!
//! Always: a command of an agent passes here before the engine takes it. Never: a rule about tasks, a protocol's word.

pub mod allowed;
pub mod ledger;
pub mod lender;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handover_kernel::command::Command;
use handover_kernel::{AgentId, Face, Refusal, Session};
use handover_store::SessionKey;

use self::ledger::Ledger;
pub use self::ledger::Permit;
use self::lender::{Lender, Not};
use crate::audit::{Audit, Record, What};
use crate::bucket::Rate;
pub use crate::caller::{Caller, sees};
use crate::codes;
use crate::counters::Counters;
use crate::identity::jwt::keys::Difference;
use crate::identity::tokens::{Malformed, Tokens};
use crate::identity::{Identity, Principal, Unauthenticated};
use crate::limit::{Kind, Lane, Limit, Limited, Whose};
use crate::memory::{self, Lease, Memory};
use crate::names;
use handover_engine::{Accepted, Denied, Engine};

/// Session starts a minute, unless somebody says otherwise.
pub const STARTS_PER_MINUTE: u64 = 600;
/// Messages a minute, unless somebody says otherwise.
pub const MESSAGES_PER_MINUTE: u64 = 12_000;

/// Requests a minute, unless somebody says otherwise: enough to look at 600 tasks every second.
pub const REQUESTS_PER_MINUTE: u64 = 36_000;

/// How many bytes that a caller sends, or has read for it, count as one more request.
const BYTES_PER_REQUEST: u64 = 16 * 1024;

/// Open streams, unless somebody says otherwise.
pub const STREAMS_MAX: u64 = 1000;

/// What each agent may use, unless its credential says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Session starts a minute; 0 is any number.
    pub starts_per_minute: u64,
    /// Messages a minute; 0 is any number.
    pub messages_per_minute: u64,
    /// Requests of any kind a minute; 0 is any number.
    pub requests_per_minute: u64,
    /// Streams that may be open.
    pub streams_max: u64,
    /// Bytes that may be in memory on behalf of agents.
    pub memory: memory::Settings,
    /// Bytes that may be stored of their sessions.
    pub storage: Storage,
}

/// How many bytes may be stored; 0 is any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// Of the sessions that an agent started, unless its credential says otherwise.
    pub per_agent: u64,
    /// Of all sessions of a tenant.
    pub per_tenant: u64,
}

/// Bytes that may be stored, unless somebody says otherwise.
pub const STORED_PER_AGENT: u64 = 16 << 30;
/// See [`STORED_PER_AGENT`].
pub const STORED_PER_TENANT: u64 = 64 << 30;

impl Default for Settings {
    /// No rates, as in development.
    fn default() -> Self {
        Settings {
            starts_per_minute: 0,
            messages_per_minute: 0,
            requests_per_minute: 0,
            streams_max: STREAMS_MAX,
            memory: memory::Settings::default(),
            storage: Storage::default(),
        }
    }
}

impl Settings {
    /// These rates and this many streams. Rates that nobody set are for those who have to prove who they are: in
    /// development there are none.
    pub fn new(rates: Rates, streams_max: u64, memory: memory::Settings, identity: &Identity) -> Settings {
        let development = identity.is_development();
        let rate = |set: Option<u64>, default| set.unwrap_or(if development { 0 } else { default });
        Settings {
            starts_per_minute: rate(rates.starts_per_minute, STARTS_PER_MINUTE),
            messages_per_minute: rate(rates.messages_per_minute, MESSAGES_PER_MINUTE),
            requests_per_minute: rate(rates.requests_per_minute, REQUESTS_PER_MINUTE),
            streams_max,
            memory,
            storage: Storage {
                per_agent: rate(rates.stored_per_agent, STORED_PER_AGENT),
                per_tenant: rate(rates.stored_per_tenant, STORED_PER_TENANT),
            },
        }
    }

    /// How many of a kind an agent may submit in a minute; 0 is any number.
    fn per_minute(&self, who: &Principal, kind: Kind) -> u64 {
        match kind {
            Kind::Start => who.allowance.starts_per_minute.unwrap_or(self.starts_per_minute),
            Kind::Message => who.allowance.messages_per_minute.unwrap_or(self.messages_per_minute),
            Kind::Request => who.allowance.requests_per_minute.unwrap_or(self.requests_per_minute),
        }
    }
}

/// The rates and budgets that an operator set; none is left to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Session starts a minute; 0 is any number.
    pub starts_per_minute: Option<u64>,
    /// Messages a minute; 0 is any number.
    pub messages_per_minute: Option<u64>,
    /// Bytes that may be stored of the sessions that an agent started; 0 is any number.
    pub stored_per_agent: Option<u64>,
    /// Bytes that may be stored of all sessions of a tenant; 0 is any number.
    pub stored_per_tenant: Option<u64>,
    /// Requests of any kind a minute; 0 is any number.
    pub requests_per_minute: Option<u64>,
}

/// The right to submit one command, which the rate limits gave.
#[derive(Debug)]
pub struct Pass<'a> {
    caller: &'a Caller,
}

impl<'a> Pass<'a> {
    /// Who may submit it.
    pub fn caller(&self) -> &'a Caller {
        self.caller
    }
}

/// The gate. Cheap to clone; all clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    engine: Engine,
    settings: Settings,
    ledger: Arc<Ledger>,
    /// Where there may be other nodes.
    lender: Option<Arc<Lender>>,
    memory: Memory,
    audit: Audit,
    counters: Arc<Counters>,
    /// Rates go by a clock that is never set back.
    begun: Instant,
}

/// A request that is coming, and what it takes of its agent's memory until it is whole.
pub struct Reading {
    gate: Gate,
    caller: Caller,
    held: Option<Lease>,
}

impl Reading {
    /// So many bytes of it have come.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Limited> {
        // What is in memory is what came: many calls that have only begun must not spend it.
        let held = self.held.as_mut().map_or(Ok(()), |held| held.grow_to(bytes as u64));
        held.map_err(|limited| self.gate.limited(&self.caller, limited))
    }
}

impl Gate {
    /// The gate of an engine.
    pub fn new(
        identity: Identity,
        engine: Engine,
        settings: Settings,
        lender: Option<Arc<Lender>>,
        audit: Audit,
        counters: Arc<Counters>,
    ) -> Gate {
        let ledger = Ledger::new(counters.streams_open.clone());
        let memory = Memory::new(settings.memory, counters.memory_held.clone());
        Gate {
            inner: Arc::new(Inner {
                identity,
                engine,
                settings,
                ledger,
                lender,
                memory,
                audit,
                counters,
                begun: Instant::now(),
            }),
        }
    }

    /// Whose request it is.
    pub fn authenticate(
        &self,
        token: Option<&str>,
        face: Face,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, Unauthenticated> {
        self.recognize(token, face, peer).inspect_err(|error| self.refused(face, peer, error))
    }

    /// Note that a request was not authenticated.
    pub(crate) fn refused(&self, face: Face, peer: Option<SocketAddr>, error: &Unauthenticated) {
        self.inner.counters.authentications_failed.inc();
        self.record(|| Record::unauthenticated(face, peer, error.to_string()));
    }

    /// How requests are authenticated.
    pub(crate) fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Whose request it is, where it may be nobody's.
    pub fn recognize(
        &self,
        token: Option<&str>,
        face: Face,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, Unauthenticated> {
        let principal = self.inner.identity.authenticate(token)?;
        Ok(Caller { peer, ..Caller::new(principal, face) })
    }

    /// Let count what the file of static tokens says now, and say how many tokens are different.
    pub fn replace_tokens(&self, tokens: &Tokens, text: &str) -> Result<usize, Malformed> {
        let changes = tokens.replace(text)?;
        changes.iter().for_each(|change| self.record(|| Record::of_token(change)));
        Ok(changes.len())
    }

    /// Note that the keys of tokens are others than before.
    pub fn keys_changed(&self, difference: &Difference) {
        let record = |what, name: &String| self.record(|| Record::of_key(what, name));
        difference.added.iter().for_each(|name| record(What::KeyAdded, name));
        difference.withdrawn.iter().for_each(|name| record(What::KeyWithdrawn, name));
    }

    /// Note that a caller has changed the directory.
    pub(crate) fn changed_agents(&self, caller: &Caller, what: What, id: &str) {
        self.record(|| Record::of(what, caller).to(id));
    }

    /// Bring what a caller may use up to date, for one that has asked before and now asks for more; or say why its
    /// credential does not count any more.
    pub fn renew(&self, caller: &mut Caller) -> Result<(), Unauthenticated> {
        self.inner.identity.renew(Arc::make_mut(&mut caller.principal))
    }

    /// Returns when the credential behind a principal does not count any more.
    pub async fn ended(&self, principal: Arc<Principal>) -> Unauthenticated {
        self.inner.identity.ended(principal).await
    }

    /// Note that a caller said to be somebody else.
    pub fn impersonated(&self, caller: &Caller) {
        self.inner.counters.authentications_failed.inc();
        let record = || Record::of(What::AuthenticationFailed, caller);
        self.record(|| record().because("UNAUTHENTICATED", "the sender is not the authenticated agent"));
    }

    /// Take in the request of a caller, which brings so many bytes, if there is room for it. What the caller is given back
    /// as holds them for as long as it, or a clone of it, is kept.
    pub fn take_in(&self, caller: Caller, bytes: u64) -> Result<Caller, Limited> {
        let own = caller.allowance.memory_bytes;
        let room = self.inner.memory.room(&caller.tenant, caller.agent.as_str(), own);
        let held = room.take(memory::REQUEST_BYTES + bytes);
        match held {
            Ok(held) => Ok(Caller { held: Some(Arc::new(held)), ..caller }),
            Err(limited) => Err(self.limited(&caller, limited)),
        }
    }

    /// Hold so many bytes more for a caller, if there is room for them. One that was not taken in holds nothing.
    pub fn hold(&self, caller: &Caller, bytes: u64) -> Result<Option<Lease>, Limited> {
        let held = caller.room().map(|room| room.take(bytes)).transpose();
        held.map_err(|limited| self.limited(caller, limited))
    }

    /// Whether so many bytes more may be stored of what an agent of the caller's tenant started.
    pub fn may_store(&self, caller: &Caller, requester: &AgentId, bytes: u64) -> Result<(), Limited> {
        let Storage { per_agent, per_tenant } = self.inner.settings.storage;
        let own = *requester == caller.agent;
        let per_agent = caller.allowance.stored_bytes.filter(|_| own).unwrap_or(per_agent);
        let (of_tenant, of_agent) = self.inner.engine.stored(&caller.tenant, requester.as_str());
        for (whose, stored, max) in
            [(Whose::Agent, of_agent, per_agent), (Whose::Tenant, of_tenant, per_tenant)]
        {
            if max > 0 && stored.saturating_add(bytes) > max {
                return Err(self.limited(caller, Limited::Storage { whose, max }));
            }
        }
        Ok(())
    }

    /// Let a caller submit one command, if it has not submitted too many. To be asked before the command is looked at,
    /// so that too many cost little.
    pub fn admit<'a>(&self, caller: &'a Caller, kind: Kind) -> Result<Pass<'a>, Limited> {
        self.take(caller, kind).map(|_| Pass { caller })
    }

    fn take(&self, caller: &Caller, kind: Kind) -> Result<Lane, Limited> {
        let per_minute = self.inner.settings.per_minute(caller, kind);
        let Some(rate) = Rate::per_minute(per_minute) else {
            return Ok(Lane::Fast);
        };
        let Inner { ledger, lender, .. } = &*self.inner;
        let (tenant, agent) = (&caller.tenant, caller.agent.as_str());
        let taken = ledger.take(tenant, agent, kind, rate, self.now()).map_err(Not::Left);
        let lent = taken.and_then(|lane| {
            let lent = lender.as_ref().map_or(Ok(()), |lender| lender.take(tenant, agent, kind, rate));
            lent.map(|()| lane).inspect_err(|_| ledger.give_back(tenant, agent, kind, rate))
        });
        let ms = |wait: Duration| wait.as_nanos().div_ceil(1_000_000) as u64;
        lent.map_err(|not| {
            let limited = match not {
                Not::Left(wait) => Limited::Rate { kind, per_minute, retry_after_ms: ms(wait) },
                Not::Known(wait) => Limited::Unknown { kind, retry_after_ms: ms(wait) },
            };
            self.limited(caller, limited)
        })
    }

    /// Let a caller ask for anything at all, if it has not asked too often. To be asked as soon as it is known who asks, so
    /// that what cannot be read, or asks for what is not there, counts too.
    pub fn request(&self, caller: &Caller) -> Result<Lane, Limited> {
        self.take(caller, Kind::Request)
    }

    /// Count what a caller has used as so many messages.
    pub fn charge(&self, caller: &Caller, messages: u64) {
        self.charge_as(caller, Kind::Message, messages);
    }

    /// Count the bytes that a caller has sent, or that were read for it: many at a time are as much work as many requests.
    pub fn charge_bytes(&self, caller: &Caller, bytes: u64) {
        self.charge_as(caller, Kind::Request, bytes / BYTES_PER_REQUEST);
    }

    fn charge_as(&self, caller: &Caller, kind: Kind, count: u64) {
        if count == 0 {
            return;
        }
        if let Some(rate) = Rate::per_minute(self.inner.settings.per_minute(caller, kind)) {
            let (tenant, agent) = (&caller.tenant, caller.agent.as_str());
            self.inner.ledger.charge(tenant, agent, (kind, count), rate, self.now());
            if let Some(lender) = &self.inner.lender {
                lender.charge(tenant, agent, (kind, count), rate);
            }
        }
    }

    /// This node may hold another slot now.
    pub(crate) fn moved(&self) {
        if let Some(lender) = &self.inner.lender {
            lender.let_go();
        }
    }

    /// A place for one more stream of the caller, given back when it is dropped.
    pub fn stream(&self, caller: &Caller) -> Result<Permit, Limited> {
        let max = caller.allowance.streams.unwrap_or(self.inner.settings.streams_max);
        let permit = self.inner.ledger.stream(&caller.tenant, caller.agent.as_str(), max, self.now());
        permit.ok_or_else(|| self.limited(caller, Limited::Streams { max }))
    }

    /// A request of the caller begins to come.
    pub fn reading(&self, caller: &Caller) -> Reading {
        let held = caller.room().map(|room| room.hold(0));
        Reading { gate: self.clone(), caller: caller.clone(), held }
    }

    /// Put a command that was let through to a session of the caller's tenant.
    pub async fn submit(
        &self,
        pass: Pass<'_>,
        key: SessionKey,
        command: Command,
    ) -> Result<Accepted, Denied> {
        let Pass { caller } = pass;
        assert_eq!(key.tenant, caller.tenant, "a face asks for nothing outside its caller's tenant");
        self.fits(caller, command.weight())?;
        let session_id = key.session.clone();
        let engine = &self.inner.engine;
        let submitted = match caller.allowance.sessions_open {
            Some(max) => engine.submit_within(key, command, max).await,
            None => engine.submit(key, command).await,
        };
        submitted.inspect_err(|denied| self.denied(caller, &session_id, denied))
    }

    /// Whether the caller may send so many bytes at once. Its credential can lower the bound that holds for all.
    pub fn fits(&self, caller: &Caller, found: usize) -> Result<(), Denied> {
        let bound = self.inner.engine.limits().payload_bytes_max;
        let own = caller.allowance.payload_bytes.and_then(|own| usize::try_from(own).ok());
        let limit = own.map_or(bound, |own| own.min(bound));
        if found <= limit {
            return Ok(());
        }
        let denied = Denied::Refused(Refusal::PayloadTooLarge { limit, found });
        self.denied(caller, "", &denied);
        Err(denied)
    }

    /// A session of the caller's tenant, if it may see it.
    pub async fn session(&self, caller: &Caller, session_id: &str) -> Result<Arc<Session>, Denied> {
        names::check("the id of a task or handoff", session_id)
            .map_err(|_| Denied::Refused(Refusal::SessionNotFound))?;
        let key = SessionKey::new(caller.tenant.clone(), session_id);
        let denied = match self.inner.engine.session(key).await? {
            None => Refusal::SessionNotFound,
            Some(session) if sees(caller, &session) => return Ok(session),
            Some(_) => Refusal::NotParticipant { agent: caller.agent.clone() },
        };
        let denied = Denied::Refused(denied);
        self.denied(caller, session_id, &denied);
        Err(denied)
    }

    /// The static tokens, where there are any.
    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        self.inner.identity.tokens()
    }

    /// Whether the caller may change what belongs to everybody.
    pub fn administers(&self, caller: &Caller) -> bool {
        if !caller.admin {
            self.forbade(caller, "NOT_ADMINISTRATOR");
        }
        caller.admin
    }

    /// Note that a caller may not do what it tried.
    pub(crate) fn forbade(&self, caller: &Caller, code: &'static str) {
        self.inner.counters.forbidden.inc();
        self.record(|| Record::of(What::Forbidden, caller).because("FORBIDDEN", code));
    }

    /// Note that a caller has changed a policy.
    pub fn changed_policy(&self, caller: &Caller, what: What, policy_id: &str) {
        self.record(|| Record::of(what, caller).policy(policy_id));
    }

    fn now(&self) -> Duration {
        self.inner.begun.elapsed()
    }

    /// Note that a caller reached a limit.
    pub fn limited(&self, caller: &Caller, limited: Limited) -> Limited {
        self.inner.counters.count_limited(limited.limit().name());
        let code = codes::of_limited(&limited).macp;
        // That the server is busy is not the caller's doing.
        if !matches!(limited, Limited::Checks { .. } | Limited::Unknown { .. }) {
            self.record(|| Record::of(What::Limited, caller).because(code, limited.limit().name()));
        }
        limited
    }

    /// Note a no that says something about the caller.
    fn denied(&self, caller: &Caller, session_id: &str, denied: &Denied) {
        let Denied::Refused(refusal) = denied else { return };
        let code = codes::of_refusal(refusal).macp;
        let record = |what| Record::of(what, caller).session(session_id);
        if let Some(limit) = Limit::of(refusal) {
            self.inner.counters.count_limited(limit.name());
            // That the server is busy is not the caller's doing.
            if *refusal != Refusal::Busy {
                self.record(|| record(What::Limited).because(code, limit.name()));
            }
        } else if codes::is_forbidden(refusal) {
            self.inner.counters.forbidden.inc();
            self.record(|| record(What::Forbidden).because(code, refusal.code()));
        }
    }

    fn record(&self, record: impl FnOnce() -> Record) {
        let audit = &self.inner.audit;
        if audit.is_on() {
            audit.record(record());
        }
    }
}
