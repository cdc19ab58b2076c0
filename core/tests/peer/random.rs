//! Random workloads in both directions over real sessions: small and large content, random pieces
//! on the wire, slow stores and nodes, refusals, changing allowances, cut connections. Whatever
//! the order, everything arrives as it was, every attempt ends once, and received content stays
//! within the allowance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::id::{BlobNo, Handle, SegmentId, TransferNo};
use consign_core::limits::CHECKPOINT_EVERY;
use consign_core::session::{
    Broken, Outcome, Promise, Session, SessionCommand, SessionEvent, SessionInput,
};

use crate::world::{Site, Stepped, World, content, epoch, offer};

const SEEDS: u64 = 32;
const SENDS: u64 = 24;

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

#[derive(Clone, Copy)]
enum Task {
    Ack { transfer: TransferNo, id: SegmentId, parked: Option<Handle> },
    Accept { transfer: TransferNo, seed: u64 },
    Refuse { transfer: TransferNo, parked: Option<Handle> },
}

/// What a node would know of content that is not whole yet.
#[derive(Clone, Default)]
struct Partial {
    blob: u64,
    offset: u64,
    chain: Vec<u8>,
}

/// A stub of a node at one end.
#[derive(Default)]
struct Brain {
    ready: bool,
    last: u32,
    /// What is to be delivered: seed → size and whether it rides.
    owed: BTreeMap<u64, (u64, bool)>,
    /// Attempts under way: transfer → seed.
    inflight: BTreeMap<TransferNo, u64>,
    acked: BTreeSet<u64>,
    tasks: Vec<Task>,
    offered: BTreeMap<TransferNo, (u64, u64, SegmentId)>,
    partials: BTreeMap<u64, Partial>,
    blobs: u64,
    holds: BTreeSet<u64>,
    allowance: u64,
    /// Most that was ever allowed in this session.
    high: u64,
    /// Answers that are overdue on purpose: the attempt may be taken back meanwhile.
    refused: u64,
}

