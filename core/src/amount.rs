//! Sizes in texts for people: exact, and as they are configured.

use alloc::format;
use alloc::string::String;

/// A size as people read it, the same wherever one is told: `512 B`, `1.2 GiB`, `88.0 MiB`, `812 MiB`.
#[must_use]
pub fn readable(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    // Tenths, so that rounding happens once and carries into the next unit.
    let tenths = |unit: usize| {
        let scale = 1u128 << (10 * (unit + 1));
        (u128::from(bytes) * 10 + scale / 2) / scale
    };
    let fits = |unit: &usize| tenths(*unit) < 10_240;
    let unit = (0..UNITS.len()).find(fits).unwrap_or(UNITS.len() - 1);
    match (bytes, tenths(unit), UNITS.get(unit)) {
        (1_024.., small @ 0..1_000, Some(name)) => format!("{}.{} {name}", small / 10, small % 10),
        (1_024.., large, Some(name)) => format!("{} {name}", (large + 5) / 10),
        _ => format!("{bytes} B"),
    }
}

/// `34603008 bytes (33.0 MiB)`; below 1 KiB the bytes alone. Exact, so that what is barely too much can be told from the limit.
pub(crate) fn amount(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        _ => format!("{bytes} bytes ({})", readable(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_exact_and_readable() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1024 bytes (1.0 KiB)"),
            (33 << 20, "34603008 bytes (33.0 MiB)"),
            (3_000_000, "3000000 bytes (2.9 MiB)"),
            ((10 << 30) + 1, "10737418241 bytes (10.0 GiB)"),
            (u64::MAX, "18446744073709551615 bytes (16.0 EiB)"),
        ] {
            assert_eq!(amount(bytes), text);
        }
    }
}
