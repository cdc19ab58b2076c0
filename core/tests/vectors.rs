//! The test vectors in `tests/vectors/` of the workspace, checked both ways.
//!
//! A file is a list of cases separated by empty lines; `#` begins a comment.
//!
//! - `frames.txt`: the fields of a frame, one a line, then its bytes in hex behind `=`. The bytes
//!   must decode to these fields, and these fields encode to these bytes. Bytes behind `~` decode
//!   to them too, but are not how this implementation writes them.
//! - `faults.txt`: bytes behind `=`, and behind `!` why they are refused; `OFFER refused` when
//!   only the offer is.
//! - `identity.txt`: what a segment consists of, and its content digest and segment id.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use consign_core::id::{BlobDigest, hex};
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::wire::{Frame, Kind, Offer, ReceiptOutcome, Wanted, decode, encode};

fn cases(file: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let blocks = lines.split(|line| line.is_empty());
    let cases: Vec<Vec<String>> = blocks
        .filter(|block| !block.is_empty())
        .map(|block| block.iter().map(|line| (*line).to_owned()).collect())
        .collect();
    assert!(!cases.is_empty(), "{} has no cases", path.display());
    cases
}

/// The bytes behind a sign; a run of lines with that sign is one value.
fn behind(case: &[String], sign: char) -> Option<Vec<u8>> {
    let digits: String = case
        .iter()
        .filter_map(|line| line.strip_prefix(sign))
        .flat_map(|hex| hex.chars().filter(|c| !c.is_whitespace()))
        .collect();
    if digits.is_empty() {
        return None;
    }
    assert!(digits.len().is_multiple_of(2), "{case:?}");
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex");
    Some((0..digits.len()).step_by(2).map(byte).collect())
}

/// The fields of a frame, one a line.
fn fields(frame: &Frame<'_>) -> Vec<String> {
    let mut text = String::new();
    let out = &mut text;
    match frame {
        Frame::Hello(hello) => {
            _ = writeln!(out, "HELLO\nversion {}\nname {}", hello.version, hello.name);
            _ = writeln!(out, "epoch {} {}", hello.epoch.boot, hello.epoch.session);
            option(out, "max_segment", hello.max_segment);
            _ = writeln!(out, "credit {}\nmax_offers {}", hello.credit, hello.max_offers);
            for feature in &hello.features {
                _ = writeln!(out, "feature {feature}");
            }
        }
        Frame::Offer(offer, body) => offer_fields(out, offer, *body),
        Frame::Segment { transfer, offset, data } => {
            _ = writeln!(out, "SEGMENT\ntransfer {transfer}\noffset {offset}\ndata {}", hex(data));
        }
        Frame::Ack { transfer, id, epoch } => {
            _ = writeln!(out, "ACK\ntransfer {transfer}\nid {id}");
            _ = writeln!(out, "epoch {} {}", epoch.boot, epoch.session);
        }
        Frame::Accept { transfer, id, offset } => {
            _ = writeln!(out, "ACCEPT\ntransfer {transfer}\nid {id}\noffset {offset}");
        }
        Frame::Reject { transfer, id, code, retry_after, text } => {
            _ = writeln!(out, "REJECT\ntransfer {transfer}\nid {id}\ncode {code}");
            _ = writeln!(out, "retry_after {retry_after}\ntext {text}");
        }
        Frame::Ping(data) => _ = writeln!(out, "PING\ndata {}", hex(data)),
        Frame::Pong(data) => _ = writeln!(out, "PONG\ndata {}", hex(data)),
        Frame::Goodbye { code, text } => {
            _ = writeln!(out, "GOODBYE\ncode {code}\ntext {text}");
        }
        Frame::Credit { transfer, bytes } => {
            _ = writeln!(out, "CREDIT\ntransfer {transfer}\nbytes {bytes}");
        }
        Frame::Receipt(receipt) => {
            _ = writeln!(out, "RECEIPT\nid {}\nsite {}", receipt.id, receipt.site);
            _ = writeln!(out, "when {}", receipt.when);
            match receipt.outcome {
                ReceiptOutcome::Delivered => _ = writeln!(out, "outcome 0"),
                ReceiptOutcome::Failed(cause) => _ = writeln!(out, "outcome 1\ncause {cause}"),
            }
        }
        Frame::Want { transfer, what } => {
            _ = writeln!(out, "WANT\ntransfer {transfer}");
            match what {
                Wanted::Segment(id) => _ = writeln!(out, "segment {id}"),
                Wanted::Blob(digest) => _ = writeln!(out, "blob {digest}"),
            }
        }
        Frame::ReceiptOk { id, site, later } => {
            _ = writeln!(out, "RECEIPT_OK\nid {id}\nsite {site}");
            if *later {
                _ = writeln!(out, "later");
            }
        }
        Frame::Skipped(kind) => _ = writeln!(out, "skipped {kind:#04x}"),
        Frame::BadOffer(bad) => _ = writeln!(out, "OFFER refused\n{}", bad.fault),
    }
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

fn option(out: &mut String, name: &str, value: Option<u64>) {
    if let Some(value) = value {
        _ = writeln!(out, "{name} {value}");
    }
}

fn offer_fields(out: &mut String, offer: &Offer, body: Option<&[u8]>) {
    _ = writeln!(out, "OFFER\ntransfer {}\nid {}", offer.transfer, offer.id);
    _ = writeln!(out, "digest {}\nsize {}", offer.digest, offer.size);
    match &offer.to {
        Destinations::All => _ = writeln!(out, "to *"),
        Destinations::Named(names) => _ = writeln!(out, "to {}", names.join(" ")),
    }
    _ = writeln!(out, "origin {}\norigin_seq {}", offer.origin, offer.origin_seq);
    _ = writeln!(out, "hops {}\nname {}", offer.hops, offer.meta.name);
    _ = writeln!(out, "content_type {}", offer.meta.content_type);
    for (key, value) in &offer.meta.labels {
        _ = writeln!(out, "label {key}={value}");
    }
    _ = writeln!(out, "instance {}", hex(&offer.meta.instance));
    _ = writeln!(out, "class {}\naccepted_at {}", offer.meta.class as u8, offer.meta.accepted_at);
    option(out, "expires_at", offer.meta.expires_at);
    if let Some(body) = body {
        _ = writeln!(out, "body {}", hex(body));
    }
}

#[test]
fn frames_decode_and_encode_as_written() {
    let mut seen = Vec::new();
    for case in cases("frames.txt") {
        let meaning: Vec<String> =
            case.iter().filter(|line| !line.starts_with(['=', '~'])).cloned().collect();
        let (ours, theirs) = (behind(&case, '='), behind(&case, '~'));
        assert!(ours.is_some() || theirs.is_some(), "{case:?} has no bytes");
        for bytes in ours.iter().chain(&theirs) {
            let (used, frame) = decode(bytes).expect("sound").expect("whole");
            assert_eq!(used, bytes.len(), "{case:?}");
            assert_eq!(fields(&frame), meaning);
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Ok(None), "{case:?} cut at {cut}");
            }
        }
        if let Some(ours) = ours {
            let (_, frame) = decode(&ours).expect("sound").expect("whole");
            let mut encoded = Vec::new();
            encode(&frame, &mut encoded);
            assert_eq!(hex(&encoded), hex(&ours), "{meaning:?}");
        }
        seen.push(meaning[0].clone());
    }
    for kind in Kind::ALL {
        assert!(seen.iter().any(|name| name == kind.word()), "no vector for {kind}");
    }
}

