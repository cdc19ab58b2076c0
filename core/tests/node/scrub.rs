//! The scrub: what is wrong with content at rest is found, marked alone, and never sent.

use std::time::Duration;

use consign_core::code::Cause;
use consign_core::id::{BlobNo, SegmentId};
use consign_core::ledger::rows::*;
use consign_core::ledger::{Table, keys};
use consign_core::node::Note;
use consign_core::segment::{Class, Destinations};
use consign_core::store::StoreRequest;

use crate::site::{self, Site, findings};

fn body_of(site: &Site, id: SegmentId) -> Body {
    site.segment(id).unwrap().body
}

fn rot(site: &mut Site, id: SegmentId) {
    match body_of(site, id) {
        Body::Inline(number) => assert!(site.store.flip(Table::Bodies, &keys::body(number), 2)),
        Body::Blob(blob) => site.store.plant_file(blob, b"something else"),
    }
}

/// Content of a peer in a file, to be forwarded to gamma.
fn large(site: &mut Site, name: &str, transfer: u32) -> (SegmentId, BlobNo) {
    let beta = site.session("beta");
    site.settle();
    let to = Destinations::named(vec!["alpha".into(), "gamma".into()]).unwrap();
    let body = b"large content";
    let offer = Site::make_offer(name, body, transfer, to);
    let event =
        consign_core::session::SessionEvent::Offered { offer: Box::new(offer.clone()), body: None };
    site.input(consign_core::node::Input::Session(beta, event));
    site.settle();
    let (blob, ..) = site::accepted(site);
    site::write(site, beta, blob, 0, body);
    site.store.request(beta, StoreRequest::Finish { blob });
    let transfer = offer.transfer;
    let event = consign_core::session::SessionEvent::Received { transfer, blob };
    site.input(consign_core::node::Input::Session(beta, event));
    site.settle();
    let Body::Blob(blob) = body_of(site, offer.id) else { panic!("in a file") };
    (offer.id, blob)
}

const DAY: Duration = Duration::from_secs(25 * 3600);

#[test]
fn a_flipped_bit_costs_its_segment_and_nobody_else() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let ids: Vec<SegmentId> = (0..5).map(|i| site.queue(&format!("f{i}"), &["beta"])).collect();
    site.wait(DAY);
    assert_eq!(site.pump.node().status(site.now).scrub.corrupt, 0);
    let bad = ids[2];
    rot(&mut site, bad);
    site.wait(DAY);
    let status = site.pump.node().status(site.now);
    assert_eq!((status.scrub.corrupt, status.scrub.last), (1, Some(site.now.wall)));
    assert!(status.scrub.items >= 10 && status.scrub.bytes > 0, "{:?}", status.scrub);
    let row = site.delivery(bad, "beta").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Corrupt.number()));
    assert_eq!(site.segment(bad).unwrap().loss, Some(Loss::Gone));
    let told = site.notes.iter().filter(|n| matches!(n, Note::Quarantined { .. })).count();
    assert_eq!(told, 1);
    site.session("beta");
    site.settle();
    let sent: Vec<SegmentId> = site.sendings().into_iter().map(|(_, s)| s.offer.id).collect();
    assert_eq!(sent.len(), 4);
    assert!(!sent.contains(&bad), "it was sent");
    assert_eq!(findings(&site.store), []);
    // Once is enough.
    site.wait(DAY);
    assert_eq!(site.pump.node().status(site.now).scrub.corrupt, 1);
    site.audit();
}

#[test]
fn everybody_who_shares_a_damaged_file_is_marked_in_one_commit() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.settle();
    let (one, blob) = large(&mut site, "one", 1);
    let (two, same) = large(&mut site, "two", 1);
    assert_eq!(blob, same, "one file for both");
    let whole = site.queue("whole", &["gamma"]);
    site.store.plant_file(blob, b"large c0ntent");
    site.wait(DAY);
    for id in [one, two] {
        assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
        let row = site.delivery(id, "gamma").unwrap();
        assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Corrupt.number()));
    }
    assert_eq!(site.segment(whole).unwrap().loss, None);
    assert_eq!(site.delivery(whole, "gamma").unwrap().state, State::Scheduled);
    // Whoever brings it again is not answered "held": it is taken anew.
    let (again, anew) = large(&mut site, "one", 1);
    assert_eq!(again, one);
    assert_eq!(anew, blob, "the oldest row of that id still names the damaged file");
    assert_eq!(site.store.rows(Table::Blobs), 2);
    assert_eq!(findings(&site.store), []);
}

#[test]
fn content_that_is_gone_is_found_by_the_scrub_as_well() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.settle();
    let (id, blob) = large(&mut site, "one", 1);
    assert!(site.store.lose_file(blob));
    site.wait(DAY);
    let row = site.delivery(id, "gamma").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Missing.number()));
    assert_eq!(findings(&site.store), []);
}

#[test]
fn a_pass_goes_on_where_the_last_run_stopped_and_rests_a_day_after_its_end() {
    let mut site = Site::new(&["beta"]);
    for i in 0..600 {
        let client = site.client();
        site.submit(client, i, &format!("f{i}"), &["beta"], Class::Bulk);
    }
    site.settle();
    let first = site.pump.node().status(site.now).scrub;
    assert!(first.items >= 600, "{first:?}");
    assert_eq!((first.last, first.running), (Some(site.now.wall), false));
    let mut site = site.restart();
    site.settle();
    let again = site.pump.node().status(site.now).scrub;
    assert_eq!((again.items, again.last), (0, first.last), "not before a day is over");
    site.wait(DAY);
    assert_eq!(site.pump.node().status(site.now).scrub.items, 600);
}

#[test]
fn what_was_marked_in_a_commit_that_failed_is_found_again() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let id = site.queue("one", &["beta"]);
    site.wait(DAY);
    rot(&mut site, id);
    let full = consign_core::store::CommitFault::Full("no space left".into());
    site.store.fail_commit(1, full);
    site.wait(DAY);
    site.wait(Duration::from_secs(60));
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Deadletter);
    assert_eq!(findings(&site.store), []);
}

#[test]
fn a_row_that_cannot_be_read_leaves_its_bytes_in_quarantine() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let bad = site.queue("bad", &["beta"]);
    site.queue("good", &["beta"]);
    let seq = {
        let held = site
            .store
            .read(&consign_core::ledger::read::ReadRequest::Segments { after: None, limit: 1 });
        let consign_core::ledger::read::Answer::Segments { rows, .. } = held.unwrap().body else {
            panic!("segments")
        };
        rows[0].0
    };
    assert!(site.segment(bad).is_some());
    let key = keys::delivery(seq, site.site("beta"));
    assert!(site.store.flip(Table::Deliveries, &key, 4));
    let mut site = site.restart();
    site.settle();
    site.session("beta");
    site.settle();
    assert_eq!(site.sendings().len(), 1, "its neighbour goes on");
    assert_eq!(site.store.rows(Table::Quarantine), 1);
    assert_eq!(site.pump.node().status(site.now).quarantined, 1);
    let site = site.restart();
    assert_eq!(site.pump.node().status(site.now).quarantined, 1, "counted anew at the start");
}
