//! What is kept, and for how long: eviction, release, expiry, and room when it is short.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::config::{Config, SuccessCondition};
use consign_core::id::{BlobDigest, ConnId, Handle, SegmentId, Seq, TransferNo};
use consign_core::ledger::read::{self, ReadRequest};
use consign_core::ledger::rows::{IdRow, MetaName, State};
use consign_core::ledger::rows_upkeep::{AuditRow, ReceiptRow, RememberedRow};
use consign_core::ledger::{Table, codec, keys};
use consign_core::node::{Input, Note};
use consign_core::segment::{Class, Destinations, Meta, segment_id};
use consign_core::session::{Content, Outcome, Promise, SessionCommand, SessionEvent, Submission};
use consign_core::store::{CommitFault, Snapshot, StoreRequest};

use crate::site::{Site, accepted, config, offer_blob, offer_inline, recovery, write};

pub const DAY: Duration = Duration::from_secs(24 * 3600);

pub fn evicting(peers: &[&str]) -> Config {
    Config { evict_on_relay: true, ..config(peers) }
}

/// A session of `name` acknowledges everything that it is sent.
pub fn deliver(site: &mut Site, name: &str) -> ConnId {
    let conn = site.session(name);
    site.settle();
    ack_all(site, conn);
    conn
}

pub fn ack_all(site: &mut Site, conn: ConnId) {
    for (to, sending) in site.sendings() {
        if to == conn {
            site.outcome(conn, sending.offer.transfer, Outcome::Acked);
        }
    }
    site.settle();
}

pub fn removed<'a>(site: &'a Site, how: &'static str) -> Vec<&'a SegmentId> {
    let of = |note: &'a Note| match note {
        Note::Removed { id, how: was, .. } if *was == how => Some(id),
        _ => None,
    };
    site.notes.iter().filter_map(of).collect()
}

pub fn remembered(site: &Site, id: SegmentId) -> Option<RememberedRow> {
    read::row(&site.store.snapshot(), Table::Remembered, &keys::id(&id)).unwrap()
}

pub fn receipts(site: &Site) -> Vec<ReceiptRow> {
    let mut all = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        all.push(codec::decode(Table::Receipts, key, value).unwrap());
        true
    };
    site.store.snapshot().scan(Table::Receipts, &[], &mut visit).unwrap();
    all
}

pub fn acts(site: &Site) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let row: AuditRow = codec::decode(Table::Audit, key, value).unwrap();
        all.push((row.action, row.reason));
        true
    };
    site.store.snapshot().scan(Table::Audit, &[], &mut visit).unwrap();
    all
}

pub fn act(action: &str, reason: &str) -> (String, String) {
    (action.to_string(), reason.to_string())
}

pub fn used(site: &Site) -> u64 {
    recovery(&site.store).meta_value(MetaName::UsedBytes)
}

/// Hands in a segment that expires.
pub fn queue_until(site: &mut Site, name: &str, to: &[&str], expires_at: u64) -> SegmentId {
    let client = site.client();
    let body = name.as_bytes().to_vec();
    let digest = BlobDigest(*blake3::hash(&body).as_bytes());
    let meta = Meta { name: name.to_string(), expires_at: Some(expires_at), ..Meta::default() };
    let id = segment_id(&meta, &digest);
    let handle = Handle { conn: client, number: 1 };
    let size = body.len() as u64;
    site.store.request(client, StoreRequest::Park { handle, data: body.into() });
    let to = Destinations::named(to.iter().map(|n| n.to_string()).collect()).unwrap();
    let content = Content::Parked(handle);
    let submission = Box::new(Submission { meta, to, id, digest, size, content, watched: None });
    let event = SessionEvent::Submit { ticket: TransferNo(1), submission };
    site.input(Input::Session(client, event));
    site.settle();
    assert!(matches!(&site.take_told(client)[..], [SessionCommand::Promised(_)]));
    id
}

