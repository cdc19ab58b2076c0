//! Taking content from peers and large content from local clients.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::hash::Hasher;
use consign_core::id::{BlobNo, ConnId, SegmentId, TransferNo};
use consign_core::ledger::Table;
use consign_core::ledger::rows::Body;
use consign_core::limits::CHECKPOINT_EVERY;
use consign_core::node::Input;
use consign_core::segment::Destinations;
use consign_core::session::{
    Broken, Content, Outcome, Promise, SessionCommand, SessionEvent, Submission,
};
use consign_core::store::{StoreEvent, StoreFault, StoreRequest};

use crate::site::{Site, accepted, offer_blob, offer_inline, recovery, to_alpha, write};

/// A local client that has been granted room, and the file it may write.
fn reserved(site: &mut Site, size: Option<u64>) -> (ConnId, BlobNo) {
    let client = site.client();
    let reserve = SessionEvent::Reserve { ticket: TransferNo(1), size };
    site.input(Input::Session(client, reserve));
    site.settle();
    let (blob, _, _) = accepted(site);
    (client, blob)
}

/// A file that cannot be removed now is removed later; until then its bytes stay charged.
#[test]
fn a_file_that_cannot_be_removed_is_tried_again() {
    let mut site = Site::new(&["beta"]);
    let (client, blob) = reserved(&mut site, Some(1 << 20));
    write(&mut site, client, blob, 0, &[1; 10]);
    site.store.request(client, StoreRequest::Abandon { blob });
    let broken = SessionEvent::Broken { transfer: TransferNo(1), blob, why: Broken::Cut };
    site.fail_unlinks = 2;
    site.input(Input::Session(client, broken));
    site.settle();
    assert_eq!(recovery(&site.store).doomed.len(), 1);
    assert_eq!(site.pump.node().status(site.now).used, 1 << 20);
    for left in [1, 0] {
        site.wait(Duration::from_secs(61));
        site.settle();
        assert_eq!(recovery(&site.store).doomed.len(), left);
    }
    assert_eq!(site.pump.node().status(site.now).used, 0);
    assert_eq!(site.store.files().count(), 0);
    site.audit();
}

#[test]
fn a_small_segment_is_acked_after_its_commit() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let offer = offer_inline(&mut site, conn, 1, "one", to_alpha());
    site.turn();
    site.turn();
    assert!(site.has_batch() && site.take_told(conn).is_empty());
    site.commit();
    site.turn();
    let (_, promise) = site.promises().pop().unwrap();
    assert_eq!(promise, Promise::Ack { transfer: TransferNo(1), id: offer.id });
    assert!(site.segment(offer.id).unwrap().here);
    site.settle();
    site.audit();
}

#[test]
fn a_duplicate_is_acked_again_without_a_second_charge() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    offer_inline(&mut site, conn, 1, "one", to_alpha());
    offer_inline(&mut site, conn, 2, "one", to_alpha());
    site.settle();
    assert_eq!(site.promises().len(), 2);
    offer_inline(&mut site, conn, 3, "one", to_alpha());
    let commits = site.store.commits();
    site.settle();
    assert_eq!(site.promises().len(), 1);
    assert_eq!(site.store.commits(), commits, "no write");
    assert_eq!((site.store.rows(Table::Segments), site.store.parked()), (1, 0));
    site.audit();
}

#[test]
fn a_site_on_the_way_hands_on_and_one_that_is_not_refuses() {
    let mut site = Site::new(&["beta", "gamma"]);
    let conn = site.session("beta");
    site.settle();
    let gamma = Destinations::named(vec!["gamma".into()]).unwrap();
    let offer = offer_inline(&mut site, conn, 1, "one", gamma);
    site.settle();
    assert!(!site.segment(offer.id).unwrap().here);
    assert!(site.delivery(offer.id, "gamma").is_some());
    assert!(site.delivery(offer.id, "beta").is_none(), "never back to where it came from");
    site.take_told(conn);
    let delta = Destinations::named(vec!["delta".into()]).unwrap();
    offer_inline(&mut site, conn, 2, "two", delta);
    site.settle();
    let told = site.take_told(conn);
    assert!(matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::NotAddressed, .. }]));
    assert_eq!(site.store.parked(), 0);
    site.audit();
}

