//! What the node keeps of a peer: its windows, what is in flight to it, and how it has been answering.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::id::{BatchNo, ConnId, Epoch, SegmentId, Seq, SiteNo, TransferNo};
use crate::ledger::keys::DueKey;
use crate::ledger::rows::DeliveryRow;
use crate::limits::{CLASSES, SESSION_BEGINS, SESSION_INFLIGHT};
use crate::schedule::{Backoff, Contact, Shares, jitter_key};
use crate::segment::Class;
use crate::time::{Instant, Now, UnixMillis};

use super::tally::PeerTallied;
use super::window::Window;

/// A claimed delivery.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// Its row, Inflight.
    pub row: DeliveryRow,
    /// The session that has it.
    pub conn: ConnId,
    /// Its number there.
    pub transfer: TransferNo,
    /// That session's epoch.
    pub epoch: Epoch,
    /// The batch of the claim.
    pub batch: BatchNo,
    /// Content bytes handed to the kernel.
    pub sent: u64,
    /// The accept number at its origin that was offered: an answer to an older one settles nothing
    /// (R2).
    pub number: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub site: SiteNo,
    pub name: String,
    /// The name, for notes, which share it.
    pub label: Arc<str>,
    /// Where to dial; empty when it is no longer known.
    pub address: String,
    pub known: bool,
    /// The known peer that hands on to it, if there is a route.
    pub via: Option<SiteNo>,
    pub held: bool,
    /// The fingerprint it is bound to; empty when it is bound to none.
    pub pin: Vec<u8>,
    /// Its configured pin is another one: no session before an operator says so.
    pub rekey: bool,
    /// Nothing is owed to it any more, by an operator's word.
    pub forgotten: bool,
    pub windows: [Window; CLASSES],
    pub shares: Shares,
    pub flights: BTreeMap<Seq, Flight>,
    /// The live session.
    pub session: Option<ConnId>,
    /// Whether a dial is under way.
    pub dialling: bool,
    /// What jitter of dials is drawn from: differs between the two sides of a pair, so that they do not
    /// meet half-way again and again.
    pub pair: String,
    /// Most content bytes sent to it per second.
    pub rate: Option<u64>,
    /// When it is sent to.
    pub contact: Contact,
    /// Claims its session may have in flight by now.
    pub trust: usize,
    /// Dials or sessions that failed in a row.
    pub failures: u64,
    /// No dial before this.
    pub dial_at: Instant,
    /// Nobody answered the last dial, or the session that was up was cut.
    pub unanswered: bool,
    /// No claim before this: the peer has refused too often for want of space.
    pub claim_at: Instant,
    /// `quota` and `disk_full` refusals in a row without an ACK between.
    pub full_streak: u32,
    pub last_error: String,
    /// When that was, if it was in this run.
    pub erred_at: Option<UnixMillis>,
    /// When its last session that was ready ended; `None` when it has had none since the start.
    pub down_since: Option<UnixMillis>,
    pub last_acked: Option<UnixMillis>,
    /// What is counted of it.
    pub tallied: PeerTallied,
}

impl Peer {
    /// A peer that nothing is known of, with windows of so many entries.
    pub fn new(site: SiteNo, name: String, window: usize) -> Peer {
        Peer {
            site,
            label: name.as_str().into(),
            name,
            address: String::new(),
            known: false,
            via: None,
            held: false,
            pin: Vec::new(),
            rekey: false,
            forgotten: false,
            windows: core::array::from_fn(|_| Window::new(window)),
            shares: Shares::default(),
            flights: BTreeMap::new(),
            session: None,
            dialling: false,
            pair: String::new(),
            rate: None,
            contact: Contact::default(),
            trust: SESSION_BEGINS,
            failures: 0,
            dial_at: Instant::ZERO,
            unanswered: false,
            claim_at: Instant::ZERO,
            full_streak: 0,
            last_error: String::new(),
            erred_at: None,
            down_since: None,
            last_acked: None,
            tallied: PeerTallied::default(),
        }
    }

    /// The peer whose session serves it: itself, or the hop on its route.
    pub fn hop(&self) -> SiteNo {
        self.via.unwrap_or(self.site)
    }

    pub fn window(&mut self, class: Class) -> &mut Window {
        let [urgent, high, normal, bulk] = &mut self.windows;
        match class {
            Class::Urgent => urgent,
            Class::High => high,
            Class::Normal => normal,
            Class::Bulk => bulk,
        }
    }

