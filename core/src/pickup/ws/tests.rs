//! Frames both ways, split anywhere, and everything a reader must refuse.

use alloc::format;
use alloc::vec;

use super::*;

const MASK: [u8; 4] = [1, 2, 3, 4];

/// A frame as a client sends it, whatever is wrong with it.
fn raw(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(first, payload, Some(MASK), &mut out);
    out
}

/// Everything that is read of `bytes`, in pieces that end at `cuts`.
fn read(side: Side, bytes: &[u8], cuts: &[usize]) -> (Vec<Message>, Option<WsFault>) {
    let mut reader = Reader::new(side);
    let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let mut seen = Vec::new();
    for pair in cuts.windows(2) {
        let mut input = &bytes[pair[0]..pair[1]];
        loop {
            match reader.read(&mut input) {
                Ok(Some(message)) => seen.push(message),
                Ok(None) => break,
                Err(fault) => return (seen, Some(fault)),
            }
        }
        assert!(input.is_empty());
    }
    (seen, None)
}

fn fault(bytes: &[u8]) -> Option<u16> {
    let (_, fault) = read(Side::Server, bytes, &[]);
    let every: Vec<usize> = (0..bytes.len().min(64)).collect();
    assert_eq!(read(Side::Server, bytes, &every).1, fault, "split differently");
    fault.map(WsFault::code)
}

#[test]
fn the_accept_key_of_the_standard() {
    assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(is_key("dGhlIHNhbXBsZSBub25jZQ=="));
    for bad in ["", "dGhlIHNhbXBsZSBub25jZQ", "AAAA", "dGhlIHNhbXBsZSBub25jZQ=!"] {
        assert!(!is_key(bad), "{bad}");
    }
}

#[test]
fn both_sides_understand_each_other() {
    for mask in [Some(MASK), None] {
        let side = if mask.is_some() { Side::Server } else { Side::Client };
        let mut bytes = Vec::new();
        let long = "é".repeat(32_768);
        text("", mask, &mut bytes);
        text("hällo", mask, &mut bytes);
        text(&"x".repeat(126), mask, &mut bytes);
        text(&long, mask, &mut bytes);
        ping(b"p", mask, &mut bytes);
        pong(&[7; 200], mask, &mut bytes);
        close(4001, &"ü".repeat(100), mask, &mut bytes);
        let (seen, fault) = read(side, &bytes, &[1, 2, 3, 9, 700]);
        assert_eq!(fault, None);
        let expected = [
            Message::Text(String::new()),
            Message::Text("hällo".into()),
            Message::Text("x".repeat(126)),
            Message::Text(long),
            Message::Ping(b"p".to_vec()),
            Message::Pong(vec![7; 125]),
            Message::Close(Some(4001), "ü".repeat(61)),
        ];
        assert_eq!(seen, expected);
    }
}

#[test]
fn fragments_are_joined_and_control_frames_stand_between() {
    let bytes =
        [raw(0x01, b"h\xc3"), raw(0x89, b"!"), raw(0x00, b"\xa4l"), raw(0x80, b"lo")].concat();
    let (seen, fault) = read(Side::Server, &bytes, &[]);
    assert_eq!((seen.len(), fault), (2, None));
    assert_eq!(seen[0], Message::Ping(b"!".to_vec()));
    assert_eq!(seen[1], Message::Text("hällo".into()));
}

#[test]
fn what_breaks_the_framing_is_1002() {
    let mut unmasked = Vec::new();
    text("x", None, &mut unmasked);
    assert_eq!(fault(&unmasked), Some(1002));
    let masked = raw(0x81, b"x");
    assert_eq!(read(Side::Client, &masked, &[]).1.map(WsFault::code), Some(1002));
    for first in [0xc1, 0xa1, 0x91, 0x83, 0x87, 0x8b, 0x8f, 0x80, 0x00, 0x09, 0x08, 0x0a] {
        assert_eq!(fault(&raw(first, b"")), Some(1002), "{first:x}");
    }
    for long in [126, 70_000] {
        assert_eq!(fault(&raw(0x89, &vec![0; long])), Some(1002));
    }
    assert_eq!(fault(&[raw(0x01, b"a"), raw(0x81, b"b")].concat()), Some(1002));
    // Lengths that are not written in the shortest way.
    assert_eq!(fault(&[0x81, 0xfe, 0, 125]), Some(1002));
    assert_eq!(fault(&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 255, 255]), Some(1002));
    for payload in [&b"\x03"[..], b"\x03\xe7", b"\x03\xec", b"\x03\xee", b"\x0b\xb7", b"\x13\x88"] {
        assert_eq!(fault(&raw(0x88, payload)), Some(1002), "{payload:?}");
    }
}