#[test]
fn the_file_is_created_only_after_the_reservation_is_durable() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let body = vec![7u8; 100_000];
    let offer = offer_blob(&mut site, conn, 1, &body);
    site.turn();
    site.turn();
    assert!(site.has_batch() && site.promises().is_empty());
    site.commit();
    site.turn();
    let (blob, offset, _) = accepted(&mut site);
    assert_eq!(offset, 0);
    assert_eq!(recovery(&site.store).incoming[0].1.reserved, 100_000);
    write(&mut site, conn, blob, 0, &body);
    let done = site.store.request(conn, StoreRequest::Finish { blob });
    assert_eq!(done, Some(StoreEvent::Finished { blob, size: 100_000 }));
    site.input(Input::Session(conn, SessionEvent::Received { transfer: TransferNo(1), blob }));
    site.settle();
    assert!(matches!(site.promises()[..], [(_, Promise::Ack { .. })]));
    assert_eq!(site.segment(offer.id).unwrap().body, Body::Blob(blob));
    assert_eq!((site.store.rows(Table::Incoming), site.store.rows(Table::Blobs)), (0, 1));
    site.audit();
}

/// A number is used for one file only: what a crash left of an attempt without a checkpoint goes away,
/// and the next attempt gets a number of its own.
#[test]
fn an_attempt_without_a_checkpoint_begins_anew_after_a_restart() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let body = vec![7u8; 100_000];
    offer_blob(&mut site, conn, 1, &body);
    site.settle();
    let (first, _, _) = accepted(&mut site);
    write(&mut site, conn, first, 0, &body[..50_000]);
    let mut site = site.restart();
    let conn = site.session("beta");
    offer_blob(&mut site, conn, 1, &body);
    site.settle();
    let (second, offset, _) = accepted(&mut site);
    assert!(second != first && offset == 0, "{second} after {first}");
    write(&mut site, conn, second, 0, &body);
    let done = site.store.request(conn, StoreRequest::Finish { blob: second });
    assert_eq!(done, Some(StoreEvent::Finished { blob: second, size: 100_000 }));
    site.input(Input::Session(
        conn,
        SessionEvent::Received { transfer: TransferNo(1), blob: second },
    ));
    site.settle();
    assert!(matches!(site.promises()[..], [(_, Promise::Ack { .. })]));
    assert!(recovery(&site.store).incoming.is_empty() && recovery(&site.store).doomed.is_empty());
    site.audit();
}

/// Nobody can go on with what a local client had begun: its room is given back at once.
#[test]
fn what_a_local_client_had_begun_goes_at_a_restart() {
    let mut site = Site::new(&["beta"]);
    let (client, blob) = reserved(&mut site, Some(50 << 20));
    write(&mut site, client, blob, 0, &[1; 10]);
    let mut site = site.restart();
    site.settle();
    let left = recovery(&site.store);
    assert!(left.incoming.is_empty() && left.doomed.is_empty(), "{left:?}");
    assert_eq!(site.pump.node().status(site.now).used, 0);
    site.audit();
}

#[test]
fn a_cut_transfer_resumes_at_its_checkpoint_even_after_a_restart() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let body: Vec<u8> = (0..CHECKPOINT_EVERY as usize + 1000).map(|i| (i % 251) as u8).collect();
    let offer = offer_blob(&mut site, conn, 1, &body);
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    let chain = reach_checkpoint(&mut site, conn, blob, &body);
    let mut site = site.restart();
    let conn = site.session("beta");
    site.settle();
    offer_blob(&mut site, conn, 1, &body);
    site.settle();
    assert_eq!(accepted(&mut site), (blob, CHECKPOINT_EVERY, chain));
    write(&mut site, conn, blob, CHECKPOINT_EVERY, &body[CHECKPOINT_EVERY as usize..]);
    site.store.request(conn, StoreRequest::Finish { blob });
    site.input(Input::Session(conn, SessionEvent::Received { transfer: TransferNo(1), blob }));
    site.settle();
    assert_eq!(site.segment(offer.id).unwrap().body, Body::Blob(blob));
    site.audit();
}

#[test]
fn content_that_does_not_match_is_given_up_and_its_space_comes_back() {
    for why in [Broken::Mismatch, Broken::Cut, Broken::Store(StoreFault::Full("full".into()))] {
        let mut site = Site::new(&["beta"]);
        let conn = site.session("beta");
        site.settle();
        offer_blob(&mut site, conn, 1, &[1; 70_000]);
        site.settle();
        let (blob, _, _) = accepted(&mut site);
        write(&mut site, conn, blob, 0, &[2; 70_000]);
        site.store.request(conn, StoreRequest::Abandon { blob });
        let event = SessionEvent::Broken { transfer: TransferNo(1), blob, why: why.clone() };
        site.input(Input::Session(conn, event));
        site.settle();
        assert_eq!((site.store.rows(Table::Incoming), site.store.rows(Table::Doomed)), (0, 0));
        assert_eq!(site.store.files().count(), 0, "{why:?}");
        let used =
            recovery(&site.store).meta_value(consign_core::ledger::rows::MetaName::UsedBytes);
        assert_eq!(used, 0, "{why:?}");
        site.audit();
    }
}

