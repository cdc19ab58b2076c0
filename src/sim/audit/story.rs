//! What is known of each segment across all sites: who handed it in, and what happened to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use consign_core::code::{Cause, Refusal};
use consign_core::id::{BlobDigest, SegmentId, Seq, SiteNo, TransferNo};
use consign_core::ledger::rows::State;
use consign_core::wire::Kind;

use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// Lines of a story that are shown.
const SHOWN: usize = 20;
/// Lines of one segment that are kept; the older half goes when there are more.
const KEPT: usize = 2 * SHOWN;
/// Lines about whole sites that are kept.
const KEPT_OF_SITES: usize = 64;

/// What a local client handed in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    pub digest: BlobDigest,
    pub size: u64,
}

/// Something that happened to a segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Submitted,
    Queued,
    Refused(&'static str),
    /// A row for it is durable; the peer it came from, 0 for a local client.
    Kept(Seq, SiteNo),
    /// Its row is gone.
    Removed(Seq),
    /// Nothing is promised on the strength of what is kept any more.
    Distrusted,
    /// A delivery is durable in this state.
    Moved {
        peer: SiteNo,
        from: Option<State>,
        to: Option<State>,
        attempts: u64,
        spent: u32,
        cause: u8,
    },
    /// A frame about it was sent to or came from another site.
    Frame {
        kind: Kind,
        sent: bool,
        peer: SiteIx,
        transfer: TransferNo,
        code: u8,
    },
}

#[derive(Clone, Copy, Debug)]
struct Line {
    at: Micros,
    site: SiteIx,
    event: Event,
}

/// One segment.
#[derive(Debug, Default)]
struct Item {
    name: String,
    handed: Option<Handed>,
    /// Every site at which it was handed in, or that stands for another one's accept.
    origins: BTreeSet<SiteIx>,
    lines: Vec<Line>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Stories {
    items: BTreeMap<SegmentId, Item>,
    /// What happened to whole sites.
    sites: VecDeque<(Micros, SiteIx, String)>,
}

impl Stories {
    /// A local client hands in a segment: the first time says what it is.
    pub fn handed_in(&mut self, at: SiteIx, id: SegmentId, name: &str, handed: Handed) {
        let item = self.items.entry(id).or_default();
        item.origins.insert(at);
        if item.handed.is_none() {
            item.handed = Some(handed);
            item.name = name.to_string();
        }
    }

    /// A site offers it as its own accept: it stands for another one that it cannot name.
    pub fn vouched(&mut self, at: SiteIx, id: &SegmentId) {
        if let Some(item) = self.items.get_mut(id) {
            item.origins.insert(at);
        }
    }

    /// What was handed in under this identity, anywhere.
    pub fn handed(&self, id: &SegmentId) -> Option<Handed> {
        self.items.get(id)?.handed
    }

    /// The sites at which a local client handed it in or that stand for such a one: one of them is the
    /// origin of every offer of it.
    pub fn origins(&self, id: &SegmentId) -> impl Iterator<Item = SiteIx> + '_ {
        self.items.get(id).into_iter().flat_map(|item| item.origins.iter().copied())
    }

    /// Its name; empty when it is not known.
    pub fn name(&self, id: &SegmentId) -> &str {
        self.items.get(id).map_or("", |item| &item.name)
    }

    /// Writes down what happened to a segment.
    pub fn tell(&mut self, at: Micros, site: SiteIx, id: &SegmentId, event: Event) {
        let item = self.items.entry(*id).or_default();
        if item.lines.len() >= KEPT {
            item.lines.drain(..KEPT - SHOWN);
        }
        item.lines.push(Line { at, site, event });
    }

    /// Writes down what happened to a site.
    pub fn tell_of_site(&mut self, at: Micros, site: SiteIx, what: String) {
        if self.sites.len() >= KEPT_OF_SITES {
            self.sites.pop_front();
        }
        self.sites.push_back((at, site, what));
    }

    /// The last lines about a segment, with what happened to sites between them.
    pub fn of(
        &self,
        id: Option<&SegmentId>,
        site: impl Fn(SiteIx) -> String,
        peer: impl Fn(SiteIx, SiteNo) -> String,
    ) -> Vec<String> {
        let lines = id.and_then(|id| self.items.get(id)).map(|item| item.lines.as_slice());
        let lines = lines.unwrap_or_default();
        let of_segment = lines.iter().map(|line| {
            let who = |no| peer(line.site, no);
            (line.at, line.site, words(&line.event, &who, &site))
        });
        let of_sites = self.sites.iter().map(|(at, ix, what)| (*at, *ix, what.clone()));
        let mut all: Vec<_> = of_sites.chain(of_segment).collect();
        all.sort_by_key(|(at, ..)| *at);
        let from = all.len().saturating_sub(SHOWN);
        all.drain(from..).map(|(at, ix, what)| format!("{at} {}: {what}", site(ix))).collect()
    }
}

fn words(
    event: &Event,
    peer: &dyn Fn(SiteNo) -> String,
    site: &dyn Fn(SiteIx) -> String,
) -> String {
    match event {
        Event::Submitted => "a local client hands it in".to_string(),
        Event::Queued => "the local client is told that it is safe".to_string(),
        Event::Refused(code) => format!("the local client is told no: {code}"),
        Event::Kept(seq, SiteNo(0)) => format!("kept as number {seq}"),
        Event::Kept(seq, from) => format!("kept as number {seq}, from {}", peer(*from)),
        Event::Removed(seq) => format!("number {seq} is removed"),
        Event::Distrusted => "what is kept of it is not trusted any more".to_string(),
        Event::Moved { peer: no, from, to, attempts, spent, cause } => {
            let state = |s: &Option<State>| s.map_or("nothing".to_string(), |s| format!("{s:?}"));
            let why = Cause::from_number(*cause).map_or(String::new(), |c| format!(", {c}"));
            let peer = peer(*no);
            let (from, to) = (state(from), state(to));
            format!("for {peer}: {from} to {to}, attempts {attempts}, spent {spent}{why}")
        }
        Event::Frame { kind, sent, peer, transfer, code } => {
            let way = if *sent { "to" } else { "from" };
            let why = Refusal::from_number(*code).map_or(String::new(), |c| format!(" ({c})"));
            format!("{kind}{why} {way} {}, transfer {transfer}", site(*peer))
        }
    }
}
