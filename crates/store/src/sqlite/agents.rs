//! The agents of an index row as one blob: each name's length in four bytes, least first, then the name.

use rusqlite::types::{FromSqlError, ValueRef};

/// The blob of these names.
pub(super) fn encode(agents: &[Box<str>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(agents.iter().map(|agent| 4 + agent.len()).sum());
    for agent in agents {
        let length = u32::try_from(agent.len()).expect("a name is far below four gigabytes");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(agent.as_bytes());
    }
    bytes
}

/// The names in a blob.
pub(super) fn decode(value: ValueRef<'_>) -> Result<Vec<Box<str>>, FromSqlError> {
    let mut rest = value.as_blob()?;
    let mut agents = Vec::new();
    while !rest.is_empty() {
        let (name, after) = split(rest).ok_or(FromSqlError::InvalidType)?;
        agents.push(name.into());
        rest = after;
    }
    Ok(agents)
}

fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(name).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use rusqlite::types::ValueRef;

    use super::{decode, encode};

    #[test]
    fn names_come_back_and_a_cut_blob_is_refused() {
        let agents: Vec<Box<str>> = vec!["planner".into(), "".into(), "ä".into()];
        let blob = encode(&agents);
        assert_eq!(decode(ValueRef::Blob(&blob)).unwrap(), agents);
        assert!(decode(ValueRef::Blob(&blob[..blob.len() - 1])).is_err());
    }
}
