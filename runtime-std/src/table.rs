//! The table of connections: who is there, and whether there is room for more.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consign_core::id::ConnId;

use crate::queue::{Ending, Mailbox};

/// Who wants to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Somebody from outside, unknown as yet.
    Peer,
    /// A local client or a dial: of these an operator must be able to have some when outsiders have
    /// taken all the room they can.
    Own,
}

/// A connection, and the address it came from.
type Entry = (Arc<Mailbox>, Option<IpAddr>);

/// One address may always have so many connections.
const PER_ADDRESS: usize = 64;

#[derive(Debug, Default)]
struct Slots {
    entries: Vec<Option<Entry>>,
    /// Connections by the address they came from.
    from: BTreeMap<IpAddr, usize>,
    free: Vec<u32>,
    generation: u32,
    live: usize,
    closed: bool,
}

/// Every connection of this run.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Mutex<Slots>,
    gone: Condvar,
    max: usize,
}

impl Table {
    /// A table with room for `max` connections, an eighth of them not for outsiders.
    pub(crate) fn new(max: usize) -> Table {
        Table { slots: Mutex::default(), gone: Condvar::new(), max: max.max(1) }
    }

    fn room(&self, kind: Kind) -> usize {
        match kind {
            Kind::Peer => (self.max - self.max / 8).max(1),
            Kind::Own => self.max,
        }
    }

    /// Whether one more may come.
    pub(crate) fn has_room(&self, kind: Kind) -> bool {
        let slots = self.lock();
        !slots.closed && slots.live < self.room(kind)
    }

    /// Whether one more may come from there: no address has more than a quarter of the room that is for
    /// outsiders, so that one that takes all it can leaves room for others.
    pub(crate) fn has_room_from(&self, address: IpAddr) -> bool {
        let most = (self.room(Kind::Peer) / 4).max(PER_ADDRESS);
        self.lock().from.get(&address).is_none_or(|n| *n < most)
    }

    /// Gives a new connection its number and mailbox.
    ///
    /// # Errors
    /// When there is no room, the run is over, or there is no file descriptor left.
    pub(crate) fn admit(&self, kind: Kind, from: Option<IpAddr>) -> io::Result<Arc<Mailbox>> {
        let mut slots = self.lock();
        if slots.closed {
            return Err(io::Error::other("this site is stopping"));
        }
        let room = self.room(kind);
        if slots.live >= room {
            return Err(io::Error::other(format!("{room} connections are the limit")));
        }
        let next = u32::try_from(slots.entries.len()).unwrap_or(u32::MAX);
        let slot = slots.free.last().copied().unwrap_or(next);
        let generation = slots.generation.wrapping_add(1);
        let mailbox = Arc::new(Mailbox::new(ConnId { slot, generation })?);
        slots.generation = generation;
        slots.live += 1;
        if slots.free.pop().is_none() {
            slots.entries.push(None);
        }
        if let Some(entry) = slots.entries.get_mut(slot as usize) {
            *entry = Some((mailbox.clone(), from));
        }
        if let Some(from) = from {
            *slots.from.entry(from).or_default() += 1;
        }
        Ok(mailbox)
    }

    /// The mailbox of a connection that is still there.
    pub(crate) fn get(&self, conn: ConnId) -> Option<Arc<Mailbox>> {
        let slots = self.lock();
        let (mailbox, _) = slots.entries.get(conn.slot as usize)?.as_ref()?;
        (mailbox.id() == conn).then(|| mailbox.clone())
    }

    /// A connection is gone.
    pub(crate) fn remove(&self, conn: ConnId) {
        let mut slots = self.lock();
        let Some(entry) = slots.entries.get_mut(conn.slot as usize) else { return };
        if let Some((_, from)) = entry.take_if(|(mailbox, _)| mailbox.id() == conn) {
            if let Some(from) = from
                && let Some(count) = slots.from.get_mut(&from)
            {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    slots.from.remove(&from);
                }
            }
            slots.free.push(conn.slot);
            slots.live = slots.live.saturating_sub(1);
            self.gone.notify_all();
        }
    }

    /// How many connections there are.
    pub(crate) fn live(&self) -> usize {
        self.lock().live
    }

    /// Admits nobody any more and asks all to end.
    pub(crate) fn end(&self, how: Ending) {
        let mut slots = self.lock();
        slots.closed = true;
        for (mailbox, _) in slots.entries.iter().flatten() {
            mailbox.end(how);
        }
    }

    /// Waits until nobody is left, for at most `timeout`; whether nobody is.
    pub(crate) fn wait_empty(&self, timeout: Duration) -> bool {
        let slots = self.lock();
        let waited = self.gone.wait_timeout_while(slots, timeout, |slots| slots.live > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.live == 0
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
