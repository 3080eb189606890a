//! Which trace a command belongs to, as W3C Trace Context says it. Carried for others; no decision rests on it.

use crate::id::Text;

/// `version-trace_id-parent_id-flags`, in version 00.
const PARENT_BYTES: usize = 55;

/// A longer state need not be passed on (Trace Context §3.3.1.5).
const STATE_BYTES_MAX: usize = 512;

/// The trace of a command, and the span in it that the command came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// `traceparent`.
    pub parent: Text,
    /// `tracestate`; empty if there is none.
    pub state: Text,
}

impl Trace {
    /// The trace that these headers name; none unless `parent` is well formed. A state that is too long or not printable is
    /// left out. Of a later version of `parent` this keeps what version 00 knows, as version 00 (Trace Context §4.2.3).
    pub fn new(parent: &str, state: &str) -> Option<Trace> {
        let known = parent.get(..PARENT_BYTES)?;
        let fields: Vec<&str> = known.split('-').collect();
        let [version, trace, span, flags] = fields[..] else { return None };
        let lengths = [(version, 2), (trace, 32), (span, 16), (flags, 2)];
        let well_formed = lengths.iter().all(|(field, length)| field.len() == *length && is_hex(field));
        let zero = |field: &str| field.bytes().all(|digit| digit == b'0');
        let more = &parent[PARENT_BYTES..];
        let ends = more.is_empty() || (version != "00" && more.starts_with('-'));
        if !well_formed || version == "ff" || zero(trace) || zero(span) || !ends {
            return None;
        }
        let printable = |byte: u8| matches!(byte, b' '..=b'~');
        let fits = state.len() <= STATE_BYTES_MAX && state.bytes().all(printable);
        Some(Trace {
            parent: Text::from(format!("00-{trace}-{span}-{flags}")),
            state: if fits { Text::from(state) } else { Text::default() },
        })
    }

    /// The id of the whole trace.
    pub fn id(&self) -> &str {
        &self.parent[3..35]
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_well_formed_parent_is_kept_as_it_is() {
        let trace = Trace::new(PARENT, "vendor=value,other=1").unwrap();
        assert_eq!((&*trace.parent, &*trace.state), (PARENT, "vendor=value,other=1"));
        assert_eq!(&*Trace::new(PARENT, "").unwrap().state, "");
    }

    #[test]
    fn a_malformed_parent_is_no_trace() {
        let malformed = [
            String::new(),
            PARENT.to_uppercase(),
            PARENT[..54].to_owned(),
            format!("{PARENT}-"),
            format!("{PARENT}0"),
            format!(" {PARENT}"),
            PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            PARENT.replace('-', "_"),
            PARENT.replacen("4bf9", "4b-9", 1),
            PARENT.replacen("4bf9", "4bg9", 1),
            PARENT.replacen("00-4b", "ff-4b", 1),
            // A character of two bytes, on either side of where the known part ends.
            format!("{}ä", &PARENT[..54]),
            format!("{}ä", &PARENT[..53]),
        ];
        for parent in malformed {
            assert_eq!(Trace::new(&parent, ""), None, "{parent}");
        }
    }

    #[test]
    fn of_a_later_version_what_version_00_knows_is_kept() {
        let later = PARENT.replacen("00-", "cc-", 1);
        for parent in [later.clone(), format!("{later}-what the future will be like"), format!("{later}-ä")]
        {
            assert_eq!(&*Trace::new(&parent, "").unwrap().parent, PARENT);
        }
        assert_eq!(Trace::new(&format!("{later}.what"), ""), None);
    }

    #[test]
    fn a_state_that_cannot_be_carried_is_left_out() {
        let state = |state: &str| Trace::new(PARENT, state).unwrap().state;
        let longest = "x".repeat(STATE_BYTES_MAX);
        assert_eq!(*state(&longest), longest);
        for dropped in [&format!("{longest}x"), "a=ä", "a=1\r\nb=2", "a=\t"] {
            assert_eq!(&*state(dropped), "", "{dropped:?}");
        }
    }

    #[test]
    fn only_a_well_formed_traceparent_names_a_trace() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let (zero, parent) = ("0".repeat(32), "00f067aa0ba902b7");
        for right in [format!("00-{trace}-{parent}-01"), format!("cc-{trace}-{parent}-00-more")] {
            assert_eq!(Trace::new(&right, "").as_ref().map(Trace::id), Some(trace), "{right}");
        }
        for wrong in [
            String::new(),
            trace.to_owned(),
            format!("00-{trace}-{parent}"),
            format!("00-{trace}-{parent}-01-more"),
            format!("ff-{trace}-{parent}-01"),
            format!("00-{zero}-{parent}-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-{parent}-01", trace.to_uppercase()),
            format!("00-{trace}x-{parent}-01"),
        ] {
            assert!(Trace::new(&wrong, "").is_none(), "{wrong}");
        }
    }
}
