//! Numbers as databases hold them: with a sign. What is higher than they can be counts as the highest.

/// As a database's integer.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Back from it. Nothing negative is ever stored.
pub(crate) fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
