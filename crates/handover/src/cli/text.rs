//! What people read: text of agents that cannot change the terminal, tables, states and times.

use std::io::IsTerminal;

use handover_desk::visible::is_seen;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many characters of an id are shown.
pub const SHORT: usize = 8;

/// How wide a table is where nobody says how wide the terminal is.
const WIDTH: usize = 120;

/// Text of an agent in one line: what would move, colour or turn round the terminal is shown as what it is.
pub fn line(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same, with its line breaks and tabs.
pub fn lines(text: &str) -> String {
    escaped(&text.replace("\r\n", "\n"), |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            _ if kept(character) => shown.push(character),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            // Breaks of lines and paragraphs are white space, but no plain space.
            _ if is_seen(character)
                && (character == ' ' || !matches!(character, '\u{2028}' | '\u{2029}')) =>
            {
                shown.push(character);
            }
            _ => shown.extend(character.escape_unicode()),
        }
    }
    shown
}

/// JSON in one line in which no character is that a terminal could act on.
pub fn ascii_json(value: &Value) -> String {
    let json = value.to_string();
    if json.is_ascii() {
        return json.replace('\u{7f}', "\\u007f");
    }
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii_graphic() || character == ' ' || (!character.is_ascii() && is_seen(character)) {
            shown.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

/// The first characters of an id.
pub fn short(id: &str) -> String {
    line(id).chars().take(SHORT).collect()
}

/// The text in so many columns at most.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut shown, mut used) = (String::new(), 0);
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used >= width {
            break;
        }
        shown.push(character);
    }
    shown + "…"
}

/// Whether standard output shows colours.
pub fn has_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !dumb
}

/// The shape of a state and its colour, as a number of ANSI.
fn shape(state: &str) -> (&'static str, u8) {
    match state {
        "requested" => ("○", 37),
        "working" => ("●", 34),
        "waiting" => ("◐", 33),
        "paused" => ("‖", 35),
        "silent" => ("◌", 33),
        "completed" => ("✓", 32),
        "failed" => ("✕", 31),
        "rejected" => ("⊘", 31),
        _ => ("–", 37),
    }
}

/// A state as a shape and a word.
pub fn state(state: &str) -> String {
    format!("{} {}", shape(state).0, line(state))
}

/// The same in its colour, if colours are shown.
pub fn coloured(text: &str, state: &str) -> String {
    match has_colour() {
        true => format!("\u{1b}[{}m{text}\u{1b}[0m", shape(state).1),
        false => text.to_owned(),
    }
}

/// How wide the terminal is, and how many lines it has.
pub fn terminal() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    match size {
        Ok(size) if size.ws_col > 0 => (size.ws_col.into(), usize::from(size.ws_row).max(2)),
        _ => (WIDTH, usize::MAX),
    }
}

/// A cell of a table: its text, and the state whose colour it has.
pub struct Cell(pub String, pub Option<String>);

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell(text, None)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell(text.to_owned(), None)
    }
}

/// A table, in lines. `wide` is the column that is cut where the terminal is too narrow.
pub fn table(heads: &[&str], rows: &[Vec<Cell>], wide: usize) -> Vec<String> {
    const WIDE_MIN: usize = 8;
    let mut widths: Vec<usize> = heads.iter().map(|head| head.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.0.width());
        }
    }
    let whole = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    let over = whole.saturating_sub(terminal().0);
    if let Some(width) = widths.get_mut(wide) {
        *width = width.saturating_sub(over).max(WIDE_MIN.min(*width));
    }
    let heads: Vec<Cell> = heads.iter().map(|head| Cell::from(*head)).collect();
    let laid_out = |row: &[Cell]| {
        let mut shown = String::new();
        for (at, (width, Cell(text, of))) in widths.iter().zip(row).enumerate() {
            let text = cut(text, *width);
            let gap = if at + 1 == row.len() { 0 } else { width - text.width().min(*width) + 2 };
            shown += &of.as_ref().map_or_else(|| text.clone(), |of| coloured(&text, of));
            shown += &" ".repeat(gap);
        }
        shown.trim_end().to_owned()
    };
    std::iter::once(laid_out(&heads)).chain(rows.iter().map(|row| laid_out(row))).collect()
}

/// How long something lasts: two units at most.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 if seconds.is_multiple_of(60) || seconds >= 600 => format!("{} min", seconds / 60),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A moment that the server told, in seconds of the Unix epoch.
pub fn seconds(at: &str) -> Option<i64> {
    at.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// How long ago a moment is.
pub fn age(at: Option<&str>) -> String {
    let Some(then) = at.and_then(seconds) else { return String::new() };
    let ago = u64::try_from(Timestamp::now().as_second() - then).unwrap_or(0);
    match ago {
        0..60 => format!("{ago} s"),
        60..3600 => format!("{} min", ago / 60),
        3600..86_400 => format!("{} h", ago / 3600),
        _ => format!("{} d", ago / 86_400),
    }
}

/// The time of the day where the reader is.
pub fn clock(at: &str) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string(),
        Err(_) => line(at),
    }
}

/// The date and the time where the reader is, with its zone.
pub fn moment(at: &str) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => line(at),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_an_agent_cannot_act_on_the_terminal() {
        let nasty = "a\u{1b}[31mred\u{7}\u{9b}2J\u{202e}evil\u{2066}\u{200b}\r\nb\tc\u{2028}é漢";
        let shown = line(nasty);
        assert_eq!(
            shown,
            "a\\u{1b}[31mred\\u{7}\\u{9b}2J\\u{202e}evil\\u{2066}\\u{200b}\\u{d}\\nb\\tc\\u{2028}é漢"
        );
        assert_eq!(lines("a\r\nb\tc\u{1b}\rd"), "a\nb\tc\\u{1b}\\u{d}d");
    }

    #[test]
    fn json_is_the_same_value_and_cannot_act_on_the_terminal() {
        let value = json!({ "a\u{202e}": "\u{1b}\u{9b}\u{7f}é漢\u{e0041}" });
        let shown = ascii_json(&value);
        assert!(shown.chars().all(is_seen), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        let plain = json!({ "a": "\u{7f}" });
        assert_eq!(serde_json::from_str::<Value>(&ascii_json(&plain)).unwrap(), plain);
        assert!(!ascii_json(&plain).contains('\u{7f}'));
    }

    #[test]
    fn a_table_lines_up_whatever_is_in_it() {
        let rows = vec![vec![Cell::from("漢字"), Cell::from("x")], vec![Cell::from("a"), Cell::from("y")]];
        assert_eq!(table(&["ONE", "TWO"], &rows, 0), ["ONE   TWO", "漢字  x", "a     y"]);
        assert_eq!(cut("abcdef", 4), "abc…");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let all = [0, 59, 111, 600, 3_661, 90_000].map(duration);
        assert_eq!(all, ["0 s", "59 s", "1 min 51 s", "10 min", "1 h 1 min", "1 d 1 h"]);
    }
}
