//! Whatever is staged, paged and answered in whatever order: everything is told, never too much at once,
//! and only an answer to what was said last counts.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::Passing;
use crate::id::{BlobDigest, SegmentId, Seq, SiteNo};
use crate::ledger::rows_upkeep::ReceiptRow;

const MOST: usize = 4;

fn id(seq: u8) -> SegmentId {
    SegmentId([seq; 32])
}

fn row(seq: u8) -> ReceiptRow {
    ReceiptRow {
        id: id(seq),
        site: String::new(),
        when: 0,
        cause: 0,
        back: 1,
        pending: true,
        name: String::new(),
        size: 0,
        digest: BlobDigest([0; 32]),
        expires_at: 0,
        more: Vec::new(),
    }
}

/// A ledger with its `pass_back` keys, and a peer that answers in order.
#[derive(Default)]
struct World {
    passing: Passing,
    keys: BTreeSet<u8>,
    /// Pages under way: what they found, and whether that was all.
    page: Option<(Vec<u8>, bool)>,
    said: VecDeque<u8>,
    heard: BTreeSet<u8>,
}

impl World {
    fn new() -> World {
        let mut world = World::default();
        world.passing.start_over();
        world
    }

    fn tell(&mut self, seq: u8) {
        if self.passing.tell(Seq(seq.into()), SiteNo(1), &row(seq), MOST) {
            self.said.push_back(seq);
        }
        let open: BTreeSet<u8> = self.said.iter().copied().collect();
        assert!(open.len() <= MOST, "{open:?} are open");
    }

    fn stage(&mut self, seq: u8) {
        self.keys.insert(seq);
        self.heard.remove(&seq);
        self.tell(seq);
    }

    fn ask(&mut self) {
        let Some((after, limit)) = self.passing.wants_page(MOST) else { return };
        assert!(self.page.is_none(), "one page at a time");
        let behind =
            self.keys.iter().filter(|k| after.is_none_or(|a| (Seq((**k).into()), SiteNo(1)) > a));
        let rows: Vec<u8> = behind.copied().collect();
        let page: Vec<u8> = rows.iter().copied().take(limit).collect();
        let end = page.len() == rows.len();
        self.page = Some((page, end));
    }

    fn read(&mut self) {
        let Some((rows, end)) = self.page.take() else { return };
        let last = rows.last().map(|seq| (Seq((*seq).into()), SiteNo(1)));
        self.passing.page_read(last, end);
        for seq in rows {
            if self.keys.contains(&seq) && !self.passing.is_open(id(seq), SiteNo(1)) {
                self.tell(seq);
            }
        }
    }

    fn answer(&mut self, later: bool) {
        let Some(seq) = self.said.pop_front() else { return };
        let answered = self.passing.answered(id(seq), SiteNo(1));
        assert_eq!(answered.is_none(), self.said.contains(&seq), "the last answer counts");
        if answered.is_some() {
            self.heard.insert(seq);
            if !later {
                self.keys.remove(&seq);
            }
        }
    }
}

quickcheck! {
    fn everything_is_told(ops: Vec<(u8, u8)>) -> bool {
        let mut world = World::new();
        for (op, seq) in ops {
            match op % 8 {
                0..=2 => world.stage(seq % 16),
                3 => world.ask(),
                4 => world.read(),
                5 => world.answer(true),
                6 => world.answer(false),
                // A batch failed: everything is read again, the page under way is void.
                _ if op % 64 == 7 => {
                    world.passing.start_over();
                    world.page = None;
                }
                _ => world.ask(),
            }
        }
        for _ in 0..100 {
            world.ask();
            world.read();
            world.answer(true);
        }
        let all: BTreeSet<u8> = world.keys.difference(&world.heard).copied().collect();
        world.said.is_empty() && all.is_empty()
    }
}
