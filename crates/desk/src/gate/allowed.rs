//! What a caller may use, and what of that it uses now, for people who wonder why something was refused.

use super::{Gate, Storage};
use crate::caller::Caller;
use crate::limit::Kind;
use crate::memory::Room;

/// One thing that a caller may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// What is limited, in words.
    pub what: &'static str,
    /// The setting that says how much.
    pub setting: &'static str,
    /// How much; none is any number.
    pub max: Option<u64>,
    /// How much it uses now, where that is known.
    pub used: Option<u64>,
    /// What is counted.
    pub unit: Unit,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things at a time.
    Count,
    /// Things a minute.
    PerMinute,
    /// Bytes.
    Bytes,
}

impl Gate {
    /// What this caller may use.
    pub fn allowed(&self, caller: &Caller) -> Vec<Allowed> {
        let (settings, engine) = (&self.inner.settings, &self.inner.engine);
        let some = |max: u64| (max > 0).then_some(max);
        let rate = |kind: Kind, setting| {
            let max = some(settings.per_minute(caller, kind));
            Allowed { what: kind.words(), setting, max, used: None, unit: Unit::PerMinute }
        };
        let Storage { per_agent, .. } = settings.storage;
        let stored_max = some(caller.allowance.stored_bytes.unwrap_or(per_agent));
        let (_, stored) = engine.stored(&caller.tenant, caller.agent.as_str());
        let streams_max = Some(caller.allowance.streams.unwrap_or(settings.streams_max));
        let streams = self.inner.ledger.streams_of(&caller.tenant, caller.agent.as_str());
        let payload_max = engine.limits().payload_bytes_max as u64;
        let payload_max =
            Some(caller.allowance.payload_bytes.map_or(payload_max, |own| own.min(payload_max)));
        let memory = caller.room().map(Room::max);
        let of = |what, setting, max, used, unit| Allowed { what, setting, max, used, unit };
        vec![
            rate(Kind::Start, "limits.starts_per_minute"),
            rate(Kind::Message, "limits.messages_per_minute"),
            rate(Kind::Request, "limits.requests_per_minute"),
            of("streams open", "limits.streams_per_agent_max", streams_max, Some(streams), Unit::Count),
            of("memory", "limits.memory_per_agent_bytes", memory, None, Unit::Bytes),
            of("stored", "limits.stored_per_agent_bytes", stored_max, Some(stored), Unit::Bytes),
            of("one payload", "limits.payload_bytes_max", payload_max, None, Unit::Bytes),
        ]
    }
}
