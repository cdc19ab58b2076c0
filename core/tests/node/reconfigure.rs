//! Another configuration while the node runs: peers that come, go and change, and limits that hold at once.

use std::time::Duration;

use consign_core::code::{Goodbye, Refusal};
use consign_core::config::{Config, PeerConfig, SuccessCondition};
use consign_core::ledger::rows::State;
use consign_core::node::{Answer, Input, Note, Question, Reading};
use consign_core::segment::Class;
use consign_core::session::{Outcome, SessionCommand, SessionEvent};
use consign_core::store::CommitFault;

use consign_core::id::{ConnId, SegmentId, TransferNo};

use crate::acts::audits;
use crate::site::{Site, config};

fn reconfigure(site: &mut Site, config: &Config) {
    site.config = config.clone();
    let config = Some(Box::new(config.clone()));
    site.input(Input::Reconfigure { reload: 0, config, renew: false, reading: None });
    site.settle();
}

/// The goodbye that a session was told, if any.
fn closed(site: &mut Site, conn: ConnId) -> Option<Goodbye> {
    site.take_told(conn).into_iter().find_map(|command| match command {
        SessionCommand::Close { why, .. } => Some(why),
        _ => None,
    })
}

fn peer<'a>(config: &'a mut Config, name: &str) -> &'a mut PeerConfig {
    config.peers.iter_mut().find(|p| p.name == name).expect("it is configured")
}

#[test]
fn a_peer_that_is_added_is_dialled_and_gets_what_comes() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    site.dials.clear();
    reconfigure(&mut site, &config(&["beta", "gamma"]));
    assert_eq!(site.dials, ["gamma"]);
    let id = site.queue("one", &["gamma"]);
    let conn = site.session("gamma");
    site.settle();
    let sends = site.sendings();
    assert_eq!(sends.len(), 1);
    site.outcome(conn, sends[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.delivery(id, "gamma").unwrap().state, State::Acked);
    site.audit();
    // Its number is durable: it is the same after a start.
    let number = site.site("gamma");
    let mut site = site.restart();
    site.settle();
    assert_eq!(site.site("gamma"), number);
}

#[test]
fn a_peer_that_is_removed_loses_its_session_and_what_it_is_owed_stays() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta"]);
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    site.settle();
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Inflight);
    reconfigure(&mut site, &config(&["gamma"]));
    assert_eq!(closed(&mut site, beta), Some(Goodbye::UnknownPeer));
    assert_eq!(closed(&mut site, gamma), None);
    let row = site.delivery(id, "beta").unwrap();
    assert_eq!((row.state, row.spent), (State::Failed, 0), "orphaned, and nothing is spent");
    let status = site.pump.node().status(site.now);
    let shown = status.peers.iter().find(|p| p.name == "beta").expect("visible");
    assert!(!shown.known && shown.session.is_none());
    // Nobody is to be had under that name, in either direction.
    site.dials.clear();
    site.wait(Duration::from_secs(3600));
    assert!(!site.dials.iter().any(|name| name == "beta"), "{:?}", site.dials);
    let conn = site.connect("beta", false);
    site.settle();
    assert_eq!(closed(&mut site, conn), Some(Goodbye::UnknownPeer));
    site.audit();
    // It comes back and gets what it was owed.
    reconfigure(&mut site, &config(&["beta", "gamma"]));
    assert!(site.dials.iter().any(|name| name == "beta"), "{:?}", site.dials);
    site.session("beta");
    site.settle();
    assert_eq!(site.sendings().len(), 1);
    site.audit();
}

#[test]
fn a_dial_under_way_to_a_peer_that_leaves_does_not_keep_it_from_coming_back() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    assert_eq!(site.dials, ["beta"]);
    reconfigure(&mut site, &config(&[]));
    let conn = site.connect("beta", true);
    site.settle();
    assert_eq!(closed(&mut site, conn), Some(Goodbye::UnknownPeer));
    site.dials.clear();
    reconfigure(&mut site, &config(&["beta"]));
    assert_eq!(site.dials, ["beta"]);
}

#[test]
fn the_first_peer_gets_what_was_accepted_for_everybody() {
    let mut site = Site::new(&[]);
    let id = site.queue("one", &["*"]);
    site.settle();
    reconfigure(&mut site, &config(&["beta"]));
    site.wait(Duration::from_secs(1));
    assert_eq!(site.delivery(id, "beta").map(|row| row.state), Some(State::Scheduled));
    site.audit();
}