    /// The class whose turn it is, if anything is due that there is room for.
    fn due_class(&self, now: UnixMillis, has_room: impl Fn(Class, Seq) -> bool) -> Option<Class> {
        self.shares.pick(|class| {
            let first = self.windows.get(class as usize).and_then(Window::first);
            first.is_some_and(|(key, _)| key.at <= now && has_room(class, key.seq))
        })
    }

    /// What is to be claimed next, if anything is due that there is room for.
    pub fn pop_due(
        &mut self,
        now: UnixMillis,
        has_room: impl Fn(Class, Seq) -> bool,
    ) -> Option<(Class, DueKey, DeliveryRow)> {
        let class = self.due_class(now, has_room)?;
        let (key, row) = self.window(class).pop()?;
        Some((class, key, row))
    }

    /// A session begins.
    pub fn begins(&mut self, conn: ConnId) {
        self.session = Some(conn);
        self.trust = SESSION_BEGINS;
    }

    /// It has answered an offer: it may have one more.
    pub fn answered(&mut self) {
        self.trust = self.trust.saturating_add(1).min(SESSION_INFLIGHT);
    }

    /// What was accepted first of all that is due (planted).
    pub fn pop_oldest(&mut self, now: UnixMillis) -> Option<(Class, DueKey, DeliveryRow)> {
        let due = self.windows.iter().flat_map(|w| w.entries()).filter(|(key, _)| key.at <= now);
        let key = due.map(|(key, _)| *key).min_by_key(|key| key.seq)?;
        let row = self.window(key.class).remove(&key)?;
        Some((key.class, key, row))
    }

    /// When its first waiting delivery is due.
    pub fn next_due(&self) -> Option<UnixMillis> {
        self.windows.iter().filter_map(|w| w.first()).map(|(key, _)| key.at).min()
    }

    /// Jitter of its `nth` wait in a row.
    fn jitter(&self, nth: u64) -> u64 {
        jitter_key(&SegmentId([0; 32]), &self.pair, nth)
    }

    /// A dial or a session went wrong: wait longer each time.
    pub fn backs_off(&mut self, now: Now, backoff: Backoff, why: String) {
        self.failures = self.failures.saturating_add(1);
        let key = self.jitter(self.failures);
        self.dial_at = now.mono.after(backoff.delay(self.failures, key));
        self.errs(now, why);
    }

    /// Something went wrong with it, in words for people.
    pub fn errs(&mut self, now: Now, why: String) {
        self.last_error = why;
        self.erred_at = Some(now.wall);
    }

    /// It is not there, and something waits for it: not later than `most` from now. A look costs
    /// next to nothing, and what waits is to arrive when the peer is back, not when a long wait ends.
    pub fn hurries(&mut self, now: Now, most: Duration) {
        if !self.held && self.session.is_none() {
            self.dial_at = self.dial_at.min(self.soon(now, most));
        }
    }

    /// Whether [`Peer::hurries`] could change anything: not with this time, nor with a longer one.
    pub fn may_hurry(&self, now: Now, least: Duration) -> bool {
        self.unanswered && self.dial_at > self.soon(now, least)
    }

    /// Between half of `most` and all of it from now.
    fn soon(&self, now: Now, most: Duration) -> Instant {
        let key = self.jitter(self.failures) % 256;
        let early = most / 512 * u32::try_from(key).unwrap_or(0);
        now.mono.after(most - early)
    }

    /// A sign of life ends the backoff.
    pub fn is_alive(&mut self) {
        self.failures = 0;
        self.unanswered = false;
        self.dial_at = Instant::ZERO;
    }

    /// It refused for want of space; eight times in a row also hold back everything else.
    pub fn refused_full(&mut self, now: Now, backoff: Backoff, asked: Duration) {
        self.full_streak = self.full_streak.saturating_add(1);
        if self.full_streak >= 8 {
            let round = u64::from(self.full_streak / 8);
            let wait = backoff.delay(round, self.jitter(round));
            self.claim_at = now.mono.after(wait.max(asked));
        }
    }

    /// It took something.
    pub fn acked(&mut self, now: Now) {
        self.full_streak = 0;
        self.claim_at = Instant::ZERO;
        self.last_acked = Some(now.wall);
    }
}
