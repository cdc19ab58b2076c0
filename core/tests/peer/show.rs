//! What a step did, in words.

use consign_core::code::{Goodbye, Refusal};
use consign_core::id::TransferNo;
use consign_core::session::{Outcome, SessionEvent};
use consign_core::store::StoreRequest;
use consign_core::wire::{Frame, WITHDRAWN, Wanted, decode};

use crate::world::Stepped;

/// Lines for one step of the site of that name.
pub(crate) fn lines(name: &str, stepped: &Stepped) -> Vec<String> {
    let mut lines: Vec<String> =
        stepped.requests.iter().map(|request| format!("{name} asks {request}")).collect();
    lines.extend(stepped.events.iter().map(|e| format!("{name} tells {}", event(e))));
    lines.extend(frames(&stepped.bytes).iter().map(|frame| format!("{name} says {frame}")));
    if stepped.close {
        lines.push(format!("{name} closes"));
    }
    fold(lines)
}

/// A request, without what is the same each time.
pub(crate) fn request(request: &StoreRequest) -> String {
    match request {
        StoreRequest::Park { handle, data } => format!("Park {} {} B", handle.number, data.len()),
        StoreRequest::Create { blob, offset } => format!("Create blob {blob} from {offset}"),
        StoreRequest::Write { blob, data } => format!("Write blob {blob} {} B", data.len()),
        StoreRequest::Sync { blob } => format!("Sync blob {blob}"),
        StoreRequest::Finish { blob } => format!("Finish blob {blob}"),
        StoreRequest::Abandon { blob } => format!("Abandon blob {blob}"),
        StoreRequest::Read { ticket, offset, len, .. } => {
            format!("Read {ticket} {offset}..{}", offset + *len as u64)
        }
        StoreRequest::Query { .. } => panic!("a peer session asks nothing of the ledger"),
    }
}

/// Frames, with runs of SEGMENTs of one transfer folded into one line.
fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut run: Option<(TransferNo, u64, u64, usize)> = None;
    let show_run = |(transfer, from, to, count): (TransferNo, u64, u64, usize)| {
        let frames = if count == 1 { String::new() } else { format!(" in {count}") };
        format!("SEGMENT {transfer} {from}..{to}{frames}")
    };
    while let Some((used, frame)) = decode(bytes).expect("own frames are sound") {
        bytes = &bytes[used..];
        if let Frame::Segment { transfer, offset, data } = frame {
            let end = offset + data.len() as u64;
            match &mut run {
                Some((t, _, to, count)) if *t == transfer && *to == offset => {
                    (*to, *count) = (end, *count + 1);
                }
                _ => lines.extend(run.replace((transfer, offset, end, 1)).map(show_run)),
            }
            continue;
        }
        lines.extend(run.take().map(show_run));
        lines.push(show(&frame));
    }
    assert!(bytes.is_empty(), "own frames are whole");
    lines.extend(run.map(show_run));
    lines
}

/// Runs of equal lines become one with a count.
fn fold(lines: Vec<String>) -> Vec<String> {
    let mut folded: Vec<(String, usize)> = Vec::new();
    for line in lines {
        match folded.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => folded.push((line, 1)),
        }
    }
    let show = |(line, count)| if count == 1 { line } else { format!("{line} ({count} times)") };
    folded.into_iter().map(show).collect()
}

fn show(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Hello(hello) => format!(
            "HELLO {} epoch {} credit {} offers {}",
            hello.name, hello.epoch, hello.credit, hello.max_offers
        ),
        Frame::Offer(offer, body) => {
            let body = body.map_or(String::new(), |b| format!(", {} B ride", b.len()));
            format!("OFFER {} {} of {} B{body}", offer.transfer, offer.meta.name, offer.size)
        }
        Frame::Ack { transfer, epoch, .. } => format!("ACK {transfer} epoch {epoch}"),
        Frame::Accept { transfer, offset, .. } => format!("ACCEPT {transfer} from {offset}"),
        Frame::Reject { transfer, code: WITHDRAWN, text, .. } => {
            format!("REJECT {transfer} withdrawn: {text}")
        }
        Frame::Reject { transfer, code, retry_after, text, .. } => {
            let word = Refusal::from_number(*code).map_or("?", Refusal::word);
            format!("REJECT {transfer} {word} retry {retry_after}: {text}")
        }
        Frame::Ping(data) => format!("PING {data:?}"),
        Frame::Pong(data) => format!("PONG {data:?}"),
        Frame::Goodbye { code, text } => {
            let word = Goodbye::from_number(*code).map_or("?", Goodbye::word);
            format!("GOODBYE {word}: {text}")
        }
        Frame::Credit { transfer, bytes } => format!("CREDIT {transfer} {bytes}"),
        Frame::Want { transfer, .. } => format!("WANT {transfer}"),
        Frame::Segment { .. }
        | Frame::Receipt(_)
        | Frame::ReceiptOk { .. }
        | Frame::BadOffer(_)
        | Frame::Skipped(_) => {
            panic!("{frame:?} is never said here")
        }
    }
}

fn event(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Ready(limits) => {
            format!("Ready {} offers {}", limits.name, limits.max_offers)
        }
        SessionEvent::Offered { offer, body } => {
            let body = body.map_or(String::new(), |handle| format!(" parked {}", handle.number));
            format!("Offered {} {} of {} B{body}", offer.transfer, offer.meta.name, offer.size)
        }
        SessionEvent::Checkpoint { transfer, blob, offset, .. } => {
            format!("Checkpoint {transfer} blob {blob} at {offset}")
        }
        SessionEvent::Received { transfer, blob } => format!("Received {transfer} blob {blob}"),
        SessionEvent::Broken { transfer, blob, why } => {
            format!("Broken {transfer} blob {blob} {why:?}")
        }
        SessionEvent::Outcome {
            transfer,
            outcome: Outcome::Rejected { code, retry_after, text },
        } => {
            let word = Refusal::from_number(*code).map_or("?", Refusal::word);
            format!("Outcome {transfer} Rejected {word} retry {retry_after}: {text}")
        }
        SessionEvent::Outcome { transfer, outcome } => format!("Outcome {transfer} {outcome:?}"),
        SessionEvent::Progress { transfer, sent } => format!("Progress {transfer} {sent}"),
        SessionEvent::Arrived { transfer, blob } => format!("Arrived {transfer} blob {blob}"),
        SessionEvent::Wants => "Wants".to_owned(),
        SessionEvent::Pong(micros) => format!("Pong after {micros} us"),
        SessionEvent::Fault(text) => format!("Fault: {text}"),
        SessionEvent::Receipt(receipt) => {
            format!("Receipt from {} {:?}", receipt.site, receipt.outcome)
        }
        SessionEvent::Corrupt(seq) => format!("Corrupt {seq}"),
        SessionEvent::ReceiptOk { site, .. } => format!("ReceiptOk {site}"),
        SessionEvent::Want { transfer, what } => {
            let what = match what {
                Wanted::Segment(_) => "a segment",
                Wanted::Blob(_) => "a blob",
            };
            format!("Want {transfer} {what}")
        }
        SessionEvent::Submit { .. }
        | SessionEvent::Reserve { .. }
        | SessionEvent::Extend { .. }
        | SessionEvent::Act { .. }
        | SessionEvent::Pickup(_)
        | SessionEvent::Ask { .. } => panic!("{event:?} is a local session's"),
    }
}
