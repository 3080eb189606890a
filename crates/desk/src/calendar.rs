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

#[cfg(test)]
mod tests {
    use super::*;

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
