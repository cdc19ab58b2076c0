//! What an act reads, and what it keeps of it until it is staged.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Doing;
use crate::act::{Act, Action, IdPrefix, Left, Selection, Why};
use crate::id::{BatchNo, SegmentId, Seq, SiteNo};
use crate::ledger::keys::DeadKey;
use crate::ledger::read::Held;
use crate::ledger::read_acts::{Cursor, Named, Pick, Picked, Row};
use crate::ledger::rows::{DeliveryRow, Loss, SegmentRow, State};
use crate::limits::{ACT_BYTES, ACT_PAGE, ACT_ROWS};
use crate::node::Node;
use crate::segment::{Class, Destinations};
use crate::time::{Now, UnixMillis};

/// Segments, or ids, of one page: each may have many deliveries.
const PAGE_SEGMENTS: usize = 128;

/// Where the next page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The ids of the selection, from this one on.
    Named(usize),
    /// Dead letters behind this one.
    Dead(Option<DeadKey>),
    /// Segments behind this one.
    Segments(Option<Seq>),
    /// What a peer is owed, behind this segment; then its dead letters.
    Owed(Option<Seq>),
    /// There is no more.
    End,
}

impl Source {
    pub fn first(act: &Act) -> Source {
        if act.action == Action::Forget {
            Source::Owed(None)
        } else if !act.of.ids.is_empty() {
            Source::Named(0)
        } else if matches!(act.action, Action::Retry | Action::Purge) {
            Source::Dead(None)
        } else {
            Source::Segments(None)
        }
    }
}

/// One thing to change.
#[derive(Clone, Debug)]
pub(super) enum Unit {
    /// A dead letter to be queued again: all that this takes.
    Lean(Lean),
    /// A delivery to be removed.
    Row(Box<Row>),
    /// A segment with its deliveries.
    Segment(Box<Held>),
}

/// What a retry needs of a delivery and its segment.
#[derive(Clone, Debug)]
pub(super) struct Lean {
    pub seq: Seq,
    pub site: SiteNo,
    pub row: DeliveryRow,
    pub id: SegmentId,
    pub size: u64,
    pub class: Class,
    pub lost: bool,
    pub expires: Option<UnixMillis>,
    pub held: bool,
}

impl Lean {
    pub fn new(seq: Seq, site: SiteNo, row: DeliveryRow, segment: &SegmentRow) -> Lean {
        Lean {
            seq,
            site,
            row,
            id: segment.id,
            size: segment.size,
            class: segment.meta.class,
            lost: segment.loss == Some(Loss::Gone),
            expires: segment.meta.expires(),
            held: segment.held,
        }
    }
}

impl Unit {
    /// Bytes that changing it writes at most.
    pub fn weight(&self) -> usize {
        /// Keys and rows of one delivery in every table.
        const DELIVERY: usize = 280;
        match self {
            Unit::Lean(_) => DELIVERY,
            Unit::Row(row) => DELIVERY + weight(&row.segment),
            Unit::Segment(held) => weight(&held.row) + held.deliveries.len() * DELIVERY,
        }
    }
}

/// Bytes of a segment's row at most.
fn weight(row: &SegmentRow) -> usize {
    let texts = [&row.meta.name, &row.meta.content_type, &row.origin];
    let labels: usize = row.meta.labels.iter().map(|(k, v)| k.len() + v.len() + 8).sum();
    let to: usize = match &row.to {
        Destinations::All => 0,
        Destinations::Named(names) => names.iter().map(|name| name.len() + 4).sum(),
    };
    300 + texts.iter().map(|text| text.len()).sum::<usize>() + labels + to
}

impl Doing {
    /// The next page, if there is one.
    pub(super) fn next_pick(&self) -> Option<Pick> {
        match self.source {
            Source::Named(from) => {
                let rest = self.act.of.ids.get(from..).unwrap_or_default();
                let page = rest.get(..PAGE_SEGMENTS).unwrap_or(rest);
                (!page.is_empty()).then(|| Pick::Named(page.to_vec()))
            }
            Source::Dead(after) => Some(Pick::Dead { after, only: self.only, limit: ACT_PAGE }),
            Source::Segments(after) => Some(Pick::Segments { after, limit: PAGE_SEGMENTS }),
            Source::Owed(after) => {
                let peer = self.only.peer?;
                Some(Pick::Owed { peer, after, limit: ACT_PAGE })
            }
            Source::End => None,
        }
    }

