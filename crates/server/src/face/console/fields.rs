//! Fields of forms, of addresses and of cookies, as browsers write them.

use handover_desk::visible::spelled_out;

/// How many fields a form or an address may have.
const FIELDS_MAX: usize = 1000;

/// Names and values in order. What comes after [`FIELDS_MAX`] is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Of a text of type `application/x-www-form-urlencoded`. Bytes that are no text become replacement characters.
    pub(super) fn parse(text: &str) -> Fields {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).take(FIELDS_MAX);
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Fields(pairs.map(|(name, value)| (decode(name), decode(value))).collect())
    }

    /// How many bytes it says.
    pub(super) fn weight(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The first value of a name; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// The first value of a name.
    pub(super) fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a name that is not blank.
    pub(super) fn said(&self, name: &str) -> Option<&str> {
        self.find(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// As an address says them, with one of them set to something else; without it where that is empty.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let others = self.0.iter().filter(|(known, value)| known != name && !value.is_empty());
        let others = others.map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        let own = (!value.is_empty()).then(|| format!("{}={}", encode(name), encode(value)));
        others.chain(own).collect::<Vec<_>>().join("&")
    }
}

/// A name as a page shows it and a form sends it back: what hides is spelled out, and what pages leave out is not there.
pub(super) fn shown(name: &str) -> String {
    let stays = |found: &char| !matches!(found, '\r' | '\n' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}');
    spelled_out(name).chars().filter(stays).collect()
}

/// What was typed into a form that was refused: it comes back with the page that says why.
#[derive(Clone, Debug, Default)]
pub(super) struct Typed {
    /// What the form does; empty if none was refused.
    pub(super) act: String,
    pub(super) form: Fields,
}

impl Typed {
    /// Whether it is the form that does this.
    pub(super) fn is(&self, act: &str) -> bool {
        self.act == act
    }

    /// What its field says, if it is the form that does this.
    pub(super) fn of(&self, act: &str, name: &str) -> &str {
        if self.is(act) { self.form.get(name) } else { "" }
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => digit(high).zip(digit(low)),
            _ => None,
        };
        match (escaped, first) {
            (Some((high, low)), _) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            (None, b'+') => bytes.push(b' '),
            (None, other) => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned())
}

/// A text as a part of an address.
pub(super) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The value of a cookie, if it is there once: a second one of its name may be somebody else's.
pub(super) fn cookie<'a>(header: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let pairs = header.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value);
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_write_them() {
        let fields = Fields::parse("a=1&b=x+y%2Bz%C3%BC&c&a=2&d=%zz%4&=7&e=%ff");
        assert_eq!((fields.get("a"), fields.get("b"), fields.get("c")), ("1", "x y+zü", ""));
        assert_eq!((fields.get("d"), fields.get("e"), fields.find("none")), ("%zz%4", "\u{fffd}", None));
        assert_eq!(Fields::parse("a=1&b=x+y&c=").with("a", "ü&"), "b=x%20y&a=%C3%BC%26");
        assert_eq!(Fields::parse("a=1&b=2").with("a", ""), "b=2");
        assert_eq!(decode(&encode("a/b?c=d&ü \u{0}")), "a/b?c=d&ü \u{0}");
    }

    #[test]
    fn a_cookie_counts_if_it_is_there_once() {
        let found = |header: &'static str| cookie([header].into_iter(), "id");
        assert_eq!(found("a=1; id=x; b=2"), Some("x"));
        assert_eq!((found("xid=1"), found("id=1; id=2"), found("")), (None, None, None));
    }
}