/// A large segment of a peer arrives.
pub fn receive_blob(site: &mut Site, conn: ConnId, transfer: u32, body: &[u8]) -> SegmentId {
    let offer = offer_blob(site, conn, transfer, body);
    site.settle();
    let (blob, offset, _) = accepted(site);
    write(site, conn, blob, offset, &body[offset as usize..]);
    site.store.request(conn, StoreRequest::Finish { blob });
    let transfer = TransferNo(transfer);
    site.input(Input::Session(conn, SessionEvent::Received { transfer, blob }));
    site.settle();
    offer.id
}

#[test]
fn a_relayed_segment_is_evicted_and_leaves_a_receipt_and_a_memory() {
    let mut site = Site::with(evicting(&["beta"]));
    let id = site.queue("one", &["beta"]);
    assert!(used(&site) > 0);
    deliver(&mut site, "beta");
    assert!(site.segment(id).is_none());
    assert_eq!(removed(&site, "evict"), [&id]);
    let receipt = &receipts(&site)[..];
    let [receipt] = receipt else { panic!("{receipt:?}") };
    assert_eq!((receipt.id, receipt.site.as_str(), receipt.cause), (id, "beta", 0));
    assert_eq!((receipt.name.as_str(), receipt.back, receipt.pending), ("one", 0, false));
    let row = remembered(&site, id).unwrap();
    assert_eq!((row.seq, row.origin.as_str(), row.origin_seq), (Seq(1), "", 1));
    assert_eq!(acts(&site), [act("evict", "relayed")]);
    assert_eq!((used(&site), site.store.rows(Table::Bodies)), (0, 0));
    // Nothing is left that would be looked at before the receipt and the memory are over.
    assert_eq!(site.store.rows(Table::Expiry), 2);
    site.audit();
}

#[test]
fn without_evict_on_relay_an_own_accept_stays() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    deliver(&mut site, "beta");
    site.wait(DAY * 100);
    assert_eq!(site.segment(id).unwrap().acked, 1);
    assert_eq!(site.store.rows(Table::Expiry), 0, "and costs no key");
    site.audit();
}

#[test]
fn keep_relayed_is_waited_for_across_a_restart() {
    let keep_relayed = Duration::from_secs(3600);
    let mut site = Site::with(Config { keep_relayed, ..evicting(&["beta"]) });
    let id = site.queue("one", &["beta"]);
    deliver(&mut site, "beta");
    site.wait(keep_relayed - Duration::from_secs(1));
    let mut site = site.restart();
    site.settle();
    assert!(site.segment(id).is_some());
    site.wait(Duration::from_secs(1));
    assert!(site.segment(id).is_none());
    site.audit();
}

#[test]
fn a_new_policy_holds_for_what_was_relayed_before_it() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    deliver(&mut site, "beta");
    site.config.evict_on_relay = true;
    let mut site = site.restart();
    site.settle();
    assert!(site.segment(id).is_none());
    site.audit();
}

#[test]
fn one_peer_evicts_with_the_first_ack_and_records_the_siblings_it_drops() {
    let success_condition = SuccessCondition::OnePeer;
    let mut site = Site::with(Config { success_condition, ..evicting(&["beta", "gamma"]) });
    let id = site.queue("one", &["*"]);
    deliver(&mut site, "beta");
    assert!(site.segment(id).is_none());
    let acts = acts(&site);
    assert_eq!(acts, [act("drop", "removed"), act("evict", "relayed")]);
    assert_eq!(receipts(&site).len(), 1, "only of the one that has it");
    // Gamma comes: there is nothing for it.
    site.session("gamma");
    site.settle();
    assert!(site.sendings().is_empty());
    site.audit();
}

