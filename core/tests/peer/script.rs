//! The little language of the traces.
//!
//! A trace is a list of commands, each followed by what came of it, indented. `a` and `b` are
//! sites.
//!
//! ```text
//! meet [ALLOWANCE [ALLOWANCE]]    both connect, say HELLO and are ready (allowances of a and b)
//! fresh                           forget everything
//! again                           a new connection between the same stores
//! a open                          the connection is up
//! a start [ALLOWANCE]             the node lets it say HELLO
//! a room N                        bulk its driver takes, as soon as there is some
//! a send N inline|blob SIZE [SEED]    the node's claim; content is told apart by its seed
//! a lose N                        the store of a loses the content of transfer N
//! a rot N                         … or a byte of it changes
//! a store [COUNT]                 its store answers what it owes (the first COUNT)
//! a store fail BLOB               its store cannot write that blob
//! a gets [COUNT]                  what the other end said arrives (COUNT bytes of it)
//! a accept N BLOB [OFFSET]        the node's word on an offer, with the checkpoint seen there
//! a ack N | a refuse N WORD [MS]
//! a allowance N | a close WORD | a eof
//! a hears FRAME …                 a frame that the other end did not say (see `frames`)
//! a had BLOB SEED OFFSET          an earlier session left that much of that content, checkpointed
//! a ignored                       how many answers changed nothing
//! a kept BLOB SEED                whether that finished file holds that content
//! wait DURATION                   time passes; timers that are due fire, a's first
//! run                             room, wire and stores work until nothing moves
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use consign_core::code::{Goodbye, Refusal};
use consign_core::hash::Hasher;
use consign_core::id::{BlobNo, SegmentId, TransferNo};
use consign_core::session::{Promise, Session, SessionCommand, SessionEvent, SessionInput};
use consign_core::store::{StoreEvent, StoreFault};
use consign_core::time::UnixMillis;

use crate::frames::{self, Ids};
use crate::show;
use crate::world::{EVERY, Stepped, World, content, epoch, offer};

/// Room given at a time by `run`.
const ROOM: usize = 256 << 10;

const NAMES: [&str; 2] = ["a", "b"];

/// Runs commands and says what came of each.
pub(crate) struct Script {
    world: World,
    /// Identities by (site that offered, transfer).
    ids: Ids,
    /// What the drivers take.
    room: [usize; 2],
    /// Encoded checkpoints by (site, blob, offset); kept over `again`.
    chains: BTreeMap<(usize, u64, u64), Vec<u8>>,
}

impl Script {
    pub(crate) fn new() -> Script {
        let world = World::new(EVERY);
        Script { world, ids: BTreeMap::new(), room: [0, 0], chains: BTreeMap::new() }
    }

