//! Paging through what is due: no row is skipped, and none appears that is not there.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::Config;
use consign_core::ledger::Table;
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::segment::Class;
use consign_core::session::Outcome;
use consign_core::store::CommitFault;
use consign_core::time::{Now, UnixMillis};

use crate::site::{Site, config};
use crate::story::{End, promise, site};

/// Both clocks go on to this wall time.
fn until(site: &mut Site, wall: u64) {
    let passed = Duration::from_millis(wall - site.now.wall.0);
    site.now = Now { mono: site.now.mono.after(passed), wall: UnixMillis(wall) };
}

/// (W1) Work that is due at once pushes the tail out of a small window while a scan behind that
/// tail is open.
pub fn overflow(plant: Option<Plant>) -> End {
    let wait = Duration::from_secs(100);
    let mut site =
        Site::with(Config { plant, window: 4, backoff_initial: wait, ..config(&["beta"]) });
    let ids: Vec<_> = (0..8).map(|i| site.queue(&format!("later {i}"), &["beta"])).collect();
    let conn = site.session("beta");
    site.settle();
    for (_, sending) in site.sendings() {
        site.outcome(conn, sending.offer.transfer, Site::rejected(Refusal::Busy));
    }
    site.settle();
    // The window holds the four that are due first; three of them go, so a scan behind the fourth
    // is asked.
    let mut due: Vec<u64> =
        ids.iter().map(|id| site.delivery(*id, "beta").unwrap().next_attempt_after).collect();
    due.sort();
    site.hold_due = true;
    until(&mut site, due[2]);
    site.input(Input::Timer);
    site.settle();
    assert_eq!(site.sendings().len(), 3);
    // The session is lost: its three are due at once, and so is what comes in now.
    site.input(Input::Closed { conn, why: "reset".into() });
    site.queue("now", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let sends = site.sendings();
    assert_eq!(sends.len(), 4);
    site.let_go();
    for (_, sending) in sends {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    }
    for _ in 0..20 {
        site.wait(Duration::from_secs(60));
        for (_, sending) in site.sendings() {
            site.outcome(conn, sending.offer.transfer, Outcome::Acked);
        }
    }
    site.settle();
    let owed = site.store.rows(Table::Owed);
    promise(owed == 0, || format!("{owed} of what is owed is never offered"))
}

/// (W2) The first scan for a peer is open when the commit of a new segment for it fails.
pub fn failed_commit(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.hold_due = true;
    site.settle();
    let client = site.client();
    site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.turn();
    site.turn();
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.commit();
    site.turn();
    site.let_go();
    site.settle();
    assert_eq!(site.store.rows(Table::Segments), 0, "it is refused");
    site.session("beta");
    site.settle();
    let sends = site.sendings().len();
    promise(sends == 0, || "what was refused is offered to a peer".into())
}

/// (W3) At a restart what was in flight becomes due, and the first scan is asked in the same turn.
pub fn staged_before(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    site.queue("one", &["beta"]);
    site.session("beta");
    site.settle();
    let mut site = site.restart();
    site.hold_due = true;
    site.settle();
    site.let_go();
    site.settle();
    site.session("beta");
    site.settle();
    for _ in 0..20 {
        site.wait(Duration::from_secs(60));
    }
    promise(!site.sendings().is_empty(), || {
        "what was in flight at a restart is never offered again".into()
    })
}