#[test]
fn an_attempt_under_way_keeps_the_segment_until_its_outcome() {
    let success_condition = SuccessCondition::OnePeer;
    let mut site = Site::with(Config { success_condition, ..evicting(&["beta", "gamma"]) });
    let id = site.queue("one", &["*"]);
    let gamma = site.session("gamma");
    site.settle();
    let sent = site.sendings();
    deliver(&mut site, "beta");
    site.wait(Duration::from_secs(30));
    assert!(site.segment(id).unwrap().relayed_at.is_some(), "gamma is still being sent to");
    site.outcome(gamma, sent[0].1.offer.transfer, Outcome::AckTimeout);
    site.settle();
    assert!(site.segment(id).is_none());
    site.audit();
}

#[test]
fn a_promise_that_has_not_left_pins_its_segment() {
    let mut site = Site::with(evicting(&["beta", "gamma"]));
    site.settle();
    let beta = site.session("beta");
    let gamma = site.session("gamma");
    site.settle();
    let to = Destinations::named(vec!["gamma".into()]).unwrap();
    let offer = offer_inline(&mut site, beta, 1, "pinned", to.clone());
    site.settle();
    let sent = site.sendings();
    let transfer = sent.iter().find(|(c, _)| *c == gamma).unwrap().1.offer.transfer;
    site.promises();
    // The ACK that allows the eviction is durable, the eviction is about to be judged, and then the
    // same offer comes again: its ACK waits for a commit.
    site.outcome(gamma, transfer, Outcome::Acked);
    site.turn();
    site.commit();
    offer_inline(&mut site, beta, 2, "pinned", to);
    let mut acked = false;
    for _ in 0..20 {
        site.turn();
        let held = site.segment(offer.id).is_some();
        acked |=
            site.promises().iter().any(|(c, p)| *c == beta && matches!(p, Promise::Ack { .. }));
        assert!(acked || held, "it was let go under a promise");
        site.commit();
    }
    site.settle();
    site.wait(Duration::from_secs(2));
    assert!(site.segment(offer.id).is_none());
    site.audit();
}

#[test]
fn a_destination_never_evicts() {
    let mut site = Site::with(evicting(&["beta", "gamma"]));
    let beta = site.session("beta");
    site.settle();
    // `*`: this site is one of those it is for, and hands it on to gamma.
    let offer = offer_inline(&mut site, beta, 1, "one", Destinations::All);
    site.settle();
    deliver(&mut site, "gamma");
    site.wait(DAY * 100);
    let row = site.segment(offer.id).unwrap();
    assert!(row.here && row.relayed_at.is_some());
    site.audit();
}

#[test]
fn a_copy_in_transit_is_released_storage_keep_after_its_last_delivery() {
    let mut site = Site::new(&["beta", "gamma", "delta"]);
    let beta = site.session("beta");
    site.settle();
    let to = Destinations::named(vec!["delta".into(), "gamma".into()]).unwrap();
    let offer = offer_inline(&mut site, beta, 1, "one", to);
    site.settle();
    deliver(&mut site, "gamma");
    site.wait(DAY * 2);
    assert!(site.segment(offer.id).is_some(), "delta has not got it");
    deliver(&mut site, "delta");
    site.wait(DAY - Duration::from_secs(1));
    assert!(site.segment(offer.id).is_some());
    site.wait(Duration::from_secs(1));
    assert!(site.segment(offer.id).is_none());
    assert_eq!(removed(&site, "release"), [&offer.id]);
    assert_eq!(acts(&site), [act("release", "delivered")]);
    assert!(remembered(&site, offer.id).is_none(), "a release is not remembered");
    site.audit();
}

#[test]
fn a_copy_in_transit_that_nobody_is_known_to_have_stays() {
    let mut site = Site::new(&["beta", "gamma"]);
    let beta = site.session("beta");
    site.settle();
    let to = Destinations::named(vec!["gamma".into()]).unwrap();
    let dead = offer_inline(&mut site, beta, 1, "dead", to.clone());
    let settled = offer_inline(&mut site, beta, 2, "settled", to);
    let gamma = site.session("gamma");
    site.settle();
    for (to, sending) in site.sendings() {
        let refusal = match sending.offer.id == dead.id {
            true => Refusal::Invalid,
            false => Refusal::AlreadyRelayed,
        };
        assert_eq!(to, gamma);
        site.outcome(gamma, sending.offer.transfer, Site::rejected(refusal));
    }
    site.settle();
    site.wait(DAY * 10);
    assert!(site.segment(dead.id).is_some(), "a dead letter may be tried again");
    assert!(site.segment(settled.id).is_some(), "unplaced");
    site.audit();
}

