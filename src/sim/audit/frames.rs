//! Frames that leave and arrive: what an offer, an acknowledgement and a refusal may rest on.

use consign_core::code::Refusal;
use consign_core::config::Config;
use consign_core::id::{ConnId, Epoch, SegmentId, Seq, SiteNo, TransferNo};
use consign_core::ledger::rows::MetaName;
use consign_core::segment::{Destinations, Meta};
use consign_core::wire::{Frame, Kind, Offer, ReceiptOutcome, WITHDRAWN};

use super::Desk;
use super::rules::{hop, wanted};
use super::site::{Answer, Asked, Holds};
use super::story::Event;
use super::violation::{Check, broken, demand};
use crate::sim::seen::SiteIx;

/// Refusals after which the other side gives up: a segment that is held gets none of them.
const FINAL: [Refusal; 4] =
    [Refusal::TooLarge, Refusal::Expired, Refusal::Invalid, Refusal::NotAddressed];

impl Desk<'_> {
    pub(super) fn sent(&mut self, peer: SiteIx, conn: ConnId, frame: &Frame<'_>) -> Check {
        self.world.taps = true;
        demand(self.site.life.running, "I30", None, || "it sends, and does not run".into())?;
        match frame {
            Frame::Hello(hello) => self.hello_sent(conn, hello.epoch),
            Frame::Offer(offer, _) => self.offer_sent(peer, conn, offer),
            Frame::Ack { transfer, id, epoch } => {
                self.tell_frame(id, Kind::Ack, true, peer, *transfer, 0);
                self.ack_sent(peer, conn, *transfer, id, *epoch)
            }
            Frame::Accept { transfer, id, offset } => {
                self.tell_frame(id, Kind::Accept, true, peer, *transfer, 0);
                self.accept_sent(peer, conn, *transfer, id, *offset)
            }
            Frame::Reject { transfer, id, code, .. } => {
                self.tell_frame(id, Kind::Reject, true, peer, *transfer, *code);
                if *code == Refusal::AlreadyRelayed.number() {
                    self.memory_said(peer, conn, *transfer, id)?;
                }
                if *code < WITHDRAWN {
                    return self.reject_sent(peer, conn, *transfer, id, *code);
                }
                Ok(())
            }
            Frame::Receipt(receipt) => {
                self.tell_frame(&receipt.id, Kind::Receipt, true, peer, TransferNo(0), 0);
                self.receipt_sent(peer, receipt)
            }
            Frame::ReceiptOk { id, site, later: false } => {
                self.tell_frame(id, Kind::ReceiptOk, true, peer, TransferNo(0), 0);
                self.receipt_confirmed(peer, *id, site)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn arrived(&mut self, peer: SiteIx, conn: ConnId, frame: &Frame<'_>) -> Check {
        match frame {
            Frame::Hello(hello) => {
                self.site.links.get(conn).theirs = Some(hello.epoch);
            }
            Frame::Offer(offer, _) => {
                let (id, digest, to) = (offer.id, offer.digest, offer.to.clone());
                let held = self.site.holds(&id) == Holds::Yes;
                let doubted = self.site.doubts(&id);
                let (origin, origin_seq) = (offer.origin.clone(), offer.origin_seq);
                let at = self.at;
                let asked = Asked { id, digest, to, origin, origin_seq, held, doubted, at };
                self.site.links.get(conn).asked.insert(offer.transfer, asked);
                self.tell_frame(&offer.id, Kind::Offer, false, peer, offer.transfer, 0);
            }
            Frame::Want { what, .. } => drop(self.site.links.get(conn).wants.insert(*what)),
            Frame::Ack { transfer, id, epoch } => {
                self.tell_frame(id, Kind::Ack, false, peer, *transfer, 0);
                self.answered(conn, *transfer, Some((*id, *epoch)), Answer::Ack);
            }
            Frame::Receipt(receipt) => {
                let cause = match receipt.outcome {
                    ReceiptOutcome::Delivered => 0,
                    ReceiptOutcome::Failed(cause) => cause.max(1),
                };
                let heard = (receipt.id, receipt.site.clone(), peer, cause);
                self.site.heard.insert(heard);
                self.tell_frame(&receipt.id, Kind::Receipt, false, peer, TransferNo(0), 0);
            }
            // An offer that is taken back may have been answered already, and the answer not written yet.
            Frame::Reject { transfer, id, code: WITHDRAWN, .. } => {
                self.tell_frame(id, Kind::Reject, false, peer, *transfer, WITHDRAWN);
            }
            Frame::Reject { transfer, id, code, retry_after, .. } => {
                self.tell_frame(id, Kind::Reject, false, peer, *transfer, *code);
                let answer = Answer::Reject { code: *code, retry_after: *retry_after };
                self.answered(conn, *transfer, None, answer);
            }
            _ => {}
        }
        Ok(())
    }

    /// An answer to an attempt. Only the first in the session that claimed it says anything.
    fn answered(
        &mut self,
        conn: ConnId,
        transfer: TransferNo,
        ack: Option<(SegmentId, Epoch)>,
        answer: Answer,
    ) {
        let wall = self.site.clock.now.wall.0;
        let link = self.site.links.get(conn);
        let mine = link.mine;
        let Some((seq, sites)) = link.out.get(&transfer).cloned() else { return };
        let id = self.site.id(seq);
        for no in sites {
            let Some(claim) = self.site.claims.get_mut(&(no, seq)) else { continue };
            let this = claim.offered.is_some_and(|(c, t, _)| (c, t) == (conn, transfer));
            if !this || claim.answer.is_some() || mine != Some(claim.epoch) {
                continue;
            }
            let answer = match ack {
                Some((_, epoch)) if epoch != claim.epoch => return,
                Some((segment, _)) if Some(segment) != id => Answer::Other,
                Some(_) | None => answer,
            };
            claim.answer = Some((answer, wall));
        }
    }

    /// HELLO: its boot is on disk, its session's number is new.
    fn hello_sent(&mut self, conn: ConnId, epoch: Epoch) -> Check {
        let boot = self.site.disk.meta(MetaName::Boot);
        let running = self.site.life.boot;
        demand(epoch.boot == running && boot == running, "I8", None, || {
            format!("HELLO of epoch {epoch} in boot {running}, on disk is boot {boot}")
        })?;
        let new = self.site.life.said.insert(epoch.session);
        demand(new, "I8", None, || format!("epoch {epoch} is said twice"))?;
        let link = self.site.links.get(conn);
        demand(link.mine.is_none(), "I8", None, || format!("HELLO twice on connection {conn}"))?;
        link.mine = Some(epoch);
        Ok(())
    }

    /// OFFER: for a durable claim of this session, once.
    fn offer_sent(&mut self, peer: SiteIx, conn: ConnId, offer: &Offer) -> Check {
        self.tell_frame(&offer.id, Kind::Offer, true, peer, offer.transfer, 0);
        self.world.totals.offers += 1;
        let name = self.name_of(peer);
        let id = Some(offer.id);
        let epoch = self.site.links.get(conn).mine;
        let Some(epoch) = epoch else {
            return Err(broken("I8", id, format!("it is offered to {name} before HELLO")));
        };
        if offer.to == Destinations::Named(vec![self.site.config.name.clone()]) {
            return self.repair_sent(peer, conn, offer);
        }
        // `*` is for the peer itself, a name for whoever is behind it.
        let sites: Vec<String> = match &offer.to {
            Destinations::All => vec![name.clone()],
            Destinations::Named(names) => names.clone(),
        };
        let mono = self.site.clock.now.mono;
        let born = self.site.links.get(conn).born;
        let mut out = (Seq(0), Vec::new());
        for to in &sites {
            let Some((no, seq)) = self.claimed_for(to, &offer.id, epoch) else {
                // What was let go in a session that the node has ended may leave it after that, even if
                // the segment is gone meanwhile: whatever comes of it changes nothing.
                if self.site.life.live.get(&name) != Some(&epoch) {
                    return Ok(());
                }
                let text =
                    format!("it is offered to {name} for {to} in {epoch}, for no claim on disk");
                return Err(broken("I7", id, text));
            };
            // A session ends with the configuration that knows its peer.
            let mut rules = self.site.rules_since(born);
            let by_way = rules.any(|config| hop(config, to) == Some(name.as_str()));
            drop(rules);
            demand(by_way, "I11", id, || {
                format!("it is offered to {name}, which is no way to {to}")
            })?;
            let claim = self.site.claims.get_mut(&(no, seq));
            if let Some(claim) =
                claim.filter(|claim| claim.epoch == epoch && claim.offered.is_none())
            {
                claim.offered = Some((conn, offer.transfer, mono));
            }
            out.0 = seq;
            out.1.push(no);
        }
        let seq = out.0;
        self.site.links.get(conn).out.insert(offer.transfer, out);
        if offer.origin == self.site.config.name {
            self.world.stories.vouched(self.ix, &offer.id);
        }
        self.same_segment(seq, &name, offer)
    }

    /// The claim of a session that an offer is for; each is offered once. Once in a while two numbers bear
    /// one identity, when the first has lost its content.
    fn claimed_for(&mut self, name: &str, id: &SegmentId, epoch: Epoch) -> Option<(SiteNo, Seq)> {
        let site = &mut *self.site;
        let no = site.disk.number_of(name)?;
        let newest = site.newest.get(id).copied();
        let newest = newest.filter(|seq| site.unsaid.contains_key(&(epoch.session, no, *seq)));
        let seq = newest.or_else(|| {
            let from = (epoch.session, no, Seq(0));
            let of_session = site.unsaid.range(from..=(epoch.session, no, Seq(u64::MAX)));
            of_session.map(|((.., seq), _)| *seq).find(|seq| site.id(*seq) == Some(*id))
        })?;
        let key = (epoch.session, no, seq);
        let left = site.unsaid.get(&key).copied().unwrap_or(0).saturating_sub(1);
        if left == 0 {
            site.unsaid.remove(&key)
        } else {
            site.unsaid.insert(key, left)
        };
        Some((no, seq))
    }

    pub(super) fn same_segment(&self, seq: Seq, name: &str, offer: &Offer) -> Check {
        let Some(row) = self.site.disk.segments.get(&seq) else { return Ok(()) };
        let own = &self.site.config.name;
        let is = |origin: &str, number: u64, hops: u8| {
            let here = origin.is_empty() || vouches(offer, own, name, origin);
            let number = if here && (number == 0 || !origin.is_empty()) { seq.0 } else { number };
            let origin = if here { own.as_str() } else { origin };
            (offer.origin.as_str(), offer.origin_seq, offer.hops)
                == (origin, number, hops.saturating_add(1))
        };
        // It may have been accepted anew since it was claimed.
        let mut former = self.site.former.iter().filter(|(of, ..)| *of == seq);
        let same = (offer.digest, offer.size) == (row.digest, row.size)
            && Meta { expires_at: None, ..offer.meta.clone() }
                == Meta { expires_at: None, ..row.meta.clone() }
            && (is(&row.origin, row.origin_seq, row.hops)
                || former.any(|(_, origin, number, hops)| is(origin, *number, *hops)));
        demand(same, "I11", Some(offer.id), || {
            format!("it is offered to {name} as {offer:?}, and kept as {row:?}")
        })
    }

    /// ACK: the other side may forget its copy from now on.
    fn ack_sent(
        &mut self,
        peer: SiteIx,
        conn: ConnId,
        transfer: TransferNo,
        id: &SegmentId,
        epoch: Epoch,
    ) -> Check {
        let name = self.name_of(peer);
        let link = self.site.links.get(conn);
        let theirs = link.theirs;
        let let_go = link.let_go.contains(&(transfer, *id));
        let asked = link.asked.remove(&transfer).filter(|asked| asked.id == *id);
        let Some(asked) = asked else {
            let text = format!("it is acknowledged to {name}, which did not offer it there");
            return Err(broken("I8", Some(*id), text));
        };
        demand(theirs == Some(epoch), "I8", Some(*id), || {
            format!("it is acknowledged to {name} in epoch {epoch}, the session's is {theirs:?}")
        })?;
        self.world.acks.insert((self.ix, peer, *id, epoch));
        let own = &self.site.config.name;
        let for_it = asked.to.addresses(own);
        let here = for_it && asked.origin != *own;
        let doubted = asked.doubted.filter(|body| self.site.doubts(id) == Some(*body));
        demand(doubted.is_none(), "I1", Some(*id), || {
            format!("it is acknowledged to {name}, and what is kept of it was doubted before")
        })?;
        match self.site.holds(id) {
            Holds::Yes => {}
            Holds::Harmed => {
                // It came to harm before anybody could know, and may be mended by another's copy.
                if for_it {
                    self.world.held.insert((*id, self.ix));
                }
                return Ok(());
            }
            // What is gone from here has arrived wherever it is asked for, as receipts here say.
            Holds::No(_) if let_go || self.has_receipts(id, &asked.to) => return Ok(()),
            Holds::No(why) => {
                let text = format!("it is acknowledged to {name}, and {why}");
                return Err(broken("I1", Some(*id), text));
            }
        }
        let disk = &self.site.disk;
        let Some((seq, row)) = disk.ids.get(id).and_then(|s| Some((*s, disk.segments.get(s)?)))
        else {
            return Ok(());
        };
        demand(row.here || !here, "I1", Some(*id), || {
            format!("it is acknowledged to {name}, and is not kept for this site itself")
        })?;
        if here {
            self.site.addressed.insert(seq);
        }
        // What began here is here, also when somebody else sends it.
        if for_it {
            self.world.held.insert((*id, self.ix));
        }
        // It was decided by what held at some time since the offer came.
        let owes = |config: &Config| self.owes(config, seq, &asked.to, &name, &asked.origin);
        let by = self.site.rules_since(asked.at).find(|config| owes(config).is_ok());
        let by = by.unwrap_or(&self.site.config);
        let judged = owes(by);
        let names = wanted(by, &asked.to, &name, &asked.origin);
        let names: Vec<String> = names.into_iter().map(String::from).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // A copy that came since, in the same batch too, is not what this answer speaks of.
        let of_this = |name: &&str| {
            let no = self.site.disk.number_of(name);
            no.is_some_and(|no| self.site.disk.deliveries.contains_key(&(seq, no)))
        };
        if !names.iter().any(of_this) && self.has_receipts(id, &asked.to) {
            return Ok(());
        }
        self.promises(*id, &names);
        judged
    }

    /// The node lets an ACK go: from here on the other side may forget its copy, and what is let go is not
    /// pinned any more (G1).
    pub(super) fn ack_let_go(
        &mut self,
        conn: ConnId,
        transfer: TransferNo,
        id: &SegmentId,
    ) -> Check {
        let link = self.site.links.get(conn);
        let to = link.asked.get(&transfer).map(|asked| asked.to.clone());
        link.let_go.insert((transfer, *id));
        let Holds::No(why) = self.site.holds(id) else { return Ok(()) };
        let settled = to.is_none_or(|to| self.has_receipts(id, &to));
        demand(settled || !self.world.taps, "I1", Some(*id), || {
            format!("an ACK of it is let go, and {why}")
        })
    }

    fn has_receipts(&self, id: &SegmentId, to: &Destinations) -> bool {
        let Destinations::Named(names) = to else { return false };
        let receipts = &self.site.disk.receipts;
        let of = |name: &String| receipts.values().any(|row| row.id == *id && row.site == *name);
        names.iter().all(of)
    }

    /// ACCEPT: a row says that content comes, and not from further on than it is durable.
    fn accept_sent(
        &mut self,
        peer: SiteIx,
        conn: ConnId,
        transfer: TransferNo,
        id: &SegmentId,
        offset: u64,
    ) -> Check {
        let name = self.name_of(peer);
        let digest = self.site.links.get(conn).asked.get(&transfer).map(|a| a.digest);
        let no = self.site.disk.number_of(&name);
        // A session that is over may still write what it has to say.
        let durable = digest.zip(no).and_then(|key| self.site.reached.get(&key)).copied();
        demand(durable.is_some(), "I16", Some(*id), || {
            format!("its content is asked of {name}, and no row on disk says so")
        })?;
        demand(durable.is_some_and(|durable| offset <= durable), "I26", Some(*id), || {
            format!("its content is asked of {name} from {offset} on, {durable:?} is on disk")
        })
    }

    /// REJECT: a segment that is held is not refused for good.
    fn reject_sent(
        &mut self,
        peer: SiteIx,
        conn: ConnId,
        transfer: TransferNo,
        id: &SegmentId,
        code: u8,
    ) -> Check {
        let name = self.name_of(peer);
        let asked = self.site.links.get(conn).asked.remove(&transfer);
        let asks = asked.clone();
        let refusal = Refusal::from_number(code).filter(|refusal| FINAL.contains(refusal));
        let seq = self.site.disk.ids.get(id).or_else(|| self.site.newest.get(id));
        let row = seq.and_then(|seq| self.site.disk.segments.get(seq));
        let held = asked.zip(row).is_some_and(|(asked, row)| {
            asked.held && asked.digest == row.digest && self.site.content(row) == Holds::Yes
        });
        // Who asks for a site that this one cannot serve is told so, whatever is held.
        let unserved = refusal == Some(Refusal::NotAddressed)
            && asks.is_some_and(|asked| {
                let own = &self.site.config.name;
                let mut rules = self.site.rules_since(asked.at);
                rules.any(|config| {
                    let served = wanted(config, &asked.to, &name, &asked.origin);
                    let bad = |n: &String| n != own && !served.contains(&n.as_str());
                    matches!(&asked.to, Destinations::Named(names) if names.iter().any(bad))
                })
            });
        // What is over goes, and may be on disk for a moment longer.
        let end = row.and_then(|row| row.meta.expires());
        let over = refusal == Some(Refusal::Expired)
            && end.is_some_and(|end| end <= self.site.clock.now.wall);
        demand(!held || unserved || over || refusal.is_none(), "I25", Some(*id), || {
            format!("{name} offers it again and is refused for good: {refusal:?}")
        })
    }

    /// `already_relayed`: it is remembered, and the offer is not of a later accept than that (R2); or it
    /// is here and still on its way, so that it has come round.
    fn memory_said(
        &mut self,
        peer: SiteIx,
        conn: ConnId,
        transfer: TransferNo,
        id: &SegmentId,
    ) -> Check {
        let name = self.name_of(peer);
        let Some(asked) = self.site.links.get(conn).asked.get(&transfer).cloned() else {
            return Ok(());
        };
        let own = &self.site.config.name;
        let known = self.site.recalled.get(id);
        let past = known.is_some_and(|known| {
            known.iter().any(|(origin, number)| {
                let origin = if origin.is_empty() { own } else { origin };
                *origin == asked.origin && asked.origin_seq <= *number
            })
        });
        // It may have gone its way since that was decided.
        let here = asked.held || self.site.newest.contains_key(id);
        let round = here && (asked.origin == *own || !asked.to.addresses(own));
        demand(past || round, "I9", Some(*id), || {
            let (origin, number) = (&asked.origin, asked.origin_seq);
            format!(
                "{name} is told it was here before: {origin}, number {number}; known is {known:?}"
            )
        })
    }

    fn tell_frame(
        &mut self,
        id: &SegmentId,
        kind: Kind,
        sent: bool,
        peer: SiteIx,
        transfer: TransferNo,
        code: u8,
    ) {
        self.tell(id, Event::Frame { kind, sent, peer, transfer, code });
    }
}

/// Whether a site stands for an accept that met a copy from `origin` there: it offers to that origin,
/// which nobody owes its own accept.
fn vouches(offer: &Offer, own: &str, to: &str, origin: &str) -> bool {
    origin != own
        && match &offer.to {
            Destinations::All => to == origin,
            Destinations::Named(names) => names.iter().any(|name| name == origin),
        }
}
