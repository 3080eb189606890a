//! The agents of an index row as one blob: each name's length in four bytes, least first, then the name. Those that it
//! waits for have their kinds after the name, in four bytes too.

use rusqlite::types::{FromSqlError, ValueRef};

use crate::log::Waits;

/// The blob of these names.
pub(super) fn encode(agents: &[Box<str>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(agents.iter().map(|agent| 4 + agent.len()).sum());
    for agent in agents {
        push(&mut bytes, agent);
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

/// The blob of these agents and kinds.
pub(super) fn encode_waits(waits: &[Waits]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(waits.iter().map(|waits| 8 + waits.agent.len()).sum());
    for waits in waits {
        push(&mut bytes, &waits.agent);
        bytes.extend_from_slice(&waits.kinds.to_le_bytes());
    }
    bytes
}

/// The agents and kinds in a blob.
pub(super) fn decode_waits(mut rest: &[u8]) -> Result<Vec<Waits>, FromSqlError> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (agent, after) = split(rest).ok_or(FromSqlError::InvalidType)?;
        let (kinds, after) = after.split_first_chunk().ok_or(FromSqlError::InvalidType)?;
        all.push(Waits { agent: agent.into(), kinds: u32::from_le_bytes(*kinds) });
        rest = after;
    }
    Ok(all)
}

fn push(bytes: &mut Vec<u8>, name: &str) {
    let length = u32::try_from(name.len()).expect("a name is far below four gigabytes");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
}

fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(name).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use rusqlite::types::ValueRef;

    use super::{decode, decode_waits, encode, encode_waits};
    use crate::log::Waits;

    #[test]
    fn names_come_back_and_a_cut_blob_is_refused() {
        let agents: Vec<Box<str>> = vec!["planner".into(), "".into(), "ä".into()];
        let blob = encode(&agents);
        assert_eq!(decode(ValueRef::Blob(&blob)).unwrap(), agents);
        assert!(decode(ValueRef::Blob(&blob[..blob.len() - 1])).is_err());
    }

    #[test]
    fn kinds_come_back_with_their_agents_and_a_cut_blob_is_refused() {
        let waits = [("planner", 1), ("", u32::MAX), ("ä", 0)]
            .map(|(agent, kinds)| Waits { agent: agent.into(), kinds });
        let blob = encode_waits(&waits);
        assert_eq!(decode_waits(&blob).unwrap(), waits);
        assert_eq!(decode_waits(&[]).unwrap(), []);
        assert!(decode_waits(&blob[..blob.len() - 1]).is_err());
    }
}
