//! Hex both ways, and how numbers print.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::*;

#[test]
fn hex_of_known_bytes() {
    assert_eq!(hex(&[]), "");
    assert_eq!(hex(&[0, 1, 0x0f, 0x10, 0xab, 0xff]), "00010f10abff");
    assert_eq!(unhex::<0>(""), Some([]));
    assert_eq!(unhex("00ABcdEf"), Some([0, 0xab, 0xcd, 0xef]));
}

#[test]
fn what_is_not_hex_is_refused() {
    for bad in ["", "0", "000", "00000", "0g", "g0", " 1", "1 ", "+1", "-1", "é", "0x", "1\0"] {
        assert_eq!(unhex::<1>(bad), None, "{bad:?}");
    }
    assert_eq!(unhex::<2>("+1+1"), None);
    assert_eq!(unhex::<2>("1é2"), None, "four bytes, three characters");
    assert_eq!(BlobDigest::from_hex(&"0".repeat(63)), None);
    assert_eq!(BlobDigest::from_hex(&"0".repeat(65)), None);
    assert_eq!(BlobDigest::from_hex(&"0".repeat(64)), Some(BlobDigest([0; 32])));
}

#[test]
fn an_id_prints_whole_or_by_its_first_twelve_digits() {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&[0x3f, 0xa9, 0xc1, 0x7b, 0xe2, 0x04, 0x55, 0x66]);
    let id = SegmentId(bytes);
    assert_eq!(id.short(), "3fa9c17be204");
    assert_eq!(format!("{id:?}"), "SegmentId(3fa9c17be204)");
    assert_eq!(id.to_string(), format!("3fa9c17be2045566{}", "0".repeat(48)));
    assert_eq!(Seq(7).to_string(), "7");
    assert_eq!(ConnId { slot: 3, generation: 9 }.to_string(), "3.9");
    assert_eq!(Epoch { boot: 5, session: 2 }.to_string(), "5.2");
}

#[test]
fn epochs_order_by_boot_first() {
    assert!(Epoch { boot: 1, session: 9 } < Epoch { boot: 2, session: 0 });
    assert!(Epoch { boot: 2, session: 0 } < Epoch { boot: 2, session: 1 });
}

quickcheck! {
    fn hex_is_undone_by_unhex(a: u128, b: u128) -> bool {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&a.to_be_bytes());
        bytes[16..].copy_from_slice(&b.to_be_bytes());
        let text = hex(&bytes);
        text.len() == 64
            && unhex(&text) == Some(bytes)
            && unhex(&text.to_uppercase()) == Some(bytes)
            && SegmentId::from_hex(&text) == Some(SegmentId(bytes))
            && text.starts_with(&SegmentId(bytes).short())
    }

    fn hex_keeps_the_order_of_bytes(a: Vec<u8>, b: Vec<u8>) -> bool {
        hex(&a).cmp(&hex(&b)) == a.cmp(&b)
    }
}
