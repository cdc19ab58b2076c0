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
    fn the_end_of_time_does_not_overflow() {
        assert!(rfc3339(UnixMillis(u64::MAX)).ends_with('Z'));
    }
}
