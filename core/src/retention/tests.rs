//! The whole product of cases, against the rules as they are written down.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::id::{BlobDigest, BodyNo, SegmentId};
use crate::ledger::rows::Body;
use crate::segment::{Destinations, Meta};

const MINUTE: u64 = 60_000;
const ACCEPTED: u64 = 1_000 * MINUTE;
const RELAYED: u64 = ACCEPTED + 5 * MINUTE;
const KEEP_RELAYED: Duration = Duration::from_secs(600);
const KEEP: Duration = Duration::from_secs(24 * 3600);

fn row() -> SegmentRow {
    SegmentRow {
        id: SegmentId([1; 32]),
        digest: BlobDigest([2; 32]),
        size: 10,
        body: Body::Inline(BodyNo(1)),
        meta: Meta { name: "a".into(), ..Meta::default() },
        to: Destinations::All,
        here: false,
        origin: "".into(),
        origin_seq: 0,
        hops: 0,
        accepted_at: ACCEPTED,
        required: 0,
        acked: 0,
        relayed_at: None,
        held: false,
        from: 0,
        loss: None,
        let_go: None,
        unplaced: None,
        askers: Vec::new(),
    }
}

fn delivery(state: State) -> DeliveryRow {
    DeliveryRow {
        state,
        attempts: 1,
        spent: 0,
        next_attempt_after: ACCEPTED,
        last_error: 0,
        since: RELAYED,
        custody: None,
        held: None,
        claimed_at: None,
        refused: 0,
    }
}

const STATES: [State; 5] =
    [State::Scheduled, State::Inflight, State::Acked, State::Failed, State::Deadletter];

/// One case in full, so that a failure says which.
#[derive(Clone, Debug)]
struct Full {
    row: SegmentRow,
    deliveries: Vec<DeliveryRow>,
    exports: Exports,
    pinned: bool,
    wanted: bool,
    short: bool,
    evict_on_relay: bool,
    now: u64,
}

impl Full {
    fn fate(&self) -> Fate {
        let policy = Policy {
            evict_on_relay: self.evict_on_relay,
            keep_relayed: KEEP_RELAYED,
            keep: KEEP,
            plant: None,
        };
        let case = Case {
            row: &self.row,
            deliveries: &self.deliveries,
            exports: self.exports,
            pinned: self.pinned,
            wanted: self.wanted,
            short: self.short,
            now: UnixMillis(self.now),
        };
        fate(&case, &policy)
    }

    fn has(&self, state: State) -> bool {
        self.deliveries.iter().any(|row| row.state == state)
    }

    fn over(&self) -> bool {
        self.row.meta.expires_at.is_some_and(|at| at <= self.now)
    }
}

/// Every set of two deliveries, and of one and none.
fn sets() -> Vec<Vec<State>> {
    let mut sets = vec![Vec::new()];
    sets.extend(STATES.map(|state| vec![state]));
    for a in STATES {
        sets.extend(STATES.map(|b| vec![a, b]));
    }
    sets
}

fn each(visit: &mut dyn FnMut(&Full)) -> usize {
    let mut count = 0;
    let nows = [RELAYED, RELAYED + 10 * MINUTE, RELAYED + 24 * 60 * MINUTE];
    let exports = [Exports::NoRules, Exports::Pending, Exports::Done(UnixMillis(RELAYED))];
    for states in sets() {
        let acked = states.iter().filter(|s| **s == State::Acked).count() as u32;
        for bits in 0..1u32 << 9 {
            let [here, own, held, pinned, wanted, short, evict_on_relay, expires, one] =
                core::array::from_fn(|i| bits & 1 << i != 0);
            let required = states.len() as u32;
            let relayed = if one { acked > 0 } else { required > 0 && acked == required };
            for now in nows {
                for exports in exports {
                    let mut row = row();
                    (row.here, row.held, row.required, row.acked) = (here, held, required, acked);
                    row.from = if own { 0 } else { 7 };
                    row.relayed_at = relayed.then_some(RELAYED);
                    row.meta.expires_at = expires.then_some(RELAYED + MINUTE);
                    let deliveries = states.iter().map(|s| delivery(*s)).collect();
                    let case = Full {
                        row,
                        deliveries,
                        exports,
                        pinned,
                        wanted,
                        short,
                        evict_on_relay,
                        now,
                    };
                    visit(&case);
                    count += 1;
                }
            }
        }
    }
    count
}

