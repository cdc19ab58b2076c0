//! The scrub: what is wrong with content at rest is found, marked alone, and never sent.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::id::{BlobNo, ConnId, Handle, SegmentId, TransferNo};
use consign_core::ledger::rows::*;
use consign_core::ledger::{Table, keys};
use consign_core::node::{Input, Note, ReconcileSummary};
use consign_core::segment::{Class, Destinations};
use consign_core::session::{Broken, Outcome, Promise, SessionCommand, SessionEvent};
use consign_core::store::{StoreFault, StoreRequest};
use consign_core::wire::Wanted;

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
    let event = SessionEvent::Offered { offer: Box::new(offer.clone()), body: None };
    site.input(Input::Session(beta, event));
    site.settle();
    let (blob, ..) = site::accepted(site);
    site::write(site, beta, blob, 0, body);
    site.store.request(beta, StoreRequest::Finish { blob });
    let transfer = offer.transfer;
    let event = SessionEvent::Received { transfer, blob };
    site.input(Input::Session(beta, event));
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
    let scrub = site.pump.node().status(site.now).scrub;
    assert_eq!((scrub.corrupt, scrub.damaged), (1, 1));
    site.audit();
    // Another life knows of it without having found it.
    let mut site = site.restart();
    site.wait(Duration::from_secs(60));
    let scrub = site.pump.node().status(site.now).scrub;
    assert_eq!((scrub.corrupt, scrub.damaged), (0, 1));
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

/// What a connection was asked for since the last look.
fn wants(site: &mut Site, conn: ConnId) -> Vec<(TransferNo, SegmentId)> {
    let told = site.take_told(conn).into_iter();
    let wants = told.filter_map(|command| match command {
        SessionCommand::Promised(promised) => match promised.into_inner() {
            Promise::Want { transfer, what: Wanted::Segment(id) } => Some((transfer, id)),
            _ => None,
        },
        _ => None,
    });
    wants.collect()
}

fn offered(site: &mut Site, conn: ConnId, name: &str, transfer: u32, body: &[u8], to: &[&str]) {
    let names = to.iter().map(|name| name.to_string()).collect();
    let offer = Site::make_offer(name, body, transfer, Destinations::named(names).unwrap());
    let event = SessionEvent::Offered { offer: Box::new(offer), body: None };
    site.input(Input::Session(conn, event));
    site.settle();
}

/// Takes in what was offered last, and says what was promised for it.
fn arrives(site: &mut Site, conn: ConnId, transfer: u32, body: &[u8]) -> Vec<Promise> {
    let (blob, ..) = site::accepted(site);
    site::write(site, conn, blob, 0, body);
    site.store.request(conn, StoreRequest::Finish { blob });
    let transfer = TransferNo(transfer);
    site.input(Input::Session(conn, SessionEvent::Received { transfer, blob }));
    site.settle();
    site.promises().into_iter().map(|(_, promise)| promise).collect()
}

/// The segment "small" comes from beta as it was wanted, and its body with the offer.
fn small_arrives(site: &mut Site, conn: ConnId, id: SegmentId) {
    let body = b"content of small";
    let to = Destinations::named(vec!["beta".into()]).unwrap();
    let offer = Site::make_offer("small", body, 5, to);
    assert_eq!(offer.id, id);
    let handle = Handle { conn, number: 5 };
    site.store.request(conn, StoreRequest::Park { handle, data: body.to_vec().into() });
    let event = SessionEvent::Offered { offer: Box::new(offer), body: Some(handle) };
    site.input(Input::Session(conn, event));
    site.settle();
}

#[test]
fn damaged_content_is_fetched_again_from_whoever_gave_it() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.settle();
    let content = b"large content";
    let (one, blob) = large(&mut site, "one", 1);
    let (two, same) = large(&mut site, "two", 1);
    assert_eq!(blob, same);
    site.store.plant_file(blob, b"large c0ntent");
    site.wait(DAY);
    assert_eq!(site.segment(one).unwrap().loss, Some(Loss::Gone));
    // The session that was there, or the next one, is asked, once for each segment.
    let beta = site.session("beta");
    site.settle();
    let asked = wants(&mut site, beta);
    assert_eq!(asked.len(), 2, "{asked:?}");
    site.settle();
    assert_eq!(wants(&mut site, beta), [], "once in a session");
    let (_, first) = asked[0];
    let name = if first == one { "one" } else { "two" };
    offered(&mut site, beta, name, 9, content, &["beta"]);
    let promised = arrives(&mut site, beta, 9, content);
    let ack = Promise::Ack { transfer: TransferNo(9), id: first };
    assert!(promised.contains(&ack), "{promised:?}");
    // One transfer repairs everybody who shared it.
    for id in [one, two] {
        let row = site.segment(id).unwrap();
        assert_eq!(row.loss, None);
        assert_ne!(row.body, Body::Blob(blob));
        let dead = site.delivery(id, "gamma").unwrap();
        assert_eq!(dead.state, State::Deadletter, "it waits for an operator");
    }
    let files: Vec<BlobNo> = site.store.files().map(|(blob, _)| blob).collect();
    assert_eq!(files.len(), 1, "the damaged one is gone: {files:?}");
    assert_eq!(findings(&site.store), []);
    // Whoever offers it is answered "held" again.
    offered(&mut site, beta, "two", 10, content, &["alpha", "gamma"]);
    let promised = site.promises();
    assert!(matches!(promised[0].1, Promise::Ack { .. }), "{promised:?}");
    assert_eq!(findings(&site.store), []);
}