#[test]
fn faults_are_refused_as_written() {
    for case in cases("faults.txt") {
        let bytes = behind(&case, '=').expect("bytes");
        let why: Vec<&str> = case.iter().filter_map(|line| line.strip_prefix("! ")).collect();
        let only_offer = case.iter().any(|line| line == "OFFER refused");
        match decode(&bytes) {
            Err(fault) => {
                assert!(!only_offer, "{case:?}");
                assert_eq!([fault.to_string().as_str()], why[..], "{case:?}");
            }
            Ok(Some((used, Frame::BadOffer(bad)))) => {
                assert!(only_offer && used == bytes.len(), "{case:?}");
                assert_eq!([bad.fault.to_string().as_str()], why[..], "{case:?}");
            }
            Ok(other) => panic!("{case:?} decodes to {other:?}"),
        }
    }
}

#[test]
fn identities_are_as_written() {
    for case in cases("identity.txt") {
        let values = |name: &str| -> Vec<String> {
            let values = case.iter().filter_map(|line| line.strip_prefix(name));
            values.map(|value| value.trim_start().to_owned()).collect()
        };
        let value = |name: &str| values(name).first().cloned().unwrap_or_default();
        let bytes = |name: &str| {
            let digits = value(name);
            let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex");
            (0..digits.len()).step_by(2).map(byte).collect::<Vec<u8>>()
        };
        let label = |text: String| {
            let (key, value) = text.split_once('=').expect("KEY=VALUE");
            (key.to_owned(), value.to_owned())
        };
        let meta = Meta {
            name: value("name"),
            content_type: value("content_type"),
            labels: values("label").into_iter().map(label).collect(),
            instance: bytes("instance"),
            ..Meta::default()
        };
        meta.check().expect("sound");
        let digest = BlobDigest(*blake3::hash(&bytes("content")).as_bytes());
        assert_eq!(digest.to_string(), value("digest"), "{case:?}");
        assert_eq!(segment_id(&meta, &digest).to_string(), value("id"), "{case:?}");
    }
}
