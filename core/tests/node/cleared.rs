//! What is doubted is looked at by the site itself, out of turn: a peer's word, or one read that fails, ends
//! nothing but its own delivery.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::id::{BlobNo, ConnId, Handle, SegmentId, TransferNo};
use consign_core::ledger::rows::{Body, Loss, State};
use consign_core::ledger::rows_upkeep::AuditRow;
use consign_core::ledger::{Table, codec, keys};
use consign_core::node::{Input, Note};
use consign_core::session::{Outcome, Promise, SessionCommand, SessionEvent};
use consign_core::store::{CommitFault, Snapshot, StoreFault, StoreRequest};

use crate::hop::named;
use crate::site::{self, Site, findings};

const BODY: &[u8] = b"large content";

/// An offer of beta; the content rides with it, or comes when it is asked for.
fn offers(site: &mut Site, beta: ConnId, (name, transfer): (&str, u32), rides: bool) {
    let offer = Site::make_offer(name, BODY, transfer, named(&["alpha", "gamma", "delta"]));
    let handle = Handle { conn: beta, number: transfer };
    if rides {
        site.store.request(beta, StoreRequest::Park { handle, data: BODY.into() });
    }
    let body = rides.then_some(handle);
    site.input(Input::Session(beta, SessionEvent::Offered { offer: Box::new(offer), body }));
    site.settle();
}

fn acks(site: &mut Site) -> Vec<(ConnId, Promise)> {
    let promises = site.promises().into_iter();
    promises.filter(|(_, promise)| matches!(promise, Promise::Ack { .. })).collect()
}

/// The content that was asked for last arrives.
fn arrives(site: &mut Site, beta: ConnId, transfer: u32) {
    let (blob, ..) = site::accepted(site);
    site::write(site, beta, blob, 0, BODY);
    site.store.request(beta, StoreRequest::Finish { blob });
    let transfer = TransferNo(transfer);
    site.input(Input::Session(beta, SessionEvent::Received { transfer, blob }));
    site.settle();
}

/// Beta has brought this for gamma and delta, in a file or in the ledger.
fn brought(site: &mut Site, name: &str, rides: bool) -> SegmentId {
    let beta = site.session("beta");
    site.settle();
    offers(site, beta, (name, 1), rides);
    if !rides {
        arrives(site, beta, 1);
    }
    site.promises();
    Site::make_offer(name, BODY, 1, named(&["alpha", "gamma", "delta"])).id
}

/// An attempt to send to gamma ends so.
fn ends(site: &mut Site, gamma: ConnId, id: SegmentId, outcome: &Outcome) {
    site.settle();
    let (_, sending) = site.sendings().into_iter().find(|(_, s)| s.offer.id == id).unwrap();
    site.outcome(gamma, sending.offer.transfer, outcome.clone());
    site.settle();
    site.wait(Duration::from_secs(20));
}

fn mismatches_twice(site: &mut Site, id: SegmentId) {
    let gamma = site.session("gamma");
    for _ in 0..2 {
        ends(site, gamma, id, &Site::rejected(Refusal::Mismatch));
    }
    let row = site.delivery(id, "gamma").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Mismatch.number()));
}

/// A site with content that beta has brought and gamma has found wrong, before it has looked itself.
fn doubted(rides: bool) -> (Site, SegmentId) {
    let mut site = Site::new(&["beta", "gamma", "delta"]);
    site.settle();
    site.hold_scrubs = true;
    let id = brought(&mut site, "one", rides);
    mismatches_twice(&mut site, id);
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Doubted));
    assert_eq!(site.pump.node().status(site.now).scrub.damaged, 1);
    assert_eq!(findings(&site.store), []);
    (site, id)
}

/// The site has looked.
fn looks(site: &mut Site) {
    site.let_go();
    site.settle();
}

fn acts(site: &Site, action: &str) -> usize {
    let mut count = 0;
    let mut visit = |key: &[u8], value: &[u8]| {
        let row: AuditRow = codec::decode(Table::Audit, key, value).unwrap();
        count += usize::from(row.action == action);
        true
    };
    site.store.snapshot().scan(Table::Audit, &[], &mut visit).unwrap();
    count
}

fn leads(site: &Site, id: SegmentId) -> Option<BlobNo> {
    let digest = site.segment(id).unwrap().digest;
    let snapshot = site.store.snapshot();
    let row = consign_core::ledger::read::row(&snapshot, Table::Digests, &digest.0).unwrap();
    row.map(|row: consign_core::ledger::rows::DigestRow| row.blob)
}

fn rot(site: &mut Site, id: SegmentId) {
    match site.segment(id).unwrap().body {
        Body::Inline(number) => assert!(site.store.flip(Table::Bodies, &keys::body(number), 2)),
        Body::Blob(blob) => site.store.plant_file(blob, b"something else"),
    }
}