#[test]
fn a_small_segment_is_fetched_again_from_a_peer_that_has_acked_it() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let beta = site.session("beta");
    site.settle();
    let id = site.queue("small", &["beta"]);
    let (conn, sending) = site.sendings().pop().unwrap();
    site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    site.settle();
    rot(&mut site, id);
    site.wait(DAY);
    let beta = match wants(&mut site, beta) {
        asked if asked.is_empty() => {
            let beta = site.session("beta");
            site.settle();
            assert_eq!(wants(&mut site, beta).len(), 1);
            beta
        }
        _ => beta,
    };
    small_arrives(&mut site, beta, id);
    assert_eq!(site.segment(id).unwrap().loss, None);
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Acked, "as it was");
    assert_eq!(site.store.rows(Table::Bodies), 1);
    assert_eq!(site.store.rows(Table::Audit), 1);
    assert_eq!(findings(&site.store), []);
    site.audit();
}

#[test]
fn who_says_no_is_not_asked_again_and_a_new_session_is() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.settle();
    let (id, blob) = large(&mut site, "one", 1);
    assert!(site.store.lose_file(blob));
    site.wait(DAY);
    let beta = site.session("beta");
    site.settle();
    let asked = wants(&mut site, beta);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].1, id);
    // It ends before it has answered: the next one is asked.
    site.input(Input::Closed { conn: beta, why: String::new() });
    site.settle();
    let beta = site.session("beta");
    site.settle();
    let asked = wants(&mut site, beta);
    assert_eq!(asked.len(), 1);
    site.outcome(beta, asked[0].0, Site::rejected(Refusal::Unknown));
    site.settle();
    assert_eq!(wants(&mut site, beta), []);
    let beta = site.session("beta");
    site.settle();
    assert_eq!(wants(&mut site, beta), [], "it has said no");
    // … until the next start, when it may have it again.
    let mut site = site.restart();
    site.settle();
    let beta = site.session("beta");
    site.settle();
    assert_eq!(wants(&mut site, beta).len(), 1);
    // A commit that fails loses nothing of it.
    offered(&mut site, beta, "one", 3, b"large content", &["beta"]);
    let (blob, ..) = site::accepted(&mut site);
    site::write(&mut site, beta, blob, 0, b"large content");
    site.store.request(beta, StoreRequest::Finish { blob });
    let full = consign_core::store::CommitFault::Full("no space left".into());
    site.store.fail_commit(1, full);
    let transfer = TransferNo(3);
    site.input(Input::Session(beta, SessionEvent::Received { transfer, blob }));
    site.settle();
    site.wait(Duration::from_secs(60));
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
    assert_eq!(findings(&site.store), []);
    // It is wanted still: after a while it is asked for again, in the same session.
    site.wait(Duration::from_secs(1_000));
    assert_eq!(wants(&mut site, beta).len(), 1);
    offered(&mut site, beta, "one", 4, b"large content", &["beta"]);
    assert_eq!(arrives(&mut site, beta, 4, b"large content").len(), 1);
    assert_eq!(site.segment(id).unwrap().loss, None);
    site.wait(Duration::from_secs(1_000));
    assert_eq!(wants(&mut site, beta), []);
    assert_eq!(findings(&site.store), []);
}