struct Run {
    rng: Rng,
    world: World,
    every: u64,
    /// Whether allowances change: a session must come to its end without that too.
    resizes: bool,
    brains: [Brain; 2],
    cuts: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng(seed);
        // With close checkpoints chunks are cut at them, with far ones when they are full.
        let every = if seed.is_multiple_of(2) { 128 << 10 } else { CHECKPOINT_EVERY };
        let mut run = Run {
            world: World::new(every),
            every,
            resizes: seed % 4 < 2,
            brains: Default::default(),
            cuts: rng.below(3),
            rng: Rng(0),
        };
        for (site, brain) in run.brains.iter_mut().enumerate() {
            for n in 0..SENDS {
                let inline = rng.below(2) == 0;
                let most = if inline { 65_536 } else { 700_000 };
                let size = *[0, 1, most, most / 2, rng.below(most), 1_000]
                    .get(rng.below(6) as usize)
                    .unwrap();
                brain.owed.insert(1 + n + 1_000 * site as u64, (size, inline));
            }
        }
        run.rng = rng;
        run.connect();
        run
    }

    fn connect(&mut self) {
        for site in [0, 1] {
            self.brains[site].allowance = self.allowance();
            self.brains[site].high = self.brains[site].allowance;
            self.step(site, SessionInput::Open);
            let allowance = self.brains[site].allowance;
            self.promise(site, Promise::Start { epoch: epoch(site), allowance });
        }
    }

    /// From the least the protocol knows on.
    fn allowance(&mut self) -> u64 {
        (64 << 10) + [0, 1, 64, 128, 200, 700][self.rng.below(6) as usize] * 1_024
    }

    fn cut(&mut self) {
        for site in [0, 1] {
            self.step(site, SessionInput::Eof);
        }
        let World { sites: [a, b], .. } = World::new(self.every);
        let old = std::mem::replace(&mut self.world.sites, [a, b]);
        for (site, old) in old.into_iter().enumerate() {
            self.world.sites[site].store = old.store;
            self.world.sites[site].store.end();
            let brain = &mut self.brains[site];
            (brain.ready, brain.last) = (false, 0);
            brain.inflight.clear();
            brain.tasks.clear();
            brain.offered.clear();
        }
        self.connect();
    }

    fn step(&mut self, site: usize, input: SessionInput<'_>) {
        let stepped = self.world.sites[site].step(self.world.now, input);
        self.hear(site, stepped);
    }

    fn promise(&mut self, site: usize, promise: Promise) {
        let stepped = self.world.sites[site].promise(self.world.now, promise);
        self.hear(site, stepped);
    }

    fn hear(&mut self, site: usize, stepped: Stepped) {
        for event in stepped.events {
            self.event(site, event);
        }
        let Site { store, .. } = &self.world.sites[site];
        let parked: u64 = store.parked.values().map(|data| data.len() as u64).sum();
        let memory = parked + store.unwritten;
        assert!(memory <= self.brains[site].high, "{memory} B of content in memory");
    }

    fn event(&mut self, site: usize, event: SessionEvent) {
        let late = self.rng.below(8) == 0;
        let brain = &mut self.brains[site];
        match event {
            SessionEvent::Ready(_) => brain.ready = true,
            SessionEvent::Offered { offer, body } => {
                let (transfer, id, seed) = (offer.transfer, offer.id, offer.origin_seq);
                brain.offered.insert(transfer, (seed, offer.size, id));
                if let Some(handle) = body {
                    let parked = &self.world.sites[site].store.parked[&handle];
                    assert_eq!(parked, &content(seed, offer.size));
                }
                let task = match body {
                    _ if late => Task::Refuse { transfer, parked: body },
                    None if brain.holds.contains(&seed) => Task::Ack { transfer, id, parked: None },
                    None => Task::Accept { transfer, seed },
                    Some(_) => Task::Ack { transfer, id, parked: body },
                };
                brain.tasks.push(task);
            }
            SessionEvent::Checkpoint { transfer, blob, offset, chain } => {
                let (seed, ..) = brain.offered[&transfer];
                brain.partials.insert(seed, Partial { blob: blob.0, offset, chain });
            }
            SessionEvent::Received { transfer, blob } => {
                let (seed, size, id) = brain.offered[&transfer];
                let file = &self.world.sites[site].store.finished[&blob];
                assert_eq!(file, &content(seed, size));
                brain.tasks.push(Task::Ack { transfer, id, parked: None });
            }
            SessionEvent::Broken { why: Broken::Cut, .. } => {}
            SessionEvent::Outcome { transfer, outcome } => {
                let seed = brain.inflight.remove(&transfer).expect("one outcome per attempt");
                match outcome {
                    Outcome::Acked => {
                        brain.owed.remove(&seed);
                        brain.acked.insert(seed);
                        assert!(self.brains[1 - site].holds.contains(&seed), "{seed} not held");
                    }
                    Outcome::Rejected { code, .. } => {
                        assert_eq!(code, Refusal::Busy.number());
                    }
                    other => panic!("{other:?}"),
                }
            }
            SessionEvent::Wants | SessionEvent::Progress { .. } | SessionEvent::Arrived { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn act(&mut self, site: usize) {
        if self.brains[site].tasks.is_empty() {
            return;
        }
        let at = self.rng.below(self.brains[site].tasks.len() as u64) as usize;
        let task = self.brains[site].tasks.swap_remove(at);
        match task {
            Task::Ack { transfer, id, parked } => {
                let (seed, ..) = self.brains[site].offered[&transfer];
                self.brains[site].holds.insert(seed);
                self.brains[site].partials.remove(&seed);
                self.unpark(site, parked);
                self.promise(site, Promise::Ack { transfer, id });
            }
            Task::Refuse { transfer, parked } => {
                self.brains[site].refused += 1;
                self.unpark(site, parked);
                let command = SessionCommand::Refuse {
                    transfer,
                    id: SegmentId([0; 32]),
                    refusal: Refusal::Busy,
                    retry_after: 0,
                    text: "busy".into(),
                };
                self.step(site, SessionInput::Command(command));
            }
            Task::Accept { transfer, seed } => {
                let brain = &mut self.brains[site];
                let partial = brain.partials.entry(seed).or_insert_with(|| {
                    brain.blobs += 1;
                    Partial { blob: brain.blobs, ..Partial::default() }
                });
                let Partial { blob, offset, chain } = partial.clone();
                let blob = BlobNo(blob);
                let accept = Promise::Accept { transfer, blob, offset, chain, reserved: 0 };
                self.promise(site, accept);
            }
        }
    }

    fn unpark(&mut self, site: usize, parked: Option<Handle>) {
        if let Some(handle) = parked {
            self.world.sites[site].store.parked.remove(&handle).expect("parked");
        }
    }

    fn send(&mut self, site: usize) {
        let brain = &mut self.brains[site];
        if !brain.ready || brain.inflight.len() >= 20 {
            return;
        }
        let waiting: Vec<u64> = brain
            .owed
            .keys()
            .copied()
            .filter(|seed| !brain.inflight.values().any(|s| s == seed))
            .collect();
        if waiting.is_empty() {
            return;
        }
        let seed = waiting[self.rng.below(waiting.len() as u64) as usize];
        let (size, inline) = brain.owed[&seed];
        brain.last += 1 + self.rng.below(3) as u32;
        let offer = offer(brain.last, seed, size, ["a", "b"][site]);
        brain.inflight.insert(offer.transfer, seed);
        self.world.sites[site].store.readable.insert(u64::from(brain.last), content(seed, size));
        let stepped = self.world.sites[site].send(self.world.now, offer, seed, inline);
        self.hear(site, stepped);
    }

    fn turn(&mut self) {
        let site = self.rng.below(2) as usize;
        match self.rng.below(40) {
            0..=5 => self.send(site),
            6..=15 => {
                let max = [3, 100, 5_000, 200_000][self.rng.below(4) as usize];
                if let Some(stepped) = self.world.deliver(site, max) {
                    self.hear(site, stepped);
                }
            }
            16..=23 => {
                if let Some(event) = self.world.sites[site].store.answer() {
                    self.step(site, SessionInput::Store(event));
                }
            }
            24..=29 => {
                let room = [0, 500, 40_000, 300_000][self.rng.below(4) as usize];
                self.step(site, SessionInput::Room(room));
                self.step(site, SessionInput::Handed(u64::MAX));
            }
            30..=36 => self.act(site),
            37 if self.resizes => {
                let allowance = self.allowance();
                self.brains[site].allowance = allowance;
                self.brains[site].high = self.brains[site].high.max(allowance);
                self.step(site, SessionInput::Command(SessionCommand::Allowance(allowance)));
            }
            38 => {
                self.world.now.mono = self.world.now.mono.after(Duration::from_millis(5));
                for site in [0, 1] {
                    self.step(site, SessionInput::Timer);
                }
            }
            _ => {
                if self.cuts > 0 && self.rng.below(20) == 0 {
                    self.cuts -= 1;
                    self.cut();
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.brains.iter().all(|brain| brain.owed.is_empty() && brain.inflight.is_empty())
    }
}

#[test]
fn everything_arrives_whatever_the_order() {
    let (mut refused, mut cuts) = (0, 0);
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        cuts += run.cuts;
        let mut turns = 0;
        while !run.is_done() {
            run.turn();
            turns += 1;
            assert!(turns < 200_000, "seed {seed} does not come to rest");
        }
        cuts -= run.cuts;
        for (site, brain) in run.brains.iter().enumerate() {
            assert_eq!(brain.acked.len() as u64, SENDS, "seed {seed}");
            refused += brain.refused;
            let site = &run.world.sites[site];
            assert!(!site.closed, "seed {seed}");
            assert_eq!(site.session.ignored(), 0, "seed {seed}");
            assert!(site.session.wants_read());
        }
    }
    // The workload is as mixed as it means to be.
    assert!(refused > 100 && cuts > 10, "{refused} refused, {cuts} cuts");
}
