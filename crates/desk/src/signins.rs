//! Signing in: a secret that a browser keeps in the place of a bearer token, until it is ended or its time is up.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use handover_engine::Denied;
use handover_engine::clock::machine;
use handover_kernel::{Face, Timestamp};

use crate::Desk;
use crate::audit::What;
use crate::caller::Caller;
use crate::identity::Unauthenticated;
use crate::identity::signins::{SignIn, SignIns, name_of};
use crate::limit::Kind;
use crate::no::No;

/// How many random bytes a secret has, and how many characters they are.
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = (SECRET_BYTES * 8).div_ceil(6);

/// Whether it could be a secret that was given out: anything else is not looked up.
fn has_shape(secret: &str) -> bool {
    let character = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    secret.len() == SECRET_CHARS && secret.bytes().all(character)
}

/// A sign-in as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name, which lets nobody in.
    pub name: String,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ends.
    pub ends_at: Timestamp,
    /// From where it was made; empty if that is not known.
    pub from: String,
}

impl Desk {
    /// Whether a bearer token proves nothing: then anybody is who they say they are.
    pub fn proves_nothing(&self) -> bool {
        self.gate.identity().is_development()
    }

    /// Sign in with a bearer token, and say the secret that stands for it from now on.
    pub async fn sign_in(
        &self,
        token: Option<&str>,
        face: Face,
        peer: Option<SocketAddr>,
    ) -> Result<(Caller, String), No> {
        let caller = self.gate.authenticate(token, face, peer).map_err(No::Unauthenticated)?;
        self.gate.request(&caller)?;
        self.gate.admit(&caller, Kind::Message)?;
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the system has random bytes");
        let secret = URL_SAFE_NO_PAD.encode(bytes);
        let now = machine();
        let from = peer.map_or_else(String::new, |peer| peer.ip().to_string());
        let refused = Unauthenticated::Refused { why: "expected a bearer token, found another credential" };
        let sign_in = SignIn::new(&caller.principal, from, now).ok_or(No::Unauthenticated(refused))?;
        let name = name_of(&secret);
        self.with_sign_ins(move |sign_ins| {
            sign_ins.sweep(now)?;
            sign_ins.add(&name, &sign_in, now)
        })
        .await?;
        self.gate.changed_agents(&caller, What::SignedIn, caller.agent.as_str());
        Ok((caller, secret))
    }

    /// Who is signed in with this secret.
    pub async fn signed_in(&self, secret: &str, face: Face, peer: Option<SocketAddr>) -> Result<Caller, No> {
        let missing = No::Unauthenticated(Unauthenticated::Refused { why: "there is no such sign-in" });
        if !has_shape(secret) {
            return Err(missing);
        }
        let name = name_of(secret);
        // Whoever knocks is a stranger until then: only so many are looked up at once.
        let turn = Arc::clone(&self.sign_ins.turns).acquire_owned().await.map_err(|_| Denied::Stopping)?;
        let looked = self.with_sign_ins(move |sign_ins| {
            let _turn = turn;
            sign_ins.find(&name)
        });
        let found = looked.await?;
        let principal = found.ok_or(missing)?.principal(self.gate.identity(), machine());
        let principal = principal.map_err(No::Unauthenticated)?;
        Ok(Caller { peer, ..Caller::new(principal, face) })
    }

    /// The sign-ins of the caller, the newest first.
    pub async fn sign_ins(&self, caller: &Caller) -> Result<Vec<Shown>, No> {
        let (tenant, agent) = (caller.tenant.clone(), caller.agent.clone());
        let found =
            self.with_sign_ins(move |sign_ins| sign_ins.of(&tenant, agent.as_str(), machine())).await?;
        let shown = found.into_iter().map(|(name, sign_in)| Shown {
            name,
            began_at: Timestamp(sign_in.began_at),
            ends_at: Timestamp(sign_in.ends_at),
            from: sign_in.peer,
        });
        Ok(shown.collect())
    }

    /// The name of the sign-in with this secret.
    pub fn sign_in_name(&self, secret: &str) -> String {
        name_of(secret)
    }

    /// End a sign-in of the caller, by its name. False if there is none.
    pub async fn end_sign_in(&self, caller: &Caller, name: &str) -> Result<bool, No> {
        self.gate.admit(caller, Kind::Message)?;
        let (name, tenant, agent) = (name.to_owned(), caller.tenant.clone(), caller.agent.clone());
        let ended = self.with_sign_ins(move |sign_ins| sign_ins.end(&name, &tenant, agent.as_str())).await?;
        if ended {
            self.gate.changed_agents(caller, What::SignedOut, caller.agent.as_str());
        }
        Ok(ended)
    }

    /// A word that only this server, or another node of it, can make of these: what comes back with it was given out here.
    pub fn seal(&self, parts: &[&str]) -> String {
        self.secret.derive(parts)
    }

    /// Returns when the sign-in of this name is there no longer: what it opened ends then.
    pub async fn sign_in_ended(&self, name: &str) {
        let mut changes = self.sign_ins.ended();
        loop {
            let wanted = name.to_owned();
            let found = self.with_sign_ins(move |sign_ins| sign_ins.find(&wanted)).await;
            if !matches!(found, Ok(Some(_))) || changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Do something with the sign-ins, on a thread that may wait for the disk and to its end.
    async fn with_sign_ins<R: Send + 'static>(
        &self,
        work: impl FnOnce(&SignIns) -> Result<R, Denied> + Send + 'static,
    ) -> Result<R, Denied> {
        let sign_ins = Arc::clone(&self.sign_ins);
        tokio::task::spawn_blocking(move || work(&sign_ins)).await.unwrap_or(Err(Denied::Stopping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_could_be_a_secret_is_looked_up() {
        let secret = URL_SAFE_NO_PAD.encode([255; SECRET_BYTES]);
        assert!(has_shape(&secret) && has_shape(&"-_aZ09".repeat(8)[..SECRET_CHARS]));
        for other in
            ["", "x", &secret[1..], &format!("{secret}a"), &secret.replace('_', "+"), &"ü".repeat(21)]
        {
            assert!(!has_shape(other), "{other}");
        }
    }
}
