//! Room that is short: who is refused, and what goes ahead of its time; tables that are bounded.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::Config;
use consign_core::id::{Handle, TransferNo};
use consign_core::ledger::Table;
use consign_core::node::{Answer, Input, Question};
use consign_core::segment::{Class, Destinations};
use consign_core::session::{Outcome, Promise, SessionCommand, SessionEvent};
use consign_core::store::StoreRequest;

use crate::site::{Site, accepted, config, offer_blob, offer_inline, to_alpha, write};

use crate::keep::*;

/// B25, relay part: two names, one file.
#[test]
fn a_file_that_two_names_share_goes_with_the_second() {
    let mut site = Site::new(&["beta", "gamma"]);
    let beta = site.session("beta");
    site.settle();
    let body = vec![9; 70_000];
    let first = receive_blob(&mut site, beta, 1, &body);
    // The same content under another name, for gamma.
    let mut offer = Site::make_offer("other", &body, 2, to_alpha());
    offer.to = Destinations::named(vec!["gamma".into()]).unwrap();
    let event = SessionEvent::Offered { offer: Box::new(offer.clone()), body: None };
    site.input(Input::Session(beta, event));
    site.settle();
    let (blob, ..) = accepted(&mut site);
    write(&mut site, beta, blob, 0, &body);
    site.store.request(beta, StoreRequest::Finish { blob });
    let transfer = TransferNo(2);
    site.input(Input::Session(beta, SessionEvent::Received { transfer, blob }));
    site.settle();
    assert_eq!(site.store.rows(Table::Blobs), 1);
    site.audit();
    deliver(&mut site, "gamma");
    site.wait(DAY);
    assert!(site.segment(offer.id).is_none());
    assert!(site.segment(first).is_some());
    assert_eq!(site.store.files().count(), 1, "the first still needs it");
    assert_eq!(used(&site), 70_000);
    site.audit();
}

#[test]
fn a_refusal_for_quota_makes_room_and_stops() {
    for large in [false, true] {
        let body = vec![1; if large { 80_000 } else { 3_000 }];
        let max_bytes = body.len() as u64 * 4 + 5_000;
        let mut site = Site::with(Config { max_bytes, ..config(&["beta", "gamma"]) });
        let beta = site.session("beta");
        site.settle();
        let gamma = site.session("gamma");
        site.settle();
        site.promises();
        let (mut refusals, mut last) = (0, false);
        for round in 0..30u32 {
            let mut body = body.clone();
            body[0] = round as u8;
            let mut offer = Site::make_offer(&format!("n{round}"), &body, round + 1, to_alpha());
            offer.to = Destinations::named(vec!["gamma".into()]).unwrap();
            let handle = Handle { conn: beta, number: round + 1 };
            let parked = (!large).then_some(handle);
            if !large {
                let data = body.clone().into();
                site.store.request(beta, StoreRequest::Park { handle, data });
            }
            let offered = SessionEvent::Offered { offer: Box::new(offer.clone()), body: parked };
            site.input(Input::Session(beta, offered));
            site.settle();
            let refused = site.take_told(beta).into_iter().find_map(|told| match told {
                SessionCommand::Refuse { refusal, text, .. } => Some((refusal, text)),
                SessionCommand::Promised(promised) => {
                    if let Promise::Accept { blob, .. } = promised.into_inner() {
                        write(&mut site, beta, blob, 0, &body);
                        site.store.request(beta, StoreRequest::Finish { blob });
                        let transfer = TransferNo(round + 1);
                        let event = SessionEvent::Received { transfer, blob };
                        site.input(Input::Session(beta, event));
                    }
                    None
                }
                _ => None,
            });
            if let Some((refusal, text)) = refused {
                assert_eq!(refusal, Refusal::Quota, "{text}");
                assert!(text.contains(&max_bytes.to_string()), "{text}");
                assert!(!last, "refused twice in a row: {text}");
                refusals += 1;
                last = true;
            } else {
                last = false;
            }
            site.settle();
            ack_all(&mut site, gamma);
            site.wait(Duration::from_secs(30));
        }
        // Each refusal lets go what was delivered.
        assert!(refusals >= 1);
        assert!(acts(&site).contains(&act("release", "space")));
        site.audit();
    }
}