#[test]
fn what_has_expired_is_given_up_and_its_content_stays_with_its_dead_letter() {
    let mut site = Site::new(&["beta"]);
    let at = site.now.wall.after(Duration::from_secs(60)).0;
    let id = queue_until(&mut site, "one", &["beta"], at);
    site.wait(Duration::from_secs(59));
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Scheduled);
    site.wait(Duration::from_secs(1));
    let row = site.delivery(id, "beta").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Expired.number()));
    site.audit();
    site.wait(DAY * 29);
    assert!(site.segment(id).is_some());
    // The dead letter is over, and with it the last reason to keep the content.
    site.wait(DAY);
    assert!(site.segment(id).is_none());
    assert_eq!(acts(&site), [act("purge", "keep_deadletter"), act("expire", "expired")]);
    site.audit();
}

#[test]
fn what_expires_while_the_site_is_down_is_given_up_at_its_start() {
    let mut site = Site::new(&["beta"]);
    let at = site.now.wall.after(Duration::from_secs(60)).0;
    let waiting = queue_until(&mut site, "one", &["beta"], at);
    let here = queue_until(&mut site, "two", &["alpha"], at);
    site.now.wall = site.now.wall.after(DAY);
    let mut site = site.restart();
    site.settle();
    assert_eq!(site.delivery(waiting, "beta").unwrap().state, State::Deadletter);
    assert!(site.segment(here).is_none(), "nothing is dead: it goes at once");
    assert_eq!(removed(&site, "expire"), [&here]);
    site.audit();
}

#[test]
fn an_attempt_under_way_at_expiry_waits_for_its_outcome() {
    for (outcome, state) in
        [(Outcome::AckTimeout, State::Deadletter), (Outcome::Acked, State::Acked)]
    {
        let mut site = Site::new(&["beta"]);
        let at = site.now.wall.after(Duration::from_secs(60)).0;
        let id = queue_until(&mut site, "one", &["beta"], at);
        let conn = site.session("beta");
        site.settle();
        let sent = site.sendings();
        site.wait(Duration::from_secs(61));
        assert_eq!(site.delivery(id, "beta").unwrap().state, State::Inflight);
        site.outcome(conn, sent[0].1.offer.transfer, outcome);
        site.settle();
        match state {
            State::Acked => assert!(site.segment(id).is_none(), "nothing holds it any more"),
            _ => {
                let row = site.delivery(id, "beta").unwrap();
                assert_eq!((row.state, row.last_error), (state, Cause::Expired.number()));
            }
        }
        site.audit();
    }
}

#[test]
fn an_eviction_whose_commit_finds_no_space_happens_all_the_same_once() {
    let mut site = Site::with(evicting(&["beta"]));
    let ids: Vec<_> = (0..5).map(|i| site.queue(&format!("n{i}"), &["beta"])).collect();
    let conn = site.session("beta");
    site.settle();
    for (_, sending) in site.sendings() {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    }
    for commit in 1..6 {
        site.store.fail_commit(commit, CommitFault::Full("no space left on device".into()));
    }
    site.settle();
    for _ in 0..20 {
        site.wait(Duration::from_secs(1));
    }
    for id in &ids {
        assert!(site.segment(*id).is_none());
    }
    assert_eq!(removed(&site, "evict").len(), ids.len(), "each is told once");
    assert_eq!(acts(&site).len(), ids.len());
    assert_eq!(used(&site), 0);
    site.audit();
}