fn is_whole(site: &Site, id: SegmentId) {
    assert_eq!(site.segment(id).unwrap().loss, None);
    let scrub = site.pump.node().status(site.now).scrub;
    assert_eq!((scrub.damaged, scrub.corrupt), (0, 0));
    assert_eq!(findings(&site.store), []);
    site.audit();
}

fn reaches_delta(site: &mut Site, id: SegmentId) {
    let delta = site.session("delta");
    site.settle();
    let (_, sending) = site.sendings().pop().expect("it is offered to the others");
    assert_eq!(sending.offer.id, id);
    site.outcome(delta, sending.offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.delivery(id, "delta").unwrap().state, State::Acked);
}

#[test]
fn what_one_peer_finds_wrong_goes_to_the_others_and_is_cleared() {
    for rides in [true, false] {
        for early in [true, false] {
            let (mut site, id) = doubted(rides);
            if early {
                reaches_delta(&mut site, id);
            }
            looks(&mut site);
            is_whole(&site, id);
            assert_eq!(acts(&site, "cleared"), 1);
            if !early {
                reaches_delta(&mut site, id);
            }
            // Whoever offers it is answered at once again, and the file is shared again.
            let beta = site.session("beta");
            site.settle();
            offers(&mut site, beta, ("one", 7), false);
            let ack = Promise::Ack { transfer: TransferNo(7), id };
            assert_eq!(acks(&mut site), [(beta, ack)]);
            let Body::Blob(blob) = site.segment(id).unwrap().body else { continue };
            assert_eq!(leads(&site, id), Some(blob));
            // Once is enough.
            let seen = site.pump.node().status(site.now).scrub.items;
            site.wait(Duration::from_secs(60));
            assert_eq!(site.pump.node().status(site.now).scrub.items, seen);
        }
    }
}

#[test]
fn what_could_not_be_read_once_is_cleared_too() {
    let mut site = Site::new(&["beta", "gamma", "delta"]);
    site.settle();
    let id = brought(&mut site, "one", false);
    let fault = StoreFault::Io("input/output error".into());
    let gamma = site.session("gamma");
    ends(&mut site, gamma, id, &Outcome::Unreadable(fault));
    is_whole(&site, id);
    assert_eq!((leads(&site, id).is_some(), acts(&site, "cleared")), (true, 1));
    assert_ne!(site.delivery(id, "gamma").unwrap().state, State::Deadletter);
}

#[test]
fn what_is_really_wrong_is_gone_and_wanted_at_once() {
    for rides in [true, false] {
        let mut site = Site::new(&["beta", "gamma", "delta"]);
        site.settle();
        let id = brought(&mut site, "one", rides);
        rot(&mut site, id);
        mismatches_twice(&mut site, id);
        assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
        let dead = site.delivery(id, "delta").unwrap();
        assert_eq!((dead.state, dead.last_error), (State::Deadletter, Cause::Corrupt.number()));
        let told = site.notes.iter().filter(|n| matches!(n, Note::Quarantined { .. })).count();
        assert_eq!((told, acts(&site, "cleared")), (1, 0));
        let beta = site.session("beta");
        site.settle();
        let wants = site.take_told(beta).into_iter().filter(|command| {
            matches!(command, SessionCommand::Promised(promised)
                if matches!(promised.clone().into_inner(), Promise::Want { .. }))
        });
        assert_eq!(wants.count(), 1);
        assert_eq!(findings(&site.store), []);
        site.audit();
    }
}

/// A local client, or an inbox rule, was to be given it.
#[test]
fn what_is_read_wrong_here_is_doubted_and_looked_at_soon() {
    for (bad, rides) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut site = Site::new(&["beta", "gamma", "delta"]);
        site.settle();
        site.hold_scrubs = true;
        let id = brought(&mut site, "one", rides);
        if bad {
            rot(&mut site, id);
        }
        let (seq, _) = site.found(id).unwrap();
        let client = site.client();
        site.input(Input::Session(client, SessionEvent::Corrupt(seq)));
        site.settle();
        assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Doubted));
        // Nothing is promised on the strength of it meanwhile.
        let beta = site.session("beta");
        site.settle();
        offers(&mut site, beta, ("one", 7), false);
        assert_eq!(acks(&mut site), []);
        looks(&mut site);
        if bad {
            assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
            assert_eq!(site.pump.node().status(site.now).scrub.corrupt, 1);
        } else {
            assert_eq!(acts(&site, "cleared"), 1);
            assert_eq!(site.segment(id).unwrap().loss, None);
        }
        // Of what is gone nobody is told again.
        site.input(Input::Session(client, SessionEvent::Corrupt(seq)));
        looks(&mut site);
        assert_eq!(site.pump.node().status(site.now).scrub.corrupt, u64::from(bad));
        assert_eq!(findings(&site.store), []);
    }
}

