//! Dates as people and protocols write them, from milliseconds since the Unix epoch.

use alloc::format;
use alloc::string::String;

use crate::time::UnixMillis;

/// A moment in the proleptic Gregorian calendar, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year, from 1970.
    pub year: u64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Day of the week, 0 is Sunday.
    pub weekday: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
    /// Millisecond, 0 to 999.
    pub millis: u16,
}

const MS_PER_DAY: u64 = 86_400_000;

impl Civil {
    /// The moment of `at`.
    #[must_use]
    pub fn of(at: UnixMillis) -> Civil {
        let (days, ms) = (at.0 / MS_PER_DAY, at.0 % MS_PER_DAY);
        // Days are counted from 1 March of year 0, so that the leap day is the last of its year and
        // every 400 years are alike.
        let day = days + 719_468;
        let (era, of_era) = (day / 146_097, day % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Civil {
            year,
            month: month as u8,
            day: (of_year - (153 * shifted + 2) / 5 + 1) as u8,
            weekday: ((days + 4) % 7) as u8,
            hour: (ms / 3_600_000) as u8,
            minute: (ms / 60_000 % 60) as u8,
            second: (ms / 1_000 % 60) as u8,
            millis: (ms % 1_000) as u16,
        }
    }
}

/// RFC 3339 with milliseconds, UTC: `2026-11-30T18:44:05.123Z`.
#[must_use]
pub fn rfc3339(at: UnixMillis) -> String {
    let c = Civil::of(at);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        c.year, c.month, c.day, c.hour, c.minute, c.second, c.millis
    )
}

/// Reads what [`rfc3339`] writes: UTC with `Z`, fractions of up to 9 digits cut to milliseconds.
/// `None` for anything else, for days that are not in the calendar and for times before 1970.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<UnixMillis> {
    let body = text.strip_suffix('Z')?;
    let (whole, fraction) = body.split_once('.').unwrap_or((body, "0"));
    let shape = whole.len() == 19
        && whole.bytes().enumerate().all(|(at, b)| match at {
            4 | 7 => b == b'-',
            10 => b == b'T',
            13 | 16 => b == b':',
            _ => b.is_ascii_digit(),
        });
    let digits = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|b| b.is_ascii_digit());
    if !shape || !digits {
        return None;
    }
    let part = |from: usize, to: usize| whole.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    if year < 1970 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The count of days of `Civil::of`, backwards.
    let shifted = (month + 9) % 12;
    let years = year - u64::from(month <= 2);
    let days = years * 365 + years / 4 - years / 100 + years / 400;
    let days = (days + (153 * shifted + 2) / 5 + day).checked_sub(719_469)?;
    let millis = fraction.bytes().chain([b'0'; 2]).take(3);
    let millis = millis.fold(0, |n, b| n * 10 + u64::from(b - b'0'));
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let at = UnixMillis(seconds * 1_000 + millis);
    let civil = Civil::of(at);
    (u64::from(civil.month) == month && u64::from(civil.day) == day).then_some(at)
}

/// The format of the `Date` field: `Mon, 30 Nov 2026 18:44:05 GMT`.
#[must_use]
pub fn http_date(at: UnixMillis) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let c = Civil::of(at);
    let weekday = DAYS.get(usize::from(c.weekday)).unwrap_or(&"");
    let month = MONTHS.get(usize::from(c.month).saturating_sub(1)).unwrap_or(&"");
    format!(
        "{weekday}, {:02} {month} {:04} {:02}:{:02}:{:02} GMT",
        c.day, c.year, c.hour, c.minute, c.second
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z", "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z", "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z", "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_796_064_245_123, "2026-11-30T18:44:05.123Z", "Mon, 30 Nov 2026 18:44:05 GMT"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z", "Mon, 01 Mar 2100 00:00:00 GMT"),
        ];
        for (ms, iso, http) in table {
            assert_eq!(rfc3339(UnixMillis(ms)), iso);
            assert_eq!(http_date(UnixMillis(ms)), http);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        fn reads(ms: u64) -> bool {
            let at = UnixMillis(ms % 253_402_300_800_000);
            parse_rfc3339(&rfc3339(at)) == Some(at)
        }
        quickcheck::quickcheck(reads as fn(u64) -> bool);
        for ms in [0, 951_782_399_999, 951_782_400_000, 951_868_800_000, 4_107_542_400_000] {
            assert!(reads(ms));
        }
        let at = |text| parse_rfc3339(text).map(|at| at.0);
        assert_eq!(at("1970-01-01T00:00:01Z"), Some(1_000));
        assert_eq!(at("1970-01-01T00:00:01.5Z"), Some(1_500));
        assert_eq!(at("1970-01-01T00:00:01.123456789Z"), Some(1_123));
        for bad in [
            "",
            "Z",
            "1970-01-01T00:00:00",
            "1970-01-01T00:00:00+00:00",
            "1970-01-01 00:00:00Z",
            "1970-02-30T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:0éZ",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        assert!(rfc3339(UnixMillis(u64::MAX)).ends_with('Z'));
    }
}
