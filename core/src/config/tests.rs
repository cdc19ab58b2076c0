//! Every rule of the configuration, one at a time.

use alloc::string::ToString;
use alloc::vec;

use super::*;

fn good() -> Config {
    let peer = |name: &str| PeerConfig::new(name, "127.0.0.1:7400");
    Config { name: "alpha".into(), peers: vec![peer("beta"), peer("gamma")], ..Config::default() }
}

#[test]
fn the_defaults_need_only_a_name() {
    assert_eq!(good().faults(), []);
    let nameless = Config::default().faults();
    assert_eq!(nameless.iter().map(|f| f.key).collect::<Vec<_>>(), ["node.name"]);
}

#[test]
fn each_rule_names_its_key() {
    type Change = fn(&mut Config);
    let rules: [(&str, Change); 13] = [
        ("node.name", |c| c.name = "a/b".into()),
        ("relay.known_peers.name", |c| c.peers[0].name = "-b".into()),
        ("relay.known_peers.name", |c| c.peers[1].name = "beta".into()),
        ("relay.known_peers.name", |c| c.peers[1].name = "alpha".into()),
        ("relay.max_retries", |c| c.max_retries = 0),
        ("relay.backoff_initial", |c| c.backoff_initial = Duration::ZERO),
        ("relay.backoff_initial", |c| c.backoff_initial = c.backoff_max + Duration::from_secs(1)),
        ("relay.ack_timeout", |c| c.ack_timeout = Duration::from_millis(999)),
        ("storage.max_bytes", |c| c.max_bytes = 0),
        ("storage.inline_max", |c| c.inline_max = 65_537),
        ("limits.session_bytes", |c| c.session_bytes = limits::CREDIT_START - 1),
        ("limits.buffered_bytes", |c| c.buffered_bytes = c.session_bytes - 1),
        ("limits.peer_sessions", |c| c.peer_sessions = 0),
    ];
    for (i, (key, change)) in rules.iter().enumerate() {
        let mut config = good();
        change(&mut config);
        let faults = config.faults();
        assert_eq!(faults.iter().map(|f| f.key).collect::<Vec<_>>(), [*key], "rule {i}");
        assert!(faults[0].to_string().starts_with(key), "{}", faults[0]);
    }
}

#[test]
fn all_faults_come_at_once() {
    let config = Config { max_retries: 0, max_bytes: 0, peer_sessions: 0, ..good() };
    assert_eq!(config.faults().len(), 3);
}

#[test]
fn edges_that_are_permitted() {
    let config = Config {
        max_retries: 1,
        backoff_initial: Duration::from_secs(5),
        backoff_max: Duration::from_secs(5),
        ack_timeout: Duration::from_secs(1),
        inline_max: 0,
        session_bytes: limits::CREDIT_START,
        buffered_bytes: limits::CREDIT_START,
        ..good()
    };
    assert_eq!(config.faults(), []);
}

#[test]
fn conditions_have_their_words() {
    assert_eq!(SuccessCondition::OnePeer.word(), "one_peer");
    assert_eq!(SuccessCondition::default().word(), "all_peers");
}