#[test]
fn nothing_that_is_owed_or_unused_goes_for_want_of_room() {
    let mut site = Site::with(Config { max_bytes: 200, ..config(&["beta", "gamma"]) });
    let beta = site.session("beta");
    site.settle();
    let here = offer_inline(&mut site, beta, 1, "here", to_alpha());
    let gamma = Destinations::named(vec!["gamma".into()]).unwrap();
    let owed = offer_inline(&mut site, beta, 2, "owed", gamma.clone());
    site.settle();
    for round in 0..20 {
        offer_inline(&mut site, beta, 10 + round, &format!("more {round}"), gamma.clone());
        site.wait(Duration::from_secs(60));
    }
    assert!(site.segment(here.id).is_some() && site.segment(owed.id).is_some());
    assert!(removed(&site, "release").is_empty());
    site.audit();
}

#[test]
fn memory_of_evicted_ids_is_bounded_by_number_and_by_time() {
    let remember_max = 10;
    let mut site = Site::with(Config { remember_max, ..evicting(&["beta"]) });
    let conn = site.session("beta");
    site.settle();
    let mut ids = Vec::new();
    for i in 0..25 {
        ids.push(site.queue(&format!("n{i}"), &["beta"]));
        ack_all(&mut site, conn);
        site.wait(Duration::from_secs(1));
        site.audit();
    }
    assert_eq!(site.store.rows(Table::Remembered), 10);
    let kept = ids.iter().filter(|id| remembered(&site, **id).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), ids[15..].iter().collect::<Vec<_>>(), "the newest");
    site.wait(DAY * 8);
    assert_eq!(site.store.rows(Table::Remembered), 0);
    assert_eq!(site.store.rows(Table::Receipts), 25);
    site.wait(DAY * 30);
    assert_eq!((site.store.rows(Table::Receipts), site.store.rows(Table::Expiry)), (0, 0));
    site.audit();
}

/// What was too many when it was asked for had gone by itself when the answer came.
#[test]
fn no_more_is_forgotten_than_is_too_many() {
    let (remember_max, remember_for) = (3, Duration::from_secs(60));
    let mut site = Site::with(Config { remember_max, remember_for, ..evicting(&["beta"]) });
    let conn = site.session("beta");
    site.settle();
    for i in 0..6 {
        site.hold_oldest = true;
        site.queue(&format!("n{i}"), &["beta"]);
        ack_all(&mut site, conn);
        if i == 2 {
            site.wait(Duration::from_secs(50));
        }
    }
    assert_eq!(site.store.rows(Table::Remembered), 6);
    // Three are over.
    site.wait(Duration::from_secs(20));
    assert_eq!(site.store.rows(Table::Remembered), 3);
    site.let_go();
    site.settle();
    assert_eq!(site.store.rows(Table::Remembered), 3);
    site.audit();
}

#[test]
fn the_record_of_acts_is_bounded() {
    let mut site = Site::with(Config { audit_max: 7, ..evicting(&["beta"]) });
    for i in 0..40 {
        site.queue(&format!("n{i}"), &["beta"]);
    }
    deliver(&mut site, "beta");
    assert_eq!(site.store.rows(Table::Audit), 7);
    assert_eq!(site.store.rows(Table::Segments), 0);
    let mut site = site.restart();
    site.settle();
    assert_eq!(site.store.rows(Table::Audit), 7);
    site.audit();
}

#[test]
fn what_a_peer_may_bring_is_bounded_and_counted_for_it_alone() {
    let mut config = config(&["beta", "gamma"]);
    config.peers[0].inbound_quota = Some(100_000);
    let mut site = Site::with(config);
    let beta = site.session("beta");
    let gamma = site.session("gamma");
    site.settle();
    let body = vec![3; 70_000];
    receive_blob(&mut site, beta, 1, &body);
    site.audit();
    // A restart counts the same.
    let mut site = site.restart();
    site.settle();
    let beta = site.session("beta");
    site.settle();
    let body = vec![4; 40_000];
    let offer = Site::make_offer("more", &body, 2, to_alpha());
    let event = SessionEvent::Offered { offer: Box::new(offer), body: None };
    site.input(Input::Session(beta, event));
    site.settle();
    let told = site.take_told(beta);
    let text = told.iter().find_map(|told| match told {
        SessionCommand::Refuse { refusal: Refusal::Quota, text, .. } => Some(text.clone()),
        _ => None,
    });
    let text = text.expect("a refusal");
    assert!(text.contains("70000") && text.contains("100000") && text.contains("beta"), "{text}");
    // The other peer is not held to it.
    let _ = gamma;
    let gamma = site.session("gamma");
    site.settle();
    receive_blob(&mut site, gamma, 1, &vec![5; 90_000]);
    site.audit();
}

