//! A full disk: relief gets through, growth does not stand in its way, and the books are right
//! after.

use std::time::Duration;

use consign_core::ledger::Table;
use consign_core::ledger::rows::{MetaName, State};
use consign_core::plant::Plant;
use consign_core::segment::Class;
use consign_core::session::Outcome;
use consign_core::store::CommitFault;

use crate::site::{Site, recovery};
use crate::story::{End, promise, site};

const DISK: u64 = 1 << 40;

fn full() -> CommitFault {
    CommitFault::Full("no space left on device".into())
}

fn used(site: &Site) -> u64 {
    recovery(&site.store).meta_value(MetaName::UsedBytes)
}

/// Others fill the disk but for a ballast of so many bytes, and the site notices.
fn fill(site: &mut Site, ballast: u64) {
    site.store.set_ballast(ballast, true);
    site.store.set_capacity(DISK);
    site.store.set_outside(DISK - site.store.space().ledger - ballast);
    let client = site.client();
    site.submit(client, 1, "too much", &["beta"], Class::Normal);
    site.settle();
    site.take_told(client);
}

/// (G3) A new segment and the end of an attempt are in one batch that finds no space.
pub fn growth_and_relief_together(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let (_, sending) = site.sendings().pop().expect("offered");
    let before = used(&site);
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], Class::Normal);
    site.turn();
    site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    site.turn();
    site.store.fail_commit(1, full());
    site.commit();
    site.settle();
    assert_eq!(site.store.rows(Table::Segments), 1, "the new one is refused");
    let charged = used(&site);
    promise(charged == before, || {
        format!("{charged} bytes are charged for what is held, which is {before} bytes")
    })
}

/// (G4) The disk is full because of others, and stays so.
pub fn filled_from_outside(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.queue("one", &["beta"]);
    fill(&mut site, 1 << 20);
    site.session("beta");
    for _ in 0..30 {
        site.wait(Duration::from_secs(1));
    }
    promise(!site.sendings().is_empty(), || {
        "a segment that is held does not leave while the disk is full".into()
    })
}

/// (G5) Clients go on asking while the disk is full, then many ACKs come at once.
pub fn freed_ballast(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let ids: Vec<_> = (0..20).map(|i| site.queue(&format!("n{i}"), &["beta"])).collect();
    let conn = site.session("beta");
    site.settle();
    let sends = site.sendings();
    assert_eq!(sends.len(), 20);
    fill(&mut site, 64 << 10);
    // The first relief frees the ballast.
    site.outcome(conn, sends[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    for i in 0..200 {
        let client = site.client();
        site.submit(client, 1, &format!("more {i}"), &["beta"], Class::Bulk);
        site.settle();
    }
    for (_, sending) in &sends[1..] {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    }
    for _ in 0..60 {
        site.wait(Duration::from_secs(1));
    }
    let all = ids.iter().all(|id| site.delivery(*id, "beta").unwrap().state == State::Acked);
    promise(site.halted.is_none() && all, || {
        format!("ACKs find no space on a disk with a ballast: {:?}", site.halted)
    })
}

/// (G6) Not even the freed ballast is enough.
pub fn relief_without_space(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let (_, sending) = site.sendings().pop().expect("offered");
    for n in 1..=1_000 {
        site.store.fail_commit(n, full());
    }
    let before = site.store.commits();
    site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    for _ in 0..100 {
        site.turn();
        site.commit();
    }
    let tries = site.store.commits() - before;
    promise(tries <= 2, || format!("{tries} commits were tried in one moment"))?;
    for _ in 0..60 {
        site.wait(Duration::from_secs(1));
    }
    promise(site.halted.is_some(), || "a site that cannot go on does not say so".into())
}

/// (G6) Two ACKs: one is in the batch that fails, one is staged behind it.
pub fn ack_behind_the_failed_batch(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let ids = ["one", "two"].map(|name| site.queue(name, &["beta"]));
    let conn = site.session("beta");
    site.settle();
    for (_, sending) in site.sendings() {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
        site.turn();
    }
    site.store.fail_commit(1, full());
    site.commit();
    site.settle();
    site.wait(Duration::from_secs(600));
    let states = ids.map(|id| site.delivery(id, "beta").unwrap().state);
    promise(states == [State::Acked; 2], || {
        format!("both were acknowledged, and they are {states:?}")
    })
}