#[test]
fn content_is_taken_from_one_source_at_a_time() {
    let mut site = Site::new(&["beta", "gamma"]);
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    offer_blob(&mut site, beta, 1, &[1; 70_000]);
    site.settle();
    offer_blob(&mut site, gamma, 1, &[1; 70_000]);
    site.settle();
    let told = site.take_told(gamma);
    assert!(
        matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::Busy, .. }]),
        "{told:?}"
    );
}

#[test]
fn large_local_content_is_reserved_extended_and_accepted() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let ticket = TransferNo(1);
    let (client, blob) = reserved(&mut site, None);
    site.input(Input::Session(client, SessionEvent::Extend { ticket, blob }));
    site.settle();
    let step = consign_core::limits::RESERVE_STEP;
    assert_eq!(recovery(&site.store).incoming[0].1.reserved, 2 * step);
    let body = vec![9u8; 200_000];
    write(&mut site, client, blob, 0, &body);
    site.store.request(client, StoreRequest::Finish { blob });
    let offer = Site::make_offer("big", &body, 1, to_alpha());
    let submission = Box::new(Submission {
        meta: offer.meta.clone(),
        to: Destinations::named(vec!["beta".into()]).unwrap(),
        id: offer.id,
        digest: offer.digest,
        size: offer.size,
        content: Content::Blob(blob),
        watched: None,
    });
    site.input(Input::Session(
        client,
        SessionEvent::Submit { ticket, submission: submission.clone() },
    ));
    site.settle();
    assert!(site.promises().iter().any(|(_, p)| matches!(p, Promise::Accepted { .. })));
    let used = recovery(&site.store).meta_value(consign_core::ledger::rows::MetaName::UsedBytes);
    assert_eq!(used, 200_000);
    // The same content under another name shares the file.
    let (client, second) = reserved(&mut site, Some(200_000));
    write(&mut site, client, second, 0, &body);
    site.store.request(client, StoreRequest::Finish { blob: second });
    let mut other = *submission;
    other.meta.name = "copy".into();
    other.id = consign_core::segment::segment_id(&other.meta, &other.digest);
    other.content = Content::Blob(second);
    let submission = Box::new(other);
    site.input(Input::Session(client, SessionEvent::Submit { ticket, submission }));
    site.settle();
    assert_eq!((site.store.rows(Table::Blobs), site.store.files().count()), (1, 1));
    let used = recovery(&site.store).meta_value(consign_core::ledger::rows::MetaName::UsedBytes);
    assert_eq!(used, 200_000);
    site.audit();
}

#[test]
fn a_local_client_that_goes_away_leaves_nothing_behind() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let (client, blob) = reserved(&mut site, Some(1 << 20));
    write(&mut site, client, blob, 0, &[1; 1000]);
    site.store.conn_ended(client);
    site.input(Input::Closed { conn: client, why: "reset".into() });
    site.settle();
    assert_eq!((site.store.rows(Table::Incoming), site.store.rows(Table::Doomed)), (0, 0));
    assert_eq!(site.store.files().count(), 0);
    site.audit();
}

#[test]
fn what_was_begun_and_not_checkpointed_is_given_up_at_start_up() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let body = [7; 70_000];
    let offer = offer_blob(&mut site, conn, 1, &body);
    let client = site.client();
    let event = SessionEvent::Reserve { ticket: TransferNo(1), size: Some(1 << 20) };
    site.input(Input::Session(client, event));
    site.settle();
    let blobs: Vec<(ConnId, BlobNo)> = site
        .promises()
        .into_iter()
        .map(|(conn, promise)| match promise {
            Promise::Accept { blob, .. } => (conn, blob),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(blobs.len(), 2);
    for (conn, blob) in &blobs {
        write(&mut site, *conn, *blob, 0, &[7; 1000]);
        // Killed here.
        site.store.request(*conn, StoreRequest::Abandon { blob: *blob });
    }
    let mut site = site.restart();
    let conn = site.session("beta");
    offer_blob(&mut site, conn, 1, &body);
    site.settle();
    let (blob, offset, _) = accepted(&mut site);
    assert!(offset == 0 && blobs.iter().all(|(_, old)| *old != blob), "{blob} was begun before");
    let rows = (site.store.rows(Table::Incoming), site.store.rows(Table::Doomed));
    assert_eq!((rows, site.store.files().count()), ((1, 0), 0));
    let used = recovery(&site.store).meta_value(consign_core::ledger::rows::MetaName::UsedBytes);
    assert_eq!(used, 70_000);
    write(&mut site, conn, blob, 0, &body);
    site.store.request(conn, StoreRequest::Finish { blob });
    site.input(Input::Session(conn, SessionEvent::Received { transfer: TransferNo(1), blob }));
    site.settle();
    assert_eq!(site.segment(offer.id).unwrap().body, Body::Blob(blob));
    site.audit();
}

#[test]
fn a_partial_that_is_gone_is_begun_anew_and_stops_nobody() {
    for fault in [StoreFault::Missing("gone".into()), StoreFault::Corrupt("short".into())] {
        let mut site = Site::new(&["beta"]);
        let conn = site.session("beta");
        site.settle();
        offer_blob(&mut site, conn, 1, &[1; 70_000]);
        site.settle();
        let (blob, _, _) = accepted(&mut site);
        let why = Broken::Store(fault);
        site.input(Input::Session(
            conn,
            SessionEvent::Broken { transfer: TransferNo(1), blob, why },
        ));
        site.settle();
        let told = site.take_told(conn);
        assert!(
            matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::Busy, .. }]),
            "{told:?}"
        );
        offer_blob(&mut site, conn, 2, &[1; 70_000]);
        site.settle();
        let (next, offset, _) = accepted(&mut site);
        assert!(next != blob && offset == 0);
        site.audit();
    }
}

