//! Content that is damaged or gone here, and may be with a peer: WANT asks for it (DESIGN 3.4). And the
//! other side: content goes back to whoever gave it, and again to whoever got it, never to anybody else.
//!
//! What is offered for a WANT is addressed to the site that offers it: that asks for nothing but to take
//! the content, so nobody relies on it, and a site that does not want it any more just says no.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::accept::{Pending, What};
use super::types::Action;
use super::{Asked, Mode, Node};
use crate::code::Refusal;
use crate::id::{BatchNo, ConnId, SegmentId, Seq, SiteNo, TransferNo};
use crate::ledger::read::{Held, ReadRequest};
use crate::ledger::rows::{DeliveryRow, State};
use crate::segment::Destinations;
use crate::session::{Outcome, Promise, Sending, SessionCommand};
use crate::time::{Instant, Now};
use crate::wire::{Offer, Wanted};

/// Segments that are asked for at a time; any more are found again at the next start.
const MOST: usize = 256;
/// Segments that one peer is asked for at a time.
const AT_ONCE: usize = 16;
/// After so long another is asked, or the same one again, in whatever session.
const AGAIN: Duration = Duration::from_secs(900);

/// A segment whose content is wanted.
#[derive(Clone, Debug)]
struct Wish {
    seq: Seq,
    /// Who may have it, and has not said no: the next one to be asked first.
    from: VecDeque<SiteNo>,
    /// Whom it was asked of: on which connection, under which number.
    asked: Option<(ConnId, TransferNo)>,
    /// When it is asked for again, unless that connection ends before.
    again: Instant,
    /// The batch in which it was put in place.
    mended: Option<BatchNo>,
}

/// Everything that is wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Wants {
    by_id: BTreeMap<SegmentId, Wish>,
    /// Segments of which it is not known yet who may have them.
    unknown: VecDeque<Seq>,
    reading: bool,
}

impl Wants {
    /// The read under way is void.
    pub fn again(&mut self, seqs: Vec<Seq>) {
        self.reading = false;
        self.unknown.extend(seqs);
    }

    /// What was put in place by then is not wanted any more.
    pub fn committed(&mut self, through: BatchNo) {
        self.by_id.retain(|_, wish| wish.mended.is_none_or(|batch| batch > through));
    }

    /// It was not said after all.
    pub fn unsaid(&mut self, conn: ConnId, transfer: TransferNo) {
        for wish in self.by_id.values_mut().filter(|w| w.asked == Some((conn, transfer))) {
            wish.asked = None;
        }
    }

    /// What was put in place in batches that failed is wanted as before.
    pub fn in_vain(&mut self) {
        for wish in self.by_id.values_mut() {
            wish.mended = None;
        }
    }

    /// It was put in place.
    pub fn mended(&mut self, id: &SegmentId, batch: BatchNo) {
        if let Some(wish) = self.by_id.get_mut(id) {
            wish.mended = Some(batch);
        }
    }

    /// It is not wanted any more.
    pub fn forget(&mut self, id: &SegmentId) {
        self.by_id.remove(id);
    }
}

impl Node {
    /// The content of this segment is not there: somebody else may have it.
    pub(super) fn want(&mut self, seq: Seq) {
        if self.wants.by_id.len() + self.wants.unknown.len() < MOST {
            self.wants.unknown.push_back(seq);
        }
    }

    fn may_want(&self) -> bool {
        matches!(self.mode, Mode::Normal) && !self.stopping
    }

    /// Finds out who may have what is wanted, and asks those who are there.
    pub(super) fn ask_wants(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.may_want() {
            return;
        }
        if !self.wants.reading && !self.wants.unknown.is_empty() {
            self.wants.reading = true;
            let seqs: Vec<Seq> = core::mem::take(&mut self.wants.unknown).into();
            self.ask(Asked::Wants(seqs.clone()), ReadRequest::Held(seqs), out);
        }
        let ids: Vec<SegmentId> = self.wants.by_id.keys().copied().collect();
        for id in ids {
            self.ask_one(now, id);
        }
    }