/// B05: a site that loses its power between any two steps ends where one does that does not.
#[test]
fn a_crash_between_any_two_steps_of_an_eviction_changes_nothing() {
    for cut in 0..40 {
        let mut site = Site::with(evicting(&["gamma", "beta"]));
        let beta = site.session("beta");
        site.settle();
        let to = Destinations::named(vec!["gamma".into()]).unwrap();
        let body = vec![7; 70_000];
        let offer = {
            let mut offer = Site::make_offer("big", &body, 1, to.clone());
            offer.to = to;
            offer
        };
        let event = SessionEvent::Offered { offer: Box::new(offer.clone()), body: None };
        site.input(Input::Session(beta, event));
        site.settle();
        let (blob, ..) = accepted(&mut site);
        write(&mut site, beta, blob, 0, &body);
        site.store.request(beta, StoreRequest::Finish { blob });
        let transfer = TransferNo(1);
        site.input(Input::Session(beta, SessionEvent::Received { transfer, blob }));
        let gamma = site.session("gamma");
        site.settle();
        let sent = site.sendings();
        site.outcome(gamma, sent[0].1.offer.transfer, Outcome::Acked);
        // Each step is a turn or a commit.
        for step in 0..cut {
            if step % 2 == 0 {
                site.turn();
            } else {
                site.commit();
            }
        }
        let mut site = site.restart();
        site.settle();
        site.audit();
        let gone = site.segment(offer.id).is_none();
        // When its ACK was not durable it is sent again, and answered as a duplicate.
        if !gone {
            deliver(&mut site, "gamma");
        }
        assert!(site.segment(offer.id).is_none(), "cut {cut}");
        assert_eq!((used(&site), site.store.files().count()), (0, 0), "cut {cut}");
        assert!(remembered(&site, offer.id).is_some());
        site.audit();
    }
}

#[test]
fn evicted_twice_is_remembered_once() {
    let mut site = Site::with(evicting(&["beta"]));
    for round in 1..=3 {
        let id = site.queue("same", &["beta"]);
        let conn = deliver(&mut site, "beta");
        assert!(site.segment(id).is_none());
        assert_eq!(remembered(&site, id).unwrap().origin_seq, round);
        site.input(Input::Closed { conn, why: String::new() });
        site.wait(DAY);
        site.audit();
    }
    site.wait(DAY * 8);
    assert_eq!(site.store.rows(Table::Remembered), 0);
    site.audit();
}

#[test]
fn a_removed_id_is_new_when_it_comes_again() {
    let mut site = Site::new(&["beta", "gamma"]);
    let beta = site.session("beta");
    site.settle();
    let to = Destinations::named(vec!["gamma".into()]).unwrap();
    let offer = offer_inline(&mut site, beta, 1, "one", to.clone());
    site.settle();
    deliver(&mut site, "gamma");
    // Offered again in the very moment in which it is released.
    site.now.wall = site.now.wall.after(DAY);
    site.input(Input::Timer);
    for step in 0..12u32 {
        if step % 3 == 0 {
            offer_inline(&mut site, beta, 10 + step, "one", to.clone());
        }
        site.turn();
        site.commit();
    }
    site.settle();
    let snapshot = site.store.snapshot();
    let id: Option<IdRow> = read::row(&snapshot, Table::Ids, &keys::id(&offer.id)).unwrap();
    assert!(id.is_some(), "whoever was told ACK may forget it");
    site.audit();
}

#[test]
fn a_site_with_a_backlog_of_removals_goes_on_in_slices() {
    let mut site = Site::with(evicting(&["beta"]));
    for i in 0..700 {
        let client = site.client();
        site.submit(client, 1, &format!("n{i}"), &["beta"], Class::Normal);
    }
    site.settle();
    let conn = site.session("beta");
    for _ in 0..20 {
        site.settle();
        ack_all(&mut site, conn);
    }
    assert_eq!(site.store.rows(Table::Segments), 0);
    assert_eq!(removed(&site, "evict").len(), 700);
    assert!(site.store.read(&ReadRequest::Recovery).is_ok());
    site.audit();
}