#[test]
fn wrong_content_changes_nothing_and_another_peer_is_asked() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.settle();
    let (id, blob) = large(&mut site, "one", 1);
    site.session("gamma");
    site.settle();
    let (conn, sending) = site.sendings().pop().unwrap();
    site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    site.settle();
    site.store.plant_file(blob, b"large c0ntent");
    site.wait(DAY);
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
    let mut site = site.restart();
    site.settle();
    let bad = site.session("beta");
    site.settle();
    assert_eq!(wants(&mut site, bad).len(), 1, "who gave it comes first");
    let good = site.session("gamma");
    site.settle();
    assert_eq!(wants(&mut site, good), [], "one is asked at a time");
    let (by, from) = ("beta", "gamma");
    // What nobody has asked this peer for is refused, and so is content of another digest.
    offered(&mut site, good, "one", 7, b"large content", &[from]);
    let refused =
        |told: &[SessionCommand]| told.iter().any(|c| matches!(c, SessionCommand::Refuse { .. }));
    assert!(refused(&site.take_told(good)));
    offered(&mut site, bad, "one", 7, b"other content", &[by]);
    assert!(refused(&site.take_told(bad)));
    assert_eq!(site.segment(id).unwrap().body, Body::Blob(blob));
    assert!(site.store.files().any(|(file, _)| file == blob), "what is left of it stays");
    // The right one is promised, and something else comes.
    offered(&mut site, bad, "one", 8, b"large content", &[by]);
    let (new, ..) = site::accepted(&mut site);
    let (transfer, why) = (TransferNo(8), Broken::Mismatch);
    site.input(Input::Session(bad, SessionEvent::Broken { transfer, blob: new, why }));
    site.settle();
    assert_eq!(site.segment(id).unwrap().body, Body::Blob(blob));
    assert_eq!(wants(&mut site, bad), []);
    assert_eq!(wants(&mut site, good).len(), 1, "now the other one is asked");
    offered(&mut site, good, "one", 9, b"large content", &[from]);
    let promised = arrives(&mut site, good, 9, b"large content");
    assert_eq!(promised, [Promise::Ack { transfer: TransferNo(9), id }]);
    assert_eq!(site.segment(id).unwrap().loss, None);
    assert_eq!(site.delivery(id, "gamma").unwrap().state, State::Acked);
    assert_eq!(findings(&site.store), []);
    site.audit();
}

#[test]
fn content_is_offered_only_to_those_who_gave_it_or_got_it() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.settle();
    let (id, _) = large(&mut site, "one", 1);
    let digest = site.segment(id).unwrap().digest;
    let beta = site.session("beta");
    let gamma = site.session("gamma");
    site.settle();
    let attempt = site.sendings();
    assert_eq!(attempt.len(), 1, "it is in flight to gamma, which has not got it yet");
    let want = |what| SessionEvent::Want { transfer: TransferNo(4), what };
    for what in [Wanted::Segment(id), Wanted::Blob(digest)] {
        site.input(Input::Session(beta, want(what)));
        site.settle();
        let (conn, sending) = site.sendings().pop().expect("it gave it, so it gets it back");
        assert_eq!((conn, sending.offer.id), (beta, id));
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
        site.take_told(gamma);
        site.input(Input::Session(gamma, want(what)));
        site.settle();
        let told = site.take_told(gamma);
        let refused = told.iter().any(|command| {
            matches!(command, SessionCommand::Refuse { refusal: Refusal::Unknown, .. })
        });
        assert!(refused && site.sendings().is_empty(), "{told:?}");
    }
    site.outcome(gamma, attempt[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    site.input(Input::Session(gamma, want(Wanted::Segment(id))));
    site.settle();
    assert_eq!(site.sendings().len(), 1, "now it has it");
    site.input(Input::Session(gamma, want(Wanted::Segment(SegmentId([9; 32])))));
    site.settle();
    assert!(site.sendings().is_empty());
    site.audit();
}

fn summary(site: &Site) -> ReconcileSummary {
    let told = site.notes.iter().find_map(|note| match note {
        Note::Reconciled(summary) => Some(*summary),
        _ => None,
    });
    told.expect("the start is over")
}

/// A small segment that beta has, and whose content could not be read when it went to gamma.
fn doubted(site: &mut Site) -> SegmentId {
    site.hold_scrubs = true;
    let id = site.queue("small", &["beta", "gamma"]);
    for (peer, outcome) in [
        ("beta", Outcome::Acked),
        ("gamma", Outcome::Unreadable(StoreFault::Io("input/output error".into()))),
    ] {
        site.session(peer);
        site.settle();
        let (conn, sending) = site.sendings().pop().unwrap();
        site.outcome(conn, sending.offer.transfer, outcome);
        site.settle();
    }
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Doubted));
    id
}

#[test]
fn what_was_mended_while_the_start_looked_is_not_given_up() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.settle();
    let id = doubted(&mut site);
    let before = body_of(&site, id);
    let mut site = site.restart();
    site.hold_checks = true;
    site.settle();
    let beta = site.session("beta");
    site.settle();
    assert_eq!(wants(&mut site, beta).len(), 1);
    small_arrives(&mut site, beta, id);
    let row = site.segment(id).unwrap();
    assert_eq!(row.loss, None, "it is mended");
    assert_ne!(row.body, before, "the old content went when the new one came");
    site.let_go();
    site.settle();
    assert_eq!(site.segment(id).unwrap().loss, None, "content that is there is given up");
    assert_eq!(site.pump.node().status(site.now).scrub.damaged, 0);
    assert_eq!(summary(&site).missing, 0);
    assert_eq!(findings(&site.store), []);
}
