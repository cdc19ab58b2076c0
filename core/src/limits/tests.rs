//! What the bounds promise to each other.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::segment::{Destinations, Meta};

fn cbor<T: minicbor::Encode<()>>(value: &T) -> usize {
    minicbor::to_vec(value).expect("writing to a Vec").len()
}

/// The largest OFFER that passes every check, with the largest body that may ride along, is a frame.
#[test]
fn the_largest_offer_with_its_body_fits_a_frame() {
    let mut labels: Vec<(String, String)> =
        (0..LABELS_MAX).map(|i| (format!("{i:02}"), String::new())).collect();
    let spent = NAME_MAX + LABELS_MAX * 10;
    labels[0].1 = "v".repeat(META_MAX - spent);
    let meta = Meta {
        name: "n".repeat(NAME_MAX),
        content_type: "t".repeat(TYPE_MAX),
        labels,
        instance: vec![0; 16],
        accepted_at: u64::MAX,
        expires_at: Some(u64::MAX),
        ..Meta::default()
    };
    assert_eq!(meta.check(), Ok(()));
    let names = (0..DESTINATIONS_MAX).map(|i| format!("{i:0width$}", width = SITE_NAME_MAX));
    let to = Destinations::named(names.collect()).expect("as many as may be");
    let described = cbor(&meta) + cbor(&to);
    // Transfer, id, digest, size, origin and its number, hops, and the numbers of all fields.
    let rest = 5 + 34 + 34 + 9 + SITE_NAME_MAX + 2 + 9 + 2 + 32;
    let frame = 1 + 8 + described + rest + INLINE_MAX;
    assert!(frame <= FRAME_MAX, "{frame} bytes");
}
