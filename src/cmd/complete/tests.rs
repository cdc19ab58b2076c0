//! Values for shells, from a daemon by hand and from none.

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;
use crate::admin::shapes;
use crate::client::testing::{Daemon, Say};

/// What is offered of a kind for a word, by whoever answers at this socket.
fn offered_by(daemon: &Daemon, kind: Kind, word: &str, line: &Line) -> Vec<String> {
    let values = ask(kind, word, line, &mut Api::new(&daemon.socket())).expect("an answer");
    values.into_iter().map(|value| value.text).collect()
}

fn line(words: &[&str]) -> Line {
    Line::of(["consign", "--"].iter().chain(words).map(OsString::from))
}

fn segment(seq: u64) -> shapes::Segment {
    let id = format!("{:064x}", u128::from(seq) << 80);
    shapes::Segment { id, seq, name: format!("n{seq}"), ..shapes::Segment::default() }
}

/// Lists segments as the site does, and counts how often.
fn listing(there: Vec<u64>) -> (Daemon, Arc<Mutex<u64>>) {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let daemon = Daemon::answering(move |request, _| {
        *count.lock().expect("a count") += 1;
        let (_, query) = request.target.split_once('?').expect("a query");
        let number = |key: &str| {
            let value = query.split('&').find_map(|part| part.strip_prefix(key));
            value.expect("given").parse::<u64>().expect("a number")
        };
        let (after, limit) = (number("after="), number("limit="));
        assert!(limit <= PAGE, "{query}");
        let found = there.iter().filter(|seq| **seq > after).take(limit as usize);
        let segments = found.map(|seq| segment(*seq)).collect();
        let page = Segments { segments, ..Segments::default() };
        Say::json(200, serde_json::to_value(page).expect("a page"))
    });
    (daemon, asked)
}

#[test]
fn the_newest_segments_are_found_with_few_questions_however_many_there_are() {
    let none = Line::default();
    let tables: [(Vec<u64>, Option<u64>); 7] = [
        (vec![], None),
        (vec![1], Some(1)),
        (vec![2], Some(2)),
        ((1..=100).collect(), Some(100)),
        ((1..=1000).filter(|seq| *seq < 10 || *seq > 900).collect(), Some(1000)),
        (vec![1, u64::from(u32::MAX), u64::from(u32::MAX) + 1], Some(u64::from(u32::MAX) + 1)),
        (vec![u64::MAX], Some(u64::MAX)),
    ];
    for (there, newest) in tables {
        let count = there.len();
        let (daemon, asked) = listing(there);
        let found = offered_by(&daemon, Kind::Segment, "", &none);
        assert_eq!(found.first(), newest.map(|seq| short(&segment(seq).id)).as_ref());
        assert!(found.len() <= SEGMENTS && (found.len() >= SEGMENTS.min(count) || count == 3));
        let asked = *asked.lock().expect("a count");
        let bits = u64::from(u64::BITS - newest.unwrap_or(0).leading_zeros());
        assert!(asked <= 2 * bits + 2, "{asked} questions for {newest:?}");
    }
}

#[test]
fn ids_are_offered_short_unless_more_was_typed() {
    let (daemon, _) = listing((1..=9).collect());
    let id = segment(7).id;
    for (typed, whole) in [(4, false), (12, false), (13, true), (64, true)] {
        let found = offered_by(&daemon, Kind::Segment, &id[..typed], &Line::default());
        let expected = if whole { id.clone() } else { short(&id) };
        assert!(found.contains(&expected), "{typed}: {found:?}");
    }
    assert_eq!(offered_by(&daemon, Kind::Segment, "fff", &Line::default()), [""; 0]);
}