/// Beta has acknowledged a segment for everybody, gamma has not: by `all_peers` it is not relayed.
fn acked_by_one(more: impl FnOnce(&mut Config)) -> (Site, SegmentId) {
    let mut config = config(&["beta", "gamma"]);
    more(&mut config);
    let mut site = Site::with(config);
    let id = site.queue("one", &["*"]);
    let conn = site.session("beta");
    site.settle();
    let sent = site.sendings();
    site.outcome(conn, sent[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.segment(id).unwrap().relayed_at, None);
    (site, id)
}

#[test]
fn what_was_acknowledged_counts_when_one_peer_becomes_enough() {
    for evict_on_relay in [false, true] {
        let (mut site, id) = acked_by_one(|config| config.evict_on_relay = evict_on_relay);
        let config = Config { success_condition: SuccessCondition::OnePeer, ..site.config.clone() };
        reconfigure(&mut site, &config);
        site.wait(Duration::from_secs(1));
        let relayed = site.segment(id).map(|row| row.relayed_at.is_some());
        assert_eq!(relayed, (!evict_on_relay).then_some(true), "evicted, or marked");
        site.audit();
    }
}

#[test]
fn what_was_acknowledged_counts_after_a_start_by_another_condition_and_after_a_failed_batch() {
    let (mut site, id) = acked_by_one(|_| ());
    site.config.success_condition = SuccessCondition::OnePeer;
    let mut site = site.restart();
    // The batch with the marker finds no room; it is looked for again.
    while !site.has_batch() {
        site.turn();
    }
    site.store.fail_commit(1, CommitFault::Full("planted".into()));
    site.settle();
    site.wait(Duration::from_secs(60));
    assert!(site.segment(id).unwrap().relayed_at.is_some());
    site.audit();
}

/// It is found relayed by the new condition in the moment in which the disk is full, and its other ACK
/// comes before there is room: what was read of it then is old.
#[test]
fn what_was_acknowledged_counts_with_what_came_while_the_disk_was_full() {
    let (mut site, id) = acked_by_one(|_| ());
    let gamma = site.session("gamma");
    site.settle();
    let sent = site.sendings();
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], Class::Normal);
    while !site.has_batch() {
        site.turn();
    }
    let config = Config { success_condition: SuccessCondition::OnePeer, ..site.config.clone() };
    site.config = config.clone();
    let config = Some(Box::new(config));
    site.input(Input::Reconfigure { reload: 0, config, renew: false, reading: None });
    site.turn();
    assert!(site.has_inputs(), "segments are read");
    site.store.fail_commit(1, CommitFault::Full("planted".into()));
    site.commit();
    site.turn();
    site.outcome(gamma, sent[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    site.wait(Duration::from_secs(60));
    let row = site.segment(id).unwrap();
    assert_eq!((row.required, row.acked), (2, 2));
    assert!(row.relayed_at.is_some());
    site.audit();
}

#[test]
fn what_counts_as_relayed_stays_so_when_more_is_demanded() {
    let (mut site, id) =
        acked_by_one(|config| config.success_condition = SuccessCondition::AllPeers);
    let one = Config { success_condition: SuccessCondition::OnePeer, ..site.config.clone() };
    reconfigure(&mut site, &one);
    site.wait(Duration::from_secs(1));
    let at = site.segment(id).unwrap().relayed_at;
    let all = Config { success_condition: SuccessCondition::AllPeers, ..site.config.clone() };
    reconfigure(&mut site, &all);
    site.wait(Duration::from_secs(1));
    assert!(at.is_some() && site.segment(id).unwrap().relayed_at == at);
}

#[test]
fn what_was_relayed_goes_when_a_reload_says_so() {
    let (mut site, id) =
        acked_by_one(|config| config.success_condition = SuccessCondition::AllPeers);
    let conn = site.session("gamma");
    site.settle();
    let sent = site.sendings();
    site.outcome(conn, sent[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    assert!(site.segment(id).unwrap().relayed_at.is_some());
    let config = Config { evict_on_relay: true, ..site.config.clone() };
    reconfigure(&mut site, &config);
    site.wait(Duration::from_secs(1));
    assert!(site.segment(id).is_none());
    site.audit();
}

#[test]
fn a_pin_ends_the_session_of_another_certificate_and_leaves_that_of_its_own() {
    // Certificates of this harness have the fingerprint [7; 32].
    for (pins, stays) in [([8, 9], false), ([7, 9], true), ([9, 7], true)] {
        let mut site = Site::new(&["beta"]);
        let conn = site.session("beta");
        site.settle();
        let mut new = config(&["beta"]);
        peer(&mut new, "beta").pin = Some([pins[0]; 32]);
        peer(&mut new, "beta").more_pins = vec![[pins[1]; 32]];
        reconfigure(&mut site, &new);
        assert_eq!(closed(&mut site, conn).is_none(), stays, "{pins:?}");
        site.audit();
    }
}

#[test]
fn of_several_pins_the_one_that_was_shown_last_is_what_it_is_known_by() {
    let mut both = config(&["beta"]);
    peer(&mut both, "beta").pin = Some([1; 32]);
    let mut site = Site::with(both.clone());
    site.settle();
    peer(&mut both, "beta").more_pins = vec![[7; 32]];
    reconfigure(&mut site, &both);
    let conn = site.session("beta");
    site.settle();
    // The old one leaves the configuration, and nobody has to say `peers rekey`.
    let mut only = config(&["beta"]);
    peer(&mut only, "beta").pin = Some([7; 32]);
    reconfigure(&mut site, &only);
    assert_eq!(closed(&mut site, conn), None);
    let rekey = |site: &Site| site.pump.node().status(site.now).peers[0].needs_rekey;
    assert!(!rekey(&site));
    let mut site = site.restart();
    site.settle();
    assert!(!rekey(&site));
    // One that it was never known by needs an operator, as at a start; taking it back needs none.
    peer(&mut only, "beta").pin = Some([3; 32]);
    reconfigure(&mut site, &only);
    assert!(rekey(&site));
    peer(&mut only, "beta").pin = Some([7; 32]);
    reconfigure(&mut site, &only);
    assert!(!rekey(&site));
}

#[test]
fn limits_hold_for_what_comes_next_and_nothing_is_deleted() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let mut less = config(&["beta"]);
    less.max_bytes = 1;
    reconfigure(&mut site, &less);
    assert!(site.segment(id).is_some(), "a quota below use deletes nothing");
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], Class::Normal);
    site.settle();
    let told = site.take_told(client);
    let refused = matches!(told[..], [SessionCommand::Refuse { refusal: Refusal::Quota, .. }]);
    assert!(refused, "{told:?}");
    reconfigure(&mut site, &config(&["beta"]));
    site.queue("three", &["beta"]);
    site.audit();
}

