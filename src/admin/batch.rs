//! Many small segments in one request: each submitted as soon as it is whole, so that one commit takes
//! many of them, and all answered together in their order.
//!
//! ```text
//!             a line: name and size                 its bytes are whole: Park, Submit
//!   ┌──────┐ ──────────────────────► ┌─────────┐ ───────────────────────────────────┐
//!   │ Line │                         │ Content │                                    │
//!   └──────┘ ◄─────────────────────────────────────────────────────────────────────-┘
//!      │ a line that nobody can read, one item or byte too many
//!      ▼
//!    Over: what follows is dropped; every item before is answered as ever
//! ```
//!
//! The answer is one line for each item: `consign.accepted/1`, or `consign.refused/1`. What could not be
//! read is the last line, so fewer lines than items say that the rest was not looked at.

use std::borrow::Cow;
use std::mem;

use bytes::BytesMut;
use serde::Deserialize;

use consign_core::code::Refusal;
use consign_core::id::{BlobDigest, ConnId, Handle, TransferNo, unhex};
use consign_core::segment::{Meta, segment_id};
use consign_core::session::{Accepted, Content, SessionEvent, SessionOut, Submission};
use consign_core::store::StoreRequest;
use consign_core::time::Now;

use super::refusal::No;
use super::route::Submit;
use super::shapes;

/// Most items of a batch.
pub(crate) const ITEMS_MAX: usize = 1_024;
/// Most bytes of content of a batch.
pub(crate) const BYTES_MAX: u64 = 4 << 20;
/// Longest line in bytes, its end left out: a name of 1,024 bytes fits, however it is escaped.
const LINE_MAX: usize = 8 << 10;

/// What the line before an item's content says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    size: u64,
    #[serde(default, borrow)]
    instance: Option<Cow<'a, str>>,
}

/// How far the request is read.
#[derive(Debug)]
enum At {
    Line(Vec<u8>),
    Content {
        meta: Meta,
        size: u64,
        data: BytesMut,
    },
    /// Content of an item that is refused already.
    Dropped {
        left: u64,
    },
    Over,
}

/// An item of the batch.
#[derive(Debug)]
enum Item {
    /// The node has not answered.
    Submitted {
        name: String,
        size: u64,
        digest: BlobDigest,
    },
    Answered(Vec<u8>),
}

/// A batch on its way in.
#[derive(Debug)]
pub(super) struct Batch {
    conn: ConnId,
    shared: Submit,
    inline_max: u64,
    at: At,
    /// Bytes of content that lines have announced.
    announced: u64,
    /// The number before that of the first item.
    base: u32,
    items: Vec<Item>,
    unanswered: usize,
    ended: bool,
}

impl Batch {
    /// `base` is the last ticket of the connection; an item has one of its own, accepted or not.
    pub(super) fn new(conn: ConnId, shared: Submit, inline_max: u64, base: u32) -> Batch {
        Batch {
            conn,
            shared,
            inline_max,
            at: At::Line(Vec::new()),
            announced: 0,
            base,
            items: Vec::new(),
            unanswered: 0,
            ended: false,
        }
    }

    /// The last ticket that it has used.
    pub(super) fn last_ticket(&self) -> u32 {
        self.base + self.items.len() as u32
    }