    /// Runs one command.
    pub(crate) fn run(&mut self, command: &str) -> Vec<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["run"] => self.run_all(),
            ["meet", rest @ ..] => {
                self.meet(rest);
                Vec::new()
            }
            ["fresh"] => {
                *self = Script::new();
                Vec::new()
            }
            ["again"] => {
                self.again();
                Vec::new()
            }
            ["wait", duration] => self.wait(parse_duration(duration)),
            [site, rest @ ..] => {
                let site = match *site {
                    "a" => 0,
                    "b" => 1,
                    other => panic!("no site {other:?} in {command:?}"),
                };
                self.site(site, rest)
            }
            [] => panic!("an empty command"),
        }
    }

    fn site(&mut self, site: usize, words: &[&str]) -> Vec<String> {
        let known = self
            .connection(site, words)
            .or_else(|| self.node(site, words))
            .or_else(|| self.store(site, words));
        known.unwrap_or_else(|| panic!("no command {words:?}"))
    }

    fn shown(&mut self, site: usize, stepped: Stepped) -> Option<Vec<String>> {
        Some(self.show(site, stepped))
    }

    /// What came of a step, and of the room the driver gives after it.
    fn show(&mut self, site: usize, mut stepped: Stepped) -> Vec<String> {
        if self.room[site] > 0 {
            let room = SessionInput::Room(self.room[site]);
            let more = self.world.sites[site].step(self.world.now, room);
            self.room[site] = self.room[site].saturating_sub(more.bytes.len());
            stepped.add(more);
        }
        // The driver's kernel takes everything at once.
        stepped.add(self.world.sites[site].step(self.world.now, SessionInput::Handed(u64::MAX)));
        for event in &stepped.events {
            if let SessionEvent::Checkpoint { blob, offset, chain, .. } = event {
                self.chains.insert((site, blob.0, *offset), chain.clone());
            }
        }
        show::lines(NAMES[site], &stepped)
    }

    /// What a driver does.
    fn connection(&mut self, site: usize, words: &[&str]) -> Option<Vec<String>> {
        let now = self.world.now;
        let this = &mut self.world.sites[site];
        let stepped = match words {
            ["open"] => this.step(now, SessionInput::Open),
            ["eof"] => this.step(now, SessionInput::Eof),
            ["room", n] => {
                self.room[site] = size(n) as usize;
                Stepped::default()
            }
            ["gets", rest @ ..] => {
                let max = rest.first().map_or(usize::MAX, |n| size(n) as usize);
                return Some(self.deliver(site, max));
            }
            ["hears", words @ ..] => {
                let bytes = frames::frame(&mut self.ids, 1 - site, words);
                this.step(now, SessionInput::Bytes(&bytes))
            }
            ["ignored"] => return Some(vec![format!("{} answers", this.session.ignored())]),
            _ => return None,
        };
        self.shown(site, stepped)
    }

    /// What a node does.
    fn node(&mut self, site: usize, words: &[&str]) -> Option<Vec<String>> {
        let now = self.world.now;
        let this = &mut self.world.sites[site];
        let number = |n: &str| TransferNo(n.parse().unwrap());
        let stepped = match words {
            ["start", rest @ ..] => {
                let allowance = rest.first().map_or(1 << 20, |n| size(n));
                this.promise(now, Promise::Start { epoch: epoch(site), allowance })
            }
            ["send", n, how, bytes, rest @ ..] => {
                let transfer = number(n);
                let seed = rest.first().map_or(u64::from(transfer.0), |s| s.parse().unwrap());
                let offer = offer(transfer.0, seed, size(bytes), NAMES[site]);
                self.ids.insert((site, transfer), offer.id);
                this.send(now, offer, seed, *how == "inline")
            }
            ["accept", n, blob, rest @ ..] => {
                let blob: u64 = blob.parse().unwrap();
                let offset = rest.first().map_or(0, |n| size(n));
                let chain = self.chains.get(&(site, blob, offset)).cloned().unwrap_or_default();
                let (transfer, blob) = (number(n), BlobNo(blob));
                this.promise(now, Promise::Accept { transfer, blob, offset, chain, reserved: 0 })
            }
            ["ack", n] => {
                let id = self.ids.get(&(1 - site, number(n))).copied();
                let (transfer, id) = (number(n), id.unwrap_or(SegmentId([0; 32])));
                this.promise(now, Promise::Ack { transfer, id })
            }
            ["refuse", n, word, rest @ ..] => {
                let command = SessionCommand::Refuse {
                    transfer: number(n),
                    id: SegmentId([0; 32]),
                    refusal: Refusal::from_word(word).expect("a refusal"),
                    retry_after: rest.first().map_or(0, |n| n.parse().unwrap()),
                    text: "as told".into(),
                };
                this.step(now, SessionInput::Command(command))
            }
            ["allowance", n] => {
                this.step(now, SessionInput::Command(SessionCommand::Allowance(size(n))))
            }
            ["pace", n] => this.step(now, SessionInput::Command(SessionCommand::Pace(size(n)))),
            ["ping"] => this.step(now, SessionInput::Command(SessionCommand::Ping)),
            ["close", word] => this.close(now, Goodbye::from_word(word).expect("a goodbye")),
            _ => return None,
        };
        self.shown(site, stepped)
    }

    /// What happens to a store.
    fn store(&mut self, site: usize, words: &[&str]) -> Option<Vec<String>> {
        let now = self.world.now;
        let this = &mut self.world.sites[site];
        match words {
            ["lose", n] => {
                this.store.readable.remove(&n.parse().unwrap()).expect("sent before");
            }
            ["rot", n] => {
                let body = this.store.readable.get_mut(&n.parse().unwrap()).expect("sent before");
                body[0] ^= 1;
            }
            ["had", blob, seed, offset] => {
                let (blob, offset): (u64, u64) = (blob.parse().unwrap(), size(offset));
                let data = content(seed.parse().unwrap(), offset);
                let mut hasher = Hasher::with_distance(EVERY);
                hasher.update(&data);
                let chain = hasher.checkpoint().expect("a checkpoint there").encode();
                this.store.files.insert(BlobNo(blob), data);
                self.chains.insert((site, blob, offset), chain);
            }
            ["kept", blob, seed] => {
                let file = &this.store.finished[&BlobNo(blob.parse().unwrap())];
                let holds = *file == content(seed.parse().unwrap(), file.len() as u64);
                return Some(vec![format!("{} B, as offered: {holds}", file.len())]);
            }
            ["store", "fail", blob] => {
                let blob = BlobNo(blob.parse().unwrap());
                this.store.forget(blob);
                let fault = StoreFault::Full("no space".to_owned());
                let failed = SessionInput::Store(StoreEvent::WriteFailed { blob, fault });
                let stepped = this.step(now, failed);
                return self.shown(site, stepped);
            }
            ["store", rest @ ..] => {
                let count = rest.first().map_or(usize::MAX, |n| n.parse().unwrap());
                return Some(self.answer(site, count));
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    fn answer(&mut self, site: usize, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            let Some(event) = self.world.sites[site].store.answer() else { break };
            let stepped = self.world.sites[site].step(self.world.now, SessionInput::Store(event));
            lines.extend(self.show(site, stepped));
        }
        lines
    }

    fn deliver(&mut self, site: usize, max: usize) -> Vec<String> {
        match self.world.deliver(site, max) {
            Some(stepped) => self.show(site, stepped),
            None => Vec::new(),
        }
    }

    fn run_all(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let before = lines.len();
            for site in [0, 1] {
                self.room[site] = ROOM;
                lines.extend(self.show(site, Stepped::default()));
                lines.extend(self.answer(site, usize::MAX));
                lines.extend(self.deliver(site, usize::MAX));
            }
            let owed = |i: usize| {
                let site = &self.world.sites[i];
                !site.store.owed.is_empty() || !site.said.is_empty()
            };
            if lines.len() == before && !owed(0) && !owed(1) {
                return lines;
            }
        }
    }

    /// Time passes in steps that stop at every deadline.
    fn wait(&mut self, duration: Duration) -> Vec<String> {
        let end = self.world.now.mono.after(duration);
        let mut lines = Vec::new();
        for _ in 0..100 {
            let deadlines = self.world.sites.iter().map(|site| site.session.next_deadline());
            let due = deadlines.flatten().min().filter(|at| *at <= end);
            let passed = due.unwrap_or(end).since(self.world.now.mono);
            self.world.now.mono = self.world.now.mono.after(passed);
            self.world.now.wall = UnixMillis(self.world.now.wall.0 + passed.as_millis() as u64);
            if due.is_none() {
                return lines;
            }
            for site in [0, 1] {
                let at = self.world.sites[site].session.next_deadline();
                if at.is_some_and(|at| at <= self.world.now.mono) {
                    let stepped = self.world.sites[site].step(self.world.now, SessionInput::Timer);
                    lines.extend(self.show(site, stepped));
                }
            }
        }
        panic!("timers do not come to rest");
    }

    /// Both sides become ready.
    fn meet(&mut self, allowances: &[&str]) {
        let a = allowances.first().copied().unwrap_or("1M");
        let b = allowances.get(1).copied().unwrap_or(a);
        for command in ["a open", "b open"] {
            assert!(self.run(command).is_empty());
        }
        self.run(&format!("a start {a}"));
        self.run(&format!("b start {b}"));
        for command in ["a gets", "b gets"] {
            let came = self.run(command);
            assert!(came.len() == 1 && came[0].contains("tells Ready"), "{came:?}");
        }
    }

    /// A new connection between the same stores.
    fn again(&mut self) {
        let World { now, sites: [a, b] } = World::new(EVERY);
        let old = std::mem::replace(&mut self.world.sites, [a, b]);
        self.world.now.mono = self.world.now.mono.max(now.mono);
        self.room = [0, 0];
        for (site, old) in self.world.sites.iter_mut().zip(old) {
            site.store = old.store;
            site.store.end();
        }
    }
}

/// Sizes such as `10`, `64K`, `1M`, and sums such as `64K+1`.
pub(crate) fn size(text: &str) -> u64 {
    let one = |part: &str| match part.strip_suffix(['K', 'M']) {
        Some(n) if part.ends_with('K') => n.parse::<u64>().unwrap() << 10,
        Some(n) => n.parse::<u64>().unwrap() << 20,
        None if part == "MAX" => u64::MAX,
        None => part.parse().unwrap(),
    };
    text.split('+').map(one).sum()
}

fn parse_duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(ms) => Duration::from_millis(ms.parse().unwrap()),
        None => Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap()),
    }
}