#[test]
fn a_rate_reaches_the_session_that_is_there() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    site.take_told(conn);
    let mut paced = config(&["beta"]);
    peer(&mut paced, "beta").rate_limit = Some(1000);
    for (config, rate) in [(&paced, 1000), (&config(&["beta"]), u64::MAX)] {
        reconfigure(&mut site, config);
        let told = site.take_told(conn);
        assert!(matches!(told[..], [SessionCommand::Pace(r)] if r == rate), "{told:?}");
    }
    reconfigure(&mut site, &config(&["beta"]));
    assert!(site.take_told(conn).is_empty(), "the same again is nothing");
}

#[test]
fn a_window_that_closes_holds_claims_back() {
    // The harness starts on 15 January 2027, a Friday, at 08:00 UTC.
    let mut site = Site::new(&["beta"]);
    site.session("beta");
    site.settle();
    let mut closed = config(&["beta"]);
    peer(&mut closed, "beta").window = vec!["Sun 00:00-01:00".into()];
    reconfigure(&mut site, &closed);
    site.queue("one", &["beta"]);
    assert!(site.sendings().is_empty());
    reconfigure(&mut site, &config(&["beta"]));
    assert_eq!(site.sendings().len(), 1);
}

#[test]
fn what_a_node_is_built_around_stays_and_what_it_cannot_go_by_changes_nothing() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let mut new = config(&["beta"]);
    new.name = "omega".into();
    new.inline_max = 1;
    new.max_retries = 3;
    reconfigure(&mut site, &new);
    let now = site.pump.node().config().clone();
    assert_eq!((now.name.as_str(), now.max_retries), ("alpha", 3));
    assert_eq!(now.inline_max, config(&[]).inline_max);
    new.max_retries = 0;
    new.peers.clear();
    reconfigure(&mut site, &new);
    assert_eq!(*site.pump.node().config(), now);
}