    /// Bytes of the request.
    pub(super) fn body(&mut self, now: Now, mut bytes: &[u8], out: &mut SessionOut) {
        while !bytes.is_empty() {
            match &mut self.at {
                At::Line(line) => {
                    let end = bytes.iter().position(|b| *b == b'\n');
                    let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    if line.len() + part.len() > LINE_MAX {
                        let text = format!("a line of more than {LINE_MAX} bytes");
                        return self.over("invalid", &text);
                    }
                    line.extend_from_slice(part);
                    bytes = rest.get(1..).unwrap_or_default();
                    if end.is_some() {
                        let line = mem::take(line);
                        self.line(now, &line, out);
                    }
                }
                At::Content { size, data, .. } => {
                    let left = usize::try_from(*size).unwrap_or(usize::MAX) - data.len();
                    let (part, rest) = bytes.split_at(left.min(bytes.len()));
                    data.extend_from_slice(part);
                    bytes = rest;
                    if data.len() as u64 == *size {
                        self.submit(out);
                    }
                }
                At::Dropped { left } => {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX);
                    let (part, rest) = bytes.split_at(most.min(bytes.len()));
                    *left -= part.len() as u64;
                    bytes = rest;
                    if *left == 0 {
                        self.at = At::Line(Vec::new());
                    }
                }
                At::Over => return,
            }
        }
    }

    /// The request is whole, or nothing more of it is taken.
    pub(super) fn end(&mut self) {
        self.ended = true;
        match &self.at {
            At::Line(line) if line.is_empty() => {}
            At::Over => {}
            At::Line(_) | At::Content { .. } | At::Dropped { .. } => {
                self.over("invalid", "the request ended within an item");
            }
        }
    }

    fn line(&mut self, now: Now, line: &[u8], out: &mut SessionOut) {
        let line: Line<'_> = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(why) => return self.over("invalid", &format!("not name and size in JSON: {why}")),
        };
        self.announced = self.announced.saturating_add(line.size);
        if self.items.len() >= ITEMS_MAX {
            return self.over("too_large", &format!("a batch has at most {ITEMS_MAX} items"));
        }
        if self.announced > BYTES_MAX {
            return self.over("too_large", &format!("a batch has at most {BYTES_MAX} bytes"));
        }
        match self.meta(now, &line) {
            Ok(meta) => {
                let data = BytesMut::with_capacity(usize::try_from(line.size).unwrap_or(0));
                self.at = At::Content { meta, size: line.size, data };
                if line.size == 0 {
                    self.submit(out);
                }
            }
            Err(no) => {
                self.answered(&line.name, &no);
                self.at = match line.size {
                    0 => At::Line(Vec::new()),
                    left => At::Dropped { left },
                };
            }
        }
    }

    fn meta(&self, now: Now, line: &Line<'_>) -> Result<Meta, No> {
        if line.size > self.inline_max {
            let text = format!(
                "{} bytes; items of a batch have at most {}: send it alone",
                line.size, self.inline_max
            );
            return Err(No::new(413, "not_small", text));
        }
        let mut meta = self.shared.meta.clone();
        meta.name = line.name.clone().into_owned();
        meta.expires_at = self.shared.expires.map(|d| now.wall.after(d).0);
        if let Some(digits) = &line.instance {
            let bytes = unhex::<16>(digits)
                .ok_or_else(|| No::new(400, "invalid", "an instance is 32 hex digits"))?;
            meta.instance = bytes.to_vec();
        } else if self.shared.random {
            meta.instance = random_instance()?;
        }
        meta.check().map_err(|fault| No::new(400, "invalid", fault.to_string()))?;
        Ok(meta)
    }

    fn submit(&mut self, out: &mut SessionOut) {
        let at = mem::replace(&mut self.at, At::Line(Vec::new()));
        let At::Content { meta, size, data } = at else { return };
        let digest = BlobDigest(*blake3::hash(&data).as_bytes());
        let id = segment_id(&meta, &digest);
        self.items.push(Item::Submitted { name: meta.name.clone(), size, digest });
        self.unanswered += 1;
        let ticket = TransferNo(self.last_ticket());
        let handle = Handle { conn: self.conn, number: ticket.0 };
        out.requests.push(StoreRequest::Park { handle, data: data.freeze() });
        let to = self.shared.to.clone();
        let content = Content::Parked(handle);
        let submission = Submission { meta, to, id, digest, size, content, watched: None };
        out.events.push(SessionEvent::Submit { ticket, submission: Box::new(submission) });
    }

    /// Nothing more is read. Says why in a line of its own.
    fn over(&mut self, code: &'static str, text: &str) {
        self.at = At::Over;
        let text =
            format!("item {}: {text}; it and what follows is not taken", self.items.len() + 1);
        self.answered("", &No::new(400, code, text));
    }

    fn answered(&mut self, name: &str, no: &No) {
        self.items.push(Item::Answered(refused(name, no)));
    }

    fn item(&mut self, ticket: TransferNo) -> Option<&mut Item> {
        let index = ticket.0.checked_sub(self.base)?.checked_sub(1)?;
        let item = self.items.get_mut(index as usize)?;
        matches!(item, Item::Submitted { .. }).then_some(item)
    }

    /// The node has taken an item; says whether it is one of this batch.
    pub(super) fn accepted(&mut self, ticket: TransferNo, accepted: Accepted) -> bool {
        let Some(item) = self.item(ticket) else { return false };
        if let Item::Submitted { name, size, digest } = item {
            let shape = shapes::Accepted::of(accepted, mem::take(name), *size, Some(digest));
            *item = Item::Answered(line_of(&shape));
            self.unanswered -= 1;
        }
        true
    }

    /// The node has refused an item; says whether it is one of this batch.
    pub(super) fn refused(&mut self, ticket: TransferNo, refusal: (Refusal, u64, String)) -> bool {
        let Some(item) = self.item(ticket) else { return false };
        if let Item::Submitted { name, .. } = item {
            let (refusal, retry_after, text) = refusal;
            let no = No::of_refusal(refusal, retry_after, text);
            *item = Item::Answered(refused(name, &no));
            self.unanswered -= 1;
        }
        true
    }

    /// The answer, once nothing more comes and every item has its own.
    pub(super) fn answer(&self) -> Option<Vec<u8>> {
        if !self.ended || self.unanswered > 0 {
            return None;
        }
        let lines = self.items.iter().map(|item| match item {
            Item::Answered(line) => line.as_slice(),
            Item::Submitted { .. } => &[],
        });
        Some(lines.collect::<Vec<_>>().concat())
    }

    /// Nothing more is taken because the site stops; what is submitted still gets its answer.
    pub(super) fn stop(&mut self) {
        if !self.ended {
            self.over("busy", "this site is stopping");
            self.ended = true;
        }
    }
}

/// An instance that nobody else has.
pub(super) fn random_instance() -> Result<Vec<u8>, No> {
    let mut instance = [0; 16];
    let drawn = getrandom::fill(&mut instance);
    drawn.map_err(|why| No::new(500, "no_randomness", why.to_string()))?;
    Ok(instance.to_vec())
}

fn refused(name: &str, no: &No) -> Vec<u8> {
    line_of(&shapes::RefusedItem {
        schema: shapes::RefusedItem::SCHEMA.into(),
        name: name.into(),
        status: no.status,
        code: no.code.into(),
        message: no.message.clone(),
        retry_after_seconds: no.retry_after,
    })
}

fn line_of<T: serde::Serialize>(shape: &T) -> Vec<u8> {
    // Strings and numbers only: nothing that JSON does not have.
    let mut line = serde_json::to_vec(shape).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests;