    /// How many of the gathered units go into the next commit, and what they write.
    pub(super) fn next_commit(&self) -> (usize, usize) {
        let (mut units, mut bytes) = (0, 0);
        for unit in self.units.iter().take(ACT_ROWS) {
            let more = bytes + unit.weight();
            if units > 0 && more > ACT_BYTES {
                break;
            }
            (units, bytes) = (units + 1, more);
        }
        (units, bytes)
    }

    fn gather(&mut self, unit: Unit) {
        self.weight += unit.weight();
        self.units.push_back(unit);
    }

    pub(super) fn leave(&mut self, id: &SegmentId, peer: &str, why: Why, text: String) {
        let (id, peer) = (id.to_string(), peer.to_string());
        self.report.leave(Left { id, peer, why, text });
    }
}

impl Node {
    /// Takes a page: what is wanted of it is gathered, or for a dry run judged at once.
    pub(super) fn take_page(&mut self, now: Now, doing: &mut Doing, picked: Picked) {
        match picked {
            Picked::Rows { rows, next } => {
                doing.source = match (next, doing.source) {
                    (Some(Cursor::Dead(key)), _) => Source::Dead(Some(key)),
                    (Some(Cursor::Seq(seq)), _) => Source::Owed(Some(seq)),
                    (None, Source::Owed(_)) => Source::Dead(None),
                    (None, _) => Source::End,
                };
                for row in rows {
                    self.take_row(now, doing, row);
                }
            }
            Picked::Segments { held, next } => {
                doing.source = next.map_or(Source::End, |seq| Source::Segments(Some(seq)));
                for held in held {
                    if self.is_selected(&held, &doing.act.of, doing.only.until) {
                        self.take_unit(now, doing, Unit::Segment(Box::new(held)));
                    }
                }
            }
            Picked::Named(named) => {
                let Source::Named(from) = doing.source else { return };
                doing.source = Source::Named(from + named.len());
                let asked: Vec<IdPrefix> =
                    doing.act.of.ids.iter().skip(from).take(named.len()).copied().collect();
                for (prefix, named) in asked.iter().zip(named) {
                    self.take_named(now, doing, prefix, named);
                }
            }
        }
    }

    fn take_row(&mut self, now: Now, doing: &mut Doing, row: Row) {
        let unit = if doing.act.action == Action::Retry {
            Unit::Lean(Lean::new(row.seq, row.site, row.delivery, &row.segment))
        } else {
            Unit::Row(Box::new(row))
        };
        self.take_unit(now, doing, unit);
    }

    fn take_unit(&mut self, now: Now, doing: &mut Doing, unit: Unit) {
        if doing.act.dry_run {
            self.would(now, doing, unit);
        } else {
            doing.gather(unit);
        }
    }

    /// Judges a unit without changing anything.
    fn would(&mut self, now: Now, doing: &mut Doing, unit: Unit) {
        match unit {
            Unit::Lean(lean) => {
                if let Some(lean) = self.may_retry(now, doing, lean) {
                    let peer = self.name_of(lean.site);
                    doing.report.add(&peer, lean.size);
                }
            }
            Unit::Row(row) => {
                if self.may_strike(doing, &row).is_some() {
                    let peer = self.name_of(row.site);
                    doing.report.add(&peer, row.segment.size);
                }
            }
            Unit::Segment(held) => {
                if let Some((segment, _)) = self.may_change(doing, *held) {
                    doing.report.add("", segment.size);
                }
            }
        }
    }

