//! Sizes in texts for people: exact, and as they are configured.

use alloc::format;
use alloc::string::String;

/// `34603008 bytes (33.0 MiB)`; below 1 KiB the bytes alone. Exact, so that what is barely too much can be told from the limit.
pub(crate) fn amount(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = bytes.checked_ilog2().unwrap_or(0) / 10;
    let Some(name) = unit.checked_sub(1).and_then(|i| UNITS.get(i as usize)) else {
        return format!("{bytes} bytes");
    };
    let tenths = (u128::from(bytes) * 10) >> (10 * unit);
    format!("{bytes} bytes ({}.{} {name})", tenths / 10, tenths % 10)
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
            ((10 << 30) + 1, "10737418241 bytes (10.0 GiB)"),
            (u64::MAX, "18446744073709551615 bytes (15.9 EiB)"),
        ] {
            assert_eq!(amount(bytes), text);
        }
    }
}