#[test]
fn lists_become_the_words_that_commands_take() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/peers" => {
            let peer = |name: &str, known, via: &str| shapes::Peer {
                name: name.into(),
                known,
                via: via.into(),
                ..shapes::Peer::default()
            };
            let peers =
                vec![peer("beta", true, ""), peer("far", false, "beta"), peer("old", false, "")];
            let peers = Peers { peers, ..Peers::default() };
            Say::json(200, serde_json::to_value(peers).expect("peers"))
        }
        "/v1/deadletters?limit=200" => {
            let id = segment(3).id;
            let dead = |peer: &str| {
                json!({"schema": "", "id": id, "seq": 3, "name": "n", "size": 1, "peer": peer,
                       "reason": "too_large", "attempts": 1, "since": "", "accepted_at": ""})
            };
            let dead = [dead("beta"), dead("gamma")];
            Say::json(200, json!({"schema": "", "deadletters": dead, "next": null}))
        }
        "/v1/pickup/nodes?limit=200&after=node-0~" => {
            let node = |id: &str, revoked: Option<&str>| {
                json!({"schema": "", "id": id, "keys": [], "enrolled_at": "",
                       "revoked_at": revoked, "registered_at": null})
            };
            let nodes = [node("node-1", None), node("node-2", Some("then")), node("node-10", None)];
            Say::json(200, json!({"schema": "", "nodes": nodes, "next": null}))
        }
        "/v1/pickup/clients?limit=200" => {
            let client =
                json!({"schema": "", "name": "cam", "enrolled_at": "", "revoked_at": null});
            Say::json(200, json!({"schema": "", "clients": [client], "next": null}))
        }
        "/v1/pickup/shards?limit=200" => {
            let shard = json!({"schema": "", "file_id": "f", "version_number": 2, "shard_index": 0,
                "node_id": "node-1", "generation": 1, "state": "RELAY_BUFFERED", "buffer_id": null,
                "size": null, "redemption": 0, "failed_acks": 0, "expires_at": null});
            Say::json(200, json!({"schema": "", "shards": [shard], "next": null}))
        }
        other => panic!("{other}"),
    });
    let (plain, dead) = (line(&["ls"]), line(&["deadletter", "retry", ""]));
    let id = short(&segment(3).id);
    let table: [(Kind, &str, &Line, &[&str]); 6] = [
        (Kind::Destination, "", &plain, &["beta", "far"]),
        (Kind::Peer, "", &plain, &["beta", "far", "old"]),
        (Kind::Chosen, "", &dead, &[&id]),
        (Kind::Node, "node-1", &plain, &["node-1", "node-10"]),
        (Kind::Client, "", &plain, &["cam"]),
        (Kind::Shard, "", &plain, &["f/2/0@node-1"]),
    ];
    for (kind, word, line, expected) in table {
        assert_eq!(offered_by(&daemon, kind, word, line), expected, "{kind:?}");
    }
}

#[test]
fn a_page_of_names_begins_where_the_word_does() {
    let table = [("", None), ("a", Some("`~")), ("node", Some("nodd~")), ("é", None)];
    for (word, expected) in table {
        assert_eq!(before(word).as_deref(), expected, "{word}");
        let Some(before) = before(word) else { continue };
        for name in ["a", "a1", "node", "node-1", "nodezzz"].iter().filter(|n| n.starts_with(word))
        {
            assert!(*name > before.as_str(), "{name} is behind {before}");
        }
    }
}

#[test]
fn a_command_line_says_which_site_is_asked() {
    let of = |config: Option<&str>, context: Option<&str>, socket: Option<&str>| Line {
        config: config.map(Into::into),
        context: context.map(Into::into),
        socket: socket.map(Into::into),
        dead: false,
    };
    let table: [(&[&str], Line); 6] = [
        (&["consign", "send", "--to", ""], Line::default()),
        (&["consign", "-c", "a.toml", "send", "--to", ""], of(Some("a.toml"), None, None)),
        (&["consign", "ls", "--config=b", "--peer", ""], of(Some("b"), None, None)),
        (&["consign", "--context", "=", "home", "ls"], of(None, Some("home"), None)),
        (&["consign", "--socket=/run/s", "ls"], of(None, None, Some("/run/s"))),
        (&["consign", "ls", "-c"], Line::default()),
    ];
    for (words, expected) in table {
        assert_eq!(line(words), expected, "{words:?}");
    }
    assert!(line(&["consign", "deadletter", "purge", ""]).dead);
}

#[test]
fn what_does_not_answer_is_not_waited_for_and_what_came_first_stays() {
    let begun = Instant::now();
    let found = within(Duration::from_millis(50), |told| {
        let _ = told.send(vec![Value::new("beta", "")]);
        let (_open, never) = channel::<()>();
        let _ = never.recv();
    });
    assert_eq!(found, [Value::new("beta", "")]);
    assert!(begun.elapsed() < Duration::from_secs(30), "it is not held up");
    let found = within(Duration::from_secs(60), |told| {
        let _ = told.send(vec![Value::new("beta", "")]);
        let _ = told.send(vec![Value::new("gamma", "")]);
    });
    assert_eq!(found, [Value::new("gamma", "")], "the last word counts");
    let nobody = Daemon::answering(|_, _| Say::Hang);
    assert!(ask(Kind::Peer, "", &Line::default(), &mut Api::new(&nobody.socket())).is_err());
}

#[test]
fn codes_are_offered_once_they_are_begun() {
    assert_eq!(known_codes(""), []);
    let found = known_codes("CN06");
    assert!(found.len() > 10 && found.iter().all(|value| value.text.starts_with("CN06")));
    let quota = known_codes("quota");
    assert_eq!(quota.iter().filter(|value| value.text == "quota").count(), 1);
}