/// What may never happen, whatever else does: R1, R3, G1, I9 and the table of delivery states.
fn forbidden(case: &Full) -> Option<&'static str> {
    let fate = case.fate();
    let row = &case.row;
    let goes = matches!(fate, Fate::Evict | Fate::Release | Fate::Expire);
    let owed = case.has(State::Scheduled) || case.has(State::Failed);
    let rules = [
        (goes && case.pinned, "G1: it goes under a promise that has not left"),
        (goes && row.held, "it goes while an operator holds it"),
        (goes && case.wanted, "it goes while a shard needs it"),
        (goes && case.has(State::Inflight), "it goes while an attempt is under way"),
        (fate == Fate::Evict && row.here, "R1: a destination evicts"),
        (fate == Fate::Evict && !case.evict_on_relay, "it is evicted, and nothing says so"),
        (fate == Fate::Evict && (row.relayed_at.is_none() || row.acked == 0), "I9: not relayed"),
        (fate == Fate::Evict && case.exports == Exports::Pending, "it is evicted unexported"),
        (
            fate == Fate::Evict && !case.short && case.now < RELAYED + 10 * MINUTE,
            "it is evicted before keep_relayed is over",
        ),
        (fate == Fate::Release && (owed || case.has(State::Deadletter)), "R3: something is owed"),
        (fate == Fate::Release && !row.here && row.from == 0, "an own accept releases itself"),
        (
            fate == Fate::Release && !row.here && (row.required == 0 || row.acked != row.required),
            "R3: nobody is known to have it",
        ),
        (
            fate == Fate::Release && row.here && !matches!(case.exports, Exports::Done(_)),
            "R3: a destination lets go what nobody took out",
        ),
        (
            fate == Fate::Release && !case.short && case.now < RELAYED + 24 * 60 * MINUTE,
            "R5: it is released before storage.keep is over",
        ),
        (fate == Fate::Expire && !case.over(), "I18: it expires before its time"),
        (fate == Fate::Expire && owed, "it expires with deliveries that wait"),
        (fate == Fate::Expire && case.has(State::Deadletter), "I31: dead letters go unseen"),
        (fate == Fate::GiveUp && !(case.over() && owed), "nothing is there to be given up"),
        (
            matches!(fate, Fate::NotBefore(at) if at.0 <= case.now),
            "it waits for a time that has come",
        ),
    ];
    rules.into_iter().find(|(broken, _)| *broken).map(|(_, rule)| rule)
}

#[test]
fn no_case_lets_a_copy_go_that_must_stay() {
    let count = each(&mut |case| assert_eq!(forbidden(case), None, "{case:?}"));
    assert_eq!(count, 31 * 512 * 9);
}

#[test]
fn what_may_go_goes() {
    let mut seen = [0; 3];
    each(&mut |case| {
        let row = &case.row;
        let free = !case.pinned && !row.held && !case.wanted && !case.has(State::Inflight);
        let owed = case.has(State::Scheduled) || case.has(State::Failed);
        let dead = case.has(State::Deadletter);
        let evicts = case.evict_on_relay
            && !row.here
            && row.relayed_at.is_some()
            && case.exports != Exports::Pending;
        let late = case.short || case.now >= RELAYED + 24 * 60 * MINUTE;
        if free && evicts && (case.short || case.now >= RELAYED + 10 * MINUTE) {
            seen[0] += 1;
            assert_eq!(case.fate(), Fate::Evict, "{case:?}");
        } else if free && case.over() && !owed && !dead {
            seen[1] += 1;
            assert_eq!(case.fate(), Fate::Expire, "{case:?}");
        } else if free && !case.over() && !owed && !dead && late && !evicts {
            let through = row.from != 0 && row.required > 0 && row.acked == row.required;
            let used = matches!(case.exports, Exports::Done(_));
            // With copies evicted on relay, one with an export to come waits for that.
            let waits = case.evict_on_relay && row.relayed_at.is_some() && !row.here;
            if !waits && (if row.here { used } else { through }) {
                seen[2] += 1;
                assert_eq!(case.fate(), Fate::Release, "{case:?}");
            }
        }
    });
    assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
}

#[test]
fn a_pin_or_a_hold_never_hastens_anything() {
    each(&mut |case| {
        let freer = Full { pinned: false, ..case.clone() };
        if case.pinned {
            assert_eq!(case.fate(), Fate::Keep(Why::Pinned));
        } else if case.row.held {
            assert_eq!(freer.fate(), Fate::Keep(Why::Held));
        }
    });
}

