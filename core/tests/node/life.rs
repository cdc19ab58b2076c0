//! Random lives: slow and failing commits, answers that come late, sessions that come and go, kills.
//! At the end, with everything healthy, each segment has been delivered and every count adds up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::id::{ConnId, SegmentId, TransferNo};
use consign_core::ledger::Table;
use consign_core::ledger::rows::State;
use consign_core::node::Input;
use consign_core::segment::Class;
use consign_core::session::{Outcome, Promise, SessionCommand};
use consign_core::store::CommitFault;

use crate::site::{Site, config};

/// A small generator of our own (SplitMix64), so that a seed means the same for ever.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const PEERS: [&str; 3] = ["beta", "gamma", "omega"];

#[derive(Default)]
struct Life {
    sessions: BTreeMap<&'static str, ConnId>,
    /// What the peers were sent and have not answered.
    open: VecDeque<(&'static str, ConnId, TransferNo, SegmentId)>,
    /// What each peer holds durably.
    held: BTreeSet<(&'static str, SegmentId)>,
    queued: BTreeSet<SegmentId>,
    accepted: BTreeSet<SegmentId>,
}

impl Life {
    fn hear(&mut self, site: &mut Site) {
        for (conn, command) in site.told.drain(..).collect::<Vec<_>>() {
            let SessionCommand::Promised(promised) = command else { continue };
            match promised.into_inner() {
                Promise::Start { .. } => {
                    let name = self.sessions.iter().find(|(_, c)| **c == conn).map(|(n, _)| *n);
                    if let Some(name) = name {
                        site.hello(conn, name);
                    }
                }
                Promise::Send(sending) => {
                    let (name, _) = self.sessions.iter().find(|(_, c)| **c == conn).unwrap();
                    let again = self.held.contains(&(*name, sending.offer.id));
                    let open = self.open.iter().any(|o| o.0 == *name && o.3 == sending.offer.id);
                    assert!(!open, "in flight twice to {name}");
                    if again {
                        let row = site.delivery(sending.offer.id, name).unwrap();
                        assert_eq!(row.state, State::Inflight);
                    }
                    self.open.push_back((*name, conn, sending.offer.transfer, sending.offer.id));
                }
                Promise::Accepted { accepted, .. } => {
                    self.accepted.insert(accepted.id);
                }
                Promise::Ack { .. }
                | Promise::Accept { .. }
                | Promise::Receipt(_)
                | Promise::ReceiptOk { .. }
                | Promise::Want { .. }
                | Promise::Pickup(_)
                | Promise::Done { .. } => {}
            }
        }
    }

    fn cut(&mut self, site: &mut Site, name: &'static str) {
        if let Some(conn) = self.sessions.remove(name) {
            self.open.retain(|o| o.1 != conn);
            site.input(Input::Closed { conn, why: "reset".into() });
        }
    }

    fn answer(&mut self, site: &mut Site, rng: &mut Rng, healthy: bool) {
        if self.open.is_empty() {
            return;
        }
        let pick = rng.below(self.open.len() as u64) as usize;
        let (name, conn, transfer, id) = self.open.remove(pick).unwrap();
        let outcome = match rng.below(10) {
            _ if healthy => Outcome::Acked,
            0 => Site::rejected(Refusal::Busy),
            1 => Outcome::AckTimeout,
            2 => Site::rejected(Refusal::Quota),
            _ => Outcome::Acked,
        };
        if outcome == Outcome::Acked {
            self.held.insert((name, id));
        }
        site.outcome(conn, transfer, outcome);
    }
}

fn live(seed: u64, steps: usize) {
    let mut rng = Rng(seed);
    let mut life = Life::default();
    let mut site =
        Site::with(consign_core::config::Config { max_retries: 1_000_000, ..config(&PEERS) });
    for step in 0..steps {
        let peer = PEERS[rng.below(3) as usize];
        match rng.below(20) {
            0..=6 => {
                let client = site.client();
                let class = Class::ALL[rng.below(4) as usize];
                let to = if rng.below(2) == 0 { &["*"][..] } else { &[peer][..] };
                let count = 1 + rng.below(40) as u32;
                for ticket in 1..=count {
                    let id = site.submit(client, ticket, &format!("s{step}-{ticket}"), to, class);
                    life.queued.insert(id);
                }
            }
            7 => {
                life.cut(&mut site, peer);
                let conn = site.connect(peer, true);
                life.sessions.insert(peer, conn);
            }
            8 => life.cut(&mut site, peer),
            9 => site.commit(),
            10 | 11 => {
                if rng.below(4) == 0 && site.has_batch() {
                    site.store.fail_commit(1, CommitFault::Full("full".into()));
                }
                site.commit();
            }
            12 if rng.below(10) == 0 => {
                site = site.restart();
                life.sessions.clear();
                life.open.clear();
                site.told.clear();
            }
            12 => site.now.mono = site.now.mono.after(Duration::from_millis(rng.below(3_000))),
            _ => life.answer(&mut site, &mut rng, false),
        }
        site.turn();
        life.hear(&mut site);
        if let Some(why) = &site.halted {
            panic!("halted: {why}");
        }
        let (_, windows, _) = site.pump.node().footprint();
        assert!(windows <= 3 * 4 * consign_core::limits::WINDOW);
    }
    heal(&mut site, &mut life, &mut rng);
    for id in &life.accepted {
        assert!(site.segment(*id).is_some(), "{id:?} was accepted and is gone");
    }
    assert!(life.accepted.is_subset(&life.queued));
}

/// Everything is healthy from now on: all that is owed must be delivered.
fn heal(site: &mut Site, life: &mut Life, rng: &mut Rng) {
    site.settle();
    life.hear(site);
    for name in PEERS {
        life.cut(site, name);
        let conn = site.connect(name, true);
        life.sessions.insert(name, conn);
    }
    for _ in 0..2_000 {
        site.settle();
        life.hear(site);
        while !life.open.is_empty() {
            life.answer(site, rng, true);
        }
        if site.store.rows(Table::Owed) == 0 {
            break;
        }
        if !site.has_inputs() {
            // No longer than a session lives.
            site.now.wall = site.now.wall.after(Duration::from_secs(30));
            site.now.mono = site.now.mono.after(Duration::from_millis(30));
            site.input(Input::Timer);
        }
    }
    site.settle();
    site.audit();
    assert_eq!(site.store.rows(Table::Owed), 0, "still owed");
    assert_eq!(site.store.rows(Table::Due), 0);
    assert_eq!(site.store.rows(Table::Unmet), 0);
    assert_eq!(site.store.parked(), 0, "parked bodies left");
    let (book, windows, promises) = site.pump.node().footprint();
    assert_eq!((book, windows, promises), (0, 0, 0), "left in memory");
}

#[test]
fn random_lives_end_well() {
    for seed in 0..20 {
        println!("seed {seed}");
        live(seed, 400);
    }
}

#[test]
fn a_backlog_much_longer_than_a_window_is_paged_without_gap_or_ghost() {
    for seed in 100..102 {
        let mut rng = Rng(seed);
        let mut life = Life::default();
        let mut site = Site::with(config(&PEERS));
        for round in 0..80 {
            let client = site.client();
            for ticket in 1..=50 {
                let id = site.submit(
                    client,
                    ticket,
                    &format!("r{round}-{ticket}"),
                    &["beta"],
                    Class::Normal,
                );
                life.queued.insert(id);
            }
            site.turn();
            site.turn();
            if rng.below(3) > 0 {
                site.commit();
            }
            if round == 30 {
                let conn = site.connect("beta", true);
                life.sessions.insert("beta", conn);
            }
            life.hear(&mut site);
            for _ in 0..rng.below(40) {
                life.answer(&mut site, &mut rng, true);
            }
        }
        heal(&mut site, &mut life, &mut rng);
        assert_eq!(life.held.len(), 4_000);
    }
}
