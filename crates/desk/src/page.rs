//! Where a page of a list ended: one kind of cursor for every list on every face. A text that means nothing to whoever
//! holds it, so that what is behind it can change.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use handover_kernel::Refusal;
use handover_store::Cursor;

use crate::no::No;

/// How many bytes a page of anything has. It ends with the item that reaches them, so that it always has one.
pub const BYTES_MAX: usize = handover_store::PAGE_BYTES_MAX;

/// How long a cursor may be.
const CURSOR_BYTES_MAX: usize = 2048;

/// The items of one page.
pub(crate) fn cut<T>(items: impl IntoIterator<Item = T>, weigh: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let mut page = Vec::new();
    for item in items {
        bytes += weigh(&item);
        page.push(item);
        if bytes >= BYTES_MAX {
            break;
        }
    }
    page
}

/// A cursor of a list in the order in which sessions began.
pub fn of_place(cursor: Cursor) -> String {
    format!("s{:x}", cursor.0)
}

/// A cursor of a list in the order of names.
pub fn of_name(name: &str) -> String {
    format!("n{}", URL_SAFE_NO_PAD.encode(name))
}

/// A cursor of a list in the order of scores, the highest first, and of names.
pub fn of_rank(score: u32, name: &str) -> String {
    of_name(&format!("{score}:{name}"))
}

/// The score and the name that a cursor stands for; none is the beginning.
pub fn rank(text: Option<&str>) -> Result<Option<(u32, String)>, No> {
    let Some(text) = name(text)? else { return Ok(None) };
    let rank = text.split_once(':').and_then(|(score, name)| Some((score.parse().ok()?, name.to_owned())));
    rank.map(Some).ok_or_else(wrong)
}

/// The place that a cursor stands for; none is the beginning.
pub fn place(text: Option<&str>) -> Result<Option<Cursor>, No> {
    let Some(text) = text else { return Ok(None) };
    // A sign is no digit, though the parser would take one.
    let digits = text.strip_prefix('s').filter(|digits| !digits.starts_with('+'));
    let place = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    place.map(|place| Some(Cursor(place))).ok_or_else(wrong)
}

/// A place in the order of waits, the longest first, among those that follow the first thousands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Where the part of the list begins that is in order.
    pub behind: Option<Cursor>,
    /// Since when, in milliseconds of the Unix epoch.
    pub since: u64,
    /// Of those since the same moment.
    pub place: u64,
}

impl Waited {
    /// What is compared within such a part.
    pub fn rank(self) -> (u64, u64) {
        (self.since, self.place)
    }
}

/// A cursor of a list in the order of waits.
pub fn of_waited(Waited { behind, since, place }: Waited) -> String {
    let behind = behind.map_or_else(String::new, |Cursor(place)| format!("{place:x}"));
    of_name(&format!("{behind}:{since:x}:{place:x}"))
}

/// The place among waits that a cursor stands for; none is the beginning.
pub fn waited(text: Option<&str>) -> Result<Waited, No> {
    let Some(text) = name(text)? else { return Ok(Waited::default()) };
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let read = || {
        let (behind, rest) = text.split_once(':')?;
        let (since, place) = rest.split_once(':')?;
        let behind = match behind {
            "" => None,
            digits => Some(Cursor(number(digits)?)),
        };
        Some(Waited { behind, since: number(since)?, place: number(place)? })
    };
    read().ok_or_else(wrong)
}

/// The name that a cursor stands for; none is the beginning.
pub fn name(text: Option<&str>) -> Result<Option<String>, No> {
    let Some(text) = text else { return Ok(None) };
    let encoded = text.strip_prefix('n').filter(|encoded| encoded.len() <= CURSOR_BYTES_MAX);
    let bytes = encoded.and_then(|encoded| URL_SAFE_NO_PAD.decode(encoded).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(Some).ok_or_else(wrong)
}

fn wrong() -> No {
    Refusal::invalid("expected a cursor that a list gave out, found something else").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_given_and_nothing_else_is_one() {
        assert_eq!(place(Some(&of_place(Cursor(u64::MAX)))).unwrap(), Some(Cursor(u64::MAX)));
        assert_eq!(name(Some(&of_name("agent://a/ü"))).unwrap().as_deref(), Some("agent://a/ü"));
        assert_eq!(rank(Some(&of_rank(7, "a:b"))).unwrap(), Some((7, "a:b".to_owned())));
        assert!(rank(Some(&of_name("a:b"))).is_err() && rank(None).unwrap().is_none());
        let waits = Waited { behind: Some(Cursor(7)), since: u64::MAX, place: 8 };
        for waits in [waits, Waited { behind: None, ..waits }] {
            assert_eq!(waited(Some(&of_waited(waits))).unwrap(), waits);
        }
        assert!(waited(Some(&of_name("7:x:8"))).is_err() && waited(Some("s7")).is_err());
        assert!(place(None).unwrap().is_none() && name(None).unwrap().is_none());
        for wrong in ["", "17", "s", "sx", "n!", "na", "s1 ", "s+1", &of_name(&"x".repeat(4000))] {
            assert!(place(Some(wrong)).is_err() && name(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