/// Hands in content that is too large to park; returns its segment and the file it lies in.
fn submit_blob(site: &mut Site, name: &str, body: &[u8]) -> (SegmentId, BlobNo) {
    let (client, blob) = reserved(site, Some(body.len() as u64));
    (hand_in(site, client, blob, (name, body)), blob)
}

/// A local client writes all of its content to the file it was granted, and hands it in for beta.
pub fn hand_in(
    site: &mut Site,
    client: ConnId,
    blob: BlobNo,
    (name, body): (&str, &[u8]),
) -> SegmentId {
    write(site, client, blob, 0, body);
    site.store.request(client, StoreRequest::Finish { blob });
    let offer = Site::make_offer(name, body, 1, to_alpha());
    let submission = Box::new(Submission {
        meta: offer.meta,
        to: Destinations::named(vec!["beta".into()]).unwrap(),
        id: offer.id,
        digest: offer.digest,
        size: offer.size,
        content: Content::Blob(blob),
        watched: None,
    });
    let ticket = TransferNo(1);
    site.input(Input::Session(client, SessionEvent::Submit { ticket, submission }));
    site.settle();
    offer.id
}

/// What beta sends is durable up to the first checkpoint; returns the chaining values there.
pub fn reach_checkpoint(site: &mut Site, conn: ConnId, blob: BlobNo, body: &[u8]) -> Vec<u8> {
    let first = &body[..usize::try_from(CHECKPOINT_EVERY).unwrap()];
    write(site, conn, blob, 0, first);
    site.store.request(conn, StoreRequest::Sync { blob });
    let mut hasher = Hasher::new();
    hasher.update(first);
    let chain = hasher.checkpoint().expect("at a checkpoint").encode();
    let (transfer, offset) = (TransferNo(1), CHECKPOINT_EVERY);
    let event = SessionEvent::Checkpoint { transfer, blob, offset, chain: chain.clone() };
    site.input(Input::Session(conn, event));
    site.settle();
    chain
}

#[test]
fn nothing_is_promised_on_content_that_is_known_to_be_lost() {
    let body = [5; 70_000];
    // Start-up misses it, a delivery cannot read it, the peer finds it wrong twice.
    for how in 0..3 {
        let mut site = Site::new(&["beta"]);
        site.hold_scrubs = true;
        site.settle();
        let (id, lost) = submit_blob(&mut site, "first", &body);
        if how == 0 {
            assert!(site.store.lose_file(lost));
            site = site.restart();
            site.settle();
        } else {
            let conn = site.session("beta");
            let outcome = if how == 1 {
                Outcome::Unreadable(StoreFault::Corrupt("short".into()))
            } else {
                Site::rejected(Refusal::Mismatch)
            };
            for _ in 0..how {
                site.settle();
                let (_, sending) = site.sendings().pop().expect("offered");
                site.outcome(conn, sending.offer.transfer, outcome.clone());
                site.settle();
                site.wait(std::time::Duration::from_secs(10));
            }
        }
        assert_ne!(site.delivery(id, "beta").unwrap().last_error, 0, "{how}");
        let (second, fresh) = submit_blob(&mut site, "second", &body);
        assert_eq!(site.segment(second).unwrap().body, Body::Blob(fresh), "{how}");
        assert!(site.store.files().any(|(blob, _)| blob == fresh), "{how}");
        site.audit();
    }
}
