//! What every commitment must satisfy, whatever it settles.

use serde::{Deserialize, Serialize};

use crate::id::{SessionId, Text};
use crate::refusal::Refusal;

/// The authoritative outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commitment {
    /// What its sender calls it.
    pub commitment: Text,
    /// What happened, such as `task.completed`.
    pub action: Text,
    /// What it is about.
    pub scope: Text,
    /// Why it was settled so, for people to read.
    pub reason: Text,
    /// The semantic profile that governed it.
    pub mode_version: Text,
    /// The policy that governed it; empty means the bound one.
    pub policy_version: Text,
    /// The execution profile that governed it.
    pub configuration_version: Text,
    /// Whether it is a success.
    pub positive: bool,
    /// The commitment of another session that this one replaces.
    pub supersedes: Option<Supersedes>,
}

/// A commitment of another session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supersedes {
    /// The session that it settled.
    pub session: SessionId,
    /// `sha256:` and 64 lowercase hexadecimal digits.
    pub hash: Text,
}

/// The versions that a session is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The semantic profile of the mode.
    pub mode: Text,
    /// The execution profile.
    pub configuration: Text,
    /// The policy.
    pub policy: Text,
}

/// RFC-MACP-0001 §7.3: endings of an action that say how it went.
const POSITIVE_ENDINGS: [&str; 4] = ["selected", "accepted", "completed", "approved"];
const NEGATIVE_ENDINGS: [&str; 3] = ["rejected", "failed", "declined"];

impl Commitment {
    /// Whether it is well formed and speaks of the versions that the session is bound to.
    pub(crate) fn check(&self, versions: &Versions) -> Result<(), Refusal> {
        let named = [
            ("commitment_id", &self.commitment),
            ("action", &self.action),
            ("authority_scope", &self.scope),
            ("reason", &self.reason),
        ];
        for (name, value) in named {
            if value.trim().is_empty() {
                return Err(Refusal::invalid(format!("expected a {name}, found nothing")));
            }
        }
        same("mode_version", &versions.mode, &self.mode_version)?;
        same("configuration_version", &versions.configuration, &self.configuration_version)?;
        if !self.policy_version.is_empty() {
            same("policy_version", &versions.policy, &self.policy_version)?;
        }
        let endings = if self.positive { NEGATIVE_ENDINGS.as_slice() } else { POSITIVE_ENDINGS.as_slice() };
        if endings.iter().any(|ending| self.action.ends_with(ending)) {
            return Err(Refusal::OutcomeMismatch { action: self.action.clone() });
        }
        match &self.supersedes {
            Some(supersedes) => supersedes.check(),
            None => Ok(()),
        }
    }

    pub(crate) fn weight(&self) -> usize {
        self.commitment.len() + self.action.len() + self.scope.len() + self.reason.len()
    }
}

impl Supersedes {
    fn check(&self) -> Result<(), Refusal> {
        if self.session.as_str().trim().is_empty() {
            return Err(Refusal::invalid(
                "expected the id of a task or handoff in supersedes, found nothing",
            ));
        }
        let digits = self.hash.strip_prefix("sha256:").unwrap_or_default();
        let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if digits.len() != 64 || !digits.bytes().all(is_hex) {
            return Err(Refusal::invalid(format!(
                "expected sha256: and 64 lowercase hexadecimal digits in supersedes, found {:?}",
                self.hash
            )));
        }
        Ok(())
    }
}

fn same(what: &'static str, expected: &Text, found: &Text) -> Result<(), Refusal> {
    if expected == found {
        return Ok(());
    }
    Err(Refusal::VersionMismatch { what, expected: expected.clone(), found: found.clone() })
}
