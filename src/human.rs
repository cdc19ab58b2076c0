//! Sizes, times and tables as people read them.

use std::time::{Duration, SystemTime};

/// A size: `512 B`, `1.2 GiB`, `88.0 MiB`, `812 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    consign_core::amount::readable(bytes)
}

/// A rate: `310 MiB/s`.
#[must_use]
pub fn rate(bytes_per_second: u64) -> String {
    format!("{}/s", bytes(bytes_per_second))
}

/// A duration, rounded to the nearest: `41 ms`, `4.1 s`, `12 s`, `6 min`, `3 h`, `9 d`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let ms = time.as_millis();
    let nearest = |unit: u128| (ms + unit / 2) / unit;
    // Each bound is where rounding would reach the next unit's first value.
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..9_950 => format!("{}.{} s", nearest(100) / 10, nearest(100) % 10),
        9_950..119_500 => format!("{} s", nearest(1_000)),
        119_500..7_170_000 => format!("{} min", nearest(60_000)),
        7_170_000..171_000_000 => format!("{} h", nearest(3_600_000)),
        _ => format!("{} d", nearest(86_400_000)),
    }
}

/// A duration of which whole seconds are known: `0 s`, `41 s`, then as [`duration`] says it.
#[must_use]
pub fn seconds(seconds: u64) -> String {
    match seconds {
        0..10 => format!("{seconds} s"),
        _ => duration(Duration::from_secs(seconds)),
    }
}

/// How long ago an RFC 3339 time was: `12 s ago`; as it is when it cannot be read.
#[must_use]
pub fn ago(time: &str, now: SystemTime) -> String {
    match moment(time) {
        Some(at) => format!("{} ago", duration(now.duration_since(at).unwrap_or_default())),
        None => time.into(),
    }
}

/// How long it is until an RFC 3339 time: `in 12 s`, or `now`. Seconds are counted down to 1, as a clock does.
#[must_use]
pub fn until(time: &str, now: SystemTime) -> String {
    match moment(time).map(|at| at.duration_since(now)) {
        Some(Ok(left)) if !left.is_zero() => {
            format!(
                "in {}",
                seconds(u64::try_from(left.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX))
            )
        }
        Some(_) => "now".into(),
        None => time.into(),
    }
}

/// The time between two RFC 3339 times; `None` when one cannot be read or they are the wrong way round.
#[must_use]
pub fn between(from: &str, to: &str) -> Option<Duration> {
    moment(to)?.duration_since(moment(from)?).ok()
}

/// Reads an RFC 3339 time.
#[must_use]
pub fn moment(time: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(time).ok()
}

/// `1 segment`, `2 segments`.
#[must_use]
pub fn count(number: u64, one: &str) -> String {
    let stem = one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (number, stem) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {one}s"),
    }
}

/// `10,000,000`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left.
    Left,
    /// To the right: numbers.
    Right,
}

/// Lays out rows under a head, columns two blanks apart, no blanks at the ends of lines.
#[must_use]
pub fn table(head: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|(title, _)| width(title)).collect();
    for row in rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = width(cell).max(*most);
        }
    }
    let titles: Vec<String> = head.iter().map(|(title, _)| (*title).to_string()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for ((cell, wide), (_, align)) in row.iter().zip(&widths).zip(head) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let blanks = " ".repeat(wide - width(cell));
            match align {
                Align::Left => line.extend([cell.as_str(), &blanks]),
                Align::Right => line.extend([blanks.as_str(), cell]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let table = [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1025, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 10, "10.0 KiB"),
            ((100 << 10) - 1, "100 KiB"),
            (812 << 20, "812 MiB"),
            (88 << 20, "88.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1_288_490_189, "1.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (size, text) in table {
            assert_eq!(bytes(size), text, "{size}");
        }
        assert_eq!(rate(310 << 20), "310 MiB/s");
    }

    #[test]
    fn durations() {
        let table = [
            (0, "0 ms"),
            (41, "41 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (4_149, "4.1 s"),
            (4_150, "4.2 s"),
            (9_949, "9.9 s"),
            (9_950, "10 s"),
            (12_499, "12 s"),
            (12_500, "13 s"),
            (119_499, "119 s"),
            (119_500, "2 min"),
            (6 * 60_000, "6 min"),
            (10 * 60_000 - 30_000, "10 min"),
            (10 * 60_000 - 30_001, "9 min"),
            (7_169_999, "119 min"),
            (7_170_000, "2 h"),
            (3 * 3_600_000, "3 h"),
            (170_999_999, "47 h"),
            (171_000_000, "2 d"),
            (72 * 3_600_000 - 1, "3 d"),
            (9 * 86_400_000, "9 d"),
            (90 * 86_400_000 - 43_200_000, "90 d"),
            (90 * 86_400_000 - 43_200_001, "89 d"),
        ];
        for (ms, text) in table {
            assert_eq!(duration(Duration::from_millis(ms)), text, "{ms}");
        }
    }

    #[test]
    fn whole_seconds_have_no_parts() {
        let table = [(0, "0 s"), (1, "1 s"), (9, "9 s"), (10, "10 s"), (360, "6 min")];
        for (given, text) in table {
            assert_eq!(seconds(given), text);
        }
    }

    #[test]
    fn times_against_now() {
        let now = moment("2026-11-30T18:44:05.000Z").unwrap();
        assert_eq!(ago("2026-11-30T18:43:53.000Z", now), "12 s ago");
        assert_eq!(ago("2026-11-30T18:44:06.000Z", now), "0 ms ago");
        assert_eq!(until("2026-11-30T18:44:13.000Z", now), "in 8 s");
        assert_eq!(until("2026-11-30T18:44:05.153Z", now), "in 1 s");
        assert_eq!(until("2026-11-30T18:44:05.000Z", now), "now");
        assert_eq!(until("2026-11-30T18:00:00.000Z", now), "now");
        assert_eq!(ago("?", now), "?");
        let (from, to) = ("2026-11-30T18:44:05.000Z", "2026-11-30T18:44:09.100Z");
        assert_eq!(between(from, to), Some(Duration::from_millis(4_100)));
        assert_eq!(between(to, from), None);
    }

    #[test]
    fn tables_are_aligned() {
        let head = [("PEER", Align::Left), ("QUEUED", Align::Right), ("LAST ERROR", Align::Left)];
        let row = |cells: [&str; 3]| cells.map(String::from).to_vec();
        let rows = [row(["bëta", "1", ""]), row(["gamma-long", "12345678", "session_lost"])];
        let expected = "\
PEER          QUEUED  LAST ERROR
bëta               1
gamma-long  12345678  session_lost
";
        assert_eq!(table(&head, &rows), expected);
        assert_eq!(table(&head, &[]), "PEER  QUEUED  LAST ERROR\n");
    }

    #[test]
    fn counts() {
        assert_eq!(
            [count(0, "file"), count(1, "file"), count(2, "file")],
            ["0 files", "1 file", "2 files"]
        );
        assert_eq!(
            [count(0, "delivery"), count(1, "delivery"), count(2, "day")],
            ["0 deliveries", "1 delivery", "2 days"]
        );
    }
}