#[test]
fn authorities_that_are_believed_no_longer_end_all_sessions_within_a_minute() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    assert_eq!(site.sendings().len(), 1, "it is busy");
    site.input(Input::Reconfigure { reload: 0, config: None, renew: true, reading: None });
    site.settle();
    assert_eq!(closed(&mut site, conn), None);
    site.wait(Duration::from_secs(59));
    assert_eq!(closed(&mut site, conn), Some(Goodbye::Age));
}

#[test]
fn whoever_asks_for_a_reload_hears_of_its_own_and_a_client_that_left_is_forgotten() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let clients = [site.client(), site.client()];
    for conn in clients {
        let ask = SessionEvent::Ask {
            ticket: TransferNo(4),
            question: Question::Reload(format!("uid:{}", conn.slot)),
        };
        site.input(Input::Session(conn, ask));
    }
    site.settle();
    assert_eq!(site.reloads, [1, 2]);
    site.input(Input::Closed { conn: clients[0], why: String::new() });
    for reload in [2, 1] {
        site.input(Input::Reconfigure { reload, config: None, renew: false, reading: None });
    }
    site.settle();
    assert!(site.take_told(clients[0]).is_empty());
    let told = site.take_told(clients[1]);
    let [SessionCommand::Answer { ticket: TransferNo(4), answer }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(**answer, Answer::Reloaded(2));
}

fn reading(taken: bool) -> Reading {
    let text = if taken { "relay.max_retries 8 -> 9" } else { "CN0206: it is 0" };
    let code = if taken { "" } else { "CN0206" };
    Reading {
        who: "SIGHUP".into(),
        file: "consign.toml".into(),
        taken,
        code: code.into(),
        text: text.into(),
        changes: u64::from(taken),
    }
}

fn reread(site: &mut Site, reload: u64, taken: bool) {
    let reading = Some(Box::new(reading(taken)));
    site.input(Input::Reconfigure { reload, config: None, renew: false, reading });
}

#[test]
fn a_reload_is_recorded_with_who_asked_for_it_also_when_nobody_waits_any_more() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    for who in ["uid:1000", "uid:0"] {
        let conn = site.client();
        let ask =
            SessionEvent::Ask { ticket: TransferNo(4), question: Question::Reload(who.into()) };
        site.input(Input::Session(conn, ask));
        site.input(Input::Closed { conn, why: String::new() });
    }
    reread(&mut site, 2, false);
    reread(&mut site, 1, true);
    reread(&mut site, 0, true);
    site.settle();
    let rows = audits(&site);
    let of = |n: usize| (rows[n].who.as_str(), rows[n].action.as_str(), rows[n].reason.as_str());
    assert_eq!(of(0), ("uid:0", "reload_refused", "CN0206: it is 0"));
    assert_eq!(of(1), ("uid:1000", "reload", "relay.max_retries 8 -> 9"));
    assert_eq!(of(2), ("SIGHUP", "reload", "relay.max_retries 8 -> 9"));
    assert_eq!((rows[1].subject.as_str(), rows[1].count, rows[0].count), ("consign.toml", 1, 0));
    let note = Note::Reread { who: "uid:0".into(), reading: Box::new(reading(false)) };
    assert!(site.notes.contains(&note), "{:?}", site.notes);
    // A driver that reads no configuration has nothing to tell.
    site.input(Input::Reconfigure { reload: 0, config: None, renew: false, reading: None });
    site.settle();
    assert_eq!(audits(&site).len(), 3);
    site.audit();
}

#[test]
fn the_record_of_a_reload_outlives_a_commit_that_finds_no_space() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    reread(&mut site, 0, true);
    site.turn();
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.commit();
    site.settle();
    let rows = audits(&site);
    assert_eq!(rows.len(), 1, "what holds already is not taken back");
    assert_eq!((rows[0].who.as_str(), rows[0].action.as_str()), ("SIGHUP", "reload"));
    site.audit();
}

#[test]
fn a_reader_that_never_answers_keeps_no_more_than_the_newest_askers() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    for number in 1..=100 {
        let conn = site.client();
        let question = Question::Reload(format!("uid:{number}"));
        let ask = SessionEvent::Ask { ticket: TransferNo(4), question };
        site.input(Input::Session(conn, ask));
        site.input(Input::Closed { conn, why: String::new() });
    }
    for number in [100, 37, 36, 1] {
        reread(&mut site, number, true);
    }
    site.settle();
    let who: Vec<String> = audits(&site).into_iter().map(|row| row.who).collect();
    assert_eq!(who, ["uid:100", "uid:37", "SIGHUP", "SIGHUP"]);
}
