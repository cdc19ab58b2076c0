//! Amounts with units: sizes in bytes, durations in milliseconds.

use std::time::Duration;

use super::fault::Code;
use super::value::Bad;

/// Units of sizes, in bytes.
pub(super) const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

/// Units of durations, in milliseconds.
pub(super) const TIMES: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 7 * 86_400_000),
];

/// Reads a size such as `1.5GiB`, in bytes.
///
/// # Errors
/// What is wrong with it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    quantity(text, SIZES, "2GiB").map_err(|bad| bad.problem)
}

/// Reads amounts such as `1.5GiB` or `1h 30m`: numbers, each with a unit, added up.
pub(super) fn quantity(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, Bad> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(Bad::new(Code::Value, "must not be empty", "empty"));
    }
    if rest.starts_with('-') {
        return Err(Bad::new(Code::Range, "must not be negative", "negative"));
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let thousandths = thousandths(number)?;
        let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
            return Err(no_unit(number, unit, units, example));
        };
        let part = thousandths.saturating_mul(u128::from(*factor)) / 1_000;
        total = total.saturating_add(part);
        rest = next.trim_start();
    }
    u64::try_from(total).map_err(|_| Bad::new(Code::Range, "is too large", "too large"))
}

/// A decimal number times 1000.
fn thousandths(number: &str) -> Result<u128, Bad> {
    let bad = |label: &str| Bad::new(Code::Value, "must be a number followed by a unit", label);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(bad("not a number"));
    }
    if fraction.len() > 3 {
        return Err(bad("more than three decimals"));
    }
    let fraction: u128 = format!("{fraction:0<3}").parse().unwrap_or(0);
    let whole: u128 = whole.parse().unwrap_or(u128::MAX / 1_000 - 1);
    Ok(whole.saturating_mul(1_000).saturating_add(fraction))
}

fn no_unit(number: &str, unit: &str, units: &[(&str, u64)], example: &str) -> Bad {
    let all = units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if unit.is_empty() {
        return Bad::new(Code::Value, "needs a unit", "no unit")
            .help(format!("for example \"{number}{example}\"; units are {all}"));
    }
    let bad =
        Bad::new(Code::Value, format!("has a unit that does not exist, `{unit}`"), "not a unit");
    match units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((name, _)) => bad.help(format!("did you mean \"{number}{name}\"?")),
        None => bad.help(format!("units are {all}")),
    }
}

/// A size in the largest unit that divides it.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut amount = bytes;
    let mut unit = 0;
    while amount != 0 && amount.is_multiple_of(1024) && unit + 1 < units.len() {
        amount /= 1024;
        unit += 1;
    }
    format!("{amount}{}", units.get(unit).copied().unwrap_or("B"))
}

/// A duration given in milliseconds, such as `1h 30m`.
#[must_use]
pub fn millis(ms: u64) -> String {
    let mut rest = ms;
    let mut text = String::new();
    for (unit, factor) in
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)]
    {
        if rest >= factor {
            let space = if text.is_empty() { "" } else { " " };
            text += &format!("{space}{}{unit}", rest / factor);
            rest %= factor;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Milliseconds as a duration.
#[must_use]
pub fn duration(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
