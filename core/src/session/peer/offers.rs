//! What waits to be offered, in the node's order, with the bodies that will ride along read ahead.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;

use bytes::Bytes;

use crate::id::TransferNo;
use crate::ledger::rows::Body;
use crate::session::{Outcome, Sending, SessionEvent, SessionOut};
use crate::store::{StoreFault, StoreRequest};

/// Bytes of bodies that are read ahead of their offers, at most (and always one body).
const AHEAD: u64 = 1 << 20;
/// What a body counts for at least, so that tiny ones are bounded in number too.
const AHEAD_LEAST: u64 = 512;

/// A body that rides along, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ride {
    /// Content is sent after ACCEPT.
    None,
    /// Not asked from the store yet.
    Ahead,
    /// Asked from the store.
    Asked,
    /// Ready.
    Here(Bytes),
}

#[derive(Clone, Debug)]
struct Waiting {
    sending: Box<Sending>,
    ride: Ride,
}

impl Waiting {
    fn weight(&self) -> u64 {
        match self.ride {
            Ride::None => 0,
            Ride::Ahead | Ride::Asked | Ride::Here(_) => self.sending.offer.size.max(AHEAD_LEAST),
        }
    }
}

/// The queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    queue: VecDeque<Waiting>,
    /// How many from the front need nothing from the store any more.
    asked: usize,
    /// Weight of those.
    ahead: u64,
}

impl Offers {
    pub(super) fn push(&mut self, sending: Box<Sending>) {
        let ride = match sending.body {
            // An empty body always rides, whatever it is kept in.
            Body::Inline(_) | Body::Blob(_) if sending.offer.size == 0 => Ride::Here(Bytes::new()),
            Body::Inline(_) => Ride::Ahead,
            Body::Blob(_) => Ride::None,
        };
        self.queue.push_back(Waiting { sending, ride });
    }

    /// Asks the store for the bodies that come next.
    pub(super) fn read_ahead(&mut self, out: &mut SessionOut) {
        while let Some(next) = self.queue.get_mut(self.asked) {
            if self.ahead > 0 && self.ahead.saturating_add(next.weight()) > AHEAD {
                break;
            }
            if next.ride == Ride::Ahead {
                next.ride = Ride::Asked;
                out.requests.push(StoreRequest::Read {
                    ticket: next.sending.offer.transfer,
                    body: next.sending.body,
                    offset: 0,
                    len: usize::try_from(next.sending.offer.size).unwrap_or(usize::MAX),
                });
            }
            self.ahead = self.ahead.saturating_add(next.weight());
            self.asked = self.asked.saturating_add(1);
        }
    }

    /// A body was read, or not. Returns whether it was one of these.
    pub(super) fn content(
        &mut self,
        ticket: TransferNo,
        data: Result<Bytes, StoreFault>,
        out: &mut SessionOut,
    ) -> bool {
        let Ok(index) = self.queue.binary_search_by_key(&ticket, |w| w.sending.offer.transfer)
        else {
            return false;
        };
        let Some(waiting) = self.queue.get_mut(index).filter(|w| w.ride == Ride::Asked) else {
            return false;
        };
        match data.and_then(|data| check_body(&waiting.sending, data)) {
            Ok(data) => waiting.ride = Ride::Here(data),
            Err(fault) => {
                self.remove(index);
                let outcome = Outcome::Unreadable(fault);
                out.events.push(SessionEvent::Outcome { transfer: ticket, outcome });
            }
        }
        true
    }

    /// Number of the next offer.
    pub(super) fn next_transfer(&self) -> Option<TransferNo> {
        self.queue.front().map(|waiting| waiting.sending.offer.transfer)
    }

    /// The next offer and the body that rides along, unless that is still being read.
    pub(super) fn front(&self) -> Option<(&Sending, Option<&Bytes>)> {
        let front = self.queue.front()?;
        match &front.ride {
            Ride::None => Some((&front.sending, None)),
            Ride::Here(data) => Some((&front.sending, Some(data))),
            Ride::Ahead | Ride::Asked => None,
        }
    }

    /// The next offer has left.
    pub(super) fn pop(&mut self) -> Option<Box<Sending>> {
        let sending = self.remove(0);
        if self.queue.is_empty() && self.queue.capacity() > 64 {
            self.queue = VecDeque::new();
        }
        sending
    }

    fn remove(&mut self, index: usize) -> Option<Box<Sending>> {
        let waiting = self.queue.remove(index)?;
        if index < self.asked {
            self.asked = self.asked.saturating_sub(1);
            self.ahead = self.ahead.saturating_sub(waiting.weight());
        }
        Some(waiting.sending)
    }
}

/// Nothing leaves that is not what was accepted here.
fn check_body(sending: &Sending, data: Bytes) -> Result<Bytes, StoreFault> {
    let (found, size) = (data.len() as u64, sending.offer.size);
    if found != size {
        return Err(StoreFault::Corrupt(format!("body of {found} bytes instead of {size}")));
    }
    if *blake3::hash(&data).as_bytes() != sending.offer.digest.0 {
        return Err(StoreFault::Corrupt("body does not match its digest".into()));
    }
    Ok(data)
}