    fn take_named(&mut self, now: Now, doing: &mut Doing, prefix: &IdPrefix, named: Named) {
        let leave = |why, text: &str| Left {
            id: prefix.to_string(),
            peer: String::new(),
            why,
            text: text.to_string(),
        };
        match named {
            Named::Missing => {
                let left = leave(Why::Unknown, "no segment has an id that begins so");
                doing.report.leave(left);
            }
            Named::Ambiguous(ids) => {
                let short: Vec<String> = ids.iter().map(SegmentId::short).collect();
                let text = alloc::format!("several segments begin so: {}", short.join(", "));
                doing.report.leave(leave(Why::Ambiguous, &text));
            }
            Named::Found(found) => {
                let dead = matches!(doing.act.action, Action::Retry | Action::Purge);
                for held in found {
                    if dead {
                        self.take_dead(now, doing, held);
                    } else if self.is_selected(&held, &doing.act.of, doing.only.until) {
                        self.take_unit(now, doing, Unit::Segment(Box::new(held)));
                    }
                }
            }
        }
    }

    /// The dead letters of a segment that was named.
    fn take_dead(&mut self, now: Now, doing: &mut Doing, held: Held) {
        let (segment, deliveries) = self.current(&held);
        let mut any = false;
        for (site, delivery) in &deliveries {
            let row = delivery;
            let at = UnixMillis(row.since);
            if row.state == State::Deadletter && doing.only.has(at, *site, row.last_error) {
                any = true;
                let (seq, site) = (held.seq, *site);
                let (segment, delivery) = (segment.clone(), delivery.clone());
                self.take_row(now, doing, Row { seq, site, segment, delivery });
            }
        }
        if any {
            return;
        }
        let wanted = |site: &SiteNo| doing.only.peer.is_none_or(|peer| peer == *site);
        let found = deliveries.iter().find(|(site, _)| wanted(site));
        let (peer, text) = match found {
            Some((_, row)) if row.state == State::Deadletter => {
                (String::new(), "a dead letter, but not one of those asked for".to_string())
            }
            Some((site, row)) => {
                let word = word(row, now.wall);
                (self.name_of(*site), alloc::format!("not a dead letter ({word})"))
            }
            None => (String::new(), "not a dead letter".to_string()),
        };
        doing.leave(&segment.id, &peer, Why::NotDead, text);
    }

    /// Whether a segment is meant that was not named, or was named with more said about it.
    fn is_selected(&self, held: &Held, of: &Selection, until: UnixMillis) -> bool {
        let site = of.peer.as_ref().and_then(|name| self.sites.get(name));
        let (segment, deliveries) = self.current(held);
        UnixMillis(segment.accepted_at) <= until
            && site.is_none_or(|site| {
                deliveries.get(site).is_some_and(|row| row.state != State::Acked)
            })
            && of.reason.is_none_or(|cause| {
                let number = cause.number();
                deliveries.values().any(|r| r.state == State::Deadletter && r.last_error == number)
            })
    }

    /// A segment and its deliveries with everything that is staged.
    pub(super) fn current(&self, held: &Held) -> (SegmentRow, BTreeMap<SiteNo, DeliveryRow>) {
        let segment = self.book.segment(held.seq).unwrap_or(&held.row).clone();
        let mut deliveries: BTreeMap<SiteNo, DeliveryRow> =
            held.deliveries.iter().cloned().collect();
        for site in self.peers.keys() {
            match self.newest(*site, held.seq) {
                Some(Some(newer)) => {
                    deliveries.insert(*site, newer.clone());
                }
                Some(None) => {
                    deliveries.remove(site);
                }
                None => {}
            }
        }
        (segment, deliveries)
    }

    /// A delivery as it is staged, if it changed since the reads of this act were asked.
    pub(super) fn newest(&self, site: SiteNo, seq: Seq) -> Option<Option<&DeliveryRow>> {
        // An entry of the overlay is the newest state there is, however old the reading.
        self.book.delivery(site, seq, BatchNo(0))
    }

    pub(in crate::node) fn name_of(&self, site: SiteNo) -> String {
        self.peers.get(&site).map_or_else(|| alloc::format!("site-{site}"), |p| p.name.clone())
    }
}

/// What people call the state of a delivery.
pub(super) fn word(row: &DeliveryRow, now: UnixMillis) -> &'static str {
    match row.state {
        State::Acked => "delivered",
        State::Deadletter => "dead",
        State::Inflight => "sending",
        State::Scheduled | State::Failed if row.held == Some(true) => "held",
        State::Failed if row.next_attempt_after > now.0 => "backing off",
        State::Scheduled | State::Failed => "queued",
    }
}