#[test]
fn other_faults_and_their_codes() {
    assert_eq!(fault(&raw(0x82, b"x")), Some(1003));
    assert_eq!(fault(&raw(0x81, b"\xff")), Some(1007));
    assert_eq!(fault(&raw(0x81, b"\xed\xa0\x80")), Some(1007));
    assert_eq!(fault(&[raw(0x01, b"\xc3"), raw(0x80, b"")].concat()), Some(1007));
    assert_eq!(fault(&raw(0x88, b"\x03\xe8\xff")), Some(1007));
    let (seen, none) = read(Side::Server, &raw(0x88, b""), &[]);
    assert_eq!((seen, none), (vec![Message::Close(None, String::new())], None));
}

#[test]
fn what_is_too_big_is_refused_at_its_header() {
    let header = |len: u64| [&[0x81, 0xff][..], &len.to_be_bytes()].concat();
    for len in [65_537, u64::MAX, i64::MAX as u64, 1 << 63] {
        assert_eq!(fault(&header(len)), Some(1009), "{len}");
    }
    let mut reader = Reader::new(Side::Server);
    assert_eq!(reader.read(&mut &header(1 << 62)[..]), Err(WsFault::TooBig));
    assert_eq!((reader.message.capacity(), reader.control.capacity()), (0, 0));
    // A whole message of the largest size is taken.
    let largest = raw(0x81, &vec![b'x'; MESSAGE_MAX]);
    assert_eq!(fault(&largest), None);
    // The sum of the fragments counts.
    let sum = [raw(0x01, &vec![b'x'; MESSAGE_MAX]), raw(0x80, b"x")].concat();
    assert_eq!(fault(&sum), Some(1009));
    // So do their number.
    let mut many = raw(0x01, b"");
    for _ in 0..14 {
        many.extend(raw(0x00, b""));
    }
    assert_eq!(fault(&[many.clone(), raw(0x80, b"")].concat()), None);
    assert_eq!(fault(&[many, raw(0x00, b""), raw(0x80, b"")].concat()), Some(1009));
}

#[test]
fn a_header_alone_costs_nothing() {
    let mut reader = Reader::new(Side::Server);
    let mut input = &[0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4][..];
    assert_eq!(reader.read(&mut input), Ok(None));
    assert_eq!(reader.message.capacity(), 0);
    assert!(!reader.is_idle());
    let mut rest = &[0; 65_536][..];
    assert!(matches!(reader.read(&mut rest), Ok(Some(Message::Text(_)))));
    assert!(reader.is_idle());
    assert_eq!((reader.message.capacity(), reader.control.capacity()), (0, 0));
}

#[test]
fn every_split_gives_the_same() {
    fn same(frames: Vec<(u8, Vec<u8>)>, junk: Vec<u8>, cuts: Vec<usize>) -> bool {
        let kinds = [0x81, 0x01, 0x80, 0x00, 0x89, 0x8a, 0x88];
        let mut bytes = Vec::new();
        for (kind, payload) in frames {
            bytes.extend(raw(kinds[usize::from(kind) % kinds.len()], &payload));
        }
        bytes.extend(junk);
        let whole = read(Side::Server, &bytes, &[]);
        let every: Vec<usize> = (0..bytes.len()).collect();
        read(Side::Server, &bytes, &cuts) == whole && read(Side::Server, &bytes, &every) == whole
    }
    quickcheck::quickcheck(same as fn(Vec<(u8, Vec<u8>)>, Vec<u8>, Vec<usize>) -> bool);
}

#[test]
fn what_is_written_is_read_split_anywhere() {
    fn reads(texts: Vec<String>, mask: u32, cuts: Vec<usize>) -> bool {
        let mut bytes = Vec::new();
        for t in &texts {
            text(t, Some(mask.to_be_bytes()), &mut bytes);
        }
        let expected: Vec<Message> = texts.into_iter().map(Message::Text).collect();
        read(Side::Server, &bytes, &cuts) == (expected, None)
    }
    quickcheck::quickcheck(reads as fn(Vec<String>, u32, Vec<usize>) -> bool);
    assert!(!format!("{}", WsFault::TooBig).is_empty());
}
