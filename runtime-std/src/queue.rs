//! What passes between threads: the node's inbox and every connection's mailbox.
//!
//! Neither has a length limit of its own; both are bounded by credit. What a session can put into the
//! node's inbox is at most [`EVENTS_MAX`] events and those of one more read: above that its socket is
//! not read until the node has caught up. What can lie in a mailbox is what the session asked for: the
//! node answers what it was told, and the store what it was asked. A push never blocks and wakes the
//! other side only when that waits for it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consign_core::id::ConnId;
use consign_core::node::{Input, Note};
use consign_core::session::SessionCommand;
use consign_core::store::StoreEvent;

use crate::wake::Wake;

/// Events of one connection that may wait for the node before its socket is left unread.
pub(crate) const EVENTS_MAX: usize = 1_024;

/// Something for a connection.
#[derive(Debug)]
pub(crate) enum Mail {
    /// The node's word.
    Command(SessionCommand),
    /// The store's answer.
    Store(StoreEvent),
}

/// How far a connection is to be ended from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// Not at all.
    #[default]
    No,
    /// With a goodbye.
    Stop,
    /// At once.
    Cut,
}

#[derive(Debug, Default)]
struct Letters {
    mail: Vec<Mail>,
    ending: Ending,
    /// Something changed besides the mail.
    nudged: bool,
    /// The connection waits, or is about to.
    parked: bool,
}

/// Where a connection gets its mail.
#[derive(Debug)]
pub(crate) struct Mailbox {
    id: ConnId,
    inner: Mutex<Letters>,
    wake: Wake,
    events: AtomicUsize,
}

impl Mailbox {
    pub(crate) fn new(id: ConnId) -> io::Result<Mailbox> {
        let (inner, events) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Mailbox { id, inner, wake: Wake::new()?, events })
    }

    /// Whose it is.
    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    /// What to poll while parked.
    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Delivers.
    pub(crate) fn push(&self, mail: impl IntoIterator<Item = Mail>) {
        self.change(|inner| inner.mail.extend(mail));
    }

    /// Asks the connection to end.
    pub(crate) fn end(&self, how: Ending) {
        self.change(|inner| {
            inner.ending = inner.ending.max(how);
            inner.nudged = true;
        });
    }

    /// Wakes the connection to look at something else than mail.
    pub(crate) fn nudge(&self) {
        self.change(|inner| inner.nudged = true);
    }

    fn change(&self, change: impl FnOnce(&mut Letters)) {
        let mut inner = self.lock();
        change(&mut inner);
        let wake = std::mem::take(&mut inner.parked);
        drop(inner);
        if wake {
            self.wake.wake();
        }
    }

    /// Empties it, and says whether to end.
    pub(crate) fn take(&self) -> (Vec<Mail>, Ending) {
        let mut inner = self.lock();
        inner.nudged = false;
        (std::mem::take(&mut inner.mail), inner.ending)
    }

    /// Says that the connection is about to wait; `false` when it must not, for there is mail.
    pub(crate) fn park(&self) -> bool {
        let mut inner = self.lock();
        inner.parked = inner.mail.is_empty() && !inner.nudged;
        inner.parked
    }

    /// Says that the connection waits no longer.
    pub(crate) fn unpark(&self, woken: bool) {
        self.lock().parked = false;
        if woken {
            self.wake.clear();
        }
    }

    /// Whether so many of the connection's events wait for the node that it should not make more.
    pub(crate) fn is_crowded(&self) -> bool {
        self.events.load(Ordering::Acquire) >= EVENTS_MAX
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands for events of a connection on their way to the node; dropped when the node has taken them.
#[derive(Debug)]
pub(crate) struct Ticket {
    mailbox: Arc<Mailbox>,
    events: usize,
}

impl Ticket {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, events: usize) -> Ticket {
        mailbox.events.fetch_add(events, Ordering::AcqRel);
        Ticket { mailbox: mailbox.clone(), events }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let before = self.mailbox.events.fetch_sub(self.events, Ordering::AcqRel);
        let after = before.saturating_sub(self.events);
        if before >= EVENTS_MAX && after < EVENTS_MAX {
            self.mailbox.nudge();
        }
    }
}

/// Something for the node's thread.
#[derive(Debug)]
pub(crate) enum Entry {
    /// For the node; the ticket is given back with it.
    Input(Input, Option<Ticket>),
    /// For whoever watches.
    Note(Note),
    /// Drain and stop.
    Stop,
    /// Take a turn, so that it can be seen that there are turns.
    Pulse,
}

#[derive(Debug, Default)]
struct Inbox {
    entries: VecDeque<Entry>,
    waiting: bool,
    closed: bool,
}

/// Where the node gets its inputs.
#[derive(Debug, Default)]
pub(crate) struct NodeInbox {
    inner: Mutex<Inbox>,
    ready: Condvar,
}

impl NodeInbox {
    /// Adds entries in order. Drops them once the inbox is closed.
    pub(crate) fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut inner = self.lock();
        if inner.closed {
            return;
        }
        inner.entries.extend(entries);
        let wake = !inner.entries.is_empty() && std::mem::take(&mut inner.waiting);
        drop(inner);
        if wake {
            self.ready.notify_one();
        }
    }

    /// Moves everything behind `entries`, waiting for at most `timeout` (`None` is for ever) when
    /// there is nothing in either.
    pub(crate) fn take(&self, entries: &mut VecDeque<Entry>, timeout: Option<Duration>) {
        let mut inner = self.lock();
        if inner.entries.is_empty() && entries.is_empty() && timeout != Some(Duration::ZERO) {
            inner.waiting = true;
            inner = match timeout {
                None => self.ready.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.ready.wait_timeout(inner, timeout);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            inner.waiting = false;
        }
        if entries.is_empty() {
            std::mem::swap(entries, &mut inner.entries);
        } else {
            entries.append(&mut inner.entries);
        }
    }

    /// Takes no more.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let dropped = std::mem::take(&mut inner.entries);
        // Tickets nudge mailboxes: not under this lock.
        drop(inner);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
