//! Keys that agents sign their requests with, in the place of a bearer token.

use std::net::SocketAddr;
use std::sync::Arc;

use handover_engine::Denied;
use handover_engine::clock::machine;
use handover_kernel::{AgentId, Face};

use crate::Desk;
use crate::audit::What;
use crate::caller::Caller;
use crate::identity::bound::Keys;
use crate::identity::signed::{NodeId, Signed};
use crate::identity::{Principal, Unauthenticated};
use crate::limit::{Kind, Lane};
use crate::no::No;

const UNKNOWN: &str = "no key is bound to its fromNodeId: bind it with a bearer token first";
const REPLAYED: &str = "its nonce was used before";

impl Desk {
    /// Bind a key to the caller, who has proven with a bearer token who it is, and with a signature that it has the key
    /// (see [`crate::identity::signed::check`]). From then on what is signed with the key is the caller's.
    pub async fn bind_key(&self, caller: &Caller, public_key: &[u8; 32]) -> Result<NodeId, No> {
        self.gate.admit(caller, Kind::Message)?;
        let node = NodeId::of(public_key);
        let Some(key) = self.gate.identity().bind(&caller.principal, public_key, machine()) else {
            let what = "expected a bearer token to bind a key with, found a signed request";
            return Err(self.not_allowed(caller, what.to_owned()));
        };
        let gate = self.gate.clone();
        self.with_keys(move |keys| {
            keys.bind(node, &key, |node, key| gate.identity().of_key(node, key).is_ok())
        })
        .await?;
        self.gate.changed_agents(caller, What::AgentKeyBound, &node.to_string());
        Ok(node)
    }

    /// Unbind a key: one of the caller's own, or any of its tenant if it is an administrator. What is signed with it counts
    /// no longer, and the streams that it opened end. False if there is no such key.
    pub async fn unbind_key(&self, caller: &Caller, node: NodeId) -> Result<bool, No> {
        self.gate.admit(caller, Kind::Message)?;
        let (tenant, agent) = (caller.tenant.clone(), caller.agent.clone());
        let admin = caller.admin;
        let unbound = self
            .with_keys(move |keys| keys.unbind(node, &tenant, (!admin).then_some(agent.as_str())))
            .await?;
        if unbound {
            self.gate.changed_agents(caller, What::AgentKeyUnbound, &node.to_string());
        }
        Ok(unbound)
    }

    /// The keys that are bound to the caller.
    pub async fn keys_of(&self, caller: &Caller) -> Result<Vec<NodeId>, No> {
        let (tenant, agent) = (caller.tenant.clone(), caller.agent.clone());
        Ok(self.with_keys(move |keys| keys.of(&tenant, agent.as_str())).await?)
    }

    /// The agent that a node id stands for: whoever has the key that it was made from, or else the agent of that very id.
    pub async fn agent_of_node(&self, caller: &Caller, id: &str) -> Result<AgentId, No> {
        let Some(node) = NodeId::parse(id) else { return Ok(AgentId::from(id)) };
        let found = self.with_keys(move |keys| keys.find(node)).await?;
        let bound = found.filter(|key| *key.tenant == *caller.tenant);
        Ok(bound.map_or_else(|| AgentId::from(id), |key| AgentId::from(key.agent)))
    }

    /// Whose signed request this is. It counts as one of the caller's requests from then on, so that
    /// [`crate::gate::Gate::request`] is not to be asked for it again: what that says is returned as well.
    ///
    /// A request counts once. Nothing is written before its signature is known to be right.
    pub async fn authenticate_signed(
        &self,
        body: &[u8],
        face: Face,
        peer: Option<SocketAddr>,
    ) -> Result<(Caller, Lane), No> {
        let recognized = self.recognize_signed(body, face, peer).await;
        if let Err(No::Unauthenticated(error)) = &recognized {
            self.gate.refused(face, peer, error);
        }
        recognized
    }

    async fn recognize_signed(
        &self,
        body: &[u8],
        face: Face,
        peer: Option<SocketAddr>,
    ) -> Result<(Caller, Lane), No> {
        let signed = Signed::read(body).map_err(refused)?;
        let now = machine();
        signed.check_time(now).map_err(refused)?;
        let (signed, gate) = (Arc::new(signed), self.gate.clone());
        let request = Arc::clone(&signed);
        let principal = self
            .with_keys(move |keys| {
                let Some(key) = keys.find(request.node)? else { return Ok(Err(unsigned(UNKNOWN))) };
                if let Err(why) = request.check_signature(&key.public_key) {
                    return Ok(Err(unsigned(why)));
                }
                match keys.has_seen(&request)? {
                    true => Ok(Err(unsigned(REPLAYED))),
                    false => Ok::<Result<Principal, _>, _>(gate.identity().of_key(request.node, &key)),
                }
            })
            .await?
            .map_err(No::Unauthenticated)?;
        let caller = Caller { peer, ..Caller::new(principal, face) };
        let lane = self.gate.request(&caller)?;
        let remembered = self.with_keys(move |keys| keys.remember(&signed));
        let (is_first, forgotten) = tokio::join!(remembered, self.with_keys(move |keys| keys.forget(now)));
        if let Err(denied) = forgotten {
            tracing::warn!(?denied, "old nonces could not be removed");
        }
        match is_first? {
            true => Ok((caller, lane)),
            false => Err(refused(REPLAYED)),
        }
    }

    /// Do something with the keys, on a thread that may wait for the disk and to its end.
    async fn with_keys<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Keys) -> Result<R, Denied> + Send + 'static,
    ) -> Result<R, Denied> {
        let keys = Arc::clone(&self.keys);
        tokio::task::spawn_blocking(move || work(&keys)).await.unwrap_or(Err(Denied::Stopping))
    }
}

fn unsigned(why: &'static str) -> Unauthenticated {
    Unauthenticated::Unsigned { why }
}

fn refused(why: &'static str) -> No {
    No::Unauthenticated(unsigned(why))
}
