//! A full disk with a ballast that is small beside what there is to relay.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::Config;
use consign_core::ledger::Table;
use consign_core::ledger::read::Recovery;
use consign_core::limits::{BALLAST_MIN, END_BYTES};
use consign_core::node::{Input, Node, Note};
use consign_core::pump::Pump;
use consign_core::segment::Class;
use consign_core::session::{Outcome, SessionCommand};
use consign_core::store::{CommitFault, Space};

use crate::site::{Site, config, recovery};

/// A ledger that writes what it changes beside what was there, as LMDB does: a batch takes as many pages as
/// it has rows, and what it took the place of is free for the one after the next. Nothing else is free.
struct Pages {
    free: usize,
    given_back: usize,
    full: usize,
}

impl Pages {
    /// The next batch is committed, if there are pages for it.
    fn commit(&mut self, site: &mut Site) {
        if !site.has_batch() {
            return;
        }
        site.commit_by(|store, batch| {
            let rows = batch.rows();
            if rows > self.free {
                self.full += 1;
                store.fail_commit(1, CommitFault::Full("no space left on device".into()));
            } else {
                self.free += std::mem::replace(&mut self.given_back, rows);
                self.free -= rows;
            }
            store.commit(batch)
        });
    }
}

/// So many segments for beta, which go once beta has them.
fn filled(count: usize) -> Site {
    let config = Config { evict_on_relay: true, ..config(&["beta"]) };
    let mut site = Site::with(config);
    for n in 0..count {
        site.queue(&format!("n{n}"), &["beta"]);
    }
    site
}

#[test]
fn everything_leaves_over_a_ballast_that_holds_a_few_segments_rows() {
    let mut site = filled(600);
    // The pages are counted here; the ballast never comes back.
    site.store.set_capacity(1 << 40);
    site.store.set_ballast(1 << 50, false);
    let mut pages = Pages { free: 200, given_back: 0, full: 0 };
    let conn = site.connect("beta", true);
    site.hello_with(conn, "beta", 256);
    for _ in 0..40_000 {
        site.now.mono = site.now.mono.after(Duration::from_millis(20));
        site.now.wall = site.now.wall.after(Duration::from_millis(20));
        site.input(Input::Timer);
        site.turn();
        pages.commit(&mut site);
        for (to, sending) in site.sendings() {
            site.outcome(to, sending.offer.transfer, Outcome::Acked);
        }
        if site.store.rows(Table::Segments) == 0 {
            break;
        }
    }
    assert_eq!(site.halted, None, "{} batches found no room", pages.full);
    assert!(pages.full > 0, "the disk was full");
    assert_eq!(site.store.rows(Table::Segments), 0, "all of it has left");
    site.settle();
    site.audit();
}

/// What the end of a delivery leaves is more than a small segment gives back.
#[test]
fn nothing_is_taken_for_whose_end_there_would_be_no_room() {
    const HELD: u64 = 3_000;
    let need = HELD * END_BYTES - BALLAST_MIN;
    let mut site = filled(usize::try_from(HELD).expect("a number"));
    site.store.set_capacity(1 << 40);
    let used = site.store.space().ledger;
    site.store.set_outside((1 << 40) - used - (64 << 20) - need + 1);
    let client = site.client();
    // Its commit, if there is one, tells of the disk; so does the look after the refusal.
    site.input(Input::Space(site.store.space()));
    site.submit(client, 1, "one more", &["beta"], Class::Normal);
    site.settle();
    let told = site.take_told(client);
    let refused = matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::DiskFull, text, .. }]
        if text.contains("handing on what is here may take"));
    assert!(refused, "{told:?}");
    // What leaves needs no room any more: it goes on by itself.
    let conn = site.connect("beta", true);
    site.hello_with(conn, "beta", 256);
    for _ in 0..200 {
        site.settle();
        for (to, sending) in site.sendings() {
            site.outcome(to, sending.offer.transfer, Outcome::Acked);
        }
    }
    site.wait(Duration::from_secs(2));
    assert!(!site.pump.node().status(site.now).full);
    site.queue("one more", &["beta"]);
    site.audit();
}

/// A node that starts on a disk that looked like this.
fn started(site: &Site, space: Space) -> Pump {
    let recovery = Recovery { space: Some(space), ..recovery(&site.store) };
    Pump::new(Node::recover(site.config.clone(), recovery, site.now).expect("a ledger"))
}

#[test]
fn what_the_disk_was_like_at_the_start_is_known_before_the_first_commit() {
    let mut site = filled(1);
    let space = Space { free: 3_072, ledger: 70 << 20, ballast_whole: false };
    site.pump = started(&site, space);
    let status = site.pump.node().status(site.now);
    assert_eq!((status.space, status.full), (space, true));
    // Nothing grows on it, though nothing was committed yet; and it is told.
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], Class::Normal);
    site.turn();
    assert!(site.notes.iter().any(|note| matches!(note, Note::Full { .. })), "{:?}", site.notes);
    site.settle();
    let told = format!("{:?}", site.take_told(client));
    assert!(told.contains("DiskFull"), "{told}");
    // With its ballast whole it takes what comes at once.
    site.pump = started(&site, Space { free: 1 << 40, ledger: 0, ballast_whole: true });
    assert!(!site.pump.node().status(site.now).full);
}
