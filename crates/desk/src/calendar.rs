//! A moment in words: RFC 3339, UTC, to the millisecond.

use handover_kernel::Timestamp;

const DAY_MS: u64 = 86_400_000;

/// Such as `2026-07-28T09:30:00.000Z`.
pub fn rfc3339(at: Timestamp) -> String {
    let (days, of_day) = (at.0 / DAY_MS, at.0 % DAY_MS);
    let (year, month, day) = date(days);
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
    if year > 9999 {
        return format!("{year}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z");
    }
    // Every task that is shown has two: digit by digit is several times as fast as formatting.
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, number: u64| {
        text[at] += (number / 10) as u8;
        text[at + 1] += (number % 10) as u8;
    };
    for (at, number) in [
        (0, year / 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, hours),
        (14, minutes),
        (17, seconds),
        (20, millis / 10),
    ] {
        put(at, number);
    }
    text[22] += (millis % 10) as u8;
    str::from_utf8(&text).expect("digits are text").to_owned()
}

/// The date that is so many days after 1 January 1970. Years are counted from March, so that the leap day is a year's last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// The moment that a text of RFC 3339 names, in any offset; what is finer than a millisecond is cut off. None of what is
/// no such text, or lies before 1970.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape = |at: usize, expected: &[u8]| bytes.get(at).is_some_and(|byte| expected.contains(byte));
    if !(text.is_ascii() && shape(4, b"-") && shape(7, b"-") && shape(10, b"Tt ")) {
        return None;
    }
    let (date, time) = (&text[..10], &text[11..]);
    let days = days_since_1970(number(&date[..4])?, number(&date[5..7])?, number(&date[8..])?)?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hours, minutes, seconds] = clock_of(clock)?;
    // A leap second is the one before it.
    if hours > 23 || minutes > 59 || seconds > 60 || fraction.is_empty() {
        return None;
    }
    number(fraction)?;
    let millis = number(&format!("{fraction:0<3}")[..3])?;
    let of_day = ((hours * 60 + minutes) * 60 + seconds.min(59)) * 1000 + millis;
    let at = i64::try_from(days * DAY_MS + of_day).ok()?;
    let ahead_ms = match zone.split_at(1) {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), offset) => {
            let [hours, minutes, _] = clock_of(&format!("{offset}:00"))?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let ms = i64::try_from((hours * 60 + minutes) * 60_000).ok()?;
            if sign == "+" { ms } else { -ms }
        }
        _ => return None,
    };
    u64::try_from(at - ahead_ms).ok().map(Timestamp)
}

/// The three numbers of `hh:mm:ss`.
fn clock_of(text: &str) -> Option<[u64; 3]> {
    let mut parts = text.split(':').map(|part| if part.len() == 2 { number(part) } else { None });
    let clock = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(clock)
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year_from_march, march_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    let leap_days = year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
    let days = (year_from_march * 365 + leap_days + of_year).checked_sub(719_468)?;
    // 31 April and its like come out as another day.
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_can_be_read_again_in_any_offset() {
        for at in
            [0, 951_782_399_999, 951_782_400_000, 1_709_251_200_000, 1_785_231_000_123, 253_402_300_799_999]
        {
            assert_eq!(parse_rfc3339(&rfc3339(Timestamp(at))), Some(Timestamp(at)));
        }
        let cases = [
            ("2026-07-28T09:30:00Z", 1_785_231_000_000),
            ("2026-07-28t11:30:00.5+02:00", 1_785_231_000_500),
            ("2026-07-28 01:00:00.123456789-08:30", 1_785_231_000_123),
            ("2016-12-31T23:59:60z", 1_483_228_799_000),
        ];
        for (text, at) in cases {
            assert_eq!(parse_rfc3339(text), Some(Timestamp(at)), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for wrong in [
            "",
            "soon",
            "2026-07-28",
            "2026-07-28T09:30:00",
            "2026-07-28T09:30Z",
            "2026-07-28T24:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "2026-07-28T09:30:00.Z",
            "2026-07-28T09:30:00Zulu",
            "2026-07-28T9:30:00Z",
            "2026-07-28T09:30:00+2",
            "2026-07-28T09:30:00+25:00",
            "2026-07-28T09:30:0ä",
            "20260-7-28T09:30:00Z",
            "+026-07-28T09:30:00Z",
            "2026-07-28T+9:30:00Z",
        ] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn moments_that_are_known() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (1_785_231_000_123, "2026-07-28T09:30:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ];
        for (at, expected) in cases {
            assert_eq!(rfc3339(Timestamp(at)), expected);
        }
    }

    #[test]
    fn no_moment_is_too_late_to_be_told() {
        rfc3339(Timestamp(u64::MAX));
    }
}
