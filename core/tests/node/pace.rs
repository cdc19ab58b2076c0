//! When a peer is sent to and how much at a time: contact windows, rates, peers that answer nothing,
//! and dials that do not beat in time.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::id::ConnId;
use consign_core::limits::{SESSION_BEGINS, WINDOW};
use consign_core::node::Input;
use consign_core::segment::Class;
use consign_core::session::{Outcome, SessionCommand};
use consign_core::time::UnixMillis;

use crate::site::{START, Site, config};

const HOUR: Duration = Duration::from_secs(3600);

fn limited(rate: Option<u64>, window: &[&str]) -> Config {
    let mut config = config(&["beta"]);
    config.peers[0].rate_limit = rate;
    config.peers[0].window = window.iter().map(|w| (*w).to_owned()).collect();
    config.session_max_age = HOUR * 24;
    config
}

/// Ends every attempt that was handed out with an ACK; returns how many there were.
fn ack_all(site: &mut Site) -> usize {
    let sendings = site.sendings();
    for (conn, sending) in &sendings {
        site.outcome(*conn, sending.offer.transfer, Outcome::Acked);
    }
    site.settle();
    sendings.len()
}

/// It is Friday, 2027-01-15 08:00 UTC. The session is up all the time.
#[test]
fn nothing_is_claimed_outside_the_window() {
    let mut site = Site::with(limited(None, &["Fri 09:00-10:00"]));
    site.session("beta");
    site.queue("one", &["beta"]);
    site.settle();
    assert!(site.sendings().is_empty(), "the window is closed");
    let opens = Some(UnixMillis(START + 3_600_000));
    assert_eq!(site.pump.node().status(site.now).peers[0].opens_at, opens);
    assert_eq!(site.pump.node().next_deadline(), Some(site.now.mono.after(HOUR)));
    site.wait(HOUR);
    assert_eq!(ack_all(&mut site), 1, "the window is open");
    assert_eq!(site.pump.node().status(site.now).peers[0].opens_at, None);
    site.queue("two", &["beta"]);
    assert_eq!(ack_all(&mut site), 1, "accept and claim in the window");
    site.wait(HOUR);
    site.queue("three", &["beta"]);
    assert!(site.sendings().is_empty(), "the window is closed again");
    site.audit();
}

/// What was claimed in the window is finished after it, and what fails then waits for the next one.
#[test]
fn what_was_begun_in_the_window_ends_after_it() {
    let mut site = Site::with(limited(None, &["Fri 07:00-08:10"]));
    let conn = site.session("beta");
    let (one, two) = (site.queue("one", &["beta"]), site.queue("two", &["beta"]));
    let sendings = site.sendings();
    assert_eq!(sendings.len(), 2);
    site.wait(HOUR / 2);
    let transfer = |id| sendings.iter().find(|(_, s)| s.offer.id == id).unwrap().1.offer.transfer;
    site.outcome(conn, transfer(one), Outcome::Acked);
    site.outcome(conn, transfer(two), Outcome::AckTimeout);
    site.settle();
    site.wait(HOUR);
    assert!(site.sendings().is_empty());
    assert_eq!(site.delivery(two, "beta").unwrap().attempts, 1);
    site.audit();
}

#[test]
fn the_session_is_told_its_pace_before_it_starts() {
    let mut site = Site::with(limited(Some(5000), &[]));
    let conn = site.connect("beta", true);
    site.settle();
    let told = site.take_told(conn);
    assert!(
        matches!(told[..], [SessionCommand::Pace(5000), SessionCommand::Promised(_)]),
        "{told:?}"
    );
    let mut site = Site::new(&["beta"]);
    let conn = site.connect("beta", true);
    site.settle();
    assert!(matches!(site.take_told(conn)[..], [SessionCommand::Promised(_)]));
}

fn queue_body(site: &mut Site, client: ConnId, ticket: u32, class: Class, size: usize) {
    let body = vec![ticket as u8; size];
    site.submit_body(client, ticket, &format!("{ticket}"), &["beta"], class, body);
}

/// At 100,000 bytes a second, 200,000 bytes are ahead and what began below that; what becomes urgent is
/// the next to be claimed.
#[test]
fn a_rate_bounds_what_is_claimed_ahead_and_urgent_work_is_next() {
    let mut site = Site::with(limited(Some(100_000), &[]));
    let conn = site.session("beta");
    let client = site.client();
    for ticket in 1..=40 {
        queue_body(&mut site, client, ticket, Class::Bulk, 60_000);
    }
    site.settle();
    let ahead = site.sendings();
    assert_eq!(ahead.len(), 4, "240,000 bytes");
    queue_body(&mut site, client, 41, Class::Urgent, 100);
    site.settle();
    assert!(site.sendings().is_empty(), "no room yet");
    site.outcome(conn, ahead[0].1.offer.transfer, Outcome::Acked);
    site.outcome(conn, ahead[1].1.offer.transfer, Outcome::Acked);
    site.settle();
    let next = site.sendings();
    let classes: Vec<Class> = next.iter().map(|(_, s)| s.offer.meta.class).collect();
    assert_eq!(classes, [Class::Urgent, Class::Bulk, Class::Bulk]);
    site.audit();
}