    fn ask_one(&mut self, now: Now, id: SegmentId) {
        let Some(wish) = self.wants.by_id.get(&id) else { return };
        if wish.mended.is_some() || self.is_asked(wish, now.mono) {
            return;
        }
        let idle = |site: &SiteNo| {
            let conn = self.ready_session(*site)?;
            (self.asked_of(conn, now.mono) < AT_ONCE).then_some((*site, conn))
        };
        let live = wish.from.iter().find_map(idle);
        let Some((site, conn)) = live else { return };
        let Some(session) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) else { return };
        let transfer = TransferNo(session.next_transfer);
        session.next_transfer = session.next_transfer.saturating_add(1);
        if let Some(wish) = self.wants.by_id.get_mut(&id) {
            wish.asked = Some((conn, transfer));
            wish.again = now.mono.after(AGAIN);
            // Next time it is somebody else's turn.
            wish.from.retain(|from| *from != site);
            wish.from.push_back(site);
        }
        let what = Wanted::Segment(id);
        // It rests on nothing, and is said in the order of its number, so after claims that are staged.
        self.promise(conn, Promise::Want { transfer, what }, None, None);
    }

    /// What this connection is asked for, and may still give.
    fn asked_of(&self, conn: ConnId, at: Instant) -> usize {
        let of =
            |wish: &&Wish| wish.asked.is_some_and(|(asked, _)| asked == conn) && at < wish.again;
        self.wants.by_id.values().filter(of).count()
    }

    /// Whether somebody is asked who may still answer.
    fn is_asked(&self, wish: &Wish, at: Instant) -> bool {
        wish.asked.is_some_and(|(conn, _)| self.conns.contains_key(&conn)) && at < wish.again
    }

    /// When something is asked for again that was not given.
    pub(super) fn wants_deadline(&self) -> Option<Instant> {
        if !self.may_want() {
            return None;
        }
        let open = self.wants.by_id.values().filter(|w| w.mended.is_none());
        open.filter(|w| self.is_asked(w, self.now.mono)).map(|w| w.again).min()
    }

    fn ready_session(&self, site: SiteNo) -> Option<ConnId> {
        let conn = self.peers.get(&site)?.session?;
        let session = self.conns.get(&conn)?.peer.as_ref()?;
        session.ready.is_some().then_some(conn)
    }

    /// Who gave it, and who got it.
    pub(super) fn wants_read(&mut self, held: Vec<Option<Held>>) {
        self.wants.reading = false;
        self.more = true;
        for held in held.into_iter().flatten() {
            let row = self.book.segment(held.seq).unwrap_or(&held.row);
            if row.loss.is_none() || self.book.is_gone(held.seq) {
                continue;
            }
            let (id, giver) = (row.id, SiteNo(row.from));
            let got = held.deliveries.iter().filter_map(|(site, row)| taker(*site, row));
            let mut from: VecDeque<SiteNo> = VecDeque::new();
            for site in core::iter::once(giver).chain(got) {
                if site != SiteNo(0) && !from.contains(&site) {
                    from.push_back(site);
                }
            }
            if !from.is_empty() {
                let (asked, again, mended) = (None, Instant::ZERO, None);
                self.wants.by_id.insert(id, Wish { seq: held.seq, from, asked, again, mended });
            }
        }
    }

    /// The end of a transfer that is no attempt: if it is a WANT that was refused for good, whoever
    /// refused it is not asked again. Other refusals wait for [`AGAIN`].
    pub(super) fn want_answered(&mut self, conn: ConnId, transfer: TransferNo, outcome: &Outcome) {
        let Outcome::Rejected { code, .. } = outcome else { return };
        let asked = |wish: &Wish| wish.asked == Some((conn, transfer));
        let Some(id) = self.wants.by_id.iter().find(|(_, w)| asked(w)).map(|(id, _)| *id) else {
            return;
        };
        if Refusal::from_number(*code) == Some(Refusal::Unknown) {
            self.not_from(id, conn);
        }
    }

    /// What this connection sends for it is not it, or it has nothing: another is asked.
    pub(super) fn not_from(&mut self, id: SegmentId, conn: ConnId) {
        let site = self.conns.get(&conn).and_then(|c| c.peer.as_ref()).map(|p| p.site);
        let Some(wish) = self.wants.by_id.get_mut(&id) else { return };
        if wish.asked.is_none_or(|(asked, _)| asked != conn) {
            return;
        }
        wish.asked = None;
        wish.from.retain(|from| Some(*from) != site);
        if wish.from.is_empty() {
            self.wants.by_id.remove(&id);
        }
        self.more = true;
    }

    /// Whether this is an offer for a WANT: it asks for nothing but to take the content.
    pub(super) fn is_repair(&self, pending: &Pending) -> bool {
        let (What::Offer(offer, _) | What::Received(offer, _)) = &pending.what else {
            return false;
        };
        let source = self.peers.get(&pending.source).map(|peer| peer.name.as_str());
        match (&offer.to, source) {
            (Destinations::Named(names), Some(source)) => {
                matches!(&names[..], [only] if only == source)
            }
            _ => false,
        }
    }

    /// Which segment the peer was asked for that offers this.
    pub(super) fn wished(&self, conn: ConnId, id: &SegmentId) -> Option<Seq> {
        let wish = self.wants.by_id.get(id).filter(|wish| wish.mended.is_none())?;
        wish.asked.is_some_and(|(asked, _)| asked == conn).then_some(wish.seq)
    }

    /// Somebody wants content.
    pub(super) fn wanted(
        &mut self,
        conn: ConnId,
        transfer: TransferNo,
        what: Wanted,
        out: &mut Vec<Action>,
    ) {
        if !self.may_want() {
            return self.not_given(conn, transfer, what, Refusal::Busy, out);
        }
        self.ask(Asked::Wanted(conn, transfer, what), ReadRequest::Wanted(what), out);
    }

    pub(super) fn wanted_read(
        &mut self,
        (conn, transfer, what): (ConnId, TransferNo, Wanted),
        held: Vec<Option<Held>>,
        as_of: BatchNo,
        out: &mut Vec<Action>,
    ) {
        let Some(session) = self.conns.get(&conn).and_then(|c| c.peer.as_ref()) else { return };
        let site = session.site;
        let Some(held) = held.into_iter().flatten().find(|held| self.may_have(site, held, as_of))
        else {
            return self.not_given(conn, transfer, what, Refusal::Unknown, out);
        };
        let row = self.book.segment(held.seq).cloned().unwrap_or(held.row);
        let Some(own) = Destinations::named([self.config.name.clone()].into()) else { return };
        let Some(session) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) else { return };
        let number = TransferNo(session.next_transfer);
        session.next_transfer = session.next_transfer.saturating_add(1);
        // It gets back what it had, whoever's accept that was.
        let offer = Offer { to: own, ..self.offer(&[], held.seq, number, &row) };
        let sending = Box::new(Sending { seq: held.seq, offer, body: row.body });
        let refusal = refused(transfer, what, Refusal::Busy);
        self.promise(conn, Promise::Send(sending), Some(refusal), Some(held.seq));
    }

    /// Whether this site may have that content of us: it gave it, or it has got it.
    fn may_have(&self, site: SiteNo, held: &Held, as_of: BatchNo) -> bool {
        if self.book.is_gone(held.seq) {
            return false;
        }
        let row = self.book.segment(held.seq).unwrap_or(&held.row);
        let newer = self.peers.keys().filter_map(|to| {
            let row = self.book.delivery(*to, held.seq, as_of)?;
            Some((*to, row))
        });
        let newer: BTreeMap<SiteNo, Option<&DeliveryRow>> = newer.collect();
        let read = held.deliveries.iter().map(|(to, row)| (*to, row));
        let read = read.filter(|(to, _)| !newer.contains_key(to));
        let now = newer.iter().filter_map(|(to, row)| Some((*to, (*row)?)));
        let got = |(to, row)| taker(to, row) == Some(site);
        row.loss.is_none() && (row.from == site.0 || read.chain(now).any(got))
    }

    /// The peer gets nothing for its WANT.
    pub(super) fn not_given(
        &mut self,
        conn: ConnId,
        transfer: TransferNo,
        what: Wanted,
        refusal: Refusal,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::Command(conn, refused(transfer, what, refusal)));
    }
}

/// Who has taken the content of this delivery over, if anybody has.
fn taker(site: SiteNo, row: &DeliveryRow) -> Option<SiteNo> {
    match row.custody {
        Some(hop) => Some(SiteNo(hop)),
        None => (row.state == State::Acked).then_some(site),
    }
}

fn refused(transfer: TransferNo, what: Wanted, refusal: Refusal) -> SessionCommand {
    let id = match what {
        Wanted::Segment(id) => id,
        Wanted::Blob(digest) => SegmentId(digest.0),
    };
    let (retry_after, text) = match refusal {
        Refusal::Busy => (1_000, "nothing is given out for repairs now"),
        Refusal::Quota
        | Refusal::DiskFull
        | Refusal::TooLarge
        | Refusal::Expired
        | Refusal::Invalid
        | Refusal::NotAddressed
        | Refusal::Mismatch
        | Refusal::AlreadyRelayed
        | Refusal::Unknown
        | Refusal::UnknownDestination => (0, "this site has nothing of it for you"),
    };
    SessionCommand::Refuse { transfer, id, refusal, retry_after, text: text.into() }
}