#[test]
fn a_restart_in_between_looks_all_the_same() {
    for bad in [true, false] {
        for rides in [true, false] {
            let (mut site, id) = doubted(rides);
            if bad {
                rot(&mut site, id);
            }
            let mut site = site.restart();
            site.settle();
            match bad {
                true => assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone)),
                false => is_whole(&site, id),
            }
            assert_eq!(findings(&site.store), []);
        }
    }
}

#[test]
fn all_who_share_it_are_cleared_in_one_commit() {
    let mut site = Site::new(&["beta", "gamma", "delta"]);
    site.settle();
    let first = brought(&mut site, "one", false);
    let second = brought(&mut site, "two", true);
    let third = brought(&mut site, "three", false);
    // The second has a body of its own, and is not doubted.
    assert_eq!(site.segment(first).unwrap().body, site.segment(third).unwrap().body);
    site.hold_scrubs = true;
    mismatches_twice(&mut site, first);
    mismatches_twice(&mut site, third);
    assert_eq!(site.segment(second).unwrap().loss, None);
    assert_eq!(site.segment(third).unwrap().loss, Some(Loss::Doubted));
    looks(&mut site);
    assert_eq!(acts(&site, "cleared"), 2);
    for id in [first, second, third] {
        is_whole(&site, id);
    }
    assert!(leads(&site, first).is_some());
}

#[test]
fn a_late_answer_changes_nothing_of_what_was_brought_again() {
    for bad in [true, false] {
        for rides in [true, false] {
            let mut site = Site::new(&["beta", "gamma", "delta"]);
            site.settle();
            site.hold_scrubs = true;
            let id = brought(&mut site, "one", rides);
            if bad {
                rot(&mut site, id);
            }
            mismatches_twice(&mut site, id);
            let before = site.segment(id).unwrap().body;
            let beta = site.session("beta");
            site.settle();
            offers(&mut site, beta, ("one", 9), rides);
            if !rides {
                arrives(&mut site, beta, 9);
            }
            let mended = site.segment(id).unwrap();
            assert_eq!(mended.loss, None);
            assert_ne!(mended.body, before);
            looks(&mut site);
            assert_eq!(site.segment(id).unwrap(), mended);
            assert_eq!((acts(&site, "repaired"), acts(&site, "cleared")), (1, 0));
            is_whole(&site, id);
        }
    }
}

#[test]
fn what_was_found_before_the_last_doubt_counts_no_more() {
    let (mut site, id) = doubted(false);
    // It was whole when it was looked at, and is not now.
    rot(&mut site, id);
    let delta = site.session("delta");
    site.settle();
    let (_, sending) = site.sendings().pop().unwrap();
    let fault = StoreFault::Io("input/output error".into());
    site.outcome(delta, sending.offer.transfer, Outcome::Unreadable(fault));
    site.settle();
    looks(&mut site);
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
    assert_eq!(acts(&site, "cleared"), 0);
    assert_eq!(findings(&site.store), []);
}

#[test]
fn what_cannot_be_read_stays_doubted_until_the_next_pass() {
    let (mut site, id) = doubted(false);
    let (seq, _) = site.found(id).unwrap();
    for held in &mut site.held {
        let Input::Scrubbed { unread, .. } = held else { continue };
        unread.push(seq);
    }
    looks(&mut site);
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Doubted));
    site.wait(Duration::from_secs(3600));
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Doubted), "not over and over");
    site.wait(Duration::from_secs(25 * 3600));
    is_whole(&site, id);
}

#[test]
fn a_commit_that_fails_leaves_it_doubted_and_it_is_looked_at_again() {
    let (mut site, id) = doubted(false);
    site.store.fail_commit(1, CommitFault::Full("no space left".into()));
    looks(&mut site);
    site.wait(Duration::from_secs(60));
    is_whole(&site, id);
    assert!(leads(&site, id).is_some());
    assert_eq!(acts(&site, "cleared"), 1);
}

#[test]
fn a_digest_that_leads_to_newer_content_is_left_alone() {
    let (mut site, id) = doubted(false);
    let second = brought(&mut site, "two", false);
    let newer = site.segment(second).unwrap().body;
    assert_ne!(newer, site.segment(id).unwrap().body);
    looks(&mut site);
    is_whole(&site, id);
    assert_eq!(leads(&site, id).map(Body::Blob), Some(newer));
}

#[test]
fn what_comes_again_while_it_is_cleared_is_acknowledged_and_leaves_nothing() {
    let (mut site, id) = doubted(false);
    let beta = site.session("beta");
    site.settle();
    offers(&mut site, beta, ("one", 9), false);
    looks(&mut site);
    is_whole(&site, id);
    arrives(&mut site, beta, 9);
    let ack = Promise::Ack { transfer: TransferNo(9), id };
    assert_eq!(acks(&mut site), [(beta, ack)]);
    assert_eq!(site.store.files().count(), 1);
    is_whole(&site, id);
}