/// One large segment of each class is under way at most, and it leaves half the room to small ones.
#[test]
fn a_large_segment_under_a_rate_leaves_room_for_small_ones() {
    let mut site = Site::with(limited(Some(100_000), &[]));
    let large = site.queue_file("large", "beta", Class::Bulk, 3 << 20);
    let second = site.queue_file("second", "beta", Class::Bulk, 3 << 20);
    let third = site.queue_file("third", "beta", Class::Normal, 3 << 20);
    let small = site.queue("small", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let ids: Vec<_> = site.sendings().iter().map(|(_, s)| (s.offer.id, s.offer.transfer)).collect();
    let under_way = |id| ids.iter().any(|(i, _)| *i == id);
    let first = if under_way(large) { large } else { second };
    assert!(under_way(first) && under_way(third) && under_way(small), "{ids:?}");
    assert_eq!(ids.len(), 3, "the other large one of its class waits: {ids:?}");
    let transfer = ids.iter().find(|(id, _)| *id == first).unwrap().1;
    site.outcome(conn, transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.sendings().len(), 1, "now it is its turn");
}

/// A peer that answers nothing gets no more than a new session's share, one that answers gets more.
#[test]
fn a_peer_that_answers_nothing_pins_little() {
    let mut site = Site::new(&["beta"]);
    let conn = site.connect("beta", true);
    site.settle();
    site.hello_with(conn, "beta", 100_000);
    let client = site.client();
    for ticket in 0..2 * WINDOW as u32 {
        site.submit(client, ticket + 1, &format!("{ticket}"), &["beta"], Class::Normal);
    }
    site.settle();
    let first = site.sendings();
    assert_eq!(first.len(), SESSION_BEGINS);
    site.wait(Duration::from_secs(30));
    assert!(site.sendings().is_empty());
    for (_, sending) in &first[..10] {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    }
    site.settle();
    assert_eq!(site.sendings().len(), 20, "each answer makes room and allows one more");
    site.input(Input::Closed { conn, why: "reset".into() });
    site.settle();
    let conn = site.connect("beta", false);
    site.settle();
    site.hello_with(conn, "beta", 100_000);
    site.settle();
    assert_eq!(site.sendings().len(), SESSION_BEGINS, "a new session begins anew");
}

/// Ten refused dials in a row are at the longest pause; the pauses still differ.
#[test]
fn dials_at_the_longest_pause_are_not_periodic() {
    let mut site = Site::new(&["beta"]);
    let mut pauses = Vec::new();
    let mut last = site.now.mono;
    for _ in 0..24 {
        site.settle();
        let next = site.pump.node().next_deadline();
        if site.dials.is_empty() {
            site.wait(next.unwrap().since(site.now.mono));
        }
        assert_eq!(site.dials.len(), 1);
        site.dials.clear();
        pauses.push(site.now.mono.since(last));
        last = site.now.mono;
        let peer = site.site("beta");
        site.input(Input::DialFailed { site: peer, why: "refused".into(), reached: false });
    }
    let capped = &pauses[12..];
    let max = site.config.backoff_max;
    assert!(capped.iter().all(|p| (max * 3 / 4..=max).contains(p)), "{capped:?}");
    let mut differ = capped.to_vec();
    differ.sort_unstable();
    differ.dedup();
    assert!(differ.len() >= capped.len() - 1, "{capped:?}");
}

/// Four backlogs much longer than a window, answers one by one: the classes keep their shares from page
/// to page, and one whose window is empty takes nothing from the others.
#[test]
fn classes_keep_their_shares_from_page_to_page() {
    let mut config = config(&["beta"]);
    config.window = 48;
    let mut site = Site::with(config);
    let client = site.client();
    let mut ticket = 0;
    for _ in 0..600 {
        for class in [Class::Urgent, Class::Normal, Class::Bulk] {
            ticket += 1;
            site.submit(client, ticket, &format!("{ticket}"), &["beta"], class);
        }
    }
    site.settle();
    let conn = site.session("beta");
    site.settle();
    let mut sent = [0u32; 4];
    let mut open = std::collections::VecDeque::new();
    for _ in 0..550 {
        for (_, sending) in site.sendings() {
            sent[sending.offer.meta.class as usize] += 1;
            open.push_back(sending.offer.transfer);
        }
        site.outcome(conn, open.pop_front().expect("never idle"), Outcome::Acked);
        site.settle();
    }
    // 8 : 2 : 1 of some 600, the high class having nothing.
    let all: u32 = sent.iter().sum();
    let share = |class: Class| f64::from(sent[class as usize]) / f64::from(all);
    let close = |is: f64, should: f64| (is - should).abs() < 0.04;
    assert!(close(share(Class::Urgent), 8.0 / 11.0), "{sent:?}");
    assert!(close(share(Class::Normal), 2.0 / 11.0), "{sent:?}");
    assert!(close(share(Class::Bulk), 1.0 / 11.0), "{sent:?}");
    assert_eq!(sent[Class::High as usize], 0);
}
