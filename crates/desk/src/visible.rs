//! What can be seen of a text: names must be what they look like, wherever they are shown.
//!
//! Ids and names are refused if they are not; titles and descriptions are cleaned. Bodies (requests, answers, messages,
//! results) are never touched.

use std::borrow::Cow;

use serde_json::Value;

/// Characters that show nothing, or change how others are shown: format characters (bidirectional controls and zero-width
/// ones among them), fillers, variation selectors, tags, characters for private use, and those that are none. Control
/// characters and white space are told apart by the standard library.
const UNSEEN: [(u32, u32); 29] = [
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x061c, 0x061c),
    (0x070f, 0x070f),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xe000, 0xf8ff),
    (0xfdd0, 0xfdef),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0xfffe, 0xffff),
    (0x1_13e9, 0x1_13e9),
    (0x1_3430, 0x1_345f),
    (0x1_6fe4, 0x1_6fe4),
    (0x1_bca0, 0x1_bca3),
    (0x1_d159, 0x1_d159),
    (0x1_d173, 0x1_d17a),
    (0x1_fffe, 0x1_ffff),
    (0x2_fffe, 0x2_ffff),
    (0x3_fffe, 0x3_ffff),
    // Planes without a character that is shown, tags, variation selectors, private use.
    (0x4_0000, 0x10_ffff),
];

/// Whether a character shows itself, and nothing else differently.
pub fn is_seen(character: char) -> bool {
    let code = u32::from(character);
    let after = UNSEEN.partition_point(|(_, last)| *last < code);
    let unseen = UNSEEN.get(after).is_some_and(|(first, _)| *first <= code);
    !unseen && !character.is_control()
}

/// The first character of an id that is not a visible one, if there is one. White space is none.
pub fn unseen_in_id(text: &str) -> Option<char> {
    let unseen = |character: &char| character.is_whitespace() || !is_seen(*character);
    text.chars().find(|character| !character.is_ascii_graphic() && unseen(character))
}

/// The first character of a name that is not a visible one, if there is one. A plain space is allowed.
pub fn unseen_in_name(text: &str) -> Option<char> {
    text.chars().find(|character| *character != ' ' && (character.is_whitespace() || !is_seen(*character)))
}

/// The first character of a text of several lines that is not a visible one, if there is one.
fn unseen_in_text(text: &str) -> Option<char> {
    text.chars().find(|character| !matches!(character, '\n' | '\t' | '\r') && !is_seen(*character))
}

/// A title on one line, of visible characters only: white space becomes a space, what shows nothing is left out.
pub fn title(text: &str) -> String {
    let shown = text.chars().map(|found| if found.is_whitespace() { ' ' } else { found });
    shown.filter(|found| is_seen(*found)).collect()
}

/// A description of visible characters only, with its lines: each ends with a line feed, and what shows nothing is left
/// out.
pub fn description(text: &str) -> String {
    let lines = text.chars().map(|found| match found {
        '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => '\n',
        other => other,
    });
    lines.filter(|found| matches!(found, '\n' | '\t') || is_seen(*found)).collect()
}

/// A text in which what shows nothing, or changes how other characters are shown, is spelled out: for those who look at
/// what others wrote. Lines and tabs stay. Selectors and joiners, which many a sign is written with, are left out.
pub fn spelled_out(text: &str) -> Cow<'_, str> {
    if unseen_in_text(text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            '\r' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => {}
            seen if is_seen(seen) => shown.push(seen),
            hidden => shown.extend(["[", &named(hidden), "]"]),
        }
    }
    Cow::Owned(shown)
}

/// The first character that is not a visible one in what a JSON Schema says to people: its names, titles and
/// descriptions. They are part of a contract, so that they are refused rather than changed.
pub fn unseen_in_schema(schema: &Value) -> Option<char> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let said = value.as_str().filter(|_| matches!(key.as_str(), "title" | "description"));
            let unseen = unseen_in_text(key).or_else(|| said.and_then(unseen_in_text));
            unseen.or_else(|| unseen_in_schema(value))
        }),
        Value::Array(items) => items.iter().find_map(unseen_in_schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The first character that is not a visible one in any text of a JSON value.
pub fn unseen_in_json(value: &Value) -> Option<char> {
    match value {
        Value::String(text) => unseen_in_text(text),
        Value::Array(items) => items.iter().find_map(unseen_in_json),
        Value::Object(fields) => {
            fields.iter().find_map(|(key, value)| unseen_in_text(key).or_else(|| unseen_in_json(value)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// How a message names a character that cannot be seen.
pub fn named(character: char) -> String {
    format!("U+{:04X}", u32::from(character))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One of each kind of what an attacker hides behind.
    const HIDDEN: [char; 16] = [
        '\u{0}',
        '\u{7}',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{ad}',
        '\u{200b}',
        '\u{200d}',
        '\u{200e}',
        '\u{202e}',
        '\u{2066}',
        '\u{2069}',
        '\u{3164}',
        '\u{feff}',
        '\u{e0041}',
        '\u{fe0f}',
    ];

    #[test]
    fn the_table_is_in_order() {
        assert!(UNSEEN.windows(2).all(|pair| pair[0].1 < pair[1].0));
        assert!(UNSEEN.iter().all(|(first, last)| first <= last));
    }

    #[test]
    fn what_hides_is_found_in_ids_and_names_and_left_out_of_titles_and_descriptions() {
        for hidden in HIDDEN {
            let text = format!("admin{hidden}istrator");
            assert_eq!(unseen_in_id(&text), Some(hidden), "{hidden:?}");
            assert_eq!(unseen_in_name(&text), Some(hidden), "{hidden:?}");
            assert_eq!(unseen_in_json(&json!({ "a": [text] })), Some(hidden), "{hidden:?}");
            assert_eq!(unseen_in_schema(&json!({ "items": { "title": text } })), Some(hidden), "{hidden:?}");
            let without =
                |instead: &str| text.replace(hidden, if hidden.is_whitespace() { instead } else { "" });
            assert_eq!((description(&text), title(&text)), (without("\n"), without(" ")), "{hidden:?}");
        }
        for space in [' ', '\t', '\n', '\u{a0}', '\u{2003}', '\u{2028}', '\u{3000}'] {
            assert_eq!(unseen_in_id(&format!("a{space}b")), Some(space), "{space:?}");
            assert_eq!(title(&format!("a{space}b")), "a b", "{space:?}");
        }
    }

    #[test]
    fn what_hides_is_spelled_out_for_those_who_look() {
        assert_eq!(spelled_out("pay\u{202e}lla\u{0}\n\tü❤\u{fe0f}"), "pay[U+202E]lla[U+0000]\n\tü❤");
        assert!(matches!(spelled_out("plain\r\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_seen_is_kept() {
        for id in [
            "planner",
            "agent://planner",
            "user@acme.example",
            "auth0|5f7c",
            "söhne",
            "エージェント",
            "مخطط",
            "🦀",
        ] {
            assert_eq!((unseen_in_id(id), unseen_in_name(id)), (None, None), "{id}");
            assert_eq!((title(id), description(id)), (id.to_owned(), id.to_owned()), "{id}");
        }
        assert_eq!(unseen_in_name("The Planner"), None);
        assert_eq!(description("one\n\ttwo  three\r\n"), "one\n\ttwo  three\n");
        let schema = json!({ "title": "a\nb", "properties": { "title": { "const": "\u{200b}" } } });
        assert_eq!(unseen_in_schema(&schema), None, "values are not shown to anybody");
    }
}
