//! The issuer's keys (RFC 7517), and which of them a token is checked with.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::settings;

/// The keys that tokens may be signed with.
#[derive(Default)]
pub struct KeySet {
    /// The hash of what it was read from.
    origin: [u8; 32],
    keys: Vec<Key>,
}

/// A key of the set.
pub struct Key {
    id: Option<String>,
    /// The algorithms that it can be used with.
    fits: Vec<Algorithm>,
    /// What checks signatures.
    pub key: DecodingKey,
    /// What it is known by: its name, how it is used and the key itself. The same wherever in the set it stands.
    pub fingerprint: [u8; 32],
}

/// Which keys came and which went, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// These came.
    pub added: Vec<String>,
    /// These went.
    pub withdrawn: Vec<String>,
}

/// Why there is no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// No key has the name that the token gives.
    Unknown,
    /// The key is of another kind than the token's algorithm.
    Unfit,
    /// The token names no key, and no key or more than one fits.
    Unnamed,
}

impl NoKey {
    /// As a reason to refuse a token.
    pub fn why(self) -> &'static str {
        match self {
            NoKey::Unknown => "its key is not known",
            NoKey::Unfit => "its algorithm is not that of its key",
            NoKey::Unnamed => "it names no key, and there is not exactly one that fits",
        }
    }
}

impl KeySet {
    /// The keys of a set that can be used to check signatures. Those of other kinds are passed over.
    pub fn parse(bytes: &[u8]) -> Result<KeySet, &'static str> {
        let set: Value = serde_json::from_slice(bytes).map_err(|_| "expected a JWK set, found no JSON")?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or("expected a JWK set, found JSON without a list of keys")?;
        Ok(KeySet { origin: Sha256::digest(bytes).into(), keys: keys.iter().filter_map(key).collect() })
    }

    /// Whether it was read from these bytes.
    pub fn is_from(&self, bytes: &[u8]) -> bool {
        self.origin == *Sha256::digest(bytes)
    }

    /// How many keys can be used.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key can be used.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether it has the key of this fingerprint.
    pub fn has(&self, fingerprint: &[u8; 32]) -> bool {
        self.keys.iter().any(|key| key.fingerprint == *fingerprint)
    }

    /// Which keys another set has that this one has not, and the other way round.
    pub fn difference(&self, new: &KeySet) -> Difference {
        let only_in = |these: &KeySet, those: &KeySet| {
            let only = these.keys.iter().filter(|key| !those.has(&key.fingerprint));
            only.map(|key| key.id.clone().unwrap_or_default()).collect()
        };
        Difference { added: only_in(new, self), withdrawn: only_in(self, new) }
    }

    /// The key for a token of this algorithm that names this key, or none.
    pub fn choose(&self, algorithm: Algorithm, id: Option<&str>) -> Result<&Key, NoKey> {
        let fits = |key: &&Key| key.fits.contains(&algorithm);
        match id {
            Some(id) => {
                let mut named = self.keys.iter().filter(|key| key.id.as_deref() == Some(id)).peekable();
                if named.peek().is_none() {
                    return Err(NoKey::Unknown);
                }
                named.find(fits).ok_or(NoKey::Unfit)
            }
            None => {
                let mut fitting = self.keys.iter().filter(fits);
                match (fitting.next(), fitting.next()) {
                    (Some(key), None) => Ok(key),
                    (None, _) | (_, Some(_)) => Err(NoKey::Unnamed),
                }
            }
        }
    }
}

/// A key that can be used to check signatures, if this is one.
fn key(found: &Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(found.clone()).ok()?;
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let mut fits = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => {
            use Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
            vec![RS256, RS384, RS512, PS256, PS384, PS512]
        }
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => vec![Algorithm::ES256],
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P384 => vec![Algorithm::ES384],
        AlgorithmParameters::OctetKeyPair(ed) if ed.curve == EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
        // A shared secret would let everybody who can check tokens make them.
        AlgorithmParameters::EllipticCurve(_)
        | AlgorithmParameters::OctetKeyPair(_)
        | AlgorithmParameters::OctetKey(_)
        | AlgorithmParameters::Other(_)
        | _ => return None,
    };
    if let Some(only) = jwk.common.key_algorithm {
        let only = Algorithm::try_from(only).ok()?;
        fits.retain(|algorithm| *algorithm == only);
    }
    let for_signatures = jwk.common.public_key_use.is_none_or(|used| used == PublicKeyUse::Signature)
        && jwk.common.key_operations.is_none_or(|can| can.contains(&KeyOperations::Verify));
    let mut fingerprint = Sha256::new();
    let material = serde_json::to_vec(&jwk.algorithm).ok()?;
    for part in [jwk.common.key_id.as_deref().unwrap_or_default().as_bytes(), &material] {
        fingerprint.update((part.len() as u64).to_be_bytes());
        fingerprint.update(part);
    }
    fits.iter().for_each(|algorithm| fingerprint.update(settings::name(*algorithm)));
    let fingerprint = fingerprint.finalize().into();
    (for_signatures && !fits.is_empty()).then_some(Key { id: jwk.common.key_id, fits, key, fingerprint })
}