#[test]
fn transfers_under_way_count_as_segments() {
    let mut site = Site::with(Config { max_segments: Some(2), ..config(&["beta"]) });
    let beta = site.session("beta");
    site.settle();
    for transfer in 1..=3u32 {
        let body = vec![transfer as u8; 70_000];
        let name = format!("n{transfer}");
        let offer = Site::make_offer(&name, &body, transfer, to_alpha());
        let event = SessionEvent::Offered { offer: Box::new(offer), body: None };
        site.input(Input::Session(beta, event));
        site.settle();
        let told = site.take_told(beta);
        let refused = told
            .iter()
            .any(|told| matches!(told, SessionCommand::Refuse { refusal: Refusal::Quota, .. }));
        assert_eq!(refused, transfer == 3, "{told:?}");
    }
}

#[test]
fn content_that_is_whole_while_the_disk_is_full_waits_at_its_checkpoint() {
    let mut site = Site::new(&["beta", "gamma"]);
    site.queue("owed", &["gamma"]);
    let beta = site.session("beta");
    let gamma = site.session("gamma");
    site.settle();
    let sent = site.sendings();
    let body = vec![6; (16 << 20) + 70_000];
    offer_blob(&mut site, beta, 1, &body);
    site.settle();
    let (blob, ..) = accepted(&mut site);
    write(&mut site, beta, blob, 0, &body);
    let checkpoint = SessionEvent::Checkpoint {
        transfer: TransferNo(1),
        blob,
        offset: 16 << 20,
        chain: vec![1; 32],
    };
    site.input(Input::Session(beta, checkpoint));
    site.settle();
    site.store.request(beta, StoreRequest::Finish { blob });
    // The ballast had to be used, and there is no room to make it whole.
    site.store.set_ballast(64 << 20, false);
    site.store.set_capacity(60 << 20);
    site.outcome(gamma, sent[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    let transfer = TransferNo(1);
    site.input(Input::Session(beta, SessionEvent::Received { transfer, blob }));
    site.settle();
    let told = site.take_told(beta);
    let refused = told
        .iter()
        .any(|told| matches!(told, SessionCommand::Refuse { refusal: Refusal::DiskFull, .. }));
    assert!(refused, "{told:?}");
    assert_eq!(site.store.rows(Table::Incoming), 1, "it goes on from there");
    assert_eq!(site.store.rows(Table::Blobs), 0);
    site.audit();
    site.store.set_capacity(u64::MAX);
    site.wait(Duration::from_secs(10));
    offer_blob(&mut site, beta, 2, &body);
    site.settle();
    let (again, offset, _) = accepted(&mut site);
    assert_eq!((again, offset), (blob, 16 << 20));
}

#[test]
fn a_ballast_that_is_not_whole_at_the_start_holds_growth_back() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    // There is room, and too little for the ballast.
    site.store.set_ballast(64 << 20, false);
    site.store.set_capacity(60 << 20);
    let mut site = site.restart();
    site.settle();
    let client = site.client();
    site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.settle();
    let told = site.take_told(client);
    let refused = matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::DiskFull, .. }]);
    assert!(refused, "{told:?}");
    site.store.set_capacity(u64::MAX);
    site.wait(Duration::from_secs(10));
    site.queue("two", &["beta"]);
}

/// Others fill the disk and make room on it: whoever asks how an idle site is hears how it stands now, and
/// the disk is looked at once a second at most.
#[test]
fn whoever_asks_hears_how_the_disk_stands_now() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let ask = |site: &mut Site, conn| {
        let (ticket, question) = (TransferNo(1), Question::Status);
        site.input(Input::Session(conn, SessionEvent::Ask { ticket, question }));
    };
    let told = |site: &mut Site, conn| {
        site.settle();
        site.take_told(conn).into_iter().find_map(|told| match told {
            SessionCommand::Answer { answer, .. } => match &*answer {
                Answer::Status(status) => Some(status.space.free),
                _ => None,
            },
            _ => None,
        })
    };
    let (one, two, gone) = (site.client(), site.client(), site.client());
    for capacity in [200 << 20, 5 << 30] {
        site.store.set_capacity(capacity);
        site.wait(Duration::from_secs(3));
        let looks = site.looks;
        for conn in [one, two, gone] {
            ask(&mut site, conn);
        }
        assert!(matches!(told(&mut site, one), Some(free) if free < capacity));
        let free = site.store.space().free;
        assert_eq!((told(&mut site, two), told(&mut site, gone)), (Some(free), Some(free)));
        ask(&mut site, two);
        assert_eq!((told(&mut site, two), site.looks - looks), (Some(free), 1));
    }
    site.wait(Duration::from_secs(3));
    ask(&mut site, gone);
    site.input(Input::Closed { conn: gone, why: String::new() });
    assert_eq!(told(&mut site, gone), None);
}
