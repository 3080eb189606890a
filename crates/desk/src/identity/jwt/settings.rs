//! Which tokens are accepted.

use std::time::Duration;

use jsonwebtoken::Algorithm;

/// What is accepted. Shared secrets and unsigned tokens are not among it: whoever checks such a token can make one.
pub const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// The name of an algorithm in a token's header. What can never be accepted has none.
pub fn name(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(_, known)| *known == algorithm).map_or("", |(name, _)| name)
}

/// What a token must say to be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who issues tokens.
    pub issuer: String,
    /// Whom they are issued for: one of these.
    pub audience: Vec<String>,
    /// How they are signed: in one of these ways.
    pub algorithms: Vec<Algorithm>,
    /// How far the issuer's clock may be from ours.
    pub skew_seconds: u64,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// How often the keys are read again.
    pub refresh: Duration,
}
