//! Frames as a peer might say them, for the traces.
//!
//! ```text
//! bytes HEX
//! HELLO NAME CREDIT OFFERS
//! OFFER N inline|blob SIZE [id|rotten|short|slash]    with that flaw
//! SEGMENT N OFFSET LEN
//! ACK N [epoch BOOT | foreign]    answers name what was offered, unless they are foreign
//! ACCEPT N OFFSET [foreign]
//! REJECT N WORD|CODE [foreign] | REJECT N withdrawn
//! CREDIT BYTES [for N] | PING | PONG | GOODBYE WORD
//! WANT N segment|blob SEED | RECEIPT SITE | RECEIPT_OK SITE
//! ```

use std::collections::BTreeMap;

use consign_core::code::{Goodbye, Refusal};
use consign_core::id::{Epoch, SegmentId, TransferNo};
use consign_core::wire::{
    Frame, Hello, Receipt, ReceiptOutcome, VERSION, WITHDRAWN, Wanted, encode, encode_offer,
};

use crate::script::size;
use crate::world::{content, epoch, offer};

/// Identities by the site that offered, and transfer.
pub(crate) type Ids = BTreeMap<(usize, TransferNo), SegmentId>;

const FOREIGN: SegmentId = SegmentId([9; 32]);

fn number(n: &str) -> TransferNo {
    TransferNo(n.parse().unwrap())
}

/// A frame as `from` might say it.
pub(crate) fn frame(ids: &mut Ids, from: usize, words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match words {
        ["bytes", hex] => {
            let byte = |p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
            bytes.extend(hex.as_bytes().chunks_exact(2).map(byte));
        }
        ["OFFER", n, how, len, flaws @ ..] => {
            bad_offer(ids, from, number(n), *how == "inline", size(len), flaws, &mut bytes);
        }
        ["SEGMENT", n, offset, len] => {
            let (offset, len) = (size(offset), size(len));
            let whole = content(number(n).0.into(), offset + len);
            let data = &whole[offset as usize..];
            encode(&Frame::Segment { transfer: number(n), offset, data }, &mut bytes);
        }
        words => {
            let answer = answer(ids, from, words).or_else(|| other(from, words));
            encode(&answer.unwrap_or_else(|| panic!("no frame {words:?}")), &mut bytes);
        }
    }
    bytes
}

fn bad_offer(
    ids: &mut Ids,
    from: usize,
    transfer: TransferNo,
    rides: bool,
    len: u64,
    flaws: &[&str],
    bytes: &mut Vec<u8>,
) {
    let mut offer = offer(transfer.0, transfer.0.into(), len, "a");
    let mut body = content(transfer.0.into(), len);
    for flaw in flaws {
        match *flaw {
            "id" => offer.id = FOREIGN,
            "rotten" => body[0] ^= 1,
            "short" => drop(body.pop()),
            "slash" => offer.meta.name = "a//b".to_owned(),
            other => panic!("no flaw {other:?}"),
        }
    }
    ids.insert((from, transfer), offer.id);
    encode_offer(&offer, rides.then_some(body.as_slice()), bytes);
}

/// Answers to what the other side offered, and what takes an own offer back.
fn answer(ids: &Ids, from: usize, words: &[&str]) -> Option<Frame<'static>> {
    let named =
        |n: &str, by: usize| ids.get(&(by, number(n))).copied().unwrap_or(SegmentId([0; 32]));
    let ours = epoch(1 - from);
    let reject = |n: &str, id, code| Frame::Reject {
        transfer: number(n),
        id,
        code,
        retry_after: 250,
        text: "as told".to_owned(),
    };
    let code = |word: &str| match Refusal::from_word(word) {
        Some(refusal) => refusal.number(),
        None => word.parse().expect("a refusal or a number"),
    };
    Some(match words {
        ["ACK", n] => Frame::Ack { transfer: number(n), id: named(n, 1 - from), epoch: ours },
        ["ACK", n, "epoch", boot] => {
            let epoch = Epoch { boot: boot.parse().unwrap(), session: 1 };
            Frame::Ack { transfer: number(n), id: named(n, 1 - from), epoch }
        }
        ["ACK", n, "foreign"] => Frame::Ack { transfer: number(n), id: FOREIGN, epoch: ours },
        ["ACCEPT", n, offset] => {
            let id = named(n, 1 - from);
            Frame::Accept { transfer: number(n), id, offset: size(offset) }
        }
        ["ACCEPT", n, offset, "foreign"] => {
            Frame::Accept { transfer: number(n), id: FOREIGN, offset: size(offset) }
        }
        ["REJECT", n, "withdrawn"] => reject(n, named(n, from), WITHDRAWN),
        ["REJECT", n, word] => reject(n, named(n, 1 - from), code(word)),
        ["REJECT", n, word, "foreign"] => reject(n, FOREIGN, code(word)),
        _ => return None,
    })
}

fn other(from: usize, words: &[&str]) -> Option<Frame<'static>> {
    let sample = |seed: &str| offer(1, seed.parse().unwrap(), 10, "a");
    let id = SegmentId([5; 32]);
    Some(match words {
        ["HELLO", name, credit, offers] => Frame::Hello(Hello {
            version: VERSION,
            name: (*name).to_owned(),
            epoch: epoch(from),
            max_segment: None,
            credit: size(credit),
            max_offers: offers.parse().unwrap(),
            features: Vec::new(),
        }),
        ["PING"] => Frame::Ping(b"hi"),
        ["PONG"] => Frame::Pong(b"hi"),
        ["GOODBYE", word] => {
            let code = Goodbye::from_word(word).map_or(99, Goodbye::number);
            Frame::Goodbye { code, text: "as told".to_owned() }
        }
        ["CREDIT", bytes] => Frame::Credit { transfer: TransferNo(0), bytes: size(bytes) },
        ["CREDIT", bytes, "for", n] => Frame::Credit { transfer: number(n), bytes: size(bytes) },
        ["WANT", n, "segment", seed] => {
            Frame::Want { transfer: number(n), what: Wanted::Segment(sample(seed).id) }
        }
        ["WANT", n, "blob", seed] => {
            Frame::Want { transfer: number(n), what: Wanted::Blob(sample(seed).digest) }
        }
        ["RECEIPT", site] => {
            let outcome = ReceiptOutcome::Delivered;
            Frame::Receipt(Receipt { id, site: (*site).to_owned(), when: 1, outcome })
        }
        ["RECEIPT_OK", site] => Frame::ReceiptOk { id, site: (*site).to_owned(), later: false },
        _ => return None,
    })
}