#[test]
fn each_reason_to_stay_is_told() {
    let base = || Full {
        row: row(),
        deliveries: Vec::new(),
        exports: Exports::NoRules,
        pinned: false,
        wanted: false,
        short: false,
        evict_on_relay: false,
        now: RELAYED,
    };
    let with = |states: &[State], change: fn(&mut Full)| {
        let mut case = base();
        case.deliveries = states.iter().map(|s| delivery(*s)).collect();
        case.row.required = states.len() as u32;
        case.row.acked = states.iter().filter(|s| **s == State::Acked).count() as u32;
        if case.row.required == case.row.acked && case.row.acked > 0 {
            case.row.relayed_at = Some(RELAYED);
        }
        change(&mut case);
        case.fate()
    };
    use State::{Acked, Deadletter, Failed, Inflight, Scheduled};
    let all: fn(&mut Full) = |_| {};
    let transit: fn(&mut Full) = |c| c.row.from = 7;
    let evict: fn(&mut Full) = |c| c.evict_on_relay = true;
    let here: fn(&mut Full) = |c| (c.row.here, c.row.from) = (true, 7);
    let over: fn(&mut Full) = |c| c.row.meta.expires_at = Some(RELAYED);
    let keep = Fate::Keep;
    let table = [
        (with(&[Acked], all), keep(Why::Own)),
        (with(&[Acked, Scheduled], transit), keep(Why::Owed)),
        (with(&[Acked, Failed], evict), keep(Why::Owed)),
        (with(&[Acked, Inflight], transit), keep(Why::Inflight)),
        (with(&[Acked, Deadletter], transit), keep(Why::Dead)),
        (with(&[], transit), keep(Why::Unplaced)),
        (with(&[], here), keep(Why::Unused)),
        (with(&[Acked], here), keep(Why::Unused)),
        (with(&[Acked], transit), Fate::NotBefore(UnixMillis(RELAYED).after(KEEP))),
        (with(&[Acked], evict), Fate::NotBefore(UnixMillis(RELAYED).after(KEEP_RELAYED))),
        (with(&[Acked, Scheduled], over), Fate::GiveUp),
        (with(&[Acked, Inflight], over), keep(Why::Inflight)),
        (with(&[Acked, Deadletter], over), keep(Why::Dead)),
        (with(&[Acked], over), Fate::Expire),
        (with(&[], over), Fate::Expire),
    ];
    for (i, (fate, expected)) in table.into_iter().enumerate() {
        assert_eq!(fate, expected, "line {i}");
    }
}

/// With arbitrary times instead of chosen ones.
#[test]
fn no_times_let_a_copy_go_that_must_stay() {
    fn property(bits: u32, states: Vec<u8>, times: (u32, u32, u32, u32)) -> bool {
        let times = [times.0, times.1, times.2, times.3];
        let bit = |i: u32| bits & 1 << i != 0;
        let states: Vec<State> =
            states.iter().take(6).map(|s| STATES[usize::from(*s) % 5]).collect();
        let mut row = row();
        row.required = states.len() as u32;
        row.acked = states.iter().filter(|s| **s == State::Acked).count() as u32;
        let relayed = row.acked > 0 && (bit(0) || row.acked == row.required);
        row.relayed_at = relayed.then_some(RELAYED);
        (row.here, row.held) = (bit(1), bit(2));
        row.from = u32::from(bit(3));
        row.meta.expires_at = bit(4).then_some(ACCEPTED + u64::from(times[0]));
        let exports = match times[1] % 3 {
            0 => Exports::NoRules,
            1 => Exports::Pending,
            _ => Exports::Done(UnixMillis(RELAYED)),
        };
        let case = Full {
            row,
            deliveries: states.iter().map(|s| delivery(*s)).collect(),
            exports,
            pinned: bit(5),
            wanted: bit(6),
            short: bit(7),
            evict_on_relay: bit(8),
            now: ACCEPTED + u64::from(times[2]) + u64::from(times[3]),
        };
        forbidden(&case).is_none()
    }
    quickcheck::QuickCheck::new()
        .tests(20_000)
        .quickcheck(property as fn(u32, Vec<u8>, (u32, u32, u32, u32)) -> bool);
}
